//! Operations as plain data, made from a seed.
//!
//! An operation names inodes by *slots*: places that hold a reference on what an earlier operation
//! made or found, or nothing. Slot 0 is the root for ever; the next few get directories, the rest
//! anything. So any list of operations can run, also one from which some were taken out: that is
//! what shrinking a failure needs.

use finefs_namespace::{AllocateMode, Caller, FileKind, RenameMode, XattrMode};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::model::acl::{self, Acl};

/// Number of slots.
pub const SLOTS: usize = 12;
/// Slots 1 to this (exclusive) are where directories go.
const DIRECTORY_SLOTS: usize = 5;
/// Names are of the letters up to this one.
const NAMES: u8 = 7;
/// Data lies below this offset, but for a few operations.
const OFFSET_MAX: u64 = 70_000;

/// A place for a reference.
pub type Slot = usize;

/// Who asks: an index into [`callers`].
pub type Who = usize;

/// The callers: the superuser whose checks were made, the superuser, two users who share group 7,
/// and one who shares nothing.
pub fn callers() -> Vec<Caller> {
    let user = |uid, groups: &[u32]| Caller {
        uid,
        gid: uid,
        groups: groups.to_vec(),
        umask: 0o022,
        checks: finefs_namespace::AccessChecks::Needed,
    };
    vec![
        Caller::root(),
        Caller {
            checks: finefs_namespace::AccessChecks::Needed,
            ..Caller::root()
        },
        user(1000, &[7]),
        user(1001, &[7, 8]),
        user(1002, &[]),
    ]
}

/// A name in a directory: the directory's slot and the name.
pub type At = (Slot, Vec<u8>);

/// One operation.
#[derive(Clone, Debug)]
#[allow(
    missing_docs,
    reason = "the fields are the arguments of the namespace's functions"
)]
pub enum Operation {
    /// create_file, make_node, make_directory or make_symlink.
    Create {
        who: Who,
        at: At,
        kind: FileKind,
        permissions: u32,
        device: u64,
        target_length: usize,
        out: Slot,
    },
    /// create_unnamed
    CreateUnnamed {
        who: Who,
        dir: Slot,
        permissions: u32,
        out: Slot,
    },
    /// make_link
    Link { who: Who, inode: Slot, at: At },
    /// remove_file
    RemoveFile { who: Who, at: At },
    /// remove_directory
    RemoveDirectory { who: Who, at: At },
    /// rename
    Rename {
        who: Who,
        from: At,
        to: At,
        mode: RenameMode,
    },
    /// lookup
    Lookup { who: Who, at: At, out: Slot },
    /// Empties a slot.
    Forget { slot: Slot },
    /// Puts what one slot holds into another too.
    Reference { slot: Slot, out: Slot },
    /// attributes
    Attributes { slot: Slot },
    /// access
    Access { who: Who, slot: Slot, mask: u32 },
    /// chmod
    SetPermissions {
        who: Who,
        slot: Slot,
        permissions: u32,
    },
    /// chown
    SetOwner {
        who: Who,
        slot: Slot,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    /// truncate
    Truncate {
        who: Who,
        slot: Slot,
        size_bytes: u64,
    },
    /// clear_privileges
    ClearPrivileges { slot: Slot },
    /// read_symlink
    ReadSymlink { slot: Slot },
    /// read
    Read {
        slot: Slot,
        offset_bytes: u64,
        length: usize,
    },
    /// write
    Write {
        slot: Slot,
        offset_bytes: u64,
        length: usize,
        fill: u8,
    },
    /// append
    Append { slot: Slot, length: usize, fill: u8 },
    /// allocate
    Allocate {
        slot: Slot,
        mode: AllocateMode,
        offset_bytes: u64,
        length_bytes: u64,
    },
    /// seek_data, then seek_hole from there
    Seek { slot: Slot, offset_bytes: u64 },
    /// set_xattr
    SetXattr {
        who: Who,
        slot: Slot,
        name: Vec<u8>,
        length: usize,
        fill: u8,
        mode: XattrMode,
    },
    /// set_xattr with the value of an ACL
    SetAcl {
        who: Who,
        slot: Slot,
        name: Vec<u8>,
        value: Vec<u8>,
    },
    /// remove_xattr
    RemoveXattr { who: Who, slot: Slot, name: Vec<u8> },
    /// xattr
    Xattr { who: Who, slot: Slot, name: Vec<u8> },
    /// list_xattrs
    ListXattrs { who: Who, slot: Slot },
    /// read_directory, so many entries at a time
    ReadDirectory { slot: Slot, at_a_time: usize },
    /// sync
    Sync,
    /// sync_file
    SyncFile { slot: Slot },
    /// Compare everything.
    Compare,
    /// Shut down, open again; compare everything, or let what follows load what it needs.
    Reopen { compares: bool },
}

/// The operations of a seed.
pub fn operations(seed: u64, count: usize) -> Vec<Operation> {
    let mut random = Random(StdRng::seed_from_u64(seed));
    (0..count).map(|_| random.operation()).collect()
}

struct Random(StdRng);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0.random_range(0..end)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn who(&mut self) -> Who {
        if self.one_in(3) {
            self.below(callers().len() as u64) as usize
        } else {
            0
        }
    }

