//! Extended attributes: into the inode while they fit, else into the inode's attribute block.
//!
//! A changed attribute goes where there is room, the inode first; the others stay where they are.
//! Only when that fails all are dealt out anew by [`place`], which depends on nothing but the set.
//! So [`check`], which asks the same function beforehand, knows that applying will succeed.

use finefs_ext_disk::fscrypt;
use finefs_ext_disk::inode::{BLOCK_AREA_SIZE, INODE_SIZE_MIN, InodeRules};
use finefs_ext_disk::xattr::{self, NameIndex, Xattr, XattrRegion, XattrValue};
use finefs_ext_disk::{Ino as DiskIno, PhysBlock, acl};
use finefs_namespace::{Charge, Error, Ino, Result};

use super::inode::{InodeEdit, InodeTable};
use super::space::Space;
use super::value_inode::{self, Changes as Counts, Stored};
use crate::crypt::Presence;
use crate::error::at;
use crate::state::ExtState;
use crate::sync::MutexGuard;

/// The attribute that holds what inline data has beyond `i_block`.
const INLINE_NAME: &[u8] = b"data";

/// Values from this length on may be put into inodes of their own: for these the operations that
/// set them reserve one.
pub(super) const MOVABLE_MIN: usize = 128;

/// What becomes of the attribute that inline data has in the inode.
pub(crate) enum InlineValue<'a> {
    Unchanged,
    Set(&'a [u8]),
    Removed,
}

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
    /// In an inode of its own.
    Inode(Stored),
    /// To be put into an inode of its own.
    Moving(Vec<u8>),
}

impl Owned {
    fn of(xattr: Xattr<'_>) -> Owned {
        let value = match xattr.value {
            XattrValue::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
            XattrValue::Inode {
                ino,
                size,
                entry_hash,
            } => Value::Inode(Stored {
                ino,
                size,
                entry_hash,
            }),
        };
        Owned {
            index: xattr.index,
            name: xattr.name.to_vec(),
            value,
        }
    }

    /// From a full name and the value that users see.
    fn from_user(state: &ExtState, full_name: &[u8], value: &[u8]) -> Result<Owned> {
        let (index, name) = NameIndex::split(full_name).ok_or(Error::NotSupported)?;
        let is_acl = index == NameIndex::POSIX_ACL_ACCESS || index == NameIndex::POSIX_ACL_DEFAULT;
        let value = if is_acl {
            acl::user_to_disk(value).map_err(|_| Error::Invalid)?
        } else {
            value.to_vec()
        };
        let block_bytes = state.buffers.block_size_bytes();
        let is_large = value.len() > value_inode::inline_value_max(block_bytes);
        Ok(Owned {
            index,
            name: name.to_vec(),
            value: match is_large && state.has_value_inodes {
                true => Value::Moving(value),
                false => Value::Bytes(value),
            },
        })
    }

    /// Lets the value have an inode of its own, where it may; false where it may not.
    fn move_out(&mut self, state: &ExtState) -> bool {
        match &mut self.value {
            Value::Bytes(bytes) if state.has_value_inodes && bytes.len() >= MOVABLE_MIN => {
                self.value = Value::Moving(std::mem::take(bytes));
                true
            }
            _ => false,
        }
    }

    /// What it has in an inode of its own.
    fn stored(&self) -> Option<Stored> {
        match &self.value {
            Value::Inode(stored) => Some(*stored),
            _ => None,
        }
    }

    /// How an inode is encrypted.
    fn context(value: Vec<u8>) -> Owned {
        Owned {
            index: NameIndex::ENCRYPTION,
            name: fscrypt::XATTR_NAME.to_vec(),
            value: Value::Bytes(value),
        }
    }

    /// What inline data has in the inode.
    fn inline(value: Vec<u8>) -> Owned {
        Owned {
            index: NameIndex::SYSTEM,
            name: INLINE_NAME.to_vec(),
            value: Value::Bytes(value),
        }
    }

    fn view(&self) -> Xattr<'_> {
        let value = match &self.value {
            Value::Bytes(bytes) => XattrValue::Bytes(bytes),
            Value::Inode(stored) => XattrValue::Inode {
                ino: stored.ino,
                size: stored.size,
                entry_hash: stored.entry_hash,
            },
            // It takes as much room.
            Value::Moving(bytes) => XattrValue::Inode {
                ino: DiskIno(1),
                size: bytes.len() as u32,
                entry_hash: 0,
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
            Value::Inode(_) | Value::Moving(_) => 0,
        };
        self.name.len() + value
    }

