//! The undo file (`-z`): what lies where something is about to be written, for e2undo(8).
//!
//! Unlike mke2fs's it is durable before the first write.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use finefs_block::BlockDevice;
use finefs_ext_disk::checksum::crc32c;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use finefs_ext_disk::undo_file::{Header, KEY_BLOCKS_MAX, Key, invert_magic, key_block};

use super::build::Build;
use super::error::{MkfsError, Result};
use super::journal_device;
use super::options::Options;

/// Blocks of the undo file, and what its keys count by.
const BLOCK_BYTES: u32 = 4096;
const KEY_BYTES_MAX: u64 = (KEY_BLOCKS_MAX * BLOCK_BYTES) as u64;
/// The first block is the header's.
const SUPERBLOCK_BLOCK: u64 = 1;
const FIRST_KEY_BLOCK: u64 = 2;

/// Refuses an undo file that cannot be made, before anything is changed.
pub(super) fn check(options: &Options) -> Result<()> {
    let Some(path) = &options.undo else {
        return Ok(());
    };
    let refuse = |reason: &str| Err(MkfsError::value("-z", path.display(), reason));
    match () {
        () if path.symlink_metadata().is_ok() => refuse("is there already; name a new file"),
        () if journal_device::is_wanted(options) => {
            refuse("a journal is made without an undo file; copy what is there")
        }
        () if options.writes_patterns => {
            refuse("-cc writes all of it, which no undo file keeps; take -c, which reads")
        }
        () => Ok(()),
    }
}

/// Writes the undo file of what is planned: of what will be zeros, and of what is put on the
/// device, whose start lies at `fs_offset_bytes`.
pub(super) fn keep(
    device: &dyn BlockDevice,
    fs_offset_bytes: u64,
    build: &Build,
    zeroed: &[Range<u64>],
    path: &Path,
) -> Result<()> {
    let superblock_at = SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64;
    let ranges = zeroed.iter().cloned().chain(build.pieces.ranges());
    let runs = runs(ranges.chain([superblock_at]), device.len_bytes());
    let made = Undo::create(path).and_then(|mut undo| {
        let written = undo.fill(device, &runs, fs_offset_bytes, build.shape.sb.as_bytes());
        if written.is_err() {
            let _ = std::fs::remove_file(path);
        }
        written
    });
    made.map_err(|error| MkfsError::Io {
        place: path.display().to_string(),
        action: "written",
        error,
    })
}

/// Whole blocks around these ranges, in order, none of them twice, and none past the end.
fn runs(ranges: impl Iterator<Item = Range<u64>>, end_bytes: u64) -> Vec<Range<u64>> {
    let block = u64::from(BLOCK_BYTES);
    let whole = |range: Range<u64>| {
        range.start / block * block..range.end.next_multiple_of(block).min(end_bytes)
    };
    let mut all: Vec<Range<u64>> = ranges.map(whole).collect();
    all.sort_unstable_by_key(|run| run.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for run in all {
        match merged.last_mut() {
            Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
            _ => merged.push(run),
        }
    }
    merged
}

struct Undo {
    file: File,
    /// The block that is written next.
    next: u64,
}

impl Undo {
    fn create(path: &Path) -> io::Result<Undo> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        Ok(Undo {
            file: options.open(path)?,
            next: FIRST_KEY_BLOCK,
        })
    }

    fn fill(
        &mut self,
        device: &dyn BlockDevice,
        runs: &[Range<u64>],
        fs_offset_bytes: u64,
        superblock: &[u8; SUPERBLOCK_SIZE],
    ) -> io::Result<()> {
        let mut header = Header {
            keys: 0,
            superblock: SUPERBLOCK_BLOCK,
            first_key_block: FIRST_KEY_BLOCK,
            block_size: BLOCK_BYTES,
            fs_block_size: BLOCK_BYTES,
            superblock_crc: crc32c(!0, superblock),
            is_finished: true,
            fs_offset_bytes: (fs_offset_bytes > 0).then_some(fs_offset_bytes),
        };
        let keyed: Vec<Range<u64>> = runs.iter().cloned().flat_map(cut).collect();
        for group in keyed.chunks(header.keys_per_block()) {
            let key_block_at = self.next;
            self.next += 1;
            let mut keys = Vec::new();
            for run in group {
                keys.push(self.keep(device, run)?);
            }
            self.put(key_block_at, &key_block(&keys, BLOCK_BYTES))?;
            header.keys += keys.len() as u64;
        }
        self.put(SUPERBLOCK_BLOCK, &invert_magic(superblock))?;
        self.file.set_len(self.next * u64::from(BLOCK_BYTES))?;
        self.put(0, &header.to_bytes())?;
        self.file.sync_all()
    }

    /// Puts what lies there behind what was put before.
    fn keep(&mut self, device: &dyn BlockDevice, run: &Range<u64>) -> io::Result<Key> {
        let mut old = vec![0; (run.end - run.start) as usize];
        device.read_at(run.start, &mut old)?;
        // Zeros are a hole.
        if old.iter().any(|byte| *byte != 0) {
            self.put(self.next, &old)?;
        }
        let length_bytes = old.len() as u32;
        self.next += u64::from(length_bytes.div_ceil(BLOCK_BYTES));
        Ok(Key {
            fs_block: run.start / u64::from(BLOCK_BYTES),
            crc: crc32c(!0, &old),
            length_bytes,
        })
    }

    fn put(&self, block: u64, bytes: &[u8]) -> io::Result<()> {
        self.file
            .write_all_at(bytes, block * u64::from(BLOCK_BYTES))
    }
}

/// A run in parts that are short enough for a key each.
fn cut(run: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let starts = (run.start..run.end).step_by(KEY_BYTES_MAX as usize);
    starts.map(move |start| start..run.end.min(start + KEY_BYTES_MAX))
}
