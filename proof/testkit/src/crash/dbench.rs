//! A part of dbench's load as operations of a thread: what a client of a file server does, with the
//! syncs that it asks for.
//!
//! Each thread is a client, and begins at another place of the load. What was opened before that
//! place is there. Sizes and offsets are shrunk, since all moments of all files are kept. Reading
//! and listing leave no trace and are left out, as are operations that the server refused, and the
//! removal of everything at the load's two ends.

use std::collections::HashMap;
use std::sync::OnceLock;

use finefs_dbench_load::{LOAD_FILE, Load, Operation, OperationKind as Kind};

use super::step::{Persist, Step, find, parent};
use crate::model::Model;

/// A small one in its format, for where that is not there.
const OWN: &str = include_str!("dbench.txt");

/// What all paths begin with.
const CLIENT: &str = "clients/client1";

const SHRUNK: i64 = 16;
const FILE_BYTES_MAX: i64 = 64 << 10;

/// NTCreateX: FILE_DIRECTORY_FILE, and the dispositions that make a file or empty it.
const DIRECTORY_FILE: i64 = 0x1;
const CREATE: i64 = 2;
const OVERWRITE: i64 = 4;
const OVERWRITE_IF: i64 = 5;

/// The load that is replayed, and why it is not dbench's own, if so. It is read once.
pub fn load() -> &'static (Load, Option<String>) {
    static LOAD: OnceLock<(Load, Option<String>)> = OnceLock::new();
    LOAD.get_or_init(|| match Load::read(LOAD_FILE.as_ref()) {
        Ok(load) => (load, None),
        Err(why) => {
            let own = Load::parse(OWN);
            (own.expect("it is in dbench's format"), Some(why))
        }
    })
}

/// `count` operations that change something, each with what is synced after it; all succeed on a
/// model in which the directory `home` is empty. `place` says where in the load they begin, in
/// parts of 2^32.
pub fn script(
    load: &Load,
    home: &str,
    model: &Model,
    place: u32,
    count: usize,
) -> Vec<(Step, Option<Persist>)> {
    let mut client = Client {
        load,
        home,
        model: model.clone(),
        open: HashMap::new(),
        steps: Vec::new(),
    };
    let operations = &load.operations;
    let first = ((operations.len() as u64 * u64::from(place)) >> 32) as usize;
    for operation in &operations[..first] {
        client.track(operation);
    }
    // A load whose rest is short begins anew.
    let mut idle = 0;
    for operation in operations[first..].iter().chain(operations.iter().cycle()) {
        let before = client.steps.len();
        client.replay(operation);
        client.track(operation);
        idle = if client.steps.len() > before {
            0
        } else {
            idle + 1
        };
        if client.steps.len() >= count || idle > operations.len() {
            break;
        }
    }
    client.steps.truncate(count);
    client.steps
}

struct Client<'a> {
    load: &'a Load,
    home: &'a str,
    model: Model,
    /// Paths by handle.
    open: HashMap<i64, String>,
    steps: Vec<(Step, Option<Persist>)>,
}

