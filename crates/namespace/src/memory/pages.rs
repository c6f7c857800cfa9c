//! The pages of the memory store: one private anonymous mapping, copied into and out of.
//!
//! # Invariant
//! Pages may be read and written by anybody at any time: every access is then an atomic one of an
//! aligned word, parts of a word by compare-and-swap, so what is read is a mix of what was written
//! and nothing worse.
//!
//! That costs a multiple of a plain copy. [Exclusive](Pages::exclusive) pages are copied plainly.
//! They belong to one namespace, which sees to it that two calls which overlap in bytes, one of
//! them writing, do not run at the same time: bytes belong to a block, a block to one file, and the
//! file's range lock is held over every call.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::base::error::{Error, Result};

/// A range of memory that the kernel fills in when it is first written, or
/// [before](Pages::populate). See the module's head.
pub(crate) struct Pages {
    base: *mut u8,
    length_bytes: usize,
    is_exclusive: bool,
}

/// Bytes in a word of those copies that may race.
const WORD: usize = size_of::<u64>();

/// What words are cleared with.
static ZEROS: [u8; 4096] = [0; 4096];

// SAFETY: the mapping is owned by this value alone and freed only by its drop.
unsafe impl Send for Pages {}
// SAFETY: shared access only copies bytes, atomically or, by the module's invariant, with nobody
// else at them.
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
            is_exclusive: false,
        })
    }

    /// The same, whose callers keep out of each other's way as the module's head says.
    pub fn exclusive(mut self) -> Pages {
        self.is_exclusive = true;
        self
    }

    /// The words of the mapping, of pages that are not exclusive.
    fn words(&self) -> &[AtomicU64] {
        debug_assert!(!self.is_exclusive);
        // SAFETY: the mapping begins and ends at a page, so it has all of its last word, and lives
        // as long as `self`. No access to it but by these words takes place.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.length_bytes.div_ceil(WORD)) }
    }

    /// Where a range of bytes begins within its first word, how many of its bytes are in that, if
    /// it is not a whole one, and the index of that word.
    fn first_word(at: usize, length: usize) -> (usize, usize, usize) {
        let (first, within) = (at / WORD, at % WORD);
        let head = match within {
            0 => 0,
            within => (WORD - within).min(length),
        };
        (within, head, first)
    }

    fn read_words(&self, at: usize, buffer: &mut [u8]) {
        let (within, head, first) = Pages::first_word(at, buffer.len());
        let (start, rest) = buffer.split_at_mut(head);
        let mut words = self.words()[first..]
            .iter()
            .map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        if head > 0
            && let Some(word) = words.next()
        {
            start.copy_from_slice(&word[within..within + head]);
        }
        let (whole, end) = rest.as_chunks_mut::<WORD>();
        for (bytes, word) in whole.iter_mut().zip(&mut words) {
            *bytes = word;
        }
        if !end.is_empty()
            && let Some(word) = words.next()
        {
            end.copy_from_slice(&word[..end.len()]);
        }
    }

    fn write_words(&self, at: usize, data: &[u8]) {
        let (within, head, first) = Pages::first_word(at, data.len());
        let (start, rest) = data.split_at(head);
        let mut words = self.words()[first..].iter();
        if head > 0
            && let Some(word) = words.next()
        {
            write_part(word, within, start);
        }
        let (whole, end) = rest.as_chunks::<WORD>();
        for (bytes, word) in whole.iter().zip(&mut words) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        if !end.is_empty()
            && let Some(word) = words.next()
        {
            write_part(word, 0, end);
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
        if !self.is_exclusive {
            self.read_words(offset_bytes as usize, buffer);
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
        if !self.is_exclusive {
            self.write_words(offset_bytes as usize, data);
            return Ok(());
        }
        // SAFETY: as in `read`, and nobody reads there meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
        Ok(())
    }

    /// Fills with zeros.
    pub fn clear(&self, offset_bytes: u64, length_bytes: u64) -> Result<()> {
        let to = self.at(offset_bytes, length_bytes)?;
        if !self.is_exclusive {
            let (start, end) = (
                offset_bytes as usize,
                (offset_bytes + length_bytes) as usize,
            );
            for at in (start..end).step_by(ZEROS.len()) {
                self.write_words(at, &ZEROS[..ZEROS.len().min(end - at)]);
            }
            return Ok(());
        }
        // SAFETY: as in `write`.
        unsafe { std::ptr::write_bytes(to, 0, length_bytes as usize) };
        Ok(())
    }

    /// Takes memory for whole pages that will soon be written: in one call, and not in a page fault
    /// for each.
    pub fn populate(&self, offset_bytes: u64, length_bytes: u64) {
        if let Ok(at) = self.at(offset_bytes, length_bytes) {
            // SAFETY: the range lies within the mapping; its contents stay what they are. A failure
            // (older kernels have no such advice) only leaves it to the faults.
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

/// Writes bytes of a word from its byte `within` on.
fn write_part(word: &AtomicU64, within: usize, data: &[u8]) {
    let changed = |before: u64| {
        let mut bytes = before.to_ne_bytes();
        bytes[within..within + data.len()].copy_from_slice(data);
        Some(u64::from_ne_bytes(bytes))
    };
    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_plain_copies_hit_the_bytes_asked_for() {
        let plain = Pages::new(8192).unwrap().exclusive();
        let racing = Pages::new(8192).unwrap();
        let data: Vec<u8> = (1..=64).collect();
        for start in 0..20_usize {
            for length in 0..20_usize {
                for pages in [&plain, &racing] {
                    pages.write(0, &[77; 64]).unwrap();
                    pages.clear(start as u64 / 3, 40).unwrap();
                    pages.write(start as u64, &data[..length]).unwrap();
                }
                let (mut wanted, mut found) = ([0; 48], [0; 48]);
                plain.read(start as u64 / 2, &mut wanted).unwrap();
                racing.read(start as u64 / 2, &mut found).unwrap();
                assert_eq!(found, wanted, "{length} bytes at {start}");
            }
        }
        for pages in [&plain, &racing] {
            pages.write(0, &[77; 8192]).unwrap();
            pages.clear(3, 8180).unwrap();
            let mut all = [0; 8192];
            pages.read(0, &mut all).unwrap();
            let left = (0..8192).filter(|at| all[*at] == 77);
            assert!(left.eq((0..3).chain(8183..8192)));
            assert!(pages.write(8186, &data).is_err());
            assert!(pages.clear(8186, 64).is_err());
            assert!(pages.read(8192, &mut [0]).is_err());
        }
    }
}
