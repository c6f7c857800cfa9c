//! Data of files that was written and is not on the device yet.
//!
//! # Purpose
//! A file that is made is often changed again at once, and many are removed before anybody has
//! asked for them to be durable. So what is written to blocks that held nothing stays in memory
//! until the commit that makes them part of a file, or until there is too much of it. Then it goes
//! out in the order of the device, adjacent blocks in one request. What belonged to files that were
//! made and removed before that never goes out.
//!
//! # Data model
//! A block that is *held* has an entry with its whole content, which stands for what the device has
//! there: it is read from the entry, and changed in it.
//!
//! # Invariants
//! 1. While a block is held nobody but who writes it out reads or writes it on the device, and that
//!    is one at a time.
//! 2. An entry goes when the device has what it says, or when the block has become nobody's; and
//!    never while it is being written out. So no write of what a block held for an earlier owner
//!    comes after one for a later.
//! 3. A block begins to be held when it holds nothing that counts, by the thread that has the range
//!    of the file locked.
//! 4. When [`DelayedData::write_out`] has succeeded, all that was held when it began has been
//!    written, or dropped.
//!
//! # Locking
//! Blocks are spread over shards, adjacent ones mostly in the same, each with one lock (class
//! `ext.delayed`), a leaf. No lock is held over I/O: one thread at a time writes out all, or makes
//! room, which a flag says (class `ext.write_out`, a leaf too). Beside it one thread at a time
//! writes out pieces of large files ([`DelayedData::write_behind`]), for all that come to the end
//! of one: to write to one file is exclusive in the kernel, so that side by side they would wait
//! for each other there. Who wants to forget a block that is being written, or to write it, waits
//! on the shard's condition variable: for one request, as blocks are marked just before, in
//! ascending order, so that none wait for each other in a circle. [`DelayedData::abandon`] does not
//! wait.
//!
//! # References
//! Linux `Documentation/filesystems/ext4/` on delayed allocation and data=ordered; here blocks are
//! allocated at once.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use finefs_block::BlockDevice;
use finefs_locks::LockClass;
use finefs_namespace::{BlockRun, NumberMap};

use crate::sync::{Condvar, Mutex, MutexGuard};

/// A shard of the data that is not on the device yet.
pub static DELAYED: LockClass = LockClass::new("ext.delayed", 82);

/// Whether somebody writes out what is held.
pub static WRITE_OUT: LockClass = LockClass::new("ext.write_out", 81);

/// Pieces of large files that wait to be written out.
pub static BEHIND: LockClass = LockClass::new("ext.behind", 81);

/// So many pieces wait for the thread that writes them out. Each has 1 MiB or less.
const PIECES_WAITING_MAX: usize = 4;

/// So many pieces a thread writes out, its own the first, before it goes on.
const PIECES_IN_A_ROW: usize = 16;

/// So many bytes are held at most, about.
const HELD_BYTES_MAX: usize = 32 << 20;

const SHARDS: usize = 64;

/// Adjacent blocks of so many bytes are in one shard.
const SHARD_RUN_BYTES: usize = 64 << 10;

/// Adjacent blocks are written together up to this size.
const WRITE_BYTES: usize = 1 << 20;

/// More blocks than this are not looked for one by one.
const FORGOTTEN_ONE_BY_ONE: u64 = 1 << 14;

/// See the module's head.
pub(crate) struct DelayedData {
    device: Arc<dyn BlockDevice>,
    block_bytes: usize,
    shards: Box<[Shard]>,
    /// So many adjacent blocks are in one shard.
    shard_run: u64,
    /// The most blocks that a shard holds.
    shard_blocks_max: usize,
    /// Blocks that were written out since the mount.
    blocks_written: AtomicU64,
    /// Somebody is writing out.
    is_busy: Mutex<bool>,
    is_free: Condvar,
    behind: Mutex<Behind>,
}

/// Pieces that wait to be written out, and whether a thread is at it.
struct Behind {
    pieces: VecDeque<BlockRun>,
    is_busy: bool,
}

/// A line pair of its own, so that shards share no cache lines.
#[repr(align(128))]
struct Shard {
    held: Mutex<Held>,
    /// How many blocks are held: written under the lock, read without it, so that who reads what is
    /// not held writes no line.
    count: AtomicUsize,
    /// Some block is no longer being written.
    settled: Condvar,
}

