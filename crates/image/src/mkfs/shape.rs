//! The numbers of a file system: how many groups, inodes and reserved blocks it has. From options
//! and size to a superblock that is right but for what allocation adds.
//!
//! The rules are mke2fs's, since sizes of images are expected to agree: groups as large as a bitmap
//! can be, inodes by bytes of space and rounded up to whole blocks of inode tables, a last group
//! only where it has room for more than its own metadata, and descriptor blocks reserved so that
//! the file system can grow by a factor of 1,024.

use super::error::{MkfsError, Result};
use super::features::FeatureSet;
use super::options::Options;
use super::profile::Profile;
use finefs_ext_disk::features::{Compat, Incompat, RoCompat};
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::quota::QuotaKind;
use finefs_ext_disk::superblock::Superblock;
use finefs_ext_disk::units::GroupNo;

/// A bitmap could stand for more with large blocks, but counts in descriptors have 16 bits.
const CLUSTERS_PER_GROUP_MAX: u32 = (1 << 16) - 8;
/// Inodes that the format itself uses.
const FIRST_INO: u32 = 11;
/// A last group that has less than this beside its metadata is not made.
const LAST_GROUP_ROOM: u64 = 50;
/// How far a file system may grow where nobody says.
const GROWTH: u64 = 1024;
const EXTRA_ISIZE: u16 = 32;
const GROUPS_PER_FLEX: u32 = 16;
/// Blocks of a cluster where nobody says.
const CLUSTER_BLOCKS: u32 = 16;
/// Bytes of a group descriptor with `64bit`.
const DESC_BYTES_OF_64BIT: u32 = 64;
/// The largest cluster.
const CLUSTER_BYTES_MAX: u32 = 1 << 29;

/// What was decided before anything has a place.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub features: FeatureSet,
    pub sb: Superblock,
    pub geo: Geometry,
    pub warnings: Vec<String>,
}

impl Shape {
    /// The numbers for a place of `size_bytes`.
    pub fn new(options: &Options, size_bytes: u64) -> Result<Shape> {
        let mut profile = Profile::of(options, size_bytes)?;
        let block_size = profile.block_size;
        check_sizes(options, &profile)?;
        let blocks = size_bytes / u64::from(block_size);
        let features = chosen_features(options, blocks)?;
        check_features(options, &features, profile.inode_size)?;
        let resize_blocks = resize_blocks(options, block_size, blocks)?;
        let cluster_blocks = cluster_blocks(options, &features, block_size)?;
        let reserved = (options.reserved_percent * blocks as f64 / 100.0) as u64;
        let blocks = blocks / u64::from(cluster_blocks) * u64::from(cluster_blocks);
        if options.bytes_per_inode.is_none() {
            profile.widen(cluster_blocks);
        }
        let mut maker = Maker {
            options,
            features,
            block_size,
            inode_size: profile.inode_size as u16,
            first_data_block: u32::from(block_size == 1024 && cluster_blocks == 1),
            cluster_blocks,
            blocks_given: blocks,
            reserved_given: reserved,
            reserved,
            blocks_count: blocks,
            blocks_per_group: blocks_per_group(block_size, cluster_blocks)?,
            resize_blocks,
            inodes_wanted: inodes_wanted(options, &profile, blocks, &features)?,
            has_given_group_size: false,
        };
        if let Some(count) = options.blocks_per_group {
            maker.set_blocks_per_group(count)?;
        }
        let sb = maker.superblock()?;
        let geo = Geometry::new(&sb)?;
        Ok(Shape {
            features: maker.features,
            sb,
            geo,
            warnings: profile.warnings,
        })
    }
}

