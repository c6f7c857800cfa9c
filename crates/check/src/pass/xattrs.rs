//! Extended attributes: those in inodes with their inode, those in blocks once for each block.

use finefs_ext_disk::PhysBlock;
use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::inode::{Inode, InodeFlags};
use finefs_ext_disk::xattr::{
    self, NameIndex, XattrRegion, XattrValue, entry_hash, entry_hash_of_inode, entry_hash_signed,
};

use super::Check;
use super::inodes::{InodeScan, One};
use crate::finding::{Findings, Object, Problem};
use crate::fs::short;
use crate::tables::state;

const ENTRY_SIZE: usize = 16;
const BLOCK_HEADER: usize = 32;
const INODE_HEADER: usize = 4;
/// Bytes of inline data in `i_block`.
const INLINE_MIN: u64 = 60;

fn le32(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    word.map_or(0, u32::from_le_bytes)
}

/// Values that lie in other inodes, as quotas count them: each reference for itself.
#[derive(Clone, Copy, Default)]
pub(super) struct Elsewhere {
    pub values: u64,
    pub clusters: u64,
}

impl Elsewhere {
    fn add(&mut self, clusters: u64) {
        self.values += 1;
        self.clusters += clusters;
    }
}

/// One entry of a list, as it lies there.
struct Entry<'a> {
    name: &'a [u8],
    index: u8,
    offset: usize,
    value_inode: u32,
    size: usize,
    hash: u32,
}

/// Checks a list of attributes. Gives what is wrong, and calls `each` with the entries before that.
fn list<'a>(
    bytes: &'a [u8],
    entries_at: usize,
    values_from: usize,
    each: &mut dyn FnMut(&Entry<'a>) -> Result<(), String>,
) -> Result<(), String> {
    let is_block = entries_at == BLOCK_HEADER;
    let mut taken: Vec<(usize, usize)> = vec![(0, entries_at)];
    let mut at = entries_at;
    while at + ENTRY_SIZE <= bytes.len() && le32(bytes, at) != 0 {
        let length = (ENTRY_SIZE + usize::from(bytes[at])).next_multiple_of(4);
        if at + length > bytes.len() {
            return Err(format!("an entry at {at} leaves its place"));
        }
        let entry = Entry {
            name: &bytes[at + ENTRY_SIZE..at + ENTRY_SIZE + usize::from(bytes[at])],
            index: bytes[at + 1],
            offset: usize::from(u16::from_le_bytes([bytes[at + 2], bytes[at + 3]])),
            value_inode: le32(bytes, at + 4),
            size: le32(bytes, at + 8) as usize,
            hash: le32(bytes, at + 12),
        };
        taken.push((at, at + length));
        if is_block && entry.index == 0 {
            return Err(format!("the entry at {at} has no kind of name"));
        }
        if entry.value_inode == 0 {
            let start = values_from + entry.offset;
            let end = start.saturating_add(entry.size);
            if end > bytes.len() {
                return Err(format!("the value of the entry at {at} leaves its place"));
            }
            if entry.size > 0 {
                taken.push((start, start + entry.size.next_multiple_of(4)));
            }
            let value = &bytes[start.min(end)..end];
            let is_exempt = !is_block && entry.hash == 0;
            let is_right = entry.hash == entry_hash(entry.name, value)
                || entry.hash == entry_hash_signed(entry.name, value);
            if !is_right && !is_exempt {
                return Err(format!("the hash of the entry at {at} is wrong"));
            }
        }
        each(&entry)?;
        at += length;
    }
    taken.push((at, at + 4));
    taken.sort_unstable();
    let overlaps = taken.windows(2).any(|pair| pair[0].1 > pair[1].0);
    match overlaps || taken.iter().any(|(_, end)| *end > bytes.len()) {
        true => Err("entries and values overlap".to_owned()),
        false => Ok(()),
    }
}

