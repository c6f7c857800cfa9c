//! Sizes and space that only a commit settles.
//!
//! How large a directory is, and what the tree of a file's mapping and its extended attributes take
//! beside its data, the store decides when it applies a batch, and [`Settled`] tells. Between a
//! change and its commit
//! `stat` shows what the last commit left and, of a file, the data blocks that came and went since.
//! Such attributes are marked ([`Attributes::is_settled`]), so that a front end that keeps them
//! asks again.

use crossbeam_epoch::Guard;

use crate::base::file_flags::FileFlags;
use crate::base::store::Settled;
use crate::base::types::{Attributes, FileKind, LogicalBlock};
use crate::commit::volume::Volume;
use crate::inode::Inode;

/// Blocks of a small mapping are looked for among so many: the first of the file.
const LOOKED_AT_BLOCKS: u64 = 12;

impl Volume {
    /// The attributes of an inode, as stat(2) shows them.
    pub(crate) fn shown(&self, inode: &Inode, guard: &Guard) -> Attributes {
        // This first: what a commit settles it has shown before it counts as durable.
        let is_settled = self.is_settled(inode, guard);
        let attributes = inode.attributes();
        Attributes {
            is_settled,
            sectors: attributes.sectors + sectors_in_inode(&attributes),
            ..attributes
        }
    }

    /// True when no commit will change size or space of the inode before something else does.
    fn is_settled(&self, inode: &Inode, guard: &Guard) -> bool {
        // Over a store that takes no batches none is ever dirty.
        if inode.dirty_generation() == 0 {
            return true;
        }
        let is_known = match inode.kind {
            FileKind::Directory => false,
            FileKind::Regular => self.maps_in_inode(inode, guard),
            _ => true,
        };
        is_known && !inode.has_loaded_xattrs() || !self.log.is_dirty(inode)
    }

    /// True when a file takes space for its data alone, and will after a commit: its mapping is so
    /// small that it fits the inode. A small mapping is looked at, as there may have been a larger
    /// one before.
    fn maps_in_inode(&self, inode: &Inode, guard: &Guard) -> bool {
        let sectors = inode.sectors();
        if sectors == 0 {
            return true;
        }
        let blocks = sectors.div_ceil(self.block_bytes() / 512);
        let is_block_mapped = inode.is_old_form() || !self.geometry.has_unwritten;
        let size_bytes = inode.size_bytes();
        let may_fit = self
            .store
            .mapping_fits_inode(size_bytes, blocks, is_block_mapped);
        let contents = inode.file().ok().and_then(|file| file.used_contents());
        let Some(extents) = contents.and_then(|contents| contents.extents.get()) else {
            return false;
        };
        may_fit && {
            let end = LogicalBlock(LOOKED_AT_BLOCKS.max(blocks));
            let runs = extents.runs(LogicalBlock(0), end, guard);
            runs.iter().map(|run| run.length).sum::<u64>() == blocks
        }
    }

    /// What a new inode takes at once: a directory and a long symbolic link have a block.
    pub(crate) fn sectors_of_new(&self, kind: FileKind, target_bytes: u32) -> u64 {
        let has_block = match kind {
            FileKind::Directory => true,
            FileKind::Symlink => target_bytes > self.geometry.symlink_inline_max,
            _ => false,
        };
        match has_block && self.keeps_log {
            true => self.block_bytes() / 512,
            false => 0,
        }
    }

    /// Takes in what a commit of the generations up to `number` settled.
    pub(crate) fn settle(&self, settled: &[Settled], number: u64) {
        self.for_each_piece(settled, |settled, guard| {
            settled
                .iter()
                .for_each(|settled| self.settle_one(settled, number, guard));
        });
    }

    fn settle_one(&self, settled: &Settled, number: u64, guard: &Guard) {
        let cell = self.inodes.get(settled.ino, guard);
        let Some(core) = cell.and_then(|inode| inode.loaded()) else {
            return;
        };
        self.recount(core);
        if let Some(size_bytes) = settled.directory_bytes {
            // Nothing but commits changes these.
            core.set_size(&core.lock(), size_bytes);
            core.set_sectors(settled.sectors);
        } else {
            // Who changes the count logs that under the same lock.
            let _lock = core.lock();
            // An inode that changed again since the swap gets its count by its next commit.
            if core.dirty_generation() <= number {
                core.set_sectors(settled.sectors);
            }
        }
    }
}

/// What data in the inode counts for: a file without any sectors looks like a hole to tar(1),
/// rsync(1) and others (Linux `ext4_file_getattr`).
fn sectors_in_inode(attributes: &Attributes) -> u64 {
    let is_inline =
        attributes.kind == FileKind::Regular && attributes.flags.contains(FileFlags::INLINE_DATA);
    match is_inline {
        true => attributes.size_bytes.div_ceil(512),
        false => 0,
    }
}
