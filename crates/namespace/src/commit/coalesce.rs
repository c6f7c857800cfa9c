//! From the records of generations to a batch: one change per object.
//!
//! What cancels out disappears here: an inode that was created and freed costs nothing but the
//! return of what the allocator gave for it, and a name that came and went leaves nothing.
//!
//! # Protocol
//! A generation's records are folded into a [`Transaction`], which is what all generations since
//! the last commit come to; so the longer nobody asks for a commit, the more cancels out. A commit
//! makes a batch of it.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crossbeam_epoch::Guard;
use indexmap::IndexMap;

use crate::base::number_map::{NumberMap, NumberSet};
use crate::base::store::{
    Batch, BatchCost, BlockRun, DirectoryChange, Fate, InodeChange, MapChange,
};
use crate::base::types::{FileKind, Ino, NameBytes};
use crate::commit::batch_size::{Tally, table_block};
use crate::commit::oplog::{FreedSpace, Generation, Record};
use crate::inode::Core;
use crate::inode::inode_table::InodeTable;

/// All that generations that follow each other come to.
#[derive(Default)]
pub(crate) struct Transaction {
    /// The newest of them; 0 when there is none.
    pub number: u64,
    /// Records of all of them.
    pub records: usize,
    /// No commit of it changes more blocks; see `batch_size`.
    pub blocks_max: u64,
    pub(crate) tally: Tally,
    /// By the block of the inode table that they are in.
    pub(crate) inodes: NumberMap<u64, Neighbours>,
    names: Names,
    /// Directory, place among its records, parent.
    parents: Vec<(Ino, u64, Ino)>,
    /// Inodes that are gone for good, and the directories among them.
    freed: Vec<Ino>,
    pub(crate) freed_directories: NumberSet<Ino>,
    unused_inodes: Vec<(Ino, FileKind)>,
    unused_blocks: Vec<BlockRun>,
    reserved_blocks: u64,
    /// What the store has to give out again after the commit.
    pub freed_space: FreedSpace,
}

/// Changes of inodes that share a block, of which there are few.
pub(crate) type Neighbours = Vec<(Ino, Box<InodeChange>)>;

/// Where a record is: which part of its generation, and where in it.
type Index = (u32, u32);

/// What becomes of names.
type Names = IndexMap<NameKey, NameChange, BuildHasherDefault<HashAsGiven>>;

/// A batch, and the inodes that are gone for good with it.
pub(crate) struct Coalesced {
    pub batch: Batch,
    pub freed: Vec<Ino>,
}

#[derive(PartialEq, Eq)]
pub(crate) struct NameKey {
    pub dir: Ino,
    pub hash: u64,
    pub name: NameBytes,
}

impl Hash for NameKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Keyed by its directory: no two directories hash alike.
        state.write_u64(self.hash);
    }
}

/// Takes the one word that it is given for the hash.
#[derive(Default)]
pub(crate) struct HashAsGiven(u64);

impl Hasher for HashAsGiven {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a key gives one word")
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

struct NameChange {
    /// The version of the oldest record, and whether the name was there before it.
    oldest: (u64, bool),
    /// The version of the newest record, and what it names.
    newest: (u64, Option<(Ino, FileKind)>),
}

/// What becomes of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NameFate {
    /// It was not there, and is not.
    CameAndWent,
    /// It was not there.
    New,
    /// It was there.
    Changed,
}

/// Fewer names that came and went than this are kept.
const CAME_AND_WENT_MAX: usize = 1 << 10;

impl NameChange {
    /// What one record says.
    fn new(version: u64, was_there: bool, names: Option<(Ino, FileKind)>) -> NameChange {
        NameChange {
            oldest: (version, was_there),
            newest: (version, names),
        }
    }

    /// What all records together come to.
    fn what(&self) -> NameFate {
        match (self.oldest.1, self.newest.1) {
            (true, _) => NameFate::Changed,
            (false, Some(_)) => NameFate::New,
            (false, None) => NameFate::CameAndWent,
        }
    }
}

impl Transaction {
    /// Nothing was taken in.
    pub fn is_empty(&self) -> bool {
        self.number == 0
    }

