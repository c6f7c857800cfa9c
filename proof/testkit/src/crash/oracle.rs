//! Which trees a crash may leave.
//!
//! A [`History`] holds the model after each of a thread's operations. A tree is right when some
//! moment of it, from the last that was synced to the last that had begun, has the same names and
//! inodes, and each sector of each file has its bytes at that moment or at a later one; or its
//! bytes at an earlier one, as far as they were only written over since ([`Change::Overwrite`]) and
//! no sync of that file or of everything came after. A sync of a file of which only bytes were
//! overwritten need not write anything else: what else was done before may be lost.
//!
//! Without a journal the batch that a crash tears may be half there. Then only this is asked: what
//! is the same at all of those moments is there, with bytes of one of them. Where a file's size
//! changed, e2fsck may have derived one in between from the blocks that it found mapped; and the
//! file may have holes, since the blocks that map it reach the disk one by one.

use std::collections::BTreeMap;

use finefs_namespace::{FileKind, Ino};

use super::SHARED_LOG;
use super::base::is_poison;
use super::step::{Change, Persist, find};
use super::tree::{Found, Tree};
use crate::model::{Id, Model, Node};

const SECTOR: usize = 512;

/// The model after each operation of one thread, and which part of the tree is that thread's.
pub struct History {
    /// After 0, 1, 2, ... operations.
    pub moments: Vec<Moment>,
    /// Paths that begin with one of these are judged; all, and the root, when there is none.
    pub prefixes: Vec<String>,
    /// How many records the thread had appended to the shared log at each moment.
    pub records: Vec<usize>,
    /// What each operation did that led to a moment; the first of these led to the second of those.
    changes: Vec<Change>,
    /// The files that were synced, and the number of operations up to the last that changed them.
    synced_files: Vec<(Id, usize)>,
}

/// What a thread's syncs have made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synced {
    /// Number of operations, all of them but for what they wrote over other data.
    pub operations: usize,
    /// Number of operations with all of their data.
    pub whole: usize,
    /// Number of files beside, in the order of their syncs.
    pub files: usize,
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
    /// Number of operations that must be there with all of their data.
    pub whole: usize,
    /// Number of synced files whose data must be there.
    pub files: usize,
}

/// Why a tree is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// Names or inodes.
    Tree(String),
    /// All is as it should be but for the bytes of a file.
    Data(String),
}

