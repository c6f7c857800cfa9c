//! A device that fails each of its requests in turn.
//!
//! A small workload runs once for every request that it makes of the device, and that request
//! fails, or it and all after it: with an error, with an error after a part of it was done, or
//! because the storage below is full. Whatever fails: nothing panics; a write or flush that failed
//! is told to somebody (no storage only if there was none at the second attempt either); data that
//! could not be written is told by the next sync too, and once; when commits have become
//! impossible, no later sync claims that all is well, and closing fails; when there only was no
//! storage, the next commit makes up for it; and what is left opens again with all that a sync
//! reported as done.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use finefs_namespace::{Error, Namespace};
use finefs_sim::{Fault, FaultDevice, FaultOn, RecordingDevice};

use super::base::{Base, open};
use super::judge::{Effort, Judge, begun, mark_synced};
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

/// One way in which a device fails.
#[derive(Clone, Copy, Debug)]
struct Way {
    on: FaultOn,
    fault: Fault,
    /// How many requests in a row.
    count: u64,
}

const fn way(on: FaultOn, fault: Fault, count: u64) -> Way {
    Way { on, fault, count }
}

/// All ways. Storage is taken before anything is written, so that a write that finds none is rare,
/// and is an error like any other.
const WAYS: &[Way] = &[
    way(FaultOn::Write, Fault::Error, 1),
    way(FaultOn::Write, Fault::Error, u64::MAX),
    way(FaultOn::Write, Fault::Short, 1),
    way(FaultOn::Write, Fault::Full, u64::MAX),
    way(FaultOn::Flush, Fault::Error, 1),
    way(FaultOn::Flush, Fault::Error, u64::MAX),
    way(FaultOn::Read, Fault::Error, 1),
    way(FaultOn::Read, Fault::Short, 1),
    way(FaultOn::Read, Fault::Error, u64::MAX),
    way(FaultOn::Reserve, Fault::Full, 1),
    way(FaultOn::Reserve, Fault::Full, 4),
    way(FaultOn::Reserve, Fault::Full, u64::MAX),
];

/// All requests in turn, in all ways; of more than `most` of one way, a sample.
pub fn judge_all(base: &Base, effort: &Effort, most: usize, seed: u64) -> Report {
    let mut sum = Report::default();
    for way in WAYS {
        let whole = Arc::new(RecordingDevice::over(base.image.clone()));
        let counting = Arc::new(FaultDevice::new(whole.clone(), way.on, u64::MAX, 1));
        run(base, &whole, counting.clone(), *way);
        let requests = counting.seen() as usize;
        let step = requests.div_ceil(most.max(1)).max(1);
        let offset = seed as usize % step;
        sum.add(in_parallel(
            (requests - offset.min(requests)).div_ceil(step),
            |index| one(base, effort, *way, (offset + index * step) as u64, seed),
        ));
    }
    sum
}

fn one(base: &Base, effort: &Effort, way: Way, first: u64, seed: u64) -> Report {
    let Way { on, fault, count } = way;
    let name = format!(
        "{} {on:?} {first} fails ({fault:?}){}",
        base.profile.name,
        match count {
            1 => "",
            u64::MAX => ", and all after it",
            _ => ", and some after it",
        }
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
    let faulty = FaultDevice::new(recording.clone(), on, first, count).failing(fault);
    let faulty = Arc::new(faulty);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        run(base, &recording, faulty.clone(), way)
    }));
    let Ok(ended) = caught else {
        return wrong("panic".to_owned());
    };
    let has_failed = faulty.seen() > first;
    // An operation that finds no storage is tried again after a commit, and may find some then.
    let is_made_up_for = on == FaultOn::Reserve && count == 1;
    if on != FaultOn::Read && has_failed && ended.errors.is_empty() && !is_made_up_for {
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
fn run(base: &Base, recording: &RecordingDevice, device: Arc<FaultDevice>, way: Way) -> Run {
    let mut model = base.model.clone();
    let mut run = Run {
        history: History::new(&model, Vec::new()),
        errors: Vec::new(),
        pretended: None,
    };
    let opened = match open(base.profile.format, device) {
        Ok(opened) => opened,
        Err(text) => {
            run.errors.push(text);
            return run;
        }
    };
    let ns = &opened.ns;
    // Commits have become impossible.
    let mut has_failed = false;
    for (number, (step, persist)) in workload().into_iter().enumerate() {
        recording.mark(begun(0, number));
        let change = step.change(ns, &model);
        let done = step.on_namespace(ns);
        // One that fails may have written some of its data, and no more.
        let known = step.on_model(&mut model);
        run.history.push(&model, change);
        let mut count = run.history.moments.len() - 1;
        if let Err(error) = &done {
            run.errors.push(format!("{step:?}: {error}"));
            count -= 1;
        } else if let Err(errors) = known {
            run.errors
                .push(format!("{step:?}: the model says {errors:?}"));
        }
        let is_data_lost = !has_failed
            && way.on == FaultOn::Write
            && matches!(step, Step::Append { .. })
            && matches!(done, Err(Error::Io(_)));
        if is_data_lost {
            sync_after_loss(ns, &mut run);
        }
        let persist = match done {
            Ok(()) => persist,
            Err(_) => Some(Persist::All),
        };
        if let Some(persist) = persist {
            match persist.on_namespace(ns) {
                Err(error) => {
                    run.errors.push(format!("{persist:?}: {error}"));
                    has_failed |= error != Error::NoSpace;
                    if is_data_lost && way.count == 1 {
                        run.pretended = Some(format!("told twice: {error}"));
                    }
                }
                Ok(()) if has_failed && persist == Persist::All => {
                    run.pretended = Some("a later sync succeeds".to_owned());
                }
                Ok(()) => {
                    let mut synced = run.history.sync(&persist);
                    synced.operations = synced.operations.min(count);
                    synced.whole = synced.whole.min(count);
                    mark_synced(recording, 0, synced);
                }
            }
        }
        if done.is_err() {
            break;
        }
    }
    close(ns, recording, way, has_failed, &mut run);
    run
}

/// A sync after data could not be written must tell of it.
fn sync_after_loss(ns: &Namespace, run: &mut Run) {
    match Persist::All.on_namespace(ns) {
        Err(error) => run.errors.push(format!("first sync: {error}")),
        Ok(()) => {
            let text = "a sync says nothing about data that could not be written";
            run.pretended = Some(text.to_owned());
        }
    }
}

/// Ends a run, and looks at what that says.
fn close(ns: &Namespace, recording: &RecordingDevice, way: Way, has_failed: bool, run: &mut Run) {
    if has_failed && ns.sync().is_ok() {
        run.pretended = Some("sync succeeds after one that failed".to_owned());
    }
    match ns.shut_down() {
        Err(error) => {
            run.errors.push(format!("closing: {error}"));
            let has_room_again = way.on == FaultOn::Reserve && way.count < u64::MAX;
            if has_room_again && ns.sync().is_err() && way.count == 1 && run.errors.len() > 1 {
                run.pretended = Some("no storage, though there was some again".to_owned());
            }
        }
        Ok(()) if has_failed => {
            run.pretended = Some("closing succeeds after a sync that failed".to_owned());
        }
        Ok(()) if run.errors.is_empty() => {
            mark_synced(recording, 0, run.history.sync(&Persist::All));
        }
        Ok(()) => {}
    }
}