    /// Takes the next generation in. Every inode that the records name is in the table: a dirty
    /// inode is not evicted, and a freed one stays until its commit. Gives the blocks of the files
    /// that turn out to have come and gone.
    pub fn take_in(
        &mut self,
        generation: &mut Generation,
        cost: Option<&dyn BatchCost>,
        inodes: &InodeTable,
        guard: &Guard,
    ) -> &[BlockRun] {
        let unused_before = self.unused_blocks.len();
        let length = generation.length();
        self.number = generation.number;
        self.records += length;
        self.blocks_max += length as u64;
        self.reserved_blocks += generation.reserved_blocks;
        self.freed_space.add(generation.freed);
        let records = &mut generation.parts;
        let order = self.sort(records);
        for of_inode in order.chunk_by(|one, next| one.0 == next.0) {
            let ino = of_inode[0].0;
            let inode = inodes.get(ino, guard);
            let Some(core) = inode.and_then(|inode| inode.loaded()) else {
                log::error!("inode {ino} has log records but is not in memory");
                continue;
            };
            let (mut is_created, mut is_freed) = (false, false);
            for (.., (part, index)) in of_inode {
                match &records[*part as usize][*index as usize] {
                    Record::Created { .. } => is_created = true,
                    Record::Linked { fate, .. } => is_freed |= *fate == Fate::Freed,
                    _ => {}
                }
            }
            let of_inode = of_inode.iter().map(|(.., index)| take(records, *index));
            if is_freed {
                // Whoever removed its last name is done with that, before the number can be given
                // out again: see the head of `commit`.
                drop(core.lock());
                self.freed.push(ino);
                if core.kind == FileKind::Directory {
                    self.freed_directories.insert(ino);
                }
                self.free(core, is_created, of_inode, cost);
            } else {
                self.change(ino, fold(core, of_inode), cost);
            }
        }
        records.iter_mut().for_each(Vec::clear);
        self.forget_names();
        &self.unused_blocks[unused_before..]
    }

    /// An inode changes.
    pub(crate) fn change(&mut self, ino: Ino, next: InodeChange, cost: Option<&dyn BatchCost>) {
        let neighbours = self.inodes.entry(table_block(ino, cost)).or_default();
        match neighbours.iter_mut().find(|(at, _)| *at == ino) {
            Some((_, change)) => {
                self.tally.take_out(change, cost);
                then(change, next);
                self.tally.put_in(change, cost);
            }
            None => {
                self.tally.put_in(&next, cost);
                neighbours.push((ino, Box::new(next)));
            }
        }
    }

    /// An inode is freed. One that was created and freed leaves nothing: what was allocated for it
    /// is not used.
    fn free(
        &mut self,
        core: &Core,
        is_created: bool,
        records: impl Iterator<Item = Record>,
        cost: Option<&dyn BatchCost>,
    ) {
        let before = self.take_change(core.ino, cost);
        if !is_created && before.as_ref().is_none_or(|before| !before.is_created) {
            let next = fold(core, records);
            let now = match before {
                Some(mut before) => {
                    then(&mut before, next);
                    *before
                }
                None => next,
            };
            self.change(core.ino, now, cost);
            return;
        }
        let mapped_before = before.into_iter().flat_map(|before| before.map);
        let mapped = records.filter_map(|record| match record {
            Record::Mapped { change, .. } => Some(change),
            _ => None,
        });
        let unused = mapped_before
            .chain(mapped)
            .filter_map(|change| match change {
                MapChange::Map(extent) => Some(BlockRun {
                    start: extent.physical,
                    length: extent.length,
                }),
                _ => None,
            });
        self.unused_blocks.extend(unused);
        self.unused_inodes.push((core.ino, core.kind));
    }

    /// Takes out what is there of an inode.
    pub(crate) fn take_change(
        &mut self,
        ino: Ino,
        cost: Option<&dyn BatchCost>,
    ) -> Option<Box<InodeChange>> {
        let Entry::Occupied(mut neighbours) = self.inodes.entry(table_block(ino, cost)) else {
            return None;
        };
        let of_block = neighbours.get_mut();
        let place = of_block.iter().position(|(at, _)| *at == ino)?;
        let (_, change) = of_block.swap_remove(place);
        if of_block.is_empty() {
            neighbours.remove();
        }
        self.tally.take_out(&change, cost);
        Some(change)
    }

    /// Takes in what a record says of a name.
    pub(crate) fn note_name(
        &mut self,
        key: NameKey,
        version: u64,
        was_there: bool,
        names: Option<(Ino, FileKind)>,
    ) {
        let (dir, length) = (key.dir, key.name.len());
        let fresh = || {
            self.tally.came_and_went += 1;
            NameChange::new(version, false, None)
        };
        let change = self.names.entry(key).or_insert_with(fresh);
        let before = change.what();
        if version <= change.oldest.0 {
            change.oldest = (version, was_there);
        }
        if version >= change.newest.0 {
            change.newest = (version, names);
        }
        let now = change.what();
        if before != now {
            self.tally.name(dir, length, before, now);
        }
    }

    /// Forgets names that came and went, once they are many. Not before the end of a generation:
    /// the records of one come in any order, and between those that are in there may be one to
    /// come. Later generations bring nothing that was before.
    fn forget_names(&mut self) {
        if self.tally.came_and_went > CAME_AND_WENT_MAX.max(self.names.len() / 2) {
            self.names
                .retain(|_, change| change.what() != NameFate::CameAndWent);
            self.tally.came_and_went = 0;
        }
    }

