//! What an image cannot hold, told before anything is made: attributes, and links that are longer
//! than a block.
//!
//! A file has its attributes in its inode and in one block. As `finefs-ext` deals them out: either
//! the small ones go into the inode and the rest into the block, or the large ones into the block
//! and the rest into the inode. With the feature `ea_inode` a large value lies elsewhere.

use std::path::PathBuf;

use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};

use super::manifest::{Kind, Manifest, Node, ROOT};
use crate::acl;
use crate::address::Address;
use crate::attributes::Xattr;
use crate::error::{Error, Result};
use crate::mkfs::{self, FeatureSet};

/// Bytes of an inode that are no attributes: those of revision 0, and the further fields.
const INODE_FIELDS: usize = 128 + 32;
/// The head of the attributes in an inode, and of those in a block.
const INODE_HEAD: usize = 4;
const BLOCK_HEAD: usize = 32;
/// The end of the list of attributes.
const END: usize = 4;
/// An attribute without its name and value.
const ENTRY: usize = 16;

/// The longest name and the longest value that Linux takes.
const NAME_MAX: usize = 255;
const VALUE_MAX: usize = 65_536;

/// How large inodes and blocks are where nobody says.
const INODE_SIZE: u32 = 256;

/// What a file system has for attributes and links.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    block_bytes: usize,
    /// For attributes in an inode, with their head and end.
    inode_bytes: usize,
    /// Values may have inodes of their own.
    has_value_inodes: bool,
}

impl Limits {
    fn new(block_bytes: u32, inode_size: u32, incompat: Incompat) -> Limits {
        Limits {
            block_bytes: block_bytes as usize,
            inode_bytes: (inode_size as usize).saturating_sub(INODE_FIELDS),
            has_value_inodes: incompat.contains(Incompat::EA_INODE),
        }
    }

    /// Of one that is to be made.
    pub fn of_options(options: &mkfs::Options, block_bytes: u32) -> Limits {
        let mut features = FeatureSet::of(options.fs_type, options.defaults);
        for word in &options.features {
            // One that is not known is an error where the file system is made.
            let _ = features.edit(word);
        }
        let inode_size = options.inode_size.unwrap_or(INODE_SIZE);
        Limits::new(block_bytes, inode_size, features.incompat)
    }

    /// Of the one at an address; `None` where it is none of ext.
    pub fn of_image(address: &Address, offset_bytes: Option<u64>) -> Result<Option<Limits>> {
        let (path, start) = crate::address::locate(&address.image)?;
        let offset_bytes = start.or(offset_bytes).unwrap_or(0);
        let access = finefs_block::Access::Inspect;
        let device = finefs::front_end::open_device(&path, access, offset_bytes);
        let device = device.map_err(|error| Error::new("", error.to_string()))?;
        let mut bytes = [0; SUPERBLOCK_SIZE];
        if device.read_at(SUPERBLOCK_OFFSET, &mut bytes).is_err() {
            return Ok(None);
        }
        let limits = |found: Superblock| {
            let inode_size = u32::from(found.inode_size());
            Some(Limits::new(
                found.block_size()?,
                inode_size,
                found.incompat(),
            ))
        };
        Ok(Superblock::parse(&bytes).ok().and_then(limits))
    }

    /// Leaves out attributes that no such file may have, and those for which there is no room, the
    /// largest first, with a line each.
    pub fn leave_out_xattrs(&self, manifest: &mut Manifest) {
        leave_out_wrong(manifest);
        let mut found = vec![(PathBuf::from("/"), ROOT)];
        let mut is_first = manifest.marks();
        for (path, directory) in manifest.each_directory() {
            for (name, node) in manifest.names(directory) {
                let xattrs = &manifest.nodes[*node].attributes.xattrs;
                if is_first(*node) && !self.hold(xattrs) {
                    found.push((path.join(name), *node));
                }
            }
        }
        for (path, node) in found {
            while let Some((name, value)) =
                self.take_out(&mut manifest.nodes[node].attributes.xattrs)
            {
                manifest.left_out.push(format!(
                    "{}: attribute {} of {} bytes, more than a block of the image holds{}",
                    path.display(),
                    name.display(),
                    value.len(),
                    match self.is_alone_too_long(&(name.clone(), value.clone())) {
                        true => "",
                        false => " beside the others",
                    }
                ));
            }
        }
    }

