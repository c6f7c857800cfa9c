//! The namespace over the memory store, operation by operation.

use std::sync::Arc;
use std::time::Duration;

use finefs_namespace::types::{Caller, FileKind, Ino, SetAttributes, SetTime, Timestamp};
use finefs_namespace::{
    AllocateMode, DataTimes, Error, FileFlags, MemoryStore, Namespace, OpenAccess, Options,
    RenameMode, SyncScope, XattrMode,
};

fn memory() -> Arc<Namespace> {
    let store = MemoryStore::new(64 << 20, 0o755, 0, 0).unwrap();
    store.into_namespace(Options::default()).unwrap()
}

fn names(namespace: &Namespace, dir: Ino) -> Vec<String> {
    let mut names = Vec::new();
    namespace
        .read_directory(dir, 0, &mut |entry| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            true
        })
        .unwrap();
    names.sort();
    names
}

#[test]
fn files_are_made_written_read_and_removed() {
    let ns = memory();
    let root = Caller::root();
    let file = ns.create_file(&root, ns.root(), b"a", 0o644).unwrap();
    assert_eq!(
        ns.create_file(&root, ns.root(), b"a", 0o644),
        Err(Error::Exists)
    );
    assert_eq!(ns.write(file.ino, 5000, b"hello").unwrap(), 5);
    let mut buffer = [1; 6000];
    assert_eq!(ns.read(file.ino, 0, &mut buffer).unwrap(), 5005);
    assert!(buffer[..5000].iter().all(|byte| *byte == 0));
    assert_eq!(&buffer[5000..5005], b"hello");
    assert_eq!(ns.attributes(file.ino).unwrap().sectors, 8);
    assert_eq!(ns.append(file.ino, b"!").unwrap(), 5005);
    ns.sync_file(file.ino, SyncScope::All).unwrap();

    let free = ns.statfs().blocks_free;
    ns.remove_file(&root, ns.root(), b"a").unwrap();
    assert_eq!(ns.lookup(&root, ns.root(), b"a"), Err(Error::NotFound));
    assert_eq!(ns.attributes(file.ino).unwrap().link_count, 0);
    assert_eq!(ns.read(file.ino, 5000, &mut buffer).unwrap(), 6);
    ns.forget(file.ino, 1);
    assert_eq!(ns.attributes(file.ino), Err(Error::Stale));
    ns.sync().unwrap();
    assert_eq!(ns.statfs().blocks_free, free + 1);
    ns.shut_down().unwrap();
    assert!(matches!(ns.attributes(ns.root()), Err(Error::Io(_))));
}

#[test]
fn truncate_clears_what_it_cuts() {
    let ns = memory();
    let root = Caller::root();
    let ino = ns.create_file(&root, ns.root(), b"a", 0o644).unwrap().ino;
    ns.write(ino, 0, &[7; 20_000]).unwrap();
    let size = |size_bytes| SetAttributes {
        size_bytes: Some(size_bytes),
        ..Default::default()
    };
    ns.set_attributes(&root, ino, &size(5)).unwrap();
    assert_eq!(ns.attributes(ino).unwrap().sectors, 8);
    ns.set_attributes(&root, ino, &size(10_000)).unwrap();
    let mut buffer = [1; 10_000];
    assert_eq!(ns.read(ino, 0, &mut buffer).unwrap(), 10_000);
    assert_eq!(&buffer[..6], &[7, 7, 7, 7, 7, 0]);
    assert!(buffer[5..].iter().all(|byte| *byte == 0));
}

