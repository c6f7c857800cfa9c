//! One shard of the data cache: its blocks, their memory, and which of them goes when another needs
//! the place.
//!
//! # Data model
//! Memory is taken in chunks of some blocks and cut into *slots*, which are never given up one by
//! one: a slot whose block has left is used for the next. A slot holds a block that is clean, dirty
//! or under writeback (or both of these), or is free. Queues hold numbers of slots: one of dirty
//! ones in the order in which they became dirty, one of ordered ones, and three of clean ones. A
//! slot stays in its queue when it changes, and is passed over when its turn comes; so it is at
//! most once among the dirty, once among the ordered and once among the clean.
//!
//! # Eviction
//! As S3-FIFO (Yang et al., SOSP 2023) has it. A block that comes in is *fresh* until it is read,
//! or changed after it was written out. A block that was written out comes into `cold`. If
//! it is fresh when it gets to the front it is evicted; else it goes on to `warm`, which is a
//! CLOCK. Fresh blocks, dirty or clean, have a limit of their own, above which new memory is taken
//! only when there is no other way: so a stream of data which nobody asks for again goes round in
//! little memory, for fresh pages of the system cost more than a copy. What was written behind, a
//! piece of a file that grows, comes into a queue `streamed` instead of `cold`, of which still less
//! is kept.
//!
//! # Invariants
//! 1. Dirty blocks and blocks under writeback are not evicted.
//! 2. A block that is in the shard counts in the filter, at the place of its number; so a place
//!    that is zero says without a lock that none of its blocks is there.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU8;

use finefs_locks::primitive::atomic::{AtomicBool, AtomicUsize, Ordering};
use finefs_namespace::NumberMap;
use zerocopy::FromZeros;

use super::write_back::Dirty;
use super::{DATA_CACHE, DataMode};
use finefs_locks::{Condvar, Mutex, MutexGuard};

/// Memory for so many bytes of blocks is taken at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// So many places of the filter for each block that the shard may hold.
const FILTER_SHARE: usize = 4;

/// How much a shard may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub block_bytes: usize,
    /// Blocks in all.
    pub blocks_max: usize,
    /// More dirty blocks than this are written out by who adds to them.
    pub dirty_max: usize,
    /// Fresh blocks above which no memory is taken for more.
    pub fresh_max: usize,
    /// Likewise, clean blocks that were written behind.
    pub streamed_max: usize,
}

impl Limits {
    fn chunk_blocks(&self) -> usize {
        (CHUNK_BYTES / self.block_bytes).clamp(1, self.blocks_max)
    }
}

/// A line pair of its own, so that shards share no cache lines.
#[repr(align(128))]
pub(super) struct Shard {
    blocks: Mutex<Blocks>,
    /// How many blocks are dirty or under writeback: written under the lock.
    dirty: AtomicUsize,
    /// Some of them may be ordered: written under the lock.
    may_have_ordered: AtomicBool,
    /// Always of std: made of zero pages, which the atomics of schedulers are not.
    filter: Box<[AtomicU8]>,
    /// Some block is no longer under writeback.
    written: Condvar,
    limits: Limits,
}

#[derive(Default)]
struct Blocks {
    index: NumberMap<u64, u32>,
    slots: Vec<Slot>,
    chunks: Vec<Box<[u8]>>,
    free: Vec<u32>,
    dirty: VecDeque<u32>,
    ordered: Vec<u32>,
    streamed: VecDeque<u32>,
    cold: VecDeque<u32>,
    warm: VecDeque<u32>,
    /// How many blocks are fresh.
    fresh: usize,
    /// When the shard was last used, in the cache's ticks.
    used_at: u32,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    /// Which block it holds, unless it is free.
    block: u64,
    is_free: bool,
    is_dirty: bool,
    is_under_writeback: bool,
    /// It is dirty or under writeback, and has to be written before the next commit.
    is_ordered: bool,
    /// Neither read since it came in, nor changed after it was written out.
    is_fresh: bool,
    /// Used since the hand of the CLOCK passed.
    is_used: bool,
    is_among_dirty: bool,
    is_among_ordered: bool,
    is_among_clean: bool,
}