type Held = NumberMap<u64, Block>;

struct Block {
    content: Arc<[u8]>,
    is_being_written: bool,
    /// It goes as soon as it is no longer being written.
    is_unwanted: bool,
}

/// Nobody else writes out while it is there.
struct Turn<'a>(&'a DelayedData);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.is_busy.lock() = false;
        self.0.is_free.notify_all();
    }
}

/// Blocks that are marked as being written; those that have not come to it when it goes, as the
/// device panicked, stay held.
struct Marked<'a> {
    data: &'a DelayedData,
    blocks: Vec<(u64, Arc<[u8]>)>,
    /// So many of them, from the first on, are settled.
    settled: usize,
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        for (number, content) in &self.blocks[self.settled..] {
            self.data.settle(*number, content, false);
        }
    }
}

impl DelayedData {
    /// Nothing is held.
    pub fn new(device: Arc<dyn BlockDevice>, block_bytes: u32) -> DelayedData {
        let block_bytes = block_bytes as usize;
        let shards = (0..SHARDS).map(|_| Shard {
            held: Mutex::new(&DELAYED, Held::default()),
            count: AtomicUsize::new(0),
            settled: Condvar::new(),
        });
        DelayedData {
            device,
            block_bytes,
            shards: shards.collect(),
            shard_run: (SHARD_RUN_BYTES / block_bytes).max(1) as u64,
            shard_blocks_max: (HELD_BYTES_MAX / block_bytes / SHARDS).max(1),
            blocks_written: AtomicU64::new(0),
            is_busy: Mutex::new(&WRITE_OUT, false),
            is_free: Condvar::new(),
            behind: Mutex::new(
                &BEHIND,
                Behind {
                    pieces: VecDeque::new(),
                    is_busy: false,
                },
            ),
        }
    }

    /// How many blocks were written out.
    pub fn blocks_written(&self) -> u64 {
        self.blocks_written.load(Ordering::Relaxed)
    }

