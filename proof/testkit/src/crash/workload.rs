//! Workloads: all sequences of a few operations over a small set of names, in the manner of ACE,
//! with every placement of fsync and sync; and longer ones by chance.

use finefs_namespace::{AllocateMode, Geometry, RenameMode};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::step::{Persist, Step, parent};
use crate::model::Model;

/// A workload of one thread: operations, each with what is synced after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The operations.
    pub steps: Vec<(Step, Option<Persist>)>,
    /// Files that lose their last name stay open until the end.
    pub keeps_open: bool,
    /// Commits before the first operation. They move the head of a journal, so that some workloads
    /// meet its end and go on at its start.
    pub commits_before: usize,
}

/// Most commits before a workload: enough to fill the journal of 1024 blocks, and somewhat more.
const COMMITS_MAX: usize = 300;

/// What there is before any workload: made, and closed, once.
pub fn setup() -> Vec<Step> {
    let path = |text: &str| text.to_owned();
    vec![
        Step::MakeDirectory(path("A")),
        Step::MakeDirectory(path("B")),
        Step::MakeDirectory(path("A/C")),
        Step::Create(path("A/foo")),
        Step::Write {
            at: path("A/foo"),
            offset: 0,
            length: 6000,
            fill: 3,
        },
        Step::SetXattr {
            at: path("A/foo"),
            name: "user.old",
            length: 30,
            fill: 9,
        },
        Step::Create(path("B/bar")),
        Step::Write {
            at: path("B/bar"),
            offset: 0,
            length: 2600,
            fill: 77,
        },
        Step::SetAcl {
            at: path("B/bar"),
            is_default: false,
            permissions: 0o664,
        },
        Step::Symlink {
            at: path("B/way"),
            target_length: 20,
        },
    ]
}

/// The operations that workloads are made of.
pub fn alphabet(has_unwritten: bool) -> Vec<Step> {
    let mut steps = names();
    steps.extend(data(has_unwritten));
    steps
}

fn names() -> Vec<Step> {
    let path = |text: &str| text.to_owned();
    let rename = |from: &str, to: &str| Step::Rename {
        from: path(from),
        to: path(to),
        mode: RenameMode::Replace,
    };
    let exchange = |from: &str, to: &str| Step::Rename {
        from: path(from),
        to: path(to),
        mode: RenameMode::Exchange,
    };
    let link = |from: &str, to: &str| Step::Link {
        from: path(from),
        to: path(to),
    };
    let symlink = |at: &str, target_length| Step::Symlink {
        at: path(at),
        target_length,
    };
    vec![
        Step::Create(path("A/new")),
        Step::Create(path("B/new")),
        Step::MakeDirectory(path("A/dir")),
        Step::MakeDirectory(path("dir")),
        Step::Create(path("A/dir/x")),
        symlink("A/way", 30),
        symlink("way", 200),
        link("A/foo", "A/also"),
        link("B/bar", "A/new"),
        Step::Unlink(path("A/foo")),
        Step::Unlink(path("B/bar")),
        Step::Unlink(path("A/new")),
        Step::Unlink(path("B/way")),
        Step::RemoveDirectory(path("A/C")),
        Step::RemoveDirectory(path("A/dir")),
        rename("A/foo", "A/moved"),
        rename("A/foo", "B/new"),
        rename("A/foo", "B/bar"),
        rename("A/new", "A/foo"),
        rename("B/new", "A/foo"),
        rename("A/C", "B/C"),
        rename("A/dir", "A/C"),
        rename("B", "A/dir"),
        exchange("A/foo", "B/bar"),
        exchange("A", "B"),
        exchange("A/C", "B/bar"),
    ]
}

