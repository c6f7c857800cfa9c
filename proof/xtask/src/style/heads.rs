//! What a head says of modules agrees with the code.
//!
//! A table whose first column is called `module` names the modules that the file declares with
//! `mod`, and no others; where a file has such a table, its head names all of them. The section
//! "May use" of a folder that is a layer names the folders that its files use, all below it, or
//! says "Everything below".

use super::layers::{FOLDERS, Folders, from_root, paths};
use super::source::Source;
use std::collections::BTreeSet;

/// Findings in the heads of all sources.
pub fn check(sources: &[Source]) -> Vec<String> {
    let tables = sources.iter().flat_map(check_table);
    let uses = FOLDERS.iter().flat_map(|folders| {
        let order = folders.order.iter();
        order.flat_map(|folder| check_uses(folders, folder, sources))
    });
    tables.chain(uses).collect()
}

fn check_table(source: &Source) -> Vec<String> {
    let (name, head) = (source.name(), head(&source.text));
    let Some(listed) = listed(&head) else {
        return Vec::new();
    };
    let declared = declared(&source.code);
    let mentioned: BTreeSet<&str> = head.iter().flat_map(|line| quoted(line)).collect();
    let gone = listed
        .iter()
        .filter(|module| !declared.iter().any(|declared| declared.name == **module))
        .map(|module| format!("{name}: its table names {module}, which it does not declare"));
    let missing = declared
        .iter()
        .filter(|module| module.is_file && !module.is_for_tests)
        .filter(|module| !mentioned.contains(module.name))
        .map(|module| format!("{name}: its table of modules lacks {}", module.name));
    gone.chain(missing).collect()
}

/// What the head of a folder says that it may use, against what its files use.
fn check_uses(folders: &Folders, folder: &str, sources: &[Source]) -> Vec<String> {
    let (own, place) = (
        format!("{}{folder}/", folders.root),
        format!("{}{folder}/mod.rs", folders.root),
    );
    let Some(source) = sources.iter().find(|source| source.name() == place) else {
        return Vec::new();
    };
    let head = head(&source.text);
    let section = head.iter().skip_while(|line| **line != "# May use").skip(1);
    let section: Vec<&str> = section
        .copied()
        .take_while(|line| !line.starts_with("# "))
        .collect();
    if section.is_empty() || section[0].starts_with("Everything below") {
        return Vec::new();
    }
    let is_folder = |name: &&str| folders.order.contains(name);
    let said: BTreeSet<&str> = section
        .iter()
        .flat_map(|line| quoted(line))
        .filter(is_folder)
        .collect();
    let mut findings = Vec::new();
    let above = folders.order.iter().skip_while(|other| **other != folder);
    for other in above.filter(|other| said.contains(**other)) {
        findings.push(format!(
            "{place}: \"May use\" names {other}, which lies above it"
        ));
    }
    let files = sources.iter().filter(|source| !source.is_test());
    for source in files.filter(|source| source.name().starts_with(&own)) {
        let name = source.name();
        let within = name[folders.root.len()..].trim_end_matches(".rs");
        let module: Vec<&str> = within.trim_end_matches("/mod").split('/').collect();
        let full = paths(source.product_code()).into_iter();
        let used: BTreeSet<String> = full
            .filter_map(|(_, path)| from_root(&module, &path))
            .filter_map(|path| path.split("::").next().map(str::to_owned))
            .filter(|used| used != folder && is_folder(&used.as_str()))
            .collect();
        for used in used.iter().filter(|used| !said.contains(used.as_str())) {
            findings.push(format!(
                "{place}: \"May use\" lacks {used}, which {name} uses"
            ));
        }
    }
    findings
}

/// The lines of a file's head, without `//!`.
fn head(text: &str) -> Vec<&str> {
    text.lines()
        .skip_while(|line| line.starts_with("#!") || line.trim().is_empty())
        .map_while(|line| line.strip_prefix("//!"))
        .map(str::trim)
        .collect()
}

