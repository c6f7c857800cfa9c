//! The concurrent table of one directory: from name to (inode number, kind).
//!
//! # Shape
//! A power-of-two array of buckets, each on a cache line of its own: a lock, a version, and the
//! head of a chain of nodes. A name belongs to the bucket that the low bits of its hash index.
//! Ordered by the *bit-reversed* hash, its *position*, the names of a bucket are one interval, and
//! when the table doubles an interval is halved. A node's cookie is its position (63 bits, made
//! unique within the bucket), so readdir in order of cookies goes bucket by bucket, resumes in
//! constant time, and returns every name that stays exactly once, however the table grows.
//!
//! A name is hashed once an operation ([`NameTable::hashed`]); what it is handed to takes the hash from
//! there. The hash is SipHash with keys of the directory's own. Cheaper keyed hashes promise nothing
//! once somebody sees what they give, and cookies show 63 bits of it to whoever lists the directory;
//! and with keys in common, a directory that is copied in the order of its cookies would fill one
//! bucket of the copy after the other.
//!
//! # Readers
//! Lookups and readdir take no lock and write nothing. Nodes never change; they are inserted at the
//! head of a chain, replaced by one store, and reclaimed by epochs.
//!
//! # Invariants
//! 1. A chain changes only under its bucket's lock, and so do the tags of the head.
//! 2. Tag MOVED: the names of this bucket are in the next table; the chain is frozen. Tag DEAD: the
//!    directory was removed; the chain is empty for ever.
//! 3. Tag RENAMING is set on both buckets of a rename while they change. A lookup that sees it,
//!    before or after its walk, waits and walks again. So nobody sees the new name and then still
//!    the old one, or neither.
//! 4. `version` counts the changes of a bucket and goes over to its halves. It orders the log
//!    records of a name.
//! 5. Only the holder of `resize` puts MOVED or DEAD anywhere; so under it there is one table.

use std::hash::{BuildHasher, Hasher, RandomState};

use crossbeam_epoch::{Atomic, Guard, Owned, Shared};
use finefs_locks::primitive::atomic::{AtomicU64, Ordering};
use finefs_locks::primitive::{hint, thread};
use finefs_locks::{Mutex, MutexGuard, RawGuard, RawLock};
use smallvec::SmallVec;

use crate::classes;
use crate::retire::retire;
use crate::types::{FileKind, Ino, NameBytes};

/// Tag of a bucket whose names went to the next table.
const MOVED: usize = 1;
/// Tag of every bucket of a removed directory.
const DEAD: usize = 2;
/// Tag of the buckets of a rename under way.
const RENAMING: usize = 4;

/// A chain longer than this makes the table grow.
const CHAIN_MAX: usize = 6;
/// Where writers met at a bucket the table grows too, up to so many buckets for each CPU.
const BUCKETS_PER_CPU: usize = 32;
/// Buckets of a new directory.
const BUCKETS_MIN: usize = 4;
/// Cookies below this are `start`, `.` and `..`.
pub(crate) const COOKIE_FIRST: u64 = 3;

/// One name of a directory.
#[repr(align(8))]
pub(crate) struct Node {
    next: Atomic<Node>,
    hash: u64,
    /// Where readdir goes on after this name.
    pub cookie: u64,
    /// The inode that is named.
    pub ino: Ino,
    /// Its kind, where the store noted it.
    pub kind: Option<FileKind>,
    /// The name.
    pub name: NameBytes,
}

impl Node {
    fn is_named(&self, name: HashedName<'_>) -> bool {
        self.hash == name.hash && *self.name == *name.bytes
    }
}

#[repr(align(64))]
struct Bucket {
    head: Atomic<Node>,
    version: AtomicU64,
    lock: RawLock,
}

impl Bucket {
    fn new(version: u64) -> Bucket {
        Bucket {
            head: Atomic::null(),
            version: AtomicU64::new(version),
            lock: RawLock::new(),
        }
    }
}

struct Table {
    buckets: Box<[Bucket]>,
    /// Where MOVED buckets went; set before the first is marked.
    next: Atomic<Table>,
}

impl Table {
    fn new(bucket_count: usize) -> Table {
        debug_assert!(bucket_count.is_power_of_two());
        Table {
            buckets: (0..bucket_count).map(|_| Bucket::new(0)).collect(),
            next: Atomic::null(),
        }
    }

    /// True when writers that meet at a bucket are reason enough to grow.
    fn wants_more_for_writers(&self) -> bool {
        self.buckets.len() < BUCKETS_PER_CPU * finefs_locks::cpu::count()
    }

