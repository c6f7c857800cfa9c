//! Files: reached, not too long nor too wide, with a head, and free of one machine's paths.

use super::source::Source;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// More lines than this are two things.
const MOST_LINES: usize = 800;

/// Comments and prose end here, as code does by rustfmt; rows of tables, examples and the targets
/// of links need not.
const MOST_COLUMNS: usize = 100;

/// Paths that exist on one machine only. Put together here so that this file passes its own rule.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/tmp/", "t-"),
    concat!("/home/", "user/"),
];

/// Findings in sources, documents and TOML files.
pub fn check(
    sources: &[Source],
    documents: &[(PathBuf, String)],
    tomls: &[(PathBuf, String)],
) -> Vec<String> {
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
        findings.extend(long_comments(&name, &source.text));
    }
    for (path, text) in documents {
        let name = path.to_string_lossy();
        findings.extend(machine_paths(&name, text));
        if name.ends_with(".md") {
            findings.extend(long_prose(&name, text));
        }
    }
    for (path, text) in tomls {
        let lines = text.lines().enumerate();
        let comments = lines.filter(|(_, line)| line.trim_start().starts_with('#'));
        findings.extend(too_wide(&path.to_string_lossy(), comments));
    }
    findings
}

fn has_head(text: &str) -> bool {
    text.lines()
        .find(|line| !line.trim().is_empty() && !line.starts_with("#!"))
        .is_some_and(|line| line.starts_with("//!"))
}

fn long_comments(name: &str, text: &str) -> Vec<String> {
    let mut is_example = false;
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let comment = line.trim_start();
        if !comment.starts_with("//") {
            is_example = false;
            continue;
        }
        let words = comment.trim_start_matches(['/', '!', ' ']);
        is_example ^= words.starts_with("```");
        let may_be_long = is_example || words.starts_with('|');
        if line.chars().count() > MOST_COLUMNS && !may_be_long {
            findings.push(format!(
                "{name}:{}: a comment beyond column {MOST_COLUMNS}",
                index + 1
            ));
        }
    }
    findings
}

/// Lines of Markdown that are too wide without the targets of their links.
fn long_prose(name: &str, text: &str) -> Vec<String> {
    let mut is_example = false;
    let prose = text.lines().enumerate().filter(|(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_example ^= is_fence;
        !is_example && !is_fence && !line.trim_start().starts_with('|')
    });
    too_wide(name, prose)
}

fn too_wide<'t>(name: &str, lines: impl Iterator<Item = (usize, &'t str)>) -> Vec<String> {
    lines
        .filter(|(_, line)| line.chars().count() - width_of_targets(line) > MOST_COLUMNS)
        .map(|(index, _)| format!("{name}:{}: beyond column {MOST_COLUMNS}", index + 1))
        .collect()
}

/// The characters that a line's links have for their targets.
fn width_of_targets(line: &str) -> usize {
    let targets = line.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.chars().count()).sum()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_not_too_wide() {
        let wide = "x".repeat(MOST_COLUMNS + 1);
        let link = format!("[x]({wide})");
        let document = format!("{link}\n```sh\n{wide}\n```\n| {wide} |\n{wide}\n");
        let documents = [
            ("a.md".into(), document),
            ("Makefile".into(), format!("{wide}\n")),
        ];
        let tomls = [("b.toml".into(), format!("a = \"{wide}\"\n# {wide}\n"))];
        assert_eq!(
            check(&[], &documents, &tomls),
            ["a.md:6: beyond column 100", "b.toml:2: beyond column 100"]
        );
    }
}
