//! Quota files, with what the root directory and lost+found take.
//!
//! The files are written as e2fsprogs' quota library does it: the tree's blocks follow each other
//! as they are made, and the root of the tree gets its place last where blocks are as small as the
//! file's own.

use std::collections::BTreeMap;

use finefs_ext_disk::features::RoCompat;
use finefs_ext_disk::inode::{FileKind, InodeFlags};
use finefs_ext_disk::quota::{
    BLOCK_SIZE, BlockHead, DEPTH, ENTRIES, QuotaEntry, QuotaInfo, QuotaKind, ROOT, entry_offset,
    reference_offset,
};
use finefs_ext_disk::units::Ino;

use super::build::Build;
use super::error::Result;
use super::maps;
use super::options::Options;

/// A week, of space and of inodes.
const GRACE_SECONDS: u32 = 604_800;
/// Blocks of the file in the order in which the library first writes them.
const ORDER: [usize; 6] = [0, 2, 3, 4, 5, 1];

impl Build {
    /// Makes the quota files that are asked for.
    pub fn quotas(&mut self, options: &Options) -> Result<()> {
        let ro_compat = self.shape.features.ro_compat;
        if !ro_compat.contains(RoCompat::QUOTA) {
            return Ok(());
        }
        let has_projects = ro_compat.contains(RoCompat::PROJECT);
        let is_made = |kind: &QuotaKind| match (&options.quota_kinds, kind) {
            (Some(kinds), kind) => kinds.contains(kind),
            (None, QuotaKind::Project) => has_projects,
            (None, _) => true,
        };
        // All see what was there before them.
        let kinds: Vec<QuotaKind> = QuotaKind::ALL.into_iter().filter(is_made).collect();
        let usages: Vec<_> = kinds.iter().map(|kind| self.usage(*kind)).collect();
        for (kind, usage) in kinds.into_iter().zip(usages) {
            let ino = match kind {
                QuotaKind::User => Ino::USER_QUOTA.0,
                QuotaKind::Group => Ino::GROUP_QUOTA.0,
                QuotaKind::Project => self.take_inode("the project quota's inode")?,
            };
            self.quota_file(kind, ino, &quota_file(kind, &usage))?;
            let sb = &mut self.shape.sb;
            match kind {
                QuotaKind::User => sb.set_usr_quota_inum(ino),
                QuotaKind::Group => sb.set_grp_quota_inum(ino),
                QuotaKind::Project => sb.set_prj_quota_inum(ino),
            }
        }
        Ok(())
    }

    /// What ids have: the files that users see.
    fn usage(&self, kind: QuotaKind) -> BTreeMap<u32, QuotaEntry> {
        let mut usage = BTreeMap::new();
        for ino in &self.directories {
            let inode = &self.inodes[ino];
            let id = match kind {
                QuotaKind::User => inode.uid(),
                QuotaKind::Group => inode.gid(),
                QuotaKind::Project => inode.project().unwrap_or(0),
            };
            let entry = usage.entry(id).or_insert(QuotaEntry {
                id,
                ..QuotaEntry::default()
            });
            entry.inodes += 1;
            entry.space_bytes += inode.blocks_512(self.rules()) * 512;
        }
        usage
    }

    fn quota_file(&mut self, kind: QuotaKind, ino: u32, file: &[u8]) -> Result<()> {
        let geo = &self.shape.geo;
        let block_size = geo.block_size as usize;
        let is_scattered = block_size == BLOCK_SIZE && geo.cluster_ratio == 1;
        let what = match kind {
            QuotaKind::User => "the user quota",
            QuotaKind::Group => "the group quota",
            QuotaKind::Project => "the project quota",
        };
        let blocks = file.len().div_ceil(block_size);
        let mut map = self.allocate(ino, blocks as u64, self.goal(ino), what)?;
        if is_scattered && let Some(other) = maps::reordered(&map, &ORDER, self.has_extents())? {
            map = other;
        }
        let mut inode = self.inode(FileKind::Regular.mode_bits() | 0o600, 1);
        inode.set_flags(InodeFlags::IMMUTABLE);
        self.put_file(ino, inode, &map)?;
        self.set_size(ino, file.len() as u64)?;
        for (place, bytes) in map.data_blocks().zip(file.chunks(block_size)) {
            let mut block = bytes.to_vec();
            block.resize(block_size, 0);
            self.pieces.put_block(place, block);
        }
        Ok(())
    }
}

/// A file with these entries, of which there are no more than one block has.
fn quota_file(kind: QuotaKind, entries: &BTreeMap<u32, QuotaEntry>) -> Vec<u8> {
    debug_assert!(entries.len() <= ENTRIES, "one block of entries is filled");
    let mut blocks = vec![vec![0; BLOCK_SIZE]; ROOT as usize + 1];
    let mut leaf = None;
    for (index, entry) in entries.values().enumerate() {
        let mut number = ROOT as usize;
        for level in 0..DEPTH {
            let at = reference_offset(entry.id, level);
            let reference = &blocks[number][at..at + 4];
            let known =
                u32::from_le_bytes([reference[0], reference[1], reference[2], reference[3]]);
            let below = match known {
                0 => match leaf.filter(|_| level + 1 == DEPTH) {
                    Some(leaf) => leaf,
                    None => {
                        blocks.push(vec![0; BLOCK_SIZE]);
                        blocks.len() - 1
                    }
                },
                known => known as usize,
            };
            blocks[number][at..at + 4].copy_from_slice(&(below as u32).to_le_bytes());
            number = below;
        }
        leaf = Some(number);
        entry.write(&mut blocks[number][entry_offset(index)..]);
        let head = BlockHead {
            entries: index as u16 + 1,
            ..BlockHead::default()
        };
        head.write(&mut blocks[number]);
    }
    let info = QuotaInfo {
        space_grace: GRACE_SECONDS,
        inode_grace: GRACE_SECONDS,
        blocks: blocks.len() as u32,
        free_entry: leaf.unwrap_or(0) as u32,
        ..QuotaInfo::default()
    };
    info.write(&mut blocks[0], kind);
    blocks.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_ext_disk::quota;

    #[test]
    fn what_is_written_is_read() {
        let entry = |id: u32| QuotaEntry {
            id,
            inodes: 1,
            space_bytes: 4096,
            ..QuotaEntry::default()
        };
        let ids = [0, 255, 1000, 0xffff_fffe];
        let entries: BTreeMap<u32, QuotaEntry> = ids.map(|id| (id, entry(id))).into();
        let file = quota_file(QuotaKind::Group, &entries);
        let info = QuotaInfo::parse(&file, QuotaKind::Group).unwrap();
        assert_eq!(info.blocks as usize, file.len() / BLOCK_SIZE);
        let found = quota::entries(info.blocks, |number| {
            let at = number as usize * BLOCK_SIZE;
            Ok::<_, ()>(file[at..at + BLOCK_SIZE].to_vec())
        });
        let found: Vec<QuotaEntry> = found.unwrap().into_iter().map(|(entry, _)| entry).collect();
        assert_eq!(found, entries.into_values().collect::<Vec<_>>());
    }
}
