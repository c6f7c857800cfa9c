//! Keys: what orders the tree, in two versions.
//!
//! Both have 16 bytes: directory, object, and then offset and type in 32 bits each (3.5), or 60
//! bits of offset below 4 of type (3.6). An item head tells the version of its key; keys in
//! internal nodes do not, but no type of the old version looks like one of the new.

use crate::bytes::{le32, le64, put32, put64};

/// Bytes of a key.
pub const KEY_SIZE: usize = 16;

/// A key as it lies on disk.
pub type RawKey = [u8; KEY_SIZE];

/// The version of a key, and of the items of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyVersion {
    /// 32-bit offsets.
    V3_5,
    /// 60-bit offsets.
    V3_6,
}

/// What an item holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemKind {
    /// Attributes of an object.
    StatData,
    /// Block numbers of a file.
    Indirect,
    /// Bytes of a file.
    Direct,
    /// Entries of a directory.
    Directory,
    /// None of these.
    Unknown(u32),
}

/// What is common to the keys of an object: where it was made, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The directory that it was made in (its packing locality).
    pub dir_id: u32,
    /// Its own number, which no other object has.
    pub object_id: u32,
}

/// The root directory.
pub const ROOT: ObjectKey = ObjectKey {
    dir_id: 1,
    object_id: 2,
};

/// A key. The order is that of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Whose item it is.
    pub object: ObjectKey,
    /// Where in the object the item begins: 1 is the first byte of a file, and the first entry of a
    /// directory; 0 is the stat data.
    pub offset: u64,
    /// What the item holds.
    pub kind: ItemKind,
}

const OFFSET_MAX: u64 = u64::MAX >> 4;
const OLD_INDIRECT: u32 = 0xffff_fffe;
const OLD_DIRECT: u32 = 0xffff_ffff;
const OLD_DIRECTORY: u32 = 500;

impl Key {
    /// The first key that an item of this object can have from `offset` on.
    #[inline]
    pub fn from(object: ObjectKey, offset: u64) -> Key {
        Key {
            object,
            offset,
            kind: ItemKind::StatData,
        }
    }

    /// A key of a known version.
    #[inline]
    pub fn parse(bytes: &[u8], version: KeyVersion) -> Key {
        let object = ObjectKey {
            dir_id: le32(bytes, 0),
            object_id: le32(bytes, 4),
        };
        let (offset, kind) = match version {
            KeyVersion::V3_5 => (u64::from(le32(bytes, 8)), old_kind(le32(bytes, 12))),
            KeyVersion::V3_6 => {
                let word = le64(bytes, 8);
                (word & OFFSET_MAX, new_kind((word >> 60) as u32))
            }
        };
        Key {
            object,
            offset,
            kind,
        }
    }

    /// A key of an internal node, which does not tell its version.
    #[inline]
    pub fn parse_any(bytes: &[u8]) -> Key {
        let version = match le64(bytes, 8) >> 60 {
            1..=3 => KeyVersion::V3_6,
            _ => KeyVersion::V3_5,
        };
        Key::parse(bytes, version)
    }

    /// Its bytes in a version. That of stat data is the same in both.
    #[inline]
    pub fn to_bytes(&self, version: KeyVersion) -> RawKey {
        let mut bytes = [0; KEY_SIZE];
        put32(&mut bytes, 0, self.object.dir_id);
        put32(&mut bytes, 4, self.object.object_id);
        match version {
            KeyVersion::V3_5 => {
                put32(&mut bytes, 8, self.offset as u32);
                put32(&mut bytes, 12, old_code(self.kind));
            }
            KeyVersion::V3_6 => {
                let kind = u64::from(new_code(self.kind)) << 60;
                put64(&mut bytes, 8, self.offset & OFFSET_MAX | kind);
            }
        }
        bytes
    }
}

fn old_code(kind: ItemKind) -> u32 {
    match kind {
        ItemKind::StatData => 0,
        ItemKind::Indirect => OLD_INDIRECT,
        ItemKind::Direct => OLD_DIRECT,
        ItemKind::Directory => OLD_DIRECTORY,
        ItemKind::Unknown(code) => code,
    }
}

fn new_code(kind: ItemKind) -> u32 {
    match kind {
        ItemKind::StatData => 0,
        ItemKind::Indirect => 1,
        ItemKind::Direct => 2,
        ItemKind::Directory => 3,
        ItemKind::Unknown(code) => code,
    }
}

#[inline]
fn old_kind(uniqueness: u32) -> ItemKind {
    match uniqueness {
        0 => ItemKind::StatData,
        OLD_INDIRECT => ItemKind::Indirect,
        OLD_DIRECT => ItemKind::Direct,
        OLD_DIRECTORY => ItemKind::Directory,
        other => ItemKind::Unknown(other),
    }
}

#[inline]
fn new_kind(kind: u32) -> ItemKind {
    match kind {
        0 => ItemKind::StatData,
        1 => ItemKind::Indirect,
        2 => ItemKind::Direct,
        3 => ItemKind::Directory,
        other => ItemKind::Unknown(other),
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            ItemKind::StatData => "SD",
            ItemKind::Indirect => "IND",
            ItemKind::Direct => "DRCT",
            ItemKind::Directory => "DIR",
            ItemKind::Unknown(_) => "?",
        };
        // As debugreiserfs prints it.
        let ObjectKey { dir_id, object_id } = self.object;
        write!(f, "[{dir_id} {object_id} {:#x} {kind}]", self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: [u32; 4]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn both_versions() {
        let old = Key::parse(&bytes([1, 2, 5, OLD_DIRECT]), KeyVersion::V3_5);
        assert_eq!((old.offset, old.kind), (5, ItemKind::Direct));
        let new = Key::parse(&bytes([1, 2, 5, 0x2000_0001]), KeyVersion::V3_6);
        assert_eq!((new.offset, new.kind), (0x1_0000_0005, ItemKind::Direct));
        assert_eq!(new.to_string(), "[1 2 0x100000005 DRCT]");
    }

    #[test]
    fn versions_are_told_apart() {
        for (words, kind) in [
            ([1, 2, 0, 0], ItemKind::StatData),
            ([1, 2, 1, 500], ItemKind::Directory),
            ([1, 2, 1, OLD_INDIRECT], ItemKind::Indirect),
            ([1, 2, 1, OLD_DIRECT], ItemKind::Direct),
            ([1, 2, 1, 0x3000_0000], ItemKind::Directory),
            ([1, 2, 1, 0x1000_0000], ItemKind::Indirect),
            ([1, 2, 1, 0x2000_0000], ItemKind::Direct),
        ] {
            let parsed = Key::parse_any(&bytes(words));
            assert_eq!(parsed.kind, kind);
            let versions = [KeyVersion::V3_5, KeyVersion::V3_6].map(|it| parsed.to_bytes(it));
            assert!(versions.iter().any(|it| it[..] == bytes(words)));
        }
    }

    #[test]
    fn the_order_is_the_trees() {
        let object = |dir_id, object_id| ObjectKey { dir_id, object_id };
        let keys = [
            Key::from(object(1, 2), 0),
            Key::from(object(1, 2), 1),
            Key {
                kind: ItemKind::Direct,
                ..Key::from(object(1, 2), 1)
            },
            Key::from(object(1, 3), 0),
            Key::from(object(2, 1), 0),
        ];
        assert!(keys.is_sorted());
    }
}
