//! /dev/fuse: requests are read from it, answers written to it.
//!
//! Each server thread has its own [`Device`] where it may: a clone, with a queue of its own for
//! requests under way. Requests that nobody has read yet lie in one queue for all. What waits for
//! the disk or for a thaw is left to other threads (`waiting`).
//!
//! # Unsafe
//! One ioctl(2), whose argument the kernel only reads.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::ioctl::Setter;
use rustix::time::Timespec;
use zerocopy::IntoBytes;

use crate::abi::{InHeader, InvalidateNodeOut, NOTIFY_INVALIDATE_NODE, OutHeader};
use crate::adapter::{Adapter, Notified, Refusal};
use crate::negotiate::REQUEST_BYTES_MAX;
use crate::polling::{Looked, Polling, Window};
use crate::request::{self, Message};
use crate::waiting::{Deferred, Reason, Reply};

/// Room for the largest request: a WRITE with its head and structure.
const REQUEST_ROOM: usize = REQUEST_BYTES_MAX as usize + 4096;

/// FUSE_DEV_IOC_CLONE.
const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);

/// For poll(2): without waiting.
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// The kernel's end of a mount.
#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

/// What came of an attempt to read.
pub(crate) enum Received<'a> {
    Request(Message<'a>),
    /// Nothing is there (only from a device that does not block).
    Nothing,
    /// The file system was unmounted.
    End,
}

/// Where requests are read to.
pub(crate) fn request_buffer() -> Vec<u8> {
    vec![0; REQUEST_ROOM]
}

impl Device {
    pub(crate) fn new(device: OwnedFd) -> Device {
        Device(device)
    }

    /// Another handle of the same mount, made of `opened`, a /dev/fuse that was just opened.
    pub(crate) fn clone_to(&self, opened: OwnedFd) -> io::Result<Device> {
        let own = self.0.as_raw_fd() as u32;
        // SAFETY: CLONE takes a pointer to a 32-bit descriptor number and only reads it.
        unsafe { rustix::ioctl::ioctl(&opened, Setter::<CLONE, u32>::new(own)) }?;
        Ok(Device(opened))
    }

    /// False once the file system was unmounted or its connection aborted (`fuse_dev_poll` in
    /// Linux's `fs/fuse/dev.c`).
    pub(crate) fn is_connected(&self) -> bool {
        let mut wanted = [PollFd::new(&self.0, PollFlags::empty())];
        // Errors are told unasked.
        match rustix::io::retry_on_intr(|| rustix::event::poll(&mut wanted, Some(&AT_ONCE))) {
            Ok(_) => !wanted[0].revents().contains(PollFlags::ERR),
            // Not known, so what else there is to say is not kept back.
            Err(_) => true,
        }
    }

