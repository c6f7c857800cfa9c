//! Path walks: what they lead to, what they refuse, and that they hold nothing on the way.

use std::sync::Arc;

use finefs_namespace::{
    At, AtimeUpdate, Caller, Create, Error, FileKind, LastLink, MemoryStore, Namespace, OpenAccess,
    OpenHow, Options, RenameMode, Result,
};

fn space() -> Arc<Namespace> {
    let store = MemoryStore::new(1 << 20, 0o755, 0, 0).unwrap();
    Namespace::new(Arc::new(store), Options::default()).unwrap()
}

fn at<'p>(space: &Namespace, path: &'p str) -> At<'p> {
    At {
        start: space.root(),
        path: path.as_bytes(),
    }
}

/// What is at a path: its number.
fn number(space: &Namespace, path: &str, link: LastLink) -> Result<u64> {
    let found = space.attributes_at(&Caller::root(), at(space, path), link)?;
    Ok(found.ino.0)
}

fn follow(space: &Namespace, path: &str) -> Result<u64> {
    number(space, path, LastLink::Follow)
}

fn open_how(access: Option<OpenAccess>, create: Create) -> OpenHow {
    OpenHow {
        access,
        is_truncated: false,
        create,
        last_link: LastLink::Follow,
        is_directory_wanted: false,
        atime: AtimeUpdate::ByPolicy,
    }
}

fn tree() -> Arc<Namespace> {
    let space = space();
    let root = Caller::root();
    for path in ["a", "a/b", "a/b/c"] {
        space
            .make_directory_at(&root, at(&space, path), 0o755)
            .unwrap();
    }
    let how = open_how(Some(OpenAccess::Write), Create::New { permissions: 0o644 });
    let opened = space.open_at(&root, at(&space, "a/b/f"), &how).unwrap();
    space.close(opened);
    for (target, link) in [
        ("b", "a/rel"),
        ("/a/b", "abs"),
        ("b/f", "a/file"),
        ("../../../../a", "a/b/out"),
        ("loop", "loop"),
        ("b/", "a/slash"),
        ("nowhere", "dangling"),
    ] {
        space
            .make_symlink_at(&root, at(&space, link), target.as_bytes())
            .unwrap();
    }
    space
}

#[test]
fn paths_lead_where_posix_says() {
    let space = tree();
    let (a, b) = (follow(&space, "a").unwrap(), follow(&space, "a/b").unwrap());
    let f = follow(&space, "a/b/f").unwrap();
    for path in [
        "/a",
        "//a",
        "a/",
        "a//",
        "./a",
        "a/.",
        "a/b/..",
        "../a",
        "a/b/out",
        "abs/out/.",
    ] {
        assert_eq!(follow(&space, path), Ok(a), "{path}");
    }
    for path in [
        "a/rel",
        "a/rel/",
        "abs",
        "a/slash",
        "abs/c/..",
        "a/./b//",
        "/../../a/b",
    ] {
        assert_eq!(follow(&space, path), Ok(b), "{path}");
    }
    for path in ["a/file", "abs/f", "a/slash/f", "a/b/out/rel/f"] {
        assert_eq!(follow(&space, path), Ok(f), "{path}");
    }
    let root = space.root().0;
    for path in ["/", "//", "/..", "..", "a/..", "/.", "a/b/out/.."] {
        assert_eq!(follow(&space, path), Ok(root), "{path}");
    }
    // A link is kept, unless a slash asks for what it leads to.
    assert_ne!(number(&space, "abs", LastLink::Keep), Ok(b));
    assert_eq!(number(&space, "abs/", LastLink::Keep), Ok(b));
}

#[test]
fn paths_that_lead_nowhere_say_why() {
    let space = tree();
    let long = "x".repeat(256);
    for (path, error) in [
        ("", Error::NotFound),
        ("nothing", Error::NotFound),
        ("nothing/..", Error::NotFound),
        ("dangling", Error::NotFound),
        ("a/b/f/", Error::NotADirectory),
        ("a/b/f/.", Error::NotADirectory),
        ("a/file/", Error::NotADirectory),
        ("a/b/f/..", Error::NotADirectory),
        ("loop", Error::SymlinkLoop),
        ("loop/x", Error::SymlinkLoop),
        (&long, Error::NameTooLong),
    ] {
        assert_eq!(follow(&space, path), Err(error), "{path:?}");
    }
    assert!(number(&space, "loop", LastLink::Keep).is_ok());
}

