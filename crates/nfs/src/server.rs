//! The server: a socket, threads, and the end.
//!
//! # Threads
//! | thread | does |
//! |---|---|
//! | `nfs-accept` | takes connections in, and out when they are stale |
//! | `nfs-0`, `nfs-1`, ... | wait for any connection, and serve a call of it |
//!
//! There is no queue: the thread that reads a call carries it out and sends the reply. The sockets
//! are in one epoll instance, edge-triggered, so that one thread is woken for what comes, and no
//! system call arms a socket again. See `connection` for how several threads share one.
//!
//! A thread that waits for the disk (COMMIT, stable writes, changes of names) says so, and when too
//! few are left that do not, another one is started, up to [`THREADS_MAX`].

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use finefs_locks::{Mutex, cpu};
use finefs_namespace::Namespace;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::fd::OwnedFd;

use crate::classes;
use crate::connection::{Connection, Next};
use crate::export::{Export, ExportOptions};
use crate::procedures::Waits;
use crate::record::{Record, put_mark};
use crate::service::{Answer, Sender, Service};
use crate::table::Table;
use crate::xdr::Writer;

/// The most connections.
const CONNECTIONS_MAX: usize = 4096;
/// Threads beside those that wait for the disk, for each CPU.
const THREADS_PER_CPU: usize = 2;
/// The most threads.
const THREADS_MAX: usize = 128;
/// The name of a thread that serves begins so.
pub const SERVER_THREAD_PREFIX: &str = "nfs-";
/// What epoll says when the server is to stop.
const STOP: u64 = u64::MAX;
/// A reply buffer that has grown beyond this is given back when its thread has nothing to do.
const REPLY_KEPT_BYTES: usize = 2 << 20;

/// A file system that is served until [`Server::stop`].
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

struct Shared {
    itself: Weak<Shared>,
    service: Service,
    table: Table,
    epoll: OwnedFd,
    /// Readable when the server is to stop.
    stop: OwnedFd,
    is_stopping: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// How many there are, and how many of them wait for the disk.
    thread_count: AtomicUsize,
    waiting: AtomicUsize,
    /// Threads that should not wait, at least.
    spare: usize,
}

