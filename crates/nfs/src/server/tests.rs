//! What a bug costs: the panics of [`crate::faults`], more often than there are threads.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, UdpSocket};

use finefs_namespace::{MemoryStore, Options};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use super::*;
use crate::faults::{CLIENT, Fault};
use crate::procedures::{PROGRAM, VERSION};

const PATIENCE: Duration = Duration::from_secs(60);
/// More than there are threads.
const OFTEN: usize = 200;
/// What follows the transaction id of a reply: it was carried out; a bug (SYSTEM_ERR).
const DONE: [u32; 5] = [1, 0, 0, 0, 0];
const BUG: [u32; 5] = [1, 0, 0, 0, 5];

fn serve() -> Server {
    let store = MemoryStore::new(16 << 20, 0o755, 0, 0).unwrap();
    let namespace = store.into_namespace(Options::default()).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    Server::start(namespace, any, ExportOptions::default()).unwrap()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A call of NULL: no credential, no verifier.
fn null(xid: u32, (program, version): (u32, u32)) -> Vec<u8> {
    words(&[xid, 0, 2, program, version, 0, 0, 0, 0, 0])
}

/// Calls NULL; gives the reply behind the transaction id, `None` when the connection ends.
fn call(stream: &mut TcpStream, xid: u32) -> Option<Vec<u8>> {
    let call = null(xid, (PROGRAM, VERSION));
    let mark = words(&[call.len() as u32 | 1 << 31]);
    stream.write_all(&[mark, call].concat()).ok()?;
    let mut reply = [0; 28];
    stream.read_exact(&mut reply).ok()?;
    assert_eq!(reply[4..8], xid.to_be_bytes());
    Some(reply[8..].to_vec())
}

fn connected(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn a_panic_in_a_call_costs_the_call() {
    let server = serve();
    let mut stream = connected(&server);
    for xid in 1..=OFTEN as u32 {
        assert_eq!(call(&mut stream, Fault::Call as u32), Some(words(&BUG)));
        assert_eq!(call(&mut stream, xid), Some(words(&DONE)));
    }
    server.stop();
}

#[test]
fn a_panic_beside_calls_costs_the_connection() {
    let server = serve();
    let mut other = connected(&server);
    for xid in 1..=OFTEN as u32 {
        let mut stream = connected(&server);
        assert_eq!(call(&mut stream, Fault::Connection as u32), None);
        assert_eq!(call(&mut other, xid), Some(words(&DONE)));
    }
    server.stop();
}

#[test]
fn a_panic_in_a_datagram_costs_the_datagram() {
    let server = serve();
    let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(server.address()).unwrap();
    let lock_manager = (crate::locks::PROGRAM, crate::locks::VERSION);
    for xid in [Fault::Connection as u32, 7] {
        socket.send(&null(xid, lock_manager)).unwrap();
    }
    let mut reply = [0; 100];
    let length = socket.recv(&mut reply).unwrap();
    assert_eq!(reply[..length], words(&[&[7], &DONE[..]].concat()));
    server.stop();
}

#[test]
fn a_panic_at_a_connection_keeps_no_other_out() {
    let server = serve();
    let unlucky = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&unlucky, &SocketAddrV4::new(CLIENT, 0)).unwrap();
    connect(&unlucky, &server.address()).unwrap();
    let mut unlucky = TcpStream::from(unlucky);
    unlucky.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(call(&mut unlucky, 1), None);
    assert_eq!(call(&mut connected(&server), 2), Some(words(&DONE)));
    server.stop();
}

#[test]
fn threads_that_are_not_needed_any_more_end() {
    let server = serve();
    let shared = &server.shared;
    let count = || shared.thread_count.load(Ordering::Acquire);
    assert_eq!(count(), shared.spare);
    let mut stream = connected(&server);
    for _ in 0..20 {
        shared.begin_wait();
    }
    assert_eq!(count(), shared.spare + 20);
    assert_eq!(call(&mut stream, 1), Some(words(&DONE)));
    assert_eq!(count(), shared.spare + 20, "they wait");
    for _ in 0..20 {
        shared.end_wait();
    }
    let begun = Instant::now();
    while count() > shared.spare {
        assert!(begun.elapsed() < PATIENCE, "{} are left", count());
        assert_eq!(call(&mut stream, 2), Some(words(&DONE)));
    }
    // And come again.
    shared.begin_wait();
    assert_eq!(count(), shared.spare + 1);
    assert!(shared.threads.lock().len() <= shared.spare + 20);
    shared.end_wait();
    server.stop();
}
