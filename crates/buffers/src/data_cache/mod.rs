//! The cache of file data: a page cache with writeback.
//!
//! # Purpose
//! What the kernel's page cache is to ext4, but of blocks of the device instead of pages of files,
//! and of what was written alone: a block comes in when it is written, by at most 64 KiB at a
//! time, not when it is read. A write is a copy into memory, which makes the block *dirty*.
//! *Writeback* brings it to the device in the order of the device, adjacent blocks in one request;
//! then it is *clean* and stays, to be read and changed, until its memory is wanted for another.
//!
//! Writeback happens
//! - before each commit, of what the commit refers to anew ([`DataCache::write_ordered`]);
//! - at the interval of commits, and for a sync of everything, of the rest
//!   ([`DataCache::write_back`]);
//! - for fsync, of one file's blocks ([`DataCache::write_runs`]);
//! - when a MiB of a growing file is full ([`DataCache::write_behind`]);
//! - when too much is dirty, by who adds to it (as the kernel's `dirty_ratio`), around what has
//!   been dirty for longest.
//!
//! What belonged to files that were made and removed before that never goes out. A block is dirty
//! in one of ext4's two ways ([`DataMode`]).
//!
//! | Module | Thing |
//! |---|---|
//! | `shard` | the blocks of a shard, their memory, eviction |
//! | `write_back` | what goes to the device when |
//!
//! # Data model
//! A block that is in the cache is in it whole, and what the cache has stands for what the device
//! has there. Blocks are spread over shards, adjacent ones over different shards, so that threads
//! that write beside each other use different locks.
//!
//! # Invariants
//! 1. While a block is under writeback nobody else reads or writes it on the device. It may be
//!    changed in the cache meanwhile, as what goes out is a copy; then it is dirty again.
//! 2. A dirty block leaves the cache only when it was written out, or has become nobody's; and no
//!    block leaves while it is under writeback. So no write of what a block held for an earlier
//!    owner comes after one for a later.
//! 3. A block comes in by the thread that has the range of the file locked.
//! 4. A block that is freed leaves the cache, clean or dirty, before it can be allocated again
//!    ([`DataCache::forget`]); so does a clean one that is written past the cache.
//! 5. When [`DataCache::write_ordered`] has succeeded, all that was ordered when it began has been
//!    written, or dropped; after [`DataCache::write_back`] all the rest. A block that is ordered
//!    once is so until it was written.
//! 6. A block that comes in has its storage below the device, as far as that can be promised, but
//!    for those of `FileData::write_blank_unreserved`: see `FileData::write` of this crate.
//!
//! # Locking
//! Each shard has one lock (class `buffers.data_cache`), a leaf. No lock is held over I/O: one
//! thread at a time makes room, which a flag says (class `buffers.write_out`, a leaf too). Beside
//! it one thread at a time writes out pieces of large files, for all that come to the end of one:
//! to write to one file is exclusive in the kernel, so that side by side they would wait for each
//! other there. Who wants to forget a block that is under writeback, or to write it, waits on the
//! shard's condition variable: for one request, as blocks are marked just before, in ascending
//! order, so that none wait for each other in a circle. To read a block that is not in the cache
//! takes no lock: see the filter of `shard`.
//!
//! # References
//! Linux `mm/page-writeback.c` and `Documentation/filesystems/ext4/` on data=ordered; here blocks
//! are allocated at once.

mod shard;
mod write_back;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use finefs_block::BlockDevice;
use finefs_locks::LockClass;
use finefs_namespace::BlockRun;

use finefs_locks::Mutex;
use shard::{Limits, Room, Shard};
use write_back::Flusher;

/// A shard of the file data in memory.
pub static DATA_CACHE: LockClass = LockClass::new("buffers.data_cache", 82);

/// Whether somebody makes room, and memory for requests.
pub static WRITE_OUT: LockClass = LockClass::new("buffers.write_out", 81);

/// Pieces of large files that wait to be written out.
pub static BEHIND: LockClass = LockClass::new("buffers.behind", 81);

/// So many pieces wait for the thread that writes them out. Each has 1 MiB or less.
const PIECES_WAITING_MAX: usize = 4;

/// So many pieces a thread writes out, its own the first, before it goes on.
const PIECES_IN_A_ROW: usize = 16;

/// At most so many shards, and no more than leave this many blocks to each.
const SHARDS_MAX: usize = 128;
const SHARD_BLOCKS_MIN: usize = 16;

/// Of the blocks of a shard, one in so many may be dirty.
const DIRTY_SHARE: usize = 2;

/// Of the blocks of a shard, one in so many may be fresh, but always of so many bytes in all: see
/// the head of `shard`.
const FRESH_SHARE: usize = 32;
const FRESH_BYTES_MIN: usize = 32 << 20;

/// Likewise, clean blocks of files that grow, of so many bytes in all.
const STREAMED_BYTES: usize = 4 << 20;

/// More blocks than this are not looked for one by one.
const ONE_BY_ONE_MAX: u64 = 1 << 14;

/// See the module's head.
pub struct DataCache {
    device: Arc<dyn BlockDevice>,
    block_bytes: usize,
    shards: Box<[Shard]>,
    /// Dirty blocks of all shards, about, above which writers write out.
    dirty_max: usize,
    /// Blocks that were written out since the mount.
    blocks_written: AtomicU64,
    /// Counts ticks of a few seconds, at commits.
    now: AtomicU32,
    flusher: Mutex<Flusher>,
    behind: Mutex<Behind>,
}

