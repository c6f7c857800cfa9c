//! `finefs mkdir`, `finefs touch` and `finefs truncate`

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{ArgAction, Args, ValueEnum};
use finefs::{FileTimes, LastLink, OpenOptions, Permissions};
use finefs_image::Time;

use super::mode::Mode;
use super::session::{At, Context, Session, print_line};
use super::{Where, date};
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
    /// The same by a word: access, atime or use; modify or mtime
    #[arg(long, value_name = "WORD")]
    time: Option<Which>,
    /// Make no files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// This time: @SECONDS, YYYY-MM-DD hh:mm:ss, or as '2 days ago'; with -r, from its times on
    #[arg(short, long, value_name = "TIME", value_parser = date::check,
          allow_hyphen_values = true)]
    date: Option<String>,
    /// This time: [[CC]YY]MMDDhhmm[.ss]
    #[arg(short = 't', value_name = "STAMP", value_parser = date::stamp, conflicts_with = "date")]
    stamp: Option<Time>,
    /// The times of this file of the image
    #[arg(short, long, value_name = "IMAGE:/PATH", conflicts_with = "stamp")]
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

/// A word of --time.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    #[value(alias = "atime", alias = "use")]
    Access,
    #[value(alias = "mtime")]
    Modify,
}

/// Set the length of files in an image, as truncate(1)
#[derive(Args)]
pub(crate) struct Truncate {
    /// The files
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    /// Bytes, or with k, m, g; +SIZE and -SIZE change the length, <SIZE and >SIZE limit it, /SIZE
    /// and %SIZE round it down and up
    #[arg(
        short,
        long,
        allow_hyphen_values = true,
        required_unless_present = "reference"
    )]
    size: Option<Length>,
    /// As long as this file of an image; +SIZE and its like count from there
    #[arg(short, long, value_name = "IMAGE:/PATH")]
    reference: Option<OsString>,
    /// Make no files
    #[arg(short = 'c', long)]
    no_create: bool,
    #[command(flatten)]
    place: Where,
}

impl Mkdir {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let session = Session::new(context, "finefs mkdir", &self.place);
        session.edit_named(&self.operands, |_, at| self.make(at))
    }

    fn make(&self, at: &At) -> finefs_image::Result<()> {
        if self.parents {
            if at.fs.metadata(at.path()).is_ok_and(|found| found.is_dir()) {
                return Ok(());
            }
            if let Some(parent) = at.path().parent() {
                self.make_above(&at.with(parent))?;
            }
        }
        at.told(at.fs.create_dir(at.path()))?;
        if let Some(mode) = &self.mode {
            // The directory keeps the set-group-id bit that it has from the one above.
            let made = at.told(at.fs.metadata(at.path()))?;
            let inherited = made.permissions().mode() & 0o2000;
            let mode = Permissions::from_mode(mode.of_new_directory(inherited));
            at.told(at.fs.set_permissions(at.path(), mode))?;
        }
        self.say_made(at)
    }

    /// A directory that is missing above one, and those above it.
    fn make_above(&self, at: &At) -> finefs_image::Result<()> {
        let mut missing = Vec::new();
        for path in at.path().ancestors() {
            if at.fs.metadata(path).is_ok_and(|found| found.is_dir()) {
                break;
            }
            missing.push(at.with(path));
        }
        for at in missing.iter().rev() {
            at.told(at.fs.create_dir_all(at.path()))?;
            self.say_made(at)?;
        }
        Ok(())
    }

    fn say_made(&self, at: &At) -> finefs_image::Result<()> {
        match self.verbose {
            true => tell(at, &format!("created directory '{}'", at.address)),
            false => Ok(()),
        }
    }
}

pub(super) fn tell(at: &At, line: &str) -> finefs_image::Result<()> {
    print_line(line.as_bytes()).map_err(|Failure(reason)| at.refused(&reason))
}

/// Where something called `name` goes: into a directory, or to this place.
pub(super) fn place_for(at: &At, name: &OsStr, is_directory_allowed: bool) -> At {
    let leads_to_directory = at.fs.metadata(at.path()).is_ok_and(|found| found.is_dir());
    match is_directory_allowed && leads_to_directory {
        true => at.join(name),
        false => at.clone(),
    }
}

