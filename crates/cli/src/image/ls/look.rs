//! What a list looks like.

use std::ffi::OsString;
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
use crate::image::units::Units;

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
    /// Sizes and space in units of so many bytes, or with k, m, g
    #[arg(long, value_name = "SIZE", conflicts_with = "human_readable")]
    block_size: Option<Units>,
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
    /// Times so: full-iso, long-iso, iso, locale, posix-STYLE, or +FORMAT as date(1) has it
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
    /// The same by a word
    #[arg(long, value_name = "WORD")]
    #[arg(overrides_with_all = ["quote_name", "escape", "hide_control_chars", "literal"])]
    quoting_style: Option<Quoting>,
    /// Control characters as they are, also on a terminal
    #[arg(long, overrides_with_all = ["hide_control_chars"])]
    show_control_chars: bool,
    /// What stands behind names, by a word
    #[arg(long, value_name = "WORD")]
    indicator_style: Option<Marks>,
    /// No colours, whatever it says
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_missing_value = "always")]
    color: Option<String>,
    /// How names are laid out, by a word
    #[arg(long, value_name = "WORD")]
    format: Option<Layout>,
    /// One name a line
    #[arg(short = '1')]
    is_single: bool,
    /// In columns, as on a terminal without it
    #[arg(short = 'C')]
    has_columns: bool,
    /// The same, by lines
    #[arg(short = 'x')]
    goes_across: bool,
    /// On lines, with commas between names
    #[arg(short = 'm')]
    has_commas: bool,
    /// As without it: columns are filled with blanks
    #[arg(short = 'T', long, value_name = "COUNT")]
    tabsize: Option<usize>,
    /// So many characters a line; 0 for no limit
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

/// How names are laid out.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Layout {
    #[value(alias = "verbose")]
    Long,
    SingleColumn,
    Vertical,
    #[value(alias = "horizontal")]
    Across,
    Commas,
}

/// What stands behind names.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Marks {
    None,
    Slash,
    FileType,
    Classify,
}

/// How names are written.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Quoting {
    Literal,
    C,
    Escape,
}

/// True where people have no language of their own.
fn is_posix() -> bool {
    let given = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let name = ["LC_ALL", "LC_TIME", "LANG"].into_iter().find(given);
    let locale = name.and_then(std::env::var_os);
    locale.is_none_or(|locale| locale == "C" || locale == "POSIX")
}

fn time_style(style: &str) -> Result<String, String> {
    let style = match style.strip_prefix("posix-") {
        Some(_) if is_posix() => "locale",
        Some(style) => style,
        None => style,
    };
    match style {
        "full-iso" | "long-iso" | "iso" | "locale" => Ok(style.to_owned()),
        style if style.starts_with('+') => Ok(style.to_owned()),
        _ => Err("give full-iso, long-iso, iso, locale or +FORMAT".to_owned()),
    }
}

/// Cells of a long line, in their order.
const CELLS: usize = 8;
/// Which of them is the mode.
const MODE: usize = 2;

impl Look {
    pub fn is_long(&self) -> bool {
        self.is_long
            || self.full_time
            || self.numeric_uid_gid
            || self.lacks_owner
            || self.lacks_group
            || self.format == Some(Layout::Long)
    }

    /// Whether links are told from what they lead to.
    pub fn has_all_marks(&self) -> bool {
        self.classify || self.indicator_style == Some(Marks::Classify)
    }

    /// The units of sizes, and of space.
    fn units(&self) -> (Units, Units) {
        match &self.block_size {
            _ if self.human_readable => (Units::Human, Units::Human),
            Some(units) => (units.clone(), units.clone()),
            None => (Units::of(1), Units::of(1024)),
        }
    }

    /// Whether names stand in columns, in lines, or with commas; `None`: one a line.
    fn layout(&self) -> Option<Layout> {
        let given = self.format.filter(|layout| *layout != Layout::SingleColumn);
        match () {
            () if self.has_commas => Some(Layout::Commas),
            () if self.goes_across => Some(Layout::Across),
            () if self.has_columns => Some(Layout::Vertical),
            () => given,
        }
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
        self.units().1.shown(sectors * 512)
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
        match (self.columns(), self.layout()) {
            (width, Some(Layout::Commas)) => print_commas(printer, &names, width.unwrap_or(80)),
            (Some(width), Some(Layout::Across)) => print_columns(printer, &names, width, true),
            (Some(width), _) => print_columns(printer, &names, width, false),
            (None, _) => names.iter().try_for_each(|name| {
                printer.put(name)?;
                printer.put(self.end().to_string().as_bytes())
            }),
        }
    }

