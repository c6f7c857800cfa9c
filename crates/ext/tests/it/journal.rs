//! Journals are replayed as e2fsck replays them; a read-only mount shows the same and writes
//! nothing.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::image::{Walked, assert_clean, debugfs, lookup, make, open, read_file, run, walk};
use crate::kernel_mount::KernelMount;
use finefs_block::{BlockDevice, MemoryDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{Error, Store};
use finefs_sim::{FaultDevice, FaultOn};

const BLOCK: usize = 1024;

/// Replays only the journal, by e2fsck, on a copy.
fn replayed_by_e2fsck(image: &Path) -> PathBuf {
    let copy = image.with_extension("e2fsck");
    fs::copy(image, &copy).unwrap();
    let output = Command::new("e2fsck")
        .args(["-y", "-E", "journal_only"])
        .arg(&copy)
        .output()
        .unwrap();
    assert!(
        output.status.code().is_some_and(|code| code <= 1),
        "{output:?}"
    );
    copy
}

/// Bytes of two images that differ, by block, but for what every tool writes in its own way: the
/// superblock (times, marks) and the journal's (its sequence number).
fn differing_blocks(one: &Path, other: &Path, journal_superblock: u64) -> Vec<u64> {
    let (one, other) = (fs::read(one).unwrap(), fs::read(other).unwrap());
    assert_eq!(one.len(), other.len());
    (0..)
        .zip(one.chunks(BLOCK).zip(other.chunks(BLOCK)))
        .filter(|(block, (a, b))| a != b && *block != 1 && *block != journal_superblock)
        .map(|(block, _)| block)
        .collect()
}

fn journal_superblock(image: &Path) -> u64 {
    let output = Command::new("debugfs")
        .args(["-R", "blocks <8>"])
        .arg(image)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// An image before and after a change, and the image before with the change in its journal.
struct Pending {
    directory: tempfile::TempDir,
    after: PathBuf,
    pending: PathBuf,
}

/// Puts the difference that `change` (debugfs's commands) makes into the journal, `per_transaction`
/// blocks at a time.
fn pending(options: &[&str], open_journal: &str, change: &str, per_transaction: usize) -> Pending {
    let directory = tempfile::tempdir().unwrap();
    let mut all = vec!["-t", "ext4", "-b", "1024", "-J", "size=4"];
    all.extend(options);
    let pending = make(directory.path(), "16M", &all);
    let after = directory.path().join("after");
    fs::copy(&pending, &after).unwrap();
    debugfs(&after, change);
    let (old, new) = (fs::read(&pending).unwrap(), fs::read(&after).unwrap());
    let changed: Vec<usize> = (0..old.len() / BLOCK)
        .filter(|b| old[b * BLOCK..][..BLOCK] != new[b * BLOCK..][..BLOCK])
        .collect();
    assert!(changed.len() > 4, "the change must change something");
    let mut commands = format!("{open_journal}\n");
    for (number, blocks) in changed.chunks(per_transaction).enumerate() {
        let data = directory.path().join(format!("blocks{number}"));
        let bytes: Vec<u8> = blocks
            .iter()
            .flat_map(|b| new[b * BLOCK..][..BLOCK].iter().copied())
            .collect();
        fs::write(&data, bytes).unwrap();
        let list: Vec<String> = blocks.iter().map(usize::to_string).collect();
        commands.push_str(&format!("jw -b {} {}\n", list.join(","), data.display()));
    }
    commands.push_str("jc\n");
    debugfs(&pending, &commands);
    Pending {
        directory,
        after,
        pending,
    }
}

/// A change with a file whose first block starts with the journal's magic number.
fn change(directory: &Path) -> String {
    let data = directory.join("data");
    let mut bytes = vec![0x5a; 40 * BLOCK];
    bytes[..4].copy_from_slice(&0xc03b_3998_u32.to_be_bytes());
    bytes[20 * BLOCK..20 * BLOCK + 4].copy_from_slice(&0xc03b_3998_u32.to_be_bytes());
    fs::write(&data, bytes).unwrap();
    let mut commands = format!("write {} escaped\nmkdir directory\n", data.display());
    for number in 0..30 {
        commands.push_str(&format!("symlink directory/link{number} target{number}\n"));
    }
    commands
}

fn comparable(walked: Walked) -> Vec<(String, String)> {
    assert!(walked.errors.is_empty(), "{:?}", walked.errors);
    walked
        .objects
        .into_iter()
        .map(|(path, object)| (path, format!("{object:?}")))
        .collect()
}

fn check(options: &[&str], open_journal: &str, per_transaction: usize) {
    let sources = tempfile::tempdir().unwrap();
    let Pending {
        directory,
        after,
        pending,
    } = pending(
        options,
        open_journal,
        &change(sources.path()),
        per_transaction,
    );
    let place = format!("{options:?}, {open_journal}");
    let wanted = comparable(walk(&open(&after, true).unwrap()));
    assert!(wanted.iter().any(|(path, _)| path == "/directory/link29"));

    let before = fs::read(&pending).unwrap();
    let store = open(&pending, true).unwrap();
    assert!(
        store.notes().iter().any(|note| note.contains("journal")),
        "{:?}",
        store.notes()
    );
    assert_eq!(comparable(walk(&store)), wanted, "{place}: read-only");
    store.close().unwrap();
    drop(store);
    assert!(
        fs::read(&pending).unwrap() == before,
        "{place}: a read-only mount wrote"
    );

    left_alone(&before, &place);
    let by_e2fsck = replayed_by_e2fsck(&pending);
    let store = open(&pending, false).unwrap();
    assert!(
        !store.geometry().is_read_only,
        "{place}: {:?}",
        store.notes()
    );
    assert_eq!(comparable(walk(&store)), wanted, "{place}: read-write");
    store.close().unwrap();
    drop(store);
    let journal = journal_superblock(&pending);
    assert_eq!(
        differing_blocks(&pending, &by_e2fsck, journal),
        [0_u64; 0],
        "{place}"
    );
    let dump = run(Command::new("dumpe2fs").arg("-h").arg(&pending));
    assert!(!dump.contains("needs_recovery"), "{place}: {dump}");
    assert!(
        dump.lines()
            .any(|l| l.starts_with("Journal start:") && l.ends_with(" 0")),
        "{dump}"
    );
    assert_clean(&pending);
    drop(directory);
}

/// Without recovery what the journal alone holds is not there, and nothing is written.
fn left_alone(before: &[u8], place: &str) {
    let device = Arc::new(MemoryDevice::from_bytes(before));
    let options = ExtOptions {
        skips_recovery: true,
        ..ExtOptions::default()
    };
    let store = ExtStore::open(device.clone(), &options).unwrap();
    assert!(store.geometry().is_read_only, "{place}");
    let notes = store.notes().join("\n");
    assert!(notes.contains("not replayed"), "{place}: {notes}");
    let shown = comparable(walk(&store));
    assert!(shown.iter().all(|(path, _)| path != "/directory/link29"));
    store.close().unwrap();
    let mut after = vec![0; before.len()];
    device.read_at(0, &mut after).unwrap();
    assert!(after == before, "{place}: it was written");
}

#[test]
fn without_checksums() {
    check(&["-O", "^metadata_csum,^64bit"], "jo", 7);
    check(&["-O", "^metadata_csum"], "jo", 1000);
}

#[test]
fn with_checksums_of_each_version() {
    for version in ["1", "2", "3"] {
        check(&["-O", "64bit"], &format!("jo -c -v {version}"), 9);
        check(&["-O", "^64bit"], &format!("jo -c -v {version}"), 60);
    }
}

#[test]
fn revoked_blocks_are_not_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(
        directory.path(),
        "16M",
        &["-t", "ext4", "-b", "1024", "-J", "size=4"],
    );
    let (old, new) = (directory.path().join("old"), directory.path().join("new"));
    fs::write(&old, vec![1; 4 * BLOCK]).unwrap();
    fs::write(&new, vec![2; 4 * BLOCK]).unwrap();
    debugfs(&image, &format!("write {} file\n", old.display()));
    let output = Command::new("debugfs")
        .args(["-R", "blocks file"])
        .arg(&image)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let blocks: Vec<&str> = text.split_whitespace().collect();
    let [a, b, c, d] = blocks[..] else {
        panic!("{blocks:?}")
    };
    // a is journaled and revoked later; b is revoked and journaled again; c and d are journaled.
    debugfs(
        &image,
        &format!(
            "jo\njw -b {a},{b},{c},{d} {new}\njw -r {a},{b}\njw -b {b} {new}\njc\n",
            new = new.display()
        ),
    );
    let expected: Vec<u8> = [1, 2, 2, 2]
        .into_iter()
        .flat_map(|byte| [byte; BLOCK])
        .collect();
    let content = |is_read_only| {
        let store = open(&image, is_read_only).unwrap();
        let inode = store.load_inode(lookup(&store, "file").unwrap()).unwrap();
        read_file(&store, &inode, 1 << 20).unwrap()
    };
    let by_e2fsck = replayed_by_e2fsck(&image);
    assert!(content(true) == expected);
    assert!(content(false) == expected);
    assert_eq!(
        differing_blocks(&image, &by_e2fsck, journal_superblock(&image)),
        [0_u64; 0]
    );
}

/// Many transactions wrap the log around its end, more than once.
#[test]
fn a_log_that_wraps_around() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(
        directory.path(),
        "16M",
        &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    );
    let data = directory.path().join("data");
    fs::write(&data, vec![0xff; 100 * BLOCK]).unwrap();
    debugfs(&image, &format!("write {} file\n", data.display()));
    let first = {
        let output = Command::new("debugfs")
            .args(["-R", "blocks file"])
            .arg(&image)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_whitespace()
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let list: Vec<String> = (first..first + 100)
        .map(|block| block.to_string())
        .collect();
    for round in 1..=25_u8 {
        // debugfs replays the log when it opens a journal that is not empty, so a log gets long
        // only within one session; its start moves on from session to session.
        let bytes: Vec<u8> = (0..100 * BLOCK)
            .map(|i| (i / BLOCK) as u8 ^ round)
            .collect();
        fs::write(&data, &bytes).unwrap();
        let write = format!("jw -b {} {}\n", list.join(","), data.display());
        debugfs(&image, &format!("jo -c -v 3\n{write}{write}{write}jc\n"));
        let by_e2fsck = replayed_by_e2fsck(&image);
        let store = open(&image, round % 2 == 0).unwrap();
        let inode = store.load_inode(lookup(&store, "file").unwrap()).unwrap();
        assert!(
            read_file(&store, &inode, 1 << 20).unwrap() == bytes,
            "round {round}"
        );
        store.close().unwrap();
        drop(store);
        if round % 2 == 1 {
            let journal = journal_superblock(&image);
            assert_eq!(
                differing_blocks(&image, &by_e2fsck, journal),
                [0_u64; 0],
                "{round}"
            );
        }
    }
}

#[test]
fn a_damaged_journal_allows_reading_only() {
    let sources = tempfile::tempdir().unwrap();
    let change = change(sources.path());
    // Journal blocks of the log: 1 descriptor, 9 copies, 1 commit for each transaction; then the
    // next.
    for (block, what) in [
        (0_u64, "journal superblock"),
        (5, "transaction"),
        (11, "transaction"),
    ] {
        let Pending {
            directory: _directory,
            pending,
            ..
        } = pending(&["-O", "64bit"], "jo -c -v 3", &change, 9);
        let file = fs::OpenOptions::new().write(true).open(&pending).unwrap();
        let offset = (journal_superblock(&pending) + block) * BLOCK as u64 + 32;
        file.write_all_at(&[0xa5; 8], offset).unwrap();
        drop(file);
        let before = fs::read(&pending).unwrap();
        let store = open(&pending, false).unwrap();
        assert!(store.geometry().is_read_only, "block {block}");
        let notes = store.notes().join("\n");
        assert!(
            notes.contains(what) && notes.contains("e2fsck"),
            "block {block}: {notes}"
        );
        assert_eq!(store.reserve(&[]).unwrap_err(), Error::ReadOnly);
        walk(&store);
        store.close().unwrap();
        drop(store);
        assert!(fs::read(&pending).unwrap() == before, "block {block}");
    }
}

/// A crash can cut the last transaction off anywhere: what is before it counts.
#[test]
fn an_unfinished_transaction_is_left_out() {
    let sources = tempfile::tempdir().unwrap();
    let change = change(sources.path());
    let Pending {
        directory: _directory,
        pending,
        ..
    } = pending(&["-O", "64bit"], "jo -c -v 3", &change, 20);
    let journal = journal_superblock(&pending);
    let bytes = fs::read(&pending).unwrap();
    let log = &bytes[journal as usize * BLOCK..][..4096 * BLOCK];
    let commits: Vec<u64> = (1..4096)
        .filter(|b| log[*b as usize * BLOCK..][..8] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2])
        .collect();
    assert!(commits.len() >= 3);
    let file = fs::OpenOptions::new().write(true).open(&pending).unwrap();
    let last = journal + commits.last().unwrap();
    // The commit block never came, and the block before it only half.
    file.write_all_at(&[0; BLOCK], last * BLOCK as u64).unwrap();
    file.write_all_at(&[0; BLOCK / 2], (last - 1) * BLOCK as u64)
        .unwrap();
    let by_e2fsck = replayed_by_e2fsck(&pending);
    let store = open(&pending, false).unwrap();
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
    let wanted = format!("replayed {} transactions", commits.len() - 1);
    assert!(
        store.notes().iter().any(|note| note.contains(&wanted)),
        "{:?}",
        store.notes()
    );
    store.close().unwrap();
    drop(store);
    assert_eq!(differing_blocks(&pending, &by_e2fsck, journal), [0_u64; 0]);
}

