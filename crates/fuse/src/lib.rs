//! A namespace as a FUSE mount.
//!
//! # Purpose
//! A thin adapter: each request of the kernel becomes one call of the namespace, each answer one
//! reply. It has no semantics of its own. What it does add is the fewest round trips: finefs is
//! the only writer of what it mounts, so the kernel may cache all it learns for ever, and the
//! messages that carry no information (open, release, flush, opendir, releasedir, create) are
//! refused once with ENOSYS, after which the kernel stops sending them.
//!
//! | Module | Thing |
//! |---|---|
//! | `session` | [`Mount`]: mounts, serves, knows how to unmount itself |
//! | `attach` | mount(2), or the set-uid helper fusermount3 for ordinary users |
//! | `detach` | unmounting in the same two ways |
//! | `mounts` | what is mounted where (mountinfo) |
//! | `adapter` | requests to calls, one method each |
//! | `negotiate` | what is agreed on with the kernel at the start |
//! | `answer` | results to replies, errors to the log |
//! | `directory` | READDIR and READDIRPLUS |
//! | `convert` | numbers, attributes, times, modes |
//! | `strays` | references that only the kernel believes in |
//! | `guard` | a panic inside one operation stays inside it |
//!
//! # Invariants
//! 1. A node id is the namespace's inode number, except that node 1 (FUSE's root) and the root's
//!    number are swapped. Users see the namespace's numbers.
//! 2. Every entry that a reply carries gives the kernel one reference; the namespace has one too
//!    (it takes it in the same call), or the number is noted in `strays`.
//! 3. The mount always has `default_permissions`: the kernel checks access. It must be so because
//!    cached entries are walked without asking anybody, and it may be so because the kernel has
//!    the attributes (it never caches a mode that finefs changed behind its back).
//! 4. No reply is left out: a reply that is dropped unsent answers EIO.
//!
//! # Open files
//! The kernel never tells when a file is opened or closed (see above). That a file lives on after
//! its last name is gone needs no such message: the kernel keeps its reference until the last
//! user has closed it, and says so by FORGET.
//!
//! # What the protocol library lacks (fuser 0.18), and what that costs
//! - Birth times (STATX), unnamed files (TMPFILE): answered ENOSYS by the library itself.
//!   `stat -c %w` shows `-`; O_TMPFILE fails with EOPNOTSUPP.
//! - Whether a SETATTR that truncates shall clear set-uid bits is not passed on; the adapter
//!   assumes it for everybody but uid 0 (the kernel asks for it without CAP_FSETID).
//! - Supplementary groups of a caller are not passed on; nothing needs them here (invariant 3).
//! - No io_uring, no splice: each READ and WRITE copies its data once more.
//! - A failure to parse a request can panic a server thread: see `session`.
//!
//! # References
//! `Documentation/filesystems/fuse/` of Linux, `include/uapi/linux/fuse.h`, mount.fuse3(8).

mod adapter;
mod answer;
mod attach;
mod convert;
mod detach;
mod directory;
mod guard;
mod mounts;
mod negotiate;
mod session;
mod strays;

pub use attach::{AttachError, Options, check_mount_point};
pub use detach::{DetachError, detach};
pub use guard::{failed_operations, is_in_operation};
pub use mounts::{MountPoint, mount_at, mounts};
pub use session::{Mount, SERVER_THREAD_PREFIX, Unmounter};
