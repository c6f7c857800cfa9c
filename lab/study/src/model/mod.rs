//! What-if: the throughput of a program with locks on more cores than the machine has.
//!
//! # The model
//! A closed network with one class of customers, threads that run operations one after the other.
//! Part of an operation touches no shared lock: there a thread needs a CPU and nothing else. Each
//! lock class is a queueing *station*: an operation visits it some times, and holds it for some
//! time at each visit. A class of K locks that are chosen evenly is K stations with a K-th of the
//! visits each.
//!
//! A lock costs more than holding it and waiting: it has to be handed over ([`HandOver`]).
//! - Spinning: the lock's cache lines are where the lock was taken last. Of N cores that is another
//!   one N-1 times in N, and they have to come from there. With waiters it is another one for
//!   certain, and each waiter has a copy: a release takes the line that is spun on from all of
//!   them, and the next holder gets it after half of the others have read it, on average. So with
//!   `w` waiters a visit keeps the lock busy for `hold + hand-over + (w-1)/2 * line transfer`, and
//!   throughput *falls* as cores come (Boyd-Wickizer, Kaashoek, Morris, Zeldovich: "Non-scalable
//!   locks are dangerous", Linux Symposium 2012, section 3). Where a core comes back before the
//!   others have fetched the line, it has the lock again; the hand-over is then the mean over all
//!   visits, from a rehearsal ([`Network::spinning_ns`]).
//! - Sleeping in a queue: the lock goes to a thread that has to be woken first. With a waiter the
//!   lock is busy for `hold + wake-up` per visit; nobody holds it meanwhile.
//!
//! Where there are more threads than CPUs ([`Network::solve_on`]), threads that spin keep their
//! CPUs, and those that sleep do not. A holder can be preempted while others spin:
//! [`preemption::Preemption`].
//!
//! That programs slow each other down that share no lock, by memory, caches and the clocks of
//! cores, is measured apart, and all times are taken longer by it: [`Network::slowed`].
//!
//! # Assumptions
//! 1. What is touched under a lock is as near to the next holder as to the last, but for the lock's
//!    own lines. (In truth it is not. The prediction is the better case.)
//! 2. What programs lose that share nothing is the same for times inside of locks and outside, and
//!    does not grow beyond the machine's own CPUs. (In truth it does. The prediction is the better
//!    case.)
//! 3. Hold times and the times between visits vary as exponential ones do. Real ones vary less,
//!    mostly, so real queues are somewhat shorter. At the ends, one core and saturation, this plays
//!    no role.
//! 4. Every visit waits for one lock at a time. A lock that is taken under another one is counted
//!    for both, which makes the prediction the worse case.
//! 5. Each core takes a lock as often as the others, in no order.
//!
//! # Modules
//! | Module | What |
//! |---|---|
//! | `mva` | exact mean value analysis: locks that are handed over for free |
//! | `convolution` | the same network with hand-over costs, where MVA loses its digits; and with few CPUs |
//! | `crowd` | more threads than CPUs |
//! | `convoy` | a sleeping lock that is in a convoy for a part of the time |
//! | `hand_over` | a spinning lock's hand-over, from what was got through |
//! | `measured` | the network of a run, from the meter's counts |
//! | `costs` | what handing over costs on this machine |
//! | `preemption` | what it costs that a holder loses its CPU |
//! | `calibrate` | one lock, from the waiting that it causes |
//! | `work` | what keeps a CPU busy for some nanoseconds |
//! | `rehearsal` | a lock tried alone with a load's times |
//!
//! # References
//! Reiser and Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing Networks", J. ACM 27(2),
//! 1980. Buzen, "Computational Algorithms for Closed Queueing Networks with Exponential Servers",
//! CACM 16(9), 1973. Chandy and Sauer, "Computational Algorithms for Product Form Queueing
//! Networks", CACM 23(10), 1980, on the stability of either.
//!
//! ```
//! use finefs_study::model::{HandOver, Network, Station};
//! // One lock, held for half of each operation of 2 us: no number of cores makes more than twice as much.
//! let lock = Station::new("lock", 1.0, 1_000.0, HandOver::Free);
//! let network = Network { delay_ns: 1_000.0, stations: vec![lock] };
//! assert_eq!(network.solve(1).per_second().round(), 500_000.0);
//! assert!(network.solve(64).per_second() < 1_000_001.0);
//! ```

