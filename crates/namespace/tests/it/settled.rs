//! What stat shows of sizes and space that the store counts at a commit.

use std::sync::Arc;

use finefs_namespace::{
    AllocateMode, Attributes, Caller, Ino, MemoryStore, Namespace, Options, SetAttributes, Store,
    XattrMode,
};
use finefs_testkit::CheckedStore;

const BLOCK: u64 = 4096;
const SECTORS: u64 = BLOCK / 512;

struct Setup {
    store: Arc<CheckedStore>,
    namespace: Namespace,
    caller: Caller,
}

fn setup() -> Setup {
    let store = Arc::new(CheckedStore::reloading(16 << 20));
    let namespace = Namespace::without_thread(store.clone(), Options::default()).unwrap();
    Setup {
        store,
        namespace,
        caller: Caller::root(),
    }
}

impl Setup {
    fn of(&self, ino: Ino) -> Attributes {
        self.namespace.attributes(ino).unwrap()
    }

    /// What is shown is what the store has, and stays so.
    fn assert_settled(&self, ino: Ino) {
        let shown = self.of(ino);
        let stored = self.store.load_inode(ino).unwrap().attributes;
        assert!(shown.is_settled);
        assert_eq!(
            (shown.size_bytes, shown.sectors),
            (stored.size_bytes, stored.sectors)
        );
    }
}

#[test]
fn a_new_directory_and_a_long_link_have_a_block_at_once() {
    let setup = setup();
    let root = setup.namespace.root();
    let caller = &setup.caller;
    let made = setup
        .namespace
        .make_directory(caller, root, b"directory", 0o755)
        .unwrap();
    let link = |name: &[u8], length| {
        let target = vec![b'x'; length];
        let made = setup.namespace.make_symlink(caller, root, name, &target);
        made.unwrap()
    };
    let (short, long) = (link(b"short", 59), link(b"long", 60));
    let file = setup.namespace.create_file(caller, root, b"file", 0o644);
    let file = file.unwrap();
    for (made, sectors) in [(made, SECTORS), (short, 0), (long, SECTORS), (file, 0)] {
        assert!(made.is_settled);
        assert_eq!(made.sectors, sectors);
        assert_eq!(setup.of(made.ino).sectors, sectors);
    }
    assert_eq!(made.size_bytes, BLOCK);
    // Nothing will change but the directories, about which a front end has to ask again.
    assert!(setup.of(short.ino).is_settled && setup.of(file.ino).is_settled);
    assert!(!setup.of(root).is_settled && !setup.of(made.ino).is_settled);
    setup.namespace.sync().unwrap();
    for ino in [root, made.ino, short.ino, long.ino, file.ino] {
        setup.assert_settled(ino);
    }
}

#[test]
fn a_directory_follows_its_growth_at_the_commit() {
    let setup = setup();
    let root = setup.namespace.root();
    let make = |names: std::ops::Range<u32>| {
        for number in names {
            let name = format!("name {number}").into_bytes();
            let made = setup
                .namespace
                .create_file(&setup.caller, root, &name, 0o644);
            setup.namespace.forget(made.unwrap().ino, 1);
        }
    };
    make(0..1000);
    assert!(!setup.of(root).is_settled);
    setup.namespace.sync().unwrap();
    let after = setup.of(root);
    assert!(after.size_bytes > 3 * BLOCK, "{after:?}");
    assert_eq!(after.sectors, after.size_bytes / 512);
    setup.assert_settled(root);
    // The size of the last commit is shown until the next one.
    make(1000..2000);
    let then = setup.of(root);
    assert_eq!(
        (then.size_bytes, then.sectors),
        (after.size_bytes, after.sectors)
    );
    assert!(!then.is_settled);
    for number in 0..2000 {
        let name = format!("name {number}").into_bytes();
        setup
            .namespace
            .remove_file(&setup.caller, root, &name)
            .unwrap();
    }
    setup.namespace.sync().unwrap();
    assert_eq!(setup.of(root).size_bytes, BLOCK);
    setup.assert_settled(root);
}

#[test]
fn what_a_file_has_beside_its_data_comes_with_the_commit() {
    let setup = setup();
    let ns = &setup.namespace;
    let made = ns.create_file(&setup.caller, ns.root(), b"file", 0o644);
    let ino = made.unwrap().ino;
    // As long as it is small all is known at once.
    ns.write(ino, 0, &[1; 100]).unwrap();
    let small = setup.of(ino);
    assert!(small.is_settled && small.sectors == SECTORS);
    ns.sync().unwrap();
    setup.assert_settled(ino);
    // A mapping of six pieces.
    for piece in 1..6 {
        ns.write(ino, piece * 10 * BLOCK, &[1; 100]).unwrap();
    }
    let large = setup.of(ino);
    assert!(!large.is_settled && large.sectors == 6 * SECTORS);
    ns.sync().unwrap();
    assert_eq!(setup.of(ino).sectors, 7 * SECTORS);
    setup.assert_settled(ino);
    // What is cut off is gone at once; the block of the mapping, only with the commit.
    let cut = SetAttributes {
        size_bytes: Some(100),
        ..SetAttributes::default()
    };
    let cut = ns.set_attributes(&setup.caller, ino, &cut).unwrap();
    assert!(!cut.is_settled && cut.sectors == 2 * SECTORS);
    ns.sync().unwrap();
    assert_eq!(setup.of(ino).sectors, SECTORS);
    setup.assert_settled(ino);
    // Blocks of an allocation ahead count, and a hole's do not.
    ns.allocate(ino, AllocateMode::KeepSize, BLOCK, 2 * BLOCK)
        .unwrap();
    assert_eq!(setup.of(ino).sectors, 3 * SECTORS);
    ns.allocate(ino, AllocateMode::PunchHole, BLOCK, BLOCK)
        .unwrap();
    assert_eq!(setup.of(ino).sectors, 2 * SECTORS);
    ns.sync().unwrap();
    setup.assert_settled(ino);
    // Extended attributes, of which only the store knows where they lie.
    let value = [7; 1000];
    let set = |mode| ns.set_xattr(&setup.caller, ino, b"user.x", &value, mode);
    set(XattrMode::Create).unwrap();
    assert!(!setup.of(ino).is_settled);
    ns.sync().unwrap();
    assert_eq!(setup.of(ino).sectors, 3 * SECTORS);
    setup.assert_settled(ino);
    ns.remove_xattr(&setup.caller, ino, b"user.x").unwrap();
    assert!(!setup.of(ino).is_settled);
    ns.sync().unwrap();
    assert_eq!(setup.of(ino).sectors, 2 * SECTORS);
}

/// Nothing is ever committed: what is shown is all that there is.
#[test]
fn over_a_store_without_batches_all_is_settled() {
    let store = Arc::new(MemoryStore::new(1 << 20, 0o755, 0, 0).unwrap());
    let namespace = Namespace::without_thread(store, Options::default()).unwrap();
    let (root, caller) = (namespace.root(), Caller::root());
    let made = namespace.make_directory(&caller, root, b"directory", 0o755);
    let made = made.unwrap();
    for attributes in [made, namespace.attributes(made.ino).unwrap()] {
        assert!(attributes.is_settled && attributes.sectors == 0);
    }
    assert!(namespace.attributes(root).unwrap().is_settled);
}
