//! Which processes use a file system: what they have open, mapped, or are in.
//!
//! The kernel does not tell a FUSE server who opens files, so proc(5) is asked. Nothing here asks
//! the server: a mount whose server hangs can be looked at.
//!
//! # References
//! proc_pid_fd(5), proc_pid_fdinfo(5), proc_pid_maps(5).

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};

/// The major and minor number of a file system.
pub(crate) type Device = (u32, u32);

/// One use of a file by a process.
pub(crate) struct Holder {
    pub pid: u32,
    /// The user, by number.
    pub uid: u32,
    /// The command's name.
    pub command: String,
    pub how: How,
    /// As the kernel names it; `(deleted)` follows what has no name any more.
    pub path: PathBuf,
}

/// A process that could not be looked into.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unseen {
    pub pid: u32,
    /// The user, by number.
    pub uid: u32,
    /// The command's name.
    pub command: String,
}

/// How a process uses a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// Open, by the number of the descriptor.
    Open { descriptor: u32, access: Access },
    /// Mapped into memory; stores reach the file.
    Mapped { is_written: bool },
    /// Its working directory.
    Directory,
    /// Its root directory.
    Root,
    /// What it executes.
    Program,
}

/// For what a file is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    Write,
    ReadWrite,
    /// O_PATH
    None,
}

impl Holder {
    /// True for what keeps the file system from becoming read-only.
    pub fn may_write(&self) -> bool {
        match self.how {
            How::Open { access, .. } => matches!(access, Access::Write | Access::ReadWrite),
            How::Mapped { is_written } => is_written,
            How::Directory | How::Root | How::Program => false,
        }
    }
}

/// All uses of a file system, in the order of processes; and the processes that could not be looked
/// into.
pub(crate) fn holders(device: Device) -> io::Result<(Vec<Holder>, Vec<Unseen>)> {
    let mut pids: Vec<u32> = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    let (mut found, mut unseen) = (Vec::new(), Vec::new());
    for pid in pids {
        match of_process(pid, device) {
            Ok(uses) => found.extend(uses),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                unseen.extend(Unseen::of(pid));
            }
            // It has ended.
            Err(_) => {}
        }
    }
    Ok((found, unseen))
}

impl Unseen {
    /// What everybody may know of it; `None` if it has ended.
    fn of(pid: u32) -> Option<Unseen> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        Some(Unseen {
            pid,
            uid: fs::metadata(&process).ok()?.uid(),
            command: command_of(&process).ok()?,
        })
    }
}

/// Any bytes: a program names itself (PR_SET_NAME).
fn command_of(process: &Path) -> io::Result<String> {
    let name = fs::read(process.join("comm"))?;
    Ok(String::from_utf8_lossy(&name).trim_end().to_owned())
}

fn of_process(pid: u32, device: Device) -> io::Result<Vec<Holder>> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let uid = fs::metadata(&process)?.uid();
    let command = command_of(&process)?;
    let mut found = Vec::new();
    let mut add = |how: How, path: PathBuf| {
        found.push(Holder {
            pid,
            uid,
            command: command.clone(),
            how,
            path,
        });
    };
    for (name, how) in [
        ("cwd", How::Directory),
        ("root", How::Root),
        ("exe", How::Program),
    ] {
        let link = process.join(name);
        if is_on(&link, device) {
            add(how, fs::read_link(&link)?);
        }
    }
    for entry in fs::read_dir(process.join("fd"))? {
        let link = entry?.path();
        let number = link
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        let (true, Some(descriptor)) = (is_on(&link, device), number) else {
            continue;
        };
        let info = fs::read_to_string(process.join(format!("fdinfo/{descriptor}")));
        // It may have been closed meanwhile.
        if let (Ok(info), Ok(path)) = (info, fs::read_link(&link)) {
            let access = access_of(&info);
            add(How::Open { descriptor, access }, path);
        }
    }
    let maps = fs::read(process.join("maps"))?;
    let mut mapped: Vec<(PathBuf, bool)> = Vec::new();
    for line in maps.split(|byte| *byte == b'\n') {
        let Some((path, is_written)) = mapping(line, device) else {
            continue;
        };
        match mapped.iter_mut().find(|(known, _)| known == path) {
            Some((_, known)) => *known |= is_written,
            None => mapped.push((path.to_owned(), is_written)),
        }
    }
    for (path, is_written) in mapped {
        add(How::Mapped { is_written }, path);
    }
    Ok(found)
}

