//! The kernel's FUSE messages, over a file system in memory.
//!
//! The kernel is not an enemy, but a message that is not as it should be must be an error, not a
//! panic.

use std::sync::Arc;

use finefs_fuse::fuzzing::Server;
use finefs_namespace::{MemoryStore, Namespace, Options};

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
