//! Applying a batch of the namespace's changes to the metadata of an image.
//!
//! # Purpose
//! One batch at a time: every object that a batch changes is edited in the buffer cache, then all
//! buffers are made durable, and what the batch freed goes back to the live allocator.
//!
//! | Module | What |
//! |---|---|
//! | `pieces` | the parts of a batch that several threads apply |
//! | [`groups`] | bitmaps and descriptors |
//! | [`space`] | what is taken and freed |
//! | [`inode`] | one inode; the inode table |
//! | [`map`] | extent trees and block maps |
//! | [`inline`] | contents that lie in inodes |
//! | [`encrypted`] | what is encrypted |
//! | [`directory`] | entries, plain and indexed |
//! | [`xattrs`] | extended attributes |
//! | [`value_inode`] | their values that lie in inodes of their own |
//! | [`orphans`] | inodes in use without a name |
//! | [`quota`] | what users, groups and projects have by the batch |
//! | [`durable`] | through the journal, or without one, to the device |
//! | [`reservation`] | how many blocks applying can need |
//! | [`batch_cost`] | how many blocks applying can change |
//!
//! # Invariants
//! 1. What is read is checked; damage is reported and does not spread: the object at hand is left,
//!    the others of the batch are applied, the superblock notes that there were errors, and the
//!    commit fails. It should not come to that: what a change will need is looked at before the
//!    operation succeeds (a directory when it is loaded, bitmaps and inode table blocks when
//!    something is allocated or promised, the orphan file and the journal at mount). What cannot be
//!    freed is only noted: see [`space`]. Where the device fails nothing of the batch is written.
//!    Where it has no storage for what is to be written (a sparse image on a full disk) nothing is
//!    written either, but the commit is only postponed: the batch stays in the buffers, and the
//!    next commit takes it over.
//! 2. Nothing fails for lack of space: operations reserved what applying them can need.
//! 3. Metadata is written after the data that it points at, and what a batch freed is given out
//!    again only when the batch is durable. With a journal a crash leaves all of a batch or
//!    nothing. Without one a crash within a commit can leave the batch half written; e2fsck then
//!    finds inodes whole and repairs counts and names.
//!
//! # Threads
//! A large batch is cut into pieces (`pieces`), which several threads apply. A piece has all inodes
//! of the blocks of the inode table that it touches, with their maps, directories and blocks of
//! extended attributes. So no two threads edit one block, but for
//! - bitmaps and descriptors, whose edits threads share, under a lock for some groups ([`groups`]);
//! - blocks of extended attributes that inodes share, which one thread at a time looks at.
//!
//! One thread alone
//! - gathers pieces and brings unused parts of the inode table into use: a step for each inode, and
//!   one for each block;
//! - adds up what each thread found that owners gain and lose, and writes the quota files;
//! - puts bitmaps, descriptors, notes of orphans and the superblock into their buffers: a step for
//!   each group that changed;
//! - lists the changed blocks, and hands them to the device.
//!
//! Which metadata block is taken where depends on the threads. An image that shall come out the
//! same each time (`ExtOptions::bulk_load`) is applied by one; and so is one where attributes may
//! have inodes of their own, which lie anywhere in the inode table.
//!
//! # Locking
//! The threads take the locks of the allocator, of the superblock, of the groups and of the buffer
//! cache, one at a time and never over I/O. Only `ext.directories` and `ext.shared_xattrs` are held
//! over others and over I/O.

mod batch_cost;
mod directory;
mod durable;
mod encrypted;
mod groups;
mod inline;
pub(crate) mod inode;
mod map;
mod orphans;
mod pieces;
mod quota;
mod reservation;
mod space;
mod value_inode;
mod xattrs;

use std::borrow::Cow;

use finefs_ext_disk::LogicalBlock;
use finefs_ext_disk::features::{Compat, Incompat, RoCompat};
use finefs_ext_disk::inode::InodeFlags;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use finefs_namespace::{
    Batch, Captured, CommitThreads, Committed, DirectoryChange, Error, FileFlags, FileKind, Ino,
    InodeChange, LinkState, Result, Settled, parallel,
};

