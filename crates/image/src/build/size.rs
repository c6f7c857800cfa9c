//! How large an image must be.
//!
//! Counted are the blocks of data, of the tables that map it, of directories, of long symbolic
//! links, and of attributes that do not fit into the inode; with `bigalloc` all in clusters.
//! Directories with an index count double, as a leaf is split where it is full; the rest is exact
//! or a little too much. What is reserved (`-m`) is left.

use std::collections::BTreeMap;
use std::ffi::OsString;

use finefs_ext_disk::inode::BLOCK_AREA_SIZE;

use super::Free;
use super::content::Content;
use super::manifest::{Kind, Manifest, Node};
use crate::attributes::Xattr;
use crate::error::{Error, Result};
use crate::mkfs::{self, Made};

/// Sizes are multiples of this.
const UNIT_BYTES: u64 = 1 << 16;

/// The smallest that is tried.
const SIZE_MIN: u64 = 1 << 20;

/// The largest.
const SIZE_MAX: u64 = 1 << 60;

/// Inodes beside those of the files: reserved ones, `lost+found` and a few.
const INODES_BESIDE: u64 = 16;

/// Bytes of an inode that are no attributes: those of revision 0, and the further fields.
const INODE_FIELDS: usize = 128 + 32;

/// Directory entries without their names.
const ENTRY_BYTES: usize = 8;

/// Of all blocks so many are kept from data, for directories and maps: one in 50, but at most 4096
/// (`pool_blocks` of finefs-ext); and a few more.
const KEPT_PART: u64 = 50;
const KEPT_MAX: u64 = 4096;
const KEPT_BESIDE: u64 = 16;

/// The size for all files, `free` and `spare_bytes`. Asks for enough inodes where nobody asked for
/// a number.
pub(super) fn needed(
    manifest: &Manifest,
    options: &mut mkfs::Options,
    free: Free,
    spare_bytes: u64,
) -> Result<u64> {
    needed_from(SIZE_MIN, manifest, options, (free, spare_bytes))
}

/// The same, but no smaller than this: a larger one may be too small, as it has a journal.
fn needed_from(
    size_min: u64,
    manifest: &Manifest,
    options: &mut mkfs::Options,
    (free, spare_bytes): (Free, u64),
) -> Result<u64> {
    let inodes = manifest.totals().files + INODES_BESIDE;
    let asked = options.inodes.or(options.bytes_per_inode);
    let mut size_bytes = size_min;
    loop {
        let made = match mkfs::plan(size_bytes, options) {
            // So small ones are not there.
            Err(
                mkfs::MkfsError::TooSmall { .. }
                | mkfs::MkfsError::NoRoom(_)
                | mkfs::MkfsError::TooManyInodes { .. }
                | mkfs::MkfsError::JournalTooBig { .. },
            ) if size_bytes < SIZE_MAX / 2 => {
                size_bytes += size_bytes / 2;
                size_bytes = size_bytes.next_multiple_of(UNIT_BYTES);
                continue;
            }
            made => made.map_err(|error| Error::new("", error.to_string()))?,
        };
        if wants_journal(options) && made.notes.iter().any(|note| note == mkfs::NO_JOURNAL) {
            size_bytes += (size_bytes / 16).next_multiple_of(UNIT_BYTES);
            continue;
        }
        let (block, cluster) = (u64::from(made.block_size), u64::from(made.cluster_size));
        let files = clusters(manifest, &made) * cluster;
        let free_bytes = match free {
            Free::Bytes(bytes) => bytes,
            Free::Percent(percent) => (files as f64 * percent / 100.0) as u64,
        };
        let all = made.blocks * block / cluster;
        let kept = (all / KEPT_PART).min(KEPT_MAX) + KEPT_BESIDE;
        let reserved_bytes = made.reserved_blocks * block;
        let wanted = files + kept * cluster + reserved_bytes + free_bytes + spare_bytes;
        let there = made.free_blocks * block;
        if wanted > there {
            size_bytes += (wanted - there).next_multiple_of(UNIT_BYTES);
            continue;
        }
        let lacking = inodes.saturating_sub(u64::from(made.inodes));
        if lacking == 0 {
            return Ok(size_bytes);
        }
        if asked.is_some() {
            let reason = format!(
                "{inodes} inodes are needed, and -N or -i gives {}; ask for more, or leave it out",
                made.inodes
            );
            return Err(Error::new("", reason));
        }
        // Their number is rounded down to what groups can have.
        let more = u64::from(options.inodes.unwrap_or(0)).max(inodes) + lacking;
        options.inodes = Some(u32::try_from(more).map_err(|_| too_many(inodes))?);
    }
}

/// Somebody has asked for a journal; ext4 has one by itself where there is room.
fn wants_journal(options: &mkfs::Options) -> bool {
    options.has_journal
        || options.journal_mib.is_some()
        || options.fs_type == mkfs::FsType::Ext3
        || options.features.iter().any(|word| word == "has_journal")
}

fn too_many(inodes: u64) -> Error {
    Error::new(
        "",
        format!("{inodes} files are too many for one file system"),
    )
}

