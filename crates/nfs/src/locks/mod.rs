//! NLM version 4, the lock manager, and NSM, the status monitor: byte-range locks of clients, in
//! the namespace's own, so that they exclude each other and those of anybody else.
//!
//! # Purpose
//! NFS 3 has no locks; its clients ask these two programs beside it. A lock belongs to an owner on
//! a client machine (`hosts`), who is to the namespace what a process is. It ends when the owner
//! unlocks, and when the client says that it has started anew: by FREE_ALL, or by NSM.
//!
//! | Module | Thing |
//! |---|---|
//! | `messages` | what is asked and answered |
//! | `hosts` | clients, owners, and the files that they lock |
//! | `waits` | locks that are waited for |
//! | `shares` | share reservations |
//! | `monitor` | who had locks when the server ended, and the grace period |
//! | `outbox` | what is to be told to clients, and when |
//! | `telling` | the threads that tell it |
//!
//! # Invariants
//! 1. A client of which nothing is known to the monitor's file has no locks and no share
//!    reservations (`monitor`).
//! 2. Nobody waits for a client while another's call is carried out.
//!
//! # References
//! X/Open XNFS (C702), chapters 10 and 11; Linux `fs/lockd`, whose choices are followed where the
//! protocol leaves one: read access is enough to lock, and an owner is its `svid`.

mod hosts;
mod messages;
mod monitor;
mod outbox;
mod shares;
mod telling;
mod waits;

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use finefs_namespace::{Error, LockKind, Result};

use self::hosts::{File, Hosts};
use self::messages::{Asks, Form, Holder, Shares};
use self::monitor::Monitor;
use self::outbox::{Letter, Message, Outbox};
use self::shares::Reservations;
use self::waits::{Key, Waits};
use crate::export::{Export, Exports};
use crate::held::Held;
use crate::options::LockOptions;
use crate::rpc::{Credential, Rejection};
use crate::xdr::{Garbage, Reader, Writer};

/// The lock manager's number, and its only version here.
pub(crate) const PROGRAM: u32 = 100_021;
pub(crate) const VERSION: u32 = 4;
/// The same of the monitor.
pub(crate) const MONITOR_PROGRAM: u32 = 100_024;
pub(crate) const MONITOR_VERSION: u32 = 1;

/// Procedures of this number and above are the same as those of five less, but answered by a call.
const FIRST_MESSAGE: u32 = 6;
const FIRST_ANSWER: u32 = 11;

/// Who asks.
pub(crate) struct Client<'c> {
    pub address: IpAddr,
    pub port: u16,
    /// The address of this server that it uses.
    pub server: IpAddr,
    pub credential: &'c Credential,
}

/// The locks of all clients.
pub(crate) struct Locking {
    exports: Arc<Exports>,
    hosts: Hosts,
    waits: Waits,
    shares: Reservations,
    monitor: Monitor,
    outbox: Arc<Outbox>,
    rpcbind_port: u16,
}

/// A lock that a client has, for `finefs lsof`.
#[derive(Clone, Debug)]
pub struct HeldLock {
    /// The client.
    pub client: IpAddr,
    /// Its name, as it says.
    pub client_name: String,
    /// The owner's number on it.
    pub owner: u32,
    /// The name of the export.
    pub export: String,
    /// The inode number.
    pub ino: u64,
}

impl Locking {
    pub(crate) fn new(exports: Arc<Exports>, options: &LockOptions) -> io::Result<Arc<Locking>> {
        let monitor = Monitor::new(options.state_file.clone(), options.grace)?;
        let locking = Locking {
            exports,
            hosts: Hosts::new(),
            waits: Waits::new(),
            shares: Reservations::new(),
            monitor,
            outbox: Arc::new(Outbox::new()),
            rpcbind_port: options.rpcbind_port,
        };
        locking.tell_of_start();
        Ok(Arc::new(locking))
    }

