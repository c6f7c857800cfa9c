//! Other programs that commands run.

use std::ffi::OsStr;
use std::path::Path;

/// Where execvp(3) looks without PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Whether there is a file of this name in a directory of PATH. To start a program that is nowhere
/// fails with EACCES instead of ENOENT where one of them cannot be searched: see execvp(3).
pub fn is_in_path(name: &OsStr) -> bool {
    is_in(
        name,
        &std::env::var_os("PATH").unwrap_or(DEFAULT_PATH.into()),
    )
}

fn is_in(name: &OsStr, path: &OsStr) -> bool {
    let mut places = std::env::split_paths(path);
    places.any(|place| Path::new(&place).join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_in_all_directories() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("program"), "").unwrap();
        std::fs::create_dir(place.path().join("directory")).unwrap();
        let path = std::env::join_paths(["/nonexistent".as_ref(), place.path()]).unwrap();
        assert!(is_in("program".as_ref(), &path));
        for name in ["directory", "other"] {
            assert!(!is_in(name.as_ref(), &path), "{name}");
        }
    }
}
