//! GUID partition tables, read only.
//!
//! # References
//! UEFI Specification 2.10, chapter 5.

use std::io::{self, Read, Seek, SeekFrom, Write};

use finefs_block::BlockDevice;
use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;

/// A partition as such a table has it.
pub(crate) struct GuidPartition {
    pub number: u32,
    pub start_bytes: u64,
    pub length_bytes: u64,
    pub name: String,
}

/// A device with a position, read only.
struct Cursor<'a> {
    disk: &'a dyn BlockDevice,
    at: u64,
}

impl std::fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.disk.describe())
    }
}

impl Read for Cursor<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.disk.len_bytes().saturating_sub(self.at);
        let length = rest.min(buffer.len() as u64) as usize;
        self.disk.read_at(self.at, &mut buffer[..length])?;
        self.at += length as u64;
        Ok(length)
    }
}

impl Write for Cursor<'_> {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Cursor<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.disk.len_bytes().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// The partitions of a disk that has such a table.
pub(crate) fn partitions(disk: &dyn BlockDevice) -> io::Result<Vec<GuidPartition>> {
    let open = |size| {
        let config = GptConfig::new().writable(false).logical_block_size(size);
        config.open_from_device(Cursor { disk, at: 0 })
    };
    let mut sizes = [LogicalBlockSize::Lb512, LogicalBlockSize::Lb4096];
    if disk.sector_bytes() == 4096 {
        sizes.reverse();
    }
    let [first, second] = sizes;
    let (disk, size) = match open(first) {
        Ok(disk) => (disk, first.as_u64()),
        Err(error) => match open(second) {
            Ok(disk) => (disk, second.as_u64()),
            Err(_) => return Err(io::Error::other(error.to_string())),
        },
    };
    let used = disk
        .partitions()
        .iter()
        .filter(|(_, entry)| entry.is_used());
    let partition = |(number, entry): (&u32, &gpt::partition::Partition)| {
        let length = entry
            .last_lba
            .checked_sub(entry.first_lba)?
            .checked_add(1)?;
        Some(GuidPartition {
            number: *number,
            start_bytes: entry.first_lba.checked_mul(size)?,
            length_bytes: length.checked_mul(size)?,
            name: entry.name.clone(),
        })
    };
    Ok(used.filter_map(partition).collect())
}
