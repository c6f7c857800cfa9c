//! Random operations on a namespace over an ext image against the reference model: images of
//! several feature sets, reopened now and then, and e2fsck finds nothing each time.
//!
//! `FINEFS_SEEDS=first..end` and `FINEFS_STEPS=n` run others than the default.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use finefs_block::{Access, FileDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{Namespace, Options, Store};
use finefs_testkit::{Subject, check_seed};
use tempfile::TempDir;

struct Image {
    _directory: TempDir,
    path: PathBuf,
    /// `None` only between a shut-down and what follows.
    namespace: Option<Namespace>,
}

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

impl Image {
    fn boxed(mkfs: &[&str]) -> Box<dyn Subject> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let output = Command::new("mke2fs")
            .arg("-q")
            .args(mkfs)
            .arg(&path)
            .arg("24M")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let namespace = Some(open(&path));
        Box::new(Image {
            _directory: directory,
            path,
            namespace,
        })
    }
}

impl Subject for Image {
    fn namespace(&self) -> &Namespace {
        self.namespace.as_ref().unwrap()
    }

    fn reopen(&mut self) -> Result<bool, String> {
        let shut = self.namespace().shut_down();
        shut.map_err(|error| error.to_string())?;
        self.namespace = None;
        check(&self.path)?;
        self.namespace = Some(open(&self.path));
        Ok(true)
    }
}

fn check_images(default_seeds: std::ops::Range<u64>, mkfs: &[&str]) {
    let seeds = std::env::var("FINEFS_SEEDS").ok().map(|text| {
        let (first, end) = text.split_once("..").expect("FINEFS_SEEDS=first..end");
        first.parse().unwrap()..end.parse().unwrap()
    });
    let steps = std::env::var("FINEFS_STEPS").map_or(400, |text| text.parse().unwrap());
    for seed in seeds.unwrap_or(default_seeds) {
        check_seed(seed, steps, &|| Image::boxed(mkfs));
    }
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
