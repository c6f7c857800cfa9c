//! Large objects and full images.

use std::process::Command;

use crate::apply_world::{World, assert_clean, make_image, open, sized};
use finefs_namespace::{BlockNo, Error, ExtentState, FileKind, Goal, Ino, LogicalBlock, Store};

/// What debugfs answers.
fn debugfs(path: &std::path::Path, request: &str) -> String {
    let output = Command::new("debugfs")
        .args(["-R", request])
        .arg(path)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Creates, then removes most of, then adds to the names of one directory.
fn many_names(
    arguments: &str,
    count: u32,
    per_batch: u32,
) -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = make_image(directory.path(), arguments, "256M");
    let mut world = World::new(open(&path));
    let root = world.root;
    let dir = world
        .create(root, b"many", FileKind::Directory, None)
        .unwrap();
    let first = world
        .create(dir, b"first", FileKind::Regular, None)
        .unwrap();
    for i in 0..count {
        // Links: there are not as many inodes.
        if i % 60_000 == 0 && i > 0 {
            world.commit().unwrap();
        }
        let name = format!("name number {i}");
        world.link(first, dir, name.as_bytes()).unwrap();
        if i % per_batch == 0 {
            world.commit().unwrap();
        }
    }
    world.commit().unwrap();
    let mut world = world.check(&path);
    for i in (0..count).filter(|i| i % 10 != 0) {
        world.unlink(dir, format!("name number {i}").as_bytes(), false);
        if i % per_batch == 0 {
            world.commit().unwrap();
        }
    }
    world.commit().unwrap();
    let mut world = world.check(&path);
    for i in 0..count / 5 {
        world
            .link(first, dir, format!("another {i}").as_bytes())
            .unwrap();
    }
    world.rename((root, b"many"), (root, b"renamed")).unwrap();
    world.commit().unwrap();
    world.check(&path);
    (directory, path)
}

/// `htree_dump` tells so many levels of index above the leaves, the root's not counted.
fn assert_levels_of_index(dump: &str, levels: u32) {
    let line = format!("Indirect levels: {levels}");
    assert!(dump.contains(&line), "{}", &dump[..dump.len().min(1000)]);
}

#[test]
fn two_levels_of_index() {
    let count = sized(12_000, 50_000);
    let (_directory, path) = many_names("-t ext4 -b 1024 -N 1000", count, 7_000);
    let dump = debugfs(&path, "htree_dump /renamed");
    assert_levels_of_index(&dump, 1);
}

#[test]
fn two_levels_of_index_without_checksums() {
    let count = sized(12_000, 40_000);
    let (_directory, path) = many_names("-t ext3 -b 1024 -N 1000 -J size=4", count, count);
    let dump = debugfs(&path, "htree_dump /renamed");
    assert_levels_of_index(&dump, 1);
}

#[test]
fn one_level_of_index() {
    many_names("-t ext4 -b 4096 -N 1000", sized(8_000, 20_000), 3_000);
}

#[test]
fn linear_directory() {
    let (count, per_batch) = sized((8_000, 1_600), (50_000, 10_000));
    many_names("-t ext4 -b 1024 -N 1000 -O ^dir_index", count, per_batch);
}

/// So many long names that two levels cannot hold them: three to a block of 1 KiB, so that two
/// levels hold about 20,000.
fn many_long_names(arguments: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = make_image(directory.path(), arguments, "256M");
    let mut world = World::new(open(&path));
    let root = world.root;
    let dir = world.create(root, b"d", FileKind::Directory, None).unwrap();
    let file = world
        .create(dir, b"first", FileKind::Regular, None)
        .unwrap();
    for i in 0..sized(30_000, 45_000) {
        let name = format!("{i:0250}");
        world.link(file, dir, name.as_bytes()).unwrap();
        if i % 5_000 == 0 {
            world.commit().unwrap();
        }
    }
    world.commit().unwrap();
    let mut world = world.check(&path);
    let dump = debugfs(&path, "htree_dump /d");
    world.unlink(dir, format!("{:0250}", 17).as_bytes(), false);
    world.link(file, dir, b"another").unwrap();
    world.commit().unwrap();
    world.check(&path);
    (directory, dump)
}

