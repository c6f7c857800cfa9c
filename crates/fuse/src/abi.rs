//! The kernel's FUSE protocol, version 7.45: what lies in messages, as it lies there.
//!
//! Names follow `include/uapi/linux/fuse.h` of Linux, without their `fuse_` and in Rust's case. All
//! numbers are in the machine's own byte order. A structure of a request may be longer in a later
//! kernel; what follows the known part is ignored, which the protocol allows.
//!
//! # References
//! `include/uapi/linux/fuse.h`, `Documentation/filesystems/fuse/fuse-io-uring.rst`, fuse(4).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol's major version, the only one there is.
pub(crate) const MAJOR: u32 = 7;
/// The minor version that is spoken here. The kernel leaves out what a lower one does not know.
pub(crate) const MINOR: u32 = 45;

/// The number of the root node.
pub(crate) const ROOT_NODE: u64 = 1;

/// The operations of requests.
pub(crate) mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const INIT: u32 = 26;
    pub const READDIR: u32 = 28;
    pub const FSYNCDIR: u32 = 30;
    pub const ACCESS: u32 = 34;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// Capabilities that INIT agrees on; the upper half travels in `flags2`.
pub(crate) mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const SECURITY_CTX: u64 = 1 << 32;
    pub const CREATE_SUPP_GROUP: u64 = 1 << 34;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// What a SETATTR changes.
pub(crate) mod setattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// A WRITE flag: the kernel had put it off; no write(2) waits for it.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// A READ and a WRITE flag: an owner of locks is named, as is done for what does not go through the
/// kernel's cache.
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
pub(crate) const WRITE_LOCKOWNER: u32 = 1 << 1;
/// A WRITE flag: the writer lacks CAP_FSETID, set-uid and set-gid bits have to go.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// A SETXATTR flag: the caller lacks CAP_FSETID and is not in the file's group, so an access ACL
/// takes the set-gid bit away.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// An FSYNC flag: only the data, as fdatasync(2).
pub(crate) const FSYNC_DATA_ONLY: u32 = 1 << 0;
/// Open flag of a reply: what the kernel has cached of the file stays good.
pub(crate) const OPEN_KEEP_CACHE: u32 = 1 << 1;
/// Open flag of a reply: no FLUSH at close(2).
pub(crate) const OPEN_NO_FLUSH: u32 = 1 << 5;

/// In place of an error in the head of what answers no request (`unique` is 0): a notice of this
/// kind.
pub(crate) const NOTIFY_INVALIDATE_NODE: i32 = 2;

/// Commands in the 80 bytes of a ring's submission.
pub(crate) mod ring {
    /// Gives the kernel an entry's buffers and waits for a request in them.
    pub const REGISTER: u32 = 1;
    /// Answers the request in an entry and waits for the next.
    pub const COMMIT_AND_FETCH: u32 = 2;
}

macro_rules! from_kernel {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
        #[cfg_attr(test, derive(IntoBytes))]
        #[repr(C)]
        pub(crate) struct $name { $(pub $field: $type),* }
    )*};
}

macro_rules! to_kernel {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, IntoBytes, FromBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub $field: $type),* }
    )*};
}

