//! SELinux labels, as a file_contexts file says them.
//!
//! A line is `REGEX [KIND] CONTEXT`; the regular expression is for the whole path, KIND is `--` for
//! regular files, `-d`, `-l`, `-c`, `-b`, `-p` or `-s`, and the context `<<none>>` leaves a file as
//! it is. Of the lines that match the last counts, but lines without special characters come before
//! all others. FILE.homedirs and FILE.local are read behind FILE; FILE.subs_dist and FILE.subs say
//! what paths are looked up instead of others.
//!
//! # References
//! selabel_file(5), file_contexts(5); libselinux, `label_file.c`.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use finefs::FileKind;
use regex::bytes::Regex;

use super::manifest::{Kind, Manifest, ROOT};
use crate::error::{Error, Result};

/// The attribute that a label is.
const LABEL: &str = "security.selinux";

/// What a regular expression has that is no plain character.
const SPECIAL: &[u8] = b".^$?*+|[({";

/// A line.
struct Spec {
    pattern: String,
    kind: Option<FileKind>,
    /// With the zero byte that the attribute has; `None` for `<<none>>`.
    context: Option<Vec<u8>>,
    /// What all paths begin with that match.
    prefix: Vec<u8>,
    is_exact: bool,
    /// Made when it is asked for the first time.
    regex: OnceCell<Option<Regex>>,
}

/// The lines of a file_contexts file.
pub(super) struct Labels {
    specs: Vec<Spec>,
    /// Which lines are for what is below a directory of the root, in their order.
    below: HashMap<Vec<u8>, Vec<usize>>,
    /// Those that are for any.
    anywhere: Vec<usize>,
    /// Beginnings of paths, and what is looked up for them.
    instead: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Labels {
    /// Reads a file and what belongs to it.
    pub fn read(path: &Path) -> Result<Labels> {
        let with = |end: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            name
        };
        let text = |path: &Path| {
            let text = std::fs::read_to_string(path);
            text.map_err(|error| Error::host(path.display().to_string(), error))
        };
        let mut specs = Vec::new();
        parse(path, &text(path)?, &mut specs)?;
        for end in [".homedirs", ".local"] {
            let more = with(end);
            if Path::new(&more).exists() {
                parse(Path::new(&more), &text(Path::new(&more))?, &mut specs)?;
            }
        }
        let mut instead = Vec::new();
        for end in [".subs_dist", ".subs"] {
            let more = with(end);
            if let Ok(text) = std::fs::read_to_string(&more) {
                instead.extend(text.lines().filter_map(substitution));
            }
        }
        // The order of equals stays.
        specs.sort_by_key(|spec| spec.is_exact);
        Ok(Labels::of(specs, instead))
    }

    fn of(specs: Vec<Spec>, instead: Vec<(Vec<u8>, Vec<u8>)>) -> Labels {
        let mut labels = Labels {
            specs,
            below: HashMap::new(),
            anywhere: Vec::new(),
            instead,
        };
        for (index, spec) in labels.specs.iter().enumerate() {
            match first_directory(&spec.prefix) {
                Some(first) => labels.below.entry(first.to_vec()).or_default().push(index),
                None => labels.anywhere.push(index),
            }
        }
        labels
    }

    /// The label of a path; `None` for none.
    fn label(&self, path: &[u8], kind: FileKind) -> Option<&Vec<u8>> {
        let other;
        let path = match self.instead.iter().find(|(from, _)| is_below(path, from)) {
            Some((from, to)) => {
                other = [to, &path[from.len()..]].concat();
                &other[..]
            }
            None => path,
        };
        let below = first_directory(path).and_then(|first| self.below.get(first));
        let empty = Vec::new();
        let mut below = below.unwrap_or(&empty).iter().rev().peekable();
        let mut anywhere = self.anywhere.iter().rev().peekable();
        loop {
            // The later of the two.
            let next = match (below.peek(), anywhere.peek()) {
                (Some(one), Some(other)) if one > other => below.next(),
                (Some(_), None) => below.next(),
                _ => anywhere.next(),
            };
            let spec = &self.specs[*next?];
            if spec.matches(path, kind) {
                return spec.context.as_ref();
            }
        }
    }
}

