//! `finefs-bench`: how fast finefs is beside others, measured in the same run.
//!
//! | module | what it is about |
//! |---|---|
//! | [`compare`] | finefs, fuse2fs and the kernel by turns, on like images |
//! | [`fsync`] | creating, writing and syncing small files |
//! | [`open_close`] | opening and closing one of ten files from four threads |
//! | [`variant`] | who is compared |
//! | [`result`] | medians, ratios, markdown and JSON |

mod compare;
mod fsync;
mod open_close;
mod result;
mod variant;

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
}

fn main() -> ExitCode {
    let Command::Compare(options) = Cli::parse().command;
    match xtask::cleanup::install_signal_handler().and_then(|()| compare::run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("finefs-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
