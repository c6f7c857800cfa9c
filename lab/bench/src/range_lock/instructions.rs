//! Instructions of one uncontended acquisition and release, by callgrind: this program runs itself
//! under valgrind with two numbers of repetitions; the difference leaves start and end out.

use super::Visitor;
use super::candidate::Candidate;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::process::Command;

/// Takes and releases a range so many times.
pub struct Alone {
    pub times: u64,
    pub is_write: bool,
}

impl Visitor for Alone {
    type Output = ();
    fn visit<C: Candidate>(&mut self, candidate: C) {
        // The way is chosen before the loop, as a caller's is when it is compiled.
        let start = std::hint::black_box(4096);
        if self.is_write {
            for _ in 0..self.times {
                candidate.hold(start..start + 4096, true, || ());
            }
        } else {
            for _ in 0..self.times {
                candidate.hold(start..start + 4096, false, || ());
            }
        }
    }
}

const FEW: u64 = 10_000;
const MANY: u64 = 30_000;

fn count(name: &str, is_write: bool, times: u64) -> Result<u64> {
    let program = std::env::current_exe()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["range-lock", "--only", name, "--reads"])
        .arg(if is_write { "0" } else { "100" })
        .args(["--alone", &times.to_string()])
        .output()
        .context("valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind: {text}");
    let collected = text
        .lines()
        .find_map(|line| line.split_once("Collected : "))
        .with_context(|| format!("no count in: {text}"))?;
    Ok(collected.1.trim().parse()?)
}

/// A table of instructions per acquisition and release.
pub fn table<'a>(names: impl Iterator<Item = &'a str>) -> Result<String> {
    let mut text = String::from("| instructions, uncontended | write | read |\n|---|---:|---:|\n");
    for name in names {
        let _ = write!(text, "| {name} |");
        for is_write in [true, false] {
            let difference = count(name, is_write, MANY)? - count(name, is_write, FEW)?;
            let _ = write!(text, " {:.1} |", difference as f64 / (MANY - FEW) as f64);
        }
        text.push('\n');
    }
    Ok(text)
}
