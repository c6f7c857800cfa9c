//! Steps side by side, with their outcomes in a fixed order.
//!
//! Steps stand in a list. So many run at once as there are lanes: a free lane takes, of the steps
//! that may begin, the one from whose beginning it takes longest until it and all that waits for it
//! have ended; of equals, the first. Short steps then fill the lanes at the end. On two cores a
//! third lane fills the time in which others wait: for a guest, for a sleep, for the end of a link.
//!
//! Invariants:
//! 1. A step begins when all steps that it needs have passed; it is skipped when one of them has
//!    not.
//! 2. Of the steps that build in one directory one runs: cargo would let the others wait in their
//!    lanes.
//! 3. Outcomes are printed in the order of the list, each after all that it has logged.
//!
//! Locking: one mutex guards the state of all steps. Nothing runs under it but printing.

use crate::report::{self, Report};
use anyhow::{Result, anyhow};
use finefs_harness::cleanup;
use indicatif::ProgressBar;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a step does: it may log lines, and gives a note.
pub type Work<'a> = Box<dyn FnOnce(&mut String) -> Result<String> + Send + 'a>;

/// The error of a step that finds out only as it runs that it cannot run here: it is skipped.
#[derive(Debug)]
pub struct CannotRun(pub String);

impl std::fmt::Display for CannotRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CannotRun {}

/// A step.
pub struct Step<'a> {
    name: String,
    needs: Vec<String>,
    builds_in: Option<&'static str>,
    /// About so long, as far as the order is concerned.
    seconds: u64,
    /// Or why it cannot run here.
    work: Result<Work<'a>, String>,
}

impl<'a> Step<'a> {
    /// A step that may begin at once.
    pub fn new(
        name: impl Into<String>,
        work: impl FnOnce(&mut String) -> Result<String> + Send + 'a,
    ) -> Step<'a> {
        Step {
            name: name.into(),
            needs: Vec::new(),
            builds_in: None,
            seconds: 0,
            work: Ok(Box::new(work)),
        }
    }

    /// A step that cannot run here, and why.
    pub fn impossible(name: impl Into<String>, why: impl Into<String>) -> Step<'a> {
        let mut step = Step::new(name, |_| Ok(String::new()));
        step.work = Err(why.into());
        step
    }

    /// It begins after this step, if that is in the list.
    pub fn needs(mut self, name: &str) -> Step<'a> {
        self.needs.push(name.to_owned());
        self
    }

    /// It builds in this directory.
    pub fn builds_in(mut self, directory: &'static str) -> Step<'a> {
        self.builds_in = Some(directory);
        self
    }

    /// It takes about so long.
    pub fn takes(mut self, seconds: u64) -> Step<'a> {
        self.seconds = seconds;
        self
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Of each step, how long it and the longest chain of steps that wait for it take.
fn weights(steps: &[Step<'_>]) -> Vec<u64> {
    let mut weights: Vec<u64> = steps.iter().map(|step| step.seconds).collect();
    // What a step needs stands before it.
    for number in (0..steps.len()).rev() {
        for need in (0..number).filter(|need| steps[number].needs.contains(&steps[*need].name)) {
            weights[need] = weights[need].max(steps[need].seconds + weights[number]);
        }
    }
    weights
}

/// The steps in whose names one of these parts occurs, and those that they need; all without parts.
pub fn chosen<'a>(steps: Vec<Step<'a>>, parts: &[String]) -> Vec<Step<'a>> {
    let is_named = |step: &Step<'_>| parts.iter().any(|part| step.name.contains(part.as_str()));
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    // What a step needs stands before it.
    for step in steps.iter().rev() {
        if parts.is_empty() || is_named(step) || wanted.contains(&step.name) {
            wanted.insert(step.name.clone());
            wanted.extend(step.needs.iter().cloned());
        }
    }
    let mut steps = steps;
    steps.retain(|step| wanted.contains(&step.name));
    steps
}

/// Runs the steps in so many lanes.
pub fn run(steps: Vec<Step<'_>>, lanes: usize, report: &mut Report) {
    let weights = weights(&steps);
    let plan = Plan {
        spinner: report::spinner(""),
        state: Mutex::new(State {
            entries: steps.into_iter().zip(weights).map(Entry::new).collect(),
            shown: 0,
            report,
        }),
        ended: Condvar::new(),
    };
    std::thread::scope(|scope| {
        for _ in 0..lanes.max(1) {
            scope.spawn(|| plan.work_in_lane());
        }
    });
    plan.spinner.finish_and_clear();
}

struct Plan<'a, 'r> {
    spinner: ProgressBar,
    state: Mutex<State<'a, 'r>>,
    /// A step has ended.
    ended: Condvar,
}

struct State<'a, 'r> {
    entries: Vec<Entry<'a>>,
    /// Of so many the outcomes are printed.
    shown: usize,
    report: &'r mut Report,
}

struct Entry<'a> {
    name: String,
    needs: Vec<String>,
    builds_in: Option<&'static str>,
    weight: u64,
    stage: Stage<'a>,
}

enum Stage<'a> {
    Waits(Work<'a>),
    Runs,
    Ran {
        log: String,
        took: Duration,
        outcome: Result<String>,
    },
    Skipped(String),
    Shown {
        has_passed: bool,
    },
}

