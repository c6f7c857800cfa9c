//! `finefs getfattr` and `finefs setfattr`

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgAction, Args, ValueEnum};
use finefs::{FileKind, XattrMode};
use finefs_image::walk::{Step, Walk};
use finefs_image::{Error, Operand, Result};

use super::Where;
use super::session::{At, Context, Printer, Session};
use crate::CliResult;

/// Show extended attributes of files of an image, as getfattr(1)
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Getfattr {
    /// IMAGE:/PATH; IMAGE is its root
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    /// Values too
    #[arg(short, long)]
    dump: bool,
    /// This attribute, with its value
    #[arg(short, long, value_name = "NAME")]
    name: Option<OsString>,
    /// Attributes whose names have this regular expression, - for all
    #[arg(
        short,
        long,
        value_name = "PATTERN",
        default_value = "^user\\.",
        value_parser = Pattern::read,
        allow_hyphen_values = true
    )]
    r#match: Pattern,
    /// How values are written
    #[arg(short, long, value_name = "ENCODING")]
    encoding: Option<Encoding>,
    /// The value alone, as it is
    #[arg(long)]
    only_values: bool,
    /// Of symbolic links, not of what they lead to
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Of all that is in directories too; symbolic links there are left out without -h and -L
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Of what symbolic links in directories lead to
    #[arg(short = 'L', long, overrides_with = "physical")]
    logical: bool,
    /// Of no symbolic link
    #[arg(short = 'P', long, overrides_with = "logical")]
    physical: bool,
    /// Names as they are, as without it
    #[arg(long)]
    absolute_names: bool,
    #[command(flatten)]
    place: Where,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Which names are shown.
#[derive(Clone, Debug)]
enum Pattern {
    All,
    #[cfg(feature = "build")]
    Regex(regex::bytes::Regex),
    /// What they begin with.
    #[cfg(not(feature = "build"))]
    Start(String),
}

impl Pattern {
    fn read(text: &str) -> std::result::Result<Pattern, String> {
        match text {
            "-" => Ok(Pattern::All),
            text => Pattern::of(text),
        }
    }

    #[cfg(feature = "build")]
    fn of(text: &str) -> std::result::Result<Pattern, String> {
        let built = regex::bytes::RegexBuilder::new(text).unicode(false).build();
        built.map(Pattern::Regex).map_err(|error| error.to_string())
    }

    #[cfg(not(feature = "build"))]
    fn of(text: &str) -> std::result::Result<Pattern, String> {
        let start = text.trim_start_matches('^').replace("\\.", ".");
        Ok(Pattern::Start(start))
    }

    fn has(&self, name: &OsStr) -> bool {
        match self {
            Pattern::All => true,
            #[cfg(feature = "build")]
            Pattern::Regex(regex) => regex.is_match(name.as_encoded_bytes()),
            #[cfg(not(feature = "build"))]
            Pattern::Start(start) => name.as_encoded_bytes().starts_with(start.as_bytes()),
        }
    }
}

/// How values are written.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Encoding {
    Text,
    Hex,
    Base64,
}

/// Set or remove an extended attribute of files of an image, as setfattr(1)
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Setfattr {
    /// The files
    #[arg(value_name = "IMAGE:/PATH", required_unless_present = "restore")]
    operands: Vec<OsString>,
    /// Set what getfattr -d has printed into a file, - for standard input, of the files that are
    /// named there, or of those below an operand
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "remove"])]
    restore: Option<PathBuf>,
    /// Set this attribute
    #[arg(short, long, value_name = "NAME",
          required_unless_present_any = ["remove", "restore"])]
    name: Option<OsString>,
    /// Its value: text, "text" with \ooo, 0xHEX or 0sBASE64
    #[arg(
        short,
        long,
        requires = "name",
        default_value = "",
        allow_hyphen_values = true
    )]
    value: OsString,
    /// Remove this attribute
    #[arg(short = 'x', long, value_name = "NAME", conflicts_with = "name")]
    remove: Option<OsString>,
    /// Of symbolic links, not of what they lead to
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    place: Where,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

