//! The images of one command, its messages and its status; and what the commands of a shell share.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io::{BufWriter, ErrorKind, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use finefs::{Encryption, FileSystem};
use finefs_image::{Access, Address, Error, Images, Operand};

use super::text::for_terminal;
use super::{Where, glob, stop};
use crate::output::{say, set_program};
use crate::{CliResult, Failure};

/// What commands find that are run one after the other: none in `finefs ls`, an open image in
/// `finefs shell`.
#[derive(Default)]
pub(crate) struct Context {
    shell: Option<Inside>,
    /// Of the command that ended last.
    status: u8,
}

/// The image of a shell, and where in it paths begin.
pub(super) struct Inside {
    pub images: Images,
    /// The image as it was named.
    pub image: OsString,
    pub directory: PathBuf,
    /// Where paths of the host begin.
    pub host: PathBuf,
    /// Where `cd -` goes.
    pub previous: PathBuf,
    /// Nothing is changed.
    pub is_read_only: bool,
}

impl Context {
    /// Of a shell.
    pub(super) fn inside(inside: Inside) -> Context {
        Context {
            shell: Some(inside),
            status: 0,
        }
    }

    pub(super) fn shell(&mut self) -> Option<&mut Inside> {
        self.shell.as_mut()
    }

    /// The images of a shell that ends.
    pub(super) fn take_images(self) -> Images {
        self.shell.map(|inside| inside.images).unwrap_or_default()
    }

    /// Ends a command that has failed before its session.
    pub(super) fn end_with(&mut self, status: u8) -> ExitCode {
        self.status = status;
        ExitCode::from(status)
    }

    /// The status of the last command; 0 if it had none.
    pub(super) fn take_status(&mut self) -> u8 {
        std::mem::take(&mut self.status)
    }
}

/// What paths of the host begin with in a shell.
pub(super) const HOST: &str = "host:";

impl Inside {
    /// What a word means in a shell: a path of its image; `host:PATH`, a path of the host;
    /// `OTHER:/PATH`, where OTHER is a file of the host; or `-`. What begins with `./` or `/./` is
    /// always a path of the image.
    pub fn operand(&self, text: &OsStr) -> Operand {
        let bytes = text.as_bytes();
        if bytes == b"-" {
            return Operand::Standard;
        }
        if bytes.starts_with(b"./") || bytes.starts_with(b"/./") {
            return Operand::Image(Address {
                image: self.image.clone(),
                path: self.directory.join(text),
            });
        }
        if let Some(path) = bytes.strip_prefix(HOST.as_bytes()) {
            return Operand::Host(self.host.join(OsStr::from_bytes(path)));
        }
        match Operand::parse(text) {
            Operand::Image(other)
                if bytes.windows(2).any(|pair| pair == b":/") && is_image(&other.image) =>
            {
                Operand::Image(other)
            }
            _ => Operand::Image(Address {
                image: self.image.clone(),
                path: match bytes {
                    b"." => self.directory.clone(),
                    _ => self.directory.join(text),
                },
            }),
        }
    }
}

/// The word of a command that means this path of the image, whatever the path looks like: an
/// option, an operator of find, `-`, or a file of the host or of another image.
pub(super) fn word_for(path: PathBuf) -> OsString {
    let bytes = path.as_os_str().as_bytes();
    let is_plain = !bytes.starts_with(b"-")
        && !matches!(bytes, b"!" | b"(" | b")")
        && !bytes.starts_with(HOST.as_bytes())
        && !bytes.windows(2).any(|pair| pair == b":/");
    if is_plain {
        return path.into();
    }
    let mark = if path.is_absolute() { "/." } else { "./" };
    let mut word = OsString::from(mark);
    word.push(path);
    word
}

fn is_image(image: &OsStr) -> bool {
    let bytes = image.as_bytes();
    let stem = bytes.iter().rposition(|byte| *byte == b'@');
    let stem = stem.map_or(image, |at| OsStr::from_bytes(&bytes[..at]));
    Path::new(image).exists() || Path::new(stem).exists()
}

/// What one command has open, and how it goes.
pub(super) struct Session<'c> {
    pub images: Images,
    context: &'c mut Context,
    status: u8,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // The next command goes on with them.
        if let Some(inside) = &mut self.context.shell {
            self.images.encrypt_by(Encryption::default());
            inside.images = std::mem::take(&mut self.images);
        }
    }
}

