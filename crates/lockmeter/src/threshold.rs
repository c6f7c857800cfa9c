//! Thresholds: reports of waits and holdings that are too long, with backtraces, and of long
//! queues.
//!
//! # Purpose
//! What the SystemTap scripts of Red Hat's bug 519126 did for the big kernel lock: one printed a
//! backtrace of a holder of more than N microseconds, the other listed the waiters, in the order in
//! which they had queued up, when there were more than N.
//!
//! # Data model
//! The thresholds are atomics in nanoseconds, `u64::MAX` for none: the least of what its parties
//! want, which are under a mutex. The program itself is one party, each lease another. A report is
//! for those whose thresholds it crosses when it is made: they are often switched off before
//! anybody asks. Each party is given only so many in a second; the next one tells it how many it
//! was not given. So a party whose thresholds are crossed all the time takes nothing from one whose
//! are crossed seldom. Reports go to a ring of [`KEPT_MAX`](crate::lease::KEPT_MAX); [`drain`]
//! empties it.
//!
//! # Cost
//! A backtrace is walked where it happens, which takes microseconds, and named only when it is
//! taken from the ring. A waiter's is walked with the lock just granted, a holder's after its
//! release.
//!
//! # Locking
//! One mutex for reports, a leaf, and one for the parties, taken only when a threshold was crossed
//! or is changed. Under the second the mode's is taken.

use std::backtrace::Backtrace;
use std::collections::VecDeque;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::class::LockClass;
use crate::clock::now_ns;
use crate::events::{Queue, Report, Thresholds, What};
use crate::lease::{KEPT_MAX, Made};
use crate::{Kind, thread_id};

const SECOND_NS: u64 = 1_000_000_000;

static WAIT_NS: AtomicU64 = AtomicU64::new(u64::MAX);
static HOLD_NS: AtomicU64 = AtomicU64::new(u64::MAX);
static WAITERS: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The number of the program itself among the parties.
pub(crate) const PROGRAM: u64 = 0;

/// One that wants reports.
struct Party {
    /// Its lease's number, or [`PROGRAM`].
    id: u64,
    wants: Thresholds,
    /// How many it was given in this second.
    second: u64,
    in_second: usize,
    /// How many it was not given since the last one.
    left_out: u64,
}

const NONE: Thresholds = Thresholds {
    wait: None,
    hold: None,
    waiters: None,
    per_second_max: 10,
};

impl Party {
    fn new(id: u64, wants: Thresholds) -> Party {
        Party {
            id,
            wants,
            second: 0,
            in_second: 0,
            left_out: 0,
        }
    }

