//! Builds images of directories, tar archives and container images.
//!
//! | Module | Thing |
//! |---|---|
//! | `manifest` | what the image is to hold: sources, one over the other |
//! | `scan` | directories of the host as sources |
//! | `archive` | tar archives as sources, compressed or not |
//! | `container` | container images as sources |
//! | `pax` | what archives say in extended headers |
//! | `content` | the bytes of files, wherever they are |
//! | `size` | how large the image must be |
//! | `fill` | puts it all into a new image |
//!
//! # How it works
//! 1. All sources are listed: names and attributes in memory, data where it is. A compressed
//!    archive is unpacked once, into a file without a name beside the image.
//! 2. From the list follow size, UUID and time of the image.
//! 3. The image is made beside its place ([`crate::mkfs`]), filled by one thread (while others read
//!    ahead and look for zeros), closed, and renamed.
//!
//! # Invariants
//! 1. Nothing is seen at the image's place before it is whole.
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
mod fill;
mod manifest;
mod pax;
mod scan;
mod size;

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use finefs::{FileSystem, ImageOptions};
use rustix::io::Errno;
use serde::Serialize;

use crate::beside::{Beside, directory_of};
use crate::error::{Error, Result};
use crate::mkfs::{self, Made, Place};
pub use container::{Container, Platform};
use manifest::Manifest;
pub use manifest::{Mapped, Owners};

/// Bytes of a block where nobody says it: those of a page. (mke2fs has 1024 for small ones.)
const BLOCK_SIZE: u32 = 4096;

/// Where files come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A directory of the host, with all that is in it.
    Directory(PathBuf),
    /// A tar archive: plain, or compressed by gzip, zstd or xz.
    Archive(PathBuf),
    /// The same from standard input.
    StandardInput,
    /// A container image.
    Container(Container),
}

impl Source {
    /// What an operand means: `-` standard input; `oci:`, `oci-archive:`, `docker-archive:` and
    /// `docker://` container images; else a directory or an archive of the host. A path that begins
    /// like these is given as `./oci:...`.
    pub fn of(path: &Path) -> Source {
        if let Some(container) = Container::parse(path.to_str().unwrap_or_default()) {
            return Source::Container(container);
        }
        match path.as_os_str().as_encoded_bytes() {
            b"-" => Source::StandardInput,
            _ if path.is_dir() => Source::Directory(path.to_owned()),
            _ => Source::Archive(path.to_owned()),
        }
    }
}

/// Space that is to be left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Free {
    /// In bytes.
    Bytes(u64),
    /// In percents of what the files take.
    Percent(f64),
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
    /// Whose the files are.
    pub owners: Owners,
    /// For what container images are to be.
    pub platform: Platform,
    /// Later times become this one, in seconds since 1970.
    pub time_max: Option<i64>,
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

/// Builds an image of `sources`, later ones over earlier ones.
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
    check_place(image, options.may_replace)?;
    let manifest = list(sources, directory_of(image), options, progress)?;
    let totals = manifest.totals();
    progress.files_all.store(totals.files, Ordering::Relaxed);
    progress.bytes_all.store(totals.bytes, Ordering::Relaxed);
    let mut file_system = options.file_system.clone();
    if options.is_repeatable {
        manifest.identify(&mut file_system);
    }
    if file_system.block_size.is_none() && file_system.block_size_min.is_none() {
        file_system.block_size = Some(BLOCK_SIZE);
    }
    let asked = file_system.clone();
    let beside = Beside::new(image);
    let mut spare_bytes = 0;
    loop {
        file_system.clone_from(&asked);
        let size_bytes = match options.size_bytes {
            Some(bytes) => bytes,
            None => size::needed(&manifest, &mut file_system, options.free, spare_bytes)?,
        };
        let built = one(
            &manifest,
            &file_system,
            size_bytes,
            options,
            beside.path(),
            progress,
        );
        match built {
            // An estimate that was too low, by what only the file system itself knows.
            Err(error) if error.is(Errno::NOSPC) && may_grow(options, spare_bytes, size_bytes) => {
                spare_bytes = (spare_bytes * 2).max(size_bytes / 32).max(1 << 20);
                progress.files.store(0, Ordering::Relaxed);
                progress.bytes.store(0, Ordering::Relaxed);
            }
            Err(error) if error.is(Errno::NOSPC) && options.size_bytes.is_some() => {
                return Err(size::lacking(
                    &error,
                    &manifest,
                    &mut file_system,
                    options,
                    image,
                ));
            }
            built => {
                let mut built = built?;
                built.file_system.image = image.display().to_string();
                beside.finish()?;
                return Ok(built);
            }
        }
    }
}

/// What is there may be a file that is to be replaced.
fn check_place(image: &Path, may_replace: bool) -> Result<()> {
    let refused = |reason| Err(Error::new(image.display().to_string(), reason));
    match (image.symlink_metadata().is_ok(), image.is_file()) {
        (true, false) => refused("is there already, and is no regular file"),
        (true, true) if !may_replace => refused("is there already (--force replaces it)"),
        _ => Ok(()),
    }
}

/// Lists all sources; archives are unpacked in `directory`.
fn list(
    sources: &[Source],
    directory: &Path,
    options: &Options,
    progress: &Progress,
) -> Result<Manifest> {
    let mut manifest = Manifest::new(options.owners.clone(), options.time_max);
    for source in sources {
        match source {
            Source::Directory(path) => scan::add(&mut manifest, path, progress)?,
            Source::Archive(path) => archive::add(&mut manifest, path, directory, progress)?,
            Source::StandardInput => archive::add_input(&mut manifest, directory, progress)?,
            Source::Container(container) => {
                let platform = &options.platform;
                container::add(&mut manifest, container, platform, directory, progress)?;
            }
        }
    }
    Ok(manifest)
}

fn may_grow(options: &Options, spare_bytes: u64, size_bytes: u64) -> bool {
    options.size_bytes.is_none() && spare_bytes < size_bytes
}

/// Makes one image under a name of its own, and fills it.
fn one(
    manifest: &Manifest,
    file_system: &mkfs::Options,
    size_bytes: u64,
    options: &Options,
    path: &Path,
    progress: &Progress,
) -> Result<Built> {
    progress.check()?;
    let failed = |error: std::io::Error| Error::host(path.display().to_string(), error);
    // What a killed process of this number has left.
    let created = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path);
    drop(created.map_err(failed)?);
    let place = Place {
        path: path.to_owned(),
        size_bytes: Some(size_bytes),
        offset_bytes: 0,
        may_overwrite: true,
    };
    let mut made = mkfs::make_at(&place, file_system).map_err(mkfs_failed)?;
    let fs = open(path, made.time)?;
    let filled = fill::fill(&fs, manifest, options.jobs, progress);
    let space = fs.statfs();
    let closed = fs
        .close()
        .map_err(|error| Error::inside("the image", &error));
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

fn open(path: &Path, time: i64) -> Result<FileSystem> {
    ImageOptions::new()
        .barriers(false)
        .bulk_load(time.max(0) as u64)
        .open(path)
        .map_err(|error| Error::inside(path.display().to_string(), &error))
}

fn mkfs_failed(error: mkfs::MkfsError) -> Error {
    Error::new("", error.to_string())
}