    /// True for what inline data has in the inode: nothing else can be there.
    fn is_pinned(&self) -> bool {
        self.has_name(NameIndex::SYSTEM, INLINE_NAME)
    }

    /// The length of the value, wherever it is.
    fn value_bytes(&self) -> usize {
        match &self.value {
            Value::Bytes(bytes) | Value::Moving(bytes) => bytes.len(),
            Value::Inode(stored) => stored.size as usize,
        }
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
    fn of(state: &ExtState, inode: &InodeEdit) -> Room {
        Room {
            in_inode: inode.disk.xattr_area().map_or(0, |area| area.len()),
            block: state.geometry.block_size as usize,
        }
    }

    fn fits_in_inode(&self, attributes: &[Owned]) -> bool {
        attributes.is_empty() || xattr::fits_in_inode(self.in_inode, &views(attributes))
    }

    fn fits_in_block(&self, attributes: &[Owned]) -> bool {
        attributes.is_empty() || xattr::fits_in_block(self.block, &views(attributes))
    }
}

/// Deals attributes out to inode and block; `None` when they do not fit.
fn place(all: Vec<Owned>, room: Room) -> Option<(Vec<Owned>, Vec<Owned>)> {
    let (pinned, mut all): (Vec<_>, Vec<_>) = all.into_iter().partition(Owned::is_pinned);
    all.sort_by(|a, b| (a.size(), a.index, &a.name).cmp(&(b.size(), b.index, &b.name)));
    // The small ones into the inode, as many as fit.
    let mut small = [&pinned[..], &all[..]].concat();
    let mut rest = Vec::new();
    while !room.fits_in_inode(&small) {
        rest.push(small.pop().filter(|last| !last.is_pinned())?);
    }
    if room.fits_in_block(&rest) {
        return Some((small, rest));
    }
    // The large ones into the block, as many as fit.
    let (mut in_inode, mut block) = (pinned, Vec::new());
    while let Some(largest) = all.pop() {
        block.push(largest);
        if !room.fits_in_block(&block) {
            in_inode.extend(block.pop());
        }
    }
    room.fits_in_inode(&in_inode).then_some((in_inode, block))
}

/// How long the value of inline data can be in an inode beside its other attributes there; `None`
/// where there is no room for any.
pub(crate) fn inline_room(inode: &InodeEdit) -> Result<Option<usize>> {
    let area = inode.disk.xattr_bytes().unwrap_or_default();
    let region = XattrRegion::in_inode(area).map_err(|error| inode.damaged(error))?;
    let others = region.into_iter().flat_map(|region| region.entries());
    let is_other = |x: &Xattr<'_>| !Owned::of(*x).is_pinned();
    let others: Vec<Xattr<'_>> = others.filter(is_other).collect();
    Ok(xattr::inline_value_max(area.len(), &others))
}

/// Checks that these attributes fit into an inode, which may not be on the device yet, beside a
/// content of so many bytes. Gives what the value of the last takes on quotas if it is set now. (A
/// commit gives an inode to one, too, that has room only if the others are dealt out anew.)
pub(crate) fn check(
    state: &ExtState,
    ino: Ino,
    inline_bytes: Option<u64>,
    attributes: &[(&[u8], &[u8])],
) -> Result<Charge> {
    let mut all = Vec::with_capacity(attributes.len());
    for (name, value) in attributes {
        if name.len() > xattr::NAME_MAX {
            return Err(Error::Range);
        }
        all.push(Owned::from_user(state, name, value)?);
    }
    let (in_inode, inline) = room_and_hidden(state, ino, inline_bytes, &mut all)?;
    all.extend(new_context(state, ino));
    all.extend(inline);
    let room = Room {
        in_inode,
        block: state.geometry.block_size as usize,
    };
    let last = attributes.len().checked_sub(1);
    let charge = |all: &[Owned]| last.and_then(|at| all.get(at)).map(|x| charge_of(state, x));
    if place(all.clone(), room).is_some() {
        return Ok(charge(&all).unwrap_or_default());
    }
    // The one that is set may have an inode of its own.
    let has_moved = last.and_then(|at| all.get_mut(at));
    if has_moved.is_some_and(|last| last.move_out(state)) && place(all.clone(), room).is_some() {
        return Ok(charge(&all).unwrap_or_default());
    }
    Err(Error::NoSpace)
}

/// What the value of an attribute takes on quotas, where it lies in an inode of its own. (One that
/// is as long as what it replaces is taken for that, which counts as much.)
fn charge_of(state: &ExtState, attribute: &Owned) -> Charge {
    if matches!(attribute.value, Value::Bytes(_)) {
        return Charge::default();
    }
    let cluster_bytes = cluster_bytes(state) as usize;
    Charge {
        inodes: 1,
        bytes: attribute.value_bytes().next_multiple_of(cluster_bytes) as u64,
        ..Charge::default()
    }
}

/// The encryption context of an inode that is not on the device yet.
fn new_context(state: &ExtState, ino: Ino) -> Option<Owned> {
    let file = state.keyring.as_ref()?.known(ino)?;
    let context = file
        .context
        .filter(|_| file.presence != Presence::OnImage)?;
    Some(Owned::context(context.bytes()?.to_vec()))
}

/// The room for attributes in an inode, and what a content of so many bytes has there. `all` gets
/// what users do not see, which takes room too, and learns which values lie in inodes.
fn room_and_hidden(
    state: &ExtState,
    ino: Ino,
    mut inline_bytes: Option<u64>,
    all: &mut Vec<Owned>,
) -> Result<(usize, Option<Owned>)> {
    let table = InodeTable::new(state);
    let size = usize::from(state.geometry.inode_size);
    let mut in_inode = size - INODE_SIZE_MIN - usize::from(table.extra_isize);
    let mut is_directory = false;
    // What is on the device may be of an earlier use of the number: the smaller room is safe.
    let loaded = u32::try_from(ino.0)
        .ok()
        .and_then(|ino| table.load(ino).ok());
    if let Some(inode) = loaded {
        in_inode = in_inode.min(inode.disk.xattr_area().map_or(0, |area| area.len()));
        is_directory = inode.is_directory();
        let is_in_use = inode.disk.links_count() != 0;
        if is_in_use && is_directory && !inode.holds_inline_data() {
            inline_bytes = None;
        }
        let stored = stored(state, &table.rules, &inode).into_iter();
        for hidden in stored.flat_map(|(a, b)| a.into_iter().chain(b)) {
            hide(hidden, all);
        }
    }
    let Some(bytes) = inline_bytes else {
        return Ok((in_inode, None));
    };
    let beyond = bytes.saturating_sub(BLOCK_AREA_SIZE as u64);
    let mut beyond = usize::try_from(beyond).unwrap_or(usize::MAX);
    if is_directory {
        // It goes to blocks when it needs more.
        beyond = beyond.min(xattr::inline_value_max(in_inode, &[]).unwrap_or(0));
    }
    match beyond > in_inode {
        true => Err(Error::NoSpace),
        false => Ok((in_inode, Some(Owned::inline(vec![0; beyond])))),
    }
}

/// Takes an attribute of the device in among those of users, if they do not see it, or tells theirs
/// that its value lies in an inode.
fn hide(stored: Owned, all: &mut Vec<Owned>) {
    let known = all
        .iter_mut()
        .find(|x| x.has_name(stored.index, &stored.name));
    match (known, stored.stored()) {
        (Some(known), Some(value)) if known.value_bytes() == value.size as usize => {
            known.value = Value::Inode(value);
        }
        (None, _) if stored.index.prefix().is_none() && !stored.is_pinned() => all.push(stored),
        _ => {}
    }
}

/// The attributes on the device: in the inode and in the block.
fn stored(
    state: &ExtState,
    rules: &InodeRules,
    inode: &InodeEdit,
) -> Result<(Vec<Owned>, Vec<Owned>)> {
    let in_inode = stored_in_inode(inode)?;
    let block = inode.disk.file_acl(rules).0;
    if block == 0 {
        return Ok((in_inode, Vec::new()));
    }
    let bytes = read_block(state, inode, block)?;
    let region = XattrRegion::block(&bytes).map_err(|error| inode.damaged(error))?;
    Ok((in_inode, region.entries().map(Owned::of).collect()))
}

fn stored_in_inode(inode: &InodeEdit) -> Result<Vec<Owned>> {
    let region = inode
        .disk
        .xattr_bytes()
        .map(XattrRegion::in_inode)
        .transpose();
    let region = region.map_err(|error| inode.damaged(error))?.flatten();
    Ok(region.map_or_else(Vec::new, |region| region.entries().map(Owned::of).collect()))
}

/// Whether an inode has room for a project, as those have that are made here where inodes are large
/// enough; or for the fields of these, beside the attributes that lie in it.
pub(crate) fn has_room_for_project(state: &ExtState, ino: Ino) -> Result<bool> {
    if usize::from(state.geometry.inode_size) <= INODE_SIZE_MIN {
        return Ok(false);
    }
    let inode = state.read_inode(ino)?;
    // One without links is not there yet, or about to go.
    if inode.links_count() == 0 || inode.project().is_some() {
        return Ok(true);
    }
    let table = InodeTable::new(state);
    let number = u32::try_from(ino.0).map_err(|_| Error::Stale)?;
    let inode = table.load(number)?;
    Ok(fits_widened(&table, &inode, &stored_in_inode(&inode)?))
}

fn fits_widened(table: &InodeTable<'_>, inode: &InodeEdit, attributes: &[Owned]) -> bool {
    let used = INODE_SIZE_MIN + usize::from(table.extra_isize);
    let room = inode.disk.as_bytes().len().saturating_sub(used);
    attributes.is_empty() || xattr::fits_in_inode(room, &views(attributes))
}

/// Gives an inode the fields of new ones, where [`has_room_for_project`] found room before (Linux
/// `ext4_expand_extra_isize`, which moves attributes to the block, too). Attributes that are set
/// are checked against that room; only a commit in between can have put some there.
pub(crate) fn widen(table: &InodeTable<'_>, inode: &mut InodeEdit) -> Result<()> {
    let attributes = stored_in_inode(inode)?;
    if !fits_widened(table, inode, &attributes) {
        log::warn!("inode {}: has no room for its project any more", inode.ino);
        return Ok(());
    }
    let widened = inode.disk.widen(table.extra_isize);
    widened.map_err(|error| inode.damaged(error))?;
    if let Some(area) = inode.disk.xattr_bytes_mut() {
        let built = xattr::build_in_inode(area, &views(&attributes));
        built.map_err(|error| inode.damaged(error))?;
    }
    Ok(())
}

fn read_block(
    state: &ExtState,
    inode: &InodeEdit,
    block: u64,
) -> Result<finefs_buffers::BufferRead> {
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
    table: &mut InodeTable<'_>,
    inode: &mut InodeEdit,
    changes: &[Change],
    inline: InlineValue<'_>,
) -> Result<()> {
    if changes.is_empty() && matches!(inline, InlineValue::Unchanged) {
        return Ok(());
    }
    let _shared = lock_shared(space, table, inode);
    let state = space.state;
    let before = stored(state, &table.rules, inode)?;
    let wanted = after(state, inode, before.clone(), changes, inline)?;
    store_all(space, table, inode, before, wanted)
}

/// Gives an inode its encryption context, which users do not see.
pub(crate) fn set_context(
    space: &mut Space<'_>,
    table: &mut InodeTable<'_>,
    inode: &mut InodeEdit,
    context: &[u8],
) -> Result<()> {
    let _shared = lock_shared(space, table, inode);
    let before = stored(space.state, &table.rules, inode)?;
    let (mut in_inode, mut block) = before.clone();
    let room = Room::of(space.state, inode);
    in_inode.push(Owned::context(context.to_vec()));
    if !room.fits_in_inode(&in_inode) {
        block.extend(in_inode.pop());
    }
    if !room.fits_in_block(&block) {
        in_inode.append(&mut block);
        (in_inode, block) = place(in_inode, room).ok_or(Error::NoSpace)?;
    }
    store_all(space, table, inode, before, (in_inode, block))
}

/// Puts attributes into the inode and its block, which hold `before`.
fn store_all(
    space: &mut Space<'_>,
    table: &mut InodeTable<'_>,
    inode: &mut InodeEdit,
    before: (Vec<Owned>, Vec<Owned>),
    (mut in_inode, mut block): (Vec<Owned>, Vec<Owned>),
) -> Result<()> {
    let state = space.state;
    let mut made = Vec::new();
    for attribute in in_inode.iter_mut().chain(&mut block) {
        if let Value::Moving(value) = &attribute.value {
            let stored = value_inode::create(space, table, inode, &attribute.name, value)?;
            attribute.value = Value::Inode(stored);
            made.push(stored.ino);
        }
    }
    let (old_in_inode, old_block) = before;
    let counts = counts(
        (&old_in_inode, &in_inode),
        (&old_block, &block),
        is_shared(state, &table.rules, inode)?,
        &made,
    );
    let taken = blocks_of(state, in_inode.iter().chain(&block));
    inode.blocks_delta += taken - blocks_of(state, old_in_inode.iter().chain(&old_block));
    if block != old_block {
        store_block(space, table, inode, &block)?;
    }
    if in_inode != old_in_inode
        && let Some(area) = inode.disk.xattr_bytes_mut()
    {
        let built = xattr::build_in_inode(area, &views(&in_inode));
        built.map_err(|error| inode.damaged(error))?;
    }
    counts.apply(space, table, state.now_seconds());
    Ok(())
}

/// Where the attributes are after changes: in the inode and in the block.
fn after(
    state: &ExtState,
    inode: &InodeEdit,
    (mut in_inode, mut block): (Vec<Owned>, Vec<Owned>),
    changes: &[Change],
    inline: InlineValue<'_>,
) -> Result<(Vec<Owned>, Vec<Owned>)> {
    let room = Room::of(state, inode);
    // Removals first: they make room.
    for (full_name, _) in changes {
        if let Some((index, name)) = NameIndex::split(full_name) {
            in_inode.retain(|x| !x.has_name(index, name));
            block.retain(|x| !x.has_name(index, name));
        }
    }
    if !matches!(inline, InlineValue::Unchanged) {
        in_inode.retain(|x| !x.is_pinned());
    }
    let mut does_not_fit = false;
    if let InlineValue::Set(value) = inline {
        in_inode.insert(0, Owned::inline(value.to_vec()));
        does_not_fit = !room.fits_in_inode(&in_inode);
    }
    for (full_name, value) in changes {
        let Some(value) = value else { continue };
        in_inode.push(Owned::from_user(state, full_name, value)?);
        if does_not_fit || room.fits_in_inode(&in_inode) {
            continue;
        }
        block.extend(in_inode.pop());
        if room.fits_in_block(&block) {
            continue;
        }
        let has_moved = block.last_mut().is_some_and(|last| last.move_out(state));
        does_not_fit |= !has_moved || !room.fits_in_block(&block);
    }
    if does_not_fit {
        in_inode.append(&mut block);
        (in_inode, block) = place(in_inode, room).ok_or(Error::NoSpace)?;
    }
    Ok((in_inode, block))
}

/// How many entries more or fewer name the inodes that hold values, of what is `(before, after)` in
/// the inode and in its block. A shared block stays as it is, with its entries. What was made
/// counts its entry already.
fn counts(
    in_inode: (&[Owned], &[Owned]),
    block: (&[Owned], &[Owned]),
    is_block_shared: bool,
    made: &[DiskIno],
) -> Counts {
    let mut counts = Counts::default();
    let mut add = |attributes: &[Owned], entries: i64| {
        let stored = attributes.iter().filter_map(Owned::stored);
        for stored in stored.filter(|stored| !made.contains(&stored.ino)) {
            counts.add(stored.ino, entries);
        }
    };
    add(in_inode.0, -1);
    add(in_inode.1, 1);
    if block.0 != block.1 {
        add(block.0, if is_block_shared { 0 } else { -1 });
        add(block.1, 1);
    }
    counts
}

/// The blocks of values in inodes of their own, in whole clusters: an inode counts them as its own.
fn blocks_of<'o>(state: &ExtState, attributes: impl Iterator<Item = &'o Owned>) -> i64 {
    let ratio = state.geometry.cluster_ratio;
    let stored = attributes.filter_map(Owned::stored);
    stored
        .map(|stored| i64::from(stored.size.div_ceil(cluster_bytes(state)) * ratio))
        .sum()
}

