//! The bytes of files, wherever they are.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::squash;
use crate::error::{Error, Result};
use crate::host::HostDir;
use crate::tree::{Follow, SourceDir, SourceFile};

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// A part of a file: where it begins in the file, where it lies in an archive, and its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub offset: u64,
    pub at: u64,
    pub length: u64,
}

/// Where the data of a file is.
#[derive(Clone)]
pub(super) enum Data {
    /// A file of the host.
    Host {
        /// Its directory.
        directory: Arc<Path>,
        /// Its name there.
        name: OsString,
    },
    /// A file of an image.
    Image {
        /// Its directory.
        directory: Arc<dyn SourceDir>,
        /// Its name there.
        name: OsString,
    },
    /// Parts of an archive.
    Archive {
        /// The archive, unpacked.
        file: Arc<File>,
        /// In the order of the file; the rest are holes.
        segments: Vec<Segment>,
    },
    /// The data itself.
    Memory(Arc<[u8]>),
    /// A file of a squashfs image, by its number.
    Squashfs {
        /// The image.
        image: Arc<squash::Image>,
        /// Which of its files.
        number: usize,
    },
}

/// The data of a file.
#[derive(Clone)]
pub(super) struct Content {
    pub data: Data,
    /// Length of the file.
    pub size: u64,
    /// Bytes that are no holes, at most.
    pub data_bytes: u64,
    /// Parts that they lie in, as far as that is known.
    pub pieces: u64,
}

/// Is given data, and where in the file it lies.
pub(super) type Take<'a> = dyn FnMut(u64, &[u8]) -> Result<()> + 'a;

/// What a thread that reads keeps from file to file.
#[derive(Default)]
pub(super) struct Reader {
    buffer: Vec<u8>,
    directory: Option<(Arc<Path>, HostDir)>,
}

impl Reader {
    fn enter(&mut self, path: &Arc<Path>) -> Result<()> {
        let is_open = matches!(&self.directory, Some((open, _)) if Arc::ptr_eq(open, path));
        if !is_open {
            self.directory = Some((Arc::clone(path), HostDir::open(path)?));
        }
        Ok(())
    }
}

impl Content {
    /// Gives all that is not zeros, in pieces that start where blocks of `block` bytes do.
    ///
    /// # Errors
    /// Those of reading, and those of `take`; `shown` is what the file is called.
    pub fn read(
        &self,
        reader: &mut Reader,
        shown: &dyn Fn() -> String,
        block: usize,
        take: &mut Take<'_>,
    ) -> Result<()> {
        let wanted = CHUNK_BYTES.min(self.size as usize);
        // And a byte that should not be there: see `read_chunk`.
        if reader.buffer.len() <= wanted {
            reader.buffer.resize(wanted + 1, 0);
        }
        match &self.data {
            Data::Host { directory, name } => {
                reader.enter(directory)?;
                let (Some((_, dir)), buffer) = (&reader.directory, &mut reader.buffer) else {
                    return Ok(());
                };
                self.read_file(dir, name, &mut buffer[..=wanted], block, take)
            }
            Data::Image { directory, name } => {
                let buffer = &mut reader.buffer[..=wanted];
                self.read_file(&**directory, name, buffer, block, take)
            }
            Data::Archive { file, segments } => {
                let buffer = &mut reader.buffer[..wanted];
                read_segments(file, segments, shown, buffer, block, take)
            }
            Data::Memory(data) => give(data, 0, block, take),
            Data::Squashfs { image, number } => {
                let buffer = &mut reader.buffer[..wanted];
                image.read(*number, shown, (buffer, block), take)
            }
        }
    }

    fn read_file(
        &self,
        dir: &dyn SourceDir,
        name: &OsStr,
        buffer: &mut [u8],
        block: usize,
        take: &mut Take<'_>,
    ) -> Result<()> {
        let file = dir.open_file(name, Follow::No)?;
        let has_holes = self.data_bytes < self.size;
        let data_after = |at| match has_holes {
            true => file.data_after(at),
            false => Ok((at < self.size).then_some((at, self.size))),
        };
        let (mut at, mut is_end_seen) = (0, false);
        let mut is_whole = true;
        while is_whole && let Some((start, end)) = data_after(at)? {
            // From the start of the block: one that begins with a hole is one piece.
            at = start / block as u64 * block as u64;
            while is_whole && at < end.min(self.size) {
                let wanted = up_to_chunk(at).min(self.size - at) as usize;
                is_end_seen = at + wanted as u64 == self.size;
                let count = read_chunk(&*file, &mut buffer[..=wanted], at, is_end_seen)?;
                is_whole = count == wanted;
                if is_whole {
                    give(&buffer[..count], at, block, take)?;
                    at += count as u64;
                }
            }
            if at >= self.size {
                break;
            }
        }
        if is_whole && !is_end_seen {
            let mut last = [0; 2];
            let from = self.size.saturating_sub(1);
            is_whole = file.read_at(&mut last, from)? as u64 == self.size - from;
        }
        match is_whole {
            true => Ok(()),
            false => Err(Error::new(dir.shown(name), CHANGED)),
        }
    }
}

