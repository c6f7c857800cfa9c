//! The pages of the memory store: one private anonymous mapping, copied into and out of.
//!
//! # Invariant
//! Two calls that overlap in bytes, one of them writing, do not run at the same time. The namespace
//! sees to it: bytes belong to a block, a block to one file, and the file's range lock is held over
//! every call. So the copies race with nothing.
//!
//! Pages that tolerate races may be read and written at the same time. They are copied by aligned
//! atomic words, all of one size, parts of a word by compare-and-swap.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::error::{Error, Result};

/// A range of memory that the kernel fills in when it is first written, or [before](Pages::populate). See the module's head.
pub(crate) struct Pages {
    base: *mut u8,
    length_bytes: usize,
    tolerates_races: bool,
}

/// Bytes in a word of those copies that may race.
const WORD: usize = size_of::<u64>();

// SAFETY: the mapping is owned by this value alone and freed only by its drop.
unsafe impl Send for Pages {}
// SAFETY: shared access only copies bytes, and by the module's invariant no two plain copies race.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps this many bytes; takes no memory yet.
    pub fn new(length_bytes: u64) -> Result<Pages> {
        let length_bytes = usize::try_from(length_bytes).map_err(|_| Error::Invalid)?;
        // SAFETY: a fresh private anonymous mapping aliases nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                length_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|error| Error::io(format_args!("cannot map {length_bytes} bytes: {error}")))?;
        Ok(Pages {
            base: base.cast(),
            length_bytes,
            tolerates_races: false,
        })
    }

    /// The same, tolerating races.
    pub fn tolerating_races(mut self) -> Pages {
        self.tolerates_races = true;
        self
    }

    /// True when reads and writes of the same bytes may run at the same time.
    pub fn tolerates_races(&self) -> bool {
        self.tolerates_races
    }

    /// The word that byte `at` of the mapping lies in, and which byte of it that is. `at` must be within
    /// the mapping.
    fn word(&self, at: usize) -> (&AtomicU64, usize) {
        let first = at / WORD * WORD;
        assert!(first < self.length_bytes);
        // SAFETY: the mapping begins and ends at a page, so an aligned word with one byte in it lies in it
        // whole. In pages that tolerate races every access is atomic and of this size, but for those of
        // blocks that belong to nobody.
        let word = unsafe { AtomicU64::from_ptr(self.base.add(first).cast()) };
        (word, at - first)
    }

    fn read_racing(&self, offset_bytes: usize, buffer: &mut [u8]) {
        let mut done = 0;
        while done < buffer.len() {
            let (word, within) = self.word(offset_bytes + done);
            let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            let length = (WORD - within).min(buffer.len() - done);
            buffer[done..done + length].copy_from_slice(&bytes[within..within + length]);
            done += length;
        }
    }

    fn write_racing(&self, offset_bytes: usize, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let (word, within) = self.word(offset_bytes + done);
            let length = (WORD - within).min(data.len() - done);
            let part = &data[done..done + length];
            match part.try_into() {
                Ok(whole) => word.store(u64::from_ne_bytes(whole), Ordering::Relaxed),
                Err(_) => {
                    let changed = |before: u64| {
                        let mut bytes = before.to_ne_bytes();
                        bytes[within..within + length].copy_from_slice(part);
                        Some(u64::from_ne_bytes(bytes))
                    };
                    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
                }
            }
            done += length;
        }
    }

    /// The address of a range of bytes, checked against the mapping.
    fn at(&self, offset_bytes: u64, length_bytes: u64) -> Result<*mut u8> {
        offset_bytes
            .checked_add(length_bytes)
            .filter(|end| *end <= self.length_bytes as u64)
            .ok_or_else(|| Error::io("block beyond the memory store"))?;
        // SAFETY: just checked to lie within the mapping.
        Ok(unsafe { self.base.add(offset_bytes as usize) })
    }

    /// Copies out.
    pub fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let from = self.at(offset_bytes, buffer.len() as u64)?;
        if self.tolerates_races {
            self.read_racing(offset_bytes as usize, buffer);
            return Ok(());
        }
        // SAFETY: `from` is valid for the length; nobody writes there meanwhile (invariant); the
        // buffer is no part of the mapping, to which no reference is ever given out.
        unsafe { std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), buffer.len()) };
        Ok(())
    }

    /// Copies in.
    pub fn write(&self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        let to = self.at(offset_bytes, data.len() as u64)?;
        if self.tolerates_races {
            self.write_racing(offset_bytes as usize, data);
            return Ok(());
        }
        // SAFETY: as in `read`, and nobody reads there meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
        Ok(())
    }

    /// Fills with zeros.
    pub fn clear(&self, offset_bytes: u64, length_bytes: u64) -> Result<()> {
        let to = self.at(offset_bytes, length_bytes)?;
        // SAFETY: as in `write`; of pages that tolerate races only blocks that are not mapped yet are
        // cleared.
        unsafe { std::ptr::write_bytes(to, 0, length_bytes as usize) };
        Ok(())
    }

    /// Takes memory for whole pages that will soon be written: in one call, and not in a page fault for each.
    pub fn populate(&self, offset_bytes: u64, length_bytes: u64) {
        if let Ok(at) = self.at(offset_bytes, length_bytes) {
            // SAFETY: the range lies within the mapping; its contents stay what they are. A failure (older kernels
            // have no such advice) only leaves it to the faults.
            let _ = unsafe {
                rustix::mm::madvise(at.cast(), length_bytes as usize, Advice::LinuxPopulateWrite)
            };
        }
    }

    /// Gives whole pages that nobody uses back to the kernel; they read as zeros then.
    pub fn discard(&self, offset_bytes: u64, length_bytes: u64) {
        if let Ok(at) = self.at(offset_bytes, length_bytes) {
            // SAFETY: the range lies within the mapping and belongs to nobody. A failure only
            // leaves the memory in use.
            let _ = unsafe {
                rustix::mm::madvise(at.cast(), length_bytes as usize, Advice::LinuxDontNeed)
            };
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping came from mmap_anonymous with this length; no reference into it
        // outlives a call.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.length_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn racing_copies_hit_the_bytes_asked_for() {
        let plain = Pages::new(4096).unwrap();
        let racing = Pages::new(4096).unwrap().tolerating_races();
        let data: Vec<u8> = (1..=64).collect();
        for start in 0..20_usize {
            for length in 0..20_usize {
                for pages in [&plain, &racing] {
                    pages.clear(0, 64).unwrap();
                    pages.write(start as u64, &data[..length]).unwrap();
                }
                let (mut wanted, mut found) = ([0; 48], [0; 48]);
                plain.read(start as u64 / 2, &mut wanted).unwrap();
                racing.read(start as u64 / 2, &mut found).unwrap();
                assert_eq!(found, wanted, "{length} bytes at {start}");
            }
        }
        assert!(racing.write(4090, &data).is_err());
        assert!(racing.read(4096, &mut [0]).is_err());
    }
}
