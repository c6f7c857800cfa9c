//! What an inode looks like, and how two views of it differ.

use super::clock::{Clock, Nanoseconds, Which};
use super::deviations;
use super::execute::{contents, holes};
use super::operation::Bytes;
use super::outcome::{Outcome, Value, shown};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxAttributes, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// The attributes of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of statx(2)")]
pub struct Attributes {
    pub kind: FileType,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub blocks: u64,
    pub blksize: u32,
    pub rdev: (u32, u32),
    pub atime: Nanoseconds,
    pub mtime: Nanoseconds,
    pub ctime: Nanoseconds,
    pub ino: u64,
}

fn time(stamp: StatxTimestamp) -> Nanoseconds {
    i128::from(stamp.tv_sec) * 1_000_000_000 + i128::from(stamp.tv_nsec)
}

impl Attributes {
    /// Of `path` below `fd`, or with an empty path of `fd` itself.
    pub fn of(fd: impl AsFd, path: &[u8]) -> Result<Self, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
        let seen = rustix::fs::statx(fd, path, flags, StatxFlags::BASIC_STATS)?;
        Ok(Self {
            kind: FileType::from_raw_mode(u32::from(seen.stx_mode)),
            mode: u32::from(seen.stx_mode) & 0o7777,
            nlink: seen.stx_nlink,
            uid: seen.stx_uid,
            gid: seen.stx_gid,
            size: seen.stx_size,
            blocks: seen.stx_blocks,
            blksize: seen.stx_blksize,
            rdev: (seen.stx_rdev_major, seen.stx_rdev_minor),
            atime: time(seen.stx_atime),
            mtime: time(seen.stx_mtime),
            ctime: time(seen.stx_ctime),
            ino: seen.stx_ino,
        })
    }
}

/// True of what is immutable or append-only: `path` below `fd`, or with an empty path `fd` itself.
pub fn is_locked(fd: impl AsFd, path: &[u8]) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    let seen = rustix::fs::statx(fd, path, flags, StatxFlags::empty());
    let locks = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    seen.is_ok_and(|seen| seen.stx_attributes.intersects(locks))
}

/// One field that differs.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Of what.
    pub place: String,
    /// Which field.
    pub field: &'static str,
    /// What the kernel has.
    pub kernel: String,
    /// What finefs has.
    pub finefs: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            place,
            field,
            kernel,
            finefs,
        } = self;
        write!(
            f,
            "{place}: {field}: the kernel has {kernel}, finefs has {finefs}"
        )
    }
}

/// What two views are of.
#[derive(Clone, Copy)]
pub enum Relation<'a> {
    /// The kernel's ext4 and finefs, which did the same at slightly different times.
    Beside(&'a Clock),
    /// The same file system, seen again.
    Again,
}

/// The fields that differ and may not.
pub fn compare_attributes(
    place: &str,
    kernel: &Attributes,
    finefs: &Attributes,
    relation: Relation<'_>,
) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut field = |name: &'static str, differs: bool, a: String, b: String| {
        if differs && !deviations::allows_field(name, kernel, finefs, relation) {
            let place = place.to_owned();
            found.push(Difference {
                place,
                field: name,
                kernel: a,
                finefs: b,
            });
        }
    };
    macro_rules! fields {
        ($($name:ident),*) => {
            $(field(stringify!($name), kernel.$name != finefs.$name,
                format!("{:?}", kernel.$name), format!("{:?}", finefs.$name));)*
        };
    }
    fields!(kind, nlink, uid, gid, size, blocks, blksize, rdev);
    let octal = |mode: u32| format!("{mode:04o}");
    field(
        "mode",
        kernel.mode != finefs.mode,
        octal(kernel.mode),
        octal(finefs.mode),
    );
    let times = [
        ("atime", kernel.atime, finefs.atime),
        ("mtime", kernel.mtime, finefs.mtime),
        ("ctime", kernel.ctime, finefs.ctime),
    ];
    for (name, a, b) in times {
        let differs = match relation {
            Relation::Beside(clock) => !clock.agree(a, b),
            Relation::Again => a != b,
        };
        field(
            name,
            differs,
            stamp(a, Which::Kernel, relation),
            stamp(b, Which::Finefs, relation),
        );
    }
    found
}

/// A time, and the steps that it may be from.
fn stamp(time: Nanoseconds, which: Which, relation: Relation<'_>) -> String {
    let (seconds, rest) = (
        time.div_euclid(1_000_000_000),
        time.rem_euclid(1_000_000_000),
    );
    let steps = match relation {
        Relation::Beside(clock) => clock.steps(which, time),
        Relation::Again => None,
    };
    let from = steps.map(|(first, last)| format!(" (windows {first} to {last})"));
    format!("{seconds}.{rest:09}{}", from.unwrap_or_default())
}

/// All that a file system keeps of one inode.
#[derive(Clone)]
pub struct Entry {
    /// Its attributes, taken before anything else was looked at.
    pub attributes: Attributes,
    /// Contents of a file, or the target of a symbolic link.
    pub contents: Outcome,
    /// Where a file has data.
    pub holes: Outcome,
    /// Extended attributes.
    pub xattrs: Result<BTreeMap<Bytes, Bytes>, Errno>,
}

/// A tree, by path; the root is the empty path.
pub type Tree = BTreeMap<Bytes, Entry>;

