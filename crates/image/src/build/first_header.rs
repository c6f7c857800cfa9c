//! Archives that begin with a volume header, as `tar --label` writes: its fields but for name and
//! time are empty, and the library takes an empty size for damage.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use tar::Header;

const HEADER_BYTES: usize = 512;

/// The type of a volume header.
pub(super) const VOLUME: u8 = b'V';

/// Reads an archive, whose first header has a size if it is a volume header.
pub(super) struct WithSize<'a> {
    file: &'a File,
    at: u64,
    first: Option<Header>,
}

impl<'a> WithSize<'a> {
    pub fn new(file: &'a File) -> WithSize<'a> {
        let mut header = Header::new_old();
        let read = file.read_exact_at(header.as_mut_bytes(), 0);
        let is_volume = read.is_ok() && header.entry_type().as_byte() == VOLUME;
        let is_whole = |header: &Header| {
            let mut same = header.clone();
            same.set_cksum();
            same.cksum().ok() == header.cksum().ok()
        };
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