#[test]
fn forty_links_are_followed_and_no_more() {
    let space = space();
    let root = Caller::root();
    space
        .make_directory_at(&root, at(&space, "l0"), 0o755)
        .unwrap();
    for number in 1..=41 {
        let (target, link) = (format!("l{}", number - 1), format!("l{number}"));
        space
            .make_symlink_at(&root, at(&space, &link), target.as_bytes())
            .unwrap();
    }
    assert!(follow(&space, "l40").is_ok());
    assert_eq!(follow(&space, "l41"), Err(Error::SymlinkLoop));
    // All links of a walk count, not those of one component.
    assert_eq!(follow(&space, "l20/../l21"), Err(Error::SymlinkLoop));
    assert!(follow(&space, "l20/../l20").is_ok());
}

#[test]
fn search_permission_is_asked_on_the_way() {
    let space = tree();
    let someone = Caller {
        uid: 1000,
        gid: 1000,
        groups: Vec::new(),
        umask: 0o022,
        checks: finefs_namespace::AccessChecks::Needed,
    };
    let look = |path| {
        let found = space.attributes_at(&someone, at(&space, path), LastLink::Follow);
        found.map(|found| found.kind)
    };
    assert_eq!(look("a/b/f"), Ok(FileKind::Regular));
    let change = finefs_namespace::SetAttributes {
        permissions: Some(0o600),
        ..Default::default()
    };
    let a = finefs_namespace::Ino(follow(&space, "a").unwrap());
    space.set_attributes(&Caller::root(), a, &change).unwrap();
    assert_eq!(look("a"), Ok(FileKind::Directory));
    assert_eq!(look("a/b"), Err(Error::AccessDenied));
    assert_eq!(look("abs"), Err(Error::AccessDenied));
    let made = space.make_directory_at(&someone, at(&space, "new"), 0o755);
    assert_eq!(made, Err(Error::AccessDenied));
}

/// What was walked through can be removed at once and is freed: no reference is left behind.
#[test]
fn a_walk_leaves_nothing_behind() {
    let space = tree();
    let root = Caller::root();
    space.sync().unwrap();
    for path in ["a/b/c", "a/b/f", "a/rel/out/file"] {
        follow(&space, path).unwrap();
        let held = space
            .walk(&root, at(&space, path), LastLink::Follow)
            .unwrap();
        space.forget(held.ino, 1);
        let opened = space
            .open_at(&root, at(&space, path), &open_how(None, Create::Never))
            .unwrap();
        assert_eq!(space.open_file_count(), 1);
        space.close(opened);
    }
    let made = space.make_directory_at(&root, at(&space, "a/b/f/new"), 0o755);
    assert_eq!(made, Err(Error::NotADirectory));
    for path in [
        "a/rel", "a/file", "a/slash", "a/b/out", "a/b/f", "abs", "loop", "dangling",
    ] {
        space.remove_file_at(&root, at(&space, path)).unwrap();
    }
    for path in ["a/b/c/", "a/b", "a"] {
        space.remove_directory_at(&root, at(&space, path)).unwrap();
    }
    space.sync().unwrap();
    let statfs = space.statfs();
    let fresh = self::space();
    fresh.sync().unwrap();
    assert_eq!(statfs.inodes_free, fresh.statfs().inodes_free);
    assert_eq!(statfs.blocks_free, fresh.statfs().blocks_free);
}

#[test]
fn opening_makes_what_a_dangling_link_names() {
    let space = tree();
    let root = Caller::root();
    let make = |create| {
        let how = open_how(Some(OpenAccess::Write), create);
        let opened = space.open_at(&root, at(&space, "dangling"), &how)?;
        let ino = opened.ino();
        space.close(opened);
        Ok::<u64, Error>(ino.0)
    };
    let permissions = 0o644;
    assert_eq!(make(Create::New { permissions }), Err(Error::Exists));
    let made = make(Create::IfMissing { permissions }).unwrap();
    assert_eq!(follow(&space, "nowhere"), Ok(made));
    assert_eq!(make(Create::IfMissing { permissions }), Ok(made));
}

/// What a path leads to, asked three times: walked, remembered, found. All must be the same.
fn thrice(space: &Namespace, path: &str) -> Result<u64> {
    let answers = [(); 3].map(|()| follow(space, path));
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{path}: {answers:?}"
    );
    answers[0].clone()
}

