//! Who changes a file without privilege takes its set-user-ID and set-group-ID bits away, where it
//! counts: in what the kernel shows and goes by.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::support::*;

/// Some user who is not root.
const SOMEBODY: u32 = 1234;

/// Each changes the file `f` of the working directory in its own way.
const CHANGES: &[&str] = &[
    "printf x 1<>f",
    "printf x >>f",
    "printf x >f",
    "truncate -s 100 f",
    "fallocate -o 0 -l 100000 f",
    "fallocate -n -o 0 -l 200000 f",
    "fallocate -p -o 0 -l 4096 f",
    "fallocate -z -o 0 -l 4096 f",
    "dd if=/dev/zero of=f bs=4096 count=1 conv=notrunc oflag=direct status=none",
    "python3 -c 'import os; f = os.open(\"f\", os.O_RDWR); os.copy_file_range(f, f, 9, 0, 5000)'",
];

/// Runs a script as a user with one group and another.
fn run_as(uid: u32, other_group: u32, script: &str, directory: &Path) {
    let mut command = Command::new("setpriv");
    let id = uid.to_string();
    command.args(["--reuid", &id, "--regid", &id]);
    command.args(["--groups", &other_group.to_string(), "sh", "-c", script]);
    let output = run(command.current_dir(directory));
    assert!(output.status.success(), "{script}: {output:?}");
}

/// The permission bits that the kernel goes by: with other attributes it would ask for what it no
/// longer knows.
fn mode_of(file: &Path) -> u32 {
    let known = rustix::fs::statx(CWD, file, AtFlags::empty(), StatxFlags::MODE);
    u32::from(known.unwrap().stx_mode) & 0o7777
}

#[test]
fn a_change_by_another_user_takes_the_set_id_bits() {
    if !can_mount() {
        return;
    }
    for options in ["allow_other,suid,dev", "allow_other,suid,writeback_cache"] {
        let place = Place::new();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (image, mount_point) = (place.image("ext4"), place.mount_point());
        mount(&image, &mount_point, &["-o", options]);
        let file = mount_point.join("f");
        let mode = || mode_of(&file);
        for change in CHANGES {
            // A file that its group may not execute keeps the bit where the writer is in the group.
            let cases = [(0, 0o6777, 0o777), (0, 0o6767, 0o2767), (1, 0o6767, 0o767)];
            for (group, given, left) in cases {
                fs::write(&file, vec![1; 10_000]).unwrap();
                fs::set_permissions(&file, fs::Permissions::from_mode(given)).unwrap();
                // The kernel has seen the mode, and may believe it for ever.
                assert_eq!(mode(), given);
                run_as(0, group, change, &mount_point);
                assert_eq!(mode(), given, "{change} by root");
                run_as(SOMEBODY, group, change, &mount_point);
                assert_eq!(mode(), left, "{change} by one in group {group}, {options}");
            }
        }
        // A write beyond the largest file changes nothing.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o6777)).unwrap();
        let beyond = "! dd if=/dev/zero of=f bs=4096 seek=4294967296 count=1 conv=notrunc 2>&1";
        run_as(SOMEBODY, 1, beyond, &mount_point);
        assert_eq!(mode(), 0o6777, "{options}");
        // A chown that names nobody is nothing that others can take the bits with.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o6777)).unwrap();
        let chown = "python3 -c 'import os; os.chown(\"f\", -1, -1)' || true";
        run_as(SOMEBODY, 1, chown, &mount_point);
        assert_eq!(mode(), 0o6777);
        // What runs a program goes by the same mode.
        fs::copy("/usr/bin/id", &file).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o6777)).unwrap();
        run_as(SOMEBODY, 0, "test \"$(./f -u)\" = 0", &mount_point);
        run_as(SOMEBODY, 0, "printf x >>f", &mount_point);
        run_as(SOMEBODY, 0, "test \"$(./f -u)\" != 0", &mount_point);
        unmount(&place);
        // It is so on the image, too.
        mount(&image, &mount_point, &["-o", "ro"]);
        assert_eq!(mode(), 0o777);
        unmount(&place);
    }
}

#[test]
fn chown_by_root_keeps_set_gid_of_a_file_that_its_group_may_not_execute() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let (image, mount_point) = (place.image("ext4"), place.mount_point());
    mount(&image, &mount_point, &["-o", "suid,dev"]);
    let file = mount_point.join("f");
    fs::write(&file, "x").unwrap();
    for (before, after) in [(0o3100, 0o3100), (0o6767, 0o2767), (0o6777, 0o777)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(before)).unwrap();
        std::os::unix::fs::chown(&file, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
        assert_eq!(mode_of(&file), after, "{before:o}");
    }
    unmount(&place);
}

/// As in `bsd_groups` of the namespace: the kernel tells of the one group that counts.
#[test]
fn a_program_of_a_member_keeps_set_gid_where_the_directory_gives_its_group() {
    const GROUP: u32 = 50;
    if !can_mount() {
        return;
    }
    for ring in ["N", "Y"] {
        let switch = RingSwitch::set(ring);
        let place = Place::new();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (image, mount_point) = (place.image("ext4"), place.mount_point());
        mount(&image, &mount_point, &["-o", "allow_other,suid,grpid"]);
        drop(switch);
        for (directory, mode) in [("plain", 0o777), ("setgid", 0o2777)] {
            let path = mount_point.join(directory);
            fs::create_dir(&path).unwrap();
            std::os::unix::fs::chown(&path, None, Some(GROUP)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            for (name, group, left) in [("member", GROUP, 0o2755), ("other", 51, 0o755)] {
                let make = format!(
                    "python3 -c 'import os; os.open(\"{name}\", os.O_CREAT, 0o2755)'; \
                     mkdir {name}d; ln -s x {name}l"
                );
                run_as(SOMEBODY, group, &make, &path);
                let made = fs::metadata(path.join(name)).unwrap();
                assert_eq!(
                    (mode_of(&path.join(name)), made.gid()),
                    (left, GROUP),
                    "{name}"
                );
                let link = fs::symlink_metadata(path.join(format!("{name}l")));
                assert_eq!(link.unwrap().gid(), GROUP);
            }
        }
        unmount(&place);
        check(&image);
    }
}
