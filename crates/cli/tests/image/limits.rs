//! Where something stands in the way: append-only directories, immutable files, names of whiteouts,
//! packings that there are not, operands that are missing, and terminals.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use crate::support::{Place, assert_clean};

/// Names can be added to an append-only directory; nothing is left where more is asked.
#[test]
fn append_only_directories_are_added_to() {
    let place = Place::new();
    let image = place.image("image", "ext4", 32);
    fs::write(place.path("one"), "1").unwrap();
    fs::write(place.path("two"), "22").unwrap();
    fs::create_dir_all(place.path("d/e")).unwrap();
    fs::write(place.path("d/e/f"), "f").unwrap();
    place.ok(&["mkdir", "image:/log"]);
    place.ok(&["chattr", "+a", "image:/log"]);
    place.ok(&["cp", "one", "two", "image:/log"]);
    place.ok(&["cp", "-a", "d", "image:/log"]);
    let input = place.with_input(&["cp", "-", "image:/log/in"], b"input");
    assert!(input.status.success(), "{input:?}");
    assert_eq!(
        place.ok(&["cat", "image:/log/one", "image:/log/in"]),
        "1input"
    );
    // What is there is written where it is.
    place.ok(&["cp", "two", "image:/log/one"]);
    let input = place.with_input(&["cp", "-", "image:/log/in"], b"in");
    assert!(input.status.success(), "{input:?}");
    assert_eq!(
        place.ok(&["cat", "image:/log/one", "image:/log/in"]),
        "22in"
    );
    place.fails(1, &["cp", "-lf", "image:/log/two", "image:/log/one"]);
    symlink("two", place.path("link")).unwrap();
    place.fails(1, &["cp", "-P", "link", "image:/log/one"]);
    assert_eq!(
        place.ok(&["find", "image:/log", "-mindepth", "1", "-printf", "%P\\n"]),
        "d\nd/e\nd/e/f\nin\none\ntwo\n"
    );
    place.ok(&["chattr", "+a", "image:/log/one"]);
    place.ok(&["touch", "image:/log/one"]);
    place.fails(1, &["touch", "-d", "2001-01-01", "image:/log/one"]);
    assert_clean(&image);
}

#[test]
fn what_cannot_be_removed_is_named_and_the_rest_goes() {
    let place = Place::new();
    let image = place.image("image", "ext4", 32);
    place.ok(&["mkdir", "-p", "image:/t/a", "image:/t/z"]);
    place.ok(&[
        "touch",
        "image:/t/a/kept",
        "image:/t/a/gone",
        "image:/t/z/gone",
    ]);
    place.ok(&["chattr", "+i", "-A", "+d", "image:/t/a/kept"]);
    assert_eq!(
        place.fails(1, &["rm", "-r", "image:/t"]),
        "finefs rm: image:/t/a/kept: operation not permitted\n"
    );
    assert_eq!(
        place.ok(&["find", "-P", "image:/t"]),
        "image:/t\nimage:/t/a\nimage:/t/a/kept\n"
    );
    place.fails(1, &["chattr", "+d", "-d", "image:/t/a"]);
    place.ok(&["chattr", "-R", "-i", "-d", "image:/t"]);
    place.ok(&["rm", "-r", "image:/t"]);
    assert_clean(&image);
}

/// A file whose name is that of a whiteout would hide others where the layer is unpacked.
#[test]
fn layers_have_no_files_that_look_like_whiteouts() {
    let place = Place::new();
    fs::create_dir_all(place.path("one/d")).unwrap();
    fs::write(place.path("one/.wh.same"), "same").unwrap();
    for (name, file) in [
        ("two", "d/.wh..wh..opq"),
        ("three", "new/sub/.wh.x"),
        ("four", "new"),
    ] {
        place.ok(&["build", "-q", "-F", &format!("{name}.img"), "one"]);
        fs::create_dir_all(place.path(name).join(file).parent().unwrap()).unwrap();
        fs::write(place.path(name).join(file), "").unwrap();
        place.ok(&["build", "-q", "--onto", &format!("{name}.img"), name]);
        let arguments = ["diff", "--oci", "layer.tar", "one", &format!("{name}.img")];
        if name == "four" {
            place.ok(&arguments);
            continue;
        }
        let said = place.fails(2, &arguments);
        assert!(
            said.contains(&format!("/{file}: a layer cannot have")),
            "{said}"
        );
        assert!(!place.path("layer.tar").exists());
    }
    // What would be taken away by a whiteout of a whiteout.
    fs::create_dir_all(place.path("none/d")).unwrap();
    place.fails(2, &["diff", "--oci", "other.tar", "one", "none"]);
    for name in ["x.tar.bz2", "x.tbz", "x.tar.lz4", "x.tar.Z"] {
        for words in [
            &["diff", "--oci", name, "one", "two"][..],
            &["tar", "-caf", name, "two.img"],
        ] {
            let said = place.fails(2, words);
            assert!(said.contains("there is no "), "{said}");
            assert!(!place.path(name).exists(), "{name}");
        }
    }
    // What is missing fails it, and the rest goes in.
    place.fails(2, &["tar", "-cf", "some", "two.img:/none", "two.img:/d"]);
    assert_eq!(place.ok(&["tar", "-tf", "some"]), "d/\nd/.wh..wh..opq\n");
}

/// Names come byte for byte, but on a terminal nothing in them is a command to it.
#[test]
fn names_do_not_change_a_terminal() {
    let place = Place::new();
    place.image("image", "ext4", 32);
    fs::write(place.path("one"), "1").unwrap();
    let odd = OsStr::from_bytes(b"bad\xff");
    fs::write(place.path("").join(odd), "1").unwrap();
    let copied = place.finefs(&["cp", "-v"]).arg(odd).arg("image:/").output();
    assert_eq!(copied.unwrap().stdout, b"'bad\xff' -> 'image:/bad\xff'\n");
    let json = place.ok(&["lsattr", "--json", "image:/"]);
    assert!(
        json.contains("\"path_hex\": \"696d6167653a2f626164ff\""),
        "{json}"
    );
    place.ok(&["mkdir", "image:/d"]);
    place.ok(&["ln", "-s", "d", "image:/to"]);
    place.ok(&["cp", "one", "image:/d/a\u{1b}b"]);
    assert_eq!(
        place.ok(&["find", "-H", "image:/to"]),
        "image:/to\nimage:/to/a\u{1b}b\n"
    );
    place.ok(&["tar", "-cf", "archive", "image:/d"]);
    let finefs = env!("CARGO_BIN_EXE_finefs");
    for line in [
        "find image:/d",
        "find image:/d -printf '%p %f\\n'",
        "find image:/d -ls",
        "du -a image:/d",
        "lsattr image:/d",
        "tar -tf archive",
        "tar -tvf archive",
        "tar -cvf again image:/d",
        "diff image:/d image:/lost+found",
        "chmod -v 600 image:/d/a*",
        "cp -v image:/d/a* copy",
        "mkdir -v \"$(printf 'image:/m\\033b')\"",
        "rm -v image:/d/a*",
    ] {
        let mut script = Command::new("script");
        script.args(["-q", "-c", &format!("{finefs} {line}"), "/dev/null"]);
        script.current_dir(place.path("")).stdin(Stdio::null());
        let shown = script.output().unwrap().stdout;
        let shown = String::from_utf8_lossy(&shown);
        assert!(
            shown.contains("?b") && !shown.contains("\u{1b}b"),
            "{line}: {shown:?}"
        );
    }
}
