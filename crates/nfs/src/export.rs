//! What is served, to whom, and as whom: file systems.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use finefs_namespace::guard::LogLimit;
use finefs_namespace::{AccessChecks, Caller, Error, Ino, Namespace, Result};

use crate::changes::Changes;
use crate::handle::{self, Named};
use crate::held::Held;
use crate::rpc::Credential;
use crate::verifier::Verifier;

/// Who squashed callers become: nobody, as in exports(5).
pub const NOBODY: u32 = 65534;

/// Ports below are root's.
const RESERVED_PORTS: u16 = 1024;
/// R_OK of access(2).
const READ: u32 = 4;

/// Which users of client machines become nobody (exports(5)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Squash {
    /// root
    #[default]
    Root,
    /// All.
    All,
    /// None: root of a client is root here.
    None,
}

/// Addresses that begin with the same bits: `192.0.2.0/24`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Why a text names no network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownNetwork;

impl fmt::Display for UnknownNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("give an address, or one with the number of bits that count: 192.0.2.0/24")
    }
}

impl std::error::Error for UnknownNetwork {}

impl FromStr for Network {
    type Err = UnknownNetwork;

    fn from_str(text: &str) -> std::result::Result<Network, UnknownNetwork> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| UnknownNetwork)?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(all), |bits| bits.parse().map_err(|_| UnknownNetwork))?;
        match bits <= all {
            true => Ok(Network { address, bits }),
            false => Err(UnknownNetwork),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Network {
    /// True when the address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let first_differ = |ours: u128, other: u128, width: u32| {
            let shift = width - u32::from(self.bits);
            ours.checked_shr(shift).unwrap_or(0) != other.checked_shr(shift).unwrap_or(0)
        };
        // A socket of both families shows IPv4 addresses as IPv6 ones.
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(other)) => {
                !first_differ(ours.to_bits().into(), other.to_bits().into(), 32)
            }
            (IpAddr::V6(ours), IpAddr::V6(other)) => {
                !first_differ(ours.to_bits(), other.to_bits(), 128)
            }
            _ => false,
        }
    }
}

/// How a file system is served.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Refuse all changes.
    pub is_read_only: bool,
    /// Who becomes nobody.
    pub squash: Squash,
    /// Whom it is served to; everybody when empty.
    pub clients: Vec<Network>,
    /// Answer changes of names and attributes before they are durable (`async` of exports(5)).
    pub is_async: bool,
    /// Refuse calls from ports that any user has (`secure` of exports(5)).
    pub needs_reserved_port: bool,
}

/// A file system that is to be served.
pub struct Served {
    /// The path by which it is mounted: `/`, or `/NAME`.
    pub name: String,
    /// The file system.
    pub namespace: Arc<Namespace>,
    /// To whom, and how.
    pub options: ExportOptions,
}

/// A file system that is served.
pub(crate) struct Export {
    /// The path by which it is mounted: `/`, or `/NAME`.
    pub name: String,
    pub namespace: Arc<Namespace>,
    pub options: ExportOptions,
    pub changes: Changes,
    pub verifier: Verifier,
    pub log_limit: LogLimit,
}

impl Export {
    pub(crate) fn new(served: Served) -> Export {
        let Served {
            name,
            namespace,
            options,
        } = served;
        Export {
            name,
            namespace,
            options,
            changes: Changes::new(),
            verifier: Verifier::new(),
            log_limit: LogLimit::default(),
        }
    }

    /// By which clients tell it from others (`fsid` of `fattr3`): both halves of its UUID, as UUIDs
    /// that somebody has thought up may differ in either.
    pub(crate) fn id(&self) -> u64 {
        let uuid = u128::from_be_bytes(self.namespace.geometry().identity.uuid);
        (uuid >> 64) as u64 ^ uuid as u64
    }

    /// True when a client at this address may use it.
    pub(crate) fn admits(&self, address: IpAddr) -> bool {
        let clients = &self.options.clients;
        clients.is_empty() || clients.iter().any(|network| network.contains(address))
    }

    /// True when a call from this address and port may be carried out.
    pub(crate) fn admits_call(&self, address: IpAddr, port: u16) -> bool {
        let is_reserved = port < RESERVED_PORTS;
        (is_reserved || !self.options.needs_reserved_port) && self.admits(address)
    }

    /// As whom a client's user acts here.
    pub(crate) fn caller(&self, credential: &Credential) -> Caller {
        let squash = self.options.squash;
        match credential {
            Credential::User { uid, gid, groups } if squash != Squash::All => {
                let is_squashed = squash == Squash::Root && *uid == 0;
                let group = |gid: u32| match gid {
                    0 if squash == Squash::Root => NOBODY,
                    gid => gid,
                };
                Caller {
                    uid: if is_squashed { NOBODY } else { *uid },
                    gid: group(*gid),
                    groups: groups.iter().copied().map(group).collect(),
                    // The client has applied it.
                    umask: 0,
                    checks: AccessChecks::Needed,
                }
            }
            _ => Caller {
                uid: NOBODY,
                gid: NOBODY,
                groups: Vec::new(),
                umask: 0,
                checks: AccessChecks::Needed,
            },
        }
    }

    /// The handle of an inode.
    pub(crate) fn handle(&self, ino: Ino, generation: u32) -> [u8; handle::HANDLE_BYTES] {
        handle::encode(
            &self.namespace.geometry().identity,
            Named { ino, generation },
        )
    }

