//! Times are shown as the image can hold them.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::image::assert_clean;
use crate::trial;
use finefs_block::{Access, FileDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{
    AtimePolicy, Caller, Namespace, Options, SetAttributes, SetTime, Store, Timestamp,
};

/// A new image with inodes of this size.
fn opened(inode_size: &str, image: &Path) -> Namespace {
    let made = Command::new("mke2fs")
        .args(["-q", "-t", "ext4", "-I", inode_size])
        .arg(image)
        .arg("16M")
        .status()
        .unwrap();
    assert!(made.success());
    let device = FileDevice::open(image, Access::ReadWrite).unwrap();
    let store = ExtStore::open(Arc::new(device), &ExtOptions::default()).unwrap();
    Namespace::without_thread(Arc::new(store), Options::default()).unwrap()
}

fn shown_time(inode_size: &str, time: Timestamp) -> Timestamp {
    let dir = tempfile::tempdir().unwrap();
    let namespace = opened(inode_size, &dir.path().join("image"));
    let caller = Caller::root();
    let file = namespace
        .create_file(&caller, namespace.root(), b"file", 0o644)
        .unwrap();
    let change = SetAttributes {
        modified: Some(SetTime::To(time)),
        ..SetAttributes::default()
    };
    let shown = namespace
        .set_attributes(&caller, file.ino, &change)
        .unwrap();
    namespace.shut_down().unwrap();
    shown.times.modified
}

#[test]
fn small_inodes_show_no_birth() {
    for (inode_size, is_known) in [("128", false), ("256", true)] {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let namespace = opened(inode_size, &image);
        let (caller, root) = (Caller::root(), namespace.root());
        let file = namespace.create_file(&caller, root, b"file", 0o644);
        let born = file.unwrap().times.created;
        assert_eq!(born != Timestamp::new(0, 0), is_known, "{inode_size}");
        let directory = namespace.make_directory(&caller, root, b"directory", 0o755);
        let now = directory.unwrap().times.changed;
        assert_ne!(now, Timestamp::new(0, 0));
        assert_eq!(namespace.attributes(root).unwrap().times.modified, now);
        namespace.shut_down().unwrap();
    }
}

#[test]
fn small_inodes_hold_seconds_until_2038() {
    let second = Timestamp::new(1_000_000_000, 0);
    assert_eq!(shown_time("128", Timestamp::new(1_000_000_000, 5)), second);
    let last = Timestamp::new(i64::from(i32::MAX), 0);
    assert_eq!(shown_time("128", Timestamp::new(1 << 33, 5)), last);
}

#[test]
fn large_inodes_hold_nanoseconds_until_2446() {
    for time in [Timestamp::new(-5, 7), Timestamp::new(1 << 33, 999_999_999)] {
        assert_eq!(shown_time("256", time), time);
    }
}

/// Access times that are due for more inodes than the journal has room for.
fn access_times_fit_the_journal(make: fn(Arc<dyn Store>, Options) -> Arc<Namespace>) {
    const FILES: u32 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let made = Command::new("mke2fs")
        .args([
            "-q", "-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "24000",
        ])
        .arg(&image)
        .arg("64M")
        .status();
    assert!(made.unwrap().success());
    trial::keep_messages();
    let open = || {
        let device = Arc::new(FileDevice::open(&image, Access::ReadWrite).unwrap());
        let store = ExtStore::open(device, &ExtOptions::default()).unwrap();
        let options = Options {
            atime: AtimePolicy::Strict,
            commit_interval: Duration::from_secs(3600),
            ..Options::default()
        };
        make(Arc::new(store), options)
    };
    let namespace = open();
    let (caller, root) = (Caller::root(), namespace.root());
    for number in 0..FILES {
        let name = format!("file {number}");
        let made = namespace.create_file(&caller, root, name.as_bytes(), 0o644);
        namespace.forget(made.unwrap().ino, 1);
    }
    namespace.shut_down().unwrap();
    drop(namespace);
    let namespace = open();
    let mut inodes = Vec::new();
    for number in 0..FILES {
        let name = format!("file {number}");
        let found = namespace.lookup(&caller, root, name.as_bytes()).unwrap();
        inodes.push(found.ino);
    }
    for ino in &inodes {
        namespace.read(*ino, 0, &mut [0; 10]).unwrap();
    }
    for ino in inodes {
        namespace.forget(ino, 1);
    }
    namespace.shut_down().unwrap();
    let told = trial::messages_about(&image, "larger than the journal");
    assert_eq!(told, Vec::<String>::new());
    drop(namespace);
    assert_clean(&image);
}

#[test]
fn access_times_fit_the_journal_as_they_come() {
    access_times_fit_the_journal(|store, options| Namespace::new(store, options).unwrap());
}

/// Readers do what the threads do not come to.
#[test]
fn access_times_fit_the_journal_without_threads() {
    access_times_fit_the_journal(|store, options| {
        Arc::new(Namespace::without_thread(store, options).unwrap())
    });
}
