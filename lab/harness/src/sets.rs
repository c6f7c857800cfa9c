//! The mkfs feature sets that the matrix runs, and the making and checking of images.

use crate::journal;
use crate::run;
use crate::tools;
use anyhow::{Context, Result, bail, ensure};
use finefs_block::{Access, BlockDevice, FileDevice};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// How times come back from an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeRange {
    /// Nanoseconds, years 1901 to 2446 (inodes with the extra fields).
    Nanoseconds34Bit,
    /// Whole seconds, years 1901 to 2038 (inodes of 128 bytes).
    Seconds32Bit,
}

/// How much data a set takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// A normal image.
    Normal,
    /// An image of 64 MiB: every workload in its smallest size.
    Small,
    /// An image of eight times the size: even small files take much.
    Large,
}

/// One set of mkfs features.
#[derive(Clone, Copy, Debug)]
pub struct FeatureSet {
    /// The name on the command line and in reports.
    pub name: &'static str,
    /// Arguments of mke2fs.
    pub mke2fs: &'static [&'static str],
    /// What times survive.
    pub times: TimeRange,
    /// Largest xattr value to store: all of one inode's must fit in one block.
    pub xattr_max: usize,
    /// True when directories have no index, so huge ones are slow in any server.
    pub linear_directories: bool,
    /// Its size class.
    pub room: Room,
    /// Only these workloads, where each mount takes long; all where this is empty.
    pub workloads: &'static [&'static str],
    /// What only kernels have that can mount such an image; `None` where all can.
    pub kernel_has: Option<&'static str>,
    /// True when directories that workloads work in fold case.
    pub folds_case: bool,
    /// The block size of the journal, where that is a file beside the image ([`journal::beside`]).
    pub journal_block: Option<&'static str>,
}

const BASE: FeatureSet = FeatureSet {
    name: "",
    mke2fs: &[],
    times: TimeRange::Nanoseconds34Bit,
    xattr_max: 2000,
    linear_directories: false,
    room: Room::Normal,
    workloads: &[],
    kernel_has: None,
    folds_case: false,
    journal_block: None,
};

/// The matrix.
pub const SETS: &[FeatureSet] = &[
    FeatureSet {
        name: "ext4",
        mke2fs: &["-t", "ext4", "-b", "4096"],
        ..BASE
    },
    FeatureSet {
        name: "ext4-1k",
        mke2fs: &["-t", "ext4", "-b", "1024"],
        xattr_max: 600,
        ..BASE
    },
    FeatureSet {
        name: "ext4-2k",
        mke2fs: &["-t", "ext4", "-b", "2048"],
        xattr_max: 1500,
        ..BASE
    },
    FeatureSet {
        name: "ext4-upstream",
        mke2fs: &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "metadata_csum_seed,orphan_file",
        ],
        ..BASE
    },
    FeatureSet {
        name: "ext3",
        mke2fs: &["-t", "ext3", "-b", "4096"],
        ..BASE
    },
    FeatureSet {
        name: "ext2",
        mke2fs: &["-t", "ext2", "-b", "4096"],
        ..BASE
    },
    FeatureSet {
        name: "ext2-1k-linear",
        mke2fs: &["-t", "ext2", "-b", "1024", "-O", "^dir_index,^resize_inode"],
        xattr_max: 600,
        linear_directories: true,
        ..BASE
    },
    FeatureSet {
        name: "ext4-uninit_bg",
        mke2fs: &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,uninit_bg"],
        ..BASE
    },
    FeatureSet {
        name: "ext4-indirect",
        mke2fs: &["-t", "ext4", "-b", "4096", "-O", "^extents,^64bit,^flex_bg"],
        ..BASE
    },
    FeatureSet {
        name: "ext4-nojournal",
        mke2fs: &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
        ..BASE
    },
    FeatureSet {
        name: "ext4-inode128",
        mke2fs: &["-t", "ext4", "-b", "4096", "-I", "128"],
        times: TimeRange::Seconds32Bit,
        ..BASE
    },
    FeatureSet {
        name: "ext4-small",
        mke2fs: &["-t", "ext4"],
        xattr_max: 600,
        room: Room::Small,
        ..BASE
    },
    FeatureSet {
        name: "ext2-nofiletype",
        mke2fs: &[
            "-t",
            "ext2",
            "-b",
            "1024",
            "-I",
            "128",
            "-O",
            "^filetype,^sparse_super,^resize_inode",
        ],
        times: TimeRange::Seconds32Bit,
        xattr_max: 600,
        ..BASE
    },
    FeatureSet {
        name: "ext4-inodes",
        mke2fs: &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "inline_data,ea_inode,large_dir,stable_inodes",
        ],
        xattr_max: 20_000,
        ..BASE
    },
    FeatureSet {
        name: "ext4-quota",
        mke2fs: &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "quota,project,fast_commit",
            "-E",
            "quotatype=usrquota:grpquota:prjquota",
        ],
        ..BASE
    },
    FeatureSet {
        name: "ext4-quota-inodes",
        mke2fs: &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "quota,project,ea_inode,inline_data,orphan_file",
            "-E",
            "quotatype=usrquota:grpquota:prjquota",
        ],
        xattr_max: 20_000,
        ..BASE
    },
    FeatureSet {
        name: "ext4-bigalloc",
        mke2fs: &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"],
        ..BASE
    },
    FeatureSet {
        name: "ext4-bigalloc-1k",
        mke2fs: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "bigalloc,quota",
            "-C",
            "2048",
        ],
        xattr_max: 600,
        ..BASE
    },
    FeatureSet {
        name: "ext4-inode1024",
        mke2fs: &["-t", "ext4", "-b", "4096", "-I", "1024"],
        ..BASE
    },
    // With small blocks there are several groups of groups.
    FeatureSet {
        name: "ext4-meta_bg",
        mke2fs: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "meta_bg,sparse_super2,^resize_inode",
        ],
        xattr_max: 600,
        ..BASE
    },
    FeatureSet {
        name: "ext4-casefold",
        mke2fs: &["-t", "ext4", "-b", "4096", "-O", "casefold"],
        kernel_has: Some("/sys/fs/ext4/features/casefold"),
        folds_case: true,
        ..BASE
    },
    FeatureSet {
        name: "ext4-64k",
        mke2fs: &["-t", "ext4", "-b", "65536", "-N", "60000"],
        room: Room::Large,
        kernel_has: Some("/sys/fs/ext4/features/blocksize_gt_pagesize"),
        ..BASE
    },
    // A mount waits for 11 seconds, whatever the interval.
    FeatureSet {
        name: "ext4-mmp",
        mke2fs: &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "mmp",
            "-E",
            "mmp_update_interval=1",
        ],
        workloads: &["storm"],
        ..BASE
    },
    FeatureSet {
        name: "ext4-external",
        mke2fs: &["-t", "ext4", "-b", "4096"],
        journal_block: Some("4096"),
        ..BASE
    },
];

