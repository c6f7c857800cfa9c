//! Tests of the data cache.

use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use finefs_block::MemoryDevice;
use finefs_namespace::BlockNo;
use finefs_sim::{FaultDevice, FaultOn, RecordingDevice, Request};

use super::DataMode::{Ordered, Writeback};
use super::shard::State::{Absent, Clean, Dirty, UnderWriteback};
use super::*;

const BLOCK: usize = 1024;
const CACHE_BYTES: usize = 4 << 20;
const CACHE_BLOCKS: usize = CACHE_BYTES / BLOCK;

fn over(device: &Arc<impl BlockDevice + 'static>) -> DataCache {
    DataCache::new(device.clone(), BLOCK as u32, CACHE_BYTES as u64)
}

fn run(start: u64, length: u64) -> BlockRun {
    let start = BlockNo(start);
    BlockRun { start, length }
}

fn block(data: &DataCache, number: u64) -> Option<Vec<u8>> {
    let mut buffer = vec![0xff; BLOCK];
    data.read(number, 0, &mut buffer).then_some(buffer)
}

fn state(data: &DataCache, number: u64) -> shard::State {
    data.shard(number).state(number)
}

impl DataCache {
    /// All that is dirty.
    fn write_out(&self) -> io::Result<()> {
        self.write_runs(&[run(0, u64::MAX)])
    }
}

/// Makes a block dirty in a mode.
fn put(data: &DataCache, number: u64, mode: DataMode) {
    assert!(data.put_over((number, 0), &[1; BLOCK], &[], mode));
}

/// Places and lengths of what was written, in blocks.
fn writes(device: &RecordingDevice) -> Vec<(usize, usize)> {
    let blocks = |request: &Request| match request {
        Request::Write { offset_bytes, data } => {
            (*offset_bytes as usize / BLOCK, data.len() / BLOCK)
        }
        other => panic!("{other:?}"),
    };
    device.recorded().requests.iter().map(blocks).collect()
}

#[test]
fn only_what_is_ordered_goes_out_before_a_commit() {
    let device = Arc::new(RecordingDevice::new(vec![7; 64 * BLOCK]));
    let data = over(&device);
    put(&data, 3, Ordered);
    put(&data, 4, Writeback);
    put(&data, 5, Writeback);
    put(&data, 5, Ordered);
    put(&data, 6, Ordered);
    // Ordered once, ordered until it was written.
    put(&data, 6, Writeback);
    data.write_ordered().unwrap();
    assert_eq!(writes(&device), [(3, 1), (5, 2)]);
    assert!(state(&data, 4) == Dirty && data.has_dirty());
    put(&data, 3, Writeback);
    data.write_ordered().unwrap();
    assert_eq!(writes(&device).len(), 2);
    put(&data, 3, Ordered);
    data.write_ordered().unwrap();
    assert_eq!(writes(&device).split_off(2), [(3, 1)]);
    data.write_out().unwrap();
    assert_eq!(writes(&device).split_off(3), [(4, 1)]);
    assert!(!data.has_dirty());
}

/// Another's block in a slot is not what the one before was; and what failed stays what it was.
#[test]
fn a_block_is_ordered_alone_and_until_it_is_written() {
    let inner = Arc::new(MemoryDevice::new(1 << 20));
    let device = Arc::new(FaultDevice::new(inner, FaultOn::Write, 0, 1));
    let data = over(&device);
    put(&data, 3, Ordered);
    data.forget(3, 1);
    put(&data, 9, Writeback);
    data.write_ordered().unwrap();
    assert_eq!(state(&data, 9), Dirty);
    data.forget(9, 1);
    put(&data, 5, Ordered);
    assert!(data.write_ordered().is_err());
    put(&data, 5, Writeback);
    data.write_ordered().unwrap();
    assert_eq!(state(&data, 5), Clean);
}

#[test]
fn parts_go_out_one_after_the_other() {
    let device = Arc::new(RecordingDevice::new(vec![7; 64 * BLOCK]));
    let data = over(&device);
    (0..10).for_each(|number| put(&data, number, Writeback));
    let parts = std::cell::RefCell::new(Vec::new());
    let between = || {
        parts.borrow_mut().push(writes(&device).len());
        Ok(())
    };
    data.write_back(4 * BLOCK, between).unwrap();
    assert_eq!(writes(&device), [(0, 4), (4, 4), (8, 2)]);
    assert_eq!(*parts.borrow(), [1, 2]);
}

