//! What is referred to leaves memory all the same, and comes back as it was.

#![cfg(not(feature = "shuttle"))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use finefs_namespace::{
    Caller, Error, Ino, LockKind, LockWait, Namespace, OpenAccess, Options, XattrMode,
};
use finefs_testkit::CheckedStore;

/// A namespace that has room for nothing, and how often the store loaded an inode.
struct World {
    namespace: Namespace,
    store: Arc<CheckedStore>,
    loads: Arc<AtomicU64>,
    user: Caller,
    root: Ino,
}

impl World {
    fn new() -> World {
        let store = Arc::new(CheckedStore::reloading(1 << 20));
        let loads = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&loads);
        store.call_before_loads(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let options = Options {
            cache_bytes: 0,
            ..Options::default()
        };
        let shared: Arc<CheckedStore> = Arc::clone(&store);
        let namespace = Namespace::without_thread(shared, options).unwrap();
        World {
            root: namespace.root(),
            namespace,
            store,
            loads,
            user: Caller::root(),
        }
    }

    /// A file with so many references.
    fn file(&self, references: u64) -> Ino {
        let made = self
            .namespace
            .create_file(&self.user, self.root, b"f", 0o640);
        for _ in 1..references {
            self.namespace.lookup(&self.user, self.root, b"f").unwrap();
        }
        made.unwrap().ino
    }

    fn remove(&self) {
        let removed = self.namespace.remove_file(&self.user, self.root, b"f");
        removed.unwrap();
    }

    /// Commits, which lets everything go that can; tells whether what is used next is loaded anew.
    fn has_gone(&self, ino: Ino) -> bool {
        self.namespace.sync().unwrap();
        let before = self.loads.load(Ordering::Relaxed);
        self.namespace.attributes(ino).unwrap();
        self.loads.load(Ordering::Relaxed) > before
    }

    fn finish(self) {
        self.namespace.shut_down().unwrap();
        self.store.assert_at_rest();
        self.store.assert_no_orphans();
    }
}

#[test]
fn references_outlive_the_inode_in_memory() {
    let w = World::new();
    let ino = w.file(4);
    let made = w.namespace.attributes(ino).unwrap();
    assert!(w.has_gone(ino));
    assert_eq!(w.namespace.attributes(ino).unwrap(), made);
    w.namespace.forget(ino, 1);
    // Without a name it lives until the last of the references, and stays in memory.
    w.remove();
    assert!(!w.has_gone(ino));
    w.namespace.forget(ino, 2);
    assert!(!w.has_gone(ino));
    w.namespace.forget(ino, 1);
    assert_eq!(w.namespace.attributes(ino), Err(Error::Stale));
    w.finish();
}

#[test]
fn references_are_given_back_while_it_is_out_of_memory() {
    let w = World::new();
    let ino = w.file(3);
    w.namespace.sync().unwrap();
    w.namespace.forget(ino, 1);
    w.namespace.forget(ino, 2);
    w.remove();
    assert_eq!(w.namespace.attributes(ino), Err(Error::Stale));
    w.finish();
}

/// Of more inodes than a leaf of the inode table has, so that there are leaves without any.
#[test]
fn references_outlive_the_inode_table() {
    const FILES: usize = 2000;
    let w = World::new();
    let made: Vec<Ino> = (0..FILES)
        .map(|number| {
            let name = format!("{number}");
            let made = (w.namespace).create_file(&w.user, w.root, name.as_bytes(), 0o640);
            made.unwrap().ino
        })
        .collect();
    let taken = w.namespace.inode_table_bytes();
    w.namespace.sync().unwrap();
    w.namespace.sync().unwrap();
    let left = w.namespace.inode_table_bytes();
    assert!(left + 10 * FILES < taken, "{left} of {taken}");
    for (number, ino) in made.iter().enumerate() {
        let name = format!("{number}");
        let remove = || (w.namespace).remove_file(&w.user, w.root, name.as_bytes());
        match number % 3 {
            // It lives on by its reference.
            0 => {
                remove().unwrap();
                assert!(w.namespace.attributes(*ino).is_ok());
                w.namespace.forget(*ino, 1);
            }
            1 => {
                w.namespace.forget(*ino, 1);
                remove().unwrap();
            }
            _ => {
                w.namespace.reference(*ino).unwrap();
                w.namespace.forget(*ino, 2);
                remove().unwrap();
            }
        }
        assert_eq!(w.namespace.attributes(*ino), Err(Error::Stale));
    }
    w.finish();
}

