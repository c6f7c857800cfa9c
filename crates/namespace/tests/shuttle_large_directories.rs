//! Directories of which not all names are in memory, under shuttle: names are found in the store,
//! and leave memory again, while others make, remove, rename and list them.
//!
//! `cargo test -p finefs-namespace --features shuttle --test shuttle_large_directories`;
//! `FINEFS_SCHEDULES=n` tries n per test.
//!
//! The mount may have no memory at all, so every directory counts as large, and whatever may leave
//! memory does so whenever an operation begins. Each test begins with names that are on the store
//! only. The tests name, after "Without:", the lines without which they fail; each was tried, in a
//! copy.

#![cfg(feature = "shuttle")]

mod world;

use finefs_namespace::{Error, Ino, RenameMode, Result};
use world::{Shared, Task, World, check, race, task};

/// A directory below the root with files of these names, all of it on the store only: the
/// directory, which is held, and the files.
fn stored<const COUNT: usize>(
    world: &World,
    root: Ino,
    names: [&str; COUNT],
) -> (Ino, [Ino; COUNT]) {
    let dir = world.directory(root, "d");
    let files = names.map(|name| world.file(dir, name).unwrap());
    world.namespace.sync().unwrap();
    (dir, files)
}

/// What a name names.
fn named(w: &World, dir: Ino, name: &str) -> Option<Ino> {
    match w.look(dir, name) {
        Ok(found) => Some(found.ino),
        Err(error) => {
            assert_eq!(error, Error::NotFound);
            None
        }
    }
}

/// Puts on the store what was changed; what was is left to the store.
fn commits(times: usize) -> Task<()> {
    task(move |w: &World| (0..times).for_each(|_| w.namespace.sync().unwrap()))
}

/// Lists a directory, so many names at a time.
fn list(w: &World, dir: Ino, at_a_time: usize) -> Vec<(String, Ino)> {
    let (mut cookie, mut names) = (2, Vec::new());
    loop {
        let mut left = at_a_time;
        let listed = w.namespace.read_directory(dir, cookie, &mut |entry| {
            if left == 0 {
                return false;
            }
            left -= 1;
            cookie = entry.cookie;
            let name = String::from_utf8_lossy(entry.name).into_owned();
            names.push((name, entry.ino));
            true
        });
        listed.unwrap();
        if left == at_a_time {
            return names;
        }
    }
}

/// A name that was removed does not come back: neither from what somebody read of the store before,
/// nor from a store that has yet to learn of it.
///
/// Without: `held.note_generation` in `unlink_name`; the arm of `keeps_absent` in
/// `LockedBucket::remove`; that of absent nodes in `NameTable::known`.
#[test]
fn a_removed_name_does_not_come_back() {
    check(300, World::of_large_directories, |world, root| {
        let (dir, [a, b]) = stored(world, root, ["a", "b"]);
        race(
            world,
            vec![
                task(move |w: &World| {
                    let mut was_there = true;
                    for _ in 0..3 {
                        let found = named(w, dir, "a");
                        assert!(found.is_none_or(|found| found == a && was_there));
                        was_there = found.is_some();
                    }
                }),
                task(move |w: &World| {
                    w.remove(dir, "a").unwrap();
                    for _ in 0..2 {
                        assert_eq!(named(w, dir, "a"), None);
                        assert_eq!(named(w, dir, "b"), Some(b));
                    }
                }),
                commits(2),
            ],
        );
        assert_eq!(named(world, dir, "a"), None);
        assert_eq!(world.names(dir).len(), 1);
        world.namespace.forget(dir, 1);
    });
}

