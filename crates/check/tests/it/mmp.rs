//! Multiple mount protection: what changes an image keeps other hosts away, and is kept away by
//! them. A program waits eleven seconds for them, so that the tests do this side by side.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::repair::{device, options};
use crate::support::{check, judge, run};
use finefs_block::{BlockDevice, MemoryDevice};
use finefs_check::Problem;
use finefs_check::repair::{ChangedSince, Outcome, repair, undo};
use finefs_check::resize::{Target, UndoFile, resize};
use finefs_check::tune::{Changes, tune};
use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::mmp::{self, MmpBlock};
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use finefs_sim::{RecordingDevice, Request};

const BLOCK: u64 = 1024;
const FORCED: ChangedSince = ChangedSince::PutBack { is_part: false };

fn debugfs(image: &Path, request: &str) -> String {
    let mut debugfs = Command::new("debugfs");
    run(debugfs.args(["-w", "-R", request]).arg(image))
}

fn superblock(device: &dyn BlockDevice) -> Superblock {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    Superblock::parse(&bytes).unwrap()
}

fn mmp_block(device: &dyn BlockDevice) -> Option<MmpBlock> {
    let mut bytes = [0; mmp::SIZE];
    let at = superblock(device).mmp_block() * BLOCK;
    device.read_at(at, &mut bytes).unwrap();
    MmpBlock::parse(&bytes).ok()
}

/// Writes the block as a host leaves it that has the file system.
fn say(device: &dyn BlockDevice, sequence: u32) {
    let sb = superblock(device);
    let mut block = MmpBlock::clean(0, 5);
    block.set_sequence(sequence);
    block.set_node_name(b"elsewhere");
    block.set_device_name(b"disk");
    block.update_checksum(sb.seed());
    device
        .write_at(sb.mmp_block() * BLOCK, block.as_bytes())
        .unwrap();
}

/// An image whose damage a repair puts right. The block that protects it lies in a page of 4 KiB
/// with blocks that are damaged, and is not in the bitmap. (With the feature debugfs would wait.)
fn make(dir: &Path, name: &str) -> PathBuf {
    let image = dir.join(name);
    let _ = std::fs::remove_file(&image);
    let options = ["-q", "-t", "ext4", "-b", "1024"];
    run(Command::new("mke2fs").args(options).arg(&image).arg("8M"));
    for name in ["first", "second", "third"] {
        debugfs(&image, &format!("mkdir {name}"));
    }
    let blocks = ["first", "second", "third"].map(|name| {
        let shown = debugfs(&image, &format!("blocks {name}"));
        shown.trim().parse::<u64>().unwrap()
    });
    assert_eq!([blocks[0] + 1, blocks[0] + 2], blocks[1..]);
    debugfs(&image, "rmdir second");
    let device = device(&image);
    for block in [blocks[0], blocks[2]] {
        device.write_at(block * BLOCK + BLOCK - 4, b"oops").unwrap();
    }
    let mut sb = superblock(&*device);
    sb.set_incompat(sb.incompat() | Incompat::MMP);
    sb.set_mmp_block(blocks[1]);
    sb.set_mmp_interval(1);
    sb.update_checksum();
    device.write_at(SUPERBLOCK_OFFSET, sb.as_bytes()).unwrap();
    say(&*device, mmp::SEQUENCE_CLEAN);
    image
}

/// The bytes of a device but for the block.
fn others(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    let at = (superblock(device).mmp_block() * BLOCK) as usize;
    bytes[at..at + BLOCK as usize].fill(0);
    bytes
}

fn in_memory(image: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(MemoryDevice::from_bytes(&std::fs::read(image).unwrap()))
}

fn label() -> Changes {
    Changes {
        label: Some(b"changed".to_vec()),
        ..Changes::default()
    }
}

/// Everything that changes an image, with what it says where it does not.
fn attempts(device: &Arc<dyn BlockDevice>, dir: &Path) -> Vec<Result<(), String>> {
    let undo_file = dir.join("some.undo");
    std::fs::write(&undo_file, "not read").unwrap();
    let file = UndoFile {
        path: dir.join("resize.undo"),
        is_kept: false,
    };
    let repair_undo = dir.join("repair.undo");
    let target = Target::Bytes(6 << 20);
    std::thread::scope(|scope| {
        let running = [
            scope.spawn(|| repair(device, &options(), Some(&repair_undo)).map(drop)),
            scope.spawn(|| undo(&undo_file, device, ChangedSince::Refused).map(drop)),
            scope.spawn(|| tune(device, &label()).map(drop)),
            scope.spawn(|| resize(device, target, &options(), &file, &|_| {}).map(drop)),
        ];
        running.map(|it| it.join().unwrap()).into()
    })
}

