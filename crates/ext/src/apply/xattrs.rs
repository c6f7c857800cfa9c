//! Extended attributes: into the inode while they fit, else into the inode's attribute block.
//!
//! A changed attribute goes where there is room, the inode first; the others stay where they are.
//! Only when that fails all are dealt out anew by [`place`], which depends on nothing but the set.
//! So [`check`], which asks the same function beforehand, knows that applying will succeed.

use finefs_ext_disk::inode::InodeRules;
use finefs_ext_disk::xattr::{self, NameIndex, Xattr, XattrRegion, XattrValue};
use finefs_ext_disk::{Ino as DiskIno, PhysBlock, acl};
use finefs_namespace::{Error, Ino, Result};

use super::inode::{InodeEdit, InodeTable};
use super::space::Space;
use crate::error::at;
use crate::state::ExtState;

/// A change as the namespace gives it: full name, and the value or `None` for removal.
pub(crate) type Change = (Box<[u8]>, Option<Box<[u8]>>);

/// An attribute that is not borrowed from a block.
#[derive(Clone, PartialEq, Eq)]
struct Owned {
    index: NameIndex,
    name: Vec<u8>,
    value: Value,
}

#[derive(Clone, PartialEq, Eq)]
enum Value {
    Bytes(Vec<u8>),
    Inode {
        ino: DiskIno,
        size: u32,
        entry_hash: u32,
    },
}

impl Owned {
    fn of(xattr: Xattr<'_>) -> Owned {
        let value = match xattr.value {
            XattrValue::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
            XattrValue::Inode {
                ino,
                size,
                entry_hash,
            } => Value::Inode {
                ino,
                size,
                entry_hash,
            },
        };
        Owned {
            index: xattr.index,
            name: xattr.name.to_vec(),
            value,
        }
    }

    /// From a full name and the value that users see.
    fn from_user(full_name: &[u8], value: &[u8]) -> Result<Owned> {
        let (index, name) = NameIndex::split(full_name).ok_or(Error::NotSupported)?;
        let is_acl = index == NameIndex::POSIX_ACL_ACCESS || index == NameIndex::POSIX_ACL_DEFAULT;
        let value = if is_acl {
            acl::user_to_disk(value).map_err(|_| Error::Invalid)?
        } else {
            value.to_vec()
        };
        Ok(Owned {
            index,
            name: name.to_vec(),
            value: Value::Bytes(value),
        })
    }

    fn view(&self) -> Xattr<'_> {
        let value = match &self.value {
            Value::Bytes(bytes) => XattrValue::Bytes(bytes),
            Value::Inode {
                ino,
                size,
                entry_hash,
            } => XattrValue::Inode {
                ino: *ino,
                size: *size,
                entry_hash: *entry_hash,
            },
        };
        Xattr {
            index: self.index,
            name: &self.name,
            value,
        }
    }

    fn size(&self) -> usize {
        let value = match &self.value {
            Value::Bytes(bytes) => bytes.len(),
            Value::Inode { .. } => 0,
        };
        self.name.len() + value
    }

    fn has_name(&self, index: NameIndex, name: &[u8]) -> bool {
        self.index == index && self.name == name
    }
}

fn views(attributes: &[Owned]) -> Vec<Xattr<'_>> {
    attributes.iter().map(Owned::view).collect()
}

/// What an inode and its block have room for.
#[derive(Clone, Copy)]
struct Room {
    in_inode: usize,
    block: usize,
}

impl Room {
    fn fits_in_inode(&self, attributes: &[Owned]) -> bool {
        attributes.is_empty() || xattr::fits_in_inode(self.in_inode, &views(attributes))
    }

    fn fits_in_block(&self, attributes: &[Owned]) -> bool {
        attributes.is_empty() || xattr::fits_in_block(self.block, &views(attributes))
    }
}

