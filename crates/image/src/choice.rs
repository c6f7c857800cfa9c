//! Which members of an archive are taken, and under which names, as tar(1) has it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::pattern::matches;

/// Which members are taken; all of them without anything said.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Those of these names, with all below them; all where there are none.
    pub members: Vec<PathBuf>,
    /// These names are patterns.
    pub has_patterns: bool,
    /// Patterns of names, or of the ends of paths, that are left out with all below them.
    pub excluded: Vec<Vec<u8>>,
    /// So many directories are taken off the front of each name.
    pub stripped: usize,
    /// The names of those that are taken are kept, to be told.
    pub is_noted: bool,
}

impl Choice {
    /// Whether a member is taken; notes in `found` which of the wanted names led to it.
    pub(crate) fn takes(&self, path: &Path, found: &mut HashSet<usize>) -> bool {
        let name = plain(path.as_os_str().as_bytes());
        if self.excludes(name) {
            return false;
        }
        let is_wanted = |wanted: &PathBuf| {
            let wanted = plain(wanted.as_os_str().as_bytes());
            if wanted.is_empty() {
                return !name.starts_with(b"/");
            }
            match self.has_patterns {
                true => fronts(name).any(|front| matches(wanted, front)),
                false => fronts(name).any(|front| front == wanted),
            }
        };
        let members = self.members.iter().enumerate();
        let wanted = members.filter(|(_, it)| is_wanted(it)).map(|(at, _)| at);
        let wanted: Vec<usize> = wanted.collect();
        let is_taken = self.members.is_empty() || !wanted.is_empty();
        found.extend(wanted);
        is_taken
    }

    /// Whether a name is one that is left out.
    pub(crate) fn excludes(&self, name: &[u8]) -> bool {
        let name = plain(name);
        let starts = name.iter().enumerate();
        let starts = starts
            .filter(|(_, byte)| **byte == b'/')
            .map(|(at, _)| at + 1);
        self.excluded.iter().any(|pattern| {
            let pattern = plain(pattern);
            let is_like =
                |start: usize| fronts(&name[start..]).any(|front| matches(pattern, front));
            is_like(0) || starts.clone().any(is_like)
        })
    }

    /// Whether a file at an absolute path of the image is one that is left out.
    pub(crate) fn excludes_path(&self, path: &Path) -> bool {
        let name = path.as_os_str().as_bytes();
        self.excludes(name.strip_prefix(b"/").unwrap_or(name))
    }

    /// The name that a member gets, with a slash at its end where it has one; `None` where nothing
    /// is left of it.
    pub(crate) fn name<'p>(&self, path: &'p Path) -> Option<Cow<'p, Path>> {
        if self.stripped == 0 {
            return Some(Cow::Borrowed(path));
        }
        let name = path.as_os_str().as_bytes();
        let parts = name
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty());
        let mut rest: PathBuf = parts.skip(self.stripped).map(OsStr::from_bytes).collect();
        if rest.as_os_str().is_empty() {
            return None;
        }
        if name.ends_with(b"/") {
            rest.as_mut_os_string().push("/");
        }
        Some(Cow::Owned(rest))
    }

    /// Refuses names that led to nothing.
    pub(crate) fn check(&self, found: &HashSet<usize>, shown: &str) -> Result<()> {
        let mut members = self.members.iter().enumerate();
        match members.find(|(at, _)| !found.contains(at)) {
            None => Ok(()),
            Some((_, name)) => {
                let reason = format!("there is no '{}' in the archive", name.display());
                Err(Error::new(shown, reason))
            }
        }
    }
}

/// A name without what does not tell it from others: `./` before it, and slashes behind it; that of
/// the top is empty.
fn plain(name: &[u8]) -> &[u8] {
    let mut name = name;
    while let Some(rest) = name.strip_prefix(b"./") {
        name = rest;
    }
    while let [rest @ .., b'/'] = name
        && !rest.is_empty()
    {
        name = rest;
    }
    match name {
        b"." => b"",
        name => name,
    }
}

/// A path and all directories that it lies in, from the first one on.
fn fronts(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let ends = slashes.map(|(at, _)| at).chain([name.len()]);
    ends.map(|end| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_chosen_as_tar_chooses_them() {
        let takes = |choice: &Choice, path: &str| choice.takes(path.as_ref(), &mut HashSet::new());
        let excluded = |patterns: &[&str]| Choice {
            excluded: patterns.iter().map(|it| it.as_bytes().to_vec()).collect(),
            ..Choice::default()
        };
        for (pattern, path, is_taken) in [
            ("*.o", "a/b.o", false),
            ("*.o", "a/b.c", true),
            ("b", "a/b/c", false),
            ("a/b", "x/a/b", false),
            ("./a", "a", false),
            ("a", "./a/", false),
            ("a", "ab", true),
        ] {
            assert_eq!(
                takes(&excluded(&[pattern]), path),
                is_taken,
                "{pattern} {path}"
            );
        }
        let mut chosen = Choice {
            members: vec!["usr/bin".into(), "etc/*".into()],
            ..Choice::default()
        };
        for (path, is_taken) in [
            ("usr/bin", true),
            ("./usr/bin/", true),
            ("usr/bin/a", true),
            ("usr/binary", false),
            ("etc/a", false),
        ] {
            assert_eq!(takes(&chosen, path), is_taken, "{path}");
        }
        chosen.has_patterns = true;
        assert!(takes(&chosen, "etc/a"));
        for (top, has_patterns) in [(".", false), ("./", false), (".", true)] {
            let all = Choice {
                members: vec![top.into()],
                has_patterns,
                ..Choice::default()
            };
            for (path, is_taken) in [("./", true), ("./a", true), ("a/b", true), ("/a", false)] {
                assert_eq!(takes(&all, path), is_taken, "{top} {path}");
            }
        }
        let mut found = HashSet::new();
        chosen.takes("etc/a".as_ref(), &mut found);
        assert!(chosen.check(&found, "a.tar").is_err());
        chosen.takes("usr/bin".as_ref(), &mut found);
        assert!(chosen.check(&found, "a.tar").is_ok());
    }

    #[test]
    fn names_lose_their_first_directories() {
        let choice = Choice {
            stripped: 1,
            ..Choice::default()
        };
        let name = |path: &'static str| choice.name(path.as_ref()).map(Cow::into_owned);
        assert_eq!(name("a/b/c"), Some("b/c".into()));
        let directory = name("./b/").unwrap().into_os_string();
        assert_eq!(directory, "b/");
        assert_eq!(name("/a//b"), Some("b".into()));
        assert_eq!(name("a/"), None);
    }
}