impl Client<'_> {
    /// The path of an operation, in the client's directory.
    fn path(&self, operation: &Operation, index: usize) -> Option<String> {
        let path = &self.load.paths[operation.paths[index] as usize];
        let own = path.strip_prefix(CLIENT)?.strip_prefix('/')?;
        Some(format!("{}/{own}", self.home))
    }

    /// Notes what is open under which handle.
    fn track(&mut self, operation: &Operation) {
        match operation.kind {
            Kind::NTCreateX if operation.is_ok => {
                let path = self.path(operation, 0);
                let handle = operation.numbers[2];
                match path {
                    Some(path) => self.open.insert(handle, path),
                    None => self.open.remove(&handle),
                };
            }
            Kind::Close => drop(self.open.remove(&operation.numbers[0])),
            Kind::Rename if operation.is_ok => {
                let (Some(from), Some(to)) = (self.path(operation, 0), self.path(operation, 1))
                else {
                    return;
                };
                for path in self.open.values_mut().filter(|path| **path == from) {
                    path.clone_from(&to);
                }
            }
            _ => {}
        }
    }

    fn replay(&mut self, operation: &Operation) {
        if !operation.is_ok {
            return;
        }
        let numbers = operation.numbers;
        match operation.kind {
            Kind::NTCreateX => self.create(operation),
            Kind::Mkdir => {
                if let Some(path) = self.path(operation, 0) {
                    self.make(Step::MakeDirectory(path));
                }
            }
            Kind::WriteX => {
                let Some(at) = self.open.get(&numbers[0]).cloned() else {
                    return;
                };
                self.need(&at);
                self.step(Step::Write {
                    at,
                    offset: (numbers[1] / SHRUNK % FILE_BYTES_MAX) as u64,
                    length: (numbers[2] / SHRUNK).max(1) as usize,
                    fill: self.steps.len() as u8,
                });
            }
            Kind::Flush => {
                let path = self.open.get(&numbers[0]).cloned();
                if let Some(path) = path.filter(|path| find(&self.model, path).is_some())
                    && let Some((_, persist)) = self.steps.last_mut()
                {
                    *persist = Some(Persist::One(path));
                }
            }
            Kind::Rename => {
                if let (Some(from), Some(to)) = (self.path(operation, 0), self.path(operation, 1)) {
                    self.need(&from);
                    let mode = finefs_namespace::RenameMode::Replace;
                    self.step(Step::Rename { from, to, mode });
                }
            }
            Kind::Unlink => {
                if let Some(path) = self.path(operation, 0) {
                    self.step(Step::Unlink(path));
                }
            }
            Kind::Rmdir => {
                if let Some(path) = self.path(operation, 0) {
                    self.step(Step::RemoveDirectory(path));
                }
            }
            _ => {}
        }
    }

    fn create(&mut self, operation: &Operation) {
        let [options, disposition, ..] = operation.numbers;
        let Some(path) = self.path(operation, 0) else {
            return;
        };
        let is_there = find(&self.model, &path).is_some();
        let is_emptied = matches!(disposition, OVERWRITE | OVERWRITE_IF);
        if options & DIRECTORY_FILE != 0 {
            self.make(Step::MakeDirectory(path));
        } else if !is_there && (disposition == CREATE || is_emptied) {
            self.make(Step::Create(path));
        } else if is_there && is_emptied {
            self.step(Step::Truncate { at: path, size: 0 });
        }
    }

    /// A file that was made before the place where the part begins.
    fn need(&mut self, path: &str) {
        if find(&self.model, path).is_none() {
            self.make(Step::Create(path.to_owned()));
        }
    }

    /// Makes something, and the directories above it that were made before.
    fn make(&mut self, step: Step) {
        let dir = parent(step.path());
        if find(&self.model, dir).is_none() && !dir.is_empty() {
            self.make(Step::MakeDirectory(dir.to_owned()));
        }
        self.step(step);
    }

    /// Takes a step that can be done.
    fn step(&mut self, step: Step) {
        let mut after = self.model.clone();
        if step.on_model(&mut after).is_ok() {
            self.model = after;
            self.steps.push((step, None));
        }
    }
}

#[cfg(test)]
mod tests {
    use finefs_namespace::{MemoryStore, Store};

    use super::*;

    #[test]
    fn the_own_load_has_everything_that_leaves_a_trace() {
        let load = Load::parse(OWN).unwrap();
        let store = MemoryStore::new(1 << 20, 0o755, 0, 0).unwrap();
        let mut model = Model::new(store.geometry(), 0o755, 0, 0);
        Step::MakeDirectory("t0".to_owned())
            .on_model(&mut model)
            .unwrap();
        for place in [0, 1 << 31] {
            let steps = script(&load, "t0", &model, place, 60);
            assert_eq!(steps.len(), 60);
            let is_there = |is: fn(&Step) -> bool| steps.iter().any(|(step, _)| is(step));
            assert!(is_there(|step| matches!(step, Step::Write { .. })));
            assert!(is_there(|step| matches!(step, Step::Rename { .. })));
            assert!(is_there(|step| matches!(step, Step::Unlink(_))));
            assert!(steps.iter().any(|(_, persist)| persist.is_some()));
            let mut replayed = model.clone();
            for (step, _) in &steps {
                step.on_model(&mut replayed).unwrap();
                assert!(step.path().starts_with("t0/"), "{step:?}");
            }
        }
    }
}
