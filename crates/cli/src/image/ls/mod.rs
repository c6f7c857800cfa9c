//! `finefs ls`: which files are listed, and in which order; `look` has how.

mod look;

use std::cmp::Reverse;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{ArgAction, Args, ValueEnum};
use finefs::FileKind;
use finefs_image::{Attributes, walk};

use self::look::Look;
use super::Where;
use super::record::Record;
use super::session::{At, Context, Printer, Session, print_json};
use super::text::for_terminal;
use crate::CliResult;
use finefs_image::pattern::matches;

/// List files of an image, as ls(1)
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Ls {
    /// IMAGE:/PATH; IMAGE is its root
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    /// Names that begin with a dot too
    #[arg(short, long)]
    all: bool,
    /// The same without . and ..
    #[arg(short = 'A', long)]
    almost_all: bool,
    /// Not names that end with ~
    #[arg(short = 'B', long)]
    ignore_backups: bool,
    /// Not names like this
    #[arg(short = 'I', long, value_name = "PATTERN")]
    ignore: Vec<OsString>,
    /// Directories in directories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Directories themselves, not what is in them
    #[arg(short, long)]
    directory: bool,
    /// Not names like this, unless -a or -A is given
    #[arg(long, value_name = "PATTERN")]
    hide: Vec<OsString>,
    /// What symbolic links lead to
    #[arg(short = 'L', long)]
    dereference: bool,
    /// What operands that are symbolic links lead to
    #[arg(short = 'H', long)]
    dereference_command_line: bool,
    #[command(flatten)]
    order: Order,
    #[command(flatten)]
    look: Look,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Which files come first.
#[derive(Args)]
struct Order {
    /// The newest first
    #[arg(short = 't', overrides_with_all = SORTS)]
    by_time: bool,
    /// The largest first
    #[arg(short = 'S', overrides_with_all = SORTS)]
    by_size: bool,
    /// By what is behind the last dot
    #[arg(short = 'X', overrides_with_all = SORTS)]
    by_extension: bool,
    /// Numbers in names by what they count
    #[arg(short = 'v', overrides_with_all = SORTS)]
    by_version: bool,
    /// In the directory's order
    #[arg(short = 'U', overrides_with_all = SORTS)]
    is_unsorted: bool,
    /// The same, with all names
    #[arg(short = 'f')]
    is_raw: bool,
    /// The same by a word: name, none, time, size, extension, version, width
    #[arg(long, value_name = "WORD", overrides_with_all = SORTS)]
    sort: Option<Sort>,
    /// The other way round
    #[arg(short, long)]
    reverse: bool,
    /// Directories before files
    #[arg(long)]
    group_directories_first: bool,
}

/// The last of them counts.
const SORTS: [&str; 6] = [
    "by_time",
    "by_size",
    "by_extension",
    "by_version",
    "is_unsorted",
    "sort",
];

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    Name,
    None,
    Time,
    Size,
    Extension,
    Version,
    Width,
}

impl Order {
    fn sort(&self) -> Sort {
        let flags = [
            (self.is_raw || self.is_unsorted, Sort::None),
            (self.by_time, Sort::Time),
            (self.by_size, Sort::Size),
            (self.by_extension, Sort::Extension),
            (self.by_version, Sort::Version),
        ];
        let given = flags.iter().find(|(is_set, _)| *is_set);
        given
            .map(|(_, sort)| *sort)
            .or(self.sort)
            .unwrap_or(Sort::Name)
    }
}

/// A line of a list.
struct Entry {
    name: OsString,
    at: At,
    attributes: Attributes,
}

