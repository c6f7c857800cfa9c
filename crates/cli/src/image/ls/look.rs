//! What a list looks like.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use finefs::FileKind;
use finefs_image::{Attributes, Time};
use rustix::termios::tcgetwinsize;

use super::Entry;
use crate::CliResult;
use crate::image::people::People;
use crate::image::session::Printer;
use crate::image::text;

#[derive(Args)]
pub(super) struct Look {
    /// Kind, mode, links, owners, size and time
    #[arg(short = 'l')]
    is_long: bool,
    /// The same without the owner
    #[arg(short = 'g')]
    lacks_owner: bool,
    /// The same without the group
    #[arg(short = 'o')]
    lacks_group: bool,
    /// No group, with -l
    #[arg(short = 'G', long)]
    no_group: bool,
    /// Owners as numbers, with -l
    #[arg(short, long)]
    numeric_uid_gid: bool,
    /// Sizes as 1.5K, 23M
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Inode numbers
    #[arg(short, long)]
    inode: bool,
    /// The space that files take, in KiB
    #[arg(short, long)]
    size: bool,
    /// In KiB, as without it
    #[arg(short, long)]
    kibibytes: bool,
    /// The time of the last change of attributes; without -l and -t, sort by it
    #[arg(short = 'c', overrides_with_all = ["is_accessed", "time"])]
    is_changed: bool,
    /// The same of the last read
    #[arg(short = 'u', overrides_with_all = ["is_changed", "time"])]
    is_accessed: bool,
    /// The same by a word: atime, ctime, mtime or birth
    #[arg(long, value_name = "WORD", overrides_with_all = ["is_changed", "is_accessed"])]
    time: Option<WhichTime>,
    /// Times in full, with -l
    #[arg(long)]
    full_time: bool,
    /// Times so: full-iso, long-iso, iso, locale, or +FORMAT as date(1) has it
    #[arg(long, value_name = "STYLE", value_parser = time_style)]
    time_style: Option<String>,
    /// A character behind names that says what they are
    #[arg(short = 'F', long)]
    classify: bool,
    /// The same but for what can be executed
    #[arg(long)]
    file_type: bool,
    /// A slash behind directories
    #[arg(short = 'p')]
    marks_directories: bool,
    /// Names in quotes
    #[arg(short = 'Q', long, overrides_with_all = ["escape", "hide_control_chars", "literal"])]
    quote_name: bool,
    /// Characters that cannot be printed as \\n or \\001
    #[arg(short = 'b', long, overrides_with_all = ["quote_name", "hide_control_chars", "literal"])]
    escape: bool,
    /// The same as ?, as on a terminal without it
    #[arg(short = 'q', long, overrides_with_all = ["quote_name", "escape", "literal"])]
    hide_control_chars: bool,
    /// Names as they are
    #[arg(short = 'N', long, overrides_with_all = ["quote_name", "escape", "hide_control_chars"])]
    literal: bool,
    /// One name a line
    #[arg(short = '1')]
    is_single: bool,
    /// In columns, as on a terminal without it
    #[arg(short = 'C')]
    has_columns: bool,
    /// On lines, with commas between names
    #[arg(short = 'm')]
    has_commas: bool,
    /// So many characters a line
    #[arg(short, long, value_name = "COUNT")]
    width: Option<usize>,
    /// A zero byte behind each name, not a new line
    #[arg(long)]
    zero: bool,
}

/// Which time.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum WhichTime {
    #[value(name = "mtime", alias = "modification")]
    Modified,
    #[value(name = "atime", alias = "access", alias = "use")]
    Accessed,
    #[value(name = "ctime", alias = "status")]
    Changed,
    #[value(name = "birth", alias = "creation")]
    Born,
}

impl WhichTime {
    pub fn of(self, attributes: &Attributes) -> Time {
        match self {
            WhichTime::Modified => attributes.modified,
            WhichTime::Accessed => attributes.accessed,
            WhichTime::Changed => attributes.changed,
            WhichTime::Born => attributes.born.unwrap_or(attributes.modified),
        }
    }
}

fn time_style(style: &str) -> Result<String, String> {
    match style {
        "full-iso" | "long-iso" | "iso" | "locale" => Ok(style.to_owned()),
        style if style.starts_with('+') => Ok(style.to_owned()),
        _ => Err("give full-iso, long-iso, iso, locale or +FORMAT".to_owned()),
    }
}

/// Cells of a long line, in their order.
const CELLS: usize = 8;

impl Look {
    pub fn is_long(&self) -> bool {
        self.is_long
            || self.full_time
            || self.numeric_uid_gid
            || self.lacks_owner
            || self.lacks_group
    }

    /// Whether links are told from what they lead to.
    pub fn has_all_marks(&self) -> bool {
        self.classify
    }

