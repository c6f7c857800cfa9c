//! One thread's counters of one class and kind.
//!
//! Only the thread itself writes them, by plain loads and stores of atomics, so that counting needs
//! no read-modify-write and shares no cache line with other writers; snapshots read them at any
//! time.

use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::histogram::{BUCKETS, Times, bucket_of};
use crate::holding::LastCpu;
use crate::snapshot::{CallSite, Counts};

/// Call sites that are told apart per thread, class and kind.
const SITE_MAX: usize = 16;

fn add(counter: &AtomicU64, by: u64) {
    // One writer: no read-modify-write is needed.
    let sum = counter.load(Ordering::Relaxed).wrapping_add(by);
    counter.store(sum, Ordering::Relaxed);
}

struct Durations {
    total_ns: AtomicU64,
    min_ns: AtomicU64,
    max_ns: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Durations {
    fn new() -> Durations {
        Durations {
            total_ns: AtomicU64::new(0),
            min_ns: AtomicU64::new(u64::MAX),
            max_ns: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }

    /// Records a duration that stands for `weight`.
    fn record(&self, ns: u64, weight: u64) {
        add(&self.buckets[bucket_of(ns)], weight);
        add(&self.total_ns, ns.wrapping_mul(weight));
        if ns < self.min_ns.load(Ordering::Relaxed) {
            self.min_ns.store(ns, Ordering::Relaxed);
        }
        if ns > self.max_ns.load(Ordering::Relaxed) {
            self.max_ns.store(ns, Ordering::Relaxed);
        }
    }

    fn times(&self) -> Times {
        let mut times = Times {
            total_ns: self.total_ns.load(Ordering::Relaxed),
            min_ns: self.min_ns.load(Ordering::Relaxed),
            max_ns: self.max_ns.load(Ordering::Relaxed),
            ..Times::default()
        };
        for (bucket, count) in self.buckets.iter().enumerate() {
            times
                .histogram
                .add_to_bucket(bucket, count.load(Ordering::Relaxed));
        }
        if times.min_ns == u64::MAX {
            times.min_ns = 0;
        }
        times
    }
}

struct Site {
    /// Null: free. Set once.
    location: AtomicPtr<Location<'static>>,
    contended: AtomicU64,
    wait_ns: AtomicU64,
    hold_ns: AtomicU64,
}

/// The counters of one class and kind in one thread. What an acquisition that is only counted
/// writes lies in the first cache line.
///
/// `last_timed <= acquisitions < next_timed`, both of them numbers of acquisitions.
#[repr(C, align(64))]
pub(crate) struct Counters {
    acquisitions: AtomicU64,
    next_timed: AtomicU64,
    last_timed: AtomicU64,
    bounces: AtomicU64,
    contended: AtomicU64,
    contended_counted: AtomicU64,
    given_up: AtomicU64,
    hold_timed: AtomicU64,
    wait: Durations,
    hold: Durations,
    /// By the location's address, the next ones where that is taken. What finds no place counts
    /// nowhere here.
    sites: [Site; SITE_MAX],
}

impl Counters {
    pub(crate) fn new() -> Counters {
        let site = || Site {
            location: AtomicPtr::new(ptr::null_mut()),
            contended: AtomicU64::new(0),
            wait_ns: AtomicU64::new(0),
            hold_ns: AtomicU64::new(0),
        };
        Counters {
            acquisitions: AtomicU64::new(0),
            next_timed: AtomicU64::new(1),
            last_timed: AtomicU64::new(0),
            bounces: AtomicU64::new(0),
            contended: AtomicU64::new(0),
            contended_counted: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            hold_timed: AtomicU64::new(0),
            wait: Durations::new(),
            hold: Durations::new(),
            sites: std::array::from_fn(|_| site()),
        }
    }

    /// Counts an acquisition that did not wait, if its holding is not to be timed.
    #[inline(always)]
    pub(crate) fn count_untimed(&self, last_cpu: &LastCpu) -> bool {
        let number = self.acquisitions.load(Ordering::Relaxed) + 1;
        if number >= self.next_timed.load(Ordering::Relaxed) {
            return false;
        }
        let Some(has_bounced) = last_cpu.has_bounced_as_known() else {
            return false;
        };
        self.acquisitions.store(number, Ordering::Relaxed);
        if has_bounced {
            add(&self.bounces, 1);
        }
        true
    }

    /// Counts an acquisition that did not wait. How many it stands for if its holding is to be
    /// timed; 0 if it is not. `gap` chooses after how many the next one is timed.
    #[inline]
    pub(crate) fn count_acquired(
        &self,
        has_bounced: bool,
        times_all: bool,
        gap: impl FnOnce() -> u64,
    ) -> u64 {
        if has_bounced {
            add(&self.bounces, 1);
        }
        let number = self.acquisitions.load(Ordering::Relaxed) + 1;
        self.acquisitions.store(number, Ordering::Relaxed);
        if number < self.next_timed.load(Ordering::Relaxed) && !times_all {
            return 0;
        }
        let last = self.last_timed.load(Ordering::Relaxed);
        self.last_timed.store(number, Ordering::Relaxed);
        self.next_timed.store(number + gap(), Ordering::Relaxed);
        if times_all { 1 } else { number - last }
    }

    pub(crate) fn count_wait(&self, ns: u64, site: &'static Location<'static>) {
        add(&self.contended, 1);
        self.wait.record(ns, 1);
        if let Some(site) = self.site(site) {
            add(&site.contended, 1);
            add(&site.wait_ns, ns);
        }
    }

    pub(crate) fn count_granted(&self, counts_all: bool, has_bounced: bool) {
        if counts_all {
            // Its holding is timed and stands for itself only.
            add(&self.acquisitions, 1);
            add(&self.last_timed, 1);
            add(&self.next_timed, 1);
            add(&self.contended_counted, 1);
        }
        if has_bounced {
            add(&self.bounces, 1);
        }
    }

    pub(crate) fn count_given_up(&self) {
        add(&self.given_up, 1);
    }

    /// Counts a holding that stands for `weight`.
    pub(crate) fn count_hold(&self, ns: u64, weight: u64, site: &'static Location<'static>) {
        add(&self.hold_timed, 1);
        self.hold.record(ns, weight);
        if let Some(site) = self.site(site) {
            add(&site.hold_ns, ns.wrapping_mul(weight));
        }
    }

    fn site(&self, location: &'static Location<'static>) -> Option<&Site> {
        let wanted = ptr::from_ref(location).cast_mut();
        let first = wanted.addr() / align_of::<Location<'_>>();
        for at in first..first + SITE_MAX {
            let site = &self.sites[at % SITE_MAX];
            let known = site.location.load(Ordering::Relaxed);
            if known == wanted {
                return Some(site);
            }
            if known.is_null() {
                site.location.store(wanted, Ordering::Release);
                return Some(site);
            }
        }
        None
    }

    pub(crate) fn counts(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sites = self.sites.iter().filter_map(|site| {
            // SAFETY: not null means that `site` stored a `&'static Location<'static>` there, whose
            // target is never written.
            let location = unsafe { site.location.load(Ordering::Acquire).as_ref() }?;
            Some(CallSite {
                location: location.to_string(),
                contended: load(&site.contended),
                wait_ns_total: load(&site.wait_ns),
                hold_ns_total: load(&site.hold_ns),
            })
        });
        Counts {
            acquisitions: load(&self.acquisitions),
            contended: load(&self.contended),
            contended_counted: load(&self.contended_counted),
            given_up: load(&self.given_up),
            bounces: load(&self.bounces),
            hold_timed: load(&self.hold_timed),
            wait: self.wait.times(),
            hold: self.hold.times(),
            sites: sites.collect(),
        }
    }
}
