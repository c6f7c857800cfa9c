//! What the locks tell the meter: see `finefs_lockmeter`.
//!
//! Every lock has a [`LastCpu`] beside its word, every guard a [`Holding`] that is dropped after
//! the release, and a waiter makes a [`Waiting`]. Under loom and shuttle nothing is told.

pub(crate) use finefs_lockmeter::{Holding, LastCpu, Waiting};
use finefs_lockmeter::{Kind, LockClass};

/// What the meter knows a lock by.
#[derive(Clone, Copy)]
pub(crate) struct Metered<'a> {
    pub(crate) class: &'static LockClass,
    pub(crate) kind: Kind,
    pub(crate) last_cpu: &'a LastCpu,
    /// Tells locks of a class apart.
    pub(crate) address: usize,
}

/// A lock that knows its class.
pub(crate) trait MeteredLock {
    /// Its class, and where it was last taken.
    fn parts(&self) -> (&'static LockClass, &LastCpu);

    /// By which it is told from others of its class.
    #[inline]
    fn address(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>().addr()
    }

    /// How the meter knows it when it is taken as `kind`.
    #[inline]
    fn metered(&self, kind: Kind) -> Metered<'_> {
        let (class, last_cpu) = self.parts();
        Metered {
            class,
            kind,
            last_cpu,
            address: self.address(),
        }
    }
}

impl Metered<'_> {
    /// Takes a lock: at once if `fast` gives it, else by `slow`, which waits.
    #[inline]
    #[track_caller]
    pub(crate) fn take<G>(
        self,
        fast: impl FnOnce() -> Option<G>,
        slow: impl FnOnce() -> G,
    ) -> (G, Holding) {
        // A first attempt only adds schedules without adding behaviours for a model checker to
        // find.
        #[cfg(any(loom, feature = "shuttle"))]
        {
            let _ = fast;
            (slow(), Holding::none())
        }
        #[cfg(not(any(loom, feature = "shuttle")))]
        match fast() {
            Some(guard) => (guard, self.taken()),
            None => self.wait(slow),
        }
    }

    /// The lock was taken without waiting.
    #[inline]
    #[track_caller]
    pub(crate) fn taken(self) -> Holding {
        Holding::begin(self.class, self.kind, self.last_cpu)
    }

    /// The calling thread begins to wait.
    #[cold]
    #[track_caller]
    pub(crate) fn waiting(self) -> Option<Waiting> {
        if cfg!(any(loom, feature = "shuttle")) {
            return None;
        }
        Some(Waiting::begin(self.class, self.kind, self.address))
    }

    /// Takes the lock by `slow`, which waits.
    #[inline]
    #[track_caller]
    pub(crate) fn wait<R>(self, slow: impl FnOnce() -> R) -> (R, Holding) {
        Metered::wait_apart(self.class, self.kind, self.last_cpu, self.address, slow)
    }

    /// Gets the parts, so that a thread that might have to wait need not have them together in
    /// memory.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn wait_apart<R>(
        class: &'static LockClass,
        kind: Kind,
        last_cpu: &LastCpu,
        address: usize,
        slow: impl FnOnce() -> R,
    ) -> (R, Holding) {
        let metered = Metered {
            class,
            kind,
            last_cpu,
            address,
        };
        let waiting = metered.waiting();
        let result = slow();
        let holding = waiting.map_or_else(Holding::none, |waiting| waiting.granted(last_cpu));
        (result, holding)
    }
}
