//! What cannot be mounted is refused in one line that names what, where and what to do; what cannot
//! be written is mounted read-only with a note.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::image::{debugfs, make, open, run, walk};
use finefs_ext::MountErrorKind;
use finefs_namespace::{Error, FileKind, Ino, Store};

/// The line with which an image is refused, for reading as for writing; nothing is written.
fn refusal(image: &Path) -> (String, MountErrorKind) {
    let before = fs::read(image).unwrap();
    let lines: Vec<_> = [true, false]
        .map(|is_read_only| open(image, is_read_only).expect_err("must be refused"))
        .into_iter()
        .map(|error| (error.to_string(), error.kind))
        .collect();
    assert!(fs::read(image).unwrap() == before);
    let [(line, _), _] = &lines[..] else {
        unreachable!()
    };
    assert!(
        !line.contains('\n') && line.contains(&*image.to_string_lossy()),
        "{line}"
    );
    lines.into_iter().next().unwrap()
}

fn file(directory: &Path, bytes: &[u8]) -> std::path::PathBuf {
    let path = directory.join("image");
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn what_is_no_image() {
    let directory = tempfile::tempdir().unwrap();
    let (line, kind) = refusal(&file(directory.path(), b""));
    assert!(
        matches!(kind, MountErrorKind::Empty) && line.contains("empty"),
        "{line}"
    );
    let (line, kind) = refusal(&file(directory.path(), &[1; 2047]));
    assert!(
        matches!(kind, MountErrorKind::TooSmall { device_bytes: 2047 }),
        "{line}"
    );
    let garbage: Vec<u8> = (0..100_000_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let (line, kind) = refusal(&file(directory.path(), &garbage));
    assert!(
        matches!(kind, MountErrorKind::NotExt { backup: None }),
        "{line}"
    );
    assert!(line.contains("magic"), "{line}");
}

#[test]
fn truncated_images_name_both_sizes() {
    let directory = tempfile::tempdir().unwrap();
    for length in [2048_u64, 3000, 1 << 20, (16 << 20) - 1] {
        let image = make(directory.path(), "16M", &["-t", "ext4"]);
        fs::File::options()
            .write(true)
            .open(&image)
            .unwrap()
            .set_len(length)
            .unwrap();
        let (line, kind) = refusal(&image);
        assert!(matches!(kind, MountErrorKind::Truncated { .. }), "{line}");
        assert!(
            line.contains("16777216") && line.contains(&length.to_string()),
            "{line}"
        );
    }
}

#[test]
fn a_lost_superblock_names_the_backup() {
    let directory = tempfile::tempdir().unwrap();
    for (options, backup) in [
        (&["-t", "ext4", "-b", "1024"][..], "-b 8193 -B 1024"),
        (&["-t", "ext2", "-b", "2048"], "-b 16384 -B 2048"),
        (&["-t", "ext4", "-b", "4096"], "-b 32768 -B 4096"),
    ] {
        let image = make(directory.path(), "256M", options);
        let file = fs::File::options().write(true).open(&image).unwrap();
        file.write_all_at(&[0; 1024], 1024).unwrap();
        let (line, _) = refusal(&image);
        assert!(line.contains(backup), "{line}");
        // And the command that it tells repairs the image.
        let told: Vec<&str> = backup.split(' ').collect();
        let fixed = Command::new("e2fsck")
            .arg("-fy")
            .args(&told)
            .arg(&image)
            .output()
            .unwrap();
        assert!(
            fixed.status.code().is_some_and(|code| code <= 1),
            "{fixed:?}"
        );
        open(&image, true).unwrap();
    }
    // A checksum that is wrong: the backup again.
    let image = make(directory.path(), "256M", &["-t", "ext4", "-b", "4096"]);
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(b"label", 1024 + 0x78).unwrap();
    let (line, kind) = refusal(&image);
    assert!(matches!(kind, MountErrorKind::Superblock { .. }), "{line}");
    assert!(
        line.contains("checksum") && line.contains("-b 32768 -B 4096"),
        "{line}"
    );
}

#[test]
fn unknown_and_unreadable_features_are_named() {
    let directory = tempfile::tempdir().unwrap();
    for (incompat, name) in [
        (0x1_u32, "compression"),
        (0x8000_0000, "FEATURE_I31"),
        (0x1000, "dirdata"),
    ] {
        let image = make(
            directory.path(),
            "16M",
            &["-t", "ext4", "-O", "^metadata_csum"],
        );
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(&image)
            .unwrap();
        let mut word = [0; 4];
        file.read_exact_at(&mut word, 1024 + 0x60).unwrap();
        let word = u32::from_le_bytes(word) | incompat;
        file.write_all_at(&word.to_le_bytes(), 1024 + 0x60).unwrap();
        let (line, kind) = refusal(&image);
        assert!(matches!(kind, MountErrorKind::Incompatible(_)), "{line}");
        assert!(line.contains(name), "{line}");
    }
    let journal = directory.path().join("image");
    let _ = fs::remove_file(&journal);
    run(Command::new("mke2fs")
        .args(["-q", "-O", "journal_dev"])
        .arg(&journal)
        .arg("16M"));
    let (line, kind) = refusal(&journal);
    assert!(matches!(kind, MountErrorKind::JournalDevice(_)), "{line}");
}

#[test]
fn a_damaged_root_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (change, says) in [
        ("sif / mode 0100644", "(inode 2) is not a directory"),
        ("sif / mode 0120777", "(inode 2) is not a directory"),
        ("sif / mode 0", "(inode 2) is not in use"),
        ("clri <2>", "(inode 2) is not in use"),
        ("sif / links_count 0", "(inode 2) has no links"),
    ] {
        let image = make(directory.path(), "16M", &["-t", "ext2", "-b", "1024"]);
        debugfs(&image, &format!("{change}\n"));
        let (line, kind) = refusal(&image);
        assert!(matches!(kind, MountErrorKind::Damaged(_)), "{line}");
        assert!(
            line.contains("the root directory") && line.contains(says),
            "{line}"
        );
        assert!(line.contains("repair with e2fsck -f"), "{line}");
        assert!(!line.contains("stale"), "{line}");
    }
}

/// Why an image is mounted read-only.
fn notes_of_read_only(image: &Path) -> String {
    let store = open(image, false).unwrap();
    assert!(store.geometry().is_read_only);
    assert!(walk(&store).errors.is_empty());
    let notes = store.notes().join("\n");
    assert!(
        notes.contains("mounted read-only") && notes.contains("run e2fsck"),
        "{notes}"
    );
    notes
}

#[test]
fn without_its_journals_inode_an_image_is_mounted_read_only() {
    let directory = tempfile::tempdir().unwrap();
    for (change, says) in [
        (
            "ssv journal_inum 99999",
            "journal inode 99999: there is no such inode",
        ),
        ("clri <8>", "journal inode 8: not in use"),
        ("sif <8> links_count 0", "journal inode 8: not in use"),
        ("sif <8> mode 040755", "journal inode 8: not a file"),
    ] {
        let options = ["-t", "ext3", "-b", "1024", "-J", "size=1"];
        let image = make(directory.path(), "16M", &options);
        debugfs(&image, &format!("{change}\n"));
        let notes = notes_of_read_only(&image);
        assert!(notes.contains(says) && !notes.contains("stale"), "{notes}");
    }
}

#[test]
fn groups_whose_metadata_overlap_allow_reading_only() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(directory.path(), "32M", &["-t", "ext2", "-b", "1024"]);
    let text = run(Command::new("dumpe2fs").arg(&image));
    let table = text.split("Inode table at ").nth(1).unwrap();
    let table: u64 = table.split('-').next().unwrap().parse().unwrap();
    debugfs(&image, &format!("set_bg 1 block_bitmap {}\n", table + 40));
    let notes = notes_of_read_only(&image);
    let says = format!("overlap at block {}", table + 40);
    assert!(notes.contains(&says), "{notes}");
}

