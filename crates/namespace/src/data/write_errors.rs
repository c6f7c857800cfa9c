//! Errors of writing file data: each is told to the next fsync, once to each open file.
//!
//! # Data model
//! One word counts the errors of a file, as Linux's `errseq_t` does. An open file keeps a sample of
//! it, and an fsync that finds another count reports the error and takes a new sample. The lowest
//! bit says that an fsync was told: a sample taken before that counts from the last error that was
//! told, so that one that no fsync heard of is told to a later one.
//!
//! A front end without open files (FUSE: the kernel opens files without asking) asks for what no
//! fsync has been told yet.
//!
//! # References
//! Linux `lib/errseq.c`, `Documentation/core-api/errseq.rst`.

use finefs_locks::primitive::atomic::{AtomicU64, Ordering};

/// Somebody was told of the newest error.
const SEEN: u64 = 1;
/// The count is above it.
const ONE: u64 = 2;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct WriteErrors(AtomicU64);

/// What its owner knows of a file's errors.
#[derive(Debug)]
pub(crate) struct Sample(AtomicU64);

impl WriteErrors {
    /// None yet.
    pub fn new() -> WriteErrors {
        WriteErrors(AtomicU64::new(SEEN))
    }

    /// True when there was an error.
    pub fn were_recorded(&self) -> bool {
        self.0.load(Ordering::Acquire) != SEEN
    }

    /// Counts an error.
    pub fn record(&self) {
        let next = |word: u64| Some((word & !SEEN).wrapping_add(ONE));
        // The closure always gives a value.
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// What a new opener knows: all that somebody was told of.
    pub fn sample(&self) -> Sample {
        let word = self.0.load(Ordering::Acquire);
        let known = match word & SEEN {
            0 => word.wrapping_sub(ONE),
            _ => word,
        };
        Sample(AtomicU64::new(known & !SEEN))
    }

    /// True when there is an error that the owner of the sample does not know; from now on he does.
    pub fn is_news(&self, sample: &Sample) -> bool {
        let word = self.0.load(Ordering::Acquire) & !SEEN;
        let is_news = sample.0.swap(word, Ordering::AcqRel) != word;
        if is_news {
            self.0.fetch_or(SEEN, Ordering::AcqRel);
        }
        is_news
    }

    /// True when there is an error that nobody was told of; from now on somebody was.
    pub fn take_unseen(&self) -> bool {
        self.0.load(Ordering::Acquire) & SEEN == 0
            && self.0.fetch_or(SEEN, Ordering::AcqRel) & SEEN == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_told_once() {
        let errors = WriteErrors::new();
        let (first, second) = (errors.sample(), errors.sample());
        assert!(!errors.is_news(&first) && !errors.take_unseen());
        errors.record();
        errors.record();
        assert!(errors.is_news(&first));
        assert!(!errors.is_news(&first));
        // A file opened now has no part in it, as it was told; an earlier one has.
        assert!(!errors.is_news(&errors.sample()));
        assert!(errors.is_news(&second));
        assert!(!errors.is_news(&second));
        assert!(!errors.take_unseen());
    }

    #[test]
    fn what_nobody_heard_of_is_told_to_the_next() {
        let errors = WriteErrors::new();
        errors.record();
        let late = errors.sample();
        assert!(errors.is_news(&late));
        assert!(!errors.is_news(&errors.sample()));
        errors.record();
        assert!(errors.take_unseen());
        assert!(!errors.take_unseen());
    }
}