#[test]
fn allocation_modes() {
    let ns = memory();
    let root = Caller::root();
    let ino = ns.create_file(&root, ns.root(), b"a", 0o644).unwrap().ino;
    ns.allocate(ino, AllocateMode::KeepSize, 0, 40_000).unwrap();
    assert_eq!(ns.attributes(ino).unwrap().size_bytes, 0);
    assert_eq!(ns.attributes(ino).unwrap().sectors, 80);
    ns.write(ino, 100, b"x").unwrap();
    let mut buffer = [1; 101];
    assert_eq!(ns.read(ino, 0, &mut buffer).unwrap(), 101);
    assert!(buffer[..100].iter().all(|byte| *byte == 0));
    ns.allocate(ino, AllocateMode::Extend, 0, 40_960).unwrap();
    assert_eq!(ns.seek_data(ino, 0).unwrap(), 0);
    assert_eq!(ns.seek_hole(ino, 0).unwrap(), 4096);
    assert_eq!(ns.seek_data(ino, 4096), Err(Error::NoSuchOffset));
    ns.write(ino, 0, &[9; 40_960]).unwrap();
    ns.allocate(ino, AllocateMode::PunchHole, 4000, 10_000)
        .unwrap();
    let mut buffer = vec![1; 40_960];
    ns.read(ino, 0, &mut buffer).unwrap();
    for (offset, byte) in buffer.iter().enumerate() {
        assert_eq!(
            *byte,
            if (4000..14_000).contains(&offset) {
                0
            } else {
                9
            },
            "at {offset}"
        );
    }
    assert_eq!(ns.seek_hole(ino, 0).unwrap(), 4096);
    assert_eq!(ns.seek_data(ino, 4096).unwrap(), 12_288);
    ns.allocate(ino, AllocateMode::ZeroRange, 20_000, 1000)
        .unwrap();
    ns.read(ino, 0, &mut buffer).unwrap();
    assert!(buffer[20_000..21_000].iter().all(|byte| *byte == 0));
    assert_eq!((buffer[19_999], buffer[21_000]), (9, 9));
}

#[test]
fn directories_and_renames() {
    let ns = memory();
    let root = Caller::root();
    let a = ns
        .make_directory(&root, ns.root(), b"a", 0o755)
        .unwrap()
        .ino;
    let b = ns.make_directory(&root, a, b"b", 0o755).unwrap().ino;
    assert_eq!(ns.attributes(ns.root()).unwrap().link_count, 3);
    assert_eq!(ns.attributes(a).unwrap().link_count, 3);
    assert_eq!(
        ns.remove_directory(&root, ns.root(), b"a"),
        Err(Error::NotEmpty)
    );
    let replace = RenameMode::Replace;
    assert_eq!(
        ns.rename(&root, (ns.root(), b"a"), (b, b"x"), replace),
        Err(Error::Invalid)
    );
    assert_eq!(
        ns.rename(&root, (a, b"b"), (ns.root(), b"a"), replace),
        Err(Error::NotEmpty)
    );
    ns.rename(&root, (a, b"b"), (ns.root(), b"c"), replace)
        .unwrap();
    assert_eq!(ns.attributes(a).unwrap().link_count, 2);
    assert_eq!(ns.attributes(ns.root()).unwrap().link_count, 4);
    assert_eq!(ns.lookup(&root, b, b"..").unwrap().ino, ns.root());
    ns.create_file(&root, b, b"f", 0o600).unwrap();
    ns.create_file(&root, a, b"g", 0o600).unwrap();
    ns.rename(&root, (b, b"f"), (a, b"g"), RenameMode::Exchange)
        .unwrap();
    let no_replace = RenameMode::NoReplace;
    assert_eq!(
        ns.rename(&root, (b, b"f"), (a, b"g"), no_replace),
        Err(Error::Exists)
    );
    ns.rename(&root, (b, b"f"), (a, b"g"), replace).unwrap();
    assert_eq!(names(&ns, b), [".", ".."]);
    // A directory over an empty one.
    ns.remove_file(&root, a, b"g").unwrap();
    ns.rename(&root, (ns.root(), b"c"), (ns.root(), b"a"), replace)
        .unwrap();
    assert_eq!(names(&ns, ns.root()), [".", "..", "a"]);
    assert_eq!(ns.attributes(ns.root()).unwrap().link_count, 3);
    assert_eq!(
        ns.create_file(&root, a, b"late", 0o600),
        Err(Error::NotFound)
    );
    ns.remove_directory(&root, ns.root(), b"a").unwrap();
    assert_eq!(
        ns.create_file(&root, b, b"late", 0o600),
        Err(Error::NotFound)
    );
    ns.sync().unwrap();
}