pub mod calibrate;
mod convolution;
mod convoy;
pub mod costs;
mod crowd;
mod hand_over;
pub mod measured;
mod mva;
pub mod preemption;
pub mod rehearsal;
mod work;

pub use crowd::Crowd;
use serde::Serialize;

/// What it costs to hand a lock from its holder to a waiter, beside the hold time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandOver {
    /// Nothing.
    Free,
    /// Waiters spin on a line of the lock, which has to come from where the lock was taken last.
    Spinning {
        /// From the end of a visit to the beginning of another core's, nanoseconds.
        hand_over_ns: f64,
        /// How long a cache line takes from one core to another, nanoseconds.
        line_transfer_ns: f64,
    },
    /// The first waiter is woken, if there is one.
    Sleeping {
        /// From the release until the woken thread has the lock, nanoseconds.
        wake_up_ns: f64,
    },
}

impl HandOver {
    /// What a visit costs beside the hold time, with so many threads at the lock, this one
    /// included, nanoseconds.
    fn cost_ns(self, present: usize, cores: usize) -> f64 {
        match self {
            HandOver::Free => 0.0,
            HandOver::Spinning {
                hand_over_ns,
                line_transfer_ns,
            } => match present {
                // Nobody waits: it was taken last by any of the cores.
                0 | 1 => hand_over_ns * (1.0 - 1.0 / cores.max(1) as f64),
                _ => hand_over_ns + (present - 2) as f64 / 2.0 * line_transfer_ns,
            },
            HandOver::Sleeping { wake_up_ns } => f64::from(u8::from(present > 1)) * wake_up_ns,
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

    /// How long an operation holds *one* lock of the class, nanoseconds.
    fn demand_of_one_ns(&self) -> f64 {
        self.demand_ns() / f64::from(self.locks.max(1))
    }

    /// How long an operation keeps *one* lock of the class busy with `present` threads at it,
    /// holder included, nanoseconds.
    fn busy_ns(&self, present: usize, cores: usize) -> f64 {
        let per_visit = self.hold_ns + self.hand_over.cost_ns(present, cores);
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
    /// Cores in use.
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

    /// The steady state with a thread on each of `cores` cores. Zero cores do nothing.
    pub fn solve(&self, cores: usize) -> Solution {
        let is_free = |station: &Station| station.hand_over == HandOver::Free;
        if self.stations.iter().all(is_free) {
            mva::solve(self, cores)
        } else {
            convolution::solve(self, cores, cores)
        }
    }

    /// The same network where all work takes `times` as long; handing over does not.
    pub fn slowed(&self, times: f64) -> Network {
        let mut network = self.clone();
        network.delay_ns *= times;
        for station in &mut network.stations {
            station.hold_ns *= times;
        }
        network
    }

    /// The same network with locks that are handed over for free: what queueing alone costs.
    pub fn without_hand_over(&self) -> Network {
        let mut network = self.clone();
        for station in &mut network.stations {
            station.hand_over = match station.hand_over {
                // Who waits still sleeps and leaves its CPU to others.
                HandOver::Sleeping { .. } => HandOver::Sleeping { wake_up_ns: 0.0 },
                HandOver::Spinning { .. } | HandOver::Free => HandOver::Free,
            };
        }
        network
    }

    /// The class whose locks are busiest, if any lock is held at all: it ends all scaling.
    pub fn bottleneck(&self) -> Option<&Station> {
        self.stations
            .iter()
            .filter(|station| station.demand_of_one_ns() > 0.0)
            .max_by(|a, b| a.demand_of_one_ns().total_cmp(&b.demand_of_one_ns()))
    }

    /// What throughput cannot exceed on `cores` cores, operations per nanosecond: no waiting at
    /// all, or the busiest lock always held (Denning and Buzen's asymptotic bounds, 1978).
    pub fn bound_per_ns(&self, cores: usize) -> f64 {
        let linear = cores as f64 / self.alone_ns();
        self.bottleneck().map_or(linear, |station| {
            linear.min(1.0 / station.demand_of_one_ns())
        })
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

/// Where `is_below` turns from true to false between `low` and `high`, found by halving the
/// interval.
fn turning_point(mut low: f64, mut high: f64, is_below: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if is_below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
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

    fn spinning(hand_over_ns: f64, line_transfer_ns: f64) -> HandOver {
        HandOver::Spinning {
            hand_over_ns,
            line_transfer_ns,
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
                let same = convolution::solve(&network, cores, cores).throughput_per_ns;
                assert!(close(same, exact), "{same} {exact}");
            }
        }
    }

    #[test]
    fn hand_over_costs_follow_the_birth_death_chain() {
        let spinning = spinning(9.0, 7.0);
        let sleeping = HandOver::Sleeping { wake_up_ns: 30.0 };
        for hand_over in [spinning, sleeping] {
            for cores in [1, 2, 5, 30] {
                let network = one_lock(40.0, 11.0, hand_over);
                let busy = |present: usize| 11.0 + hand_over.cost_ns(present, cores);
                let exact = repairman(40.0, cores, busy);
                let ours = network.solve(cores).throughput_per_ns;
                assert!(close(ours, exact), "{cores}: {ours} {exact}");
            }
        }
    }

    /// Very many threads that come seldom are an open stream of arrivals: M/M/1, whose queue is rho
    /// / (1 - rho).
    #[test]
    fn seldom_visits_of_many_make_an_open_queue() {
        for load in [0.1, 0.5, 0.8] {
            let threads = 200_000;
            let network = one_lock(threads as f64 / load * 10.0, 10.0, HandOver::Free);
            let solution = mva::solve(&network, threads);
            let exact = load / (1.0 - load);
            let ours = solution.present[0];
            assert!((ours / exact - 1.0).abs() < 1e-3, "{load}: {ours} {exact}");
            let residence_ns = ours / solution.throughput_per_ns;
            assert!((residence_ns / (10.0 / (1.0 - load)) - 1.0).abs() < 1e-3);
        }
    }

    #[test]
    fn all_work_is_slowed_and_no_hand_over() {
        let spinning = spinning(9.0, 7.0);
        let slow = one_lock(40.0, 11.0, spinning).slowed(1.5);
        assert_eq!((slow.delay_ns, slow.stations[0].hold_ns), (60.0, 16.5));
        assert_eq!(slow.stations[0].hand_over, spinning);
    }

    /// Two cores that always want a lock that is spun for: each visit waits for the line to come
    /// over.
    #[test]
    fn a_spinning_lock_costs_two_cores_a_transfer_a_visit() {
        let spinning = spinning(275.0, 40.0);
        let always = one_lock(1e-6, 100.0, spinning);
        assert!((always.solve(2).throughput_per_ns * 375.0 - 1.0).abs() < 1e-6);
        // Where nobody waits the line is on the other core half of the time.
        let seldom = one_lock(1e9, 100.0, spinning).stations[0].busy_ns(1, 2);
        assert_eq!(seldom, 237.5);
        assert!(close(always.solve(1).throughput_per_ns, 1.0 / 100.000_001));
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
                convolution::solve(&network, cores, cores),
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
            spinning(3.0, 2.0),
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
    fn spinning_collapses_and_sleeping_levels_off() {
        let spinning = spinning(10.0, 10.0);
        let at = |hand_over, cores: usize| one_lock(100.0, 10.0, hand_over).solve(cores);
        let peak = (1..=256).map(|cores| at(spinning, cores).throughput_per_ns);
        let peak = peak.fold(0.0, f64::max);
        assert!(
            at(spinning, 256).throughput_per_ns < 0.1 * peak,
            "a collapse"
        );
        // All of 256 cores are at the lock: a visit keeps it for 10 + 10 + 254/2*10.
        let expected = 1.0 / (10.0 + 256.0 / 2.0 * 10.0);
        assert!((at(spinning, 256).throughput_per_ns / expected - 1.0).abs() < 0.05);
        let sleeping = HandOver::Sleeping { wake_up_ns: 40.0 };
        assert!((at(sleeping, 256).throughput_per_ns / (1.0 / 50.0) - 1.0).abs() < 1e-6);
        assert!(at(sleeping, 256).waiting_share > 0.97);
    }
}
