//! No bytes make a parser panic, and what was parsed encodes back to the same bytes.

use finefs_ext_disk::checksum::{FsSeed, InodeSeed};
use finefs_ext_disk::dirent::{DirBlock, DirRules, EntryType};
use finefs_ext_disk::extent::{self, Extent, ExtentNode, Index};
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::group::{GroupChecksum, GroupDesc};
use finefs_ext_disk::htree::{DxBlock, DxEntry, DxPlace};
use finefs_ext_disk::inode::{Inode, InodeRules};
use finefs_ext_disk::jbd2::commit::CommitBlock;
use finefs_ext_disk::jbd2::descriptor::{DescriptorBlock, DescriptorWriter};
use finefs_ext_disk::jbd2::revoke::{RevokeBlock, RevokeWriter};
use finefs_ext_disk::jbd2::{BlockHeader, BlockType, JournalSuperblock, fast_commit};
use finefs_ext_disk::orphan_file::OrphanBlock;
use finefs_ext_disk::superblock::Superblock;
use finefs_ext_disk::xattr::{self, XattrRegion};
use finefs_ext_disk::{GroupNo, Ino, LogicalBlock, PhysBlock, acl};
use proptest::prelude::*;

/// Random bytes, some of them set to what a parser looks for.
fn bytes(
    sizes: &'static [usize],
    hints: &'static [(usize, &'static [u8])],
) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![2 => Just(0u8), 1 => any::<u8>(), 1 => 0u8..20];
    let size = prop::sample::select(sizes);
    (
        size.prop_flat_map(move |n| {
            // Large blocks repeat themselves: generating each byte takes too long.
            let part = prop::collection::vec(byte.clone(), n.min(1100));
            part.prop_map(move |p| p.iter().copied().cycle().take(n).collect::<Vec<u8>>())
        }),
        any::<u32>(),
    )
        .prop_map(move |(mut all, choice)| {
            for (i, (at, hint)) in hints.iter().enumerate() {
                // Each hint is there seven times out of eight.
                let is_given = choice.rotate_right(3 * i as u32) & 7 != 0;
                if let Some(to) = all.get_mut(*at..*at + hint.len()).filter(|_| is_given) {
                    to.copy_from_slice(hint);
                }
            }
            all
        })
}

fn use_geometry(geo: &Geometry, number: u64) {
    let group = GroupNo(number as u32);
    let _ = (
        geo.group_blocks(group),
        geo.group_clusters(group),
        geo.group_base_blocks(group),
    );
    let _ = (
        geo.group_has_super(group),
        geo.desc_position(group),
        geo.size_bytes(),
    );
    let _ = (
        geo.locate_block(PhysBlock(number)),
        geo.contains_run(PhysBlock(number), number),
    );
    let _ = geo.desc_block(geo.desc_blocks - 1);
    if geo.groups_count < 10_000 {
        let _ = geo.desc_block_copies(number as u32 % geo.desc_blocks);
    }
    if let Some(at) = geo.locate_inode(Ino(number as u32)) {
        assert_eq!(geo.inode_at(at.group, at.index), Ino(number as u32));
        assert!(at.table_block < geo.inode_table_blocks && at.group.0 < geo.groups_count);
        assert!(at.offset + u32::from(geo.inode_size) <= geo.block_size);
    }
}

