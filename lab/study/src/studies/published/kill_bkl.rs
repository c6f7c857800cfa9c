//! "Reiserfs/kill-bkl tree v2": dbench on reiserfs under the big kernel lock, and under a mutex per
//! superblock that is recursive, relaxed around sleeping, and spins on its owner.

use serde::Serialize;

use super::Source;

/// dbench with some clients on one file system, 600 seconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Throughput {
    /// Clients of dbench.
    pub clients: u32,
    /// Under the big kernel lock, MB/s.
    pub big_lock_mb_per_s: f64,
    /// Under the mutex per superblock, MB/s.
    pub mutex_mb_per_s: f64,
}

/// Of all numbers here.
pub const SOURCE: Source = Source {
    thread: "[ANNOUNCE] Reiserfs/kill-bkl tree v2",
    author: "Frederic (kernel.org: frederic/random-tracing)",
    date: "the copy bears no date; the traces lie in a directory bench-3107",
    machine: "not told; CONFIG_SMP=y, CONFIG_PREEMPT=n",
    setup: "dbench for 600 seconds on reiserfs 3",
};

/// One file system.
pub const ONE_FILE_SYSTEM: [Throughput; 3] = [
    Throughput {
        clients: 1,
        big_lock_mb_per_s: 232.54,
        mutex_mb_per_s: 237.71,
    },
    Throughput {
        clients: 30,
        big_lock_mb_per_s: 92.41,
        mutex_mb_per_s: 82.25,
    },
    Throughput {
        clients: 100,
        big_lock_mb_per_s: 37.89,
        mutex_mb_per_s: 40.58,
    },
];

/// Two partitions at once, one client each: client #1 and client #2, MB/s.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Dual {
    /// Under the big kernel lock.
    pub big_lock_mb_per_s: [f64; 2],
    /// Under a mutex per superblock.
    pub mutex_mb_per_s: [f64; 2],
}

/// Two file systems.
pub const TWO_FILE_SYSTEMS: Dual = Dual {
    big_lock_mb_per_s: [199.95, 186.16],
    mutex_mb_per_s: [213.91, 203.84],
};
