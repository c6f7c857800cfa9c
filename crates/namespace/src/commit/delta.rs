//! What the records of one object come to, as far as one CPU's log has them.
//!
//! A delta is complete in itself: deltas of one object from several CPUs can be merged in any order
//! (`merge`), since each part of it has the sequence number of the record that it is from. So no
//! CPU has to know what the others have logged.
//!
//! Changes of a mapping that follow each other are joined as they come, so that a file that grows
//! has one. That takes records which stand in the log in the order of their numbers: with a number
//! out of turn something might lie between them that another CPU has.

use smallvec::SmallVec;

use crate::base::store::{InodeFootprint, LinkState, MapChange};
use crate::base::types::{FileKind, Ino, LogicalBlock, NameBytes};
use crate::commit::oplog::{FreedSpace, Record};
use crate::inode::Ownership;

/// A value, and the sequence number of the record that set it.
pub(super) type Sequenced<T> = Option<(u64, T)>;

/// What becomes of an inode.
#[derive(Debug)]
pub(super) struct InodeDelta {
    pub ino: Ino,
    pub is_created: bool,
    /// How many records with a sequence number it has.
    sequenced: u64,
    /// The newest of them, and the first of those that precede it without a gap.
    newest: u64,
    run_start: u64,
    pub owned: Sequenced<Ownership>,
    pub size_bytes: Sequenced<u64>,
    pub linked: Sequenced<(u32, LinkState)>,
    /// In the order of the log.
    pub map: SmallVec<[MapDelta; 1]>,
    /// The end of what was mapped anew.
    mapped_end: LogicalBlock,
    mapped_blocks: u64,
    rare: Option<Box<Rare>>,
    /// Names that it got here, if it was made here. One that it got twice is here twice.
    pub names: SmallVec<[GivenName; 1]>,
    /// What was reserved for changes of itself.
    pub reserved_blocks: u64,
    /// What its records free.
    pub freed: FreedSpace,
    /// What it has on the heap, about, of records that came and of the mapping.
    pub heap_bytes: usize,
}

/// A name that an inode got.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenName {
    /// Its place in the table of names.
    pub place: u32,
    /// What was reserved for adding it, and for the inode where it was made with it.
    pub reserved_blocks: u32,
    /// That of its record.
    pub version: u64,
}

/// What few inodes have.
#[derive(Debug, Default)]
pub(super) struct Rare {
    /// Target of a symbolic link that was made.
    pub symlink: Option<Box<[u8]>>,
    pub parent: Sequenced<Ino>,
    pub link_delta: i64,
    pub xattrs: Vec<XattrDelta>,
    /// The lengths of their values together, in bytes.
    value_bytes: u64,
    /// The content in the inode, or that it lies in blocks.
    pub inline: Sequenced<Option<Box<[u8]>>>,
}

/// Changes of a mapping, joined: of the records from `first` to `last` none is elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapDelta {
    pub first: u64,
    last: u64,
    pub change: MapChange,
}

/// An extended attribute that was set, or removed.
#[derive(Debug)]
pub(super) struct XattrDelta {
    pub sequence: u64,
    pub name: Box<[u8]>,
    pub value: Option<Box<[u8]>>,
}

impl InodeDelta {
    /// Nothing but that the inode is touched.
    pub fn new(ino: Ino) -> InodeDelta {
        InodeDelta {
            ino,
            is_created: false,
            sequenced: 0,
            newest: 0,
            run_start: 0,
            owned: None,
            size_bytes: None,
            linked: None,
            map: SmallVec::new(),
            mapped_end: LogicalBlock(0),
            mapped_blocks: 0,
            rare: None,
            names: SmallVec::new(),
            reserved_blocks: 0,
            freed: FreedSpace::default(),
            heap_bytes: 0,
        }
    }

    /// Takes in a record of this inode; one that names an entry only touches it.
    pub fn take_in(&mut self, record: Record) {
        let sequence = record.sequence();
        if sequence != 0 {
            self.sequenced += 1;
            if sequence != self.newest + 1 {
                self.run_start = sequence;
            }
            self.newest = sequence;
        }
        self.heap_bytes += record.heap_bytes();
        match record {
            Record::Created { symlink, .. } => {
                self.is_created = true;
                if symlink.is_some() {
                    self.rare_mut().symlink = symlink;
                }
            }
            Record::Owned { to, .. } => set_newest(&mut self.owned, sequence, to),
            Record::Sized { size_bytes, .. } => {
                set_newest(&mut self.size_bytes, sequence, size_bytes);
            }
            Record::Linked {
                link_count,
                link_state,
                ..
            } => set_newest(&mut self.linked, sequence, (link_count, link_state)),
            Record::LinkDelta { delta, .. } => self.rare_mut().link_delta += delta,
            Record::Mapped { change, .. } => self.map_change(sequence, change),
            Record::Xattr { name, value, .. } => self.rare_mut().set_xattr(XattrDelta {
                sequence,
                name,
                value,
            }),
            Record::Inline { content, .. } => {
                set_newest(&mut self.rare_mut().inline, sequence, content);
            }
            Record::Parent { parent, .. } => {
                set_newest(&mut self.rare_mut().parent, sequence, parent);
            }
            Record::Touched { .. } | Record::Entry { .. } => {}
        }
    }

