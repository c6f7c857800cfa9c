//! What mke2fs, debugfs and e2fsck write must pass every check here, for many feature sets.

use crate::support::{Image, run_ok};
use finefs_ext_disk::checksum::InodeSeed;
use finefs_ext_disk::dirent::DirBlock;
use finefs_ext_disk::dirhash::DirHasher;
use finefs_ext_disk::extent::ExtentNode;
use finefs_ext_disk::group::GroupFlags;
use finefs_ext_disk::htree::{DxBlock, DxPlace};
use finefs_ext_disk::inode::{FileKind, Inode, InodeFlags};
use finefs_ext_disk::orphan_file::OrphanBlock;
use finefs_ext_disk::superblock::Superblock;
use finefs_ext_disk::xattr::{XattrRegion, verify_block_checksum};
use finefs_ext_disk::{GroupNo, Ino, LogicalBlock, PhysBlock, bitmap};
use std::ops::Range;

/// How much there was to check, so that a test that checked nothing fails.
#[derive(Debug, Default)]
struct Seen {
    bitmaps: usize,
    inodes: usize,
    leaves: usize,
    names: usize,
    dx_blocks: usize,
    extent_blocks: usize,
    xattrs: usize,
    xattr_blocks: usize,
    fast_symlinks: usize,
}

fn check_groups(image: &Image, seen: &mut Seen) {
    let (geo, kind) = (&image.geo, &image.checksum);
    let (mut free_blocks, mut free_inodes) = (0, 0);
    for group in image.groups() {
        let desc = image.desc(group);
        assert_eq!(desc.verify_checksum(kind, group), Ok(()), "{group}");
        assert_eq!(desc.validate(geo, group), Ok(()), "{group}");
        free_blocks += u64::from(desc.free_blocks()) * u64::from(geo.cluster_ratio);
        free_inodes += desc.free_inodes();
        let flags = if kind.is_present() {
            desc.flags()
        } else {
            GroupFlags::empty()
        };
        if !flags.contains(GroupFlags::BLOCK_UNINIT) {
            let map = image.block(desc.block_bitmap());
            assert_eq!(desc.verify_block_bitmap(kind, geo, map), Ok(()), "{group}");
            let clusters = geo.group_clusters(group) as usize;
            assert_eq!(
                bitmap::count_zeros(map, clusters),
                desc.free_blocks() as usize
            );
            let base = geo.group_base_blocks(group).div_ceil(geo.cluster_ratio) as usize;
            assert_eq!(bitmap::find_zero(map, 0, base), None, "base of {group}");
            seen.bitmaps += 1;
        }
        if !flags.contains(GroupFlags::INODE_UNINIT) {
            let map = image.block(desc.inode_bitmap());
            assert_eq!(desc.verify_inode_bitmap(kind, geo, map), Ok(()), "{group}");
            let count = bitmap::count_zeros(map, geo.inodes_per_group as usize);
            assert_eq!(count, desc.free_inodes() as usize);
            seen.bitmaps += 1;
        }
    }
    assert_eq!(free_blocks, image.sb.free_blocks_count());
    assert_eq!(free_inodes, image.sb.free_inodes_count());
    for group in geo.backup_groups() {
        let copy = Superblock::parse(image.block(geo.group_first_block(group))).expect("copy");
        assert_eq!(copy.verify_checksum(), Ok(()));
        assert_eq!(u32::from(copy.block_group_nr()), group.0 & 0xffff);
    }
}

fn check_inode(image: &Image, ino: Ino, seen: &mut Seen) {
    let inode = image.inode(ino);
    assert_eq!(
        inode.verify_checksum(&image.rules, ino),
        Ok(()),
        "inode {ino}"
    );
    seen.inodes += 1;
    let is_reserved = ino.0 < image.geo.first_ino.0 && ino != Ino::ROOT;
    if is_reserved && inode.mode() == 0 {
        return;
    }
    let kind = inode
        .validate()
        .unwrap_or_else(|e| panic!("inode {ino}: {e}"));
    let seed = inode.seed(&image.rules, ino);
    if inode.flags().contains(InodeFlags::EXTENTS) {
        check_extents(
            image,
            inode.block_area(),
            LogicalBlock::ALL,
            None,
            seed,
            seen,
        );
    }
    if inode.is_fast_symlink(&image.rules) {
        assert_eq!(inode.blocks_512(&image.rules), 0);
        seen.fast_symlinks += 1;
    }
    check_xattrs(image, &inode, seen);
    if kind == FileKind::Directory {
        check_directory(image, ino, seed, seen);
    }
}

