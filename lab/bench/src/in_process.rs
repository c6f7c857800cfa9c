//! Workloads in process beside the same by system calls on the kernel's file systems: memory beside
//! tmpfs, an ext4 image beside the kernel's ext4 on a loop device of a like image, by turns.
//!
//! Each measurement gets a fresh file system. What is measured is the work: not making, mounting
//! and unmounting. The image is checked afterwards. What the harness costs is the time of an
//! operation on a target that does nothing.

use crate::options::ImageDir;
use crate::result::median;
use anyhow::{Context, Result, ensure};
use finefs::ImageOptions;
use finefs_harness::cleanup::Scratch;
use finefs_harness::server::{Kind, Server, What};
use finefs_harness::sets;
use finefs_workloads::dirops::Operation;
use finefs_workloads::{
    Crew, DirOps, HostDirectory, InProcess, Length, Nothing, OpenSpeed, Plan, PostMark, Target,
    Watch, Workload,
};
use indicatif::ProgressBar;
use serde_json::json;

/// What to compare.
#[derive(clap::Args)]
pub struct Options {
    /// Rounds; each runs both sides, and the side that begins changes
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    threads: Vec<usize>,
    /// Seconds of each measurement that is not of a number of operations
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Transactions of each PostMark
    #[arg(long, default_value_t = 50_000)]
    transactions: u64,
    /// Only these: openspeed, postmark, and the names of dirops
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only memory beside tmpfs, or the image beside ext4
    #[arg(long, value_enum)]
    pair: Option<Pair>,
    #[command(flatten)]
    images: ImageDir,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Who is compared with whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Pair {
    /// A file system in memory, and tmpfs
    Memory,
    /// An ext4 image, and the kernel's ext4 on a loop device
    Ext4,
}

impl Pair {
    const ALL: [Pair; 2] = [Pair::Memory, Pair::Ext4];

    fn sides(self) -> [Side; 2] {
        match self {
            Pair::Memory => [Side::Memory, Side::Tmpfs],
            Pair::Ext4 => [Side::Image, Side::Ext4],
        }
    }

    fn names(self) -> [&'static str; 2] {
        self.sides().map(Side::name)
    }

    /// How many times the kernel's rate the rate in process is meant to be at least.
    fn goal(self) -> f64 {
        match self {
            Pair::Memory => 4.0,
            Pair::Ext4 => 3.0,
        }
    }
}

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Load {
    OpenSpeed,
    PostMark,
    DirOps(Operation),
}

impl Load {
    /// As `--only` has it.
    pub fn name(self) -> String {
        match self {
            Load::OpenSpeed => OpenSpeed::NAME.to_owned(),
            Load::PostMark => PostMark::NAME.to_owned(),
            Load::DirOps(operation) => operation.name(),
        }
    }

    /// Arguments to mke2fs: some of dirops begin with very many empty files of each thread.
    fn image_arguments(self) -> &'static [&'static str] {
        match self {
            Load::DirOps(_) => &["-i", "4096"],
            _ => &[],
        }
    }

    fn run<T: Target>(self, target: &T, threads: usize, how: &Measure) -> Result<Measured> {
        let plan = |length| Plan {
            is_verified: false,
            ..Plan::new(Crew::Threads(threads), length)
        };
        let over_time = plan(Length::Seconds(how.seconds));
        match self {
            Load::OpenSpeed => measured(&OpenSpeed::default(), target, &over_time),
            Load::DirOps(operation) => {
                let workload = DirOps::new(operation);
                let part = |each: u64| match how.shares_files {
                    true => 2 * each / threads as u64,
                    false => each,
                };
                let workload = DirOps {
                    files: part(workload.files),
                    pages: part(workload.pages),
                    ..workload
                };
                measured(&workload, target, &over_time)
            }
            Load::PostMark => {
                let workload = PostMark {
                    number: 1000,
                    transactions: how.transactions,
                    ..PostMark::default()
                };
                let plan = plan(Length::Operations(how.transactions));
                measured(&workload, target, &plan)
            }
        }
    }
}

fn measured<W: Workload, T: Target>(workload: &W, target: &T, plan: &Plan) -> Result<Measured> {
    let report = finefs_workloads::run(workload, target, plan, Watch::nobody())?;
    Ok(Measured {
        rate: report.operations_per_second,
        cpu_ns: report.cpu_seconds * 1e9 / report.operations.max(1) as f64,
    })
}

/// How long a measurement is.
pub struct Measure {
    /// Of what runs for a time.
    pub seconds: f64,
    /// Of each thread of PostMark.
    pub transactions: u64,
    /// The files and pages of two threads are parted among all, so that one leaves as much to
    /// commits as several.
    pub shares_files: bool,
}

/// What a measurement gave.
pub struct Measured {
    /// Operations a second.
    pub rate: f64,
    /// CPU time of this process for an operation.
    pub cpu_ns: f64,
}

/// Where a workload runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A file system in memory, in process.
    Memory,
    /// The kernel's tmpfs.
    Tmpfs,
    /// A default ext4 image, in process.
    Image,
    /// The kernel's ext4 on a loop device of one.
    Ext4,
}

impl Side {
    /// As tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Side::Memory => "memory",
            Side::Tmpfs => "tmpfs",
            Side::Image => "ext4 image",
            Side::Ext4 => "kernel's ext4",
        }
    }
}

const SIZE_MIB: u64 = 2048;

