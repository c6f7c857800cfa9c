//! Images whose files are shown with other owners and permissions than they have (uid=, gid=,
//! umask=). These tests need root and FUSE.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::*;

/// Files of root that nobody else may use.
const FILL: &str = r#"
    set -e
    mkdir -m 700 dir dir/sub
    umask 077
    for name in secret old gone; do echo $name > dir/$name; done
    mkdir dir/sub/deeper
    cp /bin/true dir/setuid
    chmod 4711 dir/setuid
    ln -s secret dir/link
    setfacl -m u:1234:--- dir/old
"#;

/// The parent of a place and its contents can be reached by everybody.
fn filled(place: &Place, image: &Path) {
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    mount(image, &place.mount_point(), &[]);
    let mut fill = Command::new("sh");
    fill.args(["-c", FILL]);
    succeed(fill.current_dir(place.mount_point()));
    unmount(place);
}

fn reiserfs(place: &Place) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../reiser/tests/images");
    let packed = tests.join("clean.img.xz");
    let unpacked = run(Command::new("xz").arg("-dc").arg(packed));
    assert!(unpacked.status.success());
    let image = place.path().join("image");
    fs::write(&image, unpacked.stdout).unwrap();
    image
}

/// Owner, group and mode of a file on the image.
fn on_image(image: &Path, path: &str) -> String {
    let name = format!("{}:{path}", image.display());
    let output = run(finefs().args(["stat", "-c", "%u:%g:%a"]).arg(name));
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Runs a script of the shell in what is mounted, as a user in a group of the same number.
fn run_as(uid: u32, script: &str, place: &Place) {
    let mut command = Command::new("setpriv");
    let id = uid.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    command.args(["sh", "-ec", script]);
    let output = run(command.current_dir(place.mount_point()));
    assert!(output.status.success(), "{script}: {output:?}");
}

#[test]
fn a_user_uses_what_is_shown_as_his() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    filled(&place, &image);
    give_to_user(&place, &image);
    let script = r#"
        set -e
        cd "$PLACE"
        view=uid=65534,gid=65533,umask=077
        said=$(./finefs mount -o fakeroot,$view image mnt 2>&1) && exit 1
        case $said in *"not with uid, gid or umask"*) ;; *) echo "$said"; exit 1;; esac
        ./finefs mount image mnt
        if cat mnt/dir/secret 2> /dev/null; then echo "read what is root's"; exit 1; fi
        ./finefs umount mnt
        ./finefs mount -o $view image mnt
        cd mnt
        shows() { test "$(stat -c %u:%g:%a $1)" = 65534:65533:$2 || { stat $1; exit 1; }; }
        test -z "$(find . ! -user 65534 -o ! -group 65533 -o ! -perm 700)"
        shows . 700; shows dir/secret 700; shows dir/sub 700
        test "$(cat dir/secret)" = secret
        test "$(cat dir/link)" = secret
        echo changed > dir/secret
        dir/setuid
        shows dir/setuid 700
        echo more >> dir/setuid
        echo made > dir/made
        shows dir/made 700
        mkdir -m 755 dir/sub/new
        shows dir/sub/new 700
        python3 -c 'import os; f = os.fstat(os.open("dir", os.O_TMPFILE | os.O_RDWR, 0o600)); \
            assert (f.st_uid, f.st_gid, f.st_mode & 0o7777) == (65534, 65533, 0o700), f'
        mv dir/old moved
        rm dir/gone
        rmdir dir/sub/deeper
        # Out of sight.
        chmod 640 moved
        shows moved 700
        touch -d @1000000000 moved
        test "$(stat -c %Y moved)" = 1000000000
        chown 65534 dir/sub
        shows dir/sub 700
        if chown 5 dir/secret 2> /dev/null; then echo "gave away a file"; exit 1; fi
        chattr +d dir/secret
        lsattr dir/secret | grep -q d.*dir
        if chattr +i dir/secret 2> /dev/null; then echo "made a file immutable"; exit 1; fi
        setfattr -n user.note -v text dir/secret
        cd ..
        ./finefs umount mnt
    "#;
    run_as_user(&place, script);
    wait_for_image(&image);
    check(&image);
    for (path, expected) in [
        ("/dir", "0:0:700"),
        ("/dir/secret", "0:0:600"),
        // Who writes to it takes the bit away, though it is not shown.
        ("/dir/setuid", "0:0:711"),
        ("/dir/made", "65534:65534:644"),
        ("/dir/sub/new", "65534:65534:755"),
        ("/moved", "0:0:640"),
        ("/dir/sub", "65534:0:700"),
    ] {
        assert_eq!(on_image(&image, path), expected, "{path}");
    }
}

#[test]
fn others_have_the_access_that_is_shown() {
    if !can_mount() {
        return;
    }
    for is_reiserfs in [false, true] {
        let place = Place::new();
        let image = match is_reiserfs {
            false => place.image("ext4"),
            true => reiserfs(&place),
        };
        filled(&place, &image);
        let before = on_image(&image, "/dir/old");
        let view = "allow_other,uid=nobody,gid=65534,umask=022";
        mount(&image, &place.mount_point(), &["-o", view]);
        let theirs = "test \"$(stat -c %u:%g:%a dir/old)\" = 65534:65534:755";
        run_as(65534, &format!("{theirs}; echo more >> dir/old"), &place);
        // An ACL is part of the permissions that are overridden.
        let read = "test \"$(cat dir/old)\" = \"old\nmore\"; test -x dir/secret";
        run_as(1234, &format!("{theirs}; {read}"), &place);
        run_as(1234, "! (echo more >> dir/old) 2> /dev/null", &place);
        run_as(1234, "! touch dir/made 2> /dev/null", &place);
        run_as(1234, "! chattr +d dir/old 2> /dev/null", &place);
        let given = place.mount_point().join("dir/secret");
        chown(&given, Some(5), Some(6)).unwrap();
        run_as(0, &format!("{theirs}; chown 5:6 dir/secret"), &place);
        unmount(&place);
        assert_eq!(on_image(&image, "/dir/old"), before);
        assert_eq!(on_image(&image, "/dir/secret"), "5:6:600");
        // With modes as they are, ACLs count.
        let view = "allow_other,uid=65534";
        mount(&image, &place.mount_point(), &["-o", view]);
        run_as(0, "chmod 711 dir; chmod 644 dir/old", &place);
        let shown = "test \"$(stat -c %u:%g:%a dir/secret)\" = 65534:6:600";
        run_as(65534, &format!("{shown}; echo more >> dir/secret"), &place);
        run_as(1234, "! cat dir/old 2> /dev/null", &place);
        run_as(1235, "cat dir/old > /dev/null", &place);
        unmount(&place);
    }
}

/// Root alone is not asked for permissions, but access(2) goes by what is shown, too.
#[test]
fn root_runs_what_is_shown_as_a_program() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    filled(&place, &image);
    let runs = |options: &str| {
        mount(&image, &place.mount_point(), &["-o", options]);
        let file = place.mount_point().join("dir/secret");
        let is_program = run(Command::new("test").arg("-x").arg(file));
        unmount(&place);
        is_program.status.success()
    };
    assert!(!runs("rw"));
    assert!(runs("umask=022"));
    assert!(!runs("umask=111"));
}
