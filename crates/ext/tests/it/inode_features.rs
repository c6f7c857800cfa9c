//! Contents, names and attribute values in inodes (`inline_data`, `ea_inode`): through the
//! namespace, judged by e2fsck and, where it can mount, by the kernel.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::image::{assert_clean, make_ext4};
use crate::kernel_mount::KernelMount;
use crate::trial;
use finefs_ext::OnError;
use finefs_namespace::{
    AllocateMode, Caller, Error, FileFlags, Ino, Namespace, SetAttributes, SyncScope, XattrMode,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A file as it must be.
#[derive(Clone, Default, PartialEq, Debug)]
struct File {
    content: Vec<u8>,
    xattrs: BTreeMap<String, Vec<u8>>,
}

struct World {
    namespace: Namespace,
    random: StdRng,
    files: BTreeMap<String, File>,
}

impl World {
    fn open(image: &Path, seed: u64, files: BTreeMap<String, File>) -> World {
        World {
            namespace: trial::open_with(image, OnError::Continue),
            random: StdRng::seed_from_u64(seed),
            files,
        }
    }

    fn ino(&self, name: &str) -> Ino {
        let root = self.namespace.root();
        let found = self
            .namespace
            .lookup(&Caller::root(), root, name.as_bytes());
        let ino = found.unwrap().ino;
        self.namespace.forget(ino, 1);
        ino
    }

    fn content(&self, ino: Ino) -> Vec<u8> {
        let mut bytes = vec![0; 100_000];
        let length = self.namespace.read(ino, 0, &mut bytes).unwrap();
        bytes.truncate(length);
        bytes
    }

    fn bytes(&mut self, longest: usize) -> Vec<u8> {
        let length = self.random.random_range(0..longest);
        (0..length).map(|_| self.random.random()).collect()
    }

    /// Changes one file; most stay small.
    fn step(&mut self) {
        let number = self.random.random_range(0..60);
        let name = format!("file{number}");
        let (root, caller) = (self.namespace.root(), Caller::root());
        if !self.files.contains_key(&name) {
            let made = self
                .namespace
                .create_file(&caller, root, name.as_bytes(), 0o644);
            self.namespace.forget(made.unwrap().ino, 1);
            self.files.insert(name, File::default());
            return;
        }
        let ino = self.ino(&name);
        let longest = if number % 10 == 0 { 6000 } else { 70 };
        let data = self.bytes(longest);
        let mut file = self.files.remove(&name).unwrap();
        let kind = self.random.random_range(0..12);
        let at = self.random.random_range(0..=file.content.len() + 10);
        match kind {
            0..4 => {
                self.namespace.write(ino, at as u64, &data).unwrap();
                if !data.is_empty() {
                    let end = at + data.len();
                    file.content.resize(file.content.len().max(end), 0);
                    file.content[at..end].copy_from_slice(&data);
                }
            }
            4..6 => {
                self.namespace.append(ino, &data).unwrap();
                file.content.extend(&data);
            }
            6..8 => {
                let change = SetAttributes {
                    size_bytes: Some(at as u64),
                    ..SetAttributes::default()
                };
                self.namespace
                    .set_attributes(&caller, ino, &change)
                    .unwrap();
                file.content.resize(at, 0);
            }
            8 if number % 7 == 0 => {
                let mode = AllocateMode::KeepSize;
                // Block maps know no blocks beyond the end.
                let allocated = self.namespace.allocate(ino, mode, 0, 3000);
                assert!(matches!(allocated, Ok(()) | Err(Error::NotSupported)));
            }
            8..11 => {
                let name = format!("user.{}", self.random.random_range(0..4));
                let mode = XattrMode::Set;
                let set = self
                    .namespace
                    .set_xattr(&caller, ino, name.as_bytes(), &data, mode);
                if set.is_ok() {
                    file.xattrs.insert(name, data);
                }
            }
            _ => {
                self.namespace
                    .remove_file(&caller, root, name.as_bytes())
                    .unwrap();
                return;
            }
        }
        assert_eq!(self.content(ino), file.content, "{name}");
        self.files.insert(name, file);
    }

    fn check(&self) -> usize {
        let mut inline = 0;
        for (name, file) in &self.files {
            let ino = self.ino(name);
            assert_eq!(self.content(ino), file.content, "{name}");
            for (attribute, value) in &file.xattrs {
                let found = self
                    .namespace
                    .xattr(&Caller::root(), ino, attribute.as_bytes());
                assert_eq!(found.as_ref(), Ok(value), "{name}: {attribute}");
            }
            let names = self.namespace.list_xattrs(&Caller::root(), ino).unwrap();
            assert_eq!(names.len(), file.xattrs.len(), "{name}");
            let attributes = self.namespace.attributes(ino).unwrap();
            assert_eq!(attributes.size_bytes, file.content.len() as u64);
            inline += usize::from(attributes.flags.contains(FileFlags::INLINE_DATA));
        }
        inline
    }

    fn end(self, image: &Path) -> BTreeMap<String, File> {
        self.namespace.shut_down().unwrap();
        drop(self.namespace);
        assert_clean(image);
        self.files
    }
}

fn compare_by_kernel(place: &Path, files: &BTreeMap<String, File>) {
    for (name, file) in files {
        let path = place.join(name);
        assert!(fs::read(&path).unwrap() == file.content, "{name}");
        for (attribute, value) in &file.xattrs {
            let output = Command::new("getfattr")
                .args(["--only-values", "-n", attribute])
                .arg(&path)
                .output()
                .unwrap();
            assert!(output.stdout == *value, "{name}: {attribute}");
        }
    }
}

#[test]
fn contents_in_inodes() {
    for (seed, arguments) in [
        (1, "-O inline_data"),
        (
            2,
            "-b 1024 -I 512 -O inline_data,^metadata_csum,^has_journal",
        ),
        (3, "-O inline_data,ea_inode -I 1024"),
        (4, "-b 1024 -O inline_data,^extent,^64bit"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let image = make_ext4(directory.path(), arguments);
        let mut world = World::open(&image, seed, BTreeMap::new());
        for round in 0..3 {
            for step in 0..500 {
                world.step();
                if step % 97 == 0 {
                    world.namespace.sync().unwrap();
                }
            }
            let files = world.end(&image);
            world = World::open(&image, seed + 10 * round, files);
            let inline = world.check();
            assert!(inline > 10, "{arguments}: {inline} in their inodes");
        }
        let mut files = world.end(&image);
        let place = directory.path().join("mount");
        let Some(mount) = KernelMount::new(&image, &place, "loop,rw") else {
            continue;
        };
        compare_by_kernel(&place, &files);
        for (name, file) in files.iter_mut().step_by(2) {
            file.content.extend(vec![b'k'; 5 + name.len() * 9]);
            fs::write(place.join(name), &file.content).unwrap();
        }
        drop(mount);
        assert_clean(&image);
        let world = World::open(&image, seed, files);
        world.check();
        world.end(&image);
    }
}

/// Data in an inode takes no block, but counts in stat(2), as in the kernel: a file without sectors
/// looks like a hole.
#[test]
fn contents_in_inodes_count_as_sectors() {
    let directory = tempfile::tempdir().unwrap();
    let image = make_ext4(directory.path(), "-b 1024 -O inline_data");
    let world = World::open(&image, 1, BTreeMap::new());
    let (root, caller) = (world.namespace.root(), Caller::root());
    let made = world.namespace.create_file(&caller, root, b"f", 0o644);
    let ino = made.unwrap().ino;
    let sectors = |world: &World| world.namespace.attributes(ino).unwrap().sectors;
    assert_eq!(sectors(&world), 0);
    world.namespace.write(ino, 0, b"hello").unwrap();
    assert_eq!(sectors(&world), 1);
    world.namespace.sync().unwrap();
    assert_eq!(sectors(&world), 1);
    world.end(&image);
    let world = World::open(&image, 1, BTreeMap::new());
    assert_eq!(sectors(&world), 1);
    world.namespace.write(ino, 0, &[1; 1000]).unwrap();
    world.namespace.sync().unwrap();
    assert_eq!(sectors(&world), 2);
    world.end(&image);
}

/// What changes how data lies is refused, what is only noted and cannot be set is passed over, as
/// by the kernel.
#[test]
fn flags_that_promise_what_is_not_done_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let image = make_ext4(directory.path(), "-O inline_data");
    let world = World::open(&image, 1, BTreeMap::new());
    let (root, caller) = (world.namespace.root(), Caller::root());
    let made = world.namespace.create_file(&caller, root, b"f", 0o644);
    let ino = made.unwrap().ino;
    let before = world.namespace.attributes(ino).unwrap().flags;
    for flag in [FileFlags::NO_COW, FileFlags::DAX, FileFlags::JOURNAL_DATA] {
        let set = world
            .namespace
            .set_flags(&caller, ino, |flags| flags | flag);
        assert_eq!(set, Err(Error::NotSupported), "{flag:?}");
    }
    let set = |flags| flags | FileFlags::NO_COMPRESS | FileFlags::NO_DUMP;
    world.namespace.set_flags(&caller, ino, set).unwrap();
    let flags = world.namespace.attributes(ino).unwrap().flags;
    assert_eq!(flags, before | FileFlags::NO_DUMP);
    world.end(&image);
}

/// A size is durable with its content when fsync returns: no block tells of it.
#[test]
fn a_sync_of_a_content_in_the_inode_is_a_commit() {
    let directory = tempfile::tempdir().unwrap();
    let image = make_ext4(directory.path(), "-O inline_data");
    let mut world = World::open(&image, 1, BTreeMap::new());
    let (root, caller) = (world.namespace.root(), Caller::root());
    let made = world
        .namespace
        .create_file(&caller, root, b"f", 0o644)
        .unwrap();
    for (content, copy) in [(&b"first"[..], "copy1"), (b"other", "copy2")] {
        world.namespace.write(made.ino, 0, content).unwrap();
        world.namespace.sync_file(made.ino, SyncScope::All).unwrap();
        // As after a crash.
        let copy = directory.path().join(copy);
        fs::copy(&image, &copy).unwrap();
        let seen = World::open(&copy, 1, BTreeMap::new());
        assert_eq!(seen.content(seen.ino("f")), content);
        seen.end(&copy);
    }
    world.files.clear();
    world.end(&image);
}

/// With no block left a small file still grows within its inode, and beyond it finds no space and
/// is as it was.
#[test]
fn growing_out_of_the_inode_finds_no_space_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let image = make_ext4(directory.path(), "-O inline_data -N 64");
    let world = World::open(&image, 1, BTreeMap::new());
    let (root, caller) = (world.namespace.root(), Caller::root());
    let create = |name: &[u8]| {
        world
            .namespace
            .create_file(&caller, root, name, 0o644)
            .unwrap()
            .ino
    };
    let large = create(b"large");
    let small: Vec<Ino> = (0..30)
        .map(|i| create(format!("small{i}").as_bytes()))
        .collect();
    for ino in &small {
        world.namespace.write(*ino, 0, &[1; 50]).unwrap();
    }
    for length in [1 << 20, 1 << 16, 1 << 12] {
        while world.namespace.append(large, &vec![2; length]).is_ok() {}
    }
    // What was reserved and not used comes back with a commit: the first ones may find a block.
    let grown = |ino: &Ino| {
        world.namespace.append(*ino, &[3; 40]).unwrap();
        world.namespace.append(*ino, &[4; 500])
    };
    let outcomes: Vec<_> = small.iter().map(grown).collect();
    assert_eq!(outcomes.last(), Some(&Err(Error::NoSpace)));
    world.namespace.sync().unwrap();
    for (ino, outcome) in small.iter().zip(outcomes) {
        let mut expected = [&[1; 50][..], &[3; 40]].concat();
        if outcome.is_ok() {
            expected.extend([4; 500]);
        }
        assert_eq!(world.content(*ino), expected);
    }
    world.end(&image);
}

