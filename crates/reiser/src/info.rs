//! What an image is: gathered without writing, also of images that cannot be mounted.
//!
//! [`ImageInfo`] prints as text like `debugreiserfs` does, and is serialised for scripts (field
//! names are part of the command line's interface, and those of ext's where they mean the same).

use std::fmt;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_buffers::Overlay;
use finefs_reiser_disk::KeyVersion;
use finefs_reiser_disk::superblock::Superblock;
use serde::Serialize;

use crate::error::{MountError, MountErrorKind};
use crate::{journal, mount};

/// What an image is. Counts are as the image has them, the journal's log not replayed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ImageInfo {
    /// The image.
    pub image: String,
    /// Its size in bytes.
    pub image_bytes: u64,
    /// What finefs can do with it: "read-write", "read-only" or "none".
    pub access: &'static str,
    /// Why not more.
    pub access_reason: Option<String>,
    /// "reiserfs 3.5" or "reiserfs 3.6".
    pub format: &'static str,
    /// The label.
    pub volume_name: String,
    /// The UUID.
    pub uuid: String,
    /// Unmounted cleanly.
    pub is_clean: bool,
    /// reiserfsck has found errors in it.
    pub has_errors: bool,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of free blocks.
    pub blocks_free: u64,
    /// Size of a block in bytes.
    pub block_size_bytes: u32,
    /// Size of the file system in bytes.
    pub size_bytes: u64,
    /// The root of the tree.
    pub root_block: u32,
    /// The levels of the tree.
    pub tree_levels: u16,
    /// The hash of names.
    pub directory_hash: &'static str,
    /// When it was checked last, in seconds since 1970; 0 for never.
    pub checked: u64,
    /// Mounts since then.
    pub mount_count: u16,
    /// Mounts until the next check; 0 for any number.
    pub mount_count_max: u16,
    /// The journal.
    pub journal: JournalInfo,
    /// What is wrong, one line each.
    pub problems: Vec<String>,
}

/// What a journal is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JournalInfo {
    /// It lies on another device.
    pub is_external: bool,
    /// Its log holds transactions that must be replayed.
    pub needs_replay: bool,
    /// The number of whole transactions to replay.
    pub transactions: u32,
    /// The first block of the log.
    pub start: u32,
    /// Blocks of the log.
    pub blocks: u32,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Blocks that a transaction changes at most.
    pub transaction_max: u32,
}

impl ImageInfo {
    /// Looks at the image on `device`; nothing is written.
    ///
    /// # Errors
    /// There is no superblock, or it cannot be believed.
    pub fn gather(device: Arc<dyn BlockDevice>) -> Result<ImageInfo, MountError> {
        ImageInfo::gather_with(device, None)
    }

    /// The same; the image's journal lies on `journal`, where that is given.
    ///
    /// # Errors
    /// As above.
    pub fn gather_with(
        device: Arc<dyn BlockDevice>,
        journal: Option<Arc<dyn BlockDevice>>,
    ) -> Result<ImageInfo, MountError> {
        let image = device.describe();
        let failed = |kind| MountError {
            device: device.describe(),
            kind,
        };
        let offset = mount::superblock_offset(&*device)
            .ok_or_else(|| failed(MountErrorKind::NotReiserfs))?;
        let superblock =
            mount::read_superblock(&*device, &Overlay::default(), offset).map_err(failed)?;
        let mut info = ImageInfo {
            image,
            image_bytes: device.len_bytes(),
            ..of_superblock(&superblock)
        };
        let log = match info.journal.is_external {
            true => journal.as_ref(),
            false => Some(&device),
        };
        if let Some(log) = log {
            match journal::replay(&**log, &superblock) {
                Ok(replay) => info.journal.transactions = replay.transactions,
                Err(kind) => info.problems.push(failed(kind).to_string()),
            }
            info.journal.needs_replay = info.journal.transactions > 0;
        }
        match mount::why_read_only(device.clone(), journal) {
            Ok(None) => info.access = "read-write",
            Ok(Some(why)) => {
                info.access = "read-only";
                info.access_reason = Some(why);
            }
            Err(error) => {
                info.access = "none";
                info.access_reason = Some(error.to_string());
            }
        }
        Ok(info)
    }
}

