//! The kernel's FUSE messages and the calls of NFS clients, over a file system in memory.
//!
//! The kernel is not an enemy, but a message that is not as it should be must be an error, not a
//! panic. Clients of NFS may be enemies.

use std::sync::Arc;

use finefs_fuse::fuzzing::Server;
use finefs_namespace::{MemoryStore, Namespace, Options};
use finefs_nfs::fuzzing::Server as NfsServer;

/// Operations have the numbers below this one.
const CODES: u8 = 54;

/// How long what is appended to a request is, in units of eight bytes: some groups, some labels.
const EXTENSIONS: [u16; 5] = [0, 2, 4, 6, 8];

/// Serves messages: each is a code (and how long its extension is), a node, the length of what
/// follows, and that.
pub fn fuse(data: &[u8]) {
    let store = MemoryStore::new(4 << 20, 0o755, 0, 0).expect("it is large enough");
    let namespace = Namespace::without_thread(Arc::new(store), Options::default());
    let mut server = Server::new(Arc::new(namespace.expect("it has a root")));
    let mut rest = data;
    let mut space = vec![0; 64 << 10];
    while let Some(([code, node, length], after)) = rest.split_first_chunk::<3>() {
        let (body, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        let extension = EXTENSIONS[usize::from(code / CODES)];
        let code = u32::from(code % CODES);
        server.serve(code, u64::from(*node), (body, extension), &mut space);
    }
    assert_eq!(server.panics(), 0);
}

/// Procedures have the numbers below this one.
const PROCEDURES: u8 = 24;

/// A call that is not one of NFS or MOUNT says so by these bits.
const RAW: u8 = 0x80;
const MOUNT: u8 = 0x40;
const LOCKS: u8 = 0x20;

/// Serves calls: each is a procedure, a handle, the length of what follows, and that. The highest
/// bit of the procedure says that what follows comes as it is, as bytes of a connection; the next
/// ones that it is a call of MOUNT, of the lock manager, or, both, of the monitor.
pub fn nfs(data: &[u8]) {
    let store = MemoryStore::new(4 << 20, 0o755, 0, 0).expect("it is large enough");
    let namespace = Namespace::without_thread(Arc::new(store), Options::default());
    let mut server = NfsServer::new(Arc::new(namespace.expect("it has a root")));
    let mut rest = data;
    while let Some(([procedure, handle, length], after)) = rest.split_first_chunk::<3>() {
        let (body, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        if procedure & RAW != 0 {
            server.serve_stream(body);
            continue;
        }
        let kind = procedure & (MOUNT | LOCKS);
        let (program, version) = match kind {
            0 => (100_003, 3),
            MOUNT => (100_005, 3),
            LOCKS => (100_021, 4),
            _ => (100_024, 1),
        };
        let number = u32::from(procedure & 0x1f) % u32::from(PROCEDURES);
        let head = [1, 0, 2, program, version, number, 0, 0, 0, 0];
        let mut record: Vec<u8> = head
            .iter()
            .flat_map(|word: &u32| word.to_be_bytes())
            .collect();
        let handle = server.handle(*handle).to_vec();
        match kind {
            0 => put_opaque(&mut record, &handle),
            LOCKS => put_lock(&mut record, number, &handle, body),
            _ => {}
        }
        record.extend(body);
        let reply = server.serve(&record);
        assert!(
            reply.is_some_and(|reply| reply.len().is_multiple_of(4)),
            "a call is answered"
        );
    }
    assert_eq!(server.panics(), 0);
}

fn put_opaque(record: &mut Vec<u8>, bytes: &[u8]) {
    record.extend((bytes.len() as u32).to_be_bytes());
    record.extend(bytes);
    record.resize(record.len().next_multiple_of(4), 0);
}

/// The arguments of a call of the lock manager, of which the body's first bytes choose owner, range
/// and flags: a few of each, so that locks meet.
fn put_lock(record: &mut Vec<u8>, number: u32, handle: &[u8], body: &[u8]) {
    let byte = |at: usize| body.get(at).copied().unwrap_or(0);
    // The cookie; whether it waits, and is exclusive.
    put_opaque(record, b"");
    let flags = [0, 1, 2, 2, 0][number as usize % 5];
    for bit in 0..flags {
        record.extend(u32::from(byte(0) >> bit & 1).to_be_bytes());
    }
    put_opaque(record, &[byte(1) % 2]);
    put_opaque(record, handle);
    put_opaque(record, b"owner");
    record.extend(u32::from(byte(2) % 4).to_be_bytes());
    record.extend(u64::from(byte(3) % 16).to_be_bytes());
    record.extend(u64::from(byte(4) % 16).to_be_bytes());
    // LOCK: whether it is asked for again, and the monitor's state. Others do not read it.
    record.extend([0; 8]);
}
