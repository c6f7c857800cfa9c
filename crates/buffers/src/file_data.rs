//! Data of files at blocks of the device: the cache of what was written, over the device.
//!
//! Up to 64 KiB are copied into the [`DataCache`]; a longer write goes to the device at once, past
//! the cache but for blocks that are dirty there. A block that comes into the cache has taken its
//! storage below the device, as far as that can be promised: so what was cached can be written.
//! Only [`FileData::write_blank_unreserved`] takes none.
//!
//! # Locking
//! None of its own. A writer has the range of the file locked: see [`DataCache`].

use std::io;
use std::ops::Range;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_locks::PerCpuCounter;
use finefs_namespace::{BlockNo, BlockRun, Error, Result};
use smallvec::{SmallVec, smallvec};

use crate::data_cache::{DataCache, DataMode};
use crate::overlay::Overlay;

/// A longer write goes to the device at once: it is one request there, and would fill the memory of
/// many.
pub const CACHED_BYTES_MAX: usize = 64 << 10;

/// So much is written back between two flushes: what a sync that comes meanwhile has to wait for.
const WRITE_BACK_BYTES: usize = 16 << 20;

/// What data is written over.
#[derive(Clone, Copy)]
enum Over {
    /// The blocks hold nothing yet: what is left of them becomes zeros.
    Nothing,
    /// They hold data.
    Data(DataMode),
}

/// See the module's head.
pub struct FileData {
    device: Arc<dyn BlockDevice>,
    cache: DataCache,
    block_bytes: u64,
    size_bytes: u64,
    /// Blocks that writers have written.
    blocks_written: PerCpuCounter,
}

