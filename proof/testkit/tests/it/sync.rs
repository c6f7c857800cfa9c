//! What a sync costs, and whom it tells of data that could not be written.

use std::sync::Arc;

use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{Caller, Error, Ino, Namespace, OpenAccess, Options, SyncScope};
use finefs_sim::{Fault, FaultDevice, FaultOn, ImageDevice, Recorded, RecordingDevice, Request};
use finefs_testkit::crash::base::{Base, profile};

fn opened(on: FaultOn, fault: Fault) -> (Arc<FaultDevice>, Arc<Namespace>) {
    let base = Base::new(profile("ext4-1k").unwrap(), &[]).unwrap();
    let image = Arc::new(ImageDevice::new(base.image));
    let device = Arc::new(FaultDevice::new(image, on, u64::MAX, 1).failing(fault));
    let store = ExtStore::open(device.clone(), &ExtOptions::default()).unwrap();
    let ns = Namespace::without_thread(Arc::new(store), Options::default()).unwrap();
    (device, Arc::new(ns))
}

#[test]
fn syncing_what_did_not_change_costs_no_flush() {
    let (device, ns) = opened(FaultOn::Flush, Fault::Error);
    let caller = Caller::root();
    let file = ns.create_file(&caller, ns.root(), b"file", 0o644).unwrap();
    let other = ns.create_file(&caller, ns.root(), b"other", 0o644).unwrap();
    ns.write(file.ino, 0, &[1; 3000]).unwrap();
    let before = device.seen();
    ns.sync_file(file.ino, SyncScope::All).unwrap();
    let after = device.seen();
    assert!(after > before);
    for ino in [file.ino, other.ino, ns.root()] {
        ns.sync_file(ino, SyncScope::All).unwrap();
        ns.sync_file(ino, SyncScope::Data).unwrap();
    }
    // Others' changes are not this file's.
    ns.write(other.ino, 0, &[2; 3000]).unwrap();
    ns.sync_file(file.ino, SyncScope::All).unwrap();
    assert_eq!(device.seen(), after);
    // An overwrite in place is a change.
    ns.write(file.ino, 0, &[3; 10]).unwrap();
    ns.sync_file(file.ino, SyncScope::Data).unwrap();
    assert!(device.seen() > after);
}

#[test]
fn lost_data_is_told_once_to_everybody_who_has_the_file_open() {
    let (device, ns) = opened(FaultOn::Write, Fault::Error);
    let caller = Caller::root();
    let file = ns.create_file(&caller, ns.root(), b"file", 0o644).unwrap();
    let bystander = ns.create_file(&caller, ns.root(), b"other", 0o644).unwrap();
    let open = |ino| ns.open(&caller, ino, OpenAccess::ReadWrite).unwrap();
    let (first, second, other) = (open(file.ino), open(file.ino), open(bystander.ino));
    // What is too long for the cache goes to the device at once.
    ns.write(file.ino, 0, &[1; 100_000]).unwrap();
    ns.sync().unwrap();
    device.arm(0);
    let lost = ns.write(file.ino, 0, &[2; 70_000]);
    assert!(matches!(lost, Err(Error::Io(_))));
    other.sync().unwrap();
    assert!(matches!(first.sync(), Err(Error::Io(_))));
    first.sync().unwrap();
    assert!(matches!(second.sync(), Err(Error::Io(_))));
    second.sync().unwrap();
    // Somebody knows already.
    open(file.ino).sync().unwrap();
    ns.sync_file(file.ino, SyncScope::All).unwrap();
    // Who syncs everything is told once as well.
    assert!(matches!(ns.sync(), Err(Error::Io(_))));
    ns.sync().unwrap();
    drop((first, second, other));
    ns.shut_down().unwrap();
}

#[test]
fn data_that_a_commit_cannot_write_ends_all_commits() {
    let (device, ns) = opened(FaultOn::Write, Fault::Error);
    let caller = Caller::root();
    let file = ns.create_file(&caller, ns.root(), b"file", 0o644).unwrap();
    ns.sync().unwrap();
    let open = ns.open(&caller, file.ino, OpenAccess::ReadWrite).unwrap();
    device.arm(0);
    ns.write(file.ino, 0, &[1; 3000]).unwrap();
    assert_eq!(device.seen(), 0);
    assert!(matches!(open.sync(), Err(Error::Io(_))));
    let (place, data) = device.first_write().unwrap();
    assert!(data[..3000].iter().all(|byte| *byte == 1), "at {place}");
    // Only that one failed; but what the log said of it is lost.
    assert!(matches!(open.sync(), Err(Error::Io(_))));
    assert!(matches!(ns.sync(), Err(Error::Io(_))));
    assert_eq!(ns.write(file.ino, 0, &[2]), Err(Error::ReadOnly));
    let mut read = [0; 3000];
    ns.read(file.ino, 0, &mut read).unwrap();
    assert_eq!(read, [1; 3000]);
    drop(open);
    assert!(ns.shut_down().is_err());
}