    /// Carries out a procedure of the lock manager.
    pub(crate) fn run(
        &self,
        client: &Client<'_>,
        procedure: u32,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> std::result::Result<(), Rejection> {
        let result = match procedure {
            0 => Ok(()),
            1..=4 => self.answer(client, procedure, reader, out),
            // Calls that are answered by a call.
            FIRST_MESSAGE..=9 => {
                let mut answer = Writer::default();
                let answered = self.answer(client, procedure - 5, reader, &mut answer);
                answered.map(|()| {
                    let message = Message::Answer(procedure + 5, answer.bytes().to_vec());
                    self.tell(client.address, client.server, message, Duration::ZERO);
                })
            }
            // Answers to calls that this server does not make (it waits for the answers).
            FIRST_ANSWER..=15 => Ok(()),
            20 | 21 => self.share(client, procedure == 20, reader, out),
            // NM_LOCK: LOCK of a client that nobody can tell of a start.
            22 => self.answer(client, 2, reader, out),
            // FREE_ALL
            23 => messages::read_notify(reader).map(|name| {
                let may_free = |file| self.may_free(client, file);
                self.free(client.address, name, may_free);
            }),
            _ => return Err(Rejection::ProcedureUnavailable),
        };
        result.map_err(|Garbage| Rejection::Garbage)
    }

    /// Carries out a procedure of the monitor. What only programs of the same machine ask (SM_MON
    /// and its like) is refused.
    pub(crate) fn run_monitor(
        &self,
        client: &Client<'_>,
        procedure: u32,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> std::result::Result<(), Rejection> {
        match procedure {
            0 => {}
            // SM_STAT: nobody can be monitored through it.
            1 => {
                out.u32(1);
                out.u32(self.monitor.state);
            }
            // SM_NOTIFY
            6 => {
                let change = messages::read_state_change(reader);
                let (name, state) = change.map_err(|Garbage| Rejection::Garbage)?;
                self.started_anew(client, name, state);
            }
            _ => return Err(Rejection::ProcedureUnavailable),
        }
        Ok(())
    }

    /// TEST, LOCK, CANCEL, UNLOCK by their numbers.
    fn answer(
        &self,
        client: &Client<'_>,
        procedure: u32,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> std::result::Result<(), Garbage> {
        let form = match procedure {
            1 => Form::Test,
            2 => Form::Lock,
            3 => Form::Cancel,
            _ => Form::Unlock,
        };
        let asks = Asks::read(reader, form)?;
        out.opaque(asks.cookie);
        if form == Form::Test {
            self.test(client, &asks, out);
            return Ok(());
        }
        let done = match form {
            Form::Lock => self.lock(client, &asks),
            Form::Cancel => self.cancel(client, &asks),
            _ => self.unlock(client, &asks),
        };
        out.u32(done.unwrap_or_else(|error| messages::status(&error)));
        Ok(())
    }

    fn owner(&self, client: &Client<'_>, asks: &Asks<'_>) -> u64 {
        let lock = &asks.lock;
        self.hosts.number(client.address, lock.name, lock.svid)
    }

    /// The file of a handle, held, for a client that the export admits.
    fn hold(&self, client: &Client<'_>, handle: &[u8]) -> Result<(File, &Export, Held<'_>)> {
        let (number, export) = self.exports.of_handle(handle).ok_or(Error::Stale)?;
        if !export.admits_call(client.address, client.port) {
            return Err(Error::AccessDenied);
        }
        let held = export.hold(handle)?;
        let file = File {
            export: number,
            ino: held.ino(),
        };
        Ok((file, export, held))
    }

    /// A file that was held before, if it is still there.
    fn hold_again(&self, file: File) -> Result<(&Export, Held<'_>)> {
        let export = self.exports.get(file.export).ok_or(Error::Stale)?;
        let namespace = &export.namespace;
        let held = Held::new(namespace, namespace.reference(file.ino)?);
        Ok((export, held))
    }

    fn test(&self, client: &Client<'_>, asks: &Asks<'_>, out: &mut Writer) {
        if self.monitor.is_in_grace() {
            return out.u32(messages::GRACE_PERIOD);
        }
        let Some(range) = asks.lock.range() else {
            return out.u32(messages::TOO_BIG);
        };
        let owner = self.owner(client, asks);
        let found = self
            .hold(client, asks.lock.handle)
            .and_then(|(_, export, held)| {
                export.check_locks(client.credential, &held)?;
                let locks = export.namespace.owner_locks(held.ino());
                locks.blocking_lock(owner, asks.kind, &range)
            });
        match found {
            Ok(None) => out.u32(messages::GRANTED),
            Ok(Some(in_the_way)) => {
                let process = in_the_way.process.unwrap_or(0);
                let of_client = self.hosts.owner(process);
                let holder = Holder {
                    kind: in_the_way.kind,
                    svid: of_client
                        .as_ref()
                        .map_or(process as u32, |owner| owner.svid),
                    owner: of_client.as_ref().map_or(b"", |owner| &owner.name),
                    range: in_the_way.range,
                };
                out.u32(messages::DENIED);
                holder.put(out);
            }
            Err(error) => out.u32(messages::status(&error)),
        }
    }

    fn lock(&self, client: &Client<'_>, asks: &Asks<'_>) -> Result<u32> {
        if self.monitor.is_in_grace() != asks.is_reclaim {
            return Ok(messages::GRACE_PERIOD);
        }
        let Some(range) = asks.lock.range() else {
            return Ok(messages::TOO_BIG);
        };
        let owner = self.owner(client, asks);
        let (file, export, held) = self.hold(client, asks.lock.handle)?;
        export.check_locks(client.credential, &held)?;
        if asks.kind == LockKind::Exclusive {
            export.check_writable()?;
        }
        let key = Key::new(owner, file, &range, asks.kind);
        if let Some(status) = self.ask_again(&key, asks, export) {
            return Ok(status);
        }
        let host = (client.address, client.server, asks.lock.name);
        let state = match self.speaks_for_machine(client) {
            true => asks.state,
            false => 0,
        };
        let who = (asks.lock.svid, asks.lock.owner);
        let begun = self.hosts.begin(owner, host, state, who, file);
        let host = match begun {
            Ok(host) => host,
            Err(hosts::Full) => return Ok(messages::NO_LOCKS),
        };
        if let Err(error) = self.note(&host) {
            self.over(owner, file);
            return Err(error);
        }
        let asked = match asks.is_blocking {
            true => self.lock_or_wait(&key, &range, (asks, &host), export),
            false => {
                let locks = export.namespace.owner_locks(file.ino);
                locks
                    .lock(owner, asks.kind, &range)
                    .map(|()| messages::GRANTED)
            }
        };
        match asked {
            // What was begun goes on.
            Ok(messages::BLOCKED) => {}
            Ok(_) => self.hosts.end(owner, file),
            Err(_) => self.over(owner, file),
        }
        asked
    }

    /// Notes a client that is about to get a lock or a share reservation; ENOLCK where that fails.
    fn note(&self, host: &hosts::Host) -> Result<()> {
        self.monitor.add(host, &self.hosts).map_err(|error| {
            log::error!("nfs: who locks cannot be noted: {error}");
            Error::NoLocks
        })
    }

    fn lock_or_wait(
        &self,
        key: &Key,
        range: &Range<u64>,
        (asks, host): (&Asks<'_>, &hosts::Host),
        export: &Export,
    ) -> Result<u32> {
        let Some(wait) = self.waits.enter(key, asks.lock.raw, asks.cookie) else {
            return Err(Error::NoLocks);
        };
        let outbox = Arc::downgrade(&self.outbox);
        let letter = Letter {
            client: host.address,
            server: host.server,
            message: Message::Ended(key.clone()),
            tries: 0,
        };
        let at_end = move || {
            if let Some(outbox) = outbox.upgrade() {
                outbox.put(letter.clone(), Duration::ZERO);
            }
        };
        let locks = export.namespace.owner_locks(key.file.ino);
        let asked = locks.lock_later(key.owner, asks.kind, range, Box::new(at_end));
        match asked {
            Ok(Some(pending)) => {
                let _ = wait.pending.set(pending);
                Ok(messages::BLOCKED)
            }
            other => {
                self.waits.take_out(key, &wait);
                other.map(|_| messages::GRANTED)
            }
        }
    }

    /// What a client is told that asks for a lock which it waits for; `None` when it does not. Who
    /// does not want to wait (another thread of the client's process, say) leaves the wait alone.
    fn ask_again(&self, key: &Key, asks: &Asks<'_>, export: &Export) -> Option<u32> {
        let wait = self.waits.find(key)?;
        if asks.is_blocking {
            wait.ask_again(asks.cookie);
        }
        let outcome = wait
            .pending
            .get()
            .map(|it| export.namespace.pending_lock(it));
        let Some(Some(outcome)) = outcome else {
            return Some(match asks.is_blocking {
                true => messages::BLOCKED,
                false => messages::DENIED,
            });
        };
        if !self.waits.take_out(key, &wait) {
            // It was granted by a call at this moment; asked for once more it is there.
            return None;
        }
        self.over(key.owner, key.file);
        match outcome {
            Ok(()) => Some(messages::GRANTED),
            Err(error) => Some(messages::status(&error)),
        }
    }

    fn cancel(&self, client: &Client<'_>, asks: &Asks<'_>) -> Result<u32> {
        let Some(range) = asks.lock.range() else {
            return Ok(messages::TOO_BIG);
        };
        let owner = self.owner(client, asks);
        let (file, ..) = self.hold(client, asks.lock.handle)?;
        let key = Key::new(owner, file, &range, asks.kind);
        match self.waits.find(&key) {
            Some(wait) => match self.give_up(&key, &wait) {
                true => Ok(messages::GRANTED),
                false => Ok(messages::DENIED),
            },
            None => Ok(messages::DENIED),
        }
    }

    /// Ends a wait, and unlocks what it has led to; false when it has ended before.
    fn give_up(&self, key: &Key, wait: &Arc<waits::Wait>) -> bool {
        let Some(pending) = wait.pending.get() else {
            return false;
        };
        if !self.waits.take_out(key, wait) {
            return false;
        }
        if let Ok((export, held)) = self.hold_again(key.file) {
            let namespace = &export.namespace;
            if !namespace.withdraw_pending_lock(pending) {
                let locks = namespace.owner_locks(held.ino());
                // It fails only where there are no more locks to be had.
                if locks.unlock(key.owner, &key.range).is_err() {
                    locks.release(key.owner);
                }
            }
        }
        self.over(key.owner, key.file);
        true
    }

    fn unlock(&self, client: &Client<'_>, asks: &Asks<'_>) -> Result<u32> {
        let Some(range) = asks.lock.range() else {
            return Ok(messages::TOO_BIG);
        };
        let owner = self.owner(client, asks);
        let (file, export, held) = self.hold(client, asks.lock.handle)?;
        let locks = export.namespace.owner_locks(held.ino());
        locks.unlock(owner, &range)?;
        self.tidy(owner, file);
        Ok(messages::GRANTED)
    }

    /// A call or a wait of an owner is over, and may have left nothing.
    fn over(&self, owner: u64, file: File) {
        self.hosts.end(owner, file);
        self.tidy(owner, file);
    }

    /// Forgets a file on which an owner has no locks.
    fn tidy(&self, owner: u64, file: File) {
        let Some(begun) = self.hosts.begun(owner, file) else {
            return;
        };
        let has_locks = self
            .hold_again(file)
            .is_ok_and(|(export, held)| export.namespace.owner_locks(held.ino()).has_any(owner));
        if !has_locks {
            self.hosts.tidy(owner, file, begun);
        }
    }

    fn share(
        &self,
        client: &Client<'_>,
        is_reserve: bool,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> std::result::Result<(), Garbage> {
        let asked = Shares::read(reader)?;
        out.opaque(asked.cookie);
        let found = self.hold(client, asked.handle);
        let status = match found {
            _ if is_reserve && self.monitor.is_in_grace() != asked.is_reclaim => {
                messages::GRACE_PERIOD
            }
            Err(error) => messages::status(&error),
            Ok((file, ..)) if !is_reserve => {
                self.shares.release(file, client.address, &asked);
                messages::GRANTED
            }
            Ok((file, export, held)) => match export.check_locks(client.credential, &held) {
                Err(error) => messages::status(&error),
                Ok(()) => self.reserve(client, file, &asked),
            },
        };
        out.u32(status);
        // The sequence number, which nobody uses.
        out.u32(0);
        Ok(())
    }

    fn reserve(&self, client: &Client<'_>, file: File, asked: &Shares<'_>) -> u32 {
        let host = (client.address, client.server, asked.name);
        let Ok(host) = self.hosts.reserving(host) else {
            return messages::NO_LOCKS;
        };
        if let Err(error) = self.note(&host) {
            return messages::status(&error);
        }
        match self.shares.reserve(file, host, asked) {
            true => messages::GRANTED,
            false => messages::DENIED,
        }
    }

    /// True where the export of a file admits the call by which its client's locks are to be
    /// dropped.
    fn may_free(&self, client: &Client<'_>, file: File) -> bool {
        let export = self.exports.get(file.export);
        export.is_some_and(|it| it.admits_call(client.address, client.port))
    }

    /// True where no export that is for the client refuses the port of a call: any user of the
    /// client has others.
    fn speaks_for_machine(&self, client: &Client<'_>) -> bool {
        let mut exports = self.exports.all().iter();
        exports.all(|export| {
            export.admits_call(client.address, client.port) || !export.admits(client.address)
        })
    }

    /// Drops all locks of a client on the files that are meant.
    fn free(&self, address: IpAddr, name: &[u8], is_meant: impl Fn(File) -> bool) {
        let is_it = |host: &hosts::Host| host.address == address && *host.name == *name;
        self.free_all(is_it, &is_meant);
        self.shares.release_all(address, name, is_meant);
    }

    /// Drops the byte-range locks of the clients that are meant, on the files that are meant.
    fn free_all(&self, is_it: impl Fn(&hosts::Host) -> bool, is_meant: impl Fn(File) -> bool) {
        let mut owners = self.hosts.owners(is_it);
        for (_, files) in &mut owners {
            files.retain(|file| is_meant(*file));
        }
        let mut of_files: HashMap<File, Vec<u64>> = HashMap::new();
        for (owner, files) in &owners {
            for file in files {
                of_files.entry(*file).or_default().push(*owner);
            }
        }
        // All of a file at once: one by one they would be granted to each other.
        for (file, owners) in of_files {
            if let Ok((export, held)) = self.hold_again(file) {
                let locks = export.namespace.owner_locks(held.ino());
                locks.release_all(owners);
            }
        }
        for (owner, files) in owners {
            let waits = self.waits.of(owner).into_iter();
            for (key, wait) in waits.filter(|(key, _)| is_meant(key.file)) {
                self.give_up(&key, &wait);
            }
            for file in files {
                self.tidy(owner, file);
            }
        }
    }

    /// Drops the locks of all clients.
    pub(crate) fn release_all(&self) {
        self.free_all(|_| true, |_| true);
        for host in self.hosts.with_locks() {
            self.free(host.address, &host.name, |_| true);
        }
    }

    /// A client's monitor says that it was started anew, and repeats it until it is sure that it is
    /// heard. It may call itself otherwise there, with its domain or without.
    fn started_anew(&self, client: &Client<'_>, name: &[u8], state: u32) {
        let first = |name: &[u8]| {
            let first = name.split(|byte| *byte == b'.').next();
            first.unwrap_or_default().to_ascii_lowercase()
        };
        let is_sure = self.speaks_for_machine(client);
        let hosts = self.hosts.at(client.address);
        let is_only = hosts.len() == 1;
        for host in hosts {
            let is_it = is_only || first(&host.name) == first(name);
            if is_it && host.has_started_anew(state, is_sure) {
                let may_free = |file| self.may_free(client, file);
                self.free(client.address, &host.name, may_free);
            }
        }
    }

    /// The locks of all clients, each file once for each owner.
    pub(crate) fn held(&self) -> Vec<HeldLock> {
        let mut held = Vec::new();
        for (owner, files) in self.hosts.owners(|_| true) {
            let Some(known) = self.hosts.owner(owner) else {
                continue;
            };
            for file in files {
                let export = self.exports.get(file.export);
                held.push(HeldLock {
                    client: known.host,
                    client_name: String::from_utf8_lossy(&known.host_name).into_owned(),
                    owner: known.svid,
                    export: export.map_or_else(String::new, |export| export.name.clone()),
                    ino: file.ino.0,
                });
            }
        }
        held.sort_by_key(|held| (held.client, held.owner, held.ino));
        held
    }

    fn tell(&self, client: IpAddr, server: IpAddr, message: Message, delay: Duration) {
        let letter = Letter {
            client,
            server,
            message,
            tries: 0,
        };
        self.outbox.put(letter, delay);
    }
}

#[cfg(test)]
mod tests;
