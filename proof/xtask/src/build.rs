//! `prove build`: images that finefs builds, as other programs see them.
//!
//! A tree with everything that files can have is built into an image: e2fsck finds nothing, the
//! kernel mounts it, GNU tar and a comparison of all that stat(2) and xattr(7) tell find the
//! tree in it, and the files that mke2fs puts into an image of its own are the same. Built
//! again with other numbers of threads, in other time zones and under other umasks, it is the
//! same bytes. A large archive from a pipe is built within a limit on memory that the kernel
//! enforces, and one file of a large image is shown after a few reads of it.

use crate::report::Report;
use anyhow::{Context, Result, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::compare::{self, Relation};
use finefs_harness::rng::Rng;
use finefs_harness::run;
use finefs_harness::server::{Kind, Server, What};
use finefs_harness::sets::{self, TimeRange};
use finefs_harness::snapshot::Snapshot;
use finefs_harness::tools;
use finefs_harness::tree::{Plan, Tree};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// The archive that is built within the limit on memory, in MiB
    #[arg(long, default_value_t = 10_240)]
    archive_mib: u64,
}

/// What a process may have of memory of its own (RLIMIT_DATA).
const DATA_BYTES: u64 = 512 << 20;
const PART_MIB: u64 = 64;
/// What may be read before one file of an image of 2 GiB is shown.
const READ_BYTES_MAX: u64 = 1 << 20;
const LIMIT: Duration = Duration::from_secs(1800);

const PLAN: Plan = Plan {
    files: 2000,
    max_size: 256 << 10,
    xattr_max: 500,
    seed: 22,
};

/// Runs the proofs.
pub fn run(finefs: &Path, parent: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let proof = Proof {
        scratch: Scratch::new_in(parent)?,
        finefs,
    };
    let tree = proof.scratch.path().join("tree");
    Tree::make(&tree, PLAN)?;
    report.proof("build/as the tree", || proof.as_the_tree(&tree));
    report.proof("build/as mke2fs -d", || proof.as_mke2fs(&tree));
    report.proof("build/the same bytes", || proof.the_same_bytes(&tree));
    report.proof("build/cat reads little", || proof.cat_reads_little(&tree));
    let name = format!("build/{} MiB from a pipe", options.archive_mib);
    report.proof(&name, || proof.in_memory(options.archive_mib));
    Ok(())
}

struct Proof<'a> {
    scratch: Scratch,
    finefs: &'a Path,
}

