//! Freezing: changes wait, everything is on the image, and the image is as after a clean end.
//!
//! # Protocol
//! 1. The mark goes up. An operation that changes something looks for it when it is inside the
//!    gate, and if it is up leaves again and waits.
//! 2. The gate's writer side is taken for a moment: all operations that did not see the mark have
//!    ended.
//! 3. A commit. It holds everything that anybody has done.
//! 4. Under `ns.commit` the store is brought into the state of a clean end, and no commit does
//!    anything until the thaw. (What still comes into the log, when the kernel forgets a removed
//!    file, waits there.)
//!
//! Reading goes on all the time. The end of the namespace thaws it first.
//!
//! A namespace can also be made to refuse changes for a while ([`Namespace::refuse_changes`]): the
//! first two steps with another mark, and a sync.
//!
//! A freeze and a thaw exclude each other from beginning to end (`ns.freezing`): a thaw that came
//! between the steps would lift the mark and leave behind a store that no commit changes any more.
//!
//! # References
//! Linux `Documentation/filesystems/` (freeze_super), fsfreeze(8).

use crate::base::error::{Error, Result};
use crate::namespace::Namespace;

impl Namespace {
    /// Makes everything durable, brings the store into the state of a clean end, and lets changes
    /// wait until [`Namespace::thaw`]. EBUSY when it is frozen already; EROFS when nothing can be
    /// changed anyway.
    pub fn freeze(&self) -> Result<()> {
        if self.options.is_read_only {
            return Err(Error::ReadOnly);
        }
        let _alone = self.freeze.freezing.lock();
        if self.freeze.mark() {
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

    /// Refuses changes from now on (EROFS), also to files that are open for writing, and makes what
    /// was done before durable; or takes them again. What users removed and still have open stays
    /// until it is closed, and is given back then.
    pub fn refuse_changes(&self, refuses: bool) -> Result<()> {
        if self.options.is_read_only {
            return match refuses {
                true => Ok(()),
                false => Err(Error::ReadOnly),
            };
        }
        self.freeze.set_refuses(refuses);
        if !refuses {
            return Ok(());
        }
        // Those that have not seen the mark end.
        drop(self.gate.write());
        self.sync()
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