fn check_sizes(options: &Options, profile: &Profile) -> Result<()> {
    let block_size = profile.block_size;
    if !block_size.is_power_of_two() || !(1024..=65_536).contains(&block_size) {
        let reason = "give a power of 2 from 1024 to 65536";
        return Err(MkfsError::value("-b", block_size, reason));
    }
    let inode_size = profile.inode_size;
    if !inode_size.is_power_of_two() || !(128..=block_size).contains(&inode_size) {
        let reason = format!("give a power of 2 from 128 to the block size, {block_size}");
        return Err(MkfsError::value("-I", inode_size, reason));
    }
    if options.revision > 1 {
        return Err(MkfsError::value("-r", options.revision, "give 0 or 1"));
    }
    if options.revision == 0
        && let Some(size) = options.inode_size.filter(|size| *size != 128)
    {
        let reason = "revision 0 has inodes of 128 bytes; give that, or nothing";
        return Err(MkfsError::value("-I", size, reason));
    }
    if let Some(ratio) = options.bytes_per_inode
        && !(1024..=67_108_864).contains(&ratio)
    {
        let reason = "give a number from 1024 to 67108864";
        return Err(MkfsError::value("-i", ratio, reason));
    }
    let percent = options.reserved_percent;
    if !(0.0..=50.0).contains(&percent) {
        let reason = "give percents from 0 to 50";
        return Err(MkfsError::value("-m", percent, reason));
    }
    Ok(())
}

/// Blocks of a cluster, of which a size is asked for, or not.
fn cluster_blocks(options: &Options, features: &FeatureSet, block_size: u32) -> Result<u32> {
    let has_clusters = features.ro_compat.contains(RoCompat::BIGALLOC);
    match options.cluster_size {
        None if has_clusters => Ok(CLUSTER_BLOCKS),
        None => Ok(1),
        Some(size) if !has_clusters => Err(MkfsError::value("-C", size, "needs feature bigalloc")),
        Some(size) => {
            let is_possible = size.is_power_of_two() && size <= CLUSTER_BYTES_MAX;
            if !is_possible || size < 2 * block_size {
                let reason = format!(
                    "give a power of 2 from {} to {CLUSTER_BYTES_MAX}",
                    2 * block_size
                );
                return Err(MkfsError::value("-C", size, reason));
            }
            Ok(size / block_size)
        }
    }
}

/// The most blocks that a group can have.
fn blocks_per_group(block_size: u32, cluster_blocks: u32) -> Result<u32> {
    let clusters = (block_size * 8).min(CLUSTERS_PER_GROUP_MAX);
    clusters.checked_mul(cluster_blocks).ok_or_else(|| {
        let size = u64::from(cluster_blocks) * u64::from(block_size);
        let reason = format!(
            "a group would have 2^32 blocks of {block_size} bytes; take larger blocks (-b) or \
             smaller clusters"
        );
        MkfsError::value("-C", size, reason)
    })
}

/// The size that it may be grown to, in blocks, where one is asked for.
fn resize_blocks(options: &Options, block_size: u32, blocks: u64) -> Result<Option<u64>> {
    let of_bytes = options.resize_bytes.map(|it| it / u64::from(block_size));
    let Some(most) = options.resize_blocks.or(of_bytes) else {
        return Ok(None);
    };
    if most <= blocks {
        let reason = format!("give more than the {blocks} blocks that it has");
        return Err(MkfsError::value("-E resize", most, reason));
    }
    Ok(Some(most))
}