    /// Takes names and parents out of the records; gives for the rest the order in which they
    /// count: inode, place among its records, index.
    fn sort(&mut self, parts: &mut [Vec<Record>]) -> Vec<(Ino, u64, Index)> {
        let mut order = Vec::with_capacity(parts.iter().map(Vec::len).sum());
        let mut last_dir = None;
        let records = parts.iter_mut().zip(0..).flat_map(|(records, part)| {
            let of_part = records.iter_mut().zip(0..);
            of_part.map(move |(record, index)| (record, (part, index)))
        });
        for (record, index) in records {
            match record {
                Record::Entry {
                    dir,
                    version,
                    hash,
                    name,
                    was_there,
                    names,
                } => {
                    let key = NameKey {
                        dir: *dir,
                        hash: *hash,
                        name: std::mem::take(name),
                    };
                    self.note_name(key, *version, *was_there, *names);
                    // The directory is an inode with new times; to say so once in a row is enough.
                    if last_dir.replace(*dir) == Some(*dir) {
                        continue;
                    }
                }
                Record::Parent {
                    dir,
                    sequence,
                    parent,
                } => self.parents.push((*dir, *sequence, *parent)),
                _ => {}
            }
            order.push((record.ino(), record.sequence(), index));
        }
        // Of a shard they are mostly in order.
        order.sort();
        order
    }

    /// The batch that it makes.
    pub fn into_batch(mut self) -> Coalesced {
        let mut directories = self.take_directories();
        for dir in &self.freed_directories {
            directories.remove(dir);
        }
        let mut inodes: Vec<(u64, Neighbours)> = self.inodes.into_iter().collect();
        inodes.sort_unstable_by_key(|(block, _)| *block);
        let inodes = inodes.into_iter().flat_map(|(_, mut neighbours)| {
            neighbours.sort_unstable_by_key(|(ino, _)| *ino);
            neighbours.into_iter().map(|(_, change)| change)
        });
        let batch = Batch {
            reserved_blocks: self.reserved_blocks,
            inodes: inodes.collect(),
            directories: directories.into_values().collect(),
            unused_inodes: self.unused_inodes,
            unused_blocks: self.unused_blocks,
        };
        Coalesced {
            batch,
            freed: self.freed,
        }
    }

    /// The changes of all directories, those that come to nothing left out.
    fn take_directories(&mut self) -> BTreeMap<Ino, DirectoryChange> {
        let mut directories: BTreeMap<Ino, DirectoryChange> = BTreeMap::new();
        for (key, change) in self.names.drain(..) {
            if change.what() != NameFate::CameAndWent {
                let entry = (key.name.into_boxed_slice(), change.newest.1);
                of_directory(&mut directories, key.dir).entries.push(entry);
            }
        }
        // In order: the newest comes last.
        self.parents.sort_unstable();
        for (dir, _, parent) in &self.parents {
            of_directory(&mut directories, *dir).parent = Some(*parent);
        }
        directories
    }
}

/// Makes two changes of one inode one.
fn then(change: &mut InodeChange, next: InodeChange) {
    change.fate = next.fate;
    change.attributes = next.attributes;
    change.link_delta += next.link_delta;
    for mapped in next.map {
        push_map(&mut change.map, mapped);
    }
    if !next.xattrs.is_empty() {
        let before = std::mem::take(&mut change.xattrs);
        let xattrs: BTreeMap<_, _> = before.into_iter().chain(next.xattrs).collect();
        change.xattrs = xattrs.into_iter().collect();
    }
}

/// Takes a record out; what stays in its place says nothing.
fn take(parts: &mut [Vec<Record>], (part, index): Index) -> Record {
    let record = &mut parts[part as usize][index as usize];
    let nothing = Record::Touched { ino: record.ino() };
    std::mem::replace(record, nothing)
}

fn of_directory(
    directories: &mut BTreeMap<Ino, DirectoryChange>,
    dir: Ino,
) -> &mut DirectoryChange {
    directories.entry(dir).or_insert_with(|| DirectoryChange {
        dir,
        parent: None,
        entries: Vec::new(),
    })
}

impl Record {
    fn ino(&self) -> Ino {
        match self {
            Record::Created { ino, .. }
            | Record::Owned { ino, .. }
            | Record::Sized { ino, .. }
            | Record::Linked { ino, .. }
            | Record::LinkDelta { ino, .. }
            | Record::Mapped { ino, .. }
            | Record::Xattr { ino, .. }
            | Record::Touched { ino } => *ino,
            Record::Entry { dir, .. } | Record::Parent { dir, .. } => *dir,
        }
    }