#[test]
fn what_is_dirty_is_read_and_changed_and_goes_out_once() {
    let device = Arc::new(RecordingDevice::new(vec![7; 64 * BLOCK]));
    let data = over(&device);
    assert!(!data.change(3, 0, &[1], Ordered) && block(&data, 3).is_none());
    for number in [9, 3, 8, 10, 30] {
        assert!(data.put_blank(number, 10, &[number as u8; 20]));
    }
    assert!(data.change(9, 0, &[99; 15], Ordered));
    let expected: Vec<u8> = [&[99; 15][..], &[9; 15], &[0; BLOCK - 30]].concat();
    assert_eq!(block(&data, 9), Some(expected.clone()));
    data.forget(29, 3);
    assert!(block(&data, 30).is_none());
    data.write_out().unwrap();
    assert!(state(&data, 9) == Clean && data.blocks_written() == 4);
    data.write_out().unwrap();
    assert_eq!(writes(&device), [(3, 1), (8, 3)]);
    let mut bytes = vec![0; BLOCK];
    device.read_at(9 * BLOCK as u64, &mut bytes).unwrap();
    assert_eq!(bytes, expected);
    // It is still there, and when it is changed it goes out again, alone.
    assert_eq!(block(&data, 9), Some(expected));
    assert!(data.change(9, 1, &[1], Ordered) && state(&data, 9) == Dirty);
    data.write_out().unwrap();
    assert_eq!(writes(&device)[2..], [(9, 1)]);
}

#[test]
fn an_overwrite_keeps_what_is_around_it() {
    let data = over(&Arc::new(MemoryDevice::new(1 << 20)));
    assert!(data.put_over((3, 4), &[1, 1], &[7; BLOCK], Ordered));
    // Somebody has brought it in meanwhile: what the device had does not count.
    assert!(data.put_over((3, 0), &[2, 2], &[8; BLOCK], Ordered));
    let found = block(&data, 3).unwrap();
    assert_eq!(found[..8], [2, 2, 7, 7, 1, 1, 7, 7]);
    assert!(found[8..].iter().all(|byte| *byte == 7));
    // The memory of what was there before does not show.
    data.forget(3, 1);
    assert!(data.put_blank(3, 1, &[5]));
    let found = block(&data, 3).unwrap();
    assert!(found[..3] == [0, 5, 0] && found[3..].iter().all(|byte| *byte == 0));
}

#[test]
fn what_is_written_past_the_cache_is_not_stale_in_it() {
    let data = over(&Arc::new(MemoryDevice::new(1 << 20)));
    for number in [1, 2, 3] {
        assert!(data.put_blank(number, 0, &[1; BLOCK]));
    }
    data.write_out().unwrap();
    assert!(data.change(3, 0, &[1], Ordered));
    assert!(!data.change_or_drop(1, 0, &[2; BLOCK], Ordered) && state(&data, 1) == Absent);
    assert!(data.change_or_drop(2, 0, &[2; 5], Ordered) && state(&data, 2) == Dirty);
    assert!(
        data.change_or_drop(3, 0, &[2; BLOCK], Ordered) && block(&data, 3).unwrap() == [2; BLOCK]
    );
    assert!(!data.change_or_drop(4, 0, &[2; BLOCK], Ordered));
}

#[test]
fn what_is_written_behind_goes_out_in_one_request() {
    let device = Arc::new(RecordingDevice::new(vec![7; 64 * BLOCK]));
    let data = over(&device);
    for number in [3, 8, 9, 10, 11, 20] {
        assert!(data.put_blank(number, 0, &[number as u8; BLOCK]));
    }
    data.write_behind(run(7, 4));
    assert!(data.blocks_written() == 3 && writes(&device) == [(8, 3)]);
    let states = [3, 8, 9, 10, 11, 20].map(|number| state(&data, number));
    assert_eq!(states, [Dirty, Clean, Clean, Clean, Dirty, Dirty]);
    let mut bytes = [0];
    device.read_at(10 * BLOCK as u64, &mut bytes).unwrap();
    assert_eq!(bytes, [10]);
}

