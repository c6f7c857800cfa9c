//! `finefs lsattr` and `finefs chattr`

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::str::FromStr;

use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args};
use finefs::{Encryption, FileFlags, FileKind};
use finefs_image::walk::{Step, Walk};
use serde::Serialize;

use super::Where;
use super::record::hex_unless_utf8;
use super::session::{At, Context, Printer, Session, print_json};
use crate::{CliResult, Failure};

/// The flags by their letters, in the order of lsattr(1).
const LETTERS: [(char, FileFlags); 22] = [
    ('s', FileFlags::SECURE_DELETION),
    ('u', FileFlags::UNDELETE),
    ('S', FileFlags::SYNC),
    ('D', FileFlags::DIR_SYNC),
    ('i', FileFlags::IMMUTABLE),
    ('a', FileFlags::APPEND_ONLY),
    ('d', FileFlags::NO_DUMP),
    ('A', FileFlags::NO_ATIME),
    ('c', FileFlags::COMPRESS),
    ('E', FileFlags::ENCRYPTED),
    ('j', FileFlags::JOURNAL_DATA),
    ('I', FileFlags::INDEX),
    ('t', FileFlags::NO_TAIL),
    ('T', FileFlags::TOP_DIR),
    ('e', FileFlags::EXTENTS),
    ('C', FileFlags::NO_COW),
    ('x', FileFlags::DAX),
    ('F', FileFlags::CASEFOLD),
    ('N', FileFlags::INLINE_DATA),
    ('P', FileFlags::PROJECT_INHERIT),
    ('V', FileFlags::VERITY),
    ('m', FileFlags::NO_COMPRESS),
];

/// List the flags of files in an image, as lsattr(1)
#[derive(Args)]
pub(crate) struct Lsattr {
    /// IMAGE:/PATH; IMAGE is its root. What a directory holds is listed
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    /// What is below directories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Directories themselves, not what they hold
    #[arg(short, long, conflicts_with = "recursive")]
    directory: bool,
    /// Names that begin with a dot too
    #[arg(short, long)]
    all: bool,
    /// The project in front
    #[arg(short, long)]
    project: bool,
    /// The version, which tells it from files that had its inode before, in front
    #[arg(short = 'v', long = "generation")]
    generation: bool,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

/// Change the flags of files in an image, as chattr(1)
///
/// i: nothing can be changed; a: data can only be added; A: the access time stays; d: dump leaves
/// it out; S, D: changes are durable at once; E: what is made in a directory, which must be empty,
/// is encrypted by the key of --key. c, P, s, t, T and u are kept for other programs.
#[derive(Args)]
pub(crate) struct Chattr {
    /// + and the letters of flags to set, - and those to take away, = and all that are to be set
    #[arg(
        value_name = "+-=[aAcdDEiPsStTu]",
        allow_hyphen_values = true,
        value_parser = OsStringValueParser::new().try_map(First::read)
    )]
    first: First,
    /// What is changed; symbolic links and special files are left out. More flags may stand before
    /// it, as in +d -A
    #[arg(
        value_name = "IMAGE:/PATH",
        allow_hyphen_values = true,
        required_unless_present = "project"
    )]
    operands: Vec<OsString>,
    /// Let the files count for this project; flags may be left out then
    #[arg(short, long, value_name = "PROJECT")]
    project: Option<u32>,
    /// With +E: what encrypts; aes-256 without it
    #[arg(
        long,
        value_name = "CIPHER",
        value_parser = PossibleValuesParser::new(Encryption::ALL.map(Encryption::name))
            .try_map(|name| encryption(&name))
    )]
    cipher: Option<Encryption>,
    /// What is below directories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Say nothing of what could not be changed
    #[arg(short = 'f', long)]
    force: bool,
    /// Print what is changed
    #[arg(short = 'V', long, action = ArgAction::SetTrue)]
    verbose: bool,
    #[command(flatten)]
    place: Where,
}

/// A file's flags as scripts read them.
#[derive(Serialize)]
struct Record {
    path: String,
    /// The bytes of a path that is not UTF-8, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// The letters of lsattr.
    flags: String,
    /// FS_*_FL of `linux/fs.h`.
    bits: u32,
    project: u32,
    generation: u32,
}

/// Which flags are set and taken away.
/// What can be named; `=` takes no `F` away, and nothing an `E`.
const CHANGEABLE: FileFlags = FileFlags::SETTABLE
    .union(FileFlags::CASEFOLD)
    .union(FileFlags::ENCRYPTED);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Change {
    added: FileFlags,
    removed: FileFlags,
}

