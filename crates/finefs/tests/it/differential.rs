//! The same random operations through `std::fs` on a directory of the host and through finefs: the
//! same results and the same errno, step for step.
//!
//! Both sides work in a directory that lies deeper than any path of a run can climb, so what the
//! host's side does stays in its temporary directory.

use std::fmt::Debug;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use finefs::{Dir, FileKind, MemoryOptions, OpenOptions, Permissions, RenameMode};
use rand::prelude::*;
use rand::rngs::StdRng;

/// More than the links that a walk may follow and the `..` of a path together.
const DEPTH: usize = 50;
const STEPS: usize = 600;
/// Runs, unless `FINEFS_SEEDS` says how many.
const SEEDS: u64 = 16;
const SLOTS: usize = 4;

/// One side's answer, comparable with the other's: a text of the value, or the errno (0 and the
/// kind for errors that `std` makes itself).
type Answer = Result<String, (i32, io::ErrorKind)>;

fn answer<T: Debug>(result: io::Result<T>) -> Answer {
    result.map(|value| format!("{value:?}")).map_err(|error| {
        let number = finefs::errno(&error).unwrap_or(0);
        (number, error.kind())
    })
}

/// What a file is, in words that both sides have.
fn describe(kind: &str, metadata: (u64, u64, u32)) -> String {
    let (length, links, permissions) = metadata;
    match kind {
        "directory" => format!("directory {permissions:o}"),
        _ => format!("{kind} {length} {links} {permissions:o}"),
    }
}

fn of_host(metadata: &fs::Metadata) -> String {
    let kind = kind_of_host(metadata.file_type());
    let (length, links) = (metadata.len(), metadata.nlink());
    describe(kind, (length, links, metadata.mode() & 0o7777))
}

fn kind_of_host(kind: fs::FileType) -> &'static str {
    match (kind.is_dir(), kind.is_symlink()) {
        (true, _) => "directory",
        (_, true) => "symlink",
        _ => "file",
    }
}

fn of_ours(metadata: &finefs::Metadata) -> String {
    let kind = kind_of_ours(metadata.file_type().kind());
    let (length, links) = (metadata.len(), u64::from(metadata.nlink()));
    describe(kind, (length, links, metadata.permissions().mode()))
}

fn kind_of_ours(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        _ => "file",
    }
}

/// How a file is opened, on both sides.
#[derive(Clone, Copy, Debug)]
struct How {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    no_follow: bool,
    directory: bool,
    no_atime: bool,
    mode: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Open(usize, PathBuf, How),
    Close(usize),
    OnHandle(usize, OnHandle),
    Write(PathBuf, Vec<u8>),
    Read(PathBuf),
    CreateDir(PathBuf, u32),
    CreateDirAll(PathBuf),
    RemoveFile(PathBuf),
    RemoveDir(PathBuf),
    RemoveDirAll(PathBuf),
    Rename(PathBuf, PathBuf, RenameMode),
    HardLink(PathBuf, PathBuf),
    Symlink(PathBuf, PathBuf),
    ReadLink(PathBuf),
    Canonicalize(PathBuf),
    Metadata(PathBuf),
    SymlinkMetadata(PathBuf),
    Exists(PathBuf),
    Copy(PathBuf, PathBuf),
    ReadDir(PathBuf),
    Chmod(PathBuf, u32),
}

/// A step on an open file.
#[derive(Clone, Debug)]
enum OnHandle {
    Read(usize),
    Write(Vec<u8>),
    ReadAt(u64, usize),
    WriteAt(u64, Vec<u8>),
    Seek(SeekFrom),
    SetLen(u64),
    Stat,
}

/// Random steps over few names, so that they meet.
struct Generator {
    rng: StdRng,
}

