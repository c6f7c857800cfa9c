//! Operands: `IMAGE:/path`, with `@PARTITION` behind the image, a path of the host, or `-`.
//!
//! # Grammar
//! 1. `-` is standard input or output.
//! 2. What has `:/` names a file in the image before it; `IMAGE:` is its root.
//! 3. `IMAGE:path` does too where no slash comes before the colon, as scp(1) has it: a path of the
//!    host that has a colon is written `./a:b`.
//! 4. Where nothing is at IMAGE but a directory at `IMAGE:`, rule 2 leaves it to the host.
//! 5. A URL (`nbd://HOST:PORT/EXPORT`) is an image as a whole: the colon of rule 2 or 3 comes
//!    behind its scheme, and rule 3 takes only one at its end.
//! 6. `IMAGE@p2`, `IMAGE@2` and `IMAGE@NAME` are the partition of that number, name or file system
//!    label, unless a file has that whole name.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use finefs::front_end::Disk;
use finefs::front_end::EncryptionChoice;
use finefs::{AtimePolicy, Encryption, FileSystem, ImageOptions, MasterKey};
use finefs_block::{BlockDevice, PartitionDevice};
use rustix::io::Errno;

use crate::beside::directory_of;
use crate::error::{Error, Result};
use crate::host::HostDir;
use crate::inside::{ImageDir, Source};
use crate::partition::{self, Partition};
use crate::tree::{Follow, SinkDir, SourceDir};

/// What an operand names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operand {
    /// `-`
    Standard,
    /// A path of the host.
    Host(PathBuf),
    /// A file in an image.
    Image(Address),
}

/// A file in an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// The image with its partition, as the user wrote it.
    pub image: OsString,
    /// The path in it, which begins with a slash.
    pub path: PathBuf,
}

impl Operand {
    /// What `text` names; see the module's grammar.
    pub fn parse(text: &OsStr) -> Operand {
        let bytes = text.as_bytes();
        if bytes == b"-" {
            return Operand::Standard;
        }
        let is_url = finefs_disk::is_url(text);
        // Behind the scheme of a URL.
        let from = match is_url {
            true => {
                bytes
                    .windows(3)
                    .position(|some| some == b"://")
                    .unwrap_or(0)
                    + 3
            }
            false => 0,
        };
        let place = &bytes[from..];
        let with_slash = place.windows(2).position(|pair| pair == b":/");
        let colon = with_slash.or_else(|| {
            let colon = match is_url {
                true => place.iter().rposition(|byte| *byte == b':'),
                false => place.iter().position(|byte| *byte == b':'),
            }?;
            let is_last = colon + 1 == place.len();
            (is_last || !is_url && !place[..colon].contains(&b'/')).then_some(colon)
        });
        let colon = colon.map(|colon| from + colon);
        match colon {
            Some(colon) if colon > 0 && !is_host_directory(bytes, colon) => {
                Operand::Image(Address::new(&bytes[..colon], &bytes[colon + 1..]))
            }
            _ => Operand::Host(text.into()),
        }
    }
}

/// Rule 4 of the grammar.
fn is_host_directory(bytes: &[u8], colon: usize) -> bool {
    let path = |bytes| Path::new(OsStr::from_bytes(bytes));
    path(&bytes[..=colon]).is_dir() && !path(&bytes[..colon]).exists()
}

impl Address {
    fn new(image: &[u8], path: &[u8]) -> Address {
        let mut whole = Vec::with_capacity(path.len() + 1);
        if path.first() != Some(&b'/') {
            whole.push(b'/');
        }
        whole.extend_from_slice(path);
        Address {
            image: OsStr::from_bytes(image).to_owned(),
            path: PathBuf::from(OsString::from_vec(whole)),
        }
    }

    /// The root of the image of this name, whatever is in it.
    pub fn root_of(image: &OsStr) -> Address {
        Address::new(image.as_bytes(), b"/")
    }

    /// `text` names a file in an image; without a colon an image's root.
    pub fn of_image(text: &OsStr) -> Address {
        match Operand::parse(text) {
            Operand::Image(address) => address,
            Operand::Host(_) | Operand::Standard => Address::root_of(text),
        }
    }