impl Wrong {
    /// What differs.
    pub fn text(&self) -> &str {
        match self {
            Wrong::Tree(text) | Wrong::Data(text) => text,
        }
    }
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
            records: vec![0],
            changes: Vec::new(),
            synced_files: Vec::new(),
        }
    }

    /// Takes down what came of one more operation.
    pub fn push(&mut self, model: &Model, change: Change) {
        self.moments.push(Moment::new(model));
        self.changes.push(change);
        self.records.push(self.appended());
    }

    /// Takes down that a record was appended to the shared log, which is not in the model.
    pub fn push_record(&mut self, model: &Model) {
        self.moments.push(Moment::new(model));
        self.changes.push(Change::Other);
        self.records.push(self.appended() + 1);
    }

    /// Records of the thread in the shared log.
    pub fn appended(&self) -> usize {
        self.records.last().copied().unwrap_or(0)
    }

    /// What is durable once a sync after all operations has succeeded: all, or the last operation
    /// that changed what is synced, and what that one needs.
    pub fn sync(&mut self, persist: &Persist) -> Synced {
        let last = self.moments.len() - 1;
        let operations = match persist {
            Persist::All => last,
            Persist::One(path) | Persist::Data(path) if path == SHARED_LOG => self
                .records
                .partition_point(|count| *count < self.appended()),
            Persist::One(path) | Persist::Data(path) => {
                match find(&self.moments[last].model, path) {
                    Some(id) => self.sync_one(id),
                    None => 0,
                }
            }
        };
        Synced {
            operations,
            whole: match persist {
                Persist::All => last,
                Persist::One(_) | Persist::Data(_) => 0,
            },
            files: self.synced_files.len(),
        }
    }

    fn sync_one(&mut self, id: Id) -> usize {
        let last_change = |is_same: fn(&Moment, &Moment, Id) -> bool| {
            let is_change = |at: &usize| !is_same(&self.moments[at - 1], &self.moments[*at], id);
            (1..self.moments.len()).rev().find(is_change).unwrap_or(0)
        };
        let (changed, written) = (last_change(is_same_but_for_bytes), last_change(is_same));
        self.synced_files.push((id, written));
        changed
    }

    /// The operations whose bytes a file may have, where the tree is that of moment `at`.
    fn versions(&self, id: Id, at: usize, window: Window, last: usize) -> Versions {
        let of_file = |(file, after): &(Id, usize)| (*file == id).then_some(*after);
        let synced = self.synced_files[..window.files].iter();
        let synced = synced.filter_map(of_file).fold(window.whole, usize::max);
        Versions {
            synced,
            at: at.max(synced),
            last,
        }
    }

    /// The first moment whose bytes a sector may have: from there on it was only written over.
    fn first_of_sector(&self, id: Id, start: usize, length: usize, versions: Versions) -> usize {
        let bytes = |moment: usize| {
            let node = self.moments[moment].model.node(id)?;
            let data = &node.data;
            let end = data.len().min(start + length);
            let mut sector = data.get(start..end).unwrap_or_default().to_vec();
            sector.resize(length, 0);
            Some(sector)
        };
        let mut first = versions.at;
        while first > versions.synced
            && (self.changes[first - 1] == Change::Overwrite(id)
                || bytes(first - 1) == bytes(first))
            && self.moments[first - 1].model.node(id).is_some()
        {
            first -= 1;
        }
        first
    }

    fn is_mine(&self, path: &str) -> bool {
        self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| path.starts_with(prefix))
    }

    /// Whether a journal may leave this tree; else what differs from the moment that comes closest.
    pub fn judge(&self, tree: &Tree, window: Window) -> Result<(), Wrong> {
        let last = window.begun.min(self.moments.len() - 1);
        let (mut reasons, mut is_tree_right) = (Vec::new(), false);
        for at in window.synced..=last {
            match self.compare(tree, at, window, last) {
                Ok(()) => return Ok(()),
                Err(wrong) => {
                    is_tree_right |= matches!(wrong, Wrong::Data(_));
                    reasons.push(format!("after {at} operations: {}", wrong.text()));
                }
            }
        }
        let text = format!(
            "no moment from {} to {last} fits:\n    {}",
            window.synced,
            reasons.join("\n    ")
        );
        Err(match is_tree_right {
            true => Wrong::Data(text),
            false => Wrong::Tree(text),
        })
    }

    fn compare(&self, tree: &Tree, at: usize, window: Window, last: usize) -> Result<(), Wrong> {
        let moment = &self.moments[at];
        let expected = || moment.names.keys().filter(|path| self.is_mine(path));
        if let Some(path) = expected().find(|path| !tree.names.contains_key(*path)) {
            return Err(Wrong::Tree(format!("{path:?} is missing")));
        }
        let mut found = tree.names.keys().filter(|path| self.is_mine(path));
        if let Some(path) = found.find(|path| !moment.names.contains_key(*path)) {
            return Err(Wrong::Tree(format!("{path:?} should not be there")));
        }
        let mut wrong_data = None;
        let mut numbers: BTreeMap<Id, Ino> = BTreeMap::new();
        for path in expected() {
            let (id, ino) = (moment.names[path], tree.names[path]);
            let known = numbers.insert(id, ino);
            if known.is_some_and(|known| known != ino) {
                let text = format!("{path:?} is no link of the same file any more");
                return Err(Wrong::Tree(text));
            }
            if known.is_some() {
                continue;
            }
            let named = |difference: String| format!("{path:?}: {difference}");
            let found = &tree.inodes[&ino];
            if let Some(node) = moment.model.node(id) {
                compare_node(node, found).map_err(|difference| Wrong::Tree(named(difference)))?;
            }
            let versions = self.versions(id, at, window, last);
            let data = self.compare_data(id, found, versions, Torn::No);
            if let Err(difference) = data {
                wrong_data.get_or_insert(Wrong::Data(named(difference)));
            }
        }
        wrong_data.map_or(Ok(()), Err)
    }

    /// Each sector of the content is as it was at one of the moments.
    fn compare_data(
        &self,
        id: Id,
        found: &Found,
        allowed: Versions,
        torn: Torn,
    ) -> Result<(), String> {
        if found.attributes.kind != FileKind::Regular {
            return Ok(());
        }
        let from = |first: usize| -> Vec<&[u8]> {
            (first..=allowed.last)
                .filter_map(|at| self.moments[at].model.node(id))
                .map(|node| &node.data[..])
                .collect()
        };
        let usual = from(allowed.at);
        let mut older = self.changes[allowed.synced..allowed.at].iter();
        let may_be_older = older.any(|change| *change == Change::Overwrite(id));
        for (number, sector) in found.data.chunks(SECTOR).enumerate() {
            let start = number * SECTOR;
            let versions = match may_be_older {
                true => from(self.first_of_sector(id, start, sector.len(), allowed)),
                false => usual.clone(),
            };
            let is_one = versions.iter().any(|data| {
                let there = &data[start.min(data.len())..(start + sector.len()).min(data.len())];
                let (same, beyond) = sector.split_at(there.len());
                same == there && beyond.iter().all(|byte| *byte == 0)
            });
            let is_zeros = sector.iter().all(|byte| *byte == 0);
            let changes = || versions.iter().any(|data| *data != versions[0]);
            let is_unmapped = torn == Torn::Perhaps && is_zeros && changes();
            if !is_one && !is_unmapped {
                let what = if is_poison(sector) {
                    "bytes that nobody wrote"
                } else if is_zeros {
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
    pub fn judge_repaired(&self, tree: &Tree, window: Window) -> Result<(), Wrong> {
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
                return Err(Wrong::Tree(format!("{path:?} was synced and is missing")));
            };
            let nodes = || moments.iter().filter_map(|moment| moment.model.node(*id));
            let found = &tree.inodes[ino];
            let size = match is_derived_size(nodes(), found) {
                true => Size::Derived,
                false => Size::Exact,
            };
            let fits: Vec<Result<(), String>> = nodes()
                .map(|node| compare_repaired(node, found, size))
                .collect();
            if !fits.iter().any(Result::is_ok) {
                return Err(Wrong::Tree(format!("{path:?}: {fits:?}")));
            }
            let versions = self.versions(*id, window.synced, window, last);
            self.compare_data(*id, found, versions, Torn::Perhaps)
                .map_err(|difference| Wrong::Data(format!("{path:?}: {difference}")))?;
        }
        Ok(())
    }
}

/// Of which moments a file may have its bytes.
#[derive(Clone, Copy)]
struct Versions {
    /// As far as its data was synced.
    synced: usize,
    /// As far as its inode must be there; not before what was synced.
    at: usize,
    last: usize,
}

/// The same inode under the same names.
fn is_same(before: &Moment, after: &Moment, id: Id) -> bool {
    let node = |moment: &Moment| moment.model.node(id).map(|node| node.data.clone());
    is_same_but_for_bytes(before, after, id) && node(before) == node(after)
}

/// As [`is_same`]; but a file of the same size may have other bytes.
fn is_same_but_for_bytes(before: &Moment, after: &Moment, id: Id) -> bool {
    let own = |moment: &Moment| {
        let mut node = moment.model.node(id).cloned();
        if let Some(node) = &mut node {
            node.references = 0;
            if node.kind == FileKind::Regular {
                node.data.fill(0);
            }
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
    compare_repaired(node, found, Size::Exact)?;
    differ("the link count", node.links, attributes.link_count)?;
    differ("the extended attributes", &node.xattrs, &found.xattrs)
}

/// Whether of the blocks that map a file that changed between the moments some may be missing, so
/// that it has holes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Torn {
    Perhaps,
    No,
}

/// What a file's size is compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    /// That of the moment.
    Exact,
    /// None: e2fsck has taken it from the blocks.
    Derived,
}

/// The blocks of images without a journal (`base`).
const BLOCK_BYTES: u64 = 1024;

/// True when a file whose size changed between the moments ends with a block, not before the
/// smallest of them nor after the largest: indirect blocks reach the disk before or after their
/// inode.
fn is_derived_size<'a>(nodes: impl Iterator<Item = &'a Node> + Clone, found: &Found) -> bool {
    let sizes = nodes.map(|node| node.data.len() as u64);
    let (Some(least), Some(most)) = (sizes.clone().min(), sizes.max()) else {
        return false;
    };
    let size = found.attributes.size_bytes;
    found.attributes.kind == FileKind::Regular
        && (least + 1..=most.next_multiple_of(BLOCK_BYTES)).contains(&size)
        && least != most
        && size.is_multiple_of(BLOCK_BYTES)
}

