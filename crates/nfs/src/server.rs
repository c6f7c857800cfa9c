//! The server: a socket, threads, and the end.
//!
//! # Threads
//! | thread | does |
//! |---|---|
//! | `nfs-accept` | takes connections in, and out when they are stale |
//! | `nfs-0`, `nfs-1`, ... | wait for any connection, and serve calls of it |
//! | `nfs-udp` | serves calls by UDP |
//! | `nfs-lockd-0`, ... | call clients back about locks |
//!
//! There is no queue: the thread that reads calls carries them out and sends the replies (`turn`).
//! The sockets are in one epoll instance, edge-triggered, so that one thread is woken for what
//! comes, and no system call arms a socket again. See `connection` for how several threads share
//! one.
//!
//! A thread that waits for the disk (COMMIT, stable writes, changes of names) says so, and when too
//! few are left that do not, another one is started, up to [`THREADS_MAX`]. One that is in the same
//! call after [`STUCK_AFTER`] counts as waiting, too (`progress`): READs whose NBD server is away
//! must not keep all threads from other exports. A thread that was not needed for so long as
//! [`KEPT`] ends when it has been woken: more threads than CPUs that do not wait get into each
//! other's way.
//!
//! A panic ends no thread. In a call it costs the call, which is answered with an error; outside of
//! one it costs the connection, which its client opens again.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use finefs_locks::{Mutex, cpu};
use finefs_namespace::Namespace;
use finefs_namespace::guard::{LogLimit, guarded};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Resource, getrlimit};

use crate::classes;
use crate::connection::{Connection, Told};
use crate::datagrams;
use crate::export::{Export, ExportOptions, Exports, Served};
use crate::faults::Fault;
use crate::locks::{HeldLock, Locking};
use crate::options::{Rpcbind, ServerOptions};
use crate::portmap;
use crate::procedures::Waits;
use crate::progress::{Progress, Seen};
use crate::service::Service;
use crate::table::{ConnectedClient, Table};
use crate::turn::{self, Threads};

/// The most connections.
const CONNECTIONS_MAX: usize = 4096;
/// Files that the process may have open beside those of connections: images, listeners, calls of
/// clients.
const OTHER_FILES: usize = 128;
/// Threads beside those that wait for the disk, for each CPU.
const THREADS_PER_CPU: usize = 2;
/// Threads that call clients back: so many clients that do not answer hold up the others.
const LOCK_THREADS: usize = 4;
/// A thread that is in one call for so long counts as waiting, when somebody looks.
const STUCK_AFTER: Duration = Duration::from_millis(200);
/// Threads are kept for so long when fewer wait for the disk.
const KEPT: Duration = Duration::from_secs(1);
/// The most threads.
const THREADS_MAX: usize = 128;
/// What epoll says when the server is to stop.
const STOP: u64 = u64::MAX;

/// File systems that are served until [`Server::stop`].
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// All but those that serve connections.
    others: Mutex<Vec<JoinHandle<()>>>,
    /// Known to the rpcbind of the machine.
    registered: Option<portmap::Map>,
}

struct Shared {
    itself: Weak<Shared>,
    service: Service,
    table: Table,
    epoll: OwnedFd,
    /// Readable when the server is to stop.
    stop: OwnedFd,
    is_stopping: AtomicBool,
    threads: Mutex<Vec<Worker>>,
    /// How many there are, and how many of them wait for the disk, as they have told.
    thread_count: AtomicUsize,
    waiting: AtomicUsize,
    /// How many others were long in one call at the last look.
    stuck: AtomicUsize,
    /// The most that waited at a time since somebody looked.
    most_waiting: AtomicUsize,
    /// The same of the time before.
    lately_waiting: AtomicUsize,
    /// Threads that should not wait, at least.
    spare: usize,
    /// Of what is said of clients that are refused.
    log_limit: LogLimit,
}

/// A thread that serves connections.
struct Worker {
    thread: JoinHandle<()>,
    progress: Arc<Progress>,
}

impl Server {
    /// Serves `namespace` alone at `address`, where port 0 is any that is free.
    pub fn start(
        namespace: Arc<Namespace>,
        address: SocketAddr,
        options: ExportOptions,
    ) -> io::Result<Server> {
        let served = Served {
            name: "/".into(),
            namespace,
            options,
        };
        Server::start_all(vec![served], &ServerOptions::at(address))
    }

