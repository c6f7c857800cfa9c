//! A socket that waits no longer than it may.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::protocol;
use crate::uri::{NbdUri, Server};

/// How often who waits looks at the clock.
const TICK: Duration = Duration::from_millis(500);

/// What connects to a server instead of this process.
type Dialer = fn(&str) -> io::Result<OwnedFd>;

static DIALER: OnceLock<Dialer> = OnceLock::new();

/// From now on `dialer` connects to servers, for a process that may not do so any more by itself
/// (a confined one): it is given the URL, and has another process do what [`dial`] does. Only the
/// first one counts.
pub fn dial_by(dialer: Dialer) {
    let _ = DIALER.set(dialer);
}

/// Connects to the server of an export, and no more.
///
/// # Errors
/// In the words that a user knows.
pub fn dial(uri: &NbdUri) -> io::Result<OwnedFd> {
    let connected = match &uri.server {
        Server::Tcp(host, port) => connect_tcp(host, *port, uri.timeout).map(OwnedFd::from),
        Server::Unix(path) => UnixStream::connect(path).map(OwnedFd::from),
    };
    connected.map_err(protocol::plain)
}

fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut outcome = Err(io::Error::other("the host has no address"));
    for address in (host, port).to_socket_addrs()? {
        outcome = TcpStream::connect_timeout(&address, timeout);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// The socket of a connection; read and written by several threads at once.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub fn connect(uri: &NbdUri) -> io::Result<Socket> {
        let connected = match DIALER.get() {
            Some(dialer) => dialer(&uri.text)?,
            None => dial(uri)?,
        };
        let tick = Some(TICK.min(uri.timeout));
        match uri.server {
            Server::Tcp(..) => {
                let stream = TcpStream::from(connected);
                stream.set_nodelay(true)?;
                stream.set_read_timeout(tick)?;
                stream.set_write_timeout(tick)?;
                Ok(Socket::Tcp(stream))
            }
            Server::Unix(_) => {
                let stream = UnixStream::from(connected);
                stream.set_read_timeout(tick)?;
                stream.set_write_timeout(tick)?;
                Ok(Socket::Unix(stream))
            }
        }
    }

    pub fn shut_down(&self) {
        // One that has ended already is what is wanted.
        let _ = match self {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Reads some bytes, at least one, before `deadline`.
    pub fn read_some(&self, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
        loop {
            let outcome = match self {
                Socket::Tcp(stream) => (&mut &*stream).read(buffer),
                Socket::Unix(stream) => (&mut &*stream).read(buffer),
            };
            match outcome {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) if Instant::now() < deadline => return Ok(length),
                Ok(_) => return Err(io::ErrorKind::TimedOut.into()),
                Err(error) => check_time(error, deadline)?,
            }
        }
    }

    /// Writes all parts before `deadline`.
    pub fn write_all(&self, mut parts: &mut [IoSlice<'_>], deadline: Instant) -> io::Result<()> {
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            let outcome = match self {
                Socket::Tcp(stream) => (&mut &*stream).write_vectored(parts),
                Socket::Unix(stream) => (&mut &*stream).write_vectored(parts),
            };
            match outcome {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) if Instant::now() >= deadline => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Ok(length) => IoSlice::advance_slices(&mut parts, length),
                Err(error) => check_time(error, deadline)?,
            }
        }
        Ok(())
    }
}

/// Goes on after a tick, until there is no time left.
fn check_time(error: io::Error, deadline: Instant) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut if Instant::now() < deadline => Ok(()),
        io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
        io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}
