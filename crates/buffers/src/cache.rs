//! The metadata buffer cache: blocks of the file system that hold metadata, in memory.
//!
//! # Data model
//! A buffer is an immutable snapshot of a block behind an `Arc`. [`BufferCache::read`] hands out
//! the current snapshot; [`BufferCache::modify`] hands out a private copy that becomes the current
//! snapshot when its guard is dropped. So readers never wait for a modification, hold no lock, and
//! see a block either before or after it, never within.
//!
//! # Invariants
//! 1. A block has at most one [`BufferWrite`] at a time; a second one means that two structures of
//!    the image claim the block, and is answered with `Error::Corrupt`.
//! 2. A dirty buffer stays in memory until `write_out` wrote it or `forget` dropped it.
//! 3. Clean buffers are kept up to a limit, then the ones not used lately go.
//! 4. An overlaid block (a journal replayed in memory) is never dirty: overlays exist only where
//!    nothing is written.
//!
//! # Locking
//! Blocks are spread over shards, each with one lock (class `buffers.shard`), which is a leaf:
//! nothing is called under it. No lock is held over I/O. A load leaves a mark in the shard; a
//! thread that wants the same block meanwhile waits on the shard's condition variable.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use finefs_block::{BlockDevice, Write};
use finefs_locks::{Condvar, LockClass, Mutex, MutexGuard};
use finefs_namespace::{Error, NumberMap, Result};

use crate::overlay::Overlay;

/// A shard of the buffer cache.
pub static BUFFER: LockClass = LockClass::new("buffers.shard", 80);

/// Clean buffers are kept up to this many bytes.
pub const CLEAN_LIMIT_BYTES: usize = 64 << 20;

const SHARDS: usize = 64;

/// Adjacent dirty buffers are written together up to this size.
const WRITE_BYTES: usize = 1 << 20;

/// See the module's head.
pub struct BufferCache {
    device: Arc<dyn BlockDevice>,
    block_size_bytes: usize,
    /// So many are read together where that pays.
    read_ahead_blocks: u64,
    overlay: Overlay,
    shards: Box<[Shard]>,
    /// The most slots of a shard, dirty ones not counted.
    clean_limit: usize,
    /// What a block of zeros holds until it is changed.
    zeros: Arc<[u8]>,
}

struct Shard {
    slots: Mutex<Slots>,
    /// Some load of this shard ended.
    loaded: Condvar,
}

#[derive(Default)]
struct Slots {
    by_block: NumberMap<u64, Slot>,
    /// Blocks in the order of their last visit by the eviction hand; may name blocks that are gone.
    hand: VecDeque<u64>,
    dirty: usize,
}

impl Slots {
    /// Puts a block that came in at the end of the eviction queue.
    fn enqueue(&mut self, block: u64) {
        // Blocks that were forgotten leave their places behind; they must not pile up.
        if self.hand.len() > 2 * self.by_block.len() + 64 {
            self.hand = self.by_block.keys().copied().collect();
        } else {
            self.hand.push_back(block);
        }
    }
}

enum Slot {
    /// Somebody reads it from the device.
    Loading,
    Ready(Buffer),
}

struct Buffer {
    data: Arc<[u8]>,
    is_dirty: bool,
    /// Used since the eviction hand passed.
    is_used: bool,
    /// The write guard that may publish, if there is one. 0 when none.
    writer: u64,
}

/// A snapshot of a block.
#[derive(Clone, Debug)]
pub struct BufferRead {
    data: Arc<[u8]>,
}

impl Deref for BufferRead {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.data
    }
}

impl AsRef<[u8]> for BufferRead {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl From<Arc<[u8]>> for BufferRead {
    fn from(data: Arc<[u8]>) -> BufferRead {
        BufferRead { data }
    }
}

/// A private copy of a block, which becomes the block's content when it is dropped.
pub struct BufferWrite<'a> {
    cache: &'a BufferCache,
    block: u64,
    ticket: u64,
    data: Option<Arc<[u8]>>,
}

impl BufferWrite<'_> {
    /// The block's number.
    pub fn block(&self) -> u64 {
        self.block
    }
}

impl Deref for BufferWrite<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.data.as_deref().unwrap_or(&[])
    }
}

impl DerefMut for BufferWrite<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // Copies at the first change only: from then on nobody else has this Arc.
        match &mut self.data {
            Some(data) => Arc::make_mut(data),
            None => &mut [],
        }
    }
}