    /// Serves file systems, which must have different names and UUIDs.
    pub fn start_all(served: Vec<Served>, options: &ServerOptions) -> io::Result<Server> {
        let exports = Exports::new(served.into_iter().map(Export::new).collect());
        let exports = Arc::new(exports.map_err(io::Error::other)?);
        let listener = TcpListener::bind(options.address)?;
        let address = listener.local_addr()?;
        let (mut listeners, mut places) = (vec![listener], vec![address]);
        let (mut port_map, mut registered) = (None, None);
        match options.rpcbind {
            None => {}
            Some(Rpcbind::Register) => registered = Some(portmap::Map::new(address.port())),
            Some(Rpcbind::Serve(rpcbind)) => {
                let listener = TcpListener::bind(rpcbind)?;
                let own = listener.local_addr()?;
                listeners.push(listener);
                places.push(own);
                port_map = Some(portmap::Map::new(address.port()).with_itself(own.port()));
            }
        }
        for listener in &listeners {
            listener.set_nonblocking(true)?;
        }
        let sockets = datagrams::sockets(&places)?;
        let locking = Locking::new(Arc::clone(&exports), &options.locks)?;
        let service = Service::new(exports, locking, port_map);
        let shared = Shared::new(service)?;
        let mut server = Server {
            shared,
            address,
            others: Mutex::new(&classes::THREADS, Vec::new()),
            registered: None,
        };
        match server.start_threads(listeners, sockets, registered) {
            Ok(()) => Ok(server),
            Err(error) => {
                server.stop();
                Err(error)
            }
        }
    }

    fn start_threads(
        &mut self,
        listeners: Vec<TcpListener>,
        sockets: Vec<std::net::UdpSocket>,
        registered: Option<portmap::Map>,
    ) -> io::Result<()> {
        let spawn = |name: String, work: Box<dyn FnOnce(&Shared) + Send>| {
            let shared = Arc::clone(&self.shared);
            let named = std::thread::Builder::new().name(name);
            named.spawn(move || work(&shared))
        };
        (0..self.shared.spare).try_for_each(|_| self.shared.add_thread())?;
        let accept = Box::new(move |shared: &Shared| shared.accept(&listeners));
        let mut others = vec![spawn("nfs-accept".into(), accept)?];
        let datagrams = Box::new(move |shared: &Shared| {
            datagrams::serve(&sockets, &shared.stop, &shared.service, shared);
        });
        others.push(spawn("nfs-udp".into(), datagrams)?);
        for number in 0..LOCK_THREADS {
            let work = Box::new(|shared: &Shared| shared.service.locking.work());
            others.push(spawn(format!("nfs-lockd-{number}"), work)?);
        }
        *self.others.lock() = others;
        if let Some(map) = registered {
            map.register().map_err(|error| {
                let what = "the rpcbind of this machine does not take the programs";
                io::Error::new(error.kind(), format!("{what}: {error}"))
            })?;
            self.registered = Some(map);
        }
        Ok(())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The client machines that are connected.
    pub fn clients(&self) -> Vec<ConnectedClient> {
        self.shared.table.clients()
    }

    /// The locks that clients have.
    pub fn locks(&self) -> Vec<HeldLock> {
        self.shared.service.locking.held()
    }

    /// Ends: calls that are under way are carried out, no others. The file systems are as they
    /// were, without the clients' locks; their owners shut them down.
    pub fn stop(self) {
        self.end();
    }

    /// [`Server::stop`] of one that others still look at.
    pub fn end(&self) {
        if let Some(Err(error)) = self.registered.as_ref().map(portmap::Map::unregister) {
            log::warn!("nfs: rpcbind still knows the programs: {error}");
        }
        self.shared.end_threads();
        self.shared.service.locking.stop();
        for thread in std::mem::take(&mut *self.others.lock()) {
            // A panic was logged where it happened.
            let _ = thread.join();
        }
        // The one that accepts connections may have started others.
        self.shared.join_threads();
        self.shared.service.locking.release_all();
    }
}

/// As many connections as the process may have files for.
fn connections_max() -> usize {
    let files = getrlimit(Resource::Nofile).current;
    let files = files.map_or(usize::MAX, |files| files as usize);
    files.saturating_sub(OTHER_FILES).clamp(1, CONNECTIONS_MAX)
}

impl Shared {
    fn new(service: Service) -> io::Result<Arc<Shared>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(
            &epoll,
            &stop,
            epoll::EventData::new_u64(STOP),
            epoll::EventFlags::IN,
        )?;
        Ok(Arc::new_cyclic(|itself| Shared {
            itself: Weak::clone(itself),
            service,
            table: Table::new(connections_max()),
            epoll,
            stop,
            log_limit: LogLimit::default(),
            is_stopping: AtomicBool::new(false),
            threads: Mutex::new(&classes::THREADS, Vec::new()),
            thread_count: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            stuck: AtomicUsize::new(0),
            most_waiting: AtomicUsize::new(0),
            lately_waiting: AtomicUsize::new(0),
            spare: (THREADS_PER_CPU * cpu::count()).clamp(2, THREADS_MAX),
        }))
    }

