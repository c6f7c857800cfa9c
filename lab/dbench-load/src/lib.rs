//! dbench's load file: what a client of an SMB server asked for, an operation a line.
//!
//! A line is the operation's name, its parameters and the status that the server answered. Paths
//! are in quotes and have backslashes; the name `client1` in them stands for the client that
//! replays. A number in front of the name is the time, in seconds from the beginning, at which the
//! client asked. Lines that are empty or begin with `#` say nothing. Names of operations are those
//! of dbench 4's file, and the long ones of CIFS that later versions write (CREATEX is NTCreateX,
//! and so on); case does not matter.
//!
//! [`Load`] is a whole file, [`Reader`] one that is understood line by line, as dbench does while
//! it runs.

mod reader;

pub use reader::Reader;

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;

/// dbench's own load file, as Debian's package installs it.
pub const LOAD_FILE: &str = "/usr/share/dbench/client.txt";

/// What a client can ask for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum OperationKind {
    /// Opens, and perhaps makes, a file or directory.
    NTCreateX,
    /// Closes it.
    Close,
    /// Reads.
    ReadX,
    /// Writes.
    WriteX,
    /// Makes a file's data durable.
    Flush,
    /// Asks for attributes by name.
    Qpathinfo,
    /// Asks for attributes of an open file.
    Qfileinfo,
    /// Asks for free space.
    Qfsinfo,
    /// Sets the times of an open file.
    Sfileinfo,
    /// Lists a directory.
    Find,
    /// Removes a file.
    Unlink,
    /// Removes a directory and all in it.
    Deltree,
    /// Renames.
    Rename,
    /// Makes a directory.
    Mkdir,
    /// Removes a directory.
    Rmdir,
    /// Locks a range of bytes.
    LockX,
    /// Unlocks it.
    UnlockX,
}

use OperationKind as Kind;

impl OperationKind {
    /// All of them, in the order of dbench's report.
    pub const ALL: [Kind; 17] = [
        Kind::Deltree,
        Kind::Mkdir,
        Kind::Rmdir,
        Kind::Flush,
        Kind::Close,
        Kind::LockX,
        Kind::Rename,
        Kind::ReadX,
        Kind::WriteX,
        Kind::Unlink,
        Kind::UnlockX,
        Kind::Find,
        Kind::Sfileinfo,
        Kind::Qfileinfo,
        Kind::Qpathinfo,
        Kind::Qfsinfo,
        Kind::NTCreateX,
    ];

    fn of(name: &str) -> Option<Kind> {
        Some(match name.to_ascii_lowercase().as_str() {
            "ntcreatex" | "createx" => Kind::NTCreateX,
            "close" => Kind::Close,
            "readx" => Kind::ReadX,
            "writex" => Kind::WriteX,
            "flush" => Kind::Flush,
            "query_path_information" => Kind::Qpathinfo,
            "query_file_information" => Kind::Qfileinfo,
            "query_fs_information" => Kind::Qfsinfo,
            "set_file_information" | "sfileinfo" => Kind::Sfileinfo,
            "find_first" => Kind::Find,
            "unlink" => Kind::Unlink,
            "deltree" => Kind::Deltree,
            "rename" => Kind::Rename,
            "mkdir" => Kind::Mkdir,
            "rmdir" => Kind::Rmdir,
            "lockx" => Kind::LockX,
            "unlockx" => Kind::UnlockX,
            _ => return None,
        })
    }

    /// How many paths and how many numbers it has.
    fn parameters(self) -> (usize, usize) {
        match self {
            Kind::Rename => (2, 0),
            Kind::NTCreateX => (1, 3),
            Kind::Find => (1, 3),
            Kind::Qpathinfo => (1, 1),
            // Which attributes the file may have.
            Kind::Unlink => (1, 1),
            Kind::Deltree | Kind::Mkdir | Kind::Rmdir => (1, 0),
            Kind::ReadX | Kind::WriteX => (0, 4),
            Kind::LockX | Kind::UnlockX => (0, 3),
            Kind::Sfileinfo | Kind::Qfileinfo => (0, 2),
            Kind::Qfsinfo | Kind::Close | Kind::Flush => (0, 1),
        }
    }
}

/// A line of the file.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Operation {
    /// What is asked for.
    pub kind: Kind,
    /// Its line, from 1.
    pub line: u32,
    /// Into [`Load::paths`].
    pub paths: [u32; 2],
    /// Its other parameters, in the order of the line.
    pub numbers: [i64; 4],
    /// The server said NT_STATUS_OK.
    pub is_ok: bool,
    /// When it is due, in seconds after the file's beginning; 0 when that is not said.
    pub due_s: f64,
}

/// A load file.
#[derive(Debug, Default, PartialEq)]
pub struct Load {
    /// The lines, in their order.
    pub operations: Vec<Operation>,
    /// All paths, with `/`, relative.
    pub paths: Vec<String>,
}

impl Load {
    /// Reads a file. The error names it and the line.
    pub fn read(path: &Path) -> Result<Load, String> {
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
        Load::parse(&text).map_err(|line| format!("{}: {line}", path.display()))
    }