/// As with new data, for what is written over what was durable before.
#[test]
fn an_overwrite_that_a_commit_cannot_write_ends_all_commits() {
    let (device, ns) = opened(FaultOn::Write, Fault::Error);
    let caller = Caller::root();
    let file = ns.create_file(&caller, ns.root(), b"file", 0o644).unwrap();
    ns.write(file.ino, 0, &[1; 3000]).unwrap();
    ns.sync().unwrap();
    let open = ns.open(&caller, file.ino, OpenAccess::ReadWrite).unwrap();
    device.arm(0);
    ns.write(file.ino, 1000, &[2; 1000]).unwrap();
    assert_eq!(device.seen(), 0);
    assert!(matches!(open.sync(), Err(Error::Io(_))));
    assert!(matches!(open.sync(), Err(Error::Io(_))));
    assert_eq!(ns.write(file.ino, 0, &[3]), Err(Error::ReadOnly));
    let mut read = [0; 3000];
    ns.read(file.ino, 0, &mut read).unwrap();
    assert_eq!(
        (read[999], read[1000], read[1999], read[2000]),
        (1, 2, 2, 1)
    );
    drop(open);
    assert!(ns.shut_down().is_err());
}

#[test]
fn data_waits_in_memory_for_storage_that_comes() {
    let (device, ns) = opened(FaultOn::Write, Fault::Full);
    let caller = Caller::root();
    let file = ns.create_file(&caller, ns.root(), b"file", 0o644).unwrap();
    ns.sync().unwrap();
    for data in [[1; 3000], [2; 3000]] {
        ns.write(file.ino, 0, &data).unwrap();
        device.arm(0);
        assert_eq!(ns.sync(), Err(Error::NoSpace));
        let mut read = [0; 3000];
        ns.read(file.ino, 0, &mut read).unwrap();
        assert_eq!(read, data);
        ns.sync().unwrap();
    }
    ns.shut_down().unwrap();
}

/// What a postponed commit frees counts as free meanwhile, and not twice when a later one has made
/// it durable.
#[test]
fn space_that_a_postponed_commit_frees_is_counted_once() {
    let (device, ns) = opened(FaultOn::Write, Fault::Full);
    let caller = Caller::root();
    let free = || (ns.statfs().blocks_free, ns.statfs().inodes_free);
    ns.sync().unwrap();
    let before = free();
    let file = ns.create_file(&caller, ns.root(), b"file", 0o644).unwrap();
    ns.write(file.ino, 0, &[1; 30_000]).unwrap();
    ns.sync().unwrap();
    ns.remove_file(&caller, ns.root(), b"file").unwrap();
    ns.forget(file.ino, 1);
    assert_eq!(free(), before);
    // Data of another file, for which there is no storage at first.
    let other = ns.create_file(&caller, ns.root(), b"other", 0o644).unwrap();
    ns.write(other.ino, 0, &[2; 1000]).unwrap();
    device.arm(0);
    assert_eq!(ns.sync(), Err(Error::NoSpace));
    assert_eq!(free(), (before.0 - 1, before.1 - 1));
    ns.sync().unwrap();
    assert_eq!(free(), (before.0 - 1, before.1 - 1));
    ns.remove_file(&caller, ns.root(), b"other").unwrap();
    ns.forget(other.ino, 1);
    ns.sync().unwrap();
    assert_eq!(free(), before);
    ns.shut_down().unwrap();
}

/// Whether anything that was written to the device has this byte again and again.
fn has_run_of(recorded: &Recorded, byte: u8) -> bool {
    let has_run = |data: &[u8]| data.windows(100).any(|part| part == [byte; 100]);
    recorded.requests.iter().any(|request| match request {
        Request::Write { data, .. } => has_run(data),
        _ => false,
    })
}

#[test]
fn data_of_what_comes_and_goes_is_never_written() {
    let base = Base::new(profile("ext4-1k").unwrap(), &[]).unwrap();
    let device = Arc::new(RecordingDevice::over(base.image));
    let store = ExtStore::open(device.clone(), &ExtOptions::default()).unwrap();
    let ns = Namespace::without_thread(Arc::new(store), Options::default()).unwrap();
    let caller = Caller::root();
    let make = |name: &[u8], byte| {
        let file = ns.create_file(&caller, ns.root(), name, 0o644).unwrap();
        ns.write(file.ino, 100, &[byte; 5000]).unwrap();
        let mut read = [9; 5101];
        assert_eq!(ns.read(file.ino, 0, &mut read).unwrap(), 5100);
        assert_eq!(
            (&read[..100], read[100], read[5099]),
            (&[0; 100][..], byte, byte)
        );
        ns.forget(file.ino, 1);
        file.ino
    };
    make(b"gone", 0xa1);
    let stays = make(b"stays", 0xa2);
    ns.write(stays, 2000, &[0xa3; 500]).unwrap();
    ns.remove_file(&caller, ns.root(), b"gone").unwrap();
    ns.sync().unwrap();
    // A file that some commit has is there with all that it says, even if it goes before the data
    // went out.
    make(b"synced", 0xa4);
    ns.sync().unwrap();
    ns.remove_file(&caller, ns.root(), b"synced").unwrap();
    ns.shut_down().unwrap();
    let recorded = device.take_recorded();
    let found = [0xa1, 0xa2, 0xa3, 0xa4].map(|byte| has_run_of(&recorded, byte));
    assert_eq!(found, [false, true, true, true]);
}

