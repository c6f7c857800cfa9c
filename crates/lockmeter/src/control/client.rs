//! The client's end of a control socket: it connects, asks and reads, and none of that for longer
//! than it says.
//!
//! connect(2) to a socket of this kind waits while as many wait there already as its server lets
//! wait, for as long as that server accepts nobody. So the connection is made with a send timeout,
//! which counts for that too (unix(7), socket(7) on SO_SNDTIMEO).

use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{PATIENCE, Reply, Request};

/// More than any answer has.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Connects to the socket at `path`, and waits at most so long for a server that has others to
/// accept first: then the error is `TimedOut`.
///
/// ```
/// # use finefs_lockmeter::control::{Reply, Request, Server, ask_on, connect};
/// # use std::time::Duration;
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("meter.sock");
/// let server = Server::start(&path)?;
/// let stream = connect(&path, Duration::from_secs(1))?;
/// assert!(matches!(ask_on(stream, &Request::Waiting)?, Reply::Waiting(_)));
/// # drop(server);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let kind = SocketType::STREAM;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    // Zero would be for ever.
    let time = patience.max(Duration::from_millis(1));
    set_socket_timeout(&socket, Timeout::Send, Some(time))?;
    match rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address)) {
        Ok(()) => Ok(UnixStream::from(socket)),
        Err(rustix::io::Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
        Err(error) => Err(error.into()),
    }
}

/// Asks the meter of the server at `path`.
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
    let stream = connect(path, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE * 5))?;
    ask_on(stream, request)
}

/// Asks a [`Server`](super::Server) on a connection to it. How long the whole answer may take is
/// the stream's read timeout; if it takes longer the error is `TimedOut`.
///
/// ```
/// # use finefs_lockmeter::control::{Reply, Request, Server, ask_on};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("meter.sock");
/// let server = Server::start(&path)?;
/// let stream = std::os::unix::net::UnixStream::connect(&path)?;
/// let reply: Reply = ask_on(stream, &Request::Waiting)?;
/// assert!(matches!(reply, Reply::Waiting(_)));
/// # drop(server);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn ask_on<Q: Serialize, A: DeserializeOwned>(
    stream: UnixStream,
    question: &Q,
) -> io::Result<A> {
    begin_asking(stream, question)?.wait()
}

/// A question that is asked and not answered yet; closed when it is dropped. [`begin_asking`] gives
/// it.
#[derive(Debug)]
pub struct Asked<A> {
    stream: UnixStream,
    answers: PhantomData<fn() -> A>,
}

impl<A: DeserializeOwned> Asked<A> {
    /// Waits for the answer: all in all as long as the stream's read timeout says.
    pub fn wait(mut self) -> io::Result<A> {
        let line = receive(&mut self.stream)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_slice(&line)?)
    }
}

/// Asks as [`ask_on`] does, to read the answer some time later. The server has the question even if
/// it ends meanwhile.
///
/// ```
/// # use finefs_lockmeter::control::{Reply, Request, Server, begin_asking};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("meter.sock");
/// let server = Server::start(&path)?;
/// let stream = std::os::unix::net::UnixStream::connect(&path)?;
/// let asked = begin_asking(stream, &Request::Waiting)?;
/// drop(server);
/// assert!(matches!(asked.wait()?, Reply::Waiting(_)));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn begin_asking<Q: Serialize, A: DeserializeOwned>(
    mut stream: UnixStream,
    question: &Q,
) -> io::Result<Asked<A>> {
    let mut text = serde_json::to_vec(question)?;
    text.push(b'\n');
    match send(&mut stream, &text) {
        // Sent away before the question was out: the reason is there to be read.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        sent => sent?,
    }
    let answers = PhantomData;
    Ok(Asked { stream, answers })
}

/// When something has to be over.
struct Deadline(Option<Instant>);

impl Deadline {
    fn after(time: Option<Duration>) -> Deadline {
        Deadline(time.and_then(|time| Instant::now().checked_add(time)))
    }

    /// What is left; `None` for ever.
    fn left(&self) -> io::Result<Option<Duration>> {
        match self
            .0
            .map(|end| end.saturating_duration_since(Instant::now()))
        {
            Some(Duration::ZERO) => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

/// A timeout of the socket has another name.
fn name_timeout(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

fn send(stream: &mut UnixStream, mut text: &[u8]) -> io::Result<()> {
    let deadline = Deadline::after(Some(PATIENCE));
    while !text.is_empty() {
        stream.set_write_timeout(deadline.left()?)?;
        match stream.write(text) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => text = &text[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(name_timeout(error)),
        }
    }
    Ok(())
}

/// A line, without its end; what there is of it where the server closes before.
fn receive(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let deadline = Deadline::after(stream.read_timeout()?);
    let mut line = Vec::new();
    let mut bytes = vec![0; 1 << 16];
    while line.len() <= ANSWER_BYTES_MAX {
        stream.set_read_timeout(deadline.left()?)?;
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(line),
            Ok(count) => {
                let new = &bytes[..count];
                if let Some(end) = new.iter().position(|byte| *byte == b'\n') {
                    line.extend_from_slice(&new[..end]);
                    return Ok(line);
                }
                line.extend_from_slice(new);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(name_timeout(error)),
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}
