//! lsattr(1) and chattr(1) in a mount. These tests need root and FUSE.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{IFlags, Timespec, Timestamps};

use crate::mapping::Mapping;
use crate::support::*;
use finefs_sim::LoopDevice;

/// EPERM
fn is_refused<T: std::fmt::Debug>(result: std::io::Result<T>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert_eq!(error.raw_os_error(), Some(libc::EPERM));
}

fn chattr(change: &str, path: &Path) -> bool {
    run(Command::new("chattr").arg(change).arg(path))
        .status
        .success()
}

fn flags(path: &Path) -> IFlags {
    rustix::fs::ioctl_getflags(File::open(path).unwrap()).unwrap()
}

fn everywhere(test: impl Fn(&Path)) {
    if !can_mount() {
        return;
    }
    for kind in ["ext2", "ext4"] {
        let place = Place::new();
        let image = place.image(kind);
        mount(&image, &place.mount_point(), &["-o", "allow_other"]);
        test(&place.mount_point());
        unmount(&place);
        check(&image);
    }
    let place = Place::new();
    mount_memory(&place, &["-o", "allow_other"]);
    test(&place.mount_point());
    unmount(&place);
}

/// What was stored before the flag was set is kept, and no more; the end of the mount tells of it.
#[test]
fn stores_into_pages_do_not_change_an_immutable_file() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    mount(&image, &place.mount_point(), &["-o", "allow_other"]);
    let path = place.mount_point().join("file");
    for (flag, pages) in [("+i", 1), ("+a", 1), ("+i", 3)] {
        fs::write(&path, vec![b'x'; pages * 4096 - 100]).unwrap();
        let open = File::options().read(true).write(true).open(&path).unwrap();
        let mapping = Mapping::of(&open, 4096).unwrap();
        mapping.store(0, b"before").unwrap();
        assert!(chattr(flag, &path));
        mapping.store(0, b"stored since").unwrap();
        is_refused(mapping.sync());
        let direct = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(&path);
        let mut found = [0; 4096];
        assert!(direct.unwrap().read_at(&mut found, 0).unwrap() > 12);
        assert_eq!(&found[..12], b"beforexxxxxx", "{flag}");
        assert!(chattr(&flag.replace('+', "-"), &path));
    }
    let said = unmount_with_loss(&place.mount_point());
    assert!(said.contains("delayed writes failed"), "{said}");
    check(&image);
}

#[test]
fn nothing_changes_an_immutable_file() {
    everywhere(|top| {
        let path = top.join("file");
        fs::write(&path, "text").unwrap();
        let open = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(chattr("+i", &path));
        assert!(flags(&path).contains(IFlags::IMMUTABLE));
        is_refused(open.write_at(b"more", 0));
        is_refused(open.write_at(b"more", 100));
        is_refused(open.set_len(1));
        is_refused(fs::write(&path, "other"));
        is_refused(fs::set_permissions(&path, PermissionsExt::from_mode(0o600)));
        is_refused(chown(&path, Some(1), None));
        is_refused(fs::remove_file(&path));
        is_refused(fs::rename(&path, top.join("moved")));
        is_refused(fs::hard_link(&path, top.join("linked")));
        fs::write(top.join("over"), "").unwrap();
        is_refused(fs::rename(top.join("over"), &path));
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        is_refused(rustix::fs::futimens(&open, &times).map_err(Into::into));
        let given = rustix::fs::setxattr(&path, "user.a", b"", rustix::fs::XattrFlags::empty());
        is_refused(given.map_err(Into::into));
        let allocate = rustix::fs::fallocate(&open, rustix::fs::FallocateFlags::empty(), 0, 9000);
        is_refused(allocate.map_err(Into::into));
        assert_eq!(fs::read(&path).unwrap(), b"text");
        assert!(chattr("-i", &path));
        open.write_at(b"more", 0).unwrap();
        fs::remove_file(&path).unwrap();
    });
}

#[test]
fn data_is_only_added_to_an_append_only_file() {
    everywhere(|top| {
        let path = top.join("log");
        fs::write(&path, "one").unwrap();
        assert!(chattr("+a", &path));
        let mut end = OpenOptions::new().append(true).open(&path).unwrap();
        end.write_all(b"two").unwrap();
        let within = OpenOptions::new().write(true).open(&path);
        is_refused(within.and_then(|file| file.write_at(b"x", 1)));
        is_refused(end.set_len(0));
        is_refused(end.set_len(100));
        is_refused(fs::remove_file(&path));
        is_refused(fs::rename(&path, top.join("moved")));
        let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        is_refused(rustix::fs::fallocate(&end, punch, 0, 1).map_err(Into::into));
        assert_eq!(fs::read(&path).unwrap(), b"onetwo");
        assert!(chattr("-a", &path));
    });
}

