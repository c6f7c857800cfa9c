//! How long batches take to apply. Run with `--release -- --ignored --nocapture`.

use std::sync::Arc;
use std::time::Instant;

use crate::apply_world::{World, make_image, open_on};
use finefs_block::MemoryDevice;
use finefs_namespace::{ExtentState, FileKind};

fn measure(arguments: &str) {
    let directory = tempfile::tempdir().unwrap();
    // In memory, so that applying is measured and not the disk.
    let path = make_image(directory.path(), arguments, "256M");
    let device = MemoryDevice::from_bytes(&std::fs::read(&path).unwrap());
    let mut world = World::new(open_on(Arc::new(device)));
    let root = world.root;
    let dir = world.create(root, b"d", FileKind::Directory, None).unwrap();
    world.commit().unwrap();
    for round in 0..3 {
        for i in 0..5_000 {
            let name = format!("file {round} {i}");
            let ino = world
                .create(dir, name.as_bytes(), FileKind::Regular, None)
                .unwrap();
            world.fill(ino, 0, 1, ExtentState::Written).unwrap();
        }
        let batch = world.batch();
        let start = Instant::now();
        world.commit_batch(batch).unwrap();
        println!("{arguments}: 5,000 creates: {:?}", start.elapsed());
    }
    for i in 0..5_000 {
        world.unlink(dir, format!("file 1 {i}").as_bytes(), false);
    }
    let batch = world.batch();
    let start = Instant::now();
    world.commit_batch(batch).unwrap();
    println!("{arguments}: 5,000 unlinks: {:?}", start.elapsed());
}

#[test]
#[ignore = "measures"]
fn batches_of_5000() {
    for arguments in [
        "-t ext4 -b 4096",
        "-t ext4 -b 1024",
        "-t ext2 -b 4096",
        "-t ext4 -O ^dir_index",
    ] {
        measure(arguments);
    }
}
