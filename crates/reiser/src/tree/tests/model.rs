//! A model of what is in a tree, and mutations of both.

use std::collections::{BTreeMap, BTreeSet};

use finefs_namespace::{Error, LogicalBlock};
use finefs_reiser_disk::directory::{DirectoryItem, entry_space};
use finefs_reiser_disk::hash::NameHash;
use finefs_reiser_disk::indirect::{direct_max, pointers};
use finefs_reiser_disk::stat::{FileKind, StatData};
use finefs_reiser_disk::{ItemKind, Key, KeyVersion, ObjectKey, key};

use super::check::{self, Checked, Item};
use super::memory::Memory;
use crate::tree::Root;
use crate::tree::edit::names::Directory;
use crate::tree::edit::object::FileKey;
use crate::tree::edit::{Editor, Freed, NewItem, blocks_changed_max, blocks_needed_max};

/// Stat data of a new object.
pub(super) fn stat(is_new: bool, kind: FileKind) -> StatData {
    StatData {
        kind,
        permissions: 0o644,
        link_count: 1,
        uid: 1,
        gid: 2,
        size: 0,
        accessed: 3,
        modified: 4,
        changed: 5,
        sectors: 0,
        device: (0, 0),
        generation: is_new.then_some(6),
        attributes: 0,
        is_new,
        first_direct: None,
    }
}

/// What an object holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Entries(BTreeMap<Vec<u8>, ObjectKey>),
    Blocks {
        pointers: Vec<u32>,
        tail: Option<(u64, Vec<u8>)>,
    },
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub stat: StatData,
    pub content: Content,
}

/// A tree and its model.
#[derive(Clone)]
pub(super) struct World {
    pub memory: Memory,
    pub root: Root,
    pub hash: NameHash,
    pub is_new: bool,
    pub objects: BTreeMap<ObjectKey, Object>,
    pub links: BTreeSet<(u32, bool)>,
    /// Blocks of files that the tree names.
    pub data: BTreeSet<u32>,
    next_data: u32,
    next_object: u32,
}

impl World {
    /// A file system that has nothing but a root directory.
    pub fn new(block_size: usize, hash: NameHash, is_new: bool) -> World {
        let (memory, root) = Memory::new(block_size);
        let root_directory = Object {
            stat: stat(true, FileKind::Directory),
            content: Content::Entries(BTreeMap::new()),
        };
        let mut world = World {
            memory,
            root,
            hash,
            is_new,
            objects: BTreeMap::from([(key::ROOT, root_directory)]),
            links: BTreeSet::new(),
            data: BTreeSet::new(),
            next_data: 1_000_000,
            next_object: 3,
        };
        let directory = world.directory(key::ROOT);
        let parent = ObjectKey {
            dir_id: 0,
            object_id: 1,
        };
        let size = world.edit(1, |editor| editor.make_directory(&directory, parent));
        assert_eq!(size, 48);
        world.dots(key::ROOT, parent);
        world
    }

    fn dots(&mut self, object: ObjectKey, parent: ObjectKey) {
        let entries = self.entries(object);
        entries.insert(b".".to_vec(), object);
        entries.insert(b"..".to_vec(), parent);
    }

    pub fn entries(&mut self, object: ObjectKey) -> &mut BTreeMap<Vec<u8>, ObjectKey> {
        match &mut self.objects.get_mut(&object).expect("it exists").content {
            Content::Entries(entries) => entries,
            Content::Blocks { .. } => panic!("a directory"),
        }
    }

    fn blocks(&mut self, object: ObjectKey) -> (&mut Vec<u32>, &mut Option<(u64, Vec<u8>)>) {
        match &mut self.objects.get_mut(&object).expect("it exists").content {
            Content::Blocks { pointers, tail } => (pointers, tail),
            Content::Entries(_) => panic!("a file"),
        }
    }

    pub fn directory(&self, object: ObjectKey) -> Directory {
        Directory {
            object,
            hash: self.hash,
            pads: self.objects[&object].stat.is_new,
        }
    }

    pub fn file(&self, object: ObjectKey) -> FileKey {
        FileKey::of(object, &self.objects[&object].stat)
    }

