//! A crew of threads in this process.

use crate::clock::Span;
use crate::error::{Result, WorkloadError};
use crate::plan::{Length, Plan, Watch};
use crate::targets::Target;
use crate::worker::{ABORT, MEASURE, Message, STOP, Shared, WARM_UP, Worker};
use crate::workload::{Detail, Workload};
use finefs_lockmeter::{Histogram, Snapshot, snapshot};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How often progress is told and the outside looked at.
const SLICE: Duration = Duration::from_millis(50);

/// What workers measured and counted together.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Tally<D> {
    pub operations: u64,
    /// Of each worker, by its number.
    pub operations_of_each: Vec<u64>,
    pub span: Span,
    pub cpu_seconds: f64,
    pub latencies: Option<Histogram>,
    /// What the lock meter counted during the measurement, if the plan asks for it.
    pub locks: Option<Snapshot>,
    pub detail: D,
    pub is_interrupted: bool,
    /// A worker had nothing left to do, which ended it for all.
    pub has_run_out: bool,
}

impl<D: Detail> Tally<D> {
    /// Adds another process's.
    pub(crate) fn add(&mut self, other: Tally<D>) {
        self.operations += other.operations;
        self.operations_of_each.extend(other.operations_of_each);
        self.span.join(other.span);
        self.cpu_seconds += other.cpu_seconds;
        if let (Some(all), Some(more)) = (&mut self.latencies, &other.latencies) {
            all.merge(more);
        }
        self.detail.add(other.detail);
        self.is_interrupted |= other.is_interrupted;
        self.has_run_out |= other.has_run_out;
    }
}

/// Runs the workers of these numbers. When all are ready, `gate` decides when they start.
pub(crate) fn run<W: Workload, T: Target>(
    workload: &W,
    target: &T,
    plan: &Plan,
    indices: Range<usize>,
    gate: &mut dyn FnMut() -> Result<()>,
    watch: Watch<'_>,
) -> Result<Tally<W::Detail>> {
    let shared = Shared::new(indices.len());
    let (sender, receiver) = channel();
    let mut end = End::default();
    let results = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut refused = None;
        for (slot, index) in indices.enumerate() {
            let sender = sender.clone();
            let shared = &shared;
            let work = move || {
                let mut worker = Worker::new(index, slot, plan, shared, sender);
                let outcome = workload.work(target, &mut worker);
                let measured = worker.finish(outcome.is_err());
                outcome.map(|detail| (measured, detail))
            };
            let named = std::thread::Builder::new().name(format!("worker-{index}"));
            match named.spawn_scoped(scope, work) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    let line = format!("cannot start thread {}: {error}", slot + 1);
                    refused = Some(WorkloadError::Process(line));
                    break;
                }
            }
        }
        drop(sender);
        let handles: Vec<Thread> = threads.iter().map(|t| t.thread().clone()).collect();
        let director = Director {
            shared: &shared,
            plan,
            watch,
            receiver: &receiver,
            threads: &handles,
        };
        let directed = refused.map_or_else(|| director.direct(gate), Err);
        // Whatever happened, nobody may go on waiting.
        if directed.is_err() {
            director.move_to(ABORT);
        }
        let results: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err(WorkloadError::Panicked)))
            .collect();
        end = directed?;
        Ok(results)
    })?;
    let mut tally = Tally {
        operations: 0,
        operations_of_each: Vec::new(),
        span: Span::default(),
        cpu_seconds: 0.0,
        latencies: plan.has_latencies.then(Histogram::default),
        locks: end.locks,
        detail: W::Detail::default(),
        is_interrupted: end.is_interrupted,
        has_run_out: false,
    };
    let mut cpu = Span::default();
    for (measured, detail) in first_cause(results)? {
        tally.operations += measured.operations;
        tally.has_run_out |= measured.has_run_out;
        tally.operations_of_each.push(measured.operations);
        tally.span.join(measured.span);
        cpu.join(measured.cpu);
        if let (Some(all), Some(own)) = (&mut tally.latencies, &measured.latencies) {
            all.merge(own);
        }
        tally.detail.add(detail);
    }
    tally.cpu_seconds = cpu.seconds();
    Ok(tally)
}

