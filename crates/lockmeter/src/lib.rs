//! Lock classes, and counters of how locks of each class are contended.
//!
//! # Purpose
//! Every lock belongs to a [`LockClass`]: a name and a level. The locks themselves (crate
//! `finefs-locks`) report here when an acquisition had to wait, and for how long.
//!
//! # Data model
//! | Module | What |
//! |---|---|
//! | `class` | [`LockClass`] |
//! | `registry` | the classes, every thread's counters, and their sum |
//!
//! # Cost
//! By default an acquisition that does not wait is not counted: it costs nothing. FreeBSD measured
//! 2.7 % for counting only contended acquisitions and 24 % for counting all. [`set_mode`] switches to
//! the full count at run time. Counting writes only the thread's own cache lines.
//!
//! # References
//! Linux `Documentation/locking/lockstat.rst`; Bryant and Hawkes, "Lockmeter" (ALS 2000).
//!
//! ```
//! use finefs_lockmeter::{Kind, LockClass, contended, snapshot};
//! static LOG: LockClass = LockClass::new("example.log", 10);
//! let before = snapshot();
//! contended(&LOG, Kind::Writer, 1_500);
//! let since = snapshot().since(&before);
//! assert_eq!(since.class("example.log").unwrap().writer.contended, 1);
//! ```

mod class;
mod registry;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

pub use class::LockClass;

/// How a lock is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Exclusively.
    Writer = 0,
    /// Shared with other readers.
    Reader = 1,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Only acquisitions that had to wait. The default.
    ContendedOnly,
    /// All acquisitions.
    Full,
}

static COUNTS_ALL: AtomicBool = AtomicBool::new(false);

/// Switches what is counted from now on.
pub fn set_mode(mode: Mode) {
    COUNTS_ALL.store(mode == Mode::Full, Ordering::Relaxed);
}

/// What is counted now.
pub fn mode() -> Mode {
    if COUNTS_ALL.load(Ordering::Relaxed) {
        Mode::Full
    } else {
        Mode::ContendedOnly
    }
}

thread_local! {
    static COUNTERS: registry::Registration = registry::Registration::new();
}

/// Notes that a lock of `class` was taken, where all acquisitions are counted; contended ones are
/// noted by [`contended`] besides.
#[inline]
pub fn acquired(class: &'static LockClass, kind: Kind) {
    if COUNTS_ALL.load(Ordering::Relaxed) {
        count_acquired(class, kind);
    }
}

#[cold]
fn count_acquired(class: &'static LockClass, kind: Kind) {
    let slot = class.slot();
    // A thread that is ending has no counters left; its last locks go uncounted.
    let _ = COUNTERS.try_with(|counters| counters.0.of(slot, kind).count_acquired());
}

/// Notes that an acquisition of a lock of `class` had to wait `wait_ns` nanoseconds.
#[cold]
pub fn contended(class: &'static LockClass, kind: Kind, wait_ns: u64) {
    let slot = class.slot();
    let _ = COUNTERS.try_with(|counters| counters.0.of(slot, kind).count_contended(wait_ns));
}

/// Counts of one class and kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Acquisitions, waiting or not; 0 unless [`Mode::Full`] is on.
    pub acquisitions: u64,
    /// Acquisitions that had to wait.
    pub contended: u64,
    /// Time waited in all.
    pub wait_ns_total: u64,
    /// Longest wait. In a difference of snapshots: the longest up to the later one.
    pub wait_ns_max: u64,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.acquisitions = self.acquisitions.wrapping_add(other.acquisitions);
        self.contended = self.contended.wrapping_add(other.contended);
        self.wait_ns_total = self.wait_ns_total.wrapping_add(other.wait_ns_total);
        self.wait_ns_max = self.wait_ns_max.max(other.wait_ns_max);
    }

    fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            acquisitions: self.acquisitions.wrapping_sub(earlier.acquisitions),
            contended: self.contended.wrapping_sub(earlier.contended),
            wait_ns_total: self.wait_ns_total.wrapping_sub(earlier.wait_ns_total),
            wait_ns_max: self.wait_ns_max,
        }
    }

    /// The mean wait of a contended acquisition in nanoseconds, if there was one.
    pub fn wait_ns_mean(&self) -> Option<u64> {
        self.wait_ns_total.checked_div(self.contended)
    }
}

