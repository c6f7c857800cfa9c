//! Which parts of a sparse file surely have storage of their own.
//!
//! # Data model
//! The file is cut into units of [`UNIT_BYTES`], and 64 units make a chunk. A chunk of which
//! something is known has an entry in a table: one bit for each unit. A bit that is set means
//! storage; one that is not means that nobody has asked yet. Beside that a small table says of some
//! *pieces* of [`PIECE_BYTES`] that all of them has storage, at the place of the piece's number
//! modulo its size.
//!
//! # Locking
//! One lock, `block.allocated`, a leaf: not held over I/O. Two that reserve the same unit at once
//! both ask the kernel, which does no harm. Of pieces one is told without a lock: each write to new
//! blocks asks.
//!
//! What took storage while other storage was given back does not count as known: `forget` before
//! and after raises a number, and who takes storage says what the number was before that.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use finefs_locks::{LockClass, Mutex};

/// What is known of a sparse file's storage.
pub static ALLOCATED: LockClass = LockClass::new("block.allocated", 94);

/// The unit of what is known.
const UNIT_BYTES: u64 = 4096;
const CHUNK_UNITS: u64 = u64::BITS as u64;

/// Storage is taken in aligned pieces of so many bytes where it is wanted around something.
pub(crate) const PIECE_BYTES: u64 = 256 << 10;
/// So many bytes more are taken where pieces are taken one after the other: each call costs, and
/// takes the file's lock in the kernel.
pub(crate) const AHEAD_BYTES: u64 = 4 << 20;
/// Where less than this is left, none is taken ahead.
pub(crate) const AMPLE_BYTES: u64 = 16 * AHEAD_BYTES;
/// So many pieces are told of without a lock.
const PIECES: usize = 1024;

/// See the module's head.
pub(crate) struct Allocated {
    chunks: Mutex<HashMap<u64, u64>>,
    /// Numbers of pieces, plus one.
    pieces: Box<[AtomicU64]>,
    /// How often something was forgotten.
    forgotten: AtomicU64,
}

/// A moment, for [`Allocated::note`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment(u64);

impl Allocated {
    /// Nothing is known.
    pub fn new() -> Allocated {
        Allocated {
            chunks: Mutex::new(&ALLOCATED, HashMap::new()),
            pieces: (0..PIECES).map(|_| AtomicU64::new(0)).collect(),
            forgotten: AtomicU64::new(0),
        }
    }

    /// To be asked before storage is taken.
    pub fn moment(&self) -> Moment {
        Moment(self.forgotten.load(Ordering::SeqCst))
    }

    /// True when the pieces that a range touches are known to have storage. No lock is taken.
    pub fn has_pieces(&self, offset_bytes: u64, length_bytes: u64) -> bool {
        let end = (offset_bytes + length_bytes).div_ceil(PIECE_BYTES);
        (offset_bytes / PIECE_BYTES..end)
            .all(|piece| self.pieces[piece as usize % PIECES].load(Ordering::Acquire) == piece + 1)
    }

    /// The pieces that a range touches have storage since `moment`.
    pub fn note_pieces(&self, moment: Moment, offset_bytes: u64, length_bytes: u64) {
        let end = (offset_bytes + length_bytes).div_ceil(PIECE_BYTES);
        for piece in offset_bytes / PIECE_BYTES..end {
            let entry = &self.pieces[piece as usize % PIECES];
            // Before the look: who forgets after it finds the entry.
            entry.store(piece + 1, Ordering::SeqCst);
            if self.moment() != moment {
                entry.store(0, Ordering::SeqCst);
            }
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

    /// A range, which begins with a unit, has storage since `moment`. A unit that it ends in has
    /// too.
    pub fn note(&self, moment: Moment, offset_bytes: u64, length_bytes: u64) {
        let mut chunks = self.chunks.lock();
        if self.moment() != moment {
            return;
        }
        let end = (offset_bytes + length_bytes).div_ceil(UNIT_BYTES);
        for unit in offset_bytes / UNIT_BYTES..end {
            *chunks.entry(unit / CHUNK_UNITS).or_default() |= 1 << (unit % CHUNK_UNITS);
        }
    }

    /// A range, rounded out to units, may have no storage any more. To be said before that may be
    /// so, and again after.
    pub fn forget(&self, offset_bytes: u64, length_bytes: u64) {
        let mut chunks = self.chunks.lock();
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        let pieces =
            offset_bytes / PIECE_BYTES..(offset_bytes + length_bytes).div_ceil(PIECE_BYTES);
        for entry in &self.pieces {
            let piece = entry.load(Ordering::SeqCst);
            if piece > 0 && pieces.contains(&(piece - 1)) {
                // One that took its place meanwhile is asked for again.
                entry.store(0, Ordering::SeqCst);
            }
        }
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
    fn pieces_are_known_until_they_are_forgotten() {
        let allocated = Allocated::new();
        let has = |piece: u64| allocated.has_pieces(piece * PIECE_BYTES + 7, 1);
        let note = |piece: u64| {
            allocated.note_pieces(allocated.moment(), piece * PIECE_BYTES, PIECE_BYTES);
        };
        [0, 1, 5].into_iter().for_each(note);
        assert!(has(0) && has(1) && has(5) && !has(2));
        assert!(
            allocated.has_pieces(0, 2 * PIECE_BYTES) && !allocated.has_pieces(0, 3 * PIECE_BYTES)
        );
        allocated.forget(PIECE_BYTES + 1, 1);
        assert!(has(0) && !has(1) && has(5));
        // One that comes later has the place of an earlier.
        note(PIECES as u64 + 5);
        assert!(has(PIECES as u64 + 5) && !has(5));
    }

    /// Storage that was taken may be what was given back meanwhile.
    #[test]
    fn what_was_taken_before_something_is_forgotten_is_not_known() {
        let allocated = Allocated::new();
        let before = allocated.moment();
        allocated.forget(0, 1);
        allocated.note(before, 0, PIECE_BYTES);
        allocated.note_pieces(before, 0, PIECE_BYTES);
        assert!(!allocated.has(0, UNIT_BYTES) && !allocated.has_pieces(0, 1));
    }

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
        allocated.note(allocated.moment(), 63 * UNIT_BYTES, 66 * UNIT_BYTES);
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
