//! `finefs cp`

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use finefs_image::address::without_slashes;
use finefs_image::copy::{Existing, Links, Makes, Options, Preserve, Sparse, Task};
use finefs_image::tree::{Follow, SourceDir};
use finefs_image::{Error, Operand};

use super::copying::{self, Copying};
use super::destination::Destination;
use super::session::{Context, Session};
use super::{Where, through};
use crate::output::ask;
use crate::{CliResult, Failure};

/// Copy files into an image, out of it, or from image to image, as cp(1)
#[derive(Args)]
#[command(override_usage = "finefs cp [OPTIONS] SOURCE... DEST\n       \
                            finefs cp [OPTIONS] -t DIR SOURCE...")]
pub(crate) struct Cp {
    /// IMAGE:/PATH, a path of the host, or - for standard input or output
    #[arg(value_name = "SOURCE", required = true)]
    operands: Vec<OsString>,
    /// Directories with all that is in them, and special files as such
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Everything as it is: -dR --preserve=all
    #[arg(short, long)]
    archive: bool,
    /// Keep links as links: -P --preserve=links
    #[arg(short = 'd')]
    keeps_links: bool,
    /// Keep mode, ownership and timestamps
    #[arg(short = 'p')]
    preserves: bool,
    /// Keep these attributes
    #[arg(long, value_name = "LIST", value_delimiter = ',', num_args = 0..=1,
          require_equals = true, default_missing_value = "mode,ownership,timestamps")]
    preserve: Vec<Attribute>,
    /// Do not keep these
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        require_equals = true
    )]
    no_preserve: Vec<Attribute>,
    /// Leave files that are there
    #[arg(short, long, overrides_with = "interactive")]
    no_clobber: bool,
    /// Ask before a file that is there is replaced
    #[arg(short, long, overrides_with = "no_clobber")]
    interactive: bool,
    /// Replace files that are there, as without it; with -l and -s, by links
    #[arg(short, long)]
    force: bool,
    /// Replace files only by newer ones; or which: all, none, older
    #[arg(short, long, value_name = "WHICH", num_args = 0..=1, require_equals = true,
          default_missing_value = "older")]
    update: Option<Update>,
    /// Replace files that are there by new ones, also symbolic links
    #[arg(long)]
    remove_destination: bool,
    /// Sources without the slashes behind them
    #[arg(long)]
    strip_trailing_slashes: bool,
    /// Make hard links instead of copies, within an image
    #[arg(short, long, conflicts_with = "symbolic_link")]
    link: bool,
    /// Make symbolic links instead of copies, within an image
    #[arg(short, long)]
    symbolic_link: bool,
    /// Follow all symbolic links of the sources
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "named_links"])]
    dereference: bool,
    /// Follow none
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "named_links"])]
    no_dereference: bool,
    /// Follow those that are named
    #[arg(short = 'H', overrides_with_all = ["dereference", "no_dereference"])]
    named_links: bool,
    /// What becomes of holes: kept, made where blocks are zeros, or filled
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    sparse: When,
    /// Whether blocks are shared: ext has none that are, so auto and never are the same
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_missing_value = "always")]
    reflink: Option<When>,
    /// Stay in the file system, as without it
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// The directory to copy into
    #[arg(short, long, value_name = "DIR")]
    target_directory: Option<OsString>,
    /// DEST is the copy, not a directory for it
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    no_target_directory: bool,
    /// Say what is copied
    #[arg(short, long)]
    verbose: bool,
    /// Threads; without it one for each CPU, 8 at most
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
    #[command(flatten)]
    place: Where,
}

/// A word of --preserve.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Attribute {
    Mode,
    Ownership,
    Timestamps,
    Links,
    Xattr,
    Context,
    All,
}

/// A word of --update.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Update {
    All,
    None,
    Older,
}

/// A word of --sparse and --reflink.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    Auto,
    Always,
    Never,
}

