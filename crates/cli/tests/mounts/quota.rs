//! Quotas, limits and projects, judged by e2fsck and debugfs, which count for themselves. Needs
//! root and FUSE. (Limits are set on the image: not every kernel mounts one with quotas.)

use std::fs;
use std::os::unix::fs::{FileExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::*;

const USER: u32 = 4711;
const PROJECT: u32 = 7;
const GRACE_SECONDS: u32 = 2;

/// Runs a line of the shell as the user; its messages.
fn as_user(place: &Path, line: &str) -> (bool, String) {
    let output = run(Command::new("sh")
        .args(["-c", line])
        .current_dir(place)
        .uid(USER)
        .gid(USER));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), said)
}

fn text(command: &mut Command) -> String {
    let output = run(command);
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Sets limits of an id in a quota file of an image (used by nobody): of space in KiB, and of
/// inodes; hard and soft. What is above a soft limit may stay there for two seconds.
fn set_limits(image: &Path, quota_file: &str, id: u32, space: [u64; 2], inodes: [u64; 2]) {
    const PIECE: usize = 1024;
    const ENTRY: usize = 72;
    let file = fs::File::options().read(true).write(true).open(image);
    let file = file.unwrap();
    let mut is_set = false;
    for block in 0.. {
        let request = format!("bmap <{quota_file}> {block}");
        let place = text(Command::new("debugfs").args(["-R", &request]).arg(image));
        let place: u64 = place.trim().parse().unwrap();
        if place == 0 {
            break;
        }
        let mut bytes = vec![0; 4096];
        file.read_exact_at(&mut bytes, place * 4096).unwrap();
        if block == 0 {
            bytes[8..12].copy_from_slice(&GRACE_SECONDS.to_le_bytes());
            bytes[12..16].copy_from_slice(&GRACE_SECONDS.to_le_bytes());
        }
        // Entries lie behind a head of 16 bytes; the first two pieces are header and root.
        let first = if block == 0 { 2 } else { 0 };
        for piece in bytes.chunks_exact_mut(PIECE).skip(first) {
            for entry in piece[16..].chunks_exact_mut(ENTRY) {
                let has = u64::from_le_bytes(entry[24..32].try_into().unwrap());
                if entry[..8] == u64::from(id).to_le_bytes() && (1..1000).contains(&has) {
                    entry[8..16].copy_from_slice(&inodes[0].to_le_bytes());
                    entry[16..24].copy_from_slice(&inodes[1].to_le_bytes());
                    entry[32..40].copy_from_slice(&space[0].to_le_bytes());
                    entry[40..48].copy_from_slice(&space[1].to_le_bytes());
                    is_set = true;
                }
            }
        }
        file.write_all_at(&bytes, place * 4096).unwrap();
    }
    assert!(is_set, "id {id} has no entry");
}

/// What debugfs finds in the quota file of a kind: id, KiB, inodes.
fn listed(image: &Path, kind: &str) -> Vec<(u32, u64, u64)> {
    let request = format!("list_quota {kind}");
    let found = text(Command::new("debugfs").args(["-R", &request]).arg(image));
    let rows = found.lines().skip(1).map(|line| {
        let numbers = line.split_whitespace().map(|word| word.parse().unwrap());
        let numbers: Vec<u64> = numbers.collect();
        (numbers[0] as u32, numbers[1].div_ceil(1024), numbers[4])
    });
    rows.filter(|(_, kib, inodes)| kib + inodes > 0).collect()
}

/// The same of a report.
fn reported(report: &str, kind: &str) -> Vec<(u32, u64, u64)> {
    let start = report.find(&format!("for {kind} quotas")).unwrap();
    let rows = report[start..]
        .lines()
        .skip(5)
        .take_while(|line| !line.is_empty());
    let rows = rows.map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
        let id = words[0].trim_start_matches('#').parse().unwrap();
        (id, numbers[0], numbers[3])
    });
    rows.collect()
}

/// An image with quotas of all kinds, and what the user and the project have to begin with.
fn image_with_owners(place: &Place) -> PathBuf {
    let image = place.image("ext4");
    succeed(
        Command::new("mke2fs")
            .args([
                "-q",
                "-F",
                "-t",
                "ext4",
                "-b",
                "4096",
                "-O",
                "quota,project",
            ])
            .args(["-E", "quotatype=usrquota:grpquota:prjquota"])
            .arg(&image),
    );
    let top = place.mount_point();
    mount(&image, &top, &[]);
    for name in ["home", "shared"] {
        fs::create_dir(top.join(name)).unwrap();
    }
    chown(top.join("home"), Some(USER), Some(USER)).unwrap();
    let project = PROJECT.to_string();
    succeed(
        Command::new("chattr")
            .args(["-p", &project, "+P"])
            .arg(top.join("shared")),
    );
    unmount(place);
    check(&image);
    image
}

