//! What this crate writes, e2fsprogs must accept: edits of an image, and a journal to replay.

use crate::support::{Image, run_ok};
use finefs_ext_disk::acl::{AclEntry, AclTag, encode_disk};
use finefs_ext_disk::checksum::crc32c;
use finefs_ext_disk::dirent::{DirBlock, EntryType};
use finefs_ext_disk::features::{Incompat, JournalIncompat};
use finefs_ext_disk::inode::FileKind;
use finefs_ext_disk::jbd2::commit::CommitBlock;
use finefs_ext_disk::jbd2::descriptor::{
    DescriptorBlock, DescriptorWriter, TagFlags, data_checksum, verify_data,
};
use finefs_ext_disk::jbd2::revoke::{RevokeBlock, RevokeWriter};
use finefs_ext_disk::jbd2::{BlockHeader, BlockType, Format, JournalSuperblock, escape};
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use finefs_ext_disk::time::Timestamp;
use finefs_ext_disk::xattr::{
    NameIndex, Xattr, XattrValue, build_block, build_in_inode, update_block_checksum,
};
use finefs_ext_disk::{GroupNo, Ino, PhysBlock, bitmap};

const DEFAULTS: [&str; 2] = ["-t", "ext4"];

fn here<'a>(index: NameIndex, name: &'a [u8], value: &'a [u8]) -> Xattr<'a> {
    Xattr {
        index,
        name,
        value: XattrValue::Bytes(value),
    }
}

/// Takes a free block of group 0 and accounts for it.
fn take_block(image: &mut Image) -> PhysBlock {
    let (group, kind, geo) = (GroupNo(0), image.checksum, image.geo.clone());
    let at = image.desc(group).block_bitmap();
    let bit = bitmap::find_zero(image.block(at), 0, geo.clusters_per_group as usize).expect("free");
    bitmap::set(image.block_mut(at), bit);
    let map = image.block(at).to_vec();
    let (index, offset) = geo.desc_position(group);
    let offset = offset as usize;
    let table = image.block_mut(geo.desc_block(index));
    let bytes = &mut table[offset..offset + usize::from(geo.desc_size)];
    let mut desc = finefs_ext_disk::group::GroupDesc::new(bytes).expect("desc");
    desc.set_free_blocks(desc.free_blocks() - 1);
    desc.update_block_bitmap(&kind, &geo, &map).expect("size");
    desc.update_checksum(&kind, group);
    image
        .sb
        .set_free_blocks_count(image.sb.free_blocks_count() - 1);
    image.sb.update_checksum();
    put_superblock(image);
    PhysBlock(u64::from(geo.first_data_block) + bit as u64)
}

fn put_superblock(image: &mut Image) {
    let at = SUPERBLOCK_OFFSET as usize;
    image.bytes[at..at + SUPERBLOCK_SIZE].copy_from_slice(image.sb.as_bytes());
}

