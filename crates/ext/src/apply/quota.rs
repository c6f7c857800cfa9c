//! What a batch changes of what users, groups and projects have, and the quota files that keep it.
//!
//! Each inode of a batch is counted as it was and as it is then. So what the files say is what a
//! count over all inodes gives, after every commit.
//!
//! Values of attributes that lie in inodes of their own (ea_inode) count for each inode that has
//! the attribute, though several may share one: their clusters, which are among its blocks, and one
//! inode each. The inodes that hold them count for nobody. (Linux `ext4_xattr_inode_alloc_quota`
//! and `ext4_get_inode_usage`; e2fsck `check_blocks`.)

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use finefs_ext_disk::Ino as DiskIno;
use finefs_ext_disk::inode::{InodeFlags, InodeRules};
use finefs_ext_disk::quota::{
    BLOCK_SIZE, BlockHead, DEPTH, ENTRIES, ENTRY_SIZE, QuotaEntry, QuotaInfo, QuotaKind, ROOT,
    entry_offset, reference_offset,
};
use finefs_namespace::{BlockNo, Error, Extent, ExtentState, Ino, LogicalBlock, Result};

use super::inode::{InodeEdit, InodeTable};
use super::map::{self, Run};
use super::space::Space;
use super::xattrs;
use crate::load;
use crate::load::quota::locate;
use crate::quota::{Account, Amount, Book, Ledger, QuotaUsage, Quotas, ROOM_BLOCKS};
use crate::state::ExtState;

/// What an inode has, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holding {
    /// User, group, project.
    ids: [u32; 3],
    bytes: u64,
    /// It, and the values of its attributes that lie in inodes.
    inodes: u64,
}

impl Holding {
    /// What an inode counts for; `None` for the file system's own, and for those that hold values
    /// of attributes. An error where the device fails.
    pub fn of(state: &ExtState, rules: &InodeRules, inode: &InodeEdit) -> Result<Option<Holding>> {
        let Some(quotas) = state.quotas.get() else {
            return Ok(None);
        };
        let (ino, disk) = (inode.ino, &inode.disk);
        let is_own = ino < state.geometry.first_ino.0 && DiskIno(ino) != DiskIno::ROOT
            || quotas.ledgers().iter().any(|ledger| ledger.ino == ino)
            || disk.flags().contains(InodeFlags::EA_INODE);
        if is_own {
            return Ok(None);
        }
        Ok(Some(Holding {
            ids: [disk.uid(), disk.gid(), disk.project().unwrap_or(0)],
            bytes: disk.blocks_512(rules) * 512,
            inodes: 1 + xattrs::values_apart(state, rules, inode)?,
        }))
    }
}

/// What a batch changes.
#[derive(Default)]
pub(super) struct Changes {
    by_id: [BTreeMap<u32, Amount>; 3],
}

impl Changes {
    /// An inode had this before the batch, and has that after it.
    pub fn note(&mut self, before: Option<Holding>, after: Option<Holding>) {
        for (holding, sign) in [(before, -1), (after, 1)] {
            let Some(holding) = holding else { continue };
            for (ids, id) in self.by_id.iter_mut().zip(holding.ids) {
                let amount = ids.entry(id).or_default();
                amount.bytes += sign * holding.bytes as i64;
                amount.inodes += sign * holding.inodes as i64;
            }
        }
    }

    /// Adds what was noted elsewhere.
    pub fn absorb(&mut self, other: Changes) {
        for (ids, others) in self.by_id.iter_mut().zip(other.by_id) {
            for (id, more) in others {
                let amount = ids.entry(id).or_default();
                amount.bytes += more.bytes;
                amount.inodes += more.inodes;
            }
        }
    }

    /// Those that make the quota files say this.
    pub fn towards(state: &ExtState, usage: &[QuotaUsage]) -> Changes {
        let mut changes = Changes::default();
        for ledger in state
            .quotas
            .get()
            .iter()
            .flat_map(|quotas| quotas.ledgers())
        {
            let of_kind = usage.iter().find(|(kind, _)| *kind == ledger.kind);
            if let Some((_, usage)) = of_kind {
                changes.by_id[index(ledger.kind)] = ledger.book.lock().missing(usage);
            }
        }
        changes
    }