    fn index(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    /// The position at which the interval of a bucket starts.
    fn position(index: usize) -> u64 {
        (index as u64).reverse_bits()
    }

    /// The bucket whose interval holds a cookie.
    fn index_of_cookie(&self, cookie: u64) -> usize {
        self.index((cookie << 1).reverse_bits())
    }

    /// The greatest cookie that the interval of the bucket at `index` can hold.
    fn last_cookie(&self, index: usize) -> u64 {
        let bits = self.buckets.len().trailing_zeros();
        (Self::position(index) | (u64::MAX >> bits)) >> 1
    }
}

/// The names of one directory. See the module's head.
pub(crate) struct NameTable {
    table: Atomic<Table>,
    hasher: RandomState,
    resize: Mutex<()>,
}

/// A name with its hash, which counts in the table that gave it and no other.
#[derive(Clone, Copy)]
pub(crate) struct HashedName<'a> {
    /// The name.
    pub bytes: &'a [u8],
    /// Its hash.
    pub hash: u64,
}

/// The directory was removed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dead;

/// A bucket that this thread holds locked; all names that hash there are its to change.
pub(crate) struct LockedBucket<'g> {
    bucket: &'g Bucket,
    table: &'g Table,
    /// Somebody else held it when this thread came.
    was_held: bool,
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
            self.get(index).set_tag(RENAMING, true, guard);
        }
    }

    /// Ends what `begin_rename` began.
    pub fn end_rename(&self, guard: &Guard) {
        for index in 0..2 {
            self.get(index).set_tag(RENAMING, false, guard);
        }
    }

    /// True when no name is in any locked bucket of `dir`'s table.
    pub fn is_empty(&self, table: &NameTable, guard: &Guard) -> bool {
        let current = table.current(guard);
        self.buckets
            .iter()
            .filter(|held| std::ptr::eq(held.table, current))
            .all(|held| held.bucket.head.load(Ordering::Acquire, guard).is_null())
    }

    /// Makes every locked bucket of the table dead.
    pub fn kill(&self, table: &NameTable, guard: &Guard) {
        let current = table.current(guard);
        for held in self
            .buckets
            .iter()
            .filter(|held| std::ptr::eq(held.table, current))
        {
            held.set_tag(DEAD, true, guard);
        }
    }
}

