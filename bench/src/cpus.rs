//! Which CPU a thread runs on: without this, threads that were started a moment ago share one for as long as a
//! short measurement lasts.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Binds the calling thread, the `thread`th, to one CPU of those that it may use, by turns. Where the system
/// refuses, it runs where it may.
pub fn bind(thread: usize) {
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect();
    if let Some(cpu) = cpus.get(thread % cpus.len().max(1)) {
        let mut own = CpuSet::new();
        own.set(*cpu);
        let _ = sched_setaffinity(None, &own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_bound_by_turns() {
        let count = sched_getaffinity(None).unwrap().count() as usize;
        let cpu = |thread: usize| {
            let bound = std::thread::spawn(move || {
                bind(thread);
                sched_getaffinity(None).unwrap()
            });
            let bound = bound.join().unwrap();
            assert_eq!(bound.count(), 1);
            (0..CpuSet::MAX_CPU).find(|cpu| bound.is_set(*cpu))
        };
        assert_eq!(cpu(0), cpu(count));
        assert_eq!(cpu(0) == cpu(1), count == 1);
    }
}
