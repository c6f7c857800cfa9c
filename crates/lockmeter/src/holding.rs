//! What locks call: [`Holding`] in every guard, [`Waiting`] around every wait, [`LastCpu`] in every
//! lock that counts bounces.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::class::LockClass;
use crate::clock::now_ns;
use crate::counters::Counters;
use crate::mode::{COUNTS_ALL, TIMES_ALL, active, hold_sampling};
use crate::registry::{self, Registration, ThreadRecord};
use crate::waiters::Wait;
use crate::{Kind, rseq, thread_id, threshold};

thread_local! {
    static LOCAL: Local = Local {
        registration: Registration::new(),
        chance: Chance::new(),
        spare: RefCell::new((0..SPARE_FIRST).map(|_| Box::default()).collect()),
    };
}

/// Holdings for which a thread has memory from its beginning, and at most while it has no use for
/// it.
const SPARE_FIRST: usize = 8;
const SPARE_MAX: usize = 64;

struct Local {
    registration: Registration,
    chance: Chance,
    #[expect(clippy::vec_box, reason = "the boxes are what is kept")]
    spare: RefCell<Vec<Box<Running>>>,
}

/// Where the next holding to be timed comes from: a thread's own random numbers (xorshift,
/// Marsaglia 2003).
struct Chance(Cell<u32>);

impl Chance {
    fn new() -> Chance {
        // Never 0, and different in threads of different numbers.
        Chance(Cell::new(
            (thread_id() as u32).wrapping_mul(0x9e37_79b9) | 1,
        ))
    }

    /// A number of 1 to 2 x `mean` - 1, each as likely as the others.
    fn gap(&self, mean: u32) -> u64 {
        let mut state = self.0.get();
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        self.0.set(state);
        let numbers = 2 * u64::from(mean) - 1;
        1 + ((u64::from(state) * numbers) >> 32)
    }
}

/// Calls `f` with what belongs to the thread; not at all when the thread is ending and has nothing
/// left: its last locks go uncounted.
#[inline]
fn with_local<R>(f: impl FnOnce(&Local) -> R) -> Option<R> {
    LOCAL.try_with(f).ok()
}

#[inline]
fn with_record(f: impl FnOnce(&ThreadRecord)) {
    with_local(|local| f(&local.registration.0));
}

/// The CPU that a lock was last taken on, as far as that is known: one byte beside the lock's word.
/// It is written with the lock held, on a line that the holder owns anyway.
///
/// ```
/// # use finefs_lockmeter::{Holding, Kind, LastCpu, LockClass};
/// static LOG: LockClass = LockClass::new("log", 10);
/// struct Lock {
///     word: std::sync::atomic::AtomicU32,
///     last_cpu: LastCpu,
/// }
/// # let lock = Lock { word: 0.into(), last_cpu: LastCpu::new() };
/// # lock.word.store(1, std::sync::atomic::Ordering::Relaxed);
/// let _holding = Holding::begin(&LOG, Kind::Writer, &lock.last_cpu);
/// ```
#[derive(Debug)]
pub struct LastCpu(AtomicU8);

/// In `LastCpu`: not of a lock.
const UNTRACED: u8 = u8::MAX;

impl LastCpu {
    /// Of a lock that was not taken yet.
    pub const fn new() -> LastCpu {
        LastCpu(AtomicU8::new(0))
    }

    /// For locks whose holders leave no trace that others could see, so that nothing bounces.
    pub const fn untraced() -> LastCpu {
        LastCpu(AtomicU8::new(UNTRACED))
    }

    /// True when the lock was last taken on another CPU.
    fn has_bounced(&self) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        last != UNTRACED && self.replace(last, rseq::current_cpu().unwrap_or_else(getcpu))
    }

    /// The same, where it can be told by a look.
    #[inline(always)]
    pub(crate) fn has_bounced_as_known(&self) -> Option<bool> {
        let last = self.0.load(Ordering::Relaxed);
        if last == UNTRACED {
            return Some(false);
        }
        Some(self.replace(last, rseq::known_cpu()?))
    }

    #[inline(always)]
    fn replace(&self, last: u8, cpu: usize) -> bool {
        // 254 numbers for CPUs: those beyond are not told apart.
        let own = cpu.min(usize::from(UNTRACED) - 2) as u8 + 1;
        if last == own {
            return false;
        }
        self.0.store(own, Ordering::Relaxed);
        last != 0
    }
}

