//! `make test`: everything that proves the project, one line each, in a fixed order from cheap to
//! dear.

use crate::images;
use crate::public_api;
use crate::python;
use crate::report::Report;
use crate::setup;
use crate::style;
use crate::tsan;
use anyhow::{Result, ensure};
use finefs_harness::run;
use finefs_harness::tools;
use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

/// What to run.
#[derive(clap::Args, Debug, Default)]
pub struct Options {
    /// Only the steps whose names contain this
    #[arg(long)]
    only: Vec<String>,
    /// Full sizes everywhere: up to three hours on two cores
    #[arg(long)]
    full: bool,
}

/// The tests for shuttle that lie in a library, beside what they look into: its package, and a part
/// of their names. The others there cannot run under shuttle.
const SHUTTLE_IN_LIBRARY: [(&str, &str); 2] = [
    ("finefs-namespace", "while_their_bucket_is_cut"),
    ("finefs-namespace", "all_unsynced_blocks"),
];
const BUILD_LIMIT: Duration = Duration::from_secs(3000);
/// Of a proof, and of one in full size.
const PROOF_LIMIT: Duration = Duration::from_secs(3000);
const FULL_PROOF_LIMIT: Duration = Duration::from_secs(24 * 3600);

impl Options {
    fn proof_limit(&self) -> Duration {
        match self.full {
            true => FULL_PROOF_LIMIT,
            false => PROOF_LIMIT,
        }
    }

    /// The proofs that run as root, by their names, and what they are told.
    fn proofs(&self, table: &str) -> Vec<(&'static str, Vec<String>)> {
        let by_size = |usual: &[&str], full: &[&str]| {
            let chosen = if self.full { full } else { usual };
            chosen.iter().map(ToString::to_string).collect()
        };
        vec![
            ("teeth", Vec::new()),
            ("bad-input", Vec::new()),
            ("unprivileged", Vec::new()),
            ("mkfs", by_size(&["--random", "60"], &["--random", "2000"])),
            ("images", Vec::new()),
            ("acl", Vec::new()),
            ("pjdfstest", vec!["--write".into(), table.into()]),
            ("fsx", Vec::new()),
            (
                "differential",
                by_size(&["--operations", "20000"], &["--operations", "200000"]),
            ),
            (
                "differential",
                by_size(
                    &["--processes", "4", "--operations", "20000"],
                    &["--processes", "4", "--operations", "200000"],
                ),
            ),
            ("crash", by_size(&[], &["--long"])),
            ("faults", by_size(&[], &["--long"])),
            ("kill", by_size(&["--times", "20"], &["--times", "200"])),
            (
                "nfs",
                by_size(&["--kills", "1"], &["--kills", "10", "--long"]),
            ),
            ("reiserfs", by_size(&[], &["--long"])),
            ("boot", Vec::new()),
            (
                "memory",
                by_size(&["--files", "200000", "--cache-mib", "16"], &[]),
            ),
            ("soak", by_size(&["--minutes", "1"], &["--minutes", "30"])),
            ("matrix", by_size(&["--ci"], &[])),
        ]
    }
}

/// Runs the steps; an error when any failed.
pub fn run(options: &Options) -> Result<()> {
    setup::run()?;
    let mut suite = Suite::new(options);
    suite.lints();
    suite.dependencies();
    suite.step("public API", || public_api::run(false));
    suite.cargo(
        "unit and integration tests",
        &["test", "--workspace", "--quiet", "--no-fail-fast"],
        if options.full {
            &[("FINEFS_FULL", "1")]
        } else {
            &[]
        },
    );
    let without_meter = [
        "test",
        "--quiet",
        "--no-fail-fast",
        "-p",
        "finefs-lockmeter",
        "--features",
        "off",
    ];
    suite.cargo("lockmeter without the meter", &without_meter, &[]);
    suite.step("Python package", python::run);
    suite.scheduler_tests();
    suite.step("prove tsan", || {
        let note = tsan::all_locks()?;
        tsan::without_a_lock()?;
        tsan::memory_store()?;
        Ok(note)
    });
    let sizes: &[&str] = if options.full { &[] } else { &["--ci"] };
    let limit = options.proof_limit();
    suite.step("prove lock-teeth", || {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["prove", "lock-teeth"]).args(sizes);
        let output = run::expect_printed(&mut command, limit)?;
        Ok(output.lines().last().unwrap_or_default().to_owned())
    });
    suite.cargo(
        "release build",
        &["build", "--release", "--quiet", "-p", "finefs-cli"],
        &[],
    );
    suite.proofs()?;
    suite.finish()
}

