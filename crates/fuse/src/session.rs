//! A mount: made, served, taken away.
//!
//! # How it ends
//! The kernel ends a session when the file system is unmounted and its last user is gone, by
//! whatever way that came about: every server thread then learns so and [`Mount::serve`] returns.
//! The caller then shuts the namespace down. Nothing is lost at that point: the kernel writes back
//! what it holds before it ends the session. Of a block device's mount (`fuseblk`) the kernel sends
//! DESTROY before, which shuts the namespace down while the unmount waits.
//!
//! # What a failure does
//! - An operation that fails answers its errno; the thread goes on.
//! - An operation that panics answers EIO; the thread goes on (`guard`).
//! - A panic outside of an operation ends its thread, and the request at hand gets no answer until
//!   the mount ends. The caller should install a panic hook that ends the mount in order when a
//!   thread whose name starts with [`SERVER_THREAD_PREFIX`] panics outside of an operation (see
//!   [`crate::is_in_operation`]).
//! - If the whole process dies, the kernel answers ENOTCONN to every use of the mount until
//!   somebody unmounts it; the command line keeps a watcher process that does so.
//!
//! # Threads
//! Where the kernel offers io_uring (the parameter `enable_uring` of its module fuse), a few
//! threads for each CPU serve that CPU's queue (`ring`), and one reads what still comes through
//! /dev/fuse. Elsewhere all threads read /dev/fuse (`device`). With permission on /dev/fuse each
//! then has its own clone of it, with a queue of its own for requests under way; without (an
//! ordinary user where it has mode 0600), all read the one descriptor that the helper handed over,
//! which costs one shared lock in the kernel for each request. More threads serve what waits for
//! the disk, for pages of the kernel, or for a thaw (`waiting`).

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use finefs_namespace::Namespace;
use rustix::fs::OFlags;
use rustix::thread::CpuSet;
use zerocopy::IntoBytes;

use crate::abi::opcode;
use crate::adapter::{Adapter, FORGET_DELAY};
use crate::attach::{self, AttachError, Options};
use crate::cpu_latency::CpuLatency;
use crate::detach::{DetachError, detach};
use crate::device::{Device, Received, request_buffer};
use crate::mounts::mount_at;
use crate::negotiate::{InitAnswer, Negotiated, REQUEST_BYTES_MAX, Requested, answer_init};
use crate::polling::Polling;
use crate::ring::RingWorker;
use crate::waiting::Deferred;

/// What the names of the server threads start with.
pub const SERVER_THREAD_PREFIX: &str = "fuse-";

/// Threads for each CPU's queue: while one waits for the disk, the others go on.
const THREADS_PER_QUEUE: usize = 4;

/// A mounted namespace that waits to be served.
pub struct Mount {
    device: Arc<Device>,
    adapter: Arc<Adapter>,
    /// Threads that read /dev/fuse.
    threads: usize,
    has_ring: bool,
    ring_threads: Vec<RingThread>,
    polling: Option<Arc<Polling>>,
    unmounter: Unmounter,
}

/// What a thread serves, for whom, and who serves what has to wait.
type Work = (Arc<Device>, Arc<Adapter>, Deferred);

/// A thread that has its place at a queue and waits for the adapter.
struct RingThread {
    start: Sender<Work>,
    thread: JoinHandle<io::Result<()>>,
}

