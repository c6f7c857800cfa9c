//! The operations: what system calls mean, each an `impl Namespace`.
//!
//! | module | about |
//! |---|---|
//! | `lookup`, `walk` | what a name names; path walks |
//! | `entries`, `rename` | names come, go and move |
//! | `new_inode`, `labelled` | what a create makes; security attributes from the start |
//! | `paths` | operations on paths |
//! | `read_directory`, `read_large_directory` | listings |
//! | `attributes`, `xattrs` | stat, chmod and their like; extended attributes |
//! | `file_system` | the label; free space |
//! | `flags` | what chattr(1) sets |
//! | `set_id` | what takes set-id bits away |
//! | `data`, `fallocate` | reads, writes, sizes, holes |
//! | `copy_range` | copies between files |
//! | `write_back` | writes of a page cache |
//! | `verity` | what sealed files are known by |
//! | `defragment` | moving a file's blocks together |
//! | `pending`, `mapping` | blocks of a write that no log names yet; changes of a mapping |
//! | `inline` | contents that lie in inodes |
//! | `packed` | files whose last blocks lie beside other things |
//! | `open_file`, `file_locks` | open files; POSIX, OFD and flock locks |
//! | `owner_locks` | locks of owners without an open file: NFS clients |
//! | `sync`, `freeze`, `shutdown` | what concerns all files: durable, at rest, ended |
//!
//! # Invariants
//! 1. An operation checks and reserves, locks, checks again, appends one log group (where the store
//!    takes batches), publishes, unlocks. Nothing fails after the append; nothing is seen before
//!    it.
//! 2. Over device I/O only those locks are held that `docs/locking.md` lists.
//! 3. Lookups take no lock and write no shared line, the reference that they hand out apart (and
//!    that only until the inode is found to be shared).
//!
//! # May use
//! Everything below: all but `memory`.

pub(crate) mod attributes;
pub(crate) mod copy_range;
pub(crate) mod data;
mod defragment;
pub(crate) mod entries;
pub(crate) mod fallocate;
pub(crate) mod file_locks;
mod file_system;
mod flags;
mod freeze;
mod inline;
pub(crate) mod labelled;
mod lookup;
mod mapping;
mod new_inode;
pub(crate) mod open_file;
pub(crate) mod owner_locks;
mod packed;
pub(crate) mod paths;
mod pending;
pub(crate) mod read_directory;
mod read_large_directory;
pub(crate) mod rename;
pub(crate) mod set_id;
mod shutdown;
pub(crate) mod sync;
mod verity;
pub(crate) mod walk;
pub(crate) mod write_back;
pub(crate) mod xattrs;
