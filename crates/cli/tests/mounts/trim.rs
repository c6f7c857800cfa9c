//! fstrim(8), the option discard, and the label. These tests need root and FUSE.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::support::*;

/// What the image takes of the file system below it, in MiB.
fn storage(image: &Path) -> u64 {
    fs::metadata(image).unwrap().blocks() / 2048
}

fn fill_and_remove(place: &Place) {
    let path = place.mount_point().join("large");
    fs::write(&path, vec![7; 24 << 20]).unwrap();
    fs::write(place.mount_point().join("kept"), vec![8; 4 << 20]).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    fs::remove_file(&path).unwrap();
}

fn expect_kept(place: &Place) {
    let kept = fs::read(place.mount_point().join("kept")).unwrap();
    assert!(kept == vec![8; 4 << 20]);
}

#[test]
fn fstrim_gives_back_what_was_removed() {
    if !can_mount() {
        return;
    }
    for kind in ["ext2", "ext4"] {
        let place = Place::outside_of_tmp();
        let image = place.image(kind);
        mount(&image, &place.mount_point(), &[]);
        fill_and_remove(&place);
        assert!(storage(&image) >= 24, "{}", storage(&image));
        let output = run(Command::new("fstrim").arg("-v").arg(place.mount_point()));
        assert!(output.status.success(), "{output:?}");
        assert!(storage(&image) < 12, "{}", storage(&image));
        expect_kept(&place);
        let trimmed = || {
            let output = run(Command::new("fstrim").arg("-v").arg(place.mount_point()));
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        assert!(trimmed().contains(": 0 B (0 bytes)"), "once is enough");
        // It has been gone over when something was freed.
        fill_and_remove(&place);
        assert!(!trimmed().contains("(0 bytes)"));
        assert!(storage(&image) < 12, "{}", storage(&image));
        let beyond = run(Command::new("fstrim")
            .args(["-o", "1T"])
            .arg(place.mount_point()));
        assert!(!beyond.status.success());
        unmount(&place);
        check(&image);
    }
    let place = Place::new();
    mount_memory(&place, &[]);
    let output = run(Command::new("fstrim").arg(place.mount_point()));
    assert!(!output.status.success());
}

#[test]
fn with_discard_it_is_given_back_by_the_commit() {
    if !can_mount() {
        return;
    }
    for (option, is_given_back) in [("discard", true), ("nodiscard", false)] {
        let place = Place::outside_of_tmp();
        let image = place.image("ext4");
        mount(&image, &place.mount_point(), &["-o", option]);
        fill_and_remove(&place);
        fs::File::open(place.mount_point())
            .unwrap()
            .sync_all()
            .unwrap();
        expect_kept(&place);
        unmount(&place);
        assert_eq!(
            storage(&image) < 12,
            is_given_back,
            "{option}: {}",
            storage(&image)
        );
        check(&image);
    }
}

#[test]
fn the_label_is_read_and_set() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    mount(&image, &place.mount_point(), &[]);
    let top = fs::File::open(place.mount_point()).unwrap();
    let mut label = [0_u8; 256];
    label[..5].copy_from_slice(b"hello");
    ioctl(&top, 0x4100_9432, &mut label).unwrap();
    let mut found = [0xff_u8; 256];
    ioctl(&top, 0x8100_9431, &mut found).unwrap();
    assert_eq!(found, label);
    label[..17].copy_from_slice(b"much.too.long.for");
    let refused = ioctl(&top, 0x4100_9432, &mut label).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    drop(top);
    unmount(&place);
    let output = run(Command::new("e2label").arg(&image));
    assert_eq!(output.stdout, b"hello\n");
    check(&image);
}

/// FS_IOC_GETFSLABEL or FS_IOC_SETFSLABEL.
fn ioctl(file: &fs::File, command: u32, label: &mut [u8; 256]) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: the command reads or writes 256 bytes at most.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::Ioctl::from(command), label) };
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
