//! READDIR and READDIRPLUS.
//!
//! READDIRPLUS takes a reference on each inode it tells about, which may load the inode. That is
//! not done inside the namespace's walk over the entries, which may hold what loading needs; so
//! entries are taken out in chunks first. No entry can vanish in between: the kernel holds the
//! directory's own lock over READDIR, and shared with it no name of that directory changes.

use finefs_namespace::types::{FileKind, Ino};
use finefs_namespace::{AtimeUpdate, DirectoryEntry, Namespace, Result};
use zerocopy::IntoBytes;

use crate::abi::{Dirent, EntryOut};
use crate::convert::{NameLifetime, Numbers, Shown, entry_out};

/// About what fits into the 32 KiB buffers that readdir(3) asks with.
const CHUNK_ENTRIES: usize = 128;

/// Entries are put into an answer one behind the other, each at a multiple of eight bytes.
struct List<'a> {
    space: &'a mut [u8],
    length: usize,
}

impl List<'_> {
    /// Adds an entry; false, and nothing added, when it does not fit.
    fn add(
        &mut self,
        head: &[u8],
        ino: Ino,
        cookie: u64,
        kind: Option<FileKind>,
        name: &[u8],
    ) -> bool {
        let dirent = Dirent {
            ino: ino.0,
            cookie,
            name_length: name.len() as u32,
            // The kind of dirent.h is the upper part of stat(2)'s mode, and DT_UNKNOWN 0.
            kind: kind.map_or(0, |kind| kind.mode_bits() >> 12),
        };
        let length = head.len() + size_of::<Dirent>() + name.len();
        let padded = length.next_multiple_of(8);
        let Some(space) = self.space.get_mut(self.length..self.length + padded) else {
            return false;
        };
        let (to_head, space) = space.split_at_mut(head.len());
        to_head.copy_from_slice(head);
        let (to_dirent, space) = space.split_at_mut(size_of::<Dirent>());
        to_dirent.copy_from_slice(dirent.as_bytes());
        let (to_name, padding) = space.split_at_mut(name.len());
        to_name.copy_from_slice(name);
        padding.fill(0);
        self.length += padded;
        true
    }
}

/// Fills `space` with the entries after `cookie`; gives the length used.
pub(crate) fn fill(
    namespace: &Namespace,
    ino: Ino,
    cookie: u64,
    atime: AtimeUpdate,
    space: &mut [u8],
) -> Result<usize> {
    let mut list = List { space, length: 0 };
    let mut add =
        |entry: DirectoryEntry<'_>| list.add(&[], entry.ino, entry.cookie, entry.kind, entry.name);
    namespace.read_directory_with_atime(ino, cookie, &mut add, atime)?;
    Ok(list.length)
}

struct Taken {
    name: Vec<u8>,
    ino: Ino,
    kind: Option<FileKind>,
    cookie: u64,
}

/// As [`fill`], each entry with its attributes and a reference.
pub(crate) fn fill_plus(
    namespace: &Namespace,
    (numbers, shown): (Numbers, Shown),
    ino: Ino,
    mut cookie: u64,
    atime: AtimeUpdate,
    space: &mut [u8],
) -> Result<usize> {
    let lifetime = NameLifetime::of(namespace, ino);
    let mut list = List { space, length: 0 };
    loop {
        let mut chunk = Vec::with_capacity(CHUNK_ENTRIES);
        let mut take = |entry: DirectoryEntry<'_>| {
            if chunk.len() == CHUNK_ENTRIES {
                return false;
            }
            chunk.push(Taken {
                name: entry.name.to_vec(),
                ino: entry.ino,
                kind: entry.kind,
                cookie: entry.cookie,
            });
            true
        };
        let walked = namespace.read_directory_with_atime(ino, cookie, &mut take, atime);
        match walked {
            // What was added already holds references and has to go out; asking again for the
            // rest meets the error again.
            Err(_) if list.length > 0 => return Ok(list.length),
            result => result?,
        }
        let is_last = chunk.len() < CHUNK_ENTRIES;
        for taken in chunk {
            cookie = taken.cookie;
            if !add_plus(namespace, (numbers, shown, lifetime), &taken, &mut list) {
                return Ok(list.length);
            }
        }
        if is_last {
            return Ok(list.length);
        }
    }
}

/// Adds one entry; false when it no longer fitted.
fn add_plus(
    namespace: &Namespace,
    (numbers, shown, lifetime): (Numbers, Shown, NameLifetime),
    taken: &Taken,
    list: &mut List<'_>,
) -> bool {
    let Taken {
        name,
        ino,
        kind,
        cookie,
    } = taken;
    let mut add =
        |entry: &EntryOut| list.add(entry.as_bytes(), *ino, *cookie, *kind, name.as_slice());
    // Node 0 tells of a name only; the kernel then takes no reference. So it is for these two, and
    // for an inode that cannot be loaded (a damaged image), which still has to be listed: any use
    // of it asks for it and gets the error.
    if name == b"." || name == b".." {
        return add(&EntryOut::default());
    }
    match namespace.reference(*ino) {
        Ok(attributes) => {
            let node = numbers.node(*ino);
            let has_fitted = add(&entry_out(shown, node, &attributes, lifetime));
            if !has_fitted {
                namespace.forget(*ino, 1);
            }
            has_fitted
        }
        Err(error) => {
            let name = String::from_utf8_lossy(name);
            log::warn!("inode {ino}, listed as {name:?}, cannot be loaded: {error}");
            add(&EntryOut::default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_padded_and_stop_at_the_end() {
        let mut space = [0xff; 64];
        let mut list = List {
            space: &mut space,
            length: 0,
        };
        assert!(list.add(&[], Ino(7), 3, Some(FileKind::Directory), b"abc"));
        assert_eq!(list.length, 32);
        // 24 + 9 bytes take 40: no longer there, and nothing is half there.
        assert!(!list.add(&[], Ino(8), 4, Some(FileKind::Regular), b"123456789"));
        assert!(list.add(&[], Ino(8), 4, None, b"12345678"));
        assert_eq!(list.length, 64);
        assert_eq!(space[0..8], 7u64.to_ne_bytes());
        assert_eq!(space[16..20], 3u32.to_ne_bytes());
        assert_eq!(space[20..24], 4u32.to_ne_bytes());
        assert_eq!(&space[24..32], b"abc\0\0\0\0\0");
        assert_eq!(space[48..52], 8u32.to_ne_bytes());
        // Nobody knows what it is.
        assert_eq!(space[52..56], 0u32.to_ne_bytes());
    }
}
