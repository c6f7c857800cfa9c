//! A device that fails on request.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::BlockDevice;

/// What a [`FaultDevice`] counts and fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultOn {
    /// Reads.
    Read,
    /// Writes, of zeros also.
    Write,
    /// Flushes.
    Flush,
}

/// Passes requests on and fails the n-th of one kind, or all from the n-th on, with EIO.
pub struct FaultDevice {
    inner: Arc<dyn BlockDevice>,
    on: FaultOn,
    /// The first request that fails; counted from 0.
    first: AtomicU64,
    /// How many fail.
    count: u64,
    seen: AtomicU64,
}

impl FaultDevice {
    /// Fails `count` requests of the kind `on`, after `first` good ones.
    pub fn new(inner: Arc<dyn BlockDevice>, on: FaultOn, first: u64, count: u64) -> FaultDevice {
        FaultDevice {
            inner,
            on,
            first: AtomicU64::new(first),
            count,
            seen: AtomicU64::new(0),
        }
    }

    /// Starts to count again: the next `count` requests fail after `first` good ones.
    pub fn arm(&self, first: u64) {
        self.first.store(first, Ordering::SeqCst);
        self.seen.store(0, Ordering::SeqCst);
    }

    /// How many requests of the kind came in since the start, or since it was armed.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::SeqCst)
    }

    fn pass(&self, kind: FaultOn) -> io::Result<()> {
        if kind != self.on {
            return Ok(());
        }
        let number = self.seen.fetch_add(1, Ordering::SeqCst);
        let first = self.first.load(Ordering::SeqCst);
        if number >= first && number - first < self.count {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        Ok(())
    }
}

impl BlockDevice for FaultDevice {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.pass(FaultOn::Read)?;
        self.inner.read_at(offset_bytes, buffer)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        self.pass(FaultOn::Write)?;
        self.inner.write_at(offset_bytes, data)
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        self.pass(FaultOn::Write)?;
        self.inner.write_zeros_at(offset_bytes, length_bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.pass(FaultOn::Flush)?;
        self.inner.flush()
    }

    fn describe(&self) -> String {
        format!("failing {}", self.inner.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn fails_just_the_requests_it_was_told_to() {
        let inner = Arc::new(MemoryDevice::new(1024));
        let device = FaultDevice::new(inner, FaultOn::Write, 1, 2);
        assert!(device.write_at(0, &[1]).is_ok());
        assert!(device.read_at(0, &mut [0]).is_ok());
        assert!(device.write_at(0, &[1]).is_err());
        assert!(device.write_zeros_at(0, 1).is_err());
        assert!(device.write_at(0, &[1]).is_ok());
        device.arm(0);
        assert!(device.write_at(0, &[1]).is_err());
    }
}