/// The kernel's own journal: an image as it is while the kernel has it mounted. Needs the right to
/// mount; says so and passes without.
#[test]
fn a_journal_that_the_kernel_wrote() {
    for options in [
        &["-t", "ext3"][..],
        &["-t", "ext4"],
        &["-t", "ext4", "-O", "orphan_file"],
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut all = vec!["-b", "1024"];
        all.extend(options);
        let image = make(directory.path(), "32M", &all);
        let place = directory.path().join("mounted");
        let Some(mounted) = KernelMount::new(&image, &place, "loop") else {
            return;
        };
        let work = || -> std::io::Result<()> {
            for number in 0..300 {
                fs::write(
                    place.join(format!("file{number}")),
                    vec![number as u8; 1000],
                )?;
            }
            for number in 0..150 {
                fs::remove_file(place.join(format!("file{}", number * 2)))?;
            }
            fs::create_dir(place.join("directory"))?;
            fs::rename(place.join("file1"), place.join("directory/renamed"))
        };
        let worked = work();
        run(Command::new("sync").arg("-f").arg(&place));
        let copy = directory.path().join("copy");
        let copied = fs::copy(&image, &copy);
        drop(mounted);
        worked.unwrap();
        copied.unwrap();
        let by_e2fsck = replayed_by_e2fsck(&copy);
        let shown = comparable(walk(&open(&copy, true).unwrap()));
        assert!(
            shown.iter().any(|(path, _)| path == "/directory/renamed"),
            "{options:?}"
        );
        let store = open(&copy, false).unwrap();
        assert!(
            store.notes().iter().any(|note| note.contains("replayed")),
            "{:?}",
            store.notes()
        );
        assert_eq!(comparable(walk(&store)), shown);
        store.close().unwrap();
        drop(store);
        let journal = journal_superblock(&copy);
        assert_eq!(
            differing_blocks(&copy, &by_e2fsck, journal),
            [0_u64; 0],
            "{options:?}"
        );
        assert_clean(&copy);
    }
}

