//! Changing nodes, whose layout [`crate::node`] shows.
//!
//! Leaves are changed in place, by [`splice`]; internal nodes are written anew ([`fill_internal`]),
//! but for single keys and sizes. What a change does not fit is an error, and then nothing has
//! changed; what was read through a view before a change is not checked again.

use std::ops::Range;

use crate::bytes::{array, le16, put, put16, put32};
use crate::error::{Corrupt, DiskError, Result};
use crate::key::{KEY_SIZE, Key, KeyVersion, RawKey};
use crate::node::{ITEM_HEAD_SIZE, Internal, ItemHead, LEAF_LEVEL, NODE_HEAD_SIZE, POINTER_SIZE};

/// An item that goes into a leaf.
#[derive(Clone, Copy, Debug)]
pub struct NewItem<'a> {
    /// Its key.
    pub key: Key,
    /// The key's version.
    pub version: KeyVersion,
    /// As in [`crate::node::ItemHead`].
    pub count: u16,
    /// Its bytes.
    pub body: &'a [u8],
}

impl NewItem<'_> {
    /// Bytes that it takes of a leaf.
    pub fn space(&self) -> usize {
        ITEM_HEAD_SIZE + self.body.len()
    }

    fn head(&self, location: usize) -> [u8; ITEM_HEAD_SIZE] {
        let mut head = [0; ITEM_HEAD_SIZE];
        put(&mut head, 0, &self.key.to_bytes(self.version));
        put16(&mut head, 16, self.count);
        put16(&mut head, 18, self.body.len() as u16);
        put16(&mut head, 20, location as u16);
        put16(&mut head, 22, u16::from(self.version == KeyVersion::V3_6));
        head
    }
}

/// Bytes that an item takes of a leaf.
pub fn space(head: &ItemHead) -> usize {
    ITEM_HEAD_SIZE + usize::from(head.length)
}

/// A child of an internal node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// The smallest key below it. Of the first child the node does not tell it.
    pub key: RawKey,
    /// Its block.
    pub block: u32,
    /// Bytes that are used in it, without its head.
    pub used: u16,
}

/// Bytes of a node that items, or keys and pointers, can take.
pub fn capacity(block_size: usize) -> usize {
    block_size.saturating_sub(NODE_HEAD_SIZE)
}

/// The most children of an internal node.
pub fn children_max(block_size: usize) -> usize {
    capacity(block_size).saturating_sub(POINTER_SIZE) / (KEY_SIZE + POINTER_SIZE) + 1
}

/// Bytes that an internal node of so many children uses, without its head.
pub fn used_by_children(children: usize) -> usize {
    children * POINTER_SIZE + children.saturating_sub(1) * KEY_SIZE
}

/// Bytes that are used in a node, without its head.
pub fn used(block: &[u8]) -> usize {
    capacity(block.len()).saturating_sub(usize::from(le16(block, 4)))
}

fn head_at(item: usize) -> usize {
    NODE_HEAD_SIZE + item * ITEM_HEAD_SIZE
}

/// Where the bodies of the items before this one begin, so that this one's ends there.
fn body_end(block: &[u8], item: usize) -> usize {
    match item.checked_sub(1) {
        None => block.len(),
        Some(before) => usize::from(le16(block, head_at(before) + 20)),
    }
}

fn write_head(block: &mut [u8], level: u16, items: usize, used: usize) {
    let free = capacity(block.len()).saturating_sub(used);
    put16(block, 0, level);
    put16(block, 2, items as u16);
    put16(block, 4, free as u16);
}

