//! openspeed: how fast threads open and close files that all of them use.
//!
//! Each worker opens a random one of a few files for reading and closes it again. The program and
//! the form of its report are those of Red Hat's bug 519126 (2009), which showed what the big
//! kernel lock cost as a semaphore: four threads and ten files for 120 seconds.

use crate::error::{During, Result, WorkloadError};
use crate::plan::{Crew, Plan, Watch};
use crate::targets::{File, OFlags, Target, remove_tree, write_all_at};
use crate::worker::Worker;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};

/// The parameters of openspeed.
#[derive(Clone, Debug, Serialize, Deserialize, clap::Args)]
pub struct OpenSpeed {
    /// Files that all workers open
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub files: u32,
}

impl Default for OpenSpeed {
    fn default() -> OpenSpeed {
        OpenSpeed { files: 10 }
    }
}

const DIR: &str = "openspeed";

impl OpenSpeed {
    fn paths(&self) -> impl Iterator<Item = String> {
        (0..self.files).map(|file| format!("{DIR}/{file}"))
    }
}

impl Workload for OpenSpeed {
    const NAME: &'static str = "openspeed";

    const THREADS: usize = 4;

    type Detail = ();

    fn operations(&self) -> &'static str {
        "opens"
    }

    /// Each file contains its own name, so that a wrong one is noticed.
    fn prepare<T: Target>(&self, target: &T, _: &Plan, watch: Watch<'_>) -> Result<()> {
        target.create_dir(DIR).during("mkdir", DIR)?;
        for path in self.paths() {
            watch.check_stop()?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            let file = target.open(&path, flags).during("create", &path)?;
            write_all_at(&file, path.as_bytes(), 0).during("write", &path)?;
        }
        Ok(())
    }

    fn work<T: Target>(&self, target: &T, worker: &mut Worker<'_>) -> Result<()> {
        let paths: Vec<String> = self.paths().collect();
        worker.start()?;
        while worker.goes_on() {
            let path = &paths[worker.rng.usize(..paths.len())];
            drop(target.open(path, OFlags::RDONLY).during("open", path)?);
            worker.done();
        }
        if worker.verifies() {
            paths.iter().try_for_each(|path| check(target, path))?;
        }
        Ok(())
    }

    fn clean_up<T: Target>(&self, target: &T, _: Crew) -> Result<()> {
        remove_tree(target, DIR).during("remove", DIR)
    }
}

/// Opens `path` once more and fails if it is not the file that was made under this name.
fn check<T: Target>(target: &T, path: &str) -> Result<()> {
    let file = target.open(path, OFlags::RDONLY).during("open", path)?;
    let mut contents = [0; 64];
    let count = file.read_at(&mut contents, 0).during("read", path)?;
    if contents[..count] == *path.as_bytes() {
        return Ok(());
    }
    let found = String::from_utf8_lossy(&contents[..count]);
    Err(WorkloadError::Wrong(format!("{path} contains {found:?}")))
}
