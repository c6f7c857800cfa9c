//! Instructions that only one thread may execute at a time, counted for each operation on an image.
//!
//! They are counted under valgrind's callgrind by symbol ([`ALONE`]): commits, but for what one
//! does as one of several threads (`own_share`), which others would do as well; the end of a
//! generation, before which all shards are folded; and the write-out of file data before a commit.
//! Each operation is counted twice, with and without the operations themselves, and the difference
//! is what they cost: instructions of this process, not those of the kernel, so what one thread
//! hands to the device counts for its calls alone.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use finefs::{CommitThreads, FileSystem, ImageOptions};
use finefs_harness::sets;
use indicatif::ProgressBar;
use serde_json::json;

use crate::options::ImageDir;

/// What is counted.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Create an empty file in a directory of 1,000
    Create,
    /// Create a file, write 4 KiB
    CreateWrite,
    /// Unlink an empty file
    Unlink,
    /// Rename a file within its directory
    Rename,
    /// Append 4 KiB to one file
    Append,
    /// Overwrite 4 KiB, each another block
    Overwrite,
    /// Create, write 4 KiB, unlink: what cancels out before a commit
    CreateUnlink,
}

/// What to count.
#[derive(clap::Args)]
pub struct Options {
    /// Only these operations
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Operation>,
    /// How many of each
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    operations: u64,
    /// How many threads the table looks ahead to
    #[arg(long, default_value_t = 64)]
    cores: u64,
    #[command(flatten)]
    images: ImageDir,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// One run, under callgrind.
#[derive(clap::Args)]
pub struct Worker {
    #[arg(long, value_enum)]
    operation: Operation,
    #[arg(long)]
    operations: u64,
    /// Stop when all is prepared
    #[arg(long)]
    prepare_only: bool,
    image: std::path::PathBuf,
}

/// Ends of symbols, without parameters; see the module's head. None of them is called by another.
const ALONE: [&str; 5] = [
    "::commit_transaction",
    "::fold_exactly",
    "::cut_generation",
    "DataCache>::make_room",
    "DataCache>::write_behind",
];
const SHARE: &str = "finefs_namespace::base::parallel::own_share";

fn is_alone(symbol: &str) -> bool {
    // An older mangling ends in a hash.
    let (rest, last) = symbol.rsplit_once("::").unwrap_or_default();
    let has_hash = last.len() == 17 && last.starts_with('h');
    let symbol = if has_hash { rest } else { symbol };
    ALONE.iter().any(|end| symbol.ends_with(end))
}

/// Instructions of a run.
#[derive(Clone, Copy, Debug)]
struct Counts {
    all: u64,
    /// Of what one thread does at a time, and of those what several threads may do.
    turns: u64,
    shared: u64,
}

/// Counts all and prints a table.
pub fn run(options: &Options) -> Result<()> {
    let all = <Operation as clap::ValueEnum>::value_variants();
    let operations = match &options.only[..] {
        [] => all,
        only => only,
    };
    let scratch = options.images.scratch()?;
    let bar = ProgressBar::new(2 * operations.len() as u64);
    let mut rows = Vec::new();
    for &operation in operations {
        let count = |prepare_only| {
            let counts = count(scratch.path(), operation, options.operations, prepare_only);
            bar.inc(1);
            counts
        };
        let (before, with) = (count(true)?, count(false)?);
        rows.push(Row::of(operation, before, with, options)?);
    }
    bar.finish_and_clear();
    if options.json {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(());
    }
    println!(
        "Instructions of an operation, of {} each; one thread alone: while no other may do \
         such a thing (a commit, the end of a generation, a write-out of file data).\n\n\
         | operation | all | in turns | one thread alone | % | at most, {} cores |\n\
         |---|---:|---:|---:|---:|---:|",
        options.operations, options.cores
    );
    rows.iter().for_each(Row::print);
    Ok(())
}

struct Row {
    name: String,
    all: f64,
    turns: f64,
    alone: f64,
    /// How many times the rate of one thread is possible on so many cores (Amdahl).
    limit: f64,
}

impl Row {
    fn of(operation: Operation, before: Counts, with: Counts, options: &Options) -> Result<Row> {
        let value = clap::ValueEnum::to_possible_value(&operation).context("an operation")?;
        let each = |of: fn(&Counts) -> u64| {
            let difference = of(&with) as f64 - of(&before) as f64;
            difference.max(0.0) / options.operations as f64
        };
        let all = each(|counts| counts.all);
        let alone = each(|counts| counts.turns - counts.shared.min(counts.turns));
        ensure!(all > 0.0, "callgrind counted nothing of {operation:?}");
        let share = alone / all;
        Ok(Row {
            name: value.get_name().to_owned(),
            all,
            turns: each(|counts| counts.turns),
            alone,
            limit: 1.0 / (share + (1.0 - share) / options.cores as f64),
        })
    }

    fn print(&self) {
        println!(
            "| {} | {:.0} | {:.0} | {:.0} | {:.1} | {:.1} |",
            self.name,
            self.all,
            self.turns,
            self.alone,
            100.0 * self.alone / self.all,
            self.limit
        );
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "operation": self.name,
            "instructions": self.all,
            "in_turns": self.turns,
            "one_thread_alone": self.alone,
            "limit": self.limit,
        })
    }
}

const SIZE_MIB: u64 = 2048;

