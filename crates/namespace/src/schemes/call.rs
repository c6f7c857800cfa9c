//! The kinds of operations, as far as schemes tell them apart.

/// What an operation does, as far as schemes care.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// Find a name, or an inode by its number.
    Lookup,
    /// Make a name: create, mknod, mkdir, symlink, link, or a file without a name.
    MakeName,
    /// unlink, rmdir.
    RemoveName,
    Rename,
    ReadDirectory,
    ReadLink,
    /// stat.
    GetAttributes,
    /// chmod, chown, utimens, truncate, and the loss of set-id bits.
    SetAttributes,
    /// access.
    Permission,
    /// Get, set, list, remove extended attributes.
    Xattr,
    /// Open a file, close it, or give back references.
    OpenClose,
    /// Read, write, append, fallocate, seek.
    Data,
    /// Lock a file or a range of it, unlock, ask for the holder. A wait is no part of it.
    FileLock,
    /// fsync's look at the inode.
    SyncFile,
    /// statfs.
    StatFs,
    /// The end of an inode without names.
    FreeInode,
}

#[cfg(feature = "locking-schemes")]
impl Call {
    /// True for what Linux 2.5.5-pre1 did under the big kernel lock.
    ///
    /// In the thread "BKL removal from VFS" (linux-fsdevel, February 2002) Viro answers that most
    /// directory operations of 2.5 are free of it already: what is left in fs/namei.c is
    /// `->permission()` and, for renames, two calls of `d_move()`; `->setattr()` is to follow. The
    /// kernel's Documentation/filesystems/porting lists what was called without it by then: lookup,
    /// create, unlink, mknod, mkdir, rmdir, link, symlink, lseek, readdir; permission and statfs
    /// followed in 2.5.23 and 2.5.25. Data, open, close and stat of regular files had not been
    /// under it since 2.2.
    pub fn is_under_kernel_lock(self) -> bool {
        match self {
            // notify_change(), ->truncate() included.
            Call::SetAttributes => true,
            Call::Permission => true,
            // d_move().
            Call::Rename => true,
            // fs/xattr.c takes it.
            Call::Xattr => true,
            // posix_lock_file() and flock_lock_file(), until 2.6.37.
            Call::FileLock => true,
            // sys_fsync().
            Call::SyncFile => true,
            Call::StatFs => true,
            // ->delete_inode() of ext2.
            Call::FreeInode => true,
            Call::Lookup
            | Call::MakeName
            | Call::RemoveName
            | Call::ReadDirectory
            | Call::ReadLink
            | Call::GetAttributes
            | Call::OpenClose
            | Call::Data => false,
        }
    }
}