/// What the kernel's fast commits say is there after a mount that writes, and shown by one that
/// reads; then they count no more. Needs a kernel that makes them; says so and passes without.
#[test]
fn fast_commits_are_replayed() {
    for (block, features) in [
        ("1024", "fast_commit"),
        ("4096", "fast_commit"),
        ("1024", "fast_commit,bigalloc"),
        ("4096", "fast_commit,inline_data"),
    ] {
        fast_commits(block, features);
    }
}

/// Files, directories and names that only fast commits tell of.
fn work_fast(place: &Path) -> std::io::Result<()> {
    fs::create_dir(place.join("directory"))?;
    for name in ["renamed", "removed", "shrunk", "linked", "replaced"] {
        fs::write(place.join(name), name.repeat(2000))?;
    }
    for name in ["short", "grown"] {
        fs::write(place.join(name), "before")?;
    }
    fs::create_dir(place.join("emptied"))?;
    run(Command::new("sync").arg("-f").arg(place));
    for number in 0..5 {
        let path = place.join(format!("directory/fast{number}"));
        fs::write(&path, format!("{number}").repeat(3000 * number))?;
        fs::File::open(&path)?.sync_all()?;
    }
    fs::rename(place.join("renamed"), place.join("directory/renamed"))?;
    fs::remove_file(place.join("removed"))?;
    fs::hard_link(place.join("linked"), place.join("directory/linked"))?;
    fs::rename(place.join("directory/fast1"), place.join("replaced"))?;
    fs::create_dir(place.join("made"))?;
    fs::write(place.join("made/inner"), "inner")?;
    // In inodes, where the image has inline_data: less than `i_block` holds, more, and no longer.
    for (name, length) in [
        ("short", 7),
        ("made/tiny", 1),
        ("made/long", 90),
        ("grown", 9000),
    ] {
        let file = fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(place.join(name))?;
        file.write_at(&vec![b'x'; length], 0)?;
        file.sync_all()?;
    }
    let target = "a target that is longer than sixty bytes, so that it is not in i_block alone";
    std::os::unix::fs::symlink(target, place.join("made/symlink"))?;
    fs::remove_dir(place.join("emptied"))?;
    let shrunk = fs::File::options().write(true).open(place.join("shrunk"))?;
    shrunk.set_len(100)?;
    shrunk.write_at(b"behind a hole", 50_000)?;
    fs::File::open(place.join("made/inner"))?.sync_all()?;
    shrunk.sync_all()
}

