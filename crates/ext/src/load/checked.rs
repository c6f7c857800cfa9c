//! Inodes as they lie on the image, believed only after a look.

use finefs_ext_disk as disk;
use finefs_ext_disk::inode::{Inode, InodeFlags};
use finefs_namespace::{Error, FileKind, Ino, Result};

use crate::error::at;
use crate::state::{ExtState, InodeBytes, disk_ino};

/// An inode in use, its checksum compared, and its kind. It may have no name any more: parts of an
/// open file are loaded when they are first used, which may be after its last name went.
pub(crate) fn inode(state: &ExtState, ino: Ino) -> Result<(Inode<InodeBytes>, FileKind)> {
    check(state, ino, Orphans::Allowed)
}

/// The same, without one that has no links: that is gone.
pub(super) fn with_links(state: &ExtState, ino: Ino) -> Result<(Inode<InodeBytes>, FileKind)> {
    check(state, ino, Orphans::Stale)
}

/// What becomes of an inode without links.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Orphans {
    Allowed,
    /// As one that is gone.
    Stale,
}

fn check(state: &ExtState, ino: Ino, orphans: Orphans) -> Result<(Inode<InodeBytes>, FileKind)> {
    let disk_ino = disk_ino(ino)?;
    let inode = state.read_inode(ino)?;
    if inode.is_blank() {
        return Err(Error::Stale);
    }
    if disk_ino < state.geometry.first_ino && disk_ino != disk::Ino::ROOT {
        return Err(Error::corrupt(format_args!(
            "inode {ino}: a reserved inode has a name"
        )));
    }
    let place = || format!("inode {ino}");
    inode
        .verify_checksum(&state.inode_rules, disk_ino)
        .map_err(|error| at(place(), error))?;
    if inode.links_count() == 0 && orphans == Orphans::Stale {
        return Err(Error::Stale);
    }
    let kind = inode.validate().map_err(|error| at(place(), error))?;
    if inode.flags().contains(InodeFlags::EA_INODE) {
        return Err(Error::corrupt(format_args!(
            "inode {ino}: holds an attribute's value"
        )));
    }
    Ok((inode, convert_kind(kind)))
}

/// The kind as the namespace has it.
pub(crate) fn convert_kind(kind: disk::inode::FileKind) -> FileKind {
    use disk::inode::FileKind as Disk;
    match kind {
        Disk::Fifo => FileKind::Fifo,
        Disk::CharDevice => FileKind::CharDevice,
        Disk::Directory => FileKind::Directory,
        Disk::BlockDevice => FileKind::BlockDevice,
        Disk::Regular => FileKind::Regular,
        Disk::Symlink => FileKind::Symlink,
        Disk::Socket => FileKind::Socket,
    }
}
