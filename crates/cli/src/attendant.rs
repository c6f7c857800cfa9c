//! The attendant: a process beside a confined server that does what the server no longer may.
//!
//! It unmounts (which takes rights, or the set-uid helper fusermount3), and removes the server's
//! socket. In the background it is the watcher (`background`), in the foreground a process of its
//! own. It acts on what it was told before the server was confined, and then takes two orders
//! without arguments, so a server that was taken over can make it do nothing but end the mount. It
//! also connects to the servers of exports that it was told of (`dialler`).
//!
//! The protocol is a line of JSON each way over a pair of sockets. The attendant ends when the
//! server has.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use finefs_fuse::{DetachError, Unmounter};
use serde::{Deserialize, Serialize};

use crate::dialler::{self, Dialler, Dialling};
use crate::runtime_dir::Socket;

/// Longer than any order.
const ORDER_BYTES_MAX: u64 = 64 << 10;

#[derive(Serialize, Deserialize)]
enum Order {
    /// It is mounted, and this is its socket. Heeded once.
    Begin(Option<Socket>),
    Unmount {
        is_lazy: bool,
    },
    RemoveSocket,
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Done,
    Busy,
    NotPermitted,
    NotMounted,
    Failed(String),
}

impl From<Result<(), DetachError>> for Answer {
    fn from(result: Result<(), DetachError>) -> Answer {
        match result {
            Ok(()) => Answer::Done,
            Err(DetachError::Busy) => Answer::Busy,
            Err(DetachError::NotPermitted) => Answer::NotPermitted,
            Err(DetachError::NotMounted) => Answer::NotMounted,
            Err(DetachError::Other(reason)) => Answer::Failed(reason),
        }
    }
}

impl From<Answer> for Result<(), DetachError> {
    fn from(answer: Answer) -> Result<(), DetachError> {
        Err(match answer {
            Answer::Done => return Ok(()),
            Answer::Busy => DetachError::Busy,
            Answer::NotPermitted => DetachError::NotPermitted,
            Answer::NotMounted => DetachError::NotMounted,
            Answer::Failed(reason) => DetachError::Other(reason),
        })
    }
}

/// What an attendant is for.
#[derive(Default)]
pub(crate) struct Charge {
    /// The mount, if there is one.
    pub mount_point: Option<PathBuf>,
    /// Exports to which lost connections are made again.
    pub exports: Vec<PathBuf>,
}

impl Charge {
    /// Of these images, those that are such exports.
    pub(crate) fn of<'a>(
        mount_point: Option<PathBuf>,
        images: impl Iterator<Item = &'a PathBuf>,
    ) -> Charge {
        let exports = images.filter(|image| finefs_disk::is_reconnecting(image.as_os_str()));
        Charge {
            mount_point,
            exports: exports.cloned().collect(),
        }
    }
}

/// The attendant, as its server sees it.
pub(crate) struct Attendant {
    orders: UnixStream,
    dialler: Option<Dialler>,
}

/// The attendant's own end.
pub(crate) struct Attending {
    server: UnixStream,
    mount_point: Option<PathBuf>,
    dialling: Option<Dialling>,
}

/// Both ends, to be parted by a fork.
pub(crate) fn pair(charge: Charge) -> io::Result<(Attendant, Attending)> {
    let (orders, server) = UnixStream::pair()?;
    let dials = match charge.exports.is_empty() {
        true => None,
        false => Some(dialler::pair(charge.exports)?),
    };
    let (dialler, dialling) = dials.unzip();
    let attending = Attending {
        server,
        mount_point: charge.mount_point,
        dialling,
    };
    Ok((Attendant { orders, dialler }, attending))
}

impl Attendant {
    /// It is mounted: the attendant remembers what, and has the socket from now on.
    pub(crate) fn begin(&self, socket: Option<Socket>) -> Result<(), DetachError> {
        let order = Order::Begin(socket);
        let begun = self.ask(&order);
        if let (Ok(()), Order::Begin(Some(socket))) = (&begun, order) {
            socket.leave();
        }
        begun
    }

    /// From now on it connects to the servers of exports.
    pub(crate) fn connect_from_now_on(&mut self) {
        if let Some(dialler) = self.dialler.take() {
            dialler.begin();
        }
    }

