//! A device whose writes stay in memory: what a repair would write, before it is written. A resize
//! lets writes to free blocks pass: they change nothing of the file system that is there.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use finefs_block::{BlockDevice, bounds};
use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use finefs_locks::{LockClass, RwLock};

use crate::pass::Check;
use crate::tables::Claims;

/// The pages of a shadow.
pub static PAGES: LockClass = LockClass::new("check.shadow", 94);

/// Bytes of a page: what is compared, kept for undo, and written.
pub(crate) const PAGE: u64 = 4096;

/// See the module's head.
pub(crate) struct Shadow {
    device: Arc<dyn BlockDevice>,
    pages: RwLock<BTreeMap<u64, Box<[u8]>>>,
    passing: Option<Passing>,
}

/// Which writes pass.
struct Passing {
    block_bytes: u64,
    /// Blocks behind it are free.
    end: u64,
    used: Claims,
}

impl Passing {
    /// Whether the block at an offset is free, and where the next one starts that is not so.
    fn run(&self, offset_bytes: u64, end_bytes: u64) -> (bool, u64) {
        let is_free = |block: u64| block >= self.end || !self.used.is_claimed(block);
        let first = offset_bytes / self.block_bytes;
        let mut next = first + 1;
        while next * self.block_bytes < end_bytes && is_free(next) == is_free(first) {
            next += 1;
        }
        (is_free(first), (next * self.block_bytes).min(end_bytes))
    }
}

impl Shadow {
    pub fn new(device: &Arc<dyn BlockDevice>) -> Shadow {
        Shadow {
            device: Arc::clone(device),
            pages: RwLock::new(&PAGES, BTreeMap::new()),
            passing: None,
        }
    }

    /// One that lets writes pass to blocks that nothing claims in this check.
    pub fn over_free_blocks(device: &Arc<dyn BlockDevice>, check: &Check) -> Shadow {
        Shadow {
            passing: Some(Passing {
                block_bytes: u64::from(check.fs.geo.block_size) << check.cluster_bits,
                end: (check.fs.geo.blocks_count).div_ceil(1 << check.cluster_bits),
                used: check.claims.copy(),
            }),
            ..Shadow::new(device)
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

    /// The pages that differ from the device's: offset, what is there, what shall be. The first,
    /// with the superblock, is among them where any does.
    pub fn changes(&self) -> io::Result<Vec<Change>> {
        let mut pages = self.pages.read().clone();
        if let std::collections::btree_map::Entry::Vacant(first) = pages.entry(0) {
            first.insert(self.original(0)?);
        }
        let mut changes = Vec::new();
        // Downwards: the first comes last.
        for (page, new) in pages.into_iter().rev() {
            let old = self.original(page)?;
            if old != new || page == 0 && !changes.is_empty() {
                changes.push(Change {
                    offset_bytes: page * PAGE,
                    old,
                    new,
                });
            }
        }
        changes.reverse();
        Ok(changes)
    }
}

/// A page that changes.
pub(crate) struct Change {
    pub offset_bytes: u64,
    pub old: Box<[u8]>,
    pub new: Box<[u8]>,
}

impl Change {
    /// Where the block of multiple mount protection lies, if this has the superblock that says it.
    fn mmp_block(&self) -> Option<Range<u64>> {
        let at = usize::try_from(SUPERBLOCK_OFFSET.checked_sub(self.offset_bytes)?).ok()?;
        let sb = Superblock::parse(self.new.get(at..at + SUPERBLOCK_SIZE)?).ok()?;
        let number = sb.mmp_block();
        let has_it = sb.incompat().contains(Incompat::MMP);
        if !has_it || number <= u64::from(sb.first_data_block()) {
            return None;
        }
        let length = u64::from(sb.block_size()?);
        let start = number.checked_mul(length)?;
        Some(start..start.checked_add(length)?)
    }

    /// The parts of it outside of a range.
    fn outside(self, range: &Range<u64>) -> Vec<Change> {
        let start = self.offset_bytes;
        let end = start + self.new.len() as u64;
        let part = |from: u64, to: u64| {
            let within = (from - start) as usize..(to - start) as usize;
            Change {
                offset_bytes: from,
                old: self.old[within.clone()].into(),
                new: self.new[within].into(),
            }
        };
        let before = (start, range.start.clamp(start, end));
        let behind = (range.end.clamp(start, end), end);
        [before, behind]
            .into_iter()
            .filter(|(from, to)| from < to)
            .map(|(from, to)| part(from, to))
            .collect()
    }
}

/// Changes without the block of multiple mount protection of the file system that they make: it
/// says who has that now, in the image and after an undo.
pub(crate) fn without_mmp_block(changes: Vec<Change>) -> Vec<Change> {
    match changes.iter().find_map(Change::mmp_block) {
        Some(block) => (changes.into_iter())
            .flat_map(|change| change.outside(&block))
            .collect(),
        None => changes,
    }
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
        let Some(passing) = &self.passing else {
            return self.keep(offset_bytes, data);
        };
        let mut at = offset_bytes;
        while at < end {
            let (is_free, next) = passing.run(at, end);
            let part = &data[(at - offset_bytes) as usize..(next - offset_bytes) as usize];
            match is_free {
                true => self.pass(at, part)?,
                false => self.keep(at, part)?,
            }
            at = next;
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

impl Shadow {
    /// Writes to the device; what is kept of the same pages follows.
    fn pass(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        self.device.write_at(offset_bytes, data)?;
        let end = offset_bytes + data.len() as u64;
        let mut pages = self.pages.write();
        for (page, bytes) in pages.range_mut(offset_bytes / PAGE..end.div_ceil(PAGE)) {
            put(*page, bytes, offset_bytes, data);
        }
        Ok(())
    }

    fn keep(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
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
            put(page, bytes, offset_bytes, data);
        }
        Ok(())
    }
}

/// Puts into a page what `data`, which begins at an offset, has for it.
fn put(page: u64, bytes: &mut [u8], offset_bytes: u64, data: &[u8]) {
    let start = page * PAGE;
    let from = offset_bytes.max(start);
    let to = (offset_bytes + data.len() as u64).min(start + bytes.len() as u64);
    if from < to {
        bytes[(from - start) as usize..(to - start) as usize]
            .copy_from_slice(&data[(from - offset_bytes) as usize..(to - offset_bytes) as usize]);
    }
}
