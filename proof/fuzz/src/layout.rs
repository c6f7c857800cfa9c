//! What each block of a good image is, and setting checksums right after blocks have changed.
//!
//! The places are the good image's. So a change of what points somewhere meets blocks whose
//! checksums are those of their first owner, as damage on a real disk would; all else gets through
//! to what reads it.

use std::collections::BTreeMap;

use finefs_ext_disk::checksum::{FsSeed, crc32c};
use finefs_ext_disk::dirent::{DirBlock, DirRules};
use finefs_ext_disk::extent::ExtentNode;
use finefs_ext_disk::features::Compat;
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::group::{GroupChecksum, GroupDesc};
use finefs_ext_disk::htree::{DxBlock, DxPlace};
use finefs_ext_disk::indirect;
use finefs_ext_disk::inode::{FileKind, Inode, InodeFlags, InodeRules};
use finefs_ext_disk::jbd2::commit::CommitBlock;
use finefs_ext_disk::jbd2::descriptor::{DescriptorBlock, TagFlags, data_checksum};
use finefs_ext_disk::jbd2::{BlockHeader, BlockType, Format, JournalSuperblock};
use finefs_ext_disk::orphan_file::OrphanBlock;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use finefs_ext_disk::{GroupNo, Ino, PhysBlock, xattr};

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Directory(Ino, bool),
    Index(Ino, DxPlace),
    ExtentNode(Ino),
    Pointers,
    Attributes,
    OrphanFile(Ino),
    Data,
}

/// What is where in a good image.
pub struct Layout {
    geometry: Geometry,
    roles: BTreeMap<u64, Role>,
    /// The journal's blocks, in their order.
    journal: Vec<u64>,
    /// Blocks worth changing: metadata, and the used part of the journal.
    pub metadata: Vec<u64>,
    /// Of these, what a replay reads.
    pub log: Vec<u64>,
}

/// The bytes of a block.
fn at(image: &[u8], block: u64, size: usize) -> Option<&[u8]> {
    let start = usize::try_from(block).ok()?.checked_mul(size)?;
    image.get(start..start.checked_add(size)?)
}

fn at_mut(image: &mut [u8], block: u64, size: usize) -> Option<&mut [u8]> {
    let start = usize::try_from(block).ok()?.checked_mul(size)?;
    image.get_mut(start..start.checked_add(size)?)
}

fn superblock_of(image: &[u8]) -> Option<Superblock> {
    Superblock::parse(image.get(SUPERBLOCK_OFFSET as usize..)?).ok()
}

impl Layout {
    /// Looks at a good image; `None` when it is none.
    pub fn of(image: &[u8]) -> Option<Layout> {
        let superblock = superblock_of(image)?;
        let geometry = superblock.validate().ok()?;
        let rules = InodeRules::of(&superblock);
        let mut layout = Layout {
            roles: BTreeMap::new(),
            journal: Vec::new(),
            metadata: Vec::new(),
            log: Vec::new(),
            geometry,
        };
        let mut metadata = vec![layout.geometry.super_block().0];
        for index in 0..layout.geometry.desc_blocks {
            metadata.push(layout.geometry.desc_block(index).0);
        }
        for group in (0..layout.geometry.groups_count).map(GroupNo) {
            let desc = GroupDesc::new(image.get(layout.desc_range(group))?).ok()?;
            metadata.extend([desc.block_bitmap().0, desc.inode_bitmap().0]);
            let table = desc.inode_table().0;
            metadata.extend(table..table + u64::from(layout.geometry.inode_table_blocks));
        }
        for number in 1..=layout.geometry.inodes_count {
            let Some(range) = layout.inode_range(image, Ino(number)) else {
                continue;
            };
            let Ok(inode) = Inode::new(image.get(range)?) else {
                continue;
            };
            if !inode.is_blank() && inode.links_count() > 0 {
                layout.inode(image, &superblock, &rules, Ino(number), &inode);
            }
        }
        metadata.extend(
            layout
                .roles
                .iter()
                .filter(|(_, role)| **role != Role::Data)
                .map(|(b, _)| b),
        );
        let size = layout.block_size();
        let is_used =
            |block: &u64| at(image, *block, size).is_some_and(|b| b.iter().any(|b| *b != 0));
        let journal = layout.journal.iter().copied().filter(is_used);
        layout.log = journal.collect();
        metadata.extend(&layout.log);
        metadata.retain(is_used);
        metadata.sort_unstable();
        metadata.dedup();
        layout.log.insert(0, layout.geometry.super_block().0);
        layout.metadata = metadata;
        Some(layout)
    }

