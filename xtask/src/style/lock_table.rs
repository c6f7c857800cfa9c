//! Every lock class in the code stands in the table of `docs/locking.md` with its level, and the
//! table has no others.

use super::source::Source;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const TABLE: &str = "docs/locking.md";

/// Findings between the sources and the table.
pub fn check(sources: &[Source], documents: &[(PathBuf, String)]) -> Vec<String> {
    let mut findings = Vec::new();
    let table = documents.iter().find(|(path, _)| path == Path::new(TABLE));
    let table = table.map_or_else(BTreeMap::new, |(_, text)| classes_in_table(text));
    let mut in_code = BTreeMap::new();
    for source in sources
        .iter()
        .filter(|source| source.name().starts_with("crates/") && !source.is_test())
    {
        for (class, level) in classes_in_code(source.product_uncommented()) {
            if table.get(&class) != Some(&level) {
                let name = source.name();
                findings.push(format!(
                    "{name}: lock class {class} ({level}) is not in {TABLE}"
                ));
            }
            in_code.insert(class, level);
        }
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

/// `LockClass::new("name", level)`.
fn classes_in_code(text: &str) -> Vec<(String, String)> {
    text.split("LockClass::new(")
        .skip(1)
        .filter_map(|rest| {
            let (name, rest) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
            let level: String = rest
                .trim_start_matches([',', ' ', '\n'])
                .chars()
                .take_while(char::is_ascii_digit)
                .collect();
            Some((name.to_owned(), level))
        })
        .collect()
}

/// Rows that begin with a class in backquotes and a number.
fn classes_in_table(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
            let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
            let level = cells.next().filter(|level| level.parse::<u32>().is_ok())?;
            Some((name.to_owned(), level.to_owned()))
        })
        .collect()
}
