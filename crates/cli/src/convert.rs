//! `finefs convert`

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::Args;
use finefs_image::convert::{self, Converted, Format, Progress};

use crate::image::{copying, text};
use crate::progress::{self, Companion, Step};
use crate::{CliResult, Failure, output, size};

/// Convert a disk image to another format
///
/// The output is made beside its place and renamed when it is whole. Formats that can be read
/// besides: compressed by gzip, zstd or xz.
#[derive(Args)]
pub(crate) struct Convert {
    /// The image, or a partition of it (IMAGE@p2, IMAGE@NAME), or an NBD export by its URL
    #[arg(value_name = "IN")]
    input: OsString,
    /// The file to make; or an NBD export, with --force
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// The format to make: raw, qcow2, vmdk (flat), vhd (fixed) or android-sparse; without it what
    /// the name ends in, else raw
    #[arg(short = 'O', long, value_name = "FORMAT", value_parser = written)]
    output_format: Option<Format>,
    /// The format of the input; without it what its first bytes say
    #[arg(short = 'f', long, value_name = "FORMAT", value_parser = read)]
    format: Option<Format>,
    /// Put a GUID partition table around it; the partition begins at 1 MiB
    #[arg(long)]
    gpt: bool,
    /// Where in the input to begin: bytes, or with k, m, g
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::bytes)]
    offset: u64,
    /// Replace a file that is there
    #[arg(short = 'F', long)]
    force: bool,
    /// Say what was made as JSON, for scripts
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// Say nothing
    #[arg(short, long)]
    quiet: bool,
}

fn read(name: &str) -> Result<Format, String> {
    Format::of_name(name)
        .ok_or_else(|| "give raw, qcow2, vmdk, vhd, android-sparse, gzip, zstd or xz".to_owned())
}

fn written(name: &str) -> Result<Format, String> {
    let format = Format::of_name(name);
    let format = format.filter(|it| it.can_be_written() || *it == Format::AndroidSparse);
    format.ok_or_else(|| "give raw, qcow2, vmdk, vhd or android-sparse".to_owned())
}

impl Convert {
    pub(crate) fn run(self) -> CliResult<ExitCode> {
        let guessed = convert::format_of_name(&self.output).unwrap_or(Format::Raw);
        let options = convert::Options {
            from: self.format,
            offset_bytes: self.offset,
            to: self.output_format.unwrap_or(guessed),
            has_table: self.gpt,
            may_replace: self.force,
        };
        let progress = Arc::new(Progress {
            stop: copying::watch_signals()?,
            ..Progress::default()
        });
        let converted = {
            let _bar = bar(&progress);
            convert::convert(&self.input, &self.output, &options, &progress)
        };
        let converted = match converted {
            Err(error) if progress.stop.load(Ordering::Relaxed) => {
                output::say(error);
                return Ok(ExitCode::from(copying::INTERRUPTED));
            }
            converted => converted.map_err(Failure::new)?,
        };
        if self.json {
            let text = serde_json::to_string_pretty(&converted).map_err(Failure::new)?;
            output::print(&(text + "\n"))?;
        } else if !self.quiet {
            output::print(&report(&converted))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn report(converted: &Converted) -> String {
    let table = match converted.partition_start_bytes {
        Some(start) => format!(", partition 1 at {}", text::human(start)),
        None => String::new(),
    };
    format!(
        "{}: {} of {}, {} with data{table}\n",
        converted.image,
        converted.to,
        text::human(converted.size_bytes),
        text::human(converted.data_bytes),
    )
}

/// Shows how far it is.
fn bar(progress: &Arc<Progress>) -> Option<Companion> {
    let progress = Arc::clone(progress);
    progress::bar(move || Step {
        message: String::new(),
        bytes: progress.bytes.load(Ordering::Relaxed),
        bytes_all: progress.bytes_all.load(Ordering::Relaxed),
    })
}
