//! Reading directories, with cookies that stay good under change.

use crossbeam_epoch::Guard;

use crate::access::access_time::AtimeUpdate;
use crate::base::error::{Error, Result};
use crate::base::types::{FileKind, Ino};
use crate::inode::Inode;
use crate::names::name_table::{COOKIE_FIRST, NameTable, Node};
use crate::namespace::Namespace;
use crate::schemes::Call;

/// One entry as [`Namespace::read_directory`] gives it.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode that it names.
    pub ino: Ino,
    /// Its kind. `None` where the format does not note kinds in entries and the inode cannot be
    /// loaded: to use it gives the error.
    pub kind: Option<FileKind>,
    /// Where to go on after this entry.
    pub cookie: u64,
}

impl Namespace {
    /// Gives the entries after `cookie` (0: from the start, `.` and `..` first) to `sink`, until it
    /// answers that it is full; the entry it then refused comes again next time. An entry that is
    /// there from before the first call to after the last is given exactly once.
    pub fn read_directory(
        &self,
        ino: Ino,
        cookie: u64,
        sink: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        self.read_directory_with_atime(ino, cookie, sink, AtimeUpdate::ByPolicy)
    }

    /// As [`Namespace::read_directory`], noted in the access time or not.
    pub fn read_directory_with_atime(
        &self,
        ino: Ino,
        cookie: u64,
        sink: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
        atime: AtimeUpdate,
    ) -> Result<()> {
        let operation = self.begin(Call::ReadDirectory)?;
        let guard = &operation.guard;
        let dir = self.inode(ino, guard)?;
        let table = self.table(dir)?;
        self.note_access(dir, atime);
        let dots: [(&[u8], Ino); 2] = [(b".", ino), (b"..", self.parent_of(dir)?)];
        for (index, (name, ino)) in dots.into_iter().enumerate() {
            let kind = Some(FileKind::Directory);
            let own = index as u64 + 1;
            if cookie < own
                && !sink(DirectoryEntry {
                    name,
                    ino,
                    kind,
                    cookie: own,
                })
            {
                return Ok(());
            }
        }
        table.for_each_after(cookie.max(COOKIE_FIRST - 1), guard, |node| {
            let (ino, kind) = match node.kind {
                // What the name was found to name: it may have been removed or replaced since.
                Some(kind) => (node.ino, Some(kind)),
                // Formats without kinds in their entries: the inode tells.
                None => match self.listed(dir, table, node, guard) {
                    Ok(inode) => (inode.ino, Some(inode.kind)),
                    Err(Error::NotFound) => return true,
                    Err(_) => (node.ino, None),
                },
            };
            sink(DirectoryEntry {
                name: &node.name,
                ino,
                kind,
                cookie: node.cookie(),
            })
        });
        Ok(())
    }

    /// The inode that a name names, which was found a moment ago. `Error::NotFound` where it was
    /// removed since; other errors where the inode cannot be loaded.
    fn listed<'g>(
        &'g self,
        dir: &'g Inode,
        table: &NameTable,
        node: &Node,
        guard: &'g Guard,
    ) -> Result<&'g Inode> {
        match self.inode(node.ino, guard) {
            Ok(inode) if !node.is_out(guard) => Ok(inode),
            // A name that was replaced is there all the time, and where it was. (What it named is
            // gone before that is seen.)
            _ => {
                let name = table.hashed(&node.name);
                let named = self.named(dir, table, name, guard)?;
                Ok(named.inode)
            }
        }
    }
}
