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
//! request. A thread has one ring with one entry, registered at the queue of its CPU. It waits
//! until the kernel has put a request into the entry, serves it, puts the answer where the request
//! was, and hands the entry back, which at once waits for the next. The threads of a CPU are
//! interchangeable: while one reads from the disk the kernel uses the entries of the others, and it
//! prefers the entry that was handed back last, so a single client always meets the same thread.
//!
//! A request that waits for a commit or for a thaw is served by another thread (`waiting`). Its
//! entry is **away** meanwhile: the kernel knows it as busy. The answer comes back through a
//! channel, and an eventfd, which the ring reads, wakes the thread that has the entry, since only
//! that one may hand it in. While all entries of a thread are away it takes one more, up to
//! [`ENTRIES_MAX`].
//!
//! An entry that the kernel refuses is **retired**. The thread goes on with the others, since the
//! answers to those that are away have to be handed in, and leaves when there are none.
//!
//! # What still comes through /dev/fuse
//! INIT, FORGET and INTERRUPT (`fuse-io-uring.rst`): see `session`.
//!
//! # Unsafe
//! The kernel writes to an entry's buffers whenever it has the entry. They are touched here only
//! between a completion, which hands the entry to us, and the next submission, which hands it back.
//!
//! # References
//! `Documentation/filesystems/fuse/fuse-io-uring.rst`; `fuse_uring_cmd` in Linux's
//! `fs/fuse/dev_uring.c`, for the errors; io_uring_setup(2).

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{InHeader, OutHeader, RingCommand, RingTail, ring};
use crate::adapter::{Adapter, Refusal};
use crate::device::Device;
use crate::negotiate::REQUEST_BYTES_MAX;
use crate::request::Message;
use crate::waiting::{Deferred, Reason, Reply};

/// Where things lie in an entry's head: 128 bytes for the request's head or the answer's, 128 for
/// the operation's structure, then the tail.
const FIXED_AT: usize = 128;
const TAIL_AT: usize = 256;
const HEAD_BYTES: usize = 288;

/// Where a submission has the number of its buffers (`len` of `struct io_uring_sqe`).
const SQE_LENGTH_AT: usize = 24;

/// Names and small values are copied out of the payload, so that the answer can go there at once.
const SCRATCH_BYTES: usize = 8192;
/// Enough for the answer to any request with a large payload (WRITE, SETXATTR, MKNOD with a
/// security context).
const SMALL_ANSWER_BYTES: usize = 256;

const PAGE_BYTES: usize = 4096;

/// Entries of one thread. There is a second one only when the first is away: requests in two
/// entries of one thread could wait for each other.
const ENTRIES_MAX: usize = 8;

/// Names the completion of the bell's read; entries have their index.
const BELL: u64 = u64::MAX;

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

/// The buffers of one request at a time.
struct Entry {
    head: Buffer,
    payload: Buffer,
    /// Read by the kernel while the entry is registered.
    parts: Box<[libc::iovec; 2]>,
    /// What names the request in it, as the kernel has it.
    commit_id: u64,
    unique: u64,
}

impl Entry {
    fn new() -> io::Result<Entry> {
        let head = Buffer::new(HEAD_BYTES)?;
        let payload = Buffer::new(REQUEST_BYTES_MAX as usize)?;
        let part = |buffer: &Buffer| libc::iovec {
            iov_base: buffer.start.as_ptr().cast(),
            iov_len: buffer.layout.size(),
        };
        let parts = Box::new([part(&head), part(&payload)]);
        Ok(Entry {
            head,
            payload,
            parts,
            commit_id: 0,
            unique: 0,
        })
    }

