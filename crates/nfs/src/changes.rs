//! Weak cache consistency (RFC 1813, 2.6): the attributes of a file before and after a change.
//!
//! A client whose cache agrees with the attributes before a change keeps it, since the change is
//! its own. That is right only if nothing else changed the file between the two looks; and no lock
//! is held over them, as changes of one directory run in parallel. So each change is counted in a
//! word that its file shares with few others, when it begins and when it ends: if no other was
//! under way at the begin, and none has begun or ended since, the change was alone. Else the reply
//! has no attributes of before, which the protocol allows, and the client looks again.
//!
//! # Data model
//! A fixed number of words, each in a cache line, chosen by the inode number. The low half of a
//! word is how many changes are under way, the high half how many have begun.
//!
//! # Invariants
//! 1. Changes of one file are counted in one word. That two files share one costs attributes of
//!    before, never their truth.
//! 2. All changes come through here, or are the server's own on behalf of nobody (commits).

use std::sync::atomic::{AtomicU64, Ordering};

use finefs_namespace::{Attributes, Ino, Timestamp};

/// How many files can be changed at a time without sharing a word, at best.
const WORDS: usize = 1024;
const BEGUN: u64 = 1 << 32;
const UNDER_WAY: u64 = BEGUN - 1;

#[repr(align(64))]
struct Word(AtomicU64);

/// The changes that are under way.
pub(crate) struct Changes {
    words: Box<[Word]>,
}

/// What a client compares its cache with (`wcc_attr`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Before {
    pub size_bytes: u64,
    pub modified: Timestamp,
    pub changed: Timestamp,
}

impl From<&Attributes> for Before {
    fn from(attributes: &Attributes) -> Before {
        Before {
            size_bytes: attributes.size_bytes,
            modified: attributes.times.modified,
            changed: attributes.times.changed,
        }
    }
}

/// A change that is under way; it ends when dropped.
pub(crate) struct Change<'c> {
    word: &'c AtomicU64,
    /// The word after the begin.
    begun: u64,
}

impl Changes {
    pub(crate) fn new() -> Changes {
        let words = (0..WORDS).map(|_| Word(AtomicU64::new(0)));
        Changes {
            words: words.collect(),
        }
    }

    /// A change of this file begins.
    pub(crate) fn begin(&self, ino: Ino) -> Change<'_> {
        // Fibonacci hashing: neighbours are often changed at the same time.
        let hash = ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let word = &self.words[hash as usize % WORDS].0;
        let begun = word
            .fetch_add(BEGUN + 1, Ordering::AcqRel)
            .wrapping_add(BEGUN + 1);
        Change { word, begun }
    }
}

impl Change<'_> {
    /// True when no other change of the file was under way since the begin.
    pub(crate) fn is_alone(&self) -> bool {
        self.begun & UNDER_WAY == 1 && self.word.load(Ordering::Acquire) == self.begun
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.word.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_one_file_see_each_other() {
        let changes = Changes::new();
        let first = changes.begin(Ino(5));
        let elsewhere = changes.begin(Ino(6));
        assert!(first.is_alone() && elsewhere.is_alone());
        let second = changes.begin(Ino(5));
        assert!(!first.is_alone() && !second.is_alone());
        drop(second);
        // It has ended, but was there.
        assert!(!first.is_alone());
        drop(first);
        assert!(changes.begin(Ino(5)).is_alone());
    }
}
