//! `finefs mkdir`, `finefs ln`, `finefs touch` and `finefs truncate`

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::{ArgAction, Args};
use finefs::{FileTimes, LastLink, OpenOptions, Permissions};
use finefs_image::{Address, Operand, Time};

use super::mode::Mode;
use super::session::{At, Context, Session};
use super::{Where, date};
use crate::output::print;
use crate::size::Size;
use crate::{CliResult, Failure};

/// Make directories in an image, as mkdir(1)
#[derive(Args)]
pub(crate) struct Mkdir {
    /// The directories
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    /// Those above too; what is there is no error
    #[arg(short, long)]
    parents: bool,
    /// Permissions, as chmod takes them; without it 755
    #[arg(short, long, value_name = "MODE")]
    mode: Option<Mode>,
    /// Say what is made
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    place: Where,
}

/// Make links in an image, as ln(1)
#[derive(Args)]
#[command(
    override_usage = "finefs ln [OPTIONS] IMAGE:/FILE... IMAGE:/LINK\n       \
                            finefs ln -s [OPTIONS] TARGET... IMAGE:/LINK"
)]
pub(crate) struct Ln {
    /// What is linked to, and the link or the directory for it
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    operands: Vec<OsString>,
    /// Symbolic links, whose targets are any text
    #[arg(short, long)]
    symbolic: bool,
    /// Replace what is there
    #[arg(short, long)]
    force: bool,
    /// The last operand is the link, not a directory for it
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// The same if it is a symbolic link to a directory
    #[arg(short, long)]
    no_dereference: bool,
    /// Say what is made
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    place: Where,
}

/// Make files in an image or set their times, as touch(1)
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Touch {
    /// The files
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    /// The time of the last read only
    #[arg(short)]
    access: bool,
    /// The time of the last change only
    #[arg(short)]
    modification: bool,
    /// Make no files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// This time: @SECONDS or YYYY-MM-DD hh:mm:ss
    #[arg(short, long, value_name = "TIME", value_parser = date::parse, allow_hyphen_values = true)]
    date: Option<Time>,
    /// This time: [[CC]YY]MMDDhhmm[.ss]
    #[arg(short = 't', value_name = "STAMP", value_parser = date::stamp, conflicts_with = "date")]
    stamp: Option<Time>,
    /// The times of this file of the image
    #[arg(short, long, value_name = "IMAGE:/PATH", conflicts_with_all = ["date", "stamp"])]
    reference: Option<OsString>,
    /// Of symbolic links, not of what they lead to
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    place: Where,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Set the length of files in an image, as truncate(1)
#[derive(Args)]
pub(crate) struct Truncate {
    /// The files
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    /// Bytes, or with k, m, g; +SIZE and -SIZE change the length, <SIZE and >SIZE limit it
    #[arg(short, long, allow_hyphen_values = true)]
    size: Length,
    /// Make no files
    #[arg(short = 'c', long)]
    no_create: bool,
    #[command(flatten)]
    place: Where,
}

impl Mkdir {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let session = Session::new(context, "finefs mkdir", &self.place);
        session.edit_each(&self.operands, |_, at| self.make(at))
    }

    fn make(&self, at: &At) -> finefs_image::Result<()> {
        if self.parents {
            if at.fs.metadata(at.path()).is_ok_and(|found| found.is_dir()) {
                return Ok(());
            }
            if let Some(parent) = at.path().parent() {
                let parent = at.with(parent);
                parent.told(parent.fs.create_dir_all(parent.path()))?;
            }
        }
        at.told(at.fs.create_dir(at.path()))?;
        if let Some(mode) = &self.mode {
            let mode = Permissions::from_mode(mode.of(0o777, true));
            at.told(at.fs.set_permissions(at.path(), mode))?;
        }
        match self.verbose {
            true => tell(at, &format!("created directory '{}'\n", at.address)),
            false => Ok(()),
        }
    }
}

fn tell(at: &At, line: &str) -> finefs_image::Result<()> {
    print(line).map_err(|Failure(reason)| at.refused(&reason))
}

/// Where something called `name` goes: into a directory, or to this place.
pub(super) fn place_for(at: &At, name: &OsStr, is_directory_allowed: bool) -> At {
    let leads_to_directory = at.fs.metadata(at.path()).is_ok_and(|found| found.is_dir());
    match is_directory_allowed && leads_to_directory {
        true => at.join(name),
        false => at.clone(),
    }
}

