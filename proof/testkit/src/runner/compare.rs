//! The namespace and the model side by side: results, and all that is there.

use std::collections::BTreeMap;

use finefs_namespace::{Attributes, Caller, Error, FileKind, Ino, Namespace};

use super::{Outcome, Run};
use crate::model::{self, Id, Node};

/// Tells whether model and namespace agree, and gives both values when both succeeded.
pub(super) fn agree<T, U>(
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

pub(super) fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, got: T) -> Outcome {
    if expected == got {
        Ok(())
    } else {
        Err(format!("{what} must be {expected:?}, is {got:?}"))
    }
}
impl Run<'_> {
    /// Compares every inode.
    pub(super) fn compare_all(&self) -> Outcome {
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
    pub(super) fn compare_entries(&self, id: Id, ino: Ino, at_a_time: usize) -> Outcome {
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

pub(super) type Listing = BTreeMap<Vec<u8>, (Ino, FileKind)>;

/// Lists a directory in calls of so many entries; a name that comes twice is an error.
pub(super) fn list(namespace: &Namespace, dir: Ino, at_a_time: usize) -> Outcome<Listing> {
    let mut listing = Listing::new();
    let mut cookie = 0;
    loop {
        let mut taken = 0;
        let (mut twice, mut unknown) = (None, None);
        let mut is_full = false;
        namespace
            .read_directory(dir, cookie, &mut |entry| {
                if taken == at_a_time {
                    is_full = true;
                    return false;
                }
                taken += 1;
                cookie = entry.cookie;
                let Some(kind) = entry.kind else {
                    unknown = Some(entry.name.to_vec());
                    return true;
                };
                let known = listing.insert(entry.name.to_vec(), (entry.ino, kind));
                if known.is_some() {
                    twice = Some(entry.name.to_vec());
                }
                true
            })
            .map_err(|error| error.to_string())?;
        if let Some(name) = unknown {
            let name = String::from_utf8_lossy(&name);
            return Err(format!("{name:?} is listed without a kind"));
        }
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

pub(super) fn compare_attributes(node: &Node, got: &Attributes) -> Outcome {
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

pub(super) fn compare_bytes(offset_bytes: u64, expected: &[u8], got: &[u8]) -> Outcome {
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
