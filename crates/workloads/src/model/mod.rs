//! What-if: the throughput of a program with locks on more cores than the machine has.
//!
//! # The model
//! A closed network with one class of customers. A customer is a core that runs operations one after the
//! other. Part of an operation touches no shared lock: a *delay*, in which cores do not hinder each other.
//! Each lock class is a queueing *station*: an operation visits it some times, and holds it for some time at
//! each visit. A class of K locks that are chosen evenly is K stations with a K-th of the visits each.
//!
//! A lock that is waited for costs more than the waiting: it has to be handed over ([`HandOver`]).
//! - Spinning: each waiter holds a copy of the lock's cache line. A release takes the line from all of them,
//!   and the next holder gets it after half of the others have read it, on average. So with `w` waiters the
//!   lock is busy for `hold + w/2 * line transfer` per visit, and throughput *falls* as cores come (Boyd-Wickizer,
//!   Kaashoek, Morris, Zeldovich: "Non-scalable locks are dangerous", Linux Symposium 2012, section 3).
//! - Sleeping in a queue: the lock goes to a thread that has to be woken first. With a waiter the lock is
//!   busy for `hold + wake-up` per visit; nobody holds it meanwhile.
//!
//! # Assumptions
//! 1. Hold times do not grow with cores: what is touched under a lock is as near to the next holder as
//!    to the last. (In truth it is not. The prediction is the better case.)
//! 2. Nothing but the named locks is shared: memory bandwidth, caches and cores' clocks are without limit.
//! 3. Hold times and the times between visits vary as exponential ones do. Real ones vary less, mostly, so
//!    real queues are somewhat shorter. At the ends, one core and saturation, this plays no role.
//! 4. Every visit waits for one lock at a time. A lock that is taken under another one is counted for both,
//!    which makes the prediction the worse case.
//! 5. There are as many threads as cores, and none is preempted while it holds a lock.
//!
//! # Modules
//! | Module | What |
//! |---|---|
//! | `mva` | exact mean value analysis: locks that are handed over for free |
//! | `convolution` | the same network with hand-over costs, where MVA loses its digits |
//! | `measured` | the network of a run, from the meter's counts |
//! | `costs` | what handing over costs on this machine |
//! | `calibrate` | one lock, from the waiting that it causes |
//! | `rehearsal` | a sleeping lock tried with a load's times: whether it falls into a convoy |
//!
//! # References
//! Reiser and Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing Networks", J. ACM 27(2), 1980.
//! Buzen, "Computational Algorithms for Closed Queueing Networks with Exponential Servers", CACM 16(9), 1973.
//! Chandy and Sauer, "Computational Algorithms for Product Form Queueing Networks", CACM 23(10), 1980, on
//! the stability of either.
//!
//! ```
//! use finefs_workloads::model::{HandOver, Network, Station};
//! // One lock, held for half of each operation of 2 us: no number of cores makes more than twice as much.
//! let lock = Station::new("lock", 1.0, 1_000.0, HandOver::Free);
//! let network = Network { delay_ns: 1_000.0, stations: vec![lock] };
//! assert_eq!(network.solve(1).per_second().round(), 500_000.0);
//! assert!(network.solve(64).per_second() < 1_000_001.0);
//! ```

pub mod calibrate;
mod convolution;
pub mod costs;
pub mod measured;
mod mva;
pub mod rehearsal;

use serde::Serialize;

/// What it costs to hand a lock from its holder to a waiter, beside the hold time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandOver {
    /// Nothing.
    Free,
    /// Waiters spin on one line: half of this per waiter, nanoseconds.
    Spinning {
        /// How long a cache line takes from one core to another.
        line_transfer_ns: f64,
    },
    /// The first waiter is woken: this if there is one, nanoseconds.
    Sleeping {
        /// From the release until the woken thread runs.
        wake_up_ns: f64,
    },
}

