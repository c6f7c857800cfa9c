//! Tar archives as sources.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use finefs::FileKind;
use tar::{Archive, Entry, EntryType, Header};

use super::Progress;
use super::content::{Content, Data, Segment};
use super::manifest::{Attributes, Kind, Manifest, Missing, Node, ROOT};
use super::pax::Pax;
use super::sparse;
use super::tar_headers::{Headers, VOLUME};
use super::unpacked::{self, INPUT};
use crate::acl;
use crate::attributes::{Time, Xattr};
use crate::choice::Choice;
use crate::error::{Error, Result};
use crate::packing::Packing;
use crate::tree::{check_path_bytes, start_of};

const TAR_BLOCK: u64 = 512;

/// True for the start of an archive, and of what is compressed.
pub(super) fn is_known(start: &[u8]) -> bool {
    is_tar(start) || Packing::of_start(start) != Packing::None
}

fn is_tar(start: &[u8]) -> bool {
    start.get(257..262).is_some_and(|magic| magic == b"ustar")
}

/// True for a compressed file in which there is an archive.
pub(super) fn is_packed(path: &Path) -> bool {
    // A pipe is opened only once, by who reads it: what writes to it would lose its reader.
    if !path.metadata().is_ok_and(|found| found.is_file()) {
        return false;
    }
    let head = || {
        let mut file = File::open(path)?;
        let mut magic = [0; 6];
        let count = file.read_at(&mut magic, 0)?;
        let mut head = Vec::new();
        if Packing::of_start(&magic[..count]) != Packing::None {
            let unpacked = Packing::of_start(&magic[..count]).reader(&mut file)?;
            unpacked.take(TAR_BLOCK).read_to_end(&mut head)?;
        }
        Ok::<_, std::io::Error>(head)
    };
    head().is_ok_and(|head| is_tar(&head))
}

/// The entries of an archive that is not compressed.
pub(super) struct Entries<'a> {
    file: &'a Arc<File>,
    shown: &'a str,
    progress: &'a Progress,
}

/// True for an entry that is not listed.
pub(super) type Aside<'a> = dyn FnMut(&mut Manifest, &Path) -> Result<bool> + 'a;

/// An entry: its path, what its extended headers say, and the rest.
type Take<'t> = dyn FnMut(&Path, Pax, &Entry<'_, Headers<'_>>) -> Result<()> + 't;

/// What a file is that is no archive; `None` for what is not known.
fn other_kind(start: &[u8]) -> Option<String> {
    let packed = |by: &str, how: &str| {
        format!("is packed by {by}, which is not supported; unpack it first ({how})")
    };
    Some(match start {
        [b'B', b'Z', b'h', ..] => packed("bzip2", "bzip2 -dc"),
        [0x04, 0x22, 0x4d, 0x18, ..] => packed("lz4", "lz4 -dc"),
        [b'L', b'Z', b'I', b'P', ..] => packed("lzip", "lzip -dc"),
        [0x1f, 0x9d, ..] => packed("compress", "gzip -dc"),
        [0x5d, 0, 0, ..] => packed("lzma", "xz --format=lzma -dc"),
        [b'0', b'7', b'0', b'7', b'0', b'1' | b'2' | b'7', ..]
        | [0xc7, 0x71, ..]
        | [0x71, 0xc7, ..] => "is a cpio archive; bsdtar -cf OUT @FILE makes tar of it".to_owned(),
        [b'P', b'K', 3, 4, ..] => {
            "is a zip archive; bsdtar -cf OUT @FILE makes tar of it".to_owned()
        }
        [b'h', b's', b'q', b's', ..] => {
            "is a squashfs image, which is read from a file only; give its path".to_owned()
        }
        _ => return None,
    })
}

/// What is wrong with a header. The library shows the bytes of a field that is no number.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.starts_with("numeric field") {
        true => "a header has a number that is none".to_owned(),
        false => text,
    }
}

