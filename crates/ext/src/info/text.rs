//! An [`ImageInfo`] as text, in the form that users know from `dumpe2fs -h`.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::{GroupInfo, ImageInfo, JournalInfo};

/// Writes a name and a value.
pub(super) fn line(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    value: impl fmt::Display,
) -> fmt::Result {
    writeln!(f, "{:<26}{value}", format!("{name}:"))
}

impl fmt::Display for ImageInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "Image", &self.image)?;
        line(f, "Image size", Bytes(self.image_bytes))?;
        match &self.access_reason {
            Some(reason) => line(
                f,
                "Access by finefs",
                format_args!("{} ({reason})", self.access),
            )?,
            None => line(f, "Access by finefs", self.access)?,
        }
        line(f, "Volume name", or(&self.volume_name, "<none>"))?;
        line(
            f,
            "Last mounted on",
            or(&self.last_mounted, "<not available>"),
        )?;
        line(f, "UUID", &self.uuid)?;
        let revision = if self.revision == 0 {
            "original"
        } else {
            "dynamic"
        };
        line(
            f,
            "Revision",
            format_args!("{} ({revision})", self.revision),
        )?;
        line(f, "Features", or(&self.features.join(" "), "(none)"))?;
        line(f, "Flags", or(&self.flags.join(" "), "(none)"))?;
        line(f, "State", State(self))?;
        line(f, "Errors behavior", self.error_policy)?;
        if self.error_count > 0 {
            line(f, "Errors seen", self.error_count)?;
        }
        self.sizes(f)?;
        self.history(f)?;
        if self.first_orphan != 0 {
            line(f, "First orphan inode", self.first_orphan)?;
        }
        line(f, "Default directory hash", self.directory_hash)?;
        if let Some(journal) = &self.journal {
            journal.write(f)?;
        }
        for problem in &self.problems {
            line(f, "Problem", problem)?;
        }
        self.groups.iter().try_for_each(|group| group.write(f))
    }
}

impl ImageInfo {
    fn sizes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(size) = self.size_bytes {
            line(f, "Size", Bytes(size))?;
        }
        line(f, "Inode count", self.inodes)?;
        line(f, "Free inodes", self.inodes_free)?;
        line(f, "Block count", self.blocks)?;
        line(f, "Free blocks", self.blocks_free)?;
        line(f, "Reserved block count", self.blocks_reserved)?;
        line(f, "First block", self.first_block)?;
        match self.block_size_bytes {
            Some(size) => line(f, "Block size", size)?,
            None => line(f, "Block size", "<out of range>")?,
        }
        if let Some(size) = self.cluster_size_bytes {
            line(f, "Cluster size", size)?;
        }
        line(f, "Group descriptor size", self.descriptor_size_bytes)?;
        line(f, "Reserved GDT blocks", self.reserved_gdt_blocks)?;
        line(f, "Groups", self.groups.len())?;
        line(f, "Blocks per group", self.blocks_per_group)?;
        line(f, "Inodes per group", self.inodes_per_group)?;
        if let Some(groups) = self.groups_per_flex {
            line(f, "Flex block group size", groups)?;
        }
        line(f, "First inode", self.first_inode)?;
        line(f, "Inode size", self.inode_size_bytes)?;
        line(f, "Desired extra isize", self.extra_isize_wanted)
    }

    fn history(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "Created", Time(self.created))?;
        line(f, "Last mount time", Time(self.mounted))?;
        line(f, "Last write time", Time(self.written))?;
        line(f, "Last checked", Time(self.checked))?;
        line(f, "Mount count", self.mount_count)?;
        line(f, "Maximum mount count", self.mount_count_max)?;
        line(
            f,
            "Lifetime writes",
            Bytes(self.kib_written.saturating_mul(1024)),
        )
    }
}

/// Clean or not, in words.
struct State<'a>(&'a ImageInfo);

impl fmt::Display for State<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_clean {
            "clean"
        } else {
            "not clean"
        })?;
        f.write_str(if self.0.has_errors {
            " with errors"
        } else {
            ""
        })
    }
}

