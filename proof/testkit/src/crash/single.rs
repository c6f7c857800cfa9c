//! A workload of one thread, from the run to the verdict; and many of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use finefs_namespace::{Ino, Namespace};
use finefs_sim::{Recorded, RecordingDevice};

use super::base::{Base, Committing, Profile};
use super::judge::{Effort, Judge, begun, mark_synced};
use super::mix;
use super::oracle::History;
use super::report::{Kind, Report, Violation};
use super::step::{Persist, Step, with};
use super::workload::Workload;

/// A lie of the device, to show that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// It keeps its word.
    None,
    /// It ignores flushes.
    NoFlush,
    /// It ignores the flush just before a commit block: the barrier between data and commit.
    NoBarrierBeforeCommit,
}

/// Runs a workload on a recording device over the base.
pub fn run(base: &Base, workload: &Workload) -> Result<(Recorded, History), String> {
    let device = Arc::new(RecordingDevice::over(base.image.clone()));
    let opened = base.open(&device, Committing::default())?;
    let ns = &opened.ns;
    let mut model = base.model.clone();
    let mut history = History::new(&model, Vec::new());
    let mut held = Vec::new();
    if workload.commits_before > 0 {
        age(ns, workload.commits_before)?;
        device.take_recorded();
    }
    for (number, (step, persist)) in workload.steps.iter().enumerate() {
        if workload.keeps_open {
            hold(ns, step.path(), &mut held);
        }
        device.mark(begun(0, number));
        let change = step.change(ns, &model);
        step.on_namespace(ns)
            .map_err(|error| format!("{step:?}: {error}"))?;
        step.on_model(&mut model)
            .map_err(|errors| format!("{step:?}: {errors:?}"))?;
        history.push(&model, change);
        if let Some(persist) = persist {
            persist
                .on_namespace(ns)
                .map_err(|error| format!("{persist:?}: {error}"))?;
            mark_synced(&device, 0, history.sync(persist));
        }
    }
    for ino in held {
        ns.forget(ino, 1);
    }
    ns.shut_down().map_err(|error| error.to_string())?;
    mark_synced(&device, 0, history.sync(&Persist::All));
    drop(opened);
    Ok((device.take_recorded(), history))
}

/// Commits so often, and changes nothing in the end.
fn age(ns: &Namespace, commits: usize) -> Result<(), String> {
    for number in (0..commits).rev() {
        let permissions = if number == 0 {
            0o755
        } else {
            0o700 + number as u32 % 8
        };
        let at = "B".to_owned();
        let changed = Step::Chmod { at, permissions }.on_namespace(ns);
        let synced = changed.and_then(|()| ns.sync());
        synced.map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn hold(ns: &Namespace, path: &str, held: &mut Vec<Ino>) {
    let found = with(ns, path, |ino| ns.reference(ino).map(|_| ino));
    held.extend(found);
}

/// The record as the device would have left it, had it lied so.
fn lied(recorded: Recorded, lie: Lie, profile: &Profile) -> Recorded {
    use finefs_sim::Request;
    match lie {
        Lie::None => recorded,
        Lie::NoFlush => recorded.without_flushes(|_, _| true),
        Lie::NoBarrierBeforeCommit => recorded.without_flushes(|requests, at| {
            let next = requests[at + 1..].iter().find(|request| {
                !matches!(request, Request::WriteZeros { .. } | Request::Marker(_))
            });
            let before = requests[..at].iter().filter_map(|request| match request {
                Request::Write { data, .. } => Some(&data[..]),
                _ => None,
            });
            let block_bytes = profile.block_sectors as usize * 512;
            matches!(next, Some(Request::Write { data, .. })
                if profile.format.holds_commit_block(data, before, block_bytes))
        }),
    }
}

/// Runs and judges workloads, on as many threads as there are CPUs. The report does not depend on
/// how they share the work.
pub fn judge_all(
    base: &Base,
    workloads: &[Workload],
    effort: &Effort,
    lie: Lie,
    seed: u64,
) -> Report {
    in_parallel(workloads.len(), |index| {
        judge_one(
            base,
            &workloads[index],
            effort,
            lie,
            mix(seed ^ index as u64),
        )
    })
}

/// Calls `work` with each number below `count`; adds up the reports in order.
pub fn in_parallel(count: usize, work: impl Fn(usize) -> Report + Sync) -> Report {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut reports = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut own = Vec::new();
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= count {
                            return own;
                        }
                        own.push((index, work(index)));
                    }
                })
            })
            .collect();
        let joined = workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_default());
        joined.collect::<Vec<_>>()
    });
    reports.sort_by_key(|(index, _)| *index);
    let mut sum = Report::default();
    for (_, report) in reports {
        sum.add(report);
    }
    sum
}

