//! Each request of the kernel as one call of the namespace.
//!
//! See the crate's head for what is refused, what is cached, and why. Where data and holes are is
//! found in `seek`, ranges are copied in `copy_range`, things are made in `create`.

mod copy_range;
mod create;
mod seek;

use std::sync::Arc;
use std::time::Duration;

use finefs_namespace::guard::{LogLimit, guarded};
use finefs_namespace::types::{Attributes, Caller, Ino};
use finefs_namespace::{
    AllocateMode, AtimeUpdate, DataChange, DataTimes, Error, Namespace, RenameMode, Result,
    XattrMode,
};
use zerocopy::{Immutable, IntoBytes};

use crate::abi::{
    GetxattrOut, InHeader, IoctlOut, LseekOut, READ_LOCKOWNER, ReadIn, SetattrIn, StatfsOut,
    WRITE_CACHE, WRITE_KILL_SUIDGID, WRITE_LOCKOWNER, WriteIn, WriteOut, setattr,
};
use crate::convert::{
    NameLifetime, Numbers, Shown, View, attr_out, change, entry_out, negative_entry_out, statx_out,
};
use crate::cpu_latency::CpuLatency;
use crate::directory;
use crate::extension::{self, Extension};
use crate::ioctl;
use crate::lost_writes::note_lost_write;
use crate::negotiate::Negotiated;
use crate::quota;
use crate::request::{self, Operation};

/// How long forgotten references may lie in the kernel while a ring serves everything else. Each
/// one would else wake a thread, mostly on another CPU, in the middle of what removes the file.
pub(crate) const FORGET_DELAY: Duration = Duration::from_millis(5);

/// Why a request failed.
pub(crate) enum Failure {
    /// As the namespace tells.
    Error(Error),
    /// As the protocol has it: an errno, nothing to log.
    Errno(i32),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

/// Why a request has no answer of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The answer is this errno.
    Errno(i32),
    /// It changes something, and the file system is frozen: it is to be served again after the
    /// thaw.
    Frozen,
}

/// The length of an answer, in bytes.
type Answer = std::result::Result<usize, Failure>;

/// Who keeps attributes and is told when they change behind its back.
pub(crate) trait Notified: Send + Sync {
    /// The attributes of a node are no longer what it knows. Waits for nobody.
    fn attributes_changed(&self, node: u64);

    /// Has it write out the pages of a node from one offset up to another, or to the end, that were
    /// stored into, and forget all of them. Waits for the answers to these writes.
    fn write_out_pages(&self, node: u64, from: u64, to: Option<u64>);
}

/// Serves the requests of one mount.
pub(crate) struct Adapter {
    namespace: Arc<Namespace>,
    numbers: Numbers,
    negotiated: Negotiated,
    cpu_latency: Option<CpuLatency>,
    /// Who is told of what the kernel would not look for.
    kernel: Option<Arc<dyn Notified>>,
    /// Every caller is root.
    makes_root: bool,
    /// Extended attributes can be read and set.
    has_xattrs: bool,
    /// What attributes become on their way out.
    view: View,
    /// Keeps a bad device from filling the log.
    log_limit: LogLimit,
}

impl Adapter {
    pub(crate) fn new(
        namespace: Arc<Namespace>,
        negotiated: Negotiated,
        cpu_latency: Option<CpuLatency>,
    ) -> Adapter {
        // What was removed a moment ago is in use until the kernel's FORGET of it is served.
        namespace.expect_late_releases(2 * FORGET_DELAY);
        Adapter {
            numbers: Numbers::new(namespace.root()),
            namespace,
            negotiated,
            cpu_latency,
            kernel: None,
            makes_root: false,
            has_xattrs: true,
            view: View::default(),
            log_limit: LogLimit::default(),
        }
    }

    /// The same, with somebody to tell what the kernel would not look for.
    pub(crate) fn telling(self, kernel: Arc<dyn Notified>) -> Adapter {
        Adapter {
            kernel: Some(kernel),
            ..self
        }
    }

