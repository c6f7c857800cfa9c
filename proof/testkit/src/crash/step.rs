//! Operations by path, on a namespace and on the reference model.

use finefs_namespace::{
    AllocateMode, Caller, Error, FileKind, Ino, Namespace, RenameMode, SetAttributes, SyncScope,
    XattrMode,
};

use crate::model::acl::{self, Acl};
use crate::model::{Id, Model, New};
use crate::operation::pattern;

/// A path from the root, without a slash at its ends.
pub type Path = String;

/// One operation. Sizes and offsets are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the arguments of the calls")]
pub enum Step {
    Create(Path),
    MakeDirectory(Path),
    Symlink {
        at: Path,
        target_length: usize,
    },
    Link {
        from: Path,
        to: Path,
    },
    Unlink(Path),
    RemoveDirectory(Path),
    Rename {
        from: Path,
        to: Path,
        mode: RenameMode,
    },
    Write {
        at: Path,
        offset: u64,
        length: usize,
        fill: u8,
    },
    Append {
        at: Path,
        length: usize,
        fill: u8,
    },
    Truncate {
        at: Path,
        size: u64,
    },
    Allocate {
        at: Path,
        mode: AllocateMode,
        offset: u64,
        length: u64,
    },
    /// Moving its blocks together, which shows nowhere.
    Defragment(Path),
    SetXattr {
        at: Path,
        name: &'static str,
        length: usize,
        fill: u8,
    },
    RemoveXattr {
        at: Path,
        name: &'static str,
    },
    /// A user and a mask beside the permission bits of a mode.
    SetAcl {
        at: Path,
        is_default: bool,
        permissions: u32,
    },
    Chmod {
        at: Path,
        permissions: u32,
    },
}

/// What follows an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Persist {
    /// sync
    All,
    /// fsync of what has this path then
    One(Path),
    /// fdatasync
    Data(Path),
}

/// The directory and the name of a path.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// The directory that a path's name is in.
pub fn parent(path: &str) -> &str {
    split(path).0
}

fn permissions(permissions: u32) -> SetAttributes {
    SetAttributes {
        permissions: Some(permissions),
        ..SetAttributes::default()
    }
}

fn size(size_bytes: u64) -> SetAttributes {
    SetAttributes {
        size_bytes: Some(size_bytes),
        ..SetAttributes::default()
    }
}

fn target(length: usize) -> Vec<u8> {
    pattern(length, 40)
        .iter()
        .map(|byte| b'a' + byte % 26)
        .collect()
}

/// The attribute and the value.
fn acl_of(is_default: bool, permissions: u32) -> (&'static [u8], Vec<u8>) {
    let name = match is_default {
        true => acl::DEFAULT,
        false => acl::ACCESS,
    };
    let nobody = u32::MAX;
    let list = Acl(vec![
        (1, 0, nobody),
        (2, 6, 1000),
        (4, 5, nobody),
        (16, 0, nobody),
        (32, 0, nobody),
    ]);
    (name, list.with_mode(permissions).value())
}

impl Step {
    /// The path that it is mostly about, as it is afterwards.
    pub fn path(&self) -> &str {
        match self {
            Step::Create(at)
            | Step::MakeDirectory(at)
            | Step::Unlink(at)
            | Step::RemoveDirectory(at)
            | Step::Defragment(at)
            | Step::Symlink { at, .. }
            | Step::Write { at, .. }
            | Step::Append { at, .. }
            | Step::Truncate { at, .. }
            | Step::Allocate { at, .. }
            | Step::SetXattr { at, .. }
            | Step::RemoveXattr { at, .. }
            | Step::SetAcl { at, .. }
            | Step::Chmod { at, .. } => at,
            Step::Link { to, .. } | Step::Rename { to, .. } => to,
        }
    }

    /// It sets an extended attribute.
    pub fn sets_xattr(&self) -> bool {
        matches!(self, Step::SetXattr { .. } | Step::SetAcl { .. })
    }

