//! Flags of inodes: what chattr(1) sets (FS_IOC_SETFLAGS, `linux/fs.h`).

use bitflags::bitflags;

use crate::base::file_kind::FileKind;

bitflags! {
    /// Flags of an inode, with the values of FS_IOC_GETFLAGS (FS_*_FL).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FileFlags: u32 {
        /// `s`: its data are to be overwritten when it is removed. Only kept.
        const SECURE_DELETION = 0x1;
        /// `u`: its contents are to be kept when it is removed. Only kept.
        const UNDELETE = 0x2;
        /// `c`: to be compressed. Only kept.
        const COMPRESS = 0x4;
        /// `S`: what is written is durable when the write returns.
        const SYNC = 0x8;
        /// `i`: nothing of it can be changed, nor can it be linked, renamed or removed.
        const IMMUTABLE = 0x10;
        /// `a`: data can only be added at its end; of a directory no name can be removed.
        const APPEND_ONLY = 0x20;
        /// `d`: dump(8) is to leave it out. Only kept.
        const NO_DUMP = 0x40;
        /// `A`: its access time stays.
        const NO_ATIME = 0x80;
        /// `m`: not to be compressed.
        const NO_COMPRESS = 0x400;
        /// `E`: encrypted.
        const ENCRYPTED = 0x800;
        /// `I`: the directory has an index.
        const INDEX = 0x1000;
        /// `j`: its data go through the journal.
        const JOURNAL_DATA = 0x4000;
        /// `t`: its tail is not to be merged. Only kept.
        const NO_TAIL = 0x8000;
        /// `D`: changes of the directory are durable when they return.
        const DIR_SYNC = 0x1_0000;
        /// `T`: the top of a directory hierarchy, for the placing of what is in it.
        const TOP_DIR = 0x2_0000;
        /// `e`: mapped by extents.
        const EXTENTS = 0x8_0000;
        /// `V`: its data are sealed (fs-verity).
        const VERITY = 0x10_0000;
        /// `C`: not to be copied on write.
        const NO_COW = 0x80_0000;
        /// `x`: its data are used in place.
        const DAX = 0x200_0000;
        /// `N`: its data lie in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// `P`: what is made in the directory is of its project.
        const PROJECT_INHERIT = 0x2000_0000;
        /// `F`: names of the directory are found whatever their case.
        const CASEFOLD = 0x4000_0000;

        const _ = !0;
    }
}

impl FileFlags {
    /// Those that can be set. The others tell of the format.
    pub const SETTABLE: FileFlags = FileFlags::SECURE_DELETION
        .union(FileFlags::UNDELETE)
        .union(FileFlags::COMPRESS)
        .union(FileFlags::SYNC)
        .union(FileFlags::IMMUTABLE)
        .union(FileFlags::APPEND_ONLY)
        .union(FileFlags::NO_DUMP)
        .union(FileFlags::NO_ATIME)
        .union(FileFlags::NO_TAIL)
        .union(FileFlags::DIR_SYNC)
        .union(FileFlags::TOP_DIR)
        .union(FileFlags::PROJECT_INHERIT);

    /// Those that only the superuser may set or take away (CAP_LINUX_IMMUTABLE).
    pub const PRIVILEGED: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::APPEND_ONLY);

    /// Those that what is made in a directory gets of it (Linux `EXT4_FL_INHERITED`).
    const INHERITED: FileFlags = FileFlags::SECURE_DELETION
        .union(FileFlags::UNDELETE)
        .union(FileFlags::COMPRESS)
        .union(FileFlags::SYNC)
        .union(FileFlags::NO_DUMP)
        .union(FileFlags::NO_ATIME)
        .union(FileFlags::NO_TAIL)
        .union(FileFlags::DIR_SYNC)
        .union(FileFlags::CASEFOLD)
        .union(FileFlags::PROJECT_INHERIT);

    /// What inodes of a kind can have (Linux `ext4_mask_flags`).
    pub fn of_kind(kind: FileKind) -> FileFlags {
        let of_directories = FileFlags::DIR_SYNC
            | FileFlags::TOP_DIR
            | FileFlags::PROJECT_INHERIT
            | FileFlags::CASEFOLD;
        match kind {
            FileKind::Directory => FileFlags::all(),
            FileKind::Regular => FileFlags::all() - of_directories,
            _ => FileFlags::NO_DUMP | FileFlags::NO_ATIME,
        }
    }

    /// What an inode of a kind gets that is made in a directory with these.
    pub fn inherited_by(self, kind: FileKind) -> FileFlags {
        let has_content = matches!(
            kind,
            FileKind::Regular | FileKind::Directory | FileKind::Symlink
        );
        let encrypted = match has_content {
            true => FileFlags::ENCRYPTED,
            false => FileFlags::empty(),
        };
        self & (FileFlags::INHERITED & FileFlags::of_kind(kind) | encrypted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inherited_suits_the_kind() {
        let all = FileFlags::all();
        assert!(
            all.inherited_by(FileKind::Directory)
                .contains(FileFlags::DIR_SYNC)
        );
        assert!(
            !all.inherited_by(FileKind::Directory)
                .intersects(FileFlags::PRIVILEGED)
        );
        assert!(
            !all.inherited_by(FileKind::Regular)
                .contains(FileFlags::DIR_SYNC)
        );
        assert!(
            all.inherited_by(FileKind::Regular)
                .contains(FileFlags::SYNC)
        );
        let kept = FileFlags::NO_DUMP | FileFlags::NO_ATIME;
        assert_eq!(all.inherited_by(FileKind::Fifo), kept);
        let encrypted = kept | FileFlags::ENCRYPTED;
        assert_eq!(all.inherited_by(FileKind::Symlink), encrypted);
    }
}
