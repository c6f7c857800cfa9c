//! `finefs top` beside a real mount. Needs root and /dev/fuse; says so and passes where they are
//! missing.

use std::fs;
use std::process::Command;

use crate::support::{Place, can_mount, fail, finefs, mount_in_front, run, unmount};
use serde_json::Value;

fn top(place: &Place, arguments: &[&str]) -> Command {
    let mut command = finefs();
    command.arg("top").args(arguments).arg(place.mount_point());
    command
}

/// Runs `top` while files are made in the mount.
fn at_work(place: &Place, arguments: &[&str]) -> String {
    let root = place.mount_point();
    let output = std::thread::scope(|scope| {
        let (done, is_done) = std::sync::mpsc::channel();
        scope.spawn(move || {
            while is_done.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                fs::write(root.join("file"), "text").unwrap();
                fs::remove_file(root.join("file")).unwrap();
            }
        });
        let output = run(&mut top(place, arguments));
        done.send(()).unwrap();
        output
    });
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    String::from_utf8(output.stdout).unwrap()
}

/// Acquisitions of a class that every change takes.
fn acquisitions(picture: &str) -> u64 {
    let picture: Value = serde_json::from_str(picture).unwrap();
    let classes = picture["locks"]["classes"].as_array().unwrap();
    classes
        .iter()
        .map(|class| class["writer"]["acquisitions"].as_u64().unwrap())
        .sum()
}

#[test]
fn the_locks_of_a_mount_are_shown() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut server = mount_in_front(&place, &["--memory"]);

    let picture = at_work(&place, &["--full", "--json", "-n", "1", "-d", "0.3"]);
    assert!(acquisitions(&picture) > 0, "{picture}");
    // It has put the server back to counting contended acquisitions only.
    let picture = at_work(&place, &["--json", "-n", "1", "-d", "0.3"]);
    let contended: Value = serde_json::from_str(&picture).unwrap();
    assert!(contended["waiting"].is_array());
    assert_eq!(acquisitions(&picture), 0, "{picture}");

    let text = at_work(&place, &["--full", "-n", "2", "-d", "0.2"]);
    assert_eq!(text.matches("finefs top - ").count(), 2, "{text}");
    assert!(
        text.contains("contention ") && text.contains("(writer)"),
        "{text}"
    );
    let text = at_work(&place, &["--openmetrics"]);
    assert!(text.ends_with("# EOF\n"), "{text}");
    // All acquisitions of that interval: not those of the pictures before, and not none.
    let taken = |text: &str| -> u64 {
        let lines = text
            .lines()
            .filter(|line| line.starts_with("lock_acquisitions_total"));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    };
    let since_start = || taken(&at_work(&place, &["--openmetrics"]));
    let before = since_start();
    let one = taken(&at_work(&place, &["--openmetrics", "--full", "-d", "0.3"]));
    let all = since_start() - before;
    assert!(0 < one && one <= all, "{one} of {all}, after {before}");

    unmount(&place);
    assert!(server.wait().unwrap().success());
}

#[test]
fn holds_over_the_threshold_are_printed_with_backtraces() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut server = mount_in_front(&place, &["--memory"]);
    let text = at_work(&place, &["--threshold-us", "0", "-n", "1", "-d", "0.3"]);
    assert!(text.contains(" held "), "{text}");
    assert!(text.contains("finefs_namespace::"), "{text}");
    // Nothing is reported any more.
    let picture = at_work(
        &place,
        &["--json", "--waiters", "1000", "-n", "1", "-d", "0.3"],
    );
    assert_eq!(picture, "");
    unmount(&place);
    assert!(server.wait().unwrap().success());
}

#[test]
fn only_mounts_of_finefs_are_shown() {
    let place = Place::new();
    let line = fail(&mut top(&place, &["-n", "1"]));
    assert!(
        line.contains("not a mount") || line.contains("mount"),
        "{line}"
    );
    let status = run(&mut top(&place, &["-d", "0"])).status;
    assert_eq!(status.code(), Some(2));
}
