//! Random calls over NFS and on the reference model, compared: statuses, contents, attributes.
//!
//! An NFS client holds no references, so those of the model are given back at once: what has no
//! name is stale in both.

use std::collections::BTreeMap;

use crate::client::*;
use finefs_namespace::{
    AccessChecks, Caller, Error, FileKind, Namespace, RenameMode, SetAttributes,
};
use finefs_testkit::model::{Id, Model, New, Refused};
use finefs_testkit::operation::{Operation, callers, operations, pattern};
use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::Opaque;

/// What both know an inode by.
#[derive(Clone)]
struct Known {
    id: Id,
    handle: nfs_fh3,
}

struct Run {
    clients: Vec<Client>,
    callers: Vec<Caller>,
    model: Model,
    slots: BTreeMap<usize, Known>,
    /// Calls that succeeded, in both.
    succeeded: u64,
}

fn status_of(error: &Error) -> u32 {
    match error {
        Error::NotPermitted => 1,
        Error::NotFound => 2,
        Error::AccessDenied => 13,
        Error::Exists => 17,
        Error::NotADirectory => 20,
        Error::IsADirectory => 21,
        Error::Invalid => 22,
        Error::FileTooLarge => 27,
        Error::TooManyLinks => 31,
        Error::NameTooLong => 63,
        Error::NotEmpty => 66,
        Error::Stale => 70,
        Error::Busy => 13,
        error => panic!("no call here gives {error}"),
    }
}

fn result<T, E>(result: Nfs3Result<T, E>) -> Result<T, nfsstat3> {
    match result {
        Nfs3Result::Ok(done) => Ok(done),
        Nfs3Result::Err((status, _)) => Err(status),
    }
}

fn at<'a>(dir: &nfs_fh3, name: &'a [u8]) -> diropargs3<'a> {
    diropargs3 {
        dir: dir.clone(),
        name: filename3(Opaque::borrowed(name)),
    }
}

impl Run {
    fn new(server: &finefs_nfs::Server, namespace: &Namespace) -> Run {
        // Nobody is checked already.
        let mut callers = callers();
        callers[0].checks = AccessChecks::Needed;
        for caller in &mut callers {
            caller.umask = 0;
        }
        let credentials = callers
            .iter()
            .map(|caller| user(caller.uid, caller.gid, &caller.groups));
        let clients: Vec<Client> = credentials
            .map(|credential| Client::by(server, credential))
            .collect();
        let root = Known {
            id: Model::ROOT,
            handle: clients[0].root.clone(),
        };
        Run {
            clients,
            callers,
            model: Model::new(namespace.geometry(), 0o777, 0, 0),
            slots: BTreeMap::from([(0, root)]),
            succeeded: 0,
        }
    }

    /// Both succeed, or the status is that of an error that applies.
    fn agree<T, U>(
        &mut self,
        expected: Result<T, Refused>,
        got: Result<U, nfsstat3>,
    ) -> Result<Option<(T, U)>, String> {
        match (expected, got) {
            (Ok(expected), Ok(got)) => {
                self.succeeded += 1;
                Ok(Some((expected, got)))
            }
            (Err(errors), Err(status)) => {
                let is_one = errors.iter().any(|error| status_of(error) == status as u32);
                match is_one {
                    true => Ok(None),
                    false => Err(format!("{status:?} instead of one of {errors:?}")),
                }
            }
            (Ok(_), Err(status)) => Err(format!("{status:?} instead of success")),
            (Err(errors), Ok(_)) => Err(format!("success instead of one of {errors:?}")),
        }
    }

    fn get(&self, slot: usize) -> Option<Known> {
        self.slots.get(&slot).cloned()
    }

    fn fill(&mut self, out: usize, id: Id, handle: nfs_fh3) {
        self.model.forget(id, 1);
        if out != 0 {
            self.slots.insert(out, Known { id, handle });
        }
    }

