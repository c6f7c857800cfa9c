//! Mounts with 64 to 0 free blocks: what fails for want of space has changed nothing, what succeeds
//! is kept; in the kernel's cache, past it, and on the image. These tests need root and FUSE.
//!
//! Each operation on data runs on a file of its own with written blocks, a hole, and allocated
//! blocks that were not written. The file is compared with an array of bytes at once, by what the
//! kernel has cached, by direct I/O and by what is read anew, and again after the next mount.
//!
//! With `FINEFS_FULL` set (`xtask test --full`) there is a run for each number of free blocks.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};

use crate::aligned::Aligned;
use crate::mapping;
use crate::support::*;

/// The most free blocks that the operations begin with.
const FREE_BLOCKS_MAX: u64 = 64;
/// With so many they begin in a usual run.
const FREE_BLOCKS: &[u64] = &[0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 64];
/// What the parameters of direct I/O are multiples of.
const SECTOR: u64 = 512;

const EXTEND: FallocateFlags = FallocateFlags::empty();
const KEEP_SIZE: FallocateFlags = FallocateFlags::KEEP_SIZE;
const PUNCH_HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(KEEP_SIZE);
const ZERO_RANGE: FallocateFlags = FallocateFlags::ZERO_RANGE;
const ZERO_RANGE_KEEP_SIZE: FallocateFlags = ZERO_RANGE.union(KEEP_SIZE);

/// A change of a file's data, in bytes.
#[derive(Clone, Copy, Debug)]
enum Change {
    Write { at: u64, length: u64 },
    DirectWrite { at: u64, length: u64 },
    Append { length: u64 },
    Copy { from: u64, at: u64, length: u64 },
    MappedStore { at: u64, length: u64 },
    Truncate { size: u64 },
    Allocate(FallocateFlags, u64, u64),
}

/// The operations on files whose blocks have `block` bytes: over each kind of content, aligned and
/// not, within the file and across its end.
fn changes(block: u64) -> Vec<Change> {
    use Change::{Allocate, Append, Copy, DirectWrite, MappedStore, Truncate, Write};
    let write = |at, length| Write { at, length };
    let direct = |at, length| DirectWrite { at, length };
    let copy = |from, at, length| Copy { from, at, length };
    let store = |at, length| MappedStore { at, length };
    vec![
        write(3 * block + 5, 4 * block),
        write(7 * block + 100, 6 * block),
        write(12 * block - 9, 5 * block),
        write(19 * block, 30 * block),
        write(40 * block + 1, 1),
        write(80 * block, 200 * block),
        direct(3 * block + SECTOR, 2 * block),
        direct(6 * block, 5 * block),
        direct(8 * block + SECTOR, SECTOR),
        direct(12 * block, 4 * block),
        direct(13 * block + SECTOR, block),
        direct(5 * block, 15 * block),
        direct(16 * block, 30 * block),
        direct(33 * block + SECTOR, 3 * SECTOR),
        Append { length: 3 * block },
        Append { length: 70 * block },
        copy(0, 10 * block, 2 * block),
        copy(block / 2, 7 * block + 3, 3 * block),
        copy(5 * block, 21 * block + 7, 15 * block),
        copy(7 * block, 13 * block, 3 * block),
        store(2 * block + 3, 3 * block),
        store(5 * block, 4 * block),
        store(0, 20 * block),
        store(12 * block + 5, 2 * block),
        store(8 * block + 1, 10),
        Truncate {
            size: 30 * block + 7,
        },
        Truncate {
            size: 4 * block + 11,
        },
        Truncate { size: 9 * block },
        Allocate(EXTEND, 0, 40 * block),
        Allocate(EXTEND, 8 * block + 3, 100),
        Allocate(KEEP_SIZE, 18 * block, 70 * block),
        Allocate(PUNCH_HOLE, 2 * block, 3 * block),
        Allocate(PUNCH_HOLE, block / 2, 5 * block),
        Allocate(PUNCH_HOLE, 100, 50),
        Allocate(PUNCH_HOLE, 9 * block + 1, 80 * block),
        Allocate(ZERO_RANGE, 9 * block - 300, 82 * block + 30),
        Allocate(ZERO_RANGE, block + 7, 10 * block),
        Allocate(ZERO_RANGE, 2 * block + 1, 4 * block),
        Allocate(ZERO_RANGE_KEEP_SIZE, 0, 20 * block),
        Allocate(ZERO_RANGE_KEEP_SIZE, 11 * block, 7 * block),
        Allocate(ZERO_RANGE_KEEP_SIZE, 5, 100),
    ]
}