    /// The characters of a line; `None` where each name has its own.
    fn columns(&self) -> Option<usize> {
        let is_terminal = std::io::stdout().is_terminal();
        let is_single = self.is_single || self.format == Some(Layout::SingleColumn);
        if is_single || self.zero || !is_terminal && self.layout().is_none() {
            return None;
        }
        // A line may be as long as it must be.
        if self.width == Some(0) {
            return Some(usize::MAX / 2);
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
        // Behind a link in a long line stands where it leads.
        if !(self.is_long() && entry.attributes.kind == FileKind::Symlink) {
            shown.extend(self.mark(&entry.attributes));
        }
        shown
    }

    /// What stands behind the name of such a file.
    fn mark(&self, attributes: &Attributes) -> &'static [u8] {
        let mark = mark(attributes);
        let style = self.indicator_style;
        let has_mark = self.has_all_marks()
            || (self.file_type || style == Some(Marks::FileType)) && mark != b"*"
            || (self.marks_directories || style == Some(Marks::Slash)) && mark == b"/";
        if has_mark { mark } else { b"" }
    }

    /// Where a link leads, as it stands behind its name.
    fn target(&self, entry: &Entry) -> Vec<u8> {
        let Ok(target) = entry.at.fs.read_link(entry.at.path()) else {
            return Vec::new();
        };
        let found = entry.at.fs.metadata(entry.at.path());
        let found = found.map(|found| Attributes::inside(&found, 0));
        let mark = found.map_or(&b""[..], |found| self.mark(&found));
        let target = self.quoted(target.as_os_str().as_encoded_bytes());
        [b" -> ", target.as_slice(), mark].concat()
    }

    fn quoted(&self, name: &[u8]) -> Vec<u8> {
        let shows = self.literal || self.show_control_chars;
        let hides = std::io::stdout().is_terminal() && !shows || self.hide_control_chars;
        let style = match (self.quote_name, self.escape) {
            (true, _) => Some(Quoting::C),
            (_, true) => Some(Quoting::Escape),
            _ => self.quoting_style,
        };
        match style {
            Some(Quoting::C) => [b"\"", escaped(name, b'"').as_slice(), b"\""].concat(),
            Some(Quoting::Escape) => escaped(name, b' '),
            _ if hides => text::without_controls(name),
            _ => name.to_vec(),
        }
    }

