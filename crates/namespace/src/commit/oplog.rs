//! The operation log: what changed since the last commit, per CPU.
//!
//! # The protocol
//! An operation appends one group of records to this CPU's shard while it holds the locks of all
//! the objects that it changes, and publishes its effects after that. So an effect that anybody
//! can see is in the log already. (Not so times, which are in no record: a commit takes them as it
//! finds them, and they are set before the append.) A cut takes the global side, which excludes
//! every append for a moment: if B could have seen A, and B is before the cut, A is before it. The
//! groups between two cuts are a *generation*. Before the cut the records of a shard may be taken
//! out to be folded (`folding`), which takes them out of no generation.
//!
//! # Invariants
//! 1. A group is in one shard whole, so it is in one generation whole.
//! 2. A shard's `generation` changes only under the global side; all shards have the same.
//! 3. Every inode that a group names is marked dirty with the group's generation before the append
//!    ends; an inode whose mark is at most the newest committed generation is clean.

use std::ops::Range;

use crossbeam_utils::CachePadded;
use finefs_locks::primitive::atomic::{AtomicU64, Ordering};
use finefs_locks::{LocalGlobal, LocalGuard, PerCpuCounter};
use smallvec::SmallVec;

use crate::base::classes;
use crate::base::store::{LinkState, MapChange};
use crate::base::types::{FileKind, Ino, NameBytes};
use crate::inode::{Core, Ownership};

/// One change of one object. `sequence` orders the records of an inode, `version` those of a name.
#[derive(Debug)]
pub(crate) enum Record {
    /// An inode comes to be, with the attributes that its [`Core::committed`] has until the commit.
    Created {
        ino: Ino,
        symlink: Option<Box<[u8]>>,
    },
    /// Mode, owner, group or flags were set.
    Owned {
        ino: Ino,
        sequence: u64,
        to: Ownership,
    },
    /// The size was set.
    Sized {
        ino: Ino,
        sequence: u64,
        size_bytes: u64,
    },
    /// The number of links of an inode that is no directory, and what becomes of it.
    Linked {
        ino: Ino,
        sequence: u64,
        link_count: u32,
        link_state: LinkState,
        /// The space that is freed with it, in units of 512 bytes.
        freed_sectors: u64,
    },
    /// Subdirectories came or went.
    LinkDelta { ino: Ino, delta: i64 },
    /// The mapping changed.
    Mapped {
        ino: Ino,
        sequence: u64,
        change: MapChange,
        /// How many blocks leave the mapping.
        freed_blocks: u64,
    },
    /// An extended attribute was set or removed.
    Xattr {
        ino: Ino,
        sequence: u64,
        name: Box<[u8]>,
        value: Option<Box<[u8]>>,
    },
    /// The content in the inode is this now, or (`None`) lies in blocks.
    Inline {
        ino: Ino,
        sequence: u64,
        content: Option<Box<[u8]>>,
    },
    /// Only times changed, or data at blocks that were mapped before; or a name was moved.
    Touched { ino: Ino, sequence: u64 },
    /// A name came, went or names another inode. `was_there` says whether it was a name before.
    /// `hash` is that of the directory's table.
    Entry {
        dir: Ino,
        version: u64,
        hash: u64,
        name: NameBytes,
        was_there: bool,
        names: Option<(Ino, FileKind)>,
    },
    /// A directory has this parent now.
    Parent {
        dir: Ino,
        sequence: u64,
        parent: Ino,
    },
}

impl Record {
    /// An inode that is no directory gets so many links, and this becomes of it.
    pub fn linked(core: &Core, link_count: u32, link_state: LinkState) -> Record {
        Record::Linked {
            ino: core.ino,
            sequence: core.next_sequence(),
            link_count,
            link_state,
            freed_sectors: match link_state {
                LinkState::Freed => core.sectors(),
                LinkState::Linked | LinkState::Orphan => 0,
            },
        }
    }

