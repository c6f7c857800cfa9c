//! Random operations on a namespace over an ext image against the reference model: images of
//! several feature sets, reopened now and then, and e2fsck finds nothing each time.
//!
//! `FINEFS_SEEDS=first..end` and `FINEFS_STEPS=n` run others than the default.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::image::{self, Format};
use finefs_block::{Access, FileDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{Namespace, Options, Store};

/// Why e2fsck is not content, if it is not.
fn check(path: &Path) -> Result<(), String> {
    let output = Command::new("e2fsck")
        .args(["-f", "-n"])
        .arg(path)
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "e2fsck: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout)
    ))
}

fn open(path: &Path) -> Namespace {
    let device = FileDevice::open(path, Access::ReadWrite).unwrap();
    let store = ExtStore::open(Arc::new(device), &ExtOptions::default()).unwrap();
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
    let options = Options {
        // So little that whatever may be evicted is, all the time.
        cache_bytes: 0,
        ..Options::default()
    };
    Namespace::without_thread(Arc::new(store), options).unwrap()
}

fn check_images(seeds: std::ops::Range<u64>, mkfs: &[&str]) {
    image::check_images(Format { open, check }, seeds, &|path| {
        let mut mke2fs = Command::new("mke2fs");
        let output = mke2fs.arg("-q").args(mkfs).arg(path).arg("24M").output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
    });
}

#[test]
fn ext4_with_default_features() {
    check_images(0..8, &["-t", "ext4"]);
}

#[test]
fn ext4_with_small_blocks() {
    check_images(100..108, &["-t", "ext4", "-b", "1024"]);
}

#[test]
fn ext4_without_a_journal() {
    check_images(200..206, &["-t", "ext4", "-O", "^has_journal"]);
}

#[test]
fn ext4_without_checksums_and_huge_files() {
    let features = "^metadata_csum,^huge_file,^dir_nlink,^64bit,uninit_bg";
    check_images(300..306, &["-t", "ext4", "-O", features]);
}

#[test]
fn ext4_with_small_inodes() {
    check_images(400..406, &["-t", "ext4", "-I", "128"]);
}

#[test]
fn ext3() {
    check_images(500..506, &["-t", "ext3"]);
}

#[test]
fn ext2() {
    check_images(600..606, &["-t", "ext2", "-b", "1024"]);
}

#[test]
fn ext2_without_kinds_in_directories() {
    check_images(700..706, &["-t", "ext2", "-O", "^filetype,^dir_index"]);
}

#[test]
fn ext4_with_clusters() {
    check_images(800..806, &["-t", "ext4", "-O", "bigalloc", "-C", "65536"]);
}

#[test]
fn ext4_with_clusters_of_two_small_blocks() {
    let features = "bigalloc,quota";
    check_images(
        900..906,
        &["-t", "ext4", "-b", "1024", "-O", features, "-C", "2048"],
    );
}

#[test]
fn ext4_with_clusters_and_without_a_journal() {
    let features = "bigalloc,^has_journal,ea_inode,inline_data";
    check_images(
        1000..1006,
        &["-t", "ext4", "-b", "1024", "-O", features, "-C", "16384"],
    );
}
