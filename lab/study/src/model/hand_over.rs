//! What a visit to a spinning lock costs beside its hold time, from what threads got through
//! together.
//!
//! Who gives the lock back and comes again soon finds it free: the others have to fetch its line
//! first. So a core visits it several times in a row, and on average a visit costs less than
//! handing it over each time would. How often it is handed over depends on the times between visits
//! and on how long a line takes, so no cost of one hand-over tells it: here it is the mean over all
//! visits.

use super::{HandOver, Network, turning_point};

/// Of the time of an operation, until a cost is found that is large enough.
const DOUBLINGS: i32 = 60;

impl Network {
    /// The same network with spinning locks whose hand-over costs so much.
    pub fn with_spinning_ns(&self, hand_over_ns: f64) -> Network {
        let mut network = self.clone();
        for station in &mut network.stations {
            if let HandOver::Spinning {
                line_transfer_ns, ..
            } = station.hand_over
            {
                station.hand_over = HandOver::Spinning {
                    hand_over_ns,
                    line_transfer_ns,
                };
            }
        }
        network
    }

    /// The hand-over cost of its spinning locks with which `cores` cores get through so much,
    /// nanoseconds; 0 where even that is too slow. `None` where no cost makes them so slow: no lock
    /// spins, or nothing is got through.
    pub fn spinning_ns(&self, cores: usize, throughput_per_ns: f64) -> Option<f64> {
        let is_too_fast = |hand_over_ns: f64| {
            let solution = self.with_spinning_ns(hand_over_ns).solve(cores);
            solution.throughput_per_ns > throughput_per_ns
        };
        // Throughput falls as hand-overs cost more.
        let mut ends = (0..DOUBLINGS).map(|doublings| self.alone_ns() * 2f64.powi(doublings));
        let end = ends.find(|end| !is_too_fast(*end))?;
        Some(turning_point(0.0, end, is_too_fast))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Station;
    use super::*;

    fn network(hand_over_ns: f64) -> Network {
        let spinning = HandOver::Spinning {
            hand_over_ns,
            line_transfer_ns: 30.0,
        };
        let free = Station::new("other", 0.5, 20.0, HandOver::Free);
        Network {
            delay_ns: 100.0,
            stations: vec![Station::new("lock", 2.0, 50.0, spinning), free],
        }
    }

    #[test]
    fn the_cost_is_found_again() {
        for cores in [2, 3, 16] {
            for cost_ns in [0.0, 5.0, 187.0, 20_000.0] {
                let throughput_per_ns = network(cost_ns).solve(cores).throughput_per_ns;
                // Whatever it was thought to cost before.
                let found_ns = network(572.0).spinning_ns(cores, throughput_per_ns);
                let error_ns = found_ns.unwrap() - cost_ns;
                assert!(
                    error_ns.abs() < 1e-6 * (1.0 + cost_ns),
                    "{cores} {cost_ns}: {found_ns:?}"
                );
            }
        }
    }

    #[test]
    fn what_no_cost_explains() {
        // More than hand-overs for free let through.
        let found_ns = network(187.0).spinning_ns(2, 1.0).unwrap();
        assert!(found_ns.abs() < 1e-6, "{found_ns}");
        assert_eq!(network(187.0).spinning_ns(2, 0.0), None);
        // One core hands nothing over.
        let slower = network(0.0).solve(1).throughput_per_ns / 2.0;
        assert_eq!(network(187.0).spinning_ns(1, slower), None);
        let free = network(187.0).without_hand_over();
        assert_eq!(free.spinning_ns(2, slower), None);
    }
}
