//! The bytes of a file, with its holes.

use std::sync::atomic::Ordering;

use super::{Context, Sparse};
use crate::error::{Error, Result};
use crate::tree::{SinkFile, SourceFile};

/// Bytes that are moved at a time.
const CHUNK: usize = 1 << 20;
/// Zeros are looked for in pieces of this size.
const BLOCK: usize = 4096;

/// Copies all data; `size` is what the source's length was.
pub(super) fn copy(
    source: &dyn SourceFile,
    sink: &dyn SinkFile,
    size: u64,
    context: &Context<'_>,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    let mut copy = Copy {
        source,
        sink,
        context,
        written_to: 0,
    };
    let chunk = usize::try_from(size).unwrap_or(CHUNK).clamp(BLOCK, CHUNK);
    if buffer.len() < chunk {
        buffer.resize(chunk, 0);
    }
    let end = match context.options.sparse {
        Sparse::Filled => copy.range(0, u64::MAX, buffer)?,
        Sparse::Kept | Sparse::Made if size == 0 => copy.range(0, u64::MAX, buffer)?,
        Sparse::Kept | Sparse::Made => {
            let mut at = 0;
            while let Some((start, end)) = source.data_after(at)? {
                at = copy.range(start, end, buffer)?;
                if at < end {
                    break;
                }
            }
            at.max(size)
        }
    };
    match copy.written_to < end {
        true => sink.set_len(end),
        false => Ok(()),
    }
}

struct Copy<'a> {
    source: &'a dyn SourceFile,
    sink: &'a dyn SinkFile,
    context: &'a Context<'a>,
    /// The end of what was written.
    written_to: u64,
}

impl Copy<'_> {
    /// Copies a range, or what there is of it; gives where it ended.
    fn range(&mut self, start: u64, end: u64, buffer: &mut [u8]) -> Result<u64> {
        let mut at = start;
        while at < end {
            if self.context.progress.stop.load(Ordering::Relaxed) {
                return Err(Error::new("", "interrupted"));
            }
            let wanted = usize::try_from(end - at).unwrap_or(usize::MAX);
            let wanted = wanted.min(buffer.len());
            let count = self.source.read_at(&mut buffer[..wanted], at)?;
            if count == 0 {
                break;
            }
            self.write(&buffer[..count], at)?;
            at += count as u64;
            let bytes = &self.context.progress.bytes;
            bytes.fetch_add(count as u64, Ordering::Relaxed);
        }
        Ok(at)
    }

    fn write(&mut self, data: &[u8], at: u64) -> Result<()> {
        if self.context.options.sparse != Sparse::Made {
            self.sink.write_at(data, at)?;
            self.written_to = at + data.len() as u64;
            return Ok(());
        }
        // Runs of blocks that are not all zeros.
        let mut start = 0;
        for (index, block) in data.chunks(BLOCK).enumerate() {
            let offset = index * BLOCK;
            if block.iter().all(|byte| *byte == 0) {
                self.run(data, start, offset, at)?;
                start = offset + block.len();
            }
        }
        self.run(data, start, data.len(), at)
    }

    fn run(&mut self, data: &[u8], start: usize, end: usize, at: u64) -> Result<()> {
        if start < end {
            self.sink.write_at(&data[start..end], at + start as u64)?;
            self.written_to = at + end as u64;
        }
        Ok(())
    }
}
