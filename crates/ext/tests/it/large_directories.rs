//! Directories of more names than there is memory for: they are found, made, removed and listed
//! block by block, and e2fsck agrees with what comes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::apply_world::sized;
use finefs_block::{Access, FileDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{Caller, Error, Ino, Namespace, Options, RenameMode, Result};

/// Some hundred names.
const CACHE_BYTES: u64 = 512 << 10;

fn make(path: &Path, options: &str) {
    let output = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "1024", "-N", "60000"])
        .args(options.split_whitespace())
        .arg(path)
        .arg("96M")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn open(path: &Path, cache_bytes: u64) -> Arc<Namespace> {
    let device = Arc::new(FileDevice::open(path, Access::ReadWrite).unwrap());
    let store = ExtStore::open(device, &ExtOptions::default()).unwrap();
    let options = Options {
        cache_bytes,
        ..Options::default()
    };
    Namespace::new(Arc::new(store), options).unwrap()
}

fn check(path: &Path) {
    let output = Command::new("e2fsck").arg("-fn").arg(path).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn name_of(number: u32) -> Vec<u8> {
    format!("a name with number {number}").into_bytes()
}

/// A directory, and what should be in it.
struct Directory<'n> {
    namespace: &'n Namespace,
    dir: Ino,
    names: BTreeMap<u32, Ino>,
}

impl Directory<'_> {
    fn create(&mut self, number: u32) {
        let caller = Caller::root();
        let made = (self.namespace).create_file(&caller, self.dir, &name_of(number), 0o644);
        match (made, self.names.contains_key(&number)) {
            (Ok(made), false) => {
                self.namespace.forget(made.ino, 1);
                self.names.insert(number, made.ino);
            }
            (Err(Error::Exists), true) => {}
            (outcome, _) => panic!("{number}: {outcome:?}"),
        }
    }

    fn remove(&mut self, number: u32) {
        let removed = (self.namespace).remove_file(&Caller::root(), self.dir, &name_of(number));
        let expected = self
            .names
            .remove(&number)
            .map(|_| ())
            .ok_or(Error::NotFound);
        assert_eq!(removed, expected, "{number}");
    }

    fn rename(&mut self, from: u32, to: u32) {
        let (old, new) = (name_of(from), name_of(to));
        let renamed = self.namespace.rename(
            &Caller::root(),
            (self.dir, &old),
            (self.dir, &new),
            RenameMode::Replace,
        );
        match self.names.remove(&from) {
            Some(ino) => {
                renamed.unwrap();
                self.names.insert(to, ino);
            }
            None => assert_eq!(renamed, Err(Error::NotFound)),
        }
    }

    fn look_up(&self, number: u32) {
        let found = lookup(self.namespace, self.dir, &name_of(number));
        let expected = self.names.get(&number).copied().ok_or(Error::NotFound);
        assert_eq!(found, expected, "{number}");
    }

    /// Lists it, some names at a time.
    fn list(&self) {
        let (mut cookie, mut names) = (0, BTreeMap::new());
        loop {
            let mut left = 100;
            let before = cookie;
            let listed = self
                .namespace
                .read_directory(self.dir, cookie, &mut |entry| {
                    if left == 0 {
                        return false;
                    }
                    left -= 1;
                    cookie = entry.cookie;
                    if !matches!(entry.name, b"." | b"..") {
                        let again = names.insert(entry.name.to_vec(), entry.ino);
                        assert_eq!(again, None);
                    }
                    true
                });
            listed.unwrap();
            if cookie == before {
                break;
            }
        }
        let expected = self
            .names
            .iter()
            .map(|(number, ino)| (name_of(*number), *ino));
        let expected: BTreeMap<Vec<u8>, Ino> = expected.collect();
        assert_eq!(names.len(), expected.len());
        assert!(names == expected);
    }
}

fn lookup(namespace: &Namespace, dir: Ino, name: &[u8]) -> Result<Ino> {
    let found = namespace.lookup(&Caller::root(), dir, name)?;
    namespace.forget(found.ino, 1);
    Ok(found.ino)
}

fn work(options: &str) {
    let (count, cache_bytes) = sized((8_000, CACHE_BYTES * 2 / 5), (20_000, CACHE_BYTES));
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("image");
    make(&path, options);
    let namespace = open(&path, cache_bytes);
    let caller = Caller::root();
    let dir = namespace
        .make_directory(&caller, namespace.root(), b"large", 0o755)
        .unwrap()
        .ino;
    let mut directory = Directory {
        namespace: &namespace,
        dir,
        names: BTreeMap::new(),
    };
    for number in 0..count {
        directory.create(number);
        directory.look_up(number.wrapping_mul(7919) % count);
        if number % 5 == 0 {
            directory.remove(number.wrapping_mul(7927) % count);
        }
        if number % 7 == 0 {
            directory.rename(number.wrapping_mul(7933) % count, count + number);
        }
        if number % (count / 5) == 0 {
            directory.list();
        }
    }
    directory.list();
    namespace.sync().unwrap();
    directory.list();
    let mut most = 0;
    for number in 0..2 * count {
        directory.look_up(number.wrapping_mul(7919) % (2 * count));
        most = most.max(namespace.cached_bytes());
    }
    // All names would be four times as much as there may be.
    assert!(most < 2 * cache_bytes, "{most} bytes");
    let not_empty = namespace.remove_directory(&caller, namespace.root(), b"large");
    assert_eq!(not_empty, Err(Error::NotEmpty));
    let numbers: BTreeSet<u32> = directory.names.keys().copied().collect();
    for number in numbers {
        directory.remove(number);
    }
    directory.list();
    namespace
        .remove_directory(&caller, namespace.root(), b"large")
        .unwrap();
    namespace.shut_down().unwrap();
    drop(namespace);
    check(&path);
}

#[test]
fn a_directory_is_larger_than_the_memory() {
    work("");
}

#[test]
fn a_directory_mapped_by_blocks_is_larger_than_the_memory() {
    work("-O ^extent,^64bit,^metadata_csum");
}

/// Threads make, remove and look for names of one directory, while it is committed all the time.
#[test]
fn threads_share_a_directory_that_is_larger_than_the_memory() {
    const THREADS: u32 = 4;
    const COUNT: u32 = 4000;
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("image");
    make(&path, "");
    let namespace = open(&path, CACHE_BYTES / 4);
    let dir = namespace.root();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                namespace.sync().unwrap();
            }
        });
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let namespace = &namespace;
                scope.spawn(move || {
                    let mut directory = Directory {
                        namespace,
                        dir,
                        names: BTreeMap::new(),
                    };
                    for round in 0..COUNT {
                        let number = |of: u32| of % COUNT * THREADS + thread;
                        directory.create(number(round));
                        directory.look_up(number(round.wrapping_mul(7919)));
                        if round % 3 == 0 {
                            directory.remove(number(round.wrapping_mul(7927)));
                        }
                    }
                    directory.names
                })
            })
            .collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        let mut names = BTreeMap::new();
        for result in results {
            names.extend(result.unwrap());
        }
        let lost = namespace.make_directory(&Caller::root(), dir, b"lost+found", 0o755);
        assert_eq!(lost.err(), Some(Error::Exists));
        namespace
            .remove_directory(&Caller::root(), dir, b"lost+found")
            .unwrap();
        let directory = Directory {
            namespace: &namespace,
            dir,
            names,
        };
        directory.list();
        (0..COUNT * THREADS).for_each(|number| directory.look_up(number));
    });
    namespace.shut_down().unwrap();
    drop(namespace);
    check(&path);
}