/// All results, or the error that made the others stop.
pub(crate) fn first_cause<T>(results: Vec<Result<T>>) -> Result<Vec<T>> {
    let mut good = Vec::new();
    let mut cause = None;
    for result in results {
        match (result, &cause) {
            (Ok(result), _) => good.push(result),
            (Err(error), None | Some(WorkloadError::Interrupted)) => cause = Some(error),
            (Err(_), Some(_)) => {}
        }
    }
    cause.map_or(Ok(good), Err)
}

/// How the measurement ended.
#[derive(Default)]
struct End {
    /// It was cut short from outside.
    is_interrupted: bool,
    locks: Option<Snapshot>,
}

/// Moves a crew through its phases.
struct Director<'a> {
    shared: &'a Shared,
    plan: &'a Plan,
    watch: Watch<'a>,
    receiver: &'a Receiver<Message>,
    threads: &'a [Thread],
}

impl Director<'_> {
    fn direct(&self, gate: &mut dyn FnMut() -> Result<()>) -> Result<End> {
        let mut ready = 0;
        while ready < self.threads.len() {
            match self.receiver.recv_timeout(SLICE) {
                Ok(Message::Ready) => ready += 1,
                Err(RecvTimeoutError::Timeout) if !self.is_stopped() => {}
                _ => {
                    self.move_to(ABORT);
                    return Ok(End {
                        is_interrupted: self.is_stopped(),
                        locks: None,
                    });
                }
            }
        }
        gate()?;
        let mut running = self.threads.len();
        if !self.plan.warm_up().is_zero() {
            self.move_to(WARM_UP);
            self.wait(&mut running, Some(self.plan.warm_up()), false);
        }
        (self.watch.measuring)(true);
        let locks_before = self.plan.has_lock_counts.then(snapshot);
        self.move_to(MEASURE);
        let time = match self.plan.length {
            Length::Seconds(seconds) => Some(Duration::from_secs_f64(seconds)),
            Length::Operations(_) => None,
        };
        self.wait(&mut running, time, true);
        let is_interrupted = self.is_stopped() && running > 0;
        // Before anybody cleans up.
        let locks = locks_before.map(|before| snapshot().since(&before));
        (self.watch.measuring)(false);
        self.move_to(STOP);
        Ok(End {
            is_interrupted,
            locks,
        })
    }

    fn is_stopped(&self) -> bool {
        self.watch.stop.load(Ordering::Relaxed)
    }

    fn move_to(&self, phase: u8) {
        self.shared.move_to(phase);
        for thread in self.threads {
            thread.unpark();
        }
    }

    /// Waits until `time` is over, or nobody works any more, or the run is stopped.
    fn wait(&self, running: &mut usize, time: Option<Duration>, is_told: bool) {
        let started = Instant::now();
        while *running > 0 && !self.is_stopped() && self.shared.phase() < STOP {
            let left = time.map(|time| time.saturating_sub(started.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return;
            }
            let slice = left.map_or(SLICE, |left| left.min(SLICE));
            match self.receiver.recv_timeout(slice) {
                Ok(Message::Ended { .. }) => *running -= 1,
                // Of the second the phase tells more.
                Ok(Message::Ready | Message::Over) => {}
                Err(RecvTimeoutError::Timeout) if is_told => self.tell(started.elapsed()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn tell(&self, elapsed: Duration) {
        let share = match self.plan.length {
            Length::Seconds(seconds) => elapsed.as_secs_f64() / seconds,
            Length::Operations(each) => {
                let all = each.saturating_mul(self.threads.len() as u64);
                self.shared.done_total() as f64 / all.max(1) as f64
            }
        };
        (self.watch.progress)(share.min(1.0));
    }
}
