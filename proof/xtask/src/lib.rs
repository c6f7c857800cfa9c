//! The proof harness: builds images, mounts them by a server under test, works in them, and lets
//! e2fsck and the kernel judge the result.
//!
//! | module | what it is about |
//! |---|---|
//! | [`matrix`] | every workload on every feature set |
//! | [`teeth`] | shows that the proofs fail when something is changed behind their back |
//! | [`acl`] | ACLs beside the kernel's ext4 |
//! | [`pjdfstest`], [`fsx`] | the two conformance tools from crates.io |
//! | [`images`], [`bad_input`] | damaged images and wrong arguments |
//! | [`mkfs`] | `finefs mkfs` beside mke2fs, byte by byte |
//! | [`build`], [`boot`] | built images, as other programs see them; a guest boots them |
//! | [`differential`] | random operations beside the kernel's ext4 |
//! | [`crash`], [`kill`] | crashes at any moment, simulated; the server killed at random moments |
//! | [`guest`] | Debian's kernel in qemu |
//! | [`script`] | scripts that tell what they find, in a guest or here |
//! | [`programs`] | programs that people run: git, cargo, rsync, databases, containers |
//! | [`nfs`] | the kernel's NFS client, in a guest |
//! | [`reiserfs`] | images that the last kernels with reiserfs have filled, in a guest |
//! | [`encrypted`] | the tests of encrypted images, in a guest whose kernel has more ciphers |
//! | [`ceph`] | an image on a cluster of Ceph, through qemu-nbd |
//! | [`memory`] | the server's memory under a limit |
//! | [`soak`] | mixed load for long on an image that is nearly full |
//! | [`unprivileged`], [`fuse_device`] | a mount by an ordinary user |
//! | [`demo`], [`setup`], [`style`] | `make demo`, installing tools, the style test |
//! | [`check`], [`suite`], [`package`] | `make check`, `make test`, `make package` |
//! | [`schedule`], [`test_programs`] | steps, and the programs of tests, side by side |
//! | [`fuzz`] | the targets in `proof/fuzz/` under libFuzzer and the address sanitizer |
//! | [`lock_teeth`] | shows that tests of locks and syncs fail when one line is left out |
//! | [`tsan`] | the locks' stress test, and the memory store's, under the thread sanitizer |
//! | [`python`] | the Python package: its wheel and its tests |
//! | [`public_api`] | what the published crates offer, against their lists |
//! | [`report`] | outcome lines |
//!
//! Invariants:
//! 1. A proof ends with nothing of its own mounted, running or left in the temporary directory,
//!    also when it fails and when it is interrupted (see `finefs_harness::cleanup`).
//! 2. Every judgement comes from a program that is not the server under test, or from a comparison
//!    with data made from a seed.

pub mod acl;
pub mod bad_input;
pub mod boot;
pub mod build;
pub mod ceph;
pub mod check;
pub mod crash;
pub mod demo;
pub mod differential;
pub mod encrypted;
pub mod fsx;
pub mod fuse_device;
pub mod fuzz;
pub mod guest;
pub mod images;
pub mod kill;
pub mod lock_teeth;
pub mod matrix;
pub mod memory;
pub mod mkfs;
pub mod nfs;
pub mod package;
pub mod pjdfstest;
pub mod programs;
pub mod public_api;
pub mod python;
pub mod reiserfs;
pub mod report;
pub mod schedule;
pub mod script;
pub mod setup;
pub mod soak;
pub mod style;
pub mod suite;
pub mod teeth;
pub mod test_programs;
pub mod tsan;
pub mod unprivileged;
