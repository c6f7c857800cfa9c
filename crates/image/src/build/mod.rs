//! Builds images of directories, tar archives and container images.
//!
//! | Module | Thing |
//! |---|---|
//! | `manifest` | what the image is to hold: sources, one over the other |
//! | `scan` | directories of the host and of images as sources |
//! | `archive` | tar archives as sources, compressed or not |
//! | `unpacked` | archives as files, compressed ones unpacked |
//! | `tar_headers` | headers of archives that the library does not read well |
//! | `container` | container images as sources |
//! | `squash` | squashfs images as sources |
//! | `dump` | lists of files as sources |
//! | `labels` | SELinux labels of a file_contexts file |
//! | `pax` | what archives say in extended headers |
//! | `content` | the bytes of files, wherever they are |
//! | `limits` | what an image cannot hold |
//! | `size` | how large the image must be |
//! | `sparse` | where archives have the data of files with holes |
//! | `reading` | reads the data of files ahead |
//! | `target` | where it is built |
//! | `fill` | puts it all into a new image |
//! | `onto` | puts it into an image that is there |
//!
//! # How it works
//! 1. All sources are listed: names and attributes in memory, data where it is. A compressed
//!    archive is unpacked once, into a file without a name beside the image.
//! 2. From the list follow size, UUID and time of the image.
//! 3. The image is made beside its place ([`crate::mkfs`]), filled by one thread (while others read
//!    ahead and look for zeros, and write data out), closed, and renamed. A block device or
//!    partition is filled in place.
//!
//! # Invariants
//! 1. Nothing is seen at the image's place before it is whole. A device that was filled in part has
//!    no superblock, unless the process was killed.
//! 2. The same sources and options make the same bytes: one thread makes everything, in the order
//!    of names, without a journal ([`finefs::ImageOptions::bulk_load`]); blocks of zeros become
//!    holes whatever the source has; times of access are those of the last change.
//! 3. No name of an archive leads out of the image: `..` and symbolic links are followed in the
//!    list, whose root is above everything.
//!
//! # Locking
//! None of its own.
//!
//! # References
//! The OCI's image format specification; tar(5) of libarchive; "Basic Tar Format" of GNU tar;
//! pax(1); reproducible-builds.org, "SOURCE_DATE_EPOCH".

mod archive;
mod container;
mod content;
mod dump;
mod fill;
mod labels;
mod limits;
mod manifest;
mod onto;
mod pax;
mod reading;
mod scan;
mod size;
mod sparse;
mod squash;
mod tar_headers;
mod target;
mod unpacked;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use finefs::front_end::{Disk, format_of, open_device};
use finefs::{ImageOptions, MasterKey};
use finefs_block::BlockDevice;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use rustix::io::Errno;
use serde::Serialize;

use crate::address::{self, Access, Address, Images, Operand};
use crate::choice::Choice;
use crate::error::{Error, Result};
use crate::mkfs::{self, Made};
use archive::Entries;
pub use archive::{Member, members};
pub use container::{Container, Platform};
use labels::Labels;
use limits::Limits;
use manifest::Manifest;
pub use manifest::{Mapped, Owner, Owners};
pub use onto::{Added, onto};
use target::Target;

/// Bytes of a block where nobody says it: those of a page. (mke2fs has 1024 for small ones.)
const BLOCK_SIZE: u32 = 4096;

/// Where files come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A directory of the host, with all that is in it.
    Directory(PathBuf),
    /// A directory of an image, with all that is in it.
    Image(Address),
    /// A tar archive: plain, or compressed by gzip, zstd or xz.
    Archive(PathBuf),
    /// The same from standard input.
    StandardInput,
    /// A container image.
    Container(Container),
    /// A squashfs image.
    Squashfs(PathBuf),
    /// A list of files, as composefs-dump(5) has it.
    List(PathBuf),
}

impl Source {
    /// What an operand means: `-` standard input; `oci:`, `oci-archive:`, `docker-archive:` and
    /// `docker://` container images; `list:` a list of files; else a directory, squashfs image or
    /// archive of the host, an image (a file with a file system in it), or a directory in one
    /// (`IMAGE@PARTITION:/PATH`). A path that begins like these is given as `./oci:...`.
    ///
    /// # Errors
    /// Names of container images that this does not read.
    pub fn of(path: &Path) -> Result<Source> {
        let text = path.to_str().unwrap_or_default();
        match Container::refusal(text) {
            Some(reason) => Err(Error::new(text, reason)),
            None => Ok(Source::named(path)),
        }
    }

