//! The images of one command, its messages and its status.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{BufWriter, ErrorKind, StdoutLock, Write};
use std::path::Path;
use std::process::ExitCode;

use finefs::FileSystem;
use finefs_image::{Access, Address, Error, Images};

use super::Where;
use crate::output::{say, set_program};
use crate::{CliResult, Failure};

/// What one command has open, and how it goes.
pub(super) struct Session {
    pub images: Images,
    status: u8,
}

impl Session {
    /// Of the command that messages call `program`.
    pub fn new(program: &'static str, place: &Where) -> Session {
        set_program(program);
        Session {
            images: Images::new(place.offset),
            status: 0,
        }
    }

    /// Says what failed; the command goes on, and ends with this status or a higher one.
    pub fn fail_with(&mut self, status: u8, error: impl Display) {
        say(error);
        self.status = self.status.max(status);
    }

    /// Says what failed; the command goes on, and ends with status 1.
    pub fn fail(&mut self, error: impl Display) {
        self.fail_with(1, error);
    }

    /// Something failed that was said already.
    pub fn fail_silently(&mut self) {
        self.status = self.status.max(1);
    }

    /// Says it if it failed.
    pub fn check<T>(&mut self, result: finefs_image::Result<T>) -> Option<T> {
        result.map_err(|error| self.fail(error)).ok()
    }

    /// An operand that is read; without a colon an image's root.
    pub fn read(&mut self, text: &OsStr) -> finefs_image::Result<At> {
        let address = Address::of_image(text);
        let fs = self.images.open(&address, Access::Read)?;
        Ok(At { fs, address })
    }

    /// An operand that is changed.
    pub fn write(&mut self, text: &OsStr) -> finefs_image::Result<At> {
        let address = Address::required(text)?;
        let fs = self.images.open(&address, Access::Write)?;
        Ok(At { fs, address })
    }

    /// Does something to each operand that is to be changed, and ends.
    pub fn edit_each(
        mut self,
        operands: &[impl AsRef<OsStr>],
        mut edit: impl FnMut(&mut Session, &At) -> finefs_image::Result<()>,
    ) -> CliResult<ExitCode> {
        for operand in operands {
            let result = self.write(operand.as_ref());
            let result = result.and_then(|at| edit(&mut self, &at));
            self.check(result);
        }
        self.end()
    }

    /// Puts everything on the images and gives the status.
    pub fn end(mut self) -> CliResult<ExitCode> {
        let images = std::mem::take(&mut self.images);
        self.check(images.close());
        Ok(ExitCode::from(self.status))
    }
}

/// A file in an open image.
#[derive(Clone)]
pub(super) struct At {
    pub fs: FileSystem,
    pub address: Address,
}

impl At {
    pub fn path(&self) -> &Path {
        &self.address.path
    }

    /// The same image, another path.
    pub fn with(&self, path: impl Into<std::path::PathBuf>) -> At {
        At {
            fs: self.fs.clone(),
            address: self.address.with_path(path.into()),
        }
    }

    /// A file in this directory.
    pub fn join(&self, name: &OsStr) -> At {
        self.with(self.path().join(name))
    }

    /// What an operation failed with, with this place.
    pub fn error(&self, error: finefs::Error) -> Error {
        Error::inside(self.address.to_string(), &error)
    }

    /// A result, with this place.
    pub fn told<T>(&self, result: finefs::Result<T>) -> finefs_image::Result<T> {
        result.map_err(|error| self.error(error))
    }

    /// What something is refused for, with this place.
    pub fn refused(&self, reason: &str) -> Error {
        Error::new(self.address.to_string(), reason)
    }
}

/// Standard output, whose reader may go at any time.
pub(super) struct Printer {
    output: BufWriter<StdoutLock<'static>>,
    is_gone: bool,
}

impl Printer {
    pub fn new() -> Printer {
        Printer {
            output: BufWriter::with_capacity(1 << 16, std::io::stdout().lock()),
            is_gone: false,
        }
    }

    /// True when nobody reads any more.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Prints bytes as they are.
    pub fn put(&mut self, bytes: &[u8]) -> CliResult<()> {
        if self.is_gone {
            return Ok(());
        }
        let result = self.output.write_all(bytes);
        self.judge(result)
    }

    /// Prints everything that was put.
    pub fn flush(&mut self) -> CliResult<()> {
        if self.is_gone {
            return Ok(());
        }
        let result = self.output.flush();
        self.judge(result)
    }

    fn judge(&mut self, result: std::io::Result<()>) -> CliResult<()> {
        match result {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_gone = true;
                Ok(())
            }
            result => result.map_err(|error| Failure::new(format!("standard output: {error}"))),
        }
    }
}

/// Prints a value as JSON.
pub(super) fn print_json(value: &impl serde::Serialize) -> CliResult<()> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::new)?;
    crate::output::print(&(text + "\n"))
}
