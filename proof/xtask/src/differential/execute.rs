//! Doing one operation on one side, and what it gives back.

use super::directories;
use super::mapping::{Mapping, Memory};
use super::operation::{Bytes, Fill, NewTime, Operation, Slot, Target, Whence};
use super::outcome::{Outcome, Space, Value};
use anyhow::Result;
use finefs_harness::rng::Rng;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    Access as Rights, AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Gid, IFlags, Mode,
    OFlags, RenameFlags, SeekFrom, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Open files of a side at most.
pub const SLOTS: usize = 10;

/// Larger files are compared where they have data only.
const WHOLE_BYTES_MAX: u64 = 4 << 20;
const PAGE: usize = 4096;
/// The flags of inodes that chattr(1) sets on finefs and on ext4. That of projects, which only one
/// side may have, stays as it is.
const SETTABLE: u32 = 0x0003_80ff;

/// One of the two file systems that are compared.
pub struct Side {
    /// How it is called in messages.
    pub name: &'static str,
    /// Its directory.
    pub path: PathBuf,
    root: OwnedFd,
    slots: [Option<OwnedFd>; SLOTS],
    memory: Memory,
}

/// What `fill` stands for.
pub fn bytes_of(fill: Fill) -> Vec<u8> {
    Rng::new(fill.seed).bytes(fill.len)
}

/// Memory that begins at a page, for O_DIRECT.
struct Aligned {
    bytes: Vec<u8>,
    skew: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Self {
        let bytes = vec![0u8; len + PAGE];
        let skew = bytes.as_ptr().align_offset(PAGE);
        Self { bytes, skew, len }
    }

    fn of(fill: Fill) -> Self {
        let mut aligned = Self::new(fill.len);
        aligned.get().copy_from_slice(&bytes_of(fill));
        aligned
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.skew..self.skew + self.len]
    }
}

