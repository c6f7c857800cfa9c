//! Where in a disk image a file system starts: GPT and MBR partition tables, read only.
//!
//! Tables count in logical sectors. Those of a block device are as large as the kernel says. An
//! image file has sectors of 512 bytes, but for a GPT that is found only where sectors of 4,096
//! would have it.
//!
//! # References
//! The MBR with its chain of extended boot records as Linux's `block/partitions/msdos.c` follows
//! it: a logical partition's start counts from its own record, the next record's from the first.

use std::io;

use finefs_block::BlockDevice;
use finefs_reiser_disk::superblock as reiserfs;

#[cfg(feature = "gpt")]
use crate::guid_table;

/// A partition of a disk image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// As Linux numbers them: `sda1` is 1; logical ones begin at 5.
    pub number: u32,
    /// Where it starts.
    pub start_bytes: u64,
    /// Its length.
    pub length_bytes: u64,
    /// Its name in the table (GPT); else empty.
    pub name: String,
    /// The label of the ext2/3/4 file system or reiserfs in it; empty where there is none.
    pub label: String,
}

/// The bytes of a boot record, whatever the size of a sector.
const RECORD_BYTES: usize = 512;
/// Type of the entry that protects a GPT.
const PROTECTIVE: u8 = 0xEE;
/// Types of extended partitions.
const EXTENDED: [u8; 3] = [0x05, 0x0F, 0x85];
/// Logical partitions that are looked at; a damaged chain may be a circle.
const LOGICAL_MAX: u32 = 128;

/// The partitions of a disk image, by number; none where there is no table.
pub fn partitions(disk: &dyn BlockDevice) -> io::Result<Vec<Partition>> {
    let Some(record) = read_record(disk, 0)? else {
        return Ok(Vec::new());
    };
    let mut found = match record.iter().any(|entry| entry.kind == PROTECTIVE) {
        true => of_gpt(disk)?,
        false => of_mbr(disk, &record)?,
    };
    for partition in &mut found {
        let start = partition.start_bytes;
        let label = ext_label(disk, start).or_else(|| reiserfs_label(disk, start));
        partition.label = label.unwrap_or_default();
    }
    Ok(found)
}

/// Where the last partition of a GUID partition table ends.
pub(crate) fn end_of_table(disk: &dyn BlockDevice) -> Option<u64> {
    let record = read_record(disk, 0).ok()??;
    if record.iter().all(|entry| entry.kind != PROTECTIVE) {
        return None;
    }
    let ends = of_gpt(disk).ok()?.into_iter();
    ends.map(|part| part.start_bytes.saturating_add(part.length_bytes))
        .max()
}

#[cfg(feature = "gpt")]
fn of_gpt(disk: &dyn BlockDevice) -> io::Result<Vec<Partition>> {
    let found = guid_table::partitions(disk)?.into_iter();
    let partition = |part: guid_table::GuidPartition| Partition {
        number: part.number,
        start_bytes: part.start_bytes,
        length_bytes: part.length_bytes,
        name: part.name,
        label: String::new(),
    };
    Ok(found.map(partition).collect())
}

#[cfg(not(feature = "gpt"))]
fn of_gpt(_disk: &dyn BlockDevice) -> io::Result<Vec<Partition>> {
    let reason = "has a GUID partition table, which this build of finefs cannot read";
    Err(io::Error::new(io::ErrorKind::Unsupported, reason))
}

/// The label in the superblock that starts 1,024 bytes into a file system.
fn ext_label(disk: &dyn BlockDevice, start_bytes: u64) -> Option<String> {
    let mut superblock = [0; 136];
    disk.read_at(start_bytes.checked_add(1024)?, &mut superblock)
        .ok()?;
    if superblock[56..58] != [0x53, 0xEF] {
        return None;
    }
    let label = superblock[120..136].split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(label).into_owned())
}