/// Numbers of one CPU's log that another one's frees, and that are given anew while that is
/// committed: the account is what it was.
#[test]
fn the_account_of_memory_does_not_drift() {
    let w = World::new();
    let at_rest = || {
        w.namespace.sync().unwrap();
        w.namespace.sync().unwrap();
        w.namespace.cached_bytes()
    };
    let name = |number: u64| format!("{number}").into_bytes();
    // The directory's own room.
    for number in 0..20 {
        let made = (w.namespace).create_file(&w.user, w.root, &name(number), 0o640);
        w.namespace.forget(made.unwrap().ino, 1);
    }
    for number in 0..20 {
        let removed = (w.namespace).remove_file(&w.user, w.root, &name(number));
        removed.unwrap();
    }
    let before = at_rest();
    let (begin, end) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..200 {
                begin.wait();
                let _ = (w.namespace).remove_file(&w.user, w.root, &name(round));
                end.wait();
            }
        });
        for round in 0..200 {
            let made = (w.namespace).create_file(&w.user, w.root, &name(round), 0o640);
            w.namespace.forget(made.unwrap().ino, 1);
            begin.wait();
            end.wait();
            let again = (w.namespace).create_file(&w.user, w.root, b"again", 0o640);
            w.namespace.forget(again.unwrap().ino, 1);
            (w.namespace)
                .remove_file(&w.user, w.root, b"again")
                .unwrap();
            if round % 3 == 0 {
                w.namespace.sync().unwrap();
            }
        }
    });
    assert_eq!(at_rest(), before);
    w.finish();
}

/// What is asked for in vain takes no memory for good.
#[test]
fn numbers_that_are_not_in_use_leave_memory() {
    let w = World::new();
    let ino = w.file(1);
    w.namespace.forget(ino, 1);
    w.namespace.sync().unwrap();
    w.namespace.sync().unwrap();
    let before = (w.namespace.cached_bytes(), w.namespace.inode_table_bytes());
    for number in 1000..3000 {
        assert_eq!(w.namespace.attributes(Ino(number)), Err(Error::Stale));
    }
    w.namespace.sync().unwrap();
    w.namespace.sync().unwrap();
    let after = (w.namespace.cached_bytes(), w.namespace.inode_table_bytes());
    assert_eq!(after, before);
    w.finish();
}

#[test]
fn an_open_file_is_read_and_written_after_it_came_back() {
    let w = World::new();
    let ino = w.file(1);
    w.namespace.forget(ino, 1);
    let file = w
        .namespace
        .open(&w.user, ino, OpenAccess::ReadWrite)
        .unwrap();
    w.namespace.write(ino, 0, b"before").unwrap();
    let set = (w.namespace).set_xattr(&w.user, ino, b"user.a", b"value", XattrMode::Set);
    set.unwrap();
    assert!(w.has_gone(ino));
    w.namespace.write(ino, 6, b" and after").unwrap();
    file.sync().unwrap();
    assert!(w.has_gone(ino));
    let mut read = [0; 32];
    let length = w.namespace.read(ino, 0, &mut read).unwrap();
    assert_eq!(&read[..length], b"before and after");
    assert_eq!(
        w.namespace.xattr(&w.user, ino, b"user.a").unwrap(),
        b"value"
    );
    drop(file);
    w.finish();
}

/// Locks are nowhere but in memory.
#[test]
fn a_locked_file_stays() {
    let w = World::new();
    let ino = w.file(1);
    let file = w
        .namespace
        .open(&w.user, ino, OpenAccess::ReadWrite)
        .unwrap();
    file.locks()
        .flock(LockKind::Exclusive, LockWait::never())
        .unwrap();
    assert!(!w.has_gone(ino));
    drop(file);
    assert!(w.has_gone(ino));
    w.finish();
}
