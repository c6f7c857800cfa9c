//! [`Snapshot`]: what has been counted, as plain data that can be compared, sent and shown.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::Kind;
use crate::histogram::Times;

/// Where locks are taken, and what that cost.
///
/// ```
/// # if !finefs_lockmeter::IS_METERING { return }
/// # use finefs_lockmeter::{CallSite, Counts, Kind, LastCpu, LockClass, Waiting, snapshot};
/// # static LOG: LockClass = LockClass::new("log", 10);
/// # Waiting::begin(&LOG, Kind::Writer, 0x1000).granted(&LastCpu::new());
/// let counts = snapshot().class("log").unwrap().writer.clone();
/// let worst: &CallSite = &counts.worst_sites()[0];
/// assert_eq!(worst.contended, 1);
/// println!("{}: waited {} ns", worst.location, worst.wait_ns_total);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CallSite {
    /// File, line and column.
    pub location: String,
    /// Acquisitions there that had to wait.
    pub contended: u64,
    /// Time waited there.
    pub wait_ns_total: u64,
    /// Time for which locks taken there were held, as far as it was measured.
    pub hold_ns_total: u64,
}

/// Counts of one class and kind.
///
/// ```
/// # if !finefs_lockmeter::IS_METERING { return }
/// # use finefs_lockmeter::{CallSite, Counts, Kind, LastCpu, LockClass, Waiting, snapshot};
/// # static LOG: LockClass = LockClass::new("log", 10);
/// # Waiting::begin(&LOG, Kind::Writer, 0x1000).granted(&LastCpu::new());
/// let counts = snapshot().class("log").unwrap().writer.clone();
/// assert_eq!((counts.contended, counts.given_up), (1, 0));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Acquisitions while all were counted ([`crate::Mode::Full`]).
    pub acquisitions: u64,
    /// Acquisitions that had to wait, in all modes; those that gave up are among them.
    pub contended: u64,
    /// Acquisitions that had to wait, while all were counted: to be compared with `acquisitions`.
    pub contended_counted: u64,
    /// Waits that ended without the lock.
    pub given_up: u64,
    /// Acquisitions of a lock that had last been taken on another CPU. Where only contended
    /// acquisitions are counted, "last taken" means the last contended one.
    pub bounces: u64,
    /// How long contended acquisitions waited.
    pub wait: Times,
    /// How long locks were held: all of them, or those that had been waited for. Where not every
    /// holding was timed ([`crate::set_hold_sampling`]), those that were stand for the others, but
    /// for minimum and maximum.
    pub hold: Times,
    /// Holdings that were timed; where they are fewer than `hold` has, its numbers are estimates.
    #[serde(default)]
    pub hold_timed: u64,
    /// Call sites, most waited at first, then longest held.
    pub sites: Vec<CallSite>,
}

impl Counts {
    /// The share of acquisitions that had to wait, in per cent; `None` if they were not all
    /// counted.
    pub fn contention_percent(&self) -> Option<f64> {
        percent(self.contended_counted, self.acquisitions)
    }

    /// True when not every holding was timed, so that what `hold` says is estimated.
    pub fn is_hold_estimated(&self) -> bool {
        self.hold_timed < self.hold.count()
    }

    /// The four call sites that cost most.
    pub fn worst_sites(&self) -> &[CallSite] {
        &self.sites[..self.sites.len().min(4)]
    }

    /// True when there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.acquisitions == 0 && self.contended == 0 && self.hold.count() == 0
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Counts) {
        for (own, others) in self.plain_mut().into_iter().zip(other.plain()) {
            *own = own.wrapping_add(others);
        }
        self.wait.merge(&other.wait);
        self.hold.merge(&other.hold);
        for site in &other.sites {
            match self
                .sites
                .iter_mut()
                .find(|own| own.location == site.location)
            {
                Some(own) => own.change(site, u64::wrapping_add),
                None => self.sites.push(site.clone()),
            }
        }
        self.sort_sites();
    }

    fn since(&self, earlier: &Counts) -> Counts {
        let mut counts = self.clone();
        for (own, before) in counts.plain_mut().into_iter().zip(earlier.plain()) {
            *own = own.saturating_sub(before);
        }
        counts.wait = self.wait.since(&earlier.wait);
        counts.hold = self.hold.since(&earlier.hold);
        for site in &mut counts.sites {
            let same = |other: &&CallSite| other.location == site.location;
            if let Some(before) = earlier.sites.iter().find(same) {
                site.change(before, u64::saturating_sub);
            }
        }
        counts
            .sites
            .retain(|site| site.contended != 0 || site.hold_ns_total != 0);
        counts.sort_sites();
        counts
    }

    fn plain(&self) -> [u64; 6] {
        [
            self.acquisitions,
            self.contended,
            self.contended_counted,
            self.given_up,
            self.bounces,
            self.hold_timed,
        ]
    }

    fn plain_mut(&mut self) -> [&mut u64; 6] {
        [
            &mut self.acquisitions,
            &mut self.contended,
            &mut self.contended_counted,
            &mut self.given_up,
            &mut self.bounces,
            &mut self.hold_timed,
        ]
    }

    fn sort_sites(&mut self) {
        self.sites
            .sort_by_key(|site| std::cmp::Reverse((site.wait_ns_total, site.hold_ns_total)));
    }
}

