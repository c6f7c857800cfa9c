//! `finefs check`, `repair` and `undo`: what they print, their statuses, partitions.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

fn finefs(words: &[&str], image: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_finefs"));
    command.args(words).arg(image).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn debugfs(image: &Path, request: &str) {
    let output = Command::new("debugfs")
        .args(["-w", "-R", request])
        .arg(image)
        .output();
    assert!(output.unwrap().status.success());
}

#[test]
fn statuses_are_those_of_fsck() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let made = finefs(&["mkfs", "--size", "16m"], &image);
    assert!(made.status.success(), "{}", text(&made));
    let clean = finefs(&["check"], &image);
    assert_eq!(clean.status.code(), Some(0), "{}", text(&clean));
    assert!(text(&clean).ends_with("clean\n"), "{}", text(&clean));

    debugfs(&image, "sif /lost+found links_count 5");
    let good = std::fs::read(&image).unwrap();
    let wrong = finefs(&["check", "--json"], &image);
    assert_eq!(wrong.status.code(), Some(4), "{}", text(&wrong));
    let report: serde_json::Value = serde_json::from_slice(&wrong.stdout).unwrap();
    assert_eq!(report["findings"][0]["problem"], "link-count", "{report}");
    assert_eq!(report["findings"][0]["inode"], 11, "{report}");

    let dry = finefs(&["repair", "--dry-run"], &image);
    assert_eq!(dry.status.code(), Some(4), "{}", text(&dry));
    assert!(std::fs::read(&image).unwrap() == good);
    let repaired = finefs(&["repair"], &image);
    assert_eq!(repaired.status.code(), Some(1), "{}", text(&repaired));
    let again = finefs(&["repair"], &image);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again));
    let file = dir.path().join("image.undo");
    let undone = finefs(&["undo", file.to_str().unwrap()], &image);
    assert!(undone.status.success(), "{}", text(&undone));
    assert!(std::fs::read(&image).unwrap() == good);

    let missing = finefs(&["check"], &dir.path().join("none"));
    assert_eq!(missing.status.code(), Some(8), "{}", text(&missing));
    let usage = finefs(&["check", "--nonsense"], &image);
    assert_eq!(usage.status.code(), Some(16), "{}", text(&usage));
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    let empty = finefs(&["check"], &image);
    assert_eq!(empty.status.code(), Some(8), "{}", text(&empty));
}

#[test]
fn what_tune_changes_tune2fs_shows() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let made = finefs(&["mkfs", "--size", "300m", "-b", "1024"], &image);
    assert!(made.status.success(), "{}", text(&made));
    let uuid = "01234567-89ab-4def-8123-456789abcdef";
    let refused = finefs(&["tune", "-U", uuid], &image);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    assert!(
        text(&refused).contains("metadata_csum_seed"),
        "{}",
        text(&refused)
    );
    let words = [
        "tune",
        "-U",
        uuid,
        "-O",
        "metadata_csum_seed",
        "-L",
        "new label",
        "-m",
        "10",
        "-c",
        "30",
        "-i",
        "7",
        "-e",
        "remount-ro",
    ];
    let tuned = finefs(&words, &image);
    assert!(tuned.status.success(), "{}", text(&tuned));
    let shown = Command::new("dumpe2fs")
        .arg("-h")
        .arg(&image)
        .output()
        .unwrap();
    let shown = text(&shown);
    for line in [
        "new label",
        uuid,
        "metadata_csum_seed",
        "Reserved block count:     30720",
        "Maximum mount count:      30",
        "(1 week)",
        "Remount read-only",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let judged = Command::new("e2fsck")
        .arg("-fn")
        .arg(&image)
        .output()
        .unwrap();
    assert!(judged.status.success(), "{}", text(&judged));
    // The backups say the same.
    let copy = ["-h", "-o", "superblock=8193"];
    let copy = Command::new("dumpe2fs")
        .args(copy)
        .arg(&image)
        .output()
        .unwrap();
    assert!(text(&copy).contains(uuid), "{}", text(&copy));
    let before = std::fs::read(&image).unwrap();
    for words in [
        ["tune", "-O", "^extent"],
        ["tune", "-O", "64bit"],
        ["tune", "-O", "nonsense"],
        ["tune", "-L", "a label of too many bytes"],
    ] {
        let outcome = finefs(&words, &image);
        let is_set = words[2] == "64bit";
        assert_eq!(
            outcome.status.success(),
            is_set,
            "{words:?}: {}",
            text(&outcome)
        );
    }
    assert!(std::fs::read(&image).unwrap() == before);
}

