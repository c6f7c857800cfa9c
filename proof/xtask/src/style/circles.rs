//! No circles between the modules of a package: of two modules that need each other neither can be
//! read, tested or changed alone. This holds of the modules right below the package's root, and of
//! those of each folder: what is in a folder below counts as the folder's module. What a module
//! takes from the folder's own `mod.rs` does not count, nor what a use in a unit test needs.

use super::layers::{from_root, paths};
use super::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A use that may close a circle, and why.
struct Excused {
    /// Where both modules are: the package's directory, for those in a folder followed by `/src/`
    /// and the folder.
    folder: &'static str,
    module: &'static str,
    uses: &'static str,
    #[expect(dead_code, reason = "for whoever reads the table")]
    why: &'static str,
}

const EXCUSED: &[Excused] = &[
    Excused {
        folder: "crates/check/src/pass",
        module: "xattrs",
        uses: "inodes",
        why: "attributes are a part of the look at their inode, whose findings they add to",
    },
    Excused {
        folder: "crates/image/src/build",
        module: "content",
        uses: "squash",
        why: "a file of a squashfs image is a content, and reads the image",
    },
    Excused {
        folder: "crates/image/src/mkfs",
        module: "bad_blocks",
        uses: "build",
        why: "they decide what is built, then are built",
    },
    Excused {
        folder: "crates/locks/src/range_lock",
        module: "cell",
        uses: "node",
        why: "a contended cell's word points at the nodes of its queue, which hold cells",
    },
    Excused {
        folder: "crates/namespace/src/commit",
        module: "volume",
        uses: "committer",
        why: "the threads of the committer fold and evict what the volume has, and it keeps them",
    },
    Excused {
        folder: "proof/testkit/src/crash",
        module: "base",
        uses: "tree",
        why: "a base remembers the tree of its image, which is read by what opens any",
    },
    Excused {
        folder: "proof/xtask/src/differential",
        module: "look",
        uses: "deviations",
        why: "what may differ is said of what was looked at, and asked while it is compared",
    },
    Excused {
        folder: "crates/ext",
        module: "state",
        uses: "journal",
        why: "the state keeps the journal's writer; a journal is read with parts of the state",
    },
    Excused {
        folder: "crates/lockmeter",
        module: "class",
        uses: "registry",
        why: "a class registers itself when it is first counted",
    },
    Excused {
        folder: "crates/lockmeter",
        module: "counters",
        uses: "holding",
        why: "LastCpu stands with what locks call, and its unsafe code with theirs",
    },
    Excused {
        folder: "crates/lockmeter",
        module: "threshold",
        uses: "lease",
        why: "reports name their leases, which are there without the meter too",
    },
    Excused {
        folder: "crates/lockmeter",
        module: "waiters",
        uses: "registry",
        why: "a thread's record holds its wait, and who waits is found by it",
    },
    Excused {
        folder: "lab/workloads",
        module: "workload",
        uses: "report",
        why: "a workload puts its own report into words",
    },
    Excused {
        folder: "lab/workloads",
        module: "dbench",
        uses: "run",
        why: "a comparison of two targets is two runs",
    },
];

/// Who uses whom, in one folder.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Findings in all packages.
pub fn check(packages: &[(PathBuf, toml::Table)], sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for (package, _) in packages {
        let name = package.to_string_lossy();
        let mut folders = uses_in(package, sources);
        let is_here = |folder: &str| {
            let rest = folder.strip_prefix(&*name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("/src/"))
        };
        for excused in EXCUSED.iter().filter(|excused| is_here(excused.folder)) {
            let uses = folders.get_mut(excused.folder);
            let of_module = uses.and_then(|uses| uses.get_mut(excused.module));
            if !of_module.is_some_and(|of_module| of_module.remove(excused.uses)) {
                let (folder, module, used) = (excused.folder, excused.module, excused.uses);
                findings.push(format!("{folder}: {module} does not use {used} any more"));
            }
        }
        for (folder, uses) in &folders {
            findings.extend(circle_in(uses).map(|circle| {
                let told: Vec<String> = circle
                    .iter()
                    .map(|(module, used)| format!("{module} uses {used}"))
                    .collect();
                format!("{folder}: a circle of modules: {}", told.join("; "))
            }));
        }
    }
    findings
}

/// What the modules of each folder of a package use of each other.
fn uses_in(package: &Path, sources: &[Source]) -> BTreeMap<String, Uses> {
    let root = package.join("src");
    let mut modules: Vec<(Vec<&str>, &Source)> = Vec::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        let Ok(within) = source.path.strip_prefix(&root) else {
            continue;
        };
        let mut module: Vec<&str> = within.iter().filter_map(|part| part.to_str()).collect();
        if let Some(last) = module.last_mut() {
            *last = last.trim_end_matches(".rs");
        }
        module.retain(|part| *part != "mod");
        let is_root = |own: &&str| matches!(*own, "lib" | "main" | "bin");
        if module.first().is_some_and(|own| !is_root(own)) {
            modules.push((module, source));
        }
    }
    let known: BTreeSet<&[&str]> = modules
        .iter()
        .flat_map(|(module, _)| (1..=module.len()).map(|end| &module[..end]))
        .collect();
    let mut folders = BTreeMap::new();
    for (module, source) in &modules {
        for (_, path) in paths(source.product_code()) {
            let Some(full) = from_root(module, &path) else {
                continue;
            };
            let full: Vec<&str> = full.split("::").collect();
            let mut both = module.iter().zip(&full);
            let Some(common) = both.position(|(own, used)| own != used) else {
                continue;
            };
            if !known.contains(&full[..=common]) {
                continue;
            }
            let mut folder = package.to_string_lossy().into_owned();
            if common > 0 {
                folder = format!("{folder}/src/{}", module[..common].join("/"));
            }
            let uses: &mut Uses = folders.entry(folder).or_default();
            let used = uses.entry(module[common].to_owned()).or_default();
            used.insert(full[common].to_owned());
        }
    }
    folders
}

/// All uses between modules that lie on circles, if there are any.
fn circle_in(uses: &Uses) -> Option<Vec<(&str, &str)>> {
    let circle: Vec<(&str, &str)> = uses
        .iter()
        .flat_map(|(module, used)| {
            used.iter()
                .map(move |used| (module.as_str(), used.as_str()))
        })
        .filter(|(module, used)| reaches(uses, used, module))
        .collect();
    (!circle.is_empty()).then_some(circle)
}

fn reaches(uses: &Uses, from: &str, to: &str) -> bool {
    let (mut seen, mut todo) = (BTreeSet::from([from]), vec![from]);
    while let Some(module) = todo.pop() {
        if module == to {
            return true;
        }
        let used = uses.get(module).into_iter().flatten();
        todo.extend(used.map(String::as_str).filter(|used| seen.insert(used)));
    }
    false
}