impl HandOver {
    /// The cost of a release that leaves `waiters` behind, nanoseconds.
    fn cost_ns(self, waiters: usize) -> f64 {
        match self {
            HandOver::Free => 0.0,
            HandOver::Spinning { line_transfer_ns } => waiters as f64 / 2.0 * line_transfer_ns,
            HandOver::Sleeping { wake_up_ns } => f64::from(u8::from(waiters != 0)) * wake_up_ns,
        }
    }
}

/// The locks of one class.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Station {
    /// The class.
    pub name: String,
    /// Visits of an operation to all locks of the class.
    pub visits: f64,
    /// How long a lock is held, nanoseconds per visit.
    pub hold_ns: f64,
    /// Locks of the class, each visited as often as the others. At least 1.
    pub locks: u32,
    /// How a lock changes hands.
    pub hand_over: HandOver,
}

impl Station {
    /// A class of one lock.
    pub fn new(name: &str, visits: f64, hold_ns: f64, hand_over: HandOver) -> Station {
        Station {
            name: name.to_owned(),
            visits,
            hold_ns,
            locks: 1,
            hand_over,
        }
    }

    /// How long an operation holds locks of the class, nanoseconds.
    pub fn demand_ns(&self) -> f64 {
        self.visits * self.hold_ns
    }

    /// How long an operation keeps *one* lock of the class busy with `present` threads at it, holder
    /// included, nanoseconds.
    fn busy_ns(&self, present: usize) -> f64 {
        let per_visit = self.hold_ns + self.hand_over.cost_ns(present.saturating_sub(1));
        self.visits / f64::from(self.locks.max(1)) * per_visit
    }
}

/// A program as the model sees it: what one operation does.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Network {
    /// Time outside of all stations, nanoseconds.
    pub delay_ns: f64,
    /// The lock classes.
    pub stations: Vec<Station>,
}

/// What becomes of it on some cores.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Solution {
    /// Cores, each running one thread.
    pub cores: usize,
    /// Operations per nanosecond, of all cores.
    pub throughput_per_ns: f64,
    /// For each station: the mean number of threads that wait for or hold a lock of the class.
    pub present: Vec<f64>,
    /// The share of the cores' time that goes into waiting for locks and handing them over, 0 to 1.
    pub waiting_share: f64,
}

impl Solution {
    /// Operations a second, of all cores.
    pub fn per_second(&self) -> f64 {
        self.throughput_per_ns * 1e9
    }
}

impl Network {
    /// Time of one operation when nobody else runs, nanoseconds.
    pub fn alone_ns(&self) -> f64 {
        self.delay_ns + self.stations.iter().map(Station::demand_ns).sum::<f64>()
    }

    /// The steady state on `cores` cores. Zero cores do nothing.
    pub fn solve(&self, cores: usize) -> Solution {
        let is_free = |station: &Station| station.hand_over == HandOver::Free;
        if self.stations.iter().all(is_free) {
            mva::solve(self, cores)
        } else {
            convolution::solve(self, cores)
        }
    }

    /// The same network with locks that are handed over for free: what queueing alone costs.
    pub fn without_hand_over(&self) -> Network {
        let mut network = self.clone();
        for station in &mut network.stations {
            station.hand_over = HandOver::Free;
        }
        network
    }

    /// The class whose locks are busiest, if any lock is held at all: it ends all scaling.
    pub fn bottleneck(&self) -> Option<&Station> {
        self.stations
            .iter()
            .filter(|station| station.busy_ns(1) > 0.0)
            .max_by(|a, b| a.busy_ns(1).total_cmp(&b.busy_ns(1)))
    }

    /// What throughput cannot exceed on `cores` cores, operations per nanosecond: no waiting at all, or the
    /// busiest lock always held (Denning and Buzen's asymptotic bounds, 1978).
    pub fn bound_per_ns(&self, cores: usize) -> f64 {
        let linear = cores as f64 / self.alone_ns();
        let busiest = self.bottleneck().map_or(0.0, |station| station.busy_ns(1));
        if busiest > 0.0 {
            linear.min(1.0 / busiest)
        } else {
            linear
        }
    }

