//! Outcome lines: one per proof while it runs, and the summary at the end.

use anyhow::Result;
use finefs_harness::cleanup;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// Counts of outcomes, with what failed.
#[derive(Default)]
pub struct Report {
    passed: usize,
    skipped: usize,
    /// Name, and the head of what was wrong.
    failures: Vec<(String, String)>,
}

/// So many lines of a failure are told again at the end.
const HEAD: usize = 12;

impl Report {
    /// Runs `proof`, prints how it went, and counts it. Returns true when it passed.
    pub fn proof(&mut self, name: &str, proof: impl FnOnce() -> Result<String>) -> bool {
        cleanup::halt_if_interrupted();
        let started = Instant::now();
        let spinner = spinner(name);
        let outcome = proof();
        // It has failed only because what it needs was ended.
        cleanup::halt_if_interrupted();
        spinner.finish_and_clear();
        self.outcome(name, started.elapsed(), outcome)
    }

    /// Prints how a proof went, and counts it. Returns true when it passed.
    pub fn outcome(&mut self, name: &str, took: Duration, outcome: Result<String>) -> bool {
        let seconds = took.as_secs_f64();
        match outcome {
            Ok(note) => {
                println!("ok    {name:<44} {seconds:6.1} s  {note}");
                self.passed += 1;
                true
            }
            Err(error) => {
                println!("FAIL  {name:<44} {seconds:6.1} s");
                let error = indented(&format!("{error:#}"));
                print!("{error}");
                let head = error.split_inclusive('\n').take(HEAD).collect();
                self.failures.push((name.to_owned(), head));
                false
            }
        }
    }

    /// How many have passed, failed and been skipped.
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.passed, self.failures.len(), self.skipped)
    }

    /// Counts what another report counted.
    pub fn add(&mut self, other: Report) {
        self.passed += other.passed;
        self.skipped += other.skipped;
        self.failures.extend(other.failures);
    }

    /// Counts a proof that cannot run here, with the reason.
    pub fn skip(&mut self, name: &str, why: &str) {
        println!("skip  {name:<44}           {why}");
        self.skipped += 1;
    }

    /// Prints the failures again and the closing line; an error when anything failed or nothing
    /// ran.
    pub fn finish(self) -> Result<()> {
        for (name, head) in &self.failures {
            println!("failed: {name}");
            print!("{head}");
        }
        let skipped = if self.skipped > 0 {
            format!(", {} skipped", self.skipped)
        } else {
            String::new()
        };
        println!(
            "{} passed, {} failed{skipped}",
            self.passed,
            self.failures.len()
        );
        anyhow::ensure!(
            self.failures.is_empty(),
            "{} proofs failed",
            self.failures.len()
        );
        anyhow::ensure!(self.passed > 0, "no proof ran");
        Ok(())
    }
}

fn indented(text: &str) -> String {
    let lines = text.lines().map(|line| format!("      | {line}\n"));
    lines.collect()
}

/// A spinner with a running clock; invisible when standard error is not a terminal.
pub fn spinner(message: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(message.to_owned());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
