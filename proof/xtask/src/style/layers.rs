//! Dependencies point downward only: between packages, and between the folders of the namespace.

use super::source::{Source, imports};
use std::path::PathBuf;

/// Each package with the packages of ours that it may be built on: `crates/` on itself, `lab/` on
/// `crates/` and itself, `proof/` on all. Tests may use more.
const LAYERS: &[(&str, &[&str])] = &[
    ("finefs-lockmeter", &[]),
    ("finefs-locks", &["finefs-lockmeter"]),
    ("finefs-block", &["finefs-locks", "finefs-lockmeter"]),
    (
        "finefs-nbd",
        &["finefs-block", "finefs-locks", "finefs-lockmeter"],
    ),
    (
        "finefs-disk",
        &[
            "finefs-nbd",
            "finefs-block",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    ("finefs-ext-disk", &[]),
    ("finefs-confine", &[]),
    (
        "finefs-buffers",
        &[
            "finefs-namespace",
            "finefs-block",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    ("finefs-reiser-disk", &[]),
    (
        "finefs-reiser",
        &[
            "finefs-buffers",
            "finefs-namespace",
            "finefs-block",
            "finefs-ext-disk",
            "finefs-reiser-disk",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    ("finefs-dbench-load", &[]),
    ("finefs-namespace", &["finefs-locks", "finefs-lockmeter"]),
    (
        "finefs-ext",
        &[
            "finefs-buffers",
            "finefs-namespace",
            "finefs-block",
            "finefs-ext-disk",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    (
        "finefs-check",
        &[
            "finefs-ext",
            "finefs-buffers",
            "finefs-namespace",
            "finefs-block",
            "finefs-ext-disk",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    (
        "finefs-fuse",
        &["finefs-namespace", "finefs-locks", "finefs-lockmeter"],
    ),
    (
        "finefs-nfs",
        &["finefs-namespace", "finefs-locks", "finefs-lockmeter"],
    ),
    (
        "finefs",
        &[
            "finefs-ext",
            "finefs-reiser",
            "finefs-reiser-disk",
            "finefs-buffers",
            "finefs-namespace",
            "finefs-disk",
            "finefs-block",
            "finefs-ext-disk",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    (
        "finefs-image",
        &[
            "finefs",
            "finefs-ext",
            "finefs-reiser",
            "finefs-reiser-disk",
            "finefs-buffers",
            "finefs-namespace",
            "finefs-disk",
            "finefs-block",
            "finefs-ext-disk",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    ("finefs-capi", &["finefs", "finefs-image"]),
    ("finefs-python", &["finefs", "finefs-image"]),
    (
        "finefs-harness",
        &[
            "finefs-check",
            "finefs-confine",
            "finefs-ext",
            "finefs-buffers",
            "finefs-namespace",
            "finefs-block",
            "finefs-ext-disk",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    ("finefs-sim", &["finefs-block", "finefs-locks"]),
    ("finefs-races", &["finefs-namespace", "finefs-locks"]),
    (
        "finefs-workloads",
        &[
            "finefs",
            "finefs-dbench-load",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    (
        "finefs-nfs-client",
        &[
            "finefs-workloads",
            "finefs",
            "finefs-nfs",
            "finefs-namespace",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    (
        "finefs-cli",
        &[
            "finefs-check",
            "finefs-image",
            "finefs",
            "finefs-confine",
            "finefs-fuse",
            "finefs-nfs",
            "finefs-ext",
            "finefs-reiser",
            "finefs-reiser-disk",
            "finefs-buffers",
            "finefs-namespace",
            "finefs-disk",
            "finefs-block",
            "finefs-ext-disk",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    (
        "finefs-testkit",
        &[
            "finefs-harness",
            "finefs-confine",
            "finefs-sim",
            "finefs-nbd",
            "finefs-dbench-load",
            "finefs-namespace",
            "finefs-block",
            "finefs-check",
            "finefs-ext",
            "finefs-reiser",
            "finefs-reiser-disk",
            "finefs-buffers",
            "finefs-ext-disk",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    (
        "finefs-study",
        &[
            "finefs-nfs-client",
            "finefs-nfs",
            "finefs-workloads",
            "finefs",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    (
        "finefs-bench",
        &[
            "finefs-cli",
            "finefs-confine",
            "finefs-fuse",
            "finefs-harness",
            "finefs-nfs-client",
            "finefs-study",
            "finefs-workloads",
            "finefs",
            "finefs-ext",
            "finefs-reiser",
            "finefs-reiser-disk",
            "finefs-buffers",
            "finefs-namespace",
            "finefs-disk",
            "finefs-block",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    (
        "finefs-fuzz",
        &[
            "finefs-check",
            "finefs-ext",
            "finefs-reiser",
            "finefs-reiser-disk",
            "finefs-buffers",
            "finefs-fuse",
            "finefs-nfs",
            "finefs-namespace",
            "finefs-block",
            "finefs-ext-disk",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    ("xtask", &["finefs-harness", "finefs-nfs-client"]),
];

/// Findings in the manifests.
pub fn check(packages: &[(PathBuf, toml::Table)]) -> Vec<String> {
    let mut findings = Vec::new();
    let ours: Vec<&str> = LAYERS.iter().map(|(name, _)| *name).collect();
    for (dir, manifest) in packages {
        let Some(name) = manifest
            .get("package")
            .and_then(|package| package.get("name"))
            .and_then(|name| name.as_str())
        else {
            continue;
        };
        let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
            findings.push(format!(
                "{}: {name} has no place in the layers",
                dir.display()
            ));
            continue;
        };
        for dependency in dependencies(manifest) {
            if ours.contains(&dependency.as_str()) && !allowed.contains(&dependency.as_str()) {
                findings.push(format!(
                    "{}: {name} must not depend on {dependency}: dependencies point downward only",
                    dir.display()
                ));
            }
        }
    }
    findings
}

/// Everything that the package itself is built on, on any target.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let of = |table: &toml::Table| -> Vec<String> {
        ["dependencies", "build-dependencies"]
            .iter()
            .filter_map(|key| table.get(*key)?.as_table())
            .flat_map(|table| table.keys().cloned())
            .collect()
    };
    let mut names = of(manifest);
    if let Some(targets) = manifest.get("target").and_then(|target| target.as_table()) {
        names.extend(
            targets
                .values()
                .filter_map(|target| target.as_table())
                .flat_map(of),
        );
    }
    names
}

/// A package whose folders are layers.
pub(super) struct Folders {
    /// Its sources.
    pub root: &'static str,
    /// From the bottom up: each may use those before it.
    pub order: &'static [&'static str],
    /// Paths that lead up all the same: the file, what it names, and why.
    exceptions: &'static [(&'static str, &'static str, &'static str)],
}

pub(super) const FOLDERS: &[Folders] = &[Folders {
    root: "crates/namespace/src/",
    order: &[
        "base",
        "schemes",
        "names",
        "data",
        "file_lock",
        "inode",
        "commit",
        "namespace",
        "access",
        "operations",
        "memory",
    ],
    exceptions: &[],
}];

/// Findings in the paths of the sources of packages whose folders are layers. Unit tests may use
/// everything.
pub fn check_folders(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for folders in FOLDERS {
        for source in sources.iter().filter(|source| !source.is_test()) {
            let name = source.name();
            let Some(within) = name.strip_prefix(folders.root) else {
                continue;
            };
            if within != "lib.rs" {
                findings.extend(folders.check(&name, within, source.product_code()));
            }
        }
    }
    findings
}

impl Folders {
    fn check(&self, name: &str, within: &str, code: &str) -> Vec<String> {
        let level = |folder: &str| self.order.iter().position(|layer| *layer == folder);
        let Some((own, _)) = within.split_once('/') else {
            return vec![format!("{name}: lies in no folder of {}", self.root)];
        };
        let Some(own_level) = level(own) else {
            return vec![format!("{name}: {own} has no place among the folders")];
        };
        let module: Vec<&str> = within
            .trim_end_matches(".rs")
            .trim_end_matches("/mod")
            .split('/')
            .collect();
        let mut findings = Vec::new();
        for (line, path) in paths(code) {
            let Some(full) = from_root(&module, &path) else {
                continue;
            };
            let folder = full.split("::").next().unwrap_or_default();
            let is_excepted =
                |(file, what, _): &(&str, &str, &str)| *file == within && *what == full;
            if self.exceptions.iter().any(is_excepted) {
                continue;
            }
            match level(folder) {
                Some(level) if level <= own_level => {}
                Some(_) => findings.push(format!(
                    "{name}:{line}: {own} must not use {folder}, which lies above it: {full}"
                )),
                None => findings.push(format!(
                    "{name}:{line}: {path}: name it by its folder, so that its layer is seen"
                )),
            }
        }
        findings
    }
}

/// What the code names from `crate` or `super` on, in `use` declarations and elsewhere, with lines.
pub(super) fn paths(code: &str) -> Vec<(usize, String)> {
    let mut found = imports(code);
    for (index, line) in code.lines().enumerate() {
        for start in ["crate::", "super::"] {
            for (at, _) in line.match_indices(start) {
                let is_inside = |c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '$';
                if line[..at].ends_with(is_inside) {
                    continue;
                }
                let path: String = line[at..]
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || matches!(c, '_' | ':'))
                    .collect();
                // A tree that goes on in braces is among the imports.
                if !path.ends_with("::") {
                    found.push((index + 1, path));
                }
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// A path from the package's root on; `None` if it leads out of the package or stays in the module.
pub(super) fn from_root(module: &[&str], path: &str) -> Option<String> {
    if let Some(rest) = path.strip_prefix("crate::") {
        return Some(rest.to_owned());
    }
    let mut rest = path.strip_prefix("self::").unwrap_or(path);
    let mut above = 0;
    while let Some(shorter) = rest.strip_prefix("super::") {
        (rest, above) = (shorter, above + 1);
    }
    if above == 0 {
        return None;
    }
    let mut full = module[..module.len().saturating_sub(above)].to_vec();
    full.push(rest);
    Some(full.join("::"))
}
