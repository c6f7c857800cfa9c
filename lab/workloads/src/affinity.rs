//! Which CPUs threads may use: what `maxcpus=` was for the published runs.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that this thread may use now, as a number.
pub fn cpus() -> usize {
    sched_getaffinity(None).map_or(1, |set| set.count() as usize)
}

/// The same CPUs by their numbers, least first; none where the system does not tell.
pub fn allowed() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect()
}

/// From now on this thread, and those that it starts, use this CPU only. False where the system
/// refuses.
pub fn bind_to(cpu: usize) -> bool {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).is_ok()
}

/// Binds the calling thread, the `thread`th, to one CPU of those that it may use, by turns: threads
/// that were started a moment ago share one CPU for as long as a short measurement lasts. Where the
/// system refuses, it runs where it may.
pub fn bind_by_turns(thread: usize) {
    let cpus = allowed();
    if let Some(cpu) = cpus.get(thread % cpus.len().max(1)) {
        bind_to(*cpu);
    }
}

/// The CPUs that a thread may use, one after the other.
pub struct Tour {
    cpus: Vec<usize>,
    next: usize,
}

impl Tour {
    /// The calling thread, the `thread`th, begins on one of them, as by [`bind_by_turns`]. `None`
    /// where there is one only, or the system refuses.
    pub fn start(thread: usize) -> Option<Tour> {
        let mut tour = Tour {
            cpus: allowed(),
            next: thread,
        };
        (tour.cpus.len() > 1 && tour.move_on()).then_some(tour)
    }

    /// Moves the calling thread to the next. False where the system refuses.
    pub fn move_on(&mut self) -> bool {
        let cpu = self.cpus[self.next % self.cpus.len()];
        self.next += 1;
        bind_to(cpu)
    }
}

/// Until it is dropped, this thread and those that it starts use only so many of its CPUs.
pub struct Limit {
    before: Option<CpuSet>,
}

impl Limit {
    /// The first `count` of the CPUs that the thread may use, or all if they are fewer. Where the
    /// system refuses, none of them is taken away and [`cpus`] tells so.
    pub fn to(count: usize) -> Limit {
        let Ok(before) = sched_getaffinity(None) else {
            return Limit { before: None };
        };
        let mut fewer = CpuSet::new();
        allowed()
            .into_iter()
            .take(count.max(1))
            .for_each(|cpu| fewer.set(cpu));
        let is_set = sched_setaffinity(None, &fewer).is_ok();
        Limit {
            before: is_set.then_some(before),
        }
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // It was allowed before; if it is no longer, fewer CPUs are what there is.
            let _ = sched_setaffinity(None, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_inherit_the_limit_and_it_ends() {
        let before = cpus();
        let limit = Limit::to(1);
        assert_eq!(std::thread::spawn(cpus).join().unwrap(), 1);
        drop(limit);
        assert_eq!(cpus(), before);
    }

    #[test]
    fn threads_are_bound_by_turns() {
        let cpu = |thread: usize| {
            let bound = std::thread::spawn(move || {
                bind_by_turns(thread);
                allowed()
            });
            bound.join().unwrap()
        };
        assert_eq!(cpu(0).len(), 1);
        assert_eq!(cpu(0), cpu(cpus()));
        assert_eq!(cpu(0) == cpu(1), cpus() == 1);
    }

    #[test]
    fn a_thread_is_bound_to_any_cpu_that_it_may_use() {
        for cpu in allowed() {
            let bound = std::thread::spawn(move || bind_to(cpu).then(allowed));
            assert_eq!(bound.join().unwrap(), Some(vec![cpu]));
        }
    }
}
