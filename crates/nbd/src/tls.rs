//! TLS over a connection (`nbds://`): what is sent is encrypted, what comes is decrypted, and the
//! server's certificate is for its name.
//!
//! # Data model
//! A [`Session`] holds the state of both directions. It is locked while bytes are encrypted or
//! decrypted, never over I/O, so that one thread may wait for replies while others send.
//!
//! # Certificates
//! `tls-certificates=DIR` is laid out as for libnbd and qemu: `ca-cert.pem` says whom to trust;
//! `client-cert.pem` and `client-key.pem`, if they are there, say who this client is. Without it
//! the machine's certificates say whom to trust.
//!
//! # References
//! RFC 8446 (TLS 1.3), which rustls speaks; the NBD protocol, "TLS support".

use std::io::{self, IoSlice, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use finefs_locks::{LockClass, Mutex};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::socket::Socket;
use crate::uri::Security;

/// The state of a connection with TLS.
pub static TLS: LockClass = LockClass::new("nbd.tls", 92);

/// So much is decrypted or encrypted at once.
const PIECE_BYTES: usize = 64 << 10;

/// Whom to trust, and who this client is: read once, since later connections may be made by a
/// process that opens no files any more.
pub(crate) struct Credentials {
    config: Arc<ClientConfig>,
    host: ServerName<'static>,
}

impl Credentials {
    pub fn load(security: &Security) -> io::Result<Credentials> {
        let host = ServerName::try_from(security.host.clone())
            .map_err(|_| io::Error::other(format!("{} is no host name", security.host)))?;
        Ok(Credentials {
            config: Arc::new(config(security.certificates.as_deref())?),
            host,
        })
    }
}

/// A connection's TLS.
pub(crate) struct Session {
    state: Mutex<State>,
}

struct State {
    connection: ClientConnection,
    /// What came and is not decrypted yet, from `start` on.
    received: Vec<u8>,
    start: usize,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

impl Session {
    /// Agrees with the server.
    pub fn open(
        socket: &Socket,
        credentials: &Credentials,
        deadline: Instant,
    ) -> io::Result<Session> {
        let Credentials { config, host } = credentials;
        let connection = ClientConnection::new(Arc::clone(config), host.clone()).map_err(wrong)?;
        let session = Session {
            state: Mutex::new(
                &TLS,
                State {
                    connection,
                    received: Vec::new(),
                    start: 0,
                },
            ),
        };
        loop {
            let (to_send, is_over) = {
                let connection = &mut session.state.lock().connection;
                (encrypted(connection)?, !connection.is_handshaking())
            };
            socket.write_all(&mut [IoSlice::new(&to_send)], deadline)?;
            if is_over {
                return Ok(session);
            }
            // The server sends more at once than is decrypted in one go where its certificates are
            // long.
            if session.state.lock().decrypt()? {
                continue;
            }
            session.receive(socket, deadline)?;
        }
    }

    /// Reads some bytes, at least one; by one thread at a time.
    pub fn read_some(
        &self,
        socket: &Socket,
        buffer: &mut [u8],
        deadline: Instant,
    ) -> io::Result<usize> {
        loop {
            {
                let state = &mut *self.state.lock();
                match state.connection.reader().read(buffer) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read,
                }
                if state.decrypt()? {
                    continue;
                }
            }
            self.receive(socket, deadline)?;
        }
    }

    /// Takes what comes, at least a byte, and decrypts of it what fits. All that came before must
    /// be decrypted.
    fn receive(&self, socket: &Socket, deadline: Instant) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.state.lock().received);
        buffer.resize(PIECE_BYTES, 0);
        let length = socket.read_some(&mut buffer, deadline)?;
        buffer.truncate(length);
        let state = &mut *self.state.lock();
        (state.received, state.start) = (buffer, 0);
        state.decrypt()?;
        Ok(())
    }

    /// Writes all parts; by one thread at a time.
    pub fn write_all(
        &self,
        socket: &Socket,
        parts: &[IoSlice<'_>],
        deadline: Instant,
    ) -> io::Result<()> {
        let mut to_send = Vec::new();
        for part in parts {
            for piece in part.chunks(PIECE_BYTES / 2) {
                {
                    let connection = &mut self.state.lock().connection;
                    connection.writer().write_all(piece)?;
                    to_send.append(&mut encrypted(connection)?);
                }
                if to_send.len() >= PIECE_BYTES {
                    socket.write_all(&mut [IoSlice::new(&to_send)], deadline)?;
                    to_send.clear();
                }
            }
        }
        socket.write_all(&mut [IoSlice::new(&to_send)], deadline)
    }
}

impl State {
    /// Decrypts some of what came; false where there is nothing.
    fn decrypt(&mut self) -> io::Result<bool> {
        let mut rest = &self.received[self.start..];
        if rest.is_empty() {
            return Ok(false);
        }
        let before = rest.len();
        self.connection.read_tls(&mut rest)?;
        self.start += before - rest.len();
        self.connection.process_new_packets().map_err(wrong)?;
        Ok(true)
    }
}

/// What the connection has to send.
fn encrypted(connection: &mut ClientConnection) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut bytes)?;
    }
    Ok(bytes)
}

fn wrong(error: rustls::Error) -> io::Error {
    io::Error::other(format!("TLS: {error}"))
}

/// Whom to trust, and who this client is.
fn config(certificates: Option<&Path>) -> io::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(wrong)?;
    let mut roots = RootCertStore::empty();
    let Some(dir) = certificates else {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err(io::Error::other(
                "this machine has no certificates to trust; install the package ca-certificates, \
                 or give tls-certificates=DIR",
            ));
        }
        return Ok(builder.with_root_certificates(roots).with_no_client_auth());
    };
    for certificate in read_certificates(&dir.join("ca-cert.pem"))? {
        roots.add(certificate).map_err(wrong)?;
    }
    let builder = builder.with_root_certificates(roots);
    let (own, key) = (dir.join("client-cert.pem"), dir.join("client-key.pem"));
    if !own.exists() && !key.exists() {
        return Ok(builder.with_no_client_auth());
    }
    let secret = PrivateKeyDer::from_pem_file(&key).map_err(|error| of_file(&key, error))?;
    builder
        .with_client_auth_cert(read_certificates(&own)?, secret)
        .map_err(wrong)
}

fn read_certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let fail = |error| of_file(path, error);
    let all = CertificateDer::pem_file_iter(path).map_err(fail)?;
    all.collect::<Result<_, _>>().map_err(fail)
}

fn of_file(path: &Path, error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}
