//! The connections of a [`Server`](super::Server): many at a time, one thread, none waited for alone.
//!
//! # Who comes
//! Anybody connects to a socket in the abstract namespace. The kernel says whose a connection is as soon as it is
//! accepted: a stranger gets the refusal, as far as it goes out at once, and is gone. Nothing of his is read.
//!
//! # How long
//! A client that may ask has [`PATIENCE`] from the moment it is accepted, for its question and for reading
//! the answer together. What the program itself takes to answer is nobody's fault and counts for no client.
//! Whoever is not done by then is closed, whatever it sent or read meanwhile.
//!
//! # How many
//! [`CONNECTIONS_MAX`] are open at a time. More wait in the socket's backlog, until one of these is answered or given
//! up: for no longer than [`PATIENCE`].

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::PATIENCE;

/// Longest question.
const REQUEST_BYTES_MAX: usize = 4096;
/// Clients that are served at a time.
const CONNECTIONS_MAX: usize = 64;
/// So many are accepted before those that are there already get their turn.
const ACCEPTED_MAX: usize = 16;
/// How long nobody is accepted when that fails: for want of descriptors, say.
const PAUSE: Duration = Duration::from_millis(100);

/// What a client is to be told: of its question, or of the reason why it may not ask.
pub(super) type Answer<'a> = &'a dyn Fn(Result<&[u8], String>) -> Option<Vec<u8>>;

/// Serves until `is_ending`, which is looked at when the listener wakes it up.
pub(super) fn serve(listener: &UnixListener, is_ending: &AtomicBool, answer: Answer<'_>) {
    let mut open: Vec<Connection> = Vec::new();
    let mut accepts_from = Instant::now();
    while !is_ending.load(Ordering::Acquire) {
        let now = Instant::now();
        let is_accepting = open.len() < CONNECTIONS_MAX && accepts_from <= now;
        let (is_new_here, ready) = wait(listener, is_accepting, accepts_from, now, &open);
        let mut answered = Duration::ZERO;
        let mut is_ready = ready.into_iter();
        open.retain_mut(|client| {
            if !is_ready.next().unwrap_or(false) {
                return true;
            }
            let start = client.is_asking().then(Instant::now);
            let goes_on = client.progress(answer);
            if let Some(start) = start.filter(|_| !client.is_asking()) {
                answered += start.elapsed();
            }
            goes_on
        });
        let now = Instant::now();
        open.retain_mut(|client| {
            client.expires += answered;
            client.expires > now
        });
        if is_new_here && accept(listener, &mut open, answer).is_err() {
            accepts_from = Instant::now() + PAUSE;
        }
    }
}

/// Waits until something can be done: is there somebody to accept, and on which connections is there something to do?
fn wait(
    listener: &UnixListener,
    is_accepting: bool,
    accepts_from: Instant,
    now: Instant,
    open: &[Connection],
) -> (bool, Vec<bool>) {
    let mut polled: Vec<PollFd<'_>> = open
        .iter()
        .map(|client| PollFd::new(&client.stream, client.waits_for()))
        .collect();
    // Its end is told in any case.
    let new = if is_accepting {
        PollFlags::IN
    } else {
        PollFlags::empty()
    };
    polled.push(PollFd::new(listener, new));
    let timeout = timeout(
        now,
        accepts_from,
        open.iter().map(|client| client.expires).min(),
    );
    let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
    if poll(&mut polled, timeout.as_ref()).is_err() {
        // A signal, mostly; were it anything else, this must not become a busy loop.
        std::thread::sleep(Duration::from_millis(1));
        return (false, vec![false; open.len()]);
    }
    let mut ready: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
    let is_new_here = ready.pop().unwrap_or(false) && is_accepting;
    (is_new_here, ready)
}

