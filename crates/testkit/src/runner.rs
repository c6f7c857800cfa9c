//! The differential runner: the same operations on a namespace and on the model, compared.
//!
//! Each result is compared (errno too), and now and then everything: attributes, contents, listings,
//! extended attributes of every inode. A failure is shrunk: operations are taken out as long as it
//! still fails; then the seed and what is left are printed.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use finefs_namespace::{Attributes, Caller, Error, FileKind, Ino, Namespace, SetAttributes};

use crate::model::{self, Id, Model, New, Node};
use crate::operation::{Operation, SLOTS, Slot, callers, operations, pattern};

/// Runs of a failing list of operations that shrinking may take.
const SHRINK_RUNS: usize = 400;

/// What is compared with the model.
pub trait Subject {
    /// The namespace as it is now.
    fn namespace(&self) -> &Namespace;

    /// Shuts the namespace down, checks what it left behind, and opens it again; false where
    /// nothing would be left.
    fn reopen(&mut self) -> Result<bool, String>;
}

/// What a run gives: the first difference.
type Outcome<T = ()> = Result<T, String>;

/// Runs the operations of a seed on what `make` makes, and panics with the seed and a short list of
/// operations when the namespace and the model differ.
pub fn check_seed(seed: u64, count: usize, make: &dyn Fn() -> Box<dyn Subject>) {
    let list = operations(seed, count);
    let Err(first) = run_caught(&list, make) else {
        return;
    };
    let (list, difference) = shrink(list, first.clone(), make);
    let mut text = String::new();
    for operation in &list {
        text += &format!("  {operation:?}\n");
    }
    panic!("seed {seed} of {count} operations: {first}\nshrunk to {difference}\n{text}");
}

fn run_caught(list: &[Operation], make: &dyn Fn() -> Box<dyn Subject>) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| run(list, &mut *make()))).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or(panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("?")))
    })
}

fn shrink(
    mut list: Vec<Operation>,
    mut difference: String,
    make: &dyn Fn() -> Box<dyn Subject>,
) -> (Vec<Operation>, String) {
    let mut runs = 0;
    let mut size = list.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < list.len() && runs < SHRINK_RUNS {
            let mut shorter = list.clone();
            shorter.drain(at..(at + size).min(list.len()));
            runs += 1;
            match run_caught(&shorter, make) {
                Err(other) => (list, difference) = (shorter, other),
                Ok(()) => at += size,
            }
        }
        size /= 2;
    }
    (list, difference)
}

/// Runs a list of operations, and compares everything at the end.
pub fn run(list: &[Operation], subject: &mut dyn Subject) -> Outcome {
    let mut run = Run::new(subject)?;
    for (step, operation) in list.iter().enumerate() {
        run.step(operation)
            .map_err(|difference| format!("step {step}, {operation:?}: {difference}"))?;
    }
    run.compare_all()
        .map_err(|difference| format!("at the end: {difference}"))?;
    run.reopen(true)
        .map_err(|difference| format!("reopened at the end: {difference}"))
}

#[derive(Clone, Copy)]
struct Held {
    id: Id,
    ino: Ino,
}

struct Run<'a> {
    subject: &'a mut dyn Subject,
    model: Model,
    callers: Vec<Caller>,
    slots: [Option<Held>; SLOTS],
    /// The number of each inode of the model in the namespace.
    numbers: BTreeMap<Id, Ino>,
}