#[test]
fn edits_are_clean() {
    for args in [
        &DEFAULTS[..],
        &[
            "-t",
            "ext4",
            "-O",
            "metadata_csum_seed,orphan_file",
            "-b",
            "1024",
        ],
        &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"],
        &["-t", "ext3"],
    ] {
        let mut image = Image::make(args, "64M", 20);
        let (whole, dir) = (image.lookup("whole"), image.lookup("a"));
        let rules = image.rules;

        // A name more.
        let at = image.blocks_of(dir)[0].1;
        let (dir_rules, seed) = (image.dir_rules, image.inode(dir).seed(&rules, dir));
        let mut block = DirBlock::new(image.block_mut(at), dir_rules).expect("block");
        block
            .insert(b"third-name", whole, FileKind::Regular.into())
            .expect("room");
        let old = block
            .insert(b"gone", whole, EntryType::UNKNOWN)
            .expect("room");
        block.remove(old).expect("there");
        if let Some(seed) = seed {
            block.update_checksum(seed);
        }

        // Attributes in inode and block.
        let acl = encode_disk(&[
            AclEntry {
                tag: AclTag::UserObj,
                permissions: 6,
            },
            AclEntry {
                tag: AclTag::User(1234),
                permissions: 4,
            },
            AclEntry {
                tag: AclTag::GroupObj,
                permissions: 4,
            },
            AclEntry {
                tag: AclTag::Mask,
                permissions: 4,
            },
            AclEntry {
                tag: AclTag::Other,
                permissions: 4,
            },
        ]);
        let at = take_block(&mut image);
        let fs_seed = image.sb.seed();
        let block = image.block_mut(at);
        let in_block = [
            here(NameIndex::USER, b"long", &[b'v'; 400]),
            here(NameIndex::POSIX_ACL_ACCESS, b"", &acl),
            here(NameIndex::TRUSTED, b"n\xc3\xa9", b"odd"),
        ];
        build_block(block, &in_block).expect("room");
        if rules.seed.is_some() {
            update_block_checksum(fs_seed, at, block);
        }
        let sectors = u64::from(image.geo.block_size / 512);

        let mut inode = image.inode_mut(whole);
        inode.set_links_count(inode.links_count() + 1);
        inode.set_uid(100_001);
        inode.set_gid(70_000);
        inode.set_mtime(Timestamp {
            sec: 5_000_000_000,
            nsec: 123_456_789,
        });
        inode.set_file_acl(&rules, at).expect("in range");
        let blocks = inode.blocks_512(&rules) + sectors;
        inode.set_blocks_512(&rules, blocks).expect("in range");
        let in_inode = [
            here(NameIndex::USER, b"near", b"inside"),
            here(NameIndex::USER, b"e", b""),
        ];
        build_in_inode(inode.xattr_bytes_mut().expect("large inode"), &in_inode).expect("room");
        inode.update_checksum(&rules, whole);

        image.save();
        image.assert_clean();
        let text = image.debugfs(&["stat \"/a/third-name\"", "ea_list /whole"]);
        for part in [
            "User: 100001",
            "Group: 70000",
            "user.near (6) = \"inside\"",
            "user.long (400)",
            "mtime: 0x2a05f200:1d6f3455",
            "system.posix_acl_access (28)",
            "6e c3 a9  (3) = \"odd\"",
        ] {
            assert!(text.contains(part), "{args:?}: {part} in {text}");
        }
    }
}

/// The blocks of the journal, its superblock and format.
fn journal(image: &Image) -> (Vec<PhysBlock>, JournalSuperblock, Format) {
    let ino = Ino(image.sb.journal_inum());
    let blocks: Vec<PhysBlock> = image.blocks_of(ino).into_iter().map(|(_, at)| at).collect();
    let sb = JournalSuperblock::parse(image.block(blocks[0])).expect("journal superblock");
    let format = sb
        .validate(image.geo.block_size, blocks.len() as u64)
        .expect("sound journal");
    (blocks, sb, format)
}

