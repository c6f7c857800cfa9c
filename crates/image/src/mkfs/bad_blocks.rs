//! Blocks that are not to be used: inode 1 has them.
//!
//! Which they are is said (`-l`), or found by reading everything (`-c`), or by writing patterns and
//! reading them again (`-cc`), as badblocks(8) does with `-w`.

use std::collections::BTreeSet;
use std::io;

use finefs_block::BlockDevice;
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::units::Ino;

use super::build::Build;
use super::error::{MkfsError, Result};
use super::maps::{self, Wanted};
use super::options::Options;
use super::shape::Shape;

/// So much is read or written at once where nothing fails.
const READ_BYTES: usize = 1 << 20;
/// What badblocks(8) writes, one after the other; the last one leaves zeros.
const PATTERNS: [u8; 4] = [0xaa, 0x55, 0xff, 0x00];

/// The blocks that are asked for, in order, as far as the file system has them; a note of those
/// that it does not have.
pub(super) fn listed(shape: &Shape, options: &Options) -> Result<(Vec<u64>, Option<String>)> {
    let geo = &shape.geo;
    if let Some(block) = options.bad_blocks.first()
        && geo.cluster_ratio > 1
    {
        let reason = "bad blocks cannot be left out of clusters; take -O ^bigalloc";
        return Err(MkfsError::value("-l", block, reason));
    }
    let mut blocks = options.bad_blocks.clone();
    blocks.sort_unstable();
    blocks.dedup();
    let all = blocks.len();
    blocks.retain(|block| (u64::from(geo.first_data_block)..geo.blocks_count).contains(block));
    let left_out = all - blocks.len();
    let note = (left_out > 0).then(|| {
        format!(
            "{left_out} bad blocks lie outside of the file system's {}",
            geo.blocks_count
        )
    });
    Ok((blocks, note))
}

impl Build {
    /// Gives the bad blocks to their inode. As mke2fs, which counts no block of the map.
    pub fn bad_blocks(&mut self, blocks: &[u64]) -> Result<()> {
        if blocks.is_empty() {
            return Ok(());
        }
        let geo = &self.shape.geo;
        let block_size = u64::from(geo.block_size);
        let wanted = Wanted {
            blocks: blocks.len() as u64,
            goal: geo.first_data_block.into(),
            has_extents: false,
            block_size: geo.block_size,
            seed: None,
            what: "the list of bad blocks",
        };
        let map = maps::block_map(&mut self.space, &wanted, Some(blocks))?;
        for (block, bytes) in &map.nodes {
            let run = *block..*block + 1;
            super::tables::touch(&self.shape.geo, &mut self.tables.is_touched, run);
            self.pieces.put_block(*block, bytes.clone());
        }
        let bytes = blocks.len() as u64 * block_size;
        let rules = *self.rules();
        if let Some(inode) = self.inodes.get_mut(&Ino::BAD_BLOCKS.0) {
            inode.block_area_mut().copy_from_slice(&map.area);
            inode.set_size(&rules, bytes)?;
            inode.set_blocks_512(&rules, bytes / 512)?;
        }
        Ok(())
    }
}

/// The blocks that cannot be read. Other errors than those of single blocks are there in a second
/// attempt too, and make all blocks bad: then nothing can be made here anyway.
pub(super) fn unreadable(device: &dyn BlockDevice, geo: &Geometry) -> io::Result<Vec<u64>> {
    let mut bad = BTreeSet::new();
    let mut buffer = vec![0; READ_BYTES.max(geo.block_size as usize)];
    each(geo, &mut bad, &mut |at, length| {
        device.read_at(at, &mut buffer[..length])
    })?;
    list(bad, geo, "nothing of it can be read")
}