/// Tells whether model and namespace agree, and gives both values when both succeeded.
fn agree<T, U>(
    expected: model::Result<T>,
    got: finefs_namespace::Result<U>,
) -> Outcome<Option<(T, U)>> {
    match (expected, got) {
        (Ok(expected), Ok(got)) => Ok(Some((expected, got))),
        (Err(refused), Err(error)) if refused.contains(&error) => Ok(None),
        (Ok(_), Err(error)) => Err(format!("must succeed, gives {error:?}")),
        (Err(refused), Ok(_)) => Err(format!("must fail with one of {refused:?}, succeeds")),
        (Err(refused), Err(error)) => Err(format!("must fail with one of {refused:?}: {error:?}")),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, got: T) -> Outcome {
    if expected == got {
        Ok(())
    } else {
        Err(format!("{what} must be {expected:?}, is {got:?}"))
    }
}

impl<'a> Run<'a> {
    fn new(subject: &'a mut dyn Subject) -> Outcome<Run<'a>> {
        let namespace = subject.namespace();
        let root = namespace.root();
        let attributes = namespace
            .attributes(root)
            .map_err(|error| error.to_string())?;
        let mut model = Model::new(
            namespace.geometry(),
            attributes.permissions,
            attributes.uid,
            attributes.gid,
        );
        let mut numbers = BTreeMap::from([(Model::ROOT, root)]);
        // mkfs makes lost+found.
        for (name, (ino, _)) in list(namespace, root, 100)? {
            if name != b"." && name != b".." {
                let found = namespace
                    .attributes(ino)
                    .map_err(|error| error.to_string())?;
                numbers.insert(model.add_directory(&name, found.permissions), ino);
            }
        }
        let mut slots = [None; SLOTS];
        slots[0] = Some(Held {
            id: Model::ROOT,
            ino: root,
        });
        Ok(Run {
            subject,
            model,
            callers: callers(),
            slots,
            numbers,
        })
    }

    fn namespace(&self) -> &Namespace {
        self.subject.namespace()
    }

    /// Gives back what a slot holds.
    fn empty(&mut self, slot: Slot) -> Outcome {
        if slot == 0 {
            return Ok(());
        }
        let Some(held) = self.slots[slot].take() else {
            return Ok(());
        };
        self.model.forget(held.id, 1);
        self.namespace().forget(held.ino, 1);
        if self.model.node(held.id).is_none() {
            self.numbers.remove(&held.id);
            match self.namespace().attributes(held.ino) {
                Err(Error::Stale) => {}
                other => return Err(format!("a freed inode has attributes: {other:?}")),
            }
        }
        Ok(())
    }

    /// Puts a reference into a slot, and compares what it refers to.
    fn fill(&mut self, slot: Slot, id: Id, attributes: &Attributes) -> Outcome {
        let ino = attributes.ino;
        let known = *self.numbers.entry(id).or_insert(ino);
        same("the inode number", known, ino)?;
        compare_attributes(self.existing(id), attributes)?;
        self.empty(slot)?;
        if slot == 0 {
            self.model.forget(id, 1);
            self.namespace().forget(ino, 1);
        } else {
            self.slots[slot] = Some(Held { id, ino });
        }
        Ok(())
    }

    fn existing(&self, id: Id) -> &Node {
        self.model
            .node(id)
            .expect("slots and entries name what exists")
    }

    fn step(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Create { .. }
            | Operation::CreateUnnamed { .. }
            | Operation::Link { .. }
            | Operation::RemoveFile { .. }
            | Operation::RemoveDirectory { .. }
            | Operation::Rename { .. }
            | Operation::Lookup { .. } => self.step_names(operation),
            Operation::Forget { slot } => self.empty(*slot),
            Operation::Reference { slot, out } => {
                let Some(held) = self.slots[*slot] else {
                    return Ok(());
                };
                let got = self.namespace().reference(held.ino);
                match agree(self.model.reference(held.id), got)? {
                    Some(((), attributes)) => self.fill(*out, held.id, &attributes),
                    None => Ok(()),
                }
            }
            Operation::Sync => self.namespace().sync().map_err(|error| error.to_string()),
            Operation::Compare => self.compare_all(),
            Operation::Reopen { compares } => self.reopen(*compares),
            Operation::SetXattr { slot, .. }
            | Operation::RemoveXattr { slot, .. }
            | Operation::Xattr { slot, .. }
            | Operation::ListXattrs { slot, .. } => match self.slots[*slot] {
                Some(held) => self.step_xattrs(operation, held),
                None => Ok(()),
            },
            Operation::Attributes { slot }
            | Operation::Access { slot, .. }
            | Operation::SetPermissions { slot, .. }
            | Operation::SetOwner { slot, .. }
            | Operation::Truncate { slot, .. }
            | Operation::ClearPrivileges { slot }
            | Operation::SyncFile { slot } => match self.slots[*slot] {
                Some(held) => self.step_attributes(operation, held),
                None => Ok(()),
            },
            Operation::ReadSymlink { slot }
            | Operation::Read { slot, .. }
            | Operation::Write { slot, .. }
            | Operation::Append { slot, .. }
            | Operation::Allocate { slot, .. }
            | Operation::Seek { slot, .. }
            | Operation::ReadDirectory { slot, .. } => match self.slots[*slot] {
                Some(held) => self.step_data(operation, held),
                None => Ok(()),
            },
        }
    }

    fn step_names(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Create {
                who,
                at: (dir, name),
                kind,
                permissions,
                device,
                target_length,
                out,
            } => {
                let Some(dir) = self.slots[*dir] else {
                    return Ok(());
                };
                let caller = &self.callers[*who];
                let target = match kind {
                    FileKind::Symlink => pattern(*target_length, b't'),
                    _ => Vec::new(),
                };
                let ns = self.subject.namespace();
                let got = match kind {
                    FileKind::Regular => ns.create_file(caller, dir.ino, name, *permissions),
                    FileKind::Directory => ns.make_directory(caller, dir.ino, name, *permissions),
                    FileKind::Symlink => ns.make_symlink(caller, dir.ino, name, &target),
                    _ => ns.make_node(caller, dir.ino, name, *kind, *permissions, *device),
                };
                let new = New {
                    kind: *kind,
                    permissions: if *kind == FileKind::Symlink {
                        0o777
                    } else {
                        *permissions
                    },
                    device: *device,
                    target: &target,
                };
                match agree(self.model.create(caller, dir.id, name, &new), got)? {
                    Some((id, attributes)) => self.fill(*out, id, &attributes),
                    None => Ok(()),
                }
            }
            Operation::CreateUnnamed {
                who,
                dir,
                permissions,
                out,
            } => {
                let Some(dir) = self.slots[*dir] else {
                    return Ok(());
                };
                let caller = &self.callers[*who];
                let got = self
                    .subject
                    .namespace()
                    .create_unnamed(caller, dir.ino, *permissions);
                let expected = self.model.create_unnamed(caller, dir.id, *permissions);
                match agree(expected, got)? {
                    Some((id, attributes)) => self.fill(*out, id, &attributes),
                    None => Ok(()),
                }
            }
            Operation::Link {
                who,
                inode,
                at: (dir, name),
            } => {
                let (Some(inode), Some(dir)) = (self.slots[*inode], self.slots[*dir]) else {
                    return Ok(());
                };
                let caller = &self.callers[*who];
                let ns = self.subject.namespace();
                let got = ns.make_link(caller, inode.ino, dir.ino, name);
                let expected = self.model.link(caller, inode.id, dir.id, name);
                let Some(((), attributes)) = agree(expected, got)? else {
                    return Ok(());
                };
                compare_attributes(self.existing(inode.id), &attributes)?;
                self.model.forget(inode.id, 1);
                self.namespace().forget(inode.ino, 1);
                Ok(())
            }
            Operation::RemoveFile {
                who,
                at: (dir, name),
            } => {
                let Some(dir) = self.slots[*dir] else {
                    return Ok(());
                };
                let caller = &self.callers[*who];
                let got = self.subject.namespace().remove_file(caller, dir.ino, name);
                agree(self.model.remove_file(caller, dir.id, name), got).map(|_| ())
            }
            Operation::RemoveDirectory {
                who,
                at: (dir, name),
            } => {
                let Some(dir) = self.slots[*dir] else {
                    return Ok(());
                };
                let caller = &self.callers[*who];
                let ns = self.subject.namespace();
                let got = ns.remove_directory(caller, dir.ino, name);
                agree(self.model.remove_directory(caller, dir.id, name), got).map(|_| ())
            }
            Operation::Rename {
                who,
                from: (from, from_name),
                to: (to, to_name),
                mode,
            } => {
                let (Some(from), Some(to)) = (self.slots[*from], self.slots[*to]) else {
                    return Ok(());
                };
                let caller = &self.callers[*who];
                let ns = self.subject.namespace();
                let got = ns.rename(caller, (from.ino, from_name), (to.ino, to_name), *mode);
                let expected =
                    self.model
                        .rename(caller, (from.id, from_name), (to.id, to_name), *mode);
                agree(expected, got).map(|_| ())
            }
            Operation::Lookup {
                who,
                at: (dir, name),
                out,
            } => {
                let Some(dir) = self.slots[*dir] else {
                    return Ok(());
                };
                if name == b".." && self.existing(dir.id).links == 0 {
                    // The parent of a removed directory may be gone, and its number in use again.
                    return Ok(());
                }
                let caller = &self.callers[*who];
                let got = self.subject.namespace().lookup(caller, dir.ino, name);
                match agree(self.model.lookup(caller, dir.id, name), got)? {
                    Some((id, attributes)) => self.fill(*out, id, &attributes),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn step_attributes(&mut self, operation: &Operation, held: Held) -> Outcome {
        let ns = self.subject.namespace();
        let (who, set) = match operation {
            Operation::Attributes { .. } => {
                let attributes = ns.attributes(held.ino).map_err(|error| error.to_string())?;
                return compare_attributes(self.existing(held.id), &attributes);
            }
            Operation::Access { who, mask, .. } => {
                let caller = &self.callers[*who];
                let got = ns.access(caller, held.ino, *mask);
                return agree(self.model.access(caller, held.id, *mask), got).map(|_| ());
            }
            Operation::ClearPrivileges { .. } => {
                let got = ns.clear_privileges(held.ino);
                return agree(self.model.clear_privileges(held.id), got).map(|_| ());
            }
            Operation::SyncFile { .. } => {
                let synced = ns.sync_file(held.ino, false);
                return synced.map_err(|error| error.to_string());
            }
            Operation::SetPermissions {
                who, permissions, ..
            } => (
                who,
                SetAttributes {
                    permissions: Some(*permissions),
                    ..SetAttributes::default()
                },
            ),
            Operation::SetOwner { who, uid, gid, .. } => (
                who,
                SetAttributes {
                    uid: *uid,
                    gid: *gid,
                    ..SetAttributes::default()
                },
            ),
            Operation::Truncate {
                who, size_bytes, ..
            } => (
                who,
                SetAttributes {
                    size_bytes: Some(*size_bytes),
                    ..SetAttributes::default()
                },
            ),
            _ => return Ok(()),
        };
        let caller = &self.callers[*who];
        let got = ns.set_attributes(caller, held.ino, &set);
        match agree(self.model.set_attributes(caller, held.id, &set), got)? {
            Some(((), attributes)) => compare_attributes(self.existing(held.id), &attributes),
            None => Ok(()),
        }
    }

    fn step_data(&mut self, operation: &Operation, held: Held) -> Outcome {
        let ns = self.subject.namespace();
        match operation {
            Operation::ReadSymlink { .. } => {
                let got = ns.read_symlink(held.ino);
                match agree(self.model.read_symlink(held.id), got)? {
                    Some((expected, got)) => same("the target", expected, got),
                    None => Ok(()),
                }
            }
            Operation::Read {
                offset_bytes,
                length,
                ..
            } => {
                let mut buffer = vec![0xa5; *length];
                let got = ns.read(held.ino, *offset_bytes, &mut buffer);
                let expected = self.model.read(held.id, *offset_bytes, *length);
                match agree(expected, got)? {
                    Some((expected, length)) => {
                        compare_bytes(*offset_bytes, &expected, &buffer[..length])
                    }
                    None => Ok(()),
                }
            }
            Operation::Write {
                offset_bytes,
                length,
                fill,
                ..
            } => {
                let data = pattern(*length, *fill);
                let got = ns.write(held.ino, *offset_bytes, &data);
                let expected = self.model.write(held.id, *offset_bytes, &data);
                match agree(expected, got)? {
                    Some((expected, got)) => same("the bytes written", expected, got),
                    None => Ok(()),
                }
            }
            Operation::Append { length, fill, .. } => {
                let data = pattern(*length, *fill);
                let got = ns.append(held.ino, &data);
                match agree(self.model.append(held.id, &data), got)? {
                    Some((expected, got)) => same("the offset", expected, got),
                    None => Ok(()),
                }
            }
            Operation::Allocate {
                mode,
                offset_bytes,
                length_bytes,
                ..
            } => {
                let got = ns.allocate(held.ino, *mode, *offset_bytes, *length_bytes);
                let expected = self
                    .model
                    .allocate(held.id, *mode, *offset_bytes, *length_bytes);
                agree(expected, got).map(|_| ())
            }
            Operation::Seek { offset_bytes, .. } => self.seek(held, *offset_bytes),
            Operation::ReadDirectory { at_a_time, .. } => {
                if self.existing(held.id).kind == FileKind::Directory {
                    return self.compare_entries(held.id, held.ino, *at_a_time);
                }
                match ns.read_directory(held.ino, 0, &mut |_| true) {
                    Err(Error::NotADirectory) => Ok(()),
                    other => Err(format!("must fail with ENOTDIR, gives {other:?}")),
                }
            }
            _ => Ok(()),
        }
    }

    /// What a hole is, is up to the namespace; but holes are zeros, and what is passed over in the
    /// search for data is a hole.
    fn seek(&self, held: Held, offset_bytes: u64) -> Outcome {
        let ns = self.namespace();
        let node = self.existing(held.id);
        let data = ns.seek_data(held.ino, offset_bytes);
        if node.kind != FileKind::Regular {
            return match data {
                Err(Error::IsADirectory | Error::Invalid) => Ok(()),
                other => Err(format!("not a file, but seek_data gives {other:?}")),
            };
        }
        let size_bytes = node.data.len() as u64;
        let zeros = |from: u64, to: u64| {
            let hole = &node.data[from as usize..to as usize];
            match hole.iter().all(|byte| *byte == 0) {
                true => Ok(()),
                false => Err(format!("the hole {from}..{to} holds data")),
            }
        };
        let hole = ns.seek_hole(held.ino, offset_bytes);
        if offset_bytes >= size_bytes {
            same("seek_data", Err(Error::NoSuchOffset), data)?;
            return same("seek_hole", Err(Error::NoSuchOffset), hole);
        }
        match data {
            Ok(data) if (offset_bytes..size_bytes).contains(&data) => zeros(offset_bytes, data)?,
            Err(Error::NoSuchOffset) => zeros(offset_bytes, size_bytes)?,
            other => return Err(format!("seek_data gives {other:?}")),
        }
        match hole {
            Ok(hole) if (offset_bytes..=size_bytes).contains(&hole) => {
                let block_bytes = u64::from(ns.geometry().block_size_bytes);
                let end = (hole + 1).next_multiple_of(block_bytes).min(size_bytes);
                zeros(hole, end)
            }
            other => Err(format!("seek_hole gives {other:?}")),
        }
    }

    fn step_xattrs(&mut self, operation: &Operation, held: Held) -> Outcome {
        let ns = self.subject.namespace();
        match operation {
            Operation::SetXattr {
                who,
                name,
                length,
                fill,
                mode,
                ..
            } => {
                let caller = &self.callers[*who];
                let value = pattern(*length, *fill);
                let got = ns.set_xattr(caller, held.ino, name, &value, *mode);
                // How much fits is up to the store.
                if matches!(got, Err(Error::NoSpace)) {
                    return Ok(());
                }
                let expected = self
                    .model
                    .set_xattr(caller, held.id, name, Some(&value), *mode);
                agree(expected, got).map(|_| ())
            }
            Operation::RemoveXattr { who, name, .. } => {
                let caller = &self.callers[*who];
                let got = ns.remove_xattr(caller, held.ino, name);
                let mode = Default::default();
                let expected = self.model.set_xattr(caller, held.id, name, None, mode);
                agree(expected, got).map(|_| ())
            }
            Operation::Xattr { who, name, .. } => {
                let caller = &self.callers[*who];
                let got = ns.xattr(caller, held.ino, name);
                match agree(self.model.xattr(caller, held.id, name), got)? {
                    Some((expected, got)) => same("the value", expected, got),
                    None => Ok(()),
                }
            }
            Operation::ListXattrs { who, .. } => {
                let caller = &self.callers[*who];
                let got = ns.list_xattrs(caller, held.ino);
                match agree(self.model.list_xattrs(caller, held.id), got)? {
                    Some((expected, mut got)) => {
                        got.sort();
                        same("the attributes' names", expected, got)
                    }
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn reopen(&mut self, compares: bool) -> Outcome {
        if !self.subject.reopen()? {
            return Ok(());
        }
        self.model.forget_all();
        self.slots[1..].fill(None);
        if compares { self.compare_all() } else { Ok(()) }
    }

    /// Compares every inode.
    fn compare_all(&self) -> Outcome {
        for (id, node) in self.model.nodes() {
            let ino = self.numbers[&id];
            self.compare_inode(id, node, ino)
                .map_err(|difference| format!("inode {ino}: {difference}"))?;
        }
        Ok(())
    }

    fn compare_inode(&self, id: Id, node: &Node, ino: Ino) -> Outcome {
        let ns = self.namespace();
        let text = |error: Error| error.to_string();
        compare_attributes(node, &ns.attributes(ino).map_err(text)?)?;
        match node.kind {
            FileKind::Regular => {
                let mut buffer = vec![0xa5; node.data.len() + 10];
                let length = ns.read(ino, 0, &mut buffer).map_err(text)?;
                compare_bytes(0, &node.data, &buffer[..length])?;
            }
            FileKind::Symlink => {
                let target = ns.read_symlink(ino).map_err(text)?;
                same("the target", &node.data, &target)?;
            }
            FileKind::Directory => self.compare_entries(id, ino, usize::MAX)?,
            _ => {}
        }
        let root = &Caller::root();
        let mut names = ns.list_xattrs(root, ino).map_err(text)?;
        names.sort();
        let expected: Vec<Vec<u8>> = node.xattrs.keys().cloned().collect();
        same("the attributes' names", expected, names)?;
        for (name, value) in &node.xattrs {
            let got = ns.xattr(root, ino, name).map_err(text)?;
            same("an attribute's value", value, &got)?;
        }
        Ok(())
    }

    /// Compares a listing, read so many entries at a time, with the model's.
    fn compare_entries(&self, id: Id, ino: Ino, at_a_time: usize) -> Outcome {
        let node = self.existing(id);
        let mut listed = list(self.namespace(), ino, at_a_time)?;
        same(
            "'.'",
            Some((ino, FileKind::Directory)),
            listed.remove(b".".as_slice()),
        )?;
        let parent = listed.remove(b"..".as_slice());
        if node.links > 0 {
            let expected = self.numbers[&node.parent];
            same("'..'", Some((expected, FileKind::Directory)), parent)?;
        }
        let expected: BTreeMap<Vec<u8>, (Ino, FileKind)> = node
            .entries
            .iter()
            .map(|(name, id)| (name.clone(), (self.numbers[id], self.existing(*id).kind)))
            .collect();
        same("the listing", expected, listed)
    }
}

type Listing = BTreeMap<Vec<u8>, (Ino, FileKind)>;

/// Lists a directory in calls of so many entries; a name that comes twice is an error.
fn list(namespace: &Namespace, dir: Ino, at_a_time: usize) -> Outcome<Listing> {
    let mut listing = Listing::new();
    let mut cookie = 0;
    loop {
        let mut taken = 0;
        let mut twice = None;
        let mut is_full = false;
        namespace
            .read_directory(dir, cookie, &mut |entry| {
                if taken == at_a_time {
                    is_full = true;
                    return false;
                }
                taken += 1;
                cookie = entry.cookie;
                let known = listing.insert(entry.name.to_vec(), (entry.ino, entry.kind));
                if known.is_some() {
                    twice = Some(entry.name.to_vec());
                }
                true
            })
            .map_err(|error| error.to_string())?;
        if let Some(name) = twice {
            return Err(format!(
                "{:?} is listed twice",
                String::from_utf8_lossy(&name)
            ));
        }
        if !is_full {
            return Ok(listing);
        }
    }
}

fn compare_attributes(node: &Node, got: &Attributes) -> Outcome {
    same("the kind", node.kind, got.kind)?;
    let modes = |permissions: u32| format!("{permissions:04o}");
    same("the mode", modes(node.permissions), modes(got.permissions))?;
    same("the owner", (node.uid, node.gid), (got.uid, got.gid))?;
    same("the link count", node.links, got.link_count)?;
    same("the device", node.device, got.device)?;
    if node.kind != FileKind::Directory {
        same("the size", node.data.len() as u64, got.size_bytes)?;
    }
    Ok(())
}

fn compare_bytes(offset_bytes: u64, expected: &[u8], got: &[u8]) -> Outcome {
    same("the length", expected.len(), got.len())?;
    match expected.iter().zip(got).position(|(a, b)| a != b) {
        Some(at) => Err(format!(
            "byte {} must be {}, is {}",
            offset_bytes + at as u64,
            expected[at],
            got[at]
        )),
        None => Ok(()),
    }
}
