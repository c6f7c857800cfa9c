//! The plan of a whole file system: every block that must be written, with its contents.
//!
//! The order of allocation is mke2fs's, so that the same things lie at the same places: fixed
//! metadata, bitmaps and tables, root directory, lost+found, bad blocks, resize inode, journal,
//! multiple mount protection, quota files, orphan file.

use super::bad_blocks;
use super::error::{MkfsError, Result};
use super::identity::Identity;
use super::journal_device::{self, JournalDevice};
use super::maps::{FileMap, Wanted, allocate};
use super::options::Options;
use super::pieces::Pieces;
use super::shape::Shape;
use super::space::Space;
use super::stopping::Stop;
use super::tables::{self, Layout, Tables};
use finefs_ext_disk::checksum::FsSeed;
use finefs_ext_disk::dirent::{DirBlock, DirRules, EntryType};
use finefs_ext_disk::features::{Compat, Incompat, RoCompat};
use finefs_ext_disk::indirect;
use finefs_ext_disk::inode::{FileKind, Inode, InodeFlags, InodeRules};
use finefs_ext_disk::jbd2::JournalSuperblock;
use finefs_ext_disk::mmp::MmpBlock;
use finefs_ext_disk::orphan_file::OrphanBlock;
use finefs_ext_disk::superblock::{State, SuperFlags};
use finefs_ext_disk::time::Timestamp;
use finefs_ext_disk::units::{GroupNo, Ino, PhysBlock};
use std::collections::BTreeMap;

/// lost+found is made as large as this, so that e2fsck need not allocate for it.
const LOST_AND_FOUND_BYTES: u32 = 16 << 10;
/// A regular file of this size or more takes `large_file`.
const LARGE_FILE_BYTES: u64 = 1 << 31;
/// `acl,user_xattr`
const DEFAULT_MOUNT_OPTIONS: u32 = 0x000C;
/// half_md4
const HASH_VERSION: u8 = 1;
/// Unlimited.
const MAX_MOUNT_COUNT: i16 = -1;
const AES_256_XTS: u8 = 1;
const AES_256_CTS: u8 = 4;
/// utf8-12.1
const ENCODING: u16 = 1;
/// Names that are no UTF-8 are refused.
const ENCODING_STRICT: u16 = 1;

/// The note where a journal is wanted, and the place is too small.
pub(crate) const NO_JOURNAL: &str = "too small for a journal: made without";

/// A file system that is planned, not written.
pub(super) struct Build {
    pub shape: Shape,
    pub identity: Identity,
    pub space: Space,
    pub tables: Tables,
    pub pieces: Pieces,
    pub inodes: BTreeMap<u32, Inode<Vec<u8>>>,
    /// The directories among the inodes.
    pub directories: Vec<u32>,
    /// Blocks of the journal, fast commits included.
    pub journal_blocks: u64,
    pub journal_data: Vec<std::ops::Range<u64>>,
    /// The journal, where it lies elsewhere.
    pub external_journal: Option<JournalDevice>,
    pub notes: Vec<String>,
    pub stop: Stop,
    rules: InodeRules,
    next_ino: u32,
}

