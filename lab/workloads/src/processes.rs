//! A crew of processes: each runs this program again as a worker, with one thread.
//!
//! # Protocol
//! The parent writes one line of JSON, a [`Task`], to the worker's standard input. The worker
//! answers with lines of JSON, each a [`Line`]: that it is ready, how far it is, what it measured.
//! When all are ready the parent writes `go`. The end of its input means to a worker that it shall
//! stop and clean up; so a parent that dies leaves no workers behind.

use crate::error::{Result, WorkloadError};
use crate::plan::{Plan, Watch};
use crate::targets::{Errno, HostDirectory};
use crate::threads::{self, Tally, first_cause};
use crate::workload::Workload;
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

const GO: &str = "go";

/// How often the parent looks whether it shall stop.
const SLICE: Duration = Duration::from_millis(50);

/// What a worker process shall do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub workload: String,
    parameters: serde_json::Value,
    directory: PathBuf,
    index: usize,
    plan: Plan,
}

/// What a worker process says.
#[derive(Debug, Serialize, Deserialize)]
enum Line<D> {
    Ready,
    Progress(f64),
    Measured(Tally<D>),
    /// It failed, or is one of those that stopped because another did.
    Failed {
        line: String,
        is_consequence: bool,
    },
}

/// Runs one worker process for each of the plan's crew. `command` is this program as a worker,
/// which calls [`crate::serve`].
pub(crate) fn run<W: Workload>(
    workload: &W,
    target: &HostDirectory,
    plan: &Plan,
    command: &mut dyn FnMut() -> Command,
    watch: Watch<'_>,
) -> Result<Tally<W::Detail>> {
    let (sender, receiver) = channel();
    let mut children = Children::default();
    for index in 0..plan.crew.count() {
        let task = Task {
            workload: W::NAME.to_owned(),
            parameters: serde_json::to_value(workload).map_err(broken)?,
            directory: target.path().to_owned(),
            index,
            plan: *plan,
        };
        children.start(command(), &task, sender.clone())?;
    }
    drop(sender);
    let mut gate = || workload.settle(target);
    let tallies = children.direct::<W>(&receiver, &mut gate, watch)?;
    tallies
        .into_iter()
        .reduce(|mut all, more| {
            all.add(more);
            all
        })
        .ok_or_else(|| WorkloadError::Parameters("a crew of no processes".to_owned()))
}

/// What was heard of a child: a line, or that there will be none any more.
type Heard = (usize, Option<String>);

#[derive(Default)]
struct Children {
    children: Vec<Child>,
    inputs: Vec<Option<ChildStdin>>,
}

impl Children {
    fn start(&mut self, mut command: Command, task: &Task, sender: Sender<Heard>) -> Result<()> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| refused(&error, task, &command))?;
        let output = child.stdout.take();
        self.inputs.push(child.stdin.take());
        self.children.push(child);
        let index = task.index;
        std::thread::spawn(move || {
            let lines = output
                .into_iter()
                .flat_map(|out| BufReader::new(out).lines());
            for line in lines.map_while(std::result::Result::ok) {
                if sender.send((index, Some(line))).is_err() {
                    return;
                }
            }
            let _ = sender.send((index, None));
        });
        let task = serde_json::to_string(task).map_err(broken)?;
        self.write(index, &task)
    }

    fn write(&mut self, index: usize, line: &str) -> Result<()> {
        let input = self.inputs[index].as_mut();
        input
            .map_or(Ok(()), |input| writeln!(input, "{line}"))
            .map_err(|error| failed(format!("a worker process went away: {error}")))
    }

    fn stop(&mut self) {
        self.inputs.iter_mut().for_each(|input| *input = None);
    }

    /// Starts all together, when all are ready and `gate` has returned, and gathers what they say,
    /// until the last one has ended.
    fn direct<W: Workload>(
        &mut self,
        heard: &Receiver<Heard>,
        gate: &mut dyn FnMut() -> Result<()>,
        watch: Watch<'_>,
    ) -> Result<Vec<Tally<W::Detail>>> {
        let count = self.children.len();
        let mut results: Vec<Option<Result<Tally<W::Detail>>>> = (0..count).map(|_| None).collect();
        let mut shares = vec![0.0; count];
        let (mut ready, mut running) = (0, count);
        while running > 0 {
            if watch.stop.load(Ordering::Relaxed) {
                self.stop();
            }
            let (index, line) = match heard.recv_timeout(SLICE) {
                Ok(heard) => heard,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let Some(line) = line else {
                running -= 1;
                if !matches!(results[index], Some(Ok(_))) {
                    self.stop();
                }
                continue;
            };
            match serde_json::from_str(&line).map_err(broken)? {
                Line::Ready => {
                    ready += 1;
                    if ready == count {
                        gate()?;
                        (0..count).try_for_each(|index| self.write(index, GO))?;
                    }
                }
                Line::Progress(share) => {
                    shares[index] = share;
                    (watch.progress)(shares.iter().sum::<f64>() / count as f64);
                }
                Line::Measured(tally) => results[index] = Some(Ok(tally)),
                Line::Failed {
                    line,
                    is_consequence,
                } => {
                    results[index] = Some(Err(match is_consequence {
                        true => WorkloadError::Interrupted,
                        false => WorkloadError::Process(line),
                    }));
                }
            }
        }
        let silent = || Err(failed("a worker process ended without a result".to_owned()));
        let results = results
            .into_iter()
            .map(|result| result.unwrap_or_else(silent));
        first_cause(results.collect())
    }
}

