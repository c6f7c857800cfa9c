//! mount(8) and umount(8) through their helpers, and remounts. These tests need root and FUSE; the
//! helpers are installed in a mount namespace of the test's own.

use std::process::{Command, Output};

use crate::support::*;

fn text(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr];
    parts.map(|part| String::from_utf8_lossy(part)).concat()
}

/// Where programs lie that mount(8) and umount(8) look for, with links to finefs beside the others;
/// and what scripts use.
const PREPARE: &str = r#"
    set -e
    mkdir "$PLACE/helpers"
    for name in mount.finefs mount.fuse.finefs umount.fuse.finefs umount.fuseblk.finefs; do
        ln -s "$FINEFS" "$PLACE/helpers/$name"
    done
    lower=$(readlink -f /sbin)
    mount -t overlay -o "lowerdir=$PLACE/helpers:$lower" overlay "$lower"
    cd "$PLACE"
    # A server would keep this namespace, and with it the mount.
    trap 'umount -i -l "$PLACE/mnt" 2> /dev/null || true' EXIT
    flags() { findmnt -no OPTIONS "$PLACE/mnt"; }
    has() { flags | tr , '\n' | grep -qx "$1" || { echo "no $1 in $(flags)"; exit 1; }; }
    lacks() { ! flags | tr , '\n' | grep -qx "$1" || { echo "$1 in $(flags)"; exit 1; }; }
    fails() {
        expected=$1; shift
        if said=$("$@" 2>&1); then echo "did not fail: $*: $said"; exit 1; fi
        case $said in *"$expected"*) ;; *) echo "$*: $said"; exit 1;; esac
    }
    silent() { said=$("$@" 2>&1) || { echo "$*: $said"; exit 1; }; test -z "$said" || { echo "$*: $said"; exit 1; }; }
"#;

fn run_script(place: &Place, script: &str) {
    let mut unshared = Command::new("unshare");
    unshared.args(["-m", "sh", "-c", &format!("{PREPARE}{script}")]);
    unshared.env("PLACE", place.path().canonicalize().unwrap());
    let output = run(unshared.env("FINEFS", env!("CARGO_BIN_EXE_finefs")));
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn mount_has_its_own_defaults() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.image("ext4");
    run_script(
        &place,
        r#"
        for options in suid,dev defaults rw nosuid,suid,nodev,dev; do
            silent mount -t fuse.finefs image mnt -o $options
            lacks nosuid; lacks nodev; lacks noexec; has rw
            silent umount mnt
        done
        for type in finefs fuse.finefs; do
            silent mount -t $type image mnt -o nosuid,nodev,noexec,nosymfollow,ro,dirsync
            has nosuid; has nodev; has noexec; has nosymfollow; has ro
            silent umount mnt
        done
        # As with mount(8) itself, what "user" implies.
        silent mount -t fuse.finefs image mnt -o user
        has nosuid; has nodev; has noexec
        silent umount mnt
        # By hand those of FUSE hold.
        silent "$FINEFS" mount image mnt
        has nosuid; has nodev
        silent "$FINEFS" umount mnt
        # Nothing is mounted, and nothing is left behind in the foreground.
        silent mount -f -t fuse.finefs image mnt
        silent mount -f -n -s -t fuse.finefs image mnt -o what=ever
        fails "unknown mount option what" mount -t fuse.finefs image mnt -o what=ever
        ! mountpoint -q mnt
        silent mount -s -t fuse.finefs image mnt -o what=ever
        silent umount mnt
        # A program with the bit runs as its owner.
        silent mount -t fuse.finefs image mnt -o allow_other
        cp /usr/bin/id mnt/id
        chmod 4755 mnt mnt/id
        test "$(setpriv --reuid=65534 --regid=65534 --clear-groups mnt/id -u)" = 0
        silent umount mnt
        e2fsck -fn image
        "#,
    );
}

