//! File data in the store: what is in memory, what is on the device, and what a sync does.

use std::fs;
use std::sync::Arc;

use crate::image::make;
use finefs_block::{BlockDevice, MemoryDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{
    BlockNo, BlockRun, Caller, Error, Goal, Ino, LogicalBlock, Namespace, Options, Store, SyncScope,
};
use finefs_sim::{Fault, FaultDevice, FaultOn, RecordingDevice, Request};

const BLOCK: usize = 1024;

fn opened(fault: Fault) -> (Arc<MemoryDevice>, Arc<FaultDevice>, ExtStore) {
    let directory = tempfile::tempdir().unwrap();
    let path = make(directory.path(), "4M", &["-t", "ext4", "-b", "1024"]);
    let memory = Arc::new(MemoryDevice::from_bytes(&fs::read(&path).unwrap()));
    let device = FaultDevice::new(memory.clone(), FaultOn::Write, u64::MAX, 1).failing(fault);
    let device = Arc::new(device);
    let store = ExtStore::open(device.clone(), &ExtOptions::default()).unwrap();
    (memory, device, store)
}

fn allocate(store: &ExtStore, at: Option<BlockNo>, count: u64) -> BlockRun {
    let logical = LogicalBlock(0);
    let goal = at.map(|block| Goal { block, logical });
    let run = store.allocate_blocks(Ino(12), goal, count).unwrap();
    assert_eq!(run.length, count);
    run
}

fn sync_data(store: &ExtStore, run: BlockRun) -> Result<(), Error> {
    store.write_data(&[run])?;
    store.flush()
}

fn on_device(device: &MemoryDevice, run: BlockRun) -> Vec<u8> {
    let mut bytes = vec![0; run.length as usize * BLOCK];
    device
        .read_at(run.start.0 * BLOCK as u64, &mut bytes)
        .unwrap();
    bytes
}

#[test]
fn overwrites_wait_in_memory_until_they_are_synced() {
    let (memory, device, store) = opened(Fault::Error);
    let run = allocate(&store, None, 8);
    let others = allocate(&store, None, 1);
    device.arm(u64::MAX);
    store.write_blank(run.start, 0, &[1; 8 * BLOCK]).unwrap();
    store.write_blank(others.start, 0, &[9; BLOCK]).unwrap();
    assert_eq!(device.seen(), 0);
    sync_data(&store, run).unwrap();
    assert!(device.seen() == 1 && on_device(&memory, run) == [1; 8 * BLOCK]);
    // Whole blocks and parts of them, over what is in memory.
    store.write(run.start, 500, &[2; 3 * BLOCK]).unwrap();
    let mut read = vec![0; 8 * BLOCK];
    store.read(run.start, 0, &mut read).unwrap();
    let expected = [vec![1; 500], vec![2; 3 * BLOCK], vec![1; 5 * BLOCK - 500]].concat();
    assert_eq!(read, expected);
    assert_eq!(on_device(&memory, run), [1; 8 * BLOCK]);
    sync_data(&store, run).unwrap();
    assert_eq!(on_device(&memory, run), expected);
    assert_eq!(device.seen(), 2);
    assert_ne!(on_device(&memory, others), [9; BLOCK]);
    store.close().unwrap();
}

#[test]
fn an_overwrite_of_what_is_not_in_memory_reads_it() {
    let (memory, _, store) = opened(Fault::Error);
    let run = allocate(&store, None, 100);
    // Too long for the cache.
    store.write(run.start, 0, &[1; 100 * BLOCK]).unwrap();
    assert_eq!(on_device(&memory, run), [1; 100 * BLOCK]);
    store.write(BlockNo(run.start.0 + 3), 10, &[2; 5]).unwrap();
    let mut read = vec![0; 100 * BLOCK];
    store.read(run.start, 0, &mut read).unwrap();
    let place = 3 * BLOCK + 10;
    assert_eq!(read[place - 1..place + 6], [1, 2, 2, 2, 2, 2, 1]);
    assert_eq!(on_device(&memory, run), [1; 100 * BLOCK]);
    // Another write past the cache keeps what is dirty in it in step.
    store.write(run.start, 0, &[3; 100 * BLOCK]).unwrap();
    store.read(run.start, 0, &mut read).unwrap();
    assert_eq!(read, [3; 100 * BLOCK]);
    sync_data(&store, run).unwrap();
    assert_eq!(on_device(&memory, run), [3; 100 * BLOCK]);
    store.close().unwrap();
}

#[test]
fn what_a_sync_cannot_write_is_an_error_and_stays() {
    for (fault, is_full) in [(Fault::Error, false), (Fault::Full, true)] {
        let (memory, device, store) = opened(fault);
        let run = allocate(&store, None, 4);
        store.write_blank(run.start, 0, &[1; 4 * BLOCK]).unwrap();
        sync_data(&store, run).unwrap();
        store.write(run.start, 0, &[2; 4 * BLOCK]).unwrap();
        device.arm(0);
        match sync_data(&store, run) {
            Err(Error::NoSpace) if is_full => {}
            Err(Error::Io(_)) if !is_full => {}
            other => panic!("{other:?}"),
        }
        let mut read = [0; 4 * BLOCK];
        store.read(run.start, 0, &mut read).unwrap();
        assert_eq!(read, [2; 4 * BLOCK]);
        sync_data(&store, run).unwrap();
        assert_eq!(on_device(&memory, run), [2; 4 * BLOCK]);
        store.close().unwrap();
    }
}

/// Whatever the cache had of blocks for one owner, clean or dirty, the next does not see, nor is it
/// written over what that one has.
#[test]
fn freed_blocks_leave_the_cache() {
    let (memory, _, store) = opened(Fault::Error);
    for is_clean in [true, false] {
        let run = allocate(&store, None, 80);
        store.write_blank(run.start, 0, &[1; 60 * BLOCK]).unwrap();
        if is_clean {
            sync_data(&store, run).unwrap();
        }
        store.release_blocks(run);
        let again = allocate(&store, Some(run.start), 80);
        assert_eq!(again, run);
        // As metadata would be written.
        memory
            .write_at(run.start.0 * BLOCK as u64, &[5; 80 * BLOCK])
            .unwrap();
        let mut read = vec![0; 80 * BLOCK];
        store.read(run.start, 0, &mut read).unwrap();
        assert_eq!(read, [5; 80 * BLOCK]);
        sync_data(&store, run).unwrap();
        assert_eq!(on_device(&memory, run), [5; 80 * BLOCK]);
        // Zeros past the cache, over what is in it.
        store.write(run.start, 0, &[6; 10 * BLOCK]).unwrap();
        store.write_zeros(run).unwrap();
        store.read(run.start, 0, &mut read).unwrap();
        assert_eq!(read, [0; 80 * BLOCK]);
        sync_data(&store, run).unwrap();
        assert_eq!(on_device(&memory, run), [0; 80 * BLOCK]);
        store.release_blocks(run);
    }
    store.close().unwrap();
}

/// What went to the device since the last look: whether bytes of this value did, and how many
/// flushes.
fn sent(device: &RecordingDevice, value: u8) -> (bool, usize) {
    let requests = device.take_recorded().requests;
    let flushes = requests.iter().filter(|it| **it == Request::Flush).count();
    (has_run(&requests, value), flushes)
}

fn has_run(requests: &[Request], value: u8) -> bool {
    requests.iter().any(|request| match request {
        Request::Write { data, .. } => data.windows(500).any(|part| part == [value; 500]),
        _ => false,
    })
}

#[test]
fn a_sync_writes_what_was_overwritten_of_its_file_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = make(directory.path(), "4M", &["-t", "ext4", "-b", "1024"]);
    let device = Arc::new(RecordingDevice::new(fs::read(&path).unwrap()));
    let store = ExtStore::open(device.clone(), &ExtOptions::default()).unwrap();
    let ns = Namespace::without_thread(Arc::new(store), Options::default()).unwrap();
    let [one, other] = [&b"one"[..], b"other"].map(|name| {
        let made = ns.create_file(&Caller::root(), ns.root(), name, 0o644);
        let ino = made.unwrap().ino;
        ns.write(ino, 0, &[1; 3000]).unwrap();
        ino
    });
    ns.sync().unwrap();
    device.take_recorded();

    // A commit for another file, of which bytes were appended.
    ns.write(one, 0, &[0xa1; 1000]).unwrap();
    ns.append(other, &[0xa2; 1000]).unwrap();
    ns.sync_file(other, SyncScope::All).unwrap();
    assert!(!has_run(&device.recorded().requests, 0xa1));
    assert!(sent(&device, 0xa2).0);
    // It is read from memory, and goes out with its own sync, by one flush: it is committed.
    let mut read = [0; 1000];
    ns.read(one, 0, &mut read).unwrap();
    assert_eq!(read, [0xa1; 1000]);
    ns.sync_file(one, SyncScope::Data).unwrap();
    assert_eq!(sent(&device, 0xa1), (true, 1));
    ns.sync_file(one, SyncScope::Data).unwrap();
    assert_eq!(sent(&device, 0xa1), (false, 0));

    // Where its sync commits, the commit's flushes are enough.
    ns.append(one, &[0xa3; 1000]).unwrap();
    ns.sync_file(one, SyncScope::All).unwrap();
    let (_, by_commit) = sent(&device, 0xa3);
    ns.write(one, 0, &[0xa4; 1000]).unwrap();
    ns.append(one, &[0xa3; 1000]).unwrap();
    ns.sync_file(one, SyncScope::All).unwrap();
    assert_eq!(sent(&device, 0xa4), (true, by_commit));

    // A sync of everything has it all.
    ns.write(one, 0, &[0xa5; 1000]).unwrap();
    ns.append(other, &[0xa2; 1000]).unwrap();
    ns.sync_file(other, SyncScope::All).unwrap();
    assert!(!sent(&device, 0xa5).0);
    ns.sync().unwrap();
    assert!(sent(&device, 0xa5).0);
    ns.sync_file(one, SyncScope::Data).unwrap();
    assert!(!sent(&device, 0xa5).0);
    ns.shut_down().unwrap();
}
