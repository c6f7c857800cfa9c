//! What differs between the formats of images: how one is made and opened, and what a disk is
//! trusted with.

use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::Store;
use finefs_reiser::{ReiserOptions, ReiserStore};

const UUID: &str = "6f1c3a0e-55aa-4cc8-9d1f-000000000001";

/// A commit block of jbd2 begins like this: the magic number and block type 2, big-endian.
const EXT_COMMIT: [u8; 8] = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2];

/// A description block of reiserfs's journal has this 12 bytes before its end.
const REISER_DESCRIPTION: &[u8] = b"ReIsErLB";

/// The format of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// ext2, ext3 or ext4.
    Ext,
    /// reiserfs 3.6.
    Reiser,
}

impl Format {
    /// Makes an empty file system in a file. Same arguments, same bytes, but for times.
    pub fn make(self, path: &Path, arguments: &[&str]) -> Result<(), String> {
        let extended = format!("nodiscard,lazy_itable_init=0,hash_seed={UUID}");
        let (program, fixed): (_, &[&str]) = match self {
            Format::Ext => ("mke2fs", &["-q", "-F", "-U", UUID, "-E", &extended]),
            Format::Reiser => ("mkreiserfs", &["-q", "-q", "-f", "-f", "-u", UUID]),
        };
        let output = Command::new(program)
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

    /// Opens an image for writing, which recovers what is on it.
    pub fn open(self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Store>, String> {
        let (store, notes): (Arc<dyn Store>, _) = match self {
            Format::Ext => {
                let store = ExtStore::open(device, &ExtOptions::default());
                let store = store.map_err(|error| error.to_string())?;
                let notes = store.notes();
                (Arc::new(store), notes)
            }
            Format::Reiser => {
                let store = ReiserStore::open(device, &ReiserOptions::default());
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
            Format::Reiser => 0..0,
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
            Format::Reiser => {
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
