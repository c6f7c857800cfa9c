//! Quotas, limits and projects, judged by e2fsck and debugfs, which count for themselves. Needs
//! root and FUSE. (Not every kernel mounts an image with quotas.)

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::reconnect::{forgetful_server, has};
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

/// Sets limits of the user, on the image or in the mount: of space in KiB, and of inodes; hard and
/// soft. What is above a soft limit may stay there for two seconds.
fn set_limits(target: &Path, space: [u64; 2], inodes: [u64; 2]) {
    let limits = [space[1], space[0], inodes[1], inodes[0]].map(|limit| limit.to_string());
    let mut set = finefs();
    set.args(["quota", "set"]).arg(target);
    succeed(set.arg(USER.to_string()).args(limits));
    let grace = GRACE_SECONDS.to_string();
    succeed(
        finefs()
            .args(["quota", "grace"])
            .arg(target)
            .args([&grace, &grace]),
    );
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
    set_limits(&image, [200, 0], [6, 0]);
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
    // Its limits are what it shows as its size.
    let project = PROJECT.to_string();
    let limits = ["0", "1M", "0", "50"];
    let set = finefs()
        .args(["quota", "set", "-P"])
        .arg(top)
        .arg(project)
        .args(limits)
        .status();
    assert!(set.unwrap().success());
    let space = |dir: &Path| rustix::fs::statvfs(dir).unwrap();
    let (own, whole) = (space(&shared), space(top));
    assert_eq!(own.f_blocks * own.f_frsize, 1 << 20);
    assert!((1..own.f_blocks).contains(&own.f_bfree) && own.f_bavail == own.f_bfree);
    assert!(own.f_files == 50 && (1..50).contains(&own.f_ffree));
    assert!(whole.f_blocks > own.f_blocks && whole.f_files > 50);
}

#[test]
fn users_see_their_own_quotas_in_the_mount_of_root() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = image_with_owners(&place);
    set_limits(&image, [200, 100], [6, 0]);
    let top = place.mount_point();
    mount(&image, &top, &["-o", "allow_other,usrquota"]);
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(write(&top.join("home"), 60, "one").0);
    let program = place.program();
    let report = |user: u32, group: u32| {
        let mut command = Command::new(&program);
        let command = command.args(["quota", "-nv"]).arg(&top);
        text(command.uid(user).gid(group))
    };
    let own = report(USER, USER);
    assert_eq!(reported(&own, "user"), [(USER, 64, 2)], "{own}");
    assert_eq!(reported(&own, "group"), [(USER, 64, 2)], "{own}");
    let line = own.lines().find(|line| line.starts_with("#4711 "));
    let words: Vec<&str> = line.unwrap().split_whitespace().collect();
    assert_eq!(words, ["#4711", "--", "64", "100", "200", "2", "0", "6"]);
    assert!(own.contains("Block grace time: 00:00"), "{own}");
    let of_other = report(USER + 1, USER);
    assert_eq!(reported(&of_other, "user"), [(USER + 1, 0, 0)]);
    assert_eq!(reported(&of_other, "group"), [(USER, 64, 2)]);
    // Nobody sees more by other means.
    let value = |user: u32, name: &str| {
        let name = format!("system.finefs.quota.{name}");
        let mut command = Command::new("getfattr");
        let command = command.args(["--only-values", "-n", &name]).arg(&top);
        run(command.uid(user).gid(user)).status.success()
    };
    assert!(value(USER, "user.4711"));
    for hidden in ["user.0", "group.0", "project.7"] {
        assert!(!value(USER, hidden) && value(0, hidden), "{hidden}");
    }
    unmount(&place);
    mount(&image, &top, &["-o", "allow_other,ro"]);
    assert_eq!(report(USER, USER), own);
    unmount(&place);
}

#[test]
fn limits_that_cannot_count_are_told_of() {
    if !can_mount() {
        eprintln!("skipped: no FUSE");
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    let mut command = finefs();
    command.args(["mount", "-o", "usrquota"]).arg(&image);
    let output = command.arg(place.mount_point()).output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("limits of users do not count"), "{said}");
    unmount(&place);
}

