//! finefs: ext2, ext3 and ext4 images and memory file systems, in user space, with no big lock.
//!
//! This is the library that programs embed. It needs neither FUSE nor root. [`FileSystem`] is an
//! open image or a file system in memory; what `std::fs` does with the files of the host, its
//! methods do with the files in it, under the same names, from any number of threads at once.
//!
//! # Example
//! ```
//! use std::io::{Read, Seek, SeekFrom, Write};
//! use finefs::FileSystem;
//!
//! let fs = FileSystem::memory(64 << 20)?;
//! fs.create_dir_all("var/log")?;
//! let mut log = fs.create("var/log/boot")?;
//! writeln!(log, "up")?;
//! fs.symlink("var/log", "log")?;
//! assert_eq!(fs.read_to_string("log/boot")?, "up\n");
//! for entry in fs.read_dir("log")? {
//!     println!("{}", entry?.path().display());
//! }
//! fs.close()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! An image is opened by [`FileSystem::open_image`], or through [`ImageOptions`]:
//! ```no_run
//! let fs = finefs::FileSystem::open_image("disk.img")?;
//! fs.write("etc/hostname", "box\n")?;
//! fs.close()?; // everything is on the image, or this says what is not
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The allocator
//! A file that is created or removed is two allocations made or freed: its inode and its name. The
//! library leaves to the program which allocator they come from. glibc's grows the heaps of threads
//! in small steps; with [mimalloc](https://docs.rs/mimalloc) one thread created 1.5 times and
//! removed 2 times as many files a second in memory, PostMark made no difference, and the program
//! held some 30 MB more (docs/benchmarks.md).
//!
//! # Features
//! - `locking-schemes`: `locking` of [`ImageOptions`] and [`MemoryOptions`] puts a lock of other
//!   times around the operations, to compare with. It is off: nothing of it is compiled in.
//!
//! # Modules
//! | module | about |
//! |---|---|
//! | `file_system` | from opening to close; `view`: what handles share; `caller`: in whose name |
//! | `dir`, `whole` | operations on paths: single ones, and those made of several |
//! | `file`, `open_options`, `open` | open files, and how they come to be; `file_lock`: their locks |
//! | `appender` | appends that go on meanwhile |
//! | `symlink_xattrs` | extended attributes of what a name names, symbolic links too |
//! | `read_dir`, `metadata`, `error` | what operations give |
//! | `image`, `image_error` | opening images, for this API and for front ends; `memory`: memory |
//! | `shared_options` | options that both have |
//! | `journal`, `cache_size` | journals on devices of their own; memory for caches |
//! | `classes` | the lock classes of handles |

mod appender;
mod cache_size;
mod caller;
mod classes;
mod dir;
mod error;
mod file;
mod file_lock;
mod file_system;
mod image;
mod image_error;
mod journal;
mod memory;
mod metadata;
mod open;
mod open_options;
mod read_dir;
mod shared_options;
mod symlink_xattrs;
mod view;
mod whole;

/// The README's example, tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use appender::{Appender, Completion};
pub use caller::process_caller;
pub use dir::Dir;
pub use error::{Error, Result, errno};
pub use file::File;
pub use file_system::FileSystem;
pub use finefs_ext::{Encryption, MasterKey, OnError, QuotaKind};
#[cfg(feature = "locking-schemes")]
pub use finefs_namespace::LockingScheme;
pub use finefs_namespace::{
    AccessChecks, AllocateMode, AtimePolicy, BlockingLock, Caller, CommitThreads, FileFlags,
    FileKind, FileLocker, Interrupt, LastLink, LockKind, LockWait, RangeOwner, RenameMode, StatFs,
    VerityDigest, XattrMode,
};
pub use image::ImageOptions;
pub use memory::MemoryOptions;
pub use metadata::{FileTimes, FileType, Metadata, Permissions};
pub use open_options::OpenOptions;
pub use read_dir::{DirEntry, ReadDir};

/// The level below, for front ends that name files by inode numbers, as FUSE does. It changes as
/// they need it, whatever the version of this crate.
#[doc(hidden)]
pub mod front_end {
    pub use crate::image::{
        Disk, Format, Image, format_of, length_of_truncated, open_device, open_image,
    };
    pub use crate::journal::journal_of;
    pub use finefs_ext::EncryptionChoice;
    pub use finefs_namespace as namespace;
}
