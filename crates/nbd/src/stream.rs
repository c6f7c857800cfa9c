//! A socket that waits no longer than it may.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::uri::Server;

/// How often who waits looks at the clock.
const TICK: Duration = Duration::from_millis(500);

/// The socket of a connection; read and written by several threads at once.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects within the time.
    pub fn connect(server: &Server, timeout: Duration) -> io::Result<Stream> {
        let tick = Some(TICK.min(timeout));
        match server {
            Server::Tcp(host, port) => {
                let mut outcome = Err(io::Error::other("the host has no address"));
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    outcome = TcpStream::connect_timeout(&address, timeout);
                    if outcome.is_ok() {
                        break;
                    }
                }
                let stream = outcome?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(tick)?;
                stream.set_write_timeout(tick)?;
                Ok(Stream::Tcp(stream))
            }
            Server::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(tick)?;
                stream.set_write_timeout(tick)?;
                Ok(Stream::Unix(stream))
            }
        }
    }

    /// Ends both directions: who waits for it is woken.
    pub fn shut_down(&self) {
        // One that has ended already is what is wanted.
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Reads some bytes, at least one, before `deadline`.
    pub fn read_some(&self, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
        loop {
            let outcome = match self {
                Stream::Tcp(stream) => (&mut &*stream).read(buffer),
                Stream::Unix(stream) => (&mut &*stream).read(buffer),
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
                Stream::Tcp(stream) => (&mut &*stream).write_vectored(parts),
                Stream::Unix(stream) => (&mut &*stream).write_vectored(parts),
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

/// What was received and not looked at yet, by the one thread that receives.
#[derive(Debug, Default)]
pub(crate) struct Input {
    buffer: Vec<u8>,
    start: usize,
}

/// So much is received at once where short replies come.
const BUFFER_BYTES: usize = 64 << 10;

impl Input {
    /// Fills `to`.
    pub fn read_exact(
        &mut self,
        stream: &Stream,
        to: &mut [u8],
        deadline: Instant,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < to.len() {
            let held = &self.buffer[self.start..];
            if !held.is_empty() {
                let length = held.len().min(to.len() - done);
                to[done..done + length].copy_from_slice(&held[..length]);
                self.start += length;
                done += length;
            } else if to.len() - done >= BUFFER_BYTES {
                done += stream.read_some(&mut to[done..], deadline)?;
            } else {
                self.buffer.resize(BUFFER_BYTES, 0);
                let length = stream.read_some(&mut self.buffer, deadline);
                // Nothing of it counts after an error.
                self.buffer.truncate(*length.as_ref().unwrap_or(&0));
                self.start = 0;
                length?;
            }
        }
        Ok(())
    }

    /// A number of so many bytes, as an array.
    pub fn read_array<const N: usize>(
        &mut self,
        stream: &Stream,
        deadline: Instant,
    ) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(stream, &mut bytes, deadline)?;
        Ok(bytes)
    }
}
