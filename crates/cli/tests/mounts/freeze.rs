//! `finefs freeze` and `finefs thaw`. These tests need root and FUSE.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::support::*;
use rustix::process::{Pid, Signal, kill_process};

/// As many as wait at once: more than there are server threads.
const WRITERS: usize = 10;

/// In a directory of their own: who makes a file in a directory holds the kernel's lock of it while
/// it waits, so that nobody can list the directory.
fn waiting_file(place: &Place, round: usize, number: usize) -> PathBuf {
    place
        .mount_point()
        .join(format!("waiting/{round}-{number}"))
}

/// Threads that write to a file each, all of which wait for the end of the freeze.
fn writers(place: &Place, round: usize) -> Vec<std::thread::JoinHandle<()>> {
    let (begins, has_begun) = channel();
    let start = |number| {
        let (path, begins) = (waiting_file(place, round, number), begins.clone());
        std::thread::spawn(move || {
            begins.send(rustix::thread::gettid()).unwrap();
            fs::write(path, vec![7; 100_000]).unwrap();
        })
    };
    let writers = (0..WRITERS).map(start).collect();
    let threads: Vec<Pid> = has_begun.iter().take(WRITERS).collect();
    wait_until("all wait for an answer", || threads.iter().all(is_creating));
    writers
}

/// True while a thread of this process waits in the system call that makes a file.
fn is_creating(thread: &Pid) -> bool {
    let thread = format!("/proc/self/task/{}", thread.as_raw_nonzero());
    let read = |name: &str| fs::read_to_string(format!("{thread}/{name}")).unwrap_or_default();
    let call = read("syscall");
    call.split(' ').next() == Some(&libc::SYS_openat.to_string())
}

#[test]
fn a_frozen_image_can_be_copied_and_changes_wait() {
    if !can_mount() {
        return;
    }
    for (kind, options) in [("ext4", "rw"), ("ext4", "noio_uring"), ("ext2", "rw")] {
        let place = Place::new();
        let (image, mount_point) = (place.image(kind), place.mount_point());
        mount(&image, &mount_point, &["-o", options]);
        fs::create_dir(mount_point.join("waiting")).unwrap();
        for round in 0..2 {
            fs::write(mount_point.join(format!("file-{round}")), vec![3; 300_000]).unwrap();
            let marked = mount_point.join(format!("marked-{round}"));
            fs::write(&marked, vec![4; 100_000]).unwrap();
            succeed(finefs().arg("freeze").arg(&mount_point));
            let line = fail(finefs().arg("freeze").arg(&mount_point));
            assert!(line.contains("frozen already"), "{line}");

            let waiting = writers(&place, round);
            // A change of attributes waits too, and no sync of another file waits for it.
            let mut chattr = Command::new("chattr");
            chattr.arg("+i").arg(&marked);
            let mut chattr = chattr.spawn().unwrap();
            // Nothing was written meanwhile, and reading goes on.
            let copy = place.path().join("copy");
            fs::copy(&image, &copy).unwrap();
            check(&copy);
            let info = run(Command::new("dumpe2fs").arg("-h").arg(&copy));
            let info = String::from_utf8_lossy(&info.stdout).into_owned();
            assert!(info.contains("Filesystem state:         clean\n"), "{info}");
            assert!(!info.contains("needs_recovery"), "{info}");
            for entry in fs::read_dir(&mount_point).unwrap() {
                let path = entry.unwrap().path();
                assert!(path.is_dir() || fs::read(&path).unwrap().len() >= 100_000);
            }
            assert!(waiting.iter().all(|writer| !writer.is_finished()));
            let sync = fs::File::open(mount_point.join(format!("file-{round}"))).unwrap();
            sync.sync_all().unwrap();
            assert!(chattr.try_wait().unwrap().is_none());

            succeed(finefs().arg("thaw").arg(&mount_point));
            waiting
                .into_iter()
                .for_each(|writer| writer.join().unwrap());
            assert!(chattr.wait().unwrap().success());
            let line = fail(finefs().arg("thaw").arg(&mount_point));
            assert!(line.contains("not frozen"), "{line}");
            fs::remove_file(copy).unwrap();
        }
        unmount(&place);
        check(&image);
        mount(&image, &mount_point, &[]);
        for round in 0..2 {
            for number in 0..WRITERS {
                let path = waiting_file(&place, round, number);
                assert!(fs::read(path).unwrap() == vec![7; 100_000]);
            }
        }
        unmount(&place);
    }
}

/// What programs have written, and the kernel still has.
#[test]
fn a_frozen_image_has_what_was_written_before() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (image, mount_point) = (place.image("ext4"), place.mount_point());
    mount(&image, &mount_point, &["-o", "writeback_cache"]);
    let mut open = fs::File::create(mount_point.join("open")).unwrap();
    open.write_all(&[5; 100_000]).unwrap();
    succeed(finefs().arg("freeze").arg(&mount_point));
    let copy = place.path().join("copy");
    fs::copy(&image, &copy).unwrap();
    succeed(finefs().arg("thaw").arg(&mount_point));
    drop(open);
    unmount(&place);
    let read = run(finefs().arg("cat").arg(format!("{}:/open", copy.display())));
    assert!(read.stdout == [5; 100_000]);
    check(&copy);
}

