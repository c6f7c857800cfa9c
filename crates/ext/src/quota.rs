//! Quotas: what users, groups and projects have of the file system, and may have.
//!
//! # Data model
//! A [`Ledger`] for each kind that the image keeps holds all accounts of its quota file. An account
//! is the entry as the last batch left it, and what operations have asked for since, by the
//! generation of the log that they will be in: a commit takes a batch over into the entry exactly
//! (`apply::quota`), so what was asked for in its generation is forgotten, whatever became of it.
//!
//! # Invariants
//! 1. The entries on the device are right after each commit, in the journal's transaction of the
//!    inodes that they count.
//! 2. Only where something is limited is anything noted between commits.
//! 3. Nobody has more than a hard limit allows, but for what the metadata of mappings and
//!    directories takes, operations that a commit cuts off between asking and logging, and values
//!    of attributes in inodes that are not charged: those that a new inode inherits, those that
//!    only the commit finds no room for beside the others, and, with a new owner, those set since
//!    the last commit.
//!
//! # Locking
//! `ext.quota` (74): the book of a ledger. One at a time, never over I/O.
//!
//! # Room for new accounts
//! An id that has no entry in the quota file yet needs up to [`ROOM_BLOCKS`] for one when its
//! batch is applied, where nothing may fail for lack of space. So who is first charged for an id
//! reserves them ([`Quotas::make_room`]), and so does who sets its limits ([`Quotas::set`]). The
//! commit takes them over with the entry, or gives them back with the generation after that of the
//! charge, where nothing came of it. Limits that were set always come to an entry.
//!
//! # References
//! `fs/quota/dquot.c`, for limits and grace times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use finefs_buffers::alloc::{Allocator, BitmapSource};
use finefs_ext_disk::quota::{DEPTH, SPACE_UNIT};
pub use finefs_ext_disk::quota::{QuotaEntry, QuotaInfo, QuotaKind};
use finefs_locks::LockClass;
use finefs_namespace::{
    Allowance, Charge, Error, Limited, NumberMap, QuotaAccount, QuotaChange, QuotaLimits,
    QuotaOwners, Result,
};

use crate::sync::Mutex;

/// The book of a ledger.
pub static QUOTA: LockClass = LockClass::new("ext.quota", 74);

/// What the entry of a new id takes at most: a block of entries, its branch of the tree, and the
/// map of the file.
pub(crate) const ROOM_BLOCKS: u64 = 2 + DEPTH as u64;
/// So many ids of a kind are known to have an entry without a look into the book.
const SETTLED_IDS: usize = 64;
/// No id.
const NOBODY: u32 = u32::MAX;

/// See the module's head.
pub(crate) struct Quotas {
    ledgers: Vec<Ledger>,
    pub size: Arc<QuotaSize>,
}

/// How large the quota files are, together.
#[derive(Default)]
pub(crate) struct QuotaSize {
    /// Their blocks.
    pub blocks: AtomicU64,
    /// Blocks that are reserved for new entries.
    pub room: AtomicU64,
}

/// What one kind of ids has.
pub(crate) struct Ledger {
    pub kind: QuotaKind,
    /// The inode of the quota file.
    pub ino: u32,
    /// Limits count.
    is_enforced: bool,
    /// And there are some.
    is_limited: AtomicBool,
    /// Ids that have an entry in the file, each at its remainder.
    settled: [AtomicU32; SETTLED_IDS],
    pub book: Mutex<Book>,
}

/// The accounts.
#[derive(Default)]
pub(crate) struct Book {
    pub info: QuotaInfo,
    pub accounts: NumberMap<u32, Account>,
    /// What ids have asked for that no batch has brought yet: by generation, in ascending order.
    asked: NumberMap<u32, Vec<(u64, Amount)>>,
    /// The ids without an entry for which room is reserved, and the generation that they were last
    /// charged in.
    room: NumberMap<u32, u64>,
    /// Whose limits were set, and whether grace times were, since the last commit.
    set: (BTreeSet<u32>, bool),
}