    /// What few inodes have; made where there was none.
    pub fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Takes it out.
    pub fn take_rare(&mut self) -> Option<Box<Rare>> {
        self.rare.take()
    }

    fn map_change(&mut self, sequence: u64, change: MapChange) {
        if let MapChange::Map(extent) = change {
            self.mapped_end = self.mapped_end.max(extent.end());
            self.mapped_blocks += extent.length;
        }
        // With what lies between them elsewhere they must not be joined.
        if let Some(last) = self.map.last_mut()
            && (self.run_start..sequence).contains(&last.last)
            && join(&mut last.change, change)
        {
            last.last = sequence;
            return;
        }
        self.heap_bytes += size_of::<MapDelta>();
        self.map.push(MapDelta {
            first: sequence,
            last: sequence,
            change,
        });
    }

    /// True when the inode was made and freed, and no other log has a record of it. (Records of a
    /// directory's entries have no sequence numbers of its own.)
    pub fn is_complete(&self, kind: FileKind) -> bool {
        self.is_created && kind != FileKind::Directory && self.freed_at() == Some(self.sequenced)
    }

    /// The sequence number of the record that frees it.
    pub fn freed_at(&self) -> Option<u64> {
        let freed = self
            .linked
            .filter(|(_, (_, link_state))| *link_state == LinkState::Freed);
        freed.map(|(sequence, _)| sequence)
    }

    /// What counts for the blocks that applying it changes.
    pub fn footprint(&self) -> InodeFootprint {
        let rare = self.rare.as_ref();
        InodeFootprint {
            is_created: self.is_created,
            link_state: self
                .linked
                .map_or(LinkState::Linked, |(_, (_, link_state))| link_state),
            size_bytes: self.size_bytes.map(|(_, size_bytes)| size_bytes),
            target_bytes: rare.map_or(0, |rare| rare.target_bytes()),
            has_xattrs: rare.is_some_and(|rare| rare.has_xattrs()),
            value_changes: rare.map_or(0, |rare| rare.xattrs.len() as u64),
            value_bytes: rare.map_or(0, |rare| rare.value_bytes),
            map_changes: self.map.len() as u64,
            mapped_end: self.mapped_end,
            mapped_blocks: self.mapped_blocks,
        }
    }
}

impl Rare {
    fn target_bytes(&self) -> usize {
        self.symlink.as_ref().map_or(0, |target| target.len())
    }

    fn has_xattrs(&self) -> bool {
        !self.xattrs.is_empty() || self.inline.is_some()
    }

    fn set_xattr(&mut self, delta: XattrDelta) {
        self.value_bytes += delta.value.as_ref().map_or(0, |value| value.len() as u64);
        self.xattrs.push(delta);
    }

    /// Takes in what another log says.
    pub fn merge(&mut self, other: Rare) {
        self.symlink = self.symlink.take().or(other.symlink);
        self.link_delta += other.link_delta;
        merge_newest(&mut self.parent, other.parent);
        merge_newest(&mut self.inline, other.inline);
        self.value_bytes += other.value_bytes;
        self.xattrs.extend(other.xattrs);
        self.xattrs.sort_by_key(|delta| delta.sequence);
    }
}

/// Of two values that of the newer record holds.
pub(super) fn merge_newest<T>(one: &mut Sequenced<T>, other: Sequenced<T>) {
    if let Some((sequence, value)) = other {
        set_newest(one, sequence, value);
    }
}

/// The value of the newest record holds.
pub(super) fn set_newest<T>(value: &mut Sequenced<T>, sequence: u64, to: T) {
    if value.as_ref().is_none_or(|(at, _)| *at <= sequence) {
        *value = Some((sequence, to));
    }
}