#[test]
fn what_is_not_safe_is_repaired_by_name_alone() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    std::fs::create_dir(dir.path().join("tree")).unwrap();
    std::fs::write(dir.path().join("tree/file"), "data").unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_finefs"))
        .arg("build")
        .args([&image, &dir.path().join("tree")])
        .output();
    assert!(made.unwrap().status.success());
    debugfs(&image, "clri /file");
    let refused = finefs(&["repair"], &image);
    assert_eq!(refused.status.code(), Some(4), "{}", text(&refused));
    let other = finefs(&["repair", "--also", "extent,inode-size"], &image);
    assert_eq!(other.status.code(), Some(4), "{}", text(&other));
    let unknown = finefs(&["repair", "--also", "root"], &image);
    assert_eq!(unknown.status.code(), Some(16), "{}", text(&unknown));
    let repaired = finefs(&["repair", "--also", "directory-entry"], &image);
    assert_eq!(repaired.status.code(), Some(1), "{}", text(&repaired));
    let judged = Command::new("e2fsck").arg("-fn").arg(&image).output();
    assert!(judged.unwrap().status.success());
}

/// The superblock as dumpe2fs shows it, without what differs from one run to the next.
fn superblock(image: &Path) -> String {
    let shown = Command::new("dumpe2fs").arg("-h").arg(image).output();
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    let differs = ["Last write time", "Lifetime writes", "Checksum:"];
    let lines = shown.lines();
    let lines = lines.filter(|line| !differs.iter().any(|it| line.starts_with(it)));
    lines.map(|line| line.to_owned() + "\n").collect()
}

/// Each with both programs, on copies of one image.
#[test]
fn tune_takes_what_tune2fs_takes_and_leaves_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let [image, ours, theirs] = ["image", "ours", "theirs"].map(|name| dir.path().join(name));
    let made = finefs(&["mkfs", "-q", "--size", "16m"], &image);
    assert!(made.status.success(), "{}", text(&made));
    for words in [
        ["-i", "5d"],
        ["-i", "3w"],
        ["-i", "2m"],
        ["-i", "9"],
        ["-c", "0"],
        ["-u", "daemon"],
        ["-g", "daemon"],
        ["-u", "7"],
        ["-O", "large_dir"],
        ["-O", "ea_inode"],
        ["-O", "verity"],
        ["-O", "encrypt"],
        ["-O", "casefold"],
        ["-O", "metadata_csum_seed,verity"],
        // Refused by both.
        ["-i", "5y"],
        ["-u", "no such user"],
        ["-g", "no such group"],
        ["-O", "inline_data"],
        ["-O", "^extent"],
    ] {
        for copy in [&ours, &theirs] {
            std::fs::copy(&image, copy).unwrap();
        }
        let tuned = finefs(&[&["tune"], &words[..]].concat(), &ours);
        let judge = Command::new("tune2fs").args(words).arg(&theirs).output();
        let judge = judge.unwrap();
        assert_eq!(
            tuned.status.success(),
            judge.status.success(),
            "{words:?}: {}",
            text(&tuned)
        );
        assert_eq!(superblock(&ours), superblock(&theirs), "{words:?}");
        let judged = Command::new("e2fsck").arg("-fn").arg(&ours).output();
        assert!(
            judged.as_ref().unwrap().status.success(),
            "{words:?}: {judged:?}"
        );
    }
    let nothing = finefs(&["tune"], &image);
    assert_eq!(nothing.status.code(), Some(2), "{}", text(&nothing));
}

