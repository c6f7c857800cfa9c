//! Listings while what they list changes.

use std::sync::Arc;

use finefs_namespace::{Caller, Error, FileKind, Ino, Namespace, Options, RenameMode};
use finefs_testkit::CheckedStore;

const NAMES: u64 = 20;

fn open(store: &Arc<CheckedStore>) -> Namespace {
    let store = Arc::<CheckedStore>::clone(store);
    Namespace::without_thread(store, Options::default()).unwrap()
}

type Listing = Vec<(Vec<u8>, Ino, Option<FileKind>)>;

/// Lists a directory without `.` and `..`; `change` is called with the number of each entry, before
/// it goes on.
fn list(namespace: &Namespace, dir: Ino, change: &mut dyn FnMut(usize)) -> Listing {
    let mut listing = Listing::new();
    let mut sink = |entry: finefs_namespace::DirectoryEntry<'_>| {
        change(listing.len());
        listing.push((entry.name.to_vec(), entry.ino, entry.kind));
        true
    };
    namespace.read_directory(dir, 2, &mut sink).unwrap();
    listing
}

/// Each name is there throughout, and names another inode just before its turn.
///
/// Without: the second look in `Namespace::listed`, where the node is out, or where its inode is
/// gone (each tried alone).
#[test]
fn names_that_are_replaced_meanwhile_are_listed() {
    let with_kinds = CheckedStore::reloading(1 << 20);
    let without = CheckedStore::reloading(1 << 20).without_kinds();
    for (store, has_kinds) in [(with_kinds, true), (without, false)] {
        let (store, caller) = (Arc::new(store), Caller::root());
        let namespace = open(&store);
        let root = namespace.root();
        let [dir, other] = [&b"dir"[..], b"other"].map(|name| {
            let made = namespace.make_directory(&caller, root, name, 0o755);
            made.unwrap().ino
        });
        for number in 0..NAMES {
            let name = number.to_string();
            let file = namespace.create_file(&caller, dir, name.as_bytes(), 0o644);
            namespace.forget(file.unwrap().ino, 1);
            let link = namespace.make_symlink(&caller, other, name.as_bytes(), b"target");
            namespace.forget(link.unwrap().ino, 1);
        }
        namespace.shut_down().unwrap();

        let namespace = open(&store);
        for name in [&b"dir"[..], b"other"] {
            namespace.lookup(&caller, root, name).unwrap();
        }
        // Half of the files stay when they have lost their names.
        for number in (0..NAMES).step_by(2) {
            let name = number.to_string();
            namespace.lookup(&caller, dir, name.as_bytes()).unwrap();
        }
        let before = list(&namespace, dir, &mut |_| {});
        assert_eq!(before.len() as u64, NAMES);
        let listed = list(&namespace, dir, &mut |index| {
            let Some((name, ..)) = before.get(index + 1) else {
                return;
            };
            // As another thread: a listing is under way in this one.
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let replaced =
                        namespace.rename(&caller, (other, name), (dir, name), RenameMode::Replace);
                    replaced.unwrap();
                });
            });
        });
        let names = |listing: &Listing| -> Vec<Vec<u8>> {
            listing.iter().map(|(name, ..)| name.clone()).collect()
        };
        assert_eq!(names(&listed), names(&before), "with kinds: {has_kinds}");
        if !has_kinds {
            // Of an inode that is gone nobody can tell any more what it was.
            assert!(
                listed[1..]
                    .iter()
                    .all(|(.., kind)| *kind == Some(FileKind::Symlink))
            );
        }
        assert_eq!(names(&list(&namespace, dir, &mut |_| {})), names(&before));
        namespace.shut_down().unwrap();
    }
}

