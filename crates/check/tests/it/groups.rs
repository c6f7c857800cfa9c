//! Groups whose descriptors leave inodes in use out, as never used: a repair looks at them before
//! it says what else is wrong.

use std::path::Path;
use std::process::Command;

use crate::repair::{attached, damage, prove};
use crate::support::{judge, run};
use finefs_check::Problem;

fn debugfs(image: &Path, request: &str) -> String {
    run(Command::new("debugfs").args(["-R", request]).arg(image))
}

/// The number behind a word of debugfs or dumpe2fs.
fn number_behind(text: &str, word: &str) -> u32 {
    let rest = text.split_once(word).unwrap().1.trim();
    let end = rest.find(|letter: char| !letter.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().unwrap()
}

fn inode_of(image: &Path, path: &str) -> u32 {
    number_behind(&debugfs(image, &format!("stat {path}")), "Inode:")
}

/// A file in a directory whose inode, the last one in use, is left out. With `others` removed there
/// are enough free inodes for the number, and the directory's entry alone says that it is wrong.
fn make(dir: &Path, removes_others: bool) -> std::path::PathBuf {
    let (image, file) = (dir.join("image"), dir.join("file"));
    std::fs::write(&file, "data").unwrap();
    let _ = std::fs::remove_file(&image);
    let options = ["-q", "-t", "ext4", "-b", "1024", "-O", "^has_journal"];
    run(Command::new("mke2fs").args(options).arg(&image).arg("8M"));
    let others = ["a", "b", "c", "d"];
    let mut script = String::new();
    for name in others.iter().chain(&["f"]) {
        script += &format!("write {} {name}\n", file.display());
    }
    // debugfs leaves the file's count of links as it is: 1.
    script += "mkdir new\nln f new/f\nunlink f\n";
    if removes_others {
        script += &others.map(|name| format!("rm {name}\n")).concat();
    }
    damage(&image, &script);
    assert!(judge(&image).is_clean);
    let directory = inode_of(&image, "new");
    assert!(inode_of(&image, "new/f") < directory);
    let shown = run(Command::new("dumpe2fs").arg("-h").arg(&image));
    let unused = number_behind(&shown, "Inodes per group:") - (directory - 1);
    let script = format!("set_bg 0 itable_unused {unused}\nset_bg 0 checksum calc");
    damage(&image, &script);
    image
}

#[test]
fn nothing_is_lost_that_is_in_a_directory_left_out() {
    let dir = tempfile::tempdir().unwrap();
    for removes_others in [false, true] {
        let image = make(dir.path(), removes_others);
        let what = format!("others removed: {removes_others}");
        let judged = judge(&image);
        assert!(!judged.is_clean, "{what}: {}", judged.text);
        let report = crate::support::check(&image).unwrap();
        let has_flags = report
            .findings
            .iter()
            .any(|it| it.problem == Problem::GroupFlags);
        assert!(has_flags, "{what}: {report}");
        let theirs = dir.path().join("theirs");
        std::fs::copy(&image, &theirs).unwrap();
        let fixed = Command::new("e2fsck").arg("-fy").arg(&theirs).output();
        assert!(fixed.unwrap().status.code().is_some_and(|code| code < 2));
        assert!(judge(&theirs).is_clean, "{what}");
        assert!(prove(&image, &what), "{what}: refused");
        for image in [&image, &theirs] {
            assert_eq!(attached(image), Vec::<String>::new(), "{what}");
            let shown = debugfs(image, "stat new/f");
            assert_eq!(number_behind(&shown, "Links:"), 1, "{what}: {shown}");
            assert_eq!(debugfs(image, "cat new/f"), "data", "{what}");
        }
    }
}