#[test]
fn who_is_above_a_soft_limit_has_time_to_come_down() {
    if !can_mount() {
        eprintln!("skipped: no FUSE");
        return;
    }
    let place = Place::new();
    let image = image_with_owners(&place);
    set_limits(&image, [400, 100], [0, 0]);
    let top = place.mount_point();
    mount(&image, &top, &["-o", "allow_other,usrquota"]);
    let home = top.join("home");
    let began = Instant::now();
    assert!(write(&home, 120, "one").0);
    let report = text(finefs().args(["quota", "-nu"]).arg(&top));
    let line = report
        .lines()
        .find(|line| line.starts_with(&format!("#{USER} ")));
    assert!(line.unwrap().contains("+-"), "{report}");
    let is_written = write(&home, 40, "two").0;
    let grace = Duration::from_secs(u64::from(GRACE_SECONDS));
    assert!(is_written || began.elapsed() >= grace, "in the grace time");
    std::thread::sleep(grace + Duration::from_secs(1));
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

/// The limits that debugfs finds of an id: space in KiB and inodes, each soft and hard.
fn limits(image: &Path, kind: &str, id: u32) -> Option<[u64; 4]> {
    let request = format!("get_quota {kind} {id}");
    let found = text(Command::new("debugfs").args(["-R", &request]).arg(image));
    let line = found.lines().nth(1)?;
    let numbers: Vec<u64> = line
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    Some([numbers[2], numbers[3], numbers[5], numbers[6]])
}

#[test]
fn limits_are_set_on_images_and_in_mounts() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = image_with_owners(&place);
    let set = |target: &Path, owners: &str, words: &[&str]| {
        let mut command = finefs();
        succeed(
            command
                .args(["quota", "set", owners])
                .arg(target)
                .args(words),
        );
    };
    // Those that have an entry, and many that need one: the tree grows.
    set(&image, "-u", &["4711", "100", "1M", "10", "1k"]);
    set(&image, "-g", &["root", "2g", "3G", "0", "0"]);
    set(&image, "-P", &["7", "0", "16", "0", "5"]);
    for id in 0..40 {
        set(
            &image,
            "-u",
            &[&(id * 77_777).to_string(), "0", "5", "0", "6"],
        );
    }
    check(&image);
    assert_eq!(limits(&image, "user", USER), Some([100, 1024, 10, 1000]));
    assert_eq!(limits(&image, "group", 0), Some([2 << 20, 3 << 20, 0, 0]));
    assert_eq!(limits(&image, "project", PROJECT), Some([0, 16, 0, 5]));
    assert_eq!(limits(&image, "user", 39 * 77_777), Some([0, 5, 0, 6]));

    let top = place.mount_point();
    mount(&image, &top, &["-o", "allow_other,usrquota"]);
    let home = top.join("home");
    assert!(write(&home, 60, "one").0);
    // In force at once, and no more when it is taken back.
    set(&top, "-u", &["4711", "0", "80", "0", "0"]);
    let (is_written, said) = write(&home, 40, "two");
    assert!(!is_written && said.contains("quota exceeded"), "{said}");
    let report = text(finefs().args(["quota", "-nu"]).arg(&top));
    let line = report
        .lines()
        .find(|line| line.starts_with("#4711 "))
        .unwrap();
    assert_eq!(line.split_whitespace().nth(4), Some("80"), "{report}");
    set(&top, "-u", &["4711", "0", "0", "0", "0"]);
    assert!(write(&home, 400, "two").0);
    // The image is another process's.
    set(&image, "-u", &["4712", "1", "2", "3", "4"]);
    succeed(
        finefs()
            .args(["quota", "grace"])
            .arg(&top)
            .args(["3days", "60"]),
    );
    let json = text(finefs().args(["quota", "--json", "-u"]).arg(&top));
    assert!(json.contains("\"space_grace\": 259200"), "{json}");
    assert!(json.contains("\"inode_grace\": 60"), "{json}");
    unmount(&place);
    check(&image);
    assert_eq!(limits(&image, "user", USER), Some([0, 0, 0, 0]));
    assert_eq!(limits(&image, "user", 4712), Some([1, 2, 3, 4]));
    let again = text(finefs().args(["quota", "--json", "-u"]).arg(&image));
    assert_eq!(again, json);
}

#[test]
fn limits_that_cannot_be_set_are_refused() {
    let place = Place::new();
    let image = place.image("ext4");
    let set = |owner: &str, soft: &str| {
        let mut command = finefs();
        command.args(["quota", "set"]).arg(&image);
        command.args([owner, soft, "0", "0", "0"]);
        command
    };
    let line = fail(&mut set("1", "5"));
    assert!(line.contains("keeps no such quota"), "{line}");
    let line = fail(&mut set("nobody-of-this-name", "5"));
    assert!(line.contains("give the number"), "{line}");
    let line = fail(&mut set("4294967295", "5"));
    assert!(line.contains("nobody has this number"), "{line}");
    let output = run(&mut set("1", "much"));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn those_of_a_mounted_export_are_reported() {
    if !can_mount() || !has("nbdkit") {
        return;
    }
    let place = Place::new();
    let image = image_with_owners(&place);
    let (storage, url) = forgetful_server(&place, &image, "");
    let top = place.mount_point();
    mount(Path::new(&url), &top, &["-o", "allow_other"]);
    assert!(write(&top.join("home"), 100, "one").0);
    let report = text(finefs().args(["quota", "-n"]).arg(&top));
    unmount(&place);
    drop(storage);
    assert_eq!(
        reported(&report, "user"),
        listed(&image, "user"),
        "{report}"
    );
}

#[test]
fn a_file_system_in_memory_says_that_it_keeps_none() {
    let place = Place::new();
    mount_memory(&place, &[]);
    let output = run(finefs().arg("quota").arg(place.mount_point()));
    unmount(&place);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(said.contains("keeps no quotas"), "{said}");
}
