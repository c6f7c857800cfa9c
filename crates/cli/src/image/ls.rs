//! `finefs ls`

use std::cmp::Reverse;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{ArgAction, Args};
use finefs::FileKind;
use finefs_image::{Attributes, Time, walk};
use rustix::termios::tcgetwinsize;

use super::people::People;
use super::record::Record;
use super::session::{At, Context, Printer, Session, print_json};
use super::{Where, text};
use crate::CliResult;

/// List files of an image, as ls(1)
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Ls {
    /// IMAGE:/PATH; IMAGE is its root
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    /// Kind, mode, links, owners, size and time
    #[arg(short = 'l')]
    is_long: bool,
    /// Names that begin with a dot too
    #[arg(short, long)]
    all: bool,
    /// The same without . and ..
    #[arg(short = 'A', long)]
    almost_all: bool,
    /// Directories in directories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Sizes as 1.5K, 23M
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Inode numbers
    #[arg(short, long)]
    inode: bool,
    /// One name a line
    #[arg(short = '1')]
    is_single: bool,
    /// Owners as numbers, with -l
    #[arg(short, long)]
    numeric_uid_gid: bool,
    /// Directories themselves, not what is in them
    #[arg(short, long)]
    directory: bool,
    /// Times in full, with -l
    #[arg(long)]
    full_time: bool,
    /// The newest first
    #[arg(short = 't')]
    by_time: bool,
    /// The largest first
    #[arg(short = 'S')]
    by_size: bool,
    /// In the directory's order
    #[arg(short = 'U')]
    is_unsorted: bool,
    /// The other way round
    #[arg(short, long)]
    reverse: bool,
    /// A character behind names that says what they are
    #[arg(short = 'F', long)]
    classify: bool,
    /// What symbolic links lead to
    #[arg(short = 'L', long)]
    dereference: bool,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
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
                    directories.push(entry.at);
                }
                Ok(entry) => files.push(entry),
                Err(error) => session.fail_with(2, error),
            }
        }
        if self.json {
            return self.print_json(session, files, directories);
        }
        let mut printer = Printer::new();
        self.sort(&mut files);
        self.print_all(&mut printer, &files)?;
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
                printer.put(at.address.to_string().as_bytes())?;
                printer.put(b":\n")?;
            }
            if self.is_long() {
                let sectors: u64 = entries.iter().map(|entry| entry.attributes.sectors).sum();
                let total = match self.human_readable {
                    true => text::human(sectors * 512),
                    false => (sectors / 2).to_string(),
                };
                printer.put(format!("total {total}\n").as_bytes())?;
            }
            self.print_all(&mut printer, &entries)?;
            if self.recursive {
                let inner = entries.into_iter().rev().filter(is_inner);
                directories.extend(inner.map(|entry| entry.at));
            }
        }
        printer.flush()?;
        session.end()
    }

    fn is_long(&self) -> bool {
        self.is_long || self.full_time || self.numeric_uid_gid
    }

    /// An operand: a link to a directory is listed, unless the list is about the link.
    fn find(&self, session: &mut Session, operand: &OsStr) -> finefs_image::Result<Entry> {
        let at = session.read(operand)?;
        let follows = !(self.is_long() || self.directory || self.classify) || self.dereference;
        let found = match follows {
            true => at
                .fs
                .metadata(at.path())
                .or_else(|_| at.fs.symlink_metadata(at.path())),
            false => at.fs.symlink_metadata(at.path()),
        };
        Ok(Entry {
            name: at.address.to_string().into(),
            attributes: Attributes::inside(&at.told(found)?, 0),
            at,
        })
    }

    fn list(&self, session: &mut Session, at: &At) -> Vec<Entry> {
        let names = match at.told(walk::names(&at.fs, at.path())) {
            Ok(names) => names,
            Err(error) => {
                session.fail(error);
                return Vec::new();
            }
        };
        let dots = [".", ".."].map(OsString::from);
        let is_shown = |name: &OsString| {
            self.all || self.almost_all || !name.as_encoded_bytes().starts_with(b".")
        };
        let dots = dots.into_iter().filter(|_| self.all);
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
        if self.is_unsorted {
            return;
        }
        if self.by_size {
            entries.sort_by_key(|entry| Reverse(entry.attributes.size));
        } else if self.by_time {
            entries.sort_by_key(|entry| Reverse(entry.attributes.modified));
        }
        if self.reverse {
            entries.reverse();
        }
    }

    fn print_all(&self, printer: &mut Printer, entries: &[Entry]) -> CliResult<()> {
        if self.is_long() {
            return self.print_long(printer, entries);
        }
        let names: Vec<Vec<u8>> = entries.iter().map(|entry| self.shown(entry)).collect();
        let columns = match self.is_single || !std::io::stdout().is_terminal() {
            true => None,
            false => tcgetwinsize(std::io::stdout())
                .ok()
                .map(|size| usize::from(size.ws_col)),
        };
        match columns {
            Some(width) if width > 0 => print_columns(printer, &names, width),
            _ => names.iter().try_for_each(|name| {
                printer.put(name)?;
                printer.put(b"\n")
            }),
        }
    }

    /// The name with what stands before and behind it.
    fn shown(&self, entry: &Entry) -> Vec<u8> {
        let mut shown = Vec::new();
        if self.inode && !self.is_long() {
            shown.extend(format!("{} ", entry.attributes.ino).bytes());
        }
        shown.extend(for_terminal(entry.name.as_encoded_bytes()));
        if self.classify {
            shown.extend(mark(&entry.attributes));
        }
        shown
    }

    fn print_long(&self, printer: &mut Printer, entries: &[Entry]) -> CliResult<()> {
        let people = match entries.first() {
            Some(entry) if !self.numeric_uid_gid => People::of(&entry.at.fs),
            _ => People::nobody(),
        };
        let now = text::now();
        let rows: Vec<[String; 7]> = entries
            .iter()
            .map(|entry| self.columns(&entry.attributes, &people, now))
            .collect();
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: [usize; 7] = std::array::from_fn(width);
        for (entry, row) in entries.iter().zip(&rows) {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
                match column {
                    0 if !self.inode => {}
                    // Names of owners stand left, numbers right.
                    3 | 4 if cell.parse::<u32>().is_err() => line += &format!("{cell:<width$} "),
                    _ => line += &format!("{cell:>width$} "),
                }
            }
            let mut line = line.into_bytes();
            line.extend(self.shown(entry));
            if entry.attributes.kind == FileKind::Symlink
                && let Ok(target) = entry.at.fs.read_link(entry.at.path())
            {
                line.extend(b" -> ");
                line.extend(for_terminal(target.as_os_str().as_encoded_bytes()));
            }
            line.push(b'\n');
            printer.put(&line)?;
        }
        Ok(())
    }

    fn columns(&self, attributes: &Attributes, people: &People, now: Time) -> [String; 7] {
        let size = match text::is_device(attributes) {
            true => {
                let (major, minor) = text::device_numbers(attributes);
                format!("{major}, {minor}")
            }
            false if self.human_readable => text::human(attributes.size),
            false => attributes.size.to_string(),
        };
        let time = match self.full_time {
            true => text::full_time(attributes.modified),
            false => text::list_time(attributes.modified, now),
        };
        [
            attributes.ino.to_string(),
            text::mode_string(attributes),
            attributes.links.to_string(),
            people.user(attributes.uid),
            people.group(attributes.gid),
            size,
            time,
        ]
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

fn mark(attributes: &Attributes) -> &'static [u8] {
    match attributes.kind {
        FileKind::Directory => b"/",
        FileKind::Symlink => b"@",
        FileKind::Fifo => b"|",
        FileKind::Socket => b"=",
        FileKind::Regular if attributes.permissions & 0o111 != 0 => b"*",
        _ => b"",
    }
}

