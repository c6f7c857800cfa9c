//! The programs that work in a mount. Each gets an empty directory in it, checks its own outcome as
//! far as it can, and leaves its files behind for the comparison with the kernel's view.

pub mod dbench;
mod fill;
mod fio;
mod git;
mod postmark;
mod sqlite;
mod storm;
mod tree_copy;

pub use dbench::LOAD as DBENCH_LOAD;
pub use postmark::{Counts, Shape, run_processes as run_postmark};
pub use storm::{many_worker, storm_worker};

use crate::sets::{FeatureSet, Room};
use crate::tree::{Plan, Tree};
use anyhow::{Context, Result};
use std::path::Path;
use std::time::{Duration, Instant};

/// How much work to do.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Size of a normal image in MiB; images are sparse files.
    pub image_mib: u64,
    /// Files in the tree.
    pub tree_files: usize,
    /// Largest ordinary file of the tree.
    pub tree_max_size: u64,
    /// PostMark with one process.
    pub postmark1: Shape,
    /// PostMark in each of 8 processes.
    pub postmark8: Shape,
    /// dbench's time limit in seconds.
    pub dbench_seconds: u64,
    /// Data of each fio job in MiB.
    pub fio_mib: u64,
    /// How many of the tree's four parts git commits.
    pub git_parts: usize,
    /// Transactions of each sqlite writer.
    pub sqlite_transactions: usize,
    /// Operations of each of the storm's 8 workers.
    pub storm_operations: usize,
    /// Names in one directory.
    pub many_names: usize,
    /// Size of the image that is filled to ENOSPC, in MiB.
    pub fill_mib: u64,
}

/// As the issue states it.
pub const FULL: Size = Size {
    image_mib: 2048,
    tree_files: 15_000,
    tree_max_size: 1 << 20,
    postmark1: Shape {
        files: 5000,
        transactions: 5000,
    },
    postmark8: Shape {
        files: 2500,
        transactions: 1250,
    },
    dbench_seconds: 10,
    fio_mib: 16,
    git_parts: 4,
    sqlite_transactions: 100,
    storm_operations: 3000,
    many_names: 20_000,
    fill_mib: 64,
};

/// Enough of everything for each structure to be used, in seconds.
pub const QUICK: Size = Size {
    image_mib: 768,
    tree_files: 2000,
    tree_max_size: 512 << 10,
    postmark1: Shape {
        files: 1000,
        transactions: 1000,
    },
    postmark8: Shape {
        files: 200,
        transactions: 200,
    },
    dbench_seconds: 2,
    fio_mib: 2,
    git_parts: 1,
    sqlite_transactions: 15,
    storm_operations: 500,
    many_names: 7500,
    fill_mib: 24,
};

/// What fits in 64 MiB.
const SMALL: Size = Size {
    image_mib: 64,
    tree_files: 600,
    tree_max_size: 64 << 10,
    postmark1: Shape {
        files: 500,
        transactions: 500,
    },
    postmark8: Shape {
        files: 50,
        transactions: 100,
    },
    dbench_seconds: 0,
    fio_mib: 0,
    many_names: 2000,
    fill_mib: 16,
    ..QUICK
};

impl Size {
    /// This size, brought down to what `set` has room and speed for.
    pub fn fitted(self, set: &FeatureSet) -> Self {
        let mut size = match set.room {
            Room::Normal => self,
            Room::Small => SMALL,
            Room::Large => Self {
                image_mib: 8 * self.image_mib,
                fill_mib: 8 * self.fill_mib,
                ..self
            },
        };
        if set.linear_directories {
            size.many_names = size.many_names.min(2000);
        }
        size
    }

    /// The tree that goes with it.
    pub fn tree(&self, set: &FeatureSet, seed: u64) -> Plan {
        Plan {
            files: self.tree_files,
            max_size: self.tree_max_size,
            xattr_max: set.xattr_max,
            seed,
        }
    }
}

/// Where and on what a workload works.
pub struct Work<'a> {
    /// Its own empty directory in the mount.
    pub dir: &'a Path,
    /// A directory outside of the mount.
    pub scratch: &'a Path,
    /// How much.
    pub size: &'a Size,
    /// On what image.
    pub set: &'a FeatureSet,
    /// The source tree.
    pub tree: &'a Tree,
    /// Same seed, same work.
    pub seed: u64,
}

/// A workload by name. The text that `run` returns says what was done.
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// Does the work.
    pub run: fn(&Work<'_>) -> Result<String>,
    /// True when it needs an image of its own that it fills up.
    pub fills_image: bool,
    /// False when it does not fit on the smallest image.
    pub fits_small: bool,
}

const fn workload(name: &'static str, run: fn(&Work<'_>) -> Result<String>) -> Workload {
    Workload {
        name,
        run,
        fills_image: false,
        fits_small: true,
    }
}

/// All workloads in the order in which the matrix runs them.
pub const ALL: &[Workload] = &[
    workload("postmark1", postmark::one),
    workload("postmark8", postmark::eight),
    Workload {
        fits_small: false,
        ..workload("dbench", dbench::run)
    },
    Workload {
        fits_small: false,
        ..workload("fio", fio::run)
    },
    workload("tree", tree_copy::run),
    workload("git", git::run),
    workload("sqlite", sqlite::run),
    workload("storm", storm::run),
    Workload {
        fills_image: true,
        ..workload("fill", fill::run)
    },
];

/// The workload called `name`.
pub fn find(name: &str) -> Result<&'static Workload> {
    ALL.iter()
        .find(|workload| workload.name == name)
        .with_context(|| {
            let names: Vec<&str> = ALL.iter().map(|workload| workload.name).collect();
            format!("no workload {name:?}; there are: {}", names.join(", "))
        })
}

/// Fails unless `dir` is empty, or becomes so when libfuse has removed what it only hid: a file
/// that is unlinked before the kernel has passed on its last close is renamed to `.fuse_hidden...`
/// until then.
fn expect_empty(dir: &Path) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let left: Vec<_> = std::fs::read_dir(dir)?
            .map(|entry| Ok(entry?.file_name()))
            .collect::<std::io::Result<_>>()?;
        let hidden =
            |name: &std::ffi::OsString| name.as_encoded_bytes().starts_with(b".fuse_hidden");
        if left.is_empty() {
            return Ok(());
        }
        let may_go = left.iter().all(hidden) && Instant::now() < deadline;
        anyhow::ensure!(may_go, "{}: these are left: {left:?}", dir.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}
