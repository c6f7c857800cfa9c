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
//! nothing is called under it. No lock is held over I/O. A load leaves a mark in the shard; who
//! wants the same block meanwhile waits on the shard's condition variable.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use finefs_block::BlockDevice;
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
        let shard = self.shard(block);
        let mut slots = shard.slots.lock();
        while matches!(slots.by_block.get(&block), Some(Slot::Loading)) {
            shard.loaded.wait(&mut slots);
        }
        let buffer = Buffer {
            data: data.clone(),
            is_dirty: true,
            is_used: true,
            writer: ticket,
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
        drop(slots);
        BufferWrite {
            cache: self,
            block,
            ticket,
            data: Some(data),
        }
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
    pub fn dirty_count(&self) -> usize {
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

    /// Writes what [`BufferCache::dirty`] gave, as [`BufferCache::write_out`] does.
    pub fn write_these(&self, dirty: &[(u64, Arc<[u8]>)]) -> Result<()> {
        let blocks_max = (WRITE_BYTES / self.block_size_bytes).max(1);
        for run in dirty.chunk_by(|(block, _), (next, _)| block + 1 == *next) {
            for part in run.chunks(blocks_max) {
                self.write_run(part)?;
            }
        }
        Ok(())
    }

    /// Writes adjacent blocks; then those that did not change meanwhile are clean. They stay dirty
    /// until then, so that nobody can drop them and read the device's old bytes.
    fn write_run(&self, run: &[(u64, Arc<[u8]>)]) -> Result<()> {
        let Some((first, _)) = run.first() else {
            return Ok(());
        };
        let parts: Vec<&[u8]> = run.iter().map(|(_, data)| &data[..]).collect();
        self.device
            .write_parts_at(first * self.block_size_bytes as u64, &parts)
            .map_err(|error| Error::io(format_args!("writing from block {first} on: {error}")))?;
        for (block, data) in run {
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
        Ok(())
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
        match self.overlay.get(block) {
            Some(source) => source.read(&*self.device, 0, &mut data),
            None => self.device.read_at(offset_bytes, &mut data),
        }
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
mod tests {
    use super::*;
    use finefs_block::MemoryDevice;
    use finefs_sim::{FaultDevice, FaultOn, RecordingDevice, Request};

    const BLOCK: usize = 1024;

    /// A device whose block `n` is filled with the low byte of `n`.
    fn numbered(blocks: usize) -> Vec<u8> {
        (0..blocks * BLOCK)
            .map(|position| (position / BLOCK) as u8)
            .collect()
    }

    #[test]
    fn a_change_is_seen_when_its_guard_is_gone() {
        let cache = BufferCache::new(
            Arc::new(MemoryDevice::from_bytes(&numbered(8))),
            BLOCK as u32,
        );
        let before = cache.read(3).unwrap();
        let mut write = cache.modify(3).unwrap();
        write[0] = 77;
        assert_eq!(cache.read(3).unwrap()[0], 3);
        drop(write);
        assert_eq!(cache.read(3).unwrap()[0], 77);
        assert_eq!(before[0], 3, "a snapshot stays as it was");
        assert_eq!(cache.dirty_count(), 1);
    }

    #[test]
    fn two_writers_of_a_block_mean_damage() {
        let cache = BufferCache::new(Arc::new(MemoryDevice::new(8192)), BLOCK as u32);
        let one = cache.modify(1).unwrap();
        assert!(matches!(cache.modify(1), Err(Error::Corrupt(_))));
        drop(one);
        cache.modify(1).unwrap();
        // A block that is allocated anew takes over; what the first writer leaves is not kept.
        let mut old = cache.modify(2).unwrap();
        old[0] = 1;
        let mut new = cache.zeroed(2);
        new[1] = 2;
        drop(new);
        drop(old);
        assert_eq!(cache.read(2).unwrap()[..2], [0, 2]);
    }

    #[test]
    fn writes_are_sorted_and_joined() {
        let device = Arc::new(RecordingDevice::new(numbered(64)));
        let cache = BufferCache::new(device.clone(), BLOCK as u32);
        for block in [9, 30, 8, 10, 31, 50] {
            cache.modify(block).unwrap()[1] = 99;
        }
        cache.zeroed(11)[2] = 7;
        cache.modify(12).unwrap()[0] = 1;
        cache.forget(12);
        assert_eq!(cache.dirty_count(), 7);
        cache.write_out().unwrap();
        assert_eq!(cache.dirty_count(), 0);
        let writes: Vec<(u64, usize)> = device
            .recorded()
            .requests
            .iter()
            .map(|request| match request {
                Request::Write { offset_bytes, data } => (*offset_bytes / 1024, data.len() / BLOCK),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(writes, [(8, 4), (30, 2), (50, 1)]);
        let mut bytes = [0; 3];
        device.read_at(9 * 1024, &mut bytes).unwrap();
        assert_eq!(bytes, [9, 99, 9]);
        device.read_at(11 * 1024, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 0, 7]);
        device.read_at(12 * 1024, &mut bytes).unwrap();
        assert_eq!(bytes, [12, 12, 12]);
        cache.write_out().unwrap();
        assert_eq!(device.request_count(), 3, "nothing is dirty");
    }

    #[test]
    fn what_could_not_be_written_stays_dirty() {
        let inner = Arc::new(MemoryDevice::from_bytes(&numbered(64)));
        let device = Arc::new(FaultDevice::new(inner, FaultOn::Write, 1, 1));
        let cache = BufferCache::new(device, BLOCK as u32);
        for block in [2, 20, 40] {
            cache.modify(block).unwrap()[0] = 200;
        }
        assert!(matches!(cache.write_out(), Err(Error::Io(_))));
        assert_eq!(cache.dirty_count(), 2);
        cache.write_out().unwrap();
        assert_eq!(cache.dirty_count(), 0);
    }

    /// Changes block 5 once more while it is being written.
    struct Meddling {
        inner: MemoryDevice,
        cache: std::sync::OnceLock<std::sync::Weak<BufferCache>>,
    }

    impl BlockDevice for Meddling {
        fn len_bytes(&self) -> u64 {
            self.inner.len_bytes()
        }
        fn is_read_only(&self) -> bool {
            false
        }
        fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> std::io::Result<()> {
            self.inner.read_at(offset_bytes, buffer)
        }
        fn write_at(&self, offset_bytes: u64, data: &[u8]) -> std::io::Result<()> {
            self.inner.write_at(offset_bytes, data)?;
            if data[0] == 1
                && let Some(cache) = self.cache.get().and_then(std::sync::Weak::upgrade)
            {
                cache.modify(5).unwrap()[0] = 2;
            }
            Ok(())
        }
        fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> std::io::Result<()> {
            self.inner.write_zeros_at(offset_bytes, length_bytes)
        }
        fn flush(&self) -> std::io::Result<()> {
            Ok(())
        }
        fn describe(&self) -> String {
            "meddling".to_owned()
        }
    }

    #[test]
    fn a_change_during_the_write_is_not_lost() {
        let device = Arc::new(Meddling {
            inner: MemoryDevice::new(8192),
            cache: std::sync::OnceLock::new(),
        });
        let cache = Arc::new(BufferCache::new(device.clone(), BLOCK as u32));
        device.cache.set(Arc::downgrade(&cache)).unwrap();
        cache.modify(5).unwrap()[0] = 1;
        cache.write_out().unwrap();
        assert_eq!(cache.dirty_count(), 1);
        cache.write_out().unwrap();
        assert_eq!(cache.dirty_count(), 0);
        let mut byte = [0];
        device.read_at(5 * 1024, &mut byte).unwrap();
        assert_eq!(byte, [2]);
    }

    #[test]
    fn a_failed_load_can_be_tried_again() {
        let inner = Arc::new(MemoryDevice::from_bytes(&numbered(4)));
        let device = Arc::new(FaultDevice::new(inner, FaultOn::Read, 0, 1));
        let cache = BufferCache::new(device, BLOCK as u32);
        assert!(matches!(cache.read(1), Err(Error::Io(_))));
        assert_eq!(cache.read(1).unwrap()[0], 1);
        assert!(matches!(cache.read(u64::MAX), Err(Error::Corrupt(_))));
    }

    #[test]
    fn clean_buffers_are_bounded_and_dirty_ones_kept() {
        let blocks = 20_000;
        let device = Arc::new(MemoryDevice::new((blocks * BLOCK) as u64));
        let limit = 1 << 20;
        let cache = BufferCache::with(device, BLOCK as u32, Overlay::default(), limit);
        let held = |cache: &BufferCache| -> usize {
            cache
                .shards
                .iter()
                .map(|shard| shard.slots.lock().by_block.len())
                .sum()
        };
        for block in 0..blocks as u64 {
            if block % 100 == 0 {
                cache.modify(block).unwrap()[0] = 5;
            }
            cache.read(block).unwrap();
        }
        assert!(
            held(&cache) <= limit / BLOCK + blocks / 100 + SHARDS,
            "{} held",
            held(&cache)
        );
        assert_eq!(cache.dirty_count(), blocks / 100);
        for block in (0..blocks as u64).step_by(100) {
            assert_eq!(cache.read(block).unwrap()[0], 5);
        }
        // Blocks that come and go leave nothing behind.
        for round in 0..200 {
            for block in 0..100 {
                cache.zeroed(block)[0] = round;
                cache.forget(block);
            }
        }
        let queued: usize = cache
            .shards
            .iter()
            .map(|shard| shard.slots.lock().hand.len())
            .sum();
        assert!(
            queued < 4 * (limit / BLOCK + blocks / 100) + 200 * SHARDS,
            "{queued} queued"
        );
    }

    #[test]
    fn many_threads_read_while_one_changes() {
        let device = Arc::new(MemoryDevice::from_bytes(&numbered(256)));
        let cache = BufferCache::with(device, BLOCK as u32, Overlay::default(), 64 << 10);
        std::thread::scope(|scope| {
            for seed in 0..4_u64 {
                let cache = &cache;
                scope.spawn(move || {
                    let mut at = seed;
                    for _ in 0..20_000 {
                        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let block = (at >> 40) % 256;
                        let bytes = cache.read(block).unwrap();
                        // Before or after a change, never within.
                        assert!(
                            bytes[2..].iter().all(|byte| *byte == bytes[1]),
                            "block {block}"
                        );
                    }
                });
            }
            for round in 0..2_000_u64 {
                let mut write = cache.modify(round % 256).unwrap();
                write.fill(round as u8);
                drop(write);
                if round % 50 == 0 {
                    cache.write_out().unwrap();
                }
            }
        });
        cache.write_out().unwrap();
        assert_eq!(cache.dirty_count(), 0);
    }
}