/// A full index becomes a plain directory, and no name is lost.
#[test]
fn index_that_cannot_grow() {
    let (_directory, dump) = many_long_names("-t ext4 -b 1024 -N 1000");
    assert!(
        !dump.contains("Indirect levels"),
        "still indexed: {}",
        &dump[..dump.len().min(300)]
    );
}

#[test]
fn three_levels_of_index() {
    let (_directory, dump) = many_long_names("-t ext4 -b 1024 -N 1000 -O large_dir");
    assert_levels_of_index(&dump, 2);
}

#[test]
fn more_subdirectories_than_links() {
    let directory = tempfile::tempdir().unwrap();
    let path = make_image(directory.path(), "-t ext4 -b 1024 -N 70000", "256M");
    let mut world = World::new(open(&path));
    let root = world.root;
    let dir = world.create(root, b"d", FileKind::Directory, None).unwrap();
    for i in 0..65_050 {
        world
            .create(dir, format!("{i}").as_bytes(), FileKind::Directory, None)
            .unwrap();
    }
    world.commit().unwrap();
    let world = world.check(&path);
    assert_eq!(
        world.store.load_inode(dir).unwrap().attributes.link_count,
        1
    );
    world.store.close().unwrap();
    drop(world);
    // Links that are not counted stay so when there are fewer again.
    let mut world = World::new(open(&path));
    for i in 0..500 {
        world.unlink(dir, format!("{i}").as_bytes(), false);
    }
    world.commit().unwrap();
    assert_eq!(
        world.store.load_inode(dir).unwrap().attributes.link_count,
        1
    );
    world.store.close().unwrap();
    drop(world);
    assert_clean(&path);
}

/// Files of single blocks with holes between them: the deepest trees for their number of blocks.
fn many_extents(arguments: &str, count: u64) {
    let directory = tempfile::tempdir().unwrap();
    let path = make_image(directory.path(), arguments, "64M");
    let mut world = World::new(open(&path));
    let root = world.root;
    let forward = world
        .create(root, b"forward", FileKind::Regular, None)
        .unwrap();
    let backward = world
        .create(root, b"backward", FileKind::Regular, None)
        .unwrap();
    let mixed = world
        .create(root, b"mixed", FileKind::Regular, None)
        .unwrap();
    for i in 0..count {
        world.fill(forward, i * 2, 1, ExtentState::Written).unwrap();
        world
            .fill(backward, (count - i) * 2, 1, ExtentState::Written)
            .unwrap();
        world
            .fill(mixed, (i * 7919) % count * 2, 1, ExtentState::Written)
            .unwrap();
        if i % 700 == 0 {
            world.commit().unwrap();
        }
    }
    world.commit().unwrap();
    let mut world = world.check(&path);
    // Holes are filled, so extents merge where blocks happen to be adjacent; then all goes away
    // from the middle, the start and the end.
    world.fill(forward, 0, count, ExtentState::Written).unwrap();
    world.unmap(backward, count / 2, count).unwrap();
    for i in (0..count).step_by(3) {
        world.unmap(mixed, i * 2, 1).unwrap();
    }
    world.commit().unwrap();
    let mut world = world.check(&path);
    world.unmap(forward, 0, count * 2 - 5).unwrap();
    world.truncate(backward, 3).unwrap();
    world.unlink(root, b"mixed", false);
    world.commit().unwrap();
    world.check(&path);
}

#[test]
fn extent_tree_of_two_levels() {
    many_extents("-t ext4 -b 1024", 1_500);
}

#[test]
fn extent_tree_without_checksums() {
    many_extents("-t ext4 -b 1024 -O ^metadata_csum", 1_200);
}

#[test]
fn block_map_with_many_holes() {
    many_extents("-t ext3 -b 1024 -J size=4", 1_500);
}

