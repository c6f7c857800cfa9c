//! One bucket of a name table: the chain of its names, and what a lookup sees of it.
//!
//! What the tags of the head mean, how a chain is halved, and what readers make of that stands at
//! the head of [`super`]. Here a chain is in strictly ascending order of cookies, and so is any
//! walk along links as they are or were: each link ever stored leads to a greater cookie.

use crossbeam_epoch::{Atomic, Guard, Owned, Shared};
use finefs_locks::RawLock;
use finefs_locks::primitive::atomic::{AtomicU32, AtomicU64, Ordering};

use super::changed_in::ChangedIn;
use super::{COOKIE_SHIFT, HashedName};
use crate::base::retire::retire;
use crate::base::types::{FileKind, Ino, NameBytes};

/// Tag of a bucket whose names are changed in the next table.
pub(super) const MOVED: usize = 1;
/// Tag of every bucket of a removed directory.
pub(super) const DEAD: usize = 2;
/// Tag of the buckets of a rename under way.
pub(super) const RENAMING: usize = 4;
/// Tag of a bucket whose names are found in the next table.
pub(super) const LEFT: usize = 8;

/// Tag of the link of a node whose name names its inode no longer.
const OUT: usize = 1;

/// The number of no inode.
const ABSENT: Ino = Ino(u64::MAX);

/// Cookies below this are `start`, `.` and `..`.
pub(crate) const COOKIE_FIRST: u64 = 3;

/// One name of a directory. (The tags need four bits of its address.)
#[repr(align(16))]
pub(crate) struct Node {
    next: Atomic<Node>,
    hash: u64,
    /// The inode that is named; [`ABSENT`] where it is known that the name is not there.
    pub ino: Ino,
    /// Which one it is of the names whose hashes would give them one cookie.
    rank: u32,
    /// When it was changed last; counts in tables that are not whole.
    stamp: ChangedIn,
    /// The inode's kind, where the store noted it.
    pub kind: Option<FileKind>,
    /// The name.
    pub name: NameBytes,
}

// A name that is not long costs one cache line.
const _: () = assert!(size_of::<Node>() == 64);

impl Node {
    /// Where readdir goes on after this name.
    #[inline]
    pub fn cookie(&self) -> u64 {
        cookie(self.hash, self.rank)
    }

    /// The node that follows in the chain, or the one that did when this was taken out.
    #[inline]
    pub(super) fn after<'g>(&self, guard: &'g Guard) -> Option<&'g Node> {
        scheduling_point();
        node_at(self.next.load(Ordering::Acquire, guard))
    }

    /// The hash of the name.
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// True when what is known is that the name is not there.
    #[inline]
    pub(super) fn is_absent(&self) -> bool {
        self.ino == ABSENT
    }

    /// True when the name was taken out, or names another inode by now.
    #[inline]
    pub fn is_out(&self, guard: &Guard) -> bool {
        scheduling_point();
        self.next.load(Ordering::Acquire, guard).tag() & OUT != 0
    }

    #[inline]
    fn is_named(&self, name: HashedName<'_>) -> bool {
        self.hash == name.hash && (*self.name == *name.bytes || name.folds_to(&self.name))
    }
}

/// The cookie of a name whose cookie `rank` others would have. They differ in the lowest bits, of
/// which no table has so many buckets that they would tell buckets apart.
#[inline]
pub(super) fn cookie(hash: u64, rank: u32) -> u64 {
    const LOWEST: u64 = (1 << 20) - 1;
    let first = hash >> COOKIE_SHIFT;
    let lowest = first.wrapping_add(u64::from(rank)) & LOWEST;
    (first & !LOWEST | lowest).max(COOKIE_FIRST)
}

/// The bit of a name in a filter: by bits of the hash that do not tell buckets apart.
fn filter_bit(hash: u64) -> u64 {
    1 << (hash >> 34 & 63)
}

/// See the module's head.
pub(super) struct Bucket {
    pub(super) head: Atomic<Node>,
    pub(super) version: AtomicU64,
    /// For each name in the chain its [`filter_bit`].
    filter: AtomicU64,
    /// Names in the chain.
    length: AtomicU32,
    pub(super) lock: RawLock,
}

impl Bucket {
    pub(super) fn new() -> Bucket {
        Bucket {
            head: Atomic::null(),
            version: AtomicU64::new(0),
            filter: AtomicU64::new(0),
            length: AtomicU32::new(0),
            lock: RawLock::new(),
        }
    }

