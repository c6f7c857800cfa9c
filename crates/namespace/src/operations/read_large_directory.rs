//! Reading directories of which not all names are in memory.
//!
//! They are listed in the order of the store ([`Store::names_from`](crate::Store::names_from)), and
//! for each name the table is asked first, which knows what the store does not know yet. A listing
//! begins with a commit of the directory's changes, so that the store has each name that is there
//! from then on.
//!
//! # Cookies
//! Those of this order have the bit [`BY_STORE`], which others have not, then a name's place, then
//! bits of its hash. A directory that was begun in one order goes on in that, whether or not all of
//! its names are in memory by then. Where names are in memory, and so many that they may soon not
//! be, the order of the store is begun with. It can still happen that a listing in the order of the
//! table has to go on without one: then all names are passed for each call.

use std::collections::BTreeMap;

use crossbeam_epoch::Guard;

use crate::base::error::{Error, Result};
use crate::base::store::{EntryImage, PLACES, PlacedName};
use crate::base::types::{FileKind, Ino};
use crate::names::name_table::{COOKIE_FIRST, COOKIE_MAX, HashedName, Known};
use crate::namespace::Namespace;
use crate::operations::read_directory::{DirectoryEntry, Listing, Sink};

/// Marks cookies in the order of the store.
const BY_STORE: u64 = COOKIE_MAX + 1;
/// Bits of a cookie for what tells names of one place apart.
const HASH_BITS: u32 = BY_STORE.trailing_zeros() - PLACES.trailing_zeros();
/// Names that a call keeps in mind at most, where the table's order has to be made.
const SELECTED_MAX: usize = 4096;
/// A directory with more than one part in so many of what makes it large may soon be.
const SOON_PART: u64 = 2;

/// Where a name comes in the order of the store.
fn cookie_by_store(place: u64, name: HashedName<'_>) -> u64 {
    BY_STORE | place << HASH_BITS | name.hash >> (u64::BITS - HASH_BITS)
}

impl Namespace {
    /// Before a directory is listed from its beginning: true where the store is to list it, and
    /// lacks changes of it.
    pub(super) fn waits_for_commit(&self, ino: Ino, guard: &Guard) -> Result<bool> {
        let dir = self.inode(ino, guard)?;
        let table = self.table(dir)?;
        let listing = Listing { dir, table, guard };
        Ok(self.may_be_listed_by_store(&listing) && self.log.is_dirty(dir))
    }

    /// Puts on the store what is to be listed by it. Outside of any operation.
    pub(super) fn commit_listed(&self) -> Result<()> {
        match self.commit_log() {
            // It is written out later, and can be read.
            Ok(()) | Err(Error::NoSpace) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn may_be_listed_by_store(&self, listing: &Listing<'_>) -> bool {
        let Listing { table, guard, .. } = *listing;
        let is_soon = || table.bytes(guard) as u64 > self.memory.part() / SOON_PART;
        table.is_partial() || self.store.can_reload() && is_soon()
    }

    pub(super) fn is_listed_by_store(&self, listing: &Listing<'_>, cookie: u64) -> bool {
        let Listing { dir, table, .. } = *listing;
        let opens = || self.store.open_large_directory(dir.ino, 0);
        table.is_partial()
            || cookie >= BY_STORE
            || cookie < COOKIE_FIRST
                && self.may_be_listed_by_store(listing)
                && matches!(opens(), Ok(Some(_)))
    }

    /// Gives the names after a cookie.
    pub(super) fn list_by_store(
        &self,
        listing: &Listing<'_>,
        cookie: u64,
        sink: Sink<'_>,
    ) -> Result<()> {
        if (COOKIE_FIRST..BY_STORE).contains(&cookie) {
            return self.list_in_order_of_table(listing, cookie, sink);
        }
        let after = cookie.max(BY_STORE - 1);
        let mut place = Some(after.saturating_sub(BY_STORE) >> HASH_BITS);
        let mut names = Vec::new();
        while let Some(from) = place {
            names.clear();
            place = self.note_load(self.store.names_from(listing.dir.ino, from, &mut names))?;
            let cookie_of = |placed: &PlacedName| {
                let name = listing.table.hashed(&placed.entry.name);
                cookie_by_store(placed.place, name)
            };
            names.sort_by_cached_key(cookie_of);
            for placed in &names {
                let cookie = cookie_of(placed);
                if cookie <= after {
                    continue;
                }
                let Some((ino, kind)) = self.listed_as_known(listing, placed) else {
                    continue;
                };
                let name = &placed.entry.name;
                if !sink(DirectoryEntry {
                    name,
                    ino,
                    kind,
                    cookie,
                }) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// What a name that the store has is listed as naming; `None` where it was removed.
    fn listed_as_known(
        &self,
        listing: &Listing<'_>,
        placed: &PlacedName,
    ) -> Option<(Ino, Option<FileKind>)> {
        let Listing { dir, table, guard } = *listing;
        let entry = &placed.entry;
        let name = table.hashed(&entry.name);
        match table.known(name, guard) {
            Known::Named(node) => return self.listed_as(listing, node),
            Known::Absent => return None,
            Known::Unknown => {}
        }
        let kind = || self.inode(entry.ino, guard).ok().map(|inode| inode.kind);
        let kind = entry.kind.or_else(kind);
        if kind.is_some() {
            return Some((entry.ino, kind));
        }
        // It may name another inode since it was read, and have left the table again.
        let _ = self.learn(dir, table, name, guard);
        match table.known(name, guard) {
            Known::Named(node) => self.listed_as(listing, node),
            Known::Absent => None,
            Known::Unknown => Some((entry.ino, None)),
        }
    }

    /// Gives the names after a cookie that the table gave when it was whole.
    fn list_in_order_of_table(
        &self,
        listing: &Listing<'_>,
        cookie: u64,
        sink: Sink<'_>,
    ) -> Result<()> {
        let Listing { dir, table, guard } = *listing;
        let mut after = cookie;
        loop {
            let mut selected: BTreeMap<u64, PlacedName> = BTreeMap::new();
            let mut select = |cookie: u64, placed: PlacedName| {
                if cookie > after {
                    selected.insert(cookie, placed);
                }
                if selected.len() > SELECTED_MAX {
                    selected.pop_last();
                }
            };
            // What the store does not have yet is in the table.
            let mut left = SELECTED_MAX;
            table.for_each_after(after, guard, |node| {
                let entry = EntryImage {
                    name: node.name.to_vec(),
                    ino: node.ino,
                    kind: node.kind,
                };
                select(node.cookie(), PlacedName { place: 0, entry });
                left -= 1;
                left > 0
            });
            let (mut place, mut names) = (Some(0), Vec::new());
            while let Some(from) = place {
                names.clear();
                place = self.note_load(self.store.names_from(dir.ino, from, &mut names))?;
                for placed in names.drain(..) {
                    let name = table.hashed(&placed.entry.name);
                    select(name.cookie(), placed);
                }
            }
            let is_last = selected.len() < SELECTED_MAX;
            for (cookie, placed) in &selected {
                after = *cookie;
                let Some((ino, kind)) = self.listed_as_known(listing, placed) else {
                    continue;
                };
                let (name, cookie) = (&placed.entry.name[..], *cookie);
                if !sink(DirectoryEntry {
                    name,
                    ino,
                    kind,
                    cookie,
                }) {
                    return Ok(());
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }
}