/// Replaces items of a leaf by others, which may be more or fewer, longer or shorter.
pub fn splice(block: &mut [u8], items: Range<u16>, new: &[NewItem<'_>]) -> Result<()> {
    let count = usize::from(le16(block, 2));
    let (first, last) = (usize::from(items.start), usize::from(items.end));
    let (heads_end, bodies_start) = (head_at(count), body_end(block, count));
    let (old_start, old_end) = (body_end(block, last), body_end(block, first));
    let is_sound = first <= last
        && last <= count
        && heads_end <= bodies_start
        && bodies_start <= old_start
        && old_start <= old_end
        && old_end <= block.len();
    if !is_sound {
        return Err(Corrupt::NodeItems(count as u16).into());
    }
    let new_bytes: usize = new.iter().map(|item| item.body.len()).sum();
    let new_count = count - (last - first) + new.len();
    let need =
        head_at(new_count) + new_bytes + (block.len() - old_end) + (old_start - bodies_start);
    if need > block.len() {
        let (what, got) = ("leaf", block.len());
        return Err(DiskError::BufferSize { what, need, got });
    }
    let new_start = old_end - new_bytes;
    let moved_to = new_start - (old_start - bodies_start);
    let heads_to = head_at(first + new.len());
    // What grows moves last, so that it finds its place free.
    if new.len() < last - first {
        block.copy_within(head_at(last)..heads_end, heads_to);
        block.copy_within(bodies_start..old_start, moved_to);
    } else {
        block.copy_within(bodies_start..old_start, moved_to);
        block.copy_within(head_at(last)..heads_end, heads_to);
    }
    for item in first + new.len()..new_count {
        let at = head_at(item) + 20;
        let location = usize::from(le16(block, at)) + new_start;
        put16(block, at, location.wrapping_sub(old_start) as u16);
    }
    let mut end = old_end;
    for (number, item) in new.iter().enumerate() {
        end -= item.body.len();
        put(block, end, item.body);
        put(block, head_at(first + number), &item.head(end));
    }
    write_head(block, LEAF_LEVEL, new_count, need - NODE_HEAD_SIZE);
    Ok(())
}

/// Makes a block a leaf of these items.
pub fn fill_leaf(block: &mut [u8], items: &[NewItem<'_>]) -> Result<()> {
    let used: usize = items.iter().map(NewItem::space).sum();
    if NODE_HEAD_SIZE + used > block.len() {
        let (need, got) = (NODE_HEAD_SIZE + used, block.len());
        let what = "leaf";
        return Err(DiskError::BufferSize { what, need, got });
    }
    block.fill(0);
    write_head(block, LEAF_LEVEL, 0, 0);
    splice(block, 0..0, items)
}

/// The bytes of an item, to be changed in place.
pub fn item_mut(block: &mut [u8], item: u16) -> Result<&mut [u8]> {
    let item = usize::from(item);
    let (location, length) = (
        le16(block, head_at(item) + 20),
        le16(block, head_at(item) + 18),
    );
    let start = usize::from(location);
    let body = block.get_mut(start..start + usize::from(length));
    body.ok_or_else(|| {
        let item = item as u16;
        let place = Corrupt::ItemPlace {
            item,
            location,
            length,
        };
        place.into()
    })
}

/// Makes a block an internal node of this level with these children.
pub fn fill_internal(block: &mut [u8], level: u16, children: &[Child]) -> Result<()> {
    let used = used_by_children(children.len());
    if children.is_empty() || NODE_HEAD_SIZE + used > block.len() {
        return Err(Corrupt::NodeItems(children.len() as u16).into());
    }
    block.fill(0);
    write_head(block, level, children.len() - 1, used);
    let keys = children.iter().skip(1).map(|child| &child.key);
    for (number, key) in keys.enumerate() {
        set_key(block, number, key);
    }
    for (number, child) in children.iter().enumerate() {
        let at = pointer_at(children.len() - 1, number);
        put32(block, at, child.block);
        put16(block, at + 4, child.used);
    }
    Ok(())
}

fn pointer_at(keys: usize, child: usize) -> usize {
    NODE_HEAD_SIZE + keys * KEY_SIZE + child * POINTER_SIZE
}

/// Tells an internal node what is used in one of its children.
pub fn set_child_used(block: &mut [u8], child: usize, used: u16) {
    let at = pointer_at(usize::from(le16(block, 2)), child);
    put16(block, at + 4, used);
}

/// Sets a key of an internal node: the smallest one below the child with the next number.
pub fn set_key(block: &mut [u8], number: usize, key: &RawKey) {
    put(block, NODE_HEAD_SIZE + number * KEY_SIZE, key);
}

/// The children of an internal node. The first one's key is given, as the node does not tell it.
pub fn children<B: AsRef<[u8]>>(node: &Internal<B>, first: RawKey) -> Vec<Child> {
    let bytes = node.bytes();
    let key = |number: usize| match number.checked_sub(1) {
        None => first,
        Some(before) => array(bytes, NODE_HEAD_SIZE + before * KEY_SIZE),
    };
    (0..=node.len())
        .map(|number| Child {
            key: key(number),
            block: node.child(number),
            used: node.child_used(number),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::ObjectKey;
    use crate::node::Leaf;

    fn item(offset: u64, body: &[u8]) -> NewItem<'_> {
        let object = ObjectKey {
            dir_id: 1,
            object_id: 2,
        };
        NewItem {
            key: Key {
                kind: crate::ItemKind::Direct,
                ..Key::from(object, offset)
            },
            version: KeyVersion::V3_6,
            count: 0xffff,
            body,
        }
    }

    fn bodies(block: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let leaf = Leaf::new(block).expect("it is sound");
        (0..leaf.len())
            .map(|number| {
                let head = leaf.head(number).expect("it is sound");
                (head.key.offset, leaf.body(&head).to_vec())
            })
            .collect()
    }

    #[test]
    fn items_are_replaced() {
        let mut block = vec![0xaa; 512];
        let first = [item(1, b"abc"), item(4, b"defg"), item(9, b"h")];
        fill_leaf(&mut block, &first).expect("it fits");
        assert_eq!(
            block,
            crate::node::tests::leaf(&[(1, b"abc"), (4, b"defg"), (9, b"h")])
        );
        let cases: [(Range<u16>, &[NewItem<'_>]); 6] = [
            (1..2, &[item(5, &[7; 100])]),
            (0..2, &[item(2, b"x")]),
            (0..0, &[item(1, b"y")]),
            (2..3, &[]),
            (1..2, &[item(2, b"two"), item(3, &[8; 60]), item(7, b"z")]),
            (4..4, &[item(8, b"end")]),
        ];
        let mut model = bodies(&block);
        for (range, new) in cases {
            splice(&mut block, range.clone(), new).expect("it fits");
            let new = new.iter().map(|it| (it.key.offset, it.body.to_vec()));
            model.splice(usize::from(range.start)..usize::from(range.end), new);
            assert_eq!(bodies(&block), model);
        }
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let mut block = vec![0; 512];
        fill_leaf(&mut block, &[item(1, &[1; 200]), item(300, &[2; 100])]).expect("it fits");
        let before = block.clone();
        assert!(splice(&mut block, 1..1, &[item(250, &[3; 150])]).is_err());
        assert!(splice(&mut block, 1..3, &[]).is_err());
        assert_eq!(block, before);
        let full = 512 - NODE_HEAD_SIZE - used(&block) - ITEM_HEAD_SIZE;
        splice(&mut block, 1..1, &[item(250, &vec![3; full])]).expect("it fits");
        assert_eq!((used(&block), bodies(&block).len()), (488, 3));
    }

    #[test]
    fn internal_nodes() {
        let child = |number: u32| Child {
            key: item(u64::from(number) * 10, b"")
                .key
                .to_bytes(KeyVersion::V3_6),
            block: 100 + number,
            used: 7 * number as u16,
        };
        let mut given: Vec<Child> = (0..children_max(512) as u32).map(child).collect();
        let mut block = vec![0xaa; 512];
        fill_internal(&mut block, 3, &given).expect("it fits");
        set_child_used(&mut block, 4, 99);
        set_key(&mut block, 4, &item(45, b"").key.to_bytes(KeyVersion::V3_6));
        (given[4].used, given[5].key) = (99, item(45, b"").key.to_bytes(KeyVersion::V3_6));
        let node = Internal::new(&block[..], 3).expect("it is sound");
        assert_eq!(children(&node, given[0].key), given);
        assert_eq!(used(&block), used_by_children(given.len()));
        given.push(child(99));
        assert!(fill_internal(&mut block, 3, &given).is_err());
        assert!(fill_internal(&mut block, 3, &[]).is_err());
    }
}
