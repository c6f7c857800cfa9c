//! Files: reached, not too long, with a head, and free of one machine's paths; functions not too long.

use super::source::Source;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// More lines than this are two things.
const MOST_LINES: usize = 800;

/// Functions of more lines do not fit a screen. Only of what users get, without tests.
const MOST_LINES_OF_FUNCTION: usize = 70;

/// Those that are longer all the same: each is a list of requests, fields or steps that reads best in one piece.
const LONG_FUNCTIONS: &[(&str, &str)] = &[
    ("crates/ext-disk/src/geometry.rs", "new"),
    ("crates/ext/src/mount.rs", "open"),
    ("crates/fuse/src/adapter.rs", "run"),
    ("crates/fuse/src/request.rs", "parse"),
];

/// Paths that exist on one machine only. Put together here so that this file passes its own rule.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/tmp/", "t-"),
    concat!("/home/", "user/"),
];

/// Findings in sources and documents.
pub fn check(sources: &[Source], documents: &[(PathBuf, String)]) -> Vec<String> {
    let mut findings = Vec::new();
    let reached = reached(sources);
    for source in sources {
        let name = source.name();
        let lines = source.text.lines().count();
        if lines > MOST_LINES {
            findings.push(format!(
                "{name}: {lines} lines: more than {MOST_LINES} are two things"
            ));
        }
        if !has_head(&source.text) {
            findings.push(format!(
                "{name}: does not say what it is: begin it with a //! head"
            ));
        }
        if !reached.contains(&source.path) {
            findings.push(format!("{name}: reached by no `mod`: dead file"));
        }
        findings.extend(machine_paths(&name, &source.text));
        if name.starts_with("crates/") && !source.is_test() {
            findings.extend(long_functions(&name, source.product_code()));
        }
    }
    for (path, text) in documents {
        findings.extend(machine_paths(&path.to_string_lossy(), text));
    }
    findings
}

fn has_head(text: &str) -> bool {
    text.lines()
        .find(|line| !line.trim().is_empty() && !line.starts_with("#!"))
        .is_some_and(|line| line.starts_with("//!"))
}

fn long_functions(name: &str, code: &str) -> Vec<String> {
    functions(code)
        .into_iter()
        .filter(|(_, function, lines)| {
            *lines > MOST_LINES_OF_FUNCTION && !LONG_FUNCTIONS.contains(&(name, function.as_str()))
        })
        .map(|(line, function, lines)| {
            format!(
                "{name}:{line}: {function} has {lines} lines: more than {MOST_LINES_OF_FUNCTION} \
                 do not fit a screen"
            )
        })
        .collect()
}

/// The functions of `code` that have bodies: line, name and how many lines they have.
fn functions(code: &str) -> Vec<(usize, String, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let is_letter = |c: &char| c.is_alphanumeric() || *c == '_';
        let name: String = code[at + 3..].chars().take_while(is_letter).collect();
        let rest = &code[at..];
        let Some(open) = body(rest).filter(|_| !name.is_empty()) else {
            continue;
        };
        let mut depth = 0_usize;
        let end = rest[open..].char_indices().find(|(_, c)| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        if let Some((end, '}')) = end {
            let line = 1 + code[..at].matches('\n').count();
            found.push((line, name, 1 + rest[..open + end].matches('\n').count()));
        }
    }
    found
}

/// Where the body of the function that `code` starts with begins, if it has one.
fn body(code: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let end = code.char_indices().find(|(_, c)| {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && matches!(c, '{' | ';')
    });
    end.and_then(|(at, c)| (c == '{').then_some(at))
}

fn machine_paths(name: &str, text: &str) -> Vec<String> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| MACHINE_PATHS.iter().any(|path| line.contains(path)))
        .map(|(index, line)| {
            format!(
                "{name}:{}: a path of one machine: {}",
                index + 1,
                line.trim()
            )
        })
        .collect()
}

/// Every file that cargo builds or that a built file names by `mod`.
fn reached(sources: &[Source]) -> BTreeSet<PathBuf> {
    let mut reached = BTreeSet::new();
    let mut todo: Vec<&Source> = sources
        .iter()
        .filter(|source| is_root(&source.path))
        .collect();
    while let Some(source) = todo.pop() {
        if !reached.insert(source.path.clone()) {
            continue;
        }
        for candidate in modules(source) {
            todo.extend(sources.iter().find(|source| source.path == candidate));
        }
    }
    reached
}

fn is_root(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    let parent = path.parent().and_then(Path::file_name).unwrap_or_default();
    let grandparent = path
        .ancestors()
        .nth(2)
        .and_then(Path::file_name)
        .unwrap_or_default();
    name == "build.rs"
        || (grandparent == "tests" && name == "main.rs")
        || (parent == "src" && (name == "lib.rs" || name == "main.rs"))
        || ["bin", "tests", "benches", "examples", "fuzz_targets"]
            .iter()
            .any(|dir| parent == *dir)
            && path
                .components()
                .filter(|part| part.as_os_str() == "src")
                .count()
                <= 1
            && (parent == "bin" || !path.components().any(|part| part.as_os_str() == "src"))
}

/// The files that the `mod x;` lines of `source` can mean.
fn modules(source: &Source) -> Vec<PathBuf> {
    let dir = source.path.parent().unwrap_or(Path::new("")).to_owned();
    let stem = source.path.file_stem().unwrap_or_default();
    let own_dir = if is_root(&source.path) || stem == "mod" {
        dir.clone()
    } else {
        dir.join(stem)
    };
    let mut found = Vec::new();
    let mut path_attribute: Option<String> = None;
    for line in source.uncommented.lines() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("#[path = \"") {
            path_attribute = rest.split('"').next().map(ToOwned::to_owned);
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(at) = words.iter().position(|word| *word == "mod") else {
            continue;
        };
        let Some(name) = words.get(at + 1).and_then(|word| word.strip_suffix(';')) else {
            continue;
        };
        if let Some(path) = path_attribute.take() {
            found.push(normal(&dir.join(path)));
        } else {
            found.push(own_dir.join(format!("{name}.rs")));
            found.push(own_dir.join(name).join("mod.rs"));
        }
    }
    found
}

/// `path` without `..`.
pub fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(normal.pop()),
            part => normal.push(part),
        }
    }
    normal
}
