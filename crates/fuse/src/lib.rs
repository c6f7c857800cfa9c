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
//! | `abi` | the kernel's structures |
//! | `request` | a message, taken apart |
//! | `extension` | what is appended to requests that make something |
//! | `device` | requests through /dev/fuse |
//! | `ring` | requests through io_uring |
//! | `waiting` | requests that wait for the disk or for a thaw |
//! | `negotiate` | what is agreed on with the kernel at the start |
//! | `adapter` | requests to calls, results to answers, errors to the log |
//! | `directory` | READDIR and READDIRPLUS |
//! | `ioctl` | flags, label, FITRIM, the digest of sealed files |
//! | `quota` | what somebody has and may have |
//! | `convert` | numbers, attributes, times |
//! | `cpu_latency` | keeps CPUs awake while requests come |
//! | `polling` | looks for requests before it sleeps, where that is not allowed |
//! | `lost_writes` | delayed writes that failed |
//! | `fuzzing` | requests from bytes, without a mount (with the feature of that name) |
//!
//! # Invariants
//! 1. A node id is the namespace's inode number, except that node 1 (FUSE's root) and the root's
//!    number are swapped. Users see the namespace's numbers.
//! 2. Every entry with a node that an answer carries gives the kernel one reference; the namespace
//!    has one too (it takes it in the same call).
//! 3. The kernel checks access (`default_permissions`, and ACLs by POSIX_ACL), or nobody but root
//!    can use the mount, or whoever can counts as root: then there is nothing to check. It must be
//!    so because cached entries are walked, and files opened, without asking anybody; and it may be
//!    so because the kernel has the attributes (where finefs changes a mode by itself, as a write
//!    takes set-id bits away, it says so).
//! 4. Every request but FORGET is answered, also when serving it panics (EIO).
//!
//! # Open files
//! The kernel never tells when a file is opened or closed (see above). That a file lives on after
//! its last name is gone needs no such message: the kernel keeps its reference until the last
//! user has closed it, and says so by FORGET. Only a file that O_TMPFILE made is released.
//!
//! # Why the protocol is spoken here
//! The kept-up libraries (fuser 0.18, fuse-backend-rs, libfuse's bindings) had no io_uring when
//! this was written, and what they have around it does not let it be added from outside. What they
//! leave out besides: O_TMPFILE, times of birth, when set-uid bits have to go.
//!
//! # References
//! `Documentation/filesystems/fuse/` of Linux, `include/uapi/linux/fuse.h`, mount.fuse3(8).

mod abi;
mod adapter;
mod attach;
mod convert;
mod cpu_latency;
mod detach;
mod device;
mod directory;
mod extension;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod ioctl;
mod lost_writes;
mod mounts;
mod negotiate;
mod polling;
mod quota;
mod request;
mod ring;
mod session;
mod waiting;

pub use attach::{AttachError, Options, Remounted, check_mount_point, remount};
pub use convert::View;
pub use cpu_latency::WakeupLatency;
pub use detach::{DetachError, detach, remove_dead};
pub use lost_writes::lost_writes;
pub use mounts::{MountPoint, mount_at, mounts, resolve};
pub use quota::quota_of;
pub use session::{Mount, SERVER_THREAD_PREFIX, Unmounter};
