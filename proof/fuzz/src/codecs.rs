//! Each structure of the disk format.
//!
//! An input begins with a few bytes that choose the rules (features, sizes, places); the rest is
//! the structure. Beyond "no panic": writing back what was read changes nothing, an edit that
//! succeeds can be read back, and a checksum that was just set is right.

use finefs_ext_disk::checksum::{FsSeed, InodeSeed};
use finefs_ext_disk::dirent::{DirBlock, DirRules, EntryType};
use finefs_ext_disk::extent::{Extent, ExtentNode, Index};
use finefs_ext_disk::features::JournalIncompat;
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::group::{GroupChecksum, GroupDesc};
use finefs_ext_disk::htree::{DxBlock, DxEntry, DxPlace, DxRootInfo};
use finefs_ext_disk::inode::{Inode, InodeRules};
use finefs_ext_disk::jbd2::commit::CommitBlock;
use finefs_ext_disk::jbd2::descriptor::{DescriptorBlock, DescriptorWriter};
use finefs_ext_disk::jbd2::revoke::{RevokeBlock, RevokeWriter};
use finefs_ext_disk::jbd2::{BlockHeader, JournalSuperblock, fast_commit};
use finefs_ext_disk::orphan_file::OrphanBlock;
use finefs_ext_disk::superblock::Superblock;
use finefs_ext_disk::xattr::{self, Xattr, XattrRegion, XattrValue};
use finefs_ext_disk::{GroupNo, Ino, LogicalBlock, PhysBlock, acl, bitmap, indirect};

use crate::seed;

const SEED: InodeSeed = InodeSeed(1);

/// An index's root like any other.
const ROOT: DxRootInfo = DxRootInfo {
    own: Ino(12),
    parent: Ino(2),
    has_filetype: true,
    hash_version: 1,
    levels: 0,
};

/// The bytes that choose, and the rest.
fn split<const N: usize>(data: &[u8]) -> Option<([u8; N], Vec<u8>)> {
    let (choices, rest) = data.split_first_chunk::<N>()?;
    Some((*choices, rest.to_vec()))
}

/// A block of one of the usual sizes that begins with `bytes`.
fn block(choice: u8, mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize([1024, 2048, 4096, 1024][usize::from(choice & 3)], 0);
    bytes
}

/// A good structure with the bytes of an input laid over it, each as a difference.
fn over(mut good: Vec<u8>, differences: &[u8]) -> Vec<u8> {
    for (byte, difference) in good.iter_mut().zip(differences) {
        *byte ^= difference;
    }
    good
}

/// Superblocks, and the geometry that follows.
pub fn superblock(data: &[u8]) {
    let Some((choices, mut bytes)) = split::<4>(data) else {
        return;
    };
    bytes.resize(1024, 0);
    let number = u32::from_le_bytes(choices);
    if choices[3] & 1 != 0 {
        let seeds = seed::all();
        let good = &seeds[usize::from(choices[2]) % seeds.len()].bytes[1024..2048];
        bytes = over(good.to_vec(), &bytes);
    }
    let Ok(mut superblock) = Superblock::parse(&bytes) else {
        return;
    };
    let _ = format!("{superblock:?} {:?}", superblock.feature_names());
    superblock.set_blocks_count(superblock.blocks_count());
    superblock.set_incompat(superblock.incompat());
    superblock.set_hash_seed(superblock.hash_seed());
    superblock.set_jnl_blocks(superblock.jnl_blocks());
    assert_eq!(superblock.as_bytes()[..], bytes[..]);
    superblock.update_checksum();
    assert_eq!(superblock.verify_checksum(), Ok(()));
    let Ok(geometry) = superblock.validate() else {
        let _ = Geometry::new(&superblock);
        return;
    };
    assert!(geometry.groups_count > 0 && geometry.size_bytes() > 0);
    let last = GroupNo(geometry.groups_count - 1);
    let blocks = geometry.group_first_block(last).0 + u64::from(geometry.group_blocks(last));
    assert_eq!(blocks, geometry.blocks_count);
    let group = GroupNo(number % geometry.groups_count);
    let _ = (
        geometry.group_base_blocks(group),
        geometry.group_has_super(group),
    );
    let (index, offset) = geometry.desc_position(group);
    assert!(offset + u32::from(geometry.desc_size) <= geometry.block_size);
    assert!(geometry.contains_block(geometry.desc_block(index)));
    if let Some(at) = geometry.locate_inode(Ino(number)) {
        assert_eq!(geometry.inode_at(at.group, at.index), Ino(number));
        assert!(at.offset + u32::from(geometry.inode_size) <= geometry.block_size);
    }
}

