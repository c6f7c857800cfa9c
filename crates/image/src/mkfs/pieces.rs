//! What is to be written where, and the writing.
//!
//! # Order
//! The primary superblock is written last, after a flush: a file system of which only a part was
//! written is not taken for one.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use finefs_block::BlockDevice;

/// So many bytes go out in one request at most.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// Bytes by their place.
pub(super) struct Pieces {
    block_size: u32,
    /// By byte offset. They do not overlap.
    parts: BTreeMap<u64, Arc<Vec<u8>>>,
}

impl Pieces {
    pub fn new(block_size: u32) -> Pieces {
        Pieces {
            block_size,
            parts: BTreeMap::new(),
        }
    }

    /// Puts bytes at the start of a block.
    pub fn put_block(&mut self, block: u64, bytes: Vec<u8>) {
        self.put_bytes(block * u64::from(self.block_size), Arc::new(bytes));
    }

    /// Puts bytes, which may be shared with other places, anywhere.
    pub fn put_bytes(&mut self, offset_bytes: u64, bytes: Arc<Vec<u8>>) {
        self.parts.insert(offset_bytes, bytes);
    }

    /// Bytes in all.
    pub fn len_bytes(&self) -> u64 {
        self.parts.values().map(|part| part.len() as u64).sum()
    }

    /// Where there are bytes, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let parts = self.parts.iter();
        parts.map(|(start, part)| *start..start + part.len() as u64)
    }

    /// Writes everything, neighbours together. Where the device `is_blank`, what is all zeros
    /// stays a hole. How many bytes were written.
    pub fn write(&self, device: &dyn BlockDevice, is_blank: bool) -> io::Result<u64> {
        let mut written = 0;
        let mut run = Run::default();
        for (offset, part) in &self.parts {
            if is_blank && part.iter().all(|byte| *byte == 0) {
                continue;
            }
            if run.end != *offset || run.end - run.start > REQUEST_BYTES_MAX as u64 {
                run.write(device)?;
                run = Run {
                    start: *offset,
                    end: *offset,
                    parts: Vec::new(),
                };
            }
            run.end += part.len() as u64;
            run.parts.push(part);
            written += part.len() as u64;
        }
        run.write(device)?;
        Ok(written)
    }
}

/// Parts that follow each other.
#[derive(Default)]
struct Run<'a> {
    start: u64,
    end: u64,
    parts: Vec<&'a [u8]>,
}

impl Run<'_> {
    fn write(&self, device: &dyn BlockDevice) -> io::Result<()> {
        match self.parts.is_empty() {
            true => Ok(()),
            false => device.write_parts_at(self.start, &self.parts),
        }
    }
}
