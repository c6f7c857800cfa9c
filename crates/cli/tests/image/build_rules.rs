//! What builds compute, leave out and refuse, beside what [`crate::build`] has.

use std::fs::{self, File};

use tar::{EntryType, Header};

use crate::support::{Place, assert_clean};

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
