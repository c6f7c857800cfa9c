//! Lock classes, and a meter of how locks of each class are contended and held.
//!
//! # Purpose
//! Every lock belongs to a [`LockClass`]: a name and a level. The locks themselves (crate
//! `finefs-locks`, or any others) report here how they are taken. The meter answers: which locks do
//! threads wait for, how long, where in the code; which holders they had meanwhile; which threads
//! are waiting now.
//!
//! # Data model
//! | Module | What |
//! |---|---|
//! | `class` | [`LockClass`] |
//! | `holding` | what locks call: [`Holding`], [`Waiting`], [`LastCpu`] |
//! | `mode` | [`Mode`] and [`set_hold_sampling`]: what is counted and timed |
//! | `fast_path` | for locks that ask the meter and their own word at once |
//! | `counters` | one thread's counters of one class |
//! | `registry` | the classes, every thread's counters, and their sum |
//! | [`rseq`] | the CPU that the thread runs on |
//! | `clock` | nanoseconds, cheaply |
//! | `histogram` | [`Histogram`], [`Times`] |
//! | `snapshot` | [`Snapshot`] and its parts: the counts as plain data |
//! | `waiters` | the threads that are waiting now |
//! | `threshold` | reports of waits, holdings and queues that are too long |
//! | `events` | these reports as plain data |
//! | `report` | table, JSON, OpenMetrics text, rates |
//! | `lease` | [`Wanted`]: what is on for a time, for each of several clients |
//! | `control` | a socket by which a running program is asked and switched |
//! | `unmetered` | the same names, empty: with the feature `off` |
//!
//! # Cost
//! | | an acquisition that does not wait | one that waits |
//! |---|---|---|
//! | feature `off` | nothing; guards are as small as without the meter | nothing |
//! | [`Mode::ContendedOnly`], the default | a load and a branch; another branch at the release | counted, timed |
//! | [`Mode::Full`] | counted; one in [`hold_sampling`] timed | counted, timed |
//!
//! FreeBSD measured 2.7 % for counting only contended acquisitions and 24 % for counting all.
//! Counting writes only the thread's own cache lines, and a byte beside the lock's own word.
//! Reading the clock twice and keeping what is known of a holding costs more than all the counting:
//! so by default only some of the holdings that nobody waited for are timed, and stand for the
//! others ([`set_hold_sampling`]).
//!
//! # References
//! Linux `Documentation/locking/lockstat.rst`; Bryant and Hawkes, "Lockmeter" (ALS 2000).
//!
//! ```
//! # if !finefs_lockmeter::IS_METERING { return }
//! use finefs_lockmeter::{Kind, LastCpu, LockClass, Waiting, snapshot};
//! static LOG: LockClass = LockClass::new("example.log", 10);
//! let (before, last_cpu) = (snapshot(), LastCpu::new());
//! Waiting::begin(&LOG, Kind::Writer, 0x1000).granted(&last_cpu);
//! let since = snapshot().since(&before);
//! assert_eq!(since.class("example.log").unwrap().writer.contended, 1);
//! println!("{since}");
//! ```

mod class;
#[cfg(not(feature = "off"))]
mod clock;
pub mod control;
#[cfg(not(feature = "off"))]
mod counters;
mod events;
mod fast_path;
mod histogram;
#[cfg(not(feature = "off"))]
mod holding;
mod lease;
mod mode;
#[cfg(not(feature = "off"))]
mod registry;
mod report;
pub mod rseq;
mod snapshot;
#[cfg(not(feature = "off"))]
mod threshold;
#[cfg(feature = "off")]
mod unmetered;
#[cfg(not(feature = "off"))]
mod waiters;

use serde::{Deserialize, Serialize};

pub use class::LockClass;
pub use events::{Queue, Report, Thresholds, Waiter, What};
pub use fast_path::{ALWAYS, HINDRANCES, hindrances};
pub use histogram::{Histogram, Times};
#[cfg(not(feature = "off"))]
pub use holding::{Holding, LastCpu, Waiting};
pub use lease::Wanted;
pub use mode::{HOLD_SAMPLING_DEFAULT, Mode, hold_sampling, mode, set_hold_sampling, set_mode};
pub use report::{Rate, duration, rates};
pub use snapshot::{CallSite, ClassCounts, Contention, Counts, Snapshot};
#[cfg(not(feature = "off"))]
pub use threshold::{set_thresholds, thresholds};
#[cfg(feature = "off")]
use unmetered as threshold;
#[cfg(feature = "off")]
pub use unmetered::*;
#[cfg(not(feature = "off"))]
pub use waiters::waiting;

/// True when this build counts at all: without the feature `off`.
///
/// ```
/// if !finefs_lockmeter::IS_METERING {
///     println!("built without the meter");
/// }
/// ```
pub const IS_METERING: bool = cfg!(not(feature = "off"));

/// How a lock is taken.
///
/// ```
/// # use finefs_lockmeter::Kind;
/// assert_eq!(Kind::Reader.name(), "reader");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Exclusively.
    Writer = 0,
    /// Shared with other readers.
    Reader = 1,
}

impl Kind {
    /// As reports name it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Writer => "writer",
            Kind::Reader => "reader",
        }
    }
}

/// Sums the counts of all threads, living and ended. Counts that other threads make meanwhile may
/// or may not be in it.
///
/// ```
/// # use finefs_lockmeter::snapshot;
/// let before = snapshot();
/// // ... work ...
/// print!("{}", snapshot().since(&before));
/// ```
#[cfg(not(feature = "off"))]
pub fn snapshot() -> Snapshot {
    registry::snapshot()
}

/// Takes the reports of what crossed the thresholds of [`set_thresholds`], made since the last
/// call, oldest first. What clients of the control socket wanted reported is theirs. Naming the
/// functions of backtraces takes milliseconds.
///
/// ```
/// for report in finefs_lockmeter::take_reports() {
///     eprintln!("{report}");
/// }
/// ```
pub fn take_reports() -> Vec<Report> {
    lease::take_reports(None)
}

/// The system's number of the calling thread.
#[cfg(not(feature = "off"))]
fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
