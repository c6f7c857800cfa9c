//! Random operations of all kinds on finefs and on the kernel's ext4 at the same time: what comes
//! of each must be the same.
//!
//! | module | what it is about |
//! |---|---|
//! | [`operation`] | one step as plain data |
//! | [`generate`], [`values`] | random steps, and the values that they are made from |
//! | [`execute`], [`directories`], [`mapping`] | doing a step on one side |
//! | [`outcome`] | what comes of a step |
//! | [`users`] | acting as another user |
//! | [`look`] | what an inode or a tree looks like, and how two differ |
//! | [`clock`] | when times agree |
//! | [`deviations`] | the table of what may differ |
//! | [`lockstep`] | the process that works |
//! | `minimise` | fewer steps that lead to the same difference |
//!
//! A run has rounds. In each, both images are mounted, and processes work in trees of their own:
//! each does one step at a time on both sides and compares what came of it, the attributes of what
//! it has touched, and now and then its whole tree, also with the kernel's caches dropped. At the
//! end of a round both sides are looked at once more and unmounted; e2fsck must find nothing on
//! finefs's image, and the kernel's own read-only mount of it must show the same.

pub mod clock;
pub mod deviations;
pub mod directories;
pub mod execute;
pub mod generate;
pub mod lockstep;
pub mod look;
pub mod mapping;
mod minimise;
pub mod operation;
pub mod outcome;
pub mod users;
pub mod values;

use crate::report::Report;
use anyhow::{Context, Result, bail, ensure};
use clock::{Clock, Nanoseconds};
use finefs_harness::cleanup::Scratch;
use finefs_harness::run;
use finefs_harness::server::{self, Kind, Mount, Server, What};
use finefs_harness::sets::{self, TimeRange};
use look::{Relation, Tree};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

/// How much.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Operations in all, shared by the images
    #[arg(long, default_value_t = 10_000)]
    operations: u64,
    /// Only these images; all without it
    #[arg(long)]
    image: Vec<String>,
    /// Processes that work at the same time
    #[arg(long, default_value_t = 1)]
    processes: u64,
    /// Operations of a process between two mounts
    #[arg(long, default_value_t = 2500)]
    round: u64,
    /// Options of finefs's mount besides
    #[arg(long)]
    option: Vec<String>,
    /// Leave images and logs here when something differs
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Find fewer steps of this log that lead to a difference, on one image
    #[arg(long)]
    minimise: Option<PathBuf>,
}

/// A feature set that is run.
struct Set {
    /// Its name in [`sets::SETS`].
    name: &'static str,
    /// Features that the kernel's image lacks where this kernel cannot write such images: nothing
    /// that a step can see hangs on them.
    spared: Option<&'static [&'static str]>,
    /// What chattr(1) makes of the directory in which a worker works.
    tops: &'static [&'static str],
}

const fn plain(name: &'static str) -> Set {
    Set {
        name,
        spared: None,
        tops: &[],
    }
}

/// The feature sets that are run.
const SETS: &[Set] = &[
    plain("ext4"),
    plain("ext4-1k"),
    plain("ext3"),
    plain("ext2"),
    plain("ext4-inode128"),
    // All is of one project, and users come by chown. e2fsck compares what is counted for each with
    // its own count.
    Set {
        spared: Some(&["-O", "^quota,^project", "-E", "quotatype=usrquota"]),
        tops: &["-p", "7", "+P"],
        ..plain("ext4-quota")
    },
    Set {
        tops: &["+F"],
        ..plain("ext4-casefold")
    },
];
const IMAGE_MIB: u64 = 96;
const WORKER_LIMIT: Duration = Duration::from_secs(1200);
/// Below the mount, so that nothing leads out of it.
const DEPTH: &str = "down/down/down";

