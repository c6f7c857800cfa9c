//! What a sync promises, under shuttle: threads overwrite a file, let it grow, sync it, commit and
//! write back over a disk with a volatile cache ([`disk`]).
//!
//! `cargo test -p finefs-ext --features shuttle --test shuttle_syncs`; `FINEFS_SCHEDULES=n` tries n
//! per test.
//!
//! A crash that keeps nothing but what is durable is recovered after each sync, and one that keeps
//! the journal, too, at each commit block. Then
//! 1. each byte is there that had been written when a sync began that has returned, whatever made
//!    it durable: so it was on the disk before a flush began that covers it;
//! 2. no byte is there of what was in the file's blocks before they were the file's: so data was
//!    durable before a commit that refers to it.
//!
//! Changes of the product that they find are in `teeth.toml`.

#![cfg(feature = "shuttle")]

#[path = "syncs/disk.rs"]
mod disk;

use std::collections::BTreeSet;
use std::ops::Range;
use std::process::Command;
use std::sync::Arc;

use disk::{BLOCK, Base, Crashed, Disk};
use finefs_block::BlockDevice;
use finefs_ext::{ExtOptions, ExtStore};
use finefs_locks::primitive::thread;
use finefs_locks::{LockClass, Mutex};
use finefs_namespace::{
    BlockNo, BlockRun, Caller, ExtentState, Ino, Namespace, Options, Store, SyncScope, Timestamp,
};
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

/// Each has a slot of its own in each of these blocks, and writes ever larger numbers there.
const WRITERS: usize = 3;
const SLOT_BYTES: usize = 300;
const SHARED_BLOCKS: [usize; 5] = [0, 1, 2, BLOCKS_AT_FIRST, BLOCKS_AT_FIRST + 1];

/// These are one slot each, all of the first writer: so many that to write them goes past the
/// cache.
const LONG: Range<usize> = 3..BLOCKS_AT_FIRST;
const LONG_SLOT: usize = SHARED_BLOCKS.len() * WRITERS;
const SLOTS: usize = LONG_SLOT + LONG.end - LONG.start;

/// The file has so many blocks at first, all of ones.
const BLOCKS_AT_FIRST: usize = 3 + 65;

/// In all blocks that are not in use.
const STALE: u8 = 0xee;

/// What was written and synced.
static BOARD: LockClass = LockClass::new("test.board", 97);

/// By slot, the number that was written there last.
type Slots = Vec<u8>;

struct Board {
    /// Also where the write has not returned.
    begun: Slots,
    done: Slots,
    /// What no crash may lose.
    promised: Slots,
    crashes: Vec<Crash>,
}

/// A crash that is looked into at the end.
struct Crash {
    when: &'static str,
    disk: Crashed,
    at_least: Slots,
    at_most: Slots,
}

struct World {
    disk: Arc<Disk>,
    store: Arc<ExtStore>,
    namespace: Namespace,
    board: Arc<Mutex<Board>>,
    file: Ino,
}

fn run_tool(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// An image with the file `f`.
fn base() -> Base {
    let directory = tempfile::tempdir().unwrap();
    let [image, root] = ["image", "root"].map(|name| directory.path().join(name));
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("f"), vec![1; BLOCKS_AT_FIRST * BLOCK]).unwrap();
    std::fs::write(&image, vec![STALE; 4 << 20]).unwrap();
    run_tool(
        Command::new("mke2fs")
            .args(["-q", "-F", "-t", "ext4", "-b", "1024", "-N", "16", "-d"])
            .arg(&root)
            .args(["-J", "size=1", "-O", "^resize_inode,^orphan_file"])
            .args(["-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"])
            .arg(&image),
    );
    let mut of_journal = Command::new("debugfs");
    let of_journal = run_tool(of_journal.args(["-R", "blocks <8>"]).arg(&image));
    let blocks = of_journal.split_whitespace();
    let journal: BTreeSet<u64> = blocks.map(|block| block.parse().unwrap()).collect();
    assert!(journal.len() >= 1024, "{of_journal}");
    let bytes = std::fs::read(&image).unwrap();
    Base { bytes, journal }
}

fn opened(device: Arc<dyn BlockDevice>, is_read_only: bool) -> ExtStore {
    let options = ExtOptions {
        is_read_only,
        data_cache_bytes: 64 << 10,
        ..ExtOptions::default()
    };
    ExtStore::open(device, &options).unwrap()
}