/// Which of a file's blocks have storage at first.
fn has_storage(index: u64) -> bool {
    index < 7 || (10..=20).contains(&index)
}

impl Change {
    /// Whether it can do with the blocks that the file has, or with fewer.
    fn needs_no_block(self, block: u64) -> bool {
        let has_all =
            |at: u64, length: u64| (at / block..(at + length).div_ceil(block)).all(has_storage);
        match self {
            Change::Write { at, length }
            | Change::DirectWrite { at, length }
            | Change::Copy { at, length, .. }
            | Change::MappedStore { at, length }
            | Change::Allocate(_, at, length)
                if has_all(at, length) =>
            {
                true
            }
            Change::Allocate(mode, ..) => mode == PUNCH_HOLE,
            Change::Truncate { .. } => true,
            _ => false,
        }
    }

    /// Whether it waits in the kernel's cache with `options`, and fails with a later fsync.
    fn is_put_off(self, options: &str) -> bool {
        use Change::{Append, Write};
        options.contains("writeback_cache") && matches!(self, Write { .. } | Append { .. })
    }
}

fn make(place: &Place, kind: &str, block: u64) -> PathBuf {
    let image = place.path().join("image");
    let size = if block == 1024 { "12M" } else { "24M" };
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-t", kind, "-m", "0", "-N", "128"]);
    mke2fs.args(["-b", &block.to_string()]);
    let made = run(mke2fs.arg(&image).arg(size));
    assert!(made.status.success(), "{made:?}");
    image
}

/// No zeros.
fn pattern(seed: u64, length: u64) -> Vec<u8> {
    (0..length)
        .map(|at| (seed.wrapping_mul(31) + at * 7 + at / 251) as u8 | 1)
        .collect()
}

/// A file that changes, and what must be in it.
struct Subject {
    path: PathBuf,
    file: File,
    model: Vec<u8>,
}

