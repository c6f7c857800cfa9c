//! `finefs check`

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use finefs::front_end::{Format, format_of};
use finefs_block::{Access, BlockDevice};
use finefs_check::{Options, Report};
use finefs_ext::{MountError, MountErrorKind};
use finefs_image::address::{partitions_named, whole};

use crate::journals::Journals;
use crate::{CliResult, Failure, output, progress, size};

/// Nothing is wrong.
pub(crate) const CLEAN: u8 = 0;
/// There are errors, and they stay.
pub(crate) const ERRORS_LEFT: u8 = 4;
/// The check could not be made.
pub(crate) const OPERATIONAL: u8 = 8;

/// Check a file system as e2fsck -fn does: nothing is written
///
/// Ends with status 0 where nothing is wrong, 4 where something is, and 8 where it could not be
/// checked, or not all of it could be read. What a replay of the journal would change counts as
/// changed.
#[derive(Args)]
pub(crate) struct Check {
    /// The image, a file or block device; IMAGE@p2 is a partition of it
    #[arg(value_name = "IMAGE")]
    image: OsString,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
    /// Threads; as many as there are CPUs without it
    #[arg(short, long, value_name = "N")]
    jobs: Option<usize>,
    /// Where in the image the file system starts: bytes, or with k, m, g
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    offset: Option<u64>,
    #[command(flatten)]
    journals: Journals,
}

impl Check {
    pub(crate) fn run(self) -> ExitCode {
        match self.check() {
            Ok(status) => ExitCode::from(status),
            Err(Failure(line)) => {
                output::say(line);
                ExitCode::from(OPERATIONAL)
            }
        }
    }

    fn check(mut self) -> CliResult<u8> {
        self.image = whole(&self.image);
        let device = open(&self.image, self.offset, Access::ReadOnly)?;
        let mut options = Options {
            journal: self.journals.open_for_part(&self.image, self.offset)?,
            ..Options::default()
        };
        if let Some(jobs) = self.jobs {
            options.jobs = jobs.max(1);
        }
        let name = self.image.display().to_string();
        let checked = progress::during(&format!("checking {name}"), || {
            finefs_check::check(&device, &options)
        });
        let mut report = checked.map_err(|reason| Failure::new(format!("{name}: {reason}")))?;
        report.image = name;
        let text = if self.json {
            serde_json::to_string_pretty(&report).map_err(Failure::new)? + "\n"
        } else {
            report.to_string()
        };
        output::print(&text)?;
        Ok(status_of(&report))
    }
}

/// The status of a check with this result.
pub(crate) fn status_of(report: &Report) -> u8 {
    match report.clean {
        true => CLEAN,
        false if report.is_unread() => OPERATIONAL,
        false => ERRORS_LEFT,
    }
}

/// Opens an image, or a partition of one.
pub(crate) fn open(
    image: &OsStr,
    offset: Option<u64>,
    access: Access,
) -> CliResult<Arc<dyn BlockDevice>> {
    Ok(open_at(image, offset, access)?.0)
}

/// The same, and where in the image the device starts, if a partition or an offset is named.
pub(crate) fn open_at(
    image: &OsStr,
    offset: Option<u64>,
    access: Access,
) -> CliResult<(Arc<dyn BlockDevice>, Option<u64>)> {
    let (path, start) = finefs_image::address::locate(image).map_err(Failure::new)?;
    let start = start.or(offset);
    let device = finefs::front_end::open_device(&path, access, start.unwrap_or(0));
    let device = device.map_err(Failure::new)?;
    refuse_empty(&*device, image)?;
    let format = format_of(&*device);
    if format.is_none()
        && start.is_none()
        && let Some(advice) = partitions_named(&*device, &image.display().to_string())
    {
        return Err(Failure::new(advice));
    }
    if format == Some(Format::Reiserfs) {
        return Err(Failure::new(format!(
            "{}: is reiserfs; its own tools do that: reiserfsck, resize_reiserfs, reiserfstune, \
             debugreiserfs",
            image.display()
        )));
    }
    Ok((device, start))
}

/// Fails where there is nothing in an image, as a mount does.
pub(crate) fn refuse_empty(device: &dyn BlockDevice, image: &OsStr) -> CliResult<()> {
    match device.len_bytes() {
        0 => Err(Failure::new(MountError {
            device: image.display().to_string(),
            kind: MountErrorKind::Empty,
        })),
        _ => Ok(()),
    }
}
