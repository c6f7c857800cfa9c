//! What a journal's next number is, and what a writer does after a failure.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use finefs_block::{BlockDevice, MemoryDevice};
use finefs_buffers::Overlay;
use finefs_ext_disk::jbd2::{BlockHeader, BlockType};
use finefs_namespace::CommitThreads;
use finefs_sim::{FaultDevice, FaultOn};

use super::writer::{JournalWriter, LogFeatures, Outcome};
use super::*;

/// An image with a journal, in memory; `commands` are debugfs's.
fn image(commands: &str) -> Arc<dyn BlockDevice> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("image");
    let run = |program: &str, args: &[&str], last: &Path| {
        let output = Command::new(program).args(args).arg(last).output();
        let output = output.expect("e2fsprogs is installed");
        assert!(output.status.success(), "{program}: {output:?}");
    };
    fs::File::create(&path)
        .and_then(|file| file.set_len(4 << 20))
        .expect("room");
    run(
        "mke2fs",
        &["-q", "-t", "ext4", "-b", "1024", "-J", "size=1"],
        &path,
    );
    if !commands.is_empty() {
        let block = directory.path().join("block");
        fs::write(&block, [0x55; 1024]).expect("room");
        let script = directory.path().join("script");
        let commands = commands.replace("BLOCK", &block.to_string_lossy());
        fs::write(&script, commands).expect("room");
        run("debugfs", &["-w", "-f", &script.to_string_lossy()], &path);
    }
    Arc::new(MemoryDevice::from_bytes(
        &fs::read(&path).expect("it is there"),
    ))
}

fn open(device: &Arc<dyn BlockDevice>) -> Journal {
    let found = crate::found::read_superblock(&**device, &Overlay::default());
    let found = found.unwrap_or_else(|error| panic!("{error:?}"));
    let block_size = found.geometry.block_size;
    let buffers = BufferCache::with(device.clone(), block_size, Overlay::default(), 1 << 20);
    Journal::open(device, None, &buffers, &found.superblock, &found.geometry).expect("it has one")
}

/// Gives all blocks of the log that have a head another number, counting from `first`.
fn renumber(device: &dyn BlockDevice, journal: &Journal, first: u32) -> u32 {
    let (mut old, mut number) = (None, first.wrapping_sub(1));
    let mut bytes = vec![0; 1024];
    for block in journal.superblock.first()..journal.superblock.log_end() {
        journal.read(block, &mut bytes).expect("it can be read");
        if let Some(header) = BlockHeader::parse(&bytes) {
            if old != Some(header.sequence) {
                number = number.wrapping_add(1);
            }
            old = Some(header.sequence);
            BlockHeader {
                sequence: number,
                ..header
            }
            .write(&mut bytes);
            let place = journal.offset_bytes(block).expect("it is there");
            device.write_at(place, &bytes).expect("it can be written");
        }
    }
    number
}

const THREE: &str = "jo\njw -b 900 BLOCK\njw -b 901 BLOCK\njw -b 902 BLOCK\njc\n";

#[test]
fn numbers_go_on_behind_a_log_that_is_skipped() {
    let device = image(THREE);
    let journal = open(&device);
    assert_ne!(journal.superblock.start(), 0);
    let last = journal.superblock.sequence().wrapping_add(2);
    let scanned = Log::scan(&journal).expect("it is sound");
    assert_eq!(scanned.transactions, 3);
    assert_eq!(scanned.next_sequence, last.wrapping_add(1));
    // Damage hides the two behind it from a replay, not from what counts numbers.
    let second = journal.superblock.first() + 2;
    let place = journal.offset_bytes(second).expect("it is there");
    device
        .write_at(place, &[0xff; 1024])
        .expect("it can be written");
    let scanned = Log::scan(&journal).expect("it is sound");
    assert!(scanned.next_sequence != last.wrapping_add(1));
    let skipped = Log::skipped(&journal).expect("it can be read");
    assert_eq!(skipped.next_sequence, last.wrapping_add(1));
    assert_eq!(skipped.transactions, 0);
    assert!(skipped.sources(&journal).expect("it is sound").is_empty());
}

