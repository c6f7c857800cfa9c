//! Locking schemes under shuttle: none blocks, and those that put a lock around operations exclude
//! them.
//!
//! `cargo test -p finefs-namespace --features shuttle --test shuttle_schemes`; `FINEFS_SCHEDULES=n`
//! tries n per test. "Without:" is as in `shuttle.rs`.

#![cfg(feature = "shuttle")]

mod world;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use finefs_locks::primitive::atomic::{AtomicUsize, Ordering};
use finefs_locks::primitive::thread;
use finefs_namespace::{AllocateMode, LockingScheme, RenameMode, SetAttributes};
use finefs_testkit::CheckedStore;
use world::{World, assert_one_write, check, file_with, race, task, write_and_append};

/// The schemes that put a lock around operations.
const AROUND: [LockingScheme; 4] = [
    LockingScheme::BigSpin,
    LockingScheme::BigSleep,
    LockingScheme::BigOptional,
    LockingScheme::PerSuperblock,
];

/// Data operations wait for each other's ranges, and for the device with ranges held: whoever holds
/// the scheme's lock lets it go for that.
///
/// Without: the `sleep` in `Scheme::wait`.
#[test]
fn under_every_scheme_data_operations_end() {
    for locking in AROUND {
        let make = move || World::under(locking);
        check(100, make, |world, _| {
            let ino = file_with(world, &[b'-'; 4100]);
            race(
                world,
                vec![
                    write_and_append(ino, b'a'),
                    write_and_append(ino, b'b'),
                    task(move |w: &World| {
                        assert_one_write(w, ino);
                        let set = SetAttributes {
                            size_bytes: Some(9000),
                            ..SetAttributes::default()
                        };
                        w.namespace.set_attributes(&w.user, ino, &set).unwrap();
                    }),
                ],
            );
            world.namespace.forget(ino, 1);
        });
    }
}

/// Loads, evictions, commits and renames that move directories, under a lock around operations.
#[test]
fn under_every_scheme_loads_and_renames_end() {
    for locking in AROUND {
        let make = move || World::under(locking);
        check(100, make, |world, root| {
            let (a, b) = (world.directory(root, "a"), world.directory(root, "b"));
            let inner = world.directory(a, "inner");
            world.file(inner, "f").unwrap();
            for dir in [inner, a, b] {
                world.namespace.forget(dir, 1);
            }
            // Everything but the root goes out of memory.
            world.namespace.sync().unwrap();
            let walk = |names: [&'static str; 2]| {
                task(move |w: &World| {
                    let mut dir = w.look(root, names[0]).unwrap().ino;
                    if let Ok(found) = w.look(dir, names[1]) {
                        dir = found.ino;
                        let _ = w.look(dir, "f");
                    }
                })
            };
            race(
                world,
                vec![
                    walk(["a", "inner"]),
                    walk(["b", "inner"]),
                    task(move |w: &World| {
                        let a = w.look(root, "a").unwrap().ino;
                        let b = w.look(root, "b").unwrap().ino;
                        let moved = w.rename((a, "inner"), (b, "inner"), RenameMode::Replace);
                        moved.unwrap();
                        w.namespace.sync().unwrap();
                    }),
                ],
            );
        });
    }
}

/// No two operations are inside at a time. Readdir calls back while it is inside.
///
/// Without: `Scheme::enter` in `Namespace::begin`.
#[test]
fn one_operation_at_a_time_is_inside() {
    for locking in LockingScheme::ALL {
        let overlaps = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&overlaps);
        // A store that needs no device: nothing sleeps.
        let around = match locking {
            LockingScheme::UnlockedData => LockingScheme::Fine,
            other => other,
        };
        let make = move || World::over(CheckedStore::new(1 << 20), around);
        check(100, make, move |world, _| {
            let inside = Arc::new(AtomicUsize::new(0));
            let list = || {
                let (inside, seen) = (Arc::clone(&inside), Arc::clone(&seen));
                task(move |w: &World| {
                    let root = w.root();
                    let mut sink = |_: finefs_namespace::DirectoryEntry<'_>| {
                        if inside.fetch_add(1, Ordering::SeqCst) > 0 {
                            seen.store(true, std::sync::atomic::Ordering::Relaxed);
                        }
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        true
                    };
                    w.namespace.read_directory(root, 0, &mut sink).unwrap();
                })
            };
            race(world, vec![list(), list(), list()]);
        });
        // 2.5.5-pre1 read directories without its big lock.
        let excludes = AROUND.contains(&locking) && locking != LockingScheme::BigOptional;
        let overlaps = overlaps.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(overlaps, !excludes, "{locking:?}");
    }
}

/// A piece of a large file goes out while other parts of it are cut off, and their blocks freed.
#[test]
fn a_piece_goes_out_while_the_file_changes() {
    const PIECE: usize = 1 << 20;
    let make = || World::over(CheckedStore::new(4 << 20), LockingScheme::Fine);
    check(100, make, |world, _| {
        let ino = file_with(world, &vec![b'-'; PIECE - 4096]);
        world.namespace.sync().unwrap();
        race(
            world,
            vec![
                task(move |w: &World| {
                    w.namespace.append(ino, &[b'a'; 4096]).unwrap();
                }),
                task(move |w: &World| {
                    let hole = AllocateMode::PunchHole;
                    w.namespace.allocate(ino, hole, 8192, 500_000).unwrap();
                    w.namespace.sync().unwrap();
                }),
            ],
        );
        let content = world.content(ino);
        assert!(content[..8192].iter().all(|byte| *byte == b'-'));
        assert!(content[8192..508_192].iter().all(|byte| *byte == 0));
        assert_eq!(content[PIECE - 4096..], [b'a'; 4096]);
        world.namespace.forget(ino, 1);
    });
}