impl World {
    fn new(base: &Arc<Base>) -> World {
        let slots = || {
            let at_first = |slot| u8::from(bytes_of(slot).end <= BLOCKS_AT_FIRST * BLOCK);
            (0..SLOTS).map(at_first).collect::<Slots>()
        };
        let board = Board {
            begun: slots(),
            done: slots(),
            promised: slots(),
            crashes: Vec::new(),
        };
        let board = Arc::new(Mutex::new(&BOARD, board));
        let at_commit = {
            let board = Arc::clone(&board);
            move |disk: &Disk| look(&board, "at a commit", || disk.crashed_with_journal())
        };
        let disk = Arc::new(Disk::new(Arc::clone(base), at_commit));
        let store = Arc::new(opened(disk.clone(), false));
        let mut random = shuttle::rand::thread_rng();
        let (has_one_time, is_short_of_memory) = (random.gen_bool(0.7), random.gen_bool(0.5));
        let options = Options {
            // Without times that change, an overwrite needs no commit.
            fixed_time: has_one_time.then(|| Timestamp::new(1, 0)),
            // Whatever may be evicted is, all the time.
            cache_bytes: if is_short_of_memory { 0 } else { u64::MAX },
            ..Options::default()
        };
        let namespace = Namespace::without_thread(store.clone(), options).unwrap();
        let found = namespace.lookup(&Caller::root(), namespace.root(), b"f");
        World {
            file: found.unwrap().ino,
            disk,
            store,
            namespace,
            board,
        }
    }

    /// Writes to slots that lie one behind the other.
    fn write(&self, slots: Range<usize>) {
        let number = {
            let begun = &mut self.board.lock().begun[slots.clone()];
            let number = begun.iter().max().unwrap() + 1;
            begun.fill(number);
            number
        };
        let bytes = bytes_of(slots.start).start..bytes_of(slots.end - 1).end;
        let (place, data) = (bytes.start as u64, vec![number; bytes.len()]);
        self.namespace.write(self.file, place, &data).unwrap();
        self.board.lock().done[slots].fill(number);
    }

    /// Writes to a slot of a shared block.
    fn write_short(&self, writer: usize, block: usize) {
        let slot = block * WRITERS + writer;
        self.write(slot..slot + 1);
    }

    /// By chance, of the blocks that are the first writer's, one, or all of them past the cache.
    fn write_long(&self) {
        match shuttle::rand::thread_rng().gen_bool(0.5) {
            true => self.write(LONG_SLOT + 1..LONG_SLOT + 2),
            false => self.write(LONG_SLOT..SLOTS),
        }
    }

    /// Runs a sync, after which what was written before is promised.
    fn sync(&self, when: &'static str, sync: impl FnOnce(&World)) {
        let done = self.board.lock().done.clone();
        sync(self);
        for (promised, done) in self.board.lock().promised.iter_mut().zip(done) {
            *promised = done.max(*promised);
        }
        look(&self.board, when, || self.disk.crashed());
    }

    fn sync_file(&self, scope: SyncScope) {
        self.sync("after fsync", |it| {
            it.namespace.sync_file(it.file, scope).unwrap();
        });
    }

    fn sync_all(&self) {
        self.sync("after sync", |it| it.namespace.sync().unwrap());
    }

    /// Lets all data go to the disk, and promises nothing.
    fn write_back(&self) {
        if shuttle::rand::thread_rng().gen_bool(0.5) {
            return self.namespace.write_back_data().unwrap();
        }
        self.store.write_behind(BlockRun {
            start: BlockNo(0),
            length: self.disk.len_bytes() / BLOCK as u64,
        });
    }

    fn do_something(&self, writer: usize) {
        let mut random = shuttle::rand::thread_rng();
        match random.gen_range(0..10) {
            0..4 => self.write_short(writer, random.gen_range(0..SHARED_BLOCKS.len())),
            4 if writer == 0 => self.write_long(),
            4..7 => self.sync_file(SyncScope::Data),
            7 => self.sync_file(SyncScope::All),
            8 => self.sync_all(),
            _ => self.write_back(),
        }
    }
}

fn bytes_of(slot: usize) -> Range<usize> {
    if let Some(block) = slot.checked_sub(LONG_SLOT) {
        let start = (LONG.start + block) * BLOCK;
        return start..start + BLOCK;
    }
    let start = SHARED_BLOCKS[slot / WRITERS] * BLOCK + slot % WRITERS * SLOT_BYTES;
    start..start + SLOT_BYTES
}

/// Notes a crash. What is promised by now is in it.
fn look(board: &Mutex<Board>, when: &'static str, crash: impl FnOnce() -> Crashed) {
    let at_least = board.lock().promised.clone();
    let disk = crash();
    let mut board = board.lock();
    let at_most = board.begun.clone();
    board.crashes.push(Crash {
        when,
        disk,
        at_least,
        at_most,
    });
}

