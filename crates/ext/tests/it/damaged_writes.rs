//! Changes of damaged images that can be mounted for writing: what was answered with success is on
//! the image afterwards, and what is not possible is refused when it is asked for, with the true
//! cause.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apply_world::sized;
use crate::image::{self, assert_clean, debugfs, make, run};
use crate::trial::{self, Outcome, Trial, messages_about};
use finefs_ext::OnError;
use finefs_namespace::{Caller, Error};
use tempfile::TempDir;

/// With and without checksums and journals.
const FORMATS: [&[&str]; 4] = [
    &["-t", "ext2"],
    &["-t", "ext3", "-J", "size=1"],
    &["-t", "ext4", "-O", "^metadata_csum,^has_journal,^uninit_bg"],
    &["-t", "ext4", "-J", "size=1"],
];

/// An image of four block groups with some files.
fn populated(options: &[&str]) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    for folder in ["first", "second", "second/inner"] {
        std::fs::create_dir_all(tree.join(folder)).unwrap();
        for number in 0..12_usize {
            let file = tree.join(folder).join(format!("file{number}"));
            std::fs::write(file, vec![number as u8 + 1; 700 * number]).unwrap();
        }
    }
    let all = [
        &["-b", "1024", "-N", "2048", "-d", tree.to_str().unwrap()],
        options,
    ]
    .concat();
    let image = make(directory.path(), "32M", &all);
    (directory, image)
}

/// The block bitmaps and inode bitmaps of all groups.
fn bitmaps(image: &Path) -> Vec<(u64, u64)> {
    let text = run(Command::new("dumpe2fs").arg(image));
    let number = |line: &str, what: &str| -> Option<u64> {
        let rest = line.split(what).nth(1)?;
        rest.split([' ', ',']).next()?.parse().ok()
    };
    let blocks = text
        .lines()
        .filter_map(|line| number(line, "Block bitmap at "));
    let inodes = text
        .lines()
        .filter_map(|line| number(line, "Inode bitmap at "));
    let bitmaps: Vec<_> = blocks.zip(inodes).collect();
    assert_eq!(bitmaps.len(), 4, "{text}");
    bitmaps
}

fn overwrite(image: &Path, block: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(image).unwrap();
    file.write_all_at(bytes, block * 1024).unwrap();
}

/// Changes a bit of everything in all directories; nothing that succeeds may be lost.
fn work(image: &Path) -> Outcome {
    let mut trial = Trial::open(image).expect("it is mounted for writing");
    for directory in trial.directories(10) {
        trial.work_in(&directory);
        trial.sync();
    }
    let outcome = trial.end();
    assert!(
        outcome.lost.is_empty() && outcome.lost_to_repair.is_empty() && outcome.failure.is_none(),
        "{outcome}"
    );
    let full = messages_about(image, "disk is full");
    assert!(full.is_empty(), "{full:?}");
    outcome
}

/// Some errors of the kind that damage gives.
fn assert_refused(outcome: &Outcome) {
    let is_damage = |error: &String| error.contains("structure needs cleaning");
    assert!(outcome.errors.keys().any(is_damage), "{outcome}");
}

#[test]
fn a_damaged_group_is_left_alone_and_the_others_go_on() {
    for options in FORMATS {
        for group in 0..4 {
            let (_directory, image) = populated(options);
            let (blocks, inodes) = bitmaps(&image)[group];
            overwrite(&image, blocks, &[0x5a; 100]);
            overwrite(&image, inodes, &[0x5a; 40]);
            let outcome = work(&image);
            assert!(outcome.errors.is_empty(), "{options:?}: {outcome}");
        }
    }
}

