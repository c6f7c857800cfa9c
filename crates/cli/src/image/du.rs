//! `finefs du`

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{ArgAction, Args};
use finefs_image::walk::{Found, Step, Walk};
use finefs_image::{Address, Attributes};
use serde::Serialize;

use super::Where;
use super::record::hex_unless_utf8;
use super::session::{At, Context, Printer, Session, print_json};
use super::text::for_terminal;
use super::units::Units;
use crate::CliResult;
use finefs_image::pattern::matches;

/// Show what directories of an image take, as du(1)
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Du {
    /// IMAGE:/PATH; IMAGE is its root
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    /// Only the sum of each operand
    #[arg(short, long, conflicts_with_all = ["all", "max_depth"])]
    summarize: bool,
    /// Sizes as 1.5K, 23M
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Files too
    #[arg(short, long)]
    all: bool,
    /// A sum of all operands
    #[arg(short = 'c', long)]
    total: bool,
    /// Lengths of files, not the space that they take
    #[arg(long)]
    apparent_size: bool,
    /// The same, in bytes
    #[arg(short, long)]
    bytes: bool,
    /// Sizes in KiB, as without it
    #[arg(short)]
    kibibytes: bool,
    /// Sizes in MiB
    #[arg(short, conflicts_with_all = ["human_readable", "bytes", "block_size"])]
    mebibytes: bool,
    /// Sizes in units of so many bytes, or with k, m, g
    #[arg(short = 'B', long, value_name = "SIZE",
          conflicts_with_all = ["human_readable", "bytes"])]
    block_size: Option<Units>,
    /// Of each directory without those in it
    #[arg(short = 'S', long)]
    separate_dirs: bool,
    /// Numbers of inodes, not sizes
    #[arg(long, conflicts_with_all = ["bytes", "apparent_size"])]
    inodes: bool,
    /// Leave out files of this name or path
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// Show nothing smaller; negative: nothing larger
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true, value_parser = threshold)]
    threshold: Option<i64>,
    /// Stay in the file system, as without it
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// A zero byte behind each line, not a new line
    #[arg(short = '0', long)]
    null: bool,
    /// What operands that are symbolic links lead to
    #[arg(
        short = 'D',
        visible_short_alias = 'H',
        long,
        overrides_with = "no_dereference"
    )]
    dereference_args: bool,
    /// Follow no symbolic link, as without it
    #[arg(short = 'P', long, overrides_with = "dereference_args")]
    no_dereference: bool,
    /// Count a file as often as it is linked
    #[arg(short = 'l', long)]
    count_links: bool,
    /// Show not deeper than this
    #[arg(short = 'd', long, value_name = "DEPTH")]
    max_depth: Option<usize>,
    /// As JSON, for scripts: bytes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// What a directory takes: with those in it, and without.
#[derive(Clone, Copy, Default)]
struct Sum {
    all: u64,
    own: u64,
}

fn threshold(text: &str) -> Result<i64, String> {
    let (digits, sign) = match text.strip_prefix('-') {
        Some(digits) => (digits, -1),
        None => (text, 1),
    };
    let bytes = i64::try_from(crate::size::bytes(digits)?);
    bytes
        .map(|bytes| sign * bytes)
        .map_err(|_| "give a smaller size".to_owned())
}

/// A line of the list.
struct Line {
    bytes: u64,
    path: OsString,
}

/// The same as scripts read it.
#[derive(Serialize)]
struct Record {
    bytes: u64,
    path: String,
    /// The bytes of a path that is not UTF-8, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

/// How a path below `start`, where `at` leads, is shown.
fn shown(at: &At, start: &Address, path: &Path) -> Address {
    let below = path.strip_prefix(&start.path).unwrap_or(path);
    match below.as_os_str().is_empty() {
        true => at.address.clone(),
        false => at.address.with_path(at.path().join(below)),
    }
}

impl Du {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs du", &self.place);
        let mut printer = Printer::new();
        let (mut lines, mut total) = (Vec::new(), 0);
        // Of what was counted: the image and the inode.
        let mut seen = HashSet::new();
        for operand in &session.operands(&self.operands) {
            let at = session.read(operand);
            let Some(at) = session.check(at) else {
                continue;
            };
            total += self.count(&mut session, &at, &mut seen, &mut |line| {
                match self.json {
                    true => lines.push(Record {
                        bytes: line.bytes,
                        path: line.path.display().to_string(),
                        path_hex: hex_unless_utf8(&line.path),
                    }),
                    false => self.print(&mut printer, &line)?,
                }
                Ok(())
            })?;
        }
        let sum = Line {
            bytes: total,
            path: "total".into(),
        };
        match (self.json, self.total) {
            (true, _) => print_json(&lines)?,
            (false, true) => self.print(&mut printer, &sum)?,
            (false, false) => {}
        }
        printer.flush()?;
        session.end()
    }

