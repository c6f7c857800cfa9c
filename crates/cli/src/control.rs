//! Talking to the server of a mount: `finefs freeze` and `finefs thaw`.
//!
//! The server listens on a stream socket in the abstract namespace, named after the mount's device number, which
//! nothing else has while it is mounted. A client sends one word and a line's end; the answer is one line, empty
//! for success. Each side looks at who the other is (SO_PEERCRED): the server obeys root and its own user, and the
//! client asks only a server of root's or of its own user's.
//!
//! # References
//! unix(7), "Address format", SO_PEERCRED.

use std::io::{self, BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Args;
use finefs::{Error, Namespace};

use crate::umount::find;
use crate::{CliResult, Failure, progress};

/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a client waits for a server that does not listen yet.
const START_PATIENCE: Duration = Duration::from_secs(1);

/// What can be asked of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    Freeze,
    Thaw,
}

impl Request {
    fn word(self) -> &'static str {
        match self {
            Request::Freeze => "freeze",
            Request::Thaw => "thaw",
        }
    }

    fn of(word: &str) -> Option<Request> {
        [Request::Freeze, Request::Thaw]
            .into_iter()
            .find(|request| request.word() == word)
    }
}

/// Names a mount that is to be frozen or thawed
#[derive(Args)]
pub(crate) struct Target {
    /// The directory that it is mounted at, or the image
    #[arg(value_name = "DIR")]
    target: PathBuf,
}

impl Target {
    pub(crate) fn ask(self, request: Request) -> CliResult<()> {
        let mount = find(&self.target)?;
        let place = mount.path.display().to_string();
        let fail = |error: io::Error| Failure::new(format!("{place}: its server: {error}"));
        let word = request.word();
        let asked = progress::during(&format!("{word} {place}"), || ask(mount.device, request));
        match asked.map_err(fail)?.as_str() {
            "" => Ok(()),
            line => Err(Failure::new(format!("{place}: {line}"))),
        }
    }
}

fn address((major, minor): (u32, u32)) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("finefs/control/{major}:{minor}"))
}

fn may_talk(stream: &UnixStream) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?.uid;
    if peer.is_root() || peer == rustix::process::geteuid() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "belongs to another user",
    ))
}

fn ask(device: (u32, u32), request: Request) -> io::Result<String> {
    let address = address(device)?;
    let deadline = Instant::now() + START_PATIENCE;
    let mut stream = loop {
        match UnixStream::connect_addr(&address) {
            // A mount is there a moment before its server listens.
            Err(error)
                if error.kind() == io::ErrorKind::ConnectionRefused
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            connected => break connected?,
        }
    };
    may_talk(&stream)?;
    stream.write_all(format!("{}\n", request.word()).as_bytes())?;
    let mut line = String::new();
    if BufReader::new(stream).read_line(&mut line)? == 0 {
        return Err(io::Error::other("it ended without an answer"));
    }
    Ok(line.trim_end().to_owned())
}

/// Listens until it is dropped.
pub(crate) struct Listener {
    socket: UnixListener,
    thread: Option<JoinHandle<()>>,
}

/// Listens for the mount with this device number. Where that is impossible the mount cannot be frozen, and is as
/// good as without.
pub(crate) fn listen(device: (u32, u32), namespace: &Arc<Namespace>) -> Option<Listener> {
    match try_listen(device, Arc::clone(namespace)) {
        Ok(listener) => Some(listener),
        Err(error) => {
            log::warn!("no control socket: {error}");
            None
        }
    }
}

fn try_listen(device: (u32, u32), namespace: Arc<Namespace>) -> io::Result<Listener> {
    let address = address(device)?;
    let deadline = Instant::now() + PATIENCE;
    let socket = loop {
        match UnixListener::bind_addr(&address) {
            // The kernel gives a number again as soon as its mount is gone; the server takes a moment longer.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            bound => break bound?,
        }
    };
    let incoming = socket.try_clone()?;
    let thread = std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            // Ends with the first error: the socket is shut down.
            for stream in incoming.incoming().map_while(Result::ok) {
                if let Err(error) = serve(stream, &namespace) {
                    log::warn!("control socket: {error}");
                }
            }
        })?;
    Ok(Listener {
        socket,
        thread: Some(thread),
    })
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Wakes the thread; it has nothing else to fail at.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // A panic was logged where it happened.
            let _ = thread.join();
        }
    }
}

fn serve(stream: UnixStream, namespace: &Namespace) -> io::Result<()> {
    may_talk(&stream)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(&stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let answer = match Request::of(line.trim_end()) {
        Some(request) => answer(request, namespace),
        None => "unknown request".to_owned(),
    };
    (&stream).write_all(format!("{answer}\n").as_bytes())
}

/// Does what was asked; gives a line for the user, empty for success.
fn answer(request: Request, namespace: &Namespace) -> String {
    let done = match request {
        Request::Freeze => namespace.freeze(),
        Request::Thaw => namespace.thaw(),
    };
    match done {
        Ok(()) => {
            log::info!("{}: done", request.word());
            String::new()
        }
        Err(Error::Busy) => "is frozen already".to_owned(),
        Err(Error::Invalid) => "is not frozen".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_does_what_it_is_asked() {
        let namespace = finefs::open_memory(1 << 20, 0o755, 0, 0, finefs::Options::default());
        let namespace = namespace.unwrap();
        // No mount has this number.
        let device = (0xfff, std::process::id());
        assert!(ask(device, Request::Thaw).is_err());
        let listener = listen(device, &namespace);
        assert_eq!(ask(device, Request::Thaw).unwrap(), "is not frozen");
        assert_eq!(ask(device, Request::Freeze).unwrap(), "");
        assert!(namespace.is_frozen());
        assert_eq!(ask(device, Request::Freeze).unwrap(), "is frozen already");
        assert_eq!(ask(device, Request::Thaw).unwrap(), "");
        assert!(!namespace.is_frozen());
        drop(listener);
        assert!(ask(device, Request::Freeze).is_err());
    }
}
