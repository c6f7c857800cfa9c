//! READDIR and READDIRPLUS.
//!
//! READDIRPLUS takes a reference on each inode it tells about, which may load the inode. That is
//! not done inside the namespace's walk over the entries, which may hold what loading needs; so
//! entries are taken out in chunks first. No entry can vanish in between: the kernel holds the
//! directory's own lock over READDIR, and shared with it no name of that directory changes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use finefs_namespace::types::{Attributes, FileKind, Ino, Times};
use finefs_namespace::{Namespace, Result};
use fuser::{Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};

use crate::convert::{FOREVER, Numbers, file_attr, file_type};
use crate::strays::Strays;

/// About what fits into the 32 KiB buffers that readdir(3) asks with.
const CHUNK_ENTRIES: usize = 128;

/// Fills a READDIR reply with the entries after `cookie`.
pub(crate) fn fill(
    namespace: &Namespace,
    ino: Ino,
    cookie: u64,
    reply: &mut ReplyDirectory,
) -> Result<()> {
    namespace.read_directory(ino, cookie, &mut |entry| {
        let name = OsStr::from_bytes(entry.name);
        let kind = file_type(entry.kind);
        !reply.add(INodeNo(entry.ino.0), entry.cookie, kind, name)
    })
}

struct Taken {
    name: OsString,
    ino: Ino,
    kind: FileKind,
    cookie: u64,
}

/// Fills a READDIRPLUS reply with the entries after `cookie`.
pub(crate) fn fill_plus(
    namespace: &Namespace,
    numbers: Numbers,
    strays: &Strays,
    io_size_bytes: u32,
    ino: Ino,
    mut cookie: u64,
    reply: &mut ReplyDirectoryPlus,
) -> Result<()> {
    let mut has_entries = false;
    loop {
        let mut chunk = Vec::with_capacity(CHUNK_ENTRIES);
        let walked = namespace.read_directory(ino, cookie, &mut |entry| {
            if chunk.len() == CHUNK_ENTRIES {
                return false;
            }
            chunk.push(Taken {
                name: OsString::from_vec(entry.name.to_vec()),
                ino: entry.ino,
                kind: entry.kind,
                cookie: entry.cookie,
            });
            true
        });
        match walked {
            // What was added already holds references and has to go out; asking again for the
            // rest meets the error again.
            Err(_) if has_entries => return Ok(()),
            result => result?,
        }
        let is_last = chunk.len() < CHUNK_ENTRIES;
        for taken in chunk {
            cookie = taken.cookie;
            if add_plus(namespace, numbers, strays, io_size_bytes, taken, reply) {
                return Ok(());
            }
            has_entries = true;
        }
        if is_last {
            return Ok(());
        }
    }
}

/// Adds one entry; true when it no longer fitted.
fn add_plus(
    namespace: &Namespace,
    numbers: Numbers,
    strays: &Strays,
    io_size_bytes: u32,
    taken: Taken,
    reply: &mut ReplyDirectoryPlus,
) -> bool {
    let Taken {
        name,
        ino,
        kind,
        cookie,
    } = taken;
    let mut add = |number, lifetime: Duration, attributes: &Attributes| {
        let attr = file_attr(attributes, number, io_size_bytes);
        let generation = Generation(u64::from(attributes.generation));
        reply.add(number, cookie, &name, &lifetime, &attr, generation)
    };
    // The kernel takes no reference on these two, and shows the number as it stands.
    if name == "." || name == ".." {
        return add(INodeNo(ino.0), Duration::ZERO, &made_up(ino, kind));
    }
    match namespace.reference(ino) {
        Ok(attributes) => {
            let is_full = add(numbers.node(ino), FOREVER, &attributes);
            if is_full {
                namespace.forget(ino, 1);
            }
            is_full
        }
        Err(error) => {
            log::warn!("inode {ino}, listed as {name:?}, cannot be loaded: {error}");
            strays.add(ino);
            let is_full = add(numbers.node(ino), Duration::ZERO, &made_up(ino, kind));
            if is_full {
                strays.forget(ino, 1);
            }
            is_full
        }
    }
}

/// Attributes of which only the number and the kind mean anything.
fn made_up(ino: Ino, kind: FileKind) -> Attributes {
    Attributes {
        ino,
        generation: 0,
        kind,
        permissions: 0,
        link_count: 1,
        uid: 0,
        gid: 0,
        device: 0,
        size_bytes: 0,
        sectors: 0,
        times: Times::default(),
        flags: 0,
    }
}
