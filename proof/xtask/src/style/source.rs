//! A Rust source file as text, with comments and strings blanked out.

use std::path::PathBuf;

/// One source file. All three texts have the same line numbers.
pub struct Source {
    /// Relative to the root of the workspace.
    pub path: PathBuf,
    /// As it stands.
    pub text: String,
    /// Without comments.
    pub uncommented: String,
    /// Without comments and strings.
    pub code: String,
}

impl Source {
    /// Reads `text`.
    pub fn new(path: PathBuf, text: String) -> Self {
        let uncommented = blank(&text, false);
        let code = blank(&text, true);
        Self {
            path,
            text,
            uncommented,
            code,
        }
    }

    /// The path with `/`.
    pub fn name(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    /// Code up to the module of unit tests at its end.
    pub fn product_code(&self) -> &str {
        cut_tests(&self.code)
    }

    /// As [`Source::product_code`], with strings.
    pub fn product_uncommented(&self) -> &str {
        cut_tests(&self.uncommented)
    }

    /// True for files that are only built for tests, benches and examples.
    pub fn is_test(&self) -> bool {
        self.path.components().any(|part| {
            matches!(
                part.as_os_str().to_str(),
                Some("tests" | "benches" | "examples")
            )
        }) || self.path.file_stem().is_some_and(|stem| stem == "tests")
    }
}

fn cut_tests(code: &str) -> &str {
    let mut from = 0;
    while let Some(at) = code[from..].find("#[cfg(test)]") {
        let rest = code[from + at + 12..].trim_start();
        if rest.starts_with("mod ") && rest.find('{') < rest.find(';') {
            return &code[..from + at];
        }
        from += at + 12;
    }
    code
}

/// `text` with comments, and on request strings and characters, replaced by blanks.
fn blank(text: &str, strings: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (len, keep) = if rest.starts_with(b"//") {
            (
                rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
                false,
            )
        } else if rest.starts_with(b"/*") {
            (block_comment(rest), false)
        } else if let Some(len) = raw_string(bytes, at).or_else(|| quoted(rest)) {
            (len, !strings)
        } else {
            (1, true)
        };
        for byte in &rest[..len] {
            out.push(if keep || *byte == b'\n' { *byte } else { b' ' });
        }
        at += len;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// The length of a raw string that starts at `at`.
fn raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    let in_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    let rest = bytes[at..]
        .strip_prefix(b"r")
        .filter(|_| !in_word || bytes[at - 1] == b'b')?;
    let hashes = rest.iter().take_while(|b| **b == b'#').count();
    if rest.get(hashes) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.resize(hashes + 1, b'#');
    let body = &rest[hashes + 1..];
    let close = body
        .windows(end.len())
        .position(|window| window == end)
        .unwrap_or(body.len());
    Some((1 + hashes + 1 + close + end.len()).min(bytes.len() - at))
}

/// The length of a string, or of a character, that `rest` starts with. A lifetime is neither.
fn quoted(rest: &[u8]) -> Option<usize> {
    let quote = *rest.first().filter(|b| matches!(b, b'"' | b'\''))?;
    if quote == b'\'' && rest.get(1) != Some(&b'\\') {
        let end = rest.iter().skip(1).take(6).position(|b| *b == b'\'')? + 1;
        let character = std::str::from_utf8(&rest[1..end]).ok()?;
        return (character.chars().count() == 1).then_some(end + 1);
    }
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    Some((at + 1).min(rest.len()))
}

/// Every name that the `use` declarations of `code` bring in, with its line: `use a::{b, c::d}`
/// gives `a::b` and `a::c::d`.
pub fn imports(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut line = 1;
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let starts_word = !rest[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        line += rest[..at].matches('\n').count();
        rest = &rest[at + 4..];
        let Some(end) = rest.find(';').filter(|_| starts_word) else {
            continue;
        };
        for name in expand("", &rest[..end]) {
            found.push((line, name));
        }
    }
    found
}

fn expand(prefix: &str, tree: &str) -> Vec<String> {
    let tree: String = tree.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some(open) = tree.find('{') else {
        let name = tree.split(" as ").next().unwrap_or_default().trim();
        return vec![format!("{prefix}{name}")];
    };
    let prefix = format!("{prefix}{}", tree[..open].trim());
    let inner = tree[open + 1..]
        .strip_suffix('}')
        .unwrap_or(&tree[open + 1..]);
    let (mut depth, mut start, mut names) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[start..at].trim().is_empty() {
                    names.extend(expand(&prefix, &inner[start..at]));
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_keep_lines_and_code() {
        let text = "a /* x /* y */ \n */ b // c\n\"s\\\"t\" 'x' '\\'' &'a str r#\"q\"# d";
        assert_eq!(
            blank(text, true).split_whitespace().collect::<Vec<_>>(),
            ["a", "b", "&'a", "str", "d"]
        );
        assert_eq!(blank(text, true).lines().count(), text.lines().count());
    }

    #[test]
    fn use_trees_are_expanded() {
        let names: Vec<_> = imports("x;\nuse std::{fmt, sync::{Arc, Mutex as M}};\n");
        let names: Vec<_> = names
            .iter()
            .map(|(line, name)| (*line, name.as_str()))
            .collect();
        assert_eq!(
            names,
            [
                (2, "std::fmt"),
                (2, "std::sync::Arc"),
                (2, "std::sync::Mutex")
            ]
        );
    }
}
