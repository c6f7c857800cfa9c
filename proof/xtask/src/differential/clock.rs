//! Times that cannot be the same on both sides, since the sides work one after the other: each step
//! leaves a window of time on each side, and two times agree when they may come from the same step.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970.
pub type Nanoseconds = i128;

/// Which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The kernel's ext4.
    Kernel,
    /// finefs.
    Finefs,
}

/// The clock that inodes' times are taken from moves so often.
const TICK_NS: Nanoseconds = 10_000_000;

/// A tick comes so late at most. The kernel's ext4 is then ahead of it: it gives finer times to
/// files whose times somebody has looked at.
const LATE_NS: Nanoseconds = 10_000_000;

/// Times of before the first window may differ by so much when both are recent.
const APART_NS: Nanoseconds = 20_000_000_000;

/// When each step ran on each side.
#[derive(Debug)]
pub struct Clock {
    /// Since when times are not exact.
    since: Nanoseconds,
    /// How coarse the times of inodes are, besides the clock's own coarseness.
    unit_ns: Nanoseconds,
    kernel: Vec<(Nanoseconds, Nanoseconds)>,
    finefs: Vec<(Nanoseconds, Nanoseconds)>,
}

/// The time now.
pub fn now() -> Nanoseconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as Nanoseconds)
}

impl Clock {
    /// A clock of a run that began at `since`, on inodes whose times have this unit.
    pub fn new(since: Nanoseconds, unit_ns: Nanoseconds) -> Self {
        let (kernel, finefs) = (Vec::new(), Vec::new());
        Self {
            since,
            unit_ns,
            kernel,
            finefs,
        }
    }

    /// Notes when a step ran.
    pub fn window(&mut self, which: Which, from: Nanoseconds) {
        let windows = match which {
            Which::Kernel => &mut self.kernel,
            Which::Finefs => &mut self.finefs,
        };
        windows.push((from, now()));
    }

    /// How many windows there are.
    pub fn windows(&self) -> usize {
        self.kernel.len()
    }

    /// True when a time is of this run, and not one that somebody set.
    pub fn is_recent(&self, time: Nanoseconds) -> bool {
        time >= self.since - TICK_NS - self.unit_ns && time <= now() + TICK_NS
    }

    /// The first and the last step that `time` may be from; none when it is from before.
    pub fn steps(&self, which: Which, time: Nanoseconds) -> Option<(usize, usize)> {
        let windows = match which {
            Which::Kernel => &self.kernel,
            Which::Finefs => &self.finefs,
        };
        let slack = TICK_NS + LATE_NS + self.unit_ns;
        // The first that ends after the time, and the last that begins before it, generously: a
        // time between two steps may be from either.
        let first = windows.partition_point(|(_, end)| *end < time);
        let last = windows
            .partition_point(|(begin, _)| begin - slack <= time)
            .checked_sub(1)?;
        (first < windows.len()).then_some((first.min(last), last.max(first)))
    }

    /// True when the kernel's `a` and finefs's `b` may be of the same moment.
    pub fn agree(&self, a: Nanoseconds, b: Nanoseconds) -> bool {
        if a == b {
            return true;
        }
        if !self.is_recent(a) || !self.is_recent(b) {
            return false;
        }
        match (self.steps(Which::Kernel, a), self.steps(Which::Finefs, b)) {
            (Some((first, last)), Some((begin, end))) => first <= end && begin <= last,
            (None, None) => (a - b).abs() < APART_NS,
            _ => {
                // One is just before the first window and the other just within it.
                let start = self.kernel.first().map_or(a, |(begin, _)| *begin);
                a.max(b) < start + 2 * TICK_NS && (a - b).abs() < APART_NS
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_agree_when_they_may_be_of_the_same_step() {
        let start = now() - 10_000_000_000;
        let mut clock = Clock::new(start, 0);
        for step in 0..20 {
            let begin = start + step * 100_000_000;
            clock.kernel.push((begin, begin + 1000));
            clock.finefs.push((begin + 2000, begin + 3000));
        }
        let of = |step: i128, more: i128| start + step * 100_000_000 + more;
        assert!(clock.agree(of(3, 500), of(3, 2500)));
        // A coarse clock shows a time of before the step.
        assert!(clock.agree(of(3, 500), of(3, -4_000_000)));
        // Its tick may come late.
        assert!(clock.agree(of(3, 500), of(3, -12_000_000)));
        assert!(!clock.agree(of(3, 500), of(2, -12_000_000)));
        assert!(!clock.agree(of(3, 500), of(4, 2500)));
        assert!(!clock.agree(of(3, 500), of(2, 2500)));
        // Times that were set must be equal.
        assert!(!clock.agree(5, 6) && clock.agree(5, 5));
    }
}
