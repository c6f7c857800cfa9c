//! Which reads are noted in the access time.

use std::sync::Arc;

use finefs_namespace::types::{Caller, Ino, SetAttributes, SetTime, Timestamp};
use finefs_namespace::{
    AccessChecks, At, AtimePolicy, AtimeUpdate, Create, Error, LastLink, MemoryStore, Namespace,
    OpenAccess, OpenHow, Options, Store,
};
use finefs_testkit::CheckedStore;

/// A file with content, an empty one, a directory and a symbolic link.
struct World {
    ns: Namespace,
    inos: [Ino; 4],
}

const NAMES: [&[u8]; 4] = [b"file", b"empty", b"dir", b"link"];

impl World {
    fn make(store: Arc<dyn Store>, atime: AtimePolicy) -> World {
        World::of(open(store, atime))
    }

    fn of(ns: Namespace) -> World {
        let root = Caller::root();
        let at = ns.root();
        let [file, empty] = ["file", "empty"].map(|name| {
            ns.create_file(&root, at, name.as_bytes(), 0o644)
                .unwrap()
                .ino
        });
        ns.write(file, 0, b"content").unwrap();
        let dir = ns.make_directory(&root, at, b"dir", 0o755).unwrap().ino;
        let link = ns.make_symlink(&root, at, b"link", b"file").unwrap().ino;
        let world = World {
            ns,
            inos: [file, empty, dir, link],
        };
        world.age(past());
        world
    }

    /// Sets all access times, by which the change times become those of now.
    fn age(&self, to: Timestamp) {
        let change = SetAttributes {
            accessed: Some(SetTime::To(to)),
            ..SetAttributes::default()
        };
        for ino in self.inos {
            self.ns
                .set_attributes(&Caller::root(), ino, &change)
                .unwrap();
        }
    }

    fn read_all(&self, atime: AtimeUpdate) {
        let [file, empty, dir, link] = self.inos;
        let mut buffer = [0; 4];
        for ino in [file, empty] {
            self.ns.read_with_atime(ino, 0, &mut buffer, atime).unwrap();
        }
        self.ns
            .read_directory_with_atime(dir, 0, &mut |_| true, atime)
            .unwrap();
        if atime == AtimeUpdate::ByPolicy {
            self.ns.read_symlink(link).unwrap();
        }
    }

    fn accessed(&self) -> [Timestamp; 4] {
        self.inos
            .map(|ino| self.ns.attributes(ino).unwrap().times.accessed)
    }
}

fn past() -> Timestamp {
    Timestamp::new(1_000_000, 0)
}

fn open(store: Arc<dyn Store>, atime: AtimePolicy) -> Namespace {
    let options = Options {
        atime,
        ..Options::default()
    };
    Namespace::without_thread(store, options).unwrap()
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(1 << 20, 0o755, 0, 0).unwrap())
}

#[test]
fn reads_of_every_kind_are_noted_and_kept() {
    let store = Arc::new(CheckedStore::reloading(16 << 20));
    for store in [memory(), store.clone() as Arc<dyn Store>] {
        let world = World::make(store, AtimePolicy::Relatime);
        // A read of nothing is none.
        world.ns.read(world.inos[0], 0, &mut []).unwrap();
        assert_eq!(world.accessed(), [past(); 4]);
        world.read_all(AtimeUpdate::ByPolicy);
        let accessed = world.accessed();
        assert!(accessed.iter().all(|time| *time > past()), "{accessed:?}");
        world.ns.shut_down().unwrap();
    }
    let ns = open(store, AtimePolicy::Relatime);
    for name in NAMES {
        let found = ns.lookup(&Caller::root(), ns.root(), name).unwrap();
        assert!(found.times.accessed > past(), "{}", name.escape_ascii());
    }
    ns.shut_down().unwrap();
}

#[test]
fn a_link_that_is_read_by_its_path_is_noted() {
    let world = World::make(memory(), AtimePolicy::Relatime);
    let at = At {
        start: world.ns.root(),
        path: b"link",
    };
    let target = world.ns.read_symlink_at(&Caller::root(), at).unwrap();
    assert_eq!(target, b"file");
    let accessed = world.accessed();
    assert!(accessed[3] > past() && accessed[..3] == [past(); 3]);
}

