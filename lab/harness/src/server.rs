//! The server of a mount: finefs, the kernel, or fuse2fs.
//!
//! A proof is written once and runs on each of them; the kernel is the reference that validates the
//! proof itself.

use crate::cleanup::{self, is_mounted};
use crate::export::{Export, Storage};
use crate::fuse_ring::{Switch, Transport};
use crate::run::{self, Running};
use crate::tools;
use anyhow::{Context, Result, bail, ensure};
use finefs_block::{Access, OpenErrorKind, Patience};
use finefs_confine::{Confinement, Needs};
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a mount may take to appear, and a server to end.
const MOUNT_LIMIT: Duration = Duration::from_secs(60);
const UNMOUNT_LIMIT: Duration = Duration::from_secs(300);

/// Who serves a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// This project's own server.
    Finefs,
    /// The kernel's ext4 on a loop device (tmpfs for a memory mount). Needs root.
    Kernel,
    /// The fuse2fs of e2fsprogs.
    Fuse2fs,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Finefs => "finefs",
            Kind::Kernel => "kernel",
            Kind::Fuse2fs => "fuse2fs",
        })
    }
}

/// What is mounted.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// An image file.
    Image(&'a Path),
    /// A memory file system of this many MiB.
    Memory(u64),
}

/// A server that can make mounts.
#[derive(Clone, Debug)]
pub struct Server {
    /// Which one.
    pub kind: Kind,
    /// The finefs binary, when `kind` is finefs.
    finefs: PathBuf,
    /// The user that mounts and unmounts, when it is not this process's own.
    user: Option<User>,
    transport: Transport,
    storage: Storage,
    log: Option<PathBuf>,
}

/// A user and the group with the same number.
#[derive(Clone, Copy, Debug)]
pub struct User(pub u32);

impl User {
    /// A command run as this user. No new session and no "no new privileges", so that setuid
    /// programs such as fusermount3 work as from the user's own shell.
    pub fn cmd(self, program: impl AsRef<OsStr>) -> Command {
        let id = self.0.to_string();
        let args = ["--reuid", &id, "--regid", &id, "--clear-groups", "--"];
        let mut command = run::cmd(tools::program("setpriv"), args);
        command.arg(program);
        command
    }
}

impl Server {
    /// Looks up the program behind `kind`; `finefs` overrides where its binary is.
    pub fn new(kind: Kind, finefs: Option<&Path>) -> Result<Self> {
        let finefs = match kind {
            Kind::Finefs => tools::finefs(finefs)?,
            Kind::Kernel | Kind::Fuse2fs => PathBuf::new(),
        };
        if kind == Kind::Fuse2fs {
            ensure!(
                tools::which("fuse2fs").is_some(),
                "fuse2fs is not installed"
            );
        }
        Ok(Self {
            kind,
            finefs,
            user: None,
            transport: Transport::default(),
            storage: Storage::default(),
            log: None,
        })
    }

    /// The same server, started by `user`.
    pub fn run_by(self, user: User) -> Self {
        Self {
            user: Some(user),
            ..self
        }
    }

    /// The same server, reached that way (finefs only).
    pub fn reached_by(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }

    /// The same server; where it is reached by turns, as in the turn of this number.
    pub fn turn(&self, number: u64) -> Self {
        self.clone().reached_by(self.transport.turn(number))
    }

    /// The same server, which finds its images there (finefs only).
    pub fn with_images_on(self, storage: Storage) -> Self {
        Self { storage, ..self }
    }

    /// The same server, whose messages go to a file once it serves (finefs only).
    pub fn with_log(self, log: PathBuf) -> Self {
        Self {
            log: Some(log),
            ..self
        }
    }

    /// The same server with its binary at `path`.
    pub fn with_binary(self, path: PathBuf) -> Self {
        Self {
            finefs: path,
            ..self
        }
    }

    /// The finefs binary; empty for other servers.
    pub fn binary(&self) -> &Path {
        &self.finefs
    }

    /// What is about to be mounted at the empty directory `dir`.
    fn not_yet_at(&self, dir: &Path) -> Result<Mount> {
        cleanup::halt_if_interrupted();
        ensure!(
            !is_mounted(dir),
            "{}: something is mounted here",
            dir.display()
        );
        let dir = dir.canonicalize()?;
        Ok(Mount {
            server: self.clone(),
            daemon: None,
            export: None,
            looped: None,
            _entry: cleanup::mount(&dir),
            dir,
        })
    }

    /// Mounts with a finefs that stays our child, so that it can be killed.
    pub fn mount_in_foreground(
        &self,
        what: What<'_>,
        dir: &Path,
        options: &[&str],
    ) -> Result<Mount> {
        ensure!(
            self.kind == Kind::Finefs,
            "only finefs runs in the foreground"
        );
        let mut mount = self.not_yet_at(dir)?;
        let (mut command, _switch) = mount.finefs_command(what, options)?;
        command
            .arg("-f")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        mount.wait_for_daemon(&mut command)?;
        Ok(mount)
    }