    /// Refuses symbolic links that are longer than a block.
    pub fn check_links(&self, manifest: &Manifest) -> Result<()> {
        for (path, directory) in manifest.each_directory() {
            for (name, node) in manifest.names(directory) {
                let Kind::Symlink(target) = &manifest.nodes[*node].kind else {
                    continue;
                };
                let length = target.as_os_str().len();
                if length >= self.block_bytes {
                    let most = self.block_bytes - 1;
                    let reason =
                        format!("a symbolic link of {length} bytes; the image holds {most}");
                    return Err(Error::new(path.join(name).display().to_string(), reason));
                }
            }
        }
        Ok(())
    }

    /// The attribute to leave out so that the others may fit; `None` where all of them do.
    fn take_out(&self, xattrs: &mut Vec<Xattr>) -> Option<Xattr> {
        if self.hold(xattrs) {
            return None;
        }
        let largest = (0..xattrs.len()).max_by_key(|at| bytes_of(&xattrs[*at]))?;
        Some(xattrs.remove(largest))
    }

    /// Whether there is room for all of them.
    fn hold(&self, xattrs: &[Xattr]) -> bool {
        let is_too_long = xattrs.iter().any(|xattr| self.is_alone_too_long(xattr));
        !is_too_long && (self.has_value_inodes || self.fit(xattrs))
    }

    fn is_alone_too_long(&self, xattr: &Xattr) -> bool {
        match self.has_value_inodes {
            true => xattr.1.len() > VALUE_MAX,
            false => !self.fits_block(bytes_of(xattr)),
        }
    }

    fn fits_block(&self, bytes: usize) -> bool {
        bytes == 0 || BLOCK_HEAD + bytes + END <= self.block_bytes
    }

    fn fits_inode(&self, bytes: usize) -> bool {
        bytes == 0 || INODE_HEAD + bytes + END <= self.inode_bytes
    }

    /// See the module's head.
    fn fit(&self, xattrs: &[Xattr]) -> bool {
        let mut sizes: Vec<usize> = xattrs.iter().map(bytes_of).collect();
        sizes.sort_unstable();
        let (mut inside, mut rest) = (0, 0);
        for size in &sizes {
            match rest == 0 && self.fits_inode(inside + size) {
                true => inside += size,
                false => rest += size,
            }
        }
        if self.fits_block(rest) {
            return true;
        }
        let (mut block, mut rest) = (0, 0);
        for size in sizes.iter().rev() {
            match self.fits_block(block + size) {
                true => block += size,
                false => rest += size,
            }
        }
        self.fits_inode(rest)
    }
}

/// Leaves out attributes that Linux refuses.
fn leave_out_wrong(manifest: &mut Manifest) {
    let mut found = Vec::new();
    let mut is_first = manifest.marks();
    let mut note = |path: PathBuf, node: usize| {
        let Node { kind, attributes } = &manifest.nodes[node];
        let is_wrong = |xattr: &Xattr| wrong_in(kind, xattr).is_some();
        if is_first(node) && attributes.xattrs.iter().any(is_wrong) {
            found.push((path, node));
        }
    };
    note(PathBuf::from("/"), ROOT);
    for (path, directory) in manifest.each_directory() {
        for (name, node) in manifest.names(directory) {
            note(path.join(name), *node);
        }
    }
    for (path, node) in found {
        let Node { kind, attributes } = &mut manifest.nodes[node];
        attributes.xattrs.retain(|xattr| {
            let wrong = wrong_in(kind, xattr);
            manifest.left_out.extend(wrong.map(|reason| {
                let name = xattr.0.display();
                format!("{}: attribute {name}: {reason}", path.display())
            }));
            wrong.is_none()
        });
    }
}

