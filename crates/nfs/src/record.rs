//! Records of RPC in a stream of bytes (RFC 5531, 11): what was read of a connection.
//!
//! # Data model
//! One buffer, `start..end` of which was read and not taken yet. It grows as bytes come in, not as
//! lengths promise. A record that is alone in the buffer is taken by exchanging buffers, so that
//! the data of long writes are not copied.

use std::io::{self, Read};

/// The longest record: a WRITE of [`WRITE_MAX`](crate::procedures::WRITE_MAX) bytes and what is
/// around it.
pub(crate) const RECORD_MAX: usize = crate::procedures::WRITE_MAX as usize + 4096;
/// The most fragments of a record.
const FRAGMENTS_MAX: usize = 32;
/// What is asked for at a time.
const READ_BYTES: usize = 64 << 10;
/// Records from this length on are read to their end and no further, so that they can be taken
/// without a copy.
const LONG_BYTES: usize = 16 << 10;
/// Set in the mark of a record's last fragment.
const LAST: u32 = 1 << 31;
const MARK_BYTES: usize = 4;

/// See the module's head.
#[derive(Default)]
pub(crate) struct Incoming {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

/// A record that somebody works on.
#[derive(Default)]
pub(crate) struct Record {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Record {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }
}

/// Records that were taken together, and wait for the thread that has taken them.
#[derive(Default)]
pub(crate) struct Batch {
    records: Vec<Record>,
    /// `next..end` wait.
    next: usize,
    end: usize,
    given_back: usize,
}

impl Batch {
    /// A place for one more.
    pub(crate) fn space(&mut self) -> &mut Record {
        if self.end == self.records.len() {
            self.records.push(Record::default());
        }
        &mut self.records[self.end]
    }

    /// That place is filled.
    pub(crate) fn filled(&mut self) {
        self.end += 1;
    }

    /// True when the last one is long: others shall serve what comes behind it.
    pub(crate) fn ends_long(&self) -> bool {
        let last = self.records[self.next..self.end].last();
        last.is_some_and(|record| record.bytes().len() >= LONG_BYTES)
    }

    /// Gives back memory that long records needed, when none waits.
    pub(crate) fn shrink(&mut self) {
        self.records
            .retain(|record| record.buffer.capacity() <= 2 * LONG_BYTES);
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.end - self.next
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the first one, in exchange for a buffer.
    pub(crate) fn take(&mut self, record: &mut Record) -> bool {
        if self.is_empty() {
            return false;
        }
        std::mem::swap(record, &mut self.records[self.next]);
        self.next += 1;
        true
    }

    /// Takes all of them out, for others.
    pub(crate) fn give_back(&mut self) -> impl Iterator<Item = Record> + '_ {
        let waiting = self.next..self.end;
        self.given_back += waiting.len();
        self.end = self.next;
        self.records[waiting].iter_mut().map(std::mem::take)
    }

    /// How many were given back since the last [`Batch::clear`].
    pub(crate) fn given_back(&self) -> usize {
        self.given_back
    }

    /// Begins anew.
    pub(crate) fn clear(&mut self) {
        (self.next, self.end, self.given_back) = (0, 0, 0);
    }
}

/// Lengths that nobody sends who means well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Senseless;

/// What is at the start of the buffer.
enum Scan {
    /// A record of so many fragments, to here.
    Whole { fragments: usize, end: usize },
    /// A part of one; so many bytes are missing at least.
    Part { missing: usize },
}

impl Incoming {
    /// Takes the first record, if it is whole, into `record`; false if not.
    pub(crate) fn take(&mut self, record: &mut Record) -> Result<bool, Senseless> {
        let Scan::Whole { fragments, end } = self.scan()? else {
            return Ok(false);
        };
        let first = self.start + MARK_BYTES;
        if fragments == 1 && end == self.end && end - first >= LONG_BYTES {
            std::mem::swap(&mut self.buffer, &mut record.buffer);
            (record.start, record.end) = (first, end);
            (self.start, self.end) = (0, 0);
            return Ok(true);
        }
        record.buffer.clear();
        let mut at = self.start;
        for _ in 0..fragments {
            let length = self.mark(at).map_or(0, |mark| mark & !LAST) as usize;
            at += MARK_BYTES;
            record
                .buffer
                .extend_from_slice(&self.buffer[at..at + length]);
            at += length;
        }
        (record.start, record.end) = (0, record.buffer.len());
        self.start = at;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        Ok(true)
    }

    /// True when a record is whole, or senseless.
    pub(crate) fn has_record(&self) -> bool {
        !matches!(self.scan(), Ok(Scan::Part { .. }))
    }

    /// True when something is there that is no whole record.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Reads more; gives how much was asked for and how much came.
    pub(crate) fn read(&mut self, mut source: impl Read) -> io::Result<(usize, usize)> {
        let missing = match self.scan() {
            Ok(Scan::Part { missing }) => missing,
            _ => 0,
        };
        let wanted = match missing >= LONG_BYTES {
            true => missing.min(4 * READ_BYTES),
            false => READ_BYTES,
        };
        if self.start > 0 && self.end + wanted > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end + wanted > self.buffer.len() {
            // Doubles, so that long records are not copied over and over.
            let length = (self.end + wanted).max(2 * self.end);
            self.buffer
                .resize(length.min(RECORD_MAX + 2 * READ_BYTES), 0);
        }
        let wanted = wanted.min(self.buffer.len() - self.end);
        let came = source.read(&mut self.buffer[self.end..self.end + wanted])?;
        self.end += came;
        Ok((wanted, came))
    }

