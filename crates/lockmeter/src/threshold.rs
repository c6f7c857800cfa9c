//! Thresholds: reports of who waited or held for too long, with backtraces, and of long queues.
//!
//! # Purpose
//! What the SystemTap scripts of Red Hat's bug 519126 did for the big kernel lock: one printed a
//! backtrace of whoever held it for more than N microseconds, the other listed the waiters, in the order
//! in which they had queued up, when there were more than N.
//!
//! # Data model
//! The thresholds are atomics in nanoseconds, `u64::MAX` for none: the lesser of what the program has set and what
//! leases want, which are under a mutex. Reports go to a ring of
//! [`KEPT_MAX`](crate::lease::KEPT_MAX); [`drain`] empties it. Of one second's reports only so many are made; the next
//! one tells how many were not. Whether a report crosses what the program has set is told by what that is when it is
//! made: thresholds are often switched off before anybody asks.
//!
//! # Cost
//! A backtrace is walked where it happens, which takes microseconds, and named only when it is taken
//! from the ring. A waiter's is walked with the lock just granted, a holder's after its release.
//!
//! # Locking
//! One mutex for reports, a leaf, taken only when a threshold was crossed; and one for the thresholds' change, under
//! which it and that of the mode are taken.

use std::backtrace::Backtrace;
use std::collections::VecDeque;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::class::LockClass;
use crate::clock::now_ns;
use crate::events::{Queue, Report, Thresholds, What};
use crate::lease::{Made, least, push};
use crate::{Kind, thread_id};

const SECOND_NS: u64 = 1_000_000_000;

static WAIT_NS: AtomicU64 = AtomicU64::new(u64::MAX);
static HOLD_NS: AtomicU64 = AtomicU64::new(u64::MAX);
static WAITERS: AtomicUsize = AtomicUsize::new(usize::MAX);
static PER_SECOND_MAX: AtomicUsize = AtomicUsize::new(10);

/// Who wants what.
struct Wishes {
    /// As the program has it.
    base: Thresholds,
    leased: Thresholds,
}

const NONE: Thresholds = Thresholds {
    wait: None,
    hold: None,
    waiters: None,
    per_second_max: 10,
};

static WISHES: Mutex<Wishes> = Mutex::new(Wishes {
    base: NONE,
    leased: NONE,
});

fn change(change: impl FnOnce(&mut Wishes)) {
    let mut wishes = WISHES.lock().unwrap_or_else(PoisonError::into_inner);
    change(&mut wishes);
    let Wishes { base, leased } = &*wishes;
    let ns = |duration: Option<Duration>| {
        duration.map_or(u64::MAX, |duration| {
            u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
        })
    };
    let hold = least(base.hold, leased.hold);
    let waiters = least(base.waiters, leased.waiters).unwrap_or(usize::MAX);
    WAIT_NS.store(ns(least(base.wait, leased.wait)), Ordering::Relaxed);
    HOLD_NS.store(ns(hold), Ordering::Relaxed);
    WAITERS.store(waiters, Ordering::Relaxed);
    PER_SECOND_MAX.store(base.per_second_max, Ordering::Relaxed);
    LOG.lock().unwrap_or_else(PoisonError::into_inner).in_second = 0;
    crate::mode::set_hold_threshold(hold.is_some());
}

/// Sets what is reported from now on, and begins a new second for the limit. What clients of the control socket want
/// ([`crate::Wanted`]) is reported beside it.
///
/// ```
/// # use finefs_lockmeter::{Thresholds, set_thresholds};
/// # use std::time::Duration;
/// set_thresholds(&Thresholds { wait: Some(Duration::from_millis(1)), ..Thresholds::default() });
/// ```
pub fn set_thresholds(thresholds: &Thresholds) {
    change(|wishes| wishes.base = thresholds.clone());
}

/// What leases want beside what the program has set.
pub(crate) fn set_leased(thresholds: Thresholds) {
    change(|wishes| wishes.leased = thresholds);
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
        per_second_max: PER_SECOND_MAX.load(Ordering::Relaxed),
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
    left_out: u64,
    crosses_base: bool,
}

struct Log {
    kept: VecDeque<Raw>,
    second: u64,
    in_second: usize,
    left_out: u64,
}

static LOG: Mutex<Log> = Mutex::new(Log {
    kept: VecDeque::new(),
    second: 0,
    in_second: 0,
    left_out: 0,
});

impl Log {
    /// Room for one more in this second, with the number of those that found none before it.
    fn admit(&mut self) -> Option<u64> {
        let second = now_ns() / SECOND_NS;
        if self.second != second {
            self.second = second;
            self.in_second = 0;
        }
        if self.in_second >= PER_SECOND_MAX.load(Ordering::Relaxed) {
            self.left_out += 1;
            return None;
        }
        self.in_second += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Takes the reports made since the last call, oldest first, whoever they are for. Naming their backtraces' functions
/// takes milliseconds.
pub(crate) fn drain() -> Vec<Made> {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = std::mem::take(&mut log.kept);
    drop(log);
    kept.into_iter()
        .map(|raw| Made {
            crosses_base: raw.crosses_base,
            report: Report {
                what: raw.what,
                class: raw.class.name().to_owned(),
                kind: raw.kind,
                thread: raw.thread,
                thread_id: raw.thread_id,
                location: raw.location.to_string(),
                backtrace: callers(&raw.backtrace.to_string()),
                left_out: raw.left_out,
            },
        })
        .collect()
}

/// `backtrace` without its first frames, which are the meter's own, numbered anew.
///
/// A symbol stands in a line; that of a frame has its number before it, those inlined into it have not. The line
/// after it may say where it is.
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
    let admitted = LOG.lock().unwrap_or_else(PoisonError::into_inner).admit();
    let Some(left_out) = admitted else { return };
    let wishes = WISHES.lock().unwrap_or_else(PoisonError::into_inner);
    let crosses_base = wishes.base.are_crossed_by(&what);
    drop(wishes);
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
        left_out,
        crosses_base,
    };
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    push(&mut log.kept, raw, |raw| &mut raw.left_out);
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