/// What an id has.
#[derive(Clone, Copy, Default)]
pub(crate) struct Account {
    pub entry: QuotaEntry,
    /// Block and byte offset of the entry in the quota file; 0 for none yet.
    pub place: (u32, usize),
}

/// Space and inodes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Amount {
    pub bytes: i64,
    pub inodes: i64,
}

impl Amount {
    fn of(charge: &Charge) -> Amount {
        Amount {
            bytes: charge.bytes as i64,
            inodes: charge.inodes as i64,
        }
    }

    fn add(&mut self, other: Amount) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }
}

/// What the ids of a kind have: bytes and inodes.
pub type QuotaUsage = (QuotaKind, BTreeMap<u32, (u64, u64)>);

/// What the ids of one kind have and may have.
#[derive(Clone, Debug)]
pub struct QuotaReport {
    /// Whose.
    pub kind: QuotaKind,
    /// Grace times.
    pub info: QuotaInfo,
    /// In ascending order of ids.
    pub entries: Vec<QuotaEntry>,
}

impl Quotas {
    /// Those with these books: a kind, the inode of its quota file, and what that says. `limits`
    /// are the kinds whose limits count.
    pub fn new(books: Vec<(QuotaKind, u32, Book)>, limits: &[QuotaKind]) -> Quotas {
        let blocks = books.iter().map(|(_, _, book)| u64::from(book.info.blocks));
        let blocks = blocks.sum();
        let ledgers = books.into_iter().map(|(kind, ino, book)| {
            let is_enforced = limits.contains(&kind);
            let mut entries = book.accounts.values().map(|held| held.entry);
            let is_limited = is_enforced && entries.any(|entry| entry.is_limited());
            Ledger {
                kind,
                ino,
                is_enforced,
                is_limited: AtomicBool::new(is_limited),
                settled: std::array::from_fn(|_| AtomicU32::new(NOBODY)),
                book: Mutex::new(&QUOTA, book),
            }
        });
        Quotas {
            ledgers: ledgers.collect(),
            size: Arc::new(QuotaSize {
                blocks: AtomicU64::new(blocks),
                room: AtomicU64::new(0),
            }),
        }
    }

    /// Reserves what the entries of a charge's ids take, where they have none; `Error::NoSpace`
    /// where there is none.
    pub fn make_room(
        &self,
        space: (&Allocator, &dyn BitmapSource),
        charge: &Charge,
        generation: &dyn Fn() -> u64,
    ) -> Result<()> {
        for ledger in &self.ledgers {
            if let Some(id) = ledger.kind.id_of(charge) {
                self.make_room_for(space, ledger, id, generation)?;
            }
        }
        Ok(())
    }

    fn make_room_for(
        &self,
        (allocator, bitmaps): (&Allocator, &dyn BitmapSource),
        ledger: &Ledger,
        id: u32,
        generation: &dyn Fn() -> u64,
    ) -> Result<()> {
        if ledger.is_settled(id) || ledger.note_charge(id, generation) {
            return Ok(());
        }
        if !allocator.reserve(bitmaps, ROOM_BLOCKS) {
            return Err(Error::NoSpace);
        }
        let generation = generation();
        let before = ledger.book.lock().room.insert(id, generation);
        match before {
            Some(_) => allocator.unreserve(ROOM_BLOCKS),
            None => _ = self.size.room.fetch_add(ROOM_BLOCKS, Ordering::AcqRel),
        }
        Ok(())
    }

    /// An id gets its entry: whether room was reserved for it, which is the caller's now.
    pub fn take_room(&self, ledger: &Ledger, id: u32) -> bool {
        let had = ledger.book.lock().room.remove(&id).is_some();
        if had {
            self.size.room.fetch_sub(ROOM_BLOCKS, Ordering::AcqRel);
        }
        had
    }

    /// The ledgers, one for each kind.
    pub fn ledgers(&self) -> &[Ledger] {
        &self.ledgers
    }

