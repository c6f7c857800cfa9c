//! The channel on which a mounted file system's server is asked and told things.
//!
//! A socket in the abstract namespace, named after the file system's device number, which anybody
//! reads in mountinfo: nothing is left behind when a server dies, and finding it does not touch the
//! mount. Each end asks the kernel who is at the other: the server answers its own user and root,
//! and a client believes only root and the user it runs as, since names there are free for all to
//! take. Where client and server do not share a network namespace there is no channel.
//!
//! The protocol is that of [`finefs_lockmeter::control`]: a line of JSON each way.
//!
//! # References
//! unix(7), "Address format", "SO_PEERCRED".

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use finefs::LockingScheme;
use finefs::namespace::Namespace;
use finefs_fuse::MountPoint;
use finefs_lockmeter::control::{Reply, Request, Server, answer, ask_on};
use serde::{Deserialize, Serialize};

use crate::freeze::Change;

/// Longest time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest time that writing everything out may take.
const WRITE_OUT: Duration = Duration::from_secs(600);

/// How long a server waits for another that had the same mount number.
const HANDOVER: Duration = Duration::from_secs(3);

/// How long a client waits for a server that does not listen yet.
const START: Duration = Duration::from_secs(1);

/// What is asked.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Question {
    /// The lock meter's questions.
    Meter(Request),
    /// That changes wait, or go on.
    Change(Change),
    /// What locks stand around operations.
    Locking,
}

/// What is answered.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// The lock meter's answers.
    Meter(Reply),
    /// The name of the locking scheme.
    Locking(String),
    /// It was done.
    Done,
    /// Why there is none.
    Refused(String),
}

/// Answers for the file system mounted at `directory`, until the server is dropped.
pub(crate) fn open(
    directory: &Path,
    namespace: Arc<Namespace>,
    locking: LockingScheme,
) -> io::Result<Server> {
    let mount = finefs_fuse::mount_at(directory)?.ok_or(io::ErrorKind::NotFound)?;
    Server::answering(bind(&address(&mount)?)?, move |question| match question {
        Ok(Question::Meter(request)) => Answer::Meter(answer(&request)),
        Ok(Question::Locking) => Answer::Locking(locking.name().to_owned()),
        Ok(Question::Change(change)) => match change.apply(&namespace) {
            Ok(()) => Answer::Done,
            Err(reason) => Answer::Refused(reason),
        },
        Err(reason) => Answer::Refused(reason),
    })
}

/// The kernel gives a number again as soon as its mount is gone; the server that had it takes a moment longer.
fn bind(address: &SocketAddr) -> io::Result<UnixListener> {
    let deadline = Instant::now() + HANDOVER;
    loop {
        match UnixListener::bind_addr(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            bound => return bound,
        }
    }
}

/// Connects. A mount is there a moment before its server listens.
fn connect(address: &SocketAddr) -> io::Result<UnixStream> {
    let deadline = Instant::now() + START;
    loop {
        match UnixStream::connect_addr(address) {
            Err(error)
                if error.kind() == io::ErrorKind::ConnectionRefused
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            connected => return connected,
        }
    }
}

/// Why there is no answer.
pub(crate) enum NoAnswer {
    /// It takes longer than one waits; it may come another time.
    Late,
    /// There will be none; the reason, for the user.
    Gone(String),
}

impl From<NoAnswer> for String {
    fn from(reason: NoAnswer) -> String {
        match reason {
            NoAnswer::Late => "its server does not answer in time".into(),
            NoAnswer::Gone(reason) => reason,
        }
    }
}

/// A mount, as its server's client sees it.
pub(crate) struct Channel {
    address: SocketAddr,
}

impl Channel {
    /// Of this mount.
    pub(crate) fn of(mount: &MountPoint) -> io::Result<Channel> {
        address(mount).map(|address| Channel { address })
    }

    /// Asks the lock meter. The error is the reason, for the user.
    pub(crate) fn meter(&self, request: Request) -> Result<Reply, String> {
        Ok(self.meter_within(request, PATIENCE)?)
    }

    /// Asks the lock meter, and waits for so long.
    pub(crate) fn meter_within(
        &self,
        request: Request,
        patience: Duration,
    ) -> Result<Reply, NoAnswer> {
        match self.ask(&Question::Meter(request), patience) {
            Ok(Answer::Meter(reply)) => Ok(reply),
            Ok(Answer::Refused(reason)) => Err(NoAnswer::Gone(reason)),
            Ok(Answer::Done | Answer::Locking(_)) => {
                Err(NoAnswer::Gone("its server gives the wrong answer".into()))
            }
            Err(error) if is_late(&error) => Err(NoAnswer::Late),
            Err(error) => Err(NoAnswer::Gone(describe(&error))),
        }
    }

    /// Asks for the name of the locking scheme; `None` of a server that does not tell.
    pub(crate) fn locking(&self) -> Option<String> {
        match self.ask(&Question::Locking, PATIENCE) {
            Ok(Answer::Locking(name)) => Some(name),
            _ => None,
        }
    }

    /// Asks for a change. The error is the reason, for the user.
    pub(crate) fn change(&self, change: Change) -> Result<(), String> {
        match self.ask(&Question::Change(change), WRITE_OUT) {
            Ok(Answer::Done) => Ok(()),
            Ok(Answer::Refused(reason)) => Err(reason),
            Ok(Answer::Meter(_) | Answer::Locking(_)) => {
                Err("its server gives the wrong answer".into())
            }
            Err(error) => Err(describe(&error)),
        }
    }

    fn ask(&self, question: &Question, patience: Duration) -> io::Result<Answer> {
        let stream = connect(&self.address)?;
        let peer = rustix::net::sockopt::socket_peercred(&stream)?;
        if !peer.uid.is_root() && peer.uid != rustix::process::geteuid() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        stream.set_read_timeout(Some(patience))?;
        ask_on(stream, question)
    }
}

fn address(mount: &MountPoint) -> io::Result<SocketAddr> {
    let (major, minor) = mount.device;
    SocketAddr::from_abstract_name(format!("finefs/control/{major}:{minor}"))
}

/// A timeout of the stream.
fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "its server does not answer; it has ended, or runs in another network namespace".into()
        }
        io::ErrorKind::PermissionDenied => {
            "its server is another user's; ask as that user or as root".into()
        }
        _ => error.to_string(),
    }
}
