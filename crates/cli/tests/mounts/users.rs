//! Who uses a mount, `finefs lsof`; and what is on the image after `finefs sync` and a remount.
//! These tests need root and FUSE.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::*;

fn lsof(place: &Place, arguments: &[&str]) -> (bool, String) {
    let output = run(finefs()
        .arg("lsof")
        .args(arguments)
        .arg(place.mount_point()));
    (
        output.status.success(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

/// A process that holds what it was given until it is dropped.
struct Holding(Child);

impl Holding {
    fn file(file: File, directory: &Path) -> Holding {
        let mut command = Command::new("sleep");
        command.arg("600").stdin(file).current_dir(directory);
        Holding(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn users_of_a_mount_are_listed() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    mount_memory(&place, &[]);
    let top = place.mount_point();
    assert_eq!(lsof(&place, &[]), (false, String::new()));
    fs::write(top.join("a file"), "text").unwrap();
    let reader = Holding::file(File::open(top.join("a file")).unwrap(), Path::new("/"));
    let open = OpenOptions::new()
        .read(true)
        .write(true)
        .open(top.join("a file"));
    let writer = Holding::file(open.unwrap(), &top);
    let (found, table) = lsof(&place, &[]);
    assert!(found);
    let has = |pid: u32, descriptor: &str, name: &Path| {
        table.lines().any(|line| {
            let mut fields = line.split_whitespace();
            let is_of = fields.nth(1) == Some(&pid.to_string());
            is_of && fields.nth(1) == Some(descriptor) && line.ends_with(name.to_str().unwrap())
        })
    };
    assert!(has(reader.0.id(), "0r", &top.join("a file")), "{table}");
    assert!(has(writer.0.id(), "0u", &top.join("a file")), "{table}");
    assert!(has(writer.0.id(), "cwd", &top), "{table}");
    let (_, writers) = lsof(&place, &["-w"]);
    assert_eq!(writers.lines().count(), 2, "{writers}");
    let (_, json) = lsof(&place, &["--json"]);
    assert_eq!(json.matches("\"writes\": true").count(), 1, "{json}");

    // It stays writable while somebody writes, who is named.
    let remount = |flags: &str| {
        let mut command = finefs();
        command.args(["mount", "-o", flags]).arg(&top);
        run(&mut command)
    };
    let refused = remount("remount,ro");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success());
    assert!(said.contains(&writer.0.id().to_string()), "{said}");
    assert!(!said.contains(&reader.0.id().to_string()), "{said}");
    drop(writer);
    assert!(remount("remount,ro").status.success());
    assert!(fs::write(top.join("other"), "").is_err());
    drop(reader);
    unmount(&place);
}

/// `finefs ls` does so too. script(1) makes the terminal.
#[test]
fn names_of_users_change_no_terminal() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    mount_memory(&place, &[]);
    let file = place.mount_point().join("a\x1b[31m\nb");
    let writer = Holding::file(File::create(&file).unwrap(), Path::new("/"));
    for words in ["lsof", "remount -o ro"] {
        let command = format!("{} {words} mnt", env!("CARGO_BIN_EXE_finefs"));
        let mut script = Command::new("script");
        script.args(["-q", "-c", &command, "/dev/null"]);
        script.current_dir(place.path()).stdin(Stdio::null());
        let shown = String::from_utf8(run(&mut script).stdout).unwrap();
        assert!(shown.contains("/a?[31m?b\r\n"), "{words}: {shown:?}");
        assert!(!shown.contains('\x1b'), "{words}: {shown:?}");
    }
    drop(writer);
    unmount(&place);
}

#[test]
fn by_force_the_writes_of_those_who_write_fail() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    mount(&image, &place.mount_point(), &[]);
    let top = place.mount_point();
    let mut open = File::create(top.join("file")).unwrap();
    open.write_all(b"text").unwrap();
    let remount = |flags: &str, arguments: &[&str]| {
        let mut command = finefs();
        run(command
            .arg("remount")
            .args(["-o", flags])
            .args(arguments)
            .arg(&top))
    };
    assert!(!remount("ro", &[]).status.success());
    open.write_all(b"more").unwrap();
    assert!(!remount("rw", &["--force"]).status.success());
    let forced = remount("ro", &["--force"]);
    assert!(forced.status.success(), "{forced:?}");
    let refused = open.write_all(b"lost").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    assert!(fs::create_dir(top.join("dir")).is_err());
    assert_eq!(fs::read(top.join("file")).unwrap(), b"textmore");
    let again = remount("rw", &[]);
    assert!(again.status.success(), "{again:?}");
    open.write_all(b"and on").unwrap();
    drop(open);
    let closed = remount("ro", &["--force"]);
    assert!(
        closed.status.success() && closed.stderr.is_empty(),
        "{closed:?}"
    );
    unmount(&place);
    check(&image);
}

/// What was written before is not lost by it, though only the kernel has it; and other flags do not
/// end it.
#[test]
fn by_force_only_later_writes_fail() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    mount(&image, &place.mount_point(), &["-o", "writeback_cache"]);
    let top = place.mount_point();
    let mut open = File::create(top.join("file")).unwrap();
    open.write_all(&[6; 100_000]).unwrap();
    let remount = |arguments: &[&str]| {
        let mut command = finefs();
        let output = run(command.arg("remount").args(arguments).arg(&top));
        assert!(output.status.success(), "{output:?}");
    };
    remount(&["-o", "ro", "--force"]);
    remount(&["-o", "noexec"]);
    assert!(fs::create_dir(top.join("dir")).is_err());
    drop(open);
    remount(&["-o", "rw"]);
    fs::create_dir(top.join("dir")).unwrap();
    unmount(&place);
    check(&image);
    let read = run(finefs()
        .arg("cat")
        .arg(format!("{}:/file", image.display())));
    assert!(read.stdout == [6; 100_000]);
}

/// What is on the image after the server was killed, where something was done and then `settle`.
fn after_kill(settle: impl Fn(&Place)) -> bool {
    let place = Place::new();
    let image = place.image("ext4");
    let arguments = ["-o", "commit=3600", image.to_str().unwrap()];
    let mut server = mount_in_front(&place, &arguments);
    let top = place.mount_point();
    fs::create_dir(top.join("dir")).unwrap();
    File::open(&top).unwrap().sync_all().unwrap();
    // Nothing of the root directory changes.
    fs::write(top.join("dir/file"), "text").unwrap();
    settle(&place);
    server.kill().unwrap();
    server.wait().unwrap();
    succeed(Command::new("umount").arg("-l").arg(&top));
    wait_for_image(&image);
    let output = run(finefs().arg("mount").arg(&image).arg(&top));
    assert!(output.status.success(), "{output:?}");
    let content = fs::read(top.join("dir/file")).unwrap_or_default();
    unmount(&place);
    check(&image);
    content == b"text"
}

#[test]
fn sync_puts_everything_on_the_image() {
    if !can_mount() {
        return;
    }
    assert!(after_kill(|place| {
        succeed(finefs().arg("sync").arg(place.mount_point()));
    }));
    assert!(after_kill(|place| {
        let mut remount = finefs();
        remount
            .args(["mount", "-o", "remount,ro"])
            .arg(place.mount_point());
        succeed(&mut remount);
    }));
    assert!(!after_kill(|_| {}), "it was on the image by chance");
}

/// Root has no access to such a mount, but may change its flags: all of it is done, or nothing.
#[test]
fn root_remounts_what_another_user_has_mounted() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    give_to_user(&place, &image);
    let script = r#"
        set -e
        cd "$PLACE"
        has() { findmnt -no OPTIONS mnt | grep -q "^$1,"; }
        on_image() {
            cp image copy
            e2fsck -fy copy > /dev/null 2>&1 || true
            test "$(debugfs -R "cat $1" copy 2> /dev/null)" = $1
        }
        mke2fs -q -F -t ext4 -E root_owner=65534:65534 image
        user ./finefs mount -o commit=3600 image mnt
        if ls mnt 2> /dev/null; then echo "root can use it"; exit 1; fi
        user sh -c "echo synced > mnt/synced"
        ./finefs sync mnt
        on_image synced
        user sh -c "echo text > mnt/text"
        ./finefs remount -o ro mnt
        has ro
        on_image text
        if user touch mnt/more 2> /dev/null; then echo "it is writable"; exit 1; fi
        ./finefs remount -o rw mnt
        has rw
        user touch mnt/more
        user ./finefs umount mnt
        # Where root does not find its server, nothing changes.
        mkdir own
        chown 65534 own
        user env XDG_RUNTIME_DIR="$PLACE/own" ./finefs mount -o commit=3600 image mnt
        said=$(./finefs remount -o ro mnt 2>&1) && exit 1
        case $said in *"cannot become read-only: its server"*) ;; *) echo "$said"; exit 1;; esac
        has rw
        user touch mnt/again
        user env XDG_RUNTIME_DIR="$PLACE/own" ./finefs umount mnt
        # One that is read-only has nothing to write.
        user env XDG_RUNTIME_DIR="$PLACE/own" ./finefs mount -o ro image mnt
        ./finefs remount -o noexec mnt
        has ro
        findmnt -no OPTIONS mnt | grep -q noexec
        user env XDG_RUNTIME_DIR="$PLACE/own" ./finefs umount mnt
    "#;
    run_beside_user(&place, script);
    wait_for_image(&image);
    check(&image);
}

