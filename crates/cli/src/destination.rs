//! Where an image that is built goes: a place of its own, or standard output.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use tempfile::TempDir;

use crate::image::stop;
use crate::{CliResult, Failure};

/// What standard output is called.
const OUTPUT: &str = "standard output";

/// Bytes that are copied at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Where an image goes.
pub(crate) enum Destination {
    /// A file, device or partition.
    Named(PathBuf),
    /// Standard output: the image is made in a directory that nobody else may look into, as its
    /// parts are not written in their order.
    Output(TempDir),
}

impl Destination {
    /// `-` is standard output, unless that is a terminal.
    pub fn of(image: &Path) -> CliResult<Destination> {
        if image.as_os_str() != "-" {
            return Ok(Destination::Named(image.to_owned()));
        }
        if io::stdout().is_terminal() {
            let reason = "is a terminal; let it be a file or a pipe";
            return Err(Failure::new(format!("{OUTPUT}: {reason}")));
        }
        // Where images are unpacked, too: they are large.
        let directory = std::env::var_os("TMPDIR").filter(|path| !path.is_empty());
        let directory = directory.map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        let made = tempfile::tempdir_in(&directory);
        let failed = |error| Failure::new(format!("{}: {error}", directory.display()));
        made.map(Destination::Output).map_err(failed)
    }

    /// Where to build it.
    pub fn path(&self) -> PathBuf {
        match self {
            Destination::Named(path) => path.clone(),
            Destination::Output(directory) => directory.path().join("image"),
        }
    }

    pub fn is_output(&self) -> bool {
        matches!(self, Destination::Output(_))
    }

    /// An error of building, in the words of the user.
    pub fn shown(&self, error: &finefs_image::Error) -> String {
        let text = error.to_string();
        match self {
            Destination::Named(_) => text,
            Destination::Output(_) => text.replace(&self.path().display().to_string(), OUTPUT),
        }
    }

    /// What is built is where it goes when this returns.
    pub fn finish(self) -> CliResult<()> {
        let path = self.path();
        let Destination::Output(directory) = self else {
            return Ok(());
        };
        let failed = |error: io::Error| Failure::new(format!("{OUTPUT}: {error}"));
        let image = File::open(path).map_err(failed)?;
        // It goes when it is closed, and a signal leaves nothing.
        directory.close().map_err(failed)?;
        copy(image).map_err(failed)
    }
}

/// Copies to standard output, until a signal stops it. A reader that goes is an error: it has not
/// got the image.
fn copy(mut image: File) -> io::Result<()> {
    let stop = stop::watch_signals().map_err(|Failure(line)| io::Error::other(line))?;
    let mut output = io::stdout().lock();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::new(ErrorKind::Interrupted, "interrupted"));
        }
        let count = image.read(&mut buffer)?;
        if count == 0 {
            return output.flush();
        }
        output.write_all(&buffer[..count])?;
    }
}
