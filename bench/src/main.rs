//! `finefs-bench`: how fast finefs is beside others, measured in the same run.
//!
//! | module | what it is about |
//! |---|---|
//! | [`compare`] | finefs, fuse2fs and the kernel by turns, on like images |
//! | [`open_close`] | opening and closing one of ten files from four threads |
//! | [`range_lock`] | the range lock beside its rivals |
//! | [`result`] | medians, ratios, markdown and JSON |

mod compare;
mod open_close;
mod range_lock;
mod result;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

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
    /// The range lock beside other range locks and whole-file locks
    RangeLock(range_lock::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Compare(options) => {
            xtask::cleanup::install_signal_handler().and_then(|()| compare::run(&options))
        }
        Command::RangeLock(options) => range_lock::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("finefs-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
