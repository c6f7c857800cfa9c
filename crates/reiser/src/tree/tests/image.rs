//! Mutations of images that mkreiserfs made, judged by reiserfsck.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use finefs_block::{BlockDevice, MemoryDevice};
use finefs_namespace::{Error, LogicalBlock, Result};
use finefs_reiser_disk::hash::NameHash;
use finefs_reiser_disk::indirect::direct_max;
use finefs_reiser_disk::stat::{FileKind, StatData};
use finefs_reiser_disk::{KeyVersion, ObjectKey, key};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::reiserfsck::reiserfsck;
use super::model;
use crate::ReiserOptions;
use crate::mount;
use crate::state::Mounted;
use crate::tree::Root;
use crate::tree::edit::names::Directory;
use crate::tree::edit::object::FileKey;
use crate::tree::edit::{Editor, Freed};
use crate::tree::staged::{NodeSpace, Staged};

#[path = "../../../tests/it/support/reiserfsck.rs"]
mod reiserfsck;

const SUPERBLOCK: u64 = 65536;

/// The bitmap, a byte for each block.
struct Space {
    used: Vec<bool>,
    freed: Vec<u32>,
}

impl Space {
    fn load(mounted: &Mounted) -> Space {
        let bitmaps = &mounted.tree.bitmaps;
        let mut used = Vec::new();
        for number in 0..bitmaps.count {
            let block = u64::from(bitmaps.block(number));
            let bits = mounted.tree.buffers.read(block).expect("it can be read");
            used.extend((0..bitmaps.bits as usize).map(|bit| bits[bit / 8] >> (bit % 8) & 1 == 1));
        }
        used.truncate(mounted.tree.block_count as usize);
        let freed = Vec::new();
        Space { used, freed }
    }

    fn allocate(&mut self) -> Result<u32> {
        let free = self
            .used
            .iter()
            .position(|used| !used)
            .ok_or(Error::NoSpace)?;
        self.used[free] = true;
        Ok(free as u32)
    }

    fn free(&mut self, block: u32) {
        let was_used = std::mem::replace(&mut self.used[block as usize], false);
        assert!(was_used, "block {block} freed twice");
    }

    fn left(&self) -> u32 {
        self.used.iter().filter(|used| !**used).count() as u32
    }
}

impl NodeSpace for &mut Space {
    fn allocate_node(&mut self, _near: u32) -> Result<u32> {
        self.allocate()
    }

    fn free_node(&mut self, block: u32) {
        // Free once the batch is published.
        self.freed.push(block);
    }
}

/// An object of the image.
struct Object {
    key: ObjectKey,
    stat: StatData,
    /// Names and objects of a directory.
    names: BTreeMap<Vec<u8>, usize>,
    parent: usize,
    blocks: u64,
    has_tail: bool,
}

struct Image {
    device: Arc<MemoryDevice>,
    mounted: Mounted,
    space: Space,
    hash: NameHash,
    block_size: usize,
    objects: BTreeMap<usize, Object>,
    next: u32,
    random: StdRng,
    root: Root,
}

fn made(path: &Path, block_size: usize, hash: NameHash, version: KeyVersion) -> Option<Vec<u8>> {
    // Room for a journal of 8192 blocks.
    let size = (40 << 20).max(block_size * 12_000);
    std::fs::write(path, vec![0; size]).expect("there is room");
    let format = match version {
        KeyVersion::V3_5 => "3.5",
        KeyVersion::V3_6 => "3.6",
    };
    let made = Command::new("mkreiserfs")
        .args([
            "-q",
            "-q",
            "-f",
            "-f",
            "--format",
            format,
            "--hash",
            hash.name(),
            "-b",
        ])
        .arg(block_size.to_string())
        .arg(path)
        .output()
        .expect("mkreiserfs runs");
    made.status
        .success()
        .then(|| std::fs::read(path).expect("it is there"))
}

/// The test writes by itself.
fn read_only() -> ReiserOptions {
    ReiserOptions {
        is_read_only: true,
        ..ReiserOptions::default()
    }
}

impl Image {
    fn new(bytes: &[u8], block_size: usize, seed: u64) -> Image {
        let device = Arc::new(MemoryDevice::from_bytes(bytes));
        let mounted = mount::mount(device.clone(), &read_only()).expect("it mounts");
        let space = Space::load(&mounted);
        let stat = crate::load::inode::stat(&mounted, key::ROOT).expect("it is sound");
        let root = Object {
            key: key::ROOT,
            stat,
            names: BTreeMap::new(),
            parent: 0,
            blocks: 0,
            has_tail: false,
        };
        Image {
            hash: mounted.hash.expect("mkreiserfs sets it"),
            root: mounted.tree.root(),
            device,
            mounted,
            space,
            block_size,
            objects: BTreeMap::from([(0, root)]),
            next: 1000,
            random: StdRng::seed_from_u64(seed),
        }
    }

