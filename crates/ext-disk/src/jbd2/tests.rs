//! What the writers write, the readers read, in every format. That others read it is for the
//! tests against e2fsprogs to say.

use super::commit::CommitBlock;
use super::descriptor::{DescriptorBlock, DescriptorWriter, TagFlags, data_checksum, verify_data};
use super::fast_commit::{FcHead, FcTag, FcTail, records, write_header};
use super::revoke::{RevokeBlock, RevokeWriter};
use super::*;
use crate::error::{Corrupt, DiskError};
use crate::features::{JournalCompat, JournalIncompat};
use crate::time::Timestamp;
use crate::units::PhysBlock;

fn formats() -> Vec<Format> {
    let mut formats = Vec::new();
    for csum in [
        JournalIncompat::empty(),
        JournalIncompat::CSUM_V2,
        JournalIncompat::CSUM_V3,
    ] {
        for wide in [JournalIncompat::empty(), JournalIncompat::BIT64] {
            let mut sb = JournalSuperblock::blank(1024, 1024, [6; 16]);
            sb.set_incompat(csum | wide | JournalIncompat::REVOKE);
            sb.set_checksum_type(4);
            sb.update_checksum();
            formats.push(sb.validate(1024, 1024).expect("sound"));
        }
    }
    formats
}

#[test]
fn tag_sizes() {
    let sizes: Vec<usize> = formats().iter().map(Format::tag_size).collect();
    assert_eq!(sizes, [8, 12, 10, 14, 16, 16]);
}

#[test]
fn descriptors() {
    for format in formats() {
        let top = if format.has_64bit { 1 << 40 } else { 0 };
        let data = |i: u64| vec![i as u8; 1024];
        let mut block = vec![0xaa; 1024];
        let mut writer = DescriptorWriter::new(&mut block, &format, 77).expect("size");
        let mut pushed = 0;
        while writer
            .push(
                PhysBlock(top + pushed),
                pushed == 2,
                data_checksum(&format, 77, &data(pushed)),
            )
            .expect("in range")
        {
            pushed += 1;
        }
        assert_eq!(pushed as usize, DescriptorWriter::capacity(&format));
        writer.finish();

        let read = DescriptorBlock::new(&block, &format).expect("header");
        assert_eq!(read.verify_checksum(), Ok(()));
        let tags: Vec<_> = read.tags().collect();
        assert_eq!(tags.len() as u64, pushed);
        for (i, tag) in (0u64..).zip(&tags) {
            assert_eq!(tag.block, PhysBlock(top + i));
            assert_eq!(tag.flags.contains(TagFlags::ESCAPE), i == 2);
            assert_eq!(tag.flags.contains(TagFlags::SAME_UUID), i != 0);
            assert_eq!(tag.flags.contains(TagFlags::LAST_TAG), i + 1 == pushed);
            assert_eq!(verify_data(&format, 77, tag, &data(i)), Ok(()));
            let is_guarded = format.has_tail();
            assert_eq!(verify_data(&format, 78, tag, &data(i)).is_err(), is_guarded);
            assert_eq!(
                verify_data(&format, 77, tag, &data(i + 1)).is_err(),
                is_guarded
            );
        }
        block[20] ^= 1;
        let read = DescriptorBlock::new(&block, &format).expect("header");
        assert_eq!(read.verify_checksum().is_err(), format.has_tail());
    }
}

#[test]
fn revokes() {
    for format in formats() {
        let top = if format.has_64bit { 1 << 40 } else { 0 };
        let mut block = vec![0xaa; 1024];
        let mut writer = RevokeWriter::new(&mut block, &format, 5).expect("size");
        let mut pushed = 0;
        while writer.push(PhysBlock(top + pushed)).expect("in range") {
            pushed += 1;
        }
        assert_eq!(pushed as usize, RevokeWriter::capacity(&format));
        if !format.has_64bit {
            assert!(writer.push(PhysBlock(1 << 32)).is_err());
        }
        writer.finish();
        let read = RevokeBlock::new(&block, &format).expect("header");
        assert_eq!(read.verify_checksum(), Ok(()));
        let expected: Vec<_> = (0..pushed).map(|i| PhysBlock(top + i)).collect();
        assert_eq!(read.blocks().collect::<Vec<_>>(), expected);
        put_be32(&mut block, 12, 15);
        let bad = RevokeBlock::new(&block, &format).err();
        assert_eq!(bad, Some(Corrupt::JournalRevokeCount(15).into()));
        put_be32(&mut block, 12, 1025);
        assert!(RevokeBlock::new(&block, &format).is_err());
        assert!(DescriptorBlock::new(&block, &format).is_err());
    }
}