impl FileData {
    /// Of a file system of so many bytes, with a cache of so many.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        block_size: u32,
        size_bytes: u64,
        cache_bytes: u64,
    ) -> FileData {
        FileData {
            cache: DataCache::new(device.clone(), block_size, cache_bytes),
            device,
            block_bytes: u64::from(block_size),
            size_bytes,
            blocks_written: PerCpuCounter::new(0),
        }
    }

    /// The cache.
    pub fn cache(&self) -> &DataCache {
        &self.cache
    }

    /// How many blocks of data were written to the device.
    pub fn blocks_written(&self) -> u64 {
        self.blocks_written.exact().max(0) as u64 + self.cache.blocks_written()
    }

    /// Where a range of data lies on the device, if all of it lies in the file system.
    fn offset_of(&self, block: BlockNo, offset_bytes: u64, length: usize) -> Result<u64> {
        let start = block
            .0
            .checked_mul(self.block_bytes)
            .and_then(|start| start.checked_add(offset_bytes));
        let fits = |start: &u64| {
            let end = start.checked_add(length as u64);
            end.is_some_and(|end| end <= self.size_bytes)
        };
        start
            .filter(fits)
            .ok_or_else(|| Error::corrupt(format_args!("block {}: past the end", block.0)))
    }

    /// The parts of a range of data on the device that lie in one block each: the block, where in
    /// it the part begins, and which of the bytes it is.
    fn blocks_of(
        &self,
        start: u64,
        length: usize,
    ) -> impl Iterator<Item = (u64, usize, Range<usize>)> + use<> {
        let block_bytes = self.block_bytes;
        let mut done = 0;
        std::iter::from_fn(move || {
            let at = start + done as u64;
            let within = at % block_bytes;
            let range = done..length.min(done + (block_bytes - within) as usize);
            done = range.end;
            (!range.is_empty()).then_some((at / block_bytes, within as usize, range))
        })
    }

    /// See [`Store::read`](finefs_namespace::Store::read); what is not in the cache is read as
    /// `overlay` shows the device.
    pub fn read(
        &self,
        overlay: &Overlay,
        block: BlockNo,
        offset_bytes: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        let start = self.offset_of(block, offset_bytes, buffer.len())?;
        let mut unread = 0;
        let read_device = |part: &mut [u8], from: usize| {
            overlay.read_at(&*self.device, start + from as u64, part)
        };
        let failed = io_error("reading", block);
        for (number, within, range) in self.blocks_of(start, buffer.len()) {
            if self.cache.read(number, within, &mut buffer[range.clone()]) {
                read_device(&mut buffer[unread..range.start], unread).map_err(&failed)?;
                unread = range.end;
            }
        }
        read_device(&mut buffer[unread..], unread).map_err(failed)
    }

    /// See [`Store::write`](finefs_namespace::Store::write), and for data in the mode `Writeback`
    /// [`Store::overwrite_content`](finefs_namespace::Store::overwrite_content).
    pub fn write(
        &self,
        block: BlockNo,
        offset_bytes: u64,
        data: &[u8],
        mode: DataMode,
    ) -> Result<()> {
        let start = self.offset_of(block, offset_bytes, data.len())?;
        match data.len() > CACHED_BYTES_MAX {
            true => self.write_through(start, data, mode),
            false => self.write_cached(start, data, Over::Data(mode)),
        }
    }

    /// See [`Store::write_blank`](finefs_namespace::Store::write_blank), of at most
    /// [`CACHED_BYTES_MAX`] bytes.
    pub fn write_blank(&self, block: BlockNo, offset_bytes: u64, data: &[u8]) -> Result<()> {
        let start = self.offset_of(block, offset_bytes, data.len())?;
        self.write_cached(start, data, Over::Nothing)
    }

    /// [`FileData::write_blank`] of one block that takes no storage for it: where there is none,
    /// [`FileData::write_ordered`] fails for as long, and the block stays. If the cache has no
    /// room, the block goes to the device at once, which may find no storage.
    pub fn write_blank_unreserved(&self, block: BlockNo, data: &[u8]) -> Result<()> {
        self.offset_of(block, 0, self.block_bytes as usize)?;
        match self.cache.put_blank(block.0, 0, data) {
            true => Ok(()),
            false => self.write_padded_through(block.0, 0, data),
        }
    }

    /// Writes zeros over whole blocks.
    pub fn write_zeros(&self, run: BlockRun) -> Result<()> {
        let length_bytes = run.length.saturating_mul(self.block_bytes);
        let length = usize::try_from(length_bytes).map_err(|_| Error::Invalid)?;
        let start = self.offset_of(run.start, 0, length)?;
        self.cache.forget(run.start.0, run.length);
        self.device
            .write_zeros_at(start, length_bytes)
            .map_err(io_error("zeroing", run.start))?;
        self.count_written(length_bytes);
        Ok(())
    }

    /// Writes out all that the next commit refers to; tells whether anything else is dirty still.
    pub fn write_ordered(&self) -> Result<bool> {
        self.cache.write_ordered().map_err(write_out_error)?;
        Ok(self.cache.has_dirty())
    }

    /// Writes out the rest of what is dirty, and flushes the device between its parts: see
    /// [`Store::write_back`](finefs_namespace::Store::write_back).
    pub fn write_back(&self) -> Result<()> {
        let flush = || self.device.flush();
        let written = self.cache.write_back(WRITE_BACK_BYTES, flush);
        written.map_err(write_out_error)
    }

    /// What was written to the device is durable.
    pub fn flush(&self) -> Result<()> {
        let flushed = self.device.flush();
        flushed.map_err(|error| Error::io(format_args!("flush: {error}")))
    }

    /// Writes out what is dirty of these blocks.
    pub fn write_runs(&self, runs: &[BlockRun]) -> Result<()> {
        self.cache.write_runs(runs).map_err(write_out_error)
    }

    /// Writes to blocks of which those that are not in the cache go to the device at once.
    fn write_through(&self, start: u64, data: &[u8], mode: DataMode) -> Result<()> {
        let mut unwritten = 0;
        for (number, within, range) in self.blocks_of(start, data.len()) {
            let part = &data[range.clone()];
            if self.cache.change_or_drop(number, within, part, mode) {
                self.write_device(start, data, unwritten..range.start)?;
                unwritten = range.end;
            }
        }
        self.write_device(start, data, unwritten..data.len())
    }

    fn write_device(&self, start: u64, data: &[u8], range: Range<usize>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let (place, part) = (start + range.start as u64, &data[range]);
        let block = BlockNo(place / self.block_bytes);
        self.device
            .write_at(place, part)
            .map_err(io_error("writing", block))?;
        self.count_written(part.len() as u64);
        Ok(())
    }

    /// Writes to the cache, and what it has no room for to the device. Where the blocks are blank,
    /// what is left of them becomes zeros.
    fn write_cached(&self, start: u64, data: &[u8], over: Over) -> Result<()> {
        let mut is_reserved = false;
        for (number, within, range) in self.blocks_of(start, data.len()) {
            let part = &data[range.clone()];
            if let Over::Data(mode) = over
                && self.cache.change(number, within, part, mode)
            {
                continue;
            }
            if !is_reserved {
                self.reserve_around(start, data.len())?;
                is_reserved = true;
            }
            let is_cached = match over {
                Over::Nothing => self.cache.put_blank(number, within, part),
                Over::Data(mode) => self.put_over(number, within, part, mode),
            };
            if is_cached {
                continue;
            }
            match over {
                Over::Nothing => self.write_padded_through(number, within, part)?,
                Over::Data(_) => self.write_device(start, data, range)?,
            }
        }
        Ok(())
    }

    /// Takes storage for the blocks of a range: nothing is cached that could not be written for
    /// lack of it, as far as storage can be promised.
    fn reserve_around(&self, start: u64, length: usize) -> Result<()> {
        let block_bytes = self.block_bytes;
        let first = start / block_bytes;
        let end = (start + length as u64).next_multiple_of(block_bytes);
        self.device
            .reserve_around_at(first * block_bytes, end - first * block_bytes)
            .map_err(io_error("taking storage for", BlockNo(first)))
    }

    /// Brings a block into the cache and changes it there: what `data` leaves of it is read before.
    /// False when it cannot come in.
    fn put_over(&self, block: u64, within: usize, data: &[u8], mode: DataMode) -> bool {
        let block_bytes = self.block_bytes as usize;
        if data.len() == block_bytes {
            return self.cache.put_over((block, within), data, &[], mode);
        }
        let mut before: SmallVec<[u8; 4096]> = smallvec![0; block_bytes];
        // What cannot be read can perhaps be written.
        let is_read = (self.device)
            .read_at(block * self.block_bytes, &mut before)
            .is_ok();
        is_read && self.cache.put_over((block, within), data, &before, mode)
    }

    /// Writes a blank block at once.
    fn write_padded_through(&self, block: u64, within: usize, data: &[u8]) -> Result<()> {
        let block_bytes = self.block_bytes as usize;
        let mut padded: SmallVec<[u8; 4096]> = smallvec![0; block_bytes];
        padded[within..within + data.len()].copy_from_slice(data);
        self.write_device(block * self.block_bytes, &padded, 0..block_bytes)
    }

    fn count_written(&self, length_bytes: u64) {
        let blocks = length_bytes.div_ceil(self.block_bytes);
        self.blocks_written.add(blocks as i64);
    }
}

fn io_error(what: &'static str, block: BlockNo) -> impl Fn(io::Error) -> Error {
    move |error| match finefs_block::is_full(&error) {
        true => Error::NoSpace,
        false => Error::io(format_args!("{what} block {}: {error}", block.0)),
    }
}

fn write_out_error(error: io::Error) -> Error {
    match finefs_block::is_full(&error) {
        true => Error::NoSpace,
        false => Error::io(format_args!("writing file data: {error}")),
    }
}