impl Generator {
    fn name(&mut self) -> &'static str {
        ["a", "b", "c", "d", "e"].choose(&mut self.rng).unwrap()
    }

    fn path(&mut self) -> PathBuf {
        let mut text = String::new();
        for number in 0..self.rng.random_range(1..=3) {
            if number > 0 {
                text.push_str(if self.rng.random_bool(0.1) { "//" } else { "/" });
            }
            match self.rng.random_range(0..20) {
                0 => text.push('.'),
                1 => text.push_str(".."),
                2 if self.rng.random_bool(0.05) => text.push_str(&"x".repeat(256)),
                _ => text.push_str(self.name()),
            }
        }
        if self.rng.random_bool(0.06) {
            text.push('/');
        }
        if self.rng.random_bool(0.005) {
            text.clear();
        }
        text.into()
    }

    /// One whose last component is a name: nothing above is removed with all that is in it.
    fn plain(&mut self) -> PathBuf {
        let path = self.path();
        let name = self.name();
        path.parent().unwrap_or(Path::new("")).join(name)
    }

    fn data(&mut self) -> Vec<u8> {
        let byte = self.rng.random();
        let most = if self.rng.random_bool(0.1) {
            20_000
        } else {
            50
        };
        vec![byte; self.rng.random_range(0..most)]
    }

    fn how(&mut self) -> How {
        let mut flag = |likely| self.rng.random_bool(likely);
        let (create, create_new) = (flag(0.4), flag(0.1));
        How {
            read: flag(0.7),
            write: flag(0.6),
            append: flag(0.15),
            truncate: flag(0.2),
            create,
            create_new,
            no_follow: flag(0.1),
            // Kernels before 6.4 have other errors for making a file so.
            directory: !create && !create_new && flag(0.1),
            no_atime: flag(0.1),
            mode: self.mode(0o666),
        }
    }

    /// Mostly the usual mode; else any, set-id bits and the sticky bit too.
    fn mode(&mut self, usual: u32) -> u32 {
        match self.rng.random_bool(0.3) {
            true => self.rng.random_range(0..0o10000),
            false => usual,
        }
    }

    fn step(&mut self) -> Step {
        let slot = self.rng.random_range(0..SLOTS);
        let offset = self.rng.random_range(0..10_000);
        let length = self.rng.random_range(0..5_000);
        match self.rng.random_range(0..31) {
            0..=2 => Step::Open(slot, self.path(), self.how()),
            3 => Step::Close(slot),
            4 => Step::OnHandle(slot, OnHandle::Read(length)),
            5 => Step::OnHandle(slot, OnHandle::Write(self.data())),
            6 => Step::OnHandle(slot, OnHandle::ReadAt(offset, length)),
            7 => Step::OnHandle(slot, OnHandle::WriteAt(offset, self.data())),
            8 => {
                let to = match self.rng.random_range(0..3) {
                    0 => SeekFrom::Start(offset),
                    1 => SeekFrom::Current(offset as i64 - 5_000),
                    _ => SeekFrom::End(offset as i64 - 5_000),
                };
                Step::OnHandle(slot, OnHandle::Seek(to))
            }
            9 => Step::OnHandle(slot, OnHandle::SetLen(offset)),
            10 => Step::OnHandle(slot, OnHandle::Stat),
            11 => Step::Write(self.path(), self.data()),
            12 => Step::Read(self.path()),
            13..=14 => Step::CreateDir(self.path(), self.mode(0o777)),
            15 => Step::CreateDirAll(self.path()),
            16 => Step::RemoveFile(self.path()),
            17 => Step::RemoveDir(self.path()),
            18 if self.rng.random_bool(0.2) => Step::RemoveDirAll(self.plain()),
            18..=20 => {
                let mode = *[
                    RenameMode::Replace,
                    RenameMode::Replace,
                    RenameMode::NoReplace,
                    RenameMode::Exchange,
                ]
                .choose(&mut self.rng)
                .unwrap();
                Step::Rename(self.path(), self.path(), mode)
            }
            21 => Step::HardLink(self.path(), self.path()),
            22 => Step::Symlink(self.target(), self.path()),
            23 => Step::ReadLink(self.path()),
            24 => Step::Canonicalize(self.path()),
            25 => Step::Metadata(self.path()),
            26 => Step::SymlinkMetadata(self.path()),
            27 => Step::Exists(self.path()),
            28 => Step::Copy(self.path(), self.path()),
            29 => Step::ReadDir(self.path()),
            _ => Step::Chmod(self.path(), self.rng.random_range(0..0o10000)),
        }
    }

    /// With one `..` at most: see [`DEPTH`].
    fn target(&mut self) -> PathBuf {
        let name = self.name();
        match self.rng.random_range(0..4) {
            0 => PathBuf::from("..").join(name),
            1 => PathBuf::from(name).join(self.name()),
            2 => PathBuf::from(format!("{name}/")),
            _ => PathBuf::from(name),
        }
    }
}

