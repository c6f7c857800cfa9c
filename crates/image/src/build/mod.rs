//! Builds images of directories, tar archives and container images.
//!
//! | Module | Thing |
//! |---|---|
//! | `manifest` | what the image is to hold: sources, one over the other |
//! | `scan` | directories of the host and of images as sources |
//! | `archive` | tar archives as sources, compressed or not |
//! | `container` | container images as sources |
//! | `squash` | squashfs images as sources |
//! | `dump` | lists of files as sources |
//! | `labels` | SELinux labels of a file_contexts file |
//! | `pax` | what archives say in extended headers |
//! | `content` | the bytes of files, wherever they are |
//! | `limits` | what an image cannot hold |
//! | `size` | how large the image must be |
//! | `reading` | reads the data of files ahead |
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
mod squash;

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use finefs::front_end::{format_of, open_device};
use finefs::{FileSystem, ImageOptions, MasterKey};
use rustix::io::Errno;
use serde::Serialize;

use crate::address::{self, Access, Address, Images, Operand};
use crate::beside::{Beside, directory_of};
use crate::error::{Error, Result};
use crate::mkfs::{self, Made, Place};
use archive::Entries;
pub use archive::{Member, members};
pub use container::{Container, Platform};
use labels::Labels;
use limits::Limits;
use manifest::Manifest;
pub use manifest::{Mapped, Owners};
pub use onto::{Added, onto};

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
    pub fn of(path: &Path) -> Source {
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
    let target = Target::of(image, options)?;
    target.check_sources(image, sources)?;
    let directory = match &target {
        Target::Device(place) if !place.path.is_file() => std::env::temp_dir(),
        Target::Beside(_) | Target::Device(_) => directory_of(image).to_owned(),
    };
    let (within, jobs) = ((&*directory, Path::new("/")), options.jobs);
    let mut manifest = list(sources, within, &options.rules, jobs, progress)?;
    progress.note_all(manifest.totals());
    let mut file_system = options.file_system.clone();
    if options.is_repeatable {
        manifest.identify(&mut file_system);
    }
    if file_system.block_size.is_none() && file_system.block_size_min.is_none() {
        file_system.block_size = Some(BLOCK_SIZE);
    }
    let block_bytes = file_system.block_size.unwrap_or(BLOCK_SIZE);
    let limits = Limits::of_options(&file_system, block_bytes);
    limits.check_links(&manifest)?;
    limits.leave_out_xattrs(&mut manifest);
    let asked = file_system.clone();
    let given = target.given(options);
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
        let place = target.place(size_bytes);
        let built = target
            .clear()
            .and_then(|()| one(&manifest, &file_system, &place, jobs, progress));
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

/// Where it is built.
enum Target {
    /// A file that gets its place when it is whole.
    Beside(Beside),
    /// A block device, an export of a server, or a partition; with all that it has.
    Device(Place),
}

impl Target {
    /// What is there may be a file that is to be replaced, or a device.
    fn of(image: &Path, options: &Options) -> Result<Target> {
        let refused = |reason| Err(Error::new(image.display().to_string(), reason));
        let place = Place::of(image.as_os_str(), options.size_bytes)?;
        if place.offset_bytes > 0 {
            return match options.may_replace {
                true => Ok(Target::Device(place)),
                false => refused("is a partition (--force replaces what is in it)"),
            };
        }
        let is_url = finefs_disk::is_url(image.as_os_str());
        let is_there = image.symlink_metadata().is_ok();
        if !is_url && (!is_there || image.is_file()) {
            return match is_there && !options.may_replace {
                true => refused("is there already (--force replaces it)"),
                false => Ok(Target::Beside(Beside::new(image))),
            };
        }
        let is_device = image
            .metadata()
            .map(|found| found.file_type().is_block_device());
        if !is_url && !is_device.unwrap_or(false) {
            return refused("is there already, and is no regular file and no block device");
        }
        if !options.may_replace {
            return refused("is a device (--force replaces what is on it)");
        }
        let failed = |error: mkfs::MkfsError| Error::new("", error.to_string());
        let size_bytes = match options.size_bytes {
            Some(bytes) => bytes,
            None => mkfs::length_of(image).map_err(failed)?,
        };
        Ok(Target::Device(Place {
            size_bytes: Some(size_bytes),
            ..place
        }))
    }

    /// A disk is locked as a whole: none of its partitions is read while another one is written.
    fn check_sources(&self, image: &Path, sources: &[Source]) -> Result<()> {
        let Target::Device(place) = self else {
            return Ok(());
        };
        for source in sources {
            if let Source::Image(address) = source
                && address.is_on(&place.path)
            {
                let from = address.image.display();
                let reason = format!(
                    "{from} lies on the same disk; copy it first: finefs build FILE {from}, and \
                     then build from FILE"
                );
                return Err(Error::new(image.display().to_string(), reason));
            }
        }
        Ok(())
    }

    /// Where a file system of this size is made.
    fn place(&self, size_bytes: u64) -> Place {
        let (path, offset_bytes) = match self {
            Target::Beside(beside) => (beside.path(), 0),
            Target::Device(place) => (place.path.as_path(), place.offset_bytes),
        };
        Place {
            path: path.to_owned(),
            size_bytes: Some(size_bytes),
            offset_bytes,
            may_overwrite: true,
        }
    }

    /// Makes the file that gets its place later, and is empty also where a killed process of this
    /// number has left one.
    fn clear(&self) -> Result<()> {
        let Target::Beside(beside) = self else {
            return Ok(());
        };
        let path = beside.path();
        let mut new = OpenOptions::new();
        let created = new.write(true).create(true).truncate(true).open(path);
        created
            .map(drop)
            .map_err(|error| Error::host(path.display().to_string(), error))
    }

    /// The size that is not to be computed.
    fn given(&self, options: &Options) -> Option<u64> {
        match self {
            Target::Beside(_) => options.size_bytes,
            Target::Device(place) => place.size_bytes,
        }
    }

    fn finish(self) -> Result<()> {
        match self {
            Target::Beside(beside) => beside.finish(),
            Target::Device(_) => Ok(()),
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
    let (file, shown) = archive::open(path, directory, progress)?;
    let entries = Entries::new(&file, &shown, progress);
    match rules.keeps_whiteouts {
        true => container::lay(manifest, &entries, true),
        false => entries.add_to(manifest, &|_| false),
    }
}

/// Lists all sources, which come to lie below `top`; archives are unpacked in `directory`.
fn list(
    sources: &[Source],
    (directory, top): (&Path, &Path),
    rules: &Rules,
    jobs: usize,
    progress: &Progress,
) -> Result<Manifest> {
    let labels = rules.file_contexts.as_deref().map(Labels::read);
    let labels = labels.transpose()?;
    let mut manifest = Manifest::new(rules.owners.clone(), rules.time_max);
    let mut images = Images::default()
        .with_keys(rules.keys.clone())
        .with_journals(rules.journals.clone());
    for source in sources {
        match source {
            Source::Image(address) => {
                let dir = images.dir(address, Access::Read)?;
                scan::add_image(&mut manifest, Arc::new(dir), jobs, progress)?;
            }
            Source::Directory(path) => scan::add(&mut manifest, path, jobs, progress)?,
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
    }
    if let Some(labels) = &labels {
        labels::apply(&mut manifest, labels, top);
    }
    Ok(manifest)
}

/// Makes the file system at a place, and fills it.
fn one(
    manifest: &Manifest,
    file_system: &mkfs::Options,
    place: &Place,
    jobs: usize,
    progress: &Progress,
) -> Result<Built> {
    progress.check()?;
    let mut made = mkfs::make_at(place, file_system).map_err(mkfs_failed)?;
    let fs = open(place, made.time)?;
    let filled = fill::fill(&fs, manifest, jobs, progress);
    let space = fs.statfs();
    let closed = fs
        .close()
        .map_err(|error| Error::inside("the image", &error));
    if filled.is_err() {
        // A device would look like one that is whole. A file is removed.
        let _ = mkfs::spoil(place);
    }
    let (data_bytes, block_bytes) = filled?;
    closed?;
    made.free_blocks = space.blocks_free;
    made.written_bytes += block_bytes;
    Ok(Built {
        files: manifest.totals().files + 1,
        file_system: made,
        data_bytes,
        left_out: manifest.left_out.clone(),
    })
}

fn open(place: &Place, time: i64) -> Result<FileSystem> {
    let path = &place.path;
    // What is on a device stays there.
    ImageOptions::new()
        .offset_bytes(place.offset_bytes)
        .barriers(!path.is_file())
        .bulk_load(time.max(0) as u64)
        .open(path)
        .map_err(|error| Error::inside(path.display().to_string(), &error))
}

fn mkfs_failed(error: mkfs::MkfsError) -> Error {
    Error::new("", error.to_string())
}
