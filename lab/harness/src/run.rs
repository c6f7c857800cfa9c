//! Child processes: started by name, output captured, stopped at a time limit.
//!
//! Every child runs in a process group of its own and is registered with [`crate::cleanup`] while
//! it runs, so an interrupted proof leaves no process behind.

use crate::cleanup;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a program may run where the caller names no limit.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(600);

/// How long a program may take to end that is killed, and its output to be read.
const KILL_LIMIT: Duration = Duration::from_secs(10);
const PIPE_LIMIT: Duration = Duration::from_secs(5);

/// How long a mount may be busy that nobody uses.
const BUSY_LIMIT: Duration = Duration::from_secs(20);

/// What a finished program left behind.
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// True when the time limit ended it.
    pub timed_out: bool,
    /// From start to end.
    pub took: Duration,
}

impl Output {
    /// Standard output followed by standard error.
    pub fn both(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// The exit code, or 128 + signal as a shell would say it.
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }
}

/// A command of `program` with `args`.
pub fn cmd<I, S>(program: impl AsRef<OsStr>, args: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(program);
    command.args(args);
    command
}

/// A run of cargo that is the same whoever starts it. What cargo tells a program about its package
/// does not go on to this run: the build scripts that look at it (ring's does) would find it
/// changed, and all that is built on them would be built again, under the feet of who links it.
pub fn cargo<I, S>(args: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = cmd("cargo", args);
    for (name, _) in std::env::vars_os() {
        let is_of_a_package = ["CARGO_MANIFEST_", "CARGO_PKG_"]
            .iter()
            .any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()));
        if is_of_a_package {
            command.env_remove(name);
        }
    }
    command
}

/// Runs `command` to its end or to `limit`, feeding it `input`. What it has left behind may hold
/// its output open: that is waited for until the limit, too.
pub fn capture_with(command: &mut Command, input: &[u8], limit: Duration) -> Result<Output> {
    let name = format!("{command:?}");
    let started = Instant::now();
    let mut child = spawn(
        command
            .stdin(if input.is_empty() {
                Stdio::null()
            } else {
                Stdio::piped()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    )?;
    let out = chunks(child.inner.stdout.take().context("stdout is piped")?);
    let err = chunks(child.inner.stderr.take().context("stderr is piped")?);
    if let Some(mut stdin) = child.inner.stdin.take() {
        let input = input.to_vec();
        // A program may end without reading all of it; its status tells what that means.
        std::thread::spawn(move || stdin.write_all(&input));
    }
    let waited = child.wait_limit(limit);
    let (status, timed_out) = waited.with_context(|| format!("waiting for {name}"))?;
    let deadline = (started + limit).max(Instant::now() + PIPE_LIMIT);
    let (stdout, is_all) = gather(&out, deadline);
    let (stderr, is_all_of_errors) = gather(&err, deadline);
    Ok(Output {
        status,
        stdout,
        stderr,
        timed_out: timed_out || !is_all || !is_all_of_errors,
        took: started.elapsed(),
    })
}

/// What comes from a pipe, read by a thread that nobody waits for.
fn chunks(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, chunks) = channel();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        // A read error here means the child is gone; what came before it is what there is.
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if sender.send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    chunks
}

/// All that has come until the end, which is then true, or until the deadline.
fn gather(chunks: &Receiver<Vec<u8>>, deadline: Instant) -> (String, bool) {
    let mut bytes = Vec::new();
    let is_all = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match chunks.recv_timeout(left) {
            Ok(chunk) => bytes.extend(chunk),
            Err(error) => break error == RecvTimeoutError::Disconnected,
        }
    };
    (String::from_utf8_lossy(&bytes).into_owned(), is_all)
}

/// [`capture_with`] without input and with the default limit.
pub fn capture(command: &mut Command) -> Result<Output> {
    capture_with(command, b"", DEFAULT_LIMIT)
}

/// Runs `command`; anything but exit status 0 is an error that carries its output.
pub fn ok(command: &mut Command) -> Result<Output> {
    let output = capture(command)?;
    expect_ok(&format!("{command:?}"), output)
}

