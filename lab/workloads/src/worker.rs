//! [`Worker`]: one of those who work at the same time, and how they begin and end together.
//!
//! # Protocol
//! All share one word, the phase. It only grows: everybody waits; they warm up; they are measured;
//! they stop; or somebody failed, so that those who still wait must not start. Only the one who
//! runs the crew moves it, but for the last two, to which everybody may. A worker looks at it
//! before each operation, which costs a load of a line that nobody writes meanwhile.

use crate::clock::{Span, cpu_ns, now_ns};
use crate::error::{Result, WorkloadError};
use crate::plan::{Length, Plan};
use crossbeam_utils::CachePadded;
use finefs_lockmeter::Histogram;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::Sender;

pub(crate) const WAIT: u8 = 0;
pub(crate) const WARM_UP: u8 = 1;
pub(crate) const MEASURE: u8 = 2;
pub(crate) const STOP: u8 = 3;
pub(crate) const ABORT: u8 = 4;

/// What a worker tells the one who runs the crew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// It waits for the start.
    Ready,
    /// It has ended everybody's work.
    Over,
    /// It is through.
    Ended {
        /// Or has failed.
        has_failed: bool,
    },
}

/// What a crew shares.
#[derive(Debug)]
pub(crate) struct Shared {
    phase: CachePadded<AtomicU8>,
    /// Operations done, of each worker.
    done: Vec<CachePadded<AtomicU64>>,
}

impl Shared {
    pub(crate) fn new(workers: usize) -> Shared {
        Shared {
            phase: CachePadded::new(AtomicU8::new(WAIT)),
            done: (0..workers).map(|_| CachePadded::default()).collect(),
        }
    }

    pub(crate) fn move_to(&self, phase: u8) {
        self.phase.fetch_max(phase, Ordering::AcqRel);
    }

    pub(crate) fn phase(&self) -> u8 {
        self.phase.load(Ordering::Acquire)
    }

    pub(crate) fn done_total(&self) -> u64 {
        self.done
            .iter()
            .map(|done| done.load(Ordering::Relaxed))
            .sum()
    }
}

/// What a worker has measured.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub operations: u64,
    pub span: Span,
    /// The same in CPU time of the process.
    pub cpu: Span,
    pub latencies: Option<Histogram>,
    /// It had nothing left to do.
    pub has_run_out: bool,
}