impl<'a> Entry<'a> {
    fn new((step, weight): (Step<'a>, u64)) -> Entry<'a> {
        Entry {
            name: step.name,
            needs: step.needs,
            builds_in: step.builds_in,
            weight,
            stage: step.work.map_or_else(Stage::Skipped, Stage::Waits),
        }
    }

    fn runs(&self) -> bool {
        matches!(self.stage, Stage::Runs)
    }

    /// Whether it has passed, once that is known.
    fn has_passed(&self) -> Option<bool> {
        match &self.stage {
            Stage::Waits(_) | Stage::Runs => None,
            Stage::Ran { outcome, .. } => Some(outcome.is_ok()),
            Stage::Skipped(_) => Some(false),
            Stage::Shown { has_passed } => Some(*has_passed),
        }
    }
}

impl<'a> State<'a, '_> {
    /// The heaviest step that may begin, which now runs.
    fn begin(&mut self) -> Option<(usize, Work<'a>)> {
        let ready = (0..self.entries.len()).filter(|number| self.may_begin(*number));
        let number = ready.max_by_key(|number| (self.entries[*number].weight, Reverse(*number)))?;
        match std::mem::replace(&mut self.entries[number].stage, Stage::Runs) {
            Stage::Waits(work) => Some((number, work)),
            _ => unreachable!("it has waited"),
        }
    }

    fn may_begin(&self, number: usize) -> bool {
        let entry = &self.entries[number];
        let mut running = self.entries.iter().filter(|other| other.runs());
        let is_free =
            entry.builds_in.is_none() || running.all(|other| entry.builds_in != other.builds_in);
        let has_what_it_needs = || {
            self.needed(entry)
                .all(|need| need.has_passed() == Some(true))
        };
        matches!(entry.stage, Stage::Waits(_)) && is_free && has_what_it_needs()
    }

    fn needed<'s>(&'s self, entry: &'s Entry<'a>) -> impl Iterator<Item = &'s Entry<'a>> {
        let is_needed = |other: &&Entry<'_>| entry.needs.contains(&other.name);
        self.entries.iter().filter(is_needed)
    }

    /// Skips what needs a step that has not passed. In the order of the list: what a step needs
    /// stands before it.
    fn skip_in_vain(&mut self) {
        for number in 0..self.entries.len() {
            let entry = &self.entries[number];
            if !matches!(entry.stage, Stage::Waits(_)) {
                continue;
            }
            let is_missing = |need: &&Entry<'_>| need.has_passed() == Some(false);
            let missing = self.needed(entry).find(is_missing);
            let why = missing.map(|need| format!("{} has not passed", need.name));
            if let Some(why) = why {
                self.entries[number].stage = Stage::Skipped(why);
            }
        }
    }

    /// Prints the outcomes whose turn it is.
    fn show(&mut self) {
        while let Some(entry) = self.entries.get_mut(self.shown) {
            let Some(has_passed) = entry.has_passed() else {
                return;
            };
            let shown = Stage::Shown { has_passed };
            match std::mem::replace(&mut entry.stage, shown) {
                Stage::Ran { log, took, outcome } => {
                    for line in log.lines() {
                        println!("  {line}");
                    }
                    self.report.outcome(&entry.name, took, outcome);
                }
                Stage::Skipped(why) => self.report.skip(&entry.name, &why),
                _ => {}
            }
            self.shown += 1;
        }
    }

    /// What runs now, for the spinner.
    fn running(&self) -> String {
        let running = self.entries.iter().filter(|entry| entry.runs());
        let names: Vec<&str> = running.map(|entry| entry.name.as_str()).collect();
        let ended = self
            .entries
            .iter()
            .filter(|entry| entry.has_passed().is_some());
        let (ended, all) = (ended.count(), self.entries.len());
        format!("{ended} of {all}; now {}", names.join(", "))
    }
}

impl<'a, 'r> Plan<'a, 'r> {
    fn lock(&self) -> MutexGuard<'_, State<'a, 'r>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one step after the other, until none waits.
    fn work_in_lane(&self) {
        let mut state = self.lock();
        loop {
            state.skip_in_vain();
            self.spinner.suspend(|| state.show());
            let begun = state.begin();
            self.spinner.set_message(state.running());
            if let Some((number, work)) = begun {
                drop(state);
                cleanup::halt_if_interrupted();
                let ran = run_one(work);
                state = self.lock();
                state.entries[number].stage = ran;
                self.ended.notify_all();
                continue;
            }
            if !state.entries.iter().any(Entry::runs) {
                return;
            }
            state = self
                .ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Runs what a step does; what it leaves. A panic is a failure.
fn run_one(work: Work<'_>) -> Stage<'_> {
    let started = Instant::now();
    let mut log = String::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| work(&mut log)));
    let outcome = outcome.unwrap_or_else(|_| Err(anyhow!("it has panicked")));
    if let Err(error) = &outcome
        && let Some(CannotRun(why)) = error.downcast_ref()
    {
        return Stage::Skipped(why.clone());
    }
    Stage::Ran {
        log,
        took: started.elapsed(),
        outcome,
    }
}

#[cfg(test)]
mod tests;
