//! `finefs mkfs`

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgAction, Args};
use finefs_image::build::{self, Free, Owners, Rules, Source};
use finefs_image::mkfs::{self, MkfsError, Options, Place};

use crate::image::{copying, stop};
use crate::mke2fs::{self, Besides, Name};
use crate::switches::{Switches, Whose, time_from_environment};
use crate::{CliResult, Failure, output, progress, size};

/// Room for the label in a superblock.
const LABEL_BYTES: usize = 16;

/// Make an ext2, ext3 or ext4 file system, in a file or on a device
///
/// The switches are those of mke2fs(8), and so are features, sizes and places of all things. A new
/// file is made sparse. Called as mke2fs, mkfs.ext2, mkfs.ext3 or mkfs.ext4, through links, finefs
/// takes mke2fs's command lines.
#[derive(Args)]
#[command(args_override_self = true)]
pub(crate) struct Mkfs {
    /// A file, which is made if there is none (with --size), a block device, a partition of a disk
    /// (IMAGE@p2), or an NBD export by its URL
    image: PathBuf,
    /// The size as mke2fs has it: KiB, or blocks where -b is given, or with s, k, m, g, t
    #[arg(conflicts_with = "size")]
    blocks: Option<String>,
    /// The size: bytes, or with k, m, g, t; that of the image without it
    #[arg(long, value_parser = size::bytes, allow_negative_numbers = true)]
    size: Option<u64>,
    /// Where in the image it starts: bytes, or with k, m, g
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    offset: Option<u64>,
    /// Fill it with this directory or tar archive
    #[arg(short = 'd', value_name = "SOURCE", conflicts_with = "offset")]
    source: Option<PathBuf>,
    /// Make the same bytes each time: UUID, hash seed and time come from this text, or the time
    /// from SOURCE_DATE_EPOCH (which alone makes the same bytes, too)
    #[arg(long, value_name = "TEXT")]
    seed: Option<String>,
    /// Whose default features ext4 has
    #[arg(long, value_enum, default_value = "debian")]
    defaults: Whose,
    /// Say what was made as JSON, for scripts
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// Lose what is there
    #[arg(short = 'F', long, action = ArgAction::Count)]
    force: u8,
    /// Say what would be made, and make nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Say nothing
    #[arg(short, long)]
    quiet: bool,
    /// Say more
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
    #[command(flatten)]
    switches: Switches,
    /// The name of mke2fs that finefs was called by
    #[arg(long, hide = true)]
    called_as: Option<Name>,
}

impl Mkfs {
    pub(crate) fn run(self) -> CliResult<ExitCode> {
        if let Some(name) = self.called_as {
            output::set_program(name.name);
        }
        let mut besides = Besides::default();
        let mut options = self.switches.options(self.called_as, &mut besides)?;
        options.defaults = self.defaults.into();
        // mke2fs gives this name a journal even with -O ^has_journal.
        options.has_journal |= self.called_as.is_some_and(|name| name.name == "mkfs.ext3");
        if self.called_as.is_some() && options.label.len() > LABEL_BYTES {
            options.label.truncate(LABEL_BYTES);
            let label = options.label.escape_ascii();
            output::say(format!("label too long; will be truncated to '{label}'"));
        }
        options.seed = self.seed;
        options.time = time_from_environment(self.called_as.is_some())?;
        let size_bytes = match (self.size, &self.blocks) {
            (Some(bytes), _) => Some(bytes),
            (None, Some(text)) => {
                let bytes = mke2fs::size_bytes(text, options.block_size);
                Some(bytes.map_err(|reason| Failure::new(format!("size {text}: {reason}")))?)
            }
            (None, None) => None,
        };
        let named = Place::of(self.image.as_os_str(), size_bytes).map_err(Failure::new)?;
        let offset = self.offset.or(besides.offset_bytes);
        if self.source.is_some() && offset.is_some() {
            return Err(Failure::new(
                "-d: a file system at an offset cannot be filled; use finefs cp",
            ));
        }
        if offset.is_some() && named.offset_bytes > 0 {
            return Err(Failure::new(
                "--offset: the partition says where the file system starts",
            ));
        }
        let place = Place {
            offset_bytes: offset.unwrap_or(named.offset_bytes),
            may_overwrite: self.force > 0,
            ..named
        };
        let as_mke2fs = self.called_as.is_some();
        let undo = options.undo.clone();
        let mut status = ExitCode::SUCCESS;
        let mut made = match (self.dry_run, &self.source) {
            (true, _) => mkfs::plan_at(&place, &options).map_err(|it| failed(it, as_mke2fs))?,
            (false, Some(source)) => {
                let built = fill(&self.image, place, options, source, as_mke2fs)?;
                status = crate::build::status(&built.left_out);
                built.file_system
            }
            (false, None) => make(place, &options, as_mke2fs)?,
        };
        made.image = self.image.display().to_string();
        for note in &made.notes {
            output::say(format!("{}: {note}", made.image));
        }
        if self.json {
            let text = serde_json::to_string_pretty(&made).map_err(Failure::new)?;
            output::print(&(text + "\n"))?;
        } else if !self.quiet {
            output::print(&mke2fs::report(&made, self.verbose > 0))?;
            if let Some(undo) = undo.filter(|_| !self.dry_run) {
                let (undo, name) = (undo.display(), &self.image.display());
                output::print(&format!("finefs undo {undo} {name} takes it back\n"))?;
            }
        }
        Ok(status)
    }
}