/// Labels all files of a list, which come to lie below `top`.
pub(super) fn apply(manifest: &mut Manifest, labels: &Labels, top: &Path) {
    let mut is_first = manifest.marks();
    let mut found = Vec::new();
    for (path, directory) in manifest.each_directory() {
        let inside = path.strip_prefix("/").unwrap_or(&path);
        let path = match inside.as_os_str().is_empty() {
            true => top.to_owned(),
            false => top.join(inside),
        };
        let mut note = |number: usize, path: &Path| {
            let kind = match &manifest.nodes[number].kind {
                Kind::Directory(_) => FileKind::Directory,
                Kind::Regular(_) => FileKind::Regular,
                Kind::Symlink(_) => FileKind::Symlink,
                Kind::Node { kind, .. } => *kind,
            };
            let label = labels.label(path.as_os_str().as_bytes(), kind);
            found.extend(label.map(|label| (number, label)));
        };
        if directory == ROOT {
            note(directory, &path);
        }
        for (name, number) in manifest.names(directory) {
            if is_first(*number) {
                note(*number, &path.join(name));
            }
        }
    }
    for (number, label) in found {
        let xattrs = &mut manifest.nodes[number].attributes.xattrs;
        xattrs.retain(|(key, _)| key != LABEL);
        xattrs.push((LABEL.into(), label.clone()));
        xattrs.sort();
    }
}

impl Spec {
    fn matches(&self, path: &[u8], kind: FileKind) -> bool {
        if self.kind.is_some_and(|wanted| wanted != kind) || !path.starts_with(&self.prefix) {
            return false;
        }
        if self.is_exact {
            return path == self.prefix;
        }
        let regex = self
            .regex
            .get_or_init(|| Regex::new(&whole(&self.pattern)).ok());
        regex.as_ref().is_some_and(|regex| regex.is_match(path))
    }
}

/// For whole paths, in which a dot is any byte.
fn whole(pattern: &str) -> String {
    format!("(?s-u)^(?:{pattern})$")
}

fn parse(path: &Path, text: &str, specs: &mut Vec<Spec>) -> Result<()> {
    for (index, line) in text.lines().enumerate() {
        let refused = |reason: String| {
            let place = format!("{}: line {}", path.display(), index + 1);
            Error::new(place, reason)
        };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let (pattern, kind, context) = match words[..] {
            [pattern, context] => (pattern, None, context),
            [pattern, kind, context] => {
                let found = file_kind(kind);
                let found = found.ok_or_else(|| refused(format!("'{kind}' is no kind of file")));
                (pattern, Some(found?), context)
            }
            _ => return Err(refused("give REGEX [KIND] CONTEXT".into())),
        };
        let (prefix, is_exact) = prefix(pattern);
        if !is_exact && let Err(error) = regex_syntax_check(pattern) {
            return Err(refused(error));
        }
        let context = (context != "<<none>>").then(|| [context.as_bytes(), b"\0"].concat());
        specs.push(Spec {
            pattern: pattern.to_owned(),
            kind,
            context,
            prefix,
            is_exact,
            regex: OnceCell::new(),
        });
    }
    Ok(())
}

/// Says what is wrong with a regular expression, without the cost of making it.
fn regex_syntax_check(pattern: &str) -> std::result::Result<(), String> {
    let parsed = regex_syntax::ParserBuilder::new()
        .utf8(false)
        .unicode(false)
        .build()
        .parse(pattern);
    parsed
        .map(|_| ())
        .map_err(|_| format!("'{pattern}' is no regular expression"))
}

fn file_kind(word: &str) -> Option<FileKind> {
    Some(match word {
        "--" => FileKind::Regular,
        "-d" => FileKind::Directory,
        "-l" => FileKind::Symlink,
        "-c" => FileKind::CharDevice,
        "-b" => FileKind::BlockDevice,
        "-p" => FileKind::Fifo,
        "-s" => FileKind::Socket,
        _ => return None,
    })
}

