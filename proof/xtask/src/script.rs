//! A script at work, which tells line by line what it found: `good NAME` for a check
//! (`guest/functions.sh`), `FAILED` for one that failed, `FINISHED` at its end. A guest runs it
//! ([`crate::guest`]), or this machine, in a mount ([`crate::programs`]).

use anyhow::{Context, Result, bail, ensure};
use finefs_harness::run::{self, Running};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The functions of the scripts.
pub const FUNCTIONS: &str = include_str!("guest/functions.sh");

/// The last line of a script that came to its end.
pub const FINISHED: &str = "FINISHED";

/// What runs a script; killed when it is dropped.
pub struct Script {
    running: Running,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Script {
    /// Starts what runs it, whose standard output tells.
    pub fn start(command: &mut Command) -> Result<Script> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut running = run::spawn(command)?;
        let out = running.take_stdout().context("stdout is piped")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(|line| line.ok()) {
                if sender.send(line.trim_end().to_owned()).is_err() {
                    break;
                }
            }
        });
        Ok(Script {
            running,
            lines,
            seen: Vec::new(),
        })
    }

    /// Reads on until a line ends with this word.
    pub fn wait_for(&mut self, word: &str, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                bail!(
                    "the script ended, or said for too long nothing:\n{}",
                    run::tail(&self.seen.join("\n"))
                );
            };
            ensure!(
                !line.starts_with("FAILED"),
                "{line}\n{}",
                run::tail(&self.seen.join("\n"))
            );
            let is_it = line.ends_with(word);
            self.seen.push(line);
            if is_it {
                return Ok(());
            }
        }
    }

    /// Lines that it said behind this word.
    pub fn said(&self, word: &str) -> String {
        let lines = self.seen.iter().filter_map(|line| line.strip_prefix(word));
        lines.fold(String::new(), |text, line| text + line + "\n")
    }

    /// What it has found good.
    pub fn checks(&self) -> usize {
        let good = self.seen.iter().filter(|line| line.starts_with("good "));
        good.count()
    }

    /// Waits until it is gone; it is killed at the limit, which is then true.
    pub fn end(mut self, limit: Duration) -> Result<bool> {
        let (_, timed_out) = self.running.wait_limit(limit)?;
        Ok(timed_out)
    }
}
