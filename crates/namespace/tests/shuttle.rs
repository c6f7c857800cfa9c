//! The protocols of the namespace under shuttle, which tries random schedules.
//!
//! `cargo test -p finefs-namespace --features shuttle --test shuttle`; `FINEFS_SCHEDULES=n` tries n
//! per test.
//!
//! Every test ends by committing everything to a [`CheckedStore`], which panics unless what was
//! committed, then and in every commit before, is a file system; and by comparing what the
//! namespace shows with what was committed. Most run over a store that takes no batches too: there
//! the numbers and blocks that are shown must be those that are allocated.
//!
//! # The lines that the tests hold in place
//! Each test names, after "Without:", the lines without which it fails; each was tried, in a copy.
//! When one of those lines moves or a new re-check comes, try again and keep these notes true.

#![cfg(feature = "shuttle")]

mod world;

use std::sync::Arc;

use finefs_locks::primitive::atomic::{AtomicBool, Ordering};
use finefs_namespace::{
    At, Error, FileKind, Ino, LastLink, LockingScheme, RenameMode, SetAttributes, Store, SyncScope,
};
use finefs_testkit::CheckedStore;
use world::{World, assert_one_write, check, file_with, race, task, write_and_append};

/// Creates and unlinks of one name.
///
/// Without: `if held.find(name, guard).is_some()` under the lock in `make`; `node.ino !=
/// child.ino` in `remove_file`.
#[test]
fn one_name_is_made_and_removed() {
    check(300, World::either, |world, root| {
        // With a reference, so that the first file outlives its name.
        let made = world.namespace.create_file(&world.user, root, b"f", 0o644);
        let before = made.unwrap().ino;
        let removed = race(
            world,
            vec![
                task(move |w: &World| w.remove(root, "f").is_ok()),
                task(move |w: &World| w.remove(root, "f").is_ok()),
                task(move |w: &World| w.file(root, "f").is_ok()),
                task(move |w: &World| w.file(root, "f").is_ok()),
            ],
        );
        let count = |range: std::ops::Range<usize>| {
            removed[range].iter().filter(|is_done| **is_done).count()
        };
        let left = 1 + count(2..4) - count(0..2);
        assert!(left <= 1);
        let found = world.look(root, "f");
        assert_eq!(found.is_ok(), left == 1);
        if count(0..2) == 0 {
            assert_eq!(found.unwrap().ino, before);
        }
        world.namespace.forget(before, 1);
    });
}

/// A create in a directory that is removed: one of the two fails.
///
/// Without: `if !held.is_empty(names, guard)` in `remove_directory`; `if tag & DEAD != 0` in
/// `lock_hash`.
#[test]
fn a_removed_directory_gets_no_names() {
    check(400, World::either, |world, root| {
        let dir = world.directory(root, "d");
        let done = race(
            world,
            vec![
                task(move |w: &World| w.file(dir, "f").map(|_| ())),
                task(move |w: &World| w.namespace.remove_directory(&w.user, root, b"d")),
            ],
        );
        match (&done[0], &done[1]) {
            (Ok(()), Err(Error::NotEmpty)) | (Err(Error::NotFound), Ok(())) => {}
            other => panic!("{other:?}"),
        }
        world.namespace.forget(dir, 1);
    });
}

/// The same by a rename over the directory.
///
/// Without: `!held.is_empty(names, guard)` in `try_rename`; `held.kill(names, guard)` there.
#[test]
fn a_replaced_directory_gets_no_names() {
    check(400, World::either, |world, root| {
        let dir = world.directory(root, "d");
        let other = world.directory(root, "e");
        let done = race(
            world,
            vec![
                task(move |w: &World| w.file(dir, "f").map(|_| ())),
                task(move |w: &World| w.rename((root, "e"), (root, "d"), RenameMode::Replace)),
            ],
        );
        match (&done[0], &done[1]) {
            (Ok(()), Err(Error::NotEmpty)) | (Err(Error::NotFound), Ok(())) => {}
            other => panic!("{other:?}"),
        }
        world.namespace.forget(dir, 1);
        world.namespace.forget(other, 1);
    });
}

