//! What one shard of the log came to in one generation: one delta for each object.
//!
//! # What cancels out
//! A file that was made and freed leaves nothing if all its records are in this shard: its number
//! and blocks were never named by a commit, and are given back at once. So most of what a thread
//! makes for a short time never leaves its CPU. Names that such files had go with them, and so does
//! what had been reserved for the commit of both.
//!
//! That no other shard has a record of the file is known without a look at the others: the records
//! of an inode are numbered without gaps from its creation on, so this shard has all of them if it
//! has as many as the number of the last one, which frees the inode; nothing is logged of an inode
//! after that. Records of a name have versions with gaps. But each record that gives the name to
//! the file, or takes it away, is in a group with a numbered record of the file, so it is here,
//! too, and nothing came in between. So where all files that had a name in this shard are
//! cancelled, and the name was not there before and is not now, its records are pairs that leave
//! nothing, and other shards' records of the name fit together without them.
//!
//! # Memory
//! Deltas lie in slabs ([`Slab`]) that keep their memory when they are emptied. A shard fills the
//! same ones again and again, so nothing is allocated in the long run, and nothing is freed by
//! another thread than the one that allocated it, but for long names, extended attributes, symbolic
//! links, directories that come or go, and mappings that change in more than one place.
//!
//! # Invariants
//! 1. Records are taken in in the order of the shard's log.
//! 2. `tally` counts each inode delta with what `counted` of it says, and each name with its
//!    outcome.

use std::hash::Hasher;

use crossbeam_epoch::Guard;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::base::number_map::NumberHasher;
use crate::base::store::{BatchCost, BlockRun, InodeCost, MapChange};
use crate::base::types::{FileKind, Ino};
use crate::commit::batch_size::Tally;
use crate::commit::delta::{GivenName, InodeDelta, NameDelta, NameKey, NameOutcome};
use crate::commit::oplog::{FreedSpace, Logged, Record, Reserved};
use crate::commit::slab::Slab;
use crate::inode::inode_table::InodeTable;

/// So many inodes, whose numbers follow each other, are found together.
const NEIGHBOURS: u64 = 16;

/// No inode here.
const NONE: u32 = u32::MAX;

/// Inodes whose numbers follow each other.
struct Neighbours {
    number: u64,
    places: [u32; NEIGHBOURS as usize],
}

/// A delta, and what it was counted with.
struct Counted {
    delta: InodeDelta,
    cost: InodeCost,
}

/// What files that cancelled out leave to give back, outside of the locks.
#[derive(Default)]
pub(super) struct Cancelled {
    pub inodes: Vec<(Ino, FileKind)>,
    pub blocks: Vec<BlockRun>,
    pub freed: FreedSpace,
    /// What had been reserved for them.
    pub reserved_blocks: u64,
}

/// What records are taken in with.
pub(super) struct Context<'a> {
    pub inodes: &'a InodeTable,
    pub cost: Option<&'a dyn BatchCost>,
    pub guard: &'a Guard,
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Folded {
    pub generation: u64,
    /// The shard that it belongs to, where it is part of a transaction.
    pub shard: usize,
    pub reserved_blocks: u64,
    pub freed: FreedSpace,
    /// What the deltas of inodes have on the heap, about.
    pub heap_bytes: usize,
    inodes: Slab<Counted>,
    groups: Vec<Neighbours>,
    by_number: HashTable<u32>,
    names: Slab<Option<NameDelta>>,
    by_name: HashTable<u32>,
    tally: Tally,
    /// No commit of it changes more blocks.
    blocks_max: u64,
    /// The group that was found last: records of an operation are of neighbours mostly.
    last_group: usize,
}

impl Folded {
    /// Nothing was taken in.
    pub fn is_empty(&self) -> bool {
        self.by_number.is_empty() && self.by_name.is_empty() && self.reserved_blocks == 0
    }

    /// How many objects change.
    pub fn objects(&self) -> usize {
        self.inodes.used() + self.by_name.len()
    }