#[test]
fn dump_shows_what_debugfs_shows() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let source = dir.path().join("source");
    std::fs::create_dir_all(source.join("a")).unwrap();
    std::fs::write(source.join("a/file"), vec![1; 100_000]).unwrap();
    let made = finefs(
        &["mkfs", "--size", "16m", "-d", source.to_str().unwrap()],
        &image,
    );
    assert!(made.status.success(), "{}", text(&made));
    let dump = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_finefs"));
        let output = command
            .arg("dump")
            .arg(&image)
            .args(words)
            .output()
            .unwrap();
        assert!(output.status.success(), "{words:?}: {}", text(&output));
        text(&output)
    };
    let stat = Command::new("debugfs")
        .args(["-R", "stat /a/file"])
        .arg(&image)
        .output();
    let stat = String::from_utf8(stat.unwrap().stdout).unwrap();
    let number = stat.split_whitespace().nth(1).unwrap();
    let inode = dump(&["inode", "/a/file"]);
    assert!(
        inode.contains(&format!("inode: {number}\n")),
        "{inode}{stat}"
    );
    assert!(
        inode.contains("size: 100000\n") && inode.contains("type: regular\n"),
        "{inode}"
    );
    assert_eq!(inode, dump(&["inode", number]));
    let bmap = Command::new("debugfs")
        .args(["-R", "bmap /a/file 0"])
        .arg(&image)
        .output();
    let first = String::from_utf8(bmap.unwrap().stdout).unwrap();
    let first = first.trim();
    let extents = dump(&["extents", "/a/file"]);
    assert!(
        extents.contains(&format!(": {first}-")),
        "{extents} {first}"
    );
    assert!(dump(&["block", first]).starts_with("00000  01 01 01"));
    assert!(dump(&["group", "0"]).contains("superblock: yes\n"));
    let none = Command::new(env!("CARGO_BIN_EXE_finefs"))
        .arg("dump")
        .arg(&image)
        .args(["inode", "/none"])
        .output();
    assert_eq!(none.unwrap().status.code(), Some(1));
}

/// The log of an image whose server was killed, beside debugfs's.
#[test]
fn dump_lists_the_log_as_debugfs_does() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let made = finefs(&["mkfs", "--size", "32m"], &image);
    assert!(made.status.success(), "{}", text(&made));
    let dump = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_finefs"));
        let output = command.arg("dump").arg(&image).arg("journal").output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", text(&output));
        text(&output)
    };
    assert!(dump().contains("start: none"), "{}", dump());
    // Three transactions by hand; they revoke and hold blocks.
    let script = dir.path().join("script");
    std::fs::write(
        &script,
        "jo -c\njw -b 100-102 /dev/zero\njw -r 100,7\njw -b 50 /dev/zero\njc\n",
    )
    .unwrap();
    let debugfs = |arguments: &[&str]| {
        let output = Command::new("debugfs").args(arguments).arg(&image).output();
        text(&output.unwrap())
    };
    debugfs(&["-w", "-f", script.to_str().unwrap()]);
    let theirs = debugfs(&["-R", "logdump -a"]);
    let ours = dump();
    let numbers = |text: &str, before: &str| -> Vec<u64> {
        let words = text.split(before).skip(1);
        let numbers = words.filter_map(|rest| {
            let digits = rest.chars().take_while(char::is_ascii_digit);
            digits.collect::<String>().parse().ok()
        });
        numbers.collect()
    };
    let theirs_held = numbers(&theirs, "  FS block ");
    assert_eq!(theirs_held.len(), 4, "{theirs}");
    assert_eq!(numbers(&ours, ": block "), theirs_held, "{ours}{theirs}");
    let theirs_revoked = numbers(&theirs, "Revoke FS block ");
    assert_eq!(
        numbers(&ours, "\n  block "),
        theirs_revoked,
        "{ours}{theirs}"
    );
    assert_eq!(theirs.matches("(commit block)").count(), 3, "{theirs}");
    assert_eq!(
        ours.matches(": commit of transaction ").count(),
        3,
        "{ours}"
    );
    assert!(!ours.contains("not replayed"), "{ours}");
}

