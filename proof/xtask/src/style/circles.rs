//! No circles between the modules of a package: of two modules that need each other neither can be
//! read, tested or changed alone. Modules are those right below the package's root; what a use in a
//! unit test needs does not count.

use super::layers::{from_root, paths};
use super::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A use that may close a circle, and why.
struct Excused {
    package: &'static str,
    module: &'static str,
    uses: &'static str,
    #[expect(dead_code, reason = "for whoever reads the table")]
    why: &'static str,
}

const EXCUSED: &[Excused] = &[
    Excused {
        package: "crates/ext",
        module: "state",
        uses: "journal",
        why: "the state keeps the journal's writer; a journal is read with parts of the state",
    },
    Excused {
        package: "crates/lockmeter",
        module: "class",
        uses: "registry",
        why: "a class registers itself when it is first counted",
    },
    Excused {
        package: "crates/lockmeter",
        module: "counters",
        uses: "holding",
        why: "LastCpu stands with what locks call, and its unsafe code with theirs",
    },
    Excused {
        package: "crates/lockmeter",
        module: "threshold",
        uses: "lease",
        why: "reports name their leases, which are there without the meter too",
    },
    Excused {
        package: "crates/lockmeter",
        module: "waiters",
        uses: "registry",
        why: "a thread's record holds its wait, and who waits is found by it",
    },
    Excused {
        package: "lab/workloads",
        module: "workload",
        uses: "report",
        why: "a workload puts its own report into words",
    },
    Excused {
        package: "lab/workloads",
        module: "dbench",
        uses: "run",
        why: "a comparison of two targets is two runs",
    },
];

/// Who uses whom.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Findings in all packages.
pub fn check(packages: &[(PathBuf, toml::Table)], sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for (package, _) in packages {
        let name = package.to_string_lossy();
        let mut uses = uses_in(package, sources);
        for excused in EXCUSED.iter().filter(|excused| excused.package == name) {
            let of_module = uses.get_mut(excused.module);
            if !of_module.is_some_and(|of_module| of_module.remove(excused.uses)) {
                let (module, used) = (excused.module, excused.uses);
                findings.push(format!("{name}: {module} does not use {used} any more"));
            }
        }
        findings.extend(circle_in(&uses).map(|circle| {
            let told: Vec<String> = circle
                .iter()
                .map(|(module, used)| format!("{module} uses {used}"))
                .collect();
            format!("{name}: a circle of modules: {}", told.join("; "))
        }));
    }
    findings
}

/// What the modules of a package use of each other.
fn uses_in(package: &Path, sources: &[Source]) -> Uses {
    let root = package.join("src");
    let mut uses = Uses::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        let Ok(within) = source.path.strip_prefix(&root) else {
            continue;
        };
        let within = within.with_extension("");
        let mut module: Vec<&str> = within.iter().filter_map(|part| part.to_str()).collect();
        module.retain(|part| *part != "mod");
        let Some(own) = module
            .first()
            .filter(|own| !matches!(**own, "lib" | "main" | "bin"))
        else {
            continue;
        };
        let used = uses.entry((*own).to_owned()).or_default();
        for (_, path) in paths(source.product_code()) {
            let full = from_root(&module, &path);
            let first = full.as_deref().and_then(|full| full.split("::").next());
            used.extend(first.filter(|first| first != own).map(str::to_owned));
        }
    }
    let modules: BTreeSet<String> = uses.keys().cloned().collect();
    for used in uses.values_mut() {
        used.retain(|module| modules.contains(module));
    }
    uses
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
