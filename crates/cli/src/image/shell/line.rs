//! What a line of a shell says.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use super::words::{self, Wrong};
use crate::image::ImageCommand;
use crate::output::say;

/// Status of a line that is no command, as of every usage error.
const USAGE: u8 = 2;

/// A command, and how its end is taken.
pub(super) struct Line {
    pub word: Word,
    /// Its failure ends no script.
    pub may_fail: bool,
}

#[derive(Parser)]
#[command(
    name = "finefs shell",
    no_binary_name = true,
    disable_help_flag = true,
    args_override_self = true
)]
struct Words {
    #[command(subcommand)]
    word: Word,
}

/// A command of a shell.
#[derive(Subcommand)]
pub(super) enum Word {
    /// Let relative paths begin at a directory of the image; / without one, - for the one before
    Cd {
        #[arg(allow_hyphen_values = true)]
        directory: Option<OsString>,
    },
    /// Print it
    Pwd,
    /// Let host: paths begin at a directory of the host; your own without one
    Lcd { directory: Option<PathBuf> },
    /// Print it
    Lpwd,
    /// List it, as ls(1) of the host
    Lls {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Print the lines that were typed
    History,
    /// Put everything on the image
    Sync,
    /// End, with a status if one is given; the end of the input does too
    #[command(alias = "quit")]
    Exit { status: Option<u8> },
    #[command(flatten)]
    Image(Box<ImageCommand>),
}

/// The commands, some of which take the directory where they have no operand.
fn command() -> clap::Command {
    let mut command = Words::command();
    for (name, operands) in [
        ("ls", "operands"),
        ("tree", "operands"),
        ("du", "operands"),
        ("df", "operands"),
        ("find", "words"),
    ] {
        command = command.mut_subcommand(name, |command| {
            command.mut_arg(operands, |operands| operands.required(false))
        });
    }
    command
}

/// Their names.
pub(super) fn names() -> Vec<String> {
    let command = command();
    let names = command.get_subcommands().map(|part| part.get_name());
    names.chain(["help"]).map(str::to_owned).collect()
}

impl Line {
    /// What a line says, `None` for nothing. `expand` says which files a pattern stands for. The
    /// error is the status; it has been told.
    pub fn parse(
        text: &[u8],
        expand: &mut dyn FnMut(&[u8]) -> Vec<OsString>,
    ) -> Result<Option<Line>, u8> {
        let mut words = match words::split(text) {
            Ok(words) => words,
            Err(Wrong::OpenQuote) => {
                say("a quote is not closed");
                return Err(USAGE);
            }
            Err(Wrong::Operator(letter)) => {
                say(format!(
                    "'{letter}': there are no pipes, redirections and jobs here; quote it in a \
                     name, or use finefs COMMAND in your own shell"
                ));
                return Err(USAGE);
            }
        };
        let may_fail = match words.first_mut().map(|first| &mut first.text) {
            None => return Ok(None),
            Some(first) if first == b"-" => {
                words.remove(0);
                true
            }
            Some(first) => {
                let rest = first.strip_prefix(b"-").map(<[u8]>::to_owned);
                let may_fail = rest.is_some();
                *first = rest.unwrap_or(std::mem::take(first));
                if first == b"?" {
                    *first = b"help".to_vec();
                }
                may_fail
            }
        };
        let words = words.into_iter().enumerate().flat_map(|(index, word)| {
            let found = word.pattern.filter(|_| index > 0);
            let found = found.map(|pattern| expand(&pattern)).unwrap_or_default();
            // As sh has it, what names nothing stays as it is.
            match found.is_empty() {
                true => vec![OsString::from_vec(word.text)],
                false => found,
            }
        });
        let words: Vec<OsString> = words.collect();
        #[cfg(feature = "build")]
        let words = crate::image::with_dash(words, 0);
        let matches = command().try_get_matches_from::<Vec<OsString>, _>(words);
        match matches.and_then(|matches| Words::from_arg_matches(&matches)) {
            Ok(Words { word }) => Ok(Some(Line { word, may_fail })),
            Err(error) => {
                let _ = error.print();
                match error.use_stderr() && !may_fail {
                    true => Err(USAGE),
                    false => Ok(None),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_consistent() {
        command().debug_assert();
        for name in ["ls", "cd", "exit", "help"] {
            assert!(names().iter().any(|known| known == name), "{name}");
        }
        assert!(!names().iter().any(|known| known == "shell"));
    }

    #[test]
    fn lines_are_words_quotes_and_comments() {
        let parse = |text: &str| {
            let line = Line::parse(text.as_bytes(), &mut |pattern| {
                let pattern = String::from_utf8_lossy(pattern);
                vec![pattern.replace('*', "a b").into()]
            });
            line.map(|line| line.map(|line| (line.word, line.may_fail)))
        };
        assert!(matches!(parse("  # nothing"), Ok(None)));
        assert!(matches!(parse("ls"), Ok(Some((Word::Image(_), false)))));
        assert!(matches!(
            parse("-rm 'a b' # c"),
            Ok(Some((Word::Image(_), true)))
        ));
        assert!(matches!(
            parse("- quit"),
            Ok(Some((Word::Exit { status: None }, true)))
        ));
        assert!(matches!(parse("cat 'open"), Err(USAGE)));
        assert!(matches!(parse("cat a | b"), Err(USAGE)));
        assert!(matches!(parse("mount x"), Err(USAGE)));
        assert!(matches!(parse("-mount x"), Ok(None)));
        let Ok(Some((Word::Cd { directory }, _))) = parse("cd \"a b\"\\ c") else {
            panic!("no cd");
        };
        assert_eq!(directory.unwrap(), "a b c");
        let Ok(Some((Word::Cd { directory }, _))) = parse("cd *") else {
            panic!("no cd");
        };
        assert_eq!(directory.unwrap(), "a b");
    }
}