    /// Gives memory back, when nothing is in it.
    pub(crate) fn shrink(&mut self) {
        if self.is_empty() {
            *self = Incoming::default();
        }
    }

    fn mark(&self, at: usize) -> Option<u32> {
        let bytes = self.buffer[..self.end].get(at..at + MARK_BYTES)?;
        bytes.try_into().ok().map(u32::from_be_bytes)
    }

    fn scan(&self) -> Result<Scan, Senseless> {
        let (mut at, mut length) = (self.start, 0);
        for fragments in 1..=FRAGMENTS_MAX {
            let Some(mark) = self.mark(at) else {
                let missing = at + MARK_BYTES - self.end;
                return Ok(Scan::Part { missing });
            };
            let own = (mark & !LAST) as usize;
            length += own;
            if length > RECORD_MAX {
                return Err(Senseless);
            }
            at += MARK_BYTES + own;
            if at > self.end {
                let missing = at - self.end;
                return Ok(Scan::Part { missing });
            }
            if mark & LAST != 0 {
                return Ok(Scan::Whole { fragments, end: at });
            }
        }
        Err(Senseless)
    }
}

/// Writes the mark of a record of one fragment into its first bytes.
pub(crate) fn put_mark(record: &mut [u8]) {
    let length = (record.len() - MARK_BYTES) as u32;
    record[..MARK_BYTES].copy_from_slice(&(length | LAST).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gives_back_what_was_not_taken() {
        let mut batch = Batch::default();
        let mut incoming = Incoming::default();
        let bytes: Vec<u8> = (1..=3u8)
            .flat_map(|number| [0x80, 0, 0, 1, number])
            .collect();
        incoming.read(&bytes[..]).unwrap();
        while incoming.take(batch.space()).unwrap() {
            batch.filled();
        }
        let mut record = Record::default();
        assert!(batch.len() == 3 && batch.take(&mut record));
        assert_eq!(record.bytes(), [1]);
        let back: Vec<Record> = batch.give_back().collect();
        let back: Vec<&[u8]> = back.iter().map(Record::bytes).collect();
        assert_eq!(back, [[2], [3]]);
        assert!(batch.is_empty() && batch.given_back() == 2 && !batch.take(&mut record));
        batch.clear();
        assert_eq!((batch.len(), batch.given_back()), (0, 0));
    }

    fn fragment(bytes: &[u8], is_last: bool) -> Vec<u8> {
        let mark = bytes.len() as u32 | if is_last { LAST } else { 0 };
        [&mark.to_be_bytes(), bytes].concat()
    }

    fn fed(stream: &[u8], step: usize) -> Vec<Vec<u8>> {
        let (mut incoming, mut record) = (Incoming::default(), Record::default());
        let mut records = Vec::new();
        for mut part in stream.chunks(step) {
            while !part.is_empty() {
                incoming.read(&mut part).unwrap();
                while incoming.take(&mut record).unwrap() {
                    records.push(record.bytes().to_vec());
                }
            }
        }
        assert!(incoming.is_empty());
        records
    }

    #[test]
    fn records_come_out_as_they_went_in_however_they_arrive() {
        let long: Vec<u8> = (0..300_000u32).map(|number| number as u8).collect();
        let (first, second) = long.split_at(70_000);
        let stream = [
            fragment(b"one", true),
            fragment(b"t", false),
            fragment(b"", false),
            fragment(b"wo", true),
            fragment(&long, true),
            fragment(b"", true),
            fragment(first, false),
            fragment(second, true),
        ];
        let expected = vec![
            b"one".to_vec(),
            b"two".to_vec(),
            long.clone(),
            vec![],
            long.clone(),
        ];
        for step in [1000, 4096, 65_537, 1 << 20] {
            assert_eq!(fed(&stream.concat(), step), expected, "step {step}");
        }
        let short = [fragment(b"one", true), fragment(b"two", true)].concat();
        assert_eq!(fed(&short, 1), [b"one", b"two"]);
    }

    #[test]
    fn lengths_that_make_no_sense_are_refused() {
        let take = |stream: &[u8]| {
            let mut incoming = Incoming::default();
            let mut stream = stream;
            while !stream.is_empty() {
                incoming.read(&mut stream).unwrap();
            }
            assert!(incoming.buffer.len() <= 4 * READ_BYTES);
            incoming.take(&mut Record::default())
        };
        assert_eq!(take(b"GET / HTTP/1.1\r\n"), Err(Senseless));
        assert_eq!(
            take(&((RECORD_MAX as u32 + 1) | LAST).to_be_bytes()),
            Err(Senseless)
        );
        // It may come.
        assert_eq!(take(&(RECORD_MAX as u32 | LAST).to_be_bytes()), Ok(false));
        assert_eq!(
            take(&fragment(b"", false).repeat(FRAGMENTS_MAX)),
            Err(Senseless)
        );
    }
}
