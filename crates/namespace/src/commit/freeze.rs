//! The marks that make changes wait while the file system is frozen, and that refuse them.

use finefs_locks::primitive::atomic::{AtomicBool, Ordering};
use finefs_locks::{Condvar, Mutex};

use crate::base::classes;

/// See the head of `operations::freeze`.
pub(crate) struct Freeze {
    /// Held by a freeze and by a thaw.
    pub freezing: Mutex<()>,
    /// The mark.
    is_frozen: AtomicBool,
    /// The other mark: changes are refused.
    refuses: AtomicBool,
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
            refuses: AtomicBool::new(false),
            lock: Mutex::new(&classes::THAW, ()),
            thawed: Condvar::new(),
        }
    }

    /// The mark.
    pub fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::Acquire)
    }

    /// True while changes are refused.
    pub fn refuses(&self) -> bool {
        self.refuses.load(Ordering::Acquire)
    }

    /// Says whether changes are refused; who is told so may still be changing something.
    pub fn set_refuses(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Release);
    }

    /// Waits until the mark is down.
    pub fn wait(&self) {
        let mut lock = self.lock.lock();
        while self.is_frozen() {
            self.thawed.wait(&mut lock);
        }
    }

    /// Puts the mark up; true when it was up already.
    pub fn mark(&self) -> bool {
        self.is_frozen.swap(true, Ordering::AcqRel)
    }

    /// Puts the mark down.
    pub fn lift(&self) {
        let _lock = self.lock.lock();
        self.is_frozen.store(false, Ordering::Release);
        self.thawed.notify_all();
    }
}
