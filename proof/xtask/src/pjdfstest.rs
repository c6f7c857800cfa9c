//! pjdfstest, the POSIX conformance tests, in a memory mount, on ext4, on reiserfs and in overlayfs
//! over a mount ([`overlay`]).
//!
//! Each failure must be listed with its reason in `proof/xtask/known-failures.toml`, and a listed
//! one must still fail. The tests that remount read-only run in a process each: others in the same
//! process may leave a file open for writing, on which the kernel refuses the remount.

mod overlay;

use crate::report::Report;
use anyhow::{Context, Result, anyhow, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::run;
use finefs_harness::server::{Kind, Server, What};
use finefs_harness::sets;
use finefs_harness::tools;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How pjdfstest is run.
#[derive(clap::Args, Debug, Default)]
pub struct Options {
    /// Write the table to this markdown file
    #[arg(long)]
    pub write: Option<PathBuf>,
    /// Only tests whose names contain this
    #[arg(long)]
    pub only: Option<String>,
}

/// Users that every Debian has, with their groups; nothing needs to be added to the machine.
pub(crate) const CONFIG: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = true
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// So many of about 400 tests may be skipped: those that remount, where they do not run, and one.
const SKIPPED_MAX: usize = 16;

const LIMIT: Duration = Duration::from_secs(900);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

pub(crate) type Outcomes = BTreeMap<String, Outcome>;

/// The failures that are listed.
#[derive(Debug, Deserialize)]
pub(crate) struct Known {
    #[serde(default)]
    pjdfstest: Vec<KnownFailure>,
}

#[derive(Debug, Deserialize)]
struct KnownFailure {
    test: String,
    server: String,
    on: Vec<String>,
    reason: String,
}

impl Known {
    pub(crate) fn read() -> Result<Known> {
        let path = tools::workspace().join("proof/xtask/known-failures.toml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    /// The tests that fail through this server, on this file system, and why.
    pub(crate) fn reasons(&self, server: &str, on: &str) -> BTreeMap<&str, &str> {
        let here = |known: &&KnownFailure| {
            known.server == server && known.on.iter().any(|name| name == on)
        };
        let here = self.pjdfstest.iter().filter(here);
        here.map(|known| (known.test.as_str(), known.reason.as_str()))
            .collect()
    }
}

/// Runs the tests on each file system and judges them against the known failures.
pub fn run(server: &Server, parent: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let known = Known::read()?;
    let mut places = vec!["memory", "ext4", sets::REISERFS];
    if server.kind == Kind::Fuse2fs {
        for on in places.extract_if(.., |on| *on != "ext4") {
            let name = format!("pjdfstest/fuse2fs/{on}");
            report.skip(&name, "fuse2fs has no such file system");
        }
    }
    let server_name = server.kind.to_string();
    let layered = format!("pjdfstest/{server_name}/{}", overlay::OVERLAY);
    let impossible = overlay::impossible(server);
    if let Some(why) = impossible {
        report.skip(&layered, why);
    }
    // Side by side: on reiserfs the tests mostly sleep.
    let (ran, over) = std::thread::scope(|scope| {
        let run = |on| scope.spawn(move || timed(|| run_on(server, parent, on, options)));
        let running: Vec<_> = places.iter().map(|on| run(on)).collect();
        let over = || timed(|| overlay::prove(server, parent, options));
        let over = impossible.is_none().then(over);
        let ran = running.into_iter().map(|one| one.join().expect("no panic"));
        (ran.collect::<Vec<_>>(), over)
    });
    if let Some((took, judged)) = over {
        report.outcome(&layered, took, judged);
    }
    let mut columns = Vec::new();
    for (on, (took, outcomes)) in places.into_iter().zip(ran) {
        let reasons = known.reasons(&server_name, on);
        let is_part = options.only.is_some();
        let judged = match &outcomes {
            Ok(outcomes) => judge(outcomes, &reasons, is_part),
            Err(error) => Err(anyhow!("{error:#}")),
        };
        report.outcome(&format!("pjdfstest/{server_name}/{on}"), took, judged);
        columns.push(Column {
            on,
            outcomes: outcomes.unwrap_or_default(),
            reasons,
        });
    }
    if let Some(path) = &options.write {
        std::fs::write(path, markdown(server, &columns))?;
    }
    Ok(())
}

/// How long it took, and what came of it.
fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let started = Instant::now();
    let done = work();
    (started.elapsed(), done)
}

fn run_on(server: &Server, parent: &Path, on: &str, options: &Options) -> Result<Outcomes> {
    let scratch = &Scratch::new_in(parent)?;
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755))?;
    let dir = mount_dir(scratch, on)?;
    let image = scratch.path().join("pjdfstest.img");
    let what = if on == "memory" {
        What::Memory(512)
    } else {
        sets::make(on, &image, 512)?;
        What::Image(&image)
    };
    let mount = server.mount(what, &dir, &["allow_other"])?;
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755))?;
    let config = match on {
        // Its times are whole seconds, and tests sleep until the next one.
        sets::REISERFS => CONFIG.replace("naptime = 0.02", "naptime = 1.02"),
        _ => CONFIG.to_owned(),
    };
    let outcomes = run_in(mount.dir(), scratch, &config, options)?;
    mount.unmount()?;
    if on != "memory" {
        sets::check(on, &image)?;
    }
    Ok(outcomes)
}