#[test]
fn a_sync_writes_the_blocks_that_it_names() {
    for beyond in [30, u64::MAX / 2] {
        let device = Arc::new(RecordingDevice::new(vec![7; 64 * BLOCK]));
        let data = over(&device);
        for number in [3, 8, 9, 10, 11, 20] {
            assert!(data.put_blank(number, 0, &[number as u8; BLOCK]));
        }
        let runs = [run(20, 1), run(40, beyond), run(8, 2), run(9, 2)];
        data.write_runs(&runs).unwrap();
        assert_eq!(writes(&device), [(8, 3), (20, 1)], "{beyond}");
        data.write_runs(&runs).unwrap();
        assert_eq!(data.blocks_written(), 4);
        assert!(state(&data, 3) == Dirty && state(&data, 11) == Dirty);
    }
}

#[test]
fn many_blocks_are_forgotten_at_once() {
    let data = over(&Arc::new(MemoryDevice::new(1 << 20)));
    for number in [4, 5, 900] {
        assert!(data.put_blank(number, 0, &[1; BLOCK]));
    }
    data.write_out().unwrap();
    assert!(data.change(900, 0, &[2], Ordered));
    data.forget(5, u64::MAX);
    let states = [4, 5, 900].map(|number| state(&data, number));
    assert_eq!(states, [Clean, Absent, Absent]);
}

#[test]
fn what_cannot_be_written_stays() {
    let inner = Arc::new(MemoryDevice::new(1 << 20));
    let device = Arc::new(FaultDevice::new(inner, FaultOn::Write, 1, 1));
    let data = over(&device);
    for number in [1, 5, 9] {
        assert!(data.put_blank(number, 0, &[1; BLOCK]));
    }
    assert!(data.write_out().is_err());
    // They were handed over together, so nobody asks which of them arrived.
    let states = [1, 5, 9].map(|number| state(&data, number));
    assert_eq!(states, [Dirty; 3]);
    // Nothing is left waiting.
    data.forget(5, 1);
    data.write_out().unwrap();
    assert!(device.seen() == 4 && state(&data, 9) == Clean);
}

#[test]
fn too_much_that_is_dirty_goes_out() {
    let device = Arc::new(RecordingDevice::new(vec![0; 16 << 20]));
    let data = over(&device);
    for number in 0..8192 {
        assert!(data.put_blank(number, 0, &[number as u8; BLOCK]));
        let dirty = (number + 1) as usize - data.blocks_written() as usize;
        assert!(dirty <= CACHE_BLOCKS * 3 / 4, "{dirty} at {number}");
    }
    // In large requests, and never more than needed: half may be dirty.
    let dirty = 8192 - data.blocks_written() as usize;
    assert!(dirty >= CACHE_BLOCKS / 4, "{dirty}");
    let mean = data.blocks_written() as usize / writes(&device).len();
    assert!(mean > 256, "{mean}");
    data.write_out().unwrap();
    let mut bytes = vec![0; 8192 * BLOCK];
    device.read_at(0, &mut bytes).unwrap();
    for (number, block) in bytes.chunks(BLOCK).enumerate() {
        assert!(block.iter().all(|byte| *byte == number as u8), "{number}");
    }
}

/// While nothing can be written, what finds no place is not taken.
#[test]
fn there_is_an_end_to_what_is_dirty() {
    let device = Arc::new(FaultDevice::new(
        Arc::new(MemoryDevice::new(256 << 20)),
        FaultOn::Write,
        0,
        u64::MAX,
    ));
    let data = DataCache::new(device, BLOCK as u32, 256 << 10);
    let taken = (0..1000).take_while(|number| data.put_blank(*number, 0, &[1]));
    let taken = taken.count();
    assert!((128..=256).contains(&taken), "{taken}");
    // What is there can be changed all the same.
    assert!(data.put_blank(0, 0, &[2]) && data.change(1, 0, &[2], Ordered));
    assert!(!data.put_blank(taken as u64, 0, &[2]));
}

/// What is used stays; a stream of what is not goes round in little memory.
#[test]
fn clean_blocks_that_nobody_uses_are_evicted() {
    let data = over(&Arc::new(MemoryDevice::new(256 << 20)));
    let used: Vec<u64> = (0..256).map(|index| 100_000 + index).collect();
    for number in &used {
        assert!(data.put_blank(*number, 0, &[9]));
    }
    for number in 0..10 * CACHE_BLOCKS as u64 {
        assert!(data.put_blank(number, 0, &[1]));
        if number % 64 == 63 {
            data.write_out().unwrap();
        }
        if number % 1024 == 0 {
            assert!(
                used.iter().all(|number| block(&data, *number).is_some()),
                "{number}"
            );
        }
    }
    let blocks: usize = data.shards.iter().map(|shard| shard.all().len()).sum();
    let slots: usize = data.shards.iter().map(Shard::slots).sum();
    assert!(blocks <= slots && slots <= CACHE_BLOCKS, "{blocks} {slots}");
}

