//! A device that fails each of its requests in turn.
//!
//! A small workload runs once for every request that it makes of the device, and that request fails, or
//! it and all after it. Whatever fails: nothing panics; a write or flush that failed is told to somebody;
//! once a sync has failed, no later one claims that all is well; and what is left opens again with all
//! that a sync reported as done.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use finefs_block::sim::{FaultDevice, FaultOn, RecordingDevice};

use super::base::{Base, open};
use super::judge::{Effort, Judge, begun, synced};
use super::oracle::History;
use super::report::{Kind, Report, Violation};
use super::single::in_parallel;
use super::step::{Persist, Step};

/// What runs: some of everything, over the tree of [`super::workload::setup`].
fn workload() -> Vec<(Step, Option<Persist>)> {
    let path = |text: &str| text.to_owned();
    let append = |at: &str, length| Step::Append {
        at: path(at),
        length,
        fill: 33,
    };
    let rename = Step::Rename {
        from: path("A/new"),
        to: path("A/foo"),
        mode: finefs_namespace::RenameMode::Replace,
    };
    let one = |at: &str| Some(Persist::One(path(at)));
    vec![
        (Step::Create(path("A/new")), None),
        (append("A/new", 5000), one("A/new")),
        (append("B/bar", 700), None),
        (rename, one("A")),
        (Step::MakeDirectory(path("dir")), None),
        (Step::Unlink(path("B/bar")), Some(Persist::All)),
        (append("A/foo", 9000), one("A/foo")),
    ]
}

/// How one run ended.
struct Run {
    history: History,
    /// What somebody was told.
    errors: Vec<String>,
    /// A sync that succeeded after one that failed.
    pretended: Option<String>,
}

/// All requests of one kind in turn, failing once or from then on.
pub fn judge_all(base: &Base, effort: &Effort, seed: u64) -> Report {
    let mut sum = Report::default();
    for on in [FaultOn::Write, FaultOn::Flush, FaultOn::Read] {
        let whole = Arc::new(RecordingDevice::over(base.image.clone()));
        let counting = Arc::new(FaultDevice::new(whole.clone(), on, u64::MAX, 1));
        run(base, &whole, counting.clone());
        let requests = counting.seen();
        for count in [1, u64::MAX] {
            sum.add(in_parallel(requests as usize, |first| {
                one(base, effort, on, first as u64, count, seed)
            }));
        }
    }
    sum
}

fn one(base: &Base, effort: &Effort, on: FaultOn, first: u64, count: u64, seed: u64) -> Report {
    let name = format!(
        "{} {on:?} {first} fails{}",
        base.profile.name,
        if count == 1 { "" } else { ", and all after it" }
    );
    let wrong = |text: String| {
        let mut report = Report {
            workloads: 1,
            ..Report::default()
        };
        let text = format!("{name}: {text}");
        let kind = Kind::Fault;
        report.violation(Violation { kind, text });
        report
    };
    let recording = Arc::new(RecordingDevice::over(base.image.clone()));
    let faulty = Arc::new(FaultDevice::new(recording.clone(), on, first, count));
    let caught = catch_unwind(AssertUnwindSafe(|| run(base, &recording, faulty.clone())));
    let Ok(ended) = caught else {
        return wrong("panic".to_owned());
    };
    let has_failed = faulty.seen() > first;
    if on != FaultOn::Read && has_failed && ended.errors.is_empty() {
        return wrong("nobody was told".to_owned());
    }
    if let Some(pretended) = ended.pretended {
        return wrong(format!("{pretended}, told before: {:?}", ended.errors));
    }
    let mut judge = match Judge::new(base, effort.clone(), seed ^ first) {
        Ok(judge) => judge,
        Err(text) => return wrong(text),
    };
    let name = format!("{name}, told: {:?}", ended.errors);
    judge.record(&recording.take_recorded(), &[ended.history], &name);
    judge.report
}

/// Runs the workload; after an operation that fails nothing more is changed, only synced.
fn run(base: &Base, recording: &RecordingDevice, device: Arc<FaultDevice>) -> Run {
    let mut model = base.model.clone();
    let mut run = Run {
        history: History::new(&model, Vec::new()),
        errors: Vec::new(),
        pretended: None,
    };
    let opened = match open(device) {
        Ok(opened) => opened,
        Err(text) => {
            run.errors.push(text);
            return run;
        }
    };
    let ns = &opened.ns;
    let mut has_failed_sync = false;
    for (number, (step, persist)) in workload().into_iter().enumerate() {
        recording.mark(begun(0, number));
        let done = step.on_namespace(ns);
        // One that fails may have written some of its data, and no more.
        let known = step.on_model(&mut model);
        run.history.push(&model);
        let mut count = run.history.synced_by(&Persist::All);
        if let Err(error) = &done {
            run.errors.push(format!("{step:?}: {error}"));
            count -= 1;
        } else if let Err(errors) = known {
            run.errors
                .push(format!("{step:?}: the model says {errors:?}"));
        }
        let persist = match done {
            Ok(()) => persist,
            Err(_) => Some(Persist::All),
        };
        if let Some(persist) = persist {
            match persist.on_namespace(ns) {
                Err(error) => {
                    run.errors.push(format!("{persist:?}: {error}"));
                    has_failed_sync = true;
                }
                Ok(()) if has_failed_sync && persist == Persist::All => {
                    run.pretended = Some("a later sync succeeds".to_owned());
                }
                Ok(()) => {
                    let synced_by = run.history.synced_by(&persist).min(count);
                    recording.mark(synced(0, synced_by));
                }
            }
        }
        if done.is_err() {
            break;
        }
    }
    if has_failed_sync && ns.sync().is_ok() {
        run.pretended = Some("sync succeeds after one that failed".to_owned());
    }
    match ns.shut_down() {
        Err(error) => run.errors.push(format!("closing: {error}")),
        Ok(()) if has_failed_sync => {
            run.pretended = Some("closing succeeds after a sync that failed".to_owned());
        }
        Ok(()) => {}
    }
    run
}
