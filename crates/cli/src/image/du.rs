//! `finefs du`

use std::collections::HashSet;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgAction, Args};
use finefs_image::Attributes;
use finefs_image::walk::{Found, Step, Walk};
use serde::Serialize;

use super::session::{At, Context, Printer, Session, print_json};
use super::{Where, text};
use crate::CliResult;

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

#[derive(Serialize)]
struct Line {
    bytes: u64,
    path: String,
}

impl Du {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs du", &self.place);
        let mut printer = Printer::new();
        let (mut lines, mut total) = (Vec::new(), 0);
        for operand in &session.operands(&self.operands) {
            let at = session.read(operand);
            let Some(at) = session.check(at) else {
                continue;
            };
            let mut seen = HashSet::new();
            total += self.count(&mut session, &at, &mut seen, &mut |line| {
                match self.json {
                    true => lines.push(line),
                    false => self.print(&mut printer, &line)?,
                }
                Ok(())
            })?;
        }
        let sum = Line {
            bytes: total,
            path: "total".to_owned(),
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
        seen: &mut HashSet<u64>,
        tell: &mut dyn FnMut(Line) -> CliResult<()>,
    ) -> CliResult<u64> {
        // Of the directories that have been entered, the first of all that is outside of them.
        let mut sums = vec![0_u64];
        for step in Walk::new(&at.fs, &at.address) {
            let Some(step) = session.check(step) else {
                continue;
            };
            let (found, bytes) = match step {
                Step::Enter(found) if found.attributes.is_directory() => {
                    sums.push(self.size(&found.attributes));
                    continue;
                }
                Step::Enter(found) => {
                    let is_linked = found.attributes.links > 1 && !self.count_links;
                    if is_linked && !seen.insert(found.attributes.ino) {
                        continue;
                    }
                    let bytes = self.size(&found.attributes);
                    (found, bytes)
                }
                Step::Leave(found) => (found, sums.pop().unwrap_or(0)),
            };
            if let Some(sum) = sums.last_mut() {
                *sum += bytes;
            }
            if self.shows(&found) {
                tell(Line {
                    bytes,
                    path: at.address.with_path(found.path).to_string(),
                })?;
            }
        }
        Ok(sums[0])
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
        match self.apparent_size || self.bytes {
            true => attributes.size,
            false => attributes.sectors * 512,
        }
    }

    fn print(&self, printer: &mut Printer, line: &Line) -> CliResult<()> {
        let number = if self.human_readable {
            text::human(line.bytes)
        } else if self.bytes {
            line.bytes.to_string()
        } else {
            line.bytes.div_ceil(1024).to_string()
        };
        printer.put(format!("{number}\t{}\n", line.path).as_bytes())
    }
}