#[test]
fn memory_that_is_not_used_is_given_back() {
    let data = over(&Arc::new(MemoryDevice::new(1 << 20)));
    for number in 0..100 {
        assert!(data.put_blank(number, 0, &[1]));
    }
    data.write_out().unwrap();
    let slots = || -> usize { data.shards.iter().map(Shard::slots).sum() };
    data.next_tick();
    assert!(slots() >= 100);
    assert!(data.change(7, 0, &[2], Ordered));
    data.next_tick();
    // The shard that was used stays, and what is dirty in any case.
    assert!(slots() < 100 && state(&data, 7) == Dirty);
    data.next_tick();
    data.next_tick();
    assert!(state(&data, 7) == Dirty);
    data.write_out().unwrap();
    data.next_tick();
    assert!(slots() == 0 && state(&data, 7) == Absent);
    assert!((0..100).all(|number| !data.shard(number).may_have(number)));
}

/// As a model has it: whatever is written, evicted, freed and written out, the cache over the
/// device shows what was written last.
#[test]
fn it_shows_what_was_written_last() {
    use rand::{Rng, SeedableRng};
    let device = Arc::new(MemoryDevice::new(4096 * BLOCK as u64));
    let data = DataCache::new(device.clone(), BLOCK as u32, 256 << 10);
    let mut model = vec![0_u8; 4096];
    let mut random = rand::rngs::SmallRng::seed_from_u64(7);
    for step in 0..60_000_u32 {
        let number = random.random_range(0..600);
        let value = step as u8;
        match random.random_range(0..100) {
            0 => data.write_out().unwrap(),
            1 => data.write_behind(run(number, 64)),
            2 => data.write_runs(&[run(number, 5), run(0, 3)]).unwrap(),
            3 => data.next_tick(),
            4..10 => {
                data.forget(number, 3);
                for number in number..number + 3 {
                    let place = number * BLOCK as u64;
                    device.write_at(place, &[value; BLOCK]).unwrap();
                    model[number as usize] = value;
                }
            }
            10..60 => {
                let is_cached = data.change_or_drop(number, 0, &[value; BLOCK], Ordered)
                    || step % 2 == 0 && data.put_over((number, 0), &[value; BLOCK], &[], Ordered);
                if !is_cached {
                    let place = number * BLOCK as u64;
                    device.write_at(place, &[value; BLOCK]).unwrap();
                }
                model[number as usize] = value;
            }
            _ => {
                let mut found = vec![0; BLOCK];
                if !data.read(number, 0, &mut found) {
                    device.read_at(number * BLOCK as u64, &mut found).unwrap();
                }
                assert!(
                    found.iter().all(|byte| *byte == model[number as usize]),
                    "{step}"
                );
            }
        }
    }
}

/// Calls back in the middle of each write.
struct Meddling {
    inner: MemoryDevice,
    meddle: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl BlockDevice for Meddling {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset_bytes, buffer)
    }
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        let meddle = self.meddle.lock().take();
        if let Some(meddle) = meddle {
            meddle();
        }
        self.inner.write_at(offset_bytes, data)
    }
    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        self.inner.write_zeros_at(offset_bytes, length_bytes)
    }
    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
}

static MEDDLE: LockClass = LockClass::new("test.meddle", 1);

fn meddling() -> (Arc<Meddling>, Arc<DataCache>) {
    let device = Arc::new(Meddling {
        inner: MemoryDevice::new(4 << 20),
        meddle: Mutex::new(&MEDDLE, None),
    });
    let data = Arc::new(over(&device));
    (device, data)
}

