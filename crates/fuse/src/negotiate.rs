//! What the server and the kernel agree on at the start (INIT).

use crate::abi::{InHeader, InitIn, InitOut, MAJOR, MINOR, init};
use crate::request;

/// Largest READ and WRITE in bytes; also the kernel's own limit (fs.fuse.max_pages_limit).
pub(crate) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Requests that may wait in the kernel's background queue (write-back, read-ahead).
const BACKGROUND_REQUESTS: u16 = 64;

/// What is asked of the kernel. What an older one does not know costs speed only.
///
/// Not asked for: AUTO_INVAL_DATA (nobody changes files behind the kernel's back), ATOMIC_O_TRUNC
/// (there is no OPEN to truncate in), ASYNC_DIO (a page that a buffered read fetches while an
/// asynchronous direct write is under way then stays in the kernel's cache, stale:
/// `fuse_aio_complete` in Linux's `fs/fuse/file.c` drops none; see below), HANDLE_KILLPRIV (its
/// successor is), ALLOW_IDMAP, POSIX_LOCKS and FLOCK_LOCKS (the mount is the only way in, so the
/// kernel may keep file locks: see docs/locking.md). POSIX_ACL is a wish.
///
/// ASYNC_DIO with a notification that drops the pages before each direct write is answered would
/// hang: the notification waits for pages that a read-ahead has locked, and that READ may wait for
/// a place among the [`BACKGROUND_REQUESTS`], which the writes without an answer have taken.
const WANTED: u64 = init::ASYNC_READ
    | init::BIG_WRITES
    | init::PARALLEL_DIROPS
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::CACHE_SYMLINKS
    | init::NO_OPEN_SUPPORT
    | init::NO_OPENDIR_SUPPORT
    | init::HANDLE_KILLPRIV_V2
    | init::EXPORT_SUPPORT
    | init::DONT_MASK
    | init::MAX_PAGES
    | init::SETXATTR_EXT
    | init::CREATE_SUPP_GROUP
    | init::INIT_EXT;

/// From this minor version on the head of a request tells how long what is appended to it is.
const EXTENSION_LENGTH_MINOR: u32 = 38;

/// Kernels that know this minor version (Linux 5.11) drop pages of what is copied over.
const COPY_MINOR: u32 = 32;

/// What the mount would like beyond that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requested {
    pub has_writeback_cache: bool,
    /// Times have nanoseconds (else whole seconds).
    pub has_fine_times: bool,
    pub has_ring: bool,
    /// The kernel checks access by ACLs too. It does not without checking it by modes
    /// (`default_permissions`), which is therefore switched on by this.
    pub checks_acls: bool,
    /// What is made may have security attributes from the start.
    pub has_labels: bool,
}

/// What came out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Negotiated {
    /// The kernel sends modes unmasked and the mask beside them.
    pub applies_umask: bool,
    /// The kernel keeps what is written until it sees fit.
    pub has_writeback_cache: bool,
    /// Requests will come through io_uring as soon as there are queues.
    pub has_ring: bool,
    /// The kernel knows that attributes change with an ACL.
    pub checks_acls: bool,
    /// SETXATTR says whether the set-gid bit has to go.
    pub has_setxattr_flags: bool,
    /// The kernel may keep pages of a range that was copied over, as before Linux 5.8.
    pub keeps_copied_pages: bool,
}

/// The largest request in the kernel's pages, which are larger than 4 KiB on some machines.
fn pages_max(page_bytes: usize) -> u16 {
    (REQUEST_BYTES_MAX as usize / page_bytes).max(1) as u16
}

/// How to answer an INIT.
pub(crate) enum InitAnswer {
    /// With this, and then everything is agreed.
    Agreed(Box<InitOut>, Negotiated),
    /// With our version; a kernel of a later major version then asks again.
    AskAgain(Box<InitOut>),
    /// The kernel is older than the protocol.
    TooOld,
}

