//! `finefs lsattr`, `finefs chattr` and `finefs trim`, judged by debugfs and e2fsck.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use crate::support::{Place, assert_clean, debugfs};

#[test]
fn flags_are_changed_and_listed() {
    for kind in ["ext2", "ext4"] {
        let place = Place::new();
        let image = place.image("image", kind, 16);
        place.ok(&["mkdir", "-p", "image:/dir/sub"]);
        place.ok(&["touch", "image:/dir/file", "image:/dir/.hidden"]);
        place.ok(&["ln", "-s", "file", "image:/dir/link"]);
        place.ok(&["chattr", "+iA", "image:/dir/file"]);
        place.ok(&["chattr", "-R", "+d", "image:/dir/sub"]);
        assert_clean(&image);
        let listed = place.ok(&["lsattr", "image:/dir"]);
        let lines: Vec<&str> = listed.lines().collect();
        let extents = if kind == "ext4" { 'e' } else { '-' };
        assert_eq!(
            lines,
            [
                format!("----i--A------{extents}------- image:/dir/file"),
                format!("------d-------{extents}------- image:/dir/sub"),
            ]
        );
        assert_eq!(
            place.ok(&["lsattr", "-aR", "image:/dir"]).lines().count(),
            7
        );
        assert_eq!(place.ok(&["lsattr", "-d", "image:/dir"]).lines().count(), 1);
        let json = place.ok(&["lsattr", "--json", "image:/dir/file"]);
        assert!(json.contains("\"flags\": \"iA"), "{json}");
        let stat = debugfs(&image, "stat /dir/file");
        let bits = if kind == "ext4" { "0x80090" } else { "0x90" };
        assert!(stat.contains(&format!("Flags: {bits}")), "{stat}");

        let refused = place.finefs(&["rm", "image:/dir/file"]).output().unwrap();
        assert!(!refused.status.success());
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains("operation not permitted"), "{said}");
        place.ok(&["chattr", "-i", "image:/dir/file"]);
        place.ok(&["rm", "image:/dir/file"]);
        assert_clean(&image);
    }
}

#[test]
fn files_count_for_projects() {
    let place = Place::new();
    let image = place.image_with(
        "image",
        16,
        &["-t", "ext4", "-I", "256", "-O", "project,quota"],
    );
    place.ok(&["mkdir", "image:/dir"]);
    place.ok(&["touch", "image:/dir/file"]);
    place.ok(&["chattr", "-R", "-p", "7", "image:/dir"]);
    place.ok(&["chattr", "+Pd", "-p", "8", "image:/dir"]);
    let shown = place.ok(&["lsattr", "-pd", "image:/dir", "image:/dir/file"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(
        lines[0].starts_with("    8 ") && lines[0].contains('P'),
        "{shown}"
    );
    assert!(lines[1].starts_with("    7 "), "{shown}");
    place.ok(&["touch", "image:/dir/new"]);
    assert!(
        place
            .ok(&["lsattr", "-p", "image:/dir/new"])
            .starts_with("    8 ")
    );
    let stat = debugfs(&image, "stat /dir/file");
    assert!(stat.contains("Project:     7"), "{stat}");
    let json = place.ok(&["lsattr", "-d", "--json", "image:/dir"]);
    assert!(json.contains("\"project\": 8"), "{json}");
    assert_clean(&image);
    let said = place.fails(1, &["chattr", "y", "image:/dir"]);
    assert!(said.contains("the flags begin with +, - or ="), "{said}");
    // With a project only, the first may be a name of any bytes.
    place.ok(&["touch", "image:/bad"]);
    let name = OsStr::from_bytes(b"image:/bad\xff");
    place
        .finefs(&["mv", "image:/bad"])
        .arg(name)
        .status()
        .unwrap();
    let done = place.finefs(&["chattr", "-p", "9"]).arg(name).output();
    assert!(done.as_ref().unwrap().status.success(), "{done:?}");
    let shown = place.finefs(&["lsattr", "-p"]).arg(name).output().unwrap();
    assert!(shown.stdout.starts_with(b"    9 "), "{shown:?}");
    place.image("plain", "ext4", 16);
    place.fails(1, &["chattr", "-p", "7", "plain:/lost+found"]);
    let said = place.fails(1, &["quota", "plain"]);
    assert!(said.contains("keeps no such quota"), "{said}");
}

#[test]
fn what_has_no_flags_is_told() {
    let place = Place::new();
    place.image("image", "ext4", 16);
    place.ok(&["ln", "-s", "nowhere", "image:/link"]);
    for (arguments, said) in [
        (["chattr", "+i", "image:/link"], "has no flags"),
        (["chattr", "+i", "image:/none"], "no such file"),
        (["chattr", "+e", "image:/link"], "cannot be changed"),
        (["chattr", "+y", "image:/link"], "no flag 'y'"),
        (["chattr", "+D", "image:/file"], "not supported"),
    ] {
        place.ok(&["touch", "image:/file"]);
        let output = place.finefs(&arguments).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(message.contains(said), "{arguments:?}: {message}");
    }
}

#[test]
fn trim_makes_an_image_sparse_where_nothing_is_in_it() {
    let place = Place::new();
    let image = place.image("image", "ext4", 64);
    let taken = || std::fs::metadata(&image).unwrap().blocks() / 2048;
    std::fs::write(place.path("large"), vec![1; 16 << 20]).unwrap();
    place.ok(&["cp", "large", "image:/large"]);
    place.ok(&["cp", "large", "image:/kept"]);
    place.ok(&["rm", "image:/large"]);
    let before = taken();
    let said = place.ok(&["trim", "-v", "image"]);
    assert!(said.contains("trimmed"), "{said}");
    assert!(taken() + 14 <= before, "{before} to {}", taken());
    assert_clean(&image);
    assert!(place.ok(&["cat", "image:/kept"]).len() == 16 << 20);
}