impl Touch {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs touch", &self.place);
        let now = super::text::now();
        let mut times = self.stamp.map_or((now, now), |stamp| (stamp, stamp));
        let sets_now = self.stamp.is_none() && self.reference.is_none() && self.date.is_none();
        if let Some(reference) = &self.reference {
            let link = self.no_dereference;
            let found = session.write(reference).and_then(|at| {
                at.told(match link {
                    true => at.fs.symlink_metadata(at.path()),
                    false => at.fs.metadata(at.path()),
                })
            });
            match session.check(found) {
                Some(found) => times = (found.accessed().into(), found.modified().into()),
                None => return session.end(),
            }
        }
        if let Some(date) = &self.date {
            let from = |time| date::from(date, time).map_err(Failure::new);
            times = (from(times.0)?, from(times.1)?);
        }
        session.edit_named(&self.operands, |_, at| {
            self.touch(at, (!sets_now).then_some(times), now)
        })
    }

    /// Sets the times that are given, else those of now.
    fn touch(&self, at: &At, given: Option<(Time, Time)>, now: Time) -> finefs_image::Result<()> {
        let (accessed, modified) = given.unwrap_or((now, now));
        let link = match self.no_dereference {
            true => LastLink::Keep,
            false => LastLink::Follow,
        };
        let mut times = FileTimes::new();
        let is_access = self.access || self.time == Some(Which::Access);
        let is_modification = self.modification || self.time == Some(Which::Modify);
        if is_access || !is_modification {
            times = times.accessed(accessed.into());
        }
        if is_modification || !is_access {
            times = times.modified(modified.into());
        }
        if given.is_none() && is_access == is_modification {
            // Of an append-only file too.
            times = FileTimes::now();
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
    Down(u64),
    Up(u64),
}

impl std::str::FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Length, String> {
        let bytes = |text: &str| match text.parse::<Size>()? {
            Size::Bytes(bytes) if i64::try_from(bytes).is_ok() => Ok(bytes),
            _ => Err("give a number of bytes".to_owned()),
        };
        let some = |bytes: u64| match bytes {
            0 => Err("nothing is a multiple of 0".to_owned()),
            bytes => Ok(bytes),
        };
        match text.split_at_checked(1) {
            Some(("+", rest)) => Ok(Length::By(bytes(rest)? as i64)),
            Some(("-", rest)) => Ok(Length::By(-(bytes(rest)? as i64))),
            Some(("<", rest)) => Ok(Length::AtMost(bytes(rest)?)),
            Some((">", rest)) => Ok(Length::AtLeast(bytes(rest)?)),
            Some(("/", rest)) => some(bytes(rest)?).map(Length::Down),
            Some(("%", rest)) => some(bytes(rest)?).map(Length::Up),
            _ => bytes(text).map(Length::To),
        }
    }
}

impl Truncate {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs truncate", &self.place);
        let mut base = None;
        if let Some(reference) = &self.reference {
            let found = session
                .write(reference)
                .and_then(|at| at.told(at.fs.metadata(at.path())));
            match session.check(found) {
                Some(found) => base = Some(found.len()),
                None => return session.end(),
            }
        }
        session.edit_named(&self.operands, |_, at| {
            let mut options = OpenOptions::new();
            let opened = options
                .write(true)
                .create(!self.no_create)
                .open(&at.fs, at.path());
            let file = match opened {
                Err(error) if self.no_create && error.errno() == libc::ENOENT => return Ok(()),
                opened => at.told(opened)?,
            };
            let length = match base {
                Some(base) => base,
                None => at.told(file.metadata())?.len(),
            };
            let length = self.size.map_or(length, |size| size.of(length));
            at.told(file.set_len(length))
        })
    }
}

impl Length {
    fn of(self, length: u64) -> u64 {
        match self {
            Length::To(bytes) => bytes,
            Length::By(change) => length.saturating_add_signed(change),
            Length::AtMost(limit) => length.min(limit),
            Length::AtLeast(limit) => length.max(limit),
            Length::Down(unit) => length / unit * unit,
            Length::Up(unit) => length.checked_next_multiple_of(unit).unwrap_or(length),
        }
    }
}
