//! fanotify(7): what it tells of a mount, and what it may not be asked. These tests need root and
//! FUSE.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::*;

/// The head of an event: its length, 8 bytes, the mask, a descriptor, a process.
const HEAD: usize = 24;
/// What stands before a file handle in an event.
const FSID_END: usize = 12;

/// Somebody who is told of events.
struct Group(File);

/// What is told: a descriptor, or handles.
struct Event {
    mask: u64,
    file: Option<File>,
    information: Vec<u8>,
}

impl Group {
    fn new(flags: u32) -> Group {
        let flags = flags | libc::FAN_CLOEXEC;
        // SAFETY: it takes two numbers.
        let group = unsafe { libc::fanotify_init(flags, libc::O_RDONLY as u32) };
        assert!(group >= 0, "{}", io::Error::last_os_error());
        // SAFETY: it was just made, and nobody else has it.
        Group(unsafe { OwnedFd::from_raw_fd(group) }.into())
    }

    fn mark(&self, how: u32, mask: u64, path: &Path) -> io::Result<()> {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let how = how | libc::FAN_MARK_ADD;
        // SAFETY: the path is one of C, and lives on.
        let outcome = unsafe {
            libc::fanotify_mark(self.0.as_raw_fd(), how, mask, libc::AT_FDCWD, path.as_ptr())
        };
        match outcome {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Those that there are; waits for the first.
    fn events(&mut self) -> Vec<Event> {
        let mut bytes = [0; 8192];
        let length = self.0.read(&mut bytes).unwrap();
        let (mut left, mut events) = (&bytes[..length], Vec::new());
        while !left.is_empty() {
            let length = u32::from_ne_bytes(left[..4].try_into().unwrap()) as usize;
            let mask = u64::from_ne_bytes(left[8..16].try_into().unwrap());
            let file = i32::from_ne_bytes(left[16..20].try_into().unwrap());
            // SAFETY: the kernel has made it for this event.
            let owned = (file >= 0).then(|| unsafe { OwnedFd::from_raw_fd(file) });
            events.push(Event {
                mask,
                file: owned.map(File::from),
                information: left[HEAD..length].to_vec(),
            });
            left = &left[length..];
        }
        events
    }

    fn answer(&mut self, event: &Event, response: u32) {
        let file = event.file.as_ref().unwrap().as_raw_fd();
        let answer = [file.to_ne_bytes(), response.to_ne_bytes()].concat();
        self.0.write_all(&answer).unwrap();
    }
}

impl Event {
    fn path(&self) -> PathBuf {
        let file = self.file.as_ref().unwrap();
        fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
    }

    /// The name that it is about, and the directory, opened by its handle.
    fn name_in(&self, mount: &File) -> (String, PathBuf) {
        let handle = &self.information[FSID_END..];
        let length = u32::from_ne_bytes(handle[..4].try_into().unwrap()) as usize;
        let name = handle[8 + length..].split(|byte| *byte == 0).next();
        let name = String::from_utf8(name.unwrap().to_vec()).unwrap();
        // SAFETY: the handle says how long it is.
        let file = unsafe {
            let flags = libc::O_PATH;
            let handle = handle.as_ptr();
            libc::syscall(
                libc::SYS_open_by_handle_at,
                mount.as_raw_fd(),
                handle,
                flags,
            )
        };
        assert!(file >= 0, "{}", io::Error::last_os_error());
        // SAFETY: it was just opened.
        let directory = unsafe { OwnedFd::from_raw_fd(file as i32) };
        let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
        (name, fs::read_link(link).unwrap())
    }
}

/// Runs it in another process: of its own files nobody is asked.
fn shell(script: &str, dir: &Path) -> bool {
    let mut sh = Command::new("sh");
    sh.args(["-ec", script]).current_dir(dir);
    sh.stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap()
        .success()
}

#[test]
fn files_of_a_mount_are_watched_by_descriptors() {
    if !can_mount() {
        return;
    }
    for ring in ["N", "Y"] {
        for how in [libc::FAN_MARK_MOUNT, libc::FAN_MARK_FILESYSTEM] {
            let switch = RingSwitch::set(ring);
            let place = Place::new();
            let image = place.image("ext4");
            mount(&image, &place.mount_point(), &[]);
            drop(switch);
            let dir = place.mount_point();
            let mut group = Group::new(libc::FAN_CLASS_NOTIF);
            let mask = libc::FAN_OPEN | libc::FAN_MODIFY | libc::FAN_CLOSE_WRITE;
            group.mark(how, mask, &dir).unwrap();
            assert!(shell("echo text > file", &dir));
            let mut told = 0;
            while told & libc::FAN_CLOSE_WRITE == 0 {
                for event in group.events() {
                    assert_eq!(event.path(), dir.join("file").canonicalize().unwrap());
                    told |= event.mask;
                }
            }
            assert_eq!(told, mask);
            drop(group);
            unmount(&place);
            check(&image);
        }
    }
}

#[test]
fn names_in_a_directory_are_watched_by_handles() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    mount(&image, &place.mount_point(), &[]);
    let dir = place.mount_point().join("dir");
    fs::create_dir(&dir).unwrap();
    let mount = File::open(place.mount_point()).unwrap();
    let mut group = Group::new(libc::FAN_CLASS_NOTIF | libc::FAN_REPORT_DFID_NAME);
    let mask = libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO;
    group.mark(0, mask, &dir).unwrap();
    assert!(shell(
        "echo > made; mv made moved; rm moved; echo > last",
        &dir
    ));
    let mut told = Vec::new();
    while told
        .last()
        .is_none_or(|(_, name): &(u64, String)| name != "last")
    {
        for event in group.events() {
            let (name, place) = event.name_in(&mount);
            assert_eq!(place, dir.canonicalize().unwrap());
            told.push((event.mask, name));
        }
    }
    let expected = [
        (libc::FAN_CREATE, "made"),
        (libc::FAN_MOVED_FROM, "made"),
        (libc::FAN_MOVED_TO, "moved"),
        (libc::FAN_DELETE, "moved"),
        (libc::FAN_CREATE, "last"),
    ];
    let expected = expected.map(|(mask, name)| (mask, name.to_owned()));
    assert_eq!(told, expected);
    drop((group, mount));
    unmount(&place);
    check(&image);
}

#[test]
fn who_opens_a_file_may_be_refused() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    mount(&image, &place.mount_point(), &[]);
    let dir = place.mount_point();
    fs::write(dir.join("good"), "good").unwrap();
    fs::write(dir.join("bad"), "bad").unwrap();
    let mut group = Group::new(libc::FAN_CLASS_CONTENT);
    group
        .mark(libc::FAN_MARK_FILESYSTEM, libc::FAN_OPEN_PERM, &dir)
        .unwrap();
    let read = |name: &str| {
        let (dir, script) = (dir.clone(), format!("cat {name}"));
        std::thread::spawn(move || shell(&script, &dir))
    };
    for (name, response, outcome) in [
        ("good", libc::FAN_ALLOW, true),
        ("bad", libc::FAN_DENY, false),
    ] {
        let reading = read(name);
        for event in group.events() {
            assert_eq!(event.path().file_name().unwrap(), name);
            group.answer(&event, response);
        }
        assert_eq!(reading.join().unwrap(), outcome, "{name}");
    }
    drop(group);
    unmount(&place);
    check(&image);
}

/// A FUSE mount has no number (`f_fsid`) by which events could tell what file system they are of.
#[test]
fn a_whole_mount_is_not_watched_by_handles() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    mount_memory(&place, &[]);
    let dir = place.mount_point();
    let by_handles = Group::new(libc::FAN_CLASS_NOTIF | libc::FAN_REPORT_FID);
    for how in [libc::FAN_MARK_MOUNT, libc::FAN_MARK_FILESYSTEM] {
        let refused = by_handles.mark(how, libc::FAN_MODIFY, &dir).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENODEV));
    }
    unmount(&place);
}
