//! `finefs stat`

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use finefs::FileKind;
use finefs_image::{Attributes, Time};

use super::people::People;
use super::record::Record;
use super::session::{At, Context, Printer, Session, print_json};
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
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

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
        for operand in &self.operands {
            let found = self.find(&mut session, operand);
            let Some((at, attributes)) = session.check(found) else {
                continue;
            };
            if self.json {
                records.push(Record::new(&at, &attributes));
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
                (None, None) => printer.put(shown.described().as_bytes())?,
            }
        }
        if self.json {
            print_json(&records)?;
        }
        printer.flush()?;
        session.end()
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
    fn described(&self) -> String {
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
        let _ = writeln!(out, "  File: {}", self.with_target());
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
        out
    }

    fn with_target(&self) -> String {
        let place = &self.at.address;
        let is_symlink = self.attributes.kind == FileKind::Symlink;
        match is_symlink.then(|| self.at.fs.read_link(self.at.path())) {
            Some(Ok(target)) => format!("{place} -> {}", target.display()),
            _ => place.to_string(),
        }
    }

    fn formatted(&self, format: &OsStr, has_escapes: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let mut bytes = format.as_encoded_bytes().iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            match byte {
                b'\\' if has_escapes => out.push(match bytes.next() {
                    Some(b'n') => b'\n',
                    Some(b't') => b'\t',
                    Some(b'0') => 0,
                    Some(other) => other,
                    None => b'\\',
                }),
                b'%' => {
                    let flags = |byte: &u8| matches!(byte, b'#' | b'-' | b'0' | b'1'..=b'9' | b'.');
                    let mut field = String::new();
                    while let Some(flag) = bytes.next_if(flags) {
                        field.push(char::from(flag));
                    }
                    match bytes.next() {
                        Some(directive) => out.extend(padded(&field, self.directive(directive))),
                        None => out.push(b'%'),
                    }
                }
                byte => out.push(byte),
            }
        }
        out
    }

    fn directive(&self, directive: u8) -> Vec<u8> {
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
            b'n' => self.at.address.to_string(),
            b'N' => self.with_target(),
            b'a' => format!("{permissions:o}"),
            b'A' => text::mode_string(attributes),
            b'f' => format!("{:x}", attributes.mode()),
            b'F' => text::kind_name(attributes).to_owned(),
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

/// With the width and the flags that stand between `%` and the directive.
fn padded(field: &str, value: Vec<u8>) -> Vec<u8> {
    let (flags, _precision) = field.split_once('.').unwrap_or((field, ""));
    let width_at = flags.find(|c: char| ('1'..='9').contains(&c));
    let (flags, width) = flags.split_at(width_at.unwrap_or(flags.len()));
    let missing = width
        .parse()
        .unwrap_or(0_usize)
        .min(4096)
        .saturating_sub(value.len());
    let fill = |byte: u8| vec![byte; missing];
    if flags.contains('-') {
        [value, fill(b' ')].concat()
    } else if flags.contains('0') {
        [fill(b'0'), value].concat()
    } else {
        [fill(b' '), value].concat()
    }
}