/// For how long nothing is to be done if nobody comes: not at all if the first of the open connections has expired
/// meanwhile; `None` for as long as it takes.
fn timeout(now: Instant, accepts_from: Instant, expires: Option<Instant>) -> Option<Duration> {
    let pause = Some(accepts_from).filter(|at| *at > now);
    let wakes = expires.into_iter().chain(pause).min();
    wakes.map(|at| at.saturating_duration_since(now))
}

/// Accepts who is there and may ask, and sends others away.
fn accept(
    listener: &UnixListener,
    open: &mut Vec<Connection>,
    answer: Answer<'_>,
) -> io::Result<()> {
    for _ in 0..ACCEPTED_MAX {
        if open.len() == CONNECTIONS_MAX {
            break;
        }
        match listener.accept() {
            Ok((stream, _)) => open.extend(admit(stream, answer)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The connection of one who may ask. One who may not is told so, and that is all.
fn admit(mut stream: UnixStream, answer: Answer<'_>) -> Option<Connection> {
    stream.set_nonblocking(true).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    if peer.uid.is_root() || peer.uid == rustix::process::geteuid() {
        return Some(Connection {
            stream,
            expires: Instant::now() + PATIENCE,
            stage: Stage::Asking(Vec::new()),
        });
    }
    let refusal = answer(Err("only the user who runs the program may ask".to_owned()))?;
    // It fits into the buffer of a new connection. If it does not, no matter.
    let _ = stream.write(&refusal);
    None
}

/// A client that may ask.
struct Connection {
    /// Does not block.
    stream: UnixStream,
    expires: Instant,
    stage: Stage,
}

enum Stage {
    /// What there is of the question.
    Asking(Vec<u8>),
    /// The answer, and how much of it is out.
    Answering(Vec<u8>, usize),
}

impl Connection {
    fn is_asking(&self) -> bool {
        matches!(self.stage, Stage::Asking(_))
    }

    fn waits_for(&self) -> PollFlags {
        match self.stage {
            Stage::Asking(_) => PollFlags::IN,
            Stage::Answering(..) => PollFlags::OUT,
        }
    }

    /// Does what can be done without waiting; false when the connection is to be closed.
    fn progress(&mut self, answer: Answer<'_>) -> bool {
        if let Stage::Asking(question) = &mut self.stage {
            match read_question(&mut self.stream, question) {
                Ok(true) => {}
                Ok(false) => return true,
                Err(_) => return false,
            }
            match answer(Ok(question)) {
                Some(text) => self.stage = Stage::Answering(text, 0),
                None => return false,
            }
        }
        let Stage::Answering(text, sent) = &mut self.stage else {
            return true;
        };
        while *sent < text.len() {
            match self.stream.write(&text[*sent..]) {
                Ok(0) => return false,
                Ok(count) => *sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A client that does not keep to the protocol is its own problem.
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        false
    }
}

/// Reads what is there. True when the question is whole: with the end of its line, or of all that is sent; or when
/// there is more than is ever asked.
fn read_question(stream: &mut UnixStream, question: &mut Vec<u8>) -> io::Result<bool> {
    let mut bytes = [0; REQUEST_BYTES_MAX];
    loop {
        let room = REQUEST_BYTES_MAX - question.len();
        match stream.read(&mut bytes[..room]) {
            Ok(0) => return Ok(true),
            Ok(count) => question.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if let Some(end) = question.iter().position(|byte| *byte == b'\n') {
            question.truncate(end);
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_expired_is_not_waited_for() {
        let now = Instant::now();
        let later = |ms| now + Duration::from_millis(ms);
        assert_eq!(timeout(now, now, None), None);
        assert_eq!(timeout(now, later(3), None), Some(later(3) - now));
        assert_eq!(timeout(now, now, Some(later(5))), Some(later(5) - now));
        assert_eq!(timeout(now, later(3), Some(now)), Some(Duration::ZERO));
        assert_eq!(timeout(later(2), later(3), Some(now)), Some(Duration::ZERO));
        assert_eq!(timeout(later(2), now, Some(now)), Some(Duration::ZERO));
    }
}
