//! Block maps of ext2 and ext3.
//!
//! A change is made pointer block by pointer block, from the inode down. An indirect block that
//! holds no pointer any more is freed with its pointer.

use std::ops::Range;

use finefs_ext_disk::indirect::{self, DIRECT, SINGLE, TRIPLE};
use finefs_ext_disk::{LogicalBlock, PhysBlock};
use finefs_namespace::Result;

use super::{Run, free_data};
use crate::apply::inode::InodeEdit;
use crate::apply::space::Space;

struct Map<'s, 'a> {
    space: &'s mut Space<'a>,
    inode: &'s mut InodeEdit,
    block_size: u32,
}

/// Maps a run.
pub(crate) fn map(space: &mut Space<'_>, inode: &mut InodeEdit, run: Run) -> Result<()> {
    let block_size = space.state.geometry.block_size;
    let end = LogicalBlock(indirect::blocks_max(block_size));
    if run.end() > end || run.physical + run.length > 1 << 32 {
        return Err(inode.damaged(format_args!("{run:?} does not fit a block map")));
    }
    let mut map = Map {
        space,
        inode,
        block_size,
    };
    for word in 0..=TRIPLE {
        let first = indirect::first_of_word(block_size, word);
        let range = map.clip(word, run.logical..run.end());
        if range.is_empty() {
            continue;
        }
        let physical = run.physical + (range.start - run.logical);
        let mut pointer = u64::from(map.inode.disk.block_words()[word as usize]);
        let depth = depth_of(word);
        let outcome = map.set(
            &mut pointer,
            depth,
            range.start - first..range.end - first,
            physical,
        );
        // Also on an error: the pointer may lead to what was done before it.
        let word_now = map.inode.narrowed(pointer)?;
        map.inode.disk.set_block_word(word as usize, word_now);
        outcome?;
    }
    Ok(())
}

/// Frees the blocks of a range.
pub(crate) fn unmap(
    space: &mut Space<'_>,
    inode: &mut InodeEdit,
    range: Range<LogicalBlock>,
) -> Result<()> {
    let block_size = space.state.geometry.block_size;
    let mut map = Map {
        space,
        inode,
        block_size,
    };
    let mut outcome = Ok(());
    let mut freed = Collector::default();
    for word in 0..=TRIPLE {
        let first = indirect::first_of_word(block_size, word);
        let range = map.clip(word, range.clone());
        let pointer = u64::from(map.inode.disk.block_words()[word as usize]);
        if range.is_empty() || pointer == 0 {
            continue;
        }
        let below = range.start - first..range.end - first;
        let (is_empty, done) = map.clear(pointer, depth_of(word), below, &mut freed);
        if is_empty {
            map.inode.disk.set_block_word(word as usize, 0);
        }
        outcome = outcome.and(done);
    }
    freed.flush(map.space, map.inode);
    outcome
}

/// All runs.
pub(crate) fn runs(space: &Space<'_>, inode: &InodeEdit) -> Result<Vec<Run>> {
    let block_size = space.state.geometry.block_size;
    let mut runs = Vec::new();
    for (word, pointer) in (0..).zip(inode.disk.block_words()) {
        let first = indirect::first_of_word(block_size, word);
        if first < LogicalBlock::ALL.end {
            collect(
                space,
                inode,
                u64::from(pointer),
                depth_of(word),
                first,
                &mut runs,
            )?;
        }
    }
    Ok(runs)
}

fn collect(
    space: &Space<'_>,
    inode: &InodeEdit,
    pointer: u64,
    depth: u32,
    logical: LogicalBlock,
    runs: &mut Vec<Run>,
) -> Result<()> {
    if pointer == 0 {
        return Ok(());
    }
    if depth == 0 {
        match runs.last_mut() {
            Some(last) if last.end() == logical && last.physical + last.length == pointer => {
                last.length += 1;
            }
            _ => {
                runs.push(Run {
                    logical,
                    physical: pointer,
                    length: 1,
                    is_unwritten: false,
                });
            }
        }
        return Ok(());
    }
    check(space, inode, pointer)?;
    let bytes = space.state.buffers.read(pointer)?;
    let block_size = space.state.geometry.block_size;
    let reach = indirect::blocks_of_depth(block_size, depth - 1);
    for index in 0..indirect::pointers_per_block(block_size) {
        let logical = logical + u64::from(index) * reach;
        collect(
            space,
            inode,
            indirect::pointer(&bytes, index).0,
            depth - 1,
            logical,
            runs,
        )?;
    }
    Ok(())
}

impl InodeEdit {
    /// A block as a pointer of a block map.
    fn narrowed(&self, block: u64) -> Result<u32> {
        u32::try_from(block).map_err(|_| {
            self.damaged(format_args!(
                "block {block} is beyond what a block map reaches"
            ))
        })
    }
}

fn depth_of(word: u32) -> u32 {
    if word < DIRECT { 0 } else { word - SINGLE + 1 }
}

