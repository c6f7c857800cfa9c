//! `finefs rm` and `finefs rmdir`

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use finefs_image::address::without_slashes;
use finefs_image::walk::{Found, Step, Walk};
use finefs_image::{Access, Attributes, Error, Result};

use super::session::{At, Context, Session, print_line};
use super::{Where, text};
use crate::output::ask;
use crate::{CliResult, Failure, progress};

/// Remove files from an image, as rm(1)
#[derive(Args)]
pub(crate) struct Rm {
    /// The files
    #[arg(value_name = "IMAGE:/PATH", required_unless_present = "force")]
    operands: Vec<OsString>,
    /// Directories with all that is in them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// What is not there is no error; ask nothing
    #[arg(short, long, overrides_with_all = ["asks", "asks_once", "interactive"])]
    force: bool,
    /// Ask before each
    #[arg(short = 'i', overrides_with_all = ["force", "asks_once", "interactive"])]
    asks: bool,
    /// Ask once, where there are more than three or -r is given
    #[arg(short = 'I', overrides_with_all = ["force", "asks", "interactive"])]
    asks_once: bool,
    /// The same by a word: never, once or always
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_missing_value = "always")]
    interactive: Option<When>,
    /// Empty directories
    #[arg(short, long)]
    dir: bool,
    /// Say what is removed
    #[arg(short, long)]
    verbose: bool,
    /// Stay in the file system, as without it
    #[arg(long)]
    one_file_system: bool,
    /// Never remove the root, as without it
    #[arg(long)]
    preserve_root: bool,
    #[command(flatten)]
    place: Where,
}

/// A word of --interactive.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    #[value(alias = "no", alias = "none")]
    Never,
    Once,
    #[value(alias = "yes")]
    Always,
}

/// Remove empty directories from an image, as rmdir(1)
#[derive(Args)]
pub(crate) struct Rmdir {
    /// The directories
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    /// Those above too, as far as they are empty then
    #[arg(short, long)]
    parents: bool,
    /// A directory that is not empty is no error
    #[arg(long)]
    ignore_fail_on_non_empty: bool,
    /// Say what is removed
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    place: Where,
}

impl Rm {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs rm", &self.place);
        let operands = session.expanded(&self.operands, Access::Write);
        if !self.has_leave(operands.len()) {
            return session.end();
        }
        // In a shell `.` names the directory by its whole path.
        let (dots, operands): (Vec<_>, Vec<_>) =
            operands.into_iter().partition(|word| names_itself(word));
        for word in dots {
            session.fail(Error::new(word.display().to_string(), KEPT));
        }
        session.edit_named(&operands, |session, at| match self.remove(session, at) {
            Err(error) if self.force && error.is_missing() => Ok(()),
            done => done,
        })
    }

    fn asks_each(&self) -> bool {
        self.asks || self.interactive == Some(When::Always)
    }

    /// The one question of -I, about so many files.
    fn has_leave(&self, count: usize) -> bool {
        let is_much = count > 3 || self.recursive;
        if !(self.asks_once || self.interactive == Some(When::Once)) || !is_much || count == 0 {
            return true;
        }
        let arguments = if count == 1 { "argument" } else { "arguments" };
        let how = if self.recursive { " recursively" } else { "" };
        ask(&format!("remove {count} {arguments}{how}?"))
    }

    fn remove(&self, session: &mut Session, at: &At) -> Result<()> {
        let (_, name) = finefs_image::address::split_path(at.path());
        if name == "." {
            return Err(at.refused(KEPT));
        }
        let found = at.told(at.fs.symlink_metadata(at.path()))?;
        let found = Attributes::inside(&found, 0);
        match (found.is_directory(), self.recursive, self.dir) {
            (true, true, _) if self.verbose || self.asks_each() => {
                self.remove_below(session, at);
                Ok(())
            }
            (true, true, _) => {
                let message = format!("removing {}", at.address);
                if progress::during(&message, || at.fs.remove_dir_all(at.path())).is_err() {
                    // What stands in the way is named, and the rest is removed.
                    self.remove_below(session, at);
                }
                Ok(())
            }
            (true, false, false) => Err(at.refused("is a directory (-r removes it)")),
            _ => self.remove_one(at, &found).map(|_| ()),
        }
    }

    /// Removes a directory file by file, each with its question and its line.
    fn remove_below(&self, session: &mut Session, at: &At) {
        // Directories that stay, since something in them does.
        let mut kept: HashSet<PathBuf> = HashSet::new();
        let mut walk = Walk::new(&at.fs, &at.address);
        while let Some(step) = walk.next() {
            let Some(step) = session.check(step) else {
                continue;
            };
            let (found, is_entry) = match step {
                Step::Enter(found) => (found, true),
                Step::Leave(found) => (found, false),
            };
            let Found {
                path, attributes, ..
            } = found;
            let here = at.with(path.clone());
            if is_entry && attributes.is_directory() {
                let is_full = at
                    .fs
                    .read_dir(&path)
                    .is_ok_and(|mut all| all.next().is_some());
                let question = format!("descend into directory '{}'?", here.address);
                if self.asks_each() && is_full && !ask(&question) {
                    walk.leave_out();
                    kept.insert(path);
                }
                continue;
            }
            let is_kept = kept.remove(&path) || {
                let removed = self.remove_one(&here, &attributes);
                session.check(removed) != Some(true)
            };
            if is_kept {
                kept.extend(path.parent().map(Path::to_owned));
            }
        }
    }

    /// Removes a file or an empty directory; false if somebody says no.
    fn remove_one(&self, at: &At, found: &Attributes) -> Result<bool> {
        let question = format!("remove {} '{}'?", text::kind_name(found), at.address);
        if self.asks_each() && !ask(&question) {
            return Ok(false);
        }
        at.told(match found.is_directory() {
            true => at.fs.remove_dir(at.path()),
            false => at.fs.remove_file(at.path()),
        })?;
        if self.verbose {
            let what = if found.is_directory() {
                "directory "
            } else {
                ""
            };
            say(&format!("removed {what}'{}'", at.address))?;
        }
        Ok(true)
    }
}

impl Rmdir {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let session = Session::new(context, "finefs rmdir", &self.place);
        session.edit_each(&self.operands, |_, at| self.remove(at))
    }

    fn remove(&self, at: &At) -> Result<()> {
        let mut at = at.clone();
        loop {
            let removed = at.told(at.fs.remove_dir(at.path()));
            match removed {
                Err(error)
                    if self.ignore_fail_on_non_empty && error.errno() == Some(libc::ENOTEMPTY) =>
                {
                    return Ok(());
                }
                removed => removed?,
            }
            if self.verbose {
                say(&format!("removed directory '{}'", at.address))?;
            }
            match at.path().parent() {
                Some(parent) if self.parents && parent.parent().is_some() => {
                    at = at.with(parent);
                }
                _ => return Ok(()),
            }
        }
    }
}

/// What rm refuses.
const KEPT: &str = "the root, . and .. are not removed";

/// True for a word whose last name is `.` or `..`.
fn names_itself(word: &OsStr) -> bool {
    let word = without_slashes(Path::new(word)).as_os_str();
    let mut names = word.as_encoded_bytes().rsplit(|byte| *byte == b'/');
    names
        .next()
        .is_some_and(|last| matches!(last, b"." | b".."))
}

fn say(line: &str) -> Result<()> {
    print_line(line.as_bytes()).map_err(|Failure(line)| Error::new("", line))
}
