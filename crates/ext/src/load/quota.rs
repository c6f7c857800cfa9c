//! Quota files, read as a whole.

use std::collections::HashSet;

use finefs_ext_disk::features::RoCompat;
use finefs_ext_disk::quota::{
    BLOCK_SIZE, BlockHead, ENTRIES, ENTRY_SIZE, PlacedEntry, QuotaEntry, QuotaInfo, QuotaKind,
    ROOT, TreeError, entries, entry_offset,
};
use finefs_ext_disk::superblock::Superblock;
use finefs_namespace::{Error, Extent, Ino, LogicalBlock, Result};

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

/// Those of these kinds of which the image keeps no account.
pub(crate) fn missing(superblock: &Superblock, kinds: &[QuotaKind]) -> Vec<QuotaKind> {
    let is_kept = |kind| files(superblock).any(|(kept, _)| kept == kind);
    let kinds = kinds.iter().copied();
    kinds.filter(|kind| !is_kept(*kind)).collect()
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
    let logical = LogicalBlock::of_byte(byte, block_size.into());
    let physical = content::block_at(extents, logical)?;
    Some((physical, (byte % u64::from(block_size)) as usize))
}

/// Reads a quota file.
fn read(state: &ExtState, kind: QuotaKind, number: u32) -> Result<Book> {
    let ino = Ino(u64::from(number));
    let inode = state.read_inode(ino)?;
    let mapping = map::load(state, ino, &inode)?;
    let block_size = state.geometry.block_size;
    let block = |number: u32| {
        let (physical, offset) = locate(&mapping.extents, number, block_size)
            .ok_or_else(|| Error::corrupt(format_args!("block {number} is missing")))?;
        let bytes = state.buffers.read(physical)?;
        Ok(bytes[offset..offset + BLOCK_SIZE].to_vec())
    };
    let info = QuotaInfo::parse(&block(0)?, kind)
        .ok_or_else(|| Error::corrupt("no quota file of this kind"))?;
    let entries = entries(info.blocks, &block).map_err(|error| match error {
        TreeError::Read(error) => error,
        TreeError::Block(number) => {
            Error::corrupt(format_args!("block {number} of the tree cannot be"))
        }
        TreeError::Twice(id) => Error::corrupt(format_args!("id {id} is there twice")),
    })?;
    let size_bytes = inode.size(&state.inode_rules);
    check_info(&info, size_bytes, &entries, block)?;
    let accounts = entries.into_iter();
    let accounts = accounts.map(|(entry, place)| (entry.id, Account { entry, place }));
    Ok(Book::new(info, accounts.collect()))
}

/// Checks what the header says that a change of the file will rely on (Linux
/// `v2_read_file_info`): its size, and the lists of free blocks and of those with room for entries.
fn check_info(
    info: &QuotaInfo,
    size_bytes: u64,
    entries: &[PlacedEntry],
    block: impl Fn(u32) -> Result<Vec<u8>>,
) -> Result<()> {
    if u64::from(info.blocks) * BLOCK_SIZE as u64 > size_bytes {
        return Err(Error::corrupt(format_args!(
            "{} blocks, but {size_bytes} bytes",
            info.blocks
        )));
    }
    let used: HashSet<u32> = entries.iter().map(|(_, (block, _))| *block).collect();
    let mut seen = HashSet::new();
    let lists = [(info.free_block, false), (info.free_entry, true)];
    for (mut number, holds_entries) in lists {
        while number != 0 {
            let is_possible = (ROOT + 1..info.blocks).contains(&number) && seen.insert(number);
            if !is_possible || used.contains(&number) != holds_entries {
                return Err(Error::corrupt(format_args!(
                    "block {number} cannot be listed as free"
                )));
            }
            let bytes = block(number)?;
            if holds_entries && !has_room(&bytes) {
                return Err(Error::corrupt(format_args!("block {number} has no room")));
            }
            number = BlockHead::parse(&bytes).next;
        }
    }
    Ok(())
}

/// Whether a block of entries has room for one more.
fn has_room(block: &[u8]) -> bool {
    let entry = |index| &block[entry_offset(index)..entry_offset(index) + ENTRY_SIZE];
    usize::from(BlockHead::parse(block).entries) < ENTRIES
        && (0..ENTRIES).any(|index| QuotaEntry::parse(entry(index)).is_none())
}