#[test]
fn a_change_during_the_write_out_is_kept() {
    let (device, data) = meddling();
    assert!(data.put_blank(2, 0, &[1; BLOCK]));
    let theirs = data.clone();
    *device.meddle.lock() = Some(Box::new(move || {
        assert!(theirs.change(2, 0, &[2; 10], Ordered))
    }));
    data.write_out().unwrap();
    let held = block(&data, 2).unwrap();
    assert_eq!((held[9], held[10]), (2, 1));
    assert_eq!(state(&data, 2), Dirty);
    data.write_out().unwrap();
    assert_eq!(state(&data, 2), Clean);
    let mut bytes = [0; 11];
    device.read_at(2 * BLOCK as u64, &mut bytes).unwrap();
    assert_eq!(bytes, [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
}

/// Blocks that wait for their turn are not written any more once nobody has them.
#[test]
fn what_is_forgotten_during_the_write_out_does_not_go_out() {
    let (device, data) = meddling();
    let at_once = data.blocks_at_once() as u64;
    let last = at_once + 400;
    for number in (0..at_once).chain([last]) {
        assert!(data.put_blank(number, 0, &[1; BLOCK]));
    }
    let theirs = data.clone();
    // It is among those that are handed over next.
    *device.meddle.lock() = Some(Box::new(move || theirs.forget(last, 1)));
    data.write_out().unwrap();
    assert_eq!(
        [2, last].map(|number| state(&data, number)),
        [Clean, Absent]
    );
    assert_eq!(data.blocks_written(), at_once);
}

/// The operation is given up, the blocks are not: who wants them next does not wait for ever.
#[test]
fn what_was_being_written_in_a_panic_stays_held() {
    let (device, data) = meddling();
    for number in [2, 3, 400] {
        assert!(data.put_blank(number, 0, &[1; BLOCK]));
    }
    *device.meddle.lock() = Some(Box::new(|| panic!("for the test")));
    let writes = std::panic::AssertUnwindSafe(|| data.write_out());
    assert!(std::panic::catch_unwind(writes).is_err());
    for number in [2, 3, 400] {
        assert_eq!(state(&data, number), Dirty, "{number}");
    }
    data.write_out().unwrap();
    assert_eq!(data.blocks_written(), 3);
}

/// Who wants all to be written waits for what another thread is writing, and does not write it
/// again.
#[test]
fn a_block_is_written_by_one_at_a_time() {
    let (device, data) = meddling();
    assert!(data.put_blank(2, 0, &[1; BLOCK]));
    let is_out = Arc::new(AtomicBool::new(false));
    let (theirs, noted) = (data.clone(), is_out.clone());
    let (hand, taken) = std::sync::mpsc::channel();
    *device.meddle.lock() = Some(Box::new(move || {
        let flag = noted.clone();
        let thread = std::thread::spawn(move || {
            theirs.write_out().unwrap();
            flag.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(!noted.load(Ordering::SeqCst));
        hand.send(thread).unwrap();
    }));
    data.write_behind(BlockRun {
        start: BlockNo(2),
        length: 1,
    });
    taken.recv().unwrap().join().unwrap();
    assert!(is_out.load(Ordering::SeqCst) && state(&data, 2) == Clean);
    assert_eq!(data.blocks_written(), 1);
}

/// Who comes to the end of a piece while another goes out leaves it to who is at that.
#[test]
fn pieces_are_written_behind_by_one_thread() {
    let (device, data) = meddling();
    let pieces = [2, 40].map(|start| BlockRun {
        start: BlockNo(start),
        length: 1,
    });
    for piece in pieces {
        assert!(data.put_blank(piece.start.0, 0, &[1; BLOCK]));
    }
    let theirs = data.clone();
    *device.meddle.lock() = Some(Box::new(move || {
        std::thread::scope(|scope| {
            scope.spawn(|| theirs.write_behind(pieces[1]));
        });
        assert!(block(&theirs, 40).is_some());
    }));
    data.write_behind(pieces[0]);
    assert!(state(&data, 2) == Clean && state(&data, 40) == Clean);
    assert_eq!(data.blocks_written(), 2);
}

#[test]
fn a_block_is_not_given_up_while_it_is_being_written() {
    let (device, data) = meddling();
    assert!(data.put_blank(2, 0, &[1; BLOCK]));
    let is_forgotten = Arc::new(AtomicBool::new(false));
    let (theirs, mine, noted) = (data.clone(), data.clone(), is_forgotten.clone());
    let (hand, taken) = std::sync::mpsc::channel();
    *device.meddle.lock() = Some(Box::new(move || {
        let flag = noted.clone();
        let thread = std::thread::spawn(move || {
            theirs.forget(2, 1);
            flag.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(!noted.load(Ordering::SeqCst) && state(&mine, 2) == UnderWriteback);
        hand.send(thread).unwrap();
    }));
    data.write_out().unwrap();
    taken.recv().unwrap().join().unwrap();
    assert!(is_forgotten.load(Ordering::SeqCst) && block(&data, 2).is_none());
}
