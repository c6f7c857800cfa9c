//! Mounts, as users make and end them. These tests need root and FUSE.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::exercise::exercise;
use crate::support::*;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn a_memory_file_system_works() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mount_point = place.mount_point();
    mount_memory(&place, &["-o", "size=100m"]);
    exercise(&mount_point);
    unmount(&place);
    assert!(!place.is_mounted());
}

#[test]
fn images_work_and_are_clean_afterwards() {
    if !can_mount() {
        return;
    }
    for kind in ["ext2", "ext3", "ext4"] {
        let place = Place::new();
        let (image, mount_point) = (place.image(kind), place.mount_point());
        for options in ["rw", "writeback_cache,threads=1"] {
            let sub = mount_point.join(format!("sub-{options}"));
            mount(&image, &mount_point, &["-o", options]);
            assert_eq!(fs::metadata(&mount_point).unwrap().ino(), 2);
            fs::create_dir(&sub).unwrap();
            exercise(&sub);
            unmount(&place);
            check(&image);
        }
        // What was written is there, and a read-only mount changes nothing.
        let before = fs::read(&image).unwrap();
        mount(&image, &mount_point, &["-r"]);
        let sub = mount_point.join("sub-rw");
        assert_eq!(fs::read(sub.join("link")).unwrap(), b"b");
        assert_eq!(fs::read_dir(sub.join("many")).unwrap().count(), 699);
        let metadata = fs::metadata(sub.join("attributes")).unwrap();
        assert_eq!(metadata.mode() & 0o7777, 0o751);
        let error = fs::write(sub.join("new"), b"").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
        succeed(finefs().arg("umount").arg(&image));
        assert!(
            before == fs::read(&image).unwrap(),
            "a read-only mount wrote to the image"
        );
    }
}

#[test]
fn every_way_to_unmount_completes_the_image() {
    if !can_mount() {
        return;
    }
    let commands: [&[&str]; 3] = [
        &[env!("CARGO_BIN_EXE_finefs"), "umount"],
        &["fusermount3", "-u"],
        &["umount"],
    ];
    for way in commands {
        let place = Place::new();
        let (image, mount_point) = (place.image("ext4"), place.mount_point());
        mount(&image, &mount_point, &[]);
        fs::write(mount_point.join("file"), b"content").unwrap();
        succeed(Command::new(way[0]).args(&way[1..]).arg(&mount_point));
        if way[0] != commands[0][0] {
            wait_for_image(&image);
        }
        check(&image);
        mount(&image, &mount_point, &["-o", "ro"]);
        assert_eq!(fs::read(mount_point.join("file")).unwrap(), b"content");
    }
}

#[test]
fn signals_unmount_and_complete_the_image() {
    if !can_mount() {
        return;
    }
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let place = Place::new();
        let image = place.image("ext4");
        let mut server = mount_in_front(&place, &[image.to_str().unwrap()]);
        fs::write(place.mount_point().join("file"), b"content").unwrap();
        kill_process(Pid::from_child(&server), signal).unwrap();
        assert!(server.wait().unwrap().success());
        assert!(!place.is_mounted());
        check(&image);
    }
}

#[test]
fn a_signal_to_a_busy_mount_lets_its_users_finish() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    let mut server = mount_in_front(&place, &[image.to_str().unwrap()]);
    let mut file = File::create(place.mount_point().join("file")).unwrap();
    file.write_all(b"before").unwrap();
    let line = fail(finefs().arg("umount").arg(place.mount_point()));
    assert!(line.contains("busy"), "{line}");
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    wait_until("detached", || !place.is_mounted());
    file.write_all(b" and after").unwrap();
    drop(file);
    assert!(server.wait().unwrap().success());
    check(&image);
    mount(&image, &place.mount_point(), &["-r"]);
    let content = fs::read(place.mount_point().join("file")).unwrap();
    assert_eq!(content, b"before and after");
}

