//! What lies on a device already, by its magic numbers: that which mkfs does not overwrite without
//! being told to.
//!
//! Equivalent to what mke2fs(8) asks libblkid for.
//!
//! # References
//! Linux `include/uapi/linux/magic.h` and the formats' own headers; util-linux, `libblkid/src`.

use finefs_block::BlockDevice;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, until_nul};
use finefs_reiser_disk::superblock as reiserfs;

use crate::partition;

/// A magic number: at which byte, what, and of what.
type Magic = (u64, &'static [u8], &'static str);

const SWAP: &str = "swap space";
const FAT: &str = "a FAT file system";

const MAGICS: &[Magic] = &[
    (0, b"XFSB", "an XFS file system"),
    (0, b"hsqs", "a squashfs file system"),
    (0, b"sqsh", "a squashfs file system"),
    (0, b"LUKS\xBA\xBE", "a LUKS container"),
    (0, b"\xFC\x4E\x2B\xA9", "a part of a RAID (md)"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (3, b"-FVE-FS-", "a BitLocker volume"),
    (32, b"NXSB", "an APFS container"),
    (54, b"FAT12   ", FAT),
    (54, b"FAT16   ", FAT),
    (82, b"FAT32   ", FAT),
    (512, b"LABELONE", "an LVM physical volume"),
    (1024, b"\xE2\xE1\xF5\xE0", "an EROFS file system"),
    (1024, b"\x10\x20\xF5\xF2", "an F2FS file system"),
    (1024, b"H+\0\x04", "an HFS+ file system"),
    (1024, b"HX\0\x05", "an HFSX file system"),
    (4086, b"SWAP-SPACE", SWAP),
    (4086, b"SWAPSPACE2", SWAP),
    (4096, b"\xFC\x4E\x2B\xA9", "a part of a RAID (md)"),
    (
        4120,
        b"\xC6\x85\x73\xF6\x4E\x1A\x45\xCA\x82\x65\xF5\x7F\x48\xBA\x6D\x81",
        "a bcache device",
    ),
    (
        4120,
        b"\xC6\x85\x73\xF6\x66\xCE\x90\xA9\xD9\x6A\x60\xCF\x80\x3D\xF7\xEF",
        "a bcachefs file system",
    ),
    (8182, b"SWAPSPACE2", SWAP),
    (16_374, b"SWAPSPACE2", SWAP),
    (32_758, b"SWAPSPACE2", SWAP),
    (32_768, b"JFS1", "a JFS file system"),
    (32_769, b"CD001", "an ISO 9660 file system"),
    (32_769, b"BEA01", "a UDF file system"),
    (65_526, b"SWAPSPACE2", SWAP),
    (65_536, b"\x01\x16\x19\x70", "a GFS2 file system"),
    (65_600, b"_BHRfS_M", "a Btrfs file system"),
];

/// What lies on a device from a byte on, as in `a FAT file system`; `None` for nothing that is
/// known.
pub fn signature(device: &dyn BlockDevice, offset_bytes: u64) -> Option<String> {
    let magics = || {
        let mut all = MAGICS.iter();
        let found = all.find(|(at, magic, _)| has(device, offset_bytes + at, magic));
        found.map(|(_, _, what)| (*what).to_owned())
    };
    ext(device, offset_bytes)
        .or_else(|| reiserfs_of(device, offset_bytes))
        .or_else(magics)
        .or_else(|| table(device).filter(|_| offset_bytes == 0))
}

fn has(device: &dyn BlockDevice, at: u64, magic: &[u8]) -> bool {
    let mut bytes = [0; 16];
    let bytes = &mut bytes[..magic.len()];
    device.read_at(at, bytes).is_ok() && bytes == magic
}

fn ext(device: &dyn BlockDevice, offset_bytes: u64) -> Option<String> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device
        .read_at(offset_bytes + SUPERBLOCK_OFFSET, &mut bytes)
        .ok()?;
    let sb = Superblock::parse(&bytes).ok()?;
    let label = sb.volume_name_raw();
    let label = String::from_utf8_lossy(until_nul(&label)).into_owned();
    Some(match label.is_empty() {
        true => "an ext2/3/4 file system".to_owned(),
        false => format!("an ext2/3/4 file system labelled '{label}'"),
    })
}

fn reiserfs_of(device: &dyn BlockDevice, offset_bytes: u64) -> Option<String> {
    let is_one = reiserfs::SUPERBLOCK_OFFSETS.iter().any(|at| {
        let mut bytes = [0; reiserfs::SUPERBLOCK_SIZE];
        let is_read = device.read_at(offset_bytes + at, &mut bytes).is_ok();
        is_read && reiserfs::is_superblock(&bytes)
    });
    is_one.then(|| "a reiserfs file system".to_owned())
}

fn table(device: &dyn BlockDevice) -> Option<String> {
    match partition::partitions(device).map(|found| found.len()) {
        Err(error) => Some(format!("a partition table that cannot be read ({error})")),
        Ok(0) => None,
        Ok(1) => Some("a partition table with a partition".to_owned()),
        Ok(count) => Some(format!("a partition table with {count} partitions")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_block::MemoryDevice;

    /// One entry of a boot record says that there is such a table, and there is none.
    #[test]
    fn a_damaged_guid_table_is_one() {
        let device = MemoryDevice::new(1 << 20);
        device.write_at(450, &[0xEE]).unwrap();
        device.write_at(510, &[0x55, 0xAA]).unwrap();
        let found = signature(&device, 0).unwrap();
        let expected = "a partition table that cannot be read";
        assert!(found.starts_with(expected), "{found}");
    }

    #[test]
    fn magic_numbers_are_found_where_the_file_system_starts() {
        for offset in [0, 1 << 20] {
            for (at, magic, what) in MAGICS {
                let device = MemoryDevice::new(offset + (128 << 10));
                assert_eq!(signature(&device, offset), None);
                device.write_at(offset + at, magic).unwrap();
                assert_eq!(signature(&device, offset).as_deref(), Some(*what));
            }
        }
        let bcachefs = b"\xC6\x85\x73\xF6\x66\xCE\x90\xA9\xD9\x6A\x60\xCF\x80\x3D\xF7\xEF";
        let swap = [4, 8, 16, 32, 64].map(|page| ((page << 10) - 10, &b"SWAPSPACE2"[..], SWAP));
        for (at, magic, what) in [(4120, &bcachefs[..], "a bcachefs file system")]
            .into_iter()
            .chain(swap)
        {
            let device = MemoryDevice::new(128 << 10);
            device.write_at(at, magic).unwrap();
            assert_eq!(signature(&device, 0).as_deref(), Some(what), "{at}");
        }
        // A device that ends before it.
        assert_eq!(signature(&MemoryDevice::new(512), 0), None);
    }
}
