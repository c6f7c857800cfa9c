//! How long batches take to apply. Run with `--release -- --ignored --nocapture`.

mod apply_world;

use std::time::Instant;

use apply_world::{World, make_image, open};
use finefs_namespace::{ExtentState, FileKind};

fn measure(arguments: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = make_image(directory.path(), arguments, "512M");
    let mut world = World::new(open(&path));
    let root = world.root;
    let dir = world.create(root, b"d", FileKind::Directory, None).unwrap();
    world.commit().unwrap();
    for round in 0..3 {
        for i in 0..5_000 {
            let name = format!("file {round} {i}");
            let ino = world.create(dir, name.as_bytes(), FileKind::Regular, None).unwrap();
            world.fill(ino, 0, 2, ExtentState::Written).unwrap();
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
    world.check(&path);
}

#[test]
#[ignore = "measures"]
fn batches_of_5000() {
    for arguments in ["-t ext4 -b 4096", "-t ext4 -b 1024", "-t ext2 -b 4096", "-t ext4 -O ^dir_index"] {
        measure(arguments);
    }
}