/// The host's side.
struct Host {
    base: PathBuf,
    slots: [Option<fs::File>; SLOTS],
}

/// An empty path stays one: `join` would make it the directory's.
fn join(base: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() {
        PathBuf::new()
    } else {
        base.join(path)
    }
}

/// An open file of either side.
trait Handle: Read + Write + Seek {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize>;
    fn set_len(&self, length: u64) -> io::Result<()>;
    fn is_file(&self) -> bool;
    fn described(&self) -> io::Result<String>;
}

impl Handle for fs::File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, data, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        fs::File::set_len(self, length)
    }

    fn is_file(&self) -> bool {
        self.metadata().unwrap().is_file()
    }

    fn described(&self) -> io::Result<String> {
        self.metadata().map(|found| of_host(&found))
    }
}

impl Handle for finefs::File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(finefs::File::read_at(self, buffer, offset)?)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        Ok(finefs::File::write_at(self, data, offset)?)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        Ok(finefs::File::set_len(self, length)?)
    }

    fn is_file(&self) -> bool {
        self.metadata().unwrap().is_file()
    }

    fn described(&self) -> io::Result<String> {
        Ok(self.metadata().map(|found| of_ours(&found))?)
    }
}

fn on_handle(slot: &mut Option<impl Handle>, step: &OnHandle) -> Answer {
    let Some(file) = slot else {
        return Ok("no handle".into());
    };
    match step {
        OnHandle::Read(length) => answer(read_up_to(*length, |buffer| file.read(buffer))),
        OnHandle::Write(data) => answer(file.write(data)),
        OnHandle::ReadAt(offset, length) => {
            answer(read_up_to(*length, |buffer| file.read_at(buffer, *offset)))
        }
        OnHandle::WriteAt(offset, data) => answer(file.write_at(data, *offset)),
        // What a directory's positions mean is every file system's own.
        OnHandle::Seek(_) if !file.is_file() => Ok("no position".into()),
        OnHandle::Seek(to) => answer(file.seek(*to)),
        OnHandle::SetLen(length) => answer(file.set_len(*length)),
        OnHandle::Stat => answer(file.described()),
    }
}

/// What a read gives that has room for so many bytes.
fn read_up_to(
    length: usize,
    read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; length];
    let count = read(&mut buffer)?;
    buffer.truncate(count);
    Ok(buffer)
}

