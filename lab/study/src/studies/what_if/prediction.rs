//! What the model says of a load under a locking scheme, from the runs of one thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use finefs::LockingScheme;
use finefs_locks::BigLockKind;

use super::load::{Load, SCHEMES, THREADS};
use crate::model::measured::Observed;
use crate::model::rehearsal::{AfterWaiting, Times, visits_per_second};
use crate::model::{Crowd, HandOver, Network, Station};
use crate::studies::experiment::{Key, Results};
use crate::studies::ratios::ratio;
use finefs_workloads::affinity;

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
    /// The mean cost of a hand-over of a spinning big lock, nanoseconds.
    pub hand_over_ns: Option<f64>,
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

    /// How many times longer work takes when so many threads run that share nothing but the
    /// machine. 1 where that was not tried.
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
        let hand_over_ns = self.rehearsed_spinning_ns(threads);
        let network = self.handed_over(threads).slowed(slowdown);
        let per_ns = match convoy_share {
            Some(share) => network.mixed_per_ns(crowd, share),
            None => network.solve_on(crowd).throughput_per_ns,
        };
        // The model's convoys cost nothing where nobody waits yet; a real one may be slower.
        let rehearsed = convoy_share.and_then(|_| self.rehearsed_per_ns(threads));
        let per_ns = rehearsed.map_or(per_ns, |rehearsed_per_ns| per_ns.min(rehearsed_per_ns));
        Here {
            per_second: per_ns * 1e9,
            convoy_share,
            hand_over_ns,
            slowdown,
        }
    }

    /// The network on so many cores with a thread on each: what this machine's own cores cost each
    /// other is the least that more of them do.
    pub fn on_cores(&self, cores: usize) -> Network {
        self.handed_over(cores.min(affinity::cpus()))
            .slowed(match cores {
                0 | 1 => 1.0,
                _ => self.slowdown(affinity::cpus()),
            })
    }

    /// The network with hand-overs as they were rehearsed.
    fn handed_over(&self, threads: usize) -> Network {
        match self.rehearsed_spinning_ns(threads) {
            Some(hand_over_ns) => self.network.with_spinning_ns(hand_over_ns),
            None => self.network.clone(),
        }
    }

    /// What handing over a spinning big lock costs so many threads: from its rehearsal, taken as a
    /// multiple of what one thread got through there. None where there is no such lock.
    fn rehearsed_spinning_ns(&self, threads: usize) -> Option<f64> {
        if self.scheme != LockingScheme::BigSpin {
            return None;
        }
        let tried = |tried: &usize| *tried > 1 && *tried <= threads;
        let tried = THREADS.into_iter().rfind(tried)?;
        self.network
            .spinning_ns(tried.min(affinity::cpus()), self.rehearsed_per_ns(tried)?)
    }

    /// Operations per nanosecond, if so many threads get through as many times more than one thread
    /// as they did in the rehearsal.
    fn rehearsed_per_ns(&self, threads: usize) -> Option<f64> {
        let rate = |threads| self.results.rehearsed(&self.load.key(self.scheme, threads));
        let gain = ratio(rate(threads), rate(1))?;
        Some(gain * self.network.solve(1).throughput_per_ns)
    }

    fn crowd(&self, threads: usize) -> Crowd {
        Crowd {
            threads,
            cpus: affinity::cpus(),
            preemption: self.results.costs().preemption,
        }
    }

    /// The share of the time in which a sleeping lock is in a convoy, with so many threads: from
    /// its rehearsal, taken as a multiple of what one thread got through there. None where there is
    /// no such lock.
    pub fn convoy_share(&self, threads: usize) -> Option<f64> {
        if self.scheme != LockingScheme::BigSleep || threads < 2 {
            return None;
        }
        let throughput_per_ns = self.rehearsed_per_ns(threads)?;
        let crowd = self.crowd(threads);
        Some(self.network.convoy_share(crowd, throughput_per_ns))
    }

    /// How many times longer the big lock is held by threads that have slept for it; none where
    /// nobody does.
    pub fn held_longer(&self) -> Option<f64> {
        let key = self.load.key(self.scheme, 1).counted().napping();
        let napping = self.results.last(&key)?;
        Some(self.observed.held_longer(BIG, &napping.locks))
    }

    /// The times with which the big lock is rehearsed.
    fn times(&self) -> Option<Times> {
        let mut stations = self.network.stations.iter();
        let big = stations.find(|station| station.name == BIG)?;
        Some(Times {
            // So many visits came after each nap.
            after_waiting: self.held_longer().map_or(AfterWaiting::AS_USUAL, |longer| {
                AfterWaiting {
                    visits: big.visits,
                    longer,
                }
            }),
            ..self.observed.times(&self.network, big)
        })
    }
}

/// Tries the big lock of `key` alone with the load's times, by as many threads; where it spins by
/// no more than CPUs, since what more of them cost each other is known
/// ([`crate::model::preemption`]). Nothing where the model does not predict `key`, or not yet.
pub(in crate::studies) fn rehearse(
    results: &mut Results,
    key: &Key,
    seconds: f64,
    stop: &AtomicBool,
) {
    let all = predicted().find(|(load, scheme, threads)| load.key(*scheme, *threads) == *key);
    let Some((load, scheme, threads)) = all else {
        return;
    };
    let prediction = Prediction::of(results, load, scheme);
    let Some(times) = prediction.and_then(|prediction| prediction.times()) else {
        return;
    };
    let (kind, visitors) = match scheme {
        LockingScheme::BigSleep => (BigLockKind::Sleeping, threads),
        _ => (BigLockKind::Spinning, threads.min(affinity::cpus())),
    };
    let time = Duration::from_secs_f64(seconds);
    let rate = visits_per_second(kind, visitors, &times, time, stop);
    if !stop.load(Ordering::Relaxed) {
        results.add_rehearsal(key.clone(), rate);
    }
}

