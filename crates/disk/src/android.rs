//! Android's sparse images: chunks of data, of a repeated word, and of nothing.
//!
//! # References
//! AOSP, `system/core/libsparse/sparse_format.h`.

use std::io;
use std::sync::Arc;

use finefs_block::{BlockDevice, Extent, bounds};

/// The first word.
const MAGIC: u32 = 0xed26_ff3a;
/// Of a file's header, and of a chunk's.
pub const HEADER_BYTES: u16 = 28;
const CHUNK_HEADER_BYTES: u16 = 12;
/// What a chunk of `FILL` repeats.
const WORD_BYTES: u32 = 4;
const ZEROS_CHUNK_BYTES: usize = CHUNK_HEADER_BYTES as usize + WORD_BYTES as usize;
/// The unit of chunks that is written.
pub const BLOCK_BYTES: u32 = 4096;

/// Kinds of chunks.
const RAW: u16 = 0xcac1;
const FILL: u16 = 0xcac2;
const DONT_CARE: u16 = 0xcac3;
const CRC32: u16 = 0xcac4;

/// The header of a file.
pub fn header(blocks: u32, chunks: u32) -> [u8; HEADER_BYTES as usize] {
    let mut bytes = [0; HEADER_BYTES as usize];
    let mut put = |at: usize, word: &[u8]| bytes[at..at + word.len()].copy_from_slice(word);
    put(0, &MAGIC.to_le_bytes());
    put(4, &1_u16.to_le_bytes());
    put(8, &HEADER_BYTES.to_le_bytes());
    put(10, &CHUNK_HEADER_BYTES.to_le_bytes());
    put(12, &BLOCK_BYTES.to_le_bytes());
    put(16, &blocks.to_le_bytes());
    put(20, &chunks.to_le_bytes());
    bytes
}

/// The header of a chunk of so many blocks, whose data follow.
pub fn data_header(blocks: u32) -> [u8; CHUNK_HEADER_BYTES as usize] {
    chunk_header(RAW, blocks, blocks * BLOCK_BYTES)
}

/// A chunk of so many blocks of zeros, whole: the word 0, to be repeated. Tools that flash an image
/// skip a chunk of `DONT_CARE`, and the device keeps what it has there.
pub fn zeros_chunk(blocks: u32) -> [u8; ZEROS_CHUNK_BYTES] {
    let mut bytes = [0; ZEROS_CHUNK_BYTES];
    let header = chunk_header(FILL, blocks, WORD_BYTES);
    bytes[..header.len()].copy_from_slice(&header);
    bytes
}

fn chunk_header(kind: u16, blocks: u32, data_bytes: u32) -> [u8; CHUNK_HEADER_BYTES as usize] {
    let mut bytes = [0; CHUNK_HEADER_BYTES as usize];
    bytes[0..2].copy_from_slice(&kind.to_le_bytes());
    bytes[4..8].copy_from_slice(&blocks.to_le_bytes());
    let whole = u32::from(CHUNK_HEADER_BYTES) + data_bytes;
    bytes[8..12].copy_from_slice(&whole.to_le_bytes());
    bytes
}

/// What a stretch of the image is made of.
#[derive(Clone, Copy, Debug)]
enum Content {
    /// The file's bytes from here on.
    At(u64),
    /// This word, again and again.
    Word([u8; 4]),
}

/// A stretch of the image that is not all zeros.
#[derive(Debug)]
struct Stretch {
    start: u64,
    end: u64,
    content: Content,
}

/// A sparse image, to read.
#[derive(Debug)]
pub struct SparseDevice<D> {
    file: Arc<D>,
    length_bytes: u64,
    /// In ascending order; zeros between them.
    stretches: Vec<Stretch>,
}