impl Side {
    /// The side whose directory is `path`.
    pub fn new(name: &'static str, path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            name,
            path: path.to_owned(),
            root: rustix::fs::open(path, flags, Mode::empty())?,
            slots: [const { None }; SLOTS],
            memory: Memory::open()?,
        })
    }

    /// Its root directory.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// An open file.
    pub fn slot(&self, slot: Slot) -> Result<BorrowedFd<'_>, Errno> {
        self.slots[slot]
            .as_ref()
            .map(AsFd::as_fd)
            .ok_or(Errno::BADF)
    }

    /// `path` for a system call that takes no directory.
    fn absolute(&self, path: &Bytes) -> Vec<u8> {
        Bytes(self.path.as_os_str().as_encoded_bytes().to_vec())
            .join(&path.0)
            .0
    }

    /// Does `operation` as whoever this thread acts as.
    pub fn execute(&mut self, operation: &Operation) -> Outcome {
        use Operation::*;
        let done = |()| Value::Done;
        match operation {
            Open {
                slot,
                path,
                flags,
                mode,
            } => {
                self.slots[*slot] = None;
                let flags = OFlags::from_bits_retain(*flags) | OFlags::CLOEXEC;
                let mode = Mode::from_raw_mode(*mode);
                let fd = rustix::fs::openat(&self.root, named(path), flags, mode)?;
                self.slots[*slot] = Some(fd);
                Ok(Value::Done)
            }
            Close { slot } => self.slots[*slot]
                .take()
                .map(|_| Value::Done)
                .ok_or(Errno::BADF),
            Mkdir { path, mode } => {
                let mode = Mode::from_raw_mode(*mode);
                rustix::fs::mkdirat(&self.root, named(path), mode).map(done)
            }
            Mknod {
                path,
                mode,
                major,
                minor,
            } => {
                let device = rustix::fs::makedev(*major, *minor);
                let kind = FileType::from_raw_mode(*mode);
                let mode = Mode::from_raw_mode(mode & 0o7777);
                rustix::fs::mknodat(&self.root, named(path), kind, mode, device).map(done)
            }
            Symlink { target, path } => {
                rustix::fs::symlinkat(target.0.as_slice(), &self.root, named(path)).map(done)
            }
            Link { from, to, follows } => {
                let mut flags = AtFlags::empty();
                flags.set(AtFlags::SYMLINK_FOLLOW, *follows);
                let root = &self.root;
                rustix::fs::linkat(root, named(from), root, named(to), flags).map(done)
            }
            LinkOpen { slot, to, by_proc } => {
                let fd = self.slot(*slot)?;
                let (root, to) = (&self.root, named(to));
                let outcome = if *by_proc {
                    let from = format!("/proc/self/fd/{}", fd.as_raw_fd());
                    rustix::fs::linkat(CWD, from, root, to, AtFlags::SYMLINK_FOLLOW)
                } else {
                    rustix::fs::linkat(fd, "", root, to, AtFlags::EMPTY_PATH)
                };
                outcome.map(done)
            }
            Unlink { path } => {
                rustix::fs::unlinkat(&self.root, named(path), AtFlags::empty()).map(done)
            }
            Rmdir { path } => {
                rustix::fs::unlinkat(&self.root, named(path), AtFlags::REMOVEDIR).map(done)
            }
            Rename { from, to, flags } => {
                let flags = RenameFlags::from_bits_retain(*flags);
                let root = &self.root;
                rustix::fs::renameat_with(root, named(from), root, named(to), flags).map(done)
            }
            Truncate { path, len } => self.truncate(path, *len),
            Readlink { path, room } => {
                let mut bytes = vec![0; *room];
                let into = bytes.as_mut_slice();
                let len = rustix::fs::readlinkat_raw(&self.root, named(path), into)?;
                bytes.truncate(len);
                Ok(Value::Bytes(bytes))
            }
            Access { path, mode, flags } => {
                let (mode, flags) = (
                    Rights::from_bits_retain(*mode),
                    AtFlags::from_bits_retain(*flags),
                );
                rustix::fs::accessat(&self.root, named(path), mode, flags).map(done)
            }
            Statfs { path } => self.statfs(path),
            Umask { mask } => {
                rustix::process::umask(Mode::from_raw_mode(*mask));
                Ok(Value::Done)
            }
            List { path } => directories::list(&self.root, named(path)),
            ListFromCookies { path } => directories::list_from_cookies(&self.root, named(path)),
            ListWhileChanging { path, names } => {
                directories::list_while_changing(&self.root, named(path), names)
            }
            Many {
                path,
                count,
                removes,
            } => directories::many(&self.root, named(path), *count, *removes),
            RemoveTree { path } => directories::remove_tree(&self.root, named(path)),
            Contents { path } => contents(self.open_plainly(path)?.as_fd()),
            Holes { path } => holes(self.open_plainly(path)?.as_fd()),
            Pause => {
                std::thread::sleep(std::time::Duration::from_millis(6));
                Ok(Value::Done)
            }
            Chmod { .. } | Chown { .. } | Utimens { .. } | Stat { .. } => {
                self.attributes(operation)
            }
            SetXattr { .. } | GetXattr { .. } | ListXattr { .. } | RemoveXattr { .. } => {
                self.xattrs(operation)
            }
            _ => self.data(operation),
        }
    }

    /// truncate(2) has no form with a directory.
    fn truncate(&self, path: &Bytes, len: u64) -> Outcome {
        let outcome = nix::unistd::truncate(self.absolute(path).as_slice(), len as i64);
        outcome.map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
        Ok(Value::Done)
    }

    fn open_plainly(&self, path: &Bytes) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(&self.root, named(path), flags, Mode::empty())
    }

    fn statfs(&self, path: &Bytes) -> Outcome {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.root, named(path), flags, Mode::empty())?;
        let seen = rustix::fs::fstatfs(fd)?;
        Ok(Value::Statfs(Space {
            block: seen.f_bsize as u64,
            blocks: seen.f_blocks,
            free: seen.f_bfree,
            available: seen.f_bavail,
            files: seen.f_files,
            files_free: seen.f_ffree,
            name_max: seen.f_namelen as u64,
        }))
    }

    fn attributes(&self, operation: &Operation) -> Outcome {
        use Operation::*;
        let done = |()| Value::Done;
        let at = |target: &Target| match target {
            Target::Link(_) => AtFlags::SYMLINK_NOFOLLOW,
            _ => AtFlags::empty(),
        };
        match operation {
            Chmod { target, mode } => {
                let mode = Mode::from_raw_mode(*mode);
                match target {
                    Target::Open(slot) => rustix::fs::fchmod(self.slot(*slot)?, mode),
                    Target::Path(path) | Target::Link(path) => {
                        rustix::fs::chmodat(&self.root, named(path), mode, AtFlags::empty())
                    }
                }
                .map(done)
            }
            Chown { target, uid, gid } => {
                let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                match target {
                    Target::Open(slot) => rustix::fs::fchown(self.slot(*slot)?, uid, gid),
                    Target::Path(path) | Target::Link(path) => {
                        rustix::fs::chownat(&self.root, named(path), uid, gid, at(target))
                    }
                }
                .map(done)
            }
            Utimens {
                target,
                atime,
                mtime,
            } => {
                let times = Timestamps {
                    last_access: timespec(*atime),
                    last_modification: timespec(*mtime),
                };
                match target {
                    Target::Open(slot) => rustix::fs::futimens(self.slot(*slot)?, &times),
                    Target::Path(path) | Target::Link(path) => {
                        rustix::fs::utimensat(&self.root, named(path), &times, at(target))
                    }
                }
                .map(done)
            }
            Stat { target } => match target {
                Target::Open(slot) => rustix::fs::fstat(self.slot(*slot)?),
                Target::Path(path) | Target::Link(path) => {
                    rustix::fs::statat(&self.root, named(path), at(target))
                }
            }
            .map(|_| Value::Done),
            _ => unreachable!("only what concerns attributes comes here"),
        }
    }

    fn xattrs(&self, operation: &Operation) -> Outcome {
        use Operation::*;
        use Target::{Link, Open, Path};
        match operation {
            SetXattr {
                target,
                name,
                value,
                flags,
            } => {
                let (name, value) = (name.0.as_slice(), value.0.as_slice());
                let flags = XattrFlags::from_bits_retain(*flags);
                match target {
                    Path(path) => rustix::fs::setxattr(self.absolute(path), name, value, flags),
                    Link(path) => rustix::fs::lsetxattr(self.absolute(path), name, value, flags),
                    Open(slot) => rustix::fs::fsetxattr(self.slot(*slot)?, name, value, flags),
                }
                .map(|()| Value::Done)
            }
            GetXattr { target, name, room } => {
                let name = name.0.as_slice();
                let mut value = vec![0; *room];
                let room = value.as_mut_slice();
                let len = match target {
                    Path(path) => rustix::fs::getxattr(self.absolute(path), name, room),
                    Link(path) => rustix::fs::lgetxattr(self.absolute(path), name, room),
                    Open(slot) => rustix::fs::fgetxattr(self.slot(*slot)?, name, room),
                }?;
                Ok(measured(value, len))
            }
            ListXattr { target, room } => {
                let mut names = vec![0; *room];
                let room = names.as_mut_slice();
                let len = match target {
                    Path(path) => rustix::fs::listxattr(self.absolute(path), room),
                    Link(path) => rustix::fs::llistxattr(self.absolute(path), room),
                    Open(slot) => rustix::fs::flistxattr(self.slot(*slot)?, room),
                }?;
                if names.len() < len {
                    return Ok(Value::Number(len as u64));
                }
                names.truncate(len);
                let mut each: Vec<&[u8]> = names.split(|byte| *byte == 0).collect();
                each.sort_unstable();
                let each = each.into_iter().map(|name| (Bytes(name.to_vec()), 0));
                Ok(Value::Names(each.collect()))
            }
            RemoveXattr { target, name } => {
                let name = name.0.as_slice();
                match target {
                    Path(path) => rustix::fs::removexattr(self.absolute(path), name),
                    Link(path) => rustix::fs::lremovexattr(self.absolute(path), name),
                    Open(slot) => rustix::fs::fremovexattr(self.slot(*slot)?, name),
                }
                .map(|()| Value::Done)
            }
            _ => unreachable!("only what concerns extended attributes comes here"),
        }
    }

    fn data(&self, operation: &Operation) -> Outcome {
        use Operation::*;
        let done = |()| Value::Done;
        match operation {
            Read { slot, len } => {
                let fd = self.slot(*slot)?;
                let mut bytes = Aligned::new(*len);
                let count = rustix::io::read(fd, bytes.get())?;
                Ok(Value::Bytes(bytes.get()[..count].to_vec()))
            }
            Pread { slot, offset, len } => {
                let mut bytes = Aligned::new(*len);
                let count = rustix::io::pread(self.slot(*slot)?, bytes.get(), *offset)?;
                Ok(Value::Bytes(bytes.get()[..count].to_vec()))
            }
            Write { slot, fill } => {
                let fd = self.slot(*slot)?;
                let count = rustix::io::write(fd, Aligned::of(*fill).get())?;
                let position = rustix::fs::tell(fd).unwrap_or(0);
                Ok(Value::Moved(count as u64, position))
            }
            Pwrite {
                slot,
                offset,
                fill,
                flags,
            } => {
                let mut bytes = Aligned::of(*fill);
                let half = (fill.len / 2).next_multiple_of(PAGE).min(fill.len);
                let (first, second) = bytes.get().split_at(half);
                let parts = [IoSlice::new(first), IoSlice::new(second)];
                let flags = ReadWriteFlags::from_bits_retain(*flags);
                let count = rustix::io::pwritev2(self.slot(*slot)?, &parts, *offset, flags)?;
                Ok(Value::Number(count as u64))
            }
            SetDirect { slot, is_direct } => {
                let fd = self.slot(*slot)?;
                let mut flags = rustix::fs::fcntl_getfl(fd)?;
                flags.set(OFlags::DIRECT, *is_direct);
                rustix::fs::fcntl_setfl(fd, flags).map(done)
            }
            Seek {
                slot,
                whence,
                offset,
            } => {
                let signed = *offset as i64;
                let from = match whence {
                    Whence::Set => SeekFrom::Start(*offset),
                    Whence::Current => SeekFrom::Current(signed),
                    Whence::End => SeekFrom::End(signed),
                    Whence::Data => SeekFrom::Data(*offset),
                    Whence::Hole => SeekFrom::Hole(*offset),
                };
                let fd = self.slot(*slot)?;
                let found = rustix::fs::seek(fd, from)?;
                if matches!(whence, Whence::Data | Whence::Hole) {
                    // Where these lead may differ, see the table of deviations.
                    rustix::fs::seek(fd, SeekFrom::Start(0))?;
                }
                Ok(Value::Number(found))
            }
            Ftruncate { slot, len } => rustix::fs::ftruncate(self.slot(*slot)?, *len).map(done),
            Fallocate {
                slot,
                mode,
                offset,
                len,
            } => {
                let mode = FallocateFlags::from_bits_retain(*mode);
                rustix::fs::fallocate(self.slot(*slot)?, mode, *offset, *len).map(done)
            }
            SetFlags { slot, flags } => {
                let fd = self.slot(*slot)?;
                let kept = rustix::fs::ioctl_getflags(fd)?.bits() & !SETTABLE;
                rustix::fs::ioctl_setflags(fd, IFlags::from_bits_retain(flags | kept)).map(done)
            }
            GetFlags { slot } => {
                let flags = rustix::fs::ioctl_getflags(self.slot(*slot)?)?.bits();
                Ok(Value::Number(u64::from(flags & SETTABLE)))
            }
            CopyRange {
                from,
                from_offset,
                to,
                to_offset,
                len,
            } => {
                let (from, to) = (self.slot(*from)?, self.slot(*to)?);
                let (mut at, mut there) = (*from_offset, *to_offset);
                let (at, there) = (Some(&mut at), Some(&mut there));
                let count = rustix::fs::copy_file_range(from, at, to, there, *len)?;
                Ok(Value::Number(count as u64))
            }
            MapWrite { slot, offset, fill } => {
                let start = offset - offset % PAGE as u64;
                let skew = (offset - start) as usize;
                let fd = self.slot(*slot)?;
                let mapping = Mapping::new(&self.memory, fd, start, skew + fill.len, true)?;
                let count = mapping.write(skew, &bytes_of(*fill))?;
                mapping.sync()?;
                Ok(Value::Number(count as u64))
            }
            MapRead { slot, offset, len } => {
                let start = offset - offset % PAGE as u64;
                let skew = (offset - start) as usize;
                let fd = self.slot(*slot)?;
                let mapping = Mapping::new(&self.memory, fd, start, skew + len, false)?;
                let mut bytes = vec![0; *len];
                let count = mapping.read(skew, &mut bytes)?;
                bytes.truncate(count);
                Ok(Value::Bytes(bytes))
            }
            Fsync { slot, is_data_only } => {
                let fd = self.slot(*slot)?;
                match is_data_only {
                    true => rustix::fs::fdatasync(fd),
                    false => rustix::fs::fsync(fd),
                }
                .map(done)
            }
            Flock { slot, operation } => {
                let operation = match operation {
                    0 => FlockOperation::NonBlockingLockShared,
                    1 => FlockOperation::NonBlockingLockExclusive,
                    _ => FlockOperation::Unlock,
                };
                rustix::fs::flock(self.slot(*slot)?, operation).map(done)
            }
            other => unreachable!("{other:?} is no operation on data"),
        }
    }
}

