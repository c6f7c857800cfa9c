//! What is predicted: of published numbers, and of more cores than there are.

use super::load::{Load, SCHEMES};
use super::prediction::Prediction;
use crate::model::calibrate::{one_lock, share_for_waiting};
use crate::model::{Crowd, Network};
use crate::page::{Cell, Chart, Exhibit, Line, Origin, Scale, Table, Tone};
use crate::studies::experiment::Results;
use crate::studies::published::bkl_removal::{BIG_LOCK, BIG_LOCK_SOURCE, FINE_LOCKS, Row};
use crate::studies::ratios::tone;
use finefs_workloads::affinity;

/// Cores that are asked for.
const CORES: [usize; 7] = [1, 2, 4, 8, 16, 64, 256];

/// A published table, and the network that one of its numbers makes.
struct Case {
    name: &'static str,
    tone: Tone,
    rows: &'static [Row],
    /// The CPUs of the row whose waiting the network is made of.
    known: u32,
    /// The share of a transaction for which the one lock is held.
    share: f64,
    network: Network,
}

impl Case {
    fn of(name: &'static str, tone: Tone, rows: &'static [Row], known: u32) -> Option<Case> {
        let given = rows
            .iter()
            .find(|row| row.cpus == known)
            .and_then(waiting)?;
        let share = share_for_waiting(known as usize, given / 100.0)?;
        Some(Case {
            name,
            tone,
            rows,
            known,
            share,
            network: one_lock(share),
        })
    }

    fn all() -> impl Iterator<Item = Case> {
        let big = Case::of("2.4.17, BKL", Tone::Spin, &BIG_LOCK, 4);
        let fine = Case::of("2.5.1, BKL removed", Tone::Fine, &FINE_LOCKS, 8);
        big.into_iter().chain(fine)
    }

    fn speed_up(&self, row: &Row) -> f64 {
        f64::from(row.transactions_per_s) / f64::from(self.rows[0].transactions_per_s)
    }
}

/// Time waiting, per cent.
fn waiting(row: &Row) -> Option<f64> {
    row.big_lock_percent.or(row.contention_percent)
}

/// The model fed with one published number, against the others.
pub(super) fn against_2002() -> Exhibit {
    let mut table = Table::new(
        "The tables of 2002: what one of their numbers predicts of the others",
        &["kernel<", "CPUs", "speed-up", "CPU time waiting, %"],
    );
    let mut lines = Vec::new();
    let mut notes = vec![format!(
        "Published: {}, {}. Waiting is the column `spinlock contention`, read as a share of CPU time; \
         for 2.4.17 the BKL's part.",
        BIG_LOCK_SOURCE.author, BIG_LOCK_SOURCE.thread
    )];
    for case in Case::all() {
        let Case {
            name,
            tone,
            rows,
            network,
            ..
        } = &case;
        notes.push(format!(
            "{name}: the waiting at {} CPUs is that of a lock held for {:.1} % of a transaction.",
            case.known,
            case.share * 100.0
        ));
        let (mut told, mut computed) = (Vec::new(), Vec::new());
        for row in *rows {
            let cpus = f64::from(row.cpus);
            let speed_up = case.speed_up(row);
            let solution = network.solve(row.cpus as usize);
            told.push((cpus, speed_up));
            table.push(
                Origin::Published,
                vec![
                    Cell::text(*name),
                    Cell::count(cpus),
                    Cell::number(speed_up, 2),
                    Cell::maybe(waiting(row), 1),
                ],
            );
            table.push(
                Origin::Predicted,
                vec![
                    Cell::text(*name),
                    Cell::count(cpus),
                    Cell::number(solution.throughput_per_ns, 2),
                    Cell::number(solution.waiting_share * 100.0, 1),
                ],
            );
        }
        computed.extend(
            [1, 2, 3, 4, 6, 8].map(|cpus| (cpus as f64, network.solve(cpus).throughput_per_ns)),
        );
        let line = |name: String, origin, points| Line {
            name,
            origin,
            tone: *tone,
            points,
        };
        lines.push(line((*name).to_owned(), Origin::Published, told));
        let kernel = name.split(',').next().unwrap_or(name);
        let predicted = format!("{kernel} predicted");
        lines.push(line(predicted, Origin::Predicted, computed));
    }
    notes.push(
        "The waiting at the other numbers of CPUs is met within a few per cent of the CPUs' time, and so is \
         the shape: under the big lock nothing is gained beyond 4 CPUs. The rest of the lost speed-up is not \
         waiting but memory and caches that eight processors share, which the model leaves out."
            .to_owned(),
    );
    Exhibit {
        table,
        chart: Some(Chart::Lines {
            title: "Speed-up over one CPU, published and predicted".to_owned(),
            x_label: "CPUs".to_owned(),
            y_label: "× one CPU".to_owned(),
            y_scale: Scale::Linear,
            lines,
        }),
        notes,
    }
}

