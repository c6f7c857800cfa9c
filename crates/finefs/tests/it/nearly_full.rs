//! A file system with 64 to 0 free blocks: what fails for want of space has changed nothing, what
//! succeeds is kept.
//!
//! Each operation on data runs on a file of its own with written blocks, a hole, and allocated
//! blocks that were not written. The file is compared with an array of bytes at once, and again
//! after the image was closed and opened.

use std::path::{Path, PathBuf};
use std::process::Command;

use finefs::{AllocateMode, File, FileSystem, ImageOptions, OpenOptions};

/// The most free blocks that the operations begin with.
const FREE_BLOCKS_MAX: u64 = 64;
/// With so many they begin in a usual run of the first test.
const FREE_BLOCKS: &[u64] = &[0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 64];

/// A change of a file's data, in bytes.
#[derive(Clone, Copy, Debug)]
enum Change {
    Write { at: u64, length: u64 },
    Append { length: u64 },
    Truncate { size: u64 },
    Allocate(AllocateMode, u64, u64),
}

/// The operations on files whose blocks have `block` bytes: over each kind of content, aligned and
/// not, within the file and across its end.
fn changes(block: u64) -> Vec<Change> {
    use AllocateMode::{Extend, KeepSize, PunchHole, ZeroRange, ZeroRangeKeepSize};
    use Change::{Allocate, Append, Truncate, Write};
    vec![
        Write {
            at: 3 * block + 5,
            length: 4 * block,
        },
        Write {
            at: 7 * block + 100,
            length: 6 * block,
        },
        Write {
            at: 12 * block - 9,
            length: 5 * block,
        },
        Write {
            at: 19 * block,
            length: 30 * block,
        },
        Write {
            at: 40 * block + 1,
            length: 1,
        },
        Append { length: 3 * block },
        Append { length: 70 * block },
        Truncate {
            size: 30 * block + 7,
        },
        Truncate {
            size: 4 * block + 11,
        },
        Truncate { size: 9 * block },
        Allocate(Extend, 0, 40 * block),
        Allocate(Extend, 8 * block + 3, 100),
        Allocate(KeepSize, 18 * block, 70 * block),
        Allocate(PunchHole, 2 * block, 3 * block),
        Allocate(PunchHole, block / 2, 5 * block),
        Allocate(PunchHole, 100, 50),
        Allocate(PunchHole, 9 * block + 1, 80 * block),
        Allocate(ZeroRange, 9 * block - 300, 82 * block + 30),
        Allocate(ZeroRange, block + 7, 10 * block),
        Allocate(ZeroRangeKeepSize, 0, 20 * block),
        Allocate(ZeroRange, 2 * block + 1, 4 * block),
        Allocate(ZeroRangeKeepSize, 11 * block, 7 * block),
        Allocate(ZeroRangeKeepSize, 5, 100),
    ]
}

impl Change {
    /// Whether it can do with the blocks that the file has, or with fewer.
    fn needs_no_block(self, block: u64) -> bool {
        let has_all = |at: u64, length: u64| {
            let end = (at + length).div_ceil(block);
            end <= 7 || at / block >= 10 && end <= 20
        };
        match self {
            Change::Write { at, length } => has_all(at, length),
            Change::Append { .. } => false,
            Change::Truncate { .. } | Change::Allocate(AllocateMode::PunchHole, ..) => true,
            Change::Allocate(_, at, length) => has_all(at, length),
        }
    }
}

fn make(directory: &Path, kind: &str, block: u64) -> PathBuf {
    let image = directory.join("image");
    let _ = std::fs::remove_file(&image);
    if kind == "reiserfs" {
        let file = std::fs::File::create(&image).expect("it is made");
        file.set_len(24 << 20).expect("there is space");
        let block = block.to_string();
        let made = Command::new("mkreiserfs")
            .args(["-q", "-q", "-f", "-f", "-s", "513", "-b", &block])
            .arg(&image)
            .output()
            .expect("mkreiserfs runs");
        assert!(made.status.success());
        return image;
    }
    let made = Command::new("mke2fs")
        .args([
            "-q",
            "-F",
            "-t",
            kind,
            "-m",
            "0",
            "-N",
            "128",
            "-b",
            &block.to_string(),
        ])
        .args(["-E", "root_owner=0:0"])
        .arg(&image)
        .arg(if block == 1024 { "12M" } else { "24M" })
        .output()
        .expect("mke2fs runs");
    assert!(made.status.success());
    image
}

