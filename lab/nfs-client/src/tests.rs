//! Each load against a real server, and against the one that does nothing.

use std::net::SocketAddr;
use std::time::Duration;

use finefs_namespace::{MemoryStore, Options};
use finefs_nfs::{ExportOptions, Server, Squash};

use finefs_locks::BigLockKind;
use finefs_workloads::{Crew, Length, OpenSpeed, Plan, PosixLock, Watch, Workload};

use crate::files::{Consistency, Files};
use crate::load::{Load, Prepared, Target, rate};
use crate::null;

fn target(address: SocketAddr) -> Target {
    Target {
        nfs: address,
        mount: address,
        locks: address,
        path: "/".into(),
    }
}

/// A workload verifies what it finds, and removes what it makes.
fn work<W: Workload>(workload: &W, files: &Files) {
    let plan = Plan::new(Crew::Threads(3), Length::Seconds(0.05));
    let report = finefs_workloads::run(workload, files, &plan, Watch::nobody());
    assert!(report.unwrap().operations > 0, "{}", W::NAME);
}

fn check(address: SocketAddr) {
    let prepared = Prepared::new(target(address), 2).unwrap();
    for load in Load::ALL {
        // A busy machine may need longer for the first operation.
        let is_done = [50, 500, 5000].into_iter().any(|ms| {
            let time = Duration::from_millis(ms);
            rate(&prepared, load, (2, 8), time).unwrap() > 0.0
        });
        assert!(is_done, "{load:?}");
    }
    let too_many = rate(&prepared, Load::Lookup, (3, 1), Duration::ZERO);
    assert!(too_many.is_err());
}

#[test]
fn every_load_is_carried_out() {
    let store = MemoryStore::new(256 << 20, 0o755, 0, 0).unwrap();
    let namespace = store.into_namespace(Options::default()).unwrap();
    let options = ExportOptions {
        squash: Squash::None,
        ..ExportOptions::default()
    };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::start(std::sync::Arc::clone(&namespace), any, options).unwrap();
    check(server.address());
    for (consistency, lock) in [
        (Consistency::Remembered, None),
        (Consistency::CloseToOpen, Some(BigLockKind::Spinning)),
        (Consistency::Remembered, Some(BigLockKind::Sleeping)),
    ] {
        let files = Files::mount(server.address(), consistency, lock).unwrap();
        work(&OpenSpeed::default(), &files);
        work(&PosixLock::default(), &files);
    }
    // All that was created was removed, and all that was locked unlocked, but for the lock that
    // the loads keep.
    assert_eq!(namespace.file_lock_count(), 1);
    server.stop();
}

#[test]
fn the_server_that_does_nothing_answers_all() {
    check(null::start().unwrap());
}
