//! `finefs info`
//!
//! Opens the image for inspection only: nothing is written, no lock is taken, and an image that is
//! mounted may be looked at (its counts are then those of its last write-out).

use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use finefs::MasterKey;
use finefs::front_end::Format;
use finefs_block::{Access, BlockDevice};
use finefs_ext::{ExtOptions, ExtStore, JournalDeviceInfo, PolicyInfo};
use finefs_image::{address, mkfs, partition};
use serde::Serialize;

use crate::journals::Journals;
use crate::mount_info::MountInfo;
use crate::{CliResult, Failure, keys, output, size};

/// Show what an image is: superblock, features, journal, free space, groups; or which file systems
/// an external journal belongs to; or what is mounted at a directory
#[derive(Args)]
pub(crate) struct Info {
    /// The image, a file or block device; IMAGE@p2 is a partition of it; or a mount of finefs
    #[arg(value_name = "IMAGE|DIR")]
    image: OsString,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
    /// Where in the image the file system starts: bytes, or with k, m, g
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    offset: Option<u64>,
    #[command(flatten)]
    journals: Journals,
    /// Show how this file or directory of the image is encrypted instead: policy and key
    #[arg(long, value_name = "PATH")]
    policy: Option<PathBuf>,
    /// A key, for names on the way to it; also several times
    #[arg(long = "key", value_name = "FILE", requires = "policy", value_parser = keys::parser())]
    keys: Vec<MasterKey>,
}

impl Info {
    pub(crate) fn run(mut self) -> CliResult<()> {
        if let Some(mount) = MountInfo::of_directory(Path::new(&self.image))? {
            if self.policy.is_some() || self.offset.is_some() {
                let image = self.image.display();
                return Err(Failure::new(format!("{image}: of a mount; give its image")));
            }
            return output::print(&self.text(&mount)?);
        }
        self.image = address::whole(&self.image);
        let (image, start) = address::locate(&self.image).map_err(Failure::new)?;
        let offset = start.or(self.offset).unwrap_or(0);
        let device = finefs::front_end::open_device(&image, Access::Inspect, offset)
            .map_err(Failure::new)?;
        if let Some(path) = &self.policy {
            return output::print(&self.policy_text(device, path)?);
        }
        if let Some(info) = JournalDeviceInfo::gather(&device) {
            return output::print(&self.text(&info)?);
        }
        let format = finefs::front_end::format_of(&*device);
        if format.is_none()
            && start.or(self.offset).is_none()
            && let Some(disk) = DiskInfo::gather(&*device, self.image.display().to_string())
        {
            return output::print(&self.text(&disk)?);
        }
        let journal = self.journals.open_for(&image, offset)?;
        let text = match format {
            Some(Format::Reiserfs) => self.text(
                &finefs_reiser::ImageInfo::gather_with(device, journal).map_err(Failure::new)?,
            ),
            // Of what is nothing that is known, too, ext says what is wrong.
            Some(Format::Ext) | None => self
                .text(&finefs_ext::ImageInfo::gather_with(device, journal).map_err(Failure::new)?),
        };
        output::print(&text?)
    }

    fn policy_text(&self, device: Arc<dyn BlockDevice>, path: &Path) -> CliResult<String> {
        let options = ExtOptions {
            is_read_only: true,
            keys: self.keys.clone(),
            ..ExtOptions::default()
        };
        let store = ExtStore::open(device, &options).map_err(Failure::new)?;
        let place = format!("{}:{}", self.image.display(), path.display());
        match PolicyInfo::of(&store, path.as_os_str().as_encoded_bytes()) {
            Ok(Some(policy)) => self.text(&policy),
            Ok(None) => Err(Failure::new(format!("{place}: not encrypted"))),
            Err(error) => Err(Failure::new(format!("{place}: {error}"))),
        }
    }

    fn text(&self, info: &(impl Serialize + Display)) -> CliResult<String> {
        match self.json {
            true => Ok(serde_json::to_string_pretty(info).map_err(Failure::new)? + "\n"),
            false => Ok(info.to_string()),
        }
    }
}

/// A disk with a partition table. The names are those of the command's JSON.
#[derive(Serialize)]
struct DiskInfo {
    image: String,
    size_bytes: u64,
    partitions: Vec<PartitionInfo>,
}

#[derive(Serialize)]
struct PartitionInfo {
    number: u32,
    start_bytes: u64,
    size_bytes: u64,
    /// What the table calls it.
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    /// What is in it, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    contents: Option<String>,
}

impl DiskInfo {
    /// Of a disk that messages call `image`; `None` for one without a partition table.
    fn gather(device: &dyn BlockDevice, image: String) -> Option<DiskInfo> {
        let partitions = partition::partitions(device).ok()?;
        let info = |part: partition::Partition| PartitionInfo {
            number: part.number,
            start_bytes: part.start_bytes,
            size_bytes: part.length_bytes,
            contents: mkfs::signature(device, part.start_bytes),
            name: part.name,
        };
        (!partitions.is_empty()).then(|| DiskInfo {
            image,
            size_bytes: device.len_bytes(),
            partitions: partitions.into_iter().map(info).collect(),
        })
    }
}

impl Display for DiskInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DiskInfo { image, .. } = self;
        let size = size::human(self.size_bytes);
        writeln!(f, "{image}: a disk of {size} with a partition table")?;
        for part in &self.partitions {
            let PartitionInfo {
                number,
                start_bytes,
                name,
                ..
            } = part;
            let size = size::human(part.size_bytes);
            let contents = part.contents.as_deref().unwrap_or("nothing that is known");
            write!(
                f,
                "{image}@p{number}: {size} from byte {start_bytes} on, {contents}"
            )?;
            match name.is_empty() {
                true => writeln!(f)?,
                false => writeln!(f, ", called '{name}'")?,
            }
        }
        Ok(())
    }
}
