//! Attributes of objects.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use finefs_namespace::{
    Attributes, Error, FileFlags, FileKind, Ino, InodeImage, Result, Times, Timestamp,
};
use finefs_reiser_disk::stat::{self, StatData};
use finefs_reiser_disk::{ItemKind, ObjectKey, indirect};

use super::items_of;
use crate::state::Mounted;

/// The stat data of an object; `Error::Stale` where there is none.
pub(crate) fn stat(mounted: &Mounted, object: ObjectKey) -> Result<StatData> {
    let mut found = Err(Error::Stale);
    items_of(&mounted.tree, object, 0, &mut |head, body, place| {
        if head.key.kind == ItemKind::StatData {
            found = StatData::parse(body).map_err(|error| place.damaged(&error));
        }
        Ok(ControlFlow::Break(()))
    })?;
    found
}

/// The generation, as the kernel makes it up where the format has none.
pub(crate) fn generation(object: ObjectKey, stat: &StatData) -> u32 {
    stat.generation.unwrap_or(object.dir_id)
}

/// Loads an inode as the namespace has it.
pub(crate) fn load(mounted: &Mounted, ino: Ino) -> Result<InodeImage> {
    let object = mounted.objects.find(ino)?;
    let stat = stat(mounted, object)?;
    if stat.link_count == 0 {
        return Err(Error::Stale);
    }
    let kind = kind(stat.kind);
    let attributes = Attributes {
        ino,
        generation: generation(object, &stat),
        kind,
        permissions: u32::from(stat.permissions),
        link_count: stat.link_count,
        uid: stat.uid,
        gid: stat.gid,
        device: libc::makedev(stat.device.0, stat.device.1),
        size_bytes: stat.size,
        sectors: sectors(&stat, mounted.tree.buffers.block_size_bytes()),
        times: Times {
            accessed: time(stat.accessed),
            modified: time(stat.modified),
            changed: time(stat.changed),
            created: Timestamp::new(0, 0),
        },
        flags: flags(mounted, &stat),
        project: 0,
        is_settled: true,
    };
    Ok(InodeImage {
        attributes,
        inline: None,
        unreadable: None,
        is_old_form: !stat.is_new,
        may_have_acls: stat.is_new
            && kind != FileKind::Symlink
            && mounted.xattrs.is_some()
            && mounted.xattr_directories.load(Ordering::Acquire) > 0,
    })
}

fn time(seconds: u32) -> Timestamp {
    Timestamp::new(i64::from(seconds), 0)
}

fn flags(mounted: &Mounted, stat: &StatData) -> FileFlags {
    match mounted.has_attributes {
        true => FileFlags::from_bits_retain(u32::from(stat.attributes)),
        false => FileFlags::empty(),
    }
}

/// Space used, as the kernel counts it: with the items of the object, each block number among them.
/// Old stat data has the number of blocks only in some files, and other things in it in the rest,
/// so that no more counts than the size comes to.
pub(crate) fn sectors(stat: &StatData, block_size: usize) -> u64 {
    let stat_bytes = if stat.is_new {
        stat::NEW_SIZE
    } else {
        stat::OLD_SIZE
    } as u64;
    if matches!(
        stat.kind,
        stat::FileKind::Directory | stat::FileKind::Symlink
    ) {
        return (stat.size + stat_bytes) / 512;
    }
    let block_size = block_size as u64;
    let told = u64::from(stat.sectors);
    let told = match stat.is_new {
        true => told,
        false => told.min(stat.size.div_ceil(512).next_multiple_of(block_size / 512)),
    };
    let pointers = stat
        .size
        .div_ceil(block_size)
        .saturating_mul(indirect::POINTER_SIZE as u64);
    told + (pointers + stat_bytes) / 512
}

/// The kind as the namespace has it.
fn kind(kind: stat::FileKind) -> FileKind {
    use stat::FileKind as Disk;
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