/// A mount point whose path has a length that pjdfstest can work with: making a path of PATH_MAX
/// bytes from parts of 127 bytes, it computes the remainder minus one and overflows on none.
fn mount_dir(scratch: &Scratch, on: &str) -> Result<PathBuf> {
    const OWN_DIRECTORIES: usize = 2 * "/.tmpABCDEF".len();
    let mut name = on.to_owned();
    while (4095 - scratch.path().as_os_str().len() - 1 - name.len() - OWN_DIRECTORIES) % 127 < 10 {
        name.push('-');
    }
    scratch.subdir(&name)
}

fn run_in(dir: &Path, scratch: &Scratch, config: &str, options: &Options) -> Result<Outcomes> {
    let pattern = options.only.clone().unwrap_or_default();
    let with_remount = scratch.path().join("remount.toml");
    let without = scratch.path().join("no-remount.toml");
    std::fs::write(&with_remount, config)?;
    std::fs::write(
        &without,
        config.replace("allow_remount = true", "allow_remount = false"),
    )?;
    let path = path_with_plain_mount(scratch)?;
    let mut outcomes = one_run(dir, scratch, &without, &path, &[&pattern])?;
    let waiting: Vec<String> = outcomes
        .keys()
        .filter(|name| name.contains("::erofs"))
        .cloned()
        .collect();
    for name in waiting {
        let full_name = format!("pjdfstest::tests::{name}");
        let one = one_run(dir, scratch, &with_remount, &path, &["--exact", &full_name])?;
        ensure!(
            one.contains_key(&name),
            "pjdfstest did not run {full_name} alone"
        );
        outcomes.extend(one);
    }
    ensure!(!outcomes.is_empty(), "pjdfstest ran no test");
    Ok(outcomes)
}

/// A PATH whose `mount` leaves helper programs out: to remount a FUSE file system, mount(8) would
/// run mount.fuse3, which starts the server's program a second time instead.
fn path_with_plain_mount(scratch: &Scratch) -> Result<OsString> {
    let bin = scratch.subdir("bin")?;
    let script = format!(
        "#!/bin/sh\nexec {} -i \"$@\"\n",
        tools::program("mount").display()
    );
    std::fs::write(bin.join("mount"), script)?;
    std::fs::set_permissions(bin.join("mount"), PermissionsExt::from_mode(0o755))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::join_paths(
        std::iter::once(bin).chain(std::env::split_paths(&path)),
    )?)
}