/// Joins a change of a mapping with the one before it, if it goes on from that.
pub(super) fn join(before: &mut MapChange, next: MapChange) -> bool {
    match (before, next) {
        (MapChange::Map(last), MapChange::Map(next))
            if last.end() == next.logical
                && last.physical.0 + last.length == next.physical.0
                && last.state == next.state =>
        {
            last.length += next.length;
            true
        }
        (
            MapChange::Convert {
                logical,
                length,
                to,
            },
            MapChange::Convert {
                logical: next,
                length: more,
                to: next_to,
            },
        ) if *logical + *length == next && *to == next_to => {
            *length += more;
            true
        }
        _ => false,
    }
}

/// A name of a directory.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct NameKey {
    pub dir: Ino,
    pub hash: u64,
    pub name: NameBytes,
}

/// What becomes of a name.
#[derive(Debug)]
pub(super) struct NameDelta {
    pub key: NameKey,
    /// The version of the oldest record, and whether the name was there before it.
    oldest: (u64, bool),
    /// The version of the newest record, and what it names.
    newest: (u64, Option<(Ino, FileKind)>),
    /// The version of the newest record that adds it, 0 where none does.
    pub added: u64,
    /// How many times it was given to an inode that is still in the log.
    pub givings: u32,
    /// Another log has records of it between these.
    has_gap: bool,
}

/// The version of a record if it adds the name, else 0.
fn added(version: u64, was_there: bool, names: Option<(Ino, FileKind)>) -> u64 {
    match names {
        Some(_) if !was_there => version,
        _ => 0,
    }
}

/// What becomes of a name, all records taken together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NameOutcome {
    /// It was not there, and is not.
    CameAndWent,
    /// It was not there.
    New,
    /// It was there.
    Changed,
}

impl NameDelta {
    /// What one record says.
    pub fn new(
        key: NameKey,
        version: u64,
        was_there: bool,
        names: Option<(Ino, FileKind)>,
    ) -> NameDelta {
        NameDelta {
            key,
            oldest: (version, was_there),
            newest: (version, names),
            added: added(version, was_there, names),
            givings: 0,
            has_gap: false,
        }
    }

    /// Takes in the next record of this log.
    pub fn take_in(&mut self, version: u64, was_there: bool, names: Option<(Ino, FileKind)>) {
        debug_assert!(
            version > self.newest.0,
            "a log has a name's records in order"
        );
        self.has_gap |= self.newest.1.is_some() != was_there;
        self.newest = (version, names);
        self.added = self.added.max(added(version, was_there, names));
    }

    /// Takes in what another log says of the name.
    pub fn merge(&mut self, other: &NameDelta) {
        self.oldest = self.oldest.min(other.oldest);
        if other.newest.0 > self.newest.0 {
            self.newest = other.newest;
        }
    }

    /// What it names now.
    pub fn names(&self) -> Option<(Ino, FileKind)> {
        self.newest.1
    }

    /// What all records together come to.
    pub fn outcome(&self) -> NameOutcome {
        match (self.oldest.1, self.newest.1) {
            (true, _) => NameOutcome::Changed,
            (false, Some(_)) => NameOutcome::New,
            (false, None) => NameOutcome::CameAndWent,
        }
    }

