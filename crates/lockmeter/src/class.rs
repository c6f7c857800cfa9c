//! Lock classes: what all locks of one purpose share.

use std::fmt;
#[cfg(not(feature = "off"))]
use std::sync::atomic::{AtomicU16, Ordering};

#[cfg(not(feature = "off"))]
use crate::registry;

/// The class of a lock: its name, its level in the lock order, and the key to its counters.
///
/// A class is a `static`; every lock of one purpose (say, of all inodes' attributes) names the same
/// class. A lock may be taken only when its class has a higher level than every lock that the
/// thread holds; locks of one class nest only in the ascending order of explicit keys. It may be
/// held while the thread waits for a device only if its class says so: [`LockClass::held_over_io`].
///
/// ```
/// use finefs_lockmeter::LockClass;
/// pub static INODE_ATTR: LockClass = LockClass::new("inode.attr", 40);
/// assert_eq!(INODE_ATTR.name(), "inode.attr");
/// assert_eq!(INODE_ATTR.level(), 40);
/// ```
pub struct LockClass {
    name: &'static str,
    level: u16,
    is_held_over_io: bool,
    /// The index of the class's counters in every thread's slots, plus one; 0 until the class is
    /// first counted. Written once, under the registry's lock.
    #[cfg(not(feature = "off"))]
    slot_plus_one: AtomicU16,
}

impl LockClass {
    /// A class. To be used for a `static`: two classes of the same name are two classes, which
    /// reports list one after the other; only OpenMetrics, which has nothing but names, sums them.
    pub const fn new(name: &'static str, level: u16) -> LockClass {
        LockClass {
            name,
            level,
            is_held_over_io: false,
            #[cfg(not(feature = "off"))]
            slot_plus_one: AtomicU16::new(0),
        }
    }

    /// The same class, whose locks may be held while a thread waits for a device.
    ///
    /// ```
    /// use finefs_lockmeter::LockClass;
    /// pub static COMMIT: LockClass = LockClass::new("commit", 5).held_over_io();
    /// assert!(COMMIT.is_held_over_io());
    /// ```
    pub const fn held_over_io(mut self) -> LockClass {
        self.is_held_over_io = true;
        self
    }

    /// True when its locks may be held while a thread waits for a device.
    pub const fn is_held_over_io(&self) -> bool {
        self.is_held_over_io
    }

    /// The name, as reports and panics of the order checker show it.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The level: locks are taken in the ascending order of levels.
    pub const fn level(&self) -> u16 {
        self.level
    }

    /// The index of this class's counters; greater than any where it is not registered.
    #[cfg(not(feature = "off"))]
    #[inline(always)]
    pub(crate) fn known_slot(&self) -> usize {
        // Relaxed: as in `slot`.
        usize::from(self.slot_plus_one.load(Ordering::Relaxed)).wrapping_sub(1)
    }

    /// The index of this class's counters. The first call registers the class.
    #[cfg(not(feature = "off"))]
    pub(crate) fn slot(&'static self) -> usize {
        // Relaxed: the slot is only an index; what it leads to is each thread's own.
        match self.slot_plus_one.load(Ordering::Relaxed) {
            0 => registry::register(self, &self.slot_plus_one),
            known => usize::from(known) - 1,
        }
    }
}

impl fmt::Debug for LockClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (level {})", self.name, self.level)
    }
}