    fn named(path: &Path) -> Source {
        if let Some(container) = Container::parse(path.to_str().unwrap_or_default()) {
            return Source::Container(container);
        }
        if let Some(list) = path.as_os_str().as_bytes().strip_prefix(b"list:") {
            return Source::List(OsStr::from_bytes(list).into());
        }
        match path.as_os_str().as_encoded_bytes() {
            b"-" => Source::StandardInput,
            _ if squash::is_squashfs(path) => Source::Squashfs(path.to_owned()),
            _ if path.is_dir() => Source::Directory(path.to_owned()),
            _ if path.exists() => match is_image(path) {
                true => Source::Image(Address::root_of(path.as_os_str())),
                false => Source::Archive(path.to_owned()),
            },
            _ => match Operand::parse(path.as_os_str()) {
                Operand::Image(address) => Source::Image(address),
                _ if address::names_disk(path.as_os_str()) => {
                    Source::Image(Address::root_of(path.as_os_str()))
                }
                _ => Source::Archive(path.to_owned()),
            },
        }
    }
}

/// True for a file that has a file system in it, and is no archive: what is compressed looks like
/// anything.
fn is_image(path: &Path) -> bool {
    // A packed image is unpacked to be looked at; an archive is told by its first bytes.
    if archive::is_packed(path) {
        return false;
    }
    let Ok(device) = open_device(path, finefs_block::Access::Inspect, 0) else {
        return false;
    };
    let mut head = [0; 512];
    let is_archive = device.read_at(0, &mut head).is_ok() && archive::is_known(&head);
    !is_archive && format_of(&*device).is_some()
}

/// Space that is to be left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Free {
    /// In bytes.
    Bytes(u64),
    /// In percents of what the files take.
    Percent(f64),
}

/// What becomes of files that an image has already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Existing {
    /// They are replaced.
    #[default]
    Replaced,
    /// They stay.
    Kept,
    /// They stay, and what would have replaced them is told of as left out.
    KeptAndTold,
}

/// How sources are read.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Whose the files are.
    pub owners: Owners,
    /// For what container images are to be; this machine without it.
    pub platform: Option<Platform>,
    /// Later times become this one, in seconds since 1970.
    pub time_max: Option<i64>,
    /// A file_contexts file that says the SELinux labels; those of the sources without it.
    pub file_contexts: Option<PathBuf>,
    /// What of the sources is left out; which members of archives are taken, under which names.
    pub choice: Choice,
    /// What becomes of files that an image has already.
    pub existing: Existing,
    /// Whiteouts of layers are kept, as overlayfs has them.
    pub keeps_whiteouts: bool,
    /// Keys of encrypted files of sources that are images.
    pub keys: Vec<MasterKey>,
    /// External journals of sources that are images.
    pub journals: Vec<PathBuf>,
}

/// What is built, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file system.
    pub file_system: mkfs::Options,
    /// What nobody gives comes from the sources: the time is that of the newest file, UUID and hash
    /// seed follow from all. Else they are what [`crate::mkfs`] makes them: new each time.
    pub is_repeatable: bool,
    /// Its size; as large as it must be without it.
    pub size_bytes: Option<u64>,
    /// Space that is left where no size is given.
    pub free: Free,
    /// How sources are read.
    pub rules: Rules,
    /// What is at the image's place may be lost.
    pub may_replace: bool,
    /// Threads, at least 1.
    pub jobs: usize,
}

/// How far it is; shared with who shows it.
#[derive(Default)]
pub struct Progress {
    /// Files that were listed.
    pub listed: AtomicU64,
    /// Files and bytes of the whole.
    pub files_all: AtomicU64,
    /// Bytes of data of the whole.
    pub bytes_all: AtomicU64,
    /// Files that were made.
    pub files: AtomicU64,
    /// Bytes of data that were read.
    pub bytes: AtomicU64,
    /// Set from outside: stop, and leave nothing.
    pub stop: Arc<AtomicBool>,
}

impl Progress {
    fn check(&self) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::new("", "interrupted; nothing was made")),
            false => Ok(()),
        }
    }

    /// Notes that so much data was read.
    fn note(&self, bytes: u64) -> Result<()> {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.check()
    }

    /// Notes what all of it is.
    fn note_all(&self, totals: manifest::Totals) {
        self.files_all.store(totals.files, Ordering::Relaxed);
        self.bytes_all.store(totals.bytes, Ordering::Relaxed);
    }
}

/// What was built. The names are those of the command's JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Built {
    /// The file system, free blocks as they are at the end.
    #[serde(flatten)]
    pub file_system: Made,
    /// Files of all kinds in it, with `lost+found`, without the root.
    pub files: u64,
    /// Bytes of data, without blocks of zeros.
    pub data_bytes: u64,
    /// Entries that were left out, a line each.
    pub left_out: Vec<String>,
}