    /// A slot that mostly holds a directory.
    fn dir(&mut self) -> Slot {
        match self.below(20) {
            0..8 => 0,
            8..19 => self.below(DIRECTORY_SLOTS as u64) as usize,
            _ => self.slot(),
        }
    }

    /// Any slot.
    fn slot(&mut self) -> Slot {
        self.below(SLOTS as u64) as usize
    }

    /// A slot that mostly holds a file.
    fn file(&mut self) -> Slot {
        if self.one_in(20) {
            self.slot()
        } else {
            self.out(false)
        }
    }

    fn out(&mut self, is_directory: bool) -> Slot {
        let (from, to) = if is_directory {
            (1, DIRECTORY_SLOTS)
        } else {
            (DIRECTORY_SLOTS, SLOTS)
        };
        self.0.random_range(from..to)
    }

    fn name(&mut self) -> Vec<u8> {
        match self.below(60) {
            0 => b".".to_vec(),
            1 => b"..".to_vec(),
            2 => Vec::new(),
            3 => vec![b'n'; 255],
            4 => vec![b'n'; 256],
            5 => b"a/b".to_vec(),
            _ => vec![b'a' + self.below(u64::from(NAMES)) as u8],
        }
    }

    fn at(&mut self) -> At {
        (self.dir(), self.name())
    }

    fn offset(&mut self) -> u64 {
        match self.below(40) {
            // Beyond the largest file of any store, never just below it: the model holds all bytes.
            0 => self.pick(&[u64::MAX, u64::MAX - 4096, i64::MAX as u64]),
            // About the edges of blocks.
            1..15 => {
                let block = self.below(OFFSET_MAX / 4096) * self.pick(&[4096, 1024]);
                (block + self.below(5)).saturating_sub(2)
            }
            _ => self.below(OFFSET_MAX),
        }
    }

    fn length(&mut self) -> usize {
        let most = self.pick(&[1, 10, 600, 5_000, 5_000, 20_000]);
        self.below(most + 1) as usize
    }

    fn xattr_name(&mut self) -> Vec<u8> {
        self.pick(&[
            b"user.a".as_slice(),
            b"user.a",
            b"user.b",
            b"user.c",
            b"trusted.t",
            b"security.s",
            acl::ACCESS,
            acl::DEFAULT,
            b"nothing.n",
            b"",
        ])
        .to_vec()
    }

    fn operation(&mut self) -> Operation {
        let who = self.who();
        match self.below(100) {
            0..14 => self.create(who),
            14..16 => Operation::CreateUnnamed {
                who,
                dir: self.dir(),
                permissions: 0o644,
                out: self.out(false),
            },
            16..21 => Operation::Link {
                who,
                inode: self.file(),
                at: self.at(),
            },
            21..27 => Operation::RemoveFile { who, at: self.at() },
            27..32 => Operation::RemoveDirectory { who, at: self.at() },
            32..43 => Operation::Rename {
                who,
                from: self.at(),
                to: self.at(),
                mode: self.pick(&[
                    RenameMode::Replace,
                    RenameMode::Replace,
                    RenameMode::NoReplace,
                    RenameMode::Exchange,
                    RenameMode::Whiteout,
                    RenameMode::WhiteoutNoReplace,
                ]),
            },
            43..50 => {
                let is_directory = self.one_in(2);
                Operation::Lookup {
                    who,
                    at: self.at(),
                    out: self.out(is_directory),
                }
            }
            50..52 => Operation::Forget { slot: self.slot() },
            52 => Operation::Reference {
                slot: self.slot(),
                out: self.out(false),
            },
            53..59 => self.change_attributes(who),
            59..84 => self.data(who),
            84..92 => self.xattrs(who),
            92 => Operation::Attributes { slot: self.slot() },
            93 => Operation::Access {
                who,
                slot: self.slot(),
                mask: self.below(8) as u32,
            },
            94..97 => Operation::ReadDirectory {
                slot: self.dir(),
                at_a_time: self.0.random_range(1..12),
            },
            97 => Operation::Sync,
            98 => Operation::SyncFile { slot: self.slot() },
            _ => match self.below(4) {
                0 => Operation::Reopen {
                    compares: self.one_in(3),
                },
                1 => Operation::Reopen { compares: false },
                _ => Operation::Compare,
            },
        }
    }

