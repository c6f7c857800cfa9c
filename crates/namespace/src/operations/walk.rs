//! Path walks: from a directory along a path to an inode, or to the directory and name at its end.
//!
//! # Protocol
//! A walk runs inside one operation, under its epoch guard: the directories that it passes through
//! cannot be reclaimed meanwhile, and nothing is evicted while an operation runs. So it takes no
//! lock and no reference, and writes no line that another CPU reads; but a link that it follows is
//! noted in the link's access time after a change or a day, under the link's lock. Only what it
//! ends at is referenced, and only if its caller asks for that.
//!
//! # Invariants
//! 1. From a directory to a name: the name is found, then its inode, then that the name still names
//!    it. An inode number that was given away in between is not mistaken for the inode that was
//!    named.
//! 2. The root's parent is the root: no path and no symbolic link leads out of the tree.
//!
//! What a path, or the way to its last name, has led to before is found at once (`path_cache`),
//! instead of name by name.
//!
//! References: POSIX.1-2024, XBD 4.16 Pathname Resolution; path_resolution(7).

use std::borrow::Cow;

use crossbeam_epoch::Guard;
use finefs_locks::primitive::thread;

use crate::access::permission::{EXECUTE, may_search_all};
use crate::base::error::{Error, Result};
use crate::base::store::FoldName;
use crate::base::types::{Caller, FileKind, Ino};
use crate::inode::Inode;
use crate::names::name_table::{HashedName, NameTable, Request, lock_all};
use crate::names::path_cache::Way;
use crate::namespace::Namespace;
use crate::operations::lookup::Named;

/// Symbolic links that one walk follows before it gives up (path_resolution(7)).
pub const SYMLINKS_MAX: u32 = 40;

/// A path and where it starts.
#[derive(Clone, Copy, Debug)]
pub struct At<'p> {
    /// The directory in which a relative path starts. The caller holds a reference on it.
    pub start: Ino,
    /// The components, separated by slashes. With a slash in front it starts at the root.
    pub path: &'p [u8],
}

/// What becomes of a symbolic link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LastLink {
    /// It is followed.
    #[default]
    Follow,
    /// The path names the link itself, unless a slash follows it.
    Keep,
}

/// Where an operation finds its name.
#[derive(Clone, Copy)]
pub(crate) enum Place<'p> {
    /// In a directory that the caller holds a reference on.
    Name(Ino, &'p [u8]),
    /// At the end of a path.
    Path(At<'p>),
}

/// A directory and a name in it, there or not: nobody has looked yet.
pub(crate) struct Located<'g> {
    pub dir: &'g Inode,
    pub table: &'g NameTable,
    /// `.` where the path is only slashes.
    name: Cow<'g, [u8]>,
    hash: u64,
    fold: Option<FoldName>,
    /// A slash follows the name: only a directory will do.
    pub has_slash: bool,
    /// The path has no name at all: it is the root.
    pub is_root: bool,
}

impl<'g> Located<'g> {
    /// The name, hashed for the directory's table.
    pub fn name(&self) -> HashedName<'_> {
        HashedName {
            bytes: &self.name,
            hash: self.hash,
            fold: self.fold,
        }
    }

    /// Whether it names this inode, by a look under the lock of its bucket. An error where the
    /// directory is gone.
    pub fn names(&self, inode: &Inode, guard: &'g Guard) -> Result<bool> {
        let request = Request::Name {
            dir: self.dir.ino,
            table: self.table,
            name: self.name(),
        };
        let held = lock_all(&[request], guard)?;
        let node = held.get(0).find(self.name(), guard);
        Ok(node.is_some_and(|node| node.ino == inode.ino))
    }
}

/// A walk under way.
pub(crate) struct Walk<'g> {
    namespace: &'g Namespace,
    caller: &'g Caller,
    guard: &'g Guard,
    /// Where `rest[position..]` starts.
    at: &'g Inode,
    rest: Cow<'g, [u8]>,
    position: usize,
    links: u32,
}

