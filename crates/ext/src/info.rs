//! What an image is: gathered without writing, also of images that cannot be mounted.
//!
//! [`ImageInfo`] prints as text like `dumpe2fs -h` does, and is serialised for scripts (field names
//! are part of the command line's interface).

mod journal_device;
mod policy;
mod text;

use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_buffers::{BufferCache, Overlay};
use finefs_ext_disk::GroupNo;
use finefs_ext_disk::features::{Compat, Incompat};
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::group::{GroupChecksum, GroupDesc, GroupFlags};
use finefs_ext_disk::inode::InodeRules;
use finefs_ext_disk::superblock::{ErrorPolicy, State, SuperFlags, Superblock, until_nul};
use finefs_namespace::Ino;
pub use journal_device::JournalDeviceInfo;
pub use policy::PolicyInfo;
use serde::Serialize;

use crate::ExtOptions;
use crate::error::{MountError, MountErrorKind, detail};
use crate::features::Gate;
use crate::found;
use crate::group::GroupTable;
use crate::journal::{Journal, Log};
use crate::mount;
use crate::orphans;
use crate::state;
use crate::uuid::shown as uuid;

/// What an image is. Counts are as the image has them, a journal's log not replayed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ImageInfo {
    /// The image.
    pub image: String,
    /// Its size in bytes.
    pub image_bytes: u64,
    /// What finefs can do with it: "read-write", "read-only" or "none".
    pub access: &'static str,
    /// Why not more.
    pub access_reason: Option<String>,
    /// The label.
    pub volume_name: String,
    /// Where it was mounted last.
    pub last_mounted: String,
    /// The UUID.
    pub uuid: String,
    /// The revision.
    pub revision: u32,
    /// The features by name.
    pub features: Vec<String>,
    /// The flags by name.
    pub flags: Vec<&'static str>,
    /// Unmounted cleanly.
    pub is_clean: bool,
    /// Errors were found in it.
    pub has_errors: bool,
    /// What the kernel does when it finds an error.
    pub error_policy: &'static str,
    /// Number of errors seen.
    pub error_count: u32,
    /// Number of inodes.
    pub inodes: u32,
    /// Number of free inodes.
    pub inodes_free: u32,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of free blocks.
    pub blocks_free: u64,
    /// Blocks kept for the superuser.
    pub blocks_reserved: u64,
    /// The first block that groups are counted from.
    pub first_block: u32,
    /// Size of a block in bytes.
    pub block_size_bytes: Option<u32>,
    /// Size of a cluster in bytes, with bigalloc.
    pub cluster_size_bytes: Option<u32>,
    /// Size of the file system in bytes.
    pub size_bytes: Option<u64>,
    /// Blocks of a group.
    pub blocks_per_group: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Groups of a flex group.
    pub groups_per_flex: Option<u32>,
    /// Size of a group descriptor in bytes.
    pub descriptor_size_bytes: u16,
    /// Descriptor blocks kept for growth.
    pub reserved_gdt_blocks: u16,
    /// Size of an inode in bytes.
    pub inode_size_bytes: u16,
    /// Bytes of further fields that new inodes have.
    pub extra_isize_wanted: u16,
    /// The first inode that is not reserved.
    pub first_inode: u32,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// When it was mounted last; 0 for never.
    pub mounted: u64,
    /// When it was written last.
    pub written: u64,
    /// When it was checked last.
    pub checked: u64,
    /// Mounts since then.
    pub mount_count: u16,
    /// Mounts until the next check; negative for any number.
    pub mount_count_max: i16,
    /// KiB written over its life.
    pub kib_written: u64,
    /// The hash of new directory indexes.
    pub directory_hash: &'static str,
    /// The first orphan; 0 for none.
    pub first_orphan: u32,
    /// The journal.
    pub journal: Option<JournalInfo>,
    /// The block groups.
    pub groups: Vec<GroupInfo>,
    /// What is wrong, one line each.
    pub problems: Vec<String>,
}

/// What a journal is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JournalInfo {
    /// Its inode; 0 when it lies on another device.
    pub inode: u32,
    /// It lies on another device.
    pub is_external: bool,
    /// Its log holds transactions that must be replayed.
    pub needs_replay: bool,
    /// The number of whole transactions to replay.
    pub transactions: u32,
    /// Blocks of the journal.
    pub blocks: u32,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Blocks of the fast commit area.
    pub fast_commit_blocks: u32,
    /// The first transaction expected in the log.
    pub sequence: u32,
    /// The block where the log starts; 0 when it is empty.
    pub start: u32,
    /// The error that it was stopped with; 0 for none.
    pub error: i32,
    /// Its features by name.
    pub features: Vec<String>,
    /// What is wrong with it.
    pub problem: Option<String>,
}

