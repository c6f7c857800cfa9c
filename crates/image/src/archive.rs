//! Writes files as tar archives, with all that is known of them.
//!
//! # Format
//! The pax format: an entry that a plain header cannot hold has an extended header in front.
//! Extended attributes are `SCHILY.xattr.*` there, ACLs `SCHILY.acl.*` with numbers, times have
//! nanoseconds, and files with holes are as GNU tar's sparse format 1.0 has them. Names are those
//! in the image without the first `/`, in the order of their bytes; the root is `./`. The same
//! files make the same bytes.
//!
//! # Locking
//! None.
//!
//! # References
//! pax(1) of POSIX, "pax Interchange Format"; GNU tar's manual, "Storing Sparse Files"; star(5).

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use finefs::FileKind;
use tar::{EntryType, Header};

use crate::acl;
use crate::attributes::{Attributes, Time, Xattr};
use crate::beside::Beside;
use crate::choice::Choice;
use crate::error::{Error, Result};
use crate::packing::Packing;
use crate::tree::{ACLS, Follow, SourceDir, SourceFile, check_path_bytes, start_of};

/// Unit of everything in an archive.
const BLOCK: usize = 512;

/// Bytes that are moved at a time.
const CHUNK: usize = 1 << 20;

/// The end of an archive: two blocks of zeros.
const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// The largest numbers in fields of 8 and of 12 bytes.
const FIELD_8_MAX: u64 = 0o7_777_777;
const FIELD_12_MAX: u64 = 0o77_777_777_777;

/// How far it is; shared with who shows it.
#[derive(Default)]
pub struct Progress {
    /// Files that were written.
    pub files: AtomicU64,
    /// Bytes of data that were written.
    pub bytes: AtomicU64,
    /// Set from outside: stop.
    pub stop: Arc<AtomicBool>,
}

/// How an archive is written.
pub struct Style<'a> {
    /// How it is compressed.
    pub packing: Packing,
    /// What is left out.
    pub choice: Choice,
    /// Whether what symbolic links lead to is written, not the links.
    pub follow: Follow,
    /// Whose all files are; those of the files without it.
    pub owner: Option<u32>,
    /// The same of the group.
    pub group: Option<u32>,
    /// The time of the last change of all of them.
    pub modified: Option<Time>,
    /// Is told each name.
    pub tell: Option<&'a dyn Fn(&Path)>,
}

impl Style<'_> {
    /// Everything as it is.
    pub fn of(packing: Packing) -> Style<'static> {
        Style {
            packing,
            choice: Choice::default(),
            follow: Follow::No,
            owner: None,
            group: None,
            modified: None,
            tell: None,
        }
    }
}

/// Something to be written, with all that is in it.
pub struct Input {
    /// The directory that it is in.
    pub dir: Arc<dyn SourceDir>,
    /// Its name there; `.` for the directory itself.
    pub name: OsString,
    /// What it is called in the archive; empty for the root.
    pub path: PathBuf,
}

/// Writes an archive to a file: beside its place, and renamed when it is whole; to what is there
/// and no regular file as it comes. Gives what archives cannot hold, a line each.
///
/// # Errors
/// What cannot be read or written.
pub fn write_file(
    place: &Path,
    inputs: &[Input],
    style: &Style<'_>,
    progress: &Progress,
) -> Result<Vec<String>> {
    write_file_by(place, style, progress, &mut |writer| {
        inputs.iter().try_for_each(|input| writer.input(input))
    })
}

/// Writes what a writer is told to a file, in the same way.
pub(crate) fn write_file_by(
    place: &Path,
    style: &Style<'_>,
    progress: &Progress,
    body: &mut Body<'_>,
) -> Result<Vec<String>> {
    let shown = place.display().to_string();
    let failed = |error| Error::host(shown.clone(), error);
    let is_special = place.metadata().is_ok_and(|found| !found.is_file());
    if is_special {
        let opened = std::fs::OpenOptions::new().write(true).open(place);
        return write_by(&mut opened.map_err(failed)?, &shown, style, progress, body);
    }
    let beside = Beside::new(place)?;
    let mut file = std::fs::File::create_new(beside.path()).map_err(failed)?;
    let left_out = write_by(&mut file, &shown, style, progress, body)?;
    drop(file);
    beside.finish()?;
    Ok(left_out)
}

/// Writes an archive; messages call it `shown`. Gives what archives cannot hold, a line each.
///
/// # Errors
/// What cannot be read or written.
pub fn write(
    to: &mut dyn Write,
    shown: &str,
    inputs: &[Input],
    style: &Style<'_>,
    progress: &Progress,
) -> Result<Vec<String>> {
    write_by(to, shown, style, progress, &mut |writer| {
        inputs.iter().try_for_each(|input| writer.input(input))
    })
}

