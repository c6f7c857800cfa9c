//! `finefs shell`: the commands of images, one after the other, on an image that is opened once.
//!
//! | Module | Thing |
//! |---|---|
//! | `line` | what a line says |
//! | `words` | its words: quotes, patterns |
//! | `prompt` | lines from a terminal, with history and completion |
//!
//! # How it works
//! A shell has a [`Context`] that keeps the open images from command to command; what words mean
//! there is [`Inside::operand`]'s to say. A script ends at the first line that fails. At a prompt
//! everything is on the image when the next prompt comes; in a script, when it ends.

mod line;
mod prompt;
mod words;

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::Ordering;

use clap::Args;
use finefs_image::{Access, Address, Error};

use self::line::{Line, Word};
use super::Where;
use super::glob;
use super::session::{Context, HOST, Inside, word_for};
use super::stop;
use crate::output::{print, say, set_program};
use crate::{CliResult, Failure};

/// Work on an image by many commands, at a prompt or by a script
///
/// The image is opened once. All commands of images are there, with cd, pwd, sync and exit; help
/// lists them. Paths are those of the image, from the directory of cd on; host:PATH is a file of
/// the host, from that of lcd on. A script ends at the first line that fails, names it, and its
/// status is the shell's; a - before a command lets it fail. Words are quoted as in sh(1), *, ? and
/// [a-z] stand for files, # begins a comment; !COMMAND is the host's.
#[derive(Args)]
pub(crate) struct Shell {
    /// The image, or IMAGE:/DIR to begin there
    image: OsString,
    /// Do what the lines of SCRIPT say; - or none, where that is no terminal, is standard input
    #[arg(short, long, value_name = "SCRIPT")]
    file: Option<PathBuf>,
    /// Do what LINE says; may be there several times
    #[arg(
        short,
        long,
        value_name = "LINE",
        conflicts_with = "file",
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
    /// Change nothing
    #[arg(short, long)]
    read_only: bool,
    #[command(flatten)]
    place: Where,
}

/// What a line has come to.
enum Outcome {
    /// The next line, with the status of this one.
    Next(u8),
    /// The end, with a status that was given.
    Exit(Option<u8>),
}

impl Shell {
    pub(crate) fn run(self) -> CliResult<ExitCode> {
        set_program("finefs shell");
        let address = Address::of_image(&self.image);
        let access = match self.read_only {
            true => Access::Read,
            false => Access::Write,
        };
        let mut images = self.place.images();
        let fs = images.open(&address, access);
        let fs = fs.map_err(|error| match self.read_only {
            true => Failure::new(error),
            false => Failure::new(format!("{error} (-r only reads)")),
        })?;
        let failed = |error| Failure::new(Error::inside(address.to_string(), &error));
        let directory = fs.canonicalize(&address.path).map_err(failed)?;
        // Before anything is changed.
        stop::watch_signals()?;
        let mut context = Context::inside(Inside {
            images,
            image: address.image.clone(),
            previous: directory.clone(),
            directory,
            host: PathBuf::from("."),
            is_read_only: self.read_only,
        });
        let status = self.lines(&mut context, fs);
        // All that was done is on the image, also where the last line has failed.
        let closed = context.take_images().close();
        let status = status?;
        closed.map_err(Failure::new)?;
        Ok(ExitCode::from(status))
    }

    /// Does all lines; gives the status.
    fn lines(&self, context: &mut Context, fs: finefs::FileSystem) -> CliResult<u8> {
        let open = |path: &PathBuf| {
            let file = File::open(path);
            file.map_err(|error| Failure::new(Error::host(path.display().to_string(), error)))
        };
        let is_input = |path: &PathBuf| path.as_os_str() == "-";
        match &self.file {
            _ if !self.command.is_empty() => {
                let mut lines = self
                    .command
                    .iter()
                    .map(|line| Ok(line.as_bytes().to_owned()));
                script("-c", &mut lines, context)
            }
            Some(path) if !is_input(path) => {
                let mut lines = BufReader::new(open(path)?).split(b'\n');
                script(&path.display().to_string(), &mut lines, context)
            }
            None if std::io::stdin().is_terminal() => prompt::run(context, fs),
            _ => script(
                "standard input",
                &mut std::io::stdin().lock().split(b'\n'),
                context,
            ),
        }
    }
}

/// Does lines until one fails.
fn script(
    name: &str,
    lines: &mut dyn Iterator<Item = std::io::Result<Vec<u8>>>,
    context: &mut Context,
) -> CliResult<u8> {
    let stop = stop::watch_signals()?;
    for (index, text) in lines.enumerate() {
        let text = text.map_err(|error| Failure::new(format!("{name}: {error}")))?;
        let outcome = execute(&text, context);
        if stop.load(Ordering::Relaxed) {
            say(format!("{name}: line {}: interrupted", index + 1));
            return Ok(stop::INTERRUPTED);
        }
        match outcome {
            Outcome::Next(0) => {}
            Outcome::Next(status) => {
                let number = index + 1;
                let text = String::from_utf8_lossy(text.trim_ascii());
                say(format!(
                    "{name}: line {number}: '{text}' failed with status {status}; stopped"
                ));
                return Ok(status);
            }
            Outcome::Exit(status) => return Ok(status.unwrap_or(0)),
        }
    }
    Ok(0)
}