use crate::damage;
use crate::quota::QuotaUsage;
use crate::state::{ExtState, Postponed};
pub(crate) use batch_cost::{ImageCost, blocks_in_memory, mapping_fits_inode};
use directory::DirFormat;
use groups::Groups;
pub(crate) use inline::max_bytes as inline_max_bytes;
use inode::{InodeEdit, InodeTable};
use map::Run;
use pieces::{Piece, cut};
pub(crate) use reservation::{reserve, unreserve};
use space::Space;
pub(crate) use xattrs::{check as check_xattrs, has_room_for_project, quota_inodes};

/// Symbolic links up to this many bytes lie in their inodes.
pub(crate) const FAST_SYMLINK_MAX: usize = finefs_ext_disk::inode::BLOCK_AREA_SIZE - 1;

/// Files above this size need the feature `large_file`.
const SMALL_FILE_MAX: u64 = 0x7fff_ffff;

/// Applies a batch, writes everything out, makes it durable, and frees what it freed.
pub(crate) fn commit(
    state: &ExtState,
    mut batch: Batch,
    captured: &Captured<'_>,
) -> Result<Committed> {
    let mut postponed = std::mem::take(&mut *state.postponed.lock());
    if batch.is_empty() && !postponed.is_there {
        settle_quotas(state, batch.generation);
        return durable::sync_ordered_data(state).map(|keeps_data| Committed {
            keeps_data,
            ..Committed::default()
        });
    }
    let threads = match state.bulk_load.is_some() || state.has_value_inodes {
        true => CommitThreads::ONE,
        false => batch.threads,
    };
    let format = Format::of(state, captured);
    let groups = Groups::new(batch.reserved_blocks);
    let settled = std::mem::take(&mut postponed.settled);
    let mut commit = Commit {
        settled,
        ..Commit::new(&format, Space::new(state, &groups, postponed))
    };
    let orphans_before = orphans::list(&commit.table, state);
    for (ino, kind) in &batch.unused_inodes {
        release_inode(state, *ino, *kind);
    }
    space::release(state, &batch.unused_blocks, threads);
    if state.bulk_load.is_some() {
        // They come in the order of the CPUs that they were made on.
        for change in &mut batch.directories {
            change.entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        }
    }
    commit.extend_tables(&batch.inodes);
    commit.apply(&format, &batch.inodes, batch.directories, threads);
    let outcome = orphans_before.and_then(|list| {
        let Commit {
            space,
            table,
            orphans,
            others,
            ..
        } = &mut commit;
        orphans::update(space, table, &list, orphans, others)
    });
    commit.space.note(outcome);
    let changes = std::mem::take(&mut commit.holdings);
    let outcome = changes.settle(&mut commit.space, &mut commit.table, format.now);
    commit.space.note(outcome);
    settle_quotas(state, batch.generation);
    let outcome = commit.finish(threads);
    if matches!(outcome, Ok(_) | Err(Error::NoSpace))
        && let Some(keyring) = &state.keyring
    {
        // The number of one that is gone may be another's by now.
        let created = batch.inodes.iter().filter(|change| change.is_created);
        let kept = created.filter(|change| change.link_state != LinkState::Freed);
        keyring.settle(kept.map(|change| change.ino));
    }
    outcome
}

/// Makes the quota files say that ids have this, durably. Nothing else is under way.
pub(crate) fn set_quota_usage(state: &ExtState, usage: &[QuotaUsage]) -> Result<()> {
    let format = Format::of(state, &|_| None);
    let groups = Groups::new(0);
    let mut commit = Commit::new(&format, Space::new(state, &groups, Postponed::default()));
    let changes = quota::Changes::towards(state, usage);
    let outcome = changes.settle(&mut commit.space, &mut commit.table, format.now);
    commit.space.note(outcome);
    commit.finish(CommitThreads::ONE).map(|_| ())
}

