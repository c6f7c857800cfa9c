//! Lists of files as sources, in the format of composefs: a line for each file, with all that there
//! is to know of it.
//!
//! # Format
//! `PATH SIZE MODE NLINK UID GID RDEV MTIME PAYLOAD CONTENT DIGEST [XATTR=VALUE]...`, with one
//! blank between. `-` is nothing; `\xXX`, `\n`, `\r`, `\t` and `\\` are bytes. MODE is octal with
//! the kind, and begins with `@` for a further name of the file that PAYLOAD names. PAYLOAD is the
//! target of a symbolic link, or where the data of a regular file is: a path, from the directory of
//! the list on. CONTENT is the data itself. MTIME is `SECONDS.NANOSECONDS`. SIZE may be `-`; NLINK
//! is not looked at. DIGEST is that of a regular file, as fsverity(1) prints it. Empty lines and
//! lines that begin with `#` are left out.
//!
//! # References
//! composefs-dump(5).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use finefs::FileKind;
use finefs_ext_disk::verity::file_digest;

use super::Progress;
use super::content::{Content, Data};
use super::manifest::{Attributes, Kind, Manifest, Missing, Node, ROOT};
use super::unpacked;
use crate::attributes::{Time, Xattr};
use crate::beside::directory_of;
use crate::error::{Error, Result};
use crate::host::HostDir;
use crate::tree::{Follow, SourceDir, check_path_bytes};

/// Fields that each line has.
const FIELDS: usize = 11;

/// Lists what a list has.
pub(super) fn add(manifest: &mut Manifest, path: &Path, progress: &Progress) -> Result<()> {
    let shown = path.display().to_string();
    let failed = |error: std::io::Error| Error::host(shown.clone(), error);
    let file = unpacked::reader(path, progress).map_err(failed)?;
    let mut list = List {
        manifest,
        base: directory_of(path),
        directory: None,
    };
    let mut is_empty = true;
    for (index, line) in BufReader::new(file).split(b'\n').enumerate() {
        progress.check()?;
        let line = line.map_err(failed)?;
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        is_empty = false;
        let place = || format!("{shown}: line {}", index + 1);
        list.line(&line, &place).map_err(|error| match error {
            Refused::Reason(reason) => Error::new(place(), reason),
            Refused::Error(error) => error,
        })?;
        progress.listed.fetch_add(1, Ordering::Relaxed);
    }
    match is_empty {
        true => Err(Error::new(shown, "lists no files")),
        false => Ok(()),
    }
}

/// Why a line is none.
enum Refused {
    Reason(String),
    Error(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Error(error)
    }
}

impl From<String> for Refused {
    fn from(reason: String) -> Refused {
        Refused::Reason(reason)
    }
}

impl From<&str> for Refused {
    fn from(reason: &str) -> Refused {
        Refused::Reason(reason.to_owned())
    }
}

struct List<'a> {
    manifest: &'a mut Manifest,
    /// Where paths of data begin.
    base: &'a Path,
    /// The directory that data was in last.
    directory: Option<(Arc<Path>, HostDir)>,
}