/// The set called `name`.
pub fn find(name: &str) -> Result<&'static FeatureSet> {
    let names: Vec<&str> = SETS.iter().map(|set| set.name).collect();
    SETS.iter()
        .find(|set| set.name == name)
        .with_context(|| format!("no set {name:?}; there are: {}", names.join(", ")))
}

impl FeatureSet {
    /// Makes an image file of `mib` MiB with these features.
    pub fn make_image(&self, path: &Path, mib: u64) -> Result<()> {
        self.make_image_with(path, mib, &[])
    }

    /// The same, with these arguments to mke2fs besides.
    pub fn make_image_with(&self, path: &Path, mib: u64, more: &[&str]) -> Result<()> {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        file.set_len(mib << 20)?;
        drop(file);
        let mut args: Vec<&str> = vec!["-q", "-F"];
        args.extend(self.mke2fs);
        args.extend(more);
        let mut command = run::cmd(tools::program("mke2fs"), args);
        let journal = self.journal_block.map(|block| journal::make(path, block));
        let journal = journal.transpose()?;
        if let Some(device) = &journal {
            let device = device.path().display();
            command.arg("-J").arg(format!("device={device}"));
        }
        run::ok(command.arg(path))?;
        Ok(())
    }

    /// True where this kernel can mount such images.
    pub fn is_known_to_the_kernel(&self) -> bool {
        self.kernel_has.is_none_or(|has| Path::new(has).exists())
    }

    /// True when the workload of this name is one for such images.
    pub fn is_for(&self, workload: &str) -> bool {
        self.workloads.is_empty() || self.workloads.contains(&workload)
    }

    /// [`fsck`] of such an image.
    pub fn fsck(&self, image: &Path) -> Result<()> {
        match self.journal_block {
            Some(_) => fsck_with(image, Some(&journal::beside(image))),
            None => fsck(image),
        }
    }
}

/// The name of reiserfs among sets, as [`make`] and [`check`] know it.
pub const REISERFS: &str = "reiserfs";

/// Makes an image file of `mib` MiB of the set called `on`, or of reiserfs.
pub fn make(on: &str, path: &Path, mib: u64) -> Result<()> {
    match on {
        REISERFS => make_reiserfs(path, mib, &[]),
        set => find(set)?.make_image(path, mib),
    }
}

/// Makes an image file of reiserfs, with these arguments to mkreiserfs.
pub fn make_reiserfs(path: &Path, mib: u64, arguments: &[&str]) -> Result<()> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    file.set_len(mib << 20)?;
    drop(file);
    let mut command = run::cmd(tools::program("mkreiserfs"), ["-q", "-q", "-f", "-f"]);
    run::ok(command.args(arguments).arg(path))?;
    Ok(())
}