    /// Like [`Address::of_image`], but the colon must be there.
    pub fn required(text: &OsStr) -> Result<Address> {
        match Operand::parse(text) {
            Operand::Image(address) => Ok(address),
            Operand::Host(_) | Operand::Standard => Err(Error::new(
                text.display().to_string(),
                "names no file in an image; write IMAGE:/PATH",
            )),
        }
    }

    /// True when some of its file system lies in these bytes of the file or device at `disk`, by
    /// whatever name that is called.
    pub(crate) fn laps_over(&self, disk: &Path, bytes: &Range<u64>) -> Result<bool> {
        let (path, part) = place_of(&self.image)?;
        let own = part.map_or(0..u64::MAX, |part| {
            part.start_bytes..part.start_bytes + part.length_bytes
        });
        Ok(is_same_file(&path, disk) && own.start < bytes.end && bytes.start < own.end)
    }

    /// As a user writes it, byte for byte; for people it is [`std::fmt::Display`]ed.
    pub fn to_os_string(&self) -> OsString {
        let mut text = self.image.clone();
        text.push(":");
        text.push(&self.path);
        text
    }

    /// The same image, another path.
    pub fn with_path(&self, path: PathBuf) -> Address {
        Address {
            image: self.image.clone(),
            path,
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.image.display(), self.path.display())
    }
}

/// What an image is opened for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Access {
    /// Nothing is written.
    Read,
    /// Changes are made.
    Write,
}

/// The images that one command has open.
#[derive(Default)]
pub struct Images {
    offset_bytes: Option<u64>,
    keys: Vec<MasterKey>,
    encryption: EncryptionChoice,
    journals: Vec<PathBuf>,
    wait: Duration,
    open: Vec<Open>,
    /// Those that partitions are open of.
    disks: Vec<Whole>,
    /// Nothing is opened after the first: its close ends the use of its disk.
    opens_one: bool,
}

/// A disk as a whole: two partitions of it cannot each lock it.
struct Whole {
    path: PathBuf,
    access: Access,
    disk: Disk,
}

struct Open {
    path: PathBuf,
    offset_bytes: u64,
    access: Access,
    source: Arc<Source>,
}

impl Images {
    /// None yet; `offset_bytes` is where the file systems start in images without `@PARTITION`.
    pub fn new(offset_bytes: Option<u64>) -> Images {
        Images {
            offset_bytes,
            keys: Vec::new(),
            encryption: EncryptionChoice::default(),
            journals: Vec::new(),
            wait: Duration::ZERO,
            open: Vec::new(),
            disks: Vec::new(),
            opens_one: false,
        }
    }

    /// The same with these keys of encrypted files.
    pub fn with_keys(self, keys: Vec<MasterKey>) -> Images {
        Images { keys, ..self }
    }

    /// From now on directories come to be encrypted like this by the first key, also in images that
    /// are open.
    pub fn encrypt_by(&self, encryption: Encryption) {
        self.encryption.set(encryption);
    }

    /// The same, which waits so long for images that others use.
    pub fn with_wait(self, wait: Duration) -> Images {
        Images { wait, ..self }
    }

    /// The same with these external journals: each image takes its own.
    pub fn with_journals(self, journals: Vec<PathBuf>) -> Images {
        Images { journals, ..self }
    }

    /// Where the file systems start in images without `@PARTITION`, where somebody said it.
    pub(crate) fn offset_bytes(&self) -> Option<u64> {
        self.offset_bytes
    }

    /// The file system that an address is in. One that is to be written must be opened for it
    /// first.
    pub fn open(&mut self, address: &Address, access: Access) -> Result<FileSystem> {
        self.source(&address.image, access)
            .map(|source| source.fs.clone())
    }

    /// The file system at an address, when no other is used. Closing it lets others have its disk,
    /// too, where it is one of the disk's partitions.
    pub fn open_only(self, address: &Address, access: Access) -> Result<FileSystem> {
        let mut images = Images {
            opens_one: true,
            ..self
        };
        images.open(address, access)
    }

    /// The directory at an address.
    pub fn dir(&mut self, address: &Address, access: Access) -> Result<ImageDir> {
        let source = self.source(&address.image, access)?;
        ImageDir::open(&source, &address.path)
    }

    /// Where files of the host can be kept meanwhile: beside the image, or, where that is a device,
    /// where the system has such files.
    pub(crate) fn directory_of(&self, address: &Address) -> PathBuf {
        let (path, _) = split(&address.image);
        match path.metadata() {
            Ok(found) if !found.is_file() => std::env::temp_dir(),
            _ => directory_of(&path).to_owned(),
        }
    }