/// The modules in the first columns of tables of modules; `None` where there is no such table.
fn listed<'h>(head: &[&'h str]) -> Option<Vec<&'h str>> {
    let (mut found, mut is_of_modules) = (None, false);
    for line in head {
        let cells = line.strip_prefix('|').map(|cells| cells.split('|').next());
        let Some(first) = cells.flatten().map(str::trim) else {
            is_of_modules = false;
            continue;
        };
        if first.eq_ignore_ascii_case("module") {
            is_of_modules = true;
            found.get_or_insert_with(Vec::new);
        } else if let Some(found) = found.as_mut().filter(|_| is_of_modules) {
            found.extend(quoted(first));
        }
    }
    found
}

/// The names in backquotes of a line: the first part of paths, without what a link adds.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).map(|name| {
        name.trim_start_matches("mod@")
            .trim_start_matches("crate::")
    })
}

/// A module that a file declares.
struct Declared<'s> {
    name: &'s str,
    /// It is a file of its own.
    is_file: bool,
    is_for_tests: bool,
}

fn declared(code: &str) -> Vec<Declared<'_>> {
    let (mut found, mut is_for_tests) = (Vec::new(), false);
    for line in code.lines().map(str::trim) {
        if line.starts_with("#[") {
            is_for_tests |= line.contains("cfg(") && line.contains("test");
            continue;
        }
        if line.is_empty() {
            continue;
        }
        if let Some((visibility, rest)) = line.split_once("mod ") {
            let end = rest.find([';', '{']).unwrap_or(rest.len());
            if visibility.is_empty() || visibility.starts_with("pub") {
                found.push(Declared {
                    name: rest[..end].trim(),
                    is_file: rest[end..].starts_with(';'),
                    is_for_tests,
                });
            }
        }
        is_for_tests = false;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let sources = files.iter();
        let sources: Vec<Source> = sources
            .map(|(path, text)| Source::new(path.into(), (*text).to_owned()))
            .collect();
        check(&sources)
    }

    #[test]
    fn a_table_names_all_modules_and_no_others() {
        let head = "#![no_std]\n//! Head.\n//!\n//! | Module | Thing |\n//! |---|---|\n\
                    //! | [`mod@a`], `inner` | one; `d` beside |\n//! | (here), `gone` | two |\n\n";
        let code = "mod a;\npub(crate) mod d;\n/// Lacks.\npub mod missing;\nmod inner {}\n\
                    #[cfg(all(test, unix))]\nmod tests;\nmod unlisted {}\n";
        assert_eq!(
            findings(&[("crates/x/src/lib.rs", &format!("{head}{code}"))]),
            [
                "crates/x/src/lib.rs: its table names gone, which it does not declare",
                "crates/x/src/lib.rs: its table of modules lacks missing",
            ]
        );
    }

    #[test]
    fn other_tables_and_heads_without_tables_are_free() {
        let files = [
            ("crates/x/src/a.rs", "//! A.\nmod b;\n"),
            (
                "crates/x/src/c.rs",
                "//! | form | what |\n//! |---|---|\n//! | `d` | e |\nmod f;\n",
            ),
        ];
        assert_eq!(findings(&files), [""; 0]);
    }

    #[test]
    fn what_a_folder_uses_stands_under_may_use() {
        let inode = "//! I.\n//!\n//! # May use\n//! `base`, `commit`, and `schemes::fine`.\n";
        let files = [
            ("crates/namespace/src/inode/mod.rs", inode),
            (
                "crates/namespace/src/inode/size.rs",
                "//! S.\nuse crate::{base::A, names::N};\n#[cfg(test)]\nmod tests { \
                 use crate::data::D; }\n",
            ),
            (
                "crates/namespace/src/access/mod.rs",
                "//! A.\n//! # May use\n//! Everything below.\nuse crate::base::B;\n",
            ),
        ];
        assert_eq!(
            findings(&files),
            [
                "crates/namespace/src/inode/mod.rs: \"May use\" names commit, which lies above it",
                "crates/namespace/src/inode/mod.rs: \"May use\" lacks names, \
                 which crates/namespace/src/inode/size.rs uses",
            ]
        );
    }
}
