//! `finefs-bench`, also called as `finefs bench`: workloads on any file system, and how fast finefs
//! is beside others in the same run.
//!
//! | module | what it is about |
//! |---|---|
//! | [`compare`] | finefs, fuse2fs and the kernel by turns, on like images |
//! | [`everyday`] | tar, cp, grep, git, cargo and others in a mount; what they ask for |
//! | [`fsync`] | creating, writing and syncing small files |
//! | [`latency`] | how long single operations take while commits run |
//! | [`file_list_locks`] | lists of open files: per CPU, under one spinlock, with a lock in each node |
//! | [`image_threads`] | threads on an image, on memory and on the kernel's ext4 |
//! | [`in_process`] | workloads in process beside the kernel's tmpfs and ext4 |
//! | [`journal_cost`] | PostMark on an image with a journal and on one without |
//! | [`lockmeter_overhead`] | what the lock meter costs |
//! | [`nfs`] | NFS servers under one load, by turns |
//! | [`nbd`] | an image on an NBD server beside a local one |
//! | [`priorities`] | one thread beside another of lower priority, under big locks and fine ones |
//! | [`real_postmark`] | the workloads' PostMark beside Debian's |
//! | [`variant`] | who is compared |
//! | [`options`] | options of several of these |
//! | [`range_lock`] | the range lock beside its rivals |
//! | [`scaling`] | two threads beside one, and beside two processes |
//! | [`sequential`] | instructions that one thread alone may execute |
//! | [`real_tools`] | the workloads beside the programs they are made after |
//! | [`run`] | one workload, as its options say |
//! | [`sync_latency`] | how long fsync takes beside a program that writes |
//! | [`result`] | medians, ratios, markdown and JSON |
//! | [`workload`] | workloads as comparisons run them |

mod compare;
mod everyday;
mod file_list_locks;
mod fsync;
mod image_threads;
mod in_process;
mod journal_cost;
mod latency;
mod lockmeter_overhead;
mod nbd;
mod nfs;
mod options;
mod priorities;
mod range_lock;
mod real_postmark;
mod real_tools;
mod result;
mod run;
mod scaling;
mod sequential;
mod sync_latency;
mod variant;
mod workload;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use finefs_cli::Failure;
use finefs_cli::output::say;
use std::process::ExitCode;

/// As a program has that embeds the library for speed. The command finefs has glibc's: by this one
/// a mount would hold some 30 MB more (docs/benchmarks.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(
    name = "finefs-bench",
    version,
    about = "File system workloads, and finefs beside others",
    after_help = "docs/workloads.md says what each workload does and where it comes from."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Run(run::Which),
    /// PostMark and open/close on finefs, fuse2fs and the kernel's ext4, by turns
    Compare(compare::Options),
    /// tar, cp, grep, git, cargo and others in mounts of finefs and of the kernel's ext4, by turns
    Everyday(everyday::Options),
    /// Percentiles of creating, writing and removing files while commits run
    Latency(latency::Options),
    /// How long fsync takes beside a program that writes and never syncs, in mounts of finefs and
    /// as root of the kernel's ext4, by turns
    SyncLatency(sync_latency::Options),
    /// Adding and removing open files: lists per CPU, one list under a spinlock, a list locked node
    /// by node
    FileListLocks(file_list_locks::Options),
    /// One and several threads on an image, on memory, and as root on the kernel's ext4, by turns
    ImageThreads(image_threads::Options),
    /// Workloads in process, and through system calls on tmpfs and the kernel's ext4, by turns
    InProcess(in_process::Options),
    /// PostMark on a default ext4 image and on one without a journal, in a mount and in process, by
    /// turns
    JournalCost(journal_cost::Options),
    /// PostMark in process without the lock meter, with it, and with all acquisitions counted, by
    /// turns
    LockmeterOverhead(lockmeter_overhead::Options),
    /// One run for `lockmeter-overhead`, in a process of its own
    #[command(hide = true)]
    LockmeterWorker(lockmeter_overhead::Worker),
    /// `finefs serve`, nfs-ganesha, and a server that does nothing, under one load of NFS 3 calls,
    /// by turns
    Nfs(nfs::Options),
    /// PostMark on an image that nbdkit serves beside a local one, and fsyncs over a slow link
    Nbd(nbd::Options),
    /// How long operations take beside a thread of lower priority, under the fair big lock, the
    /// spinning one and the fine locks
    Priorities(priorities::Options),
    /// The range lock beside other range locks and whole-file locks
    RangeLock(range_lock::Options),
    /// Two threads beside one in process, under any locking scheme, and the machine's ceiling
    Scaling(scaling::Options),
    /// One measurement for `scaling`, in a process of its own
    #[command(hide = true)]
    ScalingWorker(scaling::Worker),
    /// Instructions of each operation on an image that only one thread may execute at a time, by
    /// valgrind
    Sequential(sequential::Options),
    /// One run for `sequential`, under valgrind
    #[command(hide = true)]
    SequentialWorker(sequential::Worker),
    /// The workloads beside Debian's dbench and fio, on a directory
    RealTools(real_tools::Options),
    /// The workloads' PostMark and Debian's postmark on the same directories, by turns
    RealPostmark(real_postmark::Options),
}