impl Build {
    /// Decides everything for a place of `size_bytes`, unless `stop` is set before the end.
    pub fn new(options: &Options, size_bytes: u64, stop: &Stop) -> Result<Build> {
        let external_journal = options.journal_device.as_deref();
        let external_journal = external_journal.map(journal_device::look_at).transpose()?;
        let options = &Options {
            block_size: options
                .block_size
                .or(external_journal.as_ref().map(|journal| journal.block_size)),
            ..options.clone()
        };
        let mut shape = Shape::new(options, size_bytes)?;
        if let Some(journal) = &external_journal
            && journal.block_size != shape.geo.block_size
        {
            let reason = format!("the journal has blocks of {} bytes", journal.block_size);
            return Err(MkfsError::value("-b", shape.geo.block_size, reason));
        }
        let identity = Identity::of(options, shape.geo.blocks_count)?;
        fill_superblock(&mut shape, options, &identity)?;
        let geo = &shape.geo;
        let mut space = Space::new(u64::from(geo.first_data_block)..geo.blocks_count);
        let is_packed = options.has_packed_metadata;
        let (bad_blocks, note) = bad_blocks::listed(&shape, options)?;
        let layout = Layout {
            stride: options.stride,
            is_packed,
            bad_blocks: &bad_blocks,
            stop,
        };
        let tables = tables::place(&shape, &layout, &mut space)?;
        if geo.cluster_ratio > 1 {
            space.take_in_clusters(geo.cluster_ratio.into());
        }
        let mut build = Build {
            rules: InodeRules::of(&shape.sb),
            next_ino: shape.geo.first_ino.0,
            pieces: Pieces::new(shape.geo.block_size),
            notes: shape.warnings.iter().cloned().chain(note).collect(),
            shape,
            identity,
            space,
            tables,
            inodes: BTreeMap::new(),
            directories: Vec::new(),
            journal_blocks: 0,
            journal_data: Vec::new(),
            external_journal,
            stop: stop.clone(),
        };
        let overhead = build.used_blocks() - bad_blocks.len() as u64;
        build.reserved_inodes();
        build.directories(options)?;
        build.bad_blocks(&bad_blocks)?;
        build.resize_inode()?;
        build.journal(options)?;
        build.mmp(options)?;
        build.quotas(options)?;
        build.orphan_file(options)?;
        let ratio = u64::from(build.shape.geo.cluster_ratio);
        let overhead = overhead.div_ceil(ratio) + build.journal_blocks.div_ceil(ratio);
        build.shape.sb.set_overhead_clusters(overhead as u32);
        Ok(build)
    }

    /// Blocks that are not free, a boot block included.
    pub fn used_blocks(&self) -> u64 {
        let geo = &self.shape.geo;
        u64::from(geo.first_data_block) + self.space.count(0..geo.blocks_count)
    }

    pub fn has_extents(&self) -> bool {
        self.shape.features.incompat.contains(Incompat::EXTENTS)
    }

    fn seed(&self) -> Option<FsSeed> {
        self.shape.features.has_csum().then(|| self.shape.sb.seed())
    }

    /// Where mke2fs looks for a file's first block: from the first group of the flex group on that
    /// its inode lies in. With few inodes in a group that need not be the first group.
    pub fn goal(&self, ino: u32) -> u64 {
        let geo = &self.shape.geo;
        let group = (ino - 1) / geo.inodes_per_group;
        let first = group - group % geo.groups_per_flex.max(1);
        geo.group_first_block(GroupNo(first)).0
    }

    /// Allocates a file from a block on.
    pub fn allocate(
        &mut self,
        ino: u32,
        blocks: u64,
        goal: u64,
        what: &'static str,
    ) -> Result<FileMap> {
        let wanted = Wanted {
            blocks,
            goal,
            has_extents: self.has_extents(),
            block_size: self.shape.geo.block_size,
            seed: self.seed().map(|seed| seed.inode(Ino(ino), 0)),
            what,
        };
        let map = allocate(&mut self.space, &wanted)?;
        for run in map.all_runs() {
            tables::touch(&self.shape.geo, &mut self.tables.is_touched, run);
        }
        for (block, bytes) in &map.nodes {
            self.pieces.put_block(*block, bytes.clone());
        }
        Ok(map)
    }

    /// An inode in use, with all that but its kind and map says.
    pub fn inode(&self, mode: u16, links: u16) -> Inode<Vec<u8>> {
        let mut inode = Inode::blank(self.shape.geo.inode_size, self.extra_isize());
        let now = self.now();
        inode.set_mode(mode);
        inode.set_links_count(links);
        inode.set_atime(now);
        inode.set_ctime(now);
        inode.set_mtime(now);
        inode.set_crtime(now);
        inode
    }

    fn extra_isize(&self) -> u16 {
        self.shape.sb.want_extra_isize()
    }

    fn now(&self) -> Timestamp {
        Timestamp {
            sec: self.identity.time,
            nsec: 0,
        }
    }

    /// Gives an inode its map and size, and puts it into the table.
    pub fn put_file(&mut self, ino: u32, mut inode: Inode<Vec<u8>>, map: &FileMap) -> Result<()> {
        let block_size = u64::from(self.shape.geo.block_size);
        if self.has_extents() {
            inode.set_flags(inode.flags() | InodeFlags::EXTENTS);
        }
        inode.block_area_mut().copy_from_slice(&map.area);
        let data = map.data_blocks().count() as u64;
        inode.set_size(&self.rules, data * block_size)?;
        self.note_file_size(data * block_size);
        let blocks = map.blocks(self.shape.geo.cluster_ratio.into());
        inode.set_blocks_512(&self.rules, blocks * (block_size / 512))?;
        self.inodes.insert(ino, inode);
        Ok(())
    }