/// What goes on in it fails, and does not go into the directory below. It is taken away by whoever
/// mounts again or unmounts, even with files open.
#[test]
fn a_server_that_is_killed_leaves_a_dead_mount() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (image, mount_point) = (place.image("ext4"), place.mount_point());
    fs::write(mount_point.join("below"), b"").unwrap();
    mount(&image, &mount_point, &[]);
    let mut file = File::create(mount_point.join("file")).unwrap();
    file.write_all(b"synced").unwrap();
    file.sync_all().unwrap();
    kill_process(server_of(&place), Signal::KILL).unwrap();
    wait_until("the server is gone", || place.is_dead());
    let errno = |error: std::io::Error| error.raw_os_error();
    let write = fs::write(mount_point.join("new"), b"");
    assert_eq!(errno(write.unwrap_err()), Some(libc::ENOTCONN));
    // The kernel may say EIO of what was open.
    assert!(
        file.write_all(b"lost")
            .and_then(|()| file.sync_all())
            .is_err()
    );

    mount_again("rw", &image, &mount_point);
    assert_eq!(fs::read(mount_point.join("file")).unwrap(), b"synced");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let place_name = mount_point.to_str().unwrap();
    assert_eq!(mounts.matches(place_name).count(), 1, "{mounts}");
    drop(file);

    let file = File::create(mount_point.join("open")).unwrap();
    kill_process(server_of(&place), Signal::KILL).unwrap();
    wait_until("the server is gone", || place.is_dead());
    let told = run(finefs().arg("info").arg(&mount_point));
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains("was killed; finefs umount"), "{told}");
    let line = fail(finefs().arg("umount").arg(&mount_point));
    assert!(line.contains("its server ended early"), "{line}");
    assert!(!place.is_mounted() && mount_point.join("below").exists());
    drop(file);

    // Where another server has the image by now, it is not waited for.
    mount_again("rw", &image, &mount_point);
    kill_process(server_of(&place), Signal::KILL).unwrap();
    wait_until("the server is gone", || place.is_dead());
    let other = place.path().join("other");
    fs::create_dir(&other).unwrap();
    mount_again("rw", &image, &other);
    succeed(finefs().arg("umount").arg(&mount_point));
    assert!(!place.is_mounted());
    succeed(finefs().arg("umount").arg(&other));
    check(&image);
}

#[test]
fn a_dead_mount_goes_by_itself_where_that_is_asked_for() {
    if !can_mount() {
        return;
    }
    for options in ["auto_unmount", "auto_unmount,sandbox=off"] {
        let place = Place::new();
        mount_memory(&place, &["-o", options]);
        kill_process(server_of(&place), Signal::KILL).unwrap();
        wait_until("unmounted by the watcher", || !place.is_mounted());
        let mut server = mount_in_front(&place, &["-o", options, "--memory"]);
        server.kill().unwrap();
        server.wait().unwrap();
        wait_until("unmounted by the attendant", || !place.is_mounted());
    }
}

/// An ordinary user's dead mounts go as those of root.
#[test]
fn a_user_takes_a_dead_mount_away() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    give_to_user(&place, &image);
    let script = r#"
        set -e
        cd "$PLACE"
        is_dead() { LC_ALL=C ls mnt/none 2>&1 | grep -q "not connected"; }
        killed() {
            ./finefs mount -f image mnt 2> said & server=$!
            until mountpoint -q mnt && test -e mnt/lost+found; do sleep 0.1; done
            kill -9 $server
            wait $server || true
            until is_dead; do sleep 0.1; done
        }
        killed
        killed
        ./finefs mount image mnt 2> said || { cat said; exit 1; }
        ./finefs umount mnt
        killed
        fusermount3 -u mnt
        killed
        said=$(./finefs umount mnt 2>&1) && { echo "umount: $said"; exit 1; }
        ! mountpoint -q mnt
        ./finefs mount image mnt 2> said
        ./finefs umount mnt
    "#;
    run_as_user(&place, script);
    wait_for_image(&image);
    check(&image);
}

#[test]
fn info_tells_what_is_mounted() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (image, mount_point) = (place.image("ext4"), place.mount_point());
    let info = |arguments: &[&str], dir: &Path| run(finefs().arg("info").args(arguments).arg(dir));
    let line = fail(finefs().arg("info").arg(&mount_point));
    assert!(line.contains("nothing of finefs is mounted"), "{line}");
    mount(&image, &mount_point, &["-o", "noexec"]);
    let told = info(&[], &mount_point);
    let told = String::from_utf8(told.stdout).unwrap();
    for part in [
        image.to_str().unwrap(),
        "noexec",
        "fuse.finefs",
        "Inodes:                   16384\n",
        "Server:                   runs\n",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let told = info(&["--json"], &mount_point);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told["source"], image.to_str().unwrap());
    assert_eq!(told["sizes"]["inodes"], 16384);
    assert_eq!(told["is_frozen"], false);
    let below = mount_point.join("lost+found");
    let line = fail(finefs().arg("info").arg(&below));
    assert!(line.contains("of the mount at"), "{line}");
    let line = fail(finefs().args(["info", "--policy", "/"]).arg(&mount_point));
    assert!(line.contains("give its image"), "{line}");
    unmount(&place);
}