fn of_superblock(superblock: &Superblock) -> ImageInfo {
    let block_size_bytes = superblock.block_size();
    let place = superblock.journal();
    let (mount_count, mount_count_max) = superblock.mount_counts();
    ImageInfo {
        format: match superblock.version() {
            KeyVersion::V3_5 => "reiserfs 3.5",
            KeyVersion::V3_6 => "reiserfs 3.6",
        },
        volume_name: String::from_utf8_lossy(until_nul(&superblock.label())).into_owned(),
        uuid: uuid(superblock.uuid()),
        is_clean: superblock.is_clean(),
        has_errors: superblock.check_state() != 0,
        blocks: u64::from(superblock.block_count()),
        blocks_free: u64::from(superblock.free_blocks()),
        block_size_bytes,
        size_bytes: u64::from(superblock.block_count()) * u64::from(block_size_bytes),
        root_block: superblock.root_block(),
        tree_levels: superblock.levels(),
        directory_hash: superblock.hash().map_or("not set", |hash| hash.name()),
        checked: u64::from(superblock.checked()),
        mount_count,
        mount_count_max,
        journal: JournalInfo {
            is_external: place.is_external,
            start: place.start,
            blocks: place.blocks,
            size_bytes: u64::from(place.blocks) * u64::from(block_size_bytes),
            transaction_max: superblock.transaction_max(),
            ..JournalInfo::default()
        },
        ..ImageInfo::default()
    }
}

/// What is before the first NUL.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

fn uuid(bytes: [u8; 16]) -> String {
    if bytes == [0; 16] {
        return String::new();
    }
    let hex = |range: std::ops::Range<usize>| -> String {
        bytes[range]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    };
    [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)].join("-")
}

impl fmt::Display for ImageInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line =
            |name: &str, value: &dyn fmt::Display| writeln!(f, "{:<26}{value}", format!("{name}:"));
        line("Image", &self.image)?;
        line("Image size", &format_args!("{} bytes", self.image_bytes))?;
        match &self.access_reason {
            None => line("Access by finefs", &self.access)?,
            Some(reason) => line(
                "Access by finefs",
                &format_args!("{} ({reason})", self.access),
            )?,
        }
        line("Format", &self.format)?;
        line("Volume name", &or_none(&self.volume_name))?;
        line("UUID", &or_none(&self.uuid))?;
        line("State", &if self.is_clean { "clean" } else { "not clean" })?;
        if self.has_errors {
            line("Errors", &"reiserfsck has found some")?;
        }
        line("Blocks", &self.blocks)?;
        line("Free blocks", &self.blocks_free)?;
        line("Block size", &self.block_size_bytes)?;
        line("Size", &format_args!("{} bytes", self.size_bytes))?;
        line("Root block", &self.root_block)?;
        line("Tree levels", &self.tree_levels)?;
        line("Directory hash", &self.directory_hash)?;
        let max = match self.mount_count_max {
            0 => "any number".to_owned(),
            max => max.to_string(),
        };
        line(
            "Mount count",
            &format_args!("{} of {max}", self.mount_count),
        )?;
        line("Journal", &Journal(&self.journal))?;
        for problem in &self.problems {
            line("Problem", problem)?;
        }
        Ok(())
    }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "<none>" } else { text }
}

struct Journal<'a>(&'a JournalInfo);

impl fmt::Display for Journal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JournalInfo {
            start,
            blocks,
            transactions,
            ..
        } = self.0;
        if self.0.is_external {
            f.write_str("on another device")?;
            if !self.0.needs_replay {
                return Ok(());
            }
            f.write_str(", ")?;
        } else {
            write!(f, "{blocks} blocks at block {start}, ")?;
        }
        match transactions {
            0 => f.write_str("nothing to replay"),
            1 => f.write_str("1 transaction to replay"),
            n => write!(f, "{n} transactions to replay"),
        }
    }
}
