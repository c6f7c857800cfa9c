//! Lines from a terminal, with history and completion.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use finefs::FileSystem;
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{CompletionType, Config, Editor};
use rustyline::{Helper, Highlighter, Hinter, Validator};
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::{Outcome, execute, line, sync, told, words};
use crate::image::glob::{HostTree, Tree};
use crate::image::session::{Context, HOST};
use crate::image::stop;
use crate::output::print;
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
    let stop = stop::watch_signals()?;
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
        if text.trim() == "history" {
            status = told(print(&numbered(editor.history())));
            continue;
        }
        match execute(text.as_bytes(), context) {
            Outcome::Next(next) => status = next.max(told(sync(context))),
            Outcome::Exit(given) => {
                status = given.unwrap_or(status);
                break;
            }
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

/// The lines of a history, as bash shows them.
fn numbered(history: &DefaultHistory) -> String {
    let lines = history.iter().zip(1..);
    lines
        .map(|(line, number)| format!("{number:5}  {line}\n"))
        .collect()
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
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..position];
        let word = words::last(before.as_bytes());
        let begun = String::from_utf8_lossy(&word.text);
        if before[..word.start].trim().is_empty() {
            let names = line::names().into_iter();
            let names = names.filter(|name| name.starts_with(&*begun));
            return Ok((
                word.start,
                names.map(|name| pair(&name, &name, " ", None)).collect(),
            ));
        }
        let found = match begun.strip_prefix(HOST) {
            Some(path) => self.host_paths(path)?,
            None => self.paths(&begun),
        };
        let pairs = found.into_iter().map(|(path, end)| {
            let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
            let shown = if end == "/" { name + end } else { name };
            let prefix = if begun.starts_with(HOST) { HOST } else { "" };
            pair(&format!("{prefix}{path}"), &shown, end, word.quote)
        });
        Ok((word.start, pairs.collect()))
    }
}

impl Completion {
    /// The paths of the host that go on as `plain`, with what stands behind each.
    fn host_paths(&self, plain: &str) -> rustyline::Result<Vec<(String, &'static str)>> {
        let prefix = match plain.starts_with('/') {
            true => String::new(),
            false => format!("{}/", self.host_directory.display()),
        };
        let path = format!("{prefix}{plain}");
        let (above, begun) = path.split_at(path.rfind('/').map_or(0, |at| at + 1));
        let tree = HostTree {
            directory: Path::new(""),
        };
        let names = tree.names(Path::new(above)).into_iter();
        let names = names.filter_map(|name| name.into_string().ok());
        let found = names.filter(|name| goes_on(name, begun)).map(|name| {
            let whole = format!("{above}{name}");
            let end = if Path::new(&whole).is_dir() { "/" } else { " " };
            let shown = whole.strip_prefix(&prefix).unwrap_or(&whole).to_owned();
            (shown, end)
        });
        Ok(found.collect())
    }

    /// The paths of the image that go on as `plain`, with what stands behind each.
    fn paths(&self, plain: &str) -> Vec<(String, &'static str)> {
        let (above, begun) = plain.split_at(plain.rfind('/').map_or(0, |at| at + 1));
        let Ok(names) = finefs_image::walk::names(&self.fs, &self.directory.join(above)) else {
            return Vec::new();
        };
        let names = names.iter().filter_map(|name| name.to_str());
        names
            .filter(|name| goes_on(name, begun))
            .map(|name| {
                let path = self.directory.join(above).join(OsStr::new(name));
                let is_directory = self.fs.metadata(path).is_ok_and(|found| found.is_dir());
                let end = if is_directory { "/" } else { " " };
                (format!("{above}{name}"), end)
            })
            .collect()
    }
}

/// Names with a dot in front are not completed from nothing, and those that no line can hold never.
fn goes_on(name: &str, begun: &str) -> bool {
    name.starts_with(begun)
        && (begun.starts_with('.') || !name.starts_with('.'))
        && !name.contains(char::is_control)
}

/// A completion with what comes behind it, quoted for the line as its beginning is; `shown` stands
/// in the list.
fn pair(word: &str, shown: &str, end: &str, quote: Option<u8>) -> Pair {
    const SPECIAL: &str = " \t\\'\"#$&*;?|<>()`~![]";
    // Within single quotes nothing stands for such a quote.
    let quote = quote
        .map(char::from)
        .filter(|quote| *quote == '"' || !word.contains('\''));
    let is_special = |letter: &char| match quote {
        Some('"') => matches!(letter, '"' | '\\'),
        Some(_) => false,
        None => SPECIAL.contains(*letter),
    };
    let mut quoted: String = quote.into_iter().collect();
    for letter in word.chars() {
        if is_special(&letter) {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    // What goes on behind a directory stays in the quotes.
    quoted.extend(quote.filter(|_| end != "/"));
    Pair {
        display: shown.to_owned(),
        replacement: quoted + end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_image_are_completed() {
        let fs = FileSystem::memory(1 << 20).unwrap();
        fs.create_dir_all("etc/a dir").unwrap();
        fs.write("etc/one", "").unwrap();
        fs.write("etc/.hidden", "").unwrap();
        fs.write("etc/o\ntwo", "").unwrap();
        let completion = Completion {
            fs,
            directory: PathBuf::from("/etc"),
            host_directory: PathBuf::from("."),
        };
        let history = DefaultHistory::new();
        let context = rustyline::Context::new(&history);
        let found = |line: &str| -> Vec<String> {
            let (start, pairs) = completion.complete(line, line.len(), &context).unwrap();
            let pairs = pairs.into_iter();
            pairs
                .map(|pair| format!("{}{}", &line[..start], pair.replacement))
                .collect()
        };
        assert_eq!(found("ls "), ["ls a\\ dir/", "ls one "]);
        assert_eq!(found("ls o"), ["ls one "]);
        assert_eq!(found("ls a\\ "), ["ls a\\ dir/"]);
        assert_eq!(found("ls /e"), ["ls /etc/"]);
        assert_eq!(found("ls ../etc/."), ["ls ../etc/.hidden "]);
        assert_eq!(found("cd \"a"), ["cd \"a dir/"]);
        assert_eq!(found("cat '/etc/o"), ["cat '/etc/one' "]);
        assert_eq!(found("lpw"), ["lpwd "]);
        assert!(found("ls none/").is_empty());
        let (_, pairs) = completion.complete("ls ../e", 7, &context).unwrap();
        assert_eq!(pairs[0].display, "etc/");
    }
}
