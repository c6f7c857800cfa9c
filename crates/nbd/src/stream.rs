//! What a connection sends and receives by, with or without TLS.

use std::io::{self, IoSlice};
use std::sync::OnceLock;
use std::time::Instant;

use crate::socket::Socket;
use crate::tls::{Credentials, Session};
use crate::uri::NbdUri;

/// One thread may send while another receives.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: Socket,
    /// Set where it has been agreed on.
    tls: OnceLock<Session>,
}

impl Stream {
    /// Connects within the time.
    pub fn connect(uri: &NbdUri) -> io::Result<Stream> {
        Ok(Stream {
            socket: Socket::connect(uri)?,
            tls: OnceLock::new(),
        })
    }

    /// From now on all goes through TLS.
    pub fn secure(&self, credentials: &Credentials, deadline: Instant) -> io::Result<()> {
        let session = Session::open(&self.socket, credentials, deadline)?;
        self.tls
            .set(session)
            .map_err(|_| io::Error::other("it is secured already"))
    }

    /// Ends both directions: who waits for it is woken.
    pub fn shut_down(&self) {
        self.socket.shut_down();
    }

    /// Reads some bytes, at least one, before `deadline`.
    pub fn read_some(&self, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
        match self.tls.get() {
            Some(session) => session.read_some(&self.socket, buffer, deadline),
            None => self.socket.read_some(buffer, deadline),
        }
    }

    /// Writes all parts before `deadline`.
    pub fn write_all(&self, parts: &mut [IoSlice<'_>], deadline: Instant) -> io::Result<()> {
        match self.tls.get() {
            Some(session) => session.write_all(&self.socket, parts, deadline),
            None => self.socket.write_all(parts, deadline),
        }
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

    /// True when all that came has been looked at.
    pub fn is_empty(&self) -> bool {
        self.start == self.buffer.len()
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
