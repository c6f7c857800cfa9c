//! `make test`: everything that proves the project, in steps that run side by side, one line each
//! in a fixed order.

use crate::images;
use crate::public_api;
use crate::python;
use crate::report::Report;
use crate::schedule::{self, Step};
use crate::setup;
use crate::style;
use crate::test_programs::{self, How, Program, counted, failed_tests, last_words};
use crate::tsan;
use anyhow::{Context, Result, ensure};
use finefs_harness::cleanup::TempDirs;
use finefs_harness::run;
use finefs_harness::tools;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// What to run.
#[derive(clap::Args, Debug, Default)]
pub struct Options {
    /// Only the steps whose names contain this, and what they need
    #[arg(long)]
    only: Vec<String>,
    /// Full sizes everywhere: up to three hours on two cores
    #[arg(long)]
    full: bool,
    /// So many steps at once; without it one more than there are processors
    #[arg(long)]
    lanes: Option<usize>,
}

/// The tests for shuttle that lie in a library, beside what they look into: its package, whose
/// manifest names its library [`SHUTTLE_INSIDE`] as a program of tests, and a part of their names.
/// The others there cannot run under shuttle.
const SHUTTLE_IN_LIBRARY: [(&str, &str); 2] = [
    ("finefs-namespace", "while_their_bucket_is_cut"),
    ("finefs-namespace", "all_unsynced_blocks"),
];
const SHUTTLE_INSIDE: &str = "shuttle_inside";
const BUILD_LIMIT: Duration = Duration::from_secs(3000);
/// Of a proof or a program of tests, and of one in full size.
const PROOF_LIMIT: Duration = Duration::from_secs(3000);
const FULL_PROOF_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Where cargo builds, and only once at a time.
const DEBUG: &str = "debug";
const PROFILE: &str = "proof";
const LOOM: &str = "loom";
const TSAN: &str = "tsan";

/// Programs of tests that run at once, each with a thread for each processor.
const TESTS_AT_ONCE: usize = 2;

const UNIT: &str = "unit and integration tests";

/// Steps that others need.
const TESTS_BUILT: &str = "build of the tests";
const SHUTTLE_BUILT: &str = "build for shuttle";
const PROGRAMS_BUILT: &str = "build of what proofs run";
const TOOLS_INSTALLED: &str = "conformance tools";

/// About how many seconds the longest steps take on two cores when nothing is built, and in full
/// size: the order in which steps begin goes by it, and nothing else.
const SECONDS: &[(&str, u64, u64)] = &[
    (TESTS_BUILT, 580, 580),
    (UNIT, 450, 2400),
    ("prove nfs", 430, 3000),
    (SHUTTLE_BUILT, 200, 200),
    (PROGRAMS_BUILT, 270, 400),
    ("prove reiserfs", 180, 3000),
    ("prove crash", 130, 1800),
    ("prove matrix", 100, 1200),
    ("prove memory", 70, 1500),
    ("prove acl", 60, 300),
    ("prove pjdfstest", 60, 60),
    ("prove lock-teeth", 120, 1500),
    ("prove tsan", 55, 55),
    ("prove images", 55, 600),
    ("prove boot", 55, 55),
    ("prove fsx", 50, 300),
    ("prove programs", 40, 1500),
    ("prove soak", 25, 1800),
    ("prove mkfs", 10, 900),
    ("prove kill", 20, 600),
    ("prove differential", 20, 600),
    ("prove encrypted", 420, 420),
    ("prove ceph", 600, 600),
];

impl Options {
    fn lanes(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        self.lanes.unwrap_or(processors + 1)
    }

