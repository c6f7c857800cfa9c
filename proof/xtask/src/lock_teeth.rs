//! Shows that the tests of the locks and of syncs bite: each line on which a protocol hangs is left
//! out or weakened, and the test that is there for it must then fail.
//!
//! The lines stand in `tests/teeth.toml` of the packages [`TESTED`]. All changes are made at once
//! in a copy of the workspace, each behind a switch that an environment variable chooses at run
//! time: so each kind of tests is built once, and the run without a change uses the very same
//! program.

use crate::report::Report;
use anyhow::{Context, Result, bail, ensure};
use finefs_harness::cleanup::TempDirs;
use finefs_harness::run;
use finefs_harness::tools;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// One change.
#[derive(Deserialize)]
struct Tooth {
    /// What the line is for.
    name: String,
    /// Whose tests they are, below `crates`.
    #[serde(skip)]
    tested: &'static str,
    /// The package that is changed, below `crates`. Without: the one whose tests they are.
    package: Option<String>,
    /// Below its `src`.
    file: PathBuf,
    /// Occurs once in the file. Without: all of the file.
    within: Option<String>,
    /// An expression or statements, once in `within`.
    text: String,
    /// For `text`. Without: nothing.
    instead: Option<String>,
    /// `loom`, `shuttle` or a file whose name begins with it, `lib`, or a file of tests with real
    /// threads.
    suite: String,
    /// The test that must fail.
    test: String,
}

impl Tooth {
    /// The source of the package that is changed, below the workspace.
    fn source(&self) -> PathBuf {
        let package = self.package.as_deref().unwrap_or(self.tested);
        Path::new("crates").join(package).join("src")
    }

    /// The program with the test: of which package, and its name.
    fn program(&self) -> (&'static str, &str) {
        (self.tested, &self.suite)
    }
}

#[derive(Deserialize)]
struct Teeth {
    tooth: Vec<Tooth>,
}

/// The packages that have such lists, below `crates`.
const TESTED: [&str; 2] = ["locks", "ext"];

/// By which the changed crate is told its change.
const CHOICE: &str = "FINEFS_TOOTH";

/// Added to the changed crate: whether a change is chosen.
const SWITCH: &str = r#"
pub(crate) fn tooth(number: usize) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
    let choice = || std::env::var("FINEFS_TOOTH").ok()?.parse().ok();
    *CHOSEN.get_or_init(choice) == Some(number)
}
"#;

const BUILD_LIMIT: Duration = Duration::from_secs(1200);
/// Of a test as it is.
const WHOLE_LIMIT: Duration = Duration::from_secs(600);
/// A changed test hangs that still runs after this, and after so many times what it takes as it is:
/// nobody wakes its waiters.
const HANG_LIMIT: Duration = Duration::from_secs(60);
const HANG_TIMES: u32 = 5;

/// Which changes are tried.
#[derive(clap::Args)]
pub struct Options {
    /// Only lines in whose descriptions this occurs
    #[arg(long)]
    only: Option<String>,
    /// Only the first line of each file that a test under loom or shuttle is for
    #[arg(long)]
    ci: bool,
}

