//! Going to the background: fork, the report of readiness, the watcher.
//!
//! # The processes
//! ```text
//! launcher --fork--> watcher --fork--> server
//! ```
//! - The **launcher** is what the user started. It waits until the server says that the mount is
//!   usable and ends with status 0, or until the server has ended, and then with its status.
//! - The **server** opens the image, mounts and serves. Until it is ready it keeps the terminal:
//!   it prints its own errors, and Ctrl-C ends it.
//! - The **watcher** waits for the server. A server that dies without a chance to unmount (killed,
//!   out of memory, aborted) leaves a mount at which every call fails with ENOTCONN: without it
//!   programs would go on in the directory below. The watcher says so in the system log. With
//!   `auto_unmount`, or where the launcher still waits, it takes the mount away. It passes signals
//!   on to the server.
//!
//! - Where the server is confined, the watcher is its attendant too (`attendant`). In the
//!   foreground, where nothing watches, the attendant is a process beside the server.
//!
//! - Watcher and server close what they have inherited (`inherited`), the server only when it has
//!   opened the image, which may be named by that.
//!
//! All forks happen while the process has one thread. Readiness is one byte in two pipes, to the
//! launcher and to the watcher, whose write ends only the server holds, so that its end is seen
//! whatever way it comes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::attendant::{self, Attendant, Attending, Charge};
use crate::inherited::Inherited;
use crate::{CliResult, Failure, logger, say};

/// How long the kernel may take to see that a server is gone.
const ABORT_PATIENCE: Duration = Duration::from_secs(5);

/// What the server writes when the mount is usable; no reason begins with it.
const READY: u8 = 0;

/// What the server tells the others through.
pub(crate) struct Readiness {
    launcher: File,
    watcher: File,
    log: Option<File>,
    inherited: Inherited,
}

/// What is looked after when the server is killed.
pub(crate) struct Watched {
    /// Absolute, without symbolic links.
    pub mount_point: PathBuf,
    /// The mount is taken away, else it stays, dead.
    pub is_unmounted: bool,
}

/// What this process is after [`start`].
pub(crate) enum Role {
    /// It has nothing to do any more but to end.
    Done(ExitCode),
    /// It is the server.
    Server(Readiness, Option<Attendant>),
}

/// Starts watcher and server. Must be called while the process has one thread. `watched` is what
/// the watcher looks after, if it is a mount; `log` takes the server's messages once it is in the
/// background, and `inherited` is closed then; `charge` has the watcher be an attendant.
pub(crate) fn start(
    watched: Option<Watched>,
    log: Option<File>,
    charge: Option<Charge>,
    mut inherited: Inherited,
) -> CliResult<Role> {
    let ends = charge.map(attendant::pair).transpose().map_err(fail)?;
    let (attendant, attending) = ends.unzip();
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
    let (to_launcher, of_launcher) = pipe().map_err(|e| fail(e.into()))?;
    let (to_watcher, of_watcher) = pipe().map_err(|e| fail(e.into()))?;
    match fork().map_err(fail)? {
        Some(watcher) => {
            drop((of_launcher, to_watcher, of_watcher, attendant, attending));
            Ok(Role::Done(launch(watcher, to_launcher)))
        }
        None => match fork() {
            Ok(Some(server)) => {
                drop((to_launcher, of_launcher, of_watcher, attendant));
                inherited.close();
                let ready = to_watcher.into();
                Ok(Role::Done(watch(server, ready, watched, attending)))
            }
            Ok(None) => {
                drop((to_launcher, to_watcher, attending));
                let readiness = Readiness {
                    launcher: of_launcher.into(),
                    watcher: of_watcher.into(),
                    log,
                    inherited,
                };
                Ok(Role::Server(readiness, attendant))
            }
            Err(error) => Err(fail(error)),
        },
    }
}

fn fail(error: io::Error) -> Failure {
    Failure::new(format!("cannot go to the background: {error}"))
}

/// Starts an attendant beside this process, which has one thread. It also takes the mount away when
/// the server is killed, where that is asked for.
pub(crate) fn start_attendant(charge: Charge, watched: Option<Watched>) -> CliResult<Attendant> {
    let fail = |error: io::Error| Failure::new(format!("cannot start an attendant: {error}"));
    let (attendant, attending) = attendant::pair(charge).map_err(fail)?;
    if fork().map_err(fail)?.is_some() {
        return Ok(attendant);
    }
    drop(attendant);
    let _ = rustix::process::setsid();
    // It ends when the server has, whatever tells both to.
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    let _ = leave_terminal();
    attending.attend();
    if let Some(watched) = watched.filter(|watched| watched.is_unmounted)
        && has_died(&watched.mount_point)
    {
        clean_up(&watched.mount_point);
    }
    std::process::exit(0)
}

impl Readiness {
    /// Leaves the terminal, and whoever started it: what is left to say goes to the log.
    pub(crate) fn leave(&mut self) -> CliResult<()> {
        // Fails only for the leader of a process group, which a forked process is not.
        let _ = rustix::process::setsid();
        logger::redirect(self.log.take());
        self.inherited.close();
        leave_terminal().map_err(fail)
    }

