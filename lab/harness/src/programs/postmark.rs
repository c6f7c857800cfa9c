//! PostMark (Katcher, 1997): a mail server's many small files. Timed from outside over the whole
//! run, that is creating, transactions and deleting, since its own clock counts whole seconds.

use super::{Work, expect_empty};
use crate::run;
use crate::tools;
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::time::{Duration, Instant};

/// The numbers that make a run.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Files made at first.
    pub files: u64,
    /// Transactions: each reads or appends to one file, and creates or deletes one.
    pub transactions: u64,
}

/// What one PostMark says it did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    created: u64,
    created_alone: u64,
    created_mixed: u64,
    read: u64,
    appended: u64,
    deleted: u64,
    deleted_mixed: u64,
}

pub(super) fn one(work: &Work<'_>) -> Result<String> {
    note(work, 1, work.size.postmark1)
}

pub(super) fn eight(work: &Work<'_>) -> Result<String> {
    note(work, 8, work.size.postmark8)
}

fn note(work: &Work<'_>, processes: u64, shape: Shape) -> Result<String> {
    let took = run_processes(work.dir, processes, shape, false)?;
    let total = processes * shape.transactions;
    Ok(format!(
        "{:.0} transactions/s over the whole run",
        total as f64 / took.as_secs_f64()
    ))
}

/// Runs PostMark in `processes` processes, each in its own subdirectory of `dir`, checks that each
/// did all of its work and left nothing, and returns the time from the first start to the last end.
///
/// libfuse hides a file that is unlinked before the kernel has passed on its last close, and may
/// forget to remove it: `hidden_may_stay` forgives that, for rates of a server that is not ours.
pub fn run_processes(
    dir: &Path,
    processes: u64,
    shape: Shape,
    hidden_may_stay: bool,
) -> Result<Duration> {
    let dirs: Vec<_> = (0..processes)
        .map(|number| dir.join(format!("pm{number}")))
        .collect();
    for dir in &dirs {
        std::fs::create_dir(dir)?;
    }
    let started = Instant::now();
    let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
        let runs: Vec<_> = dirs
            .iter()
            .zip(42..)
            .map(|(dir, seed)| scope.spawn(move || run_one(dir, seed, shape)))
            .collect();
        runs.into_iter()
            .map(|run| {
                run.join()
                    .unwrap_or_else(|_| bail!("a PostMark thread panicked"))
            })
            .collect()
    });
    let took = started.elapsed();
    outcomes.into_iter().collect::<Result<Vec<()>>>()?;
    for dir in &dirs {
        if !hidden_may_stay {
            expect_empty(dir)?;
        }
        std::fs::remove_dir_all(dir)?;
    }
    Ok(took)
}

fn run_one(dir: &Path, seed: u64, shape: Shape) -> Result<()> {
    let Shape {
        files,
        transactions,
    } = shape;
    let script = format!(
        "set location {}\nset number {files}\nset transactions {transactions}\n\
         set size 500 10000\nset seed {seed}\nrun\nquit\n",
        dir.display()
    );
    let limit = Duration::from_secs(1800);
    let output = run::capture_with(
        &mut run::cmd(tools::program("postmark"), [] as [&str; 0]),
        script.as_bytes(),
        limit,
    )?;
    let output = run::expect_ok("postmark", output)?;
    check(&output.both(), shape)
}

/// Fails when `text`, PostMark's report, does not say that all of `shape` was done.
fn check(text: &str, shape: Shape) -> Result<()> {
    if let Some(line) = text.lines().find(|line| line.contains("Error")) {
        bail!("postmark: {line}");
    }
    let counts = parse(text).with_context(|| format!("postmark said:\n{}", run::tail(text)))?;
    ensure!(
        counts.created_alone == shape.files,
        "postmark made {counts:?} of {shape:?}"
    );
    ensure!(
        counts.created == counts.deleted,
        "postmark left files: {counts:?}"
    );
    // Each transaction counts once as a read or append and once as a create or delete; it leaves
    // out the rare one whose table of files is full or empty.
    for done in [
        counts.read + counts.appended,
        counts.created_mixed + counts.deleted_mixed,
    ] {
        ensure!(
            done * 100 >= shape.transactions * 99 && done <= shape.transactions,
            "postmark did {done} of {} transactions: {counts:?}",
            shape.transactions
        );
    }
    Ok(())
}

fn parse(text: &str) -> Option<Counts> {
    let mut counts = Counts::default();
    let mut deleting = false;
    let mut seen = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let slot = match words.as_slice() {
            [_, "created", ..] => (&mut counts.created, number(0)),
            ["Creation", "alone:", ..] => (&mut counts.created_alone, number(2)),
            ["Mixed", "with", "transactions:", ..] if deleting => {
                (&mut counts.deleted_mixed, number(3))
            }
            ["Mixed", "with", "transactions:", ..] => (&mut counts.created_mixed, number(3)),
            [_, "read", ..] => (&mut counts.read, number(0)),
            [_, "appended", ..] => (&mut counts.appended, number(0)),
            [_, "deleted", ..] => {
                deleting = true;
                (&mut counts.deleted, number(0))
            }
            _ => continue,
        };
        let (place, Some(value)) = slot else { continue };
        *place = value;
        seen += 1;
    }
    (seen == 7).then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "Time:\n\t1 seconds total\nFiles:\n\t507 created (507 per second)\n\
        \t\tCreation alone: 300 files (300 per second)\n\
        \t\tMixed with transactions: 207 files (207 per second)\n\
        \t199 read (199 per second)\n\t201 appended (201 per second)\n\
        \t507 deleted (507 per second)\n\t\tDeletion alone: 314 files (314 per second)\n\
        \t\tMixed with transactions: 193 files (193 per second)\n\
        Data:\n\t1.14 megabytes read (1.14 megabytes per second)\n";
    const SHAPE: Shape = Shape {
        files: 300,
        transactions: 400,
    };

    #[test]
    fn a_whole_report_passes() {
        check(REPORT, SHAPE).unwrap();
    }

    #[test]
    fn missing_work_is_noticed() {
        assert!(check(&REPORT.replace("300 files", "299 files"), SHAPE).is_err());
        assert!(check(&REPORT.replace("507 deleted", "506 deleted"), SHAPE).is_err());
        assert!(check(&REPORT.replace("199 read", "9 read"), SHAPE).is_err());
        assert!(check(&format!("Error: Cannot open f\n{REPORT}"), SHAPE).is_err());
        assert!(check("pm>", SHAPE).is_err());
    }
}