/// What comes first: flags, or with -p a file.
#[derive(Clone, PartialEq, Eq, Debug)]
enum First {
    Change(Change),
    File(OsString),
}

impl First {
    fn read(word: OsString) -> Result<First, String> {
        match word.as_encoded_bytes() {
            [b'+' | b'-' | b'=', ..] => word.to_string_lossy().parse().map(First::Change),
            _ => Ok(First::File(word)),
        }
    }
}

impl Change {
    /// This one and another.
    fn and(self, other: Change) -> Result<Change, String> {
        let both = Change {
            added: self.added | other.added,
            removed: self.removed | other.removed,
        };
        match (both.added & both.removed).is_empty() {
            true => Ok(both),
            false => Err("one flag cannot be both set and taken away".to_owned()),
        }
    }
}

fn first_byte(word: &OsStr) -> u8 {
    word.as_encoded_bytes().first().copied().unwrap_or(0)
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Change, String> {
        let (operator, letters) = match text.split_at_checked(1) {
            Some((operator @ ("+" | "-" | "="), letters)) => (operator, letters),
            _ => return Err("it begins with +, - or =".to_owned()),
        };
        let mut named = FileFlags::empty();
        for letter in letters.chars() {
            let known = LETTERS.iter().find(|(known, _)| *known == letter);
            match known {
                Some((_, flag)) if CHANGEABLE.contains(*flag) => named |= *flag,
                Some(_) => {
                    return Err(format!(
                        "'{letter}' tells of the format, it cannot be changed"
                    ));
                }
                None => return Err(format!("there is no flag '{letter}'")),
            }
        }
        if operator == "-" && named.contains(FileFlags::ENCRYPTED) {
            return Err("'E' stays: what is encrypted can only be copied elsewhere".to_owned());
        }
        let none = FileFlags::empty();
        let (added, removed) = match operator {
            "+" => (named, none),
            "-" => (none, named),
            _ => (named, FileFlags::SETTABLE - named),
        };
        Ok(Change { added, removed })
    }
}

impl Lsattr {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs lsattr", &self.place);
        let mut printer = Printer::new();
        let mut records = Vec::new();
        for operand in &session.operands(&self.operands) {
            let at = session.read(operand);
            let Some(at) = session.check(at) else {
                continue;
            };
            let mut listed = Vec::new();
            self.list(&mut session, &at, &mut listed);
            for place in listed {
                let found = place.told(place.fs.symlink_metadata(place.path()));
                let Some(found) = session.check(found) else {
                    continue;
                };
                let flags = found.flags();
                if self.json {
                    let letters = LETTERS.iter().filter(|(_, flag)| flags.contains(*flag));
                    records.push(Record {
                        path: place.address.to_string(),
                        path_hex: hex_unless_utf8(&place.address.to_os_string()),
                        flags: letters.map(|(letter, _)| *letter).collect(),
                        bits: flags.bits(),
                        project: found.project(),
                        generation: found.generation(),
                    });
                } else {
                    let path = place.address.to_os_string();
                    let mut columns = columns(flags);
                    if self.generation {
                        columns = format!("{:<10} {columns}", found.generation());
                    }
                    if self.project {
                        columns = format!("{:5} {columns}", found.project());
                    }
                    let path = path.as_encoded_bytes();
                    printer.put_line(&[columns.as_bytes(), b" ", path].concat())?;
                }
            }
        }
        if self.json {
            print_json(&records)?;
        }
        printer.flush()?;
        session.end()
    }

    /// What is to be shown of an operand.
    fn list(&self, session: &mut Session, at: &At, listed: &mut Vec<At>) {
        let shows = |name: Option<&OsStr>| {
            let is_hidden = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
            self.all || !name.is_some_and(is_hidden)
        };
        for step in Walk::new(&at.fs, &at.address) {
            let Some(step) = session.check(step) else {
                continue;
            };
            let Step::Enter(found) = step else {
                continue;
            };
            let is_operand = found.depth == 0;
            let is_shown = match is_operand {
                true => self.directory || !found.attributes.is_directory(),
                false => !self.directory && (self.recursive || found.depth == 1),
            };
            let is_shown = is_shown && (is_operand || shows(found.path.file_name()));
            if is_shown && has_flags(found.attributes.kind) {
                listed.push(at.with(&found.path));
            }
            if is_operand && self.directory {
                return;
            }
            let is_listed = is_operand || self.recursive;
            if self.all && is_listed && found.attributes.is_directory() {
                let names = [".", ".."].map(|name| at.with(found.path.join(name)));
                listed.extend(names);
            }
        }
    }
}

