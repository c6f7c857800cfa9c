//! The style test: rules that a compiler does not check.
//!
//! | rule | where |
//! |---|---|
//! | dependencies point downward only, of packages and of the namespace's folders | [`layers`] |
//! | no circles between modules of a package or folder, but those excused | [`circles`] |
//! | banned names, each with its replacement; `unsafe` only in listed modules | [`names`] |
//! | no dead or long files, every file says what it is; no wide comments and prose | [`files`] |
//! | tables of modules and "May use" in heads agree with the code | [`heads`] |
//! | lock classes and their table agree | [`lock_table`] |
//! | no function that does not fit on a screen | [`functions`] |
//! | no path of somebody's machine in code or documents | [`files`] |
//! | links between documents lead somewhere | [`links`] |
//!
//! Sources are read as text with comments and strings blanked out ([`source`]); that is enough for
//! these rules and keeps the test fast and free of a parser.

mod circles;
mod files;
mod functions;
mod heads;
mod layers;
mod links;
mod lock_table;
mod names;
mod source;

use anyhow::{Context, Result, ensure};
use source::Source;
use std::path::{Path, PathBuf};

/// Checks the workspace at `root`; an error lists every finding.
pub fn run(root: &Path) -> Result<()> {
    let workspace = Workspace::read(root)?;
    let findings = workspace.findings();
    println!(
        "style: {} files, {} findings",
        workspace.sources.len(),
        findings.len()
    );
    ensure!(findings.is_empty(), "style:\n{}", findings.join("\n"));
    Ok(())
}

/// Everything that the rules look at.
struct Workspace {
    root: PathBuf,
    /// Directories of packages, relative to the root, with their manifests.
    packages: Vec<(PathBuf, toml::Table)>,
    sources: Vec<Source>,
    /// Markdown and other prose, relative to the root.
    documents: Vec<(PathBuf, String)>,
    /// The same, of TOML files.
    tomls: Vec<(PathBuf, String)>,
}

impl Workspace {
    fn read(root: &Path) -> Result<Self> {
        let mut workspace = Self {
            root: root.to_owned(),
            packages: Vec::new(),
            sources: Vec::new(),
            documents: Vec::new(),
            tomls: Vec::new(),
        };
        let mut todo = vec![PathBuf::new()];
        while let Some(dir) = todo.pop() {
            for entry in
                std::fs::read_dir(root.join(&dir)).with_context(|| dir.display().to_string())?
            {
                let entry = entry?;
                let path = dir.join(entry.file_name());
                let name = entry.file_name().to_string_lossy().into_owned();
                if entry.file_type()?.is_dir() {
                    if !matches!(name.as_str(), "target" | ".git") {
                        todo.push(path);
                    }
                } else if entry.file_type()?.is_file() {
                    // What a link leads to is read in its own place.
                    workspace.read_file(path, &name)?;
                }
            }
        }
        workspace.sources.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(workspace)
    }

    fn read_file(&mut self, path: PathBuf, name: &str) -> Result<()> {
        let full = self.root.join(&path);
        let text = || std::fs::read_to_string(&full).with_context(|| path.display().to_string());
        if name.ends_with(".rs") {
            let text = text()?;
            self.sources.push(Source::new(path, text));
        } else if name.ends_with(".toml") {
            let text = text()?;
            if name == "Cargo.toml" {
                let manifest = text.parse();
                let manifest = manifest.with_context(|| path.display().to_string())?;
                let directory = path.parent().unwrap_or(Path::new("")).to_owned();
                self.packages.push((directory, manifest));
            }
            self.tomls.push((path, text));
        } else if name.ends_with(".md") || name == "Makefile" {
            let text = text()?;
            self.documents.push((path, text));
        }
        Ok(())
    }