    /// `Error::QuotaExceeded` where somebody would have more than is allowed; else notes that it is
    /// asked for in a generation of the log.
    pub fn charge(&self, charge: &Charge, generation: &dyn Fn() -> u64, now: u64) -> Result<()> {
        let more = Amount::of(charge);
        if !charge.is_privileged {
            for (ledger, id) in self.limited(charge) {
                if !ledger.book.lock().allows(id, more, now) {
                    return Err(Error::QuotaExceeded);
                }
            }
        }
        for (ledger, id) in self.limited(charge) {
            let generation = generation();
            ledger.book.lock().ask(id, more, generation);
        }
        Ok(())
    }

    /// Gives back what was asked for, as far as no commit has forgotten it.
    pub fn uncharge(&self, charge: &Charge) {
        for (ledger, id) in self.limited(charge) {
            ledger.book.lock().give_back(id, Amount::of(charge));
        }
    }

    /// The ledgers whose limits count for a charge, and the id that each is about.
    fn limited(&self, charge: &Charge) -> impl Iterator<Item = (&Ledger, u32)> {
        let limited = self.ledgers.iter().filter(|ledger| ledger.is_limited());
        limited.filter_map(|ledger| Some((ledger, ledger.kind.id_of(charge)?)))
    }

    /// The batch of a generation is in the entries. Gives the blocks that were reserved for those
    /// of whom nothing came.
    pub fn settled(&self, generation: u64) -> u64 {
        let mut unused = 0;
        if self.size.room.load(Ordering::Acquire) > 0 {
            for ledger in &self.ledgers {
                let mut book = ledger.book.lock();
                let before = book.room.len();
                let Book { room, set, .. } = &mut *book;
                // What was charged for may be logged one generation later.
                room.retain(|id, charged| *charged >= generation || set.0.contains(id));
                unused += (before - book.room.len()) as u64 * ROOM_BLOCKS;
            }
            self.size.room.fetch_sub(unused, Ordering::AcqRel);
        }
        for ledger in self.ledgers.iter().filter(|ledger| ledger.is_limited()) {
            ledger.book.lock().asked.retain(|_, asked| {
                asked.retain(|(of, _)| *of > generation);
                !asked.is_empty()
            });
        }
        unused
    }

    /// Sets limits or grace times, which the next commit puts into the quota file.
    /// `Error::NoSpace` where that could not grow by the entry of an id that has none.
    pub fn set(
        &self,
        space: (&Allocator, &dyn BitmapSource),
        (owners, change): (QuotaOwners, &QuotaChange),
        generation: &dyn Fn() -> u64,
        now: u64,
    ) -> Result<()> {
        let ledger = self.ledger(owners).ok_or(Error::NotSupported)?;
        if let QuotaChange::Limits { id, .. } = change {
            self.make_room_for(space, ledger, *id, generation)?;
        }
        ledger.set(change, now);
        Ok(())
    }

    fn ledger(&self, owners: QuotaOwners) -> Option<&Ledger> {
        let kind = kind_of(owners);
        self.ledgers.iter().find(|ledger| ledger.kind == kind)
    }

    /// What one of these owners may have and has, where limits count.
    pub fn allowance(&self, owners: QuotaOwners, id: u32) -> Allowance {
        match self.ledger(owners).filter(|ledger| ledger.is_limited()) {
            Some(ledger) => ledger.book.lock().allowance(id),
            None => Allowance::default(),
        }
    }

    /// What everybody has, as the last commit left it.
    pub fn report(&self) -> Vec<QuotaReport> {
        let report = |ledger: &Ledger| {
            let book = ledger.book.lock();
            let mut entries: Vec<QuotaEntry> =
                book.accounts.values().map(|held| held.entry).collect();
            entries.sort_unstable_by_key(|entry| entry.id);
            QuotaReport {
                kind: ledger.kind,
                info: book.info,
                entries,
            }
        };
        self.ledgers.iter().map(report).collect()
    }
}