    /// The same, with every caller as root.
    pub(crate) fn making_root(self, makes_root: bool) -> Adapter {
        Adapter { makes_root, ..self }
    }

    /// The same, with extended attributes or without.
    pub(crate) fn with_xattrs(self, has_xattrs: bool) -> Adapter {
        Adapter { has_xattrs, ..self }
    }

    /// The same, with files shown so.
    pub(crate) fn viewed(self, view: View) -> Adapter {
        Adapter { view, ..self }
    }

    fn shown(&self) -> Shown {
        Shown {
            view: self.view,
            has_writeback_cache: self.negotiated.has_writeback_cache,
        }
    }

    /// Whether pages that the kernel writes out set the times of their file. With its write-back
    /// cache it keeps the times itself, and sends them after the data; without, stores into a
    /// mapping are seen here alone.
    fn cached_times(&self) -> DataTimes {
        match self.negotiated.has_writeback_cache {
            true => DataTimes::Kept,
            false => DataTimes::Set,
        }
    }

    /// Takes references back.
    pub(crate) fn forget(&self, forgets: impl Iterator<Item = (u64, u64)>) {
        guarded("forget", || {
            for (node, count) in forgets {
                self.namespace.forget(self.numbers.ino(node), count);
            }
        });
    }

    /// Returns when the file system is not frozen (any more).
    pub(crate) fn wait_for_thaw(&self) {
        self.namespace.wait_for_thaw();
    }

    /// Ends a freeze, if there is one.
    pub(crate) fn thaw(&self) {
        if self.namespace.is_frozen()
            && let Err(error) = self.namespace.thaw()
        {
            log::error!("thawing: {error}");
        }
    }

    /// Serves a request, putting the answer into `space`; gives its length. `fixed` and `rest` are
    /// as in [`request::parse`].
    pub(crate) fn serve(
        &self,
        header: &InHeader,
        fixed: &[u8],
        rest: &[u8],
        space: &mut [u8],
    ) -> std::result::Result<usize, Refusal> {
        if let Some(cpu_latency) = &self.cpu_latency {
            cpu_latency.note();
        }
        let has_setxattr_flags = self.negotiated.has_setxattr_flags;
        let Ok((rest, extension)) = extension::split(header, rest) else {
            return Err(Refusal::Errno(libc::EINVAL));
        };
        let parsed = request::parse(header.opcode, fixed, rest, has_setxattr_flags);
        let Ok(operation) = parsed else {
            return Err(Refusal::Errno(libc::EINVAL));
        };
        let name = operation.name();
        let is_delayed_write = matches!(
            &operation,
            Operation::Write { fields, .. } if fields.write_flags & WRITE_CACHE != 0
        );
        let answer = guarded(name, || self.run(header, operation, &extension, space));
        let answer = self.finish(
            name,
            header,
            answer.unwrap_or(Err(Failure::Errno(libc::EIO))),
        );
        if is_delayed_write && matches!(answer, Err(Refusal::Errno(_))) {
            // No write(2) waits for it; an fsync may come or not.
            note_lost_write();
        }
        log::debug!(
            "{name} of node {} by process {}: {answer:?}",
            header.node,
            header.pid
        );
        answer
    }

    /// Logs what points at the device or the image; gives the errno.
    fn finish(
        &self,
        name: &str,
        header: &InHeader,
        answer: Answer,
    ) -> std::result::Result<usize, Refusal> {
        match answer {
            Ok(length) => Ok(length),
            Err(Failure::Errno(errno)) => Err(Refusal::Errno(errno)),
            Err(Failure::Error(Error::Frozen)) => Err(Refusal::Frozen),
            Err(Failure::Error(error)) => {
                if matches!(error, Error::Io(_) | Error::Corrupt(_)) && self.log_limit.may_log() {
                    log::error!("{name} of inode {}: {error}", self.numbers.ino(header.node));
                }
                Err(Refusal::Errno(error.errno()))
            }
        }
    }

