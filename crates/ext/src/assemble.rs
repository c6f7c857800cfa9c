//! From the parts of a mounted file system to its state.

use std::sync::{Arc, OnceLock};

use finefs_block::BlockDevice;
use finefs_buffers::alloc::{Allocator, Layout};
use finefs_buffers::{BufferCache, FileData};
use finefs_ext_disk::dirent::DirRules;
use finefs_ext_disk::features::{Compat, Incompat, RoCompat};
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::inode::InodeRules;
use finefs_ext_disk::superblock::Superblock;

use crate::ExtOptions;
use crate::crypt::Keyring;
use crate::group::GroupTable;
use crate::journal::writer::JournalWriter;
use crate::on_error::OnError;
use crate::state::{
    DirectoryLocks, ExtState, JOURNAL, POSTPONED, Postponed, RESERVED_INODES, SUPERBLOCK,
};
use crate::sync::Mutex;

/// The most blocks that one allocation gives: one extent.
const RUN_MAX_BLOCKS: u64 = 32_767;

/// What was found out about an image, step by step.
pub(crate) struct Parts {
    pub device: Arc<dyn BlockDevice>,
    pub superblock: Superblock,
    pub geometry: Geometry,
    pub buffers: BufferCache,
    pub groups: GroupTable,
    /// Commits go through it.
    pub journal: Option<JournalWriter>,
    pub is_read_only: bool,
}

/// The state that consists of the parts.
pub(crate) fn assemble(parts: Parts, options: &ExtOptions) -> ExtState {
    let Parts {
        device,
        superblock,
        geometry,
        buffers,
        groups,
        journal,
        is_read_only,
    } = parts;
    let layout = layout(&superblock, &geometry);
    let counts = groups.counts(&geometry, &buffers);
    let allocator = match options.bulk_load {
        None => Allocator::new(layout, &counts),
        Some(_) => Allocator::repeatable(layout, &counts, seed_of(&superblock)),
    };
    let has_projects = superblock.ro_compat().contains(RoCompat::PROJECT);
    let has_verity = superblock.ro_compat().contains(RoCompat::VERITY);
    let may_be_encrypted = superblock.incompat().contains(Incompat::ENCRYPT);
    let block_bytes = geometry.block_size as usize;
    let keyring = (may_be_encrypted && !options.keys.is_empty()).then(|| {
        Keyring::new(
            &options.keys,
            options.encryption.clone(),
            superblock.uuid(),
            block_bytes,
        )
    });
    let on_error = options.on_error.unwrap_or_else(|| OnError::of(&superblock));
    // What is only read does not come in, and no more than there is.
    let data_cache_bytes = match is_read_only {
        true => 0,
        false => options.data_cache_bytes.min(geometry.size_bytes()),
    };
    ExtState {
        seed: superblock.has_metadata_csum().then(|| superblock.seed()),
        inode_rules: InodeRules::of(&superblock),
        dir_rules: DirRules::of(&superblock),
        overhead_blocks: overhead_blocks(&superblock, &geometry),
        fs_seed: superblock.seed(),
        has_value_inodes: superblock.incompat().contains(Incompat::EA_INODE),
        directories: DirectoryLocks::new(),
        reserved_inodes: Mutex::new(&RESERVED_INODES, Vec::new()),
        superblock: Mutex::new(&SUPERBLOCK, superblock),
        data: FileData::new(
            device.clone(),
            geometry.block_size,
            geometry.size_bytes(),
            data_cache_bytes,
        ),
        device,
        geometry,
        buffers,
        groups,
        allocator,
        is_journaled: journal.is_some(),
        journal: Mutex::new(&JOURNAL, journal),
        postponed: Mutex::new(&POSTPONED, Postponed::default()),
        on_error,
        is_read_only,
        discards: options.discards,
        bulk_load: options.bulk_load,
        quotas: OnceLock::new(),
        has_projects,
        has_verity,
        keyring,
    }
}

fn layout(superblock: &Superblock, geometry: &Geometry) -> Layout {
    Layout {
        first_data_block: u64::from(geometry.first_data_block),
        blocks: geometry.blocks_count,
        blocks_per_group: geometry.blocks_per_group,
        cluster_bits: geometry.cluster_bits(),
        inodes_per_group: geometry.inodes_per_group,
        inodes_per_block: geometry.block_size / u32::from(geometry.inode_size),
        groups_per_flex: geometry.groups_per_flex,
        reserved_for_root: superblock.reserved_blocks_count(),
        run_max: RUN_MAX_BLOCKS,
    }
}

/// Half of the UUID.
fn seed_of(superblock: &Superblock) -> u64 {
    let uuid = u128::from_le_bytes(superblock.uuid());
    uuid as u64
}

/// The blocks that no file can ever have: those of the file system itself, and the journal.
fn overhead_blocks(superblock: &Superblock, geometry: &Geometry) -> u64 {
    // In clusters it depends on what shares one; mke2fs has counted that.
    let noted = u64::from(superblock.overhead_clusters()) << geometry.cluster_bits();
    if geometry.cluster_ratio > 1 && noted != 0 && noted <= geometry.blocks_count {
        return noted;
    }
    let each = 2 + u64::from(geometry.inode_table_blocks);
    let groups = (0..geometry.groups_count)
        .map(|group| each + u64::from(geometry.group_base_blocks(finefs_ext_disk::GroupNo(group))));
    let has_journal =
        superblock.compat().contains(Compat::HAS_JOURNAL) && superblock.journal_inum() != 0;
    let journal_bytes = match superblock.jnl_blocks() {
        [.., high, low] if has_journal => u64::from(high) << 32 | u64::from(low),
        _ => 0,
    };
    let journal = journal_bytes >> geometry.block_bits;
    (u64::from(geometry.first_data_block) + groups.sum::<u64>() + journal)
        .min(geometry.blocks_count)
}
