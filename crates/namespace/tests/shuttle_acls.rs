//! ACLs that change while permissions are checked, under shuttle.
//!
//! `cargo test -p finefs-namespace --features shuttle --test shuttle_acls`; `FINEFS_SCHEDULES=n`
//! tries n per test.
//!
//! Nobody may get what neither the ACL and mode before a change grant nor those after it. The tests
//! name, after "Without:", the lines without which they fail; each was tried, in a copy.

#![cfg(feature = "shuttle")]

mod world;

use finefs_namespace::{Caller, Error, Ino, SetAttributes, XattrMode};
use world::{World, check, race, task};

const ACCESS: &[u8] = b"system.posix_acl_access";
const WRITE: u32 = 2;

/// Owner, user 10, owning group, mask, others.
fn acl(of: [u16; 5]) -> Vec<u8> {
    let tags = [
        (1, u32::MAX),
        (2, 10),
        (4, u32::MAX),
        (16, u32::MAX),
        (32, u32::MAX),
    ];
    let entries = tags
        .iter()
        .zip(of)
        .flat_map(|((tag, id), permissions): (&(u16, u32), u16)| {
            [
                tag.to_le_bytes().as_slice(),
                permissions.to_le_bytes().as_slice(),
                id.to_le_bytes().as_slice(),
            ]
            .concat()
        });
    [2, 0, 0, 0].into_iter().chain(entries).collect()
}

fn user(uid: u32, gid: u32) -> Caller {
    Caller {
        uid,
        gid,
        groups: Vec::new(),
        umask: 0,
        checks: finefs_namespace::AccessChecks::Needed,
    }
}

fn made(world: &World, root: Ino, permissions: u32) -> Ino {
    let ino = world.file(root, "f").unwrap();
    chmod(world, ino, permissions);
    ino
}

fn chmod(world: &World, ino: Ino, permissions: u32) {
    let change = SetAttributes {
        permissions: Some(permissions),
        ..SetAttributes::default()
    };
    world
        .namespace
        .set_attributes(&world.user, ino, &change)
        .unwrap();
}

fn set(world: &World, ino: Ino, of: [u16; 5]) {
    let ns = &world.namespace;
    ns.set_xattr(&world.user, ino, ACCESS, &acl(of), XattrMode::Set)
        .unwrap();
}

fn writes(world: &World, ino: Ino, who: &Caller) -> bool {
    match world.namespace.access(who, ino, WRITE) {
        Ok(()) => true,
        Err(Error::AccessDenied) => false,
        Err(error) => panic!("{error}"),
    }
}

/// The mode's group bits become the mask, which says nothing of the owning group.
///
/// Without: the marks of ACLs in the word of the permission bits (but written after them, by
/// `Core::set_acl`).
#[test]
fn an_acl_comes_and_its_mask_is_nobodys() {
    check(400, World::new, |world, root| {
        let ino = made(world, root, 0o640);
        race(
            world,
            vec![
                task(move |w: &World| set(w, ino, [6, 6, 4, 6, 0])),
                task(move |w: &World| {
                    for _ in 0..3 {
                        assert!(!writes(w, ino, &user(11, w.user.gid)), "the owning group");
                    }
                }),
            ],
        );
    });
}

/// The group may write all the time, by the ACL and without it.
///
/// Without: the loop of `is_granted_by_acl` (but "denied" where the ACL is gone).
#[test]
fn an_acl_goes_and_comes_back() {
    check(400, World::new, |world, root| {
        let ino = made(world, root, 0o660);
        set(world, ino, [6, 6, 6, 6, 0]);
        race(
            world,
            vec![
                task(move |w: &World| {
                    let ns = &w.namespace;
                    ns.remove_xattr(&w.user, ino, ACCESS).unwrap();
                    set(w, ino, [6, 6, 6, 6, 0]);
                }),
                task(move |w: &World| {
                    for _ in 0..3 {
                        assert!(writes(w, ino, &user(11, w.user.gid)), "the owning group");
                    }
                }),
            ],
        );
    });
}

/// A chmod finds the ACL that came in between, or the ACL finds its mode.
///
/// Without: the look at the marks under the inode's lock in `set_words`.
#[test]
fn a_chmod_and_an_acl_at_once() {
    check(400, World::new, |world, root| {
        let ino = made(world, root, 0o600);
        race(
            world,
            vec![
                task(move |w: &World| set(w, ino, [6, 6, 4, 6, 0])),
                task(move |w: &World| chmod(w, ino, 0o640)),
            ],
        );
        let ns = &world.namespace;
        let permissions = ns.attributes(ino).unwrap().permissions;
        let mask = if permissions == 0o660 { 6 } else { 4 };
        assert!(matches!(permissions, 0o660 | 0o640), "{permissions:o}");
        assert_eq!(
            ns.xattr(&world.user, ino, ACCESS),
            Ok(acl([6, 6, 4, mask, 0]))
        );
    });
}
