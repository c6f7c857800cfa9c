//! reiserfs: its structures, and a small image in which an input changes bytes, read and written.
//!
//! The image is that of the store's tests: filled by Linux, and killed, so that it has a log.

use std::io::Read;
use std::sync::{Arc, OnceLock};

use finefs_block::MemoryDevice;
use finefs_namespace::{AtimePolicy, Namespace, Options, Store};
use finefs_reiser::{ImageInfo, ReiserOptions, ReiserStore};
use finefs_reiser_disk::directory::DirectoryItem;
use finefs_reiser_disk::journal::{Description, JournalHeader};
use finefs_reiser_disk::node::{Internal, Leaf, level};
use finefs_reiser_disk::stat::StatData;
use finefs_reiser_disk::superblock::Superblock;
use finefs_reiser_disk::{Key, KeyVersion, indirect, xattr};

use crate::{images, work};

const PACKED: &[u8] = include_bytes!("../../../crates/reiser/tests/images/killed.img.xz");
const BLOCK: usize = 1024;
/// Where the superblock lies.
const SUPERBLOCK: usize = 65536 / BLOCK;
/// Bytes of an input for one change: which block, where in it, by how much.
const CHANGE: usize = 5;

struct Seed {
    bytes: Vec<u8>,
    /// The blocks that are worth a change: superblock, log, nodes.
    blocks: Vec<usize>,
}

fn seed() -> &'static Seed {
    static SEED: OnceLock<Seed> = OnceLock::new();
    SEED.get_or_init(|| {
        let mut bytes = Vec::new();
        let mut unpacker = liblzma::read::XzDecoder::new(PACKED);
        unpacker
            .read_to_end(&mut bytes)
            .expect("the image is whole");
        let log = SUPERBLOCK + 2..SUPERBLOCK + 2 + 600;
        let nodes = (log.end..bytes.len() / BLOCK).filter(|&block| {
            let bytes = &bytes[block * BLOCK..][..BLOCK];
            Leaf::new(bytes).is_ok() || Internal::new(bytes, level(bytes).max(2)).is_ok()
        });
        let blocks = [SUPERBLOCK]
            .into_iter()
            .chain(log.clone())
            .chain(nodes)
            .collect();
        Seed { bytes, blocks }
    })
}

/// Each structure of the disk format.
pub fn codecs(data: &[u8]) {
    if let Ok(superblock) = Superblock::parse(data) {
        let _ = (
            superblock.validate(),
            superblock.journal(),
            superblock.hash(),
        );
    }
    if let Ok(node) = Internal::new(data, level(data)) {
        for number in 0..node.len() {
            let child = node.child_of(&node.key(number));
            assert_eq!(child, number + 1);
            let _ = node.child(child);
        }
    }
    if let Ok(leaf) = Leaf::new(data) {
        for item in 0..leaf.len() {
            let head = leaf.head(item).expect("it was checked");
            assert_eq!(leaf.position(&head.key), item);
            let body = leaf.body(&head);
            let _ = StatData::parse(body);
            let _ = indirect::pointers(body).map(Iterator::count);
            if let Ok(directory) = DirectoryItem::new(body, head.count) {
                let _ = directory.entries().filter(Result::is_ok).count();
            }
        }
    }
    let _ = (JournalHeader::parse(data), xattr::value(data));
    if let Some(description) = Description::parse(data) {
        let _ = description.places(data);
    }
    let _ = Key::parse(data, KeyVersion::V3_5).to_string();
}

/// The image with changes.
fn changed(changes: &[u8]) -> Vec<u8> {
    let seed = seed();
    let mut bytes = seed.bytes.clone();
    let (changes, _) = changes.as_chunks::<CHANGE>();
    for [low, high, at_low, at_high, by] in changes {
        let block = usize::from(u16::from_le_bytes([*low, *high])) % seed.blocks.len();
        let at = usize::from(u16::from_le_bytes([*at_low, *at_high])) % BLOCK;
        let byte = &mut bytes[seed.blocks[block] * BLOCK + at];
        *byte = byte.wrapping_add(*by);
    }
    bytes
}

/// A namespace over an image, if it mounts; what keeps it from that is one line.
fn mount(device: Arc<MemoryDevice>, is_read_only: bool) -> Option<Namespace> {
    let options = ReiserOptions {
        is_read_only,
        ..ReiserOptions::default()
    };
    let store = match ReiserStore::open(device, &options) {
        Ok(store) => Arc::new(store),
        Err(error) => {
            let line = error.to_string();
            assert!(!line.contains('\n') && !line.is_empty(), "{line:?}");
            return None;
        }
    };
    let is_one_line = |note: &String| !note.contains('\n') && !note.is_empty();
    assert!(store.notes().iter().all(is_one_line));
    let options = Options {
        is_read_only: is_read_only || store.geometry().is_read_only,
        atime: AtimePolicy::Noatime,
        ..Options::default()
    };
    Namespace::without_thread(store, options).ok()
}

/// Mounts an image read-only and reads everything. The good one must read without an error.
fn read_all(bytes: &[u8], is_good: bool) {
    let Some(namespace) = mount(Arc::new(MemoryDevice::from_bytes(bytes)), true) else {
        assert!(!is_good, "the good image mounts");
        return;
    };
    let walked = images::walk_all(&namespace);
    assert!(
        !is_good || walked.values().all(Option::is_some),
        "the good image reads"
    );
    let _ = namespace.shut_down();
}

/// Mounts the image with changes and reads everything.
pub fn walk(data: &[u8]) {
    let bytes = changed(data);
    if let Ok(info) = ImageInfo::gather(Arc::new(MemoryDevice::from_bytes(&bytes))) {
        assert!(info.to_string().lines().count() > 5);
    }
    read_all(&bytes, bytes == seed().bytes);
}

/// Mounts the image with changes, whose number is the first byte, for writing; works on it as the
/// rest of the input says, closes it and reads everything.
pub fn write(data: &[u8]) {
    let Some((count, data)) = data.split_first() else {
        return;
    };
    let (changes, work) = data.split_at(data.len().min(usize::from(*count) * CHANGE));
    let bytes = changed(changes);
    let is_good = bytes == seed().bytes;
    let device = Arc::new(MemoryDevice::from_bytes(&bytes));
    let Some(namespace) = mount(device.clone(), false) else {
        assert!(!is_good, "the good image mounts");
        return;
    };
    assert!(!is_good || !namespace.geometry().is_read_only);
    work::work(&namespace, work);
    let closed = namespace.shut_down();
    assert!(!is_good || closed.is_ok(), "the good image closes");
    drop(namespace);
    read_all(&device.to_bytes(), is_good);
}
