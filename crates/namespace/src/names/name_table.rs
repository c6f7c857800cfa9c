//! The concurrent table of one directory: from name to (inode number, kind).
//!
//! # Shape
//! A power-of-two array of buckets: a lock, a version, and the head of a chain of nodes. A name
//! belongs to the bucket that the high bits of its hash index: the names of a bucket are one
//! interval of hashes, and when the table doubles an interval is halved, bucket `n` into `2n` and
//! `2n + 1`. A node's cookie is its hash (62 bits, made unique within the bucket), so readdir in
//! order of cookies goes bucket by bucket, resumes in constant time, and returns every name that
//! stays exactly once, however the table grows. A chain is in order of cookies too, so halving it
//! is one cut, and nodes stay where they are.
//!
//! Readdir reads the table from one end to the other. (Low bits would do as well, with the
//! intervals those of the reversed hash: but buckets that readdir comes to one after the other are
//! then half the table apart, a quarter and so on, and all map to the same few sets of each cache,
//! which throw out again what was asked for.)
//!
//! A bucket has a cache line of its own while writers might meet in one; in a table of so many
//! lines that they do not, two lie in a line. A bucket's *filter* has a bit for each name in the
//! chain, by its hash: most names that are not there are told from it alone.
//!
//! Where the store can tell only so many names of a *class* apart ([`NameClasses`]), the names of a
//! class share the high bits of their hashes, and so a bucket: its holder counts them.
//!
//! A name is hashed once an operation ([`NameTable::hashed`]); what it is handed to takes the hash
//! from there. The hash is SipHash with keys of the directory's own, the same whenever it is
//! loaded: so cookies stay good for clients that keep them without a reference. Cheaper keyed
//! hashes promise nothing once an attacker sees what they give, and cookies show 62 bits of it to
//! any user that lists the directory; and with keys in common, a directory that is copied in the
//! order of its cookies would fill one bucket of the copy after the other.
//!
//! # Readers
//! Lookups and readdir take no lock and write nothing. Of a node only `next` changes; nodes are
//! inserted, and replaced, by one store, and reclaimed by epochs. Tag OUT of `next` is set when a
//! node was taken out or replaced, before the lock is released: so a lookup that finds what a node
//! names can tell afterwards that it named that.
//!
//! # Growth
//! Bucket by bucket, in their order, each under its lock. (1) Both halves begin in the next table:
//! the lower with the head of the chain, the upper with the first node that belongs there. (2) LEFT
//! is set: readers go to the next table. (3) The chain is cut before that node. (4) MOVED is set:
//! writers go to the next table. A reader that met the cut sees LEFT when it looks at the head
//! again, as all do after their walk. Between (2) and (3) a reader of the lower half walks on into
//! the upper one, which is right for lookups; readdir leaves out what is not of the interval. A
//! writer there would cut or be cut off: so they come after (3). From (4) on a chain is entered
//! through the next table alone, since a thread that takes a node out takes it out of that.
//!
//! # Invariants
//! 1. A chain changes only under its bucket's lock, and so do the tags of the head, filter and
//!    length.
//! 2. Tag LEFT: the names of this bucket are found from the next table, and nobody follows the
//!    head. Tag MOVED: they are changed there, too; so it is never without LEFT. Tag DEAD: the
//!    directory was removed; the chain is empty for ever.
//! 3. Tag RENAMING is set on both buckets of a rename while they change. A lookup that sees it,
//!    before or after its walk, waits and walks again. So nobody sees the new name and then still
//!    the old one, or neither.
//! 4. `version` counts the changes of a bucket and goes over to its halves. It orders the log
//!    records of a name.
//! 5. Only the holder of `resize` puts LEFT, MOVED or DEAD anywhere; so under it there is one
//!    table. Buckets get LEFT in their order.
//! 6. A bit of a filter is set before a name of its is in the chain, and cleared after the last one
//!    is out.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use crossbeam_epoch::{Atomic, Guard, Owned, Shared};
use finefs_locks::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use finefs_locks::primitive::{hint, thread};
use finefs_locks::{Mutex, MutexGuard, RawGuard};
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;

use crate::base::classes;
use crate::base::once_box::OnceBox;
use crate::base::retire::retire_sized;
use crate::base::store::{FoldName, NameClasses};
use crate::base::types::{FileKind, Ino};

