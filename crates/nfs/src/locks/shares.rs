//! Share reservations (SHARE, UNSHARE): which files clients of DOS and its like have open, and what
//! others may not do meanwhile. They bind only those who ask.

use std::collections::HashMap;
use std::net::IpAddr;

use finefs_locks::Mutex;

use super::hosts::{File, Reserving};
use super::messages::Shares;
use crate::classes;

/// The most reservations of all clients, and on one file.
const SHARES_MAX: usize = 65536;
const OF_FILE_MAX: usize = 1024;

struct Share {
    host: Reserving,
    owner: Box<[u8]>,
    denied: u32,
    access: u32,
}

impl Share {
    fn is_of(&self, address: IpAddr, name: &[u8]) -> bool {
        self.host.address == address && *self.host.name == *name
    }
}

#[derive(Default)]
struct Table {
    of_files: HashMap<File, Vec<Share>>,
    count: usize,
}

/// All reservations.
pub(super) struct Reservations(Mutex<Table>);

impl Reservations {
    pub(super) fn new() -> Reservations {
        Reservations(Mutex::new(&classes::LOCK_SHARES, Table::default()))
    }

    /// Reserves; false when another's reservation is in the way, or there are too many.
    pub(super) fn reserve(&self, file: File, host: Reserving, asked: &Shares<'_>) -> bool {
        let mut table = self.0.lock();
        let is_full = table.count >= SHARES_MAX;
        let shares = table.of_files.entry(file).or_default();
        let is_own =
            |share: &Share| share.is_of(host.address, asked.name) && *share.owner == *asked.owner;
        let mut others = shares.iter().filter(|share| !is_own(share));
        let is_refused = others
            .any(|share| share.denied & asked.access != 0 || share.access & asked.denied != 0);
        let own = shares.iter().position(is_own);
        let is_done = match own {
            _ if is_refused => false,
            Some(own) => {
                shares[own].denied = asked.denied;
                shares[own].access = asked.access;
                true
            }
            None if is_full || shares.len() >= OF_FILE_MAX => false,
            None => {
                shares.push(Share {
                    host,
                    owner: asked.owner.into(),
                    denied: asked.denied,
                    access: asked.access,
                });
                table.count += 1;
                true
            }
        };
        if table.of_files.get(&file).is_some_and(Vec::is_empty) {
            table.of_files.remove(&file);
        }
        is_done
    }

    /// An owner's on one file.
    pub(super) fn release(&self, file: File, address: IpAddr, asked: &Shares<'_>) {
        let mut table = self.0.lock();
        let Some(shares) = table.of_files.get_mut(&file) else {
            return;
        };
        let before = shares.len();
        shares.retain(|share| !share.is_of(address, asked.name) || *share.owner != *asked.owner);
        let (ended, is_last) = (before - shares.len(), shares.is_empty());
        table.count -= ended;
        if is_last {
            table.of_files.remove(&file);
        }
    }

    /// A client's on the files that are meant.
    pub(super) fn release_all(
        &self,
        address: IpAddr,
        name: &[u8],
        is_meant: impl Fn(File) -> bool,
    ) {
        let mut table = self.0.lock();
        let mut left = 0;
        table.of_files.retain(|file, shares| {
            shares.retain(|share| !is_meant(*file) || !share.is_of(address, name));
            left += shares.len();
            !shares.is_empty()
        });
        table.count = left;
    }
}
