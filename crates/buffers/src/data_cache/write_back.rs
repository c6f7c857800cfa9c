//! Writeback: which dirty blocks go to the device when, and in which requests.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use finefs_block::Write;
use finefs_namespace::BlockRun;

use super::{DataCache, ONE_BY_ONE_MAX, PIECES_IN_A_ROW, PIECES_WAITING_MAX};

/// Adjacent blocks are written together up to this size.
const WRITE_BYTES: usize = 1 << 20;

/// Who makes room writes out what lies around so many blocks at most.
const ROOM_PLACES_MAX: usize = 8;

/// Memory that was not used for one to two times as long is given back.
const TICK: Duration = Duration::from_secs(4);

/// Which blocks are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dirty {
    All,
    /// Those that no commit waits for.
    Unordered,
}

/// What threads that write out share.
pub(super) struct Flusher {
    /// Somebody makes room.
    is_busy: bool,
    /// For the contents of a request, to be used again.
    buffers: Vec<Vec<u8>>,
    ticked: Instant,
}

impl Default for Flusher {
    fn default() -> Flusher {
        Flusher {
            is_busy: false,
            buffers: Vec::new(),
            ticked: Instant::now(),
        }
    }
}

/// Nobody else makes room while it is there.
struct Turn<'a>(&'a DataCache);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.flusher.lock().is_busy = false;
    }
}

/// Blocks under writeback; those that have not come to it when it goes, as the device panicked,
/// stay dirty.
struct UnderWriteback<'a> {
    cache: &'a DataCache,
    /// Numbers of blocks and of their slots.
    blocks: Vec<(u64, u32)>,
    /// So many of them, from the first on, are settled.
    settled: usize,
}

impl Drop for UnderWriteback<'_> {
    fn drop(&mut self) {
        for (block, slot) in &self.blocks[self.settled..] {
            self.cache.shard(*block).settle(*slot, false, false);
        }
    }
}

impl DataCache {
    /// Writes out what is dirty without being ordered, and calls `between` after each part of so
    /// many bytes but the last. What could not be written stays dirty, and the first error is
    /// given.
    pub fn write_back(
        &self,
        part_bytes: usize,
        between: impl Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        let dirty = self.list_dirty(Dirty::Unordered);
        let part_blocks = (part_bytes / self.block_bytes).max(1);
        for (number, part) in dirty.chunks(part_blocks).enumerate() {
            if number > 0 {
                between()?;
            }
            self.write_blocks(part, false)?;
        }
        self.give_back_unused();
        Ok(())
    }

    /// Writes out all that is ordered. What could not be written stays dirty, and the first error
    /// is given.
    pub fn write_ordered(&self) -> io::Result<()> {
        let mut blocks = Vec::new();
        for shard in self.shards.iter().filter(|it| it.may_have_ordered()) {
            shard.list_ordered(&mut blocks);
        }
        blocks.sort_unstable();
        self.write_blocks(&blocks, false)
    }

    /// The blocks that are dirty or under writeback, in order.
    fn list_dirty(&self, which: Dirty) -> Vec<u64> {
        let mut blocks = Vec::new();
        for shard in &self.shards {
            if shard.has_dirty() {
                shard.list_dirty(which, &mut blocks);
            }
        }
        blocks.sort_unstable();
        blocks
    }

    /// Writes out what has been dirty for longest in the shard of a block, with what is dirty
    /// around it; unless somebody does so already. Whatever fails will fail again when it matters.
    ///
    /// Never inlined: counts of instructions go by its name (`finefs-bench sequential`).
    #[inline(never)]
    pub(super) fn make_room(&self, block: u64) {
        {
            let mut flusher = self.flusher.lock();
            if std::mem::replace(&mut flusher.is_busy, true) {
                return;
            }
        }
        let _turn = Turn(self);
        let window = self.blocks_at_once() as u64;
        // A quarter of what may be dirty is enough.
        let places = (self.dirty_max / 4 / window as usize).clamp(1, ROOM_PLACES_MAX);
        let oldest = self.shard(block).oldest_dirty(places);
        let mut windows: Vec<u64> = oldest.iter().map(|block| block / window).collect();
        windows.sort_unstable();
        windows.dedup();
        for start in windows.iter().map(|number| number * window) {
            if !self.write_piece(start, window, false) {
                return;
            }
        }
    }

    /// Writes those of these blocks out that are dirty, whose ever they are: what is dirty may go
    /// out at any time. If another thread is at it, that one does it next; what finds no room to
    /// wait stays dirty, for the commit. Whatever fails will fail again when it matters. Never
    /// inlined, as [`DataCache::make_room`].
    #[inline(never)]
    pub fn write_behind(&self, run: BlockRun) {
        let mut behind = self.behind.lock();
        if behind.pieces.len() < PIECES_WAITING_MAX {
            behind.pieces.push_back(run);
        }
        if std::mem::replace(&mut behind.is_busy, true) {
            return;
        }
        for _ in 0..PIECES_IN_A_ROW {
            let Some(piece) = behind.pieces.pop_front() else {
                break;
            };
            drop(behind);
            self.write_piece(piece.start.0, piece.length, true);
            behind = self.behind.lock();
        }
        behind.is_busy = false;
    }

