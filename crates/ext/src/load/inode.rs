//! Attributes of inodes.

use finefs_ext_disk as disk;
use finefs_ext_disk::inode::{Inode, InodeFlags};
use finefs_ext_disk::xattr::{NameIndex, XattrRegion};
use finefs_namespace::{
    Attributes, Error, FileFlags, FileKind, Ino, InodeImage, Result, Times, Timestamp,
};

use super::{checked, content, encryption, symlink};
use crate::crypt::Protection;
use crate::state::{ExtState, InodeBytes};

/// Loads an inode as the namespace has it.
pub(crate) fn load(state: &ExtState, ino: Ino) -> Result<InodeImage> {
    let (inode, kind) = checked::with_links(state, ino)?;
    let attributes = attributes(state, ino, &inode, kind)?;
    let mut image = InodeImage {
        attributes,
        inline: None,
        unreadable: None,
        is_old_form: false,
        may_have_acls: kind != FileKind::Symlink && may_have_acls(state, &inode),
    };
    let flags = inode.flags();
    if kind == FileKind::Symlink
        && flags.contains(InodeFlags::ENCRYPT)
        && let Ok(target) = symlink::load(state, ino)
    {
        // As long as what is shown.
        image.attributes.size_bytes = target.len() as u64;
    }
    if kind != FileKind::Regular {
        return Ok(image);
    }
    // Where new files are mapped by extents.
    image.is_old_form = state.groups.has_extents()
        && !flags.intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA);
    if flags.contains(InodeFlags::ENCRYPT) {
        image.unreadable = why_locked(state, ino, flags);
    } else if flags.contains(InodeFlags::COMPRBLK) {
        image.unreadable = Some(Error::NotSupported);
    } else if flags.contains(InodeFlags::INLINE_DATA) && !state.may_hold_inline_data() {
        image.unreadable = Some(misplaced_inline_data(ino));
    } else if flags.contains(InodeFlags::INLINE_DATA) {
        match content::inline(state, ino, &inode, attributes.size_bytes) {
            Ok(bytes) => image.inline = Some(bytes),
            Err(error) => image.unreadable = Some(error),
        }
    }
    Ok(image)
}

/// Why the content of an encrypted file cannot be read, if it cannot.
fn why_locked(state: &ExtState, ino: Ino, flags: InodeFlags) -> Option<Error> {
    match encryption::protection(state, ino) {
        Ok(Protection::Open(_)) if flags.contains(InodeFlags::INLINE_DATA) => Some(Error::corrupt(
            format_args!("inode {ino}: encrypted data in the inode"),
        )),
        Ok(Protection::Open(_)) => None,
        Ok(_) => Some(Error::NoKey),
        Err(error) => Some(error),
    }
}

/// What is wrong with inline data of an image that may be written and does not have the feature.
pub(crate) fn misplaced_inline_data(ino: Ino) -> Error {
    Error::corrupt(format_args!(
        "inode {ino}: inline data, which the file system does not have"
    ))
}

/// False when it surely has no ACLs, as far as the inode itself tells.
fn may_have_acls(state: &ExtState, inode: &Inode<InodeBytes>) -> bool {
    let is_acl = |index| {
        matches!(
            index,
            NameIndex::POSIX_ACL_ACCESS | NameIndex::POSIX_ACL_DEFAULT
        )
    };
    let area = inode.xattr_bytes().unwrap_or_default();
    inode.file_acl(&state.inode_rules).0 != 0
        || match XattrRegion::in_inode(area) {
            Ok(None) => false,
            Ok(Some(region)) => region.entries().any(|entry| is_acl(entry.index)),
            // Who looks at them is told.
            Err(_) => true,
        }
}

/// The attributes of an inode, links or not.
pub(crate) fn attributes<B: AsRef<[u8]>>(
    state: &ExtState,
    ino: Ino,
    inode: &Inode<B>,
    kind: FileKind,
) -> Result<Attributes> {
    let rules = &state.inode_rules;
    let size_bytes = inode.size(rules);
    if i64::try_from(size_bytes).is_err() {
        return Err(Error::corrupt(format_args!(
            "inode {ino}: size {size_bytes}"
        )));
    }
    let device = match kind {
        FileKind::BlockDevice | FileKind::CharDevice => {
            let number = inode.device();
            libc::makedev(number.major, number.minor)
        }
        _ => 0,
    };
    let created = inode.crtime().map_or(Timestamp::new(0, 0), convert_time);
    Ok(Attributes {
        ino,
        generation: inode.generation(),
        kind,
        permissions: u32::from(inode.mode()) & 0o7777,
        link_count: u32::from(inode.links_count()),
        uid: inode.uid(),
        gid: inode.gid(),
        device,
        size_bytes,
        sectors: inode.blocks_512(rules),
        times: Times {
            accessed: convert_time(inode.atime()),
            modified: convert_time(inode.mtime()),
            changed: convert_time(inode.ctime()),
            created,
        },
        flags: FileFlags::from_bits_retain(inode.flags().bits()),
        project: match state.has_projects {
            true => inode.project().unwrap_or(0),
            false => 0,
        },
        is_settled: true,
    })
}

fn convert_time(time: disk::time::Timestamp) -> Timestamp {
    Timestamp::new(time.sec, time.nsec)
}