#[test]
fn links_and_unnamed_files() {
    let ns = memory();
    let root = Caller::root();
    let file = ns.create_unnamed(&root, ns.root(), 0o600).unwrap().ino;
    assert_eq!(ns.attributes(file).unwrap().link_count, 0);
    ns.make_link(&root, file, ns.root(), b"now").unwrap();
    ns.make_link(&root, file, ns.root(), b"then").unwrap();
    assert_eq!(ns.attributes(file).unwrap().link_count, 2);
    ns.remove_file(&root, ns.root(), b"now").unwrap();
    ns.remove_file(&root, ns.root(), b"then").unwrap();
    assert_eq!(
        ns.make_link(&root, file, ns.root(), b"again"),
        Err(Error::NotFound)
    );
    ns.forget(file, 3);
    assert_eq!(ns.attributes(file), Err(Error::Stale));
    let link = ns
        .make_symlink(&root, ns.root(), b"link", b"to/there")
        .unwrap();
    assert_eq!(link.kind, FileKind::Symlink);
    assert_eq!(ns.read_symlink(link.ino).unwrap(), b"to/there");
}

#[test]
fn permissions_are_checked_for_others() {
    let ns = memory();
    let root = Caller::root();
    let user = Caller {
        uid: 1000,
        gid: 1000,
        groups: vec![7],
        umask: 0o022,
        checks: finefs_namespace::AccessChecks::Needed,
    };
    let denied = Err(Error::AccessDenied);
    assert_eq!(ns.create_file(&user, ns.root(), b"x", 0o666), denied);
    let dir = ns
        .make_directory(&root, ns.root(), b"d", 0o1777)
        .unwrap()
        .ino;
    let own = ns.create_file(&user, dir, b"own", 0o666).unwrap();
    assert_eq!((own.permissions, own.uid, own.gid), (0o644, 1000, 1000));
    let other = Caller {
        uid: 1001,
        gid: 1001,
        ..user.clone()
    };
    assert_eq!(
        ns.remove_file(&other, dir, b"own"),
        Err(Error::NotPermitted)
    );
    assert!(matches!(
        ns.open(&other, own.ino, OpenAccess::Write),
        Err(Error::AccessDenied)
    ));
    let open = ns.open(&other, own.ino, OpenAccess::Read).unwrap();
    assert_eq!(ns.open_file_count(), 1);
    let again = ns.open(&other, own.ino, OpenAccess::Read).unwrap();
    assert_eq!(ns.open_file_count(), 2);
    drop((open, again));
    assert_eq!(ns.open_file_count(), 0);
    let give = SetAttributes {
        uid: Some(1001),
        ..Default::default()
    };
    assert_eq!(
        ns.set_attributes(&user, own.ino, &give),
        Err(Error::NotPermitted)
    );
    let nobody = SetAttributes {
        uid: Some(u32::MAX),
        ..Default::default()
    };
    let refused = ns.set_attributes(&root, own.ino, &nobody);
    assert_eq!(refused, Err(Error::Invalid));
    let group = SetAttributes {
        gid: Some(7),
        ..Default::default()
    };
    ns.set_attributes(&user, own.ino, &group).unwrap();
    ns.set_xattr(&user, own.ino, b"user.k", b"v", XattrMode::Create)
        .unwrap();
    let denied = Err(Error::AccessDenied);
    assert_eq!(
        ns.set_xattr(&other, own.ino, b"user.k", b"w", XattrMode::Set),
        denied
    );
    assert_eq!(ns.xattr(&other, own.ino, b"user.k").unwrap(), b"v");
    assert_eq!(
        ns.list_xattrs(&other, own.ino).unwrap(),
        [b"user.k".to_vec()]
    );
    ns.remove_xattr(&user, own.ino, b"user.k").unwrap();
    assert_eq!(
        ns.remove_xattr(&user, own.ino, b"user.k"),
        Err(Error::NoAttribute)
    );
}

#[test]
fn a_full_store_says_so_and_recovers() {
    let store = MemoryStore::new(1 << 20, 0o755, 0, 0).unwrap();
    let ns = store.into_namespace(Options::default()).unwrap();
    let root = Caller::root();
    let ino = ns.create_file(&root, ns.root(), b"a", 0o644).unwrap().ino;
    assert_eq!(ns.write(ino, 0, &vec![1; 2 << 20]), Err(Error::NoSpace));
    assert_eq!(ns.attributes(ino).unwrap().size_bytes, 0);
    ns.write(ino, 0, &vec![1; 1 << 20]).unwrap();
    assert_eq!(ns.write(ino, 1 << 20, b"x"), Err(Error::NoSpace));
    ns.remove_file(&root, ns.root(), b"a").unwrap();
    ns.forget(ino, 1);
    let ino = ns.create_file(&root, ns.root(), b"b", 0o644).unwrap().ino;
    ns.write(ino, 0, &vec![2; 1 << 20]).unwrap();
}

