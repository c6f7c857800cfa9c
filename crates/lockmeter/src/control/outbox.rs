//! Answers that threads have given and that are not sent yet.
//!
//! The server's thread sleeps in poll(2); a thread that hands an answer in wakes it up through a
//! pair of sockets.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

/// See the module's head.
#[derive(Debug)]
pub(super) struct Outbox {
    /// The number of a connection and the answer to it, `None` where there will be none.
    given: Mutex<Vec<(u64, Option<Vec<u8>>)>>,
    bell: UnixStream,
    ear: UnixStream,
}

/// The right to answer one connection, once.
#[derive(Debug)]
pub(super) struct Ticket {
    number: u64,
    outbox: Arc<Outbox>,
    is_used: bool,
}

impl Outbox {
    pub(super) fn new() -> io::Result<Outbox> {
        let (bell, ear) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ear.set_nonblocking(true)?;
        Ok(Outbox {
            given: Mutex::new(Vec::new()),
            bell,
            ear,
        })
    }

    /// For the connection of this number.
    pub(super) fn ticket(self: &Arc<Self>, number: u64) -> Ticket {
        Ticket {
            number,
            outbox: Arc::clone(self),
            is_used: false,
        }
    }

    /// What becomes readable when there is something to do.
    pub(super) fn ear(&self) -> BorrowedFd<'_> {
        self.ear.as_fd()
    }

    /// Wakes the server's thread up.
    pub(super) fn wake(&self) {
        // Full: then it will wake up anyway.
        let _ = (&self.bell).write(&[1]);
    }

    /// Takes what there is; the server's thread sleeps again until there is more.
    pub(super) fn take(&self) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut bytes = [0; 64];
        while (&self.ear)
            .read(&mut bytes)
            .is_ok_and(|count| count == bytes.len())
        {}
        std::mem::take(&mut self.given.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, number: u64, answer: Option<Vec<u8>>) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.push((number, answer));
        drop(given);
        self.wake();
    }
}

impl Ticket {
    /// Answers.
    pub(super) fn hand_in(mut self, answer: Vec<u8>) {
        self.is_used = true;
        self.outbox.put(self.number, Some(answer));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_used {
            self.outbox.put(self.number, None);
        }
    }
}
