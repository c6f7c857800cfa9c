//! Devices for tests: one that keeps a record of what was written when, one that fails on request.
//!
//! A crash is simulated by [`Recorded::image_after`]: the bytes a disk would hold had the power
//! gone after so many requests. (Reordered and torn writes between two flushes can be built from
//! the same record.)

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use finefs_locks::{LockClass, Mutex};

use crate::{BlockDevice, MemoryDevice};

/// What a [`RecordingDevice`] saw.
pub static RECORD: LockClass = LockClass::new("block.record", 96);

/// One request that changes the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Data was written.
    Write {
        /// Where.
        offset_bytes: u64,
        /// What.
        data: Vec<u8>,
    },
    /// Zeros were written.
    WriteZeros {
        /// Where.
        offset_bytes: u64,
        /// How many.
        length_bytes: u64,
    },
    /// Everything before is durable.
    Flush,
}

/// What a [`RecordingDevice`] saw, with what the device held at first.
#[derive(Clone, Debug)]
pub struct Recorded {
    base: Vec<u8>,
    /// The requests in the order in which they were answered.
    pub requests: Vec<Request>,
}

impl Recorded {
    /// The bytes of the device after the first `count` requests.
    pub fn image_after(&self, count: usize) -> MemoryDevice {
        let device = MemoryDevice::from_bytes(&self.base);
        for request in &self.requests[..count.min(self.requests.len())] {
            let done = match request {
                Request::Write { offset_bytes, data } => device.write_at(*offset_bytes, data),
                Request::WriteZeros {
                    offset_bytes,
                    length_bytes,
                } => device.write_zeros_at(*offset_bytes, *length_bytes),
                Request::Flush => Ok(()),
            };
            debug_assert!(done.is_ok(), "only requests within bounds are recorded");
        }
        device
    }
}

/// A device in memory that records every request that changes it.
pub struct RecordingDevice {
    device: MemoryDevice,
    recorded: Mutex<Recorded>,
}

impl RecordingDevice {
    /// Starts with `base`.
    pub fn new(base: Vec<u8>) -> RecordingDevice {
        let device = MemoryDevice::from_bytes(&base);
        RecordingDevice {
            device,
            recorded: Mutex::new(
                &RECORD,
                Recorded {
                    base,
                    requests: Vec::new(),
                },
            ),
        }
    }

    /// A copy of the record so far.
    pub fn recorded(&self) -> Recorded {
        self.recorded.lock().clone()
    }

    /// The number of requests recorded so far.
    pub fn request_count(&self) -> usize {
        self.recorded.lock().requests.len()
    }

    fn record(&self, request: Request) {
        self.recorded.lock().requests.push(request);
    }
}

impl BlockDevice for RecordingDevice {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset_bytes, buffer)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        self.device.write_at(offset_bytes, data)?;
        self.record(Request::Write {
            offset_bytes,
            data: data.to_vec(),
        });
        Ok(())
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        self.device.write_zeros_at(offset_bytes, length_bytes)?;
        self.record(Request::WriteZeros {
            offset_bytes,
            length_bytes,
        });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.record(Request::Flush);
        Ok(())
    }

    fn describe(&self) -> String {
        format!("recording {}", self.device.describe())
    }
}

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

    #[test]
    fn the_record_rebuilds_every_moment() {
        let device = RecordingDevice::new(vec![1; 1024]);
        device.write_at(0, &[2; 512]).unwrap();
        device.flush().unwrap();
        device.write_zeros_at(256, 512).unwrap();
        let recorded = device.recorded();
        assert_eq!(recorded.requests.len(), 3);
        assert_eq!(recorded.requests[1], Request::Flush);
        assert_eq!(recorded.image_after(0).to_bytes(), vec![1; 1024]);
        assert_eq!(recorded.image_after(2).to_bytes()[..512], [2; 512]);
        assert_eq!(recorded.image_after(3).to_bytes()[256..768], [0; 512]);
        assert_eq!(recorded.image_after(3).to_bytes()[768..], [1; 256]);
    }

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