/// What these reports say of an id; `None` where no account is kept of such owners.
pub(crate) fn account(
    reports: &[QuotaReport],
    owners: QuotaOwners,
    id: u32,
) -> Option<QuotaAccount> {
    let kind = kind_of(owners);
    let report = reports.iter().find(|report| report.kind == kind)?;
    let place = report.entries.binary_search_by_key(&id, |entry| entry.id);
    let entry = place.map_or_else(|_| QuotaEntry::default(), |at| report.entries[at]);
    Some(QuotaAccount {
        space_bytes: entry.space_bytes,
        inodes: entry.inodes,
        limits: QuotaLimits {
            space_soft_bytes: entry.space_soft.saturating_mul(SPACE_UNIT),
            space_hard_bytes: entry.space_hard.saturating_mul(SPACE_UNIT),
            inodes_soft: entry.inodes_soft,
            inodes_hard: entry.inodes_hard,
        },
        space_until_seconds: entry.space_until,
        inodes_until_seconds: entry.inodes_until,
        space_grace_seconds: report.info.space_grace,
        inode_grace_seconds: report.info.inode_grace,
    })
}

fn kind_of(owners: QuotaOwners) -> QuotaKind {
    match owners {
        QuotaOwners::Users => QuotaKind::User,
        QuotaOwners::Groups => QuotaKind::Group,
        QuotaOwners::Projects => QuotaKind::Project,
    }
}

impl Ledger {
    /// Whether an id is known to have an entry in the file; most calls take no lock.
    fn is_settled(&self, id: u32) -> bool {
        let known = &self.settled[id as usize % SETTLED_IDS];
        if known.load(Ordering::Relaxed) == id {
            return true;
        }
        let book = self.book.lock();
        let has_entry = (book.accounts.get(&id)).is_some_and(|account| account.place.0 != 0);
        if has_entry {
            known.store(id, Ordering::Relaxed);
        }
        has_entry
    }

    /// Whether there is room for an id, which is charged once more.
    fn note_charge(&self, id: u32, generation: &dyn Fn() -> u64) -> bool {
        let generation = generation();
        let mut book = self.book.lock();
        let charged = book.room.get_mut(&id);
        charged.is_some_and(|charged| {
            *charged = generation.max(*charged);
            true
        })
    }

    fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Acquire)
    }

    fn set(&self, change: &QuotaChange, now: u64) {
        let mut book = self.book.lock();
        let book = &mut *book;
        match change {
            QuotaChange::Limits { id, limits } => {
                let account = book.accounts.entry(*id).or_default();
                account.entry.id = *id;
                account.limit(limits, &book.info, now);
                book.set.0.insert(*id);
            }
            QuotaChange::Grace {
                space_seconds,
                inode_seconds,
            } => {
                book.info.space_grace = *space_seconds;
                book.info.inode_grace = *inode_seconds;
                book.set.1 = true;
            }
        }
        // What was asked for before is not noted; its batch brings it.
        self.is_limited.fetch_or(self.is_enforced, Ordering::AcqRel);
    }
}

/// Whose ids a kind is about.
trait IdOf {
    fn id_of(self, charge: &Charge) -> Option<u32>;
}

impl IdOf for QuotaKind {
    fn id_of(self, charge: &Charge) -> Option<u32> {
        match self {
            QuotaKind::User => charge.uid,
            QuotaKind::Group => charge.gid,
            QuotaKind::Project => charge.project,
        }
    }
}

impl Book {
    /// One that a quota file has.
    pub fn new(info: QuotaInfo, accounts: NumberMap<u32, Account>) -> Book {
        Book {
            info,
            accounts,
            ..Book::default()
        }
    }

    /// Whether an id may have so much more than it has and has asked for.
    fn allows(&mut self, id: u32, more: Amount, now: u64) -> bool {
        let asked = self.asked_of(id);
        let Some(account) = self.accounts.get_mut(&id) else {
            return true;
        };
        account.allows(asked, more, &self.info, now)
    }

    /// What was asked for and is in no entry yet.
    fn asked_of(&self, id: u32) -> Amount {
        let mut asked = Amount::default();
        let parts = self.asked.get(&id).into_iter().flatten();
        parts.for_each(|(_, amount)| asked.add(*amount));
        asked
    }