/// Without a superblock there is nothing to check, but a backup may be there.
#[test]
fn a_backup_of_a_lost_superblock_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let made = finefs(&["mkfs", "-q", "--size", "300m", "-b", "1024"], &image);
    assert!(made.status.success(), "{}", text(&made));
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0; 1024], 1024).unwrap();
    let command = format!("e2fsck -b 8193 -B 1024 {}", image.display());
    for (words, status) in [
        (&["check"][..], 8),
        (&["repair"], 8),
        (&["tune", "-L", "x"], 1),
    ] {
        let said = finefs(words, &image);
        assert_eq!(said.status.code(), Some(status), "{}", text(&said));
        assert!(text(&said).contains(&command), "{}", text(&said));
    }
    let mut restored = Command::new("e2fsck");
    let restored = restored.args(["-fy", "-b", "8193", "-B", "1024"]);
    assert_eq!(
        restored.arg(&image).output().unwrap().status.code(),
        Some(1)
    );
    assert!(finefs(&["check"], &image).status.success());
}

#[test]
fn the_partitions_of_a_whole_disk_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    std::fs::File::create(&disk)
        .unwrap()
        .set_len(8 << 20)
        .unwrap();
    let partition = [0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0];
    let table = [&partition[..], &[0; 48], &[0x55, 0xAA]].concat();
    let file = std::fs::File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&table, 446).unwrap();
    let advice = format!("name one as in {}@p1: p1", disk.display());
    let mount = ["mount", "-o", "ro"];
    for words in [&["check"][..], &["tune", "-L", "x"], &["resize", "-P"]] {
        let said = finefs(words, &disk);
        assert!(text(&said).contains(&advice), "{}", text(&said));
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_finefs"));
    let said = command.args(mount).arg(&disk).arg(dir.path());
    let said = said.output().unwrap();
    assert!(text(&said).contains(&advice), "{}", text(&said));
}

#[test]
fn bad_values_of_tune_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let made = finefs(&["mkfs", "-q", "--size", "8m"], &image);
    assert!(made.status.success(), "{}", text(&made));
    for (words, part) in [
        (["-m", "-1"], "give percents from 0 to 50"),
        (["-m", "51"], "give percents from 0 to 50"),
        (["-m", "x"], "give percents from 0 to 50"),
    ] {
        let said = finefs(&["tune", words[0], words[1]], &image);
        assert_eq!(said.status.code(), Some(2), "{}", text(&said));
        assert!(text(&said).contains(part), "{}", text(&said));
    }
    // The last one counts.
    let words = ["tune", "-L", "one", "-m", "3", "-L", "two", "-m", "7"];
    let tuned = finefs(&words, &image);
    assert!(tuned.status.success(), "{}", text(&tuned));
    assert!(superblock(&image).contains("two"), "{}", superblock(&image));
    let said = finefs(&["dump"], &image);
    assert_eq!(said.status.code(), Some(2));
    let mut command = Command::new(env!("CARGO_BIN_EXE_finefs"));
    let dump = command
        .arg("dump")
        .arg(&image)
        .args(["inode", "/lost+found/nope"]);
    let said = text(&dump.output().unwrap());
    assert!(
        said.ends_with("there is no nope in /lost+found\n"),
        "{said}"
    );
}

/// With multiple mount protection: who has the image is named, and why it takes so long.
#[test]
fn what_changes_an_image_waits_for_other_hosts_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let made = finefs(&["mkfs", "-q", "--size", "16m", "-O", "mmp"], &image);
    assert!(made.status.success(), "{}", text(&made));
    let tuned = finefs(&["tune", "-L", "mine"], &image);
    assert!(tuned.status.success(), "{}", text(&tuned));
    assert!(
        text(&tuned).contains("waiting for 11 s"),
        "{}",
        text(&tuned)
    );
    assert!(superblock(&image).contains("mine"));
    let state = Command::new("dumpe2fs").arg("-m").arg(&image).output();
    let state = text(&state.unwrap());
    assert!(state.contains("MMP is clean"), "{state}");
}