    /// See [`unmount`].
    pub(crate) fn unmount(&self, is_lazy: bool) -> Result<(), DetachError> {
        self.ask(&Order::Unmount { is_lazy })
    }

    /// Where the attendant is gone, so is what would remove it.
    pub(crate) fn remove_socket(&self) {
        let _ = self.ask(&Order::RemoveSocket);
    }

    fn ask(&self, order: &Order) -> Result<(), DetachError> {
        let asked =
            send(&self.orders, order).and_then(|()| receive(&mut BufReader::new(&self.orders)));
        match asked {
            Ok(Some(answer)) => Answer::into(answer),
            Ok(None) => Err(DetachError::Other("the attendant has ended".to_owned())),
            Err(error) => Err(DetachError::Other(format!("the attendant: {error}"))),
        }
    }
}

impl Attending {
    /// Carries out orders until the server has ended.
    pub(crate) fn attend(self) {
        if let Some(dialling) = self.dialling {
            std::thread::spawn(move || dialling.attend());
        }
        let mut orders = BufReader::new(&self.server);
        let mut mount = None;
        let mut socket = None;
        while let Ok(Some(order)) = receive::<Order>(&mut orders) {
            let answer = match (order, &mount) {
                (Order::Begin(new), None) if let Some(place) = &self.mount_point => {
                    mount = Some(Unmounter::of(place));
                    socket = new;
                    Answer::Done
                }
                (Order::Unmount { is_lazy }, Some(mount)) => unmount(mount, is_lazy).into(),
                (Order::RemoveSocket, Some(_)) => {
                    socket = None;
                    Answer::Done
                }
                _ => Answer::NotPermitted,
            };
            if send(&self.server, &answer).is_err() {
                break;
            }
        }
        // It is no use when the server has died.
        drop(socket);
    }
}

/// Unmounts it. Lazily, the kernel first sends what it has not written yet (write-back cache,
/// shared mappings).
pub(crate) fn unmount(mount: &Unmounter, is_lazy: bool) -> Result<(), DetachError> {
    if is_lazy {
        fetch_dirty_pages(mount.path());
    }
    mount.unmount(is_lazy)
}

fn fetch_dirty_pages(path: &Path) {
    if let Ok(directory) = File::open(path) {
        let _ = rustix::fs::syncfs(&directory);
    }
}

fn send(mut to: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// `None` when the other end is gone.
fn receive<T: for<'a> Deserialize<'a>>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    let mut limited = from.take(ORDER_BYTES_MAX);
    limited.read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_taken_after_the_beginning_and_the_socket_goes_once() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("mnt");
        std::fs::create_dir(&place).unwrap();
        let (attendant, attending) = pair(Charge::of(Some(place), [].iter())).unwrap();
        let thread = std::thread::spawn(move || attending.attend());
        let refused = attendant.unmount(false);
        assert!(matches!(refused, Err(DetachError::NotPermitted)));
        let places = [directory.path().join("place")];
        let owner = rustix::process::geteuid();
        let (socket, _listener) = Socket::listen_in(&places, "name", owner).unwrap();
        let name = socket.path();
        attendant.begin(Some(socket)).unwrap();
        assert!(name.exists());
        let again = attendant.begin(None);
        assert!(matches!(again, Err(DetachError::NotPermitted)));
        for is_lazy in [false, true] {
            let refused = attendant.unmount(is_lazy);
            assert!(matches!(refused, Err(DetachError::NotMounted)));
        }
        attendant.remove_socket();
        assert!(!name.exists());
        drop(attendant);
        thread.join().unwrap();
    }

    #[test]
    fn the_socket_of_a_dead_server_goes() {
        let directory = tempfile::tempdir().unwrap();
        let (attendant, attending) =
            pair(Charge::of(Some(directory.path().to_owned()), [].iter())).unwrap();
        let thread = std::thread::spawn(move || attending.attend());
        let places = [directory.path().join("place")];
        let owner = rustix::process::geteuid();
        let (socket, _listener) = Socket::listen_in(&places, "name", owner).unwrap();
        let name = socket.path();
        attendant.begin(Some(socket)).unwrap();
        drop(attendant);
        thread.join().unwrap();
        assert!(!name.exists());
    }
}