/// Blocks at the borders of all levels of a block map.
#[test]
fn block_map_of_three_levels() {
    let directory = tempfile::tempdir().unwrap();
    let path = make_image(directory.path(), "-t ext2 -b 1024", "16M");
    let mut world = World::new(open(&path));
    let root = world.root;
    let ino = world
        .create(root, b"sparse", FileKind::Regular, None)
        .unwrap();
    let p = 256;
    for border in [
        12,
        12 + p,
        12 + p + p * p,
        12 + p + p * p + 5 * p * p,
        12 + p + p * p + 200 * p * p,
    ] {
        world
            .fill(ino, border - 3, 6, ExtentState::Written)
            .unwrap();
    }
    world.commit().unwrap();
    let mut world = world.check(&path);
    world.unmap(ino, 12 + p, p * p + 1).unwrap();
    world.commit().unwrap();
    let mut world = world.check(&path);
    world.truncate(ino, 5).unwrap();
    world
        .fill(ino, 12 + p + p * p, 700, ExtentState::Written)
        .unwrap();
    world.commit().unwrap();
    let mut world = world.check(&path);
    world.unlink(root, b"sparse", false);
    world.commit().unwrap();
    let world = world.check(&path);
    assert_eq!(world.store.statfs().blocks_free, free_blocks(&path));
}