/// Pieces that wait to be written out, and whether a thread is at it.
#[derive(Default)]
struct Behind {
    pieces: VecDeque<BlockRun>,
    is_busy: bool,
}

/// When dirty data must be on the device: the words are those of ext4's mount option `data=`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataMode {
    /// Before the next commit, which refers to it anew: what was there before is not the file's.
    Ordered,
    /// At the next sync, whatever is committed meanwhile: it replaces other data of the file.
    Writeback,
}

/// Spreads numbers of blocks; the high bits are the good ones.
fn spread(block: u64) -> u64 {
    block.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl DataCache {
    /// An empty cache of at most `size_bytes`.
    pub fn new(device: Arc<dyn BlockDevice>, block_bytes: u32, size_bytes: u64) -> DataCache {
        let block_bytes = block_bytes as usize;
        let blocks = usize::try_from(size_bytes).unwrap_or(usize::MAX) / block_bytes;
        let shards = (blocks / SHARD_BLOCKS_MIN).clamp(1, SHARDS_MAX);
        // Rounded down.
        let shards = 1 << shards.ilog2();
        // Numbers of slots have 32 bits.
        let blocks_max = (blocks / shards).clamp(SHARD_BLOCKS_MIN, 1 << 24);
        let limits = Limits {
            block_bytes,
            blocks_max,
            dirty_max: blocks_max / DIRTY_SHARE,
            fresh_max: (FRESH_BYTES_MIN / block_bytes / shards)
                .max(blocks_max / FRESH_SHARE)
                .min(blocks_max),
            streamed_max: STREAMED_BYTES / block_bytes / shards,
        };
        DataCache {
            device,
            block_bytes,
            dirty_max: limits.dirty_max * shards,
            shards: (0..shards).map(|_| Shard::new(limits)).collect(),
            blocks_written: AtomicU64::new(0),
            now: AtomicU32::new(0),
            flusher: Mutex::new(&WRITE_OUT, Flusher::default()),
            behind: Mutex::new(&BEHIND, Behind::default()),
        }
    }

    /// How many blocks were written out.
    pub fn blocks_written(&self) -> u64 {
        self.blocks_written.load(Ordering::Relaxed)
    }

    fn shard(&self, block: u64) -> &Shard {
        &self.shards[(spread(block) >> 57) as usize & (self.shards.len() - 1)]
    }

    fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }

    /// Makes a block dirty that has `data` from byte `within` on and zeros around it, in place of
    /// whatever it had. False when there is no room.
    pub fn put_blank(&self, block: u64, within: usize, data: &[u8]) -> bool {
        let is_whole = data.len() == self.block_bytes;
        self.put(block, DataMode::Ordered, |bytes, _| {
            if !is_whole {
                bytes.fill(0);
            }
            bytes[within..within + data.len()].copy_from_slice(data);
        })
    }

    /// Makes a block dirty that has `data` from byte `within` on, and around it what the cache
    /// has, or else the device, which is `before`. False when there is no room.
    pub fn put_over(
        &self,
        (block, within): (u64, usize),
        data: &[u8],
        before: &[u8],
        mode: DataMode,
    ) -> bool {
        self.put(block, mode, |bytes, is_new| {
            if is_new {
                bytes[..before.len()].copy_from_slice(before);
            }
            bytes[within..within + data.len()].copy_from_slice(data);
        })
    }

    fn put(&self, block: u64, mode: DataMode, fill: impl Fn(&mut [u8], bool)) -> bool {
        let (shard, now) = (self.shard(block), self.now());
        if shard.put(block, Room::Usual, (mode, now), &fill) {
            return true;
        }
        self.make_room(block);
        shard.put(block, Room::Any, (mode, now), &fill)
    }

    /// Changes a block from byte `within` on, if it is in the cache.
    pub fn change(&self, block: u64, within: usize, data: &[u8], mode: DataMode) -> bool {
        let shard = self.shard(block);
        shard.may_have(block) && shard.change(block, within, data, (mode, self.now()))
    }

    /// For a write that goes past the cache: as [`DataCache::change`]; but a clean block of which
    /// nothing remains leaves the cache, and is to be written.
    pub fn change_or_drop(&self, block: u64, within: usize, data: &[u8], mode: DataMode) -> bool {
        let shard = self.shard(block);
        shard.may_have(block) && shard.change_or_drop(block, within, data, (mode, self.now()))
    }

    /// Whether anything is dirty or under writeback.
    pub fn has_dirty(&self) -> bool {
        self.shards.iter().any(Shard::has_dirty)
    }

    /// Reads a block from byte `within` on, if it is in the cache.
    pub fn read(&self, block: u64, within: usize, buffer: &mut [u8]) -> bool {
        let shard = self.shard(block);
        shard.may_have(block) && shard.read(block, within, buffer, self.now())
    }

    /// These blocks leave the cache: they are nobody's any more, or something else is written
    /// there. Waits for those that are under writeback.
    pub fn forget(&self, start: u64, length: u64) {
        self.for_each_cached(start, length, Shard::forget);
    }

    fn for_each_cached(&self, start: u64, length: u64, visit: impl Fn(&Shard, u64)) {
        let end = start.saturating_add(length);
        if length > ONE_BY_ONE_MAX {
            for shard in &self.shards {
                let cached = shard.all();
                let within = cached
                    .into_iter()
                    .filter(|block| (start..end).contains(block));
                within.for_each(|block| visit(shard, block));
            }
            return;
        }
        for block in start..end {
            let shard = self.shard(block);
            if shard.may_have(block) {
                visit(shard, block);
            }
        }
    }
}

#[cfg(test)]
mod tests;