    /// The head with its tags.
    #[inline]
    pub(super) fn head<'g>(&self, guard: &'g Guard) -> Shared<'g, Node> {
        self.head.load(Ordering::Acquire, guard)
    }

    /// Names in the chain; of a bucket that moved, before it did.
    pub(super) fn length(&self) -> u32 {
        self.length.load(Ordering::Relaxed)
    }

    /// The node of a name, also of one that is absent, in the chain that was found to begin at
    /// `head`, where that is not LEFT.
    pub(super) fn find<'g>(
        &self,
        head: Shared<'g, Node>,
        name: HashedName<'_>,
        guard: &'g Guard,
    ) -> Option<&'g Node> {
        if self.filter.load(Ordering::Acquire) & filter_bit(name.hash) == 0 {
            return None;
        }
        walk(head, guard).find(|node| node.is_named(name))
    }

    /// Asks for the first node of the chain.
    #[inline]
    pub(super) fn prefetch(&self, guard: &Guard) {
        // Only its address is used: where it has left, it may be gone.
        finefs_locks::prefetch_to_read(self.head(guard).as_raw());
    }

    /// Puts a name that is not there in its place; gives the new length. The caller holds the lock.
    pub(super) fn insert(
        &self,
        name: HashedName<'_>,
        ino: Ino,
        kind: Option<FileKind>,
        stamp: ChangedIn,
        guard: &Guard,
    ) -> u32 {
        // Equal 63-bit hashes do not happen by chance, but readdir's promise shall not rest on
        // that.
        let mut rank = 0;
        let (link, after) = loop {
            match self.place(cookie(name.hash, rank), guard) {
                Some(place) => break place,
                None => rank += 1,
            }
        };
        let node = Owned::new(Node {
            next: Atomic::null(),
            hash: name.hash,
            rank,
            ino,
            stamp,
            kind,
            name: NameBytes::from_slice(name.bytes),
        });
        node.next.store(after.with_tag(0), Ordering::Relaxed);
        let filter = self.filter.load(Ordering::Relaxed) | filter_bit(name.hash);
        // Release: a lookup that a filter refuses has synchronised with the removal that cleared
        // it, also where this one has taken that one's place.
        self.filter.store(filter, Ordering::Release);
        scheduling_point();
        // The tags are the head's, where the link is that.
        let node = node.into_shared(guard).with_tag(after.tag());
        link.store(node, Ordering::Release);
        self.add_length(1)
    }

    /// Where a node of this cookie belongs: the link that shall lead to it, and what follows it.
    /// `None` when another has it. The caller holds the lock.
    fn place<'g>(
        &'g self,
        cookie: u64,
        guard: &'g Guard,
    ) -> Option<(&'g Atomic<Node>, Shared<'g, Node>)> {
        let mut link = &self.head;
        loop {
            let target = link.load(Ordering::Relaxed, guard);
            // SAFETY: as in `walk`.
            match unsafe { target.as_ref() } {
                Some(node) if node.cookie() < cookie => link = &node.next,
                Some(node) if node.cookie() == cookie => return None,
                _ => return Some((link, target)),
            }
        }
    }

    /// Takes a node out of the chain. The caller holds the lock.
    pub(super) fn remove(&self, node: &Node, guard: &Guard) {
        self.swing(node, None, guard);
        if self.add_length(-1) == 0 {
            self.filter.store(0, Ordering::Release);
        }
    }

    /// Lets the name of a node name another inode, in one step. The caller holds the lock.
    pub(super) fn replace(
        &self,
        node: &Node,
        ino: Ino,
        kind: Option<FileKind>,
        stamp: ChangedIn,
        guard: &Guard,
    ) {
        let successor = Owned::new(Node {
            next: Atomic::null(),
            hash: node.hash,
            rank: node.rank,
            ino,
            stamp,
            kind,
            name: NameBytes::from_slice(&node.name),
        });
        self.swing(node, Some(successor), guard);
    }

    /// Notes that a name is not there any more. The caller holds the lock.
    pub(super) fn make_absent(&self, node: &Node, stamp: ChangedIn, guard: &Guard) {
        self.replace(node, ABSENT, None, stamp, guard);
    }

    /// True where there is a name.
    pub(super) fn has_names(&self, guard: &Guard) -> bool {
        walk(self.head(guard), guard).any(|node| !node.is_absent())
    }

    /// Hands copies of its names over to a bucket of a table that takes the place of its own. No
    /// operation runs.
    pub(super) fn leave_to(&self, other: &Bucket, guard: &Guard) {
        for node in walk(self.head(guard), guard) {
            let name = HashedName {
                bytes: &node.name,
                hash: node.hash,
                fold: None,
            };
            other.insert(name, node.ino, node.kind, node.stamp, guard);
            // SAFETY: no operation follows this chain any more: the next ones begin at the other.
            unsafe { retire(Shared::from(std::ptr::from_ref(node)), guard) };
        }
    }

    /// Takes nodes out of the chain. No operation runs.
    pub(super) fn retain(&self, stays: impl Fn(ChangedIn) -> bool, guard: &Guard) {
        let mut link = &self.head;
        loop {
            let target = link.load(Ordering::Relaxed, guard);
            // SAFETY: as in `walk`.
            let Some(node) = (unsafe { target.as_ref() }) else {
                break;
            };
            if stays(node.stamp) {
                link = &node.next;
                continue;
            }
            let after = node.next.load(Ordering::Relaxed, guard);
            link.store(after.with_tag(target.tag()), Ordering::Release);
            node.next.store(after.with_tag(OUT), Ordering::Release);
            // SAFETY: as in `swing`: nobody else changes the chain.
            unsafe { retire(target.with_tag(0), guard) };
            if self.add_length(-1) == 0 {
                self.filter.store(0, Ordering::Release);
            }
        }
    }

    /// Puts `successor`, or what follows, in the place of `node`.
    fn swing(&self, node: &Node, successor: Option<Owned<Node>>, guard: &Guard) {
        let mut link = &self.head;
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
            scheduling_point();
            // Under the lock, and so before its inode's number can be another's: a lookup that
            // finds the node, then the inode, and then this not set has found what the name named.
            // Not before the chain is changed: one that finds it set looks again at once.
            here.next.store(after.with_tag(OUT), Ordering::Release);
            // SAFETY: the chain no longer leads to it, and only the holder of the lock, us, could
            // have unlinked it.
            unsafe { retire(target.with_tag(0), guard) };
            return;
        }
    }

    /// Sets or clears a tag of the head. The caller holds the lock.
    pub(super) fn set_tag(&self, tag: usize, is_on: bool, guard: &Guard) {
        scheduling_point();
        let head = self.head.load(Ordering::Relaxed, guard);
        let tags = if is_on {
            head.tag() | tag
        } else {
            head.tag() & !tag
        };
        self.head.store(head.with_tag(tags), Ordering::Release);
    }

    /// Hands the names over to the halves of the interval in the next table. The caller holds the
    /// lock.
    pub(super) fn split(
        &self,
        [low, high]: [&Bucket; 2],
        is_high: impl Fn(&Node) -> bool,
        guard: &Guard,
    ) {
        let head = self.head.load(Ordering::Acquire, guard);
        let (mut last_low, mut first_high) = (None, Shared::null());
        let (mut filters, mut lengths) = ([0, 0], [0, 0]);
        let mut at = head.with_tag(0);
        // SAFETY: as in `walk`.
        while let Some(node) = unsafe { at.as_ref() } {
            let half = usize::from(is_high(node));
            filters[half] |= filter_bit(node.hash);
            lengths[half] += 1;
            if half == 0 {
                last_low = Some(node);
            } else if first_high.is_null() {
                first_high = at;
            }
            at = node.next.load(Ordering::Relaxed, guard);
        }
        let first_low = last_low.map_or(Shared::null(), |_| head.with_tag(0));
        let version = self.version.load(Ordering::Relaxed);
        for (half, bucket, first) in [(0, low, first_low), (1, high, first_high)] {
            bucket.version.store(version, Ordering::Relaxed);
            bucket.filter.store(filters[half], Ordering::Relaxed);
            bucket.length.store(lengths[half], Ordering::Relaxed);
            bucket.head.store(first, Ordering::Release);
        }
        scheduling_point();
        self.head.store(head.with_tag(LEFT), Ordering::Release);
        scheduling_point();
        if let Some(node) = last_low.filter(|_| !first_high.is_null()) {
            node.next.store(Shared::null(), Ordering::Release);
        }
        scheduling_point();
        self.head
            .store(head.with_tag(LEFT | MOVED), Ordering::Release);
    }

    /// Destroys the chain of a table that nobody else can reach.
    pub(super) fn clear(&mut self) {
        // SAFETY: exclusive access. Nodes that were unlinked are in no chain and are destroyed by
        // their own deferral.
        let guard = unsafe { crossbeam_epoch::unprotected() };
        let head = self.head.swap(Shared::null(), Ordering::Relaxed, guard);
        let mut at = head.with_tag(0);
        while !at.is_null() {
            // SAFETY: each node is in one chain.
            let node = unsafe { at.into_owned() };
            at = node.next.load(Ordering::Relaxed, guard);
        }
    }

    fn add_length(&self, change: i32) -> u32 {
        let length = self.length().wrapping_add_signed(change);
        self.length.store(length, Ordering::Relaxed);
        length
    }
}

/// The node that a link led to under the guard whose lifetime it has. Nothing of it is read.
#[inline]
pub(super) fn node_at(link: Shared<'_, Node>) -> Option<&Node> {
    // SAFETY: nodes are destroyed only after they are unlinked and all guards of then ended.
    unsafe { link.as_ref() }
}

/// The nodes from `head` on.
pub(super) fn walk<'g>(head: Shared<'g, Node>, guard: &'g Guard) -> impl Iterator<Item = &'g Node> {
    std::iter::successors(node_at(head), |node| node.after(guard))
}

/// Where another thread may run under shuttle, for which the epoch crate's atomics are no such
/// places. Nothing in ordinary builds.
#[inline(always)]
pub(super) fn scheduling_point() {
    #[cfg(feature = "shuttle")]
    let _ = AtomicU64::new(0).load(Ordering::Acquire);
}