/// As by a FUSE server, which reads the kernel's FORGET after the name is gone.
#[test]
fn space_that_is_given_back_late_is_waited_for_where_it_is_expected() {
    for is_expected in [false, true] {
        let store = MemoryStore::new(1 << 20, 0o755, 0, 0).unwrap();
        let ns = store.into_namespace(Options::default()).unwrap();
        if is_expected {
            ns.expect_late_releases(Duration::from_millis(400));
        }
        let root = Caller::root();
        let file = |name| ns.create_file(&root, ns.root(), name, 0o644).unwrap().ino;
        let (old, new) = (file(b"old"), file(b"new"));
        let data = vec![1; 600 << 10];
        ns.write(old, 0, &data).unwrap();
        ns.remove_file(&root, ns.root(), b"old").unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                ns.forget(old, 1);
            });
            assert_eq!(ns.write(new, 0, &data).is_ok(), is_expected);
        });
        ns.shut_down().unwrap();
    }
}

#[test]
fn a_write_that_finds_no_space_changes_nothing() {
    let store = MemoryStore::new(1 << 20, 0o755, 0, 0).unwrap();
    let ns = store.into_namespace(Options::default()).unwrap();
    let root = Caller::root();
    let ino = ns.create_file(&root, ns.root(), b"a", 0o644).unwrap().ino;
    ns.write(ino, 0, &[1; 8192]).unwrap();
    assert_eq!(ns.write(ino, 0, &vec![2; 2 << 20]), Err(Error::NoSpace));
    let mut content = [0; 8192];
    ns.read(ino, 0, &mut content).unwrap();
    assert_eq!(content, [1; 8192]);
}

/// Pages that a cache writes out were promised to be kept: what has storage is, when space runs
/// out, and the error stands for the rest.
#[test]
fn pages_are_written_back_where_there_is_space_for_them() {
    let store = MemoryStore::new(1 << 20, 0o755, 0, 0).unwrap();
    let ns = store.into_namespace(Options::default()).unwrap();
    let root = Caller::root();
    let create = |name: &[u8]| ns.create_file(&root, ns.root(), name, 0o644).unwrap().ino;
    let (ino, filler) = (create(b"a"), create(b"filler"));
    let block = 4096;
    for at in [0, 2 * block, 4 * block] {
        ns.write(ino, at as u64, &vec![1; block]).unwrap();
    }
    while ns.append(filler, &[1]).is_ok() {}
    // Zeros are in a hole without being written.
    let mut pages = vec![2; 5 * block];
    pages[3 * block..4 * block].fill(0);
    let write_back =
        |at: usize, to: usize| ns.write_back(ino, at as u64, &pages[at..to], DataTimes::Set);
    assert_eq!(write_back(0, 5 * block), Err(Error::NoSpace));
    let mut found = vec![0; 5 * block];
    ns.read(ino, 0, &mut found).unwrap();
    assert!(found[block..2 * block].iter().all(|byte| *byte == 0));
    found[block..2 * block].fill(2);
    assert!(found == pages);
    let rest = 2 * block + 100;
    assert_eq!(write_back(rest, 5 * block), Ok(5 * block - rest));
}

/// As in ext4 (`ext4_ioctl_check_immutable`): for the superuser, too.
#[test]
fn an_immutable_file_gets_no_other_flags() {
    let ns = memory();
    let root = Caller::root();
    let owner = Caller {
        uid: 1000,
        gid: 1000,
        ..Caller::root()
    };
    let ino = ns.create_file(&owner, ns.root(), b"a", 0o644);
    let ino = ino.unwrap().ino;
    ns.set_flags(&root, ino, |_| FileFlags::IMMUTABLE).unwrap();
    for caller in [&owner, &root] {
        let more = ns.set_flags(caller, ino, |flags| flags | FileFlags::NO_DUMP);
        assert_eq!(more, Err(Error::NotPermitted));
        ns.set_flags(caller, ino, |flags| flags).unwrap();
    }
    let both = |_| FileFlags::NO_DUMP | FileFlags::APPEND_ONLY;
    ns.set_flags(&root, ino, both).unwrap();
}