/// A name that always names an empty directory, while another one replaces it, can be removed.
///
/// Without: the new attempt in `try_rmdir` where `lock_all` finds the child dead.
#[test]
fn a_directory_that_is_replaced_is_removed_all_the_same() {
    check(400, World::new, |world, root| {
        for name in ["d", "e"] {
            let dir = world.directory(root, name);
            world.namespace.forget(dir, 1);
        }
        race(
            world,
            vec![
                task(move |w: &World| {
                    let _ = w.rename((root, "e"), (root, "d"), RenameMode::Replace);
                }),
                task(move |w: &World| {
                    let removed = w.namespace.remove_directory(&w.user, root, b"d");
                    assert_eq!(removed, Ok(()));
                }),
            ],
        );
    });
}

/// Two directories go into each other: one must fail, and none is lost.
///
/// Without: the topology lock in `try_rename`; `self.check_no_loop(moved, to.dir, guard)?`.
#[test]
fn directories_do_not_go_into_each_other() {
    check(300, World::either, |world, root| {
        let a = world.directory(root, "a");
        let b = world.directory(root, "b");
        let below = world.directory(a, "below");
        let replace = RenameMode::Replace;
        let done = race(
            world,
            vec![
                task(move |w: &World| w.rename((root, "a"), (b, "a"), replace)),
                task(move |w: &World| w.rename((root, "b"), (below, "b"), replace)),
            ],
        );
        assert_eq!(done.iter().filter(|result| result.is_ok()).count(), 1);
        for dir in [a, b, below] {
            world.namespace.forget(dir, 1);
        }
    });
}

/// A listing of a directory whose entries note no kinds, while a rename replaces what a name names:
/// the name stays.
///
/// Without: the second look in `Namespace::listed` where the inode is gone.
#[test]
fn a_name_that_is_replaced_is_listed() {
    let make = || {
        let store = CheckedStore::reloading(1 << 20).without_kinds();
        let world = World::over(store, LockingScheme::Fine);
        for name in ["f", "g"] {
            world.file(world.root(), name).unwrap();
        }
        world.reopened()
    };
    check(100, make, |world, root| {
        let listed = race(
            world,
            vec![
                task(move |w: &World| w.names(root)),
                task(move |w: &World| {
                    let replaced = w.rename((root, "f"), (root, "g"), RenameMode::Replace);
                    replaced.unwrap();
                    Vec::new()
                }),
            ],
        );
        let count = listed[0].iter().filter(|(name, ..)| name == "g").count();
        assert_eq!(count, 1, "{:?}", listed[0]);
    });
}

/// Files and directories change places both ways at once: no deadlock, and all of them stay.
///
/// Without: `order.sort_unstable()` in `lock_all` (deadlock); the sort in `lock_inodes`; `from_node
/// ... node.ino == moved.ino` and `to_node ... != victim` in `try_rename`.
#[test]
fn renames_both_ways() {
    check(300, World::either, |world, root| {
        let a = world.directory(root, "a");
        let b = world.directory(root, "b");
        let f = world.file(a, "f").unwrap();
        let g = world.file(b, "g").unwrap();
        let sub = world.directory(a, "s");
        race(
            world,
            vec![
                task(move |w: &World| w.rename((a, "f"), (b, "g"), RenameMode::Exchange)),
                task(move |w: &World| w.rename((b, "g"), (a, "f"), RenameMode::Exchange)),
                task(move |w: &World| w.rename((a, "s"), (b, "g"), RenameMode::Exchange)),
            ],
        );
        let mut all: Vec<Ino> = [a, b]
            .into_iter()
            .flat_map(|dir| world.names(dir))
            .map(|(_, ino, _)| ino)
            .collect();
        all.sort();
        let mut expected = vec![f, g, sub];
        expected.sort();
        assert_eq!(all, expected);
        for dir in [a, b, sub] {
            world.namespace.forget(dir, 1);
        }
    });
}

/// Replacing renames of one source and to one target: exactly one gets the source.
#[test]
fn one_source_goes_to_one_place() {
    check(300, World::either, |world, root| {
        world.file(root, "f").unwrap();
        world.file(root, "t").unwrap();
        let replace = RenameMode::Replace;
        let done = race(
            world,
            vec![
                task(move |w: &World| w.rename((root, "f"), (root, "t"), replace).is_ok()),
                task(move |w: &World| w.rename((root, "f"), (root, "u"), replace).is_ok()),
                task(move |w: &World| w.remove(root, "t").is_ok()),
            ],
        );
        assert_eq!(done[..2].iter().filter(|is_done| **is_done).count(), 1);
        assert!(world.look(root, "f").is_err());
    });
}

