//! ACLs: what they grant and deny, how they are set, how they go with chmod, what is made under a
//! default one.
//!
//! In memory, and over a store that logs and forgets; see `model.rs` for random sequences, and
//! `xtask prove acl` for the same beside the kernel's ext4.

use std::sync::Arc;

use finefs_namespace::{
    At, AtimeUpdate, Attributes, Caller, Create, Error, FileKind, Ino, LastLink, MemoryStore,
    Namespace, OpenAccess, OpenHow, Options, SetAttributes, XattrMode,
};
use finefs_testkit::CheckedStore;

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The value of an ACL as setfacl(1) writes one: `u::rw,u:10:r,g::r,m::r,o::-`.
fn acl(text: &str) -> Vec<u8> {
    let mut value = vec![2, 0, 0, 0];
    for entry in text.split(',') {
        let parts: Vec<&str> = entry.split(':').collect();
        let id: Option<u32> = parts[1].parse().ok();
        let tag: u16 = match (parts[0], id) {
            ("u", None) => 1,
            ("u", _) => 2,
            ("g", None) => 4,
            ("g", _) => 8,
            ("m", _) => 16,
            ("o", _) => 32,
            _ => panic!("{entry}"),
        };
        let bits = [('r', 4), ('w', 2), ('x', 1)];
        let permissions: u16 = bits
            .iter()
            .filter(|(letter, _)| parts[2].contains(*letter))
            .map(|(_, bit)| bit)
            .sum();
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.unwrap_or(u32::MAX).to_le_bytes());
    }
    value
}

fn user(uid: u32, groups: &[u32]) -> Caller {
    Caller {
        uid,
        gid: uid,
        groups: groups.to_vec(),
        umask: 0o022,
        checks: finefs_namespace::AccessChecks::Needed,
    }
}

fn memory() -> Namespace {
    let store = MemoryStore::new(16 << 20, 0o777, 0, 0).unwrap();
    Namespace::without_thread(Arc::new(store), Options::default()).unwrap()
}

/// The same in memory, and over a store that takes batches.
fn both(test: impl Fn(&Namespace)) {
    test(&memory());
    let store = Arc::new(CheckedStore::new(16 << 20));
    let ns = Namespace::without_thread(store.clone(), Options::default()).unwrap();
    test(&ns);
    ns.sync().unwrap();
}

fn set(ns: &Namespace, caller: &Caller, ino: Ino, name: &[u8], text: &str) -> Result<(), Error> {
    ns.set_xattr(caller, ino, name, &acl(text), XattrMode::Set)
}

fn get(ns: &Namespace, ino: Ino, name: &[u8]) -> Option<Vec<u8>> {
    match ns.xattr(&Caller::root(), ino, name) {
        Err(Error::NoAttribute) => None,
        value => Some(value.unwrap()),
    }
}

fn mode(ns: &Namespace, ino: Ino) -> u32 {
    ns.attributes(ino).unwrap().permissions
}

fn chmod(ns: &Namespace, caller: &Caller, ino: Ino, permissions: u32) -> Result<Attributes, Error> {
    let change = SetAttributes {
        permissions: Some(permissions),
        ..SetAttributes::default()
    };
    ns.set_attributes(caller, ino, &change)
}

fn file_of(ns: &Namespace, uid: u32, gid: u32, permissions: u32) -> Ino {
    let name = format!("{uid}.{gid}.{permissions:o}");
    let made = ns.create_file(&Caller::root(), ns.root(), name.as_bytes(), permissions);
    let ino = made.unwrap().ino;
    let owner = SetAttributes {
        uid: Some(uid),
        gid: Some(gid),
        permissions: Some(permissions),
        ..SetAttributes::default()
    };
    ns.set_attributes(&Caller::root(), ino, &owner).unwrap();
    ino
}