#[test]
fn numbers_of_a_skipped_log_wrap() {
    let device = image(THREE);
    let mut journal = open(&device);
    let first = u32::MAX - 1;
    let last = renumber(&*device, &journal, first);
    assert!(last < 10, "they wrap: {last}");
    journal.superblock.set_sequence(first);
    let skipped = Log::skipped(&journal).expect("it can be read");
    assert_eq!(skipped.next_sequence, last + 1);
    // What is older than the log's start says nothing about the next number.
    journal.superblock.set_sequence(last + 100);
    let skipped = Log::skipped(&journal).expect("it can be read");
    assert_eq!(skipped.next_sequence, last + 100);
}

/// A commit that failed left parts of a transaction in the log: no other may take its number.
#[test]
fn a_writer_that_failed_stops() {
    for on in [FaultOn::Write, FaultOn::Flush] {
        for first in 0.. {
            let inner = image("");
            let mut journal = open(&inner);
            let device = Arc::new(FaultDevice::new(inner.clone(), on, first, 1));
            journal.device = device.clone();
            let features = LogFeatures {
                has_checksums: true,
                has_64bit: true,
                keeps_fast_commits: false,
            };
            let mut writer = JournalWriter::new(journal, features).expect("of the second version");
            let changes = |fill: u8| vec![(900_u64, Arc::from(vec![fill; 1024]))];
            if writer
                .commit(&*device, &changes(1), &[], CommitThreads::ONE)
                .is_ok()
            {
                // Nothing was left to fail.
                assert!(first >= 2, "{on:?}: only {first} can fail");
                device.arm(u64::MAX);
                let next = writer.commit(&*device, &changes(2), &[], CommitThreads::ONE);
                assert_eq!(next, Ok(Outcome::Durable));
                break;
            }
            // The device works again, and yet.
            let again = writer.commit(&*device, &changes(2), &[], CommitThreads::ONE);
            assert!(
                matches!(&again, Err(Error::Io(why)) if why.contains("stopped")),
                "{again:?}"
            );
            // What is in the log is the first, or nothing.
            let log = Log::scan(&open(&inner)).expect("it can be read");
            assert_eq!(log.damage, None);
            assert!(log.transactions <= 1);
        }
    }
}

#[test]
fn a_block_of_another_kind_ends_the_log() {
    let device = image(THREE);
    let journal = open(&device);
    let mut bytes = vec![0; 1024];
    journal
        .read(journal.superblock.first(), &mut bytes)
        .expect("it can be read");
    let header = BlockHeader::parse(&bytes).expect("a descriptor");
    BlockHeader {
        block_type: BlockType::from_raw(77),
        ..header
    }
    .write(&mut bytes);
    let place = journal
        .offset_bytes(journal.superblock.first())
        .expect("it is there");
    device.write_at(place, &bytes).expect("it can be written");
    assert_eq!(Log::scan(&journal).expect("it can be read").transactions, 0);
}

/// A damaged map can lead to one revoke block from all blocks of a journal: what it revokes is kept
/// once.
#[test]
fn revocations_take_no_more_memory_when_they_repeat() {
    let device = image("jo\njw -r 900\njc\n");
    let journal = open(&device);
    let mut bytes = vec![0; 1024];
    journal
        .read(journal.superblock.first(), &mut bytes)
        .expect("it can be read");
    let mut transaction = Transaction::default();
    for _ in 0..1000 {
        transaction.revoke(&journal, &bytes);
    }
    assert!(transaction.damage.is_none());
    assert_eq!(transaction.revoked.into_iter().collect::<Vec<_>>(), [900]);
}

/// Blocks of an older journal lie behind the log of one that was made without zeroing.
#[test]
fn what_an_older_journal_left_ends_the_log() {
    let commands = THREE.replace("jo\n", "jo -c\n");
    for is_older in [true, false] {
        let device = image(&commands);
        let journal = open(&device);
        assert!(journal.format.has_tail());
        // Each of the transactions is a descriptor, a copy and a commit block.
        let second = journal.superblock.first() + 3;
        let edit = |block: u32, offset: u64, bytes: &[u8]| {
            let place = journal.offset_bytes(block).expect("it is there");
            let written = device.write_at(place + offset, bytes);
            written.expect("it can be written");
        };
        // The tag's checksum, so that the descriptor's is wrong.
        edit(second, 24, &[0x77; 4]);
        if is_older {
            edit(second + 2, 0x30, &1_000_000_u64.to_be_bytes());
        }
        let log = Log::scan(&journal).expect("it can be read");
        assert_eq!(log.transactions, 1);
        assert_eq!(log.damage.is_none(), is_older, "{:?}", log.damage);
    }
}
