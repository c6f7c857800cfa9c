//! The block device over one or several connections to an export.

use std::io;

use finefs_block::{BlockDevice, Extent, Loss, Write, bounds};
use finefs_locks::{LockClass, Mutex};

use crate::link::Link;
use crate::protocol::{
    Command, FLAG_FUA, READ_ONLY, Request, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES, STATE_ZERO,
};
use crate::uri::NbdUri;

/// Blocks of the server of which only a part is written.
pub static UNALIGNED: LockClass = LockClass::new("nbd.unaligned", 90).held_over_io();

/// Longer requests are cut up, so that several are on their way.
const REQUEST_BYTES: u32 = 2 << 20;
/// A link carries so much in about the time that a request waits.
const READ_AHEAD_BYTES: u32 = 128 << 10;
/// What has no data may be longer.
const EMPTY_REQUEST_BYTES: u32 = 256 << 20;

/// An export of an NBD server. See the crate's head.
pub struct NbdDevice {
    uri: NbdUri,
    length_bytes: u64,
    is_read_only: bool,
    has_barriers: bool,
    link: Link,
    loss: Loss,
    /// Held while a block is read, changed and written.
    unaligned: Mutex<()>,
}

impl NbdDevice {
    /// Connects to the export; `is_read_only` where nothing shall be written.
    ///
    /// # Errors
    /// With what is wrong. `ReadOnlyFilesystem` where the export cannot be written.
    pub fn open(uri: &NbdUri, is_read_only: bool) -> io::Result<NbdDevice> {
        let link = Link::open(uri)?;
        let export = link.export();
        if !is_read_only && export.can(READ_ONLY) {
            return Err(io::Error::new(
                io::ErrorKind::ReadOnlyFilesystem,
                "the server exports it read-only",
            ));
        }
        let block = u64::from(export.block_min);
        Ok(NbdDevice {
            length_bytes: export.size_bytes / block * block,
            uri: uri.clone(),
            is_read_only,
            has_barriers: true,
            link,
            loss: Loss::default(),
            unaligned: Mutex::new(&UNALIGNED, ()),
        })
    }

    /// The same export; nobody waits for the server's disk any more: a flush does nothing.
    pub fn without_barriers(mut self) -> NbdDevice {
        self.has_barriers = false;
        self
    }

    fn can(&self, flag: u16) -> bool {
        self.link.export().can(flag)
    }

    fn block_min(&self) -> u64 {
        u64::from(self.link.export().block_min)
    }

    /// The longest request with data.
    fn request_bytes(&self) -> u64 {
        u64::from(self.link.export().request_max.min(REQUEST_BYTES))
    }

    fn check_write(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        if self.is_read_only {
            return Err(bounds::read_only());
        }
        bounds::check(self.length_bytes, offset_bytes, length_bytes)
    }

    fn is_aligned(&self, offset_bytes: u64, length_bytes: u64) -> bool {
        (offset_bytes | length_bytes) & (self.block_min() - 1) == 0
    }

    /// Reads whole blocks of the server.
    fn read_aligned(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        let step = self.request_bytes();
        let requests = pieces(offset_bytes, buffer.len() as u64, step)
            .map(|(offset, length)| (request(Command::Read, offset, length), Vec::new()));
        self.link.run(requests, |request, reply| {
            let start = (request.offset - offset_bytes) as usize;
            buffer[start..start + reply.data.len()].copy_from_slice(&reply.data);
        })
    }