    fn create(&mut self, who: Who) -> Operation {
        let kind = match self.below(20) {
            0..9 => FileKind::Regular,
            9..15 => FileKind::Directory,
            15..18 => FileKind::Symlink,
            _ => self.pick(&[
                FileKind::Fifo,
                FileKind::Socket,
                FileKind::CharDevice,
                FileKind::BlockDevice,
            ]),
        };
        Operation::Create {
            who,
            at: self.at(),
            kind,
            permissions: self.pick(&[
                0o777, 0o777, 0o755, 0o644, 0o600, 0o1777, 0o070, 0, 0o2775, 0o2664,
            ]),
            device: self.pick(&[0x103, 0x1_2345, 0xffff_ffff, 1 << 32]),
            target_length: self.pick(&[0, 1, 12, 59, 60, 61, 900, 4000, 5000]),
            out: self.out(kind == FileKind::Directory),
        }
    }

    fn change_attributes(&mut self, who: Who) -> Operation {
        let slot = self.slot();
        match self.below(6) {
            0..3 => Operation::SetPermissions {
                who,
                slot,
                permissions: self.pick(&[
                    0o777, 0o755, 0o700, 0o644, 0o000, 0o1777, 0o2775, 0o6755, 0o2644,
                ]),
            },
            3..5 => Operation::SetOwner {
                who,
                slot,
                uid: self.pick(&[None, Some(0), Some(1000), Some(1001), Some(70_000)]),
                gid: self.pick(&[None, Some(0), Some(7), Some(8), Some(70_000)]),
            },
            _ => Operation::ClearPrivileges { slot },
        }
    }

    fn data(&mut self, who: Who) -> Operation {
        let slot = self.file();
        let fill = self.0.random();
        match self.below(25) {
            0..7 => Operation::Write {
                slot,
                offset_bytes: self.offset(),
                length: self.length(),
                fill,
            },
            7..11 => Operation::Append {
                slot,
                length: self.length(),
                fill,
            },
            11..15 => Operation::Read {
                slot,
                offset_bytes: self.offset(),
                length: self.length(),
            },
            15..18 => Operation::Truncate {
                who,
                slot,
                size_bytes: self.pick(&[0, 1, 5, 1024, 4095, 4096, 4097, 30_000, u64::MAX]),
            },
            18..23 => Operation::Allocate {
                slot,
                mode: self.pick(&[
                    AllocateMode::Extend,
                    AllocateMode::KeepSize,
                    AllocateMode::PunchHole,
                    AllocateMode::PunchHole,
                    AllocateMode::ZeroRange,
                    AllocateMode::ZeroRangeKeepSize,
                ]),
                offset_bytes: self.offset(),
                length_bytes: self.length() as u64,
            },
            23 => Operation::Seek {
                slot,
                offset_bytes: self.offset(),
            },
            _ => Operation::ReadSymlink { slot },
        }
    }

    fn xattrs(&mut self, who: Who) -> Operation {
        let slot = self.slot();
        if self.one_in(3) {
            return self.set_acl(who);
        }
        let name = self.xattr_name();
        match self.below(8) {
            0..4 => Operation::SetXattr {
                who,
                slot,
                name,
                length: self.pick(&[0, 1, 5, 40, 200, 900, 70_000]),
                fill: self.0.random(),
                mode: self.pick(&[XattrMode::Set, XattrMode::Create, XattrMode::Replace]),
            },
            4..6 => Operation::Xattr { who, slot, name },
            6 => Operation::RemoveXattr { who, slot, name },
            _ => Operation::ListXattrs { who, slot },
        }
    }
}

impl Random {
    /// An ACL, mostly one that makes sense, for what is mostly a directory if it is a default ACL.
    fn set_acl(&mut self, who: Who) -> Operation {
        let is_default = self.one_in(2);
        let digit = |random: &mut Random| random.pick(&[7, 7, 6, 5, 4, 3, 0]);
        let mut entries = vec![(1, digit(self), u32::MAX)];
        for (tag, ids) in [(2, [1000, 1001, 1002]), (8, [7, 8, 1002])] {
            if tag == 8 {
                entries.push((4, digit(self), u32::MAX));
            }
            for id in ids {
                if self.one_in(3) {
                    entries.push((tag, digit(self), id));
                }
            }
        }
        if entries.len() > 2 || self.one_in(3) {
            entries.push((16, digit(self), u32::MAX));
        }
        entries.push((32, digit(self), u32::MAX));
        if self.one_in(10) {
            // Mostly no ACL any more.
            let at = self.below(entries.len() as u64) as usize;
            match self.below(3) {
                0 => drop(entries.remove(at)),
                1 => entries[at].1 = 8,
                _ => entries[at].0 = self.pick(&[1, 2, 4, 8, 16, 32, 3]),
            }
        }
        Operation::SetAcl {
            who,
            slot: match is_default {
                true => self.dir(),
                false => self.slot(),
            },
            name: match is_default {
                true => acl::DEFAULT.to_vec(),
                false => acl::ACCESS.to_vec(),
            },
            value: Acl(entries).value(),
        }
    }
}

/// Bytes that differ from place to place, so that misplaced data shows.
pub fn pattern(length: usize, fill: u8) -> Vec<u8> {
    (0..length)
        .map(|index| fill.wrapping_add((index % 251) as u8).max(1))
        .collect()
}
