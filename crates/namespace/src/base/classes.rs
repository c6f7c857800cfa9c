//! The lock classes of the namespace, in their order.
//!
//! The table in `docs/locking.md` has the same, and the argument that this order excludes
//! deadlock.

use finefs_lockmeter::LockClass;

/// A freeze or a thaw, with the commits that belong to it.
pub static FREEZING: LockClass = LockClass::new("ns.freezing", 4).held_over_io();
/// Whether a thread commits for all that sync; nothing is taken under it.
pub static SYNC_TURN: LockClass = LockClass::new("ns.sync_turn", 5);
/// One commit at a time; held over the whole commit, never inside an operation.
pub static COMMIT: LockClass = LockClass::new("ns.commit", 5).held_over_io();
/// Generations that were cut off the log and wait for their commit; never inside an operation.
pub static GENERATIONS: LockClass = LockClass::new("ns.generations", 7);
/// One sweep for what can leave memory at a time; never inside an operation.
pub static EVICTION: LockClass = LockClass::new("ns.eviction", 8).held_over_io();
/// Operations (readers) against global operations (the writer).
pub static GATE: LockClass = LockClass::new("ns.gate", 10).held_over_io();
/// What one shard of the log was folded into: taken by a fold, inside the gate, and by a commit.
pub static FOLD: LockClass = LockClass::new("ns.fold", 11).held_over_io();
/// Around every operation of every file system, by the schemes `big-*`.
#[cfg(feature = "locking-schemes")]
pub static BIG: LockClass = LockClass::new("ns.big", 12).held_over_io();
/// Around every operation of a file system, by the scheme `per-superblock`.
#[cfg(feature = "locking-schemes")]
pub static SUPERBLOCK: LockClass = LockClass::new("ns.superblock", 12).held_over_io();
/// Makes ancestry stable: held while a directory changes its parent.
pub static TOPOLOGY: LockClass = LockClass::new("ns.topology", 20).held_over_io();
/// Growth and death of one directory's table.
pub static RESIZE: LockClass = LockClass::new("ns.resize", 25);
/// A sync of one file's overwritten data; never inside an operation that changes something.
pub static DATA_SYNC: LockClass = LockClass::new("ns.data_sync", 28).held_over_io();
/// Ranges of one file's data.
pub static RANGE: LockClass = LockClass::new("ns.range", 30).held_over_io();
/// All of one file's data, by the schemes `whole-file` and `whole-file-mutex`.
#[cfg(feature = "locking-schemes")]
pub static WHOLE_FILE: LockClass = LockClass::new("ns.whole_file", 30).held_over_io();
/// Reads and overwrites of data against all else, by the scheme `unlocked-data`.
#[cfg(feature = "locking-schemes")]
pub static UNLOCKED: LockClass = LockClass::new("ns.unlocked", 30).held_over_io();
/// A load of an object: its waiters hold nothing below a range lock.
pub static LOAD: LockClass = LockClass::new("ns.load", 32).held_over_io();
/// A bucket of a directory: the names in it.
pub static BUCKET: LockClass = LockClass::new("ns.bucket", 35);
/// Attributes and xattrs of one inode.
pub static INODE: LockClass = LockClass::new("ns.inode", 40).held_over_io();
/// The extended attributes of one inode.
pub static XATTR: LockClass = LockClass::new("ns.xattr", 42).held_over_io();
/// The content of one file that lies in its inode.
pub static INLINE: LockClass = LockClass::new("ns.inline", 43);
/// The attributes of an inode as they were last taken out of the log; only that touches them.
pub static COMMITTED: LockClass = LockClass::new("ns.committed", 44);
/// The extents of one segment of a file.
pub static SEGMENT: LockClass = LockClass::new("ns.segment", 45);
/// The locks on one file: the holders and the waiters.
pub static FILE_LOCKS: LockClass = LockClass::new("ns.file_locks", 47);
/// Which processes wait for a lock on a file; taken only by those that must sleep.
pub static LOCK_GRAPH: LockClass = LockClass::new("ns.lock_graph", 48);
/// One request that waits for a lock on a file.
pub static LOCK_WAIT: LockClass = LockClass::new("ns.lock_wait", 49);
/// The waits that an interrupt ends.
pub static LOCK_INTERRUPT: LockClass = LockClass::new("ns.lock_interrupt", 49);
/// A shard of the open-file list.
pub static FILES: LockClass = LockClass::new("ns.files", 50);
/// A shard of the operation log.
pub static LOG: LockClass = LockClass::new("ns.log", 55);
/// The waiters for a thaw; a leaf, taken by a change that has left the gate.
pub static THAW: LockClass = LockClass::new("ns.thaw", 57);
/// What wakes the threads that commit and fold.
pub static WAKEUP: LockClass = LockClass::new("ns.wakeup", 58);
/// What is left of leaves of the inode table that were packed; a leaf.
pub static INODE_SLOTS: LockClass = LockClass::new("ns.inode_slots", 59);
/// What is left of work that several threads share; a leaf.
pub static PIECES: LockClass = LockClass::new("ns.pieces", 59);
/// The free lists of the memory store.
pub static MEMORY: LockClass = LockClass::new("memory.free", 60);
