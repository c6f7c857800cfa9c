//! randrw, append, posix-lock and file-list at tiny size.

use crate::faulty::{Fault, Faulty};
use crate::on_both;
use crate::support::{memory, operations, run_cleanly};
use finefs_workloads::{
    Append, FileList, InProcess, LockForm, PosixLock, RandRw, Target, Watch, Workload,
    WorkloadError, affinity, run,
};

fn blocks_are_read_and_written<T: Target>(target: &T) {
    let randrw = RandRw {
        blocks: 16,
        block_size: 4096,
        ..RandRw::default()
    };
    let report = run_cleanly(&randrw, target, &operations(4, 100));
    let (reads, writes) = (report.detail.reads.count(), report.detail.writes.count());
    assert_eq!((report.operations, reads + writes), (400, 400));
    assert!((320..=395).contains(&reads), "{reads}");
    let text = report.text();
    assert!(
        text.contains("\n read: iops ") && text.contains("\nwrite: iops "),
        "{text}"
    );
}

fn records_are_whole<T: Target>(target: &T) {
    let append = Append {
        record_min: 24,
        record_max: 9000,
        sync_every: 10,
        depth: 1,
    };
    let report = run_cleanly(&append, target, &operations(4, 200));
    assert_eq!(report.operations, 800);
    assert!(report.detail.bytes > 800 * 24);
    let ahead = Append {
        sync_every: 0,
        depth: 7,
        ..append
    };
    let report = run_cleanly(&ahead, target, &operations(3, 200));
    assert_eq!(report.operations, 600);
}

fn locks_keep_counts<T: Target>(target: &T) {
    for form in [LockForm::Records, LockForm::Own, LockForm::Shared] {
        let locks = PosixLock { form, records: 3 };
        let report = run_cleanly(&locks, target, &operations(4, 200));
        assert_eq!(report.operations, 800);
    }
}

fn files_are_opened_and_closed<T: Target>(target: &T) {
    let list = FileList {
        files: 3,
        open: 4,
        sleep_every: 50,
        closed_elsewhere: false,
    };
    let report = run_cleanly(&list, target, &operations(2, 200));
    assert_eq!(report.operations, 400);
    assert_eq!(
        report.detail.statistics.is_some(),
        target.open_file_statistics().is_some()
    );
}

#[test]
fn they_run_on_both() {
    on_both!(blocks_are_read_and_written);
    on_both!(records_are_whole);
    on_both!(locks_keep_counts);
    on_both!(files_are_opened_and_closed);
}

#[test]
fn files_that_are_closed_on_another_cpu_are_counted_as_such() {
    if affinity::cpus() < 2 {
        eprintln!("skipped: needs two CPUs");
        return;
    }
    let list = FileList {
        open: 50,
        closed_elsewhere: true,
        ..FileList::default()
    };
    let report = run_cleanly(&list, &memory(), &operations(1, 200));
    let found = report.detail.statistics.unwrap();
    assert_eq!((found.removals, found.removals_on_cpu), (200, 0));
}

#[test]
fn the_list_of_open_files_tells() {
    let report = run_cleanly(&FileList::default(), &memory(), &operations(1, 100));
    let found = report.detail.statistics.unwrap();
    // All that were opened, and what a worker has open is closed at its end.
    assert_eq!(found.removals, 100);
    assert!(found.removals_on_cpu <= found.removals_on_node && found.removals_on_node <= 100);
    assert!(
        report.text().contains("\nlocks=100 cpu-hits="),
        "{}",
        report.text()
    );
}

/// What the target does wrong is found.
fn is_found<W: Workload + std::fmt::Debug>(
    workload: &W,
    fault: Fault,
    threads: usize,
    expected: &str,
) {
    let target = Faulty::new(memory(), fault);
    let plan = operations(threads, 2000);
    let error = run(workload, &target, &plan, Watch::nobody()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(expected), "{fault:?}: {text}");
}

/// Of many records, read in pieces at the end.
#[test]
fn as_many_records_are_locked_as_can_be_added_up() {
    let form = LockForm::Records;
    let many = PosixLock {
        form,
        records: (1 << 18) + 7,
    };
    run_cleanly(&many, &memory(), &operations(2, 2000));
    for records in [0, 1 << 61] {
        let locks = PosixLock { form, records };
        let error = run(&locks, &memory(), &operations(1, 1), Watch::nobody());
        assert!(
            matches!(error, Err(WorkloadError::Parameters(_))),
            "{error:?}"
        );
    }
}

#[test]
fn a_file_without_room_for_more_is_begun_anew() {
    let small = || InProcess::memory(4 << 20).unwrap();
    let report = run_cleanly(&Append::default(), &small(), &operations(2, 2000));
    // 4,128 bytes each, on average.
    assert_eq!(report.operations, 4000);
    assert!(report.detail.begun_anew >= 3, "{report:?}");
    assert!(report.text().contains("\nno room: "), "{}", report.text());
    let lost = Faulty::new(small(), Fault::Lost);
    let error = run(
        &Append::default(),
        &lost,
        &operations(1, 2000),
        Watch::nobody(),
    );
    let text = error.unwrap_err().to_string();
    assert!(text.contains(": record "), "{text}");
    let large = Append {
        record_min: 8 << 20,
        record_max: 8 << 20,
        ..Append::default()
    };
    let report = run_cleanly(&large, &small(), &operations(1, 10));
    assert_eq!(report.operations, 0);
    let note = report.ended_early.unwrap();
    assert!(
        note.ends_with("even for the first records of a file"),
        "{note}"
    );
}

#[test]
fn contents_and_counts_are_checked() {
    let randrw = RandRw {
        blocks: 16,
        block_size: 4096,
        ..RandRw::default()
    };
    is_found(&randrw, Fault::Misplaced, 1, "has something else at byte 0");
    is_found(&Append::default(), Fault::Torn, 1, "no whole record");
    is_found(&Append::default(), Fault::Lost, 1, ": record ");
    let locks = PosixLock {
        form: LockForm::Shared,
        records: 1,
    };
    is_found(&locks, Fault::Unlocked, 4, "but were counted up");
}