/// Steps that are run and counted.
pub(crate) struct Suite<'a> {
    options: &'a Options,
    report: Report,
}

impl<'a> Suite<'a> {
    pub(crate) fn new(options: &'a Options) -> Self {
        let report = Report::default();
        Suite { options, report }
    }

    pub(crate) fn finish(self) -> Result<()> {
        self.report.finish()
    }

    /// What is seen without running anything: format, style, clippy.
    pub(crate) fn lints(&mut self) {
        self.cargo("format", &["fmt", "--all", "--check"], &[]);
        self.step("style", || {
            style::run(&tools::workspace())?;
            Ok("rules hold".into())
        });
        let clippy = ["clippy", "--workspace", "--all-targets", "--quiet"];
        let args = [&clippy[..], &["--", "-D", "warnings"]].concat();
        self.cargo("clippy", &args, &[]);
        // The workspace has all features on: the command line and the lab want them.
        let embedded = ["clippy", "-p", "finefs", "-p", "finefs-fuse", "--quiet"];
        let args = [&embedded[..], &["--", "-D", "warnings"]].concat();
        self.cargo("clippy, as embedded", &args, &[]);
        let slim = ["clippy", "-p", "finefs-cli", "--no-default-features"];
        let args = [
            &slim[..],
            &["--all-targets", "--quiet", "--", "-D", "warnings"],
        ]
        .concat();
        self.cargo("clippy, without features", &args, &[]);
    }

    /// What finefs is built of, by deny.toml but for advisories, whose database is not everywhere
    /// in reach; and whether what is published can be packed.
    fn dependencies(&mut self) {
        self.step("cargo deny", || deny(&["licenses", "bans", "sources"]));
        let publish = ["publish", "--dry-run", "--no-verify", "--allow-dirty"];
        let args = [&publish[..], &["--workspace", "--quiet"]].concat();
        self.cargo("publish, a dry run", &args, &[]);
    }

    fn wanted(&self, name: &str) -> bool {
        let only = &self.options.only;
        only.is_empty() || only.iter().any(|part| name.contains(part.as_str()))
    }

    pub(crate) fn step(&mut self, name: &str, step: impl FnOnce() -> Result<String>) {
        if self.wanted(name) {
            self.report.proof(name, step);
        }
    }

    pub(crate) fn cargo(&mut self, name: &str, args: &[&str], env: &[(&str, &str)]) {
        self.step(name, || {
            let output = run_cargo(args, env)?;
            Ok(counted(&output))
        });
    }

    /// Packages with tests for shuttle and loom, found by their files: `tests/shuttle*.rs` run with
    /// the feature `shuttle`, `tests/loom*.rs` with `--cfg loom`; and [`SHUTTLE_IN_LIBRARY`].
    fn scheduler_tests(&mut self) {
        for (directory, package) in packages() {
            let tests = test_files(&directory);
            let named = |prefix: &str| {
                tests
                    .iter()
                    .filter(|test| test.starts_with(prefix))
                    .cloned()
                    .collect::<Vec<_>>()
            };
            for test in named("shuttle") {
                let args = [
                    "test",
                    "--quiet",
                    "-p",
                    &package,
                    "--features",
                    "shuttle",
                    "--test",
                    &test,
                ];
                self.cargo(&format!("shuttle {package} {test}"), &args, &[]);
            }
            for test in named("loom") {
                // A build directory of its own, or the flag would rebuild everything twice.
                let target = tools::target_dir().join("loom");
                let args = [
                    "test",
                    "--quiet",
                    "--release",
                    "-p",
                    &package,
                    "--test",
                    &test,
                ];
                let env = [
                    ("RUSTFLAGS", "--cfg loom"),
                    ("CARGO_TARGET_DIR", target.to_str().unwrap_or("target/loom")),
                ];
                self.cargo(&format!("loom {package} {test}"), &args, &env);
            }
        }
        for (package, test) in SHUTTLE_IN_LIBRARY {
            let features = ["--features", "shuttle"];
            let args = [
                &["test", "--quiet", "-p", package],
                &features[..],
                &["--lib", test],
            ];
            let args = args.concat();
            self.step(&format!("shuttle {package} {test}"), || {
                let note = counted(&run_cargo(&args, &[])?);
                ensure!(!note.is_empty(), "{package} has no such test");
                Ok(note)
            });
        }
    }

