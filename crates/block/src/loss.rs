//! Whether written data was lost.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

/// That a flush failed. The kernel tells that once, and takes what it could not write for written
/// from then on (fsync(2)), as servers do that lie on it: so no later flush may succeed.
#[derive(Debug, Default)]
pub struct Loss(AtomicBool);

impl Loss {
    /// Flushes by this, unless a flush failed before.
    ///
    /// # Errors
    /// Its own; EIO after that.
    pub fn flush(&self, flush: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if self.0.load(Ordering::Acquire) {
            return Err(Errno::IO.into());
        }
        flush().inspect_err(|_| self.note())
    }

    /// A flush failed.
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_durable_after_a_failure() {
        let loss = Loss::default();
        loss.flush(|| Ok(())).unwrap();
        let full = || Err(io::ErrorKind::StorageFull.into());
        let kind = |flushed: io::Result<()>| flushed.unwrap_err().kind();
        assert_eq!(kind(loss.flush(full)), io::ErrorKind::StorageFull);
        let later = loss.flush(|| Ok(())).unwrap_err();
        assert_eq!(Errno::from_io_error(&later), Some(Errno::IO));
    }
}