#[cold]
fn getcpu() -> usize {
    // SAFETY: sched_getcpu has no arguments and touches no memory of ours.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).unwrap_or(0)
}

impl Default for LastCpu {
    fn default() -> LastCpu {
        LastCpu::new()
    }
}

/// The time for which a lock is held: part of its guard. Its end (by drop) is counted; where the
/// guard can say when exactly the lock goes, it calls [`Holding::stop`] just before.
///
/// ```
/// use finefs_lockmeter::{Holding, Kind, LastCpu, LockClass, Mode, set_mode, snapshot};
/// static LOG: LockClass = LockClass::new("example.log", 10);
/// let last_cpu = LastCpu::new();
/// set_mode(Mode::Full);
/// let holding = Holding::begin(&LOG, Kind::Writer, &last_cpu);
/// drop(holding);
/// let counts = snapshot();
/// assert_eq!(counts.class("example.log").unwrap().writer.acquisitions, 1);
/// assert_eq!(counts.class("example.log").unwrap().writer.hold.count(), 1);
/// ```
#[derive(Debug)]
#[must_use = "the time ends when this is dropped"]
pub struct Holding {
    /// None: nobody wants to know. A box, so that guards stay small and are not copied about.
    running: Option<Box<Running>>,
}

#[derive(Debug)]
struct Running {
    /// None: spare memory, in nobody's use.
    class: Option<&'static LockClass>,
    kind: Kind,
    location: &'static Location<'static>,
    /// When it began; after `stop` how long it took.
    ns: u64,
    /// For how many holdings it stands.
    weight: u64,
    is_stopped: bool,
}

impl Default for Running {
    fn default() -> Running {
        Running {
            class: None,
            kind: Kind::Writer,
            location: Location::caller(),
            ns: 0,
            weight: 1,
            is_stopped: true,
        }
    }
}

impl Holding {
    /// A lock of `class` was taken without waiting.
    #[inline]
    #[track_caller]
    pub fn begin(class: &'static LockClass, kind: Kind, last_cpu: &LastCpu) -> Holding {
        if active() == 0 {
            return Holding { running: None };
        }
        Holding::begin_counted(class, kind, last_cpu)
    }

    /// Of nothing: where a guard holds no lock.
    pub const fn none() -> Holding {
        Holding { running: None }
    }

    /// True when somebody wants to know: a guard that has no room for a holding needs to find some
    /// only then.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn begin_counted(class: &'static LockClass, kind: Kind, last_cpu: &LastCpu) -> Holding {
        // Most are counted and nothing else.
        let count = |counters: &Counters| counters.count_untimed(last_cpu);
        if active() == COUNTS_ALL && registry::with_known(class, kind, count) == Some(true) {
            return Holding::none();
        }
        Holding::begin_timed(class, kind, last_cpu)
    }

    #[inline(never)]
    #[track_caller]
    fn begin_timed(class: &'static LockClass, kind: Kind, last_cpu: &LastCpu) -> Holding {
        let active = active();
        let mut weight = 1;
        if active & COUNTS_ALL != 0 {
            let has_bounced = last_cpu.has_bounced();
            let times_all = active & TIMES_ALL != 0;
            let counted = with_local(|local| {
                let counters = local.registration.0.of(class, kind);
                counters
                    .count_acquired(has_bounced, times_all, || local.chance.gap(hold_sampling()))
            });
            weight = counted.unwrap_or(0);
        }
        if weight == 0 {
            return Holding::none();
        }
        Holding::running(class, kind, Location::caller(), weight)
    }

    fn running(
        class: &'static LockClass,
        kind: Kind,
        location: &'static Location<'static>,
        weight: u64,
    ) -> Holding {
        let running = with_local(|local| {
            let spare = local.spare.borrow_mut().pop();
            let mut running = spare.unwrap_or_default();
            *running = Running {
                class: Some(class),
                kind,
                location,
                ns: now_ns(),
                weight,
                is_stopped: false,
            };
            running
        });
        Holding { running }
    }

    /// The lock is about to be released: the time ends here. It is counted when this is dropped,
    /// which is best done after the release.
    #[inline]
    pub fn stop(&mut self) {
        if let Some(running) = &mut self.running {
            running.stop();
        }
    }

    /// Runs `while_released`, during which the lock is not held (a wait on a condition variable,
    /// say). The times before and after it count as two.
    #[inline]
    pub fn interrupted<R>(&mut self, while_released: impl FnOnce() -> R) -> R {
        let running = self.running.take();
        let known = running.and_then(|running| {
            let (kind, location) = (running.kind, running.location);
            let known = (running.class?, kind, location, running.weight);
            running.end();
            Some(known)
        });
        let Some((class, kind, location, weight)) = known else {
            return while_released();
        };
        let result = while_released();
        *self = Holding::running(class, kind, location, weight);
        result
    }
}