/// The process that serves a mount: the child of the watcher, whose parent is not finefs.
fn server_of(place: &Place) -> Pid {
    let mount_point = place.mount_point();
    let needle = mount_point.to_str().unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(number) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(needle) {
            found.push(number);
        }
    }
    let parent_of = |number: i32| -> i32 {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap();
        let after_name = stat.rsplit_once(')').unwrap().1;
        after_name.split(' ').nth(2).unwrap().parse().unwrap()
    };
    let server = found
        .iter()
        .find(|&&number| found.contains(&parent_of(number)));
    Pid::from_raw(*server.unwrap()).unwrap()
}

#[test]
fn mistakes_get_one_clear_line() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (image, mount_point) = (place.image("ext4"), place.mount_point());
    let garbage = place.path().join("garbage");
    fs::write(&garbage, [0x5a; 8192]).unwrap();
    let empty = place.path().join("empty");
    File::create(&empty).unwrap();
    let missing = place.path().join("missing");

    for bad in [&garbage, &empty, &missing, &mount_point] {
        let line = fail(finefs().arg("mount").arg(bad).arg(&mount_point));
        assert!(line.contains(bad.to_str().unwrap()), "{line}");
        fail(finefs().arg("info").arg(bad));
    }
    fail(finefs().arg("mount").arg(&image).arg(&missing));
    fail(finefs().arg("mount").arg(&image).arg(&garbage));
    let line = fail(
        finefs()
            .args(["mount", "-o", "ro,nonsense"])
            .arg(&image)
            .arg(&mount_point),
    );
    assert!(line.contains("nonsense"), "{line}");
    let line = fail(
        finefs()
            .args(["mount", "-o", "offset=1t"])
            .arg(&image)
            .arg(&mount_point),
    );
    assert!(line.contains("offset"), "{line}");
    let line = fail(finefs().arg("umount").arg(&mount_point));
    assert!(line.contains("not mounted"), "{line}");
    assert_eq!(
        run(finefs().arg("mount").arg(&image)).status.code(),
        Some(2)
    );
    assert!(!place.is_mounted());
    check(&image);

    // A second use of a mounted image.
    let other = place.path().join("other");
    fs::create_dir(&other).unwrap();
    mount(&image, &mount_point, &[]);
    let line = fail(finefs().arg("mount").arg(&image).arg(&other));
    assert!(line.contains("in use"), "{line}");
    let line = fail(finefs().arg("mount").arg("-r").arg(&image).arg(&other));
    assert!(line.contains("in use"), "{line}");
    // Looking at it is fine.
    succeed(
        finefs()
            .arg("info")
            .arg(&image)
            .stdout(std::process::Stdio::null()),
    );
    unmount(&place);
    check(&image);
}

#[test]
fn a_partition_is_mounted_by_its_offset_or_number() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (image, mount_point) = (place.image("ext4"), place.mount_point());
    let disk = place.path().join("disk");
    let mut bytes = vec![0xee; 1 << 20];
    // A boot record with one partition.
    bytes[446..512].fill(0);
    bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
    bytes[450] = 0x83;
    bytes[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    bytes[458..462].copy_from_slice(&(64_u32 << 11).to_le_bytes());
    let before = bytes.clone();
    bytes.extend(fs::read(&image).unwrap());
    fs::write(&disk, bytes).unwrap();
    mount(&disk, &mount_point, &["-o", "offset=1m"]);
    fs::write(mount_point.join("file"), b"content").unwrap();
    unmount(&place);
    // And by its number.
    let part = place.path().join("disk@p1");
    mount(&part, &mount_point, &[]);
    assert_eq!(fs::read(mount_point.join("file")).unwrap(), b"content");
    succeed(finefs().arg("umount").arg(&part));
    assert!(!place.is_mounted());
    let mut missing = finefs();
    missing.arg("mount").arg(place.path().join("disk@p2"));
    let line = fail(missing.arg(&mount_point));
    assert!(line.contains("no partition p2; there are p1"), "{line}");
    let bytes = fs::read(&disk).unwrap();
    assert_eq!(bytes[..1 << 20], before);
    fs::write(&image, &bytes[1 << 20..]).unwrap();
    check(&image);
}