    fn shard(&self, block: u64) -> &Shard {
        let hash = (block / self.shard_run).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(hash >> 58) as usize % SHARDS]
    }

    /// Holds a block that has `data` from byte `within` on and zeros around it, in place of
    /// whatever it had. False when too much is held.
    pub fn hold(&self, block: u64, within: usize, data: &[u8]) -> bool {
        let shard = self.shard(block);
        let may_be_full = shard.count.load(Ordering::Acquire) >= self.shard_blocks_max;
        if may_be_full && !shard.held.lock().contains_key(&block) {
            return false;
        }
        let content: Arc<[u8]> = match data.len() == self.block_bytes {
            true => data.into(),
            false => {
                let mut padded = vec![0; self.block_bytes];
                padded[within..within + data.len()].copy_from_slice(data);
                padded.into()
            }
        };
        let mut held = shard.held.lock();
        let is_full = held.len() >= self.shard_blocks_max;
        match held.entry(block) {
            Entry::Occupied(mut entry) => entry.get_mut().content = content,
            Entry::Vacant(_) if is_full => return false,
            Entry::Vacant(entry) => {
                entry.insert(Block {
                    content,
                    is_being_written: false,
                    is_unwanted: false,
                });
                shard.count.store(held.len(), Ordering::Release);
            }
        }
        true
    }

    /// Changes a block from byte `within` on, if it is held.
    pub fn change(&self, block: u64, within: usize, data: &[u8]) -> bool {
        let shard = self.shard(block);
        if shard.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut held = shard.held.lock();
        let Some(block) = held.get_mut(&block) else {
            return false;
        };
        // One that is being written out is copied: what goes out is what it was.
        Arc::make_mut(&mut block.content)[within..within + data.len()].copy_from_slice(data);
        true
    }

    /// Reads a block from byte `within` on, if it is held.
    pub fn read(&self, block: u64, within: usize, buffer: &mut [u8]) -> bool {
        let shard = self.shard(block);
        if shard.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let held = shard.held.lock();
        let Some(block) = held.get(&block) else {
            return false;
        };
        buffer.copy_from_slice(&block.content[within..within + buffer.len()]);
        true
    }

    /// Drops what these blocks hold: they are nobody's any more, or something else was written
    /// there. Waits for those that are being written.
    pub fn forget(&self, start: u64, length: u64) {
        self.for_each_held(start, length, |shard, block| {
            let mut held = shard.held.lock();
            while held.get(&block).is_some_and(|held| held.is_being_written) {
                shard.settled.wait(&mut held);
            }
            shard.drop_block(held, block);
        });
    }

    /// Nobody reads these blocks any more, and nobody will write them before they are forgotten.
    pub fn abandon(&self, start: u64, length: u64) {
        self.for_each_held(start, length, |shard, block| {
            let mut held = shard.held.lock();
            match held.get_mut(&block) {
                Some(block) if block.is_being_written => block.is_unwanted = true,
                _ => shard.drop_block(held, block),
            }
        });
    }

    /// Blocks of this range in shards that hold something.
    fn for_each_held(&self, start: u64, length: u64, mut visit: impl FnMut(&Shard, u64)) {
        let end = start.saturating_add(length);
        if length > FORGOTTEN_ONE_BY_ONE {
            for shard in &self.shards {
                let held: Vec<u64> = shard.held.lock().keys().copied().collect();
                let within = held
                    .into_iter()
                    .filter(|block| (start..end).contains(block));
                within.for_each(|block| visit(shard, block));
            }
            return;
        }
        for block in start..end {
            let shard = self.shard(block);
            if shard.count.load(Ordering::Acquire) > 0 {
                visit(shard, block);
            }
        }
    }

    /// Writes out all that is held. What could not be written stays held, and the first error is
    /// given.
    pub fn write_out(&self) -> io::Result<()> {
        let mut is_busy = self.is_busy.lock();
        while *is_busy {
            self.is_free.wait(&mut is_busy);
        }
        *is_busy = true;
        drop(is_busy);
        self.write_all(&self.shards, &Turn(self))
    }

    /// Writes out what is in the way of holding a block, unless somebody writes out already.
    /// Whatever fails will fail again when it matters.
    pub fn make_room(&self, block: u64) {
        if std::mem::replace(&mut *self.is_busy.lock(), true) {
            return;
        }
        let shard = std::slice::from_ref(self.shard(block));
        if let Err(error) = self.write_all(shard, &Turn(self)) {
            log::warn!("{}: writing file data: {error}", self.device.describe());
        }
    }

    /// Writes those of these blocks out that are held, whose ever they are: what is held may go out
    /// at any time. If another thread is at it, that one does it next; what finds no room to wait
    /// stays held, for the commit. Whatever fails will fail again when it matters.
    pub fn write_behind(&self, run: BlockRun) {
        let mut behind = self.behind.lock();
        if behind.pieces.len() < PIECES_WAITING_MAX {
            behind.pieces.push_back(run);
        }
        if std::mem::replace(&mut behind.is_busy, true) {
            return;
        }
        for _ in 0..PIECES_IN_A_ROW {
            let Some(piece) = behind.pieces.pop_front() else {
                break;
            };
            drop(behind);
            self.write_piece(piece);
            behind = self.behind.lock();
        }
        behind.is_busy = false;
    }

    fn write_piece(&self, piece: BlockRun) {
        let start = piece.start.0;
        let is_held = |block: &u64| self.shard(*block).count.load(Ordering::Acquire) > 0;
        let blocks: Vec<u64> = (start..start + piece.length).filter(is_held).collect();
        if let Err(error) = self.write_blocks(&blocks) {
            log::warn!("{}: writing file data: {error}", self.device.describe());
        }
    }

    fn write_all(&self, shards: &[Shard], _turn: &Turn<'_>) -> io::Result<()> {
        let mut blocks: Vec<u64> = Vec::new();
        for shard in shards {
            if shard.count.load(Ordering::Acquire) > 0 {
                blocks.extend(shard.held.lock().keys());
            }
        }
        blocks.sort_unstable();
        self.write_blocks(&blocks)
    }

    /// Writes those of these blocks, which are in order, that are still held.
    fn write_blocks(&self, blocks: &[u64]) -> io::Result<()> {
        let at_once = (WRITE_BYTES / self.block_bytes).max(1);
        let runs = blocks.chunk_by(|one, next| one + 1 == *next);
        runs.flat_map(|run| run.chunks(at_once))
            .try_for_each(|part| self.write_part(part))
    }

    /// Writes those of these blocks, which are adjacent, that are still held.
    fn write_part(&self, part: &[u64]) -> io::Result<()> {
        let mut marked = Marked {
            data: self,
            blocks: Vec::with_capacity(part.len()),
            settled: 0,
        };
        let blocks = part.iter().filter_map(|number| self.mark(*number));
        marked.blocks.extend(blocks);
        let mut outcome = Ok(());
        for run in marked
            .blocks
            .chunk_by(|(one, _), (next, _)| one + 1 == *next)
        {
            if outcome.is_ok() {
                let contents: Vec<&[u8]> = run.iter().map(|(_, content)| &**content).collect();
                let place = run[0].0 * self.block_bytes as u64;
                outcome = self.device.write_parts_at(place, &contents);
            }
            if outcome.is_ok() {
                let count = run.len() as u64;
                self.blocks_written.fetch_add(count, Ordering::Relaxed);
            }
            for (number, content) in run {
                marked.settled += 1;
                self.settle(*number, content, outcome.is_ok());
            }
        }
        outcome
    }

    /// A block is being written from now on, if it is held: by nobody else. Who waits here has
    /// marked only lower ones.
    fn mark(&self, number: u64) -> Option<(u64, Arc<[u8]>)> {
        let shard = self.shard(number);
        let mut held = shard.held.lock();
        while held
            .get(&number)
            .is_some_and(|block| block.is_being_written)
        {
            shard.settled.wait(&mut held);
        }
        let block = held.get_mut(&number)?;
        block.is_being_written = true;
        Some((number, Arc::clone(&block.content)))
    }

    /// A block is no longer being written; when the device has what it holds, or nobody wants it,
    /// it is held no longer.
    fn settle(&self, number: u64, content: &Arc<[u8]>, is_written: bool) {
        let shard = self.shard(number);
        let mut held = shard.held.lock();
        if let Entry::Occupied(mut entry) = held.entry(number) {
            let block = entry.get_mut();
            block.is_being_written = false;
            if block.is_unwanted || is_written && Arc::ptr_eq(&block.content, content) {
                entry.remove();
                shard.count.store(held.len(), Ordering::Release);
            }
        }
        drop(held);
        shard.settled.notify_all();
    }
}