/// Tells a writer what to write.
pub(crate) type Body<'b> = dyn FnMut(&mut Writer<'_>) -> Result<()> + 'b;

/// Writes what a writer is told.
pub(crate) fn write_by(
    to: &mut dyn Write,
    shown: &str,
    style: &Style<'_>,
    progress: &Progress,
    body: &mut Body<'_>,
) -> Result<Vec<String>> {
    let failed = |error| Error::host(shown, error);
    let mut left_out = Vec::new();
    let mut buffered = std::io::BufWriter::with_capacity(CHUNK / 4, to);
    style.packing.write(&mut buffered, &failed, |to| {
        let mut writer = Writer {
            to,
            shown,
            style,
            progress,
            linked: HashMap::new(),
            left_out: Vec::new(),
            buffer: vec![0; CHUNK],
        };
        body(&mut writer)?;
        writer.put(&END)?;
        left_out = writer.left_out;
        Ok(())
    })?;
    Ok(left_out)
}

/// Writes entries.
pub(crate) struct Writer<'a> {
    to: &'a mut dyn Write,
    shown: &'a str,
    style: &'a Style<'a>,
    progress: &'a Progress,
    /// Files with several names that were written, by device and inode.
    linked: HashMap<(u64, u64), PathBuf>,
    left_out: Vec<String>,
    buffer: Vec<u8>,
}

/// A directory whose files are being written.
pub(crate) struct Level {
    dir: Arc<dyn SourceDir>,
    names: std::vec::IntoIter<OsString>,
    identity: (u64, u64),
}

impl Level {
    fn open(dir: Arc<dyn SourceDir>, identity: (u64, u64)) -> Result<Level> {
        let mut names = dir.names()?;
        names.sort();
        Ok(Level {
            dir,
            names: names.into_iter(),
            identity,
        })
    }
}

