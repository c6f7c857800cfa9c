//! Leases: what clients of the control socket want counted and reported, for a short time each.
//!
//! # Purpose
//! Two that look at one program must not spoil each other, and one that is killed must leave
//! nothing switched on. So nobody switches: a client says what it wants and for how long, and says
//! so again as long as it is there. What is on is what the program itself has set, and what any
//! lease that lives wants beside it: all acquisitions if one wants them, the least of all
//! thresholds, and the finest sampling.
//!
//! # Reports
//! A client gets the reports that cross its own thresholds, up to so many a second for each client:
//! they are taken from where they were made, which says which leases they are for, and lie in the
//! leases until their clients ask. Those that are for the program itself lie beside them, for
//! clients without a lease.
//!
//! # Time
//! A thread ends leases that have run out; it is there only while there are leases.
//!
//! # Locking
//! One mutex over the leases; under it, those of the mode and of the thresholds. Backtraces are
//! named before it is taken.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::mode::Leased;
use crate::threshold::{PROGRAM, drain, set_leased};
use crate::{Report, Thresholds, mode};

/// Longest time that may be asked for: so long may what nobody looks at any more stay on.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Most leases at a time.
const LEASES_MAX: usize = 64;
/// Reports that are kept until they are asked for; of more, the latest.
pub(crate) const KEPT_MAX: usize = 256;

/// What a client of the control socket wants counted and reported for a time. The default is
/// nothing.
///
/// ```
/// # use finefs_lockmeter::control::{Reply, Request, Server, ask};
/// use finefs_lockmeter::{Mode, Wanted, mode};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("meter.sock");
/// let server = Server::start(&path)?;
/// let wanted = Wanted { is_full: true, ..Wanted::default() };
/// let lease = Request::Lease { id: None, time_ms: 5000, wanted };
/// let Reply::Leased { id, .. } = ask(&path, &lease)? else { panic!() };
/// assert_eq!(mode(), Mode::Full);
/// ask(&path, &Request::EndLease(id))?;
/// assert_eq!(mode(), Mode::ContendedOnly);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Wanted {
    /// All acquisitions are to be counted.
    pub is_full: bool,
    /// One in so many holdings that nobody waited for is to be timed, while this wants all
    /// acquisitions counted; none: as many as the program has set.
    pub hold_sampling: Option<u32>,
    /// Waits of so many microseconds are to be reported.
    pub wait_us: Option<u64>,
    /// Holdings of so many microseconds.
    pub hold_us: Option<u64>,
    /// Queues of more waiters.
    pub waiters: Option<usize>,
}

impl Wanted {
    fn thresholds(self) -> Thresholds {
        Thresholds {
            wait: self.wait_us.map(Duration::from_micros),
            hold: self.hold_us.map(Duration::from_micros),
            waiters: self.waiters,
            ..Thresholds::default()
        }
    }
}

/// A report as it was made.
pub(crate) struct Made {
    pub report: Report,
    /// The numbers of the leases that it is for, or [`PROGRAM`], each with the number of reports
    /// left out before it.
    pub to: Vec<(u64, u64)>,
}

/// Keeps one more; the first goes for it if there are too many, and is counted among those left out
/// before the next.
fn push(kept: &mut VecDeque<Report>, one: Report) {
    kept.push_back(one);
    if kept.len() <= KEPT_MAX {
        return;
    }
    let count = kept.pop_front().map_or(0, |first| first.left_out + 1);
    if let Some(first) = kept.front_mut() {
        first.left_out += count;
    }
}

struct Lease {
    id: u64,
    end: Instant,
    wanted: Wanted,
    kept: VecDeque<Report>,
}

struct Leases {
    living: Vec<Lease>,
    /// 0 before the first, whose number is left to chance: 48 bits, so that every reader of JSON
    /// keeps it whole.
    last_id: u64,
    /// What was made of `living` last.
    applied: (Vec<(u64, Thresholds)>, Leased),
    /// The thread that ends leases is there.
    is_watched: bool,
    /// Reports for clients without a lease.
    kept: VecDeque<Report>,
}

static LEASES: Mutex<Leases> = Mutex::new(Leases {
    living: Vec::new(),
    last_id: 0,
    applied: (Vec::new(), Leased::NOTHING),
    is_watched: false,
    kept: VecDeque::new(),
});
/// A lease was ended or shortened.
static CHANGED: Condvar = Condvar::new();

