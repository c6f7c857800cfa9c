//! Histories of system calls in a mounted directory.
//!
//! Data is not read back, nor is the size looked at: Linux lets others see a part of a write that
//! runs beside them, page by page, but for direct I/O. Where something was appended tells the size.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use finefs_namespace::{Error, Ino, MemoryStore, Namespace, Options, RenameMode};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};

use super::{At, DIRECTORIES, FILE, FILE_BYTES, Given, History, NAMES, Operation, Place, State};
use super::{UNSEEN, lists, run};

/// What calls may fail with.
const ERRORS: [Error; 9] = [
    Error::NotFound,
    Error::Exists,
    Error::NotEmpty,
    Error::NotADirectory,
    Error::IsADirectory,
    Error::Invalid,
    Error::Busy,
    Error::NotPermitted,
    Error::Stale,
];

struct Mounted {
    directories: Vec<File>,
    /// One for each thread, since where a file was appended to is told by the descriptor; and one
    /// that does not append.
    appending: Vec<File>,
    file: File,
}

impl Place for Mounted {
    fn perform(&self, thread: usize, operation: &Operation) -> Given {
        self.try_to(thread, operation).unwrap_or_else(|error| {
            let is_it = |known: &Error| Some(known.errno()) == error.raw_os_error();
            let known = ERRORS.into_iter().find(is_it);
            Given::Failed(known.unwrap_or_else(|| Error::io(error)))
        })
    }
}

/// As [`super::record`], by system calls in a directory that is made, and removed afterwards.
///
/// # Errors
/// Of the file system, but for those of the operations.
pub fn record_in_mount(
    directory: &Path,
    seed: u64,
    threads: usize,
    each: usize,
) -> io::Result<History> {
    std::fs::create_dir(directory)?;
    let mut directories = vec![directory.to_owned()];
    for name in &NAMES[..DIRECTORIES - 1] {
        let path = directory.join(name);
        std::fs::create_dir(&path)?;
        directories.push(path);
    }
    let path = directory.join(FILE);
    std::fs::write(&path, [1; FILE_BYTES])?;
    let opened = directories.iter().map(File::open);
    let opened: Vec<File> = opened.collect::<io::Result<_>>()?;
    let append = || OpenOptions::new().append(true).open(&path);
    let place = Mounted {
        appending: (0..threads).map(|_| append()).collect::<io::Result<_>>()?,
        file: OpenOptions::new().write(true).open(&path)?,
        directories: opened,
    };
    let mut numbers = [Ino(0); DIRECTORIES];
    for (number, directory) in numbers.iter_mut().zip(&place.directories) {
        *number = Ino(directory.metadata()?.ino());
    }
    let file = Ino(place.file.metadata()?.ino());
    let start = State::new(memory()?.geometry(), numbers, file).map_err(io::Error::other)?;
    let mut lists = lists(seed, threads, each);
    for operation in lists.iter_mut().flatten() {
        // Nothing tells where nothing was appended.
        if let Operation::Read(..) | Operation::Append(0, _) = operation {
            *operation = Operation::Attributes;
        }
    }
    let threads = run(&place, lists);
    drop(place);
    std::fs::remove_dir_all(directory)?;
    let in_mount = true;
    Ok(History {
        threads,
        start,
        in_mount,
    })
}

/// A file system whose limits the model takes: none of them is met here.
fn memory() -> io::Result<std::sync::Arc<Namespace>> {
    let store = MemoryStore::new(1 << 20, 0o755, 0, 0).map_err(io::Error::other)?;
    let made = store.into_namespace(Options::default());
    made.map_err(io::Error::other)
}

impl Mounted {
    fn try_to(&self, thread: usize, operation: &Operation) -> io::Result<Given> {
        let (mut appending, file) = (&self.appending[thread], &self.file);
        let name = |at: At| (&self.directories[at.0], at.1);
        let found = |at: At| -> io::Result<Given> {
            let (dir, name) = name(at);
            let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(Given::Inode(Ino(stat.st_ino)))
        };
        match *operation {
            Operation::CreateFile(at) => {
                let (dir, name) = name(at);
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                let made = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o644))?;
                return Ok(Given::Inode(Ino(File::from(made).metadata()?.ino())));
            }
            // Which directory was made cannot be told once others may have moved it.
            Operation::MakeDirectory(at) => {
                let (dir, name) = name(at);
                rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o755))?;
            }
            Operation::RemoveFile(at) => {
                let (dir, name) = name(at);
                rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
            }
            Operation::RemoveDirectory(at) => {
                let (dir, name) = name(at);
                rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?;
            }
            Operation::Rename(from, to, mode) => {
                let flags = match mode {
                    RenameMode::Exchange => RenameFlags::EXCHANGE,
                    RenameMode::NoReplace => RenameFlags::NOREPLACE,
                    _ => RenameFlags::empty(),
                };
                let ((from, old), (to, new)) = (name(from), name(to));
                rustix::fs::renameat_with(from, old, to, new, flags)?;
            }
            Operation::MakeLink(at) => {
                let (dir, name) = name(at);
                rustix::fs::linkat(file, "", dir, name, AtFlags::EMPTY_PATH)?;
                return Ok(Given::Inode(Ino(file.metadata()?.ino())));
            }
            Operation::Lookup(at) => return found(at),
            Operation::Attributes | Operation::Read(..) => {
                let shown = file.metadata()?;
                return Ok(Given::Shown(UNSEEN, shown.nlink() as u32));
            }
            Operation::Write(offset, length, fill) => {
                let written = file.write_at(&vec![fill; length], offset)?;
                return Ok(Given::Number(written as u64));
            }
            Operation::Append(length, fill) => {
                appending.write_all(&vec![fill; length])?;
                let end = appending.stream_position()?;
                return Ok(Given::Number(end - length as u64));
            }
            Operation::Truncate(size_bytes) => file.set_len(size_bytes)?,
        }
        Ok(Given::Done)
    }
}