from_kernel! {
    /// The head of every request. `length` counts all of it, in bytes, `extension_length` what is
    /// appended, in units of eight bytes.
    InHeader {
        length: u32, opcode: u32, unique: u64, node: u64, uid: u32, gid: u32, pid: u32,
        extension_length: u16, padding: u16,
    }
    /// The known part that every kernel since 7.6 sends.
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    ForgetIn { count: u64 }
    BatchForgetIn { count: u32, dummy: u32 }
    ForgetOne { node: u64, count: u64 }
    MknodIn { mode: u32, device: u32, umask: u32, padding: u32 }
    MkdirIn { mode: u32, umask: u32 }
    RenameIn { new_parent: u64 }
    Rename2In { new_parent: u64, flags: u32, padding: u32 }
    LinkIn { old_node: u64 }
    SetattrIn {
        valid: u32, padding: u32, handle: u64, size: u64, lock_owner: u64,
        atime: i64, mtime: i64, ctime: i64, atime_ns: u32, mtime_ns: u32, ctime_ns: u32,
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    /// TMPFILE has the form of CREATE.
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    /// READ, READDIR and READDIRPLUS.
    ReadIn {
        handle: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteIn {
        handle: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    AccessIn { mask: u32, padding: u32 }
    FsyncIn { handle: u64, flags: u32, padding: u32 }
    SetxattrIn { size: u32, flags: u32 }
    /// Follows it where SETXATTR_EXT was agreed on.
    SetxattrExtIn { setxattr_flags: u32, padding: u32 }
    GetxattrIn { size: u32, padding: u32 }
    IoctlIn { handle: u64, flags: u32, command: u32, argument: u64, in_size: u32, out_size: u32 }
    FallocateIn { handle: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn { handle: u64, offset: u64, whence: u32, padding: u32 }
    /// The head of what is appended to a request that makes something.
    ExtensionHeader { size: u32, kind: u32 }
    /// The head of a security context in it. `size` is the value's.
    SecurityContext { size: u32, padding: u32 }
    /// Both forms of COPY_FILE_RANGE; the source is the request's node.
    CopyFileRangeIn {
        handle: u64, offset: u64, node_out: u64, handle_out: u64, offset_out: u64, length: u64,
        flags: u64,
    }
    StatxIn { getattr_flags: u32, reserved: u32, handle: u64, flags: u32, mask: u32 }
}

to_kernel! {
    /// The head of every answer. `error` is 0 or a negative errno.
    OutHeader { length: u32, error: i32, unique: u64 }
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_granularity_ns: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16,
        unused: [u16; 11],
    }
    /// Attributes as stat(2) shows them. Seconds may be negative.
    Attr {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64, atime_ns: u32,
        mtime_ns: u32, ctime_ns: u32, mode: u32, link_count: u32, uid: u32, gid: u32, device: u32,
        block_size: u32, flags: u32,
    }
    /// An entry of a directory, and for how long (seconds) it and its attributes may be trusted.
    EntryOut {
        node: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_ns: u32,
        attr_valid_ns: u32, attr: Attr,
    }
    AttrOut { valid: u64, valid_ns: u32, dummy: u32, attr: Attr }
    /// Notice that what is known of a node is no longer so; a negative offset stands for its
    /// attributes alone.
    InvalidateNodeOut { node: u64, offset: i64, length: i64 }
    OpenOut { handle: u64, flags: u32, backing_id: i32 }
    CreateOut { entry: EntryOut, open: OpenOut }
    WriteOut { size: u32, padding: u32 }
    StatfsOut {
        blocks: u64, blocks_free: u64, blocks_available: u64, files: u64, files_free: u64,
        block_size: u32, name_max: u32, fragment_size: u32, padding: u32, spare: [u32; 6],
    }
    GetxattrOut { size: u32, padding: u32 }
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    LseekOut { offset: u64 }
    /// Of COPY_FILE_RANGE_64; the older form is answered as a WRITE is.
    CopyFileRangeOut { length: u64 }
    StatxTime { seconds: i64, nanoseconds: u32, reserved: i32 }
    Statx {
        mask: u32, block_size: u32, attributes: u64, link_count: u32, uid: u32, gid: u32,
        mode: u16, spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: StatxTime, btime: StatxTime, ctime: StatxTime, mtime: StatxTime,
        device_major: u32, device_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut { valid: u64, valid_ns: u32, flags: u32, spare: [u64; 2], statx: Statx }
    /// Before each name of a READDIR; padded to eight bytes behind the name.
    Dirent { ino: u64, cookie: u64, name_length: u32, kind: u32 }
    /// What follows the fields in a ring's entry, of a request and of its answer.
    RingTail { flags: u64, commit_id: u64, payload_length: u32, padding: u32, reserved: u64 }
    /// The command of a ring's submission: 80 bytes.
    RingCommand { flags: u64, commit_id: u64, queue: u16, padding: [u16; 3], unused: [u64; 7] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes that the kernel's header gives.
    #[test]
    fn sizes_are_the_kernels() {
        assert_eq!(size_of::<InHeader>(), 40);
        assert_eq!(size_of::<SetattrIn>(), 88);
        assert_eq!(size_of::<ReadIn>(), 40);
        assert_eq!(size_of::<WriteIn>(), 40);
        assert_eq!(size_of::<IoctlIn>(), 32);
        assert_eq!(size_of::<FallocateIn>(), 32);
        assert_eq!(size_of::<CopyFileRangeIn>(), 56);
        assert_eq!(size_of::<OutHeader>(), 16);
        assert_eq!(size_of::<InitOut>(), 64);
        assert_eq!(size_of::<Attr>(), 88);
        assert_eq!(size_of::<EntryOut>(), 128);
        assert_eq!(size_of::<AttrOut>(), 104);
        assert_eq!(size_of::<StatfsOut>(), 80);
        assert_eq!(size_of::<Statx>(), 256);
        assert_eq!(size_of::<StatxOut>(), 288);
        assert_eq!(size_of::<Dirent>(), 24);
        assert_eq!(size_of::<RingTail>(), 32);
        assert_eq!(size_of::<RingCommand>(), 80);
    }
}
