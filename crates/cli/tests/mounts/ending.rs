//! What holds when an unmount has returned, and what the next mount does about it. These tests need
//! root and FUSE.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::*;
use finefs_sim::LoopDevice;
use rustix::process::{Pid, Signal, kill_process};

const FILES: usize = 1000;

fn fill(directory: &Path) {
    for number in 0..FILES {
        fs::write(directory.join(format!("file-{number}")), [7; 3000]).unwrap();
    }
}

fn kind_of(place: &Place) -> String {
    let mount = place.mount_point();
    let output = run(Command::new("findmnt").args(["-no", "FSTYPE"]).arg(mount));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// An image within a mount: while that one is frozen, nothing can be written to the image.
struct Nested {
    outer: Place,
    inner: Place,
    image: PathBuf,
}

impl Nested {
    fn new() -> Nested {
        let (outer, inner) = (Place::new(), Place::new());
        let made = inner.image("ext4");
        mount_memory(&outer, &["-o", "size=200m"]);
        let image = outer.mount_point().join("image");
        fs::copy(&made, &image).unwrap();
        Nested {
            outer,
            inner,
            image,
        }
    }

    fn hold_up(&self) {
        succeed(finefs().arg("freeze").arg(self.outer.mount_point()));
    }

    fn go_on(&self) {
        succeed(finefs().arg("thaw").arg(self.outer.mount_point()));
    }

    fn mount(&self) {
        mount(
            &self.image,
            &self.inner.mount_point(),
            &["-o", "commit=3600"],
        );
        fill(&self.inner.mount_point());
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        // Who waits for it can end then.
        let _ = finefs().arg("thaw").arg(self.outer.mount_point()).output();
    }
}

/// Ended when it is dropped.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Running {
        Running(command.stderr(Stdio::piped()).spawn().unwrap())
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// What it has said when it has succeeded.
    fn succeeds(mut self) -> String {
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        let status = self.0.wait().unwrap();
        assert!(status.success(), "{status}: {said}");
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_image_and_a_loop_device_over_it_have_one_writer() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    let mount_point = place.mount_point();
    for names_device_first in [false, true] {
        let open = |path: &Path| {
            let mut command = finefs();
            let output = command.arg("touch").arg(path).output().unwrap();
            String::from_utf8(output.stderr).unwrap()
        };
        let file = |path: &Path| PathBuf::from(format!("{}:/file", path.display()));
        let device = match names_device_first {
            true => {
                let device = LoopDevice::over(&image).unwrap();
                mount(device.path(), &mount_point, &[]);
                assert!(open(&file(&image)).contains("already in use"));
                device
            }
            false => {
                mount(&image, &mount_point, &[]);
                let device = LoopDevice::over(&image).unwrap();
                let said = open(&file(device.path()));
                assert!(said.contains("already in use by finefs"), "{said}");
                device
            }
        };
        fs::write(mount_point.join("mine"), "kept").unwrap();
        unmount(&place);
        assert_eq!(open(&file(device.path())), "");
    }
    check(&image);
}

#[test]
fn a_block_device_is_complete_when_umount_returns() {
    if !can_mount() {
        return;
    }
    for options in ["commit=3600", "commit=3600,writeback_cache,threads=1"] {
        let place = Place::new();
        let image = place.image("ext4");
        let device = LoopDevice::over(&image).unwrap();
        let mount_point = place.mount_point();
        mount(device.path(), &mount_point, &["-o", options]);
        assert_eq!(kind_of(&place), "fuseblk.finefs");
        // All that looks for mounts of finefs knows it.
        succeed(finefs().arg("freeze").arg(&mount_point));
        succeed(finefs().arg("thaw").arg(&mount_point));
        fill(&mount_point);
        succeed(Command::new("umount").arg(&mount_point));
        check(device.path());
        // Its server may take a moment longer; the kernel need not wait for it, and the next one
        // does.
        mount(device.path(), &mount_point, &["-o", "ro"]);
        assert_eq!(fs::read_dir(&mount_point).unwrap().count(), FILES + 1);
        succeed(Command::new("umount").arg(&mount_point));
        let mut kernel = Command::new("mount");
        succeed(
            kernel
                .args(["-t", "ext4"])
                .arg(device.path())
                .arg(&mount_point),
        );
        assert_eq!(fs::read_dir(&mount_point).unwrap().count(), FILES + 1);
        let line = fail(finefs().arg("mount").arg(device.path()).arg(place.path()));
        assert!(line.contains("in use"), "{line}");
        succeed(Command::new("umount").arg(&mount_point));
        mount(device.path(), &mount_point, &[]);
        unmount(&place);
        check(device.path());
    }
}

/// Blocks smaller than the device's sectors are nothing to `fuseblk`. The device is kept from
/// others all the same.
#[test]
fn a_block_device_that_the_kernel_does_not_take_is_mounted_like_a_file() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    let mut mke2fs = Command::new("mke2fs");
    succeed(mke2fs.args(["-q", "-F", "-b", "1024"]).arg(&image));
    let device = LoopDevice::over_with(&image, &["--sector-size", "4096"]).unwrap();
    mount(device.path(), &place.mount_point(), &[]);
    assert_eq!(kind_of(&place), "fuse.finefs");
    fill(&place.mount_point());
    let mut exclusive = fs::File::options();
    let exclusive = exclusive.read(true).custom_flags(libc::O_EXCL);
    let refused = exclusive.open(device.path()).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EBUSY));
    unmount(&place);
    check(device.path());
    mount(device.path(), &place.mount_point(), &[]);
    succeed(Command::new("umount").arg(place.mount_point()));
    mount(device.path(), &place.mount_point(), &["-r"]);
    unmount(&place);
}

