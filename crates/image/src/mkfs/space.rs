//! Which blocks are taken while a file system is planned: a set of runs, so that a large file
//! system that is nearly empty costs nearly nothing.
//!
//! # Invariant
//! Runs do not touch: neighbours are one run.

use std::collections::BTreeMap;
use std::ops::Range;

/// The blocks of a file system that are taken.
#[derive(Clone, Debug)]
pub(super) struct Space {
    /// Start and end of each run.
    runs: BTreeMap<u64, u64>,
    first: u64,
    end: u64,
    /// Blocks that are taken together from now on.
    cluster_blocks: u64,
}

impl Space {
    /// All blocks of `blocks` are free.
    pub fn new(blocks: Range<u64>) -> Space {
        Space {
            runs: BTreeMap::new(),
            first: blocks.start,
            end: blocks.end,
            cluster_blocks: 1,
        }
    }

    /// From now on clusters are taken; what is taken of one already takes it.
    pub fn take_in_clusters(&mut self, cluster_blocks: u64) {
        self.cluster_blocks = cluster_blocks;
        for (start, end) in std::mem::take(&mut self.runs) {
            let taken = self.runs.last_key_value().map_or(0, |(_, end)| *end);
            let start = (start / cluster_blocks * cluster_blocks).max(taken);
            let end = end.next_multiple_of(cluster_blocks).min(self.end);
            if start < end {
                self.take(start, end - start);
            }
        }
    }

    /// The run that holds a block or begins last before it.
    fn run_before(&self, block: u64) -> Option<Range<u64>> {
        let (start, end) = self.runs.range(..=block).next_back()?;
        Some(*start..*end)
    }

    /// Takes `count` blocks from `start`; none of them may be taken already.
    pub fn take(&mut self, start: u64, count: u64) {
        let mut taken = start..start + count;
        debug_assert!(self.is_free(start, count), "{taken:?} is taken twice");
        if let Some(run) = self.run_before(start)
            && run.end == start
        {
            taken.start = run.start;
        }
        if let Some(end) = self.runs.remove(&taken.end) {
            taken.end = end;
        }
        self.runs.insert(taken.start, taken.end);
    }

    /// The first run that has something of `blocks`.
    fn first_taken(&self, blocks: Range<u64>) -> Option<Range<u64>> {
        if let Some(run) = self.run_before(blocks.start)
            && run.end > blocks.start
        {
            return Some(run);
        }
        let (start, end) = self.runs.range(blocks).next()?;
        Some(*start..*end)
    }

    /// Whether `count` blocks from `start` exist and are free.
    pub fn is_free(&self, start: u64, count: u64) -> bool {
        let blocks = start..start + count;
        start >= self.first && blocks.end <= self.end && self.first_taken(blocks).is_none()
    }

    /// The first place from `start` on, but before `stop`, where `count` blocks are free; `stop`
    /// itself is the one place that is looked at when it is `start`.
    pub fn find(&self, start: u64, stop: u64, count: u64) -> Option<u64> {
        let mut at = start;
        loop {
            if at + count > self.end {
                return None;
            }
            match self.first_taken(at..at + count) {
                None => return Some(at),
                Some(run) => at = run.end,
            }
            if at >= stop {
                return None;
            }
        }
    }

    /// The first free block from `goal` on, or else of all.
    pub fn next_free(&self, goal: u64) -> Option<u64> {
        let goal = if (self.first..self.end).contains(&goal) {
            goal
        } else {
            self.first
        };
        self.find(goal, self.end, 1)
            .or_else(|| self.find(self.first, goal, 1))
    }

    /// Takes the first free run from `goal` on, or else of all, but gives no more than `most`
    /// blocks; what is taken beyond is the rest of the last cluster.
    pub fn take_run(&mut self, goal: u64, most: u64) -> Option<Range<u64>> {
        let start = self.next_free(goal / self.cluster_blocks * self.cluster_blocks)?;
        let end = (start + most.next_multiple_of(self.cluster_blocks)).min(self.end);
        let end = self
            .first_taken(start..end)
            .map_or(end, |taken| taken.start);
        self.take(start, end - start);
        Some(start..end.min(start + most))
    }

    /// The parts of `blocks` that are taken, in order.
    pub fn taken(&self, blocks: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let from = self
            .run_before(blocks.start)
            .map_or(blocks.start, |run| run.start);
        self.runs
            .range(from..blocks.end)
            .map(move |(start, end)| (*start).max(blocks.start)..(*end).min(blocks.end))
            .filter(|part| part.start < part.end)
    }

    /// How many blocks of `blocks` are taken.
    pub fn count(&self, blocks: Range<u64>) -> u64 {
        self.taken(blocks).map(|part| part.end - part.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_table(
            takes in prop::collection::vec((0u64..100, 1u64..12), 0..20),
            start in 3u64..100, stop in 3u64..100, count in 1u64..20,
        ) {
            let mut space = Space::new(3..100);
            let mut table = [false; 100];
            for (from, len) in takes {
                let is_free = from >= 3 && from + len <= 100
                    && !table[from as usize..(from + len) as usize].contains(&true);
                prop_assert_eq!(space.is_free(from, len), is_free);
                if is_free {
                    space.take(from, len);
                    table[from as usize..(from + len) as usize].fill(true);
                }
            }
            let free_at = |at: u64| {
                at + count <= 100 && !table[at as usize..(at + count) as usize].contains(&true)
            };
            let found = (start..stop.max(start + 1)).find(|at| free_at(*at));
            prop_assert_eq!(space.find(start, stop, count), found);
            let next = (start..100).chain(3..start).find(|at| !table[*at as usize]);
            prop_assert_eq!(space.next_free(start), next);
            let taken = (start..stop).filter(|at| table[*at as usize]).count() as u64;
            prop_assert_eq!(space.count(start..stop.max(start)), taken);
            let before = space.count(3..100);
            if let Some(run) = space.take_run(start, count) {
                prop_assert_eq!(Some(run.start), next);
                prop_assert!(run.end - run.start <= count);
                prop_assert_eq!(space.count(3..100), before + run.end - run.start);
            }
        }
    }
}