/// Why a size that was asked for is too small.
pub(super) fn lacking(
    error: &Error,
    manifest: &Manifest,
    file_system: &mut mkfs::Options,
    size_bytes: u64,
    place: String,
) -> Error {
    let totals = manifest.totals();
    let made = mkfs::plan(size_bytes, file_system);
    if let Ok(made) = &made
        && u64::from(made.inodes) < totals.files + INODES_BESIDE
    {
        let lacking = totals.files + INODES_BESIDE - u64::from(made.inodes);
        let reason = format!("the image lacks {lacking} inodes; ask for them with -N or -i");
        return Error::new(place, reason);
    }
    let enough = |spare_bytes, options: &mut mkfs::Options| {
        let free = (Free::Bytes(0), spare_bytes);
        needed_from(size_bytes, manifest, options, free).ok()
    };
    let needed = match enough(0, file_system) {
        // An estimate that was too low.
        Some(needed) if needed == size_bytes => enough((size_bytes / 16).max(1 << 20), file_system),
        needed => needed,
    };
    let Some(needed) = needed.filter(|needed| *needed > size_bytes) else {
        return error.clone();
    };
    let lacking = needed - size_bytes;
    let mut reason =
        format!("the files do not fit: {lacking} bytes more are needed, --size {needed} in all");
    let has_journal = made.is_ok_and(|made| made.journal_blocks > 0);
    if has_journal && !wants_journal(file_system) {
        file_system.features.push("^has_journal".to_owned());
        if enough(0, file_system) == Some(size_bytes) {
            reason += "; or leave out the journal: -O ^has_journal";
        }
    }
    Error::new(place, reason)
}

/// Clusters that the files take.
fn clusters(manifest: &Manifest, made: &Made) -> u64 {
    let counter = Counter {
        block: u64::from(made.block_size),
        cluster: u64::from(made.cluster_size),
        inode_size: usize::from(made.inode_size),
        has_extents: made.features.iter().any(|feature| feature == "extent"),
    };
    let mut is_first = manifest.marks();
    let mut sum = 0;
    for (_, directory) in manifest.each_directory() {
        sum += counter.directory(manifest.names(directory));
        sum += counter.xattrs(&manifest.nodes[directory].attributes.xattrs);
        for number in manifest.names(directory).values() {
            let node = &manifest.nodes[*number];
            if !matches!(node.kind, Kind::Directory(_)) && is_first(*number) {
                sum += counter.file(node);
            }
        }
    }
    sum
}

/// Counts the clusters of files, which are blocks without `bigalloc`.
pub(super) struct Counter {
    pub block: u64,
    pub cluster: u64,
    pub inode_size: usize,
    pub has_extents: bool,
}

impl Counter {
    pub fn file(&self, node: &Node) -> u64 {
        let data = match &node.kind {
            Kind::Regular(content) => self.content(content),
            // A shorter one lies in the inode.
            Kind::Symlink(target) => u64::from(target.as_os_str().len() >= BLOCK_AREA_SIZE),
            _ => 0,
        };
        data + self.xattrs(&node.attributes.xattrs)
    }

    fn content(&self, content: &Content) -> u64 {
        let pieces = content.pieces;
        // Each piece may begin and end within a cluster.
        let most = content.size.div_ceil(self.cluster);
        let data = (content.data_bytes.div_ceil(self.cluster) + pieces - pieces.min(1)).min(most);
        data + self.maps(data, pieces, most)
    }

    /// Clusters of the tables that map so much data.
    fn maps(&self, data: u64, pieces: u64, length: u64) -> u64 {
        const EXTENT_BYTES: u64 = 12;
        const EXTENTS_INSIDE: u64 = 4;
        const POINTERS_INSIDE: u64 = 12;
        if self.has_extents {
            // Groups end extents too: three in four hold a whole one.
            let extents = pieces + data.div_ceil(8 * self.block) * 2;
            let leaf = self.block / EXTENT_BYTES - 1;
            return match extents <= EXTENTS_INSIDE {
                true => 0,
                false => extents.div_ceil(leaf / 2) + 1,
            };
        }
        let pointers = self.block / 4;
        match length <= POINTERS_INSIDE {
            true => 0,
            // Each level has a block begun.
            false => data.min(length).div_ceil(pointers) + pieces + data / pointers / pointers + 3,
        }
    }

    pub fn directory(&self, names: &BTreeMap<OsString, usize>) -> u64 {
        let entry = |name: &OsString| (ENTRY_BYTES + name.len()).next_multiple_of(4) as u64;
        let bytes: u64 = names.keys().map(entry).sum();
        // `.` and `..`, and a checksum at the end.
        let room = self.block - 36;
        match bytes.div_ceil(room) {
            0 | 1 => 1,
            // What does not fit at the end of a block is left free.
            blocks => 2 * blocks + blocks / 32 + 2,
        }
    }

    fn xattrs(&self, xattrs: &[Xattr]) -> u64 {
        const HEADER_BYTES: usize = 8;
        const FIELDS_BYTES: usize = 16;
        let one = |(name, value): &Xattr| {
            FIELDS_BYTES + name.len().next_multiple_of(4) + value.len().next_multiple_of(4)
        };
        let bytes: usize = xattrs.iter().map(one).sum();
        let inside = self.inode_size.saturating_sub(INODE_FIELDS + HEADER_BYTES);
        u64::from(bytes > 0 && bytes > inside)
    }
}
