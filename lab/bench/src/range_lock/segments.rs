//! Rival: a reader/writer lock per segment of the file, after Kim et al., "pNOVA: Optimizing shared
//! file I/O operations of NVM file system on manycore servers" (APSys 2019). A request takes the
//! locks of all segments that it touches, from low to high. 256 segments, as in the comparison by
//! Kogan et al.

use super::candidate::{Candidate, FILE_BYTES};
use crossbeam_utils::CachePadded;
use parking_lot::RawRwLock;
use parking_lot::lock_api::RawRwLock as _;
use std::ops::Range;

const SEGMENTS: u64 = 256;
const SEGMENT_BYTES: u64 = FILE_BYTES / SEGMENTS;

/// See the module's head.
pub struct Segments(Vec<CachePadded<RawRwLock>>);

impl Segments {
    /// Free locks.
    pub fn new() -> Segments {
        let segment = |_| CachePadded::new(RawRwLock::INIT);
        Segments((0..SEGMENTS).map(segment).collect())
    }
}

impl Candidate for Segments {
    #[inline]
    fn hold<R>(&self, range: Range<u64>, is_write: bool, body: impl FnOnce() -> R) -> R {
        let first = range.start / SEGMENT_BYTES;
        let last = (range.end - 1) / SEGMENT_BYTES;
        let segments = &self.0[first as usize..=last as usize];
        for segment in segments {
            if is_write {
                segment.lock_exclusive();
            } else {
                segment.lock_shared();
            }
        }
        let result = body();
        for segment in segments {
            // SAFETY: taken above, in the same mode, by this thread.
            unsafe {
                if is_write {
                    segment.unlock_exclusive();
                } else {
                    segment.unlock_shared();
                }
            }
        }
        result
    }
}
