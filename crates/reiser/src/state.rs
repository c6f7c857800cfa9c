//! What a mounted file system is.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use finefs_block::BlockDevice;
use finefs_buffers::FileData;
use finefs_buffers::alloc::Allocator;
use finefs_locks::{LockClass, Mutex};
use finefs_namespace::{BlockRun, Error, Ino, Result, Settled};
use finefs_reiser_disk::hash::NameHash;
use finefs_reiser_disk::object_ids::ObjectIds;
use finefs_reiser_disk::superblock::Superblock;
use finefs_reiser_disk::{ObjectKey, key};

use crate::journal::writer::JournalWriter;
use crate::numbers::Numbers;
use crate::objects::Objects;
use crate::tree::Tree;

/// The root directory.
pub(crate) const ROOT: Ino = Ino(key::ROOT.object_id as u64);

/// The most links of anything (the kernel's REISERFS_LINK_MAX).
pub(crate) const LINK_MAX: u32 = 64_535;

/// What writes, to take it out and put it back: never held over anything else.
pub static WRITER: LockClass = LockClass::new("reiser.writer", 75);

/// A mounted file system.
pub(crate) struct Mounted {
    pub device: Arc<dyn BlockDevice>,
    /// As it was at the mount.
    pub superblock: Superblock,
    /// Where it begins in its block, in bytes.
    pub superblock_at: usize,
    pub tree: Tree,
    pub objects: Objects,
    pub hash: Option<NameHash>,
    /// The attributes of chattr(1) in stat data are good.
    pub has_attributes: bool,
    /// The directory of extended attributes.
    pub xattrs: Option<ObjectKey>,
    /// How many objects have attributes; what is only read counts as one.
    pub xattr_directories: AtomicU64,
    /// Data of files.
    pub data: FileData,
    /// What the user should know.
    pub notes: Vec<String>,
    /// The writing side; `None` where nothing is written.
    pub writing: Option<Writing>,
}

/// The writing side.
pub(crate) struct Writing {
    /// Changed blocks that a commit can have.
    pub capacity: usize,
    pub allocator: Allocator,
    pub numbers: Numbers,
    writer: Mutex<Option<Box<Writer>>>,
}

/// What commits have, one at a time.
pub(crate) struct Writer {
    pub journal: JournalWriter,
    /// As the last commit left it.
    pub superblock: Superblock,
    /// The numbers of objects on the device.
    pub numbers: ObjectIds,
    /// Objects in use without a name, which have save-links.
    pub orphans: HashSet<u32>,
    pub postponed: Postponed,
}

/// What commits left that were applied, but for which there was no storage below the device: the
/// changed blocks are dirty buffers, and the next commit makes them durable.
#[derive(Default)]
pub(crate) struct Postponed {
    /// There is something.
    pub is_there: bool,
    /// Blocks that were freed: not to be given out before.
    pub freed: Vec<BlockRun>,
    /// Numbers of objects that were freed.
    pub freed_numbers: Vec<u32>,
    /// What objects take.
    pub settled: Vec<Settled>,
}

impl Writing {
    pub fn new(allocator: Allocator, numbers: Numbers, writer: Writer) -> Writing {
        Writing {
            capacity: writer.journal.capacity(),
            allocator,
            numbers,
            writer: Mutex::new(&WRITER, Some(Box::new(writer))),
        }
    }

    /// Takes out what writes. It does not come back from a commit that panicked: what the log holds
    /// would be replayed over what others write.
    pub fn take_writer(&self) -> Result<Box<Writer>> {
        let writer = self.writer.lock().take();
        writer.ok_or_else(|| Error::io("the journal was lost by an earlier failure"))
    }

    /// Puts it back.
    pub fn put_writer(&self, writer: Box<Writer>) {
        *self.writer.lock() = Some(writer);
    }
}

impl Mounted {
    /// The writing side, or the error of a file system that is only read.
    pub fn writing(&self) -> Result<&Writing> {
        self.writing.as_ref().ok_or(Error::ReadOnly)
    }

    /// The block of the superblock.
    pub fn superblock_block(&self) -> u32 {
        self.tree.bitmaps.superblock
    }
}