mod chain;
mod changed_in;
mod listing;
mod name_classes;
mod partial;
mod size;

use chain::{Bucket, DEAD, LEFT, MOVED, RENAMING, scheduling_point};

pub(crate) use chain::{COOKIE_FIRST, Node};
pub(crate) use changed_in::ChangedIn;
pub(crate) use partial::{Coverage, Known};

/// A chain longer than this makes the table grow.
const CHAIN_MAX: u32 = if cfg!(feature = "shuttle") { 3 } else { 8 };
/// Where writers met at a bucket the table grows too, up to so many buckets for each CPU.
const BUCKETS_PER_CPU: usize = 32;
/// Buckets of a new directory.
const BUCKETS_MIN: usize = 4;
/// In tables of more buckets, and of more than writers that meet ask for, two share a cache line.
const APART_MAX: usize = 1024;
/// Growth asks for the first node of a chain so many buckets ahead.
const AHEAD: usize = 8;
/// A cookie has so many bits less than a hash: the highest are for others ([`COOKIE_MAX`]).
const COOKIE_SHIFT: u32 = 2;
/// No cookie of a name is greater.
pub(crate) const COOKIE_MAX: u64 = u64::MAX >> COOKIE_SHIFT;
/// A cache line: one bucket or two.
#[repr(align(64))]
struct Line([Bucket; 2]);

// The locks of the schedulers' builds are larger.
#[cfg(not(any(loom, feature = "shuttle")))]
const _: () = assert!(size_of::<Line>() == 64);

struct Table {
    lines: Box<[Line]>,
    /// 1 where only every second place of the lines is used, so that each bucket has its own; else
    /// 0.
    shift: u32,
    /// How far a hash is shifted to the right for the number of its bucket.
    hash_shift: u32,
    /// Where buckets went that are LEFT; set before the first is marked.
    next: Atomic<Table>,
}

impl Table {
    fn new(bucket_count: usize) -> Table {
        debug_assert!(bucket_count.is_power_of_two());
        let apart_max = Table::count_for_writers().max(APART_MAX);
        let shift = u32::from(bucket_count <= apart_max);
        let lines = 0..(bucket_count << shift) / 2;
        Table {
            lines: lines
                .map(|_| Line([Bucket::new(), Bucket::new()]))
                .collect(),
            shift,
            hash_shift: u64::BITS - bucket_count.trailing_zeros(),
            next: Atomic::null(),
        }
    }

    /// The number of buckets.
    fn count(&self) -> usize {
        (self.lines.len() * 2) >> self.shift
    }

    fn bucket(&self, index: usize) -> &Bucket {
        self.at(index << self.shift)
    }

    #[inline]
    fn at(&self, place: usize) -> &Bucket {
        &self.lines[place / 2].0[place % 2]
    }

    fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        (0..self.count()).map(|index| self.bucket(index))
    }

    /// The bucket of a name of this hash.
    #[inline]
    fn bucket_of(&self, hash: u64) -> &Bucket {
        self.bucket(self.index(hash))
    }

    /// Up to so many buckets, that writers meet at one is reason enough to grow.
    fn count_for_writers() -> usize {
        BUCKETS_PER_CPU * finefs_locks::cpu::count()
    }

    /// True when writers that meet at a bucket are reason enough to grow.
    fn wants_more_for_writers(&self) -> bool {
        self.count() < Table::count_for_writers()
    }

    #[inline]
    fn index(&self, hash: u64) -> usize {
        (hash >> self.hash_shift) as usize
    }

    /// The least hash of the interval of the bucket at `index`.
    fn first_hash(&self, index: usize) -> u64 {
        (index as u64) << self.hash_shift
    }

    /// The bucket whose interval holds a cookie.
    fn index_of_cookie(&self, cookie: u64) -> usize {
        self.index(cookie << COOKIE_SHIFT)
    }

    /// The greatest cookie that the interval of the bucket at `index` can hold.
    fn last_cookie(&self, index: usize) -> u64 {
        (self.first_hash(index) | ((1 << self.hash_shift) - 1)) >> COOKIE_SHIFT
    }
}