/// One name is renamed over another one by two threads, one of which replaces nothing: one of them
/// does it, and the other finds no source. The names are looked up one after the other, between
/// which they may come to name one inode, or the second one to be there.
///
/// Without: the look under the locks in `settled`.
#[test]
fn one_name_is_renamed_over_another_twice() {
    for (mode, target) in [
        (RenameMode::Replace, Some("t")),
        (RenameMode::Replace, None),
        (RenameMode::NoReplace, None),
    ] {
        check(300, World::either, move |world, root| {
            world.file(root, "f").unwrap();
            if let Some(target) = target {
                world.file(root, target).unwrap();
            }
            let rename = |mode| task(move |w: &World| w.rename((root, "f"), (root, "t"), mode));
            let done = race(world, vec![rename(RenameMode::Replace), rename(mode)]);
            let is_done = |result: &&Result<(), Error>| result.is_ok();
            assert_eq!(done.iter().filter(is_done).count(), 1, "{done:?}");
            assert!(done.contains(&Err(Error::NotFound)), "{done:?}");
        });
    }
}

/// Who sees the new name does not see the old one after that; who does not see the old one sees
/// the new one.
///
/// Without: `held.begin_rename(guard)` in `try_rename`; RENAMING among the tags for which `find`
/// hands over to `find_in_change`, or for which that walks again (the latter in three runs of
/// five).
#[test]
fn a_rename_happens_at_once() {
    check(600, World::either, |world, root| {
        let to = world.directory(root, "to");
        world.file(root, "old").unwrap();
        race(
            world,
            vec![
                task(move |w: &World| {
                    w.rename((root, "old"), (to, "new"), RenameMode::Replace)
                        .unwrap();
                }),
                task(move |w: &World| {
                    let has_new = w.look(to, "new").is_ok();
                    let has_old = w.look(root, "old").is_ok();
                    assert!(!(has_new && has_old), "both names");
                }),
                task(move |w: &World| {
                    let has_old = w.look(root, "old").is_ok();
                    let has_new = w.look(to, "new").is_ok();
                    assert!(has_old || has_new, "neither name");
                }),
            ],
        );
        world.namespace.forget(to, 1);
    });
}

/// Unlink of the last name, a new link, and the last reference's end.
///
/// Without: `if links == 0 && !inode.is_unnamed()` in `make_link`.
#[test]
fn links_and_the_end_of_a_file() {
    check(400, World::either, |world, root| {
        let made = world.namespace.create_file(&world.user, root, b"f", 0o600);
        let ino = made.unwrap().ino;
        let is_removed = Arc::new(AtomicBool::new(false));
        let was_removed = Arc::clone(&is_removed);
        let done = race(
            world,
            vec![
                task(move |w: &World| {
                    let is_done = w.remove(root, "f").is_ok();
                    is_removed.store(true, Ordering::SeqCst);
                    is_done
                }),
                task(move |w: &World| {
                    let must_fail = was_removed.load(Ordering::SeqCst);
                    let linked = w.namespace.make_link(&w.user, ino, root, b"g");
                    if linked.is_ok() {
                        w.namespace.forget(ino, 1);
                    }
                    w.namespace.forget(ino, 1);
                    assert!(!(must_fail && linked.is_ok()), "linked after its end");
                    linked.is_ok()
                }),
                task(move |w: &World| w.namespace.sync().is_ok()),
            ],
        );
        assert!(done[0]);
        match world.look(root, "g") {
            Ok(found) => assert_eq!((found.ino, found.link_count, done[1]), (ino, 1, true)),
            Err(_) => {
                assert!(!done[1]);
                assert_eq!(world.namespace.attributes(ino), Err(Error::Stale));
            }
        }
    });
}

/// A file without a name gets one while its reference is given back.
///
/// Without: `if inode.is_gone()` in `link`; `inode.references.relink(&lock)` there.
#[test]
fn an_unnamed_file_is_linked_or_gone() {
    check(400, World::either, |world, root| {
        let made = world.namespace.create_unnamed(&world.user, root, 0o600);
        let ino = made.unwrap().ino;
        let done = race(
            world,
            vec![
                task(move |w: &World| {
                    let linked = w.namespace.make_link(&w.user, ino, root, b"g");
                    if linked.is_ok() {
                        w.namespace.forget(ino, 1);
                    }
                    linked.is_ok()
                }),
                task(move |w: &World| {
                    w.namespace.forget(ino, 1);
                    true
                }),
            ],
        );
        assert_eq!(world.look(root, "g").is_ok(), done[0]);
    });
}