    /// An inode that changes in no other way.
    pub fn touched(core: &Core) -> Record {
        Record::Touched {
            ino: core.ino,
            sequence: core.next_sequence(),
        }
    }

    /// The inode that changes; of an entry, its directory.
    pub fn ino(&self) -> Ino {
        match self {
            Record::Created { ino, .. }
            | Record::Owned { ino, .. }
            | Record::Sized { ino, .. }
            | Record::Linked { ino, .. }
            | Record::LinkDelta { ino, .. }
            | Record::Mapped { ino, .. }
            | Record::Xattr { ino, .. }
            | Record::Inline { ino, .. }
            | Record::Touched { ino, .. } => *ino,
            Record::Entry { dir, .. } | Record::Parent { dir, .. } => *dir,
        }
    }

    /// The place of the record among those of its inode that are counted, from 1 on; 0 for the
    /// others.
    pub fn sequence(&self) -> u64 {
        match self {
            Record::Owned { sequence, .. }
            | Record::Sized { sequence, .. }
            | Record::Linked { sequence, .. }
            | Record::Mapped { sequence, .. }
            | Record::Xattr { sequence, .. }
            | Record::Inline { sequence, .. }
            | Record::Parent { sequence, .. }
            | Record::Touched { sequence, .. } => *sequence,
            Record::Created { .. } | Record::LinkDelta { .. } | Record::Entry { .. } => 0,
        }
    }

    /// True when its inode is gone for good.
    pub fn frees(&self) -> bool {
        matches!(
            self,
            Record::Linked {
                link_state: LinkState::Freed,
                ..
            }
        )
    }

    /// The space that it frees.
    pub fn freed(&self) -> FreedSpace {
        match self {
            Record::Linked {
                link_state: LinkState::Freed,
                freed_sectors,
                ..
            } => FreedSpace {
                sectors: *freed_sectors,
                inodes: 1,
                ..FreedSpace::default()
            },
            Record::Mapped { freed_blocks, .. } => FreedSpace {
                blocks: *freed_blocks,
                ..FreedSpace::default()
            },
            _ => FreedSpace::default(),
        }
    }

    /// What it has on the heap, about, without what is in it itself.
    pub fn heap_bytes(&self) -> usize {
        let length = |bytes: &Option<Box<[u8]>>| bytes.as_ref().map_or(0, |bytes| bytes.len());
        match self {
            Record::Created { symlink, .. } => length(symlink),
            Record::Xattr { name, value, .. } => name.len() + length(value),
            Record::Inline { content, .. } => length(content),
            _ => 0,
        }
    }
}

/// Space that records free. The store gives it out again when their commit is durable.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct FreedSpace {
    /// Blocks of data that left the mapping of a file.
    pub blocks: u64,
    /// Space used by inodes that are gone, in units of 512 bytes.
    pub sectors: u64,
    pub inodes: u64,
}

impl FreedSpace {
    pub fn add(&mut self, more: FreedSpace) {
        self.blocks += more.blocks;
        self.sectors += more.sectors;
        self.inodes += more.inodes;
    }

    pub fn remove(&mut self, less: FreedSpace) {
        self.blocks -= less.blocks;
        self.sectors -= less.sectors;
        self.inodes -= less.inodes;
    }
}

/// Space that is free to who looks, and not yet to the store.
struct FreeingSpace {
    blocks: PerCpuCounter,
    sectors: PerCpuCounter,
    inodes: PerCpuCounter,
}

impl FreeingSpace {
    fn new() -> FreeingSpace {
        FreeingSpace {
            blocks: PerCpuCounter::new(0),
            sectors: PerCpuCounter::new(0),
            inodes: PerCpuCounter::new(0),
        }
    }

    /// Adds or takes away, by the sign.
    fn change(&self, by: FreedSpace, sign: i64) {
        for (counter, by) in [
            (&self.blocks, by.blocks),
            (&self.sectors, by.sectors),
            (&self.inodes, by.inodes),
        ] {
            if by != 0 {
                counter.add(sign * by as i64);
            }
        }
    }
}