    /// Where the file system lies that an address is in: a file or device, and a byte of it.
    pub(crate) fn place_of(&self, address: &Address) -> Result<(PathBuf, u64)> {
        let (path, start) = locate(&address.image)?;
        let start = start.or(self.offset_bytes).unwrap_or(0);
        Ok((canonical(&path), start))
    }

    /// Opens the disk of a partition that will be written, so that another partition of it can be
    /// read before. Nothing is written.
    pub(crate) fn hold_to_write(&mut self, address: &Address) -> Result<()> {
        let (path, start) = locate(&address.image)?;
        if start.is_some() {
            let canonical = canonical(&path);
            let shown = address.image.display().to_string();
            patiently(self.wait, || {
                self.disk(&path, &canonical, Access::Write).map(drop)
            })
            .map_err(|error| with_advice(&error, &path, &shown))?;
        }
        Ok(())
    }

    fn source(&mut self, image: &OsStr, access: Access) -> Result<Arc<Source>> {
        let shown = image.display().to_string();
        let (path, start) = locate(image)?;
        let offset_bytes = start.or(self.offset_bytes).unwrap_or(0);
        let canonical = canonical(&path);
        let is_same = |open: &&Open| open.path == canonical && open.offset_bytes == offset_bytes;
        if let Some(open) = self.open.iter().find(is_same) {
            if access == Access::Write && open.access == Access::Read {
                return Err(Error::new(
                    shown,
                    "is open to be read, and cannot be changed now",
                ));
            }
            return Ok(Arc::clone(&open.source));
        }
        let fs = patiently(self.wait, || {
            self.open_once((&path, &canonical), offset_bytes, start.is_some(), access)
        })
        .map_err(|error| with_advice(&error, &path, &shown))?;
        if access == Access::Write && fs.is_read_only() {
            let reason = match fs.notes() {
                [] => "cannot be written".to_owned(),
                notes => notes.join("; "),
            };
            let errno = Errno::ROFS.raw_os_error();
            return Err(Error::of_image(format!("{shown}: {reason}"), errno));
        }
        let source = Arc::new(Source {
            fs,
            shown,
            device: self.open.len() as u64 | 1 << 63,
        });
        self.open.push(Open {
            path: canonical,
            offset_bytes,
            access,
            source: Arc::clone(&source),
        });
        Ok(source)
    }

    /// Opens the file system that starts at a place of a file, or of a disk with partitions.
    fn open_once(
        &mut self,
        (path, canonical): (&Path, &Path),
        offset_bytes: u64,
        is_part: bool,
        access: Access,
    ) -> std::result::Result<FileSystem, finefs::Error> {
        let mut options = ImageOptions::new()
            .read_only(access == Access::Read)
            .offset_bytes(offset_bytes)
            .atime(AtimePolicy::Noatime);
        let journal = finefs::front_end::journal_of(path, offset_bytes, &self.journals);
        if let Some(journal) = journal? {
            options = options.journal(journal);
        }
        let keys = self.keys.iter().cloned();
        let options = keys.fold(options, ImageOptions::key);
        let options = options.encryption_by(self.encryption.clone());
        match is_part {
            true if self.opens_one => options.open_alone_on(self.disk(path, canonical, access)?),
            true => options.open_on(self.disk(path, canonical, access)?),
            false => options.open(path),
        }
    }

    /// All of a disk, to be filled or in part; what lies elsewhere on it can be read then.
    pub(crate) fn disk_to_fill(&mut self, path: &Path) -> Result<Arc<dyn BlockDevice>> {
        let disk = Disk::open_without_barriers(path)
            .map_err(|error| Error::of_image(error.to_string(), error.errno()))?;
        let device = Arc::clone(disk.device());
        self.disks.push(Whole {
            path: canonical(path),
            access: Access::Write,
            disk,
        });
        Ok(device)
    }

    /// The disk whose partition is to be opened.
    fn disk(
        &mut self,
        path: &Path,
        canonical: &Path,
        access: Access,
    ) -> std::result::Result<&Disk, finefs::Error> {
        let fits = |it: &Whole| it.path == canonical && it.access >= access;
        if let Some(at) = self.disks.iter().position(fits) {
            return Ok(&self.disks[at].disk);
        }
        let wanted = match access {
            Access::Read => finefs_block::Access::ReadOnly,
            Access::Write => finefs_block::Access::ReadWrite,
        };
        self.disks.push(Whole {
            path: canonical.to_owned(),
            access,
            disk: Disk::open(path, wanted)?,
        });
        Ok(&self.disks[self.disks.len() - 1].disk)
    }

