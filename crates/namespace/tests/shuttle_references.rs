//! References that are split over the CPUs, under shuttle: who takes one is on any of two CPUs, by
//! chance, so a count is split after a few.
//!
//! `cargo test -p finefs-namespace --features shuttle --test shuttle_references`;
//! `FINEFS_SCHEDULES=n` tries n per test.
//!
//! What a test holds is there, whatever else happens; and what nobody holds any more is gone when
//! it ends: see [`World::finish`]. The tests name, after "Without:", the lines without which they
//! fail; each was tried, in a copy.

#![cfg(feature = "shuttle")]

mod world;

use finefs_locks::SPLIT_COUNTS_MAX;
use finefs_namespace::{Error, Ino, LockingScheme, OpenAccess};
use world::{Shared, Task, World, check, race, task};

/// Finds a name and holds what it finds while it is opened and closed.
fn use_by_turns(w: &World, root: Ino, name: &str, rounds: usize) {
    let found = match w.namespace.lookup(&w.user, root, name.as_bytes()) {
        Ok(found) => found.ino,
        Err(error) => return assert_eq!(error, Error::NotFound),
    };
    for _ in 0..rounds {
        drop(w.namespace.open(&w.user, found, OpenAccess::Read).unwrap());
        assert!(w.namespace.attributes(found).is_ok(), "it is held");
    }
    w.namespace.forget(found, 1);
}

fn user(root: Ino, name: &'static str, rounds: usize) -> Task<()> {
    task(move |w: &World| use_by_turns(w, root, name, rounds))
}

/// A file that nobody refers to, and whose references are most likely split.
fn shared_file(world: &World, root: Ino, name: &str) -> Ino {
    let ino = world.file(root, name).unwrap();
    use_by_turns(world, root, name, 6);
    ino
}

fn assert_freed(world: &World, ino: Ino) {
    assert_eq!(world.namespace.attributes(ino), Err(Error::Stale));
}

/// Removes `f` while two others use it so often; whoever comes last frees it.
fn remove_while_it_is_used(world: &Shared, root: Ino, ino: Ino, rounds: usize) {
    race(
        world,
        vec![
            user(root, "f", rounds),
            user(root, "f", rounds),
            task(move |w: &World| w.remove(root, "f").unwrap()),
        ],
    );
    assert_freed(world, ino);
}

/// The last name goes while references are taken and given back, and the file is freed by whoever
/// comes last.
///
/// Without: `is_over` in `References::split`.
#[test]
fn the_last_name_goes_while_a_file_becomes_shared() {
    check(600, World::either, |world, root| {
        let ino = world.file(root, "f").unwrap();
        remove_while_it_is_used(world, root, ino, 3);
    });
}

/// The same for a file that is shared already.
///
/// Without: `self.join(counts, evidence)` in `References::unlink`; the look at SPLIT in
/// `References::split`.
#[test]
fn the_last_name_of_a_shared_file_goes() {
    check(600, World::either, |world, root| {
        let ino = shared_file(world, root, "f");
        remove_while_it_is_used(world, root, ino, 1);
    });
}

/// The same, with another file that gets the name, maybe the number, and the place in which the
/// first was counted.
///
/// Without: `generation_of(before) != count.generation` in `SplitCounts::add`.
#[test]
fn another_file_gets_the_name() {
    check(300, World::either, |world, root| {
        shared_file(world, root, "f");
        race(
            world,
            vec![
                user(root, "f", 1),
                user(root, "f", 1),
                task(move |w: &World| {
                    w.remove(root, "f").unwrap();
                    shared_file(w, root, "f");
                }),
            ],
        );
        let last = world.look(root, "f").unwrap().ino;
        world.remove(root, "f").unwrap();
        assert_freed(world, last);
    });
}

/// More files are shared than there is room for: each makes room for the next.
///
/// Without: `generation_of(before) != count.generation` in `SplitCounts::add`.
#[test]
fn there_is_not_room_for_all() {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    const { assert!(NAMES.len() > SPLIT_COUNTS_MAX) };
    check(200, World::either, |world, root| {
        let inos = NAMES.map(|name| world.file(root, name).unwrap());
        let users = || {
            task(move |w: &World| {
                for name in NAMES {
                    use_by_turns(w, root, name, 3);
                }
            })
        };
        race(world, vec![users(), users()]);
        for (name, ino) in NAMES.into_iter().zip(inos) {
            world.remove(root, name).unwrap();
            assert_freed(world, ino);
        }
    });
}

/// References outlive the inode in memory, wherever they are counted: what was taken before a sweep
/// is given back after it, and the last one frees.
///
/// Without: `references_in(now).unwrap_or(0)` in `InodeTable::get_or_insert`.
#[test]
fn what_is_held_leaves_memory_and_comes_back() {
    let world = || World::under(LockingScheme::Fine);
    check(200, world, |world, root| {
        let ino = world.file(root, "f").unwrap();
        let sync = || task(|w: &World| w.namespace.sync().unwrap());
        race(world, vec![user(root, "f", 2), user(root, "f", 1), sync()]);
        world.namespace.reference(ino).unwrap();
        let forget = task(move |w: &World| w.namespace.forget(ino, 1));
        let remove = task(move |w: &World| w.remove(root, "f").unwrap());
        race(world, vec![sync(), forget, remove]);
        assert_freed(world, ino);
    });
}

/// A file that is held is there, wherever its references are counted.
#[test]
fn a_shared_file_is_there_while_it_is_held() {
    let world = || World::under(LockingScheme::Fine);
    check(200, world, |world, root| {
        for name in ["a", "b", "c", "d", "e"] {
            world.file(root, name).unwrap();
        }
        let sync = || task(|w: &World| w.namespace.sync().unwrap());
        race(world, vec![user(root, "a", 2), user(root, "a", 2), sync()]);
    });
}
