//! A socket by which a running program's meter is asked and switched.
//!
//! # Access
//! The socket's file has mode 0600, and each connection's user is asked of the kernel: only the
//! user that runs the program, and root, learn anything. Others are sent away before anything of
//! theirs is read.
//!
//! # Protocol
//! A connection is one question: the client sends a [`Request`] as one line of JSON, the server
//! answers with one line, a [`Reply`], and closes. A program that wants to be asked more than the
//! meter's questions gives its own types and its own socket: [`Server::answering`], [`ask_on`],
//! [`answer`]. What takes long to answer is answered later, by another thread, and keeps nobody
//! waiting: [`Server::answering_later`].
//!
//! # What is on
//! [`Request::SetFull`] and its like change what the program itself has set, until they are used
//! again. A client that may be killed, or may not be alone, uses [`Request::Lease`]: what it wants
//! is on beside what others want, and goes by itself.
//!
//! # Time limits
//! The server is one thread, which answers one question after the other and never waits for one
//! client alone: each has two seconds to ask, and two to read the answer, and is closed after that
//! (see `connections`). A client connects ([`connect`]), asks and reads ([`ask_on`]) for no longer
//! than it says, whatever listens there.
//!
//! # Locking
//! A mutex over the answers that other threads have given and that are not sent yet, a leaf.
//!
//! ```
//! use finefs_lockmeter::control::{Reply, Request, Server, ask};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("meter.sock");
//! let server = Server::start(&path)?;
//! let Reply::Snapshot(snapshot) = ask(&path, &Request::Snapshot)? else { panic!() };
//! println!("{snapshot}");
//! drop(server);
//! assert!(!path.exists());
//! # Ok::<(), std::io::Error>(())
//! ```

mod client;
mod connections;
mod outbox;

use std::fs::Permissions;
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Mode, Queue, Report, Snapshot, Thresholds, Wanted, lease};
use outbox::{Outbox, Ticket};

pub use client::{Asked, ask, ask_on, begin_asking, connect};

/// How long a client may take, and a client waits.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is asked.
///
/// ```
/// # use finefs_lockmeter::control::{Reply, Request, Server, ask};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("meter.sock");
/// let server = Server::start(&path)?;
/// assert_eq!(ask(&path, &Request::SetFull(true))?, Reply::Done);
/// # ask(&path, &Request::SetFull(false))?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// The counts.
    Snapshot,
    /// The counts as OpenMetrics text.
    OpenMetrics,
    /// The threads that are waiting now.
    Waiting,
    /// The reports of crossed thresholds since they were last taken: of those that
    /// [`Request::SetThresholds`] or the program set.
    Reports,
    /// Those of the thresholds of a lease.
    ReportsOf(u64),
    /// What is counted and reported.
    Settings,
    /// Count all acquisitions (true) or contended ones only.
    SetFull(bool),
    /// Time one in so many holdings that nobody waited for.
    SetHoldSampling(u32),
    /// Report what crosses these.
    SetThresholds {
        /// Waits, in microseconds.
        wait_us: Option<u64>,
        /// Holdings, in microseconds.
        hold_us: Option<u64>,
        /// Queues of more waiters.
        waiters: Option<usize>,
    },
    /// Have this on for a time beside what is on otherwise. A client that wants it longer asks
    /// again before it is over.
    Lease {
        /// The number of the lease to go on with; `None` for the first time.
        id: Option<u64>,
        /// For so many milliseconds from now, at most a minute.
        time_ms: u64,
        /// What is wanted.
        wanted: Wanted,
    },
    /// The lease of this number is over.
    EndLease(u64),
}

/// The answer.
///
/// ```
/// # use finefs_lockmeter::control::{Reply, Request, Server, ask};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("meter.sock");
/// let server = Server::start(&path)?;
/// assert!(matches!(ask(&path, &Request::Waiting)?, Reply::Waiting(_)));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// To [`Request::Snapshot`].
    Snapshot(Snapshot),
    /// To [`Request::OpenMetrics`].
    Text(String),
    /// To [`Request::Waiting`].
    Waiting(Vec<Queue>),
    /// To [`Request::Reports`].
    Reports(Vec<Report>),
    /// To [`Request::Settings`].
    Settings {
        /// All acquisitions are counted.
        is_full: bool,
        /// Of holdings that nobody waited for, one in so many is timed while all acquisitions are
        /// counted.
        hold_sampling: u32,
        /// Waits that are reported, in microseconds.
        wait_us: Option<u64>,
        /// Holdings that are reported, in microseconds.
        hold_us: Option<u64>,
        /// Queues of more waiters are reported.
        waiters: Option<usize>,
    },
    /// To [`Request::Lease`].
    Leased {
        /// The lease's number; another than asked for if that one had run out.
        id: u64,
        /// It went on without a break.
        has_lasted: bool,
    },
    /// Done.
    Done,
    /// The question was not understood, or the user may not ask.
    Refused(String),
}