#[test]
fn flags_of_directories_hold_for_their_names() {
    everywhere(|top| {
        let dir = top.join("dir");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("old"), "").unwrap();
        assert!(chattr("+i", &dir));
        is_refused(fs::write(dir.join("new"), ""));
        is_refused(fs::create_dir(dir.join("new")));
        is_refused(symlink("old", dir.join("new")));
        is_refused(fs::remove_file(dir.join("old")));
        is_refused(fs::rename(dir.join("old"), top.join("old")));
        fs::write(dir.join("old"), "but its files change").unwrap();
        assert!(chattr("=a", &dir));
        fs::write(dir.join("new"), "").unwrap();
        is_refused(fs::remove_file(dir.join("old")));
        is_refused(fs::rename(dir.join("old"), dir.join("other")));
        assert!(chattr("=", &dir));
        fs::remove_file(dir.join("old")).unwrap();
    });
}

#[test]
fn what_is_made_in_a_directory_inherits_its_flags() {
    everywhere(|top| {
        let dir = top.join("dir");
        fs::create_dir(&dir).unwrap();
        assert!(chattr("+AdST", &dir));
        fs::write(dir.join("file"), "").unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        let inherited = IFlags::NOATIME | IFlags::NODUMP | IFlags::SYNC;
        let of = |name: &str| flags(&dir.join(name)) & !IFlags::from_bits_retain(0x8_0000);
        assert_eq!(of("file"), inherited);
        assert_eq!(of("sub"), inherited);
    });
}

#[test]
fn flags_are_set_by_the_owner_and_some_by_root_alone() {
    everywhere(|top| {
        fs::set_permissions(top, PermissionsExt::from_mode(0o755)).unwrap();
        let (own, other) = (top.join("own"), top.join("other"));
        for path in [&own, &other] {
            fs::write(path, "").unwrap();
        }
        chown(&own, Some(1234), Some(1234)).unwrap();
        let as_user = |change: &str, path: &Path| {
            let mut command = Command::new("chattr");
            command.uid(1234).gid(1234).arg(change).arg(path);
            run(&mut command).status.success()
        };
        assert!(!as_user("+i", &own));
        assert!(!as_user("+d", &other));
        assert!(!flags(&other).contains(IFlags::NODUMP));
        assert!(as_user("+d", &own));
        assert!(flags(&own).contains(IFlags::NODUMP));
        assert!(!flags(&own).contains(IFlags::IMMUTABLE));
    });
}

#[test]
fn flags_are_on_the_image() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    mount(&image, &place.mount_point(), &[]);
    let path = place.mount_point().join("file");
    fs::write(&path, "text").unwrap();
    assert!(chattr("+iAd", &path));
    let shown = |path: &Path| {
        let output = run(Command::new("lsattr").args(["-l", "-v"]).arg(path));
        let line = String::from_utf8(output.stdout).unwrap();
        line.replace(path.to_str().unwrap(), "")
    };
    let before = shown(&path);
    unmount(&place);
    check(&image);
    let device = LoopDevice::over(&image).unwrap();
    succeed(
        Command::new("mount")
            .arg(device.path())
            .arg(place.mount_point()),
    );
    assert_eq!(shown(&path), before);
    assert!(
        before.contains("Immutable, No_Dump, No_Atime, Extents"),
        "{before}"
    );
    succeed(Command::new("umount").arg(place.mount_point()));
}

#[test]
fn what_is_written_to_a_synchronous_file_is_on_the_image() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    let arguments = ["-o", "commit=3600", image.to_str().unwrap()];
    let mut server = mount_in_front(&place, &arguments);
    let top = place.mount_point();
    for (dir, change) in [("synchronous", "+S"), ("directory", "+D"), ("usual", "+A")] {
        fs::create_dir(top.join(dir)).unwrap();
        assert!(chattr(change, &top.join(dir)));
    }
    File::open(&top).unwrap().sync_all().unwrap();
    for dir in ["directory", "synchronous"] {
        fs::write(top.join(dir).join("file"), "text").unwrap();
    }
    fs::write(top.join("usual/later"), "text").unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    succeed(Command::new("umount").arg("-l").arg(&top));
    wait_for_image(&image);
    let mounted = run(finefs().arg("mount").arg(&image).arg(&top));
    assert!(mounted.status.success(), "{mounted:?}");
    assert_eq!(fs::read(top.join("synchronous/file")).unwrap(), b"text");
    assert!(top.join("directory/file").exists());
    assert!(!top.join("usual/later").exists());
    unmount(&place);
    check(&image);
}
