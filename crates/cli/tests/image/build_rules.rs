//! What builds compute, leave out and refuse, beside what [`crate::build`] has.

use std::fs::{self, File};

use tar::{EntryType, Header};

use crate::round_trip::tree;
use crate::support::{Place, assert_clean, debugfs};

/// A tree of one small file, in `source`.
fn small(place: &Place) {
    fs::create_dir(place.path("source")).unwrap();
    fs::write(place.path("source/file"), "content").unwrap();
}

/// libarchive writes the mode without the ACL's mask.
#[test]
fn access_acls_of_archives_decide_over_modes() {
    let place = Place::new();
    let mut builder = tar::Builder::new(File::create(place.path("tar")).unwrap());
    let acl = "user::rwx,group::r-x,other::r-x,user:joe:rwx:1234,group:g:r-x:77,mask::rwx";
    let short = "user::rw-,group::r--,other::---";
    for (name, kind, mode, acl) in [
        ("dir", EntryType::Directory, 0o1755, acl),
        ("file", EntryType::Regular, 0o4755, acl),
        ("short", EntryType::Regular, 0o755, short),
    ] {
        let record = [("SCHILY.acl.access", acl.as_bytes())];
        builder.append_pax_extensions(record).unwrap();
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(0);
        builder.append_data(&mut header, name, &b""[..]).unwrap();
    }
    builder.finish().unwrap();
    place.ok(&["build", "-q", "image", "tar"]);
    place.image("there", "ext4", 16);
    place.ok(&["build", "-q", "--onto", "there", "tar"]);
    for image in ["image", "there"] {
        assert_clean(&place.path(image));
        let stat = |name: &str| place.ok(&["stat", "-c", "%a", &format!("{image}:/{name}")]);
        assert_eq!(stat("dir"), "1775\n");
        assert_eq!(stat("file"), "4775\n");
        assert_eq!(stat("short"), "640\n");
        for name in ["dir", "file"] {
            let file = format!("{image}:/{name}");
            let words = [
                "getfattr",
                "-e",
                "hex",
                "-n",
                "system.posix_acl_access",
                &file,
            ];
            let value = place.ok(&words);
            // The mask.
            assert!(value.contains("10000700ffffffff"), "{value}");
        }
    }
}

#[test]
fn a_journal_that_is_asked_for_is_made_and_one_that_is_not_made_is_told() {
    let place = Place::new();
    small(&place);
    let has_journal = || {
        assert_clean(&place.path("image"));
        debugfs(&place.path("image"), "features").contains("has_journal")
    };
    for words in [
        &["-t", "ext3"][..],
        &["-j"],
        &["-t", "ext2", "-j", "-b", "1024"],
        &["-O", "has_journal"],
    ] {
        let build = ["build", "-F", "image", "source"];
        place.ok(&[&build[..], words].concat());
        assert!(has_journal(), "{words:?}");
        // As large as it must be.
        let length = fs::metadata(place.path("image")).unwrap().len();
        assert!(length < 10 << 20, "{words:?}: {length}");
    }
    let note = "finefs: image: too small for a journal: made without\n";
    for words in [&[][..], &["-t", "ext3", "--size", "2m"], &["--json"]] {
        let build = ["build", "-F", "image", "source"];
        let built = place
            .finefs(&[&build[..], words].concat())
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        assert_eq!(String::from_utf8_lossy(&built.stderr), note, "{words:?}");
        assert!(!has_journal(), "{words:?}");
    }
    let built = place.finefs(&["build", "-", "source"]).output().unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    assert_eq!(said, note.replace("image", "standard output"));
    for words in [
        &["-q"][..],
        &["-t", "ext2"],
        &["-O", "^has_journal"],
        &["-q", "-t", "ext3"],
    ] {
        place.ok(&[&["build", "-F", "image", "source"][..], words].concat());
    }
}

#[test]
fn a_place_without_a_directory_is_told_before_sources_are_read() {
    let place = Place::new();
    for (image, wanted) in [
        (
            "nowhere/image",
            "finefs: nowhere: No such file or directory\n",
        ),
        ("file/image", "finefs: file: Not a directory\n"),
    ] {
        fs::write(place.path("file"), "").unwrap();
        assert_eq!(place.fails(1, &["build", "-q", image, "nothing"]), wanted);
    }
}

#[test]
fn an_image_is_no_source_of_itself() {
    let place = Place::new();
    small(&place);
    place.ok(&["build", "-q", "outside", "source"]);
    for _ in 0..2 {
        place.ok(&["build", "-q", "-F", "source/image", "source"]);
        assert!(place.ok(&["ls", "source/image:/"]) == "file\nlost+found\n");
    }
    // Others go in, and other names of it do not.
    fs::rename(place.path("outside"), place.path("source/other")).unwrap();
    fs::hard_link(place.path("source/image"), place.path("source/link")).unwrap();
    place.ok(&["build", "-q", "-F", "source/image", "source"]);
    assert_eq!(
        place.ok(&["ls", "source/image:/"]),
        "file\nlost+found\nother\n"
    );
    // And one that sources are put into.
    place.image("source/there", "ext4", 16);
    fs::remove_file(place.path("source/link")).unwrap();
    place.ok(&["build", "-q", "--onto", "source/there", "source"]);
    assert_eq!(
        place.ok(&["ls", "source/there:/"]),
        "file\nimage\nlost+found\nother\n"
    );
}
