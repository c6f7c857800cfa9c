//! Tests of directory blocks.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const CSUM: DirRules = DirRules {
    has_filetype: true,
    has_tail: true,
    has_any_names: false,
    has_hashes: false,
};
const PLAIN: DirRules = DirRules {
    has_filetype: false,
    has_tail: false,
    has_any_names: false,
    has_hashes: false,
};
const FILE: EntryType = EntryType(1);

#[test]
fn rec_len_of_large_blocks() {
    for len in [12, 0x8000, 65_532, 65_536] {
        assert_eq!(decode_rec_len(encode_rec_len(len, 65_536), 65_536), len);
    }
    assert_eq!(decode_rec_len(0, 65_536), 65_536);
    assert_eq!(decode_rec_len(0, 4096), 0);
}

#[test]
fn new_directories() {
    for rules in [CSUM, PLAIN] {
        let block = DirBlock::init_dots(vec![9; 1024], rules, Ino(12), Ino(2)).expect("size");
        assert_eq!(block.dots(), Ok((Ino(12), Ino(2))));
        assert_eq!((block.is_empty(), block.validate()), (Ok(true), Ok(())));
        assert_eq!(block.has_tail(), rules.has_tail);
        let tail = if rules.has_tail { TAIL_SIZE } else { 0 };
        assert_eq!(
            block.room().map(|room| room.largest()),
            Ok(1024 - 24 - tail)
        );
        let kinds = block
            .entries()
            .flatten()
            .filter(|e| e.entry_type.kind().is_some())
            .count();
        assert_eq!(kinds, if rules.has_filetype { 2 } else { 0 });
    }
}

#[test]
fn damage_is_named() {
    let sound = DirBlock::init_dots(vec![0; 1024], CSUM, Ino(12), Ino(2))
        .expect("size")
        .bytes;
    let damaged = |offset: usize, value: &[u8]| {
        let mut bytes = sound.clone();
        put_bytes(&mut bytes, offset, value);
        DirBlock::new(bytes, CSUM).and_then(|b| b.validate()).err()
    };
    let rec_len = |offset, rec_len| Some(Corrupt::DirRecLen { offset, rec_len }.into());
    assert_eq!(damaged(4, &[0, 0]), rec_len(0, 0));
    assert_eq!(damaged(4, &[8, 0]), rec_len(0, 8));
    assert_eq!(damaged(4, &[14, 0]), rec_len(0, 14));
    assert_eq!(damaged(16, &[0xff, 0x7f]), rec_len(12, 0x7fff));
    // Leaves 8 bytes, in which no entry fits.
    assert_eq!(damaged(16, &[0xe0, 3]), rec_len(12, 0x3e0));
    assert_eq!(
        damaged(6, &[5]),
        Some(
            Corrupt::DirNameLen {
                offset: 0,
                name_len: 5
            }
            .into()
        )
    );
    assert_eq!(
        damaged(6, &[0]),
        Some(
            Corrupt::DirNameLen {
                offset: 0,
                name_len: 0
            }
            .into()
        )
    );
    assert_eq!(
        damaged(20, b"/"),
        Some(Corrupt::DirName { offset: 12 }.into())
    );
    let mut encrypted = sound.clone();
    encrypted[20] = b'/';
    let block = DirBlock::new(encrypted, CSUM.encrypted(true)).expect("size");
    assert_eq!(block.validate(), Ok(()));
    assert_eq!(damaged(1019, &[0]), Some(Corrupt::DirTail.into()));
    let mut block = DirBlock::new(sound.clone(), CSUM).expect("size");
    assert_eq!(block.remove(4), Err(Corrupt::DirOffset(4).into()));
    assert_eq!(
        block.set_target(4, Ino(1), FILE),
        Err(Corrupt::DirOffset(4).into())
    );
    assert!(block.insert(&[b'x'; 256], Ino(3), FILE).is_err());
    assert!(block.insert(b"", Ino(3), FILE).is_err());
    assert_eq!(block.as_bytes(), sound);
}

#[test]
fn checksum_follows_change() {
    let mut block = DirBlock::init(vec![0; 1024], CSUM).expect("size");
    block.update_checksum(InodeSeed(5));
    assert_eq!(block.verify_checksum(InodeSeed(5)), Ok(()));
    assert!(block.insert(b"a", Ino(3), FILE).is_ok());
    assert!(block.verify_checksum(InodeSeed(5)).is_err());
}

