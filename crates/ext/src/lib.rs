//! ext2, ext3 and ext4 images as a store of a namespace.
//!
//! # Purpose
//! [`ExtStore`] keeps a namespace's objects on an image: it loads them on first use and applies
//! batches of changes. Its own concurrency is small by design: loads, data and allocation run in
//! parallel, batches are applied one at a time.
//!
//! | Module | Thing |
//! |---|---|
//! | `found` | the superblock, and what it says about reading and writing |
//! | `mount`, `recover`, `assemble`, `orphans` | from a device to a mounted file system |
//! | `journal` | what a journal holds |
//! | [`replay`] | the journal for who looks without mounting |
//! | `fast_commit` | what fast commits of the kernel say, carried out in memory |
//! | [`features`] | the one table of what can be read and written |
//! | `state` | the mounted file system |
//! | `crypt` | keys and ciphers of encrypted files |
//! | `sealed`, `new_encrypted` | their contents; those that come to be |
//! | `load` | from the image's structures to the namespace's objects |
//! | `group`, `bitmaps` | block groups, and what the live allocator reads of them |
//! | `damage`, `on_error` | what errors leave in the image, and what is done about them |
//! | `apply` | from batches to the image's structures |
//! | `quota` | what users, groups and projects have and may have |
//! | `store` | the [`finefs_namespace::Store`] |
//! | `mmp` | the block that keeps other hosts away |
//! | `trim` | storage below free blocks is given back |
//! | `uuid` | UUIDs as text |
//! | [`info`] | what an image is, for people and scripts |
//! | [`error`], `sync` | why an image cannot be mounted; the locks of this crate |
//!
//! # Invariants
//! 1. A read-only mount writes nothing at all.
//! 2. Nothing on the image is believed before it is checked; damage is an error of the object that
//!    it concerns, never a panic.
//! 3. Memory is bounded: by limits of the caches, and by the blocks of the image where an object is
//!    loaded.
//!
//! # Locking
//! See `state`.

pub mod error;
pub mod features;
pub mod info;
pub mod replay;

mod apply;
mod assemble;
mod bitmaps;
#[cfg_attr(
    not(feature = "fscrypt"),
    allow(dead_code, reason = "there are no keys")
)]
mod crypt;
mod damage;
mod fast_commit;
mod found;
mod group;
mod journal;
mod load;
mod mmp;
mod mount;
mod new_encrypted;
mod on_error;
mod orphans;
mod quota;
mod recover;
mod sealed;
mod state;
mod store;
mod sync;
mod trim;
mod uuid;

pub use crypt::{EncryptionChoice, KEY_BYTES, MasterKey};
pub use error::{MountError, MountErrorKind};
pub use finefs_ext_disk::fscrypt::Encryption;
pub use found::{is_ext, length_of_truncated};
pub use info::{ImageInfo, JournalDeviceInfo, PolicyInfo};
pub use mmp::{IfChecked, MmpCheck, MmpState};
pub use on_error::OnError;
pub use quota::{QuotaEntry, QuotaInfo, QuotaKind, QuotaReport, QuotaUsage};
pub use store::ExtStore;

use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_buffers::CLEAN_LIMIT_BYTES;

/// The program that checks and repairs such an image.
pub const CHECKER: &str = "e2fsck -f";

/// What is to be done about a damaged quota file: e2fsck 1.47.0 finds nothing wrong with most of
/// what can be wrong in one.
pub const QUOTA_REPAIR: &str = "run e2fsck -f, or, if it finds nothing, tune2fs -O ^quota and then \
                                tune2fs -O quota, which forget the limits";

/// How an image is mounted.
#[derive(Clone)]
pub struct ExtOptions {
    /// Nothing is written. (An image that cannot be written is mounted like this in any case, with
    /// a note.)
    pub is_read_only: bool,
    /// The journal is left alone: the image is shown as its blocks lie, without what the journal
    /// alone holds, and is not written.
    pub skips_recovery: bool,
    /// Where it will be mounted, for the superblock; cut to 64 bytes.
    pub mount_point: Option<Vec<u8>>,
    /// What to do about damage; what the superblock says where this is `None`.
    pub on_error: Option<OnError>,
    /// How much memory the cache of file data takes at most, in bytes.
    pub data_cache_bytes: u64,
    /// The same of clean blocks of metadata.
    pub buffer_bytes: u64,
    /// Storage below blocks that a commit frees is given back once it is durable. That of files
    /// that were removed before any commit named them stays until it is trimmed.
    pub discards: bool,
    /// Whose limits are enforced. Account is kept of all that the image keeps.
    pub limits: Vec<QuotaKind>,
    /// The device that the journal lies on, where that is not the image's own.
    pub journal: Option<Arc<dyn BlockDevice>>,
    /// Keys of encrypted files. The first one is for directories that are to be encrypted.
    pub keys: Vec<MasterKey>,
    /// The modes of directories that are to be encrypted.
    pub encryption: EncryptionChoice,
    /// The image has just been made and is being filled.
    pub bulk_load: Option<BulkLoad>,
}

impl Default for ExtOptions {
    fn default() -> ExtOptions {
        ExtOptions {
            is_read_only: false,
            skips_recovery: false,
            mount_point: None,
            on_error: None,
            data_cache_bytes: 64 << 20,
            buffer_bytes: CLEAN_LIMIT_BYTES as u64,
            discards: false,
            limits: Vec::new(),
            journal: None,
            keys: Vec::new(),
            encryption: EncryptionChoice::default(),
            bulk_load: None,
        }
    }
}

/// An image is filled that is of no use to anybody before that has come to its end.
///
/// Nothing goes through its journal: until it is cleanly closed it is marked as not clean. Where
/// things are put does not depend on CPUs, and generations come from its UUID: one thread that does
/// the same makes the same image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BulkLoad {
    /// The time of everything in the superblock, in seconds since 1970.
    pub seconds: u64,
}