#[test]
fn what_cannot_be_written_is_mounted_read_only() {
    let directory = tempfile::tempdir().unwrap();
    let (features, name) = ("bigalloc", "its last cluster is cut off");
    let image = make(directory.path(), "16M", &["-t", "ext4", "-O", features]);
    // e2fsprogs makes none.
    debugfs(&image, "set_super_value blocks_count 4090\n");
    let before = fs::read(&image).unwrap();
    let store = open(&image, false).unwrap();
    assert!(store.geometry().is_read_only, "{features}");
    let notes = store.notes().join("\n");
    assert!(
        notes.contains("read-only") && notes.contains(name),
        "{features}: {notes}"
    );
    assert!(walk(&store).errors.is_empty());
    assert_eq!(
        store.allocate_inode(Ino(2), FileKind::Regular).unwrap_err(),
        Error::ReadOnly
    );
    assert_eq!(
        store.allocate_blocks(Ino(2), None, 1).unwrap_err(),
        Error::ReadOnly
    );
    store.close().unwrap();
    drop(store);
    assert!(fs::read(&image).unwrap() == before, "{features}");
}

#[test]
fn a_damaged_group_allows_reading_only() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(directory.path(), "32M", &["-t", "ext4", "-b", "1024"]);
    // The second descriptor: its count of free inodes.
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0x77], 2048 + 64 + 0x0e).unwrap();
    let store = open(&image, false).unwrap();
    assert!(store.geometry().is_read_only);
    let notes = store.notes().join("\n");
    assert!(
        notes.contains("group 1") && notes.contains("e2fsck"),
        "{notes}"
    );
    assert!(walk(&store).errors.is_empty());
}

