//! Extended attributes that a mount does without.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::support::{Place, can_mount, mount, unmount};

/// How often the log of a mount has a kind of request.
fn count(log: &str, kind: &str) -> usize {
    let of_kind = |line: &&str| line.contains(&format!(": debug: {kind} of node "));
    log.lines().filter(of_kind).count()
}

#[test]
fn a_mount_without_xattrs_is_not_asked_for_them() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let (image, dir) = (place.image("ext4"), place.mount_point());
    let log = place.path().join("log");
    let arguments = ["--log", log.to_str().unwrap(), "-o", "debug,allow_other"];
    let make = |name: &str| {
        let path = dir.join(name);
        fs::write(&path, "content").unwrap();
        chown(&path, Some(7), Some(7)).unwrap();
        path
    };
    mount(&image, &dir, &arguments);
    let kept = make("kept");
    rustix::fs::setxattr(&kept, "user.x", b"value", XattrFlags::empty()).unwrap();
    (0..10).for_each(|number| drop(make(&format!("with{number}"))));
    unmount(&place);
    assert!(count(&fs::read_to_string(&log).unwrap(), "getxattr") > 10);

    fs::remove_file(&log).unwrap();
    mount(&image, &dir, &[&arguments[..], &["-o", "noxattr"]].concat());
    (0..10).for_each(|number| drop(make(&format!("without{number}"))));
    let mut space = [0; 16];
    for path in [&kept, &dir.join("without1")] {
        let found = rustix::fs::getxattr(path, "user.x", &mut space[..]);
        assert_eq!(found.unwrap_err(), Errno::NOTSUP);
        let set = rustix::fs::setxattr(path, "user.y", b"y", XattrFlags::empty());
        assert_eq!(set.unwrap_err(), Errno::NOTSUP);
        let listed = rustix::fs::listxattr(path, &mut [0_u8; 16][..]);
        assert_eq!(listed.unwrap_err(), Errno::NOTSUP);
    }
    // Who may not keep it loses the set-user-id bit of what he writes.
    fs::set_permissions(&kept, Permissions::from_mode(0o4777)).unwrap();
    let write = "setpriv --reuid 8 --regid 8 --clear-groups sh -c 'echo more >> \"$0\"' \"$0\"";
    let status = std::process::Command::new("sh")
        .args(["-c", write])
        .arg(&kept)
        .status();
    assert!(status.unwrap().success());
    assert_eq!(fs::metadata(&kept).unwrap().mode() & 0o7777, 0o777);
    unmount(&place);
    let log = fs::read_to_string(&log).unwrap();
    assert_eq!(count(&log, "mknod"), 10, "{log}");
    assert!(count(&log, "getxattr") <= 1, "{log}");

    mount(&image, &dir, &[]);
    assert_eq!(
        rustix::fs::getxattr(&kept, "user.x", &mut space[..]).unwrap(),
        5
    );
    unmount(&place);
}
