//! A file that a run writes at its end: what was there before stays until then, and for good where
//! there is nothing to write. That it can be written is found out at the beginning.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use finefs_cli::{CliResult, Failure};

/// Of files that are made, before the umask.
const MODE: u32 = 0o666;

pub(super) struct OutputFile {
    path: PathBuf,
    to: To,
}

enum To {
    /// A file beside it, which takes its place; and what is there, for where it may not.
    Beside(NamedTempFile, PathBuf, Option<File>),
    /// What cannot be replaced: a device, a pipe, a file in a directory that is not the user's.
    Itself(File),
}

impl OutputFile {
    /// Finds out that `path` can be written.
    pub(super) fn open(path: &Path) -> CliResult<OutputFile> {
        Ok(OutputFile {
            path: path.to_owned(),
            to: find(path).map_err(at(path))?,
        })
    }

    pub(super) fn write(self, text: &str) -> CliResult<()> {
        let written = match self.to {
            To::Beside(mut file, place, old) => file.write_all(text.as_bytes()).and_then(|()| {
                match (file.persist(place), old) {
                    (Ok(_), _) => Ok(()),
                    // It is a mount point, or another's in a directory with the sticky bit.
                    (Err(_), Some(old)) => rewrite(old, text),
                    (Err(error), None) => Err(error.error),
                }
            }),
            To::Itself(file) => rewrite(file, text),
        };
        written.map_err(at(&self.path))
    }
}

fn rewrite(mut file: File, text: &str) -> io::Result<()> {
    // A device or a pipe has no length.
    let _ = file.set_len(0);
    file.write_all(text.as_bytes())
}

fn find(path: &Path) -> io::Result<To> {
    // Who gave a symbolic link means the file.
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if place.is_symlink() {
        // It leads to what is not there yet.
        let mut made = OpenOptions::new();
        made.write(true).create(true).truncate(false);
        return made.open(&place).map(To::Itself);
    }
    let old = match OpenOptions::new().write(true).open(&place) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let permissions = match &old {
        Some(file) => {
            let found = file.metadata()?;
            found.is_file().then(|| found.permissions())
        }
        None => Some(Permissions::from_mode(MODE)),
    };
    let replaced = old.as_ref().and(permissions.clone());
    match (beside(&place, permissions), old) {
        (Some(Ok(file)), old) => {
            if let Some(permissions) = replaced {
                // Those that it was made with are without what the umask takes.
                file.as_file().set_permissions(permissions)?;
            }
            Ok(To::Beside(file, place, old))
        }
        (_, Some(file)) => Ok(To::Itself(file)),
        (Some(Err(error)), None) => Err(error),
        (None, None) => Err(io::ErrorKind::NotFound.into()),
    }
}

/// None for what is no file.
fn beside(place: &Path, permissions: Option<Permissions>) -> Option<io::Result<NamedTempFile>> {
    let dir = match place.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    if let Err(error) = fs::metadata(dir) {
        return Some(Err(error));
    }
    let made = tempfile::Builder::new()
        .prefix(".finefs-bench.")
        .permissions(permissions?)
        .tempfile_in(dir);
    // Its error names what it tried to make, which tells nobody anything.
    Some(made.map_err(|error| error.kind().into()))
}

fn at<E: Display>(path: &Path) -> impl Fn(E) -> Failure {
    move |error| Failure::new(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_stays_until_there_is_something_to_write() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page");
        let names = || fs::read_dir(dir.path()).unwrap().count();
        drop(OutputFile::open(&path).unwrap());
        assert_eq!(names(), 0);
        OutputFile::open(&path).unwrap().write("long ago").unwrap();
        // More than the usual umask lets through.
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        drop(OutputFile::open(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "long ago");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("page", &link).unwrap();
        OutputFile::open(&link).unwrap().write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o666
        );
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(), 2);
        let early = dir.path().join("early");
        std::os::unix::fs::symlink("later", &early).unwrap();
        OutputFile::open(&early).unwrap().write("there").unwrap();
        assert_eq!(
            fs::read_to_string(dir.path().join("later")).unwrap(),
            "there"
        );
        assert!(early.is_symlink());
        OutputFile::open(Path::new("/dev/null"))
            .unwrap()
            .write("gone")
            .unwrap();
        for bad in [
            "/nonexistent/page",
            "/proc/page",
            dir.path().to_str().unwrap(),
        ] {
            let Err(Failure(line)) = OutputFile::open(Path::new(bad)) else {
                panic!("{bad}");
            };
            assert!(line.starts_with(bad), "{line}");
        }
    }
}