    pub fn time(&self) -> WhichTime {
        match (self.is_changed, self.is_accessed, self.time) {
            (true, _, _) => WhichTime::Changed,
            (_, true, _) => WhichTime::Accessed,
            (_, _, word) => word.unwrap_or(WhichTime::Modified),
        }
    }

    /// Whether a list without -t is by time.
    pub fn sorts_by_time(&self) -> bool {
        !self.is_long() && self.time() != WhichTime::Modified
    }

    /// The line above a directory's list.
    pub fn print_total(&self, printer: &mut Printer, entries: &[Entry]) -> CliResult<()> {
        if !self.is_long() && !self.size {
            return Ok(());
        }
        let sectors = entries.iter().map(|entry| entry.attributes.sectors).sum();
        let total = self.space(sectors);
        printer.put(format!("total {total}{}", self.end()).as_bytes())
    }

    fn end(&self) -> char {
        if self.zero { '\0' } else { '\n' }
    }

    fn space(&self, sectors: u64) -> String {
        match self.human_readable {
            true => text::human(sectors * 512),
            false => sectors.div_ceil(2).to_string(),
        }
    }

    pub fn print_all(&self, printer: &mut Printer, entries: &[Entry]) -> CliResult<()> {
        if self.is_long() {
            return self.print_long(printer, entries);
        }
        let before: Vec<[String; 2]> = entries
            .iter()
            .map(|entry| self.before(&entry.attributes))
            .collect();
        let width = |cell: usize| before.iter().map(|cells| cells[cell].len()).max();
        let widths = [width(0).unwrap_or(0), width(1).unwrap_or(0)];
        let names: Vec<Vec<u8>> = entries
            .iter()
            .zip(&before)
            .map(|(entry, before)| {
                let mut shown = String::new();
                for (cell, width) in before.iter().zip(widths) {
                    if width > 0 {
                        shown += &format!("{cell:>width$} ");
                    }
                }
                [shown.into_bytes(), self.shown(entry)].concat()
            })
            .collect();
        match self.columns() {
            _ if self.has_commas => print_commas(printer, &names, self.columns().unwrap_or(80)),
            Some(width) => print_columns(printer, &names, width),
            None => names.iter().try_for_each(|name| {
                printer.put(name)?;
                printer.put(self.end().to_string().as_bytes())
            }),
        }
    }

    /// The characters of a line; `None` where each name has its own.
    fn columns(&self) -> Option<usize> {
        let is_terminal = std::io::stdout().is_terminal();
        if self.is_single || self.zero || !is_terminal && !self.has_columns && !self.has_commas {
            return None;
        }
        let terminal = || {
            let size = tcgetwinsize(std::io::stdout()).ok().filter(|_| is_terminal);
            size.map(|size| usize::from(size.ws_col))
        };
        let given = || std::env::var("COLUMNS").ok()?.parse().ok();
        let width = self.width.or_else(terminal).or_else(given);
        Some(width.filter(|width| *width > 0).unwrap_or(80))
    }

    /// What stands before a name: its inode and its space.
    fn before(&self, attributes: &Attributes) -> [String; 2] {
        let ino = self.inode.then(|| attributes.ino.to_string());
        let space = self.size.then(|| self.space(attributes.sectors));
        [ino.unwrap_or_default(), space.unwrap_or_default()]
    }

    /// The name with what stands behind it.
    fn shown(&self, entry: &Entry) -> Vec<u8> {
        let mut shown = self.quoted(entry.name.as_encoded_bytes());
        let mark = mark(&entry.attributes);
        let has_mark = self.classify
            || self.file_type && mark != b"*"
            || self.marks_directories && mark == b"/";
        // Behind a link in a long line stands where it leads.
        if has_mark && !(self.is_long() && mark == b"@") {
            shown.extend(mark);
        }
        shown
    }

    fn quoted(&self, name: &[u8]) -> Vec<u8> {
        let hides = std::io::stdout().is_terminal() && !self.literal || self.hide_control_chars;
        match (self.quote_name, self.escape) {
            (true, _) => [b"\"", escaped(name, b'"').as_slice(), b"\""].concat(),
            (_, true) => escaped(name, b' '),
            _ if hides => without_controls(name),
            _ => name.to_vec(),
        }
    }

