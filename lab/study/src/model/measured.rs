//! The network of a program, from what the meter counted while one thread ran it.
//!
//! One thread never waits, so its hold times are the plain service times. The meter's full mode
//! counts them, and slows the program: from every hold time what the meter shows for an empty one
//! is taken off, the time of an operation is taken from a second run with the meter at rest, and
//! hold times are taken shorter by the ratio of the two runs. So what the meter adds is thought to
//! lie inside of locks and outside alike.
//!
//! # Which locks queue
//! The counts tell of classes, not of locks. How many locks of a class there are, and who uses
//! them, is the workload's to say ([`Sharing`]). Shared acquisitions do not exclude each other and
//! are part of the delay.

use finefs_lockmeter::{Counts, Snapshot};

use super::rehearsal::{AfterWaiting, Times};
use super::{HandOver, Network, Station};

/// Which locks of a class threads meet at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// All threads use so many locks of the class, each as often as the others.
    Locks(u32),
    /// Each thread or CPU has locks of its own: nobody waits.
    Private,
}

/// What one thread's run showed.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// Counts of the run in the meter's full mode.
    pub counts: &'a Snapshot,
    /// Operations in that run.
    pub operations: u64,
    /// Time of one operation in that run, nanoseconds.
    pub counted_operation_ns: f64,
    /// Time of one operation with the meter at rest, nanoseconds.
    pub operation_ns: f64,
    /// What the meter shows for an empty hold, nanoseconds.
    pub empty_hold_ns: f64,
}

/// Hold times of a class that stand for all of them.
const QUANTILES: usize = 64;

