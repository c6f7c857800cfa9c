//! `finefs stat`

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::iter::Peekable;
use std::process::ExitCode;

use clap::Args;
use finefs::FileKind;
use finefs_image::{Attributes, Time};

use super::people::People;
use super::record::Record;
use super::session::{At, Context, Printer, Session, print_json};
use super::text::for_terminal;
use super::{Where, text};
use crate::CliResult;

/// Show what files of an image are, as stat(1)
#[derive(Args)]
pub(crate) struct Stat {
    /// IMAGE:/PATH; IMAGE is its root
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    /// What symbolic links lead to
    #[arg(short = 'L', long)]
    dereference: bool,
    /// What to print for each, with %n, %s, %a and all others of stat(1), and a new line
    #[arg(short = 'c', long, value_name = "FORMAT")]
    format: Option<OsString>,
    /// The same with \n and \t, and without a new line of its own
    #[arg(long, value_name = "FORMAT", conflicts_with = "format")]
    printf: Option<OsString>,
    /// On one line of numbers, for scripts
    #[arg(short, long, conflicts_with_all = ["format", "printf"])]
    terse: bool,
    /// What their file system is; formats have %n, %b, %f, %a, %c, %d, %s, %S, %l, %i, %t, %T
    #[arg(short, long)]
    file_system: bool,
    /// Where attributes come from: always from the image
    #[arg(long, value_name = "MODE")]
    cached: Option<OsString>,
    /// As JSON, for scripts
    #[arg(long, conflicts_with_all = ["terse", "file_system"])]
    json: bool,
    #[command(flatten)]
    place: Where,
}

/// What -t prints.
const TERSE: &str = "%n %s %b %f %u %g %D %i %h %t %T %X %Y %Z %W %o\\n";
const TERSE_SPACE: &str = "%n %i %l %t %s %S %b %f %a %c %d\\n";
/// What -f prints.
const SPACE: &str = "  File: \"%n\"\\n    ID: %-8i Namelen: %-7l Type: %T\\n\
                     Block size: %-10s Fundamental block size: %S\\n\
                     Blocks: Total: %-10b Free: %-10f Available: %a\\n\
                     Inodes: Total: %-10c Free: %d\\n";
/// Bytes of a name.
const NAME_MAX: u32 = 255;

/// A file that is shown.
struct Shown<'a> {
    at: &'a At,
    attributes: &'a Attributes,
    people: &'a People,
}

impl Stat {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs stat", &self.place);
        let mut printer = Printer::new();
        let mut records = Vec::new();
        for operand in &session.operands(&self.operands) {
            let found = self.find(&mut session, operand);
            let Some((at, attributes)) = session.check(found) else {
                continue;
            };
            if self.json {
                records.push(Record::new(&at, &attributes));
                continue;
            }
            if self.file_system {
                printer.put(&self.space(&at))?;
                continue;
            }
            let shown = Shown {
                at: &at,
                attributes: &attributes,
                people: &People::of(&at.fs),
            };
            match (&self.format, &self.printf) {
                (Some(format), _) => {
                    printer.put(&shown.formatted(format, false))?;
                    printer.put(b"\n")?;
                }
                (None, Some(format)) => printer.put(&shown.formatted(format, true))?,
                (None, None) if self.terse => {
                    printer.put(&shown.formatted(OsStr::new(TERSE), true))?;
                }
                (None, None) => printer.put(&shown.described())?,
            }
        }
        if self.json {
            print_json(&records)?;
        }
        printer.flush()?;
        session.end()
    }

    /// What -f says of the file system of a file.
    fn space(&self, at: &At) -> Vec<u8> {
        let space = at.fs.statfs();
        let value = |directive: u8| match directive {
            b'b' => space.blocks.to_string(),
            b'f' => space.blocks_free.to_string(),
            b'a' => space.blocks_available.to_string(),
            b'c' => space.inodes.to_string(),
            b'd' => space.inodes_free.to_string(),
            b's' | b'S' => space.block_size_bytes.to_string(),
            b'l' => NAME_MAX.to_string(),
            b'i' => "0".to_owned(),
            b't' => "ef53".to_owned(),
            b'T' => "ext2/ext3".to_owned(),
            b'%' => "%".to_owned(),
            _ => "?".to_owned(),
        };
        let all = |format: &OsStr, has_escapes: bool| {
            expanded(format, has_escapes, &|field, directive| {
                let value = match directive {
                    b'n' => at.address.to_os_string().into_encoded_bytes(),
                    _ => value(directive).into_bytes(),
                };
                text::padded(field, value)
            })
        };
        match (&self.format, &self.printf) {
            (Some(format), _) => [all(format, false), vec![b'\n']].concat(),
            (None, Some(format)) => all(format, true),
            (None, None) if self.terse => all(OsStr::new(TERSE_SPACE), true),
            (None, None) => all(OsStr::new(SPACE), true),
        }
    }

    fn find(&self, session: &mut Session, text: &OsStr) -> finefs_image::Result<(At, Attributes)> {
        let at = session.read(text)?;
        let found = match self.dereference {
            true => at.fs.metadata(at.path()),
            false => at.fs.symlink_metadata(at.path()),
        };
        let attributes = Attributes::inside(&at.told(found)?, 0);
        Ok((at, attributes))
    }
}

