//! The command `finefs`: see the library of this package.

use std::process::ExitCode;

fn main() -> ExitCode {
    finefs_cli::main()
}