    fn allowance(&self, id: u32) -> Allowance {
        let entry = self.accounts.get(&id).map(|held| held.entry);
        let (entry, asked) = (entry.unwrap_or_default(), self.asked_of(id));
        let space = [entry.space_soft, entry.space_hard].map(|units| units * SPACE_UNIT);
        let inodes = [entry.inodes_soft, entry.inodes_hard];
        let space_used = entry.space_bytes.saturating_add_signed(asked.bytes);
        let inodes_used = entry.inodes.saturating_add_signed(asked.inodes);
        Allowance {
            space_bytes: Limited::by(space, space_used),
            inodes: Limited::by(inodes, inodes_used),
        }
    }

    fn ask(&mut self, id: u32, more: Amount, generation: u64) {
        if !self
            .accounts
            .get(&id)
            .is_some_and(|held| held.entry.is_limited())
        {
            return;
        }
        let asked = self.asked.entry(id).or_default();
        match asked.last_mut() {
            Some((of, amount)) if *of >= generation => amount.add(more),
            _ => asked.push((generation, more)),
        }
    }

    fn give_back(&mut self, id: u32, mut amount: Amount) {
        for (_, asked) in self.asked.get_mut(&id).into_iter().flatten().rev() {
            let bytes = amount.bytes.min(asked.bytes);
            let inodes = amount.inodes.min(asked.inodes);
            for part in [&mut *asked, &mut amount] {
                part.bytes -= bytes;
                part.inodes -= inodes;
            }
        }
    }
}

impl Book {
    /// Whose limits were set since it was last asked, and whether grace times were.
    pub fn take_set(&mut self) -> (BTreeSet<u32>, bool) {
        std::mem::take(&mut self.set)
    }

    /// What ids must get, or lose, to have this.
    pub fn missing(&self, usage: &BTreeMap<u32, (u64, u64)>) -> BTreeMap<u32, Amount> {
        let (accounts, ids) = (&self.accounts, usage.keys().chain(self.accounts.keys()));
        let missing = ids.map(|id| {
            let entry = accounts.get(id).map(|held| held.entry).unwrap_or_default();
            let (bytes, inodes) = usage.get(id).copied().unwrap_or_default();
            let amount = Amount {
                bytes: bytes.wrapping_sub(entry.space_bytes).cast_signed(),
                inodes: inodes.wrapping_sub(entry.inodes).cast_signed(),
            };
            (*id, amount)
        });
        missing.collect()
    }
}

impl Account {
    /// Sets what it may have. What is above a soft limit begins with all grace, as in the kernel.
    fn limit(&mut self, limits: &QuotaLimits, info: &QuotaInfo, now: u64) {
        let entry = &mut self.entry;
        entry.space_soft = limits.space_soft_bytes.div_ceil(SPACE_UNIT);
        entry.space_hard = limits.space_hard_bytes.div_ceil(SPACE_UNIT);
        entry.inodes_soft = limits.inodes_soft;
        entry.inodes_hard = limits.inodes_hard;
        (entry.space_until, entry.inodes_until) = (0, 0);
        self.take(Amount::default(), info, now);
    }

    /// Whether it may have so much more, beside what it asked for. Notes when it comes above a soft
    /// limit.
    fn allows(&mut self, asked: Amount, more: Amount, info: &QuotaInfo, now: u64) -> bool {
        let mut has = asked;
        has.add(more);
        let entry = &mut self.entry;
        let bytes = entry.space_bytes.saturating_add_signed(has.bytes);
        let inodes = entry.inodes.saturating_add_signed(has.inodes);
        let limits = [entry.space_hard, entry.space_soft].map(|units| units * SPACE_UNIT);
        let space_until = &mut entry.space_until;
        let may_have_space =
            more.bytes <= 0 || is_allowed(bytes, limits, space_until, now, info.space_grace);
        let limits = [entry.inodes_hard, entry.inodes_soft];
        let inodes_until = &mut entry.inodes_until;
        let may_have_inodes =
            more.inodes <= 0 || is_allowed(inodes, limits, inodes_until, now, info.inode_grace);
        may_have_space && may_have_inodes
    }