fn fast_commits(block: &str, features: &str) {
    let directory = tempfile::tempdir().unwrap();
    let options = ["-t", "ext4", "-b", block, "-O", features];
    let image = make(directory.path(), "32M", &options);
    let place = directory.path().join("mounted");
    let mount = |image: &Path| KernelMount::new(image, &place, "loop");
    let Some(mounted) = mount(&image) else {
        return;
    };
    let worked = work_fast(&place);
    let copy = directory.path().join("copy");
    let copied = fs::copy(&image, &copy);
    drop(mounted);
    worked.unwrap();
    copied.unwrap();
    let wanted = tree(&open(&image, true).unwrap());
    let before = fs::read(&copy).unwrap();
    let shown = open(&copy, true).unwrap();
    let notes = shown.notes().join("\n");
    if !notes.contains("fast commit") {
        eprintln!("skipped: this kernel makes no fast commits ({notes})");
        return;
    }
    assert!(notes.contains("shown as replayed"), "{notes}");
    assert_eq!(tree(&shown), wanted, "{notes}");
    drop(shown);
    assert!(fs::read(&copy).unwrap() == before, "it was written");

    for on in [FaultOn::Write, FaultOn::Flush] {
        a_replay_that_stops_midway(&before, on, &wanted);
    }
    let store = open(&copy, false).unwrap();
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
    assert_eq!(tree(&store), wanted);
    store.close().unwrap();
    drop(store);
    assert_clean(&copy);
    let again = open(&copy, true).unwrap();
    assert_eq!(again.notes(), Vec::<String>::new());
    assert_eq!(tree(&again), wanted);
    let features = run(Command::new("dumpe2fs").arg("-h").arg(&copy));
    assert!(features.contains("fast_commit"), "{features}");
    let journal = features
        .lines()
        .find(|line| line.starts_with("Journal features"));
    assert!(!journal.unwrap().contains("I5"), "{journal:?}");
    let by_kernel = mount(&copy);
    assert!(by_kernel.is_some(), "the kernel mounts what was replayed");
}

