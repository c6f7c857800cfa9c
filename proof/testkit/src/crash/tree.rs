//! What an image holds, read through the namespace; and whether it is consistent in itself: every
//! object loads, no block has two owners, what is used and what is free add up.

use std::collections::{BTreeMap, BTreeSet};

use finefs_namespace::{Attributes, Caller, FileKind, Ino, Namespace};

use super::base::{Opened, Totals};

/// One inode as found below a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its attributes.
    pub attributes: Attributes,
    /// Content of a file, target of a symbolic link.
    pub data: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Everything that can be reached from the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// By path; the root is the empty one.
    pub names: BTreeMap<String, Ino>,
    /// Each inode once.
    pub inodes: BTreeMap<Ino, Found>,
    /// Free and used together.
    pub totals: Totals,
}

impl Tree {
    /// Reads everything and checks what can be checked without another program.
    pub fn read(opened: &Opened) -> Result<Tree, String> {
        let ns = &opened.ns;
        let mut tree = Tree {
            names: BTreeMap::new(),
            inodes: BTreeMap::new(),
            totals: Totals {
                inodes: 0,
                sectors: 0,
            },
        };
        tree.walk(ns, String::new(), ns.root())?;
        tree.check_extents(opened)?;
        let stat = ns.statfs();
        let used: u64 = tree
            .inodes
            .values()
            .map(|found| found.attributes.sectors)
            .sum();
        tree.totals = Totals {
            inodes: stat.inodes_free + tree.inodes.len() as u64,
            sectors: stat.blocks_free * u64::from(stat.block_size_bytes / 512) + used,
        };
        Ok(tree)
    }

    fn walk(&mut self, ns: &Namespace, path: String, ino: Ino) -> Result<(), String> {
        let at = |error: finefs_namespace::Error| format!("{path:?}, inode {ino}: {error}");
        let is_new = !self.inodes.contains_key(&ino);
        let attributes = ns.attributes(ino).map_err(at)?;
        if !is_new && attributes.kind == FileKind::Directory {
            return Err(format!("{path:?}: directory {ino} has a second name"));
        }
        if is_new {
            let found = read_inode(ns, ino, &attributes).map_err(at)?;
            self.inodes.insert(ino, found);
        }
        let mut entries = Vec::new();
        if attributes.kind == FileKind::Directory {
            ns.read_directory(ino, 0, &mut |entry| {
                entries.push((entry.name.to_vec(), entry.ino, entry.kind));
                true
            })
            .map_err(at)?;
        }
        for (name, child, kind) in entries {
            let name = String::from_utf8_lossy(&name).into_owned();
            if name == "." || name == ".." {
                continue;
            }
            let below = if path.is_empty() {
                name
            } else {
                format!("{path}/{name}")
            };
            self.walk(ns, below.clone(), child)?;
            let is = self.inodes[&child].attributes.kind;
            if Some(is) != kind {
                return Err(format!(
                    "{below:?}: the entry says {kind:?}, the inode {is:?}"
                ));
            }
        }
        if self.names.insert(path.clone(), ino).is_some() {
            return Err(format!("{path:?} is there twice"));
        }
        Ok(())
    }

    /// No block belongs to two files.
    fn check_extents(&self, opened: &Opened) -> Result<(), String> {
        let mut taken = BTreeSet::new();
        for (ino, found) in &self.inodes {
            if found.attributes.kind != FileKind::Regular {
                continue;
            }
            let extents = opened.store.load_extents(*ino);
            for extent in extents.map_err(|error| format!("inode {ino}: {error}"))? {
                for block in extent.physical.0..extent.physical.0 + extent.length {
                    if !taken.insert(block) {
                        return Err(format!("inode {ino}: block {block} has two owners"));
                    }
                }
            }
        }
        Ok(())
    }
}

fn read_inode(
    ns: &Namespace,
    ino: Ino,
    attributes: &Attributes,
) -> finefs_namespace::Result<Found> {
    let mut data = Vec::new();
    match attributes.kind {
        FileKind::Regular => {
            data = vec![0; attributes.size_bytes.min(64 << 20) as usize];
            let length = ns.read(ino, 0, &mut data)?;
            data.truncate(length);
        }
        FileKind::Symlink => data = ns.read_symlink(ino)?,
        _ => {}
    }
    let caller = &Caller::root();
    let mut xattrs = BTreeMap::new();
    for name in ns.list_xattrs(caller, ino)? {
        let value = ns.xattr(caller, ino, &name)?;
        xattrs.insert(name, value);
    }
    Ok(Found {
        attributes: *attributes,
        data,
        xattrs,
    })
}
