//! The kernel's FUSE messages and the calls of NFS clients, over a file system in memory.
//!
//! The kernel is not an enemy, but a message that is not as it should be must be an error, not a
//! panic. Clients of NFS may be enemies.

use std::sync::Arc;

use finefs_fuse::fuzzing::Server;
use finefs_namespace::{MemoryStore, Namespace, Options};
use finefs_nfs::fuzzing::Server as NfsServer;

/// Operations have the numbers below this one.
const CODES: u8 = 53;

/// Serves messages: each is a code, a node, the length of what follows, and that.
pub fn fuse(data: &[u8]) {
    let store = MemoryStore::new(4 << 20, 0o755, 0, 0).expect("it is large enough");
    let namespace = Namespace::without_thread(Arc::new(store), Options::default());
    let mut server = Server::new(Arc::new(namespace.expect("it has a root")));
    let mut rest = data;
    let mut space = vec![0; 64 << 10];
    while let Some(([code, node, length], after)) = rest.split_first_chunk::<3>() {
        let (body, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        let code = u32::from(code % CODES);
        server.serve(code, u64::from(*node), body, &mut space);
    }
    assert_eq!(server.panics(), 0);
}

/// Procedures have the numbers below this one.
const PROCEDURES: u8 = 24;

/// Serves calls: each is a procedure, a handle, the length of what follows, and that. The highest
/// bit of the procedure says that what follows comes as it is, as bytes of a connection; the next
/// one that it is a call of MOUNT.
pub fn nfs(data: &[u8]) {
    let store = MemoryStore::new(4 << 20, 0o755, 0, 0).expect("it is large enough");
    let namespace = Namespace::without_thread(Arc::new(store), Options::default());
    let mut server = NfsServer::new(Arc::new(namespace.expect("it has a root")));
    let mut rest = data;
    while let Some(([procedure, handle, length], after)) = rest.split_first_chunk::<3>() {
        let (body, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        if procedure & 0x80 != 0 {
            server.serve_stream(body);
            continue;
        }
        let is_mount = procedure & 0x40 != 0;
        let program = if is_mount { 100_005 } else { 100_003 };
        let number = u32::from(procedure & 0x3f) % u32::from(PROCEDURES);
        let head = [1, 0, 2, program, 3, number, 0, 0, 0, 0];
        let mut record: Vec<u8> = head
            .iter()
            .flat_map(|word: &u32| word.to_be_bytes())
            .collect();
        if !is_mount {
            let handle = server.handle(*handle);
            record.extend((handle.len() as u32).to_be_bytes());
            record.extend(handle);
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
