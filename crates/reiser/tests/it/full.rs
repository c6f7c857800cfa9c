//! File systems that are full.

use std::sync::Arc;

use crate::support::{made, reiserfsck};
use finefs_block::MemoryDevice;
use finefs_namespace::{Caller, Error, Namespace, Options, Store};
use finefs_reiser::{ReiserOptions, ReiserStore};

/// More than what is kept back has room for.
const FILES: usize = 20_000;

/// A file without a name takes room in the tree, and so does what says that it has none.
#[test]
fn files_without_a_name_find_no_space_where_there_is_none() {
    let device = Arc::new(MemoryDevice::from_bytes(&made(8, &["-s", "600"])));
    let store = ReiserStore::open(device.clone(), &ReiserOptions::default()).expect("it mounts");
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
    let namespace = Namespace::without_thread(Arc::new(store), Options::default()).expect("it is");
    let (root, caller) = (namespace.root(), Caller::root());
    let file = namespace.create_file(&caller, root, b"file", 0o600);
    let file = file.expect("there is room").ino;
    let written = (0..).map(|number| namespace.write(file, number * 4096, &[7; 4096]));
    let full = written.take_while(Result::is_ok).count();
    assert!(full > 500, "{full}");
    namespace.sync().expect("it is durable");

    let mut unnamed = Vec::new();
    let refused = (0..FILES).find_map(|_| {
        let made = namespace.create_unnamed(&caller, root, 0o600);
        made.map(|made| unnamed.push(made.ino)).err()
    });
    namespace.sync().expect("there is room for what was made");
    assert_eq!(refused, Some(Error::NoSpace));
    let removed = namespace.remove_file(&caller, root, b"file");
    assert_eq!(removed, Ok(()));
    for ino in unnamed.into_iter().chain([file]) {
        namespace.forget(ino, 1);
    }
    let made = namespace.create_unnamed(&caller, root, 0o600);
    namespace.forget(made.expect("there is room").ino, 1);
    namespace.shut_down().expect("it is durable");
    reiserfsck(&device.to_bytes());
}