#[derive(Clone, Debug)]
enum Op {
    Insert(Vec<u8>, u32),
    Remove(usize),
    Retarget(usize, u32),
    /// Of those whose inode's number is a multiple of the first all go; the next name another.
    Sweep(usize, u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (prop::collection::vec(b'a'..=b'z', 1..60), 1u32..1000)
            .prop_map(|(name, ino)| Op::Insert(name, ino)),
        2 => (0usize..50).prop_map(Op::Remove),
        1 => ((0usize..50), 1u32..1000).prop_map(|(i, ino)| Op::Retarget(i, ino)),
        1 => ((2usize..6), 1u32..1000).prop_map(|(of, ino)| Op::Sweep(of, ino)),
    ]
}

proptest! {
    #[test]
    fn behaves_as_a_map(
        ops in prop::collection::vec(op(), 0..120),
        csum: bool,
        hashes: bool,
    ) {
        let rules = if csum { CSUM } else { PLAIN };
        let rules = if hashes { rules.encrypted(true) } else { rules };
        let mut block = DirBlock::init(vec![0; 1024], rules).expect("size");
        let mut model: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        for op in ops {
            match op {
                Op::Insert(name, ino) if !model.contains_key(&name) => {
                    let size = rules.entry_size(name.len());
                    let mut room = block.room().expect("sound");
                    let fits = room.largest() >= size;
                    let hash = hashes.then(|| DirHash::of_siphash(u64::from(ino) << 33 | 5));
                    let done = block.insert_in(&mut room, (&name, hash), Ino(ino), FILE);
                    prop_assert_eq!(done.is_ok(), fits);
                    prop_assert_eq!(Ok(room), block.room());
                    if let Ok(at) = done {
                        let found = block.find(&name).expect("sound").expect("there");
                        prop_assert_eq!(found.offset, at);
                        prop_assert_eq!(found.hash, hash);
                        model.insert(name, ino);
                    }
                }
                Op::Insert(..) => {}
                Op::Remove(i) | Op::Retarget(i, _) => {
                    let Some(name) = model.keys().nth(i).cloned() else { continue };
                    let at = block.find(&name).expect("sound").expect("there").offset;
                    // Alone, and in a pass over all.
                    let mut by_pass = block.clone();
                    let change = match op {
                        Op::Retarget(_, ino) => EntryChange::Target(Ino(ino), FILE),
                        _ => EntryChange::Remove,
                    };
                    let changed = by_pass.change_each(|entry| match entry.name == name {
                        true => change,
                        false => EntryChange::Keep,
                    });
                    prop_assert_eq!(changed, Ok(()));
                    if let Op::Retarget(_, ino) = op {
                        block.set_target(at, Ino(ino), FILE).expect("there");
                        model.insert(name, ino);
                    } else {
                        block.remove(at).expect("there");
                        model.remove(&name);
                    }
                    prop_assert_eq!(&by_pass, &block);
                }
                Op::Sweep(of, ino) => {
                    let number = |entry: &DirEntry<'_>| entry.ino.0 as usize % of;
                    let changed = block.change_each(|entry| match number(entry) {
                        0 => EntryChange::Remove,
                        1 => EntryChange::Target(Ino(ino), FILE),
                        _ => EntryChange::Keep,
                    });
                    prop_assert_eq!(changed, Ok(()));
                    model.retain(|_, named| !(*named as usize).is_multiple_of(of));
                    for named in model.values_mut().filter(|named| **named as usize % of == 1) {
                        *named = ino;
                    }
                }
            }
            prop_assert_eq!(block.validate(), Ok(()));
        }
        let found: BTreeMap<Vec<u8>, u32> = block.entries().flatten().filter(|e| e.is_used())
            .map(|e| (e.name.to_vec(), e.ino.0)).collect();
        let used: usize = found.keys().map(|n| rules.entry_size(n.len())).sum();
        prop_assert_eq!(found, model);
        let whole = 1024 - if csum { TAIL_SIZE } else { 0 };
        prop_assert_eq!(block.free_space().expect("sound"), whole - used);
    }
}