    fn print_long(&self, printer: &mut Printer, entries: &[Entry]) -> CliResult<()> {
        let people = match entries.first() {
            Some(entry) if !self.numeric_uid_gid => People::of(&entry.at.fs),
            _ => People::nobody(),
        };
        let now = text::now();
        let rows: Vec<[String; CELLS]> = entries
            .iter()
            .map(|entry| self.cells(&entry.attributes, &people, now))
            .collect();
        let width = |cell: usize| rows.iter().map(|row| row[cell].len()).max().unwrap_or(0);
        let widths: [usize; CELLS] = std::array::from_fn(width);
        for (entry, row) in entries.iter().zip(&rows) {
            let mut line = String::new();
            for (index, (cell, width)) in row.iter().zip(widths).enumerate() {
                match index {
                    _ if width == 0 => {}
                    // Names of owners stand left, numbers right.
                    4 | 5 if cell.parse::<u32>().is_err() => line += &format!("{cell:<width$} "),
                    _ => line += &format!("{cell:>width$} "),
                }
            }
            let mut line = line.into_bytes();
            line.extend(self.shown(entry));
            if entry.attributes.kind == FileKind::Symlink
                && let Ok(target) = entry.at.fs.read_link(entry.at.path())
            {
                line.extend(b" -> ");
                line.extend(self.quoted(target.as_os_str().as_encoded_bytes()));
            }
            line.extend(self.end().to_string().bytes());
            printer.put(&line)?;
        }
        Ok(())
    }

    fn cells(&self, attributes: &Attributes, people: &People, now: Time) -> [String; CELLS] {
        let size = match text::is_device(attributes) {
            true => {
                let (major, minor) = text::device_numbers(attributes);
                format!("{major}, {minor}")
            }
            false if self.human_readable => text::human(attributes.size),
            false => attributes.size.to_string(),
        };
        let time = self.time().of(attributes);
        let time = match self.time_style.as_deref() {
            None if self.full_time => text::full_time(time),
            None | Some("locale") => text::list_time(time, now),
            Some("full-iso") => text::full_time(time),
            Some("long-iso") => text::minute(time),
            Some("iso") => text::iso_time(time, now),
            Some(format) => text::formatted(&format[1..], time),
        };
        let owner = match self.lacks_owner {
            true => String::new(),
            false => people.user(attributes.uid),
        };
        let group = match self.lacks_group || self.no_group {
            true => String::new(),
            false => people.group(attributes.gid),
        };
        let [ino, space] = self.before(attributes);
        [
            ino,
            space,
            text::mode_string(attributes),
            attributes.links.to_string(),
            owner,
            group,
            size,
            time,
        ]
    }
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
pub(in crate::image) fn for_terminal(name: &[u8]) -> Vec<u8> {
    match std::io::stdout().is_terminal() {
        true => without_controls(name),
        false => name.to_vec(),
    }
}

fn without_controls(name: &[u8]) -> Vec<u8> {
    let shown = |byte: &u8| if byte.is_ascii_control() { b'?' } else { *byte };
    name.iter().map(shown).collect()
}

/// With `\\` before a backslash and `special`, and control characters as C writes them.
fn escaped(name: &[u8], special: u8) -> Vec<u8> {
    let mut shown = Vec::new();
    for byte in name {
        match *byte {
            b'\n' => shown.extend(b"\\n"),
            b'\t' => shown.extend(b"\\t"),
            b'\r' => shown.extend(b"\\r"),
            byte if byte == special || byte == b'\\' => shown.extend([b'\\', byte]),
            byte if byte.is_ascii_control() => shown.extend(format!("\\{byte:03o}").bytes()),
            byte => shown.push(byte),
        }
    }
    shown
}

/// In columns, down first, as ls does on a terminal.
fn print_columns(printer: &mut Printer, names: &[Vec<u8>], width: usize) -> CliResult<()> {
    let length = |name: &Vec<u8>| String::from_utf8_lossy(name).chars().count();
    let widest = |rows: usize| -> Vec<usize> {
        let column = |names: &[Vec<u8>]| names.iter().map(length).max().unwrap_or(0);
        names.chunks(rows).map(column).collect()
    };
    let fits =
        |rows: &usize| widest(*rows).iter().map(|column| column + 2).sum::<usize>() < width + 2;
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

/// One behind the other, as `ls -m` does.
fn print_commas(printer: &mut Printer, names: &[Vec<u8>], width: usize) -> CliResult<()> {
    let length = |name: &Vec<u8>| String::from_utf8_lossy(name).chars().count();
    let (mut text, mut used) = (Vec::new(), 0);
    for (index, name) in names.iter().enumerate() {
        let is_last = index + 1 == names.len();
        let needed = length(name) + if is_last { 0 } else { 1 };
        if used > 0 {
            match used + 1 + needed < width {
                true => {
                    text.push(b' ');
                    used += 1;
                }
                false => {
                    text.push(b'\n');
                    used = 0;
                }
            }
        }
        text.extend(name);
        if !is_last {
            text.push(b',');
        }
        used += needed;
    }
    if !names.is_empty() {
        text.push(b'\n');
    }
    printer.put(&text)
}
