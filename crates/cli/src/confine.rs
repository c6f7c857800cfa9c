//! What a server is left when it is confined (`sandbox=`), and as which user it goes on
//! (`setuid=`).
//!
//! It keeps the image, or the connections to the server that has it, the device, its socket and its
//! log, which are open. It opens again: /dev/fuse, for threads that start, /proc, for the groups of
//! callers, what tells where the power comes from (`cpu_latency`), and its own program, for names
//! in backtraces. What else is to be done is the attendant's (`attendant`).
//!
//! It has no namespaces of its own: a mount namespace would keep a copy of the mount alive, and a
//! user namespace would give rights that it has not.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use finefs_confine::{Confinement, Needs, capability};

use crate::channel::Answering;
use crate::{CliResult, Failure};

/// Whether a server is confined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Sandbox {
    /// As far as the kernel can.
    #[default]
    Auto,
    /// Wholly, or there is no mount.
    On,
    Off,
}

/// The user as which a server goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RunAs {
    /// The image's owner and group.
    Owner,
    /// A user and a group.
    User(u32, u32),
}

impl RunAs {
    /// Of `owner`, a number (which is the group's too), or a name of /etc/passwd.
    pub(crate) fn parse(text: &str) -> Option<RunAs> {
        if text == "owner" {
            return Some(RunAs::Owner);
        }
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        find_user(&users, text).or_else(|| {
            let number = text.parse().ok().filter(|number| *number != u32::MAX)?;
            Some(RunAs::User(number, number))
        })
    }

    fn resolve(&self, image: Option<&Path>) -> CliResult<(u32, u32)> {
        let image = match self {
            RunAs::User(user, group) => return Ok((*user, *group)),
            RunAs::Owner => image.filter(|path| !finefs_disk::is_url(path.as_os_str())),
        };
        let image = image.ok_or_else(|| Failure::new("option setuid=owner: there is no file"))?;
        match image.metadata() {
            Ok(found) => Ok((found.uid(), found.gid())),
            Err(error) => Err(Failure::new(format!("{}: {error}", image.display()))),
        }
    }
}

/// `name:password:UID:GID:...`, by name or number; see passwd(5).
fn find_user(users: &str, text: &str) -> Option<RunAs> {
    users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, user, group, ..] = fields[..] else {
            return None;
        };
        let is_it = name == text || user == text;
        is_it.then(|| Some(RunAs::User(user.parse().ok()?, group.parse().ok()?)))?
    })
}

/// A confinement that waits until all is set up.
pub(crate) struct Pending {
    confinement: Confinement,
    /// Without it there is no mount.
    is_required: bool,
}

/// Looks what can be done for the server of a mount of this image; `None` where nothing is to be.
pub(crate) fn prepare(
    sandbox: Sandbox,
    run_as: Option<&RunAs>,
    image: Option<&Path>,
) -> CliResult<Option<Pending>> {
    if run_as.is_some() && !rustix::process::geteuid().is_root() {
        return Err(Failure::new("option setuid: only root may give it"));
    }
    let user = run_as.map(|run_as| run_as.resolve(image)).transpose()?;
    match (sandbox, user) {
        (Sandbox::Off, Some((user, group))) => Ok(Some(Pending {
            confinement: Confinement::of_user(user, group),
            is_required: true,
        })),
        _ => look(sandbox, &Needs { user, ..needs() }),
    }
}

/// The same for `finefs serve`, which keeps its sockets in some directories, and notes locks in the
/// one of `state_file`; it calls clients back. `is_registered` has it give up its ports at the end.
pub(crate) fn prepare_serving(
    sandbox: Sandbox,
    sockets: &[Answering],
    state_file: Option<&Path>,
    is_registered: bool,
) -> CliResult<Option<Pending>> {
    let mut writable: Vec<PathBuf> = Vec::new();
    writable.extend(
        sockets
            .iter()
            .filter_map(|socket| socket.directory())
            .map(PathBuf::from),
    );
    let mut capabilities = 0;
    if is_registered {
        capabilities |= capability::NET_BIND_SERVICE;
    }
    if let Some(directory) = state_file.and_then(Path::parent) {
        let own = rustix::process::geteuid().as_raw();
        if directory.metadata().is_ok_and(|found| found.uid() != own) {
            capabilities |= capability::DAC_OVERRIDE;
        }
        writable.push(directory.to_owned());
    }
    let needs = Needs {
        writable,
        capabilities,
        is_networked: true,
        devices: Vec::new(),
        ..needs()
    };
    look(sandbox, &needs)
}

fn look(sandbox: Sandbox, needs: &Needs) -> CliResult<Option<Pending>> {
    if sandbox == Sandbox::Off {
        return Ok(None);
    }
    let is_required = sandbox == Sandbox::On || needs.user.is_some();
    let confinement = match Confinement::prepare(needs) {
        Ok(confinement) => confinement,
        Err(error) if is_required => return Err(cannot(error)),
        Err(error) => {
            log::warn!("the server is not confined: {error}");
            return Ok(None);
        }
    };
    let missing = confinement.missing().join(" and no ");
    if sandbox == Sandbox::On && !missing.is_empty() {
        return Err(cannot(format_args!("this kernel has no {missing}")));
    }
    if !missing.is_empty() {
        log::info!("the server is confined in part: this kernel has no {missing}");
    }
    Ok(Some(Pending {
        confinement,
        is_required,
    }))
}

fn cannot(reason: impl fmt::Display) -> Failure {
    Failure::new(format!("the server cannot be confined: {reason}"))
}

impl Pending {
    /// Confines this process; fails where it has to be.
    pub(crate) fn apply(self) -> CliResult<()> {
        match self.confinement.apply() {
            Err(error) if self.is_required => Err(cannot(error)),
            Err(error) => {
                log::warn!("the server is confined in part: {error}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

fn needs() -> Needs {
    let mut readable = power_supplies();
    // The machine's nodes, read once.
    readable.push("/sys/devices/system/node".into());
    // Groups of callers. Memory and environments of others stay closed: a confined process may not
    // trace one that is not.
    readable.push("/proc".into());
    // Names of functions, for `finefs top` and panics.
    readable.extend(std::env::current_exe());
    Needs {
        readable,
        devices: vec!["/dev/fuse".into()],
        ..Needs::default()
    }
}

/// The directory, and where its links lead.
fn power_supplies() -> Vec<PathBuf> {
    const ALL: &str = "/sys/class/power_supply";
    let mut paths = vec![PathBuf::from(ALL)];
    let entries = std::fs::read_dir(ALL).into_iter().flatten().flatten();
    paths.extend(entries.filter_map(|entry| entry.path().canonicalize().ok()));
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:100::/home/ann:\n";
        for text in ["ann", "1000"] {
            assert_eq!(find_user(users, text), Some(RunAs::User(1000, 100)));
        }
        assert_eq!(find_user(users, "bob"), None);
        assert_eq!(RunAs::parse("owner"), Some(RunAs::Owner));
        assert_eq!(
            RunAs::parse("4000000000"),
            Some(RunAs::User(4_000_000_000, 4_000_000_000))
        );
        for text in ["", "no-such-user", "-1", "4294967295"] {
            assert_eq!(RunAs::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_owner_is_a_files() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let owner = RunAs::Owner.resolve(Some(file.path())).unwrap();
        assert_eq!(owner.0, rustix::process::geteuid().as_raw());
        assert!(RunAs::Owner.resolve(None).is_err());
        assert!(RunAs::Owner.resolve(Some("nbd://host/".as_ref())).is_err());
    }
}
