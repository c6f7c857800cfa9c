//! Tests of the store: its batches, its end, and images that hosts share.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use finefs_block::{Access, FileDevice};
use finefs_ext_disk::mmp::{self as disk_mmp, MmpBlock};
use finefs_sim::{RecordingDevice, Request};

use super::*;

fn make(image: &Path, features: &str) {
    let made = Command::new("mke2fs")
        .args(["-q", "-t", "ext4", "-b", "1024", "-O", features])
        .arg(image)
        .arg("16M")
        .status();
    assert!(made.expect("mke2fs runs").success());
}

fn opened(features: &str, options: &ExtOptions) -> ExtStore {
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("image");
    make(&image, features);
    let device = FileDevice::open(&image, Access::ReadWrite).expect("it opens");
    ExtStore::open(Arc::new(device), options).expect("it is sound")
}

/// Changed blocks wait in memory until they are durable, whether there is a journal or not.
#[test]
fn batches_are_bounded_without_a_journal_too() {
    let small = ExtOptions {
        buffer_bytes: 1 << 20,
        ..ExtOptions::default()
    };
    let store = opened("^has_journal", &small);
    let cost = store.batch_cost().expect("it is bounded");
    assert_eq!(cost.blocks_max(), 8 << 10);
    assert_eq!(store.geometry().batch_records, Some(8 << 10));
    let filled = ExtOptions {
        bulk_load: Some(crate::BulkLoad { seconds: 1 }),
        ..small
    };
    assert!(opened("^has_journal", &filled).batch_cost().is_none());
}

/// A commit that panicked keeps the journal's writer: nothing may then be written past the log.
#[test]
fn without_its_writer_a_journaled_image_is_not_closed() {
    let store = opened("has_journal", &ExtOptions::default());
    let writer = store.state.take_journal().expect("it has one");
    assert!(matches!(store.close(), Err(Error::Io(_))));
    let mut superblock = store.state.superblock.lock().clone();
    assert!(superblock.incompat().contains(Incompat::NEEDS_RECOVERY));
    *store.state.journal.lock() = writer;
    store.close().expect("it closes with its writer");
    superblock = store.state.superblock.lock().clone();
    assert!(!superblock.incompat().contains(Incompat::NEEDS_RECOVERY));
}

/// A mount that has the image to itself (`mmp`), with a second of a few milliseconds.
fn protected(features: &str) -> (Arc<RecordingDevice>, ExtStore) {
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("image");
    make(&image, features);
    let bytes = std::fs::read(&image).expect("it is there");
    let recording = Arc::new(RecordingDevice::new(bytes));
    let device: Arc<dyn BlockDevice> = recording.clone();
    let options = ExtOptions::default();
    let opened = ExtStore::open_with(device.clone(), &options, Protection::Callers);
    let mut store = opened.expect("it is sound");
    let superblock = store.state.superblock.lock().clone();
    let second = Duration::from_millis(4);
    let mmp = Mmp::acquire_with(&device, &superblock, 1024, second);
    store.mmp = Some(mmp.map_err(|_| "it is held").expect("nobody has it"));
    (recording, store)
}

/// Another host takes the image over while nobody here looks.
fn overtake(device: &RecordingDevice, store: &ExtStore) {
    let place = store.state.superblock.lock().mmp_block() * 1024;
    let mut block = MmpBlock::clean(0, 5);
    block.set_sequence(disk_mmp::SEQUENCE_MAX);
    if store.state.superblock.lock().has_metadata_csum() {
        let seed = store.state.superblock.lock().seed();
        block.update_checksum(seed);
    }
    device.write_at(place, block.as_bytes()).expect("room");
}

/// How often the device was written to.
fn writes(device: &RecordingDevice) -> usize {
    let is_write = |request: &&Request| matches!(request, Request::Write { .. });
    device.recorded().requests.iter().filter(is_write).count()
}

#[test]
fn data_stays_in_memory_once_another_host_has_the_image() {
    for features in ["mmp", "mmp,^has_journal"] {
        let (device, store) = protected(features);
        let run = store.allocate_blocks(Ino(12), None, 8).expect("room");
        let data = vec![1; run.length as usize * 1024];
        store.write_blank(run.start, 0, &data).expect("room");
        store.write_data(&[run]).expect("it is its own");
        store.write(run.start, 0, &data).expect("it is cached");
        let mmp = store.mmp.as_ref().expect("it has it");
        mmp.pause();
        overtake(&device, &store);
        assert!(mmp.resume().is_err() && mmp.is_lost(), "{features}");
        let before = writes(&device);
        store.write_behind(run);
        let place = ContentPlace {
            ino: Ino(12),
            logical: finefs_namespace::LogicalBlock(0),
        };
        let refused = [
            store.write_data(&[run]),
            store.write_back(),
            store.overwrite_content(place, run.start, 0, &data),
            store.close(),
        ];
        let is_io = |outcome: &Result<()>| matches!(outcome, Err(Error::Io(_)));
        assert!(refused.iter().all(is_io), "{features}: {refused:?}");
        drop(store);
        assert_eq!(writes(&device), before, "{features}");
    }
}

#[test]
fn a_thaw_writes_nothing_to_what_another_host_has() {
    for features in ["mmp", "mmp,^has_journal"] {
        let (device, store) = protected(features);
        store.freeze().expect("it is its own");
        store.thaw().expect("it is its own still");
        store.freeze().expect("again");
        overtake(&device, &store);
        let before = writes(&device);
        let thawed = store.thaw();
        assert!(
            matches!(thawed, Err(Error::Io(_))),
            "{features}: {thawed:?}"
        );
        drop(store);
        assert_eq!(writes(&device), before, "{features}");
    }
}