    /// Understands a file's content. Errors name the line.
    pub fn parse(text: &str) -> Result<Load, String> {
        let mut load = Load::default();
        let mut known: HashMap<String, u32> = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            let parsed = load
                .parse_line(line, at as u32 + 1, &mut known)
                .map_err(|what| format!("line {}: {what}", at + 1))?;
            load.operations.extend(parsed);
        }
        if load.operations.is_empty() {
            return Err("no operations".to_owned());
        }
        Ok(load)
    }

    fn parse_line(
        &mut self,
        line: &str,
        number: u32,
        known: &mut HashMap<String, u32>,
    ) -> Result<Option<Operation>, String> {
        let tokens = tokens(line)?;
        let mut rest = &tokens[..];
        let mut due_s = 0.0;
        match rest.first() {
            None => return Ok(None),
            Some(first) if first.starts_with('#') => return Ok(None),
            Some(first) if first.starts_with(|c: char| c.is_ascii_digit()) => {
                due_s = first
                    .parse()
                    .map_err(|_| format!("{first:?} is not a time"))?;
                rest = &rest[1..];
            }
            Some(_) => {}
        }
        let name = rest.first().ok_or("a time without an operation")?;
        let kind = Kind::of(name).ok_or_else(|| format!("unknown operation {name:?}"))?;
        let (paths, numbers) = kind.parameters();
        if rest.len() != 1 + paths + numbers + 1 {
            let wanted = paths + numbers;
            return Err(format!("{name} takes {wanted} parameters and a status"));
        }
        let status = &rest[rest.len() - 1];
        if !status.starts_with("NT_STATUS_") && !status.starts_with("0x") {
            return Err(format!("{status:?} is not a status"));
        }
        let mut operation = Operation {
            kind,
            line: number,
            paths: [0; 2],
            numbers: [0; 4],
            is_ok: status == "NT_STATUS_OK" || parse_number(status) == Some(0),
            due_s,
        };
        for (place, token) in operation.paths.iter_mut().zip(&rest[1..1 + paths]) {
            *place = self.path(token, known)?;
        }
        let given = &rest[1 + paths..1 + paths + numbers];
        for (place, token) in operation.numbers.iter_mut().zip(given) {
            *place = parse_number(token).ok_or_else(|| format!("{token:?} is not a number"))?;
        }
        Ok(Some(operation))
    }

    fn path(&mut self, token: &str, known: &mut HashMap<String, u32>) -> Result<u32, String> {
        let path = token.replace('\\', "/").trim_matches('/').to_owned();
        if path.split('/').any(|name| name == "..") {
            return Err(format!("{token:?} leads out of the directory"));
        }
        let next = self.paths.len() as u32;
        Ok(*known.entry(path).or_insert_with_key(|path| {
            self.paths.push(path.clone());
            next
        }))
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    let path = path.display();
    format!("load file {path}: {error} (Debian's package dbench has one)")
}

/// Words, or what is in quotes.
fn tokens(line: &str) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (token, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').ok_or("a quote is not closed")?,
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        tokens.push(token.to_owned());
        rest = after.trim_start();
    }
    Ok(tokens)
}

/// Decimal or, after `0x`, hexadecimal.
fn parse_number(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let number = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(if is_negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let text = "# a comment\n\
            NTCreateX \"\\clients\\client1\\a b\" 0x40 0x2 17 NT_STATUS_OK\n\
            \n\
            0.25 WriteX 17 65534 1 1 NT_STATUS_OK\r\n\
            rename \"\\clients\\client1\\a b\" \"\\c\" NT_STATUS_OBJECT_NAME_NOT_FOUND\n\
            LockX 17 0x7fffffff -1 0x00000000";
        let load = Load::parse(text).unwrap();
        assert_eq!(load.paths, ["clients/client1/a b", "c"]);
        let kinds: Vec<_> = load.operations.iter().map(|o| (o.line, o.kind)).collect();
        assert_eq!(
            kinds,
            [
                (2, Kind::NTCreateX),
                (4, Kind::WriteX),
                (5, Kind::Rename),
                (6, Kind::LockX)
            ]
        );
        let [create, write, rename, lock] = load.operations[..] else {
            panic!()
        };
        assert_eq!(create.numbers, [0x40, 2, 17, 0]);
        assert_eq!((write.numbers, write.due_s), ([17, 65534, 1, 1], 0.25));
        assert_eq!((rename.paths, rename.is_ok), ([0, 1], false));
        assert_eq!((lock.numbers, lock.is_ok), ([17, 0x7fff_ffff, -1, 0], true));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, expected) in [
            ("", "no operations"),
            (
                "Close 1 NT_STATUS_OK\nFly 1 NT_STATUS_OK",
                "line 2: unknown operation \"Fly\"",
            ),
            ("Close 1", "line 1: Close takes 1 parameters and a status"),
            ("Close one NT_STATUS_OK", "line 1: \"one\" is not a number"),
            ("Close 1 fine", "line 1: \"fine\" is not a status"),
            ("Unlink \"\\a NT_STATUS_OK", "line 1: a quote is not closed"),
            (
                "Unlink \"\\a\\..\\b\" 1 NT_STATUS_OK",
                "line 1: \"\\\\a\\\\..\\\\b\" leads out of the directory",
            ),
        ] {
            assert_eq!(Load::parse(text), Err(expected.to_owned()), "{text:?}");
        }
    }
}
