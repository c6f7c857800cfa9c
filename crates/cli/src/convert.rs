//! `finefs convert`

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::Args;
use finefs_image::convert::{self, Converted, Format, Progress};
#[cfg(feature = "build")]
use finefs_image::{
    Access, Address, Images, build,
    mkfs::{self, FsType},
};

use crate::image::{copying, stop, text};
use crate::progress::{self, Companion, Step};
use crate::{CliResult, Failure, output, size};

/// Convert a disk image to another format, or its file system to ext4
///
/// The output is made beside its place and renamed when it is whole. Formats that can be read
/// besides: compressed by gzip, zstd or xz. With -O ext4, ext3 or ext2 it is a new file system with
/// all that is in that of IN, reiserfs for instance, its label and as much free space; ends with
/// status 1 where the new one has no room for an attribute, which is said.
#[derive(Args)]
pub(crate) struct Convert {
    /// The image, or a partition of it (IMAGE@p2, IMAGE@NAME), or an NBD export by its URL
    #[arg(value_name = "IN")]
    input: OsString,
    /// The file to make; or an NBD export, with --force
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// What to make: raw, qcow2, vmdk (flat), vhd (fixed) or android-sparse, or ext4, ext3 or ext2;
    /// without it what the name ends in, else raw (.ext4 is raw too, unless IN is reiserfs)
    #[arg(short = 'O', long, value_name = "FORMAT", value_parser = written)]
    output_format: Option<Output>,
    /// The format of the input; without it what its first bytes say
    #[arg(short = 'f', long, value_name = "FORMAT", value_parser = read)]
    format: Option<Format>,
    /// Put a GUID partition table around it; the partition begins at 1 MiB
    #[arg(long)]
    gpt: bool,
    /// Where in the input to begin: bytes, or with k, m, g
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::bytes)]
    offset: u64,
    #[cfg(feature = "build")]
    #[command(flatten)]
    journals: crate::journals::Journals,
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

/// What is made.
#[derive(Clone, Copy)]
enum Output {
    /// The same disk in this format.
    Disk(Format),
    /// The same files in a file system of this type.
    #[cfg(feature = "build")]
    Files(FsType),
}

fn written(name: &str) -> Result<Output, String> {
    #[cfg(feature = "build")]
    if let Ok(fs_type) = name.parse() {
        return Ok(Output::Files(fs_type));
    }
    let format = Format::of_name(name);
    let format = format.filter(|it| it.can_be_written() || *it == Format::AndroidSparse);
    let format = format.map(Output::Disk);
    let known = match cfg!(feature = "build") {
        true => "give raw, qcow2, vmdk, vhd, android-sparse, ext4, ext3 or ext2",
        false => "give raw, qcow2, vmdk, vhd or android-sparse",
    };
    format.ok_or_else(|| known.to_owned())
}

impl Convert {
    pub(crate) fn run(self) -> CliResult<ExitCode> {
        if self.output.as_os_str() == "-" {
            return Err(Failure::new(
                "standard output: what is made is not written in its order; give a file (./- for \
                 one of that name)",
            ));
        }
        let output = self.output_format.unwrap_or_else(|| self.guessed());
        match output {
            Output::Disk(format) => self.disk(format),
            #[cfg(feature = "build")]
            Output::Files(fs_type) => self.files(fs_type),
        }
    }

    /// What the name of the output asks for.
    fn guessed(&self) -> Output {
        #[cfg(feature = "build")]
        if let Some(extension) = self.output.extension()
            && let Ok(fs_type) = extension.to_string_lossy().parse()
            && self.is_reiserfs()
        {
            return Output::Files(fs_type);
        }
        Output::Disk(convert::format_of_name(&self.output).unwrap_or(Format::Raw))
    }

    #[cfg(feature = "build")]
    fn is_reiserfs(&self) -> bool {
        let device = finefs_image::address::open_part(&self.input, finefs_block::Access::Inspect);
        device.is_ok_and(|it| {
            finefs::front_end::format_of(&*it) == Some(finefs::front_end::Format::Reiserfs)
        })
    }

    /// Makes a file system with the files of the input's, and as much free space.
    #[cfg(feature = "build")]
    fn files(&self, fs_type: FsType) -> CliResult<ExitCode> {
        if self.gpt || self.format.is_some() || self.offset > 0 {
            return Err(Failure::new(
                "--gpt, --format and --offset are for disk formats, not for a file system; give \
                 IN as IMAGE@PARTITION, and put a table around the output by another convert --gpt",
            ));
        }
        let address = Address::root_of(&self.input);
        let journals = self.journals.paths.clone();
        let old = Images::new(None)
            .with_journals(journals.clone())
            .open(&address, Access::Read);
        let old = old.map_err(Failure::new)?;
        let there = old.statfs();
        let options = build::Options {
            rules: build::Rules {
                journals,
                ..build::Rules::default()
            },
            file_system: mkfs::Options {
                fs_type,
                label: old.label().into_encoded_bytes(),
                reserved_percent: 0.0,
                ..mkfs::Options::default()
            },
            is_repeatable: true,
            size_bytes: None,
            free: build::Free::Bytes(there.blocks_free * u64::from(there.block_size_bytes)),
            may_replace: self.force,
            jobs: copying::jobs(),
        };
        old.close().map_err(Failure::new)?;
        let sources = [build::Source::Image(address)];
        let built = crate::build::run(&self.output, &sources, &options)?;
        let made = &built.file_system;
        crate::build::say_notes(self.quiet, &made.image, &made.notes);
        crate::build::tell(self.json, self.quiet, &built, &crate::build::report(&built))?;
        Ok(crate::build::status(&built.left_out))
    }

    fn disk(self, format: Format) -> CliResult<ExitCode> {
        let options = convert::Options {
            from: self.format,
            offset_bytes: self.offset,
            to: format,
            has_table: self.gpt,
            may_replace: self.force,
        };
        let progress = Arc::new(Progress {
            stop: stop::watch_signals()?,
            ..Progress::default()
        });
        let converted = {
            let _bar = bar(&progress);
            convert::convert(&self.input, &self.output, &options, &progress)
        };
        let converted = match converted {
            Err(error) if progress.stop.load(Ordering::Relaxed) => {
                output::say(error);
                return Ok(ExitCode::from(stop::INTERRUPTED));
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
