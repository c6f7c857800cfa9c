//! Images with bigalloc: files that the kernel and finefs change by turns hold what a model says,
//! and e2fsck finds nothing after each turn. Without root, or a loop device, finefs has all turns.
//!
//! The kernel leaves holes in clusters; finefs fills these with unwritten blocks.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::image::{assert_clean, debugfs, make};
use crate::kernel_mount::KernelMount;
use finefs_block::{Access, FileDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{
    AllocateMode, Caller, Error, Ino, Namespace, Options, SetAttributes, Store,
};

/// Block size, cluster size.
const SHAPES: [(u64, u64); 4] = [(1024, 2048), (1024, 16384), (4096, 8192), (4096, 65536)];
const FILES: u64 = 6;
const FILE_BYTES_MAX: u64 = 400_000;

/// Files by name, as they must be.
type Model = BTreeMap<String, Vec<u8>>;

/// One who changes files of the root directory.
trait Editor {
    fn write(&self, name: &str, offset: u64, data: &[u8]) -> bool;
    fn punch(&self, name: &str, offset: u64, length: u64);
    fn allocate(&self, name: &str, offset: u64, length: u64) -> bool;
    fn truncate(&self, name: &str, size: u64);
    fn remove(&self, name: &str);
    fn read(&self, name: &str) -> Vec<u8>;
    fn sync(&self);
}

struct Kernel(PathBuf);

impl Kernel {
    fn open(&self, name: &str) -> File {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        options.open(self.0.join(name)).unwrap()
    }

    fn fallocate(&self, name: &str, mode: i32, offset: u64, length: u64) -> bool {
        let file = self.open(name);
        // SAFETY: a descriptor that is open, and numbers.
        let outcome =
            unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, length as i64) };
        outcome == 0
    }
}

impl Editor for Kernel {
    fn write(&self, name: &str, offset: u64, data: &[u8]) -> bool {
        self.open(name).write_all_at(data, offset).is_ok()
    }

    fn punch(&self, name: &str, offset: u64, length: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        assert!(self.fallocate(name, mode, offset, length));
    }

    fn allocate(&self, name: &str, offset: u64, length: u64) -> bool {
        self.fallocate(name, libc::FALLOC_FL_KEEP_SIZE, offset, length)
    }

    fn truncate(&self, name: &str, size: u64) {
        self.open(name).set_len(size).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.0.join(name)).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap()
    }

    fn sync(&self) {
        self.open("file 0").sync_all().unwrap();
    }
}

