//! [`ShardedList`]: a set of things on per-CPU lists under a local/global lock.
//!
//! # Data model
//! Each shard is a slab: a vector of slots, and the free ones linked. A [`Ticket`] names an item's
//! shard and slot, so that it is removed in constant time from wherever it was added, whichever CPU
//! the remover runs on. Each shard counts what was ever added to it and removed from it, and the
//! removals by threads that ran on other CPUs than the shard's, or on other NUMA nodes: few, if
//! per-CPU lists work.
//!
//! # Invariants
//! 1. A ticket names a used slot; adding makes it, removing consumes it, and it cannot be copied.
//! 2. A free slot is in its shard's free list exactly once.
//!
//! # Locking
//! Adding and removing take one shard's lock (one atomic read-modify-write when nobody else is
//! there); what walks all items takes the global lock.
//!
//! References: Piggin, "fs: scale files_lock" (linux-fsdevel, June 2010).

use finefs_lockmeter::LockClass;

use crate::{LocalGlobal, cpu};

/// A set of things, sharded by the CPU that added them: per-CPU lists under a [`LocalGlobal`] lock.
///
/// Adding and removing take one shard's lock: one atomic read-modify-write when nobody else is
/// there, and constant time. An item is removed through its [`Ticket`], from the shard to which it
/// was added, whatever CPU the remover runs on; how often that is another one is counted
/// ([`removals`](ShardedList::removals)). What walks all items takes the global lock, so that
/// nothing is added or removed meanwhile, and delays threads that want to. Items that are never
/// removed are dropped with the list.
///
/// ```
/// use finefs_locks::{LockClass, ShardedList};
/// static OPEN_FILES: LockClass = LockClass::new("example.open_files", 10);
/// let open = ShardedList::new(&OPEN_FILES);
/// let ticket = open.add("a.txt");
/// let mut names = Vec::new();
/// open.for_each(|name| names.push(*name));
/// assert_eq!(names, ["a.txt"]);
/// assert_eq!(open.remove(ticket), "a.txt");
/// assert_eq!(open.removals_total(), 1);
/// ```
#[derive(Debug)]
pub struct ShardedList<T> {
    shards: LocalGlobal<Slab<T>>,
}

/// Names an item of a [`ShardedList`]. Not to be shown to another list.
///
/// ```
/// # use finefs_locks::{LockClass, ShardedList};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// # let open = ShardedList::new(&CLASS);
/// let ticket = open.add("a");
/// assert_eq!(open.remove(ticket), "a");
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the item stays on the list until the ticket is given back"]
pub struct Ticket {
    shard: u32,
    slot: u32,
}

impl Ticket {
    /// The shard that the item was added to.
    pub fn shard(&self) -> usize {
        self.shard as usize
    }

    /// A number that no other ticket of the list has at the same time.
    pub fn key(&self) -> u64 {
        u64::from(self.shard) << 32 | u64::from(self.slot)
    }
}

/// No slot.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
enum Slot<T> {
    Used(T),
    /// With the next free slot, or NONE.
    Free(u32),
}

#[derive(Debug)]
struct Slab<T> {
    slots: Vec<Slot<T>>,
    /// Or NONE.
    first_free: u32,
    added: u64,
    removed: u64,
    removed_off_cpu: u64,
    removed_off_node: u64,
}

/// How often items have been removed.
///
/// ```
/// # use finefs_locks::{LockClass, Removals, ShardedList};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// let open = ShardedList::<u32>::new(&CLASS);
/// assert_eq!(open.removals(), Removals { total: 0, on_cpu: 0, on_node: 0 });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Removals {
    /// In all.
    pub total: u64,
    /// By a thread on the CPU whose thread had added the item.
    pub on_cpu: u64,
    /// By a thread on a CPU of the same NUMA node.
    pub on_node: u64,
}

impl<T> Slab<T> {
    fn new() -> Slab<T> {
        Slab {
            slots: Vec::new(),
            first_free: NONE,
            added: 0,
            removed: 0,
            removed_off_cpu: 0,
            removed_off_node: 0,
        }
    }

