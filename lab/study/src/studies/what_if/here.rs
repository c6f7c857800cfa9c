//! The prediction against this machine, and what it is made of.

use super::load::{Load, SCHEMES, THREADS};
use super::prediction::Prediction;
use crate::page::{Cell, Exhibit, Origin, Table};
use crate::studies::experiment::Results;
use crate::studies::ratios::{percent, ratio};
use finefs_workloads::affinity;

/// The prediction against this machine.
pub(super) fn against_here(results: &Results) -> Exhibit {
    let cpus = affinity::cpus();
    let mut table = Table::new(
        format!("Predicted and measured on this machine's {cpus} CPUs"),
        &[
            "load<",
            "locks<",
            "threads",
            "slower, ×",
            "hand-over, ns",
            "convoy, %",
            "predicted/s",
            "measured/s",
            "measured / predicted",
        ],
    );
    for load in Load::ALL {
        for scheme in SCHEMES {
            let Some(prediction) = Prediction::of(results, load, scheme) else {
                continue;
            };
            for threads in THREADS {
                let here = prediction.here(threads);
                let measured = results.per_second(&load.key(scheme, threads));
                table.push(
                    Origin::Measured,
                    vec![
                        Cell::text(load.name()),
                        Cell::text(scheme.name()),
                        Cell::count(threads as f64),
                        Cell::number(here.slowdown, 2),
                        Cell::maybe(here.hand_over_ns, 0),
                        percent(here.convoy_share),
                        Cell::count(here.per_second),
                        Cell::maybe(measured, 0),
                        Cell::maybe(ratio(measured, Some(here.per_second)), 2),
                    ],
                );
            }
        }
    }
    Exhibit {
        table,
        chart: None,
        notes: disturbance(results.costs().preemption.away_ns)
            .into_iter()
            .chain(here_notes())
            .collect(),
    }
}

/// A holder whose CPU a spinning thread shares is away for less where nothing else runs,
/// nanoseconds: until that thread gives up its turn.
const AWAY_MAX_NS: f64 = 500_000.0;

/// What is to be said where other programs use the CPUs.
fn disturbance(away_ns: f64) -> Option<String> {
    (away_ns > AWAY_MAX_NS).then(|| {
        format!(
            "Other programs used the CPUs: a thread beside one that spins was away for {:.2} ms at a time. Under big              locks the prediction counts for little then; run it again when nothing else runs.",
            away_ns / 1e6
        )
    })
}

fn here_notes() -> Vec<String> {
    vec![
        "One thread is the input, so its ratio is 1.".to_owned(),
        "`slower`: how many times longer an operation takes where so many threads run, at most one on each CPU, \
         that share nothing: each on a file system of its own, without big locks, together with as many files as \
         the threads of the load. All times inside of locks and outside are taken longer by it; what is left to \
         predict are the locks. Measured in each round; 1 on an image, which cannot be opened twice."
            .to_owned(),
        "`hand-over`: what a visit to the spinning big lock costs beside the hold time where somebody waits, as its \
         rehearsal was by as many threads, at most one on each CPU; 0 where it let through more than hand-overs for \
         free would. For more cores it is that of this machine's CPUs, and what further waiters add comes on top."
            .to_owned(),
        "`big-sleep`: a sleeping lock that is handed to the longest waiter is in one of two states. In a \
         convoy each visit costs a wake-up, since whoever gave the lock away comes back before the next one \
         has been scheduled; that is the network with hand-overs. Without one, the threads hardly meet: the \
         scheduler put a woken thread on the CPU of its waker, and they take turns there. For what share of \
         the time it is a convoy no property of the load tells; it was tried with the lock alone, as often as the load \
         takes it, just after each run. As many visits as an operation has hold it longer after a wait, as in a run of one thread that sleeps before each operation: \
         who has slept finds its caches cold. What counts is the state that lasts (the median of slices \
         of 50 ms): a run of a load in which it changes for a while gets through more."
            .to_owned(),
    ]
}

/// What the model was fed with.
pub(super) fn inputs(results: &Results) -> Exhibit {
    let mut table = Table::new(
        "What the model is fed with",
        &[
            "load<",
            "locks<",
            "class<",
            "locks of the class",
            "visits per operation",
            "held, ns per visit",
            "after sleeping, ×",
            "share of the operation, %",
        ],
    );
    for load in Load::ALL {
        for scheme in SCHEMES {
            let Some(prediction) = Prediction::of(results, load, scheme) else {
                continue;
            };
            let longer = prediction.held_longer();
            let network = &prediction.network;
            let alone_ns = network.alone_ns();
            let rows = network.stations.iter().map(|station| {
                let share = station.demand_ns() / alone_ns * 100.0;
                vec![
                    Cell::text(load.name()),
                    Cell::text(scheme.name()),
                    Cell::text(station.name.as_str()),
                    Cell::count(f64::from(station.locks)),
                    Cell::number(station.visits, 2),
                    Cell::count(station.hold_ns),
                    Cell::maybe(longer, 2),
                    Cell::number(share, 1),
                ]
            });
            rows.for_each(|cells| table.push(Origin::Measured, cells));
            table.push(
                Origin::Measured,
                vec![
                    Cell::text(load.name()),
                    Cell::text(scheme.name()),
                    Cell::text("outside of shared locks"),
                    Cell::missing(),
                    Cell::missing(),
                    Cell::count(network.delay_ns),
                    Cell::missing(),
                    Cell::number(network.delay_ns / alone_ns * 100.0, 1),
                ],
            );
        }
    }
    Exhibit {
        table,
        chart: None,
        notes: vec![
            "Classes whose locks each thread or CPU has for itself are part of the time outside, as are \
             shared acquisitions."
                .to_owned(),
            "`after sleeping`: how many times longer one thread holds the lock that sleeps before each operation."
                .to_owned(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_machine_is_told_of() {
        assert_eq!(disturbance(70_000.0), None);
        let told = disturbance(1_330_000.0).unwrap();
        assert!(told.contains("1.33 ms"), "{told}");
    }
}