impl Editor for Namespace {
    fn write(&self, name: &str, offset: u64, data: &[u8]) -> bool {
        match Namespace::write(self, ino(self, name), offset, data) {
            Ok(length) => length == data.len(),
            Err(Error::NoSpace) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn punch(&self, name: &str, offset: u64, length: u64) {
        let mode = AllocateMode::PunchHole;
        Namespace::allocate(self, ino(self, name), mode, offset, length).unwrap();
    }

    fn allocate(&self, name: &str, offset: u64, length: u64) -> bool {
        let mode = AllocateMode::KeepSize;
        Namespace::allocate(self, ino(self, name), mode, offset, length).is_ok()
    }

    fn truncate(&self, name: &str, size: u64) {
        let wanted = SetAttributes {
            size_bytes: Some(size),
            ..SetAttributes::default()
        };
        self.set_attributes(&Caller::root(), ino(self, name), &wanted)
            .unwrap();
    }

    fn remove(&self, name: &str) {
        self.remove_file(&Caller::root(), self.root(), name.as_bytes())
            .unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        let mut content = vec![0; FILE_BYTES_MAX as usize + 1];
        let length = Namespace::read(self, ino(self, name), 0, &mut content).unwrap();
        content.truncate(length);
        content
    }

    fn sync(&self) {
        Namespace::sync(self).unwrap();
    }
}

/// The number of a file, which is made where it is not there.
fn ino(namespace: &Namespace, name: &str) -> Ino {
    let (caller, root) = (Caller::root(), namespace.root());
    let found = match namespace.lookup(&caller, root, name.as_bytes()) {
        Err(Error::NotFound) => namespace.create_file(&caller, root, name.as_bytes(), 0o644),
        found => found,
    };
    let ino = found.unwrap().ino;
    namespace.forget(ino, 1);
    ino
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}

/// One random change, of the files and of the model. Small ranges are what meets within clusters.
fn step(editor: &dyn Editor, model: &mut Model, dice: &mut Dice) {
    let name = format!("file {}", dice.below(FILES));
    let longest = [700, 5_000, 40_000, 150_000][dice.below(4) as usize];
    let (offset, length) = (dice.below(FILE_BYTES_MAX / 2), 1 + dice.below(longest));
    let content = model.entry(name.clone()).or_default();
    let (from, to) = (offset as usize, (offset + length) as usize);
    match dice.below(20) {
        0..9 => {
            let byte = 1 + dice.below(255) as u8;
            if editor.write(&name, offset, &vec![byte; length as usize]) {
                content.resize(content.len().max(to), 0);
                content[from..to].fill(byte);
            }
        }
        9..14 => {
            editor.punch(&name, offset, length);
            let end = to.min(content.len());
            if from < end {
                content[from..end].fill(0);
            }
        }
        14..16 => {
            editor.allocate(&name, offset, length);
        }
        16..19 => {
            let size = dice.below(FILE_BYTES_MAX / 2);
            editor.truncate(&name, size);
            content.resize(size as usize, 0);
        }
        _ => {
            editor.truncate(&name, 0);
            editor.remove(&name);
            model.remove(&name);
        }
    }
}

fn compare(editor: &dyn Editor, model: &Model, when: &str) {
    for (name, content) in model {
        let found = editor.read(name);
        assert_eq!(found.len(), content.len(), "{when}: size of {name}");
        let differs = (0..found.len()).find(|at| found[*at] != content[*at]);
        assert_eq!(differs, None, "{when}: {name} differs from there on");
    }
}

fn open(image: &Path) -> Namespace {
    let device = FileDevice::open(image, Access::ReadWrite).unwrap();
    let store = ExtStore::open(Arc::new(device), &ExtOptions::default()).unwrap();
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
    Namespace::without_thread(Arc::new(store), Options::default()).unwrap()
}

fn end(namespace: Namespace) {
    namespace.shut_down().unwrap();
}

fn take_turns((block, cluster): (u64, u64), seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let (block, cluster) = (block.to_string(), cluster.to_string());
    let options = ["-t", "ext4", "-O", "bigalloc", "-b", &block, "-C", &cluster];
    let image = make(directory.path(), "16M", &options);
    let place = directory.path().join("mount");
    let (mut model, mut dice) = (Model::new(), Dice(seed));
    for turn in 0..6 {
        let when = format!("{block}/{cluster}, seed {seed}, turn {turn}");
        let mount = (turn % 2 == 0).then(|| KernelMount::new(&image, &place, "loop"));
        if let Some(mount) = mount.flatten() {
            let kernel = Kernel(place.clone());
            compare(&kernel, &model, &when);
            (0..60).for_each(|_| step(&kernel, &mut model, &mut dice));
            drop(mount);
        } else {
            let namespace = open(&image);
            compare(&namespace, &model, &when);
            for _ in 0..4 {
                (0..30).for_each(|_| step(&namespace, &mut model, &mut dice));
                Editor::sync(&namespace);
            }
            compare(&namespace, &model, &when);
            end(namespace);
        }
        assert_clean(&image);
    }
    let namespace = open(&image);
    compare(&namespace, &model, "at the end");
    for name in model.keys() {
        namespace.remove(name);
    }
    end(namespace);
    assert_clean(&image);
}

#[test]
fn the_kernel_and_finefs_take_turns() {
    let rounds = std::env::var("FINEFS_ROUNDS").map_or(2, |text| text.parse().unwrap());
    for shape in SHAPES {
        (0..rounds).for_each(|seed| take_turns(shape, seed));
    }
}

/// A crash in the middle of a truncate: the file is an orphan with links, its size is set.
#[test]
fn an_orphan_is_cut_within_a_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["-t", "ext4", "-O", "bigalloc", "-b", "1024", "-C", "16384"];
    let image = make(directory.path(), "16M", &options);
    let namespace = open(&image);
    let number = ino(&namespace, "file");
    assert!(Editor::write(&namespace, "file", 0, &[7; 100_000]));
    end(namespace);
    let script = format!("sif <{number}> size 20000\nssv last_orphan {number}\n");
    debugfs(&image, &script);
    let namespace = open(&image);
    assert_eq!(Editor::read(&namespace, "file"), [7; 20_000]);
    Editor::truncate(&namespace, "file", 30_000);
    let expected = [vec![7; 20_000], vec![0; 10_000]].concat();
    let found = Editor::read(&namespace, "file");
    assert!(found == expected, "what was cut shows again");
    let sectors = namespace.attributes(number).unwrap().sectors;
    assert_eq!(sectors, 2 * 16384 / 512);
    end(namespace);
    assert_clean(&image);
}

/// All space can be had, in whole clusters, and comes back.
#[test]
fn an_image_is_filled_to_the_last_cluster() {
    for (block, cluster) in SHAPES {
        let directory = tempfile::tempdir().unwrap();
        let (block, cluster_text) = (block.to_string(), cluster.to_string());
        let options = [
            "-t", "ext4", "-m", "0", "-O", "bigalloc", "-b", &block, "-C",
        ];
        let options = [&options[..], &[&*cluster_text]].concat();
        let image = make(directory.path(), "8M", &options);
        let namespace = open(&image);
        let free = |namespace: &Namespace| {
            let space = namespace.statfs();
            (space.blocks_free, space.blocks_available)
        };
        let before = free(&namespace);
        let names: Vec<String> = (0..FILES).map(|number| format!("file {number}")).collect();
        // A byte of each cluster, of some files by turns; then whole clusters.
        let spread = (0..).flat_map(|at| names.iter().map(move |name| (name, at * cluster)));
        let mut taken = 0;
        for (name, offset) in spread {
            taken += 1;
            if !Editor::write(&namespace, name, offset, &[3]) {
                break;
            }
        }
        let behind = 1 << 30;
        for at in 0.. {
            taken += 1;
            let data = vec![4; cluster as usize];
            if !Editor::write(&namespace, &names[0], behind + at * cluster, &data) {
                break;
            }
        }
        assert!(
            taken > 50 && taken * cluster <= 8 << 20,
            "{taken} clusters were taken"
        );
        Editor::sync(&namespace);
        let (_, available) = free(&namespace);
        let left = available * block.parse::<u64>().unwrap();
        assert!(left <= 2 * cluster, "{left} bytes are left");
        end(namespace);
        assert_clean(&image);
        let namespace = open(&image);
        names.iter().for_each(|name| namespace.remove(name));
        Editor::sync(&namespace);
        let after = free(&namespace);
        let grown = before.0 - after.0;
        assert!(grown * 20 < before.0, "{before:?} before, {after:?} after");
        end(namespace);
        assert_clean(&image);
    }
}
