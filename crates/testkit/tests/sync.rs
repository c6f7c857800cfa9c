//! What a sync costs, and whom it tells of data that could not be written.

use std::sync::Arc;

use finefs_block::sim::{Fault, FaultDevice, FaultOn, ImageDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{Caller, Error, Namespace, OpenAccess, Options};
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
    ns.sync_file(file.ino, false).unwrap();
    let after = device.seen();
    assert!(after > before);
    for ino in [file.ino, other.ino, ns.root()] {
        ns.sync_file(ino, false).unwrap();
        ns.sync_file(ino, true).unwrap();
    }
    // Others' changes are not this file's.
    ns.write(other.ino, 0, &[2; 3000]).unwrap();
    ns.sync_file(file.ino, false).unwrap();
    assert_eq!(device.seen(), after);
    // An overwrite in place is a change.
    ns.write(file.ino, 0, &[3; 10]).unwrap();
    ns.sync_file(file.ino, true).unwrap();
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
    device.arm(0);
    assert!(matches!(ns.write(file.ino, 0, b"lost"), Err(Error::Io(_))));
    other.sync().unwrap();
    assert!(matches!(first.sync(), Err(Error::Io(_))));
    first.sync().unwrap();
    assert!(matches!(second.sync(), Err(Error::Io(_))));
    second.sync().unwrap();
    // Somebody knows already.
    open(file.ino).sync().unwrap();
    ns.sync_file(file.ino, false).unwrap();
    // Who syncs everything is told once as well.
    assert!(matches!(ns.sync(), Err(Error::Io(_))));
    ns.sync().unwrap();
    drop((first, second, other));
    ns.shut_down().unwrap();
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
    ns.sync_file(file.ino, false).unwrap();
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