impl Writer<'_> {
    fn input(&mut self, input: &Input) -> Result<()> {
        self.tree(&input.dir, &input.name, input.path.clone())
    }

    /// Writes a file with all that is in it.
    pub fn tree(&mut self, dir: &Arc<dyn SourceDir>, name: &OsStr, path: PathBuf) -> Result<()> {
        let mut levels: Vec<Level> = Vec::new();
        if self.style.choice.excludes(path.as_os_str().as_bytes()) {
            return Ok(());
        }
        levels.extend(self.file(dir, name, path.clone())?);
        // That of the last level.
        let mut above = path;
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                levels.pop();
                above.pop();
                continue;
            };
            let (dir, path) = (Arc::clone(&level.dir), above.join(&name));
            if self.style.choice.excludes(path.as_os_str().as_bytes()) {
                continue;
            }
            let Some(inside) = self.file(&dir, &name, path)? else {
                continue;
            };
            // A link may lead to where it lies in.
            match levels.iter().any(|above| above.identity == inside.identity) {
                true => self.left_out.push(format!(
                    "{}: leads to a directory that it lies in",
                    dir.shown(&name)
                )),
                false => {
                    above.push(&name);
                    levels.push(inside);
                }
            }
        }
        Ok(())
    }

    /// Writes a file that there is nothing to know of but its name.
    pub fn empty_file(&mut self, path: &Path) -> Result<()> {
        let mut entry = Entry::named(path);
        entry.header.set_entry_type(EntryType::Regular);
        entry.header.set_mode(0);
        entry.header.set_uid(0);
        entry.header.set_gid(0);
        entry.header.set_mtime(0);
        self.entry(entry, 0)
    }

    /// What is to be written of a file, and whether that is what a link leads to.
    fn look(&self, dir: &dyn SourceDir, name: &OsStr) -> Result<(Attributes, Follow)> {
        let style = self.style;
        let mut found = match dir.attributes(name, style.follow) {
            // It stays a link where that leads nowhere.
            Err(_) if style.follow == Follow::Yes => dir.attributes(name, Follow::No)?,
            found => found?,
        };
        found.uid = style.owner.unwrap_or(found.uid);
        found.gid = style.group.unwrap_or(found.gid);
        found.modified = style.modified.unwrap_or(found.modified);
        let follow = match found.kind {
            FileKind::Symlink => Follow::No,
            _ => style.follow,
        };
        Ok((found, follow))
    }

    /// Writes one file; what is in it is left to the caller.
    pub fn file(
        &mut self,
        dir: &Arc<dyn SourceDir>,
        name: &OsStr,
        path: PathBuf,
    ) -> Result<Option<Level>> {
        if self.progress.stop.load(Ordering::Relaxed) {
            return Err(Error::new("", "interrupted"));
        }
        if let Err(reason) = check_path_bytes(path.as_os_str().len()) {
            return Err(Error::new(start_of(Path::new(&dir.shown(name))), reason));
        }
        let (found, follow) = self.look(&**dir, name)?;
        let mut entry = Entry::new(&path, &found);
        if let Some(tell) = self.style.tell {
            tell(&entry.path);
        }
        if let Some(original) = self.linked.get(&found.identity()) {
            entry.link(original, EntryType::Link);
            self.entry(entry, 0)?;
            return Ok(None);
        }
        if found.links > 1 && !found.is_directory() {
            self.linked.insert(found.identity(), path.clone());
        }
        for xattr in dir.xattrs(name, follow)? {
            entry.xattr(&xattr);
        }
        let mut inside = None;
        match found.kind {
            FileKind::Regular => {
                let file = dir.open_file(name, follow)?;
                let data = Holes::of(&*file, found.size)?;
                let stored = entry.data(&data, &path);
                self.entry(entry, stored)?;
                let read = |buffer: &mut [u8], at| file.read_at(buffer, at);
                self.data(&data, &read, &|| dir.shown(name))?;
            }
            FileKind::Directory => {
                entry.header.set_entry_type(EntryType::Directory);
                self.entry(entry, 0)?;
                let opened = match name.as_encoded_bytes() {
                    b"." => Arc::clone(dir),
                    _ => dir.open_dir(name, follow)?,
                };
                inside = Some(Level::open(opened, found.identity())?);
            }
            FileKind::Symlink => {
                entry.link(&dir.read_link(name)?, EntryType::Symlink);
                self.entry(entry, 0)?;
            }
            FileKind::Socket => {
                let shown = dir.shown(name);
                self.left_out
                    .push(format!("{shown}: a socket, which archives cannot hold"));
                return Ok(None);
            }
            FileKind::CharDevice | FileKind::BlockDevice | FileKind::Fifo => {
                entry.node(found.kind, found.rdev);
                self.entry(entry, 0)?;
            }
        }
        self.progress.files.fetch_add(1, Ordering::Relaxed);
        Ok(inside)
    }

    /// Writes the headers of a file with so many bytes of data behind them.
    fn entry(&mut self, mut entry: Entry, stored: u64) -> Result<()> {
        entry.size(stored);
        if !entry.records.is_empty() {
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::XHeader);
            header.set_mode(0o644);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.set_size(entry.records.len() as u64);
            let name = &mut header.as_old_mut().name;
            let called = [
                b"PaxHeaders/",
                entry.path.file_name().unwrap_or_default().as_bytes(),
            ]
            .concat();
            fill(name, &called);
            header.set_cksum();
            self.put(header.as_bytes())?;
            self.put(&entry.records)?;
            self.pad(entry.records.len() as u64)?;
        }
        entry.header.set_cksum();
        self.put(entry.header.as_bytes())
    }

    fn data(
        &mut self,
        data: &Holes,
        read: &dyn Fn(&mut [u8], u64) -> Result<usize>,
        shown: &dyn Fn() -> String,
    ) -> Result<()> {
        let map = data.map();
        self.put(&map)?;
        let mut buffer = std::mem::take(&mut self.buffer);
        for (start, end) in &data.parts {
            let mut at = *start;
            while at < *end {
                if self.progress.stop.load(Ordering::Relaxed) {
                    return Err(Error::new("", "interrupted"));
                }
                let wanted = usize::try_from(end - at).map_or(CHUNK, |left| left.min(CHUNK));
                let count = read(&mut buffer[..wanted], at)?;
                if count == 0 {
                    return Err(Error::new(shown(), "has changed while it was read"));
                }
                self.put(&buffer[..count])?;
                at += count as u64;
                self.progress
                    .bytes
                    .fetch_add(count as u64, Ordering::Relaxed);
            }
        }
        self.buffer = buffer;
        self.pad(data.bytes())
    }

    fn pad(&mut self, length: u64) -> Result<()> {
        let rest = (length as usize) % BLOCK;
        match rest {
            0 => Ok(()),
            _ => self.put(&[0; BLOCK][rest..]),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let shown = self.shown;
        self.to
            .write_all(bytes)
            .map_err(|error| Error::host(shown, error))
    }
}

/// Where a file has data.
struct Holes {
    size: u64,
    /// From where to where, in order. All of the file where holes are not worth a map.
    parts: Vec<(u64, u64)>,
    is_sparse: bool,
}

