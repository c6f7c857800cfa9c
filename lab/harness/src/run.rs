//! Child processes: started by name, output captured, stopped at a time limit.
//!
//! Every child runs in a process group of its own and is registered with [`crate::cleanup`] while
//! it runs, so an interrupted proof leaves no process behind.

use crate::cleanup;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a program may run where the caller names no limit.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(600);

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

/// Runs `command` to its end or to `limit`, feeding it `input`.
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
    let out = child.inner.stdout.take().context("stdout is piped")?;
    let err = child.inner.stderr.take().context("stderr is piped")?;
    let stdin = child.inner.stdin.take();
    let (stdout, stderr, status) = std::thread::scope(|scope| {
        let out = scope.spawn(move || read_all(out));
        let err = scope.spawn(move || read_all(err));
        if let Some(mut stdin) = stdin {
            // A program may end without reading all of it; its status tells what that means.
            scope.spawn(move || stdin.write_all(input));
        }
        let status = child.wait_limit(limit);
        (
            out.join().unwrap_or_default(),
            err.join().unwrap_or_default(),
            status,
        )
    });
    let (status, timed_out) = status.with_context(|| format!("waiting for {name}"))?;
    Ok(Output {
        status,
        stdout,
        stderr,
        timed_out,
        took: started.elapsed(),
    })
}

fn read_all(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    // A read error here means the child is gone; what came before it is what there is.
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
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
    pub fn take_stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.inner.stdout.take()
    }

    /// The exit status if the process has ended.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.inner.try_wait()?;
        self.ended |= status.is_some();
        Ok(status)
    }

    /// Waits until the end or `limit`; at the limit the whole group is killed. True = killed.
    pub fn wait_limit(&mut self, limit: Duration) -> Result<(ExitStatus, bool)> {
        let deadline = Instant::now() + limit;
        let mut pause = Duration::from_micros(200);
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok((status, false));
            }
            if Instant::now() >= deadline {
                cleanup::kill_group(self.pid());
                let status = self.inner.wait()?;
                self.ended = true;
                return Ok((status, true));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            cleanup::kill_group(self.inner.id());
            let _ = self.inner.wait();
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
    let (text, outcome) = std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut text = String::new();
            for line in BufReader::new(out).lines().map_while(std::io::Result::ok) {
                println!("  {line}");
                text.push_str(&line);
                text.push('\n');
            }
            text
        });
        let outcome = child.wait_limit(limit);
        (reader.join().unwrap_or_default(), outcome)
    });
    let (status, timed_out) = outcome?;
    if timed_out || !status.success() {
        bail!(
            "{name}: {status}{}",
            if timed_out { ", out of time" } else { "" }
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_not_told_of_the_package_that_starts_it() {
        // Cargo, and what runs the tests in its place, set it.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let command = cargo(["--version"]);
        let mut removed = command.get_envs().filter(|(_, value)| value.is_none());
        assert!(removed.any(|(name, _)| name == "CARGO_MANIFEST_DIR"));
    }
}