/// What is wrong where an entry cannot be read behind so many others. The library says of an
/// archive that was cut off within a header that members have no header.
fn broken(count: usize, error: &std::io::Error) -> String {
    let text = error.to_string();
    let is_cut = error.kind() == std::io::ErrorKind::UnexpectedEof
        || text.starts_with("failed to read entire block")
        || text.contains("but no future member found");
    match (count, is_cut) {
        (0, true) => "is no tar archive".to_owned(),
        (0, false) => format!("is no tar archive: {}", reason(error)),
        (_, true) => format!("is damaged behind entry {count}: it ends too early"),
        (_, false) => format!("is damaged behind entry {count}: {}", reason(error)),
    }
}

impl<'a> Entries<'a> {
    pub fn new(file: &'a Arc<File>, shown: &'a str, progress: &'a Progress) -> Entries<'a> {
        Entries {
            file,
            shown,
            progress,
        }
    }

    /// Lists all but those that `aside` takes for itself, by their paths, which is asked in order.
    pub fn add_to(&self, manifest: &mut Manifest, aside: &mut Aside<'_>) -> Result<()> {
        let choice = Choice::default();
        let mut listing = Listing::new(self, manifest, &choice)?;
        self.each(
            &mut |path, pax, entry| match aside(listing.manifest, path)? {
                true => Ok(()),
                false => listing.add(path, pax, entry),
            },
        )
    }

    /// Lists those that are chosen.
    pub fn add_chosen(&self, manifest: &mut Manifest, choice: &Choice) -> Result<()> {
        let mut listing = Listing::new(self, manifest, choice)?;
        let mut found = HashSet::new();
        self.each(&mut |path, pax, entry| {
            if choice.excludes(path.as_os_str().as_encoded_bytes()) {
                listing.exclude(path, pax, entry);
                return Ok(());
            }
            if !choice.takes(path, &mut found) {
                return Ok(());
            }
            let Some(name) = choice.name(path) else {
                return Ok(());
            };
            listing.add(&name, pax, entry)?;
            if choice.is_noted {
                listing.manifest.members.push(path.to_owned());
            }
            Ok(())
        })?;
        choice.check(&found, self.shown)
    }

    fn each(&self, take: &mut Take<'_>) -> Result<()> {
        let failed = |error: std::io::Error| Error::new(self.shown, error.to_string());
        let mut reader = Headers::of(self.file);
        reader.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut archive = Archive::new(reader);
        // The end of the last entry; the next one's extended headers are behind it.
        let mut read_to = 0;
        let mut common = Pax::default();
        let mut count = 0;
        let mut is_link = false;
        for entry in archive.entries_with_seek().map_err(failed)? {
            self.progress.check()?;
            let entry = entry.map_err(|error| match count {
                0 => self.no_archive(Some(&error)),
                _ => Error::new(self.shown, broken(count, &error)),
            })?;
            count += 1;
            if matches!(entry.header().entry_type(), EntryType::XGlobalHeader) {
                continue;
            }
            let (path, pax, end) = self.headers(&entry, read_to, &mut common)?;
            read_to = end.next_multiple_of(TAR_BLOCK);
            is_link = entry.header().entry_type().is_hard_link();
            if entry.header().entry_type().as_byte() == VOLUME {
                continue;
            }
            take(&path, pax, &entry)?;
            self.progress.listed.fetch_add(1, Ordering::Relaxed);
        }
        // An archive may be empty, but is not cut off. The library sees no end in the padding of a
        // member. Some archivers note the size of a further name without having its data.
        let length = self.length()?;
        if count == 0 && length < 2 * TAR_BLOCK {
            return Err(self.no_archive(None));
        }
        if length < read_to && !is_link {
            let cut = std::io::ErrorKind::UnexpectedEof.into();
            return Err(Error::new(self.shown, broken(count, &cut)));
        }
        Ok(())
    }

    /// Why this is none. What the library says counts for what begins like one.
    fn no_archive(&self, error: Option<&std::io::Error>) -> Error {
        let mut start = [0; TAR_BLOCK as usize];
        let count = self.file.read_at(&mut start, 0).unwrap_or(0);
        let start = &start[..count];
        let line = match (other_kind(start), error) {
            (Some(line), _) => line,
            (None, Some(error)) if is_tar(start) => {
                format!("is no tar archive: {}", reason(error))
            }
            _ if self.shown == INPUT => {
                "is no tar archive, and nothing else is read from it".to_owned()
            }
            _ => "is no tar archive".to_owned(),
        };
        Error::new(self.shown, line)
    }

    /// Path and extended headers of an entry, and where it ends.
    fn headers<R: Read>(
        &self,
        entry: &Entry<'_, R>,
        read_to: u64,
        common: &mut Pax,
    ) -> Result<(PathBuf, Pax, u64)> {
        let named = entry.header().path_bytes().into_owned();
        let mut path = PathBuf::from(OsString::from_vec(named));
        let failed = |path: &Path, reason: String| {
            Error::new(format!("{}: {}", self.shown, start_of(path)), reason)
        };
        let pax = Pax::read(self.file, read_to, entry.raw_header_position(), common);
        let mut pax = pax.map_err(|reason| failed(&path, reason))?;
        let end = end_of(self.file, entry).map_err(|reason| failed(&path, reason))?;
        check_size(entry, &pax).map_err(|reason| failed(&path, reason))?;
        let long = pax.path.take().or(pax.long_path.take());
        if let Some(name) = pax.sparse_name.take().or(long) {
            path = PathBuf::from(name);
        }
        let target = pax.link_path.as_ref().or(pax.long_link_path.as_ref());
        for name in [Some(path.as_os_str()), target.map(|target| &**target)] {
            let bytes = name.map_or(0, OsStr::len);
            check_path_bytes(bytes).map_err(|reason| failed(&path, reason))?;
        }
        let has_zero = |name: &OsStr| name.as_encoded_bytes().contains(&0);
        let reason = match (has_zero(path.as_os_str()), target) {
            (true, _) => "a name with a zero byte in it",
            (false, Some(target)) if has_zero(target) => "a link to a name with a zero byte in it",
            _ => return Ok((path, pax, end)),
        };
        Err(failed(&path, reason.into()))
    }

    fn length(&self) -> Result<u64> {
        let found = self.file.metadata();
        let found = found.map_err(|error| Error::new(self.shown, error.to_string()));
        found.map(|found| found.len())
    }
}

/// An entry of an archive, as tar -t shows it.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name in the archive; those of directories end with a slash.
    pub path: PathBuf,
    /// What it is; `None` for a further name of another entry, and for what is not known.
    pub kind: Option<FileKind>,
    /// Permission bits.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes, with holes.
    pub size: u64,
    /// Number of a device node.
    pub rdev: u64,
    /// Last change of the data.
    pub modified: Time,
    /// What a link, symbolic or hard, leads to.
    pub target: Option<PathBuf>,
}