impl Holes {
    fn of(file: &dyn SourceFile, size: u64) -> Result<Holes> {
        let mut parts = Vec::new();
        let mut at = 0;
        while at < size
            && let Some((start, end)) = file.data_after(at)?
        {
            if start >= size {
                break;
            }
            at = end.min(size);
            parts.push((start, at));
        }
        let mut holes = Holes {
            size,
            parts,
            is_sparse: true,
        };
        if holes.bytes() + holes.map().len() as u64 >= size {
            holes.parts = vec![(0, size)];
            holes.is_sparse = false;
        }
        Ok(holes)
    }

    fn bytes(&self) -> u64 {
        self.parts.iter().map(|(start, end)| end - start).sum()
    }

    /// What is in front of the data: how many parts there are, where each begins and how long it
    /// is, a line each. The last one has no bytes where the file ends with a hole.
    fn map(&self) -> Vec<u8> {
        if !self.is_sparse {
            return Vec::new();
        }
        let mut pairs: Vec<(u64, u64)> = Vec::with_capacity(self.parts.len() + 1);
        pairs.extend(self.parts.iter().map(|(start, end)| (*start, end - start)));
        if self.parts.last().is_none_or(|last| last.1 < self.size) {
            pairs.push((self.size, 0));
        }
        let mut text = format!("{}\n", pairs.len());
        for (start, length) in pairs {
            text += &format!("{start}\n{length}\n");
        }
        let mut map = text.into_bytes();
        map.resize(map.len().next_multiple_of(BLOCK), 0);
        map
    }
}

/// The headers of a file.
struct Entry {
    path: PathBuf,
    header: Header,
    /// The extended header's text.
    records: Vec<u8>,
    /// The path is in a record.
    is_named: bool,
}

impl Entry {
    fn named(path: &Path) -> Entry {
        Entry {
            path: path.to_owned(),
            header: Header::new_ustar(),
            records: Vec::new(),
            is_named: false,
        }
    }

    fn new(path: &Path, found: &Attributes) -> Entry {
        let mut entry = Entry::named(path);
        entry.header.set_mode(found.permissions);
        let (uid, gid) = (u64::from(found.uid), u64::from(found.gid));
        entry
            .header
            .set_uid(if uid > FIELD_8_MAX { 0 } else { uid });
        entry
            .header
            .set_gid(if gid > FIELD_8_MAX { 0 } else { gid });
        for (key, id) in [("uid", uid), ("gid", gid)] {
            if id > FIELD_8_MAX {
                entry.record(key, id.to_string().as_bytes());
            }
        }
        entry.modified(found.modified);
        if found.is_directory() {
            let mut named = match path.as_os_str().is_empty() {
                true => OsString::from("."),
                false => path.as_os_str().to_owned(),
            };
            named.push("/");
            entry.path = named.into();
        }
        entry
    }

    fn modified(&mut self, time: Time) {
        let seconds = u64::try_from(time.seconds).ok();
        let seconds = seconds.filter(|seconds| *seconds <= FIELD_12_MAX);
        self.header.set_mtime(seconds.unwrap_or(0));
        if seconds.is_none() || time.nanos > 0 {
            self.record("mtime", seconds_text(time).as_bytes());
        }
    }

    /// A line of the extended header; its length, with the digits of the length, is in front.
    fn record(&mut self, key: impl AsRef<OsStr>, value: &[u8]) {
        let key = key.as_ref().as_bytes();
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        self.records.extend(format!("{length} ").bytes());
        self.records.extend([key, b"=", value, b"\n"].concat());
    }

    fn xattr(&mut self, (key, value): &Xattr) {
        let acl = ACLS.iter().position(|acl| key == *acl);
        if let (Some(acl), Some(text)) = (acl, acl::to_text(value)) {
            let kind = ["SCHILY.acl.access", "SCHILY.acl.default"][acl];
            return self.record(kind, text.as_bytes());
        }
        // GNU tar's way with what would end the key.
        let mut named = b"SCHILY.xattr.".to_vec();
        for byte in key.as_bytes() {
            match byte {
                b'%' => named.extend(b"%25"),
                b'=' => named.extend(b"%3D"),
                byte => named.push(*byte),
            }
        }
        self.record(OsStr::from_bytes(&named), value);
    }

    fn link(&mut self, target: &Path, kind: EntryType) {
        self.header.set_entry_type(kind);
        let target = target.as_os_str().as_bytes();
        if !fill(&mut self.header.as_old_mut().linkname, target) {
            self.record("linkpath", target);
        }
    }

