//! How crews start, end, fail and clean up.

use crate::support::{memory, names, operations};
use finefs_workloads::dirops::Operation;
use finefs_workloads::{
    Crew, DirOps, FileList, InProcess, Length, LockForm, Nothing, OpenSpeed, Plan, PosixLock,
    RandRw, Result, Target, Watch, Worker, Workload, WorkloadError, run,
};
use serde::{Deserialize, Serialize};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Fails, or panics, in the worker of this number, before or in the midst of its work.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Failing {
    at: usize,
    before_start: bool,
    by_panic: bool,
}

impl Workload for Failing {
    const NAME: &'static str = "failing";
    type Detail = ();

    fn operations(&self) -> &'static str {
        "nothings"
    }

    fn prepare<T: Target>(&self, target: &T, _: &Plan, _: Watch<'_>) -> Result<()> {
        target.create_dir("left").unwrap();
        Ok(())
    }

    fn work<T: Target>(&self, _: &T, worker: &mut Worker<'_>) -> Result<()> {
        let fail = || {
            assert!(!self.by_panic, "as it shall");
            Err(WorkloadError::Wrong("as it shall".to_owned()))
        };
        if self.before_start && worker.index() == self.at {
            return fail();
        }
        worker.start()?;
        while worker.goes_on() {
            worker.done();
            if worker.index() == self.at && worker.operations() == 10 {
                return fail();
            }
        }
        Ok(())
    }

    fn clean_up<T: Target>(&self, target: &T, _: Crew) -> Result<()> {
        target.remove_dir("left").unwrap();
        Ok(())
    }
}

#[test]
fn one_failure_ends_all_and_cleans_up() {
    for (before_start, by_panic) in [(false, false), (true, false), (false, true), (true, true)] {
        let failing = Failing {
            at: 1,
            before_start,
            by_panic,
        };
        let target: InProcess = memory();
        // Without the failure this would take an hour.
        let plan = Plan::new(Crew::Threads(3), Length::Seconds(3600.0));
        let error = run(&failing, &target, &plan, Watch::nobody()).unwrap_err();
        let is_cause = match error {
            WorkloadError::Panicked => by_panic,
            WorkloadError::Wrong(_) => !by_panic,
            _ => false,
        };
        assert!(is_cause, "{failing:?}: {error}");
        assert_eq!(names(&target, "."), [""; 0]);
    }
}

#[test]
fn a_run_over_seconds_takes_that_long() {
    let mut plan = Plan::new(Crew::Threads(2), Length::Seconds(0.2));
    plan.warm_up_seconds = 0.2;
    plan.has_latencies = true;
    // On a busy machine the workers may come too late to count anything, but not always.
    for _ in 0..20 {
        let started = Instant::now();
        let report = run(&OpenSpeed::default(), &memory(), &plan, Watch::nobody()).unwrap();
        let took = started.elapsed();
        assert!(took >= Duration::from_millis(400));
        assert!(report.seconds <= took.as_secs_f64(), "{report:?}");
        assert!(report.latencies.is_some() && !report.is_interrupted);
        if report.operations > 0 {
            assert!(
                report.seconds > 0.0 && report.cpu_seconds > 0.0,
                "{report:?}"
            );
            return;
        }
    }
    panic!("nothing is ever counted");
}

#[test]
fn a_stop_from_outside_ends_the_run_and_cleans_up() {
    let stop = AtomicBool::new(false);
    let told = AtomicUsize::new(0);
    let target = memory();
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            while told.load(Ordering::Relaxed) < 2 {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
        let progress = |share: f64| {
            assert!((0.0..=1.0).contains(&share));
            told.fetch_add(1, Ordering::Relaxed);
        };
        let watch = Watch {
            stop: &stop,
            progress: &progress,
            ..Watch::nobody()
        };
        let plan = Plan::new(Crew::Threads(2), Length::Seconds(3600.0));
        run(&OpenSpeed::default(), &target, &plan, watch).unwrap()
    });
    assert!(report.is_interrupted && report.seconds < 3600.0);
    assert!(report.text().contains("interrupted"));
    assert_eq!(names(&target, "."), [""; 0]);
}

/// Stops what prepares at once; gives the target as it was left then.
fn stopped_preparing<W: Workload>(workload: &W) -> InProcess {
    let stop = AtomicBool::new(true);
    let watch = Watch {
        stop: &stop,
        ..Watch::nobody()
    };
    let target = memory();
    let plan = operations(2, 1);
    let outcome = workload.prepare(&target, &plan, watch);
    assert!(matches!(outcome, Err(WorkloadError::Interrupted)));
    let outcome = run(workload, &memory(), &plan, watch);
    assert!(matches!(outcome, Err(WorkloadError::Interrupted)));
    target
}

#[test]
fn a_stop_from_outside_ends_the_preparation() {
    let target = stopped_preparing(&OpenSpeed { files: 100 });
    assert_eq!(names(&target, "openspeed"), [""; 0]);
    let target = stopped_preparing(&FileList::default());
    assert_eq!(names(&target, "file-list"), [""; 0]);
    for form in [LockForm::Own, LockForm::Shared] {
        let target = stopped_preparing(&PosixLock { form, records: 3 });
        assert_eq!(names(&target, "posix-lock"), [""; 0]);
    }
    let target = stopped_preparing(&RandRw::default());
    assert_eq!(target.stat("randrw").unwrap().size_bytes, 0);
    let target = stopped_preparing(&DirOps::new(Operation::Mrpm));
    assert_eq!(names(&target, "dirops"), [""; 0]);
    let target = stopped_preparing(&DirOps::new(Operation::Dwom));
    assert_eq!(target.stat("dirops/file").unwrap().size_bytes, 0);
}