/// As Linux does, whatever comes of the walk; and no more than once where nothing has changed.
#[test]
fn a_link_that_is_followed_is_noted() {
    let world = World::make(memory(), AtimePolicy::Relatime);
    let (ns, root) = (&world.ns, &Caller::root());
    let at = |path| At {
        start: ns.root(),
        path,
    };
    for (name, target) in [
        ("here", "."),
        ("loop", "loop"),
        ("gone", "missing"),
        ("absolute", "/"),
    ] {
        ns.make_symlink_at(root, at(name.as_bytes()), target.as_bytes())
            .unwrap();
    }
    let age = |name: &[u8], to| {
        let ino = ns.lookup(root, ns.root(), name).unwrap().ino;
        let change = SetAttributes {
            accessed: Some(SetTime::To(to)),
            ..SetAttributes::default()
        };
        ns.set_attributes(root, ino, &change).unwrap();
        ns.forget(ino, 1);
    };
    let accessed = |name| {
        let found = ns.attributes_at(root, at(name), LastLink::Keep);
        found.unwrap().times.accessed
    };
    let stat = |path, last_link| ns.attributes_at(root, at(path), last_link).map(drop);
    let (follow, keep) = (LastLink::Follow, LastLink::Keep);
    for (link, path, last_link, expected) in [
        ("link", "link", follow, Ok(())),
        ("link", "link", keep, Ok(())),
        ("here", "here/file", keep, Ok(())),
        ("here", "here/", keep, Ok(())),
        ("absolute", "dir/../absolute/here/link", keep, Ok(())),
        ("loop", "loop", follow, Err(Error::SymlinkLoop)),
        ("gone", "gone", follow, Err(Error::NotFound)),
    ] {
        age(link.as_bytes(), past());
        assert_eq!(stat(path.as_bytes(), last_link), expected);
        let is_kept = path == link && last_link == keep;
        assert_eq!(accessed(link.as_bytes()) == past(), is_kept, "{path}");
    }
    let later = Timestamp::new(Timestamp::now().seconds() + 100, 0);
    age(b"link", later);
    stat(b"link", follow).unwrap();
    assert_eq!(accessed(b"link"), later);

    // Where it is opened, and where something is made.
    age(b"link", past());
    ns.close(
        ns.open_at(root, at(b"link"), &how(AtimeUpdate::Never))
            .unwrap(),
    );
    assert!(accessed(b"link") > past());
    age(b"here", past());
    ns.make_directory_at(root, at(b"here/new"), 0o755).unwrap();
    assert!(accessed(b"here") > past());
}

fn how(atime: AtimeUpdate) -> OpenHow {
    OpenHow {
        access: Some(OpenAccess::Read),
        is_truncated: false,
        create: Create::Never,
        last_link: LastLink::Follow,
        is_directory_wanted: false,
        atime,
    }
}

/// The errors in the order in which Linux finds them (`may_open`).
#[test]
fn only_the_owner_and_root_may_open_so() {
    let world = World::make(memory(), AtimePolicy::Strict);
    let ns = &world.ns;
    let user = |uid, checks| Caller {
        uid,
        gid: 7,
        groups: Vec::new(),
        umask: 0,
        checks,
    };
    let owned = |ino, uid, permissions| {
        let change = SetAttributes {
            uid: Some(uid),
            permissions: Some(permissions),
            ..SetAttributes::default()
        };
        ns.set_attributes(&Caller::root(), ino, &change).unwrap();
    };
    owned(ns.root(), 0, 0o777);
    owned(world.inos[0], 5, 0o666);
    owned(world.inos[1], 5, 0o600);
    owned(world.inos[2], 5, 0o777);
    let open = |caller: &Caller, path: &str, how: OpenHow| {
        let at = At {
            start: ns.root(),
            path: path.as_bytes(),
        };
        ns.open_at(caller, at, &how).map(|opened| ns.close(opened))
    };
    let never = || how(AtimeUpdate::Never);
    for caller in [
        user(5, AccessChecks::Needed),
        user(0, AccessChecks::Needed),
        user(6, AccessChecks::Done),
    ] {
        assert_eq!(open(&caller, "file", never()), Ok(()));
    }
    let other = &user(6, AccessChecks::Needed);
    let (denied, not_permitted) = (Err(Error::AccessDenied), Err(Error::NotPermitted));
    assert_eq!(open(other, "file", how(AtimeUpdate::ByPolicy)), Ok(()));
    assert_eq!(open(other, "file", never()), not_permitted);
    // Found by the way that was remembered, too.
    assert_eq!(open(other, "file", never()), not_permitted);
    assert_eq!(open(other, "dir", never()), not_permitted);
    assert_eq!(open(other, "link", never()), not_permitted);
    assert_eq!(open(other, "empty", never()), denied);
    let without_access = OpenHow {
        access: None,
        ..never()
    };
    assert_eq!(open(other, "file", without_access), Ok(()));
    let truncating = OpenHow {
        access: Some(OpenAccess::Write),
        is_truncated: true,
        ..never()
    };
    assert_eq!(open(other, "file", truncating), not_permitted);
    assert_eq!(ns.attributes(world.inos[0]).unwrap().size_bytes, 7);
    let writing = OpenHow {
        access: Some(OpenAccess::Write),
        ..never()
    };
    assert_eq!(open(other, "dir", writing), Err(Error::IsADirectory));
    let making = OpenHow {
        create: Create::IfMissing { permissions: 0 },
        ..writing
    };
    assert_eq!(open(other, "file", making), not_permitted);
    assert_eq!(open(other, "own", making), Ok(()));
}