    /// Leaves the head of an answer whose payload is there already.
    ///
    /// # Safety
    /// As for [`Buffer::bytes`].
    unsafe fn finish(&mut self, answer: Result<usize, i32>) {
        let payload_length = answer.unwrap_or(0) as u32;
        let out = OutHeader {
            length: size_of::<OutHeader>() as u32 + payload_length,
            error: answer.err().map_or(0, |errno| -errno),
            unique: self.unique,
        };
        // SAFETY: as the caller says.
        let head = unsafe { self.head.bytes() };
        head[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        let tail_out = RingTail {
            payload_length,
            ..RingTail::default()
        };
        head[TAIL_AT..HEAD_BYTES].copy_from_slice(tail_out.as_bytes());
    }
}

/// True when the kernel refuses or gives back an entry with `errno` because the mount has ended.
///
/// ENOENT says that it knows no such request. It drops its requests when the mount ends, and an
/// answer that it was about to take then finds none; while the mount is connected it is ours that
/// is wrong.
fn is_end(errno: i32, is_connected: impl FnOnce() -> bool) -> bool {
    match errno {
        libc::ENOTCONN | libc::ENODEV | libc::ECONNABORTED | libc::ECANCELED => true,
        libc::ENOENT => !is_connected(),
        _ => false,
    }
}

/// An answer that another thread has for an entry.
struct Late {
    entry: usize,
    answer: Result<Vec<u8>, i32>,
}

/// Where a request that another thread serves came from.
struct EntryReply {
    entry: usize,
    to: Sender<Late>,
    bell: Arc<OwnedFd>,
}

impl Reply for EntryReply {
    /// Gives the answer to the thread that has the entry, which knows what it answers.
    fn answer(self: Box<Self>, _unique: u64, answer: Result<&[u8], i32>) {
        let answer = answer.map(<[u8]>::to_vec);
        let late = Late {
            entry: self.entry,
            answer,
        };
        // A thread that is gone left because the mount ended.
        if self.to.send(late).is_ok() {
            let _ =
                rustix::io::retry_on_intr(|| rustix::io::write(&*self.bell, &1_u64.to_ne_bytes()));
        }
    }
}

/// Lets a ring that is not enabled yet take what is submitted here and nothing else, and enables
/// it: what goes through a ring is seen by no filter of system calls.
fn restrict(ring: &Ring) -> io::Result<()> {
    let operations = [opcode::UringCmd80::CODE, opcode::Read::CODE];
    let mut allowed = operations.map(Restriction::sqe_op);
    ring.submitter().register_restrictions(&mut allowed)?;
    ring.submitter().register_enable_rings()
}

/// A thread's place at a queue.
pub(crate) struct RingWorker {
    // Declared before the buffers: dropped, the ring takes its submissions back first.
    ring: Ring,
    entries: Vec<Entry>,
    /// Entries whose requests other threads serve.
    away: usize,
    /// Entries that the kernel has refused.
    retired: usize,
    late: (Sender<Late>, Receiver<Late>),
    /// An eventfd, rung for each late answer.
    bell: Arc<OwnedFd>,
    /// Where the kernel puts the count of rings.
    rings: Box<[u8; 8]>,
    queue: u16,
}

impl RingWorker {
    /// Prepares a place at the queue of a CPU; the same thread then calls [`RingWorker::serve`].
    pub(crate) fn new(queue: u16) -> io::Result<RingWorker> {
        let ring = Ring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_r_disabled()
            .build(2 * ENTRIES_MAX as u32)?;
        restrict(&ring)?;
        Ok(RingWorker {
            ring,
            entries: vec![Entry::new()?],
            away: 0,
            retired: 0,
            late: channel(),
            bell: Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?),
            rings: Box::new([0; 8]),
            queue,
        })
    }

    /// Serves requests until the file system is unmounted, or the kernel has refused the place
    /// (then with the error).
    pub(crate) fn serve(
        mut self,
        device: &Device,
        adapter: &Adapter,
        deferred: &Deferred,
    ) -> io::Result<()> {
        self.submit(device, ring::REGISTER, 0)?;
        self.listen()?;
        self.go_on(device, adapter, deferred)
    }

    /// Serves what comes to the entries, all of which the kernel knows.
    fn go_on(&mut self, device: &Device, adapter: &Adapter, deferred: &Deferred) -> io::Result<()> {
        let mut scratch = vec![0; SCRATCH_BYTES];
        let mut completed = Vec::with_capacity(ENTRIES_MAX + 1);
        loop {
            self.wait(&mut completed)?;
            for (what, result) in completed.drain(..) {
                if what == BELL {
                    self.answer_late(device)?;
                    self.listen()?;
                    continue;
                }
                match -result {
                    0 => {}
                    errno if is_end(errno, || device.is_connected()) => return Ok(()),
                    errno => {
                        self.retire(io::Error::from_raw_os_error(errno))?;
                        continue;
                    }
                }
                let entry = what as usize;
                if self.serve_one(entry, adapter, deferred, &mut scratch) {
                    self.submit(device, ring::COMMIT_AND_FETCH, entry)?;
                } else {
                    self.away += 1;
                    self.replace(device);
                }
            }
        }
    }