/// The prediction for a load.
pub(super) fn beyond(results: &Results, load: Load) -> Exhibit {
    let mut columns = vec!["locks<".to_owned(), "hand-over<".to_owned()];
    columns.extend(CORES.map(|cores| match cores {
        1 => "1 core".to_owned(),
        _ => format!("{cores} cores"),
    }));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(
        format!(
            "{}: operations a second that the model predicts",
            load.name()
        ),
        &columns,
    );
    let (mut lines, mut notes) = (Vec::new(), Vec::new());
    for scheme in SCHEMES {
        let Some(prediction) = Prediction::of(results, load, scheme) else {
            continue;
        };
        let alone = prediction.network.solve(1).throughput_per_ns;
        for hand_over in ["for free", "as measured"] {
            let solutions = CORES.map(|cores| {
                let network = prediction.on_cores(cores);
                match hand_over {
                    "for free" => network.without_hand_over().solve(cores),
                    _ => network.solve(cores),
                }
            });
            let mut cells = vec![Cell::text(scheme.name()), Cell::text(hand_over)];
            cells.extend(
                solutions
                    .iter()
                    .map(|solution| Cell::count(solution.per_second())),
            );
            table.push(Origin::Predicted, cells);
            if hand_over == "as measured" {
                let points = solutions
                    .iter()
                    .map(|solution| (solution.cores as f64, solution.throughput_per_ns / alone))
                    .collect();
                lines.push(Line {
                    name: scheme.name().to_owned(),
                    origin: Origin::Predicted,
                    tone: tone(scheme),
                    points,
                });
            }
        }
        if let Some(share) = prediction.convoy_share(affinity::cpus()) {
            let rate = |cores| {
                let network = prediction.on_cores(cores);
                network.mixed_per_ns(Crowd::on_cores(cores), share)
            };
            let rates = CORES.map(rate);
            let mut cells = vec![Cell::text(scheme.name()), Cell::text("sometimes")];
            cells.extend(rates.map(|rate| Cell::count(rate * 1e9)));
            table.push(Origin::Predicted, cells);
            notes.push(format!(
                "`{}`, hand-over `sometimes`: the lock is in a convoy for {:.0} % of the time, as its rehearsal \
                 was with as many threads as this machine has CPUs. That share is taken for all numbers of \
                 cores; it can only grow with them, so this is the better case.",
                scheme.name(),
                share * 100.0
            ));
        }
        let network = prediction.on_cores(usize::MAX);
        notes.push(match network.bottleneck() {
            Some(lock) => format!(
                "`{}`: {} bounds the speed-up at {:.2}.",
                scheme.name(),
                lock.name,
                network.bound_per_ns(usize::MAX) / alone
            ),
            None => format!(
                "`{}`: no lock that threads share is taken exclusively, so the model sees no bound; what \
                 bounds it is what the model leaves out.",
                scheme.name()
            ),
        });
    }
    Exhibit {
        table,
        chart: Some(Chart::Lines {
            title: format!("{}: predicted speed-up, both axes logarithmic", load.name()),
            x_label: "cores".to_owned(),
            y_label: "× one core".to_owned(),
            y_scale: Scale::Logarithmic,
            lines,
        }),
        notes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waiting and order of the published curves come from one number of each.
    #[test]
    fn the_curves_of_2002_have_the_predicted_shape() {
        let cases: Vec<Case> = Case::all().collect();
        assert_eq!(cases.len(), 2);
        for case in &cases {
            let mut before = 0.0;
            for row in case.rows {
                let solution = case.network.solve(row.cpus as usize);
                let predicted = solution.throughput_per_ns;
                assert!(predicted > before, "{}: it falls", case.name);
                before = predicted;
                // Memory and caches are left out: nobody is predicted too slow.
                assert!(case.speed_up(row) <= predicted * 1.001, "{row:?}");
                let waiting_percent = waiting(row).unwrap_or(0.0);
                let error = solution.waiting_share * 100.0 - waiting_percent;
                assert!(error.abs() < 5.0, "{row:?}: {error}");
            }
        }
        let gain = |case: &Case, from: usize, to: usize| {
            let at = |cpus| case.network.solve(cpus).throughput_per_ns;
            let told = |cpus: usize| {
                let row = case.rows.iter().find(|row| row.cpus as usize == cpus);
                case.speed_up(row.unwrap())
            };
            [at(to) / at(from), told(to) / told(from)]
        };
        // The big lock is full at 4 CPUs, the others are not at 8.
        assert!(gain(&cases[0], 4, 8).iter().all(|gain| *gain < 1.05));
        assert!(gain(&cases[1], 4, 8).iter().all(|gain| *gain > 1.5));
    }

    /// Against the shape of 2002 for any number of CPUs between those published.
    #[test]
    fn more_cpus_gain_less_each() {
        for case in Case::all() {
            let rates: Vec<f64> = (1..=8)
                .map(|cpus| case.network.solve(cpus).throughput_per_ns)
                .collect();
            let gains: Vec<f64> = rates.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(gains.iter().all(|gain| *gain > 0.0), "{gains:?}");
            assert!(gains.windows(2).all(|pair| pair[1] <= pair[0]), "{gains:?}");
        }
    }
}
