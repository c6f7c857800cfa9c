//! Requests that are answered later, by other threads: a server thread that waited for them would
//! not serve anybody meanwhile.
//!
//! - Syncs wait for the disk. One thread serves them: all that have come while one was served are
//!   served by the next commit together. The end of a mount of a block device is one of them.
//! - Some ioctls wait for the disk, or for pages that the kernel writes out meanwhile. Syncs do not
//!   wait for these: they have a thread of their own.
//! - Who looks for holes waits for pages, too (`adapter::seek`), and not for an ioctl that takes
//!   long.
//! - Changes wait while the file system is frozen. Another thread serves them after the thaw; so
//!   the pages that others wait for are written.
//!
//! The threads end when the server threads have, which hold the senders.

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

/// Why a request is answered later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// It is a sync.
    Sync,
    /// It is an ioctl that waits.
    Ioctl,
    /// It asks for data or a hole.
    Seek,
    /// It is a change, which was refused because the file system is frozen.
    Frozen,
}

impl Reason {
    /// Why a request has to wait that nobody has tried to serve.
    pub(crate) fn of(header: &InHeader, fixed: &[u8]) -> Option<Reason> {
        match header.opcode {
            opcode::FSYNC | opcode::FSYNCDIR | opcode::SYNCFS | opcode::DESTROY => {
                Some(Reason::Sync)
            }
            opcode::IOCTL => ioctl::is_slow(fixed).then_some(Reason::Ioctl),
            opcode::LSEEK => Some(Reason::Seek),
            _ => None,
        }
    }
}

/// Takes requests that are answered later.
#[derive(Clone)]
pub(crate) struct Deferred {
    syncs: Sender<Waiting>,
    ioctls: Sender<Waiting>,
    seeks: Sender<Waiting>,
    changes: Sender<Waiting>,
}

/// What serves them, by reasons.
pub(crate) struct Workers([Receiver<Waiting>; 4]);

impl Deferred {
    /// Both ends.
    pub(crate) fn new() -> (Deferred, Workers) {
        let ((syncs, for_syncs), (ioctls, for_ioctls)) = (channel(), channel());
        let ((seeks, for_seeks), (changes, for_changes)) = (channel(), channel());
        let deferred = Deferred {
            syncs,
            ioctls,
            seeks,
            changes,
        };
        let workers = [for_syncs, for_ioctls, for_seeks, for_changes];
        (deferred, Workers(workers))
    }

    /// Takes a request.
    pub(crate) fn take(&self, reason: Reason, message: &Message<'_>, to: Box<dyn Reply>) {
        let (requests, fixed_bytes) = match reason {
            Reason::Sync => (&self.syncs, FIXED_BYTES),
            Reason::Ioctl => (&self.ioctls, FIXED_BYTES),
            Reason::Seek => (&self.seeks, FIXED_BYTES),
            Reason::Frozen => (&self.changes, usize::MAX),
        };
        let message = Message {
            fixed: &message.fixed[..message.fixed.len().min(fixed_bytes)],
            ..Message { ..*message }
        };
        // The workers go last.
        let _ = requests.send(Waiting::new(&message, to));
    }
}

impl Workers {
    /// The work of each thread, with its name.
    pub(crate) fn split(
        self,
        adapter: &Arc<Adapter>,
    ) -> [(&'static str, impl FnOnce() + use<>); 4] {
        let Workers([syncs, ioctls, seeks, changes]) = self;
        [
            ("sync", syncs),
            ("ioctl", ioctls),
            ("seek", seeks),
            ("thaw", changes),
        ]
        .map(|(name, requests)| {
            let adapter = Arc::clone(adapter);
            (name, move || serve_all(requests, &adapter))
        })
    }
}

/// Answers each request; where the file system is frozen, after the thaw.
fn serve_all(requests: Receiver<Waiting>, adapter: &Adapter) {
    let mut space = [0; ANSWER_BYTES];
    for request in requests {
        let mut left = request.serve(adapter, &mut space);
        while let Some(refused) = left {
            adapter.wait_for_thaw();
            left = refused.serve(adapter, &mut space);
        }
    }
}