#[test]
fn a_count_that_does_not_agree_takes_its_group_out_of_use() {
    for options in FORMATS {
        let (_directory, image) = populated(options);
        debugfs(
            &image,
            "set_bg 0 free_blocks_count 7\nset_bg 0 free_inodes_count 9\n",
        );
        if options.contains(&"-J") && options.contains(&"ext4") {
            debugfs(&image, "set_bg 0 checksum calc\n");
        }
        let outcome = work(&image);
        assert!(outcome.errors.is_empty(), "{options:?}: {outcome}");
        assert!(!messages_about(&image, "by the descriptor").is_empty());
    }
}

#[test]
fn where_all_groups_are_damaged_nothing_is_promised() {
    for options in FORMATS {
        for what in ["blocks", "inodes"] {
            let (_directory, image) = populated(options);
            let places = bitmaps(&image);
            if options.contains(&"ext4") && options.contains(&"-J") {
                // Groups that were never used have no bitmap to damage.
                let flags: String = (0..4)
                    .map(|group| format!("set_bg {group} flags 4\nset_bg {group} checksum calc\n"))
                    .collect();
                debugfs(&image, &flags);
            }
            for (blocks, inodes) in places {
                let place = if what == "blocks" { blocks } else { inodes };
                overwrite(&image, place, &[0x5a; 100]);
            }
            let outcome = work(&image);
            assert_refused(&outcome);
            for error in outcome.errors.keys() {
                assert!(!error.contains("no space left"), "{options:?}: {error}");
                assert!(!error.contains("read-only"), "{options:?}: {error}");
            }
            // What needs no space is done all the same.
            assert!(outcome.succeeded > 10, "{outcome}");
        }
    }
}

/// Else the new file would overwrite the old one.
#[test]
fn an_inode_in_use_that_is_marked_free_is_not_given_out() {
    for options in &FORMATS[..3] {
        let (_directory, image) = populated(options);
        let per_group = 2048 / 4;
        let (_, inodes) = bitmaps(&image)[0];
        // The reserved ones are in use, and what lies behind the last one is set.
        let mut bitmap = [0xff; 1024];
        bitmap[1..per_group / 8].fill(0);
        bitmap[1] = 0x03;
        overwrite(&image, inodes, &bitmap);
        debugfs(
            &image,
            &format!("set_bg 0 free_inodes_count {}\n", per_group - 10),
        );
        let outcome = work(&image);
        assert!(outcome.errors.is_empty(), "{options:?}: {outcome}");
        assert!(!messages_about(&image, "is in use, but marked free").is_empty());
    }
}

#[test]
fn where_errors_stop_the_file_system_the_first_refusal_names_the_damage() {
    let (_directory, image) = populated(&["-t", "ext4", "-J", "size=1"]);
    for (blocks, inodes) in bitmaps(&image) {
        overwrite(&image, blocks, &[0x5a; 100]);
        overwrite(&image, inodes, &[0x5a; 40]);
    }
    let namespace = trial::open_with(&image, OnError::ReadOnly);
    let root = namespace.root();
    let caller = Caller::root();
    let made = |name: &[u8]| namespace.make_directory(&caller, root, name, 0o755);
    let first = made(b"one").unwrap_err();
    assert!(
        matches!(&first, Error::Corrupt(what) if what.contains("bitmap")),
        "{first:?}"
    );
    assert_eq!(made(b"two").unwrap_err(), Error::ReadOnly);
    assert_eq!(
        namespace.remove_file(&caller, root, b"x"),
        Err(Error::ReadOnly)
    );
    namespace.shut_down().unwrap();
}

