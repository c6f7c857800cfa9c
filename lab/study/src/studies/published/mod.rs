//! What the five threads published, as typed constants, each beside where it was said.
//!
//! | Module | Thread | What was measured |
//! |---|---|---|
//! | [`bkl_removal`] | BKL removal from VFS, 2002 | PostMark under the big kernel lock and without, lockmeter |
//! | [`files_lock`] | fs: scale files_lock, 2010 | which CPU takes an open file off its list; a compile |
//! | [`bkl_semaphore`] | Red Hat bug 519126, 2009 | open and close under a big semaphore, a big spinlock and on one CPU |
//! | [`kill_bkl`] | Reiserfs/kill-bkl tree v2, 2009 | dbench under the big kernel lock and a mutex per superblock |
//! | [`extent_locks`] | working on extent locks for i_mutex, 2012 | random direct I/O with and without the inode's mutex |
//!
//! The numbers are copied digit by digit; nothing here is computed but what its name says it is.

pub mod bkl_removal;
pub mod bkl_semaphore;
pub mod extent_locks;
pub mod files_lock;
pub mod kill_bkl;

use serde::Serialize;

/// Where and when something was published, and what it ran on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Source {
    /// Subject of the thread, or number and summary of the bug.
    pub thread: &'static str,
    /// Who wrote the message with the numbers.
    pub author: &'static str,
    /// Its date, as the message bears it; where it bears none, what is known.
    pub date: &'static str,
    /// The machine, as far as the message tells.
    pub machine: &'static str,
    /// What ran: kernels, parameters.
    pub setup: &'static str,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}, \"{}\", {}; {}; {}",
            self.author, self.thread, self.date, self.machine, self.setup
        )
    }
}
