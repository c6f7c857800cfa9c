//! One step: who does what. Steps are plain data, so that a run can be written down, shortened and
//! done again.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes of a name, path or value; text when written down, each byte a character.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    /// The bytes of `text`.
    pub fn new(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }

    /// `self/name`, or `name` below the root, which is the empty path.
    pub fn join(&self, name: &[u8]) -> Self {
        let mut path = self.0.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend(name);
        Self(path)
    }

    /// The path without its last component.
    pub fn parent(&self) -> Self {
        let end = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        Self(self.0[..end].to_vec())
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() > 90 {
            let (head, tail) = (&self.0[..30], &self.0[self.0.len() - 10..]);
            let (head, tail) = (head.escape_ascii(), tail.escape_ascii());
            return write!(f, "\"{head}...{tail}\" ({} bytes)", self.0.len());
        }
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text: String = self.0.iter().map(|byte| char::from(*byte)).collect();
        text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let byte = |letter| u8::try_from(u32::from(letter)).map_err(serde::de::Error::custom);
        Ok(Self(text.chars().map(byte).collect::<Result<_, _>>()?))
    }
}

/// Who acts. The numbers are users and their groups; [`super::users`] has the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Who {
    /// With all capabilities.
    Root,
    /// User and group 1000, in the group 1001 besides.
    First,
    /// User and group 1001.
    Second,
}

/// One of the open files of a side.
pub type Slot = usize;

/// Bytes that are made from a seed when they are needed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Fill {
    /// How many.
    pub len: usize,
    /// Same seed, same bytes.
    pub seed: u64,
}

/// Whom an operation on an inode names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Target {
    /// By a path, following a symbolic link at its end.
    Path(Bytes),
    /// By a path, and a symbolic link at its end itself.
    Link(Bytes),
    /// By an open file.
    Open(Slot),
}

/// A new time of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewTime {
    /// UTIME_NOW.
    Now,
    /// UTIME_OMIT.
    Omit,
    /// Seconds and nanoseconds.
    At(i64, i64),
}

/// What happens. Flags are the numbers of the system calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(
    missing_docs,
    reason = "the fields are the arguments of the system calls"
)]
pub enum Operation {
    Open {
        slot: Slot,
        path: Bytes,
        flags: u32,
        mode: u32,
    },
    Close {
        slot: Slot,
    },
    Read {
        slot: Slot,
        len: usize,
    },
    Pread {
        slot: Slot,
        offset: u64,
        len: usize,
    },
    Write {
        slot: Slot,
        fill: Fill,
    },
    /// pwritev2, of two vectors.
    Pwrite {
        slot: Slot,
        offset: u64,
        fill: Fill,
        flags: u32,
    },
    /// From memory of one page's alignment, at the file's position, with O_DIRECT or without.
    SetDirect {
        slot: Slot,
        is_direct: bool,
    },
    Seek {
        slot: Slot,
        whence: Whence,
        offset: u64,
    },
    Truncate {
        path: Bytes,
        len: u64,
    },
    Ftruncate {
        slot: Slot,
        len: u64,
    },
    Fallocate {
        slot: Slot,
        mode: u32,
        offset: u64,
        len: u64,
    },
    /// FS_IOC_SETFLAGS, of those that can be set: the others stay as they are.
    SetFlags {
        slot: Slot,
        flags: u32,
    },
    GetFlags {
        slot: Slot,
    },
    CopyRange {
        from: Slot,
        from_offset: u64,
        to: Slot,
        to_offset: u64,
        len: usize,
    },
    /// Stores in a shared mapping, and msync.
    MapWrite {
        slot: Slot,
        offset: u64,
        fill: Fill,
    },
    MapRead {
        slot: Slot,
        offset: u64,
        len: usize,
    },
    Fsync {
        slot: Slot,
        is_data_only: bool,
    },
    Mkdir {
        path: Bytes,
        mode: u32,
    },
    Mknod {
        path: Bytes,
        mode: u32,
        major: u32,
        minor: u32,
    },
    Symlink {
        target: Bytes,
        path: Bytes,
    },
    Link {
        from: Bytes,
        to: Bytes,
        follows: bool,
    },
    /// linkat of an open file, also one without a name.
    LinkOpen {
        slot: Slot,
        to: Bytes,
        by_proc: bool,
    },
    Unlink {
        path: Bytes,
    },
    Rmdir {
        path: Bytes,
    },
    Rename {
        from: Bytes,
        to: Bytes,
        flags: u32,
    },
    Chmod {
        target: Target,
        mode: u32,
    },
    Chown {
        target: Target,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    Utimens {
        target: Target,
        atime: NewTime,
        mtime: NewTime,
    },
    SetXattr {
        target: Target,
        name: Bytes,
        value: Bytes,
        flags: u32,
    },
    GetXattr {
        target: Target,
        name: Bytes,
        room: usize,
    },
    ListXattr {
        target: Target,
        room: usize,
    },
    RemoveXattr {
        target: Target,
        name: Bytes,
    },
    Stat {
        target: Target,
    },
    Readlink {
        path: Bytes,
        room: usize,
    },
    Access {
        path: Bytes,
        mode: u32,
        flags: u32,
    },
    Statfs {
        path: Bytes,
    },
    /// All names of a directory.
    List {
        path: Bytes,
    },
    /// The names again from each of the places that telldir gave.
    ListFromCookies {
        path: Bytes,
    },
    /// Names are made and removed while a directory is read.
    ListWhileChanging {
        path: Bytes,
        names: Vec<Bytes>,
    },
    /// The whole contents.
    Contents {
        path: Bytes,
    },
    /// SEEK_DATA and SEEK_HOLE over the whole file.
    Holes {
        path: Bytes,
    },
    Flock {
        slot: Slot,
        operation: u32,
    },
    Umask {
        mask: u32,
    },
    /// Files or directories, many, so that directories become large.
    Many {
        path: Bytes,
        count: u32,
        removes: bool,
    },
    RemoveTree {
        path: Bytes,
    },
    /// So long that the clock moves on.
    Pause,
}

/// From where a seek counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names of lseek(2)")]
pub enum Whence {
    Set,
    Current,
    End,
    Data,
    Hole,
}

/// One step of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Who does it.
    pub who: Who,
    /// What is done.
    pub operation: Operation,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.who != Who::Root {
            write!(f, "{:?}: ", self.who)?;
        }
        match &self.operation {
            Operation::Open {
                slot,
                path,
                flags,
                mode,
            } => {
                write!(f, "Open {{ slot: {slot}, path: {path:?}, flags: ")?;
                write!(f, "{}, mode: {mode:#o} }}", open_flags(*flags))
            }
            Operation::Chmod { target, mode } => {
                write!(f, "Chmod {{ target: {target:?}, mode: {mode:#o} }}")
            }
            Operation::Mkdir { path, mode } => {
                write!(f, "Mkdir {{ path: {path:?}, mode: {mode:#o} }}")
            }
            Operation::Mknod {
                path,
                mode,
                major,
                minor,
            } => {
                write!(
                    f,
                    "Mknod {{ path: {path:?}, mode: {mode:#o}, device: {major}:{minor} }}"
                )
            }
            Operation::Umask { mask } => write!(f, "Umask {{ mask: {mask:#o} }}"),
            other => write!(f, "{other:?}"),
        }
    }
}

