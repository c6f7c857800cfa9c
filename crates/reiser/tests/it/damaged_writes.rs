//! Damage that comes to light when something is changed.

use std::sync::Arc;

use crate::support::made;
use finefs_block::{BlockDevice, MemoryDevice};
use finefs_namespace::{Caller, Error, Namespace, Options, Store};
use finefs_reiser::{ReiserOptions, ReiserStore};

const BLOCK: usize = 4096;
const SUPERBLOCK: usize = 65_536;
const BITMAP: usize = 17 * BLOCK;

fn open(image: &[u8]) -> (Arc<MemoryDevice>, ReiserStore) {
    let device = Arc::new(MemoryDevice::from_bytes(image));
    let store = ReiserStore::open(device.clone(), &ReiserOptions::default()).expect("it mounts");
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
    (device, store)
}

fn bytes(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len_bytes() as usize];
    device.read_at(0, &mut bytes).expect("it is memory");
    bytes
}

/// A run of which one block is free already stays as it is: so the bitmap goes on to say of as many
/// blocks that they are free as the superblock does.
#[test]
fn a_block_that_is_free_already_does_not_make_the_image_read_only() {
    let (device, store) = open(&made(8, &["-s", "600"]));
    let namespace = Namespace::without_thread(Arc::new(store), Options::default()).expect("it is");
    let (root, caller) = (namespace.root(), Caller::root());
    let file = namespace.create_file(&caller, root, b"file", 0o600);
    let file = file.expect("there is room").ino;
    let data = [0xa5; 8 * BLOCK];
    assert_eq!(namespace.write(file, 0, &data), Ok(data.len()));
    namespace.shut_down().expect("it is durable");
    let mut image = bytes(&device);
    let is_data = |block: &[u8]| block.iter().all(|byte| *byte == 0xa5);
    let blocks = image.chunks(BLOCK).enumerate();
    let blocks: Vec<usize> = blocks
        .filter(|(_, block)| is_data(block))
        .map(|(number, _)| number)
        .collect();
    assert!(
        blocks.len() == 8 && blocks[7] == blocks[0] + 7,
        "{blocks:?}"
    );
    // The sixth block of the file is marked free, and counted as such.
    let (byte, mask) = (BITMAP + blocks[5] / 8, 1 << (blocks[5] % 8));
    assert_ne!(image[byte] & mask, 0);
    image[byte] ^= mask;
    let free = image[SUPERBLOCK + 4..][..4].try_into().expect("four");
    let free = u32::from_le_bytes(free) + 1;
    image[SUPERBLOCK + 4..][..4].copy_from_slice(&free.to_le_bytes());

    let (device, store) = open(&image);
    let namespace = Namespace::without_thread(Arc::new(store), Options::default()).expect("it is");
    let removed = namespace.remove_file(&caller, root, b"file");
    removed.expect("it is there");
    namespace.sync().expect("it is durable");
    // Damage was found; not all stores go on after that.
    let ended = namespace.shut_down();
    assert!(
        matches!(ended, Ok(()) | Err(Error::Corrupt(_))),
        "{ended:?}"
    );
    let (_, store) = open(&bytes(&device));
    assert_eq!(store.statfs().blocks_free, u64::from(free));
}