    fn run(
        &self,
        header: &InHeader,
        operation: Operation<'_>,
        extension: &Extension<'_>,
        space: &mut [u8],
    ) -> Answer {
        let namespace = &*self.namespace;
        let ino = self.numbers.ino(header.node);
        let caller = self.caller(header, 0);
        match operation {
            Operation::Lookup { name } => {
                // "." comes from open_by_handle_at(2) and NFS, for a number of any kind.
                let result = if name == b"." {
                    namespace.reference(ino)
                } else {
                    namespace.lookup(&caller, ino, name)
                };
                match result {
                    Err(Error::NotFound) => {
                        let lifetime = NameLifetime::of_missing(namespace);
                        put(space, &negative_entry_out(lifetime))
                    }
                    result => self.put_entry(space, ino, &result?),
                }
            }
            Operation::Getattr => put(space, &attr_out(self.shown(), &namespace.attributes(ino)?)),
            Operation::Statx => put(space, &statx_out(self.shown(), &namespace.attributes(ino)?)),
            Operation::Setattr(fields) => {
                let set = self.set_attributes(header, &caller, &fields)?;
                put(space, &attr_out(self.shown(), &set))
            }
            Operation::Readlink => put_bytes(space, &namespace.read_symlink(ino)?),
            Operation::Symlink { name, target } => {
                let maker = self.maker(header, 0, extension);
                self.put_entry(space, ino, &self.make_symlink(&maker, name, target)?)
            }
            Operation::Mknod { fields, name } => {
                let maker = self.maker(header, fields.umask, extension);
                self.put_entry(space, ino, &self.make_node(&maker, name, &fields)?)
            }
            Operation::Mkdir { fields, name } => {
                let maker = self.maker(header, fields.umask, extension);
                self.put_entry(space, ino, &self.make_directory(&maker, name, fields.mode)?)
            }
            Operation::Unlink { name } => empty(namespace.remove_file(&caller, ino, name)),
            Operation::Rmdir { name } => empty(namespace.remove_directory(&caller, ino, name)),
            Operation::Rename {
                new_parent,
                flags,
                name,
                new_name,
            } => {
                let mode = rename_mode(flags)?;
                let to = (self.numbers.ino(new_parent), new_name);
                empty(namespace.rename(&caller, (ino, name), to, mode))
            }
            Operation::Link { old_node, name } => {
                let old = self.numbers.ino(old_node);
                self.put_entry(space, ino, &namespace.make_link(&caller, old, ino, name)?)
            }
            Operation::Read(fields) => {
                if fields.read_flags & READ_LOCKOWNER != 0 {
                    self.check_direct(fields.flags, fields.offset, fields.size)?;
                }
                let space = limited(space, fields.size);
                Ok(namespace.read_with_atime(ino, fields.offset, space, atime(&fields))?)
            }
            Operation::Write {
                fields:
                    WriteIn {
                        offset,
                        write_flags,
                        flags,
                        size,
                        ..
                    },
                data,
            } => {
                if write_flags & WRITE_LOCKOWNER != 0 {
                    self.check_direct(flags, offset, size)?;
                }
                if write_flags & WRITE_KILL_SUIDGID != 0 {
                    let change = DataChange::Write {
                        offset_bytes: offset,
                        length_bytes: data.len() as u64,
                    };
                    let is_in_group = |gid| is_in_group(header, gid);
                    let cleared = namespace.remove_privileges(ino, change, is_in_group);
                    self.tell_of_mode(header.node, cleared?);
                }
                let written = match write_flags & WRITE_CACHE {
                    0 => namespace.write(ino, offset, data)?,
                    _ => namespace.write_back(ino, offset, data, self.cached_times())?,
                };
                let size = written as u32;
                put(space, &WriteOut { size, padding: 0 })
            }
            Operation::Statfs => self.put_statfs(ino, space),
            Operation::Release => Ok(0),
            // The unmount waits for the answer: everything is on the device then.
            Operation::Destroy => empty(namespace.shut_down()),
            Operation::Fsync { scope } => empty(namespace.sync_file(ino, scope)),
            Operation::Syncfs => empty(namespace.sync()),
            // Nothing of the kind is asked again.
            Operation::Setxattr { .. }
            | Operation::Getxattr { .. }
            | Operation::Listxattr { .. }
            | Operation::Removexattr { .. }
                if !self.has_xattrs =>
            {
                Err(Failure::Errno(libc::ENOSYS))
            }
            Operation::Setxattr {
                flags,
                kills_setgid,
                name,
                value,
            } => {
                let mode = match flags as i32 {
                    0 => XattrMode::Set,
                    libc::XATTR_CREATE => XattrMode::Create,
                    libc::XATTR_REPLACE => XattrMode::Replace,
                    flags if flags == libc::XATTR_CREATE | libc::XATTR_REPLACE => {
                        XattrMode::CreateAndReplace
                    }
                    _ => return Err(Failure::Errno(libc::EINVAL)),
                };
                // A kernel that does not tell: no caller is known to be in more groups than one.
                let attribute = (name, value);
                let set = namespace.set_xattr_checked(&caller, ino, attribute, mode, kills_setgid);
                self.tell_of_acl(header.node, name);
                empty(set)
            }
            Operation::Getxattr { size, name } => {
                let value = match quota::parse_name(name) {
                    Some(whose) => {
                        let is_in_group = |gid| is_in_group(header, gid);
                        let account = namespace.quota(&caller, whose, is_in_group)?;
                        quota::value_of(&account).into_bytes()
                    }
                    None => namespace.xattr(&caller, ino, name)?,
                };
                put_xattr(space, size, &value)
            }
            Operation::Listxattr { size } => {
                let mut list = Vec::new();
                for name in namespace.list_xattrs(&caller, ino)? {
                    list.extend_from_slice(&name);
                    list.push(0);
                }
                put_xattr(space, size, &list)
            }
            Operation::Removexattr { name } => {
                // An ACL that goes leaves the mode as it is: nobody has to be told.
                empty(namespace.remove_xattr(&caller, ino, name))
            }
            Operation::Readdir(fields) => {
                let (space, atime) = (limited(space, fields.size), atime(&fields));
                let offset = fields.offset;
                Ok(directory::fill(namespace, ino, offset, atime, space)?)
            }
            Operation::ReaddirPlus(fields) => {
                let (space, atime) = (limited(space, fields.size), atime(&fields));
                let shown = (self.numbers, self.shown());
                let offset = fields.offset;
                Ok(directory::fill_plus(
                    namespace, shown, ino, offset, atime, space,
                )?)
            }
            Operation::Ioctl { command, input } => {
                if let Some(kernel) = &self.kernel
                    && ioctl::protects_data(command, input)
                {
                    // What is stored from then on will be refused.
                    kernel.write_out_pages(header.node, 0, None);
                }
                let output = ioctl::serve(namespace, &caller, self.view.uid, ino, command, input)?;
                let output = match output {
                    ioctl::Answer::Given(output) => output,
                    ioctl::Answer::Refused(errno) => return Err(Failure::Errno(errno)),
                };
                if ioctl::changes_attributes(command) {
                    self.tell_of_attributes(header.node);
                }
                let head = put(space, &IoctlOut::default())?;
                Ok(head + put_bytes(&mut space[head..], &output)?)
            }
            Operation::Fallocate(fields) => {
                let mode = allocate_mode(fields.mode as i32)?;
                let is_in_group = |gid| is_in_group(header, gid);
                let change = DataChange::Allocate {
                    mode,
                    offset_bytes: fields.offset,
                    length_bytes: fields.length,
                };
                let cleared =
                    namespace.remove_privileges_unless_root(&caller, ino, change, is_in_group);
                self.tell_of_mode(header.node, cleared?);
                empty(namespace.allocate(ino, mode, fields.offset, fields.length))
            }
            Operation::Lseek(fields) => {
                let found = self.seek(header.node, fields.offset, fields.whence as i32)?;
                put(space, &LseekOut { offset: found })
            }
            Operation::CopyFileRange { fields, is_long } => {
                self.copy_range(header, &fields, is_long, space)
            }
            // access(2), where the kernel does not check itself.
            Operation::Access { mask } => {
                let caller = Caller {
                    checks: finefs_namespace::AccessChecks::Needed,
                    ..caller
                };
                empty(namespace.access(&caller, ino, mask))
            }
            Operation::Tmpfile(fields) => {
                let maker = self.maker(header, fields.umask, extension);
                self.make_unnamed(&maker, &fields, space)
            }
            Operation::Unsupported => Err(Failure::Errno(libc::ENOSYS)),
        }
    }

