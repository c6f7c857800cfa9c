//! The file system as its superblock and group descriptors describe it.

use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext::features::Gate;
use finefs_ext::replay::{self, Replay};
use finefs_ext_disk::dirent::DirRules;
use finefs_ext_disk::error::{Corrupt, DiskError};
use finefs_ext_disk::features::{Compat, Incompat, RoCompat};
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::group::{GroupChecksum, GroupDesc, GroupFlags};
use finefs_ext_disk::inode::{Inode, InodeRules};
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use finefs_ext_disk::{GroupNo, Ino};

use crate::finding::{Findings, Object, Problem};
use crate::source::Source;

/// A group, as its descriptor says; places that cannot be are 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
    pub free_blocks: u32,
    pub free_inodes: u32,
    pub used_dirs: u32,
    pub unused_inodes: u32,
    pub flags: GroupFlags,
}

/// A file system that is being checked.
pub(crate) struct Fs {
    pub source: Source,
    pub sb: Superblock,
    pub geo: Geometry,
    pub rules: InodeRules,
    pub dir_rules: DirRules,
    pub checksums: GroupChecksum,
    pub groups: Vec<Group>,
    pub transactions: u32,
    /// The log counts, so the superblock after the replay does not say that it must be replayed.
    pub is_replayed: bool,
}

/// What opening gives: a file system, or no more than findings.
pub(crate) enum Opened {
    Fs(Box<Fs>),
    Hopeless,
}

impl Fs {
    /// Opens an image; what is wrong with superblock and descriptors is among the findings.
    /// `journal` is the device that its journal lies on, if that is another.
    pub fn open(
        device: &Arc<dyn BlockDevice>,
        journal: Option<&Arc<dyn BlockDevice>>,
        found: &mut Findings,
    ) -> Result<Opened, String> {
        let mut source = Source {
            device: Arc::clone(device),
            overlay: Default::default(),
        };
        let sb = read_superblock(&source)?;
        let Some(geo) = geometry(&sb, found)? else {
            return Ok(Opened::Hopeless);
        };
        let mut transactions = 0;
        let must_replay = sb.incompat().contains(Incompat::NEEDS_RECOVERY);
        let external = external_journal(device, journal, &sb)?;
        match replay::inspect(device, external, &sb, &geo) {
            Replay::Nothing => {}
            Replay::Pending {
                overlay,
                transactions: count,
            } => {
                source.overlay = overlay;
                transactions = count;
                let what = format!("{count} transactions of the journal are not in their places");
                found.add(Problem::JournalDirty, Object::whole(), what);
            }
            Replay::Damaged { reason, overlay } => {
                source.overlay = overlay;
                found.add(Problem::JournalLog, Object::whole(), reason);
            }
        }
        // The replay may have changed both.
        let sb = read_superblock(&source)?;
        let Some(geo) = geometry(&sb, found)? else {
            return Ok(Opened::Hopeless);
        };
        if geo.size_bytes() > device.len_bytes() {
            let what = format!(
                "{} bytes long, on a device of {}",
                geo.size_bytes(),
                device.len_bytes()
            );
            found.add(Problem::Truncated, Object::whole(), what);
            // Where descriptors of the table at the beginning are missing, so is nearly all else.
            let blocks = geo.super_block().0 + u64::from(geo.desc_blocks) + 1;
            let table_end = blocks.saturating_mul(u64::from(geo.block_size));
            if !sb.incompat().contains(Incompat::META_BG) && table_end > device.len_bytes() {
                return Ok(Opened::Hopeless);
            }
        }
        let mut fs = Fs {
            source,
            rules: InodeRules::of(&sb),
            dir_rules: DirRules::of(&sb),
            checksums: GroupChecksum::of(&sb),
            groups: Vec::new(),
            transactions,
            is_replayed: must_replay,
            sb,
            geo,
        };
        fs.read_groups(found)?;
        Ok(Opened::Fs(Box::new(fs)))
    }

    /// Reads a block; a finding where that fails.
    pub fn read_block(&self, block: u64, buffer: &mut [u8], found: &mut Findings) -> bool {
        let place = block.saturating_mul(u64::from(self.geo.block_size));
        match self.source.read_at(place, buffer) {
            Ok(()) => true,
            Err(error) => {
                let object = Object::whole().block(block);
                found.add(Problem::Io, object, format_args!("reading: {error}"));
                buffer.fill(0);
                false
            }
        }
    }

    pub fn block_buffer(&self) -> Vec<u8> {
        vec![0; self.geo.block_size as usize]
    }

    /// An inode's bytes; `None` where there is none or its table cannot be read.
    pub fn inode(&self, ino: u32, found: &mut Findings) -> Option<Inode<Vec<u8>>> {
        let place = self.geo.locate_inode(Ino(ino))?;
        let table = self.groups.get(place.group.0 as usize)?.inode_table;
        if table == 0 {
            return None;
        }
        let block_bytes = u64::from(self.geo.block_size);
        let at = (table + u64::from(place.table_block)) * block_bytes + u64::from(place.offset);
        let mut bytes = vec![0; usize::from(self.geo.inode_size)];
        if let Err(error) = self.source.read_at(at, &mut bytes) {
            let what = format_args!("reading: {error}");
            found.add(Problem::Io, Object::inode(ino), what);
            return None;
        }
        Inode::new(bytes).ok()
    }

