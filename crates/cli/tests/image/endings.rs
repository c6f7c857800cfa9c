//! Copies that do not come to their end: nothing half-made is left, and the image is good.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Place, assert_clean};

#[test]
fn a_full_image_says_by_how_much() {
    let place = Place::new();
    let image = place.image("image", "ext4", 16);
    fs::write(place.path("small"), "old").unwrap();
    place.ok(&["cp", "small", "image:/file"]);
    fs::write(place.path("large"), vec![1; 30 << 20]).unwrap();
    let said = place.fails(1, &["cp", "large", "image:/file"]);
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("finefs cp: image:/file: no space left"));
    let missing = lines.next().unwrap();
    assert!(
        missing.starts_with("finefs cp: the image lacks at least "),
        "{said}"
    );
    let bytes = missing
        .split_once('(')
        .unwrap()
        .1
        .split_once(' ')
        .unwrap()
        .0;
    let bytes: u64 = bytes.parse().unwrap();
    assert!((14 << 20..30 << 20).contains(&bytes), "{said}");
    assert_eq!(place.ok(&["cat", "image:/file"]), "old");
    assert_eq!(place.ok(&["ls", "-A", "image"]), "file\nlost+found\n");
    assert_clean(&image);
    // A tree that does not fit is not there at all.
    fs::create_dir(place.path("tree")).unwrap();
    for number in 0..40 {
        fs::write(place.path(&format!("tree/{number}")), vec![2; 1 << 20]).unwrap();
    }
    let said = place.fails(1, &["cp", "-r", "tree", "image:/"]);
    assert_eq!(said.lines().count(), 2, "{said}");
    assert_eq!(place.ok(&["ls", "-A", "image"]), "file\nlost+found\n");
    let output = place.with_input(&["cp", "-", "image:/stream"], &vec![3; 30 << 20]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(place.ok(&["ls", "-A", "image"]), "file\nlost+found\n");
    assert_clean(&image);
}

#[test]
fn inodes_may_be_missing_too() {
    let place = Place::new();
    place.image_with("image", 16, &["-t", "ext4", "-N", "64"]);
    fs::create_dir(place.path("tree")).unwrap();
    for number in 0..200 {
        fs::write(place.path(&format!("tree/{number}")), "").unwrap();
    }
    let said = place.fails(1, &["cp", "-r", "tree", "image:/"]);
    assert!(
        said.contains("no space left") && said.contains(" inodes"),
        "{said}"
    );
}

/// Many files, so that a signal comes while they are copied.
fn many(place: &Place) {
    fs::create_dir(place.path("tree")).unwrap();
    for number in 0..3000 {
        fs::write(place.path(&format!("tree/{number}")), vec![4; 20_000]).unwrap();
    }
}

/// Starts a copy and sends a signal when it has made something; gives how it ended.
fn interrupted(
    place: &Place,
    arguments: &[&str],
    signal: Signal,
    has_begun: &dyn Fn() -> bool,
) -> (Option<i32>, String) {
    let mut command: Command = place.finefs(arguments);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while !has_begun() && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = kill_process(Pid::from_child(&child), signal);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

fn is_filling(dir: &Path) -> bool {
    let is_beside = |name: &str| name.contains(".finefs-");
    fs::read_dir(dir).unwrap().any(|entry| {
        let entry = entry.unwrap();
        let files = || fs::read_dir(entry.path()).is_ok_and(|files| files.count() > 10);
        is_beside(&entry.file_name().to_string_lossy()) && files()
    })
}

#[test]
fn an_interrupted_copy_leaves_nothing() {
    let place = Place::new();
    let image = place.image("image", "ext4", 256);
    many(&place);
    place.ok(&["cp", "-r", "tree", "image:/"]);
    let out = place.path("out");
    fs::create_dir(&out).unwrap();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let copy = ["cp", "-r", "image:/tree", "out"];
        let (status, said) = loop {
            let (status, said) = interrupted(&place, &copy, signal, &|| is_filling(&out));
            if status != Some(0) {
                break (status, said);
            }
            // It was done before the signal came.
            fs::remove_dir_all(out.join("tree")).unwrap();
        };
        assert_eq!(status, Some(130), "{said}");
        assert!(said.contains("interrupted"), "{said}");
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
    }
    let wait = || {
        std::thread::sleep(Duration::from_millis(60));
        true
    };
    let (status, said) = interrupted(
        &place,
        &["cp", "-r", "tree", "image:/again"],
        Signal::INT,
        &wait,
    );
    let listed = place.ok(&["ls", "-A", "image"]);
    match status {
        // The signal came before anything was begun, or while it was done.
        None | Some(130) => assert_eq!(listed, "lost+found\ntree\n", "{said}"),
        status => assert_eq!(
            (status, listed.contains("again")),
            (Some(0), true),
            "{said}"
        ),
    }
    assert_clean(&image);
}

/// What is killed cannot clean up; but no name leads to half a tree, and the journal does the rest.
#[test]
fn a_killed_copy_leaves_a_good_image() {
    let place = Place::new();
    let image = place.image("image", "ext4", 256);
    many(&place);
    for millis in [20, 60, 120] {
        let wait = || {
            std::thread::sleep(Duration::from_millis(millis));
            true
        };
        interrupted(
            &place,
            &["cp", "-r", "tree", "image:/"],
            Signal::KILL,
            &wait,
        );
        let listed = place.ok(&["ls", "image"]);
        if listed.contains("tree\n") {
            let found = place.ok(&["find", "image:/tree", "-type", "f", "-size", "20000c"]);
            assert_eq!(found.lines().count(), 3000);
        }
        // Whoever writes it next replays the journal.
        place.ok(&["rm", "-rf", "image:/tree"]);
        assert_clean(&image);
    }
}
