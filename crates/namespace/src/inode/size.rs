//! What an inode takes in memory, with all that is loaded of it: for the account in
//! [`Memory`](crate::base::memory::Memory).

use crossbeam_epoch::Guard;
use finefs_locks::Mutex;
use finefs_locks::primitive::atomic::Ordering;

use crate::base::types::Attributes;
use crate::inode::{Body, Contents, Core, Inode, Rare};
use crate::names::name_table::NameTable;

/// What an inode takes at least, with what its allocations cost.
pub(crate) const INODE_BYTES: i64 =
    (size_of::<Inode>() + size_of::<Mutex<Attributes>>() + 2 * 16) as i64;

/// In the place of the bytes that an inode is counted for.
const DISCOUNTED: u64 = u64::MAX;

impl Core {
    /// The names of a directory, if they are loaded.
    pub fn names(&self) -> Option<&NameTable> {
        match &self.body {
            Body::Directory(directory) => directory.table.get(),
            _ => None,
        }
    }

    /// About how many bytes it takes, with all that is loaded of it.
    pub fn bytes(&self, guard: &Guard) -> u64 {
        let body = match &self.body {
            Body::Regular(file) => {
                let contents = file.used_contents().map_or(0, |contents| {
                    let extents = contents.extents.get();
                    size_of::<Contents>() + extents.map_or(0, |extents| extents.bytes(guard))
                });
                contents + file.inline_bytes()
            }
            Body::Directory(directory) => {
                let table = directory.table.get();
                table.map_or(0, |table| table.bytes(guard))
            }
            Body::Symlink(text) => text.get().map_or(0, |text| text.len()),
            Body::Special(_) => 0,
        };
        let rare = self.rare.get().map_or(0, |rare| {
            let values = rare.xattrs.get().map_or(0, |xattrs| {
                let values = xattrs.read();
                let bytes = values
                    .iter()
                    .map(|(name, value)| name.len() + value.len() + 64);
                bytes.sum::<usize>()
            });
            size_of::<Rare>() + values
        });
        INODE_BYTES as u64 + (body + rare) as u64
    }

    /// It is counted for so many bytes from now on, unless it was discounted: tells how many they
    /// are more than before.
    pub fn count(&self, bytes: u64) -> i64 {
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let counted = (self.counted).fetch_update(set, fetch, |counted| {
            (counted != DISCOUNTED).then_some(bytes)
        });
        counted.map_or(0, |before| bytes.wrapping_sub(before) as i64)
    }

    /// It leaves memory, and is counted no more: tells for how many bytes it was. By each of those
    /// that find it gone; all but one find 0.
    pub fn discount(&self) -> i64 {
        match self.counted.swap(DISCOUNTED, Ordering::Relaxed) {
            DISCOUNTED => 0,
            counted => counted as i64,
        }
    }
}