fn pattern(seed: u64, length: u64) -> Vec<u8> {
    (0..length)
        .map(|at| (seed.wrapping_mul(31) + at * 7 + at / 251) as u8 | 1)
        .collect()
}

/// The file before its change: 20 blocks and a bit, blocks 7 to 9 a hole, and 12 to 15 allocated
/// only.
fn prepare(fs: &FileSystem, name: &str, seed: u64, block: u64) -> (File, Vec<u8>) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .open(fs, name);
    let file = file.expect("it is made");
    let mut model = pattern(seed, 20 * block + block / 3);
    for hole in [7 * block..10 * block, 12 * block..16 * block] {
        model[hole.start as usize..hole.end as usize].fill(0);
    }
    for part in [
        0..7 * block,
        10 * block..12 * block,
        16 * block..model.len() as u64,
    ] {
        let bytes = &model[part.start as usize..part.end as usize];
        file.write_all_at(bytes, part.start)
            .expect("there is space");
    }
    match file.allocate(AllocateMode::KeepSize, 12 * block, 4 * block) {
        Ok(()) => {}
        // There are no blocks that were not written.
        Err(error) if error.errno() == libc::EOPNOTSUPP => {}
        Err(error) => panic!("{error}"),
    }
    (file, model)
}

/// Makes the change; its effect on `model` if it succeeds.
fn run(file: &File, model: &mut Vec<u8>, change: Change, seed: u64) -> Result<(), finefs::Error> {
    let size = model.len() as u64;
    let mut put = |at: u64, bytes: &[u8]| {
        let end = at as usize + bytes.len();
        model.resize(model.len().max(end), 0);
        model[at as usize..end].copy_from_slice(bytes);
    };
    match change {
        Change::Write { at, length } => {
            let data = pattern(seed + 100, length);
            file.write_all_at(&data, at)?;
            put(at, &data);
        }
        Change::Append { length } => {
            let data = pattern(seed + 100, length);
            assert_eq!(file.append(&data)?, size);
            put(size, &data);
        }
        Change::Truncate { size } => {
            file.set_len(size)?;
            model.resize(size as usize, 0);
        }
        Change::Allocate(mode, at, length) => {
            file.allocate(mode, at, length)?;
            let end = match mode {
                AllocateMode::Extend | AllocateMode::ZeroRange => at + length,
                _ => (at + length).min(size),
            };
            match mode {
                AllocateMode::Extend if end > size => model.resize(end as usize, 0),
                AllocateMode::Extend | AllocateMode::KeepSize => {}
                _ => put(at, &vec![0; (end - at) as usize]),
            }
        }
    }
    Ok(())
}

/// Fills the file system until data has `free` blocks left.
fn fill_to(fs: &FileSystem, filler: &File, free: u64, block: u64) {
    fs.sync().expect("it commits");
    for length in [64 * block, block] {
        while filler.append(&vec![7; length as usize]).is_ok() {}
    }
    let size = filler.metadata().expect("it is open").len();
    filler.set_len(size - free * block).expect("it shrinks");
    fs.sync().expect("it commits");
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().expect("it is open").len() as usize];
    file.read_exact_at(&mut bytes, 0).expect("it is read");
    bytes
}

fn compare(found: &[u8], expected: &[u8], what: impl std::fmt::Display) {
    let differs = found
        .iter()
        .zip(expected)
        .position(|(one, other)| one != other);
    let lengths = (found.len(), expected.len());
    assert!(
        differs.is_none() && lengths.0 == lengths.1,
        "{what}: byte {differs:?}, sizes {lengths:?}"
    );
}

