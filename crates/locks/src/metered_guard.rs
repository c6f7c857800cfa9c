//! [`MeteredGuard`]: a primitive's guard, and for how long it is held if the meter wants to know.
//!
//! # Why not two fields
//! Fields are dropped one after the other, and each drop asks anew whether anybody wants to know.
//! Here it is asked once, so that a release that nobody wants to know of has one branch more than
//! without the meter.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use crate::wait::Holding;

/// Dropped, it stops the time, releases the lock, and has the time counted, in this order.
#[derive(Debug)]
pub(crate) struct MeteredGuard<G> {
    /// Dropped by `drop`, and nowhere else.
    inner: ManuallyDrop<G>,
    /// Dropped by `drop` if it is running; else there is nothing to drop.
    holding: ManuallyDrop<Holding>,
}

impl<G> MeteredGuard<G> {
    #[inline(always)]
    pub(crate) fn new(inner: G, holding: Holding) -> MeteredGuard<G> {
        MeteredGuard {
            inner: ManuallyDrop::new(inner),
            holding: ManuallyDrop::new(holding),
        }
    }

    /// The guard, and its time.
    pub(crate) fn parts(&mut self) -> (&mut G, &mut Holding) {
        (&mut self.inner, &mut self.holding)
    }

    #[cold]
    #[inline(never)]
    fn release_running(&mut self) {
        self.holding.stop();
        // SAFETY: `drop` alone calls this, once, and does not touch the fields afterwards.
        unsafe {
            ManuallyDrop::drop(&mut self.inner);
            ManuallyDrop::drop(&mut self.holding);
        }
    }
}

impl<G> Drop for MeteredGuard<G> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.holding.is_running() {
            self.release_running();
        } else {
            // SAFETY: this is the only drop of `inner` in this branch, and nothing uses it
            // afterwards.
            unsafe { ManuallyDrop::drop(&mut self.inner) }
        }
    }
}

impl<G> Deref for MeteredGuard<G> {
    type Target = G;
    #[inline(always)]
    fn deref(&self) -> &G {
        &self.inner
    }
}

impl<G> DerefMut for MeteredGuard<G> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut G {
        &mut self.inner
    }
}
