//! Every workload on every feature set, each judged by e2fsck and by the kernel's own view.
//!
//! For one set: make an image; for each workload mount it by the server under test, work in a fresh
//! directory, take a snapshot, unmount; `e2fsck -fn` must find nothing, and a read-only mount by
//! the kernel must show what the snapshot says, of this workload's directory and, at the end, of
//! all. Where the kernel cannot mount such images, debugfs reads them instead.

use crate::report::Report;
use anyhow::{Context, Result};
use finefs_harness::cleanup::Scratch;
use finefs_harness::compare::{Relation, expect_equal};
use finefs_harness::dump;
use finefs_harness::journal::{self, Told};
use finefs_harness::programs::{self, Size, Work, Workload};
use finefs_harness::run;
use finefs_harness::server::{self, Kind, Mount, Server, What};
use finefs_harness::sets::{self, FeatureSet, Room};
use finefs_harness::snapshot::Snapshot;
use finefs_harness::tools;
use finefs_harness::tree::{Plan, Tree};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How the matrix is run.
pub struct Options {
    /// Who serves the mounts.
    pub server: Server,
    /// Size of the workloads.
    pub size: Size,
    /// Where images and trees are made.
    pub parent: PathBuf,
    /// Same seed, same work.
    pub seed: u64,
    /// Called with the image between the unmount and the judging; for showing that judging bites.
    pub tamper: Option<Tamper>,
}

/// Does something to an image.
pub type Tamper = Box<dyn Fn(&Path) -> Result<()> + Sync>;

/// Source trees made so far; sets with equal plans share one.
#[derive(Default)]
pub struct Trees {
    made: HashMap<(usize, u64, usize), Tree>,
    /// Where those lie whose attributes the host may not hold.
    roomy: Option<Mount>,
}

impl Trees {
    /// Attributes of up to this many bytes are held by every file system that a host may have.
    const XATTR_MAX_OF_HOSTS: usize = 2000;
    /// Larger than any tree; the image is sparse.
    const ROOMY_MIB: u64 = 4096;

    fn get(&mut self, scratch: &Scratch, plan: Plan) -> Result<&Tree> {
        let key = (plan.files, plan.max_size, plan.xattr_max);
        let place = match plan.xattr_max > Self::XATTR_MAX_OF_HOSTS {
            true => self.roomy(scratch)?,
            false => scratch.path().to_owned(),
        };
        match self.made.entry(key) {
            Entry::Occupied(made) => Ok(made.into_mut()),
            Entry::Vacant(slot) => {
                let root = place.join(format!("tree-{}-{}-{}", key.0, key.1, key.2));
                Ok(slot.insert(Tree::make(&root, plan).context("making the source tree")?))
            }
        }
    }

    /// The kernel's mount of an image with ea_inode.
    fn roomy(&mut self, scratch: &Scratch) -> Result<PathBuf> {
        if self.roomy.is_none() {
            let image = scratch.path().join("trees.img");
            sets::find("ext4-inodes")?.make_image(&image, Self::ROOMY_MIB)?;
            let kernel = Server::new(Kind::Kernel, None)?;
            let dir = scratch.subdir("trees")?;
            self.roomy = Some(kernel.mount(What::Image(&image), &dir, &[])?);
        }
        Ok(scratch.path().join("trees"))
    }
}

/// Sets that are worked on side by side: much of the time a workload waits for its own syncs.
const LANES: usize = 2;

/// Runs `workloads` on `sets`.
pub fn run(
    options: &Options,
    sets: &[&'static FeatureSet],
    workloads: &[&'static Workload],
    report: &mut Report,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let lane = || -> Result<Report> {
        let scratch = Scratch::new_in(&options.parent)?;
        let mut trees = Trees::default();
        let mut report = Report::default();
        while let Some(set) = sets.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = run_set(options, set, workloads, &scratch, &mut trees, &mut report);
            if let Err(error) = outcome {
                report.proof(&format!("{}/{}", options.server.kind, set.name), || {
                    Err(error)
                });
            }
        }
        Ok(report)
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        for lane in lanes {
            report.add(lane.join().expect("a lane does not panic")?);
        }
        Ok(())
    })
}

fn run_set(
    options: &Options,
    set: &'static FeatureSet,
    workloads: &[&'static Workload],
    scratch: &Scratch,
    trees: &mut Trees,
    report: &mut Report,
) -> Result<()> {
    if let Some(why) = unserved(options.server.kind, set) {
        report.skip(&format!("{}/{}", options.server.kind, set.name), why);
        return Ok(());
    }
    let size = options.size.fitted(set);
    let mut image = Image::new(options, set, scratch, "image", size.image_mib)?;
    let tree = trees.get(scratch, size.tree(set, options.seed))?;
    for workload in workloads {
        let name = format!("{}/{}/{}", options.server.kind, set.name, workload.name);
        let is_small = set.room == Room::Small && !workload.fits_small;
        if is_small || !set.is_for(workload.name) {
            continue;
        }
        if workload.fills_image {
            report.proof(&name, || {
                let mut own = Image::new(options, set, scratch, "small", size.fill_mib)?;
                own.prove(workload, &size, tree)
            });
        } else if !report.proof(&name, || image.prove(workload, &size, tree)) {
            // What follows is judged by itself, not by the damage that this one left.
            image = Image::new(options, set, scratch, "image", size.image_mib)?;
        }
    }
    if image.worked > 1 {
        let name = format!("{}/{}/everything again", options.server.kind, set.name);
        report.proof(&name, || image.judge_all());
    }
    Ok(())
}

/// Why such a server does not serve such images.
fn unserved(kind: Kind, set: &FeatureSet) -> Option<&'static str> {
    match kind {
        Kind::Finefs => None,
        Kind::Kernel if set.is_known_to_the_kernel() => None,
        Kind::Kernel => Some("this kernel cannot mount it"),
        Kind::Fuse2fs => set.journal_block.map(|_| "its journal is a file"),
    }
}

