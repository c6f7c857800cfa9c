//! Requests through io_uring: one queue for each CPU.
//!
//! # Why
//! Through /dev/fuse all requests wait in one queue, and the kernel wakes whichever server thread
//! has waited longest, mostly on another CPU than the one that asks. Each round trip then costs two
//! interrupts between CPUs, and two wake-ups from idle where there was nothing else to do. Here a
//! request goes to a server thread of the CPU it comes from: a switch of tasks there and one back.
//!
//! # Data model
//! An **entry** is a pair of buffers that the kernel knows: a head, and a payload of the largest
//! request. A thread has one ring with one entry, registered at the queue of its CPU. It waits until
//! the kernel has put a request into the entry, serves it, puts the answer where the request was,
//! and hands the entry back, which at once waits for the next. The threads of a CPU are
//! interchangeable: while one waits for the disk the kernel uses the entries of the others, and it
//! prefers the entry that was handed back last, so a single client always meets the same thread.
//!
//! # What still comes through /dev/fuse
//! INIT, FORGET and INTERRUPT (`fuse-io-uring.rst`): see `session`.
//!
//! # Unsafe
//! The kernel writes to an entry's buffers whenever it has the entry. They are touched here only
//! between a completion, which hands the entry to us, and the next submission, which hands it back.
//!
//! # References
//! `Documentation/filesystems/fuse/fuse-io-uring.rst`; io_uring_setup(2).

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::time::Duration;

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{InHeader, OutHeader, RingCommand, RingTail, ring};
use crate::adapter::Adapter;
use crate::device::Device;
use crate::negotiate::REQUEST_BYTES_MAX;

/// Where things lie in an entry's head: 128 bytes for the request's head or the answer's, 128 for
/// the operation's structure, then the tail.
const FIXED_AT: usize = 128;
const TAIL_AT: usize = 256;
const HEAD_BYTES: usize = 288;

/// Where a submission has the number of its buffers (`len` of `struct io_uring_sqe`).
const SQE_LENGTH_AT: usize = 24;

/// Names and small values are copied out of the payload, so that the answer can go there at once.
const SCRATCH_BYTES: usize = 8192;
/// Enough for the answer to any request with a large payload (WRITE, SETXATTR).
const SMALL_ANSWER_BYTES: usize = 64;

const PAGE_BYTES: usize = 4096;

type Ring = IoUring<Entry128, cqueue::Entry>;

/// Zeroed memory at a page's start.
struct Buffer {
    start: NonNull<u8>,
    layout: Layout,
}

impl Buffer {
    fn new(length: usize) -> io::Result<Buffer> {
        let layout = Layout::from_size_align(length, PAGE_BYTES).map_err(io::Error::other)?;
        // SAFETY: `layout` is not empty, every caller asks for more than no bytes.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Buffer { start, layout })
    }

    /// The memory.
    ///
    /// # Safety
    /// The kernel must not have it: it was never submitted, or was completed since.
    unsafe fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: allocated with this size, initialised (zeroed), and borrowed by `&mut self`; the
        // kernel does not touch it, as the caller says.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// A thread's place at a queue.
pub(crate) struct Seat {
    // Declared before the buffers: dropped, the ring takes its submissions back first.
    ring: Ring,
    head: Buffer,
    payload: Buffer,
    /// Read by the kernel while the entry is registered.
    parts: Box<[libc::iovec; 2]>,
    queue: u16,
}

impl Seat {
    /// Prepares a place at the queue of a CPU; the same thread then calls [`Seat::serve`].
    pub(crate) fn new(queue: u16) -> io::Result<Seat> {
        let ring = Ring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(2)?;
        let head = Buffer::new(HEAD_BYTES)?;
        let payload = Buffer::new(REQUEST_BYTES_MAX as usize)?;
        let part = |buffer: &Buffer| libc::iovec {
            iov_base: buffer.start.as_ptr().cast(),
            iov_len: buffer.layout.size(),
        };
        let parts = Box::new([part(&head), part(&payload)]);
        Ok(Seat {
            ring,
            head,
            payload,
            parts,
            queue,
        })
    }