/// All but what e2fsck may have put right.
fn compare_repaired(node: &Node, found: &Found, size: Size) -> Result<(), String> {
    let attributes = &found.attributes;
    differ("the kind", node.kind, attributes.kind)?;
    differ("the mode", node.permissions, attributes.permissions)?;
    let owner = (attributes.uid, attributes.gid);
    differ("the owner", (node.uid, node.gid), owner)?;
    if node.kind != FileKind::Directory && size == Size::Exact {
        differ("the size", node.data.len() as u64, attributes.size_bytes)?;
    }
    if node.kind == FileKind::Symlink {
        differ("the target", &node.data, &found.data)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use finefs_namespace::RenameMode;

    use super::super::base::{Base, Opened, open, profile};
    use super::super::step::Step;
    use super::super::workload::setup;
    use super::*;

    /// A base, opened, with the history of two more operations of which the namespace did `done`.
    fn after(done: usize) -> (History, Opened) {
        let base = Base::new(profile("ext4-nojournal").unwrap(), &setup()).unwrap();
        let device = finefs_sim::ImageDevice::new(base.image.clone());
        let opened = open(base.profile.format, std::sync::Arc::new(device)).unwrap();
        let mut model = base.model.clone();
        let mut history = History::new(&model, Vec::new());
        let steps = [
            Step::Rename {
                from: "A/foo".into(),
                to: "B/bar".into(),
                mode: RenameMode::Replace,
            },
            Step::Append {
                at: "B/bar".into(),
                length: 1000,
                fill: 1,
            },
        ];
        for (number, step) in steps.iter().enumerate() {
            step.on_model(&mut model).unwrap();
            history.push(&model, Change::Other);
            if number < done {
                step.on_namespace(&opened.ns).unwrap();
            }
        }
        (history, opened)
    }

    fn window(synced: usize, begun: usize) -> Window {
        Window {
            synced,
            begun,
            whole: synced,
            files: 0,
        }
    }

    /// What the oracle says after `change` was made behind the model's back.
    fn changed(change: Step) -> Wrong {
        let (history, opened) = after(1);
        change.on_namespace(&opened.ns).unwrap();
        let tree = Tree::read(&opened).unwrap();
        let repaired = history.judge_repaired(&tree, window(1, 1));
        // A repair may leave a name too many.
        assert!(repaired.is_err() || matches!(change, Step::Link { .. }));
        history.judge(&tree, window(0, 2)).unwrap_err()
    }

    #[test]
    fn only_the_moments_of_the_window_are_right() {
        for done in 0..=2 {
            let (history, opened) = after(done);
            let tree = Tree::read(&opened).unwrap();
            for synced in 0..=2 {
                for begun in synced..=2 {
                    let verdict = history.judge(&tree, window(synced, begun));
                    let is_in = (synced..=begun).contains(&done);
                    assert_eq!(verdict.is_ok(), is_in, "{done} in {synced}..={begun}");
                }
            }
            assert_eq!(history.judge_repaired(&tree, window(done, done)), Ok(()));
        }
    }

    #[test]
    fn half_a_rename_is_wrong() {
        let wrong = changed(Step::Link {
            from: "B/bar".into(),
            to: "A/foo".into(),
        });
        assert!(matches!(wrong, Wrong::Tree(_)), "{wrong:?}");
        let wrong = changed(Step::Unlink("B/bar".into()));
        assert!(wrong.text().contains("missing"), "{wrong:?}");
    }

    #[test]
    fn foreign_bytes_and_changed_attributes_are_wrong() {
        let wrong = changed(Step::Write {
            at: "B/bar".into(),
            offset: 600,
            length: 10,
            fill: 250,
        });
        assert!(matches!(wrong, Wrong::Data(_)), "{wrong:?}");
        let wrong = changed(Step::Chmod {
            at: "B/bar".into(),
            permissions: 0o640,
        });
        assert!(wrong.text().contains("mode"), "{wrong:?}");
    }

    #[test]
    fn a_sync_of_one_file_stands_for_what_changed_it() {
        let (mut history, _) = after(0);
        let mut by = |path: &str| history.sync(&Persist::One(path.into())).operations;
        assert_eq!(by("B/bar"), 2);
        assert_eq!((by("A"), by("B"), by("A/C")), (1, 1, 0));
        assert_eq!(history.sync(&Persist::All).operations, 2);
    }

    #[test]
    fn a_sync_of_an_overwrite_stands_for_its_bytes_alone() {
        let (mut history, opened) = after(2);
        let before = Tree::read(&opened).unwrap();
        let overwrite = Step::Write {
            at: "B/bar".into(),
            offset: 0,
            length: 700,
            fill: 2,
        };
        let mut model = history.moments[2].model.clone();
        let change = overwrite.change(&opened.ns, &model);
        assert!(matches!(change, Change::Overwrite(_)));
        overwrite.on_model(&mut model).unwrap();
        history.push(&model, change);
        let synced = history.sync(&Persist::Data("B/bar".into()));
        assert_eq!((synced.operations, synced.whole, synced.files), (2, 0, 1));
        let window = |files| Window {
            synced: 1,
            begun: 3,
            whole: 1,
            files,
        };
        assert_eq!(history.judge(&before, window(0)), Ok(()));
        let wrong = history.judge(&before, window(1)).unwrap_err();
        assert!(matches!(wrong, Wrong::Data(_)), "{wrong:?}");
        overwrite.on_namespace(&opened.ns).unwrap();
        let tree = Tree::read(&opened).unwrap();
        assert_eq!(history.judge(&tree, window(1)), Ok(()));
    }
    /// What comes after an overwrite may be there without it, until everything is synced.
    #[test]
    fn an_overwrite_has_no_order_and_an_append_has() {
        let (mut history, opened) = after(2);
        let mut model = history.moments[2].model.clone();
        let steps = [
            Step::Write {
                at: "B/bar".into(),
                offset: 0,
                length: 700,
                fill: 2,
            },
            Step::Append {
                at: "B/bar".into(),
                length: 1000,
                fill: 3,
            },
        ];
        for step in &steps {
            let change = step.change(&opened.ns, &model);
            step.on_model(&mut model).unwrap();
            history.push(&model, change);
        }
        let window = |synced, whole| Window {
            synced,
            begun: 4,
            whole,
            files: 0,
        };
        // The append without the overwrite.
        steps[1].on_namespace(&opened.ns).unwrap();
        let tree = Tree::read(&opened).unwrap();
        assert_eq!(history.judge(&tree, window(4, 2)), Ok(()));
        assert!(history.judge(&tree, window(4, 3)).is_err());
        // Zeros where it appended.
        let zeros = Step::Allocate {
            at: "B/bar".into(),
            mode: finefs_namespace::AllocateMode::ZeroRange,
            offset: 1100,
            length: 900,
        };
        zeros.on_namespace(&opened.ns).unwrap();
        let tree = Tree::read(&opened).unwrap();
        assert!(history.judge(&tree, window(4, 2)).is_err());
    }

    #[test]
    fn what_fills_a_hole_is_no_overwrite() {
        let (history, opened) = after(2);
        let model = &history.moments[2].model;
        let write = |offset, length| Step::Write {
            at: "B/bar".into(),
            offset,
            length,
            fill: 2,
        };
        Step::Truncate {
            at: "B/bar".into(),
            size: 90_000,
        }
        .on_namespace(&opened.ns)
        .unwrap();
        let change = |step: Step| step.change(&opened.ns, model);
        assert!(matches!(change(write(0, 10)), Change::Overwrite(_)));
        assert_eq!(change(write(50_000, 10)), Change::Other);
        assert_eq!(change(write(89_999, 10)), Change::Other);
    }
}
