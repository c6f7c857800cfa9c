//! Confinement of a running server: it keeps what it has open, and gets little else.
//!
//! # Purpose
//! A server reads what strangers may have written, an image. Whoever takes it over through a bug
//! shall have no more than the image, the kernel's requests and the users' questions: no other
//! file, no other program, no other machine.
//!
//! | Module | What it takes away | By |
//! |---|---|---|
//! | `files` | opening, making, removing and renaming files; TCP ports | Landlock |
//! | `calls` | system calls that a server has no use for, or with other arguments | seccomp |
//! | `threads` | capabilities, new privileges, the user | capset(2), prctl(2), setresuid(2) |
//!
//! What is open stays usable: the image, the device, sockets. What has to be opened later is named
//! in [`Needs`].
//!
//! # All threads
//! The kernel confines the thread that asks, and those that it starts. [`Confinement::apply`] comes
//! when several run already, as a mount has to be made first; so each is made to confine itself
//! (`threads`), and seccomp is told to reach all (TSYNC).
//!
//! # References
//! landlock(7), seccomp(2), capabilities(7); `Documentation/userspace-api/no_new_privs.rst`.

mod calls;
mod files;
mod threads;

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// What a server opens and starts after it was confined.
#[derive(Clone, Default, Debug)]
pub struct Needs {
    /// Files that are read, and directories, with all below.
    pub readable: Vec<PathBuf>,
    /// Devices that are opened for reading, writing and ioctl(2).
    pub devices: Vec<PathBuf>,
    /// Directories in which files are made, replaced and removed.
    pub writable: Vec<PathBuf>,
    /// It connects to others by TCP and UDP.
    pub is_networked: bool,
    /// Capabilities that it keeps if it has them, a bit for each; see [`capability`].
    pub capabilities: u32,
    /// The user and group that it becomes; `None` leaves it who it is.
    pub user: Option<(u32, u32)>,
}

/// Capabilities that some servers need; see capabilities(7).
pub mod capability {
    /// CAP_DAC_OVERRIDE: permissions of files are no obstacle.
    pub const DAC_OVERRIDE: u32 = 1 << 1;
    /// CAP_NET_BIND_SERVICE: ports below 1024.
    pub const NET_BIND_SERVICE: u32 = 1 << 10;
}

/// Why a process cannot be confined.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A rule was refused.
    #[error("Landlock: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// A filter was refused.
    #[error("seccomp: {0}")]
    Seccomp(#[from] seccompiler::Error),
    /// Not every thread did what it was told.
    #[error("{0}: {1}")]
    Thread(&'static str, std::io::Error),
}

impl From<seccompiler::BackendError> for Error {
    fn from(error: seccompiler::BackendError) -> Error {
        Error::Seccomp(error.into())
    }
}

/// A confinement that is about to be applied.
pub struct Confinement {
    /// `None` where the kernel has no Landlock.
    ruleset: Option<OwnedFd>,
    /// In this order; none where there is no seccomp.
    filters: Vec<seccompiler::BpfProgram>,
    capabilities: u32,
    user: Option<(u32, u32)>,
}

impl Confinement {
    /// Looks what the kernel has, and opens what the rules speak of. To be called by the process
    /// that is confined.
    pub fn prepare(needs: &Needs) -> Result<Confinement, Error> {
        let ruleset = files::ruleset(needs)?;
        let filters = match calls::are_filtered() {
            true => calls::filters(needs, ruleset.is_some())?,
            false => Vec::new(),
        };
        Ok(Confinement {
            ruleset,
            filters,
            capabilities: needs.capabilities,
            user: needs.user,
        })
    }

    /// Changes the user, and takes away capabilities and new privileges, but nothing else.
    pub fn of_user(user: u32, group: u32) -> Confinement {
        Confinement {
            ruleset: None,
            filters: Vec::new(),
            capabilities: 0,
            user: Some((user, group)),
        }
    }

    /// What this kernel does not have of it.
    pub fn missing(&self) -> Vec<&'static str> {
        let parts = [
            ("Landlock", self.ruleset.is_none()),
            ("seccomp", self.filters.is_empty()),
        ];
        let missing = parts.into_iter().filter(|(_, is_missing)| *is_missing);
        missing.map(|(name, _)| name).collect()
    }

    /// Confines all threads of this process, for ever. After an error some of it may hold.
    pub fn apply(self) -> Result<(), Error> {
        if let Some((user, group)) = self.user {
            threads::become_user(user, group)
                .map_err(|error| Error::Thread("changing the user", error))?;
        }
        threads::restrict_all(
            self.ruleset.as_ref().map(|ruleset| ruleset.as_fd()),
            self.capabilities,
        )
        .map_err(|error| Error::Thread("restricting threads", error))?;
        for filter in &self.filters {
            seccompiler::apply_filter_all_threads(filter)?;
        }
        Ok(())
    }
}
