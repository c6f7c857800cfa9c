//! Allocation and loads by several threads while batches are applied.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::apply_world::driver::Driver;
use crate::apply_world::{World, make_image, open};
use finefs_namespace::{Error, ExtentState, FileKind, Ino, Store};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Takes and gives back blocks and inodes; what is written to a block must still be there later.
fn allocate_and_release(store: &dyn Store, thread: u64, stop: &AtomicBool) {
    let mut random = StdRng::seed_from_u64(thread);
    let block_size = store.geometry().block_size_bytes as usize;
    let mut held: Vec<(finefs_namespace::BlockRun, u8)> = Vec::new();
    let mut inodes: Vec<Ino> = Vec::new();
    let mut buffer = vec![0; block_size];
    while !stop.load(Ordering::Relaxed) {
        if held.len() < 50 && random.random_range(0..5) < 3 {
            let parent = Ino(random.random_range(2..2000));
            match store.allocate_blocks(parent, None, random.random_range(1..10)) {
                Ok(run) => {
                    let mark: u8 = random.random();
                    store
                        .write(run.start, 0, &vec![mark; block_size * run.length as usize])
                        .unwrap();
                    held.push((run, mark));
                }
                Err(error) => assert_eq!(error, Error::NoSpace),
            }
        } else if !held.is_empty() {
            let (run, mark) = held.swap_remove(random.random_range(0..held.len()));
            for i in 0..run.length {
                store
                    .read(run.start, i * block_size as u64, &mut buffer)
                    .unwrap();
                assert!(
                    buffer.iter().all(|byte| *byte == mark),
                    "block {:?} was given twice",
                    run
                );
            }
            store.release_blocks(run);
        }
        match store.allocate_inode(Ino(random.random_range(2..2000)), FileKind::Regular) {
            Ok((ino, _)) => inodes.push(ino),
            Err(error) => assert_eq!(error, Error::NoSpace),
        }
        if inodes.len() > 20 {
            let ino = inodes.swap_remove(random.random_range(0..inodes.len()));
            store.release_inode(ino, FileKind::Regular);
        }
    }
    held.into_iter()
        .for_each(|(run, _)| store.release_blocks(run));
    inodes
        .into_iter()
        .for_each(|ino| store.release_inode(ino, FileKind::Regular));
}

#[test]
fn allocation_beside_commits() {
    let directory = tempfile::tempdir().unwrap();
    let path = make_image(directory.path(), "-t ext4 -b 1024", "64M");
    let mut world = World::new(open(&path));
    let root = world.root;
    // Objects that no batch changes are loaded all the time.
    let still = world
        .create(root, b"still", FileKind::Directory, None)
        .unwrap();
    for i in 0..300u64 {
        let name = format!("file {i}");
        let ino = world
            .create(still, name.as_bytes(), FileKind::Regular, None)
            .unwrap();
        if i % 10 == 0 {
            world.fill(ino, i, 3, ExtentState::Written).unwrap();
        }
    }
    world.commit().unwrap();
    let before = world.store.statfs();
    let store = world.store.clone();
    let entries = store.load_directory(still).unwrap().entries;
    let mut driver = Driver::new(world, 11);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (store, stop) = (&*store, &stop);
            scope.spawn(move || allocate_and_release(store, thread, stop));
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let found = store.load_directory(still).unwrap().entries;
                assert_eq!(found, entries);
                for entry in found.iter().step_by(7) {
                    assert_eq!(
                        store.load_inode(entry.ino).unwrap().attributes.ino,
                        entry.ino
                    );
                    store.load_extents(entry.ino).unwrap();
                }
            }
        });
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            for _ in 0..40 {
                match driver.step_outside(still) {
                    Ok(()) | Err(Error::NoSpace) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            driver.world.commit().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_ne!(store.statfs(), before);
    drop(store);
    driver.world.check(&path);
}
