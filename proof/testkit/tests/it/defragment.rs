//! Crashes while the blocks of files are moved together: whatever a crash leaves, each file has its
//! contents, and e2fsck, after the journal's replay, finds nothing.

use std::process::Command;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{Caller, Ino, Namespace, Options};
use finefs_sim::ImageDevice;
use finefs_sim::crash::Limits;
use finefs_sim::record::RecordingDevice;

const FILES: usize = 3;
const PIECES: usize = 60;

fn open(device: Arc<dyn BlockDevice>) -> Namespace {
    let store = ExtStore::open(device, &ExtOptions::default()).unwrap();
    Namespace::without_thread(Arc::new(store), Options::default()).unwrap()
}

fn make(ns: &Namespace, name: &str) -> Ino {
    let created = ns.create_file(&Caller::root(), ns.root(), name.as_bytes(), 0o644);
    created.unwrap().ino
}

fn find(ns: &Namespace, name: &str) -> Ino {
    ns.lookup(&Caller::root(), ns.root(), name.as_bytes())
        .unwrap()
        .ino
}

/// A piece of a file, the one of this number.
fn piece(file: usize, number: usize) -> Vec<u8> {
    (0..4096)
        .map(|at| (at / 8 + file * 31 + number * 7) as u8)
        .collect()
}

/// Files whose blocks alternate.
fn interleaved(ns: &Namespace) {
    let files: Vec<Ino> = (0..FILES)
        .map(|file| make(ns, &format!("f{file}")))
        .collect();
    for number in 0..PIECES {
        for (file, ino) in files.iter().enumerate() {
            // A hole now and then.
            let at = (number + number / 9) as u64 * 4096;
            ns.write(*ino, at, &piece(file, number)).unwrap();
            ns.sync_file(*ino, finefs_namespace::SyncScope::All)
                .unwrap();
        }
    }
}

fn assert_contents(ns: &Namespace, what: &str) {
    for file in 0..FILES {
        let ino = find(ns, &format!("f{file}"));
        for number in 0..PIECES {
            let at = (number + number / 9) as u64 * 4096;
            let mut found = vec![0; 4096];
            ns.read(ino, at, &mut found).unwrap();
            assert!(
                found == piece(file, number),
                "{what}: f{file}, piece {number}"
            );
        }
    }
}

fn e2fsck(image: &ImageDevice) -> (i32, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), image.to_bytes()).unwrap();
    let output = Command::new("e2fsck")
        .arg("-fy")
        .arg(file.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code().unwrap(), said)
}

fn crash(mkfs: &[&str]) {
    let image = tempfile::NamedTempFile::new().unwrap();
    let made = Command::new("mke2fs")
        .args(["-q", "-F"])
        .args(mkfs)
        .arg(image.path())
        .arg("12M")
        .status();
    assert!(made.unwrap().success());
    let device = Arc::new(RecordingDevice::new(std::fs::read(image.path()).unwrap()));
    let ns = open(device.clone());
    interleaved(&ns);
    ns.sync().unwrap();
    device.take_recorded();
    for file in 0..FILES {
        let ino = find(&ns, &format!("f{file}"));
        let before = ns.runs(ino).unwrap();
        let after = ns.defragment(ino).unwrap();
        assert!(before > 5 && after < before, "{before} -> {after}");
        if file == 1 {
            ns.sync().unwrap();
        }
    }
    assert_contents(&ns, "afterwards");
    // What was moved in vain is free again.
    ns.sync().unwrap();
    let recorded = device.recorded();
    ns.shut_down().unwrap();
    let limits = Limits {
        exhaustive_writes: 4,
        states: 24,
        unit_sectors: 1,
        whole_sectors: 2..4,
    };
    let mut states = 0;
    for (number, epoch) in recorded.epochs().iter().enumerate() {
        for (at, choice) in epoch.choices(&limits, number as u64).iter().enumerate() {
            let what = format!("epoch {number}, {}", epoch.describe(choice));
            let left = epoch.image(choice);
            states += 1;
            if at % 4 == 0 {
                let (status, said) = e2fsck(&ImageDevice::new(left.clone()));
                assert!(status <= 1 && !said.contains("Fix? yes"), "{what}: {said}");
            }
            let device = Arc::new(ImageDevice::new(left));
            let ns = open(device.clone());
            assert_contents(&ns, &what);
            ns.shut_down().unwrap();
            if at % 4 == 1 {
                let (status, said) = e2fsck(&device);
                assert_eq!(status, 0, "{what}: {said}");
            }
        }
    }
    assert!(states > 40, "{states}");
}

#[test]
fn a_crash_leaves_files_whole() {
    crash(&["-t", "ext4", "-b", "4096", "-J", "size=4"]);
}

#[test]
fn a_crash_leaves_files_whole_with_block_maps() {
    crash(&["-t", "ext3", "-b", "1024", "-J", "size=1"]);
}

#[test]
fn a_crash_leaves_files_whole_with_clusters() {
    crash(&[
        "-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "bigalloc", "-C", "4096",
    ]);
}
