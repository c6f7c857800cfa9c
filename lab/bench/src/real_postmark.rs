//! The workloads' own PostMark beside Debian's postmark, on the same directory of the kernel's
//! tmpfs and ext4, by turns: they must be about as fast to measure the same.
//!
//! Both are timed from outside over the whole run, as postmark's own clock counts whole seconds:
//! creating, transactions, deleting, and the start of the processes.

use crate::options::ImageDir;
use crate::result::median;
use crate::run::worker_command;
use anyhow::Result;
use finefs_harness::cleanup::Scratch;
use finefs_harness::programs::{Shape, run_postmark};
use finefs_harness::server::{Kind, Server, What};
use finefs_harness::sets;
use finefs_workloads::{Crew, HostDirectory, Length, Plan, PostMark, Watch, run_on_host};
use indicatif::ProgressBar;
use std::path::Path;
use std::time::Instant;

/// How to compare.
#[derive(clap::Args)]
pub struct Options {
    /// Rounds; each runs both, and the one that begins changes
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Numbers of processes
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    processes: Vec<u64>,
    /// Files of each process
    #[arg(long, default_value_t = 5000)]
    number: u32,
    /// Transactions of each process
    #[arg(long, default_value_t = 50_000)]
    transactions: u64,
    #[command(flatten)]
    images: ImageDir,
}

const SIZE_MIB: u64 = 2048;

/// Runs both by turns and prints medians and ratios.
pub fn run(options: &Options) -> Result<()> {
    let scratch = options.images.scratch()?;
    let bar = ProgressBar::new((2 * options.processes.len() * options.rounds * 2) as u64);
    let mut lines = Vec::new();
    for place in ["tmpfs", "ext4"] {
        for &processes in &options.processes {
            let mut rates = [const { Vec::new() }; 2];
            for round in 0..options.rounds {
                for turn in 0..2 {
                    let side = (round + turn) % 2;
                    rates[side].push(measure(&scratch, place, side == 0, processes, options)?);
                    bar.inc(1);
                }
            }
            let [own, real] = rates.map(|rates| median(&rates).unwrap_or(f64::NAN));
            let ratio = own / real;
            lines.push(format!(
                "| {place} | {processes} | {own:.0} | {real:.0} | {ratio:.2} |"
            ));
        }
    }
    bar.finish_and_clear();
    println!(
        "PostMark, {} files and {} transactions each, transactions per second of the whole run, medians of \
         {} rounds\n",
        options.number, options.transactions, options.rounds
    );
    println!("| file system | processes | finefs bench | Debian's postmark | ratio |");
    println!("|---|---:|---:|---:|---:|\n{}", lines.join("\n"));
    Ok(())
}

fn measure(
    scratch: &Scratch,
    place: &str,
    is_own: bool,
    processes: u64,
    options: &Options,
) -> Result<f64> {
    let image = scratch.path().join("image");
    let what = if place == "tmpfs" {
        What::Memory(SIZE_MIB)
    } else {
        let _ = std::fs::remove_file(&image);
        sets::find("ext4")?.make_image(&image, SIZE_MIB)?;
        What::Image(&image)
    };
    let server = Server::new(Kind::Kernel, None)?;
    let mount = server.mount(what, &scratch.subdir("mnt")?, &[])?;
    let took = if is_own {
        own(mount.dir(), processes, options)?
    } else {
        let shape = Shape {
            files: u64::from(options.number),
            transactions: options.transactions,
        };
        run_postmark(mount.dir(), processes, shape, false)?.as_secs_f64()
    };
    mount.unmount()?;
    Ok((processes * options.transactions) as f64 / took)
}

fn own(dir: &Path, processes: u64, options: &Options) -> Result<f64> {
    let workload = PostMark {
        number: options.number,
        transactions: options.transactions,
        ..PostMark::default()
    };
    let crew = Crew::Processes(processes as usize);
    let plan = Plan {
        is_verified: false,
        ..Plan::new(crew, Length::Operations(options.transactions))
    };
    let target = HostDirectory::open(dir)?;
    let started = Instant::now();
    run_on_host(
        &workload,
        &target,
        &plan,
        Watch::nobody(),
        &mut worker_command,
    )?;
    Ok(started.elapsed().as_secs_f64())
}
