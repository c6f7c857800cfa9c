//! Times of operations of several kinds, kept apart.

use finefs_lockmeter::Times;

/// Adds one duration.
pub(crate) fn note(times: &mut Times, ns: u64) {
    times.min_ns = match times.total_ns {
        0 => ns,
        _ => times.min_ns.min(ns),
    };
    times.max_ns = times.max_ns.max(ns);
    times.total_ns += ns;
    times.histogram.add(ns, 1);
}

/// Nanoseconds as milliseconds.
pub(crate) fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