/// Runs every test that a change names, without a change and with it.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let teeth = read()?;
    let copy = copy(&teeth)?;
    let mut programs = BTreeMap::new();
    let wanted = wanted(&teeth, options);
    for (_, tooth) in &wanted {
        let (package, suite) = tooth.program();
        if let Entry::Vacant(place) = programs.entry(tooth.program()) {
            place.insert(build(&copy, package, suite)?);
        }
    }
    let mut whole: Vec<_> = wanted
        .iter()
        .map(|(_, tooth)| (tooth.program(), tooth.test.as_str()))
        .collect();
    whole.sort_unstable();
    whole.dedup();
    let mut took = BTreeMap::new();
    for (program, test) in whole {
        report.proof(&format!("lock-teeth/untouched {test} passes"), || {
            let place = package_copy(program.0);
            let output = run_test(&programs[&program], &place, test, None, WHOLE_LIMIT)?;
            let output = run::expect_ok(test, output)?;
            ensure!(output.stdout.contains("1 passed"), "{}", output.both());
            took.insert((program, test), output.took);
            Ok(String::new())
        });
    }
    for (number, tooth) in wanted {
        report.proof(&format!("lock-teeth/{}", tooth.name), || {
            let (program, place) = (&programs[&tooth.program()], package_copy(tooth.tested));
            let untouched = took.get(&(tooth.program(), tooth.test.as_str()));
            let limit = hang_limit(*untouched.context("its untouched test does not pass")?);
            let output = run_test(program, &place, &tooth.test, Some(number), limit)?;
            if output.timed_out {
                return Ok(format!("{} hangs", tooth.test));
            }
            ensure!(!output.status.success(), "{} passes", tooth.test);
            Ok(format!("{} fails", tooth.test))
        });
    }
    Ok(())
}

/// After which a changed test hangs that takes so long as it is.
fn hang_limit(untouched: Duration) -> Duration {
    HANG_LIMIT.max(untouched * HANG_TIMES)
}

/// All lists, one behind the other.
fn read() -> Result<Vec<Tooth>> {
    let mut all = Vec::new();
    for tested in TESTED {
        let path = tools::workspace()
            .join("crates")
            .join(tested)
            .join("tests/teeth.toml");
        let teeth: Teeth = toml::from_str(&fs::read_to_string(path)?).context(tested)?;
        let teeth = teeth.tooth.into_iter();
        all.extend(teeth.map(|tooth| Tooth { tested, ..tooth }));
    }
    Ok(all)
}

/// The changes that are tried, with their numbers.
fn wanted<'a>(teeth: &'a [Tooth], options: &Options) -> Vec<(usize, &'a Tooth)> {
    let mut files = BTreeSet::new();
    let mut is_wanted = |tooth: &Tooth| {
        let only = options.only.as_deref();
        let mut is_sample = || {
            let is_scheduled = tooth.suite == "loom" || tooth.suite.starts_with("shuttle");
            is_scheduled && files.insert(tooth.source().join(&tooth.file))
        };
        only.is_none_or(|only| tooth.name.contains(only)) && (!options.ci || is_sample())
    };
    let all = teeth.iter().enumerate();
    all.filter(|(_, tooth)| is_wanted(tooth)).collect()
}

/// Runs a test in the directory `place`.
fn run_test(
    program: &Path,
    place: &Path,
    test: &str,
    tooth: Option<usize>,
    limit: Duration,
) -> Result<run::Output> {
    let dirs = TempDirs::new()?;
    let mut command = Command::new(program);
    dirs.tell(&mut command);
    // In the copy: proptest writes down there what failed.
    command.arg(test).env_remove(CHOICE).current_dir(place);
    if let Some(number) = tooth {
        command.env(CHOICE, number.to_string());
    }
    run::capture_with(&mut command, b"", limit)
}

/// Where the workspace with the changes is.
fn copy_place() -> PathBuf {
    target().join("workspace")
}

/// A package there.
fn package_copy(package: &str) -> PathBuf {
    copy_place().join("crates").join(package)
}

/// A workspace with all changes in it. What is in it already is not touched: cargo goes by the
/// times of files.
fn copy(teeth: &[Tooth]) -> Result<PathBuf> {
    let fresh = target().join("fresh");
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    make(&fresh, teeth)?;
    mirror(&fresh, &copy_place())?;
    fs::remove_dir_all(&fresh)?;
    Ok(copy_place())
}

