//! [`AppendRing`]: appends to a file of the host through io_uring(7), several under way at a time.
//!
//! # Invariants
//! 1. A buffer is either in `free`, or the kernel reads from it: it is not touched then, and its
//!    memory lives on until the kernel has said that it is done.

use super::{Appends, Errno, Result};
use io_uring::{IoUring, opcode, types};
use std::os::fd::{AsRawFd, OwnedFd};

/// The place of an append: the end, wherever that is (with O_APPEND).
const AT_THE_END: u64 = u64::MAX;

/// See the module's head.
pub(super) struct AppendRing {
    ring: IoUring,
    file: OwnedFd,
    buffers: Vec<Vec<u8>>,
    free: Vec<usize>,
    /// Put into the queue, and the kernel was not told yet.
    unsubmitted: usize,
    /// The first error.
    failed: Option<Errno>,
}

impl AppendRing {
    /// Appends to `file`, which was opened with O_APPEND, `depth` records at a time.
    pub fn new(file: OwnedFd, depth: u32) -> Result<AppendRing> {
        Ok(AppendRing {
            ring: IoUring::new(depth).map_err(errno)?,
            file,
            buffers: (0..depth).map(|_| Vec::new()).collect(),
            free: (0..depth as usize).collect(),
            unsubmitted: 0,
            failed: None,
        })
    }

    /// Tells the kernel what was put into the queue; waits until so many have come to their end.
    fn enter(&mut self, wanted: usize) -> Result<()> {
        loop {
            match self.ring.submit_and_wait(wanted) {
                Ok(_) => break,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(errno(error)),
            }
        }
        self.unsubmitted = 0;
        for done in self.ring.completion() {
            let place = done.user_data() as usize;
            let outcome = match usize::try_from(done.result()) {
                Ok(count) if count == self.buffers[place].len() => Ok(()),
                // There was room for a part of it.
                Ok(_) => Err(Errno::NOSPC),
                Err(_) => Err(Errno::from_raw_os_error(-done.result())),
            };
            if let Err(errno) = outcome {
                self.failed.get_or_insert(errno);
            }
            self.free.push(place);
        }
        Ok(())
    }

    fn has_failed(&self) -> Result<()> {
        self.failed.map_or(Ok(()), Err)
    }
}

impl Appends for AppendRing {
    fn submit(&mut self, record: &[u8]) -> Result<()> {
        if self.free.is_empty() {
            self.enter(1)?;
        }
        self.has_failed()?;
        let place = self.free.pop().ok_or(Errno::AGAIN)?;
        let buffer = &mut self.buffers[place];
        buffer.clear();
        buffer.extend_from_slice(record);
        let entry = opcode::Write::new(
            types::Fd(self.file.as_raw_fd()),
            buffer.as_ptr(),
            buffer.len() as u32,
        )
        .offset(AT_THE_END)
        .build()
        .user_data(place as u64);
        // SAFETY: by invariant 1 the buffer stays as and where it is until the kernel is done with
        // it; the file is open as long as this is, and `drop` waits.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            self.free.push(place);
            return Err(Errno::AGAIN);
        }
        self.unsubmitted += 1;
        // Several go with one call, and the kernel always has something to do.
        if 2 * self.unsubmitted >= self.buffers.len() {
            self.enter(0)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        while self.free.len() < self.buffers.len() {
            self.enter(1)?;
        }
        self.has_failed()
    }
}

impl Drop for AppendRing {
    fn drop(&mut self) {
        while self.free.len() < self.buffers.len() {
            if self.enter(1).is_err() {
                // Nobody knows what the kernel still reads.
                std::mem::forget(std::mem::take(&mut self.buffers));
                return;
            }
        }
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