impl Cp {
    pub(crate) fn run(mut self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs cp", &self.place);
        if self.reflink == Some(When::Always) {
            session.fail("--reflink=always: ext has no shared blocks; take --reflink=auto");
            return session.end();
        }
        let has_directory = self.target_directory.is_some();
        let operands = std::mem::take(&mut self.operands);
        let named = session.sources_and_destination(operands, self.target_directory.take());
        let Some((sources, last)) = named else {
            return session.end();
        };
        let to = session.operand(&last);
        let sources = match session.patterns(&sources, &to) {
            Ok(sources) => self.named(sources),
            Err(error) => {
                session.fail(error);
                return session.end();
            }
        };
        let is_image = |operand: &Operand| matches!(operand, Operand::Image(_));
        if !is_image(&to) && !sources.iter().any(is_image) {
            session.fail("no operand is in an image; write IMAGE:/PATH, or use cp");
            return session.end();
        }
        if to == Operand::Standard {
            return self.print(session, &sources);
        }
        if let Operand::Host(path) = &to
            && self.is_copied()
            && !self.remove_destination
            && through::is_in_proc(path)
        {
            return self.write_all_through(session, &sources, path);
        }
        let destination = match Destination::find(&mut session, &to, self.is_directory_wanted()) {
            Ok(destination) => destination,
            Err(error) => {
                session.fail(error);
                return session.end();
            }
        };
        let is_several = sources.len() > 1 || has_directory;
        if is_several && !destination.is_directory() {
            session.fail(Error::new(last.display().to_string(), "is no directory"));
            return session.end();
        }
        let options = self.options(is_image(&to));
        let mut tasks = Tasks::default();
        for source in &sources {
            let result = match source {
                Operand::Standard => destination.take_input(OsStr::new("-"), &options),
                source if let Some(place) = self.elsewhere(&to, &destination, source) => {
                    self.write_through(&mut session, source, &place)
                }
                source if self.is_stream(source) => destination.take_stream(source, &options),
                source => destination
                    .task(&mut session, source, &options)
                    .and_then(|task| tasks.add(task, &options)),
            };
            session.check(result);
        }
        let copying = Copying::new(options, self.verbose);
        copying.run(&mut session, tasks.all)?;
        copying::end(session, &copying)
    }

    /// The sources as they are to be taken.
    fn named(&self, sources: Vec<Operand>) -> Vec<Operand> {
        let stripped = |source| match source {
            Operand::Image(address) => {
                let path = without_slashes(&address.path).to_owned();
                Operand::Image(address.with_path(path))
            }
            Operand::Host(path) => Operand::Host(without_slashes(&path).to_owned()),
            Operand::Standard => Operand::Standard,
        };
        match self.strip_trailing_slashes {
            true => sources.into_iter().map(stripped).collect(),
            false => sources,
        }
    }

    /// Whether DEST may be a directory for the copy.
    fn is_directory_wanted(&self) -> bool {
        !self.no_target_directory
    }

    fn options(&self, is_into_image: bool) -> Options {
        let mut preserve = Preserve::default();
        let words =
            |list: &[Attribute], word| list.contains(&word) || list.contains(&Attribute::All);
        let kept = |word, by_p: bool| {
            let is_kept = self.archive
                || by_p && self.preserves
                || words(&self.preserve, word)
                || word == Attribute::Links && self.keeps_links;
            is_kept && !words(&self.no_preserve, word)
        };
        preserve.mode = kept(Attribute::Mode, true);
        preserve.ownership = kept(Attribute::Ownership, true);
        preserve.timestamps = kept(Attribute::Timestamps, true);
        preserve.links = kept(Attribute::Links, false);
        preserve.xattrs = kept(Attribute::Xattr, false);
        let is_recursive = self.recursive || self.archive;
        let keeps_links = self.archive || self.keeps_links || self.no_dereference;
        let links = match (self.dereference, self.named_links) {
            (true, _) => Links::Followed,
            (false, true) => Links::FollowedIfNamed,
            // As cp, which links to what links lead to.
            (false, false) if keeps_links || is_recursive && !self.link => Links::Kept,
            (false, false) => Links::Followed,
        };
        Options {
            is_recursive,
            preserve,
            links,
            sparse: match self.sparse {
                When::Auto => Sparse::Kept,
                When::Always => Sparse::Made,
                When::Never => Sparse::Filled,
            },
            existing: match (self.no_clobber, self.update) {
                (true, _) | (_, Some(Update::None)) => Existing::Kept,
                (_, Some(Update::Older)) => Existing::ReplacedIfOlder,
                _ => Existing::Replaced,
            },
            asks: self.interactive,
            makes: match (self.link, self.symbolic_link) {
                (true, _) => Makes::HardLinks,
                (_, true) => Makes::Symlinks,
                _ => Makes::Copies,
            },
            replaces_by_links: self.force || self.interactive || self.remove_destination,
            removes_existing: self.remove_destination,
            replaces_directories: false,
            writes_special: !self.remove_destination,
            has_new_modes: words(&self.no_preserve, Attribute::Mode),
            umask: copying::umask(is_into_image),
            jobs: self.jobs.map_or_else(copying::jobs, usize::from),
        }
    }

