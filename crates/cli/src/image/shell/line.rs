//! What a line of a shell says.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

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
#[command(name = "finefs shell", no_binary_name = true, disable_help_flag = true)]
struct Words {
    #[command(subcommand)]
    word: Word,
}

/// A command of a shell.
#[derive(Subcommand)]
pub(super) enum Word {
    /// Let relative paths begin at a directory of the image; / without one
    Cd { directory: Option<OsString> },
    /// Print it
    Pwd,
    /// Let host: paths begin at a directory of the host
    Lcd { directory: PathBuf },
    /// Put everything on the image
    Sync,
    /// End; the end of the input does too
    #[command(alias = "quit")]
    Exit,
    #[command(flatten)]
    Image(ImageCommand),
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
    /// What a line says, `None` for nothing. The error is the status; it has been told.
    pub fn parse(text: &str) -> Result<Option<Line>, u8> {
        let Some(mut words) = shlex::split(text) else {
            say("a quote is not closed");
            return Err(USAGE);
        };
        let may_fail = match words.first_mut() {
            None => return Ok(None),
            Some(first) if first == "-" => {
                words.remove(0);
                true
            }
            Some(first) => match first.strip_prefix('-') {
                Some(rest) => {
                    *first = rest.to_owned();
                    true
                }
                None => false,
            },
        };
        let words = words.into_iter().map(OsString::from).collect();
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
        let parse =
            |text| Line::parse(text).map(|line| line.map(|line| (line.word, line.may_fail)));
        assert!(matches!(parse("  # nothing"), Ok(None)));
        assert!(matches!(parse("ls"), Ok(Some((Word::Image(_), false)))));
        assert!(matches!(
            parse("-rm 'a b' # c"),
            Ok(Some((Word::Image(_), true)))
        ));
        assert!(matches!(parse("- quit"), Ok(Some((Word::Exit, true)))));
        assert!(matches!(parse("cat 'open"), Err(USAGE)));
        assert!(matches!(parse("mount x"), Err(USAGE)));
        assert!(matches!(parse("-mount x"), Ok(None)));
        let Ok(Some((Word::Cd { directory }, _))) = parse("cd \"a b\"\\ c") else {
            panic!("no cd");
        };
        assert_eq!(directory.unwrap(), "a b c");
    }
}
