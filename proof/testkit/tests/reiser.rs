//! Random operations on a namespace over a reiserfs image against the reference model: images of
//! several kinds, reopened now and then, and reiserfsck finds nothing each time.
//!
//! `FINEFS_SEEDS=first..end` and `FINEFS_STEPS=n` run others than the default.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use finefs_block::{Access, FileDevice};
use finefs_namespace::{Namespace, Options, Store};
use finefs_reiser::{ReiserOptions, ReiserStore};
use finefs_testkit::{Subject, check_seed};
use tempfile::TempDir;

struct Image {
    _directory: TempDir,
    path: PathBuf,
    /// `None` only between a shut-down and what follows.
    namespace: Option<Namespace>,
}

/// Why reiserfsck is not content, if it is not.
fn check(path: &Path) -> Result<(), String> {
    let output = Command::new("reiserfsck")
        .args(["--check", "--yes"])
        .arg(path)
        .output()
        .map_err(|error| error.to_string())?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    match output.status.success() && text.contains("No corruptions found") {
        true => Ok(()),
        false => Err(format!("reiserfsck: {}\n{text}", output.status)),
    }
}

fn open(path: &Path) -> Namespace {
    let device = Arc::new(FileDevice::open(path, Access::ReadWrite).unwrap());
    let store = ReiserStore::open(device, &ReiserOptions::default()).unwrap();
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
    let options = Options {
        // So few that commits evict whatever they may.
        cache_bytes: 0,
        ..Options::default()
    };
    Namespace::without_thread(Arc::new(store), options).unwrap()
}

fn make(path: &Path, mib: u64, mkfs: &[&str]) {
    File::create(path).unwrap().set_len(mib << 20).unwrap();
    let output = Command::new("mkreiserfs")
        .args(["-q", "-q", "-f", "-f"])
        .args(mkfs)
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

impl Image {
    fn boxed(mib: u64, mkfs: &[&str]) -> Box<dyn Subject> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        make(&path, mib, mkfs);
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

fn check_images(default_seeds: std::ops::Range<u64>, mib: u64, mkfs: &[&str]) {
    let seeds = std::env::var("FINEFS_SEEDS").ok().map(|text| {
        let (first, end) = text.split_once("..").expect("FINEFS_SEEDS=first..end");
        first.parse().unwrap()..end.parse().unwrap()
    });
    let steps = std::env::var("FINEFS_STEPS").map_or(400, |text| text.parse().unwrap());
    for seed in seeds.unwrap_or(default_seeds) {
        check_seed(seed, steps, &|| Image::boxed(mib, mkfs));
    }
}

#[test]
fn usual_blocks() {
    check_images(0..8, 48, &[]);
}

#[test]
fn a_small_journal() {
    check_images(100..106, 24, &["-s", "600", "--hash", "tea"]);
}

#[test]
fn small_blocks() {
    check_images(200..208, 24, &["-b", "1024", "--hash", "rupasov"]);
}

#[test]
fn the_smallest_blocks() {
    check_images(300..306, 16, &["-b", "512", "-s", "1100"]);
}