impl Getfattr {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs getfattr", &self.place);
        let mut printer = Printer::new();
        for operand in &session.operands(&self.operands) {
            let at = session.read(operand);
            let Some(at) = session.check(at) else {
                continue;
            };
            if !self.recursive {
                self.print(&mut session, &mut printer, &at)?;
                continue;
            }
            let mut start = at.clone();
            let is_followed = !self.physical && !self.no_dereference;
            if is_followed && let Ok(path) = at.fs.canonicalize(at.path()) {
                start = at.with(path);
            }
            for step in Walk::new(&start.fs, &start.address) {
                let Some(Step::Enter(found)) = session.check(step) else {
                    continue;
                };
                let is_link = found.attributes.kind == FileKind::Symlink;
                let is_left_out = is_link && (self.physical || !self.no_dereference);
                if printer.is_gone() || is_left_out && !self.logical {
                    continue;
                }
                let below = found.path.strip_prefix(start.path()).unwrap_or(&found.path);
                let shown = match below.as_os_str().is_empty() {
                    true => at.clone(),
                    false => at.join(below.as_os_str()),
                };
                self.print(&mut session, &mut printer, &shown)?;
            }
        }
        printer.flush()?;
        session.end()
    }

    /// Prints the attributes of a file that has some.
    fn print(&self, session: &mut Session, printer: &mut Printer, at: &At) -> CliResult<()> {
        let found = session.check(at.told(self.find(at)));
        let Some(xattrs) = found.filter(|found| !found.is_empty()) else {
            return Ok(());
        };
        if self.only_values {
            return xattrs.iter().try_for_each(|(_, value)| printer.put(value));
        }
        printer.put(&[b"# file: ", &*quoted(at), b"\n"].concat())?;
        for (name, value) in &xattrs {
            printer.put(name.as_encoded_bytes())?;
            if self.dump || self.name.is_some() {
                printer.put(b"=")?;
                printer.put(&encoded(value, self.encoding))?;
            }
            printer.put(b"\n")?;
        }
        printer.put(b"\n")
    }

    fn find(&self, at: &At) -> finefs::Result<Vec<(OsString, Vec<u8>)>> {
        let get = |name: &OsStr| match self.no_dereference {
            true => at.fs.symlink_get_xattr(at.path(), name),
            false => at.fs.get_xattr(at.path(), name),
        };
        if let Some(name) = &self.name {
            return Ok(vec![(name.clone(), get(name)?)]);
        }
        let mut names = match self.no_dereference {
            true => at.fs.symlink_list_xattrs(at.path()),
            false => at.fs.list_xattrs(at.path()),
        }?;
        names.sort();
        names.retain(|name| self.r#match.has(name));
        let pair = |name: OsString| get(&name).map(|value| (name, value));
        names.into_iter().map(pair).collect()
    }
}

impl Setfattr {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs setfattr", &self.place);
        if let Some(file) = &self.restore {
            if self.operands.len() > 1 {
                session.fail("--restore takes one IMAGE:/PATH, which the files are below");
                return session.end();
            }
            let file = session.host_file(file);
            let restored = file.and_then(|file| self.restore(&mut session, &file));
            session.check(restored);
            return session.end();
        }
        let value = decoded(self.value.as_bytes());
        session.edit_each(&self.operands, |_, at| {
            let path = at.path();
            let done = match (&self.name, &self.remove) {
                (Some(name), _) => {
                    let value = value
                        .as_deref()
                        .ok_or_else(|| at.refused("invalid value"))?;
                    match self.no_dereference {
                        true => at.fs.symlink_set_xattr(path, name, value, XattrMode::Set),
                        false => at.fs.set_xattr(path, name, value, XattrMode::Set),
                    }
                }
                (None, Some(name)) => match self.no_dereference {
                    true => at.fs.symlink_remove_xattr(path, name),
                    false => at.fs.remove_xattr(path, name),
                },
                (None, None) => Ok(()),
            };
            at.told(done)
        })
    }

    /// Sets what a dump says, file by file; what cannot be set is told.
    fn restore(&self, session: &mut Session, file: &Path) -> Result<()> {
        let shown = file.display().to_string();
        let mut dump = Vec::new();
        let read = match file.as_os_str() == "-" {
            true => std::io::stdin().lock().read_to_end(&mut dump),
            false => std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut dump)),
        };
        read.map_err(|error| Error::host(shown.clone(), error))?;
        let mut at = None;
        for (line, number) in dump.split(|byte| *byte == b'\n').zip(1..) {
            let wrong = |what: &str| Error::new(shown.clone(), format!("line {number}: {what}"));
            if let Some(name) = line.strip_prefix(b"# file: ") {
                let name = OsString::from_vec(unescaped(name));
                let found = self.place_of(session, &name);
                at = session.check(found);
                continue;
            }
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let end = line.iter().position(|byte| *byte == b'=');
            let (name, value) = line.split_at(end.unwrap_or(line.len()));
            let value = decoded(value.strip_prefix(b"=").unwrap_or(value));
            let value = value.ok_or_else(|| wrong("invalid value"))?;
            let Some(at) = &at else {
                continue;
            };
            let name = OsStr::from_bytes(name);
            let done = match self.no_dereference {
                true => at
                    .fs
                    .symlink_set_xattr(at.path(), name, &value, XattrMode::Set),
                false => at.fs.set_xattr(at.path(), name, &value, XattrMode::Set),
            };
            session.check(at.told(done));
        }
        Ok(())
    }

    /// The file that a dump names: below the operand, if there is one.
    fn place_of(&self, session: &mut Session, name: &OsStr) -> Result<At> {
        let Some(operand) = self.operands.first() else {
            return session.write(name);
        };
        let path = match Operand::parse(name) {
            Operand::Image(address) => address.path,
            _ => PathBuf::from(name),
        };
        let below = path.strip_prefix("/").unwrap_or(&path);
        Ok(session.write(operand)?.join(below.as_os_str()))
    }
}

