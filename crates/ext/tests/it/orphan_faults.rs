//! A mount that cannot finish cleaning up orphans fails; the next one, on a device that works,
//! finishes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::image::{assert_clean, debugfs, make};
use finefs_block::{BlockDevice, MemoryDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::Store;
use finefs_sim::{FaultDevice, FaultOn};

/// An image with two orphans in the superblock's list: one to free, one to cut.
fn with_orphans(directory: &Path, options: &[&str]) -> PathBuf {
    let path = make(
        directory,
        "4M",
        &[&["-b", "1024", "-N", "64"], options].concat(),
    );
    let data = directory.join("data");
    fs::write(&data, vec![7; 30 << 10]).unwrap();
    let data = data.display();
    debugfs(
        &path,
        &format!(
            "write {data} freed\nwrite {data} cut\nunlink freed\n\
             set_inode_field <12> links_count 0\nset_inode_field <12> dtime 13\n\
             set_inode_field <13> size 5000\nset_super_value last_orphan 12\n"
        ),
    );
    path
}

fn open(device: Arc<dyn BlockDevice>) -> Result<ExtStore, String> {
    ExtStore::open(device, &ExtOptions::default()).map_err(|error| error.to_string())
}

#[test]
fn a_mount_whose_clean_up_fails_fails() {
    let kinds = [
        (&["-t", "ext4", "-J", "size=1"][..], true),
        (&["-t", "ext4", "-O", "^has_journal"], false),
        (&["-t", "ext2"], false),
    ];
    for (options, has_journal) in kinds {
        let directory = tempfile::tempdir().unwrap();
        let path = with_orphans(directory.path(), options);
        let bytes = fs::read(&path).unwrap();
        for on in [FaultOn::Write, FaultOn::Flush] {
            let good: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&bytes));
            let counting = Arc::new(FaultDevice::new(good, on, u64::MAX, 0));
            let store = open(counting.clone()).unwrap();
            let notes = store.notes();
            assert!(
                notes.contains(&"cleaned up 2 orphans".to_owned()),
                "{options:?}: {notes:?}"
            );
            let count = counting.seen();
            assert!(count >= 2, "{options:?}: {on:?}: only {count} in all");
            for first in 0..count {
                // Only this one fails, so that whatever went on after it would succeed.
                let disk = Arc::new(MemoryDevice::from_bytes(&bytes));
                let failing = Arc::new(FaultDevice::new(disk.clone(), on, first, 1));
                let outcome = open(failing).map(|store| store.notes());
                let error = outcome.expect_err("a mount that failed midway");
                assert_eq!(error.lines().count(), 1, "{error}");
                if !has_journal {
                    continue;
                }
                // With a journal nothing is half done: the next mount finishes.
                let store = open(disk.clone()).unwrap();
                store.close().unwrap();
                drop(store);
                fs::write(&path, disk.to_bytes()).unwrap();
                assert_clean(&path);
            }
        }
    }
}