/// Counts of one class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassCounts {
    /// Name of the class.
    pub name: &'static str,
    /// Level of the class.
    pub level: u16,
    /// Exclusive acquisitions.
    pub writer: Counts,
    /// Shared acquisitions.
    pub reader: Counts,
}

/// The counts of all classes that were ever counted, in the order of their first count.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// One entry per class.
    pub classes: Vec<ClassCounts>,
}

/// Sums the counts of all threads, living and ended. Counts that other threads make meanwhile may
/// or may not be in it.
pub fn snapshot() -> Snapshot {
    registry::snapshot()
}

impl Snapshot {
    /// The counts of the class of this name.
    pub fn class(&self, name: &str) -> Option<&ClassCounts> {
        self.classes.iter().find(|class| class.name == name)
    }

    /// What was counted after `earlier` was taken.
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        let mut classes = self.classes.clone();
        // Classes are only ever added at the end.
        for (class, old) in classes.iter_mut().zip(&earlier.classes) {
            class.writer = class.writer.since(&old.writer);
            class.reader = class.reader.since(&old.reader);
        }
        Snapshot { classes }
    }
}

/// A table like `lock_stat`'s, most waited-for class first.
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<(String, &Counts)> = Vec::new();
        for class in &self.classes {
            rows.push((format!("{} (write)", class.name), &class.writer));
            rows.push((format!("{} (read)", class.name), &class.reader));
        }
        rows.retain(|(_, counts)| counts.acquisitions != 0 || counts.contended != 0);
        rows.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.wait_ns_total));
        writeln!(
            f,
            "{:<36} {:>14} {:>12} {:>14} {:>12} {:>12}",
            "class", "acquisitions", "contended", "wait total us", "mean us", "max us"
        )?;
        for (name, counts) in rows {
            writeln!(
                f,
                "{:<36} {:>14} {:>12} {:>14.1} {:>12.1} {:>12.1}",
                name,
                counts.acquisitions,
                counts.contended,
                counts.wait_ns_total as f64 / 1e3,
                counts.wait_ns_mean().unwrap_or(0) as f64 / 1e3,
                counts.wait_ns_max as f64 / 1e3,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_survive_the_thread_that_made_them() {
        static CLASS: LockClass = LockClass::new("test.retired", 1);
        std::thread::spawn(|| {
            contended(&CLASS, Kind::Reader, 5);
            contended(&CLASS, Kind::Reader, 7);
        })
        .join()
        .unwrap();
        contended(&CLASS, Kind::Writer, 1);
        let snapshot = snapshot();
        let class = snapshot.class("test.retired").unwrap();
        assert_eq!(class.reader.contended, 2);
        assert_eq!(class.reader.wait_ns_total, 12);
        assert_eq!(class.reader.wait_ns_max, 7);
        assert_eq!(class.reader.wait_ns_mean(), Some(6));
        assert_eq!(class.writer.contended, 1);
        assert!(snapshot.to_string().contains("test.retired (read)"));
    }

    #[test]
    fn uncontended_acquisitions_count_in_full_mode_only() {
        static CLASS: LockClass = LockClass::new("test.mode", 1);
        contended(&CLASS, Kind::Writer, 0);
        let before = snapshot();
        acquired(&CLASS, Kind::Writer);
        set_mode(Mode::Full);
        acquired(&CLASS, Kind::Writer);
        set_mode(Mode::ContendedOnly);
        acquired(&CLASS, Kind::Writer);
        let since = snapshot().since(&before);
        assert_eq!(since.class("test.mode").unwrap().writer.acquisitions, 1);
    }

    #[test]
    fn two_classes_of_one_name_have_their_own_slots() {
        static ONE: LockClass = LockClass::new("test.same", 1);
        static TWO: LockClass = LockClass::new("test.same", 2);
        assert_ne!(ONE.slot(), TWO.slot());
        assert_eq!(ONE.slot(), ONE.slot());
    }
}
