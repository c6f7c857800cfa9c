//! Making file systems in memory.

use std::sync::Arc;

use finefs_namespace::{MemoryStore, Namespace, Options};

use crate::error::{Error, Result};
use crate::shared_options::shared_options;

/// How to make a file system in memory.
///
/// ```
/// use finefs::MemoryOptions;
///
/// // With a root that belongs to user 1000, without ACLs.
/// let fs = MemoryOptions::new().root_owner(1000, 1000).acls(false).open(64 << 20)?;
/// assert_eq!(fs.metadata(".")?.uid(), 1000);
/// # Ok::<(), finefs::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    root_mode: u32,
    root_owner: (u32, u32),
    namespace: Options,
}

impl Default for MemoryOptions {
    fn default() -> MemoryOptions {
        MemoryOptions {
            root_mode: 0o755,
            root_owner: (0, 0),
            namespace: Options::default(),
        }
    }
}

impl MemoryOptions {
    /// To read and write, relatime, a root directory of user 0 with mode 755.
    pub fn new() -> MemoryOptions {
        MemoryOptions::default()
    }

    /// The permission bits of the root directory.
    pub fn root_mode(mut self, permissions: u32) -> MemoryOptions {
        self.root_mode = permissions;
        self
    }

    /// The user and the group to whom the root directory belongs.
    pub fn root_owner(mut self, uid: u32, gid: u32) -> MemoryOptions {
        self.root_owner = (uid, gid);
        self
    }

    /// Nothing can be changed.
    pub fn read_only(mut self, is_read_only: bool) -> MemoryOptions {
        self.namespace.is_read_only = is_read_only;
        self
    }

    /// For a front end that works with inode numbers; else see [`MemoryOptions::open`].
    #[doc(hidden)]
    pub fn open_namespace(self, size_bytes: u64) -> Result<Arc<Namespace>> {
        let (uid, gid) = self.root_owner;
        MemoryStore::new(size_bytes, self.root_mode, uid, gid)
            .and_then(|store| store.into_namespace(self.namespace))
            .map_err(|cause| Error::new("open memory file system", cause))
    }
}

shared_options!(MemoryOptions);