/// Does one line, and says what fails.
fn execute(text: &[u8], context: &mut Context) -> Outcome {
    let start = text.trim_ascii_start();
    let may_fail = start.strip_prefix(b"-").map(<[u8]>::trim_ascii_start);
    if let Some(words) = may_fail.unwrap_or(start).strip_prefix(b"!") {
        let words = OsString::from_vec(words.to_owned());
        let status = run_on_host(context, "sh", &["-c".into(), words]);
        return Outcome::Next(if may_fail.is_some() { 0 } else { status });
    }
    let line = match Line::parse(text, &mut |pattern| expanded(context, pattern)) {
        Ok(Some(line)) => line,
        Ok(None) => return Outcome::Next(0),
        Err(status) => return Outcome::Next(status),
    };
    let may_fail = line.may_fail;
    let status = match line.word {
        Word::Exit { status } => return Outcome::Exit(status),
        Word::Image(command) => {
            let ended = command.run(context);
            let status = context.take_status();
            told(ended.map(|_| ())).max(status)
        }
        Word::Cd { directory } => told(change_directory(context, directory)),
        Word::Lcd { directory } => {
            let home = || std::env::var_os("HOME").map_or("/".into(), PathBuf::from);
            let to = directory.unwrap_or_else(home);
            told(change_host_directory(context, &to))
        }
        Word::Lpwd => match context.shell().map(|inside| inside.host.canonicalize()) {
            Some(Ok(path)) => told(print(&format!("{}\n", path.display()))),
            Some(Err(error)) => told(Err(Failure::new(Error::host(".", error)))),
            None => 0,
        },
        Word::Lls { words } => run_on_host(context, "ls", &words),
        // The prompt has it.
        Word::History => 0,
        Word::Pwd => match context.shell() {
            Some(inside) => told(print(&format!("{}\n", inside.directory.display()))),
            None => 0,
        },
        Word::Sync => told(sync(context)),
    };
    match may_fail {
        true => Outcome::Next(0),
        false => Outcome::Next(status),
    }
}

/// The files that a pattern stands for, as words of a line.
fn expanded(context: &mut Context, pattern: &[u8]) -> Vec<OsString> {
    let Some(inside) = context.shell() else {
        return Vec::new();
    };
    match pattern.strip_prefix(HOST.as_bytes()) {
        Some(pattern) => {
            let tree = glob::HostTree {
                directory: &inside.host,
            };
            let word = |path: PathBuf| {
                let mut word = OsString::from(HOST);
                word.push(path);
                word
            };
            let paths = glob::expand(pattern, &tree).into_iter();
            paths.map(word).collect()
        }
        None => {
            let address = Address {
                image: inside.image.clone(),
                path: inside.directory.clone(),
            };
            let Ok(fs) = inside.images.open(&address, Access::Read) else {
                return Vec::new();
            };
            let tree = glob::ImageTree {
                fs: &fs,
                directory: &inside.directory,
            };
            let paths = glob::expand(pattern, &tree).into_iter();
            paths.map(word_for).collect()
        }
    }
}

/// Runs a program of the host in the host's directory; gives its status, that of sh(1) where a
/// signal has ended it.
fn run_on_host(context: &mut Context, program: &str, words: &[OsString]) -> u8 {
    let host = context.shell().map(|inside| inside.host.clone());
    let mut command = Command::new(program);
    command
        .args(words)
        .current_dir(host.unwrap_or_else(|| ".".into()));
    match command.status() {
        Ok(status) => {
            let signal = status.signal().map(|signal| 128 + signal);
            let code = status.code().or(signal);
            code.and_then(|code| code.try_into().ok()).unwrap_or(1)
        }
        Err(error) => told(Err(Failure::new(Error::host(program, error)))),
    }
}

/// Says what failed; gives the status.
fn told(result: CliResult<()>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(Failure(line)) => {
            say(line);
            1
        }
    }
}

fn change_directory(context: &mut Context, to: Option<OsString>) -> CliResult<()> {
    let Some(inside) = context.shell() else {
        return Ok(());
    };
    let to = match to {
        Some(to) if to == "-" => inside.previous.clone().into(),
        to => to.unwrap_or_else(|| OsString::from("/")),
    };
    let address = Address {
        image: inside.image.clone(),
        path: inside.directory.join(&to),
    };
    let fs = inside.images.open(&address, Access::Read);
    let fs = fs.map_err(Failure::new)?;
    let failed = |error| Failure::new(Error::inside(to.display().to_string(), &error));
    let path = fs.canonicalize(&address.path).map_err(failed)?;
    if !fs.metadata(&path).map_err(failed)?.is_dir() {
        return Err(Failure::new(format!("{}: is no directory", to.display())));
    }
    inside.previous = std::mem::replace(&mut inside.directory, path);
    Ok(())
}

/// Not that of the process: the image's own name may be relative.
fn change_host_directory(context: &mut Context, to: &Path) -> CliResult<()> {
    let Some(inside) = context.shell() else {
        return Ok(());
    };
    let host = inside.host.join(to);
    let failed = |error| Failure::new(Error::host(to.display().to_string(), error));
    if !std::fs::metadata(&host).map_err(failed)?.is_dir() {
        return Err(Failure::new(format!("{}: is no directory", to.display())));
    }
    inside.host = host;
    Ok(())
}

/// Puts everything on the images.
fn sync(context: &mut Context) -> CliResult<()> {
    match context.shell() {
        Some(inside) => inside.images.sync().map_err(Failure::new),
        None => Ok(()),
    }
}