    /// A batch of some mutations, published.
    fn batch(&mut self, steps: u32) {
        for _ in 0..steps {
            self.step();
        }
        let mounted = &self.mounted;
        let mut staged = Staged::new(&mounted.tree, &mut self.space);
        let free = staged.space().left();
        let block = (SUPERBLOCK / self.block_size as u64) as u32;
        let at = (SUPERBLOCK % self.block_size as u64) as usize;
        let superblock = &mut staged.edit(block).expect("it can be read")[at..];
        superblock[4..8].copy_from_slice(&free.to_le_bytes());
        superblock[8..12].copy_from_slice(&self.root.block.to_le_bytes());
        superblock[68..70].copy_from_slice(&(self.root.levels + 1).to_le_bytes());
        // Numbers up to the next one are in use.
        let is_new = mounted.superblock.version() == KeyVersion::V3_6;
        let map = if is_new { 204 } else { 76 };
        superblock[48..50].copy_from_slice(&2_u16.to_le_bytes());
        superblock[map..map + 4].copy_from_slice(&1_u32.to_le_bytes());
        superblock[map + 4..map + 8].copy_from_slice(&self.next.to_le_bytes());
        let used = staged.space().used.clone();
        let bitmaps = mounted.tree.bitmaps;
        for (number, used) in used.chunks(bitmaps.bits as usize).enumerate() {
            let bits = staged
                .edit(bitmaps.block(number as u32))
                .expect("it can be read");
            for (at, used) in used.chunks(8).enumerate() {
                let whole = used
                    .iter()
                    .rev()
                    .fold(0, |byte, used| byte << 1 | u8::from(*used));
                let missing = 8 - used.len() as u32;
                bits[at] = whole | !(u8::MAX >> missing);
            }
        }
        let changed = staged.changed();
        mounted.tree.publish(&changed, &[], self.root);
        mounted.tree.buffers.write_out().expect("it is memory");
    }

    /// Mutations as one batch.
    fn edit<T>(
        &mut self,
        change: impl FnOnce(&mut Editor<'_, Staged<'_, &mut Space>>) -> Result<T>,
    ) -> T {
        let tree = &self.mounted.tree;
        let mut staged = Staged::new(tree, &mut self.space);
        let mut editor = Editor::new(&mut staged, self.root);
        let value = change(&mut editor).expect("it succeeds");
        self.root = editor.root;
        let (changed, freed) = (staged.changed(), staged.freed().to_vec());
        assert_eq!(changed.len(), staged.changed_count());
        tree.publish(&changed, &freed, self.root);
        for block in std::mem::take(&mut self.space.freed) {
            self.space.free(block);
        }
        value
    }

    fn directory(&self, number: usize) -> Directory {
        let object = &self.objects[&number];
        Directory {
            object: object.key,
            hash: self.hash,
            pads: object.stat.is_new,
        }
    }

    fn file(&self, number: usize) -> FileKey {
        let object = &self.objects[&number];
        FileKey::of(object.key, &object.stat)
    }

    fn freed(&mut self, freed: &Freed) {
        for &(first, count) in freed {
            for block in first..first + count {
                self.space.free(block);
            }
        }
    }

    /// Writes the stat data as what the object holds demands.
    fn settle(&mut self, number: usize) {
        let block_size = self.block_size as u32;
        let object = self.objects.get_mut(&number).expect("it is there");
        object.stat.sectors = match object.stat.kind {
            FileKind::Regular => {
                (object.blocks as u32 + u32::from(object.has_tail)) * (block_size / 512)
            }
            _ => (object.stat.size as u32).div_ceil(512),
        };
        let (key, stat) = (object.key, object.stat);
        self.edit(|editor| editor.write_stat(key, &stat));
        let again = crate::load::inode::stat(&self.mounted, key);
        assert_eq!(again, Ok(stat));
    }

    fn any(&mut self, is_wanted: impl Fn(&Object) -> bool) -> Option<usize> {
        let wanted = self.objects.iter().filter(|(_, object)| is_wanted(object));
        let wanted: Vec<usize> = wanted.map(|(number, _)| *number).collect();
        let at = self.random.random_range(0..wanted.len().max(1));
        wanted.get(at).copied()
    }

    fn step(&mut self) {
        match self.random.random_range(0..10) {
            0..4 => self.create(),
            4..8 => self.change(),
            _ => self.remove(),
        }
    }

