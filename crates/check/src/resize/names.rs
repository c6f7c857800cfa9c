//! Directories after inodes got new numbers: entries, `.` and `..`, and checksums, which begin with
//! the directory's own number.

use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext_disk::checksum::InodeSeed;
use finefs_ext_disk::dirent::{DirBlock, DirRules, decode_rec_len};
use finefs_ext_disk::extent::{DEPTH_MAX, ExtentNode};
use finefs_ext_disk::htree::{DxBlock, DxPlace};
use finefs_ext_disk::inode::{Inode, InodeFlags};
use finefs_ext_disk::xattr::{NameIndex, XattrRegion, XattrValue, entry_hash};
use finefs_ext_disk::{Ino, indirect};

use super::numbers::Numbers;
use crate::pass::{Check, looks_like_index};

const HEADER: usize = 8;
/// Bytes of the parent's number at the start of an inline directory.
const INLINE_PARENT: usize = 4;

/// The directories of the new file system.
pub(super) struct Names<'a> {
    pub check: &'a Check,
    pub view: &'a Arc<dyn BlockDevice>,
    pub numbers: &'a Numbers,
}

impl Names<'_> {
    /// Changes a directory, whose inode lies at `place` now.
    pub fn directory(&self, old: u32, place: u64) -> Result<(), String> {
        let fs = &self.check.fs;
        let own = self.numbers.of(old);
        let mut inode = read_inode(self.view, place, fs.geo.inode_size)?;
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            if self.inline(&mut inode) {
                inode.update_checksum(&fs.rules, Ino(own));
                self.write(place, inode.as_bytes())?;
            }
            return Ok(());
        }
        let seed = inode.seed(&fs.rules, Ino(own));
        let is_indexed = inode.flags().contains(InodeFlags::INDEX);
        let rules = fs.dir_rules.with_flags(inode.flags());
        let blocks = data_blocks(self.view, &inode, fs.geo.block_size)?;
        for (at, block) in blocks.into_iter().enumerate() {
            let start = block * u64::from(fs.geo.block_size);
            let mut bytes = fs.block_buffer();
            self.view
                .read_at(start, &mut bytes)
                .map_err(|error| error.to_string())?;
            let is_changed = self.entries(&mut bytes);
            if let Some(seed) = seed.filter(|_| is_changed || own != old) {
                seal(&mut bytes, seed, rules, is_indexed.then_some(at))?;
            }
            if is_changed || own != old {
                self.write(start, &bytes)?;
            }
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), String> {
        self.view
            .write_at(at, bytes)
            .map_err(|error| error.to_string())
    }

    /// Changes the numbers in a chain of entries; true where there was one.
    fn entries(&self, bytes: &mut [u8]) -> bool {
        let size = bytes.len();
        let mut is_changed = false;
        let mut at = 0;
        while at + HEADER <= size {
            let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            let old = u32::from_le_bytes(word(at));
            let raw = u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]);
            let length = match size < 1024 {
                true => usize::from(raw),
                false => decode_rec_len(raw, size),
            };
            let new = self.numbers.of(old);
            if new != old {
                bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
                is_changed = true;
            }
            at += length.max(HEADER);
        }
        is_changed
    }

    /// A directory in its inode: `i_block`, and the attribute "system.data".
    fn inline(&self, inode: &mut Inode<Vec<u8>>) -> bool {
        let area = inode.block_area_mut();
        let old = u32::from_le_bytes([area[0], area[1], area[2], area[3]]);
        let parent = self.numbers.of(old);
        area[..INLINE_PARENT].copy_from_slice(&parent.to_le_bytes());
        let mut is_changed = parent != old;
        is_changed |= self.entries(&mut area[INLINE_PARENT..]);
        if let Some(area) = inode.xattr_bytes_mut()
            && let Some((value, name)) = data_value(area)
        {
            let has_changed = self.entries(&mut area[value.clone()]);
            is_changed |= has_changed;
            let hash = area[name.start - 4..name.start].to_vec();
            if has_changed && hash != [0; 4] {
                let hash = entry_hash(&area[name.clone()], &area[value]);
                area[name.start - 4..name.start].copy_from_slice(&hash.to_le_bytes());
            }
        }
        is_changed
    }
}

