//! What is said of an inode in a bit each.

use finefs_locks::MutexGuard;
use finefs_locks::primitive::atomic::Ordering;

use crate::inode::{Core, Guarded};

/// A link may not revive the inode without names.
const UNNAMED: u8 = 1;
/// Somebody has looked for capabilities.
const LOOKED_FOR_CAPABILITIES: u8 = 2;
/// It had capabilities, and may have them still.
const HAS_CAPABILITIES: u8 = 4;

/// Whether a file has capabilities, which changes of its data take away (Linux `S_NOSEC`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Capabilities {
    /// Nobody has looked.
    Unknown,
    /// It has none, and gets none without becoming [`Capabilities::Maybe`].
    None,
    /// It had some, and may have them still.
    Maybe,
}

impl Core {
    /// True for a file made without a name that may still get one (O_TMPFILE).
    pub fn is_unnamed(&self) -> bool {
        self.marks.load(Ordering::Acquire) & UNNAMED != 0
    }

    /// Says whether a link may revive the inode without names.
    pub fn set_unnamed(&self, _evidence: &MutexGuard<'_, Guarded>, is_unnamed: bool) {
        match is_unnamed {
            true => self.marks.fetch_or(UNNAMED, Ordering::Release),
            false => self.marks.fetch_and(!UNNAMED, Ordering::Release),
        };
    }

    /// What is known of its capabilities.
    #[inline]
    pub fn capabilities(&self) -> Capabilities {
        match self.marks.load(Ordering::Relaxed) {
            marks if marks & HAS_CAPABILITIES != 0 => Capabilities::Maybe,
            marks if marks & LOOKED_FOR_CAPABILITIES != 0 => Capabilities::None,
            _ => Capabilities::Unknown,
        }
    }

    /// Notes that it has some, or none: unless somebody has noted that it has. True where it may
    /// have some.
    pub fn note_capabilities(&self, has_some: bool) -> bool {
        let mark = match has_some {
            true => HAS_CAPABILITIES,
            false => LOOKED_FOR_CAPABILITIES,
        };
        let before = self.marks.fetch_or(mark, Ordering::Relaxed);
        (before | mark) & HAS_CAPABILITIES != 0
    }
}
