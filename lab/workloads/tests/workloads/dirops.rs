//! Each operation of dirops at tiny size.

use crate::on_both;
use crate::support::{names, operations, run_cleanly};
use finefs_workloads::dirops::Operation;
use finefs_workloads::{DirOps, InProcess, Target, Watch, WorkloadError, run};

/// Of each worker; more than there are files to unlink, rename or create, or pages.
const COUNT: u64 = 60;

fn all_operations<T: Target>(target: &T) {
    for &operation in Operation::all() {
        let workload = DirOps {
            operation,
            files: 40,
            pages: 30,
            names: 3,
        };
        let report = run_cleanly(&workload, target, &operations(2, COUNT));
        use Operation::*;
        // When one worker has used up its own, both end.
        let expected = match operation {
            Mwcl | Mwcm | Mwul | Mwum | Mwrm => 40..=80,
            Dwal | Dwtl => 30..=60,
            _ => 120..=120,
        };
        assert!(expected.contains(&report.operations), "{report:?}");
        let text = report.text();
        assert!(
            text.starts_with(&format!("{} dirops: ", operation.name())),
            "{text}"
        );
    }
}

#[test]
fn they_run_on_both() {
    on_both!(all_operations);
}

/// What creates and appends ends when there is no room any more; what needs its files beforehand
/// says what to do. Nothing is left behind by either.
#[test]
fn a_full_file_system_ends_them() {
    for operation in [Operation::Mwcl, Operation::Mwcm, Operation::Dwal] {
        let target = InProcess::memory(1 << 20).unwrap();
        let workload = DirOps {
            files: u64::MAX,
            pages: u64::MAX,
            ..DirOps::new(operation)
        };
        let report = run_cleanly(&workload, &target, &operations(2, 1 << 40));
        assert!(
            report.operations > 0 && !report.is_interrupted,
            "{report:?}"
        );
    }
    let target = InProcess::memory(1 << 20).unwrap();
    let workload = DirOps {
        files: 1 << 40,
        ..DirOps::new(Operation::Mwul)
    };
    let error = run(&workload, &target, &operations(2, 1), Watch::nobody()).unwrap_err();
    assert!(matches!(error, WorkloadError::Parameters(_)), "{error:?}");
    assert!(error.to_string().contains("--files"), "{error}");
    assert_eq!(names(&target, "."), [""; 0], "left behind");
}
