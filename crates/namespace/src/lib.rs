//! The namespace: inodes, directories, data mappings and open files in memory, concurrent and
//! authoritative, over a store that loads objects and takes batches of changes.
//!
//! # Folders
//! In the order of the layers: each uses those above it in this table, and none below (the style
//! test checks that).
//!
//! | folder | about |
//! |---|---|
//! | `base` | types, errors, the store trait, lock classes, small structures |
//! | `schemes` | other locks around the same operations, to compare with |
//! | `names` | the concurrent directory; where paths have led |
//! | `data` | extent maps; errors of writing |
//! | `file_lock` | locks on byte ranges and whole files: POSIX, OFD, flock |
//! | `inode` | inodes in memory, their references, their ACLs |
//! | `commit` | from a change to the store: log, coalescing, commits, eviction |
//! | `namespace` | the parts together; how an operation begins; loading |
//! | `access` | permissions, ACLs, access times |
//! | `operations` | what system calls mean |
//! | `memory` | a store that persists nothing |

mod access;
mod base;
mod commit;
mod data;
mod file_lock;
mod inode;
mod memory;
mod names;
mod namespace;
mod operations;
mod schemes;

pub use access::access_time::AtimeUpdate;
pub use base::error::{self, Error, Result};
pub use base::file_flags::FileFlags;
pub use base::guard;
pub use base::number_map::{self, NumberMap, NumberSet};
pub use base::parallel::{self, CommitThreads};
pub use base::store::{self, *};
pub use base::types::{self, *};
pub use commit::options::{AtimePolicy, Options};
pub use file_lock::{BlockingLock, Interrupt, LockKind, LockWait, RangeOwner};
pub use finefs_locks::Removals;
pub use memory::memory_store::MemoryStore;
pub use namespace::Namespace;
pub use operations::copy_range::SourceEnd;
pub use operations::fallocate::AllocateMode;
pub use operations::file_locks::FileLocker;
pub use operations::labelled::Labelled;
pub use operations::open_file::{OpenAccess, OpenFile, Opened};
pub use operations::owner_locks::{OwnerLocks, PendingLock};
pub use operations::paths::{Create, OpenHow};
pub use operations::read_directory::DirectoryEntry;
pub use operations::rename::RenameMode;
pub use operations::set_id::DataChange;
pub use operations::sync::SyncScope;
pub use operations::walk::{At, LastLink, SYMLINKS_MAX};
pub use operations::write_back::DataTimes;
pub use operations::xattrs::XattrMode;
#[cfg(feature = "locking-schemes")]
pub use schemes::{LockingScheme, UnknownScheme};