/// Commits in the middle of things that follow from each other take them in that order.
///
/// Without: the global side in `OperationLog::cut` (one shard after the other); the log
/// before the publication in `make` (`self.log_group` after `table.insert`).
#[test]
fn commits_are_causally_closed() {
    check(400, World::new, |world, root| {
        race(
            world,
            vec![
                task(move |w: &World| {
                    let dir = w.directory(root, "d");
                    w.namespace.forget(dir, 1);
                }),
                task(move |w: &World| {
                    for _ in 0..3 {
                        let Ok(dir) = w.namespace.lookup(&w.user, root, b"d") else {
                            continue;
                        };
                        let _ = w.file(dir.ino, "f");
                        let _ = w.rename((dir.ino, "f"), (root, "g"), RenameMode::Replace);
                        w.namespace.forget(dir.ino, 1);
                    }
                }),
                task(move |w: &World| {
                    for _ in 0..3 {
                        w.namespace.sync().unwrap();
                    }
                }),
            ],
        );
    });
}

/// Of threads that sync at once one commits for the others, and none leaves before its file is in
/// the store, or waits for ever.
///
/// Without: `notify_all` where a turn ends (as `notify_one` somebody waits for ever); `>= wanted`
/// in `is_done` (as `>= wanted - 1` one leaves too early).
#[test]
fn threads_that_sync_leave_when_theirs_is_durable() {
    check(400, World::new, |world, root| {
        let sync = |name: &'static str| {
            task(move |w: &World| {
                let ino = w.file(root, name).unwrap();
                w.namespace.sync_file(ino, SyncScope::All).unwrap();
                w.store.load_inode(ino).expect("it is durable");
            })
        };
        race(world, vec![sync("a"), sync("b"), sync("c")]);
    });
}

/// A thaw while a freeze is under way ends it, whenever it comes: later commits do something again.
///
/// Without: the lock that `freeze` and `thaw` hold (`ns.freezing`).
#[test]
fn a_thaw_ends_a_freeze_that_is_under_way() {
    check(400, World::new, |world, root| {
        race(
            world,
            vec![
                task(move |w: &World| w.namespace.freeze().unwrap()),
                task(move |w: &World| {
                    let thawed = w.namespace.thaw();
                    assert!(matches!(thawed, Ok(()) | Err(Error::Invalid)));
                }),
            ],
        );
        if world.namespace.is_frozen() {
            world.namespace.thaw().unwrap();
        }
        world.file(root, "later").unwrap();
    });
}

/// A table grows under creates, lookups and readdirs.
///
/// Without: MOVED in `lock_hash`, once it has the lock; the second look at the head in `find` (in
/// two runs of three). What else a reader needs who meets the cut of a chain is held in place by
/// the module's own `names_that_stay_are_found_while_their_bucket_is_cut`.
#[test]
fn a_table_grows_under_use() {
    check(60, World::either, |world, root| {
        let stays: Vec<String> = (0..12).map(|number| format!("stays{number}")).collect();
        for name in &stays {
            world.file(root, name).unwrap();
        }
        let (found, listed) = (stays.clone(), stays);
        race(
            world,
            vec![
                task(move |w: &World| {
                    for number in 0..14 {
                        w.file(root, &format!("a{number}")).unwrap();
                    }
                }),
                task(move |w: &World| {
                    for number in 0..8 {
                        w.file(root, &format!("b{number}")).unwrap();
                        w.remove(root, &format!("b{number}")).unwrap();
                    }
                }),
                task(move |w: &World| {
                    for name in &found {
                        w.look(root, name).unwrap();
                    }
                }),
                task(move |w: &World| {
                    let names = w.names(root);
                    for name in &listed {
                        let count = names.iter().filter(|(other, ..)| other == name).count();
                        assert_eq!(count, 1, "{name}");
                    }
                }),
            ],
        );
        assert_eq!(world.names(root).len(), 26);
    });
}