    /// False when that failed.
    fn write_piece(&self, start: u64, length: u64, is_behind: bool) -> bool {
        let outcome = self.write_blocks(&self.maybe_dirty(start, length), is_behind);
        if let Err(error) = &outcome {
            log::warn!("{}: writing file data: {error}", self.device.describe());
        }
        outcome.is_ok()
    }

    /// Writes out what is dirty of these blocks. As with [`DataCache::write_back`], what fails
    /// stays dirty.
    pub fn write_runs(&self, runs: &[BlockRun]) -> io::Result<()> {
        let length = runs
            .iter()
            .fold(0, |sum: u64, run| sum.saturating_add(run.length));
        let mut blocks: Vec<u64> = match length > ONE_BY_ONE_MAX {
            true => {
                let mut dirty = self.list_dirty(Dirty::All);
                let mut runs: Vec<(u64, u64)> = runs
                    .iter()
                    .map(|run| (run.start.0, run.start.0.saturating_add(run.length)))
                    .collect();
                runs.sort_unstable();
                dirty.retain(|block| {
                    let before = runs.partition_point(|(start, _)| start <= block);
                    before > 0 && *block < runs[before - 1].1
                });
                dirty
            }
            false => runs
                .iter()
                .flat_map(|run| self.maybe_dirty(run.start.0, run.length))
                .collect(),
        };
        blocks.sort_unstable();
        blocks.dedup();
        self.write_blocks(&blocks, false)
    }

    /// Those of these blocks that may be dirty.
    fn maybe_dirty(&self, start: u64, length: u64) -> Vec<u64> {
        let may_be_dirty = |block: &u64| {
            let shard = self.shard(*block);
            shard.has_dirty() && shard.may_have(*block)
        };
        (start..start.saturating_add(length))
            .filter(may_be_dirty)
            .collect()
    }

    pub(super) fn blocks_at_once(&self) -> usize {
        (WRITE_BYTES / self.block_bytes).max(1)
    }

    /// Writes those of these blocks, which are in order, that are still dirty. Memory of what is
    /// written behind is used again before that of others.
    fn write_blocks(&self, blocks: &[u64], is_behind: bool) -> io::Result<()> {
        if blocks.is_empty() {
            return Ok(());
        }
        let spare = self.flusher.lock().buffers.pop();
        let mut buffer = spare.unwrap_or_else(|| Vec::with_capacity(WRITE_BYTES));
        let outcome = blocks
            .chunks(self.blocks_at_once())
            .try_for_each(|part| self.write_part(part, is_behind, &mut buffer));
        self.flusher.lock().buffers.push(buffer);
        outcome
    }

    /// Writes those of these blocks that are still dirty, adjacent ones together and all of them at
    /// once where the device can do that.
    fn write_part(&self, part: &[u64], is_behind: bool, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.clear();
        let mut under = UnderWriteback {
            cache: self,
            blocks: Vec::with_capacity(part.len()),
            settled: 0,
        };
        for block in part {
            let slot = self.shard(*block).begin_writeback(*block, buffer);
            under.blocks.extend(slot.map(|slot| (*block, slot)));
        }
        let mut writes = Vec::new();
        let mut contents = &buffer[..];
        for run in under
            .blocks
            .chunk_by(|(one, _), (next, _)| one + 1 == *next)
        {
            let (content, rest) = contents.split_at(run.len() * self.block_bytes);
            contents = rest;
            writes.push(Write::new(run[0].0 * self.block_bytes as u64, content));
        }
        let outcome = match writes.is_empty() {
            true => Ok(()),
            false => self.device.write_many(&writes),
        };
        if outcome.is_ok() {
            self.blocks_written
                .fetch_add(under.blocks.len() as u64, Ordering::Relaxed);
        }
        while let Some((block, slot)) = under.blocks.get(under.settled).copied() {
            under.settled += 1;
            self.shard(block).settle(slot, outcome.is_ok(), is_behind);
        }
        outcome
    }

    /// Gives back the memory of shards that nobody has used for a while. Commits come at least at
    /// their interval, so this does too.
    fn give_back_unused(&self) {
        let mut flusher = self.flusher.lock();
        if flusher.ticked.elapsed() < TICK {
            return;
        }
        flusher.ticked = Instant::now();
        let buffers = std::mem::take(&mut flusher.buffers);
        drop(flusher);
        drop(buffers);
        self.next_tick();
    }

    /// A while has gone by.
    pub(super) fn next_tick(&self) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(before) = now.checked_sub(2) {
            for shard in &self.shards {
                shard.give_back(before);
            }
        }
    }
}
