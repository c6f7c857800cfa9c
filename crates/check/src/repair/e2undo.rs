//! Undo files of e2fsprogs, put back as e2undo(8) does.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext_disk::checksum::crc32c;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use finefs_ext_disk::undo_file::{
    HEADER_BYTES, Header, KEY_BLOCKS_MAX, MAGIC, invert_magic, parse_key_block,
};

use super::ChangedSince;
use super::shadow::PAGE;

/// True for a file that begins as these do.
pub(super) fn is_one(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && &magic == MAGIC
}

/// Puts back what the file holds, and gives the number of pages that it has. Nothing is written
/// unless the file is whole and the device's superblock is the one of its making.
pub(super) fn undo(
    path: &Path,
    device: &Arc<dyn BlockDevice>,
    changed: ChangedSince,
) -> Result<usize, String> {
    let shown = path.display();
    let told = |error: io::Error| match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            format!("{shown}: is no whole undo file")
        }
        _ => format!("{shown}: {error}"),
    };
    let file = OpenUndoFile::open(path).map_err(told)?;
    let start = file.start_on(&**device).map_err(told)?;
    let start = start.or(match changed {
        ChangedSince::Refused => None,
        ChangedSince::PutBack { is_part: true } => Some(0),
        ChangedSince::PutBack { is_part: false } => Some(file.header.fs_offset_bytes.unwrap_or(0)),
    });
    let Some(start) = start else {
        return Err(format!(
            "{shown}: is of another file system than {}, or that was changed since, or its making \
             was interrupted: their superblocks differ (--force does not ask)",
            device.describe(),
        ));
    };
    let mut bytes = 0;
    let end = device.len_bytes();
    file.each(&mut |offset, old| {
        bytes += old.len();
        let first = start.checked_add(offset);
        let last = first.and_then(|first| first.checked_add(old.len() as u64));
        match last.is_some_and(|last| last <= end) {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    })
    .map_err(told)?;
    let write = |error: io::Error| format!("{}: {error}", device.describe());
    file.each(&mut |offset, old| device.write_at(start + offset, old))
        .map_err(write)?;
    device.flush().map_err(write)?;
    Ok(bytes.div_ceil(PAGE as usize))
}

struct OpenUndoFile {
    file: File,
    header: Header,
}

impl OpenUndoFile {
    fn open(path: &Path) -> io::Result<OpenUndoFile> {
        let file = File::open(path)?;
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0)?;
        let header = Header::parse(&bytes).filter(|header| header.is_finished);
        let header = header.ok_or(io::ErrorKind::InvalidData)?;
        Ok(OpenUndoFile { file, header })
    }

    fn read(&self, block: u64, bytes: &mut [u8]) -> io::Result<()> {
        let at = block.checked_mul(self.header.block_size.into());
        let at = at.filter(|at| i64::try_from(*at).is_ok());
        let at = at.ok_or(io::ErrorKind::InvalidData)?;
        self.file.read_exact_at(bytes, at)
    }

    /// Where on the device the file system starts: at its start (of what was opened as a partition
    /// of it, too), or where the file says. `None` where neither place has the superblock.
    fn start_on(&self, device: &dyn BlockDevice) -> io::Result<Option<u64>> {
        let mut kept = [0; SUPERBLOCK_SIZE];
        self.read(self.header.superblock, &mut kept)?;
        let kept = invert_magic(&kept);
        if crc32c(!0, &kept) != self.header.superblock_crc {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let is_there = |start: &u64| {
            let mut found = [0; SUPERBLOCK_SIZE];
            let at = start.checked_add(SUPERBLOCK_OFFSET);
            at.is_some_and(|at| device.read_at(at, &mut found).is_ok()) && found == kept
        };
        let places = [Some(0), self.header.fs_offset_bytes];
        Ok(places.into_iter().flatten().find(is_there))
    }

    /// Calls `each` with what there is, and where it lay in the file system.
    fn each(&self, each: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let damaged = || io::Error::from(io::ErrorKind::InvalidData);
        let block_size = self.header.block_size;
        let (mut left, mut block) = (self.header.keys, self.header.first_key_block);
        let mut key_bytes = vec![0; block_size as usize];
        let mut old = Vec::new();
        while left > 0 {
            self.read(block, &mut key_bytes)?;
            let count = left.min(self.header.keys_per_block() as u64);
            let keys = parse_key_block(&key_bytes, count as usize).ok_or_else(damaged)?;
            block += 1;
            for key in keys {
                if u64::from(key.length_bytes) > u64::from(KEY_BLOCKS_MAX * block_size) {
                    return Err(damaged());
                }
                old.resize(key.length_bytes as usize, 0);
                self.read(block, &mut old)?;
                if crc32c(!0, &old) != key.crc {
                    return Err(damaged());
                }
                block += u64::from(key.length_bytes.div_ceil(block_size));
                let at = key.fs_block.checked_mul(self.header.fs_block_size.into());
                each(at.ok_or_else(damaged)?, &old)?;
            }
            left -= count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_block::MemoryDevice;
    use finefs_ext_disk::undo_file::{Key, key_block};

    const BLOCK: u32 = 1024;

    /// An undo file with one block of ones, which is the first of a file system.
    fn made(path: &Path, fs_offset_bytes: u64) {
        let superblock = [7; SUPERBLOCK_SIZE];
        let old = [1; BLOCK as usize];
        let header = Header {
            keys: 1,
            superblock: 1,
            first_key_block: 2,
            block_size: BLOCK,
            fs_block_size: BLOCK,
            superblock_crc: crc32c(!0, &superblock),
            is_finished: true,
            fs_offset_bytes: Some(fs_offset_bytes),
        };
        let key = Key {
            fs_block: 0,
            crc: crc32c(!0, &old),
            length_bytes: BLOCK,
        };
        let file = File::create(path).unwrap();
        file.write_all_at(&header.to_bytes(), 0).unwrap();
        let blocks = [
            &invert_magic(&superblock)[..],
            &key_block(&[key], BLOCK),
            &old,
        ];
        file.write_all_at(&blocks.concat(), BLOCK.into()).unwrap();
    }

    #[test]
    fn what_is_forced_lies_in_the_part_or_where_the_file_says_on_the_device() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("undo");
        let length = 8 * u64::from(BLOCK);
        let forced = |offset: u64, is_part: bool| {
            made(&path, offset);
            let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(length));
            let undone = undo(&path, &device, ChangedSince::PutBack { is_part });
            let mut bytes = vec![0; length as usize];
            device.read_at(0, &mut bytes).unwrap();
            undone.map(|_| bytes.iter().position(|byte| *byte == 1))
        };
        assert_eq!(forced(2048, false), Ok(Some(2048)));
        assert_eq!(forced(2048, true), Ok(Some(0)));
        for offset in [length, u64::MAX - 1023, u64::MAX] {
            let refused = forced(offset, false).unwrap_err();
            assert!(refused.contains("is no whole undo file"), "{refused}");
            assert_eq!(forced(offset, true), Ok(Some(0)));
        }
    }
}
