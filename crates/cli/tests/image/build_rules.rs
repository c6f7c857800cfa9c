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