/// A file is removed, and its number used again, beside `look`.
fn reuse_a_number_beside(look: fn(&World, Ino)) {
    check(800, World::either, move |world, root| {
        world.file(root, "old").unwrap();
        race(
            world,
            vec![
                task(move |w: &World| look(w, root)),
                task(move |w: &World| {
                    w.remove(root, "old").unwrap();
                    w.namespace.sync().unwrap();
                    let new = w.namespace.create_file(&w.user, root, b"new", 0o600);
                    w.namespace.forget(new.unwrap().ino, 1);
                }),
            ],
        );
    });
}

/// The number of a removed file is used again: a lookup of the old name never gives the new file.
///
/// Without: `found.is_named` in `Namespace::refer_found`; the tag OUT in `Bucket::swing`.
#[test]
fn a_lookup_gives_what_the_name_named() {
    reuse_a_number_beside(|w, root| {
        if let Ok(found) = w.namespace.lookup(&w.user, root, b"old") {
            assert_eq!(found.permissions, 0o644, "another file");
            w.namespace.forget(found.ino, 1);
        }
    });
}

/// Nor does a path, of which nothing is referenced.
///
/// Without: `found.is_named` in `Namespace::named`; the tag OUT in `Bucket::swing`.
#[test]
fn a_path_leads_to_what_the_name_named() {
    reuse_a_number_beside(|w, root| {
        let path = b"old";
        let at = At { start: root, path };
        if let Ok(found) = w.namespace.attributes_at(&w.user, at, LastLink::Follow) {
            assert_eq!(found.permissions, 0o644, "another file");
        }
    });
}

/// A commit may come when it is logged that the last name of `old` goes, and the name is still
/// there: whoever finds the name then finds neither another file under the number, nor that it is
/// nobody's.
fn take_out_beside_a_commit(kind: FileKind, take_out: fn(&World, Ino)) {
    check(700, World::with_batches, move |world, root| {
        if kind == FileKind::Directory {
            let old = world.directory(root, "old");
            world.namespace.forget(old, 1);
        } else {
            world.file(root, "old").unwrap();
            world.file(root, "other").unwrap();
        }
        race(
            world,
            vec![
                task(move |w: &World| take_out(w, root)),
                task(move |w: &World| {
                    w.namespace.sync().unwrap();
                    let new = w.namespace.create_file(&w.user, root, b"new", 0o600);
                    w.namespace.forget(new.unwrap().ino, 1);
                    match w.look(root, "old") {
                        Ok(found) => assert_ne!(found.permissions, 0o600, "another file"),
                        Err(error) => assert_eq!(error, Error::NotFound),
                    }
                }),
            ],
        );
    });
}

/// Without: `drop(core.lock())` in `Inodes::take_in` and `Folded::cancel`; `drop(lock)` after, and
/// not before, the name is out in `unlink`.
#[test]
fn a_number_comes_free_only_after_its_name_went() {
    take_out_beside_a_commit(FileKind::Regular, |w, root| {
        w.remove(root, "old").unwrap();
    });
}

/// Without: `drop(core.lock())` in `Inodes::take_in` and `Folded::cancel`; `drop(lock)` after, and
/// not before, the name is out in `rmdir`.
#[test]
fn a_directory_s_number_comes_free_only_after_its_name_went() {
    take_out_beside_a_commit(FileKind::Directory, |w, root| {
        w.namespace.remove_directory(&w.user, root, b"old").unwrap();
    });
}

/// Without: `drop(core.lock())` in `Inodes::take_in` and `Folded::cancel`; `drop(locks)` after, and
/// not before, the name is replaced in `try_rename`.
#[test]
fn a_replaced_file_s_number_comes_free_only_after_its_name_went() {
    take_out_beside_a_commit(FileKind::Regular, |w, root| {
        w.rename((root, "other"), (root, "old"), RenameMode::Replace)
            .unwrap();
    });
}

/// A name goes, and a new file gets the name and the number: who removes the name then removes
/// the new file and not what it looked at before.
///
/// Without: `if child.is_gone()` in `remove_file`.
#[test]
fn a_removal_takes_what_the_name_names() {
    check(800, World::either, |world, root| {
        world.file(root, "f").unwrap();
        let made = Arc::new(std::sync::OnceLock::new());
        let makes = Arc::clone(&made);
        race(
            world,
            vec![
                task(move |w: &World| w.remove(root, "f").is_ok()),
                task(move |w: &World| {
                    let _ = w.remove(root, "f");
                    w.namespace.sync().unwrap();
                    if let Ok(new) = w.namespace.create_file(&w.user, root, b"f", 0o600) {
                        makes.set(new.ino).unwrap();
                    }
                    true
                }),
            ],
        );
        // Whose reference on the new file is still held.
        if let Some(new) = made.get() {
            let links = world.namespace.attributes(*new).unwrap().link_count;
            assert_eq!(links, u32::from(world.look(root, "f").is_ok()));
            world.namespace.forget(*new, 1);
        }
    });
}

