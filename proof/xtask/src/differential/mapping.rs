//! Shared mappings of files, read and written through `/proc/self/mem`: where a load or store would
//! end in SIGBUS, that is an error there.

use anyhow::Result;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;

/// This process's memory as a file. To be opened before the process acts as other users.
#[derive(Debug)]
pub struct Memory(File);

impl Memory {
    /// Opens it.
    pub fn open() -> Result<Self> {
        let options = File::options()
            .read(true)
            .write(true)
            .open("/proc/self/mem");
        Ok(Self(options?))
    }
}

/// A mapping that nothing else in this process refers to.
pub struct Mapping<'a> {
    memory: &'a Memory,
    start: *mut c_void,
    len: usize,
}

impl<'a> Mapping<'a> {
    /// Maps `len` bytes, more than none, from `offset`, a multiple of the page size.
    pub fn new(
        memory: &'a Memory,
        fd: impl AsFd,
        offset: u64,
        len: usize,
        is_writable: bool,
    ) -> Result<Self, Errno> {
        let mut protection = ProtFlags::READ;
        protection.set(ProtFlags::WRITE, is_writable);
        // SAFETY: the kernel chooses an address that is free, and no reference is ever made to the
        // memory there: it is only reached through `/proc/self/mem`.
        let start = unsafe { mmap(null_mut(), len, protection, MapFlags::SHARED, fd, offset) }?;
        Ok(Self { memory, start, len })
    }

    /// Loads; a fault is EIO. Gives how many bytes came.
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> Result<usize, Errno> {
        let address = self.start.addr() + at;
        let outcome = self.memory.0.read_at(bytes, address as u64);
        outcome.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// Stores; a fault is EIO. Gives how many bytes went.
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<usize, Errno> {
        let address = self.start.addr() + at;
        let outcome = self.memory.0.write_at(bytes, address as u64);
        outcome.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// msync(MS_SYNC).
    pub fn sync(&self) -> Result<(), Errno> {
        // SAFETY: the range is the mapping, which lives as long as `self`.
        unsafe { msync(self.start, self.len, MsyncFlags::SYNC) }
    }
}

impl Drop for Mapping<'_> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to its memory.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}
