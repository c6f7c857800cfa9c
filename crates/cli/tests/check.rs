//! `finefs check`, `repair` and `undo`: what they print, their statuses, partitions.

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
