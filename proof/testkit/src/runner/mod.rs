//! The differential runner: the same operations on a namespace and on the model, compared.
//!
//! Each result is compared (errno too), and now and then everything: attributes, contents,
//! listings, extended attributes of every inode. A failure is shrunk: operations are taken out as
//! long as it still fails; then the seed and what is left are printed.
//!
//! | Module | Thing |
//! |---|---|
//! | `steps` | what each operation gives, in both |
//! | `compare` | both, as they are |

mod compare;
mod steps;

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use finefs_namespace::{Attributes, Caller, Error, Ino, Namespace};

use self::compare::{agree, compare_attributes, list, same};
use crate::model::{Id, Model, Node};
use crate::operation::{Operation, SLOTS, Slot, callers, operations};

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

/// [`check_seed`] of each of these seeds, so many operations each, or of others:
/// `FINEFS_SEEDS=first..end`, `FINEFS_STEPS=n`.
pub fn check_seeds(seeds: Range<u64>, count: usize, make: &dyn Fn() -> Box<dyn Subject>) {
    let wanted = std::env::var("FINEFS_SEEDS").ok().map(|text| {
        let (first, end) = text.split_once("..").expect("FINEFS_SEEDS=first..end");
        first.parse().expect("a number")..end.parse().expect("a number")
    });
    let count = std::env::var("FINEFS_STEPS").map_or(count, |text| text.parse().expect("a number"));
    for seed in wanted.unwrap_or(seeds) {
        check_seed(seed, count, make);
    }
}

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
        model.set_root_links(attributes.link_count);
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
            | Operation::SetAcl { slot, .. }
            | Operation::RemoveXattr { slot, .. }
            | Operation::Xattr { slot, .. }
            | Operation::ListXattrs { slot, .. } => {
                self.on_held(*slot, operation, Run::step_xattrs)
            }
            Operation::Attributes { slot }
            | Operation::Access { slot, .. }
            | Operation::SetPermissions { slot, .. }
            | Operation::SetOwner { slot, .. }
            | Operation::Truncate { slot, .. }
            | Operation::ClearPrivileges { slot }
            | Operation::SyncFile { slot } => self.on_held(*slot, operation, Run::step_attributes),
            Operation::ReadSymlink { slot }
            | Operation::Read { slot, .. }
            | Operation::Write { slot, .. }
            | Operation::Append { slot, .. }
            | Operation::Allocate { slot, .. }
            | Operation::Seek { slot, .. }
            | Operation::ReadDirectory { slot, .. } => {
                self.on_held(*slot, operation, Run::step_data)
            }
        }
    }

    /// A step on what a slot holds, if it does.
    fn on_held(
        &mut self,
        slot: Slot,
        operation: &Operation,
        step: fn(&mut Self, &Operation, Held) -> Outcome,
    ) -> Outcome {
        self.slots[slot].map_or(Ok(()), |held| step(self, operation, held))
    }

    fn reopen(&mut self, compares: bool) -> Outcome {
        if !self.subject.reopen()? {
            return Ok(());
        }
        self.model.forget_all();
        self.slots[1..].fill(None);
        if compares { self.compare_all() } else { Ok(()) }
    }
}