#[test]
fn info_tells_what_an_image_is() {
    let place = Place::new();
    let image = place.image("ext4");
    let before = fs::read(&image).unwrap();
    let text = run(finefs().arg("info").arg(&image));
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.contains("has_journal") && text.contains("metadata_csum"),
        "{text}"
    );
    let json = run(finefs().args(["info", "--json"]).arg(&image));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["is_clean"], true);
    assert_eq!(json["size_bytes"], 64 << 20);
    assert!(before == fs::read(&image).unwrap());
}

/// Runs as an ordinary user, in a mount namespace of its own where /dev/fuse has the mode that
/// distributions give it.
#[test]
fn an_ordinary_user_can_mount() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    give_to_user(&place, &image);
    // An ext4 root belongs to root: let the user in.
    let opened = run(Command::new("debugfs")
        .args(["-w", "-R", "sif <2> mode 040777"])
        .arg(&image));
    assert!(opened.status.success());

    let script = r#"
        set -e
        cd "$PLACE"
        ./finefs mount image mnt
        test "$(stat -f -c %T mnt)" = fuseblk || grep -q " $PLACE/mnt .* fuse.finefs " /proc/self/mountinfo
        echo content > mnt/file
        # A new file may be written through the descriptor that made it, whatever its mode.
        (umask 0222; echo read-only > mnt/read-only)
        if (echo more >> mnt/read-only) 2> /dev/null; then echo "wrote a read-only file"; exit 1; fi
        mkdir -m 0 mnt/closed
        if ls mnt/closed 2> /dev/null; then echo "read a closed directory"; exit 1; fi
        chmod 4755 mnt/file
        # Truncation takes the set-uid bit of whoever may not set it for others.
        : > mnt/file
        test "$(stat -c %a mnt/file)" = 755 || { echo "kept the set-uid bit"; exit 1; }
        test "$(stat -c %u mnt/file)" = 65534
        ./finefs umount mnt
        ./finefs mount -r image mnt
        test "$(cat mnt/read-only)" = read-only
        fusermount3 -u mnt
    "#;
    run_as_user(&place, script);
    wait_for_image(&image);
    check(&image);
}

/// Files of root and of others are read, changed and given away by a user, who has no rights; what
/// is made is root's.
#[test]
fn with_fakeroot_a_user_is_the_superuser_of_an_image() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    give_to_user(&place, &image);
    let script = r#"
        set -e
        cd "$PLACE"
        said=$(./finefs mount -o fakeroot,allow_other image mnt 2>&1) && exit 1
        case $said in *"not with"*) ;; *) echo "$said"; exit 1;; esac
        ./finefs mount -o fakeroot image mnt
        echo text > mnt/file
        mkdir mnt/etc
        chown 4711:4712 mnt/file
        chmod 0600 mnt/file
        test "$(stat -c %u:%g:%a mnt/file)" = 4711:4712:600
        test "$(cat mnt/file)" = text
        echo more >> mnt/file
        chmod 0 mnt/etc
        echo root > mnt/etc/passwd
        test "$(stat -c %u:%g mnt/etc/passwd)" = 0:0
        ls mnt/etc mnt/lost+found > list
        ln mnt/file mnt/etc/link
        mv mnt/file mnt/etc/file
        cp mnt/etc/passwd mnt/etc/program
        if mnt/etc/program 2> /dev/null; then echo "ran what nobody may run"; exit 1; fi
        chown -h 7:8 mnt/etc/link
        touch -d @1000000000 mnt/etc/link
        test "$(stat -c %u:%g:%Y mnt/etc/file)" = 7:8:1000000000
        ./finefs umount mnt
        # Without it, root's directory is closed again.
        ./finefs mount image mnt
        if ls mnt/etc 2> /dev/null; then echo "read a closed directory"; exit 1; fi
        if echo text 2> /dev/null > mnt/file; then echo "wrote where root may"; exit 1; fi
        ./finefs umount mnt
    "#;
    run_as_user(&place, script);
    wait_for_image(&image);
    check(&image);
}

#[test]
fn an_image_is_mounted_as_it_lies_and_no_further_than_is_said() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    let before = fs::read(&image).unwrap();
    for options in ["noload", "norecovery,sizelimit=64m", "ro,sizelimit=0"] {
        mount(&image, &place.mount_point(), &["-o", options]);
        let made = File::create(place.mount_point().join("file"));
        assert_eq!(made.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
        unmount(&place);
    }
    let mut cut = finefs();
    cut.args(["mount", "-o", "sizelimit=63m"]).arg(&image);
    let said = fail(cut.arg(place.mount_point()));
    assert!(said.contains("image"), "{said}");
    assert!(fs::read(&image).unwrap() == before, "it was written");
}

