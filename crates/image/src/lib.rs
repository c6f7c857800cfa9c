//! The workshop: what makes and edits images, without root, without a mount.
//!
//! | Module | Thing |
//! |---|---|
//! | [`address`] | `IMAGE@PARTITION:/path`, and the open images of one command |
//! | [`partition`] | where in a disk image a file system starts |
//! | `guid_table` | GUID partition tables |
//! | [`tree`] | directories of the host and of images, by one pair of traits |
//! | `host`, `inside` | its two implementations |
//! | `attributes`, `acl` | what a file is, and what can be set of it; ACLs as archives have them |
//! | [`walk`] | walks a tree in an image |
//! | [`compare`] | compares them: names, metadata and contents |
//! | [`convert`] | from one disk format to another |
//! | [`copy`] | copies between them, by several threads |
//! | [`build`] | builds images of directories, archives and container images |
//! | [`archive`] | writes files as tar archives |
//! | `choice`, [`pattern`] | which members of an archive are taken; patterns as of fnmatch(3) |
//! | `packing` | how archives are compressed |
//! | `beside` | files that get their name when they are whole |
//! | [`layer`] | writes what differs as a layer of a container image |
//! | [`mkfs`] | makes empty file systems: ext2, ext3 and ext4, as mke2fs does |
//! | [`programs`] | other programs that commands run |
//! | `error` | what failed, where, and why |
//!
//! # Invariants
//! 1. Everything that is changed in a file system goes through the crate `finefs`. Only `mkfs`
//!    knows the format: what is decided when an image is made; where a byte of it lies is in
//!    `finefs-ext-disk`.
//! 2. What is read is opened read-only: an image that is only read stays as it is, byte for byte.
//! 3. `mkfs` makes the same bytes of the same options, size and seed, on every machine.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(feature = "build", feature = "convert")),
    allow(dead_code, unused_imports, reason = "some of it serves them alone")
)]

mod acl;
pub mod address;
#[cfg(feature = "build")]
pub mod archive;
mod attributes;
mod beside;
#[cfg(feature = "build")]
pub mod build;
#[cfg(feature = "build")]
mod choice;
pub mod compare;
#[cfg(feature = "convert")]
pub mod convert;
pub mod copy;
mod error;
#[cfg(feature = "gpt")]
mod guid_table;
mod host;
mod inside;
#[cfg(feature = "build")]
pub mod layer;
pub mod mkfs;
#[cfg(feature = "build")]
mod packing;
pub mod partition;
pub mod pattern;
pub mod programs;
pub mod tree;
pub mod walk;

pub use address::{Access, Address, Images, Operand};
pub use attributes::{Attributes, Change, Lacking, Time, Xattr};
#[cfg(feature = "build")]
pub use choice::Choice;
pub use error::{Error, Result};
pub use host::HostDir;
pub use inside::ImageDir;
#[cfg(feature = "build")]
pub use packing::Packing;