    /// A large file sets `large_file`, also where it was cleared, as it does in mke2fs.
    fn note_file_size(&mut self, bytes: u64) {
        if bytes >= LARGE_FILE_BYTES {
            self.shape.features.ro_compat |= RoCompat::LARGE_FILE;
            self.shape.sb.set_ro_compat(self.shape.features.ro_compat);
        }
    }

    /// The size of a file that does not fill its last block.
    pub fn set_size(&mut self, ino: u32, bytes: u64) -> Result<()> {
        let rules = self.rules;
        match self.inodes.get_mut(&ino) {
            Some(inode) => Ok(inode.set_size(&rules, bytes)?),
            None => Ok(()),
        }
    }

    pub fn rules(&self) -> &InodeRules {
        &self.rules
    }

    /// The next inode's number.
    pub fn take_inode(&mut self, what: &'static str) -> Result<u32> {
        let ino = self.next_ino;
        self.next_ino += 1;
        match ino > self.shape.geo.inodes_count {
            true => Err(MkfsError::NoRoom(what)),
            false => Ok(ino),
        }
    }

    /// Inodes that the format keeps for itself: in use, with nothing in them.
    fn reserved_inodes(&mut self) {
        let size = self.shape.geo.inode_size;
        for ino in 1..self.shape.geo.first_ino.0 {
            self.inodes.insert(ino, Inode::blank(size, 0));
        }
        let now = self.now();
        if let Some(bad_blocks) = self.inodes.get_mut(&Ino::BAD_BLOCKS.0) {
            bad_blocks.set_atime(now);
            bad_blocks.set_ctime(now);
            bad_blocks.set_mtime(now);
        }
    }

    fn directories(&mut self, options: &Options) -> Result<()> {
        let geo = &self.shape.geo;
        let block_size = geo.block_size;
        let rules = DirRules::of(&self.shape.sb);
        let lost_and_found = self.next_ino;
        self.next_ino += 1;
        if lost_and_found > geo.inodes_count {
            return Err(MkfsError::NoRoom("lost+found's inode"));
        }

        let goal = self.goal(Ino::ROOT.0);
        let map = self.allocate(Ino::ROOT.0, 1, goal, "the root directory")?;
        let mut inode = self.inode(
            FileKind::Directory.mode_bits() | options.root_permissions,
            3,
        );
        inode.set_uid(options.root_owner.0);
        inode.set_gid(options.root_owner.1);
        self.put_file(Ino::ROOT.0, inode, &map)?;
        let empty = vec![0; block_size as usize];
        let mut block = DirBlock::init_dots(empty.clone(), rules, Ino::ROOT, Ino::ROOT)?;
        let kind = EntryType::from(FileKind::Directory);
        block.insert(b"lost+found", Ino(lost_and_found), kind)?;
        self.put_directory_blocks(Ino::ROOT.0, &map, vec![block]);

        let blocks = (LOST_AND_FOUND_BYTES / block_size).clamp(2, indirect::DIRECT);
        let goal = self.goal(lost_and_found);
        let map = self.allocate(lost_and_found, blocks.into(), goal, "lost+found")?;
        let inode = self.inode(FileKind::Directory.mode_bits() | 0o700, 2);
        self.put_file(lost_and_found, inode, &map)?;
        let mut made = vec![DirBlock::init_dots(
            empty.clone(),
            rules,
            Ino(lost_and_found),
            Ino::ROOT,
        )?];
        for _ in 1..blocks {
            made.push(DirBlock::init(empty.clone(), rules)?);
        }
        self.put_directory_blocks(lost_and_found, &map, made);
        Ok(())
    }

    fn put_directory_blocks(&mut self, ino: u32, map: &FileMap, blocks: Vec<DirBlock<Vec<u8>>>) {
        let seed = self.seed().map(|seed| seed.inode(Ino(ino), 0));
        for (place, mut block) in map.data_blocks().zip(blocks) {
            if let Some(seed) = seed {
                block.update_checksum(seed);
            }
            self.pieces.put_block(place, block.as_bytes().to_vec());
        }
        self.directories.push(ino);
    }

