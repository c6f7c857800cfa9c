//! The commands that read, beside coreutils on the kernel's mount; the image stays as it is.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use crate::support::{KernelMount, Place, assert_clean, bytes_of, is_root, run};

/// An image with something of everything.
fn filled(place: &Place) {
    place.image_with("image", 64, &["-t", "ext4", "-b", "4096"]);
    fs::create_dir_all(place.path("tree/sub/empty")).unwrap();
    fs::write(place.path("tree/one"), "1").unwrap();
    fs::write(place.path("tree/sub/big"), vec![7; 300_000]).unwrap();
    fs::write(place.path("tree/.hidden"), "").unwrap();
    let sparse = fs::File::create(place.path("tree/sub/sparse")).unwrap();
    sparse.set_len(5 << 20).unwrap();
    std::os::unix::fs::symlink("one", place.path("tree/link")).unwrap();
    fs::hard_link(place.path("tree/one"), place.path("tree/sub/two")).unwrap();
    place.ok(&["cp", "-a", "tree/.", "image:/"]);
    place.ok(&["chown", "4012:4013", "image:/one"]);
    place.ok(&["chmod", "6711", "image:/sub/big"]);
    place.ok(&["touch", "-d", "@1000000000.123456789", "image:/sub/big"]);
}

/// What a program prints in the mount, with the image's name for the dot of paths.
fn kernel(mount: &KernelMount, program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&mount.dir);
    command.env("TZ", "UTC").env("LC_ALL", "C");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn output_is_that_of_coreutils() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    filled(&place);
    let mount = KernelMount::new(&place, &place.path("image"), "ro");
    let with_image = |text: String| text.replace("./", "image:/");
    for arguments in [
        &["-la"][..],
        &["-lan", "--full-time"],
        &["-laih"],
        &["-AS1"],
        &["-t", "-r"],
        &["-F"],
        &["-d"],
        &["-lA", "-U"],
    ] {
        let ours = place.ok(&[&["ls"], arguments, &["image:/sub"]].concat());
        let theirs = kernel(&mount, "ls", &[arguments, &["sub"]].concat());
        match arguments {
            ["-d"] => assert_eq!(ours, "image:/sub\n"),
            [_, "-U"] => assert_eq!(sorted(&ours), sorted(&theirs), "{arguments:?}"),
            _ => assert_eq!(ours, theirs, "{arguments:?}"),
        }
    }
    let format = "%a %A %f %u %g %s %b %B %h %i %F %X %Y %Z %x %y %z %t %T [%-8s] [%08s] %%";
    for file in ["one", "sub", "sub/big", "link", "sub/sparse", ".hidden"] {
        let ours = place.ok(&["stat", "-c", format, &format!("image:/{file}")]);
        assert_eq!(ours, kernel(&mount, "stat", &["-c", format, file]));
    }
    for arguments in [
        // Which link of a file counts depends on the order of directories.
        &["-l", "-a"][..],
        &["-l", "-h"],
        &["-s"],
        &["-l", "-b"],
        &["-l", "-d", "1"],
        &["-l", "-a", "--apparent-size"],
    ] {
        let ours = place.ok(&[&["du"], arguments, &["image:/"]].concat());
        let theirs = kernel(&mount, "du", &[arguments, &["."]].concat());
        let theirs = with_image(theirs).replace("\t.\n", "\timage:/\n");
        assert_eq!(sorted(&ours), sorted(&theirs), "{arguments:?}");
    }
    for expression in [
        "-type f",
        "-name *i*",
        "-size +100k",
        "-size -2",
        "-perm -4000",
        "-perm /022",
        "-perm 755",
        "-user 4012",
        "-links 2",
        "-empty",
        "! -type d -o -name sub",
        "-mtime +1000",
        "( -type d -o -type l ) -name *n*",
        "-maxdepth 1",
        "-mindepth 2 -depth",
        "-newermt 2002-01-01",
        "-name sub -prune -o -print",
        "-path */sub/*",
        "-iname BIG -size +1k -a -size -400k",
        "-uid +5",
    ] {
        let words: Vec<&str> = expression.split(' ').collect();
        let ours = place.ok(&[&["find", "image:/"], &words[..]].concat());
        let words: Vec<&str> = words
            .iter()
            .map(|word| if *word == "*/sub/*" { "./sub/*" } else { word })
            .collect();
        let theirs = kernel(&mount, "find", &[&["."], &words[..]].concat());
        let theirs = with_image(theirs).replace(".\n", "image:/\n");
        assert_eq!(sorted(&ours), sorted(&theirs), "{expression}");
    }
    let ours = place
        .finefs(&["find", "image", "-type", "f", "-print0"])
        .output()
        .unwrap();
    assert_eq!(ours.stdout.iter().filter(|byte| **byte == 0).count(), 5);
}