    fn cmd(&self, program: impl AsRef<OsStr>, args: &[&str]) -> Command {
        let mut command = self
            .user
            .map_or_else(|| Command::new(&program), |user| user.cmd(&program));
        command.args(args);
        command
    }

    /// Mounts `what` on the empty directory `dir`.
    pub fn mount(&self, what: What<'_>, dir: &Path, options: &[&str]) -> Result<Mount> {
        let mut mount = self.not_yet_at(dir)?;
        match self.kind {
            Kind::Finefs => mount.start_finefs(what, options)?,
            Kind::Kernel => mount.start_kernel(what, options)?,
            Kind::Fuse2fs => mount.start_fuse2fs(what, options)?,
        }
        Ok(mount)
    }
}

/// A mount; unmounted on drop.
#[derive(Debug)]
pub struct Mount {
    server: Server,
    dir: PathBuf,
    daemon: Option<Running>,
    export: Option<Export>,
    /// What the kernel has on a loop device.
    looped: Option<PathBuf>,
    _entry: cleanup::Entry,
}

impl Mount {
    /// The mount point.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The command that mounts with finefs, and the switch to hold until it has.
    fn finefs_command(
        &mut self,
        what: What<'_>,
        options: &[&str],
    ) -> Result<(Command, Option<Switch>)> {
        let mut command = self.server.cmd(&self.server.finefs, &["mount"]);
        let mut options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let (option, switch) = self.server.transport.next()?;
        options.extend(option.map(ToString::to_string));
        options.extend(confinement(&options).map(ToString::to_string));
        match what {
            What::Image(image) => {
                self.export = self.server.storage.serve(image)?;
                match &self.export {
                    Some(export) => command.arg(export.url()),
                    None => command.arg(image),
                };
            }
            What::Memory(mib) => {
                command.arg("--memory");
                options.push(format!("size={mib}M"));
            }
        }
        command.arg(&self.dir);
        if !options.is_empty() {
            command.args(["-o", &options.join(",")]);
        }
        if let Some(log) = &self.server.log {
            command.arg("--log").arg(log);
        }
        Ok((command, switch))
    }

    /// `finefs mount` returns when the mount is usable. Its messages go to a file, since the daemon
    /// that it leaves behind may keep a pipe open.
    fn start_finefs(&mut self, what: What<'_>, options: &[&str]) -> Result<()> {
        let log = tempfile::NamedTempFile::new()?;
        let (mut command, _switch) = self.finefs_command(what, options)?;
        let output = File::create(log.path())?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let (status, timed_out) = run::spawn(&mut command)?.wait_limit(MOUNT_LIMIT)?;
        let said = std::fs::read_to_string(log.path()).unwrap_or_default();
        ensure!(
            !timed_out,
            "{command:?}: did not return within {MOUNT_LIMIT:?}\n{said}"
        );
        ensure!(status.success(), "{command:?}: {status}\n{said}");
        ensure!(
            is_mounted(&self.dir),
            "{command:?}: succeeded, but nothing is mounted\n{said}"
        );
        Ok(())
    }

    fn start_kernel(&mut self, what: What<'_>, options: &[&str]) -> Result<()> {
        let mut all: Vec<String> = options
            .iter()
            .filter(|option| !matches!(**option, "allow_other" | "default_permissions"))
            .map(ToString::to_string)
            .collect();
        let mut command = run::cmd(tools::program("mount"), [] as [&str; 0]);
        let source = match what {
            What::Image(image) => {
                all.push("loop".into());
                self.looped = Some(image.to_owned());
                image.to_owned()
            }
            What::Memory(mib) => {
                command.args(["-t", "tmpfs"]);
                all.push(format!("size={mib}M"));
                "tmpfs".into()
            }
        };
        run::ok(
            command
                .args(["-o", &all.join(",")])
                .arg(source)
                .arg(&self.dir),
        )?;
        Ok(())
    }

