//! The command `finefs`.
//!
//! One module of `cli` for each subcommand, and a few that they share. Usage errors end with
//! status 2, every other failure prints one line `finefs: ...` and ends with status 1.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(std::env::args_os().collect())
}
