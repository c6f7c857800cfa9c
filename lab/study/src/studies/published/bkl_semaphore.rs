//! Red Hat's bug 519126: the big kernel lock as a semaphore made opening files slower with eight
//! CPUs than with one. `openspeed`: four threads open and close one of ten files at random, over
//! NFS with `nocto`.

use serde::Serialize;

use super::Source;

/// What one thread of openspeed printed.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Thread {
    /// Opens in all.
    pub opens: u64,
    /// Opens a second.
    pub opens_per_s: f64,
}

const fn thread(opens: u64, opens_per_s: f64) -> Thread {
    Thread { opens, opens_per_s }
}

/// A run of openspeed.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Run {
    /// The kernel, and on how many CPUs.
    pub kernel: &'static str,
    /// Each thread's line.
    pub threads: [Thread; 4],
}

impl Run {
    /// The threads' rates together, opens a second.
    pub fn opens_per_s_total(&self) -> f64 {
        self.threads.iter().map(|thread| thread.opens_per_s).sum()
    }
}

/// Threads of openspeed.
pub const THREADS: u32 = 4;
/// Files that they choose from.
pub const FILES: u32 = 10;

/// Of all runs here.
pub const SOURCE: Source = Source {
    thread: "Bug 519126 - BKL implementation related performance problems",
    author: "Sachin Prabhu",
    date: "2009-08-25 09:58 UTC",
    machine: "8 CPUs, NFS share mounted with nocto",
    setup: "./openspeed 4 files.txt 10 120",
};

/// RHEL 5's kernel, whose big kernel lock is a semaphore, on all CPUs.
pub const SEMAPHORE_ON_8_CPUS: Run = Run {
    kernel: "2.6.18-128.el5, 8 CPUs",
    threads: [
        thread(875_428, 7295.2),
        thread(912_913, 7607.6),
        thread(920_757, 7673.0),
        thread(893_784, 7448.2),
    ],
};

/// The same, `maxcpus=1`.
pub const SEMAPHORE_ON_1_CPU: Run = Run {
    kernel: "2.6.18-128.el5, maxcpus=1",
    threads: [
        thread(7_908_973, 65_908.1),
        thread(7_951_445, 66_262.0),
        thread(8_574_444, 71_453.7),
        thread(7_820_680, 65_172.3),
    ],
};

/// The kernel before "BKL: revert back to the old spinlock implementation".
pub const BEFORE_THE_REVERT: Run = Run {
    kernel: "2.6.26-rc1.BKL_SEMAPHORE",
    threads: [
        thread(948_472, 7903.9),
        thread(948_367, 7903.1),
        thread(948_480, 7904.0),
        thread(948_493, 7904.1),
    ],
};

/// The kernel after it.
pub const AFTER_THE_REVERT: Run = Run {
    kernel: "2.6.26-rc1.BKL_SPINLOCK",
    threads: [
        thread(5_311_913, 44_265.9),
        thread(5_301_736, 44_181.1),
        thread(5_317_271, 44_310.6),
        thread(5_295_553, 44_129.6),
    ],
};

/// All runs, in the order of the report.
pub const RUNS: [Run; 4] = [
    SEMAPHORE_ON_8_CPUS,
    SEMAPHORE_ON_1_CPU,
    BEFORE_THE_REVERT,
    AFTER_THE_REVERT,
];

/// Of the second load: comment 18. It gives a backtrace and no numbers: many processes that take
/// POSIX locks wait for the big kernel lock in `__posix_lock_file_conf`.
pub const POSIX_LOCKS_SOURCE: Source = Source {
    date: "2010-03-24 12:10 UTC, comment 18",
    machine: "a customer's",
    setup: "2.6.18-164.11.1.el5; many processes in fcntl(F_SETLK)",
    ..SOURCE
};
