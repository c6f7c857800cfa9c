//! Microsoft's fixed virtual disks (VHD): a raw image and a footer of 512 bytes behind it.
//!
//! # References
//! Microsoft, "Virtual Hard Disk Image Format Specification", 1.0.

use std::io;
use std::sync::Arc;

use finefs_block::{BlockDevice, PartitionDevice};

/// Bytes of the footer, and of a sector.
pub const FOOTER_BYTES: usize = 512;
const COOKIE: &[u8; 8] = b"conectix";
const FIXED: u32 = 2;
/// From 1970 to 2000, where the format's time begins.
const EPOCH_SECONDS: i64 = 946_684_800;

/// True for a raw image with the footer of a fixed disk of just that size.
pub(crate) fn has_footer(file: &dyn BlockDevice) -> io::Result<bool> {
    let Some(length) = file.len_bytes().checked_sub(FOOTER_BYTES as u64) else {
        return Ok(false);
    };
    let mut footer = [0; FOOTER_BYTES];
    file.read_at(length, &mut footer)?;
    let mut number = [0; 8];
    number.copy_from_slice(&footer[48..56]);
    Ok(&footer[..8] == COOKIE
        && footer[60..64] == FIXED.to_be_bytes()
        && footer[64..68] == checksum(&footer).to_be_bytes()
        && u64::from_be_bytes(number) == length)
}

/// The disk without its footer.
pub(crate) fn open(file: Arc<dyn BlockDevice>) -> io::Result<PartitionDevice> {
    let length = file.len_bytes().saturating_sub(FOOTER_BYTES as u64);
    PartitionDevice::new(file, 0, Some(length))
}

/// The footer of a disk of `length_bytes`, whole sectors, made at this time (seconds from 1970 on).
pub fn footer(length_bytes: u64, seconds: i64, uuid: [u8; 16]) -> [u8; FOOTER_BYTES] {
    let mut footer = [0; FOOTER_BYTES];
    let mut put = |at: usize, bytes: &[u8]| footer[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, COOKIE);
    // Features: the bit that is always set. Version 1.0, no other data.
    put(8, &2_u32.to_be_bytes());
    put(12, &0x0001_0000_u32.to_be_bytes());
    put(16, &u64::MAX.to_be_bytes());
    let time = (seconds - EPOCH_SECONDS).clamp(0, i64::from(u32::MAX)) as u32;
    put(24, &time.to_be_bytes());
    // The creator decides what others take for the size: of "win " the number of bytes, not the
    // geometry, which cannot say each size.
    put(28, b"win ");
    put(32, &0x000a_0000_u32.to_be_bytes());
    put(36, b"Wi2k");
    put(40, &length_bytes.to_be_bytes());
    put(48, &length_bytes.to_be_bytes());
    let (cylinders, heads, sectors) = geometry(length_bytes / FOOTER_BYTES as u64);
    put(56, &cylinders.to_be_bytes());
    put(58, &[heads, sectors]);
    put(60, &FIXED.to_be_bytes());
    put(68, &uuid);
    let sum = checksum(&footer);
    footer[64..68].copy_from_slice(&sum.to_be_bytes());
    footer
}

/// All bytes but those of the sum itself, complemented.
fn checksum(footer: &[u8; FOOTER_BYTES]) -> u32 {
    let all: u32 = footer.iter().map(|byte| u32::from(*byte)).sum();
    let own: u32 = footer[64..68].iter().map(|byte| u32::from(*byte)).sum();
    !(all - own)
}

/// Cylinders, heads and sectors that come near to so many sectors (the specification's appendix).
fn geometry(sectors: u64) -> (u16, u8, u8) {
    const MAX: u64 = 65535 * 16 * 255;
    let total = sectors.min(MAX);
    let (mut per_track, mut heads);
    let mut tracks;
    if total >= 65535 * 16 * 63 {
        per_track = 255;
        heads = 16;
        tracks = total / per_track;
    } else {
        per_track = 17;
        tracks = total / per_track;
        heads = tracks.div_ceil(1024).max(4);
        if tracks >= heads * 1024 || heads > 16 {
            per_track = 31;
            heads = 16;
            tracks = total / per_track;
        }
        if tracks >= heads * 1024 {
            per_track = 63;
            heads = 16;
            tracks = total / per_track;
        }
    }
    ((tracks / heads) as u16, heads as u8, per_track as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_block::MemoryDevice;

    #[test]
    fn a_footer_is_that_of_its_disk() {
        let footer = footer(4096, EPOCH_SECONDS + 5, [7; 16]);
        assert_eq!(footer[24..28], [0, 0, 0, 5]);
        let whole = [&[1; 4096][..], &footer].concat();
        assert!(has_footer(&MemoryDevice::from_bytes(&whole)).unwrap());
        let longer = [&[1; 4608][..], &footer].concat();
        assert!(!has_footer(&MemoryDevice::from_bytes(&longer)).unwrap());
        let mut damaged = whole.clone();
        damaged[4096 + 70] ^= 1;
        assert!(!has_footer(&MemoryDevice::from_bytes(&damaged)).unwrap());
        let disk = open(Arc::new(MemoryDevice::from_bytes(&whole))).unwrap();
        assert_eq!(disk.len_bytes(), 4096);
    }

    #[test]
    fn geometries_are_those_of_the_specification() {
        // 20 MiB, 2 GiB, 1 TiB.
        assert_eq!(geometry(40_960), (602, 4, 17));
        assert_eq!(geometry(4_194_304), (4161, 16, 63));
        assert_eq!(geometry(2_147_483_648), (65535, 16, 255));
    }
}
