//! "fs: scale files_lock": open files on per-CPU lists under a local/global lock. How often a file
//! is taken off by the CPU that put it on, and what the whole system gains in a compile.

use serde::Serialize;

use super::Source;

/// Removals of open files from their list, by where they were made.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Removals {
    /// The load.
    pub load: &'static str,
    /// Times that the lock was taken to remove a file.
    pub locks: u64,
    /// Of these, on the CPU that had added it.
    pub cpu_hits: u64,
    /// `cpu_hits` in per cent, as published.
    pub cpu_hits_percent: f64,
    /// On the node that had added it.
    pub node_hits: u64,
    /// `node_hits` in per cent, as published.
    pub node_hits_percent: f64,
}

/// Of [`REMOVALS`].
pub const REMOVALS_SOURCE: Source = Source {
    thread: "[patch 06/52] fs: scale files_lock",
    author: "Nick Piggin",
    date: "2010-06-24 03:36",
    machine: "2 socket, 8 core Opteron",
    setup: "the patch with counters",
};

/// Who removes.
pub const REMOVALS: [Removals; 3] = [
    Removals {
        load: "Booting",
        locks: 25_049,
        cpu_hits: 23_174,
        cpu_hits_percent: 92.5,
        node_hits: 23_945,
        node_hits_percent: 95.6,
    },
    Removals {
        load: "kbuild -j16",
        locks: 2_281_913,
        cpu_hits: 2_208_126,
        cpu_hits_percent: 96.8,
        node_hits: 2_252_674,
        node_hits_percent: 98.7,
    },
    Removals {
        load: "dbench 64",
        locks: 4_306_582,
        cpu_hits: 4_287_247,
        cpu_hits_percent: 99.6,
        node_hits: 4_299_527,
        node_hits_percent: 99.8,
    },
];

/// A compile: throughput, and where the CPUs' time went.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Compile {
    /// The kernel.
    pub kernel: &'static str,
    /// Throughput; the unit was not told.
    pub throughput: f64,
    /// CPU time in user space, per cent.
    pub user_percent: f64,
    /// In the kernel.
    pub system_percent: f64,
    /// Idle.
    pub idle_percent: f64,
    /// Waiting for I/O.
    pub io_wait_percent: f64,
}

/// Of [`COMPILE`].
pub const COMPILE_SOURCE: Source = Source {
    machine: "64 thread Nehalem",
    setup: "a compile, run by Tim Chen; 2.6.34-rc2 without and with the patch",
    ..REMOVALS_SOURCE
};

/// Without and with the patch.
pub const COMPILE: [Compile; 2] = [
    Compile {
        kernel: "2.6.34-rc2",
        throughput: 24.5,
        user_percent: 51.25,
        system_percent: 28.25,
        idle_percent: 17.25,
        io_wait_percent: 3.25,
    },
    Compile {
        kernel: "+patch",
        throughput: 24.9,
        user_percent: 53.75,
        system_percent: 18.5,
        idle_percent: 19.0,
        io_wait_percent: 8.75,
    },
];