/// A name as it may go to a terminal, which control characters would change.
pub(super) fn for_terminal(name: &[u8]) -> Vec<u8> {
    match std::io::stdout().is_terminal() {
        true => name
            .iter()
            .map(|byte| if byte.is_ascii_control() { b'?' } else { *byte })
            .collect(),
        false => name.to_vec(),
    }
}

/// In columns, down first, as ls does on a terminal.
fn print_columns(printer: &mut Printer, names: &[Vec<u8>], width: usize) -> CliResult<()> {
    let length = |name: &Vec<u8>| String::from_utf8_lossy(name).chars().count();
    let widest = |rows: usize| -> Vec<usize> {
        let column = |names: &[Vec<u8>]| names.iter().map(length).max().unwrap_or(0);
        names.chunks(rows).map(column).collect()
    };
    let fits =
        |rows: &usize| widest(*rows).iter().map(|column| column + 2).sum::<usize>() <= width + 2;
    let rows = (1..=names.len()).find(fits).unwrap_or(names.len().max(1));
    let widths = widest(rows);
    for row in 0..rows.min(names.len()) {
        let mut line = Vec::new();
        for (column, width) in widths.iter().enumerate() {
            let Some(name) = names.get(column * rows + row) else {
                break;
            };
            line.extend(name);
            if names.get((column + 1) * rows + row).is_some() {
                line.extend(vec![b' '; width + 2 - length(name)]);
            }
        }
        line.push(b'\n');
        printer.put(&line)?;
    }
    Ok(())
}