/// A name whose inode cannot be read is there, as in every other format, so that it is known what
/// is wrong.
#[test]
fn names_whose_inodes_cannot_be_read_are_listed() {
    for has_kinds in [true, false] {
        let store = CheckedStore::reloading(1 << 20);
        let store = match has_kinds {
            true => Arc::new(store),
            false => Arc::new(store.without_kinds()),
        };
        let caller = Caller::root();
        let namespace = open(&store);
        let root = namespace.root();
        let made = [&b"one"[..], b"other", b"third"].map(|name| {
            let made = namespace.create_file(&caller, root, name, 0o644);
            made.unwrap().ino
        });
        namespace.shut_down().unwrap();
        let damage = Error::corrupt("a checksum");
        store.make_unreadable(made[1], damage.clone());
        let namespace = open(&store);
        let mut listed = list(&namespace, root, &mut |_| {});
        listed.sort_by_key(|(_, ino, _)| *ino);
        let kind = Some(FileKind::Regular);
        let expected = [
            (b"one".to_vec(), made[0], kind),
            (b"other".to_vec(), made[1], kind.filter(|_| has_kinds)),
            (b"third".to_vec(), made[2], kind),
        ];
        assert_eq!(listed, expected);
        assert_eq!(
            namespace.lookup(&caller, root, b"other").err(),
            Some(damage)
        );
    }
}

/// A directory that is damaged but can be read stays as it is.
#[test]
fn a_directory_that_must_not_be_changed_is_listed() {
    let store = Arc::new(CheckedStore::reloading(1 << 20));
    let caller = Caller::root();
    let namespace = open(&store);
    let root = namespace.root();
    let directory = |parent, name: &[u8]| {
        let made = namespace.make_directory(&caller, parent, name, 0o755);
        made.unwrap().ino
    };
    let (damaged, sound) = (directory(root, b"damaged"), directory(root, b"sound"));
    let (empty, inner) = (directory(root, b"empty"), directory(damaged, b"inner"));
    for dir in [damaged, sound] {
        for name in [&b"one"[..], b"other"] {
            namespace.create_file(&caller, dir, name, 0o644).unwrap();
        }
    }
    namespace.shut_down().unwrap();
    let damage = Error::corrupt("an index");
    store.make_unchangeable(damaged, damage.clone());
    store.make_unchangeable(empty, damage.clone());

    let namespace = open(&store);
    let (ns, caller) = (&namespace, &caller);
    assert_eq!(list(ns, damaged, &mut |_| {}).len(), 3);
    let file = ns.lookup(caller, sound, b"one").unwrap().ino;
    let rename =
        |from: (Ino, &[u8]), to: (Ino, &[u8])| ns.rename(caller, from, to, RenameMode::Replace);
    let refused = [
        ns.create_file(caller, damaged, b"new", 0o644).map(|_| ()),
        ns.make_directory(caller, damaged, b"new", 0o755)
            .map(|_| ()),
        ns.make_symlink(caller, damaged, b"new", b"target")
            .map(|_| ()),
        ns.make_link(caller, file, damaged, b"new").map(|_| ()),
        ns.remove_file(caller, damaged, b"one"),
        ns.remove_directory(caller, damaged, b"inner"),
        rename((damaged, b"one"), (damaged, b"new")),
        rename((damaged, b"one"), (sound, b"new")),
        rename((sound, b"one"), (damaged, b"new")),
        rename((sound, b"one"), (damaged, b"other")),
        // Their own names may hide more than can be seen, and their parent is noted in them.
        ns.remove_directory(caller, root, b"empty"),
        rename((root, b"sound"), (root, b"empty")),
        rename((root, b"damaged"), (sound, b"damaged")),
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        assert_eq!(refused, Err(damage.clone()), "{number}");
    }
    // What is in it can be changed, and it can have another name.
    let one = ns.lookup(caller, damaged, b"one").unwrap().ino;
    ns.write(one, 0, b"data").unwrap();
    ns.create_file(caller, inner, b"new", 0o644).unwrap();
    rename((root, b"damaged"), (root, b"renamed")).unwrap();
    ns.shut_down().unwrap();
    assert_eq!(store.committed_names(damaged).len(), 3);
    store.assert_at_rest();
}
