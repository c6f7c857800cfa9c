//! Each request of the kernel as one call of the namespace.
//!
//! See the crate's head for what is refused, what is cached, and why.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use finefs_namespace::types::{Attributes, Caller, FileKind, Ino, SetAttributes};
use finefs_namespace::{AllocateMode, Error, Namespace, RenameMode, Result, XattrMode};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, Generation, INodeNo,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};

use crate::answer::IO_SIZE_BYTES;
use crate::attach::Options;
use crate::convert::{FOREVER, Numbers, negative_attr, set_time, timestamp};
use crate::directory;
use crate::guard::guarded;
use crate::negotiate::negotiate;
use crate::strays::Strays;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC32_GETFLAGS: u32 = 0x8004_6601;

thread_local! {
    /// What READ reads into, kept between requests so that it is not cleared for each.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The file system that the protocol library calls.
pub(crate) struct Adapter {
    namespace: Arc<Namespace>,
    pub(crate) numbers: Numbers,
    strays: Strays,
    wants_writeback_cache: bool,
    /// The kernel sends modes unmasked and the mask beside them.
    applies_umask: bool,
    /// Second since the epoch in the upper half, errors logged in it in the lower.
    pub(crate) logged: AtomicU64,
}

impl Adapter {
    pub(crate) fn new(namespace: Arc<Namespace>, options: &Options) -> Adapter {
        Adapter {
            numbers: Numbers::new(namespace.root()),
            namespace,
            strays: Strays::default(),
            wants_writeback_cache: options.has_writeback_cache && !options.is_read_only,
            applies_umask: false,
            logged: AtomicU64::new(0),
        }
    }

    fn ino(&self, node: INodeNo) -> Ino {
        self.numbers.ino(node)
    }

    fn caller(&self, request: &Request, umask: u32) -> Caller {
        Caller {
            uid: request.uid(),
            gid: request.gid(),
            groups: Vec::new(),
            umask: if self.applies_umask { umask } else { 0 },
            is_checked: true,
        }
    }

    fn forget_node(&self, node: INodeNo, count: u64) {
        let ino = self.ino(node);
        let count = self.strays.forget(ino, count);
        if count > 0 {
            self.namespace.forget(ino, count);
        }
    }

    fn change_attributes(
        &self,
        caller: &Caller,
        ino: Ino,
        change: &SetAttributes,
    ) -> Result<Attributes> {
        let attributes = self.namespace.set_attributes(caller, ino, change)?;
        // The kernel leaves clearing these bits to us (HANDLE_KILLPRIV_V2) and says so in a flag
        // that the library does not pass on: set for whoever lacks CAP_FSETID.
        let has_privilege_bits = attributes.permissions & (libc::S_ISUID | libc::S_ISGID) != 0;
        if change.size_bytes.is_some()
            && caller.uid != 0
            && has_privilege_bits
            && attributes.kind == FileKind::Regular
        {
            self.namespace.clear_privileges(ino)?;
            return self.namespace.attributes(ino);
        }
        Ok(attributes)
    }

    fn allocate(&self, ino: Ino, mode: i32, offset: u64, length: u64) -> Result<()> {
        let mode = match mode {
            0 => AllocateMode::Extend,
            m if m == libc::FALLOC_FL_KEEP_SIZE => AllocateMode::KeepSize,
            m if m == libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE => {
                AllocateMode::PunchHole
            }
            m if m == libc::FALLOC_FL_ZERO_RANGE => AllocateMode::ZeroRange,
            m if m == libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE => {
                AllocateMode::ZeroRangeKeepSize
            }
            _ => return Err(Error::NotSupported),
        };
        self.namespace.allocate(ino, mode, offset, length)
    }

    fn seek(&self, ino: Ino, offset: i64, whence: i32) -> Result<i64> {
        let offset = u64::try_from(offset).map_err(|_| Error::NoSuchOffset)?;
        let found = match whence {
            libc::SEEK_DATA => self.namespace.seek_data(ino, offset)?,
            libc::SEEK_HOLE => self.namespace.seek_hole(ino, offset)?,
            _ => return Err(Error::Invalid),
        };
        i64::try_from(found).map_err(|_| Error::FileTooLarge)
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let has_fine_times = self.namespace.geometry().has_fine_times;
        self.applies_umask = negotiate(config, self.wants_writeback_cache, has_fine_times);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        guarded("lookup", || {
            let parent = self.ino(parent);
            // "." comes from open_by_handle_at(2) and NFS, for a number of any kind.
            let result = if name == "." {
                self.namespace.reference(parent)
            } else {
                let caller = self.caller(request, 0);
                self.namespace.lookup(&caller, parent, name.as_bytes())
            };
            match result {
                Err(Error::NotFound) => reply.entry(&FOREVER, &negative_attr(), Generation(0)),
                result => self.reply_entry("lookup", parent, result, reply),
            }
        });
    }

    fn forget(&self, _request: &Request, node: INodeNo, count: u64) {
        guarded("forget", || self.forget_node(node, count));
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        guarded("getattr", || {
            let ino = self.ino(node);
            self.reply_attr("getattr", ino, self.namespace.attributes(ino), reply);
        });
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _flags_changed: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        guarded("setattr", || {
            let ino = self.ino(node);
            let change = SetAttributes {
                permissions: mode.map(|mode| mode & 0o7777),
                uid,
                gid,
                size_bytes: size,
                accessed: accessed.map(set_time),
                modified: modified.map(set_time),
                changed: changed.map(timestamp),
            };
            let result = self.change_attributes(&self.caller(request, 0), ino, &change);
            self.reply_attr("setattr", ino, result, reply);
        });
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        guarded("readlink", || {
            let ino = self.ino(node);
            match self.namespace.read_symlink(ino) {
                Ok(target) => reply.data(&target),
                Err(error) => reply.error(self.errno("readlink", ino, &error)),
            }
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        guarded("mknod", || {
            let parent = self.ino(parent);
            let caller = self.caller(request, umask);
            let (name, permissions) = (name.as_bytes(), mode & 0o7777);
            let result = match FileKind::from_mode(mode) {
                Some(FileKind::Regular) => {
                    self.namespace
                        .create_file(&caller, parent, name, permissions)
                }
                Some(kind) => {
                    let device = u64::from(device);
                    self.namespace
                        .make_node(&caller, parent, name, kind, permissions, device)
                }
                None => Err(Error::Invalid),
            };
            self.reply_entry("mknod", parent, result, reply);
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        guarded("mkdir", || {
            let parent = self.ino(parent);
            let caller = self.caller(request, umask);
            let result =
                self.namespace
                    .make_directory(&caller, parent, name.as_bytes(), mode & 0o7777);
            self.reply_entry("mkdir", parent, result, reply);
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        guarded("unlink", || {
            let parent = self.ino(parent);
            let caller = self.caller(request, 0);
            let result = self.namespace.remove_file(&caller, parent, name.as_bytes());
            self.reply_empty("unlink", parent, result, reply);
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        guarded("rmdir", || {
            let parent = self.ino(parent);
            let caller = self.caller(request, 0);
            let result = self
                .namespace
                .remove_directory(&caller, parent, name.as_bytes());
            self.reply_empty("rmdir", parent, result, reply);
        });
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        guarded("symlink", || {
            let parent = self.ino(parent);
            let caller = self.caller(request, 0);
            let target = target.as_os_str().as_bytes();
            let result = self
                .namespace
                .make_symlink(&caller, parent, name.as_bytes(), target);
            self.reply_entry("symlink", parent, result, reply);
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        guarded("rename", || {
            let (from, to) = (self.ino(parent), self.ino(new_parent));
            let mode = match flags.bits() {
                0 => RenameMode::Replace,
                bits if bits == libc::RENAME_NOREPLACE => RenameMode::NoReplace,
                bits if bits == libc::RENAME_EXCHANGE => RenameMode::Exchange,
                _ => return reply.error(Errno::EINVAL),
            };
            let caller = self.caller(request, 0);
            let result = self.namespace.rename(
                &caller,
                (from, name.as_bytes()),
                (to, new_name.as_bytes()),
                mode,
            );
            self.reply_empty("rename", from, result, reply);
        });
    }

    fn link(
        &self,
        request: &Request,
        node: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        guarded("link", || {
            let (ino, parent) = (self.ino(node), self.ino(parent));
            let caller = self.caller(request, 0);
            let result = self
                .namespace
                .make_link(&caller, ino, parent, name.as_bytes());
            self.reply_entry("link", parent, result, reply);
        });
    }

    /// Refused for good: the kernel then opens and closes files without a message.
    fn open(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    /// Refused for good, as `open`; the kernel then also caches what directories list.
    fn opendir(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    /// Refused for good: the kernel then sends MKNOD, which needs no RELEASE later.
    fn create(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::ENOSYS);
    }

    /// Refused for good: there is nothing to do at close(2).
    fn flush(
        &self,
        _request: &Request,
        _node: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        guarded("read", || {
            let ino = self.ino(node);
            READ_BUFFER.with_borrow_mut(|buffer| {
                let size = size as usize;
                if buffer.len() < size {
                    buffer.resize(size, 0);
                }
                match self.namespace.read(ino, offset, &mut buffer[..size]) {
                    Ok(length) => reply.data(&buffer[..length]),
                    Err(error) => reply.error(self.errno("read", ino, &error)),
                }
            });
        });
    }

    fn write(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        guarded("write", || {
            let ino = self.ino(node);
            let result = if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                self.namespace
                    .clear_privileges(ino)
                    .and_then(|()| self.namespace.write(ino, offset, data))
            } else {
                self.namespace.write(ino, offset, data)
            };
            match result {
                Ok(length) => reply.written(length as u32),
                Err(error) => reply.error(self.errno("write", ino, &error)),
            }
        });
    }

    fn fsync(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        is_data_only: bool,
        reply: ReplyEmpty,
    ) {
        guarded("fsync", || {
            let ino = self.ino(node);
            let result = self.namespace.sync_file(ino, is_data_only);
            self.reply_empty("fsync", ino, result, reply);
        });
    }

    fn fsyncdir(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        is_data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.fsync(request, node, handle, is_data_only, reply);
    }

    fn readdir(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectory,
    ) {
        guarded("readdir", || {
            let ino = self.ino(node);
            match directory::fill(&self.namespace, ino, cookie, &mut reply) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(self.errno("readdir", ino, &error)),
            }
        });
    }

    fn readdirplus(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        guarded("readdir", || {
            let ino = self.ino(node);
            let filled = directory::fill_plus(
                &self.namespace,
                self.numbers,
                &self.strays,
                IO_SIZE_BYTES,
                ino,
                cookie,
                &mut reply,
            );
            match filled {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(self.errno("readdir", ino, &error)),
            }
        });
    }

    fn statfs(&self, _request: &Request, _node: INodeNo, reply: ReplyStatfs) {
        guarded("statfs", || {
            let space = self.namespace.statfs();
            reply.statfs(
                space.blocks,
                space.blocks_free,
                space.blocks_available,
                space.inodes,
                space.inodes_free,
                space.block_size_bytes,
                space.name_max,
                space.block_size_bytes,
            );
        });
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        guarded("setxattr", || {
            let ino = self.ino(node);
            let mode = match flags {
                0 => XattrMode::Set,
                libc::XATTR_CREATE => XattrMode::Create,
                libc::XATTR_REPLACE => XattrMode::Replace,
                _ => return reply.error(Errno::EINVAL),
            };
            let caller = self.caller(request, 0);
            let result = self
                .namespace
                .set_xattr(&caller, ino, name.as_bytes(), value, mode);
            self.reply_empty("setxattr", ino, result, reply);
        });
    }

    fn getxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        guarded("getxattr", || {
            let ino = self.ino(node);
            let caller = self.caller(request, 0);
            let result = self.namespace.xattr(&caller, ino, name.as_bytes());
            self.reply_xattr(ino, size, result, reply);
        });
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        guarded("listxattr", || {
            let ino = self.ino(node);
            let caller = self.caller(request, 0);
            let result = self.namespace.list_xattrs(&caller, ino).map(|names| {
                let mut list = Vec::new();
                for name in names {
                    list.extend_from_slice(&name);
                    list.push(0);
                }
                list
            });
            self.reply_xattr(ino, size, result, reply);
        });
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        guarded("removexattr", || {
            let ino = self.ino(node);
            let caller = self.caller(request, 0);
            let result = self.namespace.remove_xattr(&caller, ino, name.as_bytes());
            self.reply_empty("removexattr", ino, result, reply);
        });
    }

    /// Only the inode flags (lsattr(1)); setting them is refused.
    fn ioctl(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        guarded("ioctl", || {
            let ino = self.ino(node);
            if command != FS_IOC_GETFLAGS && command != FS_IOC32_GETFLAGS {
                return reply.error(Errno::ENOTTY);
            }
            match self.namespace.attributes(ino) {
                Ok(attributes) => reply.ioctl(0, &attributes.flags.to_ne_bytes()),
                Err(error) => reply.error(self.errno("ioctl", ino, &error)),
            }
        });
    }

    /// Refused for good: the kernel then copies through its page cache.
    fn copy_file_range(
        &self,
        _request: &Request,
        _from: INodeNo,
        _from_handle: FileHandle,
        _from_offset: u64,
        _to: INodeNo,
        _to_handle: FileHandle,
        _to_offset: u64,
        _length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::ENOSYS);
    }

    /// Refused for good: files are always ready.
    fn poll(
        &self,
        _request: &Request,
        _node: INodeNo,
        _handle: FileHandle,
        _notifier: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        guarded("fallocate", || {
            let ino = self.ino(node);
            let result = self.allocate(ino, mode, offset, length);
            self.reply_empty("fallocate", ino, result, reply);
        });
    }

    /// SEEK_DATA and SEEK_HOLE. The kernel asks without writing its dirty pages out first, so with
    /// its write-back cache any answer could be wrong; refused for good, it takes all for data.
    fn lseek(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        guarded("lseek", || {
            let ino = self.ino(node);
            if self.wants_writeback_cache {
                return reply.error(Errno::ENOSYS);
            }
            match self.seek(ino, offset, whence) {
                Ok(found) => reply.offset(found),
                Err(error) => reply.error(self.errno("lseek", ino, &error)),
            }
        });
    }
}