    fn print_long(&self, printer: &mut Printer, entries: &[Entry]) -> CliResult<()> {
        let people = match entries.first() {
            Some(entry) if !self.numeric_uid_gid => People::of(&entry.at.fs),
            _ => People::nobody(),
        };
        let now = text::now();
        let acls: Vec<bool> = entries.iter().map(has_acl).collect();
        // Where one has a sign, all have its column.
        let sign = |has_acl: bool| match (has_acl, acls.contains(&true)) {
            (true, _) => "+",
            (false, true) => " ",
            (false, false) => "",
        };
        let rows: Vec<[String; CELLS]> = entries
            .iter()
            .zip(&acls)
            .map(|(entry, has_acl)| {
                let mut cells = self.cells(&entry.attributes, &people, now);
                cells[MODE] += sign(*has_acl);
                cells
            })
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
            if entry.attributes.kind == FileKind::Symlink {
                line.extend(self.target(entry));
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
            false => self.units().0.shown(attributes.size),
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

/// Whether a file has an ACL, which the mode alone does not tell.
fn has_acl(entry: &Entry) -> bool {
    let names = match entry.attributes.kind {
        FileKind::Symlink => return false,
        _ => entry.at.fs.list_xattrs(entry.at.path()),
    };
    let is_acl = |name: &OsString| name.as_encoded_bytes().starts_with(b"system.posix_acl_");
    names.is_ok_and(|names| names.iter().any(is_acl))
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

/// With `\\` before a backslash and `special`, and control characters and bytes that are no text
/// as C writes them.
fn escaped(name: &[u8], special: u8) -> Vec<u8> {
    let mut shown = Vec::new();
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            let mut buffer = [0; 4];
            let bytes = letter.encode_utf8(&mut buffer).bytes();
            match letter {
                '\x07' => shown.extend(b"\\a"),
                '\x08' => shown.extend(b"\\b"),
                '\t' => shown.extend(b"\\t"),
                '\n' => shown.extend(b"\\n"),
                '\x0b' => shown.extend(b"\\v"),
                '\x0c' => shown.extend(b"\\f"),
                '\r' => shown.extend(b"\\r"),
                letter if letter == char::from(special) || letter == '\\' => {
                    shown.extend([b'\\', letter as u8]);
                }
                letter if letter.is_control() => shown.extend(bytes.flat_map(octal)),
                _ => shown.extend(bytes),
            }
        }
        shown.extend(chunk.invalid().iter().copied().flat_map(octal));
    }
    shown
}

fn octal(byte: u8) -> Vec<u8> {
    format!("\\{byte:03o}").into_bytes()
}

/// How many columns and rows names stand in.
struct Table {
    columns: usize,
    rows: usize,
    is_across: bool,
}

impl Table {
    /// The one of most columns that is not wider than the terminal; of one where none is.
    fn that_fits(lengths: &[usize], width: usize, is_across: bool) -> Table {
        let all = lengths.len();
        let of = |columns| {
            let rows = all.div_ceil(columns);
            let columns = if is_across {
                columns
            } else {
                all.div_ceil(rows)
            };
            Table {
                columns,
                rows,
                is_across,
            }
        };
        // A name of one letter and two blanks are the least that a column takes.
        let most = all.min(width.saturating_add(2) / 3);
        let fits = |table: &Table| {
            let widths = table.widths(lengths);
            widths.iter().map(|column| column + 2).sum::<usize>() < width.saturating_add(2)
        };
        let mut tables = (1..=most).rev().map(of);
        tables.find(fits).unwrap_or(Table {
            columns: 1,
            rows: all,
            is_across,
        })
    }

    /// Which name stands at a place.
    fn index(&self, column: usize, row: usize) -> usize {
        match self.is_across {
            true => row * self.columns + column,
            false => column * self.rows + row,
        }
    }

    /// The widest name of each column.
    fn widths(&self, lengths: &[usize]) -> Vec<usize> {
        let mut widths = vec![0; self.columns];
        for (index, length) in lengths.iter().enumerate() {
            let column = match self.is_across {
                true => index % self.columns,
                false => index / self.rows,
            };
            widths[column] = (*length).max(widths[column]);
        }
        widths
    }
}

/// In columns, down first as ls does on a terminal, or across.
fn print_columns(
    printer: &mut Printer,
    names: &[Vec<u8>],
    width: usize,
    is_across: bool,
) -> CliResult<()> {
    let length = |name: &Vec<u8>| String::from_utf8_lossy(name).chars().count();
    let lengths: Vec<usize> = names.iter().map(length).collect();
    let table = Table::that_fits(&lengths, width, is_across);
    let widths = table.widths(&lengths);
    for row in 0..table.rows.min(names.len()) {
        let mut line = Vec::new();
        for (column, width) in widths.iter().enumerate() {
            let Some(name) = names.get(table.index(column, row)) else {
                break;
            };
            line.extend(name);
            let next = table.index(column + 1, row);
            if column + 1 < widths.len() && next < names.len() {
                line.extend(vec![b' '; width + 2 - lengths[table.index(column, row)]]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_columns_are_taken_as_fit() {
        let table = |lengths: &[usize], width, is_across| {
            let table = Table::that_fits(lengths, width, is_across);
            (table.columns, table.rows, table.widths(lengths))
        };
        // Four names of two letters, and six blanks between them.
        assert_eq!(table(&[2; 4], 15, true), (4, 1, vec![2; 4]));
        assert_eq!(table(&[2; 4], 14, true), (3, 2, vec![2; 3]));
        assert_eq!(table(&[2; 4], 14, false), (2, 2, vec![2; 2]));
        assert_eq!(table(&[1, 5, 1], 9, true), (2, 2, vec![1, 5]));
        assert_eq!(table(&[1, 5, 1], 9, false), (2, 2, vec![5, 1]));
        assert_eq!(table(&[], 80, true), (1, 0, vec![0]));
        assert_eq!(table(&[1; 5], usize::MAX / 2, false).0, 5);
        // Many names are tried by few tables, whether they fit or not.
        let mut many = vec![1; 200_000];
        for is_across in [true, false] {
            assert_eq!(table(&many, 80, is_across).0, 27);
        }
        many[7] = 100;
        for is_across in [true, false] {
            assert_eq!(table(&many, 80, is_across).0, 1);
        }
    }
}
