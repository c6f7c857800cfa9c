//! The values that steps are made from: those where something changes, and a few in between.

use super::operation::Bytes;
use super::users::{FIRST, SECOND};
use finefs_harness::rng::Rng;

/// pwritev2: as with O_DSYNC.
pub const RWF_DSYNC: u32 = 2;
/// pwritev2: at the end.
pub const RWF_APPEND: u32 = 0x10;
/// renameat2: nothing may be there.
pub const RENAME_NOREPLACE: u32 = 1;
/// renameat2: both names change places.
pub const RENAME_EXCHANGE: u32 = 2;
/// renameat2: the old name is left as a whiteout.
pub const RENAME_WHITEOUT: u32 = 4;
/// renameat2: what is refused.
pub const RENAME_WRONG: &[u32] = &[3, 6, 8, 0x100];
/// Flags of inodes (FS_IOC_SETFLAGS). What makes files immutable or append-only is for directories
/// alone: a server is not asked when a file is opened.
pub const FILE_FLAGS: &[u32] = &[0, 0x8, 0x40, 0x80, 0xc0, 0x10000];
/// The same of directories.
pub const DIRECTORY_FLAGS: &[u32] = &[
    0, 0, 0, 0, 0x8, 0x10, 0x20, 0x30, 0x40, 0x80, 0xc1, 0x10000, 0x20000,
];
/// faccessat2: as the effective user.
pub const AT_EACCESS: u32 = 0x200;
/// Not what a symbolic link leads to.
pub const AT_SYMLINK_NOFOLLOW: u32 = 0x100;

const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;

/// Modes of fallocate. The kernel does not pass COLLAPSE_RANGE and INSERT_RANGE on to FUSE.
pub const FALLOCATE: &[u32] = &[
    0,
    KEEP_SIZE,
    PUNCH_HOLE | KEEP_SIZE,
    PUNCH_HOLE | KEEP_SIZE,
    ZERO_RANGE,
    ZERO_RANGE | KEEP_SIZE,
    PUNCH_HOLE,
    PUNCH_HOLE | ZERO_RANGE,
];

/// Far offsets: of sizes where a format ends, and of numbers where a type does.
pub const OFFSETS: &[u64] = &[
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 4096,
    1 << 33,
    (1 << 34) + 67_383_296,
    (1 << 41) - 4096,
    1 << 41,
    (1 << 44) - 4096,
    (1 << 44) - 1,
    1 << 44,
    i64::MAX as u64,
    u64::MAX,
];

/// Types and device numbers. The kernel has no drivers for those that are no null and zero.
pub const NODES: &[(u32, u32, u32)] = &[
    (0o010_000, 0, 0),
    (0o010_000, 5, 5),
    (0o140_000, 0, 0),
    (0o020_000, 1, 3),
    (0o020_000, 1, 5),
    (0o020_000, 4095, 1_048_575),
    (0o020_000, 0, 0),
    (0o060_000, 4000, 255),
    (0o060_000, 4000, 256),
    (0o100_000, 0, 0),
    (0o040_000, 0, 0),
    (0, 0, 0),
];

/// Owners and groups.
pub const OWNERS: &[u32] = &[
    0,
    FIRST,
    FIRST,
    SECOND,
    SECOND,
    65_535,
    65_536,
    4_294_967_294,
];

/// Seconds where what an inode can hold ends.
pub const SECONDS: &[i64] = &[
    0,
    -1,
    i32::MIN as i64,
    i32::MIN as i64 - 1,
    i32::MAX as i64,
    i32::MAX as i64 + 1,
    1 << 32,
    (1 << 33) - 1,
    1 << 33,
    (1 << 33) + (1 << 32) - 1,
    15_032_385_535,
    15_032_385_536,
    i64::MAX,
    i64::MIN,
];

/// Names of extended attributes, good ones and bad ones.
pub const XATTR_NAMES: &[&str] = &[
    "user.a",
    "user.b",
    "user.a longer name than the others have",
    "user.c",
    "trusted.a",
    "trusted.b",
    "security.a",
    "security.capability",
    "system.posix_acl_access",
    "system.posix_acl_default",
    "user",
    "other.a",
    "user.nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\
     nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\
     nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
];

/// An ACL as setfacl hands it to the kernel: mostly a good one.
pub fn acl(rng: &mut Rng) -> (Bytes, Bytes) {
    let name = *rng.pick(&["system.posix_acl_access", "system.posix_acl_default"]);
    let (user_obj, user, group_obj, group, mask, other) = (1, 2, 4, 8, 16, 32);
    let mut value = 2u32.to_le_bytes().to_vec();
    let mut entry = |tag: u16, permissions: u16, id: u32| {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    };
    let nobody = u32::MAX;
    let mut bits = || rng.below(8) as u16;
    entry(user_obj, bits() | 4, nobody);
    let named = bits();
    if named & 1 != 0 {
        entry(user, bits(), FIRST);
    }
    if named & 2 != 0 {
        entry(user, bits(), SECOND);
    }
    entry(group_obj, bits(), nobody);
    if named & 4 != 0 {
        entry(group, bits(), SECOND);
    }
    if named != 0 || bits() == 0 {
        entry(mask, bits(), nobody);
    }
    entry(other, bits(), nobody);
    match rng.below(40) {
        0 => value[0] = 1,
        1 => value.truncate(value.len() - 3),
        2 => value.truncate(4),
        3 => value[6] = 9,
        4 => value.extend([1, 0, 7, 0, 0, 0, 0, 0]),
        5 => value.clear(),
        _ => {}
    }
    (Bytes::new(name), Bytes(value))
}

/// What setcap writes: CAP_NET_RAW permitted, revision 2.
pub fn capability(rng: &mut Rng) -> Bytes {
    let words = [0x0200_0001u32, 0x2000, 0, 0, 0];
    let mut value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    if rng.percent(10) {
        value.truncate(12);
    }
    Bytes(value)
}
