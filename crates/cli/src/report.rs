//! How the server tells `finefs umount` the result of the final write-out.
//!
//! `finefs umount` binds a datagram socket in the abstract namespace, named after the image's
//! device and inode number, before it unmounts. The server, at its very end and before the
//! image's lock goes, sends one datagram there: nothing in it for success, else the error. Nobody
//! listening is no error. Where the two do not share a network namespace no report arrives, and
//! `finefs umount` looks at the image instead.
//!
//! Nothing but a message to the user hangs on a report, so who sends it is not checked.
//!
//! # References
//! unix(7), "Address format".

use std::fs::Metadata;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A datagram's size that any error line fits into.
const LINE_BYTES_MAX: usize = 4096;

/// Where the report about an image goes.
#[derive(Clone, Debug)]
pub(crate) struct Address(SocketAddr);

impl Address {
    /// Of the image with this metadata.
    pub(crate) fn of(image: &Metadata) -> io::Result<Address> {
        let name = format!("finefs/umount/{:x}/{:x}", image.dev(), image.ino());
        SocketAddr::from_abstract_name(name).map(Address)
    }

    /// Sends the result to whoever listens.
    pub(crate) fn send(&self, result: &Result<(), String>) {
        let line = match result {
            Ok(()) => "",
            Err(line) => &line[..line.floor_char_boundary(LINE_BYTES_MAX)],
        };
        if let Ok(socket) = UnixDatagram::unbound() {
            let _ = socket.set_nonblocking(true);
            let _ = socket.send_to_addr(line.as_bytes(), &self.0);
        }
    }

    /// Starts to listen; `None` when somebody else does already.
    pub(crate) fn listen(&self) -> Option<Listener> {
        let socket = UnixDatagram::bind_addr(&self.0).ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Listener(socket))
    }
}

/// Who waits for a report.
pub(crate) struct Listener(UnixDatagram);

impl Listener {
    /// The report, if one has come.
    pub(crate) fn take(&self) -> Option<Result<(), String>> {
        let mut line = [0; LINE_BYTES_MAX];
        let length = self.0.recv(&mut line).ok()?;
        if length == 0 {
            return Some(Ok(()));
        }
        Some(Err(String::from_utf8_lossy(&line[..length]).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_arrive() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let address = Address::of(&image.as_file().metadata().unwrap()).unwrap();
        // Nobody listens yet.
        address.send(&Ok(()));
        let listener = address.listen().unwrap();
        assert!(address.listen().is_none());
        assert_eq!(listener.take(), None);
        address.send(&Ok(()));
        assert_eq!(listener.take(), Some(Ok(())));
        address.send(&Err("disk on fire".into()));
        assert_eq!(listener.take(), Some(Err("disk on fire".into())));
        address.send(&Err("x".repeat(10_000)));
        assert_eq!(listener.take().unwrap().unwrap_err().len(), LINE_BYTES_MAX);
    }
}