fn check_extents(
    image: &Image,
    bytes: &[u8],
    range: Range<LogicalBlock>,
    depth: Option<u16>,
    seed: Option<InodeSeed>,
    seen: &mut Seen,
) {
    let node = ExtentNode::new(bytes).expect("extent node");
    assert_eq!(node.validate(range.clone()), Ok(()));
    assert!(depth.is_none_or(|d| d == node.depth()));
    for (i, index) in (0u16..).zip(node.indexes()) {
        let below = image.block(index.block);
        if let Some(seed) = seed {
            let child = ExtentNode::new(below).expect("extent node");
            assert_eq!(child.verify_checksum(seed), Ok(()));
        }
        seen.extent_blocks += 1;
        let range = node.child_range(i, range.clone());
        check_extents(image, below, range, Some(node.depth() - 1), seed, seen);
    }
}

fn check_xattrs(image: &Image, inode: &Inode<&[u8]>, seen: &mut Seen) {
    let area = inode.xattr_bytes().unwrap_or(&[]);
    if let Some(region) = XattrRegion::in_inode(area).expect("xattr area") {
        assert_eq!(region.verify_hashes(), Ok(()));
        seen.xattrs += region.entries().count();
    }
    let at = inode.file_acl(&image.rules);
    if at != PhysBlock(0) {
        let block = image.block(at);
        if image.sb.has_metadata_csum() {
            assert_eq!(verify_block_checksum(image.sb.seed(), at, block), Ok(()));
        }
        let region = XattrRegion::block(block).expect("xattr block");
        assert_eq!(region.verify_hashes(), Ok(()));
        seen.xattrs += region.entries().count();
        seen.xattr_blocks += 1;
    }
}

struct Directory<'a> {
    image: &'a Image,
    blocks: Vec<PhysBlock>,
    seed: Option<InodeSeed>,
    hasher: Option<DirHasher>,
}

fn check_directory(image: &Image, ino: Ino, seed: Option<InodeSeed>, seen: &mut Seen) {
    let blocks: Vec<PhysBlock> = image.blocks_of(ino).into_iter().map(|(_, at)| at).collect();
    let mut dir = Directory {
        image,
        blocks,
        seed,
        hasher: None,
    };
    if !image.inode(ino).flags().contains(InodeFlags::INDEX) {
        for at in &dir.blocks {
            dir.check_leaf(*at, 0..1 << 32, seen);
        }
        return;
    }
    let root = DxBlock::new(image.block(dir.blocks[0]), DxPlace::Root, seed.is_some());
    let root = root.expect("index root");
    dir.hasher = Some(DirHasher::new(root.hash_version(), &image.sb).expect("hash"));
    dir.check_index(&root, root.levels(), 0..1 << 32, seen);
}

impl Directory<'_> {
    fn check_index(&self, dx: &DxBlock<&[u8]>, levels: u8, range: Range<u64>, seen: &mut Seen) {
        assert_eq!(dx.validate(), Ok(()));
        if let Some(seed) = self.seed {
            assert_eq!(dx.verify_checksum(seed), Ok(()));
        }
        seen.dx_blocks += 1;
        let entries: Vec<_> = dx.entries().collect();
        for (i, entry) in entries.iter().enumerate() {
            let from = if i == 0 {
                range.start
            } else {
                u64::from(entry.hash & !1)
            };
            let next = entries.get(i + 1);
            // A hash that continues in the next block may also end this one.
            let to = next.map_or(range.end, |n| {
                u64::from(n.hash & !1) + u64::from(n.hash & 1)
            });
            let LogicalBlock(block) = entry.block;
            let at = self.blocks[block as usize];
            if levels == 0 {
                self.check_leaf(at, from..to, seen);
            } else {
                let below = DxBlock::new(self.image.block(at), DxPlace::Node, self.seed.is_some());
                self.check_index(&below.expect("index node"), levels - 1, from..to, seen);
            }
        }
    }

    fn check_leaf(&self, at: PhysBlock, range: Range<u64>, seen: &mut Seen) {
        let block = DirBlock::new(self.image.block(at), self.image.dir_rules).expect("size");
        assert_eq!(block.validate(), Ok(()));
        if let Some(seed) = self.seed {
            assert_eq!(block.verify_checksum(seed), Ok(()));
        }
        seen.leaves += 1;
        for entry in block.entries().flatten().filter(|e| e.is_used()) {
            let target = self.image.inode(entry.ino);
            if self.image.dir_rules.has_filetype {
                assert_eq!(entry.entry_type.kind(), target.kind());
            }
            seen.names += 1;
            if let Some(hasher) = self.hasher {
                let hash = u64::from(hasher.hash(entry.name).major);
                assert!(
                    range.contains(&hash),
                    "{hash:#x} of {:?} in {range:x?}",
                    entry.name
                );
            }
        }
    }
}

