//! Times of a run, comparable between the processes of a machine.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Nanoseconds of CLOCK_MONOTONIC, which all processes share.
pub fn now_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// CPU time of this process so far, in nanoseconds.
pub(crate) fn cpu_ns() -> u64 {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// From the first beginning to the last end of what several workers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Shown")]
pub struct Span {
    began_ns: u64,
    ended_ns: u64,
}

/// As reports show it.
#[derive(Serialize)]
struct Shown {
    began_ns: u64,
    ended_ns: u64,
    seconds: f64,
}

impl From<Span> for Shown {
    fn from(span: Span) -> Shown {
        Shown {
            began_ns: span.began_ns,
            ended_ns: span.ended_ns,
            seconds: span.seconds(),
        }
    }
}

impl Default for Span {
    /// Of nothing: any other span joined to it remains as it is.
    fn default() -> Span {
        Span {
            began_ns: u64::MAX,
            ended_ns: 0,
        }
    }
}

impl Span {
    /// Begins now, and has not ended.
    pub fn begin() -> Span {
        Span {
            began_ns: now_ns(),
            ended_ns: 0,
        }
    }

    /// Ends now.
    pub fn end(&mut self) {
        self.ended_ns = now_ns();
    }

    pub(crate) fn of(began_ns: u64, ended_ns: u64) -> Span {
        Span { began_ns, ended_ns }
    }

    /// The span that both lie in.
    pub fn join(&mut self, other: Span) {
        self.began_ns = self.began_ns.min(other.began_ns);
        self.ended_ns = self.ended_ns.max(other.ended_ns);
    }

    /// Its length; 0 for one that has not ended.
    pub fn seconds(self) -> f64 {
        self.ended_ns.saturating_sub(self.began_ns) as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_join() {
        let mut span = Span::default();
        assert_eq!(span.seconds(), 0.0);
        span.join(Span::of(2_000_000_000, 3_000_000_000));
        assert_eq!(span.seconds(), 1.0);
        span.join(Span::of(1_000_000_000, 2_500_000_000));
        span.join(Span::default());
        assert_eq!(span.seconds(), 2.0);
    }
}
