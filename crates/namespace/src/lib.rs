//! The namespace: inodes, directories, data mappings and open files in memory, concurrent and
//! authoritative, over a store that loads objects and takes batches of changes.
//!
//! # Modules
//! | module | about |
//! |---|---|
//! | [`types`], [`error`] | the vocabulary |
//! | [`store`] | the contract with what is below |
//! | `namespace` | the parts; how an operation begins; how objects come into memory |
//! | `lookup` | what a name names |
//! | `entries`, `rename` | operations on names |
//! | `walk`, `path_cache`, `paths` | path walks; where they have led; operations on paths |
//! | `attributes`, `xattrs`, `data`, `fallocate`, `read_directory`, `open_file` | operations on inodes |
//! | `permission`, `acls` | who may do what; ACLs beside modes: set, changed by chmod, inherited |
//! | `acl`, `acl_cell` | what an ACL says; where permission checks find it |
//! | `file_lock` | locks on byte ranges and whole files: POSIX, OFD, flock |
//! | `inode`, `inode_table`, `name_table`, `extent_map`, `radix`, `once_box`, `retire` | the concurrent structures |
//! | `oplog`, `coalesce`, `batch_size`, `commit` | from a change to the store |
//! | [`number_map`] | hash tables keyed by inode or block |
//! | `references` | references on inodes that one CPU uses, or all |
//! | `reclaim` | what is removed over a store that takes no batches |
//! | `memory_store`, `pages` | a store that persists nothing |
//! | `scheme`, `data_lock` | other locks around the same operations, to compare with |
//! | `classes` | the lock order |
//!
//! # Invariants
//! 1. An operation checks and reserves, locks, checks again, appends one log group (where the store takes
//!    batches), publishes, unlocks. Nothing fails after the append; nothing is seen before it.
//! 2. Over device I/O only those locks are held that `docs/locking.md` lists.
//! 3. Lookups take no lock and write no shared line, the reference that they hand out apart (and that only until
//!    the inode is found to be shared).

mod access_time;
mod acl;
mod acl_cell;
mod acls;
mod attributes;
mod batch_size;
mod bell;
mod classes;
mod coalesce;
mod commit;
mod data;
mod data_lock;
mod entries;
pub mod error;
mod extent_map;
mod fallocate;
mod file_lock;
mod freeze;
mod gather;
mod health;
mod inode;
mod inode_table;
mod lookup;
mod memory_store;
mod name_table;
mod namespace;
pub mod number_map;
mod once_box;
mod open_file;
mod oplog;
mod pages;
mod path_cache;
mod paths;
mod permission;
mod radix;
mod read_directory;
mod reclaim;
mod references;
mod rename;
mod retire;
mod scheme;
mod settled;
pub mod store;
pub mod types;
mod walk;
mod write_errors;
mod xattrs;

pub use access_time::Noting;
pub use error::{Error, Result};
pub use fallocate::AllocateMode;
pub use file_lock::{BlockingLock, FileLocker, Interrupt, LockKind, LockWait, RangeOwner};
pub use finefs_locks::Removals;
pub use memory_store::MemoryStore;
pub use namespace::{AtimePolicy, Namespace, Options};
pub use number_map::{NumberMap, NumberSet};
pub use open_file::{OpenAccess, OpenFile, Opened};
pub use paths::{Create, OpenHow};
pub use read_directory::DirectoryEntry;
pub use rename::RenameMode;
pub use scheme::{LockingScheme, UnknownScheme};
pub use store::*;
pub use types::*;
pub use walk::{At, LastLink};
pub use xattrs::XattrMode;