    /// The inode that holds the reserved descriptor blocks: a double indirect block points at
    /// those behind the primary descriptors, and each of them at its copies.
    fn resize_inode(&mut self) -> Result<()> {
        if !self.shape.features.compat.contains(Compat::RESIZE_INODE) {
            return Ok(());
        }
        let geo = self.shape.geo.clone();
        let per_block = indirect::pointers_per_block(geo.block_size);
        // Behind where bitmaps and inode table of group 0 would lie without flex_bg.
        let goal = geo.super_block().0
            + u64::from(geo.desc_blocks + geo.reserved_gdt_blocks + 2 + geo.inode_table_blocks);
        let run = self
            .space
            .take_run(goal, 1)
            .ok_or(MkfsError::NoRoom("the resize inode"))?;
        tables::touch(&geo, &mut self.tables.is_touched, run.clone());
        let backups: Vec<u64> = geo.backup_groups().map(|group| group.0.into()).collect();
        let mut double = vec![0; geo.block_size as usize];
        let mut blocks = 1;
        for at in 0..geo.reserved_gdt_blocks {
            let index = geo.desc_blocks + at;
            let primary = geo.super_block().0 + 1 + u64::from(index);
            indirect::set_pointer(&mut double, index % per_block, PhysBlock(primary));
            let mut single = vec![0; geo.block_size as usize];
            for (slot, group) in backups.iter().enumerate() {
                let copy = primary + group * u64::from(geo.blocks_per_group);
                indirect::set_pointer(&mut single, slot as u32, PhysBlock(copy));
                blocks += 1;
            }
            self.pieces.put_block(primary, single);
            blocks += 1;
        }
        self.pieces.put_block(run.start, double);
        let mut inode = self.inode(FileKind::Regular.mode_bits() | 0o600, 1);
        inode.set_block_word(indirect::DOUBLE as usize, run.start as u32);
        let per_block = u64::from(per_block);
        let reach = u64::from(indirect::DIRECT) + per_block + per_block * per_block;
        let block_size = u64::from(geo.block_size);
        inode.set_size(&self.rules, reach * block_size)?;
        self.note_file_size(reach * block_size);
        // Each counts as a cluster, though they share some.
        let blocks = blocks * u64::from(geo.cluster_ratio);
        inode.set_blocks_512(&self.rules, blocks * (block_size / 512))?;
        self.inodes.insert(Ino::RESIZE.0, inode);
        Ok(())
    }

    fn free_blocks(&self) -> u64 {
        self.shape.geo.blocks_count - self.used_blocks()
    }

    fn journal(&mut self, options: &Options) -> Result<()> {
        if !self.shape.features.compat.contains(Compat::HAS_JOURNAL) {
            return Ok(());
        }
        if let Some(journal) = &self.external_journal {
            let sb = &mut self.shape.sb;
            sb.set_journal_uuid(&journal.uuid);
            sb.set_journal_dev(journal.number);
            return Ok(());
        }
        let Some((blocks, fast_commit)) = self.journal_size(options)? else {
            self.shape.features.compat -= Compat::HAS_JOURNAL | Compat::ORPHAN_FILE;
            self.shape.sb.set_compat(self.shape.features.compat);
            self.notes.push(NO_JOURNAL.to_owned());
            return Ok(());
        };
        let total = blocks + fast_commit;
        let goal = match self.has_extents() && !options.has_packed_metadata {
            true => self.journal_goal(),
            false => u64::from(self.shape.geo.first_data_block),
        };
        let map = self.allocate(Ino::JOURNAL.0, total, goal, "the journal")?;
        let inode = self.inode(FileKind::Regular.mode_bits() | 0o600, 1);
        self.put_file(Ino::JOURNAL.0, inode, &map)?;

        let geo = &self.shape.geo;
        let uuid = self.identity.uuid;
        let mut log = JournalSuperblock::blank(geo.block_size, total as u32, uuid);
        log.set_num_fc_blocks(fast_commit as u32);
        if let Some(first) = map.data.first() {
            let mut block = log.as_bytes().to_vec();
            block.resize(geo.block_size as usize, 0);
            self.pieces.put_block(first.start, block);
        }
        let mut words = [0; 17];
        if let Some(inode) = self.inodes.get(&Ino::JOURNAL.0) {
            words[..15].copy_from_slice(&inode.block_words());
        }
        let bytes = total * u64::from(geo.block_size);
        words[15] = (bytes >> 32) as u32;
        words[16] = bytes as u32;
        self.shape.sb.set_jnl_blocks(words);
        self.shape.sb.set_jnl_backup_type(1);
        self.shape.sb.set_journal_inum(Ino::JOURNAL.0);
        self.journal_blocks = total;
        self.journal_data = map.data;
        Ok(())
    }