impl Drop for Children {
    /// Nobody is left behind.
    fn drop(&mut self) {
        self.stop();
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

/// The first line of a worker's input.
pub(crate) fn read_task(input: &mut dyn BufRead) -> Result<Task> {
    let mut line = String::new();
    input
        .read_line(&mut line)
        .map_err(|error| failed(error.to_string()))?;
    serde_json::from_str(&line).map_err(broken)
}

/// A worker's life: does `task` and tells the parent through `output`.
pub(crate) fn serve<W: Workload>(
    task: Task,
    input: impl BufRead + Send + 'static,
    output: &mut (dyn Write + Send),
    stop: &Arc<AtomicBool>,
) -> Result<()> {
    let workload: W = serde_json::from_value(task.parameters).map_err(broken)?;
    let (gone, go) = channel();
    let parent_is_gone = Arc::clone(stop);
    std::thread::spawn(move || {
        for line in input.lines().map_while(std::result::Result::ok) {
            if line == GO {
                let _ = gone.send(());
            }
        }
        parent_is_gone.store(true, Ordering::Relaxed);
    });
    let (lines, to_write) = channel::<Line<W::Detail>>();
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || to_write.iter().try_for_each(|line| say(output, &line)));
        let progress = lines.clone();
        let directory = &task.directory;
        let outcome = HostDirectory::open(directory)
            .map_err(|error| failed(format!("{}: {error}", directory.display())))
            .and_then(|directory| {
                let mut gate = || {
                    let _ = lines.send(Line::Ready);
                    go.recv().map_err(|_| WorkloadError::Interrupted)
                };
                let watch = Watch {
                    stop,
                    progress: &|share| drop(progress.send(Line::Progress(share))),
                    ..Watch::nobody()
                };
                let indices = task.index..task.index + 1;
                threads::run(&workload, &directory, &task.plan, indices, &mut gate, watch)
            });
        let _ = lines.send(match outcome {
            Ok(tally) => Line::Measured(tally),
            Err(error) => Line::Failed {
                line: error.to_string(),
                is_consequence: matches!(error, WorkloadError::Interrupted),
            },
        });
        drop((lines, progress));
        writer.join().unwrap_or(Err(WorkloadError::Panicked))
    })
}

/// A worker process could not be started: names the limit, where it is one.
fn refused(error: &std::io::Error, task: &Task, command: &Command) -> WorkloadError {
    let limited = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => Some((Resource::Nofile, "ulimit -n", ", of which each takes two")),
        Some(Errno::AGAIN) => Some((Resource::Nproc, "ulimit -u", "")),
        _ => None,
    };
    let (number, count) = (task.index + 1, task.plan.crew.count());
    failed(match limited {
        Some((resource, name, more)) => {
            let limit = getrlimit(resource).current;
            let limit = limit.map_or("none".to_owned(), |limit| limit.to_string());
            format!(
                "cannot start worker process {number} of {count}: {error}; the limit ({name}) is {limit}{more}"
            )
        }
        None => format!("{}: {error}", command.get_program().display()),
    })
}

fn say<D: Serialize>(output: &mut dyn Write, line: &Line<D>) -> Result<()> {
    let line = serde_json::to_string(line).map_err(broken)?;
    writeln!(output, "{line}")
        .and_then(|()| output.flush())
        .map_err(|error| failed(error.to_string()))
}

fn failed(line: String) -> WorkloadError {
    WorkloadError::Process(line)
}

fn broken(error: serde_json::Error) -> WorkloadError {
    failed(format!("the talk with a worker process broke: {error}"))
}