    /// The share of the time, 0 to 1, in which the locks' hand-overs cost what the network says, where so much
    /// is got through on `cores` cores: the rest of the time they cost nothing. 1 where hand-overs make no
    /// difference.
    pub fn convoy_share(&self, cores: usize, throughput_per_ns: f64) -> f64 {
        let free = self.without_hand_over().solve(cores).throughput_per_ns;
        let convoy = self.solve(cores).throughput_per_ns;
        if free <= convoy {
            return 1.0;
        }
        ((free - throughput_per_ns) / (free - convoy)).clamp(0.0, 1.0)
    }

    /// What is got through on `cores` cores, operations per nanosecond, where hand-overs cost something for
    /// this share of the time only.
    pub fn mixed_per_ns(&self, cores: usize, convoy_share: f64) -> f64 {
        let free = self.without_hand_over().solve(cores).throughput_per_ns;
        let convoy = self.solve(cores).throughput_per_ns;
        convoy_share * convoy + (1.0 - convoy_share) * free
    }

    fn solution(&self, cores: usize, throughput_per_ns: f64, present: Vec<f64>) -> Solution {
        let working = throughput_per_ns * self.alone_ns();
        Solution {
            cores,
            throughput_per_ns,
            present,
            waiting_share: (1.0 - working / cores.max(1) as f64).clamp(0.0, 1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One lock of hold `hold`, think time `think`.
    fn one_lock(think: f64, hold: f64, hand_over: HandOver) -> Network {
        Network {
            delay_ns: think,
            stations: vec![Station::new("lock", 1.0, hold, hand_over)],
        }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * b.abs().max(1e-300)
    }

    /// The machine repairman, M/M/1//N, from its birth-death chain: hold times by number present.
    fn repairman(think: f64, cores: usize, busy: impl Fn(usize) -> f64) -> f64 {
        // weight(n): n threads at the lock; arrivals at rate (N-n)/think, departures at 1/busy(n).
        let mut weights = vec![1.0];
        for present in 1..=cores {
            let arrivals = (cores - present + 1) as f64 / think;
            weights.push(weights[present - 1] * arrivals * busy(present));
        }
        let total: f64 = weights.iter().sum();
        (1..=cores)
            .map(|present| weights[present] / total / busy(present))
            .sum()
    }

    #[test]
    fn the_machine_repairman_is_exact() {
        for cores in [1, 2, 3, 8, 40] {
            for (think, hold) in [(100.0, 1.0), (10.0, 10.0), (3.0, 50.0)] {
                let network = one_lock(think, hold, HandOver::Free);
                let exact = repairman(think, cores, |_| hold);
                assert!(close(network.solve(cores).throughput_per_ns, exact));
                let same = convolution::solve(&network, cores).throughput_per_ns;
                assert!(close(same, exact), "{same} {exact}");
            }
        }
    }

    #[test]
    fn hand_over_costs_follow_the_birth_death_chain() {
        let spinning = HandOver::Spinning {
            line_transfer_ns: 7.0,
        };
        let sleeping = HandOver::Sleeping { wake_up_ns: 30.0 };
        for hand_over in [spinning, sleeping] {
            for cores in [1, 2, 5, 30] {
                let network = one_lock(40.0, 11.0, hand_over);
                let busy = |present: usize| 11.0 + hand_over.cost_ns(present - 1);
                let exact = repairman(40.0, cores, busy);
                let ours = network.solve(cores).throughput_per_ns;
                assert!(close(ours, exact), "{cores}: {ours} {exact}");
            }
        }
    }

    #[test]
    fn both_algorithms_agree_on_networks_of_several_classes() {
        let mut network = Network {
            delay_ns: 900.0,
            stations: vec![
                Station::new("one", 2.0, 13.0, HandOver::Free),
                Station::new("many", 3.0, 40.0, HandOver::Free),
                Station::new("never held", 0.0, 10.0, HandOver::Free),
            ],
        };
        network.stations[1].locks = 7;
        for cores in [0, 1, 2, 16, 64, 256] {
            let (a, b) = (
                mva::solve(&network, cores),
                convolution::solve(&network, cores),
            );
            assert!(
                close(a.throughput_per_ns, b.throughput_per_ns),
                "{a:?} {b:?}"
            );
            for (one, other) in a.present.iter().zip(&b.present) {
                assert!((one - other).abs() < 1e-6, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_class_of_many_locks_is_as_many_stations() {
        let mut together = one_lock(50.0, 20.0, HandOver::Free);
        together.stations[0].locks = 4;
        let apart = Network {
            delay_ns: 50.0,
            stations: (0..4)
                .map(|_| Station::new("quarter", 0.25, 20.0, HandOver::Free))
                .collect(),
        };
        for cores in [1, 4, 33] {
            let (one, other) = (together.solve(cores), apart.solve(cores));
            assert!(close(one.throughput_per_ns, other.throughput_per_ns));
            assert!(close(one.present[0], other.present.iter().sum()));
        }
    }

    #[test]
    fn bounds_hold_and_are_reached() {
        for hand_over in [
            HandOver::Free,
            HandOver::Spinning {
                line_transfer_ns: 2.0,
            },
            HandOver::Sleeping { wake_up_ns: 9.0 },
        ] {
            let mut network = one_lock(120.0, 15.0, hand_over);
            network
                .stations
                .push(Station::new("second", 2.0, 5.0, hand_over));
            for cores in [1, 2, 4, 8, 16, 64, 256] {
                let solution = network.solve(cores);
                let bound = network.bound_per_ns(cores);
                assert!(solution.throughput_per_ns <= bound * (1.0 + 1e-9));
                let in_the_system = solution.present.iter().sum::<f64>()
                    + solution.throughput_per_ns * network.delay_ns;
                assert!(
                    close(in_the_system, cores as f64),
                    "Little: {in_the_system}"
                );
            }
            assert!(close(network.solve(1).throughput_per_ns, 1.0 / 145.0));
            let pure = network.without_hand_over();
            assert!(pure.solve(256).throughput_per_ns > 0.999 * pure.bound_per_ns(256));
        }
        assert_eq!(one_lock(1.0, 0.0, HandOver::Free).bottleneck(), None);
    }

    #[test]
    fn the_share_of_a_convoy_is_found_again() {
        let network = one_lock(100.0, 50.0, HandOver::Sleeping { wake_up_ns: 400.0 });
        for cores in [2, 8] {
            for share in [0.0, 0.3, 1.0] {
                let mixed = network.mixed_per_ns(cores, share);
                let found = network.convoy_share(cores, mixed);
                assert!((found - share).abs() < 1e-9, "{cores} {share} {found}");
            }
            // Better than without hand-overs, worse than with all of them.
            assert_eq!(network.convoy_share(cores, 1.0), 0.0);
            assert_eq!(network.convoy_share(cores, 0.0), 1.0);
        }
        let free = network.without_hand_over();
        assert_eq!(free.convoy_share(2, 0.001), 1.0);
    }

    #[test]
    fn spinning_collapses_and_sleeping_levels_off() {
        let spinning = HandOver::Spinning {
            line_transfer_ns: 10.0,
        };
        let at = |hand_over, cores: usize| one_lock(100.0, 10.0, hand_over).solve(cores);
        let peak = (1..=256).map(|cores| at(spinning, cores).throughput_per_ns);
        let peak = peak.fold(0.0, f64::max);
        assert!(
            at(spinning, 256).throughput_per_ns < 0.1 * peak,
            "a collapse"
        );
        // All of 256 cores wait: a visit keeps the lock for 10 + 255/2*10.
        let expected = 1.0 / (10.0 + 255.0 / 2.0 * 10.0);
        assert!((at(spinning, 256).throughput_per_ns / expected - 1.0).abs() < 0.05);
        let sleeping = HandOver::Sleeping { wake_up_ns: 40.0 };
        assert!((at(sleeping, 256).throughput_per_ns / (1.0 / 50.0) - 1.0).abs() < 1e-6);
        assert!(at(sleeping, 256).waiting_share > 0.97);
    }
}