    /// By which what the proofs run is built: what users get, in a full run.
    fn profile(&self) -> &'static str {
        match self.full {
            true => "release",
            false => PROFILE,
        }
    }

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
        let mut proofs = vec![
            ("teeth", Vec::new()),
            ("bad-input", Vec::new()),
            ("unprivileged", Vec::new()),
            ("mkfs", by_size(&["--random", "60"], &["--random", "2000"])),
            ("build", by_size(&["--archive-mib", "1024"], &[])),
            ("images", by_size(&[], &["--long"])),
            ("acl", by_size(&[], &["--long"])),
            ("pjdfstest", vec!["--write".into(), table.into()]),
            ("fsx", by_size(&["--operations", "6000"], &[])),
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
            // Among it what `prove faults` tries.
            ("crash", by_size(&["--ci"], &["--long"])),
            ("kill", by_size(&["--times", "20"], &["--times", "200"])),
            (
                "nfs",
                by_size(&["--kills", "1"], &["--kills", "10", "--long"]),
            ),
            ("programs", by_size(&[], &["--long"])),
            ("reiserfs", by_size(&[], &["--long"])),
            ("boot", Vec::new()),
            (
                "memory",
                by_size(
                    &["--files", "100000", "--cache-mib", "8"],
                    &["--times", "2"],
                ),
            ),
            (
                "soak",
                by_size(
                    &["--seconds", "20", "--cache-mib", "128"],
                    &["--minutes", "30"],
                ),
            ),
            ("matrix", by_size(&["--quick"], &[])),
        ];
        if self.full {
            let limited = ["--minutes", "10", "--cache-mib", "128"];
            proofs.push(("soak", limited.map(String::from).into()));
            // Seven minutes, of a guest without instructions for AES.
            proofs.push(("encrypted", Vec::new()));
            // Its packages are large.
            proofs.push(("ceph", Vec::new()));
        }
        proofs
    }
}

/// Runs the steps; an error when any failed.
pub fn run(options: &Options) -> Result<()> {
    setup::system()?;
    let suite = Suite::new(options)?;
    let mut report = Report::default();
    let steps = schedule::chosen(suite.steps(), &options.only);
    schedule::run(steps, options.lanes(), &mut report);
    report.finish()
}

/// What steps leave for others.
struct Suite<'a> {
    options: &'a Options,
    /// This program, which proves.
    program: OsString,
    tests: OnceLock<Vec<Program>>,
    shuttle: OnceLock<Vec<Program>>,
}

impl<'a> Suite<'a> {
    fn new(options: &'a Options) -> Result<Suite<'a>> {
        Ok(Suite {
            options,
            program: std::env::current_exe()?.into(),
            tests: OnceLock::new(),
            shuttle: OnceLock::new(),
        })
    }

    /// All steps, in the order in which they are told.
    fn steps(&self) -> Vec<Step<'_>> {
        let mut steps = lints();
        steps.insert(1, self.build_of_programs());
        steps.extend(dependencies());
        steps.extend(self.tests());
        steps.extend(self.scheduler_tests());
        steps.extend(self.lock_tests());
        steps.extend(self.proofs());
        steps.into_iter().map(|step| self.timed(step)).collect()
    }

