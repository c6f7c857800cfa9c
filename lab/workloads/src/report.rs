//! What a run found: [`Report`], as text and as JSON.

use crate::plan::{Crew, Length, Plan};
use crate::threads::Tally;
use crate::workload::Workload;
use finefs_lockmeter::{Histogram, Snapshot};
use serde::Serialize;

/// What a run found.
#[derive(Debug, Serialize)]
#[serde(bound = "")]
pub struct Report<W: Workload> {
    /// The workload's name.
    pub workload: &'static str,
    /// Its parameters.
    pub parameters: W,
    /// What it ran on.
    pub target: String,
    /// How it ran.
    pub plan: Plan,
    /// What an operation is, in the plural.
    pub operation: &'static str,
    /// Operations of all workers together.
    pub operations: u64,
    /// Operations of each worker, by its number.
    pub operations_of_each: Vec<u64>,
    /// From the first worker's start to the last one's end.
    pub seconds: f64,
    /// Operations per second.
    pub operations_per_second: f64,
    /// CPU time meanwhile, of all processes that worked. The kernel's or another process's work for
    /// them is in it only as far as it is accounted to them.
    pub cpu_seconds: f64,
    /// How long operations took, if that was noted.
    pub latencies: Option<Latencies>,
    /// What the lock meter counted during the measurement, if the plan asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locks: Option<Snapshot>,
    /// It was ended from outside, before its time.
    pub is_interrupted: bool,
    /// A worker had nothing left to do before the time or the operations were over, which ended it
    /// for all: what was measured nevertheless, and what to raise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<String>,
    /// What the workload counted besides.
    pub detail: W::Detail,
}

/// Quantiles of how long operations took, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latencies {
    /// Half of them took at most this.
    pub median_ns: u64,
    /// 90 % of them.
    pub p90_ns: u64,
    /// 99 % of them.
    pub p99_ns: u64,
    /// 99.9 % of them.
    pub p999_ns: u64,
}

impl Latencies {
    fn of(histogram: &Histogram) -> Option<Latencies> {
        Some(Latencies {
            median_ns: histogram.quantile_ns(0.5)?,
            p90_ns: histogram.quantile_ns(0.9)?,
            p99_ns: histogram.quantile_ns(0.99)?,
            p999_ns: histogram.quantile_ns(0.999)?,
        })
    }
}

impl<W: Workload> Report<W> {
    pub(crate) fn new(workload: &W, target: String, plan: &Plan, tally: Tally<W::Detail>) -> Self {
        let seconds = tally.span.seconds();
        let ended_early = ended_early(workload, plan, &tally);
        Report {
            workload: W::NAME,
            parameters: workload.clone(),
            target,
            plan: *plan,
            operation: workload.operations(),
            operations: tally.operations,
            operations_of_each: tally.operations_of_each,
            seconds,
            operations_per_second: rate(tally.operations, seconds),
            cpu_seconds: tally.cpu_seconds,
            latencies: tally.latencies.as_ref().and_then(Latencies::of),
            locks: tally.locks,
            is_interrupted: tally.is_interrupted,
            ended_early,
            detail: tally.detail,
        }
    }

    /// The one line that every workload's report begins with or consists of, in the form that
    /// openspeed has in Red Hat's bug 519126.
    pub fn line(&self) -> String {
        format!(
            "{}: {} {operation} in {:.3} seconds ({:.1} {operation} per second).",
            self.workload,
            self.operations,
            self.seconds,
            self.operations_per_second,
            operation = self.operation,
        )
    }

    /// The whole report as text: the workload's, and lines on CPU time and latencies.
    pub fn text(&self) -> String {
        let mut text = self.parameters.describe(self);
        let each_us = self.cpu_seconds * 1e6 / self.operations.max(1) as f64;
        text.push_str(&format!(
            "\n{} on {}; {:.3} s of CPU time, {each_us:.3} us each",
            self.plan.crew, self.target, self.cpu_seconds
        ));
        if let Some(latencies) = &self.latencies {
            let us = |ns: u64| ns as f64 / 1000.0;
            text.push_str(&format!(
                "\nlatency: median {:.2} us, 90 % {:.2} us, 99 % {:.2} us, 99.9 % {:.2} us",
                us(latencies.median_ns),
                us(latencies.p90_ns),
                us(latencies.p99_ns),
                us(latencies.p999_ns)
            ));
        }
        if let Some(locks) = &self.locks {
            if let Some(contention) = locks.contention() {
                text.push_str(&format!("\nlock contention: {contention}"));
            }
            text.push_str(&format!("\n{}", locks.to_string().trim_end()));
        }
        if let Some(note) = &self.ended_early {
            text.push_str(&format!("\nended early: {note}"));
        }
        if self.is_interrupted {
            text.push_str("\ninterrupted: these numbers are of a part of the run");
        }
        text
    }
}

fn ended_early<W: Workload>(workload: &W, plan: &Plan, tally: &Tally<W::Detail>) -> Option<String> {
    if !tally.has_run_out || tally.is_interrupted {
        return None;
    }
    let seconds = tally.span.seconds();
    let least = tally.operations_of_each.iter().min().copied().unwrap_or(0);
    let done = match plan.length {
        Length::Seconds(wanted) if seconds < wanted => {
            format!("{seconds:.3} of {wanted} seconds were measured")
        }
        // A process that has nothing left to do does not end the others.
        Length::Seconds(_) if matches!(plan.crew, Crew::Processes(_)) => {
            "not every process worked to the end".to_owned()
        }
        Length::Operations(wanted) if least < wanted => {
            format!("not every worker did {wanted} operations ({least} at least)")
        }
        _ => return None,
    };
    let raise = workload.what_to_raise();
    Some(format!(
        "{done}, since then one had nothing left to do; raise {raise}"
    ))
}

/// `count` per second; 0 in no time.
pub fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}