    /// The size of a block in bytes.
    pub fn block_size(&self) -> usize {
        self.geometry.block_size as usize
    }

    fn desc_range(&self, group: GroupNo) -> std::ops::Range<usize> {
        let (index, offset) = self.geometry.desc_position(group);
        let block = self.geometry.desc_block(index).0 as usize;
        let start = block * self.block_size() + offset as usize;
        start..start + usize::from(self.geometry.desc_size)
    }

    /// Where an inode lies, as the image's descriptors have it.
    fn inode_range(&self, image: &[u8], ino: Ino) -> Option<std::ops::Range<usize>> {
        let place = self.geometry.locate_inode(ino)?;
        let desc = GroupDesc::new(image.get(self.desc_range(place.group))?).ok()?;
        let block = desc
            .inode_table()
            .0
            .checked_add(u64::from(place.table_block))?;
        let start = usize::try_from(block)
            .ok()?
            .checked_mul(self.block_size())?;
        let start = start.checked_add(place.offset as usize)?;
        Some(start..start.checked_add(usize::from(self.geometry.inode_size))?)
    }

    /// Notes the blocks of an inode.
    fn inode(
        &mut self,
        image: &[u8],
        superblock: &Superblock,
        rules: &InodeRules,
        ino: Ino,
        inode: &Inode<&[u8]>,
    ) {
        let acl = inode.file_acl(rules).0;
        if acl != 0 {
            self.roles.insert(acl, Role::Attributes);
        }
        let has_map = matches!(inode.kind(), Some(FileKind::Regular | FileKind::Directory))
            || inode.kind() == Some(FileKind::Symlink) && !inode.is_fast_symlink(rules);
        if !has_map || inode.flags().contains(InodeFlags::INLINE_DATA) {
            return;
        }
        let mut data = Vec::new();
        if inode.flags().contains(InodeFlags::EXTENTS) {
            self.extents(image, ino, inode.block_area(), &mut data);
        } else {
            for (word, block) in (0_u32..).zip(inode.block_words()) {
                self.pointers(image, u64::from(block), word.saturating_sub(11), &mut data);
            }
        }
        let is_indexed = inode.flags().contains(InodeFlags::INDEX);
        for (index, block) in data.iter().enumerate() {
            let bytes = at(image, *block, self.block_size()).unwrap_or_default();
            let role = match inode.kind() {
                Some(FileKind::Directory) if is_indexed && index == 0 => {
                    Role::Index(ino, DxPlace::Root)
                }
                Some(FileKind::Directory) => {
                    let is_node = is_indexed && bytes[..4] == [0; 4] && bytes[6..8] == [0; 2];
                    match is_node {
                        true => Role::Index(ino, DxPlace::Node),
                        false => Role::Directory(ino, is_indexed),
                    }
                }
                _ if superblock.compat().contains(Compat::ORPHAN_FILE)
                    && superblock.orphan_file_inum() == ino.0 =>
                {
                    Role::OrphanFile(ino)
                }
                Some(FileKind::Symlink) => Role::Pointers,
                _ => Role::Data,
            };
            self.roles.insert(*block, role);
        }
        if superblock.compat().contains(Compat::HAS_JOURNAL) && superblock.journal_inum() == ino.0 {
            self.journal = data;
        }
    }