#[test]
fn commits() {
    let mut all = formats();
    let mut v1 = JournalSuperblock::blank(1024, 1024, [6; 16]);
    v1.set_compat(JournalCompat::CHECKSUM);
    all.push(v1.validate(1024, 1024).expect("sound"));
    for format in all {
        let commit = CommitBlock {
            sequence: 9,
            time: Timestamp {
                sec: 1_700_000_000,
                nsec: 7,
            },
            v1_checksum: format.has_v1_checksum.then_some(0x1234),
        };
        let mut block = vec![0xaa; 1024];
        commit.write(&mut block, &format).expect("size");
        assert_eq!(CommitBlock::parse(&block, &format), Ok(commit));
        assert_eq!(CommitBlock::verify_checksum(&block, &format), Ok(()));
        block[0x31] ^= 1;
        assert_eq!(
            CommitBlock::verify_checksum(&block, &format).is_err(),
            format.has_tail()
        );
        assert!(commit.write(&mut block[..1000], &format).is_err());
    }
}

#[test]
fn escaping() {
    let mut data = [0xC0, 0x3B, 0x39, 0x98, 1, 2];
    assert!(escape(&mut data));
    assert_eq!(data, [0, 0, 0, 0, 1, 2]);
    assert!(!escape(&mut data));
    unescape(&mut data);
    assert!(needs_escape(&data));
}

#[test]
fn superblock_damage_is_named() {
    type Case = (fn(&mut JournalSuperblock), &'static str);
    let cases: [Case; 7] = [
        (|s| s.set_max_len(2000), "length"),
        (|s| s.set_first(0), "length"),
        (|s| s.set_start(1024), "length"),
        (|s| s.set_block_size(512), "block size"),
        (
            |s| s.set_incompat(JournalIncompat::from_bits_retain(1 << 9)),
            "FEATURE_I9",
        ),
        (
            |s| s.set_incompat(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3),
            "exclude",
        ),
        (|s| s.set_incompat(JournalIncompat::CSUM_V3), "checksum"),
    ];
    for (damage, word) in cases {
        let mut sb = JournalSuperblock::blank(1024, 1024, [6; 16]);
        damage(&mut sb);
        let error = sb.validate(1024, 1024).expect_err("damaged");
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(matches!(
        JournalSuperblock::parse(&[0; 1024]),
        Err(DiskError::Corrupt(Corrupt::JournalMagic(0)))
    ));
}

#[test]
fn fast_commit_area() {
    let mut sb = JournalSuperblock::blank(1024, 1024, [6; 16]);
    assert_eq!((sb.fast_commit_blocks(), sb.log_end()), (0, 1024));
    sb.set_incompat(JournalIncompat::FAST_COMMIT);
    assert_eq!((sb.fast_commit_blocks(), sb.log_end()), (256, 768));

    let mut block = [0u8; 64];
    write_header(&mut block, 0, FcTag::Head, 8);
    crate::bytes::put_le32(&mut block, 8, 42);
    write_header(&mut block, 12, FcTag::Unlink, 5);
    // The tail's length counts the rest of the block.
    write_header(&mut block, 21, FcTag::Tail, 39);
    crate::bytes::put_le32(&mut block, 25, 42);
    let all: Vec<_> = records(&block).collect::<Result<_, _>>().expect("sound");
    assert_eq!(
        all.iter().map(|r| r.tag.name()).collect::<Vec<_>>(),
        ["head", "unlink", "tail"]
    );
    assert_eq!(
        FcHead::parse(all[0].value),
        Some(FcHead {
            features: 0,
            transaction: 42
        })
    );
    assert_eq!(
        FcTail::parse(all[2].value),
        Some(FcTail {
            transaction: 42,
            checksum: 0
        })
    );
    write_header(&mut block, 12, FcTag::Unlink, 500);
    assert!(records(&block).any(|r| r.is_err()));
    for raw in 0..20 {
        assert_eq!(FcTag::from_raw(raw).raw(), raw);
    }
}

/// What a crash can leave of a commit block: its first sector, before old bytes.
#[test]
fn a_torn_commit_counts_if_its_first_sector_is_there() {
    for format in formats().into_iter().filter(Format::has_tail) {
        let commit = CommitBlock {
            sequence: 9,
            time: Timestamp { sec: 5, nsec: 6 },
            v1_checksum: None,
        };
        let mut block = vec![0; 1024];
        commit.write(&mut block, &format).expect("size");
        block[512..].fill(0xee);
        assert_eq!(CommitBlock::verify_checksum(&block, &format), Ok(()));
        block[0x35] ^= 1;
        assert!(CommitBlock::verify_checksum(&block, &format).is_err());
    }
}