/// Group descriptors, and the bitmaps' checksums in them.
pub fn group(data: &[u8]) {
    let Some(([size, number, kind], mut bytes)) = split::<3>(data) else {
        return;
    };
    bytes.resize([32, 64, 48, 128][usize::from(size & 3)], 0);
    let Ok(mut desc) = GroupDesc::new(bytes.clone()) else {
        return;
    };
    desc.set_inode_table(desc.inode_table());
    desc.set_free_blocks(desc.free_blocks());
    desc.set_used_dirs(desc.used_dirs());
    desc.set_flags(desc.flags());
    assert_eq!(desc.as_bytes(), &bytes[..]);
    let group = GroupNo(u32::from(number));
    let kind = match kind & 3 {
        0 => GroupChecksum::None,
        1 => GroupChecksum::Crc16([number; 16]),
        _ => GroupChecksum::Crc32c(FsSeed(u32::from(number))),
    };
    desc.update_checksum(&kind, group);
    assert_eq!(desc.verify_checksum(&kind, group), Ok(()));
    if let Some(map) = bytes.get(32..) {
        let (from, end) = (usize::from(number), map.len() * 8);
        let run = bitmap::find_zero_run(map, from, end, 5);
        assert!(run.is_none_or(|at| (at..at + 5).all(|bit| !bitmap::test(map, bit))));
        assert!(bitmap::count_zeros(map, end) <= end);
    }
}

/// Inodes.
pub fn inode(data: &[u8]) {
    let Some(([size, bits], mut bytes)) = split::<2>(data) else {
        return;
    };
    bytes.resize([128, 256, 512, 1024][usize::from(size & 3)], 0);
    let rules = InodeRules {
        block_bits: 10 + u32::from(bits & 3),
        has_huge_file: bits & 4 != 0,
        has_large_dir: bits & 8 != 0,
        has_64bit: bits & 16 != 0,
        seed: (bits & 32 != 0).then_some(FsSeed(3)),
    };
    let Ok(mut inode) = Inode::new(bytes.clone()) else {
        return;
    };
    let _ = (
        inode.validate(),
        inode.device(),
        inode.fast_symlink_target(&rules),
    );
    let _ = inode.xattr_bytes().map(XattrRegion::in_inode);
    inode.set_uid(inode.uid());
    inode.set_gid(inode.gid());
    inode
        .set_size(&rules, inode.size(&rules))
        .expect("read from it");
    inode
        .set_file_acl(&rules, inode.file_acl(&rules))
        .expect("read from it");
    inode.set_flags(inode.flags());
    inode.set_version(inode.version());
    assert_eq!(inode.as_bytes(), &bytes[..]);
    let times = (inode.atime(), inode.ctime(), inode.crtime());
    inode.set_atime(times.0);
    inode.set_ctime(times.1);
    if let Some(created) = times.2 {
        inode.set_crtime(created);
    }
    assert_eq!(times, (inode.atime(), inode.ctime(), inode.crtime()));
    let count = inode.blocks_512(&rules);
    if inode.set_blocks_512(&rules, count).is_ok() {
        assert_eq!(inode.blocks_512(&rules), count);
    }
    inode.update_checksum(&rules, Ino(12));
    assert_eq!(inode.verify_checksum(&rules, Ino(12)), Ok(()));
}

