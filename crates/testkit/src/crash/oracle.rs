//! Which trees a crash may leave.
//!
//! A [`History`] holds the model after each of a thread's operations. A tree is right when some moment
//! of it, from the last that was synced to the last that had begun, has the same names and inodes, and
//! each sector of each file has its bytes at that moment or at a later one.
//!
//! Without a journal the batch that a crash tears may be half there. Then only this is asked: what is
//! the same at all of those moments is there, with bytes of one of them.

use std::collections::BTreeMap;

use finefs_namespace::{FileKind, Ino};

use super::base::is_poison;
use super::step::{Persist, find};
use super::tree::{Found, Tree};
use crate::model::{Id, Model, Node};

const SECTOR: usize = 512;

/// The model after each operation of one thread, and which part of the tree is that thread's.
pub struct History {
    /// After 0, 1, 2, ... operations.
    pub moments: Vec<Moment>,
    /// Paths that begin with one of these are judged; all, and the root, when there is none.
    pub prefixes: Vec<String>,
}

/// The model at one moment.
pub struct Moment {
    model: Model,
    names: BTreeMap<String, Id>,
}

/// From the synced moment to the last one that had begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Number of operations that must be there.
    pub synced: usize,
    /// Number of operations that can be there.
    pub begun: usize,
}

impl Moment {
    fn new(model: &Model) -> Moment {
        let mut names = BTreeMap::new();
        list(model, String::new(), Model::ROOT, &mut names);
        Moment {
            model: model.clone(),
            names,
        }
    }
}

fn list(model: &Model, path: String, id: Id, names: &mut BTreeMap<String, Id>) {
    let Some(node) = model.node(id) else { return };
    for (name, child) in &node.entries {
        let name = String::from_utf8_lossy(name);
        let below = if path.is_empty() {
            name.into_owned()
        } else {
            format!("{path}/{name}")
        };
        list(model, below, *child, names);
    }
    names.insert(path, id);
}

impl History {
    /// Begins with a model.
    pub fn new(model: &Model, prefixes: Vec<String>) -> History {
        History {
            moments: vec![Moment::new(model)],
            prefixes,
        }
    }

    /// Takes down what came of one more operation.
    pub fn push(&mut self, model: &Model) {
        self.moments.push(Moment::new(model));
    }

    /// The number of operations that a sync after all of them makes durable: all, or the last one that
    /// changed what is synced.
    pub fn synced_by(&self, persist: &Persist) -> usize {
        let last = self.moments.len() - 1;
        let Persist::One(path) = persist else {
            return last;
        };
        let Some(id) = find(&self.moments[last].model, path) else {
            return 0;
        };
        (1..=last)
            .rev()
            .find(|at| {
                let [before, after] = [at - 1, *at].map(|at| &self.moments[at]);
                !is_same(before, after, id)
            })
            .unwrap_or(0)
    }

