//! The passes, in the order of e2fsck's.
//!
//! | Module | Pass |
//! |---|---|
//! | `metadata` | what the file system itself takes; the journal, the resize inode, backups |
//! | `inodes`, `xattrs` | 1: every inode, its fields, its blocks; extended attributes |
//! | `shared` | 1b: who owns blocks that are claimed twice |
//! | `directories`, `htree` | 2: every directory |
//! | `tree` | 3 and 4: every directory is reached; links are counted |
//! | `bitmaps` | 5: bitmaps and counts |
//! | `quota` | what quota files say, beside what pass 1 has counted |
//! | `orphans` | the list of orphans, and their file |

mod bitmaps;
mod directories;
mod htree;
mod inodes;
mod metadata;
mod orphans;
mod quota;
mod shared;
mod tree;
mod xattrs;

pub(crate) use directories::Runs;
pub(crate) use htree::looks_like_index;
pub(crate) use xattrs::inline_bytes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use finefs_block::BlockDevice;
use finefs_ext_disk::features::RoCompat;

use crate::finding::{Findings, Report};
use crate::fs::{Fs, Opened};
use crate::tables::{Claims, Dirs, Inodes, state};
use crate::{Options, work};

/// A check under way: the file system, and what the passes remember.
pub(crate) struct Check {
    pub fs: Fs,
    pub claims: Claims,
    pub inodes: Inodes,
    pub dirs: Dirs,
    pub has_shared: AtomicBool,
    pub has_large_files: AtomicBool,
    /// The shift from blocks to clusters.
    pub cluster_bits: u32,
    pub used: AtomicU32,
    /// What owners have.
    pub usage: quota::Usage,
    jobs: usize,
}

impl Check {
    /// Claims blocks for somebody; notes it when they were claimed before.
    pub fn claim(&self, block: u64, length: u64) {
        let first = block >> self.cluster_bits;
        let last = (block + length - 1) >> self.cluster_bits;
        if self.claims.claim(first, last - first + 1) > 0 {
            self.has_shared.store(true, Relaxed);
        }
    }

    /// Claims blocks that several may claim.
    pub fn claim_again(&self, block: u64, length: u64) -> bool {
        let first = block >> self.cluster_bits;
        let last = (block + length - 1) >> self.cluster_bits;
        self.claims.claim(first, last - first + 1) > 0
    }

    pub fn share<S: Send>(
        &self,
        count: usize,
        new: impl Fn() -> S + Sync,
        each: impl Fn(&mut S, u64) + Sync,
    ) -> Vec<S> {
        work::share(self.jobs, count as u64, new, each)
    }
}

/// A check that has come to its end.
pub(crate) struct Checked {
    pub report: Report,
    /// What the passes found out; `None` where there was no file system to speak of.
    pub check: Option<Check>,
}

/// Checks.
pub(crate) fn run(device: &Arc<dyn BlockDevice>, options: &Options) -> Result<Checked, String> {
    let mut found = Findings::default();
    let name = device.describe();
    let fs = match Fs::open(device, options.journal.as_ref(), &mut found)? {
        Opened::Fs(fs) => *fs,
        Opened::Hopeless => {
            return Ok(Checked {
                report: Report::new(name, found),
                check: None,
            });
        }
    };
    let cluster_bits = fs.geo.cluster_ratio.trailing_zeros();
    let mut check = Check {
        claims: Claims::new((fs.geo.blocks_count >> cluster_bits) + 1)?,
        inodes: Inodes::new(fs.geo.inodes_count)?,
        dirs: Dirs::new(Vec::new()),
        has_shared: AtomicBool::new(false),
        has_large_files: AtomicBool::new(false),
        used: AtomicU32::new(0),
        usage: quota::Usage::default(),
        jobs: options.jobs.max(1),
        cluster_bits,
        fs,
    };
    metadata::check(&check, &mut found);
    let (numbers, usage) = inodes::check(&check, &mut found);
    check.dirs = Dirs::new(numbers);
    check.usage = usage;
    let may_share = check.fs.has_ro(RoCompat::SHARED_BLOCKS);
    if check.has_shared.load(Relaxed) && !may_share {
        shared::check(&check, &mut found);
    }
    orphans::check(&check, &mut found);
    directories::check(&check, &mut found);
    tree::check(&check, &mut found);
    let totals = bitmaps::check(&check, &mut found);
    quota::check(&check, &mut found);
    let mut report = Report::new(name, found);
    report.inodes = u64::from(check.fs.geo.inodes_count);
    report.inodes_used = report.inodes - totals.free_inodes;
    report.blocks = check.fs.geo.blocks_count;
    report.blocks_used = report.blocks.saturating_sub(totals.free_blocks);
    report.directories = check.dirs.list.len() as u64;
    report.replayed_transactions = check.fs.transactions;
    Ok(Checked {
        report,
        check: Some(check),
    })
}

impl Check {
    /// Whether an inode is in use.
    pub fn is_used(&self, ino: u32) -> bool {
        self.inodes.is(ino, state::USED)
    }
}
