//! The channel to a mount's server: where its socket is, who may ask, and who waits for whom. These
//! tests need root and FUSE.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::*;

fn text(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr];
    parts.map(|part| String::from_utf8_lossy(part)).concat()
}

/// While the image's own storage is frozen a freeze cannot end; others are answered all the same.
#[test]
fn a_long_freeze_keeps_nobody_waiting() {
    if !can_mount() {
        return;
    }
    let (outer, inner) = (Place::new(), Place::new());
    let made = inner.image("ext4");
    mount_memory(&outer, &["-o", "size=200m"]);
    let image = outer.mount_point().join("image");
    fs::copy(&made, &image).unwrap();
    mount(&image, &inner.mount_point(), &["-o", "commit=3600"]);
    fs::write(inner.mount_point().join("file"), [1; 100_000]).unwrap();
    succeed(finefs().arg("freeze").arg(outer.mount_point()));
    let mut freeze = finefs();
    let mut freeze = freeze
        .arg("freeze")
        .arg(inner.mount_point())
        .spawn()
        .unwrap();
    // They end by themselves, each within the time that a client waits.
    for _ in 0..3 {
        let mut top = Command::new("timeout");
        top.args(["60", env!("CARGO_BIN_EXE_finefs"), "top"]);
        top.args(["-n", "1", "-d", "0.1", "--json"])
            .arg(inner.mount_point());
        let output = run(&mut top);
        assert!(output.status.success(), "{}", text(&output));
    }
    assert!(freeze.try_wait().unwrap().is_none(), "it still freezes");
    succeed(finefs().arg("thaw").arg(outer.mount_point()));
    assert!(freeze.wait().unwrap().success());
    succeed(finefs().arg("thaw").arg(inner.mount_point()));
    unmount(&inner);
    unmount(&outer);
}

/// A server that is killed leaves its socket; whoever gets its number next, is found all the same.
#[test]
fn a_socket_that_is_left_is_replaced() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    for _ in 0..3 {
        let mut server = mount_in_front(&place, &["--memory"]);
        kill_process(Pid::from_child(&server), Signal::KILL).unwrap();
        server.wait().unwrap();
        let top = fail(finefs().args(["top", "-n", "1"]).arg(place.mount_point()));
        assert!(top.contains("does not answer"), "{top}");
        succeed(Command::new("umount").arg(place.mount_point()));
    }
}

/// An ordinary user's servers: where their sockets are, and what becomes of one that finds no
/// place.
#[test]
fn the_socket_is_where_only_its_user_can_write() {
    if !can_mount() {
        return;
    }
    let place = Place::outside_of_tmp();
    for name in ["", "mnt", "run", "tmp"] {
        let path = place.path().join(name);
        if !path.exists() {
            fs::create_dir(&path).unwrap();
        }
        let mode = if name == "tmp" { 0o1777 } else { 0o700 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&path, Some(65_534), Some(65_534)).unwrap();
    }
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    place.program();

    let script = r#"
        set -e
        cd "$PLACE"
        trap 'umount -i -l "$PLACE/mnt" 2> /dev/null || true' EXIT
        user() { setpriv --reuid=65534 --regid=65534 --clear-groups env -u XDG_RUNTIME_DIR "$@"; }
        other() { setpriv --reuid=65533 --regid=65533 --clear-groups "$@"; }
        refused() {
            expected=$1; shift
            if said=$("$@" 2>&1 >/dev/null); then echo "not refused: $*"; exit 1; fi
            case $said in *"$expected"*) ;; *) echo "$*: $said"; exit 1;; esac
        }
        mknod fuse c 10 229
        chmod 666 fuse
        mount --bind fuse /dev/fuse
        mount --bind tmp /tmp

        # Where the environment says; there the user finds it.
        user env XDG_RUNTIME_DIR="$PLACE/run" ./finefs mount --memory mnt
        test "$(stat -c '%a %u' run/finefs)" = "700 65534"
        test "$(stat -c '%a %u' run/finefs/mount-*)" = "600 65534"
        user env XDG_RUNTIME_DIR="$PLACE/run" ./finefs top -n 1 -d 0.1 mnt >/dev/null
        user env XDG_RUNTIME_DIR="$PLACE/run" ./finefs umount mnt
        test -z "$(ls -A run/finefs)"

        # Elsewhere; there root finds it too, and others are sent away.
        user ./finefs mount --memory mnt
        test "$(stat -c '%a %u' /tmp/finefs-65534)" = "700 65534"
        user ./finefs freeze mnt
        ./finefs thaw mnt
        refused "another user's" other ./finefs top -n 1 "$PLACE/mnt"
        user ./finefs umount mnt
        rmdir /tmp/finefs-65534

        # Somebody else was there first: the mount works, and says once what does not.
        other mkdir -m 777 /tmp/finefs-65534
        said=$(user ./finefs mount --memory mnt 2>&1)
        test "$(echo "$said" | grep -c "no top, no freeze: .*/tmp/finefs-65534: belongs to another user")" = 1
        test "$(echo "$said" | wc -l)" = 1
        echo works > mnt/file 2>/dev/null || user sh -c 'echo works > mnt/file'
        refused "does not answer" user ./finefs top -n 1 mnt
        refused "/tmp/finefs-65534: belongs to another user" user ./finefs top -n 1 mnt
        user ./finefs umount mnt
    "#;
    let mut unshared = Command::new("unshare");
    unshared
        .args(["-m", "sh", "-c", script])
        .env("PLACE", place.path());
    let output = run(&mut unshared);
    assert!(output.status.success(), "{}", text(&output));
}

/// Names that anybody may take are nothing to a server, also not while it ends.
#[test]
fn abstract_names_are_not_used() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    // In a network namespace of its own nobody else has such names.
    let script = r#"
        "$FINEFS" mount "$1" "$2" && ! grep @ /proc/net/unix && "$FINEFS" umount "$2"
    "#;
    let mut unshared = Command::new("unshare");
    unshared.args(["-n", "sh", "-c", script, "sh"]);
    unshared.arg(place.image("ext4")).arg(place.mount_point());
    let output = run(unshared.env("FINEFS", env!("CARGO_BIN_EXE_finefs")));
    assert!(output.status.success(), "{}", text(&output));
    // Nor is the channel bound to a network namespace.
    mount_memory(&place, &[]);
    let mut top = Command::new("unshare");
    top.args(["-n", env!("CARGO_BIN_EXE_finefs"), "top", "-n", "1"]);
    let output = run(top.args(["-d", "0.1"]).arg(place.mount_point()));
    assert!(output.status.success(), "{}", text(&output));
    unmount(&place);
}
