//! [`Waiter`]: a request that waits for a file lock; [`Interrupt`]: what ends such waits from
//! outside.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use finefs_locks::{Condvar, Mutex};

use super::lock_set::Owners;
use super::{LockKind, LockWait, Owner};
use crate::base::classes;
use crate::base::error::{Error, Result};

/// A request that waits. It stands in its file's queue, and in the wait-for graph if its owner is a
/// process.
pub(crate) struct Waiter {
    pub owner: Owner,
    pub kind: LockKind,
    pub range: Range<u64>,
    state: Mutex<State>,
    ended: Condvar,
    /// Told of the end where nobody sleeps.
    at_end: Option<Box<dyn Fn() + Send + Sync>>,
}

struct State {
    /// Its blockers. Changed under the lock of the file's locks; empty once it has an outcome.
    blockers: Owners,
    /// Set once, under the lock of the file's locks.
    outcome: Option<Result<()>>,
    is_interrupted: bool,
}

impl Waiter {
    pub(super) fn new(
        (owner, kind, range): (Owner, LockKind, Range<u64>),
        blockers: Owners,
        at_end: Option<Box<dyn Fn() + Send + Sync>>,
    ) -> Waiter {
        let state = State {
            blockers,
            outcome: None,
            is_interrupted: false,
        };
        Waiter {
            owner,
            kind,
            range,
            state: Mutex::new(&classes::LOCK_WAIT, state),
            ended: Condvar::new(),
            at_end,
        }
    }

    /// Its blockers at this moment.
    pub(super) fn blockers(&self) -> Owners {
        self.state.lock().blockers.clone()
    }

    /// Somebody else keeps it waiting now.
    pub(super) fn set_blockers(&self, blockers: Owners) {
        self.state.lock().blockers = blockers;
    }

    /// Ends the wait.
    pub(super) fn end(&self, outcome: Result<()>) {
        let mut state = self.state.lock();
        state.blockers.clear();
        state.outcome = Some(outcome);
        drop(state);
        match &self.at_end {
            Some(at_end) => at_end(),
            None => self.ended.notify_one(),
        }
    }

    /// How the wait ended, if it did. Asked under the lock of the file's locks it is the last word.
    pub(crate) fn outcome(&self) -> Option<Result<()>> {
        self.state.lock().outcome.clone()
    }

    fn interrupt(&self) {
        self.state.lock().is_interrupted = true;
        self.ended.notify_one();
    }

    /// Sleeps until the wait is ended, or time runs out, or somebody interrupts: in these two cases
    /// the outcome may come yet.
    pub(crate) fn sleep(self: &Arc<Waiter>, how: &LockWait<'_>) -> Result<()> {
        let _registered = how.interrupt.map(|interrupt| interrupt.register(self));
        let mut state = self.state.lock();
        let mut is_late = false;
        loop {
            if let Some(outcome) = &state.outcome {
                return outcome.clone();
            }
            if state.is_interrupted {
                return Err(Error::Interrupted);
            }
            if is_late {
                return Err(Error::TimedOut);
            }
            match how.deadline {
                None => self.ended.wait(&mut state),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    is_late = left.is_zero() || self.ended.wait_timeout(&mut state, left);
                }
            }
        }
    }
}

/// Ends waits for file locks from another thread, as a signal does (EINTR). Once raised it stays
/// so: a request that would have to wait with it fails at once.
#[derive(Clone)]
pub struct Interrupt(Arc<Mutex<Raised>>);

#[derive(Default)]
struct Raised {
    is_raised: bool,
    waiters: Vec<Arc<Waiter>>,
}

impl Interrupt {
    /// One that is not raised.
    pub fn new() -> Interrupt {
        Interrupt(Arc::new(Mutex::new(
            &classes::LOCK_INTERRUPT,
            Raised::default(),
        )))
    }

    /// Ends the waits that use it, with EINTR, but for those that were granted already.
    pub fn raise(&self) {
        let waiters = {
            let mut raised = self.0.lock();
            raised.is_raised = true;
            std::mem::take(&mut raised.waiters)
        };
        waiters.iter().for_each(|waiter| waiter.interrupt());
    }

    /// True once it was raised.
    pub fn is_raised(&self) -> bool {
        self.0.lock().is_raised
    }

    fn register<'i>(&'i self, waiter: &'i Arc<Waiter>) -> Registered<'i> {
        let mut raised = self.0.lock();
        if raised.is_raised {
            drop(raised);
            waiter.interrupt();
        } else {
            raised.waiters.push(Arc::clone(waiter));
        }
        Registered {
            interrupt: self,
            waiter,
        }
    }
}

impl Default for Interrupt {
    fn default() -> Interrupt {
        Interrupt::new()
    }
}

/// A wait that an [`Interrupt`] knows; dropped when it has ended.
struct Registered<'i> {
    interrupt: &'i Interrupt,
    waiter: &'i Arc<Waiter>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let mut raised = self.interrupt.0.lock();
        raised
            .waiters
            .retain(|waiter| !Arc::ptr_eq(waiter, self.waiter));
    }
}
