//! The connections to an export, and new ones where they are lost (`reconnect-delay=`).
//!
//! # Data model
//! The connections that are in use at one time are a [`Generation`]. When one of them fails, all
//! of it are given up. Without a delay that is the end; else the caller who found it makes the next
//! generation while others wait ([`Renewal`]).
//!
//! # A lost connection
//! A server that was killed may have lost what was written since the last flush. So what
//! [`Unflushed`] holds is written again before the next generation carries out a request. Then
//! each caller sends again what was not answered; the requests say what a place holds, not how it
//! changes, so one that was carried out before is carried out twice.
//!
//! It comes to an end, and the device has failed, where the time is over, where the export is
//! another one (by its size, its flags or its first [`BEGINNING_BYTES`]), where the server refuses
//! what is written again, and where a request has ended each of [`RESENDS_MAX`] connections. A
//! server that talks nonsense is not asked again at all.
//!
//! # What it trusts in
//! A server carries out nothing for a connection that was given up once it has answered on a later
//! one. The protocol has no means to make sure; a server that is gone surely does not.
//!
//! # Invariants
//! 1. A generation is published after all of `unflushed` was written to it.
//! 2. A generation is replaced once, by one thread.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use finefs_locks::{Condvar, LockClass, Mutex, order};

use crate::connection::{Connection, Failure, Outgoing, Reply};
use crate::handshake::Export;
use crate::protocol::{CAN_MULTI_CONN, Command, Request};
use crate::tls::Credentials;
use crate::unflushed::Unflushed;
use crate::uri::NbdUri;

/// Which connections are in use.
pub static LINK: LockClass = LockClass::new("nbd.link", 91);

/// So many are opened where the server takes several.
const CONNECTIONS: usize = 4;
/// By these an export is known again: they have the table of partitions and the superblock of ext
/// and reiserfs, with their UUIDs.
const BEGINNING_BYTES: u64 = 128 << 10;
/// One request is sent again so often.
const RESENDS_MAX: u32 = 32;
/// Between two tries to connect: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Writes that are entered and sent at once.
const STEP_BYTES: u64 = 16 << 20;

/// See the module's head.
pub(crate) struct Link {
    uri: NbdUri,
    credentials: Option<Credentials>,
    /// As the server first said.
    export: Export,
    connections: Connections,
}

enum Connections {
    /// They are not replaced, and found without a lock.
    Kept(Generation),
    Renewed(Renewal),
}

/// Connections that are replaced.
struct Renewal {
    state: Mutex<State>,
    /// The state is another.
    changed: Condvar,
    unflushed: Unflushed,
}

enum State {
    Up(Arc<Generation>),
    /// A thread connects.
    Down,
    Failed(String),
}

/// See the module's head.
struct Generation {
    connections: Vec<Connection>,
}

/// Why there is no new generation.
enum Obstacle {
    /// It may go away.
    Passing(String),
    ForGood(String),
}

impl Link {
    /// Connects to the export.
    pub fn open(uri: &NbdUri) -> io::Result<Link> {
        let credentials = uri.security.as_ref().map(Credentials::load).transpose()?;
        let first = Connection::open(uri, credentials.as_ref())?;
        let export = first.export().clone();
        let connections = if uri.reconnect_delay.is_zero() {
            Connections::Kept(Generation::with(first, uri, credentials.as_ref()))
        } else {
            let unflushed = Unflushed::new(&beginning(&first)?);
            let generation = Generation::with(first, uri, credentials.as_ref());
            Connections::Renewed(Renewal {
                state: Mutex::new(&LINK, State::Up(Arc::new(generation))),
                changed: Condvar::new(),
                unflushed,
            })
        };
        Ok(Link {
            uri: uri.clone(),
            credentials,
            export,
            connections,
        })
    }

    /// What the server said of the export.
    pub fn export(&self) -> &Export {
        &self.export
    }

