//! Building the index of a directory anew, in the blocks that it has.

use finefs_ext_disk::checksum::InodeSeed;
use finefs_ext_disk::dirent::{DirBlock, EntryType, entry_size};
use finefs_ext_disk::dirhash::{DirHasher, VERSION_TEA};
use finefs_ext_disk::htree::{DxBlock, DxEntry, DxPlace, DxRootInfo};
use finefs_ext_disk::inode::InodeFlags;
use finefs_ext_disk::{Ino, LogicalBlock};

use super::fix::Fix;
use crate::pass::looks_like_index;

/// An entry that is kept.
struct Name {
    hash: u32,
    minor: u32,
    name: Vec<u8>,
    ino: Ino,
    kind: EntryType,
}

/// Rebuilds it; false where the directory cannot be indexed in its blocks.
pub(super) fn rebuild(fix: &Fix<'_>, ino: u32) -> Result<bool, String> {
    let fs = &fix.check.fs;
    let Some((_, inode)) = fix.read_inode(ino)? else {
        return Ok(false);
    };
    let is_strange = InodeFlags::ENCRYPT | InodeFlags::INLINE_DATA;
    let blocks = fix.blocks(ino)?.unwrap_or_default();
    if inode.flags().intersects(is_strange) || blocks.len() < 2 {
        return Ok(false);
    }
    let mut version = fs.sb.def_hash_version();
    if version > VERSION_TEA {
        version = 1;
    }
    let Ok(hasher) = DirHasher::new(version, &fs.sb) else {
        return Ok(false);
    };
    let hasher = hasher.folding(inode.flags().contains(InodeFlags::CASEFOLD));
    let Some((parent, mut names)) = gather(fix, &blocks, &hasher)? else {
        return Ok(false);
    };
    names.sort_by(|a, b| (a.hash, a.minor, &a.name).cmp(&(b.hash, b.minor, &b.name)));
    let size = fs.geo.block_size as usize;
    let has_tail = fs.dir_rules.has_tail;
    let root_limit = usize::from(DxPlace::Root.limit(size, has_tail));
    let node_limit = usize::from(DxPlace::Node.limit(size, has_tail));
    let rest = blocks.len() - 1;
    let nodes = match rest <= root_limit {
        true => 0,
        false => rest.div_ceil(node_limit + 1),
    };
    if nodes > root_limit {
        return Ok(false);
    }
    let leaves = rest - nodes;
    let Some(filled) = distribute(&names, leaves, size - if has_tail { 12 } else { 0 }) else {
        return Ok(false);
    };
    let build = Build {
        fix,
        blocks: &blocks,
        seed: inode.seed(&fs.rules, Ino(ino)),
        size,
        nodes,
    };
    let entries = build.leaves(&names, &filled)?;
    let tops = match nodes {
        0 => entries,
        _ => build.nodes(&entries)?,
    };
    let info = DxRootInfo {
        own: Ino(ino),
        parent: Ino(parent),
        has_filetype: fs.dir_rules.has_filetype,
        hash_version: version,
        levels: u8::from(nodes > 0),
    };
    // A node that is left over could not be reached.
    if nodes > 0 && tops.len() != nodes {
        return Ok(false);
    }
    build.root(info, &tops)?;
    fix.inode(ino, |inode| {
        inode.set_flags(inode.flags() | InodeFlags::INDEX);
    })
}

/// A directory whose blocks are written.
struct Build<'a> {
    fix: &'a Fix<'a>,
    blocks: &'a [u64],
    seed: Option<InodeSeed>,
    /// Bytes of a block.
    size: usize,
    /// Index blocks below the root.
    nodes: usize,
}

impl Build<'_> {
    fn leaves(&self, names: &[Name], filled: &[usize]) -> Result<Vec<DxEntry>, String> {
        let mut entries = Vec::with_capacity(filled.len());
        let mut next = 0;
        for (at, (count, hash)) in filled.iter().zip(hashes(names, filled)).enumerate() {
            let block = 1 + self.nodes + at;
            let rules = self.fix.check.fs.dir_rules;
            let mut leaf = DirBlock::init(vec![0; self.size], rules).map_err(text)?;
            let own = &names[next..next + count];
            for name in own {
                leaf.insert(&name.name, name.ino, name.kind).map_err(text)?;
            }
            if let Some(seed) = self.seed {
                leaf.update_checksum(seed);
            }
            self.fix.write_block(self.blocks[block], leaf.as_bytes())?;
            entries.push(DxEntry {
                hash,
                block: LogicalBlock(block as u64),
            });
            next += count;
        }
        Ok(entries)
    }

    fn nodes(&self, entries: &[DxEntry]) -> Result<Vec<DxEntry>, String> {
        let has_tail = self.fix.check.fs.dir_rules.has_tail;
        let mut tops = Vec::new();
        for (at, part) in entries
            .chunks(entries.len().div_ceil(self.nodes))
            .enumerate()
        {
            let mut node =
                DxBlock::init_node(vec![0; self.size], DxPlace::Node, has_tail, part[0].block)
                    .map_err(text)?;
            node.set_entries(part).map_err(text)?;
            if let Some(seed) = self.seed {
                node.update_checksum(seed);
            }
            self.fix.write_block(self.blocks[1 + at], node.as_bytes())?;
            tops.push(DxEntry {
                hash: part[0].hash,
                block: LogicalBlock(1 + at as u64),
            });
        }
        Ok(tops)
    }

    fn root(&self, info: DxRootInfo, tops: &[DxEntry]) -> Result<(), String> {
        let has_tail = self.fix.check.fs.dir_rules.has_tail;
        let mut root =
            DxBlock::init_root(vec![0; self.size], has_tail, info, tops[0].block).map_err(text)?;
        root.set_entries(tops).map_err(text)?;
        if let Some(seed) = self.seed {
            root.update_checksum(seed);
        }
        self.fix.write_block(self.blocks[0], root.as_bytes())
    }
}