/// What all paths begin with that match, and whether there is one such path.
fn prefix(pattern: &str) -> (Vec<u8>, bool) {
    let mut prefix = Vec::new();
    let mut rest = pattern.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'\\' => match rest.split_first() {
                // Letters behind a backslash are classes.
                Some((byte, behind)) if !byte.is_ascii_alphanumeric() => {
                    prefix.push(*byte);
                    rest = behind;
                }
                _ => return (without_alternatives(prefix, pattern), false),
            },
            byte if SPECIAL.contains(byte) => {
                if matches!(byte, b'?' | b'*' | b'{') {
                    // The character before may be left out.
                    prefix.pop();
                }
                return (without_alternatives(prefix, pattern), false);
            }
            byte => prefix.push(*byte),
        }
    }
    (prefix, true)
}

/// A line that stands between alternatives has no beginning.
fn without_alternatives(prefix: Vec<u8>, pattern: &str) -> Vec<u8> {
    let mut depth = 0;
    for byte in pattern.bytes() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b'|' if depth == 0 => return Vec::new(),
            _ => {}
        }
    }
    prefix
}

/// `/usr` of `/usr/lib`; `None` where a path does not go on behind it.
fn first_directory(path: &[u8]) -> Option<&[u8]> {
    let rest = path.strip_prefix(b"/")?;
    let length = rest.iter().position(|byte| *byte == b'/')?;
    Some(&path[..=length])
}

fn is_below(path: &[u8], above: &[u8]) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn substitution(line: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut words = line.split_whitespace();
    let (from, to) = (words.next()?, words.next()?);
    let bytes = |text: &str| OsString::from(text).into_vec();
    (!from.starts_with('#')).then(|| (bytes(from), bytes(to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(labels: &Labels, path: &str, kind: FileKind) -> String {
        let label = labels.label(path.as_bytes(), kind);
        label.map_or("none".into(), |label| {
            String::from_utf8_lossy(&label[..label.len() - 1]).into_owned()
        })
    }

    #[test]
    fn the_last_line_counts_and_plain_ones_before_all() {
        let text = "
            # a comment
            /.*                  any
            /usr(/.*)?           usr
            /usr/bin/.*   --     program
            /usr/bin/sh          shell
            /usr/bin/s[hx]       later
            /etc/a\\.conf        dotted
            /e?tc/b              odd
            /proc/.*             <<none>>
            /var/a|/var/b        either
        ";
        let mut specs = Vec::new();
        parse(Path::new("f"), text, &mut specs).unwrap();
        specs.sort_by_key(|spec| spec.is_exact);
        let labels = Labels::of(specs, vec![(b"/bin".to_vec(), b"/usr/bin".to_vec())]);
        let file = |path| label(&labels, path, FileKind::Regular);
        assert_eq!(file("/x"), "any");
        assert_eq!(file("/usr/lib/x"), "usr");
        assert_eq!(file("/usr/bin/x"), "program");
        assert_eq!(label(&labels, "/usr/bin/x", FileKind::Symlink), "usr");
        assert_eq!(file("/usr/bin/sh"), "shell");
        assert_eq!(file("/bin/sh"), "shell");
        assert_eq!(file("/binary"), "any");
        assert_eq!(file("/usr/bin/sx"), "later");
        assert_eq!(file("/etc/a.conf"), "dotted");
        assert_eq!(file("/etc/axconf"), "any");
        assert_eq!(
            (file("/tc/b"), file("/etc/b")),
            ("odd".into(), "odd".into())
        );
        assert_eq!(file("/proc/x"), "none");
        assert_eq!(
            (file("/var/a"), file("/var/b")),
            ("either".into(), "either".into())
        );
        assert_eq!(label(&labels, "/usr", FileKind::Directory), "usr");
    }

    #[test]
    fn lines_that_are_none_are_refused() {
        for bad in ["/x", "/x -q c", "/x -- c d", "/(x c", "/[x c"] {
            let refused = parse(Path::new("f"), bad, &mut Vec::new());
            assert!(
                refused.unwrap_err().to_string().starts_with("f: line 1"),
                "{bad}"
            );
        }
    }
}