    /// Writes whole blocks of the server, all on their way at once.
    fn write_aligned(&self, writes: &[Write<'_>], flags: u16) -> io::Result<()> {
        let step = self.request_bytes();
        let requests = writes.iter().flat_map(|write| {
            pieces(write.offset_bytes, write.length_bytes(), step).map(move |(offset, length)| {
                let request = Request {
                    flags,
                    ..request(Command::Write, offset, length)
                };
                let from = offset - write.offset_bytes;
                (request, cut(&write.parts, from as usize, length as usize))
            })
        });
        self.link.write(requests)
    }

    /// Writes with parts of blocks at its ends: they are read first.
    fn write_unaligned(&self, write: &Write<'_>, flags: u16) -> io::Result<()> {
        let block = self.block_min();
        let start = write.offset_bytes / block * block;
        let end = (write.offset_bytes + write.length_bytes()).next_multiple_of(block);
        let _unaligned = self.unaligned.lock();
        let mut bytes = vec![0; (end - start) as usize];
        self.read_aligned(start, &mut bytes)?;
        let mut at = (write.offset_bytes - start) as usize;
        for part in &write.parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        self.write_aligned(&[Write::new(start, &bytes)], flags)
    }

    fn write_with(&self, writes: &[Write<'_>], flags: u16) -> io::Result<()> {
        for write in writes {
            self.check_write(write.offset_bytes, write.length_bytes())?;
        }
        let is_aligned =
            |write: &Write<'_>| self.is_aligned(write.offset_bytes, write.length_bytes());
        if writes.iter().all(is_aligned) {
            return self.write_aligned(writes, flags);
        }
        for write in writes {
            match is_aligned(write) {
                true => self.write_aligned(std::slice::from_ref(write), flags)?,
                false => self.write_unaligned(write, flags)?,
            }
        }
        Ok(())
    }

    /// A request without data over whole blocks; the ends that are none are left out.
    fn over_blocks(&self, command: Command, offset_bytes: u64, end_bytes: u64) -> io::Result<()> {
        let step = u64::from(EMPTY_REQUEST_BYTES);
        let requests = pieces(offset_bytes, end_bytes - offset_bytes, step)
            .map(|(offset, length)| (request(command, offset, length), Vec::new()));
        match command {
            Command::WriteZeroes => self.link.write(requests),
            _ => self.link.trim(requests),
        }
    }

    fn write_zeros_as_data(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        let zeros = vec![0; length_bytes.min(u64::from(REQUEST_BYTES)) as usize];
        let writes: Vec<Write<'_>> = pieces(offset_bytes, length_bytes, u64::from(REQUEST_BYTES))
            .map(|(offset, length)| Write::new(offset, &zeros[..length as usize]))
            .collect();
        self.write_with(&writes, 0)
    }

    /// The whole blocks within a range.
    fn whole_blocks(&self, offset_bytes: u64, length_bytes: u64) -> (u64, u64) {
        let block = self.block_min();
        let end = (offset_bytes + length_bytes) / block * block;
        (offset_bytes.next_multiple_of(block).min(end), end)
    }
}

fn request(command: Command, offset: u64, length: u32) -> Request {
    Request {
        command,
        flags: 0,
        offset,
        length,
    }
}

/// A range in pieces, as offset and length.
fn pieces(offset: u64, length: u64, step: u64) -> impl Iterator<Item = (u64, u32)> + Clone {
    (0..length.div_ceil(step)).map(move |index| {
        let at = index * step;
        (offset + at, (length - at).min(step) as u32)
    })
}

/// Some bytes of what lies in parts.
fn cut<'a>(parts: &[&'a [u8]], mut from: usize, mut length: usize) -> Vec<&'a [u8]> {
    let mut some = Vec::new();
    for part in parts {
        let start = from.min(part.len());
        let end = start + length.min(part.len() - start);
        if start < end {
            some.push(&part[start..end]);
        }
        from -= start;
        length -= end - start;
    }
    some
}

