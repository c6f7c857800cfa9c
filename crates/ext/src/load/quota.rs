//! Quota files, read as a whole.

use std::collections::HashSet;

use finefs_ext_disk::features::RoCompat;
use finefs_ext_disk::quota::{
    BLOCK_SIZE, DEPTH, ENTRIES, ENTRY_SIZE, QuotaEntry, QuotaInfo, QuotaKind, ROOT, entry_offset,
};
use finefs_ext_disk::superblock::Superblock;
use finefs_namespace::{Error, Extent, Ino, Result};

use super::{content, map};
use crate::quota::{Account, Book, Quotas};
use crate::state::ExtState;

/// Reads the quota files of an image, of which these limits count; an error where one is damaged.
pub(crate) fn load(state: &ExtState, limits: &[QuotaKind]) -> Result<Quotas> {
    let superblock = state.superblock.lock().clone();
    let mut books = Vec::new();
    for (kind, number) in files(&superblock) {
        let book = read(state, kind, number).map_err(|error| match error {
            error @ Error::Io(_) => error,
            error => Error::corrupt(format_args!("quota file (inode {number}): {error}")),
        })?;
        books.push((kind, number, book));
    }
    Ok(Quotas::new(books, limits))
}

/// The quota files that the superblock names.
fn files(superblock: &Superblock) -> impl Iterator<Item = (QuotaKind, u32)> + use<> {
    let has = superblock.ro_compat().contains(RoCompat::QUOTA);
    let numbers = [
        (QuotaKind::User, superblock.usr_quota_inum()),
        (QuotaKind::Group, superblock.grp_quota_inum()),
        (QuotaKind::Project, superblock.prj_quota_inum()),
    ];
    let numbers = numbers.into_iter();
    numbers.filter(move |(_, number)| has && *number != 0)
}

/// Where a block of a quota file lies: block on the device, and byte offset in it.
pub(crate) fn locate(extents: &[Extent], block: u32, block_size: u32) -> Option<(u64, usize)> {
    let byte = u64::from(block) * BLOCK_SIZE as u64;
    let physical = content::block_at(extents, byte / u64::from(block_size))?;
    Some((physical, (byte % u64::from(block_size)) as usize))
}

/// Reads a quota file.
fn read(state: &ExtState, kind: QuotaKind, number: u32) -> Result<Book> {
    let ino = Ino(u64::from(number));
    let inode = state.read_inode(ino)?;
    let mapping = map::load(state, ino, &inode)?;
    let mut reader = Reader {
        state,
        extents: &mapping.extents,
        book: Book::default(),
        seen: HashSet::new(),
    };
    let head = reader.block(0)?;
    reader.book.info = QuotaInfo::parse(&head, kind)
        .ok_or_else(|| Error::corrupt("no quota file of this kind"))?;
    reader.node(ROOT, 0)?;
    Ok(reader.book)
}

struct Reader<'a> {
    state: &'a ExtState,
    extents: &'a [Extent],
    book: Book,
    seen: HashSet<u32>,
}

impl Reader<'_> {
    fn block(&self, number: u32) -> Result<Vec<u8>> {
        let block_size = self.state.geometry.block_size;
        let (physical, offset) = locate(self.extents, number, block_size)
            .ok_or_else(|| Error::corrupt(format_args!("block {number} is missing")))?;
        let bytes = self.state.buffers.read(physical)?;
        Ok(bytes[offset..offset + BLOCK_SIZE].to_vec())
    }

    /// Reads what is below a block of the tree.
    fn node(&mut self, number: u32, level: u32) -> Result<()> {
        let block = self.block(number)?;
        for reference in block.chunks_exact(4) {
            let below =
                u32::from_le_bytes([reference[0], reference[1], reference[2], reference[3]]);
            // Ids of one block of entries have a reference each.
            if below == 0 || level + 1 == DEPTH && self.seen.contains(&below) {
                continue;
            }
            if !self.seen.insert(below) || below >= self.book.info.blocks {
                return Err(Error::corrupt(format_args!(
                    "block {below} of the tree cannot be"
                )));
            }
            match level + 1 {
                DEPTH => self.leaf(below)?,
                level => self.node(below, level)?,
            }
        }
        Ok(())
    }

    fn leaf(&mut self, number: u32) -> Result<()> {
        let block = self.block(number)?;
        for index in 0..ENTRIES {
            let offset = entry_offset(index);
            if let Some(entry) = QuotaEntry::parse(&block[offset..offset + ENTRY_SIZE]) {
                let place = (number, offset);
                let account = Account { entry, place };
                if self.book.accounts.insert(entry.id, account).is_some() {
                    return Err(Error::corrupt(format_args!(
                        "id {} is there twice",
                        entry.id
                    )));
                }
            }
        }
        Ok(())
    }
}
