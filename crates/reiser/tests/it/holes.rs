//! Holes in files of many leaves.

use std::collections::HashSet;
use std::sync::Arc;

use crate::support::{made, reiserfsck};
use finefs_namespace::{AllocateMode, Caller, Namespace, Options, Store};
use finefs_reiser::{ReiserOptions, ReiserStore};
use finefs_reiser_disk::superblock::{JournalPlace, Superblock};
use finefs_sim::{RecordingDevice, Request};

const BLOCK: u64 = 1024;
/// Block numbers that a leaf has room for.
const PER_LEAF: u64 = 244;
/// The file has so many leaves.
const LEAVES: u64 = 1400;
/// The smallest journal that there can be.
const JOURNAL: &str = "513";

/// The blocks outside of the journal that were written, between one flush and the next.
fn written(requests: &[Request], journal: JournalPlace) -> Vec<HashSet<u64>> {
    let log = u64::from(journal.start)..=u64::from(journal.start + journal.blocks);
    let blocks = |request: &Request| match request {
        Request::Write { offset_bytes, data } => {
            let end = offset_bytes + data.len() as u64;
            offset_bytes / BLOCK..end.div_ceil(BLOCK)
        }
        _ => 0..0,
    };
    let parts = requests.split(|request| *request == Request::Flush);
    parts
        .map(|part| {
            let all = part.iter().flat_map(blocks);
            all.filter(|block| !log.contains(block)).collect()
        })
        .collect()
}

/// A hole is punched in parts that the journal can hold, and where there is one already nothing is
/// changed.
#[test]
fn a_large_hole_goes_through_the_journal() {
    let image = made(16, &["-b", "1024", "-s", JOURNAL]);
    let superblock = Superblock::parse(&image[65_536..]).expect("it is one");
    let journal = superblock.journal();
    let device = Arc::new(RecordingDevice::new(image));
    let options = ReiserOptions::default();
    let store = ReiserStore::open(device.clone(), &options).expect("it mounts");
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
    let namespace = Namespace::without_thread(Arc::new(store), Options::default()).expect("it is");
    let (root, caller) = (namespace.root(), Caller::root());
    let file = namespace.create_file(&caller, root, b"file", 0o600);
    let file = file.expect("there is room").ino;
    let free = namespace.statfs().blocks_free;
    // A block in each leaf.
    let leaf_bytes = PER_LEAF * BLOCK;
    for leaf in 0..LEAVES {
        assert_eq!(namespace.write(file, leaf * leaf_bytes, b"data"), Ok(4));
    }
    namespace.sync().expect("it is durable");
    let size = LEAVES * leaf_bytes;
    let grown = namespace.write(file, size, b"end");
    assert_eq!(grown, Ok(3));
    namespace.sync().expect("it is durable");
    device.take_recorded();

    let punch = |end: u64| {
        let punched = namespace.allocate(file, AllocateMode::PunchHole, 0, end);
        punched.expect("it is done");
        namespace.sync().expect("it is durable");
        written(&device.take_recorded().requests, journal)
    };
    let parts = punch(size / 7 * 5);
    let changed: HashSet<&u64> = parts.iter().flatten().collect();
    assert!(changed.len() > 900, "{}", changed.len());
    let most = parts.iter().map(HashSet::len).max();
    assert!(most <= Some(journal.blocks as usize), "{most:?}");
    // Five of seven parts of the leaves say so already.
    let parts = punch(size);
    let changed: HashSet<&u64> = parts.iter().flatten().collect();
    assert!(changed.len() < 600, "{}", changed.len());

    let mut content = [1; 8];
    assert_eq!(namespace.read(file, 0, &mut content), Ok(8));
    assert_eq!(content, [0; 8]);
    assert_eq!(namespace.read(file, size, &mut content), Ok(3));
    assert_eq!(&content[..3], b"end");
    namespace.forget(file, 1);
    namespace.shut_down().expect("it is durable");
    let image = device.image().to_bytes();
    reiserfsck(&image);
    let store = ReiserStore::open(Arc::new(RecordingDevice::new(image)), &options);
    // The data is gone, and the leaves are there.
    let used = free - store.expect("it mounts").statfs().blocks_free;
    assert!((LEAVES..2 * LEAVES).contains(&used), "{used}");
}
