//! Nodes of the S+tree.
//!
//! ```text
//! internal: head | keys 0..n | pointers 0..=n | free
//! leaf:     head | item heads 0..n | free | items n-1 .. 0
//! ```
//! An internal node's key i is the smallest key below its pointer i + 1.

use crate::bytes::{array, le16, le32};
use crate::error::{Corrupt, Result, need};
use crate::key::{ItemKind, KEY_SIZE, Key, KeyVersion, RawKey};

/// Bytes of a node's head.
pub const NODE_HEAD_SIZE: usize = 24;

/// Bytes of an item's head.
pub const ITEM_HEAD_SIZE: usize = 24;

/// Bytes of a pointer to a child.
pub(crate) const POINTER_SIZE: usize = 8;

/// The level of leaves.
pub const LEAF_LEVEL: u16 = 1;

/// Set by reiserfsck while it works.
const UNREACHABLE: u16 = 1 << 15;

/// The level of a node: 1 for leaves.
pub fn level(block: &[u8]) -> u16 {
    le16(block, 0)
}

fn check_level(block: &[u8], expected: u16) -> Result<()> {
    match level(block) {
        found if found == expected => Ok(()),
        found => Err(Corrupt::NodeLevel { found, expected }.into()),
    }
}

/// An internal node.
#[derive(Clone, Copy, Debug)]
pub struct Internal<B> {
    block: B,
    keys: usize,
}

impl<B: AsRef<[u8]>> Internal<B> {
    /// Takes a block that must be an internal node of this level; its keys must ascend.
    pub fn new(block: B, level: u16) -> Result<Internal<B>> {
        let bytes = block.as_ref();
        need("node", NODE_HEAD_SIZE, bytes.len())?;
        check_level(bytes, level)?;
        let count = le16(bytes, 2);
        let keys = usize::from(count);
        let used = NODE_HEAD_SIZE + keys * KEY_SIZE + (keys + 1) * POINTER_SIZE;
        if used > bytes.len() {
            return Err(Corrupt::NodeItems(count).into());
        }
        let node = Internal { block, keys };
        let mut before = None;
        for number in 0..keys {
            let key = node.key(number);
            if before.is_some_and(|before| before >= key) {
                return Err(Corrupt::KeyOrder(number as u16).into());
            }
            before = Some(key);
        }
        Ok(node)
    }

    /// The number of keys; there is one pointer more.
    pub fn len(&self) -> usize {
        self.keys
    }

    /// True when there is one pointer and no key.
    pub fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// A key, by number.
    pub fn key(&self, number: usize) -> Key {
        let at = NODE_HEAD_SIZE + number * KEY_SIZE;
        Key::parse_any(self.block.as_ref().get(at..).unwrap_or_default())
    }

    /// The block of a child, by number.
    pub fn child(&self, number: usize) -> u32 {
        let at = NODE_HEAD_SIZE + self.keys * KEY_SIZE + number * POINTER_SIZE;
        le32(self.block.as_ref(), at)
    }

    /// How many bytes are used in a child, without its head.
    pub fn child_used(&self, number: usize) -> u16 {
        let at = NODE_HEAD_SIZE + self.keys * KEY_SIZE + number * POINTER_SIZE;
        le16(self.block.as_ref(), at + 4)
    }

    /// A key as it lies on disk, by number.
    pub fn raw_key(&self, number: usize) -> RawKey {
        array(self.bytes(), NODE_HEAD_SIZE + number * KEY_SIZE)
    }

    /// The block.
    pub fn bytes(&self) -> &[u8] {
        self.block.as_ref()
    }

    /// The number of the child that has this key, if the tree has it.
    pub fn child_of(&self, key: &Key) -> usize {
        let (mut from, mut to) = (0, self.keys);
        while from < to {
            let middle = usize::midpoint(from, to);
            match self.key(middle) <= *key {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        from
    }
}

/// The head of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemHead {
    /// The key.
    pub key: Key,
    /// The key's version.
    pub version: KeyVersion,
    /// Of a directory item: the number of entries. Of an indirect item in format 3.5: the bytes
    /// that are free in the last block.
    pub count: u16,
    /// Where the item is in its node.
    pub location: u16,
    /// How long it is.
    pub length: u16,
}

/// A leaf.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<B> {
    block: B,
    items: u16,
}

impl<B: AsRef<[u8]>> Leaf<B> {
    /// Takes a block that must be a leaf. Items must lie in it one behind the other, from its end
    /// down, and their keys must ascend.
    pub fn new(block: B) -> Result<Leaf<B>> {
        let bytes = block.as_ref();
        need("node", NODE_HEAD_SIZE, bytes.len())?;
        check_level(bytes, LEAF_LEVEL)?;
        let items = le16(bytes, 2);
        let heads_end = NODE_HEAD_SIZE + usize::from(items) * ITEM_HEAD_SIZE;
        if items == 0 || heads_end > bytes.len() {
            return Err(Corrupt::NodeItems(items).into());
        }
        let free = le16(bytes, 4);
        let leaf = Leaf { block, items };
        let mut end = leaf.block.as_ref().len();
        let mut before = None;
        for item in 0..items {
            let head = leaf.head(item)?;
            if before.is_some_and(|before| before >= head.key) {
                return Err(Corrupt::KeyOrder(item).into());
            }
            before = Some(head.key);
            let (location, length) = (head.location, head.length);
            let start = usize::from(location);
            if start < heads_end || start + usize::from(length) != end {
                return Err(Corrupt::ItemPlace {
                    item,
                    location,
                    length,
                }
                .into());
            }
            end = start;
        }
        if end - heads_end != usize::from(free) {
            return Err(Corrupt::NodeFreeSpace(free).into());
        }
        Ok(leaf)
    }