impl Observed<'_> {
    /// The network. `of_class` says for each class how it is shared and handed over; `None` leaves
    /// the class out, as one that is only ever taken under another which is in.
    pub fn network(&self, of_class: impl Fn(&str) -> Option<(Sharing, HandOver)>) -> Network {
        let mut stations = Vec::new();
        for class in &self.counts.classes {
            let Some((Sharing::Locks(locks), hand_over)) = of_class(&class.name) else {
                continue;
            };
            let station = self.station(&class.name, &class.writer, locks, hand_over);
            stations.extend(station.filter(|station| station.visits > 0.0));
        }
        let held: f64 = stations.iter().map(Station::demand_ns).sum();
        // Locks under locks are counted twice; together they cannot be held longer than all the
        // time.
        if held > self.operation_ns {
            for station in &mut stations {
                station.hold_ns *= self.operation_ns / held;
            }
        }
        Network {
            delay_ns: (self.operation_ns - held).max(0.0),
            stations,
        }
    }

    fn station(
        &self,
        name: &str,
        counts: &Counts,
        locks: u32,
        hand_over: HandOver,
    ) -> Option<Station> {
        let mean_ns = counts.hold.mean_ns()? as f64;
        (self.operations != 0).then(|| Station {
            name: name.to_owned(),
            visits: counts.acquisitions as f64 / self.operations as f64,
            hold_ns: self.without_meter_ns(mean_ns),
            locks,
            hand_over,
        })
    }

    fn without_meter_ns(&self, hold_ns: f64) -> f64 {
        let faster = (self.operation_ns / self.counted_operation_ns).min(1.0);
        (hold_ns - self.empty_hold_ns).max(0.0) * faster
    }

    /// How many times longer the locks of a class are held in another run in the meter's full mode.
    /// 1 where either run does not show it.
    pub fn held_longer(&self, class: &str, other: &Snapshot) -> f64 {
        let held_ns = |counts: &Snapshot| {
            let mean_ns = counts.class(class)?.writer.hold.mean_ns()?;
            Some(self.without_meter_ns(mean_ns as f64)).filter(|held_ns| *held_ns > 0.0)
        };
        let both = held_ns(other).zip(held_ns(self.counts));
        both.map_or(1.0, |(other_ns, held_ns)| other_ns / held_ns)
    }

    /// The times with which `station` of `network` is rehearsed: hold times spread as those of its
    /// class, with the mean that the station has.
    pub fn times(&self, network: &Network, station: &Station) -> Times {
        let class = self.counts.class(&station.name);
        let holds_ns: Vec<f64> = (0..QUANTILES)
            .map(|part| (part as f64 + 0.5) / QUANTILES as f64)
            .filter_map(|quantile| class?.writer.hold.quantile_ns(quantile))
            .map(|hold_ns| self.without_meter_ns(hold_ns as f64))
            .collect();
        let mean_ns = holds_ns.iter().sum::<f64>() / holds_ns.len().max(1) as f64;
        let scale = match mean_ns > 0.0 {
            true => station.hold_ns / mean_ns,
            false => 0.0,
        };
        let outside_ns = network.alone_ns() - station.demand_ns();
        Times {
            holds_ns: holds_ns.iter().map(|hold_ns| hold_ns * scale).collect(),
            think_ns: outside_ns / station.visits,
            after_waiting: AfterWaiting::AS_USUAL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_lockmeter::{ClassCounts, Times};

    fn class(name: &'static str, acquisitions: u64, hold_ns: u64) -> ClassCounts {
        let mut hold = Times::default();
        hold.histogram.add(hold_ns, acquisitions);
        hold.total_ns = hold_ns * acquisitions;
        (hold.min_ns, hold.max_ns) = (hold_ns, hold_ns);
        ClassCounts {
            name: name.into(),
            writer: Counts {
                acquisitions,
                hold,
                ..Counts::default()
            },
            ..ClassCounts::default()
        }
    }

    fn observed(counts: &Snapshot) -> Observed<'_> {
        Observed {
            counts,
            operations: 100,
            counted_operation_ns: 1_000.0,
            operation_ns: 1_000.0,
            empty_hold_ns: 20.0,
        }
    }

    #[test]
    fn longer_holds_are_those_of_the_other_run() {
        let run = |hold_ns| Snapshot {
            classes: vec![class("big", 200, hold_ns)],
            ..Snapshot::default()
        };
        let counts = run(120);
        let observed = observed(&counts);
        assert_eq!(observed.held_longer("big", &run(320)), 3.0);
        assert_eq!(observed.held_longer("other", &run(320)), 1.0);
        assert_eq!(observed.held_longer("big", &Snapshot::default()), 1.0);
    }

    #[test]
    fn counts_become_stations() {
        let counts = Snapshot {
            classes: vec![class("big", 200, 120), class("own", 500, 60)],
            ..Snapshot::default()
        };
        let observed = observed(&counts);
        let network = observed.network(|name| match name {
            "big" => Some((Sharing::Locks(1), HandOver::Free)),
            _ => Some((Sharing::Private, HandOver::Free)),
        });
        assert_eq!(network.stations.len(), 1);
        let big = &network.stations[0];
        assert_eq!(
            (big.visits, big.hold_ns, network.delay_ns),
            (2.0, 100.0, 800.0)
        );
        assert_eq!(network.alone_ns(), 1_000.0);
        let times = observed.times(&network, big);
        assert_eq!((times.holds_ns.len(), times.think_ns), (QUANTILES, 400.0));
        assert!((times.holds_ns[7] - 100.0).abs() < 1e-9, "{times:?}");
        // Counting took half of the time.
        let slow = Observed {
            counted_operation_ns: 2_000.0,
            ..observed
        };
        let network = slow.network(|_| Some((Sharing::Locks(1), HandOver::Free)));
        assert_eq!(network.stations[0].hold_ns, 50.0);
        assert_eq!(network.alone_ns(), 1_000.0);
        // What is held for more than all the time is held for all the time.
        let short = Observed {
            counted_operation_ns: 100.0,
            operation_ns: 100.0,
            ..observed
        };
        let network = short.network(|_| Some((Sharing::Locks(1), HandOver::Free)));
        assert_eq!(network.delay_ns, 0.0);
        assert!((network.alone_ns() - 100.0).abs() < 1e-9);
        assert!(short.network(|_| None).stations.is_empty());
    }
}
