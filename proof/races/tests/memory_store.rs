//! The memory store as a program may use it by itself: from several threads, on the same bytes.
//! What is read is then a mix of what was written; and the thread sanitizer (`xtask prove tsan`)
//! finds nothing.
//!
//! A program of its own, as the stress test of the locks: what the test harness does to order
//! things happens inside the standard library, which the sanitizer does not see.

use std::sync::Arc;
use std::thread;

use finefs_namespace::types::{BlockNo, Ino};
use finefs_namespace::{BlockRun, MemoryStore, Store};

const BLOCK_BYTES: usize = 4096;
const ROUNDS: u64 = 200;

fn main() {
    calls_on_the_same_bytes_mix();
    println!("stress calls_on_the_same_bytes_mix ... ok");
}

fn calls_on_the_same_bytes_mix() {
    let store = MemoryStore::new(1 << 20, 0o755, 0, 0).unwrap();
    let run = store.allocate_blocks(Ino(2), None, 2).unwrap();
    let (store, start) = (Arc::new(store), run.start);
    let mut threads = Vec::new();
    for writer in 1..=2_u8 {
        let store = Arc::clone(&store);
        threads.push(thread::spawn(move || {
            // Whole words, parts of words, and over the end of a block.
            let data = vec![writer; 1 + BLOCK_BYTES / 2];
            for round in 0..ROUNDS {
                store.write(start, round * 13 % 4096, &data).unwrap();
                store.write_blank(start, round % 64, &data[..9]).unwrap();
            }
        }));
    }
    for _ in 0..2 {
        let store = Arc::clone(&store);
        threads.push(thread::spawn(move || {
            let mut buffer = vec![9; 3 * BLOCK_BYTES / 2];
            for round in 0..ROUNDS {
                store.read(start, round * 7 % 4096, &mut buffer).unwrap();
                assert!(buffer.iter().all(|byte| *byte <= 2));
            }
        }));
    }
    for _ in 0..ROUNDS {
        store.write_zeros(run).unwrap();
        // Not its own to give back: their memory goes to the kernel while others use it.
        store.release_blocks(BlockRun {
            start: BlockNo(0),
            length: 256,
        });
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let (mut before, mut after) = (vec![0; 100], vec![0; 100]);
    store.read(start, 50, &mut before).unwrap();
    store.write(start, 53, &[7; 90]).unwrap();
    store.read(start, 50, &mut after).unwrap();
    assert_eq!(after[..3], before[..3]);
    assert_eq!(after[3..93], [7; 90]);
    assert_eq!(after[93..], before[93..]);
}
