//! Options as tar's that say which files go into an archive or image, or come out of one.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use finefs_image::{Choice, Error, Result};

use super::session::Session;

#[derive(Args)]
pub(crate) struct Excluded {
    /// Leave out what has this name or path, with all below it
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// The same with the patterns that are in a file, a line each
    #[arg(short = 'X', long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
}

impl Excluded {
    /// All but what the patterns name.
    pub fn choice(&self) -> Result<Choice> {
        let mut patterns = self.exclude.clone();
        for file in &self.exclude_from {
            patterns.extend(lines(file, b'\n')?);
        }
        let patterns = patterns.into_iter().map(OsString::into_encoded_bytes);
        Ok(Choice {
            excluded: patterns.collect(),
            ..Choice::default()
        })
    }
}

#[derive(Args)]
pub(super) struct Members {
    /// The directory that names are of: IMAGE:/DIR
    #[arg(short = 'C', long = "directory", value_name = "IMAGE:/DIR")]
    directories: Vec<OsString>,
    #[command(flatten)]
    excluded: Excluded,
    /// More names, of a file with a line for each; - for standard input
    #[arg(short = 'T', long, value_name = "FILE")]
    pub files_from: Vec<PathBuf>,
    /// What -T reads has a zero byte behind each name, not a new line
    #[arg(long)]
    null: bool,
    /// Names are patterns, with -x and -t
    #[arg(long, overrides_with = "no_wildcards")]
    wildcards: bool,
    /// They are none, as without it
    #[arg(long, overrides_with = "wildcards")]
    no_wildcards: bool,
    /// Take so many directories off the front of each name, with -x
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    strip_components: usize,
}

impl Members {
    /// What -C says.
    pub fn directory(&self) -> Option<&OsString> {
        self.directories.first()
    }

    /// What options say in a shell, and what is too much.
    pub fn settle(&mut self, session: &Session) -> Result<()> {
        if self.directories.len() > 1 {
            return Err(Error::new("-C", "is given once, for all names"));
        }
        let files = self.files_from.iter_mut();
        for file in files.chain(&mut self.excluded.exclude_from) {
            *file = session.host_file(file)?;
        }
        Ok(())
    }

    /// The names of -T.
    pub fn more_names(&self) -> Result<Vec<OsString>> {
        let end = if self.null { b'\0' } else { b'\n' };
        let mut names = Vec::new();
        for file in &self.files_from {
            names.extend(lines(file, end)?);
        }
        Ok(names)
    }

    /// What is taken, of which these are wanted.
    pub fn choice(&self, members: &[OsString]) -> Result<Choice> {
        Ok(Choice {
            members: members.iter().map(PathBuf::from).collect(),
            has_patterns: self.wildcards,
            stripped: self.strip_components,
            ..self.excluded.choice()?
        })
    }
}

/// The lines of a file of the host.
fn lines(path: &Path, end: u8) -> Result<Vec<OsString>> {
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().lock().read_to_end(&mut bytes),
        false => std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)),
    };
    read.map_err(|error| Error::host(path.display().to_string(), error))?;
    let lines = bytes
        .split(|byte| *byte == end)
        .filter(|line| !line.is_empty());
    Ok(lines
        .map(|line| OsStr::from_bytes(line).to_owned())
        .collect())
}