fn wrong(what: &str) -> io::Error {
    io::Error::other(format!("is a damaged Android sparse image: {what}"))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl<D: BlockDevice> SparseDevice<D> {
    /// Reads the chunks of the image in a file.
    pub fn open(file: Arc<D>) -> io::Result<SparseDevice<D>> {
        let mut header = [0; HEADER_BYTES as usize];
        file.read_at(0, &mut header)
            .map_err(|_| wrong("it ends within its header"))?;
        let (header_bytes, chunk_bytes) = (u16_at(&header, 8), u16_at(&header, 10));
        let block = u64::from(u32_at(&header, 12));
        if u32_at(&header, 0) != MAGIC
            || header_bytes < HEADER_BYTES
            || chunk_bytes < CHUNK_HEADER_BYTES
            || block == 0
            || block % 4 != 0
        {
            return Err(wrong("its header makes no sense"));
        }
        let length_bytes = block * u64::from(u32_at(&header, 16));
        let mut stretches = Vec::new();
        let mut from = u64::from(header_bytes);
        let mut to = 0;
        for _ in 0..u32_at(&header, 20) {
            let mut chunk = [0; CHUNK_HEADER_BYTES as usize];
            file.read_at(from, &mut chunk)
                .map_err(|_| wrong("it ends before its last chunk"))?;
            let length = block * u64::from(u32_at(&chunk, 4));
            let whole = u64::from(u32_at(&chunk, 8));
            let data = from + u64::from(chunk_bytes);
            let size = whole.checked_sub(u64::from(chunk_bytes));
            let content = match (u16_at(&chunk, 0), size) {
                (RAW, Some(size)) if size == length => Some(Content::At(data)),
                (FILL, Some(4)) => {
                    let mut word = [0; 4];
                    file.read_at(data, &mut word)
                        .map_err(|_| wrong("it ends within a chunk"))?;
                    Some(Content::Word(word)).filter(|_| word != [0; 4])
                }
                (DONT_CARE, Some(0)) => None,
                (CRC32, Some(4)) if length == 0 => None,
                _ => return Err(wrong("a chunk makes no sense")),
            };
            let end = to + length;
            if end > length_bytes || from + whole > file.len_bytes() {
                return Err(wrong("a chunk lies outside of it"));
            }
            if let Some(content) = content.filter(|_| length > 0) {
                stretches.push(Stretch {
                    start: to,
                    end,
                    content,
                });
            }
            (from, to) = (from + whole, end);
        }
        if to != length_bytes {
            return Err(wrong("its chunks do not fill it"));
        }
        Ok(SparseDevice {
            file,
            length_bytes,
            stretches,
        })
    }

    /// The first stretch that ends behind an offset.
    fn first_behind(&self, offset_bytes: u64) -> usize {
        self.stretches
            .partition_point(|stretch| stretch.end <= offset_bytes)
    }
}

impl<D: BlockDevice> BlockDevice for SparseDevice<D> {
    fn len_bytes(&self) -> u64 {
        self.length_bytes
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset_bytes + buffer.len() as u64;
        bounds::check(self.length_bytes, offset_bytes, buffer.len() as u64)?;
        buffer.fill(0);
        let first = self.first_behind(offset_bytes);
        for stretch in self.stretches[first..]
            .iter()
            .take_while(|it| it.start < end)
        {
            let from = stretch.start.max(offset_bytes);
            let to = stretch.end.min(end);
            let within = from - stretch.start;
            let part = &mut buffer[(from - offset_bytes) as usize..(to - offset_bytes) as usize];
            match stretch.content {
                Content::At(place) => self.file.read_at(place + within, part)?,
                Content::Word(word) => {
                    for (index, byte) in part.iter_mut().enumerate() {
                        *byte = word[(within as usize + index) % 4];
                    }
                }
            }
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn extent_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Extent> {
        bounds::check(self.length_bytes, offset_bytes, length_bytes)?;
        let end = offset_bytes + length_bytes;
        let next = self.stretches.get(self.first_behind(offset_bytes));
        let (to, is_zero) = match next {
            Some(stretch) if stretch.start <= offset_bytes => (stretch.end, false),
            Some(stretch) => (stretch.start, true),
            None => (end, true),
        };
        Ok(Extent {
            length_bytes: to.min(end) - offset_bytes,
            is_zero,
        })
    }

    fn describe(&self) -> String {
        self.file.describe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_block::MemoryDevice;

    fn image(chunks: u32) -> Vec<u8> {
        let mut bytes = header(4, chunks).to_vec();
        bytes.extend(data_header(1));
        bytes.extend([7; BLOCK_BYTES as usize]);
        bytes.extend(chunk_header(DONT_CARE, 1, 0));
        bytes.extend(chunk_header(FILL, 2, WORD_BYTES));
        bytes.extend([1, 2, 3, 4]);
        bytes
    }

    fn open(bytes: &[u8]) -> io::Result<SparseDevice<MemoryDevice>> {
        SparseDevice::open(Arc::new(MemoryDevice::from_bytes(bytes)))
    }

    #[test]
    fn chunks_are_read() {
        let device = open(&image(3)).unwrap();
        assert_eq!(device.len_bytes(), 4 * 4096);
        let mut bytes = vec![9; 4 * 4096 - 2];
        device.read_at(1, &mut bytes).unwrap();
        assert!(bytes[..4095].iter().all(|byte| *byte == 7));
        assert!(bytes[4095..8191].iter().all(|byte| *byte == 0));
        assert_eq!(bytes[8191..8197], [1, 2, 3, 4, 1, 2]);
        let extent = |at| device.extent_at(at, 16384 - at).unwrap();
        assert_eq!((extent(0).length_bytes, extent(0).is_zero), (4096, false));
        assert_eq!(
            (extent(4100).length_bytes, extent(4100).is_zero),
            (4092, true)
        );
        assert!(!extent(9000).is_zero);
    }

    #[test]
    fn zeros_are_a_word_that_is_repeated() {
        let chunk = zeros_chunk(3);
        assert_eq!(chunk[..2], FILL.to_le_bytes());
        assert_eq!(chunk[4..], [3, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0]);
        let device = open(&[&header(3, 1)[..], &chunk].concat()).unwrap();
        let extent = device.extent_at(0, device.len_bytes()).unwrap();
        assert_eq!((extent.length_bytes, extent.is_zero), (3 * 4096, true));
    }

    #[test]
    fn damaged_ones_are_refused() {
        let whole = image(3);
        assert!(open(&whole[..20]).is_err());
        assert!(open(&whole[..whole.len() - 1]).is_err());
        assert!(open(&image(4)).is_err());
        for at in [8, 10, 12, 16, 28, 32, 36] {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x35;
            assert!(open(&damaged).is_err(), "{at}");
        }
    }
}