#[test]
fn journals_of_debugfs_are_read() {
    for (version, features, wide) in [
        ("", "^metadata_csum", "^64bit"),
        ("-c -v 2", "metadata_csum", "^64bit"),
        ("-c -v 2", "metadata_csum", "64bit"),
        ("-c -v 3", "metadata_csum", "64bit"),
        ("-c -v 3", "metadata_csum", "^64bit"),
    ] {
        let options = format!("{features},{wide}");
        let image = Image::make(&["-t", "ext4", "-b", "1024", "-O", &options], "64M", 0);
        let data = image.dir.path().join("data");
        // One block in three starts with the journal's magic.
        let mut contents = vec![7u8; 150 * 1024];
        for i in (0..150).step_by(3) {
            contents[i * 1024..i * 1024 + 4].copy_from_slice(&0xC03B_3998u32.to_be_bytes());
        }
        std::fs::write(&data, &contents).expect("data");
        let write = format!("journal_write -b 20000-20149 {}", data.to_string_lossy());
        image.debugfs(&[
            &format!("journal_open {version}"),
            &write,
            "journal_write -r 21000-21009",
            "journal_close",
        ]);
        let image = image.reopen();
        assert!(image.sb.incompat().contains(Incompat::NEEDS_RECOVERY));
        let (blocks, sb, format) = journal(&image);
        let mut at = sb.start() as usize;
        let (mut next, mut revoked, mut commits, mut escaped) = (20_000, Vec::new(), 0, 0);
        while let Some(header) = BlockHeader::parse(image.block(blocks[at])) {
            let block = image.block(blocks[at]);
            at += 1;
            match header.block_type {
                BlockType::Descriptor => {
                    let read = DescriptorBlock::new(block, &format).expect("descriptor");
                    assert_eq!(read.verify_checksum(), Ok(()));
                    for tag in read.tags() {
                        assert_eq!(tag.block, PhysBlock(next));
                        let logged = image.block(blocks[at]);
                        assert_eq!(verify_data(&format, header.sequence, &tag, logged), Ok(()));
                        escaped += usize::from(tag.flags.contains(TagFlags::ESCAPE));
                        (next, at) = (next + 1, at + 1);
                    }
                }
                BlockType::Revoke => {
                    let read = RevokeBlock::new(block, &format).expect("revoke");
                    assert_eq!(read.verify_checksum(), Ok(()));
                    revoked.extend(read.blocks().map(|b| b.0));
                }
                BlockType::Commit => {
                    assert!(CommitBlock::parse(block, &format).is_ok());
                    assert_eq!(CommitBlock::verify_checksum(block, &format), Ok(()));
                    commits += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(
            (next, commits, escaped),
            (20_150, 2, 50),
            "{version} {options}"
        );
        assert_eq!(revoked, (21_000..21_010).collect::<Vec<u64>>());
    }
}

/// Puts three transactions into the log: the first writes `to` and one block more, the second
/// revokes that other one, the third is torn (its commit block has lost its magic).
fn fill_journal(image: &mut Image, features: JournalIncompat, to: PhysBlock, other: PhysBlock) {
    let (blocks, mut sb, _) = journal(image);
    sb.set_incompat(features | JournalIncompat::REVOKE);
    sb.set_checksum_type(
        if features.intersects(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3) {
            4
        } else {
            0
        },
    );
    let first = sb.sequence();
    sb.set_start(1);
    sb.update_checksum();
    image.block_mut(blocks[0])[..1024].copy_from_slice(sb.as_bytes());
    let format = sb.format();
    let mut log = blocks[1..].iter().copied();
    let mut put = |image: &mut Image, block: &[u8]| {
        image
            .block_mut(log.next().expect("room"))
            .copy_from_slice(block);
    };
    let size = image.block_size();
    let time = Timestamp {
        sec: 1_700_000_000,
        nsec: 0,
    };
    for (sequence, fill) in [(first, 0x11), (first + 1, 0x22), (first + 2, 0x33)] {
        let mut block = vec![0; size];
        let mut data = vec![fill; size];
        data[..4].copy_from_slice(&0xC03B_3998u32.to_be_bytes());
        assert!(escape(&mut data));
        let plain = vec![fill; size];
        if fill == 0x22 {
            let mut writer = RevokeWriter::new(&mut block, &format, sequence).expect("size");
            assert_eq!(writer.push(other), Ok(true));
            writer.finish();
            put(image, &block);
        } else {
            let mut writer = DescriptorWriter::new(&mut block, &format, sequence).expect("size");
            for (at, data, is_escaped) in [(to, &data, true), (other, &plain, false)] {
                let sum = data_checksum(&format, sequence, data);
                assert_eq!(writer.push(at, is_escaped, sum), Ok(true));
            }
            writer.finish();
            put(image, &block);
            put(image, &data);
            put(image, &plain);
        }
        let commit = CommitBlock {
            sequence,
            time,
            v1_checksum: None,
        };
        commit.write(&mut block, &format).expect("size");
        if fill == 0x33 {
            block[0] ^= 1;
        }
        put(image, &block);
    }
    image
        .sb
        .set_incompat(image.sb.incompat() | Incompat::NEEDS_RECOVERY);
    image.sb.update_checksum();
    put_superblock(image);
    image.save();
}

#[test]
fn journals_are_replayed_by_e2fsck() {
    let (v2, v3, wide) = (
        JournalIncompat::CSUM_V2,
        JournalIncompat::CSUM_V3,
        JournalIncompat::BIT64,
    );
    for features in [JournalIncompat::empty(), wide, v2, v2 | wide, v3, v3 | wide] {
        for block_size in ["1024", "4096"] {
            let mut image = Image::make(&["-t", "ext4", "-b", block_size], "64M", 0);
            let size = image.block_size();
            // The tail of the file system is free.
            let to = PhysBlock(image.geo.blocks_count - 5);
            let other = PhysBlock(image.geo.blocks_count - 6);
            image.block_mut(other).fill(0x77);
            fill_journal(&mut image, features, to, other);
            let path = image.path.to_string_lossy().into_owned();
            run_ok("e2fsck", &["-fy", "-E", "journal_only", &path], &[0, 1]);
            let image = image.reopen();
            assert!(
                !image.sb.incompat().contains(Incompat::NEEDS_RECOVERY),
                "{features}"
            );
            let mut expected = vec![0x11; size];
            expected[..4].copy_from_slice(&0xC03B_3998u32.to_be_bytes());
            assert_eq!(
                crc32c(0, image.block(to)),
                crc32c(0, &expected),
                "{features}"
            );
            assert_eq!(image.block(other), vec![0x77; size], "{features}");
            image.assert_clean();
        }
    }
}