/// Whoever makes a name knows of one that only the store has; and what is made or removed counts,
/// whatever the store says.
///
/// Without: `namespace.learn` in `check_new_name`; `held.note_generation` in `make_located`;
/// `self.absent` in `NameTable::insert`.
#[test]
fn a_name_is_made_and_removed_that_was_not_in_memory() {
    check(300, World::of_large_directories, |world, root| {
        let (dir, [before]) = stored(world, root, ["f"]);
        let done = race(
            world,
            vec![
                task(move |w: &World| w.remove(dir, "f").is_ok()),
                task(move |w: &World| w.remove(dir, "f").is_ok()),
                task(move |w: &World| w.file(dir, "f").is_ok()),
                task(move |w: &World| w.file(dir, "f").is_ok()),
                task(move |w: &World| w.namespace.sync().is_ok()),
            ],
        );
        let count =
            |range: std::ops::Range<usize>| done[range].iter().filter(|is_done| **is_done).count();
        let left = 1 + count(2..4) - count(0..2);
        assert!(left <= 1);
        let found = named(world, dir, "f");
        assert_eq!(found.is_some(), left == 1);
        if count(0..2) == 0 {
            assert_eq!(found, Some(before));
        }
        assert_eq!(world.names(dir).len(), left);
        world.namespace.forget(dir, 1);
    });
}

/// A rename of a name that only the store has, to one that it has or has not: nobody sees the new
/// name and then still the old one, or neither, and another one over it fails or comes after.
///
/// Without: `self.learn` in `found`; `held.get(side).note_generation` in `move_names`.
#[test]
fn a_name_is_renamed_that_was_not_in_memory() {
    check(300, World::of_large_directories, |world, root| {
        let (dir, [from, to]) = stored(world, root, ["from", "to"]);
        let replace = RenameMode::Replace;
        race(
            world,
            vec![
                task(move |w: &World| w.rename((dir, "from"), (dir, "to"), replace).unwrap()),
                task(move |w: &World| match named(w, dir, "to") {
                    Some(found) if found == from => assert_eq!(named(w, dir, "from"), None),
                    found => assert_eq!(found, Some(to)),
                }),
                task(move |w: &World| match named(w, dir, "from") {
                    None => assert_eq!(named(w, dir, "to"), Some(from)),
                    found => assert_eq!(found, Some(from)),
                }),
                commits(2),
            ],
        );
        assert_eq!(named(world, dir, "to"), Some(from));
        assert_eq!(world.names(dir).len(), 1);
        world.namespace.forget(dir, 1);
    });
}

/// Names that stay are listed once each, in however many calls, while others come and go.
///
/// Without: `self.commit_listed` in `read_directory_with_atime`.
#[test]
fn names_that_stay_are_listed_once() {
    const STAY: [&str; 3] = ["stay", "remains", "kept"];
    check(200, World::of_large_directories, |world, root| {
        let (dir, files) = stored(world, root, [STAY[0], STAY[1], STAY[2], "gone", "old"]);
        let lister = move |at_a_time: usize, knows_of_removal: bool| {
            task(move |w: &World| {
                if knows_of_removal {
                    w.remove(dir, "gone").unwrap();
                }
                let names = list(w, dir, at_a_time);
                for (name, ino) in STAY.iter().zip(files) {
                    let listed = names.iter().filter(|(it, _)| it == name);
                    assert_eq!(listed.map(|(_, ino)| *ino).collect::<Vec<_>>(), [ino]);
                }
                let is_listed = names.iter().any(|(name, _)| name == "gone");
                assert!(!is_listed || !knows_of_removal);
            })
        };
        race(
            world,
            vec![
                lister(1, true),
                lister(2, false),
                task(move |w: &World| {
                    w.file(dir, "new").unwrap();
                    w.rename((dir, "old"), (dir, "newer"), RenameMode::Replace)
                        .unwrap();
                    assert!(list(w, dir, 10).iter().any(|(name, _)| name == "new"));
                }),
                commits(1),
            ],
        );
        assert_eq!(world.names(dir).len(), STAY.len() + 2);
        world.namespace.forget(dir, 1);
    });
}

/// What makes an end of a directory of the one name f, while f is removed and g is made.
fn beside(dir: Ino, ends: Task<Result<bool>>) -> Vec<Task<Result<bool>>> {
    vec![
        ends,
        task(move |w: &World| w.remove(dir, "f").map(|()| true)),
        task(move |w: &World| w.file(dir, "g").map(|_| true)),
        task(move |w: &World| w.namespace.sync().map(|()| true)),
    ]
}

