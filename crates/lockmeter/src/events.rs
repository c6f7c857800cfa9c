//! What is reported: waiters, and waits and holdings that are too long; as plain data that can be
//! sent and shown.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Kind, report};

/// A thread that waits.
///
/// ```
/// # if !finefs_lockmeter::IS_METERING { return }
/// # use finefs_lockmeter::{Kind, Waiting, LockClass, waiting};
/// # static LOG: LockClass = LockClass::new("log", 10);
/// let wait = Waiting::begin(&LOG, Kind::Writer, 0x1000);
/// let queues = waiting();
/// assert_eq!(queues[0].waiters[0].kind, Kind::Writer);
/// # drop(wait);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Waiter {
    /// The thread's name.
    pub thread: String,
    /// The system's number of the thread.
    pub thread_id: i32,
    /// How it wants the lock.
    pub kind: Kind,
    /// For how long it has been waiting.
    pub waited_ns: u64,
    /// Where it takes the lock.
    pub location: String,
}

/// The threads that wait for one lock.
///
/// ```
/// # if !finefs_lockmeter::IS_METERING { return }
/// # use finefs_lockmeter::{Kind, Waiting, LockClass, waiting};
/// # static LOG: LockClass = LockClass::new("log", 10);
/// let wait = Waiting::begin(&LOG, Kind::Writer, 0x1000);
/// let queue = &waiting()[0];
/// assert_eq!((&*queue.class, queue.lock, queue.waiters.len()), ("log", 0x1000, 1));
/// # drop(wait);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Queue {
    /// The lock's class.
    pub class: String,
    /// The lock's address: tells locks of a class apart.
    pub lock: usize,
    /// The waiters, in the order of arrival.
    pub waiters: Vec<Waiter>,
}

impl std::fmt::Display for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} wait for {} at {:#x}:",
            self.waiters.len(),
            self.class,
            self.lock
        )?;
        for (place, waiter) in self.waiters.iter().enumerate() {
            writeln!(
                f,
                "  {:>3}. {} ({}) as {}, for {}, at {}",
                place + 1,
                waiter.thread,
                waiter.thread_id,
                waiter.kind.name(),
                report::duration(waiter.waited_ns),
                waiter.location,
            )?;
        }
        Ok(())
    }
}

/// What is to be reported. The default is nothing.
///
/// ```
/// # if !finefs_lockmeter::IS_METERING { return }
/// use finefs_lockmeter::{Thresholds, set_thresholds, thresholds};
/// use std::time::Duration;
/// let wanted = Thresholds { hold: Some(Duration::from_micros(100)), ..Thresholds::default() };
/// set_thresholds(&wanted);
/// assert_eq!(thresholds(), wanted);
/// set_thresholds(&Thresholds::default());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// Waits of at least this.
    pub wait: Option<Duration>,
    /// Holdings of at least this. While it is set, all holdings are timed.
    pub hold: Option<Duration>,
    /// Queues of more waiters than this.
    pub waiters: Option<usize>,
    /// Most reports in a second, for the program itself and for each lease.
    pub per_second_max: usize,
}

#[cfg(not(feature = "off"))]
impl Thresholds {
    /// It is to be reported.
    pub(crate) fn are_crossed_by(&self, what: &What) -> bool {
        let takes =
            |time: Option<Duration>, ns| time.is_some_and(|time| Duration::from_nanos(ns) >= time);
        match what {
            What::Wait { ns } => takes(self.wait, *ns),
            What::Hold { ns } => takes(self.hold, *ns),
            What::Waiting { queue } => self.waiters.is_some_and(|most| queue.waiters.len() > most),
        }
    }
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds {
            wait: None,
            hold: None,
            waiters: None,
            per_second_max: 10,
        }
    }
}

/// What happened.
///
/// ```
/// # if !finefs_lockmeter::IS_METERING { return }
/// # use finefs_lockmeter::{Holding, Kind, LastCpu, LockClass, Thresholds, What, set_thresholds, take_reports};
/// # use std::time::Duration;
/// # static LOG: LockClass = LockClass::new("log", 10);
/// # set_thresholds(&Thresholds { hold: Some(Duration::ZERO), ..Thresholds::default() });
/// # drop(Holding::begin(&LOG, Kind::Writer, &LastCpu::new()));
/// assert!(matches!(take_reports()[0].what, What::Hold { .. }));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// A thread waited for a lock.
    Wait {
        /// For so long.
        ns: u64,
    },
    /// A thread held a lock.
    Hold {
        /// For so long.
        ns: u64,
    },
    /// Many wait for a lock; the reporting thread is the last of them.
    Waiting {
        /// All of them, in the order of arrival.
        queue: Queue,
    },
}

/// A threshold was crossed.
///
/// ```
/// # if !finefs_lockmeter::IS_METERING { return }
/// # use finefs_lockmeter::{Holding, Kind, LastCpu, LockClass, Thresholds, What, set_thresholds, take_reports};
/// # use std::time::Duration;
/// # static LOG: LockClass = LockClass::new("log", 10);
/// # set_thresholds(&Thresholds { hold: Some(Duration::ZERO), ..Thresholds::default() });
/// # drop(Holding::begin(&LOG, Kind::Writer, &LastCpu::new()));
/// let reports = take_reports();
/// assert_eq!((&*reports[0].class, reports[0].kind), ("log", Kind::Writer));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// What happened.
    pub what: What,
    /// The lock's class.
    pub class: String,
    /// How the thread had taken the lock, or wants it.
    pub kind: Kind,
    /// The thread's name.
    pub thread: String,
    /// The system's number of the thread.
    pub thread_id: i32,
    /// Where the lock is taken.
    pub location: String,
    /// The callers: of the waiter when its wait was over, of the holder after its release.
    pub backtrace: String,
    /// Reports left out before this one because there were too many in a second.
    pub left_out: u64,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.left_out > 0 {
            writeln!(f, "({} reports left out)", self.left_out)?;
        }
        let (verb, ns) = match &self.what {
            What::Wait { ns } => ("waited for", ns),
            What::Hold { ns } => ("held", ns),
            What::Waiting { queue } => return queue.fmt(f),
        };
        writeln!(
            f,
            "{} ({}) {verb} {} as {} for {}, taken at {}",
            self.thread,
            self.thread_id,
            self.class,
            self.kind.name(),
            report::duration(*ns),
            self.location,
        )?;
        f.write_str(&self.backtrace)
    }
}