    fn caller(&self, header: &InHeader, umask: u32) -> Caller {
        let (uid, gid) = match self.makes_root {
            true => (0, 0),
            false => (header.uid, header.gid),
        };
        Caller {
            uid,
            gid,
            groups: Vec::new(),
            umask: if self.negotiated.applies_umask {
                umask
            } else {
                0
            },
            checks: finefs_namespace::AccessChecks::Done,
        }
    }

    /// EINVAL for direct I/O that is not aligned, as of the kernel's own file systems. Only what
    /// does not go through the kernel's cache names an owner of locks.
    fn check_direct(&self, flags: u32, offset: u64, size: u32) -> Result<()> {
        let alignment = self.namespace.geometry().direct_alignment_bytes;
        let is_aligned =
            offset.is_multiple_of(u64::from(alignment)) && size.is_multiple_of(alignment);
        match flags as i32 & libc::O_DIRECT != 0 && !is_aligned {
            true => Err(Error::Invalid),
            false => Ok(()),
        }
    }

    /// The set-id bits of a file that a request is about to change are gone. The kernel keeps modes
    /// for ever, so it is told before it gets its answer.
    fn tell_of_mode(&self, node: u64, has_changed: bool) {
        if has_changed {
            self.tell_of_attributes(node);
        }
    }

