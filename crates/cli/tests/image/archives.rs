//! Archives that are written of images hold what those hold: GNU tar unpacks them, and images that
//! are built of them are archived as the same bytes again.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use crate::round_trip::{seeds, tree};
use crate::support::{Place, assert_clean, assert_same, bytes_of, is_root, run, snapshot};

/// What tree() does not make: names, links and numbers that only extended headers hold.
fn add_odd_files(place: &Place) {
    let long = "n".repeat(120);
    let deep = place.path("source").join(&long).join(&long);
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "deep").unwrap();
    symlink("t".repeat(300), deep.join("link")).unwrap();
    for (name, size) in [("hole", 5 << 20), ("empty", 0)] {
        File::create(deep.join(name))
            .unwrap()
            .set_len(size)
            .unwrap();
    }
    if is_root() {
        std::os::unix::fs::chown(deep.join("file"), Some(3_000_000_000), Some(70_000)).unwrap();
    }
}

#[test]
fn archives_hold_what_images_hold() {
    for seed in 0..seeds() {
        let place = Place::new();
        tree(&place.path("source"), seed);
        add_odd_files(&place);
        place.ok(&["build", "-q", "image", "source"]);
        place.ok(&["tar", "-cf", "archive", "image"]);
        let archive = bytes_of(&place.path("archive"));
        let streamed = place.finefs(&["tar", "-c", "image"]).output().unwrap();
        assert!(streamed.status.success() && streamed.stdout == archive);
        place.ok(&["build", "-q", "again", "archive"]);
        assert_clean(&place.path("again"));
        place.ok(&["tar", "-cf", "archive-again", "again"]);
        assert!(bytes_of(&place.path("archive-again")) == archive);
        if is_root() {
            let out = place.path("out");
            fs::create_dir(&out).unwrap();
            let archive = place.path("archive");
            let words = [
                "--xattrs",
                "--xattrs-include=*",
                "--acls",
                "--numeric-owner",
                "-xf",
            ];
            let mut words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
            words.extend([archive.as_os_str(), OsStr::new("-C"), out.as_os_str()]);
            let output = run("tar", &words);
            assert!(output.status.success(), "{output:?}");
            assert_same(&snapshot(&place.path("source")), &snapshot(&out));
        }
    }
}

#[test]
fn archives_are_compressed_as_asked() {
    let place = Place::new();
    tree(&place.path("source"), 3);
    place.ok(&["build", "-q", "image", "source"]);
    place.ok(&["tar", "-cf", "plain", "image"]);
    place.ok(&["build", "-q", "of-plain", "plain"]);
    let wanted = bytes_of(&place.path("of-plain"));
    for (words, start) in [
        (&["-czf", "packed"][..], &[0x1f, 0x8b][..]),
        (&["-cJf", "packed"], b"\xfd7zXZ"),
        (&["-c", "--zstd", "-f", "packed"], &[0x28, 0xb5]),
        (&["-caf", "packed.tar.zst"], &[0x28, 0xb5]),
        (&["cfz", "letters.tar.gz"], &[0x1f, 0x8b]),
        (
            &["--xattrs", "--acls", "-Spzcf", "kept.tar.gz"],
            &[0x1f, 0x8b],
        ),
    ] {
        place.ok(&[&["tar"], words, &["image"]].concat());
        let packed = words.last().unwrap();
        assert!(
            bytes_of(&place.path(packed)).starts_with(start),
            "{words:?}"
        );
        place.ok(&["build", "-qF", "of-packed", packed]);
        assert!(bytes_of(&place.path("of-packed")) == wanted, "{words:?}");
    }
}

#[test]
fn parts_of_images_have_the_names_that_they_have_there() {
    let place = Place::new();
    fs::create_dir_all(place.path("source/etc/inner")).unwrap();
    fs::write(place.path("source/etc/inner/first"), "1").unwrap();
    fs::hard_link(
        place.path("source/etc/inner/first"),
        place.path("source/second"),
    )
    .unwrap();
    let _socket = UnixListener::bind(place.path("source/etc/socket")).unwrap();
    place.ok(&["build", "-q", "image", "source"]);
    let output = place
        .finefs(&[
            "tar",
            "-cf",
            "archive",
            "image:/etc/inner",
            "image:/etc",
            "image:/second",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("image:/etc/socket: a socket") && said.lines().count() == 1);
    let archive = place.path("archive");
    let output = run("tar", &[OsStr::new("-tvf"), archive.as_os_str()]);
    let listed = String::from_utf8(output.stdout).unwrap();
    // With an hour and a space before the name.
    let name = |line: &str| line[line.find(':').unwrap() + 4..].to_owned();
    let names: Vec<String> = listed.lines().map(name).collect();
    let wanted = [
        "etc/inner/",
        "etc/inner/first",
        "etc/",
        "etc/inner/",
        "etc/inner/first link to etc/inner/first",
        "second link to etc/inner/first",
    ];
    assert_eq!(names, wanted);
}

#[test]
fn archives_that_cannot_be_written_leave_nothing() {
    let place = Place::new();
    tree(&place.path("source"), 1);
    place.ok(&["build", "-q", "image", "source"]);
    fs::write(place.path("archive"), "as it was").unwrap();
    for (words, part) in [
        (
            &["-cf", "archive", "image:/nothing"][..],
            "image:/nothing: no such file",
        ),
        (
            &["-cf", "archive", "image", "nothing"],
            "nothing: no such file",
        ),
        (
            &["-cf", "nowhere/archive", "image"],
            "nowhere/archive: No such file",
        ),
        (&["-cf", "/dev/full", "image"], "/dev/full: No space left"),
    ] {
        let said = place.fails(1, &[&["tar"], words].concat());
        assert!(said.contains(part) && said.lines().count() == 1, "{said}");
    }
    assert_eq!(bytes_of(&place.path("archive")), b"as it was");
    let names = fs::read_dir(place.path("")).unwrap();
    let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(!names.any(|name| name.starts_with(".archive")));
    place.fails(2, &["tar", "-f", "archive", "image"]);
}
