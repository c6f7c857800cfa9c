//! Crashes, simulated: runs the simulator of the testkit, which shares the code of finefs, as a
//! program of its own, and shows that it bites: with flushes ignored it must find violations.

use crate::report::Report;
use anyhow::{Result, ensure};
use finefs_harness::run;
use finefs_harness::tools;
use std::process::Command;
use std::time::Duration;

/// How much.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// All workloads of two operations and many states of each: most of an hour on two cores
    #[arg(long)]
    long: bool,
    /// Only these images; all without it
    #[arg(long)]
    image: Vec<String>,
    /// Write the counts into this file, as a table in Markdown
    #[arg(long)]
    table: Option<std::path::PathBuf>,
    /// Every state goes through fsck
    #[arg(long)]
    fsck_all: bool,
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

fn build() -> Result<()> {
    let build = [
        "build",
        "--release",
        "--quiet",
        "--package",
        "finefs-testkit",
        "--bin",
        "finefs-crash",
    ];
    run::ok(run::cmd("cargo", build).current_dir(tools::workspace()))?;
    Ok(())
}

/// Refuses images of a kind that the simulator does not know, before anything runs.
fn check_images(images: &[String]) -> Result<()> {
    run::ok(simulator(1).arg("--list").args(image_args(images)))?;
    Ok(())
}

fn image_args(images: &[String]) -> impl Iterator<Item = &str> {
    images.iter().flat_map(|image| ["--image", image.as_str()])
}

/// Builds the simulator and lets devices fail and lie.
pub fn run_faults(options: &FaultOptions, seed: u64, report: &mut Report) -> Result<()> {
    build()?;
    check_images(&options.image)?;
    report.proof("faults/errors are told, nothing synced is lost", || {
        let mut command = simulator(seed);
        command.args(["--only", "failing device", "--only", "lying device"]);
        if options.long {
            command.arg("--long");
        }
        command.args(image_args(&options.image));
        let said = run::expect_printed(&mut command, LIMIT)?;
        let sum = said.lines().last().unwrap_or_default();
        ensure!(sum.contains("caught"), "no lie was tried:\n{said}");
        Ok(sum.to_owned())
    });
    Ok(())
}

/// Builds the simulator and runs it: as it is, and with lying devices.
pub fn run(options: &Options, seed: u64, report: &mut Report) -> Result<()> {
    build()?;
    check_images(&options.image)?;
    report.proof("crash/every state is right", || {
        let mut command = simulator(seed);
        if options.long {
            command.arg("--long");
        }
        if options.fsck_all {
            command.arg("--fsck-all");
        }
        if let Some(table) = &options.table {
            command.arg("--table").arg(table);
        }
        command.args(image_args(&options.image));
        let said = run::expect_printed(&mut command, LIMIT)?;
        Ok(said.lines().last().unwrap_or_default().to_owned())
    });
    report.proof("crash/over NBD every state is right", || {
        let mut command = simulator(seed);
        command.args(["--nbd", "--image", "ext4-4k", "--only", "sequences of 2"]);
        command.args(["--only", "threads", "--only", "records"]);
        if options.long {
            command.arg("--long");
        }
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
            let mut command = simulator(seed);
            command.args([lie, "--quiet", "--image", image, "--only", "sequences of 2"]);
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

fn simulator(seed: u64) -> Command {
    let mut command = Command::new(tools::target_dir().join("release/finefs-crash"));
    command.args(["--seed", &seed.to_string()]);
    command
}
