//! Subcommands that are programs of their own: `finefs NAME ...` runs `finefs-NAME ...` from beside
//! this program or from PATH, as git and cargo do. `finefs bench` is one.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::error::ErrorKind as Usage;
use finefs_image::programs::is_in_path;

use crate::{CliResult, Failure, usage};

/// The commands that a build may be without, and the feature that each needs.
const BY_FEATURE: [(&str, &str); 6] = [
    ("build", "build"),
    ("convert", "formats"),
    ("mkfs", "build"),
    ("serve", "nfs"),
    ("shell", "shell"),
    ("tar", "build"),
];

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
    // A directory of PATH that cannot be searched may have it, but nothing says so.
    let is_missing = match error.kind() {
        ErrorKind::NotFound => true,
        ErrorKind::PermissionDenied => !program.is_absolute() && !is_in_path(program.as_os_str()),
        _ => false,
    };
    if is_missing {
        let line = match BY_FEATURE.iter().find(|(command, _)| name == command) {
            Some((_, feature)) => {
                format!("this finefs was built without '{shown}'; its feature '{feature}' has it")
            }
            None => format!(
                "unrecognized subcommand '{shown}', and there is no program finefs-{shown} beside \
                 finefs or in PATH"
            ),
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_build_is_without_is_known() {
        let has = |feature| match feature {
            "build" => cfg!(feature = "build"),
            "formats" => cfg!(feature = "formats"),
            "nfs" => cfg!(feature = "nfs"),
            "shell" => cfg!(feature = "shell"),
            other => panic!("{other} is no feature"),
        };
        for (command, feature) in BY_FEATURE {
            let is_there = crate::command().find_subcommand(command).is_some();
            assert_eq!(is_there, has(feature), "{command}");
        }
    }
}
