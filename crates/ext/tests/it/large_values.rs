//! Values of extended attributes in inodes of their own (ea_inode): all that they take is counted,
//! in the journal and in memory. e2fsck counts for itself.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use finefs_block::{Access, FileDevice};
use finefs_ext::{ExtOptions, ExtStore, OnError};
use finefs_namespace::{Caller, Ino, Namespace, Options, XattrMode};

use crate::trial;

const VALUE_BYTES: usize = 60_000;

fn make(path: &Path, block_bytes: &str) {
    let output = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-m", "0", "-O", "ea_inode"])
        .args(["-N", "2000", "-J", "size=4", "-b", block_bytes])
        .arg(path)
        .arg("96M")
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn end(namespace: &Namespace, path: &Path) {
    namespace.shut_down().unwrap();
    let output = Command::new("e2fsck").arg("-fn").arg(path).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn name(number: u32) -> Vec<u8> {
    format!("file {number}").into_bytes()
}

fn files(namespace: &Namespace, count: u32) -> Vec<Ino> {
    let (caller, root) = (Caller::root(), namespace.root());
    let made = (0..count).map(|number| {
        let made = namespace.create_file(&caller, root, &name(number), 0o644);
        let ino = made.unwrap().ino;
        namespace.forget(ino, 1);
        ino
    });
    made.collect()
}

/// Gives each file a value that no other has.
fn set_values(namespace: &Namespace, inodes: &[Ino], turn: u8) {
    for (number, ino) in (0_u32..).zip(inodes) {
        let mut value = vec![turn; VALUE_BYTES];
        value[..4].copy_from_slice(&number.to_le_bytes());
        let mode = XattrMode::Set;
        let set = namespace.set_xattr(&Caller::root(), *ino, b"user.large", &value, mode);
        set.unwrap();
    }
}

/// All values together are some times as large as the journal.
fn values_fit_the_journal(block_bytes: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    make(&path, block_bytes);
    let namespace = trial::open_with(&path, OnError::Continue);
    let inodes = files(&namespace, 400);
    for turn in 0..2 {
        set_values(&namespace, &inodes, turn);
    }
    namespace.sync().unwrap();
    for number in 0..400 {
        let removed = namespace.remove_file(&Caller::root(), namespace.root(), &name(number));
        removed.unwrap();
    }
    end(&namespace, &path);
    let told = trial::messages_about(&path, "larger than the journal");
    assert_eq!(told, Vec::<String>::new());
}

#[test]
fn values_in_small_blocks_fit_the_journal() {
    values_fit_the_journal("1024");
}

#[test]
fn values_in_large_blocks_fit_the_journal() {
    values_fit_the_journal("4096");
}

fn open(path: &Path, cache_bytes: u64) -> Namespace {
    let device = Arc::new(FileDevice::open(path, Access::ReadWrite).unwrap());
    let store = ExtStore::open(device, &ExtOptions::default()).unwrap();
    let options = Options {
        cache_bytes,
        ..Options::default()
    };
    Namespace::without_thread(Arc::new(store), options).unwrap()
}

/// The account has the values, and they leave memory where there is little.
#[test]
fn values_count_for_the_memory() {
    const COUNT: u32 = 500;
    let all_bytes = u64::from(COUNT) * VALUE_BYTES as u64;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let after = |cache_bytes: u64| {
        make(&path, "4096");
        let namespace = open(&path, cache_bytes);
        let inodes = files(&namespace, COUNT);
        set_values(&namespace, &inodes, 0);
        namespace.sync().unwrap();
        let bytes = namespace.cached_bytes();
        end(&namespace, &path);
        bytes
    };
    let with_all = after(256 << 20);
    assert!(with_all >= all_bytes, "{with_all}");
    let with_few = after(4 << 20);
    assert!(with_few < 8 << 20, "{with_few}");
}