/// What a block group is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GroupInfo {
    /// Its number.
    pub number: u32,
    /// Its first block.
    pub first_block: u64,
    /// Its last block.
    pub last_block: u64,
    /// The block bitmap.
    pub block_bitmap: u64,
    /// The inode bitmap.
    pub inode_bitmap: u64,
    /// The first block of the inode table.
    pub inode_table: u64,
    /// Free blocks (clusters, with bigalloc).
    pub blocks_free: u32,
    /// Free inodes.
    pub inodes_free: u32,
    /// Directories.
    pub directories: u32,
    /// Inodes never used.
    pub inodes_unused: u32,
    /// Flags by name.
    pub flags: Vec<&'static str>,
    /// What is wrong with the descriptor.
    pub problem: Option<String>,
}

impl ImageInfo {
    /// Looks at an image. Only an image without a superblock gives an error; whatever else is wrong
    /// is told in the information.
    pub fn gather(device: Arc<dyn BlockDevice>) -> Result<ImageInfo, MountError> {
        ImageInfo::gather_with(device, None)
    }

    /// The same; the image's journal lies on `journal`, where that is given.
    pub fn gather_with(
        device: Arc<dyn BlockDevice>,
        journal: Option<Arc<dyn BlockDevice>>,
    ) -> Result<ImageInfo, MountError> {
        let wrap = |kind| MountError {
            device: device.describe(),
            kind,
        };
        let superblock = found::parse_superblock(&*device, &Overlay::default()).map_err(wrap)?;
        let mut info = of_superblock(&superblock);
        info.image = device.describe();
        info.image_bytes = device.len_bytes();
        let gate = Gate::of(
            superblock.compat(),
            superblock.incompat(),
            superblock.ro_compat(),
        );
        (info.access, info.access_reason) = match gate {
            Gate { refused, .. } if !refused.is_empty() => (
                "none",
                Some(format!("not supported: {}", refused.join(" "))),
            ),
            Gate { read_only, .. } if !read_only.is_empty() => (
                "read-only",
                Some(format!("not writable yet: {}", read_only.join(" "))),
            ),
            _ => ("read-write", None),
        };
        match found::read_superblock(&*device, &Overlay::default()) {
            Ok(found) => {
                if let Some(counters) = &found.counters {
                    info.problems.push(format!("superblock {counters}"));
                    info.limit("a count in the superblock cannot be".to_owned());
                }
                if let Some(reason) = mount::unwritable(&found) {
                    info.limit(reason.to_owned());
                }
                info.look_inside(&device, journal, &superblock, &found.geometry);
            }
            Err(kind) => info.refuse(&device, &superblock, kind),
        }
        Ok(info)
    }

    /// Notes why the image cannot be mounted, and what can be seen all the same.
    fn refuse(
        &mut self,
        device: &Arc<dyn BlockDevice>,
        superblock: &Superblock,
        kind: MountErrorKind,
    ) {
        let is_about_features = matches!(kind, MountErrorKind::Incompatible(_));
        let line = MountError {
            device: device.describe(),
            kind,
        }
        .to_string();
        self.access = "none";
        if is_about_features {
            if let Ok(geometry) = superblock.validate()
                && geometry.size_bytes() <= device.len_bytes()
            {
                self.groups(device, superblock, &geometry);
            }
        } else {
            self.access_reason = Some("damaged, truncated or not a file system".to_owned());
            self.problems.push(line);
        }
    }

    fn look_inside(
        &mut self,
        device: &Arc<dyn BlockDevice>,
        external: Option<Arc<dyn BlockDevice>>,
        superblock: &Superblock,
        geometry: &Geometry,
    ) {
        self.groups(device, superblock, geometry);
        if let Some(number) = self
            .groups
            .iter()
            .find(|group| group.problem.is_some())
            .map(|group| group.number)
        {
            self.limit(format!("the descriptor of group {number} is damaged"));
        }
        if superblock.compat().contains(Compat::HAS_JOURNAL) {
            let journal = journal(device, external.as_ref(), superblock, geometry);
            if journal.is_external && external.is_none() {
                self.limit("the journal lies on another device".to_owned());
            } else if journal.problem.is_some() {
                self.limit("the journal is damaged".to_owned());
            }
            self.journal = Some(journal);
        }
        self.try_mount(device, external, superblock);
    }

