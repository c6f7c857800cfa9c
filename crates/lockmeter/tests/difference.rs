//! Snapshots minus snapshots.

use finefs_lockmeter::{CallSite, ClassCounts, Counts, Snapshot, Times};

fn snapshot(count: u64) -> Snapshot {
    let mut times = Times {
        total_ns: 100 * count,
        min_ns: 100,
        max_ns: 100,
        ..Times::default()
    };
    times.histogram.add(100, count);
    let site = CallSite {
        location: "file.rs:1:1".to_owned(),
        contended: count,
        wait_ns_total: 100 * count,
        hold_ns_total: 100 * count,
    };
    let counts = Counts {
        acquisitions: count,
        contended: count,
        contended_counted: count,
        given_up: count,
        bounces: count,
        wait: times.clone(),
        hold: times,
        hold_timed: count,
        sites: vec![site],
    };
    let class = ClassCounts {
        name: "log".into(),
        level: 1,
        writer: counts.clone(),
        reader: counts,
    };
    Snapshot {
        hold_sampling: 1,
        classes: vec![class],
    }
}

#[test]
fn what_came_since_is_counted() {
    assert_eq!(snapshot(5).since(&snapshot(3)), snapshot(2));
}

/// Nothing comes before: no count is below zero, let alone a huge one.
#[test]
fn nothing_came_since_a_later_one() {
    let since = snapshot(3).since(&snapshot(5));
    let class = since.class("log").unwrap();
    assert_eq!(class.writer, Counts::default());
    assert_eq!(class.reader, Counts::default());
}
