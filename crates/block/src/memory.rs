//! A device in memory. Chunks come to be at the first write that is not of zeros.

use std::io;

use finefs_locks::{LockClass, RwLock, order};

use crate::{BlockDevice, bounds};

/// A chunk of a device in memory.
pub static CHUNK: LockClass = LockClass::new("block.memory", 95);

const CHUNK_BYTES: usize = 64 << 10;

/// To compare with: as a whole, not byte by byte.
static ZEROS: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];

/// Bytes in memory, sparse, one lock per chunk of 64 KiB.
pub struct MemoryDevice {
    length_bytes: u64,
    chunks: Vec<RwLock<Option<Box<[u8]>>>>,
}

impl MemoryDevice {
    /// A device of zeros.
    pub fn new(length_bytes: u64) -> MemoryDevice {
        let count = length_bytes.div_ceil(CHUNK_BYTES as u64) as usize;
        let chunks = (0..count).map(|_| RwLock::new(&CHUNK, None)).collect();
        MemoryDevice {
            length_bytes,
            chunks,
        }
    }

    /// A device that holds `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> MemoryDevice {
        let device = MemoryDevice::new(bytes.len() as u64);
        for (chunk, part) in device.chunks.iter().zip(bytes.chunks(CHUNK_BYTES)) {
            if *part != ZEROS[..part.len()] {
                let mut whole = vec![0; CHUNK_BYTES].into_boxed_slice();
                whole[..part.len()].copy_from_slice(part);
                *chunk.write() = Some(whole);
            }
        }
        device
    }

    /// A copy of all bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length_bytes as usize];
        for (chunk, part) in self.chunks.iter().zip(bytes.chunks_mut(CHUNK_BYTES)) {
            if let Some(whole) = &*chunk.read() {
                part.copy_from_slice(&whole[..part.len()]);
            }
        }
        bytes
    }

    /// Calls `visit` for each chunk that the range touches, with the range within the chunk and
    /// the position within the request.
    fn visit(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mut visit: impl FnMut(&RwLock<Option<Box<[u8]>>>, std::ops::Range<usize>, usize),
    ) -> io::Result<()> {
        order::check_io();
        bounds::check(self.length_bytes, offset_bytes, length_bytes)?;
        let mut done_bytes = 0;
        while done_bytes < length_bytes {
            let position = offset_bytes + done_bytes;
            let start = (position % CHUNK_BYTES as u64) as usize;
            let length = ((CHUNK_BYTES - start) as u64).min(length_bytes - done_bytes) as usize;
            let chunk = &self.chunks[(position / CHUNK_BYTES as u64) as usize];
            visit(chunk, start..start + length, done_bytes as usize);
            done_bytes += length as u64;
        }
        Ok(())
    }
}

impl BlockDevice for MemoryDevice {
    fn len_bytes(&self) -> u64 {
        self.length_bytes
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.visit(offset_bytes, buffer.len() as u64, |chunk, range, at| {
            let target = &mut buffer[at..at + range.len()];
            match &*chunk.read() {
                Some(bytes) => target.copy_from_slice(&bytes[range]),
                None => target.fill(0),
            }
        })
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        self.visit(offset_bytes, data.len() as u64, |chunk, range, at| {
            chunk
                .write()
                .get_or_insert_with(|| vec![0; CHUNK_BYTES].into_boxed_slice())[range.clone()]
            .copy_from_slice(&data[at..at + range.len()]);
        })
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        self.visit(offset_bytes, length_bytes, |chunk, range, _| {
            let mut chunk = chunk.write();
            if range.len() == CHUNK_BYTES {
                *chunk = None;
            } else if let Some(bytes) = &mut *chunk {
                bytes[range].fill(0);
            }
        })
    }

    fn discard_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<bool> {
        self.write_zeros_at(offset_bytes, length_bytes)?;
        Ok(true)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn describe(&self) -> String {
        format!("memory ({} bytes)", self.length_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_like_an_array() {
        let size = 5 * CHUNK_BYTES / 2;
        let device = MemoryDevice::new(size as u64);
        let mut model = vec![0_u8; size];
        let mut seed = 1_u64;
        for round in 0..2000 {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let start = (seed >> 33) as usize % size;
            let length = (seed >> 20) as usize % (size - start + 1);
            match round % 3 {
                0 => {
                    device.write_zeros_at(start as u64, length as u64).unwrap();
                    model[start..start + length].fill(0);
                }
                1 => {
                    let length = length.min(1000);
                    let data = vec![round as u8; length];
                    device.write_at(start as u64, &data).unwrap();
                    model[start..start + length].copy_from_slice(&data);
                }
                _ => {
                    let mut buffer = vec![1; length];
                    device.read_at(start as u64, &mut buffer).unwrap();
                    assert!(buffer == model[start..start + length]);
                }
            }
        }
        assert!(device.to_bytes() == model);
        assert!(MemoryDevice::from_bytes(&model).to_bytes() == model);
        assert!(device.read_at(size as u64, &mut [0]).is_err());
    }
}