#[test]
fn a_frozen_store_is_not_written() {
    let (device, ns) = opened(FaultOn::Write, Fault::Error);
    let caller = Caller::root();
    let file = ns.create_file(&caller, ns.root(), b"file", 0o644).unwrap();
    ns.write(file.ino, 0, &[1; 3000]).unwrap();
    ns.freeze().unwrap();
    assert_eq!(ns.freeze(), Err(Error::Busy));
    let writes = device.seen();
    let waiting = std::thread::spawn({
        let ns = ns.clone();
        move || ns.write(file.ino, 0, &[2; 3000])
    });
    let mut read = [0; 3000];
    ns.read(file.ino, 0, &mut read).unwrap();
    assert_eq!(read, [1; 3000]);
    ns.sync().unwrap();
    ns.sync_file(file.ino, SyncScope::All).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!waiting.is_finished());
    assert_eq!(device.seen(), writes);
    ns.thaw().unwrap();
    assert_eq!(ns.thaw(), Err(Error::Invalid));
    waiting.join().unwrap().unwrap();
    ns.freeze().unwrap();
    // The end of a frozen file system is that of any other.
    ns.shut_down().unwrap();
}

/// Bytes of a record; 1 MiB is a whole number of them.
const RECORD: usize = 4096;
const PIECE: usize = 1 << 20;

/// Appends records of the byte that is their number, below 251, until the file has so many bytes.
fn append_until(ns: &Namespace, ino: Ino, size_bytes: usize) {
    let size = ns.attributes(ino).unwrap().size_bytes as usize;
    for number in size / RECORD..size_bytes / RECORD {
        ns.append(ino, &[(number % 251) as u8; RECORD]).unwrap();
    }
}

fn assert_records(ns: &Namespace, ino: Ino, size_bytes: usize) {
    let mut read = vec![0xff; size_bytes + 1];
    assert_eq!(ns.read(ino, 0, &mut read), Ok(size_bytes));
    let mut records = read[..size_bytes].chunks(RECORD).enumerate();
    assert!(records.all(|(number, record)| record == [(number % 251) as u8; RECORD]));
}

#[test]
fn a_large_file_goes_out_in_pieces() {
    let base = Base::new(profile("ext4-4k").unwrap(), &[]).unwrap();
    let device = Arc::new(RecordingDevice::over(base.image));
    let store = ExtStore::open(device.clone(), &ExtOptions::default()).unwrap();
    let ns = Namespace::without_thread(Arc::new(store), Options::default()).unwrap();
    let file = ns.create_file(&Caller::root(), ns.root(), b"file", 0o644);
    let ino = file.unwrap().ino;
    let written = || -> Vec<usize> {
        let requests = device.take_recorded().requests.into_iter();
        let lengths = requests.map(|request| match request {
            Request::Write { data, .. } => data.len(),
            other => panic!("{other:?}"),
        });
        lengths.collect()
    };
    device.take_recorded();
    append_until(&ns, ino, PIECE - RECORD);
    assert_eq!(written(), [0; 0]);
    append_until(&ns, ino, PIECE);
    assert_eq!(written(), [PIECE]);
    // The rest waits.
    append_until(&ns, ino, PIECE + 5 * RECORD);
    assert_eq!(written(), [0; 0]);
    // What is on the device is changed in memory, and goes out again with the piece.
    ns.write(ino, (PIECE - 30) as u64, &[7; 20]).unwrap();
    assert_eq!(written(), [0; 0]);
    ns.write(ino, (PIECE - 10) as u64, &[7; 20]).unwrap();
    assert_eq!(written(), [RECORD]);
    ns.shut_down().unwrap();
}

#[test]
fn a_piece_that_cannot_be_written_waits_for_the_sync() {
    for fault in [Fault::Error, Fault::Short, Fault::Full] {
        let (device, ns) = opened(FaultOn::Write, fault);
        let caller = Caller::root();
        let file = ns.create_file(&caller, ns.root(), b"file", 0o644).unwrap();
        ns.sync().unwrap();
        let open = ns.open(&caller, file.ino, OpenAccess::ReadWrite).unwrap();
        device.arm(0);
        append_until(&ns, file.ino, PIECE);
        let (_, data) = device.first_write().unwrap();
        assert_eq!((device.seen(), data[0], data.len()), (1, 0, PIECE));
        assert_records(&ns, file.ino, PIECE);
        open.sync().unwrap();
        assert_records(&ns, file.ino, PIECE);
        // A device that goes on refusing is told of by the sync.
        append_until(&ns, file.ino, 2 * PIECE - RECORD);
        device.arm(0);
        append_until(&ns, file.ino, 2 * PIECE);
        assert_eq!(device.seen(), 1);
        device.arm(0);
        assert!(open.sync().is_err());
        assert_records(&ns, file.ino, 2 * PIECE);
    }
}
