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

    /// Forgets an object that is gone.
    pub fn forget(&self, object_id: u32) {
        self.shard(object_id).lock().remove(&object_id);
    }

    /// Remembers an object.
    pub fn note(&self, object: ObjectKey) {
        let mut shard = self.shard(object.object_id).lock();
        shard.insert(object.object_id, object.dir_id);
    }

    /// Remembers an object that was read, unless its number is known: what was read may be older.
    pub fn note_read(&self, object: ObjectKey) {
        let mut shard = self.shard(object.object_id).lock();
        shard.entry(object.object_id).or_insert(object.dir_id);
    }

    /// Sees to it that an inode number is known if there is one: reads the tree where it must. Not
    /// to be called within [`Tree::consistent`].
    pub fn look(&self, tree: &Tree, ino: Ino) -> Result<()> {
        let is_known = u32::try_from(ino.0).is_ok_and(|number| self.known(number).is_some());
        if !is_known && !self.is_complete.load(Ordering::Acquire) {
            let found = tree.consistent(|| read_all(tree))?;
            found.into_iter().for_each(|object| self.note_read(object));
            // What was made since is known.
            self.is_complete.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// The object of an inode number that was looked for; `Error::Stale` where there is none.
    pub fn find(&self, ino: Ino) -> Result<ObjectKey> {
        let object_id = u32::try_from(ino.0).map_err(|_| Error::Stale)?;
        self.known(object_id).ok_or(Error::Stale)
    }

    fn known(&self, object_id: u32) -> Option<ObjectKey> {
        let dir_id = self.shard(object_id).lock().get(&object_id).copied()?;
        Some(ObjectKey { dir_id, object_id })
    }
}

/// All objects of a tree.
fn read_all(tree: &Tree) -> Result<Vec<ObjectKey>> {
    let first = ObjectKey {
        dir_id: 0,
        object_id: 0,
    };
    let mut objects = Vec::new();
    tree.visit(&Key::from(first, 0), &mut |head, _, _| {
        if head.key.kind == ItemKind::StatData {
            objects.push(head.key.object);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(objects)
}
