//! Each operation of dirops at tiny size.

use crate::on_both;
use crate::support::{operations, run_cleanly};
use finefs_workloads::dirops::Operation;
use finefs_workloads::{DirOps, Target};

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