    /// Does it on the model.
    pub fn on_model(&self, model: &mut Model) -> Result<(), Vec<Error>> {
        let caller = &Caller::root();
        let at = |model: &Model, path: &str| find(model, path).ok_or(vec![Error::NotFound]);
        match self {
            Step::Create(path) => make(model, path, FileKind::Regular, b""),
            Step::MakeDirectory(path) => make(model, path, FileKind::Directory, b""),
            Step::Symlink {
                at: path,
                target_length,
            } => make(model, path, FileKind::Symlink, &target(*target_length)),
            Step::Link { from, to } => {
                let (dir, name) = split(to);
                let (id, dir) = (at(model, from)?, at(model, dir)?);
                model.link(caller, id, dir, name.as_bytes())?;
                model.forget(id, 1);
                Ok(())
            }
            Step::Unlink(path) => {
                let (dir, name) = split(path);
                let dir = at(model, dir)?;
                model.remove_file(caller, dir, name.as_bytes())
            }
            Step::RemoveDirectory(path) => {
                let (dir, name) = split(path);
                let dir = at(model, dir)?;
                model.remove_directory(caller, dir, name.as_bytes())
            }
            Step::Rename { from, to, mode } => {
                let ((from_dir, from), (to_dir, to)) = (split(from), split(to));
                let (from_dir, to_dir) = (at(model, from_dir)?, at(model, to_dir)?);
                let (from, to) = (from.as_bytes(), to.as_bytes());
                model.rename(caller, (from_dir, from), (to_dir, to), *mode)
            }
            _ => {
                let id = at(model, self.path())?;
                self.on_model_inode(model, id)
            }
        }
    }

    fn on_model_inode(&self, model: &mut Model, id: Id) -> Result<(), Vec<Error>> {
        let caller = &Caller::root();
        match self {
            Step::Write {
                offset,
                length,
                fill,
                ..
            } => model
                .write(id, *offset, &pattern(*length, *fill))
                .map(|_| ()),
            Step::Append { length, fill, .. } => {
                model.append(id, &pattern(*length, *fill)).map(|_| ())
            }
            Step::Truncate { size: to, .. } => model.set_attributes(caller, id, &size(*to)),
            Step::Chmod {
                permissions: to, ..
            } => model.set_attributes(caller, id, &permissions(*to)),
            Step::Allocate {
                mode,
                offset,
                length,
                ..
            } => model.allocate(id, *mode, *offset, *length),
            // It does what an append of nothing does: it is refused for what is no file.
            Step::Defragment(_) => model.append(id, &[]).map(|_| ()),
            Step::SetXattr {
                name, length, fill, ..
            } => {
                let value = pattern(*length, *fill);
                model.set_xattr(caller, id, name.as_bytes(), Some(&value), XattrMode::Set)
            }
            Step::RemoveXattr { name, .. } => {
                model.set_xattr(caller, id, name.as_bytes(), None, XattrMode::Set)
            }
            Step::SetAcl {
                is_default,
                permissions,
                ..
            } => {
                let (name, value) = acl_of(*is_default, *permissions);
                model.set_xattr(caller, id, name, Some(&value), XattrMode::Set)
            }
            _ => Ok(()),
        }
    }

    /// Does it on a namespace.
    pub fn on_namespace(&self, ns: &Namespace) -> Result<(), Error> {
        let caller = &Caller::root();
        match self {
            Step::Create(path) => in_parent(ns, path, |dir, name| {
                let made = ns.create_file(caller, dir, name, 0o644)?;
                ns.forget(made.ino, 1);
                Ok(())
            }),
            Step::MakeDirectory(path) => in_parent(ns, path, |dir, name| {
                let made = ns.make_directory(caller, dir, name, 0o755)?;
                ns.forget(made.ino, 1);
                Ok(())
            }),
            Step::Symlink { at, target_length } => in_parent(ns, at, |dir, name| {
                let made = ns.make_symlink(caller, dir, name, &target(*target_length))?;
                ns.forget(made.ino, 1);
                Ok(())
            }),
            Step::Link { from, to } => with(ns, from, |ino| {
                in_parent(ns, to, |dir, name| {
                    let linked = ns.make_link(caller, ino, dir, name)?;
                    ns.forget(linked.ino, 1);
                    Ok(())
                })
            }),
            Step::Unlink(path) => {
                in_parent(ns, path, |dir, name| ns.remove_file(caller, dir, name))
            }
            Step::RemoveDirectory(path) => {
                in_parent(ns, path, |dir, name| ns.remove_directory(caller, dir, name))
            }
            Step::Rename { from, to, mode } => in_parent(ns, from, |from_dir, from| {
                in_parent(ns, to, |to_dir, to| {
                    ns.rename(caller, (from_dir, from), (to_dir, to), *mode)
                })
            }),
            _ => with(ns, self.path(), |ino| self.on_inode(ns, ino)),
        }
    }

