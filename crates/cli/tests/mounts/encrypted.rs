//! `-o key=`: a mount of an image with encrypted directories.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::process::Command;

use crate::support::*;

const ENOKEY: i32 = 126;

#[test]
fn with_the_key_a_mount_reads_and_writes() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    succeed(
        Command::new("tune2fs")
            .args(["-O", "encrypt"])
            .arg(&image)
            .stdout(std::process::Stdio::null()),
    );
    let key = place.path().join("key");
    fs::write(&key, [9; 64]).unwrap();
    let option = format!("key={}", key.display());
    let at = place.mount_point();
    mount(&image, &at, &["-o", &option]);
    fs::create_dir(at.join("d")).unwrap();
    // What chattr(1) does not set: FS_IOC_SETFLAGS itself.
    let dir = fs::File::open(at.join("d")).unwrap();
    let flags = rustix::fs::ioctl_getflags(&dir).unwrap().bits();
    let encrypted = rustix::fs::IFlags::from_bits_retain(flags | 0x800);
    rustix::fs::ioctl_setflags(&dir, encrypted).unwrap();
    drop(dir);
    let content: Vec<u8> = (0..1_000_000_u32).map(|at| (at * 7) as u8).collect();
    fs::write(at.join("d/file"), &content).unwrap();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(at.join("d/file"))
        .unwrap();
    file.write_all_at(b"over", 4094).unwrap();
    file.sync_all().unwrap();
    drop(file);
    symlink("file", at.join("d/link")).unwrap();
    fs::write(at.join("plain"), b"plain").unwrap();
    let refused = fs::rename(at.join("plain"), at.join("d/plain")).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::CrossesDevices);
    succeed(finefs().arg("umount").arg(&at));
    check(&image);

    mount(&image, &at, &["-o", &option]);
    let mut expected = content;
    expected[4094..4098].copy_from_slice(b"over");
    assert!(fs::read(at.join("d/link")).unwrap() == expected);
    succeed(finefs().arg("umount").arg(&at));

    mount(&image, &at, &["-o", "ro"]);
    let names: Vec<_> = fs::read_dir(at.join("d"))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(names.len(), 2);
    assert!(!names.iter().any(|entry| entry.file_name() == "file"));
    let file = names
        .iter()
        .find(|entry| entry.file_type().unwrap().is_file());
    let refused = fs::read(file.unwrap().path()).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(ENOKEY));
    // They keep the directory open.
    drop(names);
    succeed(finefs().arg("umount").arg(&at));
    let missing = format!("key={}", place.path().join("none").display());
    let said = fail(
        finefs()
            .args(["mount", "-o", &missing])
            .arg(&image)
            .arg(&at),
    );
    assert!(said.contains("No such file"), "{said}");
}
