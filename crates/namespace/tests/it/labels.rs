//! Security attributes that things have from the start.

use std::sync::Arc;

use finefs_namespace::types::{Caller, FileKind, Ino};
use finefs_namespace::{Error, MemoryStore, Namespace, Options, SyncScope, XattrMode};

const NAME: &[u8] = b"security.selinux";

fn memory() -> Arc<Namespace> {
    let store = MemoryStore::new(64 << 20, 0o755, 0, 0).unwrap();
    store.into_namespace(Options::default()).unwrap()
}

fn caller() -> Caller {
    Caller {
        umask: 0o027,
        ..Caller::root()
    }
}

fn label(ns: &Namespace, ino: Ino) -> Vec<u8> {
    ns.xattr(&Caller::root(), ino, NAME).unwrap()
}

#[test]
fn all_kinds_have_them() {
    let (ns, root) = (memory(), caller());
    let dir = ns.root();
    let large = vec![b'x'; 3000];
    for (round, value) in [&b"a label\0"[..], &large[..], &b""[..]]
        .into_iter()
        .enumerate()
    {
        let labels: [(&[u8], &[u8]); 2] = [(NAME, value), (b"security.other", b"1")];
        let labelled = ns.labelled(&labels);
        let name = |kind: &str| format!("{kind}{round}").into_bytes();
        let made = [
            labelled.create_file(&root, dir, &name("file"), 0o666),
            labelled.make_node(&root, dir, &name("pipe"), FileKind::Fifo, 0o666, 0),
            labelled.make_directory(&root, dir, &name("dir"), 0o777),
            labelled.make_symlink(&root, dir, &name("link"), b"target"),
            labelled.create_unnamed(&root, dir, 0o666),
        ];
        let modes = [0o640, 0o640, 0o750, 0o777, 0o640];
        for (made, mode) in made.into_iter().zip(modes) {
            let made = made.unwrap();
            assert_eq!(made.permissions, mode, "{:?}", made.kind);
            assert_eq!(label(&ns, made.ino), value);
            let names = ns.list_xattrs(&root, made.ino).unwrap();
            assert_eq!(names, [b"security.other".to_vec(), NAME.to_vec()]);
            ns.sync_file(made.ino, SyncScope::All).unwrap();
            assert_eq!(label(&ns, made.ino), value);
            // They are attributes like others.
            ns.set_xattr(&root, made.ino, NAME, b"new", XattrMode::Replace)
                .unwrap();
            assert_eq!(label(&ns, made.ino), b"new");
        }
    }
    let long = vec![0; 65_537];
    let labels: [(&[u8], &[u8]); 1] = [(NAME, &long)];
    let refused = ns.labelled(&labels).create_file(&root, dir, b"none", 0o666);
    assert_eq!(refused, Err(Error::ArgumentsTooLong));
    assert_eq!(ns.lookup(&root, dir, b"none"), Err(Error::NotFound));
}

#[test]
fn they_go_with_what_is_inherited() {
    const NOBODY: u32 = u32::MAX;
    const DEFAULT: &[u8] = b"system.posix_acl_default";
    let mut acl = vec![2, 0, 0, 0];
    for (tag, permissions, id) in [
        (1u16, 7u16, NOBODY),
        (2, 6, 51),
        (4, 5, NOBODY),
        (16, 7, NOBODY),
        (32, 0, NOBODY),
    ] {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    let (ns, root) = (memory(), caller());
    let dir = ns.make_directory(&root, ns.root(), b"dir", 0o777).unwrap();
    ns.set_xattr(&root, dir.ino, DEFAULT, &acl, XattrMode::Set)
        .unwrap();
    let labels: [(&[u8], &[u8]); 1] = [(NAME, b"a label\0")];
    let made = ns
        .labelled(&labels)
        .make_directory(&root, dir.ino, b"below", 0o777)
        .unwrap();
    assert_eq!(made.permissions, 0o770, "the umask does not count");
    assert_eq!(label(&ns, made.ino), b"a label\0");
    let names = ns.list_xattrs(&root, made.ino).unwrap();
    let expected = [NAME, b"system.posix_acl_access", DEFAULT];
    assert_eq!(names, expected.map(<[u8]>::to_vec));
}

/// As if they were set later, so that a write takes them.
#[test]
fn capabilities_are_known_of() {
    const CAPABILITIES: &[u8] = b"security.capability";
    let (ns, root) = (memory(), caller());
    let labels: [(&[u8], &[u8]); 1] = [(CAPABILITIES, b"caps")];
    let made = ns
        .labelled(&labels)
        .create_file(&root, ns.root(), b"f", 0o755)
        .unwrap();
    ns.write(made.ino, 0, b"x").unwrap();
    assert_eq!(
        ns.xattr(&root, made.ino, CAPABILITIES),
        Err(Error::NoAttribute)
    );
}