    /// Puts the changes into the quota files.
    pub fn settle(self, space: &mut Space<'_>, table: &mut InodeTable<'_>, now: u64) -> Result<()> {
        let state = space.state;
        let Some(quotas) = state.quotas.get() else {
            return Ok(());
        };
        let mut outcome = Ok(());
        for ledger in quotas.ledgers() {
            let changes = &self.by_id[index(ledger.kind)];
            let settled = settle((quotas, ledger), changes, space, table, now);
            outcome = outcome.and(settled);
        }
        outcome
    }
}

/// Where a kind stands in [`Holding::ids`].
fn index(kind: QuotaKind) -> usize {
    match kind {
        QuotaKind::User => 0,
        QuotaKind::Group => 1,
        QuotaKind::Project => 2,
    }
}

fn settle(
    (quotas, ledger): (&Quotas, &Ledger),
    changes: &BTreeMap<u32, Amount>,
    space: &mut Space<'_>,
    table: &mut InodeTable<'_>,
    now: u64,
) -> Result<()> {
    let (changed, sets_grace): (Vec<(u32, Account)>, bool) = {
        let mut book = ledger.book.lock();
        let (mut ids, sets_grace) = book.take_set();
        let Book { info, accounts, .. } = &mut *book;
        let counted = changes.iter();
        let counted = counted.filter(|(_, amount)| **amount != Amount::default());
        ids.extend(counted.map(|(id, _)| *id));
        let changed = ids.into_iter().map(|id| {
            let account = accounts.entry(id).or_default();
            account.entry.id = id;
            account.take(changes.get(&id).copied().unwrap_or_default(), info, now);
            (id, *account)
        });
        (changed.collect(), sets_grace)
    };
    if changed.is_empty() && !sets_grace {
        return Ok(());
    }
    let info = ledger.book.lock().info;
    let mut file = File::open(ledger, info, space, table)?;
    if sets_grace {
        file.edit(0, |bytes| info.write(bytes, ledger.kind))?;
    }
    for (id, mut account) in changed {
        if account.place.0 == 0 {
            if quotas.take_room(ledger, id) {
                (0..ROOM_BLOCKS).for_each(|_| file.space.groups().give_reserved());
            }
            account.place = file.insert(id)?;
            if let Some(held) = ledger.book.lock().accounts.get_mut(&id) {
                held.place = account.place;
            }
        }
        let (block, offset) = account.place;
        file.edit(block, |bytes| {
            account.entry.write(&mut bytes[offset..offset + ENTRY_SIZE]);
        })?;
    }
    let before = u64::from(info.blocks);
    let info = file.close(table)?;
    let grown = u64::from(info.blocks) - before;
    quotas.size.blocks.fetch_add(grown, Ordering::AcqRel);
    ledger.book.lock().info = info;
    Ok(())
}

/// A quota file while it is changed.
struct File<'s, 'a> {
    space: &'s mut Space<'a>,
    kind: QuotaKind,
    inode: InodeEdit,
    extents: Vec<Extent>,
    rules: InodeRules,
    info: QuotaInfo,
    info_before: QuotaInfo,
}

impl<'s, 'a> File<'s, 'a> {
    fn open(
        ledger: &Ledger,
        info: QuotaInfo,
        space: &'s mut Space<'a>,
        table: &InodeTable<'_>,
    ) -> Result<File<'s, 'a>> {
        let inode = table.load(ledger.ino)?;
        let ino = Ino(u64::from(ledger.ino));
        let extents = load::map::load(space.state, ino, &inode.disk)?.extents;
        Ok(File {
            space,
            kind: ledger.kind,
            inode,
            extents,
            rules: table.rules,
            info,
            info_before: info,
        })
    }

    /// Changes a block.
    fn edit<T>(&mut self, block: u32, edit: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        let state = self.space.state;
        let place = locate(&self.extents, block, state.geometry.block_size);
        let (physical, offset) =
            place.ok_or_else(|| self.inode.damaged(format_args!("block {block} is missing")))?;
        let mut buffer = state.buffers.modify(physical)?;
        Ok(edit(&mut buffer[offset..offset + BLOCK_SIZE]))
    }

