//! The port mapper (RFC 1833, versions 2 to 4), as far as clients of this server need it: it knows
//! the programs of this server and takes no others. Or they are made known to the rpcbind of the
//! machine.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::calls::{GETPORT, PORTMAP, Program, TCP, UDP, call_on};
use crate::rpc::Rejection;
use crate::xdr::{Garbage, Reader, Writer};
use crate::{locks, mount, procedures};

pub(crate) use crate::calls::PORTMAP as PROGRAM;

const TEXT_MAX: usize = 1024;
const SET: u32 = 1;
const UNSET: u32 = 2;
const DUMP: u32 = 4;

/// Where a version of a program is.
#[derive(Clone, Copy)]
struct Entry {
    program: u32,
    version: u32,
    protocol: u32,
    port: u16,
}

/// The programs of this server.
pub(crate) struct Map(Vec<Entry>);

impl Map {
    /// With everything at one port.
    pub(crate) fn new(port: u16) -> Map {
        let programs = [
            (procedures::PROGRAM, procedures::VERSION),
            (mount::PROGRAM, mount::VERSION),
            (locks::PROGRAM, locks::VERSION),
            (locks::MONITOR_PROGRAM, locks::MONITOR_VERSION),
        ];
        let both = programs.iter().flat_map(|of| [(of, TCP), (of, UDP)]);
        // NFS itself is for TCP only.
        let served = both
            .filter(|((program, _), protocol)| *program != procedures::PROGRAM || *protocol == TCP);
        let entries = served.map(|((program, version), protocol)| Entry {
            program: *program,
            version: *version,
            protocol,
            port,
        });
        Map(entries.collect())
    }

    /// With the port mapper itself, which is at this port: rpcinfo(8) asks for it first.
    pub(crate) fn with_itself(mut self, port: u16) -> Map {
        let versions = [4, 3, 2].into_iter();
        let both = versions.flat_map(|version| [(version, TCP), (version, UDP)]);
        self.0.extend(both.map(|(version, protocol)| Entry {
            program: PROGRAM,
            version,
            protocol,
            port,
        }));
        self
    }

    fn port(&self, program: u32, protocol: u32) -> Option<u16> {
        let is_it = |entry: &&Entry| entry.program == program && entry.protocol == protocol;
        self.0.iter().find(is_it).map(|entry| entry.port)
    }

