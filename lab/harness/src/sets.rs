//! The mkfs feature sets that the matrix runs, and the making and checking of images.

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
}

const BASE: FeatureSet = FeatureSet {
    name: "",
    mke2fs: &[],
    times: TimeRange::Nanoseconds34Bit,
    xattr_max: 2000,
    linear_directories: false,
    room: Room::Normal,
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
        run::ok(run::cmd(tools::program("mke2fs"), args).arg(path))?;
        Ok(())
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
    e2fsck(image)?;
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(image, Access::Inspect)?);
    let report = finefs_check::check(&device, &finefs_check::Options::default());
    let report = report.map_err(anyhow::Error::msg)?;
    ensure!(
        report.clean,
        "e2fsck finds nothing, finefs check does:\n{report}"
    );
    Ok(())
}

/// The same of e2fsck alone: for images that were damaged, in which it leaves what finefs does not.
pub fn e2fsck(image: &Path) -> Result<()> {
    ensure!(image.exists(), "{}: no image", image.display());
    let output = run::capture(run::cmd(tools::program("e2fsck"), ["-fn"]).arg(image))?;
    if output.code() != 0 || output.timed_out {
        bail!(
            "e2fsck -fn ended with {}:\n{}",
            output.code(),
            run::tail(&output.both())
        );
    }
    Ok(())
}
