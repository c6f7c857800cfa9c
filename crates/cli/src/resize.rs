//! `finefs resize`

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use finefs::front_end::format_of;
use finefs_block::{Access, BlockDevice};
use finefs_check::Options;
use finefs_check::resize::{Resized, Slack, Target, UndoFile, minimum, resize};
use finefs_image::address::{self, partitions_named};

use crate::repair::default_undo;
use crate::{CliResult, Failure, logger, output, progress, size};

/// Make a file system larger or smaller, in an image that nobody uses
///
/// As resize2fs does it: data behind the new end is moved, an image file is made longer first, or
/// cut off in the end. The file system must be clean. Until all is ready only free blocks are
/// written; then, while the rest is, IMAGE.undo has what finefs undo puts back after an
/// interruption, which has to come before e2fsck. Ends with status 0 where it has that size, and 1
/// where it could not be done.
#[derive(Args)]
pub(crate) struct Resize {
    /// The image, a file, block device or NBD export; IMAGE@p2 is a partition of it
    #[arg(value_name = "IMAGE")]
    image: OsString,
    /// Bytes, or with k, m, g, t; or minimum, minimum+64m, minimum+10%, where that is less than it
    /// has; that of the file, device or partition without it
    #[arg(value_name = "SIZE", value_parser = target)]
    size: Option<Target>,
    /// As small as its contents allow: SIZE minimum
    #[arg(short = 'M', conflicts_with = "size")]
    minimum: bool,
    /// Print the smallest size that it can have, and do nothing
    #[arg(short = 'P', long)]
    dry_run: bool,
    /// Keep what finefs undo takes the whole of it back by
    #[arg(long, value_name = "FILE")]
    undo: Option<PathBuf>,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
    /// Say what is being done
    #[arg(short, long)]
    progress: bool,
    /// Say nothing but errors
    #[arg(short, long, conflicts_with = "progress")]
    quiet: bool,
    /// Threads of the checks; as many as there are CPUs without it
    #[arg(short, long, value_name = "N")]
    jobs: Option<usize>,
    /// Where in the image the file system starts: bytes, or with k, m, g
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    offset: Option<u64>,
}

/// Reads a SIZE.
fn target(text: &str) -> Result<Target, String> {
    let Some(rest) = text.strip_prefix("minimum") else {
        return match size::bytes(text)? {
            0 => Err("nothing can have no size".to_owned()),
            bytes => Ok(Target::Bytes(bytes)),
        };
    };
    let slack = match rest.strip_prefix('+') {
        None if rest.is_empty() => Slack::Bytes(0),
        None => return Err("give minimum, or minimum+SIZE".to_owned()),
        Some(more) => match more.strip_suffix('%') {
            Some(percent) => Slack::Percent(percent.parse().map_err(|_| "no number of percents")?),
            None => Slack::Bytes(size::bytes(more)?),
        },
    };
    Ok(Target::Minimum(slack))
}

impl Resize {
    pub(crate) fn run(self) -> CliResult<ExitCode> {
        let name = self.image.display().to_string();
        let access = match self.dry_run {
            true => Access::ReadOnly,
            false => Access::ReadWrite,
        };
        logger::start(false);
        let device = self.open(access)?;
        let mut options = Options::default();
        if let Some(jobs) = self.jobs {
            options.jobs = jobs.max(1);
        }
        let failed = |reason: String| Failure::new(format!("{name}: {reason}"));
        if self.dry_run {
            return self.print_minimum(&name, &device, &options);
        }
        let target = match (self.size, self.minimum) {
            (Some(target), _) => target,
            (None, true) => Target::Minimum(Slack::Bytes(0)),
            (None, false) if self.offset.is_some() => {
                let what = "what lies behind it is not known with --offset; give a SIZE";
                return Err(failed(what.to_owned()));
            }
            (None, false) => Target::Device,
        };
        let undo = UndoFile {
            path: match &self.undo {
                Some(path) => path.clone(),
                None => default_undo(&self.image)?,
            },
            is_kept: self.undo.is_some(),
        };
        let tell = |what: &str| {
            if self.progress {
                // A closed pipe is no reason to stop.
                let _ = output::print(&format!("{what}\n"));
            }
        };
        let work = || resize(&device, target, &options, &undo, &tell);
        let resized = match self.quiet || self.progress {
            true => work(),
            false => progress::during(&format!("resizing {name}"), work),
        };
        self.report(&name, resized.map_err(failed)?.as_ref())?;
        Ok(ExitCode::SUCCESS)
    }

    fn open(&self, access: Access) -> CliResult<Arc<dyn BlockDevice>> {
        if self.offset.is_some() {
            return crate::check::open(&self.image, self.offset, access);
        }
        let device = address::open_part(&self.image, access).map_err(Failure::new)?;
        crate::check::refuse_empty(&*device, &self.image)?;
        let (_, part) = address::locate(&self.image).map_err(Failure::new)?;
        let name = self.image.display().to_string();
        match format_of(&*device) {
            None if part.is_none() => match partitions_named(&*device, &name) {
                Some(advice) => Err(Failure::new(advice)),
                None => Ok(device),
            },
            _ => Ok(device),
        }
    }

    fn print_minimum(
        &self,
        name: &str,
        device: &Arc<dyn BlockDevice>,
        options: &Options,
    ) -> CliResult<ExitCode> {
        let least =
            minimum(device, options).map_err(|reason| Failure::new(format!("{name}: {reason}")))?;
        let text = match self.json {
            true => serde_json::to_string_pretty(&least).map_err(Failure::new)? + "\n",
            false => format!(
                "{name}: {} blocks of {} bytes at least, {} bytes; it has {}\n",
                least.minimum_blocks,
                least.block_size,
                least.minimum_blocks * u64::from(least.block_size),
                least.blocks
            ),
        };
        output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    fn report(&self, name: &str, resized: Option<&Resized>) -> CliResult<()> {
        if self.json {
            let text = serde_json::to_string_pretty(&resized).map_err(Failure::new)?;
            return output::print(&(text + "\n"));
        }
        if self.quiet {
            return Ok(());
        }
        let Some(now) = resized else {
            return output::print(&format!("{name}: has that size already; nothing to do\n"));
        };
        let mut text = format!(
            "{name}: {} blocks of {} bytes now, in {} groups, with {} inodes; {} blocks moved",
            now.blocks, now.block_size, now.groups, now.inodes, now.moved_blocks
        );
        if now.moved_inodes > 0 {
            text += &format!(", {} inodes with new numbers", now.moved_inodes);
        }
        if let Some(undo) = &self.undo {
            text += &format!("; finefs undo {} {name} takes it back", undo.display());
        }
        output::print(&(text + "\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(target("64m"), Ok(Target::Bytes(64 << 20)));
        assert_eq!(target("minimum"), Ok(Target::Minimum(Slack::Bytes(0))));
        assert_eq!(
            target("minimum+64M"),
            Ok(Target::Minimum(Slack::Bytes(64 << 20)))
        );
        assert_eq!(
            target("minimum+10%"),
            Ok(Target::Minimum(Slack::Percent(10)))
        );
        for wrong in [
            "",
            "0",
            "10%",
            "minimum64m",
            "minimum+",
            "minimum-1",
            "small",
        ] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }
}
