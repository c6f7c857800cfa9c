//! What a workload runs on. It gets a directory of its own there, which goes at the end with all
//! that the run may have left in it; nothing else is touched.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use finefs::{ImageOptions, LockingScheme, MemoryOptions};
use finefs_workloads::{HostDirectory, InProcess};
use tempfile::TempDir;

use finefs_cli::output::say;
use finefs_cli::size::Size;
use finefs_cli::{CliResult, Failure};

/// Where it is.
#[derive(Args)]
#[command(next_help_heading = "What it runs on")]
pub(crate) struct Where {
    /// A new file system in memory, in this process (the default), of at most this size: bytes, or
    /// with k, m, g or %
    #[arg(
        long,
        value_name = "SIZE",
        num_args = 0..=1,
        default_missing_value = "50%",
        conflicts_with_all = ["image", "dir"]
    )]
    pub(super) memory: Option<Size>,
    /// An ext2/3/4 or reiserfs image, in this process; the image is modified
    #[arg(long, value_name = "IMAGE", conflicts_with = "dir")]
    pub(super) image: Option<PathBuf>,
    /// A directory, through system calls
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
}

#[derive(Args)]
#[command(next_help_heading = "What it runs on")]
pub(crate) struct PlaceOptions {
    #[command(flatten)]
    pub(super) at: Where,
    /// Locks around the operations, to compare with
    #[arg(
        long,
        value_name = "NAME",
        default_value = "fine",
        conflicts_with = "dir",
        value_parser = PossibleValuesParser::new(LockingScheme::ALL.map(LockingScheme::name))
            .try_map(|name| name.parse::<LockingScheme>())
    )]
    pub(super) locking: LockingScheme,
}

/// As tmpfs has by default.
const MEMORY: Size = Size::PercentOfMemory(50);

/// An open place.
pub(crate) enum Place {
    Host {
        target: HostDirectory,
        own: TempDir,
    },
    InProcess {
        target: InProcess,
        /// The directory in an image that is removed at the end.
        own: Option<String>,
    },
}

impl Place {
    pub(crate) fn open(options: &PlaceOptions) -> CliResult<Place> {
        if let Some(dir) = &options.at.dir {
            return open_host(dir);
        }
        if let Some(image) = &options.at.image {
            return open_image(image, options.locking);
        }
        let size_bytes = options.at.memory.unwrap_or(MEMORY).bytes_in_memory()?;
        let memory = MemoryOptions::new().locking(options.locking);
        let file_system = memory.open(size_bytes).map_err(Failure::new)?;
        let root = file_system.open_dir(".").map_err(Failure::new)?;
        Ok(Place::InProcess {
            target: InProcess::new(file_system, root, "memory".to_owned()),
            own: None,
        })
    }

    /// Removes what is the run's own, and closes an image: its error says what is not on it.
    pub(crate) fn close(self) -> CliResult<()> {
        match self {
            Place::Host { target, own } => {
                let path = own.path().to_owned();
                drop(target);
                own.close().map_err(at(&path))
            }
            Place::InProcess { target, own } => {
                let file_system = target.file_system().clone();
                let removed = own.map_or(Ok(()), |own| file_system.remove_dir_all(own));
                drop(target);
                file_system.close().map_err(Failure::new)?;
                removed.map_err(Failure::new)
            }
        }
    }
}

/// A new directory in `dir`, which is removed with all that is in it.
pub(super) fn own_directory(dir: &Path) -> CliResult<TempDir> {
    HostDirectory::open(dir).map_err(at(dir))?;
    let made = tempfile::Builder::new()
        .prefix("finefs-bench.")
        .tempdir_in(dir);
    // Its error names what it tried to make, which tells nobody anything.
    made.map_err(|error| {
        let place = dir.display();
        Failure::new(format!(
            "{place}: cannot make a directory there: {}",
            error.kind()
        ))
    })
}

fn open_host(dir: &Path) -> CliResult<Place> {
    let own = own_directory(dir)?;
    let target = HostDirectory::open(own.path()).map_err(at(dir))?;
    Ok(Place::Host { target, own })
}

/// Fails if the image cannot be opened, or written.
pub(super) fn check_image(image: &Path) -> CliResult<()> {
    let file_system = ImageOptions::new().open(image).map_err(Failure::new)?;
    let is_read_only = file_system.is_read_only();
    file_system.close().map_err(Failure::new)?;
    match is_read_only {
        true => Err(at(image)("can only be read")),
        false => Ok(()),
    }
}

fn open_image(image: &Path, locking: LockingScheme) -> CliResult<Place> {
    let file_system = ImageOptions::new()
        .locking(locking)
        .open(image)
        .map_err(Failure::new)?;
    for note in file_system.notes() {
        say(note);
    }
    let own = format!("finefs-bench.{}", std::process::id());
    file_system.create_dir(&own).map_err(at(image))?;
    let dir = file_system.open_dir(&own).map_err(at(image))?;
    say(format!("{} is modified", image.display()));
    let name = image.display().to_string();
    Ok(Place::InProcess {
        target: InProcess::new(file_system, dir, name),
        own: Some(own),
    })
}

fn at<E: Display>(path: &Path) -> impl Fn(E) -> Failure {
    move |error| Failure::new(format!("{}: {error}", path.display()))
}