/// Locks the buckets of several names, and whole tables, in the one order that holds for all:
/// ascending (directory number, position). The only way to hold more than one bucket.
pub(crate) fn lock_all<'g>(
    requests: &[Request<'_, 'g>],
    guard: &'g Guard,
) -> Result<LockedBuckets<'g>, Dead> {
    let mut order: SmallVec<[(Ino, u64, usize); 4]> = requests
        .iter()
        .enumerate()
        .map(|(index, request)| match request {
            Request::Name { dir, name, .. } => (*dir, name.hash.reverse_bits(), index),
            Request::Whole { dir, .. } => (*dir, 0, index),
        })
        .collect();
    order.sort_unstable();
    let mut held = LockedBuckets {
        buckets: SmallVec::new(),
        of_request: SmallVec::from_elem(0, order.len()),
    };
    for (dir, position, index) in order {
        match &requests[index] {
            Request::Name { table, .. } => {
                let hash = position.reverse_bits();
                let shared = held.buckets.last().is_some_and(|last| {
                    table.owns(last.table, guard)
                        && std::ptr::eq(&last.table.buckets[last.table.index(hash)], last.bucket)
                });
                if !shared {
                    held.buckets.push(table.lock_hash(dir, hash, guard)?);
                }
                held.of_request[index] = held.buckets.len() - 1;
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
    pub fn new() -> NameTable {
        NameTable::with_capacity(0)
    }

    fn with_capacity(names: usize) -> NameTable {
        let buckets = (names / 2).next_power_of_two().max(BUCKETS_MIN);
        NameTable {
            table: Atomic::new(Table::new(buckets)),
            hasher: RandomState::new(),
            resize: Mutex::new(&classes::RESIZE, ()),
        }
    }

    /// A table of distinct names, before anybody shares it.
    pub fn load(names: Vec<(Vec<u8>, Ino, Option<FileKind>)>) -> NameTable {
        let table = NameTable::with_capacity(names.len());
        // SAFETY: nobody else can reach the table yet, so nothing is reclaimed under it.
        let guard = unsafe { crossbeam_epoch::unprotected() };
        let current = table.current(guard);
        for (name, ino, kind) in names {
            let name = table.hashed(&name);
            let bucket = &current.buckets[current.index(name.hash)];
            push(bucket, name, ino, kind, guard);
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
        let mut hasher = self.hasher.build_hasher();
        hasher.write(name);
        HashedName {
            bytes: name,
            hash: hasher.finish(),
        }
    }

    /// What catches a name that was hashed for another directory's table.
    fn debug_assert_hashed(&self, name: HashedName<'_>) {
        debug_assert_eq!(self.hashed(name.bytes).hash, name.hash);
    }

    /// True when `table` is this directory's current table or the one that replaces it.
    fn owns(&self, table: &Table, guard: &Guard) -> bool {
        let current = self.current(guard);
        std::ptr::eq(current, table)
            || std::ptr::eq(current.next.load(Ordering::Acquire, guard).as_raw(), table)
    }

    /// The node of a name. Takes no lock.
    pub fn find<'g>(&self, name: HashedName<'_>, guard: &'g Guard) -> Option<&'g Node> {
        self.debug_assert_hashed(name);
        let mut table = self.current(guard);
        let mut spins = 0;
        loop {
            let bucket = &table.buckets[table.index(name.hash)];
            scheduling_point();
            let head = bucket.head.load(Ordering::Acquire, guard);
            if head.tag() & MOVED != 0 {
                table = next_of(table, guard);
                continue;
            }
            let found = walk(head, guard).find(|node| node.is_named(name));
            scheduling_point();
            let after = bucket.head.load(Ordering::Acquire, guard);
            if (head.tag() | after.tag()) & RENAMING == 0 {
                return found;
            }
            wait_a_little(&mut spins);
        }
    }

    /// To be told early that a name will change: its bucket's line comes from the CPU that wrote it last while
    /// other things are done, and once, to be written, instead of once to be read and once to be written.
    #[inline]
    pub fn expect_change(&self, name: HashedName<'_>, guard: &Guard) {
        let table = self.current(guard);
        finefs_locks::prefetch_to_write(&table.buckets[table.index(name.hash)]);
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
            let bucket = &table.buckets[index];
            // Whoever holds the lower half of a bucket that moved must not take the lock of the
            // whole, only to find that out: it has the same place in the order.
            if bucket.head.load(Ordering::Acquire, guard).tag() & MOVED != 0 {
                table = next_of(table, guard);
                continue;
            }
            let was_held = bucket.lock.is_locked();
            let lock = bucket
                .lock
                .lock(&classes::BUCKET, (dir.0, Table::position(index)));
            let tag = bucket.head.load(Ordering::Relaxed, guard).tag();
            if tag & DEAD != 0 {
                return Err(Dead);
            }
            if tag & MOVED == 0 {
                return Ok(LockedBucket {
                    bucket,
                    table,
                    was_held,
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
        let bits = table.buckets.len().trailing_zeros();
        for rank in 0..table.buckets.len() {
            // In order of position, which is the order of bit-reversed index.
            let index = (rank as u64)
                .reverse_bits()
                .checked_shr(64 - bits)
                .unwrap_or(0) as usize;
            let bucket = &table.buckets[index];
            let lock = bucket
                .lock
                .lock(&classes::BUCKET, (dir.0, Table::position(index)));
            if bucket.head.load(Ordering::Relaxed, guard).tag() & DEAD != 0 {
                return Err(Dead);
            }
            held.push(LockedBucket {
                bucket,
                table,
                was_held: false,
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
        self.lock_hash(dir, name.hash, guard)
    }

    /// About how many names there are: exact for small tables, from a sample for large ones.
    pub fn length_about(&self, guard: &Guard) -> u64 {
        self.current(guard).buckets.len() as u64 * 3
    }

    /// True when no name was in the table at some moment during the call, as far as one can tell
    /// without locks; a quick answer before the exact one under the locks.
    pub fn seems_empty(&self, guard: &Guard) -> bool {
        let table = self.current(guard);
        table
            .buckets
            .iter()
            .all(|bucket| bucket.head.load(Ordering::Acquire, guard).is_null())
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
        let length = push(held.bucket, name, ino, Some(kind), guard);
        length > CHAIN_MAX || held.was_held && held.table.wants_more_for_writers()
    }

    /// Doubles the table. Readers go on; writers wait for the one bucket that is being moved.
    pub fn grow(&self, dir: Ino, guard: &Guard) {
        let Some(_resize) = self.resize.try_lock() else {
            return;
        };
        let old = self.current(guard);
        let crowded = old.buckets.iter().any(|bucket| {
            walk(bucket.head.load(Ordering::Acquire, guard), guard).count() > CHAIN_MAX
        });
        if !crowded && !old.wants_more_for_writers() {
            return;
        }
        let fresh = Owned::new(Table::new(old.buckets.len() * 2)).into_shared(guard);
        // SAFETY: made just above.
        let new = unsafe { fresh.deref() };
        old.next.store(fresh, Ordering::Release);
        for (index, bucket) in old.buckets.iter().enumerate() {
            let _lock = bucket
                .lock
                .lock(&classes::BUCKET, (dir.0, Table::position(index)));
            let head = bucket.head.load(Ordering::Acquire, guard);
            if head.tag() & DEAD != 0 {
                // A removed directory: it has no names, and nobody will add any.
                old.next.store(Shared::null(), Ordering::Release);
                // SAFETY: death marks all buckets at once under `resize`, so this is the first
                // bucket, no MOVED tag leads to `fresh` and nobody has seen it.
                unsafe { retire(fresh, guard) };
                return;
            }
            let version = bucket.version.load(Ordering::Relaxed);
            for half in [index, index + old.buckets.len()] {
                new.buckets[half].version.store(version, Ordering::Relaxed);
            }
            for node in walk(head, guard) {
                let copy = Owned::new(Node {
                    next: Atomic::null(),
                    hash: node.hash,
                    cookie: node.cookie,
                    ino: node.ino,
                    kind: node.kind,
                    name: NameBytes::from_slice(&node.name),
                });
                let target = &new.buckets[new.index(node.hash)];
                copy.next.store(
                    target.head.load(Ordering::Relaxed, guard),
                    Ordering::Relaxed,
                );
                target.head.store(copy, Ordering::Release);
            }
            bucket
                .head
                .store(head.with_tag(head.tag() | MOVED), Ordering::Release);
        }
        scheduling_point();
        self.table.store(fresh, Ordering::Release);
        let retired = Shared::from(std::ptr::from_ref(old));
        // SAFETY: `self.table` no longer names it, and dropping it drops its frozen chains, which
        // nothing but it can reach.
        unsafe { retire(retired, guard) };
    }

    /// Visits the names whose cookie is greater than `after`, in order of cookie, until `visit`
    /// answers false. Every name that is there throughout is visited exactly once.
    pub fn for_each_after(&self, after: u64, guard: &Guard, mut visit: impl FnMut(&Node) -> bool) {
        let mut after = after;
        let mut nodes: Vec<&Node> = Vec::new();
        while after < u64::MAX >> 1 {
            // From the current table for every bucket: that one bucket has moved to the next
            // table says nothing of the others.
            let mut table = self.current(guard);
            let mut spins = 0;
            let (index, head) = loop {
                let index = table.index_of_cookie(after + 1);
                scheduling_point();
                let head = table.buckets[index].head.load(Ordering::Acquire, guard);
                if head.tag() & MOVED != 0 {
                    table = next_of(table, guard);
                } else if head.tag() & RENAMING == 0 {
                    break (index, head);
                } else {
                    wait_a_little(&mut spins);
                }
            };
            nodes.clear();
            nodes.extend(walk(head, guard).filter(|node| node.cookie > after));
            nodes.sort_unstable_by_key(|node| node.cookie);
            // A replaced node shares its cookie with its successor.
            nodes.dedup_by_key(|node| node.cookie);
            for node in &nodes {
                if !visit(node) {
                    return;
                }
            }
            after = table.last_cookie(index);
        }
    }
}

impl<'g> LockedBucket<'g> {
    /// The node of a name that hashes here.
    pub fn find(&self, name: HashedName<'_>, guard: &'g Guard) -> Option<&'g Node> {
        walk(self.bucket.head.load(Ordering::Acquire, guard), guard)
            .find(|node| node.is_named(name))
    }

    /// A number for the next log record of a name in this bucket.
    pub fn next_version(&self) -> u64 {
        let version = self.bucket.version.load(Ordering::Relaxed) + 1;
        self.bucket.version.store(version, Ordering::Relaxed);
        version
    }

    /// Takes a name out.
    pub fn remove(&self, node: &'g Node, guard: &Guard) {
        self.swing(node, None, guard);
    }

    /// Lets a name that is there name another inode, in one step.
    pub fn replace(&self, node: &'g Node, ino: Ino, kind: FileKind, guard: &Guard) {
        let successor = Owned::new(Node {
            next: Atomic::null(),
            hash: node.hash,
            cookie: node.cookie,
            ino,
            kind: Some(kind),
            name: NameBytes::from_slice(&node.name),
        });
        self.swing(node, Some(successor), guard);
    }

    /// Puts `successor`, or what follows, in the place of `node`.
    fn swing(&self, node: &'g Node, successor: Option<Owned<Node>>, guard: &Guard) {
        let mut link = &self.bucket.head;
        loop {
            let target = link.load(Ordering::Relaxed, guard);
            // SAFETY: nodes of a locked bucket's chain are alive, and `node` is one of them.
            let here = unsafe { target.deref() };
            if !std::ptr::eq(here, node) {
                link = &here.next;
                continue;
            }
            let after = here.next.load(Ordering::Relaxed, guard);
            let into = match successor {
                Some(successor) => {
                    successor.next.store(after, Ordering::Relaxed);
                    successor.into_shared(guard)
                }
                None => after,
            };
            scheduling_point();
            link.store(into.with_tag(target.tag()), Ordering::Release);
            // SAFETY: the chain no longer leads to it, and only the holder of the lock, us, could
            // have unlinked it.
            unsafe { retire(target.with_tag(0), guard) };
            return;
        }
    }

    fn set_tag(&self, tag: usize, is_on: bool, guard: &Guard) {
        scheduling_point();
        let head = self.bucket.head.load(Ordering::Relaxed, guard);
        let tags = if is_on {
            head.tag() | tag
        } else {
            head.tag() & !tag
        };
        self.bucket
            .head
            .store(head.with_tag(tags), Ordering::Release);
    }
}

fn next_of<'g>(table: &'g Table, guard: &'g Guard) -> &'g Table {
    // SAFETY: a MOVED tag is stored with Release after `next`, and read with Acquire (or under the
    // lock) before this; the next table outlives every guard that can see this one.
    unsafe { table.next.load(Ordering::Acquire, guard).deref() }
}

fn walk<'g>(head: Shared<'g, Node>, guard: &'g Guard) -> impl Iterator<Item = &'g Node> {
    let mut at = head;
    std::iter::from_fn(move || {
        // SAFETY: nodes are destroyed only after they are unlinked and all guards of then ended.
        let node = unsafe { at.as_ref() }?;
        at = node.next.load(Ordering::Acquire, guard);
        Some(node)
    })
}

/// Adds a node at the head; gives the new length of the chain.
fn push(
    bucket: &Bucket,
    name: HashedName<'_>,
    ino: Ino,
    kind: Option<FileKind>,
    guard: &Guard,
) -> usize {
    let head = bucket.head.load(Ordering::Relaxed, guard);
    let mut cookie = (name.hash.reverse_bits() >> 1).max(COOKIE_FIRST);
    // Equal 63-bit hashes do not happen by chance, but readdir's promise shall not rest on that.
    while walk(head, guard).any(|node| node.cookie == cookie) {
        cookie += 1;
    }
    let length = 1 + walk(head, guard).count();
    let node = Owned::new(Node {
        next: Atomic::null(),
        hash: name.hash,
        cookie,
        ino,
        kind,
        name: NameBytes::from_slice(name.bytes),
    });
    node.next.store(head.with_tag(0), Ordering::Relaxed);
    scheduling_point();
    bucket.head.store(
        node.into_shared(guard).with_tag(head.tag()),
        Ordering::Release,
    );
    length
}

/// Where another thread may run under shuttle, for which the epoch crate's atomics are no such places.
/// Nothing in ordinary builds.
#[inline(always)]
fn scheduling_point() {
    #[cfg(feature = "shuttle")]
    let _ = AtomicU64::new(0).load(Ordering::Acquire);
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

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: exclusive access. Nodes that were unlinked are not in a chain and are destroyed by
        // their own deferral; a moved table's chains are copies of its successor's.
        let guard = unsafe { crossbeam_epoch::unprotected() };
        for bucket in &mut self.buckets {
            let mut at = bucket
                .head
                .swap(Shared::null(), Ordering::Relaxed, guard)
                .with_tag(0);
            while !at.is_null() {
                // SAFETY: each node is in one chain.
                let node = unsafe { at.into_owned() };
                at = node.next.load(Ordering::Relaxed, guard).with_tag(0);
            }
        }
    }
}

impl Drop for NameTable {
    fn drop(&mut self) {
        // SAFETY: exclusive access; between calls `next` is always null in the current table.
        unsafe {
            drop(
                self.table
                    .swap(
                        Shared::null(),
                        Ordering::Relaxed,
                        crossbeam_epoch::unprotected(),
                    )
                    .into_owned(),
            );
        }
    }
}

#[cfg(test)]
mod tests;