/// A path for the kernel: the empty one is the root.
fn named(path: &Bytes) -> &[u8] {
    match path.0.as_slice() {
        [] => b".",
        path => path,
    }
}

/// An xattr's value, or only its length where there was no room.
fn measured(mut value: Vec<u8>, len: usize) -> Value {
    if value.len() < len {
        return Value::Number(len as u64);
    }
    value.truncate(len);
    Value::Bytes(value)
}

fn timespec(time: NewTime) -> Timespec {
    let (tv_sec, tv_nsec) = match time {
        NewTime::Now => (0, rustix::fs::UTIME_NOW),
        NewTime::Omit => (0, rustix::fs::UTIME_OMIT),
        NewTime::At(seconds, nanoseconds) => (seconds, nanoseconds),
    };
    Timespec { tv_sec, tv_nsec }
}

/// All of a file, read in pieces; of a large one, where it is not zeros.
pub fn contents(fd: BorrowedFd<'_>) -> Outcome {
    let stat = rustix::fs::fstat(fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(Value::Done);
    }
    let size = stat.st_size as u64;
    if size > WHOLE_BYTES_MAX {
        return sparse_contents(fd, size);
    }
    let mut bytes = Vec::with_capacity(size as usize);
    let mut buffer = vec![0u8; 128 << 10];
    loop {
        let count = rustix::io::pread(fd, buffer.as_mut_slice(), bytes.len() as u64)?;
        if count == 0 {
            return Ok(Value::Bytes(bytes));
        }
        bytes.extend(&buffer[..count]);
    }
}

