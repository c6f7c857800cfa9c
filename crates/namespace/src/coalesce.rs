//! From the records of a generation to a batch: one change per object.
//!
//! What cancels out disappears here: an inode that was created and freed costs nothing but the return
//! of what the allocator gave for it, and a name that came and went leaves nothing.

use std::collections::{BTreeMap, HashMap};

use crossbeam_epoch::Guard;

use crate::extent_map::ExtentMap;
use crate::inode::Core;
use crate::inode_table::InodeTable;
use crate::oplog::{Generation, Record};
use crate::store::{Batch, BlockRun, DirectoryChange, Fate, InodeChange, MapChange};
use crate::types::{FileKind, Ino, NameBytes};

/// A batch, and the inodes that are gone for good with it.
pub(crate) struct Coalesced {
    pub batch: Batch,
    pub freed: Vec<Ino>,
}

type Names = HashMap<NameBytes, NameChange>;

struct NameChange {
    /// The version of the oldest record, and whether the name was there before it.
    oldest: (u64, bool),
    /// The version of the newest record, and what it names.
    newest: (u64, Option<(Ino, FileKind)>),
}

#[derive(Default)]
struct DirectoryRecords {
    names: Names,
    parent: Option<(u64, Ino)>,
}

/// Builds the batch of a generation. Every inode that the records name is in the table: a dirty
/// inode is not evicted, and a freed one stays until its commit.
///
/// `store_maps` says whether the store keeps the mappings itself.
pub(crate) fn coalesce(
    generation: Generation,
    inodes: &InodeTable,
    store_maps: bool,
    guard: &Guard,
) -> Coalesced {
    let mut of_inode: BTreeMap<Ino, Vec<Record>> = BTreeMap::new();
    let mut of_directory: BTreeMap<Ino, DirectoryRecords> = BTreeMap::new();
    for record in generation.records {
        match record {
            Record::Entry {
                dir,
                version,
                name,
                was_there,
                names,
            } => {
                of_inode.entry(dir).or_default();
                let changes = &mut of_directory.entry(dir).or_default().names;
                let change = changes.entry(name).or_insert(NameChange {
                    oldest: (version, was_there),
                    newest: (version, names),
                });
                if version < change.oldest.0 {
                    change.oldest = (version, was_there);
                }
                if version > change.newest.0 {
                    change.newest = (version, names);
                }
            }
            Record::Parent {
                dir,
                sequence,
                parent,
            } => {
                of_inode.entry(dir).or_default();
                let known = &mut of_directory.entry(dir).or_default().parent;
                if known.is_none_or(|(newest, _)| newest < sequence) {
                    *known = Some((sequence, parent));
                }
            }
            other => of_inode.entry(other.ino()).or_default().push(other),
        }
    }

    let mut batch = Batch {
        reserved_blocks: generation.reserved_blocks,
        ..Batch::default()
    };
    let mut freed = Vec::new();
    for (ino, records) in of_inode {
        let Some(core) = inodes.get(ino, guard).and_then(|inode| inode.loaded()) else {
            log::error!("inode {ino} has log records but is not in memory");
            continue;
        };
        let mut unmapped = Vec::new();
        let change = fold(core, records, &mut unmapped);
        let is_unused = change.fate == Fate::Freed && change.is_created;
        if !store_maps && !is_unused {
            batch.unmapped_blocks.append(&mut unmapped);
            if change.fate == Fate::Freed
                && let Some(map) = core.extents_loaded()
            {
                batch
                    .unmapped_blocks
                    .extend(map.runs(0, ExtentMap::blocks_max(), guard));
            }
        }
        if change.fate == Fate::Freed {
            freed.push(ino);
            of_directory.remove(&ino);
            if change.is_created {
                batch.unused_inodes.push((ino, change.attributes.kind));
                batch
                    .unused_blocks
                    .extend(change.map.iter().filter_map(|change| match change {
                        MapChange::Map(extent) => Some(BlockRun {
                            start: extent.physical,
                            length: extent.length,
                        }),
                        _ => None,
                    }));
                continue;
            }
        }
        batch.inodes.push(change);
    }
    for (dir, records) in of_directory {
        let entries: Vec<_> = records
            .names
            .into_iter()
            .filter(|(_, change)| change.oldest.1 || change.newest.1.is_some())
            .map(|(name, change)| (name.into_boxed_slice(), change.newest.1))
            .collect();
        let parent = records.parent.map(|(_, parent)| parent);
        if parent.is_some() || !entries.is_empty() {
            batch.directories.push(DirectoryChange {
                dir,
                parent,
                entries,
            });
        }
    }
    Coalesced { batch, freed }
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

/// One inode's records as one change; its committed attributes follow.
fn fold(core: &Core, mut records: Vec<Record>, unmapped: &mut Vec<BlockRun>) -> InodeChange {
    records.sort_by_key(Record::sequence);
    let mut committed = core.committed.lock();
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
            Record::Mapped {
                change: mapped,
                freed,
                ..
            } => {
                push_map(&mut change.map, mapped);
                unmapped.extend(freed);
            }
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
            Some(MapChange::Convert { logical, length }),
            MapChange::Convert {
                logical: next,
                length: more,
            },
        ) if *logical + *length == next => *length += more,
        _ => map.push(next),
    }
}
