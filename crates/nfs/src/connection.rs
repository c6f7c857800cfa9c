//! One connection of a client.
//!
//! # Data model
//! What came in and what waits to go out, each under a lock of its own, so that one thread reads
//! the next call while others send replies. No thread holds either while it carries out a call.
//!
//! # Protocol
//! A thread that is told of a connection takes a few records from it ([`Connection::next`]) and
//! serves them (`turn`). If there are more, it wakes another thread first; so the calls of one
//! connection run on all CPUs, in no order. When it is done it looks for the next records itself.
//! It stops when nothing is left: epoll tells some thread when more comes.
//!
//! # Limits
//! Nothing is read from a connection that has [`UNDER_WAY_MAX`] calls under way or
//! [`OUTGOING_MAX`] bytes of replies that its client does not take. The thread that ends a call, or
//! sends what waited, looks again. When the connections of a client machine have
//! [`OF_CLIENT_MAX`] bytes together, each may have one call under way, and none while bytes of its
//! own wait. So a client that reads slowly is served slowly, however much it asks for; and it
//! keeps the server from little more than that: one reply for each thread and for each of its
//! connections.
//!
//! Only when [`OF_ALL_MAX`] bytes wait for all clients are connections cut off, of those clients
//! that have more than [`FAIR_SHARE`]; at twice as much any whose bytes grow.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use finefs_locks::Mutex;

use crate::classes;
use crate::clock::Stamp;
use crate::record::{Batch, Incoming, Record, Senseless};
use crate::replies::Replies;

/// Calls that a thread takes at a time.
const CALLS_MAX: usize = 8;
/// Calls of one connection that are under way.
const UNDER_WAY_MAX: usize = 32;
/// Bytes that wait for a client, from which on nothing more is done for it.
const OUTGOING_MAX: usize = 1 << 20;
/// The same for all connections of one client machine.
const OF_CLIENT_MAX: usize = 32 << 20;
/// Bytes that wait for all clients, from which on some are cut off.
const OF_ALL_MAX: usize = 512 << 20;
/// What a client may have then.
const FAIR_SHARE: usize = 8 << 20;
/// A connection without any traffic is closed after so long, as other servers do.
const IDLE_MAX: Duration = Duration::from_secs(360);
/// The same when half a record has come, or a reply is not taken.
const STUCK_MAX: Duration = Duration::from_secs(60);
/// Buffers of connections that were idle for so long are given back.
const SHRINK_AFTER: Duration = Duration::from_secs(5);

/// What connections from one address share.
pub(crate) struct Client {
    pub address: IpAddr,
    /// How many there are.
    pub connections: AtomicUsize,
    pub replies: Replies<Connection>,
    /// Bytes that wait to be sent. Written only where a client does not take its replies at once.
    waiting_bytes: AtomicUsize,
    /// The same of all clients.
    of_all: Arc<AtomicUsize>,
    pub used: Stamp,
}

impl Client {
    pub(crate) fn new(address: IpAddr, of_all: Arc<AtomicUsize>) -> Client {
        Client {
            of_all,
            address,
            connections: AtomicUsize::new(0),
            replies: Replies::new(),
            waiting_bytes: AtomicUsize::new(0),
            used: Stamp::now(),
        }
    }
}

/// See the module's head.
pub(crate) struct Connection {
    stream: TcpStream,
    pub client: Arc<Client>,
    /// The client's port.
    pub port: u16,
    /// The address of this server that the client uses.
    pub server: IpAddr,
    input: Mutex<Input>,
    output: Mutex<Output>,
    under_way: AtomicUsize,
    /// The length of what waits to be sent.
    waiting_bytes: AtomicUsize,
    is_closed: AtomicBool,
    /// When anything last came or went.
    active: Stamp,
}

struct Input {
    incoming: Incoming,
    /// Taken, and given back: before what is in `incoming`.
    given_back: VecDeque<Record>,
    /// The socket may have more.
    may_have_more: bool,
    /// The client sends no more: the end is behind what there is, and nobody is told of it again.
    has_ended: bool,
}