impl Host {
    fn run(&mut self, step: &Step) -> Answer {
        let at = |path: &Path| join(&self.base, path);
        match step {
            Step::Open(slot, path, how) => {
                let mut flags = 0;
                if how.no_follow {
                    flags |= libc::O_NOFOLLOW;
                }
                if how.directory {
                    flags |= libc::O_DIRECTORY;
                }
                if how.no_atime {
                    flags |= libc::O_NOATIME;
                }
                let opened = fs::OpenOptions::new()
                    .read(how.read)
                    .write(how.write)
                    .append(how.append)
                    .truncate(how.truncate)
                    .create(how.create)
                    .create_new(how.create_new)
                    .custom_flags(flags)
                    .mode(how.mode)
                    .open(at(path));
                answer(opened.map(|file| self.slots[*slot] = Some(file)))
            }
            Step::Close(slot) => answer(Ok(self.slots[*slot].take().is_some())),
            Step::OnHandle(slot, step) => on_handle(&mut self.slots[*slot], step),
            Step::Write(path, data) => answer(fs::write(at(path), data)),
            Step::Read(path) => answer(fs::read(at(path))),
            Step::CreateDir(path, mode) => {
                answer(fs::DirBuilder::new().mode(*mode).create(at(path)))
            }
            Step::CreateDirAll(path) => answer(fs::create_dir_all(at(path))),
            Step::RemoveFile(path) => answer(fs::remove_file(at(path))),
            Step::RemoveDir(path) => answer(fs::remove_dir(at(path))),
            Step::RemoveDirAll(path) => answer(fs::remove_dir_all(at(path))),
            Step::Rename(from, to, mode) => {
                use rustix::fs::RenameFlags;
                let flags = match mode {
                    RenameMode::Replace => RenameFlags::empty(),
                    RenameMode::NoReplace => RenameFlags::NOREPLACE,
                    RenameMode::Exchange => RenameFlags::EXCHANGE,
                    RenameMode::Whiteout => RenameFlags::WHITEOUT,
                    RenameMode::WhiteoutNoReplace => RenameFlags::WHITEOUT | RenameFlags::NOREPLACE,
                };
                let cwd = rustix::fs::CWD;
                let renamed = rustix::fs::renameat_with(cwd, at(from), cwd, at(to), flags);
                answer(renamed.map_err(io::Error::from))
            }
            Step::HardLink(from, to) => answer(fs::hard_link(at(from), at(to))),
            Step::Symlink(target, link) => answer(std::os::unix::fs::symlink(target, at(link))),
            Step::ReadLink(path) => answer(fs::read_link(at(path))),
            Step::Canonicalize(path) => answer(fs::canonicalize(at(path))),
            Step::Metadata(path) => answer(fs::metadata(at(path)).map(|found| of_host(&found))),
            Step::SymlinkMetadata(path) => {
                answer(fs::symlink_metadata(at(path)).map(|found| of_host(&found)))
            }
            Step::Exists(path) => answer(fs::exists(at(path))),
            Step::Copy(from, to) => answer(fs::copy(at(from), at(to))),
            Step::ReadDir(path) => answer(fs::read_dir(at(path)).and_then(|entries| {
                let mut names = Vec::new();
                for entry in entries {
                    let entry = entry?;
                    names.push((entry.file_name(), kind_of_host(entry.file_type()?)));
                }
                names.sort();
                Ok(names)
            })),
            Step::Chmod(path, permissions) => {
                let permissions = fs::Permissions::from_mode(*permissions);
                answer(fs::set_permissions(at(path), permissions))
            }
        }
    }
}

/// Our side. It works through a directory handle, whose relative paths are the host's.
struct Ours {
    dir: Dir,
    /// The host's path of our root.
    outside: PathBuf,
    slots: [Option<finefs::File>; SLOTS],
}

fn ours<T: Debug>(result: finefs::Result<T>) -> Answer {
    answer(result.map_err(io::Error::from))
}