/// What was asked for on quotas in a generation is in the quota files.
fn settle_quotas(state: &ExtState, generation: u64) {
    if let Some(quotas) = state.quotas.get() {
        state.allocator.unreserve(quotas.settled(generation));
    }
}

/// The list of orphans must be sound: each commit reads it.
pub(crate) fn check_orphan_list(state: &ExtState) -> Result<()> {
    orphans::list(&InodeTable::new(state), state).map(|_| ())
}

/// Makes a number free that was never logged.
pub(crate) fn release_inode(state: &ExtState, ino: Ino, kind: FileKind) {
    if let Some(keyring) = &state.keyring {
        keyring.forget(ino);
    }
    match u32::try_from(ino.0) {
        Ok(number) => {
            let is_directory = kind == FileKind::Directory;
            state
                .allocator
                .release_inode_number(state, number, is_directory);
        }
        Err(_) => log::error!("inode {ino} given back: there is no such inode"),
    }
}

/// What the threads that apply a batch know.
struct Format<'a> {
    state: &'a ExtState,
    directories: DirFormat,
    /// Of directories whose names are encrypted and whose key may be there: those that do not
    /// fold case, and those that do.
    encrypted_directories: Option<[DirFormat; 2]>,
    captured: &'a Captured<'a>,
    has_extents: bool,
    has_dir_nlink: bool,
    /// Seconds since 1970.
    now: u64,
}

impl<'a> Format<'a> {
    fn of(state: &'a ExtState, captured: &'a Captured<'a>) -> Format<'a> {
        let superblock = state.superblock.lock().clone();
        Format {
            state,
            directories: DirFormat::of(&superblock),
            encrypted_directories: state
                .keyring
                .is_some()
                .then(|| [false, true].map(|folds| DirFormat::of(&superblock).encrypted(folds))),
            captured,
            has_extents: superblock.incompat().contains(Incompat::EXTENTS),
            has_dir_nlink: superblock.ro_compat().contains(RoCompat::DIR_NLINK),
            now: state.now_seconds(),
        }
    }

    fn of_directory(&self, inode: &InodeEdit) -> &DirFormat {
        let flags = inode.disk.flags();
        match &self.encrypted_directories {
            Some([plain, folding]) if flags.contains(InodeFlags::ENCRYPT) => {
                match flags.contains(InodeFlags::CASEFOLD) {
                    true => folding,
                    false => plain,
                }
            }
            _ => &self.directories,
        }
    }
}

/// A batch while it is applied, as far as one thread does it.
struct Commit<'a> {
    state: &'a ExtState,
    format: &'a Format<'a>,
    space: Space<'a>,
    table: InodeTable<'a>,
    has_large_file: bool,
    has_xattrs: bool,
    orphans: Vec<u32>,
    /// The inodes that are no orphans.
    others: Vec<u32>,
    settled: Vec<Settled>,
    /// What owners gain and lose.
    holdings: quota::Changes,
}

