//! Checks images of ext2, ext3 and ext4, repairs what can be repaired safely, and resizes them.
//!
//! # Purpose
//! [`check`] is what `e2fsck -fn` is: it reads everything that the format says about itself and
//! reports each contradiction as a [`Finding`]; it writes nothing. Groups, and then directories,
//! are shared out among threads. A journal that must be replayed is read as replayed.
//!
//! | Module | Thing |
//! |---|---|
//! | [`finding`] | what can be wrong, and the report |
//! | `source` | the bytes of the image, journal replayed in memory |
//! | `fs` | superblock, geometry and group descriptors, as far as they can be believed |
//! | `tables` | what the passes remember: a bit for each block, 12 bytes for each inode |
//! | `walk` | the blocks of an inode, by extents or by pointers, each fault told and passed over |
//! | `work` | sharing out among threads |
//! | `mmp` | other hosts are kept away while an image is changed |
//! | `pass` | the passes |
//! | [`mod@dump`] | what lies on an image, in words |
//! | [`mod@tune`] | what may be changed in the superblock |
//! | [`mod@repair`] | putting right what is wrong, in memory first |
//! | [`mod@resize`] | growing and shrinking, as safely |
//!
//! # Data model
//! The tables are shared by all threads and consist of atomic numbers. Their pages come into being
//! when they are touched. Everything else is a thread's own until its pass ends.
//!
//! # Invariants
//! 1. Nothing that the image says is believed before it is checked; loops are cut by budgets, so
//!    no image makes a check run without end.
//! 2. Where e2fsck finds something to correct, there is a finding that is an error; where it finds
//!    nothing, there is none.
//! 3. The findings do not depend on the number of threads.
//!
//! # Locking
//! None, but for the pages of a repair (`check.shadow`, 94).
//!
//! # References
//! e2fsprogs' e2fsck for what is wrong and what is only remarkable;
//! Linux `Documentation/filesystems/ext4/`.
#![forbid(unsafe_code)]

pub mod dump;
pub mod finding;
mod fs;
mod mmp;
mod pass;
pub mod repair;
pub mod resize;
mod source;
mod tables;
pub mod tune;
mod walk;
mod work;

use std::sync::Arc;

use finefs_block::BlockDevice;

pub use finding::{Finding, Object, Problem, Remedy, Report};

/// How an image is checked.
#[derive(Clone)]
pub struct Options {
    /// Threads; at least one.
    pub jobs: usize,
    /// The device that the journal lies on, where that is not the image's own.
    pub journal: Option<Arc<dyn BlockDevice>>,
    /// What a repair decides about data besides what is safe; of [`repair::NAMED`].
    pub also: Vec<Problem>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            journal: None,
            also: Vec::new(),
        }
    }
}

/// Checks an image. An error means that there is nothing to check: no ext2/3/4 file system, one
/// with features that are not known, or a device that cannot be read.
pub fn check(device: &Arc<dyn BlockDevice>, options: &Options) -> Result<Report, String> {
    let mut report = pass::run(device, options)?.report;
    mmp::note_use(device, &mut report);
    Ok(report)
}