/// Runs both sides by turns and prints medians and ratios.
pub fn run(options: &Options) -> Result<()> {
    let mut loads = vec![Load::OpenSpeed, Load::PostMark];
    loads.extend(
        Operation::all()
            .iter()
            .map(|&operation| Load::DirOps(operation)),
    );
    if !options.only.is_empty() {
        let is_asked = |load: &Load| {
            let name = load.name();
            options
                .only
                .iter()
                .any(|only| only.eq_ignore_ascii_case(&name))
        };
        loads.retain(is_asked);
    }
    ensure!(
        !loads.is_empty(),
        "none of {:?} is a workload",
        options.only
    );
    let pairs: Vec<Pair> = Pair::ALL
        .into_iter()
        .filter(|pair| options.pair.is_none_or(|only| only == *pair))
        .collect();
    let scratch = options.images.scratch()?;
    let steps = pairs.len() * loads.len() * options.threads.len() * options.rounds * 2;
    let bar = ProgressBar::new(steps as u64);
    let how = Measure {
        seconds: options.seconds,
        transactions: options.transactions,
        shares_files: false,
    };
    let mut rows = Vec::new();
    for &pair in &pairs {
        for &load in &loads {
            for &threads in &options.threads {
                let mut rates = [const { Vec::new() }; 2];
                for round in 0..options.rounds {
                    for turn in 0..2 {
                        let side = (round + turn) % 2;
                        let found = measure(&scratch, pair.sides()[side], load, threads, &how)?;
                        rates[side].push(found.rate);
                        bar.inc(1);
                    }
                }
                rows.push(Row {
                    pair,
                    load,
                    threads,
                    rates,
                    harness_ns: 1e9 / load.run(&Nothing, 1, &how)?.rate,
                });
            }
        }
    }
    bar.finish_and_clear();
    if options.json {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print(&pairs, &rows, options);
    }
    Ok(())
}

/// Runs a workload on a fresh file system of one side.
pub fn measure(
    scratch: &Scratch,
    side: Side,
    load: Load,
    threads: usize,
    how: &Measure,
) -> Result<Measured> {
    let image = scratch.path().join("image");
    let has_image = matches!(side, Side::Image | Side::Ext4);
    if has_image {
        let _ = std::fs::remove_file(&image);
        sets::find("ext4")?.make_image_with(&image, SIZE_MIB, load.image_arguments())?;
    }
    let found = match side {
        Side::Memory => in_process(InProcess::memory(SIZE_MIB << 20)?, load, threads, how),
        Side::Image => {
            let file_system = ImageOptions::new().open(&image)?;
            let root = file_system.open_dir(".")?;
            let target = InProcess::new(file_system, root, "image".to_owned());
            in_process(target, load, threads, how)
        }
        Side::Tmpfs => in_kernel(scratch, What::Memory(SIZE_MIB), load, threads, how),
        Side::Ext4 => in_kernel(scratch, What::Image(&image), load, threads, how),
    };
    let found = found.with_context(|| format!("{} on {}", load.name(), side.name()))?;
    if has_image {
        sets::fsck(&image)?;
    }
    Ok(found)
}

fn in_process(target: InProcess, load: Load, threads: usize, how: &Measure) -> Result<Measured> {
    let found = load.run(&target, threads, how)?;
    let file_system = target.file_system().clone();
    drop(target);
    file_system.close()?;
    Ok(found)
}

fn in_kernel(
    scratch: &Scratch,
    what: What<'_>,
    load: Load,
    threads: usize,
    how: &Measure,
) -> Result<Measured> {
    let server = Server::new(Kind::Kernel, None)?;
    let mount = server.mount(what, &scratch.subdir("mnt")?, &[])?;
    let found = load.run(&HostDirectory::open(mount.dir())?, threads, how)?;
    mount.unmount()?;
    Ok(found)
}

struct Row {
    pair: Pair,
    load: Load,
    threads: usize,
    rates: [Vec<f64>; 2],
    /// Of one operation by one thread; infinite for readdir, as nothing has no entries.
    harness_ns: f64,
}

impl Row {
    fn medians(&self) -> [f64; 2] {
        [0, 1].map(|side| median(&self.rates[side]).unwrap_or(f64::NAN))
    }

    fn json(&self) -> serde_json::Value {
        let [own, kernel] = self.medians();
        json!({
            "workload": self.load.name(),
            "sides": self.pair.names(),
            "threads": self.threads,
            "medians": [own, kernel],
            "rounds": self.rates,
            "ratio": own / kernel,
            "goal": self.pair.goal(),
            "harness_ns": self.harness_ns,
        })
    }
}

fn print(pairs: &[Pair], rows: &[Row], options: &Options) {
    for &pair in pairs {
        let [own, kernel] = pair.names();
        println!(
            "{own} in process and {kernel} through system calls, operations per second, medians of {} \
             rounds; the goal is {:.0} times\n",
            options.rounds,
            pair.goal()
        );
        println!("| workload | threads | in process | {kernel} | ratio | short | harness, ns |");
        println!("|---|---:|---:|---:|---:|---|---:|");
        for row in rows.iter().filter(|row| row.pair == pair) {
            let [own, kernel] = row.medians();
            let ratio = own / kernel;
            let short = if ratio < pair.goal() { "yes" } else { "" };
            println!(
                "| {} | {} | {own:.0} | {kernel:.0} | {ratio:.2} | {short} | {:.0} |",
                row.load.name(),
                row.threads,
                row.harness_ns
            );
        }
        println!();
    }
}
