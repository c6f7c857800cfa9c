//! No bytes make a codec panic, and what it takes for sound can be read to its end.

use finefs_reiser_disk::directory::{DirectoryItem, concat};
use finefs_reiser_disk::edit::{self, NewItem};
use finefs_reiser_disk::hash::{HASH_MASK, NameHash};
use finefs_reiser_disk::journal::{Description, JournalHeader};
use finefs_reiser_disk::node::{Internal, Leaf};
use finefs_reiser_disk::stat::StatData;
use finefs_reiser_disk::superblock::{LEVELS_MAX, Superblock};
use finefs_reiser_disk::{ItemKind, Key, KeyVersion, ObjectKey, indirect, xattr};
use proptest::prelude::*;

/// A leaf that begins well: a level, and few items.
fn leaf_bytes() -> impl Strategy<Value = Vec<u8>> {
    (prop::collection::vec(any::<u8>(), 512), 0..20_u8).prop_map(|(mut bytes, items)| {
        bytes[..4].copy_from_slice(&[1, 0, items, 0]);
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn blocks(bytes in prop::collection::vec(any::<u8>(), 0..1024)) {
        let _ = Superblock::parse(&bytes).map(|it| (it.validate(), it.journal(), it.label()));
        let _ = Internal::new(&bytes[..], 2).map(|node| {
            (0..=node.len()).fold(0, |sum, number| sum ^ node.child(number))
        });
        let _ = Leaf::new(&bytes[..]);
        let _ = StatData::parse(&bytes);
        let _ = indirect::pointers(&bytes).map(Iterator::count);
        let _ = xattr::value(&bytes);
        let _ = JournalHeader::parse(&bytes);
        if let Some(description) = Description::parse(&bytes) {
            let _ = description.places(&bytes);
        }
        for entries in [1, 2, 60] {
            if let Ok(item) = DirectoryItem::new(&bytes, entries) {
                prop_assert_eq!(item.entries().count(), usize::from(entries));
                if let Ok(run) = item.whole() {
                    prop_assert_eq!(concat(&[run]), bytes.clone());
                }
                let parts = [item.run(0..1), item.run(1..entries)].map(Result::unwrap_or_default);
                let _ = concat(&parts);
            }
        }
    }

    #[test]
    fn leaves(bytes in leaf_bytes()) {
        let Ok(leaf) = Leaf::new(&bytes[..]) else { return Ok(()) };
        for item in 0..leaf.len() {
            let head = leaf.head(item).expect("it was checked");
            prop_assert_eq!(leaf.body(&head).len(), usize::from(head.length));
            prop_assert_eq!(leaf.position(&head.key), item);
        }
    }

    #[test]
    fn changes(mut bytes in leaf_bytes(), from in 0..9_u16, to in 0..20_u16, child in 0..99_usize) {
        let key = Key::from(ObjectKey { dir_id: 1, object_id: 2 }, 3);
        let new = NewItem { key, version: KeyVersion::V3_6, count: 0, body: &[7; 30] };
        let before = bytes.clone();
        if edit::splice(&mut bytes, from..to, &[new, new]).is_err() {
            prop_assert_eq!(&bytes, &before);
        }
        let _ = edit::item_mut(&mut bytes, from);
        edit::set_child_used(&mut bytes, child, 1);
        edit::set_key(&mut bytes, child, &[1; 16]);
        prop_assert!(edit::used(&bytes) <= edit::capacity(512));
        if let Ok(node) = Internal::new(&bytes[..], 1) {
            prop_assert_eq!(edit::children(&node, [0; 16]).len(), node.len() + 1);
        }
    }

    #[test]
    fn superblocks(mut bytes in prop::collection::vec(any::<u8>(), 204)) {
        bytes[52..61].copy_from_slice(b"ReIsEr2Fs");
        let superblock = Superblock::parse(&bytes).expect("it has its magic");
        if superblock.validate().is_ok() {
            prop_assert!(superblock.levels() <= LEVELS_MAX);
            prop_assert!(superblock.root_block() < superblock.block_count());
        }
    }

    #[test]
    fn keys(bytes in prop::array::uniform16(any::<u8>())) {
        for version in [KeyVersion::V3_5, KeyVersion::V3_6] {
            let key = Key::parse(&bytes, version);
            // A key of a known type is told to be of its version.
            if !matches!(key.kind, ItemKind::Unknown(_) | ItemKind::StatData) {
                prop_assert_eq!(Key::parse_any(&bytes), key);
            }
        }
    }

    #[test]
    fn hashes(name in prop::collection::vec(any::<u8>(), 0..256)) {
        for hash in [NameHash::Tea, NameHash::Rupasov, NameHash::R5] {
            let offset = hash.entry_offset(&name);
            prop_assert!(offset & !HASH_MASK == 0 || offset <= 2 );
        }
    }
}
