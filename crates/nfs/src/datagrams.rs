//! Calls that come by UDP: of the port mapper, the lock manager and the status monitor, which many
//! systems ask that way and no other. NFS itself is for TCP.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use finefs_namespace::guard::guarded;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;

use crate::faults::Fault;
use crate::procedures::Waits;
use crate::replies::Replies;
use crate::service::{Answer, Sender, Service};
use crate::xdr::Writer;

/// The longest call; those that are taken are a few hundred bytes.
const CALL_MAX: usize = 4096;

/// Calls of one socket that are answered before it is the turn of the others.
const IN_A_ROW_MAX: usize = 64;

/// Sockets that listen at these addresses.
pub(crate) fn sockets(addresses: &[SocketAddr]) -> io::Result<Vec<UdpSocket>> {
    let bound = addresses.iter().map(|address| {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    });
    bound.collect()
}

/// The life of the thread that answers them, until `stop` is readable. None is answered from when
/// the server says that it ends.
pub(crate) fn serve(sockets: &[UdpSocket], stop: &OwnedFd, service: &Service, waits: &dyn Waits) {
    let (mut call, mut out) = (vec![0; CALL_MAX], Writer::default());
    loop {
        let mut events: Vec<PollFd<'_>> = sockets
            .iter()
            .map(|socket| PollFd::new(socket, PollFlags::IN))
            .collect();
        events.push(PollFd::new(stop, PollFlags::IN));
        let _ = poll(&mut events, None);
        let is_ready = |event: &PollFd<'_>| !event.revents().is_empty();
        if events.last().is_some_and(is_ready) {
            return;
        }
        for socket in sockets {
            for _ in 0..IN_A_ROW_MAX {
                if waits.is_stopping() {
                    break;
                }
                // An error of a socket is one of an answer that did not arrive.
                let Ok((length, client)) = socket.recv_from(&mut call) else {
                    break;
                };
                let is_answered = guarded("an NFS call by UDP", || {
                    answer(socket, client, &call[..length], &mut out, service, waits)
                });
                if is_answered == Some(true) {
                    let _ = socket.send_to(out.bytes(), client);
                }
            }
        }
    }
}

/// Carries out a call; true when there is an answer.
fn answer(
    socket: &UdpSocket,
    client: SocketAddr,
    call: &[u8],
    out: &mut Writer,
    service: &Service,
    waits: &dyn Waits,
) -> bool {
    let is_served = service.exports.all().iter();
    if !is_served
        .into_iter()
        .any(|export| export.admits(client.ip()))
    {
        return false;
    }
    let sender = Sender {
        address: client.ip(),
        port: client.port(),
        server: towards(socket, client),
        is_datagram: true,
        replies: &Replies::new(),
        connection: &Arc::new(()),
    };
    out.cut(0);
    let answer = service.answer(&sender, call, out, waits);
    Fault::Connection.strike(call);
    matches!(answer, Answer::Reply(_))
}

/// The address of this machine that a client sees.
fn towards(socket: &UdpSocket, client: SocketAddr) -> IpAddr {
    let own = socket.local_addr().map(|own| own.ip());
    let is_known = |own: &IpAddr| !own.is_unspecified();
    own.ok().filter(is_known).unwrap_or_else(|| {
        let any = SocketAddr::new(
            match client {
                SocketAddr::V4(_) => IpAddr::from([0u8; 4]),
                SocketAddr::V6(_) => IpAddr::from([0u16; 8]),
            },
            0,
        );
        let asked = UdpSocket::bind(any).and_then(|asked| {
            asked.connect(client)?;
            asked.local_addr()
        });
        asked.map_or(client.ip(), |asked| asked.ip())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use finefs_namespace::{MemoryStore, Options};
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::export::{Export, ExportOptions, Exports, Served};
    use crate::locks::{self, Locking};
    use crate::options::LockOptions;

    const PATIENCE: Duration = Duration::from_secs(60);
    /// As many as fit into a socket.
    const CALLS: u32 = 2 * IN_A_ROW_MAX as u32;

    /// A server that ends when it was asked so often whether it does.
    struct Ends<'s> {
        asked: AtomicUsize,
        after: usize,
        stop: &'s OwnedFd,
    }

    impl Waits for Ends<'_> {
        fn begin_wait(&self) {}
        fn end_wait(&self) {}

        fn is_stopping(&self) -> bool {
            let is_stopping = self.asked.fetch_add(1, Ordering::SeqCst) >= self.after;
            if is_stopping {
                let _ = rustix::io::write(self.stop, &1u64.to_ne_bytes());
            }
            is_stopping
        }
    }

    fn service() -> Service {
        let store = MemoryStore::new(16 << 20, 0o755, 0, 0).unwrap();
        let export = Export::new(Served {
            name: "/".into(),
            namespace: store.into_namespace(Options::default()).unwrap(),
            options: ExportOptions::default(),
        });
        let exports = Arc::new(Exports::new(vec![export]).unwrap());
        let locking = Locking::new(Arc::clone(&exports), &LockOptions::default());
        Service::new(exports, locking.unwrap(), None)
    }

    /// A call of NULL: no credential, no verifier.
    fn null(xid: u32) -> Vec<u8> {
        let words = [xid, 0, 2, locks::PROGRAM, locks::VERSION, 0, 0, 0, 0, 0];
        words.map(u32::to_be_bytes).concat()
    }

    /// Makes [`CALLS`] calls at one socket and then one at another; gives the answers of a server
    /// that ends so, in their order.
    fn answered(ends_after: usize) -> Vec<u32> {
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let sockets = sockets(&[here, here]).unwrap();
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let ends = Ends {
            asked: AtomicUsize::new(0),
            after: ends_after,
            stop: &stop,
        };
        let client = UdpSocket::bind(here).unwrap();
        let pause = Duration::from_millis(20);
        client.set_read_timeout(Some(pause)).unwrap();
        for xid in 0..=CALLS {
            let to = sockets[usize::from(xid == CALLS)].local_addr();
            client.send_to(&null(xid), to.unwrap()).unwrap();
        }
        let service = service();
        let mut answered = Vec::new();
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| serve(&sockets, &stop, &service, &ends));
            let begun = Instant::now();
            loop {
                let is_over = serving.is_finished()
                    || answered.len() > CALLS as usize
                    || begun.elapsed() > PATIENCE;
                let mut reply = [0; 100];
                match client.recv(&mut reply) {
                    Ok(_) => answered.push(u32::from_be_bytes(*reply.first_chunk().unwrap())),
                    Err(_) if is_over => break,
                    Err(_) => {}
                }
            }
            let _ = rustix::io::write(&stop, &1u64.to_ne_bytes());
        });
        answered
    }

    #[test]
    fn many_calls_at_one_socket_keep_none_at_another_waiting() {
        let answered = answered(usize::MAX);
        assert_eq!(answered.len(), CALLS as usize + 1);
        let other = answered.iter().position(|xid| *xid == CALLS);
        assert!(other.unwrap() <= IN_A_ROW_MAX, "{other:?}");
    }

    #[test]
    fn the_end_of_the_server_does_not_wait_for_the_end_of_calls() {
        let expected: Vec<u32> = (0..10).collect();
        assert_eq!(answered(expected.len()), expected);
    }
}