#[test]
fn files_are_opened_by_those_whom_the_acl_lets() {
    both(|ns| {
        let ino = file_of(ns, 10, 50, 0o640);
        set(
            ns,
            &user(10, &[]),
            ino,
            ACCESS,
            "u::rw,u:11:rw,u:12:-,g::r,g:60:w,m::rw,o::r",
        )
        .unwrap();
        let opens = |caller: &Caller, access| match ns.open(caller, ino, access) {
            Ok(_) => true,
            Err(Error::AccessDenied) => false,
            Err(error) => panic!("{error}"),
        };
        for (caller, reads, writes) in [
            (user(10, &[]), true, true),
            (user(11, &[]), true, true),
            (user(12, &[]), false, false),
            (user(12, &[50, 60]), false, false),
            (user(13, &[]), true, false),
            (user(13, &[50]), true, false),
            (user(13, &[60]), false, true),
            (user(13, &[50, 60]), true, true),
            (user(0, &[]), true, true),
        ] {
            assert_eq!(opens(&caller, OpenAccess::Read), reads, "{caller:?} reads");
            assert_eq!(
                opens(&caller, OpenAccess::Write),
                writes,
                "{caller:?} writes"
            );
            let may = |mask| ns.access(&caller, ino, mask).is_ok();
            assert_eq!((may(4), may(2)), (reads, writes), "{caller:?}");
            let truncated = ns.set_attributes(
                &caller,
                ino,
                &SetAttributes {
                    size_bytes: Some(0),
                    ..SetAttributes::default()
                },
            );
            assert_eq!(truncated.is_ok(), writes, "{caller:?} truncates");
            let noted = ns.set_xattr(&caller, ino, b"user.a", b"", XattrMode::Set);
            assert_eq!(noted.is_ok(), writes, "{caller:?} sets an attribute");
        }
        // Somebody else has checked.
        let checked = Caller {
            checks: finefs_namespace::AccessChecks::Done,
            ..user(12, &[])
        };
        assert!(opens(&checked, OpenAccess::ReadWrite));
    });
}

#[test]
fn directories_are_searched_and_changed_by_those_whom_the_acl_lets() {
    both(|ns| {
        let root = Caller::root();
        let dir = ns
            .make_directory(&root, ns.root(), b"d", 0o700)
            .unwrap()
            .ino;
        ns.create_file(&root, dir, b"f", 0o666).unwrap();
        set(
            ns,
            &root,
            dir,
            ACCESS,
            "u::rwx,u:11:rwx,u:12:x,u:13:rw,g::-,m::rwx,o::rwx",
        )
        .unwrap();
        let denied = Err(Error::AccessDenied);
        let (all, search, list, group) =
            (user(11, &[]), user(12, &[]), user(13, &[]), user(14, &[0]));
        let at = |path: &'static str| At {
            start: ns.root(),
            path: path.as_bytes(),
        };
        let stat = |caller: &Caller| {
            ns.attributes_at(caller, at("d/f"), LastLink::Follow)
                .map(drop)
        };
        assert_eq!(stat(&all), Ok(()));
        assert_eq!(stat(&search), Ok(()));
        assert_eq!(stat(&list), denied);
        assert_eq!(stat(&group), denied);
        assert_eq!(stat(&user(15, &[])), Ok(()));
        assert_eq!(ns.lookup(&search, dir, b"f").map(drop), Ok(()));
        assert_eq!(ns.lookup(&list, dir, b"f").map(drop), denied);
        let how = OpenHow {
            access: Some(OpenAccess::Read),
            is_truncated: false,
            create: Create::IfMissing { permissions: 0o600 },
            last_link: LastLink::Follow,
            is_directory_wanted: false,
            atime: AtimeUpdate::ByPolicy,
        };
        let make = |caller: &Caller| {
            ns.open_at(caller, at("d/new"), &how)
                .map(|open| ns.close(open))
        };
        assert_eq!(make(&search), denied);
        assert_eq!(make(&all), Ok(()));
        assert_eq!(ns.remove_file(&search, dir, b"new"), denied);
        assert_eq!(ns.create_unnamed(&search, dir, 0o600).map(drop), denied);
        let rename = |caller: &Caller| {
            let mode = finefs_namespace::RenameMode::Replace;
            ns.rename(caller, (dir, b"new"), (ns.root(), b"out"), mode)
        };
        assert_eq!(rename(&search), denied);
        // The checked store's root is the superuser's own.
        chmod(ns, &root, ns.root(), 0o777).unwrap();
        assert_eq!(rename(&all), Ok(()));
    });
}

