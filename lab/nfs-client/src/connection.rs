//! A connection on which one call waits for its reply: what is needed before a load.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};

use crate::wire::{Arguments, Items, MOUNT, NFS, Program, Records, put_call, result};

/// Procedures of NFS.
pub mod procedure {
    /// Attributes of a handle.
    pub const GETATTR: u32 = 1;
    /// Sets attributes.
    pub const SETATTR: u32 = 2;
    /// A name of a directory.
    pub const LOOKUP: u32 = 3;
    /// What the caller may do.
    pub const ACCESS: u32 = 4;
    /// Reads bytes.
    pub const READ: u32 = 6;
    /// Writes bytes.
    pub const WRITE: u32 = 7;
    /// Makes a file.
    pub const CREATE: u32 = 8;
    /// Makes a directory.
    pub const MKDIR: u32 = 9;
    /// Removes a name.
    pub const REMOVE: u32 = 12;
}

/// A file handle.
pub type Handle = Vec<u8>;

/// See the module's head.
pub struct Connection {
    stream: TcpStream,
    records: Records,
    xid: u32,
}

/// Set no attribute; of the mode only, if there is one.
pub fn attributes(mode: Option<u32>) -> Arguments {
    let mut arguments = match mode {
        Some(mode) => Arguments::new().word(1).word(mode),
        None => Arguments::new().word(0),
    };
    // uid, gid, size, and both times.
    for _ in 0..5 {
        arguments = arguments.word(0);
    }
    arguments
}

/// The handle in the reply to CREATE or MKDIR.
pub fn made(items: &mut Items<'_>) -> io::Result<Handle> {
    match items.word()? {
        1 => Ok(items.opaque()?.to_vec()),
        _ => Err(io::Error::other("no handle is told")),
    }
}

impl Connection {
    /// Connects.
    pub fn new(address: SocketAddr) -> io::Result<Connection> {
        Connection::of(TcpStream::connect(address)?)
    }

    /// One that somebody has connected.
    pub fn of(stream: TcpStream) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            records: Records::default(),
            // Another one for each connection: servers keep replies by address and number, and what
            // is the same call with the same number was sent again to them.
            xid: RandomState::new().hash_one(()) as u32,
        })
    }

    /// Calls, and gives what is behind the status, which must be 0 where there is one.
    pub fn call(
        &mut self,
        program: Program,
        procedure: u32,
        arguments: &Arguments,
    ) -> io::Result<Vec<u8>> {
        let result = self.call_any(program, procedure, arguments)?;
        let mut items = Items(&result);
        match items.word()? {
            0 => Ok(items.0.to_vec()),
            status => {
                let what = format!("procedure {procedure} of {}: {status}", program.0);
                Err(io::Error::other(what))
            }
        }
    }

    /// Calls, and gives the result, whatever it is.
    pub fn call_any(
        &mut self,
        program: Program,
        procedure: u32,
        arguments: &Arguments,
    ) -> io::Result<Vec<u8>> {
        self.xid = self.xid.wrapping_add(1);
        let mut call = Vec::new();
        put_call(&mut call, self.xid, program, procedure, &arguments.0);
        self.stream.write_all(&call)?;
        loop {
            if let Some(record) = self.records.take()? {
                let (xid, items) = result(record)?;
                if xid != self.xid {
                    continue;
                }
                return Ok(items.0.to_vec());
            }
            if !self.records.read(&mut self.stream)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The root of an export.
    pub fn mount(&mut self, path: &str) -> io::Result<Handle> {
        let result = self.call(MOUNT, 1, &Arguments::new().opaque(path.as_bytes()))?;
        Ok(Items(&result).opaque()?.to_vec())
    }

    /// Makes a directory.
    pub fn make_directory(&mut self, dir: &[u8], name: &str) -> io::Result<Handle> {
        let mut arguments = Arguments::new().opaque(dir).opaque(name.as_bytes());
        arguments.0.extend(attributes(Some(0o755)).0);
        let result = self.call(NFS, procedure::MKDIR, &arguments)?;
        made(&mut Items(&result))
    }

    /// Makes a file with this many bytes.
    pub fn make_file(&mut self, dir: &[u8], name: &str, bytes: u64) -> io::Result<Handle> {
        let mut arguments = Arguments::new().opaque(dir).opaque(name.as_bytes()).word(0);
        arguments.0.extend(attributes(Some(0o644)).0);
        let result = self.call(NFS, procedure::CREATE, &arguments)?;
        let file = made(&mut Items(&result))?;
        let data = vec![0x5a; 256 << 10];
        let mut offset = 0;
        while offset < bytes {
            let length = (bytes - offset).min(data.len() as u64) as usize;
            let arguments = write(&file, offset, &data[..length]);
            self.call(NFS, procedure::WRITE, &arguments)?;
            offset += length as u64;
        }
        Ok(file)
    }
}

/// The arguments of an unstable WRITE.
pub fn write(file: &[u8], offset: u64, data: &[u8]) -> Arguments {
    let arguments = Arguments::new().opaque(file).long(offset);
    let arguments = arguments.word(data.len() as u32).word(0);
    arguments.opaque(data)
}
