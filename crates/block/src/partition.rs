//! A part of another device: what `offset=` names, or a partition.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{BlockDevice, Extent, Write, bounds};

/// The `length_bytes` of `inner` from `start_bytes` on.
pub struct PartitionDevice {
    inner: Arc<dyn BlockDevice>,
    start_bytes: u64,
    length_bytes: AtomicU64,
    /// It ends where `inner` does.
    is_open: bool,
}

impl PartitionDevice {
    /// The part of `inner` from `start_bytes` on, to its end when `length_bytes` is `None`. Fails
    /// when the part does not lie within `inner`.
    pub fn new(
        inner: Arc<dyn BlockDevice>,
        start_bytes: u64,
        length_bytes: Option<u64>,
    ) -> io::Result<PartitionDevice> {
        let rest_bytes = inner.len_bytes().saturating_sub(start_bytes);
        let is_open = length_bytes.is_none();
        let length_bytes = length_bytes.unwrap_or(rest_bytes);
        bounds::check(inner.len_bytes(), start_bytes, length_bytes)?;
        Ok(PartitionDevice {
            inner,
            start_bytes,
            length_bytes: AtomicU64::new(length_bytes),
            is_open,
        })
    }

    /// The writes as the whole device has them.
    fn shifted<'a>(&self, writes: &[Write<'a>]) -> io::Result<Vec<Write<'a>>> {
        let shifted = writes.iter().map(|write| {
            bounds::check(self.len_bytes(), write.offset_bytes, write.length_bytes())?;
            Ok(Write {
                offset_bytes: self.start_bytes + write.offset_bytes,
                parts: write.parts.clone(),
            })
        });
        shifted.collect()
    }
}

impl BlockDevice for PartitionDevice {
    fn len_bytes(&self) -> u64 {
        self.length_bytes.load(Ordering::Relaxed)
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_ahead_bytes(&self) -> u32 {
        self.inner.read_ahead_bytes()
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        bounds::check(self.len_bytes(), offset_bytes, buffer.len() as u64)?;
        self.inner.read_at(self.start_bytes + offset_bytes, buffer)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        bounds::check(self.len_bytes(), offset_bytes, data.len() as u64)?;
        self.inner.write_at(self.start_bytes + offset_bytes, data)
    }

    fn write_parts_at(&self, offset_bytes: u64, parts: &[&[u8]]) -> io::Result<()> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        bounds::check(self.len_bytes(), offset_bytes, length)?;
        self.inner
            .write_parts_at(self.start_bytes + offset_bytes, parts)
    }

    fn write_many(&self, writes: &[Write<'_>]) -> io::Result<()> {
        self.inner.write_many(&self.shifted(writes)?)
    }

    fn write_durably(&self, writes: &[Write<'_>]) -> io::Result<()> {
        self.inner.write_durably(&self.shifted(writes)?)
    }

    fn extent_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Extent> {
        bounds::check(self.len_bytes(), offset_bytes, length_bytes)?;
        self.inner
            .extent_at(self.start_bytes + offset_bytes, length_bytes)
    }

    fn discard_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<bool> {
        bounds::check(self.len_bytes(), offset_bytes, length_bytes)?;
        self.inner
            .discard_at(self.start_bytes + offset_bytes, length_bytes)
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        bounds::check(self.len_bytes(), offset_bytes, length_bytes)?;
        self.inner
            .write_zeros_at(self.start_bytes + offset_bytes, length_bytes)
    }

    fn forget_cached_at(&self, offset_bytes: u64, length_bytes: u64) {
        self.inner
            .forget_cached_at(self.start_bytes + offset_bytes, length_bytes);
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn reserve_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        bounds::check(self.len_bytes(), offset_bytes, length_bytes)?;
        self.inner
            .reserve_at(self.start_bytes + offset_bytes, length_bytes)
    }

    fn reserve_around_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        bounds::check(self.len_bytes(), offset_bytes, length_bytes)?;
        self.inner
            .reserve_around_at(self.start_bytes + offset_bytes, length_bytes)
    }

    fn set_len_bytes(&self, length_bytes: u64) -> io::Result<()> {
        if !self.is_open {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let end = self.start_bytes.saturating_add(length_bytes);
        self.inner.set_len_bytes(end)?;
        self.length_bytes.store(length_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn sector_bytes(&self) -> u32 {
        self.inner.sector_bytes()
    }

    fn describe(&self) -> String {
        format!("{} at offset {}", self.inner.describe(), self.start_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn stays_within_its_part() {
        let whole = Arc::new(MemoryDevice::new(4096));
        let part = PartitionDevice::new(whole.clone(), 1024, Some(2048)).unwrap();
        part.write_at(0, &[7; 2048]).unwrap();
        assert!(part.write_at(1, &[9; 2048]).is_err());
        assert!(part.read_at(u64::MAX, &mut [0; 2]).is_err());
        assert!(part.write_zeros_at(2048, 1).is_err());
        let mut bytes = vec![0; 4096];
        whole.read_at(0, &mut bytes).unwrap();
        assert!(bytes[..1024].iter().all(|&b| b == 0));
        assert!(bytes[1024..3072].iter().all(|&b| b == 7));
        assert!(bytes[3072..].iter().all(|&b| b == 0));
    }

    #[test]
    fn a_part_past_the_end_is_refused() {
        let whole: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(4096));
        assert!(PartitionDevice::new(whole.clone(), 4097, None).is_err());
        assert!(PartitionDevice::new(whole.clone(), 4096, Some(1)).is_err());
        assert_eq!(
            PartitionDevice::new(whole, 4000, None).unwrap().len_bytes(),
            96
        );
    }
}
