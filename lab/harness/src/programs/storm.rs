//! Metadata storm: eight processes create, rename, link and unlink in the same directories, and
//! fill one directory with names until its index has two levels.
//!
//! Each worker has names of its own, whose outcome it knows and reports, among names that all of
//! them fight over, where an operation may lose with an error that says so (ENOENT, EEXIST, ...).
//! Any other error, and any own name that is not as reported, fails the proof.

use super::Work;
use crate::rng::Rng;
use crate::run;
use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const WORKERS: u64 = 8;
const DIRECTORIES: u64 = 4;

pub(super) fn run(work: &Work<'_>) -> Result<String> {
    let shared = work.dir.join("shared");
    std::fs::create_dir(&shared)?;
    for number in 0..DIRECTORIES {
        std::fs::create_dir(shared.join(format!("d{number}")))?;
    }
    let operations = work.size.storm_operations.to_string();
    let seed = work.seed.to_string();
    let reports = workers("storm", &shared, &[&seed, &operations])?;
    check_storm(&shared, &reports)?;

    let many = work.dir.join("many");
    std::fs::create_dir(&many)?;
    let each = work.size.many_names as u64 / WORKERS;
    for phase in ["create", "thin"] {
        workers("many", &many, &[&each.to_string(), phase])?;
        check_many(&many, each, phase)?;
    }
    Ok(format!(
        "{WORKERS} x {operations} operations; {} names in one directory",
        each * WORKERS
    ))
}

/// Starts the workers as processes of this same program and gathers what they print.
fn workers(kind: &str, dir: &Path, args: &[&str]) -> Result<Vec<String>> {
    let program = std::env::current_exe()?;
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let mut command = run::cmd(&program, ["worker", kind]);
                command.arg(dir).arg(worker.to_string()).args(args);
                scope.spawn(move || Ok(run::ok(&mut command)?.stdout))
            })
            .collect();
        running
            .into_iter()
            .map(|run| {
                run.join()
                    .unwrap_or_else(|_| bail!("a worker thread panicked"))
            })
            .collect()
    })
}

/// The state of one worker's own names: path to the number written in the file.
type Own = BTreeMap<String, u64>;

/// One storm worker. Prints its own names as JSON.
pub fn storm_worker(dir: &Path, worker: u64, seed: u64, operations: u64) -> Result<()> {
    let mut rng = Rng::new(seed.wrapping_mul(1000) + worker);
    let mut own = Own::new();
    for number in 0..operations {
        if rng.percent(50) {
            own_operation(dir, worker, number, &mut rng, &mut own)?;
        } else {
            contested_operation(dir, &mut rng)?;
        }
    }
    println!("{}", serde_json::to_string(&own)?);
    Ok(())
}

fn own_operation(dir: &Path, worker: u64, number: u64, rng: &mut Rng, own: &mut Own) -> Result<()> {
    let fresh = format!("d{}/w{worker}-{number}", rng.below(DIRECTORIES));
    let path = dir.join(&fresh);
    let known: Vec<String> = own.keys().cloned().collect();
    let choice = if known.len() < 5 { 0 } else { rng.below(10) };
    let what = match choice {
        0..4 => {
            let made = File::create_new(&path).and_then(|mut f| write!(f, "{number}"));
            own.insert(fresh.clone(), number);
            made.context("create")
        }
        4..6 => {
            let old = rng.pick(&known);
            own.remove(old).map(|id| own.insert(fresh.clone(), id));
            std::fs::rename(dir.join(old), &path).context("rename")
        }
        6..7 => {
            // Onto another own name, which it replaces.
            let (old, new) = (rng.pick(&known), rng.pick(&known));
            if own[old] != own[new] {
                let id = own.remove(old).unwrap_or_default();
                own.insert(new.clone(), id);
                std::fs::rename(dir.join(old), dir.join(new)).context("replace")
            } else {
                Ok(())
            }
        }
        7..8 => {
            let old = rng.pick(&known);
            own.insert(fresh.clone(), own[old]);
            std::fs::hard_link(dir.join(old), &path).context("link")
        }
        _ => {
            let old = rng.pick(&known);
            own.remove(old);
            std::fs::remove_file(dir.join(old)).context("unlink")
        }
    };
    what.with_context(|| format!("worker {worker}, operation {number}, {fresh}"))
}

