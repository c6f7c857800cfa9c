//! What reiserfsck demands of a tree, and what this crate demands beyond it.

use std::collections::HashSet;

use finefs_reiser_disk::directory::DirectoryItem;
use finefs_reiser_disk::edit::{capacity, used};
use finefs_reiser_disk::hash::{HASH_MASK, NameHash};
use finefs_reiser_disk::key::RawKey;
use finefs_reiser_disk::node::{Internal, Leaf};
use finefs_reiser_disk::{ItemKind, Key, KeyVersion};

use crate::tree::{Nodes, Root};

/// An item of the tree.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub key: Key,
    pub version: KeyVersion,
    pub count: u16,
    pub body: Vec<u8>,
}

impl Item {
    fn units(&self, block_size: usize) -> u64 {
        match self.key.kind {
            ItemKind::Indirect => (self.body.len() / 4 * block_size) as u64,
            _ => self.body.len() as u64,
        }
    }
}

/// What a tree is made of.
pub(super) struct Checked {
    pub items: Vec<Item>,
    pub leaves: usize,
    pub nodes: usize,
    /// Bytes that the leaves use.
    pub used: usize,
}

struct Check<'a, N> {
    nodes: &'a N,
    block_size: usize,
    hash: Option<NameHash>,
    seen: HashSet<u32>,
    found: Checked,
}

/// Checks a tree; all its items.
pub(super) fn check<N: Nodes>(
    nodes: &N,
    root: Root,
    block_size: usize,
    hash: Option<NameHash>,
) -> Checked {
    let mut check = Check {
        nodes,
        block_size,
        hash,
        seen: HashSet::new(),
        found: Checked {
            items: Vec::new(),
            leaves: 0,
            nodes: 0,
            used: 0,
        },
    };
    check.node(root.block, root.levels, None, true);
    check.order();
    check.found.nodes = check.seen.len();
    check.found
}

impl<N: Nodes> Check<'_, N> {
    /// Checks a node and all below it; what it uses.
    fn node(&mut self, block: u32, level: u16, first: Option<RawKey>, is_root: bool) -> usize {
        assert!(self.nodes.may_hold(block), "node in block {block}");
        assert!(self.seen.insert(block), "block {block} twice");
        let data = self.nodes.read(block).expect("it can be read");
        let data = data.as_ref();
        let free = usize::from(u16::from_le_bytes([data[4], data[5]]));
        assert_eq!(
            used(data) + free,
            capacity(self.block_size),
            "block {block}"
        );
        if level == 1 {
            self.leaf(block, data, first);
            return used(data);
        }
        let node = Internal::new(data, level).expect("it is sound");
        assert!(
            !node.is_empty(),
            "block {block} has one child, root {is_root}"
        );
        let of_children = node.len() * 16 + (node.len() + 1) * 8;
        assert_eq!(used(data), of_children, "block {block}");
        for number in 0..=node.len() {
            let key = match number {
                0 => first,
                number => Some(node.raw_key(number - 1)),
            };
            let below = self.node(node.child(number), level - 1, key, false);
            let told = usize::from(node.child_used(number));
            assert_eq!(told, below, "block {block}, child {number}");
        }
        used(data)
    }

    fn leaf(&mut self, block: u32, data: &[u8], first: Option<RawKey>) {
        let leaf = Leaf::new(data).expect("it is sound");
        self.found.leaves += 1;
        self.found.used += used(data);
        for number in 0..leaf.len() {
            let head = leaf.head(number).expect("it is sound");
            let item = Item {
                key: head.key,
                version: head.version,
                count: head.count,
                body: leaf.body(&head).to_vec(),
            };
            if let (0, Some(first)) = (number, first) {
                assert_eq!(head.key.to_bytes(head.version), first, "block {block}");
            }
            self.item(&item);
            if number > 0 {
                let before = self.found.items.last().expect("there is one");
                pair(before, &item, self.block_size);
            }
            self.found.items.push(item);
        }
    }

    fn item(&self, item: &Item) {
        assert!(!item.body.is_empty(), "{}", item.key);
        match item.key.kind {
            ItemKind::StatData => {
                let version = match item.body.len() {
                    32 => KeyVersion::V3_5,
                    44 => KeyVersion::V3_6,
                    other => panic!("{}: {other} bytes", item.key),
                };
                assert_eq!(item.version, version, "{}", item.key);
                assert_eq!(item.key.offset, 0);
            }
            ItemKind::Indirect => assert_eq!(item.body.len() % 4, 0, "{}", item.key),
            ItemKind::Direct => assert!(item.key.offset > 0),
            ItemKind::Directory => self.directory(item),
            ItemKind::Unknown(_) => panic!("{}", item.key),
        }
    }

    fn directory(&self, item: &Item) {
        assert_eq!(item.version, KeyVersion::V3_5, "{}", item.key);
        let entries = DirectoryItem::new(&item.body, item.count).expect("it is sound");
        entries.whole().expect("its names fill it");
        assert_eq!(u64::from(entries.offset(0)), item.key.offset);
        let mut before = 0;
        for entry in entries.entries() {
            let entry = entry.expect("it is sound");
            assert!(entry.is_visible && entry.offset > before, "{}", item.key);
            before = entry.offset;
            if let Some(hash) = self.hash.filter(|_| !entry.is_dot()) {
                assert_eq!(entry.offset & HASH_MASK, hash.entry_offset(entry.name));
            }
        }
        if item.key.offset == 1 {
            assert!(item.count >= 2, "the dots stand together");
        }
    }

    /// The order of all items, and that those of an object go on from each other.
    fn order(&self) {
        for pair in self.found.items.windows(2) {
            let [before, item] = pair else { continue };
            assert!(before.key < item.key, "{} before {}", before.key, item.key);
            let is_of_one = before.key.object == item.key.object;
            let is_link = item.key.object.dir_id == u32::MAX;
            match item.key.kind {
                ItemKind::StatData => assert!(!is_of_one),
                _ if is_link => {}
                ItemKind::Directory => assert!(is_of_one, "{}", item.key),
                _ => {
                    assert!(is_of_one, "{}", item.key);
                    let expected = match before.key.kind {
                        ItemKind::StatData => 1,
                        _ => before.key.offset + before.units(self.block_size),
                    };
                    assert_eq!(item.key.offset, expected, "{}", item.key);
                }
            }
        }
    }
}

/// That two items may stand side by side in a leaf, as reiserfsck has it.
fn pair(before: &Item, item: &Item, block_size: usize) {
    if item.key.object.dir_id == u32::MAX || item.key.kind == ItemKind::StatData {
        return;
    }
    let is_of_one = before.key.object == item.key.object;
    assert!(is_of_one, "{} behind {}", item.key, before.key);
    let is_behind_stat = before.key.kind == ItemKind::StatData;
    match item.key.kind {
        ItemKind::Direct if is_behind_stat => assert_eq!(item.key.offset, 1),
        ItemKind::Direct => {
            assert_eq!(before.key.kind, ItemKind::Indirect, "{}", item.key);
            let end = before.key.offset + before.units(block_size);
            assert_eq!(end, item.key.offset, "{}", item.key);
        }
        _ => assert!(is_behind_stat, "{} behind {}", item.key, before.key),
    }
}
