//! A server that answers at once and does nothing: the ceiling that RPC and sockets set. It replies
//! to each procedure with a fixed result of the length that the procedure's usual one has.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::connection::procedure;
use crate::wire::{Items, MOUNT, NFS, Records};

/// Any handle.
const HANDLE: [u8; 40] = [7; 40];
/// `fattr3`
const ATTRIBUTES: usize = 84;

/// Starts one at a free port of this machine; it runs until the process ends, a thread for each
/// connection.
pub fn start() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    std::thread::Builder::new()
        .name("null-server".into())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(stream));
            }
        })?;
    Ok(address)
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut records, mut out) = (Records::default(), Vec::new());
    while records.read(&mut stream)? {
        while let Some(call) = records.take()? {
            answer(call, &mut out)?;
        }
        stream.write_all(&out)?;
        out.clear();
    }
    Ok(())
}

/// Appends the reply to a call.
fn answer(call: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let mut items = Items(call);
    let xid = items.word()?;
    items.word()?;
    items.word()?;
    let (program, _, number) = (items.word()?, items.word()?, items.word()?);
    let start = out.len();
    out.extend([0; 4]);
    for word in [xid, 1, 0, 0, 0, 0] {
        out.extend(word.to_be_bytes());
    }
    let zeros = |out: &mut Vec<u8>, length: usize| out.resize(out.len() + length, 0);
    let handle = |out: &mut Vec<u8>| {
        out.extend((HANDLE.len() as u32).to_be_bytes());
        out.extend(HANDLE);
    };
    let attributes = |out: &mut Vec<u8>| {
        out.extend(1u32.to_be_bytes());
        zeros(out, ATTRIBUTES);
    };
    if program == NFS.0 || program == MOUNT.0 {
        // The status.
        zeros(out, 4);
    }
    match (program == NFS.0, number) {
        (true, procedure::GETATTR) => zeros(out, ATTRIBUTES),
        (true, procedure::LOOKUP) => {
            handle(out);
            attributes(out);
            attributes(out);
        }
        (true, procedure::ACCESS) => {
            attributes(out);
            zeros(out, 4);
        }
        (true, procedure::READ) => {
            attributes(out);
            let length = read_length(items)?;
            out.extend(length.to_be_bytes());
            zeros(out, 4);
            out.extend(length.to_be_bytes());
            zeros(out, (length as usize).next_multiple_of(4));
        }
        (true, procedure::CREATE | procedure::MKDIR) => {
            out.extend(1u32.to_be_bytes());
            handle(out);
            attributes(out);
            zeros(out, 4);
            attributes(out);
        }
        (true, procedure::WRITE) => {
            zeros(out, 4);
            attributes(out);
            zeros(out, 16);
        }
        (true, _) => {
            zeros(out, 4);
            attributes(out);
        }
        (false, 1) if program == MOUNT.0 => {
            handle(out);
            zeros(out, 4);
        }
        // NLM: an empty cookie, granted.
        (false, _) => zeros(out, 8),
    }
    let length = (out.len() - start - 4) as u32 | 1 << 31;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// How much a READ asks for, behind the head's three items.
fn read_length(mut items: Items<'_>) -> io::Result<u32> {
    for _ in 0..2 {
        items.word()?;
        items.opaque()?;
    }
    items.opaque()?;
    items.word()?;
    items.word()?;
    Ok(items.word()?)
}