    /// Where the files of an operand that is read are: a directory, and a name in it. A slash at
    /// the end of a path demands a directory, and leads through a symbolic link to one.
    pub fn source_of(&mut self, operand: &Operand) -> Result<(Arc<dyn SourceDir>, OsString)> {
        let (dir, name, path): (Arc<dyn SourceDir>, _, _) = match operand {
            Operand::Image(address) => {
                let (parent, name) = split_path(&address.path);
                let dir = self.dir(&address.with_path(parent), Access::Read)?;
                (Arc::new(dir), name, &address.path)
            }
            Operand::Host(path) => {
                let (parent, name) = split_path(path);
                (Arc::new(HostDir::open(&parent)?), name, path)
            }
            Operand::Standard => return Err(Error::new("-", "is no file")),
        };
        if !demands_directory(path) || name == "." {
            return Ok((dir, name));
        }
        if !dir.attributes(&name, Follow::Yes)?.is_directory() {
            let shown = format!("{}/", dir.shown(&name));
            return Err(Error::host(shown, Errno::NOTDIR));
        }
        match dir.attributes(&name, Follow::No)?.is_directory() {
            true => Ok((dir, name)),
            false => Ok((dir.open_dir(&name, Follow::Yes)?, ".".into())),
        }
    }

    /// The directory of an operand that is written.
    pub fn sink_of(&mut self, operand: &Operand) -> Result<Arc<dyn SinkDir>> {
        Ok(match operand {
            Operand::Image(address) => Arc::new(self.dir(address, Access::Write)?),
            Operand::Host(path) => Arc::new(HostDir::open(path)?),
            Operand::Standard => return Err(Error::new("-", "is no directory")),
        })
    }

    /// Puts on the images what was changed.
    pub fn sync(&self) -> Result<()> {
        for Open { access, source, .. } in &self.open {
            if *access == Access::Write {
                let synced = source.fs.sync();
                synced.map_err(|error| Error::inside(source.shown.clone(), &error))?;
            }
        }
        Ok(())
    }

    /// Ends all of them: what was changed is on the images, or an error says what is not.
    pub fn close(self) -> Result<()> {
        let mut result = Ok(());
        for open in self.open {
            let Source { fs, shown, .. } = &*open.source;
            if let Err(error) = fs.clone().close() {
                result = result.and(Err(Error::inside(shown.clone(), &error)));
            }
        }
        for whole in &self.disks {
            whole.disk.release();
        }
        result
    }
}

/// How often an image that others use is tried again.
const INTERVAL: Duration = Duration::from_millis(20);

/// Opens something, and tries again for so long while others use it.
fn patiently<T>(
    wait: Duration,
    mut open: impl FnMut() -> std::result::Result<T, finefs::Error>,
) -> std::result::Result<T, finefs::Error> {
    let until = Instant::now() + wait;
    loop {
        match open() {
            Err(error) if is_busy(&error) && Instant::now() < until => {
                std::thread::sleep(INTERVAL);
            }
            opened => return opened,
        }
    }
}

fn is_busy(error: &finefs::Error) -> bool {
    error.errno() == Errno::BUSY.raw_os_error()
}

/// True for a path that ends with a slash, which only a directory can have.
pub fn demands_directory(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

/// A path without the slashes at its end, except for the root.
pub fn without_slashes(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    let length = bytes.iter().rposition(|byte| *byte != b'/');
    match length {
        Some(last) => Path::new(OsStr::from_bytes(&bytes[..=last])),
        None => path,
    }
}

/// A path as its directory and the last name; `.` where it has none, as `/`, `a/..` and `a/./`.
pub fn split_path(path: &Path) -> (PathBuf, OsString) {
    let ends_with_dot = without_slashes(path)
        .as_os_str()
        .as_bytes()
        .ends_with(b"/.");
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !ends_with_dot => (parent.to_owned(), name.to_owned()),
        _ => (path.to_owned(), ".".into()),
    }
}

