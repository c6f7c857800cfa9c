//! The workshop: what makes and edits images, without root, without a mount.
//!
//! | Module | Thing |
//! |---|---|
//! | [`mkfs`] | makes empty file systems: ext2, ext3 and ext4, as mke2fs does |
//!
//! # Invariants
//! 1. What knows where a byte of the format lies is in `finefs-ext-disk`; here is what is decided
//!    when an image is made.
//! 2. The same options, size and seed give the same bytes, on every machine.
#![forbid(unsafe_code)]

pub mod mkfs;
