//! Blocks that are not to be used: inode 1 has them.
//!
//! Which they are is said (`-l`), or found by reading everything (`-c`).

use std::io;

use finefs_block::BlockDevice;
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::units::Ino;

use super::build::Build;
use super::error::{MkfsError, Result};
use super::maps::{self, Wanted};
use super::options::Options;
use super::shape::Shape;

/// So much is read at once where nothing fails.
const READ_BYTES: usize = 1 << 20;

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
    let block_size = geo.block_size as usize;
    let mut buffer = vec![0; READ_BYTES.max(block_size)];
    let per_read = (buffer.len() / block_size) as u64;
    let mut bad = Vec::new();
    let mut block = 0;
    while block < geo.blocks_count {
        let count = per_read.min(geo.blocks_count - block);
        let part = &mut buffer[..count as usize * block_size];
        if let Err(error) = device.read_at(block * block_size as u64, part) {
            if error.kind() == io::ErrorKind::Interrupted {
                return Err(error);
            }
            for block in block..block + count {
                let one = &mut buffer[..block_size];
                if device.read_at(block * block_size as u64, one).is_err() {
                    bad.push(block);
                }
            }
        }
        block += count;
    }
    match bad.len() as u64 == geo.blocks_count {
        true => Err(io::Error::other("nothing of it can be read")),
        false => Ok(bad),
    }
}