    /// Takes another entry when none is left at the kernel, up to a limit. Without one (for lack of
    /// memory) requests wait until one is back.
    fn replace(&mut self, device: &Device) {
        let is_none_left = self.away + self.retired == self.entries.len();
        if !is_none_left || self.entries.len() == ENTRIES_MAX {
            return;
        }
        let Ok(entry) = Entry::new() else { return };
        self.entries.push(entry);
        if let Err(error) = self.submit(device, ring::REGISTER, self.entries.len() - 1) {
            log::warn!("the queue of CPU {}: no more entries: {error}", self.queue);
            self.entries.pop();
        }
    }

    /// Does without an entry that the kernel has refused; fails with why when none is left.
    fn retire(&mut self, error: io::Error) -> io::Result<()> {
        self.retired += 1;
        if self.retired == self.entries.len() {
            return Err(error);
        }
        log::warn!("the queue of CPU {} lost an entry: {error}", self.queue);
        Ok(())
    }

    /// Hands in the answers that other threads had.
    fn answer_late(&mut self, device: &Device) -> io::Result<()> {
        while let Ok(Late { entry: at, answer }) = self.late.1.try_recv() {
            let entry = &mut self.entries[at];
            // SAFETY: the entry was completed and is away: not submitted since.
            unsafe {
                if let Ok(answer) = &answer {
                    entry.payload.bytes()[..answer.len()].copy_from_slice(answer);
                }
                entry.finish(answer.map(|answer| answer.len()));
            }
            self.away -= 1;
            self.submit(device, ring::COMMIT_AND_FETCH, at)?;
        }
        Ok(())
    }

    /// Hands an entry to the kernel (with the next [`RingWorker::wait`]).
    fn submit(&mut self, device: &Device, command: u32, entry: usize) -> io::Result<()> {
        let index = entry;
        let entry = &self.entries[index];
        let fields = RingCommand {
            commit_id: entry.commit_id,
            queue: self.queue,
            ..RingCommand::default()
        };
        let mut bytes = [0; 80];
        bytes.copy_from_slice(fields.as_bytes());
        let descriptor = types::Fd(device.as_fd().as_raw_fd());
        let mut submission = opcode::UringCmd80::new(descriptor, command)
            .cmd(bytes)
            .addr(Some(entry.parts.as_ptr() as u64))
            .build()
            .user_data(index as u64);
        // SAFETY: an `Entry128` is a submission as the kernel has it (`repr(C)`, 128 bytes), any
        // bytes are a valid one; the library has no setter for this field of this operation.
        unsafe {
            let length = (&raw mut submission)
                .cast::<u8>()
                .add(SQE_LENGTH_AT)
                .cast::<u32>();
            length.write(entry.parts.len() as u32);
        }
        // SAFETY: the buffers and `parts` live as long as `ring` does, and nothing here touches
        // them before the completion.
        unsafe { self.ring.submission().push(&submission) }.map_err(io::Error::other)
    }

    /// Waits for the bell (with the next [`RingWorker::wait`]).
    fn listen(&mut self) -> io::Result<()> {
        let bell = types::Fd(self.bell.as_raw_fd());
        let read = opcode::Read::new(bell, self.rings.as_mut_ptr(), self.rings.len() as u32);
        let submission = Entry128::from(read.build().user_data(BELL));
        // SAFETY: `rings` lives as long as `ring` does, and nobody else touches it.
        unsafe { self.ring.submission().push(&submission) }.map_err(io::Error::other)
    }

