//! A device on which nothing goes on once somebody wants it to stop.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use finefs_block::BlockDevice;

/// What making a file system asks of a device, as long as `stop` is not set; then errors of the
/// kind [`io::ErrorKind::Interrupted`], which a device itself does not give.
pub(super) struct Stopping<'a, D> {
    pub device: D,
    pub stop: &'a AtomicBool,
}

impl<D> Stopping<'_, D> {
    fn going(&self) -> io::Result<&D> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(&self.device),
        }
    }
}

impl<D: BlockDevice> BlockDevice for Stopping<'_, D> {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.going()?.read_at(offset_bytes, buffer)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        self.going()?.write_at(offset_bytes, data)
    }

    fn write_parts_at(&self, offset_bytes: u64, parts: &[&[u8]]) -> io::Result<()> {
        self.going()?.write_parts_at(offset_bytes, parts)
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        self.going()?.write_zeros_at(offset_bytes, length_bytes)
    }

    fn discard_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<bool> {
        self.going()?.discard_at(offset_bytes, length_bytes)
    }

    fn forget_cached_at(&self, offset_bytes: u64, length_bytes: u64) {
        self.device.forget_cached_at(offset_bytes, length_bytes);
    }

    fn flush(&self) -> io::Result<()> {
        self.going()?.flush()
    }

    fn describe(&self) -> String {
        self.device.describe()
    }
}