    /// What a handle names, held for as long as the request takes. [`Error::Stale`] when it is
    /// gone.
    pub(crate) fn hold(&self, handle: &[u8]) -> Result<Held<'_>> {
        let named = handle::decode(&self.namespace.geometry().identity, handle)?;
        let attributes = self.namespace.reference(named.ino)?;
        let held = Held::new(&self.namespace, attributes);
        match attributes.generation == named.generation {
            true => Ok(held),
            false => Err(Error::Stale),
        }
    }

    /// EACCES unless a client's user may lock a file: its owner may, and who may read it.
    pub(crate) fn check_locks(&self, credential: &Credential, held: &Held<'_>) -> Result<()> {
        let caller = self.caller(credential);
        match held.attributes.uid == caller.uid {
            true => Ok(()),
            false => self.namespace.access(&caller, held.ino(), READ),
        }
    }

    /// EROFS when changes are refused.
    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.options.is_read_only || self.namespace.is_read_only() {
            true => Err(Error::ReadOnly),
            false => Ok(()),
        }
    }
}

/// All file systems that are served, each known by its number and the UUID in its handles.
pub(crate) struct Exports(Vec<Export>);

impl Exports {
    /// At least one, and each with an [`Export::id`] and a name of its own.
    pub(crate) fn new(exports: Vec<Export>) -> std::result::Result<Exports, String> {
        if exports.is_empty() {
            return Err("there is nothing to serve".into());
        }
        for (at, export) in exports.iter().enumerate() {
            for other in &exports[..at] {
                if other.name == export.name {
                    return Err(format!("two exports are named {}", export.name));
                }
                if other.id() == export.id() {
                    let uuid = |export: &Export| export.namespace.geometry().identity.uuid;
                    let have = match uuid(other) == uuid(export) {
                        true => "have the same UUID",
                        false => "have UUIDs of one fsid",
                    };
                    return Err(format!(
                        "{} and {} {have}, so that clients cannot tell them apart; \
                         give one another (tune2fs -U random)",
                        other.name, export.name
                    ));
                }
            }
        }
        Ok(Exports(exports))
    }

    pub(crate) fn all(&self) -> &[Export] {
        &self.0
    }

    pub(crate) fn get(&self, number: usize) -> Option<&Export> {
        self.0.get(number)
    }

    /// The export that a handle is of, and its number. Of a single export all may be: it says
    /// itself what is not.
    pub(crate) fn of_handle(&self, handle: &[u8]) -> Option<(usize, &Export)> {
        if let [only] = self.0.as_slice() {
            return Some((0, only));
        }
        let uuid = handle::uuid(handle)?;
        let is_it = |export: &&Export| export.namespace.geometry().identity.uuid == *uuid;
        let found = self.0.iter().position(|export| is_it(&export))?;
        Some((found, &self.0[found]))
    }

    /// The export that a path is in, and the rest of the path.
    pub(crate) fn of_path<'p>(&self, path: &'p [u8]) -> Option<(&Export, &'p [u8])> {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let inside = |export: &Export| {
            let name = export.name.as_bytes();
            let name = name.strip_prefix(b"/").unwrap_or(name);
            let rest = path.strip_prefix(name)?;
            let is_whole = name.is_empty() || rest.is_empty() || rest.starts_with(b"/");
            is_whole.then_some(rest)
        };
        let found = self.0.iter().filter_map(|it| Some((it, inside(it)?)));
        found.max_by_key(|(export, _)| export.name.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_what_begins_like_it() {
        let network = |text: &str| text.parse::<Network>();
        let contains =
            |text: &str, address: &str| network(text).unwrap().contains(address.parse().unwrap());
        assert!(contains("192.0.2.0/24", "192.0.2.77"));
        assert!(contains("192.0.2.0/24", "::ffff:192.0.2.77"));
        assert!(!contains("192.0.2.0/24", "192.0.3.1"));
        assert!(contains("0.0.0.0/0", "192.0.3.1"));
        assert!(!contains("0.0.0.0/0", "::1"));
        assert!(contains("192.0.2.7", "192.0.2.7"));
        assert!(!contains("192.0.2.7", "192.0.2.6"));
        assert!(contains("2001:db8::/32", "2001:db8:5::1"));
        assert!(contains("::/0", "2001:db8:5::1"));
        assert!(!contains("2001:db8::/32", "2001:db9::1"));
        for wrong in ["", "192.0.2.0/33", "localhost", "192.0.2.0/x", "::/129"] {
            assert_eq!(network(wrong), Err(UnknownNetwork), "{wrong}");
        }
    }

    #[test]
    fn users_become_nobody_as_the_export_says() {
        let root = Credential::User {
            uid: 0,
            gid: 0,
            groups: vec![0, 4],
        };
        let user = Credential::User {
            uid: 1000,
            gid: 100,
            groups: vec![27],
        };
        let of = |squash, credential: &Credential| {
            let store = finefs_namespace::MemoryStore::new(1 << 20, 0o755, 0, 0).unwrap();
            let namespace = store.into_namespace(finefs_namespace::Options::default());
            let options = ExportOptions {
                squash,
                ..ExportOptions::default()
            };
            let served = Served {
                name: "/".into(),
                namespace: namespace.unwrap(),
                options,
            };
            let caller = Export::new(served).caller(credential);
            assert!(!caller.is_checked());
            (caller.uid, caller.gid, caller.groups)
        };
        assert_eq!(of(Squash::Root, &root), (NOBODY, NOBODY, vec![NOBODY, 4]));
        assert_eq!(of(Squash::Root, &user), (1000, 100, vec![27]));
        assert_eq!(of(Squash::None, &root), (0, 0, vec![0, 4]));
        assert_eq!(of(Squash::All, &user), (NOBODY, NOBODY, vec![]));
        assert_eq!(
            of(Squash::None, &Credential::Nobody),
            (NOBODY, NOBODY, vec![])
        );
    }
}