impl Input {
    /// True when a record is there, or what makes no sense.
    fn has_record(&self) -> bool {
        !self.given_back.is_empty() || self.incoming.has_record()
    }
}

/// What epoll says of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// Nothing: the thread looks by itself.
    Nothing,
    /// There is something to read, or room to send.
    Ready,
    /// And the client sends no more.
    Ended,
}

#[derive(Default)]
struct Output {
    waiting: Vec<u8>,
    /// So many of these were sent.
    sent: usize,
}

/// What a thread is to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// To serve the records; `has_more` says whether another thread should come too.
    Serve { has_more: bool },
    /// Nothing here, for now.
    Leave,
    /// To close the connection.
    Close,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, client: Arc<Client>) -> Connection {
        client.connections.fetch_add(1, Ordering::AcqRel);
        let input = Input {
            incoming: Incoming::default(),
            given_back: VecDeque::new(),
            may_have_more: false,
            has_ended: false,
        };
        let peer = stream.peer_addr().map_or(u16::MAX, |peer| peer.port());
        let server = stream.local_addr().map(|local| local.ip());
        Connection {
            stream,
            port: peer,
            server: server.unwrap_or(client.address),
            client,
            input: Mutex::new(&classes::INPUT, input),
            output: Mutex::new(&classes::OUTPUT, Output::default()),
            under_way: AtomicUsize::new(0),
            waiting_bytes: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            active: Stamp::now(),
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Takes the next records.
    pub(crate) fn next(&self, batch: &mut Batch, told: Told) -> Next {
        let is_told = told != Told::Nothing;
        if is_told && self.send_waiting().is_err() {
            return Next::Close;
        }
        let mut input = self.input.lock();
        input.may_have_more |= is_told;
        input.has_ended |= told == Told::Ended;
        loop {
            if self.is_closed.load(Ordering::Acquire) || self.is_at_limit() {
                return Next::Leave;
            }
            match self.take(&mut input, batch) {
                Ok(0) => {}
                Ok(taken) => {
                    self.under_way.fetch_add(taken, Ordering::AcqRel);
                    self.active.set();
                    let has_more = input.may_have_more || input.has_record();
                    return Next::Serve { has_more };
                }
                Err(Senseless) => return Next::Close,
            }
            if !input.may_have_more {
                return Next::Leave;
            }
            match input.incoming.read(&self.stream) {
                Ok((_, 0)) => return Next::Close,
                // All that there was; epoll tells of what comes after it, but for an end that it
                // has told of.
                Ok((wanted, came)) => input.may_have_more = came == wanted || input.has_ended,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    input.may_have_more = false;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Next::Close,
            }
            self.active.set();
        }
    }

    /// Takes records that have come, as many as one thread shall have; gives how many.
    fn take(&self, input: &mut Input, batch: &mut Batch) -> Result<usize, Senseless> {
        let under_way = self.under_way.load(Ordering::Acquire);
        // Where a client does not take its replies, one at a time.
        let most = match self.client.waiting_bytes.load(Ordering::Acquire) > OF_CLIENT_MAX {
            true => 1,
            false => CALLS_MAX.min(UNDER_WAY_MAX.saturating_sub(under_way)),
        };
        while batch.len() < most && !batch.ends_long() {
            match input.given_back.pop_front() {
                Some(record) => *batch.space() = record,
                None => match input.incoming.take(batch.space()) {
                    Ok(true) => {}
                    // Those before it are served first.
                    Err(senseless) if batch.is_empty() => return Err(senseless),
                    Ok(false) | Err(Senseless) => break,
                },
            }
            batch.filled();
        }
        Ok(batch.len())
    }

    /// Another thread may serve those of them that wait.
    pub(crate) fn give_back(&self, batch: &mut Batch) {
        let count = batch.len();
        self.input.lock().given_back.extend(batch.give_back());
        self.under_way.fetch_sub(count, Ordering::AcqRel);
    }

    /// So many calls that [`Connection::next`] gave are over.
    pub(crate) fn done(&self, calls: usize) {
        self.under_way.fetch_sub(calls, Ordering::AcqRel);
    }

    /// True when nothing is to be read now. Somebody looks again in any case: who ends a call that
    /// is under way, or who is told that there is room for bytes that wait.
    fn is_at_limit(&self) -> bool {
        let under_way = self.under_way.load(Ordering::Acquire);
        let waiting = self.waiting_bytes.load(Ordering::Acquire);
        let is_busy = under_way > 0 || waiting > 0;
        under_way >= UNDER_WAY_MAX
            || waiting > OUTGOING_MAX
            || is_busy && self.client.waiting_bytes.load(Ordering::Acquire) > OF_CLIENT_MAX
    }

    /// Sends a reply, or keeps what the client does not take yet. An error: the connection is to be
    /// closed.
    pub(crate) fn send(&self, reply: &[u8]) -> io::Result<()> {
        let mut output = self.output.lock();
        let sent = match output.waiting.is_empty() {
            true => self.write(reply)?,
            false => 0,
        };
        if sent == reply.len() {
            return Ok(());
        }
        let is_first = output.waiting.is_empty();
        output.waiting.extend_from_slice(&reply[sent..]);
        self.note_waiting(&output)?;
        match is_first {
            // A thread that was told of room meanwhile has seen that nothing waits. What is told
            // from now on finds that something does.
            true => self.flush(&mut output),
            false => Ok(()),
        }
    }

    /// Sends what waits.
    fn send_waiting(&self) -> io::Result<()> {
        if self.waiting_bytes.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        self.flush(&mut self.output.lock())
    }

    /// Sends what waits, as far as there is room.
    fn flush(&self, output: &mut Output) -> io::Result<()> {
        let sent = self.write(&output.waiting[output.sent..])?;
        output.sent += sent;
        if sent > 0 {
            self.active.set();
        }
        if output.sent == output.waiting.len() {
            *output = Output::default();
        } else if output.sent > OUTGOING_MAX {
            let sent = std::mem::take(&mut output.sent);
            output.waiting.drain(..sent);
        }
        self.note_waiting(output)
    }

    /// Counts what waits, here and for the client as a whole.
    fn note_waiting(&self, output: &Output) -> io::Result<()> {
        let now = output.waiting.len();
        let before = self.waiting_bytes.swap(now, Ordering::AcqRel);
        let change = |counter: &AtomicUsize| {
            let sum = counter.fetch_add(now, Ordering::AcqRel) + now;
            counter.fetch_sub(before, Ordering::AcqRel);
            sum - before.min(sum)
        };
        let of_client = change(&self.client.waiting_bytes);
        let of_all = change(&self.client.of_all);
        let may_have = match of_all {
            0..=OF_ALL_MAX => usize::MAX,
            _ if of_all <= 2 * OF_ALL_MAX => FAIR_SHARE,
            _ => 0,
        };
        match now > before && of_client > may_have {
            true => Err(io::Error::other("the client takes no replies")),
            false => Ok(()),
        }
    }

    /// Writes until the socket takes no more; gives how much it took.
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match (&self.stream).write(&bytes[done..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => done += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// True when it should be closed, for there has been nothing, or half of something, for long.
    pub(crate) fn is_stale(&self) -> bool {
        if self.under_way.load(Ordering::Acquire) > 0 {
            return false;
        }
        let idle = self.active.elapsed();
        if idle < SHRINK_AFTER {
            return false;
        }
        let mut input = self.input.lock();
        input.incoming.shrink();
        let is_stuck = !input.incoming.is_empty()
            || !input.given_back.is_empty()
            || self.waiting_bytes.load(Ordering::Acquire) > 0;
        idle > if is_stuck { STUCK_MAX } else { IDLE_MAX }
    }

    /// Ends it; true for the one caller that has to take it out of the table.
    pub(crate) fn close(&self) -> bool {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return false;
        }
        let _ = self.stream.shutdown(Shutdown::Both);
        self.client.used.set();
        self.client.connections.fetch_sub(1, Ordering::AcqRel);
        true
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let waiting = self.waiting_bytes.load(Ordering::Acquire);
        if waiting > 0 {
            for counter in [&self.client.waiting_bytes, &*self.client.of_all] {
                counter.fetch_sub(waiting, Ordering::AcqRel);
            }
        }
    }
}