    fn extents(&mut self, image: &[u8], ino: Ino, bytes: &[u8], data: &mut Vec<u64>) {
        let Ok(node) = ExtentNode::new(bytes) else {
            return;
        };
        for extent in node.extents() {
            data.extend(extent.physical.0..extent.physical.0 + u64::from(extent.len));
        }
        for index in node.indexes() {
            self.roles.insert(index.block.0, Role::ExtentNode(ino));
            if let Some(child) = at(image, index.block.0, self.block_size()) {
                self.extents(image, ino, child, data);
            }
        }
    }

    fn pointers(&mut self, image: &[u8], block: u64, level: u32, data: &mut Vec<u64>) {
        if block == 0 {
        } else if level == 0 {
            data.push(block);
        } else if let Some(bytes) = at(image, block, self.block_size()) {
            self.roles.insert(block, Role::Pointers);
            for index in 0..indirect::pointers_per_block(self.geometry.block_size) {
                self.pointers(image, indirect::pointer(bytes, index).0, level - 1, data);
            }
        }
    }

    /// Sets all checksums right, for blocks at their old places.
    pub fn mend(&self, image: &mut [u8]) {
        let Some(mut superblock) = superblock_of(image) else {
            return;
        };
        superblock.update_checksum();
        image[SUPERBLOCK_OFFSET as usize..][..SUPERBLOCK_SIZE]
            .copy_from_slice(superblock.as_bytes());
        self.mend_journal(image);
        let kind = GroupChecksum::of(&superblock);
        if superblock.has_metadata_csum() {
            let rules = InodeRules::of(&superblock);
            for number in 1..=self.geometry.inodes_count {
                if let Some(range) = self.inode_range(image, Ino(number))
                    && let Some(bytes) = image.get_mut(range)
                    && let Ok(mut inode) = Inode::new(bytes)
                    && !inode.is_blank()
                {
                    inode.update_checksum(&rules, Ino(number));
                }
            }
            for (block, role) in &self.roles {
                self.mend_block(image, &rules, superblock.seed(), *block, *role);
            }
        }
        for group in (0..self.geometry.groups_count).map(GroupNo) {
            self.mend_group(image, &kind, group);
        }
    }

    fn mend_group(&self, image: &mut [u8], kind: &GroupChecksum, group: GroupNo) {
        let range = self.desc_range(group);
        let Some(bytes) = image.get(range.clone()).map(<[u8]>::to_vec) else {
            return;
        };
        let Ok(mut desc) = GroupDesc::new(bytes) else {
            return;
        };
        let size = self.block_size();
        if let Some(bitmap) = at(image, desc.block_bitmap().0, size) {
            let _ = desc.update_block_bitmap(kind, &self.geometry, bitmap);
        }
        if let Some(bitmap) = at(image, desc.inode_bitmap().0, size) {
            let _ = desc.update_inode_bitmap(kind, &self.geometry, bitmap);
        }
        desc.update_checksum(kind, group);
        image[range].copy_from_slice(desc.as_bytes());
    }