impl Mount {
    /// Mounts `namespace` at the directory `path`. When this returns, the kernel knows the file
    /// system and keeps requests until [`Mount::serve`] takes them.
    pub fn new(
        namespace: Arc<Namespace>,
        path: &Path,
        options: &Options,
    ) -> Result<Mount, AttachError> {
        let path = attach::check_mount_point(path)?;
        let cpu_latency = CpuLatency::start(options.wakeup_latency);
        let cpu_latency = cpu_latency.map_err(AttachError::CpuLatency)?;
        let polling = Polling::start(options.wakeup_latency, cpu_latency.is_some());
        let attached = attach::attach(&path, options)?;
        let device = Arc::new(Device::new(attached.device));
        // Found now, while nothing else can have been mounted over it by who follows the rules.
        let unmounter = Unmounter::of(&path);

        let threads = options.threads.unwrap_or_else(default_threads).max(1);
        let ring_threads = if options.has_ring {
            take_seats(options.threads).unwrap_or_else(|error| {
                log::info!("no io_uring: {error}");
                Vec::new()
            })
        } else {
            Vec::new()
        };
        let requested = Requested {
            has_writeback_cache: options.has_writeback_cache && !options.is_read_only,
            has_fine_times: namespace.geometry().has_fine_times,
            has_ring: !ring_threads.is_empty(),
            // Where nothing is checked there is no need to begin with it; and ACLs are part of the
            // permissions that a view overrides.
            checks_acls: namespace.has_acls()
                && options.has_xattrs
                && attached.checks_permissions
                && options.view.umask.is_none(),
            has_labels: options.has_labels
                && options.has_xattrs
                && namespace.geometry().new_form.has_xattrs,
        };
        let agreed = shake_hands(&device, requested);
        if agreed
            .as_ref()
            .is_ok_and(|agreed| requested.checks_acls && !agreed.checks_acls)
        {
            log::warn!("this kernel does not check ACLs: only modes count");
        }
        match agreed {
            Ok(negotiated) => Ok(Mount {
                adapter: Arc::new(
                    Adapter::new(namespace, negotiated, cpu_latency)
                        .telling(device.clone())
                        .making_root(options.makes_root)
                        .with_xattrs(options.has_xattrs)
                        .viewed(options.view),
                ),
                device,
                threads,
                has_ring: negotiated.has_ring,
                ring_threads,
                polling: polling.map(Arc::new),
                unmounter,
            }),
            Err(error) => {
                drop(device);
                // The device is closed by now, so the kernel has given up on the session.
                let _ = detach(&unmounter.path, true);
                Err(AttachError::Session(error))
            }
        }
    }

    /// What unmounts it, from another thread.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Serves until the file system is unmounted and its last user is gone. After an error it may
    /// still be mounted, but is not served any more: its users get ENOTCONN.
    pub fn serve(self) -> io::Result<()> {
        let Mount {
            device,
            adapter,
            threads,
            has_ring,
            ring_threads,
            polling,
            ..
        } = self;
        let (deferred, workers) = Deferred::new();
        // First what there is one of. Where a thread is missing nothing has been served yet, and
        // the connection goes with the last handle of the device.
        let waiting = workers.split(&adapter);
        let waiting = waiting.map(|(name, work)| spawn_worker(name, work));
        let waiting = waiting.into_iter().collect::<io::Result<Vec<_>>>()?;
        let mut running = Vec::new();
        if has_ring {
            let (device, adapter, deferred) = (device.clone(), adapter.clone(), deferred.clone());
            let serve = move || serve_forgets(&device, &adapter, &deferred);
            running.push(spawn("forget", serve)?);
        } else {
            running = start_readers(&device, &adapter, &deferred, polling.as_ref(), threads)?;
        }
        for RingThread { start, thread } in ring_threads {
            if has_ring {
                // A thread that is gone has told why; it is joined below.
                let _ = start.send((Arc::clone(&device), Arc::clone(&adapter), deferred.clone()));
                running.push(thread);
            }
        }
        // The workers end with the last of the others.
        drop((device, deferred));
        let mut result = Ok(());
        for thread in running {
            // A panic was logged where it happened.
            result = result.and(thread.join().unwrap_or(Ok(())));
        }
        // What still waits for a thaw belongs to users who are gone.
        adapter.thaw();
        for thread in waiting {
            let _ = thread.join();
        }
        result
    }
}

