//! Exact mean value analysis for one class of customers and stations of a fixed rate.
//!
//! The arrival theorem: a customer that comes to a station of a network with n customers finds
//! there what the network with n - 1 customers has there on average. So from the empty network up,
//! customer by customer: residence from the queues of one customer fewer, throughput from the
//! residences, queues from Little's law (Reiser and Lavenberg 1980, equations 3.1 to 3.3 for one
//! chain).

use super::{Network, Solution};

/// The steady state, hand-over costs left out.
pub(super) fn solve(network: &Network, cores: usize) -> Solution {
    let mut throughput_per_ns = 0.0;
    // Threads at one lock of each class.
    let mut at_one: Vec<f64> = vec![0.0; network.stations.len()];
    for customers in 1..=cores {
        let residences: Vec<f64> = network
            .stations
            .iter()
            .zip(&at_one)
            .map(|(station, queue)| station.demand_of_one_ns() * (1.0 + queue))
            .collect();
        let at_locks: f64 = network
            .stations
            .iter()
            .zip(&residences)
            .map(|(station, residence)| residence * f64::from(station.locks.max(1)))
            .sum();
        let cycle_ns = network.delay_ns + at_locks;
        throughput_per_ns = if cycle_ns > 0.0 {
            customers as f64 / cycle_ns
        } else {
            0.0
        };
        for (queue, residence) in at_one.iter_mut().zip(&residences) {
            *queue = throughput_per_ns * residence;
        }
    }
    let present = network
        .stations
        .iter()
        .zip(&at_one)
        .map(|(station, queue)| queue * f64::from(station.locks.max(1)))
        .collect();
    network.solution(cores, throughput_per_ns, present)
}