/// Makes that workspace.
fn make(to: &Path, teeth: &[Tooth]) -> Result<()> {
    let from = tools::workspace();
    for name in ["crates", "lab", "proof"] {
        copy_directory(&from.join(name), &to.join(name))?;
    }
    for name in ["Cargo.lock", "Cargo.toml"] {
        fs::copy(from.join(name), to.join(name))?;
    }
    let mut edits: BTreeMap<PathBuf, Vec<Edit>> = BTreeMap::new();
    let mut roots = BTreeSet::new();
    for (number, tooth) in teeth.iter().enumerate() {
        let source = to.join(tooth.source());
        let path = source.join(&tooth.file);
        let text = fs::read_to_string(&path)?;
        let edit = edit(&text, number, tooth).with_context(|| tooth.name.clone())?;
        edits.entry(path).or_default().push(edit);
        roots.insert(source.join("lib.rs"));
    }
    for (path, mut edits) in edits {
        let mut text = fs::read_to_string(&path)?;
        edits.sort_by_key(|edit| std::cmp::Reverse(edit.at));
        let mut before = text.len();
        for same in edits.chunk_by(|a, b| (a.at, a.length) == (b.at, b.length)) {
            let (at, end) = (same[0].at, same[0].at + same[0].length);
            ensure!(end <= before, "two changes overlap in {}", path.display());
            before = at;
            let changed = changed_by_all(&text[at..end], same);
            text.replace_range(at..end, &changed);
        }
        fs::write(path, text)?;
    }
    for root in roots {
        let text = fs::read_to_string(&root)? + SWITCH;
        fs::write(root, text)?;
    }
    Ok(())
}

/// The text with several changes of it, of which each that is not made leaves the next.
fn changed_by_all(text: &str, edits: &[Edit]) -> String {
    let mut changed = text.to_owned();
    for edit in edits {
        let kept = edit
            .text
            .rfind(text)
            .expect("a change keeps the text, for when it is not made");
        let mut outer = edit.text.clone();
        outer.replace_range(kept..kept + text.len(), &changed);
        changed = outer;
    }
    changed
}

struct Edit {
    at: usize,
    length: usize,
    text: String,
}

fn edit(file: &str, number: usize, tooth: &Tooth) -> Result<Edit> {
    let (start, within) = match &tooth.within {
        None => (0, file),
        Some(within) => (once(file, within)?, within.as_str()),
    };
    let at = start + once(within, &tooth.text)?;
    let (text, instead) = (&tooth.text, tooth.instead.as_deref());
    let is_statement = text.ends_with([';', '}']);
    let text = match (is_statement, instead) {
        (true, None) => format!("if !crate::tooth({number}) {{ {text} }}"),
        (true, Some(instead)) => {
            format!("if crate::tooth({number}) {{ {instead} }} else {{ {text} }}")
        }
        (false, Some(instead)) => {
            format!("(if crate::tooth({number}) {{ {instead} }} else {{ {text} }})")
        }
        (false, None) => bail!("an expression needs something instead"),
    };
    Ok(Edit {
        at,
        length: tooth.text.len(),
        text,
    })
}

fn once(text: &str, part: &str) -> Result<usize> {
    let mut found = text.match_indices(part);
    let (at, _) = found.next().with_context(|| format!("no {part:?}"))?;
    ensure!(found.next().is_none(), "{part:?} occurs more than once");
    Ok(at)
}

fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_directory(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// Makes a directory the same as another one, and writes only files that differ.
fn mirror(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if from.join(entry.file_name()).exists() {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            mirror(&from, &to)?;
        } else if fs::read(&to).ok() != Some(fs::read(&from)?) {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

fn target() -> PathBuf {
    tools::target_dir().join("lock-teeth")
}

/// The program of a suite of a package's tests.
fn build(workspace: &Path, package: &str, suite: &str) -> Result<PathBuf> {
    let package = format!("finefs-{package}");
    let mut command = run::cargo([
        "test",
        "--quiet",
        "--no-run",
        "--package",
        &package,
        "--message-format=json-render-diagnostics",
    ]);
    match suite {
        "loom" => command.args(["--release", "--test", "loom"]),
        "lib" => command.arg("--lib"),
        file if file.starts_with("shuttle") => {
            command.args(["--features", "shuttle", "--test", file])
        }
        file => command.args(["--test", file]),
    };
    if suite == "loom" {
        command.env("RUSTFLAGS", "--cfg loom");
    }
    // In the directories of the workspace itself: what others have written is built there.
    let target = match suite {
        "loom" => tools::target_dir().join("loom"),
        _ => tools::target_dir(),
    };
    command
        .current_dir(workspace)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_PROFILE_RELEASE_LTO", "off");
    let output = run::expect_ok(suite, run::capture_with(&mut command, b"", BUILD_LIMIT)?)?;
    let executable = output.stdout.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    });
    executable.with_context(|| format!("no program in:\n{}", output.both()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tooth(text: &str, instead: Option<&str>) -> Tooth {
        Tooth {
            name: String::new(),
            tested: "locks",
            package: None,
            file: PathBuf::new(),
            within: Some("f(1); g".to_owned()),
            text: text.to_owned(),
            instead: instead.map(str::to_owned),
            suite: String::new(),
            test: String::new(),
        }
    }

    #[test]
    fn a_sample_has_one_change_of_each_file() {
        let in_file = |file: &str, suite: &str| Tooth {
            file: PathBuf::from(file),
            suite: suite.to_owned(),
            ..tooth("f(1);", None)
        };
        let teeth = [
            in_file("a.rs", "lib"),
            in_file("a.rs", "loom"),
            in_file("a.rs", "shuttle"),
            in_file("b.rs", "shuttle"),
        ];
        let numbers = |ci: bool| -> Vec<usize> {
            let options = Options { only: None, ci };
            let wanted = wanted(&teeth, &options);
            wanted.into_iter().map(|(number, _)| number).collect()
        };
        assert_eq!(
            (numbers(true), numbers(false)),
            (vec![1, 3], vec![0, 1, 2, 3])
        );
    }

    #[test]
    fn a_test_that_takes_long_as_it_is_hangs_later() {
        assert_eq!(hang_limit(Duration::from_secs(1)), HANG_LIMIT);
        let long = Duration::from_secs(100);
        assert_eq!(hang_limit(long), long * HANG_TIMES);
    }

    #[test]
    fn only_files_that_differ_are_written() {
        let place = finefs_harness::cleanup::Scratch::new_in(&std::env::temp_dir()).unwrap();
        let [from, to] = ["from", "to"].map(|name| place.path().join(name));
        for (dir, other) in [(&from, "new"), (&to, "old")] {
            fs::create_dir_all(dir.join("inner")).unwrap();
            fs::write(dir.join("inner/same"), "same").unwrap();
            fs::write(dir.join("changed"), other).unwrap();
            fs::write(dir.join(other), other).unwrap();
        }
        let written = || fs::metadata(to.join("inner/same")).unwrap().modified();
        let before = written().unwrap();
        mirror(&from, &to).unwrap();
        assert_eq!(written().unwrap(), before);
        assert_eq!(fs::read(to.join("changed")).unwrap(), b"new");
        assert_eq!(fs::read(to.join("new")).unwrap(), b"new");
        assert!(!to.join("old").exists());
    }

    #[test]
    fn changes_are_behind_a_switch() {
        let file = "f(0); f(1); g(1);";
        let edited = |tooth: &Tooth| edit(file, 7, tooth).map(|edit| (edit.at, edit.text));
        let removed = edited(&tooth("f(1);", None)).unwrap();
        assert_eq!(removed, (6, "if !crate::tooth(7) { f(1); }".to_owned()));
        let (at, text) = edited(&tooth("1", Some("2"))).unwrap();
        assert_eq!(
            (at, text.as_str()),
            (8, "(if crate::tooth(7) { 2 } else { 1 })")
        );
        assert!(edited(&tooth("f(0);", None)).is_err());
        assert!(edited(&tooth("1", None)).is_err());
    }
}
