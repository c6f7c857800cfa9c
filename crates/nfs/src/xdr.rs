//! XDR (RFC 4506): what requests are read with and replies are written with.
//!
//! Our own, and not a library's types: a reader borrows from the record, so that the data of a
//! WRITE is not copied, and a writer fills one buffer that a thread uses for all its replies, so
//! that the data of a READ is read into its place.

/// A request that is not what its procedure takes (GARBAGE_ARGS).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Garbage;

/// Reads the items of a record one after the other.
#[derive(Clone)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

/// The bytes that opaque data of this length take: items begin at multiples of four.
pub(crate) const fn padded(length: usize) -> usize {
    length.next_multiple_of(4)
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// What was not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Garbage> {
        let (word, rest) = self.rest.split_first_chunk().ok_or(Garbage)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*word))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Garbage> {
        let (word, rest) = self.rest.split_first_chunk().ok_or(Garbage)?;
        self.rest = rest;
        Ok(u64::from_be_bytes(*word))
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Garbage> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }

    /// Opaque data of a length that both sides know.
    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<&'a [u8; N], Garbage> {
        self.bytes(N)?.try_into().map_err(|_| Garbage)
    }

    /// Opaque data of at most `limit` bytes, with their length before them.
    pub(crate) fn opaque(&mut self, limit: usize) -> Result<&'a [u8], Garbage> {
        let length = self.u32()? as usize;
        if length > limit {
            return Err(Garbage);
        }
        self.bytes(length)
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Garbage> {
        let (bytes, _) = self.rest.split_at_checked(length).ok_or(Garbage)?;
        self.rest = self.rest.get(padded(length)..).ok_or(Garbage)?;
        Ok(bytes)
    }
}

/// A buffer that replies are written into, one after the other; it keeps its memory.
#[derive(Default)]
pub(crate) struct Writer {
    /// Initialised throughout.
    buffer: Vec<u8>,
    length: usize,
}

impl Writer {
    /// What was written.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// The memory that it has.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// Forgets what was written behind this place.
    pub(crate) fn cut(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Room for so many bytes, which count as written. What is in them is left from before.
    pub(crate) fn space(&mut self, length: usize) -> &mut [u8] {
        let (start, end) = (self.length, self.length + length);
        if self.buffer.len() < end {
            self.buffer.resize(end.next_multiple_of(4096), 0);
        }
        self.length = end;
        &mut self.buffer[start..end]
    }

    /// Bytes that were written before, to be written again.
    pub(crate) fn at(&mut self, place: usize) -> &mut [u8] {
        &mut self.buffer[place..self.length]
    }

    pub(crate) fn u32(&mut self, word: u32) {
        self.space(4).copy_from_slice(&word.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, word: u64) {
        self.space(8).copy_from_slice(&word.to_be_bytes());
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// Bytes as they are, whose number is a multiple of four.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len().is_multiple_of(4));
        self.space(bytes.len()).copy_from_slice(bytes);
    }

    /// Opaque data, with their length before them.
    pub(crate) fn opaque(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        let space = self.space(padded(bytes.len()));
        let (data, padding) = space.split_at_mut(bytes.len());
        data.copy_from_slice(bytes);
        padding.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::default();
        writer.u32(7);
        writer.u64(1 << 40);
        writer.bool(true);
        writer.opaque(b"abcde");
        writer.raw(b"1234");
        assert_eq!(writer.length(), 4 + 8 + 4 + 4 + 8 + 4);
        let mut reader = Reader::new(writer.bytes());
        assert_eq!(reader.u32(), Ok(7));
        assert_eq!(reader.u64(), Ok(1 << 40));
        assert_eq!(reader.bool(), Ok(true));
        assert_eq!(reader.opaque(5), Ok(&b"abcde"[..]));
        assert_eq!(reader.fixed(), Ok(b"1234"));
        assert_eq!(reader.u32(), Err(Garbage));
    }

    #[test]
    fn lengths_that_lie_are_garbage() {
        let mut writer = Writer::default();
        writer.u32(u32::MAX);
        writer.u32(0);
        assert_eq!(Reader::new(writer.bytes()).opaque(100), Err(Garbage));
        assert_eq!(Reader::new(writer.bytes()).opaque(usize::MAX), Err(Garbage));
        // The padding belongs to it.
        assert_eq!(Reader::new(&[0, 0, 0, 1, b'x']).opaque(4), Err(Garbage));
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(Garbage));
    }

    #[test]
    fn a_buffer_is_used_again() {
        let mut writer = Writer::default();
        writer.opaque(b"xxxxxx");
        writer.cut(0);
        writer.opaque(b"y");
        assert_eq!(writer.bytes(), b"\0\0\0\x01y\0\0\0");
    }
}