#[test]
fn what_was_found_before_is_not_found_where_it_was() {
    let space = tree();
    let root = Caller::root();
    let remove = |path| space.remove_file_at(&root, at(&space, path)).unwrap();
    let make_dir = |path| {
        space
            .make_directory_at(&root, at(&space, path), 0o755)
            .unwrap()
    };
    let make_file = |path| {
        let how = open_how(Some(OpenAccess::Write), Create::New { permissions: 0o644 });
        space.close(space.open_at(&root, at(&space, path), &how).unwrap());
    };
    let rename = |from, to, mode| {
        let (from, to) = (at(&space, from), at(&space, to));
        space.rename_at(&root, from, to, mode).unwrap();
    };
    let f = thrice(&space, "a/b/f").unwrap();

    // Another name; the first one taken away; the file removed, and another made, maybe with its
    // number.
    let held = space
        .walk(&root, at(&space, "a/b/f"), LastLink::Follow)
        .unwrap();
    space
        .make_link_at(&root, held.ino, at(&space, "a/g"))
        .unwrap();
    space.forget(held.ino, 1);
    assert_eq!(thrice(&space, "a/g"), Ok(f));
    remove("a/b/f");
    assert_eq!(thrice(&space, "a/b/f"), Err(Error::NotFound));
    assert_eq!(thrice(&space, "a/g"), Ok(f));
    remove("a/g");
    for _ in 0..3 {
        make_file("a/b/new");
        thrice(&space, "a/b/new").unwrap();
        remove("a/b/new");
        assert_eq!(thrice(&space, "a/b/new"), Err(Error::NotFound));
        make_file("a/b/newer");
        assert_eq!(thrice(&space, "a/b/new"), Err(Error::NotFound));
        remove("a/b/newer");
    }

    // A file renamed over another, and two that change places.
    make_file("a/b/one");
    make_file("a/b/two");
    let (one, two) = (
        thrice(&space, "a/b/one").unwrap(),
        thrice(&space, "a/b/two").unwrap(),
    );
    rename("a/b/one", "a/b/two", RenameMode::Exchange);
    assert_eq!(
        (thrice(&space, "a/b/one"), thrice(&space, "a/b/two")),
        (Ok(two), Ok(one))
    );
    rename("a/b/one", "a/b/two", RenameMode::Replace);
    assert_eq!(thrice(&space, "a/b/one"), Err(Error::NotFound));
    assert_eq!(thrice(&space, "a/b/two"), Ok(two));

    // Directories on the way: renamed, away and back; changed places; replaced by an empty one.
    rename("a", "z", RenameMode::NoReplace);
    assert_eq!(thrice(&space, "a/b/two"), Err(Error::NotFound));
    assert_eq!(thrice(&space, "z/b/two"), Ok(two));
    make_dir("a");
    make_dir("a/b");
    assert_eq!(thrice(&space, "a/b/two"), Err(Error::NotFound));
    rename("a", "z", RenameMode::Exchange);
    assert_eq!(thrice(&space, "a/b/two"), Ok(two));
    assert_eq!(thrice(&space, "z/b/two"), Err(Error::NotFound));
    let b = thrice(&space, "z/b").unwrap();
    make_dir("z/empty");
    assert_ne!(thrice(&space, "z/empty"), Ok(b));
    rename("z/b", "z/empty", RenameMode::Replace);
    assert_eq!(thrice(&space, "z/empty"), Ok(b));
    assert_eq!(thrice(&space, "z/b"), Err(Error::NotFound));
}

#[test]
fn a_directory_that_was_removed_is_not_the_next_of_its_name() {
    let space = tree();
    let root = Caller::root();
    let c = thrice(&space, "a/b/c").unwrap();
    assert_eq!(thrice(&space, "a/b/c/."), Ok(c));
    // Held, it keeps its number; the next has another.
    let held = space
        .walk(&root, at(&space, "a/b/c"), LastLink::Follow)
        .unwrap();
    space
        .remove_directory_at(&root, at(&space, "a/b/c"))
        .unwrap();
    assert_eq!(thrice(&space, "a/b/c"), Err(Error::NotFound));
    assert_eq!(thrice(&space, "a/b/c/x"), Err(Error::NotFound));
    space
        .make_directory_at(&root, at(&space, "a/b/c"), 0o755)
        .unwrap();
    space
        .make_directory_at(&root, at(&space, "a/b/c/x"), 0o755)
        .unwrap();
    assert_ne!(thrice(&space, "a/b/c"), Ok(c));
    assert!(thrice(&space, "a/b/c/x").is_ok());
    space.forget(held.ino, 1);

    // A symbolic link where a directory was.
    space
        .remove_directory_at(&root, at(&space, "a/b/c/x"))
        .unwrap();
    space
        .remove_directory_at(&root, at(&space, "a/b/c"))
        .unwrap();
    space
        .make_symlink_at(&root, at(&space, "a/b/c"), b"../..")
        .unwrap();
    assert_eq!(thrice(&space, "a/b/c"), Ok(space.root().0));
    assert_eq!(thrice(&space, "a/b/c/a"), follow(&space, "a"));
}

