//! Fuzzing: builds the targets in `proof/fuzz` with libFuzzer and the address sanitizer, and runs
//! them, one after the other, over the kept inputs and what is found beyond them.
//!
//! A stable compiler has the sanitizer behind `RUSTC_BOOTSTRAP`. What is found stays in a working
//! corpus in the build directory; `--keep` puts a smallest set of inputs that reaches the same code
//! into `proof/fuzz/corpus`, which is part of the project ([`corpus`]). A crash is kept in
//! `proof/fuzz/artifacts`.

mod corpus;
mod reiserfs_seeds;
mod seeds;

use crate::setup;
use anyhow::{Context, Result, bail, ensure};
use finefs_harness::run;
use finefs_harness::tools;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What to run.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Only these targets; all without it
    target: Vec<String>,
    /// How long each target runs
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Go round the targets until this many seconds are over
    #[arg(long)]
    total_seconds: Option<u64>,
    /// Afterwards, keep the smallest set of inputs that reaches what was reached
    #[arg(long)]
    keep: bool,
    /// Keep this input too, under its file's name, and run nothing; needs one target
    #[arg(long, value_name = "FILE")]
    add: Option<PathBuf>,
    /// Unpack the kept inputs, say where, and run nothing
    #[arg(long)]
    unpack: bool,
    /// Append what each run did to this file, a line of JSON each
    #[arg(long)]
    log: Option<PathBuf>,
    /// Make the seed images anew (inputs then mean something else), and run nothing
    #[arg(long)]
    make_seeds: bool,
}

/// cargo-fuzz, installed from crates.io when it is missing.
const CARGO_FUZZ: &str = "0.13.2";
const BUILD_LIMIT: Duration = Duration::from_secs(3600);
/// The most memory that a target may take, in MiB, and one allocation of it.
const MEMORY_MIB: u32 = 1024;
const ALLOCATION_MIB: u32 = 256;
/// The longest that one input may take, in seconds. Instrumented code is some 20 times slower.
const INPUT_SECONDS: u32 = 20;
/// How often an input that took longer is tried again, alone.
const ATTEMPTS_ALONE: usize = 3;
/// Inputs kept for a target may take this much in all.
const KEPT_BYTES: usize = 256 << 10;

/// Runs what the options say.
pub fn run(options: &Options) -> Result<()> {
    if options.make_seeds {
        return seeds::make(&fuzz_dir().join("seeds"));
    }
    let targets = chosen(&options.target)?;
    if let Some(file) = &options.add {
        let [target] = &targets[..] else {
            bail!("--add needs one target");
        };
        return corpus::add(target, file);
    }
    if options.unpack {
        for target in &targets {
            let into = work_dir().join("kept").join(target);
            corpus::unpack(target, &into)?;
            println!("{}", into.display());
        }
        return Ok(());
    }
    let fuzzer = Fuzzer::build(&targets)?;
    let started = Instant::now();
    let total = options.total_seconds.map(Duration::from_secs);
    // A target that was broken is left out of the next rounds; the others go on.
    let mut broken = BTreeSet::new();
    loop {
        for target in targets
            .iter()
            .filter(|target| !broken.contains(*target))
            .collect::<Vec<_>>()
        {
            let left = total.map(|total| total.saturating_sub(started.elapsed()).as_secs());
            let seconds = left.map_or(options.seconds, |left| left.min(options.seconds));
            if seconds > 0
                && let Err(error) = fuzzer.fuzz(target, seconds, options.log.as_deref())
            {
                println!("{error:#}");
                broken.insert(target.clone());
            }
        }
        let is_over = total.is_none_or(|total| started.elapsed() >= total);
        if is_over || broken.len() == targets.len() {
            break;
        }
    }
    if options.keep {
        for target in &targets {
            fuzzer.keep(target)?;
        }
    }
    let broken: Vec<String> = broken.into_iter().collect();
    ensure!(broken.is_empty(), "broken: {}", broken.join(", "));
    Ok(())
}

fn fuzz_dir() -> PathBuf {
    tools::workspace().join("proof/fuzz")
}

/// Where the programs are built, and inputs are as files.
fn work_dir() -> PathBuf {
    tools::target_dir().join("fuzz")
}

/// All targets, by their files.
fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(fuzz_dir().join("fuzz_targets"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".rs").map(ToOwned::to_owned));
    }
    names.sort();
    Ok(names)
}

