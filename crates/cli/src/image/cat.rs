//! `finefs cat`

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::process::ExitCode;

use clap::Args;
use finefs_image::tree::Follow;
use finefs_image::{Error, Operand};

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
    place: Where,
}

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

impl Cat {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs cat", &self.place);
        let mut printer = Printer::new();
        for operand in &self.operands {
            if printer.is_gone() {
                break;
            }
            let operand = session.operand(operand);
            match print(&mut session, &operand, &mut printer) {
                Ok(()) => {}
                Err(Trouble::Input(error)) => session.fail(error),
                Err(Trouble::Output(failure)) => return Err(failure),
            }
        }
        printer.flush()?;
        session.end()
    }
}

/// One input may fail and the next succeed; output that fails ends it.
enum Trouble {
    Input(Error),
    Output(Failure),
}

fn print(session: &mut Session, operand: &Operand, printer: &mut Printer) -> Result<(), Trouble> {
    let input = |error: Error| Trouble::Input(error);
    match operand {
        Operand::Standard => print_stream(&mut std::io::stdin().lock(), "-", printer),
        Operand::Host(path) => {
            let shown = path.display().to_string();
            let file = File::open(path).map_err(|error| input(Error::host(shown.clone(), error)));
            print_stream(&mut file?, &shown, printer)
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
                if count == 0 || printer.is_gone() {
                    return Ok(());
                }
                printer.put(&buffer[..count]).map_err(Trouble::Output)?;
                at += count as u64;
            }
        }
    }
}

fn print_stream(stream: &mut dyn Read, shown: &str, printer: &mut Printer) -> Result<(), Trouble> {
    let mut buffer = vec![0; 1 << 16];
    while !printer.is_gone() {
        let count = match stream.read(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            result => result.map_err(|error| Trouble::Input(Error::host(shown, error)))?,
        };
        if count == 0 {
            break;
        }
        printer.put(&buffer[..count]).map_err(Trouble::Output)?;
    }
    Ok(())
}