fn with_few_blocks(kind: &str, block: u64, free_blocks: impl Iterator<Item = u64>) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut failed = 0;
    for free in free_blocks {
        let image = make(directory.path(), kind, block);
        let fs = ImageOptions::new()
            .barriers(false)
            .open(&image)
            .expect("it opens");
        let mut files = Vec::new();
        for (index, change) in changes(block).into_iter().enumerate() {
            let name = format!("file{index}");
            let (file, model) = prepare(&fs, &name, index as u64, block);
            files.push((name, change, file, model));
        }
        let filler = fs.create("filler").expect("it is made");
        for (index, (_, change, file, model)) in files.iter_mut().enumerate() {
            fill_to(&fs, &filler, free, block);
            let outcome = run(file, model, *change, index as u64);
            let what =
                format!("{kind} with {free} free blocks of {block}, {change:?}: {outcome:?}");
            compare(&contents(file), model, &what);
            if let Err(error) = outcome {
                // Files with block maps have nothing allocated beyond their end.
                let refused = (kind != "ext4").then_some(libc::EOPNOTSUPP);
                let errno = Some(error.errno());
                assert!(errno == Some(libc::ENOSPC) || errno == refused, "{what}");
                assert!(!change.needs_no_block(block), "{what}");
                failed += 1;
            }
        }
        let expected: Vec<_> = files
            .into_iter()
            .map(|(name, _, _, model)| (name, model))
            .collect();
        drop(filler);
        fs.close().expect("it is on the image");
        let (program, arguments): (_, &[&str]) = match kind {
            "reiserfs" => ("reiserfsck", &["--check", "-y", "-q"]),
            _ => ("e2fsck", &["-fn"]),
        };
        let checked = Command::new(program).args(arguments).arg(&image).output();
        let checked = checked.expect("it runs");
        let report = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success(), "{free} free blocks: {report}");
        let fs = ImageOptions::new()
            .barriers(false)
            .open(&image)
            .expect("it opens again");
        for (name, model) in expected {
            let what = format!("{name} after the image was opened again ({free} free blocks)");
            compare(&fs.read(&name).expect("it is there"), &model, what);
        }
    }
    assert!(failed > 0, "no operation has met the end of the space");
}

#[test]
fn ext4_with_blocks_of_1_kib() {
    match std::env::var_os("FINEFS_FULL") {
        Some(_) => with_few_blocks("ext4", 1024, 0..=FREE_BLOCKS_MAX),
        None => with_few_blocks("ext4", 1024, FREE_BLOCKS.iter().copied()),
    }
}

#[test]
fn ext4_with_blocks_of_4_kib() {
    with_few_blocks("ext4", 4096, (0..=FREE_BLOCKS_MAX).step_by(7));
}

#[test]
fn ext3_with_blocks_of_1_kib() {
    with_few_blocks("ext3", 1024, (0..=FREE_BLOCKS_MAX).step_by(13));
}

#[test]
fn reiserfs_with_blocks_of_1_kib() {
    with_few_blocks("reiserfs", 1024, (0..=FREE_BLOCKS_MAX).step_by(13));
}

#[test]
fn reiserfs_with_blocks_of_4_kib() {
    with_few_blocks("reiserfs", 4096, (0..=FREE_BLOCKS_MAX).step_by(21));
}

/// Small files and names fill reiserfs, whose tree takes what is free; some go, others come, and
/// at last all go.
#[test]
fn reiserfs_is_filled_and_emptied_and_filled_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = make(directory.path(), "reiserfs", 4096);
    let open = || {
        let options = ImageOptions::new().barriers(false);
        options.open(&image).expect("it opens")
    };
    let check = || {
        let checked = Command::new("reiserfsck")
            .args(["--check", "-y", "-q"])
            .arg(&image)
            .output()
            .expect("it runs");
        let report = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success(), "{report}");
    };
    let mut most = None;
    for round in 0..2_u64 {
        let fs = open();
        let mut made = 0;
        let error = loop {
            let name = format!("{round} a name of some length {made}");
            let written = fs.write(&name, pattern(made, 1 + made * 37 % 9000));
            match written {
                Ok(()) => made += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.errno(), libc::ENOSPC, "{made} files");
        fs.close().expect("it is on the image");
        check();
        let fs = open();
        for number in 0..made {
            let name = format!("{round} a name of some length {number}");
            let expected = pattern(number, 1 + number * 37 % 9000);
            compare(&fs.read(&name).expect("it is there"), &expected, &name);
            fs.remove_file(&name).expect("it goes");
        }
        // The one that failed may be there, cut off.
        let _ = fs.remove_file(format!("{round} a name of some length {made}"));
        fs.close().expect("it is on the image");
        check();
        // Nothing is lost: about as many fit again, whose names lie elsewhere in the tree.
        let first = *most.get_or_insert(made);
        assert!(made.abs_diff(first) <= 10, "{first}, {made}");
    }
}