fn chosen(wanted: &[String]) -> Result<Vec<String>> {
    let all = targets()?;
    if let Some(unknown) = wanted.iter().find(|name| !all.contains(name)) {
        bail!("no target {unknown:?}; there are: {}", all.join(", "));
    }
    Ok(if wanted.is_empty() {
        all
    } else {
        wanted.to_vec()
    })
}

/// Built targets.
struct Fuzzer {
    programs: PathBuf,
    /// Where the kept inputs are unpacked.
    kept: PathBuf,
    /// Where inputs are found that are not kept yet.
    found: PathBuf,
    /// Where the inputs are left that broke a target.
    artifacts: PathBuf,
}

/// How a run of libFuzzer ended that found nothing.
enum End {
    TimeOver,
    /// It stopped at an input that takes no longer than it may: the fuzzer stood still meanwhile.
    StoodStill,
}

/// What a run of libFuzzer says at its end.
#[derive(Debug, Default, serde::Serialize)]
struct Figures<'t> {
    target: &'t str,
    seconds: u64,
    /// Of the processor; less than `seconds` where others work too.
    cpu_seconds: u64,
    executions: u64,
    /// Edges of the code that were reached.
    edges: u64,
    /// The same with how often, and comparisons.
    features: u64,
    /// Inputs in the corpus.
    inputs: u64,
    peak_mib: u64,
}

impl Fuzzer {
    fn build(targets: &[String]) -> Result<Fuzzer> {
        let target_dir = work_dir();
        let mut command = cargo_fuzz()?;
        let args = [
            "build",
            "--fuzz-dir",
            "proof/fuzz",
            "--features",
            "libfuzzer",
        ];
        command.args(args).arg("--target-dir").arg(&target_dir);
        if let [only] = targets {
            command.arg(only);
        }
        println!("building");
        let output = run::capture_with(&mut command, b"", BUILD_LIMIT)?;
        run::expect_ok("cargo fuzz build", output)?;
        let programs = target_dir.join(tools::host()?).join("release");
        ensure!(
            programs.is_dir(),
            "{}: nothing was built",
            programs.display()
        );
        Ok(Fuzzer {
            programs,
            kept: target_dir.join("kept"),
            found: target_dir.join("corpus"),
            artifacts: fuzz_dir().join("artifacts"),
        })
    }

    fn program(&self, target: &str) -> Command {
        let mut command = Command::new(self.programs.join(target));
        command
            .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
            .arg(format!("-malloc_limit_mb={ALLOCATION_MIB}"))
            .arg(format!("-timeout={INPUT_SECONDS}"))
            // What epoch-based reclamation has not freed yet at the end is no leak.
            .env("ASAN_OPTIONS", "detect_leaks=0")
            .stdin(Stdio::null());
        command
    }

    /// Fuzzes one target; an error when an input broke it.
    fn fuzz(&self, target: &str, seconds: u64, log: Option<&Path>) -> Result<()> {
        let started = Instant::now();
        let mut left = seconds;
        while left > 0 {
            match self.fuzz_once(target, left, log)? {
                End::TimeOver => break,
                End::StoodStill => left = seconds.saturating_sub(started.elapsed().as_secs()),
            }
        }
        Ok(())
    }

    /// One run of libFuzzer.
    fn fuzz_once(&self, target: &str, seconds: u64, log: Option<&Path>) -> Result<End> {
        let (kept, found) = (self.kept.join(target), self.found.join(target));
        corpus::unpack(target, &kept)?;
        let artifacts = self.artifacts.join(target);
        for directory in [&found, &artifacts] {
            fs::create_dir_all(directory)?;
        }
        let mut command = self.program(target);
        command
            .args([
                format!("-max_total_time={seconds}"),
                "-max_len=1200".to_owned(),
            ])
            .args(["-print_final_stats=1", "-reload=0", "-len_control=20"])
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .args([&found, &kept]);
        let limit = Duration::from_secs(seconds + 600);
        let before = cpu_of_children()?;
        let output = run::capture_with(&mut command, b"", limit)?;
        let text = output.both();
        let mut figures = figures(target, output.took.as_secs(), &text);
        figures.cpu_seconds = cpu_of_children()?.saturating_sub(before).as_secs();
        println!(
            "{target:<12} {:>5} s ({:>4} of CPU) {:>9} executions {:>5} edges {:>6} features \
             {:>4} inputs {:>4} MiB",
            figures.seconds,
            figures.cpu_seconds,
            figures.executions,
            figures.edges,
            figures.features,
            figures.inputs,
            figures.peak_mib
        );
        if let Some(log) = log {
            let mut file = fs::File::options().create(true).append(true).open(log)?;
            writeln!(file, "{}", serde_json::to_string(&figures)?)?;
        }
        if output.status.success() && !output.timed_out {
            return Ok(End::TimeOver);
        }
        if let Some(input) = slow_input(&text)
            && let Some(took) = self.time_alone(target, &input)?
        {
            println!(
                "{target:<12} stood still for {INPUT_SECONDS} s or more: \
                 the input that it was at takes {} ms",
                took.as_millis()
            );
            fs::remove_file(&input)?;
            return Ok(End::StoodStill);
        }
        bail!(
            "{target} was broken; the input is in {}\n{}",
            artifacts.display(),
            run::tail(&text)
        )
    }