    fn is_mine(&self, path: &str) -> bool {
        self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| path.starts_with(prefix))
    }

    /// Whether a journal may leave this tree; else what differs from the moment that comes closest.
    pub fn judge(&self, tree: &Tree, window: Window) -> Result<(), String> {
        let last = window.begun.min(self.moments.len() - 1);
        let mut reasons = Vec::new();
        for at in window.synced..=last {
            match self.compare(tree, at, last) {
                Ok(()) => return Ok(()),
                Err(difference) => reasons.push(format!("after {at} operations: {difference}")),
            }
        }
        Err(format!(
            "no moment from {} to {last} fits:\n    {}",
            window.synced,
            reasons.join("\n    ")
        ))
    }

    fn compare(&self, tree: &Tree, at: usize, last: usize) -> Result<(), String> {
        let moment = &self.moments[at];
        let expected = || moment.names.keys().filter(|path| self.is_mine(path));
        if let Some(path) = expected().find(|path| !tree.names.contains_key(*path)) {
            return Err(format!("{path:?} is missing"));
        }
        let mut found = tree.names.keys().filter(|path| self.is_mine(path));
        if let Some(path) = found.find(|path| !moment.names.contains_key(*path)) {
            return Err(format!("{path:?} should not be there"));
        }
        let mut numbers: BTreeMap<Id, Ino> = BTreeMap::new();
        for path in expected() {
            let (id, ino) = (moment.names[path], tree.names[path]);
            let known = numbers.insert(id, ino);
            if known.is_some_and(|known| known != ino) {
                return Err(format!("{path:?} is no link of the same file any more"));
            }
            if known.is_some() {
                continue;
            }
            let node = moment.model.node(id).ok_or("the model has no such node")?;
            let found = &tree.inodes[&ino];
            compare_node(node, found).map_err(|difference| format!("{path:?}: {difference}"))?;
            self.compare_data(id, found, at..=last)
                .map_err(|difference| format!("{path:?}: {difference}"))?;
        }
        Ok(())
    }

    /// Each sector of the content is as it was at one of the moments.
    fn compare_data(
        &self,
        id: Id,
        found: &Found,
        moments: std::ops::RangeInclusive<usize>,
    ) -> Result<(), String> {
        if found.attributes.kind != FileKind::Regular {
            return Ok(());
        }
        let versions: Vec<&[u8]> = moments
            .filter_map(|at| self.moments[at].model.node(id))
            .map(|node| &node.data[..])
            .collect();
        for (number, sector) in found.data.chunks(SECTOR).enumerate() {
            let start = number * SECTOR;
            let is_one = versions.iter().any(|data| {
                let there = &data[start.min(data.len())..(start + sector.len()).min(data.len())];
                let (same, beyond) = sector.split_at(there.len());
                same == there && beyond.iter().all(|byte| *byte == 0)
            });
            if !is_one {
                let what = if is_poison(sector) {
                    "bytes that nobody wrote"
                } else if sector.iter().all(|byte| *byte == 0) {
                    "zeros"
                } else {
                    "other bytes"
                };
                return Err(format!(
                    "{what} at {start} to {}: {:02x?}...",
                    start + sector.len(),
                    &sector[..sector.len().min(16)]
                ));
            }
        }
        Ok(())
    }

    /// Whether this may be left without a journal, after a repair.
    pub fn judge_repaired(&self, tree: &Tree, window: Window) -> Result<(), String> {
        let last = window.begun.min(self.moments.len() - 1);
        let moments = &self.moments[window.synced..=last];
        let [first, rest @ ..] = moments else {
            return Ok(());
        };
        for (path, id) in &first.names {
            let stays = rest.iter().all(|moment| moment.names.get(path) == Some(id));
            if !stays || !self.is_mine(path) {
                continue;
            }
            let Some(ino) = tree.names.get(path) else {
                return Err(format!("{path:?} was synced and is missing"));
            };
            let nodes = moments.iter().filter_map(|moment| moment.model.node(*id));
            let found = &tree.inodes[ino];
            let fits: Vec<Result<(), String>> =
                nodes.map(|node| compare_repaired(node, found)).collect();
            if !fits.iter().any(Result::is_ok) {
                return Err(format!("{path:?}: {fits:?}"));
            }
            self.compare_data(*id, found, window.synced..=last)
                .map_err(|difference| format!("{path:?}: {difference}"))?;
        }
        Ok(())
    }
}

/// The same inode under the same names.
fn is_same(before: &Moment, after: &Moment, id: Id) -> bool {
    let own = |moment: &Moment| {
        let mut node = moment.model.node(id).cloned();
        if let Some(node) = &mut node {
            node.references = 0;
        }
        let named: Vec<(Id, Vec<u8>)> = moment
            .model
            .nodes()
            .flat_map(|(dir, node)| {
                let names = node.entries.iter().filter(|(_, child)| **child == id);
                names.map(move |(name, _)| (dir, name.clone()))
            })
            .collect();
        (node, named)
    };
    own(before) == own(after)
}

fn differ<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, got: T) -> Result<(), String> {
    if expected == got {
        return Ok(());
    }
    Err(format!("{what} must be {expected:?}, is {got:?}"))
}

fn compare_node(node: &Node, found: &Found) -> Result<(), String> {
    let attributes = &found.attributes;
    compare_repaired(node, found)?;
    differ("the link count", node.links, attributes.link_count)?;
    differ("the extended attributes", &node.xattrs, &found.xattrs)
}

/// All but what e2fsck may have put right.
fn compare_repaired(node: &Node, found: &Found) -> Result<(), String> {
    let attributes = &found.attributes;
    differ("the kind", node.kind, attributes.kind)?;
    differ("the mode", node.permissions, attributes.permissions)?;
    let owner = (attributes.uid, attributes.gid);
    differ("the owner", (node.uid, node.gid), owner)?;
    if node.kind != FileKind::Directory {
        differ("the size", node.data.len() as u64, attributes.size_bytes)?;
    }
    if node.kind == FileKind::Symlink {
        differ("the target", &node.data, &found.data)?;
    }
    Ok(())
}