/// Why a file of this kind may not have an attribute (xattr(7), acl(5)).
fn wrong_in(kind: &Kind, (name, value): &Xattr) -> Option<&'static str> {
    let name = name.as_encoded_bytes();
    let (is_file, is_directory) = match kind {
        Kind::Regular(_) => (true, false),
        Kind::Directory(_) => (false, true),
        _ => (false, false),
    };
    let is_alone = |prefix: &[u8]| name == prefix;
    if name.len() > NAME_MAX {
        Some("its name is longer than 255 bytes")
    } else if name.contains(&0) {
        Some("its name has a zero byte in it")
    } else if [&b"user."[..], b"trusted.", b"security."]
        .into_iter()
        .any(is_alone)
    {
        Some("has no name behind its first part")
    } else if name.starts_with(b"user.") {
        (!is_file && !is_directory).then_some("only files and directories have such")
    } else if name.starts_with(b"trusted.") || name.starts_with(b"security.") {
        None
    } else if ![&b"system.posix_acl_access"[..], b"system.posix_acl_default"].contains(&name) {
        Some("is of a kind that is not known")
    } else if matches!(kind, Kind::Symlink(_)) {
        Some("a symbolic link has no ACL")
    } else if name.ends_with(b"default") && !is_directory {
        Some("only a directory has one")
    } else {
        acl::to_text(value).is_none().then_some("is no ACL")
    }
}

/// What an attribute takes: the first part of its name is stored as a number.
fn bytes_of((name, value): &Xattr) -> usize {
    let name = name.as_encoded_bytes();
    if name.starts_with(b"system.posix_acl_") {
        return ENTRY + acl_bytes(value);
    }
    let dot = name.iter().position(|byte| *byte == b'.');
    let stored = dot.map_or(name.len(), |dot| name.len() - dot - 1);
    ENTRY + stored.next_multiple_of(4) + value.len().next_multiple_of(4)
}

/// What ext stores of an ACL: entries that name nobody are half as long as Linux gives them.
fn acl_bytes(value: &[u8]) -> usize {
    /// `ACL_USER` and `ACL_GROUP`.
    const NAMED: [u8; 2] = [2, 8];
    let (head, entries) = value.split_at(value.len().min(4));
    let entry = |entry: &[u8]| match NAMED.contains(&entry[0]) {
        true => 8,
        false => 4,
    };
    head.len() + entries.chunks(8).map(entry).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(incompat: Incompat) -> Limits {
        Limits::new(4096, 256, incompat)
    }

    fn xattr(name: &str, bytes: usize) -> Xattr {
        (name.into(), vec![0; bytes])
    }

    /// One fills a block but for head, entry, name and end.
    #[test]
    fn one_attribute_may_fill_a_block() {
        let most = 4096 - 32 - 16 - 4 - 4;
        let limits = limits(Incompat::empty());
        assert!(limits.take_out(&mut vec![xattr("user.a", most)]).is_none());
        let mut longer = vec![xattr("user.a", most + 1), xattr("user.b", 1)];
        assert_eq!(limits.take_out(&mut longer).unwrap().0, "user.a");
        assert!(limits.take_out(&mut longer).is_none());
    }

    #[test]
    fn several_share_inode_and_block() {
        let limits = limits(Incompat::empty());
        // 96 bytes of an inode are for attributes.
        let mut fitting = vec![
            xattr("user.a", 4000),
            xattr("user.b", 64),
            xattr("user.c", 1),
        ];
        assert!(limits.take_out(&mut fitting).is_none());
        let mut two = vec![xattr("user.a", 3000), xattr("user.b", 3004)];
        assert_eq!(limits.take_out(&mut two).unwrap().0, "user.b");
        assert!(limits.take_out(&mut two).is_none());
    }

    #[test]
    fn values_with_inodes_are_as_long_as_linux_takes_them() {
        let limits = limits(Incompat::EA_INODE);
        let mut fitting = vec![xattr("user.a", 65_536), xattr("user.b", 60_000)];
        assert!(limits.take_out(&mut fitting).is_none());
        let mut longer = vec![xattr("user.a", 65_537)];
        assert!(limits.take_out(&mut longer).is_some());
    }
}