/// The file that an image is, or is a partition of, and where the partition starts.
pub fn locate(image: &OsStr) -> Result<(PathBuf, Option<u64>)> {
    let (path, part) = split(image);
    let start = part
        .map(|part| find(&*inspected(&path)?, &path, &part))
        .transpose()?;
    Ok((path, start.map(|part| part.start_bytes)))
}

/// Where a file system is to be made: in the partition that `image` names, of a disk that is there,
/// or else in all of a file, which may not be there yet.
pub(crate) fn place_of(image: &OsStr) -> Result<(PathBuf, Option<Partition>)> {
    let (path, part) = split(image);
    let is_disk = finefs_disk::is_url(path.as_os_str()) || path.exists() && !path.is_dir();
    match part.filter(|_| is_disk) {
        None => Ok((image.into(), None)),
        Some(part) => {
            let part = find(&*inspected(&path)?, &path, &part)?;
            Ok((path, Some(part)))
        }
    }
}

/// True for the URL of an export, and for a partition of a file that is there.
pub(crate) fn names_disk(text: &OsStr) -> bool {
    let (path, part) = split(text);
    finefs_disk::is_url(path.as_os_str()) || part.is_some() && path.is_file()
}

/// Two names of one file, or URLs that are equal.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    canonical(one) == canonical(other)
}

/// The one name of a file; of what is none, as a URL, the name that it has.
fn canonical(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// An image and its partition, if it names one.
pub(crate) fn split(image: &OsStr) -> (PathBuf, Option<String>) {
    let bytes = image.as_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'@');
    match at {
        Some(at) if at > 0 && !bytes[at..].contains(&b'/') && !Path::new(image).exists() => {
            let part = String::from_utf8_lossy(&bytes[at + 1..]).into_owned();
            (OsStr::from_bytes(&bytes[..at]).into(), Some(part))
        }
        _ => (image.into(), None),
    }
}

/// The whole disk that an image is, to look at its partitions.
fn inspected(image: &Path) -> Result<Arc<dyn BlockDevice>> {
    finefs::front_end::open_device(image, finefs_block::Access::Inspect, 0)
        .map_err(|error| Error::new("", error.to_string()))
}

/// Opens the image, or the partition of one, that `image` names; a partition ends where the next
/// thing begins.
pub fn open_part(image: &OsStr, access: finefs_block::Access) -> Result<Arc<dyn BlockDevice>> {
    let options = finefs_disk::Options {
        access,
        has_barriers: true,
        patience: finefs_block::Patience {
            limit: std::time::Duration::ZERO,
            tell: |_| {},
        },
        format: None,
    };
    open_disk(image, &options).map(|(device, _)| device)
}

/// The disk that `image` names, or the partition of it, as it is: also one without a file system.
pub(crate) fn open_disk(
    image: &OsStr,
    options: &finefs_disk::Options,
) -> Result<(Arc<dyn BlockDevice>, finefs_disk::Format)> {
    let (path, part) = split(image);
    let opened = finefs_disk::open(&path, options);
    let opened = opened.map_err(|error| Error::new("", error.to_string()))?;
    let Some(part) = part else {
        return Ok((opened.device, opened.format));
    };
    let part = find(&*opened.device, &path, &part)?;
    let within = PartitionDevice::new(opened.device, part.start_bytes, Some(part.length_bytes));
    let within = within.map_err(|error| Error::host(image.display().to_string(), error))?;
    Ok((Arc::new(within), opened.format))
}

fn find(disk: &dyn BlockDevice, image: &Path, wanted: &str) -> Result<Partition> {
    let shown = image.display().to_string();
    let partitions = partition::partitions(disk);
    let partitions = partitions.map_err(|error| Error::host(shown.clone(), error))?;
    if partitions.is_empty() {
        return Err(Error::new(shown, "has no partition table"));
    }
    let number: Option<u32> = wanted.strip_prefix('p').unwrap_or(wanted).parse().ok();
    let by_number = partitions.iter().find(|part| Some(part.number) == number);
    let mut by_name = partitions
        .iter()
        .filter(|part| part.name == wanted || part.label == wanted);
    match (by_number, by_name.next(), by_name.next()) {
        (Some(part), _, _) | (None, Some(part), None) => Ok(part.clone()),
        (None, Some(_), Some(_)) => {
            let reason = format!("more than one partition is called {wanted}; give its number");
            Err(Error::new(shown, reason))
        }
        (None, None, _) => {
            let reason = format!("no partition {wanted}; there are {}", list(&partitions));
            Err(Error::new(shown, reason))
        }
    }
}

