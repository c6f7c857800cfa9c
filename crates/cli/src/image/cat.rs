//! `finefs cat`

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::process::ExitCode;

use clap::Args;
use finefs_image::tree::Follow;
use finefs_image::{Access, Error, Operand};

use super::Where;
use super::session::{Context, Printer, Session};
use crate::{CliResult, Failure};

/// Print files of an image, as cat(1)
#[derive(Args)]
pub(crate) struct Cat {
    /// IMAGE:/PATH, a file of the host, or - for standard input
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    #[command(flatten)]
    marks: Marks,
    #[command(flatten)]
    place: Where,
}

/// What is shown besides the bytes.
#[derive(Args)]
struct Marks {
    /// Number all lines
    #[arg(short, long)]
    number: bool,
    /// Number those that are not empty
    #[arg(short = 'b', long)]
    number_nonblank: bool,
    /// One empty line where there are several
    #[arg(short, long)]
    squeeze_blank: bool,
    /// $ at the end of each line
    #[arg(short = 'E', long)]
    show_ends: bool,
    /// ^I for tabs
    #[arg(short = 'T', long)]
    show_tabs: bool,
    /// ^X and M-x for what cannot be printed, but for new lines and tabs
    #[arg(short = 'v', long)]
    show_nonprinting: bool,
    /// The same as -vET
    #[arg(short = 'A', long)]
    show_all: bool,
    /// The same as -vE
    #[arg(short = 'e')]
    shows_with_ends: bool,
    /// The same as -vT
    #[arg(short = 't')]
    shows_with_tabs: bool,
    /// As without it
    #[arg(short = 'u')]
    is_unbuffered: bool,
}

impl Marks {
    /// How lines go on from one file to the next; `None` where bytes are printed as they are.
    fn lines(&self) -> Option<Lines> {
        let lines = Lines {
            numbers_all: self.number && !self.number_nonblank,
            numbers_some: self.number_nonblank,
            squeezes: self.squeeze_blank,
            shows_ends: self.show_ends || self.show_all || self.shows_with_ends,
            shows_tabs: self.show_tabs || self.show_all || self.shows_with_tabs,
            shows_controls: self.show_nonprinting
                || self.show_all
                || self.shows_with_ends
                || self.shows_with_tabs,
            number: 0,
            is_start: true,
            empty: 0,
            has_return: false,
        };
        let is_plain = !(lines.numbers_all
            || lines.numbers_some
            || lines.squeezes
            || lines.shows_ends
            || lines.shows_tabs
            || lines.shows_controls);
        (!is_plain).then_some(lines)
    }
}

/// Lines with marks.
struct Lines {
    numbers_all: bool,
    numbers_some: bool,
    squeezes: bool,
    shows_ends: bool,
    shows_tabs: bool,
    shows_controls: bool,
    /// The number of the last line.
    number: u64,
    /// The next byte begins a line.
    is_start: bool,
    /// Empty lines that came before it.
    empty: u64,
    /// A carriage return is to be shown, by what follows it.
    has_return: bool,
}

impl Lines {
    /// Bytes with what is shown of them.
    fn marked(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 8);
        for byte in bytes {
            let (is_end, was_start) = (*byte == b'\n', self.is_start);
            if was_start && is_end {
                self.empty += 1;
                if self.squeezes && self.empty > 1 {
                    continue;
                }
            }
            if was_start && (self.numbers_all || self.numbers_some && !is_end) {
                self.number += 1;
                out.extend(format!("{:6}\t", self.number).bytes());
            }
            if std::mem::take(&mut self.has_return) {
                out.extend(if is_end { &b"^M"[..] } else { b"\r" });
            }
            self.is_start = is_end;
            if !is_end {
                self.empty = 0;
            }
            match byte {
                b'\n' if self.shows_ends => out.extend(b"$\n"),
                b'\n' => out.push(b'\n'),
                b'\t' if self.shows_tabs => out.extend(b"^I"),
                b'\t' => out.push(b'\t'),
                byte if self.shows_controls => out.extend(visible(*byte)),
                b'\r' if self.shows_ends => self.has_return = true,
                byte => out.push(*byte),
            }
        }
        out
    }

    /// What is left behind the last file.
    fn end(&mut self) -> &'static [u8] {
        if std::mem::take(&mut self.has_return) {
            b"\r"
        } else {
            b""
        }
    }
}

/// A byte as `^X` and `M-x`.
fn visible(byte: u8) -> Vec<u8> {
    let mut out = Vec::new();
    if byte >= 128 {
        out.extend(b"M-");
    }
    match byte & 127 {
        127 => out.extend(b"^?"),
        low @ ..32 => out.extend([b'^', low + 64]),
        low => out.push(low),
    }
    out
}

/// Standard output, with marks.
struct Output {
    printer: Printer,
    lines: Option<Lines>,
}

impl Output {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        let put = match &mut self.lines {
            Some(lines) => self.printer.put(&lines.marked(bytes)),
            None => self.printer.put(bytes),
        };
        put.map_err(Trouble::Output)
    }
}

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

impl Cat {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs cat", &self.place);
        let mut output = Output {
            printer: Printer::new(),
            lines: self.marks.lines(),
        };
        for operand in &session.expanded(&self.operands, Access::Read) {
            if output.printer.is_gone() {
                break;
            }
            let operand = session.operand(operand);
            match print(&mut session, &operand, &mut output) {
                Ok(()) => {}
                Err(Trouble::Input(error)) => session.fail(error),
                Err(Trouble::Output(failure)) => return Err(failure),
            }
        }
        if let Some(lines) = &mut output.lines {
            output.printer.put(lines.end())?;
        }
        output.printer.flush()?;
        session.end()
    }
}

/// One input may fail and the next succeed; output that fails ends it.
enum Trouble {
    Input(Error),
    Output(Failure),
}

fn print(session: &mut Session, operand: &Operand, output: &mut Output) -> Result<(), Trouble> {
    let input = |error: Error| Trouble::Input(error);
    match operand {
        Operand::Standard => print_stream(&mut std::io::stdin().lock(), "-", output),
        Operand::Host(path) => {
            let shown = path.display().to_string();
            let file = File::open(path).map_err(|error| input(Error::host(shown.clone(), error)));
            print_stream(&mut file?, &shown, output)
        }
        Operand::Image(_) => {
            let (dir, name) = session.images.source_of(operand).map_err(input)?;
            let found = dir.attributes(&name, Follow::Yes).map_err(input)?;
            if found.is_directory() {
                return Err(input(Error::new(dir.shown(&name), "is a directory")));
            }
            if found.kind != finefs::FileKind::Regular {
                return Err(input(Error::new(dir.shown(&name), "is no regular file")));
            }
            let file = dir.open_file(&name, Follow::Yes).map_err(input)?;
            let length = usize::try_from(found.size).unwrap_or(CHUNK).clamp(1, CHUNK);
            let mut buffer = vec![0; length];
            let mut at = 0;
            loop {
                let count = file.read_at(&mut buffer, at).map_err(input)?;
                if count == 0 || output.printer.is_gone() {
                    return Ok(());
                }
                output.put(&buffer[..count])?;
                at += count as u64;
            }
        }
    }
}

fn print_stream(stream: &mut dyn Read, shown: &str, output: &mut Output) -> Result<(), Trouble> {
    let mut buffer = vec![0; 1 << 16];
    while !output.printer.is_gone() {
        let count = match stream.read(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            result => result.map_err(|error| Trouble::Input(Error::host(shown, error)))?,
        };
        if count == 0 {
            break;
        }
        output.put(&buffer[..count])?;
    }
    Ok(())
}
