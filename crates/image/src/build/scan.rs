//! Directories of the host as sources.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use finefs::FileKind;

use super::Progress;
use super::content::{Content, Data};
use super::manifest::{Attributes, Kind, Manifest, Node, ROOT};
use crate::attributes::Xattr;
use crate::copy::may_be_kept;
use crate::error::Result;
use crate::host::HostDir;
use crate::tree::{Follow, SourceDir};

/// Lists a directory with all that is in it.
pub(super) fn add(manifest: &mut Manifest, path: &Path, progress: &Progress) -> Result<()> {
    let root = HostDir::open(path)?;
    let found = root.attributes(OsStr::new("."), Follow::No)?;
    manifest.set_attributes(ROOT, attributes(&root, OsStr::new("."), &found)?);
    let mut scan = Scan {
        manifest,
        links: HashMap::new(),
    };
    // Paths on the host and in the image.
    let mut todo = vec![(path.to_owned(), PathBuf::from("/"), ROOT)];
    while let Some((path, inside, node)) = todo.pop() {
        progress.check()?;
        let dir = HostDir::open(&path)?;
        let directory: Arc<Path> = Arc::from(path);
        let mut names = dir.names()?;
        names.sort();
        progress
            .listed
            .fetch_add(names.len() as u64, Ordering::Relaxed);
        for name in names {
            let place = (node, inside.as_path());
            let inner = scan.one(&dir, &directory, &name, place)?;
            let paths = |inner| (directory.join(&name), inside.join(&name), inner);
            todo.extend(inner.map(paths));
        }
    }
    Ok(())
}

struct Scan<'a> {
    manifest: &'a mut Manifest,
    /// Files with several names, by device and inode number.
    links: HashMap<(u64, u64), usize>,
}

impl Scan<'_> {
    /// Lists one file; gives its number if it is a directory.
    fn one(
        &mut self,
        dir: &HostDir,
        directory: &Arc<Path>,
        name: &OsString,
        (parent, inside): (usize, &Path),
    ) -> Result<Option<usize>> {
        let found = dir.attributes(name, Follow::No)?;
        if let Some(first) = self.links.get(&found.identity()).copied() {
            let shown = || dir.shown(name);
            self.manifest.link(parent, name, first, &shown)?;
            return Ok(None);
        }
        let kind = match found.kind {
            FileKind::Directory => Kind::Directory(BTreeMap::new()),
            FileKind::Symlink => Kind::Symlink(dir.read_link(name)?),
            FileKind::Regular => Kind::Regular(Content {
                data: Data::Host {
                    directory: Arc::clone(directory),
                    name: name.clone(),
                },
                size: found.size,
                data_bytes: data_bytes(dir, name, &found)?,
            }),
            kind => Kind::Node {
                kind,
                rdev: found.rdev,
            },
        };
        let node = Node {
            kind,
            attributes: attributes(dir, name, &found)?,
        };
        let shown = || dir.shown(name);
        if found.is_directory() {
            let path = inside.join(name);
            let number = self.manifest.put_directory(parent, &path, node, &shown)?;
            return Ok(Some(number));
        }
        let number = self.manifest.put(parent, name, node, &shown)?;
        if found.links > 1 {
            self.links.insert(found.identity(), number);
        }
        Ok(None)
    }
}

/// What the image keeps of a file's attributes.
fn attributes(
    dir: &HostDir,
    name: &OsStr,
    found: &crate::attributes::Attributes,
) -> Result<Attributes> {
    let mut xattrs: Vec<Xattr> = dir.xattrs(name, Follow::No)?;
    xattrs.retain(|xattr| may_be_kept(&xattr.0));
    Ok(Attributes {
        permissions: found.permissions,
        uid: found.uid,
        gid: found.gid,
        modified: found.modified,
        xattrs,
        is_implied: false,
    })
}

/// Bytes that are no holes. A file that takes less space than it is long may also be compressed.
fn data_bytes(dir: &HostDir, name: &OsStr, found: &crate::attributes::Attributes) -> Result<u64> {
    if found.sectors.saturating_mul(512) >= found.size {
        return Ok(found.size);
    }
    let file = dir.open_file(name, Follow::No)?;
    let (mut sum, mut at) = (0, 0);
    while let Some((start, end)) = file.data_after(at)? {
        sum += end - start;
        at = end;
    }
    Ok(sum.min(found.size))
}
