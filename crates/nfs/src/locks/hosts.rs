//! Whose locks there are: client machines, and owners on them.
//!
//! # Data model
//! A host is a name and the address that it calls from: so nobody frees another's locks by using
//! its name. An owner is a number made of host and `svid` by a keyed hash, by which the namespace
//! knows it; what the number stands for is in one of [`SHARDS`] maps. An owner's record has the
//! files on which it may have locks, and goes with the last. So an owner that is known is served
//! without a look at the hosts.
//!
//! # Invariants
//! 1. A file on which an owner has or may get a lock stands in the owner's record: it is noted
//!    before the lock is asked for, and taken out only when nobody asks for one (`under_way`) and
//!    none was asked for since it was seen without locks (`begun`).
//! 2. A host has no more than [`OWNERS_MAX`] owners, each no more than [`FILES_MAX`] files; an
//!    address no more than [`NAMES_MAX`] hosts.
//! 3. A host that is noted (`is_noted`) is in the monitor's file. The mark is taken off before
//!    anybody looks whether the host has owners or reservations, and who has counted a new one
//!    looks for the mark afterwards. So one of the two sees the other.
//! 4. The state of a host is a number that grows with each start of the client (NSM): the one in
//!    which the host got the first of its locks, or a later one that its monitor told, at which the
//!    locks of before were dropped. Where neither is known it is 0, and any state that is told is
//!    news.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use finefs_locks::Mutex;
use finefs_namespace::Ino;

use crate::classes;

const SHARDS: usize = 64;
/// Hosts that are known, and those at one address (of a network behind it, say). Those without
/// locks make room for others.
const HOSTS_MAX: usize = 4096;
const NAMES_MAX: usize = 256;
const OWNERS_MAX: usize = 16384;
const FILES_MAX: usize = 4096;

/// A client machine that locks.
pub(crate) struct Host {
    pub address: IpAddr,
    /// The address of this server that it uses.
    pub server: IpAddr,
    pub name: Box<[u8]>,
    owners: AtomicUsize,
    /// Share reservations, and requests for them.
    reservations: AtomicUsize,
    /// See invariant 3.
    is_noted: AtomicBool,
    /// See invariant 4.
    state: AtomicU32,
}

impl Host {
    pub(super) fn new(address: IpAddr, server: IpAddr, name: &[u8]) -> Host {
        Host {
            address,
            server,
            name: name.into(),
            owners: AtomicUsize::new(0),
            reservations: AtomicUsize::new(0),
            is_noted: AtomicBool::new(false),
            state: AtomicU32::new(0),
        }
    }

    /// It asks for a lock in this state, having no others. States of hosts that run are odd; others
    /// are sent by clients that do not know theirs.
    fn begins_in(&self, state: u32) {
        if !state.is_multiple_of(2) {
            self.state.store(state, Ordering::SeqCst);
        }
    }

    /// Its monitor tells a state; true when it has started anew since it got its locks. Whoever may
    /// not tell it for the machine (`is_sure`) leaves what is known as it is.
    pub(super) fn has_started_anew(&self, state: u32, is_sure: bool) -> bool {
        let known = match is_sure {
            true => self.state.swap(state, Ordering::SeqCst),
            false => self.state.load(Ordering::SeqCst),
        };
        state == 0 || known != state
    }

    /// True when it may have locks or share reservations.
    pub(super) fn may_have_locks(&self) -> bool {
        let counts = [&self.owners, &self.reservations];
        counts.iter().any(|count| count.load(Ordering::SeqCst) > 0)
    }

    /// True when the monitor's file surely has it, for as long as it may have locks.
    pub(super) fn is_noted(&self) -> bool {
        self.is_noted.load(Ordering::SeqCst)
    }

    /// The monitor's file has it; to be said under the monitor's lock.
    pub(super) fn mark_noted(&self) {
        self.is_noted.store(true, Ordering::SeqCst);
    }
}

/// A host that has a share reservation, or asks for one, for as long as this is there.
pub(super) struct Reserving(Arc<Host>);

impl Deref for Reserving {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.0
    }
}

