//! What comparisons and proofs have in common: images of every feature set, servers and their
//! mounts, programs that work in them, trees and what they look like.
//!
//! | module | what it is about |
//! |---|---|
//! | [`sets`] | the table of mkfs feature sets and the making of images |
//! | [`server`] | finefs, the kernel or fuse2fs as the server of a mount |
//! | [`export`] | an image on nbdkit or qemu-nbd |
//! | [`journal`] | a journal on a file beside the image |
//! | [`dump`] | what debugfs reads of an image |
//! | [`tree`], [`snapshot`], [`compare`] | a seeded source tree; what a tree looks like; two of them compared |
//! | [`programs`] | the programs that work in a mount, each checking its own outcome |
//! | [`fuse_ring`] | the kernel's switch for FUSE over io_uring |
//! | [`tools`] | where the workspace is, and the programs built or installed in it |
//! | [`run`], [`cleanup`] | child processes, tidying up also on Ctrl-C |
//! | [`rng`] | seeded random numbers |
//!
//! Invariant: what was mounted, started or made in the temporary directory goes when its value is
//! dropped, also when a proof fails or is interrupted (see [`cleanup`]).

pub mod cleanup;
pub mod compare;
pub mod dump;
pub mod export;
pub mod fuse_ring;
pub mod journal;
pub mod programs;
pub mod rng;
pub mod run;
pub mod server;
pub mod sets;
pub mod snapshot;
pub mod tools;
pub mod tree;