/// The blocks that cannot be written, or read again as they were written. All that is there is
/// zeros then. Each pattern is written to the whole before any of it is read, and what the host
/// remembers of it is dropped in between.
pub(super) fn unwritable(device: &dyn BlockDevice, geo: &Geometry) -> io::Result<Vec<u64>> {
    let mut bad = BTreeSet::new();
    let size_bytes = READ_BYTES.max(geo.block_size as usize);
    for pattern in PATTERNS {
        let written = vec![pattern; size_bytes];
        let mut read = vec![0; size_bytes];
        each(geo, &mut bad, &mut |at, length| {
            device.write_at(at, &written[..length])
        })?;
        // What a device with bad blocks says of all that was written says nothing of single ones.
        if let Err(error) = device.flush()
            && error.kind() == io::ErrorKind::Interrupted
        {
            return Err(error);
        }
        device.forget_cached_at(0, geo.size_bytes());
        each(geo, &mut bad, &mut |at, length| {
            device.read_at(at, &mut read[..length])?;
            match read[..length] == written[..length] {
                true => Ok(()),
                false => Err(io::ErrorKind::InvalidData.into()),
            }
        })?;
    }
    list(bad, geo, "nothing of it keeps what is written")
}

/// Does something to all blocks, by offset and length: many at a time, and where that fails, one by
/// one. Those where it fails then are bad.
fn each(
    geo: &Geometry,
    bad: &mut BTreeSet<u64>,
    work: &mut dyn FnMut(u64, usize) -> io::Result<()>,
) -> io::Result<()> {
    let block_size = geo.block_size as usize;
    let per_piece = (READ_BYTES.max(block_size) / block_size) as u64;
    let mut block = 0;
    while block < geo.blocks_count {
        let count = per_piece.min(geo.blocks_count - block);
        let bytes = count as usize * block_size;
        if let Err(error) = work(block * block_size as u64, bytes) {
            if error.kind() == io::ErrorKind::Interrupted {
                return Err(error);
            }
            let mut failing = |block: &u64| work(block * block_size as u64, block_size).is_err();
            bad.extend((block..block + count).filter(&mut failing));
        }
        block += count;
    }
    Ok(())
}

fn list(bad: BTreeSet<u64>, geo: &Geometry, all: &str) -> io::Result<Vec<u64>> {
    match bad.len() as u64 == geo.blocks_count {
        true => Err(io::Error::other(all)),
        false => Ok(bad.into_iter().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkfs::{Options, make};
    use finefs_block::MemoryDevice;

    /// A device of which some bytes cannot be written, and some come back otherwise.
    struct Worn {
        device: MemoryDevice,
        refusing: u64,
        forgetting: u64,
    }

    impl BlockDevice for Worn {
        fn len_bytes(&self) -> u64 {
            self.device.len_bytes()
        }

        fn is_read_only(&self) -> bool {
            false
        }

        fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
            self.device.read_at(offset_bytes, buffer)?;
            let at = self.forgetting.checked_sub(offset_bytes);
            if let Some(byte) = at.and_then(|at| buffer.get_mut(at as usize)) {
                *byte |= 1;
            }
            Ok(())
        }

        fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
            match (offset_bytes..offset_bytes + data.len() as u64).contains(&self.refusing) {
                true => Err(io::Error::other("worn")),
                false => self.device.write_at(offset_bytes, data),
            }
        }

        fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
            self.write_at(offset_bytes, &vec![0; length_bytes as usize])
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }

        fn describe(&self) -> String {
            "worn".to_owned()
        }
    }

    #[test]
    fn what_does_not_keep_patterns_is_left_out() {
        let device = Worn {
            device: MemoryDevice::new(8 << 20),
            refusing: 6_000 * 1024 + 7,
            forgetting: 7_000 * 1024 + 9,
        };
        let options = Options {
            writes_patterns: true,
            block_size: Some(1024),
            ..Options::default()
        };
        let made = make(&device, false, &options).expect("the rest is good");
        let note = "2 blocks do not keep what is written, and are left out";
        assert_eq!(made.notes, [note]);
        let listed = Options {
            writes_patterns: false,
            bad_blocks: vec![6_000, 7_000],
            block_size: Some(1024),
            ..Options::default()
        };
        let wanted = crate::mkfs::plan(8 << 20, &listed).expect("the same");
        assert_eq!(made.free_blocks, wanted.free_blocks);
    }
}