/// The way over a symbolic link is not one along names: the link may go without anything that is on
/// the way.
#[test]
fn links_and_parents_on_the_way_may_go() {
    let space = tree();
    let root = Caller::root();
    let (b, f) = (
        thrice(&space, "a/b").unwrap(),
        thrice(&space, "a/b/f").unwrap(),
    );
    for path in ["a/rel", "a/rel/", "abs"] {
        assert_eq!(thrice(&space, path), Ok(b));
    }
    for path in ["a/rel/f", "abs/f", "a/file", "abs/../file"] {
        assert_eq!(thrice(&space, path), Ok(f));
    }
    for link in ["a/rel", "abs", "a/file"] {
        let kept = || number(&space, link, LastLink::Keep);
        let found = (kept(), kept(), follow(&space, link));
        assert_eq!(found.0, found.1);
        assert_ne!(found.0, found.2);
        space.remove_file_at(&root, at(&space, link)).unwrap();
    }
    for path in [
        "a/rel",
        "a/rel/",
        "abs",
        "a/rel/f",
        "abs/f",
        "a/file",
        "abs/../file",
    ] {
        assert_eq!(thrice(&space, path), Err(Error::NotFound), "{path}");
    }

    for path in ["a/b/c/../f", "a/b/c/.././f"] {
        assert_eq!(thrice(&space, path), Ok(f));
    }
    assert_eq!(thrice(&space, "a/b/c/../../b"), Ok(b));
    space
        .remove_directory_at(&root, at(&space, "a/b/c"))
        .unwrap();
    for path in ["a/b/c/../f", "a/b/c/.././f", "a/b/c/../../b"] {
        assert_eq!(thrice(&space, path), Err(Error::NotFound), "{path}");
    }
}

/// From a directory that is renamed, and removed, while its number is used as a start.
#[test]
fn a_start_may_move_and_go() {
    let space = tree();
    let root = Caller::root();
    let b = space
        .walk(&root, at(&space, "a/b"), LastLink::Follow)
        .unwrap();
    let from = |path: &'static str| {
        let at = At {
            start: b.ino,
            path: path.as_bytes(),
        };
        let find = || space.attributes_at(&root, at, LastLink::Follow);
        let answers = [(); 3].map(|()| find().map(|found| found.ino.0));
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{path}");
        answers[0].clone()
    };
    let (c, f) = (from("c").unwrap(), from("f").unwrap());
    // The same name from elsewhere is another.
    assert_eq!(thrice(&space, "f"), Err(Error::NotFound));
    let (old, new) = (at(&space, "a/b"), at(&space, "moved"));
    space
        .rename_at(&root, old, new, RenameMode::NoReplace)
        .unwrap();
    assert_eq!(
        (from("c"), from("f"), from(".")),
        (Ok(c), Ok(f), Ok(b.ino.0))
    );
    for file in ["moved/f", "moved/out"] {
        space.remove_file_at(&root, at(&space, file)).unwrap();
    }
    for dir in ["moved/c", "moved"] {
        space.remove_directory_at(&root, at(&space, dir)).unwrap();
    }
    for path in ["c", "f", "./f", "c/."] {
        assert_eq!(from(path), Err(Error::NotFound), "{path}");
    }
    space.forget(b.ino, 1);
}

#[test]
fn who_may_not_search_does_not_find_what_others_found() {
    let space = tree();
    let user = Caller {
        uid: 1000,
        gid: 1000,
        checks: finefs_namespace::AccessChecks::Needed,
        ..Caller::root()
    };
    let f = thrice(&space, "a/b/f").unwrap();
    let look = || {
        let found = space.attributes_at(&user, at(&space, "a/b/f"), LastLink::Follow);
        found.map(|found| found.ino.0)
    };
    assert_eq!(look(), Ok(f));
    let b = space
        .walk(&Caller::root(), at(&space, "a/b"), LastLink::Follow)
        .unwrap();
    let closed = finefs_namespace::SetAttributes {
        permissions: Some(0o700),
        ..Default::default()
    };
    space
        .set_attributes(&Caller::root(), b.ino, &closed)
        .unwrap();
    space.forget(b.ino, 1);
    assert_eq!(look(), Err(Error::AccessDenied));
    assert_eq!(thrice(&space, "a/b/f"), Ok(f));
}
