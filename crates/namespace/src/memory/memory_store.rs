//! The memory store: it keeps file data in memory and persists nothing.
//!
//! # Data model
//! Blocks are pages of one private anonymous mapping as large as the file system may grow; the
//! kernel gives memory for a page when a CPU takes it with its next fresh ones, or when it is first
//! written. Free blocks are runs on per-CPU lists; beyond them lies what was never used, of which a
//! CPU takes a number at a time. What was freed last is given first: it is still in the CPU's
//! caches. Long runs that are freed go back to the kernel.
//!
//! Inode numbers likewise. They index the inode table, so a CPU takes as many as keep its slots out
//! of the cache lines of another's. Directories have numbers of their own: everybody reads the
//! slots of those that paths lead through, and they must not lie in a line with those of files that
//! come and go.
//!
//! # Invariants
//! A block is on at most one free list, or beyond `fresh`, or belongs to one file. In a [namespace
//! of its own](MemoryStore::into_namespace) a thread that reads or writes a block owns it through
//! the range lock of its file, which is what [exclusive pages](Pages::exclusive) ask for. Any other
//! caller may be anywhere at any time.

use std::sync::Arc;

use finefs_locks::primitive::atomic::{AtomicU64, Ordering};
use finefs_locks::{LimitedCounter, LocalGlobal};

use crate::base::classes;
use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::store::{
    Batch, BlockRun, Captured, Charge, Committed, DirectoryImage, Extent, Geometry, Goal, Identity,
    InodeForm, InodeImage, Plan, Store,
};
use crate::base::types::{Attributes, BlockNo, FileKind, Ino, StatFs, Times, Timestamp};
use crate::commit::options::Options;
use crate::memory::pages::Pages;
use crate::namespace::Namespace;

const BLOCK_BYTES: u64 = 4096;
/// Inode numbers that a CPU takes at a time: slots of some cache lines.
const INODES_AT_ONCE: u64 = 64;
/// Unused blocks that a CPU takes at a time, at least.
const BLOCKS_AT_ONCE: u64 = 64;
/// Freed runs of at least this many blocks go back to the kernel.
const RETURN_BLOCKS: u64 = 256;
const ROOT: Ino = Ino(1);

/// A store in memory, for one namespace and its [own](MemoryStore::into_namespace), or for any
/// [`Store`] that is made of others.
///
/// Its reads and writes of the same bytes may run at the same time: what is read, or stays, is then
/// a mix of what was written.
pub struct MemoryStore {
    geometry: Geometry,
    root: Attributes,
    pages: Pages,
    blocks: u64,
    free_blocks: LimitedCounter,
    /// The first block that was never used.
    fresh: AtomicU64,
    inodes: u64,
    free_inodes: LimitedCounter,
    next_inode: AtomicU64,
    free: LocalGlobal<FreeList>,
}

#[derive(Default)]
struct FreeList {
    runs: Vec<BlockRun>,
    inodes: Vec<Ino>,
    /// Numbers for directories, never used.
    fresh_directories: Vec<Ino>,
    /// Numbers of directories that are gone, given again only when there are no others: a directory
    /// that was removed while it is in use still names its parent by number, and the parent may be
    /// gone too.
    directories: Vec<Ino>,
    /// Of the next inode that is made on this CPU. No two lists give the same one.
    generation: u32,
}

impl MemoryStore {
    /// A store for up to `size_bytes` of data, with a root directory of these permissions and
    /// owner. EINVAL for less than 16 blocks, EIO when the address space is short.
    pub fn new(size_bytes: u64, root_permissions: u32, uid: u32, gid: u32) -> Result<MemoryStore> {
        let blocks = size_bytes / BLOCK_BYTES;
        if blocks < 16 {
            return Err(Error::Invalid);
        }
        // As tmpfs: one inode for each page, at least a few thousand.
        let inodes = blocks.clamp(4096, (1 << 32) - 2 * INODES_AT_ONCE);
        let now = Timestamp::now();
        Ok(MemoryStore {
            geometry: Geometry {
                root: ROOT,
                block_size_bytes: BLOCK_BYTES as u32,
                new_form: InodeForm::of_size(BLOCK_BYTES << 31),
                old_form: InodeForm::of_size(BLOCK_BYTES << 31),
                cluster_blocks: 1,
                direct_alignment_bytes: 1,
                link_max: u32::MAX - 1,
                directory_link_max: None,
                directory_links_counted_max: u32::MAX,
                name_max: 255,
                symlink_max: 4095,
                symlink_inline_max: 4095,
                inline_max_bytes: 0,
                folding: None,
                name_classes: None,
                has_fine_times: true,
                has_birth_times: true,
                has_unsigned_times: false,
                has_unwritten: true,
                has_packed_blocks: false,
                maps_holes: false,
                batch_records: None,
                is_read_only: false,
                stops_on_damage: false,
                identity: Identity::random(),
            },
            root: Attributes {
                ino: ROOT,
                generation: 0,
                kind: FileKind::Directory,
                permissions: root_permissions & 0o7777,
                link_count: 2,
                uid,
                gid,
                device: 0,
                size_bytes: BLOCK_BYTES,
                sectors: 0,
                times: Times {
                    accessed: now,
                    modified: now,
                    changed: now,
                    created: now,
                },
                flags: FileFlags::empty(),
                project: 0,
                is_settled: true,
            },
            pages: Pages::new(blocks * BLOCK_BYTES)?,
            blocks,
            free_blocks: LimitedCounter::new(blocks),
            fresh: AtomicU64::new(0),
            inodes,
            free_inodes: LimitedCounter::new(inodes - 1),
            next_inode: AtomicU64::new(INODES_AT_ONCE),
            free: LocalGlobal::new(&classes::MEMORY, |shard| FreeList {
                generation: shard as u32,
                ..FreeList::default()
            }),
        })
    }

