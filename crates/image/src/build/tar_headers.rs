//! What stands between an archive and the library that reads it.
//!
//! - A volume header, as `tar --label` writes it first: its fields but for name and time are empty,
//!   and the library takes an empty size for damage.
//! - Extended headers and sizes that are refused: the library reads an extended header into memory
//!   whole, and takes 64 bits of a size that has more.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use tar::Header;

const HEADER_BYTES: usize = 512;

/// The type of a volume header.
pub(super) const VOLUME: u8 = b'V';

/// The most bytes of an extended header: names and attributes come to less.
const EXTENSION_MAX: u64 = 16 << 20;

/// What is read at a time.
const BUFFER_BYTES: usize = 16 * HEADER_BYTES;

/// Reads an archive, and refuses headers that nobody should believe.
pub(super) struct Headers<'a>(BufReader<WithSize<'a>>);

impl<'a> Headers<'a> {
    pub fn of(file: &'a File) -> Headers<'a> {
        Headers(BufReader::with_capacity(BUFFER_BYTES, WithSize::new(file)))
    }
}

impl Read for Headers<'_> {
    /// The library reads a header by one call, and little else is as long.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        if let Ok(header) = <&[u8; HEADER_BYTES]>::try_from(&*buffer)
            && count == HEADER_BYTES
            && let Some(reason) = refusal(header)
        {
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(count)
    }
}

impl Seek for Headers<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

/// What is wrong with a header.
fn refusal(bytes: &[u8; HEADER_BYTES]) -> Option<String> {
    let mut header = Header::new_old();
    header.as_mut_bytes().copy_from_slice(bytes);
    let size = header.as_old().size;
    // Base-256, in 95 bits.
    let is_beyond = size[0] & 0x80 != 0 && (size[0] != 0x80 || size[1..4] != [0; 3]);
    let is_extension = matches!(header.entry_type().as_byte(), b'x' | b'g' | b'L' | b'K');
    let reason = match header.entry_size() {
        _ if is_beyond => "a size that no file has".to_owned(),
        Ok(bytes) if is_extension && bytes > EXTENSION_MAX => {
            format!("an extended header of {bytes} bytes; {EXTENSION_MAX} are the most")
        }
        _ => return None,
    };
    is_whole(&header).then_some(reason)
}

/// Its checksum is right: it is a header.
fn is_whole(header: &Header) -> bool {
    let mut same = header.clone();
    same.set_cksum();
    same.cksum().ok() == header.cksum().ok()
}

/// Reads an archive, whose first header has a size if it is a volume header.
struct WithSize<'a> {
    file: &'a File,
    at: u64,
    first: Option<Header>,
}

impl<'a> WithSize<'a> {
    fn new(file: &'a File) -> WithSize<'a> {
        let mut header = Header::new_old();
        let read = file.read_exact_at(header.as_mut_bytes(), 0);
        let is_volume = read.is_ok() && header.entry_type().as_byte() == VOLUME;
        let first = (is_volume && is_whole(&header)).then(|| {
            header.set_size(0);
            header.set_cksum();
            header
        });
        WithSize { file, at: 0, first }
    }
}

impl Read for WithSize<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match &self.first {
            Some(header) if self.at < HEADER_BYTES as u64 => {
                let rest = &header.as_bytes()[self.at as usize..];
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                count
            }
            _ => self.file.read_at(buffer, self.at)?,
        };
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for WithSize<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.file.metadata()?.len().checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
