//! The process that works: one step at a time, on both sides, and what came of it compared.

use super::clock::{Clock, Which, now};
use super::deviations;
use super::execute::Side;
use super::generate::{Generator, Shape};
use super::look::{self, Attributes, Difference, Relation};
use super::operation::{Bytes, Step, Who};
use super::outcome::{self, Outcome, Value, shown};
use super::users::act_as;
use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::PathBuf;

/// What a worker is told.
#[derive(clap::Args, Debug)]
pub struct Task {
    /// A directory on the kernel's ext4
    #[arg(long)]
    pub kernel: PathBuf,
    /// The same directory on finefs
    #[arg(long)]
    pub finefs: PathBuf,
    /// Same seed, same steps
    #[arg(long)]
    pub seed: u64,
    /// How many steps
    #[arg(long)]
    pub operations: u64,
    /// The nanosecond in which the run began
    #[arg(long)]
    pub since: i128,
    /// The unit of times on the images
    #[arg(long)]
    pub unit_ns: i128,
    /// Bytes of a block
    #[arg(long)]
    pub block: u64,
    /// Files of the images have block maps
    #[arg(long)]
    pub without_extents: bool,
    /// Directories of the images fold case
    #[arg(long)]
    pub folds_case: bool,
    /// Write each step down here before it is done
    #[arg(long)]
    pub log: Option<PathBuf>,
    /// Do the steps of this file, not random ones
    #[arg(long)]
    pub replay: Option<PathBuf>,
}

/// Steps between two comparisons of the whole tree, and between two with the caches dropped.
const TREE_EVERY: u64 = 500;
const DROP_EVERY: u64 = 2000;
/// Steps that are shown with a difference.
const SHOWN: usize = 12;

struct Lockstep {
    kernel: Side,
    finefs: Side,
    clock: Clock,
    last: VecDeque<String>,
}

/// Runs a worker; a difference is printed and is the error.
pub fn work(task: &Task) -> Result<()> {
    if task.without_extents {
        deviations::be_without_extents();
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o22));
    let mut lockstep = Lockstep {
        kernel: Side::new("kernel", &task.kernel)?,
        finefs: Side::new("finefs", &task.finefs)?,
        clock: Clock::new(task.since, task.unit_ns),
        last: VecDeque::new(),
    };
    let shape = Shape {
        file_bytes: 200_000,
        names: 250,
        block: task.block,
        folds_case: task.folds_case,
    };
    let mut generator = Generator::new(task.seed, shape);
    let mut log = task
        .log
        .as_ref()
        .map(File::create)
        .transpose()?
        .map(BufWriter::new);
    let mut replayed = match &task.replay {
        Some(path) => Some(BufReader::new(File::open(path)?).lines()),
        None => None,
    };
    lockstep
        .whole_tree(&mut generator)
        .context("before the first step")?;
    let mut number = 0;
    let mut succeeded = 0u64;
    while number < task.operations {
        let step = match &mut replayed {
            None => generator.step(),
            Some(lines) => match lines.next() {
                None => break,
                Some(line) => serde_json::from_str(&line?)?,
            },
        };
        if let Some(log) = &mut log {
            writeln!(log, "{}", serde_json::to_string(&step)?)?;
            log.flush()?;
        }
        succeeded += u64::from(lockstep.step(number, &step, &mut generator)?);
        number += 1;
        if task.replay.is_some() {
            continue;
        }
        if number % TREE_EVERY == 0 {
            lockstep
                .whole_tree(&mut generator)
                .with_context(|| format!("after step {number}"))?;
        }
        if number % DROP_EVERY == 0 {
            let context = || format!("after step {number}, with the caches dropped");
            lockstep
                .settled_tree(&mut generator)
                .with_context(context)?;
        }
    }
    lockstep
        .whole_tree(&mut generator)
        .context("after the last step")?;
    if task.replay.is_some() {
        lockstep
            .settled_tree(&mut generator)
            .context("at the end, with the caches dropped")?;
    }
    println!("{number} steps, {succeeded} succeeded");
    for (name, count) in deviations::met() {
        println!("deviation: {name}: {count}");
    }
    Ok(())
}

impl Lockstep {
    /// Does one step on both sides; true when it succeeded.
    fn step(&mut self, number: u64, step: &Step, generator: &mut Generator) -> Result<bool> {
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        let window = self.clock.windows();
        self.last
            .push_back(format!("{number} (window {window}): {step}"));
        let (kernel, finefs) = self.both(step)?;
        if let Some(last) = self.last.back_mut() {
            let _ = write!(last, "  = {}", shown(&kernel));
        }
        if !same(&kernel, &finefs) {
            let is_locked = self.is_locked(step);
            if deviations::allows_outcome(step, &kernel, &finefs, is_locked) {
                for operation in deviations::amends(step) {
                    let who = Who::Root;
                    let _ = self.both(&Step { who, operation })?;
                }
                return self.touched(step, generator).map(|()| kernel.is_ok());
            }
            let more = look::difference(&kernel, &finefs);
            self.differs(&[format!("the kernel: {}\nfinefs: {more}", shown(&kernel))])?;
        }
        for operation in deviations::evens_out(step, &kernel) {
            let who = Who::Root;
            let _ = self.both(&Step { who, operation })?;
        }
        self.touched(step, generator)?;
        Ok(kernel.is_ok())
    }

