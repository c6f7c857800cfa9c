//! The commands that read and edit images without a mount, beside the real tools: the kernel's loop
//! mount, debugfs, e2fsck and coreutils judge them. What needs root says so where there is none.

mod addresses;
mod archives;
mod build;
mod build_rules;
mod containers;
mod copies;
mod coreutils;
mod defrag;
mod differences;
mod disks;
mod edits;
mod encrypted;
mod endings;
mod flags;
mod journals;
mod layers;
mod limits;
mod malice;
mod onto;
mod reads;
mod refusals;
mod reiserfs;
mod resize;
mod round_trip;
mod shell;
mod sources;
mod support;
