//! Operations on paths: what a program asks for that embeds the file system.
//!
//! Each is one operation: the walk and what is done at its end are under one guard, so that no
//! directory on the way, and not the one that holds the name, needs a reference. What exists by
//! number for the kernel's protocol is the same code ([`Place`]).

use crate::access::access_time::AtimeUpdate;
use crate::access::permission::check_owner;
use crate::base::error::{Error, Result};
use crate::base::types::{Attributes, Caller, FileKind, Ino};
use crate::inode::Inode;
use crate::namespace::{Namespace, Operation};
use crate::operations::new_inode::New;
use crate::operations::open_file::{OpenAccess, Opened};
use crate::operations::rename::RenameMode;
use crate::operations::walk::{At, LastLink, Place, Walk};
use crate::schemes::Call;

/// How [`Namespace::open_at`] opens a file (open(2)).
#[derive(Clone, Copy, Debug)]
pub struct OpenHow {
    /// For what; `None` opens any kind without asking for a permission on it (O_PATH).
    pub access: Option<OpenAccess>,
    /// The file is emptied (O_TRUNC). The caller needs write permission.
    pub is_truncated: bool,
    /// Whether it is made.
    pub create: Create,
    /// What becomes of a symbolic link at the end of the path. One that is kept cannot be opened:
    /// ELOOP (O_NOFOLLOW).
    pub last_link: LastLink,
    /// ENOTDIR for anything else (O_DIRECTORY).
    pub is_directory_wanted: bool,
    /// How reads through it set the access time. EPERM for [`AtimeUpdate::Never`] (O_NOATIME) on
    /// what the caller does not own, unless it is opened without access.
    pub atime: AtimeUpdate,
}

/// Whether an open makes the file. Permissions are before the caller's umask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Create {
    /// ENOENT when it is not there.
    Never,
    /// It is made when it is not there (O_CREAT).
    IfMissing {
        /// Permission bits of a new file.
        permissions: u32,
    },
    /// It is made, EEXIST when it is there (O_CREAT and O_EXCL).
    New {
        /// Permission bits of the new file.
        permissions: u32,
    },
}

/// An open made the file.
struct Made {
    /// The directory, if its change has to be durable at once.
    to_sync: Option<Ino>,
}

impl Namespace {
    /// Takes a reference on what a path leads to; give it back with [`Namespace::forget`].
    pub fn walk(&self, caller: &Caller, at: At<'_>, link: LastLink) -> Result<Attributes> {
        let operation = self.begin(Call::Lookup)?;
        let mut walk = Walk::new(self, caller, at, &operation.guard)?;
        Ok(self.shown(walk.resolve(link, true)?, &operation.guard))
    }

    /// The attributes of what a path leads to (stat, lstat). Writes nothing but the
    /// access times of links on the way.
    pub fn attributes_at(&self, caller: &Caller, at: At<'_>, link: LastLink) -> Result<Attributes> {
        let operation = self.begin(Call::GetAttributes)?;
        let mut walk = Walk::new(self, caller, at, &operation.guard)?;
        Ok(self.shown(walk.resolve(link, false)?, &operation.guard))
    }

    /// The target of the symbolic link at the end of a path (readlink).
    pub fn read_symlink_at(&self, caller: &Caller, at: At<'_>) -> Result<Vec<u8>> {
        let operation = self.begin(Call::ReadLink)?;
        let mut walk = Walk::new(self, caller, at, &operation.guard)?;
        let inode = walk.resolve(LastLink::Keep, false)?;
        let target = self.symlink_text(inode)?.to_vec();
        self.note_passing_access(inode);
        Ok(target)
    }

    /// As [`Namespace::make_directory`].
    pub fn make_directory_at(&self, caller: &Caller, at: At<'_>, permissions: u32) -> Result<()> {
        let new = New::directory(permissions, 0);
        self.make(caller, Place::Path(at), &new).map(drop)
    }

    /// Creates a symbolic link. ENAMETOOLONG for a target that the store cannot hold.
    pub fn make_symlink_at(&self, caller: &Caller, at: At<'_>, target: &[u8]) -> Result<()> {
        let new = New::symlink(target, self.geometry.symlink_max, 0)?;
        self.make(caller, Place::Path(at), &new).map(drop)
    }

    /// Creates a file of any kind but directory and symbolic link (mknod).
    pub fn make_node_at(
        &self,
        caller: &Caller,
        at: At<'_>,
        kind: FileKind,
        permissions: u32,
        device: u64,
    ) -> Result<()> {
        let new = New::node(kind, permissions, device, 0)?;
        self.make(caller, Place::Path(at), &new).map(drop)
    }

    /// Gives an inode that the caller holds a reference on another name.
    pub fn make_link_at(&self, caller: &Caller, ino: Ino, at: At<'_>) -> Result<()> {
        self.link(caller, ino, Place::Path(at), false).map(drop)
    }

    /// Removes a name that is not a directory's (unlink). An inode in use lives on without it.
    pub fn remove_file_at(&self, caller: &Caller, at: At<'_>) -> Result<()> {
        self.unlink(caller, Place::Path(at))
    }

    /// Removes an empty directory (rmdir).
    pub fn remove_directory_at(&self, caller: &Caller, at: At<'_>) -> Result<()> {
        self.rmdir(caller, Place::Path(at))
    }

