//! `finefs repair` and `finefs undo`

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use finefs_block::Access;
use finefs_check::repair::{ChangedSince, NAMED, Outcome, default_path, repair, undo};
use finefs_check::{Finding, Options, Problem, Report};
use serde::Serialize;

use crate::check::{CLEAN, ERRORS_LEFT, OPERATIONAL, open, open_at, status_of};
use crate::{CliResult, Failure, logger, output, progress, size};

/// What was wrong is right now.
const CORRECTED: u8 = 1;

/// Repair what can be repaired safely, with a file that undoes it
///
/// Replays the journal, removes orphans, and puts checksums, counts, bitmaps, link counts, types in
/// entries, '..' and indexes of directories right; what no directory holds goes to lost+found,
/// which is made, or made larger, where it must be; a file of that name goes there, too. Where
/// anything else is wrong (blocks claimed twice, damaged maps), or there is no room for that,
/// nothing at all is changed: that is e2fsck's, but for what --also names, as check --json does.
/// Ends with status 0 where nothing was wrong, 1 where it is right now, 4 where it was left, and 8
/// where it could not be done, or not all of the image could be read.
#[derive(Args)]
pub(crate) struct Repair {
    /// The image, a file or block device; IMAGE@p2 is a partition of it
    #[arg(value_name = "IMAGE")]
    image: OsString,
    /// Say what would be done, and do nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// What finefs undo puts back; without it IMAGE.undo, of a device in the working directory, and
    /// of an export nbd.undo there
    #[arg(long, value_name = "FILE")]
    undo: Option<PathBuf>,
    /// Decide about data, too, where this is wrong: directory-entry and duplicate-name remove the
    /// entry, inode-size sets the size, extent, block-pointer and shared-blocks empty the file
    #[arg(long, value_name = "PROBLEM", value_delimiter = ',', value_parser = named())]
    also: Vec<Problem>,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
    /// Threads; as many as there are CPUs without it
    #[arg(short, long, value_name = "N")]
    jobs: Option<usize>,
    /// Where in the image the file system starts: bytes, or with k, m, g
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    offset: Option<u64>,
}

/// Takes the names of problems that can be asked for.
fn named() -> impl TypedValueParser<Value = Problem> {
    PossibleValuesParser::new(NAMED.map(Problem::code)).map(|name| {
        let mut all = NAMED.into_iter();
        all.find(|it| it.code() == name).expect("one of these")
    })
}

/// What scripts get.
#[derive(Serialize)]
struct Said<'a> {
    outcome: &'static str,
    fixed: &'a [Finding],
    pages_changed: usize,
    undo: Option<PathBuf>,
    report: &'a Report,
}

impl Repair {
    pub(crate) fn run(self) -> ExitCode {
        match self.repair() {
            Ok(status) => ExitCode::from(status),
            Err(Failure(line)) => {
                output::say(line);
                ExitCode::from(OPERATIONAL)
            }
        }
    }

    fn repair(self) -> CliResult<u8> {
        logger::start(false);
        let access = match self.dry_run {
            true => Access::ReadOnly,
            false => Access::ReadWrite,
        };
        let name = self.image.display().to_string();
        let device = open(&self.image, self.offset, access)?;
        let undo = match self.undo {
            Some(undo) => undo,
            None => default_undo(&self.image)?,
        };
        let undo = (!self.dry_run).then_some(undo);
        let mut options = Options {
            also: self.also,
            ..Options::default()
        };
        if let Some(jobs) = self.jobs {
            options.jobs = jobs.max(1);
        }
        let outcome = progress::during(&format!("repairing {name}"), || {
            repair(&device, &options, undo.as_deref())
        });
        let outcome = outcome.map_err(|reason| Failure::new(format!("{name}: {reason}")))?;
        let (status, text) = match outcome {
            Outcome::Clean(report) => {
                (CLEAN, tell(self.json, &name, "clean", &[], 0, None, report))
            }
            Outcome::Refused(report) => (
                status_of(&report),
                tell(self.json, &name, "refused", &[], 0, None, report),
            ),
            Outcome::Done {
                fixed,
                report,
                pages,
                undo,
            } => {
                let what = if self.dry_run { "possible" } else { "repaired" };
                let text = tell(self.json, &name, what, &fixed, pages, undo, report);
                (if self.dry_run { ERRORS_LEFT } else { CORRECTED }, text)
            }
        };
        output::print(&text?)?;
        Ok(status)
    }
}

/// Where the undo file lies if nobody says: beside a file, in the working directory for what is
/// none.
pub(crate) fn default_undo(image: &OsStr) -> CliResult<PathBuf> {
    let (path, _) = finefs_image::address::locate(image).map_err(Failure::new)?;
    let is_file = std::fs::metadata(&path).is_ok_and(|found| found.is_file());
    let place = match (is_file, path.file_name()) {
        (true, _) => path,
        (false, Some(name)) if !finefs_disk::is_url(path.as_os_str()) => name.into(),
        (false, _) => "nbd".into(),
    };
    Ok(default_path(&place))
}

fn tell(
    is_json: bool,
    image: &str,
    outcome: &'static str,
    fixed: &[Finding],
    pages_changed: usize,
    undo: Option<PathBuf>,
    mut report: Report,
) -> CliResult<String> {
    report.image = image.to_owned();
    report.is_left = outcome == "refused";
    if is_json {
        let said = Said {
            outcome,
            fixed,
            pages_changed,
            undo,
            report: &report,
        };
        return Ok(serde_json::to_string_pretty(&said).map_err(Failure::new)? + "\n");
    }
    let mut text = String::new();
    for finding in fixed {
        text += &format!("{finding}\n");
    }
    Ok(text
        + &match (outcome, undo) {
            ("refused", _) => {
                format!("{report}{image}: nothing was changed, since not all of it is safe\n")
            }
            ("possible", _) => {
                format!(
                    "{image}: can be put right, in {pages_changed} pages; nothing was changed\n"
                )
            }
            (_, Some(undo)) => format!(
                "{image}: put right, in {pages_changed} pages; finefs undo {} {image} takes it back\n",
                undo.display()
            ),
            _ => report.to_string(),
        })
}

/// Put back what a repair, a resize or mkfs -z has changed
#[derive(Args)]
pub(crate) struct Undo {
    /// The file that was made then; also one of e2fsprogs
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The image that was changed
    #[arg(value_name = "IMAGE")]
    image: OsString,
    /// Where in the image the file system starts: bytes, or with k, m, g
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    offset: Option<u64>,
    /// Put it back also where the image was changed since, as e2undo -f does
    #[arg(short, long)]
    force: bool,
}

impl Undo {
    pub(crate) fn run(self) -> CliResult<()> {
        logger::start(false);
        let (device, start) = open_at(&self.image, self.offset, Access::ReadWrite)?;
        let is_part = start.is_some();
        let changed = match self.force {
            true => ChangedSince::PutBack { is_part },
            false => ChangedSince::Refused,
        };
        let pages = undo(&self.file, &device, changed).map_err(Failure::new)?;
        let (image, file) = (self.image.display(), self.file.display());
        output::print(&format!("{image}: {pages} pages are as {file} has them\n"))
    }
}