/// A number comes free by a commit, is used again and freed again before the commit has ended.
///
/// Without: `inode.dirty_generation() <= number` where `commit_transaction` takes freed inodes out.
#[test]
fn a_number_is_used_again_during_the_commit_that_freed_it() {
    check(800, World::new, |world, root| {
        world.file(root, "old").unwrap();
        world.namespace.sync().unwrap();
        world.remove(root, "old").unwrap();
        race(
            world,
            vec![
                task(move |w: &World| w.namespace.sync().unwrap()),
                task(move |w: &World| {
                    for _ in 0..3 {
                        w.file(root, "new").unwrap();
                        w.remove(root, "new").unwrap();
                    }
                }),
            ],
        );
    });
}

/// Overlapping writes and reads happen one after the other, and appends are whole.
///
/// Without: the range locks in `read`, `write` and `append`.
#[test]
fn overlapping_writes_are_whole() {
    check(300, World::either, |world, _| {
        let ino = file_with(world, &[b'-'; 4100]);
        race(
            world,
            vec![
                write_and_append(ino, b'a'),
                write_and_append(ino, b'b'),
                task(move |w: &World| assert_one_write(w, ino)),
            ],
        );
        let tail = world.content(ino)[4100..].to_vec();
        assert!(tail == b"aaabbb" || tail == b"bbbaaa", "{tail:?}");
        world.namespace.forget(ino, 1);
    });
}

/// A write beyond the end of file clears the rest of its last block, but not what another write
/// puts there meanwhile.
///
/// Without: the range of `Namespace::lock_write`, from the end of file on.
#[test]
fn a_write_beyond_the_end_spares_its_neighbour() {
    check(400, World::either, |world, _| {
        let ino = file_with(world, &[b'-'; 100]);
        race(
            world,
            vec![
                task(move |w: &World| w.namespace.write(ino, 5000, b"far").unwrap()),
                task(move |w: &World| w.namespace.write(ino, 90, &[b'n'; 100]).unwrap()),
            ],
        );
        let content = world.content(ino);
        assert_eq!(content.len(), 5003);
        assert_eq!(content[90..190], [b'n'; 100]);
        assert!(content[190..5000].iter().all(|byte| *byte == 0));
        world.namespace.forget(ino, 1);
    });
}

/// Truncates beside a write: what is written after the shorter one stays.
///
/// Meant for the loop that takes the range from further down in `truncate`; but 12,000 schedules
/// did not show its absence, which takes two switches at just the right places.
#[test]
fn truncates_beside_a_write() {
    check(400, World::either, |world, _| {
        let ino = file_with(world, &[b'-'; 9000]);
        let is_cut = Arc::new(AtomicBool::new(false));
        let was_cut = Arc::clone(&is_cut);
        let cut = move |w: &World, size_bytes| {
            let set = SetAttributes {
                size_bytes: Some(size_bytes),
                ..SetAttributes::default()
            };
            w.namespace.set_attributes(&w.user, ino, &set).unwrap();
        };
        let stays = race(
            world,
            vec![
                task(move |w: &World| {
                    let stays = was_cut.load(Ordering::SeqCst);
                    w.namespace.write(ino, 10, b"end").unwrap();
                    stays
                }),
                task(move |w: &World| {
                    cut(w, 10);
                    is_cut.store(true, Ordering::SeqCst);
                    false
                }),
                task(move |w: &World| {
                    cut(w, 8500);
                    false
                }),
            ],
        );
        let content = world.content(ino);
        assert_eq!(content[..10], [b'-'; 10]);
        if stays[0] {
            assert_eq!(&content[10..13], b"end");
        }
        for (offset, byte) in content.iter().enumerate() {
            assert!(b"-end\0".contains(byte), "{byte} at {offset}");
        }
        world.namespace.forget(ino, 1);
    });
}