/// A clone of the device; where it cannot be cloned (no permission, no descriptor left) itself.
fn own_or_shared(device: &Arc<Device>) -> Arc<Device> {
    let clone = || device.clone_to(attach::open_device()?.into());
    clone().map_or_else(|_: io::Error| Arc::clone(device), Arc::new)
}

/// Starts threads that read the device: as many as there can be of those that are wanted.
fn start_readers(
    device: &Arc<Device>,
    adapter: &Arc<Adapter>,
    deferred: &Deferred,
    polling: Option<&Arc<Polling>>,
    threads: usize,
) -> io::Result<Vec<JoinHandle<io::Result<()>>>> {
    let mut running = Vec::with_capacity(threads);
    for number in 0..threads {
        let own = match number {
            0 => Arc::clone(device),
            _ => own_or_shared(device),
        };
        let (adapter, deferred) = (Arc::clone(adapter), deferred.clone());
        let polling = polling.cloned();
        let serve = move || own.serve(&adapter, &deferred, polling.as_deref());
        match spawn(&number.to_string(), serve) {
            Ok(thread) => running.push(thread),
            Err(error) if running.is_empty() => return Err(error),
            Err(error) => {
                log::warn!("served by {number} threads, not {threads}: {error}");
                break;
            }
        }
    }
    Ok(running)
}

