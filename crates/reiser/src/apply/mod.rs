//! Applying a batch of the namespace's changes to an image.
//!
//! | Module | What |
//! |---|---|
//! | [`object`] | one object: stat data, content, what becomes of it |
//! | [`names`] | entries of directories |
//! | [`xattrs`] | extended attributes |
//! | [`durable`] | through the journal to the device |
//! | [`save_links`] | objects in use without a name |
//! | [`cost`] | how many blocks applying can need, and can change |
//!
//! # Data model
//! All that a batch changes (nodes, bitmaps, the superblock) is staged out of the readers' sight,
//! then published, and made durable as one group of transactions: a crash leaves all of it or
//! nothing. A batch that the journal cannot hold, which takes very many changed blocks in few
//! operations, becomes several groups, between which the tree is whole but operations may be half
//! done; until the last one is durable the superblock says that there are errors.
//!
//! A group for which there is no storage below the device stays in memory as dirty buffers, and the
//! next group makes both durable. What is too much for the journal by then goes to its places
//! without it, while the superblock says that there are errors.
//!
//! # Invariants
//! 1. An error leaves the image as the last group left it: nothing of the batch is published.
//! 2. Nothing fails for lack of space: operations reserved what applying them can need.
//! 3. Data is written before what points at it; what a batch freed is given out again only when the
//!    batch is durable.
//! 4. What cannot be freed, as its bitmap calls it free, leaks, and is damage to be noted.

pub(crate) mod cost;
mod durable;
mod names;
mod object;
pub(crate) mod save_links;
mod xattrs;

use std::collections::HashMap;

use finefs_namespace::{
    Batch, BlockNo, BlockRun, Captured, Committed, DirectoryChange, Error, Ino, InodeChange,
    LinkState, Result, Settled,
};
use finefs_reiser_disk::ObjectKey;

pub(crate) use durable::{mark_clean, mark_mounted};

use crate::space::{Space, mark};
use crate::state::{Mounted, Postponed, Writer, Writing};
use crate::tree::Root;
use crate::tree::edit::{Editor, Freed, blocks_changed_max};
use crate::tree::staged::Staged;

/// Mutations between two looks at how much was changed.
const MUTATIONS: u32 = 4;

/// Applies a batch, makes it durable, and frees what it freed.
pub(crate) fn commit(
    mounted: &Mounted,
    mut batch: Batch,
    captured: &Captured<'_>,
) -> Result<Committed> {
    let writing = mounted.writing()?;
    let mut writer = writing.take_writer()?;
    for (ino, _) in &batch.unused_inodes {
        release_number(mounted, writing, *ino);
    }
    release(mounted, writing, &batch.unused_blocks);
    let outcome = if batch.is_empty() && !writer.postponed.is_there {
        mounted
            .data
            .write_ordered()
            .and_then(|keeps_data| writer.journal.flush().map(|()| keeps_data))
            .map(|keeps_data| Committed {
                keeps_data,
                ..Committed::default()
            })
    } else {
        let directories = std::mem::take(&mut batch.directories);
        let commit = Commit::new(mounted, writing, &mut writer, batch.reserved_blocks);
        commit.run(&batch.inodes, directories, captured)
    };
    writing.put_writer(writer);
    outcome
}

/// Makes a number free that was never logged.
pub(crate) fn release_number(mounted: &Mounted, writing: &Writing, ino: Ino) {
    match u32::try_from(ino.0) {
        Ok(number) => {
            mounted.objects.forget(number);
            writing.numbers.give(number);
        }
        Err(_) => log::error!("inode {ino} given back: there is no such inode"),
    }
}

/// Gives blocks to the live allocator that nothing uses any more, nor anything durable.
fn release(mounted: &Mounted, writing: &Writing, runs: &[BlockRun]) {
    for run in runs {
        mounted.data.cache().forget(run.start.0, run.length);
        writing.allocator.release_blocks(mounted, *run);
    }
}

/// A batch while it is applied.
pub(crate) struct Commit<'a> {
    mounted: &'a Mounted,
    writing: &'a Writing,
    writer: &'a mut Writer,
    staged: Staged<'a, Space<'a>>,
    root: Root,
    /// Blocks that are in use more, since the last group.
    used: i64,
    freed: Vec<BlockRun>,
    freed_numbers: Vec<u32>,
    settled: Vec<Settled>,
    /// The first damage that lost nothing but space.
    leak: Option<Error>,
    /// Data that was written over other data is dirty still.
    keeps_data: bool,
    /// A group of the batch is durable and another one follows.
    is_split: bool,
    /// All of the batch is staged.
    is_applied: bool,
}

