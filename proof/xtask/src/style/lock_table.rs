//! Every lock class in the code stands in the table of `docs/locking.md` with its level, once; the
//! table has no others, and its lines stand in the order of the levels, as the locks are taken.
//! The list of locks held over I/O names the classes that say it in the code, and no others.

use super::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const TABLE: &str = "docs/locking.md";
/// The heading of the list of locks held over I/O.
const HELD_OVER_IO: &str = "## What is held over device I/O";

/// Findings between the sources and the table.
pub fn check(sources: &[Source], documents: &[(PathBuf, String)]) -> Vec<String> {
    let mut findings = Vec::new();
    let table = documents.iter().find(|(path, _)| path == Path::new(TABLE));
    let text = table.map_or("", |(_, text)| text.as_str());
    let lines = classes_in_table(text);
    findings.extend(order_of_lines(&lines));
    let table: BTreeMap<String, String> = lines.into_iter().collect();
    let mut listed = classes_held_over_io(text);
    let mut in_code = BTreeMap::new();
    for source in sources
        .iter()
        .filter(|source| source.name().starts_with("crates/") && !source.is_test())
    {
        for (class, level, is_held_over_io) in classes_in_code(source.product_uncommented()) {
            if listed.remove(class.as_str()) != is_held_over_io {
                let name = source.name();
                let which = if is_held_over_io { "not " } else { "" };
                findings.push(format!(
                    "{name}: lock class {class} is {which}in {TABLE}'s list of those held over I/O"
                ));
            }
            if table.get(&class) != Some(&level) {
                let name = source.name();
                findings.push(format!(
                    "{name}: lock class {class} ({level}) is not in {TABLE}"
                ));
            }
            if in_code.insert(class.clone(), level).is_some() {
                let name = source.name();
                findings.push(format!(
                    "{name}: lock class {class} exists already: two classes of one name"
                ));
            }
        }
    }
    for class in listed {
        findings.push(format!("{TABLE}: {class}, held over I/O, is in no source"));
    }
    for (class, level) in &table {
        if !in_code.contains_key(class) {
            findings.push(format!(
                "{TABLE}: lock class {class} ({level}) is in no source"
            ));
        }
    }
    findings
}

/// Findings where a line's level is below that of the line before, or its class stands there again.
fn order_of_lines(lines: &[(String, String)]) -> Vec<String> {
    let level = |line: &(String, String)| line.1.parse::<u32>().unwrap_or(0);
    let mut findings = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let (class, _) = line;
        if at > 0 && level(line) < level(&lines[at - 1]) {
            let before = &lines[at - 1].0;
            findings.push(format!(
                "{TABLE}: {class} stands below {before}, whose level is higher"
            ));
        }
        if lines[..at].iter().any(|earlier| earlier.0 == *class) {
            findings.push(format!("{TABLE}: {class} stands there twice"));
        }
    }
    findings
}

/// `LockClass::new("name", level)`, and whether `.held_over_io()` comes next.
fn classes_in_code(text: &str) -> Vec<(String, String, bool)> {
    text.split("LockClass::new(")
        .skip(1)
        .filter_map(|rest| {
            let (name, rest) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
            let rest = rest.trim_start_matches([',', ' ', '\n']);
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (level, rest) = rest.split_at(digits);
            let rest = rest.trim_start_matches([',', ' ', '\n', ')']);
            let is_held_over_io = rest.starts_with(".held_over_io()");
            Some((name.to_owned(), level.to_owned(), is_held_over_io))
        })
        .collect()
}

/// Rows that begin with a class in backquotes and a number.
fn classes_in_table(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
            let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
            let level = cells.next().filter(|level| level.parse::<u32>().is_ok())?;
            Some((name.to_owned(), level.to_owned()))
        })
        .collect()
}

/// What stands in backquotes before the colon of each entry of the list.
fn classes_held_over_io(text: &str) -> BTreeSet<&str> {
    let list = text.lines().skip_while(|line| *line != HELD_OVER_IO);
    list.skip(1)
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix("- ")?.split(':').next())
        .flat_map(|names| names.split('`').skip(1).step_by(2))
        .collect()
}
