//! What is said of images that can be read but not changed.

use std::ffi::OsStr;

use crate::support::{Place, run};

#[test]
fn an_image_that_can_only_be_read_is_named_with_the_reason() {
    let place = Place::new();
    let image = place.image("image", "ext4", 16);
    let change = ["-w", "-R", "ssv journal_inum 99999"].map(OsStr::new);
    run("debugfs", &[&change[..], &[image.as_os_str()]].concat());
    let said = place.fails(1, &["mkdir", "image:/dir"]);
    for part in ["image: mounted read-only", "journal inode 99999", "e2fsck"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(said.matches("e2fsck").count(), 1, "{said}");
    assert!(place.ok(&["ls", "image:/"]).contains("lost+found"));
}