    /// The block.
    pub fn bytes(&self) -> &[u8] {
        self.block.as_ref()
    }

    /// The number of items.
    pub fn len(&self) -> u16 {
        self.items
    }

    /// False: a leaf has an item at least.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// The head of an item.
    pub fn head(&self, item: u16) -> Result<ItemHead> {
        let at = NODE_HEAD_SIZE + usize::from(item) * ITEM_HEAD_SIZE;
        let bytes = self.block.as_ref().get(at..).unwrap_or_default();
        let version = match le16(bytes, 22) & !UNREACHABLE {
            0 => KeyVersion::V3_5,
            1 => KeyVersion::V3_6,
            other => return Err(Corrupt::ItemVersion(other).into()),
        };
        let key = Key::parse(bytes, version);
        if let ItemKind::Unknown(kind) = key.kind {
            return Err(Corrupt::ItemType(kind).into());
        }
        Ok(ItemHead {
            key,
            version,
            count: le16(bytes, 16),
            length: le16(bytes, 18),
            location: le16(bytes, 20),
        })
    }

    /// The bytes of an item.
    pub fn body(&self, head: &ItemHead) -> &[u8] {
        let start = usize::from(head.location);
        let range = start..start + usize::from(head.length);
        self.block.as_ref().get(range).unwrap_or_default()
    }

    /// The first item whose key is `key` or greater; `len()` where there is none.
    pub fn position(&self, key: &Key) -> u16 {
        let (mut from, mut to) = (0, self.items);
        while from < to {
            let middle = u16::midpoint(from, to);
            match self.head(middle).is_ok_and(|head| head.key < *key) {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        from
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::key::ObjectKey;

    const OBJECT: ObjectKey = ObjectKey {
        dir_id: 1,
        object_id: 2,
    };

    /// A leaf of 512 bytes with items of these offsets and contents, all direct.
    pub(crate) fn leaf(items: &[(u64, &[u8])]) -> Vec<u8> {
        let mut block = vec![0; 512];
        block[0] = 1;
        block[2] = items.len() as u8;
        let mut end = 512;
        for (number, (offset, body)) in items.iter().enumerate() {
            end -= body.len();
            block[end..end + body.len()].copy_from_slice(body);
            let head = &mut block[24 + number * 24..][..24];
            head[..4].copy_from_slice(&1_u32.to_le_bytes());
            head[4..8].copy_from_slice(&2_u32.to_le_bytes());
            head[8..16].copy_from_slice(&(offset | 2 << 60).to_le_bytes());
            head[16..18].fill(0xff);
            head[18..20].copy_from_slice(&(body.len() as u16).to_le_bytes());
            head[20..22].copy_from_slice(&(end as u16).to_le_bytes());
            head[22] = 1;
        }
        let free = (end - 24 - items.len() * 24) as u16;
        block[4..6].copy_from_slice(&free.to_le_bytes());
        block
    }

    #[test]
    fn items_are_found() {
        let leaf = Leaf::new(leaf(&[(1, b"abc"), (4, b"defg"), (9, b"h")])).expect("sound");
        let at = |offset| leaf.position(&Key::from(OBJECT, offset));
        assert_eq!(
            [at(0), at(1), at(2), at(4), at(9), at(10)],
            [0, 0, 1, 1, 2, 3]
        );
        assert_eq!(leaf.body(&leaf.head(1).expect("sound")), b"defg");
    }

    #[test]
    fn damaged_leaves() {
        let good = leaf(&[(1, b"abc"), (4, b"defg")]);
        assert!(Leaf::new(&good[..]).is_ok());
        let twice = leaf(&[(4, b"abc"), (4, b"defg")]);
        assert_eq!(
            Leaf::new(&twice[..]).map(|_| ()),
            Err(Corrupt::KeyOrder(1).into())
        );
        for at in [0, 2, 3, 4, 5, 24 + 18, 24 + 20, 24 + 22, 48 + 15, 48 + 21] {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            assert!(Leaf::new(&bad[..]).is_err(), "byte {at}");
        }
    }

    #[test]
    fn children_are_found() {
        let mut block = vec![0; 512];
        (block[0], block[2]) = (2, 2);
        for (number, offset) in [10_u64, 20].into_iter().enumerate() {
            let key = &mut block[24 + number * 16..][..16];
            key[..4].copy_from_slice(&1_u32.to_le_bytes());
            key[4..8].copy_from_slice(&2_u32.to_le_bytes());
            key[8..].copy_from_slice(&(offset | 2 << 60).to_le_bytes());
        }
        for child in 0..3 {
            block[24 + 32 + child * 8] = 7 + child as u8;
        }
        let node = Internal::new(&block[..], 2).expect("sound");
        let key = |offset| Key {
            kind: ItemKind::Direct,
            ..Key::from(OBJECT, offset)
        };
        let child = |offset| node.child(node.child_of(&key(offset)));
        assert_eq!([child(9), child(10), child(19), child(20)], [7, 8, 8, 9]);
        assert!(Internal::new(&block[..], 3).is_err());
        block[2] = 200;
        assert!(Internal::new(&block[..], 2).is_err());
    }
}
