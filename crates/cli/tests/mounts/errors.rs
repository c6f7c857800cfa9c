//! What users of a mount see when its device fails, is full, or is damaged. These tests need root
//! and FUSE.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::*;
use rustix::fs::{MemfdFlags, SealFlags};

/// A file system of a few MiB that lies under an image, and goes when it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(place: &Place, mib: u32) -> SmallDisk {
        let path = place.path().join("disk");
        fs::create_dir(&path).unwrap();
        let size = format!("size={mib}m");
        succeed(
            Command::new("mount")
                .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
                .arg(&path),
        );
        SmallDisk(path)
    }

    /// Fills it up; without the file there is room again.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = File::create(&path).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

fn write_synced(path: &Path, data: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(data)?;
    file.sync_all()
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

fn make_image(path: &Path, size_mib: u64) {
    File::create(path).unwrap().set_len(size_mib << 20).unwrap();
    // Nothing of its tables is written beforehand: the file stays as sparse as can be.
    succeed(
        Command::new("mke2fs")
            .args(["-q", "-F", "-t", "ext4"])
            .arg(path),
    );
}

/// What is so long goes past the cache, to the device at once.
const LONG: usize = 100_000;

/// A sealed memfd refuses every write from some moment on, as a device that died.
#[test]
fn a_device_that_dies_stops_changes_and_is_told() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mount_point = place.mount_point();
    let made = place.path().join("made");
    make_image(&made, 16);
    let device = rustix::fs::memfd_create("image", MemfdFlags::ALLOW_SEALING).unwrap();
    let device = File::from(device);
    device.write_all_at(&fs::read(&made).unwrap(), 0).unwrap();
    let image = format!("/proc/{}/fd/{}", std::process::id(), device.as_raw_fd());
    let log = place.path().join("log");
    let mut server = mount_in_front(&place, &["--log", log.to_str().unwrap(), &image]);

    write_synced(&mount_point.join("old"), b"old").unwrap();
    let mut early = File::create(mount_point.join("early")).unwrap();
    early.write_all(&vec![1; LONG]).unwrap();
    early.sync_all().unwrap();
    rustix::fs::fcntl_add_seals(&device, SealFlags::WRITE).unwrap();

    // (Memory that was written: the kernel sends what lies in pages that are there as one request.)
    let long = vec![2; LONG];
    assert_eq!(errno(early.write_all_at(&long, 0)), Some(libc::EIO));
    // The data that was not written is told once; nothing else is lost yet.
    assert_eq!(errno(early.sync_all()), Some(libc::EIO));
    early.sync_all().unwrap();
    // A commit that fails is told to everybody for good. Nothing can be changed then, and all can
    // be read.
    let new = File::create(mount_point.join("new")).unwrap();
    for _ in 0..3 {
        assert_eq!(errno(new.sync_all()), Some(libc::EIO));
        assert_eq!(errno(early.sync_all()), Some(libc::EIO));
    }
    let newer = File::create(mount_point.join("newer"));
    assert_eq!(errno(newer), Some(libc::EROFS));
    assert_eq!(
        errno(fs::remove_file(mount_point.join("old"))),
        Some(libc::EROFS)
    );
    assert_eq!(fs::read(mount_point.join("old")).unwrap(), b"old");
    drop((early, new));

    let line = unmount_with_loss(&mount_point);
    assert!(line.contains("not everything is on the image"), "{line}");
    assert_eq!(server.wait().unwrap().code(), Some(1));
    let told = fs::read_to_string(&log).unwrap();
    let stops = told
        .lines()
        .filter(|line| line.contains("nothing can be changed any more"));
    assert_eq!(stops.count(), 1, "{told}");

    // What was synced before is there.
    let copy = place.path().join("copy");
    let mut bytes = vec![0; 16 << 20];
    device.read_exact_at(&mut bytes, 0).unwrap();
    fs::write(&copy, bytes).unwrap();
    mount_again("rw", &copy, &mount_point);
    assert_eq!(fs::read(mount_point.join("old")).unwrap(), b"old");
    assert_eq!(fs::read(mount_point.join("early")).unwrap(), [1; LONG]);
    unmount(&place);
    check(&copy);
}