    /// Submits, and waits until something has completed.
    fn wait(&mut self, completed: &mut Vec<(u64, i32)>) -> io::Result<()> {
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
            let completions = self.ring.completion();
            completed.extend(completions.map(|one| (one.user_data(), one.result())));
            if !completed.is_empty() {
                return Ok(());
            }
        }
    }

    /// Serves the request in an entry and leaves the answer there; false when another thread will
    /// have the answer.
    fn serve_one(
        &mut self,
        index: usize,
        adapter: &Adapter,
        deferred: &Deferred,
        scratch: &mut [u8],
    ) -> bool {
        let entry = &mut self.entries[index];
        // SAFETY: the entry was completed (see `serve`) and not submitted since, so it is ours.
        let (head, payload) = unsafe { (entry.head.bytes(), entry.payload.bytes()) };
        let (header, tail) = match (
            InHeader::read_from_prefix(head),
            RingTail::read_from_bytes(&head[TAIL_AT..HEAD_BYTES]),
        ) {
            (Ok((header, _)), Ok(tail)) => (header, tail),
            // Both lie within the head, whose size is fixed.
            _ => unreachable!("an entry's head is shorter than its parts"),
        };
        entry.commit_id = tail.commit_id;
        entry.unique = header.unique;
        let length = (tail.payload_length as usize).min(payload.len());
        let fixed = &head[FIXED_AT..TAIL_AT];
        let origin = || {
            Box::new(EntryReply {
                entry: index,
                to: self.late.0.clone(),
                bell: Arc::clone(&self.bell),
            })
        };
        if let Some(reason) = Reason::of(&header, fixed) {
            let rest = &payload[..length];
            let message = Message {
                header,
                fixed,
                rest,
            };
            deferred.take(reason, &message, origin());
            return false;
        }
        let answer = if let Some(scratch) = scratch.get_mut(..length) {
            scratch.copy_from_slice(&payload[..length]);
            adapter.serve(&header, fixed, scratch, payload)
        } else {
            let mut space = [0; SMALL_ANSWER_BYTES];
            let answer = adapter.serve(&header, fixed, &payload[..length], &mut space);
            if answer.is_ok() {
                payload[..SMALL_ANSWER_BYTES].copy_from_slice(&space);
            }
            answer
        };
        let answer = match answer {
            Ok(length) => Ok(length),
            Err(Refusal::Errno(errno)) => Err(errno),
            Err(Refusal::Frozen) => {
                // Refused before anything was answered: the request is still there.
                let rest = &payload[..length];
                let message = Message {
                    header,
                    fixed,
                    rest,
                };
                deferred.take(Reason::Frozen, &message, origin());
                return false;
            }
        };
        // SAFETY: as above.
        unsafe { entry.finish(answer) };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_takes_nothing_but_requests() {
        let mut worker = match RingWorker::new(0) {
            Ok(worker) => worker,
            Err(error) => return eprintln!("skipped: no io_uring here: {error}"),
        };
        let here = types::Fd(libc::AT_FDCWD);
        let open = opcode::OpenAt::new(here, c"/dev/null".as_ptr()).build();
        let no_operation = opcode::Nop::new().build();
        let mut completed = Vec::new();
        for (what, submission) in [(1, open), (2, no_operation)] {
            let submission = Entry128::from(submission.user_data(what));
            // SAFETY: the name lives for ever.
            unsafe { worker.ring.submission().push(&submission) }.expect("room");
            worker.wait(&mut completed).expect("it completes");
        }
        assert_eq!(completed, [(1, -libc::EACCES), (2, -libc::EACCES)]);
        completed.clear();
        worker.listen().expect("room");
        rustix::io::write(&*worker.bell, &1_u64.to_ne_bytes()).expect("it rings");
        worker.wait(&mut completed).expect("it completes");
        assert_eq!(completed, [(BELL, 8)]);
    }

    /// A socket refuses what is for a FUSE device.
    #[test]
    fn answers_of_entries_that_are_away_are_handed_in_though_another_is_refused() {
        let mut worker = match RingWorker::new(0) {
            Ok(worker) => worker,
            Err(error) => return eprintln!("skipped: no io_uring here: {error}"),
        };
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let device = Device::new(ours.into());
        let store = finefs_namespace::MemoryStore::new(1 << 20, 0o755, 0, 0).expect("room");
        let options = finefs_namespace::Options::default();
        let namespace = finefs_namespace::Namespace::new(Arc::new(store), options).expect("a root");
        let adapter = Adapter::new(namespace, crate::negotiate::Negotiated::default(), None);
        let (deferred, _workers) = Deferred::new();
        let reply = Box::new(EntryReply {
            entry: 0,
            to: worker.late.0.clone(),
            bell: Arc::clone(&worker.bell),
        });
        let answers = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            reply.answer(1, Ok(b"late"));
        });
        worker.listen().expect("room");
        worker.away = 1;
        worker.replace(&device);
        assert_eq!(worker.entries.len(), 2);
        worker
            .go_on(&device, &adapter, &deferred)
            .expect_err("in the end no entry is left");
        assert_eq!((worker.away, worker.retired), (0, 2));
        answers.join().expect("no panic");
    }

    #[test]
    fn an_unknown_request_is_the_end_only_of_a_mount_that_ended() {
        assert!(is_end(libc::ENOENT, || false));
        assert!(!is_end(libc::ENOENT, || true));
        assert!(is_end(libc::ENOTCONN, || true));
        assert!(!is_end(libc::EINVAL, || false));
    }
}