const SUPER_HINTS: &[(usize, &[u8])] = &[
    (0x38, &[0x53, 0xEF]),
    (
        0x00,
        &[
            0, 8, 0, 0, 0, 0x20, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0,
        ],
    ),
    (0x14, &[1, 0, 0, 0, 0, 0, 0, 0]),
    (0x20, &[0, 0x20, 0, 0, 0, 0x20, 0, 0, 0, 8, 0, 0]),
    (0x4C, &[1, 0, 0, 0]),
    (0x54, &[11, 0, 0, 0, 0, 1]),
    (0x60, &[2, 0, 0, 0, 1, 0, 0, 0]),
    (0xCE, &[0, 0]),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn superblock(all in bytes(&[0, 56, 1023, 1024, 1100], SUPER_HINTS), number: u64) {
        if let Ok(mut sb) = Superblock::parse(&all) {
            prop_assert_eq!(&sb.as_bytes()[..], &all[..1024]);
            let _ = format!("{sb:?} {:?} {:?}", sb.feature_names(), sb.error_policy());
            if let Ok(geo) = Geometry::new(&sb) {
                use_geometry(&geo, number);
            }
            sb.update_checksum();
            let _ = (sb.validate(), sb.first_ino(), sb.seed());
            // Writing back what was read changes nothing.
            let before = *sb.as_bytes();
            sb.set_blocks_count(sb.blocks_count());
            sb.set_write_time(sb.write_time());
            sb.set_state(sb.state());
            sb.set_incompat(sb.incompat());
            sb.set_hash_seed(sb.hash_seed());
            sb.set_jnl_blocks(sb.jnl_blocks());
            sb.set_uuid(&sb.uuid());
            prop_assert_eq!(sb.as_bytes(), &before);
        }
    }

    #[test]
    fn group_descriptor(all in bytes(&[0, 31, 32, 48, 64, 128], &[]), group: u32) {
        if let Ok(mut desc) = GroupDesc::new(all.clone()) {
            for kind in [GroupChecksum::None, GroupChecksum::Crc16([1; 16]), GroupChecksum::Crc32c(FsSeed(1))] {
                let _ = desc.verify_checksum(&kind, GroupNo(group));
            }
            desc.set_inode_table(desc.inode_table());
            desc.set_used_dirs(desc.used_dirs());
            desc.set_block_bitmap_csum(desc.block_bitmap_csum());
            desc.set_flags(desc.flags());
            prop_assert_eq!(desc.as_bytes(), &all[..]);
        }
    }

    #[test]
    fn inode(
        all in bytes(&[0, 127, 128, 129, 132, 256, 1024], &[(0, &[0xa4, 0x81]), (0x80, &[32, 0])]),
        bits in 10u32..17, huge: bool, wide: bool,
    ) {
        let rules = InodeRules {
            block_bits: bits, has_huge_file: huge, has_large_dir: wide, has_64bit: wide, seed: Some(FsSeed(3)),
        };
        if let Ok(mut inode) = Inode::new(all.clone()) {
            let _ = (inode.validate(), inode.verify_checksum(&rules, Ino(1)), inode.device());
            let _ = (inode.fast_symlink_target(&rules).map(<[u8]>::len), inode.block_words());
            let _ = (inode.xattr_bytes().map(XattrRegion::in_inode), inode.crtime(), inode.blocks_512(&rules));
            inode.set_uid(inode.uid());
            inode.set_gid(inode.gid());
            inode.set_size(&rules, inode.size(&rules)).expect("read from it");
            inode.set_file_acl(&rules, inode.file_acl(&rules)).expect("read from it");
            inode.set_flags(inode.flags());
            inode.set_version(inode.version());
            if let Some(project) = inode.project() {
                prop_assert!(inode.set_project(project));
            }
            prop_assert_eq!(inode.as_bytes(), &all[..]);
            let (atime, mtime) = (inode.atime(), inode.mtime());
            inode.set_atime(atime);
            inode.set_mtime(mtime);
            prop_assert_eq!((inode.atime(), inode.mtime()), (atime, mtime));
            inode.update_checksum(&rules, Ino(5));
            prop_assert_eq!(inode.verify_checksum(&rules, Ino(5)), Ok(()));
        }
    }

    #[test]
    fn extents(
        all in bytes(&[0, 12, 24, 60, 1024], &[(0, &[0x0A, 0xF3, 2, 0, 4, 0, 0, 0])]),
        block: u32, at: u16,
    ) {
        if let Ok(mut node) = ExtentNode::new(all.clone()) {
            let block = LogicalBlock::from(block);
            let _ = (node.validate(LogicalBlock::ALL), node.find(block), node.search(block));
            let _ = (node.verify_checksum(InodeSeed(1)), node.child_range(at, LogicalBlock::ALL));
            let found: Vec<Extent> = node.extents().collect();
            for (i, e) in (0u16..).zip(&found) {
                let done = node.set_extent(i, *e);
                let fits = e.len > 0 && e.logical_end() <= LogicalBlock::ALL.end;
                prop_assert_eq!(done.is_ok(), fits);
            }
            if node.is_leaf() {
                prop_assert_eq!(node.as_bytes(), &all[..]);
            }
            let _ = node.insert_index(at, Index { logical: block, block: PhysBlock(1) });
            let new = Extent { logical: block, len: 1, physical: PhysBlock(1), is_unwritten: true };
            let _ = node.insert_extent(at % 8, new);
            node.remove(at);
            node.truncate(at);
            node.update_checksum(InodeSeed(1));
            prop_assert!(extent::capacity(node.as_bytes().len()) >= node.max());
        }
    }

    #[test]
    fn directory(
        all in bytes(&[0, 35, 36, 1024, 4096, 65_536], &[
            (0, &[2, 0, 0, 0, 12, 0, 1, 2, b'.']), (12, &[2, 0, 0, 0, 244, 3, 2, 2, b'.', b'.']), (1016, &[12, 0, 0, 0xDE]),
        ]),
        has_filetype: bool, has_tail: bool, has_any_names: bool,
        has_hashes: bool, offset in 0u32..80,
    ) {
        let rules = DirRules { has_filetype, has_tail, has_any_names, has_hashes };
        if let Ok(mut block) = DirBlock::new(all, rules) {
            let mut end = 0;
            for entry in block.entries().flatten() {
                prop_assert_eq!(entry.offset, end);
                end += entry.rec_len;
                let _ = (entry.slack(), entry.is_dot(), entry.entry_type.kind());
            }
            let _ = (block.dots(), block.is_empty(), block.free_space(), block.find(b"x").map(|_| ()));
            let _ = (block.insert(b"some name", Ino(3), EntryType(1)), block.remove(offset));
            let _ = (block.set_target(offset, Ino(4), EntryType(2)), block.verify_checksum(InodeSeed(1)));
            block.update_checksum(InodeSeed(1));
        }
    }

    #[test]
    fn index(
        all in bytes(&[0, 1023, 1024, 2048], &[
            (0, &[2, 0, 0, 0, 12, 0, 1, 2, b'.', 0, 0, 0, 2, 0, 0, 0, 0xf4, 3, 2, 2, b'.', b'.', 0, 0]),
            (24, &[0, 0, 0, 0, 1, 8, 0, 0, 124, 0]), (34, &[9, 0]),
        ]),
        hash: u32, at: u16, is_node: bool, has_tail: bool,
    ) {
        let mut all = all;
        let place = if is_node { DxPlace::Node } else { DxPlace::Root };
        if is_node && all.len() == 1024 {
            all[..12].copy_from_slice(&[0, 0, 0, 0, 0, 4, 0, 0, 127 - u8::from(has_tail), 0, 9, 0]);
        } else if all.len() == 1024 {
            all[32] = 124 - u8::from(has_tail);
        }
        if let Ok(mut dx) = DxBlock::new(all, place, has_tail) {
            prop_assert!(dx.search(hash) < dx.count());
            let _ = (dx.validate(), dx.verify_checksum(InodeSeed(1)), dx.entries().count());
            let _ = dx.insert(at % 16, DxEntry { hash, block: hash.into() });
            dx.set_block(at, LogicalBlock(1));
            dx.update_checksum(InodeSeed(1));
            prop_assert_eq!(dx.verify_checksum(InodeSeed(1)), Ok(()));
        }
    }

    #[test]
    fn attributes(all in bytes(&[0, 4, 8, 96, 1024], &[
        (0, &[0, 0, 2, 0xEA, 1, 0, 0, 0]), (8, &[1, 0, 0, 0]), (32, &[2, 1, 100, 0, 0, 0, 0, 0, 8, 0, 0, 0]),
        (48, b"ab\0\0\0\0\0\0"),
    ])) {
        let in_inode = XattrRegion::in_inode(&all).ok().flatten();
        for region in [in_inode, XattrRegion::block(&all).ok()].into_iter().flatten() {
            let _ = region.verify_hashes();
            let found: Vec<_> = region.entries().collect();
            let mut block = vec![0; 65_536];
            if xattr::build_block(&mut block, &found).is_ok() {
                let read = XattrRegion::block(&block).expect("just built");
                prop_assert_eq!(read.entries().count(), found.len());
                prop_assert!(found.iter().all(|x| read.entries().any(|y| *x == y)));
            }
        }
        if let Ok(entries) = acl::parse_disk(&all) {
            prop_assert_eq!(acl::encode_disk(&entries), &all[..]);
        }
        let _ = acl::parse_user(&all);
    }

    #[test]
    fn journal(all in bytes(&[0, 12, 1024], &[(0, &[0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4]),
        (0x0C, &[0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0, 1]), (0x28, &[0, 0, 0, 0])]), kind in 1u32..6, features in 0u32..64) {
        let mut sb = JournalSuperblock::blank(1024, 1024, [1; 16]);
        if let Ok(found) = JournalSuperblock::parse(&all) {
            prop_assert_eq!(&found.as_bytes()[..], &all[..]);
            let _ = (found.validate(1024, 1024), found.log_end(), format!("{found:?}"));
        }
        sb.set_incompat(finefs_ext_disk::features::JournalIncompat::from_bits_retain(features));
        let format = sb.format();
        let mut block = all.clone();
        if block.len() >= 12 {
            BlockHeader { block_type: BlockType::from_raw(kind), sequence: 1 }.write(&mut block);
        }
        if let Ok(read) = DescriptorBlock::new(&block, &format) {
            let _ = (read.verify_checksum(), read.tags().count());
        }
        if let Ok(read) = RevokeBlock::new(&block, &format) {
            let _ = (read.verify_checksum(), read.blocks().count());
        }
        let _ = (CommitBlock::parse(&block, &format), CommitBlock::verify_checksum(&block, &format));
        let _ = (DescriptorWriter::capacity(&format), RevokeWriter::capacity(&format));
        prop_assert!(fast_commit::records(&block).take(2000).count() < 2000);
        let _ = OrphanBlock::new(&block).map(|b| b.orphans().count());
    }
}
