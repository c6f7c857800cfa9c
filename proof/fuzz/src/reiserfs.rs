//! reiserfs: its structures, and small images in which an input changes bytes, read and written.
//!
//! One is that of the store's tests, filled by Linux; the others, of format 3.5 and with a journal
//! on a device of its own, `xtask fuzz --make-seeds` makes. All were killed, so that they have a
//! log.

use std::io::Read;
use std::sync::{Arc, OnceLock};

use finefs_block::{BlockDevice, MemoryDevice};
use finefs_namespace::{AtimePolicy, Namespace, Options, Store};
use finefs_reiser::{ImageInfo, ReiserOptions, ReiserStore};
use finefs_reiser_disk::directory::DirectoryItem;
use finefs_reiser_disk::journal::{Description, JournalHeader};
use finefs_reiser_disk::node::{Internal, Leaf, level};
use finefs_reiser_disk::stat::StatData;
use finefs_reiser_disk::superblock::Superblock;
use finefs_reiser_disk::{Key, KeyVersion, indirect, xattr};

use crate::{images, work};

const LINUX: &[u8] = include_bytes!("../../../crates/reiser/tests/images/killed.img.xz");
const OLD: &[u8] = include_bytes!("../seeds/reiserfs-3.5.img.gz");
const EXTERNAL: &[u8] = include_bytes!("../seeds/reiserfs-external.img.gz");
const EXTERNAL_JOURNAL: &[u8] = include_bytes!("../seeds/reiserfs-external.journal.img.gz");
const BLOCK: usize = 1024;
/// Where the superblock lies.
const SUPERBLOCK: usize = 65536 / BLOCK;
/// The blocks of the log that changes reach. All have more.
const LOG: usize = 500;
/// Bytes of an input for one change: which block, where in it, by how much.
const CHANGE: usize = 5;

/// An image, and its journal where that is another device.
#[derive(Clone, PartialEq)]
struct Disks {
    image: Vec<u8>,
    journal: Option<Vec<u8>>,
}

impl Disks {
    fn of(devices: &Devices) -> Self {
        Self {
            image: devices.image.to_bytes(),
            journal: devices.journal.as_ref().map(|device| device.to_bytes()),
        }
    }

    /// Bytes that follow each other in the numbers of [`Seed::blocks`]: the image's, the journal's.
    fn block_mut(&mut self, number: usize) -> &mut [u8] {
        let of_image = self.image.len() / BLOCK;
        match &mut self.journal {
            Some(journal) if number >= of_image => &mut journal[(number - of_image) * BLOCK..],
            _ => &mut self.image[number * BLOCK..],
        }
    }
}

/// The same as devices.
struct Devices {
    image: Arc<MemoryDevice>,
    journal: Option<Arc<MemoryDevice>>,
}

impl Devices {
    fn new(disks: &Disks) -> Self {
        let device = |bytes: &Vec<u8>| Arc::new(MemoryDevice::from_bytes(bytes));
        Self {
            image: device(&disks.image),
            journal: disks.journal.as_ref().map(device),
        }
    }
}

struct Seed {
    disks: Disks,
    /// The blocks that are worth a change: superblock, log, nodes. Those of a journal device follow
    /// those of the image.
    blocks: Vec<usize>,
}

impl Seed {
    fn new(image: Vec<u8>, journal: Option<Vec<u8>>) -> Self {
        let behind = SUPERBLOCK + 2;
        let of_image = image.len() / BLOCK;
        let log = match journal {
            // The first blocks of a journal device are of no use.
            Some(_) => of_image + SUPERBLOCK..of_image + LOG,
            None => behind..behind + LOG,
        };
        let nodes = (behind..of_image).filter(|&block| {
            let bytes = &image[block * BLOCK..][..BLOCK];
            let is_node =
                Leaf::new(bytes).is_ok() || Internal::new(bytes, level(bytes).max(2)).is_ok();
            is_node && !log.contains(&block)
        });
        let blocks = [SUPERBLOCK].into_iter().chain(log.clone()).chain(nodes);
        Self {
            blocks: blocks.collect(),
            disks: Disks { image, journal },
        }
    }
}

fn unpack(mut unpacker: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = unpacker.read_to_end(&mut bytes);
    read.expect("the image is whole");
    bytes
}

/// The images, by their numbers in inputs: the list is only added to at its end.
fn seeds() -> &'static [Seed] {
    static SEEDS: OnceLock<[Seed; 3]> = OnceLock::new();
    SEEDS.get_or_init(|| {
        let gz = |packed| unpack(flate2::read::GzDecoder::new(packed));
        [
            Seed::new(unpack(liblzma::read::XzDecoder::new(LINUX)), None),
            Seed::new(gz(OLD), None),
            Seed::new(gz(EXTERNAL), Some(gz(EXTERNAL_JOURNAL))),
        ]
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

/// An image with changes.
fn changed(seed: &Seed, changes: &[u8]) -> Disks {
    let mut disks = seed.disks.clone();
    let (changes, _) = changes.as_chunks::<CHANGE>();
    for [low, high, at_low, at_high, by] in changes {
        let block = usize::from(u16::from_le_bytes([*low, *high])) % seed.blocks.len();
        let at = usize::from(u16::from_le_bytes([*at_low, *at_high])) % BLOCK;
        let byte = &mut disks.block_mut(seed.blocks[block])[at];
        *byte = byte.wrapping_add(*by);
    }
    disks
}

/// A namespace over an image, if it mounts; what keeps it from that is one line.
fn mount(devices: &Devices, is_read_only: bool) -> Option<Namespace> {
    let journal = devices.journal.clone();
    let options = ReiserOptions {
        is_read_only,
        journal: journal.map(|device| device as Arc<dyn BlockDevice>),
        ..ReiserOptions::default()
    };
    let store = match ReiserStore::open(devices.image.clone(), &options) {
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
fn read_all(disks: &Disks, is_good: bool) {
    let Some(namespace) = mount(&Devices::new(disks), true) else {
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

/// The image that the first byte of an input chooses, and the rest of the input.
fn chosen(data: &[u8]) -> Option<(&'static Seed, &[u8])> {
    let (number, rest) = data.split_first()?;
    Some((&seeds()[usize::from(*number) % seeds().len()], rest))
}

/// Mounts an image with changes and reads everything.
pub fn walk(data: &[u8]) {
    let Some((seed, changes)) = chosen(data) else {
        return;
    };
    let disks = changed(seed, changes);
    if let Ok(info) = ImageInfo::gather(Devices::new(&disks).image) {
        assert!(info.to_string().lines().count() > 5);
    }
    read_all(&disks, disks == seed.disks);
}

/// Mounts an image with changes, whose number is the second byte, for writing; works on it as the
/// rest of the input says, closes it and reads everything.
pub fn write(data: &[u8]) {
    let Some((seed, data)) = chosen(data) else {
        return;
    };
    let Some((count, data)) = data.split_first() else {
        return;
    };
    let (changes, work) = data.split_at(data.len().min(usize::from(*count) * CHANGE));
    let disks = changed(seed, changes);
    let is_good = disks == seed.disks;
    let devices = Devices::new(&disks);
    let Some(namespace) = mount(&devices, false) else {
        assert!(!is_good, "the good image mounts");
        return;
    };
    assert!(!is_good || !namespace.geometry().is_read_only);
    work::work(&namespace, work);
    let closed = namespace.shut_down();
    assert!(!is_good || closed.is_ok(), "the good image closes");
    drop(namespace);
    read_all(&Disks::of(&devices), is_good);
}