impl<'a> Commit<'a> {
    /// With so many blocks reserved; it begins with what earlier commits postponed.
    pub fn new(
        mounted: &'a Mounted,
        writing: &'a Writing,
        writer: &'a mut Writer,
        reserved: u64,
    ) -> Commit<'a> {
        let postponed = std::mem::take(&mut writer.postponed);
        Commit {
            mounted,
            writing,
            writer,
            staged: Staged::new(&mounted.tree, Space::new(mounted, writing, reserved)),
            root: mounted.tree.root(),
            used: 0,
            freed: postponed.freed,
            freed_numbers: postponed.freed_numbers,
            settled: postponed.settled,
            leak: None,
            keeps_data: false,
            is_split: false,
            is_applied: false,
        }
    }

    fn run(
        mut self,
        inodes: &[Box<InodeChange>],
        directories: Vec<DirectoryChange>,
        captured: &Captured<'_>,
    ) -> Result<Committed> {
        let before = (self.writer.superblock.clone(), self.writer.numbers.clone());
        let applied = self.apply(inodes, directories, captured);
        self.is_applied = applied.is_ok();
        match applied.and_then(|()| self.group(true)) {
            Ok(()) => Ok(self.release()),
            Err(error) => Err(self.failed(error, before)),
        }
    }

    /// After what was applied is durable: gives to the live allocator what was freed.
    fn release(self) -> Committed {
        let (mounted, writing) = (self.mounted, self.writing);
        let mut staged = self.staged;
        writing
            .allocator
            .unreserve(std::mem::take(&mut staged.space().reserved));
        release(mounted, writing, &self.freed);
        for number in &self.freed_numbers {
            release_number(mounted, writing, Ino(u64::from(*number)));
        }
        Committed {
            settled: self.settled,
            damage: self.leak,
            keeps_data: self.keeps_data,
        }
    }

    /// After an error: nothing that is not durable remains, but where only storage is missing below
    /// the device: then all of it is there, and the next commit makes it durable.
    fn failed(
        mut self,
        error: Error,
        before: (
            finefs_reiser_disk::superblock::Superblock,
            finefs_reiser_disk::object_ids::ObjectIds,
        ),
    ) -> Error {
        let is_postponed =
            error == Error::NoSpace && self.is_applied && self.staged.changed_count() == 0;
        if is_postponed {
            let reserved = std::mem::take(&mut self.staged.space().reserved);
            self.writing.allocator.unreserve(reserved);
            self.writer.postponed = Postponed {
                is_there: true,
                freed: self.freed,
                freed_numbers: self.freed_numbers,
                settled: self.settled,
            };
            return error;
        }
        if !self.is_split {
            (self.writer.superblock, self.writer.numbers) = before;
        }
        log::error!("{}: {error}", self.mounted.device.describe());
        self.staged.into_space().abandon();
        match error {
            // There was to be room for all that an operation was promised.
            Error::NoSpace => Error::corrupt("there is no room for what was promised"),
            error => error,
        }
    }

    fn apply(
        &mut self,
        inodes: &[Box<InodeChange>],
        directories: Vec<DirectoryChange>,
        captured: &Captured<'_>,
    ) -> Result<()> {
        let mut directories: HashMap<Ino, DirectoryChange> = directories
            .into_iter()
            .map(|change| (change.dir, change))
            .collect();
        let is_gone = |change: &&InodeChange| change.link_state == LinkState::Freed;
        let changes = || inodes.iter().map(|change| &**change);
        for change in changes().filter(|change| !is_gone(change)) {
            let names = directories.remove(&change.ino);
            self.change_object(change, names, captured)?;
            self.make_room()?;
        }
        for change in changes().filter(is_gone) {
            directories.remove(&change.ino);
            self.free_object(change)?;
            self.make_room()?;
        }
        for (ino, change) in directories {
            self.names_alone(ino, change)?;
            self.make_room()?;
        }
        Ok(())
    }

    /// Makes mutations of the tree.
    fn edit<T>(
        &mut self,
        edit: impl FnOnce(&mut Editor<'_, Staged<'a, Space<'a>>>) -> Result<T>,
    ) -> Result<T> {
        let mut editor = Editor::new(&mut self.staged, self.root);
        let outcome = edit(&mut editor);
        self.root = editor.root;
        outcome
    }

    /// Ends the group where it comes to be as long as the journal takes.
    fn make_room(&mut self) -> Result<()> {
        let bitmaps =
            (self.mounted.tree.bitmaps.count as usize).min(self.staged.space().unsettled());
        let slack = bitmaps + 2 * (MUTATIONS * blocks_changed_max(self.root.levels)) as usize + 8;
        let capacity = self.writer.journal.capacity();
        if self.staged.changed_count() + slack <= capacity || self.staged.changed_count() < 8 {
            return Ok(());
        }
        match self.group(false) {
            // It is published; the next group makes it durable.
            Err(Error::NoSpace) if self.staged.changed_count() == 0 => Ok(()),
            outcome => outcome,
        }
    }

    /// Marks blocks used that the live allocator gave out.
    fn use_blocks(&mut self, run: BlockRun) -> Result<()> {
        let (first, count) = disk_run(run)?;
        mark(&mut self.staged, &self.mounted.tree, first, count, true)?;
        self.used += i64::from(count);
        Ok(())
    }

    /// Marks blocks free, as far as they can be freed: see invariant 4.
    fn free_blocks(&mut self, freed: Freed) -> Result<()> {
        for (first, count) in freed {
            match mark(&mut self.staged, &self.mounted.tree, first, count, false) {
                Ok(()) => {
                    self.used -= i64::from(count);
                    self.freed.push(BlockRun {
                        start: BlockNo(u64::from(first)),
                        length: u64::from(count),
                    });
                }
                Err(error @ Error::Corrupt(_)) => {
                    log::error!(
                        "{}: {error}; run reiserfsck --fix-fixable",
                        self.mounted.device.describe()
                    );
                    self.leak.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn object(&self, ino: Ino) -> Result<ObjectKey> {
        let objects = &self.mounted.objects;
        let found = objects
            .look(&self.mounted.tree, ino)
            .and_then(|()| objects.find(ino));
        found.map_err(|error| match error {
            Error::Stale => Error::corrupt(format_args!("inode {ino}: there is no such object")),
            error => error,
        })
    }
}

fn run_of(block: u32) -> BlockRun {
    BlockRun {
        start: BlockNo(u64::from(block)),
        length: 1,
    }
}

/// A run of blocks as the format numbers them.
fn disk_run(run: BlockRun) -> Result<(u32, u32)> {
    let parts = (u32::try_from(run.start.0), u32::try_from(run.length));
    match parts {
        (Ok(first), Ok(count)) => Ok((first, count)),
        _ => Err(Error::corrupt(format_args!(
            "block {}: past the end",
            run.start.0
        ))),
    }
}
