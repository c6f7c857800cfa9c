//! The bytes of a file, with its holes.

use std::sync::atomic::Ordering;

use super::{Context, Sparse};
use crate::error::{Error, Result};
use crate::tree::{SinkFile, SourceFile};

/// Bytes that are moved at a time.
const CHUNK: usize = 1 << 20;
/// Zeros are looked for in pieces of this size.
const BLOCK: usize = 4096;

/// Copies all data; `size` is what the source's length was. The copy ends where the source does
/// meanwhile, as with cp(1).
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
        Sparse::Kept | Sparse::Made => copy.pieces(size, buffer)?,
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
    /// Copies what is not in holes; gives where the source ends.
    fn pieces(&mut self, size: u64, buffer: &mut [u8]) -> Result<u64> {
        let mut at = 0;
        while let Some((start, end)) = self.source.data_after(at)? {
            at = self.range(start, end, buffer)?;
            if at < end {
                // It ends before that, maybe before the piece.
                return Ok(at.min(self.source.size()?));
            }
        }
        match at < size {
            // The rest is a hole, of which there may be less than there was.
            true => Ok(at.max(self.source.size()?)),
            false => Ok(at),
        }
    }

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

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::super::{Observer, Options, Progress};
    use super::*;
    use crate::attributes::{Change, Lacking};

    /// A file of sevens whose end goes while it is read: so much is left after so many reads.
    struct Shrinking {
        data: Vec<(u64, u64)>,
        length: Cell<u64>,
        reads_left: Cell<u32>,
        left: u64,
    }

    impl SourceFile for Shrinking {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
            let rest = self.length.get().saturating_sub(offset);
            let count = buffer.len().min(rest as usize);
            buffer[..count].fill(7);
            if self.reads_left.get() == 1 {
                self.length.set(self.left);
            }
            self.reads_left.set(self.reads_left.get().saturating_sub(1));
            Ok(count)
        }

        fn data_after(&self, offset: u64) -> Result<Option<(u64, u64)>> {
            let length = self.length.get();
            let mut data = self.data.iter().map(|(start, end)| (*start, *end));
            let next = data.find(|(start, end)| offset < *end && *start < length);
            Ok(next.map(|(start, end)| (start.max(offset), end)))
        }

        fn size(&self) -> Result<u64> {
            Ok(self.length.get())
        }
    }

    #[derive(Default)]
    struct Taken(RefCell<Vec<u8>>);

    impl SinkFile for Taken {
        fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
            let mut bytes = self.0.borrow_mut();
            let end = offset as usize + data.len();
            let length = bytes.len().max(end);
            bytes.resize(length, 0);
            bytes[offset as usize..end].copy_from_slice(data);
            Ok(())
        }

        fn set_len(&self, length: u64) -> Result<()> {
            self.0.borrow_mut().resize(length as usize, 0);
            Ok(())
        }

        fn apply(&self, _: &Change) -> Result<Lacking> {
            Ok(Lacking::default())
        }
    }

    struct Silent;

    impl Observer for Silent {
        fn failed(&self, _: &Error) {}
    }

    /// The length of the copy of a file that was so long, and has this length after some reads.
    fn copied(sparse: Sparse, data: &[(u64, u64)], was: u64, reads: u32, left: u64) -> usize {
        let source = Shrinking {
            data: data.to_vec(),
            length: Cell::new(was),
            reads_left: Cell::new(reads),
            left,
        };
        if reads == 0 {
            source.length.set(left);
        }
        let options = Options {
            sparse,
            ..Options::default()
        };
        let context = Context {
            options: &options,
            progress: &Progress::default(),
            observer: &Silent,
        };
        let taken = Taken::default();
        copy(&source, &taken, was, &context, &mut Vec::new()).unwrap();
        let bytes = taken.0.into_inner();
        let (start, end) = data[0];
        let end = bytes.len().min(end as usize);
        assert!(
            bytes[(start as usize).min(end)..end]
                .iter()
                .all(|byte| *byte == 7)
        );
        bytes.len()
    }

    #[test]
    fn a_copy_ends_where_the_file_ends_meanwhile() {
        const WHOLE: u64 = 3 << 20;
        for sparse in [Sparse::Kept, Sparse::Made, Sparse::Filled] {
            let whole = [(0, WHOLE)];
            assert_eq!(copied(sparse, &whole, WHOLE, 9, 0), WHOLE as usize);
            // Before it is read; within what is read; behind what was read of it.
            assert_eq!(copied(sparse, &whole, WHOLE, 0, 5000), 5000);
            assert_eq!(copied(sparse, &whole, WHOLE, 1, 1_500_000), 1_500_000);
            assert_eq!(copied(sparse, &whole, WHOLE, 2, 100), 2 << 20);
        }
        for sparse in [Sparse::Kept, Sparse::Made] {
            // A hole at the end, and one before the data.
            let head = [(0, 1 << 20)];
            assert_eq!(copied(sparse, &head, WHOLE, 9, 0), WHOLE as usize);
            assert_eq!(copied(sparse, &head, WHOLE, 1, 2 << 20), 2 << 20);
            assert_eq!(copied(sparse, &head, WHOLE, 1, 100), 1 << 20);
            let last = [(2 << 20, WHOLE)];
            assert_eq!(copied(sparse, &last, WHOLE, 0, 1 << 20), 1 << 20);
        }
    }
}