fn open_flags(flags: u32) -> String {
    let known = rustix::fs::OFlags::from_bits_retain(flags);
    let access = match flags & 3 {
        0 => "RDONLY",
        1 => "WRONLY",
        2 => "RDWR",
        _ => "3",
    };
    let rest = rustix::fs::OFlags::from_bits_retain(known.bits() & !3);
    let names: Vec<&str> = rest.iter_names().map(|(name, _)| name).collect();
    [&[access], names.as_slice()].concat().join("|")
}

impl Operation {
    /// The paths whose inodes it may change, for looking at them afterwards.
    pub fn paths(&self) -> Vec<&Bytes> {
        use Operation::*;
        match self {
            Open { path, .. }
            | Truncate { path, .. }
            | Mkdir { path, .. }
            | Mknod { path, .. }
            | Symlink { path, .. }
            | Unlink { path }
            | Rmdir { path }
            | Readlink { path, .. }
            | Access { path, .. }
            | Statfs { path }
            | List { path }
            | ListFromCookies { path }
            | ListWhileChanging { path, .. }
            | Contents { path }
            | Holes { path }
            | Many { path, .. }
            | RemoveTree { path } => vec![path],
            Link { from, to, .. } | Rename { from, to, .. } => vec![from, to],
            LinkOpen { to, .. } => vec![to],
            Chmod { target, .. }
            | Chown { target, .. }
            | Utimens { target, .. }
            | SetXattr { target, .. }
            | GetXattr { target, .. }
            | ListXattr { target, .. }
            | RemoveXattr { target, .. }
            | Stat { target } => match target {
                Target::Path(path) | Target::Link(path) => vec![path],
                Target::Open(_) => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// The open files that it uses.
    pub fn slots(&self) -> Vec<Slot> {
        use Operation::*;
        match self {
            Open { slot, .. }
            | Close { slot }
            | Read { slot, .. }
            | Pread { slot, .. }
            | Write { slot, .. }
            | Pwrite { slot, .. }
            | SetDirect { slot, .. }
            | Seek { slot, .. }
            | Ftruncate { slot, .. }
            | Fallocate { slot, .. }
            | SetFlags { slot, .. }
            | GetFlags { slot }
            | MapWrite { slot, .. }
            | MapRead { slot, .. }
            | Fsync { slot, .. }
            | LinkOpen { slot, .. }
            | Flock { slot, .. } => vec![*slot],
            CopyRange { from, to, .. } => vec![*from, *to],
            Chmod { target, .. }
            | Chown { target, .. }
            | Utimens { target, .. }
            | SetXattr { target, .. }
            | GetXattr { target, .. }
            | ListXattr { target, .. }
            | RemoveXattr { target, .. }
            | Stat { target } => match target {
                Target::Open(slot) => vec![*slot],
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }
}