impl Drop for Reserving {
    fn drop(&mut self) {
        self.0.reservations.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A file of one of the exports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct File {
    /// The number of the export.
    pub export: usize,
    pub ino: Ino,
}

struct Noted {
    file: File,
    /// Calls and waits that may give the owner a lock.
    under_way: usize,
    /// How many there were.
    begun: u64,
}

struct Owner {
    host: Arc<Host>,
    svid: u32,
    /// In its client's words.
    name: Box<[u8]>,
    files: Vec<Noted>,
}

/// The hosts by address and name.
type ByName = HashMap<(IpAddr, Box<[u8]>), Arc<Host>>;

/// See the module's head.
pub(super) struct Hosts {
    hasher: RandomState,
    hosts: Mutex<ByName>,
    shards: Box<[Mutex<HashMap<u64, Owner>>]>,
}

/// Too many.
pub(super) struct Full;

/// Who holds a lock, for others.
#[derive(Clone, Debug)]
pub(crate) struct OwnerOf {
    pub host: IpAddr,
    pub host_name: Vec<u8>,
    pub svid: u32,
    pub name: Vec<u8>,
}

impl Hosts {
    pub(super) fn new() -> Hosts {
        let shards = (0..SHARDS).map(|_| Mutex::new(&classes::LOCK_OWNERS, HashMap::new()));
        Hosts {
            hasher: RandomState::new(),
            hosts: Mutex::new(&classes::LOCK_HOSTS, HashMap::new()),
            shards: shards.collect(),
        }
    }

    /// The number of an owner. The highest bit is set, which no process of this machine has.
    pub(super) fn number(&self, address: IpAddr, name: &[u8], svid: u32) -> u64 {
        self.hasher.hash_one((address, name, svid)) | 1 << 63
    }

    fn shard(&self, owner: u64) -> &Mutex<HashMap<u64, Owner>> {
        &self.shards[owner as usize % SHARDS]
    }

    /// The owner is about to ask for a lock on a file. Its host is in this state, of which 0 says
    /// nothing. Gives the host, which is to be noted by the monitor before the owner gets a lock.
    pub(super) fn begin(
        &self,
        owner: u64,
        (address, server, host_name): (IpAddr, IpAddr, &[u8]),
        state: u32,
        (svid, name): (u32, &[u8]),
        file: File,
    ) -> Result<Arc<Host>, Full> {
        let mut shard = self.shard(owner).lock();
        if !shard.contains_key(&owner) {
            drop(shard);
            let host = self.host(address, server, host_name)?;
            shard = self.shard(owner).lock();
            // Another call of the owner may have come first.
            if let Entry::Vacant(place) = shard.entry(owner) {
                let before = host.owners.fetch_add(1, Ordering::SeqCst);
                if before >= OWNERS_MAX {
                    host.owners.fetch_sub(1, Ordering::SeqCst);
                    return Err(Full);
                }
                if before == 0 && host.reservations.load(Ordering::SeqCst) == 0 {
                    host.begins_in(state);
                }
                place.insert(Owner {
                    host,
                    svid,
                    name: name.into(),
                    files: Vec::new(),
                });
            }
        }
        let known = shard.get_mut(&owner).ok_or(Full)?;
        let is_full = known.files.len() >= FILES_MAX;
        match known.files.iter_mut().find(|noted| noted.file == file) {
            Some(noted) => {
                noted.under_way += 1;
                noted.begun += 1;
            }
            None if is_full => return Err(Full),
            None => known.files.push(Noted {
                file,
                under_way: 1,
                begun: 1,
            }),
        }
        Ok(Arc::clone(&known.host))
    }

    fn host(&self, address: IpAddr, server: IpAddr, name: &[u8]) -> Result<Arc<Host>, Full> {
        let mut hosts = self.hosts.lock();
        let key = (address, Box::from(name));
        if let Some(host) = hosts.get(&key) {
            return Ok(Arc::clone(host));
        }
        let at_address =
            |hosts: &ByName| hosts.keys().filter(|(other, _)| *other == address).count();
        let is_full = |hosts: &ByName| hosts.len() >= HOSTS_MAX || at_address(hosts) >= NAMES_MAX;
        if is_full(&hosts) {
            hosts.retain(|_, host| host.may_have_locks() || Arc::strong_count(host) > 1);
        }
        if is_full(&hosts) {
            return Err(Full);
        }
        let host = Arc::new(Host::new(address, server, name));
        hosts.insert(key, Arc::clone(&host));
        Ok(host)
    }

    /// A host asks for a share reservation. It is to be noted by the monitor before it gets one.
    pub(super) fn reserving(
        &self,
        (address, server, name): (IpAddr, IpAddr, &[u8]),
    ) -> Result<Reserving, Full> {
        let host = self.host(address, server, name)?;
        host.reservations.fetch_add(1, Ordering::SeqCst);
        Ok(Reserving(host))
    }

    /// What was begun is over.
    pub(super) fn end(&self, owner: u64, file: File) {
        let mut shard = self.shard(owner).lock();
        let noted = shard.get_mut(&owner).map(|known| &mut known.files);
        if let Some(noted) = noted.into_iter().flatten().find(|noted| noted.file == file) {
            noted.under_way = noted.under_way.saturating_sub(1);
        }
    }

    /// How often locks on a file were asked for: for [`Hosts::tidy`]. `None` when it is not noted.
    pub(super) fn begun(&self, owner: u64, file: File) -> Option<u64> {
        let shard = self.shard(owner).lock();
        let mut files = shard.get(&owner)?.files.iter();
        files
            .find(|noted| noted.file == file)
            .map(|noted| noted.begun)
    }

    /// The owner was seen without locks on the file after [`Hosts::begun`] had said this.
    pub(super) fn tidy(&self, owner: u64, file: File, begun: u64) {
        let mut shard = self.shard(owner).lock();
        let Some(known) = shard.get_mut(&owner) else {
            return;
        };
        let is_over =
            |noted: &Noted| noted.file == file && noted.under_way == 0 && noted.begun == begun;
        known.files.retain(|noted| !is_over(noted));
        if known.files.is_empty() {
            known.host.owners.fetch_sub(1, Ordering::SeqCst);
            shard.remove(&owner);
        }
    }

    /// Who an owner is.
    pub(super) fn owner(&self, owner: u64) -> Option<OwnerOf> {
        let shard = self.shard(owner).lock();
        shard.get(&owner).map(|known| OwnerOf {
            host: known.host.address,
            host_name: known.host.name.to_vec(),
            svid: known.svid,
            name: known.name.to_vec(),
        })
    }

    /// The hosts at an address.
    pub(super) fn at(&self, address: IpAddr) -> Vec<Arc<Host>> {
        let hosts = self.hosts.lock();
        let at = hosts.values().filter(|host| host.address == address);
        at.cloned().collect()
    }

    /// The hosts that may have locks or share reservations.
    pub(super) fn with_locks(&self) -> Vec<Arc<Host>> {
        let hosts = self.hosts.lock();
        let with_locks = hosts.values().filter(|host| host.may_have_locks());
        with_locks.cloned().collect()
    }

    /// The same, to be noted as all that have. The marks are taken off: the monitor sets them again
    /// when it has written.
    pub(super) fn to_be_noted(&self) -> Vec<Arc<Host>> {
        let hosts = self.hosts.lock();
        let to_be_noted = hosts.values().filter(|host| {
            host.is_noted.store(false, Ordering::SeqCst);
            host.may_have_locks()
        });
        to_be_noted.cloned().collect()
    }

    /// The owners that a choice is made of, with their files.
    pub(super) fn owners(&self, is_chosen: impl Fn(&Host) -> bool) -> Vec<(u64, Vec<File>)> {
        let mut found = Vec::new();
        for shard in &self.shards {
            for (owner, known) in shard.lock().iter() {
                if is_chosen(&known.host) {
                    let files = known.files.iter().map(|noted| noted.file);
                    found.push((*owner, files.collect()));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const FILE: File = File {
        export: 0,
        ino: Ino(12),
    };

    fn begin(hosts: &Hosts, svid: u32) -> (u64, Arc<Host>) {
        begin_in(hosts, svid, 0)
    }

    fn begin_in(hosts: &Hosts, svid: u32, state: u32) -> (u64, Arc<Host>) {
        let owner = hosts.number(ADDRESS, b"name", svid);
        let host = (ADDRESS, ADDRESS, &b"name"[..]);
        let begun = hosts.begin(owner, host, state, (svid, b"oh"), FILE);
        (owner, begun.ok().unwrap())
    }

    #[test]
    fn a_file_is_noted_for_as_long_as_a_lock_may_come() {
        let hosts = Hosts::new();
        let (owner, _) = begin(&hosts, 1);
        let seen = hosts.begun(owner, FILE).unwrap();
        // Another call of the owner is under way.
        begin(&hosts, 1);
        hosts.end(owner, FILE);
        hosts.tidy(owner, FILE, seen);
        assert!(hosts.owner(owner).is_some());
        hosts.end(owner, FILE);
        // It may have got a lock since.
        hosts.tidy(owner, FILE, seen);
        assert!(hosts.owner(owner).is_some());
        let seen = hosts.begun(owner, FILE).unwrap();
        hosts.tidy(owner, FILE, seen);
        assert!(hosts.owner(owner).is_none());
        assert!(hosts.with_locks().is_empty());
    }

    #[test]
    fn a_host_that_reserves_is_kept() {
        let hosts = Hosts::new();
        let reserving = || hosts.reserving((ADDRESS, ADDRESS, b"name")).ok().unwrap();
        let (first, second) = (reserving(), reserving());
        drop(first);
        assert_eq!(hosts.to_be_noted().len(), 1);
        drop(second);
        assert!(hosts.to_be_noted().is_empty());
        assert_eq!(hosts.at(ADDRESS).len(), 1);
    }

    #[test]
    fn one_address_has_so_many_names() {
        let hosts = Hosts::new();
        let reserving = |address, name: usize| {
            let name = name.to_string();
            hosts.reserving((address, ADDRESS, name.as_bytes()))
        };
        let mut held: Vec<Reserving> = Vec::new();
        held.extend((0..NAMES_MAX).filter_map(|name| reserving(ADDRESS, name).ok()));
        assert_eq!(held.len(), NAMES_MAX);
        assert!(reserving(ADDRESS, NAMES_MAX).is_err());
        assert!(reserving(ADDRESS, 0).is_ok());
        assert!(reserving(IpAddr::from([192, 0, 2, 1]), 0).is_ok());
        held.truncate(NAMES_MAX - 1);
        assert!(reserving(ADDRESS, NAMES_MAX).is_ok());
    }

    #[test]
    fn the_state_is_that_of_the_first_lock() {
        let hosts = Hosts::new();
        let reserving = hosts.reserving((ADDRESS, ADDRESS, b"name")).ok().unwrap();
        let (owner, host) = begin_in(&hosts, 1, 5);
        // It may have reserved in another.
        assert!(host.has_started_anew(5, true));
        assert!(!host.has_started_anew(5, true));
        assert!(host.has_started_anew(7, false));
        assert!(!host.has_started_anew(5, true));
        drop(reserving);
        begin_in(&hosts, 2, 9);
        assert!(!host.has_started_anew(5, true), "it has locks of before");
        for svid in [1, 2] {
            let owner = hosts.number(ADDRESS, b"name", svid);
            hosts.end(owner, FILE);
            hosts.tidy(owner, FILE, 1);
        }
        assert!(hosts.owner(owner).is_none());
        // A client that does not know its own.
        begin_in(&hosts, 1, 8);
        assert!(!host.has_started_anew(5, true));
        hosts.end(owner, FILE);
        hosts.tidy(owner, FILE, 1);
        begin_in(&hosts, 1, 9);
        assert!(!host.has_started_anew(9, true));
        assert!(host.has_started_anew(0, true));
        assert!(host.has_started_anew(0, true));
    }

    #[test]
    fn a_host_without_owners_is_to_be_noted_again() {
        let hosts = Hosts::new();
        let (owner, host) = begin(&hosts, 1);
        assert!(!host.is_noted());
        host.mark_noted();
        assert!(begin(&hosts, 2).1.is_noted());
        // Until it is written again.
        assert_eq!(hosts.to_be_noted().len(), 1);
        assert!(!host.is_noted());
        host.mark_noted();
        for svid in [1, 2] {
            let owner = hosts.number(ADDRESS, b"name", svid);
            hosts.end(owner, FILE);
            hosts.tidy(owner, FILE, 1);
        }
        assert!(hosts.owner(owner).is_none());
        assert!(hosts.to_be_noted().is_empty());
        assert!(!begin(&hosts, 1).1.is_noted());
    }
}
