//! What the model says of a load under a locking scheme, from the runs of one thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use finefs::LockingScheme;

use super::load::{Load, THREADS};
use crate::affinity;
use crate::model::measured::Observed;
use crate::model::rehearsal::{Times, visits_per_second};
use crate::model::{Crowd, HandOver, Network, Station};
use crate::seeds::experiment::Results;
use crate::seeds::ratios::ratio;

/// The class of the big lock: under it no other is waited for.
const BIG: &str = "ns.big";

/// A load under a scheme, as the model sees it.
pub(super) struct Prediction<'a> {
    results: &'a Results,
    load: Load,
    scheme: LockingScheme,
    observed: Observed<'a>,
    /// Of one thread.
    pub network: Network,
}

/// What is predicted of some threads on this machine.
pub(super) struct Here {
    pub per_second: f64,
    /// The share of the time in a convoy, where the lock has one.
    pub convoy_share: Option<f64>,
    /// How many times longer everything takes than with one thread, shared locks apart.
    pub slowdown: f64,
}

impl<'a> Prediction<'a> {
    /// None without the runs of one thread.
    pub fn of(results: &'a Results, load: Load, scheme: LockingScheme) -> Option<Prediction<'a>> {
        let key = load.key(scheme, 1);
        let counted = results.last(&key.counted())?;
        let costs = results.costs();
        let operation_ns = |rate: f64| (rate > 0.0).then_some(1e9 / rate);
        let observed = Observed {
            counts: &counted.locks,
            operations: counted.operations,
            counted_operation_ns: operation_ns(counted.per_second)?,
            operation_ns: operation_ns(results.per_second(&key)?)?,
            empty_hold_ns: costs.empty_hold_ns,
        };
        let hand_over = match scheme {
            LockingScheme::BigSleep => HandOver::Sleeping {
                wake_up_ns: costs.sleeping_ns.unwrap_or(0.0),
            },
            _ => HandOver::Spinning {
                hand_over_ns: costs.spinning_ns.unwrap_or(0.0),
                line_transfer_ns: costs.line_transfer_ns.unwrap_or(0.0),
            },
        };
        let has_big = counted
            .locks
            .class(BIG)
            .is_some_and(|class| !class.writer.is_empty());
        let network = observed.network(|class| match class {
            _ if has_big && class != BIG => None,
            _ => Some((load.sharing(class), hand_over)),
        });
        Some(Prediction {
            results,
            load,
            scheme,
            observed,
            network: without_rare(network),
        })
    }

    /// How many times longer work takes when so many threads run that share nothing but the machine. 1 where that
    /// was not tried.
    pub fn slowdown(&self, threads: usize) -> f64 {
        let one = self
            .results
            .per_second(&self.load.key(LockingScheme::Fine, 1));
        let apart = self.results.per_second(&self.load.apart_key(threads));
        let running = threads.min(affinity::cpus()) as f64;
        ratio(one, apart).map_or(1.0, |times| times * running)
    }

    /// Threads on this machine.
    pub fn here(&self, threads: usize) -> Here {
        let crowd = self.crowd(threads);
        let slowdown = self.slowdown(threads);
        let convoy_share = self.convoy_share(threads);
        let network = self.network.slowed(slowdown);
        let per_ns = match convoy_share {
            Some(share) => network.mixed_per_ns(crowd, share),
            None => network.solve_on(crowd).throughput_per_ns,
        };
        Here {
            per_second: per_ns * 1e9,
            convoy_share,
            slowdown,
        }
    }

    /// The network on so many cores with a thread on each: what this machine's own cores cost each other is the
    /// least that more of them do.
    pub fn on_cores(&self, cores: usize) -> Network {
        self.network.slowed(match cores {
            0 | 1 => 1.0,
            _ => self.slowdown(affinity::cpus()),
        })
    }

    fn crowd(&self, threads: usize) -> Crowd {
        Crowd {
            threads,
            cpus: affinity::cpus(),
            preemption: self.results.costs().preemption,
        }
    }

    /// The share of the time in which a sleeping lock is in a convoy, with so many threads: from its rehearsal,
    /// taken as a multiple of what one thread got through there. None where there is no such lock.
    pub fn convoy_share(&self, threads: usize) -> Option<f64> {
        if self.scheme != LockingScheme::BigSleep || threads < 2 {
            return None;
        }
        let key = |threads| self.load.key(LockingScheme::BigSleep, threads);
        let rate = |threads| self.results.rehearsed(&key(threads));
        let gain = ratio(rate(threads), rate(1))?;
        let throughput_per_ns = gain * self.network.solve(1).throughput_per_ns;
        Some(
            self.network
                .convoy_share(self.crowd(threads), throughput_per_ns),
        )
    }

    /// The times with which the big lock is rehearsed.
    fn times(&self) -> Option<Times> {
        let mut stations = self.network.stations.iter();
        let big = stations.find(|station| station.name == BIG)?;
        Some(self.observed.times(&self.network, big))
    }
}

/// Tries the sleeping big lock with each load's times, by so many threads as it ran with.
pub(in crate::seeds) fn rehearse(results: &mut Results, seconds: f64, stop: &AtomicBool) {
    for load in Load::ALL {
        let prediction = Prediction::of(results, load, LockingScheme::BigSleep);
        let Some(times) = prediction.and_then(|prediction| prediction.times()) else {
            continue;
        };
        for threads in THREADS {
            let time = Duration::from_secs_f64(seconds);
            let rate = visits_per_second(threads, &times, time, stop);
            if stop.load(Ordering::Relaxed) {
                return;
            }
            results.add_rehearsal(load.key(LockingScheme::BigSleep, threads), rate);
        }
    }
}

/// Below this share of an operation a lock is one of the commit's, taken a few times a second and not once an
/// operation: its count says nothing of operations.
const SHARE_MIN: f64 = 1e-4;

fn without_rare(network: Network) -> Network {
    let least_ns = network.alone_ns() * SHARE_MIN;
    let (stations, rare): (Vec<_>, Vec<_>) = network
        .stations
        .into_iter()
        .partition(|station| station.demand_ns() >= least_ns);
    Network {
        delay_ns: network.delay_ns + rare.iter().map(Station::demand_ns).sum::<f64>(),
        stations,
    }
}
