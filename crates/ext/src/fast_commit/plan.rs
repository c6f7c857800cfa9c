//! From the records of fast commits to batches: what the records say is carried out on copies of
//! the objects that they name; the difference becomes a batch.
//!
//! An inode number that is freed and used again within the records ends a batch: a batch says one
//! thing of each inode.

use std::collections::{BTreeMap, HashMap};

use finefs_buffers::alloc::BitmapSource;
use finefs_ext_disk::GroupNo;
use finefs_ext_disk::inode::{Inode, InodeFlags};
use finefs_ext_disk::jbd2::fast_commit::{self, FcEntry, FcRange, FcTag};
use finefs_namespace::{
    Attributes, Batch, BlockNo, BlockRun, DirectoryChange, EntryChange, Error, Extent, ExtentState,
    FileKind, InlineChange, Ino, InodeChange, LinkState, LogicalBlock, MapChange, Result,
    Timestamp,
};

use super::raw;
use crate::apply;
use crate::error::at;
use crate::load::{checked, clusters, content, directory, inode, map};
use crate::state::{ExtState, disk_ino};

/// An inode that records name.
#[derive(Default)]
struct Object {
    /// What the image holds, where the number is in use.
    before: Option<Attributes>,
    /// The newest record of it.
    record: Option<Vec<u8>>,
    /// Links of a file; names of a directory.
    links: i64,
    /// Subdirectories gained.
    subdirectories: i64,
    /// The directory that a directory moved to.
    parent: Option<u32>,
    /// Mapping of a regular file, before and after.
    extents_before: Vec<Extent>,
    extents: Vec<Extent>,
    /// The image has its content in the inode.
    was_inline: bool,
}

/// The names of a directory as they are by now, and those that changed.
#[derive(Default)]
struct Names {
    now: HashMap<Vec<u8>, u32>,
    changed: BTreeMap<Vec<u8>, Option<u32>>,
}

/// See the module's head.
pub(super) struct Plan<'a> {
    state: &'a ExtState,
    objects: BTreeMap<u32, Object>,
    directories: BTreeMap<u32, Names>,
    /// The newest change that an inode record tells of: the time of changed directories, which have
    /// no records.
    newest: Timestamp,
}

fn short(tag: FcTag) -> Error {
    Error::corrupt(format_args!(
        "fast commit: a record ({}) is cut off",
        tag.name()
    ))
}

