//! A device that drops each of its writes in turn, and tells nobody.
//!
//! A workload of metadata alone runs once for each of its writes. After each flush that follows the
//! dropped write the machine crashes; the image is opened, which recovers it, and read. Checksums
//! are there to notice that something is missing. They can in a new block, and in the journal,
//! whose transactions name the checksum of each copy; not where the block that should have been
//! replaced was sound itself: its old content is then shown.
//!
//! Whatever was dropped, nothing panics. And where it was a write to the log, what is shown is a
//! tree that the workload went through, or the image is said to be damaged: a transaction that is
//! not whole is never replayed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use finefs_sim::{Fault, FaultDevice, FaultOn, RecordingDevice, Request};

use super::base::{Base, open};
use super::oracle::{History, Window};
use super::report::{Kind, Report, Violation};
use super::single::in_parallel;
use super::step::{Persist, Step};
use super::tree::Tree;

/// The first bytes of every block of the log that is no copy.
const JOURNAL_MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];

fn workload() -> Vec<(Step, Persist)> {
    let path = |text: &str| text.to_owned();
    let rename = Step::Rename {
        from: path("A/new"),
        to: path("B/moved"),
        mode: finefs_namespace::RenameMode::Replace,
    };
    vec![
        (Step::Create(path("A/new")), Persist::All),
        (Step::MakeDirectory(path("dir")), Persist::All),
        (rename, Persist::All),
        (Step::Create(path("dir/deep")), Persist::All),
        (Step::Unlink(path("B/moved")), Persist::All),
    ]
}

/// All writes in turn; of more than `most`, a sample.
pub fn judge_all(base: &Base, most: usize, seed: u64) -> Report {
    let whole = Arc::new(RecordingDevice::over(base.image.clone()));
    let counting = Arc::new(FaultDevice::new(whole, FaultOn::Write, u64::MAX, 1));
    run(base, counting.clone());
    let writes = counting.seen() as usize;
    let step = writes.div_ceil(most.max(1)).max(1);
    let offset = seed as usize % step;
    in_parallel((writes - offset.min(writes)).div_ceil(step), |index| {
        one(base, (offset + index * step) as u64)
    })
}

/// Runs the workload as far as it goes.
fn run(base: &Base, device: Arc<FaultDevice>) -> Option<History> {
    let mut model = base.model.clone();
    let mut history = History::new(&model, Vec::new());
    let opened = open(base.profile.format, device).ok()?;
    for (step, persist) in workload() {
        let change = step.change(&opened.ns, &model);
        step.on_namespace(&opened.ns).ok()?;
        // It is the same workload each time.
        let _ = step.on_model(&mut model);
        history.push(&model, change);
        persist.on_namespace(&opened.ns).ok()?;
    }
    opened.ns.shut_down().ok()?;
    Some(history)
}

fn one(base: &Base, dropped: u64) -> Report {
    let mut report = Report {
        workloads: 1,
        ..Report::default()
    };
    let wrong = |report: &mut Report, text: String| {
        let text = format!("{} drops write {dropped}: {text}", base.profile.name);
        let kind = Kind::Fault;
        report.violation(Violation { kind, text });
    };
    let recording = Arc::new(RecordingDevice::over(base.image.clone()));
    let lying = FaultDevice::new(recording.clone(), FaultOn::Write, dropped, 1);
    let lying = Arc::new(lying.failing(Fault::Dropped));
    // What is in memory is right, so the workload itself does not notice.
    let ran = catch_unwind(AssertUnwindSafe(|| run(base, lying.clone())));
    let Ok(Some(history)) = ran else {
        wrong(&mut report, "the workload fails".to_owned());
        return report;
    };
    let is_log = lying
        .first_write()
        .is_some_and(|(_, data)| data.starts_with(&JOURNAL_MAGIC));
    let recorded = recording.take_recorded();
    let window = Window {
        synced: 0,
        begun: workload().len(),
        whole: 0,
        files: 0,
    };
    for (index, request) in recorded.requests.iter().enumerate() {
        if *request != Request::Flush {
            continue;
        }
        report.states += 1;
        let image = Arc::new(recorded.image_after(index + 1));
        let read =
            || open(base.profile.format, image.clone()).and_then(|opened| Tree::read(&opened));
        match catch_unwind(AssertUnwindSafe(read)) {
            Err(_) => wrong(&mut report, format!("panic after request {index}")),
            Ok(Err(_)) => report.caught += 1,
            Ok(Ok(tree)) => match history.judge(&tree, window) {
                Ok(()) => {}
                Err(difference) if is_log => {
                    let text = format!("after request {index}: {}", difference.text());
                    wrong(&mut report, text);
                }
                Err(_) => report.stale += 1,
            },
        }
    }
    report
}