    #[inline]
    fn add(&mut self, item: T) -> u32 {
        self.added += 1;
        let slot = self.first_free;
        if slot == NONE {
            return self.add_slot(item);
        }
        let place = &mut self.slots[slot as usize];
        let Slot::Free(next) = *place else {
            unreachable!("invariant 2: a free slot")
        };
        self.first_free = next;
        *place = Slot::Used(item);
        slot
    }

    #[cold]
    fn add_slot(&mut self, item: T) -> u32 {
        let slot = u32::try_from(self.slots.len()).ok();
        let slot = slot.filter(|slot| *slot != NONE);
        self.slots.push(Slot::Used(item));
        slot.expect("less than 2^32 - 1 items in a shard")
    }

    #[inline]
    fn remove(&mut self, slot: u32) -> T {
        let place = &mut self.slots[slot as usize];
        assert!(
            matches!(place, Slot::Used(_)),
            "invariant 1: a ticket names a used slot"
        );
        let Slot::Used(item) = std::mem::replace(place, Slot::Free(self.first_free)) else {
            unreachable!("just checked")
        };
        self.first_free = slot;
        self.removed += 1;
        item
    }

    /// A thread on `cpu` removes an item from the shard of another one.
    #[cold]
    fn note_from_afar(&mut self, cpu: usize, shard: usize) {
        self.removed_off_cpu += 1;
        let is_off_node = cpu::node_of(cpu) != cpu::node_of(shard);
        self.removed_off_node += u64::from(is_off_node);
    }

    fn used_count(&self) -> usize {
        (self.added - self.removed) as usize
    }

    fn items(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Used(item) => Some(item),
            Slot::Free(_) => None,
        })
    }
}

impl<T> ShardedList<T> {
    /// An empty list.
    pub fn new(class: &'static LockClass) -> ShardedList<T> {
        // The nodes are read from files the first time: now, and not in a removal, under a shard's
        // lock.
        cpu::node_of(0);
        ShardedList {
            shards: LocalGlobal::new(class, |_| Slab::new()),
        }
    }

    /// Adds an item to the list of this CPU.
    #[inline]
    #[track_caller]
    pub fn add(&self, item: T) -> Ticket {
        let mut shard = self.shards.local();
        let slot = shard.add(item);
        Ticket {
            shard: shard.shard() as u32,
            slot,
        }
    }

    /// Removes an item from the list that it is on.
    #[inline]
    #[track_caller]
    pub fn remove(&self, ticket: Ticket) -> T {
        let cpu = cpu::current_of(self.shards.shard_count());
        let mut shard = self.shards.shard(ticket.shard());
        if cpu != ticket.shard() {
            shard.note_from_afar(cpu, ticket.shard());
        }
        shard.remove(ticket.slot)
    }

    /// Calls `f` with every item, in no particular order, while nothing is added or removed.
    #[track_caller]
    pub fn for_each(&self, mut f: impl FnMut(&T)) {
        for shard in self.shards.global().iter() {
            shard.items().for_each(&mut f);
        }
    }

    /// True when `f` holds for some item. Looks at a state in which nothing is being added or
    /// removed.
    #[track_caller]
    pub fn any(&self, mut f: impl FnMut(&T) -> bool) -> bool {
        self.shards
            .global()
            .iter()
            .any(|shard| shard.items().any(&mut f))
    }

    /// The number of items.
    #[track_caller]
    pub fn len(&self) -> usize {
        self.shards.global().iter().map(Slab::used_count).sum()
    }

    /// True when there is no item.
    #[track_caller]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many items have been removed, and from how near.
    #[track_caller]
    pub fn removals(&self) -> Removals {
        let mut sum = Removals::default();
        for shard in self.shards.global().iter() {
            sum.total += shard.removed;
            sum.on_cpu += shard.removed - shard.removed_off_cpu;
            sum.on_node += shard.removed - shard.removed_off_node;
        }
        sum
    }

    /// How many items have been removed.
    #[track_caller]
    pub fn removals_total(&self) -> u64 {
        self.removals().total
    }

    /// How many items have been removed by a thread on the CPU whose thread had added them.
    #[track_caller]
    pub fn removals_local(&self) -> u64 {
        self.removals().on_cpu
    }
}