/// Everything below `root`.
pub fn tree(root: BorrowedFd<'_>) -> Result<Tree, Errno> {
    let mut tree = Tree::new();
    let mut todo = vec![Bytes::default()];
    while let Some(path) = todo.pop() {
        let attributes = Attributes::of(root, &path.0)?;
        if attributes.kind == FileType::Directory {
            let fd = open(root, &path, OFlags::DIRECTORY)?;
            let names = super::directories::names(fd)?;
            todo.extend(names.iter().rev().map(|name| path.join(name)));
        }
        tree.insert(path.clone(), entry(root, &path, attributes)?);
    }
    Ok(tree)
}

fn open(root: BorrowedFd<'_>, path: &Bytes, more: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.0.is_empty() {
        b"."
    } else {
        path.0.as_slice()
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(root, path, flags | OFlags::NOATIME | more, Mode::empty())
}

fn entry(root: BorrowedFd<'_>, path: &Bytes, attributes: Attributes) -> Result<Entry, Errno> {
    let nothing = || Ok(Value::Done);
    let mut entry = Entry {
        contents: nothing(),
        holes: nothing(),
        xattrs: xattrs(root, path),
        attributes,
    };
    match entry.attributes.kind {
        FileType::RegularFile => {
            let fd = open(root, path, OFlags::empty())?;
            entry.holes = holes(fd.as_fd());
            entry.contents = contents(fd.as_fd());
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(root, path.0.as_slice(), Vec::new());
            entry.contents = target.map(|to| Value::Bytes(to.into_bytes()));
        }
        _ => {}
    }
    Ok(entry)
}

/// The extended attributes of an inode, by a path in `/proc`, since there is no call with a
/// directory.
fn xattrs(root: BorrowedFd<'_>, path: &Bytes) -> Result<BTreeMap<Bytes, Bytes>, Errno> {
    use rustix::fd::AsRawFd;
    let base = format!("/proc/self/fd/{}", root.as_raw_fd());
    let full = Bytes(base.into_bytes()).join(&path.0).0;
    // The root is a symbolic link of /proc.
    let is_root = path.0.is_empty();
    let mut list = vec![0u8; 64 << 10];
    let room = list.as_mut_slice();
    let len = match is_root {
        true => rustix::fs::listxattr(full.as_slice(), room)?,
        false => rustix::fs::llistxattr(full.as_slice(), room)?,
    };
    let mut found = BTreeMap::new();
    for name in list[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0u8; 64 << 10];
        let room = value.as_mut_slice();
        let len = match is_root {
            true => rustix::fs::getxattr(full.as_slice(), name, room)?,
            false => rustix::fs::lgetxattr(full.as_slice(), name, room)?,
        };
        value.truncate(len);
        found.insert(Bytes(name.to_vec()), Bytes(value));
    }
    Ok(found)
}

/// What differs between two trees and may not.
pub fn compare_trees(kernel: &Tree, finefs: &Tree, relation: Relation<'_>) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut simple = |path: &Bytes, field, a: String, b: String| {
        let place = format!("{path:?}");
        found.push(Difference {
            place,
            field,
            kernel: a,
            finefs: b,
        });
    };
    let paths: BTreeSet<&Bytes> = kernel.keys().chain(finefs.keys()).collect();
    let mut more = Vec::new();
    for path in paths {
        let (a, b) = match (kernel.get(path), finefs.get(path)) {
            (Some(a), Some(b)) => (a, b),
            (a, _) => {
                let (here, there) = ("an entry".to_owned(), "none".to_owned());
                let (a, b) = if a.is_some() {
                    (here, there)
                } else {
                    (there, here)
                };
                simple(path, "existence", a, b);
                continue;
            }
        };
        let place = format!("{path:?}");
        more.extend(compare_attributes(
            &place,
            &a.attributes,
            &b.attributes,
            relation,
        ));
        if a.contents != b.contents {
            simple(
                path,
                "contents",
                shown(&a.contents),
                difference(&a.contents, &b.contents),
            );
        }
        if a.holes != b.holes && !deviations::allows_holes(a, b) {
            simple(path, "holes", shown(&a.holes), shown(&b.holes));
        }
        if a.xattrs != b.xattrs {
            simple(
                path,
                "xattrs",
                format!("{:?}", a.xattrs),
                format!("{:?}", b.xattrs),
            );
        }
    }
    let (a, b) = (hard_links(kernel), hard_links(finefs));
    for (path, first) in &a {
        if let Some(other) = b.get(path).filter(|other| *other != first) {
            simple(
                path,
                "hard link of",
                format!("{first:?}"),
                format!("{other:?}"),
            );
        }
    }
    found.extend(more);
    found
}

/// The first path of each path's inode.
fn hard_links(tree: &Tree) -> BTreeMap<&Bytes, &Bytes> {
    let mut firsts = BTreeMap::new();
    let each = tree.iter();
    each.map(|(path, entry)| (path, *firsts.entry(entry.attributes.ino).or_insert(path)))
        .collect()
}

/// How contents differ, in words.
pub fn difference(kernel: &Outcome, finefs: &Outcome) -> String {
    use super::outcome::Value::Bytes as Contents;
    let (Ok(Contents(a)), Ok(Contents(b))) = (kernel, finefs) else {
        return shown(finefs);
    };
    let at = a.iter().zip(b).position(|(a, b)| a != b);
    let Some(at) = at else {
        return shown(finefs);
    };
    let end = a.iter().zip(b).rposition(|(a, b)| a != b).unwrap_or(at);
    let (x, y) = (&a[at..a.len().min(at + 8)], &b[at..b.len().min(at + 8)]);
    format!(
        "{}, other bytes from {at} to {end}, first {y:02x?} and not {x:02x?}",
        shown(finefs)
    )
}
