//! openspeed at tiny size.

use crate::on_both;
use crate::support::{operations, run_cleanly};
use finefs_workloads::{OpenSpeed, Target};

fn all_opens_are_counted<T: Target>(target: &T) {
    let report = run_cleanly(&OpenSpeed { files: 3 }, target, &operations(2, 50));
    assert_eq!(report.operations, 100);
    let line = report.line();
    assert!(
        line.starts_with("openspeed: 100 opens in 0.0") && line.ends_with(" opens per second)."),
        "{line}"
    );
}

#[test]
fn it_runs_on_both() {
    on_both!(all_opens_are_counted);
}
