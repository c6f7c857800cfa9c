//! What is counted and timed: the switches, and the one word that a lock's fast path looks at.
//!
//! # Data model
//! `ACTIVE` says what acquisitions that do not wait have to do. It follows from the mode, whether
//! there is a threshold for holdings, and of how many holdings one is timed; mode and sampling are
//! what the program has set, and what leases want beside it. The settings are under a mutex, so
//! that the words made of them say the same in the end.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::fast_path;

/// What is counted.
///
/// ```
/// # use finefs_lockmeter::{Mode, mode};
/// assert_eq!(mode(), Mode::ContendedOnly);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Only acquisitions that had to wait: the wait, and for how long the lock was held after it.
    /// The default.
    ContendedOnly,
    /// All acquisitions are counted. Those that had to wait are timed as in the other mode; of
    /// those that did not, one in [`hold_sampling`] is timed.
    Full,
}

/// [`hold_sampling`] at first: the meter then takes most of its time for counting, and a class that
/// is taken thousand times a second is still timed some thirty times in it.
///
/// ```
/// use finefs_lockmeter::{HOLD_SAMPLING_DEFAULT, set_hold_sampling};
/// set_hold_sampling(1); // All are timed.
/// set_hold_sampling(HOLD_SAMPLING_DEFAULT);
/// ```
pub const HOLD_SAMPLING_DEFAULT: u32 = 32;

/// In `ACTIVE`: all acquisitions are counted.
pub(crate) const COUNTS_ALL: u8 = 1;
/// In `ACTIVE`: all holdings are timed.
pub(crate) const TIMES_ALL: u8 = 2;

/// What acquisitions that do not wait have to do: nothing, if 0.
static ACTIVE: AtomicU8 = AtomicU8::new(0);
static HOLD_SAMPLING: AtomicU32 = AtomicU32::new(HOLD_SAMPLING_DEFAULT);

struct Settings {
    /// As the program has it.
    mode: Mode,
    hold_sampling: u32,
    leased: Leased,
    has_hold_threshold: bool,
}

/// What leases want beside what the program has set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leased {
    pub is_full: bool,
    /// The finest of those that want all counted.
    pub hold_sampling: Option<u32>,
    /// One that wants all counted leaves the sampling as the program has it.
    pub leaves_sampling: bool,
}

impl Leased {
    pub(crate) const NOTHING: Leased = Leased {
        is_full: false,
        hold_sampling: None,
        leaves_sampling: false,
    };
}

impl Settings {
    /// The finest of all that count all.
    fn hold_sampling(&self) -> u32 {
        let is_own = self.mode == Mode::Full || self.leased.leaves_sampling;
        let sampling = match self.leased.hold_sampling {
            Some(leased) if is_own => leased.min(self.hold_sampling),
            leased => leased.unwrap_or(self.hold_sampling),
        };
        sampling.max(1)
    }
}

fn change(change: impl FnOnce(&mut Settings)) {
    static SETTINGS: Mutex<Settings> = Mutex::new(Settings {
        mode: Mode::ContendedOnly,
        hold_sampling: HOLD_SAMPLING_DEFAULT,
        leased: Leased::NOTHING,
        has_hold_threshold: false,
    });
    let mut settings = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    change(&mut settings);
    let is_full = settings.mode == Mode::Full || settings.leased.is_full;
    let hold_sampling = settings.hold_sampling();
    HOLD_SAMPLING.store(hold_sampling, Ordering::Relaxed);
    let times_all = settings.has_hold_threshold || (is_full && hold_sampling == 1);
    let counts = if is_full { COUNTS_ALL } else { 0 };
    let times = if times_all { TIMES_ALL } else { 0 };
    ACTIVE.store(counts | times, Ordering::Relaxed);
    fast_path::hinder(counts | times != 0);
}

#[cfg(not(feature = "off"))]
#[inline(always)]
pub(crate) fn active() -> u8 {
    ACTIVE.load(Ordering::Relaxed)
}

/// A threshold must miss nothing: while there is one, all holdings are timed.
#[cfg(not(feature = "off"))]
pub(crate) fn set_hold_threshold(is_set: bool) {
    change(|settings| settings.has_hold_threshold = is_set);
}

/// What leases want beside what the program has set.
pub(crate) fn set_leased(leased: Leased) {
    change(|settings| settings.leased = leased);
}

/// Switches what is counted from now on. While a client of the control socket wants all
/// acquisitions counted ([`crate::Wanted`]), they are.
///
/// ```
/// # use finefs_lockmeter::{Mode, mode, set_mode};
/// set_mode(Mode::Full);
/// assert_eq!(mode(), Mode::Full);
/// # set_mode(Mode::ContendedOnly);
/// ```
pub fn set_mode(mode: Mode) {
    change(|settings| settings.mode = mode);
}

/// What is counted now.
///
/// ```
/// # use finefs_lockmeter::{Mode, mode};
/// assert_eq!(mode(), Mode::ContendedOnly);
/// ```
pub fn mode() -> Mode {
    if ACTIVE.load(Ordering::Relaxed) & COUNTS_ALL != 0 {
        Mode::Full
    } else {
        Mode::ContendedOnly
    }
}

/// In [`Mode::Full`], times one in `one_in` of the holdings that nobody waited for, of each thread,
/// class and kind; 1: all of them. Which ones is left to chance, so that no pattern of the program
/// can hide from it; the first is always among them. Each that is timed counts as many times as
/// there were acquisitions since the last one, so totals, means and quantiles are estimates of the
/// whole; minimum and maximum are of those timed. Acquisitions, waits and bounces are always
/// counted exactly. 0 is taken for 1.
///
/// ```
/// # if !finefs_lockmeter::IS_METERING { return }
/// use finefs_lockmeter::{Holding, Kind, LastCpu, LockClass, Mode, set_hold_sampling, set_mode, snapshot};
/// static LOG: LockClass = LockClass::new("example.log", 10);
/// let last_cpu = LastCpu::new();
/// set_hold_sampling(8);
/// set_mode(Mode::Full);
/// for _ in 0..1000 {
///     drop(Holding::begin(&LOG, Kind::Writer, &last_cpu));
/// }
/// let counts = snapshot().class("example.log").unwrap().writer.clone();
/// assert_eq!(counts.acquisitions, 1000);
/// assert!((60..250).contains(&counts.hold_timed));
/// assert!((985..=1000).contains(&counts.hold.count()));
/// ```
pub fn set_hold_sampling(one_in: u32) {
    change(|settings| settings.hold_sampling = one_in);
}

/// Of how many holdings that nobody waited for one is timed: see [`set_hold_sampling`].
///
/// ```
/// use finefs_lockmeter::{HOLD_SAMPLING_DEFAULT, hold_sampling};
/// assert_eq!(hold_sampling(), HOLD_SAMPLING_DEFAULT);
/// ```
#[inline]
pub fn hold_sampling() -> u32 {
    HOLD_SAMPLING.load(Ordering::Relaxed)
}
