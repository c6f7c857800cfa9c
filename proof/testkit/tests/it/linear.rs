//! Histories of threads in memory and on an image are explained by some order, and made-up ones are
//! not. `FINEFS_FULL=1` records 100,000 of each kind.

use std::sync::Arc;

use crate::sized;
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{MemoryStore, Namespace, Options};
use finefs_sim::ImageDevice;
use finefs_testkit::crash::base::{Base, profile};
use finefs_testkit::linear::{Given, History, Operation, Verdict, explain, record};

const THREADS: usize = 3;
const OPERATIONS: usize = 6;

fn memory() -> Arc<Namespace> {
    let store = MemoryStore::new(64 << 20, 0o755, 0, 0).unwrap();
    store.into_namespace(Options::default()).unwrap()
}

/// Commits run beside the histories.
fn image() -> Arc<Namespace> {
    let base = Base::new(profile("ext4-1k").unwrap(), &[]).unwrap();
    let device = Arc::new(ImageDevice::new(base.image));
    let store = ExtStore::open(device, &ExtOptions::default()).unwrap();
    let options = Options {
        commit_interval: std::time::Duration::from_millis(5),
        ..Options::default()
    };
    Namespace::new(Arc::new(store), options).unwrap()
}

fn count(usual: u64) -> u64 {
    sized(usual, 100_000)
}

/// Histories are explained; gives how many had operations of several threads at once.
fn check(open: fn() -> Arc<Namespace>, histories: u64) -> u64 {
    let mut namespace = open();
    let mut overlapping = 0;
    for seed in 0..histories {
        if seed % 200 == 199 {
            // Room for more.
            namespace.shut_down().unwrap();
            namespace = open();
        }
        let history = record(&namespace, &format!("h{seed}"), seed, THREADS, OPERATIONS).unwrap();
        assert_eq!(
            explain(&history),
            Verdict::Explained,
            "seed {seed}: \n{history}"
        );
        overlapping += u64::from(overlaps(&history));
    }
    namespace.shut_down().unwrap();
    overlapping
}

/// Some are those of several threads at once; how many depends on how busy the machine is.
fn check_overlapping(open: fn() -> Arc<Namespace>, histories: u64) {
    let overlapping = check(open, histories);
    println!("{overlapping} of {histories} overlap");
    assert!(overlapping > histories / 20, "{overlapping} of {histories}");
}

fn overlaps(history: &History) -> bool {
    let events = || history.threads.iter().flatten();
    events().any(|event| {
        let is_beside = |other: &&finefs_testkit::linear::Event| {
            other.called > event.called && other.called < event.returned
        };
        events().any(|other| is_beside(&other))
    })
}

#[test]
fn in_memory() {
    check_overlapping(memory, count(3000));
}

#[test]
fn on_an_image() {
    check_overlapping(image, count(1000));
}

/// What a thread has done is seen by what another one does later, and not before.
#[test]
fn what_cannot_be_is_found() {
    let namespace = memory();
    let mut impossible = 0;
    for seed in 0..300 {
        let mut history = record(&namespace, &format!("h{seed}"), seed, 1, 12).unwrap();
        let events = &mut history.threads[0];
        let changed = events.iter_mut().find_map(|event| {
            let given = match (&event.operation, &event.given) {
                (Operation::Read(..), Given::Data(data)) if !data.is_empty() => {
                    Given::Data(vec![data[0] ^ 1; data.len()])
                }
                (Operation::Append(..), Given::Number(at)) => Given::Number(at + 1),
                (Operation::Attributes, Given::Shown(size, links)) => {
                    Given::Shown(*size, links + 1)
                }
                _ => return None,
            };
            event.given = given;
            Some(())
        });
        if changed.is_some() {
            assert_eq!(explain(&history), Verdict::Impossible, "seed {seed}");
            impossible += 1;
        }
    }
    assert!(impossible > 100);
    namespace.shut_down().unwrap();
}
