//! Requests from bytes, without a mount: for the fuzzer.

use std::sync::Arc;

use finefs_namespace::Namespace;

use crate::abi::InHeader;
use crate::adapter::Adapter;
use crate::guard::failed_operations;
use crate::negotiate::Agreement;
use crate::request;

/// Serves messages as a mount's threads do, but for their coming and going.
pub struct Server(Adapter);

impl Server {
    /// Serves what is in `namespace`.
    pub fn new(namespace: Arc<Namespace>) -> Server {
        let agreement = Agreement {
            applies_umask: true,
            ..Agreement::default()
        };
        Server(Adapter::new(namespace, agreement, None))
    }

    /// Serves the request `code` about `node`, whose structure and names are in `body`; the answer
    /// goes into `space`. Gives its length, or an errno; nothing for what is not answered.
    pub fn serve(
        &self,
        code: u32,
        node: u64,
        body: &[u8],
        space: &mut [u8],
    ) -> Option<Result<usize, i32>> {
        let header = InHeader {
            length: (size_of::<InHeader>() + body.len()) as u32,
            opcode: code,
            unique: 1,
            node,
            uid: 0,
            gid: 0,
            pid: 1,
            extension_length: 0,
            padding: 0,
        };
        let (fixed, rest) = body.split_at(request::fixed_length(code).min(body.len()));
        if let Some(forgets) = request::forgets(code, node, fixed, rest) {
            self.0.forget(forgets);
            return None;
        }
        Some(self.0.serve(&header, fixed, rest, space))
    }

    /// How many operations of this process ended in a panic.
    pub fn panics(&self) -> u64 {
        failed_operations()
    }
}