    /// Mutates, in at most so many mutations, within the bounds that are told for each.
    pub fn edit<T>(
        &mut self,
        mutations: u32,
        change: impl FnOnce(&mut Editor<'_, Memory>) -> Result<T, Error>,
    ) -> T {
        (self.memory.allocated, self.memory.changed) = (0, 0);
        let levels = self.root.levels;
        let mut editor = Editor::new(&mut self.memory, self.root);
        let outcome = change(&mut editor);
        self.root = editor.root;
        let value = outcome.expect("it succeeds");
        let levels = levels.max(self.root.levels);
        assert!(self.memory.allocated <= mutations * blocks_needed_max(levels));
        // Each block is given twice at most.
        let changed = 2 * mutations * blocks_changed_max(levels);
        assert!(self.memory.changed <= changed);
        value
    }

    /// Makes an object in a directory, without a name.
    pub fn make(&mut self, parent: ObjectKey, kind: FileKind) -> ObjectKey {
        let object = ObjectKey {
            dir_id: parent.object_id,
            object_id: self.next_object,
        };
        self.next_object += 1;
        let stat = stat(self.is_new, kind);
        let content = match kind {
            FileKind::Directory => Content::Entries(BTreeMap::new()),
            _ => Content::Blocks {
                pointers: Vec::new(),
                tail: None,
            },
        };
        self.objects.insert(object, Object { stat, content });
        self.edit(1, |editor| editor.insert_stat(object, &stat));
        if kind == FileKind::Directory {
            let directory = self.directory(object);
            let size = self.edit(1, |editor| editor.make_directory(&directory, parent));
            assert_eq!(size, if self.is_new { 48 } else { 35 });
            self.dots(object, parent);
        }
        object
    }

    pub fn add_name(&mut self, directory: ObjectKey, name: &[u8], object: ObjectKey) {
        let of = self.directory(directory);
        if self.entries(directory).contains_key(name) {
            let mut editor = Editor::new(&mut self.memory, self.root);
            assert!(editor.add_entry(&of, name, object).is_err());
            self.edit(1, |editor| editor.replace_entry(&of, name, object));
        } else {
            let grown = self.edit(1, |editor| editor.add_entry(&of, name, object));
            assert_eq!(grown as usize, entry_space(name.len(), of.pads));
        }
        self.entries(directory).insert(name.to_vec(), object);
    }

    pub fn remove_name(&mut self, directory: ObjectKey, name: &[u8]) {
        let of = self.directory(directory);
        let shrunk = self.edit(1, |editor| editor.remove_entry(&of, name));
        assert_eq!(shrunk as usize, entry_space(name.len(), of.pads));
        self.entries(directory).remove(name);
        let editor = Editor::new(&mut self.memory, self.root);
        assert_eq!(editor.find_entry(&of, name), Ok(None));
    }

    /// Takes what was told to be freed out of the blocks that the tree names.
    fn freed(&mut self, freed: &Freed) {
        for &(first, count) in freed {
            for block in first..first + count {
                assert!(self.data.remove(&block), "block {block} freed twice");
            }
        }
    }

    /// Maps new blocks, or holes, in steps of a few mutations.
    pub fn map(&mut self, object: ObjectKey, logical: usize, count: usize, is_hole: bool) {
        let file = self.file(object);
        if self.blocks(object).1.is_some() {
            self.edit(4, |editor| editor.remove_tail(&file));
            *self.blocks(object).1 = None;
        }
        let first = if is_hole { 0 } else { self.next_data };
        if !is_hole {
            self.next_data += count as u32 + 1;
            self.data.extend(first..first + count as u32);
        }
        let end = LogicalBlock((logical + count) as u64);
        let mut at = LogicalBlock(logical as u64);
        // A hole before them, which the first step fills.
        let mut mutations = if is_hole { 2 } else { 10 + logical as u32 / 8 };
        while at < end {
            let done = at - LogicalBlock(logical as u64);
            let blocks = (if is_hole { 0 } else { first + done as u32 }, end - at);
            let mut freed = Freed::new();
            let mapped = self.edit(mutations, |editor| {
                editor.map(&file, at, blocks, 2, &mut freed)
            });
            self.freed(&freed);
            (at, mutations) = (at + mapped, 2);
            if mapped == 0 {
                break;
            }
        }
        let pointers = self.blocks(object).0;
        if !is_hole && pointers.len() < logical + count {
            pointers.resize(logical + count, 0);
        }
        let end = pointers.len().min(logical + count);
        for (at, pointer) in pointers[..end].iter_mut().enumerate().skip(logical) {
            let number = (at - logical) as u32;
            *pointer = if is_hole { 0 } else { first + number };
        }
    }

    /// Cuts a file, in steps of a few mutations.
    pub fn truncate(&mut self, object: ObjectKey, size: u64) {
        let file = self.file(object);
        loop {
            let mut freed = Freed::new();
            let is_done = self.edit(2, |editor| editor.truncate(&file, size, 2, &mut freed));
            self.freed(&freed);
            if is_done {
                break;
            }
        }
        let block_size = self.memory.block_size;
        let (pointers, tail) = self.blocks(object);
        pointers.truncate(size.div_ceil(block_size as u64) as usize);
        if let Some((offset, bytes)) = tail {
            let keep = size.saturating_sub(*offset) as usize;
            if keep < bytes.len() {
                let length = bytes.len();
                let padded = if file.pads {
                    keep.next_multiple_of(8)
                } else {
                    keep
                };
                bytes.truncate(keep);
                bytes.resize(padded.min(length), 0);
            }
            if bytes.is_empty() {
                *tail = None;
            }
        }
    }

    /// Writes a tail of a file, from a block on that is not before its blocks.
    pub fn put_tail(&mut self, object: ObjectKey, block: usize, bytes: &[u8]) {
        let file = self.file(object);
        let offset = (block * self.memory.block_size) as u64;
        assert!(bytes.len() <= direct_max(self.memory.block_size));
        self.edit(8 + block as u32 / 8, |editor| {
            editor.put_tail(&file, offset, bytes)
        });
        let (pointers, tail) = self.blocks(object);
        let mut bytes = bytes.to_vec();
        if file.pads {
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        *tail = None;
        if !bytes.is_empty() {
            pointers.resize(pointers.len().max(block), 0);
            *tail = Some((offset, bytes));
        }
    }

    pub fn write_stat(&mut self, object: ObjectKey, size: u64) {
        let stat = &mut self.objects.get_mut(&object).expect("it exists").stat;
        stat.size = size & 0xffff_ffff;
        let stat = *stat;
        self.edit(1, |editor| editor.write_stat(object, &stat));
        // In place: nothing moves.
        assert_eq!((self.memory.allocated, self.memory.changed), (0, 1));
    }

    pub fn remove(&mut self, object: ObjectKey) {
        loop {
            let mut freed = Freed::new();
            let is_done = self.edit(3, |editor| editor.remove_object(object, 3, &mut freed));
            self.freed(&freed);
            if is_done {
                break;
            }
        }
        self.objects.remove(&object);
    }

    /// Adds or removes the note of an object that must still be removed or cut.
    pub fn toggle_link(&mut self, object_id: u32, is_cut: bool) {
        let block_size = self.memory.block_size as u64;
        let key = Key {
            object: ObjectKey {
                dir_id: u32::MAX,
                object_id,
            },
            offset: if is_cut { 1 } else { 1 + block_size },
            kind: if is_cut {
                ItemKind::Indirect
            } else {
                ItemKind::Direct
            },
        };
        if self.links.remove(&(object_id, is_cut)) {
            self.edit(1, |editor| editor.remove(&key));
            return;
        }
        self.links.insert((object_id, is_cut));
        let item = NewItem {
            key,
            version: KeyVersion::V3_5,
            count: if is_cut { 0 } else { u16::MAX },
            body: &7_u32.to_le_bytes(),
        };
        self.edit(1, |editor| editor.insert(&item));
    }

    /// Checks the tree, and that it holds what the model has.
    pub fn check(&self) -> Checked {
        let block_size = self.memory.block_size;
        let checked = check::check(&self.memory, self.root, block_size, Some(self.hash));
        assert_eq!(
            checked.nodes,
            self.memory.nodes(),
            "blocks that nothing names"
        );
        let mut found: BTreeMap<ObjectKey, Object> = BTreeMap::new();
        let mut links = BTreeSet::new();
        for item in &checked.items {
            if item.key.object.dir_id == u32::MAX {
                links.insert((item.key.object.object_id, item.key.offset == 1));
                continue;
            }
            take(&mut found, item, block_size);
        }
        assert_eq!(links, self.links);
        assert_eq!(found.len(), self.objects.len());
        for (object, expected) in &self.objects {
            assert_eq!(found.get(object), Some(expected), "{object:?}");
        }
        let data = self
            .objects
            .values()
            .flat_map(|object| match &object.content {
                Content::Blocks { pointers, .. } => pointers.clone(),
                Content::Entries(_) => Vec::new(),
            });
        let data: BTreeSet<u32> = data.filter(|block| *block != 0).collect();
        assert_eq!(data, self.data);
        checked
    }
}

fn take(found: &mut BTreeMap<ObjectKey, Object>, item: &Item, block_size: usize) {
    if item.key.kind == ItemKind::StatData {
        let stat = StatData::parse(&item.body).expect("it is sound");
        let content = match stat.kind {
            FileKind::Directory => Content::Entries(BTreeMap::new()),
            _ => Content::Blocks {
                pointers: Vec::new(),
                tail: None,
            },
        };
        found.insert(item.key.object, Object { stat, content });
        return;
    }
    let object = found.get_mut(&item.key.object).expect("stat data is first");
    match (&mut object.content, item.key.kind) {
        (Content::Entries(entries), ItemKind::Directory) => {
            let parsed = DirectoryItem::new(&item.body, item.count).expect("it is sound");
            for entry in parsed.entries() {
                let entry = entry.expect("it is sound");
                entries.insert(entry.name.to_vec(), entry.object);
            }
        }
        (Content::Blocks { pointers: all, .. }, ItemKind::Indirect) => {
            all.extend(pointers(&item.body).expect("it is sound"));
        }
        (Content::Blocks { tail, .. }, ItemKind::Direct) => {
            let start = (item.key.offset - 1) / block_size as u64 * block_size as u64;
            let tail = tail.get_or_insert((start, Vec::new()));
            assert_eq!(tail.0, start);
            tail.1.extend_from_slice(&item.body);
        }
        (_, kind) => panic!("{kind:?} in {}", item.key),
    }
}
