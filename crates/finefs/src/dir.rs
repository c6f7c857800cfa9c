//! Directory handles, and every operation on a path.
//!
//! Operations that are one call of the namespace stand here; what is made of several is in `whole`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use finefs_namespace::{
    At, AtimeUpdate, Caller, Create, Error as Cause, FileFlags, FileKind, Ino, LastLink, Namespace,
    OpenAccess, OpenHow, Opened, RenameMode, SetAttributes, XattrMode,
};

use crate::error::{Error, Result};
use crate::file::File;
use crate::metadata::{FileTimes, Metadata, Permissions};
use crate::open_options::OpenOptions;
use crate::view::View;

/// An open directory, and the place where relative paths start. A [`crate::FileSystem`] is used as
/// one: its root.
///
/// The handle stays on its directory when that is renamed or moved. Absolute paths start at the
/// root of the file system. Paths are resolved as POSIX says: symbolic links are followed, 40 at
/// most; a slash at the end asks for a directory; the parent of the root is the root, so no path
/// and no link leads out.
///
/// ```
/// # let fs = finefs::FileSystem::memory(1 << 20)?;
/// fs.create_dir_all("srv/www")?;
/// let www = fs.open_dir("srv/www")?;
/// www.write("index.html", "hello")?;
/// fs.rename("srv/www", "site")?;
/// assert_eq!(www.read_to_string("../site/index.html")?, "hello");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Dir {
    view: Arc<View>,
    /// `None` for the root, which nobody can remove.
    opened: Option<Opened>,
    ino: Ino,
}

impl Dir {
    pub(crate) fn root(view: Arc<View>) -> Dir {
        Dir {
            ino: view.namespace().root(),
            view,
            opened: None,
        }
    }

    pub(crate) fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The directory itself, where relative paths start.
    pub(crate) fn start(&self) -> Ino {
        self.ino
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        self.view.namespace()
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.view.caller
    }

