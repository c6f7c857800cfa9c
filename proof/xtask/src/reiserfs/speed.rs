//! How fast the guest's reiserfs is beside its ext4: dbench and PostMark on both, by turns. The
//! ratio says what the format costs a kernel; docs/benchmarks.md has finefs's beside it.

use super::make;
use crate::guest::{Guests, Machine};
use anyhow::{Context, Result};
use finefs_harness::programs::dbench::LOAD;
use finefs_harness::sets;
use std::path::Path;

const SCRIPT: &str = include_str!("speed.sh");
const MODULES: [&str; 4] = ["virtio_pci", "virtio_blk", "reiserfs", "ext4"];
const PROGRAMS: [&str; 2] = ["dbench", "postmark"];
const IMAGE_MIB: u64 = 512;
const ROUNDS: usize = 3;

/// Measures; a line with the medians and the ratios.
pub(super) fn run(guests: &Guests) -> Result<String> {
    let [reiserfs, ext4] = ["image", "ext4"].map(|name| guests.dir().join(name));
    make(&reiserfs, IMAGE_MIB, &[])?;
    let _ = std::fs::remove_file(&ext4);
    sets::make("ext4", &ext4, IMAGE_MIB)?;
    let settings = format!("ROUNDS={ROUNDS}\nSECONDS=10\nTRANSACTIONS=2000\n");
    let guest = guests.start(&Machine {
        // One for which there is the module of checksums that ext4 has loaded.
        cpu: "Nehalem",
        modules: &MODULES,
        programs: &PROGRAMS,
        files: &[(Path::new(LOAD), "/client.txt")],
        disks: &[&reiserfs, &ext4],
        script: &format!("{settings}{SCRIPT}"),
        ..Machine::default()
    })?;
    let (_, said) = guest.finish_with(|guest| Ok(guest.said("speed ")))?;
    let ratios: Result<Vec<String>> = ["dbench", "PostMark"]
        .into_iter()
        .map(|program| {
            let reiserfs = median(&said, program, "reiserfs")?;
            let ext4 = median(&said, program, "ext4")?;
            let ratio = reiserfs / ext4;
            Ok(format!("{program} {reiserfs} and {ext4}, ratio {ratio:.2}"))
        })
        .collect();
    Ok(ratios?.join("; "))
}

/// The median of what a program has shown on a file system.
fn median(said: &str, program: &str, file_system: &str) -> Result<f64> {
    let begin = format!("{program} {file_system} ");
    let numbers = said.lines().filter_map(|line| line.strip_prefix(&begin));
    let numbers: Result<Vec<f64>, _> = numbers.map(|number| number.trim().parse()).collect();
    let mut numbers = numbers?;
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.get(numbers.len() / 2).copied();
    middle.with_context(|| format!("the guest has not measured {program} on {file_system}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_one_program_on_one_file_system() {
        let said = "dbench ext4 3\ndbench ext4 1\nPostMark ext4 9\ndbench ext4 2.5\n";
        assert_eq!(median(said, "dbench", "ext4").ok(), Some(2.5));
        assert!(median(said, "dbench", "reiserfs").is_err());
    }
}
