//! Batches applied to damaged images: errors, but no panic, no hang, and no memory without bound.

use std::sync::Arc;

use crate::apply_world::driver::Driver;
use crate::apply_world::{World, make_image, open, sized};
use finefs_block::MemoryDevice;
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::Store;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// True for a block that holds something, but no data of a file (see `apply_world::pattern`).
fn is_metadata(block: &[u8]) -> bool {
    let word = |i: usize| u64::from_le_bytes(block[i * 8..i * 8 + 8].try_into().unwrap());
    block.iter().any(|byte| *byte != 0) && word(1) != word(0).wrapping_add(1)
}

fn damage(image: &mut [u8], random: &mut StdRng) {
    let blocks: Vec<usize> = (0..image.len() / 1024)
        .filter(|i| is_metadata(&image[i * 1024..(i + 1) * 1024]))
        .collect();
    for _ in 0..random.random_range(1..30) {
        let block = blocks[random.random_range(0..blocks.len())];
        let at = block * 1024 + random.random_range(0..1024);
        match random.random_range(0..4) {
            0 => image[at] ^= 1 << random.random_range(0..8),
            1 => image[at] = random.random(),
            2 => image[at] = 0,
            _ => {
                // A word of another place: numbers that look right.
                let from = blocks[random.random_range(0..blocks.len())] * 1024
                    + random.random_range(0..255) * 4;
                let at = at / 4 * 4;
                image.copy_within(from..from + 4, at);
            }
        }
    }
}

fn survives(arguments: &str) {
    let rounds = sized(40, 100);
    let directory = tempfile::tempdir().unwrap();
    let path = make_image(directory.path(), arguments, "8M");
    let mut driver = Driver::new(World::new(open(&path)), 3);
    for _ in 0..3 {
        for _ in 0..300 {
            let _ = driver.step();
        }
        driver.world.commit().unwrap();
    }
    let world = driver.world.check(&path);
    world.store.close().unwrap();
    let nodes = world.nodes.clone();
    drop(world);
    let image = std::fs::read(&path).unwrap();
    let (mut mounted, mut failed) = (0, 0);
    for seed in 0..rounds {
        let mut random = StdRng::seed_from_u64(seed);
        let mut bytes = image.clone();
        damage(&mut bytes, &mut random);
        let device = Arc::new(MemoryDevice::from_bytes(&bytes));
        let Ok(store) = ExtStore::open(device, &ExtOptions::default()) else {
            continue;
        };
        if store.geometry().is_read_only {
            continue;
        }
        mounted += 1;
        let mut world = World::resume(store, nodes.clone());
        world.is_damaged = true;
        let mut driver = Driver::new(world, seed);
        for _ in 0..3 {
            for _ in 0..60 {
                let _ = driver.step();
            }
            failed += u64::from(driver.world.commit().is_err());
        }
        let _ = driver.world.store.close();
    }
    assert!(
        mounted > rounds / 4,
        "{mounted} of {rounds} could be mounted"
    );
    assert!(failed > 0, "no damage was met");
}

#[test]
fn damaged_ext2() {
    survives("-t ext2 -b 1024 -N 512");
}

#[test]
fn damaged_ext4_without_checksums() {
    survives("-t ext4 -b 1024 -N 512 -O ^metadata_csum,^has_journal");
}

#[test]
fn damaged_ext4() {
    survives("-t ext4 -b 1024 -N 512 -O ^has_journal");
}
