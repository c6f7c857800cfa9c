//! What stands for the meter where it is compiled away: the same names, empty.

use crate::class::LockClass;
use crate::lease::Made;
use crate::snapshot::Snapshot;
use crate::{Kind, Queue, Thresholds};

/// Empty: the meter is compiled away.
#[derive(Debug, Default)]
pub struct LastCpu;

impl LastCpu {
    /// Empty.
    pub const fn new() -> LastCpu {
        LastCpu
    }

    /// Empty.
    pub const fn untraced() -> LastCpu {
        LastCpu
    }
}

/// Empty: the meter is compiled away.
#[derive(Debug)]
pub struct Holding;

impl Holding {
    /// Empty.
    #[inline(always)]
    pub fn begin(_: &'static LockClass, _: Kind, _: &LastCpu) -> Holding {
        Holding
    }

    /// Empty.
    pub const fn none() -> Holding {
        Holding
    }

    /// False.
    #[inline(always)]
    pub const fn is_running(&self) -> bool {
        false
    }

    /// Does nothing.
    #[inline(always)]
    pub fn stop(&mut self) {}

    /// Runs `while_released`.
    #[inline(always)]
    pub fn interrupted<R>(&mut self, while_released: impl FnOnce() -> R) -> R {
        while_released()
    }
}

/// Empty: the meter is compiled away.
pub struct Waiting;

impl Waiting {
    /// Empty.
    #[inline(always)]
    pub fn begin(_: &'static LockClass, _: Kind, _: usize) -> Waiting {
        Waiting
    }

    /// Empty.
    #[inline(always)]
    pub fn granted(self, _: &LastCpu) -> Holding {
        Holding
    }
}

/// Nothing was counted.
pub fn snapshot() -> Snapshot {
    Snapshot::default()
}

/// Nobody is known to wait.
pub fn waiting() -> Vec<Queue> {
    Vec::new()
}

/// Does nothing.
pub fn set_thresholds(_: &Thresholds) {}

/// None.
pub fn thresholds() -> Thresholds {
    Thresholds::default()
}

/// None.
pub(crate) fn drain() -> Vec<Made> {
    Vec::new()
}

/// Does nothing.
pub(crate) fn set_leased(_: &[(u64, Thresholds)]) {}

pub(crate) const PROGRAM: u64 = 0;
