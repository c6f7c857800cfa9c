//! Histories of threads in a mount are explained by some order: `FINEFS_FULL=1` records 100,000.

use finefs_testkit::linear::{Verdict, explain, record_in_mount};

use crate::support::*;

#[test]
fn histories_of_threads_are_explained() {
    if !can_mount() {
        return;
    }
    let histories = if std::env::var_os("FINEFS_FULL").is_some() {
        100_000
    } else {
        1000
    };
    // Commits run beside the histories.
    for (ring, options) in [("N", "commit=1,cpu_latency=poll"), ("Y", "commit=1")] {
        let switch = RingSwitch::set(ring);
        let place = Place::new();
        let image = place.image("ext4");
        mount(&image, &place.mount_point(), &["-o", options]);
        drop(switch);
        for seed in 0..histories / 2 {
            let directory = place.mount_point().join(format!("h{seed}"));
            let history = record_in_mount(&directory, seed, 3, 6).unwrap();
            let verdict = explain(&history);
            assert_eq!(verdict, Verdict::Explained, "seed {seed}:\n{history}");
        }
        unmount(&place);
        check(&image);
    }
}