fn cluster_bytes(state: &ExtState) -> u32 {
    state.geometry.block_size * state.geometry.cluster_ratio
}

/// How many values of an inode's attributes lie in inodes of their own. Attributes that are damaged
/// have none: they stay as they are. An error where the device fails.
pub(crate) fn values_apart(state: &ExtState, rules: &InodeRules, inode: &InodeEdit) -> Result<u64> {
    if !state.has_value_inodes {
        return Ok(0);
    }
    match stored(state, rules, inode) {
        Ok((in_inode, block)) => {
            let stored = in_inode.iter().chain(&block).filter_map(Owned::stored);
            Ok(stored.count() as u64)
        }
        Err(error @ Error::Io(_)) => Err(error),
        Err(_) => Ok(0),
    }
}

/// How many inodes an inode counts for on quotas, as it is on the device.
pub(crate) fn quota_inodes(state: &ExtState, ino: Ino) -> Result<u64> {
    if state.quotas.get().is_none() || !state.has_value_inodes {
        return Ok(1);
    }
    let table = InodeTable::new(state);
    let number = u32::try_from(ino.0).map_err(|_| Error::Stale)?;
    match table.load(number) {
        Ok(inode) if inode.disk.links_count() > 0 => {
            Ok(1 + values_apart(state, &table.rules, &inode)?)
        }
        Err(error @ Error::Io(_)) => Err(error),
        // It is not there yet.
        _ => Ok(1),
    }
}

