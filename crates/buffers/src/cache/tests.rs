//! The buffer cache over devices that count, fail and meddle.

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
    // They were on their way together, so nobody asks which of them arrived.
    assert_eq!(cache.dirty_count(), 3);
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

/// Counts reads; each could have brought more.
struct Distant {
    inner: MemoryDevice,
    reads: std::sync::atomic::AtomicU64,
}

impl BlockDevice for Distant {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_ahead_bytes(&self) -> u32 {
        8 * BLOCK as u32
    }
    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.reads
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.inner.read_at(offset_bytes, buffer)
    }
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> std::io::Result<()> {
        self.inner.write_at(offset_bytes, data)
    }
    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> std::io::Result<()> {
        self.inner.write_zeros_at(offset_bytes, length_bytes)
    }
    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
    fn describe(&self) -> String {
        "distant".to_owned()
    }
}

#[test]
fn neighbours_are_read_together_and_changes_are_kept() {
    let device = Arc::new(Distant {
        inner: MemoryDevice::from_bytes(&numbered(64)),
        reads: 0.into(),
    });
    let cache = BufferCache::new(device.clone(), BLOCK as u32);
    cache.modify(18).unwrap()[0] = 200;
    for block in 17..30 {
        let expected = if block == 18 { 200 } else { block as u8 };
        assert_eq!(cache.read_among(block, 17..28).unwrap()[0], expected);
    }
    // Block 18, 17 to 23, 24 to 27, and two that lie outside.
    let reads = device.reads.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(reads, 5);
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