    /// The place of the record among those of its inode; the creation is first.
    fn sequence(&self) -> u64 {
        match self {
            Record::Owned { sequence, .. }
            | Record::Sized { sequence, .. }
            | Record::Linked { sequence, .. }
            | Record::Mapped { sequence, .. }
            | Record::Xattr { sequence, .. }
            | Record::Parent { sequence, .. } => *sequence + 1,
            Record::Entry { version, .. } => *version,
            Record::Created { .. } | Record::LinkDelta { .. } | Record::Touched { .. } => 0,
        }
    }
}

/// One inode's records, in order, as one change; its committed attributes follow.
fn fold(core: &Core, records: impl Iterator<Item = Record>) -> InodeChange {
    let mut committed = core.committed();
    let mut change = InodeChange {
        ino: core.ino,
        is_created: false,
        // What was an orphan stays one unless a record says otherwise.
        fate: if committed.link_count == 0 {
            Fate::Orphan
        } else {
            Fate::Linked
        },
        attributes: *committed,
        link_delta: 0,
        symlink: None,
        map: Vec::new(),
        xattrs: Vec::new(),
    };
    let mut xattrs: BTreeMap<Box<[u8]>, Option<Box<[u8]>>> = BTreeMap::new();
    for record in records {
        match record {
            Record::Created { symlink, .. } => {
                change.is_created = true;
                change.symlink = symlink;
            }
            Record::Owned { to, .. } => {
                change.attributes.permissions = to.permissions;
                change.attributes.uid = to.uid;
                change.attributes.gid = to.gid;
                change.attributes.flags = to.flags;
            }
            Record::Sized { size_bytes, .. } => change.attributes.size_bytes = size_bytes,
            Record::Linked {
                link_count, fate, ..
            } => {
                change.attributes.link_count = link_count;
                change.fate = fate;
            }
            Record::LinkDelta { delta, .. } => change.link_delta += delta,
            Record::Mapped { change: mapped, .. } => push_map(&mut change.map, mapped),
            Record::Xattr { name, value, .. } => {
                xattrs.insert(name, value);
            }
            Record::Touched { .. } | Record::Entry { .. } | Record::Parent { .. } => {}
        }
    }
    change.xattrs = xattrs.into_iter().collect();
    change.attributes.times = core.times();
    *committed = change.attributes;
    change
}

/// Adds a change of the mapping, joined with the one before where it goes on from it.
fn push_map(map: &mut Vec<MapChange>, next: MapChange) {
    match (map.last_mut(), next) {
        (Some(MapChange::Map(last)), MapChange::Map(next))
            if last.end() == next.logical
                && last.physical.0 + last.length == next.physical.0
                && last.state == next.state =>
        {
            last.length += next.length;
        }
        (
            Some(MapChange::Convert {
                logical,
                length,
                to,
            }),
            MapChange::Convert {
                logical: next,
                length: more,
                to: next_to,
            },
        ) if *logical + *length == next && *to == next_to => *length += more,
        _ => map.push(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(version: u64, name: &[u8], was_there: bool, names: Option<u64>) -> Record {
        Record::Entry {
            dir: Ino(2),
            version,
            hash: 7,
            name: NameBytes::from_slice(name),
            was_there,
            names: names.map(|ino| (Ino(ino), FileKind::Regular)),
        }
    }

    /// The names of directory 2 after these records, and whether the directory is an inode to
    /// change.
    fn coalesced(records: Vec<Record>) -> (BTreeMap<Vec<u8>, Option<u64>>, bool) {
        let mut transaction = Transaction::default();
        let order = transaction.sort(&mut [records]);
        let changes = transaction.take_directories().remove(&Ino(2));
        let entries = changes.map(|change| change.entries).unwrap_or_default();
        let names = entries
            .into_iter()
            .map(|(name, names)| (name.into_vec(), names.map(|(ino, _)| ino.0)))
            .collect();
        (names, order.iter().any(|place| place.0 == Ino(2)))
    }

    #[test]
    fn names_of_one_hash_stay_apart() {
        let (names, _) = coalesced(vec![
            entry(1, b"one", false, Some(10)),
            entry(2, b"other", true, None),
        ]);
        let expected = [(b"one".to_vec(), Some(10)), (b"other".to_vec(), None)];
        assert_eq!(names, BTreeMap::from(expected));
    }

    #[test]
    fn a_name_that_came_and_went_leaves_only_times_in_whatever_order_shards_are_read() {
        for (first, second) in [(1, 2), (2, 1)] {
            let mut records = vec![
                entry(1, b"short", false, Some(10)),
                entry(2, b"short", true, None),
            ];
            records.sort_by_key(|record| {
                if record.sequence() == 1 {
                    first
                } else {
                    second
                }
            });
            assert_eq!(coalesced(records), (BTreeMap::new(), true));
        }
    }
}