    /// Room for one more in this second, with the number of those that found none before it.
    fn admit(&mut self, second: u64, most: usize) -> Option<u64> {
        if self.second != second {
            self.second = second;
            self.in_second = 0;
        }
        if self.in_second >= most {
            self.left_out += 1;
            return None;
        }
        self.in_second += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// All parties, the program first once it has wanted something.
struct Parties {
    all: Vec<Party>,
    per_second_max: usize,
}

static PARTIES: Mutex<Parties> = Mutex::new(Parties {
    all: Vec::new(),
    per_second_max: NONE.per_second_max,
});

impl Parties {
    /// The leases that a report is for, with the number of those that each was not given before it.
    fn admit(&mut self, what: &What) -> Vec<(u64, u64)> {
        let second = now_ns() / SECOND_NS;
        let most = self.per_second_max;
        let crossed = |party: &&mut Party| party.wants.are_crossed_by(what);
        let admit = |party: &mut Party| Some((party.id, party.admit(second, most)?));
        self.all
            .iter_mut()
            .filter(crossed)
            .filter_map(admit)
            .collect()
    }

    fn find(&mut self, id: u64) -> Option<&mut Party> {
        self.all.iter_mut().find(|party| party.id == id)
    }
}

fn parties() -> MutexGuard<'static, Parties> {
    PARTIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks for what the parties want together.
fn apply(parties: &Parties) {
    let ns = |duration: Option<Duration>| {
        duration.map_or(u64::MAX, |duration| {
            u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
        })
    };
    let wants = || parties.all.iter().map(|party| &party.wants);
    let wait = wants().filter_map(|wants| wants.wait).min();
    let hold = wants().filter_map(|wants| wants.hold).min();
    let waiters = wants().filter_map(|wants| wants.waiters).min();
    WAIT_NS.store(ns(wait), Ordering::Relaxed);
    HOLD_NS.store(ns(hold), Ordering::Relaxed);
    WAITERS.store(waiters.unwrap_or(usize::MAX), Ordering::Relaxed);
    crate::mode::set_hold_threshold(hold.is_some());
}

/// Sets what is reported from now on, and begins a new second for the limit. What clients of the
/// control socket want ([`crate::Wanted`]) is reported beside it.
///
/// ```
/// # use finefs_lockmeter::{Thresholds, set_thresholds};
/// # use std::time::Duration;
/// set_thresholds(&Thresholds { wait: Some(Duration::from_millis(1)), ..Thresholds::default() });
/// ```
pub fn set_thresholds(thresholds: &Thresholds) {
    let mut parties = parties();
    parties.per_second_max = thresholds.per_second_max;
    let wants = thresholds.clone();
    match parties.find(PROGRAM) {
        Some(program) => (program.wants, program.in_second) = (wants, 0),
        None => parties.all.insert(0, Party::new(PROGRAM, wants)),
    }
    apply(&parties);
}

/// What leases want beside what the program has set, by their numbers.
pub(crate) fn set_leased(leased: &[(u64, Thresholds)]) {
    let mut parties = parties();
    let is_there = |id| id == PROGRAM || leased.iter().any(|(lease, _)| *lease == id);
    parties.all.retain(|party| is_there(party.id));
    for (id, wants) in leased {
        match parties.find(*id) {
            Some(party) => party.wants = wants.clone(),
            None => parties.all.push(Party::new(*id, wants.clone())),
        }
    }
    apply(&parties);
}

/// What is reported now.
///
/// ```
/// # use finefs_lockmeter::thresholds;
/// assert_eq!(thresholds().hold, None);
/// ```
pub fn thresholds() -> Thresholds {
    let duration = |ns: &AtomicU64| match ns.load(Ordering::Relaxed) {
        u64::MAX => None,
        ns => Some(Duration::from_nanos(ns)),
    };
    let waiters = WAITERS.load(Ordering::Relaxed);
    Thresholds {
        wait: duration(&WAIT_NS),
        hold: duration(&HOLD_NS),
        waiters: (waiters != usize::MAX).then_some(waiters),
        per_second_max: parties().per_second_max,
    }
}

/// A report whose backtrace has no names yet.
struct Raw {
    what: What,
    class: &'static LockClass,
    kind: Kind,
    thread: String,
    thread_id: i32,
    location: &'static Location<'static>,
    backtrace: Backtrace,
    /// The leases that it is for, with the number of those that were left out before it.
    to: Vec<(u64, u64)>,
}

static LOG: Mutex<VecDeque<Raw>> = Mutex::new(VecDeque::new());

fn log() -> MutexGuard<'static, VecDeque<Raw>> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps one more. If there are too many the first goes, and is counted among those left out before
/// the next.
fn keep(raw: Raw) {
    let mut log = log();
    log.push_back(raw);
    if log.len() <= KEPT_MAX {
        return;
    }
    let gone = log.pop_front().map_or(Vec::new(), |first| first.to);
    for (id, left_out) in gone {
        let mut receivers = log.iter_mut().flat_map(|raw| raw.to.iter_mut());
        if let Some((_, count)) = receivers.find(|(receiver, _)| *receiver == id) {
            *count += left_out + 1;
        }
    }
}

/// Takes the reports made since the last call, oldest first, of all leases. Naming their
/// backtraces' functions takes milliseconds.
pub(crate) fn drain() -> Vec<Made> {
    let kept = std::mem::take(&mut *log());
    kept.into_iter()
        .map(|raw| Made {
            to: raw.to,
            report: Report {
                what: raw.what,
                class: raw.class.name().to_owned(),
                kind: raw.kind,
                thread: raw.thread,
                thread_id: raw.thread_id,
                location: raw.location.to_string(),
                backtrace: callers(&raw.backtrace.to_string()),
                left_out: 0,
            },
        })
        .collect()
}

/// `backtrace` without its first frames, which are the meter's own, numbered anew.
///
/// A symbol stands in a line; that of a frame has its number before it, those inlined into it have
/// not. The line after it may say where it is.
fn callers(backtrace: &str) -> String {
    let is_place = |line: &str| line.trim_start().starts_with("at ");
    let is_own = |line: &&str| is_place(line) || line.contains("finefs_lockmeter::");
    let mut kept: Vec<&str> = backtrace.lines().skip_while(is_own).collect();
    if kept.is_empty() {
        kept = backtrace.lines().collect();
    }
    let mut text = String::new();
    let mut frames = 0;
    for line in kept {
        let symbol = match line.trim_start().split_once(": ") {
            Some((number, symbol)) if number.parse::<u32>().is_ok() => Some(symbol),
            // What the meter was inlined into.
            _ if frames == 0 => Some(line.trim_start()),
            _ => None,
        };
        if let Some(symbol) = symbol {
            text.push_str(&format!("{frames:>4}: {symbol}\n"));
            frames += 1;
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[inline]
pub(crate) fn check_wait(
    class: &'static LockClass,
    kind: Kind,
    ns: u64,
    location: &'static Location<'static>,
) {
    if ns >= WAIT_NS.load(Ordering::Relaxed) {
        add(What::Wait { ns }, class, kind, location);
    }
}

#[inline]
pub(crate) fn check_hold(
    class: &'static LockClass,
    kind: Kind,
    ns: u64,
    location: &'static Location<'static>,
) {
    if ns >= HOLD_NS.load(Ordering::Relaxed) {
        add(What::Hold { ns }, class, kind, location);
    }
}

/// To be called by a thread whose own wait is already on record.
#[inline]
pub(crate) fn check_waiters(
    class: &'static LockClass,
    kind: Kind,
    lock: usize,
    location: &'static Location<'static>,
) {
    let most = WAITERS.load(Ordering::Relaxed);
    if most == usize::MAX {
        return;
    }
    let own = |queue: &Queue| queue.lock == lock && queue.class == class.name();
    let queue = crate::waiting().into_iter().find(own);
    if let Some(queue) = queue.filter(|queue| queue.waiters.len() > most) {
        add(What::Waiting { queue }, class, kind, location);
    }
}

#[cold]
fn add(what: What, class: &'static LockClass, kind: Kind, location: &'static Location<'static>) {
    let to = parties().admit(&what);
    if to.is_empty() {
        return;
    }
    let raw = Raw {
        what,
        class,
        kind,
        thread: std::thread::current()
            .name()
            .unwrap_or("unnamed")
            .to_owned(),
        thread_id: thread_id(),
        location,
        backtrace: Backtrace::force_capture(),
        to,
    };
    keep(raw);
}

#[cfg(test)]
mod tests {
    use super::callers;

    #[test]
    fn the_meters_own_frames_are_left_out() {
        let whole = "   0: finefs_lockmeter::threshold::add\n             at /a/threshold.rs:184:20\n   \
                     1: finefs_lockmeter::threshold::check_hold\n      \
                     <finefs_lockmeter::holding::Holding as core::ops::drop::Drop>::drop\n      \
                     finefs_locks::mutex::unlock\n             at /a/mutex.rs:1:2\n   \
                     2: load::with::<finefs_lockmeter::Kind>\n      load::main\n   3: <unknown>\n";
        let expected = "   0: finefs_locks::mutex::unlock\n             at /a/mutex.rs:1:2\n   \
                        1: load::with::<finefs_lockmeter::Kind>\n      load::main\n   2: <unknown>\n";
        assert_eq!(callers(whole), expected);
        let nameless = "   0: <unknown>\n   1: <unknown>\n";
        assert_eq!(callers(nameless), nameless);
        let own = "   0: finefs_lockmeter::threshold::add\n";
        assert_eq!(callers(own), own);
    }
}