/// Deals attributes out to inode and block; `None` when they do not fit.
fn place(mut all: Vec<Owned>, room: Room) -> Option<(Vec<Owned>, Vec<Owned>)> {
    all.sort_by(|a, b| (a.size(), a.index, &a.name).cmp(&(b.size(), b.index, &b.name)));
    // The small ones into the inode, as many as fit.
    let mut small = all.clone();
    let mut rest = Vec::new();
    while !room.fits_in_inode(&small) {
        rest.extend(small.pop());
    }
    if room.fits_in_block(&rest) {
        return Some((small, rest));
    }
    // The large ones into the block, as many as fit.
    let (mut in_inode, mut block) = (Vec::new(), Vec::new());
    while let Some(largest) = all.pop() {
        block.push(largest);
        if !room.fits_in_block(&block) {
            in_inode.extend(block.pop());
        }
    }
    room.fits_in_inode(&in_inode).then_some((in_inode, block))
}

/// Checks that these attributes fit into an inode, which may not be on the device yet.
pub(crate) fn check(state: &ExtState, ino: Ino, attributes: &[(&[u8], &[u8])]) -> Result<()> {
    let mut all = Vec::with_capacity(attributes.len());
    for (name, value) in attributes {
        if name.len() > xattr::NAME_MAX {
            return Err(Error::Range);
        }
        all.push(Owned::from_user(name, value)?);
    }
    let table = InodeTable::new(state);
    let size = usize::from(state.geometry.inode_size);
    let mut in_inode =
        size - finefs_ext_disk::inode::INODE_SIZE_MIN - usize::from(table.extra_isize);
    // What is on the device may be of an earlier use of the number: the smaller room is safe.
    let loaded = u32::try_from(ino.0)
        .ok()
        .and_then(|ino| table.load(ino).ok());
    if let Some(inode) = loaded {
        in_inode = in_inode.min(inode.disk.xattr_area().map_or(0, |area| area.len()));
        // What users do not see takes room too.
        for hidden in stored(state, &table.rules, &inode)
            .into_iter()
            .flat_map(|(a, b)| a.into_iter().chain(b))
        {
            let is_known = all.iter().any(|x| x.has_name(hidden.index, &hidden.name));
            if hidden.index.prefix().is_none() && !is_known {
                all.push(hidden);
            }
        }
    }
    let room = Room {
        in_inode,
        block: state.geometry.block_size as usize,
    };
    place(all, room).map(|_| ()).ok_or(Error::NoSpace)
}

/// The attributes on the device: in the inode and in the block.
fn stored(
    state: &ExtState,
    rules: &InodeRules,
    inode: &InodeEdit,
) -> Result<(Vec<Owned>, Vec<Owned>)> {
    let region = inode
        .disk
        .xattr_bytes()
        .map(XattrRegion::in_inode)
        .transpose();
    let region = region.map_err(|error| inode.damaged(error))?.flatten();
    let in_inode = region.map_or_else(Vec::new, |region| region.entries().map(Owned::of).collect());
    let block = inode.disk.file_acl(rules).0;
    if block == 0 {
        return Ok((in_inode, Vec::new()));
    }
    let bytes = read_block(state, inode, block)?;
    let region = XattrRegion::block(&bytes).map_err(|error| inode.damaged(error))?;
    Ok((in_inode, region.entries().map(Owned::of).collect()))
}

fn read_block(
    state: &ExtState,
    inode: &InodeEdit,
    block: u64,
) -> Result<crate::buffer::BufferRead> {
    if !state.groups.can_own(&state.geometry, block, 1) {
        return Err(inode.damaged(format_args!("attribute block {block}")));
    }
    let bytes = state.buffers.read(block)?;
    if let Some(seed) = state.seed {
        xattr::verify_block_checksum(seed, PhysBlock(block), &bytes)
            .map_err(|error| at(format_args!("inode {}", inode.ino), error))?;
    }
    Ok(bytes)
}

