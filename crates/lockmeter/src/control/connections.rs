//! The connections of a [`Server`](super::Server): many at a time, one thread, none waited for
//! alone.
//!
//! # Clients
//! Where the socket's place does not keep strangers out, they connect too. The kernel says whose a
//! connection is as soon as it is accepted: a stranger gets the refusal, as far as it goes out at
//! once, and is gone. Nothing of his is read.
//!
//! # How long
//! A client that may ask has [`PATIENCE`] from the moment it is accepted for its question, and as
//! long again from the moment the answer is there for reading it. What the program itself takes to
//! answer is nobody's fault and counts for no client. A client that is not done by then is closed,
//! whatever it sent or read meanwhile.
//!
//! # How many
//! [`CONNECTIONS_MAX`] are open at a time beside those that wait for a later answer. More wait in
//! the socket's backlog, until one of these is answered or given up: for no longer than
//! [`PATIENCE`]. Of those that wait for a later answer there are at most [`WAITING_MAX`]; one more
//! is closed.
//!
//! # The end
//! A client that has connected and asked before the server ends gets an answer, if there is one at
//! once.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::PATIENCE;
use super::outbox::{Outbox, Ticket};

/// Longest question.
const REQUEST_BYTES_MAX: usize = 4096;
/// Clients that are served at a time.
const CONNECTIONS_MAX: usize = 64;
/// Clients that wait for a later answer at a time.
const WAITING_MAX: usize = 64;
/// So many are accepted before those that are there already get their turn.
const ACCEPTED_MAX: usize = 16;
/// How long nobody is accepted when that fails: for want of descriptors, say.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers a client: its question, or the reason why it may not ask. The ticket is for its answer,
/// now or later.
pub(super) type Answer<'a> = &'a dyn Fn(Result<&[u8], String>, Ticket);

/// Serves until `is_ending`, which is looked at when the outbox wakes it up.
pub(super) fn serve(
    listener: &UnixListener,
    is_ending: &AtomicBool,
    outbox: &Arc<Outbox>,
    answer: Answer<'_>,
) {
    let mut clients = Clients {
        outbox: Arc::clone(outbox),
        open: Vec::new(),
        last_number: 0,
    };
    let mut accepts_from = Instant::now();
    while !is_ending.load(Ordering::Acquire) {
        let now = Instant::now();
        let is_accepting = clients.active() < CONNECTIONS_MAX && accepts_from <= now;
        let (is_new_here, ready) = wait(listener, is_accepting, accepts_from, now, &clients);
        clients.progress(ready, answer);
        if is_new_here && clients.accept(listener, ACCEPTED_MAX, answer).is_err() {
            accepts_from = Instant::now() + PAUSE;
        }
    }
    // They have asked before: what they are to be told may be what the end has come to.
    let _ = clients.accept(listener, CONNECTIONS_MAX, answer);
    let is_ready = |client: &Connection| !client.is_waiting();
    let ready = clients.open.iter().map(is_ready).collect();
    clients.progress(ready, answer);
}

/// Waits until something can be done: is there somebody to accept, and on which connections is
/// there something to do?
fn wait(
    listener: &UnixListener,
    is_accepting: bool,
    accepts_from: Instant,
    now: Instant,
    clients: &Clients,
) -> (bool, Vec<bool>) {
    let open = &clients.open;
    let ear = clients.outbox.ear();
    let mut polled: Vec<PollFd<'_>> = open
        .iter()
        .map(|client| PollFd::new(&client.stream, client.waits_for()))
        .collect();
    polled.push(PollFd::from_borrowed_fd(ear, PollFlags::IN));
    let new = if is_accepting {
        PollFlags::IN
    } else {
        PollFlags::empty()
    };
    polled.push(PollFd::new(listener, new));
    let timeout = timeout(
        now,
        accepts_from,
        open.iter().filter_map(|client| client.expires).min(),
    );
    let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
    if poll(&mut polled, timeout.as_ref()).is_err() {
        // A signal, mostly; were it anything else, this must not become a busy loop.
        std::thread::sleep(Duration::from_millis(1));
        return (false, vec![false; open.len()]);
    }
    let mut ready: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
    let is_new_here = ready.pop().unwrap_or(false) && is_accepting;
    // Of the outbox, which is looked at every time.
    ready.pop();
    (is_new_here, ready)
}

/// For how long nothing is to be done if nobody comes: not at all if the first of the open
/// connections has expired meanwhile; `None` for as long as it takes.
fn timeout(now: Instant, accepts_from: Instant, expires: Option<Instant>) -> Option<Duration> {
    let pause = Some(accepts_from).filter(|at| *at > now);
    let wakes = expires.into_iter().chain(pause).min();
    wakes.map(|at| at.saturating_duration_since(now))
}

/// Those that are connected.
struct Clients {
    outbox: Arc<Outbox>,
    open: Vec<Connection>,
    last_number: u64,
}