    /// A namespace over this store alone. Its range locks keep reads and writes of the same bytes
    /// apart, so it copies several times as fast as one that shares the store ([`Namespace::new`]).
    pub fn into_namespace(self, options: Options) -> Result<Arc<Namespace>> {
        let store = match options.locking().keeps_semantics() {
            true => MemoryStore {
                pages: self.pages.exclusive(),
                ..self
            },
            false => self,
        };
        Namespace::new(Arc::new(store), options)
    }

    /// Takes up to `count` blocks off a free list: in ascending order, so that a file that grows by
    /// one block after the other has one extent.
    fn pop_run(list: &mut FreeList, count: u64) -> Option<BlockRun> {
        let last = list.runs.last_mut()?;
        if last.length <= count {
            return list.runs.pop();
        }
        let start = last.start;
        last.start.0 += count;
        last.length -= count;
        Some(BlockRun {
            start,
            length: count,
        })
    }

    /// Takes up to `count` blocks that were never used; what was taken beyond them goes on this
    /// CPU's list.
    fn take_fresh(&self, count: u64) -> Option<BlockRun> {
        let at_once = count.max(BLOCKS_AT_ONCE);
        let start = self
            .fresh
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |fresh| {
                (fresh < self.blocks).then(|| fresh + at_once.min(self.blocks - fresh))
            })
            .ok()?;
        let taken = at_once.min(self.blocks - start);
        let length = count.min(taken);
        if taken > length {
            self.free.local().runs.push(BlockRun {
                start: BlockNo(start + length),
                length: taken - length,
            });
        }
        // More may be for an allocation ahead, of which nothing is written yet.
        if count <= BLOCKS_AT_ONCE {
            self.pages
                .populate(start * BLOCK_BYTES, taken * BLOCK_BYTES);
        }
        Some(BlockRun {
            start: BlockNo(start),
            length,
        })
    }

    /// Takes an inode number that was never used; more of its kind go on this CPU's list.
    fn take_fresh_inode(&self, kind: FileKind) -> Option<Ino> {
        // The root is one of all, and none of these.
        let end = INODES_AT_ONCE + self.inodes - 1;
        let first = self
            .next_inode
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |next| {
                (next < end).then(|| end.min(next + INODES_AT_ONCE))
            })
            .ok()?;
        let more = (first + 1..end.min(first + INODES_AT_ONCE)).rev().map(Ino);
        self.free.local().unused(kind).extend(more);
        Some(Ino(first))
    }
}

impl FreeList {
    /// Numbers for inodes of this kind that nothing can still refer to.
    fn unused(&mut self, kind: FileKind) -> &mut Vec<Ino> {
        match kind {
            FileKind::Directory => &mut self.fresh_directories,
            _ => &mut self.inodes,
        }
    }

    /// Any number, the ones of directories that are gone last.
    fn any(&mut self) -> Option<Ino> {
        let lists = [
            &mut self.inodes,
            &mut self.fresh_directories,
            &mut self.directories,
        ];
        lists.into_iter().find_map(Vec::pop)
    }
}

impl Store for MemoryStore {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn can_reload(&self) -> bool {
        false
    }

    fn takes_batches(&self) -> bool {
        false
    }

    fn load_inode(&self, ino: Ino) -> Result<InodeImage> {
        if ino != ROOT {
            return Err(Error::Stale);
        }
        Ok(InodeImage {
            attributes: self.root,
            inline: None,
            unreadable: None,
            is_old_form: false,
            may_have_acls: false,
        })
    }

