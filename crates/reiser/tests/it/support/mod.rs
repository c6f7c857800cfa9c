//! Images, and reading all of them.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod reiserfsck;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use finefs_block::MemoryDevice;
use finefs_namespace::{Attributes, Error, FileKind, Ino, Store};
use finefs_reiser::{ReiserOptions, ReiserStore};

/// An image of `tests/images`, unpacked.
pub fn unpacked(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/images")
        .join(name);
    let output = Command::new("xz")
        .arg("-dc")
        .arg(path)
        .output()
        .expect("xz runs");
    assert!(output.status.success(), "{name} is there");
    output.stdout
}

/// What mkreiserfs makes of so many MiB.
pub fn made(mebibytes: u64, options: &[&str]) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file()
        .set_len(mebibytes << 20)
        .expect("there is room");
    let made = Command::new("mkreiserfs")
        .args(["-q", "-q", "-f", "-f"])
        .args(options)
        .arg(file.path())
        .output()
        .expect("mkreiserfs runs");
    assert!(made.status.success(), "{made:?}");
    std::fs::read(file.path()).expect("it is there")
}

/// [`reiserfsck::reiserfsck`] of an image's bytes.
pub fn reiserfsck(bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), bytes).expect("there is room");
    reiserfsck::reiserfsck(file.path());
}

/// Mounts bytes.
pub fn mount(bytes: &[u8]) -> Result<ReiserStore, String> {
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let options = ReiserOptions {
        is_read_only: true,
        ..ReiserOptions::default()
    };
    ReiserStore::open(device, &options).map_err(|error| error.to_string())
}

/// What there is at a path, or why it cannot be read.
pub type Seen = Result<(Attributes, Vec<u8>), Error>;

/// The most that is read of a file, and the most files.
const READ_MAX: u64 = 1 << 20;
const FILES_MAX: usize = 5000;

/// Reads all that can be reached, in the order of paths. The content of a file is its bytes (the
/// first MiB), that of a link its target.
pub fn walk(store: &ReiserStore) -> BTreeMap<Vec<u8>, Seen> {
    let mut seen = BTreeMap::new();
    let mut entered = HashSet::new();
    let mut todo = vec![(b".".to_vec(), store.geometry().root)];
    while let Some((path, ino)) = todo.pop() {
        let found = look(store, ino);
        let is_directory = matches!(&found, Ok((it, _)) if it.kind == FileKind::Directory);
        seen.insert(path.clone(), found);
        if !is_directory || !entered.insert(ino) || seen.len() > FILES_MAX {
            continue;
        }
        match store.load_directory(ino) {
            Ok(directory) => todo.extend(
                directory
                    .entries
                    .into_iter()
                    .map(|entry| ([&path[..], b"/", &entry.name].concat(), entry.ino)),
            ),
            Err(error) => {
                seen.insert(path, Err(error));
            }
        }
    }
    seen
}

fn look(store: &ReiserStore, ino: Ino) -> Seen {
    let attributes = store.load_inode(ino)?.attributes;
    store.load_xattrs(ino)?;
    let content = match attributes.kind {
        FileKind::Regular => content(store, ino, attributes.size_bytes)?,
        FileKind::Symlink => store.load_symlink(ino)?,
        _ => Vec::new(),
    };
    Ok((attributes, content))
}

fn content(store: &ReiserStore, ino: Ino, size: u64) -> Result<Vec<u8>, Error> {
    let block = u64::from(store.geometry().block_size_bytes);
    let mut content = vec![0; size.min(READ_MAX) as usize];
    for extent in store.load_extents(ino)? {
        let start = extent.logical.offset_bytes(block);
        let end = extent.end().offset_bytes(block).min(content.len() as u64);
        if start < end {
            store.read(
                extent.physical,
                0,
                &mut content[start as usize..end as usize],
            )?;
        }
    }
    Ok(content)
}