/// A free that meets damage leaks, and stops the file system where it is to stop.
#[test]
fn what_cannot_be_freed_leaks() {
    for on_error in [OnError::Continue, OnError::ReadOnly] {
        let (_directory, image) = populated(&["-t", "ext4", "-J", "size=1"]);
        let (blocks, inodes) = bitmaps(&image)[0];
        overwrite(&image, blocks, &[0x5a; 100]);
        overwrite(&image, inodes, &[0x5a; 40]);
        let namespace = trial::open_with(&image, on_error);
        let caller = Caller::root();
        let first = namespace
            .lookup(&caller, namespace.root(), b"first")
            .unwrap();
        let removed = namespace.remove_file(&caller, first.ino, b"file7");
        removed.unwrap();
        namespace.sync().unwrap();
        let next = namespace.remove_file(&caller, first.ino, b"file8");
        let is_stopped = on_error == OnError::ReadOnly;
        assert_eq!(
            next,
            if is_stopped {
                Err(Error::ReadOnly)
            } else {
                Ok(())
            }
        );
        namespace.shut_down().unwrap();
        drop(namespace);
        let text = run(Command::new("dumpe2fs").arg("-h").arg(&image));
        assert!(text.contains("clean with errors"), "{text}");
        let store = image::open(&image, true).unwrap();
        assert_eq!(image::lookup(&store, "first/file7"), Err(Error::NotFound));
        let next = image::lookup(&store, "first/file8");
        assert_eq!(next.is_ok(), is_stopped);
    }
}

/// A file that was never looked at is removed: its map turns out to be damaged when it is freed.
#[test]
fn a_file_with_a_damaged_map_is_removed() {
    for options in [&["-t", "ext2"][..], &["-t", "ext4", "-J", "size=1"]] {
        let (directory, image) = populated(options);
        let data = directory.path().join("data");
        std::fs::write(&data, vec![7; 300 << 10]).unwrap();
        let fill: String = (0..6)
            .map(|number| format!("write {} big{number}\n", data.display()))
            .collect();
        debugfs(&image, &fill);
        match options.contains(&"ext2") {
            // An indirect block that leads back to itself.
            true => {
                let text = debugfs(&image, "stat big3\n");
                let block = text.split("(IND):").nth(1).unwrap();
                let block: u64 = block.split(',').next().unwrap().parse().unwrap();
                overwrite(&image, block, &(block as u32).to_le_bytes().repeat(256));
                debugfs(&image, &format!("sif big3 block[TIND] {block}\n"));
            }
            false => {
                debugfs(&image, "sif big3 block[0] 0x1234\n");
            }
        }
        let mut trial = Trial::open(&image).unwrap();
        trial.remove(b"", b"big3");
        trial.remove(b"", b"big4");
        trial.sync();
        assert!(trial.make_directory(b"", b"after it"));
        let outcome = trial.end();
        assert!(
            outcome.errors.is_empty() && outcome.failure.is_none(),
            "{outcome}"
        );
        assert!(
            outcome.lost.is_empty() && outcome.lost_to_repair.is_empty(),
            "{outcome}"
        );
        assert!(!messages_about(&image, "stays allocated").is_empty());
    }
}

/// Looks at a directory that can be read and not changed.
fn assert_unchangeable(image: &Path, directory: &[u8], names: usize, reason: &str) {
    let mut trial = Trial::open(image).expect("it is mounted for writing");
    let listed = trial.names(directory);
    assert_eq!(listed.len(), names);
    trial.make_directory(directory, b"one more directory");
    trial.make_file(directory, b"one more file", b"content");
    trial.make_link(directory, b"one more link");
    trial.remove(directory, &listed[0]);
    let outcome = trial.end();
    assert!(
        outcome.lost.is_empty() && outcome.failure.is_none(),
        "{outcome}"
    );
    assert_eq!(outcome.succeeded, 0, "{outcome}");
    assert!(
        outcome.errors.keys().all(|error| error.contains(reason)),
        "{outcome}"
    );
}

/// Makes another name of a file in a directory of one block, and then another one of it, which
/// debugfs would not make.
fn make_name(image: &Path, directory: &str, name: &str, then: &str) {
    debugfs(image, &format!("ln first/file3 /{directory}/{name}\n"));
    let text = debugfs(image, &format!("blocks /{directory}\n"));
    let block: u64 = text.split_whitespace().last().unwrap().parse().unwrap();
    let mut bytes = [0; 1024];
    let file = File::options().read(true).write(true).open(image).unwrap();
    file.read_exact_at(&mut bytes, block * 1024).unwrap();
    let name = name.as_bytes();
    let at = bytes.windows(name.len()).position(|bytes| bytes == name);
    let at = block * 1024 + at.unwrap() as u64;
    file.write_all_at(then.as_bytes(), at).unwrap();
}