impl Ours {
    fn run(&mut self, step: &Step) -> Answer {
        let dir = &self.dir;
        match step {
            Step::Open(slot, path, how) => {
                let opened = OpenOptions::new()
                    .read(how.read)
                    .write(how.write)
                    .append(how.append)
                    .truncate(how.truncate)
                    .create(how.create)
                    .create_new(how.create_new)
                    .last_link(match how.no_follow {
                        true => finefs::LastLink::Keep,
                        false => finefs::LastLink::Follow,
                    })
                    .directory(how.directory)
                    .note_access(!how.no_atime)
                    .mode(how.mode)
                    .open(dir, path);
                ours(opened.map(|file| self.slots[*slot] = Some(file)))
            }
            Step::Close(slot) => answer(Ok(self.slots[*slot].take().is_some())),
            Step::OnHandle(slot, step) => on_handle(&mut self.slots[*slot], step),
            Step::Write(path, data) => ours(dir.write(path, data)),
            Step::Read(path) => ours(dir.read(path)),
            Step::CreateDir(path, mode) => ours(dir.create_dir_with_mode(path, *mode)),
            Step::CreateDirAll(path) => ours(dir.create_dir_all(path)),
            Step::RemoveFile(path) => ours(dir.remove_file(path)),
            Step::RemoveDir(path) => ours(dir.remove_dir(path)),
            Step::RemoveDirAll(path) => ours(dir.remove_dir_all(path)),
            Step::Rename(from, to, mode) => ours(dir.rename_to(from, dir, to, *mode)),
            Step::HardLink(from, to) => ours(dir.hard_link(from, to)),
            Step::Symlink(target, link) => ours(dir.symlink(target, link)),
            Step::ReadLink(path) => ours(dir.read_link(path)),
            Step::Canonicalize(path) => ours(
                dir.canonicalize(path)
                    .map(|path| self.outside.join(path.strip_prefix("/").unwrap())),
            ),
            Step::Metadata(path) => ours(dir.metadata(path).map(|found| of_ours(&found))),
            Step::SymlinkMetadata(path) => {
                ours(dir.symlink_metadata(path).map(|found| of_ours(&found)))
            }
            Step::Exists(path) => ours(dir.try_exists(path)),
            Step::Copy(from, to) => ours(dir.copy(from, to)),
            Step::ReadDir(path) => ours(dir.read_dir(path).and_then(|entries| {
                let mut names = Vec::new();
                for entry in entries {
                    let entry = entry?;
                    let kind = kind_of_ours(entry.file_type()?.kind());
                    names.push((entry.file_name().to_owned(), kind));
                }
                names.sort();
                Ok(names)
            })),
            Step::Chmod(path, permissions) => {
                ours(dir.set_permissions(path, Permissions::from_mode(*permissions)))
            }
        }
    }
}

fn run(seed: u64) -> u64 {
    let outside = tempfile::tempdir().unwrap();
    let outside = outside.path().canonicalize().unwrap();
    let caller = finefs::process_caller().unwrap();
    let options = MemoryOptions::new().root_owner(caller.uid, caller.gid);
    let fs = options.open(64 << 20).unwrap().as_caller(caller);
    let down: PathBuf = std::iter::repeat_n("down", DEPTH).collect();
    let base = outside.join(&down);
    fs::create_dir_all(&base).unwrap();
    fs.create_dir_all(&down).unwrap();
    let mut host = Host {
        base,
        slots: [const { None }; SLOTS],
    };
    let mut ours = Ours {
        dir: fs.open_dir(&down).unwrap(),
        outside,
        slots: [const { None }; SLOTS],
    };
    let mut generator = Generator {
        rng: StdRng::seed_from_u64(seed),
    };
    let mut succeeded = 0;
    let mut history = Vec::new();
    for number in 0..STEPS {
        let step = generator.step();
        let (expected, got) = (host.run(&step), ours.run(&step));
        history.push(format!("{step:?} -> {expected:?}"));
        let recent: Vec<String> = history
            .iter()
            .rev()
            .take(12)
            .map(|line| line.chars().take(200).collect())
            .collect();
        let is_same = match (&got, &expected) {
            (Err((_, got)), Err((0, expected))) => got == expected,
            _ => got == expected,
        };
        assert!(
            is_same,
            "seed {seed}, step {number}: {got:?}; host: {recent:#?}"
        );
        succeeded += u64::from(expected.is_ok());
    }
    drop(ours);
    assert_eq!(fs.open_file_count(), 0);
    fs::remove_dir_all(host.base.ancestors().nth(DEPTH).unwrap()).unwrap();
    succeeded
}

#[test]
fn the_same_as_on_the_host() {
    let seeds = std::env::var("FINEFS_SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap());
    let succeeded: u64 = (0..seeds).map(run).sum();
    // Enough of it did something.
    assert!(succeeded > seeds * STEPS as u64 / 4, "{succeeded}");
}
