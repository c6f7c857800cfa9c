//! Calls of clients: to their lock managers, their monitors, and the rpcbind that knows the ports
//! of both.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::record::put_mark;
use crate::rpc;
use crate::xdr::{Reader, Writer};

/// How long a client may take to accept a connection and to answer, both together.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// The longest answer that is read, and the most fragments that it may come in.
const ANSWER_MAX: usize = 4096;
const FRAGMENTS_MAX: usize = 8;

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

/// Calls a procedure of a client's program; gives the result. Takes no longer than twice
/// [`PATIENCE`], whatever the client does.
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
    let until = Instant::now() + PATIENCE;
    let stream = connect(server, at, until)?;
    exchange(Limited { stream, until }, program, procedure, arguments)
}

/// The same on a connection.
pub(crate) fn call_on(
    stream: TcpStream,
    program: Program,
    procedure: u32,
    arguments: &[u8],
) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    exchange(Limited { stream, until }, program, procedure, arguments)
}

/// What is left of the time; an error when it is over.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

/// A connection of which each read and write has what is left of the time of all: so a client that
/// sends a byte now and then keeps nobody for longer.
struct Limited {
    stream: TcpStream,
    until: Instant,
}

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.until)?))?;
        self.stream.read(buffer)
    }
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.until)?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Sends a call and reads its answer.
fn exchange(
    mut stream: Limited,
    program: Program,
    procedure: u32,
    arguments: &[u8],
) -> io::Result<Vec<u8>> {
    let mut out = Writer::default();
    out.u32(0);
    // Each call has a connection of its own.
    let xid = 1;
    rpc::call(&mut out, xid, (program.number, program.version, procedure));
    out.raw(arguments);
    put_mark(out.at(0));
    stream.write_all(out.bytes())?;
    let answer = read_record(stream)?;
    let mut reader = Reader::new(&answer);
    match rpc::read_reply(&mut reader) {
        Ok(answered) if answered == xid => Ok(reader.rest().to_vec()),
        _ => Err(io::Error::other("it does not carry out the call")),
    }
}

fn read_record(mut stream: impl Read) -> io::Result<Vec<u8>> {
    let mut record = Vec::new();
    for _ in 0..FRAGMENTS_MAX {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        let length = (mark & !(1 << 31)) as usize;
        let start = record.len();
        if start + length > ANSWER_MAX {
            break;
        }
        record.resize(start + length, 0);
        stream.read_exact(&mut record[start..])?;
        if mark >> 31 == 1 {
            return Ok(record);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Connects from an address of this machine, where that is possible.
fn connect(from: IpAddr, to: SocketAddr, until: Instant) -> io::Result<TcpStream> {
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
            let left = left(until)?;
            let patience = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
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

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// What becomes of a call of a client that sends this over and over.
    fn call_of(answer: [u8; 4], pause: Duration) -> io::ErrorKind {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Until the caller has gone.
            while stream.write_all(&answer).is_ok() {
                std::thread::sleep(pause);
            }
        });
        let program = Program {
            number: PORTMAP,
            version: 2,
        };
        let called = call_at(at.ip(), at, program, GETPORT, &[]);
        answering.join().unwrap();
        called.unwrap_err().kind()
    }

    #[test]
    fn an_answer_without_end_is_given_up() {
        let empty_fragment = [0; 4];
        assert_eq!(
            call_of(empty_fragment, Duration::ZERO),
            io::ErrorKind::InvalidData
        );
    }

    #[test]
    fn an_answer_that_drips_is_given_up() {
        // 4000 bytes are promised.
        let last_fragment = [0x80, 0, 0x0f, 0xa0];
        let kind = call_of(last_fragment, Duration::from_millis(20));
        let is_late = matches!(kind, io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
        assert!(is_late, "{kind:?}");
    }

    #[test]
    fn an_answer_may_come_in_fragments() {
        let parts = [&[0, 0, 0, 2][..], b"ab", &[0; 4], &[0x80, 0, 0, 1], b"c"];
        assert_eq!(read_record(&parts.concat()[..]).unwrap(), b"abc");
        let long = (ANSWER_MAX as u32 + 1) | 1 << 31;
        assert!(read_record(&long.to_be_bytes()[..]).is_err());
    }
}