    fn tell_of_attributes(&self, node: u64) {
        if let Some(kernel) = &self.kernel {
            kernel.attributes_changed(node);
        }
    }

    /// An ACL may have changed the mode. A kernel that was not asked to check ACLs does not expect
    /// that.
    fn tell_of_acl(&self, node: u64, name: &[u8]) {
        if let Some(kernel) = &self.kernel
            && !self.negotiated.checks_acls
            && name.starts_with(b"system.posix_acl_")
        {
            kernel.attributes_changed(node);
        }
    }

    fn lifetime(&self, dir: Ino) -> NameLifetime {
        NameLifetime::of(&self.namespace, dir)
    }

    fn put_entry(&self, space: &mut [u8], dir: Ino, attributes: &Attributes) -> Answer {
        let node = self.numbers.node(attributes.ino);
        let entry = entry_out(self.shown(), node, attributes, self.lifetime(dir));
        put(space, &entry)
    }

    fn set_attributes(
        &self,
        header: &InHeader,
        caller: &Caller,
        fields: &SetattrIn,
    ) -> Result<Attributes> {
        let ino = self.numbers.ino(header.node);
        let (namespace, change) = (&self.namespace, change(fields));
        let is_in_group = |gid| is_in_group(header, gid);
        if fields.valid == 0 {
            return namespace.set_owner(caller, ino, (None, None), is_in_group);
        }
        // The kernel asks for it at every chown(2).
        match fields.valid & setattr::KILL_SUIDGID {
            0 => namespace.set_attributes(caller, ino, &change),
            _ => namespace.set_attributes_taking_privileges(caller, ino, &change, is_in_group),
        }
    }