/// With a file made off the clock: it is there when the measurement begins, and gone only after its
/// end.
#[test]
fn it_is_told_when_the_measurement_begins_and_ends() {
    for length in [Length::Operations(3), Length::Seconds(0.05)] {
        let target = memory();
        let told = Mutex::new(Vec::new());
        let watch = Watch {
            measuring: &|is_measured| {
                let made = names(&target, "dirops/0").len();
                told.lock().unwrap().push((is_measured, made));
            },
            ..Watch::nobody()
        };
        let mut plan = Plan::new(Crew::Threads(1), length);
        plan.warm_up_seconds = 0.05;
        run(&DirOps::new(Operation::Drbl), &target, &plan, watch).unwrap();
        assert_eq!(*told.lock().unwrap(), [(true, 1), (false, 1)]);
    }
}

#[test]
fn a_run_that_has_nothing_left_to_do_says_so() {
    let early = |operation, length| {
        let load = DirOps {
            files: 50,
            pages: 50,
            ..DirOps::new(operation)
        };
        let plan = Plan::new(Crew::Threads(2), length);
        let report = run(&load, &memory(), &plan, Watch::nobody()).unwrap();
        assert_eq!(
            report.text().contains("\nended early: "),
            report.ended_early.is_some()
        );
        report.ended_early.unwrap_or_default()
    };
    let note = early(Operation::Mwul, Length::Seconds(3600.0));
    assert!(
        note.contains(" of 3600 seconds") && note.contains("--files"),
        "{note}"
    );
    let note = early(Operation::Dwtl, Length::Operations(51));
    assert!(
        note.contains("did 51 operations (") && note.ends_with("--pages"),
        "{note}"
    );
    assert_eq!(early(Operation::Mwul, Length::Operations(1)), "");
    assert_eq!(early(Operation::Drbl, Length::Seconds(0.01)), "");
}

/// That it fits is asked before it is written.
#[test]
fn what_cannot_fit_is_not_begun() {
    let target = memory();
    let plan = operations(2, 1);
    let randrw = RandRw {
        blocks: 99_999_999_999,
        ..RandRw::default()
    };
    let error = run(&randrw, &target, &plan, Watch::nobody()).unwrap_err();
    let WorkloadError::NoSpace {
        needed_bytes,
        free_bytes,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(needed_bytes, 99_999_999_999 * (16 << 10));
    assert!(
        (400 << 20..=512 << 20).contains(&free_bytes),
        "{free_bytes}"
    );
    let many = operations(100, 1);
    let error = run(
        &DirOps::new(Operation::Dwom),
        &target,
        &many,
        Watch::nobody(),
    )
    .unwrap_err();
    assert!(matches!(error, WorkloadError::NoSpace { .. }), "{error}");
    assert_eq!(names(&target, "."), [""; 0]);
    let randrw = RandRw {
        blocks: u64::MAX / 2,
        ..RandRw::default()
    };
    let error = run(&randrw, &target, &plan, Watch::nobody()).unwrap_err();
    assert!(matches!(error, WorkloadError::Parameters(_)), "{error}");
}

#[test]
fn the_seed_decides_what_is_chosen() {
    fn choices(seed: u64) -> Vec<u64> {
        #[derive(Clone, Debug, Serialize, Deserialize)]
        struct Choosing;
        #[derive(Debug, Default, Serialize, Deserialize)]
        struct Choices(Vec<u64>);
        impl finefs_workloads::Detail for Choices {
            fn add(&mut self, other: Self) {
                self.0.extend(other.0);
                self.0.sort();
            }
        }
        impl Workload for Choosing {
            const NAME: &'static str = "choosing";
            type Detail = Choices;
            fn operations(&self) -> &'static str {
                "choices"
            }
            fn work<T: Target>(&self, _: &T, worker: &mut Worker<'_>) -> Result<Choices> {
                worker.start()?;
                let mut choices = Choices::default();
                while worker.goes_on() {
                    choices.0.push(worker.rng.u64(..));
                    worker.done();
                }
                Ok(choices)
            }
            fn clean_up<T: Target>(&self, _: &T, _: Crew) -> Result<()> {
                Ok(())
            }
        }
        let plan = Plan {
            seed,
            ..operations(2, 4)
        };
        let report = run(&Choosing, &Nothing, &plan, Watch::nobody()).unwrap();
        report.detail.0
    }
    assert_eq!(choices(1), choices(1));
    assert_ne!(choices(1), choices(9));
    let mut all = choices(1);
    all.dedup();
    assert_eq!(all.len(), 8, "workers choose alike");
}

/// Four operations each take four naps at least.
#[test]
fn workers_sleep_before_each_operation() {
    let plan = Plan {
        nap: Duration::from_millis(5),
        ..operations(2, 4)
    };
    let report = run(&OpenSpeed::default(), &memory(), &plan, Watch::nobody()).unwrap();
    assert_eq!(report.operations, 8);
    assert!(report.seconds >= 0.020, "{}", report.seconds);
}

#[test]
fn plans_without_sense_are_refused() {
    for plan in [
        operations(0, 1),
        Plan::new(Crew::Processes(1), Length::Operations(1)),
        Plan::new(Crew::Threads(1), Length::Seconds(-1.0)),
        Plan::new(Crew::Threads(1), Length::Seconds(f64::NAN)),
    ] {
        let result = run(&OpenSpeed::default(), &Nothing, &plan, Watch::nobody());
        assert!(
            matches!(result, Err(WorkloadError::Parameters(_))),
            "{plan:?}"
        );
    }
}
