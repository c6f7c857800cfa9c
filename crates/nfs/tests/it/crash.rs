//! What was answered is there after a crash, however much of the rest is lost.

use std::process::Command;
use std::sync::Arc;

use crate::client::*;
use finefs_block::BlockDevice;
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{Namespace, Options};
use finefs_sim::{ImageDevice, RecordingDevice, Request};
use nfs3_types::nfs3::*;

/// A device with an empty file system.
fn device() -> Arc<RecordingDevice> {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4"]).arg(&image);
    assert!(mke2fs.arg("16M").status().unwrap().success());
    Arc::new(RecordingDevice::new(std::fs::read(image).unwrap()))
}

/// It commits only when somebody waits for it.
fn open(device: Arc<dyn BlockDevice>) -> Arc<Namespace> {
    let store = ExtStore::open(device, &ExtOptions::default()).unwrap();
    let namespace = Namespace::without_thread(Arc::new(store), Options::default());
    Arc::new(namespace.unwrap())
}

/// The file system after a crash at this moment, of which no more is left than what was flushed.
fn crashed(device: &RecordingDevice) -> Arc<Namespace> {
    let epochs = device.recorded().epochs();
    let durable = epochs.last().unwrap().base.clone();
    open(Arc::new(ImageDevice::new(durable)))
}

/// The attributes of a file in the root.
fn attributes(namespace: &Arc<Namespace>, name: &str) -> fattr3 {
    let server = serve(namespace, trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let file = client.lookup(&root, name).unwrap();
    let attributes = client.attributes(&file).unwrap();
    server.stop();
    attributes
}

#[test]
fn a_file_that_a_create_has_cut_is_cut() {
    let device = device();
    let server = serve(&open(device.clone()), trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let file = client.make_file(&root, "file");
    let written = client.write(&file, 0, b"before", stable_how::FILE_SYNC);
    written.unwrap();
    assert_eq!(attributes(&crashed(&device), "file").size, 6);
    let cut = createhow3::UNCHECKED(with_size(0));
    assert_eq!(client.create(&root, "file", cut).unwrap(), file);
    assert_eq!(attributes(&crashed(&device), "file").size, 0);
    server.stop();
}

#[test]
fn an_exclusive_create_is_known_and_attributes_are_set() {
    let device = device();
    let server = serve(&open(device.clone()), trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let exclusive = || createhow3::EXCLUSIVE(createverf3([0x5c; 8]));
    let file = client.create(&root, "exclusive", exclusive()).unwrap();
    let owned = sattr3 {
        uid: Nfs3Option::Some(1000),
        ..with_size(10)
    };
    let how = createhow3::GUARDED(owned);
    client.create(&root, "owned", how).unwrap();
    let after = crashed(&device);
    let owned = attributes(&after, "owned");
    assert_eq!((owned.uid, owned.size), (1000, 10));
    let server_after = serve(&after, trusting());
    let mut client = Client::new(&server_after);
    assert_eq!(
        client.create(&root, "exclusive", exclusive()).unwrap(),
        file
    );
    server_after.stop();
    server.stop();
}

/// The name, and what is set on what it names.
#[test]
fn one_commit_is_enough_for_a_create() {
    let device = device();
    let server = serve(&open(device.clone()), trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let mut flushes_of = |name: &str, attributes: sattr3| {
        device.take_recorded();
        let how = createhow3::GUARDED(attributes);
        client.create(&root, name, how).unwrap();
        let requests = device.take_recorded().requests;
        let is_flush = |request: &&Request| matches!(request, Request::Flush);
        requests.iter().filter(is_flush).count()
    };
    flushes_of("first", with_mode(0o644));
    let of_plain = flushes_of("plain", with_mode(0o644));
    let owned = sattr3 {
        uid: Nfs3Option::Some(1000),
        ..with_mode(0o644)
    };
    assert_eq!(flushes_of("owned", owned), of_plain);
    server.stop();
}