/// Blocks of directory entries, and editing them.
pub fn directory(data: &[u8]) {
    let Some(([size, rules, name, at], bytes)) = split::<4>(data) else {
        return;
    };
    let rules = DirRules {
        has_filetype: rules & 1 != 0,
        has_tail: rules & 2 != 0,
        has_any_names: rules & 4 != 0,
        has_hashes: rules & 8 != 0,
    };
    let Ok(mut block) = DirBlock::new(block(size, bytes), rules) else {
        return;
    };
    let mut end = 0;
    for entry in block.entries().flatten() {
        assert_eq!(entry.offset, end);
        end += entry.rec_len;
        assert!(entry.name.len() < 256 && entry.slack() <= block.as_bytes().len());
    }
    let _ = (
        block.dots(),
        block.is_empty(),
        block.room().map(|room| room.largest()),
    );
    let is_valid = block.validate().is_ok();
    let name = vec![b'a' + name % 26; 1 + usize::from(name)];
    let count = block.entries().count();
    if let Ok(Some(offset)) = block
        .find(&name)
        .map(|entry| entry.map(|entry| entry.offset))
    {
        block
            .set_target(offset, Ino(7), EntryType(1))
            .expect("it is there");
        block.remove(offset).expect("it is there");
    } else if block.insert(&name, Ino(9), EntryType(2)).is_ok() && is_valid {
        let found = block
            .find(&name)
            .expect("it was sound")
            .expect("just inserted");
        assert_eq!(found.ino, Ino(9));
        assert!(block.entries().count() >= count);
    }
    let _ = block.remove(u32::from(at));
    assert!(!is_valid || block.validate().is_ok());
    block.update_checksum(SEED);
    if block.has_tail() {
        assert_eq!(block.verify_checksum(SEED), Ok(()));
    }
}

/// Blocks of a directory's index, and editing them.
pub fn htree(data: &[u8]) {
    let Some(([size, kind, at, hash], bytes)) = split::<4>(data) else {
        return;
    };
    let place = if kind & 1 != 0 {
        DxPlace::Node
    } else {
        DxPlace::Root
    };
    let has_tail = kind & 2 != 0;
    let mut bytes = block(size, bytes);
    if kind & 4 != 0 {
        let empty = vec![0; bytes.len()];
        let good = match place {
            DxPlace::Root => DxBlock::init_root(empty, has_tail, ROOT, LogicalBlock(1)),
            DxPlace::Node | DxPlace::HashedNode => {
                DxBlock::init_node(empty, place, has_tail, LogicalBlock(1))
            }
        };
        bytes = over(good.expect("a whole block").as_bytes().to_vec(), &bytes);
    }
    let Ok(mut index) = DxBlock::new(bytes, place, has_tail) else {
        return;
    };
    let hash = u32::from(hash) << 24;
    assert!(index.search(hash) < index.count());
    assert_eq!(index.entries().count(), usize::from(index.count()));
    let is_valid = index.validate().is_ok();
    let after = index.search(hash);
    let new = DxEntry {
        hash,
        block: LogicalBlock(5),
    };
    if index.insert(after + 1, new).is_ok() && is_valid {
        assert!(index.entries().any(|entry| entry == new));
    }
    index.set_block(u16::from(at), LogicalBlock(1));
    let entries: Vec<DxEntry> = index.entries().collect();
    if index.set_entries(&entries).is_ok() {
        assert!(index.entries().eq(entries));
    }
    index.update_checksum(SEED);
    assert_eq!(index.verify_checksum(SEED), Ok(()));
}