/// Applies changes to an inode.
pub(crate) fn apply(
    space: &mut Space<'_>,
    table: &InodeTable<'_>,
    inode: &mut InodeEdit,
    changes: &[Change],
) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let state = space.state;
    let (old_in_inode, old_block) = stored(state, &table.rules, inode)?;
    let (mut in_inode, mut block) = (old_in_inode.clone(), old_block.clone());
    let room = Room {
        in_inode: inode.disk.xattr_area().map_or(0, |area| area.len()),
        block: state.geometry.block_size as usize,
    };
    // Removals first: they make room.
    for (full_name, _) in changes {
        if let Some((index, name)) = NameIndex::split(full_name) {
            in_inode.retain(|x| !x.has_name(index, name));
            block.retain(|x| !x.has_name(index, name));
        }
    }
    let mut does_not_fit = false;
    for (full_name, value) in changes {
        let Some(value) = value else { continue };
        in_inode.push(Owned::from_user(full_name, value)?);
        if room.fits_in_inode(&in_inode) {
            continue;
        }
        block.extend(in_inode.pop());
        does_not_fit |= !room.fits_in_block(&block);
    }
    if does_not_fit {
        in_inode.append(&mut block);
        (in_inode, block) = place(in_inode, room).ok_or(Error::NoSpace)?;
    }
    if block != old_block {
        store_block(space, table, inode, &block)?;
    }
    if in_inode != old_in_inode
        && let Some(area) = inode.disk.xattr_bytes_mut()
    {
        let built = xattr::build_in_inode(area, &views(&in_inode));
        built.map_err(|error| inode.damaged(error))?;
    }
    Ok(())
}

/// Writes the attributes of the block: into the same block if it is not shared, else into a new
/// one.
fn store_block(
    space: &mut Space<'_>,
    table: &InodeTable<'_>,
    inode: &mut InodeEdit,
    attributes: &[Owned],
) -> Result<()> {
    if attributes.is_empty() {
        return release(space, table, inode);
    }
    let state = space.state;
    let old = inode.disk.file_acl(&table.rules).0;
    let is_shared = old != 0 && {
        let bytes = read_block(state, inode, old)?;
        XattrRegion::block(&bytes)
            .map_err(|error| inode.damaged(error))?
            .refcount()
            > 1
    };
    let block = if old == 0 || is_shared {
        let new = space.allocate(inode.goal(space))?;
        if is_shared {
            release(space, table, inode)?;
        }
        inode.blocks_delta += 1;
        let set = inode.disk.set_file_acl(&table.rules, PhysBlock(new));
        set.map_err(|error| inode.damaged(error))?;
        new
    } else {
        old
    };
    let mut buffer = state.buffers.zeroed(block);
    xattr::build_block(&mut buffer, &views(attributes)).map_err(|error| inode.damaged(error))?;
    if let Some(seed) = state.seed {
        xattr::update_block_checksum(seed, PhysBlock(block), &mut buffer);
    }
    Ok(())
}

/// Takes the attribute block from an inode, and frees it when no other shares it.
pub(crate) fn release(
    space: &mut Space<'_>,
    table: &InodeTable<'_>,
    inode: &mut InodeEdit,
) -> Result<()> {
    let state = space.state;
    let block = inode.disk.file_acl(&table.rules).0;
    if block == 0 {
        return Ok(());
    }
    let bytes = read_block(state, inode, block)?;
    let region = XattrRegion::block(&bytes).map_err(|error| inode.damaged(error))?;
    let refcount = region.refcount();
    if refcount > 1 {
        let mut buffer = state.buffers.modify(block)?;
        xattr::set_refcount(&mut buffer, refcount - 1);
        if let Some(seed) = state.seed {
            xattr::update_block_checksum(seed, PhysBlock(block), &mut buffer);
        }
    } else {
        space.free_metadata(block);
    }
    inode.blocks_delta -= 1;
    inode
        .disk
        .set_file_acl(&table.rules, PhysBlock(0))
        .map_err(|error| inode.damaged(error))
}