    /// Empties it, and keeps its memory.
    pub fn clear(&mut self) {
        let mut kept = std::mem::take(self);
        kept.inodes.clear();
        kept.groups.clear();
        kept.by_number.clear();
        kept.names.clear();
        kept.by_name.clear();
        kept.tally.clear();
        *self = Folded {
            inodes: kept.inodes,
            groups: kept.groups,
            by_number: kept.by_number,
            names: kept.names,
            by_name: kept.by_name,
            tally: kept.tally,
            ..Folded::default()
        };
    }

    /// Takes in what the shard logged next. What cancels out is left in `cancelled`.
    pub fn take_in(
        &mut self,
        logged: &mut Logged,
        context: &Context<'_>,
        cancelled: &mut Cancelled,
    ) {
        self.blocks_max += logged.weight() as u64;
        logged.heap_bytes = 0;
        for reserved in &mut logged.reserved {
            self.reserved_blocks += reserved.blocks;
            take_place(reserved, &logged.records);
        }
        let mut reserved = logged.reserved.drain(..).peekable();
        let mut uncounted = None;
        for (index, record) in logged.records.drain(..).enumerate() {
            let reserved = reserved.next_if(|reserved| reserved.records.start == index);
            let reserved_blocks = reserved.map_or(0, |reserved| reserved.blocks);
            let freed = record.freed();
            self.freed.add(freed);
            if let Record::Entry {
                dir,
                version,
                hash,
                name,
                was_there,
                names,
            } = record
            {
                let key = NameKey { dir, hash, name };
                let place = self.take_in_name(key, version, was_there, names);
                if let Some((ino, _)) = names {
                    let given = GivenName {
                        place,
                        reserved_blocks: u32::try_from(reserved_blocks).unwrap_or(0),
                        version,
                    };
                    self.note_given(ino, given, was_there);
                }
                // A directory has new times, and no more than that by its entries.
                self.place_of(dir, context);
                continue;
            }
            let place = self.place_of(record.ino(), context);
            if uncounted.is_some_and(|before| before != place) {
                uncounted
                    .take()
                    .inspect(|before| self.count(*before, context));
            }
            uncounted = Some(place);
            let is_freed = record.frees();
            let delta = &mut self.inodes[place].delta;
            delta.freed.add(freed);
            delta.reserved_blocks += reserved_blocks;
            self.heap_bytes -= delta.heap_bytes;
            delta.take_in(record);
            self.heap_bytes += delta.heap_bytes;
            if is_freed {
                self.count(place, context);
                uncounted = None;
                self.cancel(place, context, cancelled);
            }
        }
        uncounted.inspect(|place| self.count(*place, context));
    }

    /// The place of an inode's delta, which is made where there is none.
    fn place_of(&mut self, ino: Ino, context: &Context<'_>) -> u32 {
        let (number, within) = neighbours(ino);
        let group = self.group(number);
        let place = self.groups[group].places[within];
        if place != NONE {
            return place;
        }
        let counted = Counted {
            delta: InodeDelta::new(ino),
            cost: InodeCost::default(),
        };
        if self.is_first_of_block(group, ino, context) {
            self.tally.table_blocks += 1;
        }
        let place = self.inodes.put(counted);
        self.groups[group].places[within] = place;
        place
    }

    /// The group of this number.
    fn group(&mut self, number: u64) -> usize {
        if self
            .groups
            .get(self.last_group)
            .is_some_and(|group| group.number == number)
        {
            return self.last_group;
        }
        let groups = &mut self.groups;
        let entry = self.by_number.entry(
            hash(number),
            |place| groups[*place as usize].number == number,
            |place| hash(groups[*place as usize].number),
        );
        self.last_group = match entry {
            Entry::Occupied(place) => *place.get() as usize,
            Entry::Vacant(vacant) => {
                let place = groups.len();
                vacant.insert(place as u32);
                groups.push(Neighbours {
                    number,
                    places: [NONE; NEIGHBOURS as usize],
                });
                place
            }
        };
        self.last_group
    }

