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

/// Sockets that listen at these addresses.
pub(crate) fn sockets(addresses: &[SocketAddr]) -> io::Result<Vec<UdpSocket>> {
    let bound = addresses.iter().map(|address| {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    });
    bound.collect()
}

/// The life of the thread that answers them, until `stop` is readable.
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
            // An error of a socket is one of an answer that did not arrive.
            while let Ok((length, client)) = socket.recv_from(&mut call) {
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