/// The names of one directory. See the module's head.
pub(crate) struct NameTable {
    table: Atomic<Table>,
    keys: [u64; 2],
    /// What most tables never need.
    special: OnceBox<Special>,
    resize: Mutex<()>,
}

/// How names are told apart, where not by their bytes alone; and which of them are here.
#[derive(Default)]
struct Special {
    /// Which names are here; see `partial`.
    coverage: AtomicU64,
    /// How they may be found whatever their case.
    fold: Option<FoldName>,
    /// They are. It changes under the locks of all buckets, while there are no names.
    is_folding: AtomicBool,
    /// How many names of one class there may be.
    classes: Option<&'static NameClasses>,
}

/// A name with its hash, which counts in the table that gave it and no other.
#[derive(Clone, Copy)]
pub(crate) struct HashedName<'a> {
    /// The name.
    pub bytes: &'a [u8],
    /// Its hash.
    pub hash: u64,
    /// Set where names are found whatever their case.
    pub fold: Option<FoldName>,
}

impl<'a> HashedName<'a> {
    /// The name as it is there, which may differ where names are found whatever their case.
    pub fn as_there(self, node: &'a Node) -> HashedName<'a> {
        HashedName {
            bytes: &node.name,
            ..self
        }
    }

    /// The cookie of a name that no other has the hash of.
    pub fn cookie(self) -> u64 {
        chain::cookie(self.hash, 0)
    }

    /// True where another name is found by this one.
    fn folds_to(&self, other: &[u8]) -> bool {
        let fold = |name| self.fold.and_then(|fold| fold(name));
        fold(self.bytes).is_some_and(|folded| fold(other) == Some(folded))
    }
}

/// The directory was removed, or compares names in another way by now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dead;

/// A bucket that this thread holds locked; all names that hash there are its to change.
pub(crate) struct LockedBucket<'g> {
    bucket: &'g Bucket,
    table: &'g Table,
    /// Somebody else held it when this thread came.
    was_held: bool,
    /// Names that are removed stay as absent ones.
    keeps_absent: bool,
    /// What names that are changed are marked with.
    stamp: Cell<ChangedIn>,
    _lock: RawGuard<'g>,
}

/// What [`lock_all`] shall lock.
pub(crate) enum Request<'a, 'g> {
    /// The bucket of a name.
    Name {
        dir: Ino,
        table: &'g NameTable,
        name: HashedName<'a>,
    },
    /// All buckets, with the evidence that the table cannot grow.
    Whole {
        dir: Ino,
        table: &'g NameTable,
        resize: &'a MutexGuard<'g, ()>,
    },
}

/// The buckets that [`lock_all`] locked.
pub(crate) struct LockedBuckets<'g> {
    buckets: SmallVec<[LockedBucket<'g>; 4]>,
    /// For each request the index of its (first) bucket.
    of_request: SmallVec<[usize; 4]>,
}

impl<'g> LockedBuckets<'g> {
    /// The bucket of the request at `index`.
    pub fn get(&self, index: usize) -> &LockedBucket<'g> {
        &self.buckets[self.of_request[index]]
    }

    /// Marks the buckets of two requests as in a rename, for readers to wait.
    pub fn begin_rename(&self, guard: &Guard) {
        for index in 0..2 {
            self.get(index).bucket.set_tag(RENAMING, true, guard);
        }
    }

    /// Ends what `begin_rename` began.
    pub fn end_rename(&self, guard: &Guard) {
        for index in 0..2 {
            self.get(index).bucket.set_tag(RENAMING, false, guard);
        }
    }

    /// True when no name is in any locked bucket of `dir`'s table.
    pub fn is_empty(&self, table: &NameTable, guard: &Guard) -> bool {
        let current = table.current(guard);
        self.buckets
            .iter()
            .filter(|held| std::ptr::eq(held.table, current))
            .all(|held| !held.bucket.has_names(guard))
    }

    /// Makes every locked bucket of the table dead.
    pub fn kill(&self, table: &NameTable, guard: &Guard) {
        let current = table.current(guard);
        for held in self
            .buckets
            .iter()
            .filter(|held| std::ptr::eq(held.table, current))
        {
            held.bucket.set_tag(DEAD, true, guard);
        }
    }
}

