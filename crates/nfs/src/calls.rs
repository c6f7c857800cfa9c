//! Calls of clients: to their lock managers, their monitors, and the rpcbind that knows the ports
//! of both.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::record::put_mark;
use crate::rpc;
use crate::xdr::{Reader, Writer};

/// How long a client may take to accept a connection, and to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// The longest answer that is read.
const ANSWER_MAX: usize = 4096;

/// The port mapper, which rpcbind is as well: its number, the procedure that tells a port, and what
/// it calls the protocols.
pub(crate) const PORTMAP: u32 = 100_000;
pub(crate) const GETPORT: u32 = 3;
pub(crate) const TCP: u32 = 6;
pub(crate) const UDP: u32 = 17;

/// A program that is called.
#[derive(Clone, Copy)]
pub(crate) struct Program {
    pub number: u32,
    pub version: u32,
}

/// From where to where.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub client: IpAddr,
    /// The address of this server that the client uses: it may take no calls from another.
    pub server: IpAddr,
    /// The port of the client's rpcbind.
    pub rpcbind_port: u16,
}

/// Calls a procedure of a client's program; gives the result.
pub(crate) fn call(
    route: &Route,
    program: Program,
    procedure: u32,
    arguments: &[u8],
) -> io::Result<Vec<u8>> {
    let mut ask = Writer::default();
    for word in [program.number, program.version, TCP, 0] {
        ask.u32(word);
    }
    let rpcbind = Program {
        number: PORTMAP,
        version: 2,
    };
    let rpcbind_at = SocketAddr::new(route.client, route.rpcbind_port);
    let found = call_at(route.server, rpcbind_at, rpcbind, GETPORT, ask.bytes())?;
    let port = Reader::new(&found).u32().ok();
    let port = port.and_then(|port| u16::try_from(port).ok());
    match port.filter(|port| *port != 0) {
        Some(port) => {
            let at = SocketAddr::new(route.client, port);
            call_at(route.server, at, program, procedure, arguments)
        }
        None => Err(io::Error::other("its rpcbind does not know the program")),
    }
}

/// Calls a procedure at a known port.
pub(crate) fn call_at(
    server: IpAddr,
    at: SocketAddr,
    program: Program,
    procedure: u32,
    arguments: &[u8],
) -> io::Result<Vec<u8>> {
    let mut stream = connect(server, at)?;
    call_on(&mut stream, program, procedure, arguments)
}

/// The same on a connection.
pub(crate) fn call_on(
    stream: &mut TcpStream,
    program: Program,
    procedure: u32,
    arguments: &[u8],
) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut out = Writer::default();
    out.u32(0);
    // Each call has a connection of its own.
    let xid = 1;
    rpc::call(&mut out, xid, (program.number, program.version, procedure));
    out.raw(arguments);
    put_mark(out.at(0));
    stream.write_all(out.bytes())?;
    let mut answer = Vec::new();
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        let length = (mark & !(1 << 31)) as usize;
        if answer.len() + length > ANSWER_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let start = answer.len();
        answer.resize(start + length, 0);
        stream.read_exact(&mut answer[start..])?;
        if mark >> 31 == 1 {
            break;
        }
    }
    let mut reader = Reader::new(&answer);
    match rpc::read_reply(&mut reader) {
        Ok(answered) if answered == xid => Ok(reader.rest().to_vec()),
        _ => Err(io::Error::other("it does not carry out the call")),
    }
}

/// Connects from an address of this machine, where that is possible.
fn connect(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    // Else the system chooses.
    let _ = rustix::net::bind(&socket, &SocketAddr::new(from, 0));
    match rustix::net::connect(&socket, &to) {
        Ok(()) => {}
        Err(rustix::io::Errno::INPROGRESS) => {
            let mut events = [PollFd::new(&socket, PollFlags::OUT)];
            let patience = Timespec {
                tv_sec: PATIENCE.as_secs() as i64,
                tv_nsec: 0,
            };
            if poll(&mut events, Some(&patience))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            rustix::net::sockopt::socket_error(&socket)??;
        }
        Err(error) => return Err(error.into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}
