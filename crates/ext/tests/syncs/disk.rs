//! A disk with a volatile cache, as far as its promises go: a write is durable after a flush that
//! began when the write had been answered, and has ended; nothing else is.
//!
//! Threads of shuttle are switched between the steps of each request, which now and then are far
//! apart: a write has its effect and is answered later, a flush takes what was answered and makes
//! it durable later.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use finefs_block::{BlockDevice, Write, bounds};
use finefs_locks::primitive::thread;
use finefs_locks::{LockClass, Mutex};
use shuttle::rand::Rng;

/// What a disk holds.
static DISK: LockClass = LockClass::new("test.disk", 96);

/// The size of a block. All writes are of whole ones.
pub const BLOCK: usize = 1024;

/// The magic number and type of a commit block of the journal.
const COMMIT_BLOCK: [u8; 8] = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2];

/// Blocks that were written, each with the number of the write.
type Blocks = BTreeMap<u64, (u64, Arc<[u8]>)>;

/// An image, and which of its blocks are the journal.
pub struct Base {
    pub bytes: Vec<u8>,
    pub journal: BTreeSet<u64>,
}

/// See the module's head.
pub struct Disk {
    base: Arc<Base>,
    held: Mutex<Held>,
    /// Called when a commit block may be on the disk, and is not durable.
    at_commit: Box<dyn Fn(&Disk) + Send + Sync>,
}

#[derive(Default)]
struct Held {
    writes: u64,
    /// What is read.
    current: Blocks,
    /// What the next flush makes durable.
    answered: Blocks,
    durable: Blocks,
}

/// Others go on meanwhile, now and then for as long as a commit takes.
fn pass_time() {
    let steps = match shuttle::rand::thread_rng().gen_range(0..10) {
        0 => 300,
        1..3 => 30,
        _ => 1,
    };
    (0..steps).for_each(|_| thread::yield_now());
}

/// Keeps the later writes.
fn merge(into: &mut Blocks, blocks: impl IntoIterator<Item = (u64, (u64, Arc<[u8]>))>) {
    for (block, (number, data)) in blocks {
        let held = into.entry(block).or_insert_with(|| (0, data.clone()));
        if held.0 <= number {
            *held = (number, data);
        }
    }
}

impl Disk {
    /// Holds an image. Calls `at_commit` as each commit block is written.
    pub fn new(base: Arc<Base>, at_commit: impl Fn(&Disk) + Send + Sync + 'static) -> Disk {
        Disk {
            base,
            held: Mutex::new(&DISK, Held::default()),
            at_commit: Box::new(at_commit),
        }
    }

    /// What a crash would leave that loses all that is not durable.
    pub fn crashed(&self) -> Crashed {
        Crashed {
            base: Arc::clone(&self.base),
            blocks: self.held.lock().durable.clone(),
        }
    }

    /// What a crash would leave that keeps all of the journal, too.
    pub fn crashed_with_journal(&self) -> Crashed {
        let held = self.held.lock();
        let in_journal = |(block, _): &(&u64, _)| self.base.journal.contains(block);
        let journal = held.current.iter().filter(in_journal);
        let mut blocks = held.durable.clone();
        merge(&mut blocks, journal.map(|(block, it)| (*block, it.clone())));
        Crashed {
            base: Arc::clone(&self.base),
            blocks,
        }
    }

    /// Answers several writes at once.
    fn write(&self, writes: &[Write<'_>], is_durable: bool) -> io::Result<()> {
        let mut written = Blocks::new();
        for write in writes {
            let data = write.parts.concat();
            bounds::check(self.len_bytes(), write.offset_bytes, data.len() as u64)?;
            assert!((write.offset_bytes as usize | data.len()).is_multiple_of(BLOCK));
            pass_time();
            let first = write.offset_bytes / BLOCK as u64;
            let held = &mut *self.held.lock();
            for (block, data) in (first..).zip(data.chunks(BLOCK)) {
                held.writes += 1;
                written.insert(block, (held.writes, data.into()));
            }
            merge(&mut held.current, written.clone());
        }
        let mut blocks = written.values();
        if blocks.any(|(_, data)| data.starts_with(&COMMIT_BLOCK)) {
            (self.at_commit)(self);
        }
        pass_time();
        let held = &mut *self.held.lock();
        match is_durable {
            true => merge(&mut held.durable, written),
            false => merge(&mut held.answered, written),
        }
        Ok(())
    }
}

fn read(base: &Base, blocks: &Blocks, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
    bounds::check(base.bytes.len() as u64, offset_bytes, buffer.len() as u64)?;
    let start = offset_bytes as usize;
    buffer.copy_from_slice(&base.bytes[start..start + buffer.len()]);
    let end = start + buffer.len();
    let touched = (start / BLOCK) as u64..end.div_ceil(BLOCK) as u64;
    for (block, (_, data)) in blocks.range(touched) {
        let place = *block as usize * BLOCK;
        let (from, to) = (start.max(place), end.min(place + BLOCK));
        buffer[from - start..to - start].copy_from_slice(&data[from - place..to - place]);
    }
    Ok(())
}

impl BlockDevice for Disk {
    fn len_bytes(&self) -> u64 {
        self.base.bytes.len() as u64
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        read(&self.base, &self.held.lock().current, offset_bytes, buffer)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        self.write(&[Write::new(offset_bytes, data)], false)
    }

    fn write_many(&self, writes: &[Write<'_>]) -> io::Result<()> {
        self.write(writes, false)
    }

    fn write_durably(&self, writes: &[Write<'_>]) -> io::Result<()> {
        self.write(writes, true)
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        self.write_at(offset_bytes, &vec![0; length_bytes as usize])
    }

    fn flush(&self) -> io::Result<()> {
        pass_time();
        // They stay: a flush that begins before this one has ended promises them, too.
        let covered = self.held.lock().answered.clone();
        pass_time();
        let held = &mut *self.held.lock();
        held.answered
            .retain(|block, (number, _)| covered.get(block).is_none_or(|it| it.0 != *number));
        merge(&mut held.durable, covered);
        Ok(())
    }

    fn describe(&self) -> String {
        "a disk with a cache".to_owned()
    }
}

/// What a crash leaves.
pub struct Crashed {
    base: Arc<Base>,
    blocks: Blocks,
}

impl BlockDevice for Crashed {
    fn len_bytes(&self) -> u64 {
        self.base.bytes.len() as u64
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        read(&self.base, &self.blocks, offset_bytes, buffer)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn describe(&self) -> String {
        "what a crash left".to_owned()
    }
}
