//! The command `finefs`: one module for each subcommand, and a few that they share. Usage errors
//! end with status 2, every other failure prints one line `finefs: ...` and ends with status 1.
//!
//! A library so that the programs of the laboratory ask a mount's server ([`channel`]), read sizes
//! ([`size`]) and print ([`output`]) as the command does, and so that manual pages and shell
//! completions are made of its definition (`examples/pages.rs`). It is no interface for others.
//!
//! | Module | Thing |
//! |---|---|
//! | `mount`, `umount`, `nfs` (serve), `info` | the subcommands on mounts |
//! | `top`, `lsof`, `sync`, `freeze` | more of them |
//! | `mkfs`, `build`, `check`, `repair` (undo) | those on file systems |
//! | `resize`, `tune`, `dump`, `quota` | more of them |
//! | `convert` | between disk formats |
//! | `mke2fs`, `switches` | its names, lists of options and sizes; its switches |
//! | `destination` | where an image goes that is built |
//! | `image` | the subcommands that read and edit images without a mount |
//! | `external` | the subcommands that are programs of their own, as `finefs-bench` |
//! | `channel` | how a server is asked and told things, and tells how it has ended |
//! | `target` | what commands name: a mount, or what is served |
//! | `runtime_dir` | where its socket is |
//! | `mount_info` | what `info` tells of a mount |
//! | `options` | `-o` of mount |
//! | `remount` | `-o remount` |
//! | `open` | opening what is mounted or served |
//! | `keys`, `journals` | keys of encrypted files, external journals |
//! | `output` | standard output and standard error, whose readers may go |
//! | `size` | numbers with k, m, g or % |
//! | `accounts` | users and groups of this machine |
//! | `confine`, `attendant`, `dialler` | what a server is left; unmounts and connects for it |
//! | `file_limit`, `spare_memory` | files that a process may have open; memory for the system |
//! | `holders` | which processes use a file system |
//! | `quota_order` | what a server, or this process, sets of quotas |
//! | `background` | fork, the report of readiness, the watcher |
//! | `inherited` | descriptors of who started it |
//! | `serve` | the life of a mounted file system: signals, its end |
//! | `logger` | stderr, a file or the system log |
//! | `progress` | a sign of life during long work |
//! | `helper_call` | being called by mount(8), umount(8) and mount.fuse3 |
//!
//! The features of the crate leave out whole subcommands, with what they alone need; [`external`]
//! says of a command that is not there which feature it is.
#![cfg_attr(
    not(all(
        feature = "build",
        feature = "formats",
        feature = "nfs",
        feature = "shell"
    )),
    allow(dead_code, reason = "some of it serves them alone")
)]

mod accounts;
mod attendant;
mod background;
#[cfg(feature = "build")]
mod build;
pub mod channel;
mod check;
mod confine;
#[cfg(feature = "formats")]
mod convert;
#[cfg(feature = "build")]
mod destination;
mod dialler;
mod dump;
mod external;
mod file_limit;
mod freeze;
mod helper_call;
mod holders;
mod image;
mod info;
mod inherited;
mod journals;
mod keys;
mod logger;
mod lsof;
#[cfg(feature = "build")]
mod mke2fs;
#[cfg(feature = "build")]
mod mkfs;
mod mount;
mod mount_info;
#[cfg(feature = "nfs")]
mod nfs;
mod open;
mod options;
pub mod output;
mod progress;
mod quota;
mod quota_order;
mod remount;
mod repair;
mod resize;
mod runtime_dir;
mod serve;
pub mod size;
mod spare_memory;
#[cfg(feature = "build")]
mod switches;
mod sync;
mod target;
mod top;
mod tune;
mod umount;

use std::ffi::OsString;
use std::fmt;
use std::process::ExitCode;

use channel::Change;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
pub use options::{OptionText, OptionsPage, options_page};
use output::say;