/// What is stored into a page of a file that may not be written does not come into it.
#[test]
fn pages_of_protected_files_are_not_written_back() {
    let ns = memory();
    let root = Caller::root();
    let ino = ns.create_file(&root, ns.root(), b"a", 0o644).unwrap().ino;
    ns.write(ino, 0, &[1; 5000]).unwrap();
    let mut page = vec![1; 904];
    page.extend([2; 100]);
    for (flag, at_end) in [
        (FileFlags::APPEND_ONLY, Ok(1004)),
        (FileFlags::IMMUTABLE, Err(Error::NotPermitted)),
    ] {
        ns.set_flags(&root, ino, |_| flag).unwrap();
        let refused = Err(Error::NotPermitted);
        assert_eq!(
            ns.write_back(ino, 0, &[2; 4096], DataTimes::Set),
            refused,
            "{flag:?}"
        );
        assert_eq!(
            ns.write_back(ino, 0, &[1; 4096], DataTimes::Set),
            Ok(4096),
            "nothing new"
        );
        assert_eq!(
            ns.write_back(ino, 4096, &page, DataTimes::Set),
            at_end,
            "{flag:?}"
        );
        ns.set_flags(&root, ino, |_| FileFlags::empty()).unwrap();
        ns.write(ino, 0, &[1; 5000]).unwrap();
        let size = SetAttributes {
            size_bytes: Some(5000),
            ..SetAttributes::default()
        };
        ns.set_attributes(&root, ino, &size).unwrap();
    }
}

/// A kernel may write out what was appended in any order.
#[test]
fn what_was_appended_is_written_back_from_its_end_on() {
    let ns = memory();
    let root = Caller::root();
    let ino = ns.create_file(&root, ns.root(), b"a", 0o644).unwrap().ino;
    ns.write(ino, 0, &[1; 100]).unwrap();
    ns.set_flags(&root, ino, |_| FileFlags::APPEND_ONLY)
        .unwrap();
    let mut appended = vec![1; 100];
    appended.resize(3 * 4096, 2);
    for at in [2 * 4096, 4096, 0] {
        let page = &appended[at..at + 4096];
        assert_eq!(
            ns.write_back(ino, at as u64, page, DataTimes::Set),
            Ok(4096),
            "{at}"
        );
    }
    let mut found = vec![0; appended.len()];
    assert_eq!(ns.read(ino, 0, &mut found), Ok(appended.len()));
    assert!(found == appended);
    let refused = Err(Error::NotPermitted);
    assert_eq!(ns.write_back(ino, 0, &[3; 4096], DataTimes::Set), refused);
}

/// A cache that keeps the times of files finds them as they were, whatever its data does to a file.
#[test]
fn pages_of_a_cache_that_keeps_the_times_leave_them() {
    let (ns, root) = (memory(), Caller::root());
    let ino = ns.create_file(&root, ns.root(), b"f", 0o644).unwrap().ino;
    let past = Timestamp::new(1, 2);
    let set = SetAttributes {
        modified: Some(SetTime::To(past)),
        changed: Some(past),
        ..SetAttributes::default()
    };
    ns.set_attributes(&root, ino, &set).unwrap();
    let times = || {
        let times = ns.attributes(ino).unwrap().times;
        (times.modified, times.changed)
    };
    // What grows it, and what lies over its data.
    for byte in [1, 2] {
        let data = [byte; 4096];
        assert_eq!(ns.write_back(ino, 0, &data, DataTimes::Kept), Ok(4096));
        assert_eq!(times(), (past, past));
    }
    ns.write_back(ino, 0, &[3; 4096], DataTimes::Set).unwrap();
    let (modified, changed) = times();
    assert!(modified > past && changed > past);
}

