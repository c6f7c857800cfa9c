//! Requests that are answered later, by other threads: a server thread that waited for them would
//! not serve anybody meanwhile.
//!
//! - Syncs wait for the disk. One thread serves them: all that have come while one was served are
//!   served by the next commit together. The end of a mount of a block device is one of them.
//! - Changes wait while the file system is frozen. Another thread serves them after the thaw.
//!
//! Both threads end when the server threads have, which hold the senders.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::abi::{InHeader, IoctlIn, opcode};
use crate::adapter::{Adapter, Refusal};
use crate::ioctl;
use crate::request::Message;

/// Enough for the answer to a sync, or to any request that changes something.
const ANSWER_BYTES: usize = 4096;

/// Enough for what is fixed of a request that waits for the disk.
const FIXED_BYTES: usize = size_of::<IoctlIn>();

/// A request, and where its answer goes.
pub(crate) struct Waiting {
    header: InHeader,
    fixed: Vec<u8>,
    rest: Vec<u8>,
    to: Box<dyn Reply>,
}

/// Where a request was read, which is the one place where it can be answered.
pub(crate) trait Reply: Send {
    /// Answers the request `unique` with a payload or an errno.
    fn answer(self: Box<Self>, unique: u64, answer: Result<&[u8], i32>);
}

impl Waiting {
    fn new(message: &Message<'_>, to: Box<dyn Reply>) -> Waiting {
        Waiting {
            header: message.header,
            fixed: message.fixed.to_vec(),
            rest: message.rest.to_vec(),
            to,
        }
    }

    /// Serves it; gives it back when it has to wait for another thaw.
    fn serve(self, adapter: &Adapter, space: &mut [u8]) -> Option<Waiting> {
        let answer = match adapter.serve(&self.header, &self.fixed, &self.rest, space) {
            Err(Refusal::Frozen) => return Some(self),
            Err(Refusal::Errno(errno)) => Err(errno),
            Ok(length) => Ok(&space[..length]),
        };
        self.to.answer(self.header.unique, answer);
        None
    }
}

/// Takes requests that are answered later.
#[derive(Clone)]
pub(crate) struct Deferred {
    syncs: Sender<Waiting>,
    changes: Sender<Waiting>,
}

/// What serves them.
pub(crate) struct Workers {
    syncs: Receiver<Waiting>,
    changes: Receiver<Waiting>,
}

impl Deferred {
    /// Both ends.
    pub(crate) fn new() -> (Deferred, Workers) {
        let ((to_syncs, syncs), (to_changes, changes)) = (channel(), channel());
        let deferred = Deferred {
            syncs: to_syncs,
            changes: to_changes,
        };
        (deferred, Workers { syncs, changes })
    }

    /// True for a request that waits for the disk.
    pub(crate) fn is_sync(header: &InHeader, fixed: &[u8]) -> bool {
        match header.opcode {
            opcode::FSYNC | opcode::FSYNCDIR | opcode::SYNCFS | opcode::DESTROY => true,
            opcode::IOCTL => ioctl::is_slow(fixed),
            _ => false,
        }
    }

    /// Takes a sync.
    pub(crate) fn sync(&self, message: &Message<'_>, to: Box<dyn Reply>) {
        let fixed = &message.fixed[..message.fixed.len().min(FIXED_BYTES)];
        let message = Message {
            fixed,
            ..Message { ..*message }
        };
        // The workers go last.
        let _ = self.syncs.send(Waiting::new(&message, to));
    }

    /// Takes a change that was refused because the file system is frozen.
    pub(crate) fn change(&self, message: &Message<'_>, to: Box<dyn Reply>) {
        let _ = self.changes.send(Waiting::new(message, to));
    }
}

impl Workers {
    /// The work of the two threads, syncs first.
    pub(crate) fn split(
        self,
        adapter: &Arc<Adapter>,
    ) -> (impl FnOnce() + use<>, impl FnOnce() + use<>) {
        let Workers { syncs, changes } = self;
        let (for_syncs, for_changes) = (Arc::clone(adapter), Arc::clone(adapter));
        let serve_syncs = move || {
            let mut space = [0; ANSWER_BYTES];
            for waiting in syncs {
                waiting.serve(&for_syncs, &mut space);
            }
        };
        let serve_changes = move || {
            let mut space = [0; ANSWER_BYTES];
            for waiting in changes {
                let mut left = Some(waiting);
                while let Some(waiting) = left {
                    for_changes.wait_for_thaw();
                    left = waiting.serve(&for_changes, &mut space);
                }
            }
        };
        (serve_syncs, serve_changes)
    }
}