impl<'a> Commit<'a> {
    fn new(format: &'a Format<'a>, space: Space<'a>) -> Commit<'a> {
        Commit {
            state: format.state,
            format,
            space,
            table: InodeTable::new(format.state),
            has_large_file: false,
            has_xattrs: false,
            orphans: Vec::new(),
            others: Vec::new(),
            settled: Vec::new(),
            holdings: quota::Changes::default(),
        }
    }

    /// Brings into use what new inodes need of the inode table, up to the last of each group: other
    /// threads may have those before it.
    fn extend_tables(&mut self, inodes: &[Box<InodeChange>]) {
        let per_group = self.state.geometry.inodes_per_group;
        let group = |ino: u32| ino.saturating_sub(1) / per_group;
        let created = inodes.iter().rev().filter(|change| change.is_created);
        let mut before = None;
        for number in created.filter_map(|change| u32::try_from(change.ino.0).ok()) {
            if before.replace(group(number)) == Some(group(number)) {
                continue;
            }
            let extended = self.space.extend_table(number);
            let prepared = extended.and_then(|indices| self.table.prepare(number, indices));
            self.space.note(prepared);
        }
        self.table.close();
    }

    /// Applies the changes of all inodes and directories.
    fn apply(
        &mut self,
        format: &'a Format<'a>,
        inodes: &[Box<InodeChange>],
        directories: Vec<DirectoryChange>,
        threads: CommitThreads,
    ) {
        let entries = directories.iter().map(|change| change.entries.len());
        let items = inodes.len() + entries.sum::<usize>();
        let sharing = threads.for_items(items);
        let per_block = self.state.geometry.block_size / u32::from(self.state.geometry.inode_size);
        let pieces = cut(inodes, directories, sharing, u64::from(per_block));
        let groups = self.space.groups();
        let shares = parallel::share(sharing, pieces, |pieces| {
            let space = Space::new(self.state, groups, Postponed::default());
            let mut commit = Commit::new(format, space);
            pieces.for_each(|piece| commit.piece(piece));
            commit.table.close();
            commit
        });
        shares.into_iter().for_each(|share| self.absorb(share));
    }

    /// Takes in what another thread did.
    fn absorb(&mut self, other: Commit<'a>) {
        self.space.absorb(other.space);
        self.has_large_file |= other.has_large_file;
        self.has_xattrs |= other.has_xattrs;
        self.orphans.extend(other.orphans);
        self.others.extend(other.others);
        self.settled.extend(other.settled);
        self.holdings.absorb(other.holdings);
    }

    fn piece(&mut self, piece: Piece<'_>) {
        let mut directories = piece.directories;
        for change in piece.inodes {
            let entries = directories.remove(&change.ino);
            let is_known_empty =
                change.link_state == LinkState::Freed || change.is_created && change.map.is_empty();
            match self.inode(change, entries) {
                // Nobody asks for the space of what is gone, and a new file begins with none.
                Ok(settled) if is_known_empty && settled.sectors == 0 => {}
                Ok(settled) => self.settled.push(settled),
                Err(error) => self.space.note(Err(error)),
            }
        }
        for (ino, change) in directories {
            match self.entries_alone(ino, change) {
                Ok(settled) => self.settled.push(settled),
                Err(error) => self.space.note(Err(error)),
            }
        }
    }

    /// Applies all that a batch changes of one inode; gives the space that it uses then.
    fn inode(&mut self, change: &InodeChange, entries: Option<DirectoryChange>) -> Result<Settled> {
        let number = u32::try_from(change.ino.0)
            .map_err(|_| Error::corrupt(format_args!("inode {}: out of range", change.ino)))?;
        let _alone = entries
            .as_ref()
            .map(|_| self.state.directories.exclusive(change.ino));
        let has_entries = entries.is_some();
        let (mut inode, target) = match change.is_created {
            true => self.create(number, change)?,
            false => (self.table.load(number)?, None),
        };
        let before = match change.is_created {
            true => None,
            false => self.holding(&inode)?,
        };
        if change.link_state == LinkState::Orphan {
            self.orphans.push(number);
        } else {
            self.others.push(number);
        }
        // An error leaves the rest of this inode, but what was changed until then must be written:
        // the blocks that it names are marked used already.
        let outcome = self.edit(&mut inode, change, target.as_deref(), entries);
        let settled = inode.settle_blocks(&self.table.rules);
        let after = match change.link_state {
            LinkState::Freed => Ok(None),
            _ => self.holding(&inode),
        };
        let counted = after.map(|after| self.holdings.note(before, after));
        let stored = self.table.store(&mut inode);
        if has_entries {
            // Who reads the directory next sees the inode as it is now.
            self.table.close();
        }
        outcome.and(settled).and(counted).and(stored)?;
        Ok(self.settled(&inode))
    }

    /// What an inode counts for on quotas.
    fn holding(&self, inode: &InodeEdit) -> Result<Option<quota::Holding>> {
        quota::Holding::of(self.state, &self.table.rules, inode)
    }

    /// What an inode takes.
    fn settled(&self, inode: &InodeEdit) -> Settled {
        let rules = &self.table.rules;
        Settled {
            ino: Ino(u64::from(inode.ino)),
            sectors: inode.disk.blocks_512(rules),
            directory_bytes: inode.is_directory().then(|| inode.disk.size(rules)),
        }
    }

    /// A new inode, and a link's target as it is stored.
    fn create<'c>(
        &mut self,
        number: u32,
        change: &'c InodeChange,
    ) -> Result<(InodeEdit, Option<Cow<'c, [u8]>>)> {
        let kind = change.attributes.kind;
        self.space.use_inode(number, kind == FileKind::Directory)?;
        let mut inode = self.table.create(number, change.attributes.generation);
        inode.disk.set_mode(kind.mode_bits() as u16);
        let is_encrypted = change.attributes.flags.contains(FileFlags::ENCRYPTED);
        let mut target = change.symlink.as_deref().map(Cow::Borrowed);
        if is_encrypted {
            self.has_xattrs = true;
            encrypted::create(self.state, &mut inode)?;
            if let Some(plain) = change.symlink.as_deref() {
                target = Some(Cow::Owned(encrypted::target(self.state, &inode, plain)?));
            }
        }
        let is_mapped = match kind {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => target
                .as_ref()
                .is_some_and(|target| target.len() > FAST_SYMLINK_MAX),
            _ => false,
        };
        if is_mapped && self.format.has_extents {
            let flags = inode.disk.flags() | InodeFlags::EXTENTS;
            inode.disk.set_flags(flags);
            map::extents::init_root(inode.disk.block_area_mut())?;
        }
        if matches!(kind, FileKind::BlockDevice | FileKind::CharDevice) {
            inode.set_device(change.attributes.device)?;
        }
        if kind == FileKind::Directory {
            inode.disk.set_links_count(2);
        }
        Ok((inode, target))
    }

