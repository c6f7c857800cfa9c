//! Many threads on one file system through the embedding API.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use finefs::{FileSystem, OpenOptions};

const THREADS: usize = 4;

/// Handles go to other threads.
fn assert_shared<T: Send + Sync>() {}

#[test]
fn handles_are_shared_between_threads() {
    assert_shared::<FileSystem>();
    assert_shared::<finefs::Dir>();
    assert_shared::<finefs::File>();
    assert_shared::<finefs::ReadDir>();
    assert_shared::<finefs::Error>();
}

/// Two names of a table that grows, one half of a bucket after the other.
#[test]
fn renames_in_a_directory_that_grows() {
    for _ in 0..20 {
        let fs = FileSystem::memory(16 << 20).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let fs = &fs;
                scope.spawn(move || {
                    for number in 0..60 {
                        let (from, to) =
                            (format!("t{thread}-{number}"), format!("m{thread}-{number}"));
                        drop(fs.create(&from).unwrap());
                        fs.rename(&from, &to).unwrap();
                    }
                });
            }
        });
        assert_eq!(fs.read_dir("/").unwrap().count(), THREADS * 60);
    }
}

/// Others remove directories of a tree, or put files in their place, while it is removed.
#[test]
fn a_tree_is_removed_while_others_change_it() {
    const DIRECTORIES: usize = 40;
    for round in 0..100 {
        let fs = FileSystem::memory(16 << 20).unwrap();
        for number in 0..DIRECTORIES {
            fs.create_dir_all(format!("tree/{number}/below")).unwrap();
            fs.write(format!("file {number}"), "").unwrap();
        }
        std::thread::scope(|scope| {
            let fs = &fs;
            scope.spawn(move || {
                for number in 0..DIRECTORIES {
                    let directory = format!("tree/{number}");
                    // What is gone already is somebody else's.
                    let _ = match round % 2 {
                        0 => fs.remove_dir_all(&directory),
                        _ => fs.exchange(&directory, format!("file {number}")),
                    };
                }
            });
            fs.remove_dir_all("tree").unwrap();
        });
        assert!(!fs.try_exists("tree").unwrap());
    }
}

#[test]
fn every_appended_line_stays_whole() {
    const LINES: usize = 500;
    let fs = FileSystem::memory(16 << 20).unwrap();
    let shared = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&fs, "log")
        .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (fs, shared) = (&fs, &shared);
            scope.spawn(move || {
                // Half of them through a handle of their own.
                let own = OpenOptions::new().append(true).open(fs, "log").unwrap();
                let mut log = if thread % 2 == 0 { shared } else { &own };
                for line in 0..LINES {
                    log.write_all(format!("thread {thread} line {line}\n").as_bytes())
                        .unwrap();
                }
            });
        }
    });
    let text = fs.read_to_string("log").unwrap();
    let lines: HashSet<&str> = text.lines().collect();
    assert_eq!(text.lines().count(), THREADS * LINES);
    for thread in 0..THREADS {
        for line in 0..LINES {
            assert!(lines.contains(format!("thread {thread} line {line}").as_str()));
        }
    }
}

/// One position: no two reads give the same bytes.
#[test]
fn readers_of_one_handle_share_its_position() {
    let fs = FileSystem::memory(16 << 20).unwrap();
    let numbers: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
    fs.write("numbers", &numbers).unwrap();
    let file = fs.open("numbers").unwrap();
    let mut all: Vec<u32> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let (mut own, mut word) = (Vec::new(), [0; 4]);
                    while (&file).read(&mut word).unwrap() == 4 {
                        own.push(u32::from_le_bytes(word));
                    }
                    own
                })
            })
            .collect();
        readers
            .into_iter()
            .flat_map(|reader| reader.join().unwrap())
            .collect()
    });
    all.sort_unstable();
    assert!(all.into_iter().eq(0..10_000));
}

/// A path is there throughout, while directories on it change places: a walk never misses it, and
/// never ends anywhere else.
#[test]
fn walks_beside_exchanges_find_one_of_the_two() {
    let fs = FileSystem::memory(16 << 20).unwrap();
    for (name, text) in [("one", "1"), ("two", "2")] {
        fs.create_dir_all(format!("top/{name}/deep")).unwrap();
        fs.write(format!("top/{name}/deep/file"), text).unwrap();
    }
    fs.symlink("one/deep/../deep", "top/link").unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let mut seen = HashSet::new();
                    while !is_over.load(Ordering::Relaxed) {
                        for path in ["top/one/deep/file", "top/link/file"] {
                            seen.insert(fs.read_to_string(path).unwrap());
                        }
                    }
                    seen
                })
            })
            .collect();
        for _ in 0..3_000 {
            fs.exchange("top/one", "top/two").unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        for reader in readers {
            let seen = reader.join().unwrap();
            assert!(
                seen.iter().all(|text| text == "1" || text == "2"),
                "{seen:?}"
            );
        }
    });
    assert_eq!(fs.open_file_count(), 0);
}

/// A handle stays on its directory, and `..` is where that hangs by now.
#[test]
fn the_parent_is_right_after_moves() {
    let fs = FileSystem::memory(16 << 20).unwrap();
    fs.create_dir_all("a/moving").unwrap();
    fs.create_dir("b").unwrap();
    fs.write("a/here", "a").unwrap();
    fs.write("b/here", "b").unwrap();
    let dir = fs.open_dir("a/moving").unwrap();
    assert_eq!(dir.read_to_string("../here").unwrap(), "a");
    fs.rename("a/moving", "b/moved").unwrap();
    assert_eq!(dir.read_to_string("../here").unwrap(), "b");
    assert_eq!(dir.path().unwrap().to_str(), Some("/b/moved"));
    let top = "../../../../../b/here";
    assert_eq!(dir.read_to_string(top).unwrap(), "b");
    fs.remove_dir("b/moved").unwrap();
    assert_eq!(dir.create("x").unwrap_err().errno(), libc::ENOENT);
}