    fn mend_block(&self, image: &mut [u8], rules: &InodeRules, fs: FsSeed, block: u64, role: Role) {
        let owner = match role {
            Role::Directory(ino, _) | Role::Index(ino, _) => ino,
            Role::ExtentNode(ino) | Role::OrphanFile(ino) => ino,
            Role::Attributes => {
                if let Some(bytes) = at_mut(image, block, self.block_size()) {
                    xattr::update_block_checksum(fs, PhysBlock(block), bytes);
                }
                return;
            }
            Role::Pointers | Role::Data => return,
        };
        let inode = self
            .inode_range(image, owner)
            .and_then(|range| image.get(range));
        let seed = inode.and_then(|bytes| Inode::new(bytes).ok()?.seed(rules, owner));
        let (Some(seed), Some(bytes)) = (seed, at_mut(image, block, self.block_size())) else {
            return;
        };
        let dir_rules = DirRules {
            has_filetype: true,
            has_tail: true,
            has_any_names: false,
            has_hashes: false,
        };
        match role {
            Role::Directory(..) => {
                if let Ok(mut block) = DirBlock::new(bytes, dir_rules) {
                    block.update_checksum(seed);
                }
            }
            Role::Index(_, place) => {
                if let Ok(mut block) = DxBlock::new(bytes, place, true) {
                    block.update_checksum(seed);
                }
            }
            Role::ExtentNode(_) => {
                if let Ok(mut node) = ExtentNode::new(bytes) {
                    node.update_checksum(seed);
                }
            }
            Role::OrphanFile(_) => {
                if let Ok(mut orphans) = OrphanBlock::new(bytes) {
                    orphans.update_checksum(seed, PhysBlock(block));
                }
            }
            Role::Attributes | Role::Pointers | Role::Data => {}
        }
    }

    fn mend_journal(&self, image: &mut [u8]) {
        let size = self.block_size();
        let Some(first) = self
            .journal
            .first()
            .and_then(|block| at_mut(image, *block, size))
        else {
            return;
        };
        let Ok(mut superblock) = JournalSuperblock::parse(first) else {
            return;
        };
        superblock.update_checksum();
        first[..superblock.as_bytes().len()].copy_from_slice(superblock.as_bytes());
        let format = superblock.format();
        if !format.has_tail() {
            return;
        }
        for (index, block) in self.journal.iter().enumerate().skip(1) {
            let Some(bytes) = at(image, *block, size) else {
                continue;
            };
            let Some(header) = BlockHeader::parse(bytes) else {
                continue;
            };
            let mut bytes = bytes.to_vec();
            match header.block_type {
                BlockType::Descriptor => {
                    self.mend_tags(image, &format, header.sequence, index, &mut bytes);
                    mend_tail(&format, &mut bytes);
                }
                BlockType::Revoke => mend_tail(&format, &mut bytes),
                BlockType::Commit => {
                    if let Ok(commit) = CommitBlock::parse(&bytes, &format) {
                        let _ = commit.write(&mut bytes, &format);
                    }
                }
                _ => {}
            }
            if let Some(place) = at_mut(image, *block, size) {
                place.copy_from_slice(&bytes);
            }
        }
    }

    /// Sets the checksums of the data blocks that follow the descriptor `bytes` at `index` of the
    /// log.
    fn mend_tags(
        &self,
        image: &[u8],
        format: &Format,
        sequence: u32,
        index: usize,
        bytes: &mut [u8],
    ) {
        let Ok(descriptor) = DescriptorBlock::new(bytes, format) else {
            return;
        };
        let tags: Vec<TagFlags> = descriptor.tags().map(|tag| tag.flags).collect();
        let mut offset = 12;
        for (number, flags) in tags.iter().enumerate() {
            // Around the end of the ring the good images' logs do not go.
            let data = self.journal.get(index + 1 + number);
            let data = data.and_then(|block| at(image, *block, self.block_size()));
            let sum = data.map_or(0, |data| data_checksum(format, sequence, data));
            if format.tag_size() == 16
                && let Some(place) = bytes.get_mut(offset + 12..offset + 16)
            {
                place.copy_from_slice(&sum.to_be_bytes());
            }
            offset += format.tag_size();
            if !flags.contains(TagFlags::SAME_UUID) {
                offset += 16;
            }
        }
    }
}

/// The checksum at the end of descriptor and revoke blocks.
fn mend_tail(format: &Format, bytes: &mut [u8]) {
    let end = bytes.len() - 4;
    bytes[end..].fill(0);
    let sum = crc32c(format.seed.0, bytes);
    bytes[end..].copy_from_slice(&sum.to_be_bytes());
}
