//! Requests from bytes, without a mount: for the fuzzer.

use std::collections::HashMap;
use std::sync::Arc;

use finefs_namespace::Namespace;
use finefs_namespace::guard::failed_operations;

use crate::abi::{InHeader, opcode};
use crate::adapter::{Adapter, Refusal};
use crate::negotiate::Negotiated;
use crate::request;

/// Serves messages as a mount's threads do, but for their coming and going.
pub struct Server {
    adapter: Adapter,
    /// The references that the kernel holds, by node. It never gives back more than it took, so
    /// neither does who calls here: a message that would is cut.
    held: HashMap<u64, u64>,
}

impl Server {
    /// Serves what is in `namespace`.
    pub fn new(namespace: Arc<Namespace>) -> Server {
        let negotiated = Negotiated {
            applies_umask: true,
            ..Negotiated::default()
        };
        Server {
            adapter: Adapter::new(namespace, negotiated, None),
            held: HashMap::new(),
        }
    }

    /// Serves the request `code` about `node`, whose structure and names are in `body`, at its end
    /// an extension of so many units of eight bytes; the answer goes into `space`. Gives its
    /// length, or an errno; nothing for what is not answered.
    pub fn serve(
        &mut self,
        code: u32,
        node: u64,
        (body, extension_length): (&[u8], u16),
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
            extension_length,
            padding: 0,
        };
        let (fixed, rest) = body.split_at(request::fixed_length(code).min(body.len()));
        if let Some(forgets) = request::forgets(code, node, fixed, rest) {
            for (node, count) in forgets {
                let held = self.held.entry(node).or_default();
                let count = count.min(*held);
                *held -= count;
                self.adapter
                    .forget([(node, count)].into_iter().filter(|(_, count)| *count > 0));
            }
            return None;
        }
        let answer = self.adapter.serve(&header, fixed, rest, space);
        if matches!(answer, Ok(8..)) && gives_reference(code) {
            let node = space
                .first_chunk()
                .map_or(0, |first| u64::from_le_bytes(*first));
            *self.held.entry(node).or_default() += u64::from(node != 0);
        }
        // Nobody freezes it here.
        Some(answer.map_err(|refusal| match refusal {
            Refusal::Errno(errno) => errno,
            Refusal::Frozen => libc::EAGAIN,
        }))
    }

    /// How many operations of this process ended in a panic.
    pub fn panics(&self) -> u64 {
        failed_operations()
    }
}

/// True for a request whose answer begins with an entry, which comes with a reference. (The many
/// that READDIRPLUS gives are never given back.)
fn gives_reference(code: u32) -> bool {
    matches!(
        code,
        opcode::LOOKUP
            | opcode::SYMLINK
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::LINK
            | opcode::TMPFILE
    )
}