impl Running {
    #[cold]
    fn stop(&mut self) {
        if !self.is_stopped {
            self.ns = now_ns().saturating_sub(self.ns);
            self.is_stopped = true;
        }
    }

    #[cold]
    fn end(mut self: Box<Running>) {
        self.stop();
        let (kind, ns, location) = (self.kind, self.ns, self.location);
        let weight = self.weight;
        let Some(class) = self.class else { return };
        with_local(|local| {
            let counters = local.registration.0.of(class, kind);
            counters.count_hold(ns, weight, location);
            let mut spare = local.spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(self);
            }
        });
        threshold::check_hold(class, kind, ns, location);
    }
}

impl Drop for Holding {
    #[inline]
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.end();
        }
    }
}

/// A thread waits for a lock. Begins when it is made; ends by [`Waiting::granted`], or by its drop
/// when the thread gives up.
///
/// ```
/// use finefs_lockmeter::{Kind, LastCpu, LockClass, Waiting, snapshot};
/// static LOG: LockClass = LockClass::new("example.log", 10);
/// let last_cpu = LastCpu::new();
/// let waiting = Waiting::begin(&LOG, Kind::Writer, &raw const last_cpu as usize);
/// // ... wait ...
/// let holding = waiting.granted(&last_cpu);
/// drop(holding);
/// assert_eq!(snapshot().class("example.log").unwrap().writer.contended, 1);
/// ```
#[must_use = "the wait ends when this is dropped"]
pub struct Waiting {
    wait: Wait,
    is_over: bool,
}

impl Waiting {
    /// The calling thread begins to wait for the lock at address `lock`.
    #[cold]
    #[track_caller]
    pub fn begin(class: &'static LockClass, kind: Kind, lock: usize) -> Waiting {
        let wait = Wait {
            lock,
            class,
            location: Location::caller(),
            since_ns: now_ns(),
            kind,
        };
        with_record(|record| record.waiting.set(&wait));
        threshold::check_waiters(class, kind, lock, wait.location);
        Waiting {
            wait,
            is_over: false,
        }
    }

    /// The thread has the lock.
    #[cold]
    pub fn granted(mut self, last_cpu: &LastCpu) -> Holding {
        let counts_all = active() & COUNTS_ALL != 0;
        let has_bounced = last_cpu.has_bounced();
        self.end(|counters| counters.count_granted(counts_all, has_bounced));
        let (class, kind, location) = (self.wait.class, self.wait.kind, self.wait.location);
        Holding::running(class, kind, location, 1)
    }

    fn end(&mut self, how: impl FnOnce(&Counters)) {
        self.is_over = true;
        let (class, kind, location) = (self.wait.class, self.wait.kind, self.wait.location);
        let ns = now_ns().saturating_sub(self.wait.since_ns);
        with_record(|record| {
            record.waiting.clear();
            let counters = record.of(class, kind);
            counters.count_wait(ns, location);
            how(counters);
        });
        threshold::check_wait(class, kind, ns, location);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(Counters::count_given_up);
        }
    }
}