/// Builds an image of `sources`, later ones over earlier ones, at `image` or, as
/// `IMAGE@PARTITION`, in a partition of a disk that is there.
///
/// # Errors
/// What cannot be read, what the format cannot hold, and what does not fit, by its name. What was
/// at the place before is still there then.
pub fn build(
    image: &Path,
    sources: &[Source],
    options: &Options,
    progress: &Progress,
) -> Result<Built> {
    if options.file_system.undo.is_some() {
        let reason = "an image that is filled has no undo file; copy what is there";
        return Err(Error::new("-z", reason));
    }
    if mkfs::is_journal_wanted(&options.file_system) {
        let reason = "a journal device holds no files; finefs mkfs makes one";
        return Err(Error::new("-O journal_dev", reason));
    }
    let mut images = Images::default()
        .with_keys(options.rules.keys.clone())
        .with_journals(options.rules.journals.clone());
    let built = build_among(&mut images, image, sources, options, progress);
    let closed = images.close();
    built.and_then(|built| closed.map(|()| built))
}

fn build_among(
    images: &mut Images,
    image: &Path,
    sources: &[Source],
    options: &Options,
    progress: &Progress,
) -> Result<Built> {
    let target = Target::of(image, options, images)?;
    target.check_sources(sources)?;
    let jobs = options.jobs;
    let within = Within {
        directory: &target.directory(image),
        top: Path::new("/"),
        output: target.identity(),
    };
    let mut manifest = list(images, sources, &within, (&options.rules, jobs), progress)?;
    progress.note_all(manifest.totals());
    let mut file_system = options.file_system.clone();
    if options.is_repeatable {
        manifest.identify(&mut file_system);
        // A computed size depends on holes, and the same files may have others.
        mkfs::identify(&mut file_system, target.given_bytes().unwrap_or(0));
    }
    if file_system.block_size.is_none() && file_system.block_size_min.is_none() {
        file_system.block_size = Some(BLOCK_SIZE);
    }
    let block_bytes = file_system.block_size.unwrap_or(BLOCK_SIZE);
    let limits = Limits::of_options(&file_system, block_bytes);
    limits.check_links(&manifest)?;
    limits.leave_out_xattrs(&mut manifest);
    let asked = file_system.clone();
    let given = target.given_bytes();
    let mut spare_bytes = 0;
    // The first estimate; where twice as much does not do, it is not space that is missing.
    let mut estimate_bytes = None;
    loop {
        file_system.clone_from(&asked);
        let size_bytes = match given {
            Some(bytes) => bytes,
            None => size::needed(&manifest, &mut file_system, options.free, spare_bytes)?,
        };
        let spare_max = *estimate_bytes.get_or_insert(size_bytes);
        let place = (target.open(size_bytes)?, target.is_blank());
        let built = one(&manifest, &file_system, place, jobs, progress);
        let built = built.map_err(|error| target.explained(error));
        match built {
            // An estimate that was too low, by what only the file system itself knows.
            Err(error) if error.is(Errno::NOSPC) && given.is_none() && spare_bytes < spare_max => {
                spare_bytes = (spare_bytes * 2).max(size_bytes / 32).max(1 << 20);
                progress.files.store(0, Ordering::Relaxed);
                progress.bytes.store(0, Ordering::Relaxed);
            }
            Err(error)
                if error.is(Errno::NOSPC)
                    && let Some(size_bytes) = given =>
            {
                let place = image.display().to_string();
                let (error, options) = (error, &mut file_system);
                return Err(size::lacking(&error, &manifest, options, size_bytes, place));
            }
            built => {
                let mut built = built?;
                built.file_system.image = image.display().to_string();
                target.finish()?;
                return Ok(built);
            }
        }
    }
}

/// Lists an archive; one that may have whiteouts is a layer.
fn archive(
    manifest: &mut Manifest,
    path: Option<&Path>,
    directory: &Path,
    rules: &Rules,
    progress: &Progress,
) -> Result<()> {
    let (file, shown) = unpacked::open(path, directory, progress)?;
    let entries = Entries::new(&file, &shown, progress);
    match rules.keeps_whiteouts {
        true => container::lay(manifest, &entries, true),
        false => entries.add_chosen(manifest, &rules.choice),
    }
}

/// Where sources come to lie.
struct Within<'a> {
    /// Archives are unpacked there.
    directory: &'a Path,
    /// The directory of the image.
    top: &'a Path,
    /// Device and inode number of the image that is to be replaced, which is no source of itself.
    output: Option<(u64, u64)>,
}