    /// Looks at what else a mount looks at.
    fn try_mount(
        &mut self,
        device: &Arc<dyn BlockDevice>,
        journal: Option<Arc<dyn BlockDevice>>,
        superblock: &Superblock,
    ) {
        let options = ExtOptions {
            is_read_only: true,
            journal,
            ..ExtOptions::default()
        };
        let state = match mount::mount(device.clone(), &options, mount::Protection::Own) {
            Ok(mounted) => mounted.state,
            Err(error) => return self.refuse(device, superblock, error.kind),
        };
        if let Some(damage) = state.groups.damage() {
            self.limit(damage.to_owned());
        }
        if let Err(error) = orphans::check_file(&state) {
            self.problems.push(detail(&error));
            self.limit("the orphan file is damaged".to_owned());
        }
    }

    /// Notes that no more than reading is possible.
    fn limit(&mut self, reason: String) {
        if self.access == "read-write" {
            self.access = "read-only";
            self.access_reason = Some(reason);
        }
    }

    fn groups(
        &mut self,
        device: &Arc<dyn BlockDevice>,
        superblock: &Superblock,
        geometry: &Geometry,
    ) {
        let buffers = small_cache(device, geometry);
        let checksum = GroupChecksum::of(superblock);
        for number in 0..geometry.groups_count {
            self.groups
                .push(group(&buffers, geometry, &checksum, GroupNo(number)));
        }
    }
}

fn small_cache(device: &Arc<dyn BlockDevice>, geometry: &Geometry) -> BufferCache {
    BufferCache::with(
        device.clone(),
        geometry.block_size,
        Overlay::default(),
        1 << 20,
    )
}

fn of_superblock(superblock: &Superblock) -> ImageInfo {
    let text = |raw: &[u8]| String::from_utf8_lossy(until_nul(raw)).into_owned();
    let block_size_bytes = superblock.block_size();
    let has_clusters = superblock
        .ro_compat()
        .contains(finefs_ext_disk::features::RoCompat::BIGALLOC);
    ImageInfo {
        volume_name: text(&superblock.volume_name_raw()),
        last_mounted: text(&superblock.last_mounted_raw()),
        uuid: uuid(&superblock.uuid()),
        revision: superblock.rev_level(),
        features: superblock.feature_names(),
        flags: flags(superblock.flags()),
        is_clean: superblock.state().contains(State::VALID)
            && !superblock.incompat().contains(Incompat::NEEDS_RECOVERY),
        has_errors: superblock.state().contains(State::ERROR),
        error_policy: match superblock.error_policy() {
            ErrorPolicy::Continue => "continue",
            ErrorPolicy::ReadOnly => "remount read-only",
            ErrorPolicy::Panic => "panic",
            ErrorPolicy::Unknown(_) => "unknown",
        },
        error_count: superblock.error_count(),
        inodes: superblock.inodes_count(),
        inodes_free: superblock.free_inodes_count(),
        blocks: superblock.blocks_count(),
        blocks_free: superblock.free_blocks_count(),
        blocks_reserved: superblock.reserved_blocks_count(),
        first_block: superblock.first_data_block(),
        block_size_bytes,
        cluster_size_bytes: has_clusters
            .then(|| 1024_u32.checked_shl(superblock.log_cluster_size()))
            .flatten(),
        size_bytes: block_size_bytes
            .and_then(|size| superblock.blocks_count().checked_mul(u64::from(size))),
        blocks_per_group: superblock.blocks_per_group(),
        inodes_per_group: superblock.inodes_per_group(),
        groups_per_flex: superblock
            .incompat()
            .contains(Incompat::FLEX_BG)
            .then(|| 1_u32.checked_shl(u32::from(superblock.log_groups_per_flex())))
            .flatten(),
        descriptor_size_bytes: superblock.desc_size(),
        reserved_gdt_blocks: superblock.reserved_gdt_blocks(),
        inode_size_bytes: superblock.inode_size(),
        extra_isize_wanted: superblock.want_extra_isize(),
        first_inode: superblock.first_ino().0,
        created: superblock.mkfs_time(),
        mounted: superblock.mount_time(),
        written: superblock.write_time(),
        checked: superblock.last_check(),
        mount_count: superblock.mount_count(),
        mount_count_max: superblock.max_mount_count(),
        kib_written: superblock.kbytes_written(),
        directory_hash: match superblock.def_hash_version() {
            0 => "legacy",
            1 => "half_md4",
            2 => "tea",
            6 => "siphash",
            _ => "unknown",
        },
        first_orphan: superblock.last_orphan(),
        ..ImageInfo::default()
    }
}

