//! The same network with service times that depend on the queue, by its normalizing constants
//! (Buzen 1973).
//!
//! Mean value analysis needs the probability of an idle station for such stations, by subtraction
//! from 1: near saturation no digit of it is right. Here nothing is subtracted. The constants span
//! hundreds of orders of magnitude (256 cores), so their logarithms are kept.
//!
//! A station's factor for n customers is the product of its service times with 1, 2 .. n present.
//! Work outside of locks is such a station too, of as many servers as there are CPUs: with j
//! threads at it, its service time is `delay / min(j, CPUs)`. With a CPU for each thread that is
//! the pure delay, `delay^n / n!`. The network's constants are the convolution of all factors,
//! `G(0) .. G(N)`; throughput is `G(N-1) / G(N)`; the distribution at one lock comes from its
//! factor and the constants of the network without it.

use super::{Network, Solution, Station};

/// Logarithms of a sequence's members, for 0 .. N customers.
type Logs = Vec<f64>;

/// The steady state of so many threads, of which so many at a time work outside of locks.
pub(super) fn solve(network: &Network, threads: usize, cpus: usize) -> Solution {
    if threads == 0 || cpus == 0 || network.alone_ns() <= 0.0 {
        return network.solution(0, 0.0, vec![0.0; network.stations.len()]);
    }
    let cores = threads.min(cpus);
    let delay = factors(threads, |present| {
        network.delay_ns / present.min(cpus) as f64
    });
    let of_one_lock =
        |station: &Station| factors(threads, |present| station.busy_ns(present, cores));
    let classes: Vec<Logs> = network
        .stations
        .iter()
        .map(|station| power(&of_one_lock(station), station.locks.max(1)))
        .collect();
    let all = classes
        .iter()
        .fold(delay.clone(), |sum, class| convolve(&sum, class));
    let throughput_per_ns = (all[threads - 1] - all[threads]).exp();
    let present = (0..classes.len())
        .map(|index| {
            let others = classes
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index)
                .fold(delay.clone(), |sum, (_, class)| convolve(&sum, class));
            (1..=threads)
                .map(|here| {
                    let log = classes[index][here] + others[threads - here] - all[threads];
                    here as f64 * log.exp()
                })
                .sum()
        })
        .collect();
    network.solution(cores, throughput_per_ns, present)
}

/// Products of `time(1) .. time(n)`.
fn factors(most: usize, time: impl Fn(usize) -> f64) -> Logs {
    let mut logs = vec![0.0];
    for customers in 1..=most {
        logs.push(logs[customers - 1] + time(customers).ln());
    }
    logs
}

/// `locks` factors of one kind together, by repeated squaring.
fn power(one: &Logs, locks: u32) -> Logs {
    let mut result: Logs = vec![f64::NEG_INFINITY; one.len()];
    result[0] = 0.0;
    let mut square = one.clone();
    let mut left = locks;
    while left != 0 {
        if left & 1 != 0 {
            result = convolve(&result, &square);
        }
        left >>= 1;
        if left != 0 {
            square = convolve(&square, &square);
        }
    }
    result
}

fn convolve(a: &Logs, b: &Logs) -> Logs {
    (0..a.len())
        .map(|customers| {
            let terms = (0..=customers).map(|here| a[here] + b[customers - here]);
            let largest = terms.clone().fold(f64::NEG_INFINITY, f64::max);
            if largest == f64::NEG_INFINITY {
                return largest;
            }
            largest + terms.map(|term| (term - largest).exp()).sum::<f64>().ln()
        })
        .collect()
}
