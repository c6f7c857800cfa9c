//! Extended attributes: files in a directory for each object that has some, named by its number and
//! generation, below a hidden directory of the root.

use std::sync::atomic::Ordering;

use finefs_ext_disk::acl;
use finefs_namespace::{Error, Ino, Result};
use finefs_reiser_disk::{ObjectKey, key, xattr};

use super::{content, directory, inode};
use crate::error::at;
use crate::state::Mounted;

/// The longest value that the kernel gives out (XATTR_SIZE_MAX).
const VALUE_MAX_BYTES: usize = 64 << 10;

/// Attributes whose values have one form for users and another one on disk.
pub(crate) const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// The hidden directory of the root, and the directory of all attributes in it, where they are.
pub(crate) fn roots(mounted: &Mounted) -> Result<(Option<ObjectKey>, Option<ObjectKey>)> {
    match directory::find(mounted, key::ROOT, xattr::PRIVATE_ROOT, mounted.hash)? {
        None => Ok((None, None)),
        Some(private) => {
            let xattrs = directory::find(mounted, private, xattr::XATTRS_ROOT, mounted.hash)?;
            Ok((Some(private), xattrs))
        }
    }
}

/// How many objects have attributes.
pub(crate) fn count(mounted: &Mounted) -> Result<u64> {
    match mounted.xattrs {
        None => Ok(0),
        Some(xattrs) => Ok(directory::names(mounted, xattrs)?.len() as u64),
    }
}

/// Loads all attributes of an object: full name and value.
pub(crate) fn load(mounted: &Mounted, ino: Ino) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let object = mounted.objects.find(ino)?;
    let stat = inode::stat(mounted, object)?;
    let is_there = stat.is_new && mounted.xattr_directories.load(Ordering::Acquire) > 0;
    let Some(root) = mounted.xattrs.filter(|_| is_there) else {
        return Ok(Vec::new());
    };
    let generation = inode::generation(object, &stat);
    let name = xattr::directory_name(object.object_id, generation);
    let Some(own) = directory::find(mounted, root, name.as_bytes(), mounted.hash)? else {
        return Ok(Vec::new());
    };
    let mut attributes = Vec::new();
    for (name, file) in directory::names(mounted, own)? {
        let value = value(mounted, file, &name).map_err(|error| in_attribute(ino, &name, error))?;
        attributes.push((name, value));
    }
    Ok(attributes)
}

fn value(mounted: &Mounted, file: ObjectKey, name: &[u8]) -> Result<Vec<u8>> {
    let content = content::whole(mounted, file, VALUE_MAX_BYTES + xattr::HEADER_SIZE)?;
    let place = || format!("inode {}", file.object_id);
    let value = xattr::value(&content).map_err(|error| at(place(), &error))?;
    if !ACLS.contains(&name) {
        return Ok(value.to_vec());
    }
    acl::disk_to_user(value).map_err(|error| Error::corrupt(format_args!("{}: {error}", place())))
}

fn in_attribute(ino: Ino, name: &[u8], error: Error) -> Error {
    match error {
        Error::Corrupt(what) => Error::corrupt(format_args!(
            "inode {ino}: attribute {}: {what}",
            name.escape_ascii()
        )),
        // The attribute's file, not the one that was asked for.
        Error::Stale => Error::corrupt(format_args!(
            "inode {ino}: attribute {}: no such object",
            name.escape_ascii()
        )),
        error => error,
    }
}