/// What the superblock of a journal says, wherever that lies.
pub(super) struct Log<'a> {
    pub fast_commit_blocks: u32,
    pub features: &'a [String],
    pub sequence: u32,
    pub start: u32,
    pub error: i32,
}

impl Log<'_> {
    pub fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.fast_commit_blocks > 0 {
            line(f, "Fast commit blocks", self.fast_commit_blocks)?;
        }
        let features = self.features.join(" ");
        line(f, "Journal features", or(&features, "(none)"))?;
        let sequence = format_args!("{:#010x}", self.sequence);
        line(f, "Journal sequence", sequence)?;
        line(f, "Journal start", self.start)?;
        if self.error != 0 {
            line(f, "Journal error", self.error)?;
        }
        Ok(())
    }
}

impl JournalInfo {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_external {
            line(f, "Journal", "on another device (external)")?;
            if self.blocks == 0 {
                return Ok(());
            }
        }
        let state = match (self.needs_replay, self.transactions) {
            (false, _) => "clean".to_owned(),
            (true, 1) => "needs recovery (1 transaction)".to_owned(),
            (true, count) => format!("needs recovery ({count} transactions)"),
        };
        let name = match self.is_external {
            true => "Journal state",
            false => "Journal",
        };
        line(f, name, state)?;
        if !self.is_external {
            line(f, "Journal inode", self.inode)?;
        }
        line(f, "Journal size", Bytes(self.size_bytes))?;
        line(f, "Journal blocks", self.blocks)?;
        Log {
            fast_commit_blocks: self.fast_commit_blocks,
            features: &self.features,
            sequence: self.sequence,
            start: self.start,
            error: self.error,
        }
        .write(f)?;
        match &self.problem {
            Some(problem) => line(f, "Journal problem", problem),
            None => Ok(()),
        }
    }
}

impl GroupInfo {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Group {}: (blocks {}-{})",
            self.number, self.first_block, self.last_block
        )?;
        if !self.flags.is_empty() {
            write!(f, " [{}]", self.flags.join(", "))?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "  block bitmap {}, inode bitmap {}, inode table {}",
            self.block_bitmap, self.inode_bitmap, self.inode_table
        )?;
        writeln!(
            f,
            "  {} free blocks, {} free inodes, {} directories, {} unused inodes",
            self.blocks_free, self.inodes_free, self.directories, self.inodes_unused
        )?;
        match &self.problem {
            Some(problem) => writeln!(f, "  problem: {problem}"),
            None => Ok(()),
        }
    }
}

pub(super) fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

/// A number of bytes, and the same in larger units.
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        let mut value = self.0 as f64;
        let mut unit = None;
        for name in units {
            if value < 1024.0 {
                break;
            }
            value /= 1024.0;
            unit = Some(name);
        }
        match unit {
            None => write!(f, "{} bytes", self.0),
            Some(unit) => write!(f, "{value:.1} {unit} ({} bytes)", self.0),
        }
    }
}

/// Seconds from 1970 to a year that dates do not show; a damaged superblock may claim more.
const YEAR_10000: u64 = 253_402_300_800;

/// Seconds since 1970 as a date in UTC; 0 is never.
pub(super) struct Time(pub(super) u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("n/a");
        }
        if self.0 >= YEAR_10000 {
            return write!(f, "{} s after 1970", self.0);
        }
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(self.0);
        let text = humantime::format_rfc3339_seconds(time).to_string();
        f.write_str(&text.replace('T', " ").replace('Z', " UTC"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        // As `date -u -d @N` shows them.
        for (seconds, shown) in [
            (1, "1970-01-01 00:00:01 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_799, "2000-02-29 23:59:59 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13:20 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (15_032_385_535, "2446-05-10 22:38:55 UTC"),
        ] {
            assert_eq!(Time(seconds).to_string(), shown);
        }
        assert_eq!(Time(0).to_string(), "n/a");
        assert_eq!(
            Time(u64::MAX).to_string(),
            format!("{} s after 1970", u64::MAX)
        );
    }

    #[test]
    fn sizes() {
        assert_eq!(Bytes(1023).to_string(), "1023 bytes");
        assert_eq!(Bytes(16 << 20).to_string(), "16.0 MiB (16777216 bytes)");
    }
}