impl Chattr {
    pub(crate) fn run(mut self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs chattr", &self.place);
        if let Some(encryption) = self.cipher {
            session = session.encrypting_by(encryption);
        }
        if let First::File(file) = &self.first {
            if self.project.is_none() {
                return Err(Failure::new("the flags begin with +, - or ="));
            }
            self.operands.insert(0, file.clone());
            self.first = First::Change(Change::default());
        }
        let more = self.operands.iter();
        let more = more.take_while(|word| b"+-=".contains(&first_byte(word)));
        let count = more.count();
        for word in self.operands.drain(..count) {
            let First::Change(change) = &self.first else {
                continue;
            };
            let next = word.to_string_lossy().parse();
            let both = next.and_then(|next| change.and(next));
            self.first = First::Change(both.map_err(Failure::new)?);
        }
        if self.operands.is_empty() {
            return Err(Failure::new("name the files, as IMAGE:/PATH"));
        }
        let encrypts = |change: &Change| change.added.contains(FileFlags::ENCRYPTED);
        if self.cipher.is_some()
            && !matches!(&self.first, First::Change(change) if encrypts(change))
        {
            return Err(Failure::new("--cipher goes with +E"));
        }
        session.edit_each(&self.operands, |session, at| match self.recursive {
            true => {
                for step in Walk::new(&at.fs, &at.address) {
                    let Some(Step::Enter(found)) = session.check(step) else {
                        continue;
                    };
                    if has_flags(found.attributes.kind) {
                        let changed = self.change(&at.with(found.path));
                        self.note(session, changed);
                    }
                }
                Ok(())
            }
            false => {
                let changed = self.change(at);
                self.note(session, changed);
                Ok(())
            }
        })
    }

    fn note(&self, session: &mut Session, changed: finefs_image::Result<()>) {
        match (changed, self.force) {
            (Ok(()), _) => {}
            (Err(_), true) => session.fail_silently(),
            (Err(error), false) => session.fail(error),
        }
    }

    fn change(&self, at: &At) -> finefs_image::Result<()> {
        let found = at.told(at.fs.symlink_metadata(at.path()))?;
        if !has_flags(found.file_type().kind()) {
            return Err(at.refused("neither a file nor a directory: it has no flags"));
        }
        let Change { added, removed } = match &self.first {
            First::Change(change) => *change,
            First::File(_) => Change::default(),
        };
        let encrypts = added.contains(FileFlags::ENCRYPTED);
        if encrypts && !found.is_dir() {
            return Err(at.refused("no directory: only an empty one can come to be encrypted"));
        }
        if self.cipher.is_some() && found.flags().contains(FileFlags::ENCRYPTED) {
            return Err(at.refused("encrypted already: a directory keeps its cipher"));
        }
        if let Some(project) = self.project {
            at.told(at.fs.set_project(at.path(), project))?;
        }
        if !(added | removed).is_empty() {
            at.told(at.fs.change_flags(at.path(), added, removed))?;
        }
        if self.verbose {
            let flags = (found.flags() | added) - removed;
            crate::output::say(format!("{}: {}", at.address, columns(flags)));
        }
        Ok(())
    }
}

/// The one of this name.
fn encryption(name: &str) -> Result<Encryption, &'static str> {
    let mut all = Encryption::ALL.into_iter();
    all.find(|encryption| encryption.name() == name)
        .ok_or("it is none of them")
}

/// True for those whose flags chattr(1) gets at.
fn has_flags(kind: FileKind) -> bool {
    matches!(kind, FileKind::Regular | FileKind::Directory)
}

/// As lsattr(1) shows them.
fn columns(flags: FileFlags) -> String {
    let shown = |(letter, flag): &(char, FileFlags)| match flags.contains(*flag) {
        true => *letter,
        false => '-',
    };
    LETTERS.iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_as_chattr_reads_them() {
        let change: Change = "+ia".parse().unwrap();
        assert_eq!(change.added, FileFlags::PRIVILEGED);
        assert!(change.removed.is_empty());
        let change: Change = "=d".parse().unwrap();
        assert_eq!(change.added, FileFlags::NO_DUMP);
        assert_eq!(change.removed, FileFlags::SETTABLE - FileFlags::NO_DUMP);
        let change: Change = "-A".parse().unwrap();
        assert_eq!(change.removed, FileFlags::NO_ATIME);
        for wrong in ["", "i", "+y", "+e", "-I", "*i"] {
            assert!(wrong.parse::<Change>().is_err(), "{wrong}");
        }
    }
}
