//! A mount: made, served, taken away.
//!
//! # How it ends
//! The kernel ends a session when the file system is unmounted and its last user is gone, by
//! whatever way that came about: every server thread's read then fails with ENODEV and
//! [`Mount::serve`] returns. The caller then shuts the namespace down. Nothing is lost at that
//! point: the kernel writes back what it holds before it ends the session.
//!
//! # What a failure does
//! - An operation that fails answers its errno; the thread goes on.
//! - An operation that panics answers EIO; the thread goes on (`guard`).
//! - A panic of the protocol library outside of an operation ends its thread, and the request at
//!   hand gets no answer until the mount ends. Known case of fuser 0.18: a SETATTR with a time of
//!   i64::MIN seconds, where it is built with overflow checks. The caller should install a panic
//!   hook that ends the mount in order when a thread whose name starts with
//!   [`SERVER_THREAD_PREFIX`] panics outside of an operation (see [`crate::is_in_operation`]).
//! - If the whole process dies, the kernel answers ENOTCONN to every use of the mount until
//!   somebody unmounts it; the command line keeps a watcher process that does so.
//!
//! # Threads
//! Each server thread reads a request, works on it and answers. With permission on /dev/fuse each
//! thread has its own clone of the device, with a queue of its own for requests under way;
//! without (an ordinary user where the device has mode 0600), all read the one descriptor that
//! the helper handed over, which costs one shared lock in the kernel for each request.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use finefs_namespace::Namespace;
use fuser::{Config, Session, SessionACL};

use crate::adapter::Adapter;
use crate::attach::{self, AttachError, Options};
use crate::detach::{DetachError, detach};
use crate::mounts::mount_at;

/// What the names of the server threads start with.
pub const SERVER_THREAD_PREFIX: &str = "fuser-";

/// A mounted namespace that waits to be served.
pub struct Mount {
    session: Session<Adapter>,
    unmounter: Unmounter,
}

impl Mount {
    /// Mounts `namespace` at the directory `path`. When this returns, the kernel knows the file
    /// system and keeps requests until [`Mount::serve`] takes them.
    pub fn new(
        namespace: Arc<Namespace>,
        path: &Path,
        options: &Options,
    ) -> Result<Mount, AttachError> {
        let path = attach::check_mount_point(path)?;
        let device = attach::attach(&path, options)?;
        // Found now, while nothing else can have been mounted over it by who follows the rules.
        let number = mount_at(&path).ok().flatten().map(|mount| mount.device);
        let unmounter = Unmounter { path, number };

        let mut config = Config::default();
        let threads = options.threads.unwrap_or_else(default_threads).max(1);
        config.n_threads = Some(threads);
        config.clone_fd = threads > 1 && attach::may_open_device();
        let adapter = Adapter::new(namespace, options);
        // The kernel itself keeps other users out (unless allow_other); the library's own filter
        // would also refuse what the kernel's write-back threads send in the name of root.
        match Session::from_fd(adapter, device, SessionACL::All, config) {
            Ok(session) => Ok(Mount { session, unmounter }),
            Err(error) => {
                // The device is closed by now, so the kernel has given up on the session.
                let _ = detach(&unmounter.path, true);
                Err(AttachError::Session(error))
            }
        }
    }

    /// What unmounts it, from another thread.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Serves until the file system is unmounted and its last user is gone.
    pub fn serve(self) -> io::Result<()> {
        self.session.run()
    }
}

/// Takes one certain mount away, and not another that came to be at its place.
#[derive(Clone, Debug)]
pub struct Unmounter {
    path: PathBuf,
    number: Option<(u32, u32)>,
}

impl Unmounter {
    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts it; see [`detach`].
    pub fn unmount(&self, is_lazy: bool) -> Result<(), DetachError> {
        if !self.is_mounted() {
            return Err(DetachError::NotMounted);
        }
        detach(&self.path, is_lazy)
    }

    /// True while it is the topmost mount at its place.
    pub fn is_mounted(&self) -> bool {
        match mount_at(&self.path) {
            Ok(Some(mount)) => Some(mount.device) == self.number,
            _ => false,
        }
    }
}

/// As many threads as CPUs, within bounds. Measured with PostMark on two CPUs: with 8 clients two
/// threads take 15 % less time than one, and three or four more again; a single client pays for
/// the second thread (the kernel wakes waiting readers in turn, so each finds cold caches), but
/// with one thread a slow fsync would stop everybody.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |cpus| cpus.get().clamp(2, 16))
}
