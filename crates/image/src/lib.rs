//! The workshop: what makes and edits images, without root, without a mount.
//!
//! | Module | Thing |
//! |---|---|
//! | [`address`] | `IMAGE@PARTITION:/path`, and the open images of one command |
//! | [`partition`] | where in a disk image a file system starts |
//! | [`tree`] | directories of the host and of images, by one pair of traits |
//! | [`walk`] | walks a tree in an image |
//! | [`copy`] | copies between them, by several threads |
//!
//! # Invariants
//! 1. Everything that is changed in an image goes through the file system of the crate `finefs`;
//!    nothing here knows the format.
//! 2. What is read is opened read-only: an image that is only read stays as it is, byte for byte.
#![forbid(unsafe_code)]

pub mod address;
mod attributes;
pub mod copy;
mod error;
mod host;
mod inside;
pub mod partition;
pub mod tree;
pub mod walk;

pub use address::{Access, Address, Images, Operand};
pub use attributes::{Attributes, Change, Lacking, Time, Xattr};
pub use error::{Error, Result};
pub use host::HostDir;
pub use inside::ImageDir;