impl<'c> Session<'c> {
    /// Of the command that messages call `program`.
    pub fn new(context: &'c mut Context, program: &'static str, place: &Where) -> Session<'c> {
        set_program(program);
        let images = match &mut context.shell {
            Some(inside) => std::mem::take(&mut inside.images),
            None => place.images(),
        };
        Session {
            images,
            context,
            status: 0,
        }
    }

    /// The same, where directories come to be encrypted like this.
    pub fn encrypting_by(self, encryption: Encryption) -> Session<'c> {
        self.images.encrypt_by(encryption);
        self
    }

    /// The operands of files of images, patterns as the files that they stand for; where they are
    /// changed, brackets alone make no pattern. What names a file, or none at all, stays; so do all
    /// in a shell, where they were expanded.
    pub fn expanded(&mut self, words: &[OsString], access: Access) -> Vec<OsString> {
        let mut all = Vec::with_capacity(words.len());
        for word in words {
            let found = self.of_pattern(word, access);
            match found.is_empty() {
                true => all.push(word.clone()),
                false => all.extend(found),
            }
        }
        all
    }

    fn of_pattern(&mut self, word: &OsStr, access: Access) -> Vec<OsString> {
        let Operand::Image(address) = Operand::parse(word) else {
            return Vec::new();
        };
        let pattern = address.path.as_os_str().as_bytes();
        // Names with brackets are common enough that one which is missing is not to become others.
        let is_pattern = match access {
            Access::Read => glob::is_pattern(pattern),
            Access::Write => pattern.iter().any(|byte| b"*?".contains(byte)),
        };
        if self.is_in_shell() || !is_pattern {
            return Vec::new();
        }
        // The next to open it says what is wrong.
        let Ok(fs) = self.images.open(&address, access) else {
            return Vec::new();
        };
        if fs.symlink_metadata(&address.path).is_ok() {
            return Vec::new();
        }
        let tree = glob::ImageTree {
            fs: &fs,
            directory: Path::new("/"),
        };
        let found = glob::expand(pattern, &tree).into_iter();
        found
            .map(|path| address.with_path(path).to_os_string())
            .collect()
    }

    /// What an operand means.
    pub fn operand(&self, text: &OsStr) -> Operand {
        match &self.context.shell {
            Some(inside) => inside.operand(text),
            None => Operand::parse(text),
        }
    }

    /// The sources and the destination of cp and mv: the last operand, or the directory that an
    /// option names. Says what is missing.
    pub fn sources_and_destination(
        &mut self,
        mut operands: Vec<OsString>,
        target_directory: Option<OsString>,
    ) -> Option<(Vec<OsString>, OsString)> {
        let last = match target_directory {
            Some(directory) => directory,
            None if operands.len() < 2 => {
                self.fail("give a source and a destination");
                return None;
            }
            None => operands.pop().expect("there are two"),
        };
        Some((operands, last))
    }

    /// The sources of a copy, patterns as the files that they stand for.
    pub fn patterns(
        &mut self,
        sources: &[OsString],
        to: &Operand,
    ) -> finefs_image::Result<Vec<Operand>> {
        // What is written is opened for that first.
        if let Operand::Image(address) = to
            && sources
                .iter()
                .any(|source| glob::is_pattern(source.as_bytes()))
        {
            self.images.open(address, Access::Write)?;
        }
        let sources = self.expanded(sources, Access::Read);
        Ok(sources.iter().map(|text| self.operand(text)).collect())
    }

    /// An operand that names a file in an image; without a colon, outside of a shell, its root.
    pub fn address(&self, text: &OsStr) -> finefs_image::Result<Address> {
        match (self.operand(text), &self.context.shell) {
            (Operand::Image(address), _) => Ok(address),
            (_, None) => Ok(Address::of_image(text)),
            (_, Some(_)) => {
                let reason = "is no file of an image; cp, mv and diff take such";
                Err(Error::new(text.display().to_string(), reason))
            }
        }
    }

    /// The file of the host that an option names; in a shell `host:FILE`, or `-`.
    pub fn host_file(&self, path: &Path) -> finefs_image::Result<PathBuf> {
        match &self.context.shell {
            None => Ok(path.to_owned()),
            Some(inside) => match inside.operand(path.as_os_str()) {
                Operand::Host(path) => Ok(path),
                Operand::Standard => Ok(path.to_owned()),
                Operand::Image(_) => {
                    let reason =
                        "is taken for a path of the image; name a file of the host host:FILE";
                    Err(Error::new(path.display().to_string(), reason))
                }
            },
        }
    }

    /// True in a shell, where files of the host are called so.
    pub fn is_in_shell(&self) -> bool {
        self.context.shell.is_some()
    }

    /// The operands of what is read; in a shell the directory if there are none.
    pub fn operands(&mut self, given: &[OsString]) -> Vec<OsString> {
        self.operands_to(Access::Read, given)
    }

    /// The same of what is read or changed.
    pub fn operands_to(&mut self, access: Access, given: &[OsString]) -> Vec<OsString> {
        match given {
            [] if self.context.shell.is_some() => vec![OsString::from(".")],
            given => self.expanded(given, access),
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
        self.fail_with_silently(1);
    }

    /// The same with this status.
    pub fn fail_with_silently(&mut self, status: u8) {
        self.status = self.status.max(status);
    }

    /// Says it if it failed.
    pub fn check<T>(&mut self, result: finefs_image::Result<T>) -> Option<T> {
        result.map_err(|error| self.fail(error)).ok()
    }

    /// An operand that is read; without a colon an image's root.
    pub fn read(&mut self, text: &OsStr) -> finefs_image::Result<At> {
        let address = self.address(text)?;
        let fs = self.images.open(&address, Access::Read)?;
        Ok(At { fs, address })
    }

    /// An operand that is changed.
    pub fn write(&mut self, text: &OsStr) -> finefs_image::Result<At> {
        let address = match self.context.shell {
            Some(_) => self.address(text)?,
            None => Address::required(text)?,
        };
        if let Some(inside) = &self.context.shell
            && inside.is_read_only
            && inside.image == address.image
        {
            let reason = "is open to be read only, by -r";
            return Err(Error::new(address.to_string(), reason));
        }
        let fs = self.images.open(&address, Access::Write)?;
        Ok(At { fs, address })
    }

    /// Does something to each operand that is to be changed, patterns as the files that they stand
    /// for, and ends.
    pub fn edit_each(
        mut self,
        operands: &[OsString],
        edit: impl FnMut(&mut Session, &At) -> finefs_image::Result<()>,
    ) -> CliResult<ExitCode> {
        let operands = self.expanded(operands, Access::Write);
        self.edit_named(&operands, edit)
    }

    /// The same with operands that are names as they stand, since they may be made.
    pub fn edit_named(
        mut self,
        operands: &[OsString],
        mut edit: impl FnMut(&mut Session, &At) -> finefs_image::Result<()>,
    ) -> CliResult<ExitCode> {
        for operand in operands {
            let result = self.write(operand);
            let result = result.and_then(|at| edit(&mut self, &at));
            self.check(result);
        }
        self.end()
    }

    /// Puts everything on the images and gives the status.
    pub fn end(mut self) -> CliResult<ExitCode> {
        if self.context.shell.is_none() {
            let images = std::mem::take(&mut self.images);
            self.check(images.close());
        }
        if stop::is_stopped() {
            self.status = stop::INTERRUPTED;
        }
        self.context.status = self.status;
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

    /// True when nobody reads any more, or wants more.
    pub fn is_gone(&self) -> bool {
        self.is_gone || stop::is_stopped()
    }

    /// Prints bytes as they are.
    pub fn put(&mut self, bytes: &[u8]) -> CliResult<()> {
        if self.is_gone() {
            return Ok(());
        }
        let result = self.output.write_all(bytes);
        self.judge(result)
    }

    /// Prints a line with names in it, which on a terminal change nothing there.
    pub fn put_line(&mut self, line: &[u8]) -> CliResult<()> {
        let mut line = for_terminal(line);
        line.push(b'\n');
        self.put(&line)
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

/// Prints a line with names in it, which on a terminal change nothing there.
pub(super) fn print_line(line: &[u8]) -> CliResult<()> {
    let mut line = for_terminal(line);
    line.push(b'\n');
    crate::output::print_bytes(&line)
}

/// Prints a value as JSON.
pub(super) fn print_json(value: &impl serde::Serialize) -> CliResult<()> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::new)?;
    crate::output::print(&(text + "\n"))
}