/// Answers a question about this program's meter.
///
/// ```
/// use finefs_lockmeter::control::{Reply, Request, answer};
/// assert!(matches!(answer(&Request::Waiting), Reply::Waiting(_)));
/// ```
pub fn answer(request: &Request) -> Reply {
    match request {
        Request::Snapshot => Reply::Snapshot(crate::snapshot()),
        Request::OpenMetrics => Reply::Text(crate::snapshot().to_openmetrics()),
        Request::Waiting => Reply::Waiting(crate::waiting()),
        Request::Reports => Reply::Reports(lease::take_reports(None)),
        Request::ReportsOf(id) => Reply::Reports(lease::take_reports(Some(*id))),
        Request::Settings => {
            let thresholds = crate::thresholds();
            let us = |of: Option<Duration>| {
                of.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
            };
            Reply::Settings {
                is_full: crate::mode() == Mode::Full,
                hold_sampling: crate::hold_sampling(),
                wait_us: us(thresholds.wait),
                hold_us: us(thresholds.hold),
                waiters: thresholds.waiters,
            }
        }
        Request::SetFull(is_full) => {
            crate::set_mode(if *is_full {
                Mode::Full
            } else {
                Mode::ContendedOnly
            });
            Reply::Done
        }
        Request::SetHoldSampling(one_in) => {
            crate::set_hold_sampling(*one_in);
            Reply::Done
        }
        Request::SetThresholds {
            wait_us,
            hold_us,
            waiters,
        } => {
            crate::set_thresholds(&Thresholds {
                wait: wait_us.map(Duration::from_micros),
                hold: hold_us.map(Duration::from_micros),
                waiters: *waiters,
                ..crate::thresholds()
            });
            Reply::Done
        }
        Request::Lease {
            id,
            time_ms,
            wanted,
        } => match lease::take(*id, Duration::from_millis(*time_ms), *wanted) {
            Ok((id, has_lasted)) => Reply::Leased { id, has_lasted },
            Err(reason) => Reply::Refused(reason),
        },
        Request::EndLease(id) => {
            lease::end(*id);
            Reply::Done
        }
    }
}

/// Answers on a socket until it is dropped, which removes the socket's file. A client that has
/// asked by then is answered.
///
/// ```
/// # use finefs_lockmeter::control::{Reply, Request, Server, ask};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("meter.sock");
/// let server = Server::start(&path)?;
/// assert!(path.exists());
/// drop(server);
/// assert!(!path.exists());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Server {
    outbox: Arc<Outbox>,
    file: Option<SocketFile>,
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The answer to one question, to be given now or later, by any thread. Dropped, the client gets
/// none: its connection is closed.
///
/// ```
/// use finefs_lockmeter::control::{Answerer, Server, ask_on};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("sum.sock");
/// let listener = std::os::unix::net::UnixListener::bind(&path)?;
/// let sum = |question: Result<Vec<u32>, String>, answerer: Answerer<u32>| {
///     // A long sum would be given to another thread, with the answerer.
///     answerer.give(&question.unwrap_or_default().iter().sum());
/// };
/// let _server = Server::answering_later(listener, sum)?;
/// let stream = std::os::unix::net::UnixStream::connect(&path)?;
/// let seven: u32 = ask_on(stream, &[1, 2, 4])?;
/// assert_eq!(seven, 7);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Answerer<A> {
    ticket: Ticket,
    answers: PhantomData<fn(A)>,
}

impl<A: Serialize> Answerer<A> {
    /// Gives it. Nobody is told if the client has gone.
    pub fn give(self, answer: &A) {
        if let Ok(mut text) = serde_json::to_vec(answer) {
            text.push(b'\n');
            self.ticket.hand_in(text);
        }
    }
}

/// A socket's file, known by device and inode so that no other's is removed.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

impl Server {
    /// Makes the socket at `path` and answers questions about the meter there. A socket file that
    /// is there already and that nobody listens on any more is replaced.
    pub fn start(path: &Path) -> io::Result<Server> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            other => other?,
        };
        // A client that connects before this is asked for its user all the same.
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        let meta = path.symlink_metadata()?;
        let mut server = Server::answering(listener, |question| match question {
            Ok(request) => answer(&request),
            Err(reason) => Reply::Refused(reason),
        })?;
        server.file = Some(SocketFile {
            path: path.to_owned(),
            id: (meta.dev(), meta.ino()),
        });
        Ok(server)
    }

    /// Answers on `listener`, one question after the other, with what `answer` makes of each: of a
    /// question, or of the reason why there is none (it was not understood, the user may not ask).
    pub fn answering<Q: DeserializeOwned, A: Serialize>(
        listener: UnixListener,
        answer: impl Fn(Result<Q, String>) -> A + Send + 'static,
    ) -> io::Result<Server> {
        let at_once = move |question, answerer: Answerer<A>| answerer.give(&answer(question));
        Server::answering_later(listener, at_once)
    }

    /// The same, with answers that may be given later. Meanwhile others are answered.
    pub fn answering_later<Q: DeserializeOwned, A: Serialize>(
        listener: UnixListener,
        answer: impl Fn(Result<Q, String>, Answerer<A>) + Send + 'static,
    ) -> io::Result<Server> {
        let is_ending = Arc::new(AtomicBool::new(false));
        let outbox = Arc::new(Outbox::new()?);
        listener.set_nonblocking(true)?;
        let (flag, for_answers) = (Arc::clone(&is_ending), Arc::clone(&outbox));
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                connections::serve(&listener, &flag, &for_answers, &|question, ticket| {
                    let question = question.and_then(|line| {
                        serde_json::from_slice(line).map_err(|error| error.to_string())
                    });
                    let answers = PhantomData;
                    answer(question, Answerer { ticket, answers });
                });
            })?;
        Ok(Server {
            outbox,
            file: None,
            is_ending,
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Release);
        if let Some(SocketFile { path, id }) = &self.file {
            let meta = path.symlink_metadata();
            if meta.is_ok_and(|meta| (meta.dev(), meta.ino()) == *id) {
                let _ = std::fs::remove_file(path);
            }
        }
        // The thread wakes up, answers clients that have asked, and closes on all others.
        self.outbox.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// True for a socket that nobody listens on any more.
fn is_stale(path: &Path) -> bool {
    let is_socket = path
        .symlink_metadata()
        .is_ok_and(|meta| meta.file_type().is_socket());
    let connected = connect(path, Duration::ZERO);
    is_socket && connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
