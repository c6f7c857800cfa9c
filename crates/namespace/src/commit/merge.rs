//! From what the shards' logs came to, to one batch.
//!
//! Most objects are in one shard, and go into the batch as they are. Deltas of one object from
//! several shards are put in the order of their sequence numbers. What cancels out only then leaves
//! what was allocated for it to be given back.
//!
//! # Threads
//! Objects are merged apart from each other, so threads share a large batch: inodes in pieces of
//! adjacent numbers, names by their directory. One thread sorts the groups of inodes, deals deltas
//! out, and puts together what the others made of them.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry as MapEntry;
use std::hash::Hasher;

use crossbeam_epoch::Guard;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::base::number_map::{NumberHasher, NumberMap, NumberSet};
use crate::base::parallel::{self, CommitThreads};
use crate::base::store::{Batch, BlockRun, DirectoryChange, InlineChange, InodeChange, LinkState};
use crate::base::types::{FileKind, Ino};
use crate::commit::delta::{InodeDelta, NameDelta, NameOutcome, Rare, join, merge_newest};
use crate::commit::folded::Folded;
use crate::inode::Core;
use crate::inode::inode_table::InodeTable;

/// Inodes that a thread takes at a time, at most and at least.
const PIECE_INODES_MAX: usize = 256;
const PIECE_INODES_MIN: usize = 8;

/// So many times as many pieces are made as there are threads, that all end together.
const PIECES_PER_THREAD: usize = 8;

/// A batch, and the inodes that are gone for good with it.
pub(super) struct Merged {
    pub batch: Batch,
    pub freed: Vec<Ino>,
}

/// Merges what the shards have. Every inode that they name is in the table: a dirty inode is not
/// evicted, and a freed one stays until its commit. The parts are of no use afterwards.
pub(super) fn merge(parts: &mut [Folded], inodes: &InodeTable, threads: CommitThreads) -> Merged {
    let objects = parts.iter().map(|part| part.objects()).sum();
    let sharing = threads.for_items(objects);
    let mut batch = Batch {
        reserved_blocks: parts.iter().map(|part| part.reserved_blocks).sum(),
        threads,
        ..Batch::default()
    };
    let (mut freed, mut freed_directories) = (Vec::new(), NumberSet::default());
    let mut parents = Vec::new();
    for piece in merge_inodes(parts, inodes, sharing) {
        batch.inodes.extend(piece.changes);
        batch.unused_inodes.extend(piece.unused_inodes);
        batch.unused_blocks.extend(piece.unused_blocks);
        freed.extend(piece.freed);
        freed_directories.extend(piece.freed_directories);
        parents.extend(piece.parents);
    }
    let mut directories = merge_names(parts, sharing);
    for (dir, parent) in parents {
        directories.get(dir).parent = Some(parent);
    }
    batch.directories = directories.changes;
    let is_live = |change: &DirectoryChange| !freed_directories.contains(&change.dir);
    batch.directories.retain(is_live);
    batch.directories.sort_unstable_by_key(|change| change.dir);
    Merged { batch, freed }
}

/// What a piece of the inodes came to.
#[derive(Default)]
struct Inodes {
    #[expect(clippy::vec_box, reason = "the batch has them so")]
    changes: Vec<Box<InodeChange>>,
    unused_inodes: Vec<(Ino, FileKind)>,
    unused_blocks: Vec<BlockRun>,
    freed: Vec<Ino>,
    freed_directories: Vec<Ino>,
    /// Directories that have another parent now.
    parents: Vec<(Ino, Ino)>,
}

/// Merges the inodes, in ascending order of number.
fn merge_inodes(parts: &mut [Folded], inodes: &InodeTable, threads: usize) -> Vec<Inodes> {
    let objects: usize = parts.iter().map(|part| part.objects()).sum();
    let piece_inodes = match threads {
        1 => usize::MAX,
        _ => (objects / threads / PIECES_PER_THREAD).clamp(PIECE_INODES_MIN, PIECE_INODES_MAX),
    };
    let pieces = deal_inodes(parts, piece_inodes);
    let numbered: Vec<_> = pieces.into_iter().enumerate().collect();
    let mut merged = parallel::share(threads, numbered, |numbered| {
        let guard = &crossbeam_epoch::pin();
        let merge = |(number, mut deltas): (usize, Vec<&mut InodeDelta>)| {
            let mut merged = Inodes::default();
            merged.changes.reserve(deltas.len());
            for of_one in deltas.chunk_by_mut(|one, next| one.ino == next.ino) {
                merged.take_in(one_of(of_one), inodes, guard);
            }
            (number, merged)
        };
        numbered.map(merge).collect::<Vec<_>>()
    });
    let mut merged: Vec<_> = merged.iter_mut().flat_map(std::mem::take).collect();
    merged.sort_unstable_by_key(|(number, _)| *number);
    merged.into_iter().map(|(_, piece)| piece).collect()
}

