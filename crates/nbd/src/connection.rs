//! One connection: requests on their way, and their replies.
//!
//! # Data model
//! A request has a cookie, under which it stands in a table until its caller has taken its reply.
//! A caller may have several on their way ([`Connection::run`]), and so have other threads.
//!
//! # Mechanism
//! Callers send for themselves, one at a time. One of those that wait for a reply *leads*: it
//! receives what comes, for all, until its own reply is there; then it wakes another one that
//! waits. With one caller that is a plain send and receive without a switch of threads.
//!
//! # Invariants
//! 1. A request in the table has a caller that waits for it or will, or is sending.
//! 2. Whoever waits for a place in the table has nothing on its way itself, so those who have can
//!    go on.
//! 3. After the first failure nothing is sent or received, and all requests have failed.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use finefs_locks::{Condvar, LockClass, Mutex};

use crate::handshake::{Export, Handshake};
use crate::protocol::{
    self, CHUNK_DATA, CHUNK_ERROR, CHUNK_ERROR_OFFSET, CHUNK_HOLE, CHUNK_NONE, CHUNK_STATUS,
    Command, REPLY_DONE, Request, SHUTTING_DOWN, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
};
use crate::stream::{Input, Stream};
use crate::tls::Credentials;
use crate::uri::NbdUri;

/// One request at a time is sent.
pub static SEND: LockClass = LockClass::new("nbd.send", 91).held_over_io();
/// What is received.
pub static RECEIVE: LockClass = LockClass::new("nbd.receive", 91).held_over_io();
/// The requests that are on their way.
pub static REQUESTS: LockClass = LockClass::new("nbd.requests", 92);

/// Requests of all threads that are on their way on one connection.
const REQUESTS_MAX: usize = 128;
/// Requests of one thread.
const WINDOW: usize = 32;
/// Bytes of one thread's requests that are on their way: a server holds them all in memory.
const WINDOW_BYTES: u64 = 16 << 20;
/// The longest message of an error, or list of what is allocated, that is taken.
const CHUNK_MAX: u32 = 1 << 20;

/// See the module's head.
pub(crate) struct Connection {
    stream: Stream,
    /// The server's.
    name: String,
    timeout: Duration,
    export: Export,
    sending: Mutex<()>,
    receiving: Mutex<Input>,
    requests: Mutex<Requests>,
    /// A request has left the table.
    has_room: Condvar,
}

struct Requests {
    on_their_way: HashMap<u64, Pending>,
    next_cookie: u64,
    /// A thread receives.
    is_led: bool,
    /// What has ended the connection.
    failure: Option<Failure>,
}

/// Why a connection has ended.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// In words, with the name of the server. Who tells it names the export.
    pub line: String,
    /// The server talks nonsense: it is not asked again.
    pub is_final: bool,
}

impl Failure {
    fn error(&self) -> io::Error {
        io::Error::other(self.line.clone())
    }
}

struct Pending {
    request: Request,
    deadline: Instant,
    /// What was read.
    data: Vec<u8>,
    /// Bytes of it that came.
    covered: u64,
    status: Vec<(u32, u32)>,
    error: Option<(u32, String)>,
    is_done: bool,
    /// Its caller waits for it, and does not send or lead.
    is_waited_for: bool,
    /// Of its caller.
    changed: Arc<Condvar>,
}

/// What a request came to.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    /// What was read.
    pub data: Vec<u8>,
    /// Lengths and flags of what is allocated.
    pub status: Vec<(u32, u32)>,
}

/// A request with the bytes that go with it.
pub(crate) type Outgoing<'a> = (Request, Vec<&'a [u8]>);

/// Where the leader is in its work.
struct Header {
    cookie: u64,
    is_last: bool,
    kind: u16,
    length: u32,
}

impl Connection {
    /// Connects and asks for the export.
    pub fn open(uri: &NbdUri, credentials: Option<&Credentials>) -> io::Result<Connection> {
        let deadline = Instant::now() + uri.timeout;
        let stream = Stream::connect(uri).map_err(protocol::plain)?;
        let mut input = Input::default();
        let export = Handshake {
            stream: &stream,
            input: &mut input,
            deadline,
        }
        .go(&uri.export, credentials)
        .map_err(protocol::plain)?;
        Ok(Connection {
            stream,
            name: uri.server.to_string(),
            timeout: uri.timeout,
            export,
            sending: Mutex::new(&SEND, ()),
            receiving: Mutex::new(&RECEIVE, input),
            requests: Mutex::new(
                &REQUESTS,
                Requests {
                    on_their_way: HashMap::new(),
                    next_cookie: 1,
                    is_led: false,
                    failure: None,
                },
            ),
            has_room: Condvar::new(),
        })
    }