/// Tries what has not been tried: what ran before the runs of one thread.
pub(in crate::studies) fn rehearse_missing(results: &mut Results, seconds: f64, stop: &AtomicBool) {
    for (load, scheme, threads) in predicted() {
        let key = load.key(scheme, threads);
        if results.rehearsed(&key).is_none() {
            rehearse(results, &key, seconds, stop);
        }
    }
}

/// What runs and is predicted.
fn predicted() -> impl Iterator<Item = (Load, LockingScheme, usize)> {
    let of_load = |load| SCHEMES.map(|scheme| (load, scheme));
    let schemes = Load::ALL.into_iter().flat_map(of_load);
    schemes.flat_map(|(load, scheme)| THREADS.map(|threads| (load, scheme, threads)))
}

/// Below this share of an operation a lock is one of the commit's, taken a few times a second and
/// not once an operation: its count says nothing of operations.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::costs::Costs;
    use crate::model::preemption::Preemption;
    use crate::studies::experiment::Sample;
    use finefs_lockmeter::{ClassCounts, Counts, Snapshot};

    const ONE_PER_SECOND: f64 = 1e6;

    fn costs() -> Costs {
        Costs {
            line_transfer_ns: Some(30.0),
            spinning_ns: Some(572.0),
            sleeping_ns: Some(10_000.0),
            empty_hold_ns: 0.0,
            preemption: Preemption::NONE,
        }
    }

    /// Of one thread that takes the big lock once in an operation of 1,000 ns.
    fn sample(hold_ns: u64) -> Sample {
        let mut counts = Counts {
            acquisitions: 1_000,
            ..Counts::default()
        };
        counts.hold.histogram.add(hold_ns, 1_000);
        counts.hold.total_ns = hold_ns * 1_000;
        let big = ClassCounts {
            name: BIG.into(),
            writer: counts,
            ..ClassCounts::default()
        };
        Sample {
            operations: 1_000,
            per_second: ONE_PER_SECOND,
            of_each_per_second: Vec::new(),
            waiting_share: 0.0,
            locks: Snapshot {
                classes: vec![big],
                ..Snapshot::default()
            },
            user_share: 1.0,
            system_share: 0.0,
            removals: None,
            more: Vec::new(),
        }
    }

    /// Results of one thread, and of a rehearsal in which two got through `gain` times as much.
    fn results(scheme: LockingScheme, gain: f64) -> Results {
        let mut results = Results::new(costs());
        let one = Load::OpenSpeed.key(scheme, 1);
        results.add(one.counted(), sample(500));
        results.add(one.clone(), sample(500));
        results.add_rehearsal(one, 3e6);
        let two = Load::OpenSpeed.key(scheme, 2);
        results.add_rehearsal(two, gain * 3e6);
        results
    }

    #[test]
    fn what_was_rehearsed_is_predicted() {
        if affinity::cpus() < 2 {
            return;
        }
        for (scheme, gain) in [
            (LockingScheme::BigSpin, 0.9),
            (LockingScheme::BigSpin, 0.3),
            (LockingScheme::BigSleep, 0.3),
            (LockingScheme::BigSleep, 0.001),
        ] {
            let results = results(scheme, gain);
            let prediction = Prediction::of(&results, Load::OpenSpeed, scheme).unwrap();
            let here = prediction.here(2);
            let found = here.per_second / ONE_PER_SECOND;
            assert!(
                (found / gain - 1.0).abs() < 1e-6,
                "{scheme:?} {gain}: {found}"
            );
            assert_eq!(
                here.hand_over_ns.is_some(),
                scheme == LockingScheme::BigSpin
            );
            // More cores are handed the lock at the same cost.
            let [few, many] = [affinity::cpus(), 256].map(|cores| prediction.on_cores(cores));
            assert_eq!(few, many);
        }
    }

    #[test]
    fn who_has_slept_holds_the_lock_longer() {
        let scheme = LockingScheme::BigSleep;
        let mut results = results(scheme, 0.3);
        let napping = Load::OpenSpeed.key(scheme, 1).counted().napping();
        results.add(napping, sample(1_500));
        let prediction = Prediction::of(&results, Load::OpenSpeed, scheme).unwrap();
        assert_eq!(prediction.held_longer(), Some(3.0));
        let expected = AfterWaiting {
            visits: 1.0,
            longer: 3.0,
        };
        assert_eq!(prediction.times().unwrap().after_waiting, expected);
    }

    #[test]
    fn what_ran_is_rehearsed_and_what_is_missing_later() {
        let scheme = LockingScheme::BigSpin;
        let mut results = results(scheme, 0.9);
        let key = |threads| Load::OpenSpeed.key(scheme, threads);
        let stop = AtomicBool::new(false);
        rehearse(&mut results, &key(1).counted(), 0.001, &stop);
        rehearse(&mut results, &key(3), 0.001, &stop);
        assert_eq!(results.rehearsed(&key(1).counted()), None);
        assert_eq!(results.rehearsed(&key(3)), None, "not predicted");
        rehearse(&mut results, &key(4), 0.001, &stop);
        assert!(results.rehearsed(&key(4)).is_some());
        rehearse_missing(&mut results, 0.001, &stop);
        assert!(results.rehearsed(&key(8)).is_some());
        assert_eq!(results.rehearsed(&key(1)), Some(3e6), "it was there");
        let other = Load::PostMark.key(scheme, 2);
        assert_eq!(results.rehearsed(&other), None, "nothing is known of it");
    }
}