/// Makes it, filled with a source. What is there is replaced when all is done.
fn fill(
    image: &Path,
    place: Place,
    options: Options,
    source: &Path,
    as_mke2fs: bool,
) -> CliResult<build::Built> {
    let is_there = place.path.exists() || finefs_disk::is_url(place.path.as_os_str());
    // Says what speaks against it. A new file is as large as it must be.
    let planned = match place.size_bytes.is_some() || is_there {
        true => Some(mkfs::plan_at(&place, &options).map_err(Failure::new)?),
        false => None,
    };
    let block_size = planned.as_ref().map(|planned| planned.block_size);
    let planned_bytes = planned.map(|planned| planned.size_bytes);
    if is_there && let Some(what) = mkfs::found_at(&place) {
        let line = format!("{} holds {what}", place.path.display());
        let may_overwrite = place.may_overwrite || as_mke2fs && has_consent(&line);
        if !may_overwrite {
            return Err(Failure::new(MkfsError::InUse {
                path: place.path,
                what,
            }));
        }
    }
    let options = build::Options {
        rules: Rules {
            time_max: options.time,
            owners: Owners {
                root: match options.root_owner {
                    (0, 0) => Default::default(),
                    owner => owner.into(),
                },
                ..Owners::default()
            },
            ..Rules::default()
        },
        file_system: Options {
            block_size: block_size.or(options.block_size),
            ..options
        },
        is_repeatable: false,
        size_bytes: planned_bytes.max(place.size_bytes),
        free: Free::Bytes(0),
        may_replace: true,
        jobs: copying::jobs(),
    };
    let sources = [Source::of(source).map_err(Failure::new)?];
    crate::build::run(image, &sources, &options)
}

/// Makes it. As mke2fs, what is there is lost unless somebody at a terminal says no.
fn make(place: Place, options: &Options, as_mke2fs: bool) -> CliResult<mkfs::Made> {
    // A new file goes at a signal. What was there before, a signal leaves as it is then.
    let stop = match place.is_there() {
        true => Arc::default(),
        false => stop::watch_signals()?,
    };
    let work = || mkfs::make_at_until(&place, options, &stop);
    let made = match options.checks_blocks {
        true => progress::during(&format!("testing {}", place.path.display()), work),
        false => work(),
    };
    let made = match made {
        Err(MkfsError::InUse { path, what }) if as_mke2fs => {
            let line = format!("{} holds {what}", path.display());
            if !has_consent(&line) {
                return Err(Failure::new(MkfsError::InUse { path, what }));
            }
            let place = Place {
                may_overwrite: true,
                ..place
            };
            mkfs::make_at(&place, options)
        }
        made => made,
    };
    made.or_else(|error| match error {
        MkfsError::Interrupted(_) => crate::build::give_up(error.to_string()),
        error => Err(failed(error, as_mke2fs)),
    })
}

/// What is told of a failure. By mke2fs's names there is another way to give a size.
fn failed(error: MkfsError, as_mke2fs: bool) -> Failure {
    match error {
        MkfsError::NoSize(path) if as_mke2fs => Failure::new(format!(
            "The file {} does not exist and no size was specified.",
            path.display()
        )),
        error => Failure::new(error),
    }
}

/// True where there is nobody to ask.
fn has_consent(line: &str) -> bool {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return true;
    }
    print!("{line}\nProceed anyway? (y,N) ");
    let _ = io::stdout().flush();
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).is_ok() && answer.trim_start().starts_with(['y', 'Y'])
}
