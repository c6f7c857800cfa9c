//! The kernel's switch for FUSE over io_uring.
//!
//! It is off by default and belongs to root. It counts when a mount is made; so it is switched on
//! for that moment and put back. A lock on its file keeps it for one process at a time: proofs run
//! side by side, and each puts back what it has found.

use crate::cleanup;
use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// How the kernel's requests reach finefs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// As the machine is set up.
    #[default]
    AsFound,
    /// Through /dev/fuse.
    Device,
    /// Through io_uring.
    Ring,
    /// By turns, one mount after the other.
    Alternate,
}

impl Transport {
    /// The transport of the turn of this number, for those who count their turns themselves: where
    /// mounts go by turns, even ones are through io_uring, where there is any.
    pub fn turn(self, number: u64) -> Transport {
        match self {
            Transport::Alternate if number.is_multiple_of(2) && is_available() => Transport::Ring,
            Transport::Alternate => Transport::Device,
            chosen => chosen,
        }
    }

    /// For the next mount: the option that it needs, and the switch to hold meanwhile.
    pub fn next(self) -> Result<(Option<&'static str>, Option<Switch>)> {
        static TURN: AtomicU64 = AtomicU64::new(0);
        match self {
            Transport::AsFound => Ok((None, None)),
            Transport::Device => Ok((Some("noio_uring"), None)),
            Transport::Ring => Ok((None, Some(Switch::on()?))),
            Transport::Alternate => self.turn(TURN.fetch_add(1, Ordering::Relaxed)).next(),
        }
    }
}

/// Whether the kernel has it and this process may switch it on.
pub fn is_available() -> bool {
    std::fs::OpenOptions::new().write(true).open(SWITCH).is_ok()
}

/// Users of the switch in this process.
static USERS: Mutex<Users> = Mutex::new(Users {
    count: 0,
    before: String::new(),
    lock: None,
});

struct Users {
    count: u64,
    /// What it was before the first.
    before: String,
    /// As long as there are any.
    lock: Option<File>,
}

/// On as long as this lives.
#[derive(Debug)]
pub struct Switch {
    _entry: cleanup::Entry,
}

impl Switch {
    /// Switches it on; waits for other processes that have switched it.
    pub fn on() -> Result<Switch> {
        let mut users = USERS
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if users.count == 0 {
            let lock = File::open(SWITCH)
                .with_context(|| format!("{SWITCH}: the kernel has no FUSE over io_uring"))?;
            flock(&lock, FlockOperation::LockExclusive)?;
            users.before = std::fs::read_to_string(SWITCH)?;
            users.lock = Some(lock);
        }
        let entry = cleanup::file(SWITCH.as_ref(), &users.before);
        std::fs::write(SWITCH, "Y")
            .with_context(|| format!("{SWITCH}: only root can switch io_uring on"))?;
        users.count += 1;
        Ok(Switch { _entry: entry })
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let mut users = USERS
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        users.count -= 1;
        if users.count == 0 {
            let _ = std::fs::write(SWITCH, &users.before);
            users.lock = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_alternates_goes_by_turns() {
        let rings = [0, 1, 2].map(|number| Transport::Alternate.turn(number) == Transport::Ring);
        assert_eq!(rings, [is_available(), false, is_available()]);
        for chosen in [Transport::AsFound, Transport::Device, Transport::Ring] {
            assert_eq!([0, 1].map(|number| chosen.turn(number)), [chosen; 2]);
        }
    }
}