    fn node(&mut self, kind: FileKind, rdev: u64) {
        let kind = match kind {
            FileKind::CharDevice => EntryType::Char,
            FileKind::BlockDevice => EntryType::Block,
            _ => EntryType::Fifo,
        };
        self.header.set_entry_type(kind);
        if let Some(ustar) = self.header.as_ustar_mut()
            && kind != EntryType::Fifo
        {
            // 7 digits hold all numbers of Linux: 12 and 20 bits.
            ustar.set_device_major(rustix::fs::major(rdev));
            ustar.set_device_minor(rustix::fs::minor(rdev));
        }
    }

    /// Notes the data of a file, and gives the bytes that will be behind the headers.
    fn data(&mut self, data: &Holes, path: &Path) -> u64 {
        self.header.set_entry_type(EntryType::Regular);
        if !data.is_sparse {
            return data.size;
        }
        self.record("GNU.sparse.major", b"1");
        self.record("GNU.sparse.minor", b"0");
        self.record("GNU.sparse.name", path.as_os_str().as_bytes());
        self.record("GNU.sparse.realsize", data.size.to_string().as_bytes());
        self.is_named = true;
        let parent = path.parent().unwrap_or(Path::new(""));
        self.path = parent
            .join("GNUSparseFile.0")
            .join(path.file_name().unwrap_or_default());
        data.map().len() as u64 + data.bytes()
    }

    /// Writes the name, and the length, which is in front of all: the library by which archives are
    /// read looks for it no further than to a value with a line end.
    fn size(&mut self, stored: u64) {
        let path = self.path.as_os_str().as_bytes().to_vec();
        if !fill(&mut self.header.as_old_mut().name, &path) && !self.is_named {
            self.record("path", &path);
        }
        match stored > FIELD_12_MAX {
            true => {
                self.header.set_size(0);
                let others = std::mem::take(&mut self.records);
                self.record("size", stored.to_string().as_bytes());
                self.records.extend(others);
            }
            false => self.header.set_size(stored),
        }
    }
}

/// Fills a field, with as much of it as there is room for; true if that is all.
fn fill(field: &mut [u8], value: &[u8]) -> bool {
    let length = value.len().min(field.len());
    field[..length].copy_from_slice(&value[..length]);
    length == value.len()
}

/// Seconds with a fraction where there is one.
fn seconds_text(time: Time) -> String {
    let (sign, seconds, nanos) = match time.seconds < 0 && time.nanos > 0 {
        true => ("-", -(time.seconds + 1), 1_000_000_000 - time.nanos),
        false => ("", time.seconds, time.nanos),
    };
    match nanos {
        0 => format!("{sign}{seconds}"),
        _ => {
            let text = format!("{sign}{seconds}.{nanos:09}");
            text.trim_end_matches('0').to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_the_digits_of_their_length() {
        for length in [1, 80, 89, 90, 91, 92, 93, 980, 990, 9980] {
            let found = Attributes {
                modified: Time {
                    seconds: 0,
                    nanos: 0,
                },
                ..attributes()
            };
            let mut entry = Entry::new(Path::new("a"), &found);
            entry.record("key", &vec![b'v'; length]);
            let text = String::from_utf8(entry.records.clone()).unwrap();
            let (number, _) = text.split_once(' ').unwrap();
            assert_eq!(number.parse(), Ok(entry.records.len()), "{text}");
        }
    }

    #[test]
    fn lengths_are_in_front_of_other_records() {
        let mut entry = Entry::new(Path::new(&"n".repeat(200)), &attributes());
        entry.xattr(&("user.a".into(), b"a\nb".to_vec()));
        entry.size(FIELD_12_MAX + 1);
        let start = b"19 size=8589934592\n";
        assert!(entry.records.starts_with(start), "{:?}", entry.records);
    }

    #[test]
    fn times_have_fractions_and_signs() {
        let text = |seconds, nanos| seconds_text(Time { seconds, nanos });
        assert_eq!(text(12, 0), "12");
        assert_eq!(text(12, 500_000_000), "12.5");
        assert_eq!(text(-2, 750_000_000), "-1.25");
        assert_eq!(text(-1, 500_000_000), "-0.5");
        assert_eq!(text(-3, 0), "-3");
    }

    fn attributes() -> Attributes {
        let zero = Time {
            seconds: 0,
            nanos: 5,
        };
        Attributes {
            kind: FileKind::Regular,
            permissions: 0o644,
            uid: 0,
            gid: 0,
            size: 0,
            links: 1,
            device: 0,
            ino: 1,
            rdev: 0,
            sectors: 0,
            accessed: zero,
            modified: zero,
            changed: zero,
            born: None,
        }
    }
}
