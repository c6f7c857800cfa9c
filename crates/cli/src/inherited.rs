//! Descriptors that a process got from the one that started it.
//!
//! A process in the background closes them: else it would keep, until its end, the lock of a script
//! (flock(1) on a descriptor), or the end of a pipe that somebody reads to its end. They are noted
//! before the process opens anything, and closed after it has opened what it was told to, since a
//! name of that may be one of theirs (`/dev/fd/3`).

use std::os::fd::RawFd;
use std::path::Path;

/// The last of those that a process goes on with: standard input, output and error.
const LAST_STANDARD: RawFd = 2;

/// Those beyond standard error.
pub(crate) struct Inherited(Vec<RawFd>);

impl Inherited {
    /// To be called before this process opens what it keeps open.
    pub(crate) fn note() -> Inherited {
        const ALL: &str = "/proc/self/fd";
        let entries = std::fs::read_dir(ALL).into_iter().flatten();
        let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let mut numbers: Vec<RawFd> = numbers.filter(|number| *number > LAST_STANDARD).collect();
        // The directory itself was among them, and is closed by now.
        let is_open = |number: &RawFd| Path::new(ALL).join(number.to_string()).is_symlink();
        numbers.retain(is_open);
        Inherited(numbers)
    }

    /// Closes them, in this process alone.
    #[allow(unsafe_code)]
    pub(crate) fn close(&mut self) {
        for number in self.0.drain(..) {
            // SAFETY: it was open before this process opened anything (the contract of `note`), so
            // nothing here owns it; and it is closed once, so its number was not given out again.
            unsafe { libc::close(number) };
        }
    }
}
