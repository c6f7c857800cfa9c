//! A mount as the upper layer of overlayfs, which needs whiteouts. These tests need root and FUSE.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::support::*;

#[test]
fn a_rename_leaves_a_whiteout_where_asked() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    mount(&image, &place.mount_point(), &[]);
    let top = place.mount_point();
    let rename =
        |from: &str, to: &str, flags| renameat_with(CWD, top.join(from), CWD, top.join(to), flags);
    let is_whiteout = |name: &str| {
        let found = fs::symlink_metadata(top.join(name)).unwrap();
        found.file_type().is_char_device() && found.rdev() == 0 && found.mode() & 0o7777 == 0
    };
    fs::write(top.join("file"), "text").unwrap();
    fs::create_dir_all(top.join("dir/sub")).unwrap();
    rename("file", "moved", RenameFlags::WHITEOUT).unwrap();
    assert!(is_whiteout("file"));
    assert_eq!(fs::read(top.join("moved")).unwrap(), b"text");
    rename("dir/sub", "sub", RenameFlags::WHITEOUT).unwrap();
    assert!(is_whiteout("dir/sub"));
    assert_eq!(fs::metadata(top.join("dir")).unwrap().nlink(), 2);
    let both = RenameFlags::WHITEOUT | RenameFlags::NOREPLACE;
    assert_eq!(rename("moved", "sub", both), Err(rustix::io::Errno::EXIST));
    rename("moved", "file", RenameFlags::WHITEOUT).unwrap();
    assert!(is_whiteout("moved"));
    unmount(&place);
    check(&image);
}

#[test]
fn overlayfs_takes_it_as_its_upper_layer() {
    upper_layer("");
}

/// Its attributes are then those that users may set, `user.overlay.*`.
#[test]
fn overlayfs_with_attributes_of_users_takes_it_as_its_upper_layer() {
    upper_layer(",userxattr");
}

/// What overlayfs does with names of a lower layer.
fn upper_layer(more_options: &str) {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    mount(&image, &place.mount_point(), &[]);
    let (lower, merged) = (place.path().join("lower"), place.path().join("merged"));
    let (upper, work) = (place.mount_point().join("u"), place.mount_point().join("w"));
    for dir in [&lower.join("dir/deep"), &merged, &upper, &work] {
        fs::create_dir_all(dir).unwrap();
    }
    for (name, text) in [
        ("file", "a"),
        ("gone", "b"),
        ("dir/one", "c"),
        ("dir/deep/two", "d"),
    ] {
        fs::write(lower.join(name), text).unwrap();
    }
    let layered = || Overlay::mount(&lower, &upper, &work, &merged, more_options);
    let overlay = layered();
    fs::write(merged.join("file"), "changed").unwrap();
    fs::remove_file(merged.join("gone")).unwrap();
    fs::remove_file(merged.join("dir/one")).unwrap();
    fs::rename(merged.join("dir/deep/two"), merged.join("dir/two")).unwrap();
    fs::remove_dir_all(merged.join("dir/deep")).unwrap();
    fs::create_dir(merged.join("dir/deep")).unwrap();
    drop(overlay);
    unmount(&place);
    check(&image);
    mount(&image, &place.mount_point(), &[]);
    let overlay = layered();
    assert_eq!(fs::read(merged.join("file")).unwrap(), b"changed");
    assert_eq!(fs::read(merged.join("dir/two")).unwrap(), b"d");
    assert!(!merged.join("gone").exists() && !merged.join("dir/one").exists());
    assert_eq!(fs::read_dir(merged.join("dir/deep")).unwrap().count(), 0);
    drop(overlay);
    unmount(&place);
}

/// An overlay that is mounted.
struct Overlay<'a>(&'a Path);

impl Overlay<'_> {
    fn mount<'a>(
        lower: &Path,
        upper: &Path,
        work: &Path,
        merged: &'a Path,
        more_options: &str,
    ) -> Overlay<'a> {
        let options = format!(
            "lowerdir={},upperdir={},workdir={}{more_options}",
            lower.display(),
            upper.display(),
            work.display()
        );
        succeed(
            Command::new("mount")
                .args(["-t", "overlay", "-o", &options, "overlay"])
                .arg(merged),
        );
        Overlay(merged)
    }
}

impl Drop for Overlay<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).output();
    }
}
