//! The write verifier (RFC 1813, 3.3.7): by a change of it a client learns that data which it wrote
//! and has not committed may be lost, and writes it again.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Another one at each start of the server, and after data could not be made durable.
pub(crate) struct Verifier(AtomicU64);

impl Verifier {
    pub(crate) fn new() -> Verifier {
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH);
        // The clock may have been set back: the keys of the hasher are the system's random numbers.
        let start = RandomState::new().hash_one(since.unwrap_or_default());
        Verifier(AtomicU64::new(start))
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Data may be lost.
    pub(crate) fn change(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}