    /// Counts below an operand, and tells each line that is to be shown.
    fn count(
        &self,
        session: &mut Session,
        at: &At,
        seen: &mut HashSet<(OsString, u64)>,
        tell: &mut dyn FnMut(Line) -> CliResult<()>,
    ) -> CliResult<u64> {
        // Of the directories that have been entered, the first of all that is outside of them.
        let mut sums = vec![Sum::default()];
        let mut start = at.address.clone();
        if self.dereference_args
            && let Ok(path) = at.fs.canonicalize(at.path())
        {
            start.path = path;
        }
        let mut walk = Walk::new(&at.fs, &start);
        // Directories that are left out are left, too.
        let mut is_left_out = false;
        while let Some(step) = walk.next() {
            let Some(step) = session.check(step) else {
                continue;
            };
            if std::mem::take(&mut is_left_out) {
                continue;
            }
            let (found, sum) = match step {
                Step::Enter(found) => {
                    let is_directory = found.attributes.is_directory();
                    if self.is_left_out(at, &found, seen) {
                        walk.leave_out();
                        is_left_out = is_directory;
                        continue;
                    }
                    let own = self.size(&found.attributes);
                    let sum = Sum { all: own, own };
                    if is_directory {
                        sums.push(sum);
                        continue;
                    }
                    (found, sum)
                }
                Step::Leave(found) => (found, sums.pop().unwrap_or_default()),
            };
            let is_directory = found.attributes.is_directory();
            if let Some(above) = sums.last_mut() {
                above.all += sum.all;
                above.own += if is_directory { 0 } else { sum.own };
            }
            let bytes = match self.separate_dirs {
                true => sum.own,
                false => sum.all,
            };
            if self.shows(&found) && self.is_large(bytes) {
                tell(Line {
                    bytes,
                    path: shown(at, &start, &found.path).to_os_string(),
                })?;
            }
        }
        Ok(sums[0].all)
    }

    /// Whether a file is not to be counted, or was before.
    fn is_left_out(&self, at: &At, found: &Found, seen: &mut HashSet<(OsString, u64)>) -> bool {
        let path = found.path.as_os_str().as_encoded_bytes();
        let name = found.path.file_name().unwrap_or(found.path.as_os_str());
        let is_excluded = self.exclude.iter().any(|pattern| {
            let pattern = pattern.as_encoded_bytes();
            matches(pattern, path) || matches(pattern, name.as_encoded_bytes())
        });
        let attributes = &found.attributes;
        let is_linked = attributes.links > 1 && !attributes.is_directory();
        let may_come_again = is_linked || self.operands.len() > 1;
        let key = || (at.address.image.clone(), attributes.ino);
        is_excluded || may_come_again && !self.count_links && !seen.insert(key())
    }

    fn is_large(&self, bytes: u64) -> bool {
        let bytes = i128::from(bytes);
        match self.threshold.map(i128::from) {
            Some(limit) if limit < 0 => bytes <= -limit,
            limit => bytes >= limit.unwrap_or(0),
        }
    }

    fn shows(&self, found: &Found) -> bool {
        let depth_max = match self.summarize {
            true => 0,
            false => self.max_depth.unwrap_or(usize::MAX),
        };
        let is_of_kind = found.attributes.is_directory() || self.all || found.depth == 0;
        is_of_kind && found.depth <= depth_max
    }

    fn size(&self, attributes: &Attributes) -> u64 {
        match (self.inodes, self.apparent_size || self.bytes) {
            (true, _) => 1,
            (_, true) => attributes.size,
            (_, false) => attributes.sectors * 512,
        }
    }

    fn print(&self, printer: &mut Printer, line: &Line) -> CliResult<()> {
        let units = match &self.block_size {
            _ if self.human_readable => Units::Human,
            _ if self.bytes || self.inodes => Units::of(1),
            _ if self.mebibytes => Units::of(1 << 20),
            Some(units) => units.clone(),
            None => Units::of(1024),
        };
        let number = units.shown(line.bytes);
        let path = line.path.as_encoded_bytes();
        match self.null {
            true => printer.put(&[number.as_bytes(), b"\t", path, b"\0"].concat()),
            false => printer.put(&[number.as_bytes(), b"\t", &for_terminal(path), b"\n"].concat()),
        }
    }
}