fn data(has_unwritten: bool) -> Vec<Step> {
    let path = |text: &str| text.to_owned();
    let write = |at: &str, offset, length| Step::Write {
        at: path(at),
        offset,
        length,
        fill: 120,
    };
    let append = |at: &str, length| Step::Append {
        at: path(at),
        length,
        fill: 200,
    };
    let truncate = |at: &str, size| Step::Truncate { at: path(at), size };
    let allocate = |at: &str, mode, offset, length| Step::Allocate {
        at: path(at),
        mode,
        offset,
        length,
    };
    let xattr = |at: &str, name, length| Step::SetXattr {
        at: path(at),
        name,
        length,
        fill: 50,
    };
    let acl = |at: &str, is_default, permissions| Step::SetAcl {
        at: path(at),
        is_default,
        permissions,
    };
    let mut steps = vec![
        write("A/foo", 0, 2048),
        write("A/foo", 700, 3000),
        write("A/foo", 5000, 4000),
        write("A/foo", 20_000, 1500),
        write("A/new", 0, 5000),
        write("B/bar", 0, 4096),
        append("A/foo", 3000),
        append("B/bar", 100),
        append("A/new", 900),
        truncate("A/foo", 0),
        truncate("A/foo", 1500),
        truncate("A/foo", 12_000),
        truncate("B/bar", 100),
        allocate("A/foo", AllocateMode::PunchHole, 500, 4000),
        allocate("A/foo", AllocateMode::ZeroRange, 1000, 9000),
        allocate("B/bar", AllocateMode::Extend, 0, 9000),
        xattr("A/foo", "user.a", 40),
        xattr("B/bar", "user.b", 600),
        xattr("A", "user.d", 200),
        Step::RemoveXattr {
            at: path("A/foo"),
            name: "user.old",
        },
        Step::Chmod {
            at: path("A/foo"),
            permissions: 0o600,
        },
        Step::Chmod {
            at: path("A"),
            permissions: 0o711,
        },
        acl("A/foo", false, 0o471),
        acl("A", true, 0o750),
        Step::Chmod {
            at: path("B/bar"),
            permissions: 0o617,
        },
    ];
    if has_unwritten {
        steps.push(allocate("A/foo", AllocateMode::KeepSize, 4096, 9000));
    }
    steps
}

/// The ways to sync after a step: not, what it was about, the directory of that, everything.
fn persists(step: &Step) -> Vec<Option<Persist>> {
    vec![
        None,
        Some(Persist::One(step.path().into())),
        Some(Persist::One(parent(step.path()).into())),
        Some(Persist::All),
    ]
}

/// What makes workloads: the steps that can be done, in all orders.
pub struct Generator {
    start: Model,
    alphabet: Vec<Step>,
}

impl Generator {
    /// From what there is before.
    pub fn new(start: &Model, limits: &Geometry) -> Generator {
        Generator {
            start: start.clone(),
            alphabet: alphabet(limits.has_unwritten),
        }
    }

    /// All workloads of `length` operations that succeed, with all placements of syncs. The last
    /// operation is always followed by one: what is never written out cannot be torn.
    pub fn all(&self, length: usize) -> Vec<Workload> {
        let mut found = Vec::new();
        self.extend(&mut Vec::new(), &self.start, length, &mut found);
        found
    }

    fn extend(
        &self,
        steps: &mut Vec<(Step, Option<Persist>)>,
        model: &Model,
        length: usize,
        found: &mut Vec<Workload>,
    ) {
        if length == 0 {
            found.push(Workload {
                steps: steps.clone(),
                keeps_open: found.len() % 2 == 1,
                commits_before: 0,
            });
            return;
        }
        for step in &self.alphabet {
            let mut after = model.clone();
            if step.on_model(&mut after).is_err() {
                continue;
            }
            for persist in persists(step) {
                if length == 1 && persist.is_none() {
                    continue;
                }
                if !can_persist(&after, persist.as_ref()) {
                    continue;
                }
                steps.push((step.clone(), persist));
                self.extend(steps, &after, length - 1, found);
                steps.pop();
            }
        }
    }

    /// `count` workloads of `length` operations by chance.
    pub fn sample(&self, length: usize, count: usize, seed: u64) -> Vec<Workload> {
        let random = &mut StdRng::seed_from_u64(seed);
        (0..count).map(|_| self.one(length, random)).collect()
    }

    fn one(&self, length: usize, random: &mut StdRng) -> Workload {
        let mut model = self.start.clone();
        let mut steps = Vec::new();
        while steps.len() < length {
            let step = &self.alphabet[random.random_range(0..self.alphabet.len())];
            let mut after = model.clone();
            if step.on_model(&mut after).is_err() {
                continue;
            }
            let mut ways = persists(step);
            ways.retain(|way| can_persist(&after, way.as_ref()));
            if steps.len() + 1 == length {
                ways.retain(Option::is_some);
            }
            let way = ways[random.random_range(0..ways.len())].clone();
            steps.push((step.clone(), way));
            model = after;
        }
        Workload {
            steps,
            keeps_open: random.random(),
            commits_before: match random.random() {
                true => random.random_range(0..COMMITS_MAX),
                false => 0,
            },
        }
    }
}

/// What was removed cannot be synced any more.
fn can_persist(model: &Model, persist: Option<&Persist>) -> bool {
    match persist {
        Some(Persist::One(path) | Persist::Data(path)) => super::step::find(model, path).is_some(),
        _ => true,
    }
}
