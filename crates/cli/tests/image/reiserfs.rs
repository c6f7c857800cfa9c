//! What the commands do with reiserfs: they read and write it as they do ext4.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Place, assert_clean};

/// The image of the store's tests: filled by Linux 6.1, and killed.
fn unpack(place: &Place) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../reiser/tests/images");
    let packed = tests.join("killed.img.xz");
    let unpacked = Command::new("xz").arg("-dc").arg(packed).output().unwrap();
    assert!(unpacked.status.success());
    fs::write(place.path("old.img"), unpacked.stdout).unwrap();
}

#[test]
fn reiserfs_is_read_and_converted() {
    let place = Place::new();
    unpack(&place);
    let before = fs::read(place.path("old.img")).unwrap();
    assert_eq!(place.ok(&["cat", "old.img:/kinds/one"]), "linked\n");
    let listed = place.ok(&["ls", "-a", "old.img"]);
    let names: Vec<&str> = listed.split_whitespace().collect();
    assert!(
        names.contains(&"tails") && !listed.contains("reiserfs_priv"),
        "{listed}"
    );
    let found = place.ok(&["find", "old.img:/deep", "-name", "file"]);
    assert_eq!(found.matches('/').count(), 22, "{found}");
    let info = place.ok(&["info", "old.img"]);
    assert!(
        info.contains("reiserfs 3.6") && info.contains("to replay"),
        "{info}"
    );
    let info = place.ok(&["info", "--json", "old.img"]);
    assert!(info.contains("\"needs_replay\": true"), "{info}");
    let tar = place.ok(&["tar", "-c", "-f", "old.tar", "old.img"]);
    assert_eq!(tar, "");

    // As an image: all of it, but for an attribute that ext4 has no room for, and a directory.
    let said = place.fails(1, &["build", "-q", "new.img", "old.img"]);
    let left_out = "left out: /attributes/more: attribute user.long of 20000 bytes";
    assert!(said.contains(left_out), "{said}");
    assert_clean(&place.path("new.img"));
    let compared = place.finefs(&["diff", "old.img", "new.img"]).output();
    let compared = String::from_utf8(compared.unwrap().stdout).unwrap();
    let lines: Vec<&str> = compared.lines().collect();
    assert!(
        lines.len() == 1 && lines[0].starts_with("M /attributes/more: "),
        "{compared}"
    );
    place.ok(&["build", "-q", "part.img", "old.img:/tails"]);
    assert_eq!(place.ok(&["diff", "old.img:/tails", "part.img"]), "");
    // The archive, and a copy of the ext4 image, hold the same.
    place.fails(1, &["build", "-q", "from-tar.img", "old.tar"]);
    assert_eq!(place.ok(&["diff", "new.img", "from-tar.img"]), "");
    place.ok(&["build", "-q", "again.img", "new.img"]);
    assert_eq!(place.ok(&["diff", "new.img", "again.img"]), "");
    assert!(
        fs::read(place.path("old.img")).unwrap() == before,
        "it was written"
    );
}

#[test]
fn reiserfs_is_converted_to_ext() {
    let place = Place::new();
    unpack(&place);
    let left_out = "left out: /attributes/more: attribute user.long of 20000 bytes";
    for words in [
        &["convert", "-O", "ext4", "old.img", "new.img"][..],
        // The name says it too.
        &["convert", "-q", "-F", "old.img", "new.ext4"],
    ] {
        let said = place.fails(1, words);
        assert!(said.contains(left_out), "{said}");
    }
    let bytes = |name: &str| fs::read(place.path(name)).unwrap();
    assert!(bytes("new.img") == bytes("new.ext4"), "they differ");
    assert_clean(&place.path("new.img"));
    let compared = place.finefs(&["diff", "old.img", "new.img"]).output();
    let compared = String::from_utf8(compared.unwrap().stdout).unwrap();
    assert!(
        compared.lines().count() == 1 && compared.starts_with("M /attributes/more: "),
        "{compared}"
    );
    let free = |name: &str| {
        let info: serde_json::Value =
            serde_json::from_str(&place.ok(&["df", "--json", name])).unwrap();
        info[0]["available_bytes"].as_u64().unwrap()
    };
    assert!(free("new.img") >= free("old.img"), "there is less room");
    // Of ext a name that ends so is the disk as it is; by -O it is made anew.
    place.ok(&["convert", "-q", "new.img", "same.ext4"]);
    assert!(bytes("same.ext4") == bytes("new.img"), "they differ");
    place.ok(&["convert", "-q", "-O", "ext2", "new.img", "small.img"]);
    assert_clean(&place.path("small.img"));
    assert_eq!(place.ok(&["diff", "new.img", "small.img"]), "");
    let said = place.fails(
        1,
        &["convert", "-O", "ext4", "--gpt", "old.img", "table.img"],
    );
    assert!(said.contains("--gpt"), "{said}");
    place.fails(1, &["convert", "-O", "ext4", "none", "table.img"]);
    assert!(!place.path("table.img").exists());
}

