//! Standard output and standard error, whose readers may go at any time, as in `finefs info IMAGE |
//! head -1`: that is no error.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

use crate::{CliResult, Failure};

static PROGRAM: OnceLock<&str> = OnceLock::new();

/// Says which program speaks, if it is not finefs.
pub fn set_program(name: &'static str) {
    let _ = PROGRAM.set(name);
}

/// Prints what was asked for.
///
/// # Errors
/// Where there is no room; not where nobody reads.
pub fn print(text: &str) -> CliResult<()> {
    print_bytes(text.as_bytes())
}

/// The same of what may be no text.
///
/// # Errors
/// As [`print`].
pub fn print_bytes(bytes: &[u8]) -> CliResult<()> {
    let mut output = io::stdout().lock();
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints beside what was asked for. Nobody is there to be told if it fails.
pub fn print_beside(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Prints what every failure and every note looks like: one line, whatever is in the names that it
/// has.
pub fn say(line: impl fmt::Display) {
    // One write, so that lines of two processes do not mix.
    let program = PROGRAM.get().copied().unwrap_or("finefs");
    let line = printable(&without_numbers(&line.to_string()));
    print_beside(&format!("{program}: {line}\n"));
}

/// Asks on standard error, and reads the answer from standard input; true for what begins with y.
/// Nobody there is a no.
pub(crate) fn ask(question: &str) -> bool {
    let program = PROGRAM.get().copied().unwrap_or("finefs");
    print_beside(&format!("{program}: {} ", printable(question)));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).is_ok() && answer.trim_start().starts_with(['y', 'Y'])
}

/// With control characters as `\n`, `\u{1b}`.
fn printable(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for c in line.chars() {
        match c.is_control() {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

/// Without the numbers that the standard library puts behind the system's reasons, as in ` (os
/// error 2)`.
fn without_numbers(line: &str) -> String {
    let mut parts = line.split(" (os error ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        out.push_str(rest.strip_prefix(')').unwrap_or(rest));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(
            printable("a\nb\u{1b}[1m: geht nicht, ä"),
            "a\\nb\\u{1b}[1m: geht nicht, ä"
        );
    }

    #[test]
    fn reasons_have_no_numbers() {
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        let line = format!("a: {error}; b: {error}");
        assert_eq!(
            without_numbers(&line),
            "a: No such file or directory; b: No such file or directory"
        );
        assert_eq!(
            without_numbers("nothing of the sort"),
            "nothing of the sort"
        );
    }
}
