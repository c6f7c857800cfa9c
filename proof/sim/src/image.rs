//! The bytes of a device, cheap to copy and to compare.
//!
//! # Data model
//! Chunks of 4 KiB in groups of 64; copies share groups and chunks until one of them is written. A
//! fingerprint goes along: the sum over all sectors of a hash of place and content, as a difference
//! to the image that all copies come from. A write changes it by what it changes.
//!
//! # Invariants
//! 1. Two images that come from the same one have equal fingerprints when their bytes are equal.
//!    Different bytes give different ones but for a chance of 2^-64.

use std::io;
use std::sync::Arc;

use finefs_locks::{LockClass, RwLock};

use finefs_block::{BlockDevice, bounds};

/// The bytes of an [`ImageDevice`].
pub static IMAGE: LockClass = LockClass::new("sim.image", 97);

/// What a disk writes at once, or not at all.
pub const SECTOR_BYTES: usize = 512;

const CHUNK_BYTES: usize = 4096;
const GROUP_CHUNKS: usize = 64;

type Chunk = Arc<[u8; CHUNK_BYTES]>;
type Group = Arc<[Chunk; GROUP_CHUNKS]>;

/// The bytes of a device; a copy costs little.
#[derive(Clone)]
pub struct Image {
    length_bytes: u64,
    groups: Vec<Group>,
    fingerprint: u64,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image")
            .field("length_bytes", &self.length_bytes)
            .field("fingerprint", &self.fingerprint)
            .finish()
    }
}

impl Image {
    /// An image of zeros.
    pub fn new(length_bytes: u64) -> Image {
        let zeros: Chunk = Arc::new([0; CHUNK_BYTES]);
        let group: Group = Arc::new(std::array::from_fn(|_| zeros.clone()));
        let count = length_bytes.div_ceil((CHUNK_BYTES * GROUP_CHUNKS) as u64) as usize;
        Image {
            length_bytes,
            groups: vec![group; count],
            fingerprint: 0,
        }
    }

    /// An image that holds `bytes`, and that others come from.
    ///
    /// ```
    /// use finefs_sim::Image;
    ///
    /// let before = Image::from_bytes(&[1; 1024]);
    /// let mut after = before.clone();
    /// after.write(512, &[2]);
    /// assert_ne!(after.fingerprint(), before.fingerprint());
    /// after.write(512, &[1]);
    /// assert_eq!(after.fingerprint(), before.fingerprint());
    /// ```
    pub fn from_bytes(bytes: &[u8]) -> Image {
        let mut image = Image::new(bytes.len() as u64);
        for (index, part) in bytes.chunks(CHUNK_BYTES).enumerate() {
            if part.iter().any(|&byte| byte != 0) {
                image.chunk_mut(index)[..part.len()].copy_from_slice(part);
            }
        }
        image
    }

    /// A copy of all bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length_bytes as usize];
        self.read(0, &mut bytes);
        bytes
    }

    /// Size in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// Tells images apart that come from the same one.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn chunk(&self, index: usize) -> &[u8; CHUNK_BYTES] {
        &self.groups[index / GROUP_CHUNKS][index % GROUP_CHUNKS]
    }

    fn chunk_mut(&mut self, index: usize) -> &mut [u8; CHUNK_BYTES] {
        let group = Arc::make_mut(&mut self.groups[index / GROUP_CHUNKS]);
        Arc::make_mut(&mut group[index % GROUP_CHUNKS])
    }

    /// Fills `buffer` from `offset_bytes` on. Panics past the end.
    pub fn read(&self, offset_bytes: u64, buffer: &mut [u8]) {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset_bytes as usize + done;
            let start = at % CHUNK_BYTES;
            let length = (CHUNK_BYTES - start).min(buffer.len() - done);
            let chunk = self.chunk(at / CHUNK_BYTES);
            buffer[done..done + length].copy_from_slice(&chunk[start..start + length]);
            done += length;
        }
    }

    /// Writes `data` at `offset_bytes`. Panics past the end.
    pub fn write(&mut self, offset_bytes: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset_bytes as usize + done;
            let start = at % SECTOR_BYTES;
            let length = (SECTOR_BYTES - start).min(data.len() - done);
            self.write_in_sector(at, &data[done..done + length]);
            done += length;
        }
    }

    /// Writes within one sector; what is there already costs no copy.
    fn write_in_sector(&mut self, at: usize, data: &[u8]) {
        let sector = at / SECTOR_BYTES;
        let (index, start) = (at / CHUNK_BYTES, at % CHUNK_BYTES);
        if self.chunk(index)[start..start + data.len()] == *data {
            return;
        }
        let sector_start = sector * SECTOR_BYTES % CHUNK_BYTES;
        let range = sector_start..sector_start + SECTOR_BYTES;
        let before = hash(sector, &self.chunk(index)[range.clone()]);
        let chunk = self.chunk_mut(index);
        chunk[start..start + data.len()].copy_from_slice(data);
        let after = hash(sector, &chunk[range]);
        self.fingerprint = self.fingerprint.wrapping_add(after).wrapping_sub(before);
    }
}

/// A hash of a sector's place and content.
fn hash(sector: usize, content: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = (sector as u64 + 1).wrapping_mul(ODD);
    for word in content.chunks_exact(8) {
        let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
        state = (state ^ word).wrapping_mul(ODD);
        state ^= state >> 29;
    }
    state ^ state >> 32
}

/// A device over an [`Image`].
pub struct ImageDevice {
    length_bytes: u64,
    image: RwLock<Image>,
}

impl ImageDevice {
    /// A device that holds `image`.
    pub fn new(image: Image) -> ImageDevice {
        ImageDevice {
            length_bytes: image.length_bytes,
            image: RwLock::new(&IMAGE, image),
        }
    }

    /// What it holds now.
    pub fn image(&self) -> Image {
        self.image.read().clone()
    }

    /// A copy of all bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.image.read().to_bytes()
    }
}

impl BlockDevice for ImageDevice {
    fn len_bytes(&self) -> u64 {
        self.length_bytes
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        bounds::check(self.length_bytes, offset_bytes, buffer.len() as u64)?;
        self.image.read().read(offset_bytes, buffer);
        Ok(())
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        bounds::check(self.length_bytes, offset_bytes, data.len() as u64)?;
        self.image.write().write(offset_bytes, data);
        Ok(())
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        bounds::check(self.length_bytes, offset_bytes, length_bytes)?;
        let zeros = vec![0; length_bytes as usize];
        self.image.write().write(offset_bytes, &zeros);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn describe(&self) -> String {
        format!("image in memory ({} bytes)", self.length_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_apart_and_compare() {
        let size = CHUNK_BYTES * GROUP_CHUNKS * 2 + 1024;
        let base = Image::from_bytes(&vec![7; size]);
        let mut model = vec![7_u8; size];
        let mut image = base.clone();
        let mut seed = 1_u64;
        for round in 0..1000_u64 {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let start = (seed >> 33) as usize % size;
            let data = vec![round as u8; ((seed >> 20) as usize % 3000).min(size - start)];
            image.write(start as u64, &data);
            model[start..start + data.len()].copy_from_slice(&data);
        }
        assert!(image.to_bytes() == model);
        assert!(base.to_bytes() == vec![7; size]);
        // The same bytes by another way have the same fingerprint.
        let mut other = base.clone();
        other.write(0, &model);
        assert_eq!(other.fingerprint(), image.fingerprint());
        other.write(size as u64 - 1, &[model[size - 1] ^ 1]);
        assert_ne!(other.fingerprint(), image.fingerprint());
    }
}