/// Makes the sets named, or all.
pub fn chosen_sets(names: &[String]) -> Result<Vec<&'static FeatureSet>> {
    if names.is_empty() {
        return Ok(sets::SETS.iter().collect());
    }
    names.iter().map(|name| sets::find(name)).collect()
}

/// Makes the workloads named, or all.
pub fn chosen_workloads(names: &[String]) -> Result<Vec<&'static Workload>> {
    if names.is_empty() {
        return Ok(programs::ALL.iter().collect());
    }
    names.iter().map(|name| programs::find(name)).collect()
}

/// Runs one workload on one fresh image and judges it.
pub fn prove_alone(
    options: &Options,
    set: &'static FeatureSet,
    workload: &Workload,
) -> Result<String> {
    let scratch = Scratch::new_in(&options.parent)?;
    let size = options.size.fitted(set);
    let mut trees = Trees::default();
    let tree = trees.get(&scratch, size.tree(set, options.seed))?;
    Image::new(options, set, &scratch, "image", size.image_mib)?.prove(workload, &size, tree)
}

struct Image<'a> {
    options: &'a Options,
    set: &'static FeatureSet,
    scratch: &'a Scratch,
    path: PathBuf,
    dir: PathBuf,
    worked: usize,
    /// What each workload left, by its directory.
    left: Vec<(String, Snapshot)>,
}

impl<'a> Image<'a> {
    fn new(
        options: &'a Options,
        set: &'static FeatureSet,
        scratch: &'a Scratch,
        name: &str,
        mib: u64,
    ) -> Result<Self> {
        let path = scratch.path().join(format!("{}-{name}.img", set.name));
        // Fresh and sparse, also after a failure.
        let _ = std::fs::remove_file(&path);
        set.make_image(&path, mib)?;
        let dir = scratch.subdir("mnt")?;
        Ok(Self {
            options,
            set,
            scratch,
            path,
            dir,
            worked: 0,
            left: Vec::new(),
        })
    }

    fn prove(&mut self, workload: &Workload, size: &Size, tree: &Tree) -> Result<String> {
        let mount = self.mount(&[])?;
        let work_dir = self.dir.join(workload.name);
        std::fs::create_dir(&work_dir)?;
        if self.set.folds_case {
            run::ok(run::cmd(tools::program("chattr"), ["+F"]).arg(&work_dir))?;
        }
        let note = (workload.run)(&Work {
            dir: &work_dir,
            scratch: self.scratch.path(),
            size,
            set: self.set,
            tree,
            seed: self.options.seed,
        })?;
        let mut snapshot = Snapshot::take(&work_dir)?;
        snapshot.refresh_atimes(&work_dir)?;
        mount.unmount()?;
        if let Some(tamper) = &self.options.tamper {
            tamper(&self.path)?;
        }
        self.set.fsck(&self.path)?;
        let (by, seen, relation) = match self.set.is_known_to_the_kernel() {
            true => (
                "kernel",
                self.by_kernel(&work_dir)?,
                Relation::SameFileSystem,
            ),
            false => {
                let seen = dump::tree(&self.path, workload.name, self.scratch.path())?;
                ("debugfs", seen, Relation::Dump)
            }
        };
        expect_equal(("mount", &snapshot), (by, &seen), relation)?;
        self.left.push((workload.name.to_owned(), snapshot));
        self.worked += 1;
        Ok(note)
    }

    /// What all workloads left is still there after those that came later, for the server and for
    /// the kernel.
    fn judge_all(&self) -> Result<String> {
        let mount = self.mount(&["ro"])?;
        let by_server = Snapshot::take(&self.dir)?;
        mount.unmount()?;
        let same = Relation::SameFileSystem;
        let at_the_end = match self.set.is_known_to_the_kernel() {
            true => {
                let by_kernel = self.by_kernel(&self.dir)?;
                expect_equal(("mount", &by_server), ("kernel", &by_kernel), same)?;
                by_kernel
            }
            false => by_server,
        };
        for (name, snapshot) in &self.left {
            let now = at_the_end.below(name.as_bytes());
            expect_equal((name, snapshot), ("at the end", &now), same)?;
        }
        Ok(format!("{} entries", at_the_end.entries.len()))
    }

    /// Mounts by the server under test.
    fn mount(&self, options: &[&str]) -> Result<Mount> {
        let server = &self.options.server;
        let told = self.told(server.kind)?;
        let journal = told.as_ref().map(|told| told.option.as_str());
        let options: Vec<&str> = options.iter().copied().chain(journal).collect();
        server.mount(What::Image(&self.path), &self.dir, &options)
    }

    /// What the kernel shows of `dir`, which lies in its mount.
    fn by_kernel(&self, dir: &Path) -> Result<Snapshot> {
        let told = self.told(Kind::Kernel)?;
        let journal: Vec<&str> = told.iter().map(|told| told.option.as_str()).collect();
        let judge = server::judge_with(&self.path, &self.dir, &journal)?;
        let seen = Snapshot::take(dir)?;
        judge.unmount()?;
        Ok(seen)
    }

    /// What a mount is told of a journal beside the image.
    fn told(&self, kind: Kind) -> Result<Option<Told>> {
        let is_beside = self.set.journal_block.is_some();
        is_beside
            .then(|| journal::told(&self.path, kind))
            .transpose()
    }
}