impl<'a> Plan<'a> {
    pub fn new(state: &'a ExtState) -> Plan<'a> {
        Plan {
            state,
            objects: BTreeMap::new(),
            directories: BTreeMap::new(),
            newest: Timestamp::default(),
        }
    }

    /// Keeps the blocks that records name from being taken for anything else.
    pub fn claim(&self, records: &[(FcTag, Vec<u8>)]) -> Result<()> {
        let added = records.iter().filter(|(tag, _)| *tag == FcTag::AddRange);
        for (tag, value) in added {
            let range = FcRange::parse_added(value).ok_or_else(|| short(*tag))?;
            let (start, _) = range.physical.ok_or_else(|| short(*tag))?;
            let length = u64::from(range.length);
            if !self
                .state
                .groups
                .can_own(&self.state.geometry, start, length)
            {
                return Err(Error::corrupt(format_args!(
                    "fast commit: blocks {start}+{length} cannot belong to a file"
                )));
            }
            let run = BlockRun {
                start: BlockNo(start),
                length,
            };
            self.state.allocator.claim_blocks(self.state, run);
        }
        Ok(())
    }

    /// Takes in what a record says.
    pub fn take(&mut self, tag: FcTag, value: &[u8]) -> Result<()> {
        match tag {
            FcTag::AddRange => {
                let range = FcRange::parse_added(value).ok_or_else(|| short(tag))?;
                self.map(&range)
            }
            FcTag::DelRange => {
                let range = FcRange::parse_removed(value).ok_or_else(|| short(tag))?;
                self.map(&range)
            }
            FcTag::Inode => {
                let (ino, bytes) = fast_commit::parse_inode(value).ok_or_else(|| short(tag))?;
                self.record(ino, bytes)
            }
            FcTag::Creat | FcTag::Link => {
                let entry = FcEntry::parse(value).ok_or_else(|| short(tag))?;
                self.link(&entry)
            }
            FcTag::Unlink => {
                let entry = FcEntry::parse(value).ok_or_else(|| short(tag))?;
                self.unlink(&entry)
            }
            _ => Ok(()),
        }
    }

    /// The object of a number, with what the image holds of it.
    fn object(&mut self, number: u32) -> Result<&mut Object> {
        if !self.objects.contains_key(&number) {
            let object = self.load(number)?;
            self.objects.insert(number, object);
        }
        Ok(self.objects.entry(number).or_default())
    }

    fn load(&self, number: u32) -> Result<Object> {
        let ino = Ino(u64::from(number));
        let place = self.state.geometry.locate_inode(disk_ino(ino)?);
        let place = place.ok_or_else(|| Error::corrupt(format_args!("inode {ino}: no place")))?;
        let GroupNo(group) = place.group;
        if !self.state.inode_bits(group)?.all_used(place.index, 1) {
            return Ok(Object::default());
        }
        let (disk, kind) = match checked::inode(self.state, ino) {
            Err(Error::Stale) => return Ok(Object::default()),
            found => found?,
        };
        let attributes = inode::attributes(self.state, ino, &disk, kind)?;
        let was_inline = disk.flags().contains(InodeFlags::INLINE_DATA);
        let extents = match kind {
            FileKind::Regular if !was_inline => map::load(self.state, ino, &disk)?.extents,
            _ => Vec::new(),
        };
        Ok(Object {
            before: Some(attributes),
            links: match kind {
                FileKind::Directory => 1,
                _ => i64::from(attributes.link_count),
            },
            extents_before: extents.clone(),
            extents,
            was_inline,
            ..Object::default()
        })
    }

    fn names(&mut self, directory: u32) -> Result<&mut Names> {
        if !self.directories.contains_key(&directory) {
            let is_old = self.object(directory)?.before.is_some();
            let mut names = Names::default();
            if is_old {
                let image = directory::load(self.state, Ino(u64::from(directory)))?;
                if let Some(damage) = image.damage {
                    return Err(damage);
                }
                let entries = image.entries.into_iter();
                names.now = entries.map(|e| (e.name, e.ino.0 as u32)).collect();
            }
            self.directories.insert(directory, names);
        }
        Ok(self.directories.entry(directory).or_default())
    }

    fn is_directory(&mut self, number: u32) -> Result<bool> {
        let state = self.state;
        let object = self.object(number)?;
        Ok(object.kind(state)? == Some(FileKind::Directory))
    }

    fn record(&mut self, number: u32, bytes: &[u8]) -> Result<()> {
        let disk = Inode::new(bytes).map_err(|error| at(format_args!("inode {number}"), error))?;
        let (links, generation) = (i64::from(disk.links_count()), disk.generation());
        let changed = disk.ctime();
        let object = self.object(number)?;
        let is_reused = object.generation().is_some_and(|held| held != generation);
        if is_reused && object.links <= 0 {
            // The one before may be known from records alone; its mapping goes with it.
            self.carry_out()?;
        } else if is_reused && links > 0 {
            return Err(Error::corrupt(format_args!(
                "fast commit: inode {number} is in use already"
            )));
        }
        let object = self.object(number)?;
        object.record = Some(bytes.to_vec());
        self.newest = self.newest.max(Timestamp::new(changed.sec, changed.nsec));
        if !self.is_directory(number)? {
            self.object(number)?.links = links;
        }
        Ok(())
    }

    fn map(&mut self, range: &FcRange) -> Result<()> {
        let object = self.object(range.ino)?;
        let from = LogicalBlock(range.logical.0);
        let to = from + u64::from(range.length);
        object.extents = without(&object.extents, from, to);
        if let Some((physical, is_unwritten)) = range.physical
            && range.length > 0
        {
            let state = match is_unwritten {
                true => ExtentState::Unwritten,
                false => ExtentState::Written,
            };
            object.extents.push(Extent {
                logical: from,
                physical: BlockNo(physical),
                length: to - from,
                state,
            });
            object.extents.sort_unstable_by_key(|extent| extent.logical);
        }
        Ok(())
    }

    fn link(&mut self, entry: &FcEntry<'_>) -> Result<()> {
        let is_directory = self.is_directory(entry.ino)?;
        let names = self.names(entry.parent)?;
        if names.now.get(entry.name) == Some(&entry.ino) {
            return Ok(());
        }
        names.now.insert(entry.name.to_vec(), entry.ino);
        names.changed.insert(entry.name.to_vec(), Some(entry.ino));
        let object = self.object(entry.ino)?;
        object.links += 1;
        if is_directory {
            object.parent = Some(entry.parent);
            self.object(entry.parent)?.subdirectories += 1;
        }
        Ok(())
    }

    fn unlink(&mut self, entry: &FcEntry<'_>) -> Result<()> {
        let names = self.names(entry.parent)?;
        if names.now.get(entry.name) != Some(&entry.ino) {
            return Ok(());
        }
        names.now.remove(entry.name);
        names.changed.insert(entry.name.to_vec(), None);
        self.object(entry.ino)?.links -= 1;
        if self.is_directory(entry.ino)? {
            self.object(entry.parent)?.subdirectories -= 1;
        }
        Ok(())
    }

    /// Commits what was taken in until now.
    pub fn carry_out(&mut self) -> Result<()> {
        let objects = std::mem::take(&mut self.objects);
        let directories = std::mem::take(&mut self.directories);
        let mut batch = Batch::default();
        for (&number, object) in &objects {
            let has_names = directories
                .get(&number)
                .is_some_and(|names| !names.changed.is_empty());
            if let Some(change) = self.change(number, object, has_names)? {
                batch.inodes.push(Box::new(change));
            }
        }
        for (number, object) in &objects {
            let names = directories.get(number);
            batch
                .directories
                .extend(self.directory_change(*number, object, names, &objects)?);
        }
        apply::commit(self.state, batch, &|_| None)?;
        for (number, object) in &objects {
            if let Some(record) = &object.record
                && object.links > 0
            {
                raw::copy(self.state, *number, record)?;
            }
        }
        Ok(())
    }

    /// What becomes of an object; `None` where it never was, or stays as it is.
    fn change(&self, number: u32, object: &Object, has_names: bool) -> Result<Option<InodeChange>> {
        let ino = Ino(u64::from(number));
        let is_created = object.before.is_none();
        let is_alive = object.links > 0;
        let mut attributes = match (&object.record, object.before) {
            (Some(record), _) if is_alive => self.attributes(ino, record)?,
            (_, Some(before)) => before,
            (_, None) if is_alive => {
                return Err(Error::corrupt(format_args!(
                    "fast commit: inode {number} is named, but not there"
                )));
            }
            _ => return Ok(None),
        };
        let is_directory = attributes.kind == FileKind::Directory;
        if is_alive && object.record.is_none() && is_directory && !has_names {
            return Ok(None);
        }
        if is_directory && object.record.is_none() {
            attributes.times.modified = attributes.times.modified.max(self.newest);
            attributes.times.changed = attributes.times.changed.max(self.newest);
        }
        if !is_directory {
            attributes.link_count = u32::try_from(object.links.max(0)).unwrap_or(u32::MAX);
        }
        if is_created {
            let allocator = &self.state.allocator;
            allocator.claim_inode(self.state, number, is_directory);
        }
        let symlink = match attributes.kind {
            FileKind::Symlink if is_created => Some(self.target(ino, object)?.into()),
            _ => None,
        };
        let is_file = is_alive && attributes.kind == FileKind::Regular;
        let inline = match is_file {
            true => self.inline_change(ino, object)?,
            false => None,
        };
        let map = match attributes.kind {
            FileKind::Regular if is_alive => {
                let whole =
                    |extents: &Vec<Extent>| clusters::whole(self.state, ino, extents.clone());
                difference(&whole(&object.extents_before)?, &whole(&object.extents)?)
            }
            _ => Vec::new(),
        };
        Ok(Some(InodeChange {
            ino,
            is_created,
            link_state: match is_alive {
                true => LinkState::Linked,
                false => LinkState::Freed,
            },
            attributes,
            link_delta: if is_directory {
                object.subdirectories
            } else {
                0
            },
            symlink,
            map,
            xattrs: Vec::new(),
            inline,
        }))
    }

    fn attributes(&self, ino: Ino, record: &[u8]) -> Result<Attributes> {
        let inode = whole(self.state, record)?;
        if inode.flags().contains(InodeFlags::INLINE_DATA) && !self.state.may_hold_inline_data() {
            return Err(inode::misplaced_inline_data(ino));
        }
        let kind = inode
            .validate()
            .map_err(|error| at(format_args!("inode {ino}"), error))?;
        inode::attributes(self.state, ino, &inode, checked::convert_kind(kind))
    }

    /// What becomes of a file's content in the inode: its record then is the whole inode.
    fn inline_change(&self, ino: Ino, object: &Object) -> Result<Option<InlineChange>> {
        let record = object.record.as_deref();
        let record = record.map(|record| whole(self.state, record)).transpose()?;
        let is_inline = match &record {
            Some(inode) => inode.flags().contains(InodeFlags::INLINE_DATA),
            None => object.was_inline && object.extents.is_empty(),
        };
        let (true, Some(inode)) = (is_inline, record) else {
            return Ok((object.was_inline && !is_inline).then_some(InlineChange::Moved));
        };
        if !object.extents.is_empty() {
            return Err(Error::corrupt(format_args!(
                "fast commit: inode {ino} has data both inline and in blocks"
            )));
        }
        let size = inode.size(&self.state.inode_rules);
        let content = content::inline(self.state, ino, &inode, size)?;
        Ok(Some(InlineChange::Content(content.into())))
    }

    /// The target of a symbolic link that was made: in its record, or in its one block.
    fn target(&self, ino: Ino, object: &Object) -> Result<Vec<u8>> {
        let rules = &self.state.inode_rules;
        let inode = whole(self.state, object.record.as_deref().unwrap_or_default())?;
        if let Some(target) = inode.fast_symlink_target(rules) {
            return Ok(target.to_vec());
        }
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            return content::inline(self.state, ino, &inode, inode.size(rules));
        }
        let block = object.extents.first().map(|extent| extent.physical.0);
        let size = inode
            .size(rules)
            .min(u64::from(self.state.geometry.block_size) - 1);
        let bytes = self.state.buffers.read(block.ok_or_else(|| {
            Error::corrupt(format_args!(
                "fast commit: inode {ino}: its target is missing"
            ))
        })?)?;
        Ok(bytes[..size as usize].to_vec())
    }