    /// Gives what is at the path `from` the path `to` (renameat2).
    pub fn rename_at(
        &self,
        caller: &Caller,
        from: At<'_>,
        to: At<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        self.rename_places(caller, Place::Path(from), Place::Path(to), mode)
    }

    /// Opens what a path leads to, and makes or empties it as `how` says.
    pub fn open_at(&self, caller: &Caller, at: At<'_>, how: &OpenHow) -> Result<Opened> {
        let (opened, made) = self.with_space(|| {
            // A file system that refuses changes still opens, for reading, what is there.
            let (operation, may_make) = match how.create {
                Create::Never => (self.begin(Call::OpenClose)?, false),
                _ => match self.begin_change(Call::MakeName) {
                    Err(Error::ReadOnly) => (self.begin(Call::OpenClose)?, false),
                    operation => (operation?, true),
                },
            };
            self.open_in(&operation, caller, at, how, may_make)
        })?;
        if how.is_truncated
            && made.is_none()
            && opened.kind() == FileKind::Regular
            && let Err(error) = self.empty(caller, opened.ino())
        {
            self.close(opened);
            return Err(error);
        }
        if let Some(Made { to_sync }) = made
            && let Err(error) = self.sync_directory(to_sync)
        {
            self.close(opened);
            return Err(error);
        }
        Ok(opened)
    }

    /// Empties a file, as its opener asked for. That takes its set-id bits, but by the superuser.
    fn empty(&self, caller: &Caller, ino: Ino) -> Result<()> {
        self.truncate(ino, 0)?;
        if caller.uid != 0 {
            self.clear_privileges(ino, |gid| caller.is_in_group(gid))?;
        }
        Ok(())
    }

    /// Opens or makes.
    fn open_in(
        &self,
        operation: &Operation<'_>,
        caller: &Caller,
        at: At<'_>,
        how: &OpenHow,
        may_make: bool,
    ) -> Result<(Opened, Option<Made>)> {
        let mut walk = Walk::new(self, caller, at, &operation.guard)?;
        let way = match how.create {
            Create::Never => walk.way_to_end(),
            _ => None,
        };
        if let Some(found) = walk.known(way) {
            self.check_how(caller, found.inode, how, false)?;
            if walk.refer(found) {
                return Ok((self.opened(found.inode), None));
            }
        }
        loop {
            let last = walk.find_last()?;
            if last.has_slash && how.create != Create::Never {
                return Err(Error::IsADirectory);
            }
            loop {
                let found = match (walk.look(&last), how.create) {
                    (Err(Error::NotFound), Create::New { permissions })
                    | (Err(Error::NotFound), Create::IfMissing { permissions }) => {
                        if !may_make {
                            return Err(Error::ReadOnly);
                        }
                        let new = New::file(permissions);
                        match self.make_located(operation, caller, &last, &new) {
                            // Somebody else was faster: then that is the file.
                            Err(Error::Exists) if !matches!(how.create, Create::New { .. }) => {
                                continue;
                            }
                            made => {
                                let opened = self.opened_new(made?.ino);
                                let to_sync = self.to_sync(last.dir);
                                return Ok((opened, Some(Made { to_sync })));
                            }
                        }
                    }
                    (Ok(_), Create::New { .. }) => return Err(Error::Exists),
                    (found, _) => found?,
                };
                let inode = found.inode;
                if inode.kind == FileKind::Symlink
                    && (how.last_link == LastLink::Follow || last.has_slash)
                {
                    walk.follow(inode)?;
                    break;
                }
                self.check_how(caller, inode, how, last.has_slash)?;
                if walk.refer(found) {
                    walk.remember(way, found);
                    return Ok((self.opened(inode), None));
                }
            }
        }
    }

    fn check_how(
        &self,
        caller: &Caller,
        inode: &Inode,
        how: &OpenHow,
        has_slash: bool,
    ) -> Result<()> {
        if inode.kind == FileKind::Symlink {
            return Err(if how.is_directory_wanted {
                Error::NotADirectory
            } else {
                Error::SymlinkLoop
            });
        }
        if inode.kind == FileKind::Directory {
            if how.create != Create::Never {
                return Err(Error::IsADirectory);
            }
        } else if has_slash || how.is_directory_wanted {
            return Err(Error::NotADirectory);
        }
        let Some(access) = how.access else {
            return Ok(());
        };
        let access = match (access, how.is_truncated) {
            (OpenAccess::Read, true) => OpenAccess::ReadWrite,
            (access, _) => access,
        };
        self.check_open(caller, inode, access)?;
        match how.atime {
            AtimeUpdate::ByPolicy => Ok(()),
            AtimeUpdate::Never => check_owner(caller, inode),
        }
    }

    /// Opens a new file without a name in the directory that a path leads to (O_TMPFILE).
    /// [`Namespace::make_link_at`] gives it one.
    pub fn open_unnamed_at(&self, caller: &Caller, at: At<'_>, permissions: u32) -> Result<Opened> {
        let dir = self.walk(caller, at, LastLink::Follow)?;
        let made = self.create_unnamed(caller, dir.ino, permissions);
        self.forget(dir.ino, 1);
        Ok(self.opened_new(made?.ino))
    }
}