    fn put_statfs(&self, ino: Ino, space: &mut [u8]) -> Answer {
        let at = self.namespace.statfs_at(ino);
        let statfs = at.unwrap_or_else(|_| self.namespace.statfs());
        let out = StatfsOut {
            blocks: statfs.blocks,
            blocks_free: statfs.blocks_free,
            blocks_available: statfs.blocks_available,
            files: statfs.inodes,
            files_free: statfs.inodes_free,
            block_size: statfs.block_size_bytes,
            name_max: statfs.name_max,
            fragment_size: statfs.block_size_bytes,
            ..StatfsOut::default()
        };
        put(space, &out)
    }
}

/// Whether who sent a request is in a group. Messages name one group; the others stand in
/// proc_pid_status(5). A process that cannot be seen there counts as in no other.
fn is_in_group(header: &InHeader, gid: u32) -> bool {
    let other_groups = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", header.pid)).ok()?;
        let groups = status
            .lines()
            .find_map(|line| line.strip_prefix("Groups:"))?;
        let mut groups = groups.split_ascii_whitespace();
        Some(groups.any(|group| group.parse() == Ok(gid)))
    };
    header.gid == gid || other_groups().unwrap_or(false)
}

fn rename_mode(flags: u32) -> Result<RenameMode> {
    use libc::{RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT};
    Ok(match flags {
        0 => RenameMode::Replace,
        RENAME_NOREPLACE => RenameMode::NoReplace,
        RENAME_EXCHANGE => RenameMode::Exchange,
        RENAME_WHITEOUT => RenameMode::Whiteout,
        flags if flags == RENAME_WHITEOUT | RENAME_NOREPLACE => RenameMode::WhiteoutNoReplace,
        _ => return Err(Error::Invalid),
    })
}

fn allocate_mode(mode: i32) -> Result<AllocateMode> {
    use libc::{FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE};
    Ok(match mode {
        0 => AllocateMode::Extend,
        m if m == FALLOC_FL_KEEP_SIZE => AllocateMode::KeepSize,
        m if m == FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE => AllocateMode::PunchHole,
        m if m == FALLOC_FL_ZERO_RANGE => AllocateMode::ZeroRange,
        m if m == FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE => AllocateMode::ZeroRangeKeepSize,
        _ => return Err(Error::NotSupported),
    })
}

fn empty(result: Result<()>) -> Answer {
    result?;
    Ok(0)
}

/// Whether the file that is read was opened with O_NOATIME. The kernel has checked that its opener
/// may.
fn atime(fields: &ReadIn) -> AtimeUpdate {
    match fields.flags as i32 & libc::O_NOATIME {
        0 => AtimeUpdate::ByPolicy,
        _ => AtimeUpdate::Never,
    }
}

/// At most what was asked for.
fn limited(space: &mut [u8], size: u32) -> &mut [u8] {
    let length = space.len().min(size as usize);
    &mut space[..length]
}

fn put(space: &mut [u8], out: &(impl IntoBytes + Immutable)) -> Answer {
    put_bytes(space, out.as_bytes())
}

fn put_bytes(space: &mut [u8], bytes: &[u8]) -> Answer {
    let space = space
        .get_mut(..bytes.len())
        .ok_or(Failure::Errno(libc::EIO))?;
    space.copy_from_slice(bytes);
    Ok(bytes.len())
}

/// The two forms of an answer about xattrs: its size when no room is offered, else itself.
fn put_xattr(space: &mut [u8], size: u32, value: &[u8]) -> Answer {
    if size == 0 {
        let size = value.len() as u32;
        return put(space, &GetxattrOut { size, padding: 0 });
    }
    if value.len() > size as usize {
        return Err(Failure::Errno(libc::ERANGE));
    }
    put_bytes(space, value)
}

#[cfg(test)]
mod tests;