/// The program that judges such an image must find nothing.
pub fn check(on: &str, image: &Path) -> Result<()> {
    match on {
        REISERFS => reiserfsck(image, None),
        _ => fsck(image),
    }
}

/// `reiserfsck --check`, which replays the journal first, must find nothing. `journal`: what that
/// lies on, where it is another device.
pub fn reiserfsck(image: &Path, journal: Option<&Path>) -> Result<()> {
    let mut check = run::cmd(tools::program("reiserfsck"), ["--check", "-y", "-q"]);
    if let Some(journal) = journal {
        check.arg("--journal").arg(journal);
    }
    let checked = run::ok(check.arg(image))?;
    let text = checked.stdout + &checked.stderr;
    ensure!(text.contains("No corruptions found"), "reiserfsck: {text}");
    Ok(())
}

/// `e2fsck -fn` must end with 0: nothing to repair; and finefs's own check must find nothing,
/// either. The error carries what was found.
pub fn fsck(image: &Path) -> Result<()> {
    fsck_with(image, None)
}

/// The same of an image whose journal lies on a file.
fn fsck_with(image: &Path, journal: Option<&Path>) -> Result<()> {
    e2fsck_with(image, journal)?;
    let open = |path: &Path| -> Result<Arc<dyn BlockDevice>> {
        Ok(Arc::new(FileDevice::open(path, Access::Inspect)?))
    };
    let options = finefs_check::Options {
        journal: journal.map(open).transpose()?,
        ..finefs_check::Options::default()
    };
    let report = finefs_check::check(&open(image)?, &options).map_err(anyhow::Error::msg)?;
    ensure!(
        report.clean,
        "e2fsck finds nothing, finefs check does:\n{report}"
    );
    Ok(())
}

/// The same of e2fsck alone: for images that were damaged, in which it leaves what finefs does not.
pub fn e2fsck(image: &Path) -> Result<()> {
    e2fsck_with(image, None)
}

fn e2fsck_with(image: &Path, journal: Option<&Path>) -> Result<()> {
    ensure!(image.exists(), "{}: no image", image.display());
    let mut command = run::cmd(tools::program("e2fsck"), ["-fn"]);
    if let Some(journal) = journal {
        command.arg("-j").arg(journal);
    }
    let output = run::capture(command.arg(image))?;
    if output.code() != 0 || output.timed_out {
        bail!(
            "e2fsck -fn ended with {}:\n{}",
            output.code(),
            run::tail(&output.both())
        );
    }
    Ok(())
}

/// Whether `e2fsck -y` says that it has put something right: by a question, or by "FIXED", as of
/// the checksum of a bitmap. A tree of extents that it makes shorter was right before. Of orphans
/// and of the sums in the superblock, which are not in the journal, it does not ask, but it does of
/// the file of orphans, out of which it takes those that it has cleared.
pub fn has_repaired(said: &str) -> bool {
    let count = |answer: &str| said.matches(answer).count();
    let taken_out = match said.contains("ing orphaned inode ") {
        true => count(" is not clean.\nClear? yes"),
        false => 0,
    };
    // A tree that it made shorter takes fewer blocks of its owner's.
    let told_to_quota = match said.contains("Optimize? yes") {
        true => said.matches("Update quota info for quota type").count(),
        false => 0,
    };
    let none = count("Optimize? yes") + taken_out + told_to_quota;
    count("? yes") > none || count("FIXED.") > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_tree_is_no_repair() {
        let shorter = "Inode 24 extent tree (at level 1) could be shorter.  Optimize? yes\n";
        let repaired = "Free blocks count wrong (1, counted=2).\nFix? yes\n";
        assert!(!has_repaired(shorter) && !has_repaired("clean"));
        assert!(has_repaired(repaired) && has_repaired(&(shorter.to_owned() + repaired)));
        let unasked = "Group 0 inode bitmap does not match checksum.\nFIXED.\n";
        assert!(has_repaired(unasked));
    }

    #[test]
    fn a_replay_is_no_repair_but_what_it_leaves_to_clear_is() {
        let replayed = "image: recovering journal\n\
                        Clearing orphaned inode 15 (uid=0, gid=0, mode=0100600, size=0)\n\
                        Setting free blocks count to 7111 (was 7112)\n\
                        image: ***** FILE SYSTEM WAS MODIFIED *****\n";
        assert!(!has_repaired(replayed));
        for question in ["Clear", "Salvage", "Connect to /lost+found"] {
            assert!(has_repaired(&format!("{replayed}{question}? yes\n")));
        }
        let file = "Orphan file (inode 12) block 0 is not clean.\nClear? yes\n";
        assert!(!has_repaired(&format!("{replayed}{file}")) && has_repaired(file));
    }
}
