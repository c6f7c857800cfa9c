//! What is on the image when a write or sync has returned, seen by killing the server. These tests
//! need root and FUSE.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::support::*;

/// Mounts without commits of its own accord, works, kills the server, and gives what the next mount
/// shows of the file.
fn survives(options: &str, work: impl FnOnce(&Path)) -> Option<Vec<u8>> {
    let path = |top: &Path| top.join("file");
    after_crash(
        options,
        |top| work(&path(top)),
        |top| fs::read(path(top)).ok(),
    )
}

/// Mounts without commits of its own accord, works, kills the server, and looks at the next mount.
fn after_crash<T>(options: &str, work: impl FnOnce(&Path), look: impl FnOnce(&Path) -> T) -> T {
    let place = Place::new();
    let (image, mount_point) = (place.image("ext4"), place.mount_point());
    let options = format!("commit=3600,{options}");
    let mut server = mount_in_front(&place, &["-o", &options, image.to_str().unwrap()]);
    work(&mount_point);
    server.kill().unwrap();
    server.wait().unwrap();
    wait_until("the dead mount is gone", || {
        let _ = Command::new("umount").arg("-l").arg(&mount_point).output();
        !place.is_mounted()
    });
    wait_for_image(&image);
    let output = run(finefs().arg("mount").arg(&image).arg(&mount_point));
    assert!(output.status.success(), "{output:?}");
    let found = look(&mount_point);
    unmount(&place);
    check(&image);
    found
}

const DATA: &[u8] = &[5; 70_000];

#[test]
fn synchronous_writes_are_on_the_image_when_they_return() {
    if !can_mount() {
        return;
    }
    for options in ["rw", "noio_uring", "writeback_cache"] {
        for flag in [libc::O_SYNC, libc::O_DSYNC] {
            let content = survives(options, |path| {
                let mut file = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .custom_flags(flag)
                    .open(path)
                    .unwrap();
                file.write_all(DATA).unwrap();
            });
            assert!(content.as_deref() == Some(DATA), "{options}, flag {flag:o}");
        }
    }
    // And without, it is the sync that does it: the file is not there by chance.
    let content = survives("rw", |path| fs::write(path, DATA).unwrap());
    assert_eq!(content, None);
    let content = survives("sync", |path| fs::write(path, DATA).unwrap());
    assert!(content.as_deref() == Some(DATA), "option sync");
    // copy_file_range(2)
    let content = survives("sync", |path| {
        let from = path.with_file_name("from");
        fs::write(&from, DATA).unwrap();
        assert_eq!(fs::copy(&from, path).unwrap(), DATA.len() as u64);
    });
    assert!(content.as_deref() == Some(DATA), "option sync, copied");
    let content = survives("writeback_cache", |path| {
        let mut file = File::create(path).unwrap();
        file.write_all(DATA).unwrap();
        file.sync_data().unwrap();
    });
    assert!(content.as_deref() == Some(DATA), "fdatasync");
}

/// The kernel tells of O_SYNC with what it writes, not with a copy; so with `dirsync`, as with
/// `sync`, it is the kernel that copies.
#[test]
fn a_synchronous_copy_is_on_the_image_with_dirsync() {
    if !can_mount() {
        return;
    }
    let copied = |options: &str, flag| {
        let copy = |top: &Path| {
            let mut files = OpenOptions::new();
            let files = files.read(true).write(true).create(true);
            let from = files.open(top.join("from")).unwrap();
            let to = files.custom_flags(flag).open(top.join("file")).unwrap();
            from.write_all_at(DATA, 1 << 20).unwrap();
            File::open(top).unwrap().sync_all().unwrap();
            let length = (1 << 20) + DATA.len();
            let done = rustix::fs::copy_file_range(&from, None, &to, None, length);
            assert_eq!(done, Ok(length));
            // Zeros that the kernel writes take blocks.
            to.metadata().unwrap().blocks() * 512 >= length as u64
        };
        let mut is_written = false;
        let content = survives(options, |file| is_written = copy(file.parent().unwrap()));
        let is_kept = content.is_some_and(|content| content.ends_with(DATA));
        (is_written, is_kept)
    };
    assert_eq!(copied("dirsync", libc::O_SYNC), (true, true));
    assert_eq!(copied("dirsync", 0), (true, false), "by chance");
    assert_eq!(copied("rw", libc::O_SYNC), (false, false));
}

/// A change of a directory, which has the file "old"; and whether a name is there afterwards.
type NameChange = (fn(&Path), &'static str, bool);

const NAME_CHANGES: [NameChange; 8] = [
    (|top| fs::create_dir(top.join("new")).unwrap(), "new", true),
    (|top| fs::write(top.join("new"), "").unwrap(), "new", true),
    (|top| symlink("old", top.join("new")).unwrap(), "new", true),
    (make_fifo, "new", true),
    (
        |top| fs::hard_link(top.join("old"), top.join("new")).unwrap(),
        "new",
        true,
    ),
    (
        |top| fs::rename(top.join("old"), top.join("new")).unwrap(),
        "new",
        true,
    ),
    (
        |top| fs::remove_file(top.join("old")).unwrap(),
        "old",
        false,
    ),
    (|top| fs::remove_dir(top.join("dir")).unwrap(), "dir", false),
];

fn make_fifo(top: &Path) {
    succeed(Command::new("mkfifo").arg(top.join("new")));
}

/// Whether the change is on the image when it has returned.
fn is_kept(
    (change, name, is_there): NameChange,
    options: &str,
    before: impl FnOnce(&Path),
) -> bool {
    let work = |top: &Path| {
        fs::write(top.join("old"), "").unwrap();
        fs::create_dir(top.join("dir")).unwrap();
        File::open(top).unwrap().sync_all().unwrap();
        before(top);
        change(top);
    };
    let name_is_there = |top: &Path| top.join(name).symlink_metadata().is_ok();
    after_crash(options, work, name_is_there) == is_there
}

#[test]
fn synchronous_changes_of_directories_are_on_the_image_when_they_return() {
    if !can_mount() {
        return;
    }
    for (number, change) in NAME_CHANGES.into_iter().enumerate() {
        assert!(is_kept(change, "dirsync", |_| ()), "change {number}");
        assert!(!is_kept(change, "rw", |_| ()), "change {number} by chance");
    }
    let [make_directory, ..] = NAME_CHANGES;
    assert!(is_kept(make_directory, "sync", |_| ()));
    let remount = |top: &Path, flag: &str| {
        succeed(finefs().args(["remount", "-o", flag]).arg(top));
    };
    assert!(is_kept(make_directory, "rw", |top| remount(top, "sync")));
    assert!(!is_kept(make_directory, "sync", |top| remount(
        top, "async"
    )));
    let both = "sync,dirsync";
    assert!(is_kept(make_directory, both, |top| remount(top, "async")));
    assert!(is_kept(make_directory, "dirsync", |top| remount(
        top, "dirsync"
    )));
    let refused = |top: &Path| {
        let line = fail(finefs().args(["remount", "-o", "dirsync"]).arg(top));
        assert!(line.contains("only a new mount changes dirsync"), "{line}");
    };
    assert!(!is_kept(make_directory, "rw", refused));
}