/// Wherever a replay stops, what the fast commits say is still there.
fn a_replay_that_stops_midway(before: &[u8], on: FaultOn, wanted: &[(String, String)]) {
    for first in 0.. {
        let inner: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(before));
        let failing = Arc::new(FaultDevice::new(inner.clone(), on, first, 1));
        if ExtStore::open(failing, &ExtOptions::default()).is_ok() {
            assert!(first > 3, "{on:?}: only {first} can fail");
            return;
        }
        let options = ExtOptions {
            is_read_only: true,
            ..ExtOptions::default()
        };
        let shown = ExtStore::open(inner, &options).unwrap();
        assert_eq!(tree(&shown), wanted, "{on:?} {first}: {:?}", shown.notes());
    }
}

/// What a walk finds, without the times of directories, which fast commits do not tell of.
fn tree(store: &ExtStore) -> Vec<(String, String)> {
    let mut walked = walk(store);
    for object in walked.objects.values_mut() {
        if object.kind == finefs_namespace::FileKind::Directory {
            object.modified = (0, 0);
        }
    }
    comparable(walked)
}

/// A log that would leave a superblock with a wrong checksum: a mount that writes refuses it as one
/// that reads does, and writes nothing. (It once set the checksum right, and so hid the damage.)
#[test]
fn a_log_that_damages_the_superblock() {
    let directory = tempfile::tempdir().unwrap();
    let path = make(
        directory.path(),
        "4M",
        &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    );
    let mut superblock = fs::read(&path).unwrap()[BLOCK..2 * BLOCK].to_vec();
    // The count of mounts, which nothing else depends on.
    superblock[0x34] ^= 1;
    let copy = directory.path().join("superblock");
    fs::write(&copy, superblock).unwrap();
    debugfs(&path, &format!("jo -c\njw -b 1 {}\njc\n", copy.display()));
    let before = fs::read(&path).unwrap();
    let shown = open(&path, true).unwrap_err().to_string();
    assert!(shown.contains("checksum"), "{shown}");
    let written = open(&path, false).unwrap_err().to_string();
    assert_eq!(written, shown);
    assert!(fs::read(&path).unwrap() == before, "it was written");
}