    /// Takes a batch over. Who is below a soft limit has all grace again.
    pub fn take(&mut self, more: Amount, info: &QuotaInfo, now: u64) {
        let entry = &mut self.entry;
        entry.space_bytes = entry.space_bytes.saturating_add_signed(more.bytes);
        entry.inodes = entry.inodes.saturating_add_signed(more.inodes);
        let soft = entry.space_soft * SPACE_UNIT;
        grace(
            entry.space_bytes,
            soft,
            &mut entry.space_until,
            now,
            info.space_grace,
        );
        let soft = entry.inodes_soft;
        grace(
            entry.inodes,
            soft,
            &mut entry.inodes_until,
            now,
            info.inode_grace,
        );
    }
}

fn is_allowed(
    has: u64,
    [hard, soft]: [u64; 2],
    until: &mut u64,
    now: u64,
    grace_seconds: u32,
) -> bool {
    if hard != 0 && has > hard {
        return false;
    }
    if soft == 0 || has <= soft {
        return true;
    }
    if *until == 0 {
        *until = now + u64::from(grace_seconds);
    }
    now < *until
}

fn grace(has: u64, soft: u64, until: &mut u64, now: u64, grace_seconds: u32) {
    if soft == 0 || has <= soft {
        *until = 0;
    } else if *until == 0 {
        *until = now + u64::from(grace_seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_grace() {
        let info = QuotaInfo {
            space_grace: 100,
            inode_grace: 100,
            ..QuotaInfo::default()
        };
        const NONE: Amount = Amount {
            bytes: 0,
            inodes: 0,
        };
        let mut account = Account::default();
        account.entry.space_hard = 8;
        account.entry.space_soft = 4;
        account.entry.inodes_hard = 2;
        let space = |bytes| Amount { bytes, inodes: 0 };
        assert!(account.allows(NONE, space(4096), &info, 1000));
        assert_eq!(account.entry.space_until, 0);
        assert!(!account.allows(NONE, space(8193), &info, 1000));
        assert!(account.allows(NONE, space(8192), &info, 1000));
        assert_eq!(account.entry.space_until, 1100);
        account.take(space(8192), &info, 1000);
        assert!(!account.allows(NONE, space(1), &info, 1001));
        account.take(space(-3072), &info, 1050);
        assert!(
            account.allows(NONE, space(1024), &info, 1099),
            "in the grace time"
        );
        assert!(!account.allows(NONE, space(1024), &info, 1100), "after it");
        account.take(space(-1024), &info, 1200);
        assert_eq!(account.entry.space_until, 0);
        let inode = Amount {
            bytes: 0,
            inodes: 1,
        };
        account.take(inode, &info, 1200);
        assert!(account.allows(NONE, inode, &info, 1200));
        account.take(inode, &info, 1200);
        assert!(!account.allows(NONE, inode, &info, 1200));
    }

    #[test]
    fn what_was_asked_for_counts_until_its_batch_is_there() {
        let mut book = Book::default();
        book.accounts.entry(7).or_default().entry.space_hard = 8;
        let quotas = Quotas::new(vec![(QuotaKind::User, 3, book)], &[QuotaKind::User]);
        let charge = |uid, kib, is_privileged| {
            let charge = Charge {
                uid: Some(uid),
                bytes: kib * 1024,
                is_privileged,
                ..Charge::default()
            };
            (quotas.charge(&charge, &|| kib, 0), charge)
        };
        assert_eq!(charge(8, 100, false).0, Ok(()), "not limited");
        assert_eq!(charge(7, 5, false).0, Ok(()));
        assert_eq!(charge(7, 4, false).0, Err(Error::QuotaExceeded));
        let (outcome, three) = charge(7, 3, false);
        assert_eq!(outcome, Ok(()));
        quotas.settled(4);
        assert_eq!(charge(7, 1, false).0, Err(Error::QuotaExceeded));
        quotas.uncharge(&three);
        assert_eq!(charge(7, 3, false).0, Ok(()));
        quotas.settled(5);
        assert_eq!(
            charge(7, 8, false).0,
            Ok(()),
            "no batch has brought anything"
        );
        assert_eq!(charge(7, 9, true).0, Ok(()), "the superuser may");
    }
}