fn flags(flags: SuperFlags) -> Vec<&'static str> {
    [
        (SuperFlags::SIGNED_HASH, "signed_directory_hash"),
        (SuperFlags::UNSIGNED_HASH, "unsigned_directory_hash"),
        (SuperFlags::TEST_FILESYS, "test_filesystem"),
    ]
    .into_iter()
    .filter_map(|(flag, name)| flags.contains(flag).then_some(name))
    .collect()
}

fn group(
    buffers: &BufferCache,
    geometry: &Geometry,
    checksum: &GroupChecksum,
    number: GroupNo,
) -> GroupInfo {
    let first_block = geometry.group_first_block(number).0;
    let mut info = GroupInfo {
        number: number.0,
        first_block,
        last_block: first_block + u64::from(geometry.group_blocks(number).max(1)) - 1,
        ..GroupInfo::default()
    };
    let (index, offset) = geometry.desc_position(number);
    let bytes = match buffers.read(geometry.desc_block(index).0) {
        Ok(bytes) => bytes,
        Err(error) => {
            info.problem = Some(error.to_string());
            return info;
        }
    };
    let end = offset as usize + usize::from(geometry.desc_size);
    let desc = match GroupDesc::new(bytes.get(offset as usize..end).unwrap_or_default()) {
        Ok(desc) => desc,
        Err(error) => {
            info.problem = Some(error.to_string());
            return info;
        }
    };
    info.block_bitmap = desc.block_bitmap().0;
    info.inode_bitmap = desc.inode_bitmap().0;
    info.inode_table = desc.inode_table().0;
    info.blocks_free = desc.free_blocks();
    info.inodes_free = desc.free_inodes();
    info.directories = desc.used_dirs();
    if checksum.is_present() {
        info.inodes_unused = desc.itable_unused();
        info.flags = [
            (GroupFlags::INODE_UNINIT, "INODE_UNINIT"),
            (GroupFlags::BLOCK_UNINIT, "BLOCK_UNINIT"),
            (GroupFlags::ITABLE_ZEROED, "ITABLE_ZEROED"),
        ]
        .into_iter()
        .filter_map(|(flag, name)| desc.flags().contains(flag).then_some(name))
        .collect();
    }
    info.problem = desc
        .verify_checksum(checksum, number)
        .and_then(|()| desc.validate(geometry, number))
        .err()
        .map(|error| error.to_string());
    info
}

fn journal(
    device: &Arc<dyn BlockDevice>,
    external: Option<&Arc<dyn BlockDevice>>,
    superblock: &Superblock,
    geometry: &Geometry,
) -> JournalInfo {
    let mut info = JournalInfo {
        inode: superblock.journal_inum(),
        is_external: superblock.journal_inum() == 0,
        needs_replay: superblock.incompat().contains(Incompat::NEEDS_RECOVERY),
        ..JournalInfo::default()
    };
    if info.is_external && external.is_none() {
        return info;
    }
    let buffers = small_cache(device, geometry);
    let rules = InodeRules::of(superblock);
    let ino = Ino(u64::from(superblock.journal_inum()));
    if let Some(external) = external {
        info.size_bytes = external.len_bytes();
    } else if let Ok(inode) = state::read_inode(&buffers, geometry, ino) {
        info.size_bytes = inode.size(&rules);
    }
    match Journal::open(device, external, &buffers, superblock, geometry) {
        Ok(journal) => {
            let found = &journal.superblock;
            info.blocks = found.max_len();
            info.fast_commit_blocks = found.fast_commit_blocks();
            info.sequence = found.sequence();
            info.start = found.start();
            info.error = found.errno();
            info.features = found.feature_names();
            if info.needs_replay {
                match Log::scan(&journal) {
                    Ok(log) => {
                        info.transactions = log.transactions;
                        info.problem = log.damage;
                    }
                    Err(error) => info.problem = Some(detail(&error)),
                }
            }
            let writable = GroupTable::load(superblock, geometry, &buffers)
                .and_then(|groups| journal.check_writable(&groups, geometry));
            if let Err(error) = writable {
                info.problem.get_or_insert_with(|| detail(&error));
            }
        }
        Err(error) => info.problem = Some(detail(&error)),
    }
    info
}
