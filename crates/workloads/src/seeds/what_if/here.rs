//! The prediction against this machine, and what it is made of.

use super::load::{Load, SCHEMES, THREADS};
use super::prediction::Prediction;
use crate::affinity;
use crate::page::{Cell, Exhibit, Origin, Table};
use crate::seeds::experiment::Results;
use crate::seeds::ratios::{percent, ratio};

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
        notes: here_notes(),
    }
}

fn here_notes() -> Vec<String> {
    vec![
        "One thread is the input, so its ratio is 1.".to_owned(),
        "`slower`: how many times longer an operation takes where so many threads run, at most one on each CPU, \
         that share nothing: each on a file system of its own, without big locks, together with as many files as \
         the threads of the load. All times inside of locks and outside are taken longer by it; what is left to \
         predict are the locks. Measured in each round; 1 on an image, which cannot be opened twice."
            .to_owned(),
        "`big-sleep`: a sleeping lock that is handed to the longest waiter is in one of two states. In a \
         convoy each visit costs a wake-up, since whoever gave the lock away comes back before the next one \
         has been scheduled; that is the network with hand-overs. Without one, the threads hardly meet: the \
         scheduler put a woken thread on the CPU of its waker, and they take turns there. For what share of \
         the time it is a convoy no property of the load tells; it was tried with the lock alone, held as \
         long and as often as the load holds it, in each round. Left out: that the two states last, so that a \
         short run can be all of one."
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
            "share of the operation, %",
        ],
    );
    for load in Load::ALL {
        for scheme in SCHEMES {
            let Some(Prediction { network, .. }) = Prediction::of(results, load, scheme) else {
                continue;
            };
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
        ],
    }
}
