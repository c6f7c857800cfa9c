//! What inodes take in memory is counted right, whatever becomes of their numbers meanwhile.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;

use finefs_block::{Access, FileDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{Caller, Namespace, Options};

const FILES: u32 = 20_000;
/// Files that there are at a time.
const AHEAD: usize = 64;

fn open(path: &Path) -> Arc<Namespace> {
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4"])
        .arg(path)
        .arg("64M")
        .status();
    assert!(made.unwrap().success());
    let device = Arc::new(FileDevice::open(path, Access::ReadWrite).unwrap());
    let store = ExtStore::open(device, &ExtOptions::default()).unwrap();
    let options = Options {
        cache_bytes: 4 << 20,
        ..Options::default()
    };
    Namespace::new(Arc::new(store), options).unwrap()
}

/// One thread creates, another removes, and a third commits all the time, so that numbers are given
/// anew while the end of the inode that had them is being committed.
fn churn(namespace: &Namespace) {
    let (caller, root) = (Caller::root(), namespace.root());
    let (sender, receiver) = sync_channel(AHEAD);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (caller, is_over) = (&caller, &is_over);
        scope.spawn(move || {
            for number in 0..FILES {
                let name = number.to_string();
                let made = namespace.create_file(caller, root, name.as_bytes(), 0o644);
                namespace.forget(made.unwrap().ino, 1);
                sender.send(name).unwrap();
            }
        });
        scope.spawn(move || {
            for name in receiver {
                let removed = namespace.remove_file(caller, root, name.as_bytes());
                removed.unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                namespace.sync().unwrap();
            }
        });
    });
    namespace.sync().unwrap();
}

#[test]
fn the_account_does_not_drift() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open(&dir.path().join("image"));
    // The directory has its room then.
    churn(&namespace);
    let before = namespace.cached_bytes();
    for _ in 0..3 {
        churn(&namespace);
    }
    let after = namespace.cached_bytes();
    let room = 64 << 10;
    assert!(
        after.abs_diff(before) < room,
        "{after}, {before} bytes before"
    );
    namespace.shut_down().unwrap();
}
