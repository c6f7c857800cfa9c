//! What an external journal is, seen by itself.

use std::fmt;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::superblock::until_nul;
use serde::Serialize;

use super::text::{Bytes, Log, Time, line, or};
use crate::found;
use crate::journal::external;
use crate::uuid::shown as uuid;

/// A device that holds the journal of file systems on others, and no file system. As text it has
/// the form of `dumpe2fs -h`, too.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JournalDeviceInfo {
    /// The image.
    pub image: String,
    /// Its size in bytes.
    pub image_bytes: u64,
    /// "external journal".
    pub kind: &'static str,
    /// The label.
    pub volume_name: String,
    /// The UUID, by which file systems name it.
    pub uuid: String,
    /// The UUIDs of the file systems that use it.
    pub users: Vec<String>,
    /// Size of a block in bytes.
    pub block_size_bytes: Option<u32>,
    /// Number of blocks.
    pub blocks: u64,
    /// Its length in bytes.
    pub size_bytes: Option<u64>,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// Blocks of the fast commit area.
    pub fast_commit_blocks: u32,
    /// The first transaction expected in the log.
    pub sequence: u32,
    /// The block where the log starts; 0 when it is empty.
    pub start: u32,
    /// The error that it was stopped with; 0 for none.
    pub error: i32,
    /// Its features by name.
    pub features: Vec<String>,
    /// What is wrong, one line each.
    pub problems: Vec<String>,
}

impl JournalDeviceInfo {
    /// Looks at a device; `None` where that is no external journal.
    pub fn gather(device: &Arc<dyn BlockDevice>) -> Option<JournalDeviceInfo> {
        let superblock = found::parse_superblock(&**device, &Default::default()).ok()?;
        if !superblock.incompat().contains(Incompat::JOURNAL_DEV) {
            return None;
        }
        let blocks = superblock.blocks_count();
        let block_size_bytes = superblock.block_size();
        let size_bytes = block_size_bytes.and_then(|size| blocks.checked_mul(u64::from(size)));
        let mut info = JournalDeviceInfo {
            image: device.describe(),
            image_bytes: device.len_bytes(),
            kind: "external journal",
            volume_name: String::from_utf8_lossy(until_nul(&superblock.volume_name_raw())).into(),
            uuid: uuid(&superblock.uuid()),
            block_size_bytes,
            blocks,
            size_bytes,
            created: superblock.mkfs_time(),
            ..JournalDeviceInfo::default()
        };
        if let Err(error) = superblock.verify_checksum() {
            info.problems.push(format!("superblock: {error}"));
        }
        if size_bytes.is_some_and(|size| size > device.len_bytes()) {
            info.problems.push("the image is truncated".to_owned());
        }
        match external::log_of(&**device, &superblock) {
            Ok(log) => {
                info.users = external::users_of(&log).iter().map(uuid).collect();
                info.fast_commit_blocks = log.fast_commit_blocks();
                info.sequence = log.sequence();
                info.start = log.start();
                info.error = log.errno();
                info.features = log.feature_names();
            }
            Err(error) => info.problems.push(error),
        }
        Some(info)
    }
}

impl fmt::Display for JournalDeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "Image", &self.image)?;
        line(f, "Image size", Bytes(self.image_bytes))?;
        line(f, "Kind", self.kind)?;
        line(f, "Volume name", or(&self.volume_name, "<none>"))?;
        line(f, "UUID", &self.uuid)?;
        line(f, "Used by", or(&self.users.join(" "), "(no file system)"))?;
        if let Some(size) = self.size_bytes {
            line(f, "Size", Bytes(size))?;
        }
        line(f, "Block count", self.blocks)?;
        match self.block_size_bytes {
            Some(size) => line(f, "Block size", size)?,
            None => line(f, "Block size", "<out of range>")?,
        }
        line(f, "Created", Time(self.created))?;
        Log {
            fast_commit_blocks: self.fast_commit_blocks,
            features: &self.features,
            sequence: self.sequence,
            start: self.start,
            error: self.error,
        }
        .write(f)?;
        let mut problems = self.problems.iter();
        problems.try_for_each(|problem| line(f, "Problem", problem))
    }
}