    pub fn has(&self, feature: Compat) -> bool {
        self.sb.compat().contains(feature)
    }

    pub fn needs(&self, feature: Incompat) -> bool {
        self.sb.incompat().contains(feature)
    }

    pub fn has_ro(&self, feature: RoCompat) -> bool {
        self.sb.ro_compat().contains(feature)
    }

    /// Numbers of inodes that are not for files: reserved ones, quota files, the orphan file.
    pub fn is_reserved(&self, ino: u32) -> bool {
        ino < self.geo.first_ino.0 || self.is_own_file(ino)
    }

    /// The superblock names this inode as a quota file or as the orphan file.
    pub fn is_own_file(&self, ino: u32) -> bool {
        let sb = &self.sb;
        ino != 0
            && (ino == sb.usr_quota_inum()
                || ino == sb.grp_quota_inum()
                || ino == sb.prj_quota_inum()
                || ino == sb.orphan_file_inum())
    }

    /// Inodes of a group that were ever in use, as its descriptor says.
    pub fn inodes_scanned(&self, group: &Group) -> u32 {
        if group.inode_table == 0 {
            return 0;
        }
        if !self.checksums.is_present() {
            return self.geo.inodes_per_group;
        }
        match group.flags.contains(GroupFlags::INODE_UNINIT) {
            true => 0,
            false => self
                .geo
                .inodes_per_group
                .saturating_sub(group.unused_inodes),
        }
    }

    fn read_groups(&mut self, found: &mut Findings) -> Result<(), String> {
        let mut block = self.block_buffer();
        let mut loaded = None;
        self.groups
            .try_reserve_exact(self.geo.groups_count as usize)
            .map_err(|_| format!("not enough memory for {} groups", self.geo.groups_count))?;
        for number in 0..self.geo.groups_count {
            let (index, offset) = self.geo.desc_position(GroupNo(number));
            if loaded != Some(index) {
                self.read_block(self.geo.desc_block(index).0, &mut block, found);
                loaded = Some(index);
            }
            let range = offset as usize..offset as usize + usize::from(self.geo.desc_size);
            let Ok(desc) = GroupDesc::new(&block[range]) else {
                return Err("group descriptors of an impossible size".to_owned());
            };
            let group = self.group(number, &desc, found);
            self.groups.push(group);
        }
        Ok(())
    }

    fn group(&self, number: u32, desc: &GroupDesc<&[u8]>, found: &mut Findings) -> Group {
        let geo = &self.geo;
        let object = Object::group(number);
        let (first, last) = match self.needs(Incompat::FLEX_BG) {
            true => (u64::from(geo.first_data_block), geo.blocks_count - 1),
            false => {
                let first = geo.group_first_block(GroupNo(number)).0;
                (
                    first,
                    first + u64::from(geo.group_blocks(GroupNo(number))) - 1,
                )
            }
        };
        let mut place = |what: &str, block: u64, length: u64| {
            let is_inside = block >= first && block.saturating_add(length - 1) <= last;
            if !is_inside {
                let what = format!("{what} at block {block}, where it cannot be");
                found.add(Problem::GroupPlace, object.clone(), what);
            }
            if is_inside { block } else { 0 }
        };
        let group = Group {
            block_bitmap: place("block bitmap", desc.block_bitmap_raw(), 1),
            inode_bitmap: place("inode bitmap", desc.inode_bitmap_raw(), 1),
            inode_table: place(
                "inode table",
                desc.inode_table_raw(),
                u64::from(geo.inode_table_blocks),
            ),
            free_blocks: desc.free_blocks(),
            free_inodes: desc.free_inodes(),
            used_dirs: desc.used_dirs(),
            unused_inodes: desc.itable_unused(),
            flags: desc.flags(),
        };
        if group.free_blocks > geo.blocks_per_group
            || group.free_inodes > geo.inodes_per_group
            || group.used_dirs > geo.inodes_per_group
        {
            let what = "counts more than a group can have";
            found.add(Problem::GroupCount, object.clone(), what);
        }
        if let Err(error) = desc.verify_checksum(&self.checksums, GroupNo(number)) {
            let what = format!("descriptor: {}", short(&error));
            found.add(Problem::GroupChecksum, object.clone(), what);
        }
        self.group_flags(number, &group, found);
        group
    }

    fn group_flags(&self, number: u32, group: &Group, found: &mut Findings) {
        let uninit = GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT;
        let is_last = number + 1 == self.geo.groups_count;
        let wrong = if !self.checksums.is_present() {
            let is_marked = group.flags.intersects(uninit) || group.unused_inodes != 0;
            is_marked.then_some("marked as not initialised, which takes checksums")
        } else if group.unused_inodes > group.free_inodes
            || group.unused_inodes > self.geo.inodes_per_group
        {
            Some("more inodes were never used than are free")
        } else {
            None
        };
        if let Some(what) = wrong {
            found.add(Problem::GroupFlags, Object::group(number), what);
        }
        if is_last && group.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let what = "the last group's block bitmap is marked as not initialised";
            found.add(Problem::GroupFlags, Object::group(number), what);
        }
    }
}