/// What people have in their fstab for ext4.
#[test]
fn options_of_fstab_are_understood() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.image("ext4");
    run_script(
        &place,
        r#"
        known="noatime,nodiratime,lazytime,iversion,errors=remount-ro,data=ordered,commit=9,barrier=1,discard"
        known="$known,user_xattr,acl,journal_checksum,stripe=64,delalloc,auto_da_alloc,init_itable=10,nofail"
        known="$known,_netdev,x-systemd.automount,grpid,noquota,block_validity,silent,mand,strictatime,comment=a"
        echo "$PLACE/image $PLACE/mnt fuse.finefs $known 0 0" > fstab
        silent mount -T fstab mnt
        mkdir mnt/dir; chgrp 50 mnt/dir
        echo content > mnt/dir/file
        test "$(stat -c %g mnt/dir/file)" = 50
        mount -T fstab -o remount,ro mnt
        has ro
        silent umount mnt
        said=$("$FINEFS" mount -v -o "$known" image mnt 2>&1)
        for option in lazytime iversion stripe=64; do
            case $said in *"option $option has no effect: "*) ;; *) echo "$option: $said"; exit 1;; esac
        done
        case $said in *"commit=9"*|*"grpid"*) echo "$said"; exit 1;; esac
        silent "$FINEFS" umount mnt
        for refused in jqfmt=vfsv1 resuid=5 sb=32768 data=journal dax bind; do
            fails "option $refused: " "$FINEFS" mount -o $refused image mnt
        done
        fails "only for a memory file system" "$FINEFS" mount -o mode=700 image mnt
        fails "only for an image" "$FINEFS" mount --memory -o offset=5 mnt
        fails "only for an image" "$FINEFS" mount --memory -o umask=022 mnt
        # Directories that are read are not noted.
        silent "$FINEFS" mount -o nodiratime,strictatime image mnt
        touch -a -d 2001-01-01 mnt/dir mnt/dir/file
        ls mnt/dir > /dev/null; cat mnt/dir/file > /dev/null
        test "$(stat -c %X mnt/dir)" -lt 1000000000
        test "$(stat -c %X mnt/dir/file)" -gt 1000000000
        silent "$FINEFS" umount mnt
        # Symbolic links are not followed.
        silent "$FINEFS" mount -o nosymfollow image mnt
        ln -s dir mnt/link
        readlink mnt/link > /dev/null
        fails "Too many levels" ls mnt/link/
        silent "$FINEFS" umount mnt
        "#,
    );
}

#[test]
fn a_remount_changes_what_the_kernel_keeps() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.image("ext4");
    run_script(
        &place,
        r#"
        silent "$FINEFS" mount -o allow_other,commit=3600,noexec image mnt
        echo first > mnt/file
        silent mount -o remount,ro mnt
        has ro; has noexec; has nosuid; has allow_other
        fails "Read-only" touch mnt/file
        # It is on the image.
        cp image copy
        e2fsck -fy copy > /dev/null 2>&1 || true
        test "$(debugfs -R "cat file" copy 2>/dev/null)" = first
        silent mount -o remount,rw,exec mnt
        has rw; lacks noexec; has nosuid
        echo second > mnt/file
        silent "$FINEFS" mount -o remount,suid,sync mnt
        lacks nosuid; has nodev; has sync; has rw
        # By its image, too, and with what it was mounted with.
        silent "$FINEFS" mount -o remount,ro,allow_other image mnt
        has ro
        said=$("$FINEFS" mount -o remount,rw,commit=7 mnt 2>&1)
        case $said in *"only a new mount changes commit=7;"*) ;; *) echo "$said"; exit 1;; esac
        has rw; has relatime
        fails "only a new mount changes noatime" "$FINEFS" remount -o noatime,ro mnt
        has rw
        # While somebody writes.
        exec 9> mnt/open
        fails "busy" "$FINEFS" mount -o remount,ro mnt
        fails "with --force" "$FINEFS" remount -o ro mnt
        silent "$FINEFS" freeze mnt
        fails "is frozen" "$FINEFS" remount -o ro mnt
        silent "$FINEFS" thaw mnt
        exec 9>&-
        fails "not mounted" "$FINEFS" mount -o remount,ro "$PLACE/helpers"
        chmod 755 "$PLACE"; cp "$FINEFS" "$PLACE/copied"
        fails "only root can remount" setpriv --reuid=65534 --regid=65534 --clear-groups \
            "$PLACE/copied" mount -o remount,ro mnt
        silent umount mnt
        # What the server does with access times is shown, and no remount changes it.
        silent "$FINEFS" mount -o noatime,nodiratime image mnt
        has noatime; has nodiratime
        silent mount -o remount,ro mnt
        has ro; has noatime; has nodiratime
        silent "$FINEFS" remount -o rw,noatime mnt
        has rw; has noatime
        silent umount mnt
        e2fsck -fn image
        # A server that cannot write stays so.
        silent mount -t fuse.finefs -o ro image mnt
        fails "open for reading only" mount -o remount,rw mnt
        fails "open for reading only" "$FINEFS" mount -o remount,rw mnt
        has ro
        silent mount -o remount,nosuid mnt
        has nosuid; has ro
        silent umount mnt
        "#,
    );
}