    /// The mount is usable: lets the launcher end.
    pub(crate) fn report(self) {
        // A launcher that is gone (killed) needs no report.
        for mut pipe in [&self.watcher, &self.launcher] {
            let _ = pipe.write_all(&[READY]);
        }
    }

    /// The mount will not be: the launcher says why, as this process has left the terminal.
    pub(crate) fn refuse(mut self, reason: &Failure) {
        let _ = self.launcher.write_all(reason.0.as_bytes());
    }
}

fn leave_terminal() -> io::Result<()> {
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    // The directory that it was started in must not stay busy for ever.
    std::env::set_current_dir("/")
}

/// The launcher's wait.
fn launch(watcher: Pid, ready: OwnedFd) -> ExitCode {
    let (mut pipe, mut first, mut reason) = (File::from(ready), [0], Vec::new());
    match pipe.read(&mut first) {
        Ok(1) if first == [READY] => return ExitCode::SUCCESS,
        Ok(1) => _ = pipe.read_to_end(&mut reason),
        _ => {}
    }
    // Not ready, and it never will be. It has printed why before it left the terminal, or tells
    // it, unless it was killed.
    if !reason.is_empty() {
        let reason = [&first, &reason[..]].concat();
        say(String::from_utf8_lossy(&reason));
    }
    match wait(watcher, WaitOptions::empty()).and_then(exit_status) {
        Some(status) => ExitCode::from(status),
        None => {
            say("the server ended unexpectedly before the mount was usable");
            ExitCode::FAILURE
        }
    }
}

/// The watcher's life.
fn watch(
    server: Pid,
    mut ready: File,
    watched: Option<Watched>,
    attending: Option<Attending>,
) -> ExitCode {
    let _ = rustix::process::setsid();
    let signals = Signals::new([SIGCHLD, SIGTERM, SIGINT, SIGHUP]);
    let _ = leave_terminal();
    let Ok(mut signals) = signals else {
        return ExitCode::FAILURE;
    };
    let attend = |attending: Attending| std::thread::spawn(move || attending.attend());
    let attending = attending.map(attend);
    // The server may have ended before the handlers stood.
    let mut status = wait(server, WaitOptions::NOHANG);
    while status.is_none() {
        for signal in signals.wait() {
            if let (true, Some(signal)) = (signal != SIGCHLD, Signal::from_named_raw(signal)) {
                let _ = rustix::process::kill_process(server, signal);
            }
        }
        status = wait(server, WaitOptions::NOHANG);
    }
    match status.and_then(exit_status) {
        Some(status) => ExitCode::from(status),
        None => {
            logger::start(false);
            logger::redirect(None);
            let was_usable = matches!(ready.read(&mut [0]), Ok(1));
            match watched {
                Some(watched) => look_after(&watched, was_usable),
                None => log::error!("the NFS server was killed; check the image with fsck"),
            }
            // The socket goes too.
            let _ = attending.map(std::thread::JoinHandle::join);
            ExitCode::FAILURE
        }
    }
}

/// What is done about a mount whose server was killed.
fn look_after(watched: &Watched, was_usable: bool) {
    let place = watched.mount_point.display();
    if !has_died(&watched.mount_point) {
        log::error!("the server of {place} was killed");
    } else if watched.is_unmounted || !was_usable {
        clean_up(&watched.mount_point);
    } else {
        log::error!(
            "the server of {place} was killed; every call there fails until it is mounted again, \
             or `finefs umount {place}` takes the mount away; then check the image with fsck"
        );
    }
}

/// Takes a dead mount away.
fn clean_up(mount_point: &Path) {
    let place = mount_point.display();
    match finefs_fuse::detach(mount_point, true) {
        Ok(()) => {
            log::error!("the server of {place} was killed; unmounted it; check the image with fsck")
        }
        Err(error) => log::error!("the server of {place} was killed; cannot unmount it: {error}"),
    }
}

/// True when what is mounted there is ours and has lost its server. The kernel notices that a while
/// after the process is gone where it has to take an io_uring apart first.
fn has_died(mount_point: &Path) -> bool {
    let deadline = Instant::now() + ABORT_PATIENCE;
    loop {
        match finefs_fuse::mount_at(mount_point) {
            Ok(Some(mount)) if mount.is_finefs() => {
                if mount.is_dead() {
                    return true;
                }
            }
            _ => return false,
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn wait(process: Pid, options: WaitOptions) -> Option<WaitStatus> {
    let result = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(process), options));
    result.ok().flatten().map(|(_, status)| status)
}

/// The exit status of a process that ended by itself.
fn exit_status(status: WaitStatus) -> Option<u8> {
    status
        .exit_status()
        .and_then(|code| u8::try_from(code).ok())
}

/// The child's number in the parent, `None` in the child.
#[allow(unsafe_code)]
fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: fork in a process with one thread (the caller's contract, stated at `start`) leaves
    // no lock of another thread held in the child, so the child may do whatever the parent may.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        child => Ok(Pid::from_raw(child)),
    }
}
