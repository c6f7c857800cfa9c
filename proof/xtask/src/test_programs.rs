//! The programs of tests that cargo builds, run side by side.
//!
//! `cargo test` runs one after the other, though many of them mostly wait: for mounts, for servers,
//! for sleeps. The programs are those that cargo tells of (`--message-format=json`); each runs in
//! the directory of its package, as under cargo.

use anyhow::{Context, Result, ensure};
use finefs_harness::cleanup::TempDirs;
use finefs_harness::run;
use finefs_harness::tools;
use serde::Deserialize;
use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A program of tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Of the package.
    pub package: String,
    /// Of the file of tests, or of the library or program in which they stand.
    pub target: String,
    /// True of tests in a library or program, beside what they test.
    pub is_beside_code: bool,
    path: PathBuf,
    /// Of the package.
    directory: PathBuf,
}

/// How programs are run.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    /// What they find in their environment.
    pub env: &'a [(&'a str, &'a str)],
    /// Only tests with this in their names.
    pub filter: Option<&'a str>,
    /// How long each may run.
    pub limit: Duration,
}

/// Programs that take long, by package and target, the longest first: [`run_all`] begins with them,
/// so that none of them is left alone at the end.
pub const LONG: [(&str, &str); 6] = [
    ("finefs-check", "it"),
    ("finefs-ext", "it"),
    ("finefs-cli", "image"),
    ("finefs-testkit", "it"),
    ("finefs-cli", "mounts"),
    ("finefs-ext-disk", "it"),
];

/// So many of the longest are logged.
const LONGEST: usize = 8;

/// A line of cargo's.
#[derive(Deserialize)]
struct Message {
    reason: String,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds by `cargo test` with these arguments; gives the programs.
pub fn build(args: &[&str], env: &[(&str, &str)], limit: Duration) -> Result<Vec<Program>> {
    let mut command = run::cargo(["test", "--quiet", "--no-run"]);
    command
        .arg("--message-format=json-render-diagnostics")
        .args(args)
        .envs(env.iter().copied())
        .current_dir(tools::workspace());
    let output = run::capture_with(&mut command, b"", limit)?;
    ensure!(
        output.status.success() && !output.timed_out,
        "{command:?}: {}\n{}",
        output.status,
        last_words(&output.stderr)
    );
    let programs = programs(&output.stdout)?;
    ensure!(!programs.is_empty(), "{command:?} builds no tests");
    Ok(programs)
}

/// The programs of tests that cargo tells of.
fn programs(messages: &str) -> Result<Vec<Program>> {
    let mut found = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line).context("a message of cargo")?;
        let is_test = message.profile.is_some_and(|profile| profile.test);
        if message.reason != "compiler-artifact" || !is_test {
            continue;
        }
        let (Some(target), Some(path)) = (message.target, message.executable) else {
            continue;
        };
        let manifest = message.manifest_path.context("a program has a package")?;
        let directory = manifest.parent().unwrap_or(Path::new("."));
        found.push(Program {
            package: package_in(directory)?,
            target: target.name,
            is_beside_code: !target.kind.iter().any(|kind| kind == "test"),
            path,
            directory: directory.to_owned(),
        });
    }
    Ok(found)
}

/// The name of the package in a directory.
pub fn package_in(directory: &Path) -> Result<String> {
    let path = directory.join("Cargo.toml");
    let manifest = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let manifest: toml::Table = manifest.parse()?;
    let name = manifest
        .get("package")
        .and_then(|package| package.get("name"));
    let name = name.and_then(toml::Value::as_str);
    Ok(name.context("a package has a name")?.to_owned())
}

impl Program {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs it to its end, with temporary directories of its own.
    pub fn output(&self, how: How<'_>) -> Result<run::Output> {
        let dirs = TempDirs::new()?;
        let mut command = Command::new(&self.path);
        dirs.tell(&mut command);
        command
            .args(how.filter)
            .envs(how.env.iter().copied())
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .env("CARGO_PKG_NAME", &self.package)
            .current_dir(&self.directory);
        run::capture_with(&mut command, b"", how.limit)
    }

    /// Runs it; gives how many tests passed. Of one that fails the error names its failed tests in
    /// the first line, and tells all that they have printed.
    pub fn run(&self, how: How<'_>) -> Result<usize> {
        let output = self.output(how)?;
        let late = if output.timed_out {
            ", out of time"
        } else {
            ""
        };
        ensure!(
            output.status.success() && !output.timed_out,
            "{} {}: {}{late}: {}\n{}{}",
            self.package,
            self.target,
            output.status,
            names_of_failed(&output.stdout).join(", "),
            failed_tests(&output.stdout),
            last_words(&output.stderr)
        );
        Ok(counted(&output.stdout))
    }
}

/// In the order in which they run.
fn in_order(programs: &[Program]) -> Vec<&Program> {
    let place = |program: &&Program| {
        let is_it = |long: &(&str, &str)| *long == (&*program.package, &*program.target);
        LONG.iter().position(is_it).unwrap_or(LONG.len())
    };
    let mut programs: Vec<&Program> = programs.iter().collect();
    programs.sort_by_key(place);
    programs
}

