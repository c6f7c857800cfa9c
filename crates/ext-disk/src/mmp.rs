//! The block of multiple mount protection (`mmp`): who has the file system mounted.
//!
//! Reference: Linux `Documentation/filesystems/ext4/mmp.rst`.

use crate::bytes::{Field, clip, get_array, put_bytes};
use crate::checksum::{FsSeed, crc32c};
use crate::error::{Corrupt, Result, need};

/// Bytes of the structure.
pub const SIZE: usize = 1024;
/// `mmp_magic`.
pub const MAGIC: u32 = 0x004D_4D50;
/// `mmp_seq` when nobody has it mounted.
pub const SEQUENCE_CLEAN: u32 = 0xFF4D_4D50;
/// `mmp_seq` while e2fsck looks at it.
pub const SEQUENCE_FSCK: u32 = 0xE24D_4D50;
/// The largest `mmp_seq` of a mount.
pub const SEQUENCE_MAX: u32 = 0xE24D_4D4F;
/// Seconds between updates where nothing else is asked for.
pub const INTERVAL_DEFAULT: u16 = 5;

const CHECKSUM_OFFSET: usize = 0x3FC;

/// The structure, which fills the first 1024 bytes of its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MmpBlock {
    bytes: Box<[u8; SIZE]>,
}

fields!(owned MmpBlock get_le put_le {
    /// `mmp_magic`.
    0x00 u32 magic set_magic;
    /// Changes with each update; [`SEQUENCE_CLEAN`] when nobody has it mounted.
    0x04 u32 sequence set_sequence;
    /// When it was updated, seconds since 1970.
    0x08 u64 time set_time;
    /// Seconds between checks.
    0x70 u16 check_interval set_check_interval;
    /// The checksum, with `metadata_csum`.
    0x3FC u32 checksum set_checksum;
});

impl MmpBlock {
    /// That of a file system that nobody has mounted.
    pub fn clean(time: u64, check_interval: u16) -> MmpBlock {
        let mut mmp = MmpBlock {
            bytes: Box::new([0; SIZE]),
        };
        mmp.set_magic(MAGIC);
        mmp.set_sequence(SEQUENCE_CLEAN);
        mmp.set_time(time);
        mmp.set_check_interval(check_interval);
        mmp
    }

    /// Takes the first bytes of a block; asks for nothing but the magic.
    pub fn parse(bytes: &[u8]) -> Result<MmpBlock> {
        need("mmp block", SIZE, bytes.len())?;
        let mmp = MmpBlock {
            bytes: Box::new(get_array(bytes, 0)),
        };
        match mmp.magic() {
            MAGIC => Ok(mmp),
            other => Err(Corrupt::MmpMagic(other).into()),
        }
    }

    /// The bytes, ready to be written.
    pub fn as_bytes(&self) -> &[u8; SIZE] {
        &self.bytes
    }

    /// The host that wrote it last, padded with NUL.
    pub fn node_name_raw(&self) -> [u8; 64] {
        get_array(&self.bytes[..], 0x10)
    }

    /// Sets the host that writes it, cut to 64 bytes.
    pub fn set_node_name(&mut self, name: &[u8]) {
        put_bytes(&mut self.bytes[..], 0x10, &[0; 64]);
        put_bytes(&mut self.bytes[..], 0x10, clip(name, 0..64));
    }

    /// The name of the device there, padded with NUL.
    pub fn device_name_raw(&self) -> [u8; 32] {
        get_array(&self.bytes[..], 0x50)
    }

    /// Sets the name of the device, cut to 32 bytes.
    pub fn set_device_name(&mut self, name: &[u8]) {
        put_bytes(&mut self.bytes[..], 0x50, &[0; 32]);
        put_bytes(&mut self.bytes[..], 0x50, clip(name, 0..32));
    }

    /// Sets the checksum. Only with `metadata_csum`; call it last.
    pub fn update_checksum(&mut self, seed: FsSeed) {
        let crc = crc32c(seed.0, clip(&self.bytes[..], 0..CHECKSUM_OFFSET));
        u32::put_le(&mut self.bytes[..], CHECKSUM_OFFSET, crc);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let mut mmp = MmpBlock::clean(7, INTERVAL_DEFAULT);
        mmp.set_node_name(&[b'x'; 100]);
        mmp.update_checksum(FsSeed(3));
        let read = MmpBlock::parse(mmp.as_bytes()).expect("magic");
        assert_eq!(read, mmp);
        assert_eq!((read.time(), read.check_interval()), (7, 5));
        assert_eq!(read.node_name_raw(), [b'x'; 64]);
        assert_ne!(read.checksum(), 0);
        assert!(MmpBlock::parse(&[0; SIZE]).is_err());
        assert!(MmpBlock::parse(&[0; 8]).is_err());
    }
}