fn list(partitions: &[Partition]) -> String {
    let names = partitions.iter().map(|part| {
        let names = [&part.name, &part.label].map(String::as_str);
        let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
        match names.is_empty() {
            true => format!("p{}", part.number),
            false => format!("p{} ({})", part.number, names.join(", ")),
        }
    });
    names.collect::<Vec<_>>().join(", ")
}

/// An image as a whole, also where it is written as its root, `IMAGE:`.
pub fn whole(text: &OsStr) -> OsString {
    match Operand::parse(text) {
        Operand::Image(address) if address.path == Path::new("/") => address.image,
        _ => text.to_owned(),
    }
}

/// Which partitions a whole disk has; `None` for what has no partition table.
pub fn partitions_named(disk: &dyn BlockDevice, shown: &str) -> Option<Error> {
    let partitions = partition::partitions(disk).ok()?;
    let first = partitions.first()?.number;
    let names = list(&partitions);
    let reason = format!("has a partition table; name one as in {shown}@p{first}: {names}");
    Some(Error::new(shown, reason))
}

/// A whole disk is often taken for a file system.
fn with_advice(error: &finefs::Error, path: &Path, shown: &str) -> Error {
    let is_content = error.errno() == Errno::INVAL.raw_os_error();
    let advice = || partitions_named(&*inspected(path).ok()?, shown);
    match advice().filter(|_| is_content && path == Path::new(shown)) {
        Some(advice) => advice,
        None => Error::of_image(error.to_string(), error.errno()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Operand {
        Operand::parse(OsStr::new(text))
    }

    fn image(image: &str, path: &str) -> Operand {
        Operand::Image(Address {
            image: image.into(),
            path: path.into(),
        })
    }

    #[test]
    fn operands_are_told_apart() {
        assert_eq!(parse("-"), Operand::Standard);
        assert_eq!(
            parse("disk.img:/etc/passwd"),
            image("disk.img", "/etc/passwd")
        );
        assert_eq!(parse("/tmp/disk.img:/"), image("/tmp/disk.img", "/"));
        assert_eq!(parse("disk.img@p2:/a:/b"), image("disk.img@p2", "/a:/b"));
        assert_eq!(parse("disk.img:etc"), image("disk.img", "/etc"));
        assert_eq!(parse("./disk.img:"), image("./disk.img", "/"));
        for url in [
            "nbd://host:1/e",
            "nbd+unix:///e?socket=/run/s",
            "nbd://host",
            "nbd://[::1]/",
        ] {
            assert_eq!(parse(&format!("{url}:/a:b")), image(url, "/a:b"));
            assert_eq!(parse(&format!("{url}:")), image(url, "/"));
            assert_eq!(parse(url), Operand::Host(url.into()));
            assert_eq!(
                split(OsStr::new(&format!("{url}@p2"))).1.as_deref(),
                Some("p2")
            );
        }
        for host in ["file", "./a:b", "/tmp/a:b", ":/a", "", ":"] {
            assert_eq!(parse(host), Operand::Host(host.into()), "{host}");
        }
    }

    #[test]
    fn paths_are_split() {
        let split = |path: &str| {
            let (parent, name) = split_path(Path::new(path));
            (
                parent.to_str().unwrap().to_owned(),
                name.to_str().unwrap().to_owned(),
            )
        };
        let pair = |parent: &str, name: &str| (parent.to_owned(), name.to_owned());
        assert_eq!(split("/a/b"), pair("/a", "b"));
        assert_eq!(split("/a/b/"), pair("/a", "b"));
        assert_eq!(split("/"), pair("/", "."));
        assert_eq!(split("a"), pair("", "a"));
        assert_eq!(split("a/."), pair("a/.", "."));
        assert_eq!(split("a/.//"), pair("a/.//", "."));
        assert_eq!(split("a/.."), pair("a/..", "."));
    }

    #[test]
    fn a_partition_stands_behind_the_last_at() {
        assert_eq!(
            split(OsStr::new("/none/a@b@p2")),
            ("/none/a@b".into(), Some("p2".to_owned()))
        );
        assert_eq!(split(OsStr::new("/no@ne/a")), ("/no@ne/a".into(), None));
    }
}