/// The records of an operation that makes a number of them that is not known beforehand; others
/// append an array.
pub(crate) type Group = SmallVec<[Record; 4]>;

/// What records have on the heap counts as one more record for each so many bytes: a small block.
const WEIGHT_BYTES: usize = 1024;

/// What a shard of the log holds, or held.
#[derive(Default)]
pub(crate) struct Logged {
    /// In the order of the appends.
    pub records: Vec<Record>,
    /// In the same order.
    pub reserved: Vec<Reserved>,
    /// What the records have on the heap, about.
    pub heap_bytes: usize,
}

impl Logged {
    /// How many records there are; those of large values count for more than one.
    pub fn weight(&self) -> usize {
        self.records.len() + self.heap_bytes / WEIGHT_BYTES
    }
}

/// What was reserved for applying a group.
pub(crate) struct Reserved {
    /// The group.
    pub records: Range<usize>,
    pub blocks: u64,
}

/// A generation that was cut off.
pub(crate) struct Cut {
    pub number: u64,
    /// What each shard held then; the rest was taken out before.
    pub rest: Vec<Logged>,
}

struct Shard {
    generation: u64,
    logged: Logged,
    /// Nothing was appended in this generation.
    is_clean: bool,
}

/// The log. See the module's head.
pub(crate) struct OperationLog {
    shards: LocalGlobal<Shard>,
    freeing: FreeingSpace,
    /// The newest generation whose commit is durable. In a cache line of its own: `stat` reads it.
    committed: CachePadded<AtomicU64>,
    /// The newest generation up to whose end all data is durable.
    data_committed: AtomicU64,
    /// A shard tells its weight each time that it grew by so much: a power of two.
    told_every: usize,
}

impl OperationLog {
    /// An empty log. Each shard tells its weight when it grew by about so much.
    pub fn new(told_every: usize) -> OperationLog {
        OperationLog {
            shards: LocalGlobal::new(&classes::LOG, |_| Shard {
                generation: 1,
                logged: Logged::default(),
                is_clean: true,
            }),
            freeing: FreeingSpace::new(),
            committed: CachePadded::new(AtomicU64::new(0)),
            data_committed: AtomicU64::new(0),
            told_every: 1 << told_every.max(1).ilog2(),
        }
    }

