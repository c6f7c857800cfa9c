//! What chmod, chown and chgrp share: which files they change, and what they say of each.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use finefs::LastLink;
use finefs_image::walk::{Step, Walk};
use finefs_image::{Access, Attributes, Error, Result};

use super::session::{At, Session, print_line};
use crate::{CliResult, Failure};

/// The options that all three have.
#[derive(Args)]
pub(super) struct Changes {
    /// Of all that is in directories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Say what becomes of each file
    #[arg(short, long)]
    verbose: bool,
    /// Say it of those that change
    #[arg(short = 'c', long)]
    changes: bool,
    /// Say nothing of files that cannot be changed; the status tells
    #[arg(short = 'f', long, visible_alias = "quiet")]
    silent: bool,
    /// As this file of an image has it
    #[arg(long, value_name = "IMAGE:/PATH")]
    pub reference: Option<OsString>,
}

/// What became of a file.
pub(super) struct Outcome {
    pub is_changed: bool,
    /// What -v says of it.
    pub line: String,
}

/// A file's new state, by what it is; with how it is named.
type Edit<'e> = dyn Fn(&At, &Attributes, LastLink) -> Result<Outcome> + 'e;

impl Changes {
    /// What comes before the files, where no file is given by --reference, and the files. Says what
    /// is missing.
    pub fn split<'w>(
        &self,
        session: &mut Session,
        words: &'w [OsString],
        what: &str,
    ) -> Option<(&'w OsStr, &'w [OsString])> {
        match (&self.reference, words) {
            (Some(_), words) => Some((OsStr::new(""), words)),
            (None, [value, operands @ ..]) if !operands.is_empty() => Some((value, operands)),
            _ => {
                session.fail(format!("give {what} and files, as IMAGE:/PATH"));
                None
            }
        }
    }

    /// The file of --reference.
    pub fn reference(&self, session: &mut Session) -> Result<Option<Attributes>> {
        let Some(reference) = &self.reference else {
            return Ok(None);
        };
        let at = session.write(reference)?;
        let found = at.told(at.fs.metadata(at.path()))?;
        Ok(Some(Attributes::inside(&found, 0)))
    }

    /// Changes the files, and ends. `link`: what is changed where an operand is a symbolic link;
    /// `follows`: with -R, what is in the directory that it leads to.
    pub fn apply<'e>(
        &self,
        session: Session,
        operands: &[OsString],
        (link, follows): (LastLink, bool),
        edit: &dyn Fn(&At) -> Result<Box<Edit<'e>>>,
    ) -> CliResult<ExitCode> {
        let mut session = session;
        for operand in &session.expanded(operands, Access::Write) {
            // An image that cannot be opened is always said.
            let at = session.write(operand);
            let Some(at) = session.check(at) else {
                continue;
            };
            let Some(edit) = session.check(edit(&at)) else {
                continue;
            };
            match self.recursive {
                true => self.below(&mut session, &at, follows, &*edit),
                false => {
                    let found = match link {
                        LastLink::Follow => at.fs.metadata(at.path()),
                        LastLink::Keep => at.fs.symlink_metadata(at.path()),
                    };
                    let found = at.told(found);
                    let done = found.and_then(|found| {
                        self.one(&at, &Attributes::inside(&found, 0), link, &*edit)
                    });
                    self.check(&mut session, done);
                }
            }
        }
        session.end()
    }

    fn below(&self, session: &mut Session, at: &At, follows: bool, edit: &Edit<'_>) {
        let found = at.fs.symlink_metadata(at.path());
        let is_link = found.is_ok_and(|found| found.is_symlink());
        let mut start = at.clone();
        if follows && is_link {
            let found = at.told(at.fs.metadata(at.path()));
            let Some(found) = self.check(session, found) else {
                return;
            };
            if !found.is_dir() {
                let found = Attributes::inside(&found, 0);
                let done = self.one(at, &found, LastLink::Follow, edit);
                self.check(session, done);
                return;
            }
            let mut path = at.path().as_os_str().to_owned();
            path.push("/");
            start = at.with(path);
        }
        for step in Walk::new(&start.fs, &start.address) {
            let done = step.and_then(|step| match step {
                Step::Enter(found) => {
                    let at = start.with(found.path);
                    self.one(&at, &found.attributes, LastLink::Keep, edit)
                }
                Step::Leave(_) => Ok(()),
            });
            self.check(session, done);
        }
    }

    fn one(&self, at: &At, found: &Attributes, link: LastLink, edit: &Edit<'_>) -> Result<()> {
        let outcome = edit(at, found, link)?;
        match self.verbose || self.changes && outcome.is_changed {
            true => {
                let printed = print_line(outcome.line.as_bytes());
                printed.map_err(|Failure(line)| Error::new("", line))
            }
            false => Ok(()),
        }
    }

    fn check<T>(&self, session: &mut Session, result: Result<T>) -> Option<T> {
        match result {
            Err(_) if self.silent => {
                session.fail_silently();
                None
            }
            result => session.check(result),
        }
    }
}
