//! Changes for which the store reserves nothing.

use std::sync::Arc;

use finefs_namespace::{
    AllocateMode, Caller, DataTimes, Error, Ino, Namespace, Options, Result, SetAttributes,
};
use finefs_testkit::CheckedStore;

fn set_size(namespace: &Namespace, ino: Ino, size_bytes: u64) -> Result<()> {
    let change = SetAttributes {
        size_bytes: Some(size_bytes),
        ..SetAttributes::default()
    };
    let set = namespace.set_attributes(&Caller::root(), ino, &change);
    set.map(|_| ())
}

#[test]
fn a_file_that_may_not_change_keeps_its_bytes() {
    let store = Arc::new(CheckedStore::reloading(1 << 20));
    let namespace = Namespace::without_thread(store.clone(), Options::default()).unwrap();
    let ns = &namespace;
    let made = ns.create_file(&Caller::root(), ns.root(), b"file", 0o644);
    let ino = made.unwrap().ino;
    let bytes: Vec<u8> = (0..10_000_u32).map(|number| number as u8 | 1).collect();
    ns.write(ino, 0, &bytes).unwrap();
    ns.sync().unwrap();

    let error = Error::corrupt("a bitmap");
    store.refuse_reservations(error.clone());
    let allocate = |mode| ns.allocate(ino, mode, 1000, 20_000);
    let refused = [
        set_size(ns, ino, 5000),
        set_size(ns, ino, 20_000),
        ns.write(ino, 19_000, b"more").map(|_| ()),
        ns.append(ino, &[1; 9000]).map(|_| ()),
        allocate(AllocateMode::Extend),
        allocate(AllocateMode::PunchHole),
        allocate(AllocateMode::ZeroRange),
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        assert_eq!(refused, Err(error.clone()), "call {number}");
    }
    let mut read = vec![0; 30_000];
    let length = ns.read(ino, 0, &mut read).unwrap();
    assert_eq!(&read[..length], bytes);
}

/// What needs no space is not lost with what finds none.
#[test]
fn pages_over_blocks_are_written_where_others_are_beyond_the_quota() {
    let store = Arc::new(CheckedStore::reloading(1 << 20));
    let namespace = Namespace::without_thread(store.clone(), Options::default()).unwrap();
    let ns = &namespace;
    let made = ns.create_file(&Caller::root(), ns.root(), b"file", 0o644);
    let ino = made.unwrap().ino;
    ns.write(ino, 0, &[1; 8192]).unwrap();
    store.refuse_charges(Error::QuotaExceeded);
    let stored = ns.write_back(ino, 0, &[2; 12_288], DataTimes::Set);
    assert_eq!(stored, Err(Error::QuotaExceeded));
    let mut read = vec![0; 12_288];
    let length = ns.read(ino, 0, &mut read).unwrap();
    assert_eq!(&read[..length], [2; 8192]);
}