impl Namespace {
    /// The directory and name of a place.
    pub(crate) fn locate<'g>(
        &'g self,
        caller: &'g Caller,
        place: Place<'g>,
        guard: &'g Guard,
    ) -> Result<Located<'g>> {
        match place {
            Place::Name(dir, name) => {
                let dir = self.inode(dir, guard)?;
                dir.directory()?;
                self.check_access(caller, dir, EXECUTE)?;
                self.located(dir, Cow::Borrowed(name), false, false)
            }
            Place::Path(at) => Walk::new(self, caller, at, guard)?.find_last(),
        }
    }

    fn located<'g>(
        &self,
        dir: &'g Inode,
        name: Cow<'g, [u8]>,
        has_slash: bool,
        is_root: bool,
    ) -> Result<Located<'g>> {
        let table = self.table(dir)?;
        let HashedName { hash, fold, .. } = table.hashed(&name);
        Ok(Located {
            dir,
            table,
            hash,
            fold,
            name,
            has_slash,
            is_root,
        })
    }
}

impl<'g> Walk<'g> {
    pub fn new(
        namespace: &'g Namespace,
        caller: &'g Caller,
        at: At<'g>,
        guard: &'g Guard,
    ) -> Result<Walk<'g>> {
        let start = match at.path.first() {
            None => return Err(Error::NotFound),
            Some(b'/') => namespace.root(),
            Some(_) => at.start,
        };
        Ok(Walk {
            namespace,
            caller,
            guard,
            at: namespace.inode(start, guard)?,
            rest: Cow::Borrowed(at.path),
            position: 0,
            links: 0,
        })
    }

    /// Walks to the last component. What it names is not looked at.
    pub fn find_last(&mut self) -> Result<Located<'g>> {
        let way = self.go_along_known();
        let mut found = None;
        loop {
            let rest: &[u8] = &self.rest;
            let start = after_slashes(rest, self.position);
            if start == rest.len() {
                let name = Cow::Borrowed(&b"."[..]);
                return self.namespace.located(self.at, name, true, true);
            }
            self.at.directory()?;
            self.namespace.check_access(self.caller, self.at, EXECUTE)?;
            let end = end_of_name(rest, start);
            self.position = after_slashes(rest, end);
            if self.position == rest.len() {
                if let (Some(way), Some(found), 0) = (way, found, self.links) {
                    self.namespace.remember(way, found, self.guard);
                }
                let name = match &self.rest {
                    Cow::Borrowed(rest) => Cow::Borrowed(&rest[start..end]),
                    Cow::Owned(rest) => Cow::Owned(rest[start..end].to_vec()),
                };
                let has_slash = end < rest.len();
                return self.namespace.located(self.at, name, has_slash, false);
            }
            let table = self.namespace.table(self.at)?;
            let name = table.hashed(&rest[start..end]);
            let child = self.namespace.named(self.at, table, name, self.guard)?;
            if child.inode.kind == FileKind::Symlink {
                self.follow(child.inode)?;
            } else {
                self.at = child.inode;
                found = Some(child);
            }
        }
    }

    /// The way along so much of the path, if it can be remembered.
    fn way(&self, length: usize) -> Option<Way> {
        let may_ask = self.links == 0 && may_search_all(self.caller);
        let way = &self.rest[..length];
        let goes_down = may_ask && !way.windows(2).any(|two| two == b"..");
        goes_down.then(|| self.namespace.paths.way(self.at.ino, way))?
    }

    /// Goes to the directory of the last name, if the way there is remembered; else gives what it
    /// is to be remembered by, if it can be.
    fn go_along_known(&mut self) -> Option<Way> {
        let length = length_of_way(&self.rest)?;
        let way = self.way(length)?;
        match self.namespace.known(way, self.guard) {
            None => Some(way),
            Some(found) => {
                self.at = found.inode;
                self.position = length;
                None
            }
        }
    }

    /// Goes on along a symbolic link of the directory where the walk is.
    pub fn follow(&mut self, link: &'g Inode) -> Result<()> {
        self.links += 1;
        if self.links > SYMLINKS_MAX {
            return Err(Error::SymlinkLoop);
        }
        let text = self.namespace.symlink_text(link)?;
        self.namespace.note_passing_access(link);
        if text.is_empty() {
            return Err(Error::NotFound);
        }
        if text[0] == b'/' {
            self.at = self.namespace.inode(self.namespace.root(), self.guard)?;
        }
        let left = &self.rest[self.position..];
        let ends_in_slash = self.rest.ends_with(b"/");
        self.rest = if left.is_empty() && !ends_in_slash {
            Cow::Borrowed(text)
        } else {
            Cow::Owned([text, b"/", left].concat())
        };
        self.position = 0;
        Ok(())
    }

    /// The inode at the end. With `is_held` a reference is taken on it.
    pub fn resolve(&mut self, link: LastLink, is_held: bool) -> Result<&'g Inode> {
        let way = self.way_to_end();
        if let Some(found) = self.known(way)
            && (!is_held || self.refer(found))
        {
            return Ok(found.inode);
        }
        loop {
            let last = self.find_last()?;
            loop {
                let found = self.look(&last)?;
                let inode = found.inode;
                if inode.kind == FileKind::Symlink && (link == LastLink::Follow || last.has_slash) {
                    self.follow(inode)?;
                    break;
                }
                if last.has_slash && inode.kind != FileKind::Directory {
                    return Err(Error::NotADirectory);
                }
                if !is_held || self.refer(found) {
                    self.remember(way, found);
                    return Ok(inode);
                }
                thread::yield_now();
            }
        }
    }

    /// What the whole path is to be remembered by, if it can be.
    #[inline]
    pub fn way_to_end(&self) -> Option<Way> {
        self.way(self.rest.len())
    }

    /// What the whole path leads to, if that is known; never a symbolic link.
    #[inline]
    pub fn known(&self, way: Option<Way>) -> Option<Named<'g>> {
        self.namespace.known(way?, self.guard)
    }

    /// Remembers what the whole path led to, if it can be.
    #[inline]
    pub fn remember(&self, way: Option<Way>, found: Named<'_>) {
        if let Some(way) = way
            && self.links == 0
            && found.inode.kind != FileKind::Symlink
        {
            self.namespace.remember(way, found, self.guard);
        }
    }

    /// What the last component names.
    pub fn look(&self, last: &Located<'g>) -> Result<Named<'g>> {
        self.namespace
            .named(last.dir, last.table, last.name(), self.guard)
    }

    /// Takes a reference on what the last component was just found to name; false when it is that
    /// no longer, and to be looked up again.
    pub fn refer(&self, found: Named<'_>) -> bool {
        self.namespace.refer_found(found, self.guard)
    }
}

/// How much of a path is the way to the directory of its last name, the slash included, if it has
/// one.
fn length_of_way(path: &[u8]) -> Option<usize> {
    let is_name = |byte: &u8| *byte != b'/';
    let end = path.iter().rposition(is_name)? + 1;
    let length = path[..end].iter().rposition(|byte| *byte == b'/')? + 1;
    path[..length].iter().any(is_name).then_some(length)
}

/// Where what is no slash begins, from `at` on.
#[inline]
fn after_slashes(path: &[u8], mut at: usize) -> usize {
    while path.get(at) == Some(&b'/') {
        at += 1;
    }
    at
}

/// Where the name ends that begins at `at`.
#[inline]
fn end_of_name(path: &[u8], mut at: usize) -> usize {
    while path.get(at).is_some_and(|byte| *byte != b'/') {
        at += 1;
    }
    at
}