/// Times that come with a change time are of data that a kernel's cache got before the file became
/// immutable.
#[test]
fn a_cache_sets_the_times_of_a_file_that_became_immutable() {
    let (ns, root) = (memory(), Caller::root());
    let ino = ns.create_file(&root, ns.root(), b"f", 0o644).unwrap().ino;
    ns.set_flags(&root, ino, |_| FileFlags::IMMUTABLE).unwrap();
    let when = Timestamp::new(1, 2);
    let set = SetAttributes {
        modified: Some(SetTime::To(when)),
        changed: Some(when),
        ..SetAttributes::default()
    };
    assert_eq!(
        ns.set_attributes(&root, ino, &set).unwrap().times.modified,
        when
    );
    for other in [
        SetAttributes {
            accessed: Some(SetTime::To(when)),
            ..set
        },
        SetAttributes {
            changed: None,
            ..set
        },
    ] {
        let refused = ns.set_attributes(&root, ino, &other);
        assert_eq!(refused.unwrap_err(), Error::NotPermitted, "{other:?}");
    }
}

/// No image has a NUL in a target or in the name of an attribute.
#[test]
fn what_holds_a_nul_is_refused() {
    let (ns, root) = (memory(), Caller::root());
    let link = ns.make_symlink(&root, ns.root(), b"link", b"a\0b");
    assert_eq!(link.unwrap_err(), Error::Invalid);
    let ino = ns.create_file(&root, ns.root(), b"f", 0o644).unwrap().ino;
    for name in [&b"user.a\0b"[..], b"trusted.\0", b"\0"] {
        let set = ns.set_xattr(&root, ino, name, b"x", XattrMode::Set);
        assert_eq!(set.unwrap_err(), Error::Invalid);
        assert_eq!(ns.xattr(&root, ino, name).unwrap_err(), Error::Invalid);
    }
    assert_eq!(ns.lookup(&root, ns.root(), b"link"), Err(Error::NotFound));
}

/// The mount ends while a file is open: closing it afterwards does nothing.
#[test]
fn a_file_may_be_closed_after_the_shut_down() {
    let ns = memory();
    let root = Caller::root();
    let file = ns.create_file(&root, ns.root(), b"a", 0o644).unwrap();
    let open = ns.open(&root, file.ino, OpenAccess::Read).unwrap();
    ns.shut_down().unwrap();
    drop(open);
    assert_eq!(ns.open_file_count(), 0);
}

/// There is nothing to make durable, so nothing waits for a commit: no fsync, and not what was
/// removed.
#[test]
fn what_is_removed_from_memory_is_free_at_once() {
    let store = MemoryStore::new(64 << 20, 0o755, 0, 0).unwrap();
    let options = Options {
        commit_interval: std::time::Duration::from_secs(1 << 20),
        ..Options::default()
    };
    let ns = store.into_namespace(options).unwrap();
    let root = Caller::root();
    let before = ns.statfs().blocks_free;
    let file = ns.create_file(&root, ns.root(), b"gone", 0o644).unwrap();
    ns.write(file.ino, 0, b"data").unwrap();
    ns.sync_file(file.ino, SyncScope::All).unwrap();
    ns.remove_file(&root, ns.root(), b"gone").unwrap();
    assert_eq!(ns.statfs().blocks_free, before - 1, "it is in use");
    ns.forget(file.ino, 1);
    assert_eq!(ns.statfs().blocks_free, before);
    ns.shut_down().unwrap();
}

/// A directory in use was removed, and then its parent: the parent's number does not lead
/// elsewhere.
#[test]
fn a_removed_directory_has_no_strange_parent() {
    let ns = memory();
    let root = Caller::root();
    let a = ns.make_directory(&root, ns.root(), b"a", 0o755).unwrap();
    let b = ns.make_directory(&root, a.ino, b"b", 0o755).unwrap();
    ns.remove_directory(&root, a.ino, b"b").unwrap();
    assert_eq!(ns.lookup(&root, b.ino, b".."), Err(Error::NotFound));
    ns.remove_directory(&root, ns.root(), b"a").unwrap();
    ns.forget(a.ino, 1);
    for number in 0..100 {
        let name = format!("{number}");
        let made = ns.make_directory(&root, ns.root(), name.as_bytes(), 0o755);
        ns.forget(made.unwrap().ino, 1);
    }
    assert_eq!(ns.lookup(&root, b.ino, b".."), Err(Error::NotFound));
}