impl List<'_> {
    fn line(
        &mut self,
        line: &[u8],
        place: &dyn Fn() -> String,
    ) -> std::result::Result<(), Refused> {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        if fields.len() < FIELDS {
            let count = fields.len();
            return Err(format!("has {count} fields; {FIELDS} are needed").into());
        }
        let path = PathBuf::from(OsString::from_vec(unescape(fields[0])?));
        if !path.is_absolute() {
            return Err("its path does not begin with a slash".into());
        }
        check_path_bytes(path.as_os_str().len())?;
        let payload = optional(fields[8])?;
        let (mode, is_link) = match fields[2].strip_prefix(b"@") {
            Some(mode) => (mode, true),
            None => (fields[2], false),
        };
        if is_link {
            let target = payload.ok_or("a hard link to nothing")?;
            return self.link(&path, &PathBuf::from(target), place);
        }
        let mode = number(mode, 8, "mode")? as u32;
        let attributes = Attributes {
            permissions: mode & 0o7777,
            uid: number(fields[4], 10, "owner")? as u32,
            gid: number(fields[5], 10, "group")? as u32,
            modified: time(fields[7])?,
            xattrs: xattrs(&fields[FIELDS..])?,
            is_implied: false,
        };
        let rdev = number(fields[6], 10, "device")?;
        let kind = match mode & 0o170_000 {
            0o040_000 => Kind::Directory(BTreeMap::new()),
            0o100_000 => Kind::Regular(self.content(&fields, payload)?),
            0o120_000 => Kind::Symlink(payload.ok_or("a symbolic link to nothing")?.into()),
            0o020_000 => node(FileKind::CharDevice, rdev),
            0o060_000 => node(FileKind::BlockDevice, rdev),
            0o010_000 => node(FileKind::Fifo, 0),
            0o140_000 => node(FileKind::Socket, 0),
            _ => return Err("its mode has no kind of file".into()),
        };
        self.put(&path, Node { kind, attributes }, place)
    }

    fn put(
        &mut self,
        path: &Path,
        node: Node,
        place: &dyn Fn() -> String,
    ) -> std::result::Result<(), Refused> {
        let Some(name) = path.file_name() else {
            if !matches!(node.kind, Kind::Directory(_)) {
                return Err("a name of a directory, and is none".into());
            }
            self.manifest.set_attributes(ROOT, node.attributes);
            return Ok(());
        };
        let above = path.parent().unwrap_or(Path::new("/"));
        let parent = self
            .manifest
            .directory(above, Missing::Make)?
            .unwrap_or(ROOT);
        match node.kind {
            Kind::Directory(_) => self.manifest.put_directory(parent, path, node, place)?,
            _ => self.manifest.put(parent, name, node, place)?,
        };
        Ok(())
    }

    fn link(
        &mut self,
        path: &Path,
        target: &Path,
        place: &dyn Fn() -> String,
    ) -> std::result::Result<(), Refused> {
        let split = |path: &Path| {
            let above = path.parent().unwrap_or(Path::new("/")).to_owned();
            path.file_name().map(|name| (above, name.to_owned()))
        };
        let (Some((above, name)), Some((from, original))) = (split(path), split(target)) else {
            return Err("a hard link of directories".into());
        };
        let missing = || format!("a link to {}, which is not there", target.display());
        let from = self
            .manifest
            .directory(&from, Missing::Keep)?
            .ok_or_else(missing)?;
        let found = self.manifest.names(from).get(&original).copied();
        let node = found.ok_or_else(missing)?;
        if matches!(self.manifest.nodes[node].kind, Kind::Directory(_)) {
            return Err("a hard link to a directory".into());
        }
        let parent = self
            .manifest
            .directory(&above, Missing::Make)?
            .unwrap_or(ROOT);
        Ok(self.manifest.link(parent, &name, node, place)?)
    }

    /// The data of a regular file: in the line, in a file, or none.
    fn content(
        &mut self,
        fields: &[&[u8]],
        payload: Option<OsString>,
    ) -> std::result::Result<Content, Refused> {
        let wanted = match fields[1] {
            b"-" => None,
            text => Some(number(text, 10, "size")?),
        };
        let inline = optional(fields[9])?.map(OsStringExt::into_vec);
        let (data, size) = match (inline, payload) {
            (None, Some(payload)) => self.file(&payload)?,
            (inline, _) => {
                let data = inline.unwrap_or_default();
                let size = data.len() as u64;
                (Data::Memory(data.into()), size)
            }
        };
        if let Some(wanted) = wanted.filter(|wanted| *wanted != size) {
            return Err(format!("its size is {wanted}, and there are {size} bytes").into());
        }
        if fields[10] != b"-" {
            let found = self.digest(&data)?;
            let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
            if fields[10] != found.as_bytes() {
                let wanted = String::from_utf8_lossy(fields[10]);
                return Err(format!("its digest is {wanted}, and that of the data {found}").into());
            }
        }
        Ok(Content {
            data,
            size,
            data_bytes: size,
            pieces: 1,
        })
    }

    /// What fs-verity knows the data of a file by.
    fn digest(&self, data: &Data) -> Result<[u8; 32]> {
        let mut at = 0;
        match (data, &self.directory) {
            (Data::Memory(bytes), _) => file_digest(|buffer| {
                let count = buffer.len().min(bytes.len() - at);
                buffer[..count].copy_from_slice(&bytes[at..at + count]);
                at += count;
                Ok(count)
            }),
            (Data::Host { name, .. }, Some((_, dir))) => {
                let file = dir.open_file(name, Follow::No)?;
                file_digest(|buffer| {
                    let count = file.read_at(buffer, at as u64)?;
                    at += count;
                    Ok(count)
                })
            }
            _ => Err(Error::new("", "data of another kind")),
        }
    }

    fn file(&mut self, payload: &OsStr) -> Result<(Data, u64)> {
        let path = self.base.join(payload);
        let above = directory_of(&path);
        if !matches!(&self.directory, Some((open, _)) if **open == *above) {
            self.directory = Some((Arc::from(above), HostDir::open(above)?));
        }
        let name = path.file_name().unwrap_or_default().to_owned();
        let Some((directory, dir)) = &self.directory else {
            return Err(Error::new(path.display().to_string(), "is no file"));
        };
        let found = dir.attributes(&name, Follow::No)?;
        if found.kind != FileKind::Regular {
            return Err(Error::new(path.display().to_string(), "is no regular file"));
        }
        let directory = Arc::clone(directory);
        Ok((Data::Host { directory, name }, found.size))
    }
}