fn contested_operation(dir: &Path, rng: &mut Rng) -> Result<()> {
    let mut name = |kind: &str| -> PathBuf {
        dir.join(format!(
            "d{}/{kind}{}",
            rng.below(DIRECTORIES),
            rng.below(12)
        ))
    };
    let (file, other, sub, sub2) = (name("c"), name("c"), name("s"), name("s"));
    let nested = sub.join("n");
    let outcome: io::Result<()> = match rng.below(10) {
        0..3 => File::create_new(&file).and_then(|mut f| f.write_all(b"contested")),
        3 => std::fs::rename(&file, &other),
        4 => std::fs::hard_link(&file, &other),
        5 => std::fs::remove_file(&file),
        6 => std::fs::create_dir(&sub),
        7 => std::fs::remove_dir(&sub),
        8 => std::fs::rename(
            &sub,
            if rng.percent(30) {
                sub2.join("n")
            } else {
                sub2
            },
        ),
        _ => match rng.below(3) {
            0 => File::create_new(&nested).map(drop),
            1 => std::fs::remove_file(&nested).or_else(|_| std::fs::remove_dir(&nested)),
            _ => std::fs::rename(&file, &nested),
        },
    };
    let lost = [
        Errno::NOENT,
        Errno::EXIST,
        Errno::NOTEMPTY,
        Errno::ISDIR,
        Errno::NOTDIR,
        // A directory into itself.
        Errno::INVAL,
    ];
    match outcome {
        Err(error)
            if !lost
                .iter()
                .any(|e| error.raw_os_error() == Some(e.raw_os_error())) =>
        {
            Err(error).context("a contested operation failed in a way that losing does not explain")
        }
        _ => Ok(()),
    }
}

fn check_storm(dir: &Path, reports: &[String]) -> Result<()> {
    let mut expected: BTreeMap<String, (usize, u64)> = BTreeMap::new();
    let mut links: BTreeMap<(usize, u64), u64> = BTreeMap::new();
    for (worker, report) in reports.iter().enumerate() {
        let own: Own = serde_json::from_str(report).context("a worker's report")?;
        for (path, id) in own {
            expected.insert(path, (worker, id));
            *links.entry((worker, id)).or_default() += 1;
        }
    }
    let mut found = BTreeSet::new();
    for number in 0..DIRECTORIES {
        let mut seen = BTreeSet::new();
        for entry in std::fs::read_dir(dir.join(format!("d{number}")))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            entry
                .path()
                .symlink_metadata()
                .with_context(|| format!("{name}: listed, not there"))?;
            ensure!(seen.insert(name.clone()), "{name}: listed twice");
            if name.starts_with('w') {
                found.insert(format!("d{number}/{name}"));
            }
        }
    }
    for path in &found {
        ensure!(expected.contains_key(path), "{path}: should be gone");
    }
    for (path, key) in &expected {
        ensure!(found.contains(path), "{path}: is not listed");
        let full = dir.join(path);
        let (nlink, text) = (full.metadata()?.nlink(), std::fs::read_to_string(&full)?);
        ensure!(
            text == key.1.to_string(),
            "{path}: holds {text:?} instead of {}",
            key.1
        );
        ensure!(
            nlink == links[key],
            "{path}: {nlink} links instead of {}",
            links[key]
        );
    }
    Ok(())
}

/// The name of entry `number` of `worker`: long, so that few fit in a block.
fn many_name(worker: u64, number: u64) -> String {
    format!("{:->240}", format!("{number}-of-{worker}"))
}

/// One worker in the large directory: makes its names, or removes every third and renames every
/// seventh of the others.
pub fn many_worker(dir: &Path, worker: u64, each: u64, phase: &str) -> Result<()> {
    for number in 0..each {
        let path = dir.join(many_name(worker, number));
        let outcome = match (phase, link_state(number)) {
            ("create", _) => File::create_new(&path).map(drop),
            (_, LinkState::Stays) => Ok(()),
            (_, LinkState::Goes) => std::fs::remove_file(&path),
            (_, LinkState::IsRenamed) => std::fs::rename(&path, dir.join(renamed(worker, number))),
        };
        outcome.with_context(|| path.display().to_string())?;
    }
    Ok(())
}

enum LinkState {
    Stays,
    Goes,
    IsRenamed,
}

fn link_state(number: u64) -> LinkState {
    match number {
        n if n % 3 == 0 => LinkState::Goes,
        n if n % 7 == 0 => LinkState::IsRenamed,
        _ => LinkState::Stays,
    }
}

fn renamed(worker: u64, number: u64) -> String {
    format!("renamed-{number}-{worker}")
}

fn check_many(dir: &Path, each: u64, phase: &str) -> Result<()> {
    let mut expected = BTreeSet::new();
    for worker in 0..WORKERS {
        for number in 0..each {
            match (phase, link_state(number)) {
                ("create", _) | (_, LinkState::Stays) => expected.insert(many_name(worker, number)),
                (_, LinkState::Goes) => false,
                (_, LinkState::IsRenamed) => expected.insert(renamed(worker, number)),
            };
        }
    }
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        ensure!(
            expected.contains(&name),
            "{name}: should not be there after {phase}"
        );
        ensure!(found.insert(name.clone()), "{name}: listed twice");
    }
    ensure!(
        found.len() == expected.len(),
        "{} of {} names listed",
        found.len(),
        expected.len()
    );
    for name in expected.iter().step_by(17) {
        dir.join(name)
            .symlink_metadata()
            .with_context(|| format!("{name}: listed, not found"))?;
    }
    Ok(())
}
