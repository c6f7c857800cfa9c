//! `finefs-bench`: how fast finefs is beside others, measured in the same run.
//!
//! | module | what it is about |
//! |---|---|
//! | [`compare`] | finefs, fuse2fs and the kernel by turns, on like images |
//! | [`fsync`] | creating, writing and syncing small files |
//! | [`latency`] | how long single operations take while commits run |
//! | [`cpus`] | binding threads to CPUs |
//! | [`file_list_locks`] | lists of open files: per CPU, under one spinlock, with a lock in each node |
//! | [`in_process`] | workloads in process beside the kernel's tmpfs and ext4 |
//! | [`journal_cost`] | PostMark on an image with a journal and on one without |
//! | [`lockmeter_overhead`] | what the lock meter costs |
//! | [`real_postmark`] | the workloads' PostMark beside Debian's |
//! | [`variant`] | who is compared |
//! | [`options`] | options of several of these |
//! | [`range_lock`] | the range lock beside its rivals |
//! | [`scaling`] | two threads beside one, and beside two processes |
//! | [`real_tools`] | the workloads of `finefs bench` beside the programs they are made after |
//! | [`result`] | medians, ratios, markdown and JSON |
//! | [`workload`] | the workloads of `finefs bench`, as they are run here |

mod compare;
mod cpus;
mod file_list_locks;
mod fsync;
mod in_process;
mod journal_cost;
mod latency;
mod lockmeter_overhead;
mod options;
mod range_lock;
mod real_postmark;
mod real_tools;
mod result;
mod scaling;
mod variant;
mod workload;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// As a program has that embeds the library for speed. The command finefs has glibc's: by this one a mount would hold some
/// 30 MB more (docs/benchmarks.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(about = "Benchmarks of finefs beside others")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// PostMark and open/close on finefs, fuse2fs and the kernel's ext4, by turns
    Compare(compare::Options),
    /// Percentiles of creating, writing and removing files while commits run
    Latency(latency::Options),
    /// Adding and removing open files: lists per CPU, one list under a spinlock, a list locked node by node
    FileListLocks(file_list_locks::Options),
    /// Workloads in process, and through system calls on tmpfs and the kernel's ext4, by turns
    InProcess(in_process::Options),
    /// PostMark on a default ext4 image and on one without a journal, in a mount and in process, by turns
    JournalCost(journal_cost::Options),
    /// PostMark in process without the lock meter, with it, and with all acquisitions counted, by turns
    LockmeterOverhead(lockmeter_overhead::Options),
    /// One run for `lockmeter-overhead`, in a process of its own
    #[command(hide = true)]
    LockmeterWorker(lockmeter_overhead::Worker),
    /// The range lock beside other range locks and whole-file locks
    RangeLock(range_lock::Options),
    /// Two threads beside one in process, under any locking scheme, and the machine's ceiling
    Scaling(scaling::Options),
    /// One measurement for `scaling`, in a process of its own
    #[command(hide = true)]
    ScalingWorker(scaling::Worker),
    /// `finefs bench` beside Debian's dbench and fio, on a directory
    RealTools(real_tools::Options),
    /// The workloads' PostMark and Debian's postmark on the same directories, by turns
    RealPostmark(real_postmark::Options),
    /// A worker process of a workload
    #[command(hide = true)]
    WorkloadWorker,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Compare(options) => {
            xtask::cleanup::install_signal_handler().and_then(|()| compare::run(&options))
        }
        Command::Latency(options) => {
            xtask::cleanup::install_signal_handler().and_then(|()| latency::run(&options))
        }
        Command::FileListLocks(options) => file_list_locks::run(&options),
        Command::InProcess(options) => {
            xtask::cleanup::install_signal_handler().and_then(|()| in_process::run(&options))
        }
        Command::JournalCost(options) => {
            xtask::cleanup::install_signal_handler().and_then(|()| journal_cost::run(&options))
        }
        Command::RealPostmark(options) => {
            xtask::cleanup::install_signal_handler().and_then(|()| real_postmark::run(&options))
        }
        Command::WorkloadWorker => real_postmark::work(),
        Command::LockmeterOverhead(options) => lockmeter_overhead::run(&options),
        Command::RangeLock(options) => range_lock::run(&options),
        Command::Scaling(options) => scaling::run(&options),
        Command::ScalingWorker(worker) => scaling::work(&worker),
        Command::RealTools(options) => {
            xtask::cleanup::install_signal_handler().and_then(|()| real_tools::run(&options))
        }
        Command::LockmeterWorker(worker) => lockmeter_overhead::work(&worker),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("finefs-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