/// The attributes behind the fields of an inode; gives the values in other inodes.
pub(super) fn in_inode(one: &mut One<'_>) -> Elsewhere {
    let mut found = Elsewhere::default();
    let Some(area) = one.inode.xattr_bytes() else {
        return found;
    };
    if area.len() < INODE_HEADER + 4 || le32(area, 0) != xattr::MAGIC {
        return found;
    }
    let (check, owner) = (one.check, one.ino);
    let mut values = Vec::new();
    let mut told = Findings::default();
    let checked = list(area, INODE_HEADER, INODE_HEADER, &mut |entry| {
        if entry.value_inode != 0 {
            values.push(entry.value_inode);
            found.add(elsewhere(check, owner, entry, &mut told)?);
        }
        Ok(())
    });
    one.scan.found.append(told);
    for ino in values {
        *one.scan.values.entry(ino).or_default() += 1;
        check.inodes.mark(ino, state::EA_REFERENCED);
    }
    if let Err(what) = checked {
        one.wrong(Problem::Xattr, format_args!("attributes: {what}"));
    }
    found
}

/// A value that is another inode; gives its clusters.
fn elsewhere(
    check: &Check,
    owner: u32,
    entry: &Entry<'_>,
    found: &mut Findings,
) -> Result<u64, String> {
    let fs = &check.fs;
    let ino = entry.value_inode;
    if !fs.needs(Incompat::EA_INODE) {
        return Err("a value lies in an inode, without ea_inode".to_owned());
    }
    let is_possible = ino >= fs.geo.first_ino.0 && ino <= fs.geo.inodes_count;
    let inode = match is_possible {
        true => fs.inode(ino, found),
        false => None,
    };
    let inode = inode.ok_or_else(|| format!("a value lies in inode {ino}, which is none"))?;
    let size = inode.size(&fs.rules);
    if entry.size == 0 || entry.size as u64 != size {
        return Err(format!("a value in inode {ino} has another size"));
    }
    let mut clusters = size.div_ceil(u64::from(fs.geo.block_size) << check.cluster_bits);
    // Its hash lies in the access time.
    let value_hash = le32(inode.as_bytes(), 8);
    if entry_hash_of_inode(entry.name, value_hash) != entry.hash {
        // Lustre's first form: the value's inode points back.
        let modified = le32(inode.as_bytes(), 0x10);
        if modified != owner {
            return Err(format!("the hash of a value in inode {ino} is wrong"));
        }
        clusters = 0;
    }
    if !inode.flags().contains(InodeFlags::EA_INODE) {
        return Err(format!(
            "a value lies in inode {ino}, which is not for that"
        ));
    }
    Ok(clusters)
}

/// The values that an attribute block has in other inodes.
pub(super) fn of_block(one: &mut One<'_>, block: u64) -> Elsewhere {
    let fs = &one.check.fs;
    let mut found = Elsewhere::default();
    let mut bytes = fs.block_buffer();
    if !fs.needs(Incompat::EA_INODE) || !fs.read_block(block, &mut bytes, &mut Findings::default())
    {
        return found;
    }
    let (check, owner) = (one.check, one.ino);
    // What is wrong with it is told once, by `blocks`.
    let _ = list(&bytes, BLOCK_HEADER, 0, &mut |entry| {
        if entry.value_inode != 0 {
            found.add(elsewhere(check, owner, entry, &mut Findings::default())?);
        }
        Ok(())
    });
    found
}

/// Checks every attribute block once, and how many inodes share it.
pub(super) fn blocks(check: &Check, all: &mut InodeScan) {
    let mut list: Vec<(u64, u32, u32)> = all
        .blocks
        .drain()
        .map(|(block, (count, owner))| (block, count, owner))
        .collect();
    list.sort_unstable();
    let states = check.share(list.len(), InodeScan::default, |scan, index| {
        let (block, count, owner) = list[index as usize];
        one_block(check, block, count, owner, scan);
    });
    for state in states {
        all.found.append(state.found);
        for (ino, count) in state.values {
            *all.values.entry(ino).or_default() += count;
        }
    }
}