/// Locks the buckets of several names, and whole tables, in the one order that holds for all:
/// ascending (directory number, hash). The only way to hold more than one bucket.
pub(crate) fn lock_all<'g>(
    requests: &[Request<'_, 'g>],
    guard: &'g Guard,
) -> Result<LockedBuckets<'g>, Dead> {
    let mut order: SmallVec<[(Ino, u64, usize); 4]> = requests
        .iter()
        .enumerate()
        .map(|(index, request)| match request {
            Request::Name { dir, name, .. } => (*dir, name.hash, index),
            Request::Whole { dir, .. } => (*dir, 0, index),
        })
        .collect();
    order.sort_unstable();
    let mut held = LockedBuckets {
        buckets: SmallVec::new(),
        of_request: SmallVec::from_elem(0, order.len()),
    };
    for (dir, hash, index) in order {
        match &requests[index] {
            Request::Name { table, name, .. } => {
                let shared = held.buckets.last().is_some_and(|last| {
                    table.owns(last.table, guard)
                        && std::ptr::eq(last.table.bucket_of(hash), last.bucket)
                });
                if !shared {
                    held.buckets.push(table.lock_hash(dir, hash, guard)?);
                }
                held.of_request[index] = held.buckets.len() - 1;
                table.check_hashed(*name)?;
            }
            Request::Whole { table, resize, .. } => {
                held.of_request[index] = held.buckets.len();
                table.lock_every(dir, resize, &mut held.buckets, guard)?;
            }
        }
    }
    Ok(held)
}

impl NameTable {
    /// An empty table.
    pub fn new(keys: [u64; 2]) -> NameTable {
        NameTable::with_capacity(0, keys)
    }

    /// The same with names found whatever their case, now or later on. Before anybody shares it.
    pub fn folding(mut self, fold: Option<FoldName>, is_folding: bool) -> NameTable {
        if fold.is_some() {
            let special = self.special.get_mut_or_make(Special::default);
            special.fold = fold;
            special.is_folding = AtomicBool::new(is_folding);
        }
        self
    }

    /// The same with only so many names of a class. Before anybody shares it.
    pub fn classed(mut self, classes: Option<&'static NameClasses>) -> NameTable {
        if classes.is_some() {
            self.special.get_mut_or_make(Special::default).classes = classes;
        }
        self
    }

    /// An empty table for so many names.
    pub fn with_capacity(names: usize, keys: [u64; 2]) -> NameTable {
        let buckets = (names / 2).next_power_of_two().max(BUCKETS_MIN);
        NameTable {
            table: Atomic::new(Table::new(buckets)),
            keys,
            special: OnceBox::new(),
            resize: Mutex::new(&classes::RESIZE, ()),
        }
    }

    /// The same with distinct names in it, before anybody shares it.
    pub fn load(
        self,
        names: impl IntoIterator<Item = (Vec<u8>, Ino, Option<FileKind>)>,
    ) -> NameTable {
        let table = self;
        // SAFETY: nobody else can reach the table yet, so nothing is reclaimed under it.
        let guard = unsafe { crossbeam_epoch::unprotected() };
        let current = table.current(guard);
        for (name, ino, kind) in names {
            let name = table.hashed(&name);
            let bucket = current.bucket_of(name.hash);
            bucket.insert(name, ino, kind, ChangedIn::STORED, guard);
        }
        table
    }

