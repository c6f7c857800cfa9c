//! Direct I/O beside what goes through the kernel's cache. These tests need root and FUSE.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::aio::Queue;
use crate::aligned::Aligned;
use crate::support::*;

/// What one request writes: each block of the file then begins with a new generation.
const LENGTH: usize = 640 << 10;
const BLOCK: usize = 4096;
/// How long there is something to see. Stale reads came within 0.03 s.
const DURATION: Duration = Duration::from_secs(1);

fn generation_in(block: &[u8]) -> u64 {
    u64::from_ne_bytes(block[..8].try_into().unwrap())
}

/// Reads the file over and over; none may give an older generation than the one that was
/// complete when it began.
fn read_while(path: &Path, complete: &AtomicU64, ends: &AtomicBool) {
    let file = File::open(path).unwrap();
    let mut bytes = vec![0; LENGTH];
    while !ends.load(Ordering::Relaxed) {
        let least = complete.load(Ordering::Acquire);
        file.read_exact_at(&mut bytes, 0).unwrap();
        for (index, block) in bytes.chunks(BLOCK).enumerate() {
            let found = generation_in(block);
            assert!(found >= least, "block {index}: {found} after {least}");
        }
    }
}

/// At least some writes. The generation that is complete goes up with each that io_getevents(2) has
/// told of.
fn write_until(path: &Path, complete: &AtomicU64, end: Instant) {
    let mut options = OpenOptions::new();
    let options = options.write(true).custom_flags(libc::O_DIRECT);
    let file = options.open(path).unwrap();
    let mut queue = Queue::new(file).unwrap();
    let mut generation = 0_u64;
    while Instant::now() < end || generation < 10 {
        generation += 1;
        let mut bytes = Aligned::new(LENGTH);
        for block in bytes.bytes_mut().chunks_mut(BLOCK) {
            block[..8].copy_from_slice(&generation.to_ne_bytes());
        }
        assert_eq!(queue.write(&bytes, 0).unwrap(), LENGTH);
        complete.store(generation, Ordering::Release);
    }
}

#[test]
fn buffered_reads_see_what_asynchronous_direct_writes_wrote() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (image, mount_point) = (place.image("ext4"), place.mount_point());
    mount(&image, &mount_point, &[]);
    let path = mount_point.join("f");
    std::fs::write(&path, vec![0; LENGTH]).unwrap();
    let (complete, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| read_while(&path, &complete, &ends));
        }
        // A panic ends the readers, too.
        let writer = scope.spawn(|| write_until(&path, &complete, Instant::now() + DURATION));
        while !writer.is_finished() {
            std::thread::sleep(Duration::from_millis(10));
        }
        ends.store(true, Ordering::Relaxed);
    });
    unmount(&place);
    check(&image);
}