    /// How long an input takes that libFuzzer found too slow, where it takes no longer than it may.
    /// The machine may stand still during an attempt too.
    fn time_alone(&self, target: &str, input: &Path) -> Result<Option<Duration>> {
        for _ in 0..ATTEMPTS_ALONE {
            let limit = Duration::from_secs(2 * u64::from(INPUT_SECONDS));
            let output = run::capture_with(self.program(target).arg(input), b"", limit)?;
            if output.status.success() && !output.timed_out {
                return Ok(Some(output.took));
            }
        }
        Ok(None)
    }

    /// Packs a smallest set of inputs that reaches what the kept and the found ones reach.
    fn keep(&self, target: &str) -> Result<()> {
        let (kept, found) = (self.kept.join(target), self.found.join(target));
        corpus::unpack(target, &kept)?;
        fs::create_dir_all(&found)?;
        let merged = tempfile::tempdir_in(&self.kept)?;
        let mut command = self.program(target);
        command
            .arg("-set_cover_merge=1")
            .args([merged.path(), &kept, &found]);
        run::expect_ok("merge", run::capture_with(&mut command, b"", BUILD_LIMIT)?)?;
        let before = self.reached(target, &[&kept, &found])?;
        // libFuzzer names its inputs by digests; one with another name shows something that was
        // mended, and stays.
        let mut inputs = corpus::files(&kept)?;
        inputs.retain(|name, _| !is_digest(name));
        // The small ones first: they are the ones that can be understood.
        let mut merged: Vec<_> = corpus::files(merged.path())?.into_iter().collect();
        merged.sort_by_key(|(_, bytes)| bytes.len());
        let mut sum = 0;
        for (name, bytes) in merged {
            sum += bytes.len();
            if sum <= KEPT_BYTES {
                inputs.insert(name, bytes);
            }
        }
        corpus::pack(target, &inputs)?;
        corpus::unpack(target, &kept)?;
        let after = self.reached(target, &[&kept])?;
        println!(
            "{target:<12} keeps {:>4} of {:>4} inputs: {:>5} of {:>5} edges, \
             {:>6} of {:>6} features",
            after.inputs, before.inputs, after.edges, before.edges, after.features, before.features
        );
        Ok(())
    }

    /// What the inputs in some directories reach, run once each.
    fn reached<'t>(&self, target: &'t str, directories: &[&Path]) -> Result<Figures<'t>> {
        let mut inputs = 0;
        for directory in directories {
            inputs += fs::read_dir(directory)?.count() as u64;
        }
        let mut command = self.program(target);
        command.arg("-runs=0").args(directories);
        let output = run::capture_with(&mut command, b"", BUILD_LIMIT)?;
        let text = run::expect_ok("the inputs", output)?.both();
        Ok(Figures {
            inputs,
            ..figures(target, 0, &text)
        })
    }
}

fn is_digest(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `cargo fuzz`, which is installed when it is missing.
fn cargo_fuzz() -> Result<Command> {
    let program = match tools::which("cargo-fuzz") {
        Some(program) => program,
        None => setup::from_crates_io("cargo-fuzz", CARGO_FUZZ)?,
    };
    let mut command = run::cmd(program, ["fuzz"]);
    command
        .current_dir(tools::workspace())
        .env("RUSTC_BOOTSTRAP", "1")
        // Coverage is instrumented per module, and links much faster without.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true");
    Ok(command)
}

/// The processor's time that ended children of this process took.
fn cpu_of_children() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which is in parentheses: state, parent, ... cutime and cstime (proc(5)).
    let fields: Vec<&str> = match stat.rsplit_once(')') {
        Some((_, fields)) => fields.split_whitespace().collect(),
        None => Vec::new(),
    };
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    let (user, system) = ticks(13).zip(ticks(14)).context("/proc/self/stat")?;
    Ok(Duration::from_millis(
        (user + system) * 1000 / rustix::param::clock_ticks_per_second(),
    ))
}

