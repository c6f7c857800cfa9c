//! The kernel's driver mounts what batches made, shows the same, and goes on with it. Needs root
//! and a loop device; does nothing without.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::apply_world::{self, driver::Driver};
use crate::apply_world::{World, assert_clean, make_image, open, pattern};
use crate::kernel_mount::KernelMount;
use finefs_namespace::{Error, ExtentState, FileKind, Ino, Store};

fn compare(world: &BTreeMap<Ino, apply_world::Node>, ino: Ino, path: &Path, block_size: u64) {
    let node = &world[&ino];
    let meta =
        fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let expected = &node.attributes;
    assert_eq!(meta.ino(), ino.0);
    assert_eq!(
        meta.mode(),
        expected.kind.mode_bits() | expected.permissions,
        "{}",
        path.display()
    );
    assert_eq!((meta.uid(), meta.gid()), (expected.uid, expected.gid));
    assert_eq!(
        meta.nlink(),
        u64::from(expected.link_count),
        "{}",
        path.display()
    );
    let modified = expected.times.modified;
    assert_eq!(
        (meta.mtime(), meta.mtime_nsec()),
        (modified.seconds(), i64::from(modified.nanoseconds()))
    );
    match expected.kind {
        FileKind::Directory => {
            let mut names: Vec<Vec<u8>> = fs::read_dir(path)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().as_bytes().to_vec())
                .collect();
            names.sort();
            assert!(
                names.iter().eq(node.entries.keys()),
                "names in {}",
                path.display()
            );
            for (name, (ino, _)) in &node.entries {
                // A look-up by name goes through the index, the listing above does not.
                compare(world, *ino, &path.join(OsStr::from_bytes(name)), block_size);
            }
        }
        FileKind::Regular => {
            let content = fs::read(path).unwrap();
            assert_eq!(content.len() as u64, expected.size_bytes);
            for (logical, block) in (0..).zip(content.chunks(block_size as usize)) {
                let is_written = matches!(node.map.get(&logical), Some((_, ExtentState::Written)));
                let right = match is_written {
                    true => pattern(ino, logical, block_size)[..block.len()] == *block,
                    false => block.iter().all(|byte| *byte == 0),
                };
                assert!(right, "block {logical} of {}", path.display());
            }
        }
        FileKind::Symlink => {
            let target = fs::read_link(path).unwrap();
            assert_eq!(
                target.as_os_str().as_bytes(),
                node.target.as_deref().unwrap()
            );
        }
        FileKind::BlockDevice => assert!(meta.file_type().is_block_device()),
        FileKind::CharDevice => assert!(meta.file_type().is_char_device()),
        FileKind::Fifo => assert!(meta.file_type().is_fifo()),
        FileKind::Socket => assert!(meta.file_type().is_socket()),
    }
    if matches!(expected.kind, FileKind::BlockDevice | FileKind::CharDevice) {
        assert_eq!(meta.rdev(), expected.device);
    }
}

fn the_kernel_agrees(arguments: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = make_image(directory.path(), arguments, "64M");
    let mut driver = Driver::new(World::new(open(&path)), 5);
    let root = driver.world.root;
    let large = driver
        .world
        .create(root, b"large", FileKind::Directory, None)
        .unwrap();
    let file = driver
        .world
        .create(large, b"file", FileKind::Regular, None)
        .unwrap();
    for i in 0..9_000 {
        if i % 1_000 == 0 {
            driver.world.commit().unwrap();
        }
        driver
            .world
            .link(file, large, format!("entry number {i}").as_bytes())
            .unwrap();
    }
    for _ in 0..5 {
        for _ in 0..300 {
            match driver.step_outside(large) {
                Ok(()) | Err(Error::NoSpace) => {}
                Err(error) => panic!("{error}"),
            }
        }
        driver.world.commit().unwrap();
    }
    while let Some(ino) = driver
        .world
        .nodes
        .iter()
        .find(|(_, n)| n.is_open)
        .map(|(ino, _)| *ino)
    {
        driver.world.close_orphan(ino);
    }
    driver.world.commit().unwrap();
    let world = driver.world.check(&path);
    let block_size = u64::from(world.store.geometry().block_size_bytes);
    world.store.close().unwrap();
    let nodes = world.nodes.clone();
    drop(world);
    let place = directory.path().join("mount");
    let Some(mount) = KernelMount::new(&path, &place, "loop,ro,noatime") else {
        return;
    };
    compare(&nodes, root, &place, block_size);
    drop(mount);
    let Some(mount) = KernelMount::new(&path, &place, "loop,rw") else {
        return;
    };
    for i in 0..9_000 {
        if i % 2 == 0 {
            fs::remove_file(place.join(format!("large/entry number {i}"))).unwrap();
        }
    }
    for i in 0..3_000 {
        fs::write(
            place.join(format!("large/by the kernel {i}")),
            [i as u8; 100],
        )
        .unwrap();
    }
    drop(mount);
    assert_clean(&path);
    // And back again.
    let mut world = World::new(open(&path));
    assert_eq!(world.nodes[&large].entries.len(), 1 + 4_500 + 3_000);
    for i in 0..3_000 {
        world.unlink(large, format!("by the kernel {i}").as_bytes(), false);
    }
    world.commit().unwrap();
    world.store.close().unwrap();
    drop(world);
    assert_clean(&path);
}

#[test]
fn the_kernel_agrees_on_ext4() {
    the_kernel_agrees("-t ext4 -b 1024");
    the_kernel_agrees("-t ext4 -b 4096 -O metadata_csum_seed,orphan_file");
}

#[test]
fn the_kernel_agrees_on_ext3() {
    the_kernel_agrees("-t ext3 -b 1024 -J size=4 -I 256");
}

#[test]
fn the_kernel_agrees_on_ext2() {
    the_kernel_agrees("-t ext2 -b 1024 -I 256");
}
