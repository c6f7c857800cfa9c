//! What the adapter and the kernel agree on at the start.

use std::time::Duration;

use fuser::{InitFlags, KernelConfig};

/// Largest READ and WRITE; also the kernel's own limit (fs.fuse.max_pages_limit).
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Requests that may wait in the kernel's background queue (write-back, read-ahead).
const BACKGROUND_REQUESTS: u16 = 64;

/// What is asked of the kernel. What an older one does not know costs speed only.
///
/// Not asked for: AUTO_INVAL_DATA (nobody changes files behind the kernel's back), ATOMIC_O_TRUNC
/// (there is no OPEN to truncate in), HANDLE_KILLPRIV (its successor is), POSIX_ACL (ACLs are not
/// enforced), SETXATTR_EXT (the library does not parse it), ALLOW_IDMAP.
const WANTED: [InitFlags; 12] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_NO_OPEN_SUPPORT,
    InitFlags::FUSE_NO_OPENDIR_SUPPORT,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_EXPORT_SUPPORT,
    InitFlags::FUSE_DONT_MASK,
];

/// Sets `config` up. True when the kernel leaves the file mode creation mask to us.
pub(crate) fn negotiate(
    config: &mut KernelConfig,
    wants_writeback_cache: bool,
    has_fine_times: bool,
) -> bool {
    let mut applies_umask = false;
    for flag in WANTED {
        let is_known = config.add_capabilities(flag).is_ok();
        applies_umask |= is_known && flag == InitFlags::FUSE_DONT_MASK;
    }
    if wants_writeback_cache {
        let _ = config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE);
    }
    if let Err(largest) = config.set_max_write(REQUEST_BYTES_MAX) {
        let _ = config.set_max_write(largest);
    }
    if let Err(largest) = config.set_max_readahead(REQUEST_BYTES_MAX) {
        let _ = config.set_max_readahead(largest);
    }
    let _ = config.set_max_background(BACKGROUND_REQUESTS);
    if !has_fine_times {
        let _ = config.set_time_granularity(Duration::from_secs(1));
    }
    applies_umask
}
