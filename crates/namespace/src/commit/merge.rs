//! From what the shards' logs came to, to one batch.
//!
//! Most objects are in one shard, and go into the batch as they are. Deltas of one object from
//! several shards are put in the order of their sequence numbers. What cancels out only then leaves
//! what was allocated for it to be given back.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry as MapEntry;

use crossbeam_epoch::Guard;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use smallvec::SmallVec;

use crate::base::number_map::{NumberMap, NumberSet};
use crate::base::store::{Batch, DirectoryChange, InlineChange, InodeChange, LinkState};
use crate::base::types::{FileKind, Ino};
use crate::commit::delta::{InodeDelta, NameDelta, NameOutcome, join, set_newest};
use crate::commit::folded::Folded;
use crate::inode::Core;
use crate::inode::inode_table::InodeTable;

/// A batch, and the inodes that are gone for good with it.
pub(super) struct Merged {
    pub batch: Batch,
    pub freed: Vec<Ino>,
}

/// Merges what the shards have. Every inode that they name is in the table: a dirty inode is not
/// evicted, and a freed one stays until its commit. The parts are of no use afterwards.
pub(super) fn merge(parts: &mut [Folded], inodes: &InodeTable, guard: &Guard) -> Merged {
    let mut merging = Merging {
        inodes,
        guard,
        batch: Batch::default(),
        freed: Vec::new(),
        freed_directories: NumberSet::default(),
        directories: Directories::default(),
    };
    merging.batch.reserved_blocks = parts.iter().map(|part| part.reserved_blocks).sum();
    merging.inodes(parts);
    merging.names(parts);
    let freed_directories = &merging.freed_directories;
    let mut directories = merging.directories.changes;
    directories.retain(|change| !freed_directories.contains(&change.dir));
    directories.sort_unstable_by_key(|change| change.dir);
    Merged {
        batch: Batch {
            directories,
            ..merging.batch
        },
        freed: merging.freed,
    }
}

struct Merging<'a> {
    inodes: &'a InodeTable,
    guard: &'a Guard,
    batch: Batch,
    freed: Vec<Ino>,
    freed_directories: NumberSet<Ino>,
    directories: Directories,
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
}

impl Merging<'_> {
    fn inodes(&mut self, parts: &mut [Folded]) {
        let numbered = parts.iter().zip(0..);
        let mut groups: Vec<_> = numbered
            .flat_map(|(part, index)| {
                let groups = part.groups();
                groups.map(move |(number, places)| (number, index, *places))
            })
            .collect();
        groups.sort_unstable_by_key(|(number, index, _)| (*number, *index));
        for of_number in groups.chunk_by(|one, next| one.0 == next.0) {
            for within in 0..of_number[0].2.len() {
                let mut deltas: SmallVec<[InodeDelta; 1]> = SmallVec::new();
                for (_, index, places) in of_number {
                    let part: &mut Folded = &mut parts[*index];
                    deltas.extend(part.take_inode(places[within]));
                }
                if let Some(delta) = one_of(deltas) {
                    self.inode(delta);
                }
            }
        }
    }

    fn inode(&mut self, delta: InodeDelta) {
        let inode = self.inodes.get(delta.ino, self.guard);
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
                self.freed_directories.insert(delta.ino);
            }
            if delta.is_created {
                self.batch.unused_blocks.extend(delta.mapped());
                self.batch.unused_inodes.push((delta.ino, core.kind));
                return;
            }
        }
        if let Some((_, parent)) = delta.parent {
            self.directories.get(delta.ino).parent = Some(parent);
        }
        self.batch.inodes.push(Box::new(change(core, delta)));
    }

    fn names(&mut self, parts: &mut [Folded]) {
        if let [part] = parts {
            part.names().for_each(|name| self.name(name));
            return;
        }
        let mut names: Vec<&mut NameDelta> = Vec::new();
        let mut places: HashTable<usize> = HashTable::new();
        for name in parts.iter_mut().flat_map(Folded::names) {
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
        names.into_iter().for_each(|name| self.name(name));
    }

    fn name(&mut self, delta: &mut NameDelta) {
        if delta.outcome() != NameOutcome::CameAndWent {
            let name = std::mem::take(&mut delta.key.name).into_boxed_slice();
            let change = self.directories.get(delta.key.dir);
            change.entries.push((name, delta.names()));
        }
    }
}

/// Merges the deltas of one inode.
fn one_of(deltas: SmallVec<[InodeDelta; 1]>) -> Option<InodeDelta> {
    let mut deltas = deltas.into_iter();
    let mut one = deltas.next()?;
    let mut is_merged = false;
    for other in deltas {
        is_merged = true;
        one.is_created |= other.is_created;
        one.symlink = one.symlink.or(other.symlink);
        one.link_delta += other.link_delta;
        merge_newest(&mut one.owned, other.owned);
        merge_newest(&mut one.size_bytes, other.size_bytes);
        merge_newest(&mut one.linked, other.linked);
        merge_newest(&mut one.parent, other.parent);
        merge_newest(&mut one.inline, other.inline);
        one.map.extend(other.map);
        one.xattrs.extend(other.xattrs);
    }
    if is_merged {
        one.map.sort_by_key(|delta| delta.first);
        one.xattrs.sort_by_key(|delta| delta.sequence);
    }
    Some(one)
}

fn merge_newest<T>(one: &mut Option<(u64, T)>, other: Option<(u64, T)>) {
    if let Some((sequence, value)) = other {
        set_newest(one, sequence, value);
    }
}

/// What a batch says of an inode; its committed attributes follow.
fn change(core: &Core, delta: InodeDelta) -> InodeChange {
    let mut committed = core.committed();
    let mut attributes = *committed;
    if let Some((_, to)) = delta.owned {
        attributes.permissions = to.permissions;
        attributes.uid = to.uid;
        attributes.gid = to.gid;
        attributes.flags = to.flags;
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
    let xattrs = delta.xattrs.into_iter();
    let xattrs: BTreeMap<_, _> = xattrs.map(|delta| (delta.name, delta.value)).collect();
    InodeChange {
        ino: delta.ino,
        is_created: delta.is_created,
        link_state,
        attributes,
        link_delta: delta.link_delta,
        symlink: delta.symlink,
        map,
        xattrs: xattrs.into_iter().collect(),
        inline: delta.inline.map(|(_, content)| match content {
            Some(content) => InlineChange::Content(content),
            None => InlineChange::Moved,
        }),
    }
}
