//! A device that fails on request.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use finefs_block::BlockDevice;

/// What a [`FaultDevice`] counts and fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultOn {
    /// Reads.
    Read,
    /// Writes, of zeros also.
    Write,
    /// Flushes.
    Flush,
    /// Reservations of storage.
    Reserve,
}

/// How a request fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// With EIO; nothing is done.
    Error,
    /// With EIO, when the first half of it is done, in whole sectors (writes and reads only). Two
    /// sectors are done as one: ext4 takes that for granted of its superblock.
    Short,
    /// With ENOSPC; nothing is done.
    Full,
    /// Not at all: it is not done, and nobody is told.
    Dropped,
}

const SECTOR_BYTES: usize = 512;

/// Passes requests on and fails the n-th of one kind, or all from the n-th on.
pub struct FaultDevice {
    inner: Arc<dyn BlockDevice>,
    on: FaultOn,
    fault: Fault,
    /// The first request that fails; counted from 0.
    first: AtomicU64,
    /// How many fail.
    count: u64,
    seen: AtomicU64,
    first_write: OnceLock<(u64, Vec<u8>)>,
}

impl FaultDevice {
    /// Fails `count` requests of the kind `on`, after `first` good ones, with EIO.
    pub fn new(inner: Arc<dyn BlockDevice>, on: FaultOn, first: u64, count: u64) -> FaultDevice {
        FaultDevice {
            inner,
            on,
            fault: Fault::Error,
            first: AtomicU64::new(first),
            count,
            seen: AtomicU64::new(0),
            first_write: OnceLock::new(),
        }
    }

    /// The same device, whose requests fail in another way.
    pub fn failing(mut self, fault: Fault) -> FaultDevice {
        self.fault = fault;
        self
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

    /// The first write that failed: where, and what was to be written.
    pub fn first_write(&self) -> Option<&(u64, Vec<u8>)> {
        self.first_write.get()
    }

    /// How the request at hand fails, if it does.
    fn fault(&self, kind: FaultOn) -> Option<Fault> {
        if kind != self.on {
            return None;
        }
        let number = self.seen.fetch_add(1, Ordering::SeqCst);
        let first = self.first.load(Ordering::SeqCst);
        (number >= first && number - first < self.count).then_some(self.fault)
    }
}

/// What whoever made the request is told.
fn told(fault: Fault) -> io::Result<()> {
    match fault {
        Fault::Error | Fault::Short => Err(io::Error::from_raw_os_error(libc::EIO)),
        Fault::Full => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
        Fault::Dropped => Ok(()),
    }
}

/// How much of a request of that length is done when it fails.
fn done_bytes(fault: Fault, length_bytes: usize) -> usize {
    match fault {
        Fault::Short if length_bytes > 2 * SECTOR_BYTES => {
            length_bytes / 2 / SECTOR_BYTES * SECTOR_BYTES
        }
        _ => 0,
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
        let Some(fault) = self.fault(FaultOn::Read) else {
            return self.inner.read_at(offset_bytes, buffer);
        };
        let done = done_bytes(fault, buffer.len());
        self.inner.read_at(offset_bytes, &mut buffer[..done])?;
        told(fault)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        let Some(fault) = self.fault(FaultOn::Write) else {
            return self.inner.write_at(offset_bytes, data);
        };
        self.first_write
            .get_or_init(|| (offset_bytes, data.to_vec()));
        let done = done_bytes(fault, data.len());
        if done > 0 {
            self.inner.write_at(offset_bytes, &data[..done])?;
        }
        told(fault)
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        match self.fault(FaultOn::Write) {
            Some(fault) => told(fault),
            None => self.inner.write_zeros_at(offset_bytes, length_bytes),
        }
    }

    fn flush(&self) -> io::Result<()> {
        match self.fault(FaultOn::Flush) {
            Some(fault) => told(fault),
            None => self.inner.flush(),
        }
    }

    fn reserve_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        match self.fault(FaultOn::Reserve) {
            Some(fault) => told(fault),
            None => self.inner.reserve_at(offset_bytes, length_bytes),
        }
    }

    fn set_len_bytes(&self, length_bytes: u64) -> io::Result<()> {
        self.inner.set_len_bytes(length_bytes)
    }

    fn describe(&self) -> String {
        format!("failing {}", self.inner.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_block::MemoryDevice;

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

    #[test]
    fn fails_in_the_way_it_was_told_to() {
        let write = |fault| {
            let inner = Arc::new(MemoryDevice::new(4096));
            let device = FaultDevice::new(inner.clone(), FaultOn::Write, 0, 1).failing(fault);
            let told = device.write_at(0, &[7; 2048]);
            let mut bytes = vec![0; 4096];
            inner.read_at(0, &mut bytes).unwrap();
            let written = bytes.iter().filter(|&&byte| byte == 7).count();
            (told.map_err(|error| error.raw_os_error()), written)
        };
        assert_eq!(write(Fault::Error), (Err(Some(libc::EIO)), 0));
        assert_eq!(write(Fault::Short), (Err(Some(libc::EIO)), 1024));
        assert_eq!(write(Fault::Full), (Err(Some(libc::ENOSPC)), 0));
        assert_eq!(write(Fault::Dropped), (Ok(()), 0));
    }
}
