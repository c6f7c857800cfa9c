//! The threads that tell clients what they wait for: grants, answers, and that the server was
//! started anew.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use super::outbox::{Letter, Message};
use super::waits::{KEPT, Key};
use super::{Locking, MONITOR_PROGRAM, MONITOR_VERSION, PROGRAM, VERSION, messages};
use crate::calls::{Program, Route, call};
use crate::xdr::{Reader, Writer};

/// The procedures that are called.
const GRANTED: u32 = 5;
const NOTIFY: u32 = 6;
/// How long it is tried to tell a client of a start.
const TOLD_FOR: Duration = Duration::from_secs(300);
/// How often it is tried to deliver an answer; the client asks again.
const ANSWER_TRIES: u32 = 2;
/// How soon a wait is looked at again that is just being entered.
const SOON: Duration = Duration::from_millis(10);

impl Locking {
    /// Clients that had locks are to be told that they are gone.
    pub(super) fn tell_of_start(&self) {
        let until = Instant::now() + TOLD_FOR;
        for (client, server, _) in &self.monitor.before {
            self.tell(*client, *server, Message::Restarted(until), Duration::ZERO);
        }
        if let Some(end) = self.monitor.grace_end() {
            let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
            let delay = end.saturating_duration_since(Instant::now());
            self.tell(nobody, nobody, Message::GraceIsOver, delay);
        }
    }

    /// The life of a thread that tells.
    pub(crate) fn work(&self) {
        while let Some(letter) = self.outbox.next() {
            let client = letter.client;
            finefs_namespace::guard::guarded("telling an NFS client", || self.deliver(letter));
            self.outbox.done(client);
        }
    }

    /// The end of these threads. Who has locks is noted as it is.
    pub(crate) fn stop(&self) {
        self.outbox.close();
        self.note_hosts();
    }

    fn note_hosts(&self) {
        if self.monitor.is_in_grace() {
            // Some may not have asked yet.
            return;
        }
        if let Err(error) = self.monitor.keep(|| self.hosts.to_be_noted()) {
            log::error!("nfs: who locks cannot be noted: {error}");
        }
    }

    fn deliver(&self, letter: Letter) {
        match &letter.message {
            Message::Ended(key) => self.ended(key, &letter),
            Message::Answer(procedure, arguments) => {
                let told = self.call(&letter, (PROGRAM, VERSION), *procedure, arguments);
                if told.is_err() && letter.tries < ANSWER_TRIES {
                    self.outbox.put_back(letter);
                }
            }
            Message::Restarted(until) => {
                let mut arguments = Writer::default();
                // By its address: that is what the client can look up.
                arguments.opaque(letter.server.to_canonical().to_string().as_bytes());
                arguments.u32(self.monitor.state);
                let monitor = (MONITOR_PROGRAM, MONITOR_VERSION);
                let told = self.call(&letter, monitor, NOTIFY, arguments.bytes());
                if told.is_err() && Instant::now() < *until {
                    self.outbox.put_back(letter);
                }
            }
            Message::GraceIsOver => self.note_hosts(),
        }
    }

    fn call(
        &self,
        letter: &Letter,
        (number, version): (u32, u32),
        procedure: u32,
        arguments: &[u8],
    ) -> io::Result<Vec<u8>> {
        let route = Route {
            client: letter.client,
            server: letter.server,
            rpcbind_port: self.rpcbind_port,
        };
        let called = call(&route, Program { number, version }, procedure, arguments);
        if let Err(error) = &called {
            log::debug!("nfs: {}: cannot be called: {error}", letter.client);
        }
        called
    }

    /// A wait has ended: calls the client.
    fn ended(&self, key: &Key, letter: &Letter) {
        let Some(wait) = self.waits.find(key) else {
            return;
        };
        let Some(export) = self.exports.get(key.file.export) else {
            return;
        };
        let Some(pending) = wait.pending.get() else {
            return self.outbox.put(letter.clone(), SOON);
        };
        match export.namespace.pending_lock(pending) {
            // A wait of before had this key, and this one has begun since.
            None => return,
            Some(Ok(())) => {}
            Some(Err(_)) => {
                if self.waits.take_out(key, &wait) {
                    self.over(key.owner, key.file);
                }
                return;
            }
        }
        let (cookie, since_asked) = wait.last();
        let mut arguments = Writer::default();
        arguments.opaque(&cookie);
        arguments.bool(key.is_exclusive);
        arguments.raw(&wait.lock);
        let answer = self.call(letter, (PROGRAM, VERSION), GRANTED, arguments.bytes());
        let status = answer.ok().and_then(|answer| {
            let mut reader = Reader::new(&answer);
            reader.opaque(cookie.len()).ok()?;
            reader.u32().ok()
        });
        match status {
            Some(messages::GRANTED) => {
                if self.waits.take_out(key, &wait) {
                    self.over(key.owner, key.file);
                }
            }
            // The client itself was started anew, and cannot tell yet.
            Some(messages::GRACE_PERIOD) | None if since_asked < KEPT => {
                self.outbox.put_back(letter.clone());
            }
            _ => {
                self.give_up(key, &wait);
            }
        }
    }
}