fn chosen_features(options: &Options, blocks: u64) -> Result<FeatureSet> {
    let mut features = FeatureSet::of(options.fs_type, options.defaults);
    if options.revision == 0 {
        features = FeatureSet::default();
    }
    let (mut names_resize, mut clears_journal) = (false, false);
    for word in &options.features {
        features.edit(word)?;
        names_resize |= word == "resize_inode";
        clears_journal |= matches!(word.as_str(), "^has_journal" | "-has_journal" | "none");
    }
    if options.has_journal {
        features.compat |= Compat::HAS_JOURNAL;
    }
    if clears_journal {
        // What only serves a journal goes with it where it was a default.
        let named = |name: &str| options.features.iter().any(|word| word == name);
        if !named("orphan_file") && !features.compat.contains(Compat::HAS_JOURNAL) {
            features.compat -= Compat::ORPHAN_FILE;
        }
    }
    if !features.has_csum() && !options.features.iter().any(|w| w == "metadata_csum_seed") {
        features.incompat -= Incompat::CSUM_SEED;
    }
    if features.has_csum() {
        // The stronger checksum replaces the weaker one.
        features.ro_compat -= RoCompat::GDT_CSUM;
    }
    if options.resize_blocks.or(options.resize_bytes).is_some() {
        features.compat |= Compat::RESIZE_INODE;
    }
    let kinds = options.quota_kinds.as_deref().unwrap_or_default();
    if kinds.contains(&QuotaKind::Project) {
        features.ro_compat |= RoCompat::PROJECT;
    }
    if blocks > u64::from(u32::MAX) {
        if !features.incompat.contains(Incompat::BIT64) {
            return Err(MkfsError::TooManyBlocks(blocks));
        }
        // The resize inode maps blocks by 32-bit numbers.
        if names_resize {
            return Err(MkfsError::Conflict(
                "feature resize_inode cannot be had above 2^32 blocks; leave it out",
            ));
        }
        features.compat -= Compat::RESIZE_INODE;
    }
    Ok(features)
}

/// Refuses features that do not go together, or not with the options.
fn check_features(options: &Options, features: &FeatureSet, inode_size: u32) -> Result<()> {
    if options.revision == 0 && *features != FeatureSet::default() {
        return Err(MkfsError::Conflict(
            "revision 0 has no features, and so no journal; take -r 1",
        ));
    }
    features.check()?;
    if features.incompat.contains(Incompat::INLINE_DATA) && inode_size == 128 {
        return Err(MkfsError::Conflict(
            "feature inline_data needs larger inodes than 128 bytes; take -I 256, or leave it out",
        ));
    }
    if let Some(size) = options.desc_size {
        let reason = match features.incompat.contains(Incompat::BIT64) {
            true if size == DESC_BYTES_OF_64BIT => "",
            true => "only 64 can be had here; leave it out, or use mke2fs",
            false => "needs feature 64bit",
        };
        if !reason.is_empty() {
            return Err(MkfsError::value("-E desc_size", size, reason));
        }
    }
    if options.is_encoding_strict && !features.incompat.contains(Incompat::CASEFOLD) {
        return Err(MkfsError::Conflict(
            "-E encoding_flags needs an encoding; give -E encoding=utf8, too",
        ));
    }
    if features.ro_compat.contains(RoCompat::PROJECT) && inode_size == 128 {
        return Err(MkfsError::Conflict(
            "feature project needs larger inodes than 128 bytes; take -I 256, or leave it out",
        ));
    }
    if options.has_packed_metadata && !features.incompat.contains(Incompat::FLEX_BG) {
        return Err(MkfsError::Conflict(
            "-E packed_meta_blocks needs feature flex_bg; set it or leave the option out",
        ));
    }
    Ok(())
}

/// How many inodes there are to be, before rounding.
fn inodes_wanted(
    options: &Options,
    profile: &Profile,
    blocks: u64,
    features: &FeatureSet,
) -> Result<u32> {
    let bytes = blocks * u64::from(profile.block_size);
    let wanted = match options.inodes {
        Some(count) => u64::from(count),
        None => bytes / u64::from(profile.bytes_per_inode),
    };
    let inode_size = u64::from(profile.inode_size);
    if wanted * inode_size >= bytes && bytes > 0 {
        return Err(MkfsError::TooManyInodes {
            inodes: wanted,
            inode_size: profile.inode_size as u16,
            blocks,
        });
    }
    match u32::try_from(wanted) {
        Ok(count) => Ok(count),
        Err(_) if features.incompat.contains(Incompat::BIT64) => Ok(u32::MAX),
        Err(_) => Err(MkfsError::TooManyInodes {
            inodes: wanted,
            inode_size: profile.inode_size as u16,
            blocks,
        }),
    }
}

