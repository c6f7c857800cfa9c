//! The crash simulator finds what it is there to find. What finefs itself leaves is tried at length
//! by `xtask prove crash`.

use crate::sized;
use finefs_sim::Limits;
use finefs_testkit::crash::base::{Base, profile};
use finefs_testkit::crash::judge::Effort;
use finefs_testkit::crash::report::Report;
use finefs_testkit::crash::single::{Lie, judge_all};
use finefs_testkit::crash::threads::{self, Shape, Work};
use finefs_testkit::crash::workload::{Generator, setup};
use finefs_testkit::crash::{faults, lies};

fn judged(name: &str, lie: Lie, length: usize, count: usize) -> Report {
    let base = Base::new(profile(name).unwrap(), &setup()).unwrap();
    let generator = Generator::new(&base.model, &base.limits);
    let effort = Effort {
        limits: Limits {
            exhaustive_writes: 2,
            states: 4,
            unit_sectors: 1,
            whole_sectors: base.profile.format.whole_sectors(),
        },
        fsck_one_in: 20,
        recovery_one_in: 0,
        epochs: usize::MAX,
    };
    let workloads = generator.sample(length, count, 5);
    judge_all(&base, &workloads, &effort, lie, 5)
}

/// A disk that leaves all between two flushes or nothing makes every commit atomic: no way of
/// writing is wrong then, so whatever the oracle objected to would be its own mistake.
#[test]
fn commits_that_are_whole_are_right() {
    let effort = Effort {
        limits: Limits {
            exhaustive_writes: 0,
            states: 0,
            unit_sectors: 1,
            whole_sectors: 2..4,
        },
        fsck_one_in: 40,
        recovery_one_in: 0,
        epochs: usize::MAX,
    };
    let usual: &[&str] = &["ext4-1k", "ext3", "ext4-clusters", "reiserfs-4k"];
    let more: &[&str] = &["ext4-4k", "ext4-upstream", "reiserfs-3.5"];
    let more = sized(&more[..0], more);
    for name in usual.iter().chain(more) {
        let base = Base::new(profile(name).unwrap(), &setup()).unwrap();
        let generator = Generator::new(&base.model, &base.limits);
        let mut workloads = sized(generator.sample(1, 30, 1), generator.all(1));
        workloads.extend(generator.sample(2, sized(15, 60), 1));
        workloads.extend(generator.sample(3, sized(10, 40), 1));
        let report = judge_all(&base, &workloads, &effort, Lie::None, 1);
        assert_eq!(report.violated(), 0, "{report} {:?}", report.examples);
        let shared = Base::new(profile(name).unwrap(), &threads::setup()).unwrap();
        for work in [Work::Anything, Work::Mail, Work::Dbench, Work::Records] {
            let shape = Shape {
                threads: 4,
                operations: 60,
                work,
            };
            let report = threads::judge_run(&shared, shape, &effort, Lie::None, 1);
            assert_eq!(report.violated(), 0, "{report} {:?}", report.examples);
        }
    }
}

#[test]
fn a_device_that_ignores_flushes_is_found() {
    for name in ["ext4-1k", "reiserfs-4k"] {
        let report = judged(name, Lie::NoFlush, 2, 6);
        assert_eq!(report.workloads, 6);
        assert!(report.violated() > 0, "{report}");
    }
}

#[test]
fn a_device_that_keeps_its_word_leaves_what_was_synced_of_reiserfs() {
    let counts = sized((3, 2), (10, 6));
    for (name, workloads) in [("reiserfs-1k", counts.0), ("reiserfs-external", counts.1)] {
        let report = judged(name, Lie::None, 2, workloads);
        assert_eq!(report.workloads, workloads as u64);
        assert_eq!(report.violated(), 0, "{report} {:?}", report.examples);
    }
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
    for workload in all.iter().step_by(sized(all.len() / 5, 1)) {
        finefs_testkit::crash::single::run(&base, workload).unwrap();
    }
}

/// A few of the requests of each kind, in each way; `xtask prove faults` tries them all.
#[test]
fn errors_are_told_and_nothing_synced_is_lost() {
    let base = Base::new(profile("ext4-1k").unwrap(), &setup()).unwrap();
    let effort = Effort {
        limits: Limits {
            exhaustive_writes: 1,
            states: 2,
            unit_sectors: 1,
            whole_sectors: base.profile.format.whole_sectors(),
        },
        fsck_one_in: 40,
        recovery_one_in: 0,
        epochs: 2,
    };
    let (most, lies_count) = sized((2, 8), (5, 20));
    let report = faults::judge_all(&base, &effort, most, 3);
    assert!(report.workloads > 8 * most as u64, "{report}");
    assert_eq!(report.violated(), 0, "{report} {:?}", report.examples);
    let report = lies::judge_all(&base, lies_count, 1);
    assert!(report.caught > 0, "{report}");
    assert_eq!(report.violated(), 0, "{report} {:?}", report.examples);
}