/// udev locks a block device for a moment when somebody has written to it.
#[test]
fn a_short_look_at_a_block_device_is_waited_for() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    let device = LoopDevice::over(&image).unwrap();
    let look = fs::File::open(device.path()).unwrap();
    rustix::fs::flock(&look, rustix::fs::FlockOperation::LockShared).unwrap();
    let mut mount = finefs();
    let mount = mount
        .arg("mount")
        .arg(device.path())
        .arg(place.mount_point());
    let line = fail(mount);
    assert!(line.contains("in use"), "{line}");
    let mut waiting = Running::start(mount);
    std::thread::sleep(Duration::from_millis(100));
    assert!(waiting.is_running());
    drop(look);
    assert_eq!(waiting.succeeds(), "");
    unmount(&place);
}

#[test]
fn umount_of_a_block_device_waits_for_its_server() {
    if !can_mount() {
        return;
    }
    let nested = Nested::new();
    let device = LoopDevice::over(&nested.image).unwrap();
    let mount_point = nested.inner.mount_point();
    mount(device.path(), &mount_point, &["-o", "commit=3600"]);
    fill(&mount_point);
    nested.hold_up();
    let mut umount = Running::start(Command::new("umount").arg(&mount_point));
    wait_until("unmounted", || !nested.inner.is_mounted());
    std::thread::sleep(Duration::from_millis(300));
    assert!(umount.is_running());
    nested.go_on();
    assert_eq!(umount.succeeds(), "");
    check(device.path());
}

/// sync(2) and syncfs(2) are passed on, and so is a failure at the end.
#[test]
fn a_sync_of_a_block_device_waits_for_the_commit() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    let device = LoopDevice::over(&image).unwrap();
    let mount_point = place.mount_point();
    let arguments = ["-o", "commit=3600", device.path().to_str().unwrap()];
    let mut server = mount_in_front(&place, &arguments);
    fill(&mount_point);
    succeed(Command::new("sync").arg("-f").arg(&mount_point));
    fs::write(mount_point.join("late"), b"late").unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let _ = run(Command::new("umount").arg("-l").arg(&mount_point));
    let mut again = finefs();
    let again = run(again
        .args(["mount", "-o", "rw"])
        .arg(device.path())
        .arg(&mount_point));
    assert!(again.status.success(), "{again:?}");
    assert_eq!(fs::read_dir(&mount_point).unwrap().count(), FILES + 1);
    unmount(&place);
    check(device.path());
}