/// Whether the directory went, after [`beside`]. Else g was made, and is removed: it is empty now.
fn went(world: &World, dir: Ino, done: &[Result<bool>]) -> bool {
    assert_eq!(done[1], Ok(true));
    match (&done[0], &done[2]) {
        (Err(Error::NotEmpty), Ok(_)) => {
            assert_eq!(world.names(dir).len(), 1);
            world.remove(dir, "g").unwrap();
            false
        }
        (Ok(_), Err(Error::NotFound)) => true,
        other => panic!("{other:?}"),
    }
}

/// A directory is empty when all that the store has of it was removed, and only then; what is made
/// in it meanwhile keeps it, or is not made.
///
/// Without: `self.learn_emptiness` in `check_rmdir`.
#[test]
fn a_directory_whose_names_only_the_store_has_is_removed_empty() {
    check(300, World::of_large_directories, |world, root| {
        let (dir, _) = stored(world, root, ["f"]);
        let removes = task(move |w: &World| {
            w.namespace
                .remove_directory(&w.user, root, b"d")
                .map(|()| true)
        });
        let done: Vec<Result<bool>> = race(world, beside(dir, removes));
        if !went(world, dir, &done) {
            world
                .namespace
                .remove_directory(&world.user, root, b"d")
                .unwrap();
        }
        assert_eq!(named(world, root, "d"), None);
        world.namespace.forget(dir, 1);
    });
}

/// The same by a rename over it.
///
/// Without: `self.learn_emptiness` in `dying`; `names.is_partial()` in `check_locked`.
#[test]
fn a_directory_whose_names_only_the_store_has_is_replaced_empty() {
    check(300, World::of_large_directories, |world, root| {
        let (dir, _) = stored(world, root, ["f"]);
        let other = world.directory(root, "e");
        let replace = RenameMode::Replace;
        let done: Vec<Result<bool>> = race(
            world,
            beside(
                dir,
                task(move |w: &World| w.rename((root, "e"), (root, "d"), replace).map(|()| true)),
            ),
        );
        if went(world, dir, &done) {
            assert_eq!(named(world, root, "d"), Some(other));
        } else {
            world.rename((root, "e"), (root, "d"), replace).unwrap();
        }
        world.namespace.forget(dir, 1);
        world.namespace.forget(other, 1);
    });
}

/// A directory that was made in memory becomes one of which the store has the rest, while names of
/// it come and go.
///
/// Without: `Coverage::Leaving(since) if since > committed` in `Volume::shed`.
#[test]
fn a_directory_is_left_to_the_store_while_it_changes() {
    check(300, World::of_large_directories, |world, root| {
        let dir = world.directory(root, "d");
        let files = ["a", "b", "c"].map(|name| world.file(dir, name).unwrap());
        let works = move |keep: usize, go: &'static str| {
            task(move |w: &World| {
                let keep_name = ["a", "b", "c"][keep];
                w.remove(dir, go).unwrap();
                assert_eq!(named(w, dir, go), None);
                assert_eq!(named(w, dir, keep_name), Some(files[keep]));
                let again = w.file(dir, go).unwrap();
                assert_eq!(named(w, dir, go), Some(again));
                w.remove(dir, go).unwrap();
                assert_eq!(named(w, dir, go), None);
            })
        };
        race(world, vec![works(0, "b"), works(0, "c"), commits(3)]);
        assert_eq!(list(world, dir, 1), [("a".to_owned(), files[0])]);
        world.namespace.forget(dir, 1);
    });
}

/// Tables grow and lose names, while others learn and look: each finds all of them.
#[test]
fn names_are_learned_by_several_at_once() {
    const NAMES: [&str; 6] = ["u", "v", "w", "x", "y", "z"];
    check(200, World::of_large_directories, |world: &Shared, root| {
        let (dir, files) = stored(world, root, NAMES);
        let looks = move |first: usize| {
            task(move |w: &World| {
                for at in (0..NAMES.len()).map(|step| (first + step) % NAMES.len()) {
                    assert_eq!(named(w, dir, NAMES[at]), Some(files[at]));
                }
            })
        };
        race(world, vec![looks(0), looks(3), commits(1)]);
        world.namespace.forget(dir, 1);
    });
}
