//! An image with an encrypted directory, and what the kernel and finefs see of it with the key.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use finefs_block::{Access, FileDevice};
use finefs_ext::{ExtOptions, ExtStore, MasterKey};
use finefs_namespace::{Caller, FileKind, Ino, Namespace, Options, Store};

use crate::image::{assert_clean, run};
use crate::kernel_mount::KernelMount;
use crate::trial;

pub const KEY: [u8; 64] = [0x5a; 64];

/// What is at a path.
#[derive(Clone, PartialEq, Eq)]
pub enum Seen {
    Directory,
    File(Vec<u8>),
    Link(Vec<u8>),
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Seen::Directory => write!(f, "directory"),
            Seen::File(content) => write!(f, "file of {} bytes", content.len()),
            Seen::Link(target) => write!(f, "link of {} bytes", target.len()),
        }
    }
}

pub type Tree = BTreeMap<Vec<u8>, Seen>;

/// An image with an encrypted directory `d`.
pub struct World {
    _directory: tempfile::TempDir,
    pub image: PathBuf,
    pub place: PathBuf,
}

/// Gives the kernel the key; its identifier.
pub fn add_key(place: &Path) -> String {
    let mut child = Command::new("xfs_io")
        .args(["-c", "add_enckey"])
        .arg(place)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&KEY).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.trim().rsplit(' ').next().unwrap().to_owned()
}

/// How a directory is to be encrypted.
#[derive(Debug)]
pub struct Policy {
    /// For contents and for names.
    pub modes: (u8, u8),
    pub flags: u8,
}

impl Policy {
    /// Lets the kernel give it to an empty directory.
    pub fn set(&self, dir: &Path, key: &str) -> Output {
        let (contents, names) = self.modes;
        let flags = self.flags;
        let command = format!("set_encpolicy -v 2 -c {contents} -n {names} -f {flags} {key}");
        let mut xfs_io = Command::new("xfs_io");
        xfs_io.args(["-c", &command]).arg(dir).output().unwrap()
    }
}

impl World {
    /// Made by the kernel; `None` where it cannot.
    pub fn new(arguments: &str, flags: u8) -> Option<World> {
        World::with_modes(arguments, flags, (1, 4))
    }

    /// With these modes for contents and for names.
    pub fn with_modes(arguments: &str, flags: u8, modes: (u8, u8)) -> Option<World> {
        let directory = tempfile::tempdir().unwrap();
        let world = World {
            image: directory.path().join("image"),
            place: directory.path().join("mount"),
            _directory: directory,
        };
        run(Command::new("mke2fs")
            .args(["-q", "-F", "-t", "ext4", "-O", "encrypt"])
            .args(arguments.split_whitespace())
            .arg(&world.image)
            .arg("64M"));
        let _mount = world.mount("loop,rw")?;
        let dir = world.place.join("d");
        fs::create_dir(&dir).unwrap();
        let policy = Policy { modes, flags };
        let output = policy.set(&dir, &add_key(&world.place));
        if !output.stderr.is_empty() {
            eprintln!("passed over: {policy:?}: {output:?}");
            return None;
        }
        // The kernel looks for the ciphers when there is something to encrypt.
        match fs::write(dir.join("name"), b"content") {
            Ok(()) => fs::remove_file(dir.join("name")).unwrap(),
            Err(error) if error.raw_os_error() == Some(libc::ENOPKG) => {
                eprintln!("passed over: {policy:?}: the kernel has no such cipher");
                return None;
            }
            Err(error) => panic!("{policy:?}: {error}"),
        }
        fs::create_dir(world.place.join("plain")).unwrap();
        Some(world)
    }

    pub fn mount(&self, options: &str) -> Option<KernelMount> {
        KernelMount::new(&self.image, &self.place, options)
    }

    pub fn open(&self, access: Access, keys: &[&[u8]]) -> Namespace {
        open_image(&self.image, access, keys)
    }

    pub fn check(&self) {
        assert_clean(&self.image);
    }

    /// What the kernel sees with the key.
    pub fn seen_by_kernel(&self) -> Tree {
        let _mount = self.mount("loop,rw").unwrap();
        add_key(&self.place);
        let mut tree = Tree::new();
        walk_host(&self.place.join("d"), b"d", &mut tree);
        tree
    }

    pub fn seen_by_finefs(&self) -> Tree {
        let namespace = self.open(Access::ReadOnly, &[&KEY]);
        let mut tree = Tree::new();
        walk(&namespace, find(&namespace, b"d"), b"d", &mut tree);
        tree
    }
}

/// An image with these keys.
pub fn open_image(image: &Path, access: Access, keys: &[&[u8]]) -> Namespace {
    trial::keep_messages();
    let device = Arc::new(FileDevice::open(image, access).unwrap());
    let options = ExtOptions {
        is_read_only: access == Access::ReadOnly,
        keys: keys
            .iter()
            .map(|raw| MasterKey::new(raw).unwrap())
            .collect(),
        ..ExtOptions::default()
    };
    let store = ExtStore::open(device, &options).unwrap();
    let is_read_only = access == Access::ReadOnly;
    assert_eq!(
        store.geometry().is_read_only,
        is_read_only,
        "{:?}",
        store.notes()
    );
    Namespace::without_thread(Arc::new(store), Options::default()).unwrap()
}

pub fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    [path, b"/", name].concat()
}

pub fn walk_host(dir: &Path, path: &[u8], tree: &mut Tree) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let (host, path) = (entry.path(), joined(path, entry.file_name().as_bytes()));
        let kind = entry.file_type().unwrap();
        let seen = if kind.is_dir() {
            walk_host(&host, &path, tree);
            Seen::Directory
        } else if kind.is_symlink() {
            let target = fs::read_link(&host).unwrap();
            let length = fs::symlink_metadata(&host).unwrap().len();
            assert_eq!(length, target.as_os_str().len() as u64);
            Seen::Link(target.into_os_string().into_vec())
        } else {
            Seen::File(fs::read(&host).unwrap())
        };
        tree.insert(path, seen);
    }
}

pub fn walk(namespace: &Namespace, dir: Ino, path: &[u8], tree: &mut Tree) {
    let mut names = Vec::new();
    let listed = namespace.read_directory(dir, 2, &mut |entry| {
        names.push((entry.name.to_vec(), entry.ino));
        true
    });
    listed.unwrap();
    names.retain(|(name, _)| name != b"." && name != b"..");
    for (name, ino) in names {
        let path = joined(path, &name);
        let attributes = namespace.attributes(ino).unwrap();
        let size_bytes = attributes.size_bytes;
        let seen = match attributes.kind {
            FileKind::Directory => {
                walk(namespace, ino, &path, tree);
                Seen::Directory
            }
            FileKind::Symlink => {
                let target = namespace.read_symlink(ino).unwrap();
                assert_eq!(target.len() as u64, size_bytes);
                Seen::Link(target)
            }
            _ => {
                let mut content = vec![0; size_bytes as usize];
                let length = namespace.read(ino, 0, &mut content).unwrap();
                assert_eq!(length as u64, size_bytes);
                Seen::File(content)
            }
        };
        tree.insert(path, seen);
    }
}

pub fn find(namespace: &Namespace, path: &[u8]) -> Ino {
    let names = path.split(|byte| *byte == b'/');
    names.fold(namespace.root(), |dir, name| {
        let ino = namespace.lookup(&Caller::root(), dir, name).unwrap().ino;
        namespace.forget(ino, 1);
        ino
    })
}
