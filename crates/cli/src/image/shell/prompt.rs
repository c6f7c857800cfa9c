//! Lines from a terminal, with history and completion.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use finefs::FileSystem;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{CompletionType, Config, Editor};
use rustyline::{Helper, Highlighter, Hinter, Validator};
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::{Outcome, execute, line, sync, told};
use crate::image::copying;
use crate::image::session::Context;
use crate::{CliResult, Failure};

/// Lines that are remembered.
const HISTORY_MAX: usize = 1000;

/// Does lines from a terminal until its user ends; gives the status of the last one.
pub(super) fn run(context: &mut Context, fs: FileSystem) -> CliResult<u8> {
    let failed = |error: ReadlineError| Failure::new(format!("the terminal: {error}"));
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(HISTORY_MAX)
        .and_then(|config| config.history_ignore_dups(true))
        .map_err(failed)?
        .history_ignore_space(true)
        .build();
    let mut editor = Editor::<Completion, DefaultHistory>::with_config(config).map_err(failed)?;
    editor.set_helper(Some(Completion {
        fs,
        directory: PathBuf::from("/"),
        host_directory: PathBuf::from("."),
        host: FilenameCompleter::new(),
    }));
    let history = history_path();
    if let Some(path) = &history {
        // There is none before the first time.
        let _ = editor.load_history(path);
    }
    // Nothing is lost then: what was done is on the image.
    let is_waiting = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&is_waiting))
            .map_err(|error| Failure::new(format!("signals: {error}")))?;
    }
    let stop = copying::watch_signals()?;
    let mut status = 0;
    while let Some(inside) = context.shell() {
        let shown = inside.image.display();
        let prompt = format!("{shown}:{}> ", inside.directory.display());
        if let Some(helper) = editor.helper_mut() {
            helper.directory.clone_from(&inside.directory);
            helper.host_directory.clone_from(&inside.host);
        }
        is_waiting.store(true, Ordering::Relaxed);
        let read = editor.readline(&prompt);
        is_waiting.store(false, Ordering::Relaxed);
        stop.store(false, Ordering::Relaxed);
        let text = match read {
            Ok(text) => text,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        };
        let _ = editor.add_history_entry(text.as_str());
        match execute(&text, context) {
            Outcome::Next(next) => status = next.max(told(sync(context))),
            Outcome::Exit => break,
        }
    }
    if let Some(path) = &history {
        let directory = path.parent().map(std::fs::create_dir_all);
        if directory.is_some_and(|made| made.is_ok()) {
            // A history that cannot be kept is no failure.
            let _ = editor.append_history(path);
        }
    }
    Ok(status)
}

/// Where lines are remembered, by the XDG Base Directory Specification.
fn history_path() -> Option<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = match from("XDG_STATE_HOME") {
        Some(state) => PathBuf::from(state),
        None => PathBuf::from(from("HOME")?).join(".local/state"),
    };
    Some(state.join("finefs/shell_history"))
}

/// Completes commands, paths of the image, and behind `host:` those of the host.
#[derive(Helper, Hinter, Highlighter, Validator)]
struct Completion {
    fs: FileSystem,
    directory: PathBuf,
    host_directory: PathBuf,
    host: FilenameCompleter,
}

const HOST: &str = "host:";

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..position];
        let start = word_start(before);
        let word = &before[start..];
        if before[..start].trim().is_empty() {
            let names = line::names().into_iter();
            let names = names.filter(|name| name.starts_with(word));
            return Ok((start, names.map(|name| pair(&name, " ")).collect()));
        }
        if let Some(path) = word.strip_prefix(HOST) {
            return Ok((start + HOST.len(), self.host_paths(path)?));
        }
        Ok((start, self.paths(word)))
    }
}

impl Completion {
    /// The paths of the host that go on as `word`.
    fn host_paths(&self, word: &str) -> rustyline::Result<Vec<Pair>> {
        let prefix = match word.starts_with('/') {
            true => String::new(),
            false => format!("{}/", self.host_directory.display()),
        };
        let path = format!("{prefix}{word}");
        let (at, mut found) = self.host.complete_path(&path, path.len())?;
        for pair in &mut found {
            let whole = format!("{}{}", &path[..at], pair.replacement);
            pair.replacement = whole.strip_prefix(&prefix).unwrap_or(&whole).to_owned();
        }
        Ok(found)
    }

    /// The paths of the image that go on as `word`, which is quoted.
    fn paths(&self, word: &str) -> Vec<Pair> {
        let plain = shlex::split(word).and_then(|words| words.into_iter().next());
        let plain = plain.unwrap_or_default();
        let (above, begun) = match plain.rfind('/') {
            Some(at) => plain.split_at(at + 1),
            None => ("", plain.as_str()),
        };
        let Ok(names) = finefs_image::walk::names(&self.fs, &self.directory.join(above)) else {
            return Vec::new();
        };
        let fits = |name: &&str| {
            name.starts_with(begun) && (begun.starts_with('.') || !name.starts_with('.'))
        };
        let names = names.iter().filter_map(|name| name.to_str()).filter(fits);
        names
            .map(|name| {
                let path = self.directory.join(above).join(OsStr::new(name));
                let is_directory = self.fs.metadata(path).is_ok_and(|found| found.is_dir());
                let end = if is_directory { "/" } else { " " };
                pair(&format!("{above}{name}"), end)
            })
            .collect()
    }
}

/// Where the last word of a line begins; blanks behind a backslash are part of it.
fn word_start(line: &str) -> usize {
    let bytes = line.as_bytes();
    let is_start = |at: &usize| bytes[at - 1] == b' ' && (*at < 2 || bytes[at - 2] != b'\\');
    (1..=bytes.len()).rev().find(is_start).unwrap_or(0)
}

/// A completion with what comes behind it, quoted for the line.
fn pair(word: &str, end: &str) -> Pair {
    const SPECIAL: &str = " \t\\'\"#$&*;?|<>()`~!";
    let mut quoted = String::new();
    for letter in word.chars() {
        if SPECIAL.contains(letter) {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    Pair {
        display: word.to_owned(),
        replacement: quoted + end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_begin_behind_blanks_that_are_not_quoted() {
        for (line, start) in [("", 0), ("l", 0), ("ls ", 3), ("ls a", 3), ("cat a\\ b", 4)] {
            assert_eq!(word_start(line), start, "{line}");
        }
    }

    #[test]
    fn paths_of_the_image_are_completed() {
        let fs = FileSystem::memory(1 << 20).unwrap();
        fs.create_dir_all("etc/a dir").unwrap();
        fs.write("etc/one", "").unwrap();
        fs.write("etc/.hidden", "").unwrap();
        let completion = Completion {
            fs,
            directory: PathBuf::from("/etc"),
            host_directory: PathBuf::from("."),
            host: FilenameCompleter::new(),
        };
        let found = |word: &str| -> Vec<String> {
            let pairs = completion.paths(word).into_iter();
            pairs.map(|pair| pair.replacement).collect()
        };
        assert_eq!(found(""), ["a\\ dir/", "one "]);
        assert_eq!(found("o"), ["one "]);
        assert_eq!(found("a\\ "), ["a\\ dir/"]);
        assert_eq!(found("/e"), ["/etc/"]);
        assert_eq!(found("../etc/."), ["../etc/.hidden "]);
        assert!(found("none/").is_empty());
    }
}
