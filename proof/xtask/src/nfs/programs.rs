//! Programs that people run, in the guest, over a mount by NFS: the POSIX conformance tests, fsx,
//! dbench, git.

use std::path::{Path, PathBuf};

use anyhow::Result;
use finefs_harness::programs::DBENCH_LOAD;
use finefs_harness::sets;

use super::{ATTACH, MODULES, Server, image};
use crate::guest::{Guest, Guests, Machine};
use crate::{fsx, pjdfstest, programs, setup};

const PJDFSTEST: &str = include_str!("programs/pjdfstest.sh");
const FSX: &str = include_str!("programs/fsx.sh");
const DBENCH: &str = include_str!("programs/dbench.sh");
const GIT: &str = include_str!("programs/git.sh");

/// The users of [`pjdfstest::CONFIG`].
const PASSWD: &str = "root:x:0:0::/:/bin/sh\ndaemon:x:1:1::/:/bin/sh\n\
                      nobody:x:65534:65534::/:/bin/sh\n";
const GROUP: &str = "root:x:0:\ndaemon:x:1:\nnogroup:x:65534:\n";
/// The server in the list of known failures.
const KNOWN_AS: &str = "nfs";

/// So many of the tests that remount run, each in a process of its own, unless for long.
const REMOUNTS: usize = 2;
/// More of the load than dbench comes through, unless for long: it lies in the guest's memory.
const LOAD_BYTES: usize = 2 << 20;

/// The first lines of dbench's load.
fn beginning(load: &[u8]) -> &[u8] {
    let start = &load[..load.len().min(LOAD_BYTES)];
    let end = start.iter().rposition(|byte| *byte == b'\n');
    &start[..end.map_or(0, |end| end + 1)]
}

/// What is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum On {
    Memory,
    Ext4,
}

impl On {
    pub(super) const BOTH: [On; 2] = [On::Memory, On::Ext4];

    pub(super) fn name(self) -> &'static str {
        match self {
            On::Memory => "memory",
            On::Ext4 => "ext4",
        }
    }
}

/// What the proofs share.
pub(super) struct Programs<'a> {
    pub guests: &'a Guests,
    pub finefs: &'a Path,
    /// For long.
    pub is_long: bool,
}

impl Programs<'_> {
    /// Serves, has a guest run a script with these programs and files, and gives what `made` makes
    /// of what the guest has said. What is on an image is sound then.
    fn run<T>(
        &self,
        on: On,
        script: &str,
        (programs, files): (&[&str], &[(&Path, &str)]),
        made: impl FnOnce(&Guest) -> Result<T>,
    ) -> Result<(String, T)> {
        let image = match on {
            On::Memory => None,
            On::Ext4 => Some(image(self.guests, "ext4")?),
        };
        let server = match &image {
            None => Server::start(self.finefs, &["--memory", "-o", "size=512m"], 0)?,
            Some(image) => Server::start(self.finefs, &[&image.to_string_lossy()], 0)?,
        };
        let guest = self.guests.start(&Machine {
            modules: &MODULES,
            programs,
            files,
            has_network: true,
            script: &format!("PORT={}\n{ATTACH}{script}", server.port),
            ..Machine::default()
        })?;
        let finished = guest.finish_with(made)?;
        server.end()?;
        if let Some(image) = image {
            sets::fsck(&image)?;
        }
        Ok(finished)
    }

    /// A file for the guest.
    fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.guests.dir().join(name);
        std::fs::write(&path, contents)?;
        Ok(path)
    }

    pub(super) fn pjdfstest(&self, on: On) -> Result<String> {
        let program = setup::conformance_tool("pjdfstest")?;
        let [config, passwd, group] = [
            self.write("pjdfstest.toml", pjdfstest::CONFIG)?,
            self.write("passwd", PASSWD)?,
            self.write("group", GROUP)?,
        ];
        let files = [
            (&*config, "etc/pjdfstest.toml"),
            (&passwd, "etc/passwd"),
            (&group, "etc/group"),
        ];
        // Some tests execute a copy of sleep, under another name.
        let programs = [&*program.to_string_lossy(), "sleep"];
        let remounts = if self.is_long { 1_000 } else { REMOUNTS };
        let script = format!("REMOUNTS={remounts}\n{PJDFSTEST}");
        let (_, outcomes) = self.run(on, &script, (&programs, &files), |guest| {
            let mut outcomes = pjdfstest::Outcomes::new();
            // Nothing is before the first.
            for one in guest.said("outcome ").split("RUN\n").skip(1) {
                outcomes.extend(pjdfstest::outcomes_of(one)?);
            }
            Ok(outcomes)
        })?;
        let known = pjdfstest::Known::read()?;
        let reasons = known.reasons(KNOWN_AS, on.name());
        pjdfstest::judge(&outcomes, &reasons, false)
    }

    pub(super) fn fsx(&self, on: On) -> Result<String> {
        let program = setup::conformance_tool("fsx")?;
        let config = self.write("fsx.toml", fsx::CONFIG)?;
        let operations = if self.is_long { 8_000 } else { 300 };
        let script = format!("OPERATIONS={operations}\n{FSX}");
        let program = program.to_string_lossy();
        let files = [(&*config, "etc/fsx.toml")];
        Ok(self.run(on, &script, (&[&*program], &files), |_| Ok(()))?.0)
    }

    pub(super) fn dbench(&self, on: On) -> Result<String> {
        setup::packages_of(|program| program == "dbench")?;
        let (clients, seconds) = if self.is_long { (8, 120) } else { (4, 5) };
        let script = format!("CLIENTS={clients} TIME={seconds}\n{DBENCH}");
        let load = if self.is_long {
            PathBuf::from(DBENCH_LOAD)
        } else {
            self.write("client.txt", beginning(&std::fs::read(DBENCH_LOAD)?))?
        };
        let load = (&*load, "etc/client.txt");
        Ok(self.run(on, &script, (&["dbench"], &[load]), |_| Ok(()))?.0)
    }

    pub(super) fn git(&self, on: On) -> Result<String> {
        let (bundle, file_count) = programs::bundle(self.guests.dir())?;
        let place = "etc/repository.bundle";
        let settings = format!("export HOME=/tmp PLACE=/mnt BUNDLE=/{place} FILES={file_count}");
        let script = [&settings, programs::GIT, GIT].join("\n");
        let files = [(&*bundle, place)];
        Ok(self.run(on, &script, (&["git"], &files), |_| Ok(()))?.0)
    }
}
