//! Patterns of paths, as a shell expands them: `*`, `?` and `[a-z]` of names, a name after the
//! other; names that begin with a dot only where the pattern does. A backslash takes the next
//! letter as it is.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use finefs::FileSystem;
use finefs_image::pattern::matches;
use finefs_image::walk;

/// Files whose paths are expanded.
pub(super) trait Tree {
    /// The names in a directory, in the order of their bytes; none where there is no directory.
    fn names(&self, directory: &Path) -> Vec<OsString>;
    /// Whether something is there.
    fn has(&self, path: &Path) -> bool;
}

/// Those of an image, from a directory on.
pub(super) struct ImageTree<'a> {
    pub fs: &'a FileSystem,
    pub directory: &'a Path,
}

impl Tree for ImageTree<'_> {
    fn names(&self, directory: &Path) -> Vec<OsString> {
        walk::names(self.fs, &self.directory.join(directory)).unwrap_or_default()
    }

    fn has(&self, path: &Path) -> bool {
        self.fs.symlink_metadata(self.directory.join(path)).is_ok()
    }
}

/// Those of the host, from a directory on.
pub(super) struct HostTree<'a> {
    pub directory: &'a Path,
}

impl Tree for HostTree<'_> {
    fn names(&self, directory: &Path) -> Vec<OsString> {
        let entries = std::fs::read_dir(self.directory.join(directory));
        let names = entries.into_iter().flatten().flatten();
        let mut names: Vec<OsString> = names.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    }

    fn has(&self, path: &Path) -> bool {
        self.directory.join(path).symlink_metadata().is_ok()
    }
}

/// True for what may name several files.
pub(super) fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|byte| b"*?[".contains(byte))
}

/// The paths that are like a pattern, in order.
pub(super) fn expand(pattern: &[u8], tree: &dyn Tree) -> Vec<PathBuf> {
    let start = if pattern.starts_with(b"/") { "/" } else { "" };
    let mut found = vec![PathBuf::from(start)];
    for part in pattern
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty())
    {
        if !is_pattern(part) {
            let name = OsString::from_vec(unescaped(part));
            found.iter_mut().for_each(|path| path.push(&name));
            continue;
        }
        let fits = |name: &OsString| {
            let name = name.as_bytes();
            matches(part, name) && (part[0] == b'.' || !name.starts_with(b"."))
        };
        found = found
            .iter()
            .flat_map(|above| {
                let names = tree.names(above).into_iter().filter(fits);
                names.map(|name| above.join(OsStr::new(&name)))
            })
            .collect();
    }
    found.retain(|path| tree.has(path));
    found
}

fn unescaped(part: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = part.iter();
    while let Some(byte) = bytes.next() {
        let is_mark = *byte == b'\\';
        out.extend(if is_mark { bytes.next() } else { Some(byte) });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_part_by_part() {
        let fs = FileSystem::memory(1 << 20).unwrap();
        fs.create_dir_all("a/b").unwrap();
        for path in ["a/b/x.c", "a/b/y.c", "a/b/.z.c", "a/b/*", "a/one"] {
            fs.write(path, "").unwrap();
        }
        let found = |directory: &str, pattern: &str| -> Vec<String> {
            let directory = Path::new(directory);
            let paths = expand(pattern.as_bytes(), &ImageTree { fs: &fs, directory });
            paths
                .iter()
                .map(|path| path.display().to_string())
                .collect()
        };
        assert_eq!(found("/", "/a/b/*.c"), ["/a/b/x.c", "/a/b/y.c"]);
        assert_eq!(found("/a", "b/?.c"), ["b/x.c", "b/y.c"]);
        assert_eq!(found("/a", "*/[!x].c"), ["b/y.c"]);
        assert_eq!(found("/a/b", ".*"), [".z.c"]);
        assert_eq!(found("/a/b", "\\*"), ["*"]);
        assert_eq!(found("/", "*/one"), ["a/one"]);
        assert!(found("/", "a/*/none").is_empty() && found("/a", "q*").is_empty());
    }
}