#[test]
fn free_space_is_that_of_df() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    filled(&place);
    let fields = |text: String| -> Vec<String> {
        let last = text.lines().last().unwrap().to_owned();
        last.split_whitespace()
            .skip(1)
            .take(2)
            .map(str::to_owned)
            .collect()
    };
    let ours = ["-h", "-i", "--offset=0"].map(|option| fields(place.ok(&["df", option, "image"])));
    let mount = KernelMount::new(&place, &place.path("image"), "ro");
    let theirs = ["-h", "-i", "-k"].map(|option| fields(kernel(&mount, "df", &[option, "."])));
    assert_eq!(ours, theirs);
}

#[test]
fn scripts_read_json() {
    let place = Place::new();
    filled(&place);
    for arguments in [
        &["ls", "--json", "image:/"][..],
        &["stat", "--json", "image:/one", "image:/link"],
        &["find", "image:/", "-type", "f", "--json"],
        &["find", "--json", "image:/", "-type", "f"],
        &["du", "--json", "-a", "image:/"],
        &["df", "--json", "image"],
    ] {
        let text = place.ok(arguments);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let first = &value.as_array().unwrap()[0];
        assert!(first.get("path").or(first.get("image")).is_some(), "{text}");
    }
    let text = place.ok(&["stat", "--json", "image:/sub/big"]);
    assert!(
        text.contains("\"mtime\": \"2001-09-09T01:46:40.123456789Z\""),
        "{text}"
    );
    assert!(text.contains("\"mode\": \"6711\""), "{text}");
}

#[test]
fn a_tree_is_drawn() {
    let place = Place::new();
    filled(&place);
    let expected = "image:/\n├── link -> one\n├── lost+found\n├── one\n└── sub\n    ├── big\n    \
                    ├── empty\n    ├── sparse\n    └── two\n\n3 directories, 5 files\n";
    assert_eq!(place.ok(&["tree", "image"]), expected);
    assert!(
        place
            .ok(&["tree", "-dL1", "image"])
            .ends_with("\n\n2 directories\n")
    );
}

/// Every command that reads.
const READERS: [&[&str]; 10] = [
    &["ls", "-laR", "image:/"],
    &["tree", "image:/"],
    &["stat", "image:/"],
    &["cat", "image:/file"],
    &["find", "image:/", "-ls"],
    &["du", "-a", "image:/"],
    &["df", "image"],
    &["getfattr", "-d", "-m", "-", "image:/file"],
    &["cp", "image:/file", "-"],
    &["cp", "-a", "image:/dir", "out"],
];

/// A journal that has not been replayed is read as if it had been, and stays as it is.
#[test]
fn a_dirty_image_is_read_and_not_touched() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let live = place.image("live", "ext4", 64);
    {
        let mount = KernelMount::new(&place, &live, "rw");
        fs::create_dir(mount.dir.join("dir")).unwrap();
        for number in 0..200 {
            fs::write(mount.dir.join(format!("dir/{number}")), format!("{number}")).unwrap();
        }
        fs::write(mount.dir.join("file"), "in the journal").unwrap();
        run("sync", &[OsStr::new("-f"), mount.dir.as_os_str()]);
        // What the device has now is what a power loss would leave.
        fs::copy(&live, place.path("image")).unwrap();
    }
    let info = place.ok(&["info", "image"]);
    assert!(info.contains("recover"), "{info}");
    let before = bytes_of(&place.path("image"));
    let times = |name: &str| fs::metadata(place.path(name)).unwrap().modified().unwrap();
    let time = times("image");
    for arguments in READERS {
        place.ok(arguments);
        assert!(bytes_of(&place.path("image")) == before, "{arguments:?}");
    }
    assert_eq!(times("image"), time);
    assert_eq!(place.ok(&["cat", "image:/file"]), "in the journal");
    assert_eq!(fs::read_dir(place.path("out")).unwrap().count(), 200);
    assert_eq!(fs::read(place.path("out/199")).unwrap(), b"199");
    // An edit replays it for good.
    place.ok(&["rm", "image:/file"]);
    assert_clean(&place.path("image"));
}

#[test]
fn an_image_that_may_only_be_read_is_read() {
    let place = Place::new();
    let image = place.image("image", "ext4", 32);
    place.with_input(&["cp", "-", "image:/file"], b"contents");
    place.ok(&["mkdir", "image:/dir"]);
    let before = bytes_of(&image);
    let mut permissions = fs::metadata(&image).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&image, permissions).unwrap();
    for arguments in READERS {
        place.ok(arguments);
    }
    assert!(bytes_of(&image) == before);
}

/// `| head` is no error, and a full disk is.
#[test]
fn readers_may_go_and_disks_may_be_full() {
    let place = Place::new();
    filled(&place);
    for arguments in [
        &["find", "image"][..],
        &["cat", "image:/sub/big"],
        &["ls", "-lR", "image"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = place.finefs(arguments).stdout(writer).output().unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{output:?}"
        );
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = place.finefs(arguments).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            said.contains("standard output: No space left on device"),
            "{said}"
        );
    }
}