    /// Serves requests until the file system is unmounted, or the kernel refuses the place (then
    /// with the error).
    pub(crate) fn serve(mut self, device: &Device, adapter: &Adapter) -> io::Result<()> {
        let mut scratch = vec![0; SCRATCH_BYTES];
        self.submit(device, ring::REGISTER, 0)?;
        while self.wait()? {
            let commit_id = self.serve_one(adapter, &mut scratch);
            self.submit(device, ring::COMMIT_AND_FETCH, commit_id)?;
        }
        Ok(())
    }

    /// Hands the entry to the kernel (with the next [`Seat::wait`]).
    fn submit(&mut self, device: &Device, command: u32, commit_id: u64) -> io::Result<()> {
        let fields = RingCommand {
            commit_id,
            queue: self.queue,
            ..RingCommand::default()
        };
        let mut bytes = [0; 80];
        bytes.copy_from_slice(fields.as_bytes());
        let descriptor = types::Fd(device.as_fd().as_raw_fd());
        let mut entry = opcode::UringCmd80::new(descriptor, command)
            .cmd(bytes)
            .addr(Some(self.parts.as_ptr() as u64))
            .build();
        // SAFETY: an `Entry128` is a submission as the kernel has it (`repr(C)`, 128 bytes), any
        // bytes are a valid one; the library has no setter for this field of this operation.
        unsafe {
            let length = (&raw mut entry)
                .cast::<u8>()
                .add(SQE_LENGTH_AT)
                .cast::<u32>();
            length.write(self.parts.len() as u32);
        }
        // SAFETY: the buffers and `parts` live as long as `ring` does, and nothing here touches
        // them before the completion.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)
    }

    /// Submits, and waits until the kernel hands the entry back with a request (true) or for good.
    fn wait(&mut self) -> io::Result<bool> {
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Short of memory for the moment: what was to be submitted still is.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                Err(error) => return Err(error),
            }
            let Some(completion) = self.ring.completion().next() else {
                continue;
            };
            return match -completion.result() {
                0 => Ok(true),
                // The ways in which a mount ends.
                libc::ENOTCONN
                | libc::ENODEV
                | libc::ECONNABORTED
                | libc::ECANCELED
                | libc::ENOENT => Ok(false),
                errno => Err(io::Error::from_raw_os_error(errno)),
            };
        }
    }

    /// Serves the request in the entry and leaves the answer there; gives what names it.
    fn serve_one(&mut self, adapter: &Adapter, scratch: &mut [u8]) -> u64 {
        // SAFETY: the entry was completed (by `wait`) and not submitted since, so it is ours.
        let (head, payload) = unsafe { (self.head.bytes(), self.payload.bytes()) };
        let (header, tail) = match (
            InHeader::read_from_prefix(head),
            RingTail::read_from_bytes(&head[TAIL_AT..HEAD_BYTES]),
        ) {
            (Ok((header, _)), Ok(tail)) => (header, tail),
            // Both lie within the head, whose size is fixed.
            _ => unreachable!("an entry's head is shorter than its parts"),
        };
        let length = (tail.payload_length as usize).min(payload.len());
        let fixed = &head[FIXED_AT..TAIL_AT];
        let answer = if let Some(scratch) = scratch.get_mut(..length) {
            scratch.copy_from_slice(&payload[..length]);
            adapter.serve(&header, fixed, scratch, payload)
        } else {
            let mut space = [0; SMALL_ANSWER_BYTES];
            let answer = adapter.serve(&header, fixed, &payload[..length], &mut space);
            payload[..SMALL_ANSWER_BYTES].copy_from_slice(&space);
            answer
        };
        let payload_length = answer.unwrap_or(0) as u32;
        let out = OutHeader {
            length: size_of::<OutHeader>() as u32 + payload_length,
            error: answer.err().map_or(0, |errno| -errno),
            unique: header.unique,
        };
        head[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        let tail_out = RingTail {
            payload_length,
            ..RingTail::default()
        };
        head[TAIL_AT..HEAD_BYTES].copy_from_slice(tail_out.as_bytes());
        tail.commit_id
    }
}