fn one_run(
    dir: &Path,
    scratch: &Scratch,
    config: &Path,
    path: &OsStr,
    args: &[&str],
) -> Result<Outcomes> {
    let mut command = run::cmd(tools::tool("pjdfstest")?, ["--configuration-file"]);
    command.arg(config).arg("--path").arg(dir);
    command.arg("--secondary-fs").arg(scratch.subdir("other")?);
    command
        .args(args)
        .env("PATH", path)
        .env("NO_COLOR", "1")
        .env("RUST_BACKTRACE", "0");
    let output = run::capture_with(&mut command, b"", LIMIT)?;
    let said = output.both();
    ensure!(!output.timed_out, "pjdfstest hung:\n{}", run::tail(&said));
    outcomes_of(&said)
}

/// What pjdfstest said in one run.
pub(crate) fn outcomes_of(said: &str) -> Result<Outcomes> {
    let outcomes = parse(said);
    let total = said
        .lines()
        .find(|line| line.contains("Summary"))
        .and_then(|line| {
            line.rsplit(", ")
                .next()?
                .split(' ')
                .next()?
                .parse::<usize>()
                .ok()
        })
        .with_context(|| format!("pjdfstest ended without a summary:\n{}", run::tail(said)))?;
    ensure!(
        outcomes.len() == total,
        "{} of {total} outcomes understood",
        outcomes.len()
    );
    Ok(outcomes)
}

fn parse(text: &str) -> Outcomes {
    let mut outcomes = Outcomes::new();
    let mut last: Option<String> = None;
    for line in text.lines() {
        if let Some(detail) = line.strip_prefix('\t') {
            if let Some(Outcome::Failed(why) | Outcome::Skipped(why)) =
                last.as_ref().and_then(|name| outcomes.get_mut(name))
            {
                why.push_str(if why.is_empty() { "" } else { " " });
                why.push_str(detail.trim());
            }
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let outcome = match words.as_slice() {
            [_, "ok"] => Outcome::Passed,
            [_, "skipped"] => Outcome::Skipped(String::new()),
            [_, "FAILED"] => Outcome::Failed(String::new()),
            _ => continue,
        };
        outcomes.insert(words[0].to_owned(), outcome);
        last = Some(words[0].to_owned());
    }
    outcomes
}

/// Compares with the known failures; gives what is counted. `is_part`: some tests were left out.
pub(crate) fn judge(
    outcomes: &Outcomes,
    reasons: &BTreeMap<&str, &str>,
    is_part: bool,
) -> Result<String> {
    let mut wrong = String::new();
    for (name, outcome) in outcomes {
        let reason = reasons.get(name.as_str());
        match (outcome, reason) {
            (Outcome::Failed(why), None) => {
                let _ = writeln!(wrong, "{name}: {why}");
            }
            (Outcome::Passed, Some(_)) => {
                let _ = writeln!(wrong, "{name}: passes now, take it off the known failures");
            }
            _ => {}
        }
    }
    let is_missing = |name: &&&str| !is_part && !outcomes.contains_key(**name);
    for name in reasons.keys().filter(is_missing) {
        let _ = writeln!(wrong, "{name}: a known failure that is no test");
    }
    ensure!(wrong.is_empty(), "{wrong}");
    let (passed, failed, skipped) = counts(outcomes.values());
    ensure!(skipped <= SKIPPED_MAX, "{skipped} tests are skipped");
    Ok(format!(
        "{passed} passed, {failed} failed as known, {skipped} skipped"
    ))
}

fn counts<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> (usize, usize, usize) {
    outcomes.fold(
        (0, 0, 0),
        |(passed, failed, skipped), outcome| match outcome {
            Outcome::Passed => (passed + 1, failed, skipped),
            Outcome::Failed(_) => (passed, failed + 1, skipped),
            Outcome::Skipped(_) => (passed, failed, skipped + 1),
        },
    )
}

struct Column<'a> {
    on: &'a str,
    outcomes: Outcomes,
    reasons: BTreeMap<&'a str, &'a str>,
}