    fn directory_change(
        &self,
        number: u32,
        object: &Object,
        names: Option<&Names>,
        objects: &BTreeMap<u32, Object>,
    ) -> Result<Option<DirectoryChange>> {
        let is_directory = object.kind(self.state)? == Some(FileKind::Directory);
        let has_names = names.is_some_and(|names| !names.changed.is_empty());
        if !is_directory || object.links <= 0 || !(has_names || object.parent.is_some()) {
            return Ok(None);
        }
        let mut entries: Vec<EntryChange> = Vec::new();
        for (name, target) in names.into_iter().flat_map(|names| &names.changed) {
            let target = match target {
                None => None,
                Some(target) => {
                    let named = objects.get(target);
                    let kind = named.map(|named| named.kind(self.state)).transpose()?;
                    let kind = kind.flatten().ok_or_else(|| {
                        Error::corrupt(format_args!("fast commit: inode {target}: not there"))
                    })?;
                    Some((Ino(u64::from(*target)), kind))
                }
            };
            entries.push((name.as_slice().into(), target));
        }
        Ok(Some(DirectoryChange {
            dir: Ino(u64::from(number)),
            parent: object.parent.map(|parent| Ino(u64::from(parent))),
            entries,
        }))
    }
}

impl Object {
    /// The generation of the inode that the number stands for by now.
    fn generation(&self) -> Option<u32> {
        let recorded = self.record.as_deref();
        match recorded.and_then(|record| Inode::new(record).ok()) {
            Some(record) => Some(record.generation()),
            None => self.before.map(|before| before.generation),
        }
    }