/// The statuses that mount(8) documents.
#[test]
fn helpers_end_with_the_statuses_of_mount() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.image("ext4");
    run_script(
        &place,
        r#"
        ends() {
            expected=$1; shift
            status=0; said=$("$@" 2>&1) || status=$?
            test $status = $expected || { echo "$*: $status: $said"; exit 1; }
        }
        for name in finefs fuse.finefs; do
            ends 32 mount -t $name "$PLACE/none" mnt
            ends 32 mount -t $name image mnt -o what=ever
            ends 32 mount -t $name image "$PLACE/none"
            ends 1 "helpers/mount.$name" image
            ends 1 "helpers/mount.$name"
            ends 1 "helpers/mount.$name" image mnt --what
        done
        ends 0 mount -t fuse.finefs image mnt
        ends 32 mount -t fuse.finefs image "$PLACE/helpers"
        exec 9> mnt/open
        ends 32 umount mnt
        exec 9>&-
        ends 0 umount mnt
        ends 32 helpers/umount.fuse.finefs mnt
        ends 1 helpers/umount.fuse.finefs
        # By hand all failures are alike.
        ends 1 "$FINEFS" umount mnt
        ends 2 "$FINEFS" umount
        "#,
    );
}

/// With the helper umount(8) waits for the server, as `finefs umount` does.
#[test]
fn umount_waits_through_its_helper() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.image("ext4");
    run_script(
        &place,
        r#"
        for round in 1 2 3; do
            silent "$FINEFS" mount -o commit=3600 image mnt
            for number in $(seq 500); do echo $number > mnt/file-$round-$number; done
            case $round in
                1) silent umount mnt;;
                2) silent umount image;;
                3) silent umount -n mnt;;
            esac
            e2fsck -fn image
        done
        silent "$FINEFS" mount image mnt
        exec 9< mnt
        fails busy umount mnt
        silent umount -l mnt
        ! mountpoint -q mnt
        exec 9<&-
        # Of a loop device that mount(8) makes itself.
        silent mount -t fuse.finefs -o loop image mnt
        test "$(findmnt -no FSTYPE mnt)" = fuseblk.finefs
        echo more > mnt/more
        silent umount mnt
        e2fsck -fn image
        "#,
    );
}

/// The unit in the guide is one that systemd takes as it is.
#[test]
fn the_unit_in_the_guide_is_one() {
    let mut systemd = Command::new("systemd-analyze");
    if systemd.arg("--version").output().is_err() {
        return eprintln!("skipped: no systemd");
    }
    let guide = include_str!("../../../../docs/guide.md");
    let unit = guide.split("```ini\n").nth(1).unwrap();
    let unit = unit.split("```").next().unwrap();
    let place = Place::new();
    let verified = |unit: &str| {
        let path = place.path().join("mnt.mount");
        std::fs::write(&path, unit).unwrap();
        let mut verify = Command::new("systemd-analyze");
        text(&run(verify.arg("verify").arg(&path)))
    };
    assert!(unit.contains("Type=fuse.finefs"), "{unit}");
    assert_eq!(verified(unit), "");
    assert_ne!(verified(&unit.replace("TimeoutSec", "Timeout")), "");
    assert_ne!(verified(&unit.replace("What=", "#")), "");
}
