//! Freezing: changes wait, everything is on the image, and the image is as after a clean end.
//!
//! # Protocol
//! 1. The mark goes up. An operation that changes something looks for it when it is inside the gate, and if it is up
//!    leaves again and waits.
//! 2. The gate's writer side is taken for a moment: all operations that did not see the mark have ended.
//! 3. A commit. It holds everything that anybody has done.
//! 4. Under `ns.commit` the store is brought into the state of a clean end, and no commit does anything until
//!    the thaw. (What still comes into the log, when the kernel forgets a removed file, waits there.)
//!
//! Reading goes on all the time. The end of the namespace thaws it first.
//!
//! A freeze and a thaw exclude each other from beginning to end (`ns.freezing`): a thaw that came between the steps
//! would lift the mark and leave behind a store that no commit changes any more.
//!
//! # References
//! Linux `Documentation/filesystems/` (freeze_super), fsfreeze(8).

use finefs_locks::primitive::atomic::{AtomicBool, Ordering};
use finefs_locks::{Condvar, Mutex};

use crate::classes;
use crate::error::{Error, Result};
use crate::namespace::Namespace;

/// See the module's head.
pub(crate) struct Freeze {
    /// Held by a freeze and by a thaw.
    freezing: Mutex<()>,
    /// The mark.
    is_frozen: AtomicBool,
    /// Guards no data: a waiter looks at the mark under it, and the mark goes down under it.
    lock: Mutex<()>,
    thawed: Condvar,
}

impl Freeze {
    /// Not frozen.
    pub fn new() -> Freeze {
        Freeze {
            freezing: Mutex::new(&classes::FREEZING, ()),
            is_frozen: AtomicBool::new(false),
            lock: Mutex::new(&classes::THAW, ()),
            thawed: Condvar::new(),
        }
    }

    /// The mark.
    pub fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::Acquire)
    }

    /// Waits until the mark is down.
    pub fn wait(&self) {
        let mut lock = self.lock.lock();
        while self.is_frozen() {
            self.thawed.wait(&mut lock);
        }
    }

    fn lift(&self) {
        let _lock = self.lock.lock();
        self.is_frozen.store(false, Ordering::Release);
        self.thawed.notify_all();
    }
}

impl Namespace {
    /// Makes everything durable, brings the store into the state of a clean end, and lets changes wait until
    /// [`Namespace::thaw`]. EBUSY when it is frozen already; EROFS when nothing can be changed anyway.
    pub fn freeze(&self) -> Result<()> {
        if self.options.is_read_only {
            return Err(Error::ReadOnly);
        }
        let _alone = self.freeze.freezing.lock();
        if self.freeze.is_frozen.swap(true, Ordering::AcqRel) {
            return Err(Error::Busy);
        }
        // Those that have not seen the mark end.
        drop(self.gate.write());
        let outcome = self.commit().and_then(|()| self.freeze_store());
        if outcome.is_err() {
            self.freeze.lift();
        }
        outcome
    }

    /// Lets changes go on. EINVAL when it is not frozen.
    pub fn thaw(&self) -> Result<()> {
        let _alone = self.freeze.freezing.lock();
        if !self.freeze.is_frozen() {
            return Err(Error::Invalid);
        }
        let outcome = self.thaw_store();
        self.freeze.lift();
        outcome
    }

    /// Changes wait at the moment.
    pub fn is_frozen(&self) -> bool {
        self.freeze.is_frozen()
    }

    /// Returns when changes need not wait (any more).
    pub fn wait_for_thaw(&self) {
        self.freeze.wait();
    }
}
