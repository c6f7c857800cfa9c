//! Two sparse images, byte by byte, and the places where they may differ.

use super::table::Allowed;
use anyhow::{Context, Result, ensure};
use finefs_harness::run;
use finefs_harness::tools;
use rustix::fs::{SeekFrom, seek};
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes are compared in units of this: a superblock is one.
const UNIT: u64 = 1024;
/// `s_kbytes_written`: mke2fs counts what it wrote.
const WRITTEN: Range<usize> = 0x178..0x180;
const CHECKSUM: Range<usize> = 0x3FC..0x400;
/// The unused extents of `s_jnl_blocks`.
const JOURNAL_EXTENTS: Range<usize> = 0x124..0x148;
/// The same in an inode, and its checksum.
const INODE_EXTENTS: Range<usize> = 0x40..0x64;
const INODE_CHECKSUMS: [Range<usize>; 2] = [0x7C..0x7E, 0x82..0x84];
const JOURNAL_INODE: usize = 8;
/// Differences that are told.
const TOLD: usize = 5;

/// The units of a file that are not holes.
fn data_units(file: &File) -> Result<BTreeSet<u64>> {
    let length = file.metadata()?.len();
    let mut units = BTreeSet::new();
    let mut at = 0;
    while let Ok(start) = seek(file, SeekFrom::Data(at)) {
        let end = seek(file, SeekFrom::Hole(start))?.min(length);
        units.extend(start / UNIT..end.div_ceil(UNIT));
        at = end;
    }
    Ok(units)
}

fn read_unit(file: &File, unit: u64) -> Result<[u8; UNIT as usize]> {
    let mut bytes = [0; UNIT as usize];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], unit * UNIT + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(bytes)
}

/// A number of dumpe2fs's text: the word behind `name`.
fn number(text: &str, name: &str) -> Result<u64> {
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(name))
        .with_context(|| format!("dumpe2fs says nothing of {name}"))?;
    let digits: String = line
        .trim_start_matches(|c: char| !c.is_ascii_digit())
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    Ok(digits.parse()?)
}

/// Byte ranges of an image that may differ, beside superblocks.
fn explained(text: &str, allowed: Allowed) -> Result<Vec<Range<u64>>> {
    let block_size = number(text, "Block size:")?;
    match allowed {
        Allowed::Nothing | Allowed::LostAndFound => Ok(Vec::new()),
        Allowed::MmpBlock => {
            let start = number(text, "MMP block number:")? * block_size;
            Ok(std::iter::once(start..start + block_size).collect())
        }
        Allowed::OldExtents => {
            let inode_size = number(text, "Inode size:")?;
            let table = number(text, "Inode table at")? * block_size;
            let inode = table + (JOURNAL_INODE as u64 - 1) * inode_size;
            let parts = [INODE_EXTENTS].into_iter().chain(INODE_CHECKSUMS);
            Ok(parts
                .map(|part| inode + part.start as u64..inode + part.end as u64)
                .collect())
        }
    }
}

fn is_superblock(bytes: &[u8]) -> bool {
    bytes[0x38..0x3A] == [0x53, 0xEF]
}

/// What `dumpe2fs` prints, `-h` only where groups do not matter.
pub fn dump(image: &Path, switches: &[&str]) -> Result<String> {
    let mut command = run::cmd(tools::program("dumpe2fs"), switches);
    Ok(run::ok(command.arg(image))?.stdout)
}

/// Compares images; how many KiB of data they have.
pub fn compare(ours: &Path, theirs: &Path, allowed: Allowed) -> Result<usize> {
    compare_headers(ours, theirs, allowed)?;
    if allowed == Allowed::LostAndFound {
        return Ok(0);
    }
    let text = dump(theirs, &[])?;
    let explained = explained(&text, allowed)?;
    let (ours, theirs) = (File::open(ours)?, File::open(theirs)?);
    ensure!(
        ours.metadata()?.len() == theirs.metadata()?.len(),
        "the files differ in size"
    );
    let mut units = data_units(&ours)?;
    units.extend(data_units(&theirs)?);
    let mut told = Vec::new();
    for unit in &units {
        let (a, b) = (read_unit(&ours, *unit)?, read_unit(&theirs, *unit)?);
        if a == b {
            continue;
        }
        let is_super = is_superblock(&a) && is_superblock(&b);
        let may_differ = |at: usize| {
            let place = unit * UNIT + at as u64;
            let is_unused = a[at] == 0 && JOURNAL_EXTENTS.contains(&at);
            let is_old = allowed == Allowed::OldExtents && is_unused;
            is_super && (WRITTEN.contains(&at) || CHECKSUM.contains(&at) || is_old)
                || explained.iter().any(|range| range.contains(&place))
        };
        if let Some(at) = (0..a.len()).find(|at| a[*at] != b[*at] && !may_differ(*at)) {
            let place = unit * UNIT + at as u64;
            told.push(format!("byte {place}: ours {} theirs {}", a[at], b[at]));
        }
    }
    told.truncate(TOLD);
    ensure!(told.is_empty(), "images differ:\n{}", told.join("\n"));
    Ok(units.len())
}

/// Compares what `dumpe2fs -h` says.
fn compare_headers(ours: &Path, theirs: &Path, allowed: Allowed) -> Result<()> {
    let lines = |image: &Path| -> Result<Vec<String>> {
        let text = dump(image, &["-h"])?;
        let is_kept = |line: &&str| {
            let is_always = line.starts_with("Lifetime writes:") || line.starts_with("Checksum:");
            let is_mmp = allowed == Allowed::MmpBlock && line.starts_with("    mmp_");
            let is_count = allowed == Allowed::LostAndFound && line.starts_with("Free blocks:");
            !is_always && !is_mmp && !is_count
        };
        Ok(text.lines().filter(is_kept).map(str::to_owned).collect())
    };
    let (a, b) = (lines(ours)?, lines(theirs)?);
    let differing: Vec<String> = a
        .iter()
        .zip(&b)
        .filter(|(a, b)| a != b)
        .map(|(a, b)| format!("ours {a}\ntheirs {b}"))
        .collect();
    ensure!(
        differing.is_empty() && a.len() == b.len(),
        "dumpe2fs -h differs:\n{}",
        differing.join("\n")
    );
    Ok(())
}