fn judge_one(base: &Base, workload: &Workload, effort: &Effort, lie: Lie, seed: u64) -> Report {
    let name = format!("{} {workload:?}, seed {seed}", base.profile.name);
    let ran = run(base, workload).map(|(recorded, history)| (recorded, vec![history]));
    judge_recorded(base, effort, lie, seed, &name, ran)
}

/// Judges what crashes leave of a run that a device recorded; one that failed by itself is a
/// violation.
pub(super) fn judge_recorded(
    base: &Base,
    effort: &Effort,
    lie: Lie,
    seed: u64,
    name: &str,
    ran: Result<(Recorded, Vec<History>), String>,
) -> Report {
    let judged = ran.and_then(|(recorded, histories)| {
        let mut judge = Judge::new(base, effort.clone(), seed)?;
        judge.record(&lied(recorded, lie, &base.profile), &histories, name);
        Ok(judge.report)
    });
    judged.unwrap_or_else(|text| {
        let mut report = Report::default();
        report.violation(Violation {
            kind: Kind::Unreadable,
            text: format!("{name}\n  the workload itself failed: {text}"),
        });
        report
    })
}

#[cfg(test)]
mod tests {
    use finefs_block::BlockDevice;
    use finefs_sim::Request;

    use super::*;

    /// The indices of the flushes that are left of a record: some data and a flush, then a commit
    /// block and a flush.
    fn flushes_left(profile: &Profile, first: &[u8], commit: &[u8], lie: Lie) -> Vec<usize> {
        let device = RecordingDevice::new(vec![0; 64 << 10]);
        device.write_at(0, first).unwrap();
        device.flush().unwrap();
        device.mark(1);
        device.write_at(8192, commit).unwrap();
        device.flush().unwrap();
        device.write_at(16 << 10, &[2; 1024]).unwrap();
        let recorded = lied(device.take_recorded(), lie, profile);
        let is_flush = |at: &usize| recorded.requests[*at] == Request::Flush;
        (0..recorded.requests.len()).filter(is_flush).collect()
    }

    #[test]
    fn only_the_barrier_before_a_commit_block_is_dropped() {
        let mut ext = vec![0; 1024];
        ext[..8].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2]);
        let framed = finefs_reiser_disk::journal::frame(1024, 20, 11, &[70, 71]);
        let (mut transaction, reiser) = framed.unwrap();
        transaction.extend([7; 2048]);
        for (name, first, commit) in [
            ("ext4-1k", &[1_u8; 1024] as &[u8], &ext),
            ("reiserfs-1k", &transaction, &reiser),
        ] {
            let left = |lie| {
                flushes_left(
                    super::super::base::profile(name).unwrap(),
                    first,
                    commit,
                    lie,
                )
            };
            assert_eq!(left(Lie::None), [1, 4], "{name}");
            assert_eq!(left(Lie::NoBarrierBeforeCommit), [3], "{name}");
            assert!(left(Lie::NoFlush).is_empty(), "{name}");
        }
    }
}
