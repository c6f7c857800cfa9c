//! A thread's turn at a connection: several calls one after the other, and their replies in one
//! write.
//!
//! # Why
//! A call of the kind that clients send most takes a microsecond or two; to send its reply alone
//! and to wake another thread for the next call cost several times that.
//!
//! # Mechanism
//! A thread takes a few calls that have come already. If more have, it wakes another
//! thread for them. It collects the replies and sends them when it is through. If a call waits for
//! the disk, or the turn has lasted for [`QUICK`], it gives the calls that are left back, wakes
//! another thread, and sends what it has: so a call waits for quick ones only.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::connection::{Connection, Next, Told};
use crate::faults::Fault;
use crate::procedures::Waits;
use crate::progress::Progress;
use crate::record::{Batch, Record, put_mark};
use crate::service::{Answer, Sender, Service};
use crate::xdr::Writer;

/// A turn that has lasted so long is no longer quick.
const QUICK: Duration = Duration::from_micros(50);
/// Replies from this length on are sent at once.
const LONG_REPLY_BYTES: usize = 16 << 10;
/// A reply buffer that has grown beyond this is given back when its thread has nothing to do.
const REPLY_KEPT_BYTES: usize = 2 << 20;

/// What a thread that serves keeps from turn to turn.
#[derive(Default)]
pub(crate) struct Buffers {
    batch: Batch,
    /// The call at hand.
    record: Record,
    /// Its reply.
    reply: Writer,
    /// Those before it that are not sent yet.
    replies: Vec<u8>,
    progress: Arc<Progress>,
}

impl Buffers {
    /// Of a thread that others look at by this.
    pub(crate) fn new(progress: Arc<Progress>) -> Buffers {
        Buffers {
            progress,
            ..Buffers::default()
        }
    }

    /// The thread has nothing to do.
    pub(crate) fn shrink(&mut self) {
        // A panic may have left it in a call.
        self.progress.end();
        self.batch.shrink();
        if self.reply.capacity() > REPLY_KEPT_BYTES {
            self.reply = Writer::default();
        }
    }
}

/// What the threads of a server share.
pub(crate) trait Threads: Waits {
    fn service(&self) -> &Service;
    /// Wakes another thread for a connection.
    fn wake_for(&self, place: usize, connection: &Connection);
    fn close(&self, place: usize, connection: &Arc<Connection>);
}

/// See the module's head.
struct Turn<'t> {
    shared: &'t dyn Threads,
    place: usize,
    connection: &'t Arc<Connection>,
    progress: &'t Progress,
    pending: RefCell<Pending<'t>>,
}

/// What others are kept waiting for.
struct Pending<'t> {
    batch: &'t mut Batch,
    replies: &'t mut Vec<u8>,
    outcome: io::Result<()>,
}

/// Serves calls of a connection until none is left for this thread.
pub(crate) fn serve(
    shared: &dyn Threads,
    place: usize,
    connection: &Arc<Connection>,
    mut told: Told,
    buffers: &mut Buffers,
) {
    // A panic may have left something.
    buffers.batch.clear();
    buffers.replies.clear();
    loop {
        match connection.next(&mut buffers.batch, told) {
            Next::Serve { has_more } => {
                if has_more {
                    shared.wake_for(place, connection);
                }
                if !one_turn(shared, place, connection, buffers) {
                    return shared.close(place, connection);
                }
            }
            Next::Leave => return,
            Next::Close => return shared.close(place, connection),
        }
        if shared.is_stopping() {
            return;
        }
        told = Told::Nothing;
    }
}

/// Serves what was taken; false when the connection is to be closed.
fn one_turn(
    shared: &dyn Threads,
    place: usize,
    connection: &Arc<Connection>,
    buffers: &mut Buffers,
) -> bool {
    let Buffers {
        batch,
        record,
        reply,
        replies,
        progress,
    } = buffers;
    let mut taken = batch.len();
    let turn = Turn {
        shared,
        place,
        connection,
        progress,
        pending: RefCell::new(Pending {
            batch,
            replies,
            outcome: Ok(()),
        }),
    };
    let began = Instant::now();
    let mut is_sound = true;
    while is_sound && turn.take(record) {
        is_sound = turn.answer(record, reply);
        if taken > 1 && began.elapsed() >= QUICK {
            turn.let_others();
        }
    }
    let mut pending = turn.pending.into_inner();
    pending.send(connection);
    // Those that were given back are not under way; these would be no more either.
    taken -= pending.batch.given_back();
    pending.batch.clear();
    connection.done(taken);
    is_sound && pending.outcome.is_ok()
}

impl Turn<'_> {
    fn take(&self, record: &mut Record) -> bool {
        self.pending.borrow_mut().batch.take(record)
    }

    /// Carries out a call; false when the connection is to be closed.
    fn answer(&self, record: &Record, reply: &mut Writer) -> bool {
        let connection = self.connection;
        let sender = Sender {
            address: connection.client.address,
            port: connection.port,
            server: connection.server,
            is_datagram: false,
            replies: &connection.client.replies,
            connection,
        };
        reply.cut(0);
        // The mark of the record.
        reply.u32(0);
        let service = self.shared.service();
        self.progress.begin();
        let answer = service.answer(&sender, record.bytes(), reply, self);
        self.progress.end();
        Fault::Connection.strike(record.bytes());
        match answer {
            Answer::Reply(also) => {
                put_mark(reply.at(0));
                for other in also.iter().filter(|other| !Arc::ptr_eq(other, connection)) {
                    let _ = other.send(reply.bytes());
                }
                self.pending.borrow_mut().reply(connection, reply.bytes());
                true
            }
            Answer::Later => true,
            Answer::Close => false,
        }
    }

    /// Others may go on with what is left.
    fn let_others(&self) {
        let pending = &mut *self.pending.borrow_mut();
        if !pending.batch.is_empty() {
            self.connection.give_back(pending.batch);
            self.shared.wake_for(self.place, self.connection);
        }
        pending.send(self.connection);
    }
}

impl Pending<'_> {
    fn reply(&mut self, connection: &Connection, reply: &[u8]) {
        if reply.len() < LONG_REPLY_BYTES {
            self.replies.extend_from_slice(reply);
        } else {
            self.send(connection);
            self.note(connection.send(reply));
        }
    }

    fn send(&mut self, connection: &Connection) {
        if !self.replies.is_empty() {
            self.note(connection.send(self.replies));
            self.replies.clear();
        }
    }

    fn note(&mut self, sent: io::Result<()>) {
        if sent.is_err() {
            self.outcome = sent;
        }
    }
}

impl Waits for Turn<'_> {
    fn begin_wait(&self) {
        self.let_others();
        self.progress.end();
        self.shared.begin_wait();
    }

    fn end_wait(&self) {
        self.shared.end_wait();
        self.progress.begin();
    }

    fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }
}