    /// Appends the group of one operation, and marks the inodes it touches. Gives, now and then, a
    /// shard and its weight.
    pub fn append<'c>(
        &self,
        group: impl IntoIterator<Item = Record>,
        reserved_blocks: u64,
        touched: impl IntoIterator<Item = &'c Core>,
    ) -> Option<(usize, usize)> {
        let mut shard = self.shards.local();
        let before = shard.logged.records.len();
        let weight_before = shard.logged.weight();
        let (mut freed, mut heap_bytes) = (FreedSpace::default(), 0);
        let group = group.into_iter().inspect(|record| {
            freed.add(record.freed());
            heap_bytes += record.heap_bytes();
        });
        shard.logged.records.extend(group);
        shard.logged.heap_bytes += heap_bytes;
        self.freeing.change(freed, 1);
        if reserved_blocks != 0 {
            // What was reserved goes by the first record.
            debug_assert!(shard.logged.records.len() > before);
            let records = before..shard.logged.records.len();
            shard.logged.reserved.push(Reserved {
                records,
                blocks: reserved_blocks,
            });
        }
        shard.is_clean = false;
        for core in touched {
            core.mark_dirty(shard.generation);
        }
        self.tell(&shard, weight_before)
    }

    /// What a shard tells that had this weight before.
    fn tell(&self, shard: &LocalGuard<'_, Shard>, before: usize) -> Option<(usize, usize)> {
        let after = shard.logged.weight();
        let has_grown = (before ^ after) >= self.told_every;
        has_grown.then_some((shard.shard(), after))
    }

    /// Notes that only the times or mapped data of an inode changed; costs nothing when the
    /// inode is in the generation already. Gives what [`OperationLog::append`] gives.
    pub fn touch(&self, core: &Core) -> Option<(usize, usize)> {
        // The mark is compared with the generation under the shard's lock: it stands still there.
        let mut shard = self.shards.local();
        if core.dirty_generation() >= shard.generation {
            return None;
        }
        let before = shard.logged.weight();
        shard.logged.records.push(Record::touched(core));
        shard.is_clean = false;
        core.mark_touched(shard.generation, self.committed());
        self.tell(&shard, before)
    }

    /// Takes out what a shard has, and its generation. Its next records get the room of `spare`,
    /// which is empty.
    pub fn take(&self, shard: usize, spare: Logged) -> (u64, Logged) {
        debug_assert!(spare.records.is_empty() && spare.reserved.is_empty());
        let mut shard = self.shards.shard(shard);
        (
            shard.generation,
            std::mem::replace(&mut shard.logged, spare),
        )
    }

    /// Ends the generation. Excludes appends only for a moment.
    pub fn cut(&self) -> Cut {
        let mut number = 0;
        let mut rest = Vec::with_capacity(self.shards.shard_count());
        let mut global = self.shards.global();
        for shard in global.iter_mut() {
            number = shard.generation;
            shard.generation += 1;
            shard.is_clean = true;
            rest.push(std::mem::take(&mut shard.logged));
        }
        Cut { number, rest }
    }

    /// The generation that appends go to now.
    pub fn current(&self) -> u64 {
        self.shards.local().generation
    }

    /// True when anything is not durable yet: it waits for a commit, or is in one.
    pub fn has_uncommitted(&self) -> bool {
        let global = self.shards.global();
        // The generation before the current one is durable unless it waits for its commit, or that
        // is under way.
        let is_under_way = global
            .iter()
            .any(|shard| shard.generation > self.committed() + 1);
        is_under_way || global.iter().any(|shard| !shard.is_clean)
    }

    /// What is free once all that was logged is durable, beside what the store counts as free.
    pub fn freeing(&self) -> FreedSpace {
        let count = |counter: &PerCpuCounter| counter.exact().max(0) as u64;
        FreedSpace {
            blocks: count(&self.freeing.blocks),
            sectors: count(&self.freeing.sectors),
            inodes: count(&self.freeing.inodes),
        }
    }

    /// Notes that the store counts this as free now.
    pub fn note_freed(&self, freed: FreedSpace) {
        self.freeing.change(freed, -1);
    }

    /// The newest durable generation.
    pub fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    /// Notes that a generation is durable.
    pub fn set_committed(&self, generation: u64) {
        self.committed.fetch_max(generation, Ordering::AcqRel);
    }

    /// The newest generation up to whose end all data is durable, also what was written over other
    /// data.
    pub fn data_committed(&self) -> u64 {
        self.data_committed.load(Ordering::Acquire)
    }

    /// Notes that all data is durable that the store had at the end of a generation.
    pub fn set_data_committed(&self, generation: u64) {
        self.data_committed.fetch_max(generation, Ordering::AcqRel);
    }

    /// True when the inode has records that no durable commit holds.
    pub fn is_dirty(&self, core: &Core) -> bool {
        core.dirty_generation() > self.committed()
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    /// Else a window of large values would be as many blocks as the journal has, or more.
    #[test]
    fn records_of_large_values_make_a_shard_long_sooner() {
        let log = OperationLog::new(64);
        let set = |length_bytes: usize| {
            let record = Record::Xattr {
                ino: Ino(12),
                sequence: 1,
                name: b"user.x".to_vec().into(),
                value: Some(vec![0; length_bytes].into()),
            };
            log.append([record], 0, [])
        };
        assert_eq!(set(100), None);
        let told = set(64 << 10).map(|(_, weight)| weight);
        assert_eq!(told, Some(2 + 64));
    }
}