fn node(kind: FileKind, rdev: u64) -> Kind {
    Kind::Node { kind, rdev }
}

/// A field that may be `-`.
fn optional(field: &[u8]) -> std::result::Result<Option<OsString>, String> {
    match field {
        b"-" => Ok(None),
        field => unescape(field).map(|bytes| Some(OsString::from_vec(bytes))),
    }
}

fn number(field: &[u8], base: u32, what: &str) -> std::result::Result<u64, String> {
    let text = std::str::from_utf8(field).ok();
    let number = text.and_then(|text| u64::from_str_radix(text, base).ok());
    let fits = |number: &u64| what == "size" || what == "device" || *number < u64::from(u32::MAX);
    number
        .filter(fits)
        .ok_or_else(|| format!("its {what} is '{}'", field.escape_ascii()))
}

/// Seconds and nanoseconds; `.1` is one nanosecond.
fn time(field: &[u8]) -> std::result::Result<Time, String> {
    let text = std::str::from_utf8(field).unwrap_or_default();
    let (seconds, nanos) = text.split_once('.').unwrap_or((text, "0"));
    match (seconds.parse(), nanos.parse()) {
        (Ok(seconds), Ok(nanos @ 0..=999_999_999)) => Ok(Time { seconds, nanos }),
        _ => Err(format!("its time is '{}'", field.escape_ascii())),
    }
}

fn xattrs(fields: &[&[u8]]) -> std::result::Result<Vec<Xattr>, String> {
    let mut xattrs = Vec::new();
    for field in fields {
        let equals = field.iter().position(|byte| *byte == b'=');
        let equals = equals.filter(|at| *at > 0);
        let equals = equals
            .ok_or_else(|| format!("an attribute without '=': '{}'", field.escape_ascii()))?;
        let key = OsString::from_vec(unescape(&field[..equals])?);
        if !crate::copy::may_be_kept(&key) {
            return Err(format!("attribute {} cannot be kept", key.display()));
        }
        xattrs.push((key, unescape(&field[equals + 1..])?));
    }
    xattrs.sort();
    Ok(xattrs)
}

fn unescape(field: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let damaged = || format!("'{}' has a backslash too many", field.escape_ascii());
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        let (letter, behind) = rest.split_first().ok_or_else(damaged)?;
        rest = behind;
        bytes.push(match letter {
            b'\\' => b'\\',
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => {
                let (digits, behind) = rest.split_at_checked(2).ok_or_else(damaged)?;
                rest = behind;
                let digits = OsStr::from_bytes(digits).to_str().ok_or_else(damaged)?;
                u8::from_str_radix(digits, 16).map_err(|_| damaged())?
            }
            _ => return Err(damaged()),
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_escapes() {
        assert_eq!(unescape(b"a\\x20b\\n\\\\"), Ok(b"a b\n\\".to_vec()));
        for bad in [&b"\\"[..], b"\\x1", b"\\xgg", b"\\q"] {
            assert!(unescape(bad).is_err(), "{bad:?}");
        }
        assert_eq!(optional(b"-"), Ok(None));
        assert_eq!(optional(b"\\x2d"), Ok(Some("-".into())));
    }

    #[test]
    fn times_count_nanoseconds() {
        let time = |text: &[u8]| super::time(text).ok().map(|it| (it.seconds, it.nanos));
        assert_eq!(time(b"1.1"), Some((1, 1)));
        assert_eq!(time(b"-5"), Some((-5, 0)));
        assert_eq!(time(b"1.1000000000"), None);
        assert_eq!(time(b"x"), None);
    }
}
