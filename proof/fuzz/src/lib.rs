//! What is fuzzed: one function over bytes for each target, which panics when something is wrong.
//!
//! The programs in `fuzz_targets` hand them to libFuzzer; `tests/corpus.rs` runs them over the kept
//! inputs, without a sanitizer. `docs/fuzzing.md` says how to run it all.
//!
//! | Module | Targets |
//! |---|---|
//! | [`codecs`] | each structure of the disk format: no panic, and what was read is written back the same |
//! | [`images`] | whole images, mutated: replayed, mounted and walked, written, checked and repaired |
//! | [`reiserfs`] | its structures; an image, changed, walked and written |
//! | [`requests`] | the kernel's FUSE messages; calls of NFS clients |
//!
//! [`seed`] has small good images, [`layout`] says what their blocks are, [`patch`] changes them as
//! an input says, and [`work`] does operations on one that is mounted.
//!
//! An image is not made of an input's bytes: it is one of a few small good ones (see [`seed`]), and
//! the input says what to change in it ([`patch`]), after which the checksums are mended, or not.

pub mod codecs;
pub mod images;
pub mod layout;
pub mod patch;
pub mod reiserfs;
pub mod requests;
pub mod seed;
pub mod work;

/// A target: its name and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("superblock", codecs::superblock),
    ("group", codecs::group),
    ("inode", codecs::inode),
    ("directory", codecs::directory),
    ("htree", codecs::htree),
    ("extent", codecs::extent),
    ("xattr", codecs::xattr),
    ("jbd2", codecs::jbd2),
    ("small", codecs::small),
    ("replay", images::replay),
    ("walk", images::walk),
    ("write", images::write),
    ("reiserfs", reiserfs::codecs),
    ("reiserfs_walk", reiserfs::walk),
    ("reiserfs_write", reiserfs::write),
    ("check", images::check),
    ("fuse", requests::fuse),
    ("nfs", requests::nfs),
];

/// Runs the target called `name`.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    target.expect("the targets are listed").1(data);
}