    fn step(&mut self, operation: &Operation) -> Result<(), String> {
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
                let Some(dir) = self.get(*dir) else {
                    return Ok(());
                };
                let target = match kind {
                    FileKind::Symlink => pattern(*target_length, b't'),
                    _ => Vec::new(),
                };
                let is_symlink = *kind == FileKind::Symlink;
                // Linux's dev_t has more bits than what goes over the wire into a store.
                let device = device & 0xffff;
                let new = New {
                    kind: *kind,
                    permissions: if is_symlink { 0o777 } else { *permissions },
                    device: if kind.is_device() { device } else { 0 },
                    target: &target,
                };
                let got = self.make(*who, &dir.handle, name, &new);
                let caller = &self.callers[*who];
                let expected = self.model.create(caller, dir.id, name, &new);
                if let Some((id, handle)) = self.agree(expected, got)? {
                    self.fill(*out, id, handle);
                }
                Ok(())
            }
            Operation::Lookup {
                who,
                at: (dir, name),
                out,
            } => {
                let Some(dir) = self.get(*dir) else {
                    return Ok(());
                };
                let arguments = LOOKUP3args {
                    what: at(&dir.handle, name),
                };
                let found: LOOKUP3res = self.clients[*who].call(procedure::LOOKUP, &arguments);
                let expected = self.model.lookup(&self.callers[*who], dir.id, name);
                if let Some((id, found)) = self.agree(expected, result(found))? {
                    self.fill(*out, id, found.object);
                }
                Ok(())
            }
            Operation::Forget { slot } => {
                if *slot != 0 {
                    self.slots.remove(slot);
                }
                Ok(())
            }
            _ => self.step_names(operation),
        }
    }

    fn make(
        &mut self,
        who: usize,
        dir: &nfs_fh3,
        name: &[u8],
        new: &New<'_>,
    ) -> Result<nfs_fh3, nfsstat3> {
        let client = &mut self.clients[who];
        let attributes = with_mode(new.permissions);
        let node = |what| MKNOD3args {
            where_: at(dir, name),
            what,
        };
        let (major, minor) = (libc::major(new.device), libc::minor(new.device));
        let device = |attributes| devicedata3 {
            dev_attributes: attributes,
            spec: specdata3 {
                specdata1: major,
                specdata2: minor,
            },
        };
        let what = match new.kind {
            FileKind::Regular => {
                let arguments = CREATE3args {
                    where_: at(dir, name),
                    how: createhow3::GUARDED(attributes),
                };
                let made: CREATE3res = client.call(procedure::CREATE, &arguments);
                return result(made).map(|made| some(made.obj));
            }
            FileKind::Directory => {
                let arguments = MKDIR3args {
                    where_: at(dir, name),
                    attributes,
                };
                let made: MKDIR3res = client.call(procedure::MKDIR, &arguments);
                return result(made).map(|made| some(made.obj));
            }
            FileKind::Symlink => {
                let arguments = SYMLINK3args {
                    where_: at(dir, name),
                    symlink: symlinkdata3 {
                        symlink_attributes: sattr3::default(),
                        symlink_data: nfspath3(Opaque::borrowed(new.target)),
                    },
                };
                let made: SYMLINK3res = client.call(procedure::SYMLINK, &arguments);
                return result(made).map(|made| some(made.obj));
            }
            FileKind::BlockDevice => mknoddata3::NF3BLK(device(attributes)),
            FileKind::CharDevice => mknoddata3::NF3CHR(device(attributes)),
            FileKind::Fifo => mknoddata3::NF3FIFO(attributes),
            FileKind::Socket => mknoddata3::NF3SOCK(attributes),
        };
        let made: MKNOD3res = client.call(procedure::MKNOD, &node(what));
        result(made).map(|made| some(made.obj))
    }

    fn step_names(&mut self, operation: &Operation) -> Result<(), String> {
        match operation {
            Operation::Link {
                who,
                inode,
                at: (dir, name),
            } => {
                let (Some(inode), Some(dir)) = (self.get(*inode), self.get(*dir)) else {
                    return Ok(());
                };
                let arguments = LINK3args {
                    file: inode.handle,
                    link: at(&dir.handle, name),
                };
                let got: LINK3res = self.clients[*who].call(procedure::LINK, &arguments);
                let expected = self.model.link(&self.callers[*who], inode.id, dir.id, name);
                self.agree(expected, result(got))?;
                // As the namespace, it gives a reference.
                if matches!(self.model.node(inode.id), Some(node) if node.references > 0) {
                    self.model.forget(inode.id, 1);
                }
                Ok(())
            }
            Operation::RemoveFile {
                who,
                at: (dir, name),
            } => {
                let Some(dir) = self.get(*dir) else {
                    return Ok(());
                };
                let arguments = REMOVE3args {
                    object: at(&dir.handle, name),
                };
                let got: REMOVE3res = self.clients[*who].call(procedure::REMOVE, &arguments);
                let expected = self.model.remove_file(&self.callers[*who], dir.id, name);
                self.agree(expected, result(got)).map(drop)
            }
            Operation::RemoveDirectory {
                who,
                at: (dir, name),
            } => {
                let Some(dir) = self.get(*dir) else {
                    return Ok(());
                };
                let arguments = RMDIR3args {
                    object: at(&dir.handle, name),
                };
                let got: RMDIR3res = self.clients[*who].call(procedure::RMDIR, &arguments);
                let expected = self
                    .model
                    .remove_directory(&self.callers[*who], dir.id, name);
                self.agree(expected, result(got)).map(drop)
            }
            Operation::Rename {
                who,
                from: (from, old),
                to: (to, new),
                ..
            } => {
                let (Some(from), Some(to)) = (self.get(*from), self.get(*to)) else {
                    return Ok(());
                };
                let arguments = RENAME3args {
                    from: at(&from.handle, old),
                    to: at(&to.handle, new),
                };
                let got: RENAME3res = self.clients[*who].call(procedure::RENAME, &arguments);
                let caller = &self.callers[*who];
                let mode = RenameMode::Replace;
                let expected = self
                    .model
                    .rename(caller, (from.id, old), (to.id, new), mode);
                self.agree(expected, result(got)).map(drop)
            }
            _ => self.step_objects(operation),
        }
    }

    fn step_objects(&mut self, operation: &Operation) -> Result<(), String> {
        match operation {
            Operation::SetPermissions {
                who,
                slot,
                permissions,
            } => {
                let change = SetAttributes {
                    permissions: Some(*permissions),
                    ..SetAttributes::default()
                };
                self.set(*who, *slot, &change, with_mode(*permissions))
            }
            Operation::Read {
                slot,
                offset_bytes,
                length,
            } => {
                let Some(known) = self.get(*slot) else {
                    return Ok(());
                };
                let got = self.clients[0].read(&known.handle, *offset_bytes, *length as u32);
                let expected = self.model.read(known.id, *offset_bytes, *length);
                match self.agree(expected, got)? {
                    Some((expected, (got, _))) if expected != got => Err("other bytes".into()),
                    _ => Ok(()),
                }
            }
            Operation::Write {
                slot,
                offset_bytes,
                length,
                fill,
            } => {
                let Some(known) = self.get(*slot) else {
                    return Ok(());
                };
                let data = pattern(*length, *fill);
                let unstable = stable_how::UNSTABLE;
                let got = self.clients[0].write(&known.handle, *offset_bytes, &data, unstable);
                let expected = self.model.write(known.id, *offset_bytes, &data);
                self.agree(expected, got).map(drop)
            }
            Operation::Attributes { slot } => match self.get(*slot) {
                Some(known) => self.compare(&known),
                None => Ok(()),
            },
            Operation::Compare => {
                let all: Vec<Known> = self.slots.values().cloned().collect();
                all.iter().try_for_each(|known| self.compare(known))
            }
            _ => Ok(()),
        }
    }

    fn set(
        &mut self,
        who: usize,
        slot: usize,
        change: &SetAttributes,
        attributes: sattr3,
    ) -> Result<(), String> {
        let Some(known) = self.get(slot) else {
            return Ok(());
        };
        let got = self.clients[who].set(&known.handle, attributes);
        let caller = &self.callers[who];
        let expected = self.model.set_attributes(caller, known.id, change);
        self.agree(expected, got).map(drop)
    }

    fn compare(&mut self, known: &Known) -> Result<(), String> {
        let got = self.clients[0].attributes(&known.handle);
        let Some(node) = self.model.node(known.id) else {
            return match got {
                Err(nfsstat3::NFS3ERR_STALE) => Ok(()),
                other => Err(format!("{other:?} of what is gone")),
            };
        };
        let got = got.map_err(|status| format!("{status:?} of what is there"))?;
        let seen = (got.mode, got.uid, got.gid, got.nlink);
        let expected = (node.permissions, node.uid, node.gid, node.links);
        if seen != expected {
            return Err(format!("{seen:?} instead of {expected:?}"));
        }
        if node.kind == FileKind::Directory {
            let mut names = self.clients[0].list(&known.handle, 4096);
            names.sort();
            let expected = node.entries.keys().map(|name| name.as_slice());
            let mut expected: Vec<&[u8]> = expected.chain([&b"."[..], b".."]).collect();
            expected.sort_unstable();
            let names: Vec<&[u8]> = names.iter().map(|(name, _)| name.as_bytes()).collect();
            if names != expected {
                return Err(format!("{names:?} instead of {expected:?}"));
            }
        }
        Ok(())
    }
}

#[test]
fn calls_do_what_they_do_in_the_model() {
    let seeds = std::env::var("FINEFS_SEEDS").ok();
    let seeds = seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(20);
    let mut succeeded = 0;
    for seed in 0..seeds {
        let (server, namespace) = serve_memory(trusting());
        // So that everybody gets somewhere.
        let open = SetAttributes {
            permissions: Some(0o777),
            ..SetAttributes::default()
        };
        let root = namespace.root();
        namespace
            .set_attributes(&Caller::root(), root, &open)
            .unwrap();
        let mut run = Run::new(&server, &namespace);
        for (step, operation) in operations(seed, 2000).iter().enumerate() {
            if let Err(difference) = run.step(operation) {
                panic!("seed {seed}, step {step}, {operation:?}: {difference}");
            }
        }
        succeeded += run.succeeded;
        server.stop();
        namespace.shut_down().unwrap();
    }
    assert!(succeeded > 200 * seeds, "{succeeded} calls show little");
}
