//! What was written since the last flush: kept until a flush says that the server has it for good,
//! so that it can be written again to a server that was started anew and has lost it.
//!
//! # Data model
//! A log of writes in the order in which they began. A write is entered before it is sent, *done*
//! when it has been answered, and taken out when a flush that began after that was answered.
//!
//! # Invariants
//! 1. A write that was answered, and not flushed since, is in the log: whoever connects anew and
//!    writes the log again loses none.
//! 2. Of two writes that overlap the later one has the higher number, because it began when the
//!    earlier one had been answered; and no flush takes the later one out alone. So writing the log
//!    again in its order leaves what the later one wrote.
//! 3. The log is bounded by [`LIMIT_BYTES`] and what is on its way.
//! 4. What an export begins with is, in each byte, as the last flush left it or as one of the
//!    writes since did, unless somebody else has written to it or it is another one.

use std::collections::BTreeMap;
use std::ops::Range;

use finefs_locks::{LockClass, Mutex};

use crate::connection::Outgoing;
use crate::protocol::{Command, Request};

/// The writes since the last flush.
pub static UNFLUSHED: LockClass = LockClass::new("nbd.unflushed", 92);

/// Who would enter more flushes first.
const LIMIT_BYTES: u64 = 64 << 20;
/// What an entry takes beside its data.
const ENTRY_BYTES: u64 = 128;

/// See the module's head.
pub(crate) struct Unflushed {
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    entries: BTreeMap<u64, Entry>,
    next: u64,
    bytes: u64,
    beginning: Beginning,
}

/// What the export begins with, as the last flush left it; `None` for bytes of which that is not
/// known.
#[derive(Clone, Default)]
struct Beginning(Vec<Option<u8>>);

struct Entry {
    write: Kept,
    is_done: bool,
}

/// A write, or zeros that the server writes by itself, with its data.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub request: Request,
    pub data: std::sync::Arc<[u8]>,
}

impl Kept {
    fn cost_bytes(&self) -> u64 {
        self.data.len() as u64 + ENTRY_BYTES
    }
}

impl Unflushed {
    /// Of an export that begins like this.
    pub fn new(beginning: &[u8]) -> Unflushed {
        let log = Log {
            beginning: Beginning(beginning.iter().copied().map(Some).collect()),
            ..Log::default()
        };
        Unflushed {
            log: Mutex::new(&UNFLUSHED, log),
        }
    }

    /// Whether an export that begins like this can be the one that was written to.
    pub fn may_begin_with(&self, now: &[u8]) -> bool {
        let log = self.log.lock();
        let mut state = log.beginning.clone();
        let mut is_like: Vec<bool> = state.0.iter().zip(now).map(is_like_it).collect();
        for entry in log.entries.values() {
            let range = state.write(&entry.write);
            for at in range {
                is_like[at] |= is_like_it((&state.0[at], &now[at]));
            }
        }
        is_like.iter().all(|is_like| *is_like)
    }

    /// Of this range nobody knows what it holds.
    pub fn forget(&self, offset: u64, length: u64) {
        self.log.lock().beginning.forget(offset, length);
    }

    /// True when it is time for a flush.
    pub fn is_full(&self) -> bool {
        self.log.lock().bytes >= LIMIT_BYTES
    }

    /// Enters writes that are about to be sent; gives their numbers.
    pub fn begin(&self, writes: &[Outgoing<'_>]) -> Range<u64> {
        let kept: Vec<Kept> = writes
            .iter()
            .map(|(request, parts)| Kept {
                request: Request {
                    flags: 0,
                    ..*request
                },
                data: parts.concat().into(),
            })
            .collect();
        let mut log = self.log.lock();
        let start = log.next;
        for write in kept {
            log.bytes += write.cost_bytes();
            let number = log.next;
            log.next += 1;
            let entry = Entry {
                write,
                is_done: false,
            };
            log.entries.insert(number, entry);
        }
        start..log.next
    }

    /// These were answered. Of those that failed nobody knows what they left, and they are not
    /// written again.
    pub fn end(&self, numbers: Range<u64>, is_written: bool) {
        let mut log = self.log.lock();
        if !is_written {
            for number in numbers {
                if let Some(write) = log.take_out(number) {
                    let Request { offset, length, .. } = write.request;
                    log.beginning.forget(offset, length.into());
                }
            }
            return;
        }
        for (_, entry) in log.entries.range_mut(numbers) {
            entry.is_done = true;
        }
    }

    /// The numbers of those that a flush which begins now is for.
    pub fn answered(&self) -> Vec<u64> {
        let log = self.log.lock();
        let done = log.entries.iter().filter(|(_, entry)| entry.is_done);
        done.map(|(number, _)| *number).collect()
    }

    /// These are on the server for good.
    pub fn flushed(&self, numbers: &[u64]) {
        let mut log = self.log.lock();
        for number in numbers {
            if let Some(write) = log.take_out(*number) {
                log.beginning.write(&write);
            }
        }
    }

    /// All of it, in groups to be written one after the other, of which none overlaps itself.
    pub fn groups(&self) -> Vec<Vec<Kept>> {
        let log = self.log.lock();
        let mut groups: Vec<Vec<Kept>> = Vec::new();
        let mut places = Places::default();
        for entry in log.entries.values() {
            let (start, length) = (entry.write.request.offset, entry.write.request.length);
            if !places.take(start..start + u64::from(length)) || groups.is_empty() {
                places = Places::default();
                places.take(start..start + u64::from(length));
                groups.push(Vec::new());
            }
            if let Some(group) = groups.last_mut() {
                group.push(entry.write.clone());
            }
        }
        groups
    }
}

impl Log {
    fn take_out(&mut self, number: u64) -> Option<Kept> {
        let entry = self.entries.remove(&number)?;
        self.bytes -= entry.write.cost_bytes();
        Some(entry.write)
    }
}

impl Beginning {
    /// The part of a range that lies in it.
    fn part(&self, offset: u64, length: u64) -> Range<usize> {
        let within = |at: u64| at.min(self.0.len() as u64) as usize;
        within(offset)..within(offset.saturating_add(length))
    }