impl Drop for BufferWrite<'_> {
    fn drop(&mut self) {
        if let Some(data) = self.data.take() {
            self.cache.publish(self.block, self.ticket, data);
        }
    }
}

impl BufferCache {
    /// A cache over `device`, which has no overlay.
    pub fn new(device: Arc<dyn BlockDevice>, block_size_bytes: u32) -> BufferCache {
        BufferCache::with(
            device,
            block_size_bytes,
            Overlay::default(),
            CLEAN_LIMIT_BYTES,
        )
    }

    /// A cache that shows `overlay` in place of what the device holds, and that keeps at most
    /// `clean_limit_bytes` of clean buffers.
    pub fn with(
        device: Arc<dyn BlockDevice>,
        block_size_bytes: u32,
        overlay: Overlay,
        clean_limit_bytes: usize,
    ) -> BufferCache {
        let block_size_bytes = block_size_bytes as usize;
        let shards = (0..SHARDS)
            .map(|_| Shard {
                slots: Mutex::new(&BUFFER, Slots::default()),
                loaded: Condvar::new(),
            })
            .collect();
        let clean_limit = (clean_limit_bytes / block_size_bytes / SHARDS).max(4);
        BufferCache {
            read_ahead_blocks: u64::from(device.read_ahead_bytes()) / block_size_bytes as u64,
            device,
            block_size_bytes,
            overlay,
            shards,
            clean_limit,
            zeros: vec![0; block_size_bytes].into(),
        }
    }

    /// The size of a block.
    pub fn block_size_bytes(&self) -> usize {
        self.block_size_bytes
    }

    /// What is shown in place of the device's bytes.
    pub fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// A snapshot of a block, from the device if need be.
    pub fn read(&self, block: u64) -> Result<BufferRead> {
        let mut slots = self.ready(block)?;
        let data = match slots.by_block.get_mut(&block) {
            Some(Slot::Ready(buffer)) => {
                buffer.is_used = true;
                buffer.data.clone()
            }
            _ => return Err(lost(block)),
        };
        self.evict(&mut slots);
        Ok(BufferRead { data })
    }

    /// [`BufferCache::read`] of a block whose neighbours within a range will be wanted soon: on a
    /// device where each request waits for a network they are read together.
    pub fn read_among(&self, block: u64, range: Range<u64>) -> Result<BufferRead> {
        let ahead_blocks = self.read_ahead_blocks;
        if ahead_blocks > 1 && !self.has(block) {
            let first = block / ahead_blocks * ahead_blocks;
            self.load_together(first.max(range.start)..(first + ahead_blocks).min(range.end));
        }
        self.read(block)
    }

    fn has(&self, block: u64) -> bool {
        self.shard(block).slots.lock().by_block.contains_key(&block)
    }

    /// Loads those of these blocks that are not there. What fails is left to the thread that needs
    /// it.
    fn load_together(&self, blocks: Range<u64>) {
        let is_taken = |block: &u64| {
            let mut slots = self.shard(*block).slots.lock();
            match slots.by_block.entry(*block) {
                Entry::Vacant(entry) if !self.overlay.contains(*block) => {
                    entry.insert(Slot::Loading);
                    true
                }
                _ => false,
            }
        };
        let loading: Vec<u64> = blocks.filter(is_taken).collect();
        let (Some(first), Some(last)) = (loading.first(), loading.last()) else {
            return;
        };
        let mut bytes = vec![0; (last - first + 1) as usize * self.block_size_bytes];
        let place = first.saturating_mul(self.block_size_bytes as u64);
        let outcome = self.device.read_at(place, &mut bytes);
        for block in &loading {
            let at = (block - first) as usize * self.block_size_bytes;
            let data: Arc<[u8]> = bytes[at..at + self.block_size_bytes].into();
            let shard = self.shard(*block);
            let mut slots = shard.slots.lock();
            shard.loaded.notify_all();
            if outcome.is_err() {
                slots.by_block.remove(block);
                continue;
            }
            let buffer = Buffer {
                data,
                is_dirty: false,
                is_used: true,
                writer: 0,
            };
            slots.by_block.insert(*block, Slot::Ready(buffer));
            slots.enqueue(*block);
            self.evict(&mut slots);
        }
    }