    fn edit(
        &mut self,
        inode: &mut InodeEdit,
        change: &InodeChange,
        target: Option<&[u8]>,
        entries: Option<DirectoryChange>,
    ) -> Result<()> {
        if change.link_state != LinkState::Freed {
            self.set_attributes(inode, change)?;
        }
        let is_directory = inode.is_directory();
        if is_directory {
            if change.is_created {
                let parent = entries.as_ref().and_then(|entries| entries.parent);
                let parent = parent.and_then(|parent| u32::try_from(parent.0).ok());
                let parent = parent.unwrap_or(finefs_ext_disk::Ino::ROOT.0);
                let format = self.format.of_directory(inode);
                let (space, table) = (&mut self.space, &mut self.table);
                directory::create(space, table, inode, format, parent)?;
            }
            let wants_key = change.attributes.flags.contains(FileFlags::ENCRYPTED)
                && change.link_state != LinkState::Freed;
            if wants_key && !inode.disk.flags().contains(InodeFlags::ENCRYPT) {
                let format = &self.format.directories;
                let (space, table) = (&mut self.space, &mut self.table);
                directory::leave_inode(space, table, inode, format)?;
                encrypted::begin(space, table, inode)?;
                self.has_xattrs = true;
            }
            inode.add_links(change.link_delta, self.format.has_dir_nlink);
        }
        if let Some(target) = target {
            self.symlink(inode, target)?;
        }
        let inline = inline::apply(inode, change.inline.as_ref(), self.format.has_extents)?;
        map::apply(&mut self.space, inode, &change.map)?;
        self.has_xattrs |= !change.xattrs.is_empty();
        xattrs::apply(
            &mut self.space,
            &mut self.table,
            inode,
            &change.xattrs,
            inline,
        )?;
        if let Some(entries) = entries
            && change.link_state != LinkState::Freed
        {
            let format = self.format.of_directory(inode);
            let (space, table) = (&mut self.space, &mut self.table);
            directory::change(space, table, inode, format, entries, change.is_created)?;
        }
        if change.attributes.kind == FileKind::Regular
            && change.attributes.size_bytes > SMALL_FILE_MAX
        {
            self.has_large_file = true;
        }
        match change.link_state {
            LinkState::Linked => inode.disk.set_dtime(0),
            LinkState::Orphan => inode.disk.set_links_count(0),
            LinkState::Freed => self.free(inode)?,
        }
        Ok(())
    }