#[test]
fn a_signal_ends_the_mount_of_a_block_device_too() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    let device = LoopDevice::over(&image).unwrap();
    let mut server = mount_in_front(&place, &[device.path().to_str().unwrap()]);
    fill(&place.mount_point());
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
    assert!(!place.is_mounted());
    check(device.path());
    // Frozen, and then unmounted.
    mount(device.path(), &place.mount_point(), &[]);
    fs::write(place.mount_point().join("more"), b"more").unwrap();
    succeed(finefs().arg("freeze").arg(place.mount_point()));
    succeed(Command::new("umount").arg(place.mount_point()));
    check(device.path());
}

#[test]
fn the_next_mount_waits_for_the_server_before() {
    if !can_mount() {
        return;
    }
    for arguments in [&[][..], &["-r"]] {
        let nested = Nested::new();
        nested.mount();
        nested.hold_up();
        let mount_point = nested.inner.mount_point();
        succeed(Command::new("umount").arg(&mount_point));
        let mut next = finefs();
        next.arg("mount").args(arguments);
        let mut next = Running::start(next.arg(&nested.image).arg(&mount_point));
        // Longer than a server gets that says nothing.
        std::thread::sleep(Duration::from_secs(4));
        assert!(next.is_running());
        assert!(!nested.inner.is_mounted());
        nested.go_on();
        let said = next.succeeds();
        assert!(
            said.contains("waiting for the server of its last mount"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(fs::read_dir(&mount_point).unwrap().count(), FILES + 1);
        unmount(&nested.inner);
        check(&nested.image);
    }
}

#[test]
fn one_mount_after_the_other_is_never_in_use() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    for round in 0..10 {
        let arguments: &[&str] = if round % 3 == 2 { &["-r"] } else { &[] };
        mount(&image, &place.mount_point(), arguments);
        let _ = fs::write(place.mount_point().join(format!("{round}")), [1; 100_000]);
        succeed(Command::new("umount").arg(place.mount_point()));
    }
    mount(&image, &place.mount_point(), &[]);
    // One that is mounted is an error at once, with its place.
    let line = fail(finefs().arg("mount").arg(&image).arg(place.path()));
    let expected = format!("mounted at {}", place.mount_point().display());
    assert!(line.contains(&expected), "{line}");
    unmount(&place);
    check(&image);
}

/// Its server is told of a failure that comes after the kernel has ended the mount.
#[test]
fn finefs_umount_waits_also_after_a_remount() {
    if !can_mount() {
        return;
    }
    let nested = Nested::new();
    nested.mount();
    let mount_point = nested.inner.mount_point();
    succeed(
        Command::new("mount")
            .args(["-i", "-o", "remount,ro"])
            .arg(&mount_point),
    );
    nested.hold_up();
    let mut umount = Running::start(finefs().arg("umount").arg(&mount_point));
    wait_until("unmounted", || !nested.inner.is_mounted());
    std::thread::sleep(Duration::from_millis(300));
    assert!(umount.is_running());
    nested.go_on();
    assert_eq!(umount.succeeds(), "");
    check(&nested.image);
}

/// One who may not unmount is told so.
#[test]
fn only_who_mounted_it_unmounts_it() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    // Others may see what is mounted where.
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.program();
    mount_memory(&place, &[]);
    for what in ["umount", "freeze", "top"] {
        let mut command = Command::new(&program);
        command.arg(what).arg(place.mount_point());
        let line = fail(command.uid(65_534).gid(65_534).stdout(Stdio::null()));
        let expected = match what {
            "umount" => "not permitted",
            _ => "another user's",
        };
        assert!(line.contains(expected), "{what}: {line}");
    }
    assert!(place.is_mounted());
    unmount(&place);
    let mut command = Command::new(&program);
    let line = fail(command.arg("umount").arg(place.mount_point()).uid(65_534));
    assert!(line.contains("not mounted"), "{line}");
}

