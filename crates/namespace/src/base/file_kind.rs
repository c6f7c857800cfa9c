//! What an inode is.

/// What an inode is (POSIX `st_mode & S_IFMT`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileKind {
    /// S_IFREG
    Regular,
    /// S_IFDIR
    Directory,
    /// S_IFLNK
    Symlink,
    /// S_IFBLK
    BlockDevice,
    /// S_IFCHR
    CharDevice,
    /// S_IFIFO
    Fifo,
    /// S_IFSOCK
    Socket,
}

impl FileKind {
    /// True for those that have a device number.
    pub fn is_device(self) -> bool {
        matches!(self, FileKind::BlockDevice | FileKind::CharDevice)
    }

    /// The kind that the format bits of a mode name, if they name one.
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        Some(match mode & libc::S_IFMT {
            libc::S_IFREG => FileKind::Regular,
            libc::S_IFDIR => FileKind::Directory,
            libc::S_IFLNK => FileKind::Symlink,
            libc::S_IFBLK => FileKind::BlockDevice,
            libc::S_IFCHR => FileKind::CharDevice,
            libc::S_IFIFO => FileKind::Fifo,
            libc::S_IFSOCK => FileKind::Socket,
            _ => return None,
        })
    }

    /// The format bits of this kind.
    pub fn mode_bits(self) -> u32 {
        match self {
            FileKind::Regular => libc::S_IFREG,
            FileKind::Directory => libc::S_IFDIR,
            FileKind::Symlink => libc::S_IFLNK,
            FileKind::BlockDevice => libc::S_IFBLK,
            FileKind::CharDevice => libc::S_IFCHR,
            FileKind::Fifo => libc::S_IFIFO,
            FileKind::Socket => libc::S_IFSOCK,
        }
    }
}