    /// What the server said of the export.
    pub fn export(&self) -> &Export {
        &self.export
    }

    /// Sends all of these, several at once, and hands each reply to `take`, in order. The first
    /// failure ends it, when what was sent has come back.
    pub fn run<'a>(
        &self,
        requests: impl Iterator<Item = Outgoing<'a>>,
        mut take: impl FnMut(&Request, Reply),
    ) -> io::Result<()> {
        let changed = Arc::new(Condvar::new());
        let mut sent: VecDeque<(u64, Request)> = VecDeque::new();
        let mut sent_bytes = 0;
        let mut outcome = Ok(());
        let mut finish_one = |sent: &mut VecDeque<(u64, Request)>, sent_bytes: &mut u64| {
            let Some((cookie, request)) = sent.pop_front() else {
                return Ok(());
            };
            *sent_bytes -= u64::from(request.length);
            self.wait(cookie).map(|reply| take(&request, reply))
        };
        for (request, parts) in requests {
            loop {
                let is_full = sent.len() >= WINDOW
                    || !sent.is_empty() && sent_bytes + u64::from(request.length) > WINDOW_BYTES;
                if !is_full && let Some(cookie) = self.enter(request, &changed, sent.is_empty())? {
                    self.send(cookie, &request, &parts)?;
                    sent_bytes += u64::from(request.length);
                    sent.push_back((cookie, request));
                    break;
                }
                outcome = outcome.and(finish_one(&mut sent, &mut sent_bytes));
            }
            if outcome.is_err() {
                break;
            }
        }
        while !sent.is_empty() {
            outcome = outcome.and(finish_one(&mut sent, &mut sent_bytes));
        }
        outcome
    }

    /// Puts a request into the table. `None` where that is full and the caller, who has others on
    /// their way, may not wait.
    fn enter(
        &self,
        request: Request,
        changed: &Arc<Condvar>,
        may_wait: bool,
    ) -> io::Result<Option<u64>> {
        let mut requests = self.requests.lock();
        loop {
            if let Some(failure) = &requests.failure {
                return Err(failure.error());
            }
            if requests.on_their_way.len() < REQUESTS_MAX {
                break;
            }
            if !may_wait {
                return Ok(None);
            }
            // Who is in the table waits no longer than this either, and fails the connection.
            self.has_room.wait_timeout(&mut requests, self.timeout);
        }
        let cookie = requests.next_cookie;
        requests.next_cookie += 1;
        let length = match request.command {
            Command::Read => request.length as usize,
            _ => 0,
        };
        requests.on_their_way.insert(
            cookie,
            Pending {
                request,
                deadline: Instant::now() + self.timeout,
                data: vec![0; length],
                covered: 0,
                status: Vec::new(),
                error: None,
                is_done: false,
                is_waited_for: false,
                changed: Arc::clone(changed),
            },
        );
        Ok(Some(cookie))
    }

    fn send(&self, cookie: u64, request: &Request, parts: &[&[u8]]) -> io::Result<()> {
        let deadline = Instant::now() + self.timeout;
        let header = request.encode(cookie);
        let mut slices = Vec::with_capacity(parts.len() + 1);
        slices.push(IoSlice::new(&header));
        slices.extend(parts.iter().map(|part| IoSlice::new(part)));
        let sent = {
            let _sending = self.sending.lock();
            self.stream.write_all(&mut slices, deadline)
        };
        sent.map_err(|error| self.fail(&error))
    }

    /// Waits for the reply to a request.
    fn wait(&self, cookie: u64) -> io::Result<Reply> {
        let mut guard = self.requests.lock();
        loop {
            let requests = &mut *guard;
            let Some(pending) = requests.on_their_way.get_mut(&cookie) else {
                return Err(io::Error::other("a request that was answered already"));
            };
            pending.is_waited_for = false;
            if pending.is_done {
                let pending = requests.on_their_way.remove(&cookie);
                self.has_room.notify_one();
                let failure = requests.failure.clone();
                drop(guard);
                return self.judge(pending, failure);
            }
            let deadline = pending.deadline;
            if !requests.is_led {
                requests.is_led = true;
                drop(guard);
                self.lead(cookie, deadline);
                guard = self.requests.lock();
                continue;
            }
            let changed = Arc::clone(&pending.changed);
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                drop(guard);
                self.fail(&io::ErrorKind::TimedOut.into());
                guard = self.requests.lock();
                continue;
            }
            pending.is_waited_for = true;
            changed.wait_timeout(&mut guard, rest);
        }
    }

    /// What a reply says.
    fn judge(&self, pending: Option<Pending>, failure: Option<Failure>) -> io::Result<Reply> {
        let Some(pending) = pending else {
            return Err(io::Error::other("a request that was answered already"));
        };
        match (pending.error, failure) {
            // It is not for this request, and all others will be told the same.
            (Some((SHUTTING_DOWN, text)), _) => Err(self.fail(&io::Error::other(text))),
            (Some((number, text)), _) => Err(io::Error::new(
                protocol::error_kind(number),
                format!(
                    "the server cannot {}: {text} ({})",
                    pending.request.command.verb(),
                    self.name
                ),
            )),
            (None, Some(failure)) => Err(failure.error()),
            (None, None) => Ok(Reply {
                data: pending.data,
                status: pending.status,
            }),
        }
    }

    /// Receives until the request with this cookie is done, and hands the lead over.
    fn lead(&self, cookie: u64, deadline: Instant) {
        let outcome = {
            let mut input = self.receiving.lock();
            loop {
                match self.receive(&mut input, deadline) {
                    Ok(done) if done == Some(cookie) => break Ok(()),
                    Ok(_) => {}
                    Err(error) => break Err(error),
                }
            }
        };
        if let Err(error) = outcome {
            self.fail(&error);
        }
        let mut requests = self.requests.lock();
        requests.is_led = false;
        // Callers that do not wait yet will find that nobody leads.
        let waiting = |pending: &&Pending| pending.is_waited_for && !pending.is_done;
        if let Some(pending) = requests.on_their_way.values().find(waiting) {
            pending.changed.notify_all();
        }
    }

    /// Receives one reply, or one chunk of one; gives the cookie of a request that is done.
    fn receive(&self, input: &mut Input, deadline: Instant) -> io::Result<Option<u64>> {
        let header = self.header(input, deadline)?;
        let taken = {
            let mut requests = self.requests.lock();
            let pending = requests.on_their_way.get_mut(&header.cookie);
            let pending = pending.filter(|pending| !pending.is_done);
            pending.map(|pending| (pending.request, std::mem::take(&mut pending.data)))
        };
        let Some((request, mut data)) = taken else {
            return Err(wrong("the server answers what it was not asked"));
        };
        let mut chunk = Chunk::default();
        self.body(input, deadline, &header, &request, &mut data, &mut chunk)?;
        let mut requests = self.requests.lock();
        // One that has failed meanwhile is taken out by its caller.
        let Some(pending) = requests.on_their_way.get_mut(&header.cookie) else {
            return Ok(None);
        };
        pending.data = data;
        pending.covered += chunk.covered;
        pending.status.append(&mut chunk.status);
        pending.error = pending.error.take().or(chunk.error);
        if !header.is_last {
            return Ok(None);
        }
        let is_whole = pending.request.command != Command::Read
            || pending.covered == u64::from(pending.request.length);
        if !is_whole && pending.error.is_none() {
            return Err(wrong("the server sends less than it was asked for"));
        }
        pending.is_done = true;
        pending.changed.notify_all();
        Ok(Some(header.cookie))
    }

    fn header(&self, input: &mut Input, deadline: Instant) -> io::Result<Header> {
        let magic = u32::from_be_bytes(input.read_array(&self.stream, deadline)?);
        match magic {
            SIMPLE_REPLY_MAGIC => {
                let error = u32::from_be_bytes(input.read_array(&self.stream, deadline)?);
                let cookie = u64::from_be_bytes(input.read_array(&self.stream, deadline)?);
                Ok(Header {
                    cookie,
                    is_last: true,
                    kind: SIMPLE,
                    length: error,
                })
            }
            STRUCTURED_REPLY_MAGIC if self.export.has_structured_replies => {
                let flags = u16::from_be_bytes(input.read_array(&self.stream, deadline)?);
                let kind = u16::from_be_bytes(input.read_array(&self.stream, deadline)?);
                let cookie = u64::from_be_bytes(input.read_array(&self.stream, deadline)?);
                let length = u32::from_be_bytes(input.read_array(&self.stream, deadline)?);
                Ok(Header {
                    cookie,
                    is_last: flags & REPLY_DONE != 0,
                    kind,
                    length,
                })
            }
            _ => Err(wrong("what the server sends is no reply")),
        }
    }

    /// Takes what comes behind a header.
    fn body(
        &self,
        input: &mut Input,
        deadline: Instant,
        header: &Header,
        request: &Request,
        data: &mut [u8],
        chunk: &mut Chunk,
    ) -> io::Result<()> {
        let out_of_bounds = || wrong("a reply of the server is not to what it was asked");
        let stream = &self.stream;
        let is_read = request.command == Command::Read;
        match (header.kind, header.length) {
            (SIMPLE, 0) if is_read && self.export.has_structured_replies => {
                return Err(out_of_bounds());
            }
            (SIMPLE, 0) if is_read => {
                input.read_exact(stream, data, deadline)?;
                chunk.covered = data.len() as u64;
            }
            (SIMPLE, 0) | (CHUNK_NONE, 0) => {}
            (SIMPLE, number) => chunk.error = Some((number, protocol::error_text(number))),
            (CHUNK_DATA, length @ 9..) if is_read => {
                let at = u64::from_be_bytes(input.read_array(stream, deadline)?);
                let part = part(request, data, at, length - 8).ok_or_else(out_of_bounds)?;
                input.read_exact(stream, part, deadline)?;
                chunk.covered = u64::from(length - 8);
            }
            (CHUNK_HOLE, 12) if is_read => {
                let at = u64::from_be_bytes(input.read_array(stream, deadline)?);
                let length = u32::from_be_bytes(input.read_array(stream, deadline)?);
                part(request, data, at, length)
                    .ok_or_else(out_of_bounds)?
                    .fill(0);
                chunk.covered = u64::from(length);
            }
            (CHUNK_STATUS, 12..=CHUNK_MAX) if request.command == Command::BlockStatus => {
                let context = u32::from_be_bytes(input.read_array(stream, deadline)?);
                let mut bytes = vec![0; header.length as usize - 4];
                input.read_exact(stream, &mut bytes, deadline)?;
                let (pairs, rest) = bytes.as_chunks::<8>();
                if Some(context) != self.export.allocation_context || !rest.is_empty() {
                    return Err(out_of_bounds());
                }
                chunk.status.extend(pairs.iter().map(|pair| {
                    let number = |at: usize| {
                        u32::from_be_bytes(*pair[at..].first_chunk().unwrap_or(&[0; 4]))
                    };
                    (number(0), number(4))
                }));
            }
            (CHUNK_ERROR | CHUNK_ERROR_OFFSET, 6..=CHUNK_MAX) => {
                let number = u32::from_be_bytes(input.read_array(stream, deadline)?);
                let text_length = u16::from_be_bytes(input.read_array(stream, deadline)?);
                let mut rest = vec![0; header.length as usize - 6];
                input.read_exact(stream, &mut rest, deadline)?;
                let text = rest.get(..usize::from(text_length)).unwrap_or_default();
                let mut line = protocol::error_text(number);
                if !text.is_empty() {
                    line += &format!(" ({})", String::from_utf8_lossy(text).escape_debug());
                }
                chunk.error = Some((number, line));
            }
            _ => return Err(out_of_bounds()),
        }
        Ok(())
    }

    /// Ends the connection, if nothing else has, and gives the error that says why.
    fn fail(&self, error: &io::Error) -> io::Error {
        self.stream.shut_down();
        let mut requests = self.requests.lock();
        let failure = requests.failure.get_or_insert_with(|| Failure {
            line: format!("{} ({})", protocol::in_words(error), self.name),
            is_final: error.kind() == io::ErrorKind::InvalidData,
        });
        let told = failure.error();
        for pending in requests.on_their_way.values_mut() {
            pending.is_done = true;
            pending.changed.notify_all();
        }
        self.has_room.notify_all();
        told
    }

    /// Says why it can no longer be used, if that is so.
    pub fn failure(&self) -> Option<Failure> {
        self.requests.lock().failure.clone()
    }

    /// Fails it because another one of the same device has.
    pub fn give_up(&self, failure: &Failure) {
        if self.failure().is_none() {
            self.requests.lock().failure = Some(failure.clone());
            self.fail(&io::Error::other(""));
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let request = Request {
            command: Command::Disconnect,
            flags: 0,
            offset: 0,
            length: 0,
        };
        if self.failure().is_none() {
            // Nobody waits for anything; whether the server hears it does not matter.
            let _ = self.send(0, &request, &[]);
        }
    }
}

/// The kind of a header that is no chunk; the protocol has no such kind of chunk.
const SIMPLE: u16 = 1 << 14;

/// What one chunk of a reply came to.
#[derive(Default)]
struct Chunk {
    covered: u64,
    status: Vec<(u32, u32)>,
    error: Option<(u32, String)>,
}

/// The part of a reply's data at this offset of the device.
fn part<'a>(request: &Request, data: &'a mut [u8], at: u64, length: u32) -> Option<&'a mut [u8]> {
    let start = usize::try_from(at.checked_sub(request.offset)?).ok()?;
    data.get_mut(start..start.checked_add(length as usize)?)
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
