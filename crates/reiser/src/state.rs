//! What a mounted file system is.

use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_namespace::Ino;
use finefs_reiser_disk::hash::NameHash;
use finefs_reiser_disk::superblock::Superblock;
use finefs_reiser_disk::{ObjectKey, key};

use crate::objects::Objects;
use crate::tree::Tree;

/// The root directory.
pub(crate) const ROOT: Ino = Ino(key::ROOT.object_id as u64);

/// A mounted file system.
pub(crate) struct Mounted {
    pub device: Arc<dyn BlockDevice>,
    pub superblock: Superblock,
    pub tree: Tree,
    pub objects: Objects,
    pub hash: Option<NameHash>,
    /// The attributes of chattr(1) in stat data are good.
    pub has_attributes: bool,
    /// The directory of extended attributes.
    pub xattrs: Option<ObjectKey>,
    /// What the user should know.
    pub notes: Vec<String>,
}