    /// The step, which knows how long it takes.
    fn timed<'s>(&self, step: Step<'s>) -> Step<'s> {
        let known = SECONDS.iter().find(|(name, ..)| *name == step.name());
        match known {
            Some((_, _, full)) if self.options.full => step.takes(*full),
            Some((_, usual, _)) => step.takes(*usual),
            None => step,
        }
    }

    /// finefs, and the crash simulator.
    fn build_of_programs(&self) -> Step<'_> {
        let build = ["build", "--quiet", "--profile", self.options.profile()];
        let packages = ["-p", "finefs-cli", "-p", "finefs-testkit"];
        let programs = ["--bin", "finefs", "--bin", "finefs-crash"];
        let args = [&build[..], &packages, &programs].concat();
        cargo(PROGRAMS_BUILT, &args).builds_in(PROFILE)
    }

    /// Where it leaves them.
    fn built(&self, program: &str) -> PathBuf {
        tools::target_dir()
            .join(self.options.profile())
            .join(program)
    }

    /// How programs of tests are run.
    fn how(&self) -> How<'static> {
        How {
            env: match self.options.full {
                true => &[("FINEFS_BUILT", "1"), ("FINEFS_FULL", "1")],
                false => &[("FINEFS_BUILT", "1")],
            },
            filter: None,
            limit: self.options.proof_limit(),
        }
    }

    fn tests(&self) -> Vec<Step<'_>> {
        let build = Step::new(TESTS_BUILT, |_| {
            let programs = test_programs::build(&["--workspace"], &[], BUILD_LIMIT)?;
            let note = format!("{} programs", programs.len());
            let _ = self.tests.set(programs);
            Ok(note)
        });
        let all = Step::new(UNIT, |log| {
            let programs = self.tests.get().context("they are built")?;
            test_programs::run_all(programs, self.how(), TESTS_AT_ONCE, log)
        });
        let documented = ["test", "--workspace", "--doc", "--quiet", "--no-fail-fast"];
        // The usual run builds of the workspace what hangs on that feature, and nothing else anew.
        let meter: &[&str] = match self.options.full {
            true => &["-p", "finefs-lockmeter", "--features", "off"],
            false => &[
                "--workspace",
                "--features",
                "finefs-lockmeter/off",
                "--test",
                "off",
            ],
        };
        let meter = [&["test", "--quiet"], meter].concat();
        vec![
            build.builds_in(DEBUG),
            all.needs(TESTS_BUILT),
            cargo("tests in documentation", &documented).builds_in(DEBUG),
            cargo("lockmeter without the meter", &meter).builds_in(DEBUG),
            Step::new("Python package", |_| python::run()).builds_in(DEBUG),
        ]
    }

    /// Tests for shuttle and loom, found by their files: `tests/shuttle*.rs` run with the feature
    /// `shuttle`, `tests/loom*.rs` with `--cfg loom`; and [`SHUTTLE_IN_LIBRARY`].
    fn scheduler_tests(&self) -> Vec<Step<'_>> {
        let found = |prefix: &str| -> Vec<(String, String)> {
            let tests = |(directory, package): (PathBuf, String)| {
                let tests = test_files(&directory).into_iter();
                tests.map(move |test| (package.clone(), test))
            };
            let all = packages().into_iter().flat_map(tests);
            all.filter(|(_, test)| test.starts_with(prefix)).collect()
        };
        let shuttle = found("shuttle");
        let mut packages: Vec<String> = shuttle.iter().map(|(name, _)| name.clone()).collect();
        packages.dedup();
        let build = Step::new(SHUTTLE_BUILT, move |_| {
            let programs = build_for_shuttle(&packages)?;
            let note = format!("{} programs", programs.len());
            let _ = self.shuttle.set(programs);
            Ok(note)
        });
        let mut steps = vec![build.builds_in(DEBUG)];
        for (package, test) in shuttle {
            let name = format!("shuttle {package} {test}");
            let run = move |_: &mut String| self.under_shuttle(&package, &test, None);
            steps.push(Step::new(name, run).needs(SHUTTLE_BUILT));
        }
        for (package, test) in SHUTTLE_IN_LIBRARY {
            let name = format!("shuttle {package} {test}");
            let run = move |_: &mut String| self.under_shuttle(package, SHUTTLE_INSIDE, Some(test));
            steps.push(Step::new(name, run).needs(SHUTTLE_BUILT));
        }
        for (package, test) in found("loom") {
            let name = format!("loom {package} {test}");
            let run = move |_: &mut String| under_loom(&package, &test);
            steps.push(Step::new(name, run).builds_in(LOOM));
        }
        steps
    }

    /// Runs the tests of a program, or those with `filter` in their names.
    fn under_shuttle(&self, package: &str, target: &str, filter: Option<&str>) -> Result<String> {
        let programs = self.shuttle.get().context("they are built")?;
        let is_it = |program: &&Program| {
            !program.is_beside_code && program.package == package && program.target == target
        };
        let program = programs.iter().find(is_it).context("no such tests")?;
        let how = How {
            filter,
            ..self.how()
        };
        let passed = program.run(how)?;
        ensure!(passed > 0, "{package} has no such test");
        Ok(format!("{passed} tests passed"))
    }

    fn lock_tests(&self) -> Vec<Step<'_>> {
        let sanitized = Step::new("prove tsan", |_| {
            let programs = tsan::Programs::build()?;
            let note = tsan::all_locks(&programs)?;
            tsan::without_a_lock(&programs)?;
            tsan::memory_store(&programs)?;
            Ok(note)
        });
        let teeth = Step::new("prove lock-teeth", |log| {
            let mut command = Command::new(&self.program);
            command.args(["prove", "lock-teeth"]);
            command.args((!self.options.full).then_some("--ci"));
            logged(&mut command, self.options.proof_limit(), log)
        });
        vec![sanitized.builds_in(TSAN), teeth.builds_in(DEBUG)]
    }

    /// The proofs, each a run of this program as root.
    fn proofs(&self) -> Vec<Step<'_>> {
        let tools = Step::new(TOOLS_INSTALLED, |_| setup::conformance_tools());
        let mut steps = vec![tools];
        let table = tools::target_dir().join("pjdfstest.md");
        for (proof, args) in self.options.proofs(&table.to_string_lossy()) {
            let step = self.proof(proof, args).needs(PROGRAMS_BUILT);
            steps.push(match proof {
                "pjdfstest" | "fsx" | "nfs" => step.needs(TOOLS_INSTALLED),
                _ => step,
            });
        }
        steps
    }

    fn proof(&self, proof: &str, args: Vec<String>) -> Step<'_> {
        let name = format!("prove {proof}");
        if proof == "images" && !images::beside().is_dir() {
            let place = images::beside().display().to_string();
            return Step::impossible(name, format!("no damaged images in {place}"));
        }
        let Some(mut command) = as_root(&self.program) else {
            return Step::impossible(name, "needs root, and there is no sudo");
        };
        command.args(["prove", proof]).args(args).arg("--finefs");
        command.arg(self.built("finefs"));
        if proof == "crash" {
            command.arg("--simulator").arg(self.built("finefs-crash"));
        }
        let limit = self.options.proof_limit();
        Step::new(name, move |log| logged(&mut command, limit, log))
    }
}

