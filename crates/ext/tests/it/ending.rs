//! The end of a file system, asked for by several: a front end that ends may not go before
//! everything is written out.

use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use finefs_block::{Access, BlockDevice, FileDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::types::Caller;
use finefs_namespace::{Namespace, Options};

/// A device whose flush can be held up, and fail.
struct Held {
    device: FileDevice,
    is_held: Mutex<bool>,
    changed: Condvar,
    fails: AtomicBool,
}

impl Held {
    fn hold(&self, is_held: bool) {
        *self.is_held.lock().unwrap() = is_held;
        self.changed.notify_all();
    }
}

impl BlockDevice for Held {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset_bytes, buffer)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        self.device.write_at(offset_bytes, data)
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        self.device.write_zeros_at(offset_bytes, length_bytes)
    }

    fn flush(&self) -> io::Result<()> {
        let held = self.is_held.lock().unwrap();
        drop(self.changed.wait_while(held, |held| *held).unwrap());
        match self.fails.load(Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(5)),
            false => Ok(()),
        }
    }

    fn describe(&self) -> String {
        self.device.describe()
    }
}

/// A new ext4 image, in use, on a device that can be held up; and where it is.
fn open() -> (tempfile::TempDir, Arc<Held>, Arc<Namespace>) {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let mut mke2fs = Command::new("mke2fs");
    let made = mke2fs.args(["-q", "-t", "ext4"]).arg(&image).arg("16M");
    assert!(made.status().unwrap().success());
    let device = Arc::new(Held {
        device: FileDevice::open(&image, Access::ReadWrite).unwrap(),
        is_held: Mutex::new(false),
        changed: Condvar::new(),
        fails: AtomicBool::new(false),
    });
    let store = ExtStore::open(device.clone(), &ExtOptions::default()).unwrap();
    let namespace = Namespace::without_thread(Arc::new(store), Options::default()).unwrap();
    let made = namespace.make_directory(&Caller::root(), namespace.root(), b"made", 0o755);
    made.unwrap();
    (directory, device, Arc::new(namespace))
}

#[test]
fn who_ends_it_second_waits_for_the_first() {
    let (_directory, device, namespace) = open();
    device.hold(true);
    let end = || {
        let namespace = Arc::clone(&namespace);
        std::thread::spawn(move || namespace.shut_down())
    };
    let both = [end(), end()];
    std::thread::sleep(Duration::from_millis(300));
    assert!(both.iter().all(|end| !end.is_finished()));
    device.hold(false);
    for end in both {
        end.join().unwrap().unwrap();
    }
}

#[test]
fn each_is_told_that_it_failed() {
    let (_directory, device, namespace) = open();
    namespace.sync().unwrap();
    device.fails.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        assert!(namespace.shut_down().is_err());
    }
}