    /// Reads the next request; waits for one unless the device was told not to block.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Received<'a>> {
        let length = loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(length) => break length,
                // Interrupted: the reader, or (NOENT) the request before it was read.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::NODEV) => return Ok(Received::End),
                Err(error) => return Err(error.into()),
            }
        };
        let message = &buffer[..length];
        let Ok(header) = request::fields::<InHeader>(message) else {
            return Err(io::Error::other(
                "the kernel sent less than the head of a request",
            ));
        };
        let body = &message[size_of::<InHeader>()..];
        let (fixed, rest) = body.split_at(request::fixed_length(header.opcode).min(body.len()));
        Ok(Received::Request(Message {
            header,
            fixed,
            rest,
        }))
    }

    /// Answers the request `unique` with a payload or an errno.
    pub(crate) fn answer(&self, unique: u64, payload: Result<&[u8], i32>) {
        let body = payload.unwrap_or(&[]);
        let header = OutHeader {
            length: (size_of::<OutHeader>() + body.len()) as u32,
            error: payload.err().map_or(0, |errno| -errno),
            unique,
        };
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(body)];
        let parts = if body.is_empty() {
            &parts[..1]
        } else {
            &parts[..]
        };
        self.write(parts);
    }

    fn write(&self, parts: &[IoSlice<'_>]) {
        match rustix::io::retry_on_intr(|| rustix::io::writev(&self.0, parts)) {
            // NOENT: who asked no longer waits, or the node is not in memory. NODEV: nobody else
            // waits either.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
            Err(error) => log::error!("the kernel refused an answer: {error}"),
        }
    }

    /// Serves requests until the file system is unmounted; leaves what has to wait to `deferred`.
    pub(crate) fn serve(
        self: &Arc<Self>,
        adapter: &Adapter,
        deferred: &Deferred,
        polling: Option<&Polling>,
    ) -> io::Result<()> {
        let mut buffer = request_buffer();
        let mut space = vec![0; REQUEST_BYTES_MAX as usize];
        let mut window = Window::default();
        loop {
            let began = Instant::now();
            let looked = match polling {
                Some(polling) => polling.look(&mut window, || self.has_request())?,
                None => Looked::InVain,
            };
            if looked == Looked::Beside {
                continue;
            }
            let received = self.receive(&mut buffer)?;
            if looked == Looked::InVain {
                window.learn(began.elapsed());
            }
            match received {
                Received::Request(message) => {
                    self.serve_one(adapter, &message, &mut space, deferred);
                }
                Received::Nothing => self.wait()?,
                Received::End => return Ok(()),
            }
        }
    }

    /// True when there is something to read, or the end has come.
    fn has_request(&self) -> io::Result<bool> {
        let mut wanted = [PollFd::new(&self.0, PollFlags::IN)];
        let count = rustix::io::retry_on_intr(|| rustix::event::poll(&mut wanted, Some(&AT_ONCE)))?;
        Ok(count > 0)
    }

    /// Waits until there is something to read, or the end: for a thread that shares the device with
    /// another, which has told it not to block.
    fn wait(&self) -> io::Result<()> {
        let mut wanted = [PollFd::new(&self.0, PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut wanted, None))?;
        Ok(())
    }

    /// Serves one request, or leaves it to `deferred`; `space` has room for the largest answer.
    pub(crate) fn serve_one(
        self: &Arc<Self>,
        adapter: &Adapter,
        message: &Message<'_>,
        space: &mut [u8],
        deferred: &Deferred,
    ) {
        let Message {
            header,
            fixed,
            rest,
        } = message;
        if let Some(forgets) = request::forgets(header.opcode, header.node, fixed, rest) {
            return adapter.forget(forgets);
        }
        let origin = || Box::new(Arc::clone(self));
        if let Some(reason) = Reason::of(header, fixed) {
            return deferred.take(reason, message, origin());
        }
        match adapter.serve(header, fixed, rest, space) {
            Ok(length) => self.answer(header.unique, Ok(&space[..length])),
            Err(Refusal::Errno(errno)) => self.answer(header.unique, Err(errno)),
            Err(Refusal::Frozen) => deferred.take(Reason::Frozen, message, origin()),
        }
    }
}

impl Notified for Device {
    /// The kernel takes no lock for that, so who asks may be waiting for an answer meanwhile
    /// (`fuse_reverse_inval_inode` in Linux's `fs/fuse/inode.c`).
    fn attributes_changed(&self, node: u64) {
        self.invalidate(node, -1, 0);
    }

    /// The kernel then maps no page of it any more, either.
    fn write_out_pages(&self, node: u64, from: u64, to: Option<u64>) {
        // Offsets of files are not larger. A length of 0 goes to the end.
        let signed = |offset: u64| i64::try_from(offset).unwrap_or(i64::MAX);
        let length = to.map_or(0, |to| signed(to.saturating_sub(from)).max(1));
        self.invalidate(node, signed(from), length);
    }
}

impl Device {
    /// Of the pages of a node those from an offset on, to the end where the length is 0; of none
    /// where the offset is negative.
    fn invalidate(&self, node: u64, offset: i64, length: i64) {
        let notice = InvalidateNodeOut {
            node,
            offset,
            length,
        };
        let header = OutHeader {
            length: (size_of::<OutHeader>() + size_of::<InvalidateNodeOut>()) as u32,
            error: NOTIFY_INVALIDATE_NODE,
            unique: 0,
        };
        self.write(&[
            IoSlice::new(header.as_bytes()),
            IoSlice::new(notice.as_bytes()),
        ]);
    }
}

impl Reply for Arc<Device> {
    fn answer(self: Box<Self>, unique: u64, answer: Result<&[u8], i32>) {
        Device::answer(&self, unique, answer);
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach;

    #[test]
    fn a_device_without_a_mount_is_not_connected() {
        match attach::open_device() {
            Ok(opened) => assert!(!Device::new(opened.into()).is_connected()),
            Err(error) => eprintln!("skipped: no /dev/fuse here: {error}"),
        }
        let nothing_wrong = std::fs::File::open("/dev/null").expect("there always is");
        assert!(Device::new(nothing_wrong.into()).is_connected());
    }
}