/// What is seen without running anything: format, style, clippy.
pub(crate) fn lints<'a>() -> Vec<Step<'a>> {
    let style = Step::new("style", |_| {
        style::run(&tools::workspace())?;
        Ok("rules hold".into())
    });
    let clippy = |name: &str, what: &[&str]| {
        let args = [&["clippy", "--quiet"], what, &["--", "-D", "warnings"]].concat();
        cargo(name, &args).builds_in(DEBUG)
    };
    // The workspace has all features on: the command line and the lab want them.
    let embedded = ["-p", "finefs", "-p", "finefs-fuse"];
    let slim = ["-p", "finefs-cli", "--no-default-features", "--all-targets"];
    vec![
        cargo("format", &["fmt", "--all", "--check"]),
        style,
        clippy("clippy", &["--workspace", "--all-targets"]),
        clippy("clippy, as embedded", &embedded),
        clippy("clippy, without features", &slim),
    ]
}

/// What finefs is built of, by deny.toml but for advisories, whose database is not everywhere in
/// reach; whether what is published can be packed, and what it offers.
fn dependencies<'a>() -> Vec<Step<'a>> {
    let publish = ["publish", "--dry-run", "--no-verify", "--allow-dirty"];
    let publish = [&publish[..], &["--workspace", "--quiet"]].concat();
    vec![
        Step::new("cargo deny", |_| deny(&["licenses", "bans", "sources"])),
        cargo("publish, a dry run", &publish),
        Step::new("public API", |_| public_api::run(false)).builds_in("public-api"),
    ]
}

/// A run of cargo.
pub(crate) fn cargo<'a>(name: &str, args: &[&str]) -> Step<'a> {
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    Step::new(name, move |_| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let said = run_cargo(&args, &[])?;
        match args.first() {
            Some(&"test") => some_passed(&said),
            _ => Ok(String::new()),
        }
    })
}

/// The tests for shuttle of these packages, all in one build: of the workspace, as all others are
/// built, so that only what hangs on the feature is built again.
fn build_for_shuttle(packages: &[String]) -> Result<Vec<Program>> {
    let features = packages.iter().map(|package| format!("{package}/shuttle"));
    let features = features.collect::<Vec<_>>().join(",");
    let args = ["--workspace", "--features", &features, "--test", "shuttle*"];
    test_programs::build(&args, &[], BUILD_LIMIT)
}