fn text(error: finefs_ext_disk::DiskError) -> String {
    error.to_string()
}

/// The parent and all names of a directory; `None` where a block cannot be read to its end.
fn gather(
    fix: &Fix<'_>,
    blocks: &[u64],
    hasher: &DirHasher,
) -> Result<Option<(u32, Vec<Name>)>, String> {
    let mut names = Vec::new();
    let mut parent = 0;
    for (at, block) in blocks.iter().enumerate() {
        let bytes = fix.read_block(*block)?;
        if at > 0 && looks_like_index(&bytes) {
            continue;
        }
        // The root of an index has no room for the tail of a leaf.
        let mut rules = fix.check.fs.dir_rules;
        let is_root = at == 0 && looks_like_index(&bytes);
        rules.has_tail &= !is_root;
        let Ok(view) = DirBlock::new(&bytes[..], rules) else {
            return Ok(None);
        };
        for entry in view.entries() {
            let Ok(entry) = entry else {
                return Ok(None);
            };
            match entry.name {
                b"." if at == 0 => {}
                b".." if at == 0 => parent = entry.ino.0,
                _ if !entry.is_used() => {}
                name => {
                    let hash = hasher.hash(name);
                    names.push(Name {
                        hash: hash.major,
                        minor: hash.minor,
                        name: name.to_vec(),
                        ino: entry.ino,
                        kind: entry.entry_type,
                    });
                }
            }
        }
    }
    Ok((parent != 0).then_some((parent, names)))
}

/// The hash from which on each leaf has the names, odd where the leaf before has names of it, too
/// (Linux `dx_probe`). From an empty leaf on there are none, so it has one that no name has.
fn hashes(names: &[Name], filled: &[usize]) -> Vec<u32> {
    let (mut next, mut last_hash) = (0, None);
    let hash = |count: &usize| {
        let own = &names[next..next + count];
        next += count;
        match (own, last_hash) {
            ([first, .., last], _) | ([first @ last], _) => {
                let continues = last_hash == Some(first.hash);
                last_hash = Some(last.hash);
                first.hash | u32::from(continues)
            }
            ([], None) => 0,
            // Hashes are even, and none is the highest.
            ([], Some(last)) => last.saturating_add(2) & !1,
        }
    };
    filled.iter().map(hash).collect()
}

/// How many names go to each leaf: evenly, or as many as fit where that does not work out.
fn distribute(names: &[Name], leaves: usize, room: usize) -> Option<Vec<usize>> {
    let total: usize = names.iter().map(|name| entry_size(name.name.len())).sum();
    [total.div_ceil(leaves.max(1)), room]
        .into_iter()
        .find_map(|wanted| {
            let mut counts = vec![0; leaves];
            let (mut at, mut used) = (0, 0);
            for name in names {
                let size = entry_size(name.name.len());
                if used + size > room || (used >= wanted && at + 1 < leaves) {
                    at += 1;
                    used = 0;
                }
                *counts.get_mut(at)? += 1;
                used += size;
            }
            Some(counts)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel does it.
    fn is_found(names: &[Name], filled: &[usize], wanted: usize) -> bool {
        let hashes = hashes(names, filled);
        let hash = names[wanted].hash;
        // The first has no hash of its own.
        let later = hashes.iter().skip(1);
        let mut leaf = later.take_while(|first| **first <= hash).count();
        loop {
            let start: usize = filled[..leaf].iter().sum();
            if (start..start + filled[leaf]).contains(&wanted) {
                return true;
            }
            leaf += 1;
            if hashes.get(leaf) != Some(&(hash | 1)) {
                return false;
            }
        }
    }

    #[test]
    fn every_name_is_found_by_its_hash() {
        for (count, step, leaves) in [(40, 8, 41), (1000, 4, 60), (1000, 1, 60), (3, 2, 9)] {
            let name = |number: u32| Name {
                hash: number * step / 4 * 2 % 0xFFFF_FFFE,
                minor: number,
                name: vec![b'n'; 1 + number as usize % 60],
                ino: Ino(12),
                kind: EntryType(1),
            };
            let names: Vec<Name> = (0..count).map(name).collect();
            let filled = distribute(&names, leaves, 1012).unwrap();
            for wanted in 0..names.len() {
                assert!(
                    is_found(&names, &filled, wanted),
                    "{count} {leaves} {wanted}"
                );
            }
        }
    }
}
