//! `prove encrypted`: encrypted images by turns with a kernel that has more ciphers than this one.
//!
//! The tests of `crates/ext/tests/it/encrypted_with_key.rs` let the kernel fill and show images
//! that finefs shows and fills, and pass over what the kernel has no cipher for. Here they run in a
//! guest ([`crate::guest`]), whose kernel has Adiantum and ESSIV. It has no HCTR2 and no SM4, which
//! are passed over here too; nothing else may be.

use crate::guest::{Guests, Machine};
use crate::report::Report;
use crate::test_programs;
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Duration;

const MODULES: [&str; 10] = [
    "loop",
    "ext4",
    "sha512_generic",
    "cts",
    "xts",
    "ecb",
    "essiv",
    "chacha_generic",
    "nhpoly1305",
    "adiantum",
];
const PROGRAMS: [&str; 8] = [
    "mke2fs", "e2fsck", "debugfs", "xfs_io", "fsverity", "losetup", "mount", "umount",
];
/// What mke2fs takes its features from.
const CONFIGURATION: &str = "/etc/mke2fs.conf";
const SCRIPT: &str = include_str!("encrypted/script.sh");
const BUILD_LIMIT: Duration = Duration::from_secs(3000);

/// Runs the proof.
pub fn run(parent: &Path, report: &mut Report) -> Result<()> {
    let guests = Guests::new(parent)?;
    report.proof("encrypted", || by_turns(&guests));
    Ok(())
}

fn by_turns(guests: &Guests) -> Result<String> {
    // All packages, so that their features are those of all other tests.
    let built = test_programs::build(&["--workspace", "--test", "it"], &[], BUILD_LIMIT)?;
    let mut built = built.iter();
    let tests = built.find(|program| program.package == "finefs-ext");
    let tests = tests.context("finefs-ext has tests")?.path();
    let name = tests.to_str().context("the path is text")?;
    let machine = Machine {
        modules: &MODULES,
        programs: &[&PROGRAMS[..], &[name]].concat(),
        // The modules that ext4 names ask for more than the usual processor has.
        cpu: "max",
        files: &[(Path::new(CONFIGURATION), CONFIGURATION)],
        script: SCRIPT,
        ..Machine::default()
    };
    guests.start(&machine)?.finish()
}