#[test]
fn what_is_opened_so_is_not_noted() {
    for policy in [AtimePolicy::Relatime, AtimePolicy::Strict] {
        let world = World::make(memory(), policy);
        world.read_all(AtimeUpdate::Never);
        assert_eq!(world.accessed(), [past(); 4], "{policy:?}");
    }
}

#[test]
fn the_policy_counts() {
    let never = World::make(memory(), AtimePolicy::Noatime);
    never.read_all(AtimeUpdate::ByPolicy);
    assert_eq!(never.accessed(), [past(); 4]);
    // After the last change, and not a day old.
    let later = Timestamp::new(Timestamp::now().seconds() + 100, 0);
    for (policy, is_noted) in [(AtimePolicy::Relatime, false), (AtimePolicy::Strict, true)] {
        let world = World::make(memory(), policy);
        world.age(later);
        world.read_all(AtimeUpdate::ByPolicy);
        let noted = world.accessed().map(|time| time != later);
        assert_eq!(noted, [is_noted; 4], "{policy:?}");
    }
}

#[test]
fn directories_are_noted_only_where_they_shall_be() {
    for policy in [AtimePolicy::Relatime, AtimePolicy::Strict] {
        let options = Options {
            atime: policy,
            notes_directories: false,
            ..Options::default()
        };
        let world = World::of(Namespace::without_thread(memory(), options).unwrap());
        world.read_all(AtimeUpdate::ByPolicy);
        let noted = world.accessed().map(|time| time != past());
        assert_eq!(noted, [true, true, false, true], "{policy:?}");
    }
}

#[test]
fn reading_a_directory_that_was_removed_is_no_harm() {
    let store = Arc::new(CheckedStore::reloading(16 << 20));
    let world = World::make(store, AtimePolicy::Relatime);
    let (ns, dir) = (&world.ns, world.inos[2]);
    ns.remove_directory(&Caller::root(), ns.root(), b"dir")
        .unwrap();
    ns.sync().unwrap();
    ns.read_directory(dir, 0, &mut |_| true).unwrap();
    assert!(ns.attributes(dir).unwrap().times.accessed > past());
    ns.sync().unwrap();
    ns.forget(dir, 1);
    ns.shut_down().unwrap();
}

#[test]
fn reads_are_not_noted_where_nothing_may_change() {
    let store = Arc::new(CheckedStore::reloading(16 << 20));
    for store in [memory(), store as Arc<dyn Store>] {
        let world = World::make(store, AtimePolicy::Strict);
        world.ns.refuse_changes(true).unwrap();
        world.read_all(AtimeUpdate::ByPolicy);
        assert_eq!(world.accessed(), [past(); 4]);
        world.ns.refuse_changes(false).unwrap();
        world.read_all(AtimeUpdate::ByPolicy);
        assert!(world.accessed().iter().all(|time| *time > past()));
        world.ns.shut_down().unwrap();
    }
}

/// POSIX utimensat(): who may write may set both times to now, and nothing else.
#[test]
fn only_an_owner_sets_one_of_the_times() {
    let ns = open(memory(), AtimePolicy::Relatime);
    let made = ns.create_file(&Caller::root(), ns.root(), b"file", 0o666);
    let ino = made.unwrap().ino;
    let other = Caller {
        uid: 7,
        checks: AccessChecks::Needed,
        ..Caller::root()
    };
    let set = |accessed, modified, size_bytes| {
        let change = SetAttributes {
            accessed,
            modified,
            size_bytes,
            ..SetAttributes::default()
        };
        ns.set_attributes(&other, ino, &change).map(drop)
    };
    let now = Some(SetTime::Now);
    let given = Some(SetTime::To(past()));
    let denied = Err(Error::NotPermitted);
    assert_eq!(set(now, now, None), Ok(()));
    assert_eq!(set(now, None, None), denied);
    assert_eq!(set(None, now, None), denied);
    assert_eq!(set(now, given, None), denied);
    // As it comes with a truncation by NFS.
    assert_eq!(set(None, now, Some(3)), Ok(()));
    ns.shut_down().unwrap();
}
