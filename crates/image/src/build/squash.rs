//! squashfs images as sources.

mod open;
mod tables;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use self::tables::Known;
use backhand::{BackhandError, FilesystemReader, InnerNode, NodeHeader, SquashfsFileReader};
use finefs::FileKind;

use super::Progress;
use super::content::{Content, Data, Take, give, read_whole};
use super::manifest::{Attributes, Kind, Manifest, Missing, Node, ROOT};
use crate::attributes::{Time, Xattr};
use crate::error::{Error, Result};

/// What a squashfs image begins with.
const MAGIC: [u8; 4] = *b"hsqs";

/// An open image, whose files are told by their numbers.
pub(super) struct Image {
    fs: FilesystemReader<'static>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image").finish_non_exhaustive()
    }
}

impl Image {
    /// Gives all data of a file that is not zeros.
    pub fn read(
        &self,
        number: usize,
        shown: &dyn Fn() -> String,
        (buffer, block): (&mut [u8], usize),
        take: &mut Take<'_>,
    ) -> Result<()> {
        let node = self.fs.root.nodes.get(number);
        let Some(InnerNode::File(file)) = node.map(|node| &node.inner) else {
            return Ok(());
        };
        let failed = |error: std::io::Error| Error::new(shown(), error.to_string());
        let mut reader = self.fs.file(file).reader();
        let size = file.file_len() as u64;
        let mut at = 0;
        while at < size {
            let wanted = buffer.len().min((size - at) as usize);
            let part = &mut buffer[..wanted];
            let mut read = |buffer: &mut [u8], _| reader.read(buffer).map_err(failed);
            if read_whole(part, at, &mut read)? < wanted {
                return Err(Error::new(shown(), "the image ends in its data"));
            }
            give(part, at, block, take)?;
            at += wanted as u64;
        }
        Ok(())
    }
}

/// True for what begins as a squashfs image does.
pub(super) fn is_squashfs(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    let is_file = path.metadata().is_ok_and(|found| found.is_file());
    is_file
        && File::open(path)
            .and_then(|mut file| file.read_exact(&mut magic))
            .is_ok_and(|()| magic == MAGIC)
}

/// Lists an image.
pub(super) fn add(manifest: &mut Manifest, path: &Path, progress: &Progress) -> Result<()> {
    let shown = path.display().to_string();
    let damaged = |error: BackhandError| Error::new(shown.clone(), open::reason(&error));
    let mut squashfs = open::open(path)?;
    let mut known = tables::names(&mut squashfs).map_err(damaged)?;
    let fs = squashfs.into_filesystem_reader().map_err(damaged)?;
    let image = Arc::new(Image { fs });
    // The files, by the numbers of their inodes.
    let mut files: HashMap<u32, usize> = HashMap::new();
    for (number, node) in image.fs.root.nodes.iter().enumerate() {
        progress.check()?;
        let place = || format!("{shown}: {}", node.fullpath.display());
        let Known {
            number: inode,
            xattrs,
        } = known
            .remove(&node.fullpath)
            .ok_or_else(|| Error::new(place(), "is damaged: it has no inode"))?;
        let attributes = attributes(&node.header, xattrs);
        let (Some(above), Some(name)) = (node.fullpath.parent(), node.fullpath.file_name()) else {
            manifest.set_attributes(ROOT, attributes);
            continue;
        };
        let parent = manifest.directory(above, Missing::Make)?.unwrap_or(ROOT);
        let kind = match &node.inner {
            InnerNode::Dir(_) => Kind::Directory(Default::default()),
            InnerNode::File(file) => Kind::Regular(content(&image, number, file)),
            InnerNode::Symlink(link) => Kind::Symlink(link.link.clone()),
            InnerNode::CharacterDevice(it) => device(FileKind::CharDevice, it.device_number),
            InnerNode::BlockDevice(it) => device(FileKind::BlockDevice, it.device_number),
            InnerNode::NamedPipe => device(FileKind::Fifo, 0),
            InnerNode::Socket => device(FileKind::Socket, 0),
        };
        progress.listed.fetch_add(1, Ordering::Relaxed);
        let new = Node { kind, attributes };
        if matches!(new.kind, Kind::Directory(_)) {
            manifest.put_directory(parent, &node.fullpath, new, &place)?;
            continue;
        }
        match files.get(&inode) {
            Some(first) => {
                manifest.link(parent, name, *first, &place)?;
            }
            None => {
                files.insert(inode, manifest.put(parent, name, new, &place)?);
            }
        }
    }
    Ok(())
}

fn content(image: &Arc<Image>, number: usize, file: &SquashfsFileReader) -> Content {
    let size = file.file_len() as u64;
    Content {
        data: Data::Squashfs {
            image: Arc::clone(image),
            number,
        },
        size,
        data_bytes: size.saturating_sub(file.sparse()),
        pieces: 1,
    }
}

/// The number is as the kernel's new_encode_dev() has it.
fn device(kind: FileKind, number: u32) -> Kind {
    let major = (number & 0xf_ff00) >> 8;
    let minor = (number & 0xff) | ((number >> 12) & 0xf_ff00);
    let rdev = match kind {
        FileKind::CharDevice | FileKind::BlockDevice => rustix::fs::makedev(major, minor),
        _ => 0,
    };
    Kind::Node { kind, rdev }
}

fn attributes(header: &NodeHeader, xattrs: Vec<Xattr>) -> Attributes {
    Attributes {
        permissions: u32::from(header.permissions) & 0o7777,
        uid: header.uid,
        gid: header.gid,
        modified: Time {
            seconds: i64::from(header.mtime),
            nanos: 0,
        },
        xattrs,
        is_implied: false,
    }
}