/// Runs what unmounts. A child that another thread is about to start holds our open files until it
/// executes, so "busy" is given a moment.
pub fn unmount(command: &mut Command, limit: Duration) -> Result<Output> {
    let started = Instant::now();
    loop {
        let output = capture_with(command, b"", limit)?;
        let is_busy = output.stderr.contains("busy") && output.code() != 0;
        if !is_busy || started.elapsed() > BUSY_LIMIT {
            return expect_ok(&format!("{command:?}"), output);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Turns an [`Output`] that is not a success into an error with the end of its output.
pub fn expect_ok(what: &str, output: Output) -> Result<Output> {
    if output.timed_out {
        bail!(
            "{what}: ran into its time limit after {:?}\n{}",
            output.took,
            tail(&output.both())
        );
    }
    if !output.status.success() {
        bail!(
            "{what}: ended with {}\n{}",
            output.code(),
            tail(&output.both())
        );
    }
    Ok(output)
}

/// The last 30 lines of `text`.
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

/// A child process that is killed when it is dropped while running.
#[derive(Debug)]
pub struct Running {
    inner: Child,
    _entry: cleanup::Entry,
    ended: bool,
}

/// Starts `command` in a process group of its own.
pub fn spawn(command: &mut Command) -> Result<Running> {
    cleanup::halt_if_interrupted();
    let inner = command
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let entry = cleanup::process(inner.id());
    Ok(Running {
        inner,
        _entry: entry,
        ended: false,
    })
}

impl Running {
    /// The process id.
    pub fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// The child's standard output, when piped and not yet taken.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.inner.stdout.take()
    }

    /// The exit status if the process has ended.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.inner.try_wait()?;
        self.ended |= status.is_some();
        Ok(status)
    }

    /// Waits until the end or `limit`; at the limit the whole group is ended. True = ended so.
    pub fn wait_limit(&mut self, limit: Duration) -> Result<(ExitStatus, bool)> {
        match self.wait_until(Instant::now() + limit)? {
            Some(status) => Ok((status, false)),
            None => Ok((self.end_group()?, true)),
        }
    }

    /// The exit status once the process has ended; none at the deadline.
    fn wait_until(&mut self, deadline: Instant) -> Result<Option<ExitStatus>> {
        let mut pause = Duration::from_micros(200);
        loop {
            let status = self.try_wait()?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Asks the group to end, gives it the time to end what it has started itself in other groups,
    /// and kills what is left.
    fn end_group(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + cleanup::CLEANUP_LIMIT;
        cleanup::ask_group(self.pid());
        self.wait_until(deadline)?;
        while cleanup::has_group(self.pid()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        cleanup::kill_group(self.pid());
        let status = self.wait_until(Instant::now() + KILL_LIMIT)?;
        status.with_context(|| format!("process {} cannot be killed", self.pid()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            cleanup::kill_group(self.inner.id());
            let _ = self.wait_until(Instant::now() + KILL_LIMIT);
        }
    }
}

/// Runs `command` with its output shown as it comes, and returned; anything but status 0 is an
/// error.
pub fn expect_printed(command: &mut Command, limit: Duration) -> Result<String> {
    let name = format!("{command:?}");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let mut child = spawn(command)?;
    let out = child.inner.stdout.take().context("stdout is piped")?;
    let lines = printed_lines(out);
    let (status, timed_out) = child.wait_limit(limit)?;
    let (text, is_all) = gather(&lines, Instant::now() + PIPE_LIMIT);
    let timed_out = timed_out || !is_all;
    if timed_out || !status.success() {
        bail!(
            "{name}: {status}{}",
            if timed_out { ", out of time" } else { "" }
        );
    }
    Ok(text)
}

/// As [`chunks`], line by line, each of which is printed.
fn printed_lines(out: ChildStdout) -> Receiver<Vec<u8>> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(std::io::Result::ok) {
            println!("  {line}");
            if sender.send((line + "\n").into_bytes()).is_err() {
                break;
            }
        }
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, kill_process, test_kill_process};

    fn shell(script: &str) -> Command {
        cmd("sh", ["-c", script])
    }

    #[test]
    fn at_its_limit_a_program_can_clean_up() {
        let script = "trap 'echo cleaned; exit 7' TERM; echo begun; sleep 600 & wait";
        // A busy machine may be late to start it.
        let mut limits = [1, 10, 60].map(Duration::from_secs).into_iter();
        let ended = limits.find_map(|limit| {
            let output = capture_with(&mut shell(script), b"", limit).unwrap();
            output.stdout.starts_with("begun").then_some(output)
        });
        let ended = ended.expect("it begins");
        assert!(ended.timed_out);
        assert_eq!(
            (ended.code(), ended.stdout.as_str()),
            (7, "begun\ncleaned\n")
        );
    }

    #[test]
    fn what_lives_on_and_holds_the_output_is_not_waited_for_after_the_limit() {
        let script = "setsid sleep 60 & echo $!";
        let mut limits = [1, 10, 60].map(Duration::from_secs).into_iter();
        let output = limits.find_map(|limit| {
            let output = capture_with(&mut shell(script), b"", limit).unwrap();
            (!output.stdout.is_empty()).then_some(output)
        });
        let output = output.expect("it says what it has started");
        let survivor: i32 = output.stdout.trim().parse().unwrap();
        let survivor = Pid::from_raw(survivor).unwrap();
        test_kill_process(survivor).unwrap();
        kill_process(survivor, Signal::KILL).unwrap();
        assert!(output.timed_out);
    }

    #[test]
    fn cargo_is_not_told_of_the_package_that_starts_it() {
        // Cargo, and what runs the tests in its place, set it.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let command = cargo(["--version"]);
        let mut removed = command.get_envs().filter(|(_, value)| value.is_none());
        assert!(removed.any(|(name, _)| name == "CARGO_MANIFEST_DIR"));
    }
}