    /// Carries out a procedure of version 2, 3 or 4 for a client that called `server`.
    pub(crate) fn run(
        &self,
        server: IpAddr,
        (version, procedure): (u32, u32),
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<(), Rejection> {
        let done = match (version, procedure) {
            (_, 0) => Ok(()),
            (2, GETPORT) => self.get_port(reader, out),
            // GETADDR has the same number.
            (_, GETPORT) => self.get_address(server, reader, out),
            (_, DUMP) => {
                self.dump(server, version, out);
                Ok(())
            }
            _ => return Err(Rejection::ProcedureUnavailable),
        };
        done.map_err(|Garbage| Rejection::Garbage)
    }

    fn get_port(&self, reader: &mut Reader<'_>, out: &mut Writer) -> Result<(), Garbage> {
        let (program, _, protocol) = (reader.u32()?, reader.u32()?, reader.u32()?);
        reader.u32()?;
        out.u32(self.port(program, protocol).unwrap_or(0).into());
        Ok(())
    }

    fn get_address(
        &self,
        server: IpAddr,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<(), Garbage> {
        let (program, _) = (reader.u32()?, reader.u32()?);
        let protocol = match reader.opaque(TEXT_MAX)? {
            b"tcp" | b"tcp6" => TCP,
            b"udp" | b"udp6" => UDP,
            _ => 0,
        };
        // Its address, and its name.
        reader.opaque(TEXT_MAX)?;
        reader.opaque(TEXT_MAX)?;
        let found = self.port(program, protocol);
        let address = found
            .map(|port| universal(server, port))
            .unwrap_or_default();
        out.opaque(address.as_bytes());
        Ok(())
    }

    fn dump(&self, server: IpAddr, version: u32, out: &mut Writer) {
        for entry in &self.0 {
            out.bool(true);
            out.u32(entry.program);
            out.u32(entry.version);
            if version == 2 {
                out.u32(entry.protocol);
                out.u32(entry.port.into());
                continue;
            }
            let protocol: &[u8] = if entry.protocol == TCP {
                b"tcp"
            } else {
                b"udp"
            };
            out.opaque(protocol);
            out.opaque(universal(server, entry.port).as_bytes());
            out.opaque(b"finefs");
        }
        out.bool(false);
    }

    /// Makes the programs known to the rpcbind of this machine; all of them, or none.
    pub(crate) fn register(&self) -> io::Result<()> {
        self.register_by(&reserved)
    }

    /// The programs are no longer known to the rpcbind of this machine.
    pub(crate) fn unregister(&self) -> io::Result<()> {
        self.unregister_by(&reserved)
    }

    fn register_by(&self, connect: Connect<'_>) -> io::Result<()> {
        // What is left from before is not replaced.
        self.unregister_by(connect)?;
        let set = self.0.iter().try_for_each(|entry| {
            let program = entry.program;
            let refused = || io::Error::other(format!("rpcbind refuses program {program}"));
            let is_set = entry.tell(connect, SET)?;
            is_set.then_some(()).ok_or_else(refused)
        });
        if set.is_err()
            && let Err(error) = self.unregister_by(connect)
        {
            log::warn!("nfs: rpcbind still knows some of the programs: {error}");
        }
        set
    }

    /// UNSET takes a version of a program away for all protocols (RFC 1833, 3.2), so once for each.
    /// An error of one keeps none of the others.
    fn unregister_by(&self, connect: Connect<'_>) -> io::Result<()> {
        let is_same = |one: &Entry, other: &Entry| {
            (one.program, one.version) == (other.program, other.version)
        };
        let versions = self.0.chunk_by(is_same);
        let unset = versions.map(|protocols| protocols[0].tell(connect, UNSET).map(drop));
        let outcomes: Vec<io::Result<()>> = unset.collect();
        outcomes.into_iter().collect()
    }
}

/// Connects to an rpcbind.
type Connect<'c> = &'c dyn Fn() -> io::Result<TcpStream>;

impl Entry {
    /// Tells rpcbind to SET or UNSET it; true when it has.
    fn tell(&self, connect: Connect<'_>, procedure: u32) -> io::Result<bool> {
        let rpcbind = Program {
            number: PORTMAP,
            version: 2,
        };
        let mut arguments = Writer::default();
        for word in [self.program, self.version, self.protocol, self.port.into()] {
            arguments.u32(word);
        }
        let done = call_on(connect()?, rpcbind, procedure, arguments.bytes())?;
        let is_done = Reader::new(&done).bool();
        is_done.map_err(|Garbage| io::ErrorKind::InvalidData.into())
    }
}

/// A connection to the rpcbind of this machine from a port that only root has.
fn reserved() -> io::Result<TcpStream> {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in (600..1024).rev() {
        let socket = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let rpcbind = SocketAddr::new(local, crate::options::RPCBIND_PORT);
        let connected = rustix::net::bind(&socket, &SocketAddr::new(local, port))
            .and_then(|()| rustix::net::connect(&socket, &rpcbind));
        match connected {
            Ok(()) => return Ok(TcpStream::from(socket)),
            Err(error @ (rustix::io::Errno::ADDRINUSE | rustix::io::Errno::ADDRNOTAVAIL)) => {
                last = error.into();
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(last)
}

/// An address and port as one text (RFC 5665).
fn universal(address: IpAddr, port: u16) -> String {
    let [high, low] = port.to_be_bytes();
    format!("{}.{high}.{low}", address.to_canonical())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::record::put_mark;

    #[test]
    fn ports_are_told_in_all_versions() {
        let map = Map::new(2049).with_itself(111);
        let server = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let answer = |version, ask: &Writer| {
            let mut out = Writer::default();
            let call = (version, GETPORT);
            map.run(server, call, &mut Reader::new(ask.bytes()), &mut out)
                .unwrap();
            out
        };
        let mut ask = Writer::default();
        for word in [locks::PROGRAM, 4, UDP, 0] {
            ask.u32(word);
        }
        assert_eq!(answer(2, &ask).bytes(), 2049u32.to_be_bytes());
        for (program, version, address) in [
            (
                procedures::PROGRAM,
                procedures::VERSION,
                &b"192.0.2.1.8.1"[..],
            ),
            (PROGRAM, 2, b"192.0.2.1.0.111"),
        ] {
            let mut ask = Writer::default();
            ask.u32(program);
            ask.u32(version);
            ask.opaque(b"tcp");
            ask.opaque(b"");
            ask.opaque(b"");
            let out = answer(4, &ask);
            assert_eq!(Reader::new(out.bytes()).opaque(99), Ok(address));
        }
    }

    /// What rpcbind knows: ports by program, version and protocol.
    type Known = BTreeMap<[u32; 3], u32>;

    /// An rpcbind that knows this already and refuses one program.
    fn rpcbind(mut known: Known, refused: u32) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = [0; 44];
                stream.read_exact(&mut head).unwrap();
                let word = |at: usize| u32::from_be_bytes(*head[at..].first_chunk().unwrap());
                let mut call = vec![0; (word(0) & !(1 << 31)) as usize - 40];
                stream.read_exact(&mut call).unwrap();
                let mut out = Writer::default();
                out.u32(0);
                for word in [word(4), 1, 0, 0, 0, 0] {
                    out.u32(word);
                }
                let mut reader = Reader::new(&call);
                answer(&mut known, refused, word(24), &mut reader, &mut out);
                put_mark(out.at(0));
                stream.write_all(out.bytes()).unwrap();
            }
        });
        at
    }

    /// SET replaces nothing, and UNSET ignores protocol and port (RFC 1833, 3.2).
    fn answer(
        known: &mut Known,
        refused: u32,
        procedure: u32,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) {
        let mut asked = || [(); 4].map(|()| reader.u32().unwrap());
        match procedure {
            SET => {
                let [program, version, protocol, port] = asked();
                let of = [program, version, protocol];
                let is_set = program != refused && !known.contains_key(&of);
                if is_set {
                    known.insert(of, port);
                }
                out.bool(is_set);
            }
            UNSET => {
                let [program, version, ..] = asked();
                let before = known.len();
                known.retain(|of, _| of[..2] != [program, version]);
                out.bool(known.len() < before);
            }
            _ => {
                for (of, port) in known {
                    out.bool(true);
                    of.iter().chain([&*port]).for_each(|word| out.u32(*word));
                }
                out.bool(false);
            }
        }
    }

    /// What it knows of versions of programs.
    fn known(at: SocketAddr) -> Vec<[u32; 4]> {
        let program = Program {
            number: PORTMAP,
            version: 2,
        };
        let stream = TcpStream::connect(at).unwrap();
        let list = call_on(stream, program, DUMP, &[]).unwrap();
        let mut reader = Reader::new(&list);
        let mut known = Vec::new();
        while reader.bool().unwrap() {
            known.push([(); 4].map(|()| reader.u32().unwrap()));
        }
        known
    }

    const PORT: u32 = 2049;

    #[test]
    fn rpcbind_knows_all_programs_for_all_protocols() {
        // A server that was killed, and another program.
        let left = [(procedures::PROGRAM, 3), (mount::PROGRAM, 3), (100_011, 1)];
        let left = left.map(|(program, version)| ([program, version, TCP], 1));
        let at = rpcbind(Known::from(left), 0);
        let connect = || TcpStream::connect(at);
        let map = Map::new(PORT as u16);
        map.register_by(&connect).unwrap();
        let other = [100_011, 1, TCP, 1];
        let expected = [
            [procedures::PROGRAM, 3, TCP, PORT],
            [mount::PROGRAM, 3, TCP, PORT],
            [mount::PROGRAM, 3, UDP, PORT],
            other,
            [locks::PROGRAM, 4, TCP, PORT],
            [locks::PROGRAM, 4, UDP, PORT],
            [locks::MONITOR_PROGRAM, 1, TCP, PORT],
            [locks::MONITOR_PROGRAM, 1, UDP, PORT],
        ];
        assert_eq!(known(at), expected);
        map.unregister_by(&connect).unwrap();
        assert_eq!(known(at), [other]);
    }

    #[test]
    fn rpcbind_knows_nothing_of_what_it_does_not_take_whole() {
        let at = rpcbind(Known::new(), locks::MONITOR_PROGRAM);
        let map = Map::new(PORT as u16);
        let error = map.register_by(&|| TcpStream::connect(at)).unwrap_err();
        assert!(error.to_string().contains("100024"), "{error}");
        assert!(known(at).is_empty());
    }
}