#[test]
fn a_directory_with_names_that_cannot_be_is_not_changed() {
    let (_directory, image) = populated(&["-t", "ext2"]);
    make_name(&image, "", "aXb", "a/b");
    assert_unchangeable(&image, b"", 3, "illegal name");
    // What is below it can be.
    let mut trial = Trial::open(&image).unwrap();
    trial.work_in(b"/second/inner");
    let outcome = trial.end();
    assert!(
        outcome.errors.is_empty() && outcome.lost.is_empty(),
        "{outcome}"
    );
}

#[test]
fn a_directory_with_a_name_twice_is_not_changed() {
    let (_directory, image) = populated(&["-t", "ext2"]);
    make_name(&image, "first", "fileX", "file4");
    assert_unchangeable(&image, b"/first", 12, "duplicate names");
}

#[test]
fn a_directory_with_blocks_behind_its_end_is_not_changed() {
    let (_directory, image) = populated(&["-t", "ext2"]);
    debugfs(&image, "expand_dir first\nsif first size 1024\n");
    assert_unchangeable(&image, b"/first", 12, "blocks behind its end");
}

/// The hash of a leaf says other names than are in it.
#[test]
fn a_directory_whose_index_leads_elsewhere_is_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    std::fs::create_dir_all(tree.join("large")).unwrap();
    for number in 0..300 {
        std::fs::write(tree.join(format!("large/name {number}")), b"x").unwrap();
    }
    let options = [
        "-t",
        "ext2",
        "-b",
        "1024",
        "-N",
        "2048",
        "-d",
        tree.to_str().unwrap(),
    ];
    let image = make(directory.path(), "32M", &options);
    let indexed = Command::new("e2fsck")
        .args(["-fyD"])
        .arg(&image)
        .output()
        .unwrap();
    assert!(indexed.status.code().is_some_and(|code| code <= 1));
    let mut trial = Trial::open(&image).unwrap();
    trial.work_in(b"/large");
    let outcome = trial.end();
    assert!(
        outcome.errors.is_empty() && outcome.lost.is_empty(),
        "{outcome}"
    );
    assert_clean(&image);

    let text = debugfs(&image, "blocks large\n");
    let root: u64 = text
        .lines()
        .last()
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let file = File::options().read(true).write(true).open(&image).unwrap();
    let second_entry = root * 1024 + 32 + 8;
    let mut hash = [0; 4];
    file.read_exact_at(&mut hash, second_entry).unwrap();
    let lower = (u32::from_le_bytes(hash) / 2) & !1;
    file.write_all_at(&lower.to_le_bytes(), second_entry)
        .unwrap();
    assert_unchangeable(&image, b"/large", 304, "the index does not lead to");
}

/// A file that is flagged so has its content in no block; it must not get any.
#[test]
fn inline_data_without_the_feature_is_not_changed() {
    let (_directory, image) = populated(&["-t", "ext4", "-J", "size=1"]);
    debugfs(
        &image,
        "sif first/file5 flags 0x10000000\nsif first/file5 size 20\n",
    );
    let mut trial = Trial::open(&image).unwrap();
    let error = trial.append(b"/first/file5", &[1; 100]).unwrap_err();
    assert!(
        matches!(&error, Error::Corrupt(what) if what.contains("inline data")),
        "{error:?}"
    );
    let outcome = trial.end();
    assert!(outcome.failure.is_none(), "{outcome}");
}

