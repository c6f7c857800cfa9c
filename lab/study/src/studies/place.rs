//! Where the loads run, and under what: a file system of this process in memory or on an image,
//! under any locking scheme, or a directory, with the locks that it has.
//!
//! What cannot run somewhere is not measured there, and the section says so in a line.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use finefs::front_end::namespace::{Error, MemoryStore, Namespace, Options};
use finefs::{FileSystem, ImageOptions, LockingScheme};
use finefs_lockmeter::Snapshot;

use super::device::{Device, OnDevice};
use finefs_workloads::targets::{Errno, InProcess};
use finefs_workloads::{During, Result, WorkloadError};

/// What the files of the loads may take in memory if nothing else is said, bytes. Pages are taken
/// as they are written.
pub const MEMORY_BYTES: u64 = 8 << 30;

/// Where the loads run.
#[derive(Clone)]
pub enum Place {
    /// New file systems in memory, of at most this size in bytes.
    Memory(u64),
    /// An image, opened for each run. It is modified; what the runs make is removed.
    Image(PathBuf),
    /// A directory of whatever file system.
    Directory(Mounted),
}

/// A directory, and what is known of the file system that it is in.
#[derive(Clone)]
pub struct Mounted {
    /// The directory. The loads make and remove their own in it.
    pub dir: PathBuf,
    /// What rows are headed: `finefs, mounted` with the locking scheme, or the kernel's name of the
    /// file system.
    pub name: &'static str,
    /// The lock meter of its server, if that is finefs and can be asked.
    pub meter: Option<Arc<dyn ServerMeter>>,
}

/// The lock meter of another process.
pub trait ServerMeter {
    /// Counts all acquisitions, or again only the contended ones. The error is the reason, for the
    /// user.
    fn set_full(&self, is_full: bool) -> std::result::Result<(), String>;

    /// What was counted so far.
    fn snapshot(&self) -> std::result::Result<Snapshot, String>;
}

/// What a load's file system has for locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Subject {
    /// Those of a scheme.
    Scheme(LockingScheme),
    /// Its own, whatever they are, under this name.
    Mounted(&'static str),
}

impl From<LockingScheme> for Subject {
    fn from(scheme: LockingScheme) -> Subject {
        Subject::Scheme(scheme)
    }
}

impl Subject {
    pub fn name(self) -> &'static str {
        match self {
            Subject::Scheme(scheme) => scheme.name(),
            Subject::Mounted(name) => name,
        }
    }
}

/// What holds the files of a load.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Storage {
    /// Memory, an image or a directory as the place has it.
    Usual,
    /// Memory that lets reads and writes of the same bytes mix, which `unlocked-data` needs. All
    /// schemes that are compared with it run on such memory, too: it copies in another way.
    WithRaces,
    /// The same, behind a modelled device. Only in memory.
    Behind(Device),
}

/// An open file system of this process, and the directory in it that is removed at the end.
pub(super) struct Opened {
    pub target: InProcess,
    own: Option<String>,
}

impl Opened {
    /// Removes what is the run's own, and closes an image: its error says what is not on it.
    pub fn close(self) -> Result<()> {
        let Some(own) = self.own else {
            return Ok(());
        };
        let file_system = self.target.file_system().clone();
        drop(self.target);
        let removed = file_system.remove_dir_all(&own);
        file_system
            .close()
            .map_err(errno)
            .during("close", "the image")?;
        removed.map_err(errno).during("remove", &own)
    }
}

impl Place {
    /// The schemes, or in their place what is mounted.
    pub(super) fn subjects(&self, schemes: &[LockingScheme]) -> Vec<Subject> {
        match self {
            Place::Directory(mounted) => vec![Subject::Mounted(mounted.name)],
            _ => schemes.iter().copied().map(Subject::Scheme).collect(),
        }
    }

    /// finefs's own locks, or what is mounted.
    pub(super) fn own(&self) -> Subject {
        match self {
            Place::Directory(mounted) => Subject::Mounted(mounted.name),
            _ => Subject::Scheme(LockingScheme::Fine),
        }
    }

    pub(super) fn is_memory(&self) -> bool {
        matches!(self, Place::Memory(_))
    }

    /// Removals of open files are counted for this process.
    pub(super) fn tells_removals(&self) -> bool {
        !matches!(self, Place::Directory(_))
    }

    /// It can be said how locks are contended.
    pub(super) fn has_lock_counts(&self) -> bool {
        match self {
            Place::Directory(mounted) => mounted.meter.is_some(),
            _ => true,
        }
    }

    /// Opens a file system of this process.
    pub(super) fn open(&self, storage: Storage, subject: Subject) -> Result<Opened> {
        let scheme = match subject {
            Subject::Scheme(scheme) => scheme,
            // A directory is not opened here.
            Subject::Mounted(_) => LockingScheme::Fine,
        };
        match self {
            Place::Image(path) => on_image(path, scheme),
            Place::Memory(size_bytes) => in_memory(*size_bytes, storage, scheme),
            Place::Directory(mounted) => Err(WorkloadError::Parameters(format!(
                "{}: a directory has the locks that it has",
                mounted.dir.display()
            ))),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Memory(_) => f.write_str("file systems in memory, in this process"),
            Place::Image(path) => write!(f, "the image {}, in this process", path.display()),
            Place::Directory(mounted) => {
                write!(
                    f,
                    "the directory {} ({})",
                    mounted.dir.display(),
                    mounted.name
                )
            }
        }
    }
}

fn in_memory(size_bytes: u64, storage: Storage, scheme: LockingScheme) -> Result<Opened> {
    let open = || {
        let store = MemoryStore::new(size_bytes, 0o755, 0, 0)?;
        let options = Options {
            locking: scheme,
            ..Options::default()
        };
        match storage {
            Storage::Usual => store.into_namespace(options),
            Storage::WithRaces => Namespace::new(Arc::new(store), options),
            Storage::Behind(device) => {
                Namespace::new(Arc::new(OnDevice::new(store, device)), options)
            }
        }
    };
    let namespace = open()
        .map_err(|error: Error| Errno::from_raw_os_error(error.errno()))
        .during("open", "a file system in memory")?;
    let file_system = FileSystem::of(namespace, Vec::new());
    let root = file_system
        .open_dir(".")
        .map_err(errno)
        .during("open", ".")?;
    Ok(Opened {
        target: InProcess::new(file_system, root, scheme.name().to_owned()),
        own: None,
    })
}

fn on_image(path: &Path, scheme: LockingScheme) -> Result<Opened> {
    let file_system = ImageOptions::new()
        .locking(scheme)
        .open(path)
        .map_err(|error| WorkloadError::Parameters(error.to_string()))?;
    let own = format!("finefs-bench.{}", std::process::id());
    let shown = path.display().to_string();
    file_system
        .create_dir(&own)
        .map_err(errno)
        .during("mkdir", &shown)?;
    let dir = file_system
        .open_dir(&own)
        .map_err(errno)
        .during("open", &own)?;
    Ok(Opened {
        target: InProcess::new(file_system, dir, scheme.name().to_owned()),
        own: Some(own),
    })
}

fn errno(error: finefs::Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}
