//! Whose group new files get.

use std::sync::Arc;

use finefs_namespace::{Caller, FileKind, MemoryStore, Namespace, Options, SetAttributes};

const GROUP: u32 = 50;
const SET_GROUP_ID: u32 = 0o2000;

fn caller(groups: &[u32]) -> Caller {
    Caller {
        uid: 7,
        gid: 7,
        groups: groups.to_vec(),
        umask: 0,
        checks: finefs_namespace::AccessChecks::Done,
    }
}

/// Permissions and group of a directory, a program and a symbolic link that are made in a directory
/// of [`GROUP`].
fn made(has_bsd_groups: bool, permissions: u32, caller: &Caller) -> [(u32, u32); 3] {
    let store = MemoryStore::new(16 << 20, 0o777, 0, 0).unwrap();
    let options = Options {
        has_bsd_groups,
        ..Options::default()
    };
    let ns = Namespace::without_thread(Arc::new(store), options).unwrap();
    let root = Caller::root();
    let dir = ns.make_directory(&root, ns.root(), b"dir", 0).unwrap().ino;
    let change = SetAttributes {
        gid: Some(GROUP),
        permissions: Some(permissions),
        ..SetAttributes::default()
    };
    ns.set_attributes(&root, dir, &change).unwrap();
    let below = ns.make_directory(caller, dir, b"below", 0o755).unwrap();
    let program = ns.create_file(caller, dir, b"program", 0o755 | SET_GROUP_ID);
    let link = ns.make_symlink(caller, dir, b"link", b"program").unwrap();
    assert_eq!(link.kind, FileKind::Symlink);
    [below, program.unwrap(), link].map(|made| (made.permissions & 0o7777, made.gid))
}

#[test]
fn the_set_group_id_bit_of_a_directory_counts() {
    let member = caller(&[GROUP]);
    let [below, program, link] = made(false, 0o777, &member);
    assert_eq!(below, (0o755, 7));
    assert_eq!(program, (0o755 | SET_GROUP_ID, 7));
    assert_eq!(link.1, 7);
    let [below, program, link] = made(false, 0o777 | SET_GROUP_ID, &member);
    assert_eq!(below, (0o755 | SET_GROUP_ID, GROUP));
    assert_eq!(program, (0o755 | SET_GROUP_ID, GROUP));
    assert_eq!(link.1, GROUP);
}

/// As the kernel's ext4 with `grpid`, but for programs of those who are not in the group.
#[test]
fn the_directorys_group_may_be_given_always() {
    for permissions in [0o777, 0o777 | SET_GROUP_ID] {
        let [below, program, link] = made(true, permissions, &caller(&[GROUP]));
        assert_eq!(below, (0o755, GROUP));
        assert_eq!(program, (0o755 | SET_GROUP_ID, GROUP));
        assert_eq!(link.1, GROUP);
    }
    // With the bit on the directory the kernel has looked at the groups.
    let [_, program, _] = made(true, 0o777, &caller(&[]));
    assert_eq!(program, (0o755, GROUP));
}