    /// fuse2fs writes the superblock after the unmount has returned, so it stays our child and its
    /// end is waited for.
    fn start_fuse2fs(&mut self, what: What<'_>, options: &[&str]) -> Result<()> {
        let What::Image(image) = what else {
            bail!("fuse2fs has no memory file system")
        };
        let mut command = self.server.cmd(tools::program("fuse2fs"), &["-f"]);
        command.arg(image).arg(&self.dir);
        if !options.is_empty() {
            command.args(["-o", &options.join(",")]);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.wait_for_daemon(&mut command)
    }

    /// Starts a server that stays our child, and waits for its mount.
    fn wait_for_daemon(&mut self, command: &mut Command) -> Result<()> {
        let daemon = self.daemon.insert(run::spawn(command)?);
        let deadline = Instant::now() + MOUNT_LIMIT;
        while !is_mounted(&self.dir) {
            if let Some(status) = daemon.try_wait()? {
                bail!("{command:?}: {status}");
            }
            ensure!(
                Instant::now() < deadline,
                "{command:?}: no mount after {MOUNT_LIMIT:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The server's process number, if it is our child.
    pub fn server_pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Running::pid)
    }

    /// How the server ended, if it is our child and has.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        let ended = self.daemon.as_mut().map(Running::try_wait).transpose()?;
        Ok(ended.flatten())
    }

    /// Kills the server that has the image, if there is one; finefs lives on.
    pub fn cut_storage(&mut self) {
        drop(self.export.take());
    }

    /// Kills the server, which must be our child, and takes the dead mount away.
    pub fn kill(mut self) -> Result<()> {
        let Some(mut daemon) = self.daemon.take() else {
            bail!("the server is no child of ours")
        };
        cleanup::kill_group(daemon.pid());
        daemon.wait_limit(UNMOUNT_LIMIT)?;
        cleanup::force_unmount(&self.dir);
        ensure!(!is_mounted(&self.dir), "the dead mount cannot be unmounted");
        Ok(())
    }

    /// Unmounts and waits until everything is on the image. The time it took.
    pub fn unmount(mut self) -> Result<Duration> {
        let started = Instant::now();
        let mut command = match self.server.kind {
            Kind::Finefs => self.server.cmd(&self.server.finefs, &["umount"]),
            Kind::Kernel => run::cmd(tools::program("umount"), [] as [&str; 0]),
            Kind::Fuse2fs => self.server.cmd(tools::program("fusermount3"), &["-u"]),
        };
        run::unmount(command.arg(&self.dir), UNMOUNT_LIMIT)?;
        ensure!(
            !is_mounted(&self.dir),
            "{}: still mounted after {command:?}",
            self.dir.display()
        );
        if let Some(mut daemon) = self.daemon.take() {
            let (status, killed) = daemon.wait_limit(UNMOUNT_LIMIT)?;
            ensure!(
                !killed,
                "the server did not end within {UNMOUNT_LIMIT:?} of the unmount"
            );
            ensure!(status.success(), "the server ended with {status}");
        }
        if let Some(export) = self.export.take() {
            export.end()?;
        }
        if let Some(image) = self.looped.take() {
            wait_for_loop_device(&image)?;
        }
        Ok(started.elapsed())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        cleanup::force_unmount(&self.dir);
    }
}

/// The kernel lets go of an image a moment after the unmount: somebody may just have copied the
/// table of mounts (unshare(1)).
fn wait_for_loop_device(image: &Path) -> Result<()> {
    let patience = Patience {
        limit: UNMOUNT_LIMIT,
        tell: |_| {},
    };
    let deadline = Instant::now() + UNMOUNT_LIMIT;
    while let Err(error) = patience.open(image, Access::ReadWrite) {
        let is_in_use = matches!(error.kind, OpenErrorKind::InUse { .. });
        ensure!(is_in_use && Instant::now() < deadline, error);
    }
    Ok(())
}

/// What makes sure that the server of a mount with these options is confined; nothing where they
/// say themselves what it is to be, or where the kernel cannot confine it.
fn confinement(options: &[String]) -> Option<&'static str> {
    let mut each = options.iter().flat_map(|list| list.split(','));
    let is_chosen = each.any(|option| option.starts_with("sandbox="));
    (!is_chosen && can_confine()).then_some("sandbox=on")
}

/// True where the kernel has all that confines a server. Where it has not, that is told once.
fn can_confine() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let lacks = match Confinement::prepare(&Needs::default()) {
            Ok(confinement) => confinement.missing().join(" and no "),
            Err(error) => error.to_string(),
        };
        if !lacks.is_empty() {
            println!("servers are not wholly confined here: no {lacks}");
        }
        lacks.is_empty()
    })
}

/// The kernel's own read-only mount of `image`, for judging.
pub fn judge(image: &Path, dir: &Path) -> Result<Mount> {
    judge_with(image, dir, &[])
}

/// The same with more mount options.
pub fn judge_with(image: &Path, dir: &Path, options: &[&str]) -> Result<Mount> {
    let kernel = Server {
        kind: Kind::Kernel,
        finefs: PathBuf::new(),
        user: None,
        transport: Transport::default(),
        storage: Storage::default(),
        log: None,
    };
    kernel
        .mount(What::Image(image), dir, &[&["ro"], options].concat())
        .with_context(|| format!("the kernel cannot mount {}", image.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_that_is_chosen_stays() {
        for chosen in ["sandbox=off", "ro,sandbox=auto"] {
            assert_eq!(confinement(&[chosen.to_owned()]), None);
        }
        let is_on = confinement(&["ro".to_owned()]) == Some("sandbox=on");
        assert_eq!(is_on, can_confine());
    }
}
