//! What is on the image when a write or sync has returned, seen by killing the server. These tests
//! need root and FUSE.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::*;

/// Mounts without commits of its own accord, works, kills the server, and gives what the next mount
/// shows of the file.
fn survives(options: &str, work: impl FnOnce(&Path)) -> Option<Vec<u8>> {
    let place = Place::new();
    let (image, mount_point) = (place.image("ext4"), place.mount_point());
    let options = format!("commit=3600,{options}");
    let mut server = mount_in_front(&place, &["-o", &options, image.to_str().unwrap()]);
    work(&mount_point.join("file"));
    server.kill().unwrap();
    server.wait().unwrap();
    wait_until("the dead mount is gone", || {
        let _ = Command::new("umount").arg("-l").arg(&mount_point).output();
        !place.is_mounted()
    });
    wait_for_image(&image);
    let output = run(finefs().arg("mount").arg(&image).arg(&mount_point));
    assert!(output.status.success(), "{output:?}");
    let content = fs::read(mount_point.join("file")).ok();
    unmount(&place);
    check(&image);
    content
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
    let content = survives("writeback_cache", |path| {
        let mut file = File::create(path).unwrap();
        file.write_all(DATA).unwrap();
        file.sync_data().unwrap();
    });
    assert!(content.as_deref() == Some(DATA), "fdatasync");
}
