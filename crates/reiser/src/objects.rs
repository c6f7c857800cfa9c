//! Where the items of an inode number are.
//!
//! The key of an object begins with the number of the directory that it was made in. Entries of
//! directories name both numbers; they are remembered here when a directory is loaded (8 bytes for
//! each object that was seen). Who asks for another one (an NFS client after a restart) makes the
//! whole tree be read, once.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use finefs_locks::{LockClass, Mutex};
use finefs_namespace::{Error, Ino, NumberMap, Result};
use finefs_reiser_disk::key::{self, ItemKind, Key, ObjectKey};

use crate::tree::Tree;

/// A shard of the directories that objects were made in.
pub static OBJECTS: LockClass = LockClass::new("reiser.objects", 79);

const SHARDS: usize = 16;

/// See the module's head.
pub(crate) struct Objects {
    shards: [Mutex<NumberMap<u32, u32>>; SHARDS],
    /// All of the tree was read.
    is_complete: AtomicBool,
}

impl Objects {
    /// Knows the root directory.
    pub fn new() -> Objects {
        let objects = Objects {
            shards: std::array::from_fn(|_| Mutex::new(&OBJECTS, NumberMap::default())),
            is_complete: AtomicBool::new(false),
        };
        objects.note(key::ROOT);
        objects
    }

    fn shard(&self, object_id: u32) -> &Mutex<NumberMap<u32, u32>> {
        // Objects are numbered in the order in which they were made.
        &self.shards[object_id as usize % SHARDS]
    }

    /// Remembers an object.
    pub fn note(&self, object: ObjectKey) {
        let mut shard = self.shard(object.object_id).lock();
        shard.insert(object.object_id, object.dir_id);
    }

    /// The object of an inode number; `Error::Stale` where there is none.
    pub fn find(&self, tree: &Tree, ino: Ino) -> Result<ObjectKey> {
        let object_id = u32::try_from(ino.0).map_err(|_| Error::Stale)?;
        if let Some(found) = self.known(object_id) {
            return Ok(found);
        }
        if !self.is_complete.load(Ordering::Acquire) {
            self.read_all(tree)?;
        }
        self.known(object_id).ok_or(Error::Stale)
    }

    fn known(&self, object_id: u32) -> Option<ObjectKey> {
        let dir_id = self.shard(object_id).lock().get(&object_id).copied()?;
        Some(ObjectKey { dir_id, object_id })
    }

    fn read_all(&self, tree: &Tree) -> Result<()> {
        let first = ObjectKey {
            dir_id: 0,
            object_id: 0,
        };
        tree.visit(&Key::from(first, 0), &mut |head, _, _| {
            if head.key.kind == ItemKind::StatData {
                self.note(head.key.object);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        self.is_complete.store(true, Ordering::Release);
        Ok(())
    }
}