/// Writes until the disk under the image is full; gives the files that were synced.
fn write_until_full(mount_point: &Path) -> Vec<PathBuf> {
    let mut synced = Vec::new();
    for number in 0..5000 {
        let path = mount_point.join(format!("file-{number}"));
        match write_synced(&path, &[number as u8; 10_000]) {
            Ok(()) => synced.push(path),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                return synced;
            }
        }
    }
    panic!("the disk is never full");
}

fn check_files(files: &[PathBuf]) {
    for (number, path) in files.iter().enumerate() {
        assert!(
            fs::read(path).unwrap() == [number as u8; 10_000],
            "{path:?}"
        );
    }
}

#[test]
fn a_full_disk_under_a_sparse_image_stops_only_new_changes() {
    if !can_mount() {
        return;
    }
    for options in ["commit=1", "commit=1,noio_uring"] {
        let place = Place::new();
        let mount_point = place.mount_point();
        let disk = SmallDisk::mount(&place, 12);
        let image = disk.0.join("image");
        make_image(&image, 256);
        mount(&image, &mount_point, &["-o", options]);
        write_synced(&mount_point.join("old"), b"old").unwrap();
        let pending = mount_point.join("pending");
        fs::write(&pending, b"written, and not synced yet").unwrap();

        let filler = disk.fill();
        let synced = write_until_full(&mount_point);
        assert_eq!(fs::read(mount_point.join("old")).unwrap(), b"old");
        check_files(&synced);
        for _ in 0..3 {
            let refused = write_synced(&mount_point.join("refused"), &[1; 100_000]);
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::StorageFull);
        }

        // With room again everything goes on, and nothing is lost.
        fs::remove_file(filler).unwrap();
        write_synced(&mount_point.join("new"), b"new").unwrap();
        unmount(&place);
        check(&image);
        mount(&image, &mount_point, &["-o", "ro"]);
        check_files(&synced);
        assert_eq!(fs::read(mount_point.join("new")).unwrap(), b"new");
        assert_eq!(fs::read(&pending).unwrap(), b"written, and not synced yet");
        unmount(&place);
    }
}

/// With room again the first change of any kind succeeds, whenever the next commit is due.
#[test]
fn the_first_change_after_a_full_disk_succeeds() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mount_point = place.mount_point();
    let disk = SmallDisk::mount(&place, 12);
    let (image, log) = (disk.0.join("image"), place.path().join("log"));
    make_image(&image, 256);
    let arguments = ["-o", "commit=3600", "--log", log.to_str().unwrap()];
    mount(&image, &mount_point, &arguments);
    let file = mount_point.join("file");
    write_synced(&file, b"some").unwrap();
    let change: [(&str, &dyn Fn() -> io::Result<()>); 4] = [
        ("chmod", &|| {
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600))
        }),
        ("truncate", &|| {
            OpenOptions::new().write(true).open(&file)?.set_len(9)
        }),
        ("mkdir", &|| fs::create_dir(mount_point.join("directory"))),
        ("unlink", &|| fs::remove_file(&file)),
    ];
    for (round, (name, change)) in change.into_iter().enumerate() {
        let filler = disk.fill();
        for number in 0.. {
            let path = mount_point.join(format!("{round}-{number}"));
            if write_synced(&path, &[1; 10_000]).is_err() {
                break;
            }
        }
        assert_eq!(errno(change()), Some(libc::ENOSPC), "{name}");
        fs::remove_file(filler).unwrap();
        change().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    unmount(&place);
    check(&image);
    let told = fs::read_to_string(&log).unwrap();
    let line = format!("no space on the file system of {}", image.display());
    assert!(told.contains(&line), "{told}");
}