fn count(
    scratch: &Path,
    operation: Operation,
    operations: u64,
    prepare_only: bool,
) -> Result<Counts> {
    let (image, profile) = (scratch.join("image"), scratch.join("callgrind"));
    let _ = std::fs::remove_file(&image);
    sets::find("ext4")?.make_image_with(&image, SIZE_MIB, &["-i", "4096"])?;
    let value = clap::ValueEnum::to_possible_value(&operation).context("an operation")?;
    let mut command = Command::new("valgrind");
    command
        .args(["--quiet", "--tool=callgrind", "--trace-children=no"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(std::env::current_exe()?)
        .args(["sequential-worker", "--operation", value.get_name()])
        .args(["--operations", &operations.to_string()]);
    if prepare_only {
        command.arg("--prepare-only");
    }
    let output = command.arg(&image).stdin(Stdio::null()).output();
    let output = output.context("valgrind (Debian's package valgrind)")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    sets::fsck(&image)?;
    counts(&std::fs::read_to_string(&profile)?)
}

/// What callgrind counted: a call's line is followed by the cost of what was called.
fn counts(profile: &str) -> Result<Counts> {
    let mut found = Counts {
        all: 0,
        turns: 0,
        shared: 0,
    };
    let mut names = std::collections::HashMap::new();
    let (mut callee, mut is_call) = ("", false);
    for line in profile.lines() {
        if let Some(rest) = line.strip_prefix("totals:") {
            found.all = rest.trim().parse()?;
        } else if let Some((key, rest)) = line.split_once("=(")
            && matches!(key, "fn" | "cfn")
        {
            let (id, name) = rest.split_once(')').context("a name of callgrind's")?;
            if !name.is_empty() {
                names.insert(id, name.trim());
            }
            if key == "cfn" {
                callee = names.get(id).copied().unwrap_or_default();
            }
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if std::mem::take(&mut is_call) {
            let cost = line
                .split_whitespace()
                .nth(1)
                .unwrap_or("0")
                .parse::<u64>()?;
            if is_alone(callee) {
                found.turns += cost;
            } else if callee.starts_with(SHARE) {
                found.shared += cost;
            }
        }
    }
    Ok(found)
}

const BLOCK: usize = 4096;
const FILES_IN_DIRECTORY: u64 = 1000;

fn path(number: u64) -> String {
    format!("d{}/file{number}", number / FILES_IN_DIRECTORY)
}

/// One run.
pub fn work(worker: &Worker) -> Result<()> {
    let two = std::num::NonZeroUsize::new(2).context("two")?;
    let fs = ImageOptions::new()
        .commit_threads(CommitThreads::Always(two))
        // Under valgrind, on a busy machine, there would be more commits for as many operations.
        .commit_interval(Duration::from_secs(3600))
        .open(&worker.image)?;
    prepare(&fs, worker)?;
    fs.sync()?;
    if !worker.prepare_only {
        operate(&fs, worker)?;
    }
    fs.close()?;
    Ok(())
}

fn prepare(fs: &FileSystem, worker: &Worker) -> Result<()> {
    for directory in 0..=worker.operations / FILES_IN_DIRECTORY {
        fs.create_dir(format!("d{directory}"))?;
    }
    match worker.operation {
        Operation::Unlink | Operation::Rename => {
            for number in 0..worker.operations {
                fs.create(path(number))?;
            }
        }
        Operation::Overwrite => {
            let file = fs.create("file")?;
            for _ in 0..worker.operations {
                file.append(&[1; BLOCK])?;
            }
        }
        _ => {
            fs.create("file")?;
        }
    }
    Ok(())
}

fn operate(fs: &FileSystem, worker: &Worker) -> Result<()> {
    let file = match worker.operation {
        Operation::Append | Operation::Overwrite => Some(
            finefs::OpenOptions::new()
                .write(true)
                .open(&fs.open_dir(".")?, "file")?,
        ),
        _ => None,
    };
    for number in 0..worker.operations {
        match (worker.operation, &file) {
            (Operation::Append, Some(file)) => {
                file.append(&[2; BLOCK])?;
            }
            (Operation::Overwrite, Some(file)) => {
                file.write_all_at(&[2; BLOCK], number * BLOCK as u64)?;
            }
            (Operation::Unlink, _) => fs.remove_file(path(number))?,
            (Operation::Rename, _) => fs.rename(path(number), path(number) + "x")?,
            (Operation::CreateWrite, _) => {
                fs.create(path(number))?.append(&[2; BLOCK])?;
            }
            (Operation::CreateUnlink, _) => {
                fs.create(path(number))?.append(&[2; BLOCK])?;
                fs.remove_file(path(number))?;
            }
            _ => {
                fs.create(path(number))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_of_callgrinds_is_read() {
        let profile = format!(
            "fn=(1) main\n5 10\ncfn=(2) <a::Volume>::commit_transaction\ncalls=2 7\n6 100\n\
             fn=(2)\n7 40\ncfn=(3) {SHARE}::<u8>\ncalls=1 9\n8 60\n\
             cfn=(4) a::commit_transaction::{{closure#0}}\ncalls=1 1\n9 7\n\
             fn=(1)\n3 1\ncfn=(2)\ncalls=1 7\n4 50\ntotals: 500\n"
        );
        let found = counts(&profile).unwrap();
        assert!(is_alone("a::Volume::commit_transaction::h0123456789abcdef"));
        assert!(is_alone("a::b::<impl a::DataCache>::make_room"));
        assert!(!is_alone("<a::Quotas>::make_room"));
        assert_eq!((found.all, found.turns, found.shared), (500, 150, 60));
    }
}