#[test]
fn a_count_that_cannot_be_allows_reading_only() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(directory.path(), "16M", &["-t", "ext2", "-b", "1024"]);
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&u32::MAX.to_le_bytes(), 1024 + 0x0c)
        .unwrap();
    let store = open(&image, false).unwrap();
    assert!(store.geometry().is_read_only);
    assert!(
        store.notes().join("\n").contains("free blocks"),
        "{:?}",
        store.notes()
    );
    assert!(walk(&store).errors.is_empty());
}

/// A crash that left one new sector of the superblock and one old: refused, with a command that
/// repairs it and keeps what is in the journal. In an image of one group there is nothing to repair
/// it from.
#[test]
fn a_torn_superblock() {
    let directory = tempfile::tempdir().unwrap();
    for (size, has_backup) in [("32M", true), ("4M", false)] {
        let path = make(
            directory.path(),
            size,
            &["-t", "ext4", "-b", "1024", "-J", "size=1"],
        );
        let block = directory.path().join("block");
        fs::write(&block, [0xab; 1024]).unwrap();
        let target = if has_backup { 30_000 } else { 3000 };
        debugfs(
            &path,
            &format!("jo -c\njw -b {target} {}\njc\n", block.display()),
        );
        let mut bytes = fs::read(&path).unwrap();
        // The count of mounts changes with every mount, in the first sector; the checksum is in the
        // other.
        bytes[1024 + 0x34] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let line = open(&path, false).unwrap_err().to_string();
        assert!(
            line.contains("checksum") && line.contains("e2fsck -b"),
            "{line}"
        );
        assert!(fs::read(&path).unwrap() == bytes, "it was written");
        let command = format!("e2fsck -b 8193 -B 1024 {}", path.display());
        assert_eq!(line.ends_with(&command), has_backup, "{line}");
        if has_backup {
            let repaired = Command::new("e2fsck")
                .args(["-fy", "-b", "8193", "-B", "1024"])
                .arg(&path)
                .output()
                .unwrap();
            assert!(
                repaired.status.code().is_some_and(|code| code <= 1),
                "{repaired:?}"
            );
            let at = target * 1024;
            assert_eq!(
                fs::read(&path).unwrap()[at..at + 1024],
                [0xab; 1024],
                "not replayed"
            );
            open(&path, false).unwrap();
        }
    }
}
