//! Sharing out among threads: numbers are handed out in pieces, each thread has a state of its own.

use std::sync::atomic::{AtomicU64, Ordering};

/// Calls `each` with every number below `count`, on `jobs` threads; gives the threads' states.
pub(crate) fn share<S: Send>(
    jobs: usize,
    count: u64,
    new: impl Fn() -> S + Sync,
    each: impl Fn(&mut S, u64) + Sync,
) -> Vec<S> {
    let piece = (count / (jobs as u64 * 16)).clamp(1, 64);
    let next = AtomicU64::new(0);
    let run = || {
        let mut state = new();
        loop {
            let from = next.fetch_add(piece, Ordering::Relaxed);
            if from >= count {
                return state;
            }
            for number in from..(from + piece).min(count) {
                each(&mut state, number);
            }
        }
    };
    if jobs <= 1 || count <= 1 {
        return vec![run()];
    }
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..jobs)
            .filter_map(|_| {
                let builder = std::thread::Builder::new().name("check".into());
                builder.spawn_scoped(scope, run).ok()
            })
            .collect();
        let mut states = vec![run()];
        for other in others {
            match other.join() {
                Ok(state) => states.push(state),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        states
    })
}