/// Answers the INIT whose fields are `fixed` and `rest`.
pub(crate) fn answer_init(
    header: &InHeader,
    fixed: &[u8],
    rest: &[u8],
    requested: Requested,
) -> InitAnswer {
    debug_assert_eq!(header.opcode, crate::abi::opcode::INIT);
    let Ok(asked) = request::fields::<InitIn>(fixed) else {
        return InitAnswer::TooOld;
    };
    let version = InitOut {
        major: MAJOR,
        minor: MINOR,
        ..InitOut::default()
    };
    if asked.major > MAJOR {
        return InitAnswer::AskAgain(Box::new(version));
    }
    if asked.major < MAJOR {
        return InitAnswer::TooOld;
    }
    let flags2 = request::fields::<u32>(rest).unwrap_or(0);
    let has_flags2 = u64::from(asked.flags) & init::INIT_EXT != 0;
    let offered = u64::from(asked.flags)
        | if has_flags2 {
            u64::from(flags2) << 32
        } else {
            0
        };
    let mut wanted = WANTED;
    if requested.has_writeback_cache {
        wanted |= init::WRITEBACK_CACHE;
    }
    if requested.has_ring {
        wanted |= init::OVER_IO_URING;
    }
    if requested.checks_acls {
        wanted |= init::POSIX_ACL;
    }
    if requested.has_labels && asked.minor >= EXTENSION_LENGTH_MINOR {
        wanted |= init::SECURITY_CTX;
    }
    let agreed = wanted & offered;
    let out = InitOut {
        max_readahead: asked.max_readahead.min(REQUEST_BYTES_MAX),
        flags: agreed as u32,
        flags2: (agreed >> 32) as u32,
        max_background: BACKGROUND_REQUESTS,
        congestion_threshold: BACKGROUND_REQUESTS * 3 / 4,
        max_write: REQUEST_BYTES_MAX,
        time_granularity_ns: if requested.has_fine_times {
            1
        } else {
            1_000_000_000
        },
        max_pages: pages_max(rustix::param::page_size()),
        ..version
    };
    let negotiated = Negotiated {
        applies_umask: agreed & init::DONT_MASK != 0,
        has_writeback_cache: agreed & init::WRITEBACK_CACHE != 0,
        has_ring: agreed & init::OVER_IO_URING != 0,
        checks_acls: agreed & init::POSIX_ACL != 0,
        has_setxattr_flags: agreed & init::SETXATTR_EXT != 0,
        keeps_copied_pages: asked.minor < COPY_MINOR,
    };
    InitAnswer::Agreed(Box::new(out), negotiated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::opcode;
    use zerocopy::{FromZeros, IntoBytes};

    /// With it the kernel's cache keeps what a buffered read saw before an asynchronous direct
    /// write ended.
    #[test]
    fn asynchronous_direct_io_is_not_agreed_on() {
        const ASYNC_DIO: u64 = 1 << 15;
        let mut header = InHeader::new_zeroed();
        header.opcode = opcode::INIT;
        let mut asked = InitIn::new_zeroed();
        (asked.major, asked.minor, asked.flags) = (MAJOR, MINOR, u32::MAX);
        let requested = Requested {
            has_writeback_cache: true,
            has_fine_times: true,
            has_ring: true,
            checks_acls: true,
            has_labels: true,
        };
        let rest = u32::MAX.to_ne_bytes();
        match answer_init(&header, asked.as_bytes(), &rest, requested) {
            InitAnswer::Agreed(out, _) => {
                assert_eq!(u64::from(out.flags) & ASYNC_DIO, 0);
                assert_ne!(u64::from(out.flags) & init::BIG_WRITES, 0);
            }
            _ => panic!("a kernel that knows everything is refused"),
        }
    }

    /// Older kernels do not tell where in a request a security context begins.
    #[test]
    fn labels_are_asked_for_where_their_place_is_known() {
        let mut header = InHeader::new_zeroed();
        header.opcode = opcode::INIT;
        let rest = u32::MAX.to_ne_bytes();
        for (minor, has_labels) in [(37, true), (38, true), (45, true), (45, false)] {
            let asked = InitIn {
                major: MAJOR,
                minor,
                max_readahead: 0,
                flags: u32::MAX,
            };
            let requested = Requested {
                has_writeback_cache: false,
                has_fine_times: true,
                has_ring: false,
                checks_acls: false,
                has_labels,
            };
            match answer_init(&header, asked.as_bytes(), &rest, requested) {
                InitAnswer::Agreed(out, _) => {
                    let agreed = u64::from(out.flags2) << 32;
                    let is_asked_for = agreed & init::SECURITY_CTX != 0;
                    assert_eq!(is_asked_for, has_labels && minor >= 38, "{minor}");
                    assert_ne!(agreed & init::CREATE_SUPP_GROUP, 0);
                }
                _ => panic!("a kernel that knows everything is refused"),
            }
        }
    }

    #[test]
    fn requests_are_as_large_on_machines_with_larger_pages() {
        for page_bytes in [4096, 16_384, 65_536] {
            assert_eq!(usize::from(pages_max(page_bytes)) * page_bytes, 1 << 20);
        }
        assert_eq!(pages_max(4 << 20), 1);
    }
}