    fn current<'g>(&self, guard: &'g Guard) -> &'g Table {
        // SAFETY: `table` always names a table, and one is destroyed only after it was replaced
        // and all guards of then have ended.
        unsafe { self.table.load(Ordering::Acquire, guard).deref() }
    }

    /// A name, ready to be looked for in this table.
    pub fn hashed<'a>(&self, name: &'a [u8]) -> HashedName<'a> {
        let hasher = SipHasher13::new_with_keys(self.keys[0], self.keys[1]);
        let fold = self.fold();
        let folded = fold.and_then(|fold| fold(name));
        let mut hash = hasher.hash(folded.as_deref().unwrap_or(name));
        if let Some(classes) = self.classes() {
            let class = hasher.hash(&(classes.class_of)(name).to_le_bytes());
            hash = name_classes::combined(class, hash);
        }
        HashedName {
            bytes: name,
            hash,
            fold,
        }
    }

    /// Set where names are found whatever their case.
    #[inline]
    pub fn fold(&self) -> Option<FoldName> {
        let special = self.special.get()?;
        (special.fold).filter(|_| special.is_folding.load(Ordering::Acquire))
    }

    /// Lets names be found whatever their case, or as they are. The evidence are the locked
    /// buckets, all of them, and no name is there.
    pub fn set_folding(&self, held: &LockedBuckets<'_>, is_folding: bool, guard: &Guard) {
        debug_assert!(held.is_empty(self, guard));
        if let Some(special) = self.special.get() {
            special.is_folding.store(is_folding, Ordering::Release);
        }
    }

    /// A name that was hashed before the directory came to fold case, or ceased to, is nowhere.
    fn check_hashed(&self, name: HashedName<'_>) -> Result<(), Dead> {
        match name.fold.is_some() == self.fold().is_some() {
            true => Ok(()),
            false => Err(Dead),
        }
    }

    /// What catches a name that was hashed for another directory's table.
    fn debug_assert_hashed(&self, name: HashedName<'_>) {
        if name.fold.is_some() == self.fold().is_some() {
            debug_assert_eq!(self.hashed(name.bytes).hash, name.hash);
        }
    }

    /// True when `table` is this directory's current table or the one that replaces it.
    fn owns(&self, table: &Table, guard: &Guard) -> bool {
        let current = self.current(guard);
        std::ptr::eq(current, table)
            || std::ptr::eq(current.next.load(Ordering::Acquire, guard).as_raw(), table)
    }

    /// The node of a name. Takes no lock.
    #[inline]
    pub fn find<'g>(&self, name: HashedName<'_>, guard: &'g Guard) -> Option<&'g Node> {
        self.find_any(name, guard).filter(|node| !node.is_absent())
    }

    /// The same, of a name that is known to be absent too.
    fn find_any<'g>(&self, name: HashedName<'_>, guard: &'g Guard) -> Option<&'g Node> {
        self.debug_assert_hashed(name);
        let bucket = self.current(guard).bucket_of(name.hash);
        scheduling_point();
        let head = bucket.head(guard);
        if head.tag() == 0 {
            let found = bucket.find(head, name, guard);
            scheduling_point();
            if bucket.head(guard) == head {
                return found;
            }
        }
        self.find_in_change(name, guard)
    }

    /// As [`NameTable::find`], where the bucket is seen to change.
    #[cold]
    fn find_in_change<'g>(&self, name: HashedName<'_>, guard: &'g Guard) -> Option<&'g Node> {
        let mut table = self.current(guard);
        let mut spins = 0;
        loop {
            let bucket = table.bucket_of(name.hash);
            scheduling_point();
            let head = bucket.head(guard);
            if head.tag() & LEFT != 0 {
                table = next_of(table, guard);
                continue;
            }
            let found = bucket.find(head, name, guard);
            scheduling_point();
            let tags = head.tag() | bucket.head(guard).tag();
            if tags & (LEFT | RENAMING) == 0 {
                return found;
            }
            // Where it has left, the next round finds that out.
            wait_a_little(&mut spins);
        }
    }

    /// To be told early that a name will change: its bucket's line comes from the CPU that wrote it
    /// last while other things are done, and once, to be written, instead of once to be read and
    /// once to be written.
    #[inline]
    pub fn expect_change(&self, name: HashedName<'_>, guard: &Guard) {
        finefs_locks::prefetch_to_write(self.current(guard).bucket_of(name.hash));
    }

    /// To be told early that a name will be put in, once its bucket was looked at: what its place
    /// in the chain is found from comes while other things are done.
    #[inline]
    pub fn expect_insert(&self, name: HashedName<'_>, guard: &Guard) {
        self.current(guard).bucket_of(name.hash).prefetch(guard);
    }

    /// The resize lock, which keeps the table from growing or dying.
    pub fn lock_resize(&self) -> MutexGuard<'_, ()> {
        self.resize.lock()
    }

    fn lock_hash<'g>(
        &self,
        dir: Ino,
        hash: u64,
        guard: &'g Guard,
    ) -> Result<LockedBucket<'g>, Dead> {
        let mut table = self.current(guard);
        loop {
            let index = table.index(hash);
            let bucket = table.bucket(index);
            // A holder of the lower half of a bucket that moved must not take the lock of the
            // whole, only to find that out: it has the same place in the order.
            if bucket.head(guard).tag() & MOVED != 0 {
                table = next_of(table, guard);
                continue;
            }
            let was_held = bucket.lock.is_locked();
            let lock = bucket
                .lock
                .lock(&classes::BUCKET, (dir.0, table.first_hash(index)));
            let tag = bucket.head.load(Ordering::Relaxed, guard).tag();
            if tag & DEAD != 0 {
                return Err(Dead);
            }
            if tag & MOVED == 0 {
                return Ok(LockedBucket {
                    bucket,
                    table,
                    was_held,
                    keeps_absent: self.keeps_absent(),
                    stamp: Cell::default(),
                    _lock: lock,
                });
            }
            drop(lock);
            table = next_of(table, guard);
        }
    }

    fn lock_every<'g>(
        &self,
        dir: Ino,
        _resize: &MutexGuard<'_, ()>,
        held: &mut SmallVec<[LockedBucket<'g>; 4]>,
        guard: &'g Guard,
    ) -> Result<(), Dead> {
        let table = self.current(guard);
        for (index, bucket) in table.buckets().enumerate() {
            let lock = bucket
                .lock
                .lock(&classes::BUCKET, (dir.0, table.first_hash(index)));
            if bucket.head.load(Ordering::Relaxed, guard).tag() & DEAD != 0 {
                return Err(Dead);
            }
            held.push(LockedBucket {
                bucket,
                table,
                was_held: false,
                keeps_absent: self.keeps_absent(),
                stamp: Cell::default(),
                _lock: lock,
            });
        }
        Ok(())
    }

    /// Locks the bucket of one name.
    pub fn lock<'g>(
        &self,
        dir: Ino,
        name: HashedName<'_>,
        guard: &'g Guard,
    ) -> Result<LockedBucket<'g>, Dead> {
        self.debug_assert_hashed(name);
        let held = self.lock_hash(dir, name.hash, guard)?;
        self.check_hashed(name)?;
        Ok(held)
    }

    /// False when there were names during the call; a quick answer before the exact one under the
    /// locks. Of a bucket that left one cannot tell, since its head stays what it was: the exact
    /// check decides, which waits for the growth to end.
    pub fn seems_empty(&self, guard: &Guard) -> bool {
        self.current(guard).buckets().all(|bucket| {
            let head = bucket.head(guard);
            head.is_null() || head.tag() & LEFT != 0 || !bucket.has_names(guard)
        })
    }

    /// Puts a name that is not there into its bucket, which the caller holds. True when the table
    /// wants to grow: then call [`NameTable::grow`] after the lock is released.
    #[must_use]
    pub fn insert(
        &self,
        held: &LockedBucket<'_>,
        name: HashedName<'_>,
        ino: Ino,
        kind: FileKind,
        guard: &Guard,
    ) -> bool {
        self.debug_assert_hashed(name);
        let stamp = held.stamp.get();
        if let Some(absent) = self.absent(held, name, guard) {
            if *absent.name == *name.bytes {
                held.bucket.replace(absent, ino, Some(kind), stamp, guard);
                return false;
            }
            // Of before the directory came to fold case.
            held.bucket.remove(absent, guard);
        }
        held.bucket.insert(name, ino, Some(kind), stamp, guard);
        self.is_long(held.bucket, guard) || held.was_held && held.table.wants_more_for_writers()
    }

    /// Doubles the table. Readers go on; writers wait for the one bucket that is being moved.
    pub fn grow(&self, dir: Ino, guard: &Guard) {
        let Some(_resize) = self.resize.try_lock() else {
            return;
        };
        let old = self.current(guard);
        let is_long = |bucket: &Bucket| self.is_long(bucket, guard);
        if !old.wants_more_for_writers() && !old.buckets().any(is_long) {
            return;
        }
        let fresh = Owned::new(Table::new(old.count() * 2)).into_shared(guard);
        // SAFETY: made just above.
        let new = unsafe { fresh.deref() };
        old.next.store(fresh, Ordering::Release);
        for (index, bucket) in old.buckets().enumerate() {
            if index + AHEAD < old.count() {
                old.bucket(index + AHEAD).prefetch(guard);
            }
            let _lock = bucket
                .lock
                .lock(&classes::BUCKET, (dir.0, old.first_hash(index)));
            if bucket.head(guard).tag() & DEAD != 0 {
                // A removed directory: it has no names, and nobody will add any.
                old.next.store(Shared::null(), Ordering::Release);
                // SAFETY: death marks all buckets at once under `resize`, so this is the first
                // bucket, no LEFT tag leads to `fresh` and nobody has seen it.
                unsafe { retire_sized(fresh, new.own_bytes(), guard) };
                return;
            }
            let halves = [0, 1].map(|half| new.bucket(index * 2 + half));
            bucket.split(halves, |node| new.index(node.hash()) % 2 == 1, guard);
        }
        scheduling_point();
        self.table.store(fresh, Ordering::Release);
        let retired = Shared::from(std::ptr::from_ref(old));
        // SAFETY: `self.table` no longer names it. Its chains go on in the new table.
        unsafe { retire_sized(retired, old.own_bytes(), guard) };
    }
}