/// In a build directory of its own, or the flag would rebuild everything twice.
fn under_loom(package: &str, test: &str) -> Result<String> {
    let target = tools::target_dir().join(LOOM);
    let args = [
        "test",
        "--quiet",
        "--release",
        "-p",
        package,
        "--test",
        test,
    ];
    let target = target.to_string_lossy();
    let env = [
        ("RUSTFLAGS", "--cfg loom"),
        ("CARGO_TARGET_DIR", &*target),
        ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ];
    some_passed(&run_cargo(&args, &env)?)
}

/// How many tests passed by what cargo said; none is an error.
fn some_passed(said: &str) -> Result<String> {
    let passed = counted(said);
    ensure!(passed > 0, "no test ran");
    Ok(format!("{passed} tests passed"))
}

/// Runs a proof, which prints a line for each part; its last line.
fn logged(command: &mut Command, limit: Duration, log: &mut String) -> Result<String> {
    let output = run::capture_with(command, b"", limit)?;
    log.push_str(&output.stdout);
    let late = if output.timed_out {
        ", out of time"
    } else {
        ""
    };
    let failed = output.stdout.lines();
    let failed: Vec<&str> = failed.filter(|line| line.starts_with("failed: ")).collect();
    ensure!(
        output.status.success() && !output.timed_out,
        "{command:?}: {}{late}\n{}\n{}",
        output.status,
        failed.join("\n"),
        last_words(&output.stderr)
    );
    Ok(output.stdout.lines().last().unwrap_or_default().to_owned())
}

/// Checks the dependencies by these parts of deny.toml.
pub fn deny(parts: &[&str]) -> Result<String> {
    let mut command = run::cmd(setup::cargo_deny()?, ["--log-level", "error", "check"]);
    run::ok(command.args(parts).current_dir(tools::workspace()))?;
    Ok(parts.join(", "))
}

/// A command that runs `program` as root, when that is possible.
fn as_root(program: &OsStr) -> Option<Command> {
    if tools::is_root() {
        return Some(Command::new(program));
    }
    let mut command = Command::new(tools::which("sudo")?);
    command.arg(program);
    Some(command)
}

fn run_cargo(args: &[&str], env: &[(&str, &str)]) -> Result<String> {
    let dirs = TempDirs::new()?;
    let mut command = run::cargo(args);
    command
        .current_dir(tools::workspace())
        .envs(env.iter().copied());
    dirs.tell(&mut command);
    let output = run::capture_with(&mut command, b"", BUILD_LIMIT)?;
    ensure!(
        output.status.success() && !output.timed_out,
        "{command:?}\n{}{}",
        match failed_tests(&output.stdout) {
            none if none.is_empty() => last_words(&output.stdout),
            failed => failed,
        },
        last_words(&output.stderr)
    );
    Ok(output.both())
}

/// The packages of the workspace: directory and name.
fn packages() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let buildings = ["crates", "lab", "proof"].map(|name| tools::workspace().join(name));
    let entries = buildings.iter().map(std::fs::read_dir);
    for entry in entries.flatten().flatten().flatten() {
        let name = test_programs::package_in(&entry.path());
        found.extend(name.ok().map(|name| (entry.path(), name)));
    }
    found.sort();
    found
}

/// The names of the integration tests of the package in `directory`.
fn test_files(directory: &Path) -> Vec<String> {
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
    fn every_step_whose_seconds_are_known_is_there() {
        let options = Options {
            full: true,
            ..Options::default()
        };
        let suite = Suite::new(&options).unwrap();
        let steps = suite.steps();
        for (name, ..) in SECONDS {
            assert!(steps.iter().any(|step| step.name() == *name), "{name}");
        }
    }

    #[test]
    fn no_tests_prove_nothing() {
        assert!(some_passed("running 0 tests\ntest result: ok. 0 passed; 0 failed\n").is_err());
        let two = some_passed("test result: ok. 2 passed; 0 failed\n");
        assert_eq!(two.unwrap(), "2 tests passed");
    }

    #[test]
    fn full_sizes_are_asked_of_every_proof_that_has_them() {
        let proofs = |full| {
            let options = Options {
                full,
                ..Options::default()
            };
            options.proofs("table")
        };
        let by_size = [
            "mkfs",
            "build",
            "images",
            "acl",
            "fsx",
            "differential",
            "crash",
            "kill",
            "nfs",
            "programs",
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