impl BlockDevice for NbdDevice {
    fn len_bytes(&self) -> u64 {
        self.length_bytes
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn read_ahead_bytes(&self) -> u32 {
        READ_AHEAD_BYTES
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        let length = buffer.len() as u64;
        bounds::check(self.length_bytes, offset_bytes, length)?;
        if self.is_aligned(offset_bytes, length) {
            return self.read_aligned(offset_bytes, buffer);
        }
        let block = self.block_min();
        let start = offset_bytes / block * block;
        let end = (offset_bytes + length).next_multiple_of(block);
        let mut bytes = vec![0; (end - start) as usize];
        self.read_aligned(start, &mut bytes)?;
        let from = (offset_bytes - start) as usize;
        buffer.copy_from_slice(&bytes[from..from + buffer.len()]);
        Ok(())
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        self.write_with(&[Write::new(offset_bytes, data)], 0)
    }

    fn write_parts_at(&self, offset_bytes: u64, parts: &[&[u8]]) -> io::Result<()> {
        let parts = parts.to_vec();
        self.write_with(
            &[Write {
                offset_bytes,
                parts,
            }],
            0,
        )
    }

    fn write_many(&self, writes: &[Write<'_>]) -> io::Result<()> {
        self.write_with(writes, 0)
    }

    fn write_durably(&self, writes: &[Write<'_>]) -> io::Result<()> {
        if self.can(SEND_FUA) && self.has_barriers {
            return self.write_with(writes, FLAG_FUA);
        }
        self.write_with(writes, 0)?;
        self.flush()
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        self.check_write(offset_bytes, length_bytes)?;
        let (start, end) = self.whole_blocks(offset_bytes, length_bytes);
        if !self.can(SEND_WRITE_ZEROES) || start == end {
            return self.write_zeros_as_data(offset_bytes, length_bytes);
        }
        self.write_zeros_as_data(offset_bytes, start - offset_bytes)?;
        self.write_zeros_as_data(end, offset_bytes + length_bytes - end)?;
        match self.over_blocks(Command::WriteZeroes, start, end) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.write_zeros_as_data(start, end - start)
            }
            outcome => outcome,
        }
    }

    /// After `TRIM` alone nobody knows what is read; zeros may give back storage too.
    fn discard_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<bool> {
        self.check_write(offset_bytes, length_bytes)?;
        if !self.can(SEND_WRITE_ZEROES) {
            return Ok(false);
        }
        if self.can(SEND_TRIM) {
            let (start, end) = self.whole_blocks(offset_bytes, length_bytes);
            self.over_blocks(Command::Trim, start, end)?;
        }
        self.write_zeros_at(offset_bytes, length_bytes)?;
        Ok(true)
    }

    fn flush(&self) -> io::Result<()> {
        if self.is_read_only || !self.has_barriers {
            return Ok(());
        }
        self.loss.flush(|| self.link.flush())
    }

    fn extent_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Extent> {
        bounds::check(self.length_bytes, offset_bytes, length_bytes)?;
        let data = Extent {
            length_bytes,
            is_zero: false,
        };
        let block = self.block_min();
        let start = offset_bytes / block * block;
        let asked = (offset_bytes + length_bytes).next_multiple_of(block) - start;
        let asked = asked.min(u64::from(EMPTY_REQUEST_BYTES)) as u32;
        if self.link.export().allocation_context.is_none() || asked == 0 {
            return Ok(data);
        }
        let status = request(Command::BlockStatus, start, asked);
        let mut told = Vec::new();
        let asked = [(status, Vec::new())].into_iter();
        let outcome = self.link.run(asked, |_, reply| {
            told = reply.status;
        });
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(data),
            outcome => outcome?,
        }
        let mut extent: Option<Extent> = None;
        for (length, flags) in told {
            let is_zero = flags & STATE_ZERO != 0;
            match &mut extent {
                None => {
                    extent = Some(Extent {
                        length_bytes: u64::from(length),
                        is_zero,
                    });
                }
                Some(extent) if extent.is_zero == is_zero => {
                    extent.length_bytes += u64::from(length);
                }
                Some(_) => break,
            }
        }
        let before = offset_bytes - start;
        let extent = extent.filter(|extent| extent.length_bytes > before);
        let extent = extent.ok_or_else(|| {
            let line = "the server tells nothing of what is allocated";
            let line = format!("{line} ({})", self.uri.server);
            io::Error::new(io::ErrorKind::InvalidData, line)
        })?;
        Ok(Extent {
            length_bytes: (extent.length_bytes - before).min(length_bytes),
            ..extent
        })
    }

    fn describe(&self) -> String {
        self.uri.text.clone()
    }
}

impl std::fmt::Debug for NbdDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NbdDevice")
            .field("uri", &self.uri.text)
            .finish_non_exhaustive()
    }
}
