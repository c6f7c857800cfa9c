//! What finefs finds, e2fsck finds, and the other way round: on good images, and on images with
//! changed bytes.

use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::support::{self, KINDS, check, judge, make, named};
use finefs::{AllocateMode, File, FileSystem};
use finefs_sim::LoopDevice;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

#[test]
fn good_images_are_clean() {
    let dir = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let image = make(dir.path(), kind);
        let judged = judge(&image);
        assert!(judged.is_clean, "{}: {}", kind.0, judged.text);
        let report = check(&image).unwrap();
        assert!(report.clean, "{}: {report}", kind.0);
        assert!(report.directories >= 6, "{}: {report}", kind.0);
    }
}

/// Where one leaf of the map ends and the next begins.
#[test]
fn a_cluster_is_mapped_by_two_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let kind = KINDS.iter().find(|kind| kind.0 == "ext4-bigalloc");
    let image = make(dir.path(), kind.unwrap());
    let fs = FileSystem::open_image(&image).unwrap();
    let file = File::create(&fs, "pieces").unwrap();
    let block = u64::from(fs.statfs().block_size_bytes);
    let blocks = 2000;
    let length = blocks * block;
    file.allocate(AllocateMode::Extend, 0, length).unwrap();
    for at in (0..blocks).step_by(2) {
        file.write_all_at(b"data", at * block).unwrap();
    }
    drop(file);
    fs.close().unwrap();
    let judged = judge(&image);
    assert!(judged.is_clean, "{}", judged.text);
    let report = check(&image).unwrap();
    assert!(report.clean, "{report}");
}

/// In the data of a file, and in the block of its attributes, which is claimed after all inodes.
#[test]
fn a_bad_block_that_is_in_use_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let (image, file) = (dir.path().join("image"), dir.path().join("file"));
    std::fs::write(&file, "data").unwrap();
    let make = ["-q", "-t", "ext4", "-I", "128"];
    support::run(Command::new("mke2fs").args(make).arg(&image).arg("8M"));
    let debugfs = |request: &str| {
        let mut debugfs = Command::new("debugfs");
        support::run(debugfs.args(["-w", "-R", request]).arg(&image))
    };
    debugfs(&format!("write {} f", file.display()));
    debugfs("ea_set f user.a 1");
    let shown = debugfs("stat f");
    let behind = |mark: &str| -> u64 {
        let text = shown.split_once(mark).unwrap().1.trim();
        let end = text.find(|letter: char| !letter.is_ascii_digit());
        text[..end.unwrap_or(text.len())].parse().unwrap()
    };
    for block in [behind("(0):"), behind("File ACL:")] {
        debugfs(&format!("sif <1> block[0] {block}"));
        let report = check(&image).unwrap();
        let found = report.findings.iter().filter(|finding| finding.is_error());
        let found: Vec<String> = found.map(ToString::to_string).collect();
        let is_it = |line: &String| line.contains("a bad block that is in use");
        assert!(found.iter().any(is_it), "{block}: {found:?}");
        assert!(!judge(&image).is_clean);
    }
}

/// Directories that the kernel indexes, of which the root of the index was a leaf before, by the
/// kernel's mount. Needs root.
#[test]
fn what_the_kernel_has_written_is_clean() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: not root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().join("top");
    std::fs::create_dir(&top).unwrap();
    for kind in KINDS {
        let image = make(dir.path(), kind);
        let device = LoopDevice::over(&image).unwrap();
        support::run(Command::new("mount").arg(device.path()).arg(&top));
        std::fs::create_dir(top.join("new")).unwrap();
        for number in 0..400 {
            std::fs::write(top.join(format!("new/a file {number}")), "x").unwrap();
        }
        for number in (0..400).step_by(3) {
            std::fs::remove_file(top.join(format!("new/a file {number}"))).unwrap();
        }
        finefs_sim::unmount(&top).unwrap();
        drop(device);
        let judged = judge(&image);
        assert!(judged.is_clean, "{}: {}", kind.0, judged.text);
        let report = check(&image).unwrap();
        assert!(report.clean, "{}: {report}", kind.0);
    }
}

/// Where damage does most: metadata of the image, by the blocks that mke2fs fills.
fn places(bytes: &[u8]) -> Vec<u64> {
    let is_used = |block: &[u8]| block.iter().any(|byte| *byte != 0);
    let blocks = bytes.chunks(1024).enumerate();
    blocks
        .filter(|(_, block)| is_used(block) && block.iter().any(|b| *b != block[0]))
        .map(|(at, _)| at as u64 * 1024)
        .collect()
}

/// Changes a few bytes of metadata.
fn mutate(good: &[u8], places: &[u64], random: &mut StdRng) -> Vec<(usize, [u8; 4])> {
    let change = |random: &mut StdRng| {
        let place = places[random.random_range(0..places.len())] as usize;
        let at = place + (random.random_range(0..1024) & !3);
        let mut word: [u8; 4] = good[at..at + 4].try_into().unwrap();
        let byte = random.random_range(0..4);
        match random.random_range(0..4) {
            0 => word[byte] ^= 1 << random.random_range(0..8),
            1 => word[byte] = random.random(),
            2 => word = [0; 4],
            _ => word = random.random_range(0..5000_u32).to_le_bytes(),
        }
        (at, word)
    };
    (0..random.random_range(1..4))
        .map(|_| change(random))
        .collect()
}

#[test]
fn verdicts_on_damaged_images_agree() {
    let dir = tempfile::tempdir().unwrap();
    let rounds = if support::is_full() { 10_000 } else { 140 };
    let seed = std::env::var("FINEFS_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = StdRng::seed_from_u64(seed);
    let (mut differ, mut unnamed) = (Vec::new(), 0);
    for kind in KINDS {
        let image = make(dir.path(), kind);
        let good = std::fs::read(&image).unwrap();
        let places = places(&good);
        let file = std::fs::File::options().write(true).open(&image).unwrap();
        for round in 0..rounds / KINDS.len() {
            let changed = mutate(&good, &places, &mut random);
            for (at, word) in &changed {
                file.write_at(word, *at as u64).unwrap();
            }
            let judged = judge(&image);
            let checked = check(&image);
            let is_clean = checked.as_ref().is_ok_and(|report| report.clean);
            if is_clean != judged.is_clean {
                let text = checked.as_ref().map(ToString::to_string);
                let what = format!("{} round {round}, {changed:x?}", kind.0);
                differ.push(format!("{what}: {text:?}\n{}", judged.text));
            } else if let Ok(report) = &checked
                && report.unlisted == 0
                && judged.inodes.difference(&named(report)).next().is_some()
            {
                unnamed += 1;
                if std::env::var_os("FINEFS_SHOW").is_some() {
                    println!("{}\n{report}\n{}", kind.0, judged.text);
                }
            }
            for (at, _) in changed {
                file.write_at(&good[at..at + 4], at as u64).unwrap();
            }
        }
    }
    println!("{unnamed} of {rounds} where e2fsck names an inode that finefs does not");
    assert!(
        unnamed <= rounds / 10,
        "{unnamed} of {rounds} are not named"
    );
    assert!(
        differ.is_empty(),
        "{} of {rounds} verdicts differ:\n{}",
        differ.len(),
        differ.join("\n---\n")
    );
}