    fn kind(&self, state: &ExtState) -> Result<Option<FileKind>> {
        match &self.record {
            Some(record) => Ok(whole(state, record)?.kind().map(checked::convert_kind)),
            None => Ok(self.before.map(|before| before.kind)),
        }
    }
}

/// A record as an inode of full length.
fn whole(state: &ExtState, record: &[u8]) -> Result<Inode<Vec<u8>>> {
    let mut bytes = record.to_vec();
    bytes.resize(usize::from(state.geometry.inode_size), 0);
    Inode::new(bytes).map_err(|error| at("fast commit", error))
}

/// A mapping without what it has in a range.
fn without(extents: &[Extent], from: LogicalBlock, to: LogicalBlock) -> Vec<Extent> {
    let mut left = Vec::with_capacity(extents.len() + 1);
    for extent in extents {
        let parts = [
            (extent.logical, extent.end().min(from)),
            (extent.logical.max(to), extent.end()),
        ];
        let parts = parts.into_iter().filter(|(start, end)| start < end);
        left.extend(parts.map(|(start, end)| extent.part(start, end)));
    }
    left
}

/// The changes that make one mapping of another. What has moved is unmapped before anything is
/// mapped.
fn difference(before: &[Extent], after: &[Extent]) -> Vec<MapChange> {
    let (mut unmaps, mut others) = (Vec::new(), Vec::new());
    let mut borders: Vec<LogicalBlock> = before
        .iter()
        .chain(after)
        .flat_map(|extent| [extent.logical, extent.end()])
        .collect();
    borders.sort_unstable();
    borders.dedup();
    for pair in borders.windows(2) {
        let [logical, end] = [pair[0], pair[1]];
        let held = |extents: &[Extent]| {
            let after = extents.partition_point(|extent| extent.logical <= logical);
            let extent = extents.get(after.checked_sub(1)?)?;
            (logical < extent.end()).then(|| extent.part(logical, end))
        };
        let length = end - logical;
        match (held(before), held(after)) {
            (Some(old), Some(new)) if old.physical == new.physical => {
                if old.state != new.state {
                    others.push(MapChange::Convert {
                        logical,
                        length,
                        to: new.state,
                    });
                }
            }
            (old, new) => {
                if old.is_some() {
                    unmap(&mut unmaps, logical, length);
                }
                others.extend(new.map(MapChange::Map));
            }
        }
    }
    unmaps.append(&mut others);
    unmaps
}