    /// Blocks of the log and of the fast commit area; `None` where there is no room for one.
    fn journal_size(&mut self, options: &Options) -> Result<Option<(u64, u64)>> {
        let geo = &self.shape.geo;
        let blocks = match options.journal_mib {
            None => match default_journal_blocks(geo.blocks_count) {
                Some(blocks) => blocks,
                None => return Ok(None),
            },
            Some(mib) => {
                let blocks = (u64::from(mib) << 20) / u64::from(geo.block_size);
                if !(1024..=10_240_000).contains(&blocks) {
                    let reason = format!(
                        "{blocks} blocks of {} bytes; give a size of 1024 to 10240000 blocks",
                        geo.block_size
                    );
                    return Err(MkfsError::value("-J size", mib, reason));
                }
                blocks
            }
        };
        let has_fast_commit = self.shape.features.compat.contains(Compat::FAST_COMMIT);
        let fast_commit = match options.fast_commit_kib {
            _ if !has_fast_commit => 0,
            Some(kib) => (u64::from(kib) << 10) / u64::from(geo.block_size),
            None => blocks / 64,
        };
        let free = self.free_blocks();
        if blocks + fast_commit > free / 2 && options.journal_mib.is_some()
            || blocks + fast_commit > free
        {
            return Err(MkfsError::JournalTooBig {
                journal: blocks + fast_commit,
                free,
            });
        }
        Ok(Some((blocks, fast_commit)))
    }

    /// The first block of a group in the middle that has much room.
    fn journal_goal(&self) -> u64 {
        let geo = &self.shape.geo;
        let first_block = u64::from(geo.first_data_block);
        // As mke2fs, which takes half of the count for a block's number.
        let middle_block = (geo.blocks_count - first_block) / 2;
        let middle = middle_block.saturating_sub(first_block) / u64::from(geo.blocks_per_group);
        let middle = (middle as u32).min(geo.groups_count - 1);
        let size = geo.groups_per_flex;
        let free = |group: u32| {
            let blocks = super::shape::group_range(geo, group);
            (blocks.end - blocks.start) - self.space.count(blocks)
        };
        let (start, group) = if size > 1 && middle > size {
            let first = middle & !(size - 1);
            let found = (first..geo.groups_count).find(|group| free(*group) > 0);
            let group = found.unwrap_or(0);
            (group, group)
        } else {
            (middle.saturating_sub(1), middle)
        };
        let end = (group + 1).min(geo.groups_count - 1);
        let mut best = start;
        for group in start + 1..=end {
            if free(group) > free(best) {
                best = group;
            }
        }
        super::shape::group_range(geo, best).start
    }

    fn mmp(&mut self, options: &Options) -> Result<()> {
        if !self.shape.features.incompat.contains(Incompat::MMP) {
            return Ok(());
        }
        let goal = u64::from(self.shape.geo.first_data_block);
        let run = self
            .space
            .take_run(goal, 1)
            .ok_or(MkfsError::NoRoom("multiple mount protection"))?;
        tables::touch(&self.shape.geo, &mut self.tables.is_touched, run.clone());
        let mut mmp = MmpBlock::clean(self.identity.time as u64, options.mmp_interval);
        if let Some(seed) = self.seed() {
            mmp.update_checksum(seed);
        }
        self.pieces.put_block(run.start, mmp.as_bytes().to_vec());
        self.shape.sb.set_mmp_block(run.start);
        self.shape.sb.set_mmp_interval(options.mmp_interval);
        Ok(())
    }

