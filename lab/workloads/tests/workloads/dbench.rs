//! dbench at tiny size, with a load file of our own.

use crate::on_both;
use crate::support::{memory, names, operations, run_cleanly};
use finefs_workloads::dbench::{OperationKind, run_dual};
use finefs_workloads::{Dbench, Target, Watch, run};
use std::io::Write;
use tempfile::NamedTempFile;

/// Every operation, with both statuses where there are two.
const LOAD: &str = r#"
# made for this test
Deltree "\clients\client1" NT_STATUS_OK
Mkdir "\clients" NT_STATUS_OK
NTCreateX "\clients\client1" 0x1 0x2 1 NT_STATUS_OK
Close 1 NT_STATUS_OK
NTCreateX "\clients\client1\none" 0x40 0x1 2 NT_STATUS_OBJECT_NAME_NOT_FOUND
NTCreateX "\clients\client1\a file" 0x40 0x2 3 NT_STATUS_OK
WriteX 3 5000 1 1 NT_STATUS_OK
WriteX 3 0 100 100 NT_STATUS_OK
ReadX 3 0 4096 4096 NT_STATUS_OK
ReadX 3 4096 4096 905 NT_STATUS_OK
QUERY_FILE_INFORMATION 3 258 NT_STATUS_OK
SET_FILE_INFORMATION 3 1004 NT_STATUS_OK
LockX 3 2147483538 1 NT_STATUS_OK
UnlockX 3 2147483538 1 NT_STATUS_OK
Flush 3 NT_STATUS_OK
QUERY_PATH_INFORMATION "\clients\client1\A FILE" 1004 NT_STATUS_OK
QUERY_FS_INFORMATION 1 NT_STATUS_OK
FIND_FIRST "\clients\client1\*" 260 1366 1 NT_STATUS_OK
FIND_FIRST "\clients\client1\no*" 260 1 0 NT_STATUS_NO_SUCH_FILE
Rename "\clients\client1\a file" "\clients\client1\b" NT_STATUS_OK
Rename "\clients\client1\a file" "\clients\client1\c" NT_STATUS_OBJECT_NAME_NOT_FOUND
Close 3 NT_STATUS_OK
Unlink "\clients\client1\a file" 0x16 NT_STATUS_OBJECT_NAME_NOT_FOUND
NTCreateX "\clients\client1\b" 0x40 0x5 4 NT_STATUS_OK
ReadX 4 0 10 0 NT_STATUS_OK
Close 4 NT_STATUS_OK
Unlink "\clients\client1\b" 0x16 NT_STATUS_OK
Mkdir "\clients\client1\d" NT_STATUS_OK
NTCreateX "\clients\client1\d" 0x0 0x1 5 NT_STATUS_OK
Close 5 NT_STATUS_OK
Rmdir "\clients\client1\d" NT_STATUS_OK
0.001 NTCreateX "\clients\client1\left open" 0x40 0x2 6 NT_STATUS_OK
"#;

const LINES: u64 = 32;
/// Of the reads and writes, as they are asked for.
const BYTES: u64 = 1 + 100 + 4096 + 4096 + 10;

fn load(text: &str) -> (NamedTempFile, Dbench) {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let dbench = Dbench::new(file.path());
    (file, dbench)
}

fn all_is_replayed<T: Target>(target: &T) {
    let (_file, mut dbench) = load(LOAD);
    for parse_as_it_runs in [false, true] {
        dbench.parse_as_it_runs = parse_as_it_runs;
        replay_all(&dbench, target);
    }
}

fn replay_all<T: Target>(dbench: &Dbench, target: &T) {
    let report = run_cleanly(dbench, target, &operations(3, 2 * LINES));
    assert_eq!(report.operations, 6 * LINES);
    assert_eq!(report.detail.bytes, 6 * BYTES);
    let count = |kind| report.detail.operations[&kind].count();
    assert_eq!(count(OperationKind::NTCreateX), 36);
    assert_eq!(report.detail.operations.len(), 17, "{report:?}");
    let text = report.text();
    assert!(text.contains(" Find                  12 "), "{text}");
    assert!(
        text.contains(" MB/sec  3 clients  1 procs  max_latency="),
        "{text}"
    );
}

#[test]
fn it_runs_on_both() {
    on_both!(all_is_replayed);
}

/// Each of these is refused, with client and line.
#[test]
fn what_is_not_as_recorded_fails() {
    let make = r#"NTCreateX "\clients\client1" 0x1 0x2 1 NT_STATUS_OK
NTCreateX "\clients\client1\a" 0x40 0x2 2 NT_STATUS_OK
"#;
    for (line, expected) in [
        (
            r#"NTCreateX "\clients\client1\a" 0x40 0x1 3 NT_STATUS_NO"#,
            "open clients/client1/a succeeded",
        ),
        (
            r#"NTCreateX "\clients\client1\b" 0x40 0x1 3 NT_STATUS_OK"#,
            "open clients/client1/b: ",
        ),
        (
            r#"Unlink "\clients\client1\b" 0x16 NT_STATUS_OK"#,
            "unlink clients/client1/b: ",
        ),
        (
            r#"Rmdir "\clients\client1" NT_STATUS_OK"#,
            "rmdir clients/client1: ",
        ),
        ("ReadX 2 0 10 10 NT_STATUS_OK", "0 bytes instead of 10"),
        ("Close 3 NT_STATUS_OK", "handle 3 is not open"),
    ] {
        let (_file, dbench) = load(&format!("{make}{line}\n"));
        let target = memory();
        let error = run(&dbench, &target, &operations(1, 3), Watch::nobody()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("client 1, line 3, ") && text.contains(expected),
            "{text}"
        );
        assert_eq!(names(&target, "."), [""; 0]);
    }
}

/// Another client's data in a file is noticed.
#[test]
fn contents_are_checked() {
    // Both clients use one file: the name says nothing of a client.
    let (_file, dbench) = load(
        r#"NTCreateX "\clients\shared" 0x40 0x2 1 NT_STATUS_OK
WriteX 1 0 100 100 NT_STATUS_OK
Close 1 NT_STATUS_OK
NTCreateX "\clients\shared" 0x40 0x1 1 NT_STATUS_OK
ReadX 1 0 100 100 NT_STATUS_OK
Close 1 NT_STATUS_OK
"#,
    );
    run_cleanly(&dbench, &memory(), &operations(1, 600));
    let error = run(&dbench, &memory(), &operations(2, 600_000), Watch::nobody()).unwrap_err();
    assert!(
        error.to_string().contains("something else at offset 0"),
        "{error}"
    );
}

#[test]
fn two_file_systems_at_the_same_time() {
    let (_file, dbench) = load(LOAD);
    let (a, b) = (memory(), memory());
    let plan = operations(2, LINES);
    let (one, two) = run_dual(&dbench, (&a, &b), &plan, Watch::nobody()).unwrap();
    assert_eq!((one.operations, two.operations), (2 * LINES, 2 * LINES));
    assert_eq!((names(&a, "."), names(&b, ".")), (vec![], vec![]));
}