/// Reads what libFuzzer prints.
fn figures<'t>(target: &'t str, seconds: u64, text: &str) -> Figures<'t> {
    let stat = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().last()?.parse().ok()
    };
    // The newest line of its progress: `#812 DONE cov: 300 ft: 900 corp: 20/1kb ...`
    let progress = text
        .lines()
        .rev()
        .find(|line| line.contains(" cov: "))
        .unwrap_or_default();
    let field = |name: &str| {
        let words: Vec<&str> = progress.split_whitespace().collect();
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1)?.split('/').next()?.parse().ok()
    };
    Figures {
        target,
        seconds,
        cpu_seconds: 0,
        executions: stat("stat::number_of_executed_units:").unwrap_or(0),
        edges: field("cov:").unwrap_or(0),
        features: field("ft:").unwrap_or(0),
        inputs: field("corp:").unwrap_or(0),
        peak_mib: stat("stat::peak_rss_mb:").unwrap_or(0),
    }
}

/// The input at which libFuzzer's patience ended, as it says where it leaves it.
fn slow_input(text: &str) -> Option<PathBuf> {
    text.lines()
        .filter_map(|line| line.split_once("Test unit written to "))
        .map(|(_, path)| PathBuf::from(path.trim()))
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("timeout-"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Fuzzing with a program in place of libFuzzer's: told a time, it says at its first run that
    /// an input took too long; told an input, it ends with `status_alone`.
    fn with_one_timeout(status_alone: u8) -> (tempfile::TempDir, Fuzzer) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let artifact = at("artifacts/tried/timeout-1");
        let script = format!(
            "#!/bin/sh\n\
             case \"$*\" in *-max_total_time=*) ;; *) exit {status_alone};; esac\n\
             [ -e {ran} ] && exit 0\n\
             touch {ran}\n\
             echo x > {artifact}\n\
             echo \"artifact_prefix='x/'; Test unit written to {artifact}\" >&2\n\
             sleep 1.1\n\
             exit 70\n",
            ran = at("ran").display(),
            artifact = artifact.display(),
        );
        fs::write(at("tried"), script).unwrap();
        fs::set_permissions(at("tried"), fs::Permissions::from_mode(0o755)).unwrap();
        let fuzzer = Fuzzer {
            programs: directory.path().to_owned(),
            kept: at("kept"),
            found: at("found"),
            artifacts: at("artifacts"),
        };
        (directory, fuzzer)
    }

    #[test]
    fn a_fuzzer_that_stood_still_goes_on() {
        let (directory, fuzzer) = with_one_timeout(0);
        let log = directory.path().join("log");
        fuzzer.fuzz("tried", 30, Some(&log)).unwrap();
        assert!(!directory.path().join("artifacts/tried/timeout-1").exists());
        let lines = fs::read_to_string(log).unwrap();
        assert_eq!(lines.lines().count(), 2, "it ran for the rest of its time");
    }

    #[test]
    fn an_input_that_is_slow_alone_too_breaks_its_target() {
        let (directory, fuzzer) = with_one_timeout(70);
        let error = fuzzer.fuzz("tried", 30, None).unwrap_err().to_string();
        assert!(error.starts_with("tried was broken"), "{error}");
        assert!(directory.path().join("artifacts/tried/timeout-1").exists());
    }

    #[test]
    fn figures_are_read() {
        let text = "INFO: Seed: 1\n#2\tINITED cov: 5 ft: 6 corp: 1/1b exec/s: 0 rss: 30Mb\n\
            #99\tDONE   cov: 120 ft: 340 corp: 17/345b lim: 4 exec/s: 33 rss: 31Mb\n\
            stat::number_of_executed_units: 99\nstat::peak_rss_mb:              31\n";
        let found = figures("walk", 3, text);
        assert_eq!(
            (found.executions, found.edges, found.features),
            (99, 120, 340)
        );
        assert_eq!((found.inputs, found.peak_mib), (17, 31));
    }
}