fn reiserfs_label(disk: &dyn BlockDevice, start_bytes: u64) -> Option<String> {
    let mut bytes = [0; reiserfs::SUPERBLOCK_SIZE];
    let at = start_bytes.checked_add(reiserfs::SUPERBLOCK_OFFSET)?;
    disk.read_at(at, &mut bytes).ok()?;
    let label = reiserfs::Superblock::parse(&bytes).ok()?.label();
    let label = label.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(label).into_owned())
}

/// An entry of a boot record, in sectors.
#[derive(Clone, Copy)]
struct Entry {
    kind: u8,
    start: u32,
    length: u32,
}

/// The four entries of the boot record at a place; `None` where there is no record.
fn read_record(disk: &dyn BlockDevice, at_bytes: u64) -> io::Result<Option<[Entry; 4]>> {
    let mut sector = [0; RECORD_BYTES];
    match disk.read_at(at_bytes, &mut sector) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        done => done?,
    }
    if sector[510..] != [0x55, 0xAA] {
        return Ok(None);
    }
    let word = |at: usize| {
        u32::from_le_bytes([sector[at], sector[at + 1], sector[at + 2], sector[at + 3]])
    };
    Ok(Some([446, 462, 478, 494].map(|at| Entry {
        kind: sector[at + 4],
        start: word(at + 8),
        length: word(at + 12),
    })))
}

fn of_mbr(disk: &dyn BlockDevice, record: &[Entry; 4]) -> io::Result<Vec<Partition>> {
    let sector_bytes = u64::from(disk.sector_bytes());
    let mut found = Vec::new();
    for (number, entry) in (1..).zip(record) {
        if EXTENDED.contains(&entry.kind) {
            logical(disk, u64::from(entry.start), &mut found)?;
        } else if entry.kind != 0 && entry.length != 0 {
            found.push(mbr_partition(number, 0, entry, sector_bytes));
        }
    }
    found.sort_by_key(|partition| partition.number);
    Ok(found)
}