/// Tells each chosen entry of an archive, of standard input without a path.
///
/// # Errors
/// What is no archive or damaged, and those of `tell`.
pub fn members(
    path: Option<&Path>,
    choice: &Choice,
    progress: &Progress,
    tell: &mut dyn FnMut(Member) -> Result<()>,
) -> Result<()> {
    let (file, shown) = unpacked::open(path, &std::env::temp_dir(), progress)?;
    let mut manifest = Manifest::new(Default::default(), None);
    let entries = Entries::new(&file, &shown, progress);
    let mut listing = Listing::new(&entries, &mut manifest, choice)?;
    let mut found = HashSet::new();
    entries.each(
        &mut |path, pax, entry| match choice.takes(path, &mut found) {
            true => tell(listing.member(path, pax, entry)?),
            false => Ok(()),
        },
    )?;
    choice.check(&found, &shown)
}

struct Listing<'a> {
    manifest: &'a mut Manifest,
    file: &'a Arc<File>,
    shown: &'a str,
    length: u64,
    choice: &'a Choice,
    /// Files that are excluded, by their paths in the archive: other names of them may be taken.
    /// Those that have got one have a node.
    excluded: HashMap<PathBuf, (Node, Option<usize>)>,
}

impl<'a> Listing<'a> {
    fn new(
        entries: &Entries<'a>,
        manifest: &'a mut Manifest,
        choice: &'a Choice,
    ) -> Result<Listing<'a>> {
        Ok(Listing {
            manifest,
            file: entries.file,
            shown: entries.shown,
            length: entries.length()?,
            choice,
            excluded: HashMap::new(),
        })
    }

    /// Takes note of a file that is excluded. What is wrong with it is nobody's concern.
    fn exclude<R: Read>(&mut self, path: &Path, mut pax: Pax, entry: &Entry<'_, R>) {
        let kind = entry.header().entry_type();
        if is_directory(kind, path) || kind.is_hard_link() {
            return;
        }
        let lines = self.manifest.left_out.len();
        let attributes = self.attributes(entry.header(), &mut pax, path);
        let kind = self.kind(entry, &mut pax);
        self.manifest.left_out.truncate(lines);
        if let (Ok(mut attributes), Ok(Some(kind))) = (attributes, kind) {
            attributes.obey_acl();
            let node = Node { kind, attributes };
            self.excluded.insert(normal(path), (node, None));
        }
    }

    fn member<R: Read>(
        &mut self,
        path: &Path,
        mut pax: Pax,
        entry: &Entry<'_, R>,
    ) -> Result<Member> {
        let archive = self.shown;
        let failed = |reason: String| Error::new(format!("{archive}: {}", path.display()), reason);
        let kind = match entry.header().entry_type() {
            kind if is_directory(kind, path) => Some(Kind::Directory(Default::default())),
            EntryType::Link => None,
            _ => self.kind(entry, &mut pax).map_err(failed)?,
        };
        let is_link = entry.header().entry_type().is_hard_link();
        let mut member = Member {
            path: path.to_owned(),
            kind: None,
            permissions: 0,
            uid: 0,
            gid: 0,
            size: 0,
            rdev: 0,
            modified: Time {
                seconds: 0,
                nanos: 0,
            },
            target: is_link.then(|| link_target(entry, &mut pax)),
        };
        match kind {
            None => {}
            Some(Kind::Directory(_)) => {
                member.kind = Some(FileKind::Directory);
                if !path.as_os_str().as_encoded_bytes().ends_with(b"/") {
                    member.path.as_mut_os_string().push("/");
                }
            }
            Some(Kind::Regular(content)) => {
                member.kind = Some(FileKind::Regular);
                member.size = content.size;
            }
            Some(Kind::Symlink(target)) => {
                member.kind = Some(FileKind::Symlink);
                member.target = Some(target);
            }
            Some(Kind::Node { kind, rdev }) => {
                member.kind = Some(kind);
                member.rdev = rdev;
            }
        }
        let attributes = self.attributes(entry.header(), &mut pax, path);
        let attributes = attributes.map_err(failed)?;
        member.permissions = attributes.permissions;
        (member.uid, member.gid) = (attributes.uid, attributes.gid);
        member.modified = attributes.modified;
        Ok(member)
    }

    fn add<R: Read>(&mut self, path: &Path, mut pax: Pax, entry: &Entry<'_, R>) -> Result<()> {
        let kind = entry.header().entry_type();
        let archive = self.shown;
        let failed = |path: &Path, reason: String| {
            Error::new(format!("{archive}: {}", path.display()), reason)
        };
        let mut attributes = self
            .attributes(entry.header(), &mut pax, path)
            .map_err(|reason| failed(path, reason))?;
        // The header of libarchive has the mode without the mask.
        attributes.obey_acl();
        if is_directory(kind, path) {
            return self.add_directory(path, attributes);
        }
        if matches!(kind, EntryType::Link) {
            return self.add_link(&link_target(entry, &mut pax), path);
        }
        let kind = match self.kind(entry, &mut pax) {
            Ok(Some(kind)) => kind,
            Ok(None) => {
                let what = char::from(kind.as_byte());
                let line = format!(
                    "{}: {}: entries of type '{what}' are not known",
                    self.shown,
                    path.display()
                );
                self.manifest.left_out.push(line);
                return Ok(());
            }
            Err(reason) => return Err(failed(path, reason)),
        };
        let shown = || format!("{}: {}", self.shown, path.display());
        let Some(name) = last_name(path) else {
            return Err(failed(path, "a name of a directory, and is none".into()));
        };
        let parent = path.parent().unwrap_or(Path::new(""));
        let parent = self.manifest.directory(parent, Missing::Make);
        let parent = parent
            .map_err(|error| error.with_place(shown()))?
            .unwrap_or(ROOT);
        let node = Node { kind, attributes };
        self.manifest.put(parent, &name, node, &shown)?;
        Ok(())
    }

    fn add_directory(&mut self, path: &Path, attributes: Attributes) -> Result<()> {
        let shown = || format!("{}: {}", self.shown, path.display());
        let Some(name) = last_name(path) else {
            // `.`, `..` or `/`: a directory that is there, or the way to it is made.
            let found = self.manifest.directory(path, Missing::Make);
            let found = found.map_err(|error| error.with_place(shown()))?;
            self.manifest
                .set_attributes(found.unwrap_or(ROOT), attributes);
            return Ok(());
        };
        let parent = path.parent().unwrap_or(Path::new(""));
        let found = self.manifest.directory(parent, Missing::Make);
        let found = found
            .map_err(|error| error.with_place(shown()))?
            .unwrap_or(ROOT);
        let node = Node {
            kind: Kind::Directory(Default::default()),
            attributes,
        };
        self.manifest
            .put_directory(found, &parent.join(name), node, &shown)?;
        Ok(())
    }

    /// A further name of a file that came before. It is the first one of a file that is excluded,
    /// and is left out with one that is not chosen.
    fn add_link(&mut self, target: &Path, path: &Path) -> Result<()> {
        if self.choice.excludes(target.as_os_str().as_encoded_bytes()) {
            return self.add_excluded(target, path);
        }
        let name = self.choice.name(target);
        match name.filter(|_| self.choice.takes(target, &mut HashSet::new())) {
            Some(name) => self.link(&name, path),
            None => {
                self.leave_out_link(target, path);
                Ok(())
            }
        }
    }

    /// Gives a file that is excluded a name that is not.
    fn add_excluded(&mut self, target: &Path, path: &Path) -> Result<()> {
        let shown = || format!("{}: {}", self.shown, path.display());
        let found = self.excluded.get_mut(&normal(target));
        let (Some((node, number)), Some(name)) = (found, last_name(path)) else {
            self.leave_out_link(target, path);
            return Ok(());
        };
        let parent = path.parent().unwrap_or(Path::new(""));
        let parent = self.manifest.directory(parent, Missing::Make);
        let parent = parent
            .map_err(|error| error.with_place(shown()))?
            .unwrap_or(ROOT);
        match *number {
            Some(number) => self.manifest.link(parent, &name, number, &shown),
            None => {
                *number = Some(self.manifest.put(parent, &name, node.clone(), &shown)?);
                Ok(())
            }
        }
    }

    fn leave_out_link(&mut self, target: &Path, path: &Path) {
        let (path, target) = (path.display(), target.display());
        let line = format!(
            "{}: {path}: a link to {target}, which is left out",
            self.shown
        );
        self.manifest.left_out.push(line);
    }

    fn link(&mut self, target: &Path, path: &Path) -> Result<()> {
        let shown = || format!("{}: {}", self.shown, path.display());
        let missing = || {
            let reason = format!("a link to {}, which is not there", target.display());
            Error::new(shown(), reason)
        };
        let (Some(name), Some(original)) = (last_name(path), last_name(target)) else {
            return Err(missing());
        };
        let mut find = |of: &Path, missing| {
            let parent = of.parent().unwrap_or(Path::new(""));
            let found = self.manifest.directory(parent, missing);
            found.map_err(|error| error.with_place(shown()))
        };
        let from = find(target, Missing::Keep)?.ok_or_else(missing)?;
        let parent = find(path, Missing::Make)?.unwrap_or(ROOT);
        let from = self.manifest.names(from).get(&original).copied();
        let node = from.ok_or_else(missing)?;
        if matches!(self.manifest.nodes[node].kind, Kind::Directory(_)) {
            return Err(Error::new(shown(), "a hard link to a directory"));
        }
        self.manifest.link(parent, &name, node, &shown)
    }

    /// What a file is that is neither a directory nor a link to another; `None` for what is not
    /// known.
    fn kind<R: Read>(
        &self,
        entry: &Entry<'_, R>,
        pax: &mut Pax,
    ) -> std::result::Result<Option<Kind>, String> {
        let header = entry.header();
        let node = |kind| {
            let number = |part: std::io::Result<Option<u32>>| {
                let part = part.map_err(|error| reason(&error))?;
                part.ok_or_else(|| "a device without a number".to_owned())
            };
            let rdev = match kind {
                FileKind::Fifo => 0,
                _ => {
                    let major = number(header.device_major())?;
                    rustix::fs::makedev(major, number(header.device_minor())?)
                }
            };
            Ok(Some(Kind::Node { kind, rdev }))
        };
        match header.entry_type() {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => self
                .content(entry, pax)
                .map(|content| Some(Kind::Regular(content))),
            EntryType::Symlink => Ok(Some(Kind::Symlink(link_target(entry, pax)))),
            EntryType::Char => node(FileKind::CharDevice),
            EntryType::Block => node(FileKind::BlockDevice),
            EntryType::Fifo => node(FileKind::Fifo),
            _ => Ok(None),
        }
    }

    /// Where the data of a file is.
    fn content<R: Read>(
        &self,
        entry: &Entry<'_, R>,
        pax: &Pax,
    ) -> std::result::Result<Content, String> {
        let at = entry.raw_file_position();
        let (segments, size) = if entry.header().entry_type().is_gnu_sparse() {
            self.old_segments(entry.header(), at)?
        } else {
            let stored = entry.size();
            if at.saturating_add(stored) > self.length {
                return Err("the archive ends in its data".into());
            }
            match pax.segments(self.file, at, stored)? {
                Some(found) => found,
                None => {
                    let whole = Segment {
                        offset: 0,
                        at,
                        length: stored,
                    };
                    (vec![whole], stored)
                }
            }
        };
        Ok(Content {
            data_bytes: segments.iter().map(|part| part.length).sum(),
            pieces: segments.len() as u64,
            data: Data::Archive {
                file: Arc::clone(self.file),
                segments,
            },
            size,
        })
    }

    /// Parts of a file in GNU tar's own format.
    fn old_segments(
        &self,
        header: &Header,
        at: u64,
    ) -> std::result::Result<(Vec<Segment>, u64), String> {
        let (pairs, at) = sparse::old_map(self.file, header, at)?;
        let size = header.as_gnu().map(tar::GnuHeader::real_size);
        let size = size
            .and_then(std::io::Result::ok)
            .ok_or("its size is damaged")?;
        let segments = sparse::place(pairs.into_iter(), at, self.length, size)?;
        Ok((segments, size))
    }

    fn attributes(
        &mut self,
        header: &Header,
        pax: &mut Pax,
        path: &Path,
    ) -> std::result::Result<Attributes, String> {
        let old = header.as_old();
        // Some archivers leave out what is 0.
        let number = |field: &[u8], value: std::io::Result<u64>| match field
            .iter()
            .all(|byte| matches!(byte, 0 | b' '))
        {
            true => Ok(0),
            false => value.map_err(|error| reason(&error)),
        };
        let owner = |said: Option<u64>, field: &[u8], value| match said {
            Some(said) => Ok(said),
            None => number(field, value),
        };
        let id = |value: u64, what: &str| {
            u32::try_from(value)
                .ok()
                .filter(|id| *id != u32::MAX)
                .ok_or_else(|| format!("{what} {value} is out of range"))
        };
        let mut xattrs: Vec<Xattr> = std::mem::take(&mut pax.xattrs).into_iter().collect();
        for (key, text) in std::mem::take(&mut pax.acls) {
            if xattrs.iter().any(|(other, _)| other == key) {
                continue;
            }
            match acl::from_text(&text) {
                Ok(value) => xattrs.push((key.into(), value)),
                Err(reason) => {
                    let line = format!("{}: {}: {reason}", self.shown, path.display());
                    self.manifest.left_out.push(line);
                }
            }
        }
        for (key, _) in xattrs.extract_if(.., |xattr| !crate::copy::may_be_kept(&xattr.0)) {
            // Those of other systems; those of file systems are made anew.
            if !key.as_encoded_bytes().starts_with(b"system.") {
                let (place, key) = (path.display(), key.display());
                let line = format!(
                    "{}: {place}: attribute {key}: of no kind of Linux's",
                    self.shown
                );
                self.manifest.left_out.push(line);
            }
        }
        xattrs.sort();
        let modified = match pax.modified {
            Some(time) => time,
            None => Time {
                // Negative ones are stored in two's complement, by those who store them.
                seconds: number(&old.mtime, header.mtime())? as i64,
                nanos: 0,
            },
        };
        Ok(Attributes {
            permissions: number(&old.mode, header.mode().map(u64::from))? as u32 & 0o7777,
            uid: id(owner(pax.uid, &old.uid, header.uid())?, "user")?,
            gid: id(owner(pax.gid, &old.gid, header.gid())?, "group")?,
            modified,
            xattrs,
            is_implied: false,
        })
    }
}

