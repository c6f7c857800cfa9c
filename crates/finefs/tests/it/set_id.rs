//! Who writes takes set-user-ID and set-group-ID bits away; who may not or cannot write does not.

use finefs::{AllocateMode, Caller, File, FileSystem, LastLink, OpenOptions, Permissions};

/// Owner and group of the file.
const OWNER: u32 = 10;
const GROUP: u32 = 50;
/// The group may not run the file, so its set-id bit stays with who is in the group.
const MODE: u32 = 0o6767;

fn caller(uid: u32, groups: &[u32]) -> Caller {
    Caller {
        uid,
        gid: uid,
        groups: groups.to_vec(),
        checks: finefs::AccessChecks::Needed,
        ..Caller::root()
    }
}

type Change = fn(&File) -> finefs::Result<()>;

/// A file system with the file, to root.
fn with_file() -> FileSystem {
    let fs = FileSystem::memory(16 << 20).unwrap();
    fs.write("f", b"text").unwrap();
    fs.set_owner("f", Some(OWNER), Some(GROUP), LastLink::Follow)
        .unwrap();
    fs.set_permissions("f", Permissions::from_mode(MODE))
        .unwrap();
    fs
}

/// The mode after `change` by somebody else, and what came of that.
fn after(caller: Caller, change: impl Fn(&File) -> finefs::Result<()>) -> (u32, Option<i32>) {
    let fs = with_file();
    let other = fs.as_caller(caller);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&other, "f")
        .unwrap();
    let errno = change(&file).err().map(|error| error.errno());
    (fs.metadata("f").unwrap().permissions().mode(), errno)
}

const FAR: u64 = u64::MAX - 1;

#[test]
fn a_change_of_data_takes_the_bits() {
    let changes: [Change; 4] = [
        |file| file.write_at(b"new", 0).map(drop),
        |file| file.append(b"new").map(drop),
        |file| file.set_len(2),
        |file| file.allocate(AllocateMode::Extend, 0, 10),
    ];
    for change in changes {
        assert_eq!(after(caller(11, &[]), change), (0o767, None));
        assert_eq!(after(caller(11, &[GROUP]), change), (0o2767, None));
        assert_eq!(after(caller(0, &[]), change), (MODE, None));
    }
}

/// As Linux looks at the size before it looks at the mode.
#[test]
fn a_change_that_cannot_be_leaves_them() {
    let changes: [(Change, i32); 4] = [
        (|file| file.write_at(b"new", FAR).map(drop), libc::EFBIG),
        (|file| file.set_len(FAR), libc::EFBIG),
        (
            |file| file.allocate(AllocateMode::Extend, FAR - 10, 10),
            libc::EFBIG,
        ),
        (
            |file| file.allocate(AllocateMode::Extend, 0, 0),
            libc::EINVAL,
        ),
    ];
    for (change, errno) in changes {
        assert_eq!(after(caller(11, &[]), change), (MODE, Some(errno)));
    }
    // To write nothing is no write.
    let nothing = |file: &File| file.write_at(b"", 0).map(drop);
    assert_eq!(after(caller(11, &[]), nothing), (MODE, None));
    let nothing = |file: &File| file.append(b"").map(drop);
    assert_eq!(after(caller(11, &[]), nothing), (MODE, None));
}

#[test]
fn opening_to_empty_takes_the_bits() {
    for (who, left) in [(caller(11, &[]), 0o767), (caller(0, &[]), MODE)] {
        let fs = with_file();
        let other = fs.as_caller(who);
        drop(File::create(&other, "f").unwrap());
        assert_eq!(fs.metadata("f").unwrap().permissions().mode(), left);
    }
}

/// What counts at chown(2) is the group of before.
#[test]
fn the_owner_who_is_not_in_the_group_of_before_loses_the_bit() {
    for (groups, left) in [(&[60][..], 0o767), (&[60, GROUP], 0o2767)] {
        let fs = with_file();
        let owner = fs.as_caller(caller(OWNER, groups));
        owner
            .set_owner("f", None, Some(60), LastLink::Follow)
            .unwrap();
        assert_eq!(fs.metadata("f").unwrap().permissions().mode(), left);
    }
}
