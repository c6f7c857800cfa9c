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

    /// Makes the programs known to the rpcbind of this machine; or no longer known.
    pub(crate) fn register(&self, is_known: bool) -> io::Result<()> {
        let rpcbind = Program {
            number: PORTMAP,
            version: 2,
        };
        for entry in &self.0 {
            let mut arguments = Writer::default();
            for word in [
                entry.program,
                entry.version,
                entry.protocol,
                entry.port.into(),
            ] {
                arguments.u32(word);
            }
            // One that is left from before is not replaced.
            let of_before = call_on(reserved()?, rpcbind, UNSET, arguments.bytes());
            if !is_known {
                continue;
            }
            of_before?;
            let done = call_on(reserved()?, rpcbind, SET, arguments.bytes())?;
            if Reader::new(&done).bool() != Ok(true) {
                return Err(io::Error::other(format!(
                    "rpcbind refuses program {}",
                    entry.program
                )));
            }
        }
        Ok(())
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
    use super::*;

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
}