/// The deltas of inodes in ascending order of number, in pieces of about so many; all deltas of one
/// are in the same.
fn deal_inodes(parts: &mut [Folded], piece_inodes: usize) -> Vec<Vec<&mut InodeDelta>> {
    let numbered = parts.iter().zip(0..);
    let mut groups: Vec<_> = numbered
        .flat_map(|(part, index): (_, usize)| {
            let groups = part.groups();
            groups.map(move |(number, places)| (number, index, *places))
        })
        .collect();
    groups.sort_unstable_by_key(|(number, index, _)| (*number, *index));
    let mut deltas: Vec<Vec<Option<&mut InodeDelta>>> = parts
        .iter_mut()
        .map(|part| part.inode_deltas().map(Some).collect())
        .collect();
    let mut pieces = Vec::new();
    let mut piece = Vec::new();
    for of_number in groups.chunk_by(|one, next| one.0 == next.0) {
        for within in 0..of_number[0].2.len() {
            for (_, index, places) in of_number {
                let place = places[within] as usize;
                piece.extend(deltas[*index].get_mut(place).and_then(Option::take));
            }
        }
        if piece.len() >= piece_inodes {
            pieces.push(std::mem::take(&mut piece));
        }
    }
    pieces.push(piece);
    pieces
}

impl Inodes {
    fn take_in(&mut self, mut delta: InodeDelta, inodes: &InodeTable, guard: &Guard) {
        let inode = inodes.get(delta.ino, guard);
        let Some(core) = inode.and_then(|inode| inode.loaded()) else {
            log::error!("inode {} has log records but is not in memory", delta.ino);
            return;
        };
        if delta.freed_at().is_some() {
            // Whoever removed its last name is done with that, before the number can be given out
            // again: see the head of `commit`.
            drop(core.lock());
            self.freed.push(delta.ino);
            if core.kind == FileKind::Directory {
                self.freed_directories.push(delta.ino);
            }
            if delta.is_created {
                self.unused_blocks.extend(delta.mapped());
                self.unused_inodes.push((delta.ino, core.kind));
                return;
            }
        }
        let rare = delta.take_rare().map_or_else(Rare::default, |rare| *rare);
        if let Some((_, parent)) = rare.parent {
            self.parents.push((delta.ino, parent));
        }
        self.changes.push(Box::new(change(core, delta, rare)));
    }
}

/// Changes of directories, by number.
#[derive(Default)]
struct Directories {
    changes: Vec<DirectoryChange>,
    places: NumberMap<Ino, usize>,
    /// The place of the last one: names come in runs of one directory.
    last: usize,
}

impl Directories {
    fn get(&mut self, dir: Ino) -> &mut DirectoryChange {
        if self
            .changes
            .get(self.last)
            .is_none_or(|last| last.dir != dir)
        {
            self.last = match self.places.entry(dir) {
                MapEntry::Occupied(place) => *place.get(),
                MapEntry::Vacant(vacant) => {
                    self.changes.push(DirectoryChange {
                        dir,
                        parent: None,
                        entries: Vec::new(),
                    });
                    *vacant.insert(self.changes.len() - 1)
                }
            };
        }
        &mut self.changes[self.last]
    }

    /// Takes in directories that are not here.
    fn add(&mut self, others: Directories) {
        for change in others.changes {
            self.places.insert(change.dir, self.changes.len());
            self.changes.push(change);
        }
    }

    fn take_in(&mut self, delta: &mut NameDelta) {
        if delta.outcome() != NameOutcome::CameAndWent {
            let name = std::mem::take(&mut delta.key.name).into_boxed_slice();
            let change = self.get(delta.key.dir);
            change.entries.push((name, delta.names()));
        }
    }
}