#[derive(Parser)]
#[command(
    name = "finefs",
    version,
    // Of an option that is given twice the last counts, as everywhere.
    args_override_self = true,
    about = "ext2/3/4 images and memory file systems in user space",
    long_about = "Mounts ext2, ext3, ext4 and reiserfs images and memory file systems through \
                  FUSE, read-write, without root, for many processes at once; and reads and edits \
                  images without a mount.",
    help_template = help(),
    after_help = "finefs NAME runs the program finefs-NAME from beside finefs or from PATH: \
                  finefs bench measures file systems."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Mount(mount::Mount),
    Umount(umount::Umount),
    #[cfg(feature = "nfs")]
    Serve(nfs::Serve),
    /// Put everything on the image and let changes wait, so that the image can be copied
    ///
    /// The image is then as after a clean unmount. Reading goes on; but a directory in which
    /// somebody waits to make or remove a file cannot be listed until then. Files that were removed
    /// while somebody had them open are still in it, as orphans that the next mount or e2fsck
    /// frees.
    Freeze(freeze::Named),
    /// Let changes go on after freeze
    Thaw(freeze::Named),
    Sync(sync::Sync),
    Lsof(lsof::Lsof),
    Remount(remount::Remount),
    Info(info::Info),
    Check(check::Check),
    Repair(repair::Repair),
    Undo(repair::Undo),
    Resize(resize::Resize),
    Tune(Box<tune::Tune>),
    Dump(dump::Dump),
    Quota(quota::Quota),
    #[cfg(feature = "build")]
    Mkfs(Box<mkfs::Mkfs>),
    #[cfg(feature = "build")]
    Build(Box<build::Build>),
    #[cfg(feature = "shell")]
    Shell(image::shell::Shell),
    #[cfg(feature = "formats")]
    Convert(convert::Convert),
    Top(top::Top),
    #[command(flatten)]
    Image(image::ImageCommand),
    /// A program of its own
    #[command(external_subcommand)]
    External(Vec<OsString>),
}

/// A failure as the user sees it: one line.
#[derive(Debug)]
pub struct Failure(pub String);

impl Failure {
    /// One that is told with this line.
    pub fn new(line: impl fmt::Display) -> Failure {
        Failure(line.to_string())
    }
}

/// What parts of the command give.
pub type CliResult<T> = Result<T, Failure>;

/// The definition of the command line.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// What can be asked about a mount; `--help` has only their names.
const OF_MOUNTS: [&str; 7] = ["freeze", "thaw", "sync", "remount", "lsof", "top", "quota"];

/// What is done with a whole image, in the same way.
const OF_IMAGES: [&str; 8] = [
    "info", "check", "repair", "undo", "resize", "tune", "dump", "shell",
];

/// What `--help` shows: the commands of images, which are called like coreutils, on few lines.
fn help() -> String {
    const WIDTH: usize = 76;
    let images = image::ImageCommand::augment_subcommands(clap::Command::new("finefs"));
    let is_image = |name: &str| images.find_subcommand(name).is_some();
    let all = Command::augment_subcommands(clap::Command::new("finefs"));
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n\nCommands:\n");
    let is_listed =
        |name: &str| is_image(name) || OF_MOUNTS.contains(&name) || OF_IMAGES.contains(&name);
    for command in all
        .get_subcommands()
        .filter(|part| !is_listed(part.get_name()))
    {
        let about = command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        text += &format!("  {:<8} {about}\n", command.get_name());
    }
    text += &format!("\nMounts: {}\n", OF_MOUNTS.join(" "));
    let of_images = OF_IMAGES
        .into_iter()
        .filter(|name| all.find_subcommand(name).is_some());
    text += &format!(
        "Whole images: {}\n",
        of_images.collect::<Vec<_>>().join(" ")
    );
    text +=
        "\nImages without a mount; IMAGE:/PATH names a file, IMAGE@p2:/PATH one in a partition:\n";
    let mut line = String::from(" ");
    for name in images.get_subcommands().map(clap::Command::get_name) {
        if line.len() + name.len() >= WIDTH {
            text += &(std::mem::replace(&mut line, String::from(" ")) + "\n");
        }
        line += &format!(" {name}");
    }
    text + &line + "\n\nOptions:\n{options}{after-help}"
}