fn spawn(
    name: &str,
    serve: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<JoinHandle<io::Result<()>>> {
    std::thread::Builder::new()
        .name(format!("{SERVER_THREAD_PREFIX}{name}"))
        .spawn(serve)
}

fn spawn_worker(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<io::Result<()>>> {
    spawn(name, move || {
        work();
        Ok(())
    })
}

/// Agrees with the kernel on how to go on.
fn shake_hands(device: &Device, requested: Requested) -> io::Result<Negotiated> {
    let mut buffer = request_buffer();
    loop {
        let Received::Request(message) = device.receive(&mut buffer)? else {
            return Err(io::Error::other("unmounted before it was ready"));
        };
        let unique = message.header.unique;
        if message.header.opcode != opcode::INIT {
            device.answer(unique, Err(libc::EIO));
            return Err(io::Error::other(
                "the kernel began with another request than INIT",
            ));
        }
        match answer_init(&message.header, message.fixed, message.rest, requested) {
            InitAnswer::Agreed(out, negotiated) => {
                device.answer(unique, Ok(out.as_bytes()));
                return Ok(negotiated);
            }
            InitAnswer::AskAgain(out) => device.answer(unique, Ok(out.as_bytes())),
            InitAnswer::TooOld => {
                device.answer(unique, Err(libc::EPROTO));
                return Err(io::Error::other(
                    "the kernel's FUSE is older than version 7",
                ));
            }
        }
    }
}

/// Starts threads that each have a place at a queue, for every CPU that the kernel counts: it uses
/// io_uring only when all queues have one. None where the kernel does not offer it.
fn take_seats(threads: Option<usize>) -> io::Result<Vec<RingThread>> {
    if !std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring")
        .is_ok_and(|text| text.trim() == "Y")
    {
        return Ok(Vec::new());
    }
    let queues = possible_cpus()?;
    let each = threads
        .map_or(THREADS_PER_QUEUE, |threads| threads.div_ceil(queues))
        .max(1);
    let (to_us, seated) = channel();
    let mut all = Vec::with_capacity(queues * each);
    for queue in 0..queues {
        for place in 0..each {
            let to_us = to_us.clone();
            let (start, started) = channel();
            let name = format!("{queue}.{place}");
            let thread = spawn(&name, move || ring_thread(queue as u16, &to_us, &started))?;
            all.push(RingThread { start, thread });
        }
    }
    for _ in 0..all.len() {
        seated.recv().map_err(io::Error::other)??;
    }
    Ok(all)
}

fn ring_thread(
    queue: u16,
    to_mount: &Sender<io::Result<()>>,
    started: &Receiver<Work>,
) -> io::Result<()> {
    let mut own = CpuSet::new();
    own.set(usize::from(queue));
    // Where this is refused (a CPU that is offline, or not ours), the wake-ups cost more.
    let _ = rustix::thread::sched_setaffinity(None, &own);
    let worker = match RingWorker::new(queue) {
        Ok(worker) => worker,
        Err(error) => {
            let _ = to_mount.send(Err(error));
            return Ok(());
        }
    };
    let _ = to_mount.send(Ok(()));
    match started.recv() {
        Ok((device, adapter, deferred)) => {
            worker.serve(&device, &adapter, &deferred).or_else(|error| {
                // Where the kernel refuses the place it goes on without io_uring, and needs
                // readers.
                log::error!("the queue of CPU {queue} lost a thread: {error}");
                own_or_shared(&device).serve(&adapter, &deferred, None)
            })
        }
        // The kernel did not want it after all.
        Err(_) => Ok(()),
    }
}

/// Serves what does not come through the ring: forgotten references, and whatever else before the
/// ring is ready or after the kernel has refused it.
fn serve_forgets(device: &Arc<Device>, adapter: &Adapter, deferred: &Deferred) -> io::Result<()> {
    let mut buffer = request_buffer();
    let mut space = vec![0; REQUEST_BYTES_MAX as usize];
    loop {
        rustix::fs::fcntl_setfl(device.as_fd(), OFlags::empty())?;
        let mut received = device.receive(&mut buffer)?;
        rustix::fs::fcntl_setfl(device.as_fd(), OFlags::NONBLOCK)?;
        loop {
            match received {
                Received::Request(message) => {
                    let is_forget =
                        matches!(message.header.opcode, opcode::FORGET | opcode::BATCH_FORGET);
                    device.serve_one(adapter, &message, &mut space, deferred);
                    if is_forget {
                        std::thread::sleep(FORGET_DELAY);
                    }
                }
                Received::Nothing => break,
                Received::End => {
                    // The others see the end at their entries. A thread whose entries are all away
                    // waits for their answers first, and these may wait for a thaw.
                    adapter.thaw();
                    return Ok(());
                }
            }
            received = device.receive(&mut buffer)?;
        }
    }
}

/// How many CPUs the kernel counts (those that may be plugged in included). It has as many queues,
/// and picks one by a CPU's number: with numbers left out that would not work.
fn possible_cpus() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    count_without_gaps(&text)
        .ok_or_else(|| io::Error::other(format!("no queues for the CPUs {:?}", text.trim())))
}

/// The length of a list such as `0-3`; `None` for one with gaps.
fn count_without_gaps(list: &str) -> Option<usize> {
    let last = match list.trim().split_once('-') {
        Some(("0", last)) => last,
        Some(_) => return None,
        None => list.trim(),
    };
    let last: usize = last.parse().ok()?;
    (last == 0 || list.contains('-')).then_some(last + 1)
}

/// Takes one certain mount away, and not another that came to be at its place.
#[derive(Clone, Debug)]
pub struct Unmounter {
    path: PathBuf,
    number: Option<(u32, u32)>,
}

impl Unmounter {
    /// Of what is mounted now at `path` (absolute, without symbolic links).
    pub fn of(path: &Path) -> Unmounter {
        let number = mount_at(path).ok().flatten().map(|mount| mount.device);
        Unmounter {
            path: path.to_owned(),
            number,
        }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts it; see [`detach`].
    pub fn unmount(&self, is_lazy: bool) -> Result<(), DetachError> {
        if !self.is_mounted() {
            return Err(DetachError::NotMounted);
        }
        detach(&self.path, is_lazy)
    }

    /// True while it is the topmost mount at its place.
    pub fn is_mounted(&self) -> bool {
        match mount_at(&self.path) {
            Ok(Some(mount)) => Some(mount.device) == self.number,
            _ => false,
        }
    }
}

/// As many threads as CPUs, within bounds. Measured with PostMark on two CPUs: with 8 clients two
/// threads take 15 % less time than one, and three or four more again; a single client pays for
/// the second thread (the kernel wakes waiting readers in turn, so each finds cold caches), but
/// with one thread a slow fsync would stop everybody.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |cpus| cpus.get().clamp(2, 16))
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use finefs_namespace::{MemoryStore, Options};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::abi::OutHeader;

    /// A socket in the place of /dev/fuse: no kernel takes a ring's command on it, and what is sent
    /// at its other end is read as requests are.
    fn not_a_fuse_device() -> (OwnedFd, OwnedFd) {
        let kind = SocketType::SEQPACKET;
        socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("sockets")
    }

    #[test]
    fn a_thread_whose_place_is_refused_reads_the_device() {
        let (kernel, ours) = not_a_fuse_device();
        let (to_us, seated) = channel();
        let (start, started) = channel();
        let thread = std::thread::spawn(move || ring_thread(0, &to_us, &started));
        if let Err(error) = seated.recv().expect("it answers") {
            eprintln!("skipped: no io_uring here: {error}");
            return;
        }
        let (deferred, _workers) = Deferred::new();
        start
            .send((Arc::new(Device::new(ours)), adapter(), deferred))
            .expect("it waits");
        ask(&kernel);
        is_answered(&kernel);
        // The end of the socket is nothing that a mount's end looks like: an error.
        drop(kernel);
        assert!(thread.join().expect("no panic").is_err());
    }

    /// GETATTR of the root, its number 9: the head, then 16 bytes.
    fn ask(kernel: &OwnedFd) {
        let mut request = [0_u8; 56];
        request[0] = 56;
        request[4] = opcode::GETATTR as u8;
        request[8] = 9;
        request[16] = 1;
        rustix::io::write(kernel, &request).expect("it is sent");
    }

    /// The attributes, as the answer to that.
    fn is_answered(kernel: &OwnedFd) {
        let limit = rustix::time::Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        let mut wanted = [rustix::event::PollFd::new(
            kernel,
            rustix::event::PollFlags::IN,
        )];
        let count = rustix::event::poll(&mut wanted, Some(&limit)).expect("it polls");
        assert_eq!(count, 1, "nobody serves the request");
        let mut answer = [0; 256];
        let length = rustix::io::read(kernel, &mut answer).expect("an answer");
        assert!(length > size_of::<OutHeader>(), "the attributes follow");
        let error = i32::from_le_bytes([answer[4], answer[5], answer[6], answer[7]]);
        assert_eq!((error, answer[8]), (0, 9), "no error, and to this request");
    }

    fn adapter() -> Arc<Adapter> {
        let store = MemoryStore::new(1 << 20, 0o755, 0, 0).expect("room");
        let namespace = Namespace::new(Arc::new(store), Options::default()).expect("a root");
        Arc::new(Adapter::new(namespace, Negotiated::default(), None))
    }

    #[test]
    fn a_device_without_requests_is_not_at_its_end() {
        let (kernel, ours) = not_a_fuse_device();
        rustix::fs::fcntl_setfl(&ours, OFlags::NONBLOCK).expect("it is ours");
        let (deferred, _workers) = Deferred::new();
        let device = Arc::new(Device::new(ours));
        let serving = std::thread::spawn(move || device.serve(&adapter(), &deferred, None));
        for _ in 0..2 {
            std::thread::sleep(std::time::Duration::from_millis(50));
            ask(&kernel);
            is_answered(&kernel);
        }
        drop(kernel);
        assert!(serving.join().expect("no panic").is_err());
    }

    #[test]
    fn cpus_are_counted() {
        assert_eq!(count_without_gaps("0-1\n"), Some(2));
        assert_eq!(count_without_gaps("0\n"), Some(1));
        for bad in ["0-3,8-11", "1-3", "5", "nothing", ""] {
            assert_eq!(count_without_gaps(bad), None, "{bad}");
        }
    }
}