/// Merges the names.
fn merge_names(parts: &mut [Folded], threads: usize) -> Directories {
    if let [part] = parts
        && threads == 1
    {
        let mut directories = Directories::default();
        part.names().for_each(|name| directories.take_in(name));
        return directories;
    }
    let is_whole = parts.len() == 1;
    let sets = if threads == 1 {
        1
    } else {
        threads * PIECES_PER_THREAD
    };
    let mut of_directories: Vec<Vec<&mut NameDelta>> = (0..sets).map(|_| Vec::new()).collect();
    for name in parts.iter_mut().flat_map(Folded::names) {
        of_directories[set_of(name.key.dir, sets)].push(name);
    }
    let shares = parallel::share(threads, of_directories, |sets| {
        let mut directories = Directories::default();
        for names in sets {
            let names = if is_whole { names } else { put_together(names) };
            names.into_iter().for_each(|name| directories.take_in(name));
        }
        directories
    });
    let mut shares = shares.into_iter();
    let mut all = shares.next().unwrap_or_default();
    shares.for_each(|share| all.add(share));
    all
}

/// Which of so many sets of directories this one is in.
fn set_of(dir: Ino, sets: usize) -> usize {
    let mut hasher = NumberHasher::default();
    hasher.write_u64(dir.0);
    (hasher.finish() % sets as u64) as usize
}

/// Merges the deltas of each name.
fn put_together(all: Vec<&mut NameDelta>) -> Vec<&mut NameDelta> {
    let mut names: Vec<&mut NameDelta> = Vec::with_capacity(all.len());
    let mut places: HashTable<usize> = HashTable::with_capacity(all.len());
    for name in all {
        let entry = places.entry(
            name.key.hash,
            |place| names[*place].key == name.key,
            |place| names[*place].key.hash,
        );
        match entry {
            Entry::Occupied(place) => names[*place.get()].merge(name),
            Entry::Vacant(vacant) => {
                vacant.insert(names.len());
                names.push(name);
            }
        }
    }
    names
}

/// Merges the deltas of one inode, of which there is one at least.
fn one_of(deltas: &mut [&mut InodeDelta]) -> InodeDelta {
    let mut deltas = deltas.iter_mut().map(|delta| delta.take());
    let mut one = deltas.next().unwrap_or_else(|| InodeDelta::new(Ino(0)));
    let mut is_merged = false;
    for mut other in deltas {
        is_merged = true;
        one.is_created |= other.is_created;
        merge_newest(&mut one.owned, other.owned);
        merge_newest(&mut one.size_bytes, other.size_bytes);
        merge_newest(&mut one.linked, other.linked);
        one.map.extend(std::mem::take(&mut other.map));
        if let Some(rare) = other.take_rare() {
            one.rare_mut().merge(*rare);
        }
    }
    if is_merged {
        one.map.sort_by_key(|delta| delta.first);
    }
    one
}

/// What a batch says of an inode; its committed attributes follow.
fn change(core: &Core, delta: InodeDelta, rare: Rare) -> InodeChange {
    let mut committed = core.committed();
    let mut attributes = *committed;
    if let Some((_, to)) = delta.owned {
        attributes.permissions = to.permissions;
        attributes.uid = to.uid;
        attributes.gid = to.gid;
        attributes.flags = to.flags;
        attributes.project = to.project;
    }
    if let Some((_, size_bytes)) = delta.size_bytes {
        attributes.size_bytes = size_bytes;
    }
    // What was an orphan stays one unless a record says otherwise.
    let mut link_state = match attributes.link_count {
        0 => LinkState::Orphan,
        _ => LinkState::Linked,
    };
    if let Some((_, (link_count, to))) = delta.linked {
        attributes.link_count = link_count;
        link_state = to;
    }
    attributes.times = core.times();
    *committed = attributes;
    drop(committed);
    let mut map = Vec::with_capacity(delta.map.len());
    for delta in delta.map {
        if !map.last_mut().is_some_and(|last| join(last, delta.change)) {
            map.push(delta.change);
        }
    }
    // The newest value of each.
    let xattrs = rare.xattrs.into_iter();
    let xattrs: BTreeMap<_, _> = xattrs.map(|delta| (delta.name, delta.value)).collect();
    InodeChange {
        ino: delta.ino,
        is_created: delta.is_created,
        link_state,
        attributes,
        link_delta: rare.link_delta,
        symlink: rare.symlink,
        map,
        xattrs: xattrs.into_iter().collect(),
        inline: rare.inline.map(|(_, content)| match content {
            Some(content) => InlineChange::Content(content),
            None => InlineChange::Moved,
        }),
    }
}