    /// A copy of a block to change; it counts as dirty from now on.
    pub fn modify(&self, block: u64) -> Result<BufferWrite<'_>> {
        let mut slots = self.ready(block)?;
        let slots_now = &mut *slots;
        let Some(Slot::Ready(buffer)) = slots_now.by_block.get_mut(&block) else {
            return Err(lost(block));
        };
        if buffer.writer != 0 {
            return Err(Error::corrupt(format_args!(
                "block {block}: two structures claim it"
            )));
        }
        let ticket = next_ticket();
        buffer.writer = ticket;
        buffer.is_used = true;
        if !buffer.is_dirty {
            buffer.is_dirty = true;
            slots_now.dirty += 1;
        }
        let data = Some(buffer.data.clone());
        self.evict(slots_now);
        Ok(BufferWrite {
            cache: self,
            block,
            ticket,
            data,
        })
    }

    /// A block of zeros in place of whatever the block held; nothing is read.
    pub fn zeroed(&self, block: u64) -> BufferWrite<'_> {
        let ticket = next_ticket();
        let data = self.zeros.clone();
        self.replace(block, data.clone(), ticket);
        BufferWrite {
            cache: self,
            block,
            ticket,
            data: Some(data),
        }
    }

    /// Makes this a block's content, which is dirty then; nothing is read.
    pub fn put(&self, block: u64, data: Arc<[u8]>) {
        self.replace(block, data, 0);
    }

    fn replace(&self, block: u64, data: Arc<[u8]>, writer: u64) {
        let shard = self.shard(block);
        let mut slots = shard.slots.lock();
        while matches!(slots.by_block.get(&block), Some(Slot::Loading)) {
            shard.loaded.wait(&mut slots);
        }
        let buffer = Buffer {
            data,
            is_dirty: true,
            is_used: true,
            writer,
        };
        let is_new_dirty = match slots.by_block.insert(block, Slot::Ready(buffer)) {
            Some(Slot::Ready(old)) => {
                if old.writer != 0 {
                    log::error!("block {block}: allocated while it is being changed");
                }
                !old.is_dirty
            }
            _ => {
                slots.enqueue(block);
                true
            }
        };
        slots.dirty += usize::from(is_new_dirty);
        self.evict(&mut slots);
    }

    /// Drops a block that was freed: what it held is never written.
    pub fn forget(&self, block: u64) {
        let shard = self.shard(block);
        let mut slots = shard.slots.lock();
        while matches!(slots.by_block.get(&block), Some(Slot::Loading)) {
            shard.loaded.wait(&mut slots);
        }
        if let Some(Slot::Ready(buffer)) = slots.by_block.remove(&block)
            && buffer.is_dirty
        {
            slots.dirty -= 1;
        }
    }

    /// The number of dirty buffers.
    #[cfg(test)]
    fn dirty_count(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.slots.lock().dirty)
            .sum()
    }

    /// The dirty buffers in ascending order, but for those that have a [`BufferWrite`] at this
    /// moment.
    pub fn dirty(&self) -> Vec<(u64, Arc<[u8]>)> {
        let mut dirty = Vec::new();
        for shard in &self.shards {
            for (&block, slot) in &shard.slots.lock().by_block {
                if let Slot::Ready(buffer) = slot
                    && buffer.is_dirty
                    && buffer.writer == 0
                {
                    dirty.push((block, buffer.data.clone()));
                }
            }
        }
        dirty.sort_unstable_by_key(|(block, _)| *block);
        dirty
    }

    /// Writes all dirty buffers, in ascending order and adjacent ones together. Those that could
    /// not be written stay dirty, as do those that have a [`BufferWrite`] at this moment. Does not
    /// flush the device.
    pub fn write_out(&self) -> Result<()> {
        self.write_out_where(|_| true)
    }

    /// [`BufferCache::write_out`] for the blocks that `is_wanted` picks.
    pub fn write_out_where(&self, is_wanted: impl Fn(u64) -> bool) -> Result<()> {
        let mut dirty = self.dirty();
        dirty.retain(|(block, _)| is_wanted(*block));
        self.write_these(&dirty)
    }

    /// Writes what [`BufferCache::dirty`] gave, as [`BufferCache::write_out`] does: all of it at
    /// once where the device can do that.
    pub fn write_these(&self, dirty: &[(u64, Arc<[u8]>)]) -> Result<()> {
        let blocks_max = (WRITE_BYTES / self.block_size_bytes).max(1);
        for batch in dirty.chunks(blocks_max) {
            let runs = batch.chunk_by(|(block, _), (next, _)| block + 1 == *next);
            let writes: Vec<Write<'_>> = runs
                .map(|run| Write {
                    offset_bytes: run[0].0 * self.block_size_bytes as u64,
                    parts: run.iter().map(|(_, data)| &data[..]).collect(),
                })
                .collect();
            self.device.write_many(&writes).map_err(|error| {
                Error::io(format_args!(
                    "writing from block {} on: {error}",
                    batch[0].0
                ))
            })?;
            self.note_written(batch);
        }
        Ok(())
    }

    /// Blocks that were written are clean, if they did not change meanwhile. They stay dirty until
    /// then, so that nobody can drop them and read the device's old bytes.
    fn note_written(&self, written: &[(u64, Arc<[u8]>)]) {
        for (block, data) in written {
            let mut slots = self.shard(*block).slots.lock();
            let slots = &mut *slots;
            if let Some(Slot::Ready(buffer)) = slots.by_block.get_mut(block)
                && buffer.is_dirty
                && buffer.writer == 0
                && Arc::ptr_eq(&buffer.data, data)
            {
                buffer.is_dirty = false;
                slots.dirty -= 1;
            }
        }
    }

    fn publish(&self, block: u64, ticket: u64, data: Arc<[u8]>) {
        let mut slots = self.shard(block).slots.lock();
        if let Some(Slot::Ready(buffer)) = slots.by_block.get_mut(&block)
            && buffer.writer == ticket
        {
            buffer.data = data;
            buffer.writer = 0;
        }
    }

    fn shard(&self, block: u64) -> &Shard {
        // Metadata lies in strides of powers of two; multiplying by an odd constant spreads them.
        let hash = block.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(hash >> 58) as usize % SHARDS]
    }

    /// The shard of a block, locked, with the block in it (unless it was forgotten this moment).
    fn ready(&self, block: u64) -> Result<MutexGuard<'_, Slots>> {
        let shard = self.shard(block);
        let mut slots = shard.slots.lock();
        loop {
            match slots.by_block.entry(block) {
                Entry::Occupied(entry) => match entry.get() {
                    Slot::Ready(_) => return Ok(slots),
                    Slot::Loading => shard.loaded.wait(&mut slots),
                },
                Entry::Vacant(entry) => {
                    entry.insert(Slot::Loading);
                    break;
                }
            }
        }
        drop(slots);
        let loaded = self.load(block);
        let mut slots = shard.slots.lock();
        shard.loaded.notify_all();
        match loaded {
            Ok(data) => {
                let buffer = Buffer {
                    data,
                    is_dirty: false,
                    is_used: true,
                    writer: 0,
                };
                slots.by_block.insert(block, Slot::Ready(buffer));
                slots.enqueue(block);
                Ok(slots)
            }
            Err(error) => {
                slots.by_block.remove(&block);
                Err(error)
            }
        }
    }

    fn load(&self, block: u64) -> Result<Arc<[u8]>> {
        let mut data = vec![0; self.block_size_bytes];
        let offset_bytes = block
            .checked_mul(self.block_size_bytes as u64)
            .ok_or_else(|| Error::corrupt(format_args!("block {block}: past the end")))?;
        self.overlay
            .read_at(&*self.device, offset_bytes, &mut data)
            .map_err(|error| Error::io(format_args!("reading block {block}: {error}")))?;
        Ok(data.into())
    }

    /// Drops clean buffers that were not used since the hand's last visit, while there are too
    /// many. Second chance: one that was used goes to the end of the queue instead.
    fn evict(&self, slots: &mut Slots) {
        // Every step either drops one or takes a mark away; a bound keeps a shard full of dirty
        // buffers from being walked at every call.
        let mut steps = 16;
        while slots.by_block.len() - slots.dirty.min(slots.by_block.len()) > self.clean_limit
            && steps > 0
        {
            steps -= 1;
            let Some(block) = slots.hand.pop_front() else {
                return;
            };
            let Entry::Occupied(mut entry) = slots.by_block.entry(block) else {
                continue;
            };
            match entry.get_mut() {
                Slot::Ready(buffer) if !buffer.is_dirty && !buffer.is_used => {
                    entry.remove();
                }
                Slot::Ready(buffer) => {
                    buffer.is_used = false;
                    slots.hand.push_back(block);
                }
                // Joins the queue when its load ends.
                Slot::Loading => {}
            }
        }
    }
}

fn lost(block: u64) -> Error {
    Error::corrupt(format_args!("block {block}: freed while it was being read"))
}

fn next_ticket() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: only uniqueness counts.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests;