/// What the kernel wrote: contents, names and values in inodes, values that files share.
#[test]
fn images_of_the_kernel() {
    let directory = tempfile::tempdir().unwrap();
    let image = make_ext4(directory.path(), "-O inline_data,ea_inode,large_dir");
    let place = directory.path().join("mount");
    let Some(mount) = KernelMount::new(&image, &place, "loop,rw") else {
        return;
    };
    let mut files: BTreeMap<String, File> = BTreeMap::new();
    for number in 0..60_usize {
        let mut file = File {
            content: vec![number as u8; number * number / 4],
            ..File::default()
        };
        let name = format!("file{number}");
        fs::write(place.join(&name), &file.content).unwrap();
        if number % 3 == 0 {
            // Some are equal, and share an inode.
            let value = "v".repeat(2000 + (number % 9) * 7000);
            let set = Command::new("setfattr")
                .args(["-n", "user.large", "-v", &value])
                .arg(place.join(&name))
                .status();
            assert!(set.unwrap().success());
            file.xattrs.insert("user.large".into(), value.into());
        }
        files.insert(name, file);
        let inner = place.join(format!("d{}", number % 4));
        let _ = fs::create_dir(&inner);
        if number < 6 || number % 4 == 1 {
            fs::write(inner.join(format!("n{number}")), "x").unwrap();
        }
    }
    drop(mount);
    let mut world = World::open(&image, 3, files);
    assert!(world.check() > 10);
    let (root, caller) = (world.namespace.root(), Caller::root());
    for number in (0..60).step_by(6) {
        let name = format!("file{number}");
        let ino = world.ino(&name);
        let attribute = b"user.large";
        match number % 4 {
            0 => {
                world
                    .namespace
                    .remove_xattr(&caller, ino, attribute)
                    .unwrap();
                world.files.get_mut(&name).unwrap().xattrs.clear();
            }
            _ => {
                world
                    .namespace
                    .remove_file(&caller, root, name.as_bytes())
                    .unwrap();
                world.files.remove(&name);
            }
        }
    }
    let value = vec![b'w'; 60_000];
    let ino = world.ino("file1");
    let set = (world.namespace).set_xattr(&caller, ino, b"user.ours", &value, XattrMode::Set);
    set.unwrap();
    let xattrs = &mut world.files.get_mut("file1").unwrap().xattrs;
    xattrs.insert("user.ours".into(), value);
    for number in 0..8 {
        // Four directories: some outgrow their inodes, some do not.
        let dir = world.ino(&format!("d{}", number % 2));
        let name = format!("another name {number}");
        let made = world
            .namespace
            .create_file(&caller, dir, name.as_bytes(), 0o600);
        world.namespace.forget(made.unwrap().ino, 1);
    }
    let dir = world.ino("d2");
    world.namespace.remove_file(&caller, dir, b"n2").unwrap();
    world.check();
    let files = world.end(&image);
    let Some(mount) = KernelMount::new(&image, &place, "loop,rw") else {
        return;
    };
    compare_by_kernel(&place, &files);
    for number in 0..8 {
        let path = place.join(format!("d{}/another name {number}", number % 2));
        assert!(path.exists(), "{}", path.display());
    }
    assert!(!place.join("d2/n2").exists());
    // The kernel frees what is ours.
    fs::remove_file(place.join("file1")).unwrap();
    drop(mount);
    assert_clean(&image);
}