    /// Gives an id a place for its entry.
    fn insert(&mut self, id: u32) -> Result<(u32, usize)> {
        let leaf = match self.info.free_entry {
            0 => {
                let leaf = self.new_block()?;
                self.info.free_entry = leaf;
                leaf
            }
            leaf => leaf,
        };
        let (offset, head) = self.edit(leaf, |bytes| {
            let mut head = BlockHead::parse(bytes);
            let free = (0..ENTRIES)
                .map(entry_offset)
                .find(|offset| QuotaEntry::parse(&bytes[*offset..*offset + ENTRY_SIZE]).is_none());
            head.entries += 1;
            let left = head;
            if usize::from(head.entries) >= ENTRIES {
                // It leaves the list of those with room.
                head.next = 0;
                head.previous = 0;
            }
            head.write(bytes);
            (free, left)
        })?;
        let offset = offset.ok_or_else(|| {
            self.inode
                .damaged("a full block is listed as one with room")
        })?;
        if usize::from(head.entries) >= ENTRIES {
            self.info.free_entry = head.next;
            if head.next != 0 {
                self.edit(head.next, |bytes| {
                    let mut next = BlockHead::parse(bytes);
                    next.previous = 0;
                    next.write(bytes);
                })?;
            }
        }
        self.refer(id, leaf)?;
        Ok((leaf, offset))
    }

    /// Makes the tree's reference of an id lead to its block of entries.
    fn refer(&mut self, id: u32, leaf: u32) -> Result<()> {
        let mut node = ROOT;
        for level in 0..DEPTH {
            let offset = reference_offset(id, level);
            let below = self.edit(node, |bytes| get(bytes, offset))?;
            if below != 0 && level + 1 < DEPTH {
                node = below;
                continue;
            }
            let below = match level + 1 < DEPTH {
                true => self.new_block()?,
                false => leaf,
            };
            self.edit(node, |bytes| {
                bytes[offset..offset + 4].copy_from_slice(&below.to_le_bytes());
            })?;
            node = below;
        }
        Ok(())
    }

    /// A block of zeros: one that is free in the file, or one more.
    fn new_block(&mut self) -> Result<u32> {
        let free = self.info.free_block;
        if free != 0 {
            self.info.free_block = self.edit(free, |bytes| {
                let next = BlockHead::parse(bytes).next;
                bytes.fill(0);
                next
            })?;
            return Ok(free);
        }
        let number = self.info.blocks;
        let block_size = self.space.state.geometry.block_size;
        let logical =
            LogicalBlock::of_byte(u64::from(number) * BLOCK_SIZE as u64, block_size.into());
        if locate(&self.extents, number, block_size).is_none() {
            let goal = self.inode.goal(self.space);
            let last = self.extents.iter().find(|last| last.end() == logical);
            let before = last.map(|last| last.physical.0 + last.length - 1);
            let on_disk = finefs_ext_disk::LogicalBlock(logical.0);
            let physical = self.space.allocate_for(on_disk, before, goal)?;
            drop(self.space.state.buffers.zeroed(physical));
            let run = Run {
                logical: on_disk,
                physical,
                length: 1,
                is_unwritten: false,
            };
            map::map(self.space, &mut self.inode, run)?;
            self.extents.push(Extent {
                logical,
                physical: BlockNo(physical),
                length: 1,
                state: ExtentState::Written,
            });
            self.extents.sort_unstable_by_key(|extent| extent.logical);
        }
        self.edit(number, |bytes| bytes.fill(0))?;
        self.info.blocks += 1;
        Ok(number)
    }

    /// Writes what is said of the whole file.
    fn close(mut self, table: &mut InodeTable<'_>) -> Result<QuotaInfo> {
        let (info, kind) = (self.info, self.kind);
        if info == self.info_before {
            return Ok(info);
        }
        self.edit(0, |bytes| info.write(bytes, kind))?;
        let size = u64::from(info.blocks) * BLOCK_SIZE as u64;
        let size = size.max(self.inode.disk.size(&self.rules));
        let wrong = |error| Error::corrupt(format_args!("quota file: {error}"));
        self.inode.disk.set_size(&self.rules, size).map_err(wrong)?;
        self.inode.settle_blocks(&self.rules)?;
        table.store(&mut self.inode)?;
        Ok(info)
    }
}

fn get(bytes: &[u8], offset: usize) -> u32 {
    let word: [u8; 4] = std::array::from_fn(|index| bytes[offset + index]);
    u32::from_le_bytes(word)
}
