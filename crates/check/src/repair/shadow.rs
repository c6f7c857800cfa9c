//! A device whose writes stay in memory: what a repair would write, before it is written.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use finefs_block::{BlockDevice, bounds};
use finefs_locks::{LockClass, RwLock};

/// The pages of a shadow.
pub static PAGES: LockClass = LockClass::new("check.shadow", 94);

/// Bytes of a page: what is compared, kept for undo, and written.
pub(crate) const PAGE: u64 = 4096;

/// See the module's head.
pub(crate) struct Shadow {
    device: Arc<dyn BlockDevice>,
    pages: RwLock<BTreeMap<u64, Box<[u8]>>>,
}

impl Shadow {
    pub fn new(device: &Arc<dyn BlockDevice>) -> Shadow {
        Shadow {
            device: Arc::clone(device),
            pages: RwLock::new(&PAGES, BTreeMap::new()),
        }
    }

    /// A page as the device has it; shorter at its end.
    fn original(&self, page: u64) -> io::Result<Box<[u8]>> {
        let start = page * PAGE;
        let length = (self.device.len_bytes() - start).min(PAGE);
        let mut bytes = vec![0; length as usize].into_boxed_slice();
        self.device.read_at(start, &mut bytes)?;
        Ok(bytes)
    }

    /// The pages that differ from the device's: offset, what is there, what shall be.
    pub fn changes(&self) -> io::Result<Vec<Change>> {
        let pages = self.pages.read().clone();
        let mut changes = Vec::new();
        for (page, new) in pages {
            let old = self.original(page)?;
            if old != new {
                changes.push(Change {
                    offset_bytes: page * PAGE,
                    old,
                    new,
                });
            }
        }
        Ok(changes)
    }
}

/// A page that changes.
pub(crate) struct Change {
    pub offset_bytes: u64,
    pub old: Box<[u8]>,
    pub new: Box<[u8]>,
}

impl BlockDevice for Shadow {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset_bytes, buffer)?;
        let end = offset_bytes + buffer.len() as u64;
        let pages = self.pages.read();
        for (page, bytes) in pages.range(offset_bytes / PAGE..end.div_ceil(PAGE)) {
            let start = page * PAGE;
            let from = offset_bytes.max(start);
            let to = end.min(start + bytes.len() as u64);
            if from < to {
                buffer[(from - offset_bytes) as usize..(to - offset_bytes) as usize]
                    .copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        bounds::check(self.len_bytes(), offset_bytes, data.len() as u64)?;
        let end = offset_bytes + data.len() as u64;
        for page in offset_bytes / PAGE..end.div_ceil(PAGE) {
            let is_known = self.pages.read().contains_key(&page);
            // Read before the lock is taken.
            let original = match is_known {
                true => None,
                false => Some(self.original(page)?),
            };
            let mut pages = self.pages.write();
            let bytes = pages
                .entry(page)
                .or_insert_with(|| original.unwrap_or_default());
            let start = page * PAGE;
            let from = offset_bytes.max(start);
            let to = end.min(start + bytes.len() as u64);
            bytes[(from - start) as usize..(to - start) as usize].copy_from_slice(
                &data[(from - offset_bytes) as usize..(to - offset_bytes) as usize],
            );
        }
        Ok(())
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        let zeros = vec![0; PAGE as usize];
        let mut done = 0;
        while done < length_bytes {
            let part = (length_bytes - done).min(PAGE);
            self.write_at(offset_bytes + done, &zeros[..part as usize])?;
            done += part;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn describe(&self) -> String {
        self.device.describe()
    }
}