    /// A pipe of the host, as a shell's <(...) is, is read to its end unless it is copied as such.
    fn is_stream(&self, source: &Operand) -> bool {
        let Operand::Host(path) = source else {
            return false;
        };
        let is_special = |path: &Path| {
            let found = std::fs::metadata(path);
            found.is_ok_and(|found| !found.is_file() && !found.is_dir())
        };
        !self.recursive && !self.archive && is_special(path)
    }

    /// To standard output.
    fn print(&self, mut session: Session, sources: &[Operand]) -> CliResult<ExitCode> {
        let mut output = std::io::stdout().lock();
        for source in sources {
            let found = session.images.source_of(source);
            let printed =
                found.and_then(|(dir, name)| print(&*dir, &name, &mut output, "standard output"));
            // Its reader may go at any time, and knows that it is not whole.
            if printed
                .as_ref()
                .is_err_and(|error| error.errno() == Some(libc::EPIPE))
            {
                session.fail_silently();
                break;
            }
            session.check(printed);
        }
        session.end()
    }

    /// True where copies are made and no links.
    fn is_copied(&self) -> bool {
        !self.link && !self.symbolic_link
    }

    /// Where in a directory of the host a file would be written through a symbolic link, to what
    /// is no regular file.
    fn elsewhere(
        &self,
        to: &Operand,
        destination: &Destination,
        source: &Operand,
    ) -> Option<PathBuf> {
        let Operand::Host(directory) = to else {
            return None;
        };
        let named = match source {
            Operand::Image(address) => &address.path,
            Operand::Host(path) => path,
            Operand::Standard => return None,
        };
        let place = directory.join(named.file_name()?);
        let is_written = self.is_copied() && !self.recursive && !self.archive;
        let is_written = is_written && destination.is_directory() && !self.remove_destination;
        (is_written && through::leads_elsewhere(&place)).then_some(place)
    }

    /// Writes the source of a copy to what is there.
    fn write_all_through(
        &self,
        mut session: Session,
        sources: &[Operand],
        place: &Path,
    ) -> CliResult<ExitCode> {
        match sources {
            [source] => {
                let written = self.write_through(&mut session, source, place);
                session.check(written);
            }
            _ => session.fail(Error::new(place.display().to_string(), "is no directory")),
        }
        session.end()
    }

    /// Writes a file to what is there, and keeps what that is.
    fn write_through(
        &self,
        session: &mut Session,
        source: &Operand,
        place: &Path,
    ) -> finefs_image::Result<()> {
        let shown = place.display().to_string();
        let stays = self.no_clobber || self.update == Some(Update::None);
        if stays || self.interactive && !ask(&format!("overwrite '{shown}'?")) {
            return Ok(());
        }
        let (dir, name) = session.images.source_of(source)?;
        print(&*dir, &name, &mut *through::open(place)?, &shown)
    }
}

/// Writes a file to an output that messages call `shown`.
fn print(
    dir: &dyn SourceDir,
    name: &OsStr,
    output: &mut dyn Write,
    shown: &str,
) -> finefs_image::Result<()> {
    let found = dir.attributes(name, Follow::Yes)?;
    if found.is_directory() {
        return Err(Error::new(dir.shown(name), "is a directory"));
    }
    let file = dir.open_file(name, Follow::Yes)?;
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let count = file.read_at(&mut buffer, at)?;
        if count == 0 {
            break;
        }
        at += count as u64;
        let written = output.write_all(&buffer[..count]);
        written.map_err(|error| Error::host(shown, error))?;
    }
    let flushed = output.flush();
    flushed.map_err(|error| Error::host(shown, error))
}

/// What is to be copied, to another place each.
#[derive(Default)]
struct Tasks {
    all: Vec<Task>,
    /// The names that files get, and which these are.
    names: HashMap<OsString, String>,
}

impl Tasks {
    /// Of files with one name the first has it, if it is there.
    fn add(&mut self, task: Task, options: &Options) -> finefs_image::Result<()> {
        let follow = match options.links {
            Links::Kept => Follow::No,
            Links::FollowedIfNamed | Links::Followed => Follow::Yes,
        };
        let found = task.source.attributes(&task.name, follow);
        if found.is_ok_and(|found| !found.is_directory()) {
            let from = task.source.shown(&task.name);
            match self.names.get(&task.to) {
                Some(first) if *first == from || options.existing == Existing::Kept => {
                    return Ok(());
                }
                Some(_) => return Err(copying::just_made(&from, &task.sink.shown(&task.to))),
                None => self.names.insert(task.to.clone(), from),
            };
        }
        self.all.push(task);
        Ok(())
    }
}

impl From<Failure> for Error {
    fn from(Failure(line): Failure) -> Error {
        Error::new("", line)
    }
}
