//! Sealed files (verity). Their trees and descriptors are made by fsverity-utils.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::reconnect::has;
use crate::support::*;

/// An image with a file "sealed" of these data, laid out as the kernel does it.
fn image_with_seal(place: &Place, data: &[u8], arguments: &[&str]) -> PathBuf {
    let image = place.image("ext4");
    succeed(
        Command::new("mke2fs")
            .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-O", "verity"])
            .arg(&image),
    );
    let path = |name: &str| place.path().join(name);
    fs::write(path("data"), data).unwrap();
    succeed(
        Command::new("fsverity")
            .arg("digest")
            .arg(path("data"))
            .args(arguments)
            .arg(format!("--out-merkle-tree={}", path("tree").display()))
            .arg(format!("--out-descriptor={}", path("descriptor").display())),
    );
    let mut whole = data.to_vec();
    whole.resize(data.len().next_multiple_of(65536), 0);
    whole.extend(fs::read(path("tree")).unwrap());
    whole.resize(whole.len().next_multiple_of(4096), 0);
    let descriptor = fs::read(path("descriptor")).unwrap();
    whole.extend(&descriptor);
    whole.resize((whole.len() + 4).next_multiple_of(4096), 0);
    let end = whole.len();
    whole[end - 4..].copy_from_slice(&(descriptor.len() as u32).to_le_bytes());
    fs::write(path("whole"), whole).unwrap();
    let requests = format!(
        "write {} sealed\nsif sealed size {}\nsif sealed flags 0x180000\n",
        path("whole").display(),
        data.len()
    );
    fs::write(path("requests"), requests).unwrap();
    let mut debugfs = Command::new("debugfs");
    let output = run(debugfs.args(["-w", "-f"]).arg(path("requests")).arg(&image));
    assert!(output.status.success(), "{output:?}");
    check(&image);
    image
}

/// What a command of fsverity(1) prints of a file, up to its name.
fn told(arguments: &[&str], path: &Path) -> String {
    let output = run(Command::new("fsverity").args(arguments).arg(path));
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().next().unwrap().to_owned()
}

/// FS_IOC_MEASURE_VERITY with room for so many bytes: the number of the error.
fn refusal(path: &Path, room: u16) -> Option<i32> {
    const MEASURE_VERITY: libc::Ioctl = 0xc004_6686_u32 as libc::Ioctl;
    let file = fs::File::open(path).unwrap();
    let mut digest = vec![0_u8; 4 + usize::from(room)];
    digest[2..4].copy_from_slice(&room.to_ne_bytes());
    // SAFETY: the kernel writes no more than the size that is given behind the head.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), MEASURE_VERITY, digest.as_mut_ptr()) };
    match done {
        0 => None,
        _ => std::io::Error::last_os_error().raw_os_error(),
    }
}

#[test]
fn a_sealed_file_is_measured() {
    if !can_mount() || !has("fsverity") {
        return;
    }
    for arguments in [
        &["--salt=aabbcc"][..],
        &["--hash-alg=sha512", "--block-size=1024"],
    ] {
        let place = Place::new();
        let image = image_with_seal(&place, &[7; 300_000], arguments);
        let top = place.mount_point();
        mount(&image, &top, &[]);
        let sealed = top.join("sealed");
        let wanted = told(
            &[&["digest"], arguments].concat(),
            &place.path().join("data"),
        );
        assert_eq!(told(&["measure"], &sealed), wanted);
        assert_eq!(refusal(&sealed, 64), None);
        assert_eq!(refusal(&sealed, 31), Some(libc::EOVERFLOW));
        fs::write(top.join("other"), "not sealed").unwrap();
        for other in [top.join("other"), top.clone()] {
            assert_eq!(refusal(&other, 64), Some(libc::ENODATA), "{other:?}");
        }
        unmount(&place);
        check(&image);
    }
}

#[test]
fn a_copy_that_keeps_all_tells_of_lost_seals() {
    if !has("fsverity") {
        return;
    }
    let place = Place::new();
    let image = image_with_seal(&place, &[7; 5000], &[]);
    let from = format!("{}:/sealed", image.display());
    for (options, is_told) in [(&["-a"][..], true), (&[], false)] {
        let to = format!("{}:/copy{}", image.display(), options.len());
        let output = run(finefs().arg("cp").args(options).args([&from, &to]));
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        let line = "1 files were sealed (fs-verity); their copies are not";
        assert_eq!(said.contains(line), is_told, "{said}");
    }
    check(&image);
}

#[test]
fn a_file_is_sealed_in_a_mount() {
    if !can_mount() || !has("fsverity") {
        return;
    }
    let place = Place::new();
    let (image, dir) = (place.image("ext4"), place.mount_point());
    let mut make = Command::new("mke2fs");
    succeed(
        make.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-O", "verity"])
            .arg(&image),
    );
    mount(&image, &dir, &[]);
    let data: Vec<u8> = (0..300_000_u32).map(|at| (at / 7) as u8).collect();
    let (file, copy) = (dir.join("file"), place.path().join("copy"));
    fs::write(&file, &data).unwrap();
    fs::write(&copy, &data).unwrap();
    let enable = |file: &Path| {
        run(Command::new("fsverity")
            .arg("enable")
            .arg(file)
            .args(["--salt=aabb"]))
    };
    let output = enable(&file);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    if error.contains("Inappropriate ioctl") {
        // A kernel before 6.10 does not pass it on.
        unmount(&place);
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let refused = enable(&file);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("File exists"), "{error}");
    let refused = fs::OpenOptions::new().write(true).open(&file);
    let written = refused.and_then(|mut file| std::io::Write::write_all(&mut file, b"x"));
    assert_eq!(written.unwrap_err().raw_os_error(), Some(libc::EPERM));
    let expected = told(&["digest", "--salt=aabb"], &copy);
    assert_eq!(told(&["measure"], &file), expected);
    unmount(&place);
    check(&image);
    mount(&image, &dir, &["-r"]);
    assert!(fs::read(&file).unwrap() == data);
    assert_eq!(told(&["measure"], &file), expected);
    unmount(&place);
}
