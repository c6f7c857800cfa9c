//! What each operation gives, of the namespace and of the model.

use finefs_namespace::{Caller, Error, FileKind, SetAttributes, SyncScope};

use super::compare::{agree, compare_attributes, compare_bytes, same};
use super::{Held, Outcome, Run};
use crate::model::New;
use crate::operation::{Operation, pattern};

impl Run<'_> {
    pub(super) fn step_names(&mut self, operation: &Operation) -> Outcome {
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
                match agree(expected, got)? {
                    Some(_) => self.learn_whiteout(from, from_name),
                    None => Ok(()),
                }
            }
            Operation::Lookup {
                who,
                at: (dir, name),
                out,
            } => {
                let Some(dir) = self.slots[*dir] else {
                    return Ok(());
                };
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

    pub(super) fn step_attributes(&mut self, operation: &Operation, held: Held) -> Outcome {
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
                let got = ns.clear_privileges(held.ino, |_| true).map(drop);
                return agree(self.model.clear_privileges(held.id), got).map(|_| ());
            }
            Operation::SyncFile { .. } => {
                let synced = ns.sync_file(held.ino, SyncScope::All);
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

    pub(super) fn step_data(&mut self, operation: &Operation, held: Held) -> Outcome {
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

    pub(super) fn step_xattrs(&mut self, operation: &Operation, held: Held) -> Outcome {
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
            Operation::SetAcl {
                who, name, value, ..
            } => {
                let caller = &self.callers[*who];
                let mode = Default::default();
                let got = ns.set_xattr(caller, held.ino, name, value, mode);
                if matches!(got, Err(Error::NoSpace)) {
                    return Ok(());
                }
                let expected = self
                    .model
                    .set_xattr(caller, held.id, name, Some(value), mode);
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

    /// Learns the number of what a rename left at its old name, if it left anything new.
    fn learn_whiteout(&mut self, dir: Held, name: &[u8]) -> Outcome {
        let left = self.existing(dir.id).entries.get(name).copied();
        let Some(id) = left.filter(|id| !self.numbers.contains_key(id)) else {
            return Ok(());
        };
        let root = Caller::root();
        let got = self.namespace().lookup(&root, dir.ino, name);
        match agree(self.model.lookup(&root, dir.id, name), got)? {
            Some((found, attributes)) if found == id => self.fill(0, id, &attributes),
            _ => Err("a whiteout that is not found".to_owned()),
        }
    }
}
