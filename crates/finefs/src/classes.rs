//! The lock classes of the handles.

use finefs_lockmeter::LockClass;

/// Appends that were handed over, and those that are done; a leaf.
pub(crate) static APPENDS: LockClass = LockClass::new("appender.queue", 2);

/// The position of an open file, held over a read or write at it: below everything that those take.
pub(crate) static POSITION: LockClass = LockClass::new("file.position", 3).held_over_io();