    fn on_inode(&self, ns: &Namespace, ino: Ino) -> Result<(), Error> {
        let caller = &Caller::root();
        match self {
            Step::Write {
                offset,
                length,
                fill,
                ..
            } => ns.write(ino, *offset, &pattern(*length, *fill)).map(|_| ()),
            Step::Append { length, fill, .. } => {
                ns.append(ino, &pattern(*length, *fill)).map(|_| ())
            }
            Step::Truncate { size: to, .. } => {
                ns.set_attributes(caller, ino, &size(*to)).map(|_| ())
            }
            Step::Chmod {
                permissions: to, ..
            } => ns
                .set_attributes(caller, ino, &permissions(*to))
                .map(|_| ()),
            Step::Allocate {
                mode,
                offset,
                length,
                ..
            } => ns.allocate(ino, *mode, *offset, *length),
            Step::Defragment(_) => ns.defragment(ino).map(|_| ()),
            Step::SetXattr {
                name, length, fill, ..
            } => {
                let value = pattern(*length, *fill);
                ns.set_xattr(caller, ino, name.as_bytes(), &value, XattrMode::Set)
            }
            Step::RemoveXattr { name, .. } => ns.remove_xattr(caller, ino, name.as_bytes()),
            Step::SetAcl {
                is_default,
                permissions,
                ..
            } => {
                let (name, value) = acl_of(*is_default, *permissions);
                ns.set_xattr(caller, ino, name, &value, XattrMode::Set)
            }
            _ => Ok(()),
        }
    }
}

impl Persist {
    /// Does it.
    pub fn on_namespace(&self, ns: &Namespace) -> Result<(), Error> {
        match self {
            Persist::All => ns.sync(),
            Persist::One(path) => with(ns, path, |ino| ns.sync_file(ino, SyncScope::All)),
            Persist::Data(path) => with(ns, path, |ino| ns.sync_file(ino, SyncScope::Data)),
        }
    }
}

/// The inode of a path in the model.
pub fn find(model: &Model, path: &str) -> Option<Id> {
    let names = path.split('/').filter(|name| !name.is_empty());
    names.into_iter().try_fold(Model::ROOT, |dir, name| {
        model.node(dir)?.entries.get(name.as_bytes()).copied()
    })
}

fn make(model: &mut Model, path: &str, kind: FileKind, target: &[u8]) -> Result<(), Vec<Error>> {
    let (dir, name) = split(path);
    let dir = find(model, dir).ok_or(vec![Error::NotFound])?;
    let permissions = match kind {
        FileKind::Regular => 0o644,
        FileKind::Directory => 0o755,
        _ => 0o777,
    };
    let new = New {
        kind,
        permissions,
        device: 0,
        target,
    };
    let id = model.create(&Caller::root(), dir, name.as_bytes(), &new)?;
    model.forget(id, 1);
    Ok(())
}

/// What a step does to data, which a crash may leave of it or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It writes over data of this file, which else stays as it is.
    Overwrite(Id),
    /// Any other.
    Other,
}

impl Step {
    /// What it is going to do: asked before it is done.
    pub fn change(&self, ns: &Namespace, model: &Model) -> Change {
        let Step::Write {
            at, offset, length, ..
        } = self
        else {
            return Change::Other;
        };
        let end = offset + *length as u64;
        let is_data = with(ns, at, |ino| {
            let is_within = end <= ns.attributes(ino)?.size_bytes;
            Ok(is_within && ns.seek_hole(ino, *offset)? >= end)
        });
        match find(model, at) {
            Some(id) if is_data == Ok(true) => Change::Overwrite(id),
            _ => Change::Other,
        }
    }
}

/// Calls `use_it` with the inode of a path, held.
pub fn with<T>(
    ns: &Namespace,
    path: &str,
    use_it: impl FnOnce(Ino) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut held = ns.root();
    ns.reference(held)?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let found = ns.lookup(&Caller::root(), held, name.as_bytes());
        ns.forget(held, 1);
        held = found?.ino;
    }
    let outcome = use_it(held);
    ns.forget(held, 1);
    outcome
}

fn in_parent<T>(
    ns: &Namespace,
    path: &str,
    use_it: impl FnOnce(Ino, &[u8]) -> Result<T, Error>,
) -> Result<T, Error> {
    let (dir, name) = split(path);
    with(ns, dir, |ino| use_it(ino, name.as_bytes()))
}