/// What is read-only at one place stays so there, and nowhere else.
#[test]
fn a_remount_of_a_read_only_bind_mount_is_about_that_place() {
    if !can_mount() {
        return;
    }
    let (place, bound) = (Place::new(), Place::new());
    let image = place.image("ext4");
    mount(&image, &place.mount_point(), &[]);
    let (top, bind) = (place.mount_point(), bound.mount_point());
    succeed(Command::new("mount").arg("--bind").arg(&top).arg(&bind));
    succeed(
        Command::new("mount")
            .args(["-o", "remount,bind,ro"])
            .arg(&bind),
    );
    let remount = |flags: &str, dir: &Path| {
        let mut command = finefs();
        command.args(["remount", "-o", flags]).arg(dir);
        command
    };
    let is_writable = |dir: &Path| fs::write(dir.join("file"), "text").is_ok();
    succeed(&mut remount("noexec", &bind));
    let shown = run(Command::new("findmnt").args(["-no", "OPTIONS"]).arg(&bind));
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.starts_with("ro,") && shown.contains("noexec"),
        "{shown}"
    );
    assert!(is_writable(&top) && !is_writable(&bind));
    let line = fail(&mut remount("sync", &bind));
    assert!(line.contains("read-only here alone"), "{line}");
    assert!(is_writable(&top) && !is_writable(&bind));
    succeed(&mut remount("rw", &bind));
    assert!(is_writable(&top) && is_writable(&bind));
    // Of the file system it is for all places, and goes again.
    succeed(&mut remount("ro", &top));
    assert!(!is_writable(&top) && !is_writable(&bind));
    succeed(&mut remount("nosuid", &bind));
    succeed(&mut remount("rw", &top));
    assert!(is_writable(&top) && is_writable(&bind));
    succeed(Command::new("umount").arg(&bind));
    unmount(&place);
    check(&image);
}