impl Subject {
    /// 20 blocks and a bit, blocks 7 to 9 a hole, and 12 to 15 allocated only.
    fn make(path: PathBuf, seed: u64, block: u64) -> Subject {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true);
        let file = options.open(&path).unwrap();
        let mut model = pattern(seed, 20 * block + block / 3);
        let parts = [0..7, 10..12, 16..21];
        for part in &parts {
            let (from, to) = (part.start * block, part.end * block);
            let bytes = &model[from as usize..model.len().min(to as usize)];
            file.write_all_at(bytes, from).unwrap();
        }
        for hole in [7 * block..10 * block, 12 * block..16 * block] {
            model[hole.start as usize..hole.end as usize].fill(0);
        }
        fallocate(&file, KEEP_SIZE, 12 * block, 4 * block).unwrap();
        // Nothing of it waits in the kernel's cache when the space runs out.
        file.sync_data().unwrap();
        Subject { path, file, model }
    }

    /// Makes the change; its effect on the model if it succeeds. A write may come to a part.
    fn change(&mut self, change: Change, seed: u64) -> io::Result<()> {
        let size = self.model.len() as u64;
        match change {
            Change::Write { at, length } => {
                let data = pattern(seed + 100, length);
                let done = self.file.write_at(&data, at)?;
                self.put(at, &data[..done]);
            }
            Change::DirectWrite { at, length } => {
                let data = Aligned::holding(&pattern(seed + 100, length));
                let file = direct(&self.path, true);
                let done = file.write_at(data.bytes(), at)?;
                self.put(at, &data.bytes()[..done]);
            }
            Change::Append { length } => {
                let data = pattern(seed + 100, length);
                let mut file = OpenOptions::new().append(true).open(&self.path)?;
                let done = file.write(&data)?;
                self.put(size, &data[..done]);
            }
            Change::Copy { from, at, length } => {
                let (mut read_at, mut write_at) = (from, at);
                let (ends, length) = ((&mut read_at, &mut write_at), length as usize);
                let (from_at, to_at) = (Some(ends.0), Some(ends.1));
                let (file, source) = (&self.file, from as usize);
                let done = rustix::fs::copy_file_range(file, from_at, file, to_at, length)?;
                let data = self.model[source..source + done].to_vec();
                self.put(at, &data);
            }
            Change::MappedStore { at, length } => {
                let data = pattern(seed + 100, length);
                mapping::store(&self.file, at, &data)?;
                self.put(at, &data);
            }
            Change::Truncate { size } => {
                self.file.set_len(size)?;
                self.model.resize(size as usize, 0);
            }
            Change::Allocate(mode, at, length) => {
                fallocate(&self.file, mode, at, length)?;
                let end = match mode {
                    EXTEND | ZERO_RANGE => at + length,
                    _ => (at + length).min(size),
                };
                match mode {
                    EXTEND if end > size => self.model.resize(end as usize, 0),
                    EXTEND | KEEP_SIZE => {}
                    _ => self.put(at, &vec![0; (end - at) as usize]),
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let end = at as usize + bytes.len();
        self.model.resize(self.model.len().max(end), 0);
        self.model[at as usize..end].copy_from_slice(bytes);
    }

    /// After a store that was not written out as a whole: blocks with storage have what was stored,
    /// of others each has all of it or none.
    fn settle_store(&mut self, at: u64, length: u64, seed: u64, block: u64) {
        let (found, old) = (self.read_directly(), self.model.clone());
        self.put(at, &pattern(seed + 100, length));
        for index in (at / block..(at + length).div_ceil(block)).filter(|&at| !has_storage(at)) {
            let bytes = (index * block) as usize..((index + 1) * block) as usize;
            if found[bytes.clone()] == old[bytes.clone()] {
                self.model[bytes.clone()].copy_from_slice(&old[bytes]);
            }
        }
    }

    fn read(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }

    fn read_directly(&self) -> Vec<u8> {
        let file = direct(&self.path, false);
        let length = file.metadata().unwrap().len();
        let mut space = Aligned::new(length.next_multiple_of(4096) as usize);
        let done = file.read_at(space.bytes_mut(), 0).unwrap();
        assert_eq!(done as u64, length);
        space.bytes()[..done].to_vec()
    }

    /// Makes the kernel forget what it has of the file's data.
    fn forget_pages(&self) {
        self.file.sync_data().ok();
        fadvise(&self.file, 0, None, Advice::DontNeed).unwrap();
    }
}

fn direct(path: &Path, is_written: bool) -> File {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(is_written);
    options.custom_flags(libc::O_DIRECT).open(path).unwrap()
}

/// Fills the file system until data has `free` blocks left.
fn fill_to(filler: &mut File, free: u64, block: u64) {
    filler.sync_all().unwrap();
    for length in [64 * block, block] {
        let bytes = vec![7; length as usize];
        while filler.write(&bytes).is_ok_and(|done| done > 0) {}
    }
    let size = filler.metadata().unwrap().len();
    filler.set_len(size - free * block).unwrap();
    filler.sync_all().unwrap();
}

fn compare(found: &[u8], expected: &[u8], what: impl Display) {
    let mut both = found.iter().zip(expected);
    let differs = both.position(|(one, other)| one != other);
    let lengths = (found.len(), expected.len());
    assert!(
        differs.is_none() && lengths.0 == lengths.1,
        "{what}: byte {differs:?}, sizes {lengths:?}"
    );
}

/// Makes one change with `free` blocks left, and compares; true if it failed.
fn change_and_compare(
    subject: &mut Subject,
    change: Change,
    seed: u64,
    (free, block): (u64, u64),
    kind: &str,
) -> bool {
    // What the kernel has cached must change with the file; what it has not, must not come back.
    match (seed + free).is_multiple_of(2) {
        true => drop(subject.read()),
        false => subject.forget_pages(),
    }
    let outcome = subject.change(change, seed);
    let what = format!("{kind}, {free} free blocks of {block}, {change:?}: {outcome:?}");
    if let Err(error) = &outcome {
        // Files with block maps have nothing allocated beyond their end.
        let refused = (kind == "ext2").then_some(libc::EOPNOTSUPP);
        let errno = error.raw_os_error();
        assert!(errno == Some(libc::ENOSPC) || errno == refused, "{what}");
        assert!(!change.needs_no_block(block), "{what}");
    }
    match (change, &outcome) {
        // What is lost the kernel shows until it needs the memory.
        (Change::MappedStore { at, length }, Err(_)) => {
            subject.settle_store(at, length, seed, block);
        }
        _ => compare(&subject.read(), &subject.model, format!("{what}, cached")),
    }
    let directly = subject.read_directly();
    compare(&directly, &subject.model, format!("{what}, directly"));
    subject.forget_pages();
    compare(
        &subject.read(),
        &subject.model,
        format!("{what}, read anew"),
    );
    outcome.is_err()
}

/// Runs all changes; gives how many failed.
fn with_free_blocks(kind: &str, block: u64, free: u64, options: &str) -> u32 {
    let place = Place::new();
    let (image, root) = (make(&place, kind, block), place.mount_point());
    let remount = |options: &str| mount(&image, &root, &["-o", options]);
    remount(options);
    let mut subjects: Vec<(Change, Subject)> = Vec::new();
    for (index, change) in changes(block).into_iter().enumerate() {
        if !change.is_put_off(options) {
            let path = root.join(format!("file{index}"));
            subjects.push((change, Subject::make(path, index as u64, block)));
        }
    }
    // What it holds does not wait in the kernel's cache.
    let mut filler = OpenOptions::new();
    let filler = filler.append(true).create(true);
    let filler = filler.custom_flags(libc::O_DIRECT);
    let mut filler = filler.open(root.join("filler")).unwrap();
    let (mut failed, mut has_lost_stores) = (0, false);
    for (index, (change, subject)) in subjects.iter_mut().enumerate() {
        fill_to(&mut filler, free, block);
        let has_failed = change_and_compare(subject, *change, index as u64, (free, block), kind);
        failed += u32::from(has_failed);
        has_lost_stores |= has_failed && matches!(change, Change::MappedStore { .. });
    }
    let compare_all = |subjects: &[(Change, Subject)], when: &str| {
        for (change, subject) in subjects {
            let what = format!("{kind}, {free} free blocks of {block}, {change:?}, {when}");
            compare(&subject.read(), &subject.model, what);
        }
    };
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    compare_all(&subjects, "without caches");
    let models = subjects.into_iter().map(|(change, subject)| {
        let Subject { path, model, .. } = subject;
        (change, path, model)
    });
    let models: Vec<_> = models.collect();
    drop(filler);
    match has_lost_stores {
        true => drop(unmount_with_loss(&root)),
        false => unmount(&place),
    }
    check(&image);
    remount("ro");
    for (change, path, model) in models {
        let what = format!("{kind}, {free} free blocks of {block}, {change:?}, mounted again");
        compare(&fs::read(path).unwrap(), &model, what);
    }
    unmount(&place);
    failed
}

fn with_few_blocks(kind: &str, block: u64, step: usize, options: &str) {
    if !can_mount() {
        return;
    }
    let all: Vec<u64> = (0..=FREE_BLOCKS_MAX).collect();
    let some: Vec<u64> = FREE_BLOCKS.iter().copied().step_by(step).collect();
    let is_full = std::env::var_os("FINEFS_FULL").is_some();
    let chosen = if is_full { all } else { some };
    let failed = chosen
        .iter()
        .map(|&free| with_free_blocks(kind, block, free, options));
    assert!(
        failed.sum::<u32>() > 0,
        "no operation has met the end of the space"
    );
}

#[test]
fn ext4_with_blocks_of_1_kib() {
    with_few_blocks("ext4", 1024, 1, "nobarrier");
}

#[test]
fn ext4_with_blocks_of_4_kib() {
    with_few_blocks("ext4", 4096, 3, "nobarrier");
}

#[test]
fn ext2_with_blocks_of_1_kib() {
    with_few_blocks("ext2", 1024, 3, "nobarrier");
}

#[test]
fn ext4_with_the_kernel_writing_back() {
    with_few_blocks("ext4", 1024, 3, "nobarrier,writeback_cache");
}
