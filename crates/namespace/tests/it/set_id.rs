//! Who takes the set-user-ID and set-group-ID bits of a file away, and by what.

use std::sync::Arc;

use finefs_namespace::types::{Caller, Ino};
use finefs_namespace::{
    AccessChecks, AllocateMode, Attributes, DataChange, DataTimes, Error, MemoryStore, Namespace,
    Options, SetAttributes, SetTime, XattrMode,
};

/// The owner of the file.
const OWNER: u32 = 10;
/// Its group.
const GROUP: u32 = 50;

fn user(uid: u32, groups: &[u32]) -> Caller {
    Caller {
        uid,
        gid: uid,
        groups: groups.to_vec(),
        umask: 0,
        checks: AccessChecks::Done,
    }
}

fn file_with_mode(mode: u32) -> (Namespace, Ino) {
    let store = MemoryStore::new(1 << 20, 0o777, 0, 0).unwrap();
    let ns = Namespace::without_thread(Arc::new(store), Options::default()).unwrap();
    let root = Caller::root();
    let ino = ns.create_file(&root, ns.root(), b"f", 0o600).unwrap().ino;
    let owner = (Some(OWNER), Some(GROUP));
    ns.set_owner(&root, ino, owner, |_| true).unwrap();
    let change = SetAttributes {
        permissions: Some(mode),
        ..Default::default()
    };
    ns.set_attributes(&root, ino, &change).unwrap();
    (ns, ino)
}

/// Root keeps them, nobody else does: not the owner, and not who was checked by a kernel.
#[test]
fn a_change_of_data_takes_the_bits_but_by_root() {
    for checks in [AccessChecks::Done, AccessChecks::Needed] {
        let cases = [
            (user(0, &[]), 0o6777, 0o6777),
            (user(OWNER, &[]), 0o6777, 0o777),
            (user(11, &[GROUP]), 0o6777, 0o777),
            (user(11, &[GROUP]), 0o6767, 0o2767),
            (user(11, &[]), 0o6767, 0o767),
            (user(11, &[]), 0o755, 0o755),
        ];
        for (caller, mode, left) in cases {
            let caller = Caller { checks, ..caller };
            let (ns, ino) = file_with_mode(mode);
            let is_in_group = |gid| caller.is_in_group(gid);
            let change = DataChange::Append { length_bytes: 1 };
            let has_changed = ns.remove_privileges_unless_root(&caller, ino, change, is_in_group);
            assert_eq!(has_changed, Ok(left != mode), "{caller:?}, {mode:o}");
            assert_eq!(ns.attributes(ino).unwrap().permissions, left, "{caller:?}");
        }
    }
}

#[test]
fn a_chown_of_nobody_takes_the_bits_by_root_and_the_owner_alone() {
    for (caller, left) in [
        (user(0, &[]), 0o777),
        (user(OWNER, &[]), 0o777),
        (user(11, &[GROUP]), 0o6777),
    ] {
        let (ns, ino) = file_with_mode(0o6777);
        let before = ns.attributes(ino).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let is_in_group = |gid| caller.is_in_group(gid);
        let after = ns
            .set_owner(&caller, ino, (None, None), is_in_group)
            .unwrap();
        assert_eq!(after.permissions, left, "{caller:?}");
        assert_eq!(
            after.times.changed > before.times.changed,
            left == 0o777,
            "{caller:?}"
        );
        let of =
            |attributes: Attributes| (attributes.uid, attributes.gid, attributes.times.modified);
        assert_eq!(of(after), of(before));
    }
}

/// Who names somebody is asked who he is; here nobody has done that before.
#[test]
fn a_chown_of_somebody_is_not_for_others() {
    let (ns, ino) = file_with_mode(0o6777);
    let stranger = Caller {
        checks: AccessChecks::Needed,
        ..user(11, &[])
    };
    let outcome = ns.set_owner(&stranger, ino, (Some(11), None), |_| false);
    assert_eq!(outcome, Err(Error::NotPermitted));
    assert_eq!(ns.attributes(ino).unwrap().permissions, 0o6777);
}

/// As Linux does, whoever it is.
#[test]
fn changes_of_data_and_owner_take_capabilities() {
    const NAME: &[u8] = b"security.capability";
    let root = Caller::root();
    let set = |change: SetAttributes| {
        let root = root.clone();
        move |ns: &Namespace, ino| ns.set_attributes(&root, ino, &change).map(drop)
    };
    let size = |size_bytes| SetAttributes {
        size_bytes: Some(size_bytes),
        ..Default::default()
    };
    let mode = SetAttributes {
        permissions: Some(0o700),
        ..Default::default()
    };
    let times = SetAttributes {
        modified: Some(SetTime::Now),
        ..Default::default()
    };
    let owner = |owner| {
        let root = root.clone();
        move |ns: &Namespace, ino| ns.set_owner(&root, ino, owner, |_| true).map(drop)
    };
    type Change = Box<dyn Fn(&Namespace, Ino) -> finefs_namespace::Result<()>>;
    let changes: [(Change, bool); 13] = [
        (Box::new(|ns, ino| ns.write(ino, 0, b"x").map(drop)), true),
        (Box::new(|ns, ino| ns.append(ino, b"x").map(drop)), true),
        (
            Box::new(|ns, ino| ns.allocate(ino, AllocateMode::Extend, 0, 9)),
            true,
        ),
        (Box::new(set(size(0))), true),
        (Box::new(set(size(9))), true),
        (Box::new(owner((Some(5), None))), true),
        (Box::new(owner((None, None))), true),
        (Box::new(set(mode)), false),
        (Box::new(set(times)), false),
        (Box::new(|ns, ino| ns.write(ino, 0, b"").map(drop)), false),
        (Box::new(|ns, ino| ns.append(ino, b"").map(drop)), false),
        // Refused, and so without effect.
        (
            Box::new(|ns, ino| {
                let refused = ns.write(ino, u64::MAX - 1, b"x");
                assert_eq!(refused, Err(Error::FileTooLarge));
                Ok(())
            }),
            false,
        ),
        // What was stored into a page before.
        (
            Box::new(|ns, ino| ns.write_back(ino, 0, b"x", DataTimes::Set).map(drop)),
            false,
        ),
    ];
    for (index, (change, takes)) in changes.into_iter().enumerate() {
        let (ns, ino) = file_with_mode(0o755);
        ns.set_xattr(&root, ino, b"user.a", b"1", XattrMode::Set)
            .unwrap();
        ns.set_xattr(&root, ino, NAME, b"caps", XattrMode::Set)
            .unwrap();
        change(&ns, ino).unwrap();
        let left = ns.xattr(&root, ino, NAME);
        let expected = if takes {
            Err(Error::NoAttribute)
        } else {
            Ok(b"caps".to_vec())
        };
        assert_eq!(left, expected, "change {index}");
        assert_eq!(ns.xattr(&root, ino, b"user.a").unwrap(), b"1");
        // Those that come after a look that found none go as well.
        ns.set_xattr(&root, ino, NAME, b"again", XattrMode::Set)
            .unwrap();
        ns.write(ino, 0, b"x").unwrap();
        assert_eq!(ns.xattr(&root, ino, NAME), Err(Error::NoAttribute));
    }
}
