//! What a confined server keeps, and that all goes on which needs more than it has. These tests
//! need root and FUSE; what a confined process cannot do is tested with the crate `finefs-confine`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, Signal, kill_process};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::support::*;
use finefs_sim::LoopDevice;

/// "nobody", whom fusermount3 knows on every system.
const USER: u32 = 65_534;

/// The server of what is mounted there.
fn server(place: &Place) -> Pid {
    let mut peer = None;
    wait_until("its server answers", || {
        let connected = connect(place).and_then(|stream| Ok(socket_peercred(stream)?));
        peer = connected.ok().map(|peer| peer.pid);
        peer.is_some()
    });
    peer.unwrap()
}

/// A line of the status of each thread.
fn of_threads(process: Pid, name: &str) -> Vec<String> {
    let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
    let threads = fs::read_dir(tasks).unwrap();
    let value = |task: PathBuf| {
        let text = fs::read_to_string(task.join("status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let values: Vec<_> = threads
        .filter_map(|task| value(task.unwrap().path()))
        .collect();
    assert!(values.len() > 5, "{values:?}");
    values
}

fn assert_confined(process: Pid) {
    for (name, expected) in [
        ("NoNewPrivs:", "1"),
        ("Seccomp:", "2"),
        ("CapEff:", "0000000000000000"),
        ("CapPrm:", "0000000000000000"),
        ("CapInh:", "0000000000000000"),
        ("CapAmb:", "0000000000000000"),
    ] {
        for value in of_threads(process, name) {
            assert_eq!(value, expected, "{name}");
        }
    }
}

fn is_running(process: Pid) -> bool {
    rustix::process::test_kill_process(process).is_ok()
}

/// What works in a mount and with its commands.
fn exercise(place: &Place) {
    let mount_point = place.mount_point();
    for number in 0..200 {
        fs::write(mount_point.join(format!("file-{number}")), [7; 9000]).unwrap();
    }
    let file = fs::File::create(mount_point.join("synced")).unwrap();
    file.set_len(1 << 20).unwrap();
    file.sync_all().unwrap();
    let refused = run(finefs().args(["remount", "-o", "ro"]).arg(&mount_point));
    let line = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(line.contains("busy"), "{line}");
    let listed = run(finefs().arg("lsof").arg(&mount_point));
    assert!(listed.status.success(), "{listed:?}");
    drop(file);
    for word in ["freeze", "thaw", "sync"] {
        succeed(finefs().arg(word).arg(&mount_point));
    }
    for flag in ["ro", "rw"] {
        succeed(finefs().args(["remount", "-o", flag]).arg(&mount_point));
    }
    let top = run(finefs().args(["top", "-n", "1"]).arg(&mount_point));
    assert!(top.status.success(), "{top:?}");
    fs::remove_file(mount_point.join("file-7")).unwrap();
}

#[test]
fn a_mount_works_as_ever() {
    if !can_mount() {
        return;
    }
    for (ring, options) in [
        ("Y", "sandbox=on,discard"),
        ("Y", "noio_uring,cpu_latency=0"),
        ("N", "sandbox=on,cpu_latency=0,writeback_cache"),
        ("N", "sandbox=on,cpu_latency=poll"),
    ] {
        let switch = RingSwitch::set(ring);
        let place = Place::new();
        let image = place.image("ext4");
        mount(&image, &place.mount_point(), &["-o", options]);
        drop(switch);
        assert_confined(server(&place));
        exercise(&place);
        succeed(Command::new("fstrim").arg(place.mount_point()));
        assert_confined(server(&place));
        unmount(&place);
        check(&image);
    }
}

#[test]
fn a_block_device_and_memory_are_served_confined() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    let device = LoopDevice::over(&image).unwrap();
    mount(
        device.path(),
        &place.mount_point(),
        &["-o", "sandbox=on,discard"],
    );
    assert_confined(server(&place));
    exercise(&place);
    succeed(Command::new("fstrim").arg(place.mount_point()));
    unmount(&place);
    check(device.path());
    mount_memory(&place, &["-o", "sandbox=on"]);
    assert_confined(server(&place));
    unmount(&place);
}

#[test]
fn a_signal_unmounts_it_even_while_it_is_busy() {
    if !can_mount() {
        return;
    }
    for in_front in [false, true] {
        for is_busy in [false, true] {
            let place = Place::new();
            let image = place.image("ext4");
            let path = image.to_str().unwrap();
            let mut child = None;
            let arguments = ["-o", "commit=3600,writeback_cache"];
            match in_front {
                true => {
                    let arguments = [&arguments[..], &[path]].concat();
                    child = Some(mount_in_front(&place, &arguments));
                }
                false => mount(&image, &place.mount_point(), &arguments),
            }
            let process = server(&place);
            let file = fs::File::create(place.mount_point().join("file")).unwrap();
            std::io::Write::write_all(&mut &file, &[1; 5000]).unwrap();
            let held = is_busy.then_some(file);
            kill_process(process, Signal::TERM).unwrap();
            wait_until("unmounted", || !place.is_mounted());
            drop(held);
            if let Some(mut child) = child {
                assert!(child.wait().unwrap().success());
            }
            wait_for_image(&image);
            check(&image);
            mount(&image, &place.mount_point(), &[]);
            assert_eq!(
                fs::read(place.mount_point().join("file")).unwrap(),
                [1; 5000]
            );
            unmount(&place);
        }
    }
}

#[test]
fn a_killed_one_leaves_no_socket() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    mount(&image, &place.mount_point(), &[]);
    let process = server(&place);
    let number = fs::metadata(place.mount_point()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let socket = PathBuf::from(format!("/run/finefs/mount-{major}:{minor}"));
    let inode = || fs::metadata(&socket).map(|socket| socket.ino()).ok();
    let own = inode();
    assert!(own.is_some());
    kill_process(process, Signal::KILL).unwrap();
    wait_until("the server is gone", || place.is_dead());
    wait_until("the socket has gone", || inode() != own);
    fail(finefs().arg("umount").arg(place.mount_point()));
    let fsck = run(Command::new("e2fsck").arg("-fy").arg(&image));
    assert!(fsck.status.code().is_some_and(|code| code <= 1), "{fsck:?}");
}

#[test]
fn it_goes_on_as_the_images_owner() {
    if !can_mount() {
        return;
    }
    for (option, user) in [("setuid=owner", 1234), ("setuid=4321,sandbox=off", 4321)] {
        let place = Place::new();
        let image = place.image("ext4");
        chown(&image, Some(1234), Some(1235)).unwrap();
        mount(
            &image,
            &place.mount_point(),
            &["-o", &format!("{option},allow_other")],
        );
        let process = server(&place);
        for name in ["Uid:", "Gid:"] {
            let expected = match (name, user) {
                ("Gid:", 1234) => 1235,
                _ => user,
            };
            let expected = [expected.to_string().as_str(); 4].join(" ");
            for value in of_threads(process, name) {
                assert_eq!(value, expected, "{name}");
            }
        }
        assert!(
            of_threads(process, "CapEff:")
                .iter()
                .all(|value| value.trim_matches('0').is_empty())
        );
        assert!(of_threads(process, "Groups:").iter().all(String::is_empty));
        exercise(&place);
        kill_process(process, Signal::TERM).unwrap();
        wait_until("unmounted", || !place.is_mounted());
        wait_for_image(&image);
        check(&image);
    }
    let place = Place::new();
    let mut memory = finefs();
    memory.args(["mount", "--memory", "-o", "setuid=owner"]);
    let line = fail(memory.arg(place.mount_point()));
    assert!(line.contains("setuid=owner"), "{line}");
}

/// What comes of `work` where the kernel answers ENOSYS to a system call.
fn without<T: Send>(call: i64, work: impl FnOnce() -> T + Send) -> T {
    let filter = SeccompFilter::new(
        [(call, Vec::new())].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(38),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let filter: BpfProgram = filter.unwrap().try_into().unwrap();
    let work = || {
        // It is this thread's, and that of what it starts.
        seccompiler::apply_filter(&filter).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// `sandbox=on` says what is missing, also where that shows only in the background; `auto` goes on.
#[test]
fn what_the_kernel_lacks_is_told() {
    if !can_mount() || cfg!(not(target_arch = "x86_64")) {
        return;
    }
    const SECCOMP: i64 = 317;
    const LANDLOCK_CREATE_RULESET: i64 = 444;
    for (call, named) in [
        (LANDLOCK_CREATE_RULESET, "no Landlock"),
        (SECCOMP, "seccomp"),
    ] {
        let place = Place::new();
        let mount = |sandbox: &str| {
            let mut command = finefs();
            command.args(["mount", "-v", "--memory", "-o", sandbox]);
            command.arg(place.mount_point());
            command
        };
        let told = without(call, || fail(&mut mount("sandbox=on")));
        assert!(
            told.contains("cannot be confined") && told.contains(named),
            "{told}"
        );
        assert!(!place.is_mounted());
        without(call, || succeed(&mut mount("sandbox=auto")));
        assert!(place.is_mounted());
        let process = server(&place);
        kill_process(process, Signal::TERM).unwrap();
        wait_until("unmounted", || !place.is_mounted());
        wait_until("ended", || !is_running(process));
    }
}

#[test]
fn it_is_not_confined_where_nobody_wants_it() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    mount_memory(&place, &["-o", "sandbox=off"]);
    let process = server(&place);
    assert!(
        of_threads(process, "Seccomp:")
            .iter()
            .all(|value| value == "0")
    );
    kill_process(process, Signal::TERM).unwrap();
    wait_until("unmounted", || !place.is_mounted());
    wait_until("ended", || !is_running(process));
}

/// Lets an ordinary user open /dev/fuse, as distributions do, until it is dropped.
struct DeviceForAll(u32);

impl DeviceForAll {
    fn new() -> DeviceForAll {
        let before = fs::metadata("/dev/fuse").unwrap().mode();
        fs::set_permissions("/dev/fuse", PermissionsExt::from_mode(0o666)).unwrap();
        DeviceForAll(before)
    }
}

impl Drop for DeviceForAll {
    fn drop(&mut self) {
        let _ = fs::set_permissions("/dev/fuse", PermissionsExt::from_mode(self.0));
    }
}

/// The server of an ordinary user, which may not unmount by itself.
fn server_of_user(program: &Path, mount_point: &Path) -> Pid {
    let number = run(by_user(Command::new("stat"))
        .args(["-c", "%Hd:%Ld"])
        .arg(mount_point));
    let number = String::from_utf8(number.stdout).unwrap();
    let socket = format!("/tmp/finefs-{USER}/mount-{}", number.trim());
    let stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    let process = socket_peercred(stream).unwrap().pid;
    let exe = fs::read_link(format!("/proc/{}/exe", process.as_raw_nonzero())).unwrap();
    assert_eq!(exe, program);
    process
}

fn by_user(mut command: Command) -> Command {
    command.uid(USER).gid(USER).env_remove("XDG_RUNTIME_DIR");
    command
}

#[test]
fn an_ordinary_users_server_is_confined_too() {
    if !can_mount() || !Path::new("/usr/bin/fusermount3").exists() {
        return;
    }
    let _device = DeviceForAll::new();
    let place = Place::new();
    let image = place.image("ext4");
    let (program, mount_point) = (place.program(), place.mount_point());
    fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for path in [&image, &mount_point] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    let mut mke2fs = Command::new("mke2fs");
    succeed(
        mke2fs
            .args(["-q", "-F", "-E", &format!("root_owner={USER}:{USER}")])
            .arg(&image),
    );
    let finefs = || by_user(Command::new(&program));
    for end in ["finefs umount", "TERM", "busy", "KILL"] {
        let mut mount = finefs();
        succeed(
            mount
                .args(["mount", "-o", "sandbox=on"])
                .arg(&image)
                .arg(&mount_point),
        );
        let process = server_of_user(&program, &mount_point);
        assert_confined(process);
        for word in ["freeze", "thaw", "sync"] {
            succeed(finefs().arg(word).arg(&mount_point));
        }
        let shell = format!("echo text > {0}/a && cat {0}/a", mount_point.display());
        let said = run(by_user(Command::new("sh")).args(["-c", &shell]));
        assert_eq!(said.stdout, b"text\n", "{said:?}");
        let mut holder = None;
        match end {
            "finefs umount" => succeed(finefs().arg("umount").arg(&mount_point)),
            "KILL" => kill_process(process, Signal::KILL).unwrap(),
            "busy" => {
                let shell = format!("exec sleep 60 < {}/a", mount_point.display());
                let mut sleep = by_user(Command::new("sh"));
                holder = Some(sleep.args(["-c", &shell]).spawn().unwrap());
                let listed = || run(finefs().arg("lsof").arg(&mount_point));
                wait_until("it is in use", || listed().status.success());
                kill_process(process, Signal::TERM).unwrap();
            }
            _ => kill_process(process, Signal::TERM).unwrap(),
        }
        if end == "KILL" {
            wait_until("the server is gone", || {
                let listed = run(by_user(Command::new("ls")).arg(mount_point.join("a")));
                String::from_utf8_lossy(&listed.stderr).contains("not connected")
            });
            let said = run(by_user(Command::new(&program))
                .arg("umount")
                .arg(&mount_point));
            let line = String::from_utf8_lossy(&said.stderr);
            assert!(line.contains("its server ended early"), "{line}");
        }
        wait_until("unmounted", || !place.is_mounted());
        if let Some(mut holder) = holder {
            holder.kill().unwrap();
            holder.wait().unwrap();
        }
        wait_for_image(&image);
        if end != "KILL" {
            check(&image);
        }
    }
    let mut mount = finefs();
    mount.args(["mount", "-o", "setuid=owner"]);
    let line = fail(mount.arg(&image).arg(&mount_point));
    assert!(line.contains("only root"), "{line}");
}