/// Where the data of an entry ends.
fn end_of<R: Read>(file: &File, entry: &Entry<'_, R>) -> std::result::Result<u64, String> {
    let at = entry.raw_file_position();
    if !entry.header().entry_type().is_gnu_sparse() {
        return Ok(at.saturating_add(entry.size()));
    }
    let (_, at) = sparse::old_map(file, entry.header(), at)?;
    let stored = entry.header().entry_size();
    Ok(at.saturating_add(stored.map_err(|error| reason(&error))?))
}

/// Refuses an entry whose data the library sees elsewhere than its headers say: it does not find
/// the size behind a value with a line end.
fn check_size<R: Read>(entry: &Entry<'_, R>, pax: &Pax) -> std::result::Result<(), String> {
    let stored = entry
        .header()
        .entry_size()
        .map_err(|error| reason(&error))?;
    let said = pax.size.unwrap_or(stored);
    let taken = match entry.header().entry_type().is_gnu_sparse() {
        true => stored,
        false => entry.size(),
    };
    match said == taken {
        true => Ok(()),
        false => Err(format!(
            "its extended header says {said} bytes, its header {taken}"
        )),
    }
}

/// Directories of incremental archives have a type of their own, and names as their data. Those of
/// archives of before POSIX are files with a slash at the end of their names.
fn is_directory(kind: EntryType, path: &Path) -> bool {
    let ends_with_slash = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    match kind {
        EntryType::Regular | EntryType::Continuous => ends_with_slash,
        kind => kind.is_dir() || kind.as_byte() == b'D',
    }
}

/// What a link names.
fn link_target<R: Read>(entry: &Entry<'_, R>, pax: &mut Pax) -> PathBuf {
    let long = pax.link_path.take().or(pax.long_link_path.take());
    let target = long.unwrap_or_else(|| {
        let target = entry.header().link_name_bytes().unwrap_or_default();
        OsString::from_vec(target.into_owned())
    });
    PathBuf::from(target)
}

/// A path of an archive without what does not tell it from others.
fn normal(path: &Path) -> PathBuf {
    let tells = |part: &Component<'_>| !matches!(part, Component::CurDir | Component::RootDir);
    path.components().filter(tells).collect()
}

/// The last name of a path; `None` for the root, and for what ends in `..`.
fn last_name(path: &Path) -> Option<OsString> {
    path.file_name().map(|name| name.to_owned())
}
