//! Paths that are remembered, under shuttle: while some are walked, what is on them goes elsewhere.
//!
//! `cargo test -p finefs-namespace --features shuttle --test shuttle_paths`; `FINEFS_SCHEDULES=n`
//! tries n per test.
//!
//! Whoever has taken a name away does not find what it named by it, whatever others remember
//! meanwhile. The tests name, after "Without:", the lines without which they fail; each was tried,
//! in a copy.

#![cfg(feature = "shuttle")]

mod world;

use finefs_locks::primitive::thread;
use finefs_namespace::{At, Error, Ino, LastLink, LockingScheme, RenameMode};
use world::{Task, World, check, race, task};

fn at(w: &World, path: &'static str) -> At<'static> {
    At {
        start: w.root(),
        path: path.as_bytes(),
    }
}

/// The number of what a path leads to.
fn walk(w: &World, path: &'static str) -> Result<Ino, Error> {
    let found = (w.namespace).attributes_at(&w.user, at(w, path), LastLink::Follow);
    found.map(|found| found.ino)
}

fn make_dir(w: &World, path: &'static str) {
    (w.namespace)
        .make_directory_at(&w.user, at(w, path), 0o755)
        .unwrap();
}

fn make_file(w: &World, dir: &'static str, name: &str) -> Ino {
    w.file(walk(w, dir).unwrap(), name).unwrap()
}

fn rename(w: &World, from: &'static str, to: &'static str, mode: RenameMode) {
    let (from, to) = (at(w, from), at(w, to));
    w.namespace.rename_at(&w.user, from, to, mode).unwrap();
}

/// Asks for a path a few times, whatever the answers.
fn walker(path: &'static str) -> Task<()> {
    task(move |w: &World| {
        for _ in 0..3 {
            let _ = walk(w, path);
            thread::yield_now();
        }
    })
}

/// A directory on the way is renamed, and back.
///
/// Without: `self.paths.begin_move()` in `try_rename`; what the end of `Moving` adds to those that
/// have ended.
#[test]
fn what_was_on_the_way_has_moved() {
    check(600, World::either, |world, _| {
        make_dir(world, "a");
        make_dir(world, "a/b");
        let f = make_file(world, "a/b", "f");
        let mover = task(move |w: &World| {
            let replace = RenameMode::Replace;
            for (from, to, old, new) in [("a", "z", "a/b/f", "z/b/f"), ("z", "a", "z/b/f", "a/b/f")]
            {
                rename(w, from, to, replace);
                assert_eq!(walk(w, old), Err(Error::NotFound));
                assert_eq!(walk(w, new), Ok(f));
            }
        });
        race(world, vec![mover, walker("a/b/f"), walker("a/b/f")]);
    });
}

/// Who has found what was renamed where it is now does not find it where it was.
///
/// Without: the addition in `begin_move`.
#[test]
fn what_is_at_the_new_place_is_not_at_the_old() {
    for (from, to, old, new) in [
        ("a", "z", "a/b/f", "z/b/f"),
        ("a/b/f", "a/b/g", "a/b/f", "a/b/g"),
    ] {
        check(600, World::either, move |world, _| {
            make_dir(world, "a");
            make_dir(world, "a/b");
            make_file(world, "a/b", "f");
            let mover = task(move |w: &World| rename(w, from, to, RenameMode::Replace));
            let watcher = || {
                task(move |w: &World| {
                    for _ in 0..3 {
                        let _ = walk(w, old);
                        if walk(w, new).is_ok() {
                            assert_eq!(walk(w, old), Err(Error::NotFound));
                        }
                    }
                })
            };
            race(world, vec![mover, watcher(), watcher()]);
        });
    }
}

/// Another file comes to be where one was whose directory was renamed: the slot that has what the
/// path led to before is written while it is read.
///
/// Without: `moves` in both words of the signature.
#[test]
fn what_is_on_the_way_now_leads_to_another() {
    check(600, World::either, |world, _| {
        make_dir(world, "a");
        let f = make_file(world, "a", "f");
        // Both slots that the way may have are used.
        for _ in 0..2 {
            assert_eq!(walk(world, "a/f"), Ok(f));
            rename(world, "a", "z", RenameMode::Replace);
            rename(world, "z", "a", RenameMode::Replace);
        }
        rename(world, "a", "z", RenameMode::Replace);
        make_dir(world, "a");
        let g = make_file(world, "a", "f");
        let same = || {
            task(move |w: &World| {
                for _ in 0..2 {
                    assert_eq!(walk(w, "a/f"), Ok(g));
                }
            })
        };
        race(world, vec![same(), same()]);
    });
}

/// A file is removed while it has another name, and two change their names.
///
/// Without: `self.inodes.begin_unnaming` in `unlink` or in `try_rename`; the addition of
/// `Unnaming`; `named.is_named(guard)` in `known`.
#[test]
fn what_was_at_the_end_has_lost_the_name() {
    check(600, World::either, |world, _| {
        make_dir(world, "a");
        let [f, g] = ["f", "g"].map(|name| make_file(world, "a", name));
        let dir = walk(world, "a").unwrap();
        let linked = (world.namespace).make_link(&world.user, f, dir, b"h");
        world.namespace.forget(linked.unwrap().ino, 1);
        let changer = task(move |w: &World| {
            rename(w, "a/f", "a/g", RenameMode::Exchange);
            assert_eq!([walk(w, "a/f"), walk(w, "a/g")], [Ok(g), Ok(f)]);
            w.remove(dir, "g").unwrap();
            assert_eq!(
                [walk(w, "a/g"), walk(w, "a/h")],
                [Err(Error::NotFound), Ok(f)]
            );
            rename(w, "a/h", "a/f", RenameMode::Replace);
            assert_eq!(
                [walk(w, "a/h"), walk(w, "a/f")],
                [Err(Error::NotFound), Ok(f)]
            );
        });
        race(
            world,
            vec![changer, walker("a/g"), walker("a/f"), walker("a/h")],
        );
    });
}

/// A file loses one of its names just when that was found.
///
/// Without: `found.is_named(guard)` in `remember`; or where it comes before `name_seq`.
#[test]
fn what_was_found_has_lost_the_name_since() {
    check(1500, World::either, |world, root| {
        let f = make_file(world, "/", "f");
        let linked = (world.namespace).make_link(&world.user, f, root, b"g");
        world.namespace.forget(linked.unwrap().ino, 1);
        let remover = task(move |w: &World| {
            w.remove(root, "g").unwrap();
            assert_eq!(walk(w, "g"), Err(Error::NotFound));
        });
        let walker = task(|w: &World| drop(walk(w, "g")));
        race(world, vec![remover, walker]);
        assert_eq!(walk(world, "g"), Err(Error::NotFound));
    });
}

/// A file and a directory are removed and others made, most likely with their numbers.
///
/// Without: `self.inodes.begin_unnaming` in `unlink`.
#[test]
fn another_has_the_number_now() {
    check(600, World::either, |world, _| {
        make_dir(world, "a");
        make_dir(world, "a/b");
        make_file(world, "a", "f");
        let changer = task(move |w: &World| {
            let dir = walk(w, "a").unwrap();
            w.remove(dir, "f").unwrap();
            let g = make_file(w, "a", "g");
            assert_eq!(
                [walk(w, "a/f"), walk(w, "a/g")],
                [Err(Error::NotFound), Ok(g)]
            );
            w.namespace.remove_directory(&w.user, dir, b"b").unwrap();
            make_dir(w, "a/c");
            make_file(w, "a/c", "f");
            assert_eq!(walk(w, "a/b/f"), Err(Error::NotFound));
            assert_eq!(walk(w, "a/b"), Err(Error::NotFound));
        });
        let _ = walk(world, "a/f");
        let _ = walk(world, "a/b");
        race(
            world,
            vec![changer, walker("a/f"), walker("a/b"), walker("a/b/f")],
        );
    });
}

/// A directory is removed while somebody uses it.
///
/// Without: `self.inodes.begin_unnaming` in `rmdir`; `found.is_by_name()` in `remember`.
#[test]
fn what_was_removed_while_it_is_held() {
    check(600, World::either, |world, _| {
        make_dir(world, "a");
        let a = walk(world, "a").unwrap();
        let held = world.directory(a, "b");
        let remover = task(move |w: &World| {
            w.namespace.remove_directory(&w.user, a, b"b").unwrap();
            for path in ["a/b", "a/b/."] {
                assert_eq!(walk(w, path), Err(Error::NotFound));
            }
            w.namespace.forget(held, 1);
        });
        race(world, vec![remover, walker("a/b"), walker("a/b/.")]);
    });
}

/// Inodes go out of memory and come back.
#[test]
fn what_is_out_of_memory_is_loaded_again() {
    let make = || World::under(LockingScheme::Fine);
    check(300, make, |world, _| {
        make_dir(world, "a");
        let f = make_file(world, "a", "f");
        assert_eq!(walk(world, "a/f"), Ok(f));
        let same = || {
            task(move |w: &World| {
                for _ in 0..2 {
                    assert_eq!(walk(w, "a/f"), Ok(f));
                }
            })
        };
        let evictor = task(|w: &World| {
            let root = w.root();
            (0..3).for_each(|number| drop(w.file(root, &number.to_string())));
            w.namespace.sync().unwrap();
        });
        race(world, vec![evictor, same(), same()]);
    });
}