/// Checks that an indirect block can lie there.
fn check(space: &Space<'_>, inode: &InodeEdit, block: u64) -> Result<()> {
    let state = space.state;
    if state.groups.can_own(&state.geometry, block, 1) {
        Ok(())
    } else {
        Err(inode.damaged(format_args!("indirect block {block}")))
    }
}

impl Map<'_, '_> {
    /// The part of a range that a word of the inode reaches.
    fn clip(&self, word: u32, range: Range<LogicalBlock>) -> Range<LogicalBlock> {
        let first = indirect::first_of_word(self.block_size, word);
        let end = first + indirect::blocks_of_depth(self.block_size, depth_of(word));
        range.start.max(first)..range.end.min(end)
    }

    /// The pointers of a block that lead to a range: index, and the part of the range below it.
    fn below(
        &self,
        depth: u32,
        range: Range<u64>,
    ) -> impl Iterator<Item = (u32, Range<u64>)> + use<> {
        let reach = indirect::blocks_of_depth(self.block_size, depth - 1);
        (range.start / reach..range.end.div_ceil(reach)).map(move |index| {
            let first = index * reach;
            let part = range.start.max(first) - first..range.end.min(first + reach) - first;
            (index as u32, part)
        })
    }

    /// Maps `range`, counted from the first block that `pointer` reaches, to blocks from `physical`
    /// on.
    fn set(
        &mut self,
        pointer: &mut u64,
        depth: u32,
        range: Range<u64>,
        physical: u64,
    ) -> Result<()> {
        if depth == 0 {
            if *pointer != 0 {
                return Err(self
                    .inode
                    .damaged(format_args!("a block is mapped to {pointer} already")));
            }
            *pointer = physical;
            self.inode.blocks_delta += 1;
            return Ok(());
        }
        let mut buffer = if *pointer == 0 {
            let goal = self.inode.goal(self.space).max(physical);
            let block = self.space.allocate(goal)?;
            if let Err(error) = self.inode.narrowed(block) {
                self.space.free_metadata(block);
                return Err(error);
            }
            self.inode.blocks_delta += 1;
            *pointer = block;
            self.space.state.buffers.zeroed(block)
        } else {
            check(self.space, self.inode, *pointer)?;
            self.space.state.buffers.modify(*pointer)?
        };
        let start = range.start;
        let reach = indirect::blocks_of_depth(self.block_size, depth - 1);
        for (index, part) in self.below(depth, range) {
            let physical = physical + u64::from(index) * reach + part.start - start;
            let mut below = indirect::pointer(&buffer, index).0;
            let outcome = self.set(&mut below, depth - 1, part, physical);
            if !indirect::set_pointer(&mut buffer, index, PhysBlock(below)) {
                return Err(self
                    .inode
                    .damaged(format_args!("a pointer to block {below}")));
            }
            outcome?;
        }
        Ok(())
    }

    /// Unmaps `range`; true when nothing is left below `pointer`, which then leads nowhere.
    fn clear(
        &mut self,
        pointer: u64,
        depth: u32,
        range: Range<u64>,
        freed: &mut Collector,
    ) -> (bool, Result<()>) {
        if depth == 0 {
            freed.add(self.space, self.inode, pointer);
            return (true, Ok(()));
        }
        if let Err(error) = check(self.space, self.inode, pointer) {
            return (false, Err(error));
        }
        let old = match self.space.state.buffers.read(pointer) {
            Ok(bytes) => bytes,
            Err(error) => return (false, Err(error)),
        };
        let mut new = old.to_vec();
        let mut outcome = Ok(());
        let mut has_changed = false;
        for (index, part) in self.below(depth, range) {
            let below = indirect::pointer(&old, index).0;
            if below == 0 {
                continue;
            }
            let (is_empty, done) = self.clear(below, depth - 1, part, freed);
            if is_empty {
                indirect::set_pointer(&mut new, index, PhysBlock(0));
                has_changed = true;
            }
            outcome = outcome.and(done);
        }
        if new.iter().all(|byte| *byte == 0) {
            self.space.free_metadata(pointer);
            self.inode.blocks_delta -= 1;
            return (true, outcome);
        }
        if has_changed {
            match self.space.state.buffers.modify(pointer) {
                Ok(mut buffer) => buffer.copy_from_slice(&new),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        (false, outcome)
    }
}

/// Joins freed blocks to runs.
#[derive(Default)]
struct Collector {
    start: u64,
    count: u64,
}

impl Collector {
    fn add(&mut self, space: &mut Space<'_>, inode: &mut InodeEdit, block: u64) {
        if self.count > 0 && self.start + self.count == block {
            self.count += 1;
            return;
        }
        self.flush(space, inode);
        (self.start, self.count) = (block, 1);
    }

    fn flush(&mut self, space: &mut Space<'_>, inode: &mut InodeEdit) {
        match std::mem::take(&mut self.count) {
            0 => {}
            count => free_data(space, inode, self.start, count),
        }
    }
}