impl Slot {
    fn is_clean(&self) -> bool {
        !self.is_free && !self.is_dirty && !self.is_under_writeback
    }
}

/// How many dirty and fresh blocks there may be where one more is to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    /// As many as the limits say.
    Usual,
    /// As many as there is memory for.
    Any,
}

/// Pages that are not written to take no memory, and no time.
fn zeros(count: usize) -> Box<[AtomicU8]> {
    let zeros = <[AtomicU8]>::new_box_zeroed_with_elems(count);
    zeros.unwrap_or_else(|_| panic!("no memory for {count} counts"))
}

impl Shard {
    pub fn new(limits: Limits) -> Shard {
        let places = (limits.blocks_max * FILTER_SHARE).next_power_of_two();
        Shard {
            blocks: Mutex::new(&DATA_CACHE, Blocks::default()),
            dirty: AtomicUsize::new(0),
            may_have_ordered: AtomicBool::new(false),
            filter: zeros(places),
            written: Condvar::new(),
            limits,
        }
    }

    /// False when the block is surely not there. Takes no lock. Who asks has the block's range of
    /// the file locked, and so nobody else brings it in.
    pub fn may_have(&self, block: u64) -> bool {
        self.place(block).load(Ordering::Acquire) != 0
    }

    /// Whether a block is dirty or under writeback.
    pub fn has_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire) > 0
    }

    /// Whether a block may be ordered.
    pub fn may_have_ordered(&self) -> bool {
        self.may_have_ordered.load(Ordering::Acquire)
    }

    fn place(&self, block: u64) -> &AtomicU8 {
        &self.filter[(super::spread(block) >> 28) as usize & (self.filter.len() - 1)]
    }

    /// Under the lock. A place that is full stays so.
    fn count(&self, block: u64, is_more: bool) {
        let place = self.place(block);
        let next = match (place.load(Ordering::Relaxed), is_more) {
            (u8::MAX, _) => u8::MAX,
            (count, true) => count + 1,
            (count, false) => count.saturating_sub(1),
        };
        place.store(next, Ordering::Release);
    }

    /// Copies a part of a block out, if it is there.
    pub fn read(&self, block: u64, within: usize, buffer: &mut [u8], now: u32) -> bool {
        let mut blocks = self.blocks.lock();
        let Some(slot) = blocks.find(block, now) else {
            return false;
        };
        blocks.note_use(slot);
        let bytes = blocks.bytes(slot, &self.limits);
        buffer.copy_from_slice(&bytes[within..within + buffer.len()]);
        true
    }

    /// Changes a part of a block, if it is there.
    pub fn change(
        &self,
        block: u64,
        within: usize,
        data: &[u8],
        (mode, now): (DataMode, u32),
    ) -> bool {
        let mut blocks = self.blocks.lock();
        let Some(slot) = blocks.find(block, now) else {
            return false;
        };
        let bytes = blocks.bytes(slot, &self.limits);
        bytes[within..within + data.len()].copy_from_slice(data);
        self.set_dirty(&mut blocks, slot, mode);
        true
    }

    /// As [`Shard::change`]; but a block that is clean and changed whole leaves the cache instead.
    pub fn change_or_drop(
        &self,
        block: u64,
        within: usize,
        data: &[u8],
        (mode, now): (DataMode, u32),
    ) -> bool {
        let mut blocks = self.blocks.lock();
        let Some(slot) = blocks.find(block, now) else {
            return false;
        };
        if data.len() == self.limits.block_bytes && blocks.slots[slot as usize].is_clean() {
            self.remove(&mut blocks, slot);
            return false;
        }
        let bytes = blocks.bytes(slot, &self.limits);
        bytes[within..within + data.len()].copy_from_slice(data);
        self.set_dirty(&mut blocks, slot, mode);
        true
    }

    /// Lets `fill` say what a block holds, which is dirty from now on: it gets its bytes, and
    /// whether they are not the block's. False when there is no room.
    pub fn put(
        &self,
        block: u64,
        room: Room,
        (mode, now): (DataMode, u32),
        fill: impl FnOnce(&mut [u8], bool),
    ) -> bool {
        let mut blocks = self.blocks.lock();
        if let Some(slot) = blocks.find(block, now) {
            fill(blocks.bytes(slot, &self.limits), false);
            self.set_dirty(&mut blocks, slot, mode);
            return true;
        }
        if room == Room::Usual && self.dirty.load(Ordering::Relaxed) >= self.limits.dirty_max {
            return false;
        }
        let Some(slot) = self.take_slot(&mut blocks, room) else {
            return false;
        };
        fill(blocks.bytes(slot, &self.limits), true);
        blocks.used_at = now;
        blocks.index.insert(block, slot);
        let taken = &mut blocks.slots[slot as usize];
        (taken.block, taken.is_free) = (block, false);
        self.count(block, true);
        self.set_dirty(&mut blocks, slot, mode);
        blocks.set_fresh(slot);
        true
    }

    /// Under the lock.
    fn add_dirty(&self, change: isize) {
        let count = self.dirty.load(Ordering::Relaxed);
        self.dirty
            .store(count.wrapping_add_signed(change), Ordering::Release);
    }

    fn set_dirty(&self, blocks: &mut Blocks, number: u32, mode: DataMode) {
        let slot = &mut blocks.slots[number as usize];
        if mode == DataMode::Ordered {
            slot.is_ordered = true;
            if !std::mem::replace(&mut slot.is_among_ordered, true) {
                blocks.ordered.push(number);
                self.may_have_ordered.store(true, Ordering::Release);
            }
        }
        let slot = &mut blocks.slots[number as usize];
        if slot.is_dirty {
            return;
        }
        blocks.note_use(number);
        let slot = &mut blocks.slots[number as usize];
        slot.is_dirty = true;
        let is_under_writeback = slot.is_under_writeback;
        if !std::mem::replace(&mut slot.is_among_dirty, true) {
            blocks.dirty.push_back(number);
        }
        if !is_under_writeback {
            self.add_dirty(1);
        }
    }

    /// Frees the slot of a block that is not under writeback.
    fn remove(&self, blocks: &mut Blocks, number: u32) {
        let slot = &mut blocks.slots[number as usize];
        if std::mem::take(&mut slot.is_dirty) {
            self.add_dirty(-1);
        }
        (slot.is_free, slot.is_ordered) = (true, false);
        blocks.fresh -= usize::from(std::mem::take(&mut slot.is_fresh));
        let block = slot.block;
        blocks.index.remove(&block);
        blocks.free.push(number);
        self.count(block, false);
    }

    fn take_slot(&self, blocks: &mut Blocks, room: Room) -> Option<u32> {
        if let Some(slot) = blocks.free.pop() {
            return Some(slot);
        }
        let may_grow = blocks.slots.len() < self.limits.blocks_max;
        let is_fresh_enough = blocks.fresh >= self.limits.fresh_max;
        let must_evict = is_fresh_enough || !may_grow;
        if must_evict || blocks.streamed.len() > self.limits.streamed_max {
            self.evict_fresh(blocks, |blocks| &mut blocks.streamed);
        }
        if blocks.free.is_empty() && must_evict {
            self.evict_fresh(blocks, |blocks| &mut blocks.cold);
        }
        if blocks.free.is_empty() && !may_grow {
            self.evict_warm(blocks);
        }
        if blocks.free.is_empty() && may_grow && (!is_fresh_enough || room == Room::Any) {
            blocks.grow(&self.limits);
        }
        blocks.free.pop()
    }

    fn evict_fresh(&self, blocks: &mut Blocks, queue: fn(&mut Blocks) -> &mut VecDeque<u32>) {
        while let Some(number) = queue(blocks).pop_front() {
            let slot = &mut blocks.slots[number as usize];
            slot.is_among_clean = false;
            if !slot.is_clean() {
                continue;
            }
            if slot.is_fresh {
                return self.remove(blocks, number);
            }
            (slot.is_among_clean, slot.is_used) = (true, false);
            blocks.warm.push_back(number);
        }
    }

    fn evict_warm(&self, blocks: &mut Blocks) {
        // The second time round all marks are gone.
        for _ in 0..2 * blocks.warm.len() {
            let Some(number) = blocks.warm.pop_front() else {
                return;
            };
            let slot = &mut blocks.slots[number as usize];
            slot.is_among_clean = false;
            if !slot.is_clean() {
                continue;
            }
            if !std::mem::take(&mut slot.is_used) {
                return self.remove(blocks, number);
            }
            slot.is_among_clean = true;
            blocks.warm.push_back(number);
        }
    }

    /// A block leaves the cache, whatever it holds, as soon as it is not under writeback.
    pub fn forget(&self, block: u64) {
        let mut blocks = self.blocks.lock();
        self.wait_for_writeback(&mut blocks, block);
        if let Some(&slot) = blocks.index.get(&block) {
            self.remove(&mut blocks, slot);
        }
    }

    fn wait_for_writeback(&self, blocks: &mut MutexGuard<'_, Blocks>, block: u64) {
        while let Some(&slot) = blocks.index.get(&block)
            && blocks.slots[slot as usize].is_under_writeback
        {
            self.written.wait(blocks);
        }
    }

    /// The blocks that are here.
    pub fn all(&self) -> Vec<u64> {
        self.blocks.lock().index.keys().copied().collect()
    }

    /// Adds the blocks that are dirty or under writeback.
    pub fn list_dirty(&self, which: Dirty, list: &mut Vec<u64>) {
        let blocks = &mut *self.blocks.lock();
        let slots = &mut blocks.slots;
        blocks.dirty.retain(|number| {
            let slot = &mut slots[*number as usize];
            slot.is_among_dirty = slot.is_dirty || slot.is_under_writeback;
            if slot.is_among_dirty && (which == Dirty::All || !slot.is_ordered) {
                list.push(slot.block);
            }
            slot.is_among_dirty
        });
    }

    /// Adds the blocks that are ordered.
    pub fn list_ordered(&self, list: &mut Vec<u64>) {
        let blocks = &mut *self.blocks.lock();
        let slots = &mut blocks.slots;
        blocks.ordered.retain(|number| {
            let slot = &mut slots[*number as usize];
            slot.is_among_ordered = slot.is_ordered;
            if slot.is_ordered {
                list.push(slot.block);
            }
            slot.is_ordered
        });
        let has_some = !blocks.ordered.is_empty();
        self.may_have_ordered.store(has_some, Ordering::Release);
    }

    /// Some of the blocks that have been dirty for longest.
    pub fn oldest_dirty(&self, count: usize) -> Vec<u64> {
        let blocks = &mut *self.blocks.lock();
        let mut oldest = Vec::with_capacity(count);
        for _ in 0..blocks.dirty.len() {
            if oldest.len() == count {
                break;
            }
            let Some(number) = blocks.dirty.pop_front() else {
                break;
            };
            let slot = &mut blocks.slots[number as usize];
            slot.is_among_dirty = slot.is_dirty || slot.is_under_writeback;
            if slot.is_among_dirty {
                oldest.push(slot.block);
                // It is taken off when it is clean.
                blocks.dirty.push_back(number);
            }
        }
        oldest
    }

    /// If a block is dirty, adds its content to `buffer` and has it under writeback, by nobody
    /// else, until [`Shard::settle`]. Who waits here has marked only lower blocks.
    pub fn begin_writeback(&self, block: u64, buffer: &mut Vec<u8>) -> Option<u32> {
        let mut blocks = self.blocks.lock();
        self.wait_for_writeback(&mut blocks, block);
        let number = *blocks.index.get(&block)?;
        let slot = &mut blocks.slots[number as usize];
        if !std::mem::take(&mut slot.is_dirty) {
            return None;
        }
        slot.is_under_writeback = true;
        buffer.extend_from_slice(blocks.bytes(number, &self.limits));
        Some(number)
    }

    /// A slot is no longer under writeback: clean, unless it was not written, or changed meanwhile.
    pub fn settle(&self, number: u32, is_written: bool, is_behind: bool) {
        let mut blocks = self.blocks.lock();
        let slot = &mut blocks.slots[number as usize];
        slot.is_under_writeback = false;
        if !slot.is_dirty {
            self.add_dirty(-1);
            slot.is_ordered &= !is_written;
        }
        if !is_written {
            self.set_dirty(&mut blocks, number, DataMode::Writeback);
        } else if !slot.is_dirty && !std::mem::replace(&mut slot.is_among_clean, true) {
            match is_behind {
                true => blocks.streamed.push_back(number),
                false => blocks.cold.push_back(number),
            }
        }
        drop(blocks);
        self.written.notify_all();
    }

    /// Gives all memory back, unless something is dirty or the shard was used since `before`.
    pub fn give_back(&self, before: u32) {
        let mut blocks = self.blocks.lock();
        if blocks.slots.is_empty() || blocks.used_at > before || self.has_dirty() {
            return;
        }
        let unused = std::mem::take(&mut *blocks);
        for block in unused.index.keys() {
            self.count(*block, false);
        }
        drop(blocks);
        drop(unused);
    }
}