#[test]
fn an_access_acl_and_the_mode_are_set_together() {
    both(|ns| {
        let owner = user(10, &[]);
        let ino = file_of(ns, 10, 10, 0o4640);
        assert_eq!(get(ns, ino, ACCESS), None);
        set(ns, &owner, ino, ACCESS, "u::rwx,u:11:r,g::-,m::rw,o::x").unwrap();
        assert_eq!(mode(ns, ino), 0o4761);
        assert_eq!(
            get(ns, ino, ACCESS),
            Some(acl("u::rwx,u:11:r,g::-,m::rw,o::x"))
        );
        assert_eq!(ns.list_xattrs(&owner, ino), Ok(vec![ACCESS.to_vec()]));
        // No more than a mode: it is not kept.
        set(ns, &owner, ino, ACCESS, "u::rw,g::r,o::-").unwrap();
        assert_eq!((mode(ns, ino), get(ns, ino, ACCESS)), (0o4640, None));
        assert_eq!(ns.access(&user(11, &[]), ino, 4), Err(Error::AccessDenied));
        // To remove it leaves the mode.
        set(ns, &owner, ino, ACCESS, "u::rwx,u:11:r,g::-,m::rw,o::x").unwrap();
        assert_eq!(ns.remove_xattr(&owner, ino, ACCESS), Ok(()));
        assert_eq!((mode(ns, ino), get(ns, ino, ACCESS)), (0o4761, None));
        assert_eq!(ns.access(&user(11, &[]), ino, 4), Err(Error::AccessDenied));
        assert_eq!(
            ns.remove_xattr(&owner, ino, ACCESS),
            Ok(()),
            "it is gone already"
        );
        // A value without entries removes too.
        set(ns, &owner, ino, ACCESS, "u::rwx,u:11:r,g::-,m::rw,o::x").unwrap();
        ns.set_xattr(&owner, ino, ACCESS, &[2, 0, 0, 0], XattrMode::Create)
            .unwrap();
        assert_eq!((mode(ns, ino), get(ns, ino, ACCESS)), (0o4761, None));
    });
}

#[test]
fn who_may_set_what_where() {
    both(|ns| {
        let root = Caller::root();
        let (owner, other) = (user(10, &[]), user(11, &[]));
        let file = file_of(ns, 10, 10, 0o666);
        let dir = ns.make_directory(&owner, ns.root(), b"d", 0o777);
        let dir = match dir {
            // The checked store's root is the superuser's own.
            Err(Error::AccessDenied) => {
                ns.make_directory(&root, ns.root(), b"d", 0o777)
                    .unwrap()
                    .ino
            }
            made => made.unwrap().ino,
        };
        let link = ns.make_symlink(&root, ns.root(), b"l", b"d").unwrap().ino;
        let good = "u::rw,u:12:r,g::r,m::r,o::-";
        assert_eq!(
            set(ns, &other, file, ACCESS, good),
            Err(Error::NotPermitted)
        );
        assert_eq!(
            set(ns, &other, dir, DEFAULT, good),
            Err(Error::NotPermitted)
        );
        assert_eq!(
            ns.remove_xattr(&other, file, ACCESS),
            Err(Error::NotPermitted)
        );
        assert_eq!(
            set(ns, &owner, file, DEFAULT, good),
            Err(Error::AccessDenied)
        );
        assert_eq!(ns.remove_xattr(&owner, file, DEFAULT), Ok(()));
        assert_eq!(set(ns, &root, dir, DEFAULT, good), Ok(()));
        assert_eq!(get(ns, dir, DEFAULT), Some(acl(good)));
        assert_eq!(ns.remove_xattr(&root, dir, DEFAULT), Ok(()));
        assert_eq!(get(ns, dir, DEFAULT), None);
        for name in [ACCESS, DEFAULT] {
            assert_eq!(set(ns, &root, link, name, good), Err(Error::NotSupported));
            assert_eq!(ns.xattr(&root, link, name), Err(Error::NotSupported));
            let bad = ns.set_xattr(&root, dir, name, b"nonsense", XattrMode::Set);
            assert_eq!(bad, Err(Error::NotSupported), "another version");
            assert_eq!(set(ns, &root, dir, name, "u::rw,g::r"), Err(Error::Invalid));
        }
        let nothing = ns.set_xattr(&root, dir, b"system.nothing", b"", XattrMode::Set);
        assert_eq!(nothing, Err(Error::NotSupported));
    });
}