/// Superblock copies and descriptor blocks must lie where dumpe2fs says.
fn check_places(image: &Image) {
    let text = run_ok("dumpe2fs", &[&image.path.to_string_lossy()], &[0]);
    let features = text
        .lines()
        .find_map(|l| l.strip_prefix("Filesystem features:"));
    let mut theirs: Vec<&str> = features.expect("features").split_whitespace().collect();
    let mut ours = image.sb.feature_names();
    theirs.sort_unstable();
    ours.sort_unstable();
    assert_eq!(ours, theirs);

    let number = |line: &str, mark: &str| -> Option<u64> {
        let rest = line.split_once(mark)?.1;
        rest.split(|c: char| !c.is_ascii_digit())
            .next()?
            .parse()
            .ok()
    };
    let supers: Vec<u64> = text
        .lines()
        .filter_map(|l| number(l, " superblock at "))
        .collect();
    let geo = &image.geo;
    let mut expected = vec![geo.super_block().0];
    expected.extend(geo.backup_groups().map(|g| geo.group_first_block(g).0));
    assert_eq!(supers, expected);
    // "Group descriptors at 1-2" or, with meta_bg, "Group descriptor at 8194".
    let mut theirs: Vec<u64> = Vec::new();
    for line in text.lines() {
        if let Some(first) = number(line, "roup descriptors at ") {
            let last = number(
                line.split_once("roup descriptors at ").expect("found").1,
                "-",
            );
            theirs.extend(first..=last.unwrap_or(first));
        }
        theirs.extend(number(line, "roup descriptor at "));
    }
    let indexes = 0..geo.desc_blocks;
    let copies = indexes.flat_map(|i| geo.desc_block_copies(i)).map(|b| b.0);
    let mut ours: Vec<u64> = copies.collect();
    ours.sort_unstable();
    theirs.sort_unstable();
    assert_eq!(ours, theirs);
}

fn check(args: &[&str], size: &str) -> Seen {
    let image = Image::make(args, size, 1500);
    let big = "v".repeat(500);
    let set = |name: &str, value: &str| format!("ea_set /whole user.{name} {value}");
    let commands = [
        set("small", "1"),
        set("big", &big),
        set("gr\u{fc}n", "x"),
        set("more", "1234"),
    ];
    image.debugfs(&commands.each_ref().map(String::as_str));
    let image = image.reopen();
    let mut seen = Seen::default();
    check_places(&image);
    check_groups(&image, &mut seen);
    for ino in image.used_inodes() {
        check_inode(&image, ino, &mut seen);
    }
    println!("{args:?}: {seen:?}");
    assert!(
        seen.bitmaps >= 2 && seen.inodes > 1500 && seen.leaves > 10,
        "{seen:?}"
    );
    assert!(seen.names > 1500 && seen.dx_blocks >= 1, "{seen:?}");
    assert!(
        seen.xattrs >= 4 && seen.xattr_blocks >= 1 && seen.fast_symlinks >= 1,
        "{seen:?}"
    );
    seen
}

#[test]
fn ext4_as_shipped() {
    for block in ["1024", "2048", "4096"] {
        assert!(check(&["-t", "ext4", "-b", block], "64M").extent_blocks > 0);
    }
}