fn one_block(check: &Check, block: u64, count: u32, owner: u32, scan: &mut InodeScan) {
    let fs = &check.fs;
    check.claim(block, 1);
    let mut bytes = fs.block_buffer();
    if !fs.read_block(block, &mut bytes, &mut scan.found) {
        return;
    }
    let object = Object::inode(owner).block(block);
    let wrong = |found: &mut Findings, problem, what: String| {
        found.add(problem, object.clone(), what);
    };
    if le32(&bytes, 0) != xattr::MAGIC {
        return wrong(
            &mut scan.found,
            Problem::Xattr,
            "attribute block without its magic".to_owned(),
        );
    }
    if le32(&bytes, 8) != 1 {
        wrong(
            &mut scan.found,
            Problem::Xattr,
            "attributes of more than one block".to_owned(),
        );
    }
    if let Some(seed) = fs.rules.seed
        && let Err(error) = xattr::verify_block_checksum(seed, PhysBlock(block), &bytes)
    {
        let what = format!("attribute block: {}", short(&error));
        wrong(&mut scan.found, Problem::XattrChecksum, what);
    }
    let stored = le32(&bytes, 4);
    if stored != count {
        let what = format!("attribute block: shared by {count} inodes, says {stored}");
        let found = &mut scan.found;
        found.add_with(
            Problem::XattrRefcount,
            object.clone(),
            what,
            u64::from(count),
        );
    }
    let mut values = Vec::new();
    let mut told = Findings::default();
    let checked = list(&bytes, BLOCK_HEADER, 0, &mut |entry| {
        if entry.value_inode != 0 {
            values.push(entry.value_inode);
            elsewhere(check, owner, entry, &mut told)?;
        }
        Ok(())
    });
    if let Err(what) = checked {
        wrong(
            &mut scan.found,
            Problem::Xattr,
            format!("attribute block: {what}"),
        );
    }
    scan.found.append(told);
    for ino in values {
        *scan.values.entry(ino).or_default() += 1;
        check.inodes.mark(ino, state::EA_REFERENCED);
    }
}

/// Inodes that hold values count their references.
pub(super) fn values(check: &Check, all: &mut InodeScan) {
    let mut list: Vec<(u32, u32)> = all.values.drain().collect();
    list.sort_unstable();
    for (ino, count) in list {
        let Some(inode) = check.fs.inode(ino, &mut all.found) else {
            continue;
        };
        let raw = inode.as_bytes();
        let stored = u64::from(le32(raw, 0x0C)) << 32 | u64::from(le32(raw, 0x24));
        // Lustre's first form counts nothing.
        let is_lustre = le32(raw, 0x10) != 0 && stored == 0;
        if stored != u64::from(count) && !is_lustre && check.is_used(ino) {
            let what = format_args!("value of {count} attributes, says {stored}");
            all.found.add(Problem::Xattr, Object::inode(ino), what);
        }
    }
}

/// The rest of inline data, behind what `i_block` holds; `None` where there is none.
fn inline_rest(inode: &Inode<Vec<u8>>) -> Option<u64> {
    let region = XattrRegion::in_inode(inode.xattr_bytes()?).ok()??;
    match region.find(NameIndex::SYSTEM, b"data")?.value {
        XattrValue::Bytes(bytes) => Some(bytes.len() as u64),
        XattrValue::Inode { .. } => None,
    }
}

/// Whether an inode with inline data has what that takes.
pub(super) fn has_inline_data(inode: &Inode<Vec<u8>>) -> bool {
    inline_rest(inode).is_some()
}

/// The size of inline data.
pub(super) fn inline_size(inode: &Inode<Vec<u8>>) -> Option<u64> {
    inline_rest(inode).map(|rest| INLINE_MIN + rest)
}

/// The bytes of an inline directory behind `i_block`.
pub(crate) fn inline_bytes(inode: &Inode<Vec<u8>>) -> Vec<u8> {
    let region = inode.xattr_bytes().map(XattrRegion::in_inode);
    let Some(Ok(Some(region))) = region else {
        return Vec::new();
    };
    match region.find(NameIndex::SYSTEM, b"data").map(|x| x.value) {
        Some(XattrValue::Bytes(bytes)) => bytes.to_vec(),
        _ => Vec::new(),
    }
}