    /// The proofs, each a run of this program as root.
    fn proofs(&mut self) -> Result<()> {
        let table = tools::target_dir().join("pjdfstest.md");
        let proofs = self.options.proofs(&table.to_string_lossy());
        let limit = self.options.proof_limit();
        let program = std::env::current_exe()?;
        for (proof, args) in proofs {
            let name = &format!("prove {proof}");
            if !self.wanted(name) {
                continue;
            }
            if proof == "images" && !images::beside().is_dir() {
                let place = images::beside().display().to_string();
                self.report
                    .skip(name, &format!("no damaged images in {place}"));
                continue;
            }
            let Some(mut command) = as_root(program.clone().into()) else {
                self.report.skip(name, "needs root, and there is no sudo");
                continue;
            };
            command.args(["prove", proof]).args(args).arg("--finefs");
            command.arg(tools::target_dir().join("release/finefs"));
            self.step(name, || {
                let output = run::expect_printed(&mut command, limit)?;
                Ok(output.lines().last().unwrap_or_default().to_owned())
            });
        }
        Ok(())
    }
}

/// Checks the dependencies by these parts of deny.toml.
pub fn deny(parts: &[&str]) -> Result<String> {
    let mut command = run::cmd(setup::cargo_deny()?, ["--log-level", "error", "check"]);
    run::ok(command.args(parts).current_dir(tools::workspace()))?;
    Ok(parts.join(", "))
}

/// A command that runs `program` as root, when that is possible.
fn as_root(program: OsString) -> Option<Command> {
    if tools::is_root() {
        return Some(Command::new(program));
    }
    let mut command = Command::new(tools::which("sudo")?);
    command.arg(program);
    Some(command)
}

fn run_cargo(args: &[&str], env: &[(&str, &str)]) -> Result<String> {
    let mut command = run::cmd("cargo", args);
    command
        .current_dir(tools::workspace())
        .envs(env.iter().copied());
    let output = run::capture_with(&mut command, b"", BUILD_LIMIT)?;
    ensure!(
        output.status.success() && !output.timed_out,
        "{command:?}\n{}{}",
        failed_tests(&output.stdout),
        last_words(&output.stderr)
    );
    Ok(output.both())
}

/// What tests that failed have printed, and their names, of each program of tests that has any.
fn failed_tests(stdout: &str) -> String {
    let mut said = String::new();
    let mut inside = false;
    for line in stdout.lines() {
        inside = (inside || line == "failures:") && !line.starts_with("test result: ");
        if inside && !line.is_empty() {
            said.push_str(line);
            said.push('\n');
        }
    }
    said
}

/// The end of what a failed cargo run has written to standard error.
fn last_words(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// The sum of the tests that a cargo run counted.
fn counted(text: &str) -> String {
    let passed: usize = text
        .lines()
        .filter_map(|line| line.strip_prefix("test result: ok. "))
        .filter_map(|rest| rest.split(' ').next()?.parse::<usize>().ok())
        .sum();
    if passed > 0 {
        format!("{passed} tests passed")
    } else {
        String::new()
    }
}

fn packages() -> Vec<(std::path::PathBuf, String)> {
    let mut found = Vec::new();
    let buildings = ["crates", "lab", "proof"].map(|name| tools::workspace().join(name));
    let entries = buildings.iter().map(std::fs::read_dir);
    for entry in entries.flatten().flatten().flatten() {
        let manifest = std::fs::read_to_string(entry.path().join("Cargo.toml")).unwrap_or_default();
        let name = manifest
            .parse::<toml::Table>()
            .ok()
            .and_then(|table| Some(table.get("package")?.get("name")?.as_str()?.to_owned()));
        found.extend(name.map(|name| (entry.path(), name)));
    }
    found.sort();
    found
}

/// The names of the integration tests of the package in `directory`.
fn test_files(directory: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory.join("tests"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_failed_run_the_failed_tests_are_shown() {
        let stdout = "running 2 tests\n.F\nfailures:\n\n---- one stdout ----\n\npanicked: why\n\n\n\
                      failures:\n    one\n\ntest result: FAILED. 1 passed; 1 failed\n\
                      running 1 test\n.\ntest result: ok. 1 passed\n";
        assert_eq!(
            failed_tests(stdout),
            "failures:\n---- one stdout ----\npanicked: why\nfailures:\n    one\n"
        );
    }

    #[test]
    fn full_sizes_are_asked_of_every_proof_that_has_them() {
        let proofs = |full| {
            let only = Vec::new();
            Options { only, full }.proofs("table")
        };
        let by_size = [
            "mkfs",
            "differential",
            "crash",
            "faults",
            "kill",
            "nfs",
            "reiserfs",
            "memory",
            "soak",
            "matrix",
        ];
        for ((name, usual), (_, full)) in proofs(false).into_iter().zip(proofs(true)) {
            assert_eq!(usual != full, by_size.contains(&name), "{name}");
        }
    }
}
