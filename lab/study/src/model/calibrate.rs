//! One lock, whose share of an operation is not known but what waiting it causes.

use super::{HandOver, Network, Station, turning_point};

/// A program of one lock that is held for `share` of each operation, 0 to 1. An operation takes 1
/// ns alone: throughput is speed-up.
pub fn one_lock(share: f64) -> Network {
    Network {
        delay_ns: 1.0 - share,
        stations: vec![Station::new("lock", 1.0, share, HandOver::Free)],
    }
}

/// The share at which `cores` cores wait for `waiting_share` of their time; none if no lock makes
/// them wait so long.
///
/// ```
/// use finefs_study::model::calibrate::{one_lock, share_for_waiting};
/// let share = share_for_waiting(8, 0.107).unwrap();
/// assert!((one_lock(share).solve(8).waiting_share - 0.107).abs() < 1e-6);
/// ```
pub fn share_for_waiting(cores: usize, waiting_share: f64) -> Option<f64> {
    let waiting_of = |share: f64| one_lock(share).solve(cores).waiting_share;
    if !(0.0..=waiting_of(1.0)).contains(&waiting_share) {
        return None;
    }
    // Waiting grows with the share.
    let is_below = |share: f64| waiting_of(share) < waiting_share;
    Some(turning_point(0.0, 1.0, is_below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_found_again() {
        for cores in [2, 4, 8, 64] {
            for share in [0.01, 0.1, 0.5, 0.9] {
                let waiting = one_lock(share).solve(cores).waiting_share;
                let found = share_for_waiting(cores, waiting).unwrap();
                assert!((found - share).abs() < 1e-6, "{cores} {share} {found}");
            }
        }
        assert_eq!(
            share_for_waiting(4, 0.76),
            None,
            "three of four wait at most"
        );
        assert!(share_for_waiting(4, 0.0).unwrap() < 1e-6);
    }
}