    fn set_attributes(&self, inode: &mut InodeEdit, change: &InodeChange) -> Result<()> {
        let project = change.attributes.project;
        if self.state.has_projects && project != 0 && inode.disk.project().is_none() {
            xattrs::widen(&self.table, inode)?;
        }
        let times = (self.format.captured)(change.ino).unwrap_or(change.attributes.times);
        inode.set_attributes(&self.table.rules, &change.attributes, &times)?;
        if self.state.has_projects {
            inode.disk.set_project(project);
        }
        Ok(())
    }

    fn symlink(&mut self, inode: &mut InodeEdit, target: &[u8]) -> Result<()> {
        let rules = self.table.rules;
        inode
            .disk
            .set_size(&rules, target.len() as u64)
            .map_err(|error| inode.damaged(error))?;
        if target.len() <= FAST_SYMLINK_MAX {
            let set = inode.disk.set_fast_symlink_target(target);
            return set.map_err(|error| inode.damaged(error));
        }
        if target.len() >= self.state.geometry.block_size as usize {
            return Err(inode.damaged("target of a symbolic link is too long"));
        }
        let block = self.space.allocate(inode.goal(&self.space))?;
        let mut buffer = self.state.buffers.zeroed(block);
        buffer[..target.len()].copy_from_slice(target);
        drop(buffer);
        let run = Run {
            logical: LogicalBlock(0),
            physical: block,
            length: 1,
            is_unwritten: false,
        };
        map::map(&mut self.space, inode, run)
    }

    /// Frees an inode and all that it has.
    fn free(&mut self, inode: &mut InodeEdit) -> Result<()> {
        let is_directory = inode.is_directory();
        let is_fast_symlink = inode.disk.is_fast_symlink(&self.table.rules);
        let is_mapped = match inode.disk.kind() {
            Some(finefs_ext_disk::inode::FileKind::Symlink) => !is_fast_symlink,
            Some(finefs_ext_disk::inode::FileKind::Regular) => true,
            _ => is_directory,
        };
        // What could not be freed leaks; the inode goes all the same.
        if is_mapped && !inode.disk.flags().contains(InodeFlags::INLINE_DATA) {
            let unmapped = map::check(self.state, inode)
                .and_then(|()| map::unmap(&mut self.space, inode, LogicalBlock::ALL));
            self.space.note_leak(unmapped);
        }
        let released = xattrs::release_all(&mut self.space, &mut self.table, inode);
        self.space.note_leak(released);
        let rules = self.table.rules;
        inode.blocks_delta = 0;
        let mut outcome = Ok(());
        inode.disk.block_area_mut().fill(0);
        if inode.disk.flags().contains(InodeFlags::EXTENTS) {
            outcome = outcome.and(map::extents::init_root(inode.disk.block_area_mut()));
        }
        let emptied = inode
            .disk
            .set_size(&rules, 0)
            .and_then(|()| inode.disk.set_blocks_512(&rules, 0));
        outcome = outcome.and(emptied.map_err(|error| inode.damaged(error)));
        inode.disk.set_links_count(0);
        inode.disk.set_dtime((self.format.now as u32).max(1));
        self.space.free_inode(inode.ino, is_directory);
        outcome
    }