    fn load_directory(&self, _ino: Ino) -> Result<DirectoryImage> {
        Ok(DirectoryImage {
            parent: ROOT,
            entries: Vec::new(),
            damage: None,
        })
    }

    fn load_extents(&self, _ino: Ino) -> Result<Vec<Extent>> {
        Ok(Vec::new())
    }

    fn load_symlink(&self, _ino: Ino) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn load_xattrs(&self, _ino: Ino) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        Ok(Vec::new())
    }

    fn read(&self, block: BlockNo, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.pages
            .read(block.0 * BLOCK_BYTES + offset_bytes, buffer)
    }

    fn write(&self, block: BlockNo, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.pages.write(block.0 * BLOCK_BYTES + offset_bytes, data)
    }

    fn write_blank(&self, block: BlockNo, offset_bytes: u64, data: &[u8]) -> Result<()> {
        let start = block.0 * BLOCK_BYTES;
        let end = start + offset_bytes + data.len() as u64;
        self.pages.clear(start, offset_bytes)?;
        self.pages.write(start + offset_bytes, data)?;
        self.pages
            .clear(end, end.next_multiple_of(BLOCK_BYTES) - end)
    }

    fn write_zeros(&self, run: BlockRun) -> Result<()> {
        self.pages
            .clear(run.start.0 * BLOCK_BYTES, run.length * BLOCK_BYTES)
    }

    fn allocate_inode(&self, _parent: Ino, kind: FileKind) -> Result<(Ino, u32)> {
        if !self.free_inodes.try_take(1) {
            return Err(Error::NoSpace);
        }
        let generation = {
            let mut list = self.free.local();
            let generation = list.generation;
            list.generation = generation.wrapping_add(self.free.shard_count() as u32);
            if let Some(ino) = list.unused(kind).pop() {
                return Ok((ino, generation));
            }
            generation
        };
        if let Some(ino) = self.take_fresh_inode(kind) {
            return Ok((ino, generation));
        }
        // One is free for sure, on another CPU's list; it may be on its way there.
        loop {
            for shard in 0..self.free.shard_count() {
                if let Some(ino) = self.free.shard(shard).any() {
                    return Ok((ino, generation));
                }
            }
            finefs_locks::primitive::thread::yield_now();
        }
    }

    fn release_inode(&self, ino: Ino, kind: FileKind) {
        let mut list = self.free.local();
        match kind {
            FileKind::Directory => list.directories.push(ino),
            _ => list.inodes.push(ino),
        }
        drop(list);
        self.free_inodes.give(1);
    }

    fn allocate_blocks(&self, _ino: Ino, _goal: Option<Goal>, count: u64) -> Result<BlockRun> {
        let mut wanted = count;
        while !self.free_blocks.try_take(wanted) {
            wanted /= 2;
            if wanted == 0 {
                return Err(Error::NoSpace);
            }
        }
        let run = loop {
            if let Some(run) = Self::pop_run(&mut self.free.local(), wanted) {
                break run;
            }
            if let Some(run) = self.take_fresh(wanted) {
                break run;
            }
            let stolen = (0..self.free.shard_count())
                .find_map(|shard| Self::pop_run(&mut self.free.shard(shard), wanted));
            match stolen {
                Some(run) => break run,
                // A run is free for sure; it is on its way to a list.
                None => finefs_locks::primitive::thread::yield_now(),
            }
        };
        self.free_blocks.give(wanted - run.length);
        Ok(run)
    }

    fn release_blocks(&self, run: BlockRun) {
        if run.length >= RETURN_BLOCKS {
            self.pages
                .discard(run.start.0 * BLOCK_BYTES, run.length * BLOCK_BYTES);
        }
        self.free.local().runs.push(run);
        self.free_blocks.give(run.length);
    }

    fn reserve(&self, _plans: &[Plan]) -> Result<u64> {
        Ok(0)
    }

    fn unreserve(&self, _blocks: u64) {}

    fn check_xattrs(
        &self,
        _ino: Ino,
        _inline_bytes: Option<u64>,
        _xattrs: &[(&[u8], &[u8])],
    ) -> Result<Charge> {
        Ok(Charge::default())
    }

    fn commit(&self, _batch: Batch, _captured: &Captured<'_>) -> Result<Committed> {
        Ok(Committed::default())
    }

    fn statfs(&self) -> StatFs {
        let free = self.free_blocks.available();
        StatFs {
            block_size_bytes: BLOCK_BYTES as u32,
            blocks: self.blocks,
            blocks_free: free,
            blocks_reserved: 0,
            blocks_available: free,
            inodes: self.inodes,
            inodes_free: self.free_inodes.available(),
            name_max: 255,
        }
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}
