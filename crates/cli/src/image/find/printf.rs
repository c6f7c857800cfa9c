//! What `-printf` prints.

use finefs::FileKind;
use finefs_image::Time;
use finefs_image::walk::{Found, letter};

use super::shown;
use super::times::Which;
use crate::image::people::People;
use crate::image::session::At;
use crate::image::text::for_terminal;
use crate::image::{clock, text};

/// A format that has been read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Format(Vec<Part>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(Vec<u8>),
    /// A directive, with the flags and the width that stand before it.
    Field {
        flags: String,
        letter: u8,
    },
    /// A time, and how it is shown: a letter of strftime(3), `@` or `+`; none as ctime(3) does.
    Time {
        which: Which,
        shape: Option<char>,
    },
    /// `\c`
    Stop,
}

/// The directives that are known.
const LETTERS: &[u8] = b"pPfhsbkmMuUgGniylYdDtacH";

impl Format {
    /// Reads a format.
    pub fn parse(format: &[u8]) -> Result<Format, String> {
        let mut parts = Vec::new();
        let mut bytes = format.iter().copied().peekable();
        let mut text = Vec::new();
        while let Some(byte) = bytes.next() {
            let part = match byte {
                b'\\' => match bytes.next() {
                    Some(b'c') => Part::Stop,
                    Some(digit @ b'0'..=b'7') => {
                        let mut value = u32::from(digit - b'0');
                        for _ in 0..2 {
                            let Some(next) = bytes.next_if(|byte| (b'0'..=b'7').contains(byte))
                            else {
                                break;
                            };
                            value = value * 8 + u32::from(next - b'0');
                        }
                        text.push(value as u8);
                        continue;
                    }
                    other => {
                        text.extend(escape(other));
                        continue;
                    }
                },
                b'%' if bytes.next_if_eq(&b'%').is_some() => {
                    text.push(b'%');
                    continue;
                }
                b'%' => field(&mut bytes)?,
                byte => {
                    text.push(byte);
                    continue;
                }
            };
            parts.push(Part::Text(std::mem::take(&mut text)));
            parts.push(part);
        }
        parts.push(Part::Text(text));
        Ok(Format(parts))
    }

    /// What it prints of a file.
    pub fn print(&self, at: &At, start: &At, found: &Found, people: &People) -> Vec<u8> {
        let mut out = Vec::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend(text),
                Part::Stop => break,
                Part::Field { flags, letter } => {
                    let value = value(*letter, at, start, found, people);
                    let value = for_terminal(&value);
                    out.extend(text::padded(flags, value));
                }
                Part::Time { which, shape } => {
                    out.extend(time(which.of(&found.attributes), *shape).bytes());
                }
            }
        }
        out
    }
}

/// What stands behind a backslash.
fn escape(letter: Option<u8>) -> Vec<u8> {
    match letter {
        Some(b'n') => vec![b'\n'],
        Some(b't') => vec![b'\t'],
        Some(b'r') => vec![b'\r'],
        Some(b'a') => vec![7],
        Some(b'b') => vec![8],
        Some(b'f') => vec![12],
        Some(b'v') => vec![11],
        Some(b'\\') | None => vec![b'\\'],
        Some(other) => vec![b'\\', other],
    }
}

type Bytes<'b> = std::iter::Peekable<std::iter::Copied<std::slice::Iter<'b, u8>>>;

fn field(bytes: &mut Bytes<'_>) -> Result<Part, String> {
    let mut flags = String::new();
    let is_flag = |byte: &u8| matches!(byte, b'-' | b'#' | b' ' | b'.' | b'0'..=b'9');
    while let Some(flag) = bytes.next_if(is_flag) {
        flags.push(char::from(flag));
    }
    let refuse = |letter: u8| {
        let known = String::from_utf8_lossy(LETTERS);
        format!(
            "-printf %{}: not known; there are {known}, and A, B, C, T with a letter of date(1)",
            char::from(letter)
        )
    };
    let letter = bytes.next().ok_or("-printf: the format ends with %")?;
    let which = match letter {
        b'A' => Which::Accessed,
        b'B' => Which::Born,
        b'C' => Which::Changed,
        b'T' => Which::Modified,
        letter if LETTERS.contains(&letter) => match letter {
            b'a' | b't' | b'c' => {
                let which = match letter {
                    b'a' => Which::Accessed,
                    b't' => Which::Modified,
                    _ => Which::Changed,
                };
                return Ok(Part::Time { which, shape: None });
            }
            letter => return Ok(Part::Field { flags, letter }),
        },
        letter => return Err(refuse(letter)),
    };
    let shape = bytes.next().ok_or_else(|| refuse(letter))?;
    Ok(Part::Time {
        which,
        shape: Some(char::from(shape)),
    })
}

fn value(letter_of: u8, at: &At, start: &At, found: &Found, people: &People) -> Vec<u8> {
    let attributes = &found.attributes;
    let path = found.path.as_os_str();
    let name = found.path.file_name().unwrap_or(path);
    let kind = match letter(attributes.kind) {
        '-' => 'f',
        other => other,
    };
    let number = |value: u64| value.to_string().into_bytes();
    match letter_of {
        b'p' => shown(at),
        b'P' => {
            let below = found.path.strip_prefix(start.path());
            let below = below.unwrap_or(&found.path);
            below.as_os_str().as_encoded_bytes().to_vec()
        }
        b'f' => name.as_encoded_bytes().to_vec(),
        b'h' => shown(&at.with(found.path.parent().unwrap_or(&found.path))),
        b'H' => shown(start),
        b's' => number(attributes.size),
        b'b' => number(attributes.sectors),
        b'k' => number(attributes.sectors.div_ceil(2)),
        b'm' => format!("{:o}", attributes.permissions).into_bytes(),
        b'M' => text::mode_string(attributes).into_bytes(),
        b'u' => people.user(attributes.uid).into_bytes(),
        b'g' => people.group(attributes.gid).into_bytes(),
        b'U' => number(attributes.uid.into()),
        b'G' => number(attributes.gid.into()),
        b'n' => number(attributes.links),
        b'i' => number(attributes.ino),
        b'D' => number(0),
        b'd' => number(found.depth as u64),
        b'y' => kind.to_string().into_bytes(),
        b'Y' => behind(at, kind).to_string().into_bytes(),
        b'l' if attributes.kind == FileKind::Symlink => {
            let target = at.fs.read_link(at.path()).unwrap_or_default();
            target.into_os_string().into_encoded_bytes()
        }
        _ => Vec::new(),
    }
}

/// The kind of what a symbolic link leads to; N where there is nothing.
fn behind(at: &At, kind: char) -> char {
    match at.fs.metadata(at.path()) {
        _ if kind != 'l' => kind,
        Ok(found) => match letter(found.file_type().kind()) {
            '-' => 'f',
            other => other,
        },
        Err(_) => 'N',
    }
}

fn time(time: Time, shape: Option<char>) -> String {
    // find has a tenth digit.
    let fraction = format!(".{:09}0", time.nanos);
    match shape {
        None => {
            let shown = text::formatted("%a %b %e %H:%M:%S", time);
            format!("{shown}{fraction} {}", clock::local(time.seconds).year)
        }
        Some('@') => format!("{}{fraction}", time.seconds),
        Some('+') => format!("{}{fraction}", text::formatted("%Y-%m-%d+%H:%M:%S", time)),
        Some('S') => format!("{}{fraction}", text::formatted("%S", time)),
        Some('T' | 'X') => format!("{}{fraction}", text::formatted("%H:%M:%S", time)),
        Some(letter) => text::formatted(&format!("%{letter}"), time),
    }
}