    /// Applies changes of a directory whose inode is not in the batch.
    fn entries_alone(&mut self, ino: Ino, change: DirectoryChange) -> Result<Settled> {
        let number = u32::try_from(ino.0)
            .map_err(|_| Error::corrupt(format_args!("inode {ino}: out of range")))?;
        let _alone = self.state.directories.exclusive(ino);
        let mut inode = self.table.load(number)?;
        let before = self.holding(&inode)?;
        let format = self.format.of_directory(&inode);
        let (space, table) = (&mut self.space, &mut self.table);
        let outcome = directory::change(space, table, &mut inode, format, change, false);
        let settled = inode.settle_blocks(&self.table.rules);
        let after = self.holding(&inode);
        let counted = after.map(|after| self.holdings.note(before, after));
        let stored = self.table.store(&mut inode);
        self.table.close();
        outcome.and(settled).and(counted).and(stored)?;
        Ok(self.settled(&inode))
    }

    /// Writes everything out and makes it durable.
    fn finish(mut self, threads: CommitThreads) -> Result<Committed> {
        self.table.close();
        let done = self.space.groups().finish(self.state);
        self.space.note(done);
        let error = self.space.take_error();
        if let Some(error @ Error::Io(_)) = error {
            // What could not be read may be half of an operation whose other half was applied. The
            // namespace takes no more changes; what is durable stays as it is.
            self.space.abandon();
            return Err(error);
        }
        let leak = self.space.take_leak();
        let found = self.state.allocator.take_damage();
        if let Some(damage) = error.as_ref().or(leak.as_ref()).or(found) {
            damage::put(&mut self.state.superblock.lock(), damage);
        }
        let written = self
            .store_superblock()
            .and_then(|()| durable::write(self.state, &self.space, threads));
        let keeps_data = match written {
            Ok(keeps_data) => keeps_data,
            // Where something else is wrong too, that is what counts.
            Err(Error::NoSpace) if error.is_none() => {
                self.space.postpone(self.settled);
                return Err(Error::NoSpace);
            }
            Err(failure) => {
                self.space.abandon();
                return Err(error.unwrap_or(failure));
            }
        };
        self.space.release(threads);
        match error {
            Some(error) => Err(error),
            None => Ok(Committed {
                damage: leak.or(found.cloned()),
                settled: self.settled,
                keeps_data,
            }),
        }
    }

    fn store_superblock(&self) -> Result<()> {
        let (blocks, inodes) = self.state.groups.totals();
        let bytes = {
            let mut superblock = self.state.superblock.lock();
            superblock.set_free_blocks_count(blocks);
            superblock.set_free_inodes_count(u32::try_from(inodes).unwrap_or(u32::MAX));
            superblock.set_write_time(self.format.now);
            if self.has_large_file {
                let features = superblock.ro_compat() | RoCompat::LARGE_FILE;
                superblock.set_ro_compat(features);
            }
            if self.has_xattrs {
                let features = superblock.compat() | Compat::EXT_ATTR;
                superblock.set_compat(features);
            }
            raise_revision(&mut superblock);
            superblock.update_checksum();
            *superblock.as_bytes()
        };
        let geometry = &self.state.geometry;
        let offset = (SUPERBLOCK_OFFSET % u64::from(geometry.block_size)) as usize;
        let mut buffer = self.state.buffers.modify(geometry.super_block().0)?;
        if let Some(place) = buffer.get_mut(offset..offset + SUPERBLOCK_SIZE) {
            place.copy_from_slice(&bytes);
        }
        Ok(())
    }
}

/// Makes a file system that has features one that may have them (Linux `ext4_update_dynamic_rev`).
fn raise_revision(superblock: &mut Superblock) {
    let has_features = !superblock.compat().is_empty()
        || !superblock.incompat().is_empty()
        || !superblock.ro_compat().is_empty();
    if has_features && superblock.rev_level() == 0 {
        // What the numbers stand for stays the same.
        let (first, size) = (superblock.first_ino(), superblock.inode_size());
        superblock.set_first_ino_raw(first.0);
        superblock.set_inode_size_raw(size);
        superblock.set_rev_level(1);
    }
}
