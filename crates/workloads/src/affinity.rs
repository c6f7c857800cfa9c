//! Which CPUs threads may use: what `maxcpus=` was for the published runs.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that this thread may use now, as a number.
pub(crate) fn cpus() -> usize {
    sched_getaffinity(None).map_or(1, |set| set.count() as usize)
}

/// The same CPUs by their numbers, least first; none where the system does not tell.
pub(crate) fn allowed() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect()
}

/// From now on this thread, and those that it starts, use this CPU only. False where the system refuses.
pub(crate) fn bind_to(cpu: usize) -> bool {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).is_ok()
}

/// Until it is dropped, this thread and those that it starts use only so many of its CPUs.
pub(crate) struct Limit {
    before: Option<CpuSet>,
}

impl Limit {
    /// The first `count` of the CPUs that the thread may use, or all if they are fewer. Where the system
    /// refuses, none of them is taken away and [`cpus`] tells so.
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
    fn a_thread_is_bound_to_any_cpu_that_it_may_use() {
        for cpu in allowed() {
            let bound = std::thread::spawn(move || bind_to(cpu).then(allowed));
            assert_eq!(bound.join().unwrap(), Some(vec![cpu]));
        }
    }
}