/// The numbers while they are searched.
struct Maker<'a> {
    options: &'a Options,
    features: FeatureSet,
    block_size: u32,
    inode_size: u16,
    first_data_block: u32,
    blocks_given: u64,
    /// Without a last group that is too small.
    blocks_count: u64,
    reserved_given: u64,
    /// Fewer reserved blocks where a last group was left out.
    reserved: u64,
    blocks_per_group: u32,
    cluster_blocks: u32,
    /// The size that it may be grown to.
    resize_blocks: Option<u64>,
    inodes_wanted: u32,
    has_given_group_size: bool,
}

/// What a trial of [`Maker`] leads to.
struct Numbers {
    groups: u32,
    desc_blocks: u32,
    inodes_per_group: u32,
    inode_table_blocks: u32,
    reserved_gdt_blocks: u32,
}

impl Maker<'_> {
    fn set_blocks_per_group(&mut self, count: u32) -> Result<()> {
        if self.cluster_blocks > 1 {
            let reason = "with bigalloc groups are as large as they can be; leave it out";
            return Err(MkfsError::value("-g", count, reason));
        }
        let most = (self.block_size * 8).min(CLUSTERS_PER_GROUP_MAX);
        if !count.is_multiple_of(8) || !(256..=most).contains(&count) {
            let reason = format!("give a multiple of 8 from 256 to {most}");
            return Err(MkfsError::value("-g", count, reason));
        }
        self.blocks_per_group = count;
        self.has_given_group_size = true;
        Ok(())
    }

    fn desc_size(&self) -> u32 {
        match self.features.incompat.contains(Incompat::BIT64) {
            true => DESC_BYTES_OF_64BIT,
            false => 32,
        }
    }

    fn too_small(&self) -> MkfsError {
        MkfsError::TooSmall {
            blocks: self.blocks_count,
            block_size: self.block_size,
            advice: "make it larger, or take a smaller block size (-b) or fewer inodes (-N)",
        }
    }

    fn superblock(&mut self) -> Result<Superblock> {
        loop {
            if let Some(numbers) = self.trial()? {
                return self.fill(&numbers);
            }
        }
    }

    /// One set of numbers; `None` where blocks or groups were changed and it must be tried again.
    fn trial(&mut self) -> Result<Option<Numbers>> {
        let from_first = self
            .blocks_count
            .checked_sub(u64::from(self.first_data_block))
            .filter(|blocks| *blocks > 0)
            .ok_or_else(|| self.too_small())?;
        let groups = from_first.div_ceil(u64::from(self.blocks_per_group));
        let groups = u32::try_from(groups).map_err(|_| {
            MkfsError::Conflict("more than 2^32 groups; take a larger block size (-b)")
        })?;
        let per_block = self.block_size / u32::from(self.inode_size);
        let mut inodes_per_group = self.inodes_wanted().div_ceil(groups);
        if inodes_per_group > self.block_size * 8 {
            if self.blocks_per_group < 256 || self.cluster_blocks > 1 {
                return Err(self.too_many_inodes());
            }
            // Smaller groups, of which there are more.
            self.blocks_per_group -= 8;
            self.blocks_count = self.blocks_given;
            return Ok(None);
        }
        inodes_per_group = inodes_per_group.min((1 << 16) - per_block);
        let (inodes_per_group, inode_table_blocks) = self.round_inodes(groups, inodes_per_group)?;
        let desc_blocks = groups.div_ceil(self.block_size / self.desc_size());
        let numbers = Numbers {
            groups,
            desc_blocks,
            inodes_per_group,
            inode_table_blocks,
            reserved_gdt_blocks: self.reserved_gdt_blocks(desc_blocks),
        };
        self.check_room(numbers, from_first)
    }

    fn inodes_wanted(&self) -> u32 {
        let wanted = match self.inodes_wanted {
            0 => (self.blocks_count / u64::from(4096u32.div_ceil(self.block_size)))
                .min(u64::from(u32::MAX)) as u32,
            wanted => wanted,
        };
        wanted.max(FIRST_INO + 1)
    }

    /// Whole blocks of inodes, a multiple of 8, and no more inodes than there are numbers.
    fn round_inodes(&self, groups: u32, wanted: u32) -> Result<(u32, u32)> {
        let inode_size = u32::from(self.inode_size);
        let mut wanted = wanted;
        loop {
            let blocks = (wanted * inode_size).div_ceil(self.block_size);
            let mut per_group = (blocks * self.block_size / inode_size).max(8) & !7;
            if groups == 1 && per_group <= FIRST_INO {
                // lost+found must have an inode, too.
                per_group = 16;
            }
            if u64::from(per_group) * u64::from(groups) <= u64::from(u32::MAX) {
                return Ok((
                    per_group,
                    (per_group * inode_size).div_ceil(self.block_size),
                ));
            }
            wanted = wanted
                .checked_sub(1)
                .ok_or_else(|| self.too_many_inodes())?;
        }
    }

    fn too_many_inodes(&self) -> MkfsError {
        MkfsError::TooManyInodes {
            inodes: self.inodes_wanted().into(),
            inode_size: self.inode_size,
            blocks: self.blocks_count,
        }
    }

    /// Descriptor blocks to reserve. Where those that there are suffice for the size that was asked
    /// for, as many as without it.
    fn reserved_gdt_blocks(&self, desc_blocks: u32) -> u32 {
        if !self.features.compat.contains(Compat::RESIZE_INODE) {
            return 0;
        }
        let by_default = self.blocks_count.saturating_mul(GROWTH);
        let asked = self.resize_blocks.into_iter().chain([by_default]);
        let mut reserved = asked.map(|blocks| self.gdt_blocks_to_reach(blocks, desc_blocks));
        reserved.find(|count| *count > 0).unwrap_or(0)
    }

    fn gdt_blocks_to_reach(&self, blocks: u64, desc_blocks: u32) -> u32 {
        let most = blocks.min(u64::from(u32::MAX)) - u64::from(self.first_data_block);
        let groups = most.div_ceil(u64::from(self.blocks_per_group));
        let per_block = u64::from(self.block_size / self.desc_size());
        let reserved = groups
            .div_ceil(per_block)
            .saturating_sub(u64::from(desc_blocks));
        reserved.min(u64::from(self.block_size / 4)) as u32
    }

    /// Whether each group has room for its metadata. A last group that has not is left out.
    fn check_room(&mut self, numbers: Numbers, from_first: u64) -> Result<Option<Numbers>> {
        let first_bytes = numbers.desc_blocks + numbers.reserved_gdt_blocks;
        if first_bytes > self.blocks_per_group / 4 * 3
            && !self.features.incompat.contains(Incompat::META_BG)
        {
            // Descriptors would take most of each group that has a copy.
            self.features.incompat |= Incompat::META_BG;
            self.features.compat -= Compat::RESIZE_INODE;
            return Ok(None);
        }
        let mut overhead = 2 + numbers.inode_table_blocks;
        if self.last_has_super(numbers.groups) {
            let descs = match self.features.incompat.contains(Incompat::META_BG) {
                true => 1,
                false => first_bytes,
            };
            overhead += 1 + descs;
        }
        if overhead > self.blocks_per_group {
            return Err(self.too_many_inodes());
        }
        let rest = from_first % u64::from(self.blocks_per_group);
        if rest > 0 && rest < u64::from(overhead) + LAST_GROUP_ROOM {
            if numbers.groups == 1 {
                return Err(self.too_small());
            }
            let left = self.blocks_count - rest;
            let reserved = u128::from(self.reserved_given) * u128::from(left);
            self.reserved = (reserved / u128::from(self.blocks_given)) as u64;
            self.blocks_count = left;
            return Ok(None);
        }
        Ok(Some(numbers))
    }

    fn last_has_super(&self, groups: u32) -> bool {
        let last = groups - 1;
        let has_backups = self.options.backup_superblocks;
        if last == 0 {
            return true;
        }
        if self.features.compat.contains(Compat::SPARSE_SUPER2) {
            return has_backups > 1 || groups == 2 && has_backups > 0;
        }
        if !self.features.ro_compat.contains(RoCompat::SPARSE_SUPER) {
            return true;
        }
        let is_power = |base: u32| {
            let mut power = base;
            while power < last {
                power = power.saturating_mul(base);
            }
            power == last
        };
        last == 1 || [3, 5, 7].into_iter().any(is_power)
    }

    fn fill(&self, numbers: &Numbers) -> Result<Superblock> {
        let mut sb = Superblock::blank();
        sb.set_compat(self.features.compat);
        sb.set_incompat(self.features.incompat);
        sb.set_ro_compat(self.features.ro_compat);
        sb.set_blocks_count(self.blocks_count);
        sb.set_inodes_count(numbers.inodes_per_group * numbers.groups);
        sb.set_reserved_blocks_count(self.reserved);
        sb.set_first_data_block(self.first_data_block);
        let log = self.block_size.trailing_zeros() - 10;
        sb.set_log_block_size(log);
        sb.set_log_cluster_size(log + self.cluster_blocks.trailing_zeros());
        sb.set_blocks_per_group(self.blocks_per_group);
        sb.set_clusters_per_group(self.blocks_per_group / self.cluster_blocks);
        sb.set_inodes_per_group(numbers.inodes_per_group);
        sb.set_reserved_gdt_blocks(numbers.reserved_gdt_blocks as u16);
        sb.set_rev_level(self.options.revision);
        sb.set_first_ino_raw(FIRST_INO);
        sb.set_inode_size_raw(self.inode_size);
        if self.inode_size > 128 {
            sb.set_min_extra_isize(EXTRA_ISIZE);
            sb.set_want_extra_isize(EXTRA_ISIZE);
        }
        if self.features.incompat.contains(Incompat::BIT64) {
            sb.set_desc_size_raw(self.desc_size() as u16);
        }
        if self.features.has_csum() {
            sb.set_checksum_type(1);
        }
        self.fill_flex(&mut sb)?;
        if self.features.compat.contains(Compat::SPARSE_SUPER2) {
            sb.set_backup_bgs(match (self.options.backup_superblocks, numbers.groups) {
                (0, _) | (_, 1) => [0, 0],
                (1, _) | (_, 2) => [0, 1],
                (_, groups) => [1, groups - 1],
            });
        }
        Ok(sb)
    }

    fn fill_flex(&self, sb: &mut Superblock) -> Result<()> {
        if !self.features.incompat.contains(Incompat::FLEX_BG) {
            return match self.options.groups_per_flex {
                Some(count) => Err(MkfsError::value("-G", count, "needs feature flex_bg")),
                None => Ok(()),
            };
        }
        let count = self.options.groups_per_flex.unwrap_or(GROUPS_PER_FLEX);
        if !count.is_power_of_two() {
            return Err(MkfsError::value("-G", count, "give a power of 2"));
        }
        sb.set_log_groups_per_flex(count.trailing_zeros() as u8);
        Ok(())
    }
}

/// First and last block of a group, as a range.
pub(super) fn group_range(geo: &Geometry, group: u32) -> std::ops::Range<u64> {
    let first = geo.group_first_block(GroupNo(group)).0;
    first..first + u64::from(geo.group_blocks(GroupNo(group)))
}