impl Crash {
    /// Recovers what is left, and looks into the file.
    fn check(self, file: Ino) {
        let store = opened(Arc::new(self.disk), true);
        let attributes = store.load_inode(file).unwrap().attributes;
        let mut bytes = vec![0; attributes.size_bytes as usize];
        for extent in store.load_extents(file).unwrap() {
            assert!(extent.state == ExtentState::Written);
            let from = extent.logical.0 as usize * BLOCK;
            let to = bytes.len().min(from + extent.length as usize * BLOCK);
            if from < to {
                let part = &mut bytes[from..to];
                store.read(extent.physical, 0, part).unwrap();
            }
        }
        let when = self.when;
        let stale = bytes.iter().position(|byte| *byte == STALE);
        assert_eq!(stale, None, "{when}: what was there before");
        bytes.resize(SHARED_BLOCKS[4] * BLOCK + BLOCK, 0);
        for (slot, (at_least, at_most)) in self.at_least.iter().zip(&self.at_most).enumerate() {
            let bytes = &bytes[bytes_of(slot)];
            let found = bytes[0];
            assert!(
                (at_least..=at_most).contains(&&found),
                "{when}: {found} in slot {slot}, not {at_least} to {at_most}"
            );
            let is_whole = bytes.iter().all(|byte| *byte == found);
            assert!(is_whole, "{when}: slot {slot}");
        }
    }
}

/// Runs the tasks under so many schedules, and looks into all crashes.
fn check(schedules: usize, tasks: fn() -> Vec<fn(&World)>) {
    let schedules =
        std::env::var("FINEFS_SCHEDULES").map_or(schedules, |text| text.parse().unwrap());
    let base = Arc::new(base());
    let run = Arc::new(move || {
        let world = Arc::new(World::new(&base));
        let handles: Vec<_> = tasks()
            .into_iter()
            .map(|task| {
                let world = Arc::clone(&world);
                thread::spawn(move || task(&world))
            })
            .collect();
        handles.into_iter().for_each(|task| task.join().unwrap());
        world.sync("at the end", |it| it.namespace.shut_down().unwrap());
        let crashes = std::mem::take(&mut world.board.lock().crashes);
        for crash in crashes {
            crash.check(world.file);
        }
    });
    let again = Arc::clone(&run);
    on_a_thread_that_stays(move || {
        Runner::new(RandomScheduler::new(schedules), config()).run(move || run());
        Runner::new(PctScheduler::new(3, schedules / 2 + 1), config()).run(move || again());
    });
}

/// The stacks of shuttle's tasks are small by default, for debug builds too small.
fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    config
}

/// A thread that ends destroys what was retired, and that asks shuttle, outside of its tests, for
/// locks.
fn on_a_thread_that_stays(run: impl FnOnce() + Send + 'static) {
    let (ends, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        ends.send(outcome).unwrap();
        loop {
            std::thread::park();
        }
    });
    if let Err(panic) = end.recv().unwrap() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn of_whatever_was_written() {
    fn some_steps(world: &World, writer: usize) {
        (0..5).for_each(|_| world.do_something(writer));
    }
    check(400, || {
        vec![
            |world| some_steps(world, 0),
            |world| some_steps(world, 1),
            |world| some_steps(world, 2),
        ]
    });
}

/// Two threads overwrite parts of one block.
#[test]
fn of_overwritten_data() {
    fn write_and_sync(world: &World, writer: usize) {
        for _ in 0..2 {
            world.write_short(writer, 0);
            world.sync_file(SyncScope::Data);
        }
    }
    check(300, || {
        vec![
            |world| write_and_sync(world, 0),
            |world| write_and_sync(world, 1),
            |world| match shuttle::rand::thread_rng().gen_bool(0.5) {
                true => world.sync_all(),
                false => world.write_back(),
            },
        ]
    });
}

/// What goes past the cache, and over what is dirty in it.
#[test]
fn of_long_writes() {
    check(200, || {
        vec![
            |world| {
                (0..3).for_each(|_| world.write_long());
                world.sync_file(SyncScope::Data);
            },
            |world| {
                world.write_back();
                world.sync_file(SyncScope::Data);
            },
            |world| world.sync_all(),
        ]
    });
}

/// The file grows while commits refer to it.
#[test]
fn of_new_blocks() {
    check(200, || {
        vec![
            |world| {
                world.write_short(0, 3);
                world.write_back();
            },
            |world| {
                world.write_short(1, 4);
                world.sync_file(SyncScope::Data);
            },
            |world| (0..2).for_each(|_| world.sync_all()),
        ]
    });
}
