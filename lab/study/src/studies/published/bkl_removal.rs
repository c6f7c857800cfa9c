//! "BKL removal from VFS": PostMark in eight processes, under the big kernel lock (2.4.17) and with
//! a patch that takes it out of the VFS (2.5.1).
//!
//! The two tables differ in PostMark's parameters, so only ratios within a table compare.
//!
//! What `spinlock contention` counts is not said. Lockmeter's reports give both the share of
//! acquisitions that had to wait and the share of CPU time spent spinning. The class's figure is
//! nearly the sum over all classes, although PostMark takes many other spinlocks; a share of CPU
//! time explains that, and throughput agrees with it: 4 CPUs that spin 62 % of their time do the
//! work of 1.52, and 1549 / 1197 is 1.29.

use serde::Serialize;

use super::Source;

/// A row: so many CPUs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Row {
    /// CPUs in use.
    pub cpus: u32,
    /// PostMark's transactions a second, eight processes together.
    pub transactions_per_s: u32,
    /// "spinlock contention": all spinlocks, per cent.
    pub contention_percent: Option<f64>,
    /// The part of it that the big kernel lock has, per cent, where it was told.
    pub big_lock_percent: Option<f64>,
}

const fn row(cpus: u32, transactions_per_s: u32, all: Option<f64>, big: Option<f64>) -> Row {
    Row {
        cpus,
        transactions_per_s,
        contention_percent: all,
        big_lock_percent: big,
    }
}

/// Processes of PostMark, at every number of CPUs.
pub const PROCESSES: u32 = 8;

/// Of [`BIG_LOCK`].
pub const BIG_LOCK_SOURCE: Source = Source {
    thread: "BKL removal from VFS",
    author: "Nakayama Shintaro",
    date: "2002-02-19 07:16",
    machine: "8-way SMP, Xeon 550 MHz, 1G memory, virtually no disk I/O wait",
    setup: "Linux 2.4.17; 8 PostMark processes, number=5000 transactions=500000",
};

/// Under the big kernel lock.
pub const BIG_LOCK: [Row; 3] = [
    row(1, 1197, None, None),
    row(4, 1549, Some(62.2), Some(61.9)),
    row(8, 1607, Some(77.2), Some(77.0)),
];

/// Of [`FINE_LOCKS`].
pub const FINE_LOCKS_SOURCE: Source = Source {
    setup: "Linux 2.5.1 with BKL removal patch; 8 PostMark processes, number=1000 transactions=200000",
    ..BIG_LOCK_SOURCE
};

/// With the big kernel lock taken out of the VFS and ext2.
pub const FINE_LOCKS: [Row; 4] = [
    row(1, 2430, None, None),
    row(2, 4098, Some(1.3), None),
    row(4, 7529, Some(3.2), None),
    row(8, 11394, Some(10.7), None),
];