/// Extent nodes, and editing them.
pub fn extent(data: &[u8]) {
    let Some(([size, at, logical, len], mut bytes)) = split::<4>(data) else {
        return;
    };
    bytes.resize([60, 1024, 4096, 60][usize::from(size & 3)], 0);
    let Ok(mut node) = ExtentNode::new(bytes.clone()) else {
        return;
    };
    let is_valid = node.validate(LogicalBlock::ALL).is_ok();
    let logical = LogicalBlock(u64::from(logical) << 4);
    if let Some(found) = node.find(logical) {
        assert!(!is_valid || found.contains(logical));
    }
    let _ = (
        node.search(logical),
        node.child_range(u16::from(at), LogicalBlock::ALL),
    );
    if node.is_leaf() {
        let all: Vec<Extent> = node.extents().collect();
        for (position, extent) in (0..).zip(&all) {
            let _ = node.set_extent(position, *extent);
        }
        assert_eq!(node.as_bytes(), &bytes[..]);
        let new = Extent {
            logical,
            len: u32::from(len),
            physical: PhysBlock(77),
            is_unwritten: len & 1 != 0,
        };
        if node.insert_extent(u16::from(at), new).is_ok() {
            assert_eq!(node.extent(u16::from(at)), Some(new));
        }
    } else {
        for (position, index) in (0..).zip(node.indexes().collect::<Vec<_>>()) {
            let _ = node.set_index(position, index);
        }
        let new = Index {
            logical,
            block: PhysBlock(78),
        };
        if node.insert_index(u16::from(at), new).is_ok() {
            assert_eq!(node.index(u16::from(at)), Some(new));
        }
    }
    node.update_checksum(SEED);
    if node.as_bytes().len() > 60 {
        assert_eq!(node.verify_checksum(SEED), Ok(()));
    }
    node.remove(u16::from(at));
    node.truncate(u16::from(len));
}

/// Attributes in inodes and blocks, and ACLs.
pub fn xattr(data: &[u8]) {
    let Some(([kind, size], bytes)) = split::<2>(data) else {
        return;
    };
    let whole = block(size, bytes.clone());
    let (region, region_bytes) = match kind & 1 {
        0 => (XattrRegion::block(&whole).ok(), whole.len()),
        _ => (XattrRegion::in_inode(&bytes).ok().flatten(), bytes.len()),
    };
    if let Some(region) = region {
        let _ = (
            region.verify_hashes(),
            region.refcount(),
            region.block_hash(),
        );
        let found: Vec<Xattr<'_>> = region.entries().collect();
        for entry in &found {
            if let XattrValue::Bytes(value) = entry.value {
                assert!(value.len() <= region_bytes);
                let _ = acl::disk_to_user(value);
            }
            let _ = entry.index.join(entry.name);
        }
        let mut built = vec![0; whole.len()];
        if xattr::build_block(&mut built, &found).is_ok() {
            let read = XattrRegion::block(&built).expect("just built");
            assert_eq!(read.entries().count(), found.len());
            xattr::update_block_checksum(FsSeed(1), PhysBlock(2), &mut built);
            let verified = xattr::verify_block_checksum(FsSeed(1), PhysBlock(2), &built);
            assert_eq!(verified, Ok(()));
        }
        let mut area = vec![0; 96];
        if xattr::build_in_inode(&mut area, &found).is_ok() {
            let read = XattrRegion::in_inode(&area).expect("just built");
            assert_eq!(read.map_or(0, |read| read.entries().count()), found.len());
        }
    }
    if let Ok(entries) = acl::parse_disk(&bytes) {
        assert_eq!(acl::encode_disk(&entries), bytes);
    }
    if let Ok(user) = acl::disk_to_user(&bytes) {
        let back = acl::user_to_disk(&user).expect("made from it");
        assert_eq!(back, bytes);
    }
}