impl Shown<'_> {
    /// As without a format.
    fn described(&self) -> Vec<u8> {
        let Attributes {
            size,
            sectors,
            ino,
            links,
            uid,
            gid,
            ..
        } = self.attributes;
        let device = match text::is_device(self.attributes) {
            true => {
                let (major, minor) = text::device_numbers(self.attributes);
                format!("     Device type: {major},{minor}")
            }
            false => String::new(),
        };
        let mut out = String::new();
        let _ = writeln!(
            out,
            "  Size: {size:<10}\tBlocks: {sectors:<10} IO Block: {:<6} {}",
            self.at.fs.statfs().block_size_bytes,
            text::kind_name(self.attributes)
        );
        let _ = writeln!(out, " Inode: {ino:<10}  Links: {links}{device}");
        let _ = writeln!(
            out,
            "Access: ({:04o}/{})  Uid: ({uid:5}/{:>8})   Gid: ({gid:5}/{:>8})",
            self.attributes.permissions,
            text::mode_string(self.attributes),
            self.people.user(*uid),
            self.people.group(*gid)
        );
        for (name, time) in [
            ("Access", Some(self.attributes.accessed)),
            ("Modify", Some(self.attributes.modified)),
            ("Change", Some(self.attributes.changed)),
            (" Birth", self.attributes.born),
        ] {
            let time = time.map_or("-".to_owned(), text::full_time);
            let _ = writeln!(out, "{name}: {time}");
        }
        let name = self.with_target(&|name| for_terminal(&name));
        [b"  File: ", name.as_slice(), b"\n", out.as_bytes()].concat()
    }

    /// The name, with what a symbolic link leads to; `written` says how they are written.
    fn with_target(&self, written: &dyn Fn(Vec<u8>) -> Vec<u8>) -> Vec<u8> {
        let name = written(self.at.address.to_os_string().into_encoded_bytes());
        let is_symlink = self.attributes.kind == FileKind::Symlink;
        match is_symlink.then(|| self.at.fs.read_link(self.at.path())) {
            Some(Ok(target)) => {
                let target = written(target.into_os_string().into_encoded_bytes());
                [&*name, b" -> ", &*target].concat()
            }
            _ => name,
        }
    }

    fn formatted(&self, format: &OsStr, has_escapes: bool) -> Vec<u8> {
        expanded(format, has_escapes, &|field, directive| {
            self.field(field, directive)
        })
    }

    /// A directive with its flags; of seconds the precision says how many digits follow the point.
    fn field(&self, field: &str, directive: u8) -> Vec<u8> {
        let time = match directive {
            b'X' => Some(self.attributes.accessed),
            b'Y' => Some(self.attributes.modified),
            b'Z' => Some(self.attributes.changed),
            b'W' => self.attributes.born,
            _ => None,
        };
        match (time, field.split_once('.')) {
            (Some(time), Some((before, digits))) => {
                let count = digits.parse().unwrap_or(9).min(9);
                let nanos = format!("{:09}", time.nanos);
                let value = match count {
                    0 => time.seconds.to_string(),
                    count => format!("{}.{}", time.seconds, &nanos[..count]),
                };
                text::padded(before, value.into_bytes())
            }
            _ => match directive {
                b'n' => {
                    let name = self.at.address.to_os_string().into_encoded_bytes();
                    text::padded_text(field, name)
                }
                b'N' => text::padded_text(field, self.with_target(&in_quotes)),
                b'A' | b'F' | b'U' | b'G' | b'm' | b'C' | b'x' | b'y' | b'z' | b'w' => {
                    text::padded_text(field, self.directive(field, directive))
                }
                directive => text::padded(field, self.directive(field, directive)),
            },
        }
    }

    /// SELinux' label.
    fn label(&self) -> String {
        let label = self
            .at
            .fs
            .symlink_get_xattr(self.at.path(), "security.selinux");
        let label = label.map(|label| String::from_utf8_lossy(&label).into_owned());
        label.map_or("?".to_owned(), |label| {
            label.trim_end_matches('\0').to_owned()
        })
    }

    fn directive(&self, field: &str, directive: u8) -> Vec<u8> {
        let Attributes {
            permissions,
            uid,
            gid,
            size,
            sectors,
            ino,
            links,
            ..
        } = self.attributes;
        let attributes = self.attributes;
        let (major, minor) = text::device_numbers(attributes);
        let seconds = |time: Option<Time>| time.map_or(0, |time| time.seconds).to_string();
        let full = |time: Option<Time>| time.map_or("-".to_owned(), text::full_time);
        match directive {
            b'%' => "%".to_owned(),
            b'a' if field.contains('#') => format!("0{permissions:o}"),
            b'a' => format!("{permissions:o}"),
            b'A' => text::mode_string(attributes),
            b'f' if field.contains('#') => format!("{:#x}", attributes.mode()),
            b'f' => format!("{:x}", attributes.mode()),
            b'F' => text::kind_name(attributes).to_owned(),
            b's' if field.contains('+') => format!("+{size}"),
            b's' if field.contains(' ') => format!(" {size}"),
            b's' => size.to_string(),
            b'b' => sectors.to_string(),
            b'B' => "512".to_owned(),
            b'o' => self.at.fs.statfs().block_size_bytes.to_string(),
            b'h' => links.to_string(),
            b'i' => ino.to_string(),
            b'u' => uid.to_string(),
            b'g' => gid.to_string(),
            b'U' => self.people.user(*uid),
            b'G' => self.people.group(*gid),
            b't' => format!("{major:x}"),
            b'T' => format!("{minor:x}"),
            b'd' | b'D' => "0".to_owned(),
            b'r' if field.ends_with('H') => major.to_string(),
            b'r' if field.ends_with('L') => minor.to_string(),
            b'r' => attributes.rdev.to_string(),
            b'R' => format!("{:x}", attributes.rdev),
            b'C' => self.label(),
            b'm' => "/".to_owned(),
            b'x' => full(Some(attributes.accessed)),
            b'y' => full(Some(attributes.modified)),
            b'z' => full(Some(attributes.changed)),
            b'w' => full(attributes.born),
            b'X' => seconds(Some(attributes.accessed)),
            b'Y' => seconds(Some(attributes.modified)),
            b'Z' => seconds(Some(attributes.changed)),
            b'W' => seconds(attributes.born),
            _ => "?".to_owned(),
        }
        .into_bytes()
    }
}

