//! More threads than CPUs.
//!
//! A thread that spins for a lock keeps its CPU, so that no more threads are in the network at a
//! time than there are CPUs; those without one are nowhere. What they add is that they take the CPU
//! from a holder: then the lock stands still until the holder runs again, which is after all others
//! of its CPU have had their turn and found the lock taken.
//!
//! A thread that sleeps for a lock leaves its CPU to another, so that all are in the network, and
//! work outside of locks is a station of as many servers as there are CPUs. That a holder needs one
//! of them, too, is not of that form; it is kept as a bound.

use super::preemption::Preemption;
use super::{HandOver, Network, Solution, convolution};

/// Threads, and what they run on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Crowd {
    /// Threads.
    pub threads: usize,
    /// CPUs that they share.
    pub cpus: usize,
    /// What it costs a holder to lose its CPU to another thread.
    pub preemption: Preemption,
}

impl Crowd {
    /// A thread on each of so many CPUs.
    pub fn on_cores(cores: usize) -> Crowd {
        Crowd {
            threads: cores,
            cpus: cores,
            preemption: Preemption::NONE,
        }
    }
}

impl Network {
    /// The steady state of a crowd.
    pub fn solve_on(&self, crowd: Crowd) -> Solution {
        let Crowd { threads, cpus, .. } = crowd;
        if threads <= cpus || cpus == 0 {
            return self.solve(threads.min(cpus));
        }
        let sleeps = |hand_over| matches!(hand_over, HandOver::Sleeping { .. });
        let is_sleeping = self
            .stations
            .iter()
            .any(|station| sleeps(station.hand_over));
        if is_sleeping {
            self.solve_sleeping(threads, cpus)
        } else {
            self.solve_spinning(crowd)
        }
    }

    fn solve_sleeping(&self, threads: usize, cpus: usize) -> Solution {
        let solution = convolution::solve(self, threads, cpus);
        let bound_per_ns = self.bound_per_ns(cpus);
        self.solution(
            cpus,
            solution.throughput_per_ns.min(bound_per_ns),
            solution.present,
        )
    }

    fn solve_spinning(&self, crowd: Crowd) -> Solution {
        let Crowd { threads, cpus, .. } = crowd;
        let running = self.solve(cpus);
        if running.throughput_per_ns <= 0.0 {
            return running;
        }
        let held_ns = self
            .bottleneck()
            .map_or(0.0, super::Station::demand_of_one_ns);
        let others_of_its_cpu = threads as f64 / cpus as f64 - 1.0;
        let stands_still_ns = held_ns * crowd.preemption.away_per_ns() * others_of_its_cpu;
        let cycle_ns = 1.0 / running.throughput_per_ns + stands_still_ns;
        self.solution(cpus, 1.0 / cycle_ns, running.present)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Station;
    use super::*;

    fn one_lock(hand_over: HandOver) -> Network {
        Network {
            delay_ns: 60.0,
            stations: vec![Station::new("lock", 1.0, 40.0, hand_over)],
        }
    }

    const SLEEPING: HandOver = HandOver::Sleeping { wake_up_ns: 0.0 };
    const SPINNING: HandOver = HandOver::Spinning {
        hand_over_ns: 0.0,
        line_transfer_ns: 0.0,
    };
    const PREEMPTION: Preemption = Preemption {
        slice_ns: 1_000.0,
        away_ns: 50.0,
    };

    fn crowd(threads: usize, cpus: usize, preemption: Preemption) -> Crowd {
        Crowd {
            threads,
            cpus,
            preemption,
        }
    }

    /// Threads that sleep for a lock on a few CPUs are two queues that serve each other, M/M/k and
    /// M/M/1, with a closed form: machine repairmen whose machines wait for few operators.
    #[test]
    fn sleepers_share_cpus_as_two_queues_in_a_ring_do() {
        for (threads, cpus) in [(3, 2), (8, 2), (20, 5), (64, 63)] {
            let network = Network {
                delay_ns: 100.0,
                stations: vec![Station::new("lock", 1.0, 20.0, SLEEPING)],
            };
            // weight(j): j threads at the lock.
            let mut weights = vec![1.0];
            for at_lock in 1..=threads {
                let outside: usize = threads - at_lock + 1;
                let arrivals = outside.min(cpus) as f64 / 100.0;
                weights.push(weights[at_lock - 1] * arrivals * 20.0);
            }
            let total: f64 = weights.iter().sum();
            let exact = (1.0 - weights[0] / total) / 20.0;
            let exact = exact.min(cpus as f64 / 120.0);
            let ours = network.solve_on(crowd(threads, cpus, Preemption::NONE));
            assert!(
                (ours.throughput_per_ns / exact - 1.0).abs() < 1e-9,
                "{threads} {cpus}: {ours:?} {exact}"
            );
        }
    }

    /// Without a lock there are only CPUs: M/M/k with all k of them busy.
    #[test]
    fn threads_without_locks_make_as_much_as_the_cpus() {
        let network = Network {
            delay_ns: 50.0,
            stations: vec![],
        };
        for threads in [1, 2, 3, 9] {
            let solution = network.solve_on(crowd(threads, 2, PREEMPTION));
            let expected = threads.min(2) as f64 / 50.0;
            assert!((solution.throughput_per_ns - expected).abs() < 1e-12);
        }
        assert_eq!(
            network.solve_on(crowd(3, 0, PREEMPTION)).throughput_per_ns,
            0.0
        );
    }

    #[test]
    fn no_crowd_exceeds_the_bounds() {
        for hand_over in [SLEEPING, SPINNING, HandOver::Free] {
            let network = one_lock(hand_over);
            for cpus in [1, 2, 3, 16] {
                let mut before = 0.0;
                for threads in 1..=40 {
                    let solution = network.solve_on(crowd(threads, cpus, Preemption::NONE));
                    let throughput = solution.throughput_per_ns;
                    let bound = network.bound_per_ns(threads.min(cpus));
                    assert!(throughput <= bound * (1.0 + 1e-9), "{threads} {cpus}");
                    assert!(throughput >= before * (1.0 - 1e-9), "{threads} {cpus}");
                    before = throughput;
                }
            }
        }
    }

    #[test]
    fn a_preempted_holder_stops_all_others() {
        let network = one_lock(SPINNING);
        let running = network.solve(2).throughput_per_ns;
        // 40 of 1,000 ns are held; each slice that ends inside costs a turn of the three others of
        // its CPU.
        let expected = 1.0 / (1.0 / running + 40.0 / 1_000.0 * 50.0 * 3.0);
        let crowded = network.solve_on(crowd(8, 2, PREEMPTION)).throughput_per_ns;
        assert!((crowded / expected - 1.0).abs() < 1e-9);
        // As many as CPUs have one each.
        assert_eq!(
            network.solve_on(crowd(2, 2, PREEMPTION)).throughput_per_ns,
            running
        );
        assert!(network.solve_on(crowd(4, 2, PREEMPTION)).throughput_per_ns > crowded);
    }
}