#[test]
fn an_access_acl_takes_the_setgid_bit_where_a_chmod_would() {
    both(|ns| {
        let text = "u::rwx,u:12:rwx,g::rwx,m::rwx,o::x";
        for (caller, kept) in [
            (user(10, &[]), 0),
            (user(10, &[50]), 0o2000),
            (user(0, &[]), 0o2000),
        ] {
            let ino = file_of(ns, 10, 50, caller.groups.len() as u32);
            chmod(ns, &Caller::root(), ino, 0o2775).unwrap();
            set(ns, &caller, ino, ACCESS, text).unwrap();
            assert_eq!(mode(ns, ino), kept | 0o771, "{caller:?}");
            ns.remove_file(
                &Caller::root(),
                ns.root(),
                format!("10.50.{:o}", caller.groups.len()).as_bytes(),
            )
            .unwrap();
        }
        let ino = file_of(ns, 10, 50, 0o600);
        chmod(ns, &Caller::root(), ino, 0o2775).unwrap();
        let value = acl(text);
        let set = |uid, gid, loses| {
            chmod(ns, &Caller::root(), ino, 0o2775).unwrap();
            let caller = Caller {
                gid,
                checks: finefs_namespace::AccessChecks::Done,
                ..user(uid, &[])
            };
            ns.set_xattr_checked(&caller, ino, (ACCESS, &value), XattrMode::Set, loses)
                .unwrap();
            mode(ns, ino)
        };
        assert_eq!(set(0, 0, Some(true)), 0o771);
        assert_eq!(set(10, 10, Some(false)), 0o2771);
        assert_eq!(set(10, 10, None), 0o771);
        assert_eq!(set(10, 50, None), 0o2771);
        assert_eq!(set(0, 0, None), 0o2771);
    });
}