    fn add_thread(&self) -> io::Result<()> {
        let Some(itself) = self.itself.upgrade() else {
            return Ok(());
        };
        let number = self.thread_count.fetch_add(1, Ordering::AcqRel);
        let progress = Arc::new(Progress::default());
        let buffers = turn::Buffers::new(Arc::clone(&progress));
        let thread = std::thread::Builder::new()
            .name(format!("nfs-{number}"))
            .spawn(move || itself.work(buffers));
        match thread {
            Ok(thread) => {
                let mut threads = self.threads.lock();
                threads.retain(|worker| !worker.thread.is_finished());
                threads.push(Worker { thread, progress });
            }
            Err(error) => {
                self.thread_count.fetch_sub(1, Ordering::AcqRel);
                return Err(error);
            }
        }
        Ok(())
    }

    fn end_threads(&self) {
        self.is_stopping.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        self.join_threads();
        for place in self.table.places() {
            if let Some(connection) = self.table.get(place) {
                self.close(place, &connection);
            }
        }
    }

    /// Waits for the end of those that serve.
    fn join_threads(&self) {
        loop {
            // One of them may start another meanwhile.
            let threads = std::mem::take(&mut *self.threads.lock());
            if threads.is_empty() {
                break;
            }
            for worker in threads {
                let _ = worker.thread.join();
            }
        }
    }

