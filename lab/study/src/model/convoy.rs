//! A sleeping lock that is in a convoy for a part of the time.
//!
//! In a convoy each hand-over costs what the network says; out of it the threads hardly meet, and
//! hand-overs cost nothing. The two states last for much longer than an operation, so what is got
//! through is the mean of both.

use super::{Crowd, Network};

impl Network {
    /// The share of the time, 0 to 1, in which hand-overs cost what the network says, where so much
    /// is got through by `crowd`. 1 where hand-overs make no difference.
    pub fn convoy_share(&self, crowd: Crowd, throughput_per_ns: f64) -> f64 {
        let free = self.without_hand_over().solve_on(crowd).throughput_per_ns;
        let convoy = self.solve_on(crowd).throughput_per_ns;
        if free <= convoy {
            return 1.0;
        }
        ((free - throughput_per_ns) / (free - convoy)).clamp(0.0, 1.0)
    }

    /// What `crowd` gets through, operations per nanosecond, where hand-overs cost something for
    /// this share of the time only.
    pub fn mixed_per_ns(&self, crowd: Crowd, convoy_share: f64) -> f64 {
        let free = self.without_hand_over().solve_on(crowd).throughput_per_ns;
        let convoy = self.solve_on(crowd).throughput_per_ns;
        convoy_share * convoy + (1.0 - convoy_share) * free
    }
}

#[cfg(test)]
mod tests {
    use super::super::preemption::Preemption;
    use super::super::{HandOver, Station};
    use super::*;

    #[test]
    fn the_share_is_found_again() {
        let sleeping = HandOver::Sleeping { wake_up_ns: 400.0 };
        let network = Network {
            delay_ns: 100.0,
            stations: vec![Station::new("lock", 1.0, 50.0, sleeping)],
        };
        let few_cpus = Crowd {
            threads: 8,
            cpus: 2,
            preemption: Preemption::NONE,
        };
        for crowd in [Crowd::on_cores(2), Crowd::on_cores(8), few_cpus] {
            for share in [0.0, 0.3, 1.0] {
                let mixed = network.mixed_per_ns(crowd, share);
                let found = network.convoy_share(crowd, mixed);
                assert!((found - share).abs() < 1e-9, "{crowd:?} {share} {found}");
            }
            // Better than without hand-overs, worse than with all of them.
            assert_eq!(network.convoy_share(crowd, 1.0), 0.0);
            assert_eq!(network.convoy_share(crowd, 0.0), 1.0);
        }
        let free = network.without_hand_over();
        assert_eq!(free.convoy_share(few_cpus, 0.001), 1.0);
    }
}
