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

/// Takes entries until it is full.
pub(super) type Sink<'a> = &'a mut dyn FnMut(DirectoryEntry<'_>) -> bool;

/// A directory that is being listed.
pub(super) struct Listing<'g> {
    pub dir: &'g Inode,
    pub table: &'g NameTable,
    pub guard: &'g Guard,
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
        sink: Sink<'_>,
        atime: AtimeUpdate,
    ) -> Result<()> {
        let mut operation = self.begin(Call::ReadDirectory)?;
        if cookie < COOKIE_FIRST && self.waits_for_commit(ino, &operation.guard)? {
            drop(operation);
            self.commit_listed()?;
            operation = self.begin(Call::ReadDirectory)?;
        }
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
        let listing = Listing { dir, table, guard };
        match self.is_listed_by_store(&listing, cookie) {
            true => self.list_by_store(&listing, cookie, sink),
            false => {
                self.list_by_table(&listing, cookie, sink);
                Ok(())
            }
        }
    }

    /// Gives the names after a cookie that a whole table has.
    fn list_by_table(&self, listing: &Listing<'_>, cookie: u64, sink: Sink<'_>) {
        let Listing { table, guard, .. } = *listing;
        table.for_each_after(cookie.max(COOKIE_FIRST - 1), guard, |node| {
            let Some((ino, kind)) = self.listed_as(listing, node) else {
                return true;
            };
            sink(DirectoryEntry {
                name: &node.name,
                ino,
                kind,
                cookie: node.cookie(),
            })
        });
    }

    /// What a name is listed as naming; `None` where it was removed since it was found.
    pub(super) fn listed_as(
        &self,
        listing: &Listing<'_>,
        node: &Node,
    ) -> Option<(Ino, Option<FileKind>)> {
        match node.kind {
            // What the name was found to name: it may have been removed or replaced since.
            Some(kind) => Some((node.ino, Some(kind))),
            // Formats without kinds in their entries: the inode tells.
            None => match self.listed(listing, node) {
                Ok(inode) => Some((inode.ino, Some(inode.kind))),
                Err(Error::NotFound) => None,
                Err(_) => Some((node.ino, None)),
            },
        }
    }

    /// The inode that a name names, which was found a moment ago. `Error::NotFound` where it was
    /// removed since; other errors where the inode cannot be loaded.
    fn listed<'g>(&'g self, listing: &Listing<'g>, node: &Node) -> Result<&'g Inode> {
        let Listing { dir, table, guard } = *listing;
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
