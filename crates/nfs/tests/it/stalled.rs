//! A device that does not answer for a while, as a network block device whose server is away.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};

use crate::client::*;
use finefs_block::BlockDevice;
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{MemoryStore, Namespace, Options};
use finefs_nfs::{Served, Server, ServerOptions};
use finefs_sim::{Image, ImageDevice};
use nfs3_types::mount::mountres3;
use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::Opaque;

/// A device whose reads wait while it is away.
struct Stalling {
    inner: ImageDevice,
    is_away: Mutex<bool>,
    changed: Condvar,
}

impl Stalling {
    fn set_away(&self, is_away: bool) {
        *self.is_away.lock().unwrap() = is_away;
        self.changed.notify_all();
    }
}

impl BlockDevice for Stalling {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        let is_away = self.is_away.lock().unwrap();
        drop(self.changed.wait_while(is_away, |is_away| *is_away));
        self.inner.read_at(offset_bytes, buffer)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> std::io::Result<()> {
        self.inner.write_at(offset_bytes, data)
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> std::io::Result<()> {
        self.inner.write_zeros_at(offset_bytes, length_bytes)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.inner.flush()
    }

    fn describe(&self) -> String {
        "a device that is away at times".into()
    }
}

const FILE_BYTES: usize = 1 << 20;
const READ_BYTES: u32 = 4096;

/// With a file of [`FILE_BYTES`].
fn stalling() -> Arc<Stalling> {
    let directory = tempfile::tempdir().unwrap();
    let (tree, image) = (
        directory.path().join("tree"),
        directory.path().join("image"),
    );
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), vec![7; FILE_BYTES]).unwrap();
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-d"]).arg(&tree);
    assert!(mke2fs.arg(&image).arg("16M").status().unwrap().success());
    let bytes = std::fs::read(image).unwrap();
    Arc::new(Stalling {
        inner: ImageDevice::new(Image::from_bytes(&bytes)),
        is_away: Mutex::new(false),
        changed: Condvar::new(),
    })
}

fn mount(client: &mut Client, path: &str) -> nfs_fh3 {
    let result: mountres3<'static> = client.call_program(MOUNT, 1, &dirpath(path));
    let mountres3::Ok(mounted) = result else {
        panic!("it can be mounted");
    };
    nfs_fh3 {
        data: Opaque::owned(mounted.fhandle.0.to_vec()),
    }
}

/// The reads tell nobody that they wait: more of them than there are threads at first.
#[test]
fn reads_of_a_device_that_is_away_keep_no_other_export_waiting() {
    let device = stalling();
    let store = ExtStore::open(device.clone(), &ExtOptions::default()).unwrap();
    let slow = Namespace::without_thread(Arc::new(store), Options::default());
    let store = MemoryStore::new(16 << 20, 0o755, 0, 0).unwrap();
    let quick = store.into_namespace(Options::default());
    let exports = [
        ("/slow", Arc::new(slow.unwrap())),
        ("/quick", quick.unwrap()),
    ];
    let served = exports.map(|(name, namespace)| Served {
        name: name.into(),
        namespace,
        options: trusting(),
    });
    let here = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    let server = Server::start_all(served.into(), &ServerOptions::at(here)).unwrap();
    let new_client = || Client::unmounted(&server, user(0, 0, &[]));
    let mut client = new_client();
    let (slow, quick) = (mount(&mut client, "/slow"), mount(&mut client, "/quick"));
    let file = client.lookup(&slow, "file").unwrap();

    device.set_away(true);
    // By a connection each, since a thread takes several calls of one. One address has 64.
    let cpus = std::thread::available_parallelism().unwrap().get();
    let mut waiting = Vec::new();
    for number in 0..(3 * cpus).clamp(8, 60) {
        let mut reading = new_client();
        let arguments = READ3args {
            file: file.clone(),
            offset: number as u64 * u64::from(READ_BYTES),
            count: READ_BYTES,
        };
        let xid = reading.send(procedure::READ, &arguments);
        waiting.push((reading, xid));
    }
    for _ in 0..3 {
        let mut other = new_client();
        other.attributes(&quick).unwrap();
    }
    device.set_away(false);
    for (mut reading, xid) in waiting {
        let reply = reading.result(xid);
        let read: READ3res<'static> = unpacked(&reply);
        assert_eq!(*read.unwrap().data, [7; READ_BYTES as usize]);
    }
    server.stop();
}