impl Ls {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs ls", &self.place);
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        for operand in &session.operands(&self.operands) {
            match self.find(&mut session, operand) {
                Ok(entry) if entry.attributes.is_directory() && !self.directory => {
                    directories.push(entry);
                }
                Ok(entry) => files.push(entry),
                Err(error) => session.fail_with(2, error),
            }
        }
        for operands in [&mut files, &mut directories] {
            if self.order.sort() != Sort::None {
                operands.sort_by(|one, other| one.name.cmp(&other.name));
            }
            self.sort(operands);
        }
        let mut directories: Vec<At> = directories.into_iter().map(|entry| entry.at).collect();
        if self.json {
            return self.print_json(session, files, directories);
        }
        let mut printer = Printer::new();
        self.look.print_all(&mut printer, &files)?;
        let has_heads = self.recursive || self.operands.len() > 1;
        let mut is_first = files.is_empty();
        directories.reverse();
        while let Some(at) = directories.pop() {
            if printer.is_gone() {
                break;
            }
            let entries = self.list(&mut session, &at);
            if !std::mem::take(&mut is_first) {
                printer.put(b"\n")?;
            }
            if has_heads {
                let name = at.address.to_os_string();
                printer.put(&for_terminal(name.as_encoded_bytes()))?;
                printer.put(b":\n")?;
            }
            self.look.print_total(&mut printer, &entries)?;
            self.look.print_all(&mut printer, &entries)?;
            if self.recursive {
                let inner = entries.into_iter().rev().filter(is_inner);
                directories.extend(inner.map(|entry| entry.at));
            }
        }
        printer.flush()?;
        session.end()
    }

    /// An operand: a link to a directory is listed, unless the list is about the link.
    fn find(&self, session: &mut Session, operand: &OsStr) -> finefs_image::Result<Entry> {
        let at = session.read(operand)?;
        let follows = !(self.look.is_long() || self.directory || self.look.has_all_marks())
            || self.dereference
            || self.dereference_command_line;
        let found = match follows {
            true => at
                .fs
                .metadata(at.path())
                .or_else(|_| at.fs.symlink_metadata(at.path())),
            false => at.fs.symlink_metadata(at.path()),
        };
        Ok(Entry {
            name: at.address.to_os_string(),
            attributes: Attributes::inside(&at.told(found)?, 0),
            at,
        })
    }

    fn list(&self, session: &mut Session, at: &At) -> Vec<Entry> {
        let listed = match self.order.sort() {
            Sort::None => at.fs.read_dir(at.path()).and_then(|entries| {
                entries
                    .map(|entry| Ok(entry?.file_name().to_owned()))
                    .collect()
            }),
            _ => walk::names(&at.fs, at.path()),
        };
        let names: Vec<OsString> = match at.told(listed) {
            Ok(names) => names,
            Err(error) => {
                session.fail(error);
                return Vec::new();
            }
        };
        let dots = [".", ".."].map(OsString::from);
        let shows_all = self.all || self.order.is_raw;
        let is_shown = |name: &OsString| {
            let bytes = name.as_encoded_bytes();
            let is_left_out = self.ignore_backups && bytes.ends_with(b"~")
                || self
                    .ignore
                    .iter()
                    .any(|pattern| matches(pattern.as_encoded_bytes(), bytes))
                || !(shows_all || self.almost_all)
                    && self
                        .hide
                        .iter()
                        .any(|pattern| matches(pattern.as_encoded_bytes(), bytes));
            !is_left_out && (shows_all || self.almost_all || !bytes.starts_with(b"."))
        };
        let dots = dots.into_iter().filter(|_| shows_all && !self.almost_all);
        let mut entries = Vec::new();
        for name in dots.chain(names.into_iter().filter(is_shown)) {
            let at = at.join(&name);
            let found = match self.dereference {
                true => at.fs.metadata(at.path()),
                false => at.fs.symlink_metadata(at.path()),
            };
            match at.told(found) {
                Ok(metadata) => entries.push(Entry {
                    name,
                    at,
                    attributes: Attributes::inside(&metadata, 0),
                }),
                Err(error) => session.fail(error),
            }
        }
        self.sort(&mut entries);
        entries
    }

    fn sort(&self, entries: &mut [Entry]) {
        let time = self.look.time();
        // -c and -u alone sort by what they show.
        let sort = match self.order.sort() {
            Sort::Name if self.look.sorts_by_time() => Sort::Time,
            sort => sort,
        };
        match sort {
            Sort::None => return,
            Sort::Name => {}
            Sort::Time => entries.sort_by_key(|entry| Reverse(time.of(&entry.attributes))),
            Sort::Size => entries.sort_by_key(|entry| Reverse(entry.attributes.size)),
            Sort::Extension => {
                entries.sort_by(|one, other| extension(&one.name).cmp(extension(&other.name)));
            }
            Sort::Width => {
                entries.sort_by_cached_key(|entry| entry.name.to_string_lossy().chars().count())
            }
            Sort::Version => entries.sort_by_cached_key(|entry| version(&entry.name)),
        }
        if self.order.reverse {
            entries.reverse();
        }
        if self.order.group_directories_first {
            let leads_to_one = |entry: &Entry| {
                let found = entry.at.fs.metadata(entry.at.path());
                entry.attributes.kind == FileKind::Symlink && found.is_ok_and(|it| it.is_dir())
            };
            entries.sort_by_cached_key(|entry| {
                !entry.attributes.is_directory() && !leads_to_one(entry)
            });
        }
    }

    fn print_json(
        &self,
        mut session: Session,
        files: Vec<Entry>,
        mut directories: Vec<At>,
    ) -> CliResult<ExitCode> {
        let record = |entry: &Entry| Record::new(&entry.at, &entry.attributes);
        let mut records: Vec<Record> = files.iter().map(record).collect();
        directories.reverse();
        while let Some(at) = directories.pop() {
            let entries = self.list(&mut session, &at);
            records.extend(entries.iter().map(record));
            if self.recursive {
                let inner = entries.into_iter().rev().filter(is_inner);
                directories.extend(inner.map(|entry| entry.at));
            }
        }
        print_json(&records)?;
        session.end()
    }
}

fn is_inner(entry: &Entry) -> bool {
    entry.attributes.is_directory() && entry.name != "." && entry.name != ".."
}

/// What is behind the last dot, with it.
fn extension(name: &OsStr) -> &[u8] {
    let bytes = name.as_encoded_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'.');
    &bytes[at.unwrap_or(bytes.len())..]
}

/// A name's parts: texts, and numbers by their length without zeros before them, which is how
/// numbers compare.
fn version(name: &OsStr) -> Vec<(bool, usize, Vec<u8>)> {
    let bytes = name.as_encoded_bytes();
    let parts = bytes.chunk_by(|one, other| one.is_ascii_digit() == other.is_ascii_digit());
    let part = |part: &[u8]| match part[0].is_ascii_digit() {
        true => {
            let zeros = part.iter().take_while(|byte| **byte == b'0').count();
            (false, part.len() - zeros, part[zeros..].to_vec())
        }
        false => (true, 0, part.to_vec()),
    };
    parts.map(part).collect()
}