impl Server {
    /// Serves `namespace` at `address`, where port 0 is any that is free.
    pub fn start(
        namespace: Arc<Namespace>,
        address: SocketAddr,
        options: ExportOptions,
    ) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(
            &epoll,
            &stop,
            epoll::EventData::new_u64(STOP),
            epoll::EventFlags::IN,
        )?;
        let shared = Arc::new_cyclic(|itself| Shared {
            itself: Weak::clone(itself),
            service: Service::new(Export::new(namespace, options)),
            table: Table::new(CONNECTIONS_MAX),
            epoll,
            stop,
            is_stopping: AtomicBool::new(false),
            threads: Mutex::new(&classes::THREADS, Vec::new()),
            thread_count: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            spare: (THREADS_PER_CPU * cpu::count()).clamp(2, THREADS_MAX),
        });
        let threads: io::Result<()> = (0..shared.spare).try_for_each(|_| shared.add_thread());
        let for_accepting = Arc::clone(&shared);
        let accepting = threads.and_then(|()| {
            std::thread::Builder::new()
                .name("nfs-accept".into())
                .spawn(move || for_accepting.accept(&listener))
        });
        match accepting {
            Ok(accepting) => Ok(Server {
                shared,
                address,
                accepting,
            }),
            Err(error) => {
                shared.end_threads();
                Err(error)
            }
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends: calls that are under way are carried out, no others. The file system is as it was; its
    /// owner shuts it down.
    pub fn stop(self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        // It fails only when it has been told so often before.
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        // A panic was logged where it happened.
        let _ = self.accepting.join();
        self.shared.end_threads();
    }
}

impl Shared {
    fn add_thread(&self) -> io::Result<()> {
        let Some(itself) = self.itself.upgrade() else {
            return Ok(());
        };
        let number = self.thread_count.fetch_add(1, Ordering::AcqRel);
        let thread = std::thread::Builder::new()
            .name(format!("{SERVER_THREAD_PREFIX}{number}"))
            .spawn(move || itself.work());
        match thread {
            Ok(thread) => self.threads.lock().push(thread),
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
        loop {
            // One of them may start another meanwhile.
            let threads = std::mem::take(&mut *self.threads.lock());
            if threads.is_empty() {
                break;
            }
            for thread in threads {
                let _ = thread.join();
            }
        }
        for place in self.table.places() {
            if let Some(connection) = self.table.get(place) {
                self.close(place, &connection);
            }
        }
    }

    /// The life of a thread that serves.
    fn work(&self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1);
        let mut record = Record::default();
        let mut out = Writer::default();
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
                let place = place as usize;
                if let Some(connection) = self.table.get(place) {
                    self.serve(place, &connection, &mut record, &mut out);
                }
            }
            if out.capacity() > REPLY_KEPT_BYTES {
                out = Writer::default();
            }
        }
    }

    /// Serves calls of a connection until none is left for this thread.
    fn serve(
        &self,
        place: usize,
        connection: &Arc<Connection>,
        record: &mut Record,
        out: &mut Writer,
    ) {
        let mut is_told = true;
        loop {
            match connection.next(record, is_told) {
                Next::Serve { has_more } => {
                    if has_more {
                        self.wake_for(place, connection);
                    }
                    let is_sound = self.answer(connection, record, out);
                    connection.done();
                    if !is_sound {
                        return self.close(place, connection);
                    }
                }
                Next::Leave => return,
                Next::Close => return self.close(place, connection),
            }
            if self.is_stopping.load(Ordering::Acquire) {
                return;
            }
            is_told = false;
        }
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

    /// Carries out a call and sends the reply; false when the connection is to be closed.
    fn answer(&self, connection: &Arc<Connection>, record: &Record, out: &mut Writer) -> bool {
        let sender = Sender {
            address: connection.client.address,
            replies: &connection.client.replies,
            connection,
        };
        out.cut(0);
        // The mark of the record.
        out.u32(0);
        match self.service.answer(&sender, record.bytes(), out, self) {
            Answer::Reply(also) => {
                put_mark(out.at(0));
                for other in also.iter().filter(|other| !Arc::ptr_eq(other, connection)) {
                    let _ = other.send(out.bytes());
                }
                connection.send(out.bytes()).is_ok()
            }
            Answer::Later => true,
            Answer::Close => false,
        }
    }

    fn close(&self, place: usize, connection: &Arc<Connection>) {
        if connection.close() {
            let _ = epoll::delete(&self.epoll, connection.stream());
            self.table.remove(place, connection);
        }
    }

    /// The life of the thread that takes connections in.
    fn accept(&self, listener: &TcpListener) {
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        while !self.is_stopping.load(Ordering::Acquire) {
            let mut events = [
                PollFd::new(listener, PollFlags::IN),
                PollFd::new(&self.stop, PollFlags::IN),
            ];
            let _ = poll(&mut events, Some(&second));
            loop {
                match listener.accept() {
                    Ok((stream, address)) => self.take_in(stream, address),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) => {
                        // Out of descriptors: some may be closed soon.
                        log::warn!("nfs: a connection cannot be accepted: {error}");
                        std::thread::sleep(std::time::Duration::from_millis(100));
                        break;
                    }
                }
            }
            self.close_stale();
        }
    }

    fn take_in(&self, stream: TcpStream, address: SocketAddr) {
        if !self.service.export.admits(address.ip()) {
            log::info!("nfs: {address} is none of the clients that this is served to");
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

/// What epoll tells of a connection.
fn interest() -> epoll::EventFlags {
    epoll::EventFlags::IN
        | epoll::EventFlags::OUT
        | epoll::EventFlags::RDHUP
        | epoll::EventFlags::ET
}

impl Waits for Shared {
    fn begin_wait(&self) {
        let waiting = self.waiting.fetch_add(1, Ordering::AcqRel) + 1;
        let threads = self.thread_count.load(Ordering::Acquire);
        let is_short = threads < THREADS_MAX && threads < waiting + self.spare;
        if is_short
            && !self.is_stopping.load(Ordering::Acquire)
            && let Err(error) = self.add_thread()
        {
            log::warn!("nfs: cannot start a thread: {error}");
        }
    }

    fn end_wait(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}