/// As a shell reads it.
fn in_quotes(name: Vec<u8>) -> Vec<u8> {
    let parts: Vec<&[u8]> = name.split(|byte| *byte == b'\'').collect();
    [b"'", parts.join(&b"'\\''"[..]).as_slice(), b"'"].concat()
}

/// What stands behind a backslash.
fn escape(bytes: &mut Peekable<impl Iterator<Item = u8>>) -> u8 {
    if let Some(byte) = number(bytes, 8, 3) {
        return byte;
    }
    match bytes.next() {
        Some(b'x') => number(bytes, 16, 2).unwrap_or(b'x'),
        Some(b'a') => 7,
        Some(b'b') => 8,
        Some(b'e') => 27,
        Some(b'f') => 12,
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'v') => 11,
        Some(other) => other,
        None => b'\\',
    }
}

/// A number of so many digits at most, if one is there.
fn number(bytes: &mut Peekable<impl Iterator<Item = u8>>, base: u32, digits: u32) -> Option<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(base);
    let mut value = None;
    for _ in 0..digits {
        let Some(byte) = bytes.next_if(|byte| digit(byte).is_some()) else {
            break;
        };
        value = Some(value.unwrap_or(0) * base + digit(&byte).unwrap_or(0));
    }
    value.map(|value| value as u8)
}

/// A format with what `field` says of the flags and the letter of each directive. A letter that
/// stands between these is the last of the flags.
fn expanded(format: &OsStr, has_escapes: bool, field_of: &dyn Fn(&str, u8) -> Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = format.as_encoded_bytes().iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if has_escapes => out.push(escape(&mut bytes)),
            b'%' => {
                let flags = |byte: &u8| b"#+- '.0123456789".contains(byte);
                let mut field = String::new();
                while let Some(flag) = bytes.next_if(flags) {
                    field.push(char::from(flag));
                }
                if let Some(half) = bytes.next_if(|byte| matches!(byte, b'H' | b'L')) {
                    field.push(char::from(half));
                }
                match bytes.next() {
                    Some(directive) => out.extend(field_of(&field, directive)),
                    None => out.push(b'%'),
                }
            }
            byte => out.push(byte),
        }
    }
    out
}