fn assert_sound(place: &Place, image: &str) {
    let output = Command::new("reiserfsck")
        .args(["--check", "--yes"])
        .arg(place.path(image))
        .output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("No corruptions found"), "{said}");
}

#[test]
fn reiserfs_is_written() {
    let place = Place::new();
    unpack(&place);
    fs::write(place.path("file"), vec![b'x'; 100_000]).unwrap();
    place.ok(&["mkdir", "-p", "old.img:/new/deep"]);
    place.ok(&["cp", "file", "old.img:/new/deep/"]);
    place.ok(&["cp", "-a", "old.img:/attributes", "old.img:/new/"]);
    assert_sound(&place, "old.img");
    assert_eq!(
        place.ok(&["diff", "old.img:/attributes", "old.img:/new/attributes"]),
        ""
    );
    place.ok(&["rm", "-r", "old.img:/kinds", "old.img:/tails"]);
    assert_sound(&place, "old.img");
    let listed = place.ok(&["ls", "old.img"]);
    assert!(
        listed.contains("new") && !listed.contains("kinds"),
        "{listed}"
    );
    let bytes = place.ok(&["cat", "old.img:/new/deep/file"]);
    assert!(bytes == "x".repeat(100_000));
    let info = place.ok(&["info", "old.img"]);
    assert!(
        info.contains("read-write") && info.contains("nothing to replay"),
        "{info}"
    );
    let said = place.fails(1, &["mkfs", "old.img"]);
    assert!(said.contains("a reiserfs file system"), "{said}");
}

#[test]
fn reiserfs_of_old_is_written() {
    let place = Place::new();
    let image = place.path("old.img");
    fs::File::create(&image).unwrap().set_len(40 << 20).unwrap();
    let made = Command::new("mkreiserfs")
        .args(["-q", "-q", "-f", "-f", "--format", "3.5"])
        .arg(&image)
        .output();
    assert!(made.unwrap().status.success());
    place.ok(&["mkdir", "old.img:/new"]);
    place.ok(&["ln", "-s", "target", "old.img:/new/link"]);
    let listed = place.ok(&["find", "old.img:/new"]);
    assert_eq!(listed, "old.img:/new\nold.img:/new/link\n");
    // What it has no room for is said, and not kept in part.
    let said = place.fails(1, &["chown", "70000", "old.img:/new"]);
    assert!(said.contains("old.img:/new"), "{said}");
    let checked = Command::new("reiserfsck")
        .args(["--check", "--yes"])
        .arg(&image)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{text}");
}

#[test]
fn a_partition_is_named_by_its_label() {
    let place = Place::new();
    unpack(&place);
    let mut image = fs::read(place.path("old.img")).unwrap();
    image[65536 + 100..][..4].copy_from_slice(b"data");
    // An MBR, whose first partition starts at 1 MiB.
    let mut disk = vec![0; 1 << 20];
    disk[446 + 4] = 0x83;
    disk[446 + 8..][..4].copy_from_slice(&2048_u32.to_le_bytes());
    disk[446 + 12..][..4].copy_from_slice(&(image.len() as u32 / 512).to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.extend(image);
    fs::write(place.path("disk"), disk).unwrap();
    for operand in ["disk@data:/kinds/one", "disk@p1:/kinds/one"] {
        assert_eq!(place.ok(&["cat", operand]), "linked\n", "{operand}");
    }
    place.ok(&["build", "-q", "new.img", "disk@data:/kinds"]);
    assert_eq!(place.ok(&["diff", "disk@data:/kinds", "new.img"]), "");
}
