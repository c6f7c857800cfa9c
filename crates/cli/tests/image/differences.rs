//! What `finefs diff` finds between images and directories, and what it does not.

use std::fs;

use crate::round_trip::{seeds, tree};
use crate::support::{Place, run_in};

#[test]
fn images_are_as_what_they_are_built_of() {
    for seed in 0..seeds() {
        let place = Place::new();
        tree(&place.path("source"), seed);
        place.ok(&["build", "-q", "image", "source"]);
        assert_eq!(place.ok(&["diff", "source", "image"]), "");
        place.ok(&["cp", "-a", "image:/.", "copy"]);
        assert_eq!(place.ok(&["diff", "image", "copy"]), "");
        place.ok(&["mkdir", "image:/further"]);
        place.ok(&["diff", "image:/further", "image:/further"]);
        let output = place.finefs(&["diff", "source", "image"]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1));
        // Making it has changed the time of the root.
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!((lines.len(), lines[1]), (2, "+ /further"), "{said}");
        assert!(lines[0].starts_with("M /: mtime 1234567890.987654321 -> "));
    }
}

#[test]
fn each_change_is_told_once() {
    let place = Place::new();
    fs::create_dir_all(place.path("source/d/e")).unwrap();
    for file in ["a", "b", "c", "d/f", "d/e/g"] {
        fs::write(place.path("source").join(file), [b'x'; 5000]).unwrap();
    }
    fs::hard_link(place.path("source/a"), place.path("source/linked")).unwrap();
    std::os::unix::fs::symlink("a", place.path("source/symlink")).unwrap();
    place.ok(&["build", "-q", "one", "source"]);
    fs::copy(place.path("one"), place.path("two")).unwrap();
    fs::write(
        place.path("changed"),
        [&[b'x'; 4096][..], &[b'y'; 904]].concat(),
    )
    .unwrap();
    for words in [
        &["chmod", "700", "two:/b"][..],
        &["chown", "7:8", "two:/b"],
        &["setfattr", "-n", "user.key", "-v", "value", "two:/b"],
        &["touch", "-d", "@1000000000", "two:/d/e"],
        &["cp", "changed", "two:/c"],
        &["rm", "two:/d/f"],
        &["mkdir", "two:/d/f"],
        &["rm", "-r", "two:/d/e/g"],
        &["cp", "--preserve=links", "two:/a", "two:/d/e/h"],
        &["rm", "two:/linked"],
        &["cp", "two:/a", "two:/linked"],
        &["rm", "two:/symlink"],
        &["ln", "-s", "b", "two:/symlink"],
    ] {
        place.ok(words);
    }
    let owner = place.ok(&["stat", "-c", "%u:%g", "one:/b"]);
    let differ = |words: &[&str], status| {
        let words = [&["diff"], words].concat();
        let output = place.finefs(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let said = differ(&["--no-mtime", "one", "two"], 1);
    let mode = place.ok(&["stat", "-c", "%a", "one:/b"]);
    let changed_b = format!(
        "M /b: mode 0{} -> 0700, owner {} -> 7:8, user.key none -> value",
        mode.trim(),
        owner.trim()
    );
    let wanted = [
        changed_b.as_str(),
        "M /c: content from byte 4096 on",
        "- /d/e/g",
        "+ /d/e/h",
        "M /d/f: type regular file -> directory",
        "M /linked: link /a -> /linked",
        "M /symlink: target a -> b",
    ];
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines, wanted);
    assert_eq!(differ(&["-q", "one", "two"], 1), "");
    let json = differ(&["--json", "--no-mtime", "one:/b", "two:/b"], 1);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value[0]["change"], "changed");
    assert_eq!(value[0]["aspects"][2]["to"], "value");
    let words = [
        "--no-mtime",
        "--no-owner",
        "--no-xattrs",
        "one:/b",
        "two:/b",
    ];
    assert_eq!(differ(&words, 1).matches(',').count(), 0);
    let said = place.fails(2, &["diff", "one", "nothing"]);
    assert!(said.contains("nothing: no such file"), "{said}");
}

#[test]
fn what_is_excluded_is_no_difference() {
    let place = Place::new();
    place.image("image", "ext4", 16);
    fs::create_dir_all(place.path("tree/kept")).unwrap();
    fs::write(place.path("tree/a.o"), "").unwrap();
    let options = ["diff", "-rN", "--no-mtime", "--no-owner", "image", "tree"];
    let all = place.finefs(&options).output().unwrap();
    let all = String::from_utf8(all.stdout).unwrap();
    assert!(all.contains("+ /a.o") && all.contains("+ /kept"), "{all}");
    let excluded = [&options[..], &["-x", "none", "--exclude=*.o"]].concat();
    let output = place.finefs(&excluded).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "+ /kept\n");
    assert_eq!(output.status.code(), Some(1));
    place.ok(&[&excluded[..], &["-x", "kept"]].concat());
    // What cannot be printed is trouble, as with diff(1).
    for form in [&[][..], &["--json"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        let words = [&options[..], form].concat();
        let status = place.finefs(&words).stdout(full.unwrap()).status();
        assert_eq!(status.unwrap().code(), Some(2), "{form:?}");
    }
    // Who reads a layer may go at any time.
    let script = format!(
        "{} diff --oci - image tree 2>said | head -c 1 >/dev/null; test ! -s said",
        env!("CARGO_BIN_EXE_finefs")
    );
    fs::write(place.path("tree/large"), vec![7; 4 << 20]).unwrap();
    run_in(&place.path("."), &script);
}