#[test]
fn a_frozen_mount_ends_like_any_other() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (image, mount_point) = (place.image("ext4"), place.mount_point());
    mount(&image, &mount_point, &[]);
    fs::write(mount_point.join("file"), b"file").unwrap();
    fs::create_dir(mount_point.join("waiting")).unwrap();
    succeed(finefs().arg("freeze").arg(&mount_point));
    unmount(&place);
    check(&image);

    // By a signal, while somebody waits.
    let mut server = mount_in_front(&place, &[image.to_str().unwrap()]);
    succeed(finefs().arg("freeze").arg(&mount_point));
    let waiting = writers(&place, 0);
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    waiting
        .into_iter()
        .for_each(|writer| writer.join().unwrap());
    assert!(server.wait().unwrap().success());
    check(&image);
}

/// The kernel has no way to tell a FUSE server to freeze.
#[test]
fn the_kernels_own_freeze_is_refused() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (image, mount_point) = (place.image("ext4"), place.mount_point());
    mount(&image, &mount_point, &[]);
    let output = run(Command::new("fsfreeze").arg("-f").arg(&mount_point));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("not supported"), "{message}");
    fs::write(mount_point.join("file"), b"file").unwrap();
    unmount(&place);
}

/// Afterwards nobody could: its server is not found without the mount.
#[test]
fn a_lazy_unmount_thaws() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (image, mount_point) = (place.image("ext4"), place.mount_point());
    mount(&image, &mount_point, &[]);
    fs::create_dir(mount_point.join("waiting")).unwrap();
    succeed(finefs().arg("freeze").arg(&mount_point));
    let waiting = writers(&place, 0);
    succeed(finefs().args(["umount", "--lazy"]).arg(&mount_point));
    for writer in waiting {
        writer.join().unwrap();
    }
    wait_for_image(&image);
    check(&image);
}

/// Nobody waits for a server that hangs, which thaws when it goes on.
#[test]
fn a_lazy_unmount_does_not_wait_for_a_server_that_hangs() {
    if !can_mount() {
        return;
    }
    for is_frozen in [false, true] {
        let place = Place::new();
        let (image, mount_point) = (place.image("ext4"), place.mount_point());
        let mut server = mount_in_front(&place, &[image.to_str().unwrap()]);
        fs::create_dir(mount_point.join("waiting")).unwrap();
        let waiting = match is_frozen {
            true => {
                succeed(finefs().arg("freeze").arg(&mount_point));
                writers(&place, 0)
            }
            false => Vec::new(),
        };
        let process = Pid::from_child(&server);
        kill_process(process, Signal::STOP).unwrap();
        let started = Instant::now();
        let output = run(finefs().args(["umount", "--lazy"]).arg(&mount_point));
        let (took, is_mounted) = (started.elapsed(), place.is_mounted());
        kill_process(process, Signal::CONT).unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(took < Duration::from_secs(8), "{took:?}");
        assert!(!is_mounted);
        for writer in waiting {
            writer.join().unwrap();
        }
        wait_until("the server ends", || server.try_wait().unwrap().is_some());
        check(&image);
    }
}

/// What waits for the thaw does not keep the server of an aborted connection.
#[test]
fn a_frozen_mount_whose_connection_is_aborted_ends() {
    if !can_mount() {
        return;
    }
    for ring in ["Y", "N"] {
        let switch = RingSwitch::set(ring);
        let place = Place::new();
        let (image, mount_point) = (place.image("ext4"), place.mount_point());
        let mut server = mount_in_front(&place, &["-o", "threads=1", image.to_str().unwrap()]);
        drop(switch);
        let number = rustix::fs::minor(mount_point.metadata().unwrap().dev());
        // Each in a file of its own, and more than a thread has places for.
        let create = |number: usize| fs::File::create(mount_point.join(number.to_string()));
        let files: Vec<_> = (0..40).map(|number| create(number).unwrap()).collect();
        succeed(finefs().arg("freeze").arg(&mount_point));
        let start = |mut file: fs::File| std::thread::spawn(move || file.write_all(b"text"));
        let waiting: Vec<_> = files.into_iter().map(start).collect();
        std::thread::sleep(std::time::Duration::from_millis(300));
        let connections = Place::new();
        let all = connections.mount_point();
        let kind = ["-t", "fusectl", "fusectl"];
        succeed(Command::new("mount").args(kind).arg(&all));
        fs::write(all.join(format!("{number}/abort")), "1").unwrap();
        succeed(Command::new("umount").arg(&all));
        for writer in waiting {
            let _ = writer.join().unwrap();
        }
        succeed(Command::new("umount").arg("-l").arg(&mount_point));
        wait_until("the server ends", || server.try_wait().unwrap().is_some());
        check(&image);
    }
}