impl NameTable {
    /// Puts a table in the place of the current one, whose names it has. No operation runs.
    fn replace_table(&self, old: &Table, new: Table, guard: &Guard) {
        self.table.store(Owned::new(new), Ordering::Release);
        let retired = Shared::from(std::ptr::from_ref(old));
        // SAFETY: `self.table` no longer names it.
        unsafe { retire_sized(retired, old.own_bytes(), guard) };
    }
}

impl<'g> LockedBucket<'g> {
    /// The node of a name that hashes here.
    pub fn find(&self, name: HashedName<'_>, guard: &'g Guard) -> Option<&'g Node> {
        self.find_any(name, guard).filter(|node| !node.is_absent())
    }

    fn find_any(&self, name: HashedName<'_>, guard: &'g Guard) -> Option<&'g Node> {
        let head = self.bucket.head(guard);
        self.bucket.find(head, name, guard)
    }

    /// The change of names here was just logged: in which generation, or an earlier one.
    pub fn note_generation(&self, generation: impl FnOnce() -> u64) {
        if self.keeps_absent {
            self.stamp.set(ChangedIn::of(generation()));
        }
    }

    /// A number for the next log record of a name in this bucket.
    pub fn next_version(&self) -> u64 {
        let version = self.bucket.version.load(Ordering::Relaxed) + 1;
        self.bucket.version.store(version, Ordering::Relaxed);
        version
    }

    /// Takes a name out.
    pub fn remove(&self, node: &'g Node, guard: &Guard) {
        match self.keeps_absent {
            true => self.bucket.make_absent(node, self.stamp.get(), guard),
            false => self.bucket.remove(node, guard),
        }
    }

    /// Lets a name that is there name another inode, in one step.
    pub fn replace(&self, node: &'g Node, ino: Ino, kind: FileKind, guard: &Guard) {
        let stamp = self.stamp.get();
        self.bucket.replace(node, ino, Some(kind), stamp, guard);
    }
}

