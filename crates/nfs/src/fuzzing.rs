//! Records from bytes, without a socket: for the fuzzer.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use finefs_namespace::Namespace;
use finefs_namespace::guard::failed_operations;

use crate::export::{Export, ExportOptions, Exports, Served, Squash};
use crate::locks::Locking;
use crate::options::LockOptions;
use crate::procedures::Waits;
use crate::record::{Incoming, Record};
use crate::replies::Replies;
use crate::service::{Answer, Sender, Service};
use crate::xdr::{Reader, Writer};

struct Nobody;

impl Waits for Nobody {
    fn begin_wait(&self) {}
    fn end_wait(&self) {}

    fn is_stopping(&self) -> bool {
        false
    }
}

/// Serves records as a server's threads do.
pub struct Server {
    service: Service,
    replies: Replies<()>,
    /// Handles that were given out.
    handles: Vec<Vec<u8>>,
}

/// Handles that are kept.
const HANDLES_MAX: usize = 64;

impl Server {
    /// Serves what is in `namespace`.
    pub fn new(namespace: Arc<Namespace>) -> Server {
        let options = ExportOptions {
            squash: Squash::None,
            ..ExportOptions::default()
        };
        let root = namespace.attributes(namespace.root());
        let export = Export::new(Served {
            name: "/".into(),
            namespace,
            options,
        });
        let root = root.map(|root| export.handle(root.ino, root.generation).to_vec());
        let exports = Arc::new(Exports::new(vec![export]).expect("there is one"));
        let locking = Locking::new(Arc::clone(&exports), &LockOptions::default());
        let locking = locking.expect("there is no file");
        let port_map = Some(crate::portmap::Map::new(2049));
        Server {
            service: Service::new(exports, locking, port_map),
            replies: Replies::new(),
            handles: root.into_iter().collect(),
        }
    }

    /// A handle that was given out, by any number.
    pub fn handle(&self, number: u8) -> &[u8] {
        let count = self.handles.len().max(1);
        let handle = self.handles.get(usize::from(number) % count);
        handle.map_or(&[], Vec::as_slice)
    }

    /// Serves the records in a stream, as they come out of it; true if all of it made sense.
    pub fn serve_stream(&mut self, mut stream: &[u8]) -> bool {
        let (mut incoming, mut record) = (Incoming::default(), Record::default());
        while !stream.is_empty() {
            if incoming.read(&mut stream).is_err() {
                return false;
            }
            loop {
                match incoming.take(&mut record) {
                    Ok(true) => drop(self.serve(record.bytes())),
                    Ok(false) => break,
                    Err(_) => return false,
                }
            }
        }
        true
    }

    /// Serves one record; gives the reply, if there is one. Handles in it are kept.
    pub fn serve(&mut self, record: &[u8]) -> Option<Vec<u8>> {
        let sender = Sender {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 1000,
            server: IpAddr::V4(Ipv4Addr::LOCALHOST),
            is_datagram: false,
            replies: &self.replies,
            connection: &Arc::new(()),
        };
        let mut out = Writer::default();
        match self.service.answer(&sender, record, &mut out, &Nobody) {
            Answer::Reply(_) => {}
            Answer::Later | Answer::Close => return None,
        }
        self.keep_handles(out.bytes());
        Some(out.bytes().to_vec())
    }

    /// Looks for what can be a handle at each place.
    fn keep_handles(&mut self, reply: &[u8]) {
        let identity = self.service.exports.all()[0].namespace.geometry().identity;
        for place in (0..reply.len()).step_by(4) {
            let mut reader = Reader::new(&reply[place..]);
            if let Ok(handle) = reader.opaque(crate::handle::HANDLE_BYTES)
                && crate::handle::decode(&identity, handle).is_ok()
                && self.handles.len() < HANDLES_MAX
                && !self.handles.iter().any(|known| known == handle)
            {
                self.handles.push(handle.to_vec());
            }
        }
    }

    /// How many operations of this process ended in a panic.
    pub fn panics(&self) -> u64 {
        failed_operations()
    }
}
