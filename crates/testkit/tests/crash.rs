//! The crash simulator finds what it is there to find. What finefs itself leaves is tried at length by
//! `xtask prove crash`.

use finefs_block::sim::Limits;
use finefs_testkit::crash::base::{Base, profile};
use finefs_testkit::crash::judge::Effort;
use finefs_testkit::crash::report::Report;
use finefs_testkit::crash::single::{Lie, judge_all};
use finefs_testkit::crash::workload::{Generator, setup};

fn judged(name: &str, lie: Lie, length: usize, count: usize) -> Report {
    let base = Base::new(profile(name).unwrap(), &setup()).unwrap();
    let generator = Generator::new(&base.model, &base.limits);
    let effort = Effort {
        limits: Limits {
            exhaustive_writes: 2,
            states: 4,
            whole_sectors: 2..4,
        },
        e2fsck_one_in: 20,
        recovery_one_in: 0,
        epochs: usize::MAX,
    };
    let workloads = generator.sample(length, count, 5);
    judge_all(&base, &workloads, &effort, lie, 5)
}

#[test]
fn a_device_that_ignores_flushes_is_found() {
    let report = judged("ext4-1k", Lie::NoFlush, 2, 6);
    assert_eq!(report.workloads, 6);
    assert!(report.violated() > 0, "{report}");
}

#[test]
fn without_a_journal_too() {
    let report = judged("ext2", Lie::NoFlush, 2, 4);
    assert!(report.violated() > 0, "{report}");
}

#[test]
fn every_short_workload_runs() {
    let base = Base::new(profile("ext4-1k").unwrap(), &setup()).unwrap();
    let generator = Generator::new(&base.model, &base.limits);
    let all = generator.all(1);
    // Every operation that can be done first, each with two to three syncs.
    assert!(all.len() > 100, "{}", all.len());
    for workload in all {
        finefs_testkit::crash::single::run(&base, &workload).unwrap();
    }
}