/// Unmaps a range; with what was unmapped before it, so that whole clusters are.
fn unmap(changes: &mut Vec<MapChange>, from: LogicalBlock, blocks: u64) {
    match changes.last_mut() {
        Some(MapChange::Unmap { logical, length }) if *logical + *length == from => {
            *length += blocks;
        }
        _ => changes.push(MapChange::Unmap {
            logical: from,
            length: blocks,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(logical: u64, physical: u64, length: u64, state: ExtentState) -> Extent {
        Extent {
            logical: LogicalBlock(logical),
            physical: BlockNo(physical),
            length,
            state,
        }
    }

    #[test]
    fn only_what_differs_changes() {
        use ExtentState::{Unwritten, Written};
        let before = [extent(0, 100, 8, Written), extent(10, 200, 4, Unwritten)];
        let mut after = without(&before, LogicalBlock(2), LogicalBlock(4));
        after.push(extent(20, 300, 1, Written));
        assert_eq!(
            difference(&before, &after),
            [
                MapChange::Unmap {
                    logical: LogicalBlock(2),
                    length: 2
                },
                MapChange::Map(extent(20, 300, 1, Written)),
            ]
        );
        let written = [extent(0, 100, 8, Written), extent(10, 200, 4, Written)];
        assert_eq!(
            difference(&before, &written),
            [MapChange::Convert {
                logical: LogicalBlock(10),
                length: 4,
                to: Written
            }]
        );
        let moved = [extent(0, 100, 8, Written), extent(10, 400, 4, Written)];
        assert_eq!(
            difference(&written, &moved),
            [
                MapChange::Unmap {
                    logical: LogicalBlock(10),
                    length: 4
                },
                MapChange::Map(moved[1]),
            ]
        );
    }
}