impl Proof<'_> {
    fn image(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A new image of the tree, which e2fsck finds clean.
    fn build(&self, name: &str, tree: &Path, more: &[&str]) -> Result<PathBuf> {
        let image = self.image(name);
        let mut build = run::cmd(self.finefs, ["build", "--quiet", "--force"]);
        run::ok(build.args(more).arg(&image).arg(tree))?;
        sets::fsck(&image)?;
        Ok(image)
    }

    /// Does something with what the kernel mounts.
    fn mounted<T>(&self, image: &Path, look: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let dir = self.scratch.subdir("mnt")?;
        let kernel = Server::new(Kind::Kernel, Some(self.finefs))?;
        let mount = kernel.mount(What::Image(image), &dir, &["ro"])?;
        let seen = look(&dir)?;
        mount.unmount()?;
        Ok(seen)
    }

    fn as_the_tree(&self, tree: &Path) -> Result<String> {
        let image = self.build("image", tree, &[])?;
        let source = as_built(Snapshot::take(tree)?);
        self.mounted(&image, |dir| {
            let built = Snapshot::take(dir)?;
            let relation = Relation::Copy(TimeRange::Nanoseconds34Bit);
            compare::expect_equal(("the tree", &source), ("the image", &built), relation)?;
            let script = "tar -C \"$1\" --xattrs --acls --sparse -cf - . | \
                          tar -C \"$2\" --numeric-owner --compare -f -";
            let mut shell = run::cmd("sh", ["-c", script, "sh"]);
            let output = run::ok(shell.arg(tree).arg(dir))?;
            // A socket is in no archive.
            let told = output.both();
            let mut lines = told.lines().filter(|line| !line.contains("socket ignored"));
            ensure!(lines.next().is_none(), "tar --compare: {told}");
            Ok(format!("{} entries", source.entries.len()))
        })
    }

    /// mke2fs leaves out parts of seconds and the years after 2038, and takes some access times
    /// from elsewhere.
    fn as_mke2fs(&self, tree: &Path) -> Result<String> {
        let ours = self.build("image", tree, &[])?;
        let theirs = self.image("mke2fs");
        let mut mke2fs = run::cmd(tools::program("mke2fs"), ["-q", "-F", "-t", "ext4", "-d"]);
        run::ok(mke2fs.arg(tree).arg(&theirs).arg("1g"))?;
        let mut ours = as_built(self.mounted(&ours, Snapshot::take)?);
        let theirs = as_built(self.mounted(&theirs, Snapshot::take)?);
        for entry in ours.entries.values_mut() {
            entry.mtime = (i64::from(entry.mtime.0 as i32), 0);
            entry.atime = entry.mtime;
        }
        let relation = Relation::Copy(TimeRange::Seconds32Bit);
        compare::expect_equal(("finefs", &ours), ("mke2fs", &theirs), relation)?;
        Ok(format!("{} entries", ours.entries.len()))
    }

    fn the_same_bytes(&self, tree: &Path) -> Result<String> {
        let first = self.build("image", tree, &["--jobs", "1"])?;
        let again = self.image("again");
        for (jobs, zone, mask) in [
            ("1", "America/New_York", "077"),
            ("2", "Asia/Tokyo", "0"),
            ("4", "UTC", "027"),
        ] {
            let script = "umask \"$1\"; shift; exec \"$@\"";
            let mut shell = run::cmd("sh", ["-c", script, "sh", mask]);
            shell
                .arg(self.finefs)
                .args(["build", "-q", "-F", "--jobs", jobs]);
            run::ok(shell.arg(&again).arg(tree).env("TZ", zone))?;
            run::ok(&mut run::cmd("cmp", [&first, &again]))?;
        }
        Ok("1, 2 and 4 jobs".to_owned())
    }

    /// What a shell and the command in it have read, as the kernel counts it.
    fn cat_reads_little(&self, tree: &Path) -> Result<String> {
        let image = self.build("large", tree, &["--size", "2g"])?;
        std::fs::write(self.image("small"), "shown")?;
        let operand = format!("{}:/small", image.display());
        run::ok(
            run::cmd(self.finefs, ["cp"])
                .arg(self.image("small"))
                .arg(&operand),
        )?;
        let script = "\"$1\" cat \"$2\"; echo; cat /proc/$$/io";
        let mut shell = run::cmd("sh", ["-c", script, "sh"]);
        let told = run::ok(shell.arg(self.finefs).arg(&operand))?.stdout;
        ensure!(told.starts_with("shown\n"), "{told}");
        let count = told.lines().find_map(|line| line.strip_prefix("rchar: "));
        let bytes: u64 = count.context("no rchar")?.parse()?;
        ensure!(
            bytes <= READ_BYTES_MAX,
            "{bytes} bytes were read to show a file of 5"
        );
        Ok(format!("{} KiB", bytes >> 10))
    }

    /// Data by chance, so that it is neither packed nor made holes of.
    fn in_memory(&self, mebibytes: u64) -> Result<String> {
        let source = self.scratch.subdir("parts")?;
        let first = source.join("0");
        std::fs::write(&first, Rng::new(22).bytes((PART_MIB << 20) as usize))?;
        let parts = mebibytes.div_ceil(PART_MIB);
        for number in 1..parts {
            std::fs::hard_link(&first, source.join(number.to_string()))?;
        }
        let image = self.image("from-pipe");
        let script = "tar -C \"$1\" --hard-dereference -cf - . | \
                      prlimit --data=\"$2\" \"$3\" build -q -F \"$4\" -";
        let mut shell = run::cmd("sh", ["-c", script, "sh"]);
        shell.arg(&source).arg(DATA_BYTES.to_string());
        shell.arg(self.finefs).arg(&image);
        let output = run::capture_with(&mut shell, b"", LIMIT)?;
        run::expect_ok("finefs build", output)?;
        sets::fsck(&image)?;
        let last = format!("{}:/{}", image.display(), parts - 1);
        let mut compare = run::cmd("sh", ["-c", "\"$1\" cat \"$2\" | cmp - \"$3\"", "sh"]);
        run::ok(compare.arg(self.finefs).arg(last).arg(&first))?;
        Ok(format!("{parts} files within {} MiB", DATA_BYTES >> 20))
    }
}

/// Access times of images that are built are those of change.
fn as_built(mut tree: Snapshot) -> Snapshot {
    for entry in tree.entries.values_mut() {
        entry.atime = entry.mtime;
    }
    tree
}
