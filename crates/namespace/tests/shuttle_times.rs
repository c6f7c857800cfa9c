//! Times and commits, under shuttle.
//!
//! `cargo test -p finefs-namespace --features shuttle --test shuttle_times`; `FINEFS_SCHEDULES=n`
//! tries n per test.
//!
//! A commit writes an inode's times as they stand when it comes to the inode, and nobody commits
//! an inode that has no records. So an operation sets its times before it appends its records: a
//! commit that takes the records then finds the times. Where operations set them after that, most
//! of these tests failed under the usual number of schedules, and all of them under 3,000.

#![cfg(feature = "shuttle")]

mod world;

use finefs_namespace::{
    AllocateMode, FileFlags, Ino, LockingScheme, RenameMode, SetAttributes, SetTime, Store, Times,
    Timestamp, XattrMode,
};
use world::{World, check, race, task};

/// What all inodes have before the operation.
fn long_ago() -> Timestamp {
    Timestamp::new(1, 0)
}

/// What the operations work on.
#[derive(Clone, Copy)]
struct Places {
    /// Holds all others.
    dir: Ino,
    /// The file `f`, which has two blocks.
    file: Ino,
    /// The directory `e`, which is empty.
    empty: Ino,
}

fn set(world: &World, ino: Ino, change: &SetAttributes) {
    (world.namespace.set_attributes(&world.user, ino, change)).unwrap();
}

fn places(world: &World) -> Places {
    let dir = world.directory(world.root(), "d");
    let file = world.file(dir, "f").unwrap();
    let empty = world.directory(dir, "e");
    world.namespace.write(file, 0, &[7; 8192]).unwrap();
    for ino in [dir, file, empty] {
        let all = SetAttributes {
            accessed: Some(SetTime::To(long_ago())),
            modified: Some(SetTime::To(long_ago())),
            changed: Some(long_ago()),
            ..SetAttributes::default()
        };
        set(world, ino, &all);
    }
    world.namespace.sync().unwrap();
    Places { dir, file, empty }
}

/// Runs an operation against a sync; the times of inodes that it must have set are in the store
/// after another sync.
fn reach_the_store<const INODES: usize>(
    operation: fn(&World, Places),
    touched: fn(Places) -> [(Ino, fn(&Times) -> Timestamp); INODES],
) {
    let make = || World::under(LockingScheme::Fine);
    check(200, make, move |world, _root| {
        let places = places(world);
        race(
            world,
            vec![
                task(move |w: &World| operation(w, places)),
                task(move |w: &World| w.namespace.sync().unwrap()),
            ],
        );
        world.namespace.sync().unwrap();
        for (ino, time) in touched(places) {
            let stored = world.store.load_inode(ino).unwrap().attributes.times;
            assert_ne!(time(&stored), long_ago(), "inode {ino}: {stored:?}");
            let shown = world.namespace.attributes(ino).unwrap().times;
            assert_eq!(shown, stored, "inode {ino}");
        }
        world.namespace.forget(places.empty, 1);
        world.namespace.forget(places.dir, 1);
    });
}

fn accessed(times: &Times) -> Timestamp {
    times.accessed
}

fn modified(times: &Times) -> Timestamp {
    times.modified
}

fn changed(times: &Times) -> Timestamp {
    times.changed
}

#[test]
fn of_a_truncate() {
    reach_the_store(
        |w, places| {
            let change = SetAttributes {
                size_bytes: Some(100),
                ..SetAttributes::default()
            };
            set(w, places.file, &change);
        },
        |places| [(places.file, modified), (places.file, changed)],
    );
}

#[test]
fn of_a_write() {
    reach_the_store(
        |w, places| assert_eq!(w.namespace.write(places.file, 8192, b"more"), Ok(4)),
        |places| [(places.file, modified), (places.file, changed)],
    );
}

#[test]
fn of_a_hole() {
    reach_the_store(
        |w, places| {
            let hole = AllocateMode::PunchHole;
            w.namespace.allocate(places.file, hole, 0, 4096).unwrap();
        },
        |places| [(places.file, modified), (places.file, changed)],
    );
}

#[test]
fn of_a_chmod() {
    reach_the_store(
        |w, places| {
            let change = SetAttributes {
                permissions: Some(0o600),
                ..SetAttributes::default()
            };
            set(w, places.file, &change);
        },
        |places| [(places.file, changed)],
    );
}

#[test]
fn that_are_set() {
    reach_the_store(
        |w, places| {
            let change = SetAttributes {
                accessed: Some(SetTime::To(Timestamp::new(2, 0))),
                modified: Some(SetTime::To(Timestamp::new(3, 0))),
                ..SetAttributes::default()
            };
            set(w, places.file, &change);
        },
        |places| {
            let file = places.file;
            [(file, accessed), (file, modified), (file, changed)]
        },
    );
}

#[test]
fn of_an_attribute_and_a_flag() {
    reach_the_store(
        |w, places| {
            let mode = XattrMode::Set;
            (w.namespace)
                .set_xattr(&w.user, places.file, b"user.x", b"1", mode)
                .unwrap();
            (w.namespace)
                .set_flags(&w.user, places.empty, |flags| flags | FileFlags::NO_DUMP)
                .unwrap();
        },
        |places| [(places.file, changed), (places.empty, changed)],
    );
}

#[test]
fn of_a_create() {
    reach_the_store(
        |w, places| _ = w.file(places.dir, "new").unwrap(),
        |places| [(places.dir, modified), (places.dir, changed)],
    );
}

#[test]
fn of_a_link_and_an_unlink() {
    reach_the_store(
        |w, places| {
            let linked = w
                .namespace
                .make_link(&w.user, places.file, places.empty, b"g");
            linked.unwrap();
            w.namespace.forget(places.file, 1);
        },
        |places| [(places.file, changed), (places.empty, modified)],
    );
    reach_the_store(
        |w, places| {
            w.remove(places.dir, "f").unwrap();
        },
        |places| [(places.dir, modified), (places.dir, changed)],
    );
}

#[test]
fn of_a_rmdir() {
    reach_the_store(
        |w, places| {
            let removed = w.namespace.remove_directory(&w.user, places.dir, b"e");
            removed.unwrap();
        },
        |places| [(places.dir, modified), (places.empty, changed)],
    );
}

#[test]
fn of_a_rename() {
    reach_the_store(
        |w, places| {
            let to = (places.empty, "g");
            w.rename((places.dir, "f"), to, RenameMode::Replace)
                .unwrap();
        },
        |places| {
            [
                (places.dir, modified),
                (places.empty, modified),
                (places.file, changed),
            ]
        },
    );
}