/// One of the crew.
pub struct Worker<'a> {
    /// Its random numbers, from the seed and its number.
    pub rng: fastrand::Rng,
    index: usize,
    plan: &'a Plan,
    shared: &'a Shared,
    done: &'a AtomicU64,
    sender: Sender<Message>,
    phase: u8,
    operations: u64,
    operations_max: u64,
    began_ns: u64,
    cpu_began_ns: u64,
    ended: Option<(u64, u64)>,
    /// When the operation before ended, where latencies are noted.
    previous_ns: u64,
    latencies: Option<Histogram>,
    has_run_out: bool,
    is_through: bool,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        index: usize,
        slot: usize,
        plan: &'a Plan,
        shared: &'a Shared,
        sender: Sender<Message>,
    ) -> Worker<'a> {
        let mut seeds = fastrand::Rng::with_seed(plan.seed.wrapping_add(index as u64));
        Worker {
            // Neighbouring seeds would give neighbouring first numbers.
            rng: seeds.fork(),
            index,
            plan,
            shared,
            done: &shared.done[slot],
            sender,
            phase: WAIT,
            operations: 0,
            operations_max: match plan.length {
                Length::Seconds(_) => u64::MAX,
                Length::Operations(count) => count,
            },
            began_ns: 0,
            cpu_began_ns: 0,
            ended: None,
            previous_ns: 0,
            latencies: plan.has_latencies.then(Histogram::default),
            has_run_out: false,
            is_through: false,
        }
    }

    /// Its number, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// How it is run.
    pub fn plan(&self) -> &Plan {
        self.plan
    }

    /// Whether contents and counts are to be checked.
    pub fn verifies(&self) -> bool {
        self.plan.is_verified
    }

    /// True when the run shall end: for what takes long outside of [`Worker::goes_on`].
    pub fn is_stopping(&self) -> bool {
        self.shared.phase() >= STOP
    }

    /// An error when the run shall end.
    pub fn check_stop(&self) -> Result<()> {
        if self.is_stopping() {
            return Err(WorkloadError::Interrupted);
        }
        Ok(())
    }

    /// Waits until all are here. Time and operations count from now on, or from the warm-up's end.
    pub fn start(&mut self) -> Result<()> {
        let _ = self.sender.send(Message::Ready);
        while self.shared.phase() == WAIT {
            std::thread::park();
        }
        let phase = self.shared.phase();
        if phase == ABORT {
            return Err(WorkloadError::Interrupted);
        }
        // Another may have ended everybody's work before this thread woke up.
        self.phase = phase.min(MEASURE);
        self.begin();
        Ok(())
    }

    /// Lets time and operations count from now on.
    pub fn begin(&mut self) {
        self.operations = 0;
        self.began_ns = now_ns();
        self.cpu_began_ns = cpu_ns();
        self.previous_ns = self.began_ns;
        if let Some(latencies) = &mut self.latencies {
            *latencies = Histogram::default();
        }
    }

    /// Whether to do another operation. The first `false` ends the time that counts.
    #[inline]
    pub fn goes_on(&mut self) -> bool {
        let phase = self.shared.phase.load(Ordering::Relaxed);
        let is_usual = phase == self.phase && self.operations < self.operations_max;
        let goes_on = is_usual || self.changes_to(phase);
        if goes_on && !self.plan.nap.is_zero() {
            std::thread::sleep(self.plan.nap);
        }
        goes_on
    }

    #[cold]
    fn changes_to(&mut self, phase: u8) -> bool {
        if phase >= STOP || self.operations >= self.operations_max {
            self.end();
            return false;
        }
        self.phase = phase;
        self.begin();
        true
    }

    /// An operation is done.
    #[inline]
    pub fn done(&mut self) {
        self.done_many(1);
    }

    /// `count` operations are done, with one latency for all.
    #[inline]
    pub fn done_many(&mut self, count: u64) {
        self.operations += count;
        // Only this worker writes it.
        self.done.store(self.operations, Ordering::Relaxed);
        if self.latencies.is_some() {
            self.note_latency();
        }
    }

    fn note_latency(&mut self) {
        let now = now_ns();
        if let Some(latencies) = &mut self.latencies {
            latencies.add(now - self.previous_ns, 1);
        }
        self.previous_ns = now;
    }

    /// Operations done since they count.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// The time that counts ends now, if it has not ended before.
    pub fn end(&mut self) {
        if self.ended.is_none() {
            self.ended = Some((now_ns(), cpu_ns()));
        }
    }

    /// This worker has nothing left to do, so all end: what the rest would do alone is another
    /// workload.
    pub fn end_all(&mut self) {
        self.end();
        self.has_run_out = true;
        self.shared.move_to(STOP);
        let _ = self.sender.send(Message::Over);
    }

    /// Takes what was measured; `has_failed` ends everybody's work.
    pub(crate) fn finish(mut self, has_failed: bool) -> Measured {
        self.is_through = !has_failed;
        let (ended_ns, cpu_ended_ns) = self.ended.unwrap_or_else(|| (now_ns(), cpu_ns()));
        Measured {
            operations: self.operations,
            span: Span::of(self.began_ns, ended_ns),
            cpu: Span::of(self.cpu_began_ns, cpu_ended_ns),
            latencies: self.latencies.take(),
            has_run_out: self.has_run_out,
        }
    }
}

impl Drop for Worker<'_> {
    /// Also when it panics.
    fn drop(&mut self) {
        let has_failed = !self.is_through;
        if has_failed {
            self.shared.move_to(ABORT);
        }
        let _ = self.sender.send(Message::Ended { has_failed });
    }
}