/// Writes a file of so many KiB as the user.
fn write(home: &Path, kib: u32, name: &str) -> (bool, String) {
    let count = kib / 4;
    let line = format!("dd if=/dev/zero of={name} bs=4k count={count} conv=fsync");
    as_user(home, &line)
}

#[test]
fn limits_hold_and_e2fsck_counts_the_same() {
    if !can_mount() {
        eprintln!("skipped: no FUSE");
        return;
    }
    let place = Place::new();
    let image = image_with_owners(&place);
    set_limits(&image, "3", USER, [200, 0], [6, 0]);
    let top = place.mount_point();
    mount(&image, &top, &["-o", "allow_other,usrquota,prjquota"]);
    let home = top.join("home");
    assert!(write(&home, 100, "one").0);
    let (is_written, said) = write(&home, 200, "two");
    assert!(!is_written && said.contains("quota exceeded"), "{said}");
    let (is_made, said) = as_user(&home, "touch three four five six");
    assert!(!is_made && said.contains("quota exceeded"), "{said}");
    assert!(as_user(&home, "rm two three").0);
    let (is_written, said) = write(&home, 60, "two");
    assert!(is_written, "what was removed counts no more: {said}");
    let given = as_user(&home, "chgrp 0 one");
    assert!(!given.0, "{given:?}");
    // The superuser may give more than is allowed.
    fs::write(top.join("large"), vec![1; 300 << 10]).unwrap();
    chown(top.join("large"), Some(USER), None).unwrap();
    assert!(!write(&home, 4, "three").0);

    projects(&top);
    let report = text(finefs().args(["quota", "-n"]).arg(&top));
    let json = text(finefs().args(["quota", "--json", "-u"]).arg(&top));
    assert!(json.contains(&format!("\"id\": {USER}")), "{json}");
    unmount(&place);
    check(&image);
    for kind in ["user", "group", "project"] {
        let wanted = listed(&image, kind);
        assert!(wanted.len() >= 2, "{wanted:?}");
        assert_eq!(reported(&report, kind), wanted, "{kind}: {report}");
    }
    let of_user = listed(&image, "user")
        .into_iter()
        .find(|(id, ..)| *id == USER);
    assert_eq!(of_user, Some((USER, 4 + 100 + 60 + 300, 6)), "{report}");
    assert_eq!(
        text(finefs().args(["quota", "-n"]).arg(&image))
            .lines()
            .count(),
        report.lines().count()
    );
}

/// What is made in a directory of a project belongs to it, and nothing else gets in by a name.
fn projects(top: &Path) {
    let shared = top.join("shared");
    fs::write(shared.join("inner"), "of the project").unwrap();
    let shown = text(Command::new("lsattr").arg("-p").arg(shared.join("inner")));
    assert!(
        shown.trim_start().starts_with(&PROJECT.to_string()),
        "{shown}"
    );
    fs::write(top.join("outer"), "of none").unwrap();
    let crossed = fs::hard_link(top.join("outer"), shared.join("link")).unwrap_err();
    assert_eq!(crossed.raw_os_error(), Some(libc::EXDEV));
    let crossed = fs::rename(top.join("outer"), shared.join("moved")).unwrap_err();
    assert_eq!(crossed.raw_os_error(), Some(libc::EXDEV));
}

#[test]
fn who_is_above_a_soft_limit_has_time_to_come_down() {
    if !can_mount() {
        eprintln!("skipped: no FUSE");
        return;
    }
    let place = Place::new();
    let image = image_with_owners(&place);
    set_limits(&image, "3", USER, [400, 100], [0, 0]);
    let top = place.mount_point();
    mount(&image, &top, &["-o", "allow_other,usrquota"]);
    let home = top.join("home");
    assert!(write(&home, 120, "one").0);
    let report = text(finefs().args(["quota", "-nu"]).arg(&top));
    let line = report
        .lines()
        .find(|line| line.starts_with(&format!("#{USER} ")));
    assert!(line.unwrap().contains("+-"), "{report}");
    assert!(write(&home, 40, "two").0, "in the grace time");
    std::thread::sleep(Duration::from_secs(u64::from(GRACE_SECONDS) + 1));
    let (is_written, said) = write(&home, 4, "three");
    assert!(!is_written && said.contains("quota exceeded"), "{said}");
    assert!(as_user(&home, "rm one").0);
    let (is_written, said) = write(&home, 50, "three");
    assert!(is_written, "below it: {said}");
    unmount(&place);
    check(&image);

    // Account is kept without limits too.
    mount(&image, &top, &["-o", "allow_other"]);
    let (is_written, said) = write(&home, 800, "four");
    assert!(is_written, "{said}");
    unmount(&place);
    check(&image);
}
