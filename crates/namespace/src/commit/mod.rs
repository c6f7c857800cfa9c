//! Commits: when the log goes to the store, and what follows from success and failure.
//!
//! One commit runs at a time, under `ns.commit`, which nobody takes inside an operation. A caller
//! that waited for the lock finds that the commit before may have served it too: so concurrent
//! fsyncs share one. Operations go on while a commit runs; only the swap of the log excludes them.
//!
//! | module | about |
//! |---|---|
//! | `oplog` | the log: what changed since the last commit, per CPU |
//! | `folding` | who folds the log, and cuts it off |
//! | `folded`, `delta`, `slab` | one shard's log as one delta for each object |
//! | `batch_size` | the blocks that they come to |
//! | `merge` | the shards' deltas as one batch |
//! | `committer`, `wakeup` | the state of committing; what the threads wait for |
//! | `flushes` | which flush of the device makes what durable |
//! | `health`, `freeze` | what keeps changes from being made: failures, a freeze |
//! | `options`, `volume` | what operations and commits share |
//! | `run` | a commit |
//! | `settled` | what only a commit settles: sizes and space |
//! | `eviction` | what can be loaded again leaves memory |
//!
//! # When
//! Every `commit_interval`, on fsync and sync, when space is short, and when there is as much to
//! commit as the store wants in a batch, or as memory allows. The commit thread does that; where it
//! is outrun writers do it before they go on, so that the heap does not grow without bound.
//!
//! # Data
//! A commit brings the data to the device that it refers to anew, and a sync of a file what was
//! written over other data of that file; what was written over the data of others stays in memory,
//! as in ext4 (`data=ordered`). It goes out at the commit interval and for a sync of everything
//! ([`Volume::commit`](volume::Volume)), before the lock of commits is taken, so that nobody's
//! fsync waits for all of it.
//!
//! # What is given back
//! The store gives the numbers and blocks of freed inodes out again when a commit is durable; those
//! of files that no commit ever named, and what was reserved for them, as soon as they are folded
//! ([`folded`]). The last name of an inode is logged as gone before it goes, and a commit may come
//! in between. The number is free only after the name is gone, all the same:
//! 1. A name goes under the lock of its inode, which is held from the append until the name's node
//!    is marked OUT (`unlink`, `rmdir`, `try_rename`). So when the record is appended that frees
//!    the inode, its other names are gone: it is the record of the last name, or the last
//!    reference's, which comes after that under the same lock.
//! 2. Whoever folds or merges takes that lock for a moment when it meets the record, before the
//!    number is handed on (`Folded::cancel`, `Inodes::take_in` of `merge`). So the last name
//!    is gone, too. It cannot deadlock: whoever holds the lock of an inode waits neither for a fold
//!    nor a commit.
//! 3. A lookup that found the name before it went, and looks the number up after it came free,
//!    meets the mark OUT (`lookup`).
//!
//! In memory freed inodes go when no operation can have found them. A commit frees many under one
//! guard, so they can only go when that has ended. The next commit that frees others sees to it, or
//! the commit thread when nothing has changed for a while.
//!
//! # Failure
//! When the store fails to commit, what was logged is lost to it: the namespace then refuses every
//! change (EROFS) and every sync reports the error; reads go on. A store that has only no storage
//! at the moment keeps what it was given, and the commit is tried again. See `health`.
//!
//! # May use
//! `base`, `schemes`, `names` and `inode`. No operation: a commit does not know what a namespace
//! is.

mod batch_size;
pub(crate) mod committer;
mod delta;
pub(crate) mod eviction;
pub(crate) mod flushes;
mod folded;
pub(crate) mod folding;
pub(crate) mod freeze;
pub(crate) mod health;
mod merge;
pub(crate) mod oplog;
pub(crate) mod options;
pub(crate) mod run;
pub(crate) mod settled;
mod slab;
pub(crate) mod volume;
mod wakeup;
