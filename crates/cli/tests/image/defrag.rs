//! `finefs defrag`: files are the same and lie in fewer pieces, as filefrag(8) sees it in the
//! kernel's mount, and e2fsck finds nothing.

use std::path::Path;
use std::process::Command;

use finefs::{ImageOptions, OpenOptions};

use crate::support::*;

const LARGE: usize = 6 << 20;

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 512 * 7 + at) as u8).collect()
}

/// Makes files that lie in many pieces: what is free is so in pieces of two blocks, but for some
/// that becomes free in the end.
fn fragment(image: &Path) {
    let fs = ImageOptions::new().open(image).unwrap();
    fs.create_dir("fill").unwrap();
    fs.write("fill/whole", vec![1; 10 << 20]).unwrap();
    let mut count = 0;
    while fs.write(format!("fill/{count}"), [2; 8192]).is_ok() {
        count += 1;
    }
    // The last one may be there in part.
    for number in (0..=count).step_by(2) {
        let _ = fs.remove_file(format!("fill/{number}"));
    }
    fs.sync().unwrap();
    fs.create_dir("d").unwrap();
    fs.write("d/large", content(LARGE)).unwrap();
    let mut create = OpenOptions::new();
    create.write(true).create(true);
    let sparse = create.open(&fs, "d/sparse").unwrap();
    for at in 0..20 {
        sparse.write_all_at(&content(20_000), at << 16).unwrap();
    }
    let reserved = create.open(&fs, "d/reserved").unwrap();
    let kept = finefs::AllocateMode::KeepSize;
    if reserved.allocate(kept, 0, 1 << 20).is_ok() {
        reserved.write_all_at(&content(9000), 300_000).unwrap();
    }
    fs.write("d/small", content(3000)).unwrap();
    drop((sparse, reserved));
    fs.remove_file("fill/whole").unwrap();
    fs.close().unwrap();
}

/// The pieces of a file as the kernel has it mounted.
fn filefrag(image: &Path, path: &str) -> u64 {
    let mount = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-o", "loop,ro"])
        .args([image, mount.path()])
        .output()
        .unwrap();
    assert!(mounted.status.success(), "{mounted:?}");
    let output = Command::new("filefrag")
        .arg(mount.path().join(path))
        .output();
    finefs_sim::unmount(mount.path()).unwrap();
    let said = String::from_utf8(output.unwrap().stdout).unwrap();
    let words = said.rsplit_once(": ").unwrap().1;
    words.split(' ').next().unwrap().parse().unwrap()
}

/// Contents, sizes and times of what is in the directory.
fn state(place: &Place, image: &str) -> Vec<String> {
    let names = ["large", "sparse", "reserved", "small"];
    let one = |name: &&str| {
        let at = format!("{image}:/d/{name}");
        let bytes = place.finefs(&["cat", &at]).output().unwrap().stdout;
        let shown = place.ok(&["stat", "-c", "%s %Y %Z", &at]);
        let sum = bytes
            .iter()
            .fold(7_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
        format!("{name} {shown} {} {sum}", bytes.len())
    };
    names.iter().map(one).collect()
}

#[test]
fn files_are_the_same_in_fewer_pieces() {
    for arguments in [
        &["-t", "ext4", "-b", "4096"][..],
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
        &["-t", "ext4", "-b", "4096", "-O", "quota"],
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "8192"],
        &["-t", "ext2", "-b", "4096"],
    ] {
        let place = Place::new();
        let image = place.image_with("image", 40, arguments);
        fragment(&image);
        let before = state(&place, "image");
        let listed = place.ok(&["defrag", "-c", "image:/d"]);
        assert!(listed.contains(" image:/d/large\n"), "{listed}");
        assert!(listed.contains("image:/d: 4 files, "), "{listed}");
        assert_eq!(state(&place, "image"), before, "{arguments:?}");
        assert_clean(&image);
        let pieces = is_root().then(|| filefrag(&image, "d/large"));
        let json = place.ok(&["defrag", "--json", "image"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        for name in ["large", "sparse"] {
            let path = format!("image:/d/{name}");
            let line = json
                .as_array()
                .unwrap()
                .iter()
                .find(|line| line["path"] == path);
            let line = line.unwrap();
            let number = |name: &str| line[name].as_u64().unwrap();
            assert!(number("runs_before") > 15, "{line}");
            assert!(number("runs_after") <= 4, "{arguments:?} {line}");
        }
        assert_clean(&image);
        assert_eq!(state(&place, "image"), before, "{arguments:?}");
        if let Some(pieces) = pieces {
            let now = filefrag(&image, "d/large");
            assert!(pieces > 100 && now <= 4, "{arguments:?}: {pieces} -> {now}");
        }
        // Nothing is left to do.
        let again = place.ok(&["defrag", "-v", "image:/d"]);
        assert!(!again.contains("->"), "{again}");
    }
}

#[test]
fn reiserfs_too() {
    let place = Place::new();
    let image = place.path("image");
    std::fs::File::create(&image)
        .unwrap()
        .set_len(80 << 20)
        .unwrap();
    let mut mkreiserfs = Command::new("mkreiserfs");
    let made = mkreiserfs
        .args(["-q", "-q", "-f", "-f"])
        .arg(&image)
        .output();
    assert!(made.unwrap().status.success());
    fragment(&image);
    let before = state(&place, "image");
    let said = place.ok(&["defrag", "-v", "image:/d"]);
    assert!(
        said.contains(" -> ") && said.contains("/d/large\n"),
        "{said}"
    );
    assert_eq!(state(&place, "image"), before);
    let check = Command::new("reiserfsck")
        .args(["--check", "-y", "-q"])
        .arg(&image)
        .output()
        .unwrap();
    assert!(check.status.success(), "{check:?}");
}

#[test]
fn a_full_image_stays_as_it_is() {
    let place = Place::new();
    let image = place.image("image", "ext4", 40);
    fragment(&image);
    let fs = ImageOptions::new().open(&image).unwrap();
    let mut number = 0;
    while fs
        .write(format!("fill/again{number}"), vec![3; 1 << 20])
        .is_ok()
    {
        number += 1;
    }
    fs.close().unwrap();
    let before = state(&place, "image");
    let output = place.finefs(&["defrag", "image:/d"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let is_told = said.is_empty() || said.contains("no space left");
    assert!(is_told, "{said}");
    assert_clean(&image);
    assert_eq!(state(&place, "image"), before);
}