    /// True when it leaves nothing, whatever other logs say of it. Every inode that it was given to
    /// was made and freed in this log and has no record elsewhere. So it was taken from each of
    /// them here, and nothing came in between.
    pub fn leaves_nothing(&self) -> bool {
        self.givings == 0 && !self.has_gap && self.outcome() == NameOutcome::CameAndWent
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::base::store::{Extent, ExtentState};
    use crate::base::types::BlockNo;

    fn mapped(sequence: u64, logical: u64) -> Record {
        Record::Mapped {
            ino: Ino(12),
            sequence,
            change: MapChange::Map(Extent {
                logical: LogicalBlock(logical),
                physical: BlockNo(100 + logical),
                length: 1,
                state: ExtentState::Written,
            }),
            freed_blocks: 0,
        }
    }

    fn sized(sequence: u64) -> Record {
        Record::Sized {
            ino: Ino(12),
            sequence,
            size_bytes: 4096,
        }
    }

    fn delta(records: impl IntoIterator<Item = Record>) -> InodeDelta {
        let mut delta = InodeDelta::new(Ino(12));
        for record in records {
            delta.take_in(record);
        }
        delta
    }

    fn created() -> Record {
        Record::Created {
            ino: Ino(12),
            symlink: None,
        }
    }

    fn freed(sequence: u64) -> Record {
        Record::Linked {
            ino: Ino(12),
            sequence,
            link_count: 0,
            link_state: LinkState::Freed,
            freed_sectors: 8,
        }
    }

    /// What another shard has between them may have unmapped the first.
    #[test]
    fn changes_of_a_mapping_are_joined_where_nothing_is_between_them() {
        let joined = |sequences: [u64; 3]| {
            let places = sequences.into_iter().zip(0..);
            let records = places.map(|(sequence, logical)| mapped(sequence, logical));
            delta(records).map.len()
        };
        assert_eq!(joined([1, 2, 3]), 1);
        assert_eq!(joined([1, 2, 4]), 2);
        assert_eq!(joined([1, 3, 4]), 2);
        assert_eq!(joined([5, 3, 4]), 2);
        assert_eq!(delta([mapped(1, 0), sized(2), mapped(3, 1)]).map.len(), 1);
        assert_eq!(delta([mapped(2, 0), sized(1), mapped(4, 1)]).map.len(), 2);
    }

    /// What waits to be committed is bounded in memory, which values of attributes and the mappings
    /// of large files are most of.
    #[test]
    fn a_delta_knows_what_it_takes_in_memory() {
        let set = |value: usize| Record::Xattr {
            ino: Ino(12),
            sequence: 1,
            name: b"user.x".to_vec().into(),
            value: Some(vec![0; value].into()),
        };
        let values = delta([set(4000), set(100)]);
        assert_eq!(values.heap_bytes, 4112);
        let footprint = values.footprint();
        let counted = (footprint.value_changes, footprint.value_bytes);
        assert_eq!(counted, (2, 4100));
        let apart = (0..100).map(|number| mapped(number + 1, 2 * number));
        assert_eq!(delta(apart).heap_bytes, 100 * size_of::<MapDelta>());
        let joined = (0..100).map(|number| mapped(number + 1, number));
        assert_eq!(delta(joined).heap_bytes, size_of::<MapDelta>());
    }

    #[test]
    fn a_file_is_complete_where_all_its_records_are() {
        let is_complete = |records: Vec<Record>| delta(records).is_complete(FileKind::Regular);
        assert!(is_complete(vec![created(), mapped(1, 0), freed(2)]));
        assert!(!is_complete(vec![created(), mapped(1, 0), freed(3)]));
        assert!(!is_complete(vec![mapped(1, 0), freed(2)]));
        assert!(!is_complete(vec![created(), mapped(1, 0)]));
        let directory = delta([created(), freed(1)]);
        assert!(!directory.is_complete(FileKind::Directory));
    }

    fn name(records: &[(u64, bool, Option<u64>)]) -> NameDelta {
        let key = NameKey {
            dir: Ino(2),
            hash: 7,
            name: NameBytes::from_slice(b"name"),
        };
        let names = |ino: Option<u64>| ino.map(|ino| (Ino(ino), FileKind::Regular));
        let (version, was_there, ino) = records[0];
        let mut delta = NameDelta::new(key, version, was_there, names(ino));
        for (version, was_there, ino) in &records[1..] {
            delta.take_in(*version, *was_there, names(*ino));
        }
        delta
    }

    #[test]
    fn a_name_leaves_nothing_where_no_other_shard_had_it_in_between() {
        let pair = [(1, false, Some(12)), (4, true, None)];
        assert!(name(&pair).leaves_nothing());
        let replaced = [(1, false, Some(12)), (2, true, Some(13)), (4, true, None)];
        assert!(name(&replaced).leaves_nothing());
        assert!(!name(&pair[1..]).leaves_nothing());
        assert!(!name(&pair[..1]).leaves_nothing());
        // Made elsewhere after it went, and gone again.
        let gap = [(1, false, Some(12)), (2, true, None), (4, true, None)];
        assert_eq!(name(&gap).outcome(), NameOutcome::CameAndWent);
        assert!(!name(&gap).leaves_nothing());
        // Gone elsewhere, and made again.
        let gap = [(1, false, Some(12)), (4, false, Some(13)), (5, true, None)];
        assert!(!name(&gap).leaves_nothing());
        let mut given = name(&pair);
        given.givings = 1;
        assert!(!given.leaves_nothing());
    }

    #[test]
    fn names_of_two_shards_are_merged_in_any_order() {
        let (here, there) = (
            [(1, false, Some(12)), (4, true, None)],
            [(5, false, Some(13))],
        );
        for (one, other) in [(&here[..], &there[..]), (&there[..], &here[..])] {
            let mut merged = name(one);
            merged.merge(&name(other));
            assert_eq!(merged.outcome(), NameOutcome::New);
            assert_eq!(merged.names(), Some((Ino(13), FileKind::Regular)));
        }
    }
}