fn markdown(server: &Server, columns: &[Column<'_>]) -> String {
    let mut text = format!(
        "# pjdfstest\n\nOutcomes of the POSIX conformance tests ({} of crates.io) in mounts by {}, \
         as root with `allow_other`.\nMade by `cargo run -p xtask --release -- prove \
         pjdfstest --server {} --write FILE`.\n\n| tests |",
        "pjdfstest 0.2.2", server.kind, server.kind
    );
    for column in columns {
        let _ = write!(text, " {0} passed | {0} failed | {0} skipped |", column.on);
    }
    text.push_str("\n|---|");
    text.push_str(&"---:|".repeat(3 * columns.len()));
    let mut groups: Vec<&str> = columns
        .iter()
        .flat_map(|column| column.outcomes.keys())
        .map(|name| name.split("::").next().unwrap_or(name))
        .collect();
    groups.sort_unstable();
    groups.dedup();
    for group in groups {
        let _ = write!(text, "\n| {group} |");
        for column in columns {
            let of_group = column
                .outcomes
                .iter()
                .filter(|(name, _)| name.split("::").next() == Some(group));
            let (passed, failed, skipped) = counts(of_group.map(|(_, outcome)| outcome));
            let _ = write!(text, " {passed} | {failed} | {skipped} |");
        }
    }
    text.push_str("\n| **all** |");
    for column in columns {
        let (passed, failed, skipped) = counts(column.outcomes.values());
        let _ = write!(text, " **{passed}** | **{failed}** | **{skipped}** |");
    }
    text.push_str("\n\n## Not passed, and why\n\n");
    let mut any = false;
    for column in columns {
        for (name, outcome) in &column.outcomes {
            let why = match outcome {
                Outcome::Passed => continue,
                Outcome::Skipped(why) => format!("skipped: {why}"),
                Outcome::Failed(said) => match column.reasons.get(name.as_str()) {
                    Some(reason) => format!("failed: {reason}"),
                    None => format!("failed, not explained yet: {said}"),
                },
            };
            any = true;
            let _ = writeln!(text, "- `{name}` on {}: {why}", column.on);
        }
    }
    if !any {
        text.push_str("Everything passed.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "a::x    ok\na::y   FAILED\n\texpected EPERM\nb::z   skipped\n\tno root\n";

    #[test]
    fn unexplained_failures_and_stale_reasons_are_errors() {
        let outcomes = parse(SAID);
        assert_eq!(outcomes["a::y"], Outcome::Failed("expected EPERM".into()));
        assert!(
            judge(&outcomes, &BTreeMap::new(), false)
                .unwrap_err()
                .to_string()
                .contains("a::y")
        );
        judge(&outcomes, &BTreeMap::from([("a::y", "because")]), false).unwrap();
        let stale = BTreeMap::from([("a::y", ""), ("a::x", "")]);
        assert!(judge(&outcomes, &stale, false).is_err());
        let unknown = BTreeMap::from([("a::y", ""), ("c::x", "")]);
        assert!(judge(&outcomes, &unknown, false).is_err());
        judge(&outcomes, &unknown, true).unwrap();
    }

    #[test]
    fn a_run_that_skips_much_proves_nothing() {
        let skipped = |count: usize| {
            let names = (0..count).map(|number| format!("a::{number}"));
            names
                .map(|name| (name, Outcome::Skipped("no root".into())))
                .collect::<Outcomes>()
        };
        judge(&skipped(SKIPPED_MAX), &BTreeMap::new(), false).unwrap();
        judge(&skipped(SKIPPED_MAX + 1), &BTreeMap::new(), false).unwrap_err();
    }
}
