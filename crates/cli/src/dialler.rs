//! New connections to NBD servers for a confined server (`reconnect-delay=` in the URL).
//!
//! A confined process connects to nobody. Landlock could leave it one TCP port, but of every host,
//! and a unix socket only together with all others. So its attendant connects for it and hands the
//! socket over. It was told of the exports before, and takes the number of one of them: a server
//! that was taken over is connected to where it was connected before, and to nothing else.
//!
//! The protocol: the server sends a byte, the number; the answer is a byte, 0 with the socket
//! beside it, or 1 with the reason behind it in UTF-8.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;

use finefs_locks::{LockClass, Mutex};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// One connection at a time is asked for.
pub(crate) static DIALLER_LOCK: LockClass = LockClass::new("cli.dialler", 98).held_over_io();

/// Longer than any answer.
const ANSWER_BYTES_MAX: usize = 1024;

/// What the server asks by.
pub(crate) struct Dialler {
    socket: Mutex<OwnedFd>,
    exports: Vec<PathBuf>,
}

/// What the attendant answers by.
pub(crate) struct Dialling {
    socket: OwnedFd,
    exports: Vec<PathBuf>,
}

/// Of this process, once it is confined.
static DIALLER: OnceLock<Dialler> = OnceLock::new();

/// Both ends, to be parted by a fork.
pub(crate) fn pair(exports: Vec<PathBuf>) -> io::Result<(Dialler, Dialling)> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // What is relative is so to the directory that finefs was started in.
    let absolute = exports.iter().map(|name| finefs_disk::absolute(name));
    let dialling = Dialling {
        socket: theirs,
        exports: absolute.collect(),
    };
    let dialler = Dialler {
        socket: Mutex::new(&DIALLER_LOCK, ours),
        exports,
    };
    Ok((dialler, dialling))
}

impl Dialler {
    /// From now on this process connects through it.
    pub(crate) fn begin(self) {
        if DIALLER.set(self).is_ok() {
            finefs_disk::connect_by(|name| match DIALLER.get() {
                Some(dialler) => dialler.connect(name),
                None => Err(io::ErrorKind::NotConnected.into()),
            });
        }
    }

    fn connect(&self, name: &str) -> io::Result<OwnedFd> {
        let is_it = |export: &PathBuf| export.as_os_str() == name;
        let number = self.exports.iter().position(is_it);
        let number = number.and_then(|number| u8::try_from(number).ok());
        let number = number.ok_or(io::ErrorKind::PermissionDenied)?;
        let mut bytes = [0; ANSWER_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let length = {
            let socket = self.socket.lock();
            rustix::io::write(&*socket, &[number])?;
            let mut parts = [IoSliceMut::new(&mut bytes)];
            recvmsg(&*socket, &mut parts, &mut beside, RecvFlags::CMSG_CLOEXEC)?.bytes
        };
        let descriptors = beside.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        match (
            bytes[..length].split_first(),
            descriptors.and_then(|mut all| all.next()),
        ) {
            (Some((0, _)), Some(descriptor)) => Ok(descriptor),
            (Some((_, reason)), _) => Err(io::Error::other(String::from_utf8_lossy(reason))),
            (None, _) => Err(io::Error::other("the process that connects has ended")),
        }
    }
}

impl Dialling {
    /// Connects until the server has ended.
    pub(crate) fn attend(self) {
        let mut number = [0];
        while let Ok(1) = rustix::io::retry_on_intr(|| rustix::io::read(&self.socket, &mut number))
        {
            let connected = match self.exports.get(usize::from(number[0])) {
                Some(name) => finefs_disk::connect(name),
                None => Err(io::ErrorKind::PermissionDenied.into()),
            };
            if self.answer(connected).is_err() {
                return;
            }
        }
    }

    fn answer(&self, connected: io::Result<OwnedFd>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let mut bytes = vec![u8::from(connected.is_err())];
        let descriptor;
        match &connected {
            Ok(socket) => {
                descriptor = [socket.as_fd()];
                beside.push(SendAncillaryMessage::ScmRights(&descriptor));
            }
            Err(error) => bytes.extend(error.to_string().bytes().take(ANSWER_BYTES_MAX - 1)),
        }
        let parts = [IoSlice::new(&bytes)];
        sendmsg(&self.socket, &parts, &mut beside, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn connections_go_to_what_was_told_and_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let url = |name: &str| {
            let socket = directory.path().join(name);
            format!("nbd+unix:///?reconnect-delay=1&socket={}", socket.display())
        };
        let told = ["none", "there"].map(|name| PathBuf::from(url(name)));
        let (dialler, dialling) = pair(told.to_vec()).unwrap();
        let thread = std::thread::spawn(move || dialling.attend());
        let listener = UnixListener::bind(directory.path().join("there")).unwrap();
        let other = UnixListener::bind(directory.path().join("other")).unwrap();
        other.set_nonblocking(true).unwrap();
        for _ in 0..3 {
            let mut connected = UnixStream::from(dialler.connect(&url("there")).unwrap());
            let (mut accepted, _) = listener.accept().unwrap();
            connected.write_all(b"word").unwrap();
            let mut word = [0; 4];
            accepted.read_exact(&mut word).unwrap();
            assert_eq!(&word, b"word");
        }
        let refused = dialler.connect(&url("none")).unwrap_err().to_string();
        assert_eq!(refused, "there is no such socket");
        let refused = dialler.connect(&url("other")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        // A number that stands for nothing.
        rustix::io::write(&*dialler.socket.lock(), &[2]).unwrap();
        let mut answer = [0; 64];
        let length = rustix::io::read(&*dialler.socket.lock(), &mut answer).unwrap();
        assert_eq!(&answer[..length], b"\x01permission denied");
        assert!(other.accept().is_err());
        drop(dialler);
        thread.join().unwrap();
    }
}
