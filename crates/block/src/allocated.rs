//! Which parts of a sparse file surely have storage of their own.
//!
//! # Data model
//! The file is cut into units of [`UNIT_BYTES`], and 64 units make a chunk. A chunk of which something is
//! known has an entry in a table: one bit for each unit. A bit that is set means storage; one that is
//! not means that nobody has asked yet.
//!
//! # Locking
//! One lock, `block.allocated`, a leaf: not held over I/O. Two that reserve the same unit at once both
//! ask the kernel, which does no harm.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use finefs_locks::{LockClass, Mutex};

/// What is known of a sparse file's storage.
pub static ALLOCATED: LockClass = LockClass::new("block.allocated", 94);

/// The unit of what is known.
const UNIT_BYTES: u64 = 4096;
const CHUNK_UNITS: u64 = u64::BITS as u64;

/// See the module's head.
pub(crate) struct Allocated {
    chunks: Mutex<HashMap<u64, u64>>,
}

impl Allocated {
    /// Nothing is known.
    pub fn new() -> Allocated {
        Allocated {
            chunks: Mutex::new(&ALLOCATED, HashMap::new()),
        }
    }

    /// True when all of a range is known to have storage.
    pub fn has(&self, offset_bytes: u64, length_bytes: u64) -> bool {
        let chunks = self.chunks.lock();
        let end = (offset_bytes + length_bytes).div_ceil(UNIT_BYTES);
        (offset_bytes / UNIT_BYTES..end).all(|unit| {
            let known = chunks.get(&(unit / CHUNK_UNITS)).copied().unwrap_or(0);
            known >> (unit % CHUNK_UNITS) & 1 != 0
        })
    }

    /// The parts of a range that are not known to have storage, rounded out to units.
    pub fn missing(&self, offset_bytes: u64, length_bytes: u64) -> Vec<Range<u64>> {
        let chunks = self.chunks.lock();
        let mut missing: Vec<Range<u64>> = Vec::new();
        let end = (offset_bytes + length_bytes).div_ceil(UNIT_BYTES);
        for unit in offset_bytes / UNIT_BYTES..end {
            let known = chunks.get(&(unit / CHUNK_UNITS)).copied().unwrap_or(0);
            if known >> (unit % CHUNK_UNITS) & 1 != 0 {
                continue;
            }
            let start = unit * UNIT_BYTES;
            match missing.last_mut() {
                Some(last) if last.end == start => last.end += UNIT_BYTES,
                _ => missing.push(start..start + UNIT_BYTES),
            }
        }
        missing
    }

    /// A range, which begins with a unit, has storage now. A unit that it ends in has too.
    pub fn note(&self, offset_bytes: u64, length_bytes: u64) {
        let mut chunks = self.chunks.lock();
        let end = (offset_bytes + length_bytes).div_ceil(UNIT_BYTES);
        for unit in offset_bytes / UNIT_BYTES..end {
            *chunks.entry(unit / CHUNK_UNITS).or_default() |= 1 << (unit % CHUNK_UNITS);
        }
    }

    /// A range, rounded out to units, may have no storage any more.
    pub fn forget(&self, offset_bytes: u64, length_bytes: u64) {
        let mut chunks = self.chunks.lock();
        let first = offset_bytes / UNIT_BYTES;
        let end = (offset_bytes + length_bytes).div_ceil(UNIT_BYTES);
        chunks.retain(|chunk, known| {
            let from = first.clamp(chunk * CHUNK_UNITS, (chunk + 1) * CHUNK_UNITS);
            let to = end.clamp(from, (chunk + 1) * CHUNK_UNITS);
            for unit in from..to {
                *known &= !(1 << (unit % CHUNK_UNITS));
            }
            *known != 0
        });
    }
}

impl fmt::Debug for Allocated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocated").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_no_longer_missing() {
        let allocated = Allocated::new();
        let all = 0..400 * UNIT_BYTES;
        let missing = |offset, length| {
            let ranges = allocated.missing(offset, length);
            ranges
                .iter()
                .map(|range| (range.start, range.end))
                .collect::<Vec<_>>()
        };
        assert_eq!(missing(0, all.end), [(0, all.end)]);
        assert_eq!(missing(5000, 1), [(4096, 8192)]);
        allocated.note(63 * UNIT_BYTES, 66 * UNIT_BYTES);
        assert!(allocated.has(63 * UNIT_BYTES + 7, 66 * UNIT_BYTES - 7));
        assert!(!allocated.has(62 * UNIT_BYTES, 2 * UNIT_BYTES));
        assert!(!allocated.has(128 * UNIT_BYTES, UNIT_BYTES + 1));
        let left = [0..63 * UNIT_BYTES, 129 * UNIT_BYTES..all.end];
        assert_eq!(allocated.missing(0, all.end), left);
        allocated.forget(64 * UNIT_BYTES + 1, 63 * UNIT_BYTES);
        let left = [
            0..63 * UNIT_BYTES,
            64 * UNIT_BYTES..128 * UNIT_BYTES,
            129 * UNIT_BYTES..all.end,
        ];
        assert_eq!(allocated.missing(0, all.end), left);
    }
}
