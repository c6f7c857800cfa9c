//! Names: the concurrent directory, and where paths have led.
//!
//! | module | about |
//! |---|---|
//! | `name_table` | the names of one directory: lookups without a lock, a lock for each bucket |
//! | `path_cache` | what paths led to, found again without walking |
//!
//! # Invariants
//! 1. A name names a number and a kind. Nothing here knows the inode of that number.
//! 2. A name that is found may go in the next moment: its node tells (`is_out`), and of a path the
//!    count of names that inodes of its number lost.
//! 3. Several buckets are locked by `lock_all` only, which sorts them.
//!
//! # May use
//! `base`.

pub(crate) mod name_table;
pub(crate) mod path_cache;