    /// Carries out requests that change nothing, or nothing that has to last, and hands each reply
    /// to `take`, some of them twice where connections are replaced meanwhile.
    pub fn run<'a>(
        &self,
        requests: impl Iterator<Item = Outgoing<'a>> + Clone,
        mut take: impl FnMut(&Request, Reply),
    ) -> io::Result<()> {
        order::check_io();
        let renewal = match &self.connections {
            Connections::Kept(generation) => return generation.run_for_good(requests, take),
            Connections::Renewed(renewal) => renewal,
        };
        for _ in 0..RESENDS_MAX {
            let generation = renewal.current()?;
            let failure = match generation.run(requests.clone(), &mut take) {
                Ok(()) => return Ok(()),
                Err((error, None)) => return Err(error),
                Err((_, Some(failure))) => failure,
            };
            self.replace(renewal, &generation, &failure)?;
        }
        let line = format!(
            "a request has ended {RESENDS_MAX} connections, and is not sent again ({})",
            self.uri.server
        );
        if let Ok(generation) = renewal.current() {
            renewal.fail(&generation, &line);
        }
        Err(io::Error::other(line))
    }

    /// What is kept until a flush, where connections are replaced.
    fn unflushed(&self) -> Option<&Unflushed> {
        match &self.connections {
            Connections::Kept(_) => None,
            Connections::Renewed(renewal) => Some(&renewal.unflushed),
        }
    }

    /// Writes. What is answered is kept until a flush.
    pub fn write<'a>(
        &self,
        requests: impl Iterator<Item = Outgoing<'a>> + Clone,
    ) -> io::Result<()> {
        let Some(unflushed) = self.unflushed() else {
            return self.run(requests, |_, _| {});
        };
        let all: Vec<Outgoing<'a>> = requests.collect();
        let mut rest = &all[..];
        while !rest.is_empty() {
            if unflushed.is_full() {
                self.flush()?;
            }
            let (some, later) = rest.split_at(within(rest, STEP_BYTES));
            let numbers = unflushed.begin(some);
            let outcome = self.run(some.iter().cloned(), |_, _| {});
            unflushed.end(numbers, outcome.is_ok());
            outcome?;
            rest = later;
        }
        Ok(())
    }

    /// Tells the server that nobody needs what a range holds.
    pub fn trim<'a>(&self, requests: impl Iterator<Item = Outgoing<'a>> + Clone) -> io::Result<()> {
        if let Some(unflushed) = self.unflushed() {
            let ranges = requests.clone().map(|(request, _)| request);
            ranges.for_each(|range| unflushed.forget(range.offset, range.length.into()));
        }
        self.run(requests, |_, _| {})
    }

    /// Has the server make durable what was answered before, if it has a flush.
    pub fn flush(&self) -> io::Result<()> {
        let answered = self.unflushed().map(Unflushed::answered);
        if self.export.can(crate::protocol::SEND_FLUSH) {
            let flush = Request {
                command: Command::Flush,
                flags: 0,
                offset: 0,
                length: 0,
            };
            self.run([(flush, Vec::new())].into_iter(), |_, _| {})?;
        }
        if let (Some(unflushed), Some(answered)) = (self.unflushed(), answered) {
            unflushed.flushed(&answered);
        }
        Ok(())
    }

    /// A connection of this generation has failed: makes the next one, unless somebody does.
    fn replace(
        &self,
        renewal: &Renewal,
        lost: &Arc<Generation>,
        failure: &Failure,
    ) -> io::Result<()> {
        if failure.is_final {
            renewal.fail(lost, &failure.line);
            return Err(io::Error::other(failure.line.clone()));
        }
        lost.give_up(failure);
        {
            let mut state = renewal.state.lock();
            match &*state {
                State::Up(current) if Arc::ptr_eq(current, lost) => *state = State::Down,
                State::Failed(line) => return Err(io::Error::other(line.clone())),
                _ => return Ok(()),
            }
        }
        let next = self.next_generation(&renewal.unflushed, &failure.line);
        let mut state = renewal.state.lock();
        renewal.changed.notify_all();
        match next {
            Ok(generation) => {
                *state = State::Up(Arc::new(generation));
                Ok(())
            }
            Err(line) => {
                *state = State::Failed(line.clone());
                Err(io::Error::other(line))
            }
        }
    }

    /// Tries to connect for as long as the user wants.
    fn next_generation(&self, unflushed: &Unflushed, failure: &str) -> Result<Generation, String> {
        let (name, delay) = (&self.uri.text, self.uri.reconnect_delay);
        log::warn!(
            "{name}: {failure}; trying to connect again for {} s",
            delay.as_secs()
        );
        let start = Instant::now();
        let mut pause = PAUSE_MIN;
        loop {
            let reason = match self.connect_again(unflushed) {
                Ok((generation, writes)) => {
                    log::warn!(
                        "{name}: connected again after {:.1} s, {writes} writes were sent again",
                        start.elapsed().as_secs_f64()
                    );
                    return Ok(generation);
                }
                Err(Obstacle::ForGood(reason)) => {
                    return Err(format!("{reason} ({})", self.uri.server));
                }
                Err(Obstacle::Passing(reason)) => reason,
            };
            let rest = delay.saturating_sub(start.elapsed());
            if rest.is_zero() {
                let seconds = delay.as_secs();
                return Err(format!(
                    "{failure}, and could not be connected again within {seconds} s: {reason}"
                ));
            }
            std::thread::sleep(pause.min(rest));
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Connects, and writes again what the server may have lost; gives the number of writes.
    fn connect_again(&self, unflushed: &Unflushed) -> Result<(Generation, usize), Obstacle> {
        let passing = |error: io::Error| Obstacle::Passing(error.to_string());
        let first = Connection::open(&self.uri, self.credentials.as_ref()).map_err(passing)?;
        if let Some(difference) = self.export.difference(first.export()) {
            return Err(Obstacle::ForGood(difference));
        }
        if !unflushed.may_begin_with(&beginning(&first).map_err(passing)?) {
            let reason = "the export holds something else than before; unmount, and check which \
                          image the server has";
            return Err(Obstacle::ForGood(reason.to_owned()));
        }
        let mut count = 0;
        for group in unflushed.groups() {
            count += group.len();
            let requests = group
                .iter()
                .map(|kept| (kept.request, vec![&kept.data[..]]));
            first.run(requests, |_, _| {}).map_err(|error| {
                let reason = format!("what it may have lost cannot be written again: {error}");
                match first.failure() {
                    Some(_) => Obstacle::Passing(reason),
                    None => Obstacle::ForGood(reason),
                }
            })?;
        }
        let generation = Generation::with(first, &self.uri, self.credentials.as_ref());
        Ok((generation, count))
    }
}

impl Renewal {
    /// The connections in use; waits for them.
    fn current(&self) -> io::Result<Arc<Generation>> {
        let mut state = self.state.lock();
        loop {
            match &*state {
                State::Up(generation) => return Ok(Arc::clone(generation)),
                State::Failed(line) => return Err(io::Error::other(line.clone())),
                State::Down => self.changed.wait(&mut state),
            }
        }
    }

    /// The device has failed.
    fn fail(&self, generation: &Generation, line: &str) {
        generation.give_up(&Failure {
            line: line.to_owned(),
            is_final: true,
        });
        let mut state = self.state.lock();
        if !matches!(*state, State::Failed(_)) {
            *state = State::Failed(line.to_owned());
        }
        self.changed.notify_all();
    }
}

impl Generation {
    /// Of this connection, and more where the server takes them.
    fn with(first: Connection, uri: &NbdUri, credentials: Option<&Credentials>) -> Generation {
        let export = first.export().clone();
        let mut connections = vec![first];
        if export.can(CAN_MULTI_CONN) {
            // A server may have a limit of its own.
            while connections.len() < CONNECTIONS
                && let Ok(other) = Connection::open(uri, credentials)
                && other.export().size_bytes == export.size_bytes
            {
                connections.push(other);
            }
        }
        Generation { connections }
    }

    /// The connection that this thread uses.
    fn of_this_thread(&self) -> &Connection {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
        }
        let number = NUMBER.get().unwrap_or_else(|| {
            let number = THREADS.fetch_add(1, Ordering::Relaxed);
            NUMBER.set(Some(number));
            number
        });
        &self.connections[number % self.connections.len()]
    }

    /// Carries out requests on the connection of this thread; an error comes with the reason why
    /// that has failed, if it has.
    fn run<'a>(
        &self,
        requests: impl Iterator<Item = Outgoing<'a>>,
        take: impl FnMut(&Request, Reply),
    ) -> Result<(), (io::Error, Option<Failure>)> {
        let connection = self.of_this_thread();
        let outcome = connection.run(requests, take);
        outcome.map_err(|error| (error, connection.failure()))
    }

    /// The same where a connection that fails is not replaced: then all fail.
    fn run_for_good<'a>(
        &self,
        requests: impl Iterator<Item = Outgoing<'a>>,
        take: impl FnMut(&Request, Reply),
    ) -> io::Result<()> {
        self.run(requests, take).map_err(|(error, failure)| {
            let Some(failure) = failure else {
                return error;
            };
            self.give_up(&failure);
            io::Error::other(failure.line)
        })
    }

    fn give_up(&self, failure: &Failure) {
        for connection in &self.connections {
            connection.give_up(failure);
        }
    }
}

/// What the export begins with.
fn beginning(connection: &Connection) -> io::Result<Vec<u8>> {
    let export = connection.export();
    let block = u64::from(export.block_min);
    let length = export
        .size_bytes
        .min(BEGINNING_BYTES.next_multiple_of(block))
        / block
        * block;
    let step = u64::from(export.request_max).min(length).max(1);
    let requests = (0..length.div_ceil(step)).map(|index| {
        let offset = index * step;
        let request = Request {
            command: Command::Read,
            flags: 0,
            offset,
            length: (length - offset).min(step) as u32,
        };
        (request, Vec::new())
    });
    let mut bytes = Vec::new();
    connection.run(requests, |_, reply| bytes.extend_from_slice(&reply.data))?;
    Ok(bytes)
}

/// How many of these have so many bytes together; at least one.
fn within(requests: &[Outgoing<'_>], most_bytes: u64) -> usize {
    let mut bytes = 0;
    let fits = requests.iter().take_while(|(_, parts)| {
        bytes += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        bytes <= most_bytes
    });
    fits.count().max(1)
}
