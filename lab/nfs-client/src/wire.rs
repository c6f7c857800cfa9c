//! Calls and replies as bytes (XDR, RFC 4506).

use std::io;

/// A program and its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Program(pub u32, pub u32);

/// NFS version 3.
pub const NFS: Program = Program(100_003, 3);
/// MOUNT version 3.
pub const MOUNT: Program = Program(100_005, 3);
/// NLM version 4.
pub const NLM: Program = Program(100_021, 4);

/// The length of the mark before a record.
pub const MARK_BYTES: usize = 4;
const LAST: u32 = 1 << 31;

/// Arguments that are put together.
#[derive(Clone, Default, Debug)]
pub struct Arguments(pub Vec<u8>);

impl Arguments {
    /// None.
    pub fn new() -> Arguments {
        Arguments::default()
    }

    /// And a number.
    pub fn word(mut self, word: u32) -> Arguments {
        self.0.extend(word.to_be_bytes());
        self
    }

    /// And a number of 64 bits.
    pub fn long(mut self, word: u64) -> Arguments {
        self.0.extend(word.to_be_bytes());
        self
    }

    /// And bytes, with their length.
    pub fn opaque(mut self, bytes: &[u8]) -> Arguments {
        self = self.word(bytes.len() as u32);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

/// Appends the record of a call, by root, to a buffer.
pub fn put_call(
    buffer: &mut Vec<u8>,
    xid: u32,
    program: Program,
    procedure: u32,
    arguments: &[u8],
) {
    // The credential: AUTH_SYS of root without groups or a machine's name; no verifier.
    const CREDENTIAL: [u32; 9] = [1, 20, 0, 0, 0, 0, 0, 0, 0];
    let length = 6 * 4 + CREDENTIAL.len() * 4 + arguments.len();
    buffer.extend((length as u32 | LAST).to_be_bytes());
    for word in [xid, 0, 2, program.0, program.1, procedure] {
        buffer.extend(word.to_be_bytes());
    }
    for word in CREDENTIAL {
        buffer.extend(word.to_be_bytes());
    }
    buffer.extend(arguments);
}

/// Reads items of a reply.
#[derive(Clone, Copy, Debug)]
pub struct Items<'a>(pub &'a [u8]);

/// A reply is not what its procedure gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl From<Malformed> for io::Error {
    fn from(_: Malformed) -> io::Error {
        io::Error::other("a reply is not what its procedure gives")
    }
}

impl<'a> Items<'a> {
    /// A number.
    pub fn word(&mut self) -> Result<u32, Malformed> {
        let (word, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*word))
    }

    /// Bytes with their length.
    pub fn opaque(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.word()? as usize;
        let bytes = self.0.get(..length).ok_or(Malformed)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).ok_or(Malformed)?;
        Ok(bytes)
    }
}

/// Records in a buffer that is filled from a socket.
#[derive(Default)]
pub struct Records {
    buffer: Vec<u8>,
    /// What is read and not taken: from here
    start: usize,
    /// to here.
    end: usize,
}

/// How much is read at a time, at least.
const READ_BYTES: usize = 256 << 10;

impl Records {
    /// Reads once; false at the end of the stream.
    pub fn read(&mut self, from: &mut impl io::Read) -> io::Result<bool> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < READ_BYTES / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.len() - self.end < READ_BYTES / 2 {
            let length = (self.buffer.len() * 2).max(READ_BYTES);
            self.buffer.resize(length, 0);
        }
        let read = from.read(&mut self.buffer[self.end..])?;
        self.end += read;
        Ok(read > 0)
    }

    /// The next whole record, without its mark. Records of several fragments are not expected.
    pub fn take(&mut self) -> io::Result<Option<&[u8]>> {
        let ready = &self.buffer[self.start..self.end];
        let Some((mark, rest)) = ready.split_first_chunk::<MARK_BYTES>() else {
            return Ok(None);
        };
        let mark = u32::from_be_bytes(*mark);
        let length = (mark & !LAST) as usize;
        if mark & LAST == 0 {
            return Err(io::Error::other("a record of several fragments"));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let from = self.start + MARK_BYTES;
        self.start = from + length;
        Ok(Some(&self.buffer[from..from + length]))
    }
}

/// The transaction id of a reply, and the result of its call, which was carried out.
pub fn result(record: &[u8]) -> io::Result<(u32, Items<'_>)> {
    let mut items = Items(record);
    let (xid, kind, state) = (items.word()?, items.word()?, items.word()?);
    items.word()?;
    items.opaque()?;
    match (kind, state, items.word()?) {
        (1, 0, 0) => Ok((xid, items)),
        said => Err(io::Error::other(format!(
            "a call was not carried out: {said:?}"
        ))),
    }
}