/// A codec's error in few words.
pub(crate) fn short(error: &DiskError) -> String {
    match error {
        DiskError::Corrupt(Corrupt::Checksum {
            stored, computed, ..
        }) => format!("checksum is {stored:#x}, should be {computed:#x}"),
        DiskError::Corrupt(what) => what.to_string(),
        other => other.to_string(),
    }
}

/// True when the only thing wrong is a checksum.
pub(crate) fn is_checksum(error: &DiskError) -> bool {
    matches!(error, DiskError::Corrupt(Corrupt::Checksum { .. }))
}

/// The device that the journal of an image lies on; `None` where it is the image's own, or need
/// not be replayed.
fn external_journal<'a>(
    device: &Arc<dyn BlockDevice>,
    journal: Option<&'a Arc<dyn BlockDevice>>,
    sb: &Superblock,
) -> Result<Option<&'a Arc<dyn BlockDevice>>, String> {
    if !replay::is_external(sb) {
        return Ok(None);
    }
    match journal {
        Some(journal) if !replay::is_journal_of(&**journal, &**device) => {
            Err(format!("{} is not its journal", journal.describe()))
        }
        None if sb.incompat().contains(Incompat::NEEDS_RECOVERY) => {
            let what = "its journal lies on another device and must be replayed; give it by \
                        --journal FILE";
            Err(what.to_owned())
        }
        given => Ok(given),
    }
}

/// What stands in the way of changing an image whose journal must be replayed first.
pub(crate) fn replay_first(sb: &Superblock) -> String {
    let what = match replay::is_external(sb) {
        true => {
            "its journal, which lies on another device, must be replayed first; finefs mount -o \
             journal_path=FILE does it, or e2fsck -j FILE"
        }
        false => "its journal must be replayed first; finefs repair does it",
    };
    what.to_owned()
}

/// An error where the journal lies on another device and must be replayed.
pub(crate) fn external_is_replayed(device: &Arc<dyn BlockDevice>) -> Result<(), String> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    // What is wrong with the superblock is a check's matter.
    let read = device.read_at(SUPERBLOCK_OFFSET, &mut bytes);
    let sb = read.ok().and_then(|()| Superblock::parse(&bytes).ok());
    let must_replay = |sb: &Superblock| sb.incompat().contains(Incompat::NEEDS_RECOVERY);
    match sb.filter(|sb| must_replay(sb) && replay::is_external(sb)) {
        Some(sb) => Err(replay_first(&sb)),
        None => Ok(()),
    }
}

/// What is said of a device without a superblock.
pub(crate) fn no_superblock(device: &dyn BlockDevice) -> String {
    match replay::backup_command(device) {
        Some(command) => {
            format!("no superblock at byte 1024, but there is a backup; restore it with {command}")
        }
        None => "no ext2, ext3 or ext4 file system here; check path and --offset".to_owned(),
    }
}

fn read_superblock(source: &Source) -> Result<Superblock, String> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    source
        .read_at(SUPERBLOCK_OFFSET, &mut bytes)
        .map_err(|error| format!("reading the superblock: {error}"))?;
    let sb = Superblock::parse(&bytes).map_err(|_| no_superblock(&*source.device))?;
    if let Some(what) = replay::what_journal(&*source.device) {
        return Err(what);
    }
    let gate = Gate::of(sb.compat(), sb.incompat(), sb.ro_compat());
    match gate.refused.is_empty() {
        true => Ok(sb),
        false => Err(format!(
            "features that are not known: {}",
            gate.refused.join(" ")
        )),
    }
}

/// The geometry, or a finding where there can be none.
fn geometry(sb: &Superblock, found: &mut Findings) -> Result<Option<Geometry>, String> {
    if let Err(error) = sb.verify_checksum() {
        let what = format!("superblock: {}", short(&error));
        found.add(Problem::SuperblockChecksum, Object::whole(), what);
    }
    match Geometry::new(sb) {
        Ok(geo) => Ok(Some(geo)),
        Err(DiskError::Incompatible(what)) => Err(format!("not supported: {what}")),
        Err(error) => {
            let what = format!("superblock: {}", short(&error));
            let is_count = matches!(
                error,
                DiskError::Corrupt(Corrupt::FreeBlockCount(_) | Corrupt::FreeInodeCount(_))
            );
            let problem = match is_count {
                true => Problem::FreeCount,
                false => Problem::Superblock,
            };
            found.add(problem, Object::whole(), what);
            let mut recounted = sb.clone();
            recounted.set_free_blocks_count(0);
            recounted.set_reserved_blocks_count(0);
            recounted.set_free_inodes_count(0);
            Ok(Geometry::new(&recounted).ok())
        }
    }
}