/// Ends with a usage error of the subcommand of this name, as clap's own do.
fn usage(name: &str, kind: ErrorKind, message: &str) -> ! {
    let mut command = Cli::command();
    command.build();
    let error = match command.find_subcommand_mut(name) {
        Some(subcommand) => subcommand.error(kind, message),
        None => clap::Error::raw(kind, message),
    };
    error.exit()
}

fn main() -> ExitCode {
    finefs_cli::output::set_program("finefs-bench");
    let outcome =
        match Cli::parse().command {
            Command::Run(workload) => {
                return workload.run().unwrap_or_else(|Failure(line)| {
                    say(line);
                    ExitCode::FAILURE
                });
            }
            Command::Compare(options) => finefs_harness::cleanup::install_signal_handler()
                .and_then(|()| compare::run(&options)),
            Command::Everyday(options) => finefs_harness::cleanup::install_signal_handler()
                .and_then(|()| everyday::run(&options)),
            Command::Latency(options) => finefs_harness::cleanup::install_signal_handler()
                .and_then(|()| latency::run(&options)),
            Command::SyncLatency(options) => finefs_harness::cleanup::install_signal_handler()
                .and_then(|()| sync_latency::run(&options)),
            Command::FileListLocks(options) => file_list_locks::run(&options),
            Command::ImageThreads(options) => finefs_harness::cleanup::install_signal_handler()
                .and_then(|()| image_threads::run(&options)),
            Command::Sequential(options) => finefs_harness::cleanup::install_signal_handler()
                .and_then(|()| sequential::run(&options)),
            Command::SequentialWorker(worker) => sequential::work(&worker),
            Command::InProcess(options) => finefs_harness::cleanup::install_signal_handler()
                .and_then(|()| in_process::run(&options)),
            Command::JournalCost(options) => finefs_harness::cleanup::install_signal_handler()
                .and_then(|()| journal_cost::run(&options)),
            Command::RealPostmark(options) => finefs_harness::cleanup::install_signal_handler()
                .and_then(|()| real_postmark::run(&options)),
            Command::LockmeterOverhead(options) => lockmeter_overhead::run(&options),
            Command::Nfs(options) => {
                finefs_harness::cleanup::install_signal_handler().and_then(|()| nfs::run(&options))
            }
            Command::Nbd(options) => {
                finefs_harness::cleanup::install_signal_handler().and_then(|()| nbd::run(&options))
            }
            Command::Priorities(options) => priorities::run(&options),
            Command::RangeLock(options) => range_lock::run(&options),
            Command::Scaling(options) => scaling::run(&options),
            Command::ScalingWorker(worker) => scaling::work(&worker),
            Command::RealTools(options) => finefs_harness::cleanup::install_signal_handler()
                .and_then(|()| real_tools::run(&options)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
