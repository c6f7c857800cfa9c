//! What differs between the formats of images: how one is made and opened, and what a disk is
//! trusted with.

use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use finefs_block::{BlockDevice, PartitionDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::Store;
use finefs_reiser::{ReiserOptions, ReiserStore};
use finefs_sim::{RecordingDevice, RecordingPart};

const UUID: &str = "6f1c3a0e-55aa-4cc8-9d1f-000000000001";

/// A commit block of jbd2 begins like this: the magic number and block type 2, big-endian.
const EXT_COMMIT: [u8; 8] = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2];

/// A description block of reiserfs's journal has this 12 bytes before its end.
const REISER_DESCRIPTION: &[u8] = b"ReIsErLB";

/// A device, and that of the journal where it is another.
type Disks = (Arc<dyn BlockDevice>, Option<Arc<dyn BlockDevice>>);

/// The format of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// ext2, ext3 or ext4.
    Ext,
    /// reiserfs.
    Reiser,
    /// reiserfs, whose journal lies on another disk: that begins at this byte of the record.
    ReiserWithJournalAt(u64),
}

impl Format {
    /// Both formats of reiserfs.
    pub fn is_reiser(self) -> bool {
        self != Format::Ext
    }

    /// Where another disk begins that the journal lies on.
    pub fn journal_at(self) -> Option<u64> {
        match self {
            Format::ReiserWithJournalAt(at) => Some(at),
            _ => None,
        }
    }

    /// Makes an empty file system in a file, with the journal in another one if it has its own
    /// disk. Same arguments, same bytes, but for times.
    pub fn make(self, path: &Path, journal: &Path, arguments: &[&str]) -> Result<(), String> {
        let extended = format!("nodiscard,lazy_itable_init=0,hash_seed={UUID}");
        let (program, fixed): (_, &[&str]) = match self {
            Format::Ext => ("mke2fs", &["-q", "-F", "-U", UUID, "-E", &extended]),
            // Format 3.5 has no UUID.
            _ if arguments.contains(&"3.5") => ("mkreiserfs", &["-q", "-q", "-f", "-f"]),
            _ => ("mkreiserfs", &["-q", "-q", "-f", "-f", "-u", UUID]),
        };
        let mut command = Command::new(program);
        if self.journal_at().is_some() {
            command.arg("-j").arg(journal);
        }
        let output = command
            .args(fixed)
            .args(arguments)
            .arg(path)
            .output()
            .map_err(|error| format!("{program}: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("{program}: {output:?}")),
        }
    }

    /// The disks of a device: the file system's, and the journal's if it has its own.
    fn disks(self, device: Arc<dyn BlockDevice>) -> Result<Disks, String> {
        let Some(at) = self.journal_at() else {
            return Ok((device, None));
        };
        let length = device.len_bytes();
        let part = |from, to| PartitionDevice::new(device.clone(), from, Some(to - from));
        let text = |error: std::io::Error| error.to_string();
        let journal = part(at, length).map_err(text)?;
        let image = part(0, at).map_err(text)?;
        Ok((Arc::new(image), Some(Arc::new(journal))))
    }

    /// Opens an image for writing, which recovers what is on it.
    pub fn open(self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Store>, String> {
        self.open_disks(self.disks(device)?)
    }

    /// The same, of a device that keeps a record: of which disk a flush was, is in it.
    pub fn open_recorded(self, device: &Arc<RecordingDevice>) -> Result<Arc<dyn Store>, String> {
        let Some(at) = self.journal_at() else {
            return self.open(device.clone());
        };
        let part = |range| Arc::new(RecordingPart::new(device.clone(), range));
        self.open_disks((part(0..at), Some(part(at..device.len_bytes()))))
    }

    fn open_disks(self, (device, journal): Disks) -> Result<Arc<dyn Store>, String> {
        let (store, notes): (Arc<dyn Store>, _) = match self {
            Format::Ext => {
                let store = ExtStore::open(device, &ExtOptions::default());
                let store = store.map_err(|error| error.to_string())?;
                let notes = store.notes();
                (Arc::new(store), notes)
            }
            _ => {
                let options = ReiserOptions {
                    journal,
                    ..ReiserOptions::default()
                };
                let store = ReiserStore::open(device, &options);
                let store = store.map_err(|error| error.to_string())?;
                let notes = store.notes();
                (Arc::new(store), notes)
            }
        };
        match store.geometry().is_read_only {
            true => Err(format!("opens read-only: {notes:?}")),
            false => Ok(store),
        }
    }

    /// Whether what makes an image makes lost+found.
    pub fn has_lost_and_found(self) -> bool {
        self == Format::Ext
    }

    /// Whether what is free and what files use add up to the same at all times: not where nodes of
    /// a tree, which are neither, come and go.
    pub fn has_constant_totals(self) -> bool {
        self == Format::Ext
    }

    /// Sectors that a disk is trusted to write as one: the superblock of ext4, of which one sector
    /// has the checksum. That of reiserfs is less than a sector.
    pub fn whole_sectors(self) -> Range<u64> {
        match self {
            Format::Ext => 2..4,
            _ => 0..0,
        }
    }

    /// Whether `data`, written after `before`, begins with a commit block or holds one.
    pub fn holds_commit_block<'a>(
        self,
        data: &[u8],
        before: impl Iterator<Item = &'a [u8]>,
        block_bytes: usize,
    ) -> bool {
        match self {
            Format::Ext => data
                .chunks(1024)
                .any(|block| block.starts_with(&EXT_COMMIT)),
            // It has the number and the length of the description, and no magic word.
            _ => {
                let is_description =
                    |block: &[u8]| block[block.len() - 12..].starts_with(REISER_DESCRIPTION);
                data.len() == block_bytes
                    && !is_description(data)
                    && before
                        .flat_map(|data| data.chunks_exact(block_bytes))
                        .any(|block| is_description(block) && block[..8] == data[..8])
            }
        }
    }
}