#[test]
fn ext4_upstream_defaults() {
    let args = ["-t", "ext4", "-O", "metadata_csum_seed,orphan_file"];
    assert!(check(&args, "64M").extent_blocks > 0);
    let image = Image::make(&args, "64M", 0);
    let ino = Ino(image.sb.orphan_file_inum());
    let inode = image.inode(ino);
    let seed = inode.seed(&image.rules, ino).expect("metadata_csum");
    let blocks = image.blocks_of(ino);
    assert!(!blocks.is_empty());
    for (_, at) in blocks {
        let block = OrphanBlock::new(image.block(at)).expect("orphan block");
        assert_eq!(block.verify_checksum(seed, at), Ok(()));
        assert_eq!(block.orphans().count(), 0);
    }
}

#[test]
fn ext2_and_ext3() {
    for kind in ["ext2", "ext3"] {
        for block in ["1024", "4096"] {
            let seen = check(&["-t", kind, "-b", block], "64M");
            assert_eq!(seen.extent_blocks, 0);
        }
    }
}

#[test]
fn older_and_narrower() {
    check(&["-t", "ext4", "-O", "^metadata_csum,uninit_bg"], "64M");
    check(
        &[
            "-t",
            "ext4",
            "-O",
            "^metadata_csum,uninit_bg,^64bit",
            "-b",
            "1024",
        ],
        "64M",
    );
    check(&["-t", "ext4", "-O", "^64bit"], "64M");
    check(&["-t", "ext2", "-O", "^filetype", "-I", "128"], "64M");
}

#[test]
fn index_of_two_levels() {
    let image = Image::make(&["-t", "ext4", "-b", "1024", "-N", "20000"], "128M", 9000);
    let large = image.lookup("large");
    let mut seen = Seen::default();
    check_inode(&image, large, &mut seen);
    assert!(seen.dx_blocks > 2 && seen.names >= 9000, "{seen:?}");
}

#[test]
fn other_hashes() {
    for hash in ["legacy", "half_md4", "tea"] {
        for flag in ["", "-U"] {
            let image = Image::make(&["-t", "ext4", "-b", "1024"], "64M", 0);
            let path = image.path.to_string_lossy().into_owned();
            run_ok("tune2fs", &["-E", &format!("hash_alg={hash}"), &path], &[0]);
            if flag == "-U" {
                image.debugfs(&["set_super_value flags 2"]);
            } else {
                image.debugfs(&["set_super_value flags 1"]);
            }
            let tree = image.dir.path().join("tree");
            std::fs::create_dir(tree.join("d")).expect("dir");
            let mut commands = vec!["mkdir /d".to_owned()];
            commands.extend(
                (0..300).map(|i| format!("symlink /d/n\u{e9}{i}-\u{fc}{} x", "y".repeat(i % 70))),
            );
            image.debugfs(&commands.iter().map(String::as_str).collect::<Vec<_>>());
            run_ok("e2fsck", &["-fyD", &path], &[0, 1]);
            let image = image.reopen();
            let mut seen = Seen::default();
            check_inode(&image, image.lookup("d"), &mut seen);
            assert!(
                seen.dx_blocks == 1 && seen.names >= 300,
                "{hash}{flag} {seen:?}"
            );
        }
    }
}

#[test]
fn rarer_layouts() {
    for features in [
        "meta_bg,^resize_inode",
        "sparse_super2",
        "^sparse_super,^resize_inode",
        "^flex_bg",
        "meta_bg,^resize_inode,^64bit,^metadata_csum",
        "bigalloc",
        "^has_journal",
    ] {
        for block in ["1024", "4096"] {
            // With 1 KiB blocks, 25 groups: more than a descriptor block describes.
            let image = Image::make(&["-t", "ext4", "-O", features, "-b", block], "200M", 0);
            check_places(&image);
            let mut seen = Seen::default();
            check_groups(&image, &mut seen);
            for ino in image.used_inodes() {
                check_inode(&image, ino, &mut seen);
            }
            assert!(
                seen.bitmaps > 1 && seen.inodes >= 11,
                "{features} {block} {seen:?}"
            );
        }
    }
}

#[test]
fn meta_groups_hold_three_copies() {
    let args = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "meta_bg,^resize_inode,64bit",
    ];
    let image = Image::make(&args, "300M", 0);
    assert_eq!(image.geo.desc_position(GroupNo(17)), (1, 64));
    assert_eq!(image.geo.desc_block_copies(1).len(), 3);
}
