//! Directories as sources, of the host or of images.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
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
use crate::tree::{Follow, SourceDir, check_plain};

/// Lists a directory of the host with all that is in it.
pub(super) fn add(manifest: &mut Manifest, path: &Path, progress: &Progress) -> Result<()> {
    add_all(manifest, Place::Host(Arc::from(path)), progress)
}

/// Lists a directory of an image with all that is in it.
pub(super) fn add_image(
    manifest: &mut Manifest,
    dir: Arc<dyn SourceDir>,
    progress: &Progress,
) -> Result<()> {
    add_all(manifest, Place::Image(dir), progress)
}

/// A directory that is listed. One of the host is opened when its turn comes: there may be more of
/// them than a process may have open.
enum Place {
    Host(Arc<Path>),
    Image(Arc<dyn SourceDir>),
}

impl Place {
    fn open(&self) -> Result<Arc<dyn SourceDir>> {
        Ok(match self {
            Place::Host(path) => Arc::new(HostDir::open(path)?),
            Place::Image(dir) => Arc::clone(dir),
        })
    }

    /// A directory in this one.
    fn below(&self, name: &OsStr) -> Result<Place> {
        Ok(match self {
            Place::Host(path) => Place::Host(Arc::from(path.join(name))),
            Place::Image(dir) => Place::Image(dir.open_dir(name, Follow::No)?),
        })
    }

    /// The data of a file in it.
    fn data(&self, name: &OsStr) -> Data {
        let name = name.to_owned();
        match self {
            Place::Host(path) => Data::Host {
                directory: Arc::clone(path),
                name,
            },
            Place::Image(dir) => Data::Image {
                directory: Arc::clone(dir),
                name,
            },
        }
    }
}

fn add_all(manifest: &mut Manifest, top: Place, progress: &Progress) -> Result<()> {
    let root = top.open()?;
    let found = root.attributes(OsStr::new("."), Follow::No)?;
    manifest.set_attributes(ROOT, attributes(&*root, OsStr::new("."), &found)?);
    let mut scan = Scan {
        manifest,
        links: HashMap::new(),
    };
    // Directories, and their paths in the image.
    let mut todo = vec![(top, PathBuf::from("/"), ROOT)];
    while let Some((place, inside, node)) = todo.pop() {
        progress.check()?;
        let dir = place.open()?;
        let mut names = dir.names()?;
        names.sort();
        progress
            .listed
            .fetch_add(names.len() as u64, Ordering::Relaxed);
        for name in names {
            let inner = scan.one(&*dir, &place, &name, (node, inside.as_path()))?;
            if let Some(inner) = inner {
                todo.push((place.below(&name)?, inside.join(&name), inner));
            }
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
        dir: &dyn SourceDir,
        place: &Place,
        name: &OsStr,
        (parent, inside): (usize, &Path),
    ) -> Result<Option<usize>> {
        check_plain(dir, name)?;
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
                data: place.data(name),
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
    dir: &dyn SourceDir,
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
fn data_bytes(
    dir: &dyn SourceDir,
    name: &OsStr,
    found: &crate::attributes::Attributes,
) -> Result<u64> {
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
