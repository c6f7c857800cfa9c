//! A socket by which a running program's meter is asked and switched.
//!
//! # Who may
//! The socket's file has mode 0600, and each connection's user is asked of the kernel: only the user who
//! runs the program, and root, learn anything.
//!
//! # Protocol
//! A connection is one question: the client sends a [`Request`] as one line of JSON, the server answers
//! with one line, a [`Reply`], and closes.
//!
//! # Locking
//! None. The server is one thread, which answers one question after the other and gives a client two
//! seconds to ask.
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

use std::fs::Permissions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Mode, Queue, Report, Snapshot, Thresholds};

/// How long a client may take, and a client waits.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest question.
const REQUEST_BYTES_MAX: u64 = 4096;

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
    /// Who is waiting now.
    Waiting,
    /// The reports of crossed thresholds since they were last taken.
    Reports,
    /// Count all acquisitions (true) or contended ones only.
    SetFull(bool),
    /// Report what crosses these.
    SetThresholds {
        /// Waits, in microseconds.
        wait_us: Option<u64>,
        /// Holdings, in microseconds.
        hold_us: Option<u64>,
        /// Queues of more waiters.
        waiters: Option<usize>,
    },
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
    /// Done.
    Done,
    /// The question was not understood, or the user may not ask.
    Refused(String),
}

fn answer(request: &Request) -> Reply {
    match request {
        Request::Snapshot => Reply::Snapshot(crate::snapshot()),
        Request::OpenMetrics => Reply::Text(crate::snapshot().to_openmetrics()),
        Request::Waiting => Reply::Waiting(crate::waiting()),
        Request::Reports => Reply::Reports(crate::take_reports()),
        Request::SetFull(true) => {
            crate::set_mode(Mode::Full);
            Reply::Done
        }
        Request::SetFull(false) => {
            crate::set_mode(Mode::ContendedOnly);
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
    }
}

/// Answers on a socket until it is dropped, which removes the socket's file.
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
    path: PathBuf,
    /// Device and inode of the socket's file, so that no other's is removed.
    file: (u64, u64),
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Makes the socket at `path` and answers there. A socket file that is there already and that
    /// nobody listens on any more is replaced.
    ///
    /// ```
    /// # use finefs_lockmeter::control::{Reply, Request, Server, ask};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("meter.sock");
    /// let server = Server::start(&path)?;
    /// assert!(Server::start(&path).is_err(), "somebody listens there");
    /// # drop(server);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn start(path: &Path) -> io::Result<Server> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            other => other?,
        };
        // Whoever connects before this is asked for his user all the same.
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        let meta = path.symlink_metadata()?;
        let is_ending = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_ending);
        let thread = std::thread::Builder::new()
            .name("lockmeter".to_owned())
            .spawn(move || serve(&listener, &flag))?;
        Ok(Server {
            path: path.to_owned(),
            file: (meta.dev(), meta.ino()),
            is_ending,
            thread: Some(thread),
        })
    }

    /// Where the socket is.
    ///
    /// ```
    /// # use finefs_lockmeter::control::{Reply, Request, Server, ask};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("meter.sock");
    /// assert_eq!(Server::start(&path)?.path(), path);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Release);
        // Wakes the thread. Where the file is gone or another's, nobody can: then it is left alone.
        let meta = self.path.symlink_metadata();
        if !meta.is_ok_and(|meta| (meta.dev(), meta.ino()) == self.file) {
            return;
        }
        let woken = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

fn is_stale(path: &Path) -> bool {
    let is_socket = path
        .symlink_metadata()
        .is_ok_and(|meta| meta.file_type().is_socket());
    let connected = UnixStream::connect(path);
    is_socket && connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

fn serve(listener: &UnixListener, is_ending: &AtomicBool) {
    for connection in listener.incoming() {
        if is_ending.load(Ordering::Acquire) {
            return;
        }
        match connection {
            // A client that does not keep to the protocol is its own problem.
            Ok(stream) => drop(serve_one(&stream)),
            // Out of descriptors, say: not to be asked again at once.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn serve_one(mut stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    let mut line = String::new();
    BufReader::new(stream.take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    let may_ask = peer.uid.is_root() || peer.uid == rustix::process::geteuid();
    let reply = match serde_json::from_str(&line) {
        _ if !may_ask => Reply::Refused("only the user who runs the program may ask".to_owned()),
        Ok(request) => answer(&request),
        Err(error) => Reply::Refused(error.to_string()),
    };
    let mut text = serde_json::to_string(&reply)?;
    text.push('\n');
    stream.write_all(text.as_bytes())
}

/// Asks the server at `path`.
///
/// ```
/// # use finefs_lockmeter::control::{Reply, Request, Server, ask};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("meter.sock");
/// assert!(ask(&path, &Request::Snapshot).is_err(), "nobody listens there");
/// let server = Server::start(&path)?;
/// assert!(ask(&path, &Request::Snapshot).is_ok());
/// # drop(server);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn ask(path: &Path, request: &Request) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE * 5))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_string(request)?;
    text.push('\n');
    stream.write_all(text.as_bytes())?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&line)?)
}