    /// The life of a thread that serves.
    fn work(&self, mut buffers: turn::Buffers) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    log::error!("nfs: waiting for clients: {error}");
                    return;
                }
            }
            for event in &events {
                let place = event.data.u64();
                if place == STOP {
                    return;
                }
                let flags = event.flags;
                let told = match flags.intersects(ENDED) {
                    true => Told::Ended,
                    false => Told::Ready,
                };
                let place = place as usize;
                let Some(connection) = self.table.get(place) else {
                    continue;
                };
                let served = guarded("serving an NFS connection", || {
                    turn::serve(self, place, &connection, told, &mut buffers);
                });
                if served.is_none() {
                    self.close(place, &connection);
                }
            }
            buffers.shrink();
            if self.is_one_too_many() {
                return;
            }
        }
    }

    /// True for a thread that is to end, which is no longer counted.
    fn is_one_too_many(&self) -> bool {
        let counts = [&self.waiting, &self.most_waiting, &self.lately_waiting];
        let waiting = counts.map(|count| count.load(Ordering::Acquire));
        let needed = waiting.into_iter().max().unwrap_or(0) + self.spare;
        let one_less = |threads| (threads > needed).then(|| threads - 1);
        self.thread_count.load(Ordering::Acquire) > needed
            && self
                .thread_count
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less)
                .is_ok()
    }

    /// How many threads do not serve: those that have told that they wait, and those that were long
    /// in one call at the last look.
    fn not_serving(&self) -> usize {
        self.waiting.load(Ordering::Acquire) + self.stuck.load(Ordering::Acquire)
    }

    /// Counts the threads that are long in one call, and starts others in their place. Gives how
    /// long after this it is to be looked again: [`STUCK_AFTER`] while any is in a call.
    fn look_at_calls(&self) -> Duration {
        let (mut busy, mut stuck) = (0, 0);
        for worker in self.threads.lock().iter() {
            match worker.progress.look() {
                Seen::Free => {}
                Seen::Busy => busy += 1,
                Seen::Stuck => stuck += 1,
            }
        }
        self.stuck.store(stuck, Ordering::Release);
        if stuck > 0 {
            let missing = self.not_serving();
            self.most_waiting.fetch_max(missing, Ordering::AcqRel);
            let needed = (missing + self.spare).min(THREADS_MAX);
            let there = self.thread_count.load(Ordering::Acquire);
            (there..needed).for_each(|_| self.add_thread_unless_stopping());
        }
        if busy + stuck > 0 { STUCK_AFTER } else { KEPT }
    }

    fn add_thread_unless_stopping(&self) {
        if !self.is_stopping.load(Ordering::Acquire)
            && let Err(error) = self.add_thread()
        {
            log::warn!("nfs: cannot start a thread: {error}");
        }
    }

    /// Another [`KEPT`] begins.
    fn look_at_waiting(&self) {
        let waiting = self.not_serving();
        let most = self.most_waiting.swap(waiting, Ordering::AcqRel);
        self.lately_waiting.store(most, Ordering::Release);
    }

    /// The life of the thread that takes connections in.
    fn accept(&self, listeners: &[TcpListener]) {
        let (mut looked, mut looked_at_calls) = (Instant::now(), Instant::now());
        let mut look_after = KEPT;
        while !self.is_stopping.load(Ordering::Acquire) {
            if looked_at_calls.elapsed() >= look_after {
                look_after = self.look_at_calls();
                looked_at_calls = Instant::now();
            }
            if looked.elapsed() >= KEPT {
                looked = Instant::now();
                self.look_at_waiting();
                guarded("closing NFS connections", || self.close_stale());
            }
            let mut events: Vec<PollFd<'_>> = listeners
                .iter()
                .map(|listener| PollFd::new(listener, PollFlags::IN))
                .collect();
            events.push(PollFd::new(&self.stop, PollFlags::IN));
            let until_look = Timespec {
                tv_sec: look_after.as_secs() as i64,
                tv_nsec: look_after.subsec_nanos().into(),
            };
            let _ = poll(&mut events, Some(&until_look));
            guarded("accepting NFS connections", || {
                listeners
                    .iter()
                    .for_each(|listener| self.take_all(listener));
            });
        }
    }

    fn take_all(&self, listener: &TcpListener) {
        loop {
            match listener.accept() {
                Ok((stream, address)) => self.take_in(stream, address),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // Out of descriptors: some may be closed soon.
                    log::warn!("nfs: a connection cannot be accepted: {error}");
                    std::thread::sleep(Duration::from_millis(100));
                    break;
                }
            }
        }
    }

    fn take_in(&self, stream: TcpStream, address: SocketAddr) {
        Fault::strike_client(address.ip());
        let mut exports = self.service.exports.all().iter();
        if !exports.any(|export| export.admits(address.ip())) {
            if self.log_limit.may_log() {
                log::warn!("nfs: {address} is refused: none of the clients that this is served to");
            }
            return;
        }
        let prepared = stream
            .set_nonblocking(true)
            .and_then(|()| stream.set_nodelay(true))
            .and_then(|()| Ok(rustix::net::sockopt::set_socket_keepalive(&stream, true)?));
        if let Err(error) = prepared {
            log::warn!("nfs: {address}: {error}");
            return;
        }
        match self.table.add(stream, address.ip()) {
            Ok((place, connection)) => {
                let data = epoll::EventData::new_u64(place as u64);
                let added = epoll::add(&self.epoll, connection.stream(), data, interest());
                if let Err(error) = added {
                    log::warn!("nfs: {address}: {error}");
                    self.close(place, &connection);
                }
            }
            Err(full) => log::debug!("nfs: {address}: too many connections ({full:?})"),
        }
    }

    fn close_stale(&self) {
        for place in self.table.places() {
            if let Some(connection) = self.table.get(place)
                && connection.is_stale()
            {
                self.close(place, &connection);
            }
        }
    }
}

/// What epoll tells when the client sends no more.
const ENDED: epoll::EventFlags = epoll::EventFlags::RDHUP
    .union(epoll::EventFlags::HUP)
    .union(epoll::EventFlags::ERR);

/// What epoll tells of a connection.
fn interest() -> epoll::EventFlags {
    epoll::EventFlags::IN
        | epoll::EventFlags::OUT
        | epoll::EventFlags::RDHUP
        | epoll::EventFlags::ET
}

impl Threads for Shared {
    fn service(&self) -> &Service {
        &self.service
    }

    /// Wakes another thread for a connection: setting what is waited for makes epoll look again,
    /// and there is nearly always room to send.
    fn wake_for(&self, place: usize, connection: &Connection) {
        // It fails where the connection was closed meanwhile.
        let _ = epoll::modify(
            &self.epoll,
            connection.stream(),
            epoll::EventData::new_u64(place as u64),
            interest(),
        );
    }

    fn close(&self, place: usize, connection: &Arc<Connection>) {
        if connection.close() {
            let _ = epoll::delete(&self.epoll, connection.stream());
            self.table.remove(place, connection);
        }
    }
}

impl Waits for Shared {
    fn begin_wait(&self) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let waiting = self.not_serving();
        if waiting > self.most_waiting.load(Ordering::Relaxed) {
            self.most_waiting.fetch_max(waiting, Ordering::AcqRel);
        }
        let threads = self.thread_count.load(Ordering::Acquire);
        if threads < THREADS_MAX && threads < waiting + self.spare {
            self.add_thread_unless_stopping();
        }
    }

    fn end_wait(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests;