/// Linux, `mode_strip_sgid`: before the umask and the default ACL take anything.
#[test]
fn a_new_program_gets_the_bit_of_its_directorys_group_from_members_only() {
    both(|ns| {
        let root = Caller::root();
        let shared = ns
            .make_directory(&root, ns.root(), b"shared", 0o777)
            .unwrap();
        let shared = shared.ino;
        let to_group = SetAttributes {
            gid: Some(50),
            ..SetAttributes::default()
        };
        ns.set_attributes(&root, shared, &to_group).unwrap();
        chmod(ns, &root, shared, 0o2777).unwrap();
        let masking = Caller {
            umask: 0o077,
            ..user(10, &[])
        };
        let checked = Caller {
            checks: finefs_namespace::AccessChecks::Done,
            ..user(10, &[])
        };
        let at = At {
            start: ns.root(),
            path: b"shared/at",
        };
        let open = |permissions| OpenHow {
            access: Some(OpenAccess::Write),
            is_truncated: false,
            create: Create::New { permissions },
            last_link: LastLink::Follow,
            is_directory_wanted: false,
            atime: AtimeUpdate::ByPolicy,
        };
        for default in [
            None,
            Some("u::rwx,g::r,o::-"),
            Some("u::rwx,u:11:rwx,g::r,m::r,o::-"),
        ] {
            if let Some(default) = default {
                set(ns, &root, shared, DEFAULT, default).unwrap();
            }
            for (caller, asked, kept) in [
                (user(10, &[]), 0o6775, 0),
                (user(10, &[]), 0o2664, 0o2000),
                (masking.clone(), 0o2070, 0),
                (user(10, &[50]), 0o2775, 0o2000),
                (user(0, &[]), 0o2775, 0o2000),
                (checked.clone(), 0o2775, 0o2000),
            ] {
                let what = format!("{asked:o} by {caller:?} under {default:?}");
                let is_right = |made: &Attributes| {
                    let bits = made.permissions & libc::S_ISGID;
                    assert_eq!((bits, made.gid), (kept, 50), "{what}: {:?}", made.kind);
                };
                is_right(&ns.create_file(&caller, shared, b"f", asked).unwrap());
                let made = ns.make_node(&caller, shared, b"n", FileKind::Fifo, asked, 0);
                is_right(&made.unwrap());
                is_right(&ns.create_unnamed(&caller, shared, asked).unwrap());
                ns.close(ns.open_at(&caller, at, &open(asked)).unwrap());
                is_right(&ns.attributes_at(&root, at, LastLink::Follow).unwrap());
                let sub = ns
                    .make_directory(&caller, shared, b"d", asked & 0o777)
                    .unwrap();
                assert_eq!((sub.permissions & 0o7000, sub.gid), (0o2000, 50), "{what}");
                for name in [b"f".as_slice(), b"n", b"at"] {
                    ns.remove_file(&root, shared, name).unwrap();
                }
                ns.remove_directory(&root, shared, b"d").unwrap();
            }
        }
        // Nor where the directory does not give its group: the bit is of the maker's own.
        chmod(ns, &root, shared, 0o777).unwrap();
        let own = ns.create_file(&user(10, &[]), shared, b"own", 0o2775);
        let own = own.unwrap();
        assert_eq!((own.permissions & 0o7000, own.gid), (0o2000, 10));
    });
}

#[test]
fn a_chmod_changes_the_acl() {
    both(|ns| {
        let owner = user(10, &[]);
        let ino = file_of(ns, 10, 50, 0o600);
        set(ns, &owner, ino, ACCESS, "u::rw,u:11:rwx,g::rx,m::rwx,o::-").unwrap();
        assert_eq!(chmod(ns, &owner, ino, 0o754).unwrap().permissions, 0o754);
        assert_eq!(
            get(ns, ino, ACCESS),
            Some(acl("u::rwx,u:11:rwx,g::rx,m::rx,o::r"))
        );
        let may = |caller: Caller, mask| ns.access(&caller, ino, mask).is_ok();
        assert!(may(user(11, &[]), 5) && !may(user(11, &[]), 2));
        chmod(ns, &owner, ino, 0o700).unwrap();
        assert!(!may(user(11, &[]), 4) && !may(user(12, &[50]), 4));
        // What is no chmod leaves it.
        let before = get(ns, ino, ACCESS);
        assert!(!ns.clear_privileges(ino, |_| true).unwrap());
        let to = SetAttributes {
            uid: Some(10),
            ..SetAttributes::default()
        };
        ns.set_attributes(&owner, ino, &to).unwrap();
        assert_eq!((mode(ns, ino), get(ns, ino, ACCESS)), (0o700, before));
    });
}