/// Blocks of the journal.
pub fn jbd2(data: &[u8]) {
    let Some(([features, size], bytes)) = split::<2>(data) else {
        return;
    };
    let block = block(size, bytes);
    if let Ok(mut found) = JournalSuperblock::parse(&block) {
        assert_eq!(found.as_bytes()[..], block[..1024]);
        let _ = (
            found.validate(block.len() as u32, 1024),
            format!("{found:?}"),
        );
        assert!(found.log_end() <= found.max_len());
        found.update_checksum();
        let _ = found.verify_checksum();
    }
    let mut superblock = JournalSuperblock::blank(block.len() as u32, 1024, [1; 16]);
    superblock.set_incompat(JournalIncompat::from_bits_retain(u32::from(features)));
    let format = superblock.format();
    let _ = BlockHeader::parse(&block);
    if let Ok(read) = DescriptorBlock::new(&block, &format) {
        let _ = read.verify_checksum();
        let tags: Vec<_> = read.tags().collect();
        assert!(tags.len() <= block.len() / 8);
        let mut written = vec![0; block.len()];
        let mut writer = DescriptorWriter::new(&mut written, &format, 1).expect("a whole block");
        let mut count = 0;
        for tag in &tags {
            if !matches!(writer.push(tag.block, false, tag.checksum), Ok(true)) {
                break;
            }
            count += 1;
        }
        writer.finish();
        let again = DescriptorBlock::new(&written, &format).expect("just written");
        assert_eq!(again.verify_checksum(), Ok(()));
        assert!(count == 0 || again.tags().count() == count);
        let blocks = again.tags().map(|tag| tag.block);
        assert!(count == 0 || blocks.eq(tags[..count].iter().map(|tag| tag.block)));
    }
    if let Ok(read) = RevokeBlock::new(&block, &format) {
        let _ = read.verify_checksum();
        let blocks: Vec<PhysBlock> = read.blocks().collect();
        assert!(blocks.len() <= RevokeWriter::capacity(&format) + 4);
        let mut written = vec![0; block.len()];
        let mut writer = RevokeWriter::new(&mut written, &format, 1).expect("a whole block");
        let mut count = 0;
        while count < blocks.len() && matches!(writer.push(blocks[count]), Ok(true)) {
            count += 1;
        }
        writer.finish();
        let again = RevokeBlock::new(&written, &format).expect("just written");
        assert_eq!(again.verify_checksum(), Ok(()));
        assert!(again.blocks().eq(blocks[..count].iter().copied()));
    }
    let _ = CommitBlock::verify_checksum(&block, &format);
    if let Ok(commit) = CommitBlock::parse(&block, &format) {
        let mut written = vec![0; block.len()];
        commit.write(&mut written, &format).expect("a whole block");
        assert_eq!(CommitBlock::parse(&written, &format), Ok(commit));
        assert_eq!(CommitBlock::verify_checksum(&written, &format), Ok(()));
    }
    assert!(fast_commit::records(&block).count() <= block.len());
}

/// What is too small for a target of its own: orphan files, paths of block maps.
pub fn small(data: &[u8]) {
    let Some(([size, slot, a, b, c, d], bytes)) = split::<6>(data) else {
        return;
    };
    let number = u32::from_le_bytes([a, b, c, d]);
    if let Ok(mut orphans) = OrphanBlock::new(block(size, bytes)) {
        assert!(orphans.orphans().count() <= orphans.slots());
        let slot = usize::from(slot) % orphans.slots().max(1);
        orphans.set_slot(slot, Ino(number));
        assert_eq!(orphans.slot(slot), Ino(number));
        orphans.update_checksum(SEED, PhysBlock(4));
        assert_eq!(orphans.verify_checksum(SEED, PhysBlock(4)), Ok(()));
    }
    let block_size = 1024 << (size & 3);
    if let Some(path) = indirect::path(block_size, number.into()) {
        let pointers = indirect::pointers_per_block(block_size);
        assert_eq!(path.depth() + 1, path.steps().len());
        let word = path.steps()[0];
        let below = path.steps()[1..].iter();
        assert!(below.clone().all(|step| *step < pointers));
        // Where the word's part begins, and where in it.
        let within = below.fold(0, |sum, step| sum * u64::from(pointers) + u64::from(*step));
        let start = indirect::first_of_word(block_size, word);
        assert_eq!(start + within, number.into());
    }
}
