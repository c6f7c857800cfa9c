//! The pages of the memory store: one private anonymous mapping, copied into and out of.
//!
//! # Invariant
//! Two calls that overlap in bytes, one of them writing, do not run at the same time. The namespace
//! sees to it: bytes belong to a block, a block to one file, and the file's range lock is held over
//! every call. So the copies race with nothing.

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::error::{Error, Result};

/// A range of memory that the kernel fills in when it is first written. See the module's head.
pub(crate) struct Pages {
    base: *mut u8,
    length_bytes: usize,
}

// SAFETY: the mapping is owned by this value alone and freed only by its drop.
unsafe impl Send for Pages {}
// SAFETY: shared access only copies bytes, and by the module's invariant no two copies race.
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
        })
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
        // SAFETY: `from` is valid for the length; nobody writes there meanwhile (invariant); the
        // buffer is no part of the mapping, to which no reference is ever given out.
        unsafe { std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), buffer.len()) };
        Ok(())
    }

    /// Copies in.
    pub fn write(&self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        let to = self.at(offset_bytes, data.len() as u64)?;
        // SAFETY: as in `read`, and nobody reads there meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
        Ok(())
    }

    /// Fills with zeros.
    pub fn clear(&self, offset_bytes: u64, length_bytes: u64) -> Result<()> {
        let to = self.at(offset_bytes, length_bytes)?;
        // SAFETY: as in `write`.
        unsafe { std::ptr::write_bytes(to, 0, length_bytes as usize) };
        Ok(())
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