impl Clients {
    /// Those that do not wait for a later answer.
    fn active(&self) -> usize {
        let is_active = |client: &&Connection| !client.is_waiting();
        self.open.iter().filter(is_active).count()
    }

    /// Does what can be done without waiting for those that are `ready`, and sends what has been
    /// handed in.
    fn progress(&mut self, ready: Vec<bool>, answer: Answer<'_>) {
        let mut answered = Duration::ZERO;
        let mut is_ready = ready.into_iter();
        let outbox = &self.outbox;
        self.open.retain_mut(|client| {
            if !is_ready.next().unwrap_or(false) {
                return true;
            }
            let start = client.is_asking().then(Instant::now);
            let goes_on = client.progress(outbox, answer);
            if let Some(start) = start.filter(|_| !client.is_asking()) {
                answered += start.elapsed();
            }
            goes_on
        });
        let now = Instant::now();
        self.open.retain_mut(|client| {
            if let Some(expires) = &mut client.expires {
                *expires += answered;
            }
            client.expires.is_none_or(|expires| expires > now)
        });
        for (number, text) in self.outbox.take() {
            self.give(number, text);
        }
        let mut waiting = 0;
        self.open.retain(|client| {
            waiting += usize::from(client.is_waiting());
            !client.is_waiting() || waiting <= WAITING_MAX
        });
    }

    /// Sends the answer to the client of this number, if it is still there; or closes, where there
    /// is none.
    fn give(&mut self, number: u64, text: Option<Vec<u8>>) {
        let Some(at) = self.open.iter().position(|client| client.number == number) else {
            return;
        };
        let goes_on = match text {
            Some(text) => self.open[at].begin_answer(text),
            None => false,
        };
        if !goes_on {
            self.open.remove(at);
        }
    }

    /// Accepts clients that may ask, and sends others away.
    fn accept(
        &mut self,
        listener: &UnixListener,
        most: usize,
        answer: Answer<'_>,
    ) -> io::Result<()> {
        for _ in 0..most {
            if self.active() >= CONNECTIONS_MAX {
                break;
            }
            match listener.accept() {
                Ok((stream, _)) => self.admit(stream, answer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes the connection of a client that may ask. One that may not is told so, and that is all.
    fn admit(&mut self, stream: UnixStream, answer: Answer<'_>) {
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&stream) else {
            return;
        };
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        self.last_number += 1;
        let number = self.last_number;
        self.open.push(Connection {
            number,
            stream,
            expires: Some(Instant::now() + PATIENCE),
            stage: Stage::Asking(Vec::new()),
        });
        if peer.uid.is_root() || peer.uid == rustix::process::geteuid() {
            return;
        }
        let refusal = "only the user who runs the program may ask".to_owned();
        answer(Err(refusal), self.outbox.ticket(number));
        // It fits into the buffer of a new connection. If it does not, or comes later, no matter.
        for (number, text) in self.outbox.take() {
            self.give(number, text);
        }
        self.open.retain(|client| client.number != number);
    }
}

/// A client that may ask.
struct Connection {
    number: u64,
    /// Does not block.
    stream: UnixStream,
    /// `None` while it waits for a later answer.
    expires: Option<Instant>,
    stage: Stage,
}

enum Stage {
    /// What there is of the question.
    Asking(Vec<u8>),
    /// The question is being answered.
    Waiting,
    /// The answer, and how much of it is out.
    Answering(Vec<u8>, usize),
}

impl Connection {
    fn is_asking(&self) -> bool {
        matches!(self.stage, Stage::Asking(_))
    }

    fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting)
    }

    fn waits_for(&self) -> PollFlags {
        match self.stage {
            Stage::Asking(_) => PollFlags::IN,
            // That the client goes is told unasked.
            Stage::Waiting => PollFlags::empty(),
            Stage::Answering(..) => PollFlags::OUT,
        }
    }

    /// Does what can be done without waiting; false when the connection is to be closed.
    fn progress(&mut self, outbox: &Arc<Outbox>, answer: Answer<'_>) -> bool {
        match &mut self.stage {
            Stage::Asking(question) => {
                match read_question(&mut self.stream, question) {
                    Ok(true) => {}
                    Ok(false) => return true,
                    Err(_) => return false,
                }
                let question = std::mem::take(question);
                self.stage = Stage::Waiting;
                self.expires = None;
                answer(Ok(&question), outbox.ticket(self.number));
                true
            }
            Stage::Waiting => false,
            Stage::Answering(..) => self.send(),
        }
    }

    /// There is the answer; false when the connection is to be closed.
    fn begin_answer(&mut self, text: Vec<u8>) -> bool {
        self.expires = Some(Instant::now() + PATIENCE);
        self.stage = Stage::Answering(text, 0);
        self.send()
    }

    /// Sends what goes out at once; false when the connection is to be closed.
    fn send(&mut self) -> bool {
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

/// Reads what is there. True when the question is whole: with the end of its line, or of all that
/// is sent; or when there is more than is ever asked.
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
