//! What a finding says, put right by itself.

use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext::{QuotaKind, replay};
use finefs_ext_disk::dirent::{DirBlock, EntryType};
use finefs_ext_disk::extent::ExtentNode;
use finefs_ext_disk::features::RoCompat;
use finefs_ext_disk::htree::{DxBlock, DxPlace};
use finefs_ext_disk::inode::{Inode, InodeFlags, LINKS_MAX, LINKS_UNCOUNTED};
use finefs_ext_disk::mmp::MmpBlock;
use finefs_ext_disk::superblock::SUPERBLOCK_OFFSET;
use finefs_ext_disk::{Ino, PhysBlock, xattr};

use super::superblock;
use crate::finding::{Finding, Findings, Problem};
use crate::pass::{Check, Runs};
use crate::walk;

/// The first inode that is not reserved, which revision 0 does not say.
const FIRST_INO_OF_REVISION_0: u32 = 11;
const INODE_BYTES_OF_REVISION_0: u16 = 128;

/// An inode, and where it lies on the device.
type Placed = (u64, Inode<Vec<u8>>);

/// What fixes need.
pub(super) struct Fix<'a> {
    pub view: &'a Arc<dyn BlockDevice>,
    pub check: &'a Check,
}

impl Fix<'_> {
    /// Makes quota files say what was counted; false where that cannot be.
    pub fn quotas(&self) -> Result<bool, String> {
        let of = |kind: QuotaKind| {
            let held = self.check.usage.of(kind).iter();
            let held = held.map(|(id, held)| (*id, (held.bytes, held.inodes)));
            (kind, held.collect())
        };
        replay::set_quota_usage(self.view, &QuotaKind::ALL.map(of))
    }

    pub fn one(&self, finding: &Finding) -> Result<bool, String> {
        let (ino, block) = (finding.object.inode, finding.object.block);
        let fs = &self.check.fs;
        Ok(match (finding.problem, ino, block) {
            (Problem::SuperblockChecksum, _, _) => {
                let mut sb = superblock(self.view)?;
                sb.update_checksum();
                self.write(SUPERBLOCK_OFFSET, sb.as_bytes())?;
                true
            }
            (Problem::LargeFile, _, _) => self.set_large_file()?,
            (Problem::Mmp, _, _) => self.renew_mmp_block()?,
            (Problem::InodeChecksum, Some(ino), _) => self.inode(ino, |_| ())?,
            (Problem::InodeTime, Some(ino), _) => {
                let now = fs.sb.write_time().max(1) as u32;
                self.inode(ino, |inode| {
                    let is_used = inode.links_count() > 0;
                    inode.set_dtime(if is_used { 0 } else { now });
                })?
            }
            (Problem::InodeBlocks, Some(ino), _) => {
                let mut fits = true;
                let count = finding.value;
                self.inode(ino, |inode| {
                    fits = inode.set_blocks_512(&fs.rules, count).is_ok();
                })? && fits
            }
            (Problem::LinkCount, Some(ino), _) => {
                let count = u16::try_from(finding.value).unwrap_or(u16::MAX);
                let count = if count > LINKS_MAX {
                    LINKS_UNCOUNTED
                } else {
                    count
                };
                self.inode(ino, |inode| inode.set_links_count(count))?
            }
            (Problem::ExtentChecksum, Some(ino), Some(block)) => self.extent(ino, block)?,
            (Problem::DirectoryChecksum, Some(ino), Some(block)) => {
                self.directory(ino, block, |_| Some(()))?
            }
            (Problem::EntryType, Some(ino), Some(block)) => {
                let name = finding.object.entry.clone().unwrap_or_default();
                let kind = EntryType(finding.value as u8);
                self.directory(ino, block, |view| {
                    let mut entries = view.entries().map_while(Result::ok);
                    let is_it = |shown: &[u8]| shown.escape_ascii().to_string() == name;
                    let entry = entries.find(|entry| entry.is_used() && is_it(entry.name))?;
                    let (at, target) = (entry.offset, entry.ino);
                    view.set_target(at, target, kind).ok()
                })?
            }
            (Problem::XattrChecksum, _, Some(block)) => self.attributes(block, None)?,
            (Problem::XattrRefcount, _, Some(block)) => {
                self.attributes(block, Some(finding.value as u32))?
            }
            (Problem::DotDot, Some(ino), _) => self.dotdot(ino, finding.value as u32)?,
            _ => false,
        })
    }

    /// Sets `large_file`, and with it the revision that has features, as e2fsck does.
    fn set_large_file(&self) -> Result<bool, String> {
        let mut sb = superblock(self.view)?;
        sb.set_ro_compat(sb.ro_compat() | RoCompat::LARGE_FILE);
        if sb.rev_level() == 0 {
            sb.set_rev_level(1);
            sb.set_first_ino_raw(FIRST_INO_OF_REVISION_0);
            sb.set_inode_size_raw(INODE_BYTES_OF_REVISION_0);
        }
        sb.update_checksum();
        self.write(SUPERBLOCK_OFFSET, sb.as_bytes())?;
        Ok(true)
    }

    /// Writes the block of multiple mount protection anew, as it is after a repair that holds it.
    fn renew_mmp_block(&self) -> Result<bool, String> {
        let sb = &self.check.fs.sb;
        let mut block = MmpBlock::clean(sb.write_time(), sb.mmp_interval());
        if sb.has_metadata_csum() {
            block.update_checksum(sb.seed());
        }
        let at = sb.mmp_block() * u64::from(self.check.fs.geo.block_size);
        self.write(at, block.as_bytes())?;
        Ok(true)
    }

    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), String> {
        self.view
            .write_at(at, bytes)
            .map_err(|error| error.to_string())
    }

    pub fn read_block(&self, block: u64) -> Result<Vec<u8>, String> {
        let mut bytes = self.check.fs.block_buffer();
        let at = block * u64::from(self.check.fs.geo.block_size);
        self.view
            .read_at(at, &mut bytes)
            .map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    pub fn write_block(&self, block: u64, bytes: &[u8]) -> Result<(), String> {
        self.write(block * u64::from(self.check.fs.geo.block_size), bytes)
    }

    /// The inode as the shadow has it, and where it lies.
    pub fn read_inode(&self, ino: u32) -> Result<Option<Placed>, String> {
        let fs = &self.check.fs;
        let Some(place) = fs.geo.locate_inode(Ino(ino)) else {
            return Ok(None);
        };
        let table = fs.groups[place.group.0 as usize].inode_table;
        let at = (table + u64::from(place.table_block)) * u64::from(fs.geo.block_size)
            + u64::from(place.offset);
        let mut bytes = vec![0; usize::from(fs.geo.inode_size)];
        self.view
            .read_at(at, &mut bytes)
            .map_err(|error| error.to_string())?;
        Ok(Inode::new(bytes).ok().map(|inode| (at, inode)))
    }

    /// Changes an inode, and sets its checksum.
    pub fn inode(
        &self,
        ino: u32,
        change: impl FnOnce(&mut Inode<Vec<u8>>),
    ) -> Result<bool, String> {
        let Some((at, mut inode)) = self.read_inode(ino)? else {
            return Ok(false);
        };
        change(&mut inode);
        inode.update_checksum(&self.check.fs.rules, Ino(ino));
        self.write(at, inode.as_bytes())?;
        Ok(true)
    }

    fn extent(&self, ino: u32, block: u64) -> Result<bool, String> {
        let Some((_, inode)) = self.read_inode(ino)? else {
            return Ok(false);
        };
        let bytes = self.read_block(block)?;
        let seed = inode.seed(&self.check.fs.rules, Ino(ino));
        let (Some(seed), Ok(mut node)) = (seed, ExtentNode::new(bytes)) else {
            return Ok(false);
        };
        node.update_checksum(seed);
        self.write_block(block, node.as_bytes())?;
        Ok(true)
    }

    /// Changes a leaf of a directory, and sets its checksum.
    pub fn directory(
        &self,
        ino: u32,
        block: u64,
        change: impl FnOnce(&mut DirBlock<Vec<u8>>) -> Option<()>,
    ) -> Result<bool, String> {
        let Some((_, inode)) = self.read_inode(ino)? else {
            return Ok(false);
        };
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            return Ok(false);
        }
        let bytes = self.read_block(block)?;
        let Ok(mut view) = DirBlock::new(bytes, self.check.fs.dir_rules) else {
            return Ok(false);
        };
        if change(&mut view).is_none() {
            return Ok(false);
        }
        if let Some(seed) = inode.seed(&self.check.fs.rules, Ino(ino)) {
            view.update_checksum(seed);
        }
        self.write_block(block, view.as_bytes())?;
        Ok(true)
    }

    fn attributes(&self, block: u64, refcount: Option<u32>) -> Result<bool, String> {
        let mut bytes = self.read_block(block)?;
        if let Some(refcount) = refcount {
            xattr::set_refcount(&mut bytes, refcount);
        }
        if let Some(seed) = self.check.fs.rules.seed {
            xattr::update_block_checksum(seed, PhysBlock(block), &mut bytes);
        }
        self.write_block(block, &bytes)?;
        Ok(true)
    }

    /// The blocks of a directory, in order.
    pub fn blocks(&self, ino: u32) -> Result<Option<Vec<u64>>, String> {
        let Some((_, inode)) = self.read_inode(ino)? else {
            return Ok(None);
        };
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            return Ok(None);
        }
        let mut runs = Runs::default();
        let mut told = Findings::default();
        walk::walk(&self.check.fs, ino, &inode, &mut runs, &mut told);
        let blocks = runs.0.iter().flat_map(|(_, at, length)| *at..at + length);
        Ok(Some(blocks.collect()))
    }

    fn dotdot(&self, ino: u32, parent: u32) -> Result<bool, String> {
        let Some(blocks) = self.blocks(ino)? else {
            // It lies in the inode, and so does the number of its parent.
            return self.inode(ino, |inode| {
                inode.block_area_mut()[..4].copy_from_slice(&parent.to_le_bytes());
            });
        };
        let (Some(first), Some((_, inode))) = (blocks.first(), self.read_inode(ino)?) else {
            return Ok(false);
        };
        let seed = inode.seed(&self.check.fs.rules, Ino(ino));
        if !inode.flags().contains(InodeFlags::INDEX) {
            return self.directory(ino, *first, |view| {
                let at = view.find(b"..").ok()??.offset;
                let kind = EntryType::from(finefs_ext_disk::inode::FileKind::Directory);
                view.set_target(at, Ino(parent), kind).ok()
            });
        }
        let bytes = self.read_block(*first)?;
        let has_tail = self.check.fs.dir_rules.has_tail;
        let Ok(mut root) = DxBlock::new(bytes, DxPlace::Root, has_tail) else {
            return Ok(false);
        };
        root.set_parent(Ino(parent));
        if let Some(seed) = seed {
            root.update_checksum(seed);
        }
        self.write_block(*first, root.as_bytes())?;
        Ok(true)
    }
}
