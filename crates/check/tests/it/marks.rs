//! What the superblock says of the whole image: that it has errors, that it was not unmounted.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::repair::{damage, device, options, prove};
use crate::support::{KINDS, check, check_bytes, judge, make, run};
use finefs_block::{BlockDevice, MemoryDevice};
use finefs_check::repair::{Outcome, repair};
use finefs_check::resize::{Target, UndoFile, resize};
use finefs_check::{Finding, Problem};
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock};
use finefs_sim::{FaultDevice, FaultOn};

const COUNTED: &str = "ssv error_count 3\nssv first_error_time 7\nssv first_error_func wrong\n\
                       ssv first_error_ino 12\nssv last_error_time 9\nssv last_error_block 5\n";

/// The marks as dumpe2fs shows them.
fn marks(image: &Path) -> Vec<String> {
    let shown = run(Command::new("dumpe2fs").arg("-h").arg(image));
    let names = ["Filesystem state:", "FS Error", "First error", "Last error"];
    let lines = shown.lines().map(str::to_owned);
    lines
        .filter(|line| names.iter().any(|name| line.starts_with(name)))
        .collect()
}

/// As e2fsck leaves them; before that both find nothing wrong with the image.
#[test]
fn marks_go_when_all_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let cases: [(&str, bool, &[Problem]); 4] = [
        ("ssv state 0", false, &[Problem::NotClean]),
        (
            "ssv state 2",
            true,
            &[Problem::ErrorsNoted, Problem::NotClean],
        ),
        ("ssv state 3", true, &[Problem::ErrorsNoted]),
        (
            "sif /large links_count 9\nssv state 3",
            true,
            &[Problem::LinkCount, Problem::ErrorsNoted],
        ),
    ];
    for kind in [0, 1, 2] {
        for (script, is_counted, problems) in cases {
            let image = make(dir.path(), &KINDS[kind]);
            let counted = if is_counted { COUNTED } else { "" };
            damage(&image, &format!("{script}\n{counted}"));
            let what = format!("{}, {script}", KINDS[kind].0);
            assert!(marks(&image).len() > 2 * usize::from(is_counted), "{what}");
            let (judged, report) = (judge(&image), check(&image).unwrap());
            assert_eq!(report.clean, judged.is_clean, "{what}: {report}");
            for problem in problems {
                let has = report.findings.iter().any(|it| it.problem == *problem);
                assert!(has, "{what}: {problem:?} in {report}");
            }
            let theirs = dir.path().join("theirs");
            std::fs::copy(&image, &theirs).unwrap();
            let fixed = Command::new("e2fsck").arg("-fy").arg(&theirs).output();
            assert!(fixed.unwrap().status.code().is_some_and(|code| code < 2));
            assert!(prove(&image, &what), "{what}: refused");
            assert!(
                image.with_extension("undo").exists(),
                "{what}: nothing done"
            );
            assert_eq!(marks(&image), marks(&theirs), "{what}");
            let report = check(&image).unwrap();
            let is_mark = |it: &&Finding| problems.contains(&it.problem);
            assert!(!report.findings.iter().any(|it| is_mark(&it)), "{report}");
        }
    }
    // Nothing else stands in the way of a resize.
    let image = make(dir.path(), &KINDS[2]);
    damage(&image, "ssv state 3");
    let undo = UndoFile {
        path: dir.path().join("resize.undo"),
        is_kept: false,
    };
    let larger = || {
        let target = Target::Bytes(24 << 20);
        resize(&device(&image), target, &options(), &undo, &|_| {})
    };
    let refused = larger().unwrap_err();
    assert!(refused.contains("finefs repair"), "{refused}");
    assert!(prove(&image, "before a resize"));
    assert!(larger().unwrap().is_some());
}

/// A file that was being truncated. A mount leaves it on an image that is marked as damaged.
#[test]
fn orphans_of_an_image_with_errors_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let image = make(dir.path(), &KINDS[2]);
    let shown = run(Command::new("debugfs")
        .args(["-R", "stat /large"])
        .arg(&image));
    let number = shown.split_whitespace().nth(1).unwrap();
    let script =
        format!("sif /large size 1000\nsif /large dtime 0\nssv last_orphan {number}\nssv state 3");
    damage(&image, &script);
    assert!(prove(&image, "an orphan"), "refused");
    let shown = run(Command::new("debugfs")
        .args(["-R", "blocks /large"])
        .arg(&image));
    assert_eq!(shown.split_whitespace().count(), 1, "{shown}");
    assert_eq!(marks(&image), ["Filesystem state:         clean"]);
}

/// The mark that a repair sets itself while it writes, where it was interrupted and is run again.
#[test]
fn the_mark_of_an_interrupted_repair_goes() {
    let dir = tempfile::tempdir().unwrap();
    let image = make(dir.path(), &KINDS[2]);
    damage(&image, "sif /large links_count 9\nunlink /a/b");
    let before = std::fs::read(&image).unwrap();
    let mut interrupted = 0;
    for at in 1.. {
        let memory: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&before));
        let failing = FaultDevice::new(Arc::clone(&memory), FaultOn::Write, at, u64::MAX);
        let failing: Arc<dyn BlockDevice> = Arc::new(failing);
        let undo = |name: &str| dir.path().join(format!("{name}-{at}"));
        if repair(&failing, &options(), Some(&undo("first"))).is_ok() {
            break;
        }
        interrupted += 1;
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let state = |bytes: &mut [u8; SUPERBLOCK_SIZE]| {
            memory.read_at(SUPERBLOCK_OFFSET, bytes).unwrap();
            Superblock::parse(bytes).unwrap().state()
        };
        assert!(state(&mut bytes).contains(State::ERROR), "write {at}");
        let again = repair(&memory, &options(), Some(&undo("second"))).unwrap();
        assert!(matches!(again, Outcome::Done { .. }), "{at}: {again:?}");
        assert_eq!(state(&mut bytes), State::VALID, "write {at}");
        let mut whole = vec![0; memory.len_bytes() as usize];
        memory.read_at(0, &mut whole).unwrap();
        let report = check_bytes(&whole).unwrap();
        assert!(report.clean, "write {at}: {report}");
    }
    assert!(interrupted > 2, "{interrupted}");
}