impl CallSite {
    fn change(&mut self, by: &CallSite, f: impl Fn(u64, u64) -> u64) {
        self.contended = f(self.contended, by.contended);
        self.wait_ns_total = f(self.wait_ns_total, by.wait_ns_total);
        self.hold_ns_total = f(self.hold_ns_total, by.hold_ns_total);
    }
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole != 0).then(|| part as f64 / whole as f64 * 100.0)
}

/// Counts of one class.
///
/// ```
/// # if !finefs_lockmeter::IS_METERING { return }
/// # use finefs_lockmeter::{CallSite, Counts, Kind, LastCpu, LockClass, Waiting, snapshot};
/// # static LOG: LockClass = LockClass::new("log", 10);
/// # Waiting::begin(&LOG, Kind::Writer, 0x1000).granted(&LastCpu::new());
/// let log = snapshot().class("log").unwrap().clone();
/// assert_eq!((&*log.name, log.level), ("log", 10));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClassCounts {
    /// Name of the class.
    pub name: Cow<'static, str>,
    /// Level of the class.
    pub level: u16,
    /// Exclusive acquisitions.
    pub writer: Counts,
    /// Shared acquisitions.
    pub reader: Counts,
}

impl ClassCounts {
    /// The counts of one kind.
    pub fn of(&self, kind: Kind) -> &Counts {
        match kind {
            Kind::Writer => &self.writer,
            Kind::Reader => &self.reader,
        }
    }

    fn total(&self, of: impl Fn(&Counts) -> u64) -> u64 {
        of(&self.writer) + of(&self.reader)
    }
}

/// How contended all locks together are, and which class is to blame: what lockmeter's reports of
/// 2002 gave as `62.2% (BKL=61.9%)`.
///
/// ```
/// # use finefs_lockmeter::snapshot;
/// if let Some(contention) = snapshot().contention() {
///     println!("{:.1} %, most of it in {}", contention.percent, contention.worst.0);
/// }
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Contention {
    /// Acquisitions that had to wait, in per cent of all acquisitions.
    pub percent: f64,
    /// The class with most of them, and its share of all acquisitions in per cent: 0 where nobody
    /// had to wait, and then it says nothing.
    pub worst: (Cow<'static, str>, f64),
}

impl std::fmt::Display for Contention {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1}%", self.percent)?;
        match &self.worst {
            (class, share) if *share > 0.0 => write!(f, " ({class}={share:.1}%)"),
            _ => Ok(()),
        }
    }
}

/// The counts of all classes that were ever counted, in the order of their first count.
///
/// ```
/// use finefs_lockmeter::{Snapshot, snapshot};
/// let before = snapshot();
/// // ... work ...
/// let since = snapshot().since(&before);
/// println!("{since}");
/// let sent: String = since.to_json();
/// assert_eq!(Snapshot::from_json(&sent).unwrap(), since);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// When this was taken, one in so many holdings that nobody had waited for was timed.
    #[serde(default = "all_timed")]
    pub hold_sampling: u32,
    /// One entry per class.
    pub classes: Vec<ClassCounts>,
}

/// Of snapshots written before there was a choice.
fn all_timed() -> u32 {
    1
}

impl Default for Snapshot {
    fn default() -> Snapshot {
        Snapshot {
            hold_sampling: all_timed(),
            classes: Vec::new(),
        }
    }
}

impl Snapshot {
    /// The counts of the class of this name.
    pub fn class(&self, name: &str) -> Option<&ClassCounts> {
        self.classes.iter().find(|class| class.name == name)
    }

    /// What was counted after `earlier` was taken. Nothing where `earlier` has more: it is the
    /// later one of the two, say.
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        let mut classes = self.classes.clone();
        // Classes are only ever added at the end.
        for (class, old) in classes.iter_mut().zip(&earlier.classes) {
            class.writer = class.writer.since(&old.writer);
            class.reader = class.reader.since(&old.reader);
        }
        Snapshot {
            hold_sampling: self.hold_sampling,
            classes,
        }
    }

    /// How contended all locks together were; `None` where acquisitions were not all counted
    /// ([`crate::Mode::Full`]).
    pub fn contention(&self) -> Option<Contention> {
        let total = |of: fn(&Counts) -> u64| -> u64 {
            self.classes.iter().map(|class| class.total(of)).sum()
        };
        let acquisitions = total(|counts| counts.acquisitions);
        let contended = |class: &&ClassCounts| class.total(|counts| counts.contended_counted);
        let worst = self.classes.iter().max_by_key(contended)?;
        Some(Contention {
            percent: percent(total(|counts| counts.contended_counted), acquisitions)?,
            worst: (
                worst.name.clone(),
                percent(contended(&worst), acquisitions)?,
            ),
        })
    }
}