/// True when other inodes have the attribute block too.
fn is_shared(state: &ExtState, rules: &InodeRules, inode: &InodeEdit) -> Result<bool> {
    match inode.disk.file_acl(rules).0 {
        0 => Ok(false),
        block => {
            let bytes = read_block(state, inode, block)?;
            let region = XattrRegion::block(&bytes).map_err(|error| inode.damaged(error))?;
            Ok(region.refcount() > 1)
        }
    }
}

/// Takes all attributes from an inode that goes. What cannot be freed is an error, and leaks.
pub(crate) fn release_all(
    space: &mut Space<'_>,
    table: &mut InodeTable<'_>,
    inode: &mut InodeEdit,
) -> Result<()> {
    if !space.state.has_value_inodes {
        return release(space, table, inode);
    }
    let counted = stored(space.state, &table.rules, inode).and_then(|(in_inode, block)| {
        let is_shared = is_shared(space.state, &table.rules, inode)?;
        Ok(counts((&in_inode, &[]), (&block, &[]), is_shared, &[]))
    });
    let released = release(space, table, inode);
    let now = space.state.now_seconds();
    counted?.apply(space, table, now);
    released
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
        return take_block(space, table, inode);
    }
    let state = space.state;
    let old = inode.disk.file_acl(&table.rules).0;
    let is_shared = is_shared(state, &table.rules, inode)?;
    let block = if old == 0 || is_shared {
        let new = space.allocate(inode.goal(space))?;
        if is_shared {
            take_block(space, table, inode)?;
        }
        inode.blocks_delta += space.cluster_blocks();
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

/// Keeps other threads from a block that may be theirs too.
fn lock_shared<'a>(
    space: &Space<'a>,
    table: &InodeTable<'_>,
    inode: &InodeEdit,
) -> Option<MutexGuard<'a, ()>> {
    let has_block = inode.disk.file_acl(&table.rules).0 != 0;
    has_block.then(|| space.groups().lock_xattrs())
}

/// Takes the attribute block from an inode, and frees it when no other shares it.
pub(crate) fn release(
    space: &mut Space<'_>,
    table: &InodeTable<'_>,
    inode: &mut InodeEdit,
) -> Result<()> {
    let _shared = lock_shared(space, table, inode);
    take_block(space, table, inode)
}

/// [`release`] by who has the block to itself.
fn take_block(space: &mut Space<'_>, table: &InodeTable<'_>, inode: &mut InodeEdit) -> Result<()> {
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
    inode.blocks_delta -= space.cluster_blocks();
    inode
        .disk
        .set_file_acl(&table.rules, PhysBlock(0))
        .map_err(|error| inode.damaged(error))
}