/// Runs all images.
pub fn run(
    server: &Server,
    parent: &Path,
    options: &Options,
    seed: u64,
    report: &mut Report,
) -> Result<()> {
    let mut chosen: Vec<&Set> = SETS.iter().collect();
    if !options.image.is_empty() {
        let find = |name: &String| {
            let names: Vec<&str> = SETS.iter().map(|set| set.name).collect();
            let found = SETS.iter().find(|set| set.name == name);
            found.with_context(|| format!("no image {name:?}; there are {}", names.join(", ")))
        };
        chosen = options.image.iter().map(find).collect::<Result<_>>()?;
    }
    let name = |set: &Set| format!("differential/{}, {} processes", set.name, options.processes);
    let mut runnable = Vec::new();
    for set in chosen {
        match sets::find(set.name)?.is_known_to_the_kernel() {
            true => runnable.push(set),
            false => report.skip(&name(set), "this kernel cannot mount such images"),
        }
    }
    let count = runnable.len() as u64;
    for set in runnable {
        let operations = options.operations / count;
        report.proof(&name(set), || {
            let pair = Pair::new(server, parent, options, set, seed)?;
            match &options.minimise {
                Some(log) => minimise::run(&pair, log),
                None => pair.rounds(operations),
            }
        });
    }
    Ok(())
}

/// The tree of the first worker in a mount.
fn tree_of(mount: &Mount) -> PathBuf {
    mount.dir().join("worker0").join(DEPTH)
}

/// Beside the directories of a worker's tree, to be written when all is to be written.
const SYNCED: &str = "../../../synced";

/// Longer than the kernel keeps attributes that a commit changes.
const SETTLED_AFTER: Duration = Duration::from_millis(1100);

/// Everything is written to the images, and read from them next; `roots` are those of a worker. The
/// kernel does not pass syncfs(2) on to FUSE servers, and finefs writes nothing for a file that is
/// written already: fsync(2) of one that was just changed writes what came before, too. What the
/// kernel was told before that of sizes that a commit settles it keeps for a second.
fn write_out(roots: [BorrowedFd<'_>; 2]) -> Result<()> {
    for root in roots {
        directories::unlock(root);
        let flags = OFlags::WRONLY | OFlags::CREATE;
        let synced = rustix::fs::openat(root, SYNCED, flags, Mode::from(0o644))?;
        rustix::io::write(&synced, b"x")?;
        rustix::fs::fsync(&synced)?;
        rustix::fs::syncfs(root)?;
    }
    std::thread::sleep(SETTLED_AFTER);
    // An inode that was used lately only loses the mark of that at first.
    for _ in 0..2 {
        std::fs::write("/proc/sys/vm/drop_caches", "3")?;
    }
    Ok(())
}

/// True where this kernel can write such images.
fn is_writable(image: &Path, scratch: &Scratch) -> Result<bool> {
    let kernel = Server::new(Kind::Kernel, None)?;
    let mounted = kernel.mount(What::Image(image), &scratch.subdir("kernel")?, &[]);
    mounted.map_or(Ok(false), |mount| mount.unmount().map(|_| true))
}

/// Two images that were the same at first, but perhaps for [`Set::spared`].
struct Pair<'a> {
    server: &'a Server,
    options: &'a Options,
    scratch: Scratch,
    seed: u64,
    since: Nanoseconds,
    unit_ns: Nanoseconds,
    block: u64,
    has_extents: bool,
    set: &'static Set,
    /// True when the kernel's image does without some features.
    is_spared: bool,
}

/// A pair in its mounts.
struct Mounted {
    kernel: Mount,
    finefs: Mount,
}

impl Mounted {
    fn unmount(self) -> Result<()> {
        self.kernel.unmount()?;
        self.finefs.unmount()?;
        Ok(())
    }
}