    fn at<'p>(&self, path: &'p Path) -> At<'p> {
        At {
            start: self.ino,
            path: path.as_os_str().as_bytes(),
        }
    }

    /// Opens a directory as a start for relative paths. That asks for no permission on it; using it
    /// does.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        self.open_directory("open directory", path.as_ref(), None, LastLink::Follow)
    }

    pub(crate) fn open_directory(
        &self,
        operation: &'static str,
        path: &Path,
        access: Option<OpenAccess>,
        last_link: LastLink,
    ) -> Result<Dir> {
        let how = OpenHow {
            access,
            is_truncated: false,
            create: Create::Never,
            last_link,
            is_directory_wanted: true,
            atime: AtimeUpdate::ByPolicy,
        };
        let opened = self
            .namespace()
            .open_at(self.caller(), self.at(path), &how)
            .map_err(|cause| Error::at(operation, path, cause))?;
        Ok(Dir {
            ino: opened.ino(),
            view: Arc::clone(&self.view),
            opened: Some(opened),
        })
    }

    /// The same directory for another caller.
    pub fn as_caller(&self, caller: Caller) -> Result<Dir> {
        let view = View::new(Arc::clone(&self.view.mounted), caller);
        if self.opened.is_none() {
            return Ok(Dir::root(view));
        }
        let mut dir = self.open_dir(".")?;
        dir.view = view;
        Ok(dir)
    }

    /// Opens a file for reading. [`Dir::open_with`] has every other way.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        File::open(self, path)
    }

    /// Opens a file for writing; makes it, or empties it.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        File::create(self, path)
    }

    /// Opens a file as `options` say.
    pub fn open_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        options.open(self, path)
    }

    /// Another handle of the same directory.
    pub fn try_clone(&self) -> Result<Dir> {
        match self.opened {
            Some(_) => self.open_dir("."),
            None => Ok(Dir::root(Arc::clone(&self.view))),
        }
    }

    fn look(&self, path: &Path, link: LastLink) -> Result<Metadata> {
        self.namespace()
            .attributes_at(self.caller(), self.at(path), link)
            .map(Metadata::new)
            .map_err(|cause| Error::at("stat", path, cause))
    }

    /// The attributes of what a path leads to.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.look(path.as_ref(), LastLink::Follow)
    }

    /// The same, but of a symbolic link at the end of the path its own.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.look(path.as_ref(), LastLink::Keep)
    }

    /// Whether a path leads to something. An error if that cannot be told.
    pub fn try_exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if *error.cause() == Cause::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates a directory with permissions 0777 less the caller's umask.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_dir_with_mode(path, 0o777)
    }

    /// Creates a directory with these permission bits less the caller's umask. Set-id bits do not
    /// count, as with mkdir(2): a directory in one that has the set-group-ID bit has it too.
    pub fn create_dir_with_mode(&self, path: impl AsRef<Path>, permissions: u32) -> Result<()> {
        let path = path.as_ref();
        self.namespace()
            .make_directory_at(self.caller(), self.at(path), permissions)
            .map_err(|cause| Error::at("create directory", path, cause))
    }

    /// Removes a file's name; open handles go on. EISDIR for a directory.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.namespace()
            .remove_file_at(self.caller(), self.at(path))
            .map_err(|cause| Error::at("remove", path, cause))
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.namespace()
            .remove_directory_at(self.caller(), self.at(path))
            .map_err(|cause| Error::at("remove directory", path, cause))
    }

    /// Gives what is at `from` the path `to`, replacing what is there, in one step.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// The same, but EEXIST when `to` is there.
    pub fn rename_no_replace(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameMode::NoReplace)
    }

    /// Lets two names change places, in one step.
    pub fn exchange(&self, one: impl AsRef<Path>, other: impl AsRef<Path>) -> Result<()> {
        self.rename_with(one, other, RenameMode::Exchange)
    }

    fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        self.rename_to(from, self, to, mode)
    }

    /// Gives what is at `from` the path `to` in `target`. EXDEV when that is another file system.
    pub fn rename_to(
        &self,
        from: impl AsRef<Path>,
        target: &Dir,
        to: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        self.check_same(target.namespace())
            .and_then(|()| {
                let (from, to) = (self.at(from), target.at(to));
                self.namespace().rename_at(self.caller(), from, to, mode)
            })
            .map_err(|cause| Error::at("rename", from, cause).to(to))
    }

    /// Gives the file at `original` the further name `link`. A symbolic link at the end of
    /// `original` is not followed.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (original, link) = (original.as_ref(), link.as_ref());
        self.with_inode("link", original, LastLink::Keep, |ino| {
            self.namespace()
                .make_link_at(self.caller(), ino, self.at(link))
        })
        .map_err(|error| error.to(link))
    }

    /// Gives an open file a name here, as for one from
    /// [`open_unnamed`](crate::OpenOptions::open_unnamed). ENOENT for another whose last name is
    /// gone, EXDEV for a file of another file system.
    pub fn link(&self, file: &File, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let linked = if file.is_of(self.namespace()) {
            self.namespace()
                .make_link_at(self.caller(), file.ino(), self.at(path))
        } else {
            Err(Cause::CrossesFileSystems)
        };
        linked.map_err(|cause| Error::at("link open file to", path, cause))
    }

    /// Creates a symbolic link at `link` that leads to `target`, which need not be there.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (target, link) = (target.as_ref(), link.as_ref());
        self.namespace()
            .make_symlink_at(self.caller(), self.at(link), target.as_os_str().as_bytes())
            .map_err(|cause| Error::at("create symbolic link", link, cause).to(target))
    }

    /// Where a symbolic link leads to.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        self.namespace()
            .read_symlink_at(self.caller(), self.at(path))
            .map(|target| OsString::from_vec(target).into())
            .map_err(|cause| Error::at("read link", path, cause))
    }

    /// Creates a device node, FIFO or socket (mknod(2)) with these permission bits less the
    /// caller's umask. `device` is as makedev(3) gives it and counts for devices only.
    pub fn make_node(
        &self,
        path: impl AsRef<Path>,
        kind: FileKind,
        permissions: u32,
        device: u64,
    ) -> Result<()> {
        let path = path.as_ref();
        self.namespace()
            .make_node_at(self.caller(), self.at(path), kind, permissions, device)
            .map_err(|cause| Error::at("create node", path, cause))
    }

    /// EACCES unless the caller may access the file as `mask` says: 4 read, 2 write, 1 execute or
    /// search, 0 only exist (access(2)).
    pub fn access(&self, path: impl AsRef<Path>, mask: u32) -> Result<()> {
        self.with_inode("access", path.as_ref(), LastLink::Follow, |ino| {
            self.namespace().access(self.caller(), ino, mask)
        })
    }

    fn set(
        &self,
        operation: &'static str,
        path: &Path,
        link: LastLink,
        change: &SetAttributes,
    ) -> Result<()> {
        self.with_inode(operation, path, link, |ino| {
            self.namespace()
                .set_attributes(self.caller(), ino, change)
                .map(drop)
        })
    }

    /// Sets the permission bits. EPERM for who neither owns the file nor is root.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: Permissions) -> Result<()> {
        let change = SetAttributes {
            permissions: Some(permissions.mode()),
            ..SetAttributes::default()
        };
        self.set("chmod", path.as_ref(), LastLink::Follow, &change)
    }

    /// Sets flags, and takes others away (chattr(1)). EPERM for who neither owns the file nor is
    /// root, and for [`FileFlags::PRIVILEGED`] ones but for root; EOPNOTSUPP for flags that are
    /// neither [`FileFlags::SETTABLE`] nor [`FileFlags::CASEFOLD`], or not for files of this kind.
    /// An empty directory can be given [`FileFlags::ENCRYPTED`], with the first
    /// [`ImageOptions::key`](crate::ImageOptions::key).
    ///
    /// ```
    /// # use finefs::{FileFlags, FileSystem};
    /// let fs = FileSystem::memory(1 << 20)?;
    /// fs.write("log", "")?;
    /// fs.change_flags("log", FileFlags::APPEND_ONLY, FileFlags::empty())?;
    /// assert!(fs.remove_file("log").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn change_flags(
        &self,
        path: impl AsRef<Path>,
        added: FileFlags,
        removed: FileFlags,
    ) -> Result<()> {
        self.with_inode("set flags", path.as_ref(), LastLink::Follow, |ino| {
            let changeable = FileFlags::SETTABLE | FileFlags::CASEFOLD;
            let addable = changeable | FileFlags::ENCRYPTED;
            if !addable.contains(added) || !changeable.contains(removed) {
                return Err(Cause::NotSupported);
            }
            let change = |before| (before | added) - removed;
            self.namespace().set_flags(self.caller(), ino, change)
        })
    }

    /// Sets the project that a file counts for (chattr -p). EPERM for who neither owns the file nor
    /// is root; EOPNOTSUPP where the file system keeps none.
    pub fn set_project(&self, path: impl AsRef<Path>, project: u32) -> Result<()> {
        self.with_inode("set project", path.as_ref(), LastLink::Follow, |ino| {
            let namespace = self.namespace();
            namespace.set_flags_and_project(self.caller(), ino, |flags| flags, Some(project))
        })
    }

    /// Sets owner and group; `None` leaves them. A symbolic link at the end of the path is followed
    /// or changed itself, as `link` says.
    pub fn set_owner(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
        link: LastLink,
    ) -> Result<()> {
        self.with_inode("chown", path.as_ref(), link, |ino| {
            let caller = self.caller();
            let is_in_group = |gid| caller.is_in_group(gid);
            let set = (self.namespace()).set_owner(caller, ino, (uid, gid), is_in_group);
            set.map(drop)
        })
    }

    /// Sets times. A symbolic link at the end of the path is followed or changed itself, as `link`
    /// says.
    pub fn set_times(
        &self,
        path: impl AsRef<Path>,
        times: FileTimes,
        link: LastLink,
    ) -> Result<()> {
        self.set("set times", path.as_ref(), link, &times.change())
    }

    /// The value of an extended attribute. ENODATA when there is none.
    pub fn get_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        self.with_inode("get xattr", path.as_ref(), LastLink::Follow, |ino| {
            self.namespace()
                .xattr(self.caller(), ino, name.as_ref().as_bytes())
        })
    }

    /// Sets an extended attribute; its name has its prefix (`user.`, `trusted.`, `security.`).
    ///
    /// ACLs are attributes too, `system.posix_acl_access` and `system.posix_acl_default`, in the
    /// form of Linux: a version, which is 2, and for each entry tag, permissions and id.
    /// [`Namespace::set_xattr`](finefs_namespace::Namespace::set_xattr) tells what becomes of them.
    /// ```
    /// use finefs::{Caller, FileSystem, LastLink, XattrMode};
    ///
    /// let fs = FileSystem::memory(16 << 20)?;
    /// fs.write("report", "for one more")?;
    /// let nobody = u32::MAX;
    /// // user::rw- user:1000:r-- group::--- mask::r-- other::---
    /// let entries = [(1_u16, 6_u16, nobody), (2, 4, 1000), (4, 0, nobody), (16, 4, nobody), (32, 0, nobody)];
    /// let mut acl = 2_u32.to_le_bytes().to_vec();
    /// for (tag, permissions, id) in entries {
    ///     acl.extend(tag.to_le_bytes());
    ///     acl.extend(permissions.to_le_bytes());
    ///     acl.extend(id.to_le_bytes());
    /// }
    /// fs.set_xattr("report", "system.posix_acl_access", &acl, XattrMode::Set)?;
    /// assert_eq!(fs.metadata("report")?.mode() & 0o777, 0o640);
    ///
    /// let caller = |uid| Caller { uid, gid: uid, checks: finefs::AccessChecks::Needed, ..Caller::root() };
    /// assert_eq!(fs.as_caller(caller(1000)).read_to_string("report")?, "for one more");
    /// assert!(fs.as_caller(caller(1001)).read_to_string("report").is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.with_inode("set xattr", path.as_ref(), LastLink::Follow, |ino| {
            let name = name.as_ref().as_bytes();
            self.namespace()
                .set_xattr(self.caller(), ino, name, value, mode)
        })
    }

    /// The names of all extended attributes that the caller may see.
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let names = self.with_inode("list xattrs", path.as_ref(), LastLink::Follow, |ino| {
            self.namespace().list_xattrs(self.caller(), ino)
        })?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Removes an extended attribute. ENODATA when there is none, unless it is an ACL.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        self.with_inode("remove xattr", path.as_ref(), LastLink::Follow, |ino| {
            self.namespace()
                .remove_xattr(self.caller(), ino, name.as_ref().as_bytes())
        })
    }

    /// Does something to the inode that a path leads to, while holding a reference on it.
    fn with_inode<T>(
        &self,
        operation: &'static str,
        path: &Path,
        link: LastLink,
        work: impl FnOnce(Ino) -> std::result::Result<T, Cause>,
    ) -> Result<T> {
        let namespace = self.namespace();
        namespace
            .walk(self.caller(), self.at(path), link)
            .and_then(|held| {
                let result = work(held.ino);
                namespace.forget(held.ino, 1);
                result
            })
            .map_err(|cause| Error::at(operation, path, cause))
    }

    fn check_same(&self, other: &Namespace) -> std::result::Result<(), Cause> {
        if std::ptr::eq(self.namespace(), other) {
            Ok(())
        } else {
            Err(Cause::CrossesFileSystems)
        }
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        if let Some(opened) = self.opened.take() {
            self.namespace().close(opened);
        }
    }
}

impl std::fmt::Debug for Dir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dir").field("ino", &self.ino).finish()
    }
}