    /// Carries out a write; tells where.
    fn write(&mut self, write: &Kept) -> Range<usize> {
        let range = self.part(write.request.offset, write.request.length.into());
        match write.request.command {
            Command::WriteZeroes => self.0[range.clone()].fill(Some(0)),
            _ => {
                let places = self.0[range.clone()].iter_mut();
                places
                    .zip(&*write.data)
                    .for_each(|(place, byte)| *place = Some(*byte));
            }
        }
        range
    }

    fn forget(&mut self, offset: u64, length: u64) {
        let range = self.part(offset, length);
        self.0[range].fill(None);
    }
}

fn is_like_it((known, now): (&Option<u8>, &u8)) -> bool {
    known.is_none_or(|known| known == *now)
}

/// Ranges of the device that do not overlap, as start and end.
#[derive(Default)]
struct Places(BTreeMap<u64, u64>);

impl Places {
    /// Adds a range; false, and nothing has changed, where it overlaps one.
    fn take(&mut self, range: Range<u64>) -> bool {
        let before = self.0.range(..range.end).next_back();
        if before.is_some_and(|(_, end)| *end > range.start) {
            return false;
        }
        self.0.insert(range.start, range.end);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Command;

    fn write(offset: u64, data: &[u8]) -> Outgoing<'_> {
        let request = Request {
            command: Command::Write,
            flags: 1,
            offset,
            length: data.len() as u32,
        };
        (request, vec![data])
    }

    /// Offset and first byte of each write, group by group.
    fn shown(log: &Unflushed) -> Vec<Vec<(u64, u8)>> {
        let one = |kept: &Kept| (kept.request.offset, kept.data[0]);
        let groups = log.groups();
        groups
            .iter()
            .map(|group| group.iter().map(one).collect())
            .collect()
    }

    #[test]
    fn what_overlaps_is_written_in_its_order() {
        let log = Unflushed::new(&[]);
        let writes = [
            write(0, &[1; 8]),
            write(8, &[2; 8]),
            write(4, &[3; 2]),
            write(16, &[4; 4]),
            write(0, &[5; 32]),
        ];
        let numbers = log.begin(&writes);
        log.end(numbers, true);
        let expected = vec![vec![(0, 1), (8, 2)], vec![(4, 3), (16, 4)], vec![(0, 5)]];
        assert_eq!(shown(&log), expected);
        // It is durable by the flush that follows, not by each write.
        assert!(
            log.groups()
                .iter()
                .flatten()
                .all(|it| it.request.flags == 0)
        );
    }

    #[test]
    fn a_flush_takes_out_what_was_answered_before_it() {
        let log = Unflushed::new(&[]);
        let first = log.begin(&[write(0, &[1; 8])]);
        let on_its_way = log.begin(&[write(8, &[2; 8])]);
        log.end(first, true);
        let answered = log.answered();
        let later = log.begin(&[write(0, &[3; 8])]);
        log.end(on_its_way, true);
        log.end(later, true);
        log.flushed(&answered);
        assert_eq!(shown(&log), vec![vec![(8, 2), (0, 3)]]);
        log.flushed(&log.answered());
        assert!(log.groups().is_empty());
        assert_eq!(log.log.lock().bytes, 0);
    }

    #[test]
    fn a_write_that_failed_is_not_written_again() {
        let log = Unflushed::new(&[]);
        let numbers = log.begin(&[write(0, &[1; 8])]);
        log.end(numbers, false);
        assert!(log.groups().is_empty());
        let large = vec![0; LIMIT_BYTES as usize];
        log.begin(&[write(0, &large)]);
        assert!(log.is_full());
    }

    #[test]
    fn an_export_is_known_by_its_beginning() {
        let log = Unflushed::new(&[1; 8]);
        let writes = [write(2, &[2; 3]), write(4, &[3; 100])];
        let numbers = log.begin(&writes);
        log.end(numbers, true);
        // The server has both, one, neither, or parts of them.
        for now in [
            [1, 1, 2, 2, 3, 3, 3, 3],
            [1, 1, 2, 2, 2, 1, 1, 1],
            [1, 1, 1, 1, 3, 3, 3, 3],
            [1; 8],
            [1, 1, 2, 1, 2, 3, 1, 3],
        ] {
            assert!(log.may_begin_with(&now), "{now:?}");
        }
        assert!(!log.may_begin_with(&[1, 2, 2, 2, 3, 3, 3, 3]));
        assert!(!log.may_begin_with(&[1, 1, 3, 1, 1, 1, 1, 1]));
        log.flushed(&log.answered());
        assert!(log.may_begin_with(&[1, 1, 2, 2, 3, 3, 3, 3]));
        assert!(!log.may_begin_with(&[1; 8]));
        log.forget(0, 3);
        let numbers = log.begin(&[write(6, &[9])]);
        log.end(numbers, false);
        assert!(log.may_begin_with(&[7, 7, 7, 2, 3, 3, 7, 3]));
        assert!(!log.may_begin_with(&[7, 7, 7, 2, 3, 3, 7, 7]));
    }
}
