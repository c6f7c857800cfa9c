//! Archives and other sources go into images that are there, as tar -x does, and onto devices; what
//! cannot be put there leaves everything as it was.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use finefs_sim::LoopDevice;
use rustix::process::{Pid, Signal, kill_process};

use crate::round_trip::{seeds, tree};
use crate::support::{KernelMount, Place, assert_clean, assert_same, is_root, snapshot};

/// What an image holds, by an archive of it.
fn contents(place: &Place, image: &str) -> Vec<u8> {
    let output = place.finefs(&["tar", "-c", image]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

#[test]
fn archives_are_put_into_images_with_all_that_they_hold() {
    for seed in 0..seeds() {
        let place = Place::new();
        tree(&place.path("source"), seed);
        place.ok(&["build", "-q", "built", "source"]);
        place.ok(&["tar", "-cf", "archive", "built"]);
        let kind = ["ext4", "ext3", "ext2"][seed as usize % 3];
        place.image_with("image", 200, &["-t", kind, "-I", "256"]);
        // The second time everything is replaced.
        for _ in 0..2 {
            place.ok(&["tar", "-xf", "archive", "image"]);
            assert_clean(&place.path("image"));
            assert_eq!(place.ok(&["diff", "image", "source"]), "");
        }
        let archive = fs::read(place.path("archive")).unwrap();
        place.ok(&["mkdir", "image:/inside"]);
        let output = place.with_input(&["tar", "-x", "image:/inside"], &archive);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(place.ok(&["diff", "image:/inside", "source"]), "");
        place.ok(&["rm", "-r", "image:/inside"]);
        assert_clean(&place.path("image"));
        if is_root() {
            let mount = KernelMount::new(&place, &place.path("image"), "ro");
            let mut there = snapshot(&mount.dir);
            let mut source = snapshot(&place.path("source"));
            // rm has changed the time of the root.
            there.remove(Path::new(""));
            source.remove(Path::new(""));
            assert_same(&source, &there);
        }
    }
}

/// An image with directories, links to them, and files; and a directory to lay over it.
fn base_and_overlay(place: &Place) {
    for dir in ["base/usr/lib", "base/empty", "base/full", "over/lib/sub"] {
        fs::create_dir_all(place.path(dir)).unwrap();
    }
    fs::set_permissions(place.path("base/usr"), PermissionsExt::from_mode(0o711)).unwrap();
    symlink("/usr/lib", place.path("base/lib")).unwrap();
    for (file, text) in [
        ("base/usr/lib/a", "old"),
        ("base/usr/lib/b", "kept"),
        ("base/full/file", "in the way"),
        ("over/lib/a", "new"),
        ("over/lib/sub/c", "added"),
        ("over/empty", "a file now"),
    ] {
        fs::write(place.path(file), text).unwrap();
    }
    let hard = |from: &str, to: &str| fs::hard_link(place.path(from), place.path(to)).unwrap();
    hard("base/usr/lib/a", "base/usr/lib/old-a");
    hard("over/lib/a", "over/second");
    place.ok(&["build", "-q", "--free", "8m", "-N", "64", "image", "base"]);
}

#[test]
fn sources_join_what_is_there() {
    let place = Place::new();
    base_and_overlay(&place);
    let said = place.ok(&["build", "--json", "--onto", "image", "over"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&said["files"], &said["data_bytes"]),
        (&5.into(), &18.into())
    );
    assert_clean(&place.path("image"));
    let cat = |file: &str| place.ok(&["cat", &format!("image:{file}")]);
    assert_eq!(cat("/usr/lib/a"), "new");
    assert_eq!(
        cat("/usr/lib/old-a"),
        "old",
        "other links keep what they had"
    );
    assert_eq!(cat("/usr/lib/b"), "kept");
    assert_eq!(cat("/lib/sub/c"), "added");
    assert_eq!(cat("/empty"), "a file now");
    assert_eq!(place.ok(&["stat", "-c", "%h", "image:/second"]), "2\n");
    assert_eq!(
        place.ok(&["stat", "-c", "%F", "image:/lib"]),
        "symbolic link\n"
    );
    // No source names it.
    assert_eq!(place.ok(&["stat", "-c", "%a", "image:/usr"]), "711\n");
    // Over itself it is the same again, and into a directory with another owner.
    let before = contents(&place, "image");
    place.ok(&["build", "-q", "--onto", "image", "over"]);
    assert!(contents(&place, "image") == before);
    place.ok(&[
        "build",
        "-q",
        "--owner",
        "7:8",
        "--onto",
        "image:/full",
        "over",
    ]);
    assert_eq!(
        place.ok(&["stat", "-c", "%u:%g", "image:/full/second"]),
        "7:8\n"
    );
    assert_clean(&place.path("image"));
}

#[test]
fn what_cannot_be_put_into_an_image_leaves_it_as_it_was() {
    let place = Place::new();
    base_and_overlay(&place);
    let before = contents(&place, "image");
    fs::create_dir(place.path("bad")).unwrap();
    fs::write(place.path("bad/full"), "a file").unwrap();
    fs::write(place.path("bad/aaa"), "comes first").unwrap();
    fs::create_dir(place.path("large")).unwrap();
    fs::write(place.path("large/aaa"), "comes first").unwrap();
    fs::write(place.path("large/b"), vec![1; 64 << 20]).unwrap();
    fs::create_dir(place.path("many")).unwrap();
    for number in 0..400 {
        fs::write(place.path(&format!("many/{number}")), "").unwrap();
    }
    fs::write(place.path("cut"), &before[..700]).unwrap();
    for (words, part) in [
        (
            &["build", "-q", "--onto", "image", "bad"][..],
            "image:/full: would replace",
        ),
        (
            &["build", "-q", "--onto", "image", "large"],
            "bytes more are needed",
        ),
        (
            &["build", "-q", "--onto", "image", "many"],
            "inodes more are needed",
        ),
        (
            &["build", "-q", "--onto", "image:/none", "over"],
            "image:/none: no such file",
        ),
        (&["tar", "-xf", "cut", "image"], "cut"),
        (&["tar", "-xf", "nothing", "image"], "nothing: No such file"),
    ] {
        let status = if words[0] == "tar" { 2 } else { 1 };
        let said = place.fails(status, words);
        assert!(
            said.contains(part) && said.lines().count() == 1,
            "{words:?}: {said}"
        );
        assert!(contents(&place, "image") == before, "{words:?}");
        assert_clean(&place.path("image"));
    }
    place.fails(2, &["build", "--onto", "--size", "9m", "image", "over"]);
    place.fails(2, &["build", "--onto", "-b", "1024", "image", "over"]);
}

#[test]
fn archives_are_listed_as_tar_lists_them() {
    let place = Place::new();
    tree(&place.path("source"), 2);
    place.ok(&["build", "-q", "image", "source"]);
    place.ok(&["tar", "-cf", "archive", "image"]);
    let archive = place.path("archive");
    for (flags, words) in [("-tf", &["-tf"][..]), ("-tvf", &["-tv", "-f"])] {
        let mut tar = Command::new("tar");
        tar.args(["--numeric-owner", "--quoting-style=literal", flags])
            .arg(&archive);
        let wanted = tar.env("TZ", "UTC").output().unwrap();
        assert!(wanted.status.success(), "{wanted:?}");
        let found = place.ok(&[&["tar"], words, &["archive"]].concat());
        // tar widens its columns as it goes.
        let squeezed = |text: &str| {
            text.split(' ')
                .filter(|part| !part.is_empty())
                .fold(String::new(), |all, part| all + " " + part)
        };
        let wanted = String::from_utf8_lossy(&wanted.stdout).into_owned();
        assert_eq!(squeezed(&found), squeezed(&wanted), "{flags}");
    }
    fs::write(place.path("text"), vec![b't'; 2000]).unwrap();
    let said = place.fails(2, &["tar", "-tf", "text"]);
    assert!(said.contains("tar archive"), "{said}");
}

/// One signal is enough also where nothing comes.
#[test]
fn a_build_that_waits_for_its_input_is_interrupted() {
    let place = Place::new();
    for words in [&["build", "-q", "image", "-"][..], &["tar", "-t"]] {
        let mut child = place.finefs(words).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"begun").unwrap();
        // It has read that when the pipe is empty, and has its signal handlers before.
        while rustix::io::ioctl_fionread(&input).unwrap() > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{words:?}");
        assert_eq!(fs::read_dir(place.path("")).unwrap().count(), 0);
    }
}

#[test]
fn devices_are_filled() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    tree(&place.path("source"), 5);
    let file = File::create(place.path("disk")).unwrap();
    file.set_len(100 << 20).unwrap();
    let device = LoopDevice::over(&place.path("disk")).unwrap();
    let name = device.path().to_str().unwrap();
    let said = place.fails(1, &["build", "-q", name, "source"]);
    assert!(said.contains("--force"), "{said}");
    place.ok(&["build", "-q", "--force", name, "source"]);
    assert_clean(&place.path("disk"));
    assert_eq!(place.ok(&["diff", name, "source"]), "");
    // What does not fit leaves no file system that looks like a good one.
    fs::create_dir(place.path("large")).unwrap();
    fs::write(place.path("large/file"), vec![1; 120 << 20]).unwrap();
    let said = place.fails(1, &["build", "-q", "--force", name, "large"]);
    assert!(said.contains("bytes more are needed"), "{said}");
    assert!(place.fails(1, &["stat", name]).contains("magic"));
    // mkfs -d does it too.
    place.ok(&["mkfs", "-q", "-d", "source", name]);
    assert_clean(&place.path("disk"));
    assert_eq!(place.ok(&["diff", name, "source"]), "");
    assert_eq!(fs::metadata(place.path("disk")).unwrap().size(), 100 << 20);
}