#[test]
fn what_is_made_in_a_directory_with_a_default_acl_inherits_it() {
    both(|ns| {
        let root = Caller {
            umask: 0o077,
            ..Caller::root()
        };
        let dir = ns
            .make_directory(&root, ns.root(), b"d", 0o755)
            .unwrap()
            .ino;
        let default = "u::rwx,u:11:rwx,g::rx,m::rwx,o::r";
        set(ns, &root, dir, DEFAULT, default).unwrap();
        assert_eq!((mode(ns, dir), get(ns, dir, ACCESS)), (0o700, None));
        // The umask does not count.
        let file = ns.create_file(&root, dir, b"f", 0o4660).unwrap();
        let of_file = Some(acl("u::rw,u:11:rwx,g::rx,m::rw,o::-"));
        assert_eq!(
            (file.permissions, get(ns, file.ino, ACCESS)),
            (0o4660, of_file)
        );
        assert_eq!(get(ns, file.ino, DEFAULT), None);
        assert!(ns.access(&user(11, &[]), file.ino, 6).is_ok());
        let sub = ns.make_directory(&root, dir, b"sub", 0o777).unwrap();
        assert_eq!(sub.permissions, 0o774);
        assert_eq!(get(ns, sub.ino, ACCESS), Some(acl(default)));
        assert_eq!(get(ns, sub.ino, DEFAULT), Some(acl(default)));
        let deep = ns.make_directory(&root, sub.ino, b"deep", 0o700).unwrap();
        assert_eq!(
            get(ns, deep.ino, ACCESS),
            Some(acl("u::rwx,u:11:rwx,g::rx,m::-,o::-"))
        );
        let fifo = ns
            .make_node(&root, dir, b"p", FileKind::Fifo, 0o666, 0)
            .unwrap();
        assert_eq!(fifo.permissions, 0o664);
        assert!(get(ns, fifo.ino, ACCESS).is_some());
        let unnamed = ns.create_unnamed(&root, dir, 0o640).unwrap();
        assert_eq!(unnamed.permissions, 0o640);
        assert_eq!(
            get(ns, unnamed.ino, ACCESS),
            Some(acl("u::rw,u:11:rwx,g::rx,m::r,o::-"))
        );
        let link = ns.make_symlink(&root, dir, b"l", b"f").unwrap();
        assert_eq!(
            (link.permissions, ns.list_xattrs(&root, link.ino)),
            (0o777, Ok(vec![]))
        );
        // One that says no more than a mode leaves no ACL, but is inherited by directories.
        set(ns, &root, dir, DEFAULT, "u::rwx,g::rx,o::-").unwrap();
        let plain = ns.create_file(&root, dir, b"plain", 0o666).unwrap();
        assert_eq!(
            (plain.permissions, get(ns, plain.ino, ACCESS)),
            (0o640, None)
        );
        let sub = ns.make_directory(&root, dir, b"sub2", 0o777).unwrap();
        assert_eq!((sub.permissions, get(ns, sub.ino, ACCESS)), (0o750, None));
        assert_eq!(get(ns, sub.ino, DEFAULT), Some(acl("u::rwx,g::rx,o::-")));
        ns.remove_xattr(&root, dir, DEFAULT).unwrap();
        let masked = ns.create_file(&root, dir, b"masked", 0o666).unwrap();
        assert_eq!(masked.permissions, 0o600);
    });
}

/// What was committed is what counts after a reload, and nobody needed to ask for the ACL before.
#[test]
fn acls_are_found_again() {
    let store = Arc::new(CheckedStore::reloading(16 << 20));
    let root = Caller::root();
    let (file, dir, plain);
    {
        let ns = Namespace::without_thread(store.clone(), Options::default()).unwrap();
        chmod(&ns, &root, ns.root(), 0o755).unwrap();
        file = file_of(&ns, 10, 50, 0o644);
        set(&ns, &root, file, ACCESS, "u::rw,u:11:-,g::r,m::r,o::r").unwrap();
        plain = file_of(&ns, 10, 51, 0o604);
        ns.set_xattr(&root, plain, b"user.a", b"1", XattrMode::Set)
            .unwrap();
        dir = ns
            .make_directory(&root, ns.root(), b"d", 0o755)
            .unwrap()
            .ino;
        set(&ns, &root, dir, DEFAULT, "u::rwx,u:11:rx,g::-,m::rx,o::-").unwrap();
        ns.shut_down().unwrap();
    }
    let open = |options| Namespace::without_thread(store.clone(), options).unwrap();
    {
        let ns = open(Options::default());
        assert_eq!(ns.access(&user(11, &[]), file, 4), Err(Error::AccessDenied));
        assert_eq!(ns.access(&user(12, &[]), file, 4), Ok(()));
        assert_eq!(
            ns.access(&user(12, &[51]), plain, 4),
            Err(Error::AccessDenied)
        );
        assert_eq!(ns.access(&user(12, &[]), plain, 4), Ok(()));
        let made = ns.create_file(&root, dir, b"f", 0o666).unwrap();
        assert_eq!(made.permissions, 0o640);
        chmod(&ns, &root, file, 0o600).unwrap();
        ns.shut_down().unwrap();
    }
    let ns = open(Options::default());
    assert_eq!(
        get(&ns, file, ACCESS),
        Some(acl("u::rw,u:11:-,g::r,m::-,o::-"))
    );
    let made = ns.lookup(&root, dir, b"f").unwrap();
    assert_eq!(
        get(&ns, made.ino, ACCESS),
        Some(acl("u::rw,u:11:rx,g::-,m::r,o::-"))
    );
    assert!(ns.access(&user(11, &[]), made.ino, 4).is_ok());
    ns.shut_down().unwrap();
}