/// The name of a file as getfattr(1) writes it on a line of its own.
fn quoted(at: &At) -> Vec<u8> {
    let name = at.address.to_os_string().into_encoded_bytes();
    let mut out = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'\n' | b'\r' | b'\\' => out.extend(format!("\\{byte:03o}").bytes()),
            byte => out.push(byte),
        }
    }
    out
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// As getfattr writes values: text where it is printable, else base64, unless one is asked for.
fn encoded(value: &[u8], encoding: Option<Encoding>) -> Vec<u8> {
    let is_text = value.iter().all(|byte| (32..127).contains(byte));
    let encoding = encoding.unwrap_or(if is_text {
        Encoding::Text
    } else {
        Encoding::Base64
    });
    match encoding {
        Encoding::Hex => {
            let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("0x{digits}").into_bytes()
        }
        Encoding::Base64 => {
            let mut out = b"0s".to_vec();
            for group in value.chunks(3) {
                let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
                let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
                for index in 0..4 {
                    let letter = BASE64[(bits >> (18 - 6 * index) & 63) as usize];
                    out.push(if index > group.len() { b'=' } else { letter });
                }
            }
            out
        }
        Encoding::Text => {
            let mut out = vec![b'"'];
            for byte in value {
                match byte {
                    b'"' | b'\\' => out.extend([b'\\', *byte]),
                    32..127 => out.push(*byte),
                    byte => out.extend(format!("\\{byte:03o}").bytes()),
                }
            }
            out.push(b'"');
            out
        }
    }
}

/// As setfattr reads values.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let pair = |pair: &[u8]| match pair {
                [high, low] => Some((digit(*high)? << 4 | digit(*low)?) as u8),
                _ => None,
            };
            digits.chunks(2).map(pair).collect()
        }
        [b'0', b's' | b'S', letters @ ..] => decoded_base64(letters),
        [b'"', inner @ .., b'"'] => Some(unescaped(inner)),
        text => Some(text.to_vec()),
    }
}

fn decoded_base64(letters: &[u8]) -> Option<Vec<u8>> {
    let end = letters
        .iter()
        .rposition(|byte| *byte != b'=')
        .map_or(0, |last| last + 1);
    if !letters.len().is_multiple_of(4) || letters.len() - end > 2 {
        return None;
    }
    let mut out = Vec::new();
    for group in letters[..end].chunks(4) {
        let mut bits = 0_u32;
        for index in 0..4 {
            let value = match group.get(index) {
                Some(letter) => BASE64.iter().position(|known| known == letter)? as u32,
                None => 0,
            };
            bits = bits << 6 | value;
        }
        let bytes = bits.to_be_bytes();
        out.extend(&bytes[1..group.len()]);
    }
    Some(out)
}

/// With `\ooo`, `\\` and `\"` as what they stand for.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let octal = |byte: &u8| (b'0'..b'8').contains(byte);
        match rest {
            [a, b, c, after @ ..] if [a, b, c].into_iter().all(octal) => {
                let digit = |byte: &u8| u32::from(byte - b'0');
                out.push((digit(a) << 6 | digit(b) << 3 | digit(c)) as u8);
                rest = after;
            }
            [next, after @ ..] => {
                out.push(*next);
                rest = after;
            }
            [] => out.push(b'\\'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() {
        for value in [&b""[..], b"a", b"ab", b"abc", b"\0\xff\"\\ x", &[7; 100]] {
            for encoding in [Encoding::Text, Encoding::Hex, Encoding::Base64] {
                let text = encoded(value, Some(encoding));
                assert_eq!(decoded(&text).as_deref(), Some(value));
            }
        }
        assert_eq!(encoded(b"kept", None), b"\"kept\"");
        assert_eq!(encoded(&[0, 1], None), b"0sAAE=");
        assert_eq!(decoded(b"0x0"), None);
        assert_eq!(decoded(b"0sA"), None);
    }
}
