//! Subcommands that are programs of their own: `finefs NAME ...` runs `finefs-NAME ...` from beside
//! this program or from PATH, as git and cargo do. `finefs bench` is one.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::error::ErrorKind as Usage;

use crate::{CliResult, Failure, usage};

/// Becomes the program of `words`, a name and its arguments; returns only if it cannot.
pub(crate) fn run(words: &[OsString]) -> CliResult<ExitCode> {
    let (name, arguments) = words.split_first().expect("clap gives the name");
    let program = program(name);
    // A name with a slash would be a path, and no subcommand is one.
    let error = match name.as_bytes().contains(&b'/') {
        true => ErrorKind::NotFound.into(),
        false => Command::new(&program).args(arguments).exec(),
    };
    let shown = name.display();
    if error.kind() == ErrorKind::NotFound {
        let line = format!(
            "unrecognized subcommand '{shown}', and there is no program finefs-{shown} beside \
             finefs or in PATH"
        );
        usage(&[], Usage::InvalidSubcommand, &line);
    }
    Err(Failure::new(format!("{}: {error}", program.display())))
}

/// The one beside this program, or the name that is looked for in PATH.
fn program(name: &OsStr) -> PathBuf {
    let mut file = OsString::from("finefs-");
    file.push(name);
    let beside = std::env::current_exe()
        .ok()
        .map(|own| own.with_file_name(&file));
    beside
        .filter(|beside| beside.is_file())
        .unwrap_or_else(|| file.into())
}