    fn findings(&self) -> Vec<String> {
        let mut findings = layers::check(&self.packages);
        findings.extend(layers::check_folders(&self.sources));
        findings.extend(circles::check(&self.packages, &self.sources));
        findings.extend(names::check(&self.sources));
        findings.extend(files::check(&self.sources, &self.documents, &self.tomls));
        findings.extend(functions::check(&self.sources));
        findings.extend(heads::check(&self.sources));
        findings.extend(links::check(&self.root, &self.documents));
        findings.extend(lock_table::check(&self.sources, &self.documents));
        findings.sort();
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace with one of each fault, and what must be said about it.
    const BAD: &[(&str, &str, &str)] = &[
        (
            "crates/ext-disk/Cargo.toml",
            "[package]\nname = \"finefs-ext-disk\"\n[dependencies]\nfinefs-locks = \"1\"\n",
            "finefs-ext-disk must not depend on finefs-locks",
        ),
        (
            "crates/unheard/Cargo.toml",
            "[package]\nname = \"finefs-unheard\"\n",
            "finefs-unheard has no place",
        ),
        (
            "crates/ext-disk/src/lib.rs",
            "//! Codec.\nuse std::{fmt, fs::File};\nmod used;\n",
            "lib.rs:2: std::fs",
        ),
        ("crates/ext-disk/src/used.rs", "//! Used.\n", ""),
        (
            "crates/ext-disk/src/dead.rs",
            "//! Dead.\n",
            "dead.rs: reached by no `mod`",
        ),
        (
            "crates/namespace/src/lib.rs",
            "//! Heart.\nuse std::sync::{Arc, Mutex};\nmod base;\n\
             mod commit;\nmod inode;\nmod new;\nmod root;\n",
            "lib.rs:2: std::sync::Mutex",
        ),
        (
            "crates/namespace/src/base/mod.rs",
            "//! Base.\nmod a;\nmod b;\nmod c;\nmod d;\nmod e;\n",
            "",
        ),
        (
            "crates/namespace/src/base/a.rs",
            "//! A.\nfn f() { todo!() }\n",
            "a.rs:2: todo!",
        ),
        (
            "crates/namespace/src/base/b.rs",
            "//! B.\nfn f() { unsafe { g() } }\n",
            "b.rs:2: unsafe",
        ),
        (
            "crates/namespace/src/base/c.rs",
            "fn no_head() {}\n",
            "c.rs: does not say what it is",
        ),
        (
            "crates/namespace/src/base/d.rs",
            "//! D.\nstatic X: LockClass = LockClass::new(\"ns.x\", 7);\n\
             static Y: LockClass = LockClass::new(\"ns.y\", 4);\n\
             static Z: LockClass = LockClass::new(\"ns.y\", 4);\n",
            "ns.x (7) is not in docs/locking.md",
        ),
        (
            "crates/namespace/src/commit/mod.rs",
            "//! Commit.\nmod low;\nuse crate::inode::{A, b};\nfn f() { crate::namespace::g() }\n",
            "commit/mod.rs:4: commit must not use namespace, which lies above it: namespace::g",
        ),
        (
            "crates/namespace/src/commit/low.rs",
            "//! Low.\nuse super::x;\nuse super::super::base::y;\nuse crate::{base, memory::m};\n",
            "commit/low.rs:4: commit must not use memory",
        ),
        (
            "crates/namespace/src/inode/mod.rs",
            "//! Inode.\nuse super::commit::C;\n#[cfg(test)]\nmod tests {\n    use crate::m::M;\n}\n",
            "inode/mod.rs:2: inode must not use commit",
        ),
        (
            "crates/fuse/Cargo.toml",
            "[package]\nname = \"finefs-fuse\"\n",
            "",
        ),
        (
            "crates/fuse/src/lib.rs",
            "//! Front.\nmod one;\nmod other;\nmod top;\n",
            "",
        ),
        (
            "crates/fuse/src/one.rs",
            "//! One.\nuse crate::other::O;\n",
            "crates/fuse: a circle of modules: one uses other; other uses one",
        ),
        (
            "crates/fuse/src/other.rs",
            "//! Other.\nfn f() { crate::one::g() }\n",
            "",
        ),
        (
            "crates/fuse/src/top/mod.rs",
            "//! Top.\nmod a;\nmod b;\nuse crate::{one, other};\n",
            "",
        ),
        (
            "crates/fuse/src/top/a.rs",
            "//! A.\nuse super::{T, b::B};\n",
            "crates/fuse/src/top: a circle of modules: a uses b; b uses a",
        ),
        (
            "crates/fuse/src/top/b.rs",
            "//! B.\nuse crate::top::a::A;\n",
            "",
        ),
        (
            "crates/namespace/src/new/mod.rs",
            "//! New.\n",
            "new has no place among the folders",
        ),
        (
            "crates/namespace/src/root.rs",
            "//! Root.\n",
            "root.rs: lies in no folder",
        ),
        (
            "docs/locking.md",
            "| `ns.gone` | 9 | nothing |\n| `ns.y` | 4 | low |\n| `ns.y` | 4 | again |\n\
             ## What is held over device I/O\n- `ns.y`, and `ns.w` in its place: over `b`.\n\
             ## Names\n- `c`: a bucket\n",
            "ns.gone (9) is in no source",
        ),
        (
            "README.md",
            concat!("see /wo", "rk/main\n"),
            "README.md:1: a path of one machine",
        ),
        (
            "docs/crashes.md",
            "See [a](../crates/namespace/src/base/a.rs), [net](https://x/y), [here](#x),\n\
             [all](locking.md#lock) and [gone](../gone.rs#x).\n",
            "docs/crashes.md:2: no such file: ../gone.rs",
        ),
    ];

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn every_fault_is_found_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let long = format!("//! Long.\n{}", "fn f() {}\n".repeat(900));
        let files: Vec<_> = BAD.iter().map(|(path, text, _)| (*path, *text)).collect();
        write(dir.path(), &files);
        write(dir.path(), &[("crates/namespace/tests/long.rs", &long)]);
        let findings = Workspace::read(dir.path()).unwrap().findings();
        let expected: Vec<&str> = BAD
            .iter()
            .map(|(_, _, said)| *said)
            .chain([
                "long.rs: 901 lines",
                "lock class ns.y exists already",
                "ns.y stands below ns.gone",
                "ns.y stands there twice",
                "ns.w, held over I/O, is in no source",
                "lock class ns.y is in docs/locking.md's list of those held over I/O",
            ])
            .filter(|said| !said.is_empty())
            .collect();
        for said in &expected {
            assert!(
                findings.iter().any(|finding| finding.contains(said)),
                "{said}: {findings:#?}"
            );
        }
        assert_eq!(findings.len(), expected.len(), "{findings:#?}");
    }

    #[test]
    fn comments_strings_and_tests_are_not_code() {
        let dir = tempfile::tempdir().unwrap();
        let text = "//! Says todo!() and unsafe.\nfn f() -> &'static str { \"dbg!(\" }\n\
                    #[cfg(test)]\nmod tests {\n    use std::sync::Mutex;\n}\n";
        write(dir.path(), &[("crates/namespace/src/lib.rs", text)]);
        assert_eq!(
            Workspace::read(dir.path()).unwrap().findings(),
            Vec::<String>::new()
        );
    }
}
