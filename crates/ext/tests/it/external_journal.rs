//! Journals on a device of their own, and file systems that several hosts may reach, as mke2fs
//! makes them and the kernel uses them. Needs root for the loop devices; says so and passes
//! without.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::image::{self, lookup, run};
use finefs_block::{Access, BlockDevice, FileDevice};
use finefs_ext::{ExtOptions, ExtStore, MountError, MountErrorKind};
use finefs_namespace::Store;
use finefs_sim::{LoopDevice, unmount};

fn file(directory: &Path, name: &str, bytes: u64) -> PathBuf {
    let path = directory.join(name);
    fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

fn open(image: &Path, journal: Option<&Path>, is_read_only: bool) -> Result<ExtStore, MountError> {
    let access = match is_read_only {
        true => Access::ReadOnly,
        false => Access::ReadWrite,
    };
    let device =
        |path: &Path| -> Arc<dyn BlockDevice> { Arc::new(FileDevice::open(path, access).unwrap()) };
    ExtStore::open(
        device(image),
        &ExtOptions {
            is_read_only,
            journal: journal.map(device),
            ..ExtOptions::default()
        },
    )
}

fn check(image: &Path, journal: &Path) {
    let output = Command::new("e2fsck")
        .args(["-fn", "-j"])
        .arg(journal)
        .arg(image)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
}

#[test]
fn a_journal_elsewhere_is_replayed_and_written() {
    for block in ["1024", "4096"] {
        journal_elsewhere(block);
    }
}

fn journal_elsewhere(block: &str) {
    let directory = tempfile::tempdir().unwrap();
    let journal = file(directory.path(), "journal", 16 << 20);
    let image = file(directory.path(), "image", 32 << 20);
    let other = file(directory.path(), "other", 16 << 20);
    for path in [&journal, &other] {
        run(Command::new("mke2fs")
            .args(["-q", "-O", "journal_dev", "-b", block])
            .arg(path));
    }
    let Ok(log) = LoopDevice::over(&journal) else {
        eprintln!("skipped: there are no loop devices");
        return;
    };
    run(Command::new("mke2fs")
        .args(["-q", "-t", "ext4", "-b", block, "-J"])
        .arg(format!("device={}", log.path().display()))
        .arg(&image));

    let place = directory.path().join("mounted");
    fs::create_dir(&place).unwrap();
    run(Command::new("mount")
        .args(["-o", &format!("loop,journal_path={}", log.path().display())])
        .args([&image, &place]));
    fs::write(place.join("held"), "by the log").unwrap();
    run(Command::new("sync").arg("-f").arg(&place));
    let (crashed, crashed_log) = (
        directory.path().join("crashed"),
        directory.path().join("crashed-log"),
    );
    fs::copy(&image, &crashed).unwrap();
    fs::write(&crashed_log, fs::read(log.path()).unwrap()).unwrap();
    unmount(&place).unwrap();

    let refused = open(&crashed, None, false).unwrap_err();
    assert!(
        matches!(refused.kind, MountErrorKind::ExternalJournal { .. }),
        "{refused}"
    );
    for is_read_only in [false, true] {
        let wrong = open(&crashed, Some(&other), is_read_only).unwrap_err();
        assert!(
            matches!(wrong.kind, MountErrorKind::ForeignJournal(_)),
            "{wrong}"
        );
    }
    let before = fs::read(&crashed).unwrap();
    let shown = open(&crashed, Some(&crashed_log), true).unwrap();
    lookup(&shown, "held").unwrap();
    drop(shown);
    assert!(fs::read(&crashed).unwrap() == before, "it was written");

    let store = open(&crashed, Some(&crashed_log), false).unwrap();
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
    lookup(&store, "held").unwrap();
    // What a crash of ours leaves is replayed too: a label is a commit's smallest change.
    store.set_label(b"elsewhere").unwrap();
    store.close().unwrap();
    drop(store);
    check(&crashed, &crashed_log);
    let store = open(&crashed, Some(&crashed_log), false).unwrap();
    assert_eq!(store.notes(), Vec::<String>::new());
    assert_eq!(store.label(), b"elsewhere");
    store.close().unwrap();
}

#[test]
fn a_protected_image_is_mounted_once() {
    let directory = tempfile::tempdir().unwrap();
    let image = file(directory.path(), "image", 32 << 20);
    run(Command::new("mke2fs")
        .args([
            "-q",
            "-t",
            "ext4",
            "-O",
            "mmp",
            "-E",
            "mmp_update_interval=1",
        ])
        .arg(&image));
    // A lock on the file keeps others of this host away, but none of another one.
    let device = FileDevice::open(&image, Access::ReadWrite).unwrap();
    let claim = device.claim().unwrap();
    let store = ExtStore::open(Arc::new(device), &ExtOptions::default()).unwrap();
    claim.release();
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
    let copy = directory.path().join("copy");
    fs::copy(&image, &copy).unwrap();
    let dump = |path: &Path| {
        let output = Command::new("dumpe2fs").args(["-m"]).arg(path).output();
        String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
    };
    let held = dump(&image);
    assert!(!held.contains("0xff4d4d50"), "{held}");
    let refused = open(&image, None, false).unwrap_err();
    assert!(
        matches!(refused.kind, MountErrorKind::InUse(_)),
        "{refused}"
    );
    let said = refused.to_string();
    // The block has 32 bytes for the name of the device.
    let device: String = image.display().to_string().chars().take(32).collect();
    let who = format!("(as {device})");
    assert!(
        said.contains("is in use by host") && said.contains(&who),
        "{said}"
    );
    store.close().unwrap();
    drop(store);
    image::assert_clean(&image);
    // What a crash left is only taken over if nothing updates it.
    let store = open(&copy, None, false).unwrap();
    store.close().unwrap();
    drop(store);
    image::assert_clean(&copy);
}