    fn create(&mut self) {
        let is_directory = |object: &Object| object.stat.kind == FileKind::Directory;
        let parent = self.any(is_directory).expect("there is the root");
        let kind = match self.random.random_range(0..8) {
            0 => FileKind::Directory,
            1 => FileKind::Symlink,
            2 => FileKind::Socket,
            _ => FileKind::Regular,
        };
        let parent_key = self.objects[&parent].key;
        let key = ObjectKey {
            dir_id: parent_key.object_id,
            object_id: self.next,
        };
        self.next += 1;
        let number = key.object_id as usize;
        let is_new = self.mounted.superblock.version() == KeyVersion::V3_6;
        let mut stat = model::stat(is_new, kind);
        stat.link_count = if kind == FileKind::Directory { 2 } else { 1 };
        self.edit(|editor| editor.insert_stat(key, &stat));
        let object = Object {
            key,
            stat,
            names: BTreeMap::new(),
            parent,
            blocks: 0,
            has_tail: false,
        };
        self.objects.insert(number, object);
        if kind == FileKind::Directory {
            let directory = self.directory(number);
            let size = self.edit(|editor| editor.make_directory(&directory, parent_key));
            let parent = self.objects.get_mut(&parent).expect("it is there");
            parent.stat.link_count += 1;
            self.objects
                .get_mut(&number)
                .expect("it is there")
                .stat
                .size = u64::from(size);
        }
        if kind == FileKind::Symlink {
            let length = self.random.random_range(1..100);
            let target = vec![b'l'; length];
            let file = self.file(number);
            self.edit(|editor| editor.put_tail(&file, 0, &target));
            let object = self.objects.get_mut(&number).expect("it is there");
            object.stat.size = length as u64;
            object.stat.first_direct = (!is_new).then_some(1);
        }
        self.settle(number);
        let length = self.random.random_range(1..60);
        let name = format!("{number}{}", "n".repeat(length)).into_bytes();
        let of = self.directory(parent);
        let grown = self.edit(|editor| editor.add_entry(&of, &name, key));
        let parent_object = self.objects.get_mut(&parent).expect("it is there");
        parent_object.names.insert(name, number);
        parent_object.stat.size += u64::from(grown);
        self.settle(parent);
    }

    fn change(&mut self) {
        let Some(number) = self.any(|object| object.stat.kind == FileKind::Regular) else {
            return;
        };
        let file = self.file(number);
        let block_size = self.block_size as u64;
        let mut freed = Freed::new();
        self.edit(|editor| editor.remove_tail(&file));
        let end = self.objects[&number].blocks;
        let keep = if self.random.random_range(0..4) == 0 {
            self.random.random_range(0..=end)
        } else {
            end
        };
        let size = keep * block_size;
        while !self.edit(|editor| editor.truncate(&file, size, 2, &mut freed)) {}
        let count = self.random.random_range(0..80);
        for at in keep..keep + count {
            let block = self.space.allocate().expect("there is room");
            let at = LogicalBlock(at);
            self.edit(|editor| editor.map(&file, at, (block, 1), 1, &mut freed));
        }
        self.freed(&freed);
        let end = keep + count;
        let tail = self.random.random_range(0..=direct_max(self.block_size));
        let tail = if self.random.random() { tail } else { 0 };
        self.edit(|editor| editor.put_tail(&file, end * block_size, &vec![b't'; tail]));
        let object = self.objects.get_mut(&number).expect("it is there");
        object.blocks = end;
        object.has_tail = tail > 0;
        object.stat.size = end * block_size + tail as u64;
        let first = (end * block_size) as u32 + 1;
        object.stat.first_direct = (tail > 0 && !object.stat.is_new).then_some(first);
        self.settle(number);
    }

    fn remove(&mut self) {
        let Some(number) = self.any(|object| object.names.is_empty() && object.key != key::ROOT)
        else {
            return;
        };
        let object = self.objects.remove(&number).expect("it is there");
        let of = self.directory(object.parent);
        let parent = self.objects.get_mut(&object.parent).expect("it is there");
        let found = parent.names.iter().find(|(_, named)| **named == number);
        let name = found.expect("it has a name").0.clone();
        parent.names.remove(&name);
        if object.stat.kind == FileKind::Directory {
            parent.stat.link_count -= 1;
        }
        let shrunk = self.edit(|editor| {
            let found = editor.find_entry(&of, &name)?.expect("it has a name");
            assert_eq!(found.object, object.key);
            editor.remove_entry(&of, &name)
        });
        let parent = self.objects.get_mut(&object.parent).expect("it is there");
        parent.stat.size -= u64::from(shrunk);
        self.settle(object.parent);
        let mut freed = Freed::new();
        while !self.edit(|editor| editor.remove_object(object.key, 1, &mut freed)) {}
        self.freed(&freed);
    }
}

#[test]
fn images_are_sound_after_mutations() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("image");
    let forms = [
        (512, NameHash::R5, KeyVersion::V3_6),
        (1024, NameHash::Tea, KeyVersion::V3_6),
        (2048, NameHash::Rupasov, KeyVersion::V3_6),
        (4096, NameHash::R5, KeyVersion::V3_6),
        (4096, NameHash::Rupasov, KeyVersion::V3_5),
        (8192, NameHash::R5, KeyVersion::V3_6),
    ];
    let mut judged = 0;
    for (block_size, hash, version) in forms {
        let Some(bytes) = made(&path, block_size, hash, version) else {
            println!("mkreiserfs makes no blocks of {block_size} bytes");
            continue;
        };
        let mut image = Image::new(&bytes, block_size, block_size as u64);
        for _ in 0..4 {
            image.batch(60);
            let mut bytes = vec![0; image.device.len_bytes() as usize];
            image.device.read_at(0, &mut bytes).expect("it is memory");
            std::fs::write(&path, &bytes).expect("there is room");
            reiserfsck(&path);
            judged += 1;
        }
        println!(
            "{block_size}: {} levels, {} objects",
            image.root.levels,
            image.objects.len()
        );
    }
    assert!(judged >= 16);
}