/// Sets a block's checksum: a leaf's, or (`index_at`) that of the block there of an indexed
/// directory.
fn seal(
    bytes: &mut Vec<u8>,
    seed: InodeSeed,
    rules: DirRules,
    index_at: Option<usize>,
) -> Result<(), String> {
    let text = |error: finefs_ext_disk::DiskError| error.to_string();
    let own = std::mem::take(bytes);
    let place = match index_at {
        Some(0) => Some(DxPlace::Root),
        Some(_) if looks_like_index(&own) => Some(DxPlace::below_root(rules)),
        _ => None,
    };
    *bytes = if let Some(place) = place {
        let mut block = DxBlock::new(own, place, rules.has_tail).map_err(text)?;
        block.update_checksum(seed);
        block.as_bytes().to_vec()
    } else {
        let mut block = DirBlock::new(own, rules).map_err(text)?;
        block.update_checksum(seed);
        block.as_bytes().to_vec()
    };
    Ok(())
}

/// Where the value of "system.data" and its name lie in the attributes of an inode.
fn data_value(area: &[u8]) -> Option<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let region = XattrRegion::in_inode(area).ok()??;
    let found = region.find(NameIndex::SYSTEM, b"data")?;
    let XattrValue::Bytes(value) = found.value else {
        return None;
    };
    let within = |part: &[u8]| {
        let start = (part.as_ptr() as usize).checked_sub(area.as_ptr() as usize)?;
        Some(start..start + part.len())
    };
    Some((within(value)?, within(found.name)?)).filter(|_| !value.is_empty())
}

pub(super) fn read_inode(
    view: &Arc<dyn BlockDevice>,
    place: u64,
    size: u16,
) -> Result<Inode<Vec<u8>>, String> {
    let mut bytes = vec![0; usize::from(size)];
    view.read_at(place, &mut bytes)
        .map_err(|error| error.to_string())?;
    Inode::new(bytes).map_err(|error| error.to_string())
}

/// The blocks of a file without holes, in order.
pub(super) fn data_blocks(
    view: &Arc<dyn BlockDevice>,
    inode: &Inode<Vec<u8>>,
    block_size: u32,
) -> Result<Vec<u64>, String> {
    let mut blocks = Vec::new();
    if inode.flags().contains(InodeFlags::EXTENTS) {
        extents(view, inode.block_area(), block_size, DEPTH_MAX, &mut blocks)?;
        return Ok(blocks);
    }
    for (index, block) in inode.block_words().into_iter().enumerate() {
        let level = (index as u32).saturating_sub(indirect::DIRECT - 1);
        pointers(view, u64::from(block), block_size, level, &mut blocks)?;
    }
    Ok(blocks)
}

fn read_block(view: &Arc<dyn BlockDevice>, block: u64, size: u32) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; size as usize];
    view.read_at(block * u64::from(size), &mut bytes)
        .map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn extents(
    view: &Arc<dyn BlockDevice>,
    bytes: &[u8],
    size: u32,
    budget: u16,
    blocks: &mut Vec<u64>,
) -> Result<(), String> {
    let node = ExtentNode::new(bytes).map_err(|error| error.to_string())?;
    for extent in node.extents() {
        blocks.extend(extent.physical.0..extent.physical.0 + u64::from(extent.len));
    }
    for index in node.indexes() {
        let budget = budget.checked_sub(1).ok_or("an extent tree is too deep")?;
        let below = read_block(view, index.block.0, size)?;
        extents(view, &below, size, budget, blocks)?;
    }
    Ok(())
}

fn pointers(
    view: &Arc<dyn BlockDevice>,
    block: u64,
    size: u32,
    level: u32,
    blocks: &mut Vec<u64>,
) -> Result<(), String> {
    if block == 0 {
        return Ok(());
    }
    if level == 0 {
        blocks.push(block);
        return Ok(());
    }
    let bytes = read_block(view, block, size)?;
    for word in bytes.as_chunks::<4>().0 {
        let below = u64::from(u32::from_le_bytes(*word));
        pointers(view, below, size, level - 1, blocks)?;
    }
    Ok(())
}