fn logical(disk: &dyn BlockDevice, first: u64, found: &mut Vec<Partition>) -> io::Result<()> {
    let sector_bytes = u64::from(disk.sector_bytes());
    // Those of a second extended partition are counted on.
    let last = found.iter().map(|partition| partition.number).max();
    let (mut at, mut number) = (first, last.map_or(5, |last| 5.max(last + 1)));
    for _ in 0..LOGICAL_MAX {
        let Some(record) = read_record(disk, at * sector_bytes)? else {
            return Ok(());
        };
        for entry in &record[..2] {
            let is_partition = entry.kind != 0 && !EXTENDED.contains(&entry.kind);
            if is_partition && entry.length != 0 {
                found.push(mbr_partition(number, at, entry, sector_bytes));
                number += 1;
            }
        }
        let next = record.iter().find(|entry| EXTENDED.contains(&entry.kind));
        match next {
            Some(next) if next.start != 0 => at = first + u64::from(next.start),
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// A partition whose start counts from sector `base` on.
fn mbr_partition(number: u32, base: u64, entry: &Entry, sector_bytes: u64) -> Partition {
    Partition {
        number,
        start_bytes: (base + u64::from(entry.start)) * sector_bytes,
        length_bytes: u64::from(entry.length) * sector_bytes,
        name: String::new(),
        label: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_block::{Access, FileDevice};
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    fn partitions(path: &Path) -> io::Result<Vec<Partition>> {
        super::partitions(&FileDevice::open(path, Access::Inspect).unwrap())
    }

    /// Writes a boot record with entries of (type, start, length).
    fn write_record(file: &File, sector: u64, entries: &[(u8, u32, u32)]) {
        let mut bytes = [0; 512];
        bytes[510..].copy_from_slice(&[0x55, 0xAA]);
        for (index, (kind, start, length)) in entries.iter().enumerate() {
            let at = 446 + 16 * index;
            bytes[at + 4] = *kind;
            bytes[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
            bytes[at + 12..at + 16].copy_from_slice(&length.to_le_bytes());
        }
        file.write_all_at(&bytes, sector * 512).unwrap();
    }

    fn image() -> (tempfile::TempDir, std::path::PathBuf, File) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        file.set_len(64 << 20).unwrap();
        (dir, path, file)
    }

    #[test]
    fn primary_and_logical_partitions_are_found() {
        let (_dir, path, file) = image();
        assert_eq!(partitions(&path).unwrap(), []);
        write_record(
            &file,
            0,
            &[(0x83, 2048, 100), (0x05, 4096, 9000), (0, 1, 1)],
        );
        write_record(&file, 4096, &[(0x83, 10, 20), (0x05, 1000, 500)]);
        write_record(&file, 5096, &[(0x83, 30, 40)]);
        let found = partitions(&path).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|part| (part.number, part.start_bytes / 512, part.length_bytes / 512))
            .collect();
        assert_eq!(found, [(1, 2048, 100), (5, 4106, 20), (6, 5126, 40)]);
        // A second extended partition.
        let primary = [(0x83, 2048, 100), (0x05, 4096, 5000), (0x0F, 10_000, 100)];
        write_record(&file, 0, &primary);
        write_record(&file, 10_000, &[(0x83, 1, 2)]);
        let numbers = partitions(&path).unwrap();
        let numbers: Vec<_> = numbers.iter().map(|part| part.number).collect();
        assert_eq!(numbers, [1, 5, 6, 7]);
        // A circle ends.
        write_record(&file, 5096, &[(0x83, 30, 40), (0x05, 1000, 500)]);
        assert!(partitions(&path).unwrap().len() < 200);
    }

    /// A device with sectors of 4,096 bytes, all in memory.
    struct LargeSectors(finefs_block::MemoryDevice);

    impl BlockDevice for LargeSectors {
        fn len_bytes(&self) -> u64 {
            self.0.len_bytes()
        }

        fn is_read_only(&self) -> bool {
            false
        }

        fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
            self.0.read_at(offset_bytes, buffer)
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }

        fn sector_bytes(&self) -> u32 {
            4096
        }

        fn describe(&self) -> String {
            "large sectors".to_owned()
        }
    }

    #[test]
    fn a_table_counts_in_the_sectors_of_its_device() {
        let (_dir, path, file) = image();
        let entries = [(0x83, 256, 1024), (0x05, 2048, 4000)];
        write_record(&file, 0, &entries);
        write_record(&file, 2048 * 8, &[(0x83, 10, 20), (0x05, 1000, 500)]);
        write_record(&file, 3048 * 8, &[(0x83, 30, 40)]);
        let disk = LargeSectors(finefs_block::MemoryDevice::new(64 << 20));
        disk.0.write_at(0, &std::fs::read(&path).unwrap()).unwrap();
        let found = super::partitions(&disk).unwrap().into_iter();
        let found: Vec<_> = found
            .map(|part| (part.number, part.start_bytes, part.length_bytes))
            .collect();
        let sectors = [(1, 256, 1024), (5, 2058, 20), (6, 3078, 40)];
        assert_eq!(
            found,
            sectors.map(|(n, at, length)| (n, at << 12, length << 12))
        );
    }

    #[cfg(feature = "gpt")]
    #[test]
    fn a_gpt_is_read() {
        let (_dir, path, file) = image();
        gpt::mbr::ProtectiveMBR::with_lb_size((64 << 11) - 1)
            .overwrite_lba0(&mut &file)
            .unwrap();
        let mut disk = gpt::GptConfig::new()
            .writable(true)
            .create_from_device(file.try_clone().unwrap(), None)
            .unwrap();
        disk.add_partition("boot", 1 << 20, gpt::partition_types::EFI, 0, None)
            .unwrap();
        disk.add_partition("root", 8 << 20, gpt::partition_types::LINUX_FS, 0, None)
            .unwrap();
        disk.write().unwrap();
        let found = partitions(&path).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].number, found[1].name.as_str()), (2, "root"));
        assert_eq!(found[1].length_bytes, 8 << 20);
    }
}
