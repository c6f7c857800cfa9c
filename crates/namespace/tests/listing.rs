//! Listings while what they list changes.

use std::sync::Arc;

use finefs_namespace::{Caller, FileKind, Ino, Namespace, Options, RenameMode};
use finefs_testkit::CheckedStore;

const NAMES: u64 = 20;

fn open(store: &Arc<CheckedStore>) -> Namespace {
    let store = Arc::<CheckedStore>::clone(store);
    Namespace::without_thread(store, Options::default()).unwrap()
}

type Listing = Vec<(Vec<u8>, Ino, FileKind)>;

/// Lists a directory without `.` and `..`; `change` is called with the number of each entry, before it goes on.
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
/// Without: the second look in `Namespace::listed`, where the node is out, or where its inode is gone (each tried alone).
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
                    .all(|(.., kind)| *kind == FileKind::Symlink)
            );
        }
        assert_eq!(names(&list(&namespace, dir, &mut |_| {})), names(&before));
        namespace.shut_down().unwrap();
    }
}
