//! Giving back the storage below free blocks.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use crate::image::make;
use finefs_block::{BlockDevice, MemoryDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{BlockRun, Ino, Store};

/// What happens while storage is given back.
type During = Box<dyn Fn() + Send + Sync>;

/// A disk that takes note of what is given back.
struct Disk {
    memory: MemoryDevice,
    discarded: Mutex<Vec<(u64, u64)>>,
    during: OnceLock<During>,
}

impl BlockDevice for Disk {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset_bytes, buffer)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        self.memory.write_at(offset_bytes, data)
    }

    fn discard_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<bool> {
        let mut discarded = self.discarded.lock().unwrap();
        discarded.push((offset_bytes, length_bytes));
        self.during.get().inspect(|during| during());
        Ok(true)
    }

    fn flush(&self) -> io::Result<()> {
        self.memory.flush()
    }

    fn describe(&self) -> String {
        "disk".to_owned()
    }
}

fn opened(arguments: &[&str]) -> (Arc<Disk>, Arc<ExtStore>) {
    let directory = tempfile::tempdir().unwrap();
    let path = make(directory.path(), "100M", arguments);
    let disk = Arc::new(Disk {
        memory: MemoryDevice::from_bytes(&std::fs::read(&path).unwrap()),
        discarded: Mutex::default(),
        during: OnceLock::new(),
    });
    let store = ExtStore::open(disk.clone(), &ExtOptions::default()).unwrap();
    (disk, Arc::new(store))
}

/// All groups; the number of blocks.
fn trim_all(store: &ExtStore, run_min: u64) -> u64 {
    let (mut at, mut trimmed) = (0, 0);
    while let Some((next, blocks)) = store.trim(at..u64::MAX, run_min).unwrap() {
        (at, trimmed) = (next, trimmed + blocks);
    }
    trimmed
}

#[test]
fn others_find_space_meanwhile() {
    let (disk, store) = opened(&["-t", "ext4", "-b", "4096", "-m", "0"]);
    let weak = Arc::downgrade(&store);
    let during = move || {
        let store = weak.upgrade().unwrap();
        let run = store.allocate_blocks(Ino(12), None, 1000).unwrap();
        assert_eq!(run.length, 1000);
        store.release_blocks(run);
    };
    assert!(disk.during.set(Box::new(during)).is_ok());
    let free = store.statfs().blocks_free;
    let trimmed = trim_all(&store, 1);
    assert!(disk.discarded.lock().unwrap().len() > 10);
    // The pool of the allocator may be missing.
    assert!(
        trimmed <= free && trimmed > free / 10 * 9,
        "{trimmed} {free}"
    );
    assert_eq!(store.statfs().blocks_free, free);
    store.close().unwrap();
}

/// What is told and what is given back is all of each run that is long enough, whatever its parts.
#[test]
fn the_last_part_of_a_run_may_be_short() {
    for arguments in [
        &["-t", "ext4", "-b", "4096"][..],
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "65536"],
    ] {
        let (disk, store) = opened(arguments);
        let [fence, hole, island] =
            [16, 160, 16].map(|count| store.allocate_blocks(Ino(12), None, count).unwrap());
        let end = |run: BlockRun| run.start.0 + run.length;
        assert_eq!((end(fence), end(hole)), (hole.start.0, island.start.0));
        store.release_blocks(hole);
        // Longer than a part.
        let long = trim_all(&store, 2100);
        let parts = std::mem::take(&mut *disk.discarded.lock().unwrap());
        let blocks = |parts: &[(u64, u64)]| parts.iter().map(|part| part.1 / 4096).sum::<u64>();
        assert_eq!(blocks(&parts), long);
        assert!(parts.iter().all(|part| part.1 <= 8 << 20), "{parts:?}");
        assert!(parts.iter().any(|part| part.1 < 8 << 20), "{parts:?}");
        let is_hole = |part: &(u64, u64)| part.0 / 4096 == hole.start.0;
        assert!(!parts.iter().any(is_hole), "{parts:?}");
        let all = trim_all(&store, 1);
        let parts = std::mem::take(&mut *disk.discarded.lock().unwrap());
        assert_eq!(blocks(&parts), all);
        assert!(parts.iter().any(is_hole), "{parts:?}");
        assert!((160..2100).contains(&(all - long)), "{all} {long}");
        store.release_blocks(fence);
        store.release_blocks(island);
        store.close().unwrap();
    }
}