fn sparse_contents(fd: BorrowedFd<'_>, size: u64) -> Outcome {
    let Value::Ranges(ranges) = holes(fd)? else {
        return Err(Errno::INVAL);
    };
    let mut sums = Vec::new();
    let mut buffer = vec![0u8; PAGE];
    for (from, to) in ranges {
        let mut at = from - from % PAGE as u64;
        while at < to {
            let count = rustix::io::pread(fd, buffer.as_mut_slice(), at)?;
            if count == 0 {
                break;
            }
            if buffer[..count].iter().any(|byte| *byte != 0) {
                let sum = blake3::hash(&buffer[..count]);
                let sum = sum.as_bytes().first_chunk().copied().unwrap_or_default();
                sums.push((at, u64::from_le_bytes(sum)));
            }
            at += PAGE as u64;
        }
    }
    sums.dedup();
    Ok(Value::Sparse(size, sums))
}

/// Where SEEK_DATA and SEEK_HOLE find data.
pub fn holes(fd: BorrowedFd<'_>) -> Outcome {
    let mut ranges = Vec::new();
    let mut at = 0;
    loop {
        let from = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return Ok(Value::Ranges(ranges)),
            other => other?,
        };
        at = rustix::fs::seek(fd, SeekFrom::Hole(from))?;
        ranges.push((from, at));
    }
}