/// As with the kernel's ext4 mounted without ACLs.
#[test]
fn without_acls_they_are_as_if_not_there() {
    let store = Arc::new(CheckedStore::reloading(16 << 20));
    let root = Caller::root();
    let text = "u::rw,u:11:-,g::r,m::r,o::r";
    let (file, dir);
    {
        let ns = Namespace::without_thread(store.clone(), Options::default()).unwrap();
        file = file_of(&ns, 10, 50, 0o644);
        set(&ns, &root, file, ACCESS, text).unwrap();
        dir = ns
            .make_directory(&root, ns.root(), b"d", 0o755)
            .unwrap()
            .ino;
        set(&ns, &root, dir, DEFAULT, "u::rwx,u:11:rx,g::-,m::rx,o::-").unwrap();
        ns.shut_down().unwrap();
    }
    {
        let options = Options {
            has_acls: false,
            ..Options::default()
        };
        let ns = Namespace::without_thread(store.clone(), options).unwrap();
        assert_eq!(ns.access(&user(11, &[]), file, 4), Ok(()));
        assert_eq!(ns.list_xattrs(&root, file), Ok(vec![]));
        assert_eq!(ns.xattr(&root, file, ACCESS), Err(Error::NotSupported));
        assert_eq!(
            set(&ns, &root, file, ACCESS, text),
            Err(Error::NotSupported)
        );
        assert_eq!(
            ns.remove_xattr(&root, file, ACCESS),
            Err(Error::NotSupported)
        );
        chmod(&ns, &root, file, 0o664).unwrap();
        let caller = Caller {
            umask: 0o022,
            ..Caller::root()
        };
        assert_eq!(
            ns.create_file(&caller, dir, b"f", 0o666)
                .unwrap()
                .permissions,
            0o644
        );
        ns.shut_down().unwrap();
    }
    let ns = Namespace::without_thread(store, Options::default()).unwrap();
    assert_eq!(
        (mode(&ns, file), get(&ns, file, ACCESS)),
        (0o664, Some(acl(text)))
    );
    ns.shut_down().unwrap();
}

#[test]
fn the_change_time_tells_of_changes_only() {
    both(|ns| {
        let root = Caller::root();
        let ino = file_of(ns, 10, 50, 0o640);
        let changed = || ns.attributes(ino).unwrap().times.changed;
        let past = finefs_namespace::Timestamp::new(1000, 0);
        let reset = || {
            let change = SetAttributes {
                changed: Some(past),
                ..SetAttributes::default()
            };
            ns.set_attributes(&root, ino, &change).unwrap();
            assert_eq!(changed(), past);
        };
        reset();
        ns.remove_xattr(&root, ino, ACCESS).unwrap();
        set(ns, &root, ino, ACCESS, "u::rw,g::r,o::-").unwrap();
        assert_eq!(changed(), past, "nothing changed");
        set(ns, &root, ino, ACCESS, "u::rw,g::r,o::r").unwrap();
        assert!(changed() > past);
        reset();
        set(ns, &root, ino, ACCESS, "u::rw,u:11:r,g::r,m::r,o::r").unwrap();
        assert!(changed() > past);
        reset();
        ns.remove_xattr(&root, ino, ACCESS).unwrap();
        assert!(changed() > past);
    });
}
