//! What a journal holds for blocks of a file system that must not be written: replay in memory.
//!
//! Of the log only places are kept, not contents: the newest copy of a block lies in the journal,
//! and is read from there when the block is wanted. So even the replay of a huge journal takes
//! little memory. What fast commits change, which is not much, is kept in memory.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use finefs_block::BlockDevice;

/// Where the newest copy of a block lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// In the log.
    Log {
        /// Byte offset on the device that the log lies on.
        offset_bytes: u64,
        /// The first four bytes, where the journal's copy does not show them: they look like the
        /// start of a block of the journal itself (jbd2's escaped blocks).
        escaped: Option<[u8; 4]>,
    },
    /// Here.
    Memory(Arc<[u8]>),
}

impl Source {
    /// Reads from `start` within the block on; `log` is the device that the log lies on.
    pub fn read(&self, log: &dyn BlockDevice, start: usize, buffer: &mut [u8]) -> io::Result<()> {
        match self {
            Source::Memory(bytes) => {
                let part = bytes.get(start..start + buffer.len());
                buffer.copy_from_slice(part.ok_or(io::ErrorKind::InvalidInput)?);
            }
            Source::Log {
                offset_bytes,
                escaped,
            } => {
                log.read_at(offset_bytes + start as u64, buffer)?;
                if let Some(escaped) = escaped {
                    unescape(*escaped, start, buffer);
                }
            }
        }
        Ok(())
    }
}

/// Puts a block's first bytes into what was read from `start` within the block on.
fn unescape(escaped: [u8; 4], start: usize, buffer: &mut [u8]) {
    for (position, byte) in escaped.into_iter().enumerate() {
        if let Some(position) = position.checked_sub(start)
            && let Some(target) = buffer.get_mut(position)
        {
            *target = byte;
        }
    }
}

/// The blocks of a file system whose newest copy lies in the journal.
#[derive(Clone, Default)]
pub struct Overlay {
    block_size_bytes: u64,
    sources: HashMap<u64, Source>,
    /// The device that the log lies on, where it is another.
    log: Option<Arc<dyn BlockDevice>>,
}

impl std::fmt::Debug for Overlay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Overlay")
            .field("sources", &self.sources)
            .finish_non_exhaustive()
    }
}

impl Overlay {
    /// From blocks of `block_size_bytes` to the places of their newest copies.
    pub fn new(block_size_bytes: u32, sources: HashMap<u64, Source>) -> Overlay {
        Overlay {
            block_size_bytes: u64::from(block_size_bytes),
            sources,
            log: None,
        }
    }

    /// The same of a log that lies on another device.
    #[must_use]
    pub fn with_log_on(self, log: Option<Arc<dyn BlockDevice>>) -> Overlay {
        Overlay { log, ..self }
    }

    /// True when it shadows nothing.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// How many blocks it shadows.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// True when the newest copy of a block does not lie at its place.
    pub fn contains(&self, block: u64) -> bool {
        self.sources.contains_key(&block)
    }

    /// Reads bytes of the file system's device as they are after the replay.
    pub fn read_at(
        &self,
        device: &dyn BlockDevice,
        offset_bytes: u64,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        device.read_at(offset_bytes, buffer)?;
        if self.is_empty() || buffer.is_empty() {
            return Ok(());
        }
        let log = self.log.as_deref().unwrap_or(device);
        let block_size_bytes = self.block_size_bytes;
        let end = offset_bytes + buffer.len() as u64;
        for block in offset_bytes / block_size_bytes..=(end - 1) / block_size_bytes {
            let Some(source) = self.sources.get(&block) else {
                continue;
            };
            let block_start = block * block_size_bytes;
            let from = offset_bytes.max(block_start);
            let to = end.min(block_start + block_size_bytes);
            let part = &mut buffer[(from - offset_bytes) as usize..(to - offset_bytes) as usize];
            source.read(log, (from - block_start) as usize, part)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_block::MemoryDevice;

    #[test]
    fn shows_the_journals_copy() {
        let mut bytes = vec![1; 8192];
        bytes[4096..5120].fill(7);
        let device = MemoryDevice::from_bytes(&bytes);
        let source = Source::Log {
            offset_bytes: 4096,
            escaped: Some(*b"JNL!"),
        };
        let overlay = Overlay::new(1024, HashMap::from([(1, source)]));
        let mut buffer = vec![0; 1024];
        overlay.read_at(&device, 1022, &mut buffer).unwrap();
        assert_eq!(buffer[..2], [1, 1]);
        assert_eq!(buffer[2..6], *b"JNL!");
        assert!(buffer[6..].iter().all(|&byte| byte == 7));
        overlay.read_at(&device, 1026, &mut buffer).unwrap();
        assert_eq!(buffer[..2], *b"L!");
        assert_eq!(buffer[2..1022], [7; 1020]);
        assert_eq!(buffer[1022..], [1, 1]);
    }
}
