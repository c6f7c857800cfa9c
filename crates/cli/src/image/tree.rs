//! `finefs tree`

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use finefs::FileKind;
use finefs_image::{Attributes, walk};

use super::Where;
use super::session::{At, Context, Printer, Session};
use super::text::for_terminal;
use crate::CliResult;

/// Show directories of an image as a tree, as tree(1)
#[derive(Args)]
pub(crate) struct Tree {
    /// IMAGE:/PATH; IMAGE is its root
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    /// Names that begin with a dot too
    #[arg(short)]
    all: bool,
    /// Directories only
    #[arg(short)]
    directories: bool,
    /// Not deeper than this
    #[arg(short = 'L', value_name = "LEVEL", value_parser = clap::value_parser!(u32).range(1..))]
    level: Option<u32>,
    #[command(flatten)]
    place: Where,
}

/// A directory that is being shown.
struct Level {
    at: At,
    /// Reversed.
    names: Vec<OsString>,
    /// What stands before its entries.
    indent: String,
}

impl Tree {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs tree", &self.place);
        let mut printer = Printer::new();
        let (mut directories, mut files) = (0_u64, 0_u64);
        for operand in &session.operands(&self.operands) {
            let Some(at) = ({
                let at = session.read(operand);
                session.check(at)
            }) else {
                continue;
            };
            let name = at.address.to_os_string();
            printer.put(&[&for_terminal(name.as_encoded_bytes()), &b"\n"[..]].concat())?;
            let mut levels = Vec::new();
            self.open(&mut session, at, String::new(), &mut levels);
            while let Some(level) = levels.last_mut() {
                let Some(name) = level.names.pop().filter(|_| !printer.is_gone()) else {
                    levels.pop();
                    continue;
                };
                let at = level.at.join(&name);
                let is_last = level.names.is_empty();
                let (branch, inner) = match is_last {
                    true => ("└── ", "    "),
                    false => ("├── ", "│   "),
                };
                let indent = format!("{}{inner}", level.indent);
                let mut line = format!("{}{branch}", level.indent).into_bytes();
                line.extend(for_terminal(name.as_encoded_bytes()));
                let found = at.told(at.fs.symlink_metadata(at.path()));
                let kind = session.check(found).map(|found| found.file_type().kind());
                if kind == Some(FileKind::Symlink)
                    && let Ok(target) = at.fs.read_link(at.path())
                {
                    line.extend(b" -> ");
                    line.extend(for_terminal(target.as_os_str().as_encoded_bytes()));
                }
                line.push(b'\n');
                printer.put(&line)?;
                match kind {
                    Some(FileKind::Directory) => {
                        directories += 1;
                        self.open(&mut session, at, indent, &mut levels);
                    }
                    _ => files += 1,
                }
            }
        }
        let many = |count: u64, one: &str, more: &str| match count {
            1 => format!("1 {one}"),
            count => format!("{count} {more}"),
        };
        let mut summary = format!("\n{}", many(directories, "directory", "directories"));
        if !self.directories {
            summary += &format!(", {}", many(files, "file", "files"));
        }
        printer.put((summary + "\n").as_bytes())?;
        printer.flush()?;
        session.end()
    }

    fn open(&self, session: &mut Session, at: At, indent: String, levels: &mut Vec<Level>) {
        if self
            .level
            .is_some_and(|limit| levels.len() >= limit as usize)
        {
            return;
        }
        let names = at.told(walk::names(&at.fs, at.path()));
        let mut names = session.check(names).unwrap_or_default();
        names.retain(|name| self.all || !name.as_encoded_bytes().starts_with(b"."));
        if self.directories {
            names.retain(|name| {
                let found = at.fs.symlink_metadata(at.path().join(name));
                found.is_ok_and(|found| Attributes::inside(&found, 0).is_directory())
            });
        }
        names.reverse();
        levels.push(Level { at, names, indent });
    }
}