/// Ends with a usage error of the subcommand at `path`, as clap's own do.
fn usage(path: &[&str], kind: ErrorKind, message: &str) -> ! {
    let mut command = command();
    command.build();
    let mut named = Some(&mut command);
    for name in path {
        named = named.and_then(|command| command.find_subcommand_mut(name));
    }
    let error = match named {
        Some(command) => command.error(kind, message),
        None => clap::Error::raw(kind, message),
    };
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match helper_call::is_helper(&arguments) {
        true => exit_as_asked(&error, &arguments),
        false => error.exit(),
    }
}

/// The commands whose statuses are those of fsck(8), which ends with 16 for a usage error.
const AS_FSCK: [&str; 2] = ["check", "repair"];

/// The command whose statuses are those of resize2fs(8), which ends with 1 for a usage error.
const AS_RESIZE2FS: &str = "resize";

/// Ends with a usage error.
fn exit_as_asked(error: &clap::Error, arguments: &[OsString]) -> ! {
    let name = arguments.get(1).filter(|_| error.use_stderr());
    let status = match name {
        _ if error.use_stderr() && helper_call::is_helper(arguments) => helper_call::MISUSED.into(),
        Some(name) if AS_FSCK.iter().any(|known| name == known) => 16,
        Some(name) if name == AS_RESIZE2FS => 1,
        _ => error.exit(),
    };
    let _ = error.print();
    std::process::exit(status)
}

/// What the program's arguments say.
fn parse(arguments: Vec<OsString>) -> Arguments {
    #[cfg(feature = "build")]
    if let Some(name) = mke2fs::called_as(&arguments) {
        mke2fs::tell_version(name, &arguments);
        return Arguments::try_parse_from(mke2fs::translate(name, arguments))
            .unwrap_or_else(|error| mke2fs::exit(&error));
    }
    let words = helper_call::translate(arguments.clone());
    #[cfg(feature = "build")]
    let words = image::with_dash(words, 1);
    Arguments::try_parse_from(words).unwrap_or_else(|error| exit_as_asked(&error, &arguments))
}

/// Does it.
pub fn main() -> ExitCode {
    // A file beyond the limit of its size is an error (EFBIG), and what was begun is removed.
    let _ = signal_hook::flag::register(libc::SIGXFSZ, std::sync::Arc::default());
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let is_helper = helper_call::is_helper(&arguments);
    let result = match parse(arguments).command {
        Command::Mount(command) => command.run(),
        #[cfg(feature = "nfs")]
        Command::Serve(command) => command.run(),
        Command::Umount(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Freeze(target) => target.ask(Change::Freeze).map(|()| ExitCode::SUCCESS),
        Command::Thaw(target) => target.ask(Change::Thaw).map(|()| ExitCode::SUCCESS),
        Command::Sync(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Lsof(command) => command.run(),
        Command::Remount(command) => command.run().map(|()| ExitCode::SUCCESS),
        #[cfg(feature = "build")]
        Command::Mkfs(command) => command.run(),
        #[cfg(feature = "build")]
        Command::Build(command) => command.run(),
        #[cfg(feature = "formats")]
        Command::Convert(command) => command.run(),
        Command::Info(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Check(command) => Ok(command.run()),
        Command::Repair(command) => Ok(command.run()),
        Command::Dump(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Resize(command) => command.run(),
        Command::Tune(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Undo(command) => command.run().map(|()| ExitCode::SUCCESS),
        #[cfg(feature = "shell")]
        Command::Shell(command) => command.run(),
        Command::Quota(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Image(command) => command.run(&mut image::Context::default()),
        Command::External(words) => external::run(&words),
        Command::Top(command) => command.run().map(|()| ExitCode::SUCCESS),
    };
    let status = result.unwrap_or_else(|Failure(line)| {
        say(line);
        ExitCode::FAILURE
    });
    match is_helper && status != ExitCode::SUCCESS {
        true => helper_call::FAILED.into(),
        false => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_commands_are_in_the_help_which_fits_a_screen() {
        let help = command().render_help().to_string();
        for part in command()
            .get_subcommands()
            .filter(|part| !part.is_hide_set())
        {
            assert!(help.contains(&format!(" {}", part.get_name())), "{help}");
        }
        assert!(help.lines().count() <= 24, "{help}");
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }
}
