//! The loads that are predicted, and the runs that the model is fed with and held against.

use finefs::LockingScheme;

use crate::model::measured::Sharing;
use crate::studies::experiment::{Experiment, Key};
use crate::studies::published::bkl_semaphore::FILES;
use crate::studies::{bkl_removal, bkl_semaphore};
use finefs_workloads::PostMark;
use finefs_workloads::affinity;

/// What is looked at.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Load {
    PostMark,
    OpenSpeed,
}

impl Load {
    pub const ALL: [Load; 2] = [Load::PostMark, Load::OpenSpeed];

    pub fn name(self) -> &'static str {
        match self {
            Load::PostMark => "PostMark",
            Load::OpenSpeed => "openspeed",
        }
    }

    pub fn key(self, scheme: LockingScheme, threads: usize) -> Key {
        match self {
            Load::PostMark => bkl_removal::key(scheme, affinity::cpus(), threads),
            Load::OpenSpeed => bkl_semaphore::key(scheme, affinity::cpus(), threads),
        }
    }

    fn experiment(self, key: Key) -> Experiment {
        match self {
            Load::PostMark => bkl_removal::experiment(key),
            Load::OpenSpeed => bkl_semaphore::experiment(key),
        }
    }

    /// Which locks of a class the threads meet at. Classes that are not known are taken as one lock
    /// for all: the worse case.
    pub fn sharing(self, class: &str) -> Sharing {
        match class {
            // A lock for each CPU.
            "ns.files" | "ns.log" | "memory.free" => Sharing::Private,
            // A lock for each directory, file or part of it.
            "ns.bucket" | "ns.resize" | "ns.inode" | "ns.range" | "ns.segment" | "ns.load"
            | "ns.xattr" => match self {
                Load::PostMark => Sharing::Private,
                Load::OpenSpeed => Sharing::Locks(FILES),
            },
            _ => Sharing::Locks(1),
        }
    }

    /// What is run apart to see how programs slow each other down that share nothing: as many as
    /// `threads`, but no more than CPUs.
    pub fn apart_key(self, threads: usize) -> Key {
        let load = match self {
            Load::PostMark => "PostMark apart",
            Load::OpenSpeed => "openspeed apart",
        };
        Key::new(load, LockingScheme::Fine, affinity::cpus(), threads)
    }

    /// Together they have as many files as the threads of the load would have.
    fn apart_experiment(self, threads: usize) -> Experiment {
        let key = self.apart_key(threads);
        let instances = threads.min(key.cpus);
        match self {
            Load::PostMark => {
                let usual = bkl_removal::workload();
                let workload = PostMark {
                    number: usual.number * threads as u32 / instances as u32,
                    ..usual
                };
                Experiment::apart(key, workload)
            }
            Load::OpenSpeed => Experiment::apart(key, bkl_semaphore::workload()),
        }
    }

    /// All runs of the load; those apart only where there can be several file systems at once.
    pub fn experiments(self, has_several: bool) -> Vec<Experiment> {
        let mut experiments = Vec::new();
        for scheme in SCHEMES {
            experiments.push(self.experiment(self.key(scheme, 1).counted()));
            if scheme == LockingScheme::BigSleep {
                experiments.push(self.experiment(self.key(scheme, 1).counted().napping()));
            }
            for threads in THREADS {
                experiments.push(self.experiment(self.key(scheme, threads)));
            }
        }
        if has_several {
            let crowds = THREADS.into_iter().filter(|threads| *threads > 1);
            experiments.extend(crowds.map(|threads| self.apart_experiment(threads)));
        }
        experiments
    }
}

pub(super) const SCHEMES: [LockingScheme; 3] = [
    LockingScheme::BigSpin,
    LockingScheme::BigSleep,
    LockingScheme::Fine,
];

/// Threads of the runs that the model is held against.
pub(super) const THREADS: [usize; 4] = [1, 2, 4, 8];
