//! The operation log: what changed since the last commit, per CPU.
//!
//! # The protocol
//! An operation appends one group of records to this CPU's shard while it holds the locks of all
//! the objects that it changes, and publishes its effects after that. So an effect that anybody can
//! see is in the log already. A commit takes the global side, which excludes every append for the
//! moment in which it swaps the shards' records out: if B could have seen A, and B is in, A is in.
//! The groups between two swaps are a *generation*.
//!
//! # Invariants
//! 1. A group is in one shard whole, so it is in one generation whole.
//! 2. A shard's `generation` changes only under the global side; all shards have the same.
//! 3. Every inode that a group names is marked dirty with the group's generation before the append
//!    ends; an inode whose mark is at most the newest committed generation is clean.

use crossbeam_utils::CachePadded;
use finefs_locks::primitive::atomic::{AtomicU64, AtomicUsize, Ordering};
use finefs_locks::{LocalGlobal, PerCpuCounter};
use smallvec::SmallVec;

use crate::base::classes;
use crate::base::store::{Fate, MapChange};
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
        fate: Fate,
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
    /// Only times changed, or data at blocks that were mapped before.
    Touched { ino: Ino },
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
    /// What it has on the heap, about, without what is in it itself.
    fn heap_bytes(&self) -> usize {
        let length = |bytes: &Option<Box<[u8]>>| bytes.as_ref().map_or(0, |bytes| bytes.len());
        match self {
            Record::Created { symlink, .. } => length(symlink),
            Record::Xattr { name, value, .. } => name.len() + length(value),
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

    /// What a record of an operation that touches these inodes frees.
    fn of(record: &Record, touched: &[&Core]) -> FreedSpace {
        match record {
            Record::Linked {
                ino,
                fate: Fate::Freed,
                ..
            } => {
                let gone = touched.iter().find(|core| core.ino == *ino);
                FreedSpace {
                    sectors: gone.map_or(0, |core| core.sectors()),
                    inodes: 1,
                    ..FreedSpace::default()
                }
            }
            Record::Mapped { freed_blocks, .. } => FreedSpace {
                blocks: *freed_blocks,
                ..FreedSpace::default()
            },
            _ => FreedSpace::default(),
        }
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

/// What was appended between two swaps.
#[derive(Default)]
pub(crate) struct Generation {
    pub number: u64,
    /// Of each shard, in the order of its appends.
    pub parts: Vec<Vec<Record>>,
    pub reserved_blocks: u64,
    pub freed: FreedSpace,
    heap_bytes: usize,
}

impl Generation {
    /// How many records it has.
    pub fn length(&self) -> usize {
        self.parts.iter().map(Vec::len).sum()
    }

    /// What it takes in memory, about.
    pub fn bytes(&self) -> usize {
        self.length() * size_of::<Record>() + self.heap_bytes
    }
}

/// Room for the records of shards, in memory that has been used before: memory that is new to the
/// process costs more than what is written there.
#[derive(Default)]
pub(crate) struct Spares(Vec<Vec<Record>>);

/// For each shard so many are kept at most, of so many records each.
const SPARES_PER_SHARD: usize = 2;
const SPARE_RECORDS_MAX: usize = 1 << 12;

impl Spares {
    fn take(&mut self) -> Vec<Record> {
        self.0.pop().unwrap_or_default()
    }

    /// Keeps the room of records that were taken in.
    pub fn put(&mut self, parts: Vec<Vec<Record>>) {
        let most = parts.len() * SPARES_PER_SHARD;
        for part in parts {
            debug_assert!(part.is_empty());
            if self.0.len() < most && (1..=SPARE_RECORDS_MAX).contains(&part.capacity()) {
                self.0.push(part);
            }
        }
    }
}

struct Shard {
    generation: u64,
    records: Vec<Record>,
    reserved_blocks: u64,
    freed: FreedSpace,
    heap_bytes: usize,
}

/// The log. See the module's head.
pub(crate) struct OperationLog {
    shards: LocalGlobal<Shard>,
    freeing: FreeingSpace,
    /// The newest generation whose commit is durable. In a cache line of its own: `stat` reads it.
    committed: CachePadded<AtomicU64>,
    /// Records of the current generation, about: each shard adds [`COUNTED`] at a time.
    pending: AtomicUsize,
}

/// How many records a shard counts together, so that the shared count is written rarely.
const COUNTED: usize = 64;

impl OperationLog {
    pub fn new() -> OperationLog {
        OperationLog {
            shards: LocalGlobal::new(&classes::LOG, |_| Shard {
                generation: 1,
                records: Vec::new(),
                reserved_blocks: 0,
                freed: FreedSpace::default(),
                heap_bytes: 0,
            }),
            freeing: FreeingSpace::new(),
            committed: CachePadded::new(AtomicU64::new(0)),
            pending: AtomicUsize::new(0),
        }
    }

    /// Appends the group of one operation, and marks the inodes it touches. Gives, now and then,
    /// about how many records the log holds.
    pub fn append(
        &self,
        group: impl IntoIterator<Item = Record>,
        reserved_blocks: u64,
        touched: &[&Core],
    ) -> Option<usize> {
        let mut shard = self.shards.local();
        let before = shard.records.len();
        let mut heap_bytes = 0;
        let mut freed = FreedSpace::default();
        let group = group.into_iter();
        let group = group.inspect(|record| {
            heap_bytes += record.heap_bytes();
            freed.add(FreedSpace::of(record, touched));
        });
        shard.records.extend(group);
        shard.freed.add(freed);
        self.freeing.change(freed, 1);
        shard.heap_bytes += heap_bytes;
        shard.reserved_blocks += reserved_blocks;
        for core in touched {
            core.mark_dirty(shard.generation);
        }
        self.count(before, shard.records.len())
    }

    /// Counts what a shard's log grew by; called under the shard's lock.
    fn count(&self, before: usize, after: usize) -> Option<usize> {
        let grown = after / COUNTED - before / COUNTED;
        (grown > 0).then(|| {
            let more = grown * COUNTED;
            self.pending.fetch_add(more, Ordering::Relaxed) + more
        })
    }

    /// Notes that only the times or mapped data of an inode changed; costs nothing when the
    /// inode is in the generation already. Gives what [`OperationLog::append`] gives.
    pub fn touch(&self, core: &Core) -> Option<usize> {
        // The mark is compared with the generation under the shard's lock: it stands still there.
        let mut shard = self.shards.local();
        if core.dirty_generation() >= shard.generation {
            return None;
        }
        shard.records.push(Record::Touched { ino: core.ino });
        core.mark_dirty(shard.generation);
        let length = shard.records.len();
        self.count(length - 1, length)
    }

    /// Ends the generation; gives its records. Excludes appends only for the swap. The next
    /// generation has the room of the spares.
    pub fn swap(&self, spares: &mut Spares) -> Generation {
        let shards = self.shards.shard_count();
        let mut ended = Generation {
            parts: (0..shards).map(|_| spares.take()).collect(),
            ..Generation::default()
        };
        let mut global = self.shards.global();
        self.pending.store(0, Ordering::Relaxed);
        for (shard, part) in global.iter_mut().zip(&mut ended.parts) {
            ended.number = shard.generation;
            ended.reserved_blocks += std::mem::take(&mut shard.reserved_blocks);
            ended.freed.add(std::mem::take(&mut shard.freed));
            ended.heap_bytes += std::mem::take(&mut shard.heap_bytes);
            std::mem::swap(&mut shard.records, part);
            shard.generation += 1;
        }
        ended
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
        is_under_way || global.iter().any(|shard| !shard.records.is_empty())
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

    /// True when the inode has records that no durable commit holds.
    pub fn is_dirty(&self, core: &Core) -> bool {
        core.dirty_generation() > self.committed()
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    /// What waits to be taken in is bounded in memory, which values of attributes are most of.
    #[test]
    fn a_generation_knows_what_it_takes_in_memory() {
        let log = OperationLog::new();
        let record = |value: usize| Record::Xattr {
            ino: Ino(12),
            sequence: 1,
            name: b"user.x".to_vec().into(),
            value: Some(vec![0; value].into()),
        };
        log.append([record(4000), record(100)], 0, &[]);
        let mut spares = Spares::default();
        let ended = log.swap(&mut spares);
        assert_eq!(ended.bytes(), 2 * size_of::<Record>() + 4112);
        assert_eq!(log.swap(&mut spares).bytes(), 0);
    }
}