fn leases() -> MutexGuard<'static, Leases> {
    LEASES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Leases {
    fn find(&mut self, id: u64) -> Option<&mut Lease> {
        self.living.iter_mut().find(|lease| lease.id == id)
    }

    /// Ends those that have run out.
    fn expire(&mut self) {
        let now = Instant::now();
        self.living.retain(|lease| lease.end > now);
        self.apply();
    }

    /// Has on what is wanted.
    fn apply(&mut self) {
        let wanted = self.living.iter().map(|lease| lease.wanted);
        let full = wanted.clone().filter(|wanted| wanted.is_full);
        let leased = Leased {
            is_full: full.clone().next().is_some(),
            hold_sampling: full.clone().filter_map(|wanted| wanted.hold_sampling).min(),
            leaves_sampling: full.clone().any(|wanted| wanted.hold_sampling.is_none()),
        };
        let thresholds = |lease: &Lease| (lease.id, lease.wanted.thresholds());
        let wanted = self.living.iter().map(thresholds).collect();
        let applied = (wanted, leased);
        if applied == self.applied {
            return;
        }
        mode::set_leased(leased);
        set_leased(&applied.0);
        self.applied = applied;
    }

    /// Gives each report to all leases that it is for.
    fn share_out(&mut self, reports: Vec<Made>) {
        for Made { report, to } in reports {
            for (id, left_out) in to {
                let kept = match id {
                    PROGRAM => Some(&mut self.kept),
                    id => self.find(id).map(|lease| &mut lease.kept),
                };
                if let Some(kept) = kept {
                    let report = report.clone();
                    push(kept, Report { left_out, ..report });
                }
            }
        }
    }
}

/// Grants a lease, or goes on with the one that has this number; gives its number, and whether it
/// went on without a break. The error is the reason why there is none.
pub(crate) fn take(id: Option<u64>, time: Duration, wanted: Wanted) -> Result<(u64, bool), String> {
    // They lie here until they are asked for, where none takes another's place.
    let earlier = drain();
    let mut leases = leases();
    leases.expire();
    leases.share_out(earlier);
    let end = Instant::now() + time.min(TIME_MAX);
    if let Some(lease) = id.and_then(|id| leases.find(id)) {
        (lease.end, lease.wanted) = (end, wanted);
        let id = lease.id;
        leases.apply();
        CHANGED.notify_all();
        return Ok((id, true));
    }
    if leases.living.len() >= LEASES_MAX {
        return Err(format!("{LEASES_MAX} clients look at it already"));
    }
    if !leases.is_watched {
        let thread = std::thread::Builder::new().name("leases".to_owned());
        thread.spawn(watch).map_err(|error| error.to_string())?;
        leases.is_watched = true;
    }
    if leases.last_id == 0 {
        // Else a number that a client still has of an earlier server might be another's here.
        leases.last_id = RandomState::new().build_hasher().finish() >> 16;
    }
    leases.last_id += 1;
    let id = leases.last_id;
    leases.living.push(Lease {
        id,
        end,
        wanted,
        kept: VecDeque::new(),
    });
    leases.apply();
    CHANGED.notify_all();
    Ok((id, false))
}

/// Ends a lease before its time; one that has run out has ended already.
pub(crate) fn end(id: u64) {
    let mut leases = leases();
    leases.living.retain(|lease| lease.id != id);
    leases.apply();
    CHANGED.notify_all();
}

/// Takes the reports for a lease, or for clients that have none; oldest first.
pub(crate) fn take_reports(id: Option<u64>) -> Vec<Report> {
    let reports = drain();
    let mut leases = leases();
    leases.share_out(reports);
    let kept = match id {
        None => Some(&mut leases.kept),
        Some(id) => leases.find(id).map(|lease| &mut lease.kept),
    };
    kept.map(std::mem::take).unwrap_or_default().into()
}

/// Ends leases that run out, until there are none.
fn watch() {
    let mut leases = leases();
    loop {
        leases.expire();
        let Some(end) = leases.living.iter().map(|lease| lease.end).min() else {
            leases.is_watched = false;
            return;
        };
        let time = end.saturating_duration_since(Instant::now());
        let woken = CHANGED.wait_timeout(leases, time);
        leases = woken.unwrap_or_else(PoisonError::into_inner).0;
    }
}
