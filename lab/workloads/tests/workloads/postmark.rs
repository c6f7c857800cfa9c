//! PostMark at tiny size.

use crate::on_both;
use crate::support::{names, operations, run_cleanly};
use finefs_workloads::{PostMark, Target};

fn transactions_add_up<T: Target>(target: &T) {
    for unbuffered in [false, true] {
        let workload = PostMark {
            number: 20,
            transactions: 200,
            subdirectories: 3,
            unbuffered,
            ..PostMark::default()
        };
        let report = run_cleanly(&workload, target, &operations(2, 200));
        assert_eq!(report.operations, 400);
        let counts = &report.detail;
        assert_eq!(counts.created_alone, 40);
        // Files that are as large as files get, and full or empty tables, are rare.
        let data = counts.read + counts.appended;
        let names = counts.created_mixed + counts.deleted_mixed;
        assert!(
            (380..=400).contains(&data) && (380..=400).contains(&names),
            "{counts:?}"
        );
        assert_eq!(
            counts.created_alone + counts.created_mixed,
            counts.deleted_alone + counts.deleted_mixed
        );
        assert!(counts.bytes_written >= 500 * (counts.created_alone + counts.created_mixed));
        assert!(report.text().contains("Creation alone: 40 files"));
    }
}

#[test]
fn it_runs_on_both() {
    on_both!(transactions_add_up);
}

fn biases_decide<T: Target>(target: &T) {
    let workload = PostMark {
        number: 30,
        bias_read: 10,
        bias_create: -1,
        ..PostMark::default()
    };
    let counts = run_cleanly(&workload, target, &operations(1, 100)).detail;
    assert_eq!((counts.read, counts.appended), (100, 0));
    assert_eq!((counts.created_mixed, counts.deleted_mixed), (0, 0));
    let workload = PostMark {
        number: 30,
        bias_read: -1,
        bias_create: 0,
        ..PostMark::default()
    };
    let counts = run_cleanly(&workload, target, &operations(1, 100)).detail;
    // Only so many are there to delete.
    assert_eq!(
        (counts.read, counts.created_mixed, counts.deleted_mixed),
        (0, 0, 30)
    );
    assert_eq!(names(target, "."), [""; 0]);
}

#[test]
fn biases_are_heeded() {
    on_both!(biases_decide);
}