impl Blocks {
    fn find(&mut self, block: u64, now: u32) -> Option<u32> {
        let number = *self.index.get(&block)?;
        self.used_at = now;
        Some(number)
    }

    fn set_fresh(&mut self, slot: u32) {
        let slot = &mut self.slots[slot as usize];
        (slot.is_fresh, slot.is_used) = (true, false);
        self.fresh += 1;
    }

    fn note_use(&mut self, slot: u32) {
        let slot = &mut self.slots[slot as usize];
        slot.is_used = true;
        if std::mem::take(&mut slot.is_fresh) {
            self.fresh -= 1;
        }
    }

    fn bytes(&mut self, slot: u32, limits: &Limits) -> &mut [u8] {
        let per_chunk = limits.chunk_blocks();
        let start = slot as usize % per_chunk * limits.block_bytes;
        &mut self.chunks[slot as usize / per_chunk][start..start + limits.block_bytes]
    }

    /// Takes memory for some more slots.
    fn grow(&mut self, limits: &Limits) {
        let first = self.slots.len();
        let count = limits.chunk_blocks().min(limits.blocks_max - first);
        let chunk = vec![0; count * limits.block_bytes];
        self.chunks.push(chunk.into_boxed_slice());
        let slot = Slot {
            is_free: true,
            ..Slot::default()
        };
        self.slots.resize(first + count, slot);
        self.free
            .extend((first..first + count).rev().map(|slot| slot as u32));
    }
}

/// What is to be said of a block.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Absent,
    Clean,
    Dirty,
    UnderWriteback,
}

#[cfg(test)]
impl Shard {
    pub fn state(&self, block: u64) -> State {
        let blocks = self.blocks.lock();
        match blocks.index.get(&block) {
            None => State::Absent,
            Some(_) if !self.may_have(block) => panic!("{block} is not in the filter"),
            Some(&slot) => match blocks.slots[slot as usize] {
                slot if slot.is_under_writeback => State::UnderWriteback,
                slot if slot.is_dirty => State::Dirty,
                _ => State::Clean,
            },
        }
    }

    /// So many blocks it has memory for.
    pub fn slots(&self) -> usize {
        self.blocks.lock().slots.len()
    }
}