/// Whether what a link of proc(5) leads to lies on a file system, by what the kernel knows.
fn is_on(link: &Path, device: Device) -> bool {
    let flags = AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(CWD, link, flags, StatxFlags::empty())
        .is_ok_and(|found| (found.stx_dev_major, found.stx_dev_minor) == device)
}

/// From the line `flags:` of fdinfo, octal.
fn access_of(info: &str) -> Access {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    match flags {
        Some(flags) if flags & libc::O_PATH != 0 => Access::None,
        Some(flags) => match flags & libc::O_ACCMODE {
            libc::O_WRONLY => Access::Write,
            libc::O_RDWR => Access::ReadWrite,
            _ => Access::Read,
        },
        None => Access::None,
    }
}

/// Of a line of maps the file, if it is of this file system, and whether stores reach it:
/// `7f0-7f1 rw-s 00000000 00:2f 12 /mnt/file`.
fn mapping(line: &[u8], device: Device) -> Option<(&Path, bool)> {
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let (_, permissions, _) = (fields.next()?, fields.next()?, fields.next()?);
    let number = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = number.split_once(':')?;
    let hex = |text| u32::from_str_radix(text, 16).ok();
    if (hex(major)?, hex(minor)?) != device {
        return None;
    }
    let path = fields.nth(1)?.trim_ascii_start();
    let is_written = permissions.get(1) == Some(&b'w') && permissions.get(3) == Some(&b's');
    Some((Path::new(std::ffi::OsStr::from_bytes(path)), is_written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_are_understood() {
        let line = b"7f00-7f10 rw-s 00001000 00:2f 12                         /mnt/a b";
        let found = mapping(line, (0, 0x2f));
        assert_eq!(found, Some((Path::new("/mnt/a b"), true)));
        assert_eq!(mapping(line, (0, 0x2e)), None);
        let private = b"7f00-7f10 rw-p 00001000 00:2f 12    /mnt/a";
        assert_eq!(
            mapping(private, (0, 0x2f)),
            Some((Path::new("/mnt/a"), false))
        );
        assert_eq!(
            mapping(b"7f00-7f10 rw-p 00000000 00:00 0 ", (0, 0x2f)),
            None
        );
        assert_eq!(
            access_of("pos:\t0\nflags:\t0100002\nmnt_id:\t30\n"),
            Access::ReadWrite
        );
        assert_eq!(access_of("flags:\t0100001\n"), Access::Write);
        assert_eq!(access_of("flags:\t02100000\n"), Access::Read);
    }

    #[test]
    fn own_files_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = fs::File::create(&path).unwrap();
        let found = rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::empty()).unwrap();
        let (holders, _) = holders((found.stx_dev_major, found.stx_dev_minor)).unwrap();
        let path = path.canonicalize().unwrap();
        let own = holders.iter().find(|holder| holder.path == path).unwrap();
        assert_eq!(own.pid, std::process::id());
        assert!(own.may_write());
    }

    #[test]
    fn a_name_of_any_bytes_is_shown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = fs::File::create(&path).unwrap();
        let program = directory
            .path()
            .join(std::ffi::OsStr::from_bytes(b"n\xffme"));
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut named = std::process::Command::new(&program);
        let mut named = named
            .arg("60")
            .stdin(file.try_clone().unwrap())
            .spawn()
            .unwrap();
        let found = rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::empty()).unwrap();
        let device = (found.stx_dev_major, found.stx_dev_minor);
        let path = path.canonicalize().unwrap();
        let is_seen = || {
            let uses = of_process(named.id(), device).unwrap_or_default();
            let mut own = uses.iter().filter(|holder| holder.path == path);
            own.any(|holder| holder.command == "n\u{fffd}me")
        };
        // The kernel says that the program runs before it has its name.
        let is_shown = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            is_seen()
        });
        named.kill().unwrap();
        named.wait().unwrap();
        assert!(is_shown);
    }
}
