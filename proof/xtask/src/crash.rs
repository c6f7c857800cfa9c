//! Crashes, simulated: runs the simulator of the testkit, which shares the code of finefs, as a
//! program of its own, and shows that it bites: with flushes ignored it must find violations.

use crate::report::Report;
use anyhow::{Result, ensure};
use finefs_harness::cleanup::TempDirs;
use finefs_harness::run;
use finefs_harness::tools;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How much.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// All workloads of two operations and many states of each: most of an hour on two cores
    #[arg(long)]
    long: bool,
    /// A third of the workloads of several operations
    #[arg(long, conflicts_with = "long")]
    ci: bool,
    /// Only these images; all without it
    #[arg(long)]
    image: Vec<String>,
    /// Write the counts into this file, as a table in Markdown
    #[arg(long)]
    table: Option<PathBuf>,
    /// Every state goes through fsck
    #[arg(long)]
    fsck_all: bool,
    /// The program finefs-crash, which is built without it
    #[arg(long)]
    simulator: Option<PathBuf>,
}

impl Options {
    fn most(&self) -> &'static [&'static str] {
        match self.ci {
            true => &["--most", "50"],
            false => &[],
        }
    }
}

const LIMIT: Duration = Duration::from_secs(24 * 3600);

/// How many failures of a device.
#[derive(clap::Args, Debug)]
pub struct FaultOptions {
    /// Every request fails in every way, not a sample of them: minutes
    #[arg(long)]
    long: bool,
    /// Only these images; all without it
    #[arg(long)]
    image: Vec<String>,
}

/// Builds the simulator, unless it is given; where it is.
fn simulator(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let build = [
        "build",
        "--release",
        "--quiet",
        "--package",
        "finefs-testkit",
    ];
    let mut command = run::cargo(build);
    command.args(["--bin", "finefs-crash"]);
    run::ok(command.current_dir(tools::workspace()))?;
    Ok(tools::target_dir().join("release/finefs-crash"))
}

/// The program, and where it puts what it shows to fsck.
struct Simulator {
    path: PathBuf,
    dirs: TempDirs,
}

impl Simulator {
    fn new(given: Option<&Path>) -> Result<Simulator> {
        Ok(Simulator {
            path: simulator(given)?,
            dirs: TempDirs::new()?,
        })
    }

    /// Refuses images of a kind that the simulator does not know, before anything runs.
    fn check_images(&self, images: &[String]) -> Result<()> {
        run::ok(run::cmd(&self.path, ["--list"]).args(image_args(images)))?;
        Ok(())
    }

    fn seeded(&self, seed: u64) -> Command {
        let mut command = run::cmd(&self.path, ["--seed", &seed.to_string()]);
        self.dirs.tell(&mut command);
        command
    }
}

fn image_args(images: &[String]) -> impl Iterator<Item = &str> {
    images.iter().flat_map(|image| ["--image", image.as_str()])
}

/// Builds the simulator and lets devices fail and lie.
pub fn run_faults(options: &FaultOptions, seed: u64, report: &mut Report) -> Result<()> {
    let program = &Simulator::new(None)?;
    program.check_images(&options.image)?;
    report.proof("faults/errors are told, nothing synced is lost", || {
        let mut command = program.seeded(seed);
        command.args(["--only", "failing device", "--only", "lying device"]);
        if options.long {
            command.arg("--long");
        }
        command.args(image_args(&options.image));
        let said = run::expect_printed(&mut command, LIMIT)?;
        let sum = said.lines().last().unwrap_or_default();
        ensure!(caught(sum) > 0, "no lie was caught:\n{said}");
        Ok(sum.to_owned())
    });
    Ok(())
}

/// Builds the simulator and runs it: as it is, and with lying devices.
pub fn run(options: &Options, seed: u64, report: &mut Report) -> Result<()> {
    let program = &Simulator::new(options.simulator.as_deref())?;
    program.check_images(&options.image)?;
    report.proof("crash/every state is right", || {
        let mut command = program.seeded(seed);
        if options.long {
            command.arg("--long");
        }
        command.args(options.most());
        if options.fsck_all {
            command.arg("--fsck-all");
        }
        if let Some(table) = &options.table {
            command.arg("--table").arg(table);
        }
        command.args(image_args(&options.image));
        let said = run::expect_printed(&mut command, LIMIT)?;
        let sum = said.lines().last().unwrap_or_default();
        let has_lies = !options.image.is_empty() || caught(sum) > 0;
        ensure!(has_lies, "no lie of a device was caught:\n{said}");
        Ok(sum.to_owned())
    });
    report.proof("crash/over NBD every state is right", || {
        let mut command = program.seeded(seed);
        command.args(["--nbd", "--image", "ext4-4k", "--only", "sequences of 2"]);
        command.args(["--only", "threads", "--only", "records"]);
        if options.long {
            command.arg("--long");
        }
        command.args(options.most());
        let said = run::expect_printed(&mut command, LIMIT)?;
        Ok(said.lines().last().unwrap_or_default().to_owned())
    });
    // Synced things are lost without flushes; without the barrier, files show bytes of others.
    for (image, lie, kind) in [
        ("ext4-1k", "--without-flushes", "Tree="),
        ("ext4-1k", "--without-barrier", "Data="),
        ("reiserfs-1k", "--without-flushes", "Tree="),
        ("reiserfs-1k", "--without-barrier", "Data="),
    ] {
        report.proof(&format!("crash/{lie} is found on {image}"), || {
            let mut command = program.seeded(seed);
            command.args([lie, "--quiet", "--image", image, "--only", "sequences of 2"]);
            if options.ci {
                // Of fewer workloads hardly one shows the bytes of another file.
                command.args(["--most", "130"]);
            }
            let output = run::capture_with(&mut command, b"", LIMIT)?;
            let said = output.stdout.lines().last().unwrap_or_default();
            ensure!(
                output.code() == 1 && said.contains(kind),
                "no violation of the kind {kind:?} was found:\n{}",
                output.both()
            );
            Ok(said.to_owned())
        });
    }
    Ok(())
}

/// Of a closing line, how many lies of a device were noticed.
fn caught(sum: &str) -> u64 {
    let before = sum.split_once(" caught").map_or("", |(before, _)| before);
    let number = before.rsplit(' ').next().unwrap_or_default();
    number.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lies_that_were_caught_are_counted() {
        assert_eq!(caught("5 states, lies: 12 caught, 3 stale"), 12);
        assert_eq!(caught("5 states, lies: 0 caught, 3 stale"), 0);
        assert_eq!(caught("5 states"), 0);
    }
}