fn free_blocks(path: &std::path::Path) -> u64 {
    let output = Command::new("dumpe2fs")
        .arg("-h")
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text
        .lines()
        .find(|line| line.starts_with("Free blocks:"))
        .unwrap();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

/// Fills an image to the last block and inode; nothing half-done is left, and all comes back.
fn fill_up(arguments: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = make_image(directory.path(), arguments, "16M");
    let mut world = World::new(open(&path));
    let root = world.root;
    let before = world.store.statfs();
    let mut files: Vec<Ino> = Vec::new();
    let mut failures = 0;
    let mut number = 0;
    while failures < 20 {
        number += 1;
        let outcome = world
            .create(
                root,
                format!("file {number}").as_bytes(),
                FileKind::Regular,
                None,
            )
            .and_then(|ino| {
                files.push(ino);
                world.fill(ino, number % 3 * 5, 1 + number % 50, ExtentState::Written)
            });
        match outcome {
            Ok(()) => {}
            Err(Error::NoSpace) => {
                failures += 1;
                world.commit().unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
    world.commit().unwrap();
    let full = world.store.statfs();
    assert!(
        full.blocks_available < 20 || full.inodes_free == 0,
        "{full:?}"
    );
    let mut world = world.check(&path);
    let names: Vec<Vec<u8>> = world.nodes[&root]
        .entries
        .keys()
        .filter(|name| name.starts_with(b"file"))
        .cloned()
        .collect();
    for name in &names {
        world.unlink(root, name, false);
    }
    // What is freed is not there before the commit.
    assert!(world.store.statfs().blocks_available <= full.blocks_available);
    world.commit().unwrap();
    let after = world.store.statfs();
    assert_eq!(after.inodes_free, before.inodes_free);
    // The directory keeps the blocks that it grew to.
    let size = world.store.load_inode(root).unwrap().attributes.size_bytes;
    let kept = size / u64::from(before.block_size_bytes);
    assert!(
        after.blocks_free + kept + 2 >= before.blocks_free,
        "{before:?} {after:?}"
    );
    world.check(&path);
}

#[test]
fn full_ext4() {
    fill_up("-t ext4 -b 1024 -O ^has_journal");
}

#[test]
fn full_ext4_without_reserve() {
    fill_up("-t ext4 -b 4096 -m 0 -O ^has_journal");
}

#[test]
fn full_ext2() {
    fill_up("-t ext2 -b 1024");
}

#[test]
fn out_of_inodes() {
    fill_up("-t ext4 -b 1024 -O ^has_journal -N 64");
}

/// Orphans on the device are noted so that e2fsck frees them.
fn orphans_are_noted(arguments: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = make_image(directory.path(), arguments, "16M");
    let mut world = World::new(open(&path));
    let root = world.root;
    let mut open_files = Vec::new();
    for i in 0..40u64 {
        let name = format!("file {i}");
        let ino = world
            .create(root, name.as_bytes(), FileKind::Regular, None)
            .unwrap();
        world.fill(ino, 0, 3, ExtentState::Written).unwrap();
        if i % 4 == 0 {
            world.commit().unwrap();
        }
        world.unlink(root, name.as_bytes(), true);
        open_files.push(ino);
        if i % 3 == 0 {
            world.commit().unwrap();
        }
        if i % 5 == 4 {
            // Not the newest, not the oldest.
            let ino = open_files.remove(open_files.len() / 2);
            world.close_orphan(ino);
        }
    }
    world.commit().unwrap();
    // As after a crash: not closed.
    drop(world);
    let output = Command::new("e2fsck")
        .args(["-f", "-y"])
        .arg(&path)
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let cleared = report
        .lines()
        .filter(|line| line.contains("orphaned inode"))
        .count();
    assert_eq!(cleared, open_files.len(), "{report}");
    // Nothing but that was wrong.
    assert!(
        !report.contains("Fix?") && !report.contains("Clear?"),
        "{report}"
    );
    assert_clean(&path);
}

#[test]
fn orphan_list() {
    orphans_are_noted("-t ext4 -b 1024 -O ^has_journal");
    orphans_are_noted("-t ext2 -b 1024");
}

/// Attributes that need a block, one that others share, and more than fits.
#[test]
fn shared_attribute_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let path = make_image(directory.path(), "-t ext4 -b 1024 -I 128", "16M");
    let mut world = World::new(open(&path));
    let root = world.root;
    let one = world.create(root, b"one", FileKind::Regular, None).unwrap();
    let two = world.create(root, b"two", FileKind::Regular, None).unwrap();
    world.set_xattr(one, b"user.a", Some(b"value")).unwrap();
    world.commit().unwrap();
    let mut world = world.check(&path);
    assert_eq!(
        world.set_xattr(one, b"user.b", Some(&[7; 1000])),
        Err(Error::NoSpace)
    );
    world.set_xattr(one, b"user.b", Some(&[7; 800])).unwrap();
    world.set_xattr(two, b"user.b", Some(b"")).unwrap();
    world.set_xattr(two, b"trusted.t", Some(b"x")).unwrap();
    world.set_xattr(two, b"security.s", Some(b"x")).unwrap();
    let acl = [
        &[2, 0, 0, 0][..],
        &[1, 0, 6, 0, 255, 255, 255, 255],
        &[2, 0, 4, 0, 0xe8, 3, 0, 0],
        &[4, 0, 4, 0, 255, 255, 255, 255],
        &[16, 0, 4, 0, 255, 255, 255, 255],
        &[32, 0, 0, 0, 255, 255, 255, 255],
    ]
    .concat();
    world
        .set_xattr(two, b"system.posix_acl_access", Some(&acl))
        .unwrap();
    world.commit().unwrap();
    let mut world = world.check(&path);
    world.set_xattr(one, b"user.a", None).unwrap();
    world.set_xattr(one, b"user.b", None).unwrap();
    world.commit().unwrap();
    let mut world = world.check(&path);
    world.unlink(root, b"two", false);
    world.commit().unwrap();
    world.check(&path);
}

/// Data goes where the goal is, and new files do not interleave.
#[test]
fn files_are_contiguous() {
    let directory = tempfile::tempdir().unwrap();
    let path = make_image(directory.path(), "-t ext4 -b 4096", "256M");
    let mut world = World::new(open(&path));
    let root = world.root;
    let ino = world
        .create(root, b"large", FileKind::Regular, None)
        .unwrap();
    for i in 0..200 {
        world.fill(ino, i * 16, 16, ExtentState::Written).unwrap();
    }
    world.commit().unwrap();
    let extents = world.store.load_extents(ino).unwrap();
    assert!(extents.len() <= 2, "{extents:?}");
    let goal = Goal {
        block: BlockNo(30_000),
        logical: LogicalBlock(3_200),
    };
    let run = world.store.allocate_blocks(ino, Some(goal), 10).unwrap();
    assert_eq!((run.start, run.length), (BlockNo(30_000), 10));
    world.store.release_blocks(run);
    world.check(&path);
}