    fn orphan_file(&mut self, options: &Options) -> Result<()> {
        if !self.shape.features.compat.contains(Compat::ORPHAN_FILE) {
            return Ok(());
        }
        let geo = &self.shape.geo;
        let block_size = geo.block_size;
        let blocks = match options.orphan_file_bytes {
            Some(bytes) => {
                let blocks = bytes.div_ceil(block_size.into());
                if !(1..=512).contains(&blocks) {
                    let reason = "give 1 to 512 blocks";
                    return Err(MkfsError::value("-E orphan_file_size", bytes, reason));
                }
                blocks
            }
            None => default_orphan_blocks(geo.blocks_count),
        };
        let ino = self.take_inode("the orphan file's inode")?;
        let map = self.allocate(ino, blocks, self.goal(ino), "the orphan file")?;
        let inode = self.inode(FileKind::Regular.mode_bits() | 0o600, 1);
        self.put_file(ino, inode, &map)?;
        let seed = self.seed().map(|seed| seed.inode(Ino(ino), 0));
        for place in map.data_blocks() {
            let mut block = OrphanBlock::init(vec![0; block_size as usize])?;
            if let Some(seed) = seed {
                block.update_checksum(seed, PhysBlock(place));
            }
            self.pieces.put_block(place, block.as_bytes().to_vec());
        }
        self.shape.sb.set_orphan_file_inum(ino);
        Ok(())
    }

    /// Sets the checksums of the inodes, whose contents are final now.
    pub fn finish_inodes(&mut self) {
        for (ino, inode) in &mut self.inodes {
            inode.update_checksum(&self.rules, Ino(*ino));
        }
    }
}

/// The journal of a file system of so many blocks.
fn default_journal_blocks(blocks: u64) -> Option<u64> {
    Some(match blocks {
        0..2048 => return None,
        2048..32_768 => 1024,
        32_768..262_144 => 4096,
        262_144..524_288 => 8192,
        524_288..4_194_304 => 16_384,
        4_194_304..8_388_608 => 32_768,
        8_388_608..16_777_216 => 65_536,
        16_777_216..33_554_432 => 131_072,
        _ => 262_144,
    })
}

/// The orphan file of a file system of so many blocks.
fn default_orphan_blocks(blocks: u64) -> u64 {
    match blocks {
        0..131_072 => 32,
        131_072..2_097_152 => blocks / 4096,
        _ => 512,
    }
}

/// What the superblock says beside numbers.
fn fill_superblock(shape: &mut Shape, options: &Options, identity: &Identity) -> Result<()> {
    let sb = &mut shape.sb;
    let features = &shape.features;
    let text = |option, value: &[u8], most: usize| match value.len() {
        len if len > most => Err(MkfsError::value(
            option,
            String::from_utf8_lossy(value),
            format!("has {len} bytes; give {most} at most"),
        )),
        _ => Ok(value.to_vec()),
    };
    let mut label = [0; 16];
    let given = text("-L", &options.label, 16)?;
    label[..given.len()].copy_from_slice(&given);
    sb.set_volume_name_raw(&label);
    let mut mounted = [0; 64];
    let given = text("-M", &options.last_mounted, 64)?;
    mounted[..given.len()].copy_from_slice(&given);
    sb.set_last_mounted_raw(&mounted);

    sb.set_uuid(&identity.uuid);
    sb.set_hash_seed(identity.hash_seed_words());
    let time = identity.time as u64;
    sb.set_write_time(time);
    sb.set_mkfs_time(time);
    sb.set_last_check(time);
    sb.set_state(State::VALID);
    sb.set_errors(options.on_error as u16);
    sb.set_max_mount_count(MAX_MOUNT_COUNT);
    if options.revision > 0 {
        sb.set_default_mount_opts(DEFAULT_MOUNT_OPTIONS);
    }
    sb.set_def_hash_version(HASH_VERSION);
    let mut flags = SuperFlags::SIGNED_HASH;
    flags.set(SuperFlags::TEST_FILESYS, options.is_test);
    sb.set_flags(flags);
    sb.set_raid_stride(options.stride);
    sb.set_raid_stripe_width(options.stripe_width);
    if features.incompat.contains(Incompat::CSUM_SEED) {
        sb.set_checksum_seed_raw(FsSeed::from_uuid(&identity.uuid).0);
    }
    if features.incompat.contains(Incompat::ENCRYPT) {
        sb.set_encrypt_algos(&[AES_256_XTS, AES_256_CTS, 0, 0]);
    }
    if features.incompat.contains(Incompat::CASEFOLD) {
        sb.set_encoding(ENCODING);
        sb.set_encoding_flags(match options.is_encoding_strict {
            true => ENCODING_STRICT,
            false => 0,
        });
    }
    Ok(())
}
