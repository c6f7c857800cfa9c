//! Names that must not be used, where they must not, and what to use instead.

use super::source::{Source, imports};

/// A banned path or macro.
struct Ban {
    name: &'static str,
    /// Path prefixes where it is banned.
    within: &'static [&'static str],
    /// Path prefixes where it is allowed all the same.
    except: &'static [&'static str],
    instead: &'static str,
}

/// The packages whose locks must have a class.
const PRODUCT: &[&str] = &["crates/"];
/// Where locks are made, not used.
const LOCK_CRATES: &[&str] = &["crates/locks/", "crates/lockmeter/", "proof/testkit/"];
const CLASSED: &str =
    "use the locks of finefs_locks, whose class the order checker and the meter see";
const PURE: &str = "codecs are pure: take and give bytes, let the caller do the I/O";

const BANS: &[Ban] = &[
    Ban {
        name: "std::sync::Mutex",
        within: PRODUCT,
        except: LOCK_CRATES,
        instead: CLASSED,
    },
    Ban {
        name: "std::sync::RwLock",
        within: PRODUCT,
        except: LOCK_CRATES,
        instead: CLASSED,
    },
    Ban {
        name: "std::sync::Condvar",
        within: PRODUCT,
        except: LOCK_CRATES,
        instead: CLASSED,
    },
    Ban {
        name: "parking_lot",
        within: PRODUCT,
        except: LOCK_CRATES,
        instead: CLASSED,
    },
    Ban {
        name: "std::fs",
        within: &["crates/ext-disk/"],
        except: &[],
        instead: PURE,
    },
    Ban {
        name: "std::io",
        within: &["crates/ext-disk/"],
        except: &[],
        instead: PURE,
    },
    Ban {
        name: "std::thread",
        within: &["crates/ext-disk/"],
        except: &[],
        instead: PURE,
    },
    Ban {
        name: "std::sync",
        within: &["crates/ext-disk/"],
        except: &[],
        instead: PURE,
    },
    Ban {
        name: "std::fs",
        within: &["crates/namespace/"],
        except: &[],
        instead: "the namespace persists nothing: that is the store's",
    },
];

const MACROS: &[&str] = &["todo!", "unimplemented!", "dbg!"];

/// Modules that may hold `unsafe`, each small and about one thing.
const UNSAFE: &[&str] = &[
    "crates/capi/src/",
    "crates/locks/src/",
    "crates/lockmeter/src/",
    "crates/namespace/src/inode/acl_cell.rs",
    "crates/namespace/src/base/once_box.rs",
    "crates/namespace/src/base/retire.rs",
    "crates/namespace/src/inode/inode_table.rs",
    "crates/namespace/src/inode/slots.rs",
    "crates/namespace/src/names/name_table.rs",
    "crates/namespace/src/names/name_table/chain.rs",
    "crates/namespace/src/data/extent_map.rs",
    "crates/namespace/src/memory/pages.rs",
    "crates/confine/src/threads.rs",
    "crates/fuse/src/device.rs",
    "crates/fuse/src/ring.rs",
    "crates/cli/src/background.rs",
    "crates/cli/src/image/clock.rs",
    "crates/cli/src/inherited.rs",
    "crates/cli/src/spare_memory.rs",
    "lab/bench/src/range_lock/list.rs",
    "lab/bench/src/range_lock/segments.rs",
    "lab/workloads/src/targets/append_ring.rs",
    "proof/xtask/src/differential/mapping.rs",
];

/// Findings in the sources.
pub fn check(sources: &[Source]) -> Vec<String> {
    sources.iter().flat_map(check_one).collect()
}

fn check_one(source: &Source) -> Vec<String> {
    let name = source.name();
    let mut findings = Vec::new();
    for (number, line) in numbered(&source.code) {
        for banned in MACROS.iter().filter(|banned| has_word(line, banned)) {
            findings.push(format!(
                "{name}:{number}: {banned} is not for committed code"
            ));
        }
    }
    if source.is_test() {
        return findings;
    }
    let code = source.product_code();
    let allowed = UNSAFE.iter().any(|prefix| name.starts_with(prefix));
    for (number, line) in numbered(code).filter(|(_, line)| !allowed && has_word(line, "unsafe")) {
        if !line.contains("unsafe_") {
            findings.push(format!(
                "{name}:{number}: unsafe outside the modules listed in xtask's style test: use a safe \
                 wrapper (rustix, zerocopy, crossbeam), or give it a module of its own"
            ));
        }
    }
    let imports = imports(code);
    for ban in BANS {
        let here = |list: &[&str]| list.iter().any(|prefix| name.starts_with(prefix));
        if !here(ban.within) || here(ban.except) {
            continue;
        }
        let mut lines: Vec<usize> = imports
            .iter()
            .filter(|(_, import)| {
                import
                    .strip_prefix(ban.name)
                    .is_some_and(|r| r.is_empty() || r.starts_with("::"))
            })
            .map(|(line, _)| *line)
            .chain(
                numbered(code)
                    .filter(|(_, line)| has_word(line, ban.name))
                    .map(|(n, _)| n),
            )
            .collect();
        lines.dedup();
        lines.sort_unstable();
        lines.dedup();
        for line in lines {
            findings.push(format!("{name}:{line}: {}: {}", ban.name, ban.instead));
        }
    }
    findings
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
}

/// True when `line` holds `word` with no letter before or after it.
fn has_word(line: &str, word: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_letter) && !line[at + word.len()..].starts_with(is_letter)
    })
}