impl<'a> Pair<'a> {
    fn new(
        server: &'a Server,
        parent: &Path,
        options: &'a Options,
        set: &'static Set,
        seed: u64,
    ) -> Result<Self> {
        let scratch = Scratch::new_in(parent)?;
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755))?;
        let since = clock::now();
        let found = sets::find(set.name)?;
        let by_kernel = scratch.path().join("kernel.img");
        found.make_image(&by_kernel, IMAGE_MIB)?;
        std::fs::copy(&by_kernel, scratch.path().join("finefs.img"))?;
        let spared = match set.spared {
            Some(arguments) if !is_writable(&by_kernel, &scratch)? => Some(arguments),
            _ => None,
        };
        if let Some(arguments) = spared {
            // In one second: lost+found has the time of mke2fs.
            let second = || UNIX_EPOCH.elapsed().map(|time| time.as_secs());
            let mut began = None;
            while began.is_none() || began != second().ok() {
                began = second().ok();
                found.make_image(&scratch.path().join("finefs.img"), IMAGE_MIB)?;
                found.make_image_with(&by_kernel, IMAGE_MIB, arguments)?;
            }
        }
        let unit_ns = match found.times {
            TimeRange::Nanoseconds34Bit => 0,
            TimeRange::Seconds32Bit => 1_000_000_000,
        };
        let block = if found.mke2fs.contains(&"1024") {
            1024
        } else {
            4096
        };
        let has_extents = found.mke2fs.contains(&"ext4");
        Ok(Self {
            server,
            options,
            scratch,
            seed,
            since,
            unit_ns,
            block,
            has_extents,
            set,
            is_spared: spared.is_some(),
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn mount(&self) -> Result<Mounted> {
        let kernel = Server::new(Kind::Kernel, None)?;
        let mut options = vec!["allow_other", "suid", "dev"];
        options.extend(self.options.option.iter().map(String::as_str));
        let (by_kernel, by_finefs) = (self.path("kernel.img"), self.path("finefs.img"));
        Ok(Mounted {
            kernel: kernel.mount(
                What::Image(&by_kernel),
                &self.scratch.subdir("kernel")?,
                &[],
            )?,
            finefs: self.server.mount(
                What::Image(&by_finefs),
                &self.scratch.subdir("finefs")?,
                &options,
            )?,
        })
    }

    fn rounds(&self, operations: u64) -> Result<String> {
        let outcome = self.all_rounds(operations);
        if let (Err(_), Some(keep)) = (&outcome, &self.options.keep) {
            std::fs::create_dir_all(keep)?;
            for entry in std::fs::read_dir(self.scratch.path())? {
                let entry = entry?;
                if entry.file_type()?.is_file() {
                    std::fs::copy(entry.path(), keep.join(entry.file_name()))?;
                }
            }
        }
        outcome
    }

    fn all_rounds(&self, operations: u64) -> Result<String> {
        let each = (operations / self.options.processes).max(1);
        let rounds = each.div_ceil(self.options.round);
        let mut left = each;
        let mut said = String::new();
        for round in 0..rounds {
            let now = left.min(self.options.round);
            left -= now;
            said = self
                .round(round, now)
                .with_context(|| format!("in round {round}"))?;
        }
        let beside = match self.is_spared {
            true => ", beside an image without some features",
            false => "",
        };
        Ok(format!(
            "{} operations in {rounds} rounds{beside} {said}",
            each * self.options.processes
        ))
    }

    fn round(&self, round: u64, operations: u64) -> Result<String> {
        let mounted = self.mount()?;
        for worker in 0..self.options.processes {
            self.make_directories(&format!("worker{worker}"))?;
        }
        let said = self.work(round, operations)?;
        // Both sides before and after the caches are dropped, and after the unmount.
        let see = |mount: &Mount| -> Result<Tree> {
            let mut tree = look::tree(File::open(mount.dir())?.as_fd())?;
            tree.retain(|path, _| !path.0.ends_with(b"/synced"));
            Ok(tree)
        };
        let clock = Clock::new(self.since, self.unit_ns);
        let beside = Relation::Beside(&clock);
        let (kernel, finefs) = (see(&mounted.kernel)?, see(&mounted.finefs)?);
        self.expect("at the end", &kernel, &finefs, beside)?;
        let roots = [
            File::open(tree_of(&mounted.kernel))?,
            File::open(tree_of(&mounted.finefs))?,
        ];
        write_out([roots[0].as_fd(), roots[1].as_fd()])?;
        drop(roots);
        let (written, uncached) = (see(&mounted.kernel)?, see(&mounted.finefs)?);
        deviations::settle(true);
        let settled = self.expect("with the caches dropped", &written, &uncached, beside);
        deviations::settle(false);
        settled?;
        let again = Relation::Again;
        self.expect("finefs with caches and without", &finefs, &uncached, again)?;
        mounted.unmount()?;
        sets::fsck(&self.path("finefs.img"))?;
        sets::fsck(&self.path("kernel.img"))?;
        let judge = server::judge(&self.path("finefs.img"), &self.scratch.subdir("judge")?)?;
        let judged = see(&judge)?;
        judge.unmount()?;
        deviations::settle(true);
        let same = self.expect(
            "the kernel's mount of finefs's image, and finefs",
            &judged,
            &uncached,
            Relation::Again,
        );
        deviations::settle(false);
        same.map(|()| said)
    }

    fn expect(&self, when: &str, a: &Tree, b: &Tree, relation: Relation<'_>) -> Result<()> {
        let found = look::compare_trees(a, b, relation);
        if found.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = found.iter().take(10).map(ToString::to_string).collect();
        bail!("{when}: {} differences\n{}", found.len(), lines.join("\n"))
    }

    /// Makes the directories that a worker works in, on both sides.
    fn make_directories(&self, tree: &str) -> Result<()> {
        for side in ["kernel", "finefs"] {
            let dir = self.path(side).join(tree).join(DEPTH);
            let is_new = !dir.exists();
            std::fs::create_dir_all(&dir)?;
            std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777))?;
            let is_spared = self.is_spared && side == "kernel";
            if is_new && !is_spared && !self.set.tops.is_empty() {
                run::ok(run::cmd("chattr", self.set.tops).arg(&dir))?;
            }
            File::options()
                .create(true)
                .append(true)
                .open(dir.join(SYNCED))?;
        }
        Ok(())
    }

    /// The command of a worker in `tree`.
    fn worker(&self, tree: &str, seed: u64, operations: u64) -> Result<Command> {
        let mut command = run::cmd(std::env::current_exe()?, ["worker", "differential"]);
        for side in ["kernel", "finefs"] {
            let dir = self.path(side).join(tree).join(DEPTH);
            command.arg(format!("--{side}")).arg(dir);
        }
        command.args(["--seed", &seed.to_string()]);
        command.args(["--operations", &operations.to_string()]);
        command.args(["--since", &self.since.to_string()]);
        command.args(["--unit-ns", &self.unit_ns.to_string()]);
        command.args(["--block", &self.block.to_string()]);
        command.args((!self.has_extents).then_some("--without-extents"));
        let folds_case = sets::find(self.set.name)?.folds_case;
        command.args(folds_case.then_some("--folds-case"));
        Ok(command)
    }

    /// Runs the workers of a round.
    fn work(&self, round: u64, operations: u64) -> Result<String> {
        let outputs: Vec<Result<run::Output>> = std::thread::scope(|scope| {
            let one = |worker: u64| {
                let seed = self.seed ^ (worker << 32) ^ (round << 40);
                let mut command = self.worker(&format!("worker{worker}"), seed, operations)?;
                command
                    .arg("--log")
                    .arg(self.path(&format!("round{round}-worker{worker}.log")));
                run::capture_with(&mut command, b"", WORKER_LIMIT)
            };
            let each: Vec<_> = (0..self.options.processes)
                .map(|worker| scope.spawn(move || one(worker)))
                .collect();
            each.into_iter()
                .map(|one| one.join().expect("a worker's thread ends"))
                .collect()
        });
        let mut said = String::new();
        for (worker, output) in outputs.into_iter().enumerate() {
            let output = output?;
            ensure!(
                !output.timed_out,
                "worker {worker} did not end within {WORKER_LIMIT:?}"
            );
            ensure!(
                output.status.success(),
                "worker {worker}: {}",
                output.both()
            );
            said = output.stdout.replace('\n', "; ");
        }
        Ok(said)
    }
}