/// What a mount for writing finds damaged, so that it does not come up at a commit.
#[test]
fn a_journal_with_a_hole_is_not_written() {
    let (_directory, image) = populated(&["-t", "ext3", "-J", "size=1"]);
    debugfs(&image, "sif <8> block[5] 0\n");
    assert!(Trial::open(&image).is_none());
    let store = image::open(&image, false).unwrap();
    let notes = store.notes().join("\n");
    assert!(
        notes.contains("journal: block 5 is missing; run e2fsck"),
        "{notes}"
    );
}

#[test]
fn a_journal_over_an_inode_table_is_not_written() {
    let (_directory, image) = populated(&["-t", "ext3", "-J", "size=1"]);
    let (_, inodes) = bitmaps(&image)[0];
    debugfs(&image, &format!("sif <8> block[5] {}\n", inodes + 1));
    assert!(Trial::open(&image).is_none());
    let notes = image::open(&image, false).unwrap().notes().join("\n");
    assert!(
        notes.contains("belong to the file system itself; run e2fsck"),
        "{notes}"
    );
}

#[test]
fn without_its_orphan_file_an_image_is_not_written() {
    let (_directory, image) = populated(&["-t", "ext4", "-J", "size=1", "-O", "orphan_file"]);
    let text = run(Command::new("dumpe2fs").arg("-h").arg(&image));
    let number = text.split("Orphan file inode:").nth(1).unwrap();
    let number = number.split_whitespace().next().unwrap();
    assert!(Trial::open(&image).is_some());
    debugfs(&image, &format!("sif <{number}> block[0] 0\n"));
    assert!(Trial::open(&image).is_none());
    let notes = image::open(&image, false).unwrap().notes().join("\n");
    assert!(
        notes.contains("mounted read-only: inode 12: extent tree"),
        "{notes}"
    );
    debugfs(&image, "ssv orphan_file_inum 0\n");
    let notes = image::open(&image, false).unwrap().notes().join("\n");
    assert!(
        notes.contains("orphan file (inode 0): there is no such inode"),
        "{notes}"
    );
}

/// On an image that is marked as damaged nobody cleans orphans up, and the list may lead anywhere.
#[test]
fn a_list_of_orphans_that_is_left_does_not_stop_commits() {
    let (_directory, image) = populated(&["-t", "ext2"]);
    debugfs(&image, "ssv last_orphan 1999999\nssv state 3\n");
    let outcome = work(&image);
    assert!(outcome.errors.is_empty(), "{outcome}");
}

/// Directories that do not note kinds: the inode would tell, and cannot.
#[test]
fn a_name_whose_inode_is_damaged_is_listed() {
    for features in ["filetype", "^filetype"] {
        let (_directory, image) = populated(&["-t", "ext2", "-O", features]);
        debugfs(
            &image,
            "sif first/file5 mode 0\nsif first/file6 mode 0170000\n",
        );
        let trial = Trial::open(&image).unwrap();
        let names = trial.names(b"/first");
        assert_eq!(names.len(), 12, "{features}: {names:?}");
        assert!(trial.end().failure.is_none());
    }
}

/// All packed images (see `FINEFS_IMAGES`).
#[test]
fn of_all_kinds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let (mut lost, mut opened) = (Vec::new(), 0);
    let packed_images = image::packed_images();
    let chosen = packed_images.iter().step_by(sized(3, 1));
    let count = chosen.len();
    for packed in chosen {
        let name = packed.file_name().unwrap().to_string_lossy().into_owned();
        let _ = std::fs::remove_file(&path);
        if image::unpack(packed, &path).is_none() {
            eprintln!("skipped: {name}");
            continue;
        }
        let Some(mut trial) = Trial::open(&path) else {
            continue;
        };
        opened += 1;
        for directory in trial.directories(40) {
            trial.work_in(&directory);
            trial.sync();
        }
        // What e2fsck does about blocks that two files claim is its own.
        let outcome = trial.end();
        println!("{name}: {outcome}");
        if !outcome.lost.is_empty() || outcome.failure.is_some() {
            lost.push((name, outcome.lost, outcome.failure));
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
    assert!(opened >= count / 2, "{opened} of {count} could be written");
}
