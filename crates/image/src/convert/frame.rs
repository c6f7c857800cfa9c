//! A partition table around a file system: a disk with one partition, which begins at 1 MiB.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use finefs_block::{BlockDevice, Extent, bounds};
use gpt::GptConfig;
use gpt::mbr::ProtectiveMBR;

/// Where the partition starts: as all partitioners align.
pub(super) const START_BYTES: u64 = 1 << 20;
/// What comes behind the partition: the table's copy, and up to the alignment.
const END_BYTES: u64 = 1 << 20;
const SECTOR_BYTES: u64 = 512;
/// The partition's name in the table.
const NAME: &str = "root";

/// A disk with a partition table, and a device as its only partition. To be read.
pub(super) struct Frame {
    inner: Arc<dyn BlockDevice>,
    edges: Edges,
}

/// The bytes before and behind the partition.
#[derive(Debug)]
struct Edges {
    head: Vec<u8>,
    tail: Vec<u8>,
    length_bytes: u64,
    /// Where the writer of the table is.
    at: u64,
}

impl Edges {
    /// The bytes at a place up to the end of an edge; `None` where the partition is.
    fn at(&mut self, at: u64) -> Option<&mut [u8]> {
        let tail_start = self.length_bytes - END_BYTES;
        match at {
            _ if at < START_BYTES => self.head.get_mut(at as usize..),
            _ if at >= tail_start => self.tail.get_mut((at - tail_start) as usize..),
            _ => None,
        }
    }
}

impl Read for Edges {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (at, rest) = (self.at, self.length_bytes - self.at);
        let length = match self.at(at) {
            Some(bytes) => {
                let length = bytes.len().min(buffer.len());
                buffer[..length].copy_from_slice(&bytes[..length]);
                length
            }
            None => {
                let length = rest.saturating_sub(END_BYTES).min(buffer.len() as u64) as usize;
                buffer[..length].fill(0);
                length
            }
        };
        self.at += length as u64;
        Ok(length)
    }
}

impl Write for Edges {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let bytes = self.at(self.at).ok_or(io::ErrorKind::InvalidInput)?;
        let length = bytes.len().min(data.len());
        bytes[..length].copy_from_slice(&data[..length]);
        self.at += length as u64;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Edges {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.length_bytes.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        let at = at.filter(|at| *at <= self.length_bytes);
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

impl Frame {
    /// Makes a table with one partition, as large as `inner`.
    pub fn new(inner: Arc<dyn BlockDevice>) -> io::Result<Frame> {
        if inner.len_bytes() == 0 {
            return Err(io::Error::other("is empty, and a partition is not"));
        }
        let partition_bytes = inner.len_bytes().next_multiple_of(START_BYTES);
        let length_bytes = START_BYTES + partition_bytes + END_BYTES;
        let mut edges = Edges {
            head: vec![0; START_BYTES as usize],
            tail: vec![0; END_BYTES as usize],
            length_bytes,
            at: 0,
        };
        let sectors = length_bytes / SECTOR_BYTES - 1;
        let protective = ProtectiveMBR::with_lb_size(u32::try_from(sectors).unwrap_or(u32::MAX));
        protective
            .overwrite_lba0(&mut edges)
            .map_err(|error| io::Error::other(error.to_string()))?;
        let failed = |error: gpt::GptError| io::Error::other(error.to_string());
        let mut disk = GptConfig::new()
            .writable(true)
            .create_from_device(edges, None)
            .map_err(failed)?;
        disk.add_partition(
            NAME,
            partition_bytes,
            gpt::partition_types::LINUX_FS,
            0,
            Some(START_BYTES / SECTOR_BYTES),
        )
        .map_err(failed)?;
        let edges = disk.write().map_err(failed)?;
        Ok(Frame { inner, edges })
    }

    fn partition_end(&self) -> u64 {
        START_BYTES + self.inner.len_bytes()
    }
}

impl BlockDevice for Frame {
    fn len_bytes(&self) -> u64 {
        self.edges.length_bytes
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        bounds::check(self.len_bytes(), offset_bytes, buffer.len() as u64)?;
        let tail_start = self.len_bytes() - END_BYTES;
        let mut done = 0;
        while done < buffer.len() {
            let at = offset_bytes + done as u64;
            let borders = [
                START_BYTES,
                self.partition_end(),
                tail_start,
                self.len_bytes(),
            ];
            let border = borders.into_iter().find(|border| *border > at);
            let length = (border.unwrap_or(at) - at).min((buffer.len() - done) as u64) as usize;
            let part = &mut buffer[done..done + length];
            if at < START_BYTES {
                part.copy_from_slice(&self.edges.head[at as usize..at as usize + length]);
            } else if at < self.partition_end() {
                self.inner.read_at(at - START_BYTES, part)?;
            } else if at < tail_start {
                part.fill(0);
            } else {
                let from = (at - tail_start) as usize;
                part.copy_from_slice(&self.edges.tail[from..from + length]);
            }
            done += length;
        }
        Ok(())
    }

    fn extent_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Extent> {
        bounds::check(self.len_bytes(), offset_bytes, length_bytes)?;
        if (START_BYTES..self.partition_end()).contains(&offset_bytes) {
            let rest = self.partition_end() - offset_bytes;
            return self
                .inner
                .extent_at(offset_bytes - START_BYTES, length_bytes.min(rest));
        }
        let border = match offset_bytes < START_BYTES {
            true => START_BYTES,
            false => self.len_bytes(),
        };
        Ok(Extent {
            length_bytes: length_bytes.min(border - offset_bytes),
            is_zero: false,
        })
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::partitions;
    use finefs_block::MemoryDevice;

    #[test]
    fn a_frame_is_a_disk_with_one_partition() {
        // Not a multiple of the alignment.
        let inner = Arc::new(MemoryDevice::from_bytes(&[7; 5000]));
        let frame = Frame::new(inner).unwrap();
        let found = partitions(&frame).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].start_bytes, found[0].length_bytes),
            (1 << 20, 1 << 20)
        );
        let mut bytes = vec![0; frame.len_bytes() as usize];
        frame.read_at(0, &mut bytes).unwrap();
        let start = START_BYTES as usize;
        assert!(bytes[start..start + 5000].iter().all(|byte| *byte == 7));
        assert!(bytes[start + 5000..2 * start].iter().all(|byte| *byte == 0));
        // In parts as at once.
        let mut at = 0;
        while at < bytes.len() {
            let length = 4099.min(bytes.len() - at);
            let mut part = vec![1; length];
            frame.read_at(at as u64, &mut part).unwrap();
            assert!(part == bytes[at..at + length], "{at}");
            at += length;
        }
    }
}