/// The storage of the image fills up before everything is written out: `finefs umount` must say
/// so, and so must the server's exit status.
#[test]
fn a_failed_final_write_out_is_told() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let storage = place.path().join("storage");
    fs::create_dir(&storage).unwrap();
    let mut tmpfs = Command::new("mount");
    succeed(
        tmpfs
            .args(["-t", "tmpfs", "-o", "size=4m", "none"])
            .arg(&storage),
    );
    let _storage = Unmounted(&storage);
    let made = place.image("ext4");
    let image = storage.join("image");
    succeed(
        Command::new("cp")
            .arg("--sparse=always")
            .arg(&made)
            .arg(&image),
    );

    let arguments = ["-o", "commit=60", image.to_str().unwrap()];
    let mut server = mount_in_front(&place, &arguments);
    fs::write(place.mount_point().join("large"), vec![1; 3 << 20]).unwrap();
    for number in 0..5000 {
        // A commit that comes early has found no room already: then nothing more is taken.
        if let Err(error) = File::create(place.mount_point().join(format!("file-{number}"))) {
            assert_eq!(error.kind(), ErrorKind::StorageFull);
            break;
        }
    }
    let line = unmount_with_loss(&place.mount_point());
    assert!(line.contains("not everything is on the image"), "{line}");
    assert_eq!(server.wait().unwrap().code(), Some(1));
    assert!(!place.is_mounted());
}

/// Unmounts at its end, also of a failed test.
struct Unmounted<'a>(&'a Path);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).output();
    }
}

/// Sets both times of a file.
fn set_times(file: &Path, seconds: i64) -> rustix::io::Result<()> {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, file, &times, AtFlags::empty())
}

#[test]
fn times_that_cannot_be_stored_are_clamped() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    mount_memory(&place, &[]);
    let file = place.mount_point().join("file");
    File::create(&file).unwrap();
    set_times(&file, i64::MAX).unwrap();
    assert_eq!(
        fs::metadata(&file).unwrap().mtime(),
        (1 << 34) - (1 << 31) - 1
    );
    set_times(&file, i64::MIN).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().mtime(), -(1 << 31));
    unmount(&place);
}

/// A sync is answered through the handle of the device that it came by; with several server threads
/// there are several.
#[test]
fn many_threads_sync_at_once() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    mount(
        &image,
        &place.mount_point(),
        &["-o", "threads=3,noio_uring"],
    );
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let directory = place.mount_point().to_owned();
            scope.spawn(move || {
                for number in 0..20 {
                    let path = directory.join(format!("{thread}-{number}"));
                    let mut file = File::create(&path).unwrap();
                    file.write_all(b"content").unwrap();
                    file.sync_all().unwrap();
                }
            });
        }
    });
    unmount(&place);
    check(&image);
}

/// flock(1) of a script, on a descriptor that its commands inherit.
#[test]
fn a_server_in_the_background_keeps_no_descriptor_of_its_script() {
    if !can_mount() {
        return;
    }
    for option in ["sandbox=auto", "sandbox=off", "auto_unmount"] {
        let place = Place::new();
        let script = r#"exec 9> lock; flock 9; exec "$FINEFS" mount --memory -o "$0" mnt"#;
        let mut sh = Command::new("sh");
        sh.args(["-ec", script, option]).current_dir(place.path());
        succeed(sh.env("FINEFS", env!("CARGO_BIN_EXE_finefs")));
        let lock = place.path().join("lock");
        // The watcher closes it a moment later than the server.
        wait_until("the lock is free", || {
            let tried = run(Command::new("flock").arg("-n").arg(&lock).arg("true"));
            tried.status.success()
        });
        assert!(place.is_mounted(), "{option}");
        unmount(&place);
    }
    // What it was told to open may be named by one.
    let place = Place::new();
    let image = place.image("ext4");
    let script = r#"exec 9<> image; exec "$FINEFS" mount /dev/fd/9 mnt"#;
    let mut sh = Command::new("sh");
    sh.args(["-ec", script]).current_dir(place.path());
    succeed(sh.env("FINEFS", env!("CARGO_BIN_EXE_finefs")));
    fs::write(place.mount_point().join("file"), "content").unwrap();
    unmount(&place);
    check(&image);
}