/// Lists all sources; images are opened among `images`.
fn list(
    images: &mut Images,
    sources: &[Source],
    within: &Within<'_>,
    (rules, jobs): (&Rules, usize),
    progress: &Progress,
) -> Result<Manifest> {
    let labels = rules.file_contexts.as_deref().map(Labels::read);
    let labels = labels.transpose()?;
    let directory = within.directory;
    let choice = &rules.choice;
    let mut manifest = Manifest::new(rules.owners.clone(), rules.time_max);
    manifest.output = within.output;
    for source in sources {
        let transport = container::transport_of(&manifest);
        match source {
            Source::Image(address) => {
                let dir = images.dir(address, Access::Read)?;
                scan::add_image(&mut manifest, Arc::new(dir), choice, (jobs, progress))?;
            }
            Source::Directory(path) => {
                scan::add(&mut manifest, path, choice, (jobs, progress))?;
            }
            Source::Archive(path) => {
                archive(&mut manifest, Some(path), directory, rules, progress)?
            }
            Source::StandardInput => archive(&mut manifest, None, directory, rules, progress)?,
            Source::Container(container) => {
                container::add(&mut manifest, container, rules, directory, progress)?;
            }
            Source::Squashfs(path) => squash::add(&mut manifest, path, progress)?,
            Source::List(path) => dump::add(&mut manifest, path, progress)?,
        }
        note_container(&mut manifest, source, transport);
    }
    if !choice.excluded.is_empty() {
        manifest.leave_out(&|path| choice.excludes_path(path));
    }
    if let Some(labels) = &labels {
        labels::apply(&mut manifest, labels, within.top);
    }
    Ok(manifest)
}

/// Notes that a source is a container image whose files are taken as they are; `before` is what was
/// known of earlier sources.
fn note_container(manifest: &mut Manifest, source: &Source, before: Option<&str>) {
    let (path, transport) = match (source, container::transport_of(manifest)) {
        (Source::Directory(path), Some("oci-archive")) => (path, "oci"),
        (Source::Archive(path), Some(transport)) => (path, transport),
        _ => return,
    };
    if before.is_none() {
        let path = path.display();
        let note = format!("{path} goes in as files; {transport}:{path} is the image in it");
        manifest.notes.push(note);
    }
}

/// Makes the file system on a device, and fills it.
fn one(
    manifest: &Manifest,
    file_system: &mkfs::Options,
    (device, is_blank): (Arc<dyn BlockDevice>, bool),
    jobs: usize,
    progress: &Progress,
) -> Result<Built> {
    progress.check()?;
    let mut made = mkfs::make(&*device, is_blank, file_system).map_err(mkfs_failed)?;
    let fs = ImageOptions::new()
        .bulk_load(made.time.max(0) as u64)
        .open_on(&Disk::of(Arc::clone(&device)))
        .map_err(|error| Error::inside(device.describe(), &error))?;
    let filled = fill::fill(&fs, manifest, jobs, progress);
    let space = fs.statfs();
    let closed = fs
        .close()
        .map_err(|error| Error::inside("the image", &error));
    if filled.is_err() {
        // A device would look like one that is whole. A file is removed.
        let spoiled = device.write_at(SUPERBLOCK_OFFSET, &[0; SUPERBLOCK_SIZE]);
        let _ = spoiled.and_then(|()| device.flush());
    }
    let (data_bytes, block_bytes) = filled?;
    closed?;
    made.free_blocks = space.blocks_free;
    made.written_bytes += block_bytes;
    made.notes.extend_from_slice(&manifest.notes);
    Ok(Built {
        files: manifest.totals().files + 1,
        file_system: made,
        data_bytes,
        left_out: manifest.left_out.clone(),
    })
}

fn mkfs_failed(error: mkfs::MkfsError) -> Error {
    match error.errno() {
        Some(errno) => Error::of_image(error.to_string(), errno),
        None => Error::new("", error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt;
    use std::process::Command;

    use super::*;

    /// What writes to it would lose its reader.
    #[test]
    fn a_pipe_is_not_opened_to_be_told() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pipe");
        assert!(
            Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        let named = path.clone();
        let told = std::thread::spawn(move || Source::of(&named).unwrap());
        while !told.is_finished() {
            // A pipe that nobody reads cannot be opened so.
            let mut options = OpenOptions::new();
            let nonblock = rustix::fs::OFlags::NONBLOCK.bits();
            let opened = options
                .write(true)
                .custom_flags(nonblock as i32)
                .open(&path);
            assert!(opened.is_err());
            std::thread::yield_now();
        }
        assert_eq!(told.join().unwrap(), Source::Archive(path));
    }
}