#[test]
fn an_image_in_use_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let image = make(dir.path(), "image");
    // While somebody checks it, as e2fsck has it.
    let device = in_memory(&image);
    say(&*device, mmp::SEQUENCE_FSCK);
    let before = others(&*device);
    for outcome in attempts(&device, dir.path()) {
        let refused = outcome.unwrap_err();
        let who = "is being checked by host elsewhere (as disk)";
        assert!(refused.contains(who), "{refused}");
    }
    let checked = dir.path().join("checked");
    let mut bytes = vec![0; device.len_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    std::fs::write(&checked, bytes).unwrap();
    let theirs = Command::new("e2fsck").arg("-fy").arg(&checked).output();
    // It was not done, and errors are left.
    assert_eq!(theirs.unwrap().status.code(), Some(8 | 4));
    assert!(others(&*device) == before);
    // While somebody has mounted it, who writes the block every now and then.
    let is_over = AtomicBool::new(false);
    let outcomes = std::thread::scope(|scope| {
        scope.spawn(|| {
            for sequence in (1..).take_while(|_| !is_over.load(Relaxed)) {
                say(&*device, sequence);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        while mmp_block(&*device).unwrap().sequence() == mmp::SEQUENCE_FSCK {
            std::thread::yield_now();
        }
        let outcomes = attempts(&device, dir.path());
        is_over.store(true, Relaxed);
        outcomes
    });
    for outcome in outcomes {
        let refused = outcome.unwrap_err();
        assert!(refused.contains("is in use by host elsewhere"), "{refused}");
    }
    assert!(others(&*device) == before);
    // Who only looks is told.
    std::fs::copy(&image, &checked).unwrap();
    say(&*crate::repair::device(&checked), 77);
    let report = check(&checked).unwrap();
    let has = |problem| report.findings.iter().any(|it| it.problem == problem);
    assert!(has(Problem::InUse) && !has(Problem::Mmp), "{report}");
}

/// The number of the request that writes the block with this sequence.
fn written(requests: &[Request], at_byte: u64, is_it: impl Fn(u32) -> bool) -> Vec<usize> {
    let sequence = |request: &Request| match request {
        Request::Write { offset_bytes, data } if *offset_bytes == at_byte => {
            MmpBlock::parse(data).ok().map(|block| block.sequence())
        }
        _ => None,
    };
    let all = requests.iter().enumerate();
    all.filter(|(_, request)| sequence(request).is_some_and(&is_it))
        .map(|(number, _)| number)
        .collect()
}

/// Nothing but the block is written before it says that the image is being checked, and nothing
/// after it says that nobody has it.
fn assert_marked(device: &RecordingDevice, what: &str) {
    let place = superblock(device).mmp_block() * BLOCK;
    let requests = device.take_recorded().requests;
    let all = written(&requests, place, |_| true);
    let checked = written(&requests, place, |it| it == mmp::SEQUENCE_FSCK);
    let freed = written(&requests, place, |it| it == mmp::SEQUENCE_CLEAN);
    assert_eq!((all.len(), checked.len(), freed.len()), (3, 1, 1), "{what}");
    let writes = requests.iter().enumerate();
    for (number, request) in writes {
        if matches!(request, Request::Write { .. } | Request::WriteZeros { .. }) {
            let is_marked = (checked[0]..=freed[0]).contains(&number);
            assert!(is_marked || number == all[0], "{what}: {number}");
        }
    }
}

fn repaired_and_undone(dir: &Path) {
    let image = make(dir, "repaired");
    assert!(!judge(&image).is_clean);
    let recording = Arc::new(RecordingDevice::new(std::fs::read(&image).unwrap()));
    let device: Arc<dyn BlockDevice> = recording.clone();
    let before = others(&*device);
    let file = dir.join("repaired.undo");
    let outcome = repair(&device, &options(), Some(&file)).unwrap();
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    assert_marked(&recording, "repair");
    std::fs::write(&image, recording.image().to_bytes()).unwrap();
    let judged = judge(&image);
    assert!(judged.is_clean, "{}", judged.text);
    // The undo file knows the image, although the block has changed since.
    undo(&file, &device, ChangedSince::Refused).unwrap();
    assert_marked(&recording, "undo");
    assert!(others(&*device) == before);
    // A repair that was interrupted leaves its mark: undo is told to pass over it.
    say(&*device, mmp::SEQUENCE_FSCK);
    recording.take_recorded();
    let refused = undo(&file, &device, ChangedSince::Refused).unwrap_err();
    assert!(refused.contains("undo --force"), "{refused}");
    assert!(recording.take_recorded().requests.is_empty());
    undo(&file, &device, FORCED).unwrap();
    assert_marked(&recording, "forced undo");
    assert!(others(&*device) == before);
}

fn resized_and_tuned(dir: &Path) {
    let image = make(dir, "resized");
    repair(&device(&image), &options(), Some(&dir.join("first.undo"))).unwrap();
    let recording = Arc::new(RecordingDevice::new(std::fs::read(&image).unwrap()));
    let device: Arc<dyn BlockDevice> = recording.clone();
    let file = UndoFile {
        path: dir.join("resized.undo"),
        is_kept: false,
    };
    let target = Target::Bytes(6 << 20);
    let resized = resize(&device, target, &options(), &file, &|_| {}).unwrap();
    assert!(resized.is_some());
    assert_marked(&recording, "resize");
    tune(&device, &label()).unwrap();
    assert_marked(&recording, "tune");
    std::fs::write(&image, recording.image().to_bytes()).unwrap();
    let judged = judge(&image);
    assert!(judged.is_clean, "{}", judged.text);
}

/// A repair that changes nothing, since it takes a decision.
fn refused(dir: &Path) {
    let image = make(dir, "refused");
    let device = in_memory(&image);
    // As "located at block 98, offset 0x0500".
    let shown = run(Command::new("debugfs")
        .args(["-R", "imap <11>"])
        .arg(&image));
    let place = shown.split_once("located at block ").unwrap().1;
    let (block, offset) = place.trim().split_once(", offset 0x").unwrap();
    let offset = u64::from_str_radix(offset, 16).unwrap();
    let at = block.parse::<u64>().unwrap() * BLOCK + offset;
    // There is no such type of file.
    device.write_at(at + 1, &[0x31]).unwrap();
    let before = others(&*device);
    let file = dir.join("refused.undo");
    let outcome = repair(&device, &options(), Some(&file)).unwrap();
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    assert!(others(&*device) == before && !file.exists());
    let sequence = mmp_block(&*device).map(|block| block.sequence());
    assert_eq!(sequence, Some(mmp::SEQUENCE_CLEAN));
}

/// The block itself is damaged: nobody is known to have the image, and nobody is seen.
fn damaged(dir: &Path) {
    let image = make(dir, "damaged");
    let place = superblock(&*device(&image)).mmp_block() * BLOCK;
    // Its magic number, and its checksum alone; other things are wrong besides, and then nothing.
    for at in [place, place + 0x200] {
        let device = device(&image);
        device.write_at(at, b"oops").unwrap();
        let has = |report: &finefs_check::Report| {
            report.findings.iter().any(|it| it.problem == Problem::Mmp)
        };
        assert!(!judge(&image).is_clean);
        let report = check(&image).unwrap();
        assert!(!report.clean && has(&report), "{report}");
        assert!(report.is_repairable(), "{report}");
        let before = others(&*device);
        let dry = repair(&device, &options(), None).unwrap();
        assert!(matches!(dry, Outcome::Done { .. }), "{dry:?}");
        let file = dir.join("damaged.undo");
        let _ = std::fs::remove_file(&file);
        let outcome = repair(&device, &options(), Some(&file)).unwrap();
        let Outcome::Done { fixed, .. } = &outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(fixed[0].problem, Problem::Mmp, "{fixed:?}");
        let is_alone = fixed.len() == 1;
        assert_eq!(is_alone, at != place, "{fixed:?}");
        assert_eq!(others(&*device) == before, is_alone);
        assert_eq!(file.exists(), !is_alone);
        let judged = judge(&image);
        assert!(judged.is_clean, "{}", judged.text);
        let report = check(&image).unwrap();
        assert!(report.clean && !has(&report), "{report}");
    }
}

#[test]
fn what_changes_an_image_marks_it_until_it_is_done() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| repaired_and_undone(dir.path()));
        scope.spawn(|| resized_and_tuned(dir.path()));
        scope.spawn(|| refused(dir.path()));
        scope.spawn(|| damaged(dir.path()));
    });
}