/// Bytes from a place in a file to where a chunk ends. So the same data comes in the same pieces,
/// wherever the source has holes.
fn up_to_chunk(offset: u64) -> u64 {
    CHUNK_BYTES as u64 - offset % CHUNK_BYTES as u64
}

/// Fills a buffer but for its last byte. That is asked for too where the file should end, so that
/// one call tells its length; gives what there is.
fn read_chunk(file: &dyn SourceFile, buffer: &mut [u8], at: u64, is_last: bool) -> Result<usize> {
    let wanted = buffer.len() - 1;
    let asked = wanted + usize::from(is_last);
    let mut done = 0;
    while done < wanted {
        match file.read_at(&mut buffer[done..asked], at + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

fn read_segments(
    file: &File,
    segments: &[Segment],
    shown: &dyn Fn() -> String,
    buffer: &mut [u8],
    block: usize,
    take: &mut Take<'_>,
) -> Result<()> {
    let mut read = |buffer: &mut [u8], at| {
        file.read_at(buffer, at)
            .map_err(|error| Error::host(shown(), error))
    };
    for segment in segments {
        let mut done = 0;
        while done < segment.length {
            let offset = segment.offset + done;
            let wanted = up_to_chunk(offset).min(segment.length - done) as usize;
            let part = &mut buffer[..wanted];
            if read_whole(part, segment.at + done, &mut read)? < wanted {
                return Err(Error::new(shown(), "the archive ends in its data"));
            }
            give(part, offset, block, take)?;
            done += wanted as u64;
        }
    }
    Ok(())
}

const CHANGED: &str = "has changed while it was read";

pub(super) fn read_whole(
    buffer: &mut [u8],
    at: u64,
    read: &mut dyn FnMut(&mut [u8], u64) -> Result<usize>,
) -> Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match read(&mut buffer[done..], at + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

/// Gives runs of blocks that are not all zeros.
pub(super) fn give(data: &[u8], at: u64, block: usize, take: &mut Take<'_>) -> Result<()> {
    let mut start = None;
    let mut offset = 0;
    while offset < data.len() {
        let end = (offset + block - (at as usize + offset) % block).min(data.len());
        let is_zero = data[offset..end].iter().all(|byte| *byte == 0);
        match (is_zero, start) {
            (true, Some(from)) => {
                take(at + from as u64, &data[from..offset])?;
                start = None;
            }
            (false, None) => start = Some(offset),
            _ => {}
        }
        offset = end;
    }
    match start {
        Some(from) => take(at + from as u64, &data[from..]),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_zeros_are_left_out() {
        let mut data = vec![1; 4 * 512];
        data[512..1024].fill(0);
        data[1536..2048].fill(0);
        let mut given = Vec::new();
        give(&data, 1024, 512, &mut |at, part| {
            given.push((at, part.len()));
            Ok(())
        })
        .unwrap();
        assert_eq!(given, [(1024, 512), (2048, 512)]);
    }

    #[test]
    fn parts_that_begin_within_a_block_end_with_it() {
        let mut data = vec![1; 1000];
        data[412..924].fill(0);
        let mut given = Vec::new();
        give(&data, 100, 512, &mut |at, part| {
            given.push((at, part.len()));
            Ok(())
        })
        .unwrap();
        assert_eq!(given, [(100, 412), (1024, 76)]);
    }

    #[test]
    fn a_file_that_is_not_as_long_as_it_was_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path: Arc<Path> = Arc::from(directory.path());
        let chunk = CHUNK_BYTES as u64;
        for size in [0, 1, 4096, 5000, chunk, chunk + 1] {
            for (length, data_bytes) in [(size, size), (size + 1, size), (size, size / 2)]
                .into_iter()
                .chain(size.checked_sub(1).map(|less| (less, size)))
            {
                std::fs::write(path.join("file"), vec![1; length as usize]).unwrap();
                let data = Data::Host {
                    directory: Arc::clone(&path),
                    name: "file".into(),
                };
                let content = Content {
                    data,
                    size,
                    data_bytes,
                    pieces: 1,
                };
                let mut read = 0;
                let outcome = content.read(
                    &mut Reader::default(),
                    &String::new,
                    4096,
                    &mut |at, part| {
                        assert_eq!(at, read);
                        read += part.len() as u64;
                        Ok(())
                    },
                );
                assert_eq!(
                    outcome.is_ok(),
                    length == size,
                    "{length} bytes, {size} wanted"
                );
                assert!(outcome.is_err() || read == size);
            }
        }
    }
}