/// Runs all, so many at once, the [`LONG`] ones first; says how many tests passed, and logs which
/// programs took longest.
pub fn run_all(
    programs: &[Program],
    how: How<'_>,
    at_once: usize,
    log: &mut String,
) -> Result<String> {
    let programs = in_order(programs);
    let next = AtomicUsize::new(0);
    let ran = Mutex::new(Vec::new());
    let lane = || {
        while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let started = Instant::now();
            let outcome = program.run(how);
            let one = (started.elapsed(), *program, outcome);
            ran.lock().expect("no lane panics").push(one);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(lane);
        }
    });
    let mut ran = ran.into_inner().expect("no lane panics");
    ran.sort_by_key(|(took, ..)| Reverse(*took));
    for (took, program, _) in ran.iter().take(LONGEST) {
        let (seconds, package) = (took.as_secs_f64(), &program.package);
        log.push_str(&format!("{seconds:6.1} s  {package} {}\n", program.target));
    }
    let (mut passed, mut failures) = (0, Vec::new());
    for (.., outcome) in ran {
        match outcome {
            Ok(count) => passed += count,
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    let heads = failures.iter().filter_map(|failure| failure.lines().next());
    let heads: Vec<&str> = heads.collect();
    ensure!(
        failures.is_empty(),
        "{}\n{}",
        heads.join("\n"),
        failures.join("\n")
    );
    Ok(format!("{passed} tests passed"))
}

/// The names of the tests that failed: the last list of a run's output.
fn names_of_failed(stdout: &str) -> Vec<&str> {
    let Some((_, list)) = stdout.rsplit_once("\nfailures:\n") else {
        return Vec::new();
    };
    let names = list.lines().take_while(|line| line.starts_with("    "));
    names.map(str::trim).collect()
}

/// What tests that failed have printed, and their names.
pub fn failed_tests(stdout: &str) -> String {
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

/// The end of what a program that failed has written to standard error.
pub fn last_words(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// The sum of the tests that passed.
pub fn counted(stdout: &str) -> usize {
    let lines = stdout.lines();
    let results = lines.filter_map(|line| line.strip_prefix("test result: ok. "));
    let passed = results.filter_map(|rest| rest.split(' ').next()?.parse::<usize>().ok());
    passed.sum()
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
        assert_eq!(names_of_failed(stdout), ["one"]);
        assert!(names_of_failed("running 0 tests\n").is_empty());
    }

    #[test]
    fn programs_of_tests_are_told_from_other_programs() {
        let here = tools::workspace().join("proof/xtask");
        let line = |is_test: bool, kind: &str, executable: &str| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "manifest_path": here.join("Cargo.toml"),
                "target": {"name": "style", "kind": [kind]},
                "profile": {"test": is_test},
                "executable": (!executable.is_empty()).then_some(executable),
            })
        };
        let messages = [
            line(false, "bin", "/target/xtask"),
            line(true, "lib", "/target/xtask-1"),
            line(true, "test", "/target/style-2"),
            line(true, "lib", ""),
            serde_json::json!({"reason": "build-finished", "success": true}),
        ];
        let messages = messages.map(|line| line.to_string()).join("\n");
        let found = programs(&messages).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|program| (program.path.to_str().unwrap(), program.is_beside_code))
            .collect();
        assert_eq!(
            found,
            [("/target/xtask-1", true), ("/target/style-2", false)]
        );
        assert_eq!(package_in(&here).unwrap(), "xtask");
    }

    #[test]
    fn long_programs_run_first_and_are_there() {
        let program = |package: &str, target: &str| Program {
            package: package.to_owned(),
            target: target.to_owned(),
            is_beside_code: false,
            path: PathBuf::new(),
            directory: PathBuf::new(),
        };
        let programs = [
            program("a", "it"),
            program("finefs-ext", "it"),
            program("finefs-check", "a"),
            program("finefs-check", "it"),
        ];
        let order = in_order(&programs);
        assert_eq!(order, [3, 1, 0, 2].map(|number| &programs[number]));
        for (package, target) in LONG {
            let parts = ["crates", "proof"].map(|name| tools::workspace().join(name));
            let packages = parts
                .iter()
                .flat_map(|part| std::fs::read_dir(part).unwrap());
            let packages = packages.flatten().map(|entry| entry.path());
            let mut named = packages.filter(|dir| package_in(dir).is_ok_and(|it| it == package));
            let tests = named.next().unwrap().join("tests").join(target);
            assert!(tests.join("main.rs").is_file(), "{package} {target}");
        }
    }

    #[test]
    fn programs_run_side_by_side_and_all_that_fail_are_told() {
        let program = |script: &str| Program {
            package: script.to_owned(),
            target: String::new(),
            is_beside_code: false,
            path: PathBuf::from("/bin/sh"),
            directory: std::env::temp_dir(),
        };
        let programs = ["true", "false"].map(program);
        let how = How {
            env: &[],
            filter: None,
            limit: Duration::from_secs(10),
        };
        // A shell that is told no script reads its standard input, which is empty.
        let mut log = String::new();
        let note = run_all(&programs, how, 2, &mut log).unwrap();
        assert_eq!((note.as_str(), log.lines().count()), ("0 tests passed", 2));
        let how = How {
            filter: Some("/there is/no such script"),
            ..how
        };
        let error = run_all(&programs, how, 2, &mut log)
            .unwrap_err()
            .to_string();
        // Each at the head, and again with what it has printed.
        assert_eq!(error.matches("exit status").count(), 4, "{error}");
    }
}