/// Keys that nobody can guess, of this process only.
pub(crate) fn new_keys() -> [u64; 2] {
    let random = RandomState::new();
    [0, 1].map(|number: u8| random.hash_one(number))
}

fn next_of<'g>(table: &'g Table, guard: &'g Guard) -> &'g Table {
    // SAFETY: a LEFT tag is stored with Release after `next`, and read with Acquire (or under the
    // lock) before this; the next table outlives every guard that can see this one.
    unsafe { table.next.load(Ordering::Acquire, guard).deref() }
}

/// Spins a few times, then lets others run: a rename holds its buckets for a few hundred
/// nanoseconds, unless it was preempted.
fn wait_a_little(spins: &mut u32) {
    *spins += 1;
    if *spins < 32 {
        hint::spin_loop();
    } else {
        thread::yield_now();
    }
}

impl Drop for NameTable {
    fn drop(&mut self) {
        // SAFETY: exclusive access; between calls `next` is always null in the current table.
        let mut table = unsafe {
            self.table
                .swap(
                    Shared::null(),
                    Ordering::Relaxed,
                    crossbeam_epoch::unprotected(),
                )
                .into_owned()
        };
        for line in &mut table.lines {
            line.0.iter_mut().for_each(Bucket::clear);
        }
    }
}

#[cfg(test)]
mod tests;
