//! Stores through shared mappings, made by way of `/proc/self/mem`: where one would end in SIGBUS,
//! that is an error there.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// A shared mapping of a file from its first byte on.
pub struct Mapping {
    start: *mut c_void,
    length: usize,
}

impl Mapping {
    /// All of it can be stored into.
    pub fn of(file: &File, length: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address that is free, and no reference is ever made to the
        // memory there.
        let start = unsafe { mmap(null_mut(), length, protection, MapFlags::SHARED, file, 0) }?;
        Ok(Mapping { start, length })
    }

    /// Stores `bytes` at `at`.
    pub fn store(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let memory = File::options().write(true).open("/proc/self/mem")?;
        memory.write_all_at(bytes, self.start.addr() as u64 + at)
    }

    /// Waits until what was stored is written out.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is the mapping, which lives as long as `self`.
        Ok(unsafe { msync(self.start, self.length, MsyncFlags::SYNC) }?)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to its memory.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

/// Stores `bytes` at `at` of a file, which is longer, and waits until they are written out.
pub fn store(file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    let mapping = Mapping::of(file, at as usize + bytes.len())?;
    mapping.store(at, bytes)?;
    mapping.sync()
}
