//! Who is compared: a server, and how it and the machine are set up for it.

use anyhow::{Context, Result};
use finefs_harness::fuse_ring::Transport;
use finefs_harness::server::Kind;
use std::fs::File;
use std::io::Write;

const LATENCY_DEVICE: &str = "/dev/cpu_dma_latency";

/// One row of the tables.
#[derive(Debug)]
pub struct Variant {
    pub name: &'static str,
    pub kind: Kind,
    pub transport: Transport,
    pub options: &'static [&'static str],
    /// The bench keeps the CPUs awake, as finefs does by itself.
    pub is_kept_awake: bool,
    /// A file system in memory instead of an image: what FUSE itself allows, about.
    pub is_in_memory: bool,
}

/// finefs as it is without options.
pub const DEFAULT: Variant = Variant {
    name: "finefs",
    kind: Kind::Finefs,
    transport: Transport::Device,
    options: &[],
    is_kept_awake: false,
    is_in_memory: false,
};

/// All of them, in the order of the tables.
pub const VARIANTS: [Variant; 9] = [
    DEFAULT,
    Variant {
        name: "finefs -o cpu_latency=off",
        options: &["cpu_latency=off"],
        ..DEFAULT
    },
    Variant {
        name: "finefs, io_uring on",
        transport: Transport::Ring,
        ..DEFAULT
    },
    Variant {
        name: "finefs, io_uring on, -o cpu_latency=off",
        transport: Transport::Ring,
        options: &["cpu_latency=off"],
        ..DEFAULT
    },
    Variant {
        name: "finefs --memory, io_uring on",
        transport: Transport::Ring,
        is_in_memory: true,
        ..DEFAULT
    },
    Variant {
        name: "fuse2fs",
        kind: Kind::Fuse2fs,
        ..DEFAULT
    },
    Variant {
        name: "fuse2fs, CPUs kept awake by the bench",
        kind: Kind::Fuse2fs,
        is_kept_awake: true,
        ..DEFAULT
    },
    Variant {
        name: "kernel",
        kind: Kind::Kernel,
        ..DEFAULT
    },
    Variant {
        name: "kernel, CPUs kept awake by the bench",
        kind: Kind::Kernel,
        is_kept_awake: true,
        ..DEFAULT
    },
];

/// Keeps the CPUs awake as long as it lives: the kernel drops the request with the file.
#[derive(Debug)]
pub struct Awake(#[expect(dead_code, reason = "held for its drop")] File);

/// For all that are compared, as a mount of finefs by root has it.
pub fn keep_awake() -> Result<Awake> {
    let mut device = File::options()
        .write(true)
        .open(LATENCY_DEVICE)
        .context(LATENCY_DEVICE)?;
    device
        .write_all(&0i32.to_ne_bytes())
        .context(LATENCY_DEVICE)?;
    Ok(Awake(device))
}

impl Variant {
    /// Sets the machine up.
    pub fn prepare(&self) -> Result<Option<Awake>> {
        self.is_kept_awake.then(keep_awake).transpose()
    }

    /// Why it cannot run on this machine, if so.
    pub fn obstacle(&self) -> Option<&'static str> {
        let needs_latency = self.is_kept_awake;
        if self.kind == Kind::Kernel && !finefs_harness::tools::is_root() {
            Some("only root mounts by the kernel")
        } else if self.transport == Transport::Ring && !finefs_harness::fuse_ring::is_available() {
            Some("only root can switch io_uring on, where the kernel has it")
        } else if needs_latency && File::options().write(true).open(LATENCY_DEVICE).is_err() {
            Some("only root can open /dev/cpu_dma_latency")
        } else {
            None
        }
    }
}