    /// True when something that the step names, a link to it, or the directory that it is in, is
    /// immutable or append-only.
    fn is_locked(&self, step: &Step) -> bool {
        let root = self.kernel.root();
        let mut paths = Vec::new();
        for path in step.operation.paths() {
            paths.extend([path.clone(), path.parent()]);
            if let Ok(target) = rustix::fs::readlinkat(root, path.0.as_slice(), Vec::new()) {
                let target = path.parent().join(target.as_bytes());
                paths.extend([target.parent(), target]);
            }
        }
        let slots = step.operation.slots().into_iter();
        let mut open = slots.filter_map(|slot| self.kernel.slot(slot).ok());
        paths.iter().any(|path| look::is_locked(root, &path.0))
            || open.any(|fd| look::is_locked(fd, b""))
    }

    /// Does one step on both sides.
    fn both(&mut self, step: &Step) -> Result<(Outcome, Outcome)> {
        let from = now();
        let kernel = act_as(step.who, || self.kernel.execute(&step.operation))?;
        self.clock.window(Which::Kernel, from);
        let from = now();
        let finefs = act_as(step.who, || self.finefs.execute(&step.operation))?;
        self.clock.window(Which::Finefs, from);
        Ok((kernel, finefs))
    }

    /// Compares the attributes of what the step has named.
    fn touched(&mut self, step: &Step, generator: &mut Generator) -> Result<()> {
        let mut found = Vec::new();
        let mut paths = Vec::new();
        for path in step.operation.paths() {
            paths.push(path.clone());
            paths.push(path.parent());
        }
        paths.dedup();
        for path in paths {
            let kernel = Attributes::of(self.kernel.root(), &path.0);
            let finefs = Attributes::of(self.finefs.root(), &path.0);
            let place = format!("{path:?}");
            found.extend(self.compare(&place, &kernel, &finefs));
            if is_plain(&path) {
                generator.learn(&path, kernel.ok().map(|seen| seen.kind));
            }
        }
        for slot in step.operation.slots() {
            let kernel = self
                .kernel
                .slot(slot)
                .and_then(|fd| Attributes::of(fd, b""));
            let finefs = self
                .finefs
                .slot(slot)
                .and_then(|fd| Attributes::of(fd, b""));
            found.extend(self.compare(&format!("open file {slot}"), &kernel, &finefs));
            generator.learn_slot(slot, kernel.ok().map(|seen| seen.kind));
        }
        self.differ(&found)
    }

    fn compare(
        &self,
        place: &str,
        kernel: &Result<Attributes, Errno>,
        finefs: &Result<Attributes, Errno>,
    ) -> Vec<Difference> {
        match (kernel, finefs) {
            (Ok(a), Ok(b)) => {
                let relation = Relation::Beside(&self.clock);
                look::compare_attributes(place, a, b, relation)
            }
            (Err(a), Err(b)) if a == b => Vec::new(),
            (a, b) => {
                let short = |seen: &Result<Attributes, Errno>| match seen {
                    Ok(seen) => format!("{seen:?}"),
                    Err(errno) => outcome::name(*errno),
                };
                let (kernel, finefs) = (short(a), short(b));
                vec![Difference {
                    place: place.to_owned(),
                    field: "stat",
                    kernel,
                    finefs,
                }]
            }
        }
    }

    fn differ(&self, found: &[Difference]) -> Result<()> {
        if found.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = found.iter().take(10).map(ToString::to_string).collect();
        self.differs(&lines)
    }

    fn differs(&self, lines: &[String]) -> Result<()> {
        let last: Vec<&str> = self.last.iter().map(String::as_str).collect();
        bail!(
            "{}\nafter these steps:\n{}",
            lines.join("\n"),
            last.join("\n")
        );
    }

    /// Compares everything with the caches dropped.
    fn settled_tree(&mut self, generator: &mut Generator) -> Result<()> {
        super::write_out([self.kernel.root(), self.finefs.root()])?;
        deviations::settle(true);
        let outcome = self.whole_tree(generator);
        deviations::settle(false);
        outcome
    }

    fn whole_tree(&mut self, generator: &mut Generator) -> Result<()> {
        let from = now();
        let kernel = look::tree(self.kernel.root()).context("the kernel's tree")?;
        self.clock.window(Which::Kernel, from);
        let from = now();
        let finefs = look::tree(self.finefs.root()).context("finefs's tree")?;
        self.clock.window(Which::Finefs, from);
        generator.forget();
        for (path, entry) in &kernel {
            if !path.0.is_empty() {
                generator.learn(path, Some(entry.attributes.kind));
            }
        }
        let relation = Relation::Beside(&self.clock);
        self.differ(&look::compare_trees(&kernel, &finefs, relation))
    }
}

/// True for a path that is written in its shortest form.
fn is_plain(path: &Bytes) -> bool {
    let mut parts = path.0.split(|byte| *byte == b'/');
    parts.all(|part| !part.is_empty() && part != b"." && part != b"..")
}

/// Statfs is compared roughly: metadata is laid out differently, and what was freed counts later.
fn same(kernel: &Outcome, finefs: &Outcome) -> bool {
    let (Ok(Value::Statfs(a)), Ok(Value::Statfs(b))) = (kernel, finefs) else {
        return kernel == finefs;
    };
    let is_near = |a: u64, b: u64| a.abs_diff(b) < 4096;
    a.block == b.block
        && a.name_max == b.name_max
        && a.files == b.files
        && is_near(a.blocks, b.blocks)
        && is_near(a.free, b.free)
        && is_near(a.available, b.available)
}