#[test]
fn an_unmount_onto_a_full_disk_fails_and_harms_nothing_synced() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mount_point = place.mount_point();
    let disk = SmallDisk::mount(&place, 12);
    let image = disk.0.join("image");
    make_image(&image, 256);
    mount(&image, &mount_point, &["-o", "commit=3600"]);
    write_synced(&mount_point.join("old"), b"old").unwrap();
    // New directories lie in groups of their own, whose tables have no storage yet.
    for number in 0..40 {
        fs::create_dir(mount_point.join(format!("directory-{number}"))).unwrap();
    }
    let filler = disk.fill();
    let line = unmount_with_loss(&mount_point);
    assert!(line.contains("no space left"), "{line}");
    fs::remove_file(filler).unwrap();
    mount_again("rw", &image, &mount_point);
    assert_eq!(fs::read(mount_point.join("old")).unwrap(), b"old");
    unmount(&place);
    check(&image);
}

/// A file whose inode says nonsense.
fn damage(image: &Path, mount_point: &Path) {
    succeed(finefs().arg("mount").arg(image).arg(mount_point));
    fs::write(mount_point.join("bad"), b"bad").unwrap();
    fs::write(mount_point.join("good"), b"good").unwrap();
    succeed(finefs().arg("umount").arg(mount_point));
    let output = run(Command::new("debugfs")
        .args(["-w", "-R", "set_inode_field /bad mode 0130644"])
        .arg(image));
    assert!(output.status.success(), "{output:?}");
}

fn superblock(image: &Path) -> String {
    let output = run(Command::new("dumpe2fs").arg("-h").arg(image));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn damage_is_handled_as_the_option_and_the_image_say() {
    if !can_mount() {
        return;
    }
    // What tune2fs -e says, the option, and whether changes go on.
    for (in_image, option, goes_on) in [
        ("continue", "rw", true),
        ("remount-ro", "rw", false),
        ("remount-ro", "errors=continue", true),
        ("continue", "errors=remount-ro", false),
    ] {
        let place = Place::new();
        let (image, mount_point) = (place.image("ext4"), place.mount_point());
        damage(&image, &mount_point);
        let set = run(Command::new("tune2fs").args(["-e", in_image]).arg(&image));
        assert!(set.status.success(), "{set:?}");
        mount(&image, &mount_point, &["-o", option]);
        fs::write(mount_point.join("before"), b"before").unwrap();
        let bad = fs::metadata(mount_point.join("bad"));
        assert_eq!(errno(bad), Some(libc::EUCLEAN));
        assert_eq!(fs::read(mount_point.join("good")).unwrap(), b"good");
        let after = File::create(mount_point.join("after")).map(drop);
        match goes_on {
            true => after.unwrap(),
            false => assert_eq!(errno(after), Some(libc::EROFS)),
        }
        let synced = OpenOptions::new()
            .read(true)
            .open(mount_point.join("before"));
        synced.unwrap().sync_all().unwrap();
        unmount(&place);
        let text = superblock(&image);
        assert!(text.contains("clean with errors"), "{text}");
        assert!(text.contains("finefs"), "{text}");
    }
}

#[test]
fn damage_ends_the_server_where_it_shall() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (image, mount_point) = (place.image("ext4"), place.mount_point());
    damage(&image, &mount_point);
    mount(&image, &mount_point, &["-o", "errors=panic"]);
    write_synced(&mount_point.join("synced"), b"synced").unwrap();
    assert!(fs::metadata(mount_point.join("bad")).is_err());
    wait_until("the server is gone", || place.is_dead());
    let text = superblock(&image);
    assert!(text.contains("with errors"), "{text}");
    mount_again("errors=continue", &image, &mount_point);
    assert_eq!(fs::read(mount_point.join("synced")).unwrap(), b"synced");
    unmount(&place);
}
