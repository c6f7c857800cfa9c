//! `finefs diff`

#[cfg(feature = "build")]
mod layer;

use std::ffi::OsString;
use std::io::IsTerminal;
#[cfg(feature = "build")]
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgAction, Args};
use finefs_image::compare::{Aspect, Change, Difference, Options, Tree, compare};
use finefs_image::pattern::matches;
use finefs_image::{Access, Operand};
use serde::Serialize;

use super::Where;
use super::session::{Context, Printer, Session, print_json};
use crate::{CliResult, Failure, progress};

/// Status where something differs, as diff(1) has it.
const DIFFERENT: u8 = 1;
/// Status where something could not be read.
const TROUBLE: u8 = 2;

/// Compare images, or an image with a directory: names, metadata and contents
///
/// A line for each difference: `-` what the second lacks, `+` what the first lacks, `M` what is in
/// both and differs, and in what. The status is that of diff(1): 0 without differences, 1 with
/// some, 2 where something could not be read.
#[derive(Args)]
pub(crate) struct Diff {
    /// IMAGE, IMAGE:/PATH, or a directory of the host
    first: OsString,
    /// The same
    second: OsString,
    /// Leave out owners
    #[arg(long)]
    no_owner: bool,
    /// Leave out times
    #[arg(long)]
    no_mtime: bool,
    /// Leave out extended attributes and ACLs
    #[arg(long)]
    no_xattrs: bool,
    /// Write a layer of a container image that makes the second of the first, with whiteouts; its
    /// name says how it is compressed, - is standard output. The status is 0 when it is written
    #[cfg(feature = "build")]
    #[arg(long, value_name = "LAYER", conflicts_with_all = ["json", "quiet", "exclude"])]
    oci: Option<PathBuf>,
    /// Leave out files of this name, with all below them
    #[arg(short = 'x', long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// As without it: with all that is in directories, also what one side lacks
    #[arg(short, long, visible_short_alias = 'N', action = ArgAction::Count)]
    recursive: u8,
    /// Only the status
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// The differences as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

/// A difference as JSON.
#[derive(Serialize)]
struct Record<'a> {
    path: String,
    change: &'static str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    aspects: &'a [Aspect],
}

impl Diff {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs diff", &self.place);
        let mut open = |operand: &OsString| match tree(&mut session, operand) {
            Ok(tree) => Some(tree),
            Err(error) => {
                session.fail_with(TROUBLE, error);
                None
            }
        };
        let (Some(first), Some(second)) = (open(&self.first), open(&self.second)) else {
            return session.end();
        };
        let options = Options {
            owners: !self.no_owner,
            times: !self.no_mtime,
            xattrs: !self.no_xattrs,
        };
        #[cfg(feature = "build")]
        if let Some(file) = &self.oci {
            let file = match session.host_file(file) {
                Ok(file) => file,
                Err(error) => {
                    session.fail_with(TROUBLE, error);
                    return session.end();
                }
            };
            return layer::write(session, &file, (first, second), options);
        }
        let mut printer = Printer::new();
        let mut differences = Vec::new();
        let mut result = Ok(());
        let mut status = 0;
        let mut errors = Vec::new();
        let mut tell = |told| match told {
            Ok(difference) if self.is_left_out(&difference) => {}
            Ok(difference) => {
                status = DIFFERENT;
                if self.json {
                    differences.push(difference);
                } else if !self.quiet && result.is_ok() {
                    result = printer.put_line(line(&difference).as_bytes());
                }
            }
            Err(error) => errors.push(error),
        };
        let mut work = || compare((&first, &second), options, &mut tell);
        // On a terminal the lines themselves are the sign of life.
        match std::io::stdout().is_terminal() && !self.json && !self.quiet {
            true => work(),
            false => progress::during("comparing", work),
        }
        drop((first, second));
        let printed = result.and_then(|()| match self.json {
            true => print_json(&differences.iter().map(record).collect::<Vec<_>>()),
            false => printer.flush(),
        });
        if let Err(Failure(line)) = printed {
            session.fail_with(TROUBLE, line);
            return session.end();
        }
        for error in errors {
            session.fail_with(TROUBLE, error);
        }
        if status == DIFFERENT {
            session.fail_silently();
        }
        session.end()
    }
}

impl Diff {
    fn is_left_out(&self, difference: &Difference) -> bool {
        difference.path.iter().any(|name| {
            let name = name.as_encoded_bytes();
            let mut patterns = self.exclude.iter();
            patterns.any(|pattern| matches(pattern.as_encoded_bytes(), name))
        })
    }
}

/// A directory of the host is one that is there; everything else is an image.
fn tree(session: &mut Session<'_>, operand: &OsString) -> finefs_image::Result<Tree> {
    match session.operand(operand) {
        Operand::Host(path) if path.is_dir() => {
            return session.images.source_of(&Operand::Host(path.join(".")));
        }
        host @ Operand::Host(_) if session.is_in_shell() => {
            return session.images.source_of(&host);
        }
        _ => {}
    }
    let address = session.address(operand)?;
    session.images.open(&address, Access::Read)?;
    session.images.source_of(&Operand::Image(address))
}

/// Where it is, from the tops of the trees on.
fn shown(difference: &Difference) -> String {
    format!("/{}", difference.path.display())
}

fn line(difference: &Difference) -> String {
    let path = shown(difference);
    match &difference.change {
        Change::Removed => format!("- {path}"),
        Change::Added => format!("+ {path}"),
        Change::Changed(aspects) => {
            let aspects = aspects.iter().map(|aspect| match aspect.from == aspect.to {
                true => format!("{} {}", aspect.what, aspect.from),
                false => format!("{} {} -> {}", aspect.what, aspect.from, aspect.to),
            });
            let aspects: Vec<String> = aspects.collect();
            format!("M {path}: {}", aspects.join(", "))
        }
    }
}

fn record(difference: &Difference) -> Record<'_> {
    let (change, aspects) = match &difference.change {
        Change::Removed => ("removed", &[][..]),
        Change::Added => ("added", &[][..]),
        Change::Changed(aspects) => ("changed", aspects.as_slice()),
    };
    Record {
        path: shown(difference),
        change,
        aspects,
    }
}