#[test]
fn nothing_is_left_of_a_mount() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    mount_memory(&place, &[]);
    let number = fs::metadata(place.mount_point()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let socket = PathBuf::from(format!("/run/finefs/mount-{major}:{minor}"));
    let inode = || fs::metadata(&socket).map(|socket| socket.ino()).ok();
    let own = inode();
    assert!(own.is_some());
    unmount(&place);
    // The number may be another mount's already.
    wait_until("the socket has gone", || inode() != own);
}

/// The server goes on for the other place, and is not waited for.
#[test]
fn a_bind_mount_is_unmounted_at_once() {
    if !can_mount() {
        return;
    }
    let (place, bound) = (Place::new(), tempfile::tempdir().unwrap());
    let image = place.image("ext4");
    mount(&image, &place.mount_point(), &[]);
    let mut bind = Command::new("mount");
    bind.arg("--bind").arg(place.mount_point());
    succeed(bind.arg(bound.path()));
    fs::write(bound.path().join("file"), "content").unwrap();
    let mut unmount = Command::new("timeout");
    unmount.arg("10").arg(finefs().get_program());
    succeed(unmount.arg("umount").arg(bound.path()));
    let content = fs::read_to_string(place.mount_point().join("file"));
    assert_eq!(content.unwrap(), "content");
    succeed(finefs().arg("umount").arg(place.mount_point()));
}

/// Root opens nothing that an ordinary user has named.
#[test]
fn root_unmounts_what_shows_a_pipe_as_mounted() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    give_to_user(&place, &image);
    let script = r#"
        set -e
        cd "$PLACE"
        user mkfifo pipe
        user ./finefs mount --memory -o "fsname=$PLACE/pipe" mnt
        timeout 20 ./finefs umount mnt
        # Nor waits for what somebody else has locked.
        mke2fs -q -F -t ext4 -E root_owner=65534:65534 image
        chmod 644 image
        user cp image other
        user sh -c 'exec 9< other; flock 9; echo $$ > locker; exec sleep 60' > /dev/null 2>&1 &
        until test -s locker; do sleep 0.01; done
        user ./finefs mount --memory -o "fsname=$PLACE/other" mnt
        timeout 20 ./finefs umount mnt
        kill $(cat locker)
    "#;
    run_beside_user(&place, script);
}

#[test]
fn an_image_may_have_a_name_of_any_bytes() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.path().join(OsStr::from_bytes(b"n\xffme"));
    fs::rename(place.image("ext4"), &image).unwrap();
    mount(&image, &place.mount_point(), &[]);
    fs::write(place.mount_point().join("file"), "text").unwrap();
    // It is found by its name, and waited for.
    succeed(finefs().arg("sync").arg(&image));
    succeed(finefs().arg("umount").arg(&image));
    assert!(!place.is_mounted());
    check(&image);
}

/// It is served by as many threads as there can be.
#[test]
fn a_server_that_cannot_start_all_threads_serves() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    give_to_user(&place, &image);
    // A user of its own: the limit is for all processes of one.
    let script = r#"
        set -e
        cd "$PLACE"
        id=$(id -u games)
        chown $id . image mnt
        mke2fs -q -F -t ext4 -E root_owner=$id:$id image
        one() { setpriv --reuid=$id --regid=$id --clear-groups "$@"; }
        one prlimit --nproc=40 ./finefs mount -o threads=64 image mnt
        one sh -c "echo text > mnt/file"
        timeout 20 ./finefs umount mnt
        e2fsck -fn image > /dev/null 2>&1
        test "$(debugfs -R "cat file" image 2> /dev/null)" = text
        rm -rf /tmp/finefs-$id
    "#;
    run_beside_user(&place, script);
}