impl Shard {
    fn drop_block(&self, mut held: MutexGuard<'_, Held>, block: u64) {
        let dropped = held.remove(&block);
        self.count.store(held.len(), Ordering::Release);
        drop(held);
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_block::MemoryDevice;
    use finefs_namespace::BlockNo;
    use finefs_sim::{FaultDevice, FaultOn, RecordingDevice, Request};
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    const BLOCK: usize = 1024;

    fn over(device: &Arc<impl BlockDevice + 'static>) -> DelayedData {
        DelayedData::new(device.clone(), BLOCK as u32)
    }

    fn block(data: &DelayedData, number: u64) -> Option<Vec<u8>> {
        let mut buffer = vec![0xff; BLOCK];
        data.read(number, 0, &mut buffer).then_some(buffer)
    }

    #[test]
    fn what_is_held_is_read_and_changed_and_goes_out_once() {
        let device = Arc::new(RecordingDevice::new(vec![7; 64 * BLOCK]));
        let data = over(&device);
        assert!(!data.change(3, 0, &[1]) && block(&data, 3).is_none());
        for number in [9, 3, 8, 10, 30] {
            assert!(data.hold(number, 10, &[number as u8; 20]));
        }
        assert!(data.change(9, 0, &[99; 15]));
        let expected: Vec<u8> = [&[99; 15][..], &[9; 15], &[0; BLOCK - 30]].concat();
        assert_eq!(block(&data, 9), Some(expected.clone()));
        data.forget(29, 3);
        assert!(block(&data, 30).is_none());
        data.write_out().unwrap();
        assert!(block(&data, 9).is_none() && data.blocks_written() == 4);
        data.write_out().unwrap();
        let recorded = device.recorded();
        let writes: Vec<(usize, usize)> = recorded
            .requests
            .iter()
            .map(|request| match request {
                Request::Write { offset_bytes, data } => {
                    (*offset_bytes as usize / BLOCK, data.len() / BLOCK)
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(writes, [(3, 1), (8, 3)]);
        let mut bytes = vec![0; BLOCK];
        device.read_at(9 * BLOCK as u64, &mut bytes).unwrap();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn what_is_written_behind_goes_out_in_one_request() {
        let device = Arc::new(RecordingDevice::new(vec![7; 64 * BLOCK]));
        let data = over(&device);
        for number in [3, 8, 9, 10, 11, 20] {
            assert!(data.hold(number, 0, &[number as u8; BLOCK]));
        }
        data.write_behind(BlockRun {
            start: BlockNo(7),
            length: 4,
        });
        assert!(data.blocks_written() == 3 && device.recorded().requests.len() == 1);
        let held = [3, 8, 9, 10, 11, 20].map(|number| block(&data, number).is_some());
        assert_eq!(held, [true, false, false, false, true, true]);
        let mut bytes = [0];
        device.read_at(10 * BLOCK as u64, &mut bytes).unwrap();
        assert_eq!(bytes, [10]);
    }

    #[test]
    fn many_blocks_are_forgotten_at_once() {
        let data = over(&Arc::new(MemoryDevice::new(1 << 20)));
        for number in [4, 5, 900] {
            assert!(data.hold(number, 0, &[1; BLOCK]));
        }
        data.forget(5, u64::MAX);
        let held = [4, 5, 900].map(|number| block(&data, number).is_some());
        assert_eq!(held, [true, false, false]);
    }

    #[test]
    fn what_cannot_be_written_stays() {
        let inner = Arc::new(MemoryDevice::new(1 << 20));
        let device = Arc::new(FaultDevice::new(inner, FaultOn::Write, 1, 1));
        let data = over(&device);
        for number in [1, 5, 9] {
            assert!(data.hold(number, 0, &[1; BLOCK]));
        }
        assert!(data.write_out().is_err());
        let held = [1, 5, 9].map(|number| block(&data, number).is_some());
        assert_eq!(held, [false, true, true]);
        // Nothing is left waiting.
        data.forget(5, 1);
        data.write_out().unwrap();
        assert_eq!(device.seen(), 3);
    }

    #[test]
    fn there_is_an_end_to_what_is_held() {
        let device = Arc::new(MemoryDevice::new(256 << 20));
        let data = over(&device);
        let blocks = (device.len_bytes() / BLOCK as u64) as usize;
        let held = (0..blocks as u64).take_while(|number| data.hold(*number, 0, &[1]));
        let held = held.count();
        assert!((1000..=HELD_BYTES_MAX / BLOCK).contains(&held), "{held}");
        // What is held already still is.
        assert!(data.hold(0, 0, &[2]) && !data.hold(held as u64, 0, &[2]));
        data.make_room(held as u64);
        assert!(data.hold(held as u64, 0, &[2]));
        // Only as much as is needed.
        let written = data.blocks_written();
        assert!((1..=(HELD_BYTES_MAX / BLOCK / SHARDS) as u64).contains(&written));
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

    fn meddling() -> (Arc<Meddling>, Arc<DelayedData>) {
        let device = Arc::new(Meddling {
            inner: MemoryDevice::new(1 << 20),
            meddle: Mutex::new(&MEDDLE, None),
        });
        let data = Arc::new(over(&device));
        (device, data)
    }

    #[test]
    fn a_change_during_the_write_out_is_kept() {
        let (device, data) = meddling();
        assert!(data.hold(2, 0, &[1; BLOCK]));
        let theirs = data.clone();
        *device.meddle.lock() = Some(Box::new(move || assert!(theirs.change(2, 0, &[2; 10]))));
        data.write_out().unwrap();
        let held = block(&data, 2).unwrap();
        assert_eq!((held[9], held[10]), (2, 1));
        data.write_out().unwrap();
        assert!(block(&data, 2).is_none());
        let mut bytes = [0; 11];
        device.read_at(2 * BLOCK as u64, &mut bytes).unwrap();
        assert_eq!(bytes, [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
    }

    /// Blocks that wait for their turn are not written any more once nobody wants them, and nobody
    /// waits.
    #[test]
    fn what_is_abandoned_during_the_write_out_does_not_go_out() {
        let (device, data) = meddling();
        for number in [2, 3, 400] {
            assert!(data.hold(number, 0, &[1; BLOCK]));
        }
        let theirs = data.clone();
        *device.meddle.lock() = Some(Box::new(move || {
            theirs.abandon(3, 1);
            theirs.abandon(400, 1);
            // 3 is in the request, 400 in the next.
            assert!(block(&theirs, 3).is_some() && block(&theirs, 400).is_none());
        }));
        data.write_out().unwrap();
        assert!(
            [2, 3, 400]
                .into_iter()
                .all(|number| block(&data, number).is_none())
        );
        assert_eq!(data.blocks_written(), 2);
    }

    /// The operation is given up, the blocks are not: who wants them next does not wait for ever.
    #[test]
    fn what_was_being_written_in_a_panic_stays_held() {
        let (device, data) = meddling();
        for number in [2, 3, 400] {
            assert!(data.hold(number, 0, &[1; BLOCK]));
        }
        *device.meddle.lock() = Some(Box::new(|| panic!("for the test")));
        let writes = std::panic::AssertUnwindSafe(|| data.write_out());
        assert!(std::panic::catch_unwind(writes).is_err());
        for number in [2, 3, 400] {
            let held = data.shard(number).held.lock();
            let is_free = |block: &Block| !block.is_being_written;
            assert!(held.get(&number).is_some_and(is_free), "{number}");
        }
        data.write_out().unwrap();
        assert_eq!(data.blocks_written(), 3);
    }

    /// Who wants all to be written waits for what another thread is writing, and does not write it
    /// again.
    #[test]
    fn a_block_is_written_by_one_at_a_time() {
        let (device, data) = meddling();
        assert!(data.hold(2, 0, &[1; BLOCK]));
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
        assert!(is_out.load(Ordering::SeqCst) && block(&data, 2).is_none());
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
            assert!(data.hold(piece.start.0, 0, &[1; BLOCK]));
        }
        let theirs = data.clone();
        *device.meddle.lock() = Some(Box::new(move || {
            std::thread::scope(|scope| {
                scope.spawn(|| theirs.write_behind(pieces[1]));
            });
            assert!(block(&theirs, 40).is_some());
        }));
        data.write_behind(pieces[0]);
        assert!(block(&data, 2).is_none() && block(&data, 40).is_none());
        assert_eq!(data.blocks_written(), 2);
    }

    /// What finds no room to wait stays held, and is written out with all the rest.
    #[test]
    fn no_more_pieces_wait_than_have_room() {
        let (device, data) = meddling();
        let piece = |start| BlockRun {
            start: BlockNo(start),
            length: 1,
        };
        let later: Vec<u64> = (0..PIECES_WAITING_MAX as u64 + 2).map(|i| 10 + i).collect();
        for start in std::iter::once(2).chain(later.iter().copied()) {
            assert!(data.hold(start, 0, &[1; BLOCK]));
        }
        let (theirs, starts) = (data.clone(), later.clone());
        *device.meddle.lock() = Some(Box::new(move || {
            starts
                .into_iter()
                .for_each(|start| theirs.write_behind(piece(start)));
        }));
        data.write_behind(piece(2));
        let held = later.iter().filter(|start| block(&data, **start).is_some());
        assert_eq!(held.count(), 2);
        data.write_out().unwrap();
        assert_eq!(data.blocks_written(), later.len() as u64 + 1);
    }

    #[test]
    fn a_block_is_not_given_up_while_it_is_being_written() {
        let (device, data) = meddling();
        assert!(data.hold(2, 0, &[1; BLOCK]));
        let is_forgotten = Arc::new(AtomicBool::new(false));
        let (theirs, noted) = (data.clone(), is_forgotten.clone());
        let (hand, taken) = std::sync::mpsc::channel();
        *device.meddle.lock() = Some(Box::new(move || {
            let flag = noted.clone();
            let thread = std::thread::spawn(move || {
                theirs.forget(2, 1);
                flag.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!noted.load(Ordering::SeqCst));
            hand.send(thread).unwrap();
        }));
        data.write_out().unwrap();
        taken.recv().unwrap().join().unwrap();
        assert!(is_forgotten.load(Ordering::SeqCst) && block(&data, 2).is_none());
    }
}
