//! What is done with whole directories: listing them in several ways, filling and removing them.
//!
//! In which order names come is a file system's own business, so names are given sorted. What POSIX
//! asks of a listing is checked here on each side alone and told as text, which is equal on both
//! sides if it holds on both.

use super::operation::Bytes;
use super::outcome::{Outcome, Value};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, IFlags, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::mem::MaybeUninit;

/// A buffer of a few entries, so that listings take several calls.
const FEW: usize = 600;

struct Entry {
    name: Vec<u8>,
    kind: FileType,
    number: u64,
    cookie: u64,
}

fn open(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(root, path, flags, Mode::empty())
}

/// The entries from where `fd` is, without `.` and `..`.
fn read(fd: impl AsFd, room: usize) -> Result<Vec<Entry>, Errno> {
    let mut buffer = vec![MaybeUninit::uninit(); room];
    let mut directory = RawDir::new(fd, &mut buffer);
    let mut entries = Vec::new();
    while let Some(entry) = directory.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            entries.push(Entry {
                name,
                kind: entry.file_type(),
                number: entry.ino(),
                cookie: entry.next_entry_cookie(),
            });
        }
    }
    Ok(entries)
}

/// The names of a directory, in order.
pub fn names(fd: impl AsFd) -> Result<Vec<Vec<u8>>, Errno> {
    let entries = read(fd, 32 << 10)?;
    let mut names: Vec<Vec<u8>> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    Ok(names)
}

/// Names and types, each name once and each number that of the inode.
pub fn list(root: &OwnedFd, path: &[u8]) -> Outcome {
    let fd = open(root, path)?;
    let mut entries = read(&fd, FEW)?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(pair) = entries.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Ok(Value::Text(format!(
            "{:?} twice",
            Bytes(pair[0].name.clone())
        )));
    }
    for entry in &entries {
        let stat = rustix::fs::statat(&fd, entry.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)?;
        if stat.st_ino != entry.number {
            let name = Bytes(entry.name.clone());
            return Ok(Value::Text(format!(
                "{name:?} has another number in the listing"
            )));
        }
    }
    let typed = entries.into_iter();
    let typed = typed.map(|entry| (Bytes(entry.name), (entry.kind.as_raw_mode() >> 12) as u8));
    Ok(Value::Names(typed.collect()))
}

/// From each place that the listing names, the rest of the listing comes again.
pub fn list_from_cookies(root: &OwnedFd, path: &[u8]) -> Outcome {
    let fd = open(root, path)?;
    let all = read(&fd, FEW)?;
    let step = (all.len() / 8).max(1);
    for at in (0..all.len()).step_by(step) {
        rustix::fs::seek(&fd, SeekFrom::Start(all[at].cookie))?;
        let rest = read(&fd, FEW)?;
        let is_same = rest.iter().map(|entry| &entry.name);
        if !is_same.eq(all[at + 1..].iter().map(|entry| &entry.name)) {
            return Ok(Value::Text("from a cookie comes another rest".to_owned()));
        }
    }
    rustix::fs::seek(&fd, SeekFrom::Start(0))?;
    let again = read(&fd, FEW)?;
    Ok(Value::Text(match again.len() == all.len() {
        true => format!("{} names, and the same from everywhere", all.len()),
        false => "after a rewind come other names".to_owned(),
    }))
}

/// Makes the first half of `names` beforehand and the second while the directory is read, during
/// which the first is removed. Names that are there all the time must come once, others at most so.
pub fn list_while_changing(root: &OwnedFd, path: &[u8], names: &[Bytes]) -> Outcome {
    let fd = open(root, path)?;
    let (early, late) = names.split_at(names.len() / 2);
    let make = |name: &Bytes| {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::openat(&fd, name.0.as_slice(), flags, Mode::RUSR).map(drop)
    };
    let remove = |name: &Bytes| rustix::fs::unlinkat(&fd, name.0.as_slice(), AtFlags::empty());
    early.iter().try_for_each(make)?;
    let before: BTreeSet<Vec<u8>> = self::names(open(root, path)?)?.into_iter().collect();
    let mut buffer = vec![MaybeUninit::uninit(); FEW];
    let mut directory = RawDir::new(&fd, &mut buffer);
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let mut changes = late.iter().map(|name| (name, true));
    let mut removals = early.iter().map(|name| (name, false));
    while let Some(entry) = directory.next() {
        seen.push(entry?.file_name().to_bytes().to_vec());
        for (name, is_new) in changes.next().into_iter().chain(removals.next()) {
            match is_new {
                true => make(name)?,
                false => remove(name)?,
            }
        }
    }
    for (name, is_new) in changes.chain(removals) {
        match is_new {
            true => make(name)?,
            false => remove(name)?,
        }
    }
    let after: BTreeSet<Vec<u8>> = self::names(open(root, path)?)?.into_iter().collect();
    late.iter().try_for_each(remove)?;
    seen.sort();
    if let Some(pair) = seen.windows(2).find(|pair| pair[0] == pair[1]) {
        return Ok(Value::Text(format!(
            "{:?} came twice",
            Bytes(pair[0].clone())
        )));
    }
    if let Some(missed) = before
        .intersection(&after)
        .find(|name| !seen.contains(name))
    {
        return Ok(Value::Text(format!(
            "{:?} did not come",
            Bytes(missed.clone())
        )));
    }
    Ok(Value::Text(format!(
        "{} names that stay",
        before.intersection(&after).count()
    )))
}

/// Makes or removes so many files; their names are long enough that the directory grows.
pub fn many(root: &OwnedFd, path: &[u8], count: u32, removes: bool) -> Outcome {
    let fd = open(root, path)?;
    for number in 0..count {
        let name = format!("{number:05} of many names, long enough for the directory to grow");
        if removes {
            rustix::fs::unlinkat(&fd, name, AtFlags::empty())?;
        } else {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::CLOEXEC;
            rustix::fs::openat(&fd, name, flags, Mode::RUSR)?;
        }
    }
    Ok(Value::Done)
}

/// Takes away what keeps names of a directory from being changed (chattr(1)), where the caller may.
pub fn unlock(directory: impl AsFd) {
    const UNLOCKED: u32 = !(IFlags::IMMUTABLE.bits() | IFlags::APPEND.bits());
    if let Ok(flags) = rustix::fs::ioctl_getflags(&directory)
        && flags.bits() & !UNLOCKED != 0
    {
        let flags = IFlags::from_bits_retain(flags.bits() & UNLOCKED);
        let _ = rustix::fs::ioctl_setflags(&directory, flags);
    }
}

/// Removes everything below `path` and itself, as far as it goes.
pub fn remove_tree(root: &OwnedFd, path: &[u8]) -> Outcome {
    if path != b"." {
        match rustix::fs::unlinkat(root, path, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {}
            other => return other.map(|()| Value::Done),
        }
    }
    let fd = open(root, path)?;
    unlock(&fd);
    for name in names(&fd)? {
        remove_tree(&rustix::io::dup(&fd)?, &name)?;
    }
    match path {
        b"." => Ok(Value::Done),
        path => rustix::fs::unlinkat(root, path, AtFlags::REMOVEDIR).map(|()| Value::Done),
    }
}