impl Ln {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs ln", &self.place);
        let Some((last, targets)) = self.operands.split_last() else {
            return session.end();
        };
        let last = session.write(last);
        let Some(last) = session.check(last) else {
            return session.end();
        };
        let is_kept_link = self.no_dereference
            && last
                .fs
                .symlink_metadata(last.path())
                .is_ok_and(|found| found.is_symlink());
        let may_be_directory = !self.no_target_directory && !is_kept_link;
        let is_directory = last
            .fs
            .metadata(last.path())
            .is_ok_and(|found| found.is_dir());
        if targets.len() > 1 && !(may_be_directory && is_directory) {
            session.fail(last.refused("is no directory"));
            return session.end();
        }
        for target in targets {
            let done = self.link(&session, target, &last, may_be_directory);
            session.check(done);
        }
        session.end()
    }

    fn link(
        &self,
        session: &Session<'_>,
        target: &OsStr,
        last: &At,
        may_be_directory: bool,
    ) -> finefs_image::Result<()> {
        let original = match self.symbolic {
            true => Path::new(target).to_owned(),
            false => self.original(session, target, last)?,
        };
        let name = original.file_name().unwrap_or(OsStr::new(".")).to_owned();
        let link = place_for(last, &name, may_be_directory);
        if self.force
            && link
                .fs
                .symlink_metadata(link.path())
                .is_ok_and(|found| !found.is_dir())
        {
            self.check_other(&original, &link)?;
            link.told(link.fs.remove_file(link.path()))?;
        }
        link.told(match self.symbolic {
            true => link.fs.symlink(&original, link.path()),
            false => link.fs.hard_link(&original, link.path()),
        })?;
        let arrow = if self.symbolic { "->" } else { "=>" };
        match self.verbose {
            true => tell(
                &link,
                &format!("'{}' {arrow} '{}'\n", link.address, original.display()),
            ),
            false => Ok(()),
        }
    }

    /// What a hard link leads to: a file of the same image.
    fn original(
        &self,
        session: &Session<'_>,
        target: &OsStr,
        last: &At,
    ) -> finefs_image::Result<std::path::PathBuf> {
        match session.operand(target) {
            Operand::Image(Address { image, path }) if image == last.address.image => Ok(path),
            Operand::Image(address) => Err(last
                .with(address.path)
                .refused("is in another image; a hard link leads to a file of its own")),
            _ => Err(finefs_image::Error::new(
                target.display().to_string(),
                "names no file in an image; write IMAGE:/PATH, or -s for a symbolic link",
            )),
        }
    }

    /// To replace the file that is linked to would lose it.
    fn check_other(&self, original: &Path, link: &At) -> finefs_image::Result<()> {
        let ino = |path: &Path| link.fs.symlink_metadata(path).map(|found| found.ino()).ok();
        let is_same =
            !self.symbolic && ino(original).is_some_and(|own| Some(own) == ino(link.path()));
        match is_same {
            true => Err(link.refused("is the same file")),
            false => Ok(()),
        }
    }
}

impl Touch {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs touch", &self.place);
        let now = super::text::now();
        let fixed = self.date.or(self.stamp).unwrap_or(now);
        let mut times = (fixed, fixed);
        if let Some(reference) = &self.reference {
            let found = session
                .write(reference)
                .and_then(|at| at.told(at.fs.metadata(at.path())));
            match session.check(found) {
                Some(found) => times = (found.accessed().into(), found.modified().into()),
                None => return session.end(),
            }
        }
        session.edit_each(&self.operands, |_, at| self.touch(at, times))
    }

    fn touch(&self, at: &At, (accessed, modified): (Time, Time)) -> finefs_image::Result<()> {
        let link = match self.no_dereference {
            true => LastLink::Keep,
            false => LastLink::Follow,
        };
        let mut times = FileTimes::new();
        if self.access || !self.modification {
            times = times.accessed(accessed.into());
        }
        if self.modification || !self.access {
            times = times.modified(modified.into());
        }
        let set = || at.told(at.fs.set_times(at.path(), times, link));
        match set() {
            Err(error) if error.is_missing() && self.no_create => Ok(()),
            Err(error) if error.is_missing() && !self.no_dereference => {
                let mut options = OpenOptions::new();
                at.told(options.write(true).create(true).open(&at.fs, at.path()))?;
                set()
            }
            done => done,
        }
    }
}

/// A length, or how to change one.
#[derive(Clone, Copy)]
enum Length {
    To(u64),
    By(i64),
    AtMost(u64),
    AtLeast(u64),
}

impl std::str::FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Length, String> {
        let bytes = |text: &str| match text.parse::<Size>()? {
            Size::Bytes(bytes) if i64::try_from(bytes).is_ok() => Ok(bytes),
            _ => Err("give a number of bytes".to_owned()),
        };
        match text.split_at_checked(1) {
            Some(("+", rest)) => Ok(Length::By(bytes(rest)? as i64)),
            Some(("-", rest)) => Ok(Length::By(-(bytes(rest)? as i64))),
            Some(("<", rest)) => Ok(Length::AtMost(bytes(rest)?)),
            Some((">", rest)) => Ok(Length::AtLeast(bytes(rest)?)),
            _ => bytes(text).map(Length::To),
        }
    }
}

impl Truncate {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let session = Session::new(context, "finefs truncate", &self.place);
        session.edit_each(&self.operands, |_, at| {
            let mut options = OpenOptions::new();
            let opened = options
                .write(true)
                .create(!self.no_create)
                .open(&at.fs, at.path());
            let file = match opened {
                Err(error) if self.no_create && error.errno() == libc::ENOENT => return Ok(()),
                opened => at.told(opened)?,
            };
            let length = at.told(file.metadata())?.len();
            let length = match self.size {
                Length::To(bytes) => bytes,
                Length::By(change) => length.saturating_add_signed(change),
                Length::AtMost(limit) => length.min(limit),
                Length::AtLeast(limit) => length.max(limit),
            };
            at.told(file.set_len(length))
        })
    }
}
