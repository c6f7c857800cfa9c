//! Dependencies point downward only.

use std::path::PathBuf;

/// Each package with the packages of ours that it may be built on: `crates/` on itself, `lab/` on
/// `crates/` and itself, `proof/` on all. Tests may use more.
const LAYERS: &[(&str, &[&str])] = &[
    ("finefs-lockmeter", &[]),
    ("finefs-locks", &["finefs-lockmeter"]),
    ("finefs-block", &["finefs-locks", "finefs-lockmeter"]),
    ("finefs-ext-disk", &[]),
    ("finefs-dbench-load", &[]),
    ("finefs-namespace", &["finefs-locks", "finefs-lockmeter"]),
    (
        "finefs-ext",
        &[
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
        "finefs",
        &[
            "finefs-ext",
            "finefs-namespace",
            "finefs-block",
            "finefs-ext-disk",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    ("finefs-harness", &[]),
    ("finefs-sim", &["finefs-block", "finefs-locks"]),
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
        "finefs-cli",
        &[
            "finefs",
            "finefs-fuse",
            "finefs-ext",
            "finefs-namespace",
            "finefs-block",
            "finefs-ext-disk",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    (
        "finefs-testkit",
        &[
            "finefs-sim",
            "finefs-dbench-load",
            "finefs-namespace",
            "finefs-block",
            "finefs-ext",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    (
        "finefs-study",
        &[
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
            "finefs-fuse",
            "finefs-harness",
            "finefs-study",
            "finefs-workloads",
            "finefs",
            "finefs-ext",
            "finefs-namespace",
            "finefs-block",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    (
        "finefs-fuzz",
        &[
            "finefs-ext",
            "finefs-fuse",
            "finefs-namespace",
            "finefs-block",
            "finefs-ext-disk",
            "finefs-locks",
            "finefs-lockmeter",
        ],
    ),
    ("xtask", &["finefs-harness"]),
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
