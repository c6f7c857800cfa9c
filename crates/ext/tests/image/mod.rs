//! Makes images with the tools of e2fsprogs, opens them, and walks them.
// Each test program uses a part of this.
#![allow(dead_code)]

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use finefs_block::{Access, BlockDevice, FileDevice};
use finefs_ext::{ExtOptions, ExtStore, MountError};
use finefs_namespace::{Error, ExtentState, FileKind, Ino, InodeImage, Result, Store};

/// Runs a tool, which must succeed.
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Makes an image: `options` are mke2fs's.
pub fn make(directory: &Path, size: &str, options: &[&str]) -> PathBuf {
    let path = directory.join("image");
    let _ = fs::remove_file(&path);
    run(Command::new("mke2fs")
        .arg("-q")
        .args(options)
        .arg(&path)
        .arg(size));
    path
}

/// Makes an image of ext4, of 32 MiB: `options` are mke2fs's.
pub fn make_ext4(directory: &Path, options: &str) -> PathBuf {
    let options: Vec<&str> = ["-t", "ext4"]
        .into_iter()
        .chain(options.split_whitespace())
        .collect();
    make(directory, "32M", &options)
}

/// Runs debugfs's commands on an image, writing.
pub fn debugfs(image: &Path, commands: &str) -> String {
    let script = image.with_extension("debugfs");
    fs::write(&script, commands).unwrap();
    let output = Command::new("debugfs")
        .args(["-w", "-f"])
        .arg(&script)
        .arg(image)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    // It succeeds whatever its commands do; its banner comes on stderr.
    let complaints: Vec<&str> = errors
        .lines()
        .filter(|line| !line.starts_with("debugfs "))
        .collect();
    assert!(
        output.status.success() && complaints.is_empty(),
        "{commands}: {complaints:?}"
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What e2fsck finds in an image, without repairing.
pub fn check(image: &Path) -> Output {
    Command::new("e2fsck")
        .args(["-fn"])
        .arg(image)
        .output()
        .unwrap()
}

/// e2fsck must find nothing.
pub fn assert_clean(image: &Path) {
    let output = check(image);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

/// Opens an image.
pub fn open(image: &Path, is_read_only: bool) -> std::result::Result<ExtStore, MountError> {
    let access = if is_read_only {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(image, access).unwrap());
    ExtStore::open(
        device,
        &ExtOptions {
            is_read_only,
            ..ExtOptions::default()
        },
    )
}

/// Reads a whole file, at most `limit_bytes` of it.
pub fn read_file(store: &ExtStore, image: &InodeImage, limit_bytes: u64) -> Result<Vec<u8>> {
    if let Some(error) = &image.unreadable {
        return Err(error.clone());
    }
    if let Some(inline) = &image.inline {
        return Ok(inline.clone());
    }
    let block_size = u64::from(store.geometry().block_size_bytes);
    let size = image.attributes.size_bytes.min(limit_bytes);
    let mut bytes = vec![0; size as usize];
    for extent in store.load_extents(image.attributes.ino)? {
        let start = extent.logical.offset_bytes(block_size);
        if extent.state == ExtentState::Unwritten || start >= size {
            continue;
        }
        let end = extent.end().offset_bytes(block_size).min(size);
        store.read(extent.physical, 0, &mut bytes[start as usize..end as usize])?;
    }
    Ok(bytes)
}

/// The inode at a path.
pub fn lookup(store: &ExtStore, path: &str) -> Result<Ino> {
    let mut ino = store.geometry().root;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let entries = store.load_directory(ino)?.entries;
        let entry = entries.iter().find(|entry| entry.name == name.as_bytes());
        ino = entry.ok_or(Error::NotFound)?.ino;
    }
    Ok(ino)
}

/// One object of a tree, comparable between a directory of the host and an image.
#[derive(Clone, PartialEq, Eq)]
pub struct Object {
    pub kind: FileKind,
    pub permissions: u32,
    pub link_count: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified: (i64, u32),
    pub size_bytes: u64,
    pub device: u64,
    pub content: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sum = self
            .content
            .iter()
            .fold(0_u64, |sum, &byte| sum * 31 % 0xffff_fffb + u64::from(byte));
        let xattrs: Vec<_> = self
            .xattrs
            .iter()
            .map(|(name, value)| (String::from_utf8_lossy(name), value.len()))
            .collect();
        f.debug_struct("Object")
            .field("kind", &self.kind)
            .field("permissions", &format_args!("{:o}", self.permissions))
            .field("link_count", &self.link_count)
            .field("owner", &(self.uid, self.gid))
            .field("modified", &self.modified)
            .field("size_bytes", &self.size_bytes)
            .field("device", &self.device)
            .field(
                "content",
                &format_args!("{} bytes, sum {sum:#x}", self.content.len()),
            )
            .field("xattrs", &xattrs)
            .finish()
    }
}

/// What a walk over a whole image gives.
#[derive(Default, Debug)]
pub struct Walked {
    pub objects: BTreeMap<String, Object>,
    /// What could not be read, by path.
    pub errors: BTreeMap<String, Error>,
}

/// Reads everything that can be reached from the root.
pub fn walk(store: &ExtStore) -> Walked {
    walk_with(store, true)
}

/// The same; the contents are dropped again unless `keeps_content`.
pub fn walk_with(store: &ExtStore, keeps_content: bool) -> Walked {
    let mut walked = Walked::default();
    let mut seen = HashSet::new();
    let mut todo = vec![(String::new(), store.geometry().root)];
    while let Some((path, ino)) = todo.pop() {
        match visit(store, ino) {
            Ok((mut object, error)) => {
                if !keeps_content {
                    object.content = Vec::new();
                    object.xattrs = BTreeMap::new();
                }
                let is_directory = object.kind == FileKind::Directory;
                walked.objects.insert(path.clone(), object);
                if let Some(error) = error {
                    walked.errors.insert(path.clone(), error);
                }
                // A damaged image may name a directory twice.
                if !is_directory || !seen.insert(ino) {
                    continue;
                }
            }
            Err(error) => {
                walked.errors.insert(path, error);
                continue;
            }
        }
        match store.load_directory(ino) {
            Ok(directory) => {
                for entry in directory.entries {
                    let name = String::from_utf8_lossy(&entry.name).into_owned();
                    todo.push((format!("{path}/{name}"), entry.ino));
                }
            }
            Err(error) => {
                walked.errors.insert(path, error);
            }
        }
    }
    walked
}

fn visit(store: &ExtStore, ino: Ino) -> Result<(Object, Option<Error>)> {
    let image = store.load_inode(ino)?;
    let attributes = image.attributes;
    assert_eq!(attributes.ino, ino);
    let mut error = None;
    let mut note = |result: Result<Vec<u8>>| {
        result.unwrap_or_else(|problem| {
            error = Some(problem);
            Vec::new()
        })
    };
    let content = match attributes.kind {
        FileKind::Regular => note(read_file(store, &image, 16 << 20)),
        FileKind::Symlink => note(store.load_symlink(ino)),
        _ => Vec::new(),
    };
    let xattrs = match store.load_xattrs(ino) {
        Ok(xattrs) => xattrs.into_iter().collect(),
        Err(problem) => {
            error = Some(problem);
            BTreeMap::new()
        }
    };
    let modified = attributes.times.modified;
    let object = Object {
        kind: attributes.kind,
        permissions: attributes.permissions,
        link_count: attributes.link_count,
        uid: attributes.uid,
        gid: attributes.gid,
        modified: (modified.seconds(), modified.nanoseconds()),
        size_bytes: attributes.size_bytes,
        device: attributes.device,
        content,
        xattrs,
    };
    Ok((object, error))
}

/// The folder of packed images: that of FINEFS_IMAGES, or one beside the workspace.
pub fn packed_images() -> Vec<PathBuf> {
    let folder = std::env::var_os("FINEFS_IMAGES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/images"),
        PathBuf::from,
    );
    let Ok(entries) = fs::read_dir(&folder) else {
        eprintln!("skipped: there is no {}", folder.display());
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "gz" || e == "bz2"))
        .collect();
    paths.sort();
    paths
}

/// Unpacks an image, sparsely. `None` when the tool for it is not installed.
pub fn unpack(packed: &Path, target: &Path) -> Option<()> {
    let is_gzip = packed
        .extension()
        .is_some_and(|extension| extension == "gz");
    let tool = if is_gzip { "gzip" } else { "bzip2" };
    let mut unpacker = Command::new(tool)
        .arg("-dc")
        .arg(packed)
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let status = Command::new("dd")
        .args(["conv=sparse", "bs=4096", "status=none"])
        .arg(format!("of={}", target.display()))
        .stdin(unpacker.stdout.take().unwrap())
        .status()
        .unwrap();
    assert!(
        status.success() && unpacker.wait().unwrap().success(),
        "{}",
        packed.display()
    );
    Some(())
}
