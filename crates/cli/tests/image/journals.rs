//! Journals on a device of their own, which commands are told of by `--journal`; e2fsck and
//! reiserfsck judge.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::{Place, assert_clean};

fn judged(output: Output) -> String {
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

/// e2fsck finds nothing.
fn assert_clean_with(image: &Path, journal: &Path) {
    let mut e2fsck = Command::new("e2fsck");
    let e2fsck = e2fsck.args(["-fn", "-j"]).arg(journal).arg(image);
    judged(e2fsck.output().unwrap());
}

/// An ext4 image whose file `/file` says "new" once its journal is replayed, and "old" before.
fn dirty(place: &Place) {
    place.ok(&["mkfs", "-q", "--size", "8m", "-O", "journal_dev", "journal"]);
    place.ok(&[
        "mkfs",
        "-q",
        "--size",
        "16m",
        "-J",
        "device=journal",
        "image",
    ]);
    fs::write(place.path("file"), "old").unwrap();
    place.ok(&["cp", "--journal", "journal", "file", "image:/file"]);
    let extents = place.ok(&["dump", "image", "extents", "/file"]);
    let block = extents.trim().rsplit('-').next().unwrap();
    let mut new = vec![0; 4096];
    new[..3].copy_from_slice(b"new");
    fs::write(place.path("block"), new).unwrap();
    let [script, journal, image, bytes] =
        ["script", "journal", "image", "block"].map(|name| place.path(name));
    let lines = format!(
        "jo -f {}\njw -b {block} {}\njc\n",
        journal.display(),
        bytes.display()
    );
    fs::write(&script, lines).unwrap();
    let mut debugfs = Command::new("debugfs");
    judged(debugfs.arg("-wf").arg(script).arg(image).output().unwrap());
}

#[test]
fn what_an_external_journal_of_ext_holds_is_seen_and_replayed() {
    let place = Place::new();
    dirty(&place);
    place.ok(&["mkfs", "-q", "--size", "8m", "-O", "journal_dev", "other"]);
    let before = ["image", "journal"].map(|name| fs::read(place.path(name)).unwrap());
    // Nobody takes the image for what it is not yet.
    for words in [
        &["check", "image"][..],
        &["repair", "image"],
        &["resize", "image", "20m"],
        &["tune", "-L", "x", "image"],
        &["ls", "image"],
        &["build", "built", "image"],
        &["convert", "-O", "ext4", "image", "built"],
    ] {
        let output = place.finefs(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{words:?}");
        assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
        assert!(said.contains("on another device"), "{words:?}: {said}");
        let takes_it = place.ok(&[words[0], "--help"]).contains("--journal");
        assert_eq!(said.contains("--journal"), takes_it, "{words:?}: {said}");
    }
    assert!(
        place
            .fails(8, &["check", "--journal", "other", "image"])
            .contains("not its journal")
    );
    place.fails(1, &["cat", "--journal", "other", "image:/file"]);

    let journal = ["--journal", "other", "--journal", "journal"];
    let with = |words: &[&str]| place.ok(&[words, &journal].concat());
    assert!(with(&["info", "image"]).contains("1 transaction"));
    let log = place.ok(&["dump", "--journal", "journal", "image", "journal"]);
    assert!(log.contains(": descriptor of transaction"), "{log}");
    assert_eq!(with(&["cat", "image:/file"]), "new");
    with(&["build", "-q", "built", "image"]);
    assert_eq!(place.ok(&["cat", "built:/file"]), "new");
    with(&["convert", "-q", "-F", "-O", "ext4", "image", "built"]);
    assert_eq!(place.ok(&["cat", "built:/file"]), "new");
    // An image with a journal of its own has no use for it.
    assert_eq!(with(&["diff", "image", "built"]), "");
    assert_clean(&place.path("built"));
    let after = ["image", "journal"].map(|name| fs::read(place.path(name)).unwrap());
    assert!(before == after, "it was written");

    with(&["cp", "file", "image:/more"]);
    assert_eq!(with(&["cat", "image:/file", "image:/more"]), "newold");
    assert_clean_with(&place.path("image"), &place.path("journal"));
    // The journal is empty now; what goes past it needs it no more.
    assert!(place.ok(&["check", "image"]).contains("clean"));
    place.ok(&["tune", "-L", "x", "image"]);
    place.ok(&["resize", "-q", "image", "20m"]);
    with(&["rm", "image:/more"]);
    assert_clean_with(&place.path("image"), &place.path("journal"));
}

#[test]
fn quotas_beside_an_external_journal_are_shown_and_set() {
    let place = Place::new();
    place.ok(&["mkfs", "-q", "--size", "8m", "-O", "journal_dev", "journal"]);
    let make = [
        "mkfs",
        "-q",
        "--size",
        "16m",
        "-O",
        "quota",
        "-J",
        "device=journal",
    ];
    place.ok(&[&make[..], &["image"]].concat());
    let said = place.fails(1, &["quota", "set", "image", "7", "0", "50", "0", "0"]);
    assert!(said.contains("--journal"), "{said}");
    let journal = ["--journal", "journal"];
    let with = |words: &[&str]| place.ok(&[words, &journal].concat());
    with(&["quota", "set", "image", "7", "0", "50", "0", "0"]);
    with(&["quota", "grace", "-g", "image", "3600", "7days"]);
    let shown = with(&["quota", "-n", "image"]);
    let line = shown.lines().find(|line| line.starts_with("#7 "));
    assert!(line.is_some_and(|line| line.contains(" 50 ")), "{shown}");
    assert!(shown.contains("01:00"), "{shown}");
    assert_clean_with(&place.path("image"), &place.path("journal"));
}

#[test]
fn an_external_journal_of_reiserfs_is_written() {
    let place = Place::new();
    for (name, mebibytes) in [
        ("image", 64),
        ("journal", 40),
        ("other", 40),
        ("image2", 64),
    ] {
        let file = fs::File::create(place.path(name)).unwrap();
        file.set_len(mebibytes << 20).unwrap();
    }
    for (image, journal) in [("image", "journal"), ("image2", "other")] {
        // mkfs.reiserfs makes the number that tells journals apart of the time in seconds.
        std::thread::sleep(Duration::from_secs(1));
        let mut mkfs = Command::new("mkfs.reiserfs");
        mkfs.args(["-q", "-f", "-j"])
            .arg(place.path(journal))
            .arg(place.path(image));
        judged(mkfs.output().unwrap());
    }
    fs::write(place.path("file"), "data").unwrap();
    let words = ["cp", "file", "image:/file"];
    assert!(place.fails(1, &words).contains("--journal FILE"));
    let wrong = place.fails(1, &[&words[..], &["--journal", "other"]].concat());
    assert!(
        wrong.contains("is not the journal of this file system"),
        "{wrong}"
    );
    // From one to the other, each with its own.
    let journals = ["--journal", "other", "--journal", "journal"];
    place.ok(&[&words[..], &journals].concat());
    place.ok(&[&["cp", "image:/file", "image2:/copy"][..], &journals].concat());
    assert_eq!(
        place.ok(&["cat", "image2:/copy", "image:/file"]),
        "datadata"
    );
    let info = place.ok(&[&["info", "image"][..], &journals].concat());
    assert!(info.contains("read-write"), "{info}");
    for (image, journal) in [("image", "journal"), ("image2", "other")] {
        let mut reiserfsck = Command::new("reiserfsck");
        reiserfsck
            .args(["--check", "-y", "-j"])
            .arg(place.path(journal));
        let output = reiserfsck
            .arg(place.path(image))
            .stdin(Stdio::null())
            .output();
        let text = judged(output.unwrap());
        assert!(text.contains("No corruptions found"), "{text}");
    }
    let said = place.fails(8, &["check", "image"]);
    assert!(said.contains("is reiserfs"), "{said}");
}

/// What an external journal is, and whose, is told; it is no damaged file system.
#[test]
fn an_external_journal_says_whose_it_is() {
    let place = Place::new();
    let journal = place.path("journal");
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-b", "1024", "-L", "log", "-O", "journal_dev"]);
    judged(mke2fs.arg(&journal).arg("8192").output().unwrap());
    let info = || -> serde_json::Value {
        serde_json::from_str(&place.ok(&["info", "--json", "journal"])).unwrap()
    };
    let new = info();
    assert_eq!(new["kind"], "external journal");
    assert_eq!(new["volume_name"], "log");
    assert_eq!(new["users"], serde_json::json!([]));
    assert_eq!(new["block_size_bytes"], 1024);
    assert_eq!(new["size_bytes"], 8 << 20);
    assert_eq!(new["problems"], serde_json::json!([]));
    let mut dumpe2fs = Command::new("dumpe2fs");
    let shown = judged(dumpe2fs.arg("-h").arg(&journal).output().unwrap());
    assert!(shown.contains(new["uuid"].as_str().unwrap()), "{shown}");
    let unused = "is an external journal that no file system uses yet";
    assert!(place.fails(8, &["check", "journal"]).contains(unused));

    let make = [
        "mkfs",
        "-q",
        "--size",
        "16m",
        "-b",
        "1024",
        "-J",
        "device=journal",
        "image",
    ];
    place.ok(&make);
    let image: serde_json::Value =
        serde_json::from_str(&place.ok(&["info", "--json", "image"])).unwrap();
    let user = image["uuid"].as_str().unwrap();
    assert_eq!(info()["users"], serde_json::json!([user]));
    let text = place.ok(&["info", "journal"]);
    for line in [
        "Kind:                     external journal\n".to_owned(),
        format!("Used by:                  {user}\n"),
        "Block size:               1024\n".to_owned(),
    ] {
        assert!(text.contains(&line), "{text}");
    }
    fs::create_dir(place.path("dir")).unwrap();
    let whose = format!("is the external journal of the file system {user}");
    for (status, words) in [
        (2, &["ls", "journal"][..]),
        (8, &["check", "journal"]),
        (8, &["repair", "journal"]),
        (1, &["resize", "journal", "20m"]),
        (1, &["tune", "-L", "x", "journal"]),
        (1, &["mount", "journal", "dir"]),
        (1, &["cp", "dir", "journal:/"]),
        (1, &["build", "built", "journal"]),
    ] {
        let said = place.fails(status, words);
        assert!(said.contains(&whose), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