    /// True when no other inode of the group, whose block of the inode table is `ino`'s, changes.
    fn is_first_of_block(&self, group: usize, ino: Ino, context: &Context<'_>) -> bool {
        let Some(cost) = context.cost else {
            return false;
        };
        let block = cost.table_block(ino);
        let group = &self.groups[group];
        let others = group.places.iter().zip(group.number * NEIGHBOURS + 1..);
        !others
            .filter(|(place, other)| **place != NONE && *other != ino.0)
            .any(|(_, other)| cost.table_block(Ino(other)) == block)
    }

    /// Counts a delta as it is now.
    fn count(&mut self, place: u32, context: &Context<'_>) {
        if let Some(cost) = context.cost {
            let counted = &mut self.inodes[place];
            let now = cost.of_inode(&counted.delta.footprint());
            self.tally.change(counted.cost, now);
            counted.cost = now;
        }
    }

    /// Takes in a record of a name; gives its place.
    fn take_in_name(
        &mut self,
        key: NameKey,
        version: u64,
        was_there: bool,
        names: Option<(Ino, FileKind)>,
    ) -> u32 {
        let (dir, length) = (key.dir, key.name.len());
        let deltas = &mut self.names;
        let entry = self.by_name.entry(
            key.hash,
            |place| {
                deltas[*place]
                    .as_ref()
                    .is_some_and(|delta| delta.key == key)
            },
            |place| deltas[*place].as_ref().map_or(0, |delta| delta.key.hash),
        );
        let (place, before) = match entry {
            Entry::Occupied(place) => {
                let place = *place.get();
                let delta = deltas[place].as_mut();
                let delta = delta.expect("what the table names is there");
                let before = delta.outcome();
                delta.take_in(version, was_there, names);
                (place, before)
            }
            Entry::Vacant(vacant) => {
                let delta = NameDelta::new(key, version, was_there, names);
                let place = deltas.put(Some(delta));
                vacant.insert(place);
                (place, NameOutcome::CameAndWent)
            }
        };
        let delta = deltas[place].as_mut();
        let delta = delta.expect("it was put there");
        let now = delta.outcome();
        if before != now {
            self.tally.name(dir, length, before, now);
        }
        delta.givings += u32::from(names.is_some());
        place
    }

    /// An inode gets a name: one that was made here remembers it. To let a name that was there name
    /// another inode takes no more space, so what was reserved for that is the inode's.
    fn note_given(&mut self, ino: Ino, mut given: GivenName, was_there: bool) {
        let (number, within) = neighbours(ino);
        let group = self.group(number);
        let place = self.groups[group].places[within];
        if place == NONE {
            return;
        }
        let delta = &mut self.inodes[place].delta;
        if delta.is_created {
            if was_there {
                delta.reserved_blocks += u64::from(std::mem::take(&mut given.reserved_blocks));
            }
            delta.names.push(given);
        }
    }

    /// Takes a file out that was made and freed, if nothing of it is elsewhere.
    fn cancel(&mut self, place: u32, context: &Context<'_>, cancelled: &mut Cancelled) {
        let ino = self.inodes[place].delta.ino;
        let Some(inode) = context.inodes.get(ino, context.guard) else {
            return;
        };
        let Some(core) = inode.loaded() else { return };
        let delta = &self.inodes[place].delta;
        if !delta.is_complete(core.kind) || !inode.is_gone() {
            return;
        }
        // Whoever removed its last name is done with that, before the number can be given out
        // again: see the head of `commit`.
        drop(core.lock());
        let counted = &mut self.inodes[place];
        let delta = std::mem::replace(&mut counted.delta, InodeDelta::new(ino));
        self.heap_bytes -= delta.heap_bytes;
        self.tally.change(counted.cost, InodeCost::default());
        self.inodes.free(place);
        let (number, within) = neighbours(ino);
        let group = self.group(number);
        self.groups[group].places[within] = NONE;
        if self.is_first_of_block(group, ino, context) {
            self.tally.table_blocks -= 1;
        }
        for name in &delta.names {
            self.take_back(name.place);
        }
        let reserved_blocks = delta.reserved_blocks + self.reserved_for_gone(&delta);
        self.reserved_blocks -= reserved_blocks;
        cancelled.reserved_blocks += reserved_blocks;
        self.freed.remove(delta.freed);
        cancelled.freed.add(delta.freed);
        cancelled.inodes.push((ino, core.kind));
        cancelled.blocks.extend(delta.mapped());
    }

    /// What was reserved for adding names that a file had, which cancelled out, and that no commit
    /// adds for it: they were taken out since, and may have been added anew, with a reservation of
    /// their own. (A name that went on to another file while it was there is added once, and may
    /// need what was reserved for the first.)
    fn reserved_for_gone(&self, delta: &InodeDelta) -> u64 {
        let is_gone = |given: &&GivenName| {
            let name = self.names[given.place].as_ref();
            name.is_none_or(|name| name.names().is_none() || name.added > given.version)
        };
        let gone = delta.names.iter().filter(is_gone);
        gone.map(|name| u64::from(name.reserved_blocks)).sum()
    }

    /// A name was given to a file that cancelled out.
    fn take_back(&mut self, place: u32) {
        let delta = self.names[place].as_mut();
        let delta = delta.expect("a name stays as long as an inode remembers it");
        delta.givings -= 1;
        if !delta.leaves_nothing() {
            return;
        }
        let hash = delta.key.hash;
        let entry = self.by_name.find_entry(hash, |other| *other == place);
        entry.expect("what is there is in the table").remove();
        self.names[place] = None;
        self.names.free(place);
    }

    /// No commit of it changes more blocks: a bound that is added up anew where `is_exact`.
    pub fn blocks_max(&mut self, context: &Context<'_>, is_exact: bool) -> u64 {
        if is_exact && let Some(cost) = context.cost {
            self.blocks_max = self.tally.blocks(cost, context.inodes, context.guard);
        }
        self.blocks_max
    }

    /// The groups of inodes: their numbers and places.
    pub fn groups(&self) -> impl Iterator<Item = (u64, &[u32; NEIGHBOURS as usize])> {
        self.groups
            .iter()
            .map(|group| (group.number, &group.places))
    }

    /// The deltas of inodes, by place. Those at places that no group names are empty.
    pub fn inode_deltas(&mut self) -> impl Iterator<Item = &mut InodeDelta> {
        self.inodes.iter_mut().map(|counted| &mut counted.delta)
    }

    /// What becomes of names, in the order of their first records, about.
    pub fn names(&mut self) -> impl Iterator<Item = &mut NameDelta> {
        self.names.iter_mut().flatten()
    }
}

/// Has what was reserved for a group begin at the record that it goes by: the one that gives an
/// inode a name, or the first. Where there are two, it goes by none.
fn take_place(reserved: &mut Reserved, records: &[Record]) {
    let gives = |record: &Record| matches!(record, Record::Entry { names: Some(_), .. });
    let group = reserved.records.clone();
    let mut giving = group.filter(|index| gives(&records[*index]));
    match (giving.next(), giving.next()) {
        (None, _) => {}
        (Some(one), None) => reserved.records.start = one,
        (Some(_), Some(_)) => reserved.blocks = 0,
    }
}

impl InodeDelta {
    /// Takes it out, and leaves an empty one.
    pub fn take(&mut self) -> InodeDelta {
        let emptied = InodeDelta::new(self.ino);
        std::mem::replace(self, emptied)
    }

    /// The blocks that were mapped.
    pub fn mapped(&self) -> impl Iterator<Item = BlockRun> {
        self.map.iter().filter_map(|delta| match delta.change {
            MapChange::Map(extent) => Some(BlockRun {
                start: extent.physical,
                length: extent.length,
            }),
            _ => None,
        })
    }
}

/// The group of an inode, and its place there: the first inode is number 1.
fn neighbours(ino: Ino) -> (u64, usize) {
    let index = ino.0.wrapping_sub(1);
    (index / NEIGHBOURS, (index % NEIGHBOURS) as usize)
}

fn hash(number: u64) -> u64 {
    let mut hasher = NumberHasher::default();
    hasher.write_u64(number);
    hasher.finish()
}
